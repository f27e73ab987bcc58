"""Places: where operators read their operands, as affine functions of an index space.

Coordinates of a value are one affine function of the index per dim. They may lie outside a value
where what is put together has parts: there another part, or a fill, is meant.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import prod
from typing import NamedTuple

from axe_eq.errors import LayoutError
from axe_eq.layout import Layout, compose
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.program.ops import Pull, selector
from axe_eq.program.signature import Affine
from axe_eq.program.types import ValueType

Coords = tuple[Affine, ...]
Range = tuple[int, int]
Window = tuple[Range | None, ...]
Blocks = tuple[tuple[tuple[int, int], ...], ...]


def index_space(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """The shape whose indices may be those of all values of these shapes: see `spans`."""
    return max(shapes, key=lambda s: (len(s), s))


def spans(space: Sequence[int], shape: Sequence[int]) -> bool:
    """Whether a value of this shape is one per index of a space, or per index of some dims of it.

    These are leading dims, or all but those along which the value has a single index.
    """
    pairs = list(zip(space, shape, strict=False))
    leading = len(shape) <= len(space) and all(e == whole for whole, e in pairs)
    return leading or (len(shape) == len(space) and all(e in (1, whole) for whole, e in pairs))


def bounds(c: Affine, extents: Sequence[int]) -> Range:
    """Least and greatest value of a coordinate over an index space of these extents."""
    ends = [factor * (extents[d] - 1) for d, factor in c.terms]
    return c.offset + sum(min(e, 0) for e in ends), c.offset + sum(max(e, 0) for e in ends)


def never_inside(coords: Coords, shape: Sequence[int], extents: Sequence[int]) -> bool:
    """Whether a value of this shape has no element at any of these places."""
    ends = [bounds(c, extents) for c in coords]
    return any(high < 0 or low >= e for (low, high), e in zip(ends, shape, strict=True))


def window(coords: Coords, shape: Sequence[int], extents: Sequence[int]) -> Window | str:
    """Per index dim the range [low, high) of indices at which places lie in a value of this shape.

    None is the whole dim. A text says why there are no such ranges: a coordinate that leaves the
    value along several dims at once, or no index that lies in it.
    """
    found: list[Range | None] = [None] * len(extents)
    for c, extent in zip(coords, shape, strict=True):
        low, high = bounds(c, extents)
        if low >= 0 and high < extent:
            continue
        if high < 0 or low >= extent:
            return "reads nothing"
        if len(c.terms) != 1:
            return f"reads from {low} to {high} of extent {extent} along {len(c.terms)} dims"
        ((dim, factor),) = c.terms
        ends = (-c.offset, extent - 1 - c.offset)
        first, last = ends if factor > 0 else ends[::-1]
        begin, end = found[dim] or (0, extents[dim])
        begin, end = max(begin, -(-first // factor)), min(end, last // factor + 1)
        if begin >= end:
            return "reads nothing"
        found[dim] = begin, end
    return tuple(found)


class Read(NamedTuple):
    """A tensor read over an index space.

    Attributes:
        blocks: per index dim its iters (extent, stride), slow to fast; none where the tensor does
            not depend on it.
        offset: the element at index 0, which may lie outside the tensor.
        window: as of `window`.
    """

    blocks: Blocks
    offset: int
    window: Window


def index_in(shape: Sequence[int], coords: Coords, rank: int) -> tuple[int, list[int]]:
    """The row-major index in a value of this shape at `coords`: at index 0, and per index dim."""
    strides, offset, size = [0] * rank, 0, prod(shape)
    for c, extent in zip(coords, shape, strict=True):
        size //= extent
        offset += c.offset * size
        for dim, factor in c.terms:
            strides[dim] += factor * size
    return offset, strides


@lru_cache(maxsize=1 << 14)
def read(
    layout: Layout, coords: Coords, shape: tuple[int, ...], extents: tuple[int, ...]
) -> Read | str:
    """A tensor of this shape that lies in a layout of one axis, read at `coords`.

    It is the composition of the layout with the affine map from the index space, where that is one:
    a text says why it is none.
    """
    bounded = window(coords, shape, extents)
    if isinstance(bounded, str):
        return bounded
    begin = [w[0] if w else 0 for w in bounded]
    inside = tuple(w[1] - w[0] if w else e for w, e in zip(bounded, extents, strict=True))
    offset, strides = index_in(shape, coords, len(extents))
    shift = sum(b * s for b, s in zip(begin, strides, strict=True))
    # Other dims may be many, and together of more indices than a layout can have.
    met = [d for d, stride in enumerate(strides) if stride]
    try:
        affine = Layout(
            [(inside[d], strides[d], DEFAULT_AXIS) for d in met],
            offset={DEFAULT_AXIS: offset + shift},
        )
        made = compose(layout, affine)
        grouped = made.group([inside[d] for d in met]).blocks
    except LayoutError as error:
        return f"is read through {layout} in a way no strides describe ({error})"
    found = {
        d: tuple((e, s) for e, s, _ in b if e != 1)
        for d, b in zip(met, grouped, strict=True)
        if any(s for _, s, _ in b)
    }
    blocks = tuple(found.get(d, ()) for d in range(len(extents)))
    if any(len(b) > 1 and w for b, w in zip(blocks, bounded, strict=True)):
        return f"is cut inside the blocks of {layout}"
    first = made.offset.get(DEFAULT_AXIS, 0)
    first -= sum(b * s[0][1] for b, s in zip(begin, blocks, strict=True) if b and s)
    return Read(blocks, first, bounded)


def along(coords: Coords, axis: int, shape: Sequence[int], extents: Sequence[int]) -> int:
    """The dim of the index space that is an axis of a value read at `coords`, index by index.

    It is the only coordinate that depends on that dim; -1 where there is no such dim.
    """
    dim = coords[axis].plain
    if dim is None or extents[dim] != shape[axis]:
        return -1
    others = (c for d, c in enumerate(coords) if d != axis)
    return -1 if any(d == dim for c in others for d, _ in c.terms) else dim


def pulls(text: str, types: Sequence[ValueType]) -> list[list[Pull | None]]:
    """Per operand of a selector and dim of it, where it is read; None where that is not affine."""
    declared, params = selector(text)
    if not types:
        return []
    return declared.pull(params, types) if declared.pull else [[None] * t.rank for t in types]


def at(row: Sequence[Pull | None], coords: Coords) -> Coords:
    """Where an operand with a pull for every dim is read, given where the value is read."""
    return tuple(
        Affine.of({0: p.scale}, p.offset).substitute({0: coords[p.axis]}) for p in row if p
    )


def pulled(text: str, types: Sequence[ValueType], coords: Coords) -> list[Coords] | None:
    """Where a selector reads each operand, given where its value is read; None if not affine."""
    found = []
    for row in pulls(text, types):
        if None in row:
            return None
        found.append(at(row, coords))
    return found


class Selecting(NamedTuple):
    """What a selector does with its operands, as far as reading them goes.

    Attributes:
        views: its value has the elements of its operand in their order, so nothing moves.
        strided: where it reads its one operand, if the value is a strided part of that.
        cut: as `Selector.cut`: the axis that it reads in parts, and how long these are.
        looked: operands that are read where integers say.
        scattered: some operand is read where no affine map says.
        joins: its value is put together from parts: of several operands, or of one and a fill.
        positions: its value is its index.
    """

    views: bool = False
    strided: tuple[Pull, ...] = ()
    cut: tuple[int, int] | None = None
    looked: frozenset[int] = frozenset()
    scattered: bool = False
    joins: bool = False
    positions: bool = False

    @property
    def is_part(self) -> bool:
        """Whether its value is a strided part of its operand, or parts of it."""
        return bool(self.strided) or self.cut is not None

    def below(self, coords: Coords) -> Coords:
        """Where the operand of such a part is read, given where the part is."""
        if self.cut is None:
            return at(self.strided, coords)
        axis, length = self.cut
        along = Affine(((0, length), (1, 1))).substitute({0: coords[axis], 1: coords[axis + 1]})
        return (*coords[:axis], along, *coords[axis + 2 :])


@lru_cache(maxsize=4096)
def selecting(text: str, types: tuple[ValueType, ...]) -> Selecting:
    """What a selector of operands of these types does with them.

    >>> from axe_eq.program.types import value_type
    >>> selecting("slice ((1,2,2),)", (value_type("f32[4]"),)).strided
    (Pull(axis=0, scale=2, offset=1),)
    """
    declared, params = selector(text)
    if declared.inverse is not None:
        return Selecting(views=True)
    if declared.cut is not None:
        return Selecting(cut=declared.cut(params))
    filled = declared.fill is not None and declared.fill(params) is not None
    if not types:
        return Selecting(positions=not filled)
    rows, looks = pulls(text, types), declared.look(params, types) if declared.look else ()
    scattered = any(None in row for row in rows)
    joins = not looks and (filled or declared.arity != 1)
    strided = tuple(p for p in rows[0] if p) if not (scattered or joins or looks) else ()
    looked = frozenset(look.operand for look in looks)
    return Selecting(False, strided, None, looked, scattered, joins)


def viewed(
    shape: Sequence[int], coords: Coords, operand: Sequence[int], extents: Sequence[int]
) -> Coords | None:
    """Places in an operand whose elements, in order, are those of a value read at `coords`.

    None where some dim of the operand is no whole number of steps of the index dims.
    """
    terms, offset, size = dict[int, int](), 0, 1
    for c, extent in zip(reversed(coords), reversed(shape), strict=True):
        offset += c.offset * size
        for dim, factor in c.terms:
            terms[dim] = terms.get(dim, 0) + factor * size
        size *= extent
    at: list[Affine] = []
    for extent in operand:  # the terms that are whole steps of this dim, the slowest one first
        size //= extent
        here = {dim: factor // size for dim, factor in terms.items() if factor % size == 0}
        terms = {dim: factor for dim, factor in terms.items() if dim not in here}
        at.append(Affine.of(here, offset // size))
        offset %= size
        low, high = bounds(at[-1], extents)
        if low < 0 or high >= extent:
            return None
    return None if terms else tuple(at)
