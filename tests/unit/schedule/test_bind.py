"""Binding a graph's dims: types, boxes and layouts follow, texts only where told."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq.array as xp
import axe_eq.nn as nn
from axe_eq.errors import ScheduleError
from axe_eq.program.meaning import evaluate
from axe_eq.program.node import INPUT, SEL
from axe_eq.program.spec import Spec
from axe_eq.program.trace import trace
from axe_eq.program.types import ValueType
from axe_eq.schedule.bind import bind
from axe_eq.schedule.decode import decode
from axe_eq.schedule.graph import ScheduleGraph
from axe_eq_backends.cpu.run import run_schedule
from tests.unit.schedule.layouts import in_layouts

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
    graph = bind(cut_into_kernels(program, kept, rng, BLOCKS), {"tokens": extent})
    wanted = program.rebind(tokens=extent)
    if extent > 1:  # what is broadcast along one element may be written in another way
        assert decode(graph, {i.name: i.node for i in wanted.inputs}) == wanted.outputs
    arrays = [rng.standard_normal(s.node.type.shape) for s in wanted.inputs]
    for found, value in zip(run_schedule(graph, arrays), evaluate(wanted, arrays), strict=True):
        assert found.shape == value.shape
        np.testing.assert_allclose(found, value, rtol=1e-9, atol=1e-9)


def test_texts_and_constants_follow_where_told(
    cut_into_kernels: Cut, rng: np.random.Generator
) -> None:
    program = trace(lambda x, y: xp.flip(x[2:9] * y, axis=0), X, Spec((7, 24), "f64"))
    graph = cut_into_kernels(program)
    sliced = next(n.text for n in program.nodes() if n.kind == SEL and "slice" in n.text)
    with pytest.raises(ScheduleError, match=r"axis 0 reads 2..8 of extent 6"):
        bind(graph, {"tokens": 6})
    texts = {sliced: sliced.replace("(2,1,7)", "(1,2,3)")}
    with pytest.raises(ScheduleError, match=r"node . *, bound tokens=6: op 'a b, a b -> a b': dim"):
        bind(graph, {"tokens": 6}, texts)
    bound = bind(graph, {"tokens": 6}, texts, {"y": ValueType("f64", (3, 24))})
    x, ones = rng.standard_normal((6, 24)), np.full((3, 24), 2.0)
    (found,) = run_schedule(bound, [x, ones])
    np.testing.assert_array_equal(found, x[1::2][::-1] * 2.0)


def test_operators_that_no_longer_fit_are_refused(cut_into_kernels: Cut) -> None:
    program = trace(lambda x, y: x + y, X, Spec((16, 24), "f64"))
    with pytest.raises(ScheduleError, match="bound tokens=8: op 'a b, a b -> a b': dim 0 of oper"):
        bind(cut_into_kernels(program), {"tokens": 8})


def test_a_buffer_in_another_layout_cannot_be_resized(cut_into_kernels: Cut) -> None:
    graph = cut_into_kernels(trace(lambda x: x * 2.0, X))
    columns = in_layouts(graph, {"x": "S[(16,24):(1@m,16@m)]"})
    assert bind(graph, {"tokens": 4}).buffers["x"].layout == "S[(96):(1@m)]"
    with pytest.raises(ScheduleError, match="has layout"):
        bind(columns, {"tokens": 4})
    assert bind(columns, {"tokens": 16}) is columns


def test_names_and_extents_are_checked(cut_into_kernels: Cut) -> None:
    graph = cut_into_kernels(trace(lambda x: x * 2.0, X))
    with pytest.raises(ScheduleError, match="dim 'rows': is no dim of the inputs; expected one of"):
        bind(graph, {"rows": 4})
    for wrong in (0, -3, 2.5, True):
        with pytest.raises(ScheduleError, match="dim 'tokens': bound to"):
            bind(graph, {"tokens": wrong})  # type: ignore[dict-item]
