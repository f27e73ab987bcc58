"""Scans: one node for any monoid, at any extent, that means every prefix of a reduction."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.errors import ProgramError
from axe_eq.program.node import SCAN, op_node, scan_node
from axe_eq.program.ops import MONOIDS
from axe_eq.program.scans import BLOCKS, FEW_STEPS, FIRST, LAST, n_merges, prefixes
from axe_eq.program.store import stored
from axe_eq.program.terms import decode, encode
from axe_eq.program.types import DTYPES
from benchmarks.random_programs import random_program

xp = axe.array
EXTENTS = (1, 2, FEW_STEPS, FEW_STEPS + 1, 100, 1023, 5000)
LOOPS: dict[str, Callable[..., Any]] = {
    "+": np.cumsum, "*": np.cumprod, "max": np.maximum.accumulate, "min": np.minimum.accumulate,
    "and": np.logical_and.accumulate, "or": np.logical_or.accumulate,
}  # fmt: skip


def scanned(monoid: str, *arrays: Any, axis: int, reverse: bool = False) -> Any:
    """The meaning of a scan."""
    return axe.run(
        lambda *xs: xp.associative_scan(monoid, list(xs), axis=axis, reverse=reverse), *arrays
    )


def values(rng: np.random.Generator, monoid: str, shape: tuple[int, ...]) -> Any:
    """Operands whose prefixes stay in range."""
    if MONOIDS[monoid].result == "logical":
        return rng.random(shape) < (0.999 if monoid == "and" else 0.001)
    if monoid == "*":
        return rng.uniform(0.999, 1.001, shape)
    return rng.standard_normal(shape)


@pytest.mark.parametrize("monoid", LOOPS)
@pytest.mark.parametrize("extent", EXTENTS)
def test_a_scan_is_every_prefix_of_its_reduction(monoid: str, extent: int) -> None:
    """As numpy accumulates, along any axis and from either end."""
    rng = np.random.default_rng(extent)
    for axis, shape in ((0, (extent,)), (1, (2, extent, 3)), (0, (extent, 2))):
        x = values(rng, monoid, shape)
        for reverse in (False, True):
            seen = np.flip(x, axis) if reverse else x
            want = LOOPS[monoid](seen, axis=axis)
            want = np.flip(want, axis) if reverse else want
            found = scanned(monoid, x, axis=axis, reverse=reverse)
            assert found.dtype == x.dtype
            np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-10)


@pytest.mark.parametrize("name", [n for n, d in DTYPES.items() if d.kind in "fi"])
def test_scans_accumulate_as_reductions_do_and_round_once(name: str) -> None:
    """In f32 for half types: 300 ones are 300 in f16, which loses small terms when it adds."""
    of = DTYPES[name]
    x = np.full(300, 0.125 if of.kind == "f" else 3).astype(of.numpy)
    found = scanned("+", x, axis=0)
    want = np.cumsum(x.astype(DTYPES[of.accumulate].numpy)).astype(of.numpy)
    assert found.dtype == of.numpy
    assert (found == want).all()


@pytest.mark.parametrize("monoid", [m for m in MONOIDS if MONOIDS[m].result != "index"])
def test_the_order_of_merging_is_no_matter_of_reals(monoid: str, rng: np.random.Generator) -> None:
    given = [values(rng, monoid, (2, 40, 3)) for _ in range(MONOIDS[monoid].n_values)]
    usual, first, last = (prefixes(monoid, given, 1, order) for order in (BLOCKS, FIRST, LAST))
    np.testing.assert_allclose(first, usual, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(last, usual, rtol=1e-9, atol=1e-12)


def test_infinities_depend_on_the_order_of_merging() -> None:
    """Of two infinite decays with nothing added between, the product is infinity times 0."""
    a, b = np.array([[1.0, np.inf, np.inf]]), np.array([[1.0, 0.0, 0.0]])
    with np.errstate(invalid="ignore"):
        first, last = (prefixes("recurrence", [a, b], 1, order) for order in (FIRST, LAST))
    np.testing.assert_array_equal(first, [[1.0, np.inf, np.inf]])
    np.testing.assert_array_equal(last, [[1.0, np.inf, np.nan]])


def test_a_recurrence_is_a_scan_of_pairs() -> None:
    """By a monoid that does not commute: h = a h + b, which reversal runs from the end."""
    rng = np.random.default_rng(3)
    a, b = rng.uniform(-1, 1, (2, 3, 100))
    for reverse in (False, True):
        order = range(99, -1, -1) if reverse else range(100)
        h, want = np.zeros(3), np.empty((3, 100))
        for n in order:
            h = a[:, n] * h + b[:, n]
            want[:, n] = h
        found = scanned("recurrence", a, b, axis=1, reverse=reverse)
        np.testing.assert_allclose(found, want, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("monoid", ["softmax", "argmax", "argmin"])
def test_structured_monoids_scan(monoid: str) -> None:
    """Every prefix is what their reduction gives of it."""
    rng = np.random.default_rng(4)
    x = rng.integers(-3, 4, (2, 50)).astype(float)
    y = np.broadcast_to(np.arange(50), (2, 50)) if monoid != "softmax" else rng.random((2, 50))
    found = scanned(monoid, x, y, axis=1)
    declared = MONOIDS[monoid]
    for n in range(50):
        want = declared.finish(declared.lift((x[:, : n + 1], y[:, : n + 1]), (1,)))[:, 0]
        np.testing.assert_allclose(found[:, n], want, rtol=1e-12)


def test_prefixes_take_few_steps_after_each_other() -> None:
    """A scan of a million elements is about as many vectors as its square root's square root."""
    assert n_merges(1 << 20) < 200
    merges = 0

    def count(a: Any, b: Any) -> Any:
        nonlocal merges
        merges += 1
        return MONOIDS["+"].merge(a, b)

    from axe_eq.program import scans

    for extent in (1, 16, 17, 1000, 4097):
        merges = 0
        scans._scanned((np.ones(extent),), count)
        assert merges == n_merges(extent)
    assert (prefixes("+", [np.ones(1 << 16)], 0) == np.arange(1, (1 << 16) + 1)).all()


