"""Kernels of forty cones: right at both levels of the interpreter, compiled, and right on a GPU.

A cone is a kernel, random arrays, and the expected outputs from float64 numpy formulas that share
no code with cells, schedules or interpreter.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from axe_eq.kernel.cells import Cell, apply, arg
from axe_eq.kernel.placement import number
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.kernel.threads.dispatch import Planned
from axe_eq.kernel.threads.interp import ORDERS, interpret
from axe_eq.kernel.threads.ir import span
from axe_eq_backends.cuda.compile import compile_text
from axe_eq_backends.cuda.emit import emit
from axe_eq_backends.cuda.meaning import MEANINGS
from axe_eq_backends.cuda.mma import fragment
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.schedules.gemm import Extra, Matrix, Problem, Tiling, gemm, parameters
from axe_eq_backends.cuda.schedules.map import elementwise
from axe_eq_backends.cuda.schedules.rows import Reduction, reduce_rows
from axe_eq_backends.cuda.schedules.sweeps import SweepTiling, sweep
from axe_eq_backends.cuda.schedules.tails import Problem as Rows
from axe_eq_backends.cuda.schedules.tensors import Operand, dense
from axe_eq_backends.cuda.schedules.tiles import panels
from axe_eq_backends.cuda.schedules.transpose import turn
from axe_eq_backends.cuda.target import h200

Arrays = dict[str, Any]
Outputs = list[tuple[Operand, Cell]]
NUMPY = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "i32": np.int32}
erf = np.vectorize(math.erf)


@dataclass(frozen=True)
class Cone:
    kernel: ir.Kernel
    arrays: Arrays
    expected: Arrays
    params: dict[str, int]
    tolerance: float


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def normal(shape: tuple[int, ...], dtype: str = "f16", seed: int = 0) -> Any:
    return rng(seed).standard_normal(shape).astype(NUMPY[dtype])


def wide(x: Any) -> Any:
    return np.asarray(x).astype(np.float64)


# -- products --


RESULT = Matrix("C")
ROW_BY_ROW = ((Matrix("A"), Matrix("B")),)


def product(
    size: tuple[int, int, int],
    tiling: Tiling,
    fn: Callable[..., Any] | None = None,
    cell: Cell | None = None,
    extras: tuple[Extra, ...] = (),
    products: tuple[tuple[Matrix, Matrix], ...] = ROW_BY_ROW,
    out: Matrix = RESULT,
    static: bool = False,
    divisors: tuple[int, int, int] = (1, 8, 8),
) -> Cone:
    m, n, k = size
    extents: Any = size if static else parameters(divisors)
    problem = Problem(extents[0], extents[1], extents[2], products, cell or arg(0), extras, out)
    arrays: Arrays = {}
    for n_th, (a, b) in enumerate(products):
        arrays.setdefault(a.name, normal((m, k), a.dtype, 10 + n_th))
        arrays.setdefault(b.name, normal((n, k), b.dtype, 20 + n_th))
    shapes = {"mn": (m, n), "m": (m,), "n": (n,)}
    for n_th, e in enumerate(extras):
        arrays[e.name] = normal(shapes[e.dims], e.dtype, 30 + n_th)
    accs = [wide(arrays[a.name]) @ wide(arrays[b.name]).T for a, b in products]
    ins = [wide(arrays[e.name])[:, None] if e.dims == "m" else wide(arrays[e.name]) for e in extras]
    expected = fn(*accs, *ins) if fn else accs[0]
    arrays[out.name] = np.zeros((m, n), NUMPY[out.dtype])
    params = {} if static else dict(zip("MNK", size, strict=True))
    return Cone(gemm(problem, tiling), arrays, {out.name: expected}, params, 3e-2)


SMALL = Tiling(128, 128, 64, 3, 2, 2)
X, Y = arg(0), arg(1)
RELU = apply("maximum", X, 0.0)
BIAS_RELU = apply("maximum", apply("add", X, Y), 0.0)
SILU_GATE = apply("mul", apply("mul", X, apply("sigmoid", X)), Y)
COLUMN_A, COLUMN_B = Matrix("A", major=0), Matrix("B", major=0)


def _gated(a: Any, b: Any) -> Any:
    return a / (1 + np.exp(-a)) * b


PRODUCTS: dict[str, Callable[[], Cone]] = {
    "plain": lambda: product((256, 256, 192), SMALL),
    "plain static": lambda: product((256, 256, 192), SMALL, static=True),
    "one step": lambda: product((128, 128, 64), SMALL, static=True),
    "ragged": lambda: product((200, 168, 136), SMALL),
    "ragged rows 1": lambda: product((1, 136, 72), SMALL),
    "tile 128x256": lambda: product((128, 512, 128), Tiling()),
    "tile 256x128": lambda: product((256, 128, 128), Tiling(256, 128, 64, 2)),
    "one consumer": lambda: product((128, 128, 128), Tiling(64, 128, 64, 4, 1)),
    "three consumers": lambda: product((200, 104, 136), Tiling(192, 96, 64, 2, 3, staging=1)),
    "side by side": lambda: product(
        (72, 200, 136), Tiling(64, 192, 64, 2, 2, across=2),
        lambda c, b: np.maximum(c + b, 0), BIAS_RELU, (Extra("bias", "n"),),
        products=((COLUMN_A, COLUMN_B),), divisors=(8, 8, 8),
    ),
    "two stages": lambda: product((128, 128, 320), Tiling(128, 128, 64, 2, 2, 1)),
    "a mn-major": lambda: product(
        (136, 128, 136), SMALL, products=((COLUMN_A, Matrix("B")),), divisors=(8, 8, 8)
    ),
    "b mn-major": lambda: product((128, 136, 136), SMALL, products=((Matrix("A"), COLUMN_B),)),
    "both mn-major": lambda: product(
        (128, 128, 72), SMALL, products=((COLUMN_A, COLUMN_B),), divisors=(8, 8, 8)
    ),
    "64-byte swizzle": lambda: product((128, 128, 96), Tiling(128, 128, 32, 4)),
    "32-byte swizzle": lambda: product((128, 128, 48), Tiling(128, 128, 16, 4)),
    "no swizzle": lambda: product(
        (128, 128, 128), Tiling(128, 128, 64, 2, forms={"A": "K none", "B": "K none"})
    ),
    "mn-major 64B and 32B": lambda: product(
        (128, 128, 72), Tiling(128, 128, 64, 2, forms={"A": "MN 64B", "B": "MN 32B"}),
        products=((COLUMN_A, COLUMN_B),), divisors=(8, 8, 8),
    ),
    "relu": lambda: product((128, 128, 64), SMALL, lambda c: np.maximum(c, 0), RELU),
    "bias+relu": lambda: product(
        (136, 136, 64), SMALL, lambda c, b: np.maximum(c + b, 0), BIAS_RELU, (Extra("bias", "n"),)
    ),
    "row scale": lambda: product(
        (136, 136, 64), SMALL, lambda c, s: c * s, apply("mul", X, Y), (Extra("scale", "m"),)
    ),
    "residual": lambda: product(
        (136, 136, 64), SMALL, lambda c, r: c + r, apply("add", X, Y), (Extra("R", "mn"),)
    ),
    "gated": lambda: product(
        (136, 136, 64), SMALL, _gated, SILU_GATE,
        products=((Matrix("A"), Matrix("B")), (Matrix("A"), Matrix("G"))),
    ),
    "column-major result": lambda: product(
        (136, 136, 64), SMALL, out=Matrix("C", major=0), divisors=(8, 8, 8)
    ),
    "f32 result": lambda: product((136, 136, 64), Tiling(128, 128, 64, 2), out=Matrix("C", "f32")),
    "bf16": lambda: product(
        (136, 136, 64), SMALL, products=((Matrix("A", "bf16"), Matrix("B", "bf16")),),
        out=Matrix("C", "bf16"),
    ),
    "unaligned result": lambda: product((130, 133, 72), SMALL, static=True),
    "padded leading dims": lambda: product(
        (128, 128, 128), SMALL, static=True,
        products=((Matrix("A", stride=136), Matrix("B", stride=200)),), out=Matrix("C", stride=160),
    ),
    "small staging": lambda: product((128, 256, 64), Tiling(128, 256, 64, 2, 2, 8, staging=1)),
}  # fmt: skip


# -- cells --


def cells(
    shape: tuple[int, ...],
    fn: Callable[..., Any],
    cell: Cell,
    operands: dict[str, tuple[str, Any]],
    out: str = "f16",
) -> Cone:
    ops, arrays, ins = [], {}, []
    for n_th, (name, (dtype, kept)) in enumerate(operands.items()):
        dims = range(len(shape)) if kept is None else kept
        value = normal(tuple(shape[d] for d in dims), dtype, n_th)
        if dtype == "i32":
            value = rng(n_th).integers(-50, 50, value.shape).astype(np.int32)
        ops.append(dense(name, dtype, shape, kept))
        arrays[name] = value
        ins.append(wide(value).reshape([e if d in dims else 1 for d, e in enumerate(shape)]))
    kernel = elementwise(shape, ops, [(dense("y", out, shape), cell)])
    arrays["y"] = np.zeros(shape, NUMPY[out])
    flat = {t.name: arrays[t.name].reshape([number(e) for e in t.shape]) for t in kernel.tensors}
    expected = np.broadcast_to(fn(*ins), shape).reshape(flat["y"].shape)
    return Cone(kernel, flat, {"y": expected}, {}, 5e-3)


T = apply("add", X, Y)
HALF_ERF = apply("add", apply("erf", apply("mul", T, 0.5**0.5)), 1.0)
GELU = apply("mul", apply("mul", T, 0.5), HALF_ERF)
SMALLER = apply("where", apply("lt", X, Y), X, apply("exp", Y))
F16, F32, BF16, I32 = ("f16", None), ("f32", None), ("bf16", None), ("i32", None)


def _gelu(x: Any, b: Any) -> Any:
    return 0.5 * (x + b) * (1 + erf((x + b) * 0.5**0.5))


CELLS: dict[str, Callable[[], Cone]] = {
    "bias+gelu": lambda: cells((9, 1000), _gelu, GELU, {"x": F16, "b": ("f16", [1])}),
    "one run": lambda: cells((5, 7, 64), lambda x: 2 * x, apply("mul", X, 2.0), {"x": F16}),
    "odd size": lambda: cells((3, 333), np.abs, apply("abs", X), {"x": F16}),
    "outer broadcast": lambda: cells(
        (6, 4, 72), np.subtract, apply("sub", X, Y), {"x": F16, "b": ("f32", [0, 2])}, "f32"
    ),
    "column broadcast": lambda: cells(
        (40, 96), np.multiply, apply("mul", X, Y), {"x": BF16, "s": ("f32", [0])}, "bf16"
    ),
    "integers": lambda: cells(
        (17, 40), np.maximum, apply("maximum", X, Y), {"x": I32, "z": ("i32", [1])}, "i32"
    ),
    "where": lambda: cells(
        (8, 64), lambda x, y: np.where(x < y, x, np.exp(y)), SMALLER, {"x": F32, "z": F32}, "f32"
    ),
    "one element": lambda: cells((1,), lambda x: x, X, {"x": F16}),
}


# -- rows --


EXP = apply("exp", apply("sub", X, Y))
SOFTMAX = [Reduction("max", X), Reduction("+", EXP)], apply("div", EXP, arg(2))


def _softmax(x: Any) -> Any:
    f = np.exp(x - x.max(-1, keepdims=True))
    return f / f.sum(-1, keepdims=True)


def softmax(shape: tuple[int, ...], across: int, dtype: str = "f16") -> Cone:
    steps, cell = SOFTMAX
    outputs: Outputs = [(dense("y", dtype, shape), cell)]
    kernel = reduce_rows(Rows(shape, 1, [dense("x", dtype, shape)], steps, outputs), across)
    x = normal(shape, dtype)
    arrays = {"x": x, "y": np.zeros(shape, NUMPY[dtype])}
    return Cone(kernel, arrays, {"y": _softmax(wide(x))}, {}, 1e-3)


def rmsnorm(shape: tuple[int, int], across: int) -> Cone:
    rows, cols = shape
    scale = apply("rsqrt", apply("add", apply("mul", arg(2), 1 / cols), 1e-6))
    problem = Rows(
        shape, 1, [dense("x", "f16", shape), dense("w", "f16", shape, [1])],
        [Reduction("+", apply("mul", X, X))],
        [(dense("y", "f16", shape), apply("mul", apply("mul", X, scale), Y)),
         (dense("r", "f32", shape, [0]), arg(2))],
    )  # fmt: skip
    kernel = reduce_rows(problem, across)
    x, w = normal(shape), normal((cols,), seed=1)
    squares = (wide(x) ** 2).sum(1)
    y = wide(x) / np.sqrt(squares[:, None] / cols + 1e-6) * wide(w)
    arrays = {"x": x, "w": w, "y": np.zeros(shape, np.float16), "r": np.zeros(rows, np.float32)}
    return Cone(kernel, arrays, {"y": y, "r": squares}, {}, 5e-3)


def row_values(shape: tuple[int, int], across: int, dtype: str = "f32", shift: float = 0) -> Cone:
    """Values of a row: a sum, extremes, and a sum that what lies past a row would change."""
    steps = [
        Reduction("+", X), Reduction("min", X), Reduction("max", X),
        Reduction("+", apply("add", X, 1.0)),
    ]  # fmt: skip
    names = ("s", "low", "high", "shifted")
    outputs: Outputs = [(dense(n, dtype, shape, [0]), arg(i + 1)) for i, n in enumerate(names)]
    kernel = reduce_rows(Rows(shape, 1, [dense("x", dtype, shape)], steps, outputs), across)
    x = normal(shape, dtype)
    if dtype == "i32":
        x = rng().integers(-1000, 1000, shape).astype(np.int32)
    w = wide(x)
    results = (w.sum(1), w.min(1), w.max(1), (w + 1).sum(1))
    arrays = {"x": x, **{n: np.zeros(shape[0], NUMPY[dtype]) for n in names}}
    return Cone(kernel, arrays, dict(zip(names, results, strict=True)), {}, 1e-3)


ROWS: dict[str, Callable[[], Cone]] = {
    "softmax 1000": lambda: softmax((5, 1000), 64),
    "softmax 4096": lambda: softmax((3, 4096), 256),
    "softmax 17": lambda: softmax((130, 17), 4),
    "softmax of an odd row": lambda: softmax((2, 3, 101), 32),
    "softmax f32": lambda: softmax((6, 64), 8, "f32"),
    "rmsnorm": lambda: rmsnorm((5, 1024), 128),
    "rmsnorm in a warp": lambda: rmsnorm((9, 200), 32),
    "row values": lambda: row_values((9, 333), 64),
    "row values of integers": lambda: row_values((4, 300), 128, "i32"),
}


# -- sweeps --


def swept_rows(shape: tuple[int, int], online: bool) -> Cone:
    """Softmax, and the sums, of rows in chunks."""
    steps, cell = SOFTMAX
    outputs: Outputs = [(dense("y", "f16", shape), cell), (dense("s", "f32", shape, [0]), arg(2))]
    tiling = SweepTiling(4, 1, 8 if shape[1] % 8 == 0 else 1, 64, 2)
    problem = Rows(shape, 1, [dense("x", "f16", shape)], steps, outputs)
    kernel = sweep(problem, tiling, online=online)
    x = normal(shape) * np.float16(3)
    x[0, : shape[1] // 2] = -np.inf  # a chunk without weights
    f = np.exp(wide(x) - wide(x).max(1, keepdims=True))
    arrays = {"x": x, "y": np.zeros(shape, np.float16), "s": np.zeros(shape[0], np.float32)}
    return Cone(kernel, arrays, {"y": _softmax(wide(x)), "s": f.sum(1)}, {}, 2e-3)


def swept_columns(rows: int, cols: int, dtype: str) -> Cone:
    """Values of columns of a dense matrix, and the matrix less its columns' means."""
    x = Operand("x", dtype, (1, cols))
    steps = [Reduction("+", X), Reduction("max", apply("abs", X))]
    mean = apply("mul", Y, 1 / rows)
    outputs: Outputs = [
        (Operand("s", "f32", (1, 0)), Y), (Operand("m", "f32", (1, 0)), arg(2)),
        (Operand("y", dtype, (1, cols)), apply("sub", X, mean)),
    ]  # fmt: skip
    wide_ = 16 // np.dtype(NUMPY[dtype]).itemsize
    kernel = sweep(Rows((cols, rows), 1, [x], steps, outputs), SweepTiling(4, 0, wide_, 8, 2))
    values = normal((rows, cols), dtype).T
    w = wide(values)
    zeros = {"s": np.zeros(cols, np.float32), "m": np.zeros(cols, np.float32)}
    return Cone(
        kernel, {"x": values, **zeros, "y": np.zeros_like(values)},
        {"s": w.sum(1), "m": np.abs(w).max(1), "y": w - w.mean(1, keepdims=True)}, {}, 2e-3,
    )  # fmt: skip


