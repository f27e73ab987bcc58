"""Tiles behind digits: a search for the tilings of maps whose digits cross each other.

A tiling does two things to the places of elements, again and again: it spreads blocks out (padding)
and it exchanges two neighbouring digits (reordering). Both can be undone on a table of places. The
search undoes them, one step at a time, until digits are left that lie in memory one behind another;
what it undid is done by tiles. A table is the more promising the fewer different steps it makes
from one element to the next.

Source: ours; XLA, "Tiled layout" defines what a tile does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from heapq import heappop, heappush
from itertools import count, islice, permutations
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from axe_eq.errors import SearchError
from axe_eq.layout.normal.ladder_search import find_ladder
from axe_eq.layout.normal.ladders import Ladder
from axe_eq.layout.normal.nested_boxes import Stage
from axe_eq.layout.value.iters import DEFAULT_AXIS

MAX_POINTS = 2**16
MAX_ORDERS = 120
MAX_RUNGS = 24
MAX_KEPT = 64  # tables kept of those that one step leaves
MAX_TRIED = 2**11  # tables whose digits are looked for
PASSES = (4, 100), (1, 200)  # what a step costs in half varieties, and tables to undo steps of
MAX_UNDONE = 2**24  # places computed

Table = NDArray[np.int64]


class Found(NamedTuple):
    """Digits, and what is done to their places.

    Args:
        order: the dimensions, major to minor.
        ladder: the digits of the index of the dimensions in that order.
        steps: boxes behind each other; the slowest dim of each has as many values as there are.
    """

    order: tuple[int, ...]
    ladder: Ladder
    steps: tuple[Stage, ...]


class _State(NamedTuple):
    order: tuple[int, ...]
    table: Table
    steps: tuple[Stage, ...]


def find_steps(table: Table, shape: Sequence[int], fits: Callable[[Ladder], bool]) -> Found | None:
    """Digits and steps with a table, or None: none are found within the limits.

    Args:
        table: distinct places, 0 at index 0.
        shape: the dimensions.
        fits: whether digits lie one behind another.
    """
    if len(table) > MAX_POINTS:
        return None
    found = (_search(table, shape, fits, cost, most) for cost, most in PASSES)
    return next((one for one in found if one is not None), None)


def _search(
    table: Table, shape: Sequence[int], fits: Callable[[Ladder], bool], cost: int, most: int
) -> Found | None:
    """One pass of `find_steps`: a step adds `cost`, and steps of `most` tables are undone."""
    heap: list[tuple[int, int, _State]] = []
    number = count()
    seen: set[bytes] = set()

    def push(state: _State, variety: int) -> None:
        key = state.table.tobytes()
        if key not in seen:
            seen.add(key)
            heappush(heap, (2 * variety + cost * len(state.steps), next(number), state))

    for order in _orders(shape):
        state = _State(order, table.reshape(shape).transpose(order).ravel(), ())
        if (ladder := _ladder(state.table, fits)) is not None:
            return Found(order, ladder, ())
        push(state, int(_variety(state.table[None])[0]))
    work = expanded = 0
    for _ in range(MAX_TRIED // len(PASSES)):
        if not heap:
            break
        state = heappop(heap)[2]
        if state.steps and (ladder := _ladder(state.table, fits)) is not None:
            return Found(state.order, ladder, state.steps)
        made = _undone(state.table, MAX_UNDONE - work) if expanded < most else None
        if made is None:
            continue
        tables, steps = made
        work, expanded = work + tables.size, expanded + 1
        variety = _variety(tables)
        for place in np.argsort(variety, kind="stable")[:MAX_KEPT].tolist():
            behind = (_stage(*steps[place].tolist()), *state.steps)
            push(_State(state.order, tables[place], behind), int(variety[place]))
    return None


def _orders(shape: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Orders of the dimensions; those of extent 1 stay in front."""
    units = tuple(dim for dim, extent in enumerate(shape) if extent == 1)
    others = [dim for dim, extent in enumerate(shape) if extent > 1]
    return (units + order for order in islice(permutations(others), MAX_ORDERS))


def _ladder(table: Table, fits: Callable[[Ladder], bool]) -> Ladder | None:
    try:
        ladder = find_ladder(table[:, None], (DEFAULT_AXIS,), MAX_RUNGS)
    except SearchError:
        return None
    return ladder if ladder is not None and fits(ladder) else None


def _variety(tables: Table) -> Table:
    """Per table the number of different steps from one element to the next."""
    steps = np.sort(np.diff(tables, axis=1), axis=1)
    found: Table = (np.diff(steps, axis=1) != 0).sum(axis=1)
    return found


def _undone(table: Table, most: int) -> tuple[Table, Table] | None:
    """All tables that one step makes the given one of, and the steps; None if there are too many.

    A step ``(a, b, d, e)`` takes the place ``((x * a + y) * b + z) * d + r`` to
    ``((x * b + z) * a + y) * e + r``: it exchanges a and b digits, or spreads blocks of d out to e.
    """
    span = int(table.max()) + 1
    steps: list[Table] = []
    made = 0
    for block in range(1, span // 2 + 1):
        fast = np.arange(2, span // block + 1)
        counts = span // (block * fast)  # of slow digits, which have 2 values at least
        made += int(counts.sum()) * len(table)
        if made > most:
            return None
        begins = np.cumsum(counts) - counts
        slow = np.arange(counts.sum()) - np.repeat(begins, counts) + 2
        both = slow, np.repeat(fast, counts), np.full((2, len(slow)), block)
        steps.append(np.vstack(both).T)
    for spread in range(2, span + 1):
        blocks = np.arange(int((table % spread).max()) + 1, spread)
        columns = np.ones((4, len(blocks)), dtype=np.int64)
        columns[2:] = blocks, np.full(len(blocks), spread)
        steps.append(columns.T)
        made += (len(blocks) + 1) * len(table)
        if made > most:
            return None
    if not made:
        return None
    found = np.concatenate(steps)
    a, b, d, e = (found[:, place, None] for place in range(4))
    upper, low = np.divmod(table, e)
    upper, moved = np.divmod(upper, a)
    upper, stayed = np.divmod(upper, b)
    return ((upper * a + moved) * b + stayed) * d + low, found


def _stage(a: int, b: int, d: int, e: int) -> Stage:
    """A step of `_undone` as a box; the digit x has one value for now."""
    return Stage((1, b, a, d), (1, b, a, e), (0, 2, 1, 3))


def widened(stage: Stage, elements: int) -> Stage:
    """The box with enough values in its slowest dim to hold so many elements."""
    needed = -(-elements // prod(stage.box[1:]))
    if needed <= stage.box[0]:
        return stage
    return Stage((needed, *stage.box[1:]), (needed, *stage.padded[1:]), stage.order)
