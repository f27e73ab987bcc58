"""What instructions compute, against numpy written out: random values and extreme ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from axe_eq_backends.nki.sim.dtypes import cast
from axe_eq_backends.nki.sim.isa import INSTRUCTIONS
from axe_eq_backends.nki.sim.ops import OPS
from tests.unit.nki.sim.tiles import BF16, F32, NISA, NL, Array, draw, on_tiles, same

EXTREME = np.array(
    [
        0.0,
        -0.0,
        1.0,
        -1.0,
        np.inf,
        -np.inf,
        np.nan,
        3.4e38,
        -3.4e38,
        1e-45,
        -1e-40,
        1.5,
        2.5,
        -2.5,
        65504.0,
        1e30,
    ],
    F32,
)


BINARY = sorted(n for n, op in OPS.items() if op.kind == "arithmetic" and n != "bypass")


@pytest.mark.parametrize("name", BINARY)
def test_arithmetic_of_two_tiles_is_in_float32(name: str, rng: np.random.Generator) -> None:
    a = np.concatenate([draw(rng, 16, 16), np.resize(EXTREME, (16, 16))], 1)
    b = np.concatenate([draw(rng, 16, 16), np.resize(EXTREME, (16, 17))[:, 1:]], 1)
    plain: Callable[[Any, Any], Any] = {
        "add": lambda x, y: x + y, "subtract": lambda x, y: x - y, "multiply": lambda x, y: x * y,
        "divide": lambda x, y: x / y, "power": lambda x, y: x**y, "equal": lambda x, y: x == y,
        "mod": lambda x, y: np.mod(x, y), "fmod": lambda x, y: np.fmod(x, y),
        "maximum": lambda x, y: y if y > x or y != y else x, "not_equal": lambda x, y: x != y,
        "minimum": lambda x, y: y if y < x or y != y else x, "less": lambda x, y: x < y,
        "less_equal": lambda x, y: x <= y, "greater": lambda x, y: x > y,
        "greater_equal": lambda x, y: x >= y, "abs_max": lambda x, y: x if abs(x) > abs(y) else y,
        "abs_min": lambda x, y: x if abs(x) < abs(y) else y,
        "logical_and": lambda x, y: x != 0 and y != 0, "logical_or": lambda x, y: x != 0 or y != 0,
        "logical_xor": lambda x, y: (x != 0) != (y != 0),
    }[name]  # fmt: skip
    with np.errstate(all="ignore"):
        wanted = np.array(
            [
                [F32.type(plain(x, y)) for x, y in zip(p, q, strict=True)]
                for p, q in zip(a, b, strict=True)
            ]
        )
    got = on_tiles(
        lambda d, x, y: NISA.tensor_tensor(dst=d, data1=x, data2=y, op=OPS[name]),
        a,
        b,
        shape=a.shape,
    )
    np.testing.assert_allclose(got, wanted, 1e-6)
    got = on_tiles(
        lambda d, x, y: NISA.tensor_scalar(dst=d, data=x, op0=OPS[name], operand0=y[0:16, 3:4]),
        a,
        b,
        shape=a.shape,
    )
    with np.errstate(all="ignore"):
        wanted = np.array(
            [[F32.type(plain(x, q[3])) for x in p] for p, q in zip(a, b, strict=True)]
        )
    np.testing.assert_allclose(got, wanted, 1e-6)


ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "copy": lambda x: x,
    "square": lambda x: x * x,
    "abs": abs,
    "relu": lambda x: max(x, 0.0),
    "exp": lambda x: math.exp(x) if x < 709 else math.inf,
    "tanh": math.tanh,
    "erf": math.erf,
    "sigmoid": lambda x: 1 / (1 + math.exp(-x)) if x > -700 else 0.0,
    "silu": lambda x: x / (1 + math.exp(-x)),
    "softplus": lambda x: math.log1p(math.exp(x)),
    "silu_dx": lambda x: (lambda s: s * (1 + x * (1 - s)))(1 / (1 + math.exp(-x))),
    "gelu": lambda x: x * (1 + math.erf(x / math.sqrt(2))) / 2,
    "gelu_dx": lambda x: (
        (1 + math.erf(x / math.sqrt(2))) / 2 + x * math.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    ),
    "gelu_apprx_tanh": lambda x: (
        x / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    ),
    "gelu_apprx_sigmoid": lambda x: x / (1 + math.exp(-1.702 * x)),
    "gelu_apprx_sigmoid_dx": lambda x: (lambda s: s * (1 + 1.702 * x * (1 - s)))(
        1 / (1 + math.exp(-1.702 * x))
    ),
    "mish": lambda x: x * math.tanh(math.log1p(math.exp(x))),
    "sin": math.sin,
    "arctan": math.atan,
    "erf_dx": lambda x: 2 / math.sqrt(math.pi) * math.exp(-x * x),
    "sign": lambda x: int(x > 0) - int(x < 0),
    "log": lambda x: math.log(abs(x)),
    "sqrt": lambda x: math.sqrt(abs(x)),
    "rsqrt": lambda x: 1 / math.sqrt(abs(x)),
    "reciprocal": lambda x: 1 / x,
}


def test_every_activation_has_its_function_here() -> None:
    assert set(ACTIVATIONS) == {n for n, op in OPS.items() if op.activation}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_an_activation_scales_adds_applies_and_sums(name: str, rng: np.random.Generator) -> None:
    x, scale, bias = draw(rng, 8, 24), abs(draw(rng, 8, 1)) + 0.5, abs(draw(rng, 8, 1)) / 9
    x = abs(x) + 0.1 if name in ("log", "sqrt", "rsqrt") else x
    total: list[Array] = []

    def act(dst: Any, t: Any, s: Any, b: Any) -> None:
        res = NL.ndarray((8, 1), dtype=NL.float32, buffer=NL.sbuf)
        for cmd in (NISA.reduce_cmd.reset_reduce, NISA.reduce_cmd.reduce):
            NISA.activation(dst=dst, op=OPS[name], data=t, scale=s, bias=b, reduce_op=NL.add,
                            reduce_res=res, reduce_cmd=cmd)  # fmt: skip
        total.append(res.array().copy())

    got = on_tiles(act, x, scale, bias, shape=x.shape)
    inside = (x * scale + bias).astype(np.float64)
    wanted = np.array([[ACTIVATIONS[name](v) for v in row] for row in inside])
    same(got, wanted, 2e-5)
    same(total[0], 2 * wanted.sum(1, keepdims=True), 1e-4)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "uint8", "uint16", "uint32"])
def test_floats_become_integers_by_rounding_to_even_and_saturating(dtype: str) -> None:
    values = np.array(
        [[0.5, 1.5, 2.5, -0.5, -1.5, 1e9, -1e9, 5e9, -5e9, 127.5, 254.5, 0.49999997]], F32
    )
    kind = np.dtype(dtype)
    limits = np.iinfo(kind)
    wanted = [min(max(round(float(v)), limits.min), limits.max) for v in values[0]]
    got = on_tiles(
        lambda d, x: NISA.tensor_copy(dst=d, src=x), values, shape=values.shape, dtype=kind
    )
    assert got[0].tolist() == wanted
    got = on_tiles(
        lambda d, x: NISA.activation(dst=d, op=NL.copy, data=x),
        values,
        shape=values.shape,
        dtype=kind,
    )
    assert got[0].tolist() == wanted


@pytest.mark.parametrize("dtype", ["int32", "uint32", "int8", "uint16"])
def test_bits_are_bits(dtype: str, rng: np.random.Generator) -> None:
    kind = np.dtype(dtype)
    limits, width = np.iinfo(kind), 8 * kind.itemsize
    a = rng.integers(limits.min, limits.max, (4, 9), kind, endpoint=True)
    a[0, :3] = limits.min, limits.max, 0
    b = rng.integers(0, width, (4, 9)).astype(kind)
    mask = (1 << width) - 1
    plain: dict[str, Callable[[int, int], int]] = {
        "bitwise_and": lambda x, y: x & y,
        "bitwise_or": lambda x, y: x | y,
        "bitwise_xor": lambda x, y: x ^ y,
        "left_shift": lambda x, y: (x & mask) << y & mask,
        "right_shift": lambda x, y: (x & mask) >> y,
    }
    for name, bit in plain.items():
        wanted = np.array(
            [
                [bit(int(x), int(y)) & mask for x, y in zip(p, q, strict=True)]
                for p, q in zip(a, b, strict=True)
            ]
        )
        got = on_tiles(
            lambda d, x, y, n=name: NISA.tensor_tensor(dst=d, data1=x, data2=y, op=OPS[n]),
            a,
            b,
            shape=a.shape,
            dtype=kind,
        )
        assert (got.view(f"u{kind.itemsize}") == wanted).all(), name
    got = on_tiles(
        lambda d, x: NISA.tensor_scalar(
            dst=d, data=x, op0=NL.invert, operand0=None, op1=NL.bitwise_and, operand1=3
        ),
        a,
        shape=a.shape,
        dtype=kind,
    )
    assert (got == (~a & kind.type(3))).all()


def test_sums_of_32_bit_integers_are_exact_on_gpsimd_and_rounded_on_vector(
    rng: np.random.Generator,
) -> None:
    a = np.array([[2**30 + 1, -(2**31), 2**31 - 1, 16777217]], np.int32)
    b = np.array([[2**20 + 1, -1, 1, 16777217]], np.int32)

    def act(engine: Any) -> Callable[..., None]:
        return lambda d, x, y: NISA.tensor_tensor(dst=d, data1=x, data2=y, op=NL.add, engine=engine)

    exact = on_tiles(act(NISA.engine.unknown), a, b, shape=a.shape, dtype=np.int32)
    wrapped = [(int(x) + int(y) + 2**31) % 2**32 - 2**31 for x, y in zip(a[0], b[0], strict=True)]
    assert exact[0].tolist() == wrapped
    rounded = on_tiles(act(NISA.engine.vector), a, b, shape=a.shape, dtype=np.int32)
    assert (
        rounded[0].tolist() == cast(a.astype(F32) + b.astype(F32), np.dtype(np.int32))[0].tolist()
    )


@pytest.mark.parametrize(
    "dtype", [F32, BF16, np.dtype(np.float16), np.dtype(ml_dtypes.float8_e5m2)]
)
def test_a_product_of_every_dtype(dtype: Any, rng: np.random.Generator) -> None:
    a, b = draw(rng, 70, 33, dtype=dtype), draw(rng, 70, 129, dtype=dtype)
    got = on_tiles(
        lambda d, x, y: NISA.nc_matmul(dst=d, stationary=x, moving=y),
        a,
        b,
        shape=(33, 129),
        psum=True,
    )
    same(got, a.astype(np.float64).T @ b.astype(np.float64), 1e-5)


def test_products_overwrite_and_accumulate(rng: np.random.Generator) -> None:
    a, b = draw(rng, 16, 8), draw(rng, 16, 12)

    def act(flags: tuple[Any, ...]) -> Callable[..., None]:
        def products(d: Any, x: Any, y: Any) -> None:
            for flag in flags:
                NISA.nc_matmul(dst=d, stationary=x, moving=y, accumulate=flag)

        return products

    one = a.astype(np.float64).T @ b
    for flags, times in (
        ((None,), 1),
        ((None, None, None), 3),
        ((False, True), 2),
        ((False, False), 1),
    ):
        same(on_tiles(act(flags), a, b, shape=(8, 12), psum=True), times * one, 1e-5)


def test_double_row_contracts_pairs(rng: np.random.Generator) -> None:
    kind = np.dtype(ml_dtypes.float8_e4m3)
    a, b = draw(rng, 32, 2, 8, dtype=kind), draw(rng, 32, 2, 16, dtype=kind)
    got = on_tiles(
        lambda d, x, y: NISA.nc_matmul(
            dst=d, stationary=x, moving=y, perf_mode=NISA.matmul_perf_mode.double_row
        ),
        a,
        b,
        shape=(8, 16),
        psum=True,
    )
    same(got, np.einsum("kjm,kjn->mn", a.astype(np.float64), b.astype(np.float64)), 1e-5)


@pytest.mark.parametrize("dtype", [F32, BF16, np.dtype(np.int8)])
def test_a_transpose_moves_bits(dtype: Any, rng: np.random.Generator) -> None:
    x = (rng.standard_normal((100, 64)) * 50).astype(dtype)
    x.view(np.uint8)[0, :4] = 255  # a NaN of floats
    got = on_tiles(
        lambda d, t: NISA.nc_transpose(dst=d, data=t), x, shape=(64, 100), dtype=dtype, psum=True
    )
    assert got.tobytes() == x.T.copy().tobytes()
    small = x[:32, :20].copy()
    got = on_tiles(lambda d, t: NISA.nc_transpose(dst=d, data=t, engine=NISA.engine.vector), small,
                   shape=(20, 32), dtype=dtype)  # fmt: skip
    assert got.tobytes() == small.T.copy().tobytes()


def test_reductions_of_the_last_dims(rng: np.random.Generator) -> None:
    x = draw(rng, 6, 3, 4, 5)
    for name, plain in (
        ("add", np.sum),
        ("maximum", np.max),
        ("minimum", np.min),
        ("multiply", np.prod),
    ):
        for axis in ((3,), (2, 3), (1, 2, 3), 3, -1):
            wanted = plain(x.astype(np.float64), axis)
            shape = wanted.shape if wanted.ndim > 1 else (6, 1)
            got = on_tiles(
                lambda d, t, n=name, a=axis: NISA.tensor_reduce(
                    dst=d, op=OPS[n], data=t, axis=a, negate=True
                ),
                x,
                shape=shape,
            )
            same(got.reshape(wanted.shape), -wanted, 1e-5)
    got = on_tiles(
        lambda d, t: NISA.tensor_reduce(dst=d, op=NL.subtract, data=t, axis=3), x, shape=(6, 3, 4)
    )
    same(got, x[..., 0] - x[..., 1:].sum(-1), 1e-5)


def test_two_operators_in_order_and_reversed(rng: np.random.Generator) -> None:
    x, y, s = draw(rng, 5, 7), draw(rng, 5, 7), draw(rng, 5, 1)
    for r0 in (False, True):
        for r1 in (False, True):
            first = s - x if r0 else x - s
            wanted = 2.0 / first if r1 else first / 2.0
            got = on_tiles(
                lambda d, t, u, a=r0, b=r1: NISA.tensor_scalar(
                    dst=d,
                    data=t,
                    op0=NL.subtract,
                    operand0=u,
                    reverse0=a,
                    op1=NL.divide,
                    operand1=2.0,
                    reverse1=b,
                ),
                x,
                s,
                shape=x.shape,
            )
            same(got, wanted, 1e-5)
            wanted = y / first if r1 else first / y
            got = on_tiles(
                lambda d, t, u, v, a=r0, b=r1: NISA.scalar_tensor_tensor(
                    dst=d,
                    data=t,
                    op0=NL.subtract,
                    operand0=u,
                    reverse0=a,
                    op1=NL.divide,
                    operand1=v,
                    reverse1=b,
                ),
                x,
                s,
                y,
                shape=x.shape,
            )
            same(got, wanted, 1e-5)


def test_scans(rng: np.random.Generator) -> None:
    a, b, start = draw(rng, 4, 30), draw(rng, 4, 30), draw(rng, 4, 1)
    held, wanted = start[:, 0].astype(np.float64), np.empty((4, 30))
    for i in range(30):
        held = wanted[:, i] = a[:, i] * held + b[:, i]
    got = on_tiles(
        lambda d, x, y, s: NISA.tensor_tensor_scan(
            dst=d, data0=x, data1=y, initial=s, op0=NL.multiply, op1=NL.add
        ),
        a,
        b,
        start,
        shape=a.shape,
    )
    same(got, wanted, 1e-5)
    got = on_tiles(
        lambda d, x: NISA.tensor_scalar_cumulative(
            dst=d, src=x, op0=NL.multiply, op1=NL.add, imm0=2.0
        ),
        a,
        shape=a.shape,
    )
    same(got, np.cumsum(2.0 * a.astype(np.float64), 1), 1e-5)


def test_a_reduction_beside_a_tensor_scalar(rng: np.random.Generator) -> None:
    x = draw(rng, 4, 10)
    results: list[Array] = []

    def act(dst: Any, t: Any) -> None:
        res = NL.ndarray((4, 1), dtype=NL.float32, buffer=NL.sbuf)
        steps = (
            (NISA.reduce_cmd.reset_reduce, None),
            (NISA.reduce_cmd.reduce, None),
            (NISA.reduce_cmd.load_reduce, 99.0),
        )
        for cmd, start in steps:
            NISA.tensor_scalar_reduce(
                dst=dst,
                data=t,
                op0=NL.add,
                operand0=float(len(results)),
                reduce_op=NL.maximum,
                reduce_res=res,
                reduce_cmd=cmd,
                reduce_init=start,
                reduce_res_negate=True,
            )
            results.append(-res.array().copy())

    same(on_tiles(act, x, shape=x.shape), x + 2)
    most = x.max(1, keepdims=True)
    for got, wanted in zip(results, (most, most + 1, np.full((4, 1), 99.0)), strict=True):
        same(got, wanted)


def test_the_newest_machine_has_more(rng: np.random.Generator) -> None:
    x, most = draw(rng, 4, 9), draw(rng, 4, 1)
    got = on_tiles(
        lambda d, t, m: NISA.exponential(dst=d, src=t, max_value=m),
        x,
        most,
        shape=x.shape,
        target="trn3",
    )
    same(got, np.exp(x - most), 1e-5)
    got = on_tiles(
        lambda d, t: NISA.activate2(
            dst=d, op=NL.exp, data=t, imm0=2.0, imm1=0.5, op0=NL.multiply, op1=NL.add
        ),
        x,
        shape=x.shape,
        target="trn3",
    )
    same(got, np.exp(x * 2 + 0.5), 1e-5)
    got = on_tiles(lambda d, t: NISA.reciprocal(dst=d, data=t), x, shape=x.shape)
    same(got, 1 / x, 1e-6)
    got = on_tiles(
        lambda d, t: NISA.tensor_partition_reduce(dst=d, op=NL.add, data=t), x, shape=(1, 9)
    )
    same(got, x.sum(0, keepdims=True), 1e-5)


def test_every_instruction_is_tried_here() -> None:
    files = Path(__file__).parent.glob("test_*.py")
    text = "".join(f.read_text(encoding="utf-8") for f in files)
    untried = {name for name in INSTRUCTIONS if f"NISA.{name}(" not in text}
    assert untried == set()
