"""Composition of layouts: one layout's coordinates as the logical indices of another."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

import numpy as np

from axe_eq.errors import LayoutError, SearchError
from axe_eq.layout.normal.recover_iters import NoIters, Vector, add
from axe_eq.layout.normal.tables import MAX_RUNGS, Table, from_points, point_table
from axe_eq.layout.value import iters as it
from axe_eq.layout.value.check import check_range, make_offsets
from axe_eq.layout.value.iters import DEFAULT_AXIS, Iter, Iters
from axe_eq.layout.value.layout import Layout, make

MAX_POINTS = 2**22


def compose(a: Layout, b: Layout) -> Layout:
    """The layout ``x -> A(B(x))``: B moves on one axis, in indices of A. Complete.

    An element with several copies in B has the union of their images. Indices past the size of A
    continue its slowest iter, as CuTe reads a layout.

    Args:
        a: the outer layout; its swizzles stay in front.
        b: the inner layout, away from 0 on at most one axis, with coordinates of at least 0.

    Raises:
        LayoutError: B moves on several axes or has an index that A has no iter for, or no layout
            computes the composition, with the first index that breaks.
        SearchError: undecided, over 2**22 points where iters of B carry over those of A.

    Source: CuTe composition; here without its divisibility conditions.
    """
    axes = b.axes if len(b.axes) < 2 else b.moving()
    if len(axes) > 1:
        raise LayoutError(f"composition with {b}", f"axes {axes}", "an inner layout on one axis")
    axis = axes[0] if axes else DEFAULT_AXIS
    low, high = b.range(axis)
    fused = it.fuse(a.shard)
    if low < 0 or (high >= a.size and (a.box is not None or not fused)):
        raise LayoutError(
            f"composition with {b}", f"indices {low} to {high}", f"indices in [0, {a.size})"
        )
    if high >= a.size:
        inner = a.size // fused[0][0]
        shard = ((high // inner + 1, *fused[0][1:]), *fused[1:])
        a = make(shard, a.replica, a.offsets, a.swizzle)
    made = _by_digits(a, b) if a.box is None and b.is_linear() else None
    if made is None:
        made = _by_points(a, b, axis)
    check_range(made.shard, made.replica, made.offsets, made.size)
    return made


def _by_digits(a: Layout, b: Layout) -> Layout | None:
    """The composition if no sum of digits of B carries in the digits of A."""
    fused = it.fuse(a.shard)
    origin = sum(value for _, value in b.offsets)
    origin += sum((e - 1) * s for e, s, _ in b.shard + b.replica if s < 0)
    reach = [0] * len(fused)
    offset = dict(a.offsets)
    for place, digit in _digits(fused, origin):
        reach[place] = digit
        add(offset, {fused[place][2]: digit * fused[place][1]})
    lists: list[Iters] = []
    for iters in (it.fuse(b.shard), b.replica):
        pieces: list[Iter] = []
        for extent, stride, _ in iters:
            found = _pieces(fused, extent, stride, reach, offset)
            if found is None:
                return None
            pieces += found
        lists.append(tuple(pieces))
    if any(digit >= extent for digit, (extent, _, _) in zip(reach, fused, strict=True)):
        return None
    return make(lists[0], lists[1] + a.replica, make_offsets(offset), a.swizzle)


def _pieces(
    fused: Iters, extent: int, stride: int, reach: list[int], offset: Vector
) -> list[Iter] | None:
    """One iter of B as iters of the composition, slow to fast; adds to the digits reached."""
    pieces: list[Iter] = []
    step = abs(stride)
    while extent > 1:
        digits = _digits(fused, step)
        room = min(((fused[place][0] - 1) // digit + 1 for place, digit in digits), default=extent)
        part = extent if extent <= room else gcd(extent, room)
        vector: Vector = {}
        for place, digit in digits:
            reach[place] += digit * (part - 1)
            if fused[place][1]:
                add(vector, {fused[place][2]: digit * fused[place][1]})
        moves = [(axis, value) for axis, value in vector.items() if value]
        if part == 1 or len(moves) > 1:
            return None
        axis, value = moves[0] if moves else (DEFAULT_AXIS, 0)
        if stride < 0:
            add(offset, {axis: (part - 1) * value})
        pieces.append((part, value if stride > 0 else -value, axis))
        extent //= part
        step *= part
    return pieces[::-1]


def _digits(fused: Iters, index: int) -> list[tuple[int, int]]:
    """The nonzero digits of an index as ``(place, digit)``."""
    digits: list[tuple[int, int]] = []
    place = len(fused)
    while index:
        place -= 1
        index, digit = divmod(index, fused[place][0])
        if digit:
            digits.append((place, digit))
    return digits


def _by_points(a: Layout, b: Layout, axis: str) -> Layout:
    """The composition by enumeration, complete where digits carry, swizzles mix or boxes cut."""
    spread = b.replica_table(axis)
    if b.size * len(spread) > MAX_POINTS or a.size > MAX_POINTS * 4:
        raise SearchError(
            f"composition with {b}",
            f"{b.size * len(spread)} points that carry",
            f"at most {MAX_POINTS}",
        )
    index = b.swizzled(axis, np.add.outer(b.linear_table(axis), spread))
    axes = a.axes or (DEFAULT_AXIS,)
    bare = make(a.shard, (), a.offsets, (), *a.boxes)
    points = np.stack([bare.table(name)[index] for name in axes], axis=-1)
    boxed = a.box is not None or b.box is not None
    rungs = MAX_RUNGS if a.inner or b.inner else 0
    try:
        try:
            found = from_points(points, axes, boxed=boxed, rungs=rungs)
            replica = found.replica + a.replica
        except NoIters:
            if not a.replica:
                raise
            # The copies of A may fill what tells the copies of B apart.
            points = _with_copies(points, a, axes)
            found = from_points(points, axes, boxed=boxed, rungs=rungs)
            replica = found.replica
    except NoIters as none:
        form = _behind_swizzles(a, points, axes) if a.swizzle or b.swizzle else None
        if form is not None:
            return form
        kind = "layout" if boxed else "layout without a box"
        raise LayoutError(
            f"composition of {a} with {b}",
            f"no {kind} computes it: index {none.index} breaks, {none.reason}",
            "an inner layout that follows the digits of the outer",
        ) from None
    return make(found.shard, replica, found.offsets, a.swizzle, *found.boxes)


def _behind_swizzles(a: Layout, points: Table, axes: tuple[str, ...]) -> Layout | None:
    """The normal form of a composition with swizzles of its own, or None: none is found.

    Args:
        a: the outer layout, whose swizzles have not acted on the points.
        points: ``[size, copies, axes]``, with the copies of `a` where it has some.
        axes: the axis of each column.
    """
    from axe_eq.layout.normal.swizzled import MAX_POINTS as MOST
    from axe_eq.layout.normal.swizzled import form_of

    if points.shape[0] * points.shape[1] > MOST:
        return None
    points = points.copy()
    for place, axis in enumerate(axes):
        points[:, :, place] = a.swizzled(axis, points[:, :, place])
    order = np.lexsort(points.transpose(2, 0, 1)[::-1], axis=-1)
    points = np.take_along_axis(points, order[:, :, None], axis=1)
    found = form_of(points, axes)
    if found is None or set(found.axes) - set(axes):
        return None
    index = np.arange(len(points), dtype=np.int64)
    return found if np.array_equal(point_table(found, index, axes), points) else None


def _with_copies(points: Table, a: Layout, axes: Sequence[str]) -> Table:
    """The points with the replicas of `a` added."""
    if points.shape[0] * points.shape[1] * a.copies() > MAX_POINTS:
        raise SearchError(
            f"composition with {a}", f"{a.copies()} copies", f"at most {MAX_POINTS} points"
        )
    for place, name in enumerate(axes):
        steps = np.zeros((len(values := a.replica_table(name)), len(axes)), dtype=np.int64)
        steps[:, place] = values
        points = (points[:, :, None] + steps).reshape(len(points), -1, len(axes))
    return points
