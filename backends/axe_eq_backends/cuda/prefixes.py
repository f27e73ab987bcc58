"""Monoids as cells for scans: how an element becomes a state, and how two states become one.

Reductions hold running values of their own (`online`); a scan needs every state, so its monoids are
given whole: parts that are lifted, merged and finished by cells.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from axe_eq.errors import ScheduleError
from axe_eq.kernel.cells import Cell, apply, arg, substituted
from axe_eq.kernel.monoids import Parts, declared_parts
from axe_eq.kernel.structured import LAST
from axe_eq.program.ops import CELLS, MONOIDS
from axe_eq.program.types import DTYPES, promote
from axe_eq_backends.cuda.schedules.tails import unit_of

# Truth values are merged as the numbers 0 and 1: threads exchange registers of 32 bits.
LOGICAL = {"and": "minimum", "or": "maximum", "min": "minimum", "max": "maximum"}
# Cells of small integers that are those of 32 bits, cut to the range.
_MODULAR = frozenset({"add", "mul"})


def parts_of(monoid: str, dtypes: Sequence[str]) -> Parts | None:
    """A monoid over operands of these accumulation dtypes; None where kernels cannot write it.

    Small integers are merged in 32 bits, as threads exchange them, and cut to their range again.
    """
    wide = [exchanged(d) for d in dtypes]
    if monoid not in MONOIDS or any(unexchanged(monoid, d) for d in dtypes):
        return None
    parts = _parts(monoid, wide)
    if parts is None or wide == list(dtypes):
        return parts
    given: dict[int, Cell] = {
        n: arg(n) if w == d else apply(f"cast {w}", arg(n))
        for n, (w, d) in enumerate(zip(wide, dtypes, strict=True))
    }
    lift = tuple(substituted(cell, given) for cell in parts.lift)
    finish = apply(f"cast {promote(*dtypes[-1:])}", parts.finish)
    return Parts(lift, parts.merge, parts.units, finish)


def exchanged(dtype: str) -> str:
    """The dtype in which threads exchange values that are computed in this one."""
    of = DTYPES[dtype]
    return "i32" if of.kind == "i" and of.itemsize < DTYPES["i32"].itemsize else dtype


def unexchanged(monoid: str, dtype: str) -> str:
    """Why threads cannot exchange a monoid's values of a dtype as those of 32 bits; "" where not.

    Truth values are the numbers 0 and 1, small integers are widened: some monoids are others there.
    """
    declared = MONOIDS[monoid]
    if dtype == "bool" and monoid not in LOGICAL:
        return "of truth values"
    if exchanged(dtype) == dtype or monoid in _STRUCTURED or declared.merges in _MODULAR:
        return ""
    selects = declared.merges and not CELLS[declared.merges].rounds
    return "" if selects else f"of {dtype}, which is exchanged in 32 bits"


def _parts(monoid: str, dtypes: Sequence[str]) -> Parts | None:
    declared = MONOIDS[monoid]
    if "bool" in dtypes:
        return _logical(LOGICAL[monoid])
    if declared.merges:
        lift = apply(declared.lifts, arg(0)) if declared.lifts else arg(0)
        merge = apply(declared.merges, arg(0), arg(1))
        return Parts((lift,), (merge,), (unit_of(monoid, dtypes[0]),), arg(0))
    made = _STRUCTURED.get(monoid) or declared_parts(monoid)
    return made(dtypes) if made else None


def _logical(cell: str) -> Parts:
    unit = 1 if cell == "minimum" else 0
    finish = apply("ne", arg(0), 0)
    return Parts((apply("cast i32", arg(0)),), (apply(cell, arg(0), arg(1)),), (unit,), finish)


def _softmax(dtypes: Sequence[str]) -> Parts:
    def weight(score: Cell, top: Cell) -> Cell:
        # A maximum of -inf has no weights; subtracting 0 there keeps NaN out.
        origin = apply("where", apply("eq", top, -math.inf), 0.0, top)
        return apply("exp", apply("sub", score, origin))

    own = weight(arg(0), arg(0))
    top = apply("maximum", arg(0), arg(3))

    def mixed(part: int) -> Cell:
        before = apply("mul", arg(part), weight(arg(0), top))
        return apply("add", before, apply("mul", arg(3 + part), weight(arg(3), top)))

    lift = (arg(0), own, apply("mul", own, arg(1)))
    return Parts(
        lift, (top, mixed(1), mixed(2)), (-math.inf, 0.0, 0.0), apply("div", arg(2), arg(1))
    )


def _best(monoid: str, better: str) -> Callable[[Sequence[str]], Parts]:
    """The first index of the best value; NaN is the best."""

    def isnan(x: Cell) -> Cell:
        return apply("ne", x, x)

    def parts(dtypes: Sequence[str]) -> Parts:
        nans = isnan(arg(0)), isnan(arg(2))
        tie = apply("or", apply("eq", arg(0), arg(2)), apply("and", *nans))
        beats = apply("and", apply("or", apply(better, arg(2), arg(0)), nans[1]),
                      apply("not", nans[0]))  # fmt: skip
        first = apply("lt", arg(3), arg(1))
        wins = apply("or", apply("and", tie, first), apply("and", apply("not", tie), beats))
        merge = tuple(apply("where", wins, arg(2 + n), arg(n)) for n in range(2))
        return Parts((arg(0), arg(1)), merge, (unit_of(monoid, dtypes[0]), LAST), arg(1))

    return parts


def _recurrence(dtypes: Sequence[str]) -> Parts:
    decay = apply("mul", arg(0), arg(2))
    value = apply("add", apply("mul", arg(1), arg(2)), arg(3))
    # Products of decays overflow where the values do not, and 0 times infinity is NaN: what stands
    # before all of a row is not multiplied.
    unit = apply("and", apply("eq", arg(0), 1.0), apply("eq", arg(1), 0.0))
    value = apply("where", unit, arg(3), value)
    return Parts((arg(0), arg(1)), (decay, value), (1.0, 0.0), arg(1))


_STRUCTURED: dict[str, Callable[[Sequence[str]], Parts]] = {
    "softmax": _softmax, "argmax": _best("max", "gt"), "argmin": _best("min", "lt"),
    "recurrence": _recurrence,
}  # fmt: skip


def lifted(parts: Parts, operands: Sequence[Cell]) -> tuple[Cell, ...]:
    """The cells of a state's parts over what its operands are cells of."""
    known = dict(enumerate(operands))
    return tuple(substituted(cell, known) for cell in parts.lift)


def alone(monoid: str, operands: Sequence[Cell], dtypes: Sequence[str]) -> Cell:
    """The value of a scan over one element.

    Raises:
        ScheduleError: a monoid without cells for kernels.
    """
    if MONOIDS[monoid].merges:
        lifts = MONOIDS[monoid].lifts
        return apply(lifts, operands[0]) if lifts else operands[0]
    parts = parts_of(monoid, dtypes)
    if parts is None:
        raise ScheduleError(f"scan by {monoid}", "has no cells", "a monoid with cells for kernels")
    return substituted(parts.finish, dict(enumerate(lifted(parts, operands))))


__all__ = ["Parts", "alone", "lifted", "parts_of"]
