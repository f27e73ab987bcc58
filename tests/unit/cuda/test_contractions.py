"""Sums of products of any shape, dtype and strides: each program is made one kernel and lowered.

No search takes part, so the cones are the tests' own: batches, several dims on either side and in
the sum, cells before and after, parts, joins and blocked layouts of tensors, every dtype. What a
kernel computes is compared with the numpy meaning of its program.
"""

from __future__ import annotations

import random
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.errors import AxeError, ScheduleError
from axe_eq.kernel.placement import number
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.dispatch import Planned
from axe_eq.kernel.threads.interp import interpret
from axe_eq.program.node import op_node
from axe_eq_backends.cuda.compile import compile_text
from axe_eq_backends.cuda.emit import emit
from axe_eq_backends.cuda.meaning import MEANINGS
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.schedules.gemm import Problem, Tiling, gemm
from axe_eq_backends.cuda.schedules.tiles import staged_panels
from axe_eq_backends.cuda.target import h200
from tests.unit.cuda.whole import Whole, launch, lowered, whole

xp, es = axe.array, nn.einsum
Fn = Callable[..., Any]
# Of the largest value, by the roughest dtype of the program: only stores round.
TOLERANCE = {
    "f8e4m3": 0.07, "f8e5m2": 0.13, "bf16": 1e-2, "f16": 2e-3, "f32": 1e-5, "f64": 1e-13,
    "i32": 0, "i64": 0, "bool": 0,
}  # fmt: skip


def f16(*shape: int, layout: str | None = None) -> axe.Spec:
    return axe.Spec(shape, "f16", layout=layout)


def of(dtype: str, *shapes: tuple[int, ...]) -> tuple[axe.Spec, ...]:
    return tuple(axe.Spec(s, dtype) for s in shapes)


@dataclass(frozen=True)
class Case:
    """A program, and the schedule that its kernel must have: bulk copies, or through registers."""

    fn: Fn
    specs: tuple[axe.Spec, ...]
    bulk: bool


def bulk(fn: Fn, *specs: axe.Spec) -> Case:
    return Case(fn, specs, True)


def registers(fn: Fn, *specs: axe.Spec) -> Case:
    return Case(fn, specs, False)


def matmul(a: Any, b: Any) -> Any:
    return a @ b


def window_sums(x: Any, w: Any) -> Any:
    return sum((x[i : i + 30] @ w[i] for i in range(1, 3)), x[:30] @ w[0])


