"""Placements against layouts: brute force over every element."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from axe_eq.errors import LayoutError
from axe_eq.kernel import placement as pl
from axe_eq.kernel.expr import evaluate, var
from axe_eq.kernel.placement import Iter, Placement
from axe_eq.kernel.threads import placement as threads
from axe_eq.kernel.threads.placement import of_layout
from axe_eq.layout import Layout

EXTENTS = st.sampled_from([1, 2, 3, 4, 6, 8])
AXES = st.sampled_from(["m", "lane", "reg"])


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    n = draw(st.integers(1, 4))
    return Layout([(draw(EXTENTS), draw(st.integers(1, 9)), draw(AXES)) for _ in range(n)])


@st.composite
def grouped(draw: st.DrawFn) -> tuple[Layout, tuple[int, int]]:
    layout = draw(layouts())
    rows = draw(st.sampled_from([d for d in range(1, layout.size + 1) if layout.size % d == 0]))
    return layout, (rows, layout.size // rows)


def image(p: Placement, axis: str) -> npt.NDArray[np.int64]:
    return np.broadcast_to(p.coordinate(axis), [pl.number(e) for e in p.shape])


@given(grouped())
def test_grouping_keeps_every_coordinate(case: tuple[Layout, tuple[int, int]]) -> None:
    layout, shape = case
    try:
        p = of_layout(layout, shape)
    except LayoutError:
        assume(False)
    for axis in ("m", "lane", "reg"):
        for index in product(*map(range, shape)):
            (at,) = layout(index, shape=shape)
            assert image(p, axis)[index] == dict(at).get(axis, 0)


@given(grouped(), st.data())
def test_a_slice_is_the_part_of_the_whole(
    case: tuple[Layout, tuple[int, int]], data: st.DataObject
) -> None:
    layout, shape = case
    try:
        p = of_layout(layout, shape)
        begin = [data.draw(st.integers(0, e - 1)) for e in shape]
        extent = [data.draw(st.integers(1, e - b)) for e, b in zip(shape, begin, strict=True)]
        part = pl.sliced(p, begin, extent, "part")
    except LayoutError:
        assume(False)
    window = tuple(slice(b, b + e) for b, e in zip(begin, extent, strict=True))
    for axis in ("m", "lane", "reg"):
        assert (image(part, axis) + pl.number(part.at(axis)) == image(p, axis)[window]).all()


def test_a_run_time_slice_has_a_run_time_offset() -> None:
    p = of_layout(Layout([(8, 512), (64, 1)]), (8, 64))
    row = var("row", 2, high=6)
    part = pl.sliced(p, (row, 16), (2, 16), "part")
    for value in (0, 2, 4, 6):
        assert evaluate(part.at("m"), {"row": value}) == value * 512 + 16
    assert part.shape == (2, 16)


@pytest.mark.parametrize(
    ("begin", "extent", "reason"),
    [
        (var("r", 1), 4, "may cross the end of iter 4:1@m"),
        (2, 4, "may cross the end of iter 4:1@m"),
        (var("r", 4), 8, "may cross the end of iter 4:64@m"),
    ],
)
def test_impossible_slices_say_why(begin: int, extent: int, reason: str) -> None:
    p = of_layout(Layout([(4, 1, "lane"), (4, 64), (4, 1)]), (64,))
    with pytest.raises(LayoutError, match=reason):
        pl.sliced(p, (begin,), (extent,), "part")


@given(layouts(), layouts())
def test_tile_of_inverts_the_tile(outer: Layout, inner: Layout) -> None:
    p, atom = of_layout(outer, (outer.size,)), of_layout(inner, (inner.size,))
    scaled = [i._replace(stride=pl.number(i.stride) * atom.extent_on(i.axis)) for i in p.iters]
    whole = Placement((tuple(scaled) + atom.iters,))
    try:
        (tiles,) = pl.tile_of(whole, atom, "tile")
    except LayoutError:
        assume(False)
    assert (image(Placement((tiles,)), "m") == image(p, "m")).all()


@given(grouped())
def test_packing_numbers_registers_densely_in_order(case: tuple[Layout, tuple[int, int]]) -> None:
    layout, shape = case
    strides = [s for _, s, axis in layout.shard if axis == "reg"]
    assume(len(set(strides)) == len(strides))
    try:
        p = of_layout(layout, shape)
    except LayoutError:
        assume(False)
    before, after = image(p, "reg").ravel(), image(threads.packed(p), "reg").ravel()
    sizes = [pl.number(i.extent) for i in p.iters if i.axis == "reg"]
    assume(len(np.unique(before)) == prod(sizes))
    assert sorted(set(after)) == list(range(len(set(after))))
    assert len(set(zip(before, after, strict=True))) == len(set(before))


def test_thread_axis_tx_becomes_warps_and_lanes() -> None:
    p = of_layout(Layout([(16, 8, "tx"), (8, 1, "tx"), (8, 1, "reg")]), (16, 64))
    thread = image(p, "warp") * 32 + image(p, "lane")
    assert (thread == np.arange(16)[:, None] * 8 + np.arange(64)[None] // 8).all()


def test_projection_replicates_dropped_dims() -> None:
    p = of_layout(Layout([(8, 4, "lane"), (2, 2, "reg"), (4, 1, "lane"), (2, 1, "reg")]), (8, 16))
    row = threads.projected(p, [1])
    assert row.shape == (1, 16)
    assert row.replica == (Iter(8, 4, "lane"),)
    assert row.extent_on("reg") == 4


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        (Layout([(4, 1)], box=(3,)), "padded box"),
        (Layout([(24, 7, "tx")]), "does not split into warps"),
        (Layout([(3, 1), (5, 1)]), "divides"),
    ],
)
def test_layouts_that_kernels_cannot_take_are_refused_by_name(layout: Layout, reason: str) -> None:
    with pytest.raises(LayoutError, match=reason):
        of_layout(layout, (5, 3) if layout.size == 15 else (layout.size,))
