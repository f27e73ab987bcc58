"""What extraction chose is what is emitted: the kernel, its tile, stages and order of tiles."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Any

import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.errors import AxeError, DispatchError
from axe_eq.kernel import dispatch as kernel_dispatch
from axe_eq_backends.cuda import contract, make, planning, register_cost, tile_cost, ways
from axe_eq_backends.cuda import lower as lowering
from axe_eq_backends.cuda.lower import lower
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.pointwise import Maps, Turns
from axe_eq_backends.cuda.reductions import Rows, Sweeps
from axe_eq_backends.cuda.scanning import Scanned
from axe_eq_backends.cuda.schedules import chunks
from axe_eq_backends.cuda.schedules.gemm import Tiling, gemm
from axe_eq_backends.cuda.schedules.product_tiles import PARAMETERS, Tile
from axe_eq_backends.cuda.schedules.products import products
from axe_eq_backends.cuda.schedules.stream import stream
from axe_eq_backends.cuda.target import h200
from benchmarks.drawn_programs import case

xp = axe.array
CASES: dict[str, tuple[Any, tuple[tuple[int, ...], ...]]] = {
    f"{m} x {n} x {k}{turned}": (fn, ((m, k), b))
    for m, n, k in [(8192, 4096, 4096), (65, 8192, 8192), (513, 33792, 8192), (333, 72, 40),
                    (64, 8, 1000), (1, 4096, 512), (72, 333, 64), (333, 333, 17), (9, 7, 200)]
    for turned, fn, b in [("", lambda a, b: a @ b, (k, n)),
                          (", turned", lambda a, b: a @ b.T, (n, k))]
}  # fmt: skip
CASES["gates"] = (
    lambda x, w, v: nn.silu(x @ w) * (x @ v), ((512, 256), (256, 384), (256, 384)),
)  # fmt: skip
CASES["bias"] = (lambda x, w, b: nn.relu(x @ w + b), ((256, 512), (512, 384), (384,)))


@pytest.fixture(autouse=True)
def _made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """What another test made is not taken from memory, nor what is made here kept for others."""
    monkeypatch.setattr(make, "_made", OrderedDict())


def specs(shapes: tuple[tuple[int, ...], ...]) -> list[axe.Spec]:
    return [axe.Spec(s, "f16") for s in shapes]


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", CASES)
def test_the_kernel_is_what_extraction_chose(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    emitted: list[Tiling] = []

    def noted(problem: Any, tiling: Tiling, kernel: str) -> Any:
        emitted.append(tiling)
        return gemm(problem, tiling, kernel)

    monkeypatch.setattr(contract, "gemm", noted)
    fn, shapes = CASES[name]
    exe = axe.compile(fn, *specs(shapes), target="h200")
    assert exe.source
    wanted = [k for k in exe.kernels if k.schedule == "tensor_cores"]
    assert len(emitted) == len(wanted)
    for tiling, kernel in zip(list(emitted), wanted, strict=True):
        assert tiling == Tiling.of(kernel.parameters)
        assert emitted_smem(exe, kernel.name) <= kernel.costs["smem_bytes"]


def emitted_smem(exe: Any, name: str) -> int:
    step = next(s for s in exe.schedule.graph.steps if s.name == name)
    made = lower(step, exe.schedule.graph, exe.target).kernel
    plan(made, exe.target)  # places buffers
    return int(made.smem_bytes)


def test_what_bulk_copies_cannot_fetch_goes_through_registers() -> None:
    exe = axe.compile(lambda a, b: a @ b.T, *specs(((333, 17), (333, 17))), target="h200")
    (kernel,) = exe.kernels
    assert (kernel.schedule, kernel.row.partition(".")[0]) == ("register_products", "mma")
    assert any("rows of operands 2 B apart" in reason for reason in kernel.rejected)


def of(dtype: str, *shapes: tuple[int, ...]) -> tuple[axe.Spec, ...]:
    """Tensors of an element type."""
    return tuple(axe.Spec(s, dtype) for s in shapes)


THROUGH_REGISTERS: dict[str, tuple[Any, tuple[axe.Spec, ...]]] = {
    f"{m} x {n} x {k} of {dtype}": (lambda a, b: a @ b, of(dtype, (m, k), (k, n)))
    for dtype, m, n, k in [
        ("f32", 4096, 4096, 512), ("f32", 100, 72, 40), ("f32", 9, 7, 200), ("f32", 33, 4096, 64),
        ("f64", 1024, 1024, 3), ("f64", 512, 512, 512), ("i32", 100, 72, 40),
        ("f8e4m3", 9, 7, 200), ("f8e4m3", 512, 512, 512),
    ]
} | {
    "odd rows": (lambda a, b: a @ b.T, of("f16", (333, 17), (333, 17))),
    "a computed factor": (
        lambda a, b: xp.exp(a) @ b, of("f32", (512, 256), (256, 512)),
    ),
    "f16 and bf16": (
        lambda a, b: a @ b, (*of("f16", (512, 256)), *of("bf16", (256, 512))),
    ),
    "two of f32": (
        lambda a, b, c: (a @ b) * (a @ c), of("f32", (512, 256), (256, 512), (256, 512)),
    ),
    "batches": (lambda a, b: a @ b, of("f32", (8, 96, 64), (8, 64, 80))),
    "few columns": (
        lambda a, b: nn.einsum("bmk,kn->bmn", a, b), of("f32", (8, 96, 64), (64, 12)),
    ),
}  # fmt: skip


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", THROUGH_REGISTERS)
def test_products_through_registers_are_what_extraction_chose(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    emitted: dict[str, Tile] = {}

    def noted(c: Any, tile: Tile, kernel: str) -> Any:
        emitted[kernel] = tile
        return products(c, tile, kernel)

    monkeypatch.setattr(contract, "products", noted)
    fn, given = THROUGH_REGISTERS[name]
    exe = axe.compile(fn, *given, target="h200")
    assert exe.source
    chosen = [k for k in exe.kernels if k.schedule == "register_products"]
    assert chosen
    for kernel in chosen:
        tile = emitted[kernel.name]
        assert kernel.row == f"{'mma' if tile.matrix else 'fma'}.{tile.dtype}"
        assert kernel.parameters == {name: getattr(tile, name) for name in PARAMETERS}


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = nn.einsum("hte,hse->hts", q, k) * 0.125
    return nn.einsum("hts,hse->hte", nn.softmax(scores, axis=-1), v)


def attention_of_last_heads(q: Any, k: Any, v: Any) -> Any:
    scores = nn.einsum("the,she->hts", q, k)
    return nn.einsum("hts,she->the", nn.softmax(scores, axis=-1), v)


def further_on(*shape: int) -> axe.Spec:
    """A tensor whose first element is not where bulk copies begin."""
    heads, rows, depth = shape
    iters = [(heads, rows * depth), (rows, depth), (depth, 1)]
    return axe.Spec(shape, "f16", layout=axe.Layout(iters, offset={"m": 3}))


STREAMS: dict[str, tuple[Any, tuple[axe.Spec, ...], str]] = {
    f"{t} x {s} x {e}": (attention, of("f16", (4, t, e), (4, s, e), (4, s, e)), apart)
    for t, s, e, apart in [
        (4096, 4096, 128, ""), (2048, 2048, 256, ""), (100, 333, 64, ""), (512, 512, 17, "2 B"),
    ]
} | {
    "last heads": (attention_of_last_heads, of("f16", *[(512, 8, 64)] * 3), ""),
    "values further on": (
        attention, (*of("f16", *[(4, 512, 64)] * 2), further_on(4, 512, 64)), "2 B",
    ),
}  # fmt: skip


@pytest.mark.sampled(1, slow=("100 x 333 x 64",))
@pytest.mark.parametrize("name", STREAMS)
def test_streams_are_what_extraction_chose(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    emitted: list[tuple[Any, chunks.Tiling]] = []

    def noted(problem: Any, tiling: chunks.Tiling, kernel: str) -> Any:
        emitted.append((problem, tiling))
        return stream(problem, tiling, kernel)

    monkeypatch.setattr(lowering, "stream", noted)
    fn, given, apart = STREAMS[name]
    exe = axe.compile(fn, *given, target="h200", without=["load_copied_input"])
    assert exe.source
    (kernel,) = exe.kernels
    ((problem, tiling),) = emitted
    assert kernel.schedule == "streaming"
    assert tiling == chunks.Tiling.of(kernel.parameters)
    assert emitted_smem(exe, kernel.name) <= kernel.costs["smem_bytes"]
    # What bulk copies cannot fetch goes through the registers of one warpgroup, and is priced so.
    bulk = all(t.bulk for t in (*problem.products[0], problem.values))
    assert bulk == (not apart)
    needs = "bulk copies (TMA) need strides that are multiples of 16 B"
    reason = f"streaming: rows of operands {apart} apart, and {needs}"
    assert (reason in kernel.rejected) == bool(apart)


ON_LANES = {
    "cells": (lambda x: xp.exp(x), {"map_warps", "vector", "vectors"}),
    "rows": (lambda x: nn.softmax(x), {"row_threads", "vector", "resident"}),
    "columns": (
        lambda x: xp.sum(x, axis=0),
        {"sweep_threads", "sweep_warps", "vector", "vectors", "resident"},
    ),
    "a turn": (lambda x: x.T + 1, {"turn_reading", "turn_writing", "turn_lanes", "vector"}),
    "a scan": (
        lambda x: xp.cumulative_sum(x, axis=1),
        {"scan_across", "scan_along", "scan_held", "vector"},
    ),
}


@pytest.mark.parametrize("case", ON_LANES)
def test_kernels_on_lanes_are_written_by_their_candidate_s_parameters(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is chosen again: once the search is over no candidate is looked at."""
    fn, names = ON_LANES[case]
    exe = axe.compile(fn, axe.Spec((1024, 512), "f16"), target="h200")
    (kernel,) = exe.kernels
    assert set(kernel.parameters) == names
    shown = " ".join(f"{name}={size}" for name, size in kernel.parameters.items())
    assert shown in exe.explain()
    monkeypatch.setattr(ways, "candidates_of", None)
    for way in (Rows, Sweeps, Maps, Turns, Scanned):
        monkeypatch.setattr(way, "candidates", None)
    (step,) = exe.schedule.graph.kernels
    lowered = lower(step, exe.schedule.graph, h200)
    assert int(kernel.costs["blocks"]) == lowered.kernel.tiles
    with pytest.raises(DispatchError, match="is to be written by none_such"):
        lower(replace(step, parameters={"none_such": 1}), exe.schedule.graph, h200)


