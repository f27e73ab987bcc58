"""Golden texts of kernels of every schedule, and what cannot be written."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from axe_eq.errors import EmitError
from axe_eq.kernel.cells import apply, arg
from axe_eq.kernel.expr import var
from axe_eq.kernel.show import show
from axe_eq.kernel.structured import ONLINE
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.layout import Layout
from axe_eq_backends.cuda.calls import digits
from axe_eq_backends.cuda.emit import emit, identifier
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.schedules import stream
from axe_eq_backends.cuda.schedules.contraction import Contraction, Product
from axe_eq_backends.cuda.schedules.gemm import Extra, Matrix, Problem, Tiling, gemm, parameters
from axe_eq_backends.cuda.schedules.map import elementwise
from axe_eq_backends.cuda.schedules.product_tiles import Tile
from axe_eq_backends.cuda.schedules.products import products
from axe_eq_backends.cuda.schedules.rows import Reduction, reduce_rows
from axe_eq_backends.cuda.schedules.sweeps import SweepTiling, sweep
from axe_eq_backends.cuda.schedules.tails import Problem as Rows
from axe_eq_backends.cuda.schedules.tensors import Operand, dense
from axe_eq_backends.cuda.schedules.transpose import turn
from axe_eq_backends.cuda.target import h200

X, Y = arg(0), arg(1)
BIAS_RELU = apply("maximum", apply("add", X, Y), 0.0)
SHAPE = (64, 1000)


def _product(**changes: object) -> ir.Kernel:
    m, n, k = parameters()
    return gemm(Problem(m, n, k, **changes), Tiling(128, 128, 64, 3))  # type: ignore[arg-type]


EXP = apply("exp", apply("sub", X, Y))
SOFTMAX = [Reduction("max", X), Reduction("+", EXP)]
WEIGHTS = apply("div", EXP, arg(2))


def _softmax() -> ir.Kernel:
    outputs = [(dense("y", "f16", SHAPE), WEIGHTS)]
    return reduce_rows(Rows(SHAPE, 1, [dense("x", "f16", SHAPE)], SOFTMAX, outputs), 64)


def _softmax_swept() -> ir.Kernel:
    shape = (64, 100_000)
    outputs = [(dense("y", "f16", shape), WEIGHTS)]
    tiling = SweepTiling(4, 1, 8, 64, 2)
    return sweep(Rows(shape, 1, [dense("x", "f16", shape)], SOFTMAX, outputs), tiling)


def _attention(depth: int) -> ir.Kernel:
    heads, m, s = 4, 256, 500
    q, k, v, o = (
        stream.Tensor(name, "f16", (rows * depth, *strides))
        for name, rows, strides in (
            ("Q", m, (depth, 1)), ("K", s, (depth, 1)), ("V", s, (1, depth)), ("O", m, (depth, 1)),
        )
    )  # fmt: skip
    softmax, scaled = ONLINE["softmax"], apply("mul", X, depth**-0.5)
    problem = stream.Problem((heads,), m, s, depth, ((q, k),), (depth,), v, o, softmax, scaled)
    bulk = depth % 8 == 0
    return stream.stream(problem, stream.Tiling(1 + bulk, 64, 64, 1 + bulk))


def _product_through_registers(tile: Tile, dtype: str) -> ir.Kernel:
    """C = relu(A) B + bias, with odd extents."""
    m, n, k = 33, 70, 101
    operands = (
        Operand("A", dtype, (k, 0, 1)), Operand("B", dtype, (0, 1, n)),
        Operand("bias", "f32", (0, 1, 0)),
    )  # fmt: skip
    factors = Product(apply("maximum", X, 0.0), Y, (dtype, dtype), (2,))
    outputs = ((Operand("C", "f32", (n, 1, 0)), apply("add", arg(3), arg(2))),)
    return products(Contraction((m, n, k), (), (0,), (1,), operands, (factors,), outputs), tile)


def _cells() -> ir.Kernel:
    operands = [dense("x", "f16", SHAPE), dense("b", "f16", SHAPE, [1])]
    return elementwise(SHAPE, operands, [(dense("y", "f16", SHAPE), BIAS_RELU)])


def _turned(rows: int, cols: int, dtype: str) -> ir.Kernel:
    x, out = Operand("x", dtype, (1, cols)), Operand("out", dtype, (rows, 1))
    return turn((cols, rows), [x], [(out, X)], (1, 1))


KERNELS: dict[str, Callable[[], ir.Kernel]] = {
    "product": _product,
    "product_bias_relu": lambda: _product(cell=BIAS_RELU, extras=(Extra("bias", "n"),)),
    "product_mn_major": lambda: _product(products=((Matrix("A", major=0), Matrix("B", major=0)),)),
    "product_static": lambda: gemm(Problem(256, 512, 320), Tiling(128, 128, 64, 3)),
    "cells": _cells,
    "softmax": _softmax,
    "softmax_swept": _softmax_swept,
    "attention": lambda: _attention(64),
    "attention_through_registers": lambda: _attention(63),
    "product_of_matrix_units": lambda: _product_through_registers(
        Tile(32, 64, 32, matrix=True), "f16"
    ),
    "product_of_f64_matrix_units": lambda: _product_through_registers(
        Tile(32, 32, 16, matrix=True), "f64"
    ),
    "product_of_lanes": lambda: _product_through_registers(Tile(32, 32, 16, matrix=False), "f32"),
    "transpose_by_blocks": lambda: _turned(128, 192, "f16"),
    "transpose_by_elements": lambda: _turned(33, 70, "f32"),
}


@pytest.mark.parametrize("name", KERNELS)
def test_golden_texts(name: str, golden: Callable[..., None]) -> None:
    golden(emit(plan(KERNELS[name](), h200)).text)


def test_golden_plan(golden: Callable[..., None]) -> None:
    kernel = KERNELS["product_bias_relu"]()
    golden(show(kernel, plan(kernel, h200)))


def test_every_choice_is_explained() -> None:
    text = plan(KERNELS["product_bias_relu"](), h200).explain()
    assert "matrix.stmatrix (4 calls x4, 1-way)" in text
    assert "not ldst.st_shared: 128 cycles against 80" in text


def test_what_cuda_cannot_write_is_refused() -> None:
    def mapped(dtype: str, cell: str) -> ir.Kernel:
        k = ThreadBuilder("k", 4)
        x, y = k.tensor("x", dtype, (128,)), k.tensor("y", dtype, (128,), output=True)
        t = k.reg("t", dtype, (128,), Layout([(128, 1, "tx")]))
        k.copy(t.all, x.all)
        k.map(arg(0), t.all, t.all)
        k.kernel.body[-1].cell = apply(cell, arg(0))  # type: ignore[attr-defined]
        k.copy(y.all, t.all)
        return k.finish()

    with pytest.raises(EmitError, match=r"cell 'sqrt': has no CUDA spelling on i32") as refusal:
        emit(plan(mapped("i32", "sqrt"), h200))
    assert refusal.value.at.startswith(__file__)


def test_names_become_identifiers() -> None:
    assert [identifier(n) for n in ("x", "for", "a.b", "1x", "")] == [
        "x",
        "for_",
        "a_b",
        "n1x",
        "n",
    ]


@pytest.mark.parametrize(
    ("numbers", "expected"),
    [
        ([0, 1, 2, 3], [(1, 4, 1)]),
        ([5, 5, 6, 6], [(1, 2, 0), (2, 2, 1)]),
        ([0, 1, 0, 1, 2, 3, 2, 3], [(1, 2, 1), (2, 2, 0), (4, 2, 2)]),
        ([0, 1, 3, 4, 9, 9], None),
    ],
)
def test_register_numbers_are_recognised_as_digits(numbers: list[int], expected: object) -> None:
    assert digits(numbers) == expected


def test_element_numbers_beyond_32_bits_are_wide() -> None:
    k = ThreadBuilder("k", 4)
    x = k.tensor("x", "f16", (var("M", high=1 << 30), 4096))
    y = k.tensor("y", "f16", (4, 256), output=True)
    layout = Layout([(4, 1, "warp"), (32, 1, "lane"), (8, 1, "reg")])
    t = k.reg("t", "f16", (4, 256), layout)
    row = k.param("row", high=1 << 29)
    k.copy(t.all, x[ir.span(row, 4), 0:256])
    k.copy(y.all, t.all)
    assert "long long g1 = (long long)row * 4096" in emit(plan(k.finish(), h200)).text


@pytest.mark.parametrize("name", KERNELS)
def test_no_buffer_address_is_swizzled_with_its_offset(name: str) -> None:
    """In C, ``a + b ^ c`` swizzles the sum: right only where a has none of c's bits."""
    text = emit(plan(KERNELS[name](), h200)).text
    assert not re.search(r"[(,] ?\w+ \+ \w+ \^", text)
