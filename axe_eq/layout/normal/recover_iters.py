"""From a function back to the iter list that computes it, or the index where there is none.

Theorem A.8 of the Axe paper: an iter list is determined by the first differences of its function,
which at u are the sum of the jumps of the levels that divide u. Read as a decision procedure that
is complete. Levels are found in ascending order: the first index that the levels so far predict
wrongly must be the next level, so if it is no multiple of the last one, does not divide the length,
or steps along two axes, no list exists. Windows of a list are decided without enumeration.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import gcd
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axe_eq.layout.value.iters import DEFAULT_AXIS, Iter, Iters, evaluate, size

ROOMY = 2**55  # coordinates from here on are added up as Python's integers

Vector = dict[str, int]  # axis -> value
Levels = list[tuple[int, Vector]]  # (level, jump), ascending, each level divides the next


class NoIters(Exception):
    """No iter list has this function: at `index`, the first such one, every candidate breaks."""

    def __init__(self, index: int, reason: str) -> None:
        self.index, self.reason = index, reason
        super().__init__(index, reason)


def jumps(block: Sequence[Iter]) -> Levels:
    """The levels of an iter list (Axe A.4): first differences add the jumps of dividing levels."""
    levels: Levels = []
    level, inner_extent, inner_stride, inner_axis = 1, 1, 0, DEFAULT_AXIS
    for extent, stride, axis in reversed(block):
        jump = {axis: stride}
        jump[inner_axis] = jump.get(inner_axis, 0) - inner_extent * inner_stride
        levels.append((level, jump))
        level *= extent
        inner_extent, inner_stride, inner_axis = extent, stride, axis
    return levels


def first_unequal(a: Sequence[Iter], b: Sequence[Iter]) -> int | None:
    """The first index at which two fused lists differ: the least level whose jump differs."""
    if tuple(a) == tuple(b):
        return None
    found = [
        {level: {axis: value for axis, value in jump.items() if value} for level, jump in jumps(x)}
        for x in (a, b)
    ]
    levels = {*found[0], *found[1]}
    return min(level for level in levels if found[0].get(level, {}) != found[1].get(level, {}))


def first_uncut(block: Sequence[Iter], shape: Sequence[int]) -> int:
    """The first index that shows that a fused list does not group by `shape`.

    With rows of a length that some lower level does not divide, the second row steps unlike the
    first. Otherwise the rows are alike up to the first higher level that is no multiple.
    """
    source = jumps(block)
    breaks: list[int] = []
    row = 1
    for extent in reversed(shape):
        row *= extent
        if any(level < row and row % level for level, _ in source):
            index = first_difference(source, row, source, row)
            breaks += [] if index is None else [row + index]
        else:
            breaks += [level for level, _ in source if level % row and level > row][:1]
    return min(breaks, default=0)


def solve(
    length: int,
    step: Callable[[int], Vector],
    wrong: Callable[[Levels], int | None],
    *,
    padded: bool = False,
) -> Iters:
    """The iter list of a function on ``[0, length)`` that is 0 at 0.

    Args:
        length: length of the domain.
        step: ``step(u) = f(u) - f(u - 1)`` for u in ``[1, length)``.
        wrong: the first u whose step the levels do not add up to, or None.
        padded: also accept a list that computes the function on a longer domain.

    Raises:
        NoIters: there is none.
    """
    levels: Levels = []
    block: list[Iter] = []
    level, stride, axis = 1, 0, DEFAULT_AXIS
    while (index := wrong(levels)) is not None:
        if index % level or (length % index and not padded):
            rules = [f"be a multiple of {level}"] if level > 1 else []
            rules += [] if padded else [f"divide {length}"]
            raise NoIters(index, f"the next level has to {' and '.join(rules)}")
        jump = dict(step(index))
        for _, known in levels:
            add(jump, known, -1)
        levels.append((index, jump))
        vector = dict(jump)
        if index > 1:
            block.append((index // level, stride, axis))
            add(vector, {axis: stride}, index // level)
        parts = [(name, value) for name, value in vector.items() if value]
        if len(parts) > 1:
            raise NoIters(index, f"the step {show(vector)} lies on several axes")
        level = index
        axis, stride = parts[0] if parts else (DEFAULT_AXIS, 0)
    block.append((-(-length // level), stride, axis))
    return tuple(item for item in reversed(block) if item[0] > 1)


def from_table(columns: Mapping[str, NDArray[np.int64]], *, padded: bool = False) -> Iters:
    """The iter list of a table, without its value at 0.

    Args:
        columns: axis -> value per index, all of one length of at least 1.
        padded: also accept a list that computes the table on a longer domain.

    Raises:
        NoIters: there is none, with the first index that breaks.
    """
    columns = {axis: _roomy(values) for axis, values in columns.items()}
    steps = {axis: np.diff(values) for axis, values in columns.items()}
    length = len(next(iter(columns.values()))) if columns else 1
    rest = {axis: values.copy() for axis, values in steps.items()}

    def wrong(levels: Levels) -> int | None:
        if levels:
            level, jump = levels[-1]
            for axis, value in jump.items():
                rest[axis][level - 1 :: level] -= value
        wrong = [values != 0 for values in rest.values()]
        hits = [int(np.argmax(places)) for places in wrong if places.any()]
        return min(hits) + 1 if hits else None

    def step(index: int) -> Vector:
        return {axis: int(values[index - 1]) for axis, values in steps.items()}

    return solve(length, step, wrong, padded=padded)


def _roomy(values: NDArray[Any]) -> NDArray[Any]:
    """Values whose jumps and their sums, at most some 64 of them, do not overflow."""
    large = values.size and max(abs(int(values.min())), abs(int(values.max()))) >= ROOMY
    return values.astype(object) if large else values


def window(
    block: Sequence[Iter], begin: int, count: int, *, padded: bool = False
) -> tuple[Iters, Vector]:
    """The iter list of ``u -> f(begin + u) - f(begin)`` on ``[0, count)``, and ``f(begin)``.

    Complete: where no iter list computes the window, it says so. Never enumerates.

    Args:
        block: an iter list from `fuse`, f is its function.
        begin: first index, in the domain of the block.
        count: length of the window, at least 1.
        padded: also accept a list that computes the window on a longer domain.

    Raises:
        NoIters: no iter list computes the window.

    Source: Axe Appendix E gives sufficient conditions; here A.6 decides.
    """
    place = len(block)  # iters from here on are swept whole, from their first index
    while place:
        extent = block[place - 1][0]
        if begin % extent or count % extent:
            break
        begin //= extent
        count //= extent
        place -= 1
    left, tail = block[:place], tuple(block[place:])
    origin = evaluate(left, begin)
    if count == 1:
        return tail, origin
    extent, stride, axis = left[-1]
    first = extent - begin % extent  # where the fastest digit wraps
    if count <= first:
        return ((count, stride, axis), *tail), origin
    if count == 2 * first:
        rise = evaluate(left, begin + first)
        add(rise, origin, -1)
        rows = _two_rows(rise, (first, stride, axis))
        if rows is not None:
            return (*rows, *tail), origin
    try:
        return (*_wrapped(left, begin, count, padded), *tail), origin
    except NoIters as none:
        raise NoIters(none.index * size(tail), none.reason) from None


def _two_rows(rise: Vector, row: Iter) -> Iters | None:
    """The list of a row and its copy at `rise`, or None: the step between them has no one axis."""
    steps = [(axis, value) for axis, value in rise.items() if value]
    if len(steps) > 1:
        return None
    count, stride, name = row
    axis, value = steps[0] if steps else (DEFAULT_AXIS, 0)
    if value == count * stride and axis == name:
        return ((2 * count, stride, name),)
    return ((2, value, axis), row) if count > 1 else ((2, value, axis),)


def _wrapped(block: Sequence[Iter], begin: int, count: int, padded: bool) -> Iters:
    """`window` where the fastest digit wraps at least once and not at both ends of the window."""
    source = [(level, jump) for level, jump in jumps(block) if level < begin + count]

    def step(index: int) -> Vector:
        total: Vector = {}
        for level, jump in source:
            if (begin + index) % level:
                break
            add(total, jump)
        return total

    def wrong(levels: Levels) -> int | None:
        return first_difference(source, begin, levels, count)

    return solve(count, step, wrong, padded=padded)


def first_difference(source: Levels, shift: int, found: Levels, count: int) -> int | None:
    """The least u in ``[1, count)`` where the steps of two level lists differ, or None.

    Steps at u are the sum of the jumps of the source levels that divide ``shift + u``, and of the
    found levels that divide u. Levels are chains, so u falls into one class per pair of deepest
    levels, and a class is empty or not by counting an arithmetic progression.
    """
    sums_a, sums_b = _sums(source), _sums(found)
    starts_a = [1, *(level for level, _ in source if level > 1)]
    starts_b = [1, *(level for level, _ in found if level > 1)]
    worst: int | None = None
    for i, a in enumerate(starts_a):
        for j, b in enumerate(starts_b):
            if sums_a[i] == sums_b[j]:
                continue
            limit = count if worst is None else worst
            index = _first_in_class(a, b, starts_a[i + 1 :], starts_b[j + 1 :], shift, limit)
            worst = index if index is not None else worst
    return worst


def _first_in_class(
    a: int, b: int, above_a: Sequence[int], above_b: Sequence[int], shift: int, limit: int
) -> int | None:
    """The least u in ``[1, limit)`` with a | shift+u, b | u and no deeper level dividing."""
    common = gcd(a, b)
    if shift % common:
        return None
    # u = b*k with b*k = -shift modulo a
    modulus = a // common
    first = b * (-(shift // common) * pow(b // common, -1, modulus) % modulus) if modulus > 1 else 0
    period = a // common * b
    first += period if first == 0 else 0
    next_a, next_b = above_a[0] if above_a else 0, above_b[0] if above_b else 0
    # Two progressions that miss an element of this one at all miss one of any four in a row.
    for index in range(first, min(limit, first + 4 * period), period):
        if next_a and (shift + index) % next_a == 0:
            continue
        if next_b and index % next_b == 0:
            continue
        return index
    return None


def _sums(levels: Levels) -> list[Vector]:
    """The step at an index whose deepest level is the i-th; level 1 always counts."""
    total: Vector = {}
    sums: list[Vector] = []
    if not levels or levels[0][0] != 1:
        sums.append({})
    for _, jump in levels:
        total = dict(total)
        add(total, jump)
        sums.append({axis: value for axis, value in total.items() if value})
    return sums


def add(total: Vector, vector: Vector, times: int = 1) -> None:
    """Add a multiple of a vector in place."""
    for axis, value in vector.items():
        total[axis] = total.get(axis, 0) + times * value


def show(vector: Vector) -> str:
    """The vector as text: ``4@m + 1@lane``."""
    return " + ".join(f"{value}@{axis}" for axis, value in sorted(vector.items()) if value)
