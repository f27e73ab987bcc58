"""Persistent, warp-specialised matrix products with any cell epilogue (Hopper).

out = cell(A0 B0^T, A1 B1^T, ..., extras): one or several products over one index space, then a cell
over the accumulators and extra tensors that are rows, columns or whole. A producer warpgroup keeps
a ring of operand tiles full by bulk copies; consumer warpgroups multiply and store through shared
memory. Outer dims (batches) are coordinates of tiles, parts of the reduced dim coordinates of
steps; a matrix's own dims may be several of a tensor's.

CTAs of a cluster take neighbouring tiles of rows, of columns, or of both. An operand tile that
several of them need is loaded once: each of these loads a part of it into the shared memory of all,
some rows, or some of the reduced dim where that is not contiguous. A slot is free when the
consumers of all who read what comes into it have released it.

Consumers of a CTA lie below each other, with some rows of its tile each, or several of them side by
side, with some of the columns (`across`).

Or CTAs of a cluster take parts of one tile's steps. Each puts its sums into its shared memory, and
once all have, each adds up some columns of all of them, in the order of the CTAs, and stores those.
So they do with all tiles, of which there is one for a cluster, or with the `rest` alone: tiles that
fill waves of the grid have a CTA each, then there is at most one for a cluster, whose sums take the
place of the ring.

A last tile of which little is there copies that alone, once all slots hold values (`ragged`): rows
past its end are multiplied too, and stored nowhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from math import gcd, prod
from typing import Any, NamedTuple

import numpy as np

from axe_eq.errors import ScheduleError
from axe_eq.kernel.cells import Cell, apply, arg
from axe_eq.kernel.expr import Int, Var, ceil_div, divisor, var
from axe_eq.kernel.placement import Iter, Placement, number
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import Pipe, ThreadBuilder
from axe_eq.kernel.threads.ir import span
from axe_eq.layout import Layout
from axe_eq.program.types import DTYPES
from axe_eq_backends.cuda.instrs import K_MAJOR, MN_MAJOR, SmemForm
from axe_eq_backends.cuda.schedules import tiles
from axe_eq_backends.cuda.schedules.gemm_copies import BULK_BYTES, Copies, Lead, part_of
from axe_eq_backends.cuda.schedules.ragged import PERIOD_ROWS
from axe_eq_backends.cuda.schedules.tiling import (
    DEFAULT,
    PARAMETERS,
    Extra,
    Matrix,
    Problem,
    Tiling,
)
from axe_eq_backends.cuda.wgmma import accumulator

PANEL_BYTES, GROUP_THREADS = 128, 128
CORE_COLS = 8  # of accumulators: parts of a tile's columns are whole ones
# Registers of a thread for accumulators and what the epilogue reads: as compiled, 208 fit beside
# all others and 224 spill.
MOST_HELD = 208
MOST_SUMS = 200  # of them: 208 spill, however few the epilogue takes
OF_THIRD = 104  # fewer, where three warpgroups share them: 112 spill
BESIDE = 24  # registers more of a thread, those of what it stores among them
ASIDE = 16  # of those that panels leave which are narrower for want of them
SMEM_SLACK = 2048  # barriers, and buffers that begin where their swizzles do
FORMS = {form.name: form for form in K_MAJOR + MN_MAJOR}


def column_words(cols: Any, itemsize: Any) -> Any:
    """Registers of a thread for a value per column: it holds two of eight, and pairs share one."""
    return cols // 4 * itemsize // 4


def tile_words(rows: Any, cols: Any, itemsize: Any) -> Any:
    """Registers of a thread for a warpgroup's tile."""
    return rows * cols * itemsize // 4 // GROUP_THREADS


def most_held(consumers: Any) -> Any:
    """Registers of a thread for these; a number of consumers, or a column of such.

    >>> most_held(2), most_held(3)
    (208, 104)
    """
    return MOST_HELD - OF_THIRD * (consumers > 2)


