"""Memory that merges what kernels compute with what it holds: here, elsewhere, and in plans."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.errors import DispatchError, ScheduleError
from axe_eq.kernel.devices import Device, Devices, Memory, Shared
from axe_eq.kernel.interp import KernelFault
from axe_eq.kernel.placement import number
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.kernel.threads.interp import interpret
from axe_eq.lower.own import Lowered
from axe_eq.mesh.plan import MeshPlan, plan_from_json
from axe_eq.mesh.steps import LocalStep
from axe_eq.program.types import DTYPES
from axe_eq.schedule.merging import merges
from axe_eq_backends.cuda import contract, lower, make
from axe_eq_backends.cuda.emit import emit
from axe_eq_backends.cuda.families import meanings
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.schedules import gemm as schedules
from axe_eq_backends.cuda.target import h200
from tests.unit.mesh.blocks import in_blocks
from tests.unit.mesh.programs import C, R
from tests.unit.mesh.test_blocks import PROGRAMS, check, compile_on_two
from tests.unit.mesh.test_meetings import FAR, statements

ROWS, COLS, TALL = 4, 128, 8
HELD = "S[(4,32,4):(1@warp,1@lane,1@reg)]"


def merging(
    dtype: str, monoid: str, bulk: bool, stored: bool = False, met: bool = False
) -> ir.Kernel:
    """``y = y (+) x``, by registers or from shared memory; `stored` writes ``y = x`` before."""
    k = begun(met)
    x, y = k.tensor("x", dtype, (TALL, COLS)), k.tensor("y", dtype, (TALL, COLS), output=True)
    staged = k.smem("staged", dtype, (ROWS, COLS)) if bulk else None
    with k.tiles(TALL // ROWS, persistent=True) as tile:
        part = y[ir.span(tile * ROWS, ROWS)]
        held = k.reg("held", dtype, (ROWS, COLS), HELD)
        k.copy(held.all, x[ir.span(tile * ROWS, ROWS)])
        if stored:
            k.copy(part, held.all)
        if staged is None:
            k.merge(part, held.all, monoid)
        else:
            with k.one_thread():
                k.wait_group("bulk_read", 0)
            k.sync()
            k.copy(staged.all, held.all)
            k.fence_async()
            k.sync()
            with k.one_thread():
                k.merge_async(part, staged.all, monoid)
                k.commit("bulk")
    if staged is not None:
        with k.one_thread():
            k.wait_group("bulk", 0)
    return k.finish()


def begun(met: bool) -> ThreadBuilder:
    """A kernel that meets the other device first, or does not."""
    k = ThreadBuilder("merging", 4)
    if met:
        flags, own = k.tensor("flags", "i32", (2,), strides=(FAR,)), k.tensor("own", "i32", (1,))
        k.signal(flags.all, k.tensor("last", "i32", (1,)).all)
        k.wait_signals(own.all, 2)
    return k


EXTREME = {"f16": (6e-8, 65504.0, -0.0, 1.0, 2049.0), "bf16": (1e-40, 3e38, -0.0, 1.0, 257.0)}


def drawn(dtype: str, seed: int) -> Any:
    """Values whose sums round, and some that overflow or are subnormal."""
    rng = np.random.default_rng(seed)
    if dtype == "i32":
        return rng.integers(-(1 << 31), 1 << 31, (TALL, COLS)).astype(np.int32)
    found = rng.standard_normal((TALL, COLS)) * 100.0
    found[0, :5], found[1, :5] = EXTREME[dtype], EXTREME[dtype][::-1]
    return found.astype(DTYPES[dtype].numpy)


@pytest.mark.parametrize("bulk", [False, True])
@pytest.mark.parametrize(
    ("dtype", "monoid"), [("f16", "+"), ("bf16", "+"), ("i32", "+"), ("i32", "max"), ("i32", "min")]
)
def test_memory_merges_and_rounds_once(dtype: str, monoid: str, bulk: bool) -> None:
    kernel = merging(dtype, monoid, bulk)
    x, y = drawn(dtype, 0), drawn(dtype, 1)
    with np.errstate(all="ignore"):
        want = {"+": np.add, "max": np.maximum, "min": np.minimum}[monoid](x, y)
    planned = plan(kernel, h200)
    for plans in (None, planned):
        for order in ("early", "late"):
            found = interpret(kernel, {"x": x, "y": y}, planned=plans, meanings=meanings(),
                              order=order, compare=plans is not None).outputs["y"]  # fmt: skip
            assert found.tobytes() == want.astype(found.dtype).tobytes()
    text = emit(planned).text
    how = {"+": "add", "max": "max", "min": "min"}[monoid]
    word = {"f16": "noftz.f16x2", "bf16": "noftz.bf16x2", "i32": "s32"}[dtype]
    bulk_text = f"cp.reduce.async.bulk.tensor.2d.global.shared::cta.{how}.tile.bulk_group"
    assert (bulk_text if bulk else f"red.relaxed.sys.global.{how}.{word}") in text


@pytest.mark.parametrize("bulk", [False, True])
@pytest.mark.parametrize(("dtype", "monoid"), [("f32", "+"), ("f16", "max"), ("i32", "*")])
def test_what_memory_merges_otherwise_is_refused(dtype: str, monoid: str, bulk: bool) -> None:
    """f32 loses what is subnormal; of NaN and a number memory takes the number as the greatest."""
    with pytest.raises(DispatchError, match="no instruction of h200 fits"):
        plan(merging(dtype, monoid, bulk), h200)


def test_results_are_merged_with_what_is_there_before() -> None:
    x, y = drawn("f16", 0), drawn("f16", 1)
    with pytest.raises(KernelFault, match="not there before"):
        interpret(merging("f16", "+", False, stored=True), {"x": x, "y": y})
    k = ThreadBuilder("wrong", 4)
    tile, out = k.reg("tile", "f16", (4, 128), HELD), k.tensor("out", "f16", (4, 128), output=True)
    other = k.tensor("other", "f32", (4, 128), output=True)
    calls: tuple[tuple[Callable[..., None], tuple[Any, ...]], ...] = (
        (k.merge, (tile.all, out.all)), (k.merge, (out.all, tile.all, "softmax")),
        (k.merge_async, (out.all, tile.all)), (k.merge, (other.all, tile.all)),
    )  # fmt: skip
    for call, given in calls:
        with pytest.raises(ScheduleError, match="merge"):
            call(*given)


# -- in the memory of another device ---------------------------------------------------------------


def summed(
    dtype: str, monoid: str, bulk: bool, met: tuple[bool, bool], seed: int = 0, planned: bool = True
) -> Any:
    """Devices 0 and 1 merge with what device 0 stored; device 0 reads the result.

    `met` says whether devices meet before the other one merges, and before the result is read.
    """
    devices, zeros = Devices(2, seed), np.zeros((TALL, COLS), DTYPES[dtype].numpy)
    values = [drawn(dtype, n) for n in range(3)]
    y = Memory([zeros.reshape(-1).copy() for _ in range(2)], there=False)
    own = [[Memory([v.reshape(-1).copy()] * 2) for v in values] for _ in range(2)]
    places = [[Memory([np.full(1, n, np.int32) for _ in range(2)]) for n in (0, 9)]
              for _ in range(2)]  # fmt: skip

    def launch(rank: int, kernel: ir.Kernel, shared: dict[str, Any]) -> Any:
        arrays = {t.name: np.zeros([number(n) for n in t.shape], DTYPES[t.dtype].numpy)
                  for t in kernel.tensors}  # fmt: skip
        plans = plan(kernel, h200) if planned else None
        device = workers[rank]
        return interpret(kernel, arrays, planned=plans, meanings=meanings(), seed=seed,
                         device=device, shared=shared).outputs  # fmt: skip

    def meeting(number: int, n: int) -> dict[str, Any]:
        flags, last = places[n]
        return {"flags": Shared(flags, 0), "own": Shared(flags, number),
                "last": Shared(last, number)}  # fmt: skip

    found: list[Any] = []

    def work(number: int) -> Callable[[], None]:
        def run() -> None:
            if number == 0:
                launch(0, copying(dtype), {"x": Shared(own[0][0], 0), "y": Shared(y, 0)})
            more = meeting(number, 0) if met[0] else {}
            adds = merging(dtype, monoid, bulk, met=met[0])
            launch(number, adds, {"x": Shared(own[number][1 + number], number),
                                  "y": Shared(y, 0), **more})  # fmt: skip
            more = meeting(number, 1) if met[1] else {}
            source = y if number == 0 else own[1][0]
            made = launch(number, copying(dtype, met[1]), {"x": Shared(source, number), **more})
            found.append((number, made["y"]))

        return run

    workers = [Device(devices, n) for n in range(2)]
    devices.run([work(n) for n in range(2)])
    with np.errstate(all="ignore"):
        merge = {"+": np.add, "max": np.maximum}[monoid]
        want = merge(merge(values[0], values[1]), values[2])
    return dict(found)[0], want


def copying(dtype: str, met: bool = False) -> ir.Kernel:
    """``y = x``."""
    k = begun(met)
    x, y = k.tensor("x", dtype, (TALL, COLS)), k.tensor("y", dtype, (TALL, COLS), output=True)
    with k.tiles(TALL // ROWS) as tile:
        held = k.reg("held", dtype, (ROWS, COLS), HELD)
        k.copy(held.all, x[ir.span(tile * ROWS, ROWS)])
        k.copy(y[ir.span(tile * ROWS, ROWS)], held.all)
    return k.finish()


@pytest.mark.parametrize("bulk", [False, True])
@pytest.mark.parametrize("monoid", ["+", "max"])
def test_devices_merge_integers_in_any_order(monoid: str, bulk: bool) -> None:
    for seed in range(2):
        found, want = summed("i32", monoid, bulk, (True, True), seed, planned=bool(seed))
        assert np.array_equal(found, want)


@pytest.mark.parametrize("bulk", [False, True])
@pytest.mark.parametrize(
    ("dtype", "met", "wrong"),
    [
        ("f16", (True, True), "merges with y, which device|overwrites y, which device"),
        ("i32", (False, True), "which nobody wrote|at no known time"),
        ("i32", (True, False), "merges with at no known time"),
    ],
)
def test_merges_whose_order_shows_or_that_nobody_waits_for_are_found(
    dtype: str, met: tuple[bool, bool], wrong: str, bulk: bool
) -> None:
    """Three floats that meet in one place are added in the order in which they come."""
    for seed in range(4):
        with pytest.raises(KernelFault, match=wrong):
            summed(dtype, "+", bulk, met, seed)


# -- plans -----------------------------------------------------------------------------------------

SHAPES = {(512, 128): C, (128, 64): R}


def in_place(monkeypatch: pytest.MonkeyPatch, sizes: tuple[int, ...] = (1,)) -> Any:
    in_blocks(monkeypatch, [sizes], dim=0, late=True)
    return compile_on_two(PROGRAMS["scatter"][0], SHAPES, R, "f16", "h200")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("sizes", [(1,), (1, 1)])
def test_own_sums_are_merged_with_what_has_arrived(
    sizes: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the place of an output, and of blocks within one."""
    exe = in_place(monkeypatch, sizes)
    over = [b for b in exe.plan.buffers.values() if b.over]
    assert len(over) == len(sizes)
    assert [bool(b.within) for b in over] == [len(sizes) > 1] * len(sizes)
    assert f"in the place of {over[0].over}, merged with it" in str(exe.plan)
    assert exe.explain().count("merged in memory with") == len(sizes)
    text = "".join(exe.source.values())
    assert text.count(".add.tile.bulk_group") == len(sizes)
    rng = np.random.default_rng(1)
    given = [rng.standard_normal(t.shape).astype(np.float16) for t in exe.schedule.call.types]
    found = exe.interpret(*given, orders=3)
    x, w = (a.astype(np.float32) for a in given)
    parts = [np.float16(x[:, n : n + 64] @ w[n : n + 64]) for n in (0, 64)]
    assert np.allclose(found, parts[0] + parts[1], rtol=2e-3, atol=2e-2)  # a part's last place
    assert np.mean(found == parts[0] + parts[1]) > 0.98
    check(exe, "f16")
    assert axe.equivalent(PROGRAMS["scatter"][0], exe.plan)
    assert exe.plan.apart is exe.plan  # messages bring it on any transport


