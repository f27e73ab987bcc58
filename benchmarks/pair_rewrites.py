"""Rewrites of the trees of `pair_terms`: what is true of reals, and what only looks so."""

from __future__ import annotations

import random
from collections.abc import Callable

from benchmarks.pair_terms import EDGE_NUMBERS, PLAIN_NUMBERS, Tree, draw, leaf, places, put

Rewrite = Callable[[Tree, random.Random], Tree | None]


def _rule(*names: str) -> Callable[[Rewrite], Rewrite]:
    return lambda fn: lambda t, rng: fn(t, rng) if not names or t[0] in names else None


@_rule("add", "mul", "maximum", "minimum")
def commute(t: Tree, rng: random.Random) -> Tree:
    """Tree a . b = b . a."""
    return (t[0], t[2], t[1])


@_rule("add", "mul", "matmul", "maximum")
def associate(t: Tree, rng: random.Random) -> Tree | None:
    """(a . b) . c = a . (b . c)."""
    op, a, b = t
    if a[0] == op:
        return (op, a[1], (op, a[2], b))
    return (op, (op, a, b[1]), b[2]) if b[0] == op else None


@_rule("mul", "matmul")
def distribute(t: Tree, rng: random.Random) -> Tree | None:
    """Tree a (b + c) = a b + a c."""
    op, a, b = t
    return (b[0], (op, a, b[1]), (op, a, b[2])) if b[0] in ("add", "sub") else None


@_rule("add", "sub")
def factor(t: Tree, rng: random.Random) -> Tree | None:
    """Tree a b + a c = a (b + c)."""
    op, a, b = t
    same = a[0] == b[0] and a[0] in ("mul", "matmul") and a[1] == b[1]
    return (a[0], a[1], (op, a[2], b[2])) if same else None


@_rule("sub")
def subtract(t: Tree, rng: random.Random) -> Tree:
    """Tree a - b = a + (-b)."""
    return ("add", t[1], ("neg", t[2]))


@_rule("neg")
def negate(t: Tree, rng: random.Random) -> Tree:
    """-a = -1 a."""
    return ("mul", ("number", -1.0), t[1])


@_rule("div")
def divide(t: Tree, rng: random.Random) -> Tree:
    """Tree a / b = a (1 / b)."""
    return ("mul", t[1], ("div", ("number", 1.0), t[2]))


@_rule("exp")
def exponential(t: Tree, rng: random.Random) -> Tree | None:
    """exp(a + b) = exp a exp b."""
    (inner,) = t[1:]
    return ("mul", *(("exp", x) for x in inner[1:])) if inner[0] == "add" else None


@_rule("turn")
def turned(t: Tree, rng: random.Random) -> Tree | None:
    """(a b)^T = b^T a^T, (a . b)^T = a^T . b^T, (a^T)^T = a."""
    (inner,) = t[1:]
    if inner[0] == "turn":
        return tuple(inner[1])
    if inner[0] == "matmul":
        return ("matmul", ("turn", inner[2]), ("turn", inner[1]))
    return (inner[0], *(("turn", x) for x in inner[1:])) if inner[0] in ("add", "mul") else None


@_rule("sum")
def sum_of(t: Tree, rng: random.Random) -> Tree | None:
    """sum(a + b) = sum a + sum b, sum(c a) = c sum a for a row's c."""
    (inner,) = t[1:]
    if inner[0] in ("add", "sub"):
        return (inner[0], *(("sum", x) for x in inner[1:]))
    scaled = inner[0] in ("mul", "div") and inner[2][0] in ("sum", "max", "number")
    return (inner[0], ("sum", inner[1]), inner[2]) if scaled else None


@_rule("max")
def max_of(t: Tree, rng: random.Random) -> Tree | None:
    """max(a + c) = max a + c for a row's c."""
    (inner,) = t[1:]
    shifted = inner[0] in ("add", "sub") and inner[2][0] in ("sum", "max", "number")
    return (inner[0], ("max", inner[1]), inner[2]) if shifted else None


@_rule("padded sum")
def padded(t: Tree, rng: random.Random) -> Tree:
    """Tree zeros ++ a times b = a times the rest of b."""
    return ("slice sum", *t[1:])


@_rule("where")
def chosen(t: Tree, rng: random.Random) -> Tree | None:
    """where(a > b, a, b) = maximum(a, b); where(c, a, a) = a."""
    _, a, b, x, y = t
    if x == y:
        return tuple(x)
    return ("maximum", a, b) if (a, b) == (x, y) else None


