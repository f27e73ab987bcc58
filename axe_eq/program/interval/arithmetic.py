"""Directed rounding, and the cells of arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np

from axe_eq.program.interval.value import (
    EPSILON,
    EXACT,
    Interval,
    defined,
    encloses,
    point,
    without,
)
from axe_eq.program.types import Array

# numpy's vector mathematics promises less than 4 units in the last place for float64; twice that.
ULPS = 8
# Bounds of functions keep this distance from what underflows: matrix products are a hundred times
# slower on subnormal numbers.
_FLOOR = 2.0**-900


def _below(value: Array, residual: Array) -> Array:
    """Largest known lower bound of value + residual; a NaN residual says nothing."""
    return np.where(residual >= 0, value, np.nextafter(value, -np.inf))


def _above(value: Array, residual: Array) -> Array:
    return np.where(residual <= 0, value, np.nextafter(value, np.inf))


def outward(low: Array, high: Array, ulps: int = ULPS) -> Interval:
    """Widen computed bounds by `ulps` last places; an overflow becomes [largest, inf]."""

    def slack(bound: Array) -> Array:
        return np.abs(bound) * (ulps * EPSILON) + _FLOOR

    largest = np.finfo(np.float64).max
    below = np.where(np.isinf(low), np.minimum(low, largest), low - slack(low))
    above = np.where(np.isinf(high), np.maximum(high, -largest), high + slack(high))
    return Interval(np.nextafter(below, -np.inf), np.nextafter(above, np.inf))


def _sum_residual(a: Array, b: Array, total: Array) -> Array:
    """Exact a + b - total (TwoSum); NaN where finite operands overflowed."""
    part = total - a
    residual: Array = (a - (total - part)) + (b - part)
    if np.isinf(total).any():
        residual = np.where(np.isinf(a) | np.isinf(b), 0.0, residual)
    return residual


def _split(a: Array) -> tuple[Array, Array]:
    """Two halves of 26 bits each (Veltkamp)."""
    scaled = a * 134217729.0
    head = scaled - (scaled - a)
    return head, a - head


def _product_residual(a: Array, b: Array, product: Array) -> Array:
    """Exact a * b - product (TwoProduct); NaN where underflow or overflow may spoil it."""
    (a1, a2), (b1, b2) = _split(a), _split(b)
    residual = ((a1 * b1 - product) + a1 * b2 + a2 * b1) + a2 * b2
    size = np.abs(product)
    trusted = ((size > 2.0**-900) & (size < 2.0**1000)) | (a == 0) | (b == 0)
    return np.where(trusted, residual, np.nan)


def _quotient_residual(a: Array, b: Array, quotient: Array) -> Array:
    """A number of the sign of a / b - quotient."""
    product = quotient * b
    residual = (a - product) - _product_residual(quotient, b, product)
    trusted = (np.abs(quotient) > 2.0**-900) | (a == 0)
    return np.where(trusted, residual * np.sign(b), np.nan)


def is_whole(*arrays: Array) -> bool:
    """Every value is an integer (and none is undefined)."""
    return all(bool(np.all(np.rint(a) == a)) for a in arrays)


def _largest(a: Array) -> float:
    return float(np.max(np.abs(a), initial=0.0))


def corners(
    x: Interval, y: Interval, op: Callable[[Array, Array], tuple[Array, Array]]
) -> Interval:
    """Range of an operation that is monotone in each operand: its extremes over the corners."""
    xs = x[:1] if x.is_point else x
    ys = y[:1] if y.is_point else y
    bounds = [op(a, b) for a in xs for b in ys]
    return Interval(
        reduce(np.minimum, (low for low, _ in bounds)),
        reduce(np.maximum, (high for _, high in bounds)),
    )


def _product(a: Array, b: Array) -> tuple[Array, Array]:
    product = a * b
    if _largest(product) <= EXACT and is_whole(a, b):
        return product, product
    residual = _product_residual(a, b, product)
    return _below(product, residual), _above(product, residual)


def _quotient(a: Array, b: Array) -> tuple[Array, Array]:
    quotient = a / b
    residual = _quotient_residual(a, b, quotient)
    return _below(quotient, residual), _above(quotient, residual)


def _add(x: Interval, y: Interval) -> Interval:
    low = x.low + y.low
    residual = _sum_residual(x.low, y.low, low)
    if x.is_point and y.is_point:
        result = Interval(_below(low, residual), _above(low, residual))
    else:
        high = x.high + y.high
        result = Interval(_below(low, residual), _above(high, _sum_residual(x.high, y.high, high)))
    opposite = (np.isposinf(x.high) & np.isneginf(y.low)) | (
        np.isneginf(x.low) & np.isposinf(y.high)
    )
    return without(result, opposite)


def _negative(x: Interval) -> Interval:
    return point(-x.low) if x.is_point else Interval(-x.high, -x.low)


def _multiply(x: Interval, y: Interval) -> Interval:
    zero_by_infinity = (holds_zero(x) & infinite(y)) | (infinite(x) & holds_zero(y))
    return without(corners(x, y, _product), zero_by_infinity)


def holds_zero(x: Interval) -> Array:
    """Where zero is inside."""
    inside: Array = (x.low <= 0) & (x.high >= 0)
    return inside


def infinite(x: Interval) -> Array:
    """Where a bound is infinite."""
    return np.isinf(x.low) | np.isinf(x.high)


@encloses("id")
def identity(x: Interval) -> Interval:
    """The value itself."""
    return x


@encloses("add", turns=True)
def add(*xs: Interval) -> Interval:
    """Sum of any number of operands."""
    return reduce(lambda x, y: defined(_add(x, y)), xs)


@encloses("neg", turns=True)
def negative(x: Interval) -> Interval:
    """The value with the other sign."""
    return _negative(x)


@encloses("sub", turns=True)
def subtract(x: Interval, y: Interval) -> Interval:
    """Difference."""
    return _add(x, _negative(y))


@encloses("product", turns=True)
@encloses("mul", turns=True)
def multiply(*xs: Interval) -> Interval:
    """Product of any number of operands."""
    return reduce(lambda x, y: defined(_multiply(x, y)), xs)


@encloses("div")
def divide(x: Interval, y: Interval) -> Interval:
    """Quotient; undefined where the divisor may be zero."""
    return without(corners(x, y, _quotient), holds_zero(y))


@encloses("abs", turns=True)
def absolute(x: Interval) -> Interval:
    """Magnitude."""
    low = np.maximum(np.maximum(x.low, -x.high), 0.0)
    return Interval(low, np.maximum(-x.low, x.high))


def square(x: Interval) -> Interval:
    """The value times itself; never negative."""
    size = absolute(x)
    return multiply(size, size)


@encloses("sqrt")
def square_root(x: Interval) -> Interval:
    """Square root; undefined where the operand may be negative."""

    def bounds(a: Array) -> tuple[Array, Array]:
        root = np.sqrt(a)
        power = root * root
        residual = (a - power) - _product_residual(root, root, power)
        return _below(root, residual), _above(root, residual)

    return Interval(np.maximum(bounds(x.low)[0], 0.0), bounds(x.high)[1])


@encloses("rsqrt")
def reciprocal_root(x: Interval) -> Interval:
    """One over the square root; undefined where the operand may not be positive."""
    return divide(point(1.0), square_root(x))


@encloses("floor_divide")
def floor_divide(x: Interval, y: Interval) -> Interval:
    """Floor of the quotient."""
    return divide(x, y).map(np.floor)


@encloses("remainder")
def remainder(x: Interval, y: Interval) -> Interval:
    """The value x - y * floor(x / y), of the divisor's sign."""
    rest = subtract(x, multiply(y, floor_divide(x, y)))
    return Interval(
        np.maximum(rest.low, np.minimum(y.low, 0.0)), np.minimum(rest.high, np.maximum(y.high, 0.0))
    )


