"""Refutations that hinge on a constant which its element type rounds say which; no others do."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import array as xp
from axe_eq import nn
from axe_eq.program.store import stored
from axe_eq.prove.certificates.verdict import ProgramCounterexample, Refuted, Unknown


def tenth(x: Any) -> Any:
    return x * 0.1


def odd(x: Any) -> Any:
    return x + 2049


def odd_twice(x: Any) -> Any:
    return (x + 2049) * 2


def padded(x: Any) -> Any:
    return xp.pad(x, ((1, 0),), constant_values=2049)


def joined(x: Any) -> Any:
    return xp.concat([xp.full((1,), 2048, dtype=x.dtype) + 1, x])


def counterexample(
    a: Callable[..., Any], b: Callable[..., Any], spec: str, **options: Any
) -> ProgramCounterexample:
    verdict = axe.equivalent(a, b, spec, **options)
    assert isinstance(verdict, Refuted)
    assert isinstance(verdict.counterexample, ProgramCounterexample)
    assert all(line in str(verdict) for line in verdict.counterexample.rounded)
    return verdict.counterexample


@pytest.mark.parametrize(
    ("a", "b", "spec", "numerics", "said"),
    [
        (tenth, lambda x: x / 10, "4:f16", "exact", "0.1 is 0.0999755859375 in float16"),
        (odd, lambda x: x + 2048 + 1, "4:f16", "real", "2049 is 2048 in float16"),
        (odd, lambda x: x + 2048 + 1, "300x400:f16", "real", "2049 is 2048 in float16"),
        (lambda x: x + 2048 + 1, odd, "4:f16", "real", "2049 is 2048 in float16"),
        (lambda x: x + 17, lambda x: x + 16 + 1, "4:f8e4m3", "real", "17 is 16 in float8_e4m3fn"),
        (padded, joined, "4:f16", "real", "2049 is 2048 in float16"),
    ],
)
def test_the_constant_is_named_as_it_is_written_and_as_it_is_held(
    a: Callable[..., Any], b: Callable[..., Any], spec: str, numerics: str, said: str
) -> None:
    found = counterexample(a, b, spec, numerics=numerics)
    (line,) = found.rounded
    assert line.startswith(f"the constant {said}, at test_rounded.py:")


def test_the_line_of_the_constant_is_shown() -> None:
    found = counterexample(odd, lambda x: x + 2048 + 1, "4:f16")
    assert found.rounded[0].endswith(": return x + 2049")


@pytest.mark.parametrize(
    ("a", "b", "spec"),
    [
        # Twice too large whatever 2049 is; eps and a mask are rounded on both sides alike.
        (odd_twice, lambda x: x + 2048 + 1, "4:f16"),
        (lambda x: nn.rmsnorm(x), lambda x: nn.rmsnorm(x) + x, "4x4:f16"),
        (
            lambda x: nn.softmax(xp.where(np.tri(4, dtype=bool), x, -1e9)),
            lambda x: nn.softmax(xp.where(np.tri(4, dtype=bool), 2 * x, -1e9)),
            "4x4:f16",
        ),
    ],
)
def test_a_difference_that_does_not_hinge_on_a_rounded_constant_names_none(
    a: Callable[..., Any], b: Callable[..., Any], spec: str
) -> None:
    assert counterexample(a, b, spec).rounded == ()


def test_an_unknown_that_is_stuck_at_a_rounded_constant_names_it() -> None:
    unknown = axe.equivalent(lambda x: xp.exp(x) * 0.1, lambda x: xp.exp(x) / 10, "4:f16")
    assert isinstance(unknown, Unknown)
    (line,) = unknown.missing.rounded
    assert line.startswith("the constant 0.1 is 0.0999755859375 in float16, at test_rounded.py:")
    assert line in str(unknown)
    assert pickle.loads(pickle.dumps(unknown)).missing == unknown.missing


def test_an_unknown_that_is_stuck_elsewhere_names_none() -> None:
    def scaled(fn: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: fn(x) * 0.1

    unknown = axe.equivalent(scaled(xp.tanh), scaled(lambda x: -xp.tanh(-x)), "4:f16")
    assert isinstance(unknown, Unknown)
    assert unknown.missing.pairs
    assert unknown.missing.rounded == ()


def test_a_constant_that_is_written_in_two_ways_is_named_where_it_is_rounded() -> None:
    def both(x: Any) -> Any:
        return (x + 2048) * 0 + x + 2049

    found = counterexample(both, lambda x: x + 2048 + 1, "4:f16")
    assert [line.partition(" in ")[0] for line in found.rounded] == ["the constant 2049 is 2048"]


def test_what_is_written_survives_the_way_to_a_worker() -> None:
    program = axe.trace(odd, "4:f16")
    (node,) = program.written
    assert list(program.written[node]) == [2049.0]
    assert pickle.loads(pickle.dumps(stored(program))).program.written == program.written
    assert axe.trace(lambda x: x + 2048, "4:f16").written == {}
