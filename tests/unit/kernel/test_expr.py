"""Run-time integers: simplification keeps values, divisors divide, bounds bound."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from axe_eq.errors import ScheduleError
from axe_eq.kernel import expr
from axe_eq.kernel.expr import Expr, Int, evaluate, make, var

VARIABLES = (var("a", 8, 0, 64), var("b", 1, 0, 7), var("c", 3, 3, None))
VALUES = {
    "a": st.sampled_from(range(0, 65, 8)),
    "b": st.integers(0, 7),
    "c": st.sampled_from(range(3, 99, 3)),
}


PLAIN: dict[str, Callable[[int, int], int]] = {
    "+": operator.add, "*": operator.mul, "//": operator.floordiv, "%": operator.mod,
    "^": operator.xor, "&": operator.and_, ">>": operator.rshift, "min": min, "max": max,
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
    "==": operator.eq, "!=": operator.ne,
}  # fmt: skip


LEAVES = st.one_of(st.integers(0, 40), st.sampled_from(["a", "b", "c"]))
TREES = st.recursive(
    LEAVES, lambda inner: st.tuples(st.sampled_from(list(PLAIN)), inner, inner), max_leaves=8
)


def _legal(op: str, y: object) -> bool:
    """Division by positive constants, and small shifts."""
    if op in ("//", "%"):
        return isinstance(y, int) and y > 0
    return op != ">>" or (isinstance(y, int) and y < 8)


def build(tree: object) -> Int:
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return next(v for v in VARIABLES if v.name == tree)
    assert isinstance(tree, tuple)
    op, x, y = tree
    return make(op if _legal(op, y) else "+", build(x), build(y))


def direct(tree: object, env: dict[str, int]) -> int:
    if isinstance(tree, int):
        return tree
    if isinstance(tree, str):
        return env[tree]
    assert isinstance(tree, tuple)
    op, x, y = tree
    return int(PLAIN[op if _legal(op, y) else "+"](direct(x, env), direct(y, env)))


@given(TREES, st.fixed_dictionaries(VALUES))
def test_simplified_expressions_have_the_direct_value(tree: object, env: dict[str, int]) -> None:
    e, value = build(tree), direct(tree, env)
    assert int(evaluate(e, env)) == value
    assert eval(expr.text(e, {"and": "and"}), {"min": min, "max": max}, dict(env)) == value
    assert int(evaluate(expr.from_json(expr.to_json(e)), env)) == value


@given(TREES, st.fixed_dictionaries(VALUES))
def test_divisors_divide_and_bounds_bound(tree: object, env: dict[str, int]) -> None:
    e, value = build(tree), direct(tree, env)
    d, (low, high) = expr.divisor(e), expr.bounds(e)
    assert value == 0 if d == 0 else value % d == 0
    assert low is None or low <= value
    assert high is None or value <= high


def test_known_facts_fold() -> None:
    a, b, _ = VARIABLES
    assert a % 8 == 0
    assert (a * 32 + 32) // 32 == make("+", a, 1)
    assert (b < 8) == 1
    assert b // 8 == 0
    assert (a + 3) + (b + 4) == make("+", make("+", a, b), 7)


def test_a_run_time_condition_is_no_python_bool() -> None:
    with pytest.raises(ScheduleError, match="only at run time"):
        bool(VARIABLES[0] < VARIABLES[1])
    with pytest.raises(ScheduleError, match="variable a"):
        evaluate(VARIABLES[0], {})


def test_substitution_simplifies() -> None:
    a = VARIABLES[0]
    e = (a // 8) * 3
    assert isinstance(e, Expr)
    assert expr.substitute(e, {"a": 16}) == 6
