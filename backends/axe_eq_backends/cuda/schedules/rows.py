"""Row-reduction cones in one pass: any cells before, between and after any reductions of rows.

A row stays in the registers of some threads of one CTA: values are read once and written once.
Steps are cells over the operands and the row values that earlier reductions gave (softmax,
normalisations, sums, ...).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from axe_eq.errors import ScheduleError
from axe_eq.kernel import ir
from axe_eq.kernel.build import Builder
from axe_eq.kernel.cells import (
    Apply,
    Cell,
    Constant,
    apply,
    arg,
    renumber,
    replaced,
    used,
)
from axe_eq.kernel.expr import Int
from axe_eq.program.ops import MONOIDS
from axe_eq_backends.cuda.schedules.tensors import (
    Operand,
    Space,
    power_of_two_from,
    thread_layout,
    vector,
)  # fmt: skip

WARP, MAX_WARPS, MAX_ELEMENTS = 32, 32, 64


@dataclass(frozen=True)
class Reduction:
    """One row value: the monoid over a row of the cell's values."""

    monoid: str
    cell: Cell


def reduce_rows(
    shape: tuple[int, int],
    operands: Sequence[Operand],
    reductions: Sequence[Reduction],
    outputs: Sequence[tuple[Operand, Cell]],
    *,
    name: str = "rows",
    elements: int = 16,
) -> ir.Kernel:
    """The kernel.

    Args:
        shape: (rows, columns).
        operands: tensors over (rows, columns); broadcast ones have stride 0.
        reductions: in order; their cells may use operands (by number) and earlier row values
            (numbered after the operands).
        outputs: tensors with their cells, over operands and row values; a stride of 0 along the
            columns makes it one value per row.
        name: of the kernel.
        elements: of a row that one thread should hold.

    Raises:
        ScheduleError: a row does not fit in the registers of one CTA.
    """
    return _Writer(shape, operands, reductions, outputs, name, elements).write()


class _Writer:
    def __init__(
        self,
        shape: tuple[int, int],
        operands: Sequence[Operand],
        reductions: Sequence[Reduction],
        outputs: Sequence[tuple[Operand, Cell]],
        name: str,
        elements: int,
    ) -> None:
        self.operands, self.reductions, self.outputs = operands, reductions, outputs
        wide = vector([*operands, *(o for o, _ in outputs)])
        vectors = -(-shape[1] // wide)
        across = min(power_of_two_from(-(-vectors * wide // max(elements, wide))), MAX_WARPS * WARP)
        across = max(min(across, power_of_two_from(vectors)), 1)
        repeats = -(-vectors // across)
        if repeats * wide > MAX_ELEMENTS:
            raise ScheduleError(
                f"rows of {shape[1]} elements", f"take {repeats * wide} registers a thread",
                f"at most {MAX_ELEMENTS}",
            )  # fmt: skip
        warps = max(4, across // WARP)
        down = WARP * warps // across
        self.tile = (down, repeats * across * wide)
        self.layout = thread_layout((1, down), (repeats, across), wide)
        self.k, self.shape, self.warps = Builder(name, warps), shape, warps
        self.across = across
        # What reductions computed at every element, for later cells that contain it.
        self.kept: list[tuple[Cell, ir.View]] = []

    def write(self) -> ir.Kernel:
        k, tile = self.k, self.tile
        space = Space(k, self.shape, self.operands, [o for o, _ in self.outputs])
        scratch = k.smem("scratch", "f32", (self.warps * WARP,)) if self.across > WARP else None
        self.like = k.reg("like", "f32", tile, self.layout)
        with k.tiles(space.tiles(tile), persistent=False) as number:
            begin = space.begin(number, tile)
            values = [space.load(o.name, begin, tile, self.like) for o in self.operands]
            mask = self._mask()
            for step, reduction in enumerate(self.reductions):
                values.append(self._reduce(reduction, step, values, mask, scratch))
            for out, cell in self.outputs:
                self._store(space, out, cell, values, begin)
        return k.finish()

    def _mask(self) -> ir.View | None:
        """Column numbers, where the tile is wider than a row."""
        if self.tile[1] == self.shape[1]:
            return None
        columns = self.k.reg_reduced("column", "i32", self.like.all, [0])
        self.k.index(columns.all, 1)
        return columns.all

    def _reduce(
        self,
        reduction: Reduction,
        step: int,
        values: list[ir.View],
        mask: ir.View | None,
        scratch: ir.Buffer | None,
    ) -> ir.View:
        k = self.k
        cell, ins = self._reusing(reduction.cell, values)
        if mask is not None:
            unit = MONOIDS[reduction.monoid].unit
            if unit is None:
                raise ScheduleError(f"monoid {reduction.monoid}", "has no unit", "one, for tails")
            inside = apply("lt", arg(len(ins)), Constant(self.shape[1]))
            cell = apply("where", inside, cell, unit)
            ins.append(mask)
        part = k.reg_like(f"part{step}", "f32", self.like.all)
        k.map(cell, part.all, *ins)
        if isinstance(reduction.cell, Apply):
            self.kept.append((reduction.cell, part.all))
        total = k.reg_reduced(f"row{step}", "f32", self.like.all, [1])
        k.reduce(reduction.monoid, total.all, part.all, [1], scratch)
        return total.all

    def _reusing(self, cell: Cell, values: list[ir.View]) -> tuple[Cell, list[ir.View]]:
        """The cell with what was computed before as operands, and the operands it needs.

        Masked elements differ, but they are stored nowhere and every reduction masks its own.
        """
        known = {c: arg(len(values) + n) for n, (c, _) in enumerate(self.kept)}
        cell, ins = replaced(cell, known), [*values, *(v for _, v in self.kept)]
        numbers = sorted(used(cell)) or [0]
        return renumber(cell, {n: i for i, n in enumerate(numbers)}), [ins[n] for n in numbers]

    def _store(
        self, space: Space, out: Operand, cell: Cell, values: list[ir.View], begin: list[Int]
    ) -> None:
        k = self.k
        missing = [d for d, s in enumerate(out.strides) if not s]
        result = k.reg_reduced(out.name, out.dtype, self.like.all, missing)
        cell, ins = self._reusing(cell, values)
        k.map(cell, result.all, *ins)
        kept = tuple(0 if d in missing else slice(None) for d in range(2))
        k.copy(space.view(out.name, begin, self.tile), result.all[kept])
