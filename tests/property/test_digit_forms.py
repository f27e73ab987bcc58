"""The digit form of a value is that value; movements that move alike have one form."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
import axe_eq.array as xp
from axe_eq.program.meaning import evaluate_nodes
from axe_eq.program.node import Node
from axe_eq.program.terms import decode, encode
from axe_eq.program.types import DTYPES, Array
from axe_eq.rule.term import Term
from axe_eq_rules.digit_forms import form
from benchmarks.drawn_programs import case

COUNT, LARGE = 400, 200_000


def term_of(node: Node) -> Term:
    return encode([node])[node]


def value(node: Node, inputs: dict[str, Array]) -> Array:
    with np.errstate(all="ignore"):
        return evaluate_nodes([node], inputs)[node]


# -- movements -------------------------------------------------------------------------------------


def sliced(x: Any, d: int, *part: int | None) -> Any:
    return x[(slice(None),) * d + (slice(*part),)]


def _cut(x: Any, d: int, rng: random.Random) -> Any:
    a = rng.randrange(x.shape[d])
    return sliced(x, d, a, rng.randrange(a + 1, x.shape[d] + 1))


def _turned(x: Any, d: int, rng: random.Random) -> Any:
    return xp.permute_dims(x, tuple(rng.sample(range(len(x.shape)), len(x.shape))))


def _padded(x: Any, d: int, rng: random.Random) -> Any:
    return xp.pad(x, tuple((rng.randrange(2), rng.randrange(2)) for _ in x.shape))


def _split(x: Any, d: int, rng: random.Random) -> Any:
    if x.shape[d] % 2:
        return x
    return xp.reshape(x, (*x.shape[:d], 2, x.shape[d] // 2, *x.shape[d + 1 :]))


def _merged(x: Any, d: int, rng: random.Random) -> Any:
    if d == len(x.shape) - 1:
        return xp.reshape(x, (prod(x.shape),))
    return xp.reshape(x, (*x.shape[:d], x.shape[d] * x.shape[d + 1], *x.shape[d + 2 :]))


def _exchanged(x: Any, d: int, rng: random.Random) -> Any:
    if x.shape[d] == 1:
        return x
    a = rng.randrange(1, x.shape[d])
    return xp.concat([sliced(x, d, a, None), sliced(x, d, 0, a)], axis=d)


def _with_zeros(x: Any, d: int, rng: random.Random) -> Any:
    zeros = xp.zeros((*x.shape[:d], 1, *x.shape[d + 1 :]), dtype=x.dtype)
    return xp.concat([zeros, sliced(x, d, 1, None)] if x.shape[d] > 1 else [x, zeros], axis=d)


def _copied(x: Any, d: int, rng: random.Random) -> Any:
    if x.size > 200 or len(x.shape) > 4:
        return x
    return xp.broadcast_to(xp.expand_dims(x, axis=d), (*x.shape[:d], 2, *x.shape[d:]))


MOVES: list[Callable[[Any, int, random.Random], Any]] = [
    _cut, _turned, _padded, _split, _merged, _exchanged, _with_zeros, _copied,
    lambda x, d, rng: xp.flip(x, axis=d),
    lambda x, d, rng: xp.roll(x, rng.randrange(x.shape[d]), axis=d),
    lambda x, d, rng: sliced(x, d, 0, None, 2),
    lambda x, d, rng: xp.concat([x, xp.flip(x, axis=d)], axis=d) if x.size < 200 else x,
]  # fmt: skip


def moved(seed: int) -> tuple[Node, str, tuple[int, ...]]:
    """A value that is an input moved several times, the input's name and shape."""
    rng = random.Random(f"moved {seed}")
    shape = tuple(rng.choice([1, 2, 3, 4, 6]) for _ in range(rng.randrange(1, 4)))

    def fn(x: Any) -> Any:
        for _ in range(rng.randrange(1, 8)):
            x = rng.choice(MOVES)(x, rng.randrange(len(x.shape)), rng)
        return x

    program = axe.trace(fn, axe.Spec(shape, "i32"))
    return program.outputs[0], program.inputs[0].name, shape


