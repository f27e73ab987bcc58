"""Monotone and periodic functions."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from axe_eq.program.interval.arithmetic import (
    ULPS,
    absolute,
    add,
    corners,
    divide,
    holds_zero,
    infinite,
    negative,
    outward,
    square,
    square_root,
    subtract,
)
from axe_eq.program.interval.choices import maximum
from axe_eq.program.interval.value import Enclosure, Interval, encloses, point, without
from axe_eq.program.types import Array

_approximates = partial(encloses, approximate=True)
_TRUSTED_ARGUMENT = 1e5  # beyond, the enclosure of sin and cos is [-1, 1]


def _increasing(
    fn: Callable[[Array], Array],
    known: Mapping[float, float] | None = None,
    limits: tuple[float, float] = (-math.inf, math.inf),
    ulps: int = ULPS,
) -> Enclosure:
    """Enclosure of an increasing function: its bounds, exact at known points, inside its limits."""

    def enclose(x: Interval) -> Interval:
        low = fn(x.low)
        bounds = list(outward(low, low if x.is_point else fn(x.high), ulps))
        for at, value in (known or {}).items():
            bounds = [np.where(end == at, value, b) for end, b in zip(x, bounds, strict=True)]
        return Interval(np.maximum(bounds[0], limits[0]), np.minimum(bounds[1], limits[1]))

    return enclose


exp = _approximates("exp")(_increasing(np.exp, {0.0: 1.0, -math.inf: 0.0}, (0.0, math.inf)))
_erf: Callable[[Array], Array] = np.vectorize(math.erf, otypes=[np.float64])
for _name, _enclosure in {
    "expm1": _increasing(np.expm1, {0.0: 0.0, -math.inf: -1.0}, (-1.0, math.inf)),
    "tanh": _increasing(np.tanh, {0.0: 0.0}, (-1.0, 1.0)),
    "erf": _increasing(_erf, {0.0: 0.0}, (-1.0, 1.0)),
    "sinh": _increasing(np.sinh, {0.0: 0.0}),
    "asinh": _increasing(np.arcsinh, {0.0: 0.0}),
    "atan": _increasing(np.arctan, {0.0: 0.0}),
    "asin": _increasing(np.arcsin, {0.0: 0.0}),
    "acosh": _increasing(np.arccosh, {1.0: 0.0}),
}.items():
    _approximates(_name)(_enclosure)


def _above_pole(fn: Callable[[Array], Array], pole: float, zero: float) -> Enclosure:
    """Enclosure of an increasing function defined right of a pole."""
    inner = _increasing(fn, {zero: 0.0})
    return lambda x: without(inner(x), x.low <= pole)


log1p = _approximates("log1p")(_above_pole(np.log1p, -1.0, 0.0))
for _name, _enclosure in {
    "log": _above_pole(np.log, 0.0, 1.0),
    "log2": _above_pole(np.log2, 0.0, 1.0),
    "log10": _above_pole(np.log10, 0.0, 1.0),
}.items():
    _approximates(_name)(_enclosure)


@_approximates("acos")
def arc_cosine(x: Interval) -> Interval:
    """Inverse cosine; undefined outside [-1, 1]."""
    low, high = np.arccos(x.high), np.arccos(x.low)
    bounds = outward(low, high)
    return Interval(np.where(x.high == 1, 0.0, bounds.low), bounds.high)


@_approximates("cosh")
def hyperbolic_cosine(x: Interval) -> Interval:
    """Hyperbolic cosine; never below 1."""
    bounds = _increasing(np.cosh, {0.0: 1.0})(absolute(x))
    return Interval(np.maximum(bounds.low, 1.0), bounds.high)


@_approximates("atanh")
def inverse_hyperbolic_tangent(x: Interval) -> Interval:
    """Inverse hyperbolic tangent; undefined outside (-1, 1)."""
    bounds = _increasing(np.arctanh, {0.0: 0.0})(x)
    return without(bounds, (x.low <= -1) | (x.high >= 1))


@_approximates("hypot")
def hypotenuse(x: Interval, y: Interval) -> Interval:
    """Square root of the sum of squares."""
    return square_root(add(square(x), square(y)))


@_approximates("logaddexp")
def log_of_summed_powers(x: Interval, y: Interval) -> Interval:
    """log(exp(x) + exp(y))."""
    apart = negative(absolute(subtract(x, y)))
    return add(maximum(x, y), log1p(exp(apart)))


@_approximates("atan2")
def angle(y: Interval, x: Interval) -> Interval:
    """Angle of (x, y); anything where the box meets the origin or the negative x axis."""
    bounds = corners(y, x, lambda a, b: outward(v := np.arctan2(a, b), v))
    cut = (x.low <= 0) & holds_zero(y)
    return Interval(np.where(cut, -3.1416, bounds.low), np.where(cut, 3.1416, bounds.high))


@_approximates("sigmoid")
def sigmoid(x: Interval) -> Interval:
    """1 / (1 + exp(-x))."""
    bounds = divide(point(1.0), add(point(1.0), exp(negative(x))))
    return Interval(np.maximum(bounds.low, 0.0), np.minimum(bounds.high, 1.0))


def _turning_points(x: Interval, phase: float) -> tuple[Array, Array]:
    """First and last k with phase + k pi in the interval, generously."""
    first = np.ceil((x.low - phase) / np.pi - 1e-9)
    last = np.floor((x.high - phase) / np.pi + 1e-9)
    return first, last


def _periodic(fn: Callable[[Array], Array], phase: float) -> Enclosure:
    """Enclosure of sin or cos, which is (-1)^k at phase + k pi and monotone between."""

    def enclose(x: Interval) -> Interval:
        first, last = _turning_points(x, phase)
        several = last > first
        top = several | ((last == first) & (first % 2 == 0))
        bottom = several | ((last == first) & (first % 2 == 1))
        at_low, at_high = fn(x.low), fn(x.high)
        ends = outward(np.minimum(at_low, at_high), np.maximum(at_low, at_high))
        far = ~(np.maximum(np.abs(x.low), np.abs(x.high)) <= _TRUSTED_ARGUMENT)
        low = np.where(far | bottom, -1.0, np.maximum(ends.low, -1.0))
        high = np.where(far | top, 1.0, np.minimum(ends.high, 1.0))
        exact = (x.low == 0) & (x.high == 0)
        at_zero = float(fn(np.zeros(())))
        result = Interval(np.where(exact, at_zero, low), np.where(exact, at_zero, high))
        return without(result, infinite(x))

    return enclose


_approximates("sin")(_periodic(np.sin, np.pi / 2))
_approximates("cos")(_periodic(np.cos, 0.0))


@_approximates("tan")
def tangent(x: Interval) -> Interval:
    """Tangent; undefined where a pole may be inside."""
    first, last = _turning_points(x, np.pi / 2)
    far = np.maximum(np.abs(x.low), np.abs(x.high)) > _TRUSTED_ARGUMENT
    return without(_increasing(np.tan, {0.0: 0.0})(x), (last >= first) | far)
