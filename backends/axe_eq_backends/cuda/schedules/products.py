"""Contractions of any shape, dtype and strides: tiles through registers, masked element by element.

Every step reads the factors' tensors into registers (vectors where they are aligned), applies the
factors' cells, and puts the tile into one of two shared buffers; warps multiply from there, on
matrix units or on ordinary lanes, while the next step's reads are on their way. One barrier per
step: a buffer is written again two steps later. Factors of whole words that matrix units take as
they lie are copied to shared memory beside that, three steps ahead.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from math import gcd, prod

from axe_eq.errors import ScheduleError
from axe_eq.kernel.cells import Cell, Constant, apply, arg, renumber, used
from axe_eq.kernel.expr import Int, minimum
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.kernel.threads.ir import span
from axe_eq.kernel.threads.live import words
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
from axe_eq_backends.cuda.schedules.product_tiles import (
    MOST_HELD,
    WARP,
    WORD,
    LaneTile,
    Tile,
    accumulator,
    few_accumulators,
    largest_tile,
    most_parts,
    warp_grid,
)  # fmt: skip
from axe_eq_backends.cuda.schedules.tensors import VECTOR_BYTES, Operand

BUFFERS, QUAD = 2, 4
SLOTS = 3  # of shared memory that asynchronous copies of steps take turns in
# Elements of the reduced dim that lanes multiply at once.
LANE_DEPTH = 2
# Words of fragments, and multiply-adds of a thread, of which both are more in no straight code that
# is no loop: ptxas reads ahead until registers end, and spills what it found before.
MOST_AHEAD, WRITTEN_OUT = 256, 512


def products(c: Contraction, tile: Tile, name: str = "products") -> ir.Kernel:
    """The kernel.

    Args:
        c: what to compute; dims that fuse should be fused.
        tile: how.
        name: of the kernel.

    Raises:
        ScheduleError: products of several element types, a tile that threads do not divide, or of
            which a warp has fewer accumulators than products need.
    """
    if any(o.end for o in c.operands):
        raise ScheduleError(f"kernel {name}", "reads parts that end past a tensor", "whole parts")
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
    held: Mapping[int, ir.View]
    staged: ir.Buffer
    shared: ir.Buffer
    fragment: ir.Buffer


@dataclass(frozen=True)
class _Fetched:
    """One side of products that is a tensor as it lies, and fragments that take turns."""

    number: int
    shared: ir.Buffer
    fragments: tuple[ir.Buffer, ir.Buffer]


class _Writer:
    def __init__(self, c: Contraction, tile: Tile, name: str) -> None:
        self.c, self.t = c, tile
        self.dtype = tile.dtype or c.dtype
        self.size = DTYPES[self.dtype].itemsize
        self.k = ThreadBuilder(name, tile.warps)
        self.threads = WARP * tile.warps
        self.chunk = mma.row_of(self.dtype).shape[2] if tile.matrix else LANE_DEPTH
        rows, self.m = spanned(c, c.rows, tile.m)
        cols, self.n = spanned(c, c.cols, tile.n)
        there = self.m.extent, self.n.extent
        if tile.matrix and few_accumulators(tile, self.dtype, *there):
            wrong = f"{tile.m} x {tile.n} of {self.dtype} by {tile.warps} warps, {there} there"
            raise ScheduleError(f"tile of {name}", wrong, "more accumulators of each warp")
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
        fetched = {p.name: self._fetched(p) for p in self.phases}
        factors = {p.name: self._factors(p) for p in self.phases if not fetched[p.name]}
        counts = (self.m.count, self.n.count)
        per_batch = prod(counts)
        batches = [c.shape[d] for d in self.outer]
        # Full tiles leave no registers for what a loop over tiles would keep.
        full = not t.matrix and len(self.accs) * t.m * t.n >= largest_tile(self.dtype)
        with k.tiles(prod(batches) * per_batch, persistent=False, loop=not full) as number:
            at: dict[int | str, Int | span] = {}
            if batches:
                at |= zip(self.outer, digits(k, number // per_batch, batches, "batch"), strict=True)
            row, col = banded(k, number % per_batch, counts, t.band)
            at |= {"m": span(k.let("row", row * t.m), t.m), "n": span(k.let("col", col * t.n), t.n)}
            for acc in self.accs:
                k.fill(acc.all, 0.0)
            for phase in self.phases:
                if fetched[phase.name]:
                    self._stream(phase, fetched[phase.name], at)
                else:
                    self._sum(phase, factors[phase.name], at)
            self._store(outs, at)
        return k.finish()

    # -- tiles --

    def _accumulators(self) -> list[ir.Buffer]:
        t = self.t
        dtype = DTYPES[self.dtype].accumulate
        if t.matrix:
            self.warps = warp_grid(t, self.dtype)
        else:
            self.lanes = LaneTile(t, self.size)
        layout = accumulator(t, self.dtype)
        self.most = most_parts(t, self.dtype)
        return [self.k.reg("acc", dtype, (t.m, t.n), layout) for _ in self.c.products]

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
        major = self._contiguous(cell, side, phase)
        like = k.reg("like", self.dtype, (tile, t.k), self._read_layout(cell, side, phase))
        plain = c.plain(cell)
        reaches = plain is not None and any(plain.strides[d] for d in phase.span.dims)
        numbers = tuple(sorted(used(cell)))
        held = {n: self._registers(n, like, (side, phase.name)) for n in numbers}
        name = plain.name if plain else f"factor_{side}"
        shared = self._shared(name, tile, major, BUFFERS)
        as_is = plain is not None and plain.dtype == self.dtype and reaches
        first = held[numbers[0]].buffer if as_is else None
        if first is None or first.shape != (tile, t.k):
            first = k.reg_like(f"{name}_staged", self.dtype, like.all)
        fragment = self._fragment(name, side)
        masked = not reaches
        return _Factor(side, phase, cell, numbers, masked, held, first, shared, fragment)

    def _fragment(self, name: str, side: str) -> ir.Buffer:
        """Registers for what is multiplied at once of a side."""
        tile = self.t.m if side == "m" else self.t.n
        if self.t.matrix:
            operand = "a" if side == "m" else "b"
            place = mma.fragment(operand, tile, self.chunk, self.warps, self.dtype)
        else:
            place = self.lanes.fragment(side, self.chunk)
        return self.k.reg(f"{name}_fragment", self.dtype, (tile, self.chunk), place)

    def _fetched(self, phase: _Phase) -> dict[tuple[str, Cell], _Fetched]:
        """The factors of a phase where copies fetch all of them, none elsewhere."""
        found = dict[tuple[str, Cell], _Fetched]()
        if not self.t.matrix or self.size < WORD or self.t.k // self.chunk % 2:
            return {}
        sides = [(side, cell) for side in "mn" for cell in self._cells(side, phase)]
        tensors = [self.c.plain(cell) for _, cell in sides]
        for (side, _), o in zip(sides, tensors, strict=True):
            if o is None or o.dtype != self.dtype or any(o.window) or o.looks:
                return {}
            if not (self._reaches(o, side) and self._reaches(o, phase.name)):
                return {}
        for (side, cell), o in zip(sides, tensors, strict=True):
            assert o is not None
            (number,), tile = used(cell), self.t.m if side == "m" else self.t.n
            shared = self._shared(o.name, tile, self._contiguous(cell, side, phase), SLOTS)
            both = self._fragment(o.name, side), self._fragment(o.name, side)
            found[side, cell] = _Fetched(number, shared, both)
        return found

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

    def _shared(self, name: str, tile: int, major: int, number: int) -> ir.Buffer:
        """Buffers of (tile, k), as what multiplies reads them, without bank conflicts."""
        depth = self.t.k
        if self.t.matrix and self.size < WORD:
            if major:  # one panel per product: parts of a wider one begin inside its swizzle
                wide = self.chunk * self.size
                layout = tiles.panels((number,), tile, depth, self.size, wide)
            else:
                layout = tiles.transposed_panels((number,), tile, depth, self.size)
        elif self.t.matrix:  # half a warp reads four by four elements of eight bytes
            layout = tiles.lines(number, tile, depth, major, QUAD)
        else:  # Lanes read vectors of rows; what they write along the depth goes to other banks.
            layout = tiles.lines(number, tile, depth, 0, major * VECTOR_BYTES // self.size)
        return self.k.smem(f"{name}_shared", self.dtype, (number, tile, depth), layout)

    def _registers(self, number: int, like: ir.Buffer, names: tuple[str, str]) -> ir.View:
        """Registers for an operand's part of a tile, on the threads of `like`."""
        operand = self.c.operands[number]
        missing = [d for d, name in enumerate(names) if not self._reaches(operand, name)]
        return self.k.reg_reduced(operand.name, operand.dtype, like.all, missing).all

    # -- steps --

    def _steps(self, phase: _Phase) -> int:
        return prod(self.c.shape[d] for d in phase.outer) * phase.span.count

    def _here(
        self, phase: _Phase, at: Mapping[int | str, Int | span], step: Int
    ) -> dict[int | str, Int | span]:
        """Where a step of a phase reads."""
        found, outer = dict(at), [self.c.shape[d] for d in phase.outer]
        if outer:
            numbers = digits(self.k, step // phase.span.count, outer, "part")
            found |= zip(phase.outer, numbers, strict=True)
            step = step % phase.span.count
        found[phase.name] = span(self.k.let("depth", step * self.t.k), self.t.k)
        return found

    def _stream(
        self,
        phase: _Phase,
        factors: Mapping[tuple[str, Cell], _Fetched],
        at: Mapping[int | str, Int | span],
    ) -> None:
        """Multiply what copies fetch, the next fragments on their way; their slot is then free."""
        k, steps, chunks = self.k, self._steps(phase), self.t.k // self.chunk

        # Places and guards of copies are computed for each step where a loop makes few of them:
        # kept around it they were spilled.
        anew = steps <= 2 * SLOTS

        def fetch(step: Int) -> None:
            here = dict(at)
            for x, s in at.items():
                if isinstance(s, span):
                    here[x] = span(k.let(f"{x}_at", s.begin, anew=anew), s.extent)
            now = self._here(phase, here, step)
            for f in factors.values():
                k.copy_async(f.shared[step % SLOTS], self.tensors[f.number].view(now))

        def read(slot: Int, chunk: int, turn: int) -> None:
            for f in factors.values():
                part = f.shared[slot, :, span(chunk * self.chunk, self.chunk)]
                k.copy(f.fragments[turn].all, part)

        for step in range(SLOTS):
            if step < steps:
                fetch(step)
            k.commit("cp_async")
        k.wait_group("cp_async", SLOTS - 1)
        k.sync()
        read(0, 0, 0)
        with k.range(steps, name="step") as now:
            slot = k.let("slot", now % SLOTS)
            following = k.let("following", minimum(now + 1, steps - 1) % SLOTS)
            for chunk in range(chunks):
                turn = (chunk + 1) % 2
                if chunk + 1 < chunks:
                    read(slot, chunk + 1, turn)
                else:
                    k.wait_group("cp_async", SLOTS - 2)
                    k.sync()
                    if steps > SLOTS:
                        with k.when(now + SLOTS < steps):
                            fetch(minimum(now + SLOTS, steps - 1))
                    k.commit("cp_async")
                    read(following, 0, turn)
                self._products(phase, {key: f.fragments[chunk % 2] for key, f in factors.items()})

    def _sum(
        self,
        phase: _Phase,
        factors: Mapping[tuple[str, Cell], _Factor],
        at: Mapping[int | str, Int | span],
    ) -> None:
        k, steps = self.k, self._steps(phase)
        first = self._here(phase, at, 0)
        for factor in factors.values():
            self._read(factor, first)
        with k.range(steps, name="step") as step:
            now = self._here(phase, at, step) if any(f.masked for f in factors.values()) else at
            buffer = k.let("buffer", step % BUFFERS)
            for factor in factors.values():
                self._stage(factor, buffer, now)
            k.sync()
            if steps > 1:
                with k.when(step + 1 < steps):
                    ahead = minimum(step + 1, steps - 1)  # proves where it ends
                    following = self._here(phase, at, ahead)
                    for factor in factors.values():
                        self._read(factor, following)
            self._multiply(phase, factors, buffer)

    def _read(self, factor: _Factor, at: Mapping[int | str, Int | span]) -> None:
        for number, held in factor.held.items():
            self._load(number, held, (factor.side, factor.phase.name), at)

    def _load(
        self, number: int, held: ir.View, names: tuple[str, str], at: Mapping[int | str, Int | span]
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
        k, chunk, parts = self.k, self.chunk, 1
        chunks = self.t.k // chunk
        if self._steps(phase) == 1:
            chunks = -(-phase.span.extent // chunk)  # past the end are zeros
            ahead = chunks * words({factor.fragment for factor in factors.values()})
            sums = self.t.m * self.t.n // self.threads * len(phase.numbers)
            run = min(ahead / MOST_AHEAD, chunks * chunk * sums / WRITTEN_OUT)
            while not self.t.matrix and parts < min(run, chunks):
                parts *= 2
        depth = -(-chunks // parts) * chunk
        loop = k.range(parts * depth, step=depth, name="part") if parts > 1 else nullcontext(0)
        with loop as part:
            for begin in range(0, depth, chunk):
                for factor in factors.values():
                    here = factor.shared[buffer, :, span(part + begin, chunk)]
                    k.copy(factor.fragment.all, here)
                self._products(phase, {key: factor.fragment for key, factor in factors.items()})

    def _products(self, phase: _Phase, fragments: Mapping[tuple[str, Cell], ir.Buffer]) -> None:
        for number in phase.numbers:
            p = self.c.products[number]
            a, b = fragments["m", p.a], fragments["n", p.b]
            self.k.gemm(self.accs[number].all, a.all, b.all, accumulate=1)

    # -- results --

    def _store(self, outs: list[Tensor], at: Mapping[int | str, Int | span]) -> None:
        """Store the tile, part by part where what cells read and give takes many registers."""
        k, c, rows = self.k, self.c, at["m"]
        assert isinstance(rows, span)
        parts = self._parts()
        size = self.t.m // parts
        like = self.accs[0]
        if parts > 1:
            like = k.reg_like("like", like.dtype, self.accs[0][span(0, size)])
        values = {n: self._registers(n, like, ("m", "n")) for n in c.extras}
        of_rows = {n for n in c.extras if self._reaches(c.operands[n], "m")}
        for number in sorted(values.keys() - of_rows):
            self._load(number, values[number], ("m", "n"), at)
        cells = [(tensor, out, cell) for tensor, (out, cell) in zip(outs, c.outputs, strict=True)]
        results = {
            n: k.reg_like(out.name, out.dtype, like.all).all
            for n, (_, out, cell) in enumerate(cells)
            if not self._is_bare(cell, out)
        }
        for begin in range(0, self.t.m, size):
            here = {**at, "m": span(rows.begin + begin, size)}
            for number in sorted(of_rows):
                self._load(number, values[number], ("m", "n"), here)
            values |= {
                len(c.operands) + n: acc[span(begin, size)] for n, acc in enumerate(self.accs)
            }
            for number, (tensor, _, cell) in enumerate(cells):
                numbers = sorted(used(cell))
                ins = [values[n] for n in numbers]
                if number in results:
                    compact = renumber(cell, {n: i for i, n in enumerate(numbers)})
                    k.map(compact, results[number], *ins)
                k.copy(tensor.view(here), results.get(number, ins[0]))

    def _is_bare(self, cell: Cell, out: Operand) -> bool:
        """Whether a result is the sums of a product as they are."""
        sums = [arg(len(self.c.operands) + n) for n in range(len(self.accs))]
        return cell in sums and out.dtype == self.accs[0].dtype

    def _reaches(self, operand: Operand, side: str) -> bool:
        return any(operand.strides[d] for d in self.spans[side].dims)

    def _parts(self) -> int:
        """Parts of the rows that are stored one after the other."""
        c, acc = self.c, self.accs[0]
        read = [c.operands[n] for n in c.extras]
        read = [o for o in read if all(self._reaches(o, side) for side in "mn")]
        made = [out for out, cell in c.outputs if not self._is_bare(cell, out)]
        wanted = sum(DTYPES[o.dtype].itemsize for o in (*read, *made))
        elements = self.t.m * self.t.n
        room = MOST_HELD * WORD * self.threads - elements * acc.itemsize * len(self.accs)
        fits = (n for n in (1, 2) if elements * wanted <= room * n and n <= self.most)
        return next(fits, self.most)


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
