"""Functions computed in blocks: their form is they, and no verdict about them is wrong."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
import axe_eq.array as xp
from axe_eq.program.node import Program
from axe_eq.program.terms import decode
from axe_eq.program.types import DTYPES
from axe_eq.prove.certificates.verdict import ProgramCounterexample
from axe_eq_rules.digit_forms import form
from tests.property.test_digit_forms import sliced, term_of, value

COUNT, PAIRS = 400, 600
Step = Callable[[Any, Sequence[Any]], Any]  # (a block, weights that all blocks have)

STEPS: dict[str, Step] = {
    "product": lambda x, w: x @ w[0],
    "other product": lambda x, w: x @ w[1],
    "sum of products": lambda x, w: xp.expand_dims(x, axis=2) * xp.expand_dims(w[0], axis=0),
    "bias": lambda x, w: x + w[2],
    "by itself": lambda x, w: x * x,
    "relu": lambda x, w: axe.nn.relu(x),
    "sums of rows": lambda x, w: xp.sum(x, axis=1, keepdims=True) + x,
    "most of rows": lambda x, w: x - xp.max(x, axis=1, keepdims=True),
    "scan of rows": lambda x, w: xp.cumulative_sum(x, axis=1, dtype=x.dtype),
    "reversed rows": lambda x, w: xp.flip(x, axis=1),
    "padded rows": lambda x, w: xp.pad(x, ((0, 0), (1, 0)))[:, :4],
    "rolled rows": lambda x, w: xp.roll(x, 1, axis=1),
    "lookup": lambda x, w: xp.take(w[3], xp.abs(x) % 4, axis=0)[:, 0],
    "taken": lambda x, w: xp.take(x, w[4], axis=1),
    "split": lambda x, w: xp.reshape(xp.reshape(x, (x.shape[0], 2, 2)) * 2, (x.shape[0], 4)),
    "turned": lambda x, w: xp.permute_dims(xp.permute_dims(x, (1, 0)) + 1, (1, 0)),
}
FLAT = "sum of products"  # of three dims: what follows it has two again


def chain(names: Sequence[str], x: Any, weights: Sequence[Any]) -> Any:
    for name in names:
        x = STEPS[name](x, weights)
        x = xp.sum(x, axis=1, dtype=x.dtype) if len(x.shape) == 3 else x
    return x


def recipe(seed: int) -> tuple[list[str], list[tuple[int, int]], int, int]:
    """Steps, where blocks begin and end, parts that every block has a piece of, rows of a part."""
    rng = random.Random(f"blocks {seed}")
    names = rng.choices([n for n in STEPS if n != "lookup"], k=rng.randrange(1, 5))
    rows, parts = rng.choice([2, 4, 5, 8]), rng.choice([1, 1, 2, 3])
    marks = sorted(rng.sample(range(1, rows), rng.randrange(1, min(rows, 5))))
    return names, list(zip([0, *marks], [*marks, rows], strict=True)), parts, rows


def in_blocks(
    names: Sequence[str], ends: Sequence[tuple[int, int]], parts: int, rows: int,
    change: Callable[[int, Any], Any] = lambda n, w: w,
) -> Callable[..., Any]:  # fmt: skip
    def fn(x: Any, *weights: Any) -> Any:
        split, blocks = xp.reshape(x, (parts, rows, 4)), []
        for n, (begin, end) in enumerate(ends):
            block = xp.reshape(sliced(split, 1, begin, end), (-1, 4))
            made = chain(names, block, change(n, weights))
            blocks.append(xp.reshape(made, (parts, end - begin, 4)))
        return xp.reshape(xp.concat(blocks, axis=1), (-1, 4))

    return fn


SPECS = [axe.Spec(s, "i32") for s in [(4, 4), (4, 4), (4,), (4, 4), (4,)]]


def traced(fn: Callable[..., Any], parts: int, rows: int) -> Program:
    return axe.trace(fn, axe.Spec((parts * rows, 4), "i32"), *SPECS)


def arguments(program: Program, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    given = {
        i.name: rng.integers(-3, 4, i.node.shape).astype(DTYPES[i.node.dtype].numpy)
        for i in program.inputs
    }
    given[program.inputs[-1].name] %= 4  # where rows are taken
    return dict(program.constants) | given


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(COUNT))
def test_what_is_computed_in_blocks_has_a_form_that_is_it(seed: int) -> None:
    names, ends, parts, rows = recipe(seed)
    rng = random.Random(seed)
    if seed % 2:  # in another order, or one over another
        ends = [rng.choice(ends) for _ in ends] if seed % 4 == 1 else rng.sample(ends, len(ends))
    program = traced(in_blocks(names, ends, parts, rows), parts, rows)
    (node,), inputs = program.outputs, arguments(program, seed)
    other = decode(form(term_of(node), sums=False))
    assert other.type == node.type
    assert np.array_equal(value(node, inputs), value(other, inputs))


def forms(seed: int) -> bool:
    """Whether a function in blocks has the form of the function."""
    names, ends, parts, rows = recipe(seed)
    whole = traced(lambda x, *weights: chain(names, x, weights), parts, rows)
    split = traced(in_blocks(names, ends, parts, rows), parts, rows)
    a, b = (form(term_of(p.outputs[0]), sums=False) for p in (whole, split))
    return a is b


def test_blocks_of_most_functions_are_one_form() -> None:
    assert sum(map(forms, range(16))) >= 12


# -- scans behind totals, and rows that are counted ------------------------------------------------

BEHIND: dict[str, Callable[[Any, Any, int], Any]] = {
    "right": lambda own, padded, n: [padded[j : j + n] for j in range(n - 1)],
    "too far": lambda own, padded, n: [padded[n - 1 :] for _ in range(n - 1)],
    "one twice": lambda own, padded, n: [padded[1 : n + 1]] * (n - 1),
    "first rows": lambda own, padded, n: [own[:, 0]] * (n - 1),
    "other way": lambda own, padded, n: [xp.flip(padded, axis=0)[j : j + n] for j in range(n - 1)],
    "around": lambda own, padded, n: [padded[j : j + n] + 1 for j in range(n - 1)],
}


@pytest.mark.parametrize("name", BEHIND)
@pytest.mark.parametrize("n", [2, 4])
def test_a_scan_behind_totals_is_a_scan_of_all(name: str, n: int) -> None:
    def fn(x: Any) -> Any:
        own = xp.reshape(x, (n, 3, 2))
        totals = xp.sum(own, axis=1, dtype=x.dtype)
        padded = xp.concat([xp.zeros((n - 1, 2), dtype=x.dtype), totals])
        before = xp.stack(BEHIND[name](own, padded, n), axis=1)
        every = xp.cumulative_sum(xp.concat([before, own], axis=1), axis=1, dtype=x.dtype)
        return xp.reshape(every[:, n - 1 :], (3 * n, 2))

    spec, given = axe.Spec((3 * n, 2), "i32"), np.random.default_rng(n).integers(-9, 9, (3 * n, 2))
    split = axe.trace(fn, spec)
    whole = axe.trace(lambda x: xp.cumulative_sum(x, axis=0, dtype=x.dtype), spec)
    forms = [form(term_of(p.outputs[0]), sums=False) for p in (split, whole)]
    inputs = {split.inputs[0].name: given.astype(np.int32)}
    found, want = (value(v, inputs) for v in (decode(forms[0]), split.outputs[0]))
    assert np.array_equal(found, want)
    assert (forms[0] is forms[1]) == (name == "right")
    assert np.array_equal(want, value(whole.outputs[0], inputs)) == (name == "right")


@pytest.mark.parametrize("seed", range(12))
def test_rows_that_are_counted_are_those_that_are_taken(seed: int) -> None:
    rng = random.Random(f"counted {seed}")
    steps = [rng.randrange(-2, 3) for _ in range(2)]
    low = sum(min(s, 0) * e for s, e in zip(steps, (1, 2), strict=True))
    spec = axe.Spec((12, 4), "i32")

    def fn(x: Any) -> Any:
        i, j = xp.expand_dims(xp.arange(2), axis=1), xp.arange(3)
        rows = xp.reshape(i * steps[0] + j * steps[1] - low + seed % 3, (6,))
        rows = rows * rows if seed % 4 == 3 else rows
        return xp.take(x, rows % 12 if seed % 2 else rows, axis=0)

    program = axe.trace(fn, spec)
    inputs = {program.inputs[0].name: np.arange(48, dtype=np.int32).reshape(12, 4)}
    (node,) = program.outputs
    assert np.array_equal(
        value(decode(form(term_of(node), sums=False)), inputs), value(node, inputs)
    )


# -- changed blocks --------------------------------------------------------------------------------


def changed(rng: random.Random, n_blocks: int) -> Callable[[int, Any], Any]:
    """Weights of one block that are others, or are the same."""
    at, which = rng.randrange(n_blocks), rng.choice([0, 1, 2, 4, None])

    def change(n: int, weights: Sequence[Any]) -> Sequence[Any]:
        if n != at or which is None:
            return weights
        other = xp.flip(weights[which], axis=0)
        return [*weights[:which], other, *weights[which + 1 :]]

    return change


def check_pair(seed: int) -> str:
    """The verdict about a function and a changed one in blocks; raises where it is wrong."""
    rng = random.Random(f"changed {seed}")
    names, ends, parts, rows = recipe(seed)
    if seed % 3 == 0:
        ends[rng.randrange(len(ends))] = rng.choice(ends)
    if sum(b - a for a, b in ends) != rows:
        ends = recipe(seed)[1]
    split = traced(in_blocks(names, ends, parts, rows, changed(rng, len(ends))), parts, rows)
    whole = traced(lambda x, *weights: chain(names, x, weights), parts, rows)
    alike = all(
        np.array_equal(value(whole.outputs[0], given), value(split.outputs[0], given))
        for given in (arguments(whole, n) for n in range(6))
    )
    verdict = axe.equivalent(whole, split, numerics="exact", packs=["sharding"])
    assert not (isinstance(verdict, axe.Proved) and not alike)
    if isinstance(verdict, axe.Refuted):
        other = verdict.counterexample
        assert isinstance(other, ProgramCounterexample)
        given = {i.name: x for i, x in zip(whole.inputs, other.inputs, strict=True)}
        assert not np.array_equal(value(whole.outputs[0], given), value(split.outputs[0], given))
    if isinstance(verdict, axe.Proved):
        assert axe.check_certificate(verdict.certificate)
    return type(verdict).__name__


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(PAIRS))
def test_no_verdict_about_changed_blocks_is_wrong(seed: int) -> None:
    check_pair(seed)
