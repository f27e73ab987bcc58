"""Reductions of any length over any dims: sweeps over chunks, with running values in registers.

Every thread merges what it reads into its own running values, one per place of a chunk; the end of
a sweep reduces them over the threads. A value that needs the result of another reduction waits for
the next sweep, but for sums of exponentials less their own maximum: those are rescaled where the
running maximum changes (online normaliser, Milakov and Gimelshein 2018). Results that keep the
reduced dims take one more sweep.

Rows of one reduced dim may stay in shared memory between sweeps: every thread puts there what it
read, and takes it from there. CTAs of a cluster may have a part of a row each. Then every sweep
ends with an exchange: what each CTA found lies in its shared memory, and all merge all of it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from math import prod

from axe_eq.kernel.cells import IDENTITY, Apply, Cell, Constant, apply, arg, substituted, used
from axe_eq.kernel.cells import Operand as Numbered
from axe_eq.kernel.expr import Int, bounds, ceil_div, equal
from axe_eq.kernel.structured import ONLINE
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.layout import Layout
from axe_eq.program.ops import MONOIDS
from axe_eq.program.types import DTYPES
from axe_eq_backends.cuda.schedules.tails import Problem, Reduction, unit_of, within
from axe_eq_backends.cuda.schedules.tensors import Operand, Space, begins, mapped, with_looks

WARP, WARPS, MOST_THREADS, MOST_WARPS = 32, 8, 512, 32
OTHER_REGISTERS = 28  # of a thread: addresses, values of rows, temporaries
OF_NARROW, MANY_NARROW = 52, 8  # at least where so many reads of less than a word are on their way
Place = tuple[list[Int], Int]  # where a tile of a sweep begins, and its number


@dataclass(frozen=True)
class SweepTiling:
    """A chunk: threads of the last kept dim and of the last reduced one, and tiles in turn.

    Attributes:
        warps: of a CTA.
        fast: 1 where the reduced dim is contiguous, 0 where the kept one is.
        wide: elements of a vector along the contiguous dim.
        threads: of the contiguous dim; the rest lie along the other.
        vectors: tiles of a chunk along the reduced dim: their reads are on their way together.
        shifted: rows, one of a CTA, begin anywhere, and vectors where memory is aligned for them.
        cluster: CTAs that have a part of every row each.
        kept: what several sweeps read stays in shared memory.
    """

    warps: int
    fast: int
    wide: int
    threads: int
    vectors: int
    shifted: bool = False
    cluster: int = 1
    kept: bool = False

    @property
    def tile(self) -> tuple[int, int]:
        """(kept, reduced) elements that a CTA's threads read with one vector each."""
        along, across = self.threads * self.wide, WARP * self.warps // self.threads
        return (across, along) if self.fast else (along, across)

    @property
    def layout(self) -> Layout:
        """A tile on registers: neighbouring threads hold neighbouring vectors."""
        other = WARP * self.warps // self.threads
        contiguous = [(self.threads, 1, "tx"), (self.wide, 1, "reg")]
        across = (other, self.threads, "tx")
        shard = [across, *contiguous] if self.fast else [*contiguous, across]
        return Layout([i for i in shard if i[0] != 1] or [(1, 1, "reg")])

    def several(self, last: int) -> int:
        """Rows of the last reduced dim that a chunk has, where one is less than its tiles."""
        return max(1, self.vectors // -(-last // self.tile[1]))

    @property
    def ahead(self) -> int:
        """Elements that a chunk may begin before its row."""
        return self.wide - 1 if self.shifted else 0

    def tiles(self, last: int) -> int:
        """Tiles of a CTA along the last reduced dim, of so many indices."""
        return -(-(last + self.ahead) // (self.tile[1] * self.cluster))

    def steps(self, reduced: Sequence[int]) -> int:
        """Chunks of a sweep over dims of these extents."""
        *slow, last = reduced
        if self.cluster > 1:
            return -(-self.tiles(last) // self.vectors)
        last += self.ahead
        count = -(-last // (self.tile[1] * self.vectors))
        return count * prod(slow[:-1]) * (-(-slow[-1] // self.several(last)) if slow else 1)


def stays_in_memory(operand: Operand) -> bool:
    """Whether rows of an operand, each its own, are what shared memory would keep."""
    return operand.varies(-1) and operand.varies(-2) and not operand.counts


def registers_of_sweep(
    operands: Sequence[Operand],
    reductions: Sequence[Reduction],
    tiling: SweepTiling,
    rescaled: bool,
    stays: bool,
    reduced: int = 1,
) -> int:
    """Registers of a thread: a chunk of every operand, running values, and what a tile computes.

    A read of less than 4 bytes takes a register while it is on its way, and of many of them each
    an address or a guard: with 48 registers column sums of f16 by eights take 1.05 to 1.7 times
    what they take with 56 (2026-11-27). Of several operands that stay, what is computed of them is
    kept.
    """
    read, several = 0, sum(o.varies(-1) for o in operands) > 1
    for o in operands:
        # What varies along slower reduced dims alone is one value for every row of a chunk.
        slower = any(map(o.varies, range(-reduced, -1)))
        size, vectors = DTYPES[o.dtype].itemsize, tiling.vectors if o.varies(-1) or slower else 1
        read += vectors * -(-tiling.wide * size // 4)
    held = tiling.wide * tiling.vectors if rescaled or (stays and several) else 0
    taken = read + held + (len(reductions) + 2) * tiling.wide + OTHER_REGISTERS
    alone = tiling.wide * min((DTYPES[o.dtype].itemsize for o in operands), default=4) < 4
    return max(taken, OF_NARROW) if alone and tiling.vectors >= MANY_NARROW else taken


def sweeps_of(
    n_operands: int, reductions: Sequence[Reduction], online: bool
) -> tuple[list[list[int]], dict[int, tuple[int, Cell, Cell]]]:
    """Operand numbers of the reductions of every sweep, and how the rescaled ones split."""
    level: dict[int, int] = {}
    split: dict[int, tuple[int, Cell, Cell]] = {}
    for n, r in enumerate(reductions, n_operands):
        earlier = {m: reductions[m - n_operands] for m in range(n_operands, n)}
        found = scaled_sum(r, earlier) if online else None
        if found is not None:
            split[n] = found
            level[n] = level[found[0]]
            continue
        level[n] = 1 + max((level[m] for m in used(r.cell) if m >= n_operands), default=-1)
    sweeps = range(1 + max(level.values(), default=-1))
    return [[n for n, at in level.items() if at == s] for s in sweeps], split


def sweep(
    problem: Problem,
    tiling: SweepTiling,
    name: str = "sweeps",
    online: bool = True,
    resident: int = 0,
) -> ir.Kernel:
    """The kernel.

    Args:
        problem: of one kept dim at least.
        tiling: the chunk.
        name: of the kernel.
        online: running maxima may rescale sums, where a sweep is several chunks; else they take
            a sweep of their own.
        resident: CTAs that an SM's registers are divided among.

    Raises:
        ScheduleError: a monoid without a unit.
    """
    k = ThreadBuilder(name, tiling.warps, tiling.cluster, resident)
    return _Writer(k, problem, tiling, online).write()


@dataclass
class _Running:
    """A reduction while it runs: its number, and for a rescaled one how its cell splits."""

    number: int
    acc: ir.Buffer
    dtype: str
    rescaled: tuple[int, Cell, Cell] | None = None  # the maximum's number, score, factor


def scaled_sum(
    reduction: Reduction, values: Mapping[int, Reduction]
) -> tuple[int, Cell, Cell] | None:
    """(r, score, factor) where a sum is of exp(score - r) factor and r is the maximum of score.

    Args:
        reduction: the sum.
        values: earlier reductions by operand number.
    """
    cell = reduction.cell
    parts = cell.args if isinstance(cell, Apply) and cell.cell == "mul" else (cell,)
    for n, part in enumerate(parts):
        if not (isinstance(part, Apply) and part.cell == "exp"):
            continue
        inner = part.args[0]
        if not (isinstance(inner, Apply) and inner.cell == "sub"):
            continue
        score, top = inner.args
        if not isinstance(top, Numbered) or top.index not in values:
            continue
        rest = parts[:n] + parts[n + 1 :]
        free = not any(used(p) & set(values) for p in (score, *rest))
        if reduction.monoid == "+" and free and values[top.index] == Reduction("max", score):
            factor: Cell = Constant(1.0) if not rest else rest[0]
            factor = Apply("mul", rest) if len(rest) > 1 else factor
            return top.index, score, factor
    return None


class _Writer:
    def __init__(self, k: ThreadBuilder, p: Problem, tiling: SweepTiling, online: bool) -> None:
        kept, rank = len(p.shape) - p.reduced, len(p.shape)
        # Slower dims first, then the two that chunks cut: the last kept one, the last reduced one.
        order = [*range(kept - 1), *range(kept, rank - 1), kept - 1, rank - 1]
        self.shape = tuple(p.shape[d] for d in order)
        self.operands = [o.over(order) for o in p.operands]
        self.outputs = [(o.over(order), c) for o, c in p.outputs]
        self.reductions, self.dtypes = p.reductions, p.dtypes
        self.stays = tiling.steps(p.shape[kept:]) == 1
        self.online = online and not self.stays
        self.n_kept = kept
        self.loops = range(kept - 1, rank - 2)  # slower reduced dims
        self.t, self.k = tiling, k

    def write(self) -> ir.Kernel:
        k = self.k
        outputs = [o for o, _ in self.outputs]
        shifted = self.t.wide if self.t.shifted else 0
        self.space = Space(k, self.shape, self.operands, outputs, shifted)
        self.like = k.reg("like", "f32", self.t.tile, self.t.layout)
        outer = self.shape[: self.n_kept - 1]
        counts = (*outer, ceil_div(self.shape[-2], self.t.tile[0]))
        # The most threads have few registers each for what a loop would keep around itself.
        loop = self.t.warps < MOST_WARPS
        with k.tiles(prod(counts), persistent=False, loop=loop) as number:
            sizes = [1] * len(outer) + [self.t.tile[0]]
            self._tile(begins(k, number, counts, sizes))
        if self.t.cluster > 1:  # others may still read what this CTA has found
            k.cluster_sync()
        return k.finish()

    def _tile(self, begin: list[Int]) -> None:
        """All sweeps over one tile of the kept dims."""
        k = self.k
        self.values: dict[int, ir.View] = {}
        self.held: dict[tuple[int, int], ir.View] = {}
        sweeps, self.split = sweeps_of(len(self.operands), self.reductions, self.online)
        swept = [(o, c) for o, c in self.outputs if self._sweeps(o)]
        reads = [{m for n in members for m in self._reads(n)} for members in sweeps]
        reads.append({n for _, c in swept for n in used(c)})
        self._keep([with_looks(numbers, self.operands) for numbers in reads])
        for members, numbers in zip(sweeps, reads, strict=False):
            running = [self._start(n) for n in members]
            for chunk in self._chunks(begin):
                loaded = self._loads(chunk, numbers)
                for r in running:
                    self._merge(r, running, loaded, chunk)
            for r in running:
                self._finish(r, running)
            if self.t.cluster > 1:
                self._join(running)
            for r in running:
                self._not_a_number(r)
            self.there |= numbers & self.rows.keys()
        at = [*begin[:-1], *[0] * len(self.loops), begin[-1], 0]
        like = self.t.tile, self.like
        for out, cell in self.outputs:
            if not self._sweeps(out):
                values = self._load(at, used(cell), -1)
                with k.when(equal(k.rank, 0)) if self.t.cluster > 1 else nullcontext():
                    self.space.store(out, cell, values, at, *like)
        for chunk in self._chunks(begin) if swept else ():
            loaded = self._loads(chunk, reads[-1])
            for values, (at, _) in zip(loaded, chunk, strict=True):
                for out, cell in swept:
                    self.space.store(out, cell, values, at, *like)

    def _keep(self, reads: Sequence[set[int]]) -> None:
        """Shared memory for the operands that several sweeps read, by the numbers of each."""
        self.rows: dict[int, ir.Buffer] = {}
        self.there = set[int]()  # what has been put there
        if not self.t.kept or self.stays:
            return
        (rows, cols), count = self.t.tile, self.t.tiles(self.shape[-1])
        own = [(rows, cols), (cols, 1)] if self.t.fast else [(rows, 1), (cols, rows)]
        for n, operand in enumerate(self.operands):
            if stays_in_memory(operand) and sum(n in numbers for numbers in reads) > 1:
                layout = Layout([i for i in ((count, rows * cols), *own) if i[0] != 1] or [(1, 1)])
                self.rows[n] = self.k.smem(
                    f"{operand.name}_rows", operand.dtype, (count, rows, cols), layout
                )

    def _sweeps(self, out: Operand) -> bool:
        """Whether an output keeps a reduced dim."""
        return any(out.strides[d] for d in self.loops) or bool(out.strides[-1])

    def _sweeps_over(self, operand: Operand) -> bool:
        """Whether tiles of a chunk read different values of an operand, or some of them none."""
        dims = *self.loops, -1
        return any(operand.varies(d) or operand.bound(d) is not None for d in dims)

    # -- what is computed when --

    def _reads(self, number: int) -> set[int]:
        """Operands and earlier values that a reduction needs in its sweep."""
        if number in self.split:
            _, score, factor = self.split[number]
            return used(score) | used(factor)
        return used(self.reductions[number - len(self.operands)].cell)

    # -- chunks --

    def _chunks(self, begin: list[Int]) -> Iterator[list[Place]]:
        """Chunks of a sweep: the index where each of their tiles begins, and its number."""
        part = self.t.tiles(self.shape[-1]) * self.t.tile[1] if self.t.cluster > 1 else 0
        for chunk in self._places(begin, part):
            ats = [[*at[:-1], self.k.rank * part + at[-1]] if part else at for at in chunk]
            numbers = [at[-1] // self.t.tile[1] if self.rows else 0 for at in chunk]
            yield list(zip(map(self.space.aligned, ats), numbers, strict=True))

    def _places(self, begin: list[Int], part: int) -> Iterator[list[list[Int]]]:
        """Where the tiles of chunks begin if every row begins aligned; of a part of it, in that.

        Whole chunks are a loop, and what is left is one more: only that one ends inside a tile.
        """
        k, size = self.k, self.t.tile[1]
        reach, covered = size * self.t.vectors, self.shape[-1] + self.t.ahead
        several = self.t.several(covered)
        with ExitStack() as stack:
            if several > 1 and self.loops:
                *outer, inner = self.loops
                slow = [stack.enter_context(k.range(self.shape[d], name="slow")) for d in outer]
                for first, n in self._runs(self.shape[inner], several):
                    rows = [[*begin[:-1], *slow, first + r, begin[-1]] for r in range(n)]
                    yield [[*row, at] for row in rows for at in range(0, covered, size)]
                return
            slow = [stack.enter_context(k.range(self.shape[d], name="slow")) for d in self.loops]
            front = [*begin[:-1], *slow, begin[-1]]
            whole = (part, 0) if part else (self.shape[-1], self.t.ahead)
            for first, n in self._runs(whole[0], reach, whole[1]):
                yield [[*front, first + at] for at in range(0, n, size)]

    def _runs(self, extent: int, most: int, ahead: int = 0) -> Iterator[tuple[Int, int]]:
        """Runs of a dim: where each begins, and how long it is; whole ones are a loop.

        They may begin up to `ahead` before the dim: the first one is then none of the loop, and
        those of the loop end as far before its end.
        """
        whole, rest = divmod(extent - ahead, most)
        apart = min(whole, 1) if ahead or whole == 1 else 0
        if apart:
            yield 0, most
        if whole > apart:
            with self.k.range(whole - apart, name="chunk") as chunk:
                yield self.k.let("at", (chunk + apart) * most), most
        if rest + ahead:
            yield whole * most, rest + 2 * ahead

    def _loads(self, chunk: list[Place], numbers: set[int]) -> list[dict[int, ir.View]]:
        """Operands of every tile of a chunk: all reads begin before any value is used."""
        found = [self._load(at, numbers, n, number) for n, (at, number) in enumerate(chunk)]
        for values, (_, number) in zip(found, chunk, strict=True):
            for n in sorted((numbers & self.rows.keys()) - self.there):
                self.k.copy(self.rows[n][number], values[n])
        return found

    def _load(
        self, at: list[Int], numbers: set[int], tile: int, number: Int = 0
    ) -> dict[int, ir.View]:
        """Operands of a tile, and row values, by number.

        A chunk that is all of the reduced dims stays in registers, or what was read of several in
        shared memory, by the tile's number.
        """
        found = dict(self.values)
        for n in sorted(with_looks(numbers, self.operands)):
            if n >= len(self.operands):
                continue
            operand = self.operands[n]
            key = n, tile if self._sweeps_over(operand) else -1
            if self.stays and key in self.held:
                found[n] = self.held[key]
                continue
            if n in self.there:
                found[n] = self.k.reg_like(operand.name, operand.dtype, self.like.all).all
                self.k.copy(found[n], self.rows[n][number])
                continue
            found[n] = self.space.load(operand, at, self.t.tile, self.like, values=found)
            self.held[key] = found[n]
        return found

    # -- running values --

    def _start(self, number: int) -> _Running:
        k, reduction = self.k, self.reductions[number - len(self.operands)]
        dtype = self.dtypes[number]
        acc = k.reg_like(f"running{number}", dtype, self.like.all)
        k.fill(acc.all, unit_of(reduction.monoid, dtype))
        return _Running(number, acc, dtype, self.split.get(number))

    def _masked(
        self, cell: Cell, unit: float, values: Mapping[int, ir.View], at: Int
    ) -> tuple[Cell, Mapping[int, ir.View]]:
        """The cell with the unit outside the reduced dim, and its operands."""
        first, last = bounds(at)
        begins = first is not None and first < 0
        if not begins and last is not None and last + self.t.tile[1] <= self.shape[-1]:
            return cell, values
        position = len(self.dtypes)
        inside = within(arg(position), self.shape[-1], begins)
        return apply("where", inside, cell, unit), {**values, position: self._positions(at)}

    def _positions(self, at: Int) -> ir.View:
        column = self.k.reg_reduced("column", "i32", self.like.all, [0])
        self.k.index(column.all, 1, at)
        return column.all

    def _value(
        self, cell: Cell, dtype: str, unit: float, values: Mapping[int, ir.View], at: Int
    ) -> ir.View:
        """A cell's values of a chunk, the unit outside."""
        masked, given = self._masked(cell, unit, values, at)
        part = self.k.reg_like("part", dtype, self.like.all)
        mapped(self.k, masked, part.all, given)
        return part.all

    def _merge(
        self,
        r: _Running,
        running: list[_Running],
        loaded: list[dict[int, ir.View]],
        chunk: list[Place],
    ) -> None:
        """Merge a chunk into a running value, and into the sums that its maximum rescales."""
        k, reduction = self.k, self.reductions[r.number - len(self.operands)]
        if r.rescaled is not None:
            return  # with its maximum
        merged = apply(MONOIDS[reduction.monoid].merges, arg(0), arg(1))
        sums = [s for s in running if s.rescaled is not None and s.rescaled[0] == r.number]
        unit = unit_of(reduction.monoid, r.dtype)
        top = k.reg_like("top", r.dtype, self.like.all) if sums else r.acc
        parts, before = list[ir.View](), r.acc.all
        for values, (at, _) in zip(loaded, chunk, strict=True):
            parts.append(self._value(reduction.cell, r.dtype, unit, values, at[-1]))
            k.map(merged, top.all, before, parts[-1])
            before = top.all
        softmax = ONLINE["softmax"]
        for s in sums:
            assert s.rescaled is not None
            factor = s.rescaled[2]
            change = substituted(softmax.rescale, {0: arg(0), 1: arg(1)})
            k.map(apply("mul", arg(2), change), s.acc.all, r.acc.all, top.all, s.acc.all)
            for values, (at, _), part in zip(loaded, chunk, parts, strict=True):
                added: Cell = substituted(softmax.weight, {0: arg(-3), 1: arg(-2)})
                given: Mapping[int, ir.View] = {
                    **values, -2: top.all, -3: part, -4: s.acc.all
                }  # fmt: skip
                if factor != Constant(1.0):  # past the end no weight makes it 0: may be no number
                    added, given = self._masked(apply("mul", added, factor), 0.0, given, at[-1])
                mapped(self.k, apply("add", arg(-4), added), s.acc.all, given)
        if sums:
            k.map(IDENTITY, r.acc.all, top.all)

    def _finish(self, r: _Running, running: list[_Running]) -> None:
        """Reduce running values over the threads."""
        k, reduction = self.k, self.reductions[r.number - len(self.operands)]
        total = k.reg_reduced(f"value{r.number}", r.dtype, self.like.all, [1])
        self.values[r.number] = total.all
        if r.rescaled is None:
            k.reduce(reduction.monoid, total.all, r.acc.all, [1], self._scratch(total))
            return
        top = self.values[r.rescaled[0]]
        own = next(s.acc for s in running if s.number == r.rescaled[0])
        change = substituted(ONLINE["softmax"].rescale, {0: arg(1), 1: arg(2)})
        k.map(apply("mul", arg(0), change), r.acc.all, r.acc.all, own.all, top)
        k.reduce("+", total.all, r.acc.all, [1], self._scratch(total))

    def _join(self, running: list[_Running]) -> None:
        """Merge what the CTAs of a cluster have found, in their order."""
        k, ranks, parts = self.k, range(self.t.cluster), dict[int, list[ir.View]]()
        found = {r.number: self.values[r.number] for r in running}
        slots = {n: k.smem(f"part{n}", v.buffer.dtype, v.shape) for n, v in found.items()}
        for n, value in found.items():
            k.copy(slots[n].all, value)
        k.cluster_sync()
        for n, value in found.items():
            parts[n] = [k.reg_like("part", value.buffer.dtype, value).all for _ in ranks]
            for rank in ranks:
                k.fetch(parts[n][rank], slots[n].all, rank)
        for r in running:
            merge = MONOIDS[self.reductions[r.number - len(self.operands)].monoid].merges
            each: list[Cell] = [arg(n) for n in ranks]
            given = parts[r.number]
            if r.rescaled is not None:
                n, change = len(ranks), ONLINE["softmax"].rescale
                by = [substituted(change, {0: arg(n + rank), 1: arg(2 * n)}) for rank in ranks]
                each = [apply("mul", x, y) for x, y in zip(each, by, strict=True)]
                given = [*given, *parts[r.rescaled[0]], self.values[r.rescaled[0]]]
            cell = each[0]
            for other in each[1:]:
                cell = apply(merge, cell, other)
            joined = k.reg_like(f"joined{r.number}", r.dtype, found[r.number])
            mapped(k, cell, joined.all, dict(enumerate(given)))
            self.values[r.number] = joined.all

    def _not_a_number(self, r: _Running) -> None:
        """A maximum of -inf makes every exponent a NaN, as it does without running values."""
        if r.rescaled is None:
            return
        total, top = self.values[r.number], self.values[r.rescaled[0]]
        nothing = apply("where", apply("eq", arg(1), -math.inf), apply("sub", arg(1), arg(1)), 0.0)
        self.k.map(apply("add", arg(0), nothing), total, total, top)

    def _scratch(self, total: ir.Buffer) -> ir.Buffer | None:
        """Shared memory for one exchange between warps, of its own: nothing waits for readers."""
        if self.t.fast and self.t.threads <= WARP:
            return None
        slots = self.t.warps * WARP * total.n_elements
        return self.k.smem("scratch", total.dtype, (slots,))
