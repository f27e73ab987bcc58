"""Small programs as trees: traced by axe_eq, evaluated over the reals by numpy alone, rewritten.

A tree is a tuple of an operator, its parameters and its operands; every value is a 3 x 3 matrix, so
that any two fit. `meaning` is an oracle of its own: it shares no code with axe_eq.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

Tree = tuple[Any, ...]
Array = npt.NDArray[Any]

N = 3
INPUTS = ("x", "y", "z")
TYPES = {
    "f16": np.float16, "f32": np.float32, "f64": np.float64, "bf16": ml_dtypes.bfloat16,
    "f8e4m3": ml_dtypes.float8_e4m3fn,
}  # fmt: skip
PLAIN_NUMBERS = (0.0, 1.0, -1.0, 2.0, 0.5, 3.0, 0.25, -2.0)
EDGE_NUMBERS = (math.inf, -math.inf, math.nan, 1e5, 2049.0, 2048.0, 500.0, 0.1, -1e9, 1e-8)
_LOWER = np.tri(N, dtype=bool)
CAPTURED: dict[str, Array] = {
    "ones": np.ones((N, N), np.float32),
    "mask": np.where(_LOWER, 0, -np.inf).astype(np.float32),
    "rows": np.where(np.arange(N)[:, None] == 1, -np.inf, 0).astype(np.float32) * np.ones((1, N)),
    "hole": np.where(np.eye(N, dtype=bool), np.nan, 1).astype(np.float32),
    "pole": np.where(np.eye(N, dtype=bool), np.inf, 2).astype(np.float32),
    "signs": np.where(_LOWER, 2.0, -1.0),
}
UNARY = ("neg", "exp", "log", "sqrt", "abs", "tanh", "sigmoid", "rsqrt", "sin", "turn", "relu")
BINARY = ("add", "sub", "mul", "div", "maximum", "minimum", "matmul")
REDUCTIONS = ("sum", "max")


# -- traced ----------------------------------------------------------------------------------------


def traced(tree: Tree, xp: Any, given: dict[str, Any]) -> Any:
    """A tree as a function of an array namespace's arrays makes it."""
    op, *rest = tree
    if op == "in":
        return given[rest[0]]
    if op == "captured":
        return xp.asarray(CAPTURED[rest[0]])
    if op == "number":
        return xp.full((N, N), rest[0], dtype=given["x"].dtype)
    a, *others = (traced(x, xp, given) for x in rest if isinstance(x, tuple))
    if op == "pad":
        return xp.pad(a[1:], ((1, 0), (0, 0)), constant_values=rest[0])
    if op == "where":
        bound, left, right = others
        return xp.where(a > bound, left, right)
    if op in REDUCTIONS:
        return xp.broadcast_to(getattr(xp, op)(a, axis=1, keepdims=True), (N, N))
    if op == "padded sum":
        return xp.pad(a[:, 1:], ((0, 0), (1, 0))) @ others[0]
    if op == "slice sum":
        return a[:, 1:] @ others[0][1:, :]
    return _CALLS[op](xp, a, *others) if op in _CALLS else getattr(xp, op)(a, *others)


_CALLS: dict[str, Callable[..., Any]] = {
    "neg": lambda xp, a: -a, "add": lambda xp, a, b: xp.add(a, b),
    "sub": lambda xp, a, b: xp.subtract(a, b),
    "mul": lambda xp, a, b: xp.multiply(a, b),
    "div": lambda xp, a, b: xp.divide(a, b),
    "turn": lambda xp, a: a.T,
    "relu": lambda xp, a: xp.maximum(a, 0.0),
    "sigmoid": lambda xp, a: 1 / (1 + xp.exp(-a)), "rsqrt": lambda xp, a: 1 / xp.sqrt(a),
}  # fmt: skip


# -- meaning ---------------------------------------------------------------------------------------

LARGEST = float(np.finfo(np.float64).max)
OFF = 2.0**-49  # of their values: more than numpy's functions are off by
CLOSE = 1e-9  # of its value, for one that counts as known


@dataclass
class Value:
    """Between which float64 numbers values lie; where they are undefined, and where nobody knows.

    An exact value lies between a number and itself. An infinity is one where it is exact, and else
    the end of what overflowed.
    """

    low: Array
    high: Array
    bad: Array
    lost: Array

    @property
    def exact(self) -> Array:
        """Where a value is known to be this number."""
        return np.asarray(self.low == self.high)

    def map(self, fn: Callable[[Array], Array]) -> Value:
        """These elements in other places."""
        return Value(*(np.asarray(fn(a)) for a in (self.low, self.high, self.bad, self.lost)))