def panel_most(wide: Any, consumers: Any, sums: Any, rows: Any, itemsize: Any) -> Any:
    """Columns of a panel of results at most, which a thread holds beside its sums.

    Numbers, or columns of such. Where one `wide` as the store would have it does not fit, fewer
    leave some registers besides: 228 of them spill where results lie in columns.

    >>> [int(panel_most(64, 2, *sizes, 2)) for sizes in ((192, 128), (192, 192), (256, 256))]
    [256, 32, 8]
    """
    room = most_held(consumers) + BESIDE - sums
    most = (room - ASIDE) * 4 * GROUP_THREADS // (rows * itemsize) // CORE_COLS * CORE_COLS
    fits = tile_words(rows, wide, itemsize) <= room
    return np.where(fits, tiles.MOST_PANEL, np.clip(most, CORE_COLS, tiles.MOST_PANEL))


def gemm(problem: Problem, tiling: Tiling = DEFAULT, name: str = "gemm") -> ir.Kernel:
    """The kernel.

    Raises:
        ScheduleError: the tile does not divide into warpgroups, or nothing is multiplied.
    """
    return _Writer(problem, tiling, name).write()


class _Tile(NamedTuple):
    """A tile of the result: outer indices, and where a consumer's part begins."""

    lead: Lead
    row: Int
    col: Int