@encloses("pow", approximate=True)
def power(x: Interval, y: Interval) -> Interval:
    """The value x to the y: any base with an integer exponent, otherwise positive bases only."""
    positive = x.low > 0
    base = x.map(lambda bound: np.where(positive, bound, np.nan))
    result = corners(base, y, lambda a, b: outward(v := np.power(a, b), v))
    result = without(Interval(np.maximum(result.low, 0.0), result.high), infinite(y))
    chosen = y.low == y.high
    for exponent in _few_exponents(y, chosen):
        special = square_root(x) if exponent == 0.5 else _integer_power(x, int(exponent))
        here = chosen & (y.low == exponent)
        result = Interval(*(np.where(here, s, r) for s, r in zip(special, result, strict=True)))
    return result


def _few_exponents(y: Interval, exact: Array) -> list[float]:
    """Small integer exponents (and 1/2) that occur, if there are few enough to treat each alone."""
    found = [float(e) for e in np.unique(y.low[exact])] if np.any(exact) else []
    found = [e for e in found if e == 0.5 or (e.is_integer() and abs(e) <= 64)]
    return found if len(found) <= 16 else []


def _integer_power(x: Interval, exponent: int) -> Interval:
    if exponent < 0:
        return divide(point(1.0), _integer_power(x, -exponent))
    result = point(np.ones(x.shape))
    size = absolute(x)
    for _ in range(exponent // 2):
        result = multiply(result, size, size)
    return multiply(x, result) if exponent % 2 else result