CASES: dict[str, Case] = {
    # batches
    "a batch": bulk(matmul, f16(3, 40, 64), f16(3, 64, 48)),
    "two batch dims": bulk(matmul, f16(2, 3, 40, 64), f16(2, 3, 64, 48)),
    "a batch on the left": bulk(matmul, f16(3, 40, 64), f16(64, 48)),
    "a batch on the right": bulk(matmul, f16(40, 64), f16(3, 64, 48)),
    "a batch of gates": bulk(
        lambda a, b, c: nn.silu(a @ b) * (a @ c), f16(2, 40, 64), f16(2, 64, 48), f16(2, 64, 48)
    ),
    "a batch and a residual": bulk(
        lambda a, b, c: a @ b + c, f16(2, 40, 64), f16(2, 64, 48), f16(2, 40, 48)
    ),
    "a batch and a bias each": bulk(
        lambda a, b, c: a @ b + c, f16(2, 40, 64), f16(2, 64, 48), f16(2, 1, 48)
    ),
    "a sum of rows beside a product": registers(
        lambda a, b: (a @ b) * xp.sum(a * a, axis=1, keepdims=True), f16(8, 12), f16(12, 9)
    ),
    "an unaligned batch": registers(matmul, f16(3, 7, 9), f16(3, 9, 11)),
    # several dims of rows, columns and sums
    "heads as columns": bulk(lambda x, w: es("td,dhe->the", x, w), f16(40, 64), f16(64, 4, 32)),
    "heads first": bulk(lambda x, w: es("td,dhe->hte", x, w), f16(40, 64), f16(64, 4, 32)),
    "wide heads first": bulk(lambda x, w: es("td,dhe->hte", x, w), f16(40, 64), f16(64, 2, 128)),
    "odd heads first": bulk(lambda x, w: es("td,dhe->hte", x, w), f16(40, 64), f16(64, 3, 24)),
    "a sum over heads": bulk(
        lambda o, w: es("the,hed->td", o, w), f16(40, 4, 32), f16(4, 32, 48)
    ),
    "a sum over heads apart": bulk(
        lambda o, w: es("hte,hed->td", o, w), f16(4, 40, 32), f16(4, 32, 48)
    ),
    "a sum over odd heads apart": bulk(
        lambda o, w: es("hte,hed->td", o, w), f16(3, 40, 24), f16(3, 24, 48)
    ),
    "a sum over heads of 5": registers(
        lambda o, w: es("hte,hed->td", o, w), f16(3, 20, 5), f16(3, 5, 48)
    ),
    "scores of heads": bulk(
        lambda q, k: es("ihe,jhe->hij", q, k), f16(40, 4, 32), f16(48, 4, 32)
    ),
    # element types
    "f32": registers(matmul, *of("f32", (20, 36), (36, 17))),
    "f32 by columns": registers(lambda a, b: a.T @ b.T, *of("f32", (20, 24), (33, 20))),
    "f64": registers(matmul, *of("f64", (20, 18), (18, 9))),
    "f64 by columns": registers(lambda a, b: a.T @ b.T, *of("f64", (37, 40), (50, 37))),
    "f64 of several tiles": registers(matmul, *of("f64", (70, 64), (64, 136))),
    "i32": registers(matmul, *of("i32", (20, 36), (36, 17))),
    "i64": registers(matmul, *of("i64", (20, 10), (10, 9))),
    "bf16": bulk(matmul, *of("bf16", (40, 64), (64, 48))),
    "unaligned bf16": registers(matmul, *of("bf16", (40, 37), (37, 45))),
    "f8e4m3": registers(matmul, *of("f8e4m3", (40, 48), (48, 40))),
    "f8e5m2 and f8e4m3": registers(
        matmul, axe.Spec((24, 48), "f8e5m2"), axe.Spec((48, 40), "f8e4m3")
    ),
    "f8e4m3 and f16": registers(matmul, axe.Spec((24, 48), "f8e4m3"), f16(48, 40)),
    "f16 and f32": registers(matmul, f16(24, 40), axe.Spec((40, 33), "f32")),
    # extents
    "k of 17": registers(matmul, f16(40, 17), f16(17, 48)),
    "k of 1": bulk(matmul, f16(24, 1), f16(1, 40)),
    "17 columns": registers(matmul, f16(40, 64), f16(64, 17)),
    "one row": bulk(matmul, f16(1, 64), f16(64, 136)),
    "one column": bulk(lambda a, b: a.T @ b, f16(64, 136), f16(64, 1)),
    "an odd row": registers(matmul, f16(1, 35), f16(35, 33)),
    # where tensors lie
    "columns first": bulk(
        matmul, f16(72, 64, layout="S[(72,64):(1@m,72@m)]"),
        f16(64, 136, layout="S[(64,136):(1@m,64@m)]"),
    ),
    "padded rows": bulk(
        matmul, f16(72, 64, layout="S[(72,64):(80@m,1@m)]"),
        f16(64, 48, layout="S[(64,48):(56@m,1@m)]"),
    ),
    "oddly padded rows": registers(
        matmul, f16(40, 64, layout="S[(40,64):(67@m,1@m)]"), f16(64, 48)
    ),
    "blocks": bulk(
        matmul, f16(256, 128, layout="S[(2,128,2,64):(16384@m,64@m,8192@m,1@m)]"), f16(128, 48)
    ),
    "blocks along the sum": bulk(
        matmul, f16(40, 128, layout="S[(40,4,32):(32@m,1280@m,1@m)]"), f16(128, 48)
    ),
    "small blocks": registers(
        matmul, f16(24, 36, layout="S[(6,4,9,4):(144@m,4@m,16@m,1@m)]"), f16(36, 33)
    ),
    # parts and joins of tensors
    "parts": bulk(lambda a, b: a[8:48] @ b[:, 8:56], f16(64, 64), f16(64, 64)),
    "odd parts": registers(lambda a, b: a[3:40, 1:50] @ b[1:50, 5:40], f16(64, 64), f16(64, 64)),
    "every other": registers(lambda a, b: a[::2, ::3] @ b, f16(48, 66), f16(22, 40)),
    "backwards": registers(lambda a, b: xp.flip(a, axis=1) @ b, f16(24, 40), f16(40, 40)),
    "joined along the sum": registers(
        lambda a, b, c: xp.concat([a, b], axis=1) @ c, f16(24, 40), f16(24, 20), f16(60, 40)
    ),
    "joined rows": registers(
        lambda a, b, c: xp.concat([a, b], axis=0) @ c, f16(24, 40), f16(9, 40), f16(40, 40)
    ),
    "a convolution": registers(nn.conv2d, f16(2, 5, 6, 5), f16(6, 5, 3, 2)),
    "a sparse convolution": registers(
        lambda x, w: nn.conv2d(x, w, stride=2, dilation=(1, 2)), f16(1, 8, 7, 8), f16(8, 8, 3, 3)
    ),
    "a convolution of groups": registers(
        lambda x, w: nn.conv2d(x, w, groups=2), f16(1, 8, 5, 6), f16(12, 4, 2, 3)
    ),
    "three shifted products": bulk(window_sums, f16(32, 16), f16(3, 16, 24)),
    # cells before products
    "a cell before": registers(lambda a, b: nn.relu(a) @ b, f16(40, 64), f16(64, 48)),
    "a gate before": registers(
        lambda g, u, w: (nn.silu(g) * u) @ w, f16(40, 48), f16(40, 48), f16(48, 40)
    ),
    "scales before": registers(
        lambda x, s, g, w: (x * s * g) @ w, f16(40, 44), f16(40, 1), f16(44), f16(44, 40)
    ),
    "cells without zero on both sides": registers(
        lambda a, b: xp.exp(a) @ xp.exp(b), f16(40, 35), f16(35, 40)
    ),
    "f64 cells before and after": registers(
        lambda a, b, c, d: xp.maximum(xp.exp(a) @ (b * c) + d, 0), *of("f64", (24, 35), (35, 40)),
        *of("f64", (40,), (24, 40)),
    ),
    "f32 cells on both sides": registers(
        lambda a, b: xp.exp(a) @ (1 / (2 + b * b)), *of("f32", (24, 35), (35, 40))
    ),
    # cells after products
    "a bias": bulk(lambda a, b, c: nn.relu(a @ b + c), f16(40, 64), f16(64, 72), f16(72)),
    "an odd bias": registers(
        lambda a, b, c: nn.relu(a @ b + c), f16(33, 35), f16(35, 37), f16(37)
    ),
    "a scale per row": bulk(lambda a, b, c: (a @ b) * c, f16(40, 64), f16(64, 72), f16(40, 1)),
    "one scale": bulk(lambda a, b, c: (a @ b) * c, f16(40, 64), f16(64, 72), f16(1, 1)),
    "a turned residual": bulk(lambda a, b, c: a @ b + c.T, f16(40, 64), f16(64, 72), f16(72, 40)),
    "half of a residual": registers(
        lambda a, b, c: a @ b + xp.concat([c, c], axis=1), f16(40, 64), f16(64, 72), f16(40, 36)
    ),
    "positions of columns": bulk(
        lambda a, b: a @ b + xp.astype(xp.arange(72), a.dtype), f16(40, 64), f16(64, 72)
    ),
    "a triangle": bulk(
        lambda a, b: xp.where(xp.expand_dims(xp.arange(72), axis=1) >= xp.arange(136), a @ b, 0.0),
        f16(72, 64), f16(64, 136),
    ),
    "positions of batches": bulk(
        lambda a, b: (a @ b) * xp.astype(xp.reshape(xp.arange(3), (3, 1, 1)), a.dtype),
        f16(3, 40, 64), f16(3, 64, 48),
    ),
    "positions through registers": registers(
        lambda a, b: a @ b + xp.astype(xp.arange(37), a.dtype), f16(33, 35), f16(35, 37)
    ),
    # several products
    "two products": bulk(lambda a, b, c: a @ b + c @ b, f16(40, 64), f16(64, 48), f16(40, 64)),
    "itself": bulk(lambda a: a @ a.T, f16(72, 64)),
    "a low-rank update": registers(
        lambda x, w, t, b: x @ w + t @ b, f16(40, 64), f16(64, 48), f16(40, 16), f16(16, 48)
    ),
    "one the other way round": registers(
        lambda a, b, c, d: a @ b + (c @ d).T, f16(40, 64), f16(64, 48), f16(48, 32), f16(32, 40)
    ),
    "a product with vectors beside": registers(
        lambda a, b, c, d: a @ b + es("ijk,k->ij", c, d),
        f16(20, 24), f16(24, 9), f16(20, 9, 24), f16(24),
    ),
    "factors of two types": registers(
        lambda a, b, c: xp.astype(a @ b, xp.float32) + c @ c.T,
        f16(20, 16), f16(16, 20), axe.Spec((20, 16), "f32"),
    ),
    "reshaped before and after": bulk(
        lambda a, b: xp.reshape(xp.reshape(a, (40, 64)) @ b, (2, 20, 3, 16)),
        f16(2, 20, 64), f16(64, 48),
    ),
    "two results": registers(lambda a, b: (a @ b, nn.relu(a @ b)), f16(40, 64), f16(64, 48)),
    "gates with all": bulk(
        lambda x, w, v, b, r: r + nn.silu(x @ w + b) * (x @ v),
        f16(40, 64), f16(64, 72), f16(64, 72), f16(72), f16(40, 72),
    ),
    "oddly gated in batches": registers(
        lambda x, w, v, s, r: r * 0.5 + nn.silu((x * s) @ w) * (x @ v),
        f16(2, 20, 35), f16(2, 35, 37), f16(35, 37), f16(2, 20, 1), f16(20, 37),
    ),
}  # fmt: skip


