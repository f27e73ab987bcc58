"""Streaming contractions: right at both levels of the interpreter, compiled, and right on a GPU.

Expected values come from float64 numpy formulas over whole score matrices, which no kernel has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from axe_eq.errors import ScheduleError
from axe_eq.kernel.cells import Cell, Constant, apply, arg
from axe_eq.kernel.placement import number
from axe_eq.kernel.structured import ONLINE, Online
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.dispatch import Planned
from axe_eq.kernel.threads.interp import ORDERS, interpret
from axe_eq_backends.cuda.compile import compile_text
from axe_eq_backends.cuda.emit import emit
from axe_eq_backends.cuda.held import held_registers
from axe_eq_backends.cuda.meaning import MEANINGS
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.schedules.stream import Problem, Tensor, Tiling, stream
from axe_eq_backends.cuda.target import h200

Arrays = dict[str, Any]
NUMPY = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
    "i64": np.int64,
}  # fmt: skip
X, Y, Z = arg(0), arg(1), arg(2)
SOFTMAX = ONLINE["softmax"]
# Monoids that nobody ships: weights of small scores, and weights that need no statistic.
SOFTMIN = Online(
    "min", "minimum", apply("exp", apply("sub", Y, X)), apply("exp", apply("sub", Y, X)),
    apply("div", X, Y),
)  # fmt: skip
SIGMOIDS = Online(
    "max", "maximum", apply("sigmoid", X), Constant(1.0), apply("div", X, Y), scales=False
)


@dataclass(frozen=True)
class Cone:
    """A kernel, the arrays it runs on, and what comes out."""

    kernel: ir.Kernel
    arrays: Arrays
    expected: Arrays
    params: dict[str, int]
    tolerance: float


def tensor(
    name: str,
    shape: tuple[int, ...],
    order: tuple[int, ...] | None = None,
    without: tuple[int, ...] = (),
    dtype: str = "f16",
    pad: int = 0,
) -> Tensor:
    """A tensor whose dims lie in `order` (slowest first), with `pad` elements beside each row."""
    strides, size = [0] * len(shape), 1
    for d in reversed(order or range(len(shape))):
        if d not in without:
            strides[d] = size
            size = size * shape[d] + (pad if size == 1 else 0)
    return Tensor(name, dtype, tuple(strides))


def values(t: Tensor, shape: tuple[int, ...], seed: int, output: bool = False) -> Any:
    """Random values in the tensor's own strides, over the dims that it reaches."""
    kept = [d for d, s in enumerate(t.strides) if s]
    if t.counts:
        return np.arange(shape[kept[0]], dtype=np.int32)
    size = 1 + sum((shape[d] - 1) * t.strides[d] for d in kept)
    flat = np.random.default_rng(seed).standard_normal(size).astype(NUMPY[t.dtype])
    flat = np.zeros_like(flat) if output else flat
    if t.name == "mask":  # of keys: all of the first chunk's are masked, and some others
        flat = np.where((flat > 0.5) | (np.arange(size) < 40), -np.inf, 0).astype(flat.dtype)
    steps = [t.strides[d] * flat.itemsize for d in kept]
    return np.lib.stride_tricks.as_strided(flat, [shape[d] for d in kept] or [1], steps or [0])


def whole(array: Any, t: Tensor, shape: tuple[int, ...]) -> Any:
    """Values in float64 over all dims, 1 where the tensor does not reach."""
    return np.asarray(array, np.float64).reshape(
        [e if s else 1 for e, s in zip(shape, t.strides, strict=True)]
    )


