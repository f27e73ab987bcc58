"""Reshapes of dense inputs move nothing: kernels read the input where it arrives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from tests.unit.cuda.whole import interpreted

xp = axe.array

PROGRAMS: dict[str, Callable[[Any], Any]] = {
    "cells": lambda x: xp.reshape(x, (21, 55)) * 2,
    "a list": lambda x: xp.reshape(x, (-1,)) + 1,
    "several": lambda x: xp.reshape(xp.reshape(x, (7, 3, 55)), (5, 231)) + 1,
    "sums": lambda x: xp.sum(xp.reshape(x, (21, 55)), axis=-1),
    "a window": lambda x: xp.reshape(x, (21, 55))[:, 1:] * 2,
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_reshapes_of_dense_inputs_take_no_kernel(name: str) -> None:
    x = np.random.default_rng(0).integers(-4, 5, (55, 21)).astype(np.float16)
    exe = axe.compile(PROGRAMS[name], axe.Spec(x.shape, "f16"), target="h200")
    assert len(exe.kernels) == 1
    (found,) = interpreted(exe.schedule.graph, [x, *exe.program.constants.values()])
    assert np.array_equal(found, exe.meaning(x))


@pytest.mark.parametrize("shapes", [((1001, 333), (333, 1001)), ((1024, 768), (768, 1024))])
def test_large_ones_take_none(shapes: tuple[tuple[int, int], tuple[int, int]]) -> None:
    given, wanted = shapes
    exe = axe.compile(lambda x: xp.reshape(x, wanted) * 2, axe.Spec(given, "f16"), target="h200")
    assert len(exe.kernels) == 1


@pytest.mark.parametrize("pitch", [333, 336])
def test_rows_apart_are_not_those_of_a_reshape(pitch: int) -> None:
    """A turned value is not stored as the rows of its reshape, apart, which no strides describe."""

    def turned(x: Any) -> Any:
        return xp.reshape(x.T, (101, 333)) * 2

    layout = axe.Layout([(101, pitch), (333, 1)])
    exe = axe.compile(turned, axe.Spec((101, 333), "f16", layout=layout), target="h200")
    assert exe.source
    x = np.random.default_rng(0).integers(-4, 5, (101, 333)).astype(np.float16)
    (found,) = interpreted(exe.schedule.graph, [x, *exe.program.constants.values()])
    assert np.array_equal(found, exe.meaning(x))
