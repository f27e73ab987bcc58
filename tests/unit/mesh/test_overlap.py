"""Exchanges run while kernels do: the order is by prices, and what is computed is the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.layout import Mesh
from axe_eq.mesh import overlap
from axe_eq.mesh.lower import lower
from axe_eq.mesh.simulate import Simulation
from axe_eq.program.nesting import flatten
from axe_eq.schedule.graph import MoveStep
from tests.unit.mesh.programs import CASES, arguments, compiled

M2 = Mesh({"x": 2})


@pytest.fixture
def apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any exchange is worth it, and every kernel is a step."""
    monkeypatch.setattr(overlap, "WORTH_S", 0.0)
    monkeypatch.setattr(overlap, "_together", lambda items, arriving: items)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", CASES)
def test_plans_of_single_kernels_compute_the_same(name: str, apart: None) -> None:
    exe = compiled(name)
    plan = lower(exe.schedule.graph)
    plan.prove()
    given = [*arguments(name), *exe.schedule.constants.values()]
    found = Simulation(plan, exe.schedule.runners["cpu"].prepare)(given)
    wanted = flatten(exe(*arguments(name)))[1]
    for got, want in zip(found, wanted, strict=True):
        assert np.array_equal(got.reshape(want.shape), want)


def halves(x: Any, a: Any, b: Any) -> Any:
    """A block of two products, by halves of its rows."""
    (m, k), f = x.shape, a.shape[1]
    own, columns = axe.array.reshape(x, (2, m // 2, k)), axe.array.reshape(a, (k, 2, f // 2))
    rows = axe.array.reshape(b, (2, f // 2, k))

    def part(z: Any) -> Any:
        h = axe.nn.relu(axe.nn.einsum("rmk,krf->rmf", z, columns))
        return axe.nn.einsum("rmf,rfk->rmk", h, rows)

    other = axe.array.flip(part(axe.array.flip(own, axis=0)), axis=0)
    return axe.array.reshape(part(own) + other, x.shape)


def compiled_halves(m: int, k: int, f: int, target: str) -> Any:
    shapes = {(m, k): "P('x',None)", (k, f): "P(None,'x')", (f, k): "P('x',None)"}
    specs = [
        axe.Spec(s, "f16", layout=axe.read("jax", cut, shape=s, mesh=M2))
        for s, cut in shapes.items()
    ]
    goal = axe.read("jax", "P('x',None)", shape=(m, k), mesh=M2)
    return axe.compile(halves, *specs, target=target, mesh=M2, outputs=[goal])


def test_products_that_need_no_exchange_run_while_one_does() -> None:
    """Own rows first; what the other device waits for before what nobody does."""
    exe = compiled_halves(8192, 4096, 14336, "h200")
    steps = {s.name: s for s in exe.plan.steps}
    assert list(steps) == ["m0_select", "k0.2", "k0.0_1", "m1_select", "k0.3", "k1"]
    arrived, sent = exe.plan.exchanges[0].write.buffer, exe.plan.exchanges[1].reads[0].buffer
    assert arrived not in steps["k0.2"].reads
    assert arrived in steps["k0.0_1"].reads
    assert sent in steps["k0.0_1"].writes
    (held,) = set(steps["k0.2"].writes) & set(steps["k0.3"].reads)
    assert exe.plan.local_type(held).size == 4096 * 7168
    before = exe.schedule.graph
    moves = {s.name for s in before.steps if isinstance(s, MoveStep)}
    assert [n for n in steps if n not in moves and "." not in n] == ["k1"]


def test_values_between_parts_of_a_step_are_handed_on(apart: None) -> None:
    exe = compiled_halves(64, 32, 48, "cpu")
    rng = np.random.default_rng(0)
    given = [rng.integers(-2, 3, t.shape).astype(np.float16) for t in exe.schedule.call.types]
    plan = lower(exe.schedule.graph)
    plan.prove()
    assert [n for n in plan.buffers if n not in exe.schedule.graph.buffers]
    (found,) = Simulation(plan, exe.schedule.runners["cpu"].prepare)(given)
    assert np.array_equal(found, exe.meaning(*given))


def test_short_exchanges_leave_steps_as_they_are() -> None:
    graph = compiled("mlp").schedule.graph
    assert overlap.overlapped(graph) is graph
