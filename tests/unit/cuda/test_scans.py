"""Scans on CUDA: what is chosen is emitted, and what is emitted is every prefix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.debug import debug
from axe_eq.errors import DispatchError, ScheduleError
from axe_eq.kernel.cells import apply, arg
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.kernel.threads.interp import interpret
from axe_eq.layout import Layout
from axe_eq.program.ops import MONOIDS
from axe_eq_backends.cuda.lane_cost import Scans
from axe_eq_backends.cuda.make import texts
from axe_eq_backends.cuda.meaning import MEANINGS
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.prefixes import parts_of
from axe_eq_backends.cuda.schedules.scans import ScanTiling, best_scan
from axe_eq_backends.cuda.target import h200
from tests.unit.cuda.whole import interpreted, launch, whole

xp = axe.array
Fn = Callable[..., Any]


def check(fn: Fn, *specs: axe.Spec, tolerance: float = 4e-6, order: str = "random") -> None:
    """A program as one kernel, at plan level."""
    made = whole(fn, *specs)
    flat = made.flat()
    launch(made.lowered, flat, planned=plan(made.lowered.kernel, h200), order=order)
    made.check(flat, tolerance)


def along(monoid: str, axis: int, *, reverse: bool = False) -> Fn:
    return lambda *xs: xp.associative_scan(monoid, list(xs), axis=axis, reverse=reverse)


# Rows in parts of a warp, in a warp, in several; with and without a second tile; odd extents, whose
# vectors are single elements; columns, few and many; one long row.
SHAPES = [
    ((1,), 0), ((33,), 0), ((3, 5), 1), ((7, 64), 1), ((5, 100), 1), ((2, 513), 1), ((3, 1000), 1),
    ((2, 4099), 1), ((20000,), 0), ((1, 1), 0), ((100, 64), 0), ((37, 3), 0), ((700, 5), 0),
    ((64, 130), 0), ((3, 70, 50), 1), ((2, 3, 40), 0), ((300, 2, 3), 0), ((2, 3, 40, 9), 2),
]  # fmt: skip


@pytest.mark.parametrize(("shape", "axis"), SHAPES)
def test_every_extent_is_scanned(shape: tuple[int, ...], axis: int) -> None:
    """Ragged tails are stored nowhere, and what is past a row's end changes nothing in it."""
    check(along("+", axis), axe.Spec(shape, "f32"))


def test_scans_of_one_element_are_cells() -> None:
    """Of every monoid."""
    spec = axe.Spec((5, 1), "f32")
    for monoid in ("softmax", "recurrence"):
        check(along(monoid, 1), spec, spec)


@pytest.mark.parametrize("order", ["random", "first", "last"])
def test_warps_wait_for_each_other(order: str) -> None:
    """In any order of theirs: totals through shared memory, tile after tile."""
    check(along("+", 1), axe.Spec((1, 9000), "f32"), order=order)
    check(along("+", 0), axe.Spec((900, 40), "f32"), order=order)