def test_a_dearer_merge_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    figures = {**h200.figures, "merge_unit_bytes_per_s": 1e6}
    in_blocks(monkeypatch, [(1,)], dim=0, late=True)
    dear = h200.replace(figures=figures)
    exe = compile_on_two(PROGRAMS["scatter"][0], SHAPES, R, "f16", dear)
    assert not exe.plan.under


def test_plans_that_merge_otherwise_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    plan: MeshPlan = in_place(monkeypatch).plan
    ((below, name),) = plan.under.items()
    last = next(s for s in plan.steps if isinstance(s, LocalStep) and name in s.writes)
    given = dict(zip(last.reads, last.graph.inputs, strict=True))
    own = dict(zip(last.writes, last.graph.outputs, strict=True))[name]

    def buffers(**changed: Any) -> MeshPlan:
        return replace(plan, buffers={**plan.buffers, **changed})

    def graph(**changed: Any) -> MeshPlan:
        made = replace(last, graph=replace(last.graph, **changed))
        return replace(plan, steps=tuple(made if s is last else s for s in plan.steps))

    held = plan.buffers[name]
    local = last.graph.buffers
    (kernel,) = last.graph.kernels
    other = next(n for n in last.reads if n != below)
    (root,) = kernel.roots
    nodes = [replace(n, cell="sub") if i == root else n for i, n in enumerate(kernel.nodes)]
    twice = replace(kernel, nodes=tuple(nodes))
    third = replace(last, name="again", reads=last.reads, writes=("t99",))
    more = {"t99": replace(held, name="t99", over="")}
    for wrong, made in (
        ("as the plan says", buffers(**{name: replace(held, over="")})),
        ("what an exchange brings", buffers(**{name: replace(held, over=other)})),
        ("that nothing else lies over", buffers(**{name: replace(held, over="t98")})),
        ("as the plan says", graph(buffers={**local, own: replace(local[own], over="")})),
        ("as the plan says", graph(buffers={**local, own: replace(local[own], over=given[other])})),
        ("it last", graph(steps=(twice,))),
        ("read", replace(plan, buffers={**plan.buffers, **more}, steps=(*plan.steps, third))),
    ):
        with pytest.raises(ScheduleError, match=wrong):
            made.prove()
    plan_from_json(plan.to_json()).prove()


