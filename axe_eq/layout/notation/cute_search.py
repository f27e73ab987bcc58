"""Swizzles in front of a list of iters, for the map of a layout with a box.

A canonical form has the least swizzles that leave a layout, which may be a box; CuTe has no boxes.
Swizzles that leave a list are searched for among the stacks of at most two.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np

from axe_eq.errors import SearchError
from axe_eq.layout.normal.recover_iters import NoIters
from axe_eq.layout.normal.swizzle_filter import pairs, sieved
from axe_eq.layout.normal.tables import from_points
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.layout.value.layout import Layout, make
from axe_eq.layout.value.swizzle import Swizzle

MAX_POINTS = 2**12
MAX_PAIRED = 14  # bits that two swizzles reach: 910 * 910 stacks, most soon ruled out

Stack = tuple[Swizzle, ...]


def unboxed_forms(layout: Layout) -> Iterator[Layout]:
    """Layouts without boxes with a map on ``m``, those of the fewest swizzles first.

    Args:
        layout: a layout on ``m`` without replicas; over 2**12 elements have no such forms.
    """
    if layout.size > MAX_POINTS:
        return
    values = layout.table(DEFAULT_AXIS)
    singles = _singles(max([_reach(values), *(sw.reach for sw in layout.swizzle)]))
    column = values[:, None]
    stacks: list[Iterator[Stack]] = [iter([()]), ((sw,) for sw in singles)]
    few = [sw for sw in singles if sw.reach <= MAX_PAIRED]
    stacks.append(pairs(column, few))
    for stack in chain.from_iterable(sieved(column, some) for some in stacks):
        undone = values
        for sw in stack:
            undone = sw.undo_table(undone)
        try:
            plain = from_points(undone[:, None, None], (DEFAULT_AXIS,))
        except (NoIters, SearchError):
            continue
        yield make(plain.shard, (), plain.offsets, stack)


def _reach(values: np.ndarray[tuple[int, ...], np.dtype[np.int64]]) -> int:
    """The bits that swizzles can tell apart; above them all are alike, 0 or for negative ones 1."""
    low, high = int(values.min()), int(values.max())
    bits = max(high.bit_length(), (~low).bit_length() if low < 0 else 0)
    return 2 * bits + 1 if low < 0 else bits


def _singles(reach: int) -> list[Swizzle]:
    """All swizzles with at most that reach."""
    return [
        Swizzle(DEFAULT_AXIS, bits, base, sign * shift)
        for bits in range(1, reach)
        for shift in range(1, reach - bits + 1)
        for base in range(reach - bits - shift + 1)
        for sign in (1, -1)
    ]
