"""Rows that begin anywhere are copied to rows that do not where that pays, and all is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.program.types import value_type
from axe_eq.schedule.kept import PADDED, kept_layouts
from axe_eq.schedule.memory import buffer_bytes
from axe_eq_backends.cuda.target import h200
from tests.unit.cuda.whole import interpreted, sample

# The layouts that a value may be kept in between kernels.
KEPT = {
    "f16[64,96]": ["S[(6144):(1@m)]"],
    "f16[64,1000]": ["S[(64000):(1@m)]", "S[(64,1000):(1024@m,1@m)]"],  # lines of 128 bytes
    "f16[64,1016]": ["S[(65024):(1@m)]", "S[(64,1016):(1024@m,1@m)]"],  # 16 would do, lines pay
    "f16[64,333]": ["S[(21312):(1@m)]", "S[(64,333):(336@m,1@m)]"],  # of lines they are too long
    "f16[64,95]": ["S[(6080):(1@m)]", "S[(64,95):(96@m,1@m)]"],
    "f16[2,32,95]": ["S[(6080):(1@m)]", "S[(64,95):(96@m,1@m)]"],
    "f32[64,30]": ["S[(1920):(1@m)]", "S[(64,30):(32@m,1@m)]"],
    "f32[64,9]": ["S[(576):(1@m)]"],  # a third more is too much
    "i64[7,33]": ["S[(231):(1@m)]", "S[(7,33):(34@m,1@m)]"],
    "f16[95]": ["S[(95):(1@m)]"],
    "f16[1,95]": ["S[(95):(1@m)]"],
    "f16[]": ["S[(1):(1@m)]"],
}
# A program, its inputs' shapes, and the schedules of its kernels.
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...], list[str]]] = {
    "a product": (
        lambda a, b: a @ b, ((384, 333), (333, 384)), ["lanes", "tensor_cores"],
    ),
    "its columns": (lambda a, b: a @ b, ((384, 320), (320, 333)), ["lanes", "tensor_cores"]),
    "both": (
        lambda a, b: nn.relu(a @ b), ((703, 673), (673, 755)),
        ["lanes", "lanes", "tensor_cores"],
    ),
    "a computed factor, written apart at once": (
        lambda x, w: nn.rmsnorm(x) @ w, ((384, 333), (333, 384)), ["lanes", "tensor_cores"],
    ),
    "a product of a product, written apart at once": (
        lambda a, b, c: (a @ b) @ c, ((384, 384), (384, 333), (333, 384)),
        ["lanes", "tensor_cores", "tensor_cores"],
    ),
    "batches": (
        lambda a, b: a @ b, ((3, 128, 777), (3, 777, 128)), ["lanes", "tensor_cores"],
    ),
}  # fmt: skip


def compiled(name: str) -> axe.Executable:
    fn, shapes, _ = PROGRAMS[name]
    return axe.compile(fn, *(axe.Spec(shape, "f16") for shape in shapes), target="h200")


@pytest.mark.parametrize("type_", KEPT)
def test_layouts_that_values_are_kept_in(type_: str) -> None:
    assert [k.layout for k in kept_layouts(value_type(type_), (PADDED,))] == KEPT[type_]


@pytest.mark.parametrize("name", PROGRAMS)
def test_products_of_odd_rows_run_on_bulk_copies(name: str) -> None:
    exe = compiled(name)
    assert sorted(k.schedule for k in exe.kernels) == PROGRAMS[name][2]
    graph = exe.schedule.graph
    apart = [b for b in graph.buffers.values() if "," in b.layout]
    assert apart
    for buffer in apart:  # the memory plan has room for what lies between the rows
        of = buffer.value_type
        (_, row), (pitch, _), *more = sorted(
            (s, e) for e, s, _ in axe.Layout.parse(buffer.layout).shard
        )
        assert all(step * of.itemsize % 16 == 0 for step in (pitch, *(s for s, _ in more)))
        assert buffer_bytes(buffer) == (of.size // row * pitch - pitch + row) * of.itemsize


@pytest.mark.sampled(1, slow=[name for name in PROGRAMS if name != "batches"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_products_of_odd_rows_are_right(name: str) -> None:
    exe, rng = compiled(name), np.random.default_rng(0)
    inputs = [sample(rng, i.node.type) for i in exe.program.inputs]
    (got,) = interpreted(exe.schedule.graph, inputs)
    want = np.asarray(axe.run(PROGRAMS[name][0], *inputs), np.float64)
    assert np.abs(got.astype(np.float64) - want).max() <= 4e-3 * np.abs(want).max()


def test_aligned_programs_are_searched_as_before() -> None:
    """No layout is offered beside the dense one where its rows begin at multiples of 16 bytes."""
    specs = axe.Spec((512, 512), "f16"), axe.Spec((512, 512), "f16")
    wide = axe.compile(lambda a, b: (a @ b) @ b, *specs, target="h200")
    assert not any("," in b.layout for b in wide.schedule.graph.buffers.values())
    assert wide.target is h200
