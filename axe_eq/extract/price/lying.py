"""How values lie in memory, as loads and stores of cones say it: strides, a first element."""

from __future__ import annotations

from functools import cache
from math import gcd, prod
from typing import NamedTuple

from axe_eq.errors import LayoutError
from axe_eq.extract.read.forest import TileClass
from axe_eq.layout import Layout
from axe_eq.schedule import box as boxes
from axe_eq.schedule.summary import ANY_ALIGNMENT, Access


class _Place(NamedTuple):
    """How a box of a value lies in memory: `strides` and `offset` as in `Access`.

    Attributes:
        apart: elements that divide what `Access.aligned` names; 0 where that is 0.
        copies: elements of the value per element of memory.
    """

    strides: tuple[tuple[str, int, int], ...]
    offset: int
    apart: int
    copies: int = 1


def access(tile: TileClass, layout: str, passes: int, fed: bool, lying: bool) -> Access:
    """A load or store of a value in a layout; `lying` gives its strides as well."""
    place = _place(layout, tile.type.shape, tile.box)
    size, n_bytes = tile.type.itemsize, tile.type.n_bytes / place.copies
    aligned = place.apart * size if place.apart < ANY_ALIGNMENT else ANY_ALIGNMENT
    where = (place.strides, place.offset) if lying else ((), 0)
    fast = next((x for x, _, step in place.strides if step == 1), "")
    return Access(n_bytes, tile.key, tile.star, size, passes, fed, aligned, *where, fast)


@cache
def _place(text: str, shape: tuple[int, ...], box: str) -> _Place:
    """Where a box of a value of this shape lies in a layout."""
    layout = Layout.parse(text)
    try:
        blocks = layout.group(shape).blocks
    except LayoutError:
        return _Place((), 0, 0)
    if layout.swizzle:
        return _Place((), 0, 0)
    copies = prod(e for block in blocks for e, stride, _ in block if not stride)
    offset, strides, runs = sum(layout.offset.values()), list[tuple[str, int, int]](), [0]
    for entry, block in zip(boxes.parse(box), blocks, strict=True):
        rest, inner = entry.offset, len(strides)
        for position, (extent, stride, _) in reversed(list(enumerate(block))):
            offset += (rest % extent if position else rest) * stride
            rest //= extent
            if extent > 1 and stride and entry.scale:
                strides.insert(inner, (entry.letter, extent, stride * entry.scale))
        if len(strides) > inner + 1 and strides[-1][2] == 1:
            runs.append(strides[-1][1])
    steps = [stride for _, _, stride in strides]
    if min(steps, default=1) < 0 or (steps and 1 not in steps):
        return _Place(tuple(strides), offset, 0, copies)
    apart = gcd(*(s for s in steps if s > 1), *runs, offset) or ANY_ALIGNMENT
    return _Place(tuple(strides), offset, apart, copies)


def contiguous(text: str, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The dim whose neighbours are neighbours in memory; none where strides do not say it."""
    try:
        blocks = Layout.parse(text).group(shape).blocks
    except LayoutError:
        return ()
    return tuple(d for d, b in enumerate(blocks) if any(e > 1 and s == 1 for e, s, _ in b))[:1]
