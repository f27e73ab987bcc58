"""Copies of operands for products from tile memory: which tiles, which parts, into whose memory.

A producer warpgroup keeps the rings full; `gemm` says what consumers do with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any

from axe_eq.kernel.expr import Int, Var, equal, minimum
from axe_eq.kernel.placement import Placement, number
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import Pipe, ThreadBuilder
from axe_eq.kernel.threads.ir import span
from axe_eq_backends.cuda.schedules import tiles
from axe_eq_backends.cuda.schedules.contraction import banded, digits
from axe_eq_backends.cuda.schedules.ragged import PERIOD_ROWS, End, Side, ends, tail_of
from axe_eq_backends.cuda.schedules.tiling import Matrix, Problem, Tiling

BULK_BYTES = 16
Lead = tuple[Int, ...]


def in_turns(tile: Any, n: Any, there: Any) -> Any:
    """Whether CTAs that share a tile of rows copy it whole in turns, not a part of each step.

    Numbers, or columns of such. Parts are whole periods of swizzles, and each has something of the
    last tile: copies of what lies past an operand's end are slow, and all CTAs wait for them.

    >>> in_turns(128, 4, 1152), in_turns(120, 4, 1200), in_turns(128, 4, 1160)
    (False, True, True)
    """
    last = there % tile
    return (tile % (PERIOD_ROWS * n) > 0) | ((last > 0) & (last * n <= tile * (n - 1)))


At = tuple[Lead, Int, Int]  # outer indices of a tile, its first row and column


class Copies:
    """What a product's kernel copies.

    Attributes:
        p, t, k: the problem, the tiling, and the kernel that is written.
        operands: per name the tensor, its ring, and rows that are copied of a tile.
        tails: per name rows that are copied of a last tile; None where it is like all others.
        full, empty: barriers of the rings' slots.
        free: barriers of the slots of those CTAs that copy whole tiles of a side in turns.
        count, rows_of_tiles, cols_of_tiles: tiles, and those along either side of one batch.
        whole: tiles that CTAs take alone where they share the rest.
        steps, per_part: of a tile, and of one part of the reduced dim.
        first, own_steps: those of this CTA where it shares a tile.
    """

    p: Problem
    t: Tiling
    k: ThreadBuilder
    operands: dict[str, tuple[ir.Buffer, ir.Buffer, int]]
    tails: dict[str, int | None]
    full: ir.MBarrier
    empty: ir.MBarrier
    free: dict[str, ir.MBarrier]
    count: Int
    rows_of_tiles: Int
    cols_of_tiles: Int
    whole: Int
    steps: Int
    per_part: Int
    first: Int
    own_steps: Int

    @contextmanager
    def _tiles(self, alone: bool = False) -> Iterator[tuple[Lead, Int, Int]]:
        """This CTA's tiles, in bands of tile rows: outer indices, first row and column.

        A tile of a cluster is as many of them, side by side.

        Args:
            alone: those that no cluster shares, where it shares the rest of them.
        """
        k, t = self.k, self.t
        per_batch = self.rows_of_tiles * self.cols_of_tiles
        persistent = t.split == 1 or bool(t.rest)
        shared = k.tiles(self.count, persistent=persistent, first=self.whole, loop=False)
        with k.waves(self.whole) if alone else shared as number:
            lead: Lead = ()
            tile: Int = number
            if self.p.outer:
                lead = digits(k, number // per_batch, self.p.outer, "batch")
                tile = number % per_batch
            band = max(1, t.band * t.m // t.cluster_m)
            row, col = banded(k, tile, (self.rows_of_tiles, self.cols_of_tiles), band)
            row_of, col_of = self._place
            row, col = row * t.cluster_m + row_of * t.m, col * t.cluster_n + col_of * t.n
            yield lead, k.let("row", row), k.let("col", col)

    @property
    def _place(self) -> tuple[Int, Int]:
        """Row and column of this CTA in a cluster that shares operands."""
        cols = self.t.cluster_cols
        rank = self.k.rank if self.t.cluster > 1 else 0
        return rank // cols, rank % cols if cols > 1 else 0

    def _sharing(self, side: str) -> int:
        """CTAs that read the same tile of a side."""
        return self.t.cluster_cols if side == "m" else self.t.cluster_rows

    def _readers(self, side: str) -> list[Int]:
        """CTAs of the cluster that read the same tile of a side; with both shared this first."""
        (row, col), rows, cols = self._place, self.t.cluster_rows, self.t.cluster_cols
        if min(rows, cols) == 1:
            return list(range(cols if side == "m" else rows))
        if side == "m":
            return [row * cols + (col + d) % cols for d in range(cols)]
        return [(row + d) % rows * cols + col for d in range(rows)]

    def _there(self, matrix: Matrix, extent: Int, tile: int) -> int:
        """Rows of an operand's tile that are copied: not those past the end of a single tile.

        Bulk copies fill what lies past the end with zeros, slower than they read: a tile with 1 of
        its 64 rows takes longer than a whole one.
        """
        whole = self.t.consumers > 1 or self.t.cluster > 1 or not matrix.major
        if whole or not isinstance(extent, int) or extent >= tile:
            return tile
        if matrix.place and len(matrix.place.blocks[-2]) > 1:
            return tile
        return min(tile, -(-extent // PERIOD_ROWS) * PERIOD_ROWS)

    def _tail(self, matrix: Matrix, extent: Int, tile: int) -> int | None:
        """Rows copied of an operand's last tile; None where that is like all others."""
        if self.t.cluster > 1 or self._there(matrix, extent, tile) < tile:
            return None
        runs = matrix.place.blocks[-2 if matrix.major else -1] if matrix.place else ()
        return None if len(runs) > 1 else tail_of(extent, tile, bool(matrix.major))

    def _blank(self) -> None:
        """Zero the rows of the ring that no copy fills."""
        k, t = self.k, self.t
        rest = [(ring, there) for _, ring, there in self.operands.values() if there < ring.shape[1]]
        for ring, there in rest:
            first, end = there, number(ring.shape[1])
            while first < end:
                rows = min(first & -first, end - first)
                layout = tiles.vectors(rows, t.k, BULK_BYTES // ring.itemsize)
                zeros = k.reg("zeros", ring.dtype, (rows, t.k), layout)
                k.fill(zeros.all, 0.0)
                with k.range(t.stages, name="slot") as slot:
                    k.copy(ring[slot, span(first, rows)], zeros.all)
                first += rows
        if rest:
            k.fence_async()
            k.sync()

    def _produce(self) -> None:
        k, t = self.k, self.t
        # A ring goes on from tiles of one kind to those of the other: all threads count its slots.
        with ExitStack() as stack:
            if not t.rest:
                stack.enter_context(k.one_thread())
            pipe = k.pipe(t.stages, parity=1)
            filled: Int = 0
            if any(self.tails.values()):
                filled = k.state("filled", 0, high=t.stages)
            if t.rest:
                with self._tiles(alone=True) as at:
                    self._copy(pipe, filled, at, 0, self.steps)
            with self._tiles() as at:
                self._copy(pipe, filled, at, self.first, self.own_steps)
                if t.rest:
                    k.cluster_sync()
        if t.split > 1:
            k.cluster_sync()

    def _copy(self, pipe: Pipe, filled: Int, at: At, first: Int, steps: Int) -> None:
        """Copy a tile's operands, step by step."""
        k, t = self.k, self.t
        lead, row, col = at
        with k.range(steps, name="step") as own:
            step = k.let("at", first + own) if t.split > 1 else own
            depth: Int = step
            if self.p.parts:
                lead = (*lead, *digits(k, step // self.per_part, self.p.parts, "part"))
                depth = step % self.per_part
            with ExitStack() as alone:
                if t.rest:
                    alone.enter_context(k.one_thread())
                k.wait(self.empty, pipe.stage, pipe.parity)
                for side, free in self.free.items():
                    with k.when(self._is_turn(side, pipe.stage)):
                        k.wait(free, pipe.stage, pipe.parity)
                begin = lead[self.p.end[0]] * self.p.k if self.p.end else 0
                for end in ends(self._ragged(row, col), filled, t.stages):
                    with ExitStack() as stack:
                        for condition in end.conditions:
                            stack.enter_context(k.when(condition))
                        stack.enter_context(k.arrives(self.full, pipe.stage))
                        self._load(pipe, lead, row, col, begin + depth * t.k, end)
            if isinstance(filled, Var):
                k.assign(filled, minimum(filled + 1, t.stages))
            pipe.advance()

    def _ragged(self, row: Int, col: Int) -> list[Side]:
        """Sides whose last tile is copied in another way."""
        named = [{matrix.name for matrix in side} for side in zip(*self.p.products, strict=True)]
        sides = Side("m", row, self.p.m, self.t.m), Side("n", col, self.p.n, self.t.n)
        return [side for side, names in zip(sides, named, strict=True)
                if any(self.tails[name] for name in names)]  # fmt: skip

    def _load(self, pipe: Pipe, lead: Lead, row: Int, col: Int, depth: Int, end: End) -> None:
        """Copy a step's operands; of a last tile what is there."""
        k, t = self.k, self.t
        sides = {a: (row, "m") for a, _ in self.p.products}
        sides |= {b: (col, "n") for _, b in self.p.products}
        for matrix, (at, side) in sides.items():
            tensor, ring, there = self.operands[matrix.name]
            if side in end.last:
                there = self.tails[matrix.name] or there
            readers = self._readers(side)
            rows, deep = span(0, there), span(0, t.k)
            own, n = self._place[side == "m"], len(readers)
            mine: AbstractContextManager[None] = nullcontext()
            if side in self.free:
                mine = k.when(self._is_turn(side, pipe.stage))
            elif n > 1 and matrix.major:  # each loads its part for all
                rows = span(own * (there // n), there // n)
            elif n > 1:
                deep = span(own * (t.k // n), t.k // n)
            here = span(at + rows.begin, rows.extent), span(depth + deep.begin, deep.extent)
            slot = ring[pipe.stage, rows, deep] if deep.extent < t.k else ring[pipe.stage, rows]
            part = part_of(tensor, matrix.place, lead, *here)
            with mine:
                k.copy_async(slot, part, ranks=readers if n > 1 else ())

    def _turns(self) -> Iterator[str]:
        """Sides whose tiles CTAs of a cluster copy whole in turns: each has slots of its own."""
        sides = ("m", self.t.m, self.p.m), ("n", self.t.n, self.p.n)
        for at, (side, tile, there) in enumerate(sides):
            n, known = self._sharing(side), there if isinstance(there, int) else 0
            rows = all(pair[at].major for pair in self.p.products)
            if n > 1 and rows and in_turns(tile, n, known):
                yield side

    def _is_turn(self, side: str, slot: Int) -> Int:
        """Whether this CTA copies a side's tile that is in a slot."""
        return equal(slot % self._sharing(side), self._place[side == "m"])

    def _release(self, slot: Int) -> None:
        """The slot has been read: those are told who fill it next.

        They are all CTAs that copy parts of what comes into it, and of a side that is copied in
        turns the one whose slot it is.
        """
        row, col = self._place
        in_parts = [side for side in "mn" if self._sharing(side) > 1 and side not in self.free]
        ranks = [r for n, side in enumerate(in_parts) for r in self._readers(side)[bool(n) :]]
        self.k.arrive(self.empty, slot, ranks=ranks)
        for side, free in self.free.items():
            turn, cols = slot % self._sharing(side), self.t.cluster_cols
            at = row * cols + turn if side == "m" else turn * cols + col
            self.k.arrive(free, slot, ranks=[at])


def part_of(buffer: ir.Buffer, place: Placement | None, lead: Lead, *spans: span) -> ir.View:
    """A tile of a tensor at outer indices; those that it does not depend on are left out."""
    blocks = place.blocks if place else ()
    own: tuple[ir.Subscript, ...] = tuple(
        i for i, block in zip(lead, blocks, strict=False) if block
    )
    index = (*own, *spans)
    return buffer[index] if index else buffer[0:1]
