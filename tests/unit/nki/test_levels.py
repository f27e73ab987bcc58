"""Drawn kernels: primitives, plans and texts agree, and are what numpy computes."""

from __future__ import annotations

import random
from collections.abc import Mapping
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from axe_eq.kernel.cells import Apply, Cell, Constant, apply, arg
from axe_eq_backends.nki.schedules.contraction import contraction
from axe_eq_backends.nki.schedules.stream import mixture
from axe_eq_backends.nki.schedules.walk import ways
from axe_eq_backends.nki.space import Count, Scan, Space, Sum, Tensor
from axe_eq_backends.nki.target import trn1, trn2, trn3
from tests.unit.nki.levels import agree, gemm, run, stream, walk

NUMPY = {"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i32": np.int32}
TOLERANCE = {"f32": 2e-5, "f16": 2e-3, "bf16": 1.6e-2}


def dense(
    name: str, dtype: str, dims: Mapping[int, int], rank: int, order: tuple[int, ...]
) -> Tensor:
    """A tensor over some dims of a space of this rank, slow to fast in this order."""
    strides, step = [0] * rank, 1
    for d in reversed(order):
        strides[d] = step if dims[d] > 1 else 0
        step *= dims[d]
    return Tensor(name, dtype, tuple(strides))


def laid(t: Tensor, shape: tuple[int, ...], values: Any) -> Any:
    """Values over all dims of a space, as the tensor has them in memory."""
    flat = np.zeros(
        1 + sum((e - 1) * s for e, s in zip(shape, t.strides, strict=True)), values.dtype
    )
    at: Any = np.zeros([1] * len(shape), np.int64)
    for d, s in enumerate(t.strides):
        at = at + s * np.arange(shape[d]).reshape([-1 if e == d else 1 for e in range(len(shape))])
    flat[at] = values
    return flat


def extent(rng: random.Random, most: int) -> int:
    """1, small, about a multiple of 128, or anything."""
    return min(
        most,
        rng.choice(
            [1, rng.randint(2, 9), 128 + rng.choice((-1, 0, 1)), 257, 514, rng.randint(1, most)]
        ),
    )


@pytest.mark.sampled(14)
@pytest.mark.parametrize("seed", range(300))
def test_products_of_any_operands(seed: int) -> None:
    rng = random.Random(seed)
    dtype = rng.choice(["bf16", "f16", "f32"])
    batch = rng.choice([1, 1, 1, 2, 3])
    shape = (batch, extent(rng, 300), extent(rng, 600), extent(rng, 300))
    if prod(shape) > 1 << 23:
        shape = (1, shape[1], min(shape[2], 140), min(shape[3], 140))
    dims = dict(enumerate(shape))
    a_order = rng.choice([(0, 1, 3), (0, 3, 1)])
    b_order = rng.choice([(0, 2, 3), (0, 3, 2), (2, 3), (3, 2)])
    c_order = rng.choice([(0, 1, 2), (0, 2, 1)])
    a, b = dense("a", dtype, dims, 4, a_order), dense("b", dtype, dims, 4, b_order)
    e, c = (
        dense("e", dtype, dims, 4, rng.choice([(1,), (2,), (0, 1, 2)])),
        dense("c", dtype, dims, 4, c_order),
    )
    before: Cell = arg(0) if rng.random() < 0.7 else apply("maximum", arg(0), 0.0)
    kind = rng.choice(["plain", "bias", "silu"])
    total = arg(3)
    cell: Cell = total
    if kind == "bias":
        cell = apply("add", total, arg(2))
    elif kind == "silu":
        cell = apply("mul", total, apply("sigmoid", apply("mul", total, 0.5)))
    space = Space(
        shape,
        (a, b, e, Sum("+", (3,), Apply("mul", (before, arg(1))), True, (dtype, dtype))),
        ((c, cell),),
    )
    if max(shape) > 1 and shape[3] == 1:
        space = Space(shape, space.parts, space.results)
    draw = np.random.default_rng(seed)

    def values(t: Tensor) -> Any:
        own = [n if t.strides[d] else 1 for d, n in enumerate(shape)]
        return draw.standard_normal(own).astype(NUMPY[dtype])

    held = {t.buffer: values(t) for t in (a, b, e)}
    wide = {
        n: np.broadcast_to(x.astype(np.float64), np.broadcast_shapes(x.shape, (1,) * 4))
        for n, x in held.items()
    }
    left = wide["a"] if before == arg(0) else np.maximum(wide["a"], 0)
    product = (left * wide["b"]).sum(3, keepdims=True) if prod(shape) < 1 << 21 else np.einsum(
        "bmxk,bxnk->bmnx", np.broadcast_to(left, (shape[0], shape[1], 1, shape[3])),
        np.broadcast_to(wide["b"], (shape[0], 1, shape[2], shape[3])))  # fmt: skip
    product = np.broadcast_to(product, (*shape[:3], 1))
    want = {"plain": product, "bias": product + wide["e"],
            "silu": product / (1 + np.exp(-product * 0.5))}[kind]  # fmt: skip
    want = np.broadcast_to(want, (*shape[:3], 1))
    arrays = {t.buffer: laid(t, shape, np.broadcast_to(held[t.buffer], [
        n if t.strides[d] else 1 for d, n in enumerate(shape)])) for t in (a, b, e)}  # fmt: skip
    arrays["c"] = np.zeros(prod(shape[:3]), NUMPY[dtype])
    target = rng.choice([trn1, trn2, trn3])
    deep = rng.choice([0, 0, 128, 256])
    sizes = {"rows": rng.choice([128, 256]), "cols": rng.choice([512, 1024]), "deep": deep}
    sizes["held"] = rng.randrange(2)
    kernel, buffers = gemm(contraction(space), "k", target, sizes)
    wanted = {"c": laid(c, (*shape[:3], 1), want)}
    agree(run(kernel, buffers, arrays, target), wanted, TOLERANCE[dtype])


