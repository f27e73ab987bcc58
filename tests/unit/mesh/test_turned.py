"""Blocks of which every device makes the part of another one at a time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.errors import ScheduleError
from axe_eq.extract.mesh.turned import Turned
from axe_eq.layout import Mesh
from axe_eq.mesh.steps import LocalStep
from tests.unit.mesh import test_blocks
from tests.unit.mesh.blocks import in_blocks
from tests.unit.mesh.programs import C, R
from tests.unit.mesh.test_blocks import PROGRAMS, check, compile_on_two


def turned_plan(
    name: str, sizes: tuple[int, ...], late: bool, monkeypatch: pytest.MonkeyPatch, n: int = 2
) -> Any:
    monkeypatch.setattr(test_blocks, "M2", Mesh({"x": n}))
    chosen = in_blocks(monkeypatch, [sizes], dim=0, late=late)
    exe = compile_on_two(*PROGRAMS[name])
    assert [type(r) for r in chosen] == [Turned]
    return exe


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("name", "sizes", "late"),
    [("scatter", (1,), True), ("scatter", (3, 1), False), ("gathered", (1, 1), False),
     ("mlp", (1,), False), ("mlp", (3, 1), True), ("gated", (1,), True)],
)  # fmt: skip
def test_turned_blocks_are_the_function(
    name: str, sizes: tuple[int, ...], late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run, from JSON too, and proved."""
    exe = turned_plan(name, sizes, late, monkeypatch)
    check(exe)
    assert exe.plan.link_bytes == sum(sum(n) for n in exe.plan.n_bytes.values())
    fn, cuts, _ = PROGRAMS[name]
    specs = [axe.Spec(shape, "i32") for shape in cuts]
    verdict = axe.equivalent(fn, exe.plan, *specs, numerics="exact")
    assert isinstance(verdict, axe.Proved), verdict
    assert axe.check_certificate(verdict.certificate)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize(("rows", "inner", "columns"), [(2, 4, 8), (1, 16, 1), (4, 1, 1)])
def test_sums_of_small_blocks_are_proved(
    n: int, rows: int, inner: int, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What devices move is a product of dims, however few elements that are."""
    monkeypatch.setattr(test_blocks, "M2", Mesh({"x": n}))
    chosen = in_blocks(monkeypatch, [(1,)], dim=0, late=n == 3)
    cuts = {(n * rows, n * inner): C, (n * inner, n * columns + 1): R}
    exe = compile_on_two(lambda x, w: x @ w, cuts, R)
    specs = [axe.Spec(shape, "i32") for shape in cuts]
    verdict = axe.equivalent(lambda x, w: x @ w, exe.plan, *specs, numerics="exact")
    assert isinstance(verdict, axe.Proved), (chosen, verdict)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["scatter", "gathered", "mlp"])
def test_every_device_begins_at_its_own_place(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Four of them: nothing is moved that is there, and what one makes for others is sent once."""
    exe = turned_plan(name, (1, 3), name != "gathered", monkeypatch, n=4)
    check(exe)
    plan, n = exe.plan, 4
    begun = [b.begins for b in plan.buffers.values() if b.begins]
    assert bool(begun) == (name != "mlp")  # whose hidden values nobody reads as one
    assert all(len({*begins}) == n for begins in begun)
    sent = {"scatter": 64 * 128, "gathered": 64 * 128, "mlp": 2 * 64 * 128}[name]
    assert plan.link_bytes == 4 * (n - 1) * sent


def test_sums_are_in_the_kernels_of_products(monkeypatch: pytest.MonkeyPatch) -> None:
    """On tensor cores a device's own part is added to what arrived where it is made."""
    in_blocks(monkeypatch, [(1,)], dim=0, late=True)
    exe = compile_on_two(PROGRAMS["scatter"][0], {(512, 128): C, (128, 64): R}, R, "f16", "h200")
    local = [s for s in exe.plan.steps if isinstance(s, LocalStep)]
    assert [len(s.graph.steps) for s in local] == [1, 1]
    assert {k.schedule for k in exe.schedule.graph.kernels} == {"tensor_cores"}
    rng = np.random.default_rng(1)
    given = [rng.integers(-2, 3, t.shape).astype(np.float16) for t in exe.schedule.call.types]
    assert np.array_equal(exe.interpret(*given), exe.meaning(*given))


def test_the_greatest_of_parts_is_turned_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any monoid that merges values; other axes of the mesh have copies of all that."""
    mesh = Mesh({"y": 2, "x": 2})
    monkeypatch.setattr(test_blocks, "M2", mesh)
    chosen = in_blocks(monkeypatch, [(1,)], late=True)
    exe = compile_on_two(lambda x: axe.array.max(x, axis=1), {(64, 32): C}, "P('x',)")
    if chosen:  # the first plan may bring the other half of x instead
        assert isinstance(chosen[0], Turned)
        assert chosen[0].axes == ("x",)
    check(exe)


def test_blocks_that_begin_elsewhere_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = turned_plan("scatter", (1,), True, monkeypatch).plan
    own = next(b for b in plan.buffers.values() if b.begins)

    def refused(**changed: Any) -> str:
        buffer = replace(own, **changed)
        other = replace(plan, buffers={**plan.buffers, buffer.name: buffer})
        with pytest.raises(ScheduleError) as error:
            other.prove()
        return str(error.value)

    first, second = own.begins
    assert "from" in refused(begins=(second, first))
    assert "begins at" in refused(begins=(first,))
    assert "begins at" in refused(within="")
    assert "begins at" in refused(begins=(-first - 1, second))
    assert "reaches behind" in refused(begins=(first, second + 4096))
