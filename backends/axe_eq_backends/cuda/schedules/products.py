"""Contractions of any shape, dtype and strides: tiles through registers, masked element by element.

Every step reads the factors' tensors into registers (vectors where they are aligned), applies the
factors' cells, and puts the tile into one of two shared buffers; warps multiply from there, on
matrix units or on ordinary lanes, while the next step's reads are on their way. One barrier per
step: a buffer is written again two steps later.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import gcd, prod

from axe_eq.errors import ScheduleError
from axe_eq.kernel import ir
from axe_eq.kernel.build import Builder
from axe_eq.kernel.cells import IDENTITY, Cell, Constant, apply, arg, renumber, used
from axe_eq.kernel.expr import Int, minimum
from axe_eq.kernel.ir import span
from axe_eq.layout import Layout
from axe_eq.program.types import DTYPES
from axe_eq_backends.cuda import mma
from axe_eq_backends.cuda.schedules import tiles
from axe_eq_backends.cuda.schedules.contraction import (
    Contraction,
    Product,
    Span,
    Tensor,
    banded,
    declare,
    digits,
    spanned,
)  # fmt: skip
from axe_eq_backends.cuda.schedules.tensors import VECTOR_BYTES, Operand, power_of_two_from

WARP, BUFFERS = 32, 2
MATRIX_ROWS, MATRIX_COLS, MATRIX_DEPTH = 16, 8, 16
RASTER = 8
# As measured on f16, f32 and f64: at most 128 rows or columns, and as many accumulators for a CTA
# of four warps; bytes of a row that a step of a full tile reads.
MOST_SIDE, MATRIX_TILE, LANE_TILE = 128, 128 * 128, 128 * 64
STEP_BYTES, WARPS = 64, 4


@dataclass(frozen=True)
class Tile:
    """How one CTA works.

    Attributes:
        m, n, k: its tile and step, powers of two.
        matrix: products on matrix units; else on ordinary lanes.
        dtype: what factors are multiplied in; "" for the contraction's own.
        warps: of the CTA; four with large parts of a tile measured better than eight.
    """

    m: int
    n: int
    k: int
    matrix: bool
    dtype: str = ""
    warps: int = WARPS


def least_tile(matrix: bool) -> tuple[int, int]:
    """Rows and columns of the smallest tile."""
    return (16, 32) if matrix else (16, 16)


def step_depth(m: int, n: int, matrix: bool, itemsize: int, n_products: int, deepest: int) -> int:
    """Elements of the reduced dim that a step takes.

    Small tiles wait for every step's reads: fewer, deeper steps. Every thread reads at least one
    element.

    Args:
        m: rows of the tile.
        n: columns of it.
        matrix: products on matrix units.
        itemsize: bytes of an element that is multiplied.
        n_products: products with a tile each.
        deepest: extent of the longest reduced dim.
    """
    room = (MATRIX_TILE if matrix else LANE_TILE) // n_products
    deep = STEP_BYTES // itemsize * min(4, max(1, room // (m * n)))
    depth = max(16 if matrix else 4, min(deep, power_of_two_from(deepest)))
    return max(depth, power_of_two_from(-(-WARPS * WARP // min(m, n))))


def products(c: Contraction, tile: Tile, name: str = "products") -> ir.Kernel:
    """The kernel.

    Args:
        c: what to compute; dims that fuse should be fused.
        tile: how.
        name: of the kernel.

    Raises:
        ScheduleError: products of several element types, or a tile that threads do not divide.
    """
    return _Writer(c, tile, name).write()


@dataclass(frozen=True)
class _Phase:
    """What one loop over steps sums: outer reduced dims, the span of a step, and the products."""

    outer: tuple[int, ...]
    name: str
    span: Span
    numbers: tuple[int, ...]


@dataclass(frozen=True)
class _Factor:
    """One side of products: a cell over tensors, on its way through shared memory."""

    side: str
    phase: _Phase
    cell: Cell
    numbers: tuple[int, ...]
    masked: bool
    major: int
    held: Mapping[int, ir.View]
    staged: ir.Buffer
    shared: ir.Buffer
    fragment: ir.Buffer


class _Writer:
    def __init__(self, c: Contraction, tile: Tile, name: str) -> None:
        self.c, self.t = c, tile
        self.dtype = tile.dtype or c.dtype
        self.size = DTYPES[self.dtype].itemsize
        self.k = Builder(name, tile.warps)
        self.threads = WARP * tile.warps
        rows, self.m = spanned(c, c.rows, tile.m)
        cols, self.n = spanned(c, c.cols, tile.n)
        self.outer = (*c.outer, *rows, *cols)
        self.phases = tuple(self._phases())
        self.spans = {"m": self.m, "n": self.n} | {p.name: p.span for p in self.phases}

    def _phases(self) -> Iterator[_Phase]:
        for number, depth in enumerate(self.c.depths):
            outer, inner = spanned(self.c, depth, self.t.k)
            mine = tuple(n for n, p in enumerate(self.c.products) if p.depth == depth)
            yield _Phase(outer, f"k{number}", inner, mine)

    # -- the whole --

    def write(self) -> ir.Kernel:
        k, c, t = self.k, self.c, self.t
        outer = (*self.outer, *(d for p in self.phases for d in p.outer))
        spans = self.spans
        self.tensors: dict[int, Tensor] = {
            n: declare(k, o, c.shape, outer, spans)
            for n, o in enumerate(c.operands)
            if not o.counts
        }
        ends = {name: spans[name] for name in "mn"}
        outs = [declare(k, o, c.shape, outer, ends, output=True) for o, _ in c.outputs]
        self.accs = self._accumulators()
        factors = {p.name: self._factors(p) for p in self.phases}
        counts = (self.m.count, self.n.count)
        per_batch = prod(counts)
        batches = [c.shape[d] for d in self.outer]
        with k.tiles(prod(batches) * per_batch, persistent=False) as number:
            at: dict[int | str, Int | span] = {}
            if batches:
                at |= zip(self.outer, digits(k, number // per_batch, batches, "batch"), strict=True)
            row, col = banded(k, number % per_batch, counts, RASTER)
            at |= {"m": span(k.let("row", row * t.m), t.m), "n": span(k.let("col", col * t.n), t.n)}
            for acc in self.accs:
                k.fill(acc.all, 0.0)
            for phase in self.phases:
                self._sum(phase, factors[phase.name], at)
            self._store(outs, at)
        return k.finish()

    # -- tiles --

    def _accumulators(self) -> list[ir.Buffer]:
        t = self.t
        dtype = DTYPES[self.dtype].accumulate
        if t.matrix:
            self.warps = _warp_grid(t)
            layout = mma.fragment("c", t.m, t.n, self.warps)
            return [self.k.reg("acc", dtype, (t.m, t.n), layout) for _ in self.c.products]
        self.lanes = _LaneTile(t, self.size, self._major("m"), self._major("n"))
        layout = self.lanes.accumulator()
        return [self.k.reg("acc", dtype, (t.m, t.n), layout) for _ in self.c.products]

    def _major(self, side: str) -> int:
        """Whether shared memory has the reduced dim contiguous: where the tensors mostly have."""
        votes = [
            self._contiguous(f, side, phase)
            for phase in self.phases
            for f in self._cells(side, phase)
        ]
        return int(2 * sum(votes) >= len(votes))

    def _cells(self, side: str, phase: _Phase) -> list[Cell]:
        """The different factors of a side."""
        pairs: list[Product] = [self.c.products[n] for n in phase.numbers]
        return list(dict.fromkeys(p.a if side == "m" else p.b for p in pairs))

    def _contiguous(self, cell: Cell, side: str, phase: _Phase) -> int:
        """Whether the largest tensor of a factor is contiguous along the reduced dim."""
        main = self._main(cell, side, phase)
        if main is None:
            return 1
        depth, across = phase.span.dims, self.spans[side].dims
        strides = [main.strides[d[-1]] if d else 0 for d in (depth, across)]
        return int(not (strides[0] != 1 and strides[1] == 1))

    def _main(self, cell: Cell, side: str, phase: _Phase) -> Operand | None:
        """The tensor of a factor that reaches most of its tile."""
        dims = (*phase.span.dims, *self.spans[side].dims)
        read = [self.c.operands[n] for n in sorted(used(cell))]
        read = [o for o in read if not o.counts]
        return max(read, key=lambda o: sum(bool(o.strides[d]) for d in dims), default=None)

    def _factors(self, phase: _Phase) -> dict[tuple[str, Cell], _Factor]:
        return {
            (side, cell): self._factor(side, cell, phase)
            for side in "mn"
            for cell in self._cells(side, phase)
        }

    def _factor(self, side: str, cell: Cell, phase: _Phase) -> _Factor:
        k, c, t = self.k, self.c, self.t
        tile = t.m if side == "m" else t.n
        major = self._major(side) if not t.matrix else self._contiguous(cell, side, phase)
        like = k.reg("like", self.dtype, (tile, t.k), self._read_layout(cell, side, phase))
        plain = c.plain(cell)
        reaches = plain is not None and any(plain.strides[d] for d in phase.span.dims)
        numbers = tuple(sorted(used(cell)))
        held = {n: self._registers(n, like, (side, phase.name)) for n in numbers}
        name = plain.name if plain else f"factor_{side}"
        layout = self._shared_layout(tile, major)
        shared = k.smem(f"{name}_shared", self.dtype, (BUFFERS, tile, t.k), layout)
        as_is = plain is not None and plain.dtype == self.dtype and reaches
        first = held[numbers[0]].buffer if as_is else None
        if first is None or first.shape != (tile, t.k):
            first = k.reg_like(f"{name}_staged", self.dtype, like.all)
        if t.matrix:
            place = mma.fragment("a" if side == "m" else "b", tile, MATRIX_DEPTH, self.warps)
            fragment = k.reg(f"{name}_fragment", self.dtype, (tile, MATRIX_DEPTH), place)
        else:
            place = self.lanes.fragment(side)
            fragment = k.reg(f"{name}_fragment", self.dtype, (tile, self.lanes.chunk), place)
        masked = not reaches
        return _Factor(side, phase, cell, numbers, masked, major, held, first, shared, fragment)

    def _read_layout(self, cell: Cell, side: str, phase: _Phase) -> Layout:
        """Threads over a factor's tile: along what is contiguous in its largest tensor."""
        tile = self.t.m if side == "m" else self.t.n
        main = self._main(cell, side, phase)
        along_depth = self._contiguous(cell, side, phase)
        wide = 1 if main is None else _granule(self.c, main, phase.span, self.spans[side])
        slow, fast = (tile, self.t.k) if along_depth else (self.t.k, tile)
        wide = min(wide, max(1, slow * fast // self.threads))
        across = min(fast // wide, self.threads)
        down = min(self.threads // across, slow)
        if across * down != self.threads:
            raise ScheduleError(
                f"tile {tile} x {self.t.k}",
                f"has fewer elements than {self.threads} threads",
                "more",
            )
        per_slow, per_fast = slow // down, fast // across // wide
        rows = [(per_slow, per_fast * wide, "reg"), (down, across, "tx")]
        cols = [(per_fast, wide, "reg"), (across, 1, "tx"), (wide, 1, "reg")]
        shard = [*rows, *cols] if along_depth else [*cols, *rows]
        return Layout([i for i in shard if i[0] != 1] or [(1, 1, "reg")])

    def _shared_layout(self, tile: int, major: int) -> Layout:
        """Two buffers of (tile, k); the matrix units read rows of 16 bytes, lanes vectors."""
        depth = self.t.k
        if self.t.matrix:
            if major:  # one panel per product: parts of a wider one begin inside its swizzle
                return tiles.panels((BUFFERS,), tile, depth, self.size, MATRIX_DEPTH * self.size)
            return tiles.transposed_panels((BUFFERS,), tile, depth, self.size)
        if major:  # rows end one vector later, so that neighbours lie in other banks
            pitch = depth + VECTOR_BYTES // self.size
            return Layout([(BUFFERS, tile * pitch), (tile, pitch), (depth, 1)])
        return Layout([(BUFFERS, tile * depth), (tile, 1), (depth, tile)])

    def _registers(self, number: int, like: ir.Buffer, names: tuple[str, str]) -> ir.View:
        """Registers for an operand's part of a tile, on the threads of `like`."""
        operand = self.c.operands[number]
        missing = [
            d
            for d, name in enumerate(names)
            if not any(operand.strides[x] for x in self.spans[name].dims)
        ]
        return self.k.reg_reduced(operand.name, operand.dtype, like.all, missing).all

    # -- steps --

    def _sum(
        self,
        phase: _Phase,
        factors: Mapping[tuple[str, Cell], _Factor],
        at: Mapping[int | str, Int | span],
    ) -> None:
        k = self.k
        outer = [self.c.shape[d] for d in phase.outer]
        steps = prod(outer) * phase.span.count

        def here(step: Int) -> dict[int | str, Int | span]:
            found = dict(at)
            if outer:
                numbers = digits(k, step // phase.span.count, outer, "part")
                found |= zip(phase.outer, numbers, strict=True)
                step = step % phase.span.count
            found[phase.name] = span(k.let("depth", step * self.t.k), self.t.k)
            return found

        first = here(0)
        for factor in factors.values():
            self._read(factor, first)
        with k.range(steps, name="step") as step:
            now = here(step) if any(f.masked for f in factors.values()) else at
            buffer = k.let("buffer", step % BUFFERS)
            for factor in factors.values():
                self._stage(factor, buffer, now)
            k.sync()
            if steps > 1:
                with k.when(step + 1 < steps):
                    following = here(minimum(step + 1, steps - 1))  # proves where it ends
                    for factor in factors.values():
                        self._read(factor, following)
            self._multiply(phase, factors, buffer)

    def _read(self, factor: _Factor, at: Mapping[int | str, Int | span]) -> None:
        for number, held in factor.held.items():
            self._load(number, held, (factor.side, factor.phase.name), at)

    def _load(
        self,
        number: int,
        held: ir.View,
        names: tuple[str, str],
        at: Mapping[int | str, Int | span],
    ) -> None:
        """Read an operand's part of a tile over two spans, or count it."""
        operand = self.c.operands[number]
        if operand.counts:
            self._count(operand, held, names, at)
            return
        tensor = self.tensors[number]
        index = tuple(slice(None) if tensor.has(name) else 0 for name in names)
        part = held[index] if any(tensor.has(name) for name in names) else held[0]
        self.k.copy(part, tensor.view(at))

    def _count(
        self,
        operand: Operand,
        held: ir.View,
        names: tuple[str, str],
        at: Mapping[int | str, Int | span],
    ) -> None:
        (dim,) = [d for d, s in enumerate(operand.strides) if s]
        for position, name in enumerate(names):
            where = at[name]
            if dim in self.spans[name].dims and isinstance(where, span):
                self.k.index(held, position, where.begin)
                return
        where = at[dim]
        assert not isinstance(where, span)
        self.k.index(held, 0, where)

    def _stage(self, factor: _Factor, buffer: Int, at: Mapping[int | str, Int | span]) -> None:
        """A factor's tile into shared memory: what lies past the reduced dim's end is zero."""
        k = self.k
        if factor.staged not in {view.buffer for view in factor.held.values()}:
            numbers = {n: i for i, n in enumerate(factor.numbers)}
            cell, ins = renumber(factor.cell, numbers), list(factor.held.values())
            if factor.masked:
                where = at[factor.phase.name]
                assert isinstance(where, span)
                position = k.reg_reduced("depth_index", "i32", factor.staged.all, [0])
                k.index(position.all, 1, where.begin)
                inside = apply("lt", arg(len(ins)), Constant(factor.phase.span.extent))
                cell = apply("where", inside, cell, 0.0)
                ins.append(position.all)
            k.map(cell, factor.staged.all, *ins)
        k.copy(factor.shared[buffer], factor.staged.all)

    def _multiply(
        self, phase: _Phase, factors: Mapping[tuple[str, Cell], _Factor], buffer: Int
    ) -> None:
        k = self.k
        chunk = MATRIX_DEPTH if self.t.matrix else self.lanes.chunk
        for begin in range(0, self.t.k, chunk):
            for factor in factors.values():
                k.copy(factor.fragment.all, factor.shared[buffer, :, span(begin, chunk)])
            for number in phase.numbers:
                p = self.c.products[number]
                a, b = factors["m", p.a].fragment, factors["n", p.b].fragment
                k.gemm(self.accs[number].all, a.all, b.all, accumulate=1)

    # -- results --

    def _store(self, outs: list[Tensor], at: Mapping[int | str, Int | span]) -> None:
        k, c = self.k, self.c
        like = self.accs[0]
        values: dict[int, ir.View] = {}
        for number in c.extras:
            values[number] = self._registers(number, like, ("m", "n"))
            self._load(number, values[number], ("m", "n"), at)
        values |= {len(c.operands) + n: acc.all for n, acc in enumerate(self.accs)}
        for tensor, (out, cell) in zip(outs, c.outputs, strict=True):
            numbers = sorted(used(cell))
            compact = renumber(cell, {n: i for i, n in enumerate(numbers)})
            ins = [values[n] for n in numbers]
            if compact == IDENTITY and ins[0].buffer.dtype == out.dtype:
                k.copy(tensor.view(at), ins[0])
                continue
            result = k.reg_like(out.name, out.dtype, like.all)
            k.map(compact, result.all, *ins)
            k.copy(tensor.view(at), result.all)


def _granule(c: Contraction, operand: Operand, *spans: Span) -> int:
    """Elements along the contiguous dim of a tensor that are read at once, aligned everywhere."""
    wide = VECTOR_BYTES // DTYPES[operand.dtype].itemsize
    unit = [d for s in spans for d in s.dims[-1:] if operand.strides[d] == 1]
    if not unit:
        return 1
    wide = gcd(wide, operand.offset, c.shape[unit[0]])
    for d, stride in enumerate(operand.strides):
        if d != unit[0] and stride:
            wide = gcd(wide, stride)
        if low_high := operand.bound(d):
            wide = gcd(wide, low_high[0] * stride)
    return wide


def _warp_grid(t: Tile) -> tuple[int, int]:
    """Warps over rows and columns of a tile: the least shared memory that all of them read."""
    ways = [
        (down, t.warps // down)
        for down in (1, 2, 4, 8)
        if t.warps % down == 0
        and t.m % (down * MATRIX_ROWS) == 0
        and t.n % (t.warps // down * MATRIX_COLS) == 0
    ]
    if not ways:
        wrong = f"{t.m} x {t.n} for {t.warps} warps"
        raise ScheduleError("tile", wrong, f"multiples of {MATRIX_ROWS} x {MATRIX_COLS}")
    return min(ways, key=lambda w: t.m // w[0] + t.n // w[1])


class _LaneTile:
    """Where lanes hold a tile: a grid of threads, each with the same number of rows and columns.

    Where the reduced dim is contiguous in shared memory, a thread's rows are spread (neighbours
    read neighbouring rows); else it holds vectors of neighbouring rows.
    """

    def __init__(self, t: Tile, size: int, row_major: int, col_major: int) -> None:
        threads = WARP * t.warps
        self.t, self.chunk = t, min(VECTOR_BYTES // size, t.k)
        self.major = {"m": row_major, "n": col_major}
        ways = [
            (down, threads // down)
            for down in (1, 2, 4, 8, 16, 32)
            if t.m % down == 0 and t.n % (threads // down) == 0
        ]
        if not ways:
            raise ScheduleError("tile", f"{t.m} x {t.n} for {threads} threads", "one element each")
        self.grid = min(ways, key=lambda w: (t.m // w[0] + t.n // w[1], -w[1]))
        self.per = {"m": t.m // self.grid[0], "n": t.n // self.grid[1]}

    def _side(self, side: str, unit: int) -> list[tuple[int, int, str]]:
        """Iters of a tile's rows or columns, registers `unit` apart."""
        threads, stride = (self.grid[0], self.grid[1]) if side == "m" else (self.grid[1], 1)
        per = self.per[side]
        wide = 1 if self.major[side] else gcd(per, self.chunk)
        return [(per // wide, wide * unit, "reg"), (threads, stride, "tx"), (wide, unit, "reg")]

    def accumulator(self) -> Layout:
        """The layout of the (m, n) accumulator."""
        shard = [*self._side("m", self.per["n"]), *self._side("n", 1)]
        return _layout(shard)

    def fragment(self, side: str) -> Layout:
        """The layout of a (rows, chunk) operand, replicated over the other side's threads."""
        if self.major[side]:  # vectors along the reduced dim
            shard = [*self._side(side, self.chunk), (self.chunk, 1, "reg")]
        else:
            shard = [*self._side(side, 1), (self.chunk, self.per[side], "reg")]
        other = (self.grid[1], 1, "tx") if side == "m" else (self.grid[0], self.grid[1], "tx")
        return _layout(shard, [other])


def _layout(
    shard: list[tuple[int, int, str]], replica: list[tuple[int, int, str]] | None = None
) -> Layout:
    kept = [i for i in shard if i[0] != 1]
    return Layout(kept or [(1, 1, "reg")], [i for i in replica or () if i[0] != 1])


__all__ = ["Tile", "products"]
