"""What is beside exchanges is computed in blocks: the same values, proved, and where it pays."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.errors import ScheduleError
from axe_eq.extract.mesh.blocks import needs
from axe_eq.extract.mesh.turned import Turned
from axe_eq.layout import Layout, Mesh
from axe_eq.mesh.plan import plan_from_json
from axe_eq.mesh.steps import ExchangeStep, LocalStep, exchange
from axe_eq.program.meaning import evaluate_node
from axe_eq.program.nesting import flatten
from axe_eq.program.types import DTYPES
from axe_eq.target import Link
from axe_eq_backends.cpu.target import cpu
from axe_eq_backends.cuda.target import h200
from tests.unit.mesh.blocks import in_blocks
from tests.unit.mesh.programs import CASES, C, R, W, arguments, compiled

M2 = Mesh({"x": 2})


def compile_on_two(
    fn: Callable[..., Any], cuts: Mapping[Any, str], goal: str, dtype: str = "i32",
    target: Any = "cpu", mesh: Mesh | None = None,
) -> Any:  # fmt: skip
    mesh = mesh or M2  # which some tests change
    specs = [
        axe.Spec(s, dtype, layout=axe.read("jax", c, shape=s, mesh=mesh)) for s, c in cuts.items()
    ]
    (root,) = axe.trace(fn, *specs).outputs
    goals = [axe.read("jax", goal, shape=root.shape, mesh=mesh)]
    return axe.compile(fn, *specs, target=target, mesh=mesh, outputs=goals)


def check(exe: Any, dtype: str = "i32") -> None:
    """Right, as long as announced, and the same from JSON."""
    rng = np.random.default_rng(0)
    given = [
        rng.integers(-3, 4, t.shape).astype(DTYPES[dtype].numpy) for t in exe.schedule.call.types
    ]
    assert np.array_equal(exe(*given), exe.meaning(*given))
    assert exe.schedule.simulation.sent == exe.plan.n_bytes
    again = plan_from_json(exe.plan.to_json())
    again.prove()
    assert again.digest == exe.plan.digest


PROGRAMS: dict[str, tuple[Any, ...]] = {
    "scatter": (lambda x, w: x @ w, {(64, 256): C, (256, 128): R}, R),
    "everywhere": (lambda x, w: x @ w, {(64, 256): C, (256, 128): R}, W),
    "gathered": (lambda x, w: x @ w, {(64, 128): R, (128, 256): C}, C),
    "mlp": (
        lambda x, a, b: axe.nn.relu(x @ a) @ b, {(64, 128): R, (128, 256): C, (256, 128): R}, R
    ),
    "gated": (
        lambda x, a, b: (axe.nn.relu(x @ a[:, :128]) * (x @ a[:, 128:])) @ b,
        {(64, 256): R, (256, 256): W, (128, 256): R}, R,
    ),
    "norm": (lambda x, w: axe.nn.rmsnorm(x) @ w, {(64, 128): R, (128, 256): C}, C),
}  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", PROGRAMS)
def test_blocks_lie_in_the_memory_of_the_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = in_blocks(monkeypatch, [(2, 1, 1)], dim=0)
    dtype = "f32" if name == "norm" else "i32"
    fn, cuts, goal = PROGRAMS[name]
    exe = compile_on_two(fn, cuts, goal, dtype)
    assert chosen
    inside = [b for b in exe.plan.buffers.values() if b.within]
    assert inside
    assert all(not exe.plan.is_sent(s) for s in exe.plan.exchanges
                          if exe.plan.buffers[s.write.buffer].within and not s.time_s)  # fmt: skip
    if name == "norm":
        rng = np.random.default_rng(0)
        given = [rng.normal(size=t.shape).astype(np.float32) for t in exe.schedule.call.types]
        assert np.allclose(exe(*given), exe.meaning(*given), rtol=1e-4, atol=1e-4)
    else:
        check(exe)
        specs = [axe.Spec(shape, dtype) for shape in cuts]
        verdict = axe.equivalent(fn, exe.plan, *specs, numerics="exact")
        assert isinstance(verdict, axe.Proved), verdict
        assert axe.check_certificate(verdict.certificate)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("late", [True, False])
@pytest.mark.parametrize(("n", "sizes"), [(3, (1,)), (4, (1, 1)), (5, (1,))])
def test_sums_that_every_device_adds_in_an_order_of_its_own_are_proved(
    n: int, sizes: tuple[int, ...], late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    chosen = in_blocks(monkeypatch, [sizes], dim=0, late=late)
    fn, cuts = PROGRAMS["scatter"][0], {(64 * n, 64 * n): C, (64 * n, 16): R}
    exe = compile_on_two(fn, cuts, R, mesh=Mesh({"x": n}))
    assert chosen
    check(exe)
    specs = [axe.Spec(shape, "i32") for shape in cuts]
    verdict = axe.equivalent(fn, exe.plan, *specs, numerics="exact")
    assert isinstance(verdict, axe.Proved), verdict
    assert axe.check_certificate(verdict.certificate)


def test_blocks_of_what_is_read_through_are_joined(monkeypatch: pytest.MonkeyPatch) -> None:
    def heads(x: Any, w: Any) -> Any:
        return axe.array.sum(axe.array.reshape(x @ w, (64, 8, 16)), axis=0)

    chosen = in_blocks(monkeypatch, [2, (3, 1)], dim=0)
    check(compile_on_two(heads, {(64, 256): R, (256, 128): C}, R))
    assert chosen


@pytest.mark.sampled(3, slow=("gram",))
@pytest.mark.parametrize("name", CASES)
def test_programs_in_blocks_are_the_same(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = in_blocks(monkeypatch, [2, 3, (3, 1), (1, 2, 4, 1)], seed=len(name))
    exe = compiled.__wrapped__(name, objective="time")
    given = arguments(name)
    found, wanted = (flatten(v)[1] for v in (exe(*given), exe.meaning(*given)))
    for got, want in zip(found, wanted, strict=True):
        if np.asarray(want).dtype.kind == "f":
            assert np.allclose(got, want, rtol=2e-3, atol=2e-3), chosen
        else:
            assert np.array_equal(got, want), chosen
    assert exe.schedule.simulation.sent == exe.plan.n_bytes


@pytest.mark.sampled(1, slow=("scatter",))
@pytest.mark.parametrize("name", ["scatter", "gathered"])
def test_kernels_read_and_write_blocks_where_they_lie(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On tensor cores, a part of every block apart from the next; interpreted and saved."""
    in_blocks(monkeypatch, [2], dim=0)
    fn, _, goal = PROGRAMS[name]
    shapes = {"scatter": {(512, 128): C, (128, 64): R}, "gathered": {(512, 64): R, (64, 128): C}}
    exe = compile_on_two(fn, shapes[name], goal, "f16", "h200")
    assert {k.schedule for k in exe.schedule.graph.kernels} <= {"tensor_cores", "lanes"}
    strides = [Layout.parse(b.layout) for s in exe.plan.steps if not isinstance(s, ExchangeStep)
               for b in s.graph.buffers.values()]  # fmt: skip
    assert any(len(layout.shard) > 1 for layout in strides)
    rng = np.random.default_rng(1)
    given = [rng.integers(-2, 3, t.shape).astype(np.float16) for t in exe.schedule.call.types]
    assert np.array_equal(exe.interpret(*given), exe.meaning(*given))


