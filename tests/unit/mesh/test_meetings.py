"""Kernels that wait for other devices themselves: plans, races, deadlocks, refusals."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache, partial
from typing import Any
from unittest import mock

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.errors import ScheduleError
from axe_eq.extract.mesh import build
from axe_eq.kernel.devices import Device, Devices, Memory, Shared
from axe_eq.kernel.interp import KernelFault
from axe_eq.kernel.spaces import WINDOW_BYTES
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.kernel.threads.interp import interpret
from axe_eq.layout import Mesh
from axe_eq.lower.own import Lowered
from axe_eq.mesh.plan import MeshPlan, plan_from_json
from axe_eq.mesh.prove import prove
from axe_eq.mesh.steps import LocalStep
from axe_eq.schedule.graph import SIGNAL, KernelStep
from axe_eq.schedule.meeting import meeting, meets, silent
from axe_eq_backends.cuda import lower, make, meet
from axe_eq_backends.cuda.families import meanings
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.target import h200
from tests.unit.mesh.test_transports import Copying

R, C = "P('x',None)", "P(None,'x')"
B, D = "P('x','y')", "P('x',('y','z'))"
CUTS = {"gathered": (R, C, C), "summed": (C, R, R), "grouped": (C, B, B), "cube": (C, D, D)}
SHAPES = ((64, 128), (128, 64), (64, 64))


@cache
def product(kind: str, n: int | tuple[int, ...], chunks: int = 0, rows: int = 64) -> Any:
    """With signals of kernels that begin; or of those that store, in so many chunks."""
    mesh = Mesh(dict(zip("xyz", n if isinstance(n, tuple) else (n,), strict=False)))
    links = tuple(replace(link, tell_s=link.tell_s if chunks else None) for link in h200.links)
    shapes = [s if n == 1 else (rows, s[1]) for n, s in enumerate(SHAPES)]
    layouts = [
        axe.read("jax", c, shape=s, mesh=mesh) for c, s in zip(CUTS[kind], shapes, strict=True)
    ]
    specs = [axe.Spec(s, "f16", layout=x) for s, x in zip(shapes[:2], layouts, strict=False)]
    with mock.patch.object(build, "CHUNKS", (chunks,)), axe.debug(cache=0):
        return axe.compile(lambda x, w: x @ w, *specs, target=h200.replace(links=links), mesh=mesh,
                           outputs=layouts[2:])  # fmt: skip


def given(seed: int = 0, rows: int = 64) -> list[Any]:
    rng = np.random.default_rng(seed)
    shapes = (rows, SHAPES[0][1]), SHAPES[1]
    return [rng.integers(-2, 3, shape).astype(np.float16) for shape in shapes]


def kernels(plan: MeshPlan) -> list[KernelStep]:
    return [k for s in plan.steps if isinstance(s, LocalStep) for k in meeting(s.graph)]


def check_product(exe: Any, arrays: list[Any], orders: int) -> None:
    """It is right wherever it runs, proved, read back, and the same without its meetings."""
    run = exe.on(Copying())  # on the host, where no kernel waits for another
    copied = run.whole(run(run.shards(*arrays)))
    for found in (exe(*arrays), exe.interpret(*arrays, orders=orders), copied):
        assert np.array_equal(found, exe.meaning(*arrays))
    assert axe.equivalent(lambda x, w: x @ w, exe.plan)
    again = plan_from_json(exe.plan.to_json())
    prove(again)
    assert again.digest == exe.plan.digest
    for other in (exe.plan.silent, exe.plan.apart):
        prove(other)
        assert not other.signals
        assert not kernels(other)
        assert other.n_bytes == exe.plan.n_bytes
        assert not any(b.chunk or b.before for s in other.steps if isinstance(s, LocalStep)
                       for b in s.graph.buffers.values())  # fmt: skip


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("kind", "n"), [("gathered", 2), ("summed", 2), ("summed", 4)])
def test_kernels_wait_themselves_where_that_takes_less(kind: str, n: int) -> None:
    exe, arrays = product(kind, n), given()
    assert len(kernels(exe.plan)) == 1
    assert "waits itself until all devices have come" in str(exe.plan)
    assert exe.explain().count("once all devices have come; writes") == 1
    text = "".join(exe.source.values())
    assert text.count("red.relaxed.sys") == text.count("ld.acquire.sys") == 1
    assert text.count("signal_fence();") == 1
    check_product(exe, arrays, orders=3)


def test_devices_wait_by_events_where_no_instruction_tells_them() -> None:
    links = tuple(replace(link, signal_s=0.0, tell_s=None) for link in h200.links)
    mesh = Mesh({"x": 2})
    pairs = zip(CUTS["summed"], SHAPES, strict=True)
    layouts = [axe.read("jax", c, shape=s, mesh=mesh) for c, s in pairs]
    specs = [axe.Spec(s, "f16", layout=x) for s, x in zip(SHAPES[:2], layouts, strict=False)]
    exe = axe.compile(lambda x, w: x @ w, *specs, target=h200.replace(links=links), mesh=mesh,
                      outputs=layouts[2:])  # fmt: skip
    assert exe.plan.seen
    assert not exe.plan.signals


# -- races and deadlocks ---------------------------------------------------------------------------


def statements(body: ir.Body) -> Iterator[tuple[ir.Body, ir.Statement]]:
    for s in list(body):
        yield body, s
        for part in ir.children(s):
            yield from statements(part)


def no_signal(body: ir.Body, s: ir.Statement) -> None:
    if isinstance(s, ir.Signal):
        body.remove(s)


def one_device_is_told(body: ir.Body, s: ir.Statement) -> None:
    if isinstance(s, ir.Signal):
        s.flags = s.flags[0:1]


def no_wait(body: ir.Body, s: ir.Statement) -> None:
    if isinstance(s, ir.Await):
        body.remove(s)


def late_wait(body: ir.Body, s: ir.Statement) -> None:
    if isinstance(s, ir.Scope) and any(isinstance(x, ir.Await) for x in s.body):
        body.remove(s)
        body.append(s)


def nobody_waits_for_who_asks(body: ir.Body, s: ir.Statement) -> None:
    if isinstance(s, ir.Scope) and any(isinstance(x, ir.Await) for x in s.body):
        del body[body.index(s) + 1]


def one_too_few(body: ir.Body, s: ir.Statement) -> None:
    if isinstance(s, ir.Await):
        s.least -= 1


def one_too_many(body: ir.Body, s: ir.Statement) -> None:
    if isinstance(s, ir.Await):
        s.least += 1


RACE = "at no known time|which nobody wrote|are waited for"
DAMAGE = (
    (no_signal, "deadlock"), (one_device_is_told, "deadlock"), (one_too_many, "deadlock"),
    (no_wait, RACE), (late_wait, RACE), (one_too_few, RACE), (nobody_waits_for_who_asks, RACE),
)  # fmt: skip


# A thread that starts bulk copies waits itself.
CASES = [(kind, n, *d) for kind, n in (("gathered", 2), ("summed", 2), ("summed", 4))
         for d in DAMAGE if (kind, d[0]) != ("gathered", nobody_waits_for_who_asks)]  # fmt: skip


@pytest.mark.sampled(8)
@pytest.mark.parametrize(
    ("kind", "n", "damage", "wrong"), CASES, ids=lambda x: getattr(x, "__name__", None)
)
def test_a_signal_or_wait_that_lacks_or_stands_elsewhere_is_found(
    kind: str, n: int, damage: Callable[[ir.Body, ir.Statement], None], wrong: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    exe = product(kind, n)

    def damaged(made: Lowered, *of: Any) -> Lowered:
        found = meet.meet(made, *of)
        for body, s in statements(found.kernel.body) if found is not made else ():
            damage(body, s)
        return found

    monkeypatch.setattr(lower, "meet", damaged)
    monkeypatch.setattr(make, "_made", type(make._made)())
    with pytest.raises(KernelFault, match=wrong):
        exe.interpret(*given())


FAR = WINDOW_BYTES // 4  # elements from a device's memory to the next one's


def moving(name: str, met: bool, reads: bool) -> ir.Kernel:
    """A kernel that reads one row of `x`, or writes it; the other one is its device's own."""
    k = ThreadBuilder(name, 1)
    flags, own = k.tensor("flags", "i32", (2,), strides=(FAR,)), k.tensor("own", "i32", (1,))
    last = k.tensor("last", "i32", (1,))
    x, y = (k.tensor(n, "f32", (32,), output=o) for n, o in (("x", not reads), ("y", reads)))
    row = k.reg("row", "f32", (32,), "S[32:1@lane]")
    if met:
        k.signal(flags.all, last.all)
        k.wait_signals(own.all, 2)
    k.copy(row.all, (x if reads else y).all)
    k.copy((y if reads else x).all, row.all)
    return k.finish()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("planned", [False, True])
