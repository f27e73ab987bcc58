"""Rows that stay in shared memory between sweeps, of one CTA or in parts of a cluster's CTAs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import array as xp
from axe_eq import nn
from axe_eq.kernel.threads import ir
from axe_eq.lower.candidate import Candidate
from axe_eq.lower.read import read_cone
from axe_eq.schedule.graph import KernelStep, ScheduleGraph
from axe_eq_backends.cuda.compile import compile_text
from axe_eq_backends.cuda.interpret import run
from axe_eq_backends.cuda.make import make
from axe_eq_backends.cuda.prefixes import alone
from axe_eq_backends.cuda.target import h200
from axe_eq_backends.cuda.ways import candidates_of

Array = np.ndarray[Any, np.dtype[Any]]
# Chunks of a few hundred elements: rows that the interpreter goes through take several.
SMALL = h200.replace(
    name="small",
    choices={
        **h200.choices, "row_threads": (), "sweep_held": (2,), "sweep_warps": (1, 2),
        "sweep_kept": (100,), "sweep_vectors": (2,),
    },
)  # fmt: skip


def _wide(x: Any) -> Any:
    return xp.astype(x, "f32")


def _normed(x: Any, r: Any) -> Any:
    """What is added up, its norm, and one value of a row."""
    h = _wide(x) + _wide(r)
    mean = xp.mean(h, axis=-1, keepdims=True)
    centred = h - mean
    spread = xp.mean(centred * centred, axis=-1, keepdims=True)
    return xp.astype(h, "f16"), xp.astype(centred / xp.sqrt(spread + 1e-3), "f16"), mean


def _normed_in_numpy(x: Array, r: Array) -> tuple[Array, ...]:
    h = x + r
    mean = h.mean(-1, keepdims=True)
    return h, (h - mean) / np.sqrt(h.var(-1, keepdims=True) + 1e-3), mean


def _softmax(x: Array) -> tuple[Array, ...]:
    with np.errstate(invalid="ignore"):
        e = np.exp(x - x.max(-1, keepdims=True))
    return (e / e.sum(-1, keepdims=True),)


class Case(NamedTuple):
    """A program, numpy's in float64, and shapes; what is reduced lies last, or in the middle."""

    fn: Callable[..., Any]
    wanted: Callable[..., tuple[Array, ...]]
    shape: tuple[int, ...]
    n_arrays: int = 1


CASES = {
    "softmax": Case(nn.softmax, _softmax, (3, 1500)),
    "softmax of odd rows": Case(nn.softmax, _softmax, (2, 1503)),
    "norm with three results": Case(_normed, _normed_in_numpy, (2, 1203), 2),
    "columns": Case(
        lambda x: nn.softmax(x, axis=0), lambda x: tuple(a.T for a in _softmax(x.T)), (500, 24)
    ),
    "largest": Case(lambda x: xp.max(x, axis=-1), lambda x: (x.max(-1),), (2, 3000)),
    "where the largest is": Case(
        lambda x: xp.argmax(x, axis=-1), lambda x: (x.argmax(-1),), (2, 3000)
    ),
}  # fmt: skip


def _arrays(case: Case) -> list[Array]:
    rng = np.random.default_rng(3)
    return [rng.standard_normal(case.shape).astype(np.float16) for _ in range(case.n_arrays)]


def _compiled(case: Case) -> tuple[KernelStep, ScheduleGraph, list[Candidate]]:
    """The one kernel of a case on the small machine, and its candidates that keep rows."""
    specs = [axe.Spec(case.shape, "f16")] * case.n_arrays
    with axe.debug(cache=0):
        exe = axe.compile(case.fn, *specs, target=SMALL)
    (step,), graph = exe.schedule.graph.kernels, exe.schedule.graph
    offered = candidates_of(read_cone(step, alone), SMALL)
    return step, graph, [c for c in offered if "cluster" in c.parameters]


