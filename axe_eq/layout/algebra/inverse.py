"""Inverses of one-to-one layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from axe_eq.errors import LayoutError, SearchError
from axe_eq.layout.normal.recover_iters import add
from axe_eq.layout.normal.replicas import normal_form
from axe_eq.layout.normal.swizzled import MAX_POINTS, form_of
from axe_eq.layout.value.check import check_axes, make_offsets
from axe_eq.layout.value.iters import DEFAULT_AXIS, Iter, Iters, fuse, size
from axe_eq.layout.value.layout import Layout, make
from axe_eq.layout.value.swizzle import Swizzle


def inverse_of(layout: Layout, axes: Sequence[str]) -> Layout:
    """`Layout.inverse`."""
    moving, swizzle = layout.moving(), layout.swizzle
    names = check_axes(axes) or moving or layout.axes[:1] or (DEFAULT_AXIS,)
    plain = layout
    if layout.box is not None:  # one that can be left out is in no way
        plain = make(layout.shard, layout.replica, layout.offsets, (), *layout.boxes).canonical()
        swizzle += plain.swizzle
    replica, offset = normal_form(plain.replica)
    if plain.box is not None or replica:
        raise LayoutError(f"layout {layout}", "a box or replicas", "a one to one layout")
    if set(moving) - set(names) or (len(names) > 1 and not axes):
        raise LayoutError(
            f"layout {layout}", f"axes {moving}", "one axis", hint="inverse(axes=...) orders them"
        )
    add(offset, dict(plain.offsets))
    linear = _inverted(fuse(plain.shard), offset, names)
    acting = [sw for sw in swizzle if sw.axis in moving]
    return _behind(linear, names, acting) if acting else linear


def _inverted(fused: Iters, offset: Mapping[str, int], axes: Sequence[str]) -> Layout:
    """The map from coordinates back to logical indices, on the first of the axes.

    The strides of a one-to-one list onto ``[0, n)``, by size, are the products of the extents
    before them: the least element that is not yet covered can only be the next stride.

    Args:
        fused: an iter list from `fuse`.
        offset: axis -> offset of the layout.
        axes: order of the axes in the coordinate index, slow to fast.

    Raises:
        LayoutError: not one to one onto all coordinates from 0 on.
    """
    steps: list[tuple[str, int, int, int, int]] = []
    level = size(fused)
    for extent, stride, axis in fused:
        level //= extent
        # a zero stride has no axis of its own: wherever it is counted, coordinate 0 is hit twice
        steps.append((axis if stride else axes[0], abs(stride), extent, stride, level))
    shard: list[Iter] = []
    origin = 0
    for axis in axes:
        mine = sorted(step[1:] for step in steps if step[0] == axis)
        _check_onto(axis, [step[:3] for step in mine], offset.get(axis, 0))
        for _, extent, stride, level in reversed(mine):
            shard.append((extent, level if stride > 0 else -level, axes[0]))
            origin += (extent - 1) * level if stride < 0 else 0
    return make(tuple(shard), (), make_offsets({axes[0]: origin}))


def _behind(linear: Layout, axes: Sequence[str], swizzles: Sequence[Swizzle]) -> Layout:
    """An inverse of coordinates on one axis that are undone first, from its table.

    Args:
        linear: the inverse without swizzles.
        axes: the one axis.
        swizzles: written order.

    Raises:
        LayoutError: several axes, coordinates that a swizzle moves out of the range, or no layout.
        SearchError: over 2**18 coordinates.
    """
    thing, count = f"inverse of {swizzles[0]}", linear.size
    if len(axes) > 1:
        raise LayoutError(thing, f"{len(axes)} axes", "one axis")
    if count > MAX_POINTS:
        raise SearchError(thing, f"{count} coordinates", f"at most {MAX_POINTS}")
    values = np.arange(count, dtype=np.int64)
    for sw in swizzles:
        values = sw.undo(values)
    if (missed := values >= count).any():
        at = int(np.argmax(missed))
        raise LayoutError(thing, f"coordinate {at} is not hit", "one to one")
    form = form_of(linear.table(axes[0])[values][:, None, None], (axes[0],))
    if form is None:
        raise LayoutError(thing, "no layout computes it", "XORs of bits of the logical index")
    return form


def _check_onto(axis: str, steps: Sequence[tuple[int, int, int]], offset: int) -> None:
    first = offset + sum((extent - 1) * stride for _, extent, stride in steps if stride < 0)
    if first:
        raise LayoutError(f"inverse on axis {axis}", f"coordinates start at {first}", "at 0")
    covered = 1
    for distance, extent, _ in steps:
        if distance != covered:
            wrong = "is hit twice" if distance < covered else "is not hit"
            at = distance if distance < covered else covered
            raise LayoutError(f"inverse on axis {axis}", f"coordinate {at} {wrong}", "one to one")
        covered *= extent
