"""XLA's tiling of an array, as cells of the logical index.

Each tile splits dimensions, ``i -> (i // t, i % t)``, and puts the remainders behind the quotients;
``*`` first combines a dimension with the next more minor one. The splits are kept as a tree per
logical dimension; when all tiles are applied the strides are known, and the trees are read off.

Source: XLA, "Tiled layout" (linear index formulas, repeated tiling, combining dimensions).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from axe_eq.layout.check import MAX_VALUE
from axe_eq.layout.iters import DEFAULT_AXIS
from axe_eq.layout.levels import NoIters
from axe_eq.layout.notation import f2
from axe_eq.layout.notation.cells import Cell, cells_of, cut, trimmed, truncated
from axe_eq.layout.notation.common import MAX_DECIDED
from axe_eq.layout.swizzle import Swizzle
from axe_eq.layout.tables import from_points

COMBINE = -1
"""The tile entry ``*``: combine this dimension with the next more minor one."""


class TilingError(Exception):
    """A tiling that no padded layout expresses; the text says why."""


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

    def leaves(self) -> list[_Dim]:
        """The unsplit dimensions that this one consists of, slow to fast."""
        if self.halves is None:
            return [self]
        return [leaf for half in self.halves for leaf in half.leaves()]


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
            quotient, remainder = self._split(
                dim if len(run) == 1 else _Combined(run).whole, extent
            )
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
) -> tuple[list[Cell], list[Swizzle]]:
    """The cells of a tiled array on the axis ``m``, and swizzles to apply to the coordinate.

    Args:
        shape: logical extents, slow to fast.
        minor_to_major: logical dimensions from the most minor one.
        tiles: per tile its extents, major to minor; `COMBINE` for ``*``.

    Returns:
        One cell per logical dimension, or finer ones where a tile pads inside another. Swizzles
        are needed where a tile pads inside a dimension that an earlier tile has padded.

    Raises:
        TilingError: the tiled index is no padded mixed-radix map of the logical one.
    """
    logical = [_Dim(extent, extent) for extent in shape]
    tiling = _Tiling([logical[dim] for dim in reversed(minor_to_major)])
    for tile in tiles:
        tiling.apply(tile)
    tiling.place()
    swizzles: list[Swizzle] = []
    try:
        cells = _logical_cells(logical)
    except TilingError as error:
        found = _decided(shape, minor_to_major, tiles)
        if found is not None:
            return found, []
        swizzles = _straightened([*tiling.units, *logical], error)
        cells = _logical_cells(logical)
    holes = tuple(item for unit in tiling.units for cell in unit.cells() for item in cell.block)
    if all(extent == 1 for extent, _, _ in holes):
        return cells, swizzles
    first = cells[0] if cells else Cell(1, ())
    return [Cell(first.valid, holes + first.block), *cells[1:]], swizzles


def _decided(
    shape: Sequence[int], minor_to_major: Sequence[int], tiles: Sequence[Sequence[int]]
) -> list[Cell] | None:
    """The cells found by enumerating the elements, or None: there are none, or too many elements.

    The digits may fall together although the tiles do not line up with each other.
    """
    if prod(shape) > MAX_DECIDED:
        return None
    places = np.indices(shape).reshape(len(shape), -1)
    dims = [(shape[dim], places[dim]) for dim in reversed(minor_to_major)]
    for tile in tiles:
        dims = [(1, np.zeros_like(places[0]))] * (len(tile) - len(dims)) + dims
        kept, slow, fast = dims[: len(dims) - len(tile)], [], []
        extent, place = 1, np.zeros_like(places[0])
        for count, (whole, index) in zip(tile, dims[len(kept) :], strict=True):
            extent, place = extent * whole, place * whole + index
            if count != COMBINE:
                slow.append((-(-extent // count), place // count))
                fast.append((count, place % count))
                extent, place = 1, np.zeros_like(places[0])
        dims = kept + slow + fast
    offset = np.zeros_like(places[0])
    for extent, place in dims:
        offset = offset * extent + place
    try:
        layout = from_points(offset[:, None, None], (DEFAULT_AXIS,), boxed=True)
    except NoIters:
        return None
    return cells_of(layout)


def _straightened(dims: Sequence[_Dim], error: TilingError) -> list[Swizzle]:
    """Moves the digits of every remainder side by side, and returns the swizzles that undo it.

    Side by side, the digits of a remainder are one number again, of which a box can keep the first
    values. All extents must be powers of two: only bits can be put back by swizzles.
    """
    groups: list[list[_Dim]] = []
    for dim in dims:
        slow, fast = dim.halves or (dim, _Dim(1, 1))
        groups += [[leaf] for leaf in slow.leaves()] + [fast.leaves()]
    leaves = [leaf for group in groups for leaf in group]
    if any(leaf.combined or leaf.extent & (leaf.extent - 1) for leaf in leaves):
        raise error
    groups.sort(key=lambda group: min(leaf.stride for leaf in group))
    columns: list[int] = []
    for leaf in (leaf for group in groups for leaf in reversed(group)):
        bits = leaf.extent.bit_length() - 1
        columns += [leaf.stride << bit for bit in range(bits)]
        leaf.stride = 1 << len(columns) - bits
    return f2.swizzles(columns, DEFAULT_AXIS)


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