def _exactly(numbers: Any) -> Value:
    array = np.broadcast_to(np.asarray(numbers, np.float64), (N, N))
    return _value(array, array)


def _value(low: Any, high: Any, *parts: Value, bad: Any = False, lost: Any = False) -> Value:
    """A value of these parts, undefined where one is; no number of exact parts is undefined too."""
    undefined = unknown = infinite = np.zeros(np.shape(low), bool)
    exact = ~undefined
    for part in parts:
        undefined, unknown = undefined | part.bad, unknown | part.lost
        infinite = infinite | part.exact & np.isinf(part.low)
        exact = exact & part.exact
    none = np.isnan(low) | np.isnan(high)
    bad = undefined | ~unknown & (bad | none & exact)
    if parts:  # what numbers overflow to is a number
        low = np.where(infinite, low, np.minimum(low, LARGEST))
        high = np.where(infinite, high, np.maximum(high, -LARGEST))
    return Value(low, high, *np.broadcast_arrays(bad, ~bad & (unknown | lost | none)))


def _wider(low: Any, high: Any, rounded: Any, off: float = 0.0) -> tuple[Array, Array]:
    """Ends beyond these, where they were rounded or overflowed."""
    room_low, room_high = (off * np.minimum(np.abs(end), LARGEST) for end in (low, high))
    down, up = np.nextafter(low - room_low, -np.inf), np.nextafter(high + room_high, np.inf)
    return np.where(rounded, down, low), np.where(rounded, up, high)


def meaning(tree: Tree, dtype: str, given: dict[str, Array]) -> Value:
    """What a tree means over the reals at some inputs; numbers are what the dtype holds."""
    op, *rest = tree
    with np.errstate(all="ignore"):
        if op == "in":
            return _exactly(given[rest[0]])
        if op == "captured":
            return _exactly(CAPTURED[rest[0]])
        numbers = [
            float(np.asarray(x).astype(TYPES[dtype])) for x in rest if not isinstance(x, tuple)
        ]
        if op == "number":
            return _exactly(numbers[0])
        parts = [meaning(x, dtype, given) for x in rest if isinstance(x, tuple)]
        return _MEANINGS[op](*parts, *numbers)


def _added(x: Value, y: Value) -> Value:
    low, high = x.low + y.low, x.high + y.high
    rounded = _sum_rounds(x.low, y.low, low) | _sum_rounds(x.high, y.high, high)
    return _value(*_wider(low, high, rounded), x, y)


def _sum_rounds(a: Array, b: Array, found: Array) -> Array:
    """Whether a sum is no float: its error is one (Knuth's 2Sum). Infinities do not round."""
    other = found - a
    error = (a - (found - other)) + (b - other)
    return np.asarray((error != 0) & np.isfinite(a) & np.isfinite(b))


def _product_rounds(a: Array, b: Array, found: Array) -> Array:
    """Whether a product is no float, by the halves of its factors (Dekker)."""
    (high_a, low_a), (high_b, low_b) = _halves(a), _halves(b)
    error = low_a * low_b - (((found - high_a * high_b) - low_a * high_b) - high_a * low_b)
    plain = (a == 0) | (b == 0) | np.isinf(a) | np.isinf(b)
    return np.asarray(((error != 0) | (np.abs(found) < 1e-290)) & ~plain)


def _halves(a: Array) -> tuple[Array, Array]:
    big = a * (2.0**27 + 1)
    upper = big - (big - a)
    return upper, a - upper


def _multiplied(x: Value, y: Value) -> Value:
    ends = [(a, b) for a in (x.low, x.high) for b in (y.low, y.high)]
    found = [a * b for a, b in ends]
    rounded = np.any([_product_rounds(*e, f) for e, f in zip(ends, found, strict=True)], axis=0)
    low, high = _wider(np.min(found, axis=0), np.max(found, axis=0), rounded)
    # Infinity times what may be 0.
    lost = np.any([np.isinf(p.low) & (q.low <= 0) & (q.high >= 0) & ~q.exact
                   for p, q in ((x, y), (y, x))], axis=0)  # fmt: skip
    return _value(low, high, x, y, lost=lost)