@pytest.mark.parametrize(
    ("case", "name", "sizes"),
    [
        ("cells", "map_warps", (8,)),
        ("cells", "vector_bytes", (4,)),
        ("rows", "row_threads", (256,)),
        ("columns", "sweep_warps", (32,)),
        ("columns", "sweep_threads", (16,)),
        ("a turn", "turn_writing", (4,)),
        ("a scan", "scan_held", (1,)),
    ],
)
def test_what_a_machine_offers_is_what_its_kernels_have(
    case: str, name: str, sizes: tuple[int, ...]
) -> None:
    fn, _ = ON_LANES[case]
    other = h200.replace(choices={**h200.choices, name: sizes})
    # Columns: of fewer elements than are summed in two stages.
    spec = axe.Spec((128 if case == "columns" else 1024, 512), "f16")
    found = [axe.compile(fn, spec, target=t) for t in (h200, other)]
    ((before,), (after,)) = (exe.kernels for exe in found)
    assert before.parameters != after.parameters
    assert before.time_s <= after.time_s
    assert after.parameters.get(name, sizes[0]) in sizes
    assert found[0].source != found[1].source


def product(x: Any, w: Any) -> Any:
    return x @ w


ON_ROWS: dict[str, tuple[Any, tuple[axe.Spec, ...]]] = {
    "tensor_cores": (product, of("f16", (8192, 4096), (4096, 4096))),
    "register_products": (product, of("f32", (512, 512), (512, 512))),
    "streaming": (attention, of("f16", *[(16, 2048, 128)] * 3)),
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("schedule", "name", "sizes", "written"),
    [
        ("tensor_cores", "product_rows", (64,), "m"),
        ("tensor_cores", "product_cols", (64,), "n"),
        ("tensor_cores", "product_stages", (2,), "stages"),
        ("tensor_cores", "product_panels", (1,), "staging"),
        ("tensor_cores", "product_cluster", (2,), "cluster_rows"),
        ("register_products", "register_sides", (64,), "m"),
        ("register_products", "register_warps", (8,), "warps"),
        ("register_products", "register_band", (4,), "band"),
        ("streaming", "stream_groups", (1,), "consumers"),
        ("streaming", "stream_chunk", (64,), "s"),
        ("streaming", "stream_stages", (4,), "stages"),
    ],
)
def test_what_a_machine_offers_is_what_products_and_streams_have(
    schedule: str, name: str, sizes: tuple[int, ...], written: str
) -> None:
    other = h200.replace(choices={**h200.choices, name: sizes})
    fn, specs = ON_ROWS[schedule]
    found = [axe.compile(fn, *specs, target=t) for t in (h200, other)]
    ((before,), (after,)) = (exe.kernels for exe in found)
    assert before.schedule == after.schedule == schedule
    assert before.parameters[written] not in sizes
    assert after.parameters[written] in sizes
    assert before.time_s <= after.time_s
    shown = " ".join(f"{n}={size}" for n, size in after.parameters.items())
    assert f"{schedule} on {after.row}, {shown}" in found[1].explain()
    assert found[0].source != found[1].source


