"""Inverses of layouts that are one to one but not onto, and what they leave free."""

from __future__ import annotations

from collections.abc import Sequence

from axe_eq.errors import LayoutError
from axe_eq.layout.value import iters as it
from axe_eq.layout.value.check import check_extents, check_range
from axe_eq.layout.value.iters import DEFAULT_AXIS, Iter
from axe_eq.layout.value.layout import Layout, make


def complement(layout: Layout, size: int) -> Layout:
    """The layout C that fills the gaps of a layout: each sum ``L(x) + C(y)`` occurs once.

    Together they cover ``[0, size)`` and end with it, or at the first whole copy after it. The
    strides of C ascend from fast to slow; there are as few iters as possible.

    Args:
        layout: one to one, on one axis, strides at least 0, each a multiple of what smaller
            strides reach; no replicas, offset, swizzle or box.
        size: how many coordinates to cover, at least 1.

    Raises:
        LayoutError: a layout that is not like that.

    Source: CuTe, complement.
    """
    (count,) = check_extents("complement size", (size,))
    axis = _axis(layout)
    gaps = [(gap, stride, axis) for gap, stride in _gaps(layout, count) if gap > 1]
    filled = make(it.fuse(reversed(gaps)))
    check_range(filled.shard, (), (), filled.size)
    return filled


def left_inverse(layout: Layout) -> Layout:
    """A layout M with ``M(L(x)) = {x}``; coordinates that L misses get the indices past its size.

    Args:
        layout: as for `complement`.

    Raises:
        LayoutError: a layout that is not one to one in that way.

    Source: CuTe, left_inverse.
    """
    axis = _axis(layout)
    whole = layout.span(axis)
    free = [(gap, stride, axis) for gap, stride in _gaps(layout, whole)]
    return make(it.fuse((*reversed(free), *layout.shard))).inverse([axis])


def right_inverse(layout: Layout) -> Layout:
    """The longest layout R with ``L(R(c)) = {c}`` for all coordinates c from 0 on.

    Args:
        layout: as for `complement`, but strides need not be multiples of one another.

    Raises:
        LayoutError: several axes, replicas, an offset, a swizzle or a box.

    Source: CuTe, right_inverse.
    """
    axis = _axis(layout)
    covered, level = 1, layout.size
    digits: list[tuple[int, int, int]] = []
    for extent, stride, _ in it.fuse(layout.shard):
        level //= extent
        digits.append((stride, extent, level))
    found: list[Iter] = []
    for stride, extent, level in sorted(digits):
        if stride == covered:
            found.append((extent, level, axis))
            covered *= extent
    return make(it.fuse(reversed(found)))


def _axis(layout: Layout) -> str:
    """The one axis of a plain layout."""
    plain = layout.canonical() if layout.replica else layout
    moving = plain.moving()
    if plain.replica or plain.offsets or not plain.is_linear() or len(moving) > 1:
        raise LayoutError(f"layout {layout}", "has no partial inverse", "iters on one axis alone")
    return moving[0] if moving else (*plain.axes, DEFAULT_AXIS)[0]


def _gaps(layout: Layout, size: int) -> Sequence[tuple[int, int]]:
    """What each stride leaves free below it, and the rest up to the size: ``(count, stride)``."""
    gaps: list[tuple[int, int]] = []
    covered = 1
    steps = sorted((stride, extent) for extent, stride, _ in it.fuse(layout.shard))
    for stride, extent in steps:
        if stride < 1 or stride % covered:
            expected = f"a multiple of {covered}, the reach of smaller strides"
            raise LayoutError(f"complement of {layout}", f"stride {stride}", expected)
        gaps.append((stride // covered, covered))
        covered = stride * extent
    return [*gaps, (-(-size // covered), covered)]
