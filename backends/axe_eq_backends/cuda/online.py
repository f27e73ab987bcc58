"""Cells of streaming reductions: which monoids lanes reduce by, and exponentials made cheap.

A kernel holds the running statistic, the sum of the weights and the weighted sum; where the
statistic changes, both sums are rescaled.
"""

from __future__ import annotations

import math

from axe_eq.kernel.cells import Apply, Cell, Constant, apply, arg, used
from axe_eq.kernel.structured import BEST, ONLINE
from axe_eq.program.ops import MONOIDS
from axe_eq.program.types import DTYPES

LOG2_E = math.log2(math.e)
WIDENED = "cast f32"


def unable(monoid: str) -> str:
    """Why kernels on lanes cannot reduce by a monoid; "" where they can."""
    declared = MONOIDS[monoid]
    if monoid in ONLINE or monoid in BEST:
        return ""
    if not declared.merges:
        return f"reduces by {monoid}, and kernels on lanes by what a cell merges (Monoid.merges)"
    return "" if declared.unit is not None else f"reduces by {monoid}, which has no unit"


# -- cells of cells --


def factor(cell: Cell) -> tuple[Cell, float]:
    """(x, c) with cell = c x, for a constant c > 0; c is 1 where there is none.

    A cast to f32 rounds nothing that kernels compute: the factor comes out of it.
    """
    if isinstance(cell, Apply) and cell.cell == WIDENED:
        narrow, scale = factor(cell.args[0])
        return Apply(WIDENED, (narrow,)), scale
    if isinstance(cell, Apply) and cell.cell == "mul" and len(cell.args) == 2:
        for x, by in (cell.args, cell.args[::-1]):
            if isinstance(by, Constant) and by.value > 0:
                inner, more = factor(x)
                return inner, more * by.value
    return cell, 1.0


def times(cell: Cell, c: float) -> Cell:
    """The cell expression times c, with c moved to where it meets a constant or a leaf."""
    if c == 1:
        return cell
    if isinstance(cell, Constant):
        return Constant(cell.value * c, cell.kind if DTYPES[cell.kind].kind == "f" else "")
    if isinstance(cell, Apply):
        kind, args = cell.cell, cell.args
        if kind in ("add", "sub"):
            return Apply(kind, tuple(times(a, c) for a in args))
        if kind == "neg":
            return Apply(kind, (times(args[0], c),))
        if kind == "where":
            return Apply(kind, (args[0], times(args[1], c), times(args[2], c)))
        if kind == "mul":
            for n, a in enumerate(args):
                if isinstance(a, Constant):
                    rest = args[:n] + args[n + 1 :]
                    inner = rest[0] if len(rest) == 1 else Apply("mul", rest)
                    return times(inner, c * a.value)
    return apply("mul", cell, c)


def gathered(cell: Cell) -> tuple[Cell, float]:
    """(x, c) with cell = c x, for a constant c > 0 that all terms of a sum share.

    ``c a - c b`` becomes ``a - b`` and c: 0 where a is b, though the compiler fuse a product with
    the sum.
    """
    inner, c = _gathered(cell)
    return inner, 1.0 if c is None else c


def _gathered(cell: Cell) -> tuple[Cell, float | None]:
    if isinstance(cell, Constant):
        return cell, None if cell.value == 0 or math.isinf(cell.value) else 1.0
    inner, c = factor(cell)
    if c != 1 or not isinstance(cell, Apply) or cell.cell not in ("add", "sub", "where"):
        return inner, c
    first = int(cell.cell == "where")
    parts = [_gathered(a) for a in cell.args[first:]]
    shared = {c for _, c in parts if c is not None}
    if len(shared) != 1:
        return cell, 1.0
    return Apply(cell.cell, (*cell.args[:first], *(x for x, _ in parts))), shared.pop()


def in_powers_of_two(cell: Cell, late: bool = False) -> Cell:
    """Exponentials as powers of two, with the change of base merged into what they scale by.

    Right to the rounding of the exponent: for results of 16 bits.

    Args:
        cell: with exponentials.
        late: differences are scaled, not their terms: exponentials of equal terms are exactly 1.
    """
    if not isinstance(cell, Apply):
        return cell
    args = tuple(in_powers_of_two(a, late) for a in cell.args)
    if cell.cell != "exp":
        return Apply(cell.cell, args)
    if late:
        difference, c = gathered(args[0])
        return apply("pow", 2.0, apply("mul", difference, c * LOG2_E))
    return apply("pow", 2.0, times(args[0], LOG2_E))


def hoisted(cell: Cell, rows: frozenset[int], first: int) -> tuple[Cell, list[Cell]]:
    """The cell with what depends on operands `rows` alone as operands from `first` on, and those.

    Operands themselves and constants stay.
    """
    found: list[Cell] = []

    def visit(part: Cell) -> Cell:
        if not isinstance(part, Apply):
            return part
        if used(part) and used(part) <= rows:
            if part not in found:
                found.append(part)
            return arg(first + found.index(part))
        return Apply(part.cell, tuple(map(visit, part.args)))

    return visit(cell), found