def swept_dims() -> Cone:
    """A sum over two dims that are no run, of a product with a row."""
    shape = (2, 5, 3, 40)  # kept, kept, reduced, reduced
    x, w = normal((2, 3, 5, 40)).transpose(0, 2, 1, 3), normal((3, 40), seed=1)
    operands = [Operand("x", "f16", (600, 40, 200, 1)), Operand("w", "f16", (0, 0, 40, 1))]
    outputs: Outputs = [(Operand("s", "f32", (5, 1, 0, 0)), arg(2))]
    steps = [Reduction("+", apply("mul", X, Y))]
    kernel = sweep(Rows(shape, 2, operands, steps, outputs), SweepTiling(4, 1, 8, 8, 1))
    expected = np.einsum("bthe,he->bt", wide(x), wide(w))
    arrays = {"x": x.transpose(0, 2, 1, 3), "w": w, "s": np.zeros((2, 5), np.float32)}
    return Cone(kernel, arrays, {"s": expected}, {}, 2e-3)


SWEEPS: dict[str, Callable[[], Cone]] = {
    "long rows": lambda: swept_rows((3, 3000), True),
    "long rows, no running maxima": lambda: swept_rows((3, 3000), False),
    "long odd rows": lambda: swept_rows((2, 1501), True),
    "columns": lambda: swept_columns(70, 88, "f16"),
    "columns f32": lambda: swept_columns(33, 50, "f32"),
    "two dims": swept_dims,
}


