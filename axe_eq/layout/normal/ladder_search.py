"""From a table back to the ladder that computes it, or the knowledge that none does."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from axe_eq.errors import SearchError
from axe_eq.layout.normal.ladders import Ladder
from axe_eq.layout.value.check import MAX_ITERS
from axe_eq.layout.value.iters import DEFAULT_AXIS

MAX_TRIES = 2**11  # levels tried; more than a ladder has rungs only where steps repeat
FIRST_LOOK = 2**12

Table = NDArray[np.int64]


def find_ladder(
    table: Table, axes: tuple[str, ...], most: int = MAX_ITERS, *, several: bool = False
) -> Ladder | None:
    """The first ladder with a table, in an order that depends on the table alone. Complete.

    Of the indices at which the rungs found so far fail, the first is the next level, or a lower
    index is, up to which the next level steps as they do; all that can be are tried, high ones
    first.

    Args:
        table: ``[size, axes]``, 0 at index 0.
        axes: the axis of each column.
        most: digits that it may have.
        several: where there is none whose digits step on one axis each, the first one whose digits
            may step on several; every table has one.

    Raises:
        SearchError: undecided after 2**11 levels, without `several`.
    """
    try:
        found = _search(table, axes, most, 1)
    except SearchError:
        if not several:
            raise
        found = None
    return _search(table, axes, most, len(axes)) if found is None and several else found


def _search(table: Table, axes: tuple[str, ...], most: int, widest: int) -> Ladder | None:
    """`find_ladder` whose digits step on up to `widest` axes each."""
    if len(table) == 1:
        return ()
    digits: list[Ladder] = []  # fast to slow
    choices = [iter((1,))]  # what the level of each digit may be, and of the next one
    tries = 0
    while choices:
        digit = next((d for n in choices[-1] if (d := _digit(table, axes, n, widest))), None)
        if digit is None:
            choices.pop()
            del digits[-1:]
            continue
        digits.append(digit)
        tries += 1
        if tries > MAX_TRIES:
            raise SearchError(f"boxes of {len(table)} elements", f"over {MAX_TRIES} levels")
        level = digit[0][0]
        wrong = _first_wrong(table, level)
        if wrong is None:
            return tuple(chain.from_iterable(reversed(digits)))
        choices.append(iter(()) if len(digits) == most else _levels(table, level, wrong))
    return None


def _digit(table: Table, axes: tuple[str, ...], level: int, widest: int) -> Ladder | None:
    """The rungs of a digit, or None: it steps on more than `widest` axes."""
    steps = [
        (level, int(step), axis) for step, axis in zip(table[level], axes, strict=True) if step
    ]
    if len(steps) > widest:
        return None
    return tuple(steps) or ((level, 0, DEFAULT_AXIS),)


def _first_wrong(table: Table, level: int) -> int | None:
    """The first index that a last rung at `level` does not explain: mostly it is near 0."""
    start, length = 0, FIRST_LOOK
    while start < len(table):
        index = np.arange(start, min(start + length, len(table)))
        expected = (index // level)[:, None] * table[level] + table[index % level]
        wrong = (expected != table[start : start + length]).any(axis=1)
        if wrong.any():
            return start + int(wrong.argmax())
        start, length = start + length, 2 * length
    return None


def _levels(table: Table, last: int, wrong: int) -> Iterator[int]:
    """What the next level may be: all indices up to `wrong` that explain it, high ones first."""
    yield wrong
    lower = np.arange(wrong - 1, last, -1)
    ends = (wrong // lower)[:, None] * table[lower] + table[wrong % lower]
    for level in lower[(ends == table[wrong]).all(axis=1)].tolist():
        index = np.arange(level, wrong)
        values = (index // level)[:, None] * table[level] + table[index % level]
        if np.array_equal(values, table[level:wrong]):
            yield level
