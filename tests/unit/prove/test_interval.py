"""Enclosures against arb (ball arithmetic), exact rationals and brute force."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import flint
import numpy as np
import pytest

import axe_eq as axe
from axe_eq.program.interval import (
    ENCLOSE,
    ENCLOSE_MONOID,
    Interval,
    contract,
    disjoint,
    literal,
    point,
    within,
)
from axe_eq.program.ops import CELLS, MONOIDS
from axe_eq.program.types import Array, dtype

Arb = Any
arb = flint.arb
LEAST_WIDTH = 40  # units in the last place that a function of a point may be wide


@pytest.fixture(autouse=True)
def _precision() -> Any:
    with flint.ctx.workprec(300):
        yield


def test_every_standard_cell_and_monoid_has_an_enclosure() -> None:
    assert set(ENCLOSE) == set(CELLS.names())
    assert set(ENCLOSE_MONOID) == set(MONOIDS.names())


# -- functions against arb -------------------------------------------------------------------------

UNARY: dict[str, Callable[[Arb], Arb]] = {
    "neg": lambda x: -x,
    "abs": abs,
    "sqrt": lambda x: x.sqrt(),
    "rsqrt": lambda x: x.rsqrt(),
    "exp": lambda x: x.exp(),
    "expm1": lambda x: x.expm1(),
    "log": lambda x: x.log(),
    "log2": lambda x: x.log() / arb(2).log(),
    "log10": lambda x: x.log() / arb(10).log(),
    "log1p": lambda x: x.log1p(),
    "sin": lambda x: x.sin(),
    "cos": lambda x: x.cos(),
    "tan": lambda x: x.tan(),
    "tanh": lambda x: x.tanh(),
    "sinh": lambda x: x.sinh(),
    "cosh": lambda x: x.cosh(),
    "asin": lambda x: x.asin(),
    "acos": lambda x: x.acos(),
    "atan": lambda x: x.atan(),
    "asinh": lambda x: x.asinh(),
    "acosh": lambda x: x.acosh(),
    "atanh": lambda x: x.atanh(),
    "erf": lambda x: x.erf(),
    "sigmoid": lambda x: 1 / (1 + (-x).exp()),
}
BINARY: dict[str, Callable[[Arb, Arb], Arb]] = {
    "add": lambda x, y: x + y,
    "sub": lambda x, y: x - y,
    "mul": lambda x, y: x * y,
    "div": lambda x, y: x / y,
    "pow": lambda x, y: x**y,
    "hypot": lambda x, y: (x * x + y * y).sqrt(),
    "logaddexp": lambda x, y: (x.exp() + y.exp()).log(),
    "atan2": lambda y, x: arb.atan2(y, x),
}


def samples(rng: np.random.Generator, n: int) -> Array:
    """Magnitudes from 1e-12 to 1e12, small numbers, integers, multiples of pi/2 and their sides."""
    turns = rng.integers(-40, 41, n) * np.pi / 2
    pools = [
        rng.normal(size=n) * 2,
        rng.integers(-8, 9, n).astype(float),
        rng.normal(size=n) * 10.0 ** rng.integers(-12, 13, n),
        rng.integers(-16, 17, n) / 8,
        np.nextafter(turns, rng.choice([-np.inf, 0, np.inf], n)),
    ]
    return np.choose(rng.integers(0, len(pools), n), pools)


def assert_holds(result: Interval, exact: Sequence[Arb], what: str, points: Array) -> int:
    """Every defined enclosure holds its exact value; returns how many are defined."""
    n_defined = 0
    for low, high, value, at in zip(result.low, result.high, exact, points, strict=True):
        if math.isnan(low):
            continue
        n_defined += 1
        assert value.is_finite(), f"{what} at {at} is undefined, not in [{low}, {high}]"
        # arb compares balls: `not >` is true only where the enclosure may hold the value.
        assert not arb(low) > value, f"{what} at {at}: {low!r} > {value}"
        assert not arb(high) < value, f"{what} at {at}: {high!r} < {value}"
    return n_defined


def assert_narrow(result: Interval, what: str) -> None:
    size = np.maximum(np.abs(result.low), np.abs(result.high))
    known = np.isfinite(size) & (size > 1e-250)
    width = (result.high - result.low)[known] / size[known]
    assert width.size == 0 or width.max() <= LEAST_WIDTH * 2**-52, f"{what}: {width.max()}"


@pytest.mark.parametrize("name", UNARY)
def test_function_of_a_point(name: str, rng: np.random.Generator) -> None:
    x = samples(rng, 400)
    result = ENCLOSE[name](point(x))
    n_defined = assert_holds(result, [UNARY[name](arb(float(v))) for v in x], name, x)
    assert n_defined >= 100
    near = np.abs(x) < 1e5  # sin and cos of more are [-1, 1]
    assert_narrow(Interval(result.low[near], result.high[near]), name)


@pytest.mark.parametrize("name", UNARY)
def test_function_of_an_interval(name: str, rng: np.random.Generator) -> None:
    low = samples(rng, 200)
    high = low + np.abs(samples(rng, 200)) * rng.choice([1e-9, 0.1, 1.0], 200)
    result = ENCLOSE[name](Interval(low, high))
    for part in (0.0, 0.3, 0.9, 1.0):
        x = np.clip(low + (high - low) * part, low, high)
        assert_holds(result, [UNARY[name](arb(float(v))) for v in x], name, x)


@pytest.mark.parametrize("name", BINARY)
def test_function_of_two_points(name: str, rng: np.random.Generator) -> None:
    x, y = samples(rng, 500), samples(rng, 500)
    if name == "pow":
        x, y = np.clip(x, -50, 50), np.clip(y, -50, 50)
    result = ENCLOSE[name](point(x), point(y))
    exact = [BINARY[name](arb(float(a)), arb(float(b))) for a, b in zip(x, y, strict=True)]
    n_defined = assert_holds(result, exact, name, np.stack([x, y], 1))
    assert n_defined >= 150
    if name in ("add", "sub", "mul", "div", "hypot"):
        assert_narrow(result, name)


@pytest.mark.parametrize("name", BINARY)
def test_function_of_two_intervals(name: str, rng: np.random.Generator) -> None:
    lows = [np.clip(samples(rng, 200), -40, 40) for _ in range(2)]
    highs = [low + rng.choice([0.0, 1e-9, 1.0], 200) for low in lows]
    result = ENCLOSE[name](*map(Interval, lows, highs))
    for parts in itertools.product((0.0, 0.4, 1.0), repeat=2):
        x, y = (a + (b - a) * p for a, b, p in zip(lows, highs, parts, strict=True))
        exact = [BINARY[name](arb(float(a)), arb(float(b))) for a, b in zip(x, y, strict=True)]
        assert_holds(result, exact, name, np.stack([x, y], 1))


@pytest.mark.parametrize("name", ["add", "sub", "mul"])
def test_integers_and_binary_fractions_stay_points(name: str, rng: np.random.Generator) -> None:
    x, y = rng.integers(-(2**25), 2**25, (2, 100)) / 16
    assert ENCLOSE[name](point(x), point(y)).is_point


def test_exact_quotients_and_roots_stay_points() -> None:
    n = np.arange(1.0, 100.0)
    assert ENCLOSE["div"](point(n * 7), point(n)).is_point
    assert ENCLOSE["sqrt"](point(n * n)).is_point
    assert ENCLOSE["pow"](point(-n), point(3.0)).is_point
    assert not ENCLOSE["div"](point(n), point(3.0)).is_point


# -- all cells against their numpy meaning ---------------------------------------------------------

INTEGERS = {"bit_and", "bit_or", "bit_xor", "bit_not", "shl", "shr"}
LOGICAL = {"and", "or", "xor", "not"}
NOT_REAL = {"nextafter", "pair"}


def grid(name: str, rng: np.random.Generator, n: int) -> tuple[Array, Array, Array]:
    """Intervals with small endpoints and a point in each, of the kind the cell takes."""
    if name in LOGICAL:
        low, high = np.sort(rng.integers(0, 2, (2, n)), axis=0)
        return low, high, np.where(rng.integers(0, 2, n), low, high)
    low, high = np.sort(rng.integers(-6, 7, (2, n)), axis=0)
    if name in INTEGERS:
        return low, low, low
    high = np.where(rng.integers(0, 2, n), low, high)
    inside = low + (high - low) * rng.integers(0, 9, n) / 8
    return low / 2, high / 2, inside / 2


@pytest.mark.parametrize("name", sorted(set(CELLS.names()) - NOT_REAL))
def test_cell_holds_its_numpy_meaning(name: str, rng: np.random.Generator) -> None:
    declared = CELLS[name]
    params = ["i32"] if name == "cast" else []
    parts = [grid(name, rng, 3000) for _ in range(declared.arity or 3)]
    if name == "where":
        parts[0] = grid("not", rng, 3000)
    kind = bool if name in LOGICAL else np.int64 if name in INTEGERS else np.float64
    operands = [inside.astype(kind) for _, _, inside in parts]
    if name == "where":
        operands[0] = operands[0].astype(bool)
    with np.errstate(all="ignore"):
        exact = np.asarray(declared.fn(*operands, *params)).astype(np.float64)
    result = ENCLOSE[name](*(Interval(a * 1.0, b * 1.0) for a, b, _ in parts), *params)
    known = np.isfinite(result.low) & np.isfinite(result.high)
    slack = np.where(np.isfinite(exact), 1e-12 * (1 + np.abs(exact)), 0)
    inside = (result.low <= exact + slack) & (exact - slack <= result.high)
    assert known.mean() > 0.1
    assert inside[known].all(), f"{name} {np.argmin(inside | ~known)}"


def test_nextafter_is_not_a_function_of_reals() -> None:
    assert np.isnan(ENCLOSE["nextafter"](point([1.0]), point([2.0])).low).all()


# -- what may be undefined -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "operands"),
    [
        ("div", [(1, 1), (0, 0)]),
        ("div", [(1, 1), (-1, 2)]),
        ("div", [(0, 0), (0, 0)]),
        ("floor_divide", [(3, 3), (0, 0)]),
        ("remainder", [(3, 3), (0, 0)]),
        ("log", [(0, 0)]),
        ("log", [(-1, 2)]),
        ("log1p", [(-1, 0)]),
        ("sqrt", [(-1e-9, 4)]),
        ("rsqrt", [(0, 4)]),
        ("asin", [(0, 1.5)]),
        ("acos", [(-2, 0)]),
        ("acosh", [(0.5, 2)]),
        ("atanh", [(0, 1)]),
        ("tan", [(1, 2)]),
        ("pow", [(-2, -2), (0.5, 0.5)]),
        ("pow", [(0, 0), (-1, -1)]),
        ("sub", [(np.inf, np.inf), (np.inf, np.inf)]),
        ("add", [(1, np.inf), (-np.inf, 0)]),
        ("mul", [(-1, 1), (np.inf, np.inf)]),
        ("shl", [(1, 1), (-1, -1)]),
        ("shl", [(1, 1), (0, 1)]),
        ("bit_and", [(0, 1), (1, 1)]),
    ],
)
def test_undefined(name: str, operands: list[tuple[float, float]]) -> None:
    result = ENCLOSE[name](*(Interval(np.array([a]), np.array([b])) for a, b in operands))
    assert np.isnan([result.low, result.high]).all()


@pytest.mark.parametrize("name", sorted(set(CELLS.names()) - {"pair", "where"}))
def test_undefined_passes_through(name: str) -> None:
    arity = CELLS[name].arity or 2
    params = ["bool"] if name == "cast" else []
    for at in range(arity):
        operands = [point([np.nan if n == at else 1.0]) for n in range(arity)]
        assert np.isnan(ENCLOSE[name](*operands, *params).low).all()


def test_undefined_branch_not_taken_is_harmless() -> None:
    condition = Interval(np.array([0.0, 1.0, 0.0, np.nan]), np.array([0.0, 1.0, 1.0, np.nan]))
    result = ENCLOSE["where"](condition, point([np.nan, 1.0, 1.0, 1.0]), point([2.0, np.nan, 3, 1]))
    np.testing.assert_array_equal(result.low, [2, 1, 1, np.nan])
    np.testing.assert_array_equal(result.high, [2, 1, 3, np.nan])


def test_undefined_is_disjoint_from_nothing() -> None:
    nothing, one = point([np.nan]), point([1.0])
    assert not disjoint(nothing, one).any()
    assert not disjoint(one, nothing).any()
    assert disjoint(one, point([2.0])).all()
    assert not disjoint(one, Interval(np.array([1.0]), np.array([2.0]))).any()


def test_masked_softmax_terms_are_exactly_zero() -> None:
    shifted = ENCLOSE["sub"](point([-np.inf]), Interval(np.array([0.1]), np.array([0.2])))
    result = ENCLOSE["exp"](shifted)
    assert (result.low, result.high) == ([0.0], [0.0])
    overflow = ENCLOSE["add"](point([-1e308]), point([-1e308]))
    assert (overflow.low, overflow.high) == ([-np.inf], [-np.finfo(float).max])


def test_bounds_of_what_underflows_are_normal_numbers() -> None:
    result = ENCLOSE["exp"](point([-740.0, -1e9]))
    assert (result.low == 0).all()
    assert (result.high > np.finfo(float).tiny).all()


# -- constants and element types -------------------------------------------------------------------


@pytest.mark.parametrize("name", ["f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64"])
def test_rounded_constants_are_widened_and_short_ones_exact(name: str) -> None:
    assert literal([0.0, 1.0, -2.0, 0.5, 4.0, -math.inf], name).is_point
    for value in (0.1, 1 / 3, 1e-5, 2.7182818284590451):
        tenth = literal(value, name)
        assert tenth.low < value < tenth.high
        rounded = np.asarray(value).astype(dtype(name).numpy)
        assert tenth.low <= float(rounded) <= tenth.high


def test_constant_beyond_its_type_reaches_infinity() -> None:
    wide = literal(-1e30, "f16")
    assert wide.low == -math.inf
    assert wide.high >= -1e30


def test_a_constant_that_float64_rounds_is_no_point() -> None:
    """2^53 + 1 is read as 2^53: programs that differ by it only in spelling were refuted."""
    low, high = literal((1 << 53) + 1, "i64")
    at = 1 << 53
    assert low <= at
    assert high > at
    verdict = axe.equivalent(lambda x: (x + (at + 1)) - at, lambda x: x + 1, "3:i64")
    assert not isinstance(verdict, axe.Refuted)


def test_integers_beyond_their_type_are_unknown() -> None:
    x = point([2.0**31 - 1, 2.0**31, -(2.0**31), 0.5])
    np.testing.assert_array_equal(np.isnan(within(x, "i32").low), [False, True, False, True])
    np.testing.assert_array_equal(np.isnan(within(x, "i64").low), [False, False, False, True])
    np.testing.assert_array_equal(np.isnan(within(x, "f16").low), [False] * 4)


# -- reductions against exact rationals ------------------------------------------------------------


def exact_terms(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    return np.asarray(rng.normal(size=shape) * 10.0 ** rng.integers(-8, 9, shape))


def assert_holds_rational(result: Interval, exact: Sequence[Fraction]) -> None:
    for low, high, value in zip(result.low.ravel(), result.high.ravel(), exact, strict=True):
        assert Fraction(float(low)) <= value <= Fraction(float(high))


def test_sum(rng: np.random.Generator) -> None:
    x = exact_terms(rng, (20, 300))
    result = ENCLOSE_MONOID["+"]([point(x)], (1,))
    assert result.shape == (20, 1)
    assert_holds_rational(result, [sum(map(Fraction, row.tolist()), Fraction()) for row in x])
    assert ((result.high - result.low) <= 1e-12 * np.abs(x).sum(1, keepdims=True)).all()


def test_product(rng: np.random.Generator) -> None:
    x = rng.normal(size=(10, 13, 2)) + 2
    result = ENCLOSE_MONOID["*"]([point(x)], (1,))
    exact = [
        math.prod((Fraction(float(v)) for v in x[i, :, j]), start=Fraction(1))
        for i in range(10)
        for j in range(2)
    ]
    assert_holds_rational(result, exact)


def test_contraction_of_points(rng: np.random.Generator) -> None:
    a, b = exact_terms(rng, (6, 40, 1)), exact_terms(rng, (1, 40, 5))
    result = contract([point(a), point(b)], (1,))
    exact = [
        sum(
            (Fraction(float(a[i, k, 0])) * Fraction(float(b[0, k, j])) for k in range(40)),
            Fraction(),
        )
        for i in range(6)
        for j in range(5)
    ]
    assert_holds_rational(result, exact)


def test_contraction_of_intervals(rng: np.random.Generator) -> None:
    middle = [exact_terms(rng, (4, 9, 1)), exact_terms(rng, (1, 9, 3))]
    radius = [np.abs(exact_terms(rng, m.shape)) * 1e-3 for m in middle]
    operands = [Interval(m - r, m + r) for m, r in zip(middle, radius, strict=True)]
    result = contract(operands, (1,))
    for _ in range(30):
        a, b = (x.low + (x.high - x.low) * rng.choice([0, 0.5, 1.0], x.shape) for x in operands)
        a, b = np.clip(a, *operands[0]), np.clip(b, *operands[1])
        exact = [
            sum(
                (Fraction(float(a[i, k, 0])) * Fraction(float(b[0, k, j])) for k in range(9)),
                Fraction(),
            )
            for i in range(4)
            for j in range(3)
        ]
        assert_holds_rational(result, exact)


@pytest.mark.parametrize("n", [1, 3, 64])
def test_integer_contractions_are_points(n: int, rng: np.random.Generator) -> None:
    a, b, c = (rng.integers(-9, 10, s) * 1.0 for s in ((5, n, 1), (1, n, 4), (5, n, 4)))
    result = contract([point(a), point(b)], (1,))
    assert result.is_point
    np.testing.assert_array_equal(result.low[:, 0], a[:, :, 0] @ b[0])
    three = contract([point(a), point(b), point(c)], (1,))
    np.testing.assert_array_equal(three.low[:, 0], (a * b * c).sum(1))


def test_contraction_marks_only_what_an_undefined_operand_reaches() -> None:
    a = np.ones((3, 4, 1))
    a[1, 2, 0] = np.nan
    result = contract([point(a), point(np.full((1, 4, 2), 0.1))], (1,))
    np.testing.assert_array_equal(
        np.isnan(result.low[:, 0]), [[False] * 2, [True] * 2, [False] * 2]
    )


def test_softmax_holds_arb(rng: np.random.Generator) -> None:
    scores, values = rng.normal(size=(3, 7, 1)) * 9, rng.normal(size=(1, 7, 2))
    result = ENCLOSE_MONOID["softmax"]([point(scores), point(values)], (1,))
    for i in range(3):
        weights = [arb(float(s)).exp() for s in scores[i, :, 0]]
        exact = [
            sum(w * arb(float(v)) for w, v in zip(weights, values[0, :, j], strict=True))
            / sum(weights)
            for j in range(2)
        ]
        assert assert_holds(
            Interval(result.low[i, 0], result.high[i, 0]), exact, "softmax", values[0, 0]
        )
    assert (result.high - result.low).max() < 1e-13


def test_softmax_of_a_masked_row_is_undefined() -> None:
    scores = np.array([[[-np.inf], [-np.inf]], [[-np.inf], [1.0]]])
    result = ENCLOSE_MONOID["softmax"]([point(scores), point(np.ones((1, 2, 1)))], (1,))
    np.testing.assert_array_equal(np.isnan(result.low.ravel()), [True, False])


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin", "+", "*"])
def test_reduction_of_intervals_by_brute_force(name: str, rng: np.random.Generator) -> None:
    low, high = np.sort(rng.integers(-2, 3, (2, 40, 4)), axis=0) * 1.0
    index = np.arange(4.0)[None]
    extra = [point(index)] if name.startswith("arg") else []
    result = ENCLOSE_MONOID[name]([Interval(low, high), *extra], (1,))
    pick = getattr(np, {"+": "sum", "*": "prod"}.get(name, name))
    found = [
        pick(np.where(corner, high, low), axis=1, keepdims=True)
        for corner in itertools.product([False, True], repeat=4)
    ]
    assert (result.low <= np.min(found, axis=0)).all()
    assert (np.max(found, axis=0) <= result.high).all()
    if not name.startswith("arg"):
        np.testing.assert_array_equal(result.low, np.min(found, axis=0))
        np.testing.assert_array_equal(result.high, np.max(found, axis=0))


def test_position_of_ties_is_the_least_index() -> None:
    x = point([[1.0, 3.0, 3.0, 0.0]])
    result = ENCLOSE_MONOID["argmax"]([x, point([[0.0, 1.0, 2.0, 3.0]])], (1,))
    assert result.is_point
    assert result.low == [[1.0]]