# -- other cones of every element type --

OTHERS: dict[str, Case] = {
    "f64 rows by a vector": registers(matmul, *of("f64", (20, 30), (30,))),
    "i32 rows by a vector": registers(matmul, *of("i32", (20, 300), (300,))),
    "f64 cells": registers(
        lambda a, b: nn.gelu(a) * xp.tanh(b) + xp.maximum(a, b) + xp.exp(a) + nn.sigmoid(b) / 3,
        *of("f64", (20, 30), (20, 30)),
    ),
    "f8e5m2 cells": registers(lambda a, b: nn.relu(a) * b, *of("f8e5m2", (20, 33), (20, 33))),
    "i64 cells": registers(
        lambda a, b: xp.maximum(a, b) * 2 + abs(a), *of("i64", (20, 33), (20, 33))
    ),
    "f8e4m3 turned": registers(lambda a: a.T, *of("f8e4m3", (20, 33))),
    "flags": registers(
        lambda a, b, c: xp.where(xp.logical_xor(a, b), c, -c), *of("bool", (20, 33), (20, 33)),
        f16(20, 33),
    ),
    "flags of flags": registers(lambda a, b: (a < b) | xp.isnan(b), f16(20, 33), f16(20, 33)),
    "whole division": registers(
        lambda a, b: a // (abs(b) + 1) * 3 + a % (abs(b) - 20) + (a << 2) + (b >> 1) + xp.sign(a),
        *of("i32", (20, 33), (20, 33)),
    ),
    "f32 division": registers(
        lambda a, b: a // (abs(b) + 1) + a % (abs(b) - 9) + xp.logaddexp(a, b),
        *of("f32", (20, 33), (20, 33)),
    ),
    "a masked product": registers(
        lambda a, b, c: xp.where(a, b, 0) @ c, axe.Spec((20, 40), "bool"), f16(20, 40), f16(40, 24)
    ),
    "f8e4m3 results": bulk(
        lambda a, b: xp.astype(a @ b, "f8e4m3"), f16(40, 64), f16(64, 48)
    ),
    "f64 results": bulk(
        lambda a, b: xp.astype(a @ b, xp.float64) * 2, f16(40, 64), f16(64, 48)
    ),
}  # fmt: skip
ALL = CASES | OTHERS


