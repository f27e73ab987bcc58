"""What rounding explains, and what it does not: the judge of drawn programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.check.kernelcheck import TOLERANCES, difference
from axe_eq.program.node import Program, input_node, op_node
from axe_eq.program.signature import make, plain
from axe_eq.program.types import Array, ValueType
from benchmarks.programs import meanings
from benchmarks.rounding import bounds

xp = axe.array
TOLERANCE = TOLERANCES["f32"]


def bounded(fn: Callable[..., Any], *arrays: Array) -> tuple[Array, Array, Array]:
    """Meaning in float64, meaning in the program's types, and how far rounding may move it."""
    specs = [axe.Spec(a.shape, "i32" if a.dtype.kind == "i" else "f32") for a in arrays]
    program: Program = axe.trace(fn, *specs)
    wide, narrow = meanings(program, arrays)
    given = {
        i.name: a.astype(np.float64) if a.dtype.kind == "f" else a
        for i, a in zip(program.inputs, arrays, strict=True)
    }
    return wide[0], narrow[0], bounds(program.nodes(), given)[program.outputs[0]]


def drawn(seed: int, *shape: int) -> Array:
    """Numbers of 1e4 beside small ones."""
    rng = np.random.default_rng(seed)
    large = rng.choice([1e4, -1e4, 1e-4, 0.0], shape)
    found = np.where(rng.random(shape) < 0.1, large, rng.standard_normal(shape))
    return np.asarray(found, np.float32)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: xp.sin(xp.var(x * 1e3, axis=1)),
        lambda x: xp.sum(x * x - x, axis=1),
        lambda x: nn.softmax(x * 0.3),
        lambda x: nn.layernorm(x),
        lambda x: xp.cos(xp.prod(xp.minimum(x, 3.0), axis=1)),
        lambda x: xp.roll(xp.max(x * 1e3 + 0.1, axis=0) - 1e7, 1),
    ],
)  # fmt: skip
def test_f32_in_any_order_stays_within_the_bound(fn: Callable[..., Any]) -> None:
    """Sines of variances of 1e10 and softmaxes of 1e4 were called wrong for their rounding."""
    x = drawn(5, 40, 60)
    wide, narrow, bound = bounded(fn, x)
    turned = bounded(fn, np.ascontiguousarray(x[:, ::-1]))[1]
    turned = turned[:, ::-1] if turned.ndim == 2 else turned if len(turned) == 40 else narrow
    near = bound + 1e-7 * np.abs(wide).max()
    for own in (narrow, turned):
        assert (np.isinf(bound) | (np.abs(own - wide) <= near)).all()
        assert difference(own, wide, [narrow], TOLERANCE, 0.0, bound) is None


def test_a_bound_is_small_where_nothing_cancels() -> None:
    x = np.abs(drawn(1, 8, 200)) + np.float32(0.1)
    for fn in (lambda x: xp.sum(x, axis=1), lambda x: xp.sqrt(xp.mean(x * x, axis=1))):
        wide, _, bound = bounded(fn, x)
        assert (bound <= 1e-4 * np.abs(wide)).all()
        assert (bound > 0).all()
    whole = np.arange(12, dtype=np.int32).reshape(3, 4)
    assert not bounded(lambda x: xp.sum(x * 3, axis=1), whole)[2].any()


def test_a_product_that_overflows_in_some_order_is_not_asked() -> None:
    """1e4 a hundred times, and a zero: 0 or NaN, as the order has it."""
    x = np.full((3, 101), 1e4, np.float32)
    x[:2, 50] = 0
    x[1, :49] = x[1, 51:] = 0.5
    x[2] = 1.01
    wide, _, bound = bounded(lambda x: 1 / (1 + xp.square(xp.prod(x, axis=1))), x)
    assert np.isinf(bound).tolist() == [True, False, False]
    found = wide.astype(np.float32)
    found[0] = np.nan
    assert difference(found, wide, [wide], TOLERANCE, 0.0, bound) is None
    found[1] = np.nan
    assert difference(found, wide, [wide], TOLERANCE, 0.0, bound) == ((1,), 1)


def test_a_square_of_what_is_nothing_but_rounding_is_not_asked() -> None:
    """Equal elements have no variance, and of their rounded mean a little: its sign is 0 or 1."""
    x = np.full((2, 17), -1, np.float32)
    x[1] = np.arange(17)
    wide, _, bound = bounded(lambda x: xp.sign(xp.var(x, axis=1)), x)
    assert wide.tolist() == [0, 1]
    assert (bound >= 1).tolist() == [True, False]


def test_a_lost_term_is_wrong_beyond_rounding() -> None:
    x = drawn(2, 30, 50)
    wide, narrow, bound = bounded(lambda x: xp.sum(x + 1.0, axis=1), x)
    assert difference(narrow - np.float32(1), wide, [narrow], 1e-9, 0.0, bound) is not None


def test_what_an_operator_does_not_read_has_the_error_of_what_it_reads() -> None:
    """A value repeated along a dim, and rounded there: its error used to have too few elements."""
    sig = make([[plain(0)]], range(2), "", (), {1: 3}).text
    x = input_node("x", ValueType("f16", (4,)))
    values = np.array([1.0, 2.0, -4.0, 8.0])
    repeated = op_node(sig, "exp", [x])
    off = bounds([x, repeated], {"x": values})[repeated]
    assert off.shape == (4, 3)
    assert (off > 0).all()
    assert (off == off[:, :1]).all()
