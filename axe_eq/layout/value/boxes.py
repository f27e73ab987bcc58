"""Padded boxes as tuples of dims: an extent, and the block of iters that it lies at the start of.

A dim ``(n, block)`` is the first n indices of the block; it is exact where the block holds no more
than n. Reducing drops what no logical index reaches and joins an exact dim to the slower one; two
reduced boxes have the same map only if they are equal, by the argument of Theorem A.8 applied to
the innermost extents.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod

from axe_eq.layout.value.iters import Iters, fuse, size, split_blocks

Dim = tuple[int, Iters]
Dims = tuple[Dim, ...]


def trim(extent: int, block: Iters) -> Iters:
    """The block without the slow digits that the first `extent` indices do not reach."""
    inner = size(block)
    for place, (count, stride, axis) in enumerate(block):
        inner //= count
        needed = -(-extent // inner)
        if needed > 1:
            return ((needed, stride, axis), *block[place + 1 :])
    return ()


def reduce_dims(dims: Iterable[Dim]) -> Dims:
    """The fewest dims with the same map, each with the shortest block that holds it."""
    reduced: list[Dim] = []
    for extent, block in dims:
        if extent == 1:
            continue
        short = trim(extent, fuse(block))
        if reduced and size(short) == extent:
            slower, slow_block = reduced[-1]
            reduced[-1] = slower * extent, fuse((*slow_block, *short))
        else:
            reduced.append((extent, short))
    return tuple(reduced)


def regroup(reduced: Dims, shape: Sequence[int]) -> Dims | None:
    """The dims of `shape` with the same map, or None where a boundary of `shape` does not fit.

    Args:
        reduced: dims from `reduce_dims`.
        shape: extents that multiply to the size.
    """
    dims: list[Dim] = []
    rest = list(shape)
    for extent, block in reduced:
        part: list[int] = []
        while rest and prod(part) < extent:
            part.append(rest.pop(0))
        split = _split(extent, block, part) if prod(part) == extent else None
        if split is None:
            return None
        dims += split
    return (*dims, *((unit, ()) for unit in rest))


def _split(extent: int, block: Iters, part: Sequence[int]) -> Dims | None:
    if size(block) == extent:
        blocks = split_blocks(block, part)
        return None if blocks is None else tuple(zip(part, blocks, strict=True))
    slow = next(i for i, count in enumerate(part) if count > 1)
    inner = extent // part[slow]
    if size(block) % inner:
        return None
    blocks = split_blocks(block, (size(block) // inner, *part[slow + 1 :]))
    if blocks is None:
        return None
    units: Dims = tuple((1, ()) for _ in part[:slow])
    outer = part[slow], trim(part[slow], blocks[0])
    return (*units, outer, *zip(part[slow + 1 :], blocks[1:], strict=True))