def shares(weights: Any) -> Any:
    """Rows over their sums."""
    return weights / weights.sum(1, keepdims=True)


# Cells and reductions of a [r, n] matrix x and a row w: a space, and what numpy computes.
X, W = arg(0), arg(1)
ROWS: dict[str, tuple[list[Sum | Scan | Count], Cell, bool, Any]] = {
    "cells": ([], apply("mul", apply("tanh", X), apply("add", W, 1.0)), True,
              lambda x, w: np.tanh(x) * (w + 1)),
    "sum": ([Sum("+", (1,), apply("mul", X, W))], arg(2), False,
            lambda x, w: (x * w).sum(1, keepdims=True)),
    "softmax": ([Sum("max", (1,), X), Sum("+", (1,), apply("exp", apply("sub", X, arg(2))))],
                apply("div", apply("exp", apply("sub", X, arg(2))), arg(3)), True,
                lambda x, w: shares(np.exp(x - x.max(1, keepdims=True)))),
    "norm": ([Sum("+", (1,), apply("mul", X, X))],
             apply("mul", apply("mul", X, apply("rsqrt", apply("add", arg(2), 1.0))), W), True,
             lambda x, w: x / np.sqrt((x * x).sum(1, keepdims=True) + 1) * w),
    "scan": ([Scan("+", 1, X)], arg(2), True, lambda x, w: np.cumsum(x, 1)),
    "mask": ([Count(1), Count(0)],
             apply("where", apply("ge", arg(3), arg(2)), X, Constant(-1.0, "f32")), True,
             lambda x, w: np.where(np.tri(*x.shape) > 0, x, -1)),
}  # fmt: skip


@pytest.mark.sampled(12)
@pytest.mark.parametrize("seed", range(120))
@pytest.mark.parametrize("kind", ROWS)
def test_rows_in_tiles_and_in_sweeps(kind: str, seed: int) -> None:
    rng = random.Random(f"{kind} {seed}")
    dtype = rng.choice(["f32", "bf16", "f16"])
    shape = extent(rng, 200), extent(rng, 700)
    parts, cell, whole, meaning = ROWS[kind]
    dims = dict(enumerate(shape))
    x = dense("x", dtype, dims, 2, rng.choice([(0, 1), (1, 0)]))
    w = dense("w", dtype, dims, 2, (1,))
    out = dense("y", dtype, dims if whole else {0: shape[0], 1: 1}, 2, (0, 1))
    space = Space(shape, (x, w, *parts), ((out, cell),))
    if any(e == 1 for e in shape) and kind in ("scan", "mask"):
        pytest.skip("a dim of one index is no dim of a space")
    tile = rng.choice([64, 128, 8192]) if kind != "scan" else 8192
    n_ways = len(ways(space, trn2))
    kernel, buffers = walk(space, "k", trn2, {"tile": tile, "across": rng.randrange(n_ways)})
    draw = np.random.default_rng(seed)
    held = {"x": draw.standard_normal(shape).astype(NUMPY[dtype]),
            "w": draw.standard_normal((1, shape[1])).astype(NUMPY[dtype])}  # fmt: skip
    want = meaning(held["x"].astype(np.float64), held["w"].astype(np.float64))
    own = (shape[0], shape[1] if whole else 1)
    arrays = {"x": laid(x, shape, held["x"]), "w": laid(w, (1, shape[1]), held["w"]),
              "y": np.zeros(prod(own), NUMPY[dtype])}  # fmt: skip
    agree(
        run(kernel, buffers, arrays),
        {"y": laid(out, own, np.broadcast_to(want, own))},
        TOLERANCE[dtype],
    )


