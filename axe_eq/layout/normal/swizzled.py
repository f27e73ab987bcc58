"""The normal form of a swizzled layout, found from its table.

Several swizzles give one map where the linear part changes too, so the normal form is the first one
in a fixed order that leaves a layout of the other parts: no swizzle; one per axis; two per axis
that reach few bits; what elimination finds where bits of the index XOR bits of the coordinates; no
swizzle but boxes in boxes of few digits; two per axis; boxes in boxes; two per axis that reach
fewer bits, where all are too many; any number of swizzles that make sums of progressions of the
copies, over any boxes. Digits of boxes in boxes step on one axis
each, where they can, else on several. What is tried depends on the map alone, so equal maps end at
the same one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import compress, islice, product
from math import gcd

import numpy as np
from numpy.typing import NDArray

from axe_eq.errors import SearchError
from axe_eq.layout.algebra.boxed import normal_ladder
from axe_eq.layout.normal.chains import build
from axe_eq.layout.normal.elimination import eliminated
from axe_eq.layout.normal.ladders import joined, of_block, reduced
from axe_eq.layout.normal.recover_iters import NoIters, from_table
from axe_eq.layout.normal.swizzle_filter import START, pairs, sieved
from axe_eq.layout.normal.tables import MAX_RUNGS, MAX_START, from_points, plain_form, point_table
from axe_eq.layout.normal.unswizzle import unswizzled
from axe_eq.layout.value import iters as it
from axe_eq.layout.value.boxes import reduce_dims
from axe_eq.layout.value.iters import Iters
from axe_eq.layout.value.layout import Layout, make, make_dims
from axe_eq.layout.value.swizzle import MAX_BIT, Swizzle

MAX_POINTS = 2**18
MAX_TRIES = 2**20  # stacks on one axis
FEW_TRIES = 2**13  # of those that are tried before elimination
MAX_UNDONE = 2**26  # values of the first elements that are tried with two swizzles
MAX_PROBED = 256
MAX_FITS = 2**6  # stacks that leave a layout on their axis, which are tried with those of others
MAX_JOINT = 2**8  # stacks on all axes

Points = NDArray[np.int64]
Stack = tuple[Swizzle, ...]


@lru_cache(maxsize=1024)
def normalise(layout: Layout) -> Layout:
    """The canonical form of a layout with swizzles.

    Raises:
        SearchError: over 2**18 points that are not alike, or none of the forms tried has the map:
            it has over 63 digits, or copies that are no sums of progressions without three and more
            swizzles.
    """
    acting = tuple(sw for sw in layout.swizzle if sw.bits)
    if acting != layout.swizzle:
        parts = layout.replica, layout.offsets, acting, *layout.boxes
        return make(layout.shard, *parts).canonical()
    outer: Iters = ()
    inner = layout
    if layout.size * layout.copies() > MAX_POINTS:
        outer, inner = _split(layout)
        if inner.size * inner.copies() > MAX_POINTS:
            raise SearchError(
                f"canonical form of {layout}", f"{inner.size} elements", f"at most {MAX_POINTS}"
            )
    axes = layout.axes
    points = point_table(inner, np.arange(inner.size, dtype=np.int64), axes)
    form = plain_form(points, axes)
    if form is None:
        form = _least(points, axes)
        if outer and form is not None and not _rests(outer, points, axes):
            # The first swizzle of the rest is that of the whole if those iters step beyond it.
            (sees, *others) = layout.swizzle
            if others or any(sw.axis != sees.axis or sw.reach > sees.reach for sw in form.swizzle):
                form = None
    if form is None:
        raise SearchError(
            f"canonical form of {layout}",
            "no few swizzles, and no boxes in boxes of at most 63 digits, have its map",
            "fewer swizzles",
        )
    return _around(outer, form)


def form_of(points: Points, axes: tuple[str, ...]) -> Layout | None:
    """The normal form of a map with swizzles, given as a table; None where none is found.

    Args:
        points: ``[size, copies, axes]``, at most 2**18, the copies of each element ascending.
        axes: the axis of each column.
    """
    form = plain_form(points, axes)
    return _least(points, axes) if form is None else form


def swizzled_form(layout: Layout) -> Layout | None:
    """The form of boxes in boxes among those of `normalise`, or None: the levels tell it."""
    axes = layout.axes
    return _least(point_table(layout, np.arange(layout.size, dtype=np.int64), axes), axes)


def under_swizzles(layout: Layout) -> Layout | None:
    """A list under swizzles with the map of a layout in boxes, or None: none XORs bits into it.

    Of at most 2**18 elements, copies included.
    """
    axes = layout.axes
    if layout.size * layout.copies() > MAX_POINTS:
        return None
    points = point_table(layout, np.arange(layout.size, dtype=np.int64), axes)
    forms = _stacked(points, axes, eliminated(points, axes, axes))
    return next((form for form in forms if form.box is None), None)


def _bits(low: int, high: int) -> int:
    """A bound on the reach of swizzles that depends on the image alone.

    A field that is read above the highest bit of all coordinates is constant: 0, or for negative
    coordinates 1, which a field right above that bit is as well.
    """
    bits = max(high.bit_length(), (~low).bit_length() if low < 0 else 0)
    return min(2 * bits + 1 if low < 0 else bits, MAX_BIT)


# ---- slow digits that no swizzle sees ------------------------------------------------------------


def _split(layout: Layout) -> tuple[Iters, Layout]:
    """The slow iters that step by multiples of what swizzles see, and the layout of the rest."""
    fused = it.fuse(layout.shard)
    if layout.box is not None:
        return (), layout
    for cut, (extent, stride, axis) in enumerate(fused):
        grid = 1 << max((sw.reach for sw in layout.swizzle if sw.axis == axis), default=0)
        period = grid // gcd(stride, grid)
        if period == 1:
            continue
        if extent > period and extent % period == 0:
            outer = (*fused[:cut], (extent // period, stride * period, axis))
            inner: Iters = ((period, stride, axis), *fused[cut + 1 :])
        else:
            outer, inner = fused[:cut], fused[cut:]
        return outer, make(inner, layout.replica, layout.offsets, layout.swizzle)
    return fused, make((), layout.replica, layout.offsets, layout.swizzle)


def _peeled(points: Points, axes: tuple[str, ...]) -> tuple[Iters, Points]:
    """The slow iters that step beyond all coordinates of the rest, and the least such rest."""
    count = len(points)
    for inner in (n for n in range(1, count) if count % n == 0):
        steps = points[::inner, 0] - points[0, 0]
        try:
            outer = from_table(dict(zip(axes, steps.T, strict=True)))
        except NoIters:
            continue
        if _rests(outer, points[:inner], axes):
            tiles = points.reshape(count // inner, inner, *points.shape[1:])
            if np.array_equal(tiles, points[None, :inner] + steps[:, None, None]):
                return outer, points[:inner]
    return (), points


def _rests(outer: Iters, points: Points, axes: tuple[str, ...]) -> bool:
    """Whether iters step by multiples of a power of two beyond all of these coordinates."""
    for place, axis in enumerate(axes):
        strides = [stride for _, stride, name in outer if name == axis and stride]
        column = points[:, :, place]
        if strides and (column.min() < 0 or gcd(*strides) % (1 << int(column.max()).bit_length())):
            return False
    return True


def _around(outer: Iters, form: Layout) -> Layout:
    """A form of the rest with the slow iters before it."""
    if not outer:
        return form
    if form.inner:
        count = it.size(outer)
        fields = (count, of_block(outer, count)), (form.size, normal_ladder(form))
        extent, ladder = joined(fields)
        ladder, _ = reduced(extent, ladder)
        return build([(extent, ladder)], form.replica, form.offsets, form.swizzle)
    dims = reduce_dims(((it.size(outer), outer), *form.dims()))
    return make_dims(dims, form.replica, form.offsets, form.swizzle)


# ---- the forms, in order -------------------------------------------------------------------------


def _least(points: Points, axes: tuple[str, ...]) -> Layout | None:
    """The first form of a map that needs swizzles or many short boxes, or None.

    Boxes in boxes of few digits come before long searches: a map of few elements has both.

    Args:
        points: ``[size, copies, axes]``.
        axes: the axis of each column.
    """
    outer, rest = _peeled(points, axes)
    found = next(_stacked(rest, axes, _quick(rest, axes)), None)
    if found is None and len(rest) <= MAX_START:
        found = _boxes(rest, axes, 2 * len(rest).bit_length(), several=True)
    if found is None:
        found = next(_stacked(rest, axes, _long(rest, axes)), None)
    if found is None:
        found = _boxes(rest, axes, MAX_RUNGS, several=True)
    if found is None:
        found = next(_stacked(rest, axes, _short(rest, axes)), None)
    if found is None:
        found = next(_stacked(rest, axes, _uncopied(rest, axes), MAX_RUNGS), None)
    return None if found is None else _around(outer, found)


def _boxes(
    points: Points, axes: tuple[str, ...], digits: int, *, several: bool = False
) -> Layout | None:
    """Boxes in boxes with a table and at most so many digits, or None: none are found in time.

    With `several`, digits may step on several axes.
    """
    try:
        return from_points(points, axes, rungs=digits, several=several)
    except (NoIters, SearchError):
        return None


def _stacked(
    points: Points, axes: tuple[str, ...], stacks: Iterable[Stack], digits: int = 0
) -> Iterator[Layout]:
    """The layouts that have the table with these swizzles, with boxes in boxes of few digits."""
    for stack in stacks:
        plain = _undone(points, axes, stack, digits)
        if plain is not None:
            yield make(plain.shard, plain.replica, plain.offsets, stack, *plain.boxes)


def _quick(points: Points, axes: tuple[str, ...]) -> Iterator[Stack]:
    """Stacks of swizzles that do not take long to try, all of them."""
    chosen = _bent(points, axes)
    yield from _searched(points, axes, chosen, 1, MAX_TRIES)
    yield from _searched(points, axes, chosen, 2, FEW_TRIES)
    yield from eliminated(points, axes, chosen)


def _long(points: Points, axes: tuple[str, ...]) -> Iterator[Stack]:
    yield from _searched(points, axes, _bent(points, axes), 2, MAX_TRIES)


def _short(points: Points, axes: tuple[str, ...]) -> Iterator[Stack]:
    """Stacks of two swizzles per axis that reach as many bits as may be tried."""
    yield from _searched(points, axes, _bent(points, axes), 2, MAX_TRIES, short=True)


def _uncopied(points: Points, axes: tuple[str, ...]) -> Iterator[Stack]:
    """Stacks of swizzles without which lists have the copies of every element, axis by axis."""
    parts = []
    for place, axis in enumerate(axes):
        column = np.sort(points[:, :, place], axis=1)
        first = np.diff(column[0], prepend=column[0, 0] - 1) != 0  # copies may differ elsewhere
        reach = _bits(int(column.min()), int(column.max()))
        parts.append(unswizzled(column[:, first], axis, reach))
    yield from islice(_joined(parts), MAX_JOINT)


def _bent(points: Points, axes: tuple[str, ...]) -> tuple[str, ...]:
    """The axes that are no layout by themselves; all if each is one."""
    columns = [points[:, :, place : place + 1] for place in range(len(axes))]
    bent = [
        len(axes) == 1 or plain_form(part, (a,)) is None
        for a, part in zip(axes, columns, strict=True)
    ]
    return tuple(compress(axes, bent)) or axes


def _searched(
    points: Points,
    axes: tuple[str, ...],
    chosen: tuple[str, ...],
    most: int,
    tries: int,
    *,
    short: bool = False,
) -> Iterator[Stack]:
    """Stacks with up to `most` swizzles per axis, few first, that leave a layout on each axis.

    Where there are more than so many to try on an axis, or to try together, they are left out; or
    with `short` only those that reach most bits are.
    """
    columns = {axis: points[:, :, axes.index(axis)] for axis in chosen}
    undone = MAX_UNDONE // max(len(chosen), 1)
    bits = {axis: _bits(int(column.min()), int(column.max())) for axis, column in columns.items()}
    if short:
        for axis, column in columns.items():
            while not _may_try(column, bits[axis], most, tries, undone):
                bits[axis] -= 1
    counts = [n for n in product(range(most + 1), repeat=len(chosen)) if max(n, default=0) == most]
    for split in sorted(counts, key=lambda split: (sum(split), split)):
        shares = list(zip(chosen, split, strict=True))
        if all(_may_try(columns[axis], bits[axis], count, tries, undone) for axis, count in shares):
            parts = [_fits(columns[axis], axis, bits[axis], count) for axis, count in shares]
            yield from islice(parts[0] if len(parts) == 1 else _joined(parts), MAX_JOINT)


def _may_try(column: Points, reach: int, count: int, tries: int, undone: int) -> bool:
    looked_at = max(MAX_PROBED, START * column.shape[1])  # the first elements, with all copies
    values = _stack_count(reach, count) * min(column.size, looked_at) if count > 1 else 0
    return _stack_count(reach, count) <= tries and values <= undone


def _joined(parts: Sequence[Iterable[Stack]]) -> Iterator[Stack]:
    for choice in product(*(islice(part, MAX_FITS) for part in parts)):
        yield tuple(sw for stack in choice for sw in stack)


def _fits(column: Points, axis: str, reach: int, count: int) -> Iterator[Stack]:
    """The stacks of `count` swizzles, small reach first, that leave a layout on this axis alone."""
    if not count:
        return iter([()])
    singles = list(_singles(axis, reach))
    stacks = pairs(column, singles)
    if count == 1:
        used = int(np.bitwise_or.reduce(column, axis=None))
        stacks = ((sw,) for sw in singles if sw.mask & used)  # others change nothing
    return (
        stack
        for stack in sieved(column, stacks)
        if _undone(column[:, :, None], (axis,), stack) is not None
    )


def _singles(axis: str, reach: int) -> Iterator[Swizzle]:
    """All swizzles of at most that reach, small reach first."""
    for total in range(2, reach + 1):
        for bits in range(1, total):
            for base in range(total - bits):
                for sign in (1, -1):
                    yield Swizzle(axis, bits, base, sign * (total - base - bits))


def _stack_count(reach: int, count: int) -> int:
    return int(((reach**3 - reach) // 3) ** count)


def _undone(points: Points, axes: tuple[str, ...], stack: Stack, digits: int = 0) -> Layout | None:
    """The layout that is left of a table without these swizzles, or None.

    It may have boxes in boxes of so many digits.
    """
    points = points.copy()
    for sw in stack:
        place = axes.index(sw.axis)
        points[:, :, place] = sw.undo_table(points[:, :, place])
    if not stack:
        return plain_form(points, axes)
    try:
        return from_points(points, axes, boxed=True, rungs=digits, several=True)
    except (NoIters, SearchError):
        return None
