"""Operations on layouts with boxes, and on boxes in boxes by way of ladders.

A layout whose boxes line up with each other is a ladder (`axe_eq.layout.normal.ladders`). With
enough rungs, so is any map whose values lie on one axis. Where the rungs do not tell, and where
digits were reordered between boxes, the table decides.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from math import prod

import numpy as np
from numpy.typing import NDArray

from axe_eq.errors import LayoutError, SearchError
from axe_eq.layout.algebra.slices import Spans, region_index, slice_dims
from axe_eq.layout.normal import ladders as ld
from axe_eq.layout.normal.chains import build, ladder_of
from axe_eq.layout.normal.ladder_search import find_ladder
from axe_eq.layout.normal.ladders import Field, Ladder
from axe_eq.layout.normal.recover_iters import NoIters, add
from axe_eq.layout.normal.tables import MAX_POINTS as MAX_PICKED
from axe_eq.layout.normal.tables import pick
from axe_eq.layout.value import iters as it
from axe_eq.layout.value import upper
from axe_eq.layout.value.check import MAX_ITERS, Offsets, check_admitted, make_offsets
from axe_eq.layout.value.extents import MAX_VALUES
from axe_eq.layout.value.iters import DEFAULT_AXIS, Iters
from axe_eq.layout.value.layout import Layout, make, make_dims
from axe_eq.layout.value.reports import Grouped

Table = NDArray[np.int64]

MAX_POINTS = 2**18
"""Most elements of boxes in boxes that are enumerated to find their normal form."""


# ---- operations ----------------------------------------------------------------------------------


def slice_boxed(layout: Layout, shape: Sequence[int], spans: Spans) -> Layout:
    """`Layout.slice` with a box: dim by dim, or where that fails from the table.

    Raises:
        NoIters: no box computes the region.
        SearchError: undecided, over 2**22 elements.
    """
    try:
        if layout.inner:
            return _slice_ladders(layout, shape, spans)
        dims, origin = slice_dims(layout.group_dims(shape), spans)
    except (LayoutError, NoIters):
        if not (layout.inner or any(begin for begin, _ in spans)):
            with suppress(LayoutError):
                return _slice_ladders(layout, shape, spans)
        count = prod(end - begin for begin, end in spans)
        return _pick(layout, count, lambda: region_index(shape, spans))
    add(origin, dict(layout.offsets))
    return make_dims(dims, layout.replica, make_offsets(origin), layout.swizzle)


def _slice_ladders(layout: Layout, shape: Sequence[int], spans: Spans) -> Layout:
    """The region by the ladder of every dim, if it begins with all of them.

    Raises:
        LayoutError: a boundary falls between levels.
        NoIters: it begins elsewhere.
    """
    if any(begin for begin, _ in spans):
        raise NoIters(0, "it begins inside a dim")
    fields = fields_of(layout, shape)
    cut = [(end, ld.cut(rungs, end)) for (_, end), (_, rungs) in zip(spans, fields, strict=True)]
    return build(cut, layout.replica, layout.offsets, layout.swizzle, keep=True)


def permute_boxed(layout: Layout, shape: Sequence[int], order: Sequence[int]) -> Layout:
    """`Layout.permute` with a box.

    Raises:
        NoIters: no box computes it.
        SearchError: undecided, over 2**22 elements that do not group by `shape`.
    """
    parts = layout.replica, layout.offsets, layout.swizzle
    if not layout.inner:
        with suppress(LayoutError):
            dims = layout.group_dims(shape)
            return make_dims(tuple(dims[dim] for dim in order), *parts)
    try:
        fields = fields_of(layout, shape)
        return build([fields[dim] for dim in order], *parts, keep=True)
    except LayoutError:

        def index() -> Table:
            return np.arange(layout.size).reshape(shape).transpose(order).reshape(-1)

        return _pick(layout, layout.size, index)


def _pick(layout: Layout, count: int, index: Callable[[], Table]) -> Layout:
    """The layout of the `count` elements in `index`, from their table."""
    if count > MAX_PICKED:
        raise SearchError(f"part of {layout}", f"{count} elements", f"at most {MAX_PICKED}")
    return pick(layout, index())


def group_inner(layout: Layout, shape: Sequence[int]) -> Grouped:
    """`Layout.group` of boxes in boxes: the first box is the shape, a block per dim its digits.

    Raises:
        LayoutError: a boundary falls between levels.
        SearchError: as `normal_ladder`.
    """
    fields = fields_of(layout, shape)
    grouped = build(fields, layout.replica, layout.offsets, layout.swizzle, keep=True)
    return Grouped(grouped, tuple(ld.iters_of(*field) for field in fields))


def fields_of(layout: Layout, shape: Sequence[int]) -> list[Field]:
    """The dims of a shape with a ladder each.

    Raises:
        LayoutError: the shape does not fit, or its boundaries fall between levels.
        SearchError: the normal form that decides is not found within its limits.
    """
    check_admitted(layout.size, shape)
    ladder = ladder_of(layout)
    parts = None if ladder is None else ld.split(layout.size, ladder, shape)
    if parts is None and layout.inner:
        parts = ld.split(layout.size, normal_ladder(layout), shape)
    if parts is None:
        raise LayoutError(
            f"layout {layout}",
            f"does not group by {tuple(shape)}",
            "a shape that cuts at its levels",
        )
    return list(zip(shape, parts, strict=True))


def range_boxed(layout: Layout, axis: str) -> tuple[int, int]:
    """The least and the greatest coordinate of a layout with a box on an axis.

    Raises:
        SearchError: over 2**24 coordinates to try.
    """
    swizzled = any(sw.axis == axis and sw.bits for sw in layout.swizzle)
    ladder = None if swizzled else ladder_of(layout)
    if ladder is not None:
        low, high = ld.bounds(layout.size, ladder, axis)
        offset = dict(layout.offsets).get(axis, 0)
        copies = it.bounds(layout.replica).get(axis, (0, 0))
        return offset + low + copies[0], offset + high + copies[1]
    steps = layout.replica_table(axis)
    if layout.size * len(steps) > MAX_VALUES:
        raise SearchError(f"range on {axis}", f"over {MAX_VALUES} coordinates", "fewer")
    values = np.add.outer(layout.linear_table(axis), steps)
    values = layout.swizzled(axis, values)
    return int(values.min()), int(values.max())


# ---- normal forms --------------------------------------------------------------------------------


def normal_ladder(layout: Layout) -> Ladder:
    """The one ladder of all layouts with this map, before copies and swizzles.

    Raises:
        SearchError: the rungs do not tell, and there are over 2**18 elements or 1024 digits.
    """
    thing, ladder = f"normal form of {layout}", ladder_of(layout)
    if ladder is not None:
        short, sure = ld.reduced(layout.size, ladder)
        if sure:
            return short
    if layout.size > MAX_POINTS:
        raise SearchError(thing, f"{layout.size} elements", f"at most {MAX_POINTS}")
    found = find_ladder(*table_of(layout), several=True)
    if found is None:
        raise SearchError(thing, f"over {MAX_ITERS} digits", f"at most {MAX_ITERS}")
    return found


def table_of(layout: Layout) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """The table of a layout before copies and swizzles, 0 at index 0, and its axes."""
    bare = make(layout.shard, (), (), (), *layout.boxes)
    axes = bare.axes or (DEFAULT_AXIS,)
    return np.stack([bare.linear_table(axis) for axis in axes], axis=-1), axes


def normalise(layout: Layout, replica: Iters, offsets: Offsets) -> Layout:
    """The canonical form of boxes in boxes without swizzles.

    Where the rungs do not tell, it is found from the table (`axe_eq.layout.normal.swizzled`).

    Raises:
        SearchError: the rungs do not tell, and there are over 2**18 elements, or none of the forms
            has the map.
    """
    ladder = ladder_of(layout)
    if ladder is not None:
        short, sure = ld.reduced(layout.size, ladder)
        plain = build([(layout.size, short)], replica, offsets)
        if sure and (not plain.inner or ld.is_wide(layout.size, short)):
            return plain
    return upper.answers.normal_form(layout)
