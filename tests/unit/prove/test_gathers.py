"""Proofs about reads where integers say: undefined where an integer is no index."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import array as xp
from axe_eq import nn
from axe_eq.prove.certificates.verdict import ProgramCounterexample
from axe_eq.prove.programs.refute import enclose_program

SPECS = "6x5:f32", "4:i32"
ROWS: Any = lambda x, i: xp.take(x, i, axis=0)  # noqa: E731
EQUAL: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[str, ...]]] = {
    "cells": (lambda x, i: nn.relu(ROWS(x, i)), lambda x, i: ROWS(nn.relu(x), i), SPECS),
    "product": (
        lambda x, i, w: ROWS(x, i) @ w, lambda x, i, w: ROWS(x @ w, i), (*SPECS, "5x3:f32"),
    ),
    "norm": (lambda x, i: nn.rmsnorm(ROWS(x, i)), lambda x, i: ROWS(nn.rmsnorm(x), i), SPECS),
    "twice": (
        lambda x, i, j: ROWS(ROWS(x, i), j), lambda x, i, j: ROWS(x, xp.take(i, j)),
        (*SPECS, "3:u8"),
    ),
    "counted": (lambda x, i: ROWS(x, xp.arange(3)), lambda x, i: x[:3], SPECS),
    "counted from": (lambda x, i: ROWS(x, xp.arange(3) + 2), lambda x, i: x[2:5], SPECS),
    "part": (lambda x, i: ROWS(x, i)[1:3, ::2], lambda x, i: ROWS(x[:, ::2], i[1:3]), SPECS),
}  # fmt: skip


@pytest.mark.parametrize("name", EQUAL)
def test_gathers_are_proved_equal(name: str) -> None:
    a, b, specs = EQUAL[name]
    verdict = axe.equivalent(a, b, *specs)
    assert isinstance(verdict, axe.Proved), str(verdict)
    assert axe.check_certificate(verdict.certificate)


def test_a_changed_certificate_is_refused() -> None:
    a, b, specs = EQUAL["cells"]
    verdict = axe.equivalent(a, b, *specs)
    assert isinstance(verdict, axe.Proved)
    text = str(verdict.certificate)
    gathers = [n for n in range(len(text)) if text.startswith("lookup 0 (0,)", n)]
    assert gathers
    for n in gathers:
        assert not axe.check_certificate(text[:n] + "lookup 1 (1,)" + text[n + 13 :])


@pytest.mark.parametrize("numerics", ["real", "exact"])
def test_different_gathers_are_refuted_by_indices(numerics: str) -> None:
    verdict = axe.equivalent(ROWS, lambda x, i: ROWS(x, (i + 1) % 6), *SPECS, numerics=numerics)
    assert isinstance(verdict, axe.Refuted)
    found = verdict.counterexample
    assert isinstance(found, ProgramCounterexample)
    x, i = found.inputs
    assert set(i.tolist()) <= set(range(6))
    assert float(x[i][found.index]) == found.value_a
    assert float(x[(i + 1) % 6][found.index]) == found.value_b


def test_large_programs_are_refuted_at_their_own_shapes() -> None:
    other = lambda x, i: ROWS(x, (i + 1) % 50_000)  # noqa: E731
    assert isinstance(axe.equivalent(ROWS, other, "50000x512:f16", "2048:i64"), axe.Refuted)


@pytest.mark.parametrize(
    "other",
    [
        lambda x, i: xp.zeros((4, 5), dtype="f32"),
        lambda x, i: xp.where((i < 6)[:, None], 0 * ROWS(x, i), 0.0),
    ],
)
def test_what_is_undefined_out_of_range_equals_nothing_that_is_defined(other: Any) -> None:
    """They are equal wherever the integers are indices, which no input has to be."""
    assert not axe.equivalent(lambda x, i: 0 * ROWS(x, i), other, *SPECS)


def test_an_enclosure_knows_nothing_where_an_integer_is_no_index() -> None:
    program = axe.trace(lambda x, i: ROWS(x, i) + 1, *SPECS)
    x, i = np.arange(30, dtype=np.float32).reshape(6, 5), np.array([0, 6, -1, 5], np.int32)
    (found,) = enclose_program(program, [x, i])
    assert np.isnan(found.low[1:3]).all()
    np.testing.assert_array_equal(found.low[[0, 3]], x[[0, 5]] + 1)