@_rule()
def nothing_added(t: Tree, rng: random.Random) -> Tree:
    """Tree a = a + 0 = a 1 = (a + c) - c = -(-a)."""
    ways: tuple[Tree, ...] = (
        ("add", t, ("number", 0.0)), ("mul", t, ("number", 1.0)), ("neg", ("neg", t)),
        ("sub", ("add", t, c := leaf(rng, edge=rng.random() < 0.5)), c),
        ("turn", ("turn", t)), ("log", ("exp", t)), ("maximum", t, t),
        ("mul", ("number", 0.5), ("add", t, t)),
        ("where", c, ("number", 0.0), t, t),
    )  # fmt: skip
    return rng.choice(ways)


TRUE: tuple[Rewrite, ...] = (
    commute, associate, distribute, factor, subtract, negate, divide, exponential, turned, sum_of,
    max_of, padded, chosen, nothing_added,
)  # fmt: skip


# -- what only looks true --------------------------------------------------------------------------


@_rule()
def other_operator(t: Tree, rng: random.Random) -> Tree | None:
    """Another operator of as many operands."""
    groups = (
        ("add", "sub", "mul", "maximum", "minimum", "div", "matmul"), ("sum", "max"),
        ("tanh", "sigmoid", "exp", "abs", "relu", "neg", "turn"), ("sqrt", "log", "rsqrt"),
    )  # fmt: skip
    group = next((g for g in groups if t[0] in g), ())
    return (rng.choice(group), *t[1:]) if group else None


@_rule("number")
def other_number(t: Tree, rng: random.Random) -> Tree:
    """Another number."""
    return ("number", rng.choice((*PLAIN_NUMBERS, *EDGE_NUMBERS)))


@_rule("sub", "div", "matmul")
def exchanged(t: Tree, rng: random.Random) -> Tree:
    """Tree a - b for b - a."""
    return (t[0], t[2], t[1])


@_rule("sub")
def nothing_left(t: Tree, rng: random.Random) -> Tree | None:
    """Tree a - a = 0, wherever a is undefined or infinite."""
    return ("number", 0.0) if t[1] == t[2] else ("mul", ("number", 0.0), t[1])


@_rule("mul")
def zeros(t: Tree, rng: random.Random) -> Tree | None:
    """0 a = 0, wherever a is undefined or infinite."""
    return ("number", 0.0) if ("number", 0.0) in t[1:] else None


@_rule("div")
def cancelled(t: Tree, rng: random.Random) -> Tree | None:
    """(a b) / b = a, even where b is 0."""
    return tuple(t[1][1]) if t[1][0] == "mul" and t[1][2] == t[2] else None


@_rule()
def dropped(t: Tree, rng: random.Random) -> Tree | None:
    """An operand for the whole."""
    return next((tuple(x) for x in t[1:] if isinstance(x, tuple)), None)


@_rule()
def another(t: Tree, rng: random.Random) -> Tree:
    """Another subtree."""
    return draw(rng, 1, edge=True)


@_rule()
def undone(t: Tree, rng: random.Random) -> Tree:
    """Tree a = (a / b) b = exp(log a) = (a + inf) - inf, even where that is undefined."""
    b, inf = leaf(rng, edge=True), ("number", rng.choice(EDGE_NUMBERS))
    ways: tuple[Tree, ...] = (
        ("mul", ("div", t, b), b), ("exp", ("log", t)), ("sub", ("add", t, inf), inf),
        ("add", t, ("mul", ("number", 0.0), ("log", b))), ("mul", ("sqrt", t), ("sqrt", t)),
        ("sub", ("mul", t, ("number", 2049.0)), ("mul", t, ("number", 2048.0))),
        ("add", t, ("sub", b, b)), ("div", ("mul", t, ("exp", b)), ("exp", b)),
    )  # fmt: skip
    return rng.choice(ways)


FALSE: tuple[Rewrite, ...] = (
    other_operator, other_number, exchanged, nothing_left, zeros, cancelled, dropped, another,
    undone, undone,
)  # fmt: skip


def rewritten(tree: Tree, rng: random.Random, rules: tuple[Rewrite, ...], times: int) -> Tree:
    """The tree after so many rewrites somewhere in it."""
    for _ in range(times):
        for _ in range(30):
            at, part = rng.choice(list(places(tree)))
            new = rng.choice(rules)(part, rng)
            if new is not None and new != part:
                tree = put(tree, at, new)
                break
    return tree
