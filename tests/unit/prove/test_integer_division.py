"""Bit for bit: what comes of an integer divided by zero, or made of a NaN, refutes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import array as xp
from axe_eq.program.trace import trace
from axe_eq.prove.certificates.verdict import ProgramCounterexample
from axe_eq.prove.programs.refute import refute

Fn = Callable[..., Any]
DTYPE = {"i32": xp.int32, "i64": xp.int64, "i8": xp.int8, "u8": xp.uint8}


def put_together(x: Any, y: Any) -> Any:
    return x // y * y + x % y


def guarded(fill: int) -> Fn:
    return lambda x, y: xp.where(y != 0, x // y, fill)


def refuted(a: Fn, b: Fn, *specs: str) -> ProgramCounterexample | None:
    verdict = refute(trace(a, *specs), trace(b, *specs), numerics="exact")
    if verdict is None:
        return None
    assert isinstance(verdict.counterexample, ProgramCounterexample)
    return verdict.counterexample


# Equal wherever no integer is divided by zero; numpy's 0 tells each pair apart.
SAME: dict[str, tuple[Fn, Fn]] = {
    "quotient and rest": (put_together, lambda x, y: x),
    "itself over itself": (lambda x, y: x // x + y, lambda x, y: 1 + y),
    "guarded": (guarded(7), lambda x, y: x // y),
    "in a sum": (lambda x, y: xp.sum(put_together(x, y), axis=0), lambda x, y: xp.sum(x, axis=0)),
    "in a scan": (
        lambda x, y: xp.cumulative_sum(put_together(x, y), axis=1),
        lambda x, y: xp.cumulative_sum(x, axis=1),
    ),
    "moved": (
        lambda x, y: xp.flip(xp.concat([put_together(x, y), y])),
        lambda x, y: xp.flip(xp.concat([x, y])),
    ),
    "read there": (
        lambda x, y: xp.take(x, y // y, axis=0),
        lambda x, y: xp.take(x, y * 0 + 1, axis=0),
    ),
}


@pytest.mark.parametrize("dtype", ["i32", "i8", "u8"])
@pytest.mark.parametrize("name", SAME)
def test_what_differs_only_by_a_division_by_zero_is_not_refuted(name: str, dtype: str) -> None:
    specs = ("6x5:" + dtype, "6:" + dtype) if name == "read there" else ("6x5:" + dtype,) * 2
    assert refuted(*SAME[name], *specs) is None


def test_every_divisor_is_zero() -> None:
    assert refuted(lambda x: x // 0, lambda x: x * 0 + 1, "6:i32") is None
    assert refuted(lambda x: x % 0, lambda x: x, "6:i32") is None


DIFFERENT: dict[str, tuple[Fn, Fn]] = {
    "one too much": (lambda x, y: x // y, lambda x, y: x // y + 1),
    "the rest for the quotient": (lambda x, y: x // y, lambda x, y: x % y),
    "towards zero": (
        lambda x, y: x // y,
        lambda x, y: xp.sign(x) * xp.sign(y) * (xp.abs(x) // xp.abs(y)),
    ),
    "in a sum": (
        lambda x, y: xp.sum(x // y, axis=0), lambda x, y: xp.sum(x // y, axis=0) + y[0],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", DIFFERENT)
def test_other_differences_are_found_where_nothing_is_divided_by_zero(name: str) -> None:
    a, b = DIFFERENT[name]
    found = refuted(a, b, "6x5:i32", "6x5:i32")
    assert found is not None
    x, y = found.inputs
    column = y[:, found.index[-1]] if name == "in a sum" else y[found.index]
    assert np.all(column != 0)
    sides = (axe.run(side, x, y)[found.index] for side in (a, b))
    assert [int(v) for v in sides] == [found.value_a, found.value_b]


def test_a_branch_that_is_taken_instead_of_a_division_by_zero_tells_programs_apart() -> None:
    found = refuted(guarded(0), guarded(1), "6x5:i32", "6x5:i32")
    assert found is not None
    assert found.inputs[1][found.index] == 0
    assert (found.value_a, found.value_b) == (0, 1)


@pytest.mark.parametrize("wild", [lambda x: (x - x) / (x - x), lambda x: 1 / (x - x)])
@pytest.mark.parametrize("dtype", ["i32", "i64", "i8", "u8"])
def test_what_is_no_number_made_an_integer_refutes_nothing(dtype: str, wild: Fn) -> None:
    def made(x: Any) -> Any:
        return xp.astype(wild(x), DTYPE[dtype])

    assert refuted(made, lambda x: xp.zeros_like(x, dtype=DTYPE[dtype]), "4:f32") is None
    assert refuted(lambda x: made(x) + 1, made, "4:f32") is None


def test_numbers_made_integers_and_nan_made_a_truth_value_still_do() -> None:
    def whole(x: Any) -> Any:
        return xp.astype(x, xp.int32)

    def truth(x: Any) -> Any:
        return xp.astype((x - x) / (x - x), xp.bool)

    assert refuted(whole, lambda x: whole(x) + 1, "4:f32") is not None
    assert refuted(truth, lambda x: xp.zeros_like(x, dtype=xp.bool), "4:f32") is not None
