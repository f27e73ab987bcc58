"""The oracle of drawn pairs: intervals of float64 that know what they do not know."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.prove.certificates.verdict import ProgramCounterexample
from benchmarks.pair_terms import INPUTS, N, Tree, Value, agreeing, differing, draw, meaning, traced
from benchmarks.pairs import SPECS, confirmed, pair, program_of

X: Tree = ("in", "x")
HALVES = {name: np.full((N, N), n + 0.5) for n, name in enumerate(INPUTS)}


def number(value: float) -> Tree:
    return ("number", value)


def means(tree: Tree) -> Value:
    return meaning(tree, "f64", HALVES)


def test_what_numpy_gives_lies_in_the_intervals(full: bool) -> None:
    # Captured arrays are f32, and so is what is computed of them.
    for seed in range(400 if full else 150):
        tree = draw(random.Random(seed), 3, edge=seed % 3 == 0)
        given = {n: np.random.default_rng(seed).uniform(-2, 2, (N, N)) for n in INPUTS}
        with np.errstate(all="ignore"):
            try:
                plain = axe.run(program_of(tree), *given.values())
            except axe.AxeError:
                continue  # no element type for it
        found = meaning(tree, "f64", given)
        known = ~(found.bad | found.lost) & np.isfinite(plain)
        room = 1e-4 * (1 + np.abs(np.where(known, plain, 0.0)))
        assert np.all((found.low - room <= plain) & (plain <= found.high + room) | ~known), tree
        assert np.all(found.bad | found.lost | ~np.isnan(plain)), tree


EQUAL: dict[str, tuple[Tree, Tree]] = {
    "a large number that goes": (("sub", ("add", X, number(1e9)), number(1e9)), X),
    "an overflow that goes": (("log", ("exp", number(1e5))), number(1e5)),
    "an underflow that goes": (("log", ("exp", number(-1e9))), number(-1e9)),
    "an infinity": (("add", X, number(np.inf)), number(np.inf)),
    "undefined": (("sub", number(np.inf), number(np.inf)), ("div", X, number(0.0))),
}
APART: dict[str, tuple[Tree, Tree]] = {
    "beside a large number": (
        ("maximum", ("sub", ("add", X, number(1e9)), number(1e9)), X), number(2.0),
    ),
    "a choice by a large sum": (("where", X, ("sum", number(-1e9)), number(1.0), X), X),
    "an underflow": (X, ("exp", number(-1e9))),
    "an overflow": (X, ("log", ("exp", number(2049.0)))),
    "defined on one side": (X, ("add", X, ("mul", number(0.0), number(np.inf)))),
    "by an ulp": (X, ("add", X, number(2.0**-50))),
}  # fmt: skip


@pytest.mark.parametrize("name", EQUAL)
def test_what_is_equal_is_never_known_to_differ(name: str) -> None:
    left, right = map(means, EQUAL[name])
    assert not differing(left, right).any()


@pytest.mark.parametrize("name", APART)
def test_what_differs_is_known_to_beside_numbers_of_any_size(name: str) -> None:
    left, right = map(means, APART[name])
    assert differing(left, right).all()
    assert not agreeing(left, right).any()
    assert agreeing(left, left).any()


@pytest.mark.parametrize("number", [167, 721, 971, 1287])
def test_counterexamples_beside_large_numbers_are_confirmed(number: int) -> None:
    """An error that was bounded by the largest number of an array called these pairs equal."""
    dtype, left, right, _ = pair(101, number)
    specs = [spec.format(dtype) for spec in SPECS]
    verdict = axe.equivalent(program_of(left), program_of(right), *specs)
    assert isinstance(verdict, axe.Refuted)
    shown = verdict.counterexample
    assert isinstance(shown, ProgramCounterexample)
    assert confirmed(dtype, left, right, shown)


def test_a_counterexample_that_is_none_is_seen() -> None:
    left, right = ("add", X, ("in", "y")), ("add", ("in", "y"), X)
    verdict = axe.equivalent(program_of(left), program_of(X), *(s.format("f32") for s in SPECS))
    assert isinstance(verdict, axe.Refuted)
    assert isinstance(verdict.counterexample, ProgramCounterexample)
    for shown in (verdict.counterexample, replace(verdict.counterexample, index=(1, 2))):
        assert confirmed("f32", left, right, shown) is False


def test_trees_are_traced_as_they_are_meant() -> None:
    tree = ("where", X, ("in", "y"), ("in", "z"), ("sum", ("turn", X)))
    given = {n: np.arange(9.0).reshape(N, N) * (k - 1) for k, n in enumerate(INPUTS)}
    found = meaning(tree, "f64", given)
    assert found.exact.all()
    np.testing.assert_array_equal(traced(tree, np, given), found.low)
