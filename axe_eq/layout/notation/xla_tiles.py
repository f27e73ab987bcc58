"""XLA's tiling of an array, as cells of the logical index.

Each tile splits dimensions, ``i -> (i // t, i % t)``, and puts the remainders behind the quotients;
``*`` first combines a dimension with the next more minor one. The splits are kept as a tree per
logical dimension; when all tiles are applied the strides are known, and the trees are read off.

Source: XLA, "Tiled layout" (linear index formulas, repeated tiling, combining dimensions).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from axe_eq.layout.normal.chains import build, ladder_of
from axe_eq.layout.normal.ladders import Steps, boxes_of, split
from axe_eq.layout.normal.nested_boxes import Stage
from axe_eq.layout.notation.cells import Cell, cut, layout_of, trimmed, truncated
from axe_eq.layout.value.check import MAX_VALUE
from axe_eq.layout.value.iters import DEFAULT_AXIS, Iter
from axe_eq.layout.value.layout import Layout

COMBINE = -1
"""The tile entry ``*``: combine this dimension with the next more minor one."""


class TilingError(Exception):
    """A tiling that one padded box does not express; the text says why."""


class _Dim:
    """A dimension while tiles are applied: whole, split in two, or combined with neighbours."""

    def __init__(self, valid: int, extent: int) -> None:
        self.valid, self.extent = valid, extent
        self.stride = 0
        self.tile = 0
        self.halves: tuple[_Dim, _Dim] | None = None
        self.combined: _Combined | None = None

    def cells(self) -> list[Cell]:
        """The cells of this dimension's index."""
        if self.combined is not None:
            return self.combined.cells_of(self)
        if self.halves is None:
            return [Cell(self.valid, ((self.extent, self.stride, DEFAULT_AXIS),))]
        slow, fast = (half.cells() for half in self.halves)
        slow = slow or [Cell(1, ())]  # part of a combined dimension, of extent 1
        lower = slow[1:] + fast
        if not all(cell.is_exact for cell in lower):
            if self.valid % self.tile == 0:
                return slow + fast
            if self.valid < self.tile and (few := truncated(fast, self.valid)):
                return slow + few
        block = slow[0].block
        for cell in lower:
            exact = cell.block if cell.is_exact else trimmed(cell)
            if exact is None:
                raise TilingError(f"a tile pads inside the padded extent {self.valid}")
            block += exact
        return [Cell(self.valid, block)]

    def is_combined(self) -> bool:
        """Whether this dimension or a part of it was combined with others."""
        return self.combined is not None or any(half.is_combined() for half in self.halves or ())

    def steps(self) -> list[tuple[int, int, int]]:
        """Level, room and stride of every digit of this dimension's index, slow to fast."""
        if self.halves is None:
            return [(1, self.extent, self.stride)] if self.extent > 1 else []
        slow, fast = self.halves
        upper = [(level * self.tile, room, stride) for level, room, stride in slow.steps()]
        return upper + fast.steps()


class _Combined:
    """Neighbouring dimensions that ``*`` made into one, `whole`."""

    def __init__(self, parts: list[_Dim]) -> None:
        extent = prod(part.extent for part in parts)
        valid = extent // parts[0].extent * parts[0].valid
        self.parts, self.whole = parts, _Dim(valid, extent)
        for part in parts:
            part.combined = self

    def cells_of(self, part: _Dim) -> list[Cell]:
        """One part's cells of the combined index."""
        extents = [dim.extent for dim in self.parts]
        shares = cut(self.whole.cells(), extents)
        if shares is None:
            raise TilingError(f"a tile cuts across the combined extents {tuple(extents)}")
        place = self.parts.index(part)
        if place == 0 or part.valid == part.extent:
            return shares[place]
        few = truncated(shares[place], part.valid)
        if few is None:
            raise TilingError(f"a tile pads inside the padded extent {part.valid}")
        return few

    def is_run(self, dims: Sequence[_Dim]) -> bool:
        """Whether these are the parts, in logical order and without padding of their own."""
        return list(dims) == self.parts and all(dim.valid == dim.extent for dim in dims)