# -- relayouts --


def turned(
    shape: tuple[int, ...], dtype: str = "f16", cell: Cell = X, fn: Any = lambda x: x,
    warps: tuple[int, int] = (1, 1),
) -> Cone:  # fmt: skip
    """out[b, j, i] = cell(x[b, i, j]) for dense x of `shape`."""
    flat = normal(shape, dtype).reshape(-1, *shape[-2:])
    batch, rows, cols = flat.shape
    x = Operand("x", dtype, (rows * cols, 1, cols))
    out = Operand("out", dtype, (rows * cols, rows, 1))
    kernel = turn((batch, cols, rows), [x], [(out, cell)], warps)
    arrays = {"x": flat.swapaxes(1, 2), "out": np.zeros((batch, cols, rows), NUMPY[dtype])}
    return Cone(kernel, arrays, {"out": fn(wide(flat)).swapaxes(1, 2)}, {}, 1e-3)


def mixed_orders(rows: int, cols: int) -> Cone:
    """x^T + y with a weight per row and one per column; two results."""
    x, y = normal((rows, cols)).T, normal((cols, rows), seed=1)
    a, b = normal((cols,), "f32", 2), normal((rows,), seed=3)
    operands = [
        Operand("x", "f16", (1, cols)), Operand("y", "f16", (rows, 1)),
        Operand("a", "f32", (1, 0)), Operand("b", "f16", (0, 1)),
    ]  # fmt: skip
    cell = apply("add", apply("mul", X, arg(2)), apply("mul", Y, arg(3)))
    outputs: Outputs = [
        (dense("out", "f16", (cols, rows)), cell),
        (dense("o2", "f32", (cols, rows)), X),
    ]
    kernel = turn((cols, rows), operands, outputs, (2, 2))
    out = wide(x) * wide(a)[:, None] + wide(y) * wide(b)
    arrays = {"x": x, "y": y, "a": a, "b": b}
    arrays |= {"out": np.zeros((cols, rows), np.float16), "o2": np.zeros((cols, rows), np.float32)}
    return Cone(kernel, arrays, {"out": out, "o2": wide(x)}, {}, 2e-3)