def test_a_reduction_of_what_was_swept_sweeps_nothing() -> None:
    shape = 2, 7, 200
    x, y = Tensor("x", "f32", (1400, 200, 1)), Tensor("y", "f32", (1, 0, 0))
    largest = Sum("max", (1,), X, False, ("f32",))
    space = Space(shape, (x, largest, Sum("+", (2,), arg(1), False, ("f32",))), ((y, arg(2)),))
    kernel, buffers = walk(space, "k", trn2, {"across": 0, "tile": 400})
    held = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    wanted = held.astype(np.float64).max(1).sum(1)
    agree(run(kernel, buffers, {"x": held, "y": np.zeros(2, np.float32)}), {"y": wanted}, 2e-5)


@pytest.mark.sampled(8)
@pytest.mark.parametrize("seed", range(120))
def test_streams_of_scores(seed: int) -> None:
    rng = random.Random(f"stream {seed}")
    dtype = rng.choice(["bf16", "f16", "f32"])
    batch, m, t, e, q = (
        rng.choice([1, 2]), extent(rng, 260), extent(rng, 400), rng.choice([2, 40, 64, 130]),
        rng.choice([1, 8, 64, 200]),
    )  # fmt: skip
    shape = batch, m, t, e, q
    dims = dict(enumerate(shape))
    left = dense("q", dtype, dims, 5, rng.choice([(0, 1, 3), (0, 3, 1)]))
    right = dense("k", dtype, dims, 5, rng.choice([(0, 2, 3), (2, 3), (3, 2)]))
    value = dense("v", dtype, dims, 5, rng.choice([(0, 2, 4), (2, 4)]))
    out = dense("y", dtype, dims, 5, (0, 1, 4))
    masked = rng.random() < 0.5 and m > 1 and t > 1
    score: Cell = apply("mul", arg(3), 0.25)
    if masked:
        score = apply("where", apply("ge", arg(5), arg(4)), score, Constant(-np.inf, "f32"))
    space = Space(
        shape,
        (left, right, value, Sum("+", (3,), Apply("mul", (arg(0), arg(1))), True, (dtype, dtype)),
         Count(2), Count(1),
         Sum("softmax", (2,), Apply("pair", (score, arg(2))), False, (dtype, dtype))),
        ((out, arg(6)),),
    )  # fmt: skip
    if t == 1:
        pytest.skip("a dim of one index is no dim of a space")
    chunk = rng.choice([128, 256, 512])
    kept = rng.random() < 0.5 and (chunk >= t or t % chunk == 0)
    sizes = {"chunk": chunk, "kept": int(kept), "turned": rng.randrange(2) if dtype != "f32" else 0}
    kernel, buffers = stream(mixture(space), "k", trn2, sizes)
    draw = np.random.default_rng(seed)
    held = {
        x.buffer: draw.standard_normal([n if x.strides[d] else 1 for d, n in enumerate(shape)])
        .astype(NUMPY[dtype])
        for x in (left, right, value)
    }  # fmt: skip
    arrays = {x.buffer: laid(x, held[x.buffer].shape, held[x.buffer]) for x in (left, right, value)}
    arrays["y"] = np.zeros(batch * m * q, NUMPY[dtype])
    wide = {n: x.astype(np.float64) for n, x in held.items()}
    scores = 0.25 * (wide["q"] * wide["k"]).sum(3, keepdims=True)
    if masked:
        keep = np.arange(m)[:, None] >= np.arange(t)[None]
        scores = np.where(keep[None, :, :, None, None], scores, -np.inf)
    scores = np.broadcast_to(scores, (batch, m, t, 1, 1))
    weights = np.exp(scores - scores.max(2, keepdims=True))
    want = (weights * wide["v"]).sum(2, keepdims=True) / weights.sum(2, keepdims=True)
    own = (batch, m, 1, 1, q)
    agree(run(kernel, buffers, arrays), {"y": laid(out, own, np.broadcast_to(want, own))},
          2 * TOLERANCE[dtype])  # fmt: skip
