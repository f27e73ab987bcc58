"""The exact decision whether two layouts are the same map, with the first element that differs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from axe_eq.errors import LayoutError, SearchError
from axe_eq.layout.normal.chains import ladder_of
from axe_eq.layout.normal.ladders import Ladder, reduced
from axe_eq.layout.normal.recover_iters import add, first_unequal
from axe_eq.layout.normal.replicas import by_axis, element_apart, same_image, saturate
from axe_eq.layout.normal.tables import point_table
from axe_eq.layout.value import iters as it
from axe_eq.layout.value.boxes import reduce_dims
from axe_eq.layout.value.indexing import common_refinement
from axe_eq.layout.value.iters import Iters
from axe_eq.layout.value.layout import Layout
from axe_eq.layout.value.reports import Image
from axe_eq.layout.value.swizzle import Swizzle

MAX_POINTS = 2**26
MAX_SHOWN = 2**16  # copies of one element
CHUNK = 2**18


class Difference(NamedTuple):
    """Why two layouts are not the same map.

    `x` is the first logical index that differs and the images are what it maps to; all three are
    None where the sizes differ. An image of over 2**16 coordinates is cut to one that tells: it is
    in one of the two sets shown and not in the other.
    """

    reason: str
    x: int | None
    image_a: Image | None
    image_b: Image | None


def same_map(a: Layout, b: Layout) -> Difference | None:
    """None if every logical index has the same image in both layouts, else the difference. Exact.

    Layouts with the same swizzles are compared by their parts at any size. Different swizzles are
    enumerated, over the digits whose strides the swizzles can see.

    Raises:
        SearchError: undecided, replicas off the gap condition over a span of 2**24 or different
            swizzles over 2**26 points.

    Source: Axe, Theorems A.8 and A.14.
    """
    if a == b:
        return None
    if a.size != b.size:
        return Difference(f"sizes differ: {a.size} and {b.size}", None, None, None)
    index = _first_linear(a, b) if a.swizzle == b.swizzle else _first_swizzled(a, b)
    if index is None:
        return None
    reason = f"index {index} maps to different coordinates"
    if _many_copies(a) or _many_copies(b):
        return Difference(reason, index, *_tell_apart(a, b, index))
    return Difference(reason, index, a(index), b(index))


# ---- the same swizzles: compare the parts -------------------------------------------------------


def _first_linear(a: Layout, b: Layout) -> int | None:
    """The first index that differs, for layouts whose swizzles agree or are left out."""
    if (a.replica, a.offsets) != (b.replica, b.offsets) and not _same_copies(a, b):
        return 0
    if a.box is None and b.box is None:
        return first_unequal(it.fuse(a.shard), it.fuse(b.shard))
    if not (a.inner or b.inner) and reduce_dims(a.dims()) == reduce_dims(b.dims()):
        return None  # reduced boxes are unique
    return _first_boxed(a, b)


def _same_copies(a: Layout, b: Layout) -> bool:
    """Whether replicas and offset give the same set of coordinates to element 0."""
    steps_a, offset = by_axis(a.replica)
    steps_b, turned = by_axis(b.replica)
    add(offset, dict(a.offsets))
    add(offset, turned, -1)
    add(offset, dict(b.offsets), -1)
    return not any(offset.values()) and all(
        same_image(saturate(steps_a.get(axis, ())), saturate(steps_b.get(axis, ())))
        for axis in {*steps_a, *steps_b}
    )


def _first_boxed(a: Layout, b: Layout) -> int | None:
    """The first index at which two maps differ, one of them boxed.

    The lowest rung that differs shows it, where each ladder is the only one of its map; else
    everything is looked at, or what is below some index that differs.

    Raises:
        SearchError: none of the first 2**26 elements differs, and there are more.
    """
    levels = {1}
    reached: list[Ladder] = []
    for layout in (a, b):
        ladder = ladder_of(layout)
        if ladder is not None:
            short, sure = reduced(layout.size, ladder)
            levels |= {level for level, _, _ in short}
            reached += [short] if sure else []
    if len(reached) == 2:
        differing = [rung[0] for rung in {*reached[0]} ^ {*reached[1]}]
        return min(differing, default=None)
    marks = {x + y for x in levels for y in (0, *levels, *(-level for level in levels))}
    return _first_enumerated(a, b, sorted(x for x in marks if 0 <= x < a.size))


def _first_enumerated(a: Layout, b: Layout, marks: Sequence[int]) -> int | None:
    """The first index at which two maps differ, by looking at all below one of `marks` that does.

    Raises:
        SearchError: no mark differs, nor any of the first 2**26 elements, and there are more.
    """
    known = _differing(a, b, np.array(marks, dtype=np.int64))
    end = min(a.size if known is None else known, MAX_POINTS)
    start, length = 0, 2**10  # few at first: most differences are near 0
    while start < end:
        index = _differing(a, b, np.arange(start, min(start + length, end), dtype=np.int64))
        if index is not None:
            return index
        start, length = start + length, min(2 * length, CHUNK)
    if known is None and end < a.size:
        raise SearchError("comparison of boxes", f"{a.size} elements", f"at most {MAX_POINTS}")
    return known


def _differing(a: Layout, b: Layout, some: NDArray[np.int64]) -> int | None:
    """The first of some indices that lies apart, before copies and swizzles."""
    one, two = a.coordinates(some), b.coordinates(some)
    zero = np.zeros_like(some)
    differs = zero != 0
    for axis in {*one, *two}:
        differs |= one.get(axis, zero) != two.get(axis, zero)
    return int(some[np.argmax(differs)]) if differs.any() else None


def _many_copies(layout: Layout) -> bool:
    return prod(extent for extent, _, _ in layout.replica) > MAX_SHOWN


def _tell_apart(a: Layout, b: Layout, index: int) -> tuple[Image, Image]:
    """A coordinate of the one image that the other lacks, as the sets to show."""
    parts = []
    for layout in (a, b):
        steps, low = by_axis(layout.replica)
        add(low, layout.linear_point(index))
        parts.append(({axis: saturate(mine) for axis, mine in steps.items()}, low))
    (steps_a, low_a), (steps_b, low_b) = parts
    for axis in sorted({*low_a, *low_b, *steps_a, *steps_b}):
        at_a, at_b = low_a.get(axis, 0), low_b.get(axis, 0)
        mine, other = steps_a.get(axis, ()), steps_b.get(axis, ())
        if at_a != at_b:
            owner, value = (low_a, at_a) if at_a < at_b else (low_b, at_b)
        elif not same_image(mine, other):
            element, first = element_apart(mine, other)
            owner, value = low_a if first else low_b, at_a + element
        else:
            continue
        layout = a if owner is low_a else b
        shown = frozenset([layout.swizzled_point({**owner, axis: value})])
        return (shown, frozenset()) if owner is low_a else (frozenset(), shown)
    raise AssertionError("the images are equal")


# ---- different swizzles: enumerate what they can see --------------------------------------------


def _first_swizzled(a: Layout, b: Layout) -> int | None:
    digits = _digits(a, b)
    if digits is None:
        digits = [(1, a.size)]
    count = prod(extent for _, extent in digits)
    copies = a.copies(), b.copies()
    if copies[0] != copies[1]:
        return 0
    if count * copies[0] > MAX_POINTS:
        raise SearchError("comparison of swizzles", f"{count} elements", f"at most {MAX_POINTS}")
    axes = sorted({*a.axes, *b.axes})
    for index in _chunks(digits, max(CHUNK // copies[0], 1)):
        wrong = (point_table(a, index, axes) != point_table(b, index, axes)).any(axis=(1, 2))
        if wrong.any():
            return int(index[np.argmax(wrong)])
    return None


def _chunks(digits: Sequence[tuple[int, int]], length: int) -> Iterator[NDArray[np.int64]]:
    """The logical indices with these digits, ascending."""
    count = prod(extent for _, extent in digits)
    for start in range(0, count, length):
        rest = np.arange(start, min(start + length, count), dtype=np.int64)
        index = np.zeros(len(rest), dtype=np.int64)
        for level, extent in reversed(digits):
            index += rest % extent * level
            rest //= extent
        yield index


def _digits(a: Layout, b: Layout) -> list[tuple[int, int]] | None:
    """Digits of the logical index as ``(level, extent)`` that tell the maps apart if any does.

    A step by a multiple of what every swizzle on its axis can see moves all images by that step. So
    a digit is enumerated up to the first such step, where both layouts step alike; where they do
    not, the maps differ there at the latest, and slower digits are not needed.
    None where the layouts share no digits or are boxed.
    """
    if a.box is not None or b.box is not None:
        return None
    one, two = it.fuse(a.shard), it.fuse(b.shard)
    try:
        shape = common_refinement([[e for e, _, _ in part] for part in (one, two)])
    except LayoutError:
        return None
    blocks_a, blocks_b = it.split_blocks(one, shape), it.split_blocks(two, shape)
    assert blocks_a is not None  # a refinement cuts both
    assert blocks_b is not None
    digits: list[tuple[int, int]] = []
    level = 1
    for extent, block_a, block_b in reversed(list(zip(shape, blocks_a, blocks_b, strict=True))):
        period = max(_period(a.swizzle, block_a), _period(b.swizzle, block_b))
        alike = block_a == block_b or extent <= period
        digits.append((level, min(extent, period if alike else period + 1)))
        level *= extent
        if not alike:
            break
    return [(level, extent) for level, extent in reversed(digits) if extent > 1]


def _period(swizzles: Sequence[Swizzle], block: Iters) -> int:
    """How many steps of a block add up to a multiple of what the swizzles on its axis see."""
    _, stride, axis = block[0]
    grid = 1 << max((sw.reach for sw in swizzles if sw.axis == axis), default=0)
    return grid // np.gcd(stride, grid) if abs(stride) < 2**62 else grid