def evaluated(cell: Cell, ins: list[Any]) -> Any:
    """A few cells in float64; independent of the declared ones."""
    if hasattr(cell, "index"):
        return ins[cell.index]
    if hasattr(cell, "value"):
        return np.float64(cell.value)
    fns: dict[str, Callable[..., Any]] = {
        "add": np.add, "mul": np.multiply, "sub": np.subtract, "tanh": np.tanh,
        "where": np.where, "ge": np.greater_equal, "maximum": np.maximum,
        "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    }  # fmt: skip
    return fns[cell.cell](*(evaluated(a, ins) for a in cell.args))


WEIGHTS: dict[int, Callable[[Any], Any]] = {
    id(SOFTMAX): lambda z: np.exp(z - z.max(-1, keepdims=True)),
    id(SOFTMIN): lambda z: np.exp(z.min(-1, keepdims=True) - z),
    id(SIGMOIDS): lambda z: 1 / (1 + np.exp(-z)),
}


def cone(p: Problem, tiling: Tiling, tolerance: float = 3e-3) -> Cone:
    """The kernel with random arrays, and the result from whole matrices."""
    shapes: dict[str, tuple[Tensor, tuple[int, ...]]] = {}
    for (a, b), e in zip(p.products, p.depths, strict=True):
        shapes[a.name] = a, (*p.batch, p.m, e)
        shapes[b.name] = b, (*p.batch, p.s, e)
    shapes[p.values.name] = p.values, (*p.batch, p.q, p.s)
    shapes |= {x.name: (x, (*p.batch, p.m, p.s)) for x in p.extras}
    shapes |= {x.name: (x, (*p.batch, p.m, p.q)) for x in p.more}
    arrays = {n: values(t, s, i) for i, (n, (t, s)) in enumerate(sorted(shapes.items()))}
    wide = {n: whole(arrays[n], t, s) for n, (t, s) in shapes.items()}
    accs = [wide[a.name] @ np.swapaxes(wide[b.name], -1, -2) for a, b in p.products]
    scores = evaluated(p.scores, [*accs, *(wide[x.name] for x in p.extras)])
    weights = WEIGHTS[id(p.monoid)](np.broadcast_to(scores, (*p.batch, p.m, p.s)))
    mixed = weights @ np.swapaxes(wide[p.values.name], -1, -2) / weights.sum(-1, keepdims=True)
    out = evaluated(p.cell, [mixed, *(wide[x.name] for x in p.more)])
    shape = (*p.batch, p.m, p.q)
    arrays[p.out.name] = values(p.out, shape, 0, output=True)
    kernel = stream(p, tiling)
    given = {
        t.name: arrays[t.name]
        if t.name == p.out.name
        else arrays[t.name].reshape([number(e) for e in t.shape])
        for t in kernel.tensors
    }
    expected = out.reshape(given[p.out.name].shape)
    return Cone(kernel, given, {p.out.name: expected}, {}, tolerance)


def attention(
    batch: tuple[int, ...] = (1,),
    m: int = 100,
    s: int = 88,
    e: int = 64,
    q: int = 64,
    dtype: str = "f16",
    **changes: Any,
) -> Problem:
    """Scaled products of queries and keys, softmax, mixed values; all dense."""
    d = len(batch)
    left = tensor("Q", (*batch, m, e), dtype=dtype)
    right = tensor("K", (*batch, s, e), dtype=dtype)
    turned = (*range(d), d + 1, d)
    given = Problem(
        batch, m, s, q, ((left, right),), (e,),
        tensor("V", (*batch, q, s), turned, dtype=dtype),
        tensor("O", (*batch, m, q), dtype=dtype), SOFTMAX, apply("mul", X, e**-0.5),
    )  # fmt: skip
    return replace(given, **changes)


def biased() -> Problem:
    """A bias per score, one per key and one per row."""
    extras = (
        tensor("bias", (1, 100, 88)), tensor("key", (1, 100, 88), without=(0, 1), dtype="f32"),
        tensor("row", (1, 100, 88), without=(2,)),
    )  # fmt: skip
    score = apply("add", apply("add", apply("mul", X, 0.125), Y), apply("mul", Z, arg(3)))
    return attention(scores=score, extras=extras)


def wide_extras() -> Problem:
    """Whole numbers of 64 bits per key, and a bias of as many per row."""
    extras = (
        tensor("key", (1, 100, 88), without=(0, 1), dtype="i64"),
        tensor("row", (1, 100, 88), without=(2,), dtype="f64"),
    )  # fmt: skip
    score = apply("where", apply("ge", Y, 1), apply("mul", X, 0.125), Z)
    return attention(scores=score, extras=extras)


def masked() -> Problem:
    """Keys that take no part; before the first that does, the statistic is -inf."""
    key = tensor("mask", (1, 100, 88), without=(0, 1), dtype="f32")
    return attention(scores=apply("add", apply("mul", X, 0.125), Y), extras=(key,))


def causal() -> Problem:
    """Scores of keys after their query are masked by position."""
    at = [
        Tensor(f"at{d}", "i32", tuple(int(d == i) for i in range(3)), counts=True) for d in (1, 2)
    ]
    score = apply("where", apply("ge", Y, Z), apply("mul", X, 0.125), -np.inf)
    return attention(scores=score, extras=tuple(at))


def slopes() -> Problem:
    """A number per head times the distance of a key is added."""
    at = [
        Tensor(f"at{d}", "i32", tuple(int(d == i) for i in range(3)), counts=True) for d in (1, 2)
    ]
    slope = tensor("slope", (3, 40, 88), without=(1, 2))
    far = apply("mul", arg(1), apply("sub", arg(3), arg(2)))
    score = apply("add", apply("mul", X, 0.125), apply("mul", far, 0.1))
    return attention((3,), m=40, scores=score, extras=(slope, *at))


def sliced() -> Problem:
    """Queries, keys and values side by side in one tensor of three."""
    t = [Tensor(n, "f16", (3 * 64 * 88, 3 * 64, 1), offset=64 * i) for i, n in enumerate("QKV")]
    v = replace(t[2], strides=(3 * 64 * 88, 1, 3 * 64))
    return attention(m=88, products=((t[0], t[1]),), values=v)


def grouped() -> Problem:
    """Two groups of three query heads that share keys and values."""
    batch, m, s, e = (2, 2), 66, 40, 64
    p = attention(batch, m, s, e, e)
    right = tensor("K", (*batch, s, e), without=(1,))
    shared = tensor("V", (*batch, e, s), (0, 1, 3, 2), without=(1,))
    return replace(p, products=((p.products[0][0], right),), values=shared)


def gated() -> Problem:
    """A residual and a gate per column after the mixture."""
    more = tensor("R", (1, 100, 64)), tensor("gate", (1, 100, 64), without=(0, 1))
    return attention(cell=apply("add", apply("mul", X, apply("sigmoid", Z)), Y), more=more)


def two_scores() -> Problem:
    """Scores of two products of different depths, and a cell that is no scale."""
    first = tensor("Q", (1, 100, 64)), tensor("K", (1, 88, 64))
    second = tensor("Q2", (1, 100, 32)), tensor("K2", (1, 88, 32))
    score = apply("mul", apply("tanh", apply("mul", apply("add", X, Y), 0.1)), 5.0)
    return attention(products=(first, second), depths=(64, 32), scores=score)


def given_scores() -> Problem:
    """Scores that lie in memory: no product of their own."""
    z = tensor("Z", (1, 100, 88), dtype="f32")
    return attention(products=(), depths=(), scores=X, extras=(z,))


def turned() -> Problem:
    """Every matrix in the other order."""
    t = (0, 2, 1)
    return attention(
        m=104, products=((tensor("Q", (1, 104, 64), t), tensor("K", (1, 88, 64), t)),),
        values=tensor("V", (1, 64, 88)), out=tensor("O", (1, 104, 64), t),
    )  # fmt: skip


def padded() -> Problem:
    """Rows that are longer in memory."""
    return attention(
        products=((tensor("Q", (1, 100, 64), pad=8), tensor("K", (1, 88, 64), pad=16)),),
        values=tensor("V", (1, 64, 88), (0, 2, 1), pad=8), out=tensor("O", (1, 100, 64), pad=24),
    )  # fmt: skip


SMALL = Tiling(2, 32, 64, 2)
CONES: dict[str, Callable[[], Cone]] = {
    "attention": lambda: cone(attention(), SMALL),
    "whole tiles": lambda: cone(attention((2,), 128, 64), SMALL),
    "one chunk": lambda: cone(attention(s=24), SMALL),
    "one key": lambda: cone(attention(s=1), SMALL),
    "one query": lambda: cone(attention(m=1), Tiling(1, 32, 64, 3)),
    "no batch": lambda: cone(attention(()), Tiling(2, 48, 64, 2)),
    "one consumer": lambda: cone(attention(), Tiling(1, 48, 64, 3)),
    "three consumers": lambda: cone(attention((1,), 150), Tiling(3, 32, 64, 2)),
    "no turns": lambda: cone(attention(), replace(SMALL, turns=False)),
    "four stages, one panel": lambda: cone(attention(q=128), Tiling(2, 16, 128, 4, staging=1)),
    "widths of 96 and 80": lambda: cone(attention(e=80, q=96), Tiling(2, 32, 96, 2)),
    "three panels in turn": lambda: cone(
        attention((2,), 70, 24, 16, 96), Tiling(1, 32, 96, 2, staging=1)
    ),
    "two tiles of columns": lambda: cone(attention((1,), 70, 100, 64, 160), Tiling(1, 48, 80, 2)),
    "biases": lambda: cone(biased(), SMALL),
    "operands of 64 bits": lambda: cone(wide_extras(), SMALL),
    "masked keys": lambda: cone(masked(), SMALL),
    "causal": lambda: cone(causal(), SMALL),
    "slopes of heads": lambda: cone(slopes(), SMALL),
    "parts of one tensor": lambda: cone(sliced(), SMALL),
    "groups of heads": lambda: cone(grouped(), SMALL),
    "residual and gate": lambda: cone(gated(), SMALL),
    "two scores": lambda: cone(two_scores(), SMALL),
    "given scores": lambda: cone(given_scores(), SMALL),
    "other orders": lambda: cone(turned(), SMALL),
    "padded rows": lambda: cone(padded(), SMALL),
    "bf16": lambda: cone(attention(dtype="bf16"), SMALL, 2e-2),
    "f32 result": lambda: cone(attention(out=tensor("O", (1, 100, 64), dtype="f32")), SMALL),
    "softmin": lambda: cone(attention(monoid=SOFTMIN), SMALL),
    "sigmoids": lambda: cone(attention(monoid=SIGMOIDS), SMALL),
    "unaligned": lambda: cone(attention((3,), 33, 70, 17, 35), Tiling(1, 32, 48, 1)),
    "unaligned orders": lambda: cone(
        replace(
            attention((1,), 33, 70, 21, 35),
            products=((tensor("Q", (1, 33, 21), (0, 2, 1)), tensor("K", (1, 70, 21))),),
            values=tensor("V", (1, 35, 70)),
        ), Tiling(1, 32, 48, 1),
    ),
    "unaligned, biased": lambda: cone(
        attention(
            (1,), 65, 70, 17, 16, scores=apply("add", X, Y),
            extras=(tensor("bias", (1, 65, 70)),), cell=apply("mul", X, Y),
            more=(tensor("scale", (1, 65, 16), without=(0, 2)),),
        ), Tiling(1, 64, 16, 1),
    ),
}  # fmt: skip


@cache
def made(name: str) -> Cone:
    return CONES[name]()


@cache
def planned(name: str) -> Planned:
    return plan(made(name).kernel, h200)


def check(found: Arrays, wanted: Cone) -> None:
    for name, expected in wanted.expected.items():
        scale = np.abs(expected).max() + 1e-6
        np.testing.assert_allclose(
            np.asarray(found[name], np.float64), expected, rtol=0, atol=wanted.tolerance * scale
        )


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", CONES)
def test_both_levels_give_the_expected_values_in_every_order(name: str, full: bool) -> None:
    c = made(name)
    # Early effects are the least that can go wrong: they are left to the whole campaign.
    orders = [(o, 0) for o in ORDERS] + [("random", seed) for seed in range(1, 50)]
    orders = orders if full else [(o, 0) for o in ("late", "random")]
    for order, seed in orders:
        # The layouts' own meaning does not depend on the order; one is enough beside the plans'.
        for plans in (None, planned(name)) if full or order == "random" else (planned(name),):
            run = interpret(
                c.kernel, c.arrays, c.params, planned=plans, meanings=MEANINGS,
                order=order, seed=seed,
            )  # fmt: skip
            check(run.outputs, c)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "name",
    ["attention", "biases", "causal", "two tiles of columns", "unaligned", "operands of 64 bits"],
)
def test_the_text_compiles_without_spills_or_serialised_products(name: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    source = emit(planned(name))
    log = compile_text(source.text, 90, source.name).log
    assert "0 bytes spill stores, 0 bytes spill loads" in log
    assert "warning" not in log
    assert "Potential Performance Loss" not in log


def test_tiles_that_instructions_do_not_take_are_refused() -> None:
    for wrong in (Tiling(s=24), Tiling(s=272), Tiling(q=0)):
        with pytest.raises(ScheduleError, match="a multiple of 16 up to 256"):
            stream(attention(), wrong)
    with pytest.raises(ScheduleError, match="at least 2"):
        stream(attention(), Tiling(stages=1))


def test_scores_and_weights_never_leave_registers() -> None:
    kernel = made("attention").kernel
    assert not [b for b in kernel.buffers if b.memory == "smem" and prod(b.shape) >= 100 * 88]
    assert {b.memory for b in kernel.buffers if "scores" in b.name or "weights" in b.name} == {
        "reg"
    }


def test_consumers_take_turns_on_barriers_of_their_own() -> None:
    kernel = made("three consumers").kernel
    assert [(b.slots, b.arrivals) for b in kernel.barriers if b.name == "turn"] == [(3, 1)]
    roles = next(s for s in kernel.body if isinstance(s, ir.Roles)).branches
    assert [(r.low, r.high, r.registers) for r in roles] == [(3, 4, 32), (0, 3, 160)]


def test_registers_are_held_where_products_are_on_their_way() -> None:
    kernel = made("attention").kernel
    held = held_registers(kernel)
    products = [s for s, _ in ir.walk(kernel) if isinstance(s, ir.Gemm)]
    waits = [s for s, _ in ir.walk(kernel) if isinstance(s, ir.WaitGroup) and s.kind == "wgmma"]
    names = [{b.name for b in held[s].before} for s in products]
    assert names[2] == {"weights", "mixed"}  # of the loop: rounded and rescaled before it
    begin, old, new, _, _ = (held[s] for s in waits)
    assert {b.name for b in begin.after} == {"scores"}
    assert {b.name for b in old.after} == {"mixed"}
    assert {b.name for b in new.after} == {"scores"}
    # What weighs a chunk runs beside the products that the next turn waits for.
    assert "scores" in {b.name for b in old.before}
    assert not new.before
