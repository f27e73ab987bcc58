"""Programs drawn by seed: every family of operators, every dtype, extents 1 to 5000."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import axe_eq as axe
from axe_eq import nn
from axe_eq.check.kernelcheck import sample
from axe_eq.program.gathers import index_limits
from axe_eq.program.node import Program
from axe_eq.program.types import DTYPES, Array, ValueType
from benchmarks.random_programs import random_program

xp = axe.array
FLOATS = ("f32", "f32", "f16", "f16", "bf16", "f64", "f8e4m3", "f8e5m2")
WIDE = ("f32", "f32", "f16", "bf16", "f64")
WHOLE = ("i32", "i32", "i64", "i64", "i8", "u8", "i16")
INDICES = ("i32", "i32", "i64", "i64", "i16", "u8", "i8")
ELEMENTS = 1 << 19  # of the largest value that the interpreter is given
MULTIPLY_ADDS = 1 << 26
LARGE = 1 << 24  # elements of the larger ones, which only a device runs
LONGEST = 5000
GENERIC_OPS = 12

Shape = tuple[int, ...]
Drawn = tuple[Callable[..., Any], list[tuple[Shape, str]]]


@dataclass(frozen=True)
class Case:
    """A program with its name: the kind, the seed, and the shapes.

    Attributes:
        name: says it all again: ``case(seed)`` draws it.
        kind: the family that it was drawn from.
        program: traced.
        values: "moderate" or "extreme".
    """

    name: str
    kind: str
    program: Program
    values: str


# -- extents --------------------------------------------------------------------------------------


def extent(rng: random.Random, most: int = LONGEST) -> int:
    """1, small, about a power of two, or anything, each often."""
    kind = rng.random()
    if kind < 0.08:
        return 1
    if kind < 0.35:
        found = rng.randint(2, 33)
    elif kind < 0.65:
        found = (1 << rng.randint(4, 12)) + rng.choice((-1, 0, 0, 0, 1))
    else:
        found = round(math.exp(rng.uniform(0, math.log(LONGEST))))
    return max(1, min(found, most))


def shape(rng: random.Random, least: int = 1, most: int = 4, size: int = ELEMENTS) -> Shape:
    """Dims whose product stays below a size."""
    found: list[int] = []
    left = size
    for _ in range(rng.randint(least, most)):
        found.append(extent(rng, max(1, min(LONGEST, left))))
        left //= found[-1]
    rng.shuffle(found)
    return tuple(found)


def size_of(rng: random.Random) -> int:
    """Elements at most: one program in eight is larger than the interpreter takes."""
    return LARGE if rng.random() < 0.125 else ELEMENTS


# -- families -------------------------------------------------------------------------------------

UNARY: tuple[Callable[[Any], Any], ...] = (
    nn.relu, nn.silu, nn.gelu, nn.sigmoid, xp.exp, xp.tanh, xp.abs, xp.square, xp.negative,
    xp.floor, xp.sign, lambda x: x * 0.5 + 1, lambda x: xp.sqrt(xp.abs(x)),
    lambda x: xp.log1p(xp.abs(x)), lambda x: 1 / (1 + x * x), lambda x: xp.clip(x, -1.0, 2.0),
    lambda x: xp.where(x > 0, x, xp.expm1(x)), lambda x: xp.where(xp.isnan(x), 0.0, x),
    lambda x: x * xp.tanh(xp.log1p(xp.exp(x))), lambda x: xp.sin(x) + xp.cos(x),
)  # fmt: skip
BINARY: tuple[Callable[[Any, Any], Any], ...] = (
    xp.add, xp.multiply, xp.subtract, xp.maximum, xp.minimum, lambda a, b: a / (1 + b * b),
    lambda a, b: xp.where(a > b, a, b * 2), lambda a, b: xp.where(a == b, 1.0, a - b),
)  # fmt: skip
BITS: tuple[Callable[[Any, Any], Any], ...] = (
    xp.bitwise_and, xp.bitwise_or, xp.bitwise_xor, xp.add, xp.multiply, xp.subtract, xp.maximum,
    lambda a, b: xp.bitwise_left_shift(a, xp.bitwise_and(b, 7)), lambda a, b: a * (a - b) + b,
    lambda a, b: xp.where(a > b, a, ~b), lambda a, b: xp.remainder(a, xp.bitwise_or(b, 1)),
)  # fmt: skip
FOLDS = ("sum", "sum", "max", "min", "prod", "mean", "var")


def cells(rng: random.Random) -> Drawn:
    """Cells of one array, of two, and of a row or a column of the second."""
    dtype, of = rng.choice(FLOATS), shape(rng, size=size_of(rng))
    f, g, h = rng.choice(UNARY), rng.choice(UNARY), rng.choice(BINARY)
    other = tuple(rng.choice((e, e, 1)) for e in of)[rng.randint(0, len(of) - 1) :]
    return lambda x, y: f(h(x, g(y))), [(of, dtype), (other, dtype)]


def bits(rng: random.Random) -> Drawn:
    """Cells of integers, and reductions of them."""
    dtype, of = rng.choice(WHOLE), shape(rng)
    h, g = rng.choice(BITS), rng.choice(BITS)
    fold = rng.choice((None, "sum", "max", "min", "prod"))
    axis = rng.randrange(len(of))

    def fn(x: Any, y: Any) -> Any:
        value = h(x, g(x, y))
        return value if fold is None else getattr(xp, fold)(value, axis=axis)

    return fn, [(of, dtype), (of, dtype)]


def reduction(rng: random.Random) -> Drawn:
    """A reduction over any dims of cells of an array and of a value per row or column."""
    dtype, of = rng.choice(WIDE), shape(rng, size=size_of(rng))
    name = rng.choice(FOLDS)
    axes = tuple(d for d in range(len(of)) if rng.random() < 0.5) or (rng.randrange(len(of)),)
    axes = axes if rng.random() < 0.9 else tuple(range(len(of)))
    row = tuple(1 if d in axes else e for d, e in enumerate(of))
    f, h, keep = rng.choice(UNARY), rng.choice(BINARY), rng.random() < 0.5
    after = rng.choice((None, *UNARY))

    def fn(x: Any, r: Any) -> Any:
        found = getattr(xp, name)(h(f(x), r), axis=axes, keepdims=keep)
        return found if after is None else after(found)

    return fn, [(of, dtype), (row, dtype)]


def tests(rng: random.Random) -> Drawn:
    """Logical reductions, counts and positions."""
    dtype, of = rng.choice((*WIDE, *WHOLE)), shape(rng)
    axis = rng.choice((None, *range(len(of))))
    kind = rng.choice(("any", "all", "count_nonzero", "argmax", "argmin"))

    def fn(x: Any, y: Any) -> Any:
        if kind in ("argmax", "argmin"):
            return getattr(xp, kind)(x, axis=0 if axis is None else axis), x + y
        return getattr(xp, kind)((x > y) | (x == 0), axis=axis)

    return fn, [(of, dtype), (of, dtype)]


def rows(rng: random.Random) -> Drawn:
    """Softmax and norms with a residual, a weight and, at times, both results."""
    dtype, of = rng.choice(WIDE), shape(rng, least=2, most=3, size=size_of(rng))
    kind = rng.choice(("softmax", "rmsnorm", "layernorm", "logsumexp", "twice"))
    axis = rng.randrange(len(of)) if kind == "softmax" else -1
    both = rng.random() < 0.3

    def fn(x: Any, r: Any, g: Any) -> Any:
        h = x + r
        if kind == "softmax":
            y = nn.softmax(h, axis=axis)
        elif kind == "logsumexp":
            top = xp.max(h, axis=-1, keepdims=True)
            y = xp.log(xp.sum(xp.exp(h - top), axis=-1, keepdims=True)) + top
        elif kind == "twice":
            total = xp.sum(h, axis=-1, keepdims=True)
            y = xp.sum(xp.where(total > 3, 1.0, h), axis=-1)
        else:
            y = getattr(nn, kind)(h) * g
        return (y, h) if both else y

    return fn, [(of, dtype), (of, dtype), (of[-1:], dtype)]


def product(rng: random.Random) -> Drawn:
    """A product of matrices, batched at times, with operands as they lie and cells around it."""
    dtype = rng.choice(("f16", "f16", "f16", "bf16", "f32", "f64", "f8e4m3", "i32"))
    while True:
        m, n, k, b = extent(rng), extent(rng), extent(rng), rng.choice((1, 1, 1, rng.randint(2, 9)))
        if max(m * k, k * n, m * n) * b <= ELEMENTS and m * n * k * b <= MULTIPLY_ADDS:
            break
    batch = () if b == 1 else (b,)
    left, right = rng.random() < 0.3, rng.random() < 0.5
    f = rng.choice((None, *UNARY[:8])) if dtype[0] != "i" else None
    h = rng.choice((None, None, *BINARY[:4])) if dtype[0] != "i" else None
    of_a = (*batch, k, m) if left else (*batch, m, k)
    of_b = (n, k) if right else (k, n)
    of_b = of_b if rng.random() < 0.5 else (*batch, *of_b)

    def fn(a: Any, w: Any, c: Any) -> Any:
        y = (a.mT if left else a) @ (w.mT if right else w)
        y = y if h is None else h(y, c)
        return y if f is None else f(y)

    return fn, [(of_a, dtype), (of_b, dtype), ((n,), dtype)]


def chain(rng: random.Random) -> Drawn:
    """Products after products: gated, two layers, a norm before."""
    dtype = rng.choice(("f16", "bf16", "f32"))
    m, k, n = (extent(rng, 512) for _ in range(3))
    kind = rng.choice(("gated", "layers", "norm", "residual"))

    def fn(x: Any, w: Any, v: Any, d: Any) -> Any:
        if kind == "gated":
            return nn.silu(x @ w) * (x @ v)
        if kind == "layers":
            return nn.relu(x @ w) @ d
        if kind == "norm":
            return nn.rmsnorm(x) @ w
        return x + nn.gelu(x @ w) @ d

    return fn, [((m, k), dtype), ((k, n), dtype), ((k, n), dtype), ((n, k), dtype)]


def attention(rng: random.Random) -> Drawn:
    """Softmax of a product times a third, with a mask of any kind."""
    dtype = rng.choice(("f16", "f16", "bf16", "f32"))
    s, t, d = extent(rng, 300), extent(rng, 300), rng.choice((8, 16, 40, 64, 80, 96, 128))
    batch = tuple(rng.randint(1, 3) for _ in range(rng.randint(0, 2)))
    shared = tuple(1 if rng.random() < 0.3 else e for e in batch)
    kind = rng.choice(("", "", "causal", "bias", "bool", "alibi", "softcap"))

    def fn(q: Any, k: Any, v: Any, e: Any) -> Any:
        scores = q @ k.mT * d**-0.5
        i, j = xp.arange(s)[:, None], xp.arange(t)[None, :]
        if kind == "causal":
            scores = xp.where(i >= j, scores, -xp.inf)
        elif kind == "bias":
            scores = scores + e
        elif kind == "bool":
            scores = xp.where(e > 0, scores, -xp.inf)
        elif kind == "alibi":
            scores = scores - 0.25 * xp.astype(xp.abs(i - j), dtype)
        elif kind == "softcap":
            scores = 5.0 * xp.tanh(scores / 5.0)
        return nn.softmax(scores) @ v

    keys = (*shared, t, d)
    return fn, [((*batch, s, d), dtype), (keys, dtype), (keys, dtype), ((s, t), dtype)]


def moves(rng: random.Random) -> Drawn:
    """Two views or copies in a row: of slices, steps, flips, pads, reshapes, concatenations."""
    dtype, of = rng.choice((*FLOATS, *WHOLE, "bool")), shape(rng, least=2, size=size_of(rng))
    order = tuple(rng.sample(range(len(of)), len(of)))
    axis, step = rng.randrange(len(of)), rng.choice((1, 1, 2, 3, -1))
    kind = rng.sample(("slice", "flip", "roll", "pad", "permute", "flat", "concat", "repeat"), 2)
    first = rng.randrange(of[axis])
    widths = [(rng.randint(0, 3), rng.randint(0, 3)) for _ in of]

    def moved(x: Any, how: str) -> Any:
        if how == "slice":
            dim = min(axis, x.ndim - 1)
            begin = None if step < 0 else first % x.shape[dim]
            return x[(*[slice(None)] * dim, slice(begin, None, step))]
        if how == "permute":
            return xp.permute_dims(x, order) if x.ndim == len(order) else x
        if how == "pad":
            return xp.pad(x, tuple(widths[: x.ndim])) if x.ndim == len(widths) else x
        if how == "flat":
            return xp.reshape(x, (-1,))
        if how == "concat":
            return xp.concat([x, xp.flip(x, axis=0)], axis=0)
        if how == "repeat":
            return xp.repeat(x, 2, axis=0)
        return xp.flip(x, axis=0) if how == "flip" else xp.roll(x, 2, axis=0)

    def fn(x: Any) -> Any:
        return moved(moved(x, kind[0]), kind[1])

    return fn, [(of, dtype)]


def stencil(rng: random.Random) -> Drawn:
    """Steps of a periodic stencil along one dim."""
    dtype, of = rng.choice(WIDE), shape(rng, most=2, size=1 << 14)
    of = tuple(max(e, 3) for e in of)
    steps, axis = rng.randint(1, 3), rng.randrange(len(of))

    def fn(x: Any) -> Any:
        for _ in range(steps):
            x = x * 0.5 + 0.25 * (xp.roll(x, 1, axis=axis) + xp.roll(x, -1, axis=axis))
        return x

    return fn, [(of, dtype)]


def casts(rng: random.Random) -> Drawn:
    """A cast by way of another type."""
    names = tuple(DTYPES)
    dtype, via, to = rng.choice(names), rng.choice(names), rng.choice(names)
    return lambda x: (xp.astype(xp.astype(x, via), to), x), [(shape(rng), dtype)]


def scans(rng: random.Random) -> Drawn:
    """Running sums and products along a dim."""
    dtype, of = rng.choice((*WIDE, *WHOLE)), shape(rng, most=3)
    axis, kind = rng.randrange(len(of)), rng.choice(("cumulative_sum", "cumulative_prod"))
    return lambda x: getattr(xp, kind)(x, axis=axis), [(of, dtype)]


def gathers(rng: random.Random) -> Drawn:
    """Reads where integers say: rows for a norm or a product, keys of a cache, parts of any dim."""
    kind = rng.choice(("rows", "norm", "product", "cache", "along", "part", "twice", "axis", "sum"))
    if kind in ("norm", "product", "cache"):
        dtype, n, m = rng.choice(("f16", "bf16", "f32")), extent(rng, 300), extent(rng, 300)
        d = rng.choice((8, 16, 40, 64, extent(rng, 300)))
        by = _index_dtype(rng, n)

        def rows_of(x: Any, i: Any, w: Any) -> Any:
            taken = xp.take(x, i, axis=0)
            if kind == "norm":
                return nn.rmsnorm(taken)
            return taken @ w.T if kind == "product" else nn.softmax(w @ taken.T * d**-0.5) @ taken

        return rows_of, [((n, d), dtype), ((m,), by), ((extent(rng, 64), d), dtype)]
    dtype, of = rng.choice((*FLOATS, *WHOLE, "bool")), shape(rng, most=3, size=1 << 16)
    axis, f = rng.randrange(len(of)), rng.choice((None, *UNARY)) if dtype in WIDE else None
    by, count = _index_dtype(rng, of[axis]), extent(rng, 100)
    if kind == "along":
        whole = tuple(count if d == axis else rng.choice((e, e, 1)) for d, e in enumerate(of))
        whole = whole if math.prod(whole) <= ELEMENTS else tuple(map(min, whole, of))
        places: Shape = whole
    else:
        places = () if kind == "part" else rng.choice(((count,), (count,), (2, 3), ()))
    size, before = rng.randint(1, of[axis]), rng.random() < 0.5
    other = rng.randrange(len(of))

    def fn(x: Any, i: Any) -> Any:
        x = f(x) if f is not None and before else x
        if kind == "along":
            y = xp.take_along_axis(x, i, axis=axis)
        elif kind == "part":
            starts: list[Any] = [0] * len(of)
            starts[axis] = xp.astype(i, "i64") % (of[axis] - size + 1)
            y = xp.dynamic_slice(x, starts, [size if d == axis else e for d, e in enumerate(of)])
        else:
            y = xp.take(x, i, axis=axis)
        if kind == "twice" and y.ndim:
            y = xp.take(y, xp.arange(min(3, y.shape[-1])) % 2 % y.shape[-1], axis=-1)
        if kind == "axis" and other != axis:
            y = xp.flip(y, axis=0) if y.ndim else y
        if kind == "sum" and dtype != "bool" and y.ndim:
            y = xp.sum(y, axis=rng_axis % y.ndim)
        return f(y) if f is not None and not before else y

    rng_axis = rng.randrange(3)
    return fn, [(of, dtype), (places, by)]


def _index_dtype(rng: random.Random, extent_: int) -> str:
    """A dtype that holds indices of a dim, not always all of them."""
    return rng.choice(INDICES) if extent_ < 200 else rng.choice(INDICES[:5])


def spatial(rng: random.Random) -> Drawn:
    """A small convolution, with and without a bias."""
    dtype = rng.choice(("f32", "f16", "bf16"))
    b, c, o, side = rng.randint(1, 3), rng.randint(1, 9), rng.randint(1, 9), rng.randint(3, 24)
    window = rng.choice((1, 2, 3))
    bias = rng.random() < 0.5

    def fn(x: Any, w: Any, e: Any) -> Any:
        y = nn.conv2d(x, w)
        return nn.relu(y + e[:, None, None]) if bias else y

    return fn, [((b, c, side, side), dtype), ((o, c, window, window), dtype), ((o,), dtype)]


FAMILIES: dict[str, Callable[[random.Random], Drawn]] = {
    f.__name__: f
    for f in (cells, bits, reduction, tests, rows, product, chain, attention, moves, stencil, casts,
              scans, gathers, spatial)
}  # fmt: skip
WEIGHTS = {
    "gathers": 3,
    "cells": 3,
    "reduction": 5,
    "rows": 3,
    "product": 4,
    "attention": 2,
    "generic": 5,
}


def kind_of(seed: int) -> str:
    """The kind of the program of a seed."""
    return _kind(random.Random(f"drawn program {seed}"))


def _kind(rng: random.Random) -> str:
    kinds = [*FAMILIES, "generic"]
    return rng.choices(kinds, [WEIGHTS.get(k, 1) for k in kinds])[0]


def case(seed: int) -> Case:
    """The program of a seed.

    ``case(7)`` is the same program everywhere, and with the same inputs (`inputs`).
    """
    rng = random.Random(f"drawn program {seed}")
    kind = _kind(rng)
    values = rng.choice(("moderate", "moderate", "extreme"))
    if kind == "generic":
        made = random_program(np.random.default_rng(seed), rng.randint(2, GENERIC_OPS))
        values = "bounded"
        return Case(f"{seed} generic", kind, made, values)
    fn, specs = FAMILIES[kind](rng)
    program = axe.trace(fn, *(axe.Spec(of, dtype) for of, dtype in specs))
    shapes = " ".join(f"{dtype}[{','.join(map(str, of))}]" for of, dtype in specs)
    return Case(f"{seed} {kind} {shapes}", kind, program, values)


def inputs(seed: int, program: Program, values: str) -> list[Array]:
    """Arrays for a case's inputs; extreme ones hold large and small numbers, rows of -inf, NaN.

    Integers that say where a value is read are indices of it.
    """
    rng, limits = np.random.default_rng([seed, 1]), index_limits(program.outputs)
    found = []
    for spec in program.inputs:
        array = _array(spec.node.type, rng, values)
        if spec.node in limits:
            most = min(limits[spec.node] - 1, int(np.iinfo(array.dtype).max))
            array = rng.integers(0, most, array.shape, endpoint=True).astype(array.dtype)
        found.append(array)
    return found


def _array(of: ValueType, rng: np.random.Generator, values: str) -> Array:
    if values == "bounded" and DTYPES[of.dtype].kind not in "bi":
        return np.asarray(rng.uniform(-2, 2, of.shape)).astype(DTYPES[of.dtype].numpy)
    return sample(of, rng, "extreme" if values == "extreme" else "moderate")
