"""Reductions streamed chunk by chunk: lift, merge, finish equal the operator in one piece."""

from __future__ import annotations

import itertools
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from axe_eq.errors import ProgramError
from axe_eq.program.meaning import evaluate_op, finish, index_views, lift, merge
from axe_eq.program.node import op_type
from axe_eq.program.ops import MONOIDS
from axe_eq.program.types import DTYPES, ValueType, dtype
from benchmarks.random_signatures import random_space

CASES = [
    ("+", "id", 1), ("+", "mul", 2), ("+", "mul", 3), ("+", "add", 2), ("*", "id", 1),
    ("max", "mul", 2), ("min", "sub", 2), ("and", "id", 1), ("or", "and", 2),
    ("softmax", "pair", 2),    ("argmax", "pair", 2), ("argmin", "pair", 2),
]  # fmt: skip


def random_operands(monoid: str, n: int, rng: np.random.Generator) -> list[Any]:
    kinds = ["b"] if monoid in ("and", "or") else ["f"]
    arrays = []
    for k in range(n):
        shape = tuple(int(e) for e in rng.choice([1, 2, 3, 4], int(rng.integers(0, 4))))
        if monoid.startswith("arg") and k == 1:
            arrays.append(rng.permutation(max(int(np.prod(shape)), 1)).reshape(shape))
        elif kinds == ["b"]:
            arrays.append(np.asarray(rng.random(shape) < 0.5))
        else:
            name = ["f32", "f64", "f16"][int(rng.integers(3))]
            arrays.append(np.asarray(rng.integers(-3, 4, shape)).astype(DTYPES[name].numpy))
    return arrays


def chunks(views: list[Any], dims: range, rng: np.random.Generator) -> list[list[Any]]:
    """The part of the index space in all chunks of a random partition of every reduced dim."""
    parts = [views]
    for dim in dims:
        extent = max(v.shape[dim] for v in views)
        cuts = sorted({0, extent, *rng.integers(0, extent + 1, 2).tolist()})
        parts = [
            [v if v.shape[dim] == 1 else v[(slice(None),) * dim + (slice(lo, hi),)] for v in part]
            for part in parts
            for lo, hi in pairwise(cuts)
        ]
    return [parts[int(k)] for k in rng.permutation(len(parts))]


@pytest.mark.parametrize(("monoid", "cell", "n"), CASES)
def test_chunks_in_any_order_give_the_whole(
    monoid: str, cell: str, n: int, full: bool, rng: np.random.Generator
) -> None:
    tried = 0
    while tried < (400 if full else 25):
        arrays = random_operands(monoid, n, rng)
        space = random_space(rng, [a.shape for a in arrays], reduce=True, windows=True)
        sig = space.signature(monoid)
        if space.size() > 500:
            continue
        whole = evaluate_op(sig.text, cell, arrays)
        views = index_views(sig, arrays)
        states = [lift(monoid, cell, part, sig.reduced) for part in chunks(views, sig.reduced, rng)]
        total = states[0]
        for state in states[1:]:
            total = merge(monoid, total, state)
        value = finish(monoid, total)
        streamed = np.broadcast_to(value.reshape(value.shape[: sig.n_out]), whole.shape)
        # Small integers: sums and products are exact in f32, so only exponentials round.
        np.testing.assert_allclose(
            streamed.astype(whole.dtype).astype(float),
            whole.astype(float),
            rtol=2e-3 if monoid == "softmax" else 1e-6,
            atol=1e-3 if monoid == "softmax" else 0,
        )
        tried += 1


def test_masked_scores_weigh_nothing() -> None:
    scores = np.array([[0.0, -np.inf, 1.0], [-np.inf, -np.inf, 2.0]])
    values = np.array([[1.0], [100.0], [3.0]])
    sig = "q k, k d -> q d; softmax k"
    whole = evaluate_op(sig, "pair", [scores, values])
    weights = np.exp(scores)
    np.testing.assert_allclose(whole, weights @ values / weights.sum(1, keepdims=True))
    views = index_views(sig, [scores, values])
    states = [lift("softmax", "pair", [v[..., k : k + 1] for v in views], (2,)) for k in range(3)]
    total = merge("softmax", merge("softmax", states[0], states[1]), states[2])
    np.testing.assert_allclose(finish("softmax", total)[..., 0], whole)


