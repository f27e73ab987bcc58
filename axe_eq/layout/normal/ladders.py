"""Ladders: functions of an index by digits whose levels need not divide each other.

A ladder on ``[0, n)`` has rungs ``(level, stride, axis)``, levels falling to 1. An index is written
greedily: the first digit is ``x // level`` of the first rung, what remains is written by the next
rungs, and the digits times the strides are added up. Where every level divides the one before, that
is an iter list; where one does not, its last block is short: a box, and inside it boxes again.

Steps tell ladders apart: f(x) - f(x - 1) is the jump of the last rung whose digit is not 0. Two
ladders of one function, without rungs that do nothing, are the same if all jumps of one of them
differ: then the first step that the rungs below do not explain stands at the next level, and no
lower level explains it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, pairwise

from axe_eq.layout.normal.recover_iters import Vector, add
from axe_eq.layout.value.iters import DEFAULT_AXIS, Iter, Iters

Rung = tuple[int, int, str]
Ladder = tuple[Rung, ...]
Field = tuple[int, Ladder]  # an extent and a ladder on it
Steps = tuple[tuple[int, int], ...]  # per digit its level and room
Box = tuple[tuple[int, ...], tuple[int, ...]]  # extents, padded extents


def of_block(block: Iters, extent: int) -> Ladder:
    """The ladder of the first `extent` indices of an iter list."""
    rungs: list[Rung] = []
    level = 1
    for count, stride, axis in reversed(block):
        if count > 1:
            rungs.append((level, stride, axis) if stride else (level, 0, DEFAULT_AXIS))
            level *= count
    return cut((*reversed(rungs),), extent)


def cut(ladder: Ladder, extent: int) -> Ladder:
    """The ladder of the first `extent` indices."""
    return tuple([rung for rung in ladder if rung[0] < extent])


def digits_of(ladder: Ladder) -> Iterator[tuple[int, list[Rung]]]:
    """The levels of a ladder, each with its rungs."""
    for level, rungs in groupby(ladder, lambda rung: rung[0]):
        yield level, list(rungs)


def iters_of(extent: int, ladder: Ladder) -> Iters:
    """The digits of a ladder as iters: as many values as occur, without the levels.

    A digit of n values that steps on several axes is one iter per axis, whose indices are equal:
    all but the last of n + 1, see `copying`.
    """
    found: list[Iter] = []
    for level, rungs in digits_of(ladder):
        count = -(-extent // level)
        found += [(count + 1, stride, axis) for _, stride, axis in rungs[:-1]]
        found.append((count, *rungs[-1][1:]))
        extent = level
    return tuple(found)


def joined(fields: Iterable[Field]) -> Field:
    """Several indices as one, row-major."""
    extent = 1
    rungs: list[Rung] = []
    for count, ladder in reversed(tuple(fields)):
        rungs[:0] = [(level * extent, stride, axis) for level, stride, axis in ladder]
        extent *= count
    return extent, tuple(rungs)


def split(extent: int, ladder: Ladder, shape: Sequence[int]) -> tuple[Ladder, ...] | None:
    """A ladder as one per dim of `shape`, or None where a boundary falls between its levels."""
    rest, found = ladder, []
    for count in reversed(shape[1:]):
        if extent % count:
            return None
        halves = _halves(rest, count) if count < extent else ((), rest)
        if halves is None:
            return None
        rest, inner = halves
        found.append(inner)
        extent //= count
    if shape:
        found.append(rest)
    elif extent > 1:
        return None
    return tuple(reversed(found))


def _halves(ladder: Ladder, inner: int) -> tuple[Ladder, Ladder] | None:
    """The ladders of ``x // inner`` and of ``x % inner``."""
    slow: list[Rung] = []
    for place, (level, stride, axis) in enumerate(ladder):
        if level < inner:
            if place and ladder[place - 1][0] == inner:
                return tuple(slow), ladder[place:]
            if inner % level:
                return None
            shared = [rung[1:] for rung in ladder[place:] if rung[0] == level]
            slow += [(1, stride * (inner // level), axis) for stride, axis in shared]
            return tuple(slow), ladder[place:]
        if level % inner:
            return None
        slow.append((level // inner, stride, axis))
    return tuple(slow), ()


def value(ladder: Ladder, index: int) -> Vector:
    """The coordinates of an index, without zeros."""
    point: Vector = {}
    for level, rungs in digits_of(ladder):
        digit, index = divmod(index, level)
        for _, stride, axis in rungs:
            point[axis] = point.get(axis, 0) + digit * stride
    return {axis: total for axis, total in point.items() if total}


def reduced(extent: int, ladder: Ladder) -> tuple[Ladder, bool]:
    """The ladder without rungs that are seen to do nothing, and whether it is the only such one."""
    kept: list[Rung] = []  # fast to slow
    jumps: list[Vector] = []
    for level, rungs in reversed([*digits_of(cut(ladder, extent))]):
        own = {axis: stride for _, stride, axis in rungs if stride}
        below = tuple(reversed(kept))
        if level > 1 and level % below[0][0] == 0 and own == value(below, level):
            continue  # the rung below goes on like this
        jump = dict(own)
        add(jump, value(below, level - 1), -1)
        jumps.append({name: step for name, step in jump.items() if step})
        kept += reversed(rungs)
    different = all(one not in jumps[:place] for place, one in enumerate(jumps))
    return tuple(reversed(kept)), different


def is_wide(extent: int, ladder: Ladder) -> bool:
    """Whether few blocks are short: one level per piece may be over half of the one above it.

    The bits that a swizzle exchanges make at least two such levels.
    """
    for above, steps in _pieces(extent, rooms_of(extent, ladder)):
        levels = [above, *(level for level, _ in steps)]
        if sum(2 * low > high for high, low in pairwise(levels) if high > 1) > 1:
            return False
    return True


def bounds(extent: int, ladder: Ladder, axis: str) -> tuple[int, int]:
    """The least and the greatest value on an axis over all indices below the extent."""
    known: dict[tuple[int, int], tuple[int, int]] = {}
    digits = [
        (level, sum(stride for _, stride, name in rungs if name == axis))
        for level, rungs in digits_of(ladder)
    ]

    def reach(place: int, count: int) -> tuple[int, int]:
        while place < len(digits) and digits[place][0] >= count:
            place += 1
        if place == len(digits):
            return 0, 0
        if (place, count) not in known:
            level, step = digits[place]
            whole, rest = divmod(count, level)
            low, high = reach(place + 1, level)
            last = (whole - 1) * step
            ends = [min(0, last) + low, max(0, last) + high]
            if rest:
                below = reach(place + 1, rest)
                ends += [whole * step + below[0], whole * step + below[1]]
            known[place, count] = min(ends), max(ends)
        return known[place, count]

    return reach(0, extent)


# ---- boxes in boxes ------------------------------------------------------------------------------


def rooms_of(extent: int, ladder: Ladder) -> Steps:
    """The levels of a ladder, with as much room for every digit as its values need."""
    levels = [level for level, _ in digits_of(ladder)]
    return tuple([(low, -(-high // low)) for high, low in pairwise([extent, *levels])])


def boxes_of(fields: Sequence[tuple[int, Steps]], *, keep: bool = False) -> tuple[Box, ...]:
    """The boxes, outside first, that pad indices to the list of all their digits.

    Each one pads what is short inside the one before; none where all levels divide.

    Args:
        fields: per index its extent, and per digit its level and room.
        keep: the first box, if there is any, has the extents of the fields.
    """
    boxes: list[Box] = []
    while True:
        cut_fields = [_pieces(*field) for field in fields]
        pieces = [piece for parts in cut_fields for piece in parts]
        if all(_is_exact(*piece) for piece in pieces):
            return tuple(boxes)
        dims: list[tuple[int, int]] = []
        if keep:
            for (extent, _), parts in zip(fields, cut_fields, strict=True):
                found = _dims(parts)
                dims += found if len(found) == 1 else [(extent, -1)] if found else [(1, 1)]
            keep = False
            if any(padded < 0 for _, padded in dims):
                extents = tuple(extent for extent, _ in fields)
                boxes.append((extents, extents))
                continue
        else:
            dims = _dims(pieces)
        boxes.append((tuple(extent for extent, _ in dims), tuple(padded for _, padded in dims)))
        fields = [field for piece in pieces for field in _padded(*piece)]


def copying(fields: Sequence[Field]) -> tuple[Box, ...]:
    """The boxes, outside first, that make equal digits of those that step on several axes.

    Digit k of n values, padded to ``(n, n + 1)``, is at k * (n + 1), whose digits below n + 1 and n
    are k and k. Each box makes one more such digit out of the last one.
    """
    digits = [
        (room, len(rungs) - 1)
        for extent, ladder in fields
        for (_, room), (_, rungs) in zip(rooms_of(extent, ladder), digits_of(ladder), strict=True)
    ]
    boxes: list[Box] = []
    for made in range(max((more for _, more in digits), default=0)):
        box: list[int] = []
        padded: list[int] = []
        for room, more in digits:
            before = [room + 1] * min(made, more)
            again = made < more
            box += [*before, room, *([1] if again else [])]
            padded += [*before, room, *([room + 1] if again else [])]
        boxes.append((tuple(box), tuple(padded)))
    return tuple(boxes)


def _dims(pieces: Sequence[tuple[int, Steps]]) -> list[tuple[int, int]]:
    """The extents of pieces and what they are padded to; a whole one is part of the dim before."""
    dims: list[tuple[int, int]] = []
    for extent, steps in pieces:
        level, room = steps[0]
        padded = level * room
        if padded == extent and dims:
            dims[-1] = dims[-1][0] * extent, dims[-1][1] * extent
        else:
            dims.append((extent, padded))
    return dims


def _padded(extent: int, steps: Steps) -> list[tuple[int, Steps]]:
    """A padded piece as its first digit, and the index of what is below."""
    (level, room), *rest = steps
    return [(room, ((1, room),)), *([(level, tuple(rest))] if rest else [])]


def _is_exact(extent: int, steps: Steps) -> bool:
    return len(steps) == 1 and steps[0] == (1, extent)


def _pieces(extent: int, steps: Steps) -> list[tuple[int, Steps]]:
    """Cuts a field at the levels that divide all slower ones; a piece without is padded."""
    pieces: list[tuple[int, Steps]] = []
    above = extent
    held: list[tuple[int, int]] = []
    for place, (level, room) in enumerate(steps):
        held.append((level, room))
        outer = [extent, *(other for other, _ in steps[:place])]
        if all(other % level == 0 for other in outer):
            pieces.append((above // level, tuple((other // level, n) for other, n in held)))
            above, held = level, []
    return pieces
