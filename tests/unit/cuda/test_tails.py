"""What lies past the end of a row changes no reduction: proved, or masked."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.kernel.cells import Apply, Cell, Constant, apply, arg, evaluate, result_dtype, used
from axe_eq.kernel.threads.interp import interpret
from axe_eq.kernel.values import anything, classes, exactly, possible
from axe_eq.program.ops import CELLS, MONOIDS
from axe_eq.program.types import DTYPES
from axe_eq_backends.cuda.interpret import launch
from axe_eq_backends.cuda.meaning import MEANINGS
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.schedules.sweeps import SweepTiling, sweep
from axe_eq_backends.cuda.schedules.tails import Problem, Reduction, neutral_fill, unit_of
from axe_eq_backends.cuda.schedules.tensors import Operand, dense
from axe_eq_backends.cuda.target import h200
from tests.unit.cuda.whole import Whole, whole

xp = axe.array
X, Y, Z = arg(0), arg(1), arg(2)
F32 = [-math.inf, -3e38, -1e4, -1.0, -1e-4, 0.0, 1e-4, 1.0, 88.8, 1e4, 3e38, math.inf, math.nan]
I32 = [-(2**31), -77, -1, 0, 1, 2, 40000, 2**31 - 1]


def along(dtype: str = "f32") -> Operand:
    return dense("x", dtype, (5, 100))


def per_row(dtype: str = "f32") -> Operand:
    return dense("a", dtype, (5, 100), [0])


# -- kernels ---------------------------------------------------------------------------------------

# Programs whose value past the end depends on what a row's other values are.
ROWS: dict[str, tuple[Callable[..., Any], str]] = {
    "a difference that is 0 where both are equal": (
        lambda x, a, b: xp.sum(x + (a - b)[:, None], axis=1), "f32 f32 f32"),
    "a choice by equality": (
        lambda x, a, b: xp.sum(xp.where((a == b)[:, None], x, 1.0), axis=1), "f32 f32 f32"),
    "a choice past what samples reached": (
        lambda x, a: xp.sum(xp.where(a[:, None] > 100, 1.0, x), axis=1), "f32 f32"),
    "a choice by an earlier sum": (
        lambda x: xp.sum(xp.where(xp.sum(x, axis=1, keepdims=True) > 100, 1.0, x), axis=1), "f32"),
    "a maximum of what is mostly negative": (
        lambda x, a: xp.sum(xp.maximum(x * x, a[:, None] - 200), axis=1), "f32 f32"),
    "a count": (
        lambda x, u, v: xp.count_nonzero((x > 0) | (u != v)[:, None], axis=1), "f32 f32 f32"),
    "a product": (
        lambda x, u: xp.prod(xp.where((u > 100)[:, None], 0.5, 1.0) + 0 * x, axis=1), "f32 f32"),
    "an infinite factor": (
        lambda x, a: xp.sum(xp.abs(x) * xp.where(a > 100, np.inf, a)[:, None], axis=1), "f32 f32"),
    "whole numbers that cancel": (
        lambda x, a, u, v: xp.sum(x * (u - v)[:, None] + (u - v)[:, None] * a[:, None], axis=1),
        "i32 i32 i32 i32"),
    "bits and": (lambda x: xp.sum(xp.bitwise_and(x, 3), axis=1), "i32"),
    "bits or": (lambda x: xp.sum(xp.bitwise_or(x, 3), axis=1), "i64"),
    "bits xor": (lambda x, a: xp.max(xp.bitwise_xor(x, a[:, None]), axis=1), "i32 i32"),
    "bits not": (lambda x: xp.min(xp.bitwise_invert(x), axis=1), "i32"),
    "shifted bits": (
        lambda x: xp.sum(xp.bitwise_left_shift(x, 2) + xp.bitwise_right_shift(x, 1), axis=1),
        "i64"),
}  # fmt: skip


def same(found: Any, wanted: Any) -> bool:
    """Equal up to the rounding of sums, with NaN and infinities in the same places."""
    a, b = (np.asarray(v).astype(np.float64) for v in (found, wanted))
    return bool(np.allclose(a, b, rtol=1e-4, atol=1e-4, equal_nan=True))


@pytest.mark.parametrize("name", ROWS)
def test_ragged_rows_are_right_whatever_their_other_values(name: str) -> None:
    """Values of a row that are equal, large, or make an infinity: no sample of them decides."""
    fn, dtypes = ROWS[name]
    first, *others = dtypes.split()
    specs = [axe.Spec((6, 100), first), *(axe.Spec((6,), d) for d in others)]
    made = whole(fn, *specs)
    rng = np.random.default_rng(1)
    row = {
        "f32": np.array([0.0, 3.0, 150.0, -1.0, 1e4, 120.0]),
        "i32": np.array([0, 3, 9, 1, 2, 7]),
    }
    given: dict[str, Any] = dict(made.inputs)
    for n, read in enumerate(made.program.inputs):
        numpy = DTYPES[read.node.dtype].numpy
        if n:
            given[read.name] = rng.permuted(row[read.node.dtype]).astype(numpy)
        elif DTYPES[first].kind == "f":
            given[read.name] = np.where(rng.random((6, 100)) < 0.9, 1.0, 2.0).astype(numpy)
    arrays = [given[i.name] for i in made.program.inputs]
    made = replace(made, inputs=given, expected=[axe.run(fn, *arrays)])
    assert same(launched(made), made.expected[0])


def launched(made: Whole) -> Any:
    flat = made.flat()
    launch(made.lowered, flat, planned=plan(made.lowered.kernel, h200))
    return flat["out0"].reshape(np.shape(made.expected[0]))


FACTORS: dict[str, Cell] = {"1/y": apply("div", 1.0, Y), "log(y)": apply("log", Y), "y": Y}


@pytest.mark.parametrize("name", FACTORS)
def test_factors_of_rescaled_sums_are_none_past_the_end(name: str) -> None:
    """A weight of 0 makes no infinity 0: swept rows summed exp(x - max) / y to NaN."""
    shape = (8, 1000)
    weights = apply("mul", apply("exp", apply("sub", X, Z)), FACTORS[name])
    problem = Problem(
        shape, 1, [dense("x", "f32", shape), dense("y", "f32", shape)],
        [Reduction("max", X), Reduction("+", weights)],
        [(dense("out", "f32", shape, [0]), arg(3))],
    )  # fmt: skip
    kernel = sweep(problem, SweepTiling(4, 1, 4, 64, 2))
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(shape), rng.uniform(1.0, 2.0, shape)
    given: dict[str, Any] = {"x": x.astype("f"), "y": y.astype("f"), "out": np.zeros(8, "f")}
    run = interpret(kernel, given, {}, planned=plan(kernel, h200), meanings=MEANINGS)
    factor = {"1/y": 1 / y, "log(y)": np.log(y), "y": y}[name]
    assert same(run.outputs["out"], (np.exp(x - x.max(1, keepdims=True)) * factor).sum(1))


# -- what is proved --------------------------------------------------------------------------------

SCALED = apply("mul", X, 0.125)
MASKED = apply("where", Y, X, -math.inf)


def exp_less(cell: Cell, top: int) -> Cell:
    return apply("exp", apply("sub", cell, arg(top)))


PROVED: dict[str, tuple[list[Operand], list[Reduction], float]] = {
    "sum": ([along("f16")], [Reduction("+", X)], 0.0),
    "sum of squares": ([along()], [Reduction("+", apply("mul", X, X))], 0.0),
    "sum of products": ([along(), along()], [Reduction("+", apply("mul", X, Y))], 0.0),
    "maximum": ([along()], [Reduction("max", X)], -math.inf),
    "minimum": ([along("bf16")], [Reduction("min", X)], math.inf),
    "softmax": ([along("f16")], [Reduction("max", X), Reduction("+", exp_less(X, 1))], -math.inf),
    "softmax of what is scaled": (
        [along()], [Reduction("max", SCALED), Reduction("+", exp_less(SCALED, 1))], -math.inf),
    "softmax under a mask": (
        [along(), along("bool")], [Reduction("max", MASKED), Reduction("+", exp_less(MASKED, 2))],
        0.0),
    "count": ([along()], [Reduction("+", apply("cast i32", apply("gt", X, 0.0)))], 0.0),
    "whole numbers by a factor of the row": (
        [along("i32"), per_row("i32")], [Reduction("+", apply("mul", X, Y))], 0.0),
    "bits": ([along("i32")], [Reduction("+", apply("bit_and", X, 3))], 0.0),
}  # fmt: skip


@pytest.mark.parametrize("name", PROVED)
def test_common_reductions_of_rows_need_no_mask(name: str) -> None:
    operands, reductions, fill = PROVED[name]
    assert neutral_fill(operands, reductions) == fill


SQUARE = apply("mul", apply("sub", X, Y), apply("sub", X, Y))
OPEN: dict[str, tuple[list[Operand], list[Reduction]]] = {
    "variance": ([along()], [Reduction("+", X), Reduction("+", SQUARE)]),
    "a factor that may be infinite": ([along(), per_row()], [Reduction("+", apply("mul", X, Y))]),
    "a factor of either sign of a maximum": (
        [along(), per_row()], [Reduction("max", apply("mul", X, Y))]),
    "an integer beyond float64": (
        [along("i64")],
        [Reduction("+", apply("sub", apply("add", X, (1 << 53) + 1), 1 << 53))]),
    "a range in which float32 overflows": (
        [along(), per_row()],
        [Reduction("+", apply("sub", apply("mul", apply("exp", Y), 1.0),
                              apply("mul", apply("exp", Y), 1.0)))]),
}  # fmt: skip


@pytest.mark.parametrize("name", OPEN)
def test_what_is_not_proved_is_masked(name: str) -> None:
    assert neutral_fill(*OPEN[name]) is None


# -- the proof against enumeration -----------------------------------------------------------------

FLOAT_CELLS = [
    "add",
    "mul",
    "sub",
    "div",
    "neg",
    "abs",
    "maximum",
    "minimum",
    "where",
    "exp",
    "tanh",
    "sigmoid",
    "sqrt",
    "floor",
    "sign",
    "cast",
    "log1p",
]
WHOLE_CELLS = [
    "add",
    "mul",
    "sub",
    "neg",
    "abs",
    "maximum",
    "minimum",
    "where",
    "bit_and",
    "bit_or",
    "bit_not",
    "sign",
    "shl",
]


def drawn(rng: random.Random, depth: int, whole_numbers: bool) -> Cell:
    """A cell over three operands of one kind of number."""
    if depth == 0 or rng.random() < 0.15:
        if rng.random() < 0.7:
            return arg(rng.randrange(3))
        constants = [0, 1, -1, 3] if whole_numbers else [0.0, 1.0, -2.0, 1e4, math.inf, -math.inf]
        return Constant(rng.choice(constants), "i32" if whole_numbers else "f32")
    name = rng.choice(WHOLE_CELLS if whole_numbers else FLOAT_CELLS)
    if name == "cast":
        name = rng.choice(["cast f16", "cast bf16"])
    below = [drawn(rng, depth - 1, whole_numbers) for _ in range(3)]
    if name == "where":
        test = rng.choice(["eq", "lt", "ge", "ne"])
        return apply("where", apply(test, below[0], below[2]), below[1], below[2])
    return apply(name, *below[: CELLS[name.split()[0]].arity or 2])


@pytest.mark.parametrize("whole_numbers", [False, True])
def test_enclosed_values_hold_every_value(whole_numbers: bool) -> None:
    """Cells on values of every class, infinities, NaN and ends of ranges among them."""
    rng = random.Random(5)
    dtype, values = ("i32", I32) if whole_numbers else ("f32", F32)
    numpy = DTYPES[dtype].numpy
    grid = [np.array(x, numpy) for x in zip(*itertools.product(values, repeat=3), strict=True)]
    split = classes(dtype)
    cases = [replace_shape(split, n) for n in range(3)]
    member = [member_of(x, dtype) for x in grid]
    for _ in range(150):
        cell = drawn(rng, rng.randrange(1, 4), whole_numbers)
        found = possible(cell, cases, [dtype] * 3)
        low, high, nan = (
            np.broadcast_to(part, (len(split.low),) * 3)[tuple(member)]
            for part in (found.low, found.high, found.nan)
        )
        with np.errstate(all="ignore"):
            got = np.broadcast_to(np.asarray(evaluate(cell, grid), np.float64), low.shape)
        inside = np.where(np.isnan(got), nan, (low <= got) & (got <= high))
        assert inside.all(), (str(cell), [g[~inside][0] for g in grid], got[~inside][0])


def replace_shape(values: Any, place: int) -> Any:
    shape = [1, 1, 1]
    shape[place] = -1
    return type(values)(*(part.reshape(shape) for part in (values.low, values.high, values.nan)))


def member_of(x: Any, dtype: str) -> Any:
    """The number of the class of every value."""
    split = classes(dtype)
    at = np.full(x.shape, -1)
    for n in range(len(split.low)):
        inside = (split.low[n] <= x) & (x <= split.high[n])
        at = np.where(np.isnan(x) if split.nan[n] else inside, n, at)
    assert (at >= 0).all()
    return at


@pytest.mark.parametrize("whole_numbers", [False, True])
def test_a_neutral_fill_changes_no_reduction(whole_numbers: bool) -> None:
    """One reduction of every monoid over drawn cells, with and without elements past the end."""
    rng = random.Random(7)
    dtype, values = ("i32", I32) if whole_numbers else ("f32", F32)
    numpy = DTYPES[dtype].numpy
    x, a, b = (np.array(v, numpy) for v in zip(*itertools.product(values, repeat=3), strict=True))
    proved = 0
    for _ in range(150):
        cell = drawn(rng, rng.randrange(1, 4), whole_numbers)
        if 0 not in used(cell):
            continue
        monoid = rng.choice(["+", "*", "max", "min"])
        fill = neutral_fill(
            [along(dtype), per_row(dtype), per_row(dtype)], [Reduction(monoid, cell)]
        )
        if fill is None:
            continue
        proved += 1
        with np.errstate(all="ignore"):
            inside = np.broadcast_to(np.asarray(evaluate(cell, [x, a, b])), x.shape)
            past = np.broadcast_to(
                np.asarray(evaluate(cell, [np.full_like(x, fill), a, b])), x.shape
            )
            merged = MONOIDS[monoid].merge((inside,), (past,))[0]
        unit = unit_of(monoid, result_dtype(cell, [dtype] * 3))
        equal = (merged == inside) | (np.isnan(inside) & np.isnan(merged))
        assert equal.all(), (str(cell), monoid, fill, unit)
    assert proved > 5


def test_cells_of_packs_without_enclosures_may_give_anything() -> None:
    """What nobody declared is not guessed."""
    found = possible(Apply("nextafter", (X, X)), [exactly(0.0)], ["f32"])
    every = anything("f32")
    assert (found.low, found.high, found.nan) == (every.low, every.high, every.nan)
