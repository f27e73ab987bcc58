"""Cells of streaming reductions, as the machine computes them: products fuse with their sums."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from axe_eq.kernel.cells import Apply, Cell, Constant, Operand, apply, arg, substituted
from axe_eq.kernel.structured import ONLINE
from axe_eq_backends.cuda.online import gathered, in_powers_of_two

SCALES = (1.0, 0.088378906, 0.125, 0.07217, 3.7)


def fused(cell: Cell, values: list[Any]) -> Any:
    """A cell in f32 where the first product of a sum is not rounded, as NVRTC contracts it."""
    if isinstance(cell, Operand):
        return np.float32(values[cell.index])
    if isinstance(cell, Constant):
        return np.float32(cell.value)
    assert isinstance(cell, Apply)
    args = [fused(a, values) for a in cell.args]
    first = cell.args[0]
    if cell.cell in ("add", "sub") and isinstance(first, Apply) and first.cell == "mul":
        args[0] = math.prod(float(fused(a, values)) for a in first.args)  # exact in f64
    computed: dict[str, Callable[..., float]] = {
        "mul": operator.mul,
        "add": operator.add,
        "sub": operator.sub,
        "eq": operator.eq,
        "where": lambda condition, a, b: a if condition else b,
        "pow": operator.pow,
    }
    return np.float32(computed[cell.cell](*map(float, args)))


@pytest.mark.parametrize("scale", SCALES)
def test_sums_stay_as_they_are_where_the_statistic_does(scale: float) -> None:
    """A factor of 1 + 1e-3 per chunk made weights of equal scores differ by 9 % after 128."""
    pair: dict[int, Cell] = {n: apply("mul", arg(n), scale) for n in range(2)}
    online = ONLINE["softmax"]
    rescale = in_powers_of_two(substituted(online.rescale, pair), late=True)
    tops = np.random.default_rng(3).uniform(-1e5, 1e5, 100).astype(np.float32)
    assert all(fused(rescale, [top, top]) == 1 for top in (*tops, np.float32(0)))
    assert fused(rescale, [-math.inf, -math.inf]) == fused(rescale, [-math.inf, 7.0]) == 0
    for before, after in zip(np.sort(tops)[:-1] / 1e4, np.sort(tops)[1:] / 1e4, strict=True):
        wanted = math.exp(scale * (float(before) - float(after)))
        assert fused(rescale, [before, after]) == pytest.approx(wanted, rel=1e-5)


def test_a_factor_comes_out_of_masks_and_of_casts_to_f32() -> None:
    """Not out of casts that round, and not where a term stands for no weight but is a number."""
    scaled, kept = apply("mul", arg(0), 0.125), apply("ge", arg(1), arg(2))
    wide = apply("cast f32", scaled)
    less = apply("where", kept, wide, -math.inf)
    plain = apply("where", kept, apply("cast f32", arg(0)), -math.inf)
    assert gathered(less) == (plain, 0.125)
    for cell in (apply("cast f16", scaled), apply("where", kept, wide, -1e4)):
        assert gathered(cell) == (cell, 1.0)


def test_only_what_all_terms_share_is_gathered() -> None:
    a, b = (apply("mul", arg(n), 3.0) for n in range(2))
    assert gathered(apply("sub", a, b)) == (apply("sub", arg(0), arg(1)), 3.0)
    for mixed in (
        apply("sub", a, arg(1)),
        apply("sub", a, apply("mul", arg(1), 5.0)),
        apply("add", a, 1.0),
        apply("maximum", a, b),
    ):
        assert gathered(mixed) == (mixed, 1.0)
    origin = apply("where", apply("eq", b, -math.inf), 0.0, b)
    inner, c = gathered(apply("sub", a, origin))
    assert c == 3.0
    assert inner == apply("sub", arg(0), apply("where", apply("eq", b, -math.inf), 0.0, arg(1)))
