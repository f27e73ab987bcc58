"""Two layouts of one size side by side, with the elements that differ marked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from axe_eq.draw import page as html
from axe_eq.draw.grid import Grid, grid_text
from axe_eq.layout.picture.compare import differing, differing_blocks
from axe_eq.layout.picture.matrix import MOST, Matrix, images, matrix_of
from axe_eq.layout.picture.panels import (
    Marked,
    colour_axis,
    elements,
    overview,
    scale_of,
    shown_axes,
)
from axe_eq.layout.picture.single import USUAL, Look, panel, told
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
