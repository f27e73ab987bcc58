"""Cones that read many values at once: what is chosen is emitted, with registers for all."""

from __future__ import annotations

from functools import reduce
from operator import add
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.kernel.cells import Cell, apply, arg
from axe_eq_backends.cuda.cost import MOST_READS
from axe_eq_backends.cuda.emit import emit
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.schedules.map import elementwise
from axe_eq_backends.cuda.schedules.tensors import dense
from axe_eq_backends.cuda.target import h200
from tests.unit.cuda.whole import interpreted, sample

xp = axe.array


def doubled(x: Any) -> Any:
    """A scan by doubling steps, each an operator (Hillis and Steele, 1986)."""
    extent, step = x.shape[-1], 1
    while step < extent:
        x = x + xp.pad(x, ((0, 0), (step, 0)))[:, :extent]
        step *= 2
    return x


def test_doubling_steps_read_every_place_in_kernels_that_hold_what_they_read() -> None:
    """Doubling reads 128 places of the input if all of it is one kernel."""
    spec = axe.Spec((3, 128), "f32")
    exe = axe.compile(
        doubled, spec, target="h200",
        without=["selector_of_operator_0_1"],  # a long search, with the same end
    )  # fmt: skip
    assert len(exe.kernels) > 1
    assert exe.source
    x = sample(np.random.default_rng(0), axe.trace(lambda x: x, spec).inputs[0].node.type)
    (got,) = interpreted(exe.schedule.graph, [x])
    np.testing.assert_allclose(got, np.cumsum(x, axis=-1), rtol=0, atol=1e-3)


@pytest.mark.parametrize("dtype", ["f16", "f32", "f64"])
def test_threads_hold_fewer_elements_of_many_operands(dtype: str) -> None:
    names, shape = [f"x{n}" for n in range(MOST_READS)], (4, 512)
    cell: Cell = arg(0)
    for n in range(1, MOST_READS):
        cell = apply("add", cell, arg(n))
    operands = [dense(name, dtype, shape) for name in names]
    kernel = elementwise(shape, operands, [(dense("y", dtype, shape), cell)])
    assert emit(plan(kernel, h200)).text


def total(*values: Any) -> Any:
    return reduce(add, values)


def test_sums_of_many_inputs_are_emitted() -> None:
    exe = axe.compile(total, *[axe.Spec((16, 64), "f32")] * (MOST_READS + 6), target="h200")
    assert exe.source
