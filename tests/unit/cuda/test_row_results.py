"""Streaming kernels with results per row: attention beside what it knows of every row's scores."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import axe_eq as axe
from axe_eq_backends.cuda.target import h200

xp = axe.array
Array = np.ndarray[Any, np.dtype[Any]]
SCALE = 0.125
# Programs are small here, and kernels of streams take some time to begin.
EAGER = h200.replace(figures={**h200.figures, "stream_begin_s": 0.0, "stream_tile_s": 0.0})


def scores(q: Any, k: Any, causal: bool) -> Any:
    s = xp.astype(xp.matmul(q, xp.permute_dims(k, (0, 2, 1))), "f32") * SCALE
    if not causal:
        return s
    rows, cols = (xp.arange(e) for e in s.shape[-2:])
    return xp.where(cols[None, :] <= rows[:, None], s, -xp.inf)


def weighed(s: Any, v: Any) -> tuple[Any, Any, Any]:
    """Values mixed by the softmax of scores, and of every row their maximum and sum of weights."""
    top = xp.max(s, axis=-1)
    e = xp.exp(s - top[..., None])
    total = xp.sum(e, axis=-1)
    return xp.matmul(xp.astype(e / total[..., None], "f16"), v), top, total


def attention(q: Any, k: Any, v: Any) -> Any:
    mixed, top, total = weighed(scores(q, k, False), v)
    return mixed, top + xp.log(total)


def causal(q: Any, k: Any, v: Any) -> Any:
    mixed, top, total = weighed(scores(q, k, True), v)
    return mixed, top + xp.log(total)


def parts(q: Any, k: Any, v: Any) -> Any:
    return weighed(scores(q, k, False), v)


def least(q: Any, k: Any, v: Any) -> Any:
    s = scores(q, k, False)
    return weighed(s, v)[0], xp.min(s, axis=-1)


def by_row(fn: Callable[..., Any], q: Array, k: Array, v: Array) -> list[Array]:
    """The same in float64."""
    wide = [a.astype(np.float64) for a in (q, k, v)]
    s = wide[0] @ wide[1].transpose(0, 2, 1) * SCALE
    if fn is causal:
        s = np.where(np.tril(np.ones(s.shape[-2:], bool)), s, -np.inf)
    top = s.max(axis=-1)
    e = np.exp(s - top[..., None])
    total = e.sum(axis=-1)
    mixed = e / total[..., None] @ wide[2]
    if fn is least:
        return [mixed, s.min(axis=-1)]
    return [mixed, top, total] if fn is parts else [mixed, top + np.log(total)]


class Case(NamedTuple):
    """A program, and the extents of its queries, keys and values."""

    fn: Callable[..., Any]
    batch: int
    rows: int
    keys: int
    depth: int
    columns: int


CASES = {
    "odd rows, rest of a chunk": Case(attention, 1, 70, 100, 64, 48),
    "two blocks of columns": Case(attention, 1, 64, 96, 64, 320),
    "as many keys as depth": Case(attention, 1, 64, 64, 64, 64),
    "causal": Case(causal, 1, 130, 130, 64, 64),
    "maximum and sum": Case(parts, 1, 64, 96, 64, 64),
}


def given(case: Case, size: float) -> list[Array]:
    rng = np.random.default_rng(1)
    shapes = [(case.rows, case.depth), (case.keys, case.depth), (case.keys, case.columns)]
    return [(rng.standard_normal((case.batch, *s)) * size).astype(np.float16) for s in shapes]


@pytest.mark.sampled(1, always=("causal",))
@pytest.mark.parametrize("name", CASES)
def test_results_per_row_come_out_of_the_streaming_kernel(name: str) -> None:
    case = CASES[name]
    arrays = given(case, 1.0)
    with axe.debug(cache=0):
        exe = axe.compile(case.fn, *(axe.Spec(a.shape, "f16") for a in arrays), target=EAGER)
    wanted = by_row(case.fn, *arrays)
    (step,) = exe.schedule.graph.kernels
    assert (step.schedule, len(step.writes)) == ("streaming", len(wanted))
    for size in (1.0, 4.0):  # weights of all; and of one or two alone
        arrays = given(case, size)
        for run in (exe.interpret, exe.schedule.run):
            results = zip(run(*arrays), by_row(case.fn, *arrays), strict=True)
            for got, want in results:
                bound = (1e-3 if got.dtype == np.float16 else 3e-5) * np.abs(want).max()
                assert np.abs(got - want).max() <= bound


def test_what_the_kernel_does_not_know_of_a_row_is_computed_elsewhere() -> None:
    case = Case(least, 1, 64, 96, 64, 64)
    arrays = given(case, 1.0)
    with axe.debug(cache=0):
        exe = axe.compile(case.fn, *(axe.Spec(a.shape, "f16") for a in arrays), target=EAGER)
    assert [len(k.writes) for k in exe.kernels if k.schedule == "streaming"] == [1]
    for got, want in zip(exe.interpret(*arrays), by_row(least, *arrays), strict=True):
        assert np.abs(got - want).max() <= 1e-3 * np.abs(want).max()