@cache
def case(name: str) -> Whole:
    c = ALL[name]
    return whole(c.fn, *c.specs, seed=zlib.crc32(name.encode()))


@cache
def planned(name: str) -> Planned:
    return plan(case(name).lowered.kernel, h200)


def tolerance(w: Whole) -> float:
    return max(TOLERANCE[node.dtype] for node in w.program.nodes())


def check(w: Whole, plans: Planned | None, order: str, seed: int) -> None:
    flat = w.flat()
    launch(w.lowered, flat, planned=plans, order=order, seed=seed)
    w.check(flat, tolerance(w))


def picked(name: str, one_of: int) -> bool:
    """A share of the cases, the same in every run."""
    return zlib.crc32(name.encode()) % one_of == 0


@pytest.mark.sampled(14)
@pytest.mark.parametrize("name", ALL)
def test_lowered_cones_mean_what_their_program_means(name: str, full: bool) -> None:
    w, c = case(name), ALL[name]
    assert w.lowered.kernel.persistent == c.bulk
    if full or picked(name, 6):
        check(w, None, "random", 0)
    for seed in range(20 if full else 1):
        check(w, planned(name), "random", seed)


TURNED = [name for name, c in CASES.items() if c.bulk]


@cache
def turned(name: str) -> Whole:
    """Tiles of 64 columns and 16 to 48 rows, some of them by CTAs that share steps."""
    c, drawn = CASES[name], random.Random(name)
    split = 1 if name in ("k of 1", "scores of heads") else drawn.choice((1, 2))  # of one step
    sizes = {"m": 64, "consumers": 1, "n": drawn.choice((16, 32, 48)), "k": 32, "split": split}
    (dtype,) = {spec.dtype for spec in c.specs}
    return whole(c.fn, *c.specs, row=f"wgmma.{dtype}", turned=1, **sizes)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", TURNED)
