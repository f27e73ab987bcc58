"""Which swizzles may leave a layout of a table, on one axis: many of them at a time.

What is asked of a table is necessary only, first of few elements and then of more, so that the few
swizzles that come through can be looked at one by one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from axe_eq.layout.value.swizzle import Swizzle

MAX_BATCH = 2**21  # values undone at a time
START = 32  # elements that are looked at first
FASTER = 8  # how many times as many are looked at next
FIRST = 32  # swizzles in the first batch: often the first ones are enough

Points = NDArray[np.int64]
Flags = NDArray[np.bool_]


def sieved(column: Points, swizzles: Iterator[Swizzle]) -> Iterator[Swizzle]:
    """The swizzles, in their order, that may leave a layout of ``[size, copies]`` coordinates."""
    size, copies = column.shape
    most = FIRST
    while batch := list(islice(swizzles, most)):
        most = min(FASTER * most, MAX_BATCH // (START * copies))
        for length in _lengths(size):
            start, step = column[:length], max(1, MAX_BATCH // (length * copies))
            parts = [batch[at : at + step] for at in range(0, len(batch), step)]
            batch = []
            for part in parts:
                may = _plausible(np.stack([sw.undo(start) for sw in part]), size)
                batch += [part[place] for place in np.flatnonzero(may)]
        yield from batch


def _lengths(size: int) -> Iterator[int]:
    """How many elements are looked at, one number after the other."""
    length = START
    while length < size:
        yield length
        length *= FASTER
    yield size


def _plausible(tables: Points, size: int) -> Flags:
    """Which functions may be a layout on `size` elements: a necessary condition.

    Either a list computes all that is seen of the function, or an innermost dim of a box repeats
    in it up to an offset, and a list computes that dim.

    Args:
        tables: ``[functions, elements, copies]``, the first elements of each.
        size: how many elements there are.
    """
    if tables.shape[2] == 1:
        return _repeats(tables[:, :, 0], size)
    tables = np.sort(tables, axis=2)
    apart = tables - tables[:, :, :1]
    may: Flags = (apart == apart[:, :1]).all(axis=(1, 2))
    may[may] = _repeats(tables[may, :, 0], size)
    return may


def _repeats(rows: Points, size: int) -> Flags:
    count = rows.shape[1]
    if count < 3 or len(rows) == 0:
        return np.ones(len(rows), dtype=bool)
    may = _computed(rows)
    level = _first_level(rows)
    for inner in (n for n in range(3, count) if size % n == 0):
        rest = np.flatnonzero(~may & (level < inner))  # a dim without a level is never padded
        second = rows[rest, inner : 2 * inner] - rows[rest, inner : inner + 1]
        rest = rest[
            (second == (rows[rest, :inner] - rows[rest, :1])[:, : second.shape[1]]).all(axis=1)
        ]
        rest = rest[_computed(rows[rest, :inner])]
        place = np.arange(count)
        relative = rows[rest] - rows[rest][:, place // inner * inner]
        may[rest] = (relative == relative[:, place % inner]).all(axis=1)
    return may


def _computed(rows: Points) -> Flags:
    """Which functions, one per row, are an iter list on their domain, maybe longer than it."""
    count = rows.shape[1]
    if count < 3 or len(rows) == 0:
        return np.ones(len(rows), dtype=bool)
    level = _first_level(rows)
    inside = np.arange(1, count) % level[:, None] != 0
    steps = np.diff(rows)
    good: Flags = ~((steps != steps[:, :1]) & inside).any(axis=1)
    for step in np.unique(level[good & (level < count)]).tolist():
        same = np.flatnonzero(good & (level == step))
        good[same] = _computed(rows[same, ::step])
    return good


def _first_level(rows: Points) -> Points:
    """Per function the first index whose step is not the first step, or the length."""
    steps = np.diff(rows)
    breaks = steps != steps[:, :1]
    first: Points = np.where(breaks.any(axis=1), breaks.argmax(axis=1) + 1, rows.shape[1])
    return first