TURNS: dict[str, Callable[[], Cone]] = {
    "transpose by blocks": lambda: turned((2, 128, 192), warps=(2, 4)),
    "transpose with tails": lambda: turned((72, 200)),
    "transpose by smaller blocks": lambda: turned((36, 68)),
    "transpose by elements": lambda: turned((33, 70)),
    "transpose f32": lambda: turned((2, 40, 65), "f32"),
    "transpose f32 by blocks": lambda: turned((2, 40, 68), "f32"),
    "transpose with a cell": lambda: turned((64, 72), cell=RELU, fn=lambda x: np.maximum(x, 0)),
    "mixed orders": lambda: mixed_orders(40, 72),
    "mixed orders by elements": lambda: mixed_orders(37, 45),
}


def by_warps(m: int, n: int, k: int) -> Cone:
    """A product of warps from registers, fed by ordinary async copies; extents need no
    alignment."""
    tile_m, tile_n, tile_k, warps = 64, 64, 32, (2, 2)
    b = ThreadBuilder("by_warps", 4)
    left, right = b.tensor("A", "f16", (m, k)), b.tensor("B", "f16", (n, k))
    out = b.tensor("C", "f32", (m, n), output=True)
    rings = [
        b.smem(name, "f16", (rows, tile_k), panels((), rows, tile_k, 2))
        for name, rows in (("ring_a", tile_m), ("ring_b", tile_n))
    ]
    x = b.reg("x", "f16", (tile_m, tile_k), fragment("a", tile_m, tile_k, warps))
    y = b.reg("y", "f16", (tile_n, tile_k), fragment("b", tile_n, tile_k, warps))
    acc = b.reg("acc", "f32", (tile_m, tile_n), fragment("c", tile_m, tile_n, warps))
    with b.tiles(-(-m // tile_m) * -(-n // tile_n), persistent=False) as tile:
        row, col = tile % -(-m // tile_m) * tile_m, tile // -(-m // tile_m) * tile_n
        with b.range(-(-k // tile_k)) as step:
            for ring, tensor, at in zip(rings, (left, right), (row, col), strict=True):
                part = tensor[span(at, 64), span(step * tile_k, tile_k)]
                b.copy_async(ring.all, part)
            b.commit("cp_async")
            b.wait_group("cp_async", 0)
            b.sync()
            b.copy(x.all, rings[0].all)
            b.copy(y.all, rings[1].all)
            b.gemm(acc.all, x.all, y.all, accumulate=step > 0)
            b.sync()
        b.copy(out[span(row, tile_m), span(col, tile_n)], acc.all)
    a, w = normal((m, k), seed=1), normal((n, k), seed=2)
    arrays = {"A": a, "B": w, "C": np.zeros((m, n), np.float32)}
    return Cone(b.finish(), arrays, {"C": wide(a) @ wide(w).T}, {}, 1e-3)


WARPS: dict[str, Callable[[], Cone]] = {
    "warp product": lambda: by_warps(64, 128, 64),
    "warp product with tails": lambda: by_warps(33, 70, 46),
}

CONES = {**PRODUCTS, **CELLS, **ROWS, **SWEEPS, **TURNS, **WARPS}


@cache
def cone(name: str) -> Cone:
    return CONES[name]()


@cache
def planned(name: str) -> Planned:
    return plan(cone(name).kernel, h200)


def check(found: Arrays, wanted: Cone) -> None:
    for name, expected in wanted.expected.items():
        scale = np.abs(expected).max() + 1e-6
        np.testing.assert_allclose(
            wide(found[name]), expected, rtol=0, atol=wanted.tolerance * scale
        )


@pytest.mark.sampled(10)
@pytest.mark.parametrize("name", CONES)
def test_both_levels_give_the_expected_values_in_every_order(name: str, full: bool) -> None:
    c = cone(name)
    # One order of every cone by default, another one of each.
    orders = [("random", seed) for seed in (range(50) if full else [list(CONES).index(name)])]
    orders += [(order, 0) for order in ORDERS] if full else []
    for order, seed in orders:
        for plans in (None, planned(name)):
            run = interpret(
                c.kernel,
                c.arrays,
                c.params,
                planned=plans,
                meanings=MEANINGS,
                order=order,
                seed=seed,
                compare=(order, seed) == orders[0],
            )
            check(run.outputs, c)


@pytest.mark.sampled(20)
@pytest.mark.parametrize("name", CONES)
def test_the_text_is_deterministic(name: str) -> None:
    assert emit(planned(name)).text == emit(plan(CONES[name]().kernel, h200)).text


@pytest.mark.sampled(5)
@pytest.mark.parametrize("name", CONES)
def test_the_text_compiles_without_spills(name: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    source = emit(planned(name))
    log = compile_text(source.text, 90, source.name).log
    assert "0 bytes spill stores, 0 bytes spill loads" in log
    assert "warning" not in log


def test_forty_cones() -> None:
    assert len(CONES) >= 40
