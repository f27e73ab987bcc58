"""Reductions of rows, and what lies past the end of a row: masked, or proved to change nothing.

Where a row ends inside a tile, the registers past it hold a fill in place of operands. A reduction
needs no mask there if its cell is then the unit of its monoid, whatever the row's other values are.
That is proved (`axe_eq.kernel.values`), or there is a mask: samples decide nothing here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from axe_eq.errors import ScheduleError
from axe_eq.kernel.cells import Cell, Constant, apply, result_dtype, used
from axe_eq.kernel.values import Values, anything, classes, exactly, possible
from axe_eq.program.ops import CELLS, MONOIDS
from axe_eq.program.types import DTYPES
from axe_eq_backends.cuda.schedules.tensors import Operand

MOST_CASES = 1 << 12  # of values along no row; with more of them nothing is split into cases


@dataclass(frozen=True)
class Reduction:
    """One row value: the monoid over a row of the cell's values."""

    monoid: str
    cell: Cell


@dataclass(frozen=True)
class Problem:
    """Reductions over, or scans along, the last dims of an index space.

    Attributes:
        shape: extents of the kept dims, then of the reduced ones.
        reduced: how many dims are reduced.
        operands: tensors over the shape; broadcast ones have stride 0.
        reductions: in order; their cells may use operands (by number) and earlier values (numbered
            after the operands).
        outputs: tensors with their cells, over operands and values; those of stride 0 along all
            reduced dims are one value for all of them.
    """

    shape: tuple[int, ...]
    reduced: int
    operands: Sequence[Operand]
    reductions: Sequence[Reduction]
    outputs: Sequence[tuple[Operand, Cell]]

    @property
    def stored(self) -> list[Operand]:
        """The tensors that are written."""
        return [o for o, _ in self.outputs]

    @property
    def dtypes(self) -> list[str]:
        """Element types of the operands, then what every reduction is computed in."""
        return value_dtypes(self.operands, self.reductions)


def value_dtypes(operands: Sequence[Operand], reductions: Sequence[Reduction]) -> list[str]:
    """Element types of the operands, then what every reduction is computed in."""
    known = [o.dtype for o in operands]
    for reduction in reductions:
        known.append(result_dtype(reduction.cell, known))
    return known


def unit_of(monoid: str, dtype: str) -> float:
    """What a monoid's values may be mixed with.

    Raises:
        ScheduleError: it has no unit.
    """
    unit = MONOIDS[monoid].unit
    if unit is None:
        raise ScheduleError(f"monoid {monoid}", "has no unit", "one, for tails")
    if DTYPES[dtype].kind == "i" and abs(unit) == float("inf"):
        ends = np.iinfo(DTYPES[dtype].numpy)
        return int(ends.max if unit > 0 else ends.min)
    return unit


def within(index: Cell, extent: int, begins: bool) -> Cell:
    """The condition that an index is below an extent, and with `begins` at least 0."""
    below = apply("lt", index, Constant(extent))
    return apply("and", apply("ge", index, Constant(0)), below) if begins else below


def neutral_fill(operands: Sequence[Operand], reductions: Sequence[Reduction]) -> float | None:
    """What operands past the end of a row may read as, so that no reduction changes by it.

    One of 0 and the infinities, for all operands along the columns; proved for every value of the
    other operands and of earlier reductions.

    Args:
        operands: tensors over the index space; those of stride 0 along the last dim are one value
            for a row.
        reductions: in order.

    Returns:
        None where nothing is proved: then what lies past a row has to be masked.
    """
    along = tuple(o.varies(-1) for o in operands)
    if any(a and (o.counts or o.bound(-1)) for a, o in zip(along, operands, strict=True)):
        return None
    return _neutral_fill(along, tuple(o.dtype for o in operands), tuple(reductions))


@lru_cache(maxsize=1024)
def _neutral_fill(
    along: tuple[bool, ...], dtypes: tuple[str, ...], reductions: tuple[Reduction, ...]
) -> float | None:
    read = [d for a, d in zip(along, dtypes, strict=True) if a]
    floats = all(DTYPES[d].kind == "f" for d in read)
    for fill in (0.0, -math.inf, math.inf) if floats else (0.0,):
        held = (float(np.asarray(fill).astype(DTYPES[d].numpy)) for d in read)
        if all(value == fill for value in held) and _changes_nothing(
            fill, along, list(dtypes), reductions
        ):  # some narrow floats have no infinity
            return fill
    return None


def _changes_nothing(
    fill: float, along: Sequence[bool], known: list[str], reductions: Sequence[Reduction]
) -> bool:
    """Whether the fill changes no reduction, in any case of the values that are one per row.

    A value past the end has to be the unit. Where all values of the row are NaN it may be anything:
    the result is NaN.
    """
    rows = _rows(along, known, reductions)
    inside, past = list(rows), list(rows)
    for n, is_along in enumerate(along):
        if is_along:
            inside[n], past[n] = anything(known[n]), exactly(fill)
    bounds: dict[Cell, Values] = {}
    for n, reduction in enumerate(reductions, len(along)):
        cell, dtype = reduction.cell, result_dtype(reduction.cell, known)
        unit = possible(cell, past, known).only(unit_of(reduction.monoid, dtype))
        if not unit.all():
            merged = CELLS[MONOIDS[reduction.monoid].merges]
            absorbs = merged.strict and DTYPES[dtype].kind == "f"
            if not absorbs or not (unit | possible(cell, inside, known, bounds).empty).all():
                return False
        known.append(dtype)
        if reduction.monoid in _BOUNDS:
            bounds[cell] = _BOUNDS[reduction.monoid](rows[n])
    return True


def _rows(
    along: Sequence[bool], known: Sequence[str], reductions: Sequence[Reduction]
) -> list[Values]:
    """Values that are one per row, of operands and of reductions, by cases that broadcast."""
    dtypes = list(known)
    for reduction in reductions:
        dtypes.append(result_dtype(reduction.cell, dtypes))
    needed = set().union(*(used(r.cell) for r in reductions))
    split = [n for n in sorted(needed) if n >= len(along) or not along[n]]
    found = [anything(d) for d in dtypes]
    cases = {n: classes(dtypes[n]) for n in split}
    if math.prod(len(c.low) for c in cases.values()) > MOST_CASES:
        return found
    for place, (n, case) in enumerate(cases.items()):
        shape = (-1, *(1,) * (len(cases) - place - 1))
        found[n] = Values(*(part.reshape(shape) for part in (case.low, case.high, case.nan)))
    return found


def _at_most(value: Values) -> Values:
    high = np.where(value.nan, np.inf, value.high)
    return Values(np.full_like(high, -np.inf), high, value.nan)


def _at_least(value: Values) -> Values:
    low = np.where(value.nan, -np.inf, value.low)
    return Values(low, np.full_like(low, np.inf), value.nan)


# What a reduction says of every value that it reduces: a maximum that is a number is of numbers,
# and none is larger; one that is NaN says nothing.
_BOUNDS = {"max": _at_most, "min": _at_least}
