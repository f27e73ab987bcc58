"""What streaming contractions share: problems, tiles, and the arithmetic of one warpgroup.

Scores of a chunk become weights in registers: less their constant factor, masked at the tail, their
statistic merged with that of the chunks before. What loads chunks and when is the schedule's
(`stream`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from axe_eq.errors import ScheduleError
from axe_eq.kernel.cells import IDENTITY, Cell, Constant, apply, arg, replaced, substituted, used
from axe_eq.kernel.expr import Expr, Int, equal, make
from axe_eq.kernel.placement import strided
from axe_eq.kernel.structured import Online
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.kernel.threads.ir import span
from axe_eq.program.ops import MONOIDS
from axe_eq.program.types import DTYPES
from axe_eq_backends.cuda.instrs import K_MAJOR, MN_MAJOR, TMA, SmemForm
from axe_eq_backends.cuda.live import Live, positions
from axe_eq_backends.cuda.online import WIDENED, gathered, hoisted, in_powers_of_two
from axe_eq_backends.cuda.schedules import tiles
from axe_eq_backends.cuda.schedules.tensors import VECTOR_BYTES, mapped
from axe_eq_backends.cuda.schedules.tile_order import IN_ROWS, Grid, Order, backwards
from axe_eq_backends.cuda.wgmma import accumulator

GROUP_ROWS = 64
PANEL_BYTES = 128
# Columns whose numbers are in registers at once: they are made where scores need them.
NUMBERED = 16


@dataclass(frozen=True)
class Tensor:
    """A tensor over (batch dims, rows, columns) of its operand.

    Attributes:
        name, dtype: of the tensor.
        strides: elements between neighbours along every dim; 0 where it does not reach.
        offset: its element at index 0.
        window: per dim the indices [low, high) at which it is read, or None for all; its value
            elsewhere is 0. Empty where there is no window. Matrix operands have none.
        counts: it is no tensor: its value is the index along the one dim that it reaches.
    """

    name: str
    dtype: str
    strides: tuple[int, ...]
    offset: int = 0
    window: tuple[tuple[int, int] | None, ...] = ()
    counts: bool = False

    def low(self, dim: int) -> int:
        """The first index along a dim at which it is read."""
        bound = self.window[dim] if self.window else None
        return bound[0] if bound else 0

    def extent(self, dim: int, whole: int) -> int:
        """Indices along a dim at which it is read."""
        bound = self.window[dim] if self.window else None
        return bound[1] - bound[0] if bound else whole

    @property
    def major(self) -> int:
        """The contiguous dim: 1 (columns), 0 (rows); 1 where none is."""
        return 0 if self.strides[-2] == 1 and self.strides[-1] != 1 else 1

    @property
    def bulk(self) -> bool:
        """Whether bulk copies take it: one contiguous dim, other strides of whole 16 bytes."""
        size = DTYPES[self.dtype].itemsize
        others = [s for s in self.strides if s not in (0, 1)]
        if sum(s == 1 for s in self.strides[-2:]) != 1 or 1 in self.strides[:-2]:
            return False
        if any(s < 0 or s * size % VECTOR_BYTES for s in [*others, self.offset]):
            return False
        return sum(map(bool, self.strides[:-2])) + 2 <= TMA[0].limits["rank"]


@dataclass(frozen=True)
class RowResult:
    """A result with one value per row of the scores.

    Attributes:
        out: over (batch, m, 1).
        cell: over the statistic of the row's scores and the sum of its weights.
    """

    out: Tensor
    cell: Cell


@dataclass(frozen=True)
class Problem:
    """What to compute.

    Attributes:
        batch: extents of the batch dims.
        m, s, q: rows of the scores, the streamed dim, columns of the values.
        products: pairs of operands of the scores, over (batch, m, e) and (batch, s, e).
        depths: extent of e per pair.
        scores: cell over the products in order, then `extras`.
        extras: operands of the scores over (batch, m, s).
        values: over (batch, q, s).
        monoid: how weighted values mix.
        cell: over the mixed value, then `more`.
        more: operands of the result over (batch, m, q).
        out: the result, over (batch, m, q).
        rows: results beside it.
    """

    batch: tuple[int, ...]
    m: int
    s: int
    q: int
    products: tuple[tuple[Tensor, Tensor], ...]
    depths: tuple[int, ...]
    values: Tensor
    out: Tensor
    monoid: Online
    scores: Cell = IDENTITY
    extras: tuple[Tensor, ...] = ()
    cell: Cell = IDENTITY
    more: tuple[Tensor, ...] = ()
    rows: tuple[RowResult, ...] = ()


def scored(problem: Problem) -> tuple[Cell, float]:
    """(x, c) with scores c x, for a constant c > 0 that the weights take in."""
    # Products are in f32 as they are.
    own: dict[Cell, Cell] = {apply(WIDENED, arg(n)): arg(n) for n in range(len(problem.products))}
    score, scale = gathered(problem.scores) if problem.monoid.scales else (problem.scores, 1.0)
    return replaced(score, own), scale


def live(problem: Problem) -> Live:
    """What of the streamed dim may weigh anything, for dims numbered as (batch, m, s)."""
    extents = dict(enumerate((*problem.batch, problem.m, problem.s)))
    numbered = enumerate(problem.extras, len(problem.products))
    counts = {n: positions(x.strides) for n, x in numbered if x.counts}
    unit = MONOIDS[problem.monoid.statistic].unit
    score = scored(problem)[0] if unit is not None else IDENTITY
    return Live(score, counts, extents, len(problem.batch) + 1, unit or 0.0)


@dataclass(frozen=True)
class Tiling:
    """How to compute it.

    Attributes:
        consumers: consumer warpgroups, of 64 rows each.
        s: a chunk of the streamed dim, a multiple of 16.
        q: columns of one CTA, a multiple of 16 up to 256.
        stages: chunks of each operand in shared memory; of 1, which one consumer has, operands go
            through registers.
        staging: result panels a consumer keeps in shared memory; 0 means all of its tile.
        turns: consumers start their products in turns, so that one weighs while another multiplies.
        order: in which tiles are taken.
    """

    consumers: int = 2
    s: int = 128
    q: int = 128
    stages: int = 2
    staging: int = 0
    turns: bool = True
    order: Order = IN_ROWS

    @classmethod
    def of(cls, parameters: Mapping[str, int]) -> Tiling:
        """The tiling of a candidate, by `PARAMETERS`."""
        chosen: dict[str, Any] = dict(parameters)
        band, falling, turned = (chosen.pop(name) for name in ("band", "falling", "turned"))
        return cls(**chosen, order=Order(band, bool(falling), bool(turned)))


# Of a candidate: fields of `Tiling` and of its order.
PARAMETERS = frozenset({"consumers", "s", "q", "stages", "staging", "band", "falling", "turned"})


def grid(problem: Problem, tiling: Tiling) -> Grid:
    """The tiles of a kernel."""
    cols, rows = -(-problem.q // tiling.q), tiling.consumers * GROUP_ROWS
    return Grid(problem.batch, problem.m, problem.s, cols, rows, tiling.s, live(problem))


def padded_depth(depth: int, itemsize: int) -> int:
    """A depth rounded up to rows of 64 bytes: narrower swizzles halve the matrix rate."""
    unit = 64 // itemsize
    return -(-depth // unit) * unit


@dataclass(frozen=True)
class MatrixOperand:
    """An operand in memory and its tile or ring in shared memory, (stages, mn, k)."""

    tensor: Tensor
    buffer: ir.Buffer
    ring: ir.Buffer
    form: SmemForm


class Writer:
    """What both ways share: tensors, tiles, scores, weights and results of one warpgroup."""

    consumers: int
    stages: int

    def __init__(self, problem: Problem, tiling: Tiling, name: str, warps: int) -> None:
        self.p, self.t = problem, tiling
        self.k = ThreadBuilder(name, warps)
        self.depths = [
            padded_depth(e, DTYPES[a.dtype].itemsize)
            for (a, _), e in zip(problem.products, problem.depths, strict=True)
        ]
        self.grid = grid(problem, replace(tiling, consumers=self.consumers))
        self.steps, self.rows = self.grid.steps, self.grid.rows
        self.last: Int = self.steps - 1
        self.count: Int = self.steps
        self.whole: tuple[Int, Int] | None = None
        self.wide = tiles.swizzled_width(tiling.q, DTYPES[problem.out.dtype].itemsize)
        self.panels = tiling.q // self.wide
        self.staged = tiling.staging or self.panels
        if self.panels % self.staged:
            wrong = f"{self.panels} panels in {self.staged} slots"
            raise ScheduleError(f"tiling of {name}", wrong, "whole rounds of them")

    # -- tensors --

    def _declare(self) -> None:
        p, t = self.p, self.t
        self.lefts, self.rights = list[MatrixOperand](), list[MatrixOperand]()
        shared: dict[tuple[str, int], MatrixOperand] = {}
        for (a, b), depth, e in zip(p.products, self.depths, p.depths, strict=True):
            for tensor, mn, tile, stages, found in (
                (a, p.m, self.rows, 1, self.lefts),
                (b, p.s, t.s, self.stages, self.rights),
            ):
                if (tensor.name, stages) not in shared:
                    operand = self._operand(tensor, (mn, e), (tile, depth), stages)
                    shared[tensor.name, stages] = operand
                found.append(shared[tensor.name, stages])
        self.values = self._operand(p.values, (p.q, p.s), (t.q, t.s), self.stages)
        self.extras = [None if x.counts else self._tensor(x, (p.m, p.s)) for x in p.extras]
        self.more = [None if x.counts else self._tensor(x, (p.m, p.q)) for x in p.more]
        self.out = self._tensor(p.out, (p.m, p.q), output=True)
        self.of_rows = [self._tensor(r.out, (p.m, 1), output=True, per_row=True) for r in p.rows]

    def _operand(
        self, tensor: Tensor, shape: tuple[int, int], tile: tuple[int, int], stages: int
    ) -> MatrixOperand:
        """The whole tensor, and a ring of its tiles in the widest form that they divide into."""
        size = DTYPES[tensor.dtype].itemsize
        forms, run = (K_MAJOR, tile[1]) if tensor.major else (MN_MAJOR, tile[0])
        form = next(f for f in forms if run * size % f.width == 0)
        layout = tiles.operand(stages, *tile, size, form)
        ring = self.k.smem(f"{tensor.name}_ring", tensor.dtype, (stages, *tile), layout)
        return MatrixOperand(tensor, self._tensor(tensor, shape, matrix=True), ring, form)

    def _tensor(
        self,
        tensor: Tensor,
        shape: tuple[int, int],
        output: bool = False,
        matrix: bool = False,
        per_row: bool = False,
    ) -> ir.Buffer:
        """A global tensor over the dims that it reaches; matrices keep their last two dims."""
        extents = (*self.p.batch, *shape)
        whole = (matrix or output) and not per_row
        kept = [
            d for d, stride in enumerate(tensor.strides)
            if stride or (whole and d >= len(self.p.batch))
        ]  # fmt: skip
        read = [tensor.extent(d, extents[d]) for d in kept] or [1]
        place = strided(read, [tensor.strides[d] for d in kept] or [1])
        first = tensor.offset + sum(tensor.low(d) * tensor.strides[d] for d in kept)
        layout = place.moved({"m": first})
        return self.k.tensor(tensor.name, tensor.dtype, read, layout=layout, output=output)

    def _view(
        self,
        tensor: Tensor,
        buffer: ir.Buffer,
        batch: Sequence[Int],
        rows: span,
        cols: span,
        matrix: bool = True,
    ) -> ir.View:
        """The (rows, columns) of a tensor at a batch index; without dims it does not reach."""
        at = [b - tensor.low(d) for d, b in enumerate(batch) if tensor.strides[d]]
        parts = [
            span(part.begin - tensor.low(d), part.extent)
            for d, part in enumerate((rows, cols), len(batch))
            if tensor.strides[d] or matrix
        ]
        if not parts:  # one value for the whole tile is a run of one
            parts = [span(at.pop() if at else 0, 1)]
        return buffer[(*at, *parts)]

    @contextmanager
    def _tiles(self) -> Iterator[tuple[list[Int], Int, Int]]:
        """This CTA's tiles: batch index, first row and first column."""
        k, order, total = self.k, self.t.order, self.grid.tiles
        back = k.state("back", 0, high=1) if order.turned else None
        with k.tiles(total) as tile:
            at: Int = tile
            if back is not None:
                at = k.state("at", tile, high=total - 1)
                with k.when(back):
                    k.assign(at, backwards(tile, ir.CTA, ir.N_CTAS, total))
                k.assign(back, back ^ 1)
            outer, row = order.place(at, self.grid.n_rows)
            row, rest = k.let("at", row), outer
            counts = (*self.p.batch, self.grid.cols)
            found: list[Int] = []
            for n, count in reversed(list(enumerate(counts))):
                found.insert(0, k.let("at", rest % count if n else rest))
                rest = rest // count
            *batch, col = found
            first = k.let("row", row * self.rows)
            self._bound(batch, first)
            yield batch, first, k.let("col", col * self.t.q)

    def _bound(self, batch: Sequence[Int], row: Int) -> None:
        """The last chunk and the number of chunks that may weigh anything, for a tile."""
        k, grid = self.k, self.grid
        if not grid.bounded:
            return
        first, last = grid.chunks(batch, row)
        self.last = k.let("last_chunk", last, low=0, high=self.steps - 1)
        self.count = k.let("chunks", self.last - first + 1, low=1, high=self.steps)
        if (whole := grid.whole(batch, row)) is not None:
            self.whole = k.let("first_whole", whole[0]), k.let("last_whole", whole[1])

    def _chunk(self, step: Int) -> Int:
        """Where the chunk of a step begins: the last one first, whose tail is masked once."""
        if not self.grid.bounded:
            return (self.steps - 1 - step) * self.t.s
        return self.k.let("number", self.last - step, low=0, high=self.steps - 1) * self.t.s

    # -- scores and weights of one warpgroup --

    def _registers(self) -> None:
        k, t, p = self.k, self.t, self.p
        layout = accumulator(GROUP_ROWS, t.s)
        self.scores = [
            k.reg("scores", "f32", (GROUP_ROWS, t.s), layout) for _ in p.products or [None]
        ]
        score = self.scores[0]
        self.weights = k.reg_like("weights", p.values.dtype, score.all)
        self.numbers = dict[str, ir.View]()
        self.mixed = k.reg("mixed", "f32", (GROUP_ROWS, t.q), accumulator(GROUP_ROWS, t.q))
        self.top, self.next, self.total, self.change, self.part = (
            k.reg_reduced(name, "f32", score.all, [1])
            for name in ("top", "top_next", "total", "change", "part")
        )
        self.plain, scale = scored(p)
        online, known = p.monoid, self.grid.live
        self.mask = known.mask if known.score == self.plain else None
        if self.mask is not None:
            self.plain = known.unmasked
        pair = {n: apply("mul", arg(n), scale) if scale != 1 else arg(n) for n in range(2)}
        weight = in_powers_of_two(substituted(online.weight, pair))
        self.weight, self.row_cells = hoisted(weight, frozenset({1}), 2)
        # A chunk that leaves the statistic alone must leave the sums alone: a factor that is 1 but
        # for a rounding, once per chunk, drives apart the weights of equal scores.
        self.rescale = in_powers_of_two(substituted(online.rescale, pair), late=True)
        self.row_values = [k.reg_reduced("origin", "f32", score.all, [1]) for _ in self.row_cells]

    def _load_extras(self, batch: Sequence[Int], row: Int, col: Int) -> list[ir.View | Int]:
        """Operands of the scores at one chunk, on the threads of the scores.

        Of what counts columns the first number: `_score` makes the others where it needs them.
        """
        score = self.scores[0].all
        return [
            col
            if x.counts and x.strides[-1]
            else self._on_registers(x, buffer, batch, row, col, score)
            for x, buffer in zip(self.p.extras, self.extras, strict=True)
        ]

    def _on_registers(
        self,
        tensor: Tensor,
        buffer: ir.Buffer | None,
        batch: Sequence[Int],
        row: Int,
        col: Int,
        like: ir.View,
    ) -> ir.View:
        missing = [d for d, stride in enumerate(tensor.strides[-2:]) if not stride]
        held = self.k.reg_reduced(tensor.name, tensor.dtype, like, missing)
        if buffer is None:
            return self._index(tensor, batch, row, col, held)
        rows, cols = (span(at, e) for at, e in zip((row, col), like.shape, strict=True))
        source = self._view(tensor, buffer, batch, rows, cols, matrix=False)
        index = tuple(0 if d in missing else slice(None) for d in range(2))
        self.k.copy(held.all[index] if len(missing) < 2 else held.all[0], source)
        return held.all

    def _index(
        self, tensor: Tensor, batch: Sequence[Int], row: Int, col: Int, held: ir.Buffer
    ) -> ir.View:
        """Positions along the dim that an operand counts."""
        (dim,) = [d for d, s in enumerate(tensor.strides) if s]
        self.k.index(held.all, max(dim - len(batch), 0), [*batch, row, col][dim])
        return held.all

    def _score(self, extras: Sequence[ir.View | Int], step: Int) -> None:
        """From products to scores, less their constant factor; outside the dim they are masked."""
        k, p, t = self.k, self.p, self.t
        products = self.scores[: len(p.products)]
        if self.plain != IDENTITY or not products:
            self._evaluate(self.plain, products, extras)
        if self.mask is not None:
            first = len(products) - 1
            local = substituted(self.mask, {n: arg(n - first) for n in used(self.mask)})
            hidden = apply("where", local, arg(0), self.grid.live.unit)
            kept = self._is_kept(step)
            with nullcontext() if kept is None else k.when(equal(kept, 0)):
                self._evaluate(hidden, self.scores[:1], extras)
        inside = p.s - (self.steps - 1) * t.s  # of the last chunk, which comes first
        conditions = equal(step, 0), equal(self.last, self.steps - 1)
        if inside < t.s and 0 not in conditions:
            with ExitStack() as stack:
                for condition in conditions:
                    if isinstance(condition, Expr):
                        stack.enter_context(k.when(condition))
                self._mask(inside)

    def _evaluate(
        self, cell: Cell, products: Sequence[ir.Buffer], extras: Sequence[ir.View | Int]
    ) -> None:
        """Scores by a cell of products, then extras; what counts columns is numbered in slices."""
        n, kept = len(products), sorted(used(cell))
        held = [extras[m - n] for m in kept if m >= n]
        wide = self.t.s if all(isinstance(x, ir.View) for x in held) else NUMBERED
        for first in range(0, self.t.s, wide):
            cols = slice(first, first + wide)
            ins = {
                m: products[m][:, cols]
                if m < n
                else self._columns(self.p.extras[m - n], extras[m - n], cols)
                for m in kept
            }
            mapped(self.k, cell, self.scores[0][:, cols], ins)

    def _is_kept(self, step: Int) -> Int | None:
        """Whether the mask takes nothing of a chunk; None for the first, of which it often does."""
        if self.whole is None or not isinstance(step, Expr):
            return None
        first, last = self.whole
        at = self.last - step
        return self.k.let("kept", make("and", first <= at, at <= last))

    def _columns(self, tensor: Tensor, held: ir.View | Int, cols: slice) -> ir.View:
        """Some columns of an operand of the scores, as far as it has columns."""
        if isinstance(held, ir.View):
            return held[:, cols] if tensor.strides[-1] else held
        return self._numbers(tensor.name, held + cols.start, cols)

    def _numbers(self, name: str, begin: Int, cols: slice) -> ir.View:
        """Numbers of some columns of the scores, the first of which is `begin`."""
        if name not in self.numbers:
            like = self.scores[0][:, cols]
            self.numbers[name] = self.k.reg_reduced(name, "i32", like, [0]).all
        self.k.index(self.numbers[name], 1, begin)
        return self.numbers[name]

    def _mask(self, inside: int) -> None:
        """Scores from a column on weigh nothing."""
        k, p, score = self.k, self.p, self.scores[0]
        unit = MONOIDS[p.monoid.statistic].unit
        if unit is None:
            raise ScheduleError(f"monoid {p.monoid.statistic}", "has no unit", "one, for tails")
        cut, whole = inside // NUMBERED * NUMBERED, -(-inside // NUMBERED) * NUMBERED
        if cut < whole:
            cols = slice(cut, whole)
            kept = apply("lt", arg(1), Constant(inside))
            numbers = self._numbers("column", cut, cols)
            k.map(apply("where", kept, arg(0), unit), score[:, cols], score[:, cols], numbers)
        if whole < self.t.s:
            k.fill(score[:, whole:], unit)

    def _weigh(self, first: bool) -> None:
        """Scores to weights: the new statistic, what it rescales by, and the sum of weights."""
        k, p, score = self.k, self.p, self.scores[0]
        new = self.top if first else self.next
        k.reduce(p.monoid.statistic, new.all, score.all, [1])
        if not first:
            k.map(apply(p.monoid.merge, arg(0), arg(1)), new.all, new.all, self.top.all)
            k.map(self.rescale, self.change.all, self.top.all, new.all)
            k.map(IDENTITY, self.top.all, new.all)
        for cell, value in zip(self.row_cells, self.row_values, strict=True):
            mapped(k, cell, value.all, {1: self.top.all})
        rows = [v.all for v in self.row_values]
        k.map(self.weight, score.all, score.all, self.top.all, *rows)
        k.reduce("+", (self.total if first else self.part).all, score.all, [1])
        if not first:
            merged = apply("add", apply("mul", arg(0), arg(1)), arg(2))
            k.map(merged, self.total.all, self.total.all, self.change.all, self.part.all)

    def _rescale(self) -> None:
        """The mixed values of the chunks before, for the new statistic."""
        scaled = apply("mul", arg(0), arg(1))
        self.k.map(scaled, self.mixed.all, self.mixed.all, self.change.all)

    # -- results --

    def _finish(self) -> Cell:
        """The result's cell over the mixed values, the sum of weights, then `more`."""
        numbers = {0: self.p.monoid.finish}
        numbers |= {n: arg(n + 1) for n in used(self.p.cell) if n}
        return substituted(self.p.cell, numbers)

    def _result(self, batch: Sequence[Int], row: Int, col: Int, panel: int) -> ir.Buffer:
        """One panel of the result in registers."""
        k = self.k
        cols = slice(panel * self.wide, (panel + 1) * self.wide)
        mixed = self.mixed[:, cols]
        more = [
            self._on_registers(x, buffer, batch, row, col + panel * self.wide, mixed)
            for x, buffer in zip(self.p.more, self.more, strict=True)
        ]
        result = k.reg_like(self.p.out.name, self.p.out.dtype, mixed)
        k.map(self._finish(), result.all, mixed, self.total.all, *more)
        return result

    def _store_rows(self, batch: Sequence[Int], row: Int, col: Int) -> None:
        """The results with one value per row, by the tile of the first columns."""
        k, scale = self.k, scored(self.p)[1]
        top = apply("mul", arg(0), scale) if scale != 1 else arg(0)
        with k.when(equal(col, 0)) if self.p.rows and self.grid.cols > 1 else nullcontext():
            for r, buffer in zip(self.p.rows, self.of_rows, strict=True):
                held = k.reg_reduced(r.out.name, r.out.dtype, self.scores[0].all, [1])
                cell = substituted(r.cell, {0: top, 1: arg(1)})
                k.map(cell, held.all, self.top.all, self.total.all)
                rows, cols = span(row, GROUP_ROWS), span(0, 1)
                place = self._view(r.out, buffer, batch, rows, cols, matrix=False)
                k.copy(place, held.all[slice(None), 0])

    def _place(self, batch: Sequence[Int], row: Int, col: Int, panel: int) -> ir.View:
        rows, cols = span(row, GROUP_ROWS), span(col + panel * self.wide, self.wide)
        return self._view(self.p.out, self.out, batch, rows, cols)