@pytest.mark.sampled(20)
@pytest.mark.parametrize("seed", range(3 * COUNT))
def test_moved_values_have_forms_that_are_they(seed: int) -> None:
    node, name, shape = moved(seed)
    inputs = {name: 1 + np.arange(prod(shape), dtype=np.int32).reshape(shape)}
    other = decode(form(term_of(node), sums=False))
    assert other.type == node.type
    assert np.array_equal(value(node, inputs), value(other, inputs))


SAME: dict[str, tuple[tuple[int, ...], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "roll of parts": (
        (12, 4), lambda x: xp.roll(x, 1, axis=0),
        lambda x: xp.concat([x[-1:], x[:4], x[4:-1]]),
    ),
    "roll rank by rank": (
        (12, 4), lambda x: xp.roll(x, 1, axis=0),
        lambda x: xp.reshape(xp.concat([
            xp.roll(xp.reshape(x, (4, 3, 4))[:, 2:], 1, axis=0), xp.reshape(x, (4, 3, 4))[:, :2]
        ], axis=1), (12, 4)),
    ),
    "pad and slice": ((10, 4), lambda x: x * 2, lambda x: (xp.pad(x, ((0, 2), (0, 0))) * 2)[:10]),
    "two flips": ((6, 4), lambda x: x, lambda x: xp.flip(xp.flip(x, axis=(0, 1)), axis=(1, 0))),
    "halo by parts": (
        (8, 4), lambda x: xp.pad(x, ((1, 0), (0, 0)))[:8] + x,
        lambda x: xp.concat([xp.zeros((1, 4), dtype=x.dtype), x[:7]]) + x,
    ),
    "windows that overlap": (
        (8, 4), lambda x: xp.block("2a+b c -> a b c [a=3 b=4]", "sin", xp.exp(x)),
        lambda x: xp.sin(xp.exp(xp.stack([x[2 * n : 2 * n + 4] for n in range(3)]))),
    ),
    "computed in steps": ((9, 4), lambda x: xp.exp(x * 2)[1:8:3], lambda x: xp.exp(x[1:8:3] * 2)),
    "a part of values beside each other": (
        (4, 4), lambda x: xp.concat([xp.exp(x), xp.sin(x), x])[2:5],
        lambda x: xp.concat([xp.exp(x[2:]), xp.sin(x[:1])]),
    ),
    "a part beside a scan": (
        (6, 4), lambda x: xp.cumulative_sum(x, axis=1)[1:3],
        lambda x: xp.cumulative_sum(x[1:3], axis=1),
    ),
    "a window of one": (
        (6, 4), lambda x: xp.block("a+2b c -> a c; + b [a=3 b=1]", "exp", x),
        lambda x: xp.exp(x[:3]),
    ),
    "rows in cycles": (
        (12, 4), lambda x: x,
        lambda x: xp.reshape(xp.stack([x[0::2], x[1::2]], axis=1), (12, 4)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SAME)
def test_values_moved_alike_have_one_form(name: str) -> None:
    shape, one, other = SAME[name]
    a, b = (axe.trace(fn, axe.Spec(shape, "f32")) for fn in (one, other))
    x, y = a.outputs[0], b.outputs[0]
    assert a.inputs[0].node.text == b.inputs[0].node.text
    assert form(term_of(x), sums=False) is form(term_of(y), sums=False)


# -- programs --------------------------------------------------------------------------------------


def check(seed: int) -> str:
    """A drawn program's outputs and their forms have equal values."""
    program = case(seed).program
    if sum(n.type.size for n in program.nodes()) > LARGE:
        return "large"
    rng = np.random.default_rng(seed)
    inputs = dict(program.constants) | {
        i.name: rng.integers(0, 3, i.node.shape).astype(DTYPES[i.node.dtype].numpy)
        for i in program.inputs
    }
    for node in program.outputs:
        other = decode(form(term_of(node), sums=True))
        assert other.type == node.type
        try:
            want = value(node, inputs)
        except axe.AxeError:
            return "undefined"  # integers that say where there is nothing
        found = value(other, inputs)
        np.testing.assert_allclose(
            found.astype(np.float64), want.astype(np.float64), rtol=2e-2, atol=1e-2
        )
    return "equal"


@pytest.mark.sampled(12)
@pytest.mark.parametrize("seed", range(COUNT))
def test_drawn_programs_have_forms_that_are_they(seed: int) -> None:
    check(seed)


def test_most_drawn_programs_are_compared() -> None:
    found = Counter(check(seed) for seed in range(16))
    assert found["equal"] >= 9
