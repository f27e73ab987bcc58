"""Structured reductions that are no attention, and cones without operands, have a kernel too."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.program.meaning import evaluate

xp = axe.array


def _scores_of_nothing_else(x: Any) -> Any:
    return xp.block("0 a b, 0 a c ->; softmax a b c", "pair", x, x)


def _over_two_dims(x: Any) -> Any:
    return xp.block("b d, c a+e -> a b c; softmax d e [a=2 e=3]", "pair", x[0], x[0])


def _of_positions_alone(x: Any) -> Any:
    return x, xp.block("a, a ->; argmin a", "pair", xp.arange(2), xp.arange(2))


def _scan_read_at_one_place(x: Any) -> Any:
    windows = xp.block("a+c b -> a b c [a=2 c=2]", "trunc", x[0][:, :1])
    differ = xp.block("a b c, 0 -> a b c", "ne", windows, xp.cumulative_sum(x[0, 0])[1:2])
    return xp.block("a b a -> a; or b", "isfinite", differ)


CASES: dict[str, Callable[[Any], Any]] = {
    "scores of nothing else": _scores_of_nothing_else,
    "over two dims": _over_two_dims,
    "of positions alone": _of_positions_alone,
    "a scan read at one place": _scan_read_at_one_place,
}


@pytest.mark.sampled(5)
@pytest.mark.parametrize("target", ["h200", "cpu"])
@pytest.mark.parametrize("name", CASES)
def test_odd_reductions_compile_and_are_right(name: str, target: str) -> None:
    shape = (1, 2, 4) if name == "over two dims" else (1, 3, 3)
    program = axe.trace(CASES[name], axe.Spec(shape, "f16"))
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float16)
    found = axe.compile(program, target=target).interpret(x)
    expected = evaluate(program, [x])
    for f, e in zip(found if isinstance(found, tuple) else (found,), expected, strict=True):
        np.testing.assert_allclose(np.asarray(f, np.float64), e, rtol=4e-3, atol=1e-3)
