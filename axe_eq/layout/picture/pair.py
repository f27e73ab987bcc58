"""Two layouts of one size side by side, with the elements that differ marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from axe_eq.draw import page as html
from axe_eq.draw.grid import Grid, grid_text
from axe_eq.layout.normal.decide import same_map
from axe_eq.layout.picture.matrix import (
    MOST,
    MOST_COPIES,
    Matrix,
    block_size,
    blocks,
    images,
    matrix_of,
)
from axe_eq.layout.picture.panels import (
    Marked,
    colour_axis,
    elements,
    overview,
    scale_of,
    shown_axes,
)
from axe_eq.layout.picture.single import USUAL, Look, panel, told
from axe_eq.layout.value.iters import Iters
from axe_eq.layout.value.layout import Layout


class Pair(NamedTuple):
    """Two layouts as grids.

    Attributes:
        matrix: how their elements form rows and columns.
        grids: of the one and of the other.
        note: what is drawn and how much differs.
    """

    matrix: Matrix
    grids: tuple[Grid, Grid]
    note: str


def rows_and_columns(a: Layout, b: Layout, look: Look = USUAL) -> Matrix:
    """The matrix that both of two layouts are drawn as."""
    shape = look.shape or a.box or b.box
    return matrix_of(a if shape or len(a.shard) >= len(b.shard) else b, shape)


def pair_of(
    a: Layout,
    b: Layout,
    first: int | None,
    look: Look = USUAL,
    most: int = MOST,
    *,
    named: bool = True,
) -> Pair:
    """Both layouts through one window, which shows the first element that differs.

    Args:
        a: a layout.
        b: another one with as many elements.
        first: the first element that differs, None where none does.
        look: how they are drawn.
        most: rows and columns that are drawn.
        named: cells spell out the names of several axes where there is room.
    """
    matrix = rows_and_columns(a, b, look)
    window = matrix.window((first or 0) if look.at is None else look.at, most)
    index = matrix.index(window).reshape(-1)
    sides, axes = [images(layout, index) for layout in (a, b)], shown_axes(a, b)
    axis = look.colour or colour_axis(axes)
    scale = scale_of(axis, np.concatenate([side.least(axis) for side in sides]))
    equal = np.zeros(len(index), dtype=bool)
    differs = equal if first is None else differing(a, b, index)
    one, two = (
        elements(matrix, window, side, axes, scale, Marked(differs, first), named=named)
        for side in sides
    )
    order = f" A cell shows its place {one.text}." if one.text else ""
    note = f"{differs.sum()} of the {len(index)} elements drawn differ.{order}"
    return Pair(matrix, (one, two), note + told(matrix, window))


def pair_sections(
    a: Layout, b: Layout, first: int | None, look: Look, titles: Sequence[str]
) -> Iterator[str]:
    """The parts of a page that shows two layouts of one size under titles."""
    pair = pair_of(a, b, first, look)
    drawn = zip(titles, map(panel, pair.grids), strict=True)
    yield html.section("Element by element", pair.note, html.side_by_side(drawn))
    if pair.matrix.window() == pair.matrix.whole():
        return
    marks, whole = differing_blocks(a, b, pair.matrix, first)
    note = f"All elements in blocks; {marks.sum()} of {marks.size} hold elements that differ."
    if not whole:
        note += " Of a block at most 256 elements were compared."
    axis = look.colour or colour_axis(shown_axes(a, b))
    far = [panel(overview(layout, pair.matrix, axis, None, marks)) for layout in (a, b)]
    parts = zip(titles, far, strict=True)
    yield html.section("From far", note, html.side_by_side(parts))


def pair_text(pair: Pair, titles: Sequence[str]) -> str:
    """Two layouts under titles for a terminal, one above the other."""
    lines = []
    for title, grid in zip(titles, pair.grids, strict=True):
        lines += [title, grid_text(grid), ""]
    marks = {
        mark for grid in pair.grids for row in grid.cells for cell in row for mark in cell.marks
    }
    if {"first", "differs"} & marks:
        lines.append("> the first element that differs, * others that differ")
    return "\n".join([*lines, pair.note])


# -- element by element ----------------------------------------------------------------------------


MOST_COMPARED = 2**21  # elements of an overview that are all looked at
SAMPLED = 16  # elements per block and dim that are looked at otherwise


def differing(a: Layout, b: Layout, index: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which elements of a flat index lie at different places. Exact.

    Images are products over the axes, so each axis is compared alone. Without a swizzle on it all
    copies move together: the sets are equal where they have one shape and the least copies agree.

    Raises:
        SearchError: more than 2**20 copies on a swizzled axis.
    """
    found = images(a, index), images(b, index)
    zero = np.zeros((len(index), 1), dtype=np.int64)
    differs = np.zeros(len(index), dtype=bool)
    for axis in {*a.axes, *b.axes}:
        one, two = (side.values.get(axis, zero) for side in found)
        if not any(sw.axis == axis for sw in (*a.swizzle, *b.swizzle)):
            differs |= one[:, 0] != two[:, 0]
            differs |= not _same_spread(a, b, axis)
        elif max(_combinations(a, axis), _combinations(b, axis)) <= MOST_COPIES:
            differs |= one.shape != two.shape or (one != two).any(axis=1)
        else:
            differs |= np.array([a(x) != b(x) for x in index.tolist()], dtype=bool)
    return differs


def _on(axis: str, layout: Layout) -> Iters:
    return tuple(item for item in layout.replica if item[2] == axis)


def _combinations(layout: Layout, axis: str) -> int:
    return prod(extent for extent, stride, _ in _on(axis, layout) if stride)


def _same_spread(a: Layout, b: Layout, axis: str) -> bool:
    """Whether the copies of an element lie alike on an axis, wherever the first one lies."""
    one, two = (Layout((), mine, _turned(mine)) for mine in (_on(axis, a), _on(axis, b)))
    return same_map(one, two) is None


def _turned(replica: Iters) -> dict[str, int]:
    """The offset that makes the least copy lie at 0."""
    offset: dict[str, int] = {}
    for extent, stride, axis in replica:
        offset[axis] = offset.get(axis, 0) - min((extent - 1) * stride, 0)
    return offset


def differing_blocks(
    a: Layout, b: Layout, matrix: Matrix, first: int | None
) -> tuple[NDArray[np.bool_], bool]:
    """Which blocks of an overview have elements that differ, and whether all were looked at."""
    whole = prod(matrix.dims) <= MOST_COMPARED
    rows, row_starts = _seen(matrix.n_rows, whole)
    columns, column_starts = _seen(matrix.n_columns, whole)
    index = rows[:, None] * matrix.n_columns + columns[None, :]
    marks = differing(a, b, index.reshape(-1)).reshape(index.shape)
    marks = np.logical_or.reduceat(np.logical_or.reduceat(marks, row_starts, 0), column_starts, 1)
    if first is not None:
        row, column = divmod(first, matrix.n_columns)
        marks[row // block_size(matrix.n_rows), column // block_size(matrix.n_columns)] = True
    return marks, whole


def _seen(extent: int, whole: bool) -> tuple[NDArray[np.int64], list[int]]:
    """Places of a dim that are looked at, block by block, and where each block begins in them."""
    parts = [np.arange(part.start, part.stop) for part in blocks(extent)]
    if not whole:
        parts = [part[:: -(-len(part) // SAMPLED)] for part in parts]
    starts = np.cumsum([0, *map(len, parts[:-1])])
    return np.concatenate(parts), starts.tolist()
