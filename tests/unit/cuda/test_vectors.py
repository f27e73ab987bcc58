"""Products with vectors are sums on lanes: right for every element type, layout and place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.program.meaning import evaluate
from axe_eq.program.node import Program
from axe_eq_backends.cuda.lane_cost import Lanes
from axe_eq_backends.cuda.make import make_all
from axe_eq_backends.cuda.target import h200
from tests.unit.cuda.whole import interpreted, sample

xp, es = axe.array, nn.einsum
# Of the largest value: two steps of it where cells after a product do not round before.
TOLERANCE = {
    "f8e4m3": 0.13, "bf16": 1e-2, "f16": 2e-3, "f32": 1e-5, "f64": 1e-13, "i32": 0, "i64": 0,
}  # fmt: skip
COLUMNS = axe.Layout([(40, 1), (33, 40)])
PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "a vector by rows": (lambda x, w: x @ w, ((40,), (40, 33))),
    "a row by rows": (lambda x, w: x @ w, ((1, 40), (40, 33))),
    "by columns": (lambda x, w: x @ w, ((40,), ((40, 33), COLUMNS))),
    "a column": (lambda w, x: w.T @ x, ((40, 33), (40, 1))),
    "a layer": (lambda x, w, b: nn.relu(x @ w + b), ((1, 40), (40, 33), (33,))),
    "a computed vector": (lambda x, w: (x * x + 1) @ w, ((40,), (40, 33))),
    "a part": (lambda x, w: (x @ w)[3:-4], ((40,), (40, 33))),
    "backwards": (lambda x, w: xp.flip(w.T @ x, axis=0), ((40,), (40, 33))),
    "positions": (lambda x, w: x @ w + xp.astype(xp.arange(33), x.dtype), ((40,), (40, 33))),
    "batches": (lambda x, w: es("bk,bkn->bn", x, w), ((3, 17), (3, 17, 12))),
    "several dims": (lambda x, w: es("kl,lkn->n", x, w), ((3, 17), (17, 3, 12))),
    "two": (lambda x, w, v: (x @ w) * (x @ v), ((40,), (40, 33), ((40, 33), COLUMNS))),
    "one number": (lambda x, y: es("k,k->", x, y), ((40,), (40,))),
    "stored with what is summed": (
        lambda x, y: x + xp.expand_dims(es("bk,bk->b", x, y), axis=1), ((5, 40), (5, 40)),
    ),
}  # fmt: skip


def traced(name: str, dtype: str) -> Program:
    fn, given = PROGRAMS[name]
    pairs = [g if g and isinstance(g[0], tuple) else (g, None) for g in given]
    return axe.trace(fn, *(axe.Spec(shape, dtype, layout=layout) for shape, layout in pairs))


def check(name: str, dtype: str) -> None:
    program = traced(name, dtype)
    exe = axe.compile(program, target="h200")
    rng = np.random.default_rng(len(name))
    inputs = [sample(rng, i.node.type) for i in program.inputs]
    (want,) = (np.asarray(x, np.float64) for x in evaluate(program, inputs))
    given = [*inputs, *program.constants.values()]
    (got,) = (np.asarray(x, np.float64) for x in interpreted(exe.schedule.graph, given))
    assert np.abs(got - want).max() <= TOLERANCE[dtype] * np.abs(want).max()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", PROGRAMS)
def test_products_with_vectors_are_right(name: str, full: bool) -> None:
    for dtype in TOLERANCE if full else (("f16", "i64")[list(PROGRAMS).index(name) % 2],):
        check(name, dtype)


def columns_of(dtype: str, layout: axe.Layout | None) -> tuple[float, int]:
    """Blocks that are priced and tiles that are emitted of a vector times 4096 x 2048."""
    specs = (axe.Spec((4096,), dtype), axe.Spec((4096, 2048), dtype, layout=layout))
    one = ("long_product_in_parts",)  # of several kernels each has its own
    exe = axe.compile(lambda x, w: x @ w, *specs, target="h200", without=one)
    (kernel,) = exe.kernels
    assert kernel.schedule == Lanes.name
    graph = exe.schedule.graph
    (made,) = (found.lowered.kernel for found in make_all(graph, h200).values())
    assert isinstance(made.tiles, int)
    return kernel.costs["blocks"], made.tiles


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_sums_across_columns_have_the_blocks_that_are_priced(dtype: str) -> None:
    blocks, tiles = columns_of(dtype, None)
    assert blocks == tiles
    by_columns = axe.Layout([(4096, 1), (2048, 4096)])
    assert columns_of(dtype, by_columns)[1] > h200.n_units


def test_products_that_sum_over_some_of_the_same_dims_go_through_steps_of_their_own() -> None:
    def centred(v: Any) -> Any:
        w = v @ v.mT
        return nn.layernorm(w @ w.mT, axis=1)

    exe = axe.compile(centred, axe.Spec((2, 2, 16), "f32"), target="h200")
    sums = [{n.text for n in k.nodes if "; +" in n.text and n.cell == "mul"} for k in exe.kernels]
    assert any(len(several) > 1 for several in sums)
    x = np.random.default_rng(5).standard_normal((2, 2, 16)).astype(np.float32) / 8
    (got,) = interpreted(exe.schedule.graph, [x])
    np.testing.assert_allclose(got, axe.run(centred, x), rtol=2e-3, atol=2e-4)
