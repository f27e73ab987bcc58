"""Small kernels of every schedule, to be mutated: few tiles, yet every ring wraps and tails show.

A subject has its arrays and what comes out by float64 formulas that share no code with schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import erf
from typing import Any

import numpy as np

from axe_eq.kernel.cells import Cell, apply, arg
from axe_eq.kernel.placement import number
from axe_eq.kernel.structured import ONLINE
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.program.types import DTYPES
from axe_eq_backends.cuda.schedules import stream
from axe_eq_backends.cuda.schedules.contraction import Contraction, Product
from axe_eq_backends.cuda.schedules.gemm import Extra, Matrix, Problem, Tiling, gemm
from axe_eq_backends.cuda.schedules.map import elementwise
from axe_eq_backends.cuda.schedules.product_tiles import Tile
from axe_eq_backends.cuda.schedules.products import products
from axe_eq_backends.cuda.schedules.rows import Reduction, reduce_rows
from axe_eq_backends.cuda.schedules.sweeps import SweepTiling, sweep
from axe_eq_backends.cuda.schedules.tails import Problem as Rows
from axe_eq_backends.cuda.schedules.tensors import Operand, alike, dense
from axe_eq_backends.cuda.schedules.transpose import turn

Arrays = dict[str, Any]
X, Y, Z = arg(0), arg(1), arg(2)


@dataclass(frozen=True)
class Subject:
    """A kernel with its inputs and what comes out.

    Attributes:
        kernel: the kernel.
        arrays: one per tensor.
        expected: float64 values per output.
        n_ctas: CTAs of a persistent grid.
        params: values of run-time parameters.
    """

    kernel: ir.Kernel
    arrays: Arrays
    expected: Arrays
    n_ctas: int = 1
    params: Mapping[str, int] = field(default_factory=dict)

    def wrong(self, outputs: Arrays) -> str:
        """The output that differs; "" where none does."""
        for name, expected in self.expected.items():
            found = outputs[name].astype(np.float64)
            near = np.abs(found - expected) <= 1e-2 + 2e-3 * np.abs(expected)
            if not (near | (np.isnan(found) & np.isnan(expected))).all():
                return name
        return ""


def normal(*shape: int, seed: int = 0, dtype: Any = np.float16) -> Any:
    """Random normal values."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def _wide(x: Any) -> Any:
    return np.asarray(x).astype(np.float64)


def _product_with_bias() -> Subject:
    """Two tiles a CTA, two consumers, a ring of three that wraps, two result panels."""
    m, n, k = 256, 128, 128
    cell = apply("maximum", apply("add", X, Y), 0.25)
    a, b, bias = normal(m, k, seed=1), normal(n, k, seed=2), normal(n, seed=3)
    problem = Problem(m, n, k, cell=cell, extras=(Extra("bias", "n"),))
    expected = np.maximum(_wide(a) @ _wide(b).T + _wide(bias), 0.25)
    arrays = {"A": a, "B": b, "bias": bias, "C": np.zeros((m, n), np.float16)}
    kernel = gemm(problem, Tiling(128, 128, 32, 3, 2, 2, staging=1))
    return Subject(kernel, arrays, {"C": expected})


def _merging_product() -> Subject:
    """Two tiles of two panels each that memory adds to what it holds, a ring of two that wraps."""
    m, n, k = 128, 128, 96
    a, b, c = normal(m, k, seed=1), normal(n, k, seed=2), normal(m, n, seed=3)
    kernel = gemm(Problem(m, n, k, merges="+"), Tiling(64, 128, 32, 2, 1, 2, staging=1))
    return Subject(kernel, {"A": a, "B": b, "C": c}, {"C": _wide(a) @ _wide(b).T + _wide(c)})