def test_columns_of_tiles_may_be_rows(name: str) -> None:
    w = turned(name)
    for order, plans in (("early", None), ("random", plan(w.lowered.kernel, h200))):
        check(w, plans, order, 0)


@pytest.mark.sampled(24)
@pytest.mark.parametrize("name", ALL)
def test_their_text_compiles_without_spills(name: str, full: bool) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    source = emit(planned(name))
    if full or picked(name, 8):
        log = compile_text(source.text, 90, source.name).log
        assert "0 bytes spill stores, 0 bytes spill loads" in log
        assert "warning" not in log


def test_constants_that_nothing_reads_are_not_declared() -> None:
    # One tile, and one head per panel: columns of the output fold to numbers.
    text = re.sub(r"//.*", "", emit(planned("heads first")).text)
    declared = re.findall(r"const (?:int|long long) (\w+) = ", text)
    assert declared
    for name in declared:
        assert len(re.findall(rf"\b{name}\b", text)) > 1, name


# -- ragged extents --

EXTENTS = (1, 8, 17, 64, 333, 1000, 4096)


def transposable(way: str) -> Fn:
    """A product of two matrices; `way` says which of them lie transposed."""
    return lambda x, y: (x if way[0] == "n" else x.T) @ (y if way[1] == "n" else y.T)


