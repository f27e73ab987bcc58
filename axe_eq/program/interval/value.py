"""The interval value: bounds, constants, element types, what may be undefined."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple

import numpy as np

from axe_eq.program.types import Array, dtype

EPSILON = 2.0**-52  # one unit in the last place of a float64 is at most this times its size
EXACT = 2.0**53  # integers of this size and below are exact; this one is the next's rounding too


class Interval(NamedTuple):
    """Enclosures of an array of reals; a point where `low is high`."""

    low: Array
    high: Array

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array."""
        return tuple(self.low.shape)

    @property
    def is_point(self) -> bool:
        """Both bounds are one array, so every value is exact."""
        return self.low is self.high

    def map(self, move: Callable[[Array], Array]) -> Interval:
        """Apply a function that only moves elements to both bounds."""
        low = move(self.low)
        return Interval(low, low if self.is_point else move(self.high))


Enclosure = Callable[..., Interval]
# The cell `pair` gives several intervals, every other cell one.
ENCLOSE: dict[str, Callable[..., Any]] = {}
# Cells whose float value is not determined by their real value (IEEE 754, 5: all others are).
APPROXIMATE: set[str] = set()
# Cells of integers whose value wraps around where it is beyond its type.
WRAPS: set[str] = set()


def point(values: Any) -> Interval:
    """The exact interval of known values (float64; integers up to 2^53 are exact)."""
    array = np.asarray(values, dtype=np.float64)
    return Interval(array, array)


def undefined(shape: tuple[int, ...]) -> Interval:
    """An array of values about which nothing is known."""
    return point(np.full(shape, np.nan))


def literal(values: Any, name: str) -> Interval:
    """Enclose constants of element type `name`.

    A constant that looks rounded (0.1, 1/3) stands for any real that somebody may have rounded to
    it, in its type or in double precision, and for what its type makes of it. Small integers and
    short binary fractions are exact.
    """
    given = np.asarray(values, dtype=np.float64)
    if dtype(name).kind != "f":
        wide = Interval(np.nextafter(given, -np.inf), np.nextafter(given, np.inf))
        return _hull_unless(np.abs(given) < EXACT, given, wide)  # what rounds to it is larger
    import ml_dtypes  # not loaded by programs that only run

    digits = int(ml_dtypes.finfo(dtype(name).numpy).nmant) + 1  # type: ignore[no-untyped-call]
    with np.errstate(all="ignore"):
        rounded = given.astype(dtype(name).numpy).astype(np.float64)
        mantissa, exponent = np.frexp(given)
        short = np.rint(scaled := mantissa * 2.0 ** max(digits - 3, 1)) == scaled
        whole = (np.rint(given) == given) & (np.abs(given) <= 2.0**digits)
        exact = np.isinf(given) | ((rounded == given) & (short | whole))
        # A number its type cannot hold was not rounded to it: it lies beside what it rounds to.
        half = np.where(rounded == given, np.ldexp(0.5, np.maximum(exponent - digits, -1073)), 0.0)
        slack = half + 4 * np.abs(given) * EPSILON
        low, high = np.fmin(given, rounded) - slack, np.fmax(given, rounded) + slack
    return _hull_unless(exact, given, Interval(low, high))


def _hull_unless(exact: Array, value: Array, wide: Interval) -> Interval:
    if np.all(exact):
        return Interval(value, value)
    return Interval(np.where(exact, value, wide.low), np.where(exact, value, wide.high))


def within(x: Interval, name: str) -> Interval:
    """Mark what the element type `name` cannot hold as unknown: integers wrap, reals do not."""
    kind = dtype(name).kind
    if kind == "f":
        return x
    if kind == "b":
        least, most = 0.0, 1.0
    else:
        limits = np.iinfo(dtype(name).numpy)
        # The next float64 below 2^63 is 2^63 - 1024; stopping there only loses refutations.
        least, most = float(limits.min), np.nextafter(float(limits.max) + 1, 0)
    with np.errstate(invalid="ignore"):
        bad = ~((x.low >= least) & (x.high <= most))
        bad |= (np.rint(x.low) != x.low) | (np.rint(x.high) != x.high)
    return without(x, bad)


def wrapped(x: Interval, name: str) -> Interval:
    """Integers beyond the element type `name` as they wrap around, where they are known exactly."""
    limits = np.iinfo(dtype(name).numpy)
    least, count = float(limits.min), 2.0**limits.bits
    with np.errstate(invalid="ignore"):
        beyond = (x.low == x.high) & ((x.low < least) | (x.low > float(limits.max)))
        beyond &= np.abs(x.low) < EXACT
    if not beyond.any():
        return x
    inside = np.mod(np.where(beyond, x.low, 0) - least, count) + least
    return x.map(lambda bound: np.where(beyond, inside, bound))


def disjoint(x: Interval, y: Interval) -> Array:
    """Where the two values certainly differ."""
    with np.errstate(invalid="ignore"):
        apart: Array = (x.high < y.low) | (y.high < x.low)
        return apart


def together(move: Callable[..., Array], *xs: Interval) -> Interval:
    """Apply a function that only moves elements of several arrays to both bounds."""
    low = move(*(x.low for x in xs))
    return Interval(low, low if all(x.is_point for x in xs) else move(*(x.high for x in xs)))


def without(x: Interval, bad: Array) -> Interval:
    """Mark cells as undefined."""
    if not np.any(bad):
        return x
    return x.map(lambda bound: np.where(bad, np.nan, bound))


def defined(result: Interval, operands: Sequence[Interval] = ()) -> Interval:
    """Make undefined what has an undefined bound or operand; share the array of a point."""
    for bound in (*result, *(x.low for x in operands)):
        if (bad := np.isnan(bound)).any():
            result = without(result, bad)
    if not result.is_point and np.array_equal(result.low, result.high):
        return Interval(result.low, result.low)
    return result


def encloses(
    name: str, approximate: bool = False, turns: bool = False
) -> Callable[[Enclosure], Enclosure]:
    """Register the enclosure of a cell that is undefined where an operand is.

    Args:
        name: the cell.
        approximate: no standard says which float it gives, so implementations differ.
        turns: on integers its value wraps around.
    """

    def register(fn: Enclosure) -> Enclosure:
        @wraps(fn)
        def enclose(*arguments: Any) -> Interval:
            with np.errstate(all="ignore"):
                return defined(fn(*arguments), [a for a in arguments if isinstance(a, Interval)])

        ENCLOSE[name] = enclose
        if approximate:
            APPROXIMATE.add(name)
        if turns:
            WRAPS.add(name)
        return enclose

    return register