class _Tiling:
    """The dimensions of an array in physical order, major to minor, as tiles are applied."""

    def __init__(self, dims: list[_Dim]) -> None:
        self.dims = dims
        self.units: list[_Dim] = []

    def apply(self, tile: Sequence[int]) -> None:
        """Applies one tile to the most minor dimensions."""
        while len(self.dims) < len(tile):
            self.dims.insert(0, self._unit())
        place = len(self.dims) - len(tile)
        slow, fast, run = [], [], []
        for dim, extent in zip(self.dims[place:], tile, strict=True):
            run.append(dim)
            if extent == COMBINE:
                continue
            real = [part for part in run if part.extent > 1] or [dim]
            whole = real[0] if len(real) == 1 else _Combined(run).whole
            quotient, remainder = self._split(whole, extent)
            slow.append(quotient)
            fast.append(remainder)
            run = []
        self.dims = self.dims[:place] + slow + fast
        elements = prod(dim.extent for dim in self.dims)
        if elements > MAX_VALUE:
            raise TilingError(f"{elements} elements with padding")

    def _split(self, dim: _Dim, tile: int) -> tuple[_Dim, _Dim]:
        if tile == 1:
            return dim, self._unit()
        if dim.extent <= tile:
            dim.extent = tile
            return self._unit(), dim
        dim.tile = tile
        dim.halves = _Dim(-(-dim.valid // tile), -(-dim.extent // tile)), _Dim(tile, tile)
        return dim.halves

    def _unit(self) -> _Dim:
        self.units.append(_Dim(1, 1))
        return self.units[-1]

    def place(self) -> None:
        """Gives every dimension its stride: the tiled array is dense, major to minor."""
        stride = 1
        for dim in reversed(self.dims):
            dim.stride = stride
            stride *= dim.extent


def tile_array(
    shape: Sequence[int], minor_to_major: Sequence[int], tiles: Sequence[Sequence[int]]
) -> Layout:
    """A tiled array on the axis ``m``: with one box where that does, else with boxes in boxes.

    Args:
        shape: logical extents, slow to fast.
        minor_to_major: logical dimensions from the most minor one.
        tiles: per tile its extents, major to minor; `COMBINE` for ``*``.

    Raises:
        TilingError: more elements, with padding, than a layout has.
    """
    logical = [_Dim(extent, extent) for extent in shape]
    tiling = _Tiling([logical[dim] for dim in reversed(minor_to_major)])
    for tile in tiles:
        tiling.apply(tile)
    tiling.place()
    try:
        cells = _logical_cells(logical)
        holes = tuple(item for unit in tiling.units for cell in unit.cells() for item in cell.block)
    except TilingError:
        if any(dim.is_combined() for dim in (*tiling.units, *logical)):
            return _reordered(shape, minor_to_major, tiles)
        return _nested(logical, tiling.units)
    if all(extent == 1 for extent, _, _ in holes):
        return layout_of(cells)
    first = cells[0] if cells else Cell(1, ())
    return layout_of([Cell(first.valid, holes + first.block), *cells[1:]])


def _nested(logical: Sequence[_Dim], units: Sequence[_Dim]) -> Layout:
    """Boxes in boxes of dimensions that no tile combines: the digits of each are a ladder."""
    holes = [step for unit in units for step in unit.steps()]
    fields: list[tuple[int, Steps]] = []
    shard: list[Iter] = [(room, stride, DEFAULT_AXIS) for _, room, stride in holes]
    for place, dim in enumerate(logical):
        steps = dim.steps()
        shard += [(room, stride, DEFAULT_AXIS) for _, room, stride in steps]
        rooms = [(level, room) for level, room, _ in steps]
        if place == 0:
            top = rooms[0][0] * rooms[0][1] if rooms else 1
            for _, room, _ in reversed(holes):
                rooms.insert(0, (top, room))
                top *= room
        fields.append((dim.valid, tuple(rooms)))
    (box, padded), *inner = boxes_of(fields, keep=True)
    return Layout(shard, (), {}, (), box, padded, inner)


def _reordered(
    shape: Sequence[int], minor_to_major: Sequence[int], tiles: Sequence[Sequence[int]]
) -> Layout:
    """Boxes in boxes by XLA's definition: every tile combines, pads, splits and reorders.

    As a ladder, without the reorderings, where it is one that needs all of the memory.
    """
    order = list(reversed(minor_to_major))
    extents = [shape[dim] for dim in order]
    stages: list[Stage] = []
    for tile in tiles:
        missing = len(tile) - len(extents)
        if missing > 0:
            order = [*range(missing), *(dim + missing for dim in order)]
            extents = [1] * missing + extents
        if COMBINE in tile:
            stages.append(Stage(tuple(extents), tuple(extents), tuple(order)))
            extents = _combined(extents, tile)
            order = list(range(len(extents)))
            tile = [count for count in tile if count != COMBINE]
        kept = len(extents) - len(tile)
        counts = [-(-n // t) for n, t in zip(extents[kept:], tile, strict=True)]
        padded = [*extents[:kept], *(n * t for n, t in zip(counts, tile, strict=True))]
        stages.append(Stage(tuple(extents), tuple(padded), tuple(order)))
        extents = [*extents[:kept], *counts, *tile]
        slow = range(kept, len(extents), 2)
        order = [*range(kept), *slow, *(place + 1 for place in slow)]
    stride, strides = 1, [0] * len(extents)
    for place, extent in zip(reversed(order), reversed(extents), strict=True):
        strides[place] = stride
        stride *= extent
    incoming = [extents[order.index(place)] for place in range(len(extents))]
    shard = [(n, s, DEFAULT_AXIS) for n, s in zip(incoming, strides, strict=True) if n > 1]
    tidied = [stage for stage in map(_tidied, stages) if stage.order or stage.box != stage.padded]
    if not tidied:  # nothing is padded, but digits lie across dimensions
        return Layout(shard)
    layout = Layout(shard, (), {}, (), shape, shape, tidied)
    ladder = ladder_of(layout)
    if ladder is None:
        return layout
    parts = split(layout.size, ladder, shape)
    fields = [(layout.size, ladder)] if parts is None else list(zip(shape, parts, strict=True))
    plain = build(fields, (), (), keep=True)
    return plain if plain.footprint == layout.footprint else layout


def tiled_extents(extents: Sequence[int], tile: Sequence[int]) -> list[int]:
    """The extents of an array, major to minor, once a tile is applied."""
    extents = _combined([1] * (len(tile) - len(extents)) + list(extents), tile)
    tile = [count for count in tile if count != COMBINE]
    kept = len(extents) - len(tile)
    counts = [-(-extent // count) for extent, count in zip(extents[kept:], tile, strict=True)]
    return [*extents[:kept], *counts, *tile]


def _combined(extents: Sequence[int], tile: Sequence[int]) -> list[int]:
    """The extents once every ``*`` has combined a dimension with the next more minor one."""
    kept = len(extents) - len(tile)
    found, run = list(extents[:kept]), 1
    for extent, count in zip(extents[kept:], tile, strict=True):
        run *= extent
        if count != COMBINE:
            found.append(run)
            run = 1
    return found


def _tidied(stage: Stage) -> Stage:
    """The stage without dims of 1."""
    kept = [dim for dim, extent in enumerate(stage.padded) if extent > 1]
    old = sorted(stage.order[dim] for dim in kept)
    order = tuple(old.index(stage.order[dim]) for dim in kept)
    box, padded = (tuple(part[dim] for dim in kept) for part in (stage.box, stage.padded))
    return Stage(box, padded, () if order == tuple(range(len(kept))) else order)


def _logical_cells(logical: Sequence[_Dim]) -> list[Cell]:
    cells: list[Cell] = []
    position = 0
    while position < len(logical):
        dim, count = logical[position], 1
        try:
            cells += dim.cells()
        except TilingError:
            run = dim.combined
            count = len(run.parts) if run else 1
            if run is None or not run.is_run(logical[position : position + count]):
                raise
            cells += run.whole.cells()
        position += count
    return cells