def _merging_rows() -> Subject:
    """Words of registers that memory adds to what it holds: a tail of rows, two tiles a CTA."""
    m, n, rows = 14, 64, 4
    k = ThreadBuilder("merging_rows", 4)
    x, y = k.tensor("X", "f16", (m, n)), k.tensor("Y", "f16", (m, n), output=True)
    with k.tiles(-(-m // rows)) as tile:
        held = k.reg("held", "f16", (rows, n), "S[(4,32,2):(1@warp,1@lane,1@reg)]")
        k.copy(held.all, x[ir.span(tile * rows, rows)])
        k.merge(y[ir.span(tile * rows, rows)], held.all)
    a, b = normal(m, n, seed=1), normal(m, n, seed=2)
    return Subject(k.finish(), {"X": a, "Y": b}, {"Y": _wide(a) + _wide(b)}, n_ctas=2)


def _gated_columns() -> Subject:
    """Two products of column-major operands with tails everywhere, one consumer, a residual."""
    m, n, k = 72, 72, 72
    a, b, g = normal(m, k, seed=1), normal(n, k, seed=2), normal(n, k, seed=3)
    r, s = normal(m, n, seed=4), normal(m, seed=5)
    left, right, gate = (Matrix(x, major=0) for x in "ABG")
    problem = Problem(
        m, n, k, ((left, right), (left, gate)),
        apply("add", apply("mul", apply("mul", X, Y), arg(3)), Z),
        (Extra("R", "mn"), Extra("s", "m")), Matrix("C", "f32"),
    )  # fmt: skip
    expected = (_wide(a) @ _wide(b).T) * (_wide(a) @ _wide(g).T) * _wide(s)[:, None] + _wide(r)
    arrays = {"A": a, "B": b, "G": g, "R": r, "s": s, "C": np.zeros((m, n), np.float32)}
    return Subject(gemm(problem, Tiling(64, 64, 32, 2, 1, 2)), arrays, {"C": expected})


def _unaligned_product() -> Subject:
    """A result whose rows no bulk store takes."""
    m, n, k = 66, 67, 136
    a, b = normal(m, k, seed=1), normal(n, k, seed=2)
    arrays = {"A": a, "B": b, "C": np.zeros((m, n), np.float16)}
    kernel = gemm(Problem(m, n, k), Tiling(64, 64, 64, 2, 1, 2))
    return Subject(kernel, arrays, {"C": _wide(a) @ _wide(b).T}, n_ctas=2)


def _narrow_product() -> Subject:
    """Five rows: the others of the ring are zeroed once, before three tiles."""
    m, n, k = 5, 136, 136
    a, b = normal(m, k, seed=1), normal(n, k, seed=2)
    arrays = {"A": a, "B": b, "C": np.zeros((m, n), np.float16)}
    kernel = gemm(Problem(m, n, k), Tiling(64, 64, 64, 2, 1, 2))
    return Subject(kernel, arrays, {"C": _wide(a) @ _wide(b).T})


def _clustered_product() -> Subject:
    """Two CTAs of a cluster share the tiles of B: two tiles each, a tail, a ring of two."""
    m, n, k = 200, 128, 96
    a, b = normal(m, k, seed=1), normal(n, k, seed=2)
    arrays = {"A": a, "B": b, "C": np.zeros((m, n), np.float16)}
    kernel = gemm(Problem(m, n, k), Tiling(64, 128, 32, 2, 1, 2, cluster_rows=2))
    return Subject(kernel, arrays, {"C": _wide(a) @ _wide(b).T}, n_ctas=2)


def _split_product() -> Subject:
    """Two CTAs of a cluster share the steps of one tile: an odd number, the last one a tail."""
    m, n, k = 64, 32, 152
    a, b = normal(m, k, seed=1), normal(n, k, seed=2)
    arrays = {"A": a, "B": b, "C": np.zeros((m, n), np.float16)}
    kernel = gemm(Problem(m, n, k), Tiling(64, 32, 32, 2, 1, 2, split=2))
    return Subject(kernel, arrays, {"C": _wide(a) @ _wide(b).T})


def _shared_rest() -> Subject:
    """Four tiles that two CTAs take alone, then one whose steps they share: two and three."""
    m, n, k = 320, 32, 152
    a, b = normal(m, k, seed=1), normal(n, k, seed=2)
    arrays = {"A": a, "B": b, "C": np.zeros((m, n), np.float16)}
    kernel = gemm(Problem(m, n, k), Tiling(64, 32, 32, 2, 1, 2, split=2, rest=1))
    return Subject(kernel, arrays, {"C": _wide(a) @ _wide(b).T}, n_ctas=2)


def _clustered_both_ways() -> Subject:
    """Four CTAs of a cluster share tiles of A and of B, in parts of the reduced dim."""
    m, n, k = 136, 64, 96
    a, b = normal(m, k, seed=1), normal(n, k, seed=2)
    arrays = {"A": a, "B": b, "C": np.zeros((m, n), np.float16)}
    problem = Problem(m, n, k, ((Matrix("A", major=0), Matrix("B", major=0)),))
    tiling = Tiling(64, 32, 32, 2, 1, 2, cluster_rows=2, cluster_cols=2)
    return Subject(gemm(problem, tiling), arrays, {"C": _wide(a) @ _wide(b).T}, n_ctas=4)


def _product_in_turns() -> Subject:
    """Two CTAs of a cluster copy tiles of B in turns: two tiles each, tails, three slots."""
    m, n, k = 232, 40, 72
    a, b = normal(m, k, seed=50), normal(n, k, seed=51)
    kernel = gemm(Problem(m, n, k), Tiling(64, 40, 16, 3, 1, 2, cluster_rows=2))
    arrays = {"A": a, "B": b, "C": np.zeros((m, n), np.float16)}
    return Subject(kernel, arrays, {"C": _wide(a) @ _wide(b).T}, n_ctas=2)


def _unequal_product() -> Subject:
    """Columns that two instructions multiply, 160 and 128 of them, in lines of 32; two tiles."""
    m, n, k = 128, 288, 48
    a, b = normal(m, k, seed=52), normal(n, k, seed=53)
    problem = Problem(m, n, k, ((Matrix("A"), Matrix("B", major=0)),))
    kernel = gemm(problem, Tiling(64, 288, 16, 2, 1, 2, staging=1))
    arrays = {"A": a, "B": b, "C": np.zeros((m, n), np.float16)}
    return Subject(kernel, arrays, {"C": _wide(a) @ _wide(b).T})


def _three_below_with_gelu() -> Subject:
    """Three consumers below each other, tails both ways, and gelu of a bias: two tiles."""
    m, n, k = 200, 40, 40
    a, b, bias = normal(m, k, seed=54), normal(n, k, seed=55), normal(n, seed=56)
    whole = apply("add", X, Y)
    digits = apply("add", apply("erf", apply("mul", whole, 0.5**0.5)), 1.0)
    cell = apply("mul", apply("mul", whole, 0.5), digits)
    problem = Problem(m, n, k, cell=cell, extras=(Extra("bias", "n"),))
    sums = _wide(a) @ _wide(b).T + _wide(bias)
    expected = 0.5 * sums * (1 + np.vectorize(erf)(sums * 0.5**0.5))
    arrays = {"A": a, "B": b, "bias": bias, "C": np.zeros((m, n), np.float16)}
    return Subject(gemm(problem, Tiling(192, 40, 16, 2, 3, 2)), arrays, {"C": expected})


def _large_tiles() -> Subject:
    """Tiles of 192 x 256, of two consumers side by side: their sums leave narrow panels."""
    m, n, k = 192, 520, 40
    a, b = normal(m, k, seed=57), normal(n, k, seed=58)
    kernel = gemm(Problem(m, n, k), Tiling(192, 256, 16, 2, 2, 2, across=2, staging=1))
    arrays = {"A": a, "B": b, "C": np.zeros((m, n), np.float16)}
    return Subject(kernel, arrays, {"C": _wide(a) @ _wide(b).T})


def _wide_panels() -> Subject:
    """Three panels of 72 columns, lines of an odd number of 16 bytes, in turns; two tiles."""
    m, n, k = 128, 216, 40
    a, b = normal(m, k, seed=59), normal(n, k, seed=60)
    kernel = gemm(Problem(m, n, k), Tiling(64, 216, 16, 2, 1, 2, staging=1))
    arrays = {"A": a, "B": b, "C": np.zeros((m, n), np.float16)}
    return Subject(kernel, arrays, {"C": _wide(a) @ _wide(b).T})


def _overlapping_panels() -> Subject:
    """Three panels of 64 of 184 columns: the last begins eight earlier; a residual, two tiles."""
    m, n, k = 128, 368, 48
    a, b, r = normal(m, k, seed=61), normal(n, k, seed=62), normal(m, n, seed=63)
    problem = Problem(m, n, k, cell=apply("add", X, Y), extras=(Extra("R", "mn"),))
    kernel = gemm(problem, Tiling(128, 184, 16, 2, 1, 2, staging=1))
    arrays = {"A": a, "B": b, "R": r, "C": np.zeros((m, n), np.float16)}
    return Subject(kernel, arrays, {"C": _wide(a) @ _wide(b).T + _wide(r)})


def _turned_product() -> Subject:
    """A result whose columns are contiguous: two tiles of 104 in panels of 56 and 48."""
    m, n, k = 64, 208, 96
    a, b, scale = normal(m, k, seed=1), normal(n, k, seed=2), normal(m, seed=3)
    arrays = {"A": a, "B": b, "s": scale, "C": np.zeros((m, n), np.float16)}
    cell, extras = apply("mul", X, Y), (Extra("s", "m"),)
    problem = Problem(m, n, k, cell=cell, extras=extras, out=Matrix("C", major=0))
    expected = (_wide(a) @ _wide(b).T) * _wide(scale)[:, None]
    return Subject(gemm(problem, Tiling(64, 104, 32, 2, 1, 2, staging=1)), arrays, {"C": expected})


def _product_side_by_side() -> Subject:
    """Two consumers with half of the columns each, of two tiles, and a residual."""
    m, n, k = 128, 64, 96
    a, b, r = normal(m, k, seed=1), normal(n, k, seed=2), normal(m, n, seed=3)
    arrays = {"A": a, "B": b, "R": r, "C": np.zeros((m, n), np.float16)}
    problem = Problem(m, n, k, cell=apply("add", X, Y), extras=(Extra("R", "mn"),))
    kernel = gemm(problem, Tiling(64, 64, 32, 2, 2, 2, across=2))
    return Subject(kernel, arrays, {"C": _wide(a) @ _wide(b).T + _wide(r)})


def _streaming(m: int, s: int, e: int, q: int, tiling: stream.Tiling) -> Subject:
    """Softmax-weighted values, and a residual; the last chunk has a tail."""
    scale = 3.0
    problem = stream.Problem(
        (1,), m, s, q,
        ((stream.Tensor("Q", "f16", (m * e, e, 1)), stream.Tensor("K", "f16", (s * e, e, 1))),),
        (e,), stream.Tensor("V", "f16", (q * s, 1, q)), stream.Tensor("O", "f16", (m * q, q, 1)),
        ONLINE["softmax"], apply("mul", X, scale), cell=apply("add", X, Y),
        more=(stream.Tensor("R", "f16", (m * q, q, 1)),),
    )  # fmt: skip
    left, right = _telling(m, s, e)
    values, residual = normal(1, s, q, seed=2), normal(1, m, q, seed=3)
    scores = _wide(left) @ _wide(right).swapaxes(1, 2) * scale
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    expected = weights @ _wide(values) / weights.sum(-1, keepdims=True) + _wide(residual)
    kernel = stream.stream(problem, tiling)
    shapes = {t.name: [number(x) for x in t.shape] for t in kernel.tensors}
    given = {"Q": left, "K": right, "V": values.swapaxes(1, 2), "R": residual}
    arrays = {name: x.reshape(shapes[name]) for name, x in given.items()}
    arrays["O"] = np.zeros(shapes["O"], np.float16)
    return Subject(kernel, arrays, {"O": expected.reshape(shapes["O"])})


def _telling(m: int, s: int, e: int) -> tuple[Any, Any]:
    """Rows and columns of scores; by turns, rows show other mistakes.

    Every weight of a row counts; one outweighs all, so that another statistic overflows; all scores
    lie far below those of the zeros that fill tiles, so that a wrong mask counts; any.
    """
    left, right = normal(1, m, e), normal(1, s, e, seed=1)
    right[..., 0] = 4.0
    left[..., 0] = 0.0
    rows = np.arange(m)
    left[:, rows % 5 == 0] *= np.float16(0.05)
    left[:, rows % 5 == 1] = 2 * right[:, 7 * rows[rows % 5 == 1] % s]
    left[:, rows % 5 == 2, 0] = -16.0
    return left, right


def _carried_product(
    m: int, n: int, k: int, dtype: str, tile: Tile, as_they_lie: bool = False
) -> Subject:
    """Odd extents through registers, a tail in every dim: cells before and after the product.

    The factor's cell is infinite where a tile is filled with zeros: that must be masked. Without
    it copies fetch the factors `as_they_lie`, in more steps than there are slots.
    """
    factor = X if as_they_lie else apply("rsqrt", X)
    contraction = Contraction(
        (m, n, k), (), (0,), (1,),
        (Operand("A", dtype, (k, 0, 1)), Operand("B", dtype, (0, 1, n)),
         Operand("bias", "f32", (0, 1, 0))),
        (Product(factor, Y, (dtype, dtype), (2,)),),
        ((Operand("C", "f32", (n, 1, 0)), apply("add", arg(3), Z)),),
    )  # fmt: skip
    kind = DTYPES[dtype].numpy
    a = np.random.default_rng(1).uniform(0.5, 2.0, (m, k)).astype(kind)
    b, bias = normal(k, n, seed=2, dtype=kind), normal(n, dtype=np.float32)
    left = a if as_they_lie else (1 / np.sqrt(_wide(a))).astype(kind)
    expected = _wide(left) @ _wide(b) + _wide(bias)
    kernel = products(contraction, tile)
    given = {"A": a, "B": b.T, "bias": bias, "C": np.zeros((m, n), np.float32)}
    arrays = {t.name: given[t.name] for t in kernel.tensors}
    return Subject(kernel, arrays, {"C": expected})


def _rows() -> Subject:
    """Two reductions, each of whose values matters; four warps to a row, a masked tail.

    What decides a row's second reduction lies far from the lane that collects it, each time in
    another warp and register, and below what the fill would give.
    """
    shape = (4, 1000)
    steps = [Reduction("+", X), Reduction("max", apply("sub", Y, apply("mul", X, X)))]
    outputs = [(dense("y", "f16", shape), apply("add", apply("mul", X, 2.0), Z))]
    x = normal(*shape)
    x += np.where(x < 0, np.float16(-2), np.float16(2))
    for row, column in enumerate((255, 510, 765, 999)):  # lanes 31, 31, 31 and 28
        x[row, column] = 1.0
    sums = _wide(x).sum(1, keepdims=True)
    kernel = reduce_rows(Rows(shape, 1, [dense("x", "f16", shape)], steps, outputs), 128)
    expected = 2 * _wide(x) + (sums - _wide(x) ** 2).max(1, keepdims=True)
    return Subject(kernel, {"x": x, "y": np.zeros(shape, np.float16)}, {"y": expected})


def _odd_rows() -> Subject:
    """Rows that begin anywhere, which a residual's do too: what is beside them would be seen."""
    shape = (4, 1031)
    total = apply("add", X, Y)
    steps = [Reduction("+", total), Reduction("max", apply("sub", total, apply("mul", total, X)))]
    cell = apply("add", apply("mul", total, apply("mul", arg(2), 2.0**-10)), arg(3))
    x, r = np.abs(normal(*shape)) + np.float16(2), np.abs(normal(*shape, seed=1))
    for row, column in enumerate((0, 1030, 756, 500)):  # the greatest; two of them of lanes 31
        x[row, column], r[row, column] = 1.0625, 0.125  # less than the fill's
    operands = [dense("x", "f16", shape), dense("r", "f16", shape)]
    problem = Rows(shape, 1, operands, steps, [(dense("y", "f16", shape), cell)])
    kernel = reduce_rows(problem, 128, wide=8, shifted=True)
    h = _wide(x) + _wide(r)
    most = (h - h * _wide(x)).max(1, keepdims=True)
    arrays = {"x": x, "r": r, "y": np.zeros(shape, np.float16)}
    return Subject(kernel, arrays, {"y": h * h.sum(1, keepdims=True) / 1024 + most})


def _short_rows() -> Subject:
    """Rows within a warp, a weight per column, a second output with one value a row."""
    shape = (6, 100)
    steps = [Reduction("+", apply("mul", X, X))]
    outputs: list[tuple[Operand, Cell]] = [
        (dense("y", "f16", shape), apply("mul", apply("mul", X, apply("rsqrt", Z)), Y)),
        (dense("r", "f32", shape, [0]), Z),
    ]
    operands = [dense("x", "f16", shape), dense("w", "f16", shape, [1])]
    x, w = normal(*shape), normal(shape[1], seed=1)
    squares = (_wide(x) ** 2).sum(1)
    arrays = {"x": x, "w": w, "y": np.zeros(shape, np.float16), "r": np.zeros(6, np.float32)}
    expected = {"y": _wide(x) / np.sqrt(squares)[:, None] * _wide(w), "r": squares}
    kernel = reduce_rows(Rows(shape, 1, operands, steps, outputs), 16)
    return Subject(kernel, arrays, expected)


def _swept_rows(tiling: SweepTiling, rows: int = 6, cols: int = 600) -> Subject:
    """Weights of rows in chunks, under running maxima; by turns, rows show other mistakes.

    Every weight counts; the largest element, in a later chunk, outweighs all; all lie far below
    the zeros that may fill a chunk; a chunk has no weight; none has. In a seventh the first
    outweighs all.
    """
    shape = (rows, cols)
    e = apply("exp", apply("sub", X, Y))
    steps = [Reduction("max", X), Reduction("+", e)]
    outputs: list[tuple[Operand, Cell]] = [
        (dense("y", "f16", shape), apply("div", e, apply("mul", Z, 0.001))),
        (dense("s", "f32", shape, [0]), Z),
    ]
    x = normal(*shape)
    x[1:3] *= 4
    x[1, 300], x[2, -1], x[3] = 120.0, 120.0, x[3] - 100
    x[4, :300], x[5], x[6:, 0] = -np.inf, -np.inf, 120.0
    with np.errstate(invalid="ignore"):
        weights = np.exp(_wide(x) - _wide(x).max(1, keepdims=True))
    sums = weights.sum(1)
    problem = Rows(shape, 1, [dense("x", "f16", shape)], steps, outputs)
    kernel = sweep(problem, tiling)
    arrays = {"x": x, "y": np.zeros(shape, np.float16), "s": np.zeros(rows, np.float32)}
    return Subject(kernel, arrays, {"y": 1000 * weights / sums[:, None], "s": sums})


def _swept_columns() -> Subject:
    """Sums and smallest elements of columns in chunks of rows; tails both ways.

    Every column has another smallest element, in another row; what fills a chunk counts in a sum.
    """
    rows, cols = 70, 72
    steps = [Reduction("+", apply("sub", X, 1.0)), Reduction("min", X)]
    outputs: list[tuple[Operand, Cell]] = [
        (Operand("s", "f32", (1, 0)), Y),
        (Operand("y", "f16", (1, cols)), apply("sub", X, apply("mul", Y, Z))),
    ]
    operands = [Operand("x", "f16", (1, cols))]
    x = normal(rows, cols) + np.float16(5)
    x[np.arange(cols) % rows, np.arange(cols)] = np.linspace(0.25, 1, cols)
    sums = (_wide(x) - 1).sum(0)
    problem = Rows((cols, rows), 1, operands, steps, outputs)
    kernel = sweep(problem, SweepTiling(4, 0, 8, 8, 2))
    arrays = {"x": x.T, "s": np.zeros(cols, np.float32), "y": np.zeros((cols, rows), np.float16)}
    expected = _wide(x) - sums * _wide(x).min(0)
    return Subject(kernel, arrays, {"s": sums, "y": expected.T})


def _cells() -> Subject:
    shape = (3, 1500)
    operands = [dense("x", "f16", shape), dense("b", "f16", shape, [1])]
    x, b = normal(*shape), normal(1500, seed=1)
    arrays = {"x": x, "b": b, "y": np.zeros(shape, np.float16)}
    kernel = elementwise(shape, operands, [(dense("y", "f16", shape), apply("sub", X, Y))])
    return Subject(kernel, arrays, {"y": _wide(x) - _wide(b)})


def _apart_cells() -> Subject:
    """Rows of vectors, the last of which ends inside one; they begin at multiples of 16 bytes."""
    shape, apart = (3, 331), 336
    operand = Operand("x", "f16", (apart, 1))
    x = normal(*shape)
    arrays = {"x": x, "y": np.zeros(shape, np.float16)}
    result = Operand("y", "f16", (apart, 1)), apply("sub", X, 0.5)
    return Subject(elementwise(shape, [operand], [result]), arrays, {"y": _wide(x) - 0.5})


def _odd_cells() -> Subject:
    """Rows that begin anywhere beside rows that begin elsewhere: first, inner and last tiles."""
    rows, cols = 3, 805
    x, y = normal(rows, cols), normal(rows, cols + 1, seed=1)[:, 1:]
    operands = Operand("x", "f16", (cols, 1)), Operand("y", "f16", (cols + 1, 1), 1)
    result = Operand("z", "f16", (cols, 1)), apply("sub", X, Y)
    kernel = elementwise((rows, cols), operands, [result], warps=1, wide=8, vectors=1, shifted=True)
    arrays = {"x": x, "y": y, "z": np.zeros(x.shape, np.float16)}
    return Subject(kernel, arrays, {"z": _wide(x) - _wide(y)})


def _odd_cells_alike() -> Subject:
    """Every eighth row begins alike: two of them read a row that is the same in all once."""
    rows, cols, wide = 16, 805, 8
    x, b = normal(rows, cols), normal(cols, seed=1)
    operands, result = [dense("x", "f16", x.shape), dense("b", "f16", x.shape, [1])], "y"
    near = alike(x.shape, operands, [dense(result, "f16", x.shape)], 0, wide)
    assert near is not None
    shape, operands, (out,) = near
    kernel = elementwise(
        shape, operands, [(out, apply("sub", X, Y))], warps=1, wide=wide, vectors=2, shifted=True
    )
    apart = {"x": x.reshape(2, wide, cols).swapaxes(0, 1), "b": b}
    arrays = {**apart, result: np.zeros(shape, np.float16)}
    return Subject(kernel, arrays, {result: _wide(apart["x"]) - _wide(b)})


def _halves_of_heads() -> Subject:
    """Both halves of rows by angles of a slower dim: two results of one buffer, tiles of 3 dims."""
    length, heads, half = 3, 3, 24
    x, angles = normal(length, heads, 2 * half), normal(length, half, seed=1, dtype=np.float32)
    strides = heads * 2 * half, 2 * half, 1
    parts = [Operand(name, "f16", strides, at) for name, at in (("a", 0), ("b", half))]
    outs = [Operand(name, "f16", strides, at) for name, at in (("y", 0), ("z", half))]
    turn_by = Operand("w", "f32", (half, 0, 1))
    sums = apply("add", X, apply("mul", Y, Z)), apply("sub", Y, apply("mul", X, Z))
    kernel = elementwise(
        (length, heads, half), [*parts, turn_by], list(zip(outs, sums, strict=True)),
        wide=8, vectors=1,
    )  # fmt: skip
    a, b = _wide(x[..., :half]), _wide(x[..., half:])
    w = angles[:, None].astype(np.float64)
    arrays = {
        "a": x[..., :half], "b": x[..., half:], "w": angles,
        "y": np.zeros(a.shape, np.float16), "z": np.zeros(a.shape, np.float16),
    }  # fmt: skip
    return Subject(kernel, arrays, {"y": a + b * w, "z": b - a * w})


def _turned(rows: int, cols: int) -> Subject:
    x = normal(2, rows, cols).swapaxes(1, 2)
    arrays = {"x": x, "out": np.zeros((2, cols, rows), np.float16)}
    tensors = (
        Operand("x", "f16", (rows * cols, 1, cols)), Operand("out", "f16", (rows * cols, rows, 1))
    )  # fmt: skip
    kernel = turn((2, cols, rows), [tensors[0]], [(tensors[1], X)], (1, 1))
    return Subject(kernel, arrays, {"out": _wide(x)})


SUBJECTS: dict[str, Callable[[], Subject]] = {
    "persistent product": _product_with_bias,
    "gated product of columns": _gated_columns,
    "unaligned product": _unaligned_product,
    "narrow product": _narrow_product,
    "clustered product": _clustered_product,
    "split product": _split_product,
    "rest sharing product": _shared_rest,
    "clustered both ways product": _clustered_both_ways,
    "turn taking product": _product_in_turns,
    "unequal product": _unequal_product,
    "three below product": _three_below_with_gelu,
    "large tile product": _large_tiles,
    "wide panel product": _wide_panels,
    "overlapping panel product": _overlapping_panels,
    "turned product": _turned_product,
    "side by side product": _product_side_by_side,
    "merging product": _merging_product,
    "merging rows": _merging_rows,
    "streaming product": lambda: _streaming(264, 44, 32, 16, stream.Tiling(2, 16, 16, 2)),
    "carried stream": lambda: _streaming(67, 74, 20, 17, stream.Tiling(1, 32, 32, 1)),
    "product of matrix units through registers": lambda: _carried_product(
        33, 36, 75, "f16", Tile(32, 32, 32, matrix=True)
    ),
    "copied product": lambda: _carried_product(
        33, 36, 75, "f64", Tile(32, 32, 16, matrix=True), as_they_lie=True
    ),
    "product of f64 matrix units": lambda: _carried_product(
        33, 36, 43, "f64", Tile(32, 32, 16, matrix=True)
    ),
    "product of lanes": lambda: _carried_product(17, 36, 43, "f32", Tile(16, 32, 16, matrix=False)),
    "rows": _rows,
    "odd rows": _odd_rows,
    "short rows": _short_rows,
    "swept rows": lambda: _swept_rows(SweepTiling(4, 1, 8, 32, 1)),
    "swept rows of a cluster": lambda: _swept_rows(
        SweepTiling(4, 1, 8, 32, 1, cluster=2, kept=True)
    ),
    "swept odd rows": lambda: _swept_rows(SweepTiling(1, 1, 8, 32, 1, shifted=True), 7, 603),
    "swept columns": _swept_columns,
    "cells": _cells,
    "cells of rows apart": _apart_cells,
    "cells of odd rows": _odd_cells,
    "cells of rows alike": _odd_cells_alike,
    "halves of heads": _halves_of_heads,
    "transpose by matrices": lambda: _turned(72, 136),
    "transpose by elements": lambda: _turned(40, 33),
}
