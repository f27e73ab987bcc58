"""Every function of the array namespace against numpy: the same function, run and traced."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib import import_module
from typing import Any

import array_api_compat
import numpy as np
import pytest

import axe_eq.array
from axe_eq.program.nesting import flatten
from axe_eq.program.trace import run

Function = Callable[..., Any]


def namespace(*arrays: Any) -> Any:
    return array_api_compat.array_namespace(*arrays)


def check(fn: Function, *arrays: Any, rtol: float = 1e-6, atol: float = 1e-6) -> None:
    """The function traced and evaluated equals the function on numpy: nesting, dtypes, values."""
    with np.errstate(all="ignore"):
        nesting, expected = flatten(fn(*arrays))
    found_nesting, found = flatten(run(fn, *arrays))
    assert found_nesting == nesting
    for want, got in zip(expected, found, strict=True):
        want = np.asarray(want)
        assert got.shape == want.shape
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=rtol, atol=atol)


# -- element-wise ---------------------------------------------------------------------------------

FLOATS = np.array([-2.5, -1.5, -1.0, -0.5, -0.0, 0.0, 0.25, 0.5, 1.0, 1.5, 2.5, 3.0])
SPECIAL = np.array([math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0])
INTS = np.array([-7, -3, -2, -1, 1, 2, 3, 5])
BOOLS = np.array([True, False, True, True])

UNARY_FLOAT = {
    "acos": (-1, 1), "acosh": (1, 9), "asin": (-1, 1), "asinh": (-4, 4), "atan": (-4, 4),
    "atanh": (-0.9, 0.9), "cos": (-4, 4), "cosh": (-4, 4), "exp": (-4, 4), "expm1": (-1, 1),
    "log": (0.1, 9), "log10": (0.1, 9), "log1p": (-0.5, 4), "log2": (0.1, 9), "sin": (-4, 4),
    "sinh": (-4, 4), "sqrt": (0, 9), "tan": (-1, 1), "tanh": (-4, 4), "reciprocal": (0.5, 4),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", UNARY_FLOAT)
def test_floating_functions_of_one_array(name: str, dtype: str) -> None:
    x = np.linspace(*UNARY_FLOAT[name], 17).astype(dtype)
    rtol = {"float16": 2e-3, "float32": 1e-6, "float64": 1e-14}[dtype]
    check(lambda x: getattr(namespace(x), name)(x), x, rtol=rtol, atol=rtol)


@pytest.mark.parametrize("name", ["exp", "sqrt", "sin"])
def test_floating_functions_of_integers_give_f64(name: str) -> None:
    check(lambda x: getattr(namespace(x), name)(x), np.abs(INTS))


@pytest.mark.parametrize("array", [FLOATS, FLOATS.astype("f2"), INTS, INTS.astype("i4")])
@pytest.mark.parametrize(
    "name", ["abs", "negative", "positive", "sign", "floor", "ceil", "trunc", "round", "square"]
)
def test_numeric_functions_of_one_array(name: str, array: Any) -> None:
    check(lambda x: getattr(namespace(x), name)(x), array, rtol=0, atol=0)


@pytest.mark.parametrize("array", [FLOATS, SPECIAL, SPECIAL.astype("f2"), INTS])
@pytest.mark.parametrize("name", ["isnan", "isinf", "isfinite"])
def test_predicates(name: str, array: Any) -> None:
    check(lambda x: getattr(namespace(x), name)(x), array)


def test_signbit_tells_the_zeros_apart() -> None:
    check(lambda x: namespace(x).signbit(x), SPECIAL[1:])


BINARY = [
    "add", "subtract", "multiply", "divide", "maximum", "minimum", "atan2", "copysign", "hypot",
    "logaddexp", "floor_divide", "remainder", "equal", "not_equal", "less", "less_equal", "greater",
    "greater_equal",
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_floating_arrays_broadcast(name: str, dtype: str) -> None:
    x, y = FLOATS.astype(dtype)[:, None], np.array([[0.5, -1.5, 2.0]], dtype)
    rtol = {"float16": 2e-3, "float32": 1e-6, "float64": 1e-14}[dtype]
    check(lambda x, y: getattr(namespace(x), name)(x, y), x, y, rtol=rtol)


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize(
    "name", [n for n in BINARY if n not in ("atan2", "copysign", "hypot", "logaddexp")]
)
def test_functions_of_two_integer_arrays(name: str, dtype: str) -> None:
    x, y = INTS.astype(dtype)[:, None], np.array([-3, 1, 2], dtype)
    check(lambda x, y: getattr(namespace(x), name)(x, y), x, y)


@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "minimum", "equal", "less"])
def test_functions_of_two_bool_arrays(name: str) -> None:
    check(lambda x, y: getattr(namespace(x), name)(x, y), BOOLS, ~BOOLS[:1])


def test_pow() -> None:
    check(lambda x, y: namespace(x).pow(x, y), np.abs(FLOATS)[:, None], np.array([-1.0, 0, 2.5]))
    check(lambda x, y: namespace(x).pow(x, y), INTS[:, None], np.array([0, 1, 3]))


def test_integer_to_a_negative_power_is_the_truncated_reciprocal() -> None:
    got = run(lambda x, y: x**y, np.array([-2, -1, -1, 1, 2]), np.array([-1, -1, -2, -5, -3]))
    assert got.tolist() == [0, -1, 1, 1, 0]


@pytest.mark.parametrize("name", ["logical_and", "logical_or", "logical_xor"])
@pytest.mark.parametrize("x", [BOOLS, np.array([0, 1, 2, 0])])
def test_logical_functions(name: str, x: Any) -> None:
    check(lambda x, y: getattr(namespace(x), name)(x, y), x, np.array([True, True, False, False]))


def test_logical_not() -> None:
    check(lambda x: namespace(x).logical_not(x), BOOLS)


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
@pytest.mark.parametrize(("x", "y"), [(INTS, INTS[::-1]), (BOOLS, BOOLS[::-1])])
def test_bitwise_functions(name: str, x: Any, y: Any) -> None:
    check(lambda x, y: getattr(namespace(x), name)(x, y), x, np.ascontiguousarray(y))


@pytest.mark.parametrize("x", [INTS, BOOLS])
def test_bitwise_invert(x: Any) -> None:
    check(lambda x: namespace(x).bitwise_invert(x), x)


@pytest.mark.parametrize("name", ["bitwise_left_shift", "bitwise_right_shift"])
def test_shifts(name: str) -> None:
    check(lambda x, y: getattr(namespace(x), name)(x, y), INTS, np.arange(8))


def test_nextafter() -> None:
    check(lambda x, y: namespace(x).nextafter(x, y), FLOATS, FLOATS[::-1].copy(), rtol=0, atol=0)


@pytest.mark.parametrize("limits", [(-1, 1), (None, 0.5), (0.5, None), (None, None)])
def test_clip(limits: tuple[float | None, float | None]) -> None:
    check(lambda x: namespace(x).clip(x, *limits), FLOATS)
    check(lambda x: namespace(x).clip(x, -2, 2), INTS)


def test_where_with_arrays_and_numbers() -> None:
    condition = FLOATS > 0
    check(lambda c, x: namespace(x).where(c, x, -x), condition, FLOATS)
    check(lambda c, x: namespace(x).where(c, x, 0.5), condition, FLOATS.astype("f2"))
    check(lambda c, x: namespace(x).where(c[:, None], x, 1), condition, INTS)


def test_extensions_of_the_standard() -> None:
    x = np.linspace(-3, 3, 31)
    xp = axe_eq.array
    np.testing.assert_allclose(run(xp.erf, x), [math.erf(v) for v in x], rtol=1e-14)
    np.testing.assert_allclose(run(xp.sigmoid, x), 1 / (1 + np.exp(-x)), rtol=1e-14)
    np.testing.assert_allclose(run(xp.rsqrt, np.abs(x) + 1), (np.abs(x) + 1) ** -0.5, rtol=1e-14)
    np.testing.assert_array_equal(
        run(lambda x: xp.pad(x, 2, constant_values=7), x), np.pad(x, 2, constant_values=7)
    )


# -- operators of Python --------------------------------------------------------------------------

OPERATORS: dict[str, Function] = {
    "arithmetic": lambda x, y: (x + y, x - y, x * y, x / y, x // y, x % y, abs(x), -x, +x),
    "reflected": lambda x, y: (1 + x, 2 - x, 3 * x, 4 / y, 5 // y, 6 % y, 2.0**x),
    "comparison": lambda x, y: (x == y, x != y, x < y, x <= y, x > y, x >= y, x > 0, y == 1),
    "product": lambda x, y: (x[:2] @ y[:2], x[None, :] @ y[:, None]),
    "numpy scalar": lambda x, y: (x * np.float64(2), np.float32(0.5) + y, x * np.asarray(3.0)),
    "numpy array": lambda x, y: (np.arange(12.0) + x, x * np.arange(12.0), np.ones(12) @ x),
    "numpy function": lambda x, y: (np.exp(x), np.sum(y, axis=0), np.maximum(x, np.ones(12))),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_operators(name: str) -> None:
    check(OPERATORS[name], FLOATS, FLOATS[::-1] + 4.25)


def test_operators_of_integers_and_bools() -> None:
    check(
        lambda x, y: (x & y, x | y, x ^ y, ~x, x << 2, x >> 1, 3 & x, x**2), INTS, INTS[::-1].copy()
    )
    check(lambda x: (x & ~x, x | True, x ^ x), BOOLS)


def test_augmented_assignment_makes_new_values() -> None:
    def fn(x: Any) -> Any:
        y = x
        y += 1
        return x * y

    got = run(fn, INTS)
    np.testing.assert_array_equal(got, INTS * (INTS + 1))


@pytest.mark.parametrize(
    ("dtype", "number", "result"),
    [
        ("float16", 2, "float16"), ("float16", 2.5, "float16"), ("float32", True, "float32"),
        ("int32", 2, "int32"), ("int32", 2.5, "float64"), ("bool", 2, "int64"),
        ("bool", 2.5, "float64"), ("int64", True, "int64"),
    ],
)  # fmt: skip
def test_numbers_take_the_dtype_of_arrays(dtype: str, number: float, result: str) -> None:
    x = np.ones(3, dtype)
    assert (x + number).dtype == result
    check(lambda x: x + number, x)


# -- manipulation ---------------------------------------------------------------------------------

X = np.arange(24.0).reshape(2, 3, 4)

MANIPULATIONS: dict[str, Function] = {
    "permute_dims": lambda xp, x: (xp.permute_dims(x, (2, 0, 1)), xp.permute_dims(x, (0, 1, 2))),
    "matrix_transpose": lambda xp, x: (xp.matrix_transpose(x), x.mT, x[0].T),
    "moveaxis": lambda xp, x: (xp.moveaxis(x, 0, -1), xp.moveaxis(x, (0, 1), (2, 0))),
    "expand_dims": lambda xp, x: (xp.expand_dims(x, axis=0), xp.expand_dims(x, axis=-1)),
    "squeeze": lambda xp, x: (xp.squeeze(x[:1], axis=0), xp.squeeze(x[:1, :1], axis=(0, 1))),
    "broadcast_to": lambda xp, x: (xp.broadcast_to(x, (5, 2, 3, 4)),
                                   xp.broadcast_to(x[:, :1], x.shape)),
    "broadcast_arrays": lambda xp, x: xp.broadcast_arrays(x, x[0, 0], x[:, :, :1]),
    "reshape": lambda xp, x: [
        xp.reshape(x, s)
        for s in [(6, 4), (2, 12), (-1,), (4, 6), (2, 3, 2, 2), (1, 2, 1, 3, 4), (3, 2, 4), (24, 1),
                  (2, 3, 4), (8, -1)]
    ],
    "reshape ones": lambda xp, x: (xp.reshape(x[:1, :, :1], (3,)), xp.reshape(x[:1], (3, 1, 4)),
                                   xp.reshape(x[0, 0, 0], (1, 1)), xp.reshape(x[:1, :1, :1], ())),
    "concat": lambda xp, x: (xp.concat([x, -x, x[:1]]), xp.concat([x, x[:, :, :1]], axis=-1),
                             xp.concat([x, x], axis=None)),
    "concat dtypes": lambda xp, x: xp.concat([xp.astype(x, xp.float32), x]),
    "stack": lambda xp, x: (xp.stack([x, x + 1]), xp.stack([x, x + 1], axis=-1)),
    "unstack": lambda xp, x: (xp.unstack(x), xp.unstack(x, axis=-2)),
    "flip": lambda xp, x: (xp.flip(x), xp.flip(x, axis=1), xp.flip(x, axis=(0, -1))),
    "roll": lambda xp, x: (xp.roll(x, 1), xp.roll(x, -5, axis=-1), xp.roll(x, (1, 2), axis=(0, 2)),
                           xp.roll(x, 4, axis=2)),
    "repeat": lambda xp, x: (xp.repeat(x, 2), xp.repeat(x, 3, axis=1)),
    "tile": lambda xp, x: (xp.tile(x, (2,)), xp.tile(x, (2, 1, 3)), xp.tile(x, (2, 1, 1, 2))),
    "tril": lambda xp, x: (xp.tril(x), xp.tril(x, k=1), xp.triu(x), xp.triu(x, k=-1)),
    "astype": lambda xp, x: [xp.astype(x, t) for t in (xp.float32, xp.int64, xp.bool)],
}  # fmt: skip


@pytest.mark.parametrize("name", MANIPULATIONS)
def test_manipulation(name: str) -> None:
    check(lambda x: MANIPULATIONS[name](namespace(x), x), X, rtol=0, atol=0)


INDICES: list[Any] = [
    0, -1, (1, 2, 3), slice(1, 2), slice(None, None, 2), slice(None, None, -1),
    (0, slice(3, 0, -2)), ..., (..., 1), (0, ..., 1), (None, 0), (..., None),
    (slice(None), None, 1), (slice(-2, None),), (slice(None), -1, -4),
    (slice(None), slice(1, 100)), (np.int64(1),), (slice(None), slice(None), slice(None)),
]  # fmt: skip


@pytest.mark.parametrize("key", INDICES, ids=str)
def test_basic_indexing(key: Any) -> None:
    check(lambda x: x[key], X, rtol=0, atol=0)


def test_iteration_and_unpacking() -> None:
    def fn(x: Any) -> Any:
        first, second = x
        return [first - second, *list(first)], len(x)

    check(lambda x: fn(x)[0], X)
    assert fn(X)[1] == 2


# -- statistics, searching, utilities -------------------------------------------------------------

Y = np.array([[[3.0, -1, 2], [5, 5, -7]], [[0, 0.5, 0.25], [-4, 8, 8]]])
AXES: list[Any] = [None, 0, -1, (0, 2), (0, 1, 2), ()]


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", AXES, ids=str)
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "all", "any", "var", "std"])
def test_reductions(name: str, axis: Any, keepdims: bool) -> None:
    check(lambda x: getattr(namespace(x), name)(x, axis=axis, keepdims=keepdims), Y)


@pytest.mark.parametrize("dtype", ["bool", "int32", "int64", "float16", "float32"])
@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "all", "any"])
def test_reductions_of_every_dtype(name: str, dtype: str) -> None:
    check(lambda x: getattr(namespace(x), name)(x, axis=-1), (Y * 2).astype(dtype), rtol=1e-3)


def test_reductions_take_a_dtype() -> None:
    check(lambda x: namespace(x).sum(x, dtype=namespace(x).float64), Y.astype("f4"))


def test_variance_takes_a_correction() -> None:
    check(lambda x: namespace(x).var(x, axis=0, correction=1.0), Y)


def test_means_of_half_types_do_not_overflow() -> None:
    x = np.full(4096, 300.0, np.float16)
    assert float(run(lambda x: axe_eq.array.mean(x), x)) == 300.0


@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions_of_extremes_are_the_first(name: str, axis: int | None, keepdims: bool) -> None:
    check(lambda x: getattr(namespace(x), name)(x, axis=axis, keepdims=keepdims), Y)


@pytest.mark.parametrize("name", ["argmax", "argmin", "max", "min"])
def test_nan_wins_reductions(name: str) -> None:
    x = np.array([[1.0, math.nan, math.nan, 2.0], [3.0, 1.0, 3.0, 1.0]])
    check(lambda x: getattr(namespace(x), name)(x, axis=1), x)


@pytest.mark.parametrize("initial", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
def test_cumulative(name: str, axis: int, initial: bool) -> None:
    check(lambda x: getattr(namespace(x), name)(x, axis=axis, include_initial=initial), Y)
    check(lambda x: getattr(namespace(x), name)(x), np.arange(1, 8))


def test_count_nonzero_and_diff() -> None:
    check(lambda x: namespace(x).count_nonzero(x, axis=1), Y)
    check(lambda x: (namespace(x).diff(x), namespace(x).diff(x, axis=0, n=1)), Y)
    check(lambda x: namespace(x).diff(x, n=2, prepend=x[:, :, :1]), Y)


# -- products -------------------------------------------------------------------------------------

SHAPES = [
    ((3, 4), (4, 5)), ((4,), (4, 5)), ((3, 4), (4,)), ((4,), (4,)), ((2, 3, 4), (2, 4, 5)),
    ((2, 1, 3, 4), (6, 4, 5)), ((3, 4), (2, 4, 5)), ((2, 3, 4), (4,)), ((1, 3, 4), (7, 4, 1)),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32"])
@pytest.mark.parametrize(("a", "b"), SHAPES)
def test_matmul(
    a: tuple[int, ...], b: tuple[int, ...], dtype: str, rng: np.random.Generator
) -> None:
    x, y = (rng.integers(-4, 5, s).astype(dtype) for s in (a, b))
    check(lambda x, y: (namespace(x).matmul(x, y), x @ y), x, y)


def test_matmul_of_bools() -> None:
    x = np.array([[True, False], [True, True]])
    check(lambda x: (x @ x, x @ ~x), x)


@pytest.mark.parametrize("axes", [0, 1, 2, ((0, 2), (1, 0)), ((), ()), ((-1,), (-3,))])
def test_tensordot(axes: Any, rng: np.random.Generator) -> None:
    shapes = {1: ((2, 3, 4), (4, 5)), 2: ((2, 3, 4), (3, 4, 5)), 0: ((2, 3), (4,))}
    a, b = shapes.get(axes if isinstance(axes, int) else 3, ((2, 3, 4), (4, 2, 3)))
    check(
        lambda x, y: namespace(x).tensordot(x, y, axes=axes), rng.normal(size=a), rng.normal(size=b)
    )


@pytest.mark.parametrize("axis", [-1, -2])
def test_vecdot(axis: int, rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(2, 3, 4)), rng.normal(size=(3, 4))
    check(lambda x, y: namespace(x).vecdot(x, y, axis=axis), x, y)


# -- creation, dtypes -----------------------------------------------------------------------------

CREATIONS: dict[str, Function] = {
    "zeros": lambda xp: (xp.zeros((2, 3)), xp.zeros(2, dtype=xp.int32), xp.zeros(())),
    "ones": lambda xp: (xp.ones((2, 3), dtype=xp.float32), xp.ones((1,), dtype=xp.bool)),
    "full": lambda xp: (xp.full((2,), 1.5), xp.full((2,), 3), xp.full((2,), True),
                        xp.full((2, 2), 1.5, dtype=xp.float32)),
    "arange": lambda xp: (xp.arange(5), xp.arange(2, 9, 3), xp.arange(9, 2, -3),
                          xp.arange(0.5, 2.1, 0.5), xp.arange(4, dtype=xp.float32),
                          xp.arange(1, 4, dtype=xp.int32)),
    "far ranges": lambda xp: tuple(
        xp.arange(*ends, dtype=getattr(xp, kind))
        for ends in ((2**31 - 2, 2**31 + 3), (-5, 9, 3), (0, 2**33, 2**31), (-(2**31), 3 - 2**31))
        for kind in ("int64", "float32", "float64")),
    "eye": lambda xp: (xp.eye(3), xp.eye(2, 4, k=1), xp.eye(3, k=-1, dtype=xp.int32)),
    "linspace": lambda xp: (xp.linspace(0, 1, 7), xp.linspace(2.0, -1.0, 5, endpoint=False),
                            xp.linspace(3, 4, 1), xp.linspace(0, 2, 5, dtype=xp.float32)),
    "asarray": lambda xp: (xp.asarray(2.5), xp.asarray([[1, 2], [3, 4]]), xp.asarray([True, False]),
                           xp.asarray([1, 2], dtype=xp.float32), xp.asarray(3, dtype=xp.float32)),
    "meshgrid": lambda xp: (xp.meshgrid(xp.arange(3), xp.arange(2)),
                            xp.meshgrid(xp.arange(3), xp.arange(2), xp.arange(2), indexing="ij")),
    "constants": lambda xp: xp.asarray([xp.e, xp.pi, xp.inf]),
}  # fmt: skip


@pytest.mark.parametrize(("last", "counted"), [(131, "i32"), (2**31 + 2, "i64")])
def test_ranges_are_counted_in_32_bits_where_these_hold_them(last: int, counted: str) -> None:
    def fn(x: Any) -> Any:
        return x + axe_eq.array.arange(last - 130, last, dtype="f32")

    assert {n.dtype for n in axe_eq.trace(fn, "130:f32").nodes()} == {"f32", counted}


@pytest.mark.parametrize("name", CREATIONS)
def test_creation(name: str) -> None:
    check(lambda x: CREATIONS[name](namespace(x)), X, rtol=1e-12)


def test_creation_like_an_array() -> None:
    def fn(x: Any) -> Any:
        xp = namespace(x)
        return (xp.zeros_like(x), xp.ones_like(x, dtype=xp.int32), xp.full_like(x, 2.5),
                xp.empty_like(x) * 0, xp.empty(x.shape) * 0)  # fmt: skip

    check(fn, X.astype("f4"))


def test_dtypes_are_names_and_compare() -> None:
    def fn(x: Any) -> Any:
        xp = namespace(x)
        assert x.dtype == xp.float32
        assert xp.isdtype(x.dtype, "real floating")
        assert xp.isdtype(x.dtype, ("integral", "real floating"))
        assert not xp.isdtype(x.dtype, xp.float64)
        assert xp.result_type(x, 1.0) == xp.float32
        assert xp.result_type(x, xp.float64) == xp.float64
        assert xp.can_cast(xp.float32, xp.float64)
        assert not xp.can_cast(xp.float64, xp.float32)
        assert xp.finfo(x.dtype).bits == 32
        assert xp.finfo(x.dtype).eps == np.finfo(np.float32).eps
        assert xp.iinfo(xp.int32).max == 2**31 - 1
        return x + 0

    check(fn, X.astype("f4"))


def test_namespace_inspection() -> None:
    info = axe_eq.array.__array_namespace_info__()
    assert info.default_dtypes()["real floating"] == axe_eq.array.float64
    assert set(info.dtypes(kind="integral")) == {"i8", "u8", "i16", "i32", "i64"}
    assert info.capabilities()["data-dependent shapes"] is False
    assert (info.devices(), info.default_device()) == (["traced"], "traced")


def test_the_namespace_lists_every_function_once() -> None:
    parts = (
        "creation", "dtypes", "elementwise", "linalg", "lookups", "manipulation", "reductions",
    )  # fmt: skip
    modules = [import_module(f"axe_eq.program.array.{part}") for part in parts]
    given = [name for module in modules for name in module.__all__] + ["block", "select"]
    assert sorted(axe_eq.array.__all__) == sorted(given)
    assert all(hasattr(axe_eq.array, name) for name in given)


# The functions of array API standard 2024.12 that this namespace leaves out, by reason.
LEFT_OUT = {
    "complex numbers": "conj imag real",
    "shapes that depend on values": "nonzero unique_all unique_counts unique_inverse unique_values",
    "sorting": "argsort sort searchsorted",
}


STANDARD = """
abs acos acosh add asin asinh atan atan2 atanh bitwise_and bitwise_left_shift bitwise_invert
bitwise_or bitwise_right_shift bitwise_xor ceil clip conj copysign cos cosh divide equal exp
expm1 floor floor_divide greater greater_equal hypot imag isfinite isinf isnan less
less_equal log log1p log2 log10 logaddexp logical_and logical_not logical_or logical_xor
maximum minimum multiply negative nextafter not_equal positive pow real reciprocal remainder
round sign signbit sin sinh square sqrt subtract tan tanh trunc arange asarray empty
empty_like eye from_dlpack full full_like linspace meshgrid ones ones_like tril triu zeros
zeros_like astype broadcast_arrays broadcast_to can_cast finfo iinfo isdtype result_type
matmul matrix_transpose tensordot vecdot broadcast_to concat expand_dims flip moveaxis
permute_dims repeat reshape roll squeeze stack tile unstack argmax argmin argsort
count_nonzero nonzero searchsorted sort where unique_all unique_counts unique_inverse
unique_values cumulative_prod cumulative_sum max mean min prod std sum var all any diff take
take_along_axis e inf nan newaxis pi bool float32 float64 int32 int64
"""


def test_the_namespace_has_the_whole_standard_but_what_is_left_out() -> None:
    import array_api_compat.numpy as whole

    left_out = set(" ".join(LEFT_OUT.values()).split())
    standard = set(STANDARD.split())
    assert all(hasattr(whole, name) for name in standard)
    missing = {name for name in standard if not hasattr(axe_eq.array, name)}
    assert missing == left_out


def test_names_of_numpy_that_the_standard_changed_say_the_new_ones() -> None:
    for name, new in {"cumsum": "cumulative_sum", "transpose": "permute_dims"}.items():
        with pytest.raises(axe_eq.errors.NotBuilt, match=f"'{name}': .*; expected {new}$"):
            getattr(axe_eq.array, name)
    assert all(hasattr(axe_eq.array, new) for new in axe_eq.array._CALLED.values())


@pytest.mark.parametrize("name", ["searchsorted", "sort", "argsort", "nonzero"])
def test_a_function_that_is_not_built_says_why_and_does_not_exist(name: str) -> None:
    """Code that looks for it takes another way; code that calls it is told at its own line."""
    assert not hasattr(axe_eq.array, name)
    with pytest.raises(axe_eq.ProgramError) as refused:
        axe_eq.trace(lambda x: getattr(axe_eq.array, name)(x), "8:f32")
    assert refused.value.thing == f"array function {name!r}"
    assert "built" in refused.value.wrong or "depends on values" in refused.value.wrong
    assert "test_array_functions.py" in refused.value.at
    with pytest.raises(AttributeError, match="has no attribute 'tak'"):
        axe_eq.array.tak  # type: ignore[attr-defined]  # noqa: B018
