"""The least and the greatest coordinate on an axis that swizzles act on (Axe Definition 2.3)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import gcd

import numpy as np
from numpy.typing import NDArray

from axe_eq.errors import SearchError
from axe_eq.layout.value.boxes import Dims
from axe_eq.layout.value.indexing import block_table
from axe_eq.layout.value.iters import Iters, size
from axe_eq.layout.value.swizzle import Swizzle

MAX_VALUES = 2**24
MAX_GRID = 2**20
EMPTY = np.iinfo(np.int64).min  # no coordinate

Values = NDArray[np.int64]


def swizzled_range(
    dims: Dims, replica: Iters, offset: int, swizzles: Sequence[Swizzle], axis: str
) -> tuple[int, int]:
    """The range of a layout on an axis that `swizzles` act on, written order.

    Adding a multiple of all that the swizzles see adds it to the swizzled value too. So the
    extremes of a digit are reached within one period of either end, and of coordinates that the
    swizzles see alike the extreme one is enough.

    Raises:
        SearchError: over 2**24 coordinates to try.
    """
    grid = 1 << max(sw.reach for sw in swizzles)
    ends: list[int] = []
    for top in (False, True):
        values = np.array([offset], dtype=np.int64)
        for part in (*_dim_values(dims, axis, grid, top), *_ends(replica, axis, grid, top)):
            if len(values) * len(part) > MAX_VALUES:
                raise SearchError(f"range on {axis}", f"over {MAX_VALUES} coordinates", "fewer")
            values = _extremes(np.add.outer(values, part).reshape(-1), grid, top)
        for sw in reversed(swizzles):
            values = sw.apply(values)
        ends.append(int(values.max() if top else values.min()))
    return ends[0], ends[1]


def _dim_values(dims: Dims, axis: str, grid: int, top: bool) -> Iterable[Values]:
    for extent, block in dims:
        if size(block) == extent:
            yield from _ends(block, axis, grid, top)
        elif extent <= MAX_VALUES:
            yield _extremes(block_table(block, axis)[:extent], grid, top)
        else:
            raise SearchError(
                f"range on {axis}", f"a padded dim of {extent}", f"at most {MAX_VALUES}"
            )


def _extremes(values: Values, grid: int, top: bool) -> Values:
    """Of values that differ by a multiple of the grid the greatest, or the least."""
    if grid > MAX_GRID:
        return np.unique(values)
    ordered = np.sort(values)
    if not top:
        ordered = ordered[::-1]
    kept: Values = np.full(grid, EMPTY)
    kept[ordered & (grid - 1)] = ordered  # of several the last one stays
    left: Values = kept[kept != EMPTY]
    return left


def _ends(iters: Iters, axis: str, grid: int, top: bool) -> Iterable[Values]:
    """Per iter on the axis the values of one period of digits, at the end that is extreme."""
    for extent, stride, name in iters:
        if name != axis or extent == 1:
            continue
        period = min(extent, grid // gcd(stride, grid))
        if period > MAX_VALUES:
            raise SearchError(f"range on {axis}", f"a period of {period}", f"at most {MAX_VALUES}")
        first = extent - period if (stride > 0) == top else 0
        yield np.arange(first, first + period, dtype=np.int64) * stride