def test_a_kernel_that_stores_where_it_is_to_merge_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exe = in_place(monkeypatch)
    rng = np.random.default_rng(0)
    given = [rng.integers(-2, 3, t.shape).astype(np.float16) for t in exe.schedule.call.types]
    assert np.array_equal(exe.interpret(*given), exe.meaning(*given))
    gemm = schedules.gemm
    monkeypatch.setattr(make, "_made", type(make._made)())
    monkeypatch.setattr(contract, "gemm", lambda p, *of: gemm(replace(p, merges=""), *of))
    assert not np.array_equal(exe.interpret(*given), exe.meaning(*given))


def test_only_a_last_addend_that_lies_as_the_result_is_merged() -> None:
    def kernel(fn: Callable[..., Any], *specs: str) -> Any:
        exe = axe.compile(fn, *specs, target=h200)
        (step,) = exe.schedule.graph.kernels
        return merges(step, exe.schedule.graph)

    shapes = ("256x128:f16", "128x64:f16", "256x64:f16")
    assert list(kernel(lambda x, w, y: x @ w + y, *shapes).values()) == ["+"]
    assert list(kernel(lambda x, w, y: y + x @ w, *shapes).values()) == ["+"]
    assert kernel(lambda x, w, y: axe.nn.relu(x @ w + y), *shapes) == {}
    assert kernel(lambda x, w, y: x @ w - y, *shapes) == {}
    assert kernel(lambda x, w, y: (x @ w) * y + y, *shapes) == {}
    assert kernel(lambda x, w, y: x @ w + y[None, :], *shapes[:2], "64:f16") == {}


def test_lowering_refuses_a_place_that_is_no_addend() -> None:
    exe = axe.compile(lambda x, w, y: x @ w + y, "256x128:f16", "128x64:f16", "256x64:f16",
                      target=h200)  # fmt: skip
    graph = exe.schedule.graph
    (step,), (out,) = graph.kernels, graph.outputs

    def lowered(over: str) -> Lowered:
        buffers = {**graph.buffers, out: replace(graph.buffers[out], over=over)}
        return lower.lower(step, replace(graph, buffers=buffers), h200)

    assert any(isinstance(s, ir.MergeAsync) for _, s in statements(lowered("y").kernel.body))
    with pytest.raises(DispatchError, match="an operand that it merges"):
        lowered("x")
