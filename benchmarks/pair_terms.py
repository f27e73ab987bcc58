"""Small programs as trees: traced by axe_eq, evaluated over the reals by numpy alone, rewritten.

A tree is a tuple of an operator, its parameters and its operands; every value is a 3 x 3 matrix, so
that any two fit. `meaning` is an oracle of its own: it shares no code with axe_eq.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
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


@dataclass
class Value:
    """Values in float64; where they are undefined or lost in float64; the largest size of any.

    And whether a sum behind them rounded: a 0 may then be a small number that was absorbed.
    """

    values: Array
    bad: Array
    lost: Array
    size: float = 1.0
    rounded: bool = False


def _value(values: Any, *parts: Value, bad: Any = False, lost: Any = False) -> Value:
    array = np.broadcast_to(np.asarray(values, np.float64), (N, N))
    bad, lost = (np.broadcast_to(np.asarray(m, bool), (N, N)) for m in (bad, lost))
    for part in parts:
        bad, lost = bad | part.bad, lost | part.lost
    return _sized(array, bad | np.isnan(array), lost, parts)


def _sized(array: Array, bad: Array, lost: Array, parts: Any) -> Value:
    known = np.abs(array[np.isfinite(array)])
    size = max([float(known.max(initial=1.0)), *(p.size for p in parts)])
    return Value(array, bad & ~lost, lost, size, any(p.rounded for p in parts))


def meaning(tree: Tree, dtype: str, given: dict[str, Array]) -> Value:
    """What a tree means over the reals at some inputs; numbers are what the dtype holds."""
    op, *rest = tree
    with np.errstate(all="ignore"):
        if op == "in":
            return _value(given[rest[0]])
        if op == "captured":
            return _value(CAPTURED[rest[0]].astype(np.float64))
        if op == "number":
            return _value(float(np.asarray(rest[0]).astype(TYPES[dtype])))
        parts = [meaning(x, dtype, given) for x in rest if isinstance(x, tuple)]
        held = (float(np.asarray(x).astype(TYPES[dtype])) for x in rest if not isinstance(x, tuple))
        return _MEANINGS[op](*parts, *held)


def _smooth(fn: Callable[..., Any]) -> Callable[..., Value]:
    """A cell without poles; overflow and underflow of finite operands are lost."""

    def cell(*parts: Value) -> Value:
        found = fn(*(p.values for p in parts))
        finite = np.logical_and.reduce([np.isfinite(p.values) for p in parts])
        tiny = (np.abs(found) < 1e-200) & (found != 0)
        return _value(found, *parts, lost=finite & (np.isinf(found) | tiny))

    return cell


def _added(x: Value, y: Value) -> Value:
    """A sum, and whether it rounded: the error of a sum of two floats is a float (Knuth's 2Sum)."""
    a, b = x.values, y.values
    found = a + b
    other = found - a
    error = (a - (found - other)) + (b - other)
    added = _smooth(np.add)(x, y)
    added.rounded |= bool((np.isfinite(error) & (error != 0)).any())
    return added


def _exp(x: Value) -> Value:
    found = np.exp(x.values)
    return _value(found, x, lost=np.isfinite(x.values) & ((found < 1e-200) | np.isinf(found)))


def _saturating(fn: Callable[..., Any]) -> Callable[[Value], Value]:
    def cell(x: Value) -> Value:
        found = fn(x.values)
        ends = np.isfinite(x.values) & ((np.abs(found) == 1) | (found < 1e-200) & (found >= 0))
        return _value(found, x, lost=ends & (x.values != 0))

    return cell


def _unsure(x: Value) -> Array:
    """Where a number may be 0 but for a rounding."""
    close: Array = (np.abs(x.values) < 1e-9 * x.size) & (x.rounded | (x.values != 0))
    return close


def _divided(x: Value, y: Value) -> Value:
    found = x.values / y.values
    tiny = (np.abs(found) < 1e-200) & (x.values != 0) & np.isfinite(y.values)
    return _value(found, x, y, bad=y.values == 0, lost=_unsure(y) | tiny)


def _log(x: Value) -> Value:
    return _value(np.log(x.values), x, bad=x.values <= 0, lost=_unsure(x))


def _sqrt(x: Value) -> Value:
    return _value(np.sqrt(x.values), x, bad=x.values < 0, lost=_unsure(x))


def _matmul(x: Value, y: Value) -> Value:
    cells = x.values[:, :, None] * y.values[None]
    bad, lost = (
        np.asarray((a[:, :, None] | b[None]).any(axis=1))
        for a, b in ((x.bad, y.bad), (x.lost, y.lost))
    )
    bad = np.asarray(bad | np.isnan(cells).any(axis=1))
    found = _sized(np.asarray(cells.sum(axis=1)), bad, lost, (x, y))
    return _value(found.values, found)


def _reduced(fn: Callable[..., Any]) -> Callable[[Value], Value]:
    def reduce(x: Value) -> Value:
        bad, lost = x.bad.any(axis=1, keepdims=True), x.lost.any(axis=1, keepdims=True)
        found = _value(fn(x.values, axis=1, keepdims=True), bad=bad, lost=lost)
        return _sized(found.values, found.bad, found.lost, (x,))

    return reduce


def _where(a: Value, b: Value, x: Value, y: Value) -> Value:
    chosen = a.values > b.values
    near = (np.abs(a.values - b.values) < 1e-9 * max(a.size, b.size)) & (a.values != b.values)
    pick: Callable[[str], Array] = lambda n: np.where(chosen, getattr(x, n), getattr(y, n))  # noqa: E731
    lost = pick("lost") | a.lost | b.lost | near
    return _sized(pick("values"), pick("bad") | a.bad | b.bad, lost, (a, b, x, y))


def _padded(x: Value, fill: float) -> Value:
    def moved(array: Array, outside: Any) -> Array:
        found = array.copy()
        found[0] = outside
        return found

    return _sized(moved(x.values, fill), moved(x.bad, fill != fill), moved(x.lost, False), (x,))


def _padded_sum(x: Value, y: Value) -> Value:
    zeros = Value(x.values.copy(), x.bad.copy(), x.lost.copy(), x.size, x.rounded)
    zeros.values[:, 0], zeros.bad[:, 0], zeros.lost[:, 0] = 0, False, False
    return _matmul(zeros, y)


def _slice_sum(x: Value, y: Value) -> Value:
    without = Value(x.values.copy(), x.bad.copy(), x.lost.copy(), x.size, x.rounded)
    other = Value(y.values.copy(), y.bad.copy(), y.lost.copy(), y.size, y.rounded)
    for part, at in ((without, np.s_[:, 0]), (other, np.s_[0])):
        part.values[at], part.bad[at], part.lost[at] = 0, False, False
    return _matmul(without, other)


def _turned(x: Value) -> Value:
    return Value(x.values.T, x.bad.T, x.lost.T, x.size, x.rounded)


_MEANINGS: dict[str, Callable[..., Value]] = {
    "neg": _smooth(np.negative), "exp": _exp, "log": _log, "sqrt": _sqrt, "abs": _smooth(np.abs),
    "tanh": _saturating(np.tanh), "sigmoid": _saturating(lambda a: 1 / (1 + np.exp(-a))),
    "rsqrt": lambda x: _divided(_value(1.0), _sqrt(x)), "sin": _smooth(np.sin), "turn": _turned,
    "relu": _smooth(lambda a: np.maximum(a, 0.0)), "add": _added,
    "sub": lambda x, y: _added(x, _smooth(np.negative)(y)),
    "mul": _smooth(np.multiply), "div": _divided,
    "maximum": _smooth(np.maximum), "minimum": _smooth(np.minimum), "matmul": _matmul,
    "sum": _reduced(np.sum), "max": _reduced(np.max), "where": _where, "pad": _padded,
    "padded sum": _padded_sum, "slice sum": _slice_sum,
}  # fmt: skip


def differ(a: Value, b: Value) -> str | None:
    """What differs over the reals, where float64 can tell."""
    known = ~(a.lost | b.lost)
    if (known & (a.bad != b.bad)).any():
        return "defined at other places"
    there = known & ~a.bad & ~b.bad
    with np.errstate(all="ignore"):
        near = np.abs(a.values - b.values) <= 1e-7 * max(a.size, b.size)
    return "values differ" if (there & (a.values != b.values) & ~near).any() else None


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