@pytest.mark.sampled(3, slow=("streaming-weigh_clocks.2",))
@pytest.mark.parametrize(
    ("schedule", "name"),
    [
        ("tensor_cores", "few_stages"), ("tensor_cores", "l2_over_memory"),
        ("register_products", "fma_part"), ("streaming", "weigh_clocks.2"),
    ],
)  # fmt: skip
def test_a_figure_of_the_machine_is_in_the_price(schedule: str, name: str) -> None:
    fn, specs = ON_ROWS[schedule]
    slower = h200.figure(name) * (5 if name in ("few_stages", "weigh_clocks.2") else 0.1)
    other = h200.replace(figures={**h200.figures, name: slower})
    times = [axe.compile(fn, *specs, target=t).cost["time_s"] for t in (h200, other)]
    assert times[0] < times[1]


def test_lowering_writes_a_candidate_as_it_is_or_fails() -> None:
    """No parameter is made up, left out or changed; what does not fit is refused."""
    exe = axe.compile(product, *ON_ROWS["tensor_cores"][1], target="h200")
    graph, (step,) = exe.schedule.graph, exe.schedule.graph.kernels
    chosen = dict(step.parameters)
    less = {name: size for name, size in chosen.items() if name != "stages"}
    for parameters, reason in (
        (less, "is to be written by .*; expected .* stages .* with wgmma.f16"),
        (chosen | {"p": 128}, "is to be written by .* p "),
        (chosen | {"staging": 3}, "panels in 3 slots; expected whole rounds"),
        (chosen | {"across": 2, "n": 72}, "72 columns in 1 parts, 2 of 2 warpgroups side by side"),
        (chosen | {"m": 96}, "96 rows for 2 warpgroups; expected a multiple of 64 rows each"),
    ):
        with pytest.raises(AxeError, match=reason):
            lower(replace(step, parameters=parameters), graph, h200)
    large = lower(replace(step, parameters=chosen | {"stages": 12}), graph, h200).kernel
    with pytest.raises(AxeError, match=r"bytes of shared memory \(x_ring .*; expected at most"):
        plan(large, h200)
    with pytest.raises(DispatchError, match=r"with tcgen05\.f16; expected a row of wgmma mma fma"):
        lower(replace(step, row="tcgen05.f16"), graph, h200)


