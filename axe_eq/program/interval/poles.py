"""Where cells have no value over the reals, for certain: poles, and what would be NaN.

An enclosure of NaN says that a value may be undefined. These say that it is, of operands that are
defined, which tells programs apart that are undefined at different inputs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np

from axe_eq.program.interval.value import Interval
from axe_eq.program.types import Array

Pole = Callable[..., Array]


def _is(x: Interval, value: float) -> Array:
    return np.asarray((x.low == value) & (x.high == value))


def _is_infinite(x: Interval) -> Array:
    return _is(x, np.inf) | _is(x, -np.inf)


def _some(found: list[Array]) -> Array:
    return reduce(np.logical_or, found)


def _outside(x: Interval, end: float) -> Array:
    return np.asarray((x.low > end) | (x.high < -end))


POLES: dict[str, Pole] = {
    "div": lambda x, y: _is(y, 0) | (_is_infinite(x) & _is_infinite(y)),
    "floor_divide": lambda x, y: _is(y, 0) | np.zeros(x.shape, bool),
    "remainder": lambda x, y: _is(y, 0) | np.zeros(x.shape, bool),
    **dict.fromkeys(("log", "log2", "log10", "rsqrt"), lambda x: x.high <= 0),
    "log1p": lambda x: x.high <= -1,
    "sqrt": lambda x: x.high < 0,
    "acosh": lambda x: x.high < 1,
    **dict.fromkeys(("asin", "acos"), lambda x: _outside(x, 1)),
    "atanh": lambda x: _outside(x, 1) | _is(x, 1) | _is(x, -1),
}
# Of operands one of which is infinite, as constants and what is computed from them may be.
AT_INFINITY: dict[str, Pole] = {
    **dict.fromkeys(
        ("mul", "product"),
        lambda *xs: _some([_is(x, 0) for x in xs]) & _some([_is_infinite(x) for x in xs]),
    ),
    "add": lambda *xs: _some([_is(x, np.inf) for x in xs]) & _some([_is(x, -np.inf) for x in xs]),
    "sub": lambda x, y: (_is(x, np.inf) & _is(y, np.inf)) | (_is(x, -np.inf) & _is(y, -np.inf)),
    **dict.fromkeys(("sin", "cos", "tan"), _is_infinite),
}