def _divided(x: Value, y: Value) -> Value:
    ends = [(a, b) for a in (x.low, x.high) for b in (y.low, y.high)]
    found = [a / b for a, b in ends]
    rounded = np.any(
        [(f * b != a) | _product_rounds(f, b, a) for (a, b), f in zip(ends, found, strict=True)],
        axis=0,
    ) & ~np.any([np.isinf(a) | np.isinf(b) for a, b in ends], axis=0)  # fmt: skip
    zero = (y.low == 0) & (y.high == 0)
    lost = (y.low <= 0) & (y.high >= 0) & ~zero
    low, high = _wider(np.min(found, axis=0), np.max(found, axis=0), rounded)
    return _value(low, high, x, y, bad=zero, lost=lost)


def _rising(fn: Callable[..., Any], *exact: float) -> Callable[..., Value]:
    """A function that rises in every operand; exact at infinities and at these numbers."""

    def cell(*parts: Value) -> Value:
        low, high = fn(*(p.low for p in parts)), fn(*(p.high for p in parts))
        plain = [np.isinf(p.low) & p.exact | p.exact & np.isin(p.low, exact) for p in parts]
        rounded = ~np.all(plain, axis=0)
        return _value(*_wider(low, high, rounded, OFF), *parts)

    return cell


def _chosen(fn: Callable[..., Any]) -> Callable[..., Value]:
    def cell(x: Value, y: Value) -> Value:
        return _value(fn(x.low, y.low), fn(x.high, y.high), x, y)

    return cell


def _sine(x: Value) -> Value:
    found, width = np.sin(x.low), x.high - x.low
    return _value(*_wider(found - width, found + width, x.low != 0, OFF), x)


def _log(x: Value) -> Value:
    plain = x.exact & ((x.low == 1) | np.isinf(x.low))
    low, high = _wider(np.log(x.low), np.log(x.high), ~plain, OFF)
    return _value(low, high, x, bad=x.high <= 0, lost=x.low <= 0)


def _sqrt(x: Value) -> Value:
    low, high = np.sqrt(x.low), np.sqrt(x.high)
    plain = x.exact & (low * low == x.low) & ~_product_rounds(low, low, x.low)
    return _value(*_wider(low, high, ~plain), x, bad=x.high < 0, lost=x.low < 0)


def _abs(x: Value) -> Value:
    ends = np.abs(x.low), np.abs(x.high)
    around = (x.low < 0) & (x.high > 0)
    return _value(np.where(around, 0.0, np.minimum(*ends)), np.maximum(*ends), x)


def _negated(x: Value) -> Value:
    return _value(-x.high, -x.low, x)


def _folded(merge: Callable[[Value, Value], Value]) -> Callable[[Value], Value]:
    """What a matrix's rows merge to, beside each other."""

    def fold(x: Value) -> Value:
        return reduce(merge, _columns(x)).map(lambda a: np.broadcast_to(a[:, None], (N, N)))

    return fold


def _matmul(x: Value, y: Value) -> Value:
    rows = x.map(lambda a: np.broadcast_to(a[:, None], (N, N, N)))
    columns = y.map(lambda b: np.broadcast_to(b.T[None], (N, N, N)))
    return reduce(_added, _columns(_multiplied(rows, columns)))


def _columns(x: Value) -> list[Value]:
    """A value by its last axis."""
    return [Value(x.low[..., n], x.high[..., n], x.bad[..., n], x.lost[..., n]) for n in range(N)]


def _where(a: Value, b: Value, x: Value, y: Value) -> Value:
    above = a.low > b.high
    unsure = ~above & ~(a.high <= b.low)
    parts = ((getattr(x, n), getattr(y, n)) for n in ("low", "high", "bad", "lost"))
    low, high, bad, lost = (np.where(above, *both) for both in parts)
    undefined = a.bad | b.bad
    lost = a.lost | b.lost | ~undefined & (unsure | lost)
    return Value(low, high, (undefined | bad) & ~lost, lost)


def _with(x: Value, at: Any, number: float) -> Value:
    """A value with a number at some of its elements."""
    new, found = _exactly(number), x.map(np.copy)
    for name in ("low", "high", "bad", "lost"):
        getattr(found, name)[at] = getattr(new, name)[at]
    return found


