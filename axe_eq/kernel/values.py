"""What values a cell may give on a machine, proved by cases and enclosures, never by samples.

The numbers of a machine fall into few classes: NaN, either infinity, the negative, zero, the
positive. `classes` splits an unknown operand into all of them, so a statement that holds in every
class holds for every value. Inside a class a cell is followed by the enclosures of its operators
(`axe_eq.program.interval`), which are about reals; each of them is widened by what a machine may do
otherwise: round to its element type, overflow, flush to zero, compute a function to a few digits.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from axe_eq.kernel.cells import Apply, Cell, Constant, Operand, common_dtype, result_dtype
from axe_eq.program import ops
from axe_eq.program.interval import Interval, literal, point, within
from axe_eq.program.interval.value import EXACT
from axe_eq.program.types import DTYPES, Array, dtype

# What functions and divisions of machines may be off by, relatively, and where they give up: the
# exponential of the CUDA backend is right to 1e-5 and flushes subnormal results to zero. Zeros and
# infinities stay what they are: they are the ends of ranges, or values at special points.
_SLACK, _FLUSHED = 2.0**-8, 2.0**-120


@dataclass(frozen=True)
class Values:
    """A set of machine values per case: an interval of numbers, NaN, both or neither.

    Attributes:
        low, high: both ends, infinities included; there is no number where low > high.
        nan: where the value may be NaN.
    """

    low: Array
    high: Array
    nan: Array

    def only(self, value: float) -> Array:
        """Where it is certainly this number (zeros of both signs are one)."""
        if not abs(float(value)) < EXACT and not np.isinf(value):  # an integer beside others
            return np.zeros_like(self.nan)
        return np.asarray(~self.nan & ((self.low == value) & (self.high == value)))

    @property
    def empty(self) -> Array:
        """Where it is certainly no number: NaN, or nothing in a case that cannot be."""
        return np.asarray(self.low > self.high)


def exactly(value: float) -> Values:
    """One number."""
    at = np.asarray(float(value))
    return Values(at, at, np.zeros((), bool))


def anything(name: str) -> Values:
    """Every value of an element type."""
    low, high = _ends(name)
    return Values(np.asarray(low), np.asarray(high), np.asarray(DTYPES[name].kind == "f"))


def classes(name: str) -> Values:
    """Every value of an element type, one class per case along one dim."""
    if DTYPES[name].kind == "b":
        return Values(np.array([0.0, 1.0]), np.array([0.0, 1.0]), np.zeros(2, bool))
    low, high = _ends(name)
    if DTYPES[name].kind == "i":
        ends = np.array([[low, -1.0], [0.0, 0.0], [1.0, high]])
        return Values(ends[:, 0], ends[:, 1], np.zeros(3, bool))
    held = np.finfo(DTYPES[DTYPES[name].accumulate].numpy)
    tiny, huge, inf = float(held.smallest_subnormal), float(held.max), np.inf
    ends = np.array(
        [[inf, -inf], [-inf, -inf], [-huge, -tiny], [0.0, 0.0], [tiny, huge], [inf, inf]]
    )
    return Values(ends[:, 0], ends[:, 1], np.arange(len(ends)) == 0)


def _ends(name: str) -> tuple[float, float]:
    found = DTYPES[name]
    if found.kind == "b":
        return 0.0, 1.0
    if found.kind == "i":
        ends = np.iinfo(found.numpy)
        return float(ends.min), float(ends.max)
    return -np.inf, np.inf


def possible(
    cell: Cell,
    operands: Sequence[Values],
    dtypes: Sequence[str],
    known: Mapping[Cell, Values] | None = None,
) -> Values:
    """What a cell expression may give on operands of these values.

    Args:
        cell: the expression.
        operands: their values, whose cases broadcast against each other.
        dtypes: element types of the operands.
        known: sets that contain what some subexpressions give, proved elsewhere.
    """
    if isinstance(cell, Operand):
        found = operands[cell.index]
    elif isinstance(cell, Constant):
        found = _constant(cell, cell.kind)
    else:
        found = _applied(cell, operands, dtypes, known or {})
    if known and cell in known:
        other = known[cell]
        return Values(
            np.maximum(found.low, other.low), np.minimum(found.high, other.high),
            found.nan & other.nan,
        )  # fmt: skip
    return found


def _constant(cell: Constant, kind: str) -> Values:
    """One number, or NaN; an integer that float64 does not hold lies between its neighbours."""
    value = cell.computed_in(kind)
    if value != value:
        return Values(*map(np.asarray, (np.inf, -np.inf, True)))
    low, high = literal(value, kind) if DTYPES[kind].kind == "i" else point(value)
    return Values(low, high, np.zeros((), bool))


def _applied(
    cell: Apply, operands: Sequence[Values], dtypes: Sequence[str], known: Mapping[Cell, Values]
) -> Values:
    declared, params = ops.cell(cell.cell)
    out = result_dtype(cell, dtypes)
    if declared.enclose is None or declared.n_values > 1:
        return anything(out)
    held = [result_dtype(a, dtypes) for a in cell.args]
    kind, first = common_dtype(cell, held), declared.n_conditions
    args = []
    for n, (a, h) in enumerate(zip(cell.args, held, strict=True)):
        wanted = "bool" if n < first else kind
        if isinstance(a, Constant):
            args.append(_constant(a, wanted))
        else:
            args.append(_converted(possible(a, operands, dtypes, known), h, wanted))
    strict = declared.strict and DTYPES[out].kind == "f"
    lows, highs, nans = (np.broadcast_arrays(*x) for x in zip(*map(_parts, args), strict=True))
    lost = [low > high if strict else (low > high) | nan
            for low, high, nan in zip(lows, highs, nans, strict=True)]  # fmt: skip
    given = [
        Interval(np.where(x, np.nan, low), np.where(x, np.nan, high))
        for x, low, high in zip(lost, lows, highs, strict=True)
    ]
    with np.errstate(all="ignore"):
        enclosed = declared.enclose(*given, *params)
        bounds = _on_machine(enclosed, out, params if declared.result == "param" else (),
                             declared.rounds and declared.result != "param")  # fmt: skip
        if not strict:
            return bounds
        return _strict(bounds, declared, params, given, nans, kind)


def _parts(x: Values) -> tuple[Array, Array, Array]:
    return x.low, x.high, x.nan


def _converted(x: Values, held: str, wanted: str) -> Values:
    """Values of one kind of number as another."""
    if held == wanted:
        return x
    if wanted == "bool":  # NaN is not zero
        never = (x.low == 0) & (x.high == 0) & ~x.nan
        always = (x.low > 0) | (x.high < 0)
        return Values(np.where(always, 1.0, 0.0), np.where(never, 0.0, 1.0), np.zeros_like(x.nan))
    return _on_machine(Interval(x.low, x.high), wanted, (), rounds=False)


def _on_machine(x: Interval, out: str, stored: Sequence[str], rounds: bool) -> Values:
    """What a machine may give for reals in an interval, of which NaN bounds say nothing."""
    low, high = x
    if DTYPES[out].kind != "f":
        if DTYPES[out].kind == "i":
            low, high = within(x, out)
        unknown, (least, most) = np.isnan(low) | np.isnan(high), _ends(out)
        no_nan = np.zeros(np.shape(unknown), bool)
        return Values(np.where(unknown, least, low), np.where(unknown, most, high), no_nan)
    if rounds:
        low, high = _slack(low, -1.0), _slack(high, 1.0)
    # Rounding is monotone: what lies between two numbers is rounded to between their roundings.
    for name in (*(dtype(s).name for s in stored), out):
        low, high = (b.astype(DTYPES[name].numpy).astype(np.float64) for b in (low, high))
    unknown = np.isnan(low) | np.isnan(high)
    return Values(np.where(unknown, -np.inf, low), np.where(unknown, np.inf, high), unknown)


def _slack(bound: Array, sign: float) -> Array:
    """A bound moved outwards by what machines may be off; zeros and infinities stay."""
    kept = (bound == 0) | np.isinf(bound)
    return np.where(kept, bound, bound + sign * (np.abs(bound) * _SLACK + _FLUSHED))


def _strict(
    bounds: Values, declared: ops.Cell, params: Sequence[object], given: Sequence[Interval],
    nans: Sequence[Array], kind: str,
) -> Values:  # fmt: skip
    """With NaN where an operand may be it, and alone where one is or where known numbers give it.

    IEEE 754 says that invalid operations on numbers do, such as infinity less infinity.
    """
    nan = np.any(nans, axis=0) | bounds.nan
    lost = np.any([np.isnan(x.low) for x in given], axis=0)
    exact = np.all([x.low == x.high for x in given], axis=0)
    points = [np.where(exact, x.low, 1.0).astype(DTYPES[kind].numpy) for x in given]
    invalid = exact & np.isnan(np.asarray(declared.fn(*points, *params), np.float64))
    nothing = lost | invalid
    return Values(
        np.where(nothing, np.inf, bounds.low), np.where(nothing, -np.inf, bounds.high),
        nan | invalid,
    )  # fmt: skip