def test_a_scan_is_one_node() -> None:
    """At any extent: no steps are traced."""
    for extent in (1, 16, 1 << 20):
        program = axe.trace(lambda x: xp.cumulative_sum(x, axis=1), axe.Spec((4, extent), "f32"))
        assert [n.kind for n in program.nodes()] == ["input", SCAN]
    assert str(program).splitlines()[1:] == [
        "  %1 : f32[4,1048576] = scan + 1(x)", "  return %1",
    ]  # fmt: skip


def test_programs_with_scans_encode_and_store() -> None:
    """Terms and JSON give back the same nodes."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        weights = {f"scan {m}": 30.0 for m in MONOIDS}
        program = random_program(rng, 6, weights=weights)
        terms = encode(program.outputs)
        assert [decode(terms[o]) for o in program.outputs] == list(program.outputs)
        assert pickle.loads(pickle.dumps(stored(program))).program.outputs == program.outputs
        assert any(n.kind == SCAN for n in program.nodes()) or seed


def test_named_dims_pass_through_scans() -> None:
    """A scan keeps the shape, names and all."""

    def fn(x: Any) -> Any:
        y = xp.cumulative_sum(x, axis=0)
        assert [str(e) for e in y.shape] == [str(e) for e in x.shape]
        return y / y.shape[0]

    program = axe.trace(fn, axe.Spec((8, 4), "f32", dims=("tokens", "")))
    assert program.rebind(tokens=5).outputs[0].shape == (5, 4)


X = axe.trace(lambda x: x, axe.Spec((2, 3), "f32")).outputs[0]
B = axe.trace(lambda x: x, axe.Spec((2, 3), "bool")).outputs[0]
BAD: dict[str, tuple[Callable[[], object], str]] = {
    "no monoid": (lambda: scan_node("plus 0", [X]), "monoid 'plus'"),
    "no axis": (lambda: scan_node("+", [X]), r"scan '\+': has parameters \(\); expected one axis"),
    "axis": (lambda: scan_node("+ 2", [X]), "has axis 2 of f32.2,3.; expected an axis of it"),
    "which axis": (
        lambda: axe.trace(lambda x: axe.array.cumulative_prod(x), "2x3:f32"),
        "cumulative_prod: needs an axis for f32.2,3.",
    ),
    "operands": (lambda: scan_node("recurrence 0", [X]), "got 1 operands; expected 2 operands"),
    "bools": (lambda: scan_node("+ 0", [B]), "got bool; expected a numeric dtype"),
    "index": (
        lambda: scan_node("argmax 0", [X, X]),
        "has indices of f32; expected an integer dtype",
    ),
    "a reduction": (
        lambda: op_node("a b, a b -> a; recurrence b", "pair", [X, X]),
        "is not commutative, and a reduction has no order; expected a scan by it",
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_scan_is_refused(case: str) -> None:
    """With the values, and what is expected."""
    make, message = BAD[case]
    with pytest.raises(ProgramError, match=message):
        make()
