"""Which of many stacks of swizzles may leave a layout of a table, on one axis: many at a time.

What is asked of a table is necessary only, first of few elements and then of more, so that the few
stacks that come through can be looked at one by one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from axe_eq.layout.normal.elimination import is_affine
from axe_eq.layout.value.swizzle import Swizzle

MAX_BATCH = 2**21  # values undone at a time
START = 32  # elements that are looked at first
FASTER = 8  # how many times as many are looked at next
FEW = 2**8  # stacks that are looked at one by one

Points = NDArray[np.int64]
Flags = NDArray[np.bool_]
Stack = tuple[Swizzle, ...]


def sieved(column: Points, stacks: Iterator[Stack]) -> Iterator[Stack]:
    """The stacks, in their order, that may leave a layout of ``[size, copies]`` coordinates."""
    size, copies = column.shape
    powers = np.array([0, *(1 << bit for bit in range((size - 1).bit_length()))])
    affine = copies == 1 and is_affine(column[:, 0])
    most = FEW // FASTER  # few at first: often the first ones are enough
    while batch := list(islice(stacks, most)):
        most = min(FASTER * most, MAX_BATCH // (START * copies))
        if affine:
            images = np.stack([_undo(column[powers, 0], stack) for stack in batch])
            batch = [batch[place] for place in np.flatnonzero(_adds(images))]
        for length in _lengths(size):
            start, step = column[:length], max(1, MAX_BATCH // (length * copies))
            parts = [batch[at : at + step] for at in range(0, len(batch), step)]
            batch = []
            for part in parts:
                may = _plausible(np.stack([_undo(start, stack) for stack in part]), size)
                batch += [part[place] for place in np.flatnonzero(may)]
        yield from batch


def pairs(column: Points, singles: Sequence[Swizzle]) -> Iterator[Stack]:
    """Stacks of two of the swizzles that may leave a layout, in their order.

    Of those whose first swizzles do the same to all coordinates only the first ones.
    """
    values = np.unique(column)
    kept = {values.tobytes(): -1}
    for place, sw in enumerate(singles):
        kept.setdefault(sw.undo_table(values).tobytes(), place)
    first = [singles[place] for place in kept.values() if place >= 0]
    may = np.ones((len(first), len(singles)), dtype=bool)
    for length in _lengths(len(column)):
        step = max(1, MAX_BATCH // column[:length].size)
        for at in range(0, len(first), step):
            table = np.stack([sw.undo_table(column[:length]) for sw in first[at : at + step]])
            for place, sw in enumerate(singles):
                left = np.flatnonzero(may[at : at + step, place])
                if len(left):
                    rows = sw.undo_table(table[left])
                    may[at + left, place] = _plausible(rows, len(column))
        if may.sum() <= FEW:
            break
    for one, two in np.argwhere(may).tolist():
        yield first[one], singles[two]


def _lengths(size: int) -> Iterator[int]:
    """How many elements are looked at, one number after the other."""
    length = START
    while length < size:
        yield length
        length *= FASTER
    yield size


def _undo(values: Points, stack: Stack) -> Points:
    for sw in stack:
        values = sw.undo_table(values)
    return values


def _adds(images: Points) -> Flags:
    """Which maps that XOR bits may be a layout, one per row: a necessary condition.

    Args:
        images: the images of 0 and of the powers of two.

    A list adds the steps of bits, so no two bits may change the same bit of a coordinate. A box
    may have two that do. The slow one of the first two is then the highest bit of an extent; it
    steps twice as far as the bit before, and as a bit of the same digit as the other one.
    """
    steps, changes = images[:, 1:] - images[:, :1], images[:, 1:] ^ images[:, :1]
    good = np.ones(len(images), dtype=bool)
    apart = np.ones(len(images), dtype=bool)  # no two bits so far change the same one
    for slow in range(1, steps.shape[1]):
        both = changes[:, :slow] & changes[:, slow : slow + 1] != 0
        unlike = steps[:, :slow] << np.arange(slow, 0, -1) != steps[:, slow : slow + 1]
        clash = apart & both.any(axis=1)
        good[clash & (unlike[:, -1] | (both & unlike).any(axis=1))] = False
        apart &= ~clash
    return good


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
