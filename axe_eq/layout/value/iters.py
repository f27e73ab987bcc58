"""Iter lists: the linear part of a layout as plain tuples, slow to fast.

Everything here is integer arithmetic on tuples of ``(extent, stride, axis)``; nothing takes time
proportional to the product of the extents.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

Iter = tuple[int, int, str]
Iters = tuple[Iter, ...]

DEFAULT_AXIS = "m"


def fuse(iters: Iterable[Iter]) -> Iters:
    """The shortest iter list with the same map (Axe A.1, D0 and D1): unique by Theorem A.8.

    Unit iters vanish, adjacent iters that continue each other become one, and a zero stride has no
    axis, so it is written on the default one.
    """
    fused: list[Iter] = []
    slow_extent, slow_stride, slow_axis = 1, 0, ""
    for item in iters:
        extent, stride, axis = item
        if extent == 1:
            continue
        if stride == 0:
            axis = DEFAULT_AXIS
            item = extent, 0, axis
        if slow_stride == extent * stride and slow_axis == axis:
            slow_extent *= extent
            fused[-1] = slow_extent, stride, axis
        else:
            fused.append(item)
            slow_extent, slow_axis = extent, axis
        slow_stride = stride
    return tuple(fused)


def split_blocks(fused: Sequence[Iter], shape: Sequence[int]) -> tuple[Iters, ...] | None:
    """Cut a fused list into consecutive blocks whose extents multiply to `shape` (Axe Algorithm 1).

    Any list with the same map fuses to this one, so a cut that needs more than splitting iters at
    divisors does not exist.

    Args:
        fused: an iter list from `fuse`, extents multiply to the product of `shape`.
        shape: extent of each block, slow to fast.

    Returns:
        One block per entry of `shape`, with the fewest iters, or None where a block boundary falls
        inside an iter whose extent it does not divide.
    """
    blocks: list[Iters] = []
    rest = iter(fused)
    extent, stride, axis = 1, 0, DEFAULT_AXIS  # what is left of the iter being cut
    for missing in shape:
        block: list[Iter] = []
        while missing > 1:
            if extent == 1:
                item = next(rest, None)
                if item is None:
                    return None
                extent, stride, axis = item
            if missing % extent == 0:
                block.append((extent, stride, axis))
                missing //= extent
                extent = 1
            elif extent % missing == 0:
                extent //= missing
                block.append((missing, stride * extent, axis))
                break
            else:
                return None
        blocks.append(tuple(block))
    return tuple(blocks)


def evaluate(iters: Sequence[Iter], index: int) -> dict[str, int]:
    """The coordinates of one logical index, axis by axis; axes on which it is 0 may be absent."""
    point: dict[str, int] = {}
    for extent, stride, axis in reversed(iters):
        index, digit = divmod(index, extent)
        if digit:
            point[axis] = point.get(axis, 0) + digit * stride
        if index == 0:
            break
    return point


def bounds(iters: Iterable[Iter]) -> dict[str, tuple[int, int]]:
    """The least and the greatest value on every axis."""
    low: dict[str, int] = {}
    high: dict[str, int] = {}
    for extent, stride, axis in iters:
        reach = (extent - 1) * stride
        low[axis] = low.get(axis, 0) + min(reach, 0)
        high[axis] = high.get(axis, 0) + max(reach, 0)
    return {axis: (low[axis], high[axis]) for axis in low}


def size(iters: Iterable[Iter]) -> int:
    """The product of the extents."""
    return prod([extent for extent, _, _ in iters])