def lying(shape: tuple[int, ...], iters: list[tuple[int, int]], first: int = 0) -> axe.Spec:
    """A tensor with these iters and this first element."""
    return axe.Spec(shape, "f16", layout=axe.Layout(iters, offset={"m": first}))


def causal(scores: Any) -> Any:
    places = xp.arange(512)
    return xp.where(xp.expand_dims(places, axis=1) >= places, scores, 0.0)


def halves(*shape: int) -> axe.Spec:
    """A tensor of f16."""
    return axe.Spec(shape, "f16")


A, B, BYTES = halves(512, 256), halves(256, 512), axe.Spec((256, 512), "f8e4m3")
# Products that no warpgroup kernel takes as one cone: what is computed, of what, and what is said
# of the cone where one kernel computes it all.
UNFIT: dict[str, tuple[Any, tuple[axe.Spec, ...], str]] = {
    "two element types": (
        lambda a, b: a @ b, (A, BYTES),
        "operands of f16 and f8e4m3: a product takes one type, cast one",
    ),
    "two sums": (
        lambda a, b, c, d: a @ b + c @ d, (A, B, halves(512, 128), halves(128, 512)), "",
    ),
    "reduced dims in two orders": (
        lambda a, b: nn.einsum("mij,nji->mn", a, b),
        (halves(256, 32, 64), halves(256, 64, 32)),
        "operands contiguous along different reduced dims",
    ),
    "a factor of parts": (
        lambda a, c, b: xp.concat([a, c]) @ b, (halves(200, 256), halves(312, 256), B), "",
    ),
    "a result of parts": (lambda a, b, c: xp.concat([a @ b, c]), (A, B, halves(16, 512)), ""),
    "a bias of parts": (
        lambda a, b, c, d: a @ b + xp.concat([c, d]), (A, B, halves(200), halves(312)), "",
    ),
    "a part of a result": (lambda a, b: (a @ b)[3:200, 5:300], (A, B), ""),
    "a part of a gate": (
        lambda a, b, c: (nn.silu(a @ b) * (a @ c))[..., 1:-2],
        (halves(16, 136), halves(136, 72), halves(136, 72)), "",
    ),
    "rows backwards": (
        lambda a, b: a @ b, (lying((512, 256), [(512, -256), (256, 1)], 511 * 256), B),
        "an operand without a contiguous dim",
    ),
    "rows from element 3 on": (
        lambda a, b: a @ b, (lying((512, 256), [(512, 256), (256, 1)], 3), B),
        "rows of operands 2 B apart, and bulk copies (TMA) need strides that are multiples of 16 B",
    ),
    "narrow blocks": (
        lambda a, b: a @ b, (lying((512, 256), [(512, 4), (64, 2048), (4, 1)]), B),
        "rows of operands 8 B apart, and bulk copies (TMA) need strides that are multiples of 16 B",
    ),
    "many dims": (
        lambda a, b: nn.einsum("maxbyk,yanbxk->axbymn", a, b),
        (halves(64, 2, 3, 2, 3, 64), halves(3, 2, 64, 2, 3, 64)),
        "operands of 6 dims in memory, not 5",
    ),
}  # fmt: skip


