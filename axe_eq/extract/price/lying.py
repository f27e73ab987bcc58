"""How values lie in memory, as loads and stores of cones say it: strides, a first element."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from math import gcd, prod
from typing import NamedTuple

from axe_eq.errors import LayoutError
from axe_eq.extract.read.forest import LOAD, Choice, Forest, TileClass
from axe_eq.layout import Layout
from axe_eq.program.places import Blocks, Coords
from axe_eq.program.signature import Affine, plain
from axe_eq.schedule import box as boxes
from axe_eq.schedule.summary import ANY_ALIGNMENT, Access
from axe_eq.schedule.window import in_window, remote


class Place(NamedTuple):
    """Where elements lie.

    Attributes:
        blocks: per dim its iters (extent, stride), slow to fast; none of single elements.
        offset: the element at index 0.
        is_dense: they follow each other in order.
    """

    blocks: Blocks
    offset: int = 0
    is_dense: bool = False

    @property
    def is_plain(self) -> bool:
        """Whether every dim has one stride."""
        return all(len(block) <= 1 for block in self.blocks)

    @property
    def apart(self) -> int:
        """Elements that divide what `Access.aligned` names; 0 where that is 0."""
        strides = [[(e, step) for e, step in block if step] for block in self.blocks]
        steps = [step for block in strides for _, step in block]
        if min(steps, default=1) < 0 or (steps and 1 not in steps):
            return 0
        runs = (block[-1][0] for block in strides if len(block) > 1 and block[-1][1] == 1)
        return gcd(*(step for step in steps if step > 1), *runs, self.offset) or ANY_ALIGNMENT

    @property
    def fast(self) -> tuple[int, ...]:
        """The dim whose neighbours are neighbours in memory."""
        dims = enumerate(self.blocks)
        return tuple(d for d, block in dims if any(abs(step) == 1 for _, step in block))[:1]

    def seen(self, coords: Coords, shape: Sequence[int]) -> Place | None:
        """Where the elements of a value of this shape lie that are those at `coords` of this one.

        None where a dim in blocks is read otherwise than from its first index on, one by one.
        """
        blocks, offset = [tuple[tuple[int, int], ...]()] * len(shape), self.offset
        for c, block in zip(coords, self.blocks, strict=True):
            if len(block) > 1:
                if c.plain is None:
                    return None
                blocks[c.plain] = block
                continue
            stride = block[0][1] if block else 0
            offset += c.offset * stride
            for dim, factor in c.terms:
                if stride and shape[dim] > 1:
                    blocks[dim] = ((shape[dim], factor * stride),)
        return Place(tuple(blocks), offset)


@cache
def lies(text: str, shape: tuple[int, ...]) -> Place | None:
    """Where a value of this shape lies in a layout; None where strides do not say it."""
    layout = in_window(Layout.parse(text), 1)
    try:
        blocks = layout.group(shape).blocks
    except LayoutError:
        return None
    if not layout.is_linear():
        return None
    kept = tuple(tuple((e, step) for e, step, _ in block if e > 1) for block in blocks)
    return Place(kept, sum(layout.offset.values()), len(layout.shard) < 2)


def access(tile: TileClass, layout: str, passes: int, fed: bool, lying: bool) -> Access:
    """A load or store of a value in a layout; `lying` gives its strides as well."""
    key = layout, passes, fed, lying
    if key not in tile.known:
        size, place = tile.type.itemsize, _of_box(layout, tile.type.shape, tile.box)
        pairs = zip(boxes.parse(tile.box), place.blocks if place else (), strict=False)
        strides = tuple((x.letter, e, step) for x, block in pairs for e, step in block if step)
        fast = next((x for x, _, step in strides if step == 1), "")
        copies = prod(e for e, step, _ in Layout.parse(layout).shard if not step) if place else 1
        aligned = in_bytes(place.apart, size) if place else 0
        where = (strides, place.offset) if lying and place else ((), 0)
        n_bytes = tile.type.n_bytes / copies
        tile.known[key] = Access(
            n_bytes, tile.key, tile.star, size, passes, fed, aligned, *where, fast, remote(layout)
        )  # fmt: skip
    found: Access = tile.known[key]
    return found


def in_bytes(apart: int, itemsize: int) -> int:
    """`Access.aligned` of elements."""
    return apart * itemsize if apart < ANY_ALIGNMENT else ANY_ALIGNMENT


@cache
def _of_box(layout: str, shape: tuple[int, ...], box: str) -> Place | None:
    """Where the elements of a box lie, of a value of this shape."""
    whole = lies(layout, shape)
    coords = tuple(Affine.of({d: e.scale}, e.offset) for d, e in enumerate(boxes.parse(box)))
    return whole.seen(coords, shape) if whole else None


def part_of(tile: int, picks: Mapping[int, Choice]) -> int:
    """The load of which a tile is a strided part, or parts; the tile itself where it is none.

    A slice, a flip or a stride of a value in memory is one of its layout, so a product takes it as
    it takes whole values.
    """
    below = tile
    while (selects := picks[below].selects) and selects.is_part:
        (below,) = picks[below].children
    return below if picks[below].kind == LOAD else tile


def as_it_lies(forest: Forest, tile: int, picks: Mapping[int, Choice]) -> tuple[int, Place | None]:
    """`part_of`, and where the elements of the part lie; None where strides do not say it."""
    end, type_ = part_of(tile, picks), forest.tiles[tile].type
    held = lies(picks[end].layout, forest.tiles[end].type.shape) if picks[end].layout else None
    if end == tile or held is None:
        return end, held
    coords, below = tuple(map(plain, range(type_.rank))), tile
    while below != end:
        selects = picks[below].selects
        assert selects is not None
        coords, (below,) = selects.below(coords), picks[below].children
    return end, held.seen(coords, type_.shape)
