"""Regions of shapes, as laws compute them: texts of bounds in, texts out."""

from __future__ import annotations

from axe_eq.layout.symbolic.polynomial import poly
from axe_eq.layout.symbolic.shapes import (
    perm_text,
    read_perm,
    read_region,
    read_shape,
    region_text,
    shape_text,
)
from axe_eq.rule.term import INT, STR, primitive


@primitive((STR, STR), (INT,))
def is_whole(shape: str, region: str) -> int | None:
    """1 for the region that is all of a shape."""
    extents, bounds = read_shape(shape), read_region(region)
    whole = [(begin == 0 and end == n) for (begin, end), n in zip(bounds, extents, strict=False)]
    return 1 if len(extents) == len(bounds) and all(whole) else None


@primitive((STR, STR), (STR, STR))
def run_of(shape: str, region: str) -> tuple[str, str] | None:
    """The elements of a shape of several dims, and the region as one run of them, if it is one."""
    extents, bounds = read_shape(shape), read_region(region)
    if len(extents) != len(bounds) or len(extents) < 2:
        return None
    start, length, elements = poly(0), poly(1), poly(1)
    for extent, (begin, end) in zip(extents[::-1], bounds[::-1], strict=True):
        if length != elements and end - begin != 1:
            return None  # a faster dim is not taken whole
        start, length = start + begin * elements, length * (end - begin)
        elements = elements * extent
    return shape_text([elements]), region_text([(start, start + length)])


@primitive((STR,), (STR,))
def extents_of(region: str) -> str:
    """The shape of a region."""
    return shape_text(end - begin for begin, end in read_region(region))


@primitive((STR, STR), (STR,))
def region_within(outer: str, inner: str) -> str | None:
    """A region of a region, as a region of the whole."""
    one, two = read_region(outer), read_region(inner)
    if len(one) != len(two):
        return None
    pairs = zip(one, two, strict=True)
    return region_text((begin + b, begin + e) for (begin, _), (b, e) in pairs)


@primitive((STR, STR), (STR,))
def region_in_tiles(region: str, shape: str) -> str | None:
    """The region of tiles that a region is; undefined where it cuts one."""
    bounds, extents = read_region(region), read_shape(shape)
    if len(bounds) != len(extents):
        return None
    found = []
    for (begin, end), n in zip(bounds, extents, strict=True):
        ends = begin.divided(n), end.divided(n)
        if ends[0] is None or ends[1] is None:
            return None
        found.append((ends[0], ends[1]))
    return region_text(found)


@primitive((STR, STR), (STR,))
def region_permuted(region: str, perm: str) -> str | None:
    """A region with its dims in another order."""
    bounds, order = read_region(region), read_perm(perm)
    return region_text(bounds[dim] for dim in order) if len(bounds) == len(order) else None


@primitive((STR,), (STR,))
def perm_inverse(perm: str) -> str:
    """The permutation that undoes one."""
    order = read_perm(perm)
    return perm_text(order.index(dim) for dim in range(len(order)))
