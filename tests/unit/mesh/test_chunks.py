"""Kernels that tell other devices what they have stored on them, tile by tile and in chunks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.errors import ScheduleError
from axe_eq.extract.mesh.seen import STORE
from axe_eq.kernel.expr import make
from axe_eq.kernel.interp import KernelFault
from axe_eq.kernel.placement import number
from axe_eq.kernel.threads import ir
from axe_eq.lower.own import Lowered
from axe_eq.mesh.across import Across
from axe_eq.mesh.plan import MeshPlan
from axe_eq.mesh.prove import prove
from axe_eq.mesh.steps import LocalStep
from axe_eq.pipeline.on_mesh import Plans
from axe_eq.run.beside import beside
from axe_eq.run.interpret import _interpreted, interpret_plan
from axe_eq.schedule.graph import Access, ScheduleGraph
from axe_eq.schedule.meeting import buffers_of, chunks_of, meets, silent, tells
from axe_eq_backends.cuda import lower, meet
from axe_eq_backends.cuda import make as making
from axe_eq_backends.cuda.interpret import INTERPRETER
from axe_eq_backends.cuda.target import h200
from tests.unit.mesh.test_meetings import check_product, given, kernels, product, statements


@pytest.mark.sampled(1)
@pytest.mark.parametrize(("n", "chunks"), [(2, 1), (2, 4), (4, 2)])
def test_readers_wait_for_the_chunks_that_they_read(n: int, chunks: int) -> None:
    exe, arrays = product("summed", n, chunks), given()
    (name,) = {b for b in exe.plan.signals if b in {k for k in exe.plan.seen}}
    assert chunks_of(exe.plan.buffers[name]) == chunks
    assert len(kernels(exe.plan)) == 1
    said = f"{chunks} chunk{'s' * (chunks > 1)}"
    assert str(exe.plan).count(f"waits itself for what is stored, in {said}") == 1
    assert str(exe.plan).count("tells devices what it stores on them") == 1
    assert f"once it is stored, in {said}" in exe.explain()
    texts = list(exe.source.values())
    assert [t.count("tell_fence();") for t in texts] == [1, 0]
    assert [t.count("signal_tell(s") for t in texts] == [n * chunks, 0]
    assert [t.count("signal_clear(s") for t in texts] == [chunks, 0]
    assert [t.count("signal_wait(s") for t in texts] == [0, 1]
    check_product(exe, arrays, orders=4)


# -- races and deadlocks ---------------------------------------------------------------------------


def no_tell(body: ir.Body, s: ir.Statement) -> None:
    if isinstance(s, ir.Tell):
        body.remove(s)


def one_device_is_told(body: ir.Body, s: ir.Statement) -> None:
    if isinstance(s, ir.Tell) and (n := len(s.flags) // 2):
        s.flags, s.counts = s.flags[:n], s.counts[:n]
    elif isinstance(s, ir.Tell):  # of a tile that one device has
        body.remove(s)


def one_element_less(body: ir.Body, s: ir.Statement) -> None:
    if isinstance(s, ir.Tell):
        s.counts = (s.counts[0] - 1, *s.counts[1:])


def told_before_the_copy_is_done(body: ir.Body, s: ir.Statement) -> None:
    if isinstance(s, ir.WaitGroup) and s.kind == "bulk" and len(body) > 1:
        body.remove(s)


def told_before_it_is_stored(body: ir.Body, s: ir.Statement) -> None:
    if isinstance(s, ir.Scope) and any(isinstance(x, ir.Tell) for x in s.body):
        body.remove(s)
        body.insert(0, s)


def no_wait(body: ir.Body, s: ir.Statement) -> None:
    if isinstance(s, ir.Await):
        body.remove(s)


def waits_for_too_few(body: ir.Body, s: ir.Statement) -> None:
    if isinstance(s, ir.Await):
        s.least -= 1


def waits_for_too_many(body: ir.Body, s: ir.Statement) -> None:
    if isinstance(s, ir.Await):
        s.least += 1


def waits_for_another_chunk(body: ir.Body, s: ir.Statement) -> None:
    if isinstance(s, ir.Await):
        n = number(s.flag.buffer.shape[0])
        (begin,) = s.flag.begin
        s.flag = s.flag.buffer[ir.span(make("%", begin + 1, n), 1),]


def nobody_waits_for_who_asks(body: ir.Body, s: ir.Statement) -> None:
    if isinstance(s, ir.Scope) and any(isinstance(x, ir.Await) for x in s.body):
        del body[body.index(s) + 1]


RACE = "at no known time|which nobody wrote|are waited for"
DAMAGE = (
    (no_tell, "deadlock"), (one_device_is_told, "deadlock"), (one_element_less, "deadlock"),
    (waits_for_too_many, "deadlock"), (told_before_the_copy_is_done, RACE),
    (told_before_it_is_stored, RACE), (no_wait, RACE), (waits_for_too_few, RACE),
    (nobody_waits_for_who_asks, RACE),
)  # fmt: skip


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    ("n", "chunks", "rows", "damage", "wrong"),
    [*((n, c, 64, *d) for n, c in ((2, 1), (2, 2), (4, 2)) for d in DAMAGE),
     *(((2, 2), 1, 64, *d) for d in DAMAGE if d[0] is not told_before_it_is_stored),
     (2, 2, 256, waits_for_another_chunk, RACE)],
    ids=lambda x: getattr(x, "__name__", None),
)  # fmt: skip
def test_what_is_told_or_awaited_otherwise_is_found(
    n: Any, chunks: int, rows: int, damage: Callable[[ir.Body, ir.Statement], None], wrong: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    exe = product("grouped" if isinstance(n, tuple) else "summed", n, chunks, rows)

    def damaged(made: Lowered, *of: Any) -> Lowered:
        found = meet.meet(made, *of)
        for body, s in statements(found.kernel.body) if found is not made else ():
            damage(body, s)
        return found

    monkeypatch.setattr(lower, "meet", damaged)
    monkeypatch.setattr(making, "_made", type(making._made)())
    with pytest.raises(KernelFault, match=wrong):
        exe.interpret(*given(rows=rows), orders=4)


def test_tiles_of_a_cluster_are_of_several_devices() -> None:
    """A device has as many rows as a tile: no CTA of a cluster is left without one."""
    plan, arrays = product("summed", 2, 1, 128).plan, given(rows=128)
    first = next(s for s in plan.steps if isinstance(s, LocalStep))
    (kernel,) = first.graph.kernels
    shared = {"m": 64, "n": 64, "consumers": 1, "staging": 1, "cluster_rows": 2, "turned": 0}
    kernel = replace(kernel, parameters={**kernel.parameters, **shared})
    new = replace(first, graph=replace(first.graph, steps=(kernel,)))
    plan = replace(plan, steps=tuple(new if s is first else s for s in plan.steps))
    made = making.make(kernel, new.graph, h200).lowered.kernel
    assert (made.tiles, made.cluster) == (1, 2)
    inputs = dict(zip(plan.inputs, arrays, strict=True))
    (found,) = interpret_plan(plan, h200, INTERPRETER, inputs, orders=2)
    assert np.array_equal(found, arrays[0].astype(np.float32) @ arrays[1].astype(np.float32))


# -- several readers, refusals ---------------------------------------------------------------------


def several(plan: MeshPlan) -> MeshPlan:
    """A plan of which two kernels read what devices store, each for a result of its own."""
    (step,) = (s for s in plan.steps if isinstance(s, LocalStep) and kernels_of(s))
    name = next(b.after for b in step.graph.buffers.values() if b.after)
    after = {n for n, b in step.graph.buffers.items() if b.after}
    graph, ((out, *_), (own, *_)) = silent(step.graph), (step.graph.outputs, step.writes)
    (kernel,) = graph.kernels
    twice = replace(kernel, name="again", writes=(Access("u1", kernel.writes[0].layout),))
    graph = replace(
        graph, steps=(kernel, twice), outputs=(out, "u1"), views=graph.views * 2,
        buffers={**graph.buffers, "u1": replace(graph.buffers[out], name="u1")},
    )  # fmt: skip
    chunks = chunks_of(plan.buffers[name])
    chunk = next(b.chunk for b in step.graph.buffers.values() if b.after)
    made = meets(graph, name, after, plan.n_ranks, chunks, chunk)
    assert made is not None
    new = replace(step, graph=made, writes=(own, "t99"))
    buffers = {**plan.buffers, "t99": replace(plan.buffers[own], name="t99")}
    return replace(
        plan, buffers=buffers, steps=tuple(new if s is step else s for s in plan.steps),
        outputs=(own, "t99"), types=plan.types * 2,
    )  # fmt: skip


def kernels_of(step: LocalStep) -> bool:
    return any(b.after for b in step.graph.buffers.values())


def test_several_kernels_wait_for_one_exchange() -> None:
    exe, arrays = product("summed", 2, 2), given()
    plan = several(exe.plan)
    prove(plan)
    inputs = dict(zip(plan.inputs, arrays, strict=True))
    for found in interpret_plan(plan, h200, INTERPRETER, inputs, orders=3):
        assert np.array_equal(found, exe.meaning(*arrays))
    quiet = product("summed", 2).plan  # where the one who reads tells that it has come
    with pytest.raises(AssertionError):
        several(quiet)


def test_plans_that_tell_otherwise_are_refused() -> None:
    plan: MeshPlan = product("summed", 2, 2).plan
    first, last = (s for s in plan.steps if isinstance(s, LocalStep))

    def changed(step: LocalStep, **of: Any) -> MeshPlan:
        graph = step.graph
        buffers = {
            n: replace(b, **{k: v for k, v in of.items() if getattr(b, k)})
            for n, b in graph.buffers.items()
        }
        made = replace(step, graph=replace(graph, buffers=buffers))
        return replace(plan, steps=tuple(made if s is step else s for s in plan.steps))

    def without(step: LocalStep) -> MeshPlan:
        graph = silent(step.graph)
        made = replace(step, graph=graph, reads=step.reads[: len(graph.inputs)])
        return replace(plan, steps=tuple(made if s is step else s for s in plan.steps))

    twice = replace(last, name="again", writes=("t99",), graph=silent(last.graph),
                    reads=last.reads[:1])  # fmt: skip
    again = {"t99": replace(plan.buffers[last.writes[0]], name="t99")}
    name = next(n for n in plan.signals if n in plan.seen)
    fewer = {b.name: b for b in buffers_of(name, 2, 1)}
    for wrong, made in (
        ("waits", changed(first, before="")),
        ("waits", changed(last, after="")),
        ("those told of", changed(last, chunk=512)),
        ("waits", without(first)),
        ("waits", without(last)),
        ("on a rank", replace(plan, buffers={**plan.buffers, **fewer})),
        ("for what it reads", replace(plan, steps=(*plan.steps, twice),
                                      buffers={**plan.buffers, **again})),
    ):  # fmt: skip
        with pytest.raises(ScheduleError, match=wrong):
            prove(made)


def test_a_graph_tells_where_one_kernel_stores() -> None:
    plan: MeshPlan = product("summed", 2, 2).plan
    first = next(s for s in plan.steps if isinstance(s, LocalStep))
    graph = silent(first.graph)
    (stored,) = graph.outputs
    made = tells(graph, "s7", stored, 2, 2, 64)
    assert made is not None
    assert silent(made) == graph
    assert tells(made, "s8", stored, 2, 2, 64) is None  # it tells of that already
    assert tells(graph, "s7", "nothing", 2, 2, 64) is None


def test_a_tell_takes_one_thread_and_a_fence() -> None:
    from axe_eq.errors import DispatchError
    from axe_eq.kernel.threads.build import ThreadBuilder
    from axe_eq.kernel.threads.interp import interpret
    from axe_eq_backends.cuda.planning import plan

    k = ThreadBuilder("wrong", 1)
    n = k.tensor("n", "i32", (2,))
    with pytest.raises(ScheduleError, match="has 2 numbers; expected 1"):
        k.tell((n.all, 1))
    k.tell((n[0:1], 4))
    kernel = k.finish()
    with pytest.raises(DispatchError, match="no instruction"):
        plan(kernel, h200)
    with pytest.raises(KernelFault, match="is on one device"):
        interpret(kernel, {"n": np.zeros(2, np.int32)})


# -- devices of a group ----------------------------------------------------------------------------


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("kind", "n", "chunks"),
    [("grouped", (2, 2), 1), ("grouped", (2, 2), 2), ("cube", (2, 2, 2), 1)],
)
def test_devices_are_told_in_their_group(kind: str, n: tuple[int, ...], chunks: int) -> None:
    """Over one axis of several a group begins at another device than the first."""
    exe = product(kind, n, chunks)
    (name,) = exe.plan.signals & exe.plan.seen
    assert chunks_of(exe.plan.buffers[name]) == chunks
    (stored,) = exe.plan.stored
    assert {min(g) for g in exe.plan.across(stored).groups} > {0}
    check_product(exe, given(), orders=2)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("along", "cut", "goal", "shape"),
    [(2, "y", "P('y','x')", (32, 32, 16)), (2, "x", "P('x','y')", (32, 32, 16)),
     (2, "x", "P('y','x')", (32, 16, 8)), (3, "x", "P('x','y')", (48, 24, 16))],
)  # fmt: skip
def test_tiles_that_hang_over_the_last_device_tell_nobody(
    along: int, cut: str, goal: str, shape: tuple[int, int, int]
) -> None:
    mesh, (m, k, n) = axe.Mesh({"x": along, "y": 2}), shape
    specs = [
        axe.Spec(s, "i32", layout=axe.read("jax", at, shape=s, mesh=mesh))
        for s, at in (((m, k), f"P(None,{cut!r})"), ((k, n), f"P({cut!r},None)"))
    ]
    made = [axe.read("jax", goal, shape=(m, n), mesh=mesh)]
    exe = axe.compile(lambda x, w: x @ w, *specs, target="h200", mesh=mesh, outputs=made)
    assert max(chunks_of(exe.plan.buffers[s]) for s in exe.plan.signals) > 0
    rng = np.random.default_rng(0)
    arrays = [rng.integers(-3, 4, s.shape).astype(np.int32) for s in specs]
    assert np.array_equal(exe.interpret(*arrays), exe.meaning(*arrays))


def stored(at: str, goal: str) -> MeshPlan:
    """A sum that kernels store where devices read it, those in another order of mesh axes."""
    mesh, shape = axe.Mesh({"x": 2, "y": 2, "z": 2}), (4, 4, 32)
    layouts = [axe.read("jax", cut, shape=shape, mesh=mesh) for cut in (at, at, goal, goal)]
    choose = Plans.choose

    def seeing(plans: Plans, *of: Any) -> Any:
        choose(plans, *of)
        made = plans._try(plans.best.cuts, "stored", carried={0: STORE})
        assert made is not None
        return made

    specs = [axe.Spec(shape, "i32", layout=x) for x in layouts]
    with axe.debug(cache=0), mock.patch.object(Plans, "choose", seeing):
        exe = axe.compile(lambda a, b, c, d: (a + b) * c + d, *specs, target="h200", mesh=mesh,
                          outputs=layouts[2:3], objective="link_bytes")  # fmt: skip
    return exe.plan


def check_calls(plan: MeshPlan, orders: int) -> None:
    """Three calls one after the other, of other values."""

    def run(graph: ScheduleGraph, arrays: Any, order: int, device: Any) -> Any:
        held = dict(zip(graph.inputs, arrays, strict=True))
        return _interpreted(graph, h200, INTERPRETER.on(device), held, range(order, order + 1))

    rng = np.random.default_rng(0)
    for order in range(orders):
        calls = [list(rng.integers(-9, 9, (4, 4, 4, 32)).astype(np.int32)) for _ in range(3)]
        for (a, b, c, d), (made,) in zip(calls, beside(plan, run, calls, order), strict=True):
            assert np.array_equal(made, (a + b) * c + d)


def test_devices_that_do_not_tell_each_other_overtake_each_other() -> None:
    """A device stores in a call what those read in the call before the last whom it waited for."""
    plan = stored("P('x','y','z')", "P('z','y','x')")
    assert chunks_of(plan.buffers[min(plan.signals)]) == 1
    check_calls(plan, 2)
    plan = stored("P('x','y','z')", "P('y','z','x')")
    assert chunks_of(plan.buffers[min(plan.signals)]) == 0  # who reads tells all that it has come
    with mock.patch.object(Across, "is_mutual", True):
        plan = stored("P('x','y','z')", "P('y','z','x')")
        with pytest.raises(KernelFault, match=RACE):
            check_calls(plan, 4)
    with pytest.raises(ScheduleError, match=r"waits for chunks of \[0\]; expected those told of"):
        prove(plan)
