"""The standard cells and monoids. Importing this module (or `axe_eq.program`) declares them.

numpy functions here are the meaning of the cells, called in the accumulation dtype. Weights in
`flops` are those of special-function units against fused multiply-adds on present GPUs (1 to 8, 16
to 32 for the longer sequences); they only order alternatives in cost models.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from typing import Any

import numpy as np

from axe_eq.program import gathers as gathers  # declares the selectors
from axe_eq.program import selectors as selectors
from axe_eq.program.contract import product_sum, shared
from axe_eq.program.interval import ENCLOSE
from axe_eq.program.known import CELL_FACTS, MONOID_FACTS
from axe_eq.program.ops import CELLS, MONOIDS, Cell, Monoid, State
from axe_eq.program.types import Array, dtype

Fn = Callable[..., Any]
Domain = tuple[tuple[float, float], ...]


_FREE = (-math.inf, math.inf)
_POSITIVE = (0.25, math.inf)
_INSIDE = (-0.8, 0.8)
_DOMAINS: dict[str, Domain] = {
    "log": (_POSITIVE,), "log2": (_POSITIVE,), "log10": (_POSITIVE,), "sqrt": (_POSITIVE,),
    "rsqrt": (_POSITIVE,), "log1p": (_INSIDE,), "acos": (_INSIDE,), "asin": (_INSIDE,),
    "atanh": (_INSIDE,), "acosh": ((1.5, math.inf),), "tan": (_INSIDE,), "exp": ((-9.0, 4.0),),
    "expm1": ((-9.0, 4.0),), "sinh": ((-4.0, 4.0),), "cosh": ((-4.0, 4.0),),
    "div": (_FREE, _POSITIVE), "floor_divide": (_FREE, _POSITIVE), "remainder": (_FREE, _POSITIVE),
    "atan2": (_FREE, _POSITIVE), "pow": ((0.5, 4.0), (-2.0, 2.0)),
}  # fmt: skip
_WHOLE_DOMAINS: dict[str, Domain] = {
    "pow": ((0.0, 3.0), (0.0, 3.0)), "floor_divide": (_FREE, (1.0, math.inf)),
    "remainder": (_FREE, (1.0, math.inf)), "shl": ((0.0, 15.0), (0.0, 3.0)),
    "shr": (_FREE, (0.0, 3.0)),
}  # fmt: skip
_JUMPING = {
    "sign", "floor", "ceil", "trunc", "round", "floor_divide", "remainder", "eq", "ne", "lt", "le",
    "gt", "ge", "signbit", "copysign", "nextafter", "cast",
}  # fmt: skip


# A choice looks away from NaN, a comparison answers, and these have numbers beside it.
_NOT_STRICT = {"where", "pair", "pow", "hypot", "copysign"}


def _cell(name: str, arity: int | None, fn: Fn, result: str = "promote", **facts: Any) -> None:
    facts |= {"domain": _DOMAINS.get(name, ()), "whole_domain": _WHOLE_DOMAINS.get(name, ())}
    facts |= {"jumps": name in _JUMPING, "enclose": ENCLOSE[name]}
    facts |= {"facts": CELL_FACTS.get(name)}
    facts |= {"n_params": 1 if result == "param" else 0}
    facts |= {"strict": name not in _NOT_STRICT and result not in ("bool", "logical", "integer")}
    CELLS.add(Cell(name, arity, fn, result, **facts))


def _fold(fn: Callable[[Any, Any], Any]) -> Fn:
    """The n-ary form of an associative binary function."""
    return lambda *operands: reduce(fn, operands)


def _whole(fn: Fn) -> Fn:
    """A rounding function: the identity on integers."""
    return lambda x: x if x.dtype.kind in "iu" else fn(x)


def _rsqrt(x: Array) -> Any:
    return np.reciprocal(np.sqrt(x))


def _sigmoid(x: Array) -> Any:
    return np.reciprocal(1 + np.exp(-x))


def _erf(x: Array) -> Any:
    return _ERF(x).astype(x.dtype)


_ERF = np.vectorize(math.erf, otypes=[np.float64])


def _pow(x: Array, y: Array) -> Any:
    """Power; an integer to a negative power is its reciprocal truncated towards zero."""
    if np.result_type(x, y).kind == "f":
        return np.power(x, y)
    units = np.where(np.abs(x) == 1, np.where(y % 2 == 0, 1, x), 0)
    return np.where(y < 0, units, np.power(x, np.maximum(y, 0))).astype(np.result_type(x, y))


def _cast(x: Array, name: str) -> Any:
    return x.astype(dtype(name).numpy)


def _declare_moves() -> None:
    _cell("id", 1, lambda x: x, flops=0, rounds=False, identity=True)
    _cell("cast", 1, _cast, "param")
    _cell("where", 3, np.where, "last", rounds=False)
    _cell("pair", 2, lambda a, b: (a, b), flops=0, rounds=False, n_values=2, identity=True)


def _declare_arithmetic() -> None:
    ring: dict[str, Any] = {"commutative": True, "associative": True}
    _cell("add", None, _fold(np.add), "number", unit=0.0, **ring)
    _cell("mul", None, _fold(np.multiply), "number", unit=1.0, product=True, **ring)
    # A product that is not rounded to its operands' type: what sums of parts are made of.
    _cell("product", 2, np.multiply, "wide", product=True, commutative=True)
    # For integers the units of maximum and minimum are the ends of their range, not infinities.
    _cell("maximum", None, _fold(np.maximum), unit=-math.inf, rounds=False, **ring)
    _cell("minimum", None, _fold(np.minimum), unit=math.inf, rounds=False, **ring)
    _cell("sub", 2, np.subtract, "number")
    _cell("div", 2, np.divide, "float", flops=4, quotient_of="mul")
    _cell("floor_divide", 2, np.floor_divide, "number", flops=8)
    _cell("remainder", 2, np.remainder, "number", flops=8)
    _cell("pow", 2, _pow, "number", flops=16)
    _cell("neg", 1, np.negative, "number")
    _cell("abs", 1, np.abs, "number")
    _cell("sign", 1, np.sign, "number")
    rounding: dict[str, Fn] = {
        "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "round": np.round,
    }  # fmt: skip
    for name, fn in rounding.items():
        _cell(name, 1, _whole(fn), "number")
    for name, binary in {"atan2": np.arctan2, "hypot": np.hypot, "logaddexp": np.logaddexp}.items():
        _cell(name, 2, binary, "float", flops=32, commutative=name != "atan2")
    _cell("copysign", 2, np.copysign, "float")
    _cell("nextafter", 2, np.nextafter, "float")


def _declare_functions() -> None:
    for weight, functions in _FUNCTIONS.items():
        for name, fn in functions.items():
            _cell(name, 1, fn, "float", flops=weight)


_FUNCTIONS: dict[float, dict[str, Fn]] = {
    4: {"sqrt": np.sqrt, "rsqrt": _rsqrt, "sigmoid": _sigmoid},
    8: {
        "exp": np.exp, "log": np.log, "log2": np.log2, "log10": np.log10, "sin": np.sin,
        "cos": np.cos, "tanh": np.tanh,
    },
    16: {
        "expm1": np.expm1, "log1p": np.log1p, "tan": np.tan, "sinh": np.sinh, "cosh": np.cosh,
        "erf": _erf,
    },
    32: {
        "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin,
        "asinh": np.arcsinh, "atan": np.arctan, "atanh": np.arctanh,
    },
}  # fmt: skip


def _declare_logic() -> None:
    for name, compare in {
        "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal,
        "gt": np.greater, "ge": np.greater_equal,
    }.items():  # fmt: skip
        _cell(name, 2, compare, "bool", commutative=name in ("eq", "ne"))
    for name, test in {"isnan": np.isnan, "isfinite": np.isfinite, "isinf": np.isinf}.items():
        _cell(name, 1, test, "bool")
    _cell("signbit", 1, lambda x: x < 0 if x.dtype.kind in "iub" else np.signbit(x), "bool")
    ring: dict[str, Any] = {"commutative": True, "associative": True}
    _cell("and", None, _fold(np.logical_and), "logical", unit=1.0, **ring)
    _cell("or", None, _fold(np.logical_or), "logical", unit=0.0, **ring)
    _cell("xor", 2, np.logical_xor, "logical", unit=0.0, **ring)
    _cell("not", 1, np.logical_not, "logical")
    _cell("bit_and", 2, np.bitwise_and, "integer", unit=-1.0, **ring)
    _cell("bit_or", 2, np.bitwise_or, "integer", unit=0.0, **ring)
    _cell("bit_xor", 2, np.bitwise_xor, "integer", unit=0.0, **ring)
    _cell("bit_not", 1, np.invert, "integer")
    _cell("shl", 2, np.left_shift, "integer")
    _cell("shr", 2, np.right_shift, "integer")


def _first(state: State) -> Array:
    return state[0]


def _declare_reductions() -> None:
    def monoid(name: str, fn: Fn, merges: str, unit: float, **facts: Any) -> None:
        merge = CELLS[merges].fn

        def lift(values: State, axes: tuple[int, ...]) -> State:
            return (fn(values[0], axis=axes, keepdims=True).astype(values[0].dtype),)

        def join(a: State, b: State) -> State:
            return (merge(a[0], b[0]),)

        known = MONOID_FACTS[name]
        MONOIDS.add(Monoid(name, lift, join, _first, unit, facts=known, merges=merges, **facts))

    def total(x: Array, **of: Any) -> Any:
        return np.sum(x, dtype=x.dtype, **of)

    def product(x: Array, **of: Any) -> Any:
        return np.prod(x, dtype=x.dtype, **of)

    # Sums and products of bools would be other operations (or, and), whose laws are others.
    monoid("+", total, "add", 0.0, result="number")
    monoid("*", product, "mul", 1.0, result="number")
    choice: dict[str, Any] = {"exact": True, "convex": True}
    monoid("max", np.max, "maximum", -math.inf, **choice)
    monoid("min", np.min, "minimum", math.inf, **choice)
    monoid("and", np.all, "and", 1.0, result="logical", **choice)
    monoid("or", np.any, "or", 0.0, result="logical", **choice)


# -- structured monoids ---------------------------------------------------------------------------


def _softmax_lift(values: State, axes: tuple[int, ...]) -> State:
    """State (m, l, acc): running maximum, sum of weights, weighted sum (online softmax)."""
    scores = np.broadcast_to(values[0], _extents(values, axes))
    top = np.max(scores, axis=axes, keepdims=True)
    weights = np.exp(scores - _origin(top))
    return top, np.sum(weights, axis=axes, keepdims=True), product_sum((weights, values[1]), axes)


def _extents(values: State, axes: tuple[int, ...]) -> tuple[int, ...]:
    """Shape of the first array with the reduced axes at full extent."""
    along = shared(values, axes)
    return along[0].shape


def _origin(top: Array) -> Array:
    """Where a maximum is -inf every weight is 0; subtracting 0 there keeps NaN out."""
    return np.where(top == -math.inf, 0, top).astype(top.dtype)


def _softmax_merge(a: State, b: State) -> State:
    top = np.maximum(a[0], b[0])
    scale_a, scale_b = np.exp(a[0] - _origin(top)), np.exp(b[0] - _origin(top))
    return top, a[1] * scale_a + b[1] * scale_b, a[2] * scale_a + b[2] * scale_b


def _softmax_finish(state: State) -> Array:
    value: Array = state[2] / state[1]
    return value


def _best(better: Fn, choose: Fn) -> tuple[Fn, Fn]:
    """Lift and merge of argmax or argmin on (value, index); the first index wins, NaN beats all."""

    def lift(values: State, axes: tuple[int, ...]) -> State:
        value, index = shared(values, axes)
        top = choose(value, axis=axes, keepdims=True)
        hit = (value == top) | ((value != value) & (top != top))
        last = np.iinfo(index.dtype).max
        return top, np.min(np.where(hit, index, last), axis=axes, keepdims=True)

    def merge(a: State, b: State) -> State:
        nan_a, nan_b = a[0] != a[0], b[0] != b[0]
        tie = (a[0] == b[0]) | (nan_a & nan_b)
        wins = np.where(tie, b[1] < a[1], (better(b[0], a[0]) | nan_b) & ~nan_a)
        return np.where(wins, b[0], a[0]), np.where(wins, b[1], a[1])

    return lift, merge


def _recurrence_lift(values: State, axes: tuple[int, ...]) -> State:
    """State (d, h): what h is multiplied by, and h = a h + b after all elements from h = 0."""
    state: State = tuple(np.broadcast_arrays(*values))
    for axis in axes:
        parts = [np.split(part, part.shape[axis], axis) for part in state]
        state = reduce(_recurrence_merge, zip(*parts, strict=True))
    return state


def _recurrence_merge(a: State, b: State) -> State:
    return a[0] * b[0], a[1] * b[0] + b[1]


def _declare_structured() -> None:
    MONOIDS.add(
        Monoid("softmax", _softmax_lift, _softmax_merge, _softmax_finish, flops=20, n_values=2,
               result="float", convex=True, facts=MONOID_FACTS["softmax"])
    )  # fmt: skip
    for name, better, choose in (("argmax", np.greater, np.max), ("argmin", np.less, np.min)):
        lift, merge = _best(better, choose)
        MONOIDS.add(
            Monoid(name, lift, merge, lambda state: state[1], flops=2, exact=True, n_values=2,
                   result="index", convex=True, facts=MONOID_FACTS[name],
                   stands=("max" if choose is np.max else "min", ""))
        )  # fmt: skip
    MONOIDS.add(
        Monoid("recurrence", _recurrence_lift, _recurrence_merge, lambda state: state[1], 0.0,
               flops=3, n_values=2, result="number", commutative=False, stands=("*", ""))
    )  # fmt: skip


_declare_moves()
_declare_arithmetic()
_declare_functions()
_declare_logic()
_declare_reductions()
_declare_structured()