@pytest.mark.usefixtures("searched")
@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", UNFIT)
def test_what_no_warpgroup_kernel_takes_is_priced_as_what_is_emitted(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[str] = []
    real = contract.kernel

    def noted(c: Any, kernel: str, row: Any, *more: Any) -> Any:
        rows.append(row.name)
        return real(c, kernel, row, *more)

    monkeypatch.setattr(contract, "kernel", noted)
    fn, given, reason = UNFIT[name]
    # What no bulk copy fetches may be put in order first; here it stays as it lies.
    exe = axe.compile(fn, *given, target="h200", without=("tiling/load_copied_input",))
    assert rows
    assert set(rows) == {k.row for k in exe.kernels if k.row}
    assert "left out" not in exe.explain()
    assert not reason or any(f"tensor_cores: {reason}" in k.rejected for k in exe.kernels)
    assert not reason or reason in exe.explain()


def test_a_product_is_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its plan tells whether the persistent kernel takes it, and is what is written."""
    planned: list[str] = []
    real = kernel_dispatch.dispatch

    def noted(kernel: Any, *given: Any) -> Any:
        planned.append(kernel.name)
        return real(kernel, *given)

    monkeypatch.setattr(planning, "dispatch", noted)
    with axe.debug(cache=0):
        exe = axe.compile(lambda a, b: a @ b, A, B, target="h200")
    assert len(exe.kernels) == len(planned) == 1
    assert "wgmma" in exe.source[exe.kernels[0].name]


def test_a_kernel_that_was_priced_in_vain_is_ruled_out_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Figures of a cone may miss something: then the next schedule has it."""
    monkeypatch.setattr(tile_cost, "not_as_they_lie", lambda summary, target: None)
    monkeypatch.setattr(register_cost.RegisterProducts, "refuse", lambda self, *given: None)
    sizes = {"product_rows": (128,), "product_cols": (128,), "product_stages": (3,)}
    with axe.debug(cache=0):
        target = h200.replace(
            choices={**h200.choices, **sizes, "product_panels": (1,)},
            figures={**h200.figures, "read_one_s": 1e-6},
        )
        exe = axe.compile(lambda a, b: a @ b, A, BYTES, target=target)
    (kernel,) = exe.kernels
    assert kernel.row == "mma.f16"
    lost = "kernel k0_mul: persistent kernel of k0_mul: a factor is computed (x1)"
    assert (
        f"left out: cannot be built: tensor_cores for mul of f16[512,512]: {lost}" in exe.explain()
    )


def test_epilogues_of_constants_slices_and_positions_stay_with_their_products() -> None:
    for fn, more in (
        (lambda a, b: nn.relu(a @ b) * 2.0 + a[:, :1], ()),
        (lambda a, b, c: xp.where(c, a @ b, 0.0), (axe.Spec((512, 512), "bool"),)),
        (lambda a, b, c: a @ b + c[3:515], (axe.Spec((1024,), "f16"),)),
        (lambda a, b: a @ b + xp.arange(512), ()),
        (lambda a, b: causal(a @ b), ()),
    ):
        exe = axe.compile(fn, A, B, *more, target="h200")
        assert [k.schedule for k in exe.kernels] == ["tensor_cores"]


def test_tiles_that_hang_over_cost_what_they_cover() -> None:
    def time_s(rows: int) -> float:
        shapes = ((rows, 4096), (4096, 4096))
        return float(axe.compile(lambda a, b: a @ b, *specs(shapes), target="h200").cost["time_s"])

    assert time_s(8192) <= time_s(8193) <= time_s(8320)


def test_a_row_without_kernels_is_refused_before_it_is_priced() -> None:
    exe = axe.compile(lambda a, b: a @ b, *specs(((256, 256), (256, 256))), target="b200")
    assert [(k.schedule, k.row) for k in exe.kernels] == [("register_products", "mma.f16")]
    (text,) = exe.source.values()
    assert "mma_m16n8k16" in text or "mma.sync" in text
    assert "tensor_cores: no kernel is written with tcgen05.f16" in exe.explain()


def test_a_product_of_products_is_no_matrix_product() -> None:
    """What multiplies and is multiplied up: no sum, so no schedule of sums of products takes it."""
    exe = axe.compile(case(91211).program, target="h200")
    assert "* e" in exe.program.outputs[0].text
    assert {k.schedule for k in exe.kernels} == {"lanes"}


@pytest.mark.parametrize("dtype", ["f32", "f64", "i64"])
@pytest.mark.parametrize("n_bytes", [4, 8])
def test_vectors_may_be_shorter_than_an_element(dtype: str, n_bytes: int) -> None:
    short = h200.replace(choices={**h200.choices, "vector_bytes": (n_bytes,)})
    for shape in ("33x97", "64x88"):
        (kernel,) = axe.compile(lambda x: x.T, f"{shape}:{dtype}", target=short).kernels
        vector = kernel.parameters["vector"]
        assert vector == 1 or vector * int(dtype[1:]) <= 8 * n_bytes