_COLUMN, _ROW = np.s_[:, 0], np.s_[0]
_MEANINGS: dict[str, Callable[..., Value]] = {
    "neg": _negated, "abs": _abs, "exp": _rising(np.exp, 0.0), "log": _log, "sqrt": _sqrt,
    "rsqrt": lambda x: _divided(_exactly(1.0), _sqrt(x)), "sin": _sine,
    "tanh": _rising(np.tanh, 0.0), "sigmoid": _rising(lambda a: 1 / (1 + np.exp(-a)), 0.0),
    "turn": lambda x: x.map(np.transpose),
    "relu": lambda x: _chosen(np.maximum)(x, _exactly(0.0)),
    "maximum": _chosen(np.maximum), "minimum": _chosen(np.minimum),
    "add": _added, "sub": lambda x, y: _added(x, _negated(y)), "mul": _multiplied, "div": _divided,
    "sum": _folded(_added), "max": _folded(_chosen(np.maximum)), "matmul": _matmul,
    "where": _where, "pad": lambda x, fill: _with(x, _ROW, fill),
    "padded sum": lambda x, y: _matmul(_with(x, _COLUMN, 0.0), y),
    "slice sum": lambda x, y: _matmul(_with(x, _COLUMN, 0.0), _with(y, _ROW, 0.0)),
}  # fmt: skip


def differing(a: Value, b: Value) -> Array:
    """Where two values are known to differ over the reals, or to be undefined on one side alone."""
    beside = (a.low > b.high) | (b.low > a.high)
    return np.asarray(~(a.lost | b.lost) & np.where(a.bad | b.bad, a.bad != b.bad, beside))


def agreeing(a: Value, b: Value) -> Array:
    """Where two values are known to be one, as closely as float64 tells."""
    with np.errstate(all="ignore"):
        low, high = np.minimum(a.low, b.low), np.maximum(a.high, b.high)
        size = np.maximum(np.abs(low), np.abs(high))
        close = (low == high) | (high - low <= CLOSE * size) & np.isfinite(size)
    known = ~(a.lost | b.lost) & ~differing(a, b)
    return np.asarray(known & (a.bad | close))


# -- drawing ---------------------------------------------------------------------------------------


def draw(rng: random.Random, depth: int, *, edge: bool) -> Tree:
    """A random tree; with `edge`, values that may be undefined, infinite or rounded."""
    if depth == 0 or rng.random() < 0.12:
        return leaf(rng, edge=edge)
    kind = rng.random()
    if kind < 0.55:
        return (rng.choice(BINARY), *(draw(rng, depth - 1, edge=edge) for _ in "ab"))
    if kind < 0.75:
        safe = tuple(u for u in UNARY if u not in ("log", "sqrt", "rsqrt"))
        return (rng.choice(UNARY if edge else safe), draw(rng, depth - 1, edge=edge))
    if kind < 0.85:
        return (rng.choice(REDUCTIONS), draw(rng, depth - 1, edge=edge))
    if kind < 0.9:
        return ("where", *(draw(rng, depth - 1, edge=edge) for _ in "abcd"))
    if kind < 0.95:
        fill = rng.choice((0.0, 0.0, 1.0, -math.inf) if edge else (0.0, 1.0))
        return ("pad", fill, draw(rng, depth - 1, edge=edge))
    how = rng.choice(("padded sum", "slice sum"))
    return (how, *(draw(rng, depth - 1, edge=edge) for _ in "ab"))


def leaf(rng: random.Random, *, edge: bool) -> Tree:
    """An input, a number or a captured array."""
    if edge and rng.random() < 0.35:
        if rng.random() < 0.5:
            return ("captured", rng.choice(sorted(CAPTURED)))
        return ("number", rng.choice(EDGE_NUMBERS))
    if rng.random() < 0.15:
        return ("number", rng.choice(PLAIN_NUMBERS))
    return ("in", rng.choice(INPUTS))


def places(tree: Tree, at: tuple[int, ...] = ()) -> Iterator[tuple[tuple[int, ...], Tree]]:
    """Every subtree with its path."""
    yield at, tree
    for n, part in enumerate(tree):
        if isinstance(part, tuple):
            yield from places(part, (*at, n))


def put(tree: Tree, at: tuple[int, ...], new: Tree) -> Tree:
    """The tree with another subtree at a path."""
    if not at:
        return new
    return (*tree[: at[0]], put(tree[at[0]], at[1:], new), *tree[at[0] + 1 :])
