"""Row reductions whose rows stay in registers: any cells before, between and after them.

A row stays in the registers of some threads of one CTA: values are read once and written once.
Steps are cells over the operands and the row values that earlier reductions gave (softmax,
normalisations, sums, ...). CTAs that loop over rows and load the next ones ahead were measured:
they hold fewer rows at a time and are 2 to 5 % slower. Rows that do not fit are swept (`sweeps`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from axe_eq.errors import ScheduleError
from axe_eq.kernel.cells import Apply, Cell, apply, arg, replaced, used
from axe_eq.kernel.expr import Int
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.program.types import DTYPES
from axe_eq_backends.cuda.schedules.tails import (
    Problem,
    Reduction,
    neutral_fill,
    unit_of,
    within,
)  # fmt: skip
from axe_eq_backends.cuda.schedules.tensors import Operand, Space, run_vector, thread_layout

WARP, MAX_WARPS, MIN_WARPS = 32, 32, 4
REGISTERS, MOST_REGISTERS, HALF_REGISTERS = 65536, 255, 128
# Registers of a thread beside its part of a row: addresses, row values, temporaries. Threads that
# hold more than 32 elements take one more for every two of the others (NVRTC 13: the fewest that
# 120 kernels of 15 programs have without a spill).
OTHER_REGISTERS, FEW_REGISTERS, MANY = 16, 22, 32


def reduce_rows(
    problem: Problem,
    across: int,
    name: str = "rows",
    wide: int | None = None,
    resident: int = 0,
    shifted: bool = False,
) -> ir.Kernel:
    """The kernel.

    Args:
        problem: over (..., rows, columns), of which the columns are reduced.
        across: threads of a row: a power of two, up to 1024.
        name: of the kernel.
        wide: elements of a vector; by default as many as tensors are aligned for.
        resident: CTAs that an SM's registers are divided among.
        shifted: rows, one of a CTA, begin anywhere, and vectors where memory is aligned for them.

    Raises:
        ScheduleError: a row does not fit in the registers of its threads.
    """
    if wide is None:
        wide = run_vector([*problem.operands, *problem.stored], len(problem.shape) - 1)
    k = ThreadBuilder(name, warps_of(across), resident=resident)
    return _Writer(k, problem, across, wide, shifted).write()


def vectors_of(columns: int, wide: int, across: int) -> int:
    """Vectors of `wide` elements that one of a row's threads holds."""
    return -(-columns // (wide * across))


def registers_of(problem: Problem) -> tuple[Callable[[int], int], Callable[[int], int]]:
    """Registers of a thread, by how many elements of a row it holds.

    What is held lies beside the operands that every row has of its own until rows are reduced, and
    beside those that all rows share when results are stored; or these two do.

    Returns:
        By elements held: registers that are enough, and about those that NVRTC takes: where it can
        it keeps one of a value and what it was computed from.
    """
    operands, reductions = problem.operands, problem.reductions
    words, parted = _words_kept(problem)
    late = late_operands(problem)

    def loaded(held: int, numbers: Collection[int]) -> int:
        sizes = ((DTYPES[operands[n].dtype].itemsize, operands[n].varies(-1)) for n in numbers)
        return sum(-(-(held if varies else 1) * size // 4) for size, varies in sizes)

    every = range(len(operands))
    own = [n for n in every if n not in late]
    # The f32 that squares of a narrower operand were made of stay for the results.
    narrow = [n for n in own if operands[n].varies(-1) and DTYPES[operands[n].dtype].itemsize < 4]
    written = words + parted  # of values that are there as they are written
    stored = max((DTYPES[o.dtype].itemsize for o in problem.stored if o.varies(-1)), default=0)
    if not words and len(narrow) == 1 and any(isinstance(r.cell, Apply) for r in reductions):
        words = 1

    def enough(held: int) -> int:
        kept, first, last = held * words, loaded(held, own), loaded(held, late)
        most = max(first + kept, kept + last, first + last)
        others = max(0, held - MANY) // 2 + OTHER_REGISTERS
        result = first + last + -(-held * stored // 4)
        return max(most + others, max(held * written, result) + len(reductions))

    def taken(held: int) -> int:
        least = max(loaded(held, every), held * min(words, 1)) + FEW_REGISTERS
        return (least + enough(held)) // 2

    return enough, taken


def _words_kept(problem: Problem) -> tuple[int, bool]:
    """Registers of an element that hold, at the same time, what later cells contain.

    And whether anything else is computed to be reduced.
    """
    first, reductions = len(problem.operands), problem.reductions
    cells = [r.cell for r in reductions] + [c for _, c in problem.outputs]
    marks: dict[Cell, Cell] = {}
    most, found = 0, set[int]()
    for n, r in enumerate(reductions):
        if isinstance(r.cell, Apply):
            marks[r.cell] = arg(-1 - n)
        needed = {m for c in cells[n + 1 :] for m in used(replaced(c, marks)) if m < 0}
        sizes = (DTYPES[problem.dtypes[first - 1 - m]].itemsize // 4 for m in needed)
        most, found = max(most, sum(sizes)), found | needed
    return most, any(
        isinstance(r.cell, Apply) and -1 - n not in found for n, r in enumerate(reductions)
    )


def late_operands(problem: Problem) -> list[int]:
    """Operands that only results use and all rows share: caches have them when they are needed.

    Loaded with the others they take registers while a row is reduced: 3 to 6 % slower on an H200
    (rmsnorm, f16).
    """
    early = {n for r in problem.reductions for n in used(r.cell)}
    early |= {n for o in problem.operands for look in o.looks for n in used(look.cell)}
    rows, numbered = range(len(problem.shape) - 1), enumerate(problem.operands)
    return [n for n, o in numbered if n not in early and not any(map(o.varies, rows))]


def room_for(across: int) -> int:
    """Registers of a thread of so many of a row, with a second CTA beside where there can be."""
    return min(REGISTERS // (warps_of(across) * WARP), HALF_REGISTERS)


def warps_of(across: int) -> int:
    """Warps of a CTA whose rows have so many threads each."""
    return max(MIN_WARPS, across // WARP)


class _Writer:
    def __init__(
        self, k: ThreadBuilder, problem: Problem, across: int, wide: int, shifted: bool
    ) -> None:
        self.p, self.operands, self.reductions = problem, problem.operands, problem.reductions
        self.across, self.shape, self.shifted = across, problem.shape, wide if shifted else 0
        repeats = vectors_of(self.shape[-1] + max(0, self.shifted - 1), wide, across)
        self.warps = warps_of(across)
        need = registers_of(problem)[0](repeats * wide)
        room = min(REGISTERS // (self.warps * WARP), MOST_REGISTERS)
        if across & (across - 1) or across > MAX_WARPS * WARP or need > room:
            raise ScheduleError(
                f"rows of {self.shape[-1]} elements", f"take {need} registers of {across} threads",
                f"at most {room} of a power of two",
            )  # fmt: skip
        down = WARP * self.warps // across
        self.tile = (down, repeats * across * wide)
        self.layout = thread_layout((1, down), (repeats, across), wide)
        self.k = k
        # What reductions computed at every element, for later cells that contain it.
        self.kept: list[tuple[Cell, ir.View]] = []

    def write(self) -> ir.Kernel:
        k, tile = self.k, self.tile
        self.space = Space(k, self.shape, self.operands, self.p.stored, self.shifted)
        self.like = k.reg("like", "f32", tile, self.layout)
        self.dtypes = self.p.dtypes[len(self.operands) :]
        found = neutral_fill(self.operands, self.reductions)
        self.filled, self.fill = found is not None, found or 0.0
        exchanged = self.across > WARP
        self.scratch = [
            k.smem(f"scratch{n}", d, (self.warps,)) if exchanged else None
            for n, d in enumerate(self.dtypes)
        ]
        count = self.space.tiles(tile)
        with k.tiles(count, persistent=False) as number:
            self._work(self.space.begin(number, tile))
        return k.finish()

    def _load(self, o: Operand, begin: list[Int], values: Mapping[int, ir.View]) -> ir.View:
        # One value for a row: nothing of it lies past the end, and its dtype may not hold the fill.
        fill = self.fill if o.varies(-1) else 0.0
        return self.space.load(o, begin, self.tile, self.like, fill, values)

    def _work(self, begin: list[Int]) -> None:
        """Reductions and results of one tile."""
        late, mask = late_operands(self.p), self._mask(begin[-1])
        loaded: dict[int, ir.View] = {}
        for n, o in enumerate(self.operands):
            loaded[n] = self.like.all if n in late else self._load(o, begin, loaded)
        values = list(loaded.values())
        self.kept = []
        for step, reduction in enumerate(self.reductions):
            values.append(self._reduce(reduction, step, values, mask))
        for n in late:
            values[n] = self._load(self.operands[n], begin, dict(enumerate(values)))
        for out, cell in self.p.outputs:
            self._store(out, cell, values, begin)

    def _mask(self, begin: Int) -> ir.View | None:
        """Column numbers, where what lies outside a row is not proved to change nothing."""
        if self.tile[1] == self.shape[-1] or self.filled:
            return None
        columns = self.k.reg_reduced("column", "i32", self.like.all, [0])
        self.k.index(columns.all, 1, begin)
        return columns.all

    def _reduce(
        self, reduction: Reduction, step: int, values: list[ir.View], mask: ir.View | None
    ) -> ir.View:
        k, dtype = self.k, self.dtypes[step]
        cell, ins = self._reusing(reduction.cell, values)
        if mask is not None:
            unit = unit_of(reduction.monoid, dtype)
            inside = within(arg(len(ins)), self.shape[-1], bool(self.shifted))
            cell = apply("where", inside, cell, unit)
            ins.append(mask)
        part = k.reg_like(f"part{step}", dtype, self.like.all)
        k.map(cell, part.all, *ins)
        if isinstance(reduction.cell, Apply):
            self.kept.append((reduction.cell, part.all))
        total = k.reg_reduced(f"row{step}", dtype, self.like.all, [1])
        k.reduce(reduction.monoid, total.all, part.all, [1], self.scratch[step])
        return total.all

    def _reusing(self, cell: Cell, values: list[ir.View]) -> tuple[Cell, list[ir.View]]:
        """The cell with what was computed before as operands, and all operands.

        Masked elements differ, but they are stored nowhere and every reduction masks its own.
        """
        known = {c: arg(len(values) + n) for n, (c, _) in enumerate(self.kept)}
        return replaced(cell, known), [*values, *(view for _, view in self.kept)]

    def _store(self, out: Operand, cell: Cell, values: list[ir.View], begin: list[Int]) -> None:
        if out.strides[-1]:
            cell, values = self._reusing(cell, values)
        self.space.store(out, cell, dict(enumerate(values)), begin, self.tile, self.like)


__all__ = ["Reduction", "reduce_rows"]