def test_a_reduction_of_what_no_operand_holds_counts_its_extent() -> None:
    x = np.array([2.0, 3.0])
    assert evaluate_op("a -> a; + b [b=5]", "id", [x]).tolist() == [10.0, 15.0]
    assert evaluate_op("a -> a; * b [b=3]", "id", [x]).tolist() == [8.0, 27.0]
    assert evaluate_op("a, -> a; + b [b=4]", "mul", [x, np.array(0.5)]).tolist() == [4.0, 6.0]
    assert evaluate_op(",a -> ; softmax a", "pair", [np.array(1.0), x]).tolist() == 2.5


def test_sums_of_half_types_are_accumulated_in_f32() -> None:
    x = np.full(4096, 0.1, np.float16)
    assert abs(float(evaluate_op("a -> ; + a", "id", [x])) - 409.5) < 0.3
    assert float(evaluate_op("a -> ; + a", "cast bf16", [np.ones(4096)])) == 4096.0
    ones = np.ones((1, 4096), DTYPES["bf16"].numpy)
    assert float(evaluate_op("a c, c b -> a b; + c", "mul", [ones, ones.T])[0, 0]) == 4096.0


def test_a_contraction_never_holds_its_index_space() -> None:
    """2^32 points: any materialisation of the products would fail."""
    x = np.ones((2048, 1024), np.float32)
    total = evaluate_op("a c, b c -> a b; + c", "mul", [x, x])
    assert total.shape == (2048, 2048)
    assert (total == 1024).all()


@pytest.mark.parametrize("monoid", [m for m in MONOIDS.names() if MONOIDS[m].commutative])
def test_every_monoid_merges_associatively_and_commutatively(
    monoid: str, rng: np.random.Generator
) -> None:
    n = MONOIDS[monoid].n_values
    parts: list[tuple[Any, ...]]
    if monoid in ("and", "or"):
        parts = [(rng.random((3, 4)) < 0.7,) for _ in range(3)]
    elif monoid.startswith("arg"):
        parts = [(rng.integers(0, 3, (3, 4)), 4 * k + np.arange(4)[None, :]) for k in range(3)]
    else:
        parts = [tuple(rng.normal(size=(3, 4)) for _ in range(n)) for _ in range(3)]
    declared = MONOIDS[monoid]
    a, b, c = (declared.lift(p, (1,)) for p in parts)
    left = declared.finish(declared.merge(declared.merge(a, b), c))
    right = declared.finish(declared.merge(a, declared.merge(c, b)))
    np.testing.assert_allclose(left, right, rtol=1e-12)
    together = tuple(np.concatenate([p[k] for p in parts], axis=1) for k in range(n))
    np.testing.assert_allclose(left, declared.finish(declared.lift(together, (1,))), rtol=1e-12)
    if declared.unit is not None and n == 1:
        unit = (np.full_like(a[0], declared.unit),)
        np.testing.assert_array_equal(declared.merge(a, unit)[0], a[0])


@pytest.mark.parametrize("monoid", ["argmax", "argmin"])
def test_the_first_nan_is_the_extreme_in_any_order_of_chunks(monoid: str) -> None:
    x = np.array([[1.0, np.nan, 9.0, np.nan], [5.0, -5.0, 5.0, -5.0]])
    parts = [
        lift(monoid, "pair", [x[:, k : k + 1], np.array([[k]])], (1,)) for k in range(x.shape[1])
    ]
    expected = getattr(np, monoid)(x, axis=1)
    for order in itertools.permutations(parts):
        total = order[0]
        for state in order[1:]:
            total = merge(monoid, total, state)
        np.testing.assert_array_equal(finish(monoid, total)[:, 0], expected)


def test_what_no_reduction_takes_is_refused() -> None:
    x = ValueType(dtype("f32").name, (3,))
    with pytest.raises(ProgramError, match="gives 2 values, but there is no reduction"):
        op_type("a, a -> a", "pair", (x, x))
    with pytest.raises(ProgramError, match=r"gives 1 values, but reduction 'softmax' takes 2"):
        op_type("a -> ; softmax a", "id", (x,))
