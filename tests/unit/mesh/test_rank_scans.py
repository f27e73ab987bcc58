"""Scans along a cut axis, and parts that ranks find by their index: proved, or refuted by rank."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import axe_eq as axe
import axe_eq.array as xp
from axe_eq.mesh import RankProgram, all_gather, axis_index, axis_size
from axe_eq.mesh.steps import LocalStep
from axe_eq.prove.certificates.verdict import ProgramCounterexample
from tests.unit.mesh.programs import CASES, M4, compiled

ROWS = "jax:P('x',None)"


def value(x: Any) -> Any:
    return x * 2


@pytest.mark.parametrize(("step", "wanted"), [(4, axe.Proved), (3, axe.Refuted)])
def test_ranks_that_slice_by_their_index_are_decided(step: int, wanted: type) -> None:
    def own(x: Any) -> Any:
        return xp.dynamic_slice(x, (axis_index("x") * step, 0), (4, 8)) * 2

    found = axe.equivalent(value, RankProgram(own, M4, [None], [ROWS]), "16x8:f32")
    assert isinstance(found, wanted), found
    if isinstance(found, axe.Proved):
        assert axe.check_certificate(found.certificate)
    elif isinstance(found, axe.Refuted):
        other = found.counterexample
        assert isinstance(other, ProgramCounterexample)
        assert other.rank == other.index[0] // 4


@pytest.mark.parametrize(("before", "wanted"), [
    (lambda i, n: xp.arange(n, dtype="int32") < i, axe.Proved),
    (lambda i, n: i > xp.arange(n, dtype="int32"), axe.Proved),
    (lambda i, n: xp.arange(n, dtype="int32") <= i, axe.Refuted),
    (lambda i, n: xp.arange(n, dtype="int32") > i, axe.Refuted),
])  # fmt: skip
def test_scans_with_the_totals_of_ranks_before_are_decided(before: Any, wanted: type) -> None:
    def own(x: Any) -> Any:
        part = xp.cumulative_sum(x, axis=0, dtype=x.dtype)
        totals = all_gather(part[-1], "x")
        kept = xp.expand_dims(before(axis_index("x"), axis_size("x")), axis=1)
        chosen = xp.where(kept, totals, xp.zeros_like(totals))
        return part + xp.sum(chosen, axis=0, dtype=x.dtype)

    found = axe.equivalent(
        lambda x: xp.cumulative_sum(x, axis=0, dtype=x.dtype),
        RankProgram(own, M4, [ROWS], [ROWS]), "16x8:i32",
    )  # fmt: skip
    assert isinstance(found, wanted), found
    assert not isinstance(found, axe.Proved) or axe.check_certificate(found.certificate)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("devices", "rows", "fn"), [
    (3, 3, lambda x: xp.cumulative_sum(x * 2, axis=0)),
    (2, 2, lambda x: xp.cumulative_sum(x, axis=0)),
    (2, 6, lambda x: xp.cumulative_prod(x[:, :1], axis=0)),
    (4, 8, lambda x: xp.associative_scan("max", x, axis=0)),
    (4, 4, lambda x: xp.associative_scan("recurrence", (x, x + 1), axis=0)),
    (3, 4, lambda x: xp.associative_scan("recurrence", (x, x + 1), axis=1)),
])  # fmt: skip
def test_scans_of_parts_of_few_elements_are_proved(devices: int, rows: int, fn: Any) -> None:
    """Of one, each is reduced with the totals of those before it; uneven parts are filled up."""
    mesh = axe.Mesh({"x": devices})
    cut = axe.read("jax", "P('x',None)", shape=(rows, 3), mesh=mesh)
    given = axe.Spec((rows, 3), "f32", layout=cut)
    (root,) = axe.trace(fn, given).outputs
    wanted = axe.read("jax", "P('x',None)", shape=root.shape, mesh=mesh)
    exe = axe.compile(fn, given, target="cpu", mesh=mesh, outputs=[wanted], objective="link_bytes")
    found = axe.equivalent(fn, exe.plan)
    assert isinstance(found, axe.Proved), found
    assert axe.check_certificate(found.certificate)


@pytest.mark.parametrize(("name", "numerics", "wanted"), [
    ("prefix sums", "real", axe.Proved), ("prefix sums", "exact", axe.Unknown),
    ("most so far", "exact", axe.Proved), ("recurrence", "real", axe.Proved),
])  # fmt: skip
def test_scans_along_a_cut_axis_are_proved(name: str, numerics: str, wanted: type) -> None:
    """Behind the totals of the parts before: of floats over the reals alone."""
    plan, fn = compiled(name).plan, CASES[name].fn
    assert any("concat" in n.text for s in plan.steps if isinstance(s, LocalStep)
               for k in s.graph.kernels for n in k.nodes)  # fmt: skip
    found = axe.equivalent(fn, plan, numerics=numerics, packs=["sharding"])
    assert isinstance(found, wanted), found
    assert not isinstance(found, axe.Proved) or axe.check_certificate(found.certificate)
    other: Callable[..., Any] = lambda *x: fn(*x) + (xp.arange(16)[:, None] == 9)  # noqa: E731
    assert isinstance(axe.equivalent(other, plan, numerics="real"), axe.Refuted)
