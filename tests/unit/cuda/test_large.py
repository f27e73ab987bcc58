"""Tensors of more elements than 32 bits count: indices stay small, or the reason is given."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.errors import DispatchError, ScheduleError
from axe_eq.kernel import check as common
from axe_eq.kernel.threads import check
from axe_eq.lower import read
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.schedules import contraction, tensors
from axe_eq_backends.cuda.schedules.tensors import Operand, collapse
from axe_eq_backends.cuda.target import h200
from tests.unit.cuda.whole import launch, lowered, whole

xp = axe.array
N = 1 << 16
Fn = Callable[..., Any]


def spec(*shape: int, dtype: str = "f16") -> axe.Spec:
    return axe.Spec(shape, dtype)


def total(x: Any) -> Any:
    return xp.sum(x, dtype=xp.float32)


# What runs over more than 2^32 elements, and the same for the interpreter.
PROGRAMS: dict[str, tuple[Fn, tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]] = {
    "cells": (nn.relu, ((N, N),), ((96, 32),)),
    "cells of one dim": (lambda x: x * 2, ((N * N,),), ((3072,),)),
    "cells of one odd dim": (lambda x: x * 2, ((3 * N * N,),), ((3 * 1024,),)),
    "rows": (nn.softmax, ((N, 2, N),), ((48, 2, 24),)),
    "sums of everything": (total, ((N, N),), ((96, 32),)),
    "sums of columns": (lambda x: xp.sum(x, axis=0), ((N, N),), ((96, 32),)),
    "turned": (lambda x: xp.permute_dims(x, (1, 0)) + 0, ((N, N),), ((96, 32),)),
    "products of many rows": (
        lambda a, b: a @ b, ((N, N, 8), (8, 8)), ((24, 48, 8), (8, 8)),
    ),
    "products of many columns": (
        lambda a, b: a @ b, ((8, 16), (16, N * N // 2)), ((8, 16), (16, 1500)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_of_large_tensors_count_with_32_bits(name: str) -> None:
    fn, shapes, _ = PROGRAMS[name]
    made = lowered(axe.trace(fn, *(spec(*s) for s in shapes)))
    check.check(made.kernel, h200)


@pytest.mark.parametrize("name", PROGRAMS)
def test_no_index_goes_beyond_what_integers_hold(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same with integers of fewer bits, so that the interpreter can run it."""
    for module in (tensors, contraction):
        monkeypatch.setattr(module, "MOST_INDICES", 1024)
    for module in (check, common):
        monkeypatch.setattr(module, "INT_MAX", 2500)
    fn, _, shapes = PROGRAMS[name]
    w = whole(fn, *(spec(*s) for s in shapes))
    flat = w.flat()
    launch(w.lowered, flat, planned=plan(w.lowered.kernel, h200))
    w.check(flat, 2e-3)


def test_positions_beyond_32_bits_are_refused() -> None:
    with pytest.raises(DispatchError, match="counts from 0 to 4294967295; expected what 32 bits"):
        lowered(axe.trace(xp.argmax, spec(N * N)))


def test_positions_are_refused_where_they_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read, "_INT_MAX", 98)
    with pytest.raises(DispatchError, match="counts from 0 to 99"):
        lowered(axe.trace(xp.argmax, spec(100)))
    lowered(axe.trace(xp.argmax, spec(99)))


def test_dims_that_cannot_be_split_are_refused() -> None:
    prime = (1 << 32) + 15
    made = lowered(axe.trace(lambda x: x * 2, spec(prime, dtype="f8e4m3")))
    with pytest.raises(ScheduleError, match=r"counts to \d+ \(.*\); expected at most 2147483647"):
        plan(made.kernel, h200)


def test_long_dims_are_split_and_short_ones_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "MOST_INDICES", 64)
    window = Operand("w", "f16", (96, 1), window=((0, 4), None))
    assert collapse((4, 96), [Operand("x", "f16", (96, 1))])[0] == (8, 48)
    assert collapse((4, 16), [Operand("x", "f16", (16, 1))])[0] == (64,)
    assert collapse((4, 96), [window])[0] == (4, 2, 48)
    counted = Operand("index", "i32", (0, 1), counts=True)
    assert collapse((4, 96), [counted])[0] == (4, 96)
    assert collapse((4, 96), [Operand("x", "f16", (96, 1))], frozen=1)[0] == (4, 96)
