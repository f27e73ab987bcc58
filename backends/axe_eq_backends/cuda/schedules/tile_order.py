"""Tiles of a stream: how many chunks each one runs, and in which order CTAs take them.

CTA c of n takes the tiles numbered c, c + n, c + 2 n, and so on, so a kernel takes as long as the
CTA with the most chunks. Masks make tiles unequal: an order says which place each number is. The
emitter writes its loops by these functions, and the cost model counts by them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from axe_eq.kernel.expr import Expr, Int, evaluate, minimum, var
from axe_eq.program.types import Array
from axe_eq_backends.cuda.live import Ends, Live, Place, chunks


@dataclass(frozen=True)
class Order:
    """From numbers of tiles to places.

    Attributes:
        band: how many batches have their tiles of equal rows one after the other, a divisor of
            their number; 1 leaves all rows of a batch together. Blocks of columns count as batches.
        falling: from the last rows to the first.
        turned: CTAs take every other round backwards: who had most work gets least.
    """

    band: int = 1
    falling: bool = False
    turned: bool = False

    def place(self, number: Any, rows: int) -> tuple[Any, Any]:
        """(batch, tile of rows) of a number, for so many tiles of rows."""
        rest = number // self.band
        row, first = rest % rows, rest // rows * self.band
        batch = first + number % self.band if self.band > 1 else first
        return batch, rows - 1 - row if self.falling else row


IN_ROWS = Order()
# An order whose busiest CTA has this many times the least possible is not improved: those tried
# later read more that caches do not hold, and grids of very many tiles are even in any order.
NEAR = 1.01


def backwards(number: Int, cta: Int, n_ctas: Int, total: int) -> Int:
    """The tile that a CTA takes in place of `number` in a round that goes backwards."""
    return minimum(number - cta + n_ctas, total) - 1 - cta


@dataclass(frozen=True)
class Grid:
    """The tiles of a stream.

    Attributes:
        batch: extents of the batch dims.
        m, s: rows of the scores, and the streamed dim.
        cols: blocks of columns.
        rows, size: rows of a tile, and indices of a chunk.
        live: what of the streamed dim may weigh anything, for dims numbered as (batch, m, s).
    """

    batch: tuple[int, ...]
    m: int
    s: int
    cols: int
    rows: int
    size: int
    live: Live

    @property
    def outer(self) -> int:
        """Tiles of the same rows."""
        return prod(self.batch) * self.cols

    @property
    def tiles(self) -> int:
        """All tiles."""
        return self.outer * self.n_rows

    @property
    def n_rows(self) -> int:
        """Tiles along the rows."""
        return -(-self.m // self.rows)

    @property
    def steps(self) -> int:
        """Chunks of the streamed dim."""
        return -(-self.s // self.size)

    @property
    def bounded(self) -> bool:
        """Whether tiles may leave chunks out."""
        return self.steps > 1 and self.live.known

    def chunks(self, batch: Sequence[Int], row: Int) -> tuple[Int, Int]:
        """(first, last) chunk that a tile runs, which begins at a row."""
        if not self.bounded:
            return 0, self.steps - 1
        return chunks(self.live.ends(self._places(batch, row)), self.s, self.size)

    def whole(self, batch: Sequence[Int], row: Int) -> Ends | None:
        """(first, last) chunk of which no mask takes anything, in a tile that begins at a row.

        The first is after the last where there is none; None where no tile is known to have one.
        """
        ends = self.live.sure(self._places(batch, row)) if self.bounded else None
        if ends is None:
            return None
        # Rounded inwards.
        first, last = (ends[0] + (self.size - 1)) // self.size, (ends[1] + 1) // self.size - 1
        never = first > last
        return None if not isinstance(never, Expr) and never else (first, last)

    def _places(self, batch: Sequence[Int], row: Int) -> dict[int, Place]:
        places = {d: Place(b, b) for d, b in enumerate(batch)}
        places[len(batch)] = Place(row, minimum(row + (self.rows - 1), self.m - 1))
        return places

    @property
    def table(self) -> Array:
        """Chunks of every tile, by (batch and block of columns, tile of rows)."""
        return _table(*self._counted)

    def taken(self, n_ctas: int, together: int) -> Taken:
        """The first order whose busiest CTA has about as few chunks as can be, else the best one.

        Args:
            n_ctas: that run at once.
            together: batches whose streamed operands caches hold at once.
        """
        return _of_grid(self, n_ctas, together)

    @property
    def _counted(self) -> tuple[Tiles, Int]:
        """The tiles, and the chunks of one at batch indices `at0`, `at1`, ... from `row` on."""
        batch = [var(f"at{d}", high=e - 1) for d, e in enumerate(self.batch)]
        row = var("row", self.rows, high=(self.n_rows - 1) * self.rows)
        first, last = self.chunks(batch, row)
        return Tiles(self.batch, self.cols, self.n_rows, self.rows), last - first + 1


class Taken(NamedTuple):
    """How the tiles of a grid are taken.

    Attributes:
        order: of their numbers.
        busiest: chunks of the CTA that has the most.
        chunks: of all tiles together.
    """

    order: Order
    busiest: int
    chunks: int


class Tiles(NamedTuple):
    """Batches, blocks of columns, tiles along the rows, and rows of one."""

    batch: tuple[int, ...]
    cols: int
    n_rows: int
    rows: int


@lru_cache(maxsize=4096)
def _of_grid(grid: Grid, n_ctas: int, together: int) -> Taken:
    return _taken(*grid._counted, min(n_ctas, grid.tiles), together)


@lru_cache(maxsize=4096)
def _taken(tiles: Tiles, count: Int, n_ctas: int, together: int) -> Taken:
    """The same by what alone it depends on."""
    table = _table(tiles, count)
    outer, total = len(table), int(table.sum())
    orders = [IN_ROWS]
    if isinstance(count, Expr):
        bands = [n for n in range(1, max(1, min(together, outer)) + 1) if outer % n == 0]
        orders += [Order(n, falling, turned=True) for n in bands for falling in (True, False)]
    least, found = max(int(table.max()), -(-total // n_ctas)), list[Taken]()
    for order in orders:
        found.append(Taken(order, busiest(table, order, n_ctas), total))
        if found[-1].busiest <= NEAR * least:
            break
    return min(found, key=lambda taken: taken.busiest)


def _table(tiles: Tiles, count: Int) -> Array:
    at = np.ogrid[tuple(slice(e) for e in (*tiles.batch, tiles.n_rows))]
    env = {f"at{d}": index for d, index in enumerate(at[:-1])} | {"row": at[-1] * tiles.rows}
    whole = np.broadcast_to(evaluate(count, env), (*tiles.batch, tiles.n_rows))
    return np.repeat(whole.reshape(-1, tiles.n_rows), tiles.cols, axis=0)


def busiest(table: Array, order: Order, n_ctas: int) -> int:
    """Chunks that the busiest CTA runs.

    Args:
        table: chunks of every tile, by (batch and block of columns, tile of rows).
        order: in which tiles are taken.
        n_ctas: that run at once, no more than there are tiles.
    """
    number = np.arange(table.size)
    cta, taken = number % n_ctas, number
    if order.turned:
        turned = backwards(var("number"), var("cta"), n_ctas, table.size)
        back = evaluate(turned, {"number": number, "cta": cta})
        taken = np.where(number // n_ctas % 2, back, number)
    work = table[order.place(taken, table.shape[1])]
    return int(np.bincount(cta, weights=work).max())