def test_what_another_device_reads_is_overwritten_behind_a_meeting(
    planned: bool, seed: int
) -> None:
    """Without one it is found whichever device runs first."""
    zeros, devices = np.zeros(32, np.float32), Devices(2, seed)
    arrays = {"flags": np.zeros(2, np.int32), "own": np.zeros(1, np.int32),
              "last": np.ones(1, np.int32), "x": zeros, "y": zeros}  # fmt: skip

    def work(number: int, x: Memory, met: bool) -> Callable[[], None]:
        """Device 0 reads `x`, then comes to the meeting; device 1 does, and writes `x`."""
        own = Memory([zeros.copy(), zeros.copy()])
        turns = [(x, False), (own, met)] if number == 0 else [(x, met)]

        def launch(device: Device, memory: Memory, met: bool) -> None:
            kernel = moving("moving", met, number == 0)
            shared = {"flags": Shared(flags, 0), "own": Shared(flags, number),
                      "last": Shared(last, number), "x": Shared(memory, 0)}  # fmt: skip
            plans = plan(kernel, h200) if planned else None
            interpret(kernel, arrays, planned=plans, meanings=meanings(), seed=seed,
                      device=device, shared=shared)  # fmt: skip

        def run() -> None:
            device = Device(devices, number)
            for memory, here in turns:
                launch(device, memory, here)

        return run

    for met in (True, False):
        flags, last = (Memory([np.full(1, n, np.int32) for _ in range(2)]) for n in (0, 5))
        x, devices = Memory([np.arange(32, dtype=np.float32), zeros.copy()]), Devices(2, seed)
        works = [work(number, x, met) for number in range(2)]
        if met:
            devices.run(works)
            assert not x.arrays[0].any()
            assert [int(n[0]) for n in (*flags.arrays, *last.arrays)] == [2, 2, 0, 0]
            continue
        with pytest.raises(KernelFault, match=r"device 1 overwrites x|device 0 reads x"):
            devices.run(works)


