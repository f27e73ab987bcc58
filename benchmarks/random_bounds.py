"""What values of a random program can be: bounds for all inputs that are drawn.

They come from the enclosures of the cells (sound), from all integer operands where these are few
(exact), and from a grid of operands for cells that declare no enclosure.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from axe_eq.program.interval import ENCLOSE_MONOID, Interval
from axe_eq.program.ops import MONOIDS, Cell, cell
from axe_eq.program.types import Array

Bounds = tuple[float, float]

MOST_POINTS = 1 << 14


class Refused(Exception):
    """An operator cannot be made of the values there are."""


def cell_bounds(text: str, operands: Sequence[Bounds], whole: bool) -> Bounds:
    """Bounds of a cell's value; those of the last value for cells of several.

    Args:
        text: the cell.
        operands: bounds of the operands.
        whole: whether all operands are integers or bools.

    Raises:
        Refused: nothing is known.
    """
    declared, params = cell(text)
    if declared.n_values > 1:
        return operands[-1]
    if whole and declared.result in ("number", "integer", "promote"):
        points = _integers(operands)
        if points is not None:
            return _extremes(declared.fn(*points, *params))
    if declared.enclose is not None:
        found = declared.enclose(*map(_interval, operands), *params)
        bounds = float(found.low), float(found.high)
        if not any(map(math.isnan, bounds)):
            return bounds
    return _on_grid(declared, params, operands)


def _interval(bounds: Bounds) -> Interval:
    return Interval(np.asarray(bounds[0], float), np.asarray(bounds[1], float))


def _integers(operands: Sequence[Bounds]) -> list[Array] | None:
    """Every combination of integer operands, or None where there are too many."""
    ranges = [np.arange(math.ceil(low), math.floor(high) + 1) for low, high in operands]
    if math.prod(map(len, ranges)) > MOST_POINTS:
        return None
    return list(np.meshgrid(*ranges))


def _on_grid(declared: Cell, params: tuple[object, ...], operands: Sequence[Bounds]) -> Bounds:
    """Extremes on a grid of operands, widened by a quarter of their distance."""
    ticks = max(int(MOST_POINTS ** (1 / len(operands))), 2)
    axes = [np.linspace(low, high, min(ticks, 65)) for low, high in operands]
    try:
        with np.errstate(all="ignore"):
            low, high = _extremes(declared.fn(*np.meshgrid(*axes), *params))
    except TypeError:
        raise Refused from None
    margin = (high - low) / 4
    return low - margin, high + margin


def _extremes(values: Array) -> Bounds:
    low, high = float(np.min(values)), float(np.max(values))
    if not (math.isfinite(low) and math.isfinite(high)):
        raise Refused
    return low, high


def scanned_bounds(monoid: str, bounds: Sequence[Bounds], count: int) -> Bounds:
    """Bounds of reductions of one and more, up to `count`, elements with these bounds.

    Raises:
        Refused: nothing is known.
    """
    if MONOIDS[monoid].convex:
        return bounds[-1]
    enclose = ENCLOSE_MONOID.get(monoid)
    if enclose is None:
        raise Refused
    ends = []
    for n in range(1, count + 1):
        terms = [Interval(np.full(n, low), np.full(n, high)) for low, high in bounds]
        ends += list(enclose(terms, (0,)))
    return _extremes(np.concatenate(ends))


def reduced_bounds(monoid: str, bounds: Bounds, count: int) -> Bounds:
    """Bounds of a reduction of `count` cell values with these bounds.

    Raises:
        Refused: nothing is known.
    """
    if not monoid or MONOIDS[monoid].convex:
        return bounds
    enclose = ENCLOSE_MONOID.get(monoid)
    if enclose is None:
        raise Refused
    terms = Interval(np.full(count, bounds[0]), np.full(count, bounds[1]))
    found = enclose([terms], (0,))
    return _extremes(np.concatenate([found.low, found.high]))
