"""Steps, comparisons, logic, choices, conversions and bits."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np

from axe_eq.program.interval.arithmetic import absolute, infinite
from axe_eq.program.interval.value import (
    ENCLOSE,
    EXACT,
    Enclosure,
    Interval,
    defined,
    encloses,
    point,
    undefined,
    without,
)
from axe_eq.program.types import Array, dtype


def _truth(low: Array, high: Array) -> Interval:
    return Interval(low.astype(np.float64), high.astype(np.float64))


encloses("floor")(lambda x: x.map(np.floor))
encloses("ceil")(lambda x: x.map(np.ceil))
encloses("round")(lambda x: x.map(np.rint))
encloses("trunc")(lambda x: x.map(np.trunc))
encloses("sign")(lambda x: x.map(np.sign))


@encloses("maximum")
def maximum(*xs: Interval) -> Interval:
    """Largest operand."""
    return Interval(
        reduce(np.maximum, (x.low for x in xs)), reduce(np.maximum, (x.high for x in xs))
    )


@encloses("minimum")
def minimum(*xs: Interval) -> Interval:
    """Smallest operand."""
    return Interval(
        reduce(np.minimum, (x.low for x in xs)), reduce(np.minimum, (x.high for x in xs))
    )


@encloses("lt")
def less(x: Interval, y: Interval) -> Interval:
    """The value x < y."""
    return _truth(x.high < y.low, x.low < y.high)


@encloses("le")
def less_equal(x: Interval, y: Interval) -> Interval:
    """The value x <= y."""
    return _truth(x.high <= y.low, x.low <= y.high)


@encloses("eq")
def equal(x: Interval, y: Interval) -> Interval:
    """The value x = y."""
    same = (x.low == x.high) & (y.low == y.high) & (x.low == y.low)
    return _truth(same, (x.low <= y.high) & (y.low <= x.high))


def _negated(x: Interval) -> Interval:
    return Interval(1.0 - x.high, 1.0 - x.low)


def _nonzero(x: Interval) -> Interval:
    """Truth of a number."""
    return _negated(equal(x, point(0.0)))


encloses("gt")(lambda x, y: less(y, x))
encloses("ge")(lambda x, y: less_equal(y, x))
encloses("ne")(lambda x, y: _negated(equal(x, y)))
encloses("and")(lambda *xs: minimum(*map(_nonzero, xs)))
encloses("or")(lambda *xs: maximum(*map(_nonzero, xs)))
encloses("xor")(lambda x, y: _negated(equal(_nonzero(x), _nonzero(y))))
encloses("not")(lambda x: _negated(_nonzero(x)))
encloses("isnan")(lambda x: point(np.zeros(x.shape)))
encloses("isinf")(lambda x: _truth(np.isinf(x.low) & (x.low == x.high), infinite(x)))
encloses("isfinite")(lambda x: _negated(ENCLOSE["isinf"](x)))
# The sign of zero is not a matter of reals, nor is the next float.
encloses("signbit")(lambda x: _truth(x.high < 0, x.low <= 0))
encloses("nextafter")(lambda x, y: undefined(np.broadcast_shapes(x.shape, y.shape)))


@encloses("copysign")
def copy_sign(x: Interval, y: Interval) -> Interval:
    """Magnitude of x with the sign of y; either sign where y may be zero."""
    size = absolute(x)
    return Interval(
        np.where(y.low > 0, size.low, -size.high), np.where(y.high < 0, -size.low, size.high)
    )


def _bitwise(fn: Callable[..., Array]) -> Enclosure:
    """A function of two's complement bits: known where every operand is exactly known."""

    def enclose(*xs: Interval) -> Interval:
        shape = np.broadcast_shapes(*(x.shape for x in xs))
        known = np.ones(shape, dtype=bool)
        for x in xs:
            known &= (x.low == x.high) & (np.abs(x.low) < EXACT)
        bits = (np.where(known, x.low, 0).astype(np.int64) for x in xs)
        return without(point(reduce(fn, bits) if len(xs) > 1 else fn(*bits)), ~known)

    return enclose


encloses("bit_and")(_bitwise(np.bitwise_and))
encloses("bit_or")(_bitwise(np.bitwise_or))
encloses("bit_xor")(_bitwise(np.bitwise_xor))
encloses("bit_not")(_bitwise(np.invert))


def _scale(x: Interval, places: Interval, sign: int) -> Interval:
    """The value x * 2^(sign * places); undefined unless the places are known and not negative."""
    known = (places.low == places.high) & (places.low >= 0) & (places.low < 64)
    shift = sign * np.where(known, places.low, 0).astype(np.int64)
    return without(x.map(lambda bound: np.ldexp(bound, shift)), ~known)


encloses("shl", turns=True)(lambda x, places: _scale(x, places, 1))
encloses("shr")(lambda x, places: _scale(x, places, -1).map(np.floor))


def choose(condition: Interval, x: Interval, y: Interval) -> Interval:
    """`x` where the condition holds, `y` where not, their hull where that is undecided.

    The branch not taken may be undefined.
    """
    truth = _nonzero(condition)
    never, always = truth.high == 0, truth.low == 1

    def pick(taken: Array, other: Array, hull: Callable[[Array, Array], Array]) -> Array:
        return np.where(never, other, np.where(always, taken, hull(taken, other)))

    with np.errstate(all="ignore"):
        bounds = pick(x.low, y.low, np.minimum), pick(x.high, y.high, np.maximum)
        return defined(Interval(*bounds), [truth])


ENCLOSE["where"] = choose


@encloses("cast", turns=True)
def cast(x: Interval, name: str) -> Interval:
    """Conversion over the reals: to floats the identity, to integers towards zero, to bool != 0."""
    kind = dtype(name).kind
    if kind == "b":
        return _nonzero(x)
    return x.map(np.trunc) if kind == "i" else x


ENCLOSE["pair"] = lambda *xs: xs