DTYPES = ["f16", "bf16", "f8e4m3", "f32", "f64", "i32", "i64"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("monoid", ["+", "max", "min"])
def test_every_element_type_is_scanned(dtype: str, monoid: str) -> None:
    """Computed in its accumulation dtype, rounded once."""
    tolerance = {"f16": 1e-3, "bf16": 8e-3, "f8e4m3": 7e-2}.get(dtype, 4e-6)
    check(along(monoid, 1), axe.Spec((3, 135), dtype), tolerance=tolerance)
    check(along(monoid, 0), axe.Spec((70, 6), dtype), tolerance=tolerance)


def test_products_and_truth_values_are_scanned() -> None:
    """Of which threads exchange registers of 32 bits."""
    check(lambda x: along("*", 1)(x * 0.1 + 1), axe.Spec((3, 135), "f32"))
    for monoid in ("or", "and", "max", "min"):
        check(lambda x, m=monoid: along(m, 1)(x > -0.9), axe.Spec((3, 135), "f32"))


@pytest.mark.parametrize("monoid", [m for m in MONOIDS if MONOIDS[m].n_values == 2])
@pytest.mark.parametrize(("shape", "axis"), [((3, 333), 1), ((90, 6), 0), ((2, 2500), 1)])
def test_structured_monoids_are_scanned(monoid: str, shape: tuple[int, ...], axis: int) -> None:
    """With all parts of their states; those that do not commute in order."""
    spec = axe.Spec(shape, "f32")
    if MONOIDS[monoid].result != "index":
        check(along(monoid, axis), spec, spec, tolerance=1e-5)
        return

    def best(x: Any) -> Any:
        places = xp.expand_dims(xp.arange(shape[axis]), axis=1 - axis)
        return along(monoid, axis)(xp.round(x), places)

    check(best, spec)


def test_cells_and_scans_around_scans_are_one_kernel() -> None:
    """A scan of a scan along the same axis, cells before, between and after."""

    def fn(x: Any, y: Any) -> Any:
        once = xp.cumulative_sum(x * y[:, None], axis=1)
        return xp.exp(-xp.abs(xp.cumulative_sum(once / 64, axis=1))) + x, once

    check(fn, axe.Spec((5, 300), "f32"), axe.Spec((5,), "f32"))


def test_flipped_rows_are_scanned_from_their_end() -> None:
    """Read backwards, and stored so by a kernel after."""
    x = np.random.default_rng(0).standard_normal((3, 130)).astype(np.float32)
    fn = along("max", 1, reverse=True)
    with debug(cache=0):
        exe = axe.compile(fn, axe.Spec(x.shape, "f32"), target="h200")
    (found,) = interpreted(exe.schedule.graph, [x])
    np.testing.assert_array_equal(found, np.maximum.accumulate(x[:, ::-1], 1)[:, ::-1])


def test_every_choice_of_lanes_warps_and_registers_scans() -> None:
    """Tiles that no program asks for: dispatch derives the calls from where the elements lie."""
    rng = np.random.default_rng(1)
    for tiling in (
        ScanTiling(1, 1, 32, 4, 3), ScanTiling(1, 4, 64, 2, 2), ScanTiling(1, 2, 8, 16, 1),
        ScanTiling(1, 1, 1, 128, 5), ScanTiling(0, 1, 4, 32, 3), ScanTiling(0, 4, 16, 8, 2),
        ScanTiling(0, 1, 64, 2, 4), ScanTiling(0, 2, 1, 128, 7), ScanTiling(1, 4, 1024, 1, 1),
    ):  # fmt: skip
        dim = 1 if tiling.fast else 0
        x = rng.integers(-9, 10, tiling.tile).astype(np.int32)
        before = rng.integers(-9, 10, [e if d != dim else 1 for d, e in enumerate(x.shape)])
        k = ThreadBuilder("scanned", tiling.warps)
        given, ends = k.tensor("x", "i32", x.shape), k.tensor("c", "i32", before.shape)
        out = k.tensor("y", "i32", x.shape, output=True)
        after = k.tensor("d", "i32", before.shape, output=True)
        tile = k.reg("tile", "i32", tiling.tile, tiling.layout)
        carry = k.reg_reduced("carry", "i32", tile.all, [dim])
        scratch = [k.smem("scratch", "i32", (32 * tiling.wide * tiling.warps,))]
        index = tuple(0 if d == dim else slice(None) for d in range(2))
        k.copy(tile.all, given.all)
        k.copy(carry.all[index], ends.all[index])
        k.scan(apply("add", arg(0), arg(1)), [tile.all], [carry.all], dim, scratch)
        k.copy(out.all, tile.all)
        k.copy(after.all[index], carry.all[index])
        kernel = k.finish()
        want = np.cumsum(x, dim) + before
        inputs = {"x": x, "c": before.astype(np.int32)}
        for planned in (None, plan(kernel, h200)):
            tensors = {**inputs, "y": np.zeros_like(x), "d": np.zeros_like(inputs["c"])}
            run = interpret(kernel, tensors, {}, planned=planned, meanings=MEANINGS)
            assert (run.outputs["y"] == want).all(), tiling
            assert (run.outputs["d"] == np.take(want, [-1], dim)).all(), tiling


def test_layouts_that_no_scan_takes_are_refused() -> None:
    """With what lies where."""
    k = ThreadBuilder("refused", 4)
    tile = k.reg("tile", "f32", (1, 256), Layout([(8, 1, "tx"), (2, 1, "reg"), (16, 8, "tx")]))
    carry = k.reg_reduced("carry", "f32", tile.all, [1])
    k.fill(tile.all, 1.0)
    k.fill(carry.all, 0.0)
    k.scan(apply("add", arg(0), arg(1)), [tile.all], [carry.all], 1)
    with pytest.raises(DispatchError, match=r"no instruction .* fits"):
        plan(k.finish(), h200)


def test_scans_of_tiles_that_do_not_fit_are_refused() -> None:
    """By the builder, at the line that asks."""
    k = ThreadBuilder("wrong", 1)
    tile = k.reg("tile", "f32", (1, 32), Layout([(32, 1, "lane")]))
    other = k.reg("other", "i32", (1, 1), Layout([(1, 1, "reg")], [(32, 1, "lane")]))
    k.fill(tile.all, 1.0)
    k.fill(other.all, 0)
    add = apply("add", arg(0), arg(1))
    with pytest.raises(ScheduleError, match=r"2 carries, 1 cells.*as many of each"):
        k.scan(add, [tile.all], [other.all, other.all], 1)
    with pytest.raises(ScheduleError, match=r"other.* of i32\[1, 1\].*expected f32\[1, 1\]"):
        k.scan(add, [tile.all], [other.all], 1)


@pytest.mark.parametrize(("shape", "axis"), [((4096, 4096), 1), ((32768, 64), 1), ((1 << 20,), 0),
                                             ((4096, 4096), 0), ((300, 5), 0)])  # fmt: skip
def test_what_is_priced_is_emitted(shape: tuple[int, ...], axis: int) -> None:
    """By the schedule of scans, in one kernel, at the tile that was priced."""
    with debug(cache=0):
        exe = axe.compile(along("+", axis), axe.Spec(shape, "f32"), target="h200")
    (step,) = exe.schedule.graph.kernels
    assert step.schedule == Scans.name
    (text,) = texts(exe.schedule.graph, h200).values()
    n, other = shape[axis], int(np.prod(shape)) // shape[axis]
    fast = int(axis == len(shape) - 1)
    wide = 4 if shape[-1] % 4 == 0 else 1
    tiling = best_scan(n, other, 1, fast, wide, h200.n_units)
    assert f"__launch_bounds__({32 * tiling.warps}" in text
    assert step.costs["gmem_bytes"] == 8.0 * n * other
    assert step.time_s >= step.costs["waits_s"]


def test_monoids_without_cells_are_refused_by_name() -> None:
    """Before the search takes them."""
    assert parts_of("unknown", ["f32"]) is None
    assert all(parts_of(m, ["f32"] * MONOIDS[m].n_values) for m in ("+", "recurrence", "softmax"))
    assert parts_of("+", ["bool"]) is None


@pytest.mark.parametrize("n", [7, 1000])
def test_decays_whose_products_overflow_leave_finite_values_as_they_are(n: int) -> None:
    """What stands before a row changes nothing in it: 0 times an infinite product gave NaN."""
    decays, values = (np.zeros((2, n), np.float32) for _ in range(2))
    decays[:, :4], values[:, 0] = 1e20, 1e-30
    exe = axe.compile(along("recurrence", 1), *[axe.Spec((2, n), "f32")] * 2, target="h200")
    found = np.asarray(exe.interpret(decays, values))
    np.testing.assert_allclose(found[:, :4], [[1e-30, 1e-10, 1e10, 1e30]] * 2, rtol=1e-5)
