"""Cells: a padded layout on one axis as digits of the logical index, slow to fast.

A cell has `valid` values, the first ones of those that its block of iters holds. A layout without a
box is one exact cell, a boxed one has a cell per dim of its box. Notations that pad inside
(repeated tiles, uneven shards) are read into cells and written from cells.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import NamedTuple

from axe_eq.layout.value import iters as it
from axe_eq.layout.value.boxes import trim
from axe_eq.layout.value.iters import Iters
from axe_eq.layout.value.layout import Layout
from axe_eq.layout.value.swizzle import Swizzle


class Cell(NamedTuple):
    """A digit of the logical index: `valid` values, laid out by `block`."""

    valid: int
    block: Iters

    @property
    def whole(self) -> int:
        """The number of values with padding."""
        return it.size(self.block)

    @property
    def is_exact(self) -> bool:
        """Whether the cell has no padding."""
        return self.valid == self.whole


def cells_of(layout: Layout) -> list[Cell]:
    """The cells of a layout: one per dim of its box, or one for all of it."""
    return [Cell(extent, block) for extent, block in layout.dims()]


def layout_of(
    cells: Sequence[Cell],
    replica: Iters = (),
    offset: dict[str, int] | None = None,
    swizzles: Sequence[Swizzle] = (),
) -> Layout:
    """The layout of cells; the box is their valid extents, if any cell is padded."""
    shard = [item for cell in cells for item in it.fuse(cell.block)]
    if all(cell.is_exact for cell in cells):
        return Layout(shard, replica, offset, swizzles)
    box, padded = [cell.valid for cell in cells], [cell.whole for cell in cells]
    return Layout(shard, replica, offset, swizzles, box, padded)


def trimmed(cell: Cell) -> Iters | None:
    """Iters for just the valid values of a cell, or None where no iter list has exactly these."""
    block = trim(cell.valid, it.fuse(cell.block))
    return block if it.size(block) == cell.valid else None


def cut(cells: Iterable[Cell], extents: Sequence[int]) -> list[list[Cell]] | None:
    """Cuts cells into consecutive shares with `extents` valid values each.

    Returns:
        One list of cells per extent, the first takes what the others leave; none for a tensor
        without dims, whose only element needs no cell; None where a boundary
        falls inside a cell that cannot be split there.
    """
    rest = list(cells)
    if [cell.valid for cell in rest] == list(extents):
        return [[cell] for cell in rest]
    if not extents:
        return []
    shares: list[list[Cell]] = []
    for extent in reversed(extents[1:]):
        share: list[Cell] = []
        unit = extent == 1
        while extent > 1 or (unit and rest and rest[-1].valid == 1):
            if not rest:
                return None
            cell = rest.pop()
            if extent % cell.valid:
                pieces = _split(cell, extent)
                if pieces is None:
                    return None
                slow, cell = pieces
                rest.append(slow)
            share.insert(0, cell)
            extent //= cell.valid
        shares.insert(0, share)
    return [rest, *shares]


def _split(cell: Cell, extent: int) -> tuple[Cell, Cell] | None:
    if cell.valid % extent or cell.whole % extent:
        return None
    blocks = it.split_blocks(it.fuse(cell.block), (cell.whole // extent, extent))
    if blocks is None:
        return None
    return Cell(cell.valid // extent, blocks[0]), Cell(extent, blocks[1])


def truncated(cells: Sequence[Cell], valid: int) -> list[Cell] | None:
    """The same cells with fewer valid values in total, or None where they do not form cells."""
    if not cells:
        return []
    count, rest = divmod(valid, prod(cell.valid for cell in cells[1:]))
    return None if rest else [Cell(count, cells[0].block), *cells[1:]]