def _check(
    case: Case, step: KernelStep, graph: ScheduleGraph, arrays: list[Array], order: int = 0
) -> None:
    given = dict(zip(graph.inputs, arrays, strict=True))
    made = run(step, graph, SMALL, given, order)
    wanted = case.wanted(*(a.astype(np.float64) for a in arrays))
    for name, want in zip(graph.outputs, wanted, strict=True):
        found = made[name].astype(np.float64).reshape(want.shape)
        np.testing.assert_allclose(found, want, rtol=3e-3, atol=3e-3 * np.nanmax(np.abs(want)))


@pytest.mark.sampled(2, slow=("norm with three results",))
@pytest.mark.parametrize("name", CASES)
def test_kept_rows_are_right(name: str, full: bool) -> None:
    case, rng = CASES[name], random.Random(name)
    arrays, (step, graph, offered) = _arrays(case), _compiled(case)
    clusters = sorted({c.parameters["cluster"] for c in offered})
    # Of one sweep nothing is kept, but CTAs of a cluster may share it.
    assert (1 in clusters) == (name != "largest")
    assert {2, 4} <= set(clusters)
    for cluster in clusters if full else rng.sample(clusters, 2):
        same = [c for c in offered if c.parameters["cluster"] == cluster]
        for c in rng.sample(same, min(len(same), 6 if full else 1)):
            one = replace(step, parameters=dict(c.parameters))
            kernel = make(one, graph, SMALL).lowered.kernel
            assert kernel.cluster == cluster
            _check(case, one, graph, arrays)


def test_kept_rows_are_right_in_every_order(full: bool) -> None:
    case = CASES["softmax of odd rows"]
    arrays, (step, graph, offered) = _arrays(case), _compiled(case)
    c = next(c for c in offered if c.parameters["cluster"] == 2 and c.parameters["vectors"] == 2)
    for order in range(50 if full else 4):
        _check(case, replace(step, parameters=dict(c.parameters)), graph, arrays, order)


@pytest.mark.parametrize("cluster", [1, 4])
def test_a_row_without_a_number_has_no_softmax_and_parts_without_one_have_no_weight(
    cluster: int,
) -> None:
    case = CASES["softmax"]
    (x,), (step, graph, offered) = _arrays(case), _compiled(case)
    x[0] = -np.inf
    x[1, :1400] = -np.inf  # all that most CTAs of a cluster have
    x[2, 3] = np.inf
    c = next(c for c in offered if c.parameters["cluster"] == cluster)
    _check(case, replace(step, parameters=dict(c.parameters)), graph, [x])


def test_what_is_read_again_is_kept_once_and_weights_are_not() -> None:
    def scaled(x: Any, w: Any) -> Any:
        return nn.layernorm(x) * w

    with axe.debug(cache=0):
        exe = axe.compile(scaled, "3x1000:f16", "1000:f16", target=SMALL)
    (step,), graph = exe.schedule.graph.kernels, exe.schedule.graph
    offered = [c for c in candidates_of(read_cone(step, alone), SMALL) if "cluster" in c.parameters]
    for c in offered[::5]:
        kernel = make(replace(step, parameters=dict(c.parameters)), graph, SMALL).lowered.kernel
        rows = [b for b in kernel.buffers if b.is_shared and b.name.endswith("_rows")]
        n_elements = 1000 // c.parameters["cluster"]
        assert len(rows) <= 1
        assert all(b.n_elements >= n_elements and b.dtype == "f16" for b in rows)
        fetched = [s for s, _ in ir.walk(kernel) if isinstance(s, ir.Fetch)]
        assert len(fetched) == (2 * c.parameters["cluster"] if c.parameters["cluster"] > 1 else 0)


def test_long_rows_are_read_once_and_few_of_them_share_clusters() -> None:
    for fn, spec, clusters in (
        (nn.layernorm, "512x50257:f16", {1}),
        (nn.softmax, "16x131072:f16", {4, 8}),
    ):
        exe = axe.compile(fn, spec, target="h200")
        ((kernel,), (text,)) = exe.kernels, exe.source.values()
        assert "0 bytes spill stores" in compile_text(text, 90).log
        assert kernel.parameters["cluster"] in clusters
        assert dict(kernel.costs)["reread_bytes"] == 0