class _Writer(Copies):
    def __init__(self, problem: Problem, tiling: Tiling, name: str) -> None:
        self.p, self.t = problem, tiling
        rows, width = tiling.m // tiling.down, tiling.n // tiling.across
        if tiling.m % tiling.down or rows % 64:
            wrong = f"{tiling.m} rows for {tiling.down} warpgroups"
            raise ScheduleError(f"tiling of {name}", wrong, "a multiple of 64 rows each")
        uneven = tiling.consumers % tiling.across + tiling.n % (CORE_COLS * tiling.across)
        if tiling.across > 1 and (uneven or tiling.split > 1):
            wrong = f"{tiling.n} columns in {tiling.split} parts, {tiling.across} of"
            wrong = f"{wrong} {tiling.consumers} warpgroups side by side"
            raise ScheduleError(f"tiling of {name}", wrong, f"one part, whole {CORE_COLS} for each")
        for side, n in enumerate((tiling.cluster_cols, tiling.cluster_rows)):
            for matrix in {pair[side] for pair in problem.products} if n > 1 else ():
                if not matrix.major and tiling.k % (PERIOD_ROWS * n):
                    wrong = f"{tiling.k} shared elements of {matrix.name} for {n} CTAs"
                    expected = f"a multiple of {PERIOD_ROWS} elements each"
                    raise ScheduleError(f"tiling of {name}", wrong, expected)
        if tiling.split > 1 and (tiling.cluster > 1 or tiling.n % (CORE_COLS * tiling.split)):
            parts = f"{tiling.split} parts of steps"
            wrong = f"{parts}, {tiling.n} columns, clusters of {tiling.cluster}"
            raise ScheduleError(f"tiling of {name}", wrong, f"columns of whole {CORE_COLS} each")
        if tiling.rest and (tiling.split == 1 or len(problem.products) > 1):
            wrong = f"{len(problem.products)} products, {tiling.split} parts of the rest of tiles"
            raise ScheduleError(f"tiling of {name}", wrong, "one product, of several parts")
        self.k = ThreadBuilder(name, 4 * (tiling.consumers + 1), tiling.cluster * tiling.split)
        self.rows, self.width, self.cols = rows, width, width // tiling.split
        self.size = DTYPES[problem.out.dtype].itemsize
        run = problem.out.run(self.cols) if problem.out.major else self.cols
        sums = rows * width * len(problem.products) // GROUP_THREADS
        # What memory merges is stored once, and blocks of a placed result have panels of their own.
        lines = self._in_lines() and self._runs()
        wide = partial(tiles.panel_width, run, self.size, problem.out.major, lines=lines)
        most = panel_most(wide(), tiling.consumers, sums, rows, self.size)
        self.wide = wide(int(most), bool(problem.merges) or run < self.cols)
        self.panels = -(-self.cols // self.wide)
        self.staged = tiling.staging or self.panels
        if self.panels % self.staged:
            wrong = f"{self.panels} panels in {self.staged} slots"
            raise ScheduleError(f"tiling of {name}", wrong, "whole rounds of them")

    def write(self) -> ir.Kernel:
        k, t = self.k, self.t
        for dim in (self.p.m, self.p.n, self.p.k):
            if isinstance(dim, Var):
                k.kernel.params.append(dim)
        self._declare()
        self.full, self.empty = k.mbarriers("full", t.stages), k.mbarriers("empty", t.stages)
        self.free = {side: k.mbarriers(f"free_{side}", t.stages) for side in self._turns()}
        self.rows_of_tiles = k.let("tiles_m", ceil_div(self.p.m, t.cluster_m))
        self.cols_of_tiles = k.let("tiles_n", ceil_div(self.p.n, t.cluster_n))
        self.count = self.rows_of_tiles * self.cols_of_tiles * prod(self.p.outer)
        self.per_part = ceil_div(self.p.k, t.k)
        self.steps = k.let("steps", self.per_part * prod(self.p.parts))
        self.first: Int = 0
        self.own_steps = self.steps
        if t.split > 1:
            if not isinstance(self.steps, int) or self.steps < t.split:
                wrong = f"{self.steps} steps for {t.split} CTAs"
                raise ScheduleError(f"tiling of {k.kernel.name}", wrong, "at least one each")
            self.first = k.let("first", k.rank * self.steps // t.split)
            end = (k.rank + 1) * self.steps // t.split
            self.own_steps = k.let("own_steps", end - self.first)
        self.whole: Int = k.whole_waves(self.count) if t.rest else 0
        with k.roles():
            with k.warpgroups(t.consumers, t.consumers + 1):
                self._produce()
            with k.warpgroups(0, t.consumers) as group:
                self._consume(group)
        if t.cluster * t.split > 1:
            k.cluster_sync()  # no CTA ends while others release its slots, or fetch its sums
        return k.finish()

    # -- buffers --

    def _declare(self) -> None:
        k, t, p = self.k, self.t, self.p
        self.operands: dict[str, tuple[ir.Buffer, ir.Buffer, int]] = {}
        self.tails: dict[str, int | None] = {}
        depth = p.end[1] if p.end else p.k
        sides: dict[str, tuple[Matrix, Int, int, int]] = {}
        for a, b in p.products:
            sides.setdefault(a.name, (a, p.m, t.m, self.rows))
            sides.setdefault(b.name, (b, p.n, t.n, self.width))
        # Tensors first: a program's names are kept, and others pass over them.
        tensors = {
            name: self._tensor(m, (*p.outer, *p.parts), (extent, depth))
            for name, (m, extent, *_) in sides.items()
        }
        self.extras = [None if e.counts is not None else self._extra(e) for e in p.extras]
        self.out = self._tensor(p.out, p.outer, (p.m, p.n), output=True)
        if p.out.major and self.cols % self.wide:  # the last panel begins earlier
            k.kernel.again = frozenset({self.out.name})
        for name, (matrix, extent, tile, part) in sides.items():
            size = DTYPES[matrix.dtype].itemsize
            layout = tiles.operand(t.stages, tile, t.k, size, self._form(matrix, tile, part))
            ring = k.smem(f"{name}_ring", matrix.dtype, (t.stages, tile, t.k), layout)
            self.operands[name] = tensors[name], ring, self._there(matrix, extent, tile)
            self.tails[name] = self._tail(matrix, extent, tile)
        self.partials: list[ir.Buffer] = []
        if t.split > 1:
            sums = t.consumers, self.rows, t.n
            over = self.operands[p.products[0][0].name][1] if t.rest else None
            self.partials = [
                k.smem("partials", "f32", sums, _of_threads(*sums), over=over) for _ in p.products
            ]
        lead = (t.consumers, self.staged)
        layout = (
            tiles.panels(lead, self.rows, self.wide, self.size, self.wide * self.size)
            if p.out.major
            else tiles.transposed_panels(lead, self.rows, self.wide, self.size)
        )
        multiple = BULK_BYTES // self.size
        self.vector, contiguous = gcd(multiple, self._apart()), self._is_contiguous()
        self.bulk = contiguous and self._in_lines()
        # Rows that begin anywhere: neighbouring threads store neighbouring elements of a row.
        self.in_rows = contiguous and not self.bulk and p.out.major
        if self.p.merges and not self.bulk:
            wrong = f"results of {p.out.name} that bulk copies do not store"
            raise ScheduleError(f"kernel {k.kernel.name}", wrong, "rows of whole vectors")
        if self.bulk or self.in_rows:
            shape = (*lead, self.rows, self.wide)
            self.stage_out = k.smem(f"{p.out.name}_staging", p.out.dtype, shape, layout)

    def _leading(self, matrix: Matrix, shape: tuple[Int, Int]) -> Int:
        return shape[matrix.major] if matrix.stride is None else matrix.stride

    def _tensor(
        self, matrix: Matrix, lead: tuple[int, ...], shape: tuple[Int, Int], output: bool = False
    ) -> ir.Buffer:
        if matrix.place:
            return self._placed(matrix.name, matrix.dtype, matrix.place, lead, shape, output)
        leading = self._leading(matrix, shape)
        strides = (leading, 1) if matrix.major else (1, leading)
        return self.k.tensor(matrix.name, matrix.dtype, shape, strides=strides, output=output)

    def _extra(self, e: Extra) -> ir.Buffer:
        shapes: dict[str, tuple[Int, ...]] = {
            "mn": (self.p.m, self.p.n), "m": (self.p.m,), "n": (self.p.n,), "": (),
        }  # fmt: skip
        if e.place:
            return self._placed(e.name, e.dtype, e.place, self.p.outer, shapes[e.dims])
        return self.k.tensor(e.name, e.dtype, shapes[e.dims] or (1,))

    def _placed(
        self,
        name: str,
        dtype: str,
        place: Placement,
        lead: tuple[int, ...],
        shape: tuple[Int, ...],
        output: bool = False,
    ) -> ir.Buffer:
        """A tensor of which the leading dims that it depends on are dims."""
        kept = [d for d, block in enumerate(place.blocks) if block or d >= len(lead)]
        extents = [(*lead, *shape)[d] for d in kept]
        blocks = tuple(place.blocks[d] for d in kept)
        layout = Placement(blocks or ((),), offset=place.offset)
        return self.k.tensor(name, dtype, extents or [1], layout=layout, output=output)

    def _apart(self) -> int:
        """Elements that divide every stride of the result but the contiguous one, and its begin."""
        out = self.p.out
        if out.place is None:
            return divisor(self._leading(out, (self.p.m, self.p.n)))
        last = self._last_iter()
        others = [i.stride for i in out.place.iters if i is not last] + [out.place.at("m")]
        return gcd(*map(divisor, others))

    def _in_lines(self) -> bool:
        """Whether every row of the result begins at a multiple of 16 bytes."""
        return self._apart() * self.size % BULK_BYTES == 0

    def _runs(self) -> bool:
        """Whether neighbours along the result's major dim are neighbours in memory."""
        return self.p.out.place is None or self._last_iter().stride == 1

    def _is_contiguous(self) -> bool:
        """Whether lines of the result's panels are contiguous, of 16 bytes at least."""
        out = self.p.out
        if out.place is None:
            return True
        if not out.major and out.run(self.rows) % min(PANEL_BYTES // self.size, self.rows):
            return False
        return self._runs() and self.wide * self.size >= BULK_BYTES

    def _last_iter(self) -> Iter:
        assert self.p.out.place is not None
        return self.p.out.place.blocks[-1 if self.p.out.major else -2][-1]

    def _form(self, matrix: Matrix, tile: int, part: int) -> SmemForm:
        """The widest form that runs in memory and consumers' parts of a tile are whole lines of."""
        named = self.t.forms.get(matrix.name)
        if named is not None:
            return FORMS[named]
        size = DTYPES[matrix.dtype].itemsize
        run = matrix.run(self.t.k) if matrix.major else gcd(matrix.run(tile), part)
        forms = K_MAJOR if matrix.major else MN_MAJOR
        return next((f for f in forms if run * size % f.width == 0), forms[-1])

    # -- roles --

    def _consume(self, group: Int) -> None:
        k, t = self.k, self.t
        self._blank()
        pipe = k.pipe(t.stages)
        accs = [
            k.reg("acc", "f32", (self.rows, self.width), accumulator(self.rows, self.width))
            for _ in self.p.products
        ]
        previous = k.state("previous", 0, high=t.stages - 1)
        early = self._early(accs)
        if t.split == 1 or t.rest:
            with self._tiles(alone=bool(t.rest)) as at:
                tile = self._tile(group, *at)
                results = [acc.all for acc in accs]
                vectors = self._read(results[0], tile, span(tile.col, self.width), early)
                self._sum(accs, pipe, group, previous, self.steps)
                ahead = self._ahead(results[0], tile, 0, early)
                self._summed(previous)
                self._store(results, tile, group, vectors, ahead, early)
        if t.split > 1:
            with self._tiles() as at:
                tile = self._tile(group, *at, shared=True)
                own = [acc[:, : self.cols] for acc in accs]
                vectors = self._read(own[0], tile, span(tile.col, self.cols), early)
                self._sum(accs, pipe, group, previous, self.own_steps)
                self._summed(previous)
                if t.rest:
                    k.cluster_sync()  # sums take the place of slots that all have read
                for acc, partial in zip(accs, self.partials, strict=True):
                    k.copy(partial[group], acc.all)
            k.cluster_sync()
            with self._tiles() as at:
                tile = self._tile(group, *at, shared=True)
                if not t.rest:  # beside the sums of whole tiles there is room for a panel's
                    own = [self._added(partial, group) for partial in self.partials]
                ahead = self._ahead(own[0], tile, 0, early)
                self._store(own, tile, group, vectors, ahead, early, fetch=bool(t.rest))
        if self.bulk:
            with k.one_thread():
                k.wait_group("bulk", 0)

    def _sum(
        self, accs: list[ir.Buffer], pipe: Pipe, group: Int, previous: Var, steps: Int
    ) -> None:
        """Multiply a tile's steps; the last products are on their way."""
        k = self.k
        with k.range(steps, name="step") as step:
            k.wait(self.full, pipe.stage, pipe.parity)
            self._multiply(accs, pipe, group, step)
            k.wait_group("wgmma", len(accs))  # the step before is done: its slot is free
            with k.when(step > 0), k.one_thread():
                self._release(previous)
            k.assign(previous, pipe.stage)
            pipe.advance()

    def _summed(self, previous: Var) -> None:
        """Wait for the last products of a tile."""
        self.k.wait_group("wgmma", 0)
        with self.k.one_thread():
            self._release(previous)

    def _tile(self, group: Int, lead: Lead, row: Int, col: Int, shared: bool = False) -> _Tile:
        """What a consumer stores of a tile: of one that CTAs share, some columns."""
        k, (down, across) = self.k, self._part(group)
        if shared:
            col = k.let("own_col", col + k.rank * self.cols)
        elif self.t.across > 1:
            col = k.let("group_col", col + across)
        return _Tile(lead, k.let("group_row", row + down), col)

    def _part(self, group: Int) -> tuple[Int, Int]:
        """First row and column of a consumer's part of a tile.

        One that has all rows, or all columns, begins where their swizzle does, whoever it is.
        """
        down = group // self.t.across * self.rows if self.t.down > 1 else 0
        return down, group % self.t.across * self.width if self.t.across > 1 else 0

    def _added(self, partial: ir.Buffer, group: Int, own: slice | None = None) -> ir.View:
        """Of this CTA's columns, or some, the sums of all CTAs of the cluster, in their order."""
        k, own = self.k, own or slice(0, self.cols)
        width = own.stop - own.start
        columns = span(k.rank * self.cols + own.start, width)
        layout, parts = accumulator(self.rows, width), list[ir.View]()
        for rank in range(self.t.split):
            parts.append(k.reg("part", "f32", (self.rows, width), layout).all)
            k.fetch(parts[-1], partial[group, :, columns], rank)
        added: Cell = arg(0)
        for rank in range(1, len(parts)):
            added = apply("add", added, arg(rank))
        total = k.reg_like("total", "f32", parts[0]).all if not self.t.rest else parts[0]
        k.map(added, total, *parts)
        return total

    def _store(
        self,
        results: Sequence[ir.View],
        tile: _Tile,
        group: Int,
        vectors: Mapping[str, ir.Buffer],
        ahead: Mapping[str, ir.Buffer],
        early: Sequence[str],
        fetch: bool = False,
    ) -> None:
        """Compute and store a tile, panel by panel; `fetch` sums that lie with other CTAs."""
        for panel in range(self._n_panels(results[0])):
            ins = self._operands(results, vectors, ahead, panel)
            if fetch:
                columns = self._columns(panel)
                ins[: len(results)] = [self._added(p, group, columns) for p in self.partials]
            with self._stored(ins, tile, group, panel):
                ahead = self._ahead(results[0], tile, panel + 1, early)

    def _multiply(self, accs: list[ir.Buffer], pipe: Pipe, group: Int, step: Int) -> None:
        for acc, (a, b) in zip(accs, self.p.products, strict=True):
            left, right = self.operands[a.name][1], self.operands[b.name][1]
            down, across = self._part(group)
            rows = left[pipe.stage, span(down, self.rows)]
            cols = right[pipe.stage, span(across, self.width)]
            self.k.gemm_async(acc.all, rows, cols, accumulate=step > 0)

    # -- epilogue --

    def _early(self, accs: Sequence[ir.Buffer]) -> tuple[str, ...]:
        """Dims of the epilogue's vectors that are read before the products: never waited for.

        Columns only where they fit beside the accumulators; rows are few.
        """
        sizes = [(e.dims, DTYPES[e.dtype].itemsize) for e in self.p.extras]
        words = sum(acc.n_elements for acc in accs)
        words += sum(column_words(self.width, size) for dims, size in sizes if dims == "n")
        words += sum(tile_words(self.rows, self.wide, s) for dims, s in sizes if dims == "mn")
        fits = words <= most_held(self.t.consumers)
        return ("", "m", "n") if fits else ("", "m")

    def _read(
        self, view: ir.View, tile: _Tile, cols: span, dims: Sequence[str]
    ) -> dict[str, ir.Buffer]:
        """Load the epilogue's operands of these dims into the registers that `view` lies in."""
        k, found = self.k, dict[str, ir.Buffer]()
        spans = {"m": span(tile.row, self.rows), "n": cols}
        for extra, tensor in zip(self.p.extras, self.extras, strict=True):
            if extra.dims not in dims:
                continue
            missing = [d for d, name in enumerate("mn") if name not in extra.dims]
            held = (
                k.reg_reduced(extra.name, extra.dtype, view, missing)
                if missing
                else k.reg_like(extra.name, extra.dtype, view)
            )
            found[extra.name] = held
            at = [spans[name] for name in extra.dims]
            if tensor is None:
                begin = at[0].begin if at else tile.lead[extra.counts or 0]
                k.index(held.all, int(extra.dims == "n"), begin)
                continue
            kept = tuple(0 if d in missing else slice(None) for d in range(2))
            source = part_of(tensor, extra.place, tile.lead, *at)
            k.copy(held.all[kept] if at else held.all[0, 0:1], source)
        return found

    def _ahead(
        self, acc: ir.View, tile: _Tile, panel: int, early: Sequence[str]
    ) -> dict[str, ir.Buffer]:
        """A panel's operands that are not read early: on their way while others are stored.

        The panel before has left its accumulators by then, so that they take no more registers.
        """
        if panel == self._n_panels(acc):
            return {}
        dims = [name for name in ("n", "mn") if name not in early]
        columns = self._columns(panel)
        cols = span(tile.col + columns.start, columns.stop - columns.start)
        return self._read(acc[:, columns], tile, cols, dims)

    def _n_panels(self, results: ir.View) -> int:
        """Panels of a tile: of its whole columns, those of all who may share it."""
        return number(results.shape[1]) // self.cols * self.panels

    def _columns(self, panel: int) -> slice:
        part, own = divmod(panel, self.panels)
        first, last = part * self.cols, (part + 1) * self.cols
        begin = first + own * self.wide
        if self.p.out.major:  # a panel is whole lines: the last begins earlier
            begin = min(begin, last - self.wide)
        return slice(begin, min(begin + self.wide, last))

    def _operands(
        self,
        accs: Sequence[ir.View],
        vectors: Mapping[str, ir.Buffer],
        ahead: Mapping[str, ir.Buffer],
        panel: int,
    ) -> list[ir.View]:
        """What the cell takes for a panel: accumulators, then the extras."""
        cols = self._columns(panel)
        ins = [acc[:, cols] for acc in accs]
        for extra in self.p.extras:
            if extra.name in ahead:
                ins.append(ahead[extra.name].all)
            else:
                held = vectors[extra.name]
                ins.append(held[:, cols] if extra.dims == "n" else held.all)
        return ins

    @contextmanager
    def _stored(
        self, ins: Sequence[ir.View], tile: _Tile, group: Int, panel: int
    ) -> Iterator[None]:
        """Compute a panel and store it; what stands inside comes once its registers are free."""
        k, columns = self.k, self._columns(panel)
        width = columns.stop - columns.start
        cols = span(tile.col + columns.start, width)
        result = k.reg_like(self.p.out.name, self.p.out.dtype, ins[0])
        out = part_of(self.out, self.p.out.place, tile.lead, span(tile.row, self.rows), cols)
        if not (self.bulk or self.in_rows):
            k.map(self.p.cell, result.all, *ins)
            k.copy(out, result.all)
            yield
            return
        slot = self.stage_out[group, panel % self.staged, :, :width]
        if self.bulk:
            with k.one_thread():
                k.wait_group("bulk_read", self.staged - 1)
        if self.bulk or self.staged == 1:  # else the others have read it before the last wait
            k.sync()
        k.map(self.p.cell, result.all, *ins)
        k.copy(slot, result.all)
        yield
        if self.in_rows:
            k.sync()
            layout = tiles.vectors(self.rows, self.wide, self.vector)
            rows = k.reg(
                f"{self.p.out.name}_rows", self.p.out.dtype, (self.rows, self.wide), layout
            )
            k.copy(rows.all, slot)
            k.copy(out, rows.all)
            return
        k.fence_async()
        k.sync()
        with k.one_thread():
            if self.p.merges:
                k.merge_async(out, slot, self.p.merges)
            else:
                k.copy_async(out, slot)
            k.commit("bulk")


def _of_threads(groups: int, rows: int, cols: int) -> Layout:
    """Accumulators in shared memory, pairs of neighbouring threads side by side."""
    return Layout([
        (groups, rows * cols), (rows // 64, 64 * cols), (4, 64), (2, 2 * GROUP_THREADS), (8, 8),
        (cols // CORE_COLS, 4 * GROUP_THREADS), (4, 2), (2, 1),
    ])  # fmt: skip


def parameters(divisors: tuple[int, int, int] = (1, 8, 8)) -> tuple[Int, Int, Int]:
    """Run-time extents (m, n, k) with proven divisors."""
    return tuple(var(n, d, low=d, high=1 << 30) for n, d in zip("MNK", divisors, strict=True))  # type: ignore[return-value]


__all__ = ["PARAMETERS", "Extra", "Matrix", "Problem", "Tiling", "gemm", "parameters"]
