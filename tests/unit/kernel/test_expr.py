"""Run-time integers: simplification keeps values, divisors divide, bounds bound."""

from __future__ import annotations

import json
import operator
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from axe_eq import plain
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
    assert int(evaluate(Expr.of_data(json.loads(plain.text(e))), env)) == value


@given(TREES, st.fixed_dictionaries(VALUES))
def test_divisors_divide_and_bounds_bound(tree: object, env: dict[str, int]) -> None:
    e, value = build(tree), direct(tree, env)
    d, (low, high) = expr.divisor(e), expr.bounds(e)
    assert value == 0 if d == 0 else value % d == 0
    assert low is None or low <= value
    assert high is None or value <= high


def built(tree: object) -> Int:
    """The expression of a tree, whatever it divides by."""
    if not isinstance(tree, tuple):
        return build(tree)
    op, x, y = tree
    return make(op, built(x), built(y))


def in_c(e: Int, env: dict[str, int]) -> int:
    """What C computes: division goes towards zero, and shifts by 0 to 31 bits are defined."""
    if not isinstance(e, Expr):
        return e
    if isinstance(e, expr.Var):
        return env[e.name]
    x, y = (in_c(a, env) for a in e.args)
    if e.op in ("//", "%"):
        quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
        return quotient if e.op == "//" else x - quotient * y
    assert e.op != ">>" or 0 <= y < 32
    return int((PLAIN | {"-": operator.sub})[e.op](x, y))


NODES = st.sampled_from([*PLAIN, "-", "-", "//", "%"])
ANY = st.recursive(
    st.one_of(st.integers(-9, 40), st.sampled_from(["a", "b", "c"])),
    lambda inner: st.tuples(NODES, inner, inner),
    max_leaves=6,
)


@given(ANY, st.lists(st.fixed_dictionaries(VALUES), min_size=1, max_size=8))
def test_what_is_not_refused_means_the_same_in_c(tree: object, envs: list[dict[str, int]]) -> None:
    try:
        e = built(tree)
    except ScheduleError:
        return
    for env in envs:
        assert in_c(e, env) == int(evaluate(e, env))


A, B, C = VARIABLES
MISUSED: dict[str, tuple[Callable[[], object], str]] = {
    "division by zero": (lambda: C // 0, "c // 0: divides by 0; expected a divisor"),
    "division by a negative number": (lambda: A // -8, "divides by -8"),
    "division by what may be zero": (lambda: C % B, "c % b: divides by what may be 0"),
    "division of what may be negative": (
        lambda: (B - 3) // 2, "(b - 3) // 2: divides what may be -3; expected a number",
    ),
    "division of any number": (lambda: (B - C) % 2, "divides what may be negative"),
    "a wide shift": (lambda: A >> 32, "a >> 32: shifts by 32 to 32; expected 0 to 31 bits"),
    "a shift by any number": (lambda: make(">>", A, C), "shifts by 3 to None"),
    "no integer": (lambda: A + 0.5, "operand 0.5: of '+' is no integer; expected an integer"),  # type: ignore[arg-type]
    "no number": (lambda: make("<", A, "b"), "operand 'b'"),  # type: ignore[arg-type]
    "a truth": (lambda: bool(B < 3), "condition b < 3: is known only at run time"),
}  # fmt: skip


@pytest.mark.parametrize("name", MISUSED)
def test_misused_integers_are_refused_at_the_line(name: str) -> None:
    write, reason = MISUSED[name]
    with pytest.raises(ScheduleError) as refusal:
        write()
    assert reason in str(refusal.value)
    assert refusal.value.at.rpartition(":")[0] == __file__


def test_divisions_without_remainder_may_be_of_negative_numbers() -> None:
    assert evaluate((A - 64) // 8, {"a": 8}) == -7
    assert evaluate(expr.maximum(B - 3, 0) // 2, {"b": 0}) == 0


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
