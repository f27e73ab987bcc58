"""Two layouts element by element: where they differ, and how that is drawn."""

from __future__ import annotations

from math import prod

import numpy as np
from numpy.typing import NDArray

from axe_eq.layout.normal.decide import same_map
from axe_eq.layout.picture.matrix import MOST_COPIES, Matrix, block_size, blocks, images
from axe_eq.layout.value.iters import Iters
from axe_eq.layout.value.layout import Layout

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
