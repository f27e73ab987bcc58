"""A layout seen as a matrix of its logical elements, whole or through a window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log2, prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from axe_eq.errors import LayoutError
from axe_eq.layout.value.check import check_admitted
from axe_eq.layout.value.indexing import unflatten
from axe_eq.layout.value.layout import Layout

MOST = 64  # rows and columns that are drawn one by one
WIDE = 32  # columns of a layout of which nothing says how it is cut


class Window(NamedTuple):
    """Rows and columns that are looked at."""

    rows: range
    columns: range


@dataclass(frozen=True)
class Matrix:
    """The logical elements of a tensor as rows and columns.

    Attributes:
        dims: extents of the tensor, slow to fast.
        split: how many leading dims make the rows; the others make the columns.
    """

    dims: tuple[int, ...]
    split: int

    @property
    def n_rows(self) -> int:
        """The product of the row dims."""
        return prod(self.dims[: self.split])

    @property
    def n_columns(self) -> int:
        """The product of the column dims."""
        return prod(self.dims[self.split :])

    def index(self, window: Window) -> NDArray[np.int64]:
        """The linear indices of a window, ``[rows, columns]``."""
        rows = np.array(window.rows, dtype=np.int64)
        return rows[:, None] * self.n_columns + np.array(window.columns, dtype=np.int64)

    def whole(self) -> Window:
        """All of it."""
        return Window(range(self.n_rows), range(self.n_columns))

    def window(self, index: int = 0, most: int = MOST) -> Window:
        """At most `most` rows and columns around an element; all of them where they fit."""
        row, column = divmod(index, self.n_columns)
        return Window(_around(row, self.n_rows, most), _around(column, self.n_columns, most))

    def row_label(self, row: int) -> str:
        """The digits of a row."""
        return _digits(row, self.dims[: self.split])

    def column_label(self, column: int) -> str:
        """The digits of a column."""
        return _digits(column, self.dims[self.split :])

    def element(self, index: int) -> str:
        """An element as its digits in the dims."""
        return _digits(index, self.dims) or "0"

    def breaks(self, window: Window) -> tuple[frozenset[int], frozenset[int]]:
        """Rows and columns of the window at which a dim other than the fastest one moves on."""
        inner = self.dims[self.split - 1] if self.split > 1 else 0
        outer = self.dims[-1] if len(self.dims) - self.split > 1 else 0
        return _multiples(window.rows, inner), _multiples(window.columns, outer)


def _around(place: int, extent: int, most: int) -> range:
    """Part of a dim that holds a place; windows are cut at multiples of their size."""
    if extent <= most:
        return range(extent)
    start = min(place // most * most, extent - most)
    return range(start, start + most)


def _digits(index: int, extents: Sequence[int]) -> str:
    return ",".join(map(str, unflatten(index, extents)))


def _multiples(places: range, of: int) -> frozenset[int]:
    if of < 2:
        return frozenset()
    return frozenset(n for n, place in enumerate(places) if n and place % of == 0)


def matrix_of(layout: Layout, shape: Sequence[int] | None = None) -> Matrix:
    """The matrix of a layout.

    Args:
        layout: any layout.
        shape: extents of its tensor; without it those of its box, or a cut between two iters.

    Raises:
        LayoutError: the shape does not have the layout's size.
    """
    if shape is not None:
        dims = check_admitted(layout.size, shape)
    else:
        dims = layout.box if layout.box is not None else _guessed(layout)
    return split_evenly(dims)


def split_evenly(dims: Sequence[int]) -> Matrix:
    """Dims as the rows and columns that are nearest to a square; one dim is one row."""
    dims = tuple(dims) or (1,)
    if len(dims) == 1:
        return Matrix(dims, 0)
    return Matrix(dims, min(range(1, len(dims)), key=lambda split: _skew(dims, split)))


def _skew(dims: Sequence[int], split: int) -> float:
    """How far from a square the matrix is; tall ones are worse than wide ones."""
    ratio = log2(prod(dims[:split])) - log2(prod(dims[split:]))
    return abs(ratio) + (0.5 if ratio > 0 else 0)


def _guessed(layout: Layout) -> tuple[int, ...]:
    extents = [extent for extent, _, _ in layout.shard if extent > 1]
    cuts = [(prod(extents[:place]), prod(extents[place:])) for place in range(1, len(extents))]
    if cuts:
        return min(cuts, key=lambda cut: _skew(cut, 1))
    if layout.size > WIDE and layout.size % WIDE == 0:
        return layout.size // WIDE, WIDE
    return (layout.size,)


def region(matrix: Matrix, at: Sequence[int]) -> int:
    """The linear index of an element given by its digits, or by one number.

    Raises:
        LayoutError: out of range.
    """
    extents = matrix.dims if len(at) > 1 else (prod(matrix.dims),)
    if len(at) != len(extents) or any(
        not 0 <= digit < extent for digit, extent in zip(at, extents, strict=False)
    ):
        raise LayoutError(f"element {tuple(at)}", "out of range", f"inside {matrix.dims}")
    index = 0
    for digit, extent in zip(at, extents, strict=True):
        index = index * extent + digit
    return index


# ---- where elements lie -------------------------------------------------------------------------


class Images(NamedTuple):
    """Where some elements lie: per axis their values, one row of copies per element.

    The image of an element is the product of its rows over the axes: replicas and swizzles act on
    one axis each.
    """

    axes: tuple[str, ...]
    values: dict[str, NDArray[np.int64]]

    def least(self, axis: str) -> NDArray[np.int64]:
        """The least value per element on an axis."""
        return self.values[axis][:, 0] if axis in self.values else np.zeros(1, dtype=np.int64)

    def least_of(self, axis: str, number: int) -> int:
        """The least value of one element; 0 on an axis that the layout does not name."""
        return int(self.values[axis][number, 0]) if axis in self.values else 0

    def text(self, axis: str, number: int) -> str:
        """The values of one element on an axis."""
        return values_text(self.values[axis][number]) if axis in self.values else "0"

    def coordinates(self, number: int) -> str:
        """All places of one element."""
        parts = [f"{values_text(self.values[axis][number])}@{axis}" for axis in self.axes]
        return " ".join(parts) or "0"


MOST_COPIES = 256  # per axis that are listed; of more the ends are


def images(layout: Layout, index: NDArray[np.int64]) -> Images:
    """Where the elements of a flat index lie."""
    base = layout.coordinates(index)
    values = {}
    for axis in layout.axes:
        steps = _steps(layout, axis)
        at = base.get(axis, np.zeros(len(index), dtype=np.int64))
        values[axis] = np.sort(layout.swizzled(axis, at[:, None] + steps[None, :]), axis=1)
    return Images(layout.axes, values)


def _steps(layout: Layout, axis: str) -> NDArray[np.int64]:
    """Replica displacements; of very many the two least and the two greatest ones."""
    moving = [(e, s) for e, s, name in layout.replica if name == axis and e > 1 and s]
    if prod(extent for extent, _ in moving) <= MOST_COPIES:
        return layout.replica_table(axis)
    low = sum(min((e - 1) * s, 0) for e, s in moving)
    high = sum(max((e - 1) * s, 0) for e, s in moving)
    near = min(abs(s) for _, s in moving)
    return np.array([low, low + near, high - near, high], dtype=np.int64)


def values_text(values: NDArray[np.int64]) -> str:
    """A few values as a list, a run as its ends."""
    if len(values) == 1:
        return str(values[0])
    listed = [int(value) for value in np.unique(values)]
    if len(listed) > 2 and listed[-1] - listed[0] == len(listed) - 1:
        return f"{listed[0]}–{listed[-1]}"
    if len(listed) <= 3:
        return ",".join(map(str, listed))
    return f"{listed[0]},{listed[1]},…,{listed[-1]}"


def block_size(extent: int) -> int:
    """Length of the blocks that a dim is cut into when it is seen from far away."""
    return -(-extent // MOST)


def blocks(extent: int) -> list[range]:
    """A dim cut into at most `MOST` equal blocks, the last one may be shorter."""
    size = block_size(extent)
    return [range(start, min(start + size, extent)) for start in range(0, extent, size)]
