"""Replica iters: a multiset whose image is a set, its normal form and exact decisions about it.

The image of a replica list is a Cartesian product over the axes, so everything here works on one
axis at a time, on lists of ``(stride, extent)`` with positive strides, ascending. The normal form
is one list per image: under the gap condition the saturated list (Axe A.12 and A.14, absorbing with
``q <= E``), off it what `images.factor` finds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from math import gcd, prod

import numpy as np
from numpy.typing import NDArray

from axe_eq.errors import SearchError
from axe_eq.layout.normal.images import Steps, factor, search, spread
from axe_eq.layout.value.iters import Iter, Iters

MAX_SPAN = 2**24
MAX_COMBINATIONS = 2**20
MAX_COPIES = 2**24


def by_axis(replica: Iterable[Iter]) -> tuple[dict[str, list[tuple[int, int]]], dict[str, int]]:
    """Drop what adds nothing and turn negative strides round (Axe A.1, C0 and C1).

    Returns:
        Axis -> unsorted ``(stride, extent)``, and axis -> the offset that turning round costs.
    """
    steps: dict[str, list[tuple[int, int]]] = {}
    shift: dict[str, int] = {}
    for extent, stride, axis in replica:
        if extent == 1 or stride == 0:
            continue
        if stride < 0:
            shift[axis] = shift.get(axis, 0) + (extent - 1) * stride
            stride = -stride
        steps.setdefault(axis, []).append((stride, extent))
    return steps, shift


def saturate(steps: Iterable[tuple[int, int]]) -> Steps:
    """Absorb multiples for good: ``(s, e), (q*s, f) = (s, e + q*(f-1))`` where ``q <= e``.

    The paper's C2 asks for ``q < e``, which leaves ``(1, 2), (2, 2)`` apart; it is ``(1, 4)``.
    """
    kept = sorted(steps)
    slow = 1
    while slow < len(kept):
        stride, extent = kept[slow]
        for fast in range(slow):
            base, count = kept[fast]
            times, rest = divmod(stride, base)
            if rest == 0 and times <= count:
                kept[fast] = base, count + times * (extent - 1)
                del kept[slow]
                slow = 1  # a longer iter may absorb what it could not before
                break
        else:
            slow += 1
    return tuple(kept)


def has_gaps(steps: Steps) -> bool:
    """The gap condition of Axe A.1: each stride is beyond the reach of the one before."""
    return all(steps[i + 1][0] > steps[i][0] * steps[i][1] for i in range(len(steps) - 1))


def count_copies(replica: Iterable[Iter]) -> int:
    """How many coordinates every element has.

    Raises:
        SearchError: copies that overlap, of over 2**20 combinations on one axis.
    """
    count = 1
    for axis, steps in by_axis(replica)[0].items():
        merged = saturate(steps)
        combinations = prod(extent for _, extent in merged)
        if has_gaps(merged):
            count *= combinations
        elif combinations > MAX_COMBINATIONS:
            wrong = f"{combinations} sums that overlap"
            raise SearchError(f"copies on {axis}", wrong, f"at most {MAX_COMBINATIONS}")
        else:
            sums = {0}
            for stride, extent in merged:
                sums = {value + stride * digit for value in sums for digit in range(extent)}
            count *= len(sums)
    return count


def normal_form(replica: Iterable[Iter]) -> tuple[Iters, dict[str, int]]:
    """The unique replica list with the same image, and the offset to add per axis.

    Raises:
        SearchError: off the gap condition with a span over 2**24.
    """
    steps, shift = by_axis(replica)
    if not steps:
        return (), shift
    return tuple(
        (extent, stride, axis)
        for axis in sorted(steps)
        for stride, extent in least_steps(saturate(steps[axis]))
    ), shift


def least_steps(steps: Steps) -> Steps:
    """The normal form of a saturated list on one axis."""
    if len(steps) < 2 or has_gaps(steps):
        return steps
    whole: list[tuple[int, int]] = []
    for unit, cluster in clusters(steps):
        if not has_gaps(cluster):
            found = factor(image_bits(cluster), known=cluster)
            assert found is not None  # the cluster itself is a solution
            cluster = found
        whole += [(stride * unit, extent) for stride, extent in cluster]
    return tuple(whole)


def clusters(steps: Steps) -> Iterator[tuple[int, Steps]]:
    """Cut a list where the rest lies on a grid wider than twice the reach so far.

    The cut depends on the image alone: with the grid that wide, the image near 0 is the first part
    and the grid points of the image are the rest. So the parts have normal forms of their own.

    Yields:
        ``(unit, steps / unit)`` with the steps of the cluster divided by their common divisor.
    """
    start, reach = 0, 0
    for end in range(1, len(steps) + 1):
        stride, extent = steps[end - 1]
        reach += stride * (extent - 1)
        rest = gcd(*(step[0] for step in steps[end:]))
        if rest == 0 or rest > 2 * reach:
            part = steps[start:end]
            unit = gcd(*(step[0] for step in part))
            yield unit, tuple((stride // unit, extent) for stride, extent in part)
            start, reach = end, 0


def reach_of(steps: Iterable[tuple[int, int]]) -> int:
    """The greatest element of the image."""
    return sum(stride * (extent - 1) for stride, extent in steps)


def image_table(steps: Steps, most: int = MAX_COPIES, times: int = 1) -> NDArray[np.int64]:
    """The image of a saturated list, ascending.

    Raises:
        SearchError: more than `most` elements, or sums to find them from, if each counts `times`.
    """
    values, apart = np.zeros(1, dtype=np.int64), has_gaps(steps)
    for stride, extent in steps:
        if (count := len(values) * extent * times) > most:
            raise SearchError("replicas", f"{count} copies of an element", f"at most {most}")
        values = np.add.outer(np.arange(extent, dtype=np.int64) * stride, values).reshape(-1)
        if not apart:
            values = np.unique(values)
    return values


@lru_cache(maxsize=16)  # those who go through all elements ask for the same again and again
def displacements(replica: Iters, axis: str, most: int, times: int) -> NDArray[np.int64]:
    """See `Layout.replica_table`."""
    steps, shift = by_axis([item for item in replica if item[2] == axis])
    found = image_table(saturate(steps.get(axis, ())), most, times) + shift.get(axis, 0)
    found.flags.writeable = False
    return found


def least_shared(steps: Steps, gap: int) -> int:
    """The least element of an image that lies `gap` above another one, where there is one.

    Each cluster makes up for a part of the gap: the rest lies on a grid over twice as wide.

    Args:
        steps: a saturated list.
        gap: a difference of two elements.

    Raises:
        SearchError: a cluster of several steps with over 2**24 elements.
    """
    found, parts = 0, list(clusters(steps))
    for place, (unit, part) in enumerate(parts):
        grid = gcd(*(later for later, _ in parts[place + 1 :]))
        mine = (gap + grid // 2) % grid - grid // 2 if grid else gap
        gap -= mine
        found += unit * _least_above(part, mine // unit)
    return found


def _least_above(steps: Steps, gap: int) -> int:
    if len(steps) == 1:
        return max(gap, 0)
    values = image_table(steps)
    lower = values[values <= values[-1] - abs(gap)]
    return int(np.intersect1d(lower + abs(gap), values, assume_unique=True)[0]) + min(gap, 0)


def image_bits(steps: Steps) -> int:
    """The image as an integer whose bit v says that v is in it.

    Raises:
        SearchError: the span is over 2**24, with the list.
    """
    reach = reach_of(steps)
    if reach >= MAX_SPAN:
        text = " ".join(f"({extent}:{stride})" for stride, extent in steps)
        raise SearchError(
            f"replica iters {text}",
            f"break the gap condition over a span of {reach + 1}",
            f"a span of at most {MAX_SPAN} there",
        )
    bits = 1
    for stride, extent in steps:
        bits = spread(bits, stride, extent)
    return bits


def element_apart(a: Steps, b: Steps) -> tuple[int, bool]:
    """An element of exactly one of two different images, and whether it is the first one's.

    Raises:
        SearchError: not found within a span of 2**24.
    """
    tops = reach_of(a), reach_of(b)
    if tops[0] != tops[1]:
        return max(tops), tops[0] > tops[1]
    if has_gaps(a) and has_gaps(b):
        # Below the first step that differs the images agree, and at it one has a window more.
        (stride, extent), (other, count) = next(
            pair for pair in zip(a, b, strict=False) if pair[0] != pair[1]
        )
        if stride != other:
            return min(stride, other), stride < other
        return min(extent, count) * stride, extent > count
    whole = [[(1, steps)] if tops[0] < MAX_SPAN else clusters(steps) for steps in (a, b)]
    for (unit, one), (other, two) in zip(*whole, strict=False):
        grid = gcd(unit, other)
        bits = [
            image_bits(tuple((stride * scale // grid, extent) for stride, extent in part))
            for scale, part in ((unit, one), (other, two))
        ]
        apart = bits[0] ^ bits[1]
        element = (apart & -apart).bit_length() - 1
        if 0 <= element < min(bits).bit_length():  # beyond it the next cluster may have it too
            return element * grid, bool(bits[0] >> element & 1)
        if apart:
            break
    raise SearchError("replica images", "no element of only one of them found", f"in {MAX_SPAN}")


def same_image(a: Steps, b: Steps) -> bool:
    """Whether two saturated lists on one axis have the same image. Exact.

    Raises:
        SearchError: a list is off the gap condition with a span over 2**24.
    """
    if a == b:
        return True
    if reach_of(a) != reach_of(b) or a[0][0] != b[0][0]:
        return False
    if has_gaps(a) or has_gaps(b):  # a set with a gap list has no other saturated list
        return False
    parts = list(clusters(a)), list(clusters(b))
    if [unit for unit, _ in parts[0]] != [unit for unit, _ in parts[1]]:
        return False
    return all(
        x == y or (reach_of(x) == reach_of(y) and image_bits(x) == image_bits(y))
        for (_, x), (_, y) in zip(*parts, strict=True)
    )


def difference(whole: Steps, part: Steps, grid: int) -> Steps | None:
    """Steps on a grid whose sum with `part` has the image of `whole`, or None: there are none.

    Args:
        whole: a saturated list.
        part: a saturated list.
        grid: every stride of the result is a multiple of it.

    Raises:
        SearchError: undecided, because a cluster of `whole` spans over 2**24.
    """
    if not part:
        return None if any(stride % grid for stride, _ in whole) else whole
    found: list[tuple[int, int]] = []
    low = 0
    for unit, cluster in clusters(whole):
        high = reach_of(cluster) * unit
        mine = tuple((stride, extent) for stride, extent in part if low < stride <= high)
        if any(stride % unit for stride, _ in mine):
            return None
        inner = tuple((stride // unit, extent) for stride, extent in mine)
        rest = _cluster_difference(cluster, inner, grid // gcd(grid, unit))
        if rest is None:
            return None
        found += [(stride * unit, extent) for stride, extent in rest]
        low = high
    return tuple(found) if reach_of((*found, *part)) == reach_of(whole) else None


def _cluster_difference(whole: Steps, part: Steps, grid: int) -> Steps | None:
    if len(whole) == 1 and len(part) == 1 and part[0][0] == 1:  # an interval less an interval
        length, covered = whole[0][1], part[0][1]
        if length == covered:
            return ()
        times, rest = divmod(length - covered, grid)
        return ((grid, times + 1),) if rest == 0 and times > 0 and grid <= covered else None
    return search(image_bits(whole), part, grid)