def test_signals_go_by_integers_of_tensors() -> None:
    k = ThreadBuilder("wrong", 1)
    x, n = k.tensor("x", "f32", (2,)), k.tensor("n", "i32", (2,))
    for wrong, call in (
        ("one dim of a tensor of i32", partial(k.signal, x.all, n[0:1])),
        ("has 2 numbers; expected 1", partial(k.signal, n.all, n.all)),
        ("has 2 numbers; expected 1", partial(k.wait_signals, n.all, 1)),
        ("wait", partial(k.wait_signals, n[0:1], 0)),
    ):
        with pytest.raises(ScheduleError, match=wrong):
            call()
    k.wait_signals(n[0:1], 1)
    with pytest.raises(KernelFault, match="deadlock"):
        interpret(k.finish(), {"x": np.zeros(2, np.float32), "n": np.zeros(2, np.int32)})


# -- refusals --------------------------------------------------------------------------------------


def changed(plan: MeshPlan, change: Callable[[Any], Any]) -> MeshPlan:
    """A plan with the graph of the step that meets others changed."""
    steps = [
        replace(s, graph=change(s.graph)) if isinstance(s, LocalStep) and meeting(s.graph) else s
        for s in plan.steps
    ]
    return replace(plan, steps=tuple(steps))


def test_plans_whose_kernels_wait_otherwise_are_refused() -> None:
    plan = product("summed", 2).plan
    (last,) = (s for s in plan.steps if isinstance(s, LocalStep) and meeting(s.graph))
    after = next(n for n, b in last.graph.buffers.items() if b.after)

    def unawaited(graph: Any) -> Any:
        free = replace(graph.buffers[after], after="")
        return replace(graph, buffers={**graph.buffers, after: free})

    def without(graph: Any) -> Any:
        (step,) = meeting(graph)
        kept = tuple(a for a in step.reads if graph.buffers[a.buffer].role != SIGNAL)
        return replace(graph, steps=tuple(replace(s, reads=kept) if s is step else s
                                          for s in graph.steps))  # fmt: skip

    first = next(s for s in plan.steps if isinstance(s, LocalStep))
    own = first.graph.inputs[0]
    buffers = {**first.graph.buffers, own: replace(first.graph.buffers[own], after="s9")}
    early = replace(first, graph=replace(first.graph, buffers=buffers))
    signals = {n: b for n, b in plan.buffers.items() if b.role != SIGNAL}
    for wrong, made in (
        ("waits", changed(plan, unawaited)),
        ("waits", changed(plan, without)),
        ("waits otherwise", replace(plan, steps=(early, *plan.steps[1:]))),
        ("before it is written", replace(plan, buffers=signals)),
        (
            "lie in place",
            replace(
                plan, outputs=(*plan.outputs, "x"), types=(*plan.types, plan.buffers["x"].type)
            ),
        ),
    ):
        with pytest.raises(ScheduleError, match=wrong):
            prove(made)


def test_a_graph_meets_where_one_kernel_alone_reads() -> None:
    plan = product("summed", 2).plan
    (step,) = (s for s in plan.steps if isinstance(s, LocalStep) and meeting(s.graph))
    graph, (name, *_) = silent(step.graph), step.graph.inputs
    assert silent(graph) is graph
    made = meets(graph, "s7", {name}, 2)
    assert made is not None
    assert silent(made) == graph
    assert meets(made, "s8", {name}, 2) is None  # it waits for others already
    assert meets(graph, "s7", set(), 2) is None
    twice = replace(graph, steps=(*graph.steps, replace(graph.steps[0], name="again")))
    assert meets(twice, "s7", {name}, 2) is None