def test_what_is_not_the_function_is_refuted(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one of blocks alone that is not."""
    in_blocks(monkeypatch, [4], dim=0)
    fn, cuts, goal = PROGRAMS["scatter"]
    exe = compile_on_two(fn, cuts, goal)
    specs = [axe.Spec(s, "i32") for s in cuts]
    assert isinstance(axe.equivalent(lambda x, w: (x @ w) * 2, exe.plan, *specs), axe.Refuted)
    rows = np.arange(64)[:, None] // 8 == 5  # of the second block of the second part
    assert isinstance(axe.equivalent(lambda x, w: x @ w + rows, exe.plan, *specs), axe.Refuted)


# -- the choice ------------------------------------------------------------------------------------

BIG = {(8192, 8192): C, (8192, 4096): R}


@pytest.mark.usefixtures("searched")
def test_blocks_are_taken_where_they_pay() -> None:
    product: Callable[..., Any] = lambda x, w: x @ w  # noqa: E731
    exe = compile_on_two(product, BIG, R, "f16", "h200")
    plans = exe._searched
    (region,) = plans.best.regions
    assert isinstance(region, Turned)
    plain = min(t.cost for t in plans.tried.values() if not t.regions)
    assert exe.cost["time_s"] == plans.best.cost < 0.95 * plain
    said = exe.explain()
    assert "for one device after the other beside exchanges" in said
    assert "in blocks 1:1" in said
    sums = [s.time_s for s in exe.schedule.graph.steps]
    assert plans.best.least_s <= exe.cost["time_s"] * (1 + 1e-9) < sum(sums)
    assert exe.cost["time_s"] < 1.02 * sum(k.time_s for k in exe.schedule.graph.kernels)
    order = [
        s.name for s in exe.plan.steps if not isinstance(s, ExchangeStep) or exe.plan.is_sent(s)
    ]
    first = next(n for n, name in enumerate(order) if name.startswith("m"))
    assert any(name.startswith("k0") for name in order[first:])  # kernels after an exchange began


@pytest.mark.usefixtures("searched")
@pytest.mark.parametrize("link", [Link(393e9, 18e-6), Link(1e15, 0.0, beside=True)])
def test_blocks_are_not_taken_where_nothing_is_hidden(link: Link) -> None:
    product: Callable[..., Any] = lambda x, w: x @ w  # noqa: E731
    shapes = {(2048, 4096): C, (4096, 2048): R}
    exe = compile_on_two(product, shapes, R, "f16", h200.replace(links=(link,)))
    assert not exe._searched.best.regions
    assert not any(b.within for b in exe.plan.buffers.values())


@pytest.mark.usefixtures("searched")
def test_a_slow_link_of_the_host_is_hidden_too() -> None:
    fn, _, goal = PROGRAMS["gathered"]
    target = cpu.replace(links=(Link(5e7, 1e-6, beside=True),))
    exe = compile_on_two(fn, {(1024, 512): R, (512, 1024): C}, goal, "f32", target)
    assert exe._searched.best.regions
    check(exe, "f32")  # exact for such integers, and products of i32 take 2 s


# -- what may be in blocks -------------------------------------------------------------------------


def test_a_block_needs_blocks_of_what_it_reads() -> None:
    """By the meaning: of rows of the value, these rows of operands and no others."""
    xp, nn = axe.array, axe.nn
    functions: list[Callable[..., Any]] = [
        lambda x, y: x @ y, lambda x, y: x + xp.permute_dims(y, (1, 0)), lambda x, y: x * y[0],
        lambda x, y: xp.sum(x, axis=1, keepdims=True) + y, lambda x, y: nn.softmax(x, axis=0),
        lambda x, y: xp.flip(x, axis=0) - y, lambda x, y: xp.cumulative_sum(x, axis=0),
        lambda x, y: xp.reshape(x, (2, 4, 8)), lambda x, y: xp.concat([x, y], axis=1),
        lambda x, y: xp.roll(x, 1, axis=1), lambda x, y: xp.take(x, xp.arange(4), axis=1),
    ]  # fmt: skip
    rng = np.random.default_rng(0)
    counted = 0
    for fn in functions:
        program = axe.trace(fn, "8x8:f32", "8x8:f32")
        for node in program.nodes():
            for dim in range(len(node.shape) if node.args else 0):
                reads = needs(node, dim)
                if reads is None or node.shape[dim] % 2:
                    continue
                counted += 1
                given = [rng.integers(0, 4, a.shape).astype(DTYPES[a.dtype].numpy)
                         for a in node.args]  # fmt: skip
                rows = rng.permutation(node.shape[dim])[: node.shape[dim] // 2]
                other = [np.array(a) for a in given]
                for array, e in zip(other, reads, strict=True):
                    if e is not None:  # other rows than these say nothing of them
                        rest = np.setdiff1d(np.arange(array.shape[e]), rows)
                        np.moveaxis(array, e, 0)[rest] = 5
                first, second = (evaluate_node(node, g) for g in (given, other))
                one, two = (np.take(v, rows, axis=dim) for v in (first, second))
                assert np.array_equal(one, two), (node, dim)
    assert counted > 20


# -- damage ----------------------------------------------------------------------------------------


def test_blocks_that_do_not_lie_as_they_say_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    in_blocks(monkeypatch, [2], dim=0)
    plan = compile_on_two(*PROGRAMS["gathered"]).plan
    within = [b for b in plan.buffers.values() if b.within == plan.outputs[0]]
    inside = [b for b in within if b.type == within[-1].type]  # others may be of both
    assert len(inside) == 2

    def refused(**changed: Any) -> str:
        buffer = replace(inside[1], **changed)
        other = replace(plan, buffers={**plan.buffers, buffer.name: buffer})
        with pytest.raises(ScheduleError) as error:
            other.prove()
        return str(error.value)

    assert "accesses" in refused(layout=inside[0].layout)  # both in one place
    assert "on a rank" in refused(within="")
    assert "lies within" in refused(within=inside[0].name)
    assert "lies within" in refused(within="nothing")
    assert "reaches behind" in refused(within=plan.inputs[0])
    moved = _moved(plan, inside)
    with pytest.raises(ScheduleError, match="moves something"):
        moved.prove()


def _moved(plan: Any, inside: list[Any]) -> Any:
    """A plan whose second block lies where the first does, in all that is said of it."""
    first, second = inside
    steps = []
    for step in plan.steps:
        if isinstance(step, ExchangeStep):
            reads = tuple(replace(a, layout=first.layout) if a.buffer == second.name else a
                          for a in step.reads)  # fmt: skip
            write = step.write
            if write.buffer == second.name:
                write = replace(write, layout=first.layout)
            step = exchange(step.name, step.number, reads, write, step.nodes, (), step.time_s)
        steps.append(step)
    buffers = {**plan.buffers, second.name: replace(second, layout=first.layout)}
    return replace(plan, buffers=buffers, steps=tuple(steps))


def test_local_graphs_take_parts_as_they_lie() -> None:
    """Dense rows: machines read what lies there, whatever their graph says."""
    cut = axe.read("jax", R, shape=(8, 6), mesh=M2)
    spec = axe.Spec((8, 6), "i32", layout=cut)
    plan = axe.compile(lambda x: x * 2, spec, mesh=M2, outputs=[cut], target="cpu").plan
    (step,) = plan.steps
    assert isinstance(step, LocalStep)
    graph, turned = step.graph, "S[(4,6):(1@m,4@m)]"
    (kernel,), (given,) = graph.steps, graph.inputs
    kernel = replace(kernel, reads=(replace(kernel.reads[0], layout=turned),))
    buffers = {**graph.buffers, given: replace(graph.buffers[given], layout=turned)}
    own = replace(step, graph=replace(graph, buffers=buffers, steps=(kernel,)))
    with pytest.raises(ScheduleError, match=r"lies in .* on a rank; expected"):
        replace(plan, steps=(own,)).prove()


def test_what_lies_in_a_memory_is_never_overwritten() -> None:
    """A step computes into what another one reads later: in an input, or in each other's memory."""
    cut = axe.read("jax", R, shape=(64, 16), mesh=M2)
    doubled, more = (
        axe.compile(fn, axe.Spec((64, 16), "i32", layout=cut), mesh=M2, outputs=[cut], target="cpu")
        for fn in (lambda x: x * 2, lambda x: x + 1)
    )  # fmt: skip
    (first,), (second,) = doubled.plan.steps, more.plan.steps
    spec = doubled.plan.buffers["x"]

    def refused(steps: list[tuple[Any, str, str]], **within: str) -> str:
        parts = tuple(replace(s, name=w, reads=(r,), writes=(w,)) for s, r, w in steps)
        made = {n: replace(spec, name=n, role="temporary", within=w) for n, w in within.items()}
        plan = replace(doubled.plan, buffers={"x": spec, **made}, steps=parts, outputs=("y",))
        with pytest.raises(ScheduleError) as error:
            plan.prove()
        return str(error.value)

    steps = [(first, "x", "b"), (second, "x", "y")]
    assert "buffer 'b': writes to 'x'" in refused(steps, b="x", y="")
    steps = [(first, "x", "b"), (second, "x", "c"), (second, "b", "y")]
    assert "lies within 'r', which no step makes" in refused(steps, r="", b="r", c="r", y="")
    steps = [(first, "x", "b"), (second, "b", "y")]
    assert "holds b, and is made of b; expected a view" in refused(steps, b="y", y="")
    assert "buffer 'y': lies within 'b'" in refused(steps[1:], b="x", y="b")
