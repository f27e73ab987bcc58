"""Layouts that are strides, as libraries of arrays have them."""

from __future__ import annotations

from collections.abc import Sequence

from axe_eq.errors import LayoutError
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.layout.value.layout import Layout


def plain_strides(layout: Layout | None, shape: Sequence[int]) -> tuple[int, ...] | None:
    """The element stride of every dim of a layout of memory; None where it has no such strides.

    None too where several elements share a place, or the first lies elsewhere than at the start:
    what an array's strides do not say.
    """
    if layout is None or layout.replica or layout.swizzle or layout.box or layout.offset:
        return None
    if any(layout.range(axis) != (0, 0) for axis in layout.axes if axis != DEFAULT_AXIS):
        return None
    try:
        blocks = layout.group(tuple(shape)).blocks
    except LayoutError:
        return None
    steps = [[stride for extent, stride, _ in block if extent > 1] for block in blocks]
    if any(len(of) > 1 or of == [0] for of in steps) or layout.aliasing().clash is not None:
        return None
    return tuple(of[0] if of else 0 for of in steps)