def shapes(m: int, n: int, k: int, way: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return (m, k) if way[0] == "n" else (k, m), (k, n) if way[1] == "n" else (n, k)


def test_ragged_extents_are_right_in_the_interpreter(full: bool) -> None:
    cases = [
        (m, n, k, dtype, way)
        for m, n, k in product(EXTENTS, repeat=3)
        for dtype, way in product(("f16", "f32", "f64"), ("nn", "nt", "tn", "tt"))
        if m * n * k <= (64**3 if full else 64 * 64 * 17)
    ]
    for m, n, k, dtype, way in cases if full else random.Random(5).sample(cases, 5):
        w = whole(transposable(way), *of(dtype, *shapes(m, n, k, way)), seed=m + n + k)
        check(w, plan(w.lowered.kernel, h200), "random", 1)


def test_all_ragged_extents_lower(full: bool) -> None:
    extents = list(product(EXTENTS, repeat=3))
    cases = [(e, way) for e in extents for way in ("nn", "nt", "tn", "tt")]
    for (m, n, k), way in cases if full else random.Random(6).sample(cases, 16):
        a, b = shapes(m, n, k, way)
        kernel = lowered(axe.trace(transposable(way), *of("f16", a, b))).kernel
        if min(m, n, k) > 1:
            assert kernel.persistent == (a[1] % 8 == b[1] % 8 == 0)
        assert emit(plan(kernel, h200)).smem_bytes <= h200.memory("smem").n_bytes


# -- tiles that extraction may choose --

ROWS, COLS = (64, 128), (32, 64, 96, 128, 192, 256)


def test_every_tile_and_dtype_of_results_is_right(full: bool) -> None:
    cases = list(product(ROWS, COLS, ("nn", "nt", "tn"), (xp.float16, xp.float32)))
    for rows, cols, way, out in cases if full else random.Random(4).sample(cases, 3):
        fn = transposable(way)
        specs = of("f16", *shapes(72, 200, 64, way))
        sizes = {"m": rows, "n": cols, "consumers": rows // 64}

        def cast(x: Any, y: Any, fn: Fn = fn, out: Any = out) -> Any:
            return xp.astype(fn(x, y), out)

        w = whole(cast, *specs, row="wgmma.f16", **sizes)
        assert w.lowered.kernel.persistent
        check(w, plan(w.lowered.kernel, h200), "random", cols)


IN_PARTS = {
    "f16": ("mma", 128, 32), "f32": ("fma", 128, 16), "f64": ("mma", 64, 16), "i64": ("fma", 64, 8),
}  # fmt: skip


def in_parts(dtype: str) -> Whole:
    """Several results of the largest tile, whose accumulators leave few registers to others."""
    m, n, k = 140, 150, 20

    def fn(a: Any, b: Any, c: Any, d: Any, e: Any) -> Any:
        return a @ b * c + d + e, a @ b

    specs = of(dtype, (m, k), (k, n), (m, n), (n,), (m, 1))
    family, cols, depth = IN_PARTS[dtype]
    return whole(fn, *specs, row=f"{family}.{dtype}", m=128, n=cols, k=depth)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", IN_PARTS)
def test_results_of_large_tiles_are_stored_in_parts(dtype: str, full: bool) -> None:
    w = in_parts(dtype)
    plans = plan(w.lowered.kernel, h200)
    assert len(re.findall(r"// copy out0", emit(plans).text)) > 1
    for seed in range(20 if full else 1):
        check(w, plans, "random", seed)


# Of a row, the sizes and the depth of the sum: what the text has then.
SHORT = {
    "parts of a step": ("fma.f32", (32, 128, 64), 61, "part += 16"),
    "parts that end past the sum's": ("fma.f32", (64, 64, 64), 33, "part += 18"),
    "a step whose end is past the sum's": ("mma.f16", (16, 32, 64), 20, ""),
    "places of copies in a loop": ("mma.f64", (32, 64, 16), 61, "hold_i32(m_at"),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", SHORT)
def test_products_of_few_steps_are_right(name: str) -> None:
    row, (m, n, k), depth, there = SHORT[name]
    dtype = row.partition(".")[2]

    def fn(a: Any, b: Any) -> Any:
        return (xp.exp(a) if dtype == "f16" else a) @ b

    w = whole(fn, *of(dtype, (m + 3, depth), (depth, n + 5)), row=row, m=m, n=n, k=k)
    plans = plan(w.lowered.kernel, h200)
    assert there in emit(plans).text
    check(w, plans, "random", 1)


def test_staged_panels_are_not_overwritten_at_the_ends_of_tiles() -> None:
    """Three panels in two slots would meet the last one of the tile before."""
    problem = Problem(64, 400, 64)
    with pytest.raises(ScheduleError, match="3 panels in 2 slots; expected whole rounds of them"):
        gemm(problem, Tiling(64, 192, 64, 2, 1, 1, staging=2))
    kernel = gemm(problem, Tiling(64, 192, 64, 2, 1, 1, staging=staged_panels(3, 2)))
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(s).astype(np.float16) for s in ((64, 64), (400, 64)))
    arrays = {"A": a, "B": b, "C": np.zeros((64, 400), np.float16)}
    run = interpret(
        kernel, arrays, planned=plan(kernel, h200), meanings=MEANINGS, n_ctas=1, order="late"
    )
    np.testing.assert_allclose(run.outputs["C"], a.astype(np.float32) @ b.T, atol=0.1)


def test_panels_that_divide_no_columns_are_wide_and_lie_over_each_other() -> None:
    """Of 184 columns only eights are a part: 23 stores of a tile, each after the one before."""
    tiling = Tiling(128, 184, 64, 2, 1, 2, staging=1)
    kernel = gemm(Problem(128, 184, 64), tiling)
    stores = [
        s
        for s, _ in ir.walk(kernel)
        if isinstance(s, ir.CopyAsync) and s.dst.buffer is kernel.tensors[-1]
    ]
    assert [number(s.dst.shape[1]) for s in stores] == [64, 64, 64]
    with pytest.raises(ScheduleError, match="23 panels in 3 slots"):  # memory adds them once
        gemm(Problem(128, 184, 64, merges="+"), replace(tiling, staging=3))


# -- refusals --

REFUSED: dict[str, tuple[Case, str]] = {
    "a product of a product": (
        registers(lambda a, b, c: (a @ b) @ c, f16(8, 9), f16(9, 10), f16(10, 11)),
        "multiplies what another product gives",
    ),
    "whole numbers beside others": (
        registers(
            lambda a, b, c: a @ b + xp.astype(c @ c.T, xp.float16),
            f16(8, 16), f16(16, 8), axe.Spec((8, 16), "i32"),
        ),
        "products: of f16 and i32",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_kernel_computes_is_refused_with_the_reason(name: str) -> None:
    c, reason = REFUSED[name]
    with pytest.raises(AxeError, match=reason):
        whole(c.fn, *c.specs)


@pytest.mark.parametrize("dtype", ["i8", "u8", "i16", "i32"])
def test_products_of_integers_wrap_around_as_numpy_s(dtype: str) -> None:
    kind = np.dtype({"i8": "i1", "u8": "u1", "i16": "i2", "i32": "i4"}[dtype])
    ends, rng = np.iinfo(kind), np.random.default_rng(0)
    a, b = (rng.integers(ends.min, ends.max, s, kind, True) for s in ((17, 9), (9, 12)))
    exe = axe.compile(lambda x, y: x @ y, f"17x9:{dtype}", f"9x12:{dtype}", target="h200")
    assert [k.row for k in exe.kernels] == [f"fma.{dtype}"]
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(exe.interpret(a, b), a @ b)


def test_sums_of_products_of_three_have_kernels() -> None:
    """Packs may write such operators: what no law takes apart is no product of matrices."""
    specs, rng = of("i32", (3, 3), (3, 4)), np.random.default_rng(0)
    a, b = (rng.integers(-9, 9, s.shape).astype("i4") for s in specs)
    traced = axe.trace(lambda x, y: (x, y), *specs)
    node = op_node("d a, b e, f c -> a b c; + d e f", "mul", [*traced.outputs, traced.outputs[0]])
    program = replace(traced, outputs=(node,), structure=0)
    exe = axe.compile(program, target="h200")
    np.testing.assert_array_equal(exe.interpret(a, b), np.einsum("da,be,fc->abc", a, b, a))


def test_no_kernel_stores_a_result_from_tiles_along_a_side_that_it_lacks() -> None:
    def mixed(x: Any, g: Any, w: Any) -> Any:
        return es("te,tef->tf", nn.softmax(x @ g), es("td,edf->tef", x, w))

    specs = of("f32", (33, 17), (17, 8), (8, 17, 9))
    exe, rng = axe.compile(mixed, *specs, target="h200"), np.random.default_rng(0)
    arrays = [rng.normal(size=s.shape).astype("f4") for s in specs]
    # The gates of a tile's rows, beside every expert's columns, were stored by each column.
    np.testing.assert_allclose(exe.interpret(*arrays), axe.run(mixed, *arrays), atol=1e-5)


@pytest.mark.parametrize(("experts", "n"), [(5, 8), (4, 24)])
@pytest.mark.parametrize("text", ["td,edf->tef", "td,edf->etf"])
def test_operands_of_few_contiguous_columns_have_kernels(text: str, experts: int, n: int) -> None:
    """A tile over several experts has lines of 16 or 48 bytes, which bulk copies do not swizzle."""
    fn = lambda x, w: es(text, x, w)  # noqa: E731
    specs, rng = of("f16", (24, 64), (experts, 64, n)), np.random.default_rng(0)
    x, w = (rng.integers(-8, 9, s.shape).astype("f2") for s in specs)
    exe = axe.compile(fn, *specs, target="h200")
    assert [k.schedule for k in exe.kernels] == ["tensor_cores"]
    np.testing.assert_array_equal(exe.interpret(x, w), np.einsum(text, x, w))
