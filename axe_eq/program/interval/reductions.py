"""Reductions of intervals: sums, products, extremes, positions of extremes, softmax, contractions.

Operands are index-space arrays as in `axe_eq.program.ops`: of one rank, a dim that an operand lacks
has extent 1. Reduced axes stay with extent 1 and have their full extent in at least one operand;
operands are constant along what they lack. Conventions and sources: `axe_eq.program.interval`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce, wraps

import numpy as np

from axe_eq.program.contract import product_sum
from axe_eq.program.interval.arithmetic import add, divide, is_whole, multiply, subtract
from axe_eq.program.interval.functions import exp
from axe_eq.program.interval.value import EXACT, Interval, defined, point, without
from axe_eq.program.types import Array

Axes = tuple[int, ...]
Reduction = Callable[[Sequence[Interval], Axes], Interval]
ENCLOSE_MONOID: dict[str, Reduction] = {}

_UNIT = 2.0**-53  # unit roundoff
_GRID = 2.0**20  # sums of multiples of 1 / _GRID are exact while they stay below EXACT / _GRID


def _reduces(name: str) -> Callable[[Reduction], Reduction]:
    """Register the enclosure of a monoid; a line of cells with an undefined one is undefined."""

    def register(fn: Reduction) -> Reduction:
        @wraps(fn)
        def enclose(values: Sequence[Interval], axes: Axes) -> Interval:
            with np.errstate(all="ignore"):
                result = defined(fn(values, axes))
                for value in values:
                    if (bad := np.isnan(value.low)).any():
                        result = without(result, np.any(bad, axis=axes, keepdims=True))
                return result

        ENCLOSE_MONOID[name] = enclose
        return enclose

    return register


def _gamma(roundings: int) -> float:
    """Relative error of that many roundings, doubled to cover those of the bound itself."""
    return 2 * roundings * _UNIT / (1 - 2 * roundings * _UNIT)


def _terms(arrays: Sequence[Interval], axes: Axes) -> int:
    shape = np.broadcast_shapes(*(x.shape for x in arrays))
    return math.prod(shape[axis] for axis in axes)


@_reduces("+")
def total(values: Sequence[Interval], axes: Axes) -> Interval:
    """Sum, within gamma_n times the sum of magnitudes whatever the order; exact on integers."""
    (x,) = values
    low, high = _sum_bounds(x.low, axes)
    if not x.is_point:
        high = _sum_bounds(x.high, axes)[1]
    rises = np.any(np.isposinf(x.high), axis=axes, keepdims=True)
    falls = np.any(np.isneginf(x.low), axis=axes, keepdims=True)
    return without(Interval(low, high), rises & falls)


def _sum_bounds(a: Array, axes: Axes) -> tuple[Array, Array]:
    result = np.sum(a, axis=axes, keepdims=True)
    size = np.sum(np.abs(a), axis=axes, keepdims=True)
    terms = math.prod(a.shape[axis] for axis in axes)
    if terms <= 1:
        return result, result
    exact = _sums_exactly(a, size, axes)
    error = _gamma(terms) * size
    low, high = np.nextafter(result - error, -np.inf), np.nextafter(result + error, np.inf)
    return np.where(exact, result, low), np.where(exact, result, high)


def _sums_exactly(a: Array, size: Array, axes: Axes) -> Array:
    """Where all terms lie on one grid on which no partial sum can round."""
    on_grid = np.all(np.rint(a * _GRID) == a * _GRID, axis=axes, keepdims=True)
    whole = np.all(np.rint(a) == a, axis=axes, keepdims=True)
    exact: Array = (whole & (size < EXACT)) | (on_grid & (size < EXACT / _GRID))
    return exact


@_reduces("*")
def product(values: Sequence[Interval], axes: Axes) -> Interval:
    """Product of all values, by halves."""
    return reduce(_fold, axes, values[0])


def _fold(x: Interval, axis: int) -> Interval:
    """Multiply along one axis."""

    def part(begin: int, end: int) -> Interval:
        return x.map(lambda bound: bound[(slice(None),) * axis + (slice(begin, end),)])

    while (extent := x.shape[axis]) > 1:
        half = extent // 2
        paired, rest = multiply(part(0, half), part(half, 2 * half)), part(2 * half, extent)
        bounds = (np.concatenate(both, axis) for both in zip(paired, rest, strict=True))
        x = defined(Interval(*bounds)) if extent % 2 else paired
    if extent == 0:
        return point(np.ones((*x.shape[:axis], 1, *x.shape[axis + 1 :])))
    return x


def _extreme(pick: Callable[..., Array]) -> Reduction:
    return lambda values, axes: values[0].map(lambda bound: pick(bound, axis=axes, keepdims=True))


_reduces("max")(_extreme(np.max))
_reduces("min")(_extreme(np.min))
_reduces("and")(_extreme(np.min))
_reduces("or")(_extreme(np.max))


@_reduces("softmax")
def softmax_sum(values: Sequence[Interval], axes: Axes) -> Interval:
    """Sum of exp(score) * value over the sum of exp(score).

    Scores are shifted by a constant near their largest one, which changes nothing over the reals.
    """
    scores, weighted = _full(values[:1], values, axes)[0], values[1]
    shift = np.max(scores.high, axis=axes, keepdims=True)
    shift = np.where(np.isfinite(shift), shift, np.nan)
    weights = exp(subtract(scores, point(shift)))
    return divide(contract([weights, weighted], axes), total([weights], axes))


def _full(chosen: Sequence[Interval], values: Sequence[Interval], axes: Axes) -> list[Interval]:
    """The chosen arrays with the reduced axes at their full extent."""
    shape = np.broadcast_shapes(*(x.shape for x in values))

    def widen(bound: Array) -> Array:
        extents = [shape[d] if d in axes else e for d, e in enumerate(bound.shape)]
        return np.broadcast_to(bound, extents)

    return [x.map(widen) for x in chosen]


@_reduces("recurrence")
def recurrence(values: Sequence[Interval], axes: Axes) -> Interval:
    """The last h of h = a h + b, from h = 0, along one axis."""
    (axis,) = axes
    factors, terms = _full(values, values, axes)

    def at(x: Interval, n: int) -> Interval:
        return x.map(lambda bound: np.take(bound, [n], axis))

    found = at(terms, 0)
    for n in range(1, terms.shape[axis]):
        found = defined(add(multiply(found, at(factors, n)), at(terms, n)))
    return found


def _position(sign: float) -> Reduction:
    """Least index that has the largest (sign 1) or smallest (sign -1) value."""

    def enclose(values: Sequence[Interval], axes: Axes) -> Interval:
        value, index = _full(values, values, axes)
        low, high = value if sign > 0 else (-value.high, -value.low)
        candidate = high >= np.max(low, axis=axes, keepdims=True)
        certain = low >= np.max(high, axis=axes, keepdims=True)
        first = np.min(np.where(candidate, index.low, np.inf), axis=axes, keepdims=True)
        sure = np.min(np.where(certain, index.high, np.inf), axis=axes, keepdims=True)
        last = np.max(np.where(candidate, index.high, -np.inf), axis=axes, keepdims=True)
        return Interval(first, np.minimum(sure, last))

    return enclose


_reduces("argmax")(_position(1.0))
_reduces("argmin")(_position(-1.0))


# -- contractions ----------------------------------------------------------------------------------


def contract(values: Sequence[Interval], axes: Axes) -> Interval:
    """Sum over the axes of the products of the operands; those of two are not materialised.

    Integer-valued points stay points while no partial sum can exceed 2^53. Otherwise midpoint and
    radius are contracted, at the cost of two (points) or three matrix products.
    """
    if len(values) == 1:
        return total(values, axes)
    # More than two operands are multiplied out; whoever calls bounds the size of that.
    x, y = reduce(multiply, values[:-1]), values[-1]
    with np.errstate(all="ignore"):
        return _contract_pair(x, y, axes)


def _contract_pair(x: Interval, y: Interval, axes: Axes) -> Interval:
    points = x.is_point and y.is_point
    terms = _terms([x, y], axes)
    if points and _contracts_exactly(x.low, y.low, terms):
        return point(product_sum((x.low, y.low), axes))
    (x_middle, x_radius), (y_middle, y_radius) = _ball(x), _ball(y)
    middle = product_sum((x_middle, y_middle), axes)
    size = product_sum((np.abs(x_middle), np.abs(y_middle)), axes)
    reach = size
    if not points:
        reach = product_sum(
            (_up(np.abs(x_middle) + x_radius), _up(np.abs(y_middle) + y_radius)), axes
        )
    radius = (reach - size) + _gamma(terms + 4) * (reach + size) + terms * 2.0**-1060
    low, high = np.nextafter(middle - radius, -np.inf), np.nextafter(middle + radius, np.inf)
    if points and is_whole(x.low, y.low):
        exact = size < EXACT
        low, high = np.where(exact, middle, low), np.where(exact, middle, high)
    return defined(without(Interval(low, high), _lost(x, y, axes)))


def _up(a: Array) -> Array:
    """At least the exact value of a sum or difference of magnitudes.

    Relative, not by one place: matrix products are a hundred times slower on the subnormal numbers
    next to zero.
    """
    larger: Array = a * (1 + 2.0**-51)
    return larger


def _contracts_exactly(a: Array, b: Array, terms: int) -> bool:
    largest = terms * float(np.max(np.abs(a), initial=0)) * float(np.max(np.abs(b), initial=0))
    return largest < EXACT and is_whole(a, b)


def _finite(x: Interval) -> Array:
    finite: Array = np.isfinite(x.low) & np.isfinite(x.high)
    return finite


def _lost(x: Interval, y: Interval, axes: Axes) -> Array:
    """Which sums meet an undefined or infinite operand."""
    finite_x, finite_y = _finite(x), _finite(y)
    if finite_x.all() and finite_y.all():
        return np.zeros((), dtype=bool)
    ones_x, ones_y = np.ones(x.shape), np.ones(y.shape)
    bad = product_sum((ones_x - finite_x, ones_y), axes)
    return bad + product_sum((ones_x, ones_y - finite_y), axes) > 0


def _ball(x: Interval) -> tuple[Array, Array]:
    """Midpoint and radius of every cell; zero where not finite (see `_lost`)."""
    finite = _finite(x)
    low, high = (b if finite.all() else np.where(finite, b, 0.0) for b in x)
    if x.is_point:
        return low, np.zeros(low.shape)
    middle = low / 2 + high / 2
    return middle, _up(np.maximum(middle - low, high - middle))
