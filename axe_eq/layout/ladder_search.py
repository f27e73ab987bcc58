"""From a table back to the ladder that computes it, or the knowledge that none does."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from axe_eq.errors import SearchError
from axe_eq.layout.check import MAX_ITERS
from axe_eq.layout.iters import DEFAULT_AXIS
from axe_eq.layout.ladders import Ladder, Rung

MAX_TRIES = 2**11  # levels tried; more than a ladder has rungs only where steps repeat
FIRST_LOOK = 2**12

Table = NDArray[np.int64]


def find_ladder(table: Table, axes: tuple[str, ...], most: int = MAX_ITERS) -> Ladder | None:
    """The first ladder with a table, in an order that depends on the table alone. Complete.

    Of the indices at which the rungs found so far fail, the first is the next level, or a lower
    index is, up to which the next level steps as they do; all that can be are tried, high ones
    first.

    Args:
        table: ``[size, axes]``, 0 at index 0.
        axes: the axis of each column.
        most: rungs that it may have.

    Raises:
        SearchError: undecided after 2**11 levels.
    """
    tries = 0

    def climb(rungs: Ladder) -> Ladder | None:
        nonlocal tries
        tries += 1
        if tries > MAX_TRIES:
            raise SearchError(f"boxes of {len(table)} elements", f"over {MAX_TRIES} levels")
        wrong = _first_wrong(table, rungs[0][0])
        if wrong is None or len(rungs) == most:
            return rungs if wrong is None else None
        for level in _levels(table, rungs[0][0], wrong):
            rung = _rung(table, axes, level)
            found = None if rung is None else climb((rung, *rungs))
            if found is not None:
                return found
        return None

    if len(table) == 1:
        return ()
    first = _rung(table, axes, 1)
    return None if first is None else climb((first,))


def _rung(table: Table, axes: tuple[str, ...], level: int) -> Rung | None:
    steps = [(int(step), axis) for step, axis in zip(table[level], axes, strict=True) if step]
    if len(steps) > 1:
        return None
    return (level, *steps[0]) if steps else (level, 0, DEFAULT_AXIS)


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
