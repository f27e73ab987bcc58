"""Binding a dim: the same function at another extent, or a refusal that says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq.array as xp
import axe_eq.nn as nn
from axe_eq.errors import ScheduleError
from axe_eq.program.meaning import evaluate
from axe_eq.program.node import INPUT
from axe_eq.program.spec import Spec
from axe_eq.program.trace import trace
from axe_eq.schedule.bind import bind
from axe_eq.schedule.graph import ScheduleGraph
from axe_eq_backends.cpu.run import run_schedule

Cut = Callable[..., ScheduleGraph]
BLOCKS = {letter: (1, 3, 8, 100) for letter in "pqks"}


def mlp(x: Any, g: Any, w: Any, v: Any) -> Any:
    h = nn.rmsnorm(x) * g
    return x + nn.silu(h @ w) @ v


def attention(x: Any, w: Any) -> Any:
    q = xp.permute_dims(xp.reshape(x @ w, (x.shape[0], 4, 6)), (1, 0, 2))
    s = nn.softmax(q @ xp.permute_dims(q, (0, 2, 1)), axis=-1)
    return xp.reshape(xp.permute_dims(s @ q, (1, 0, 2)), (x.shape[0], 24))


X = Spec((16, 24), "f64", dims=("tokens", ""))
MLP = (X, Spec((24,), "f64"), Spec((24, 40), "f64"), Spec((40, 24), "f64"))
CASES: dict[str, tuple[Callable[..., Any], tuple[Spec, ...]]] = {
    "mlp": (mlp, MLP),
    "attention": (attention, (X, Spec((24, 24), "f64"))),
    "transpose": (lambda x: xp.permute_dims(x, (1, 0)) * 2.0, (X,)),
    "flip": (lambda x: xp.flip(x), (X,)),
    "concat": (lambda x: xp.concat([x, x + 1.0, xp.zeros((5, 24))], axis=0), (X,)),
    "sum of the rows": (lambda x: xp.sum(x, axis=0), (X,)),
    "maximum of the rows": (lambda x: xp.max(x, axis=0) + x, (X,)),
    "columns of a slice": (lambda x: x[:, 3:20:2], (X,)),
    "blocks of hidden": (lambda x: xp.sum(xp.reshape(x, (x.shape[0], 3, 8)), axis=2), (X,)),
    "residual after a table": (lambda x: x + xp.reshape(xp.arange(24.0), (1, 24)), (X,)),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("extent", [1, 7, 16, 40])
def test_a_bound_graph_means_the_function_at_that_extent(
    name: str, extent: int, cut_into_kernels: Cut, rng: np.random.Generator
) -> None:
    function, specs = CASES[name]
    program = trace(function, *specs)
    kept = [n for n in program.nodes() if n.kind != INPUT and rng.random() < 0.4]
    graph = bind(cut_into_kernels(program, kept, rng, BLOCKS), tokens=extent)
    wanted = program.rebind(tokens=extent)
    arrays = [rng.standard_normal(s.node.type.shape) for s in wanted.inputs]
    for found, value in zip(run_schedule(graph, arrays), evaluate(wanted, arrays), strict=True):
        assert found.shape == value.shape
        np.testing.assert_allclose(found, value, rtol=1e-9, atol=1e-9)


FIXED: dict[str, Callable[..., Any]] = {
    "slice": lambda x: x[2:9],
    "last row": lambda x: x[-1],
    "first row, for all that is known": lambda x: x[0],
    "mean": lambda x: xp.mean(x, axis=0),
    "variance": lambda x: xp.var(x, axis=0, correction=1),
    "padded to a multiple": lambda x: xp.concat([x, xp.zeros((32 - x.shape[0], 24))], axis=0),
    "made at its extent": lambda x: (x * 2.0, xp.ones((x.shape[0], 3))),
    "merged and split": lambda x: xp.reshape(xp.reshape(x, (-1,)), (24, x.shape[0])),
    "halves": lambda x: xp.reshape(x, (2, x.shape[0] // 2, 24)),
    "positions": lambda x: xp.arange(x.shape[0]) * 2,
    "sum of positions": lambda x: (x, xp.sum(xp.arange(x.shape[0]))),
}


@pytest.mark.parametrize("name", FIXED)
def test_what_was_computed_from_the_extent_is_refused(name: str, cut_into_kernels: Cut) -> None:
    program = trace(FIXED[name], X)
    with pytest.raises(ScheduleError, match="tokens=8"):
        bind(cut_into_kernels(program), tokens=8)


def test_a_buffer_in_another_layout_cannot_be_resized(cut_into_kernels: Cut) -> None:
    graph = cut_into_kernels(trace(lambda x: x * 2.0, X))
    columns = graph.with_layouts({"x": "S[(16,24):(1@m,16@m)]"})
    assert bind(graph, tokens=4).buffers["x"].layout == "S[(96):(1@m)]"
    with pytest.raises(ScheduleError, match="has layout"):
        bind(columns, tokens=4)
    assert bind(columns, tokens=16) is columns


def test_names_and_extents_are_checked(cut_into_kernels: Cut) -> None:
    graph = cut_into_kernels(trace(lambda x: x * 2.0, X))
    with pytest.raises(ScheduleError, match="dim 'rows': is no dim of the inputs; expected one of"):
        bind(graph, rows=4)
    for wrong in (0, -3, 2.5):
        with pytest.raises(ScheduleError, match="dim 'tokens': bound to"):
            bind(graph, tokens=wrong)  # type: ignore[arg-type]
    with pytest.raises(ScheduleError, match="compiled for 1"):
        bind(bind(graph, tokens=1), tokens=4)
