"""The normal form of a map that only swizzles or many short boxes compute, found from its table.

One map may be written with different swizzles, before different linear parts. Its normal form is
the first of these that has the map:

1. a list, a box, or boxes in boxes of which few are short, without swizzles;
2. what elimination over GF(2) finds, where bits of the index XOR bits of the coordinates;
3. at most one swizzle per axis in front of a list or a box;
4. any boxes in boxes.

What is tried depends on the map alone, so equal maps end at the same form.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import chain, islice, product
from math import gcd

import numpy as np
from numpy.typing import NDArray

from axe_eq.errors import SearchError
from axe_eq.layout.normal.elimination import eliminated
from axe_eq.layout.normal.recover_iters import NoIters, from_table
from axe_eq.layout.normal.tables import MAX_RUNGS, divisors, from_points, plain_form, point_table
from axe_eq.layout.value import iters as it
from axe_eq.layout.value.boxes import reduce_dims
from axe_eq.layout.value.iters import Iters
from axe_eq.layout.value.layout import Layout, make, make_dims
from axe_eq.layout.value.swizzle import MAX_BIT, Swizzle

MAX_POINTS = 2**18
MAX_FITS = 2**6  # swizzles that leave a layout on their axis, which are tried with those of others
MAX_JOINT = 2**8  # stacks on all axes
LOOKED_AT = (2**6, 2**10, 2**14)  # elements, before a swizzle is undone on all

Points = NDArray[np.int64]
Stack = tuple[Swizzle, ...]


@lru_cache(maxsize=1024)
def normalise(layout: Layout) -> Layout:
    """The canonical form of a layout, from its table.

    Raises:
        SearchError: over 2**18 points below the digits that no swizzle sees, or none of the forms
            has the map.
    """
    acting = tuple(sw for sw in layout.swizzle if sw.bits)
    if acting != layout.swizzle:
        parts = layout.replica, layout.offsets, acting, *layout.boxes
        return make(layout.shard, *parts).canonical()
    thing = f"canonical form of {layout}"
    outer: Iters = ()
    inner = layout
    if layout.size * layout.copies() > MAX_POINTS:
        outer, inner = _split(layout)
        if inner.size * inner.copies() > MAX_POINTS:
            raise SearchError(thing, f"{inner.size} elements", f"at most {MAX_POINTS}")
    axes = layout.axes
    points = point_table(inner, np.arange(inner.size, dtype=np.int64), axes)
    form = form_of(points, axes) if _rests(outer, points, axes) else None
    if form is None or (outer and form.inner):
        wrong = "neither one swizzle per axis, nor XORs of bits, nor few boxes have its map"
        raise SearchError(thing, wrong, "fewer swizzles")
    return _around(outer, form)


def form_of(points: Points, axes: tuple[str, ...]) -> Layout | None:
    """The normal form of a map, given as a table; None where none is found.

    Args:
        points: ``[size, copies, axes]``, at most 2**18, the copies of each element ascending.
        axes: the axis of each column.
    """
    plain = plain_form(points, axes)
    if plain is not None:
        return plain
    outer, rest = _peeled(points, axes)
    for form in _left(rest, axes, chain(eliminated(rest, axes), _singles(rest, axes))):
        return _around(outer, form)
    try:
        return from_points(points, axes, rungs=MAX_RUNGS, several=True)
    except (NoIters, SearchError):
        return None


def under_swizzles(layout: Layout) -> Layout | None:
    """A list under swizzles with the map of a layout in boxes, or None: there is none of few.

    Of at most 2**18 elements, copies included.
    """
    axes = layout.axes
    if layout.size * layout.copies() > MAX_POINTS:
        return None
    points = point_table(layout, np.arange(layout.size, dtype=np.int64), axes)
    forms = _left(points, axes, chain(eliminated(points, axes), _singles(points, axes)))
    return next((form for form in forms if form.box is None), None)


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
    for inner in divisors(count)[:-1]:
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
    dims = reduce_dims(((it.size(outer), outer), *form.dims()))
    return make_dims(dims, form.replica, form.offsets, form.swizzle)


# ---- stacks of swizzles, and what they leave -----------------------------------------------------


def _left(points: Points, axes: tuple[str, ...], stacks: Iterable[Stack]) -> Iterator[Layout]:
    """The layouts that have the table with these swizzles in front of a list or a box."""
    for stack in stacks:
        undone = points.copy()
        for sw in stack:
            place = axes.index(sw.axis)
            undone[:, :, place] = sw.undo(undone[:, :, place])
        try:
            plain = from_points(undone, axes, boxed=True)
        except (NoIters, SearchError):
            continue
        yield make(plain.shard, plain.replica, plain.offsets, stack, *plain.boxes)


def _singles(points: Points, axes: tuple[str, ...]) -> Iterator[Stack]:
    """One swizzle per axis that is no layout by itself, each of which leaves one there."""
    parts = []
    for place, axis in enumerate(axes):
        column = points[:, :, place : place + 1]
        if len(axes) == 1 or plain_form(column, (axis,)) is None:
            parts.append(islice(_fits(column, axis), MAX_FITS))
    choices = product(*parts) if len(parts) > 1 else zip(*parts, strict=True)  # which is lazy
    for choice in islice(choices, MAX_JOINT):
        yield tuple(choice)


def _fits(column: Points, axis: str) -> Iterator[Swizzle]:
    for sw in sieved(column[:, :, 0], swizzles_on(column, axis)):
        if any(_left(column, (axis,), [(sw,)])):
            yield sw


def sieved(column: Points, swizzles: Iterator[Swizzle]) -> Iterator[Swizzle]:
    """The swizzles, in their order, that may leave a layout of ``[size, copies]`` coordinates.

    From one element to the next a layout makes one step per digit, of which it has few.
    """
    most = 2 * len(column).bit_length()
    for sw in swizzles:
        if all(_steps_few(sw.undo(column[:length]), most) for length in LOOKED_AT):
            yield sw


def _steps_few(some: Points, most: int) -> bool:
    """Whether elements have equal copies, and make at most so many different steps."""
    some = np.sort(some, axis=1)
    apart = some - some[:, :1]
    return not (apart != apart[0]).any() and len(set(np.diff(some[:, 0]).tolist())) <= most


def swizzles_on(column: Points, axis: str) -> Iterator[Swizzle]:
    """All swizzles that move bits of these coordinates, small reach first."""
    used = int(np.bitwise_or.reduce(column, axis=None))
    reach = _bits(int(column.min()), int(column.max()))
    for total in range(2, reach + 1):
        for bits in range(1, total):
            for base in range(total - bits):
                for sign in (1, -1):
                    sw = Swizzle(axis, bits, base, sign * (total - base - bits))
                    if sw.mask & used:
                        yield sw


def _bits(low: int, high: int) -> int:
    """A bound on the reach of swizzles that depends on the image alone.

    A field that is read above the highest bit of all coordinates is constant: 0, or for negative
    coordinates 1, which a field right above that bit is as well.
    """
    bits = max(high.bit_length(), (~low).bit_length() if low < 0 else 0)
    return min(2 * bits + 1 if low < 0 else bits, MAX_BIT)
