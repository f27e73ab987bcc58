"""Kernels of several results: one where that is cheapest, right, and nothing stored in vain."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.extract.search import merge
from axe_eq.pack import installed
from axe_eq.schedule.graph import ScheduleGraph
from axe_eq_backends.cuda.lane_cost import Lanes
from tests.unit.extract.graphs import forest_of, program_of_results, search_of

xp = axe.array
EPS = 1e-5
SMALL, LARGE = (24, 96), (8192, 4096)
DRAWN, SAMPLED = 60, 3


class Program(NamedTuple):
    """A program of `n` tensors of a shape, which numpy runs as well.

    Large tensors are reduced to one value in two kernels.
    """

    fn: Callable[..., Any]
    n: int = 1
    n_kernels: int = 1


def of(xs: Any) -> Any:
    """The functions of arrays: numpy's for numpy's."""
    return np if isinstance(xs, np.ndarray) else xp


def top(x: Any) -> Any:
    return of(x).max(x, axis=-1, keepdims=True)


def total(x: Any) -> Any:
    return of(x).sum(x, axis=-1, keepdims=True)


def rms(x: Any) -> Any:
    return x / of(x).sqrt(of(x).mean(x * x, axis=-1, keepdims=True) + EPS)


def soft(x: Any) -> Any:
    e = of(x).exp(x - top(x))
    return e / total(e)


def log_sum(x: Any) -> Any:
    return top(x) + of(x).log(total(of(x).exp(x - top(x))))


def layernorm(x: Any) -> tuple[Any, Any, Any]:
    mean = of(x).mean(x, axis=-1, keepdims=True)
    centred = x - mean
    scale = 1 / of(x).sqrt(of(x).mean(centred * centred, axis=-1, keepdims=True) + EPS)
    return centred * scale, mean, scale


PROGRAMS = {
    "residual, rmsnorm": Program(lambda x, r: (x + r, rms(x + r)), 2),
    "residual, softmax": Program(lambda x, r: (x + r, soft(x + r)), 2),
    "residual, sum": Program(lambda x, r: (x + r, of(x).sum(x + r, axis=-1)), 2),
    "residual, layernorm": Program(lambda x, r: (x + r, *layernorm(x + r)), 2),
    "rmsnorm, scale": Program(lambda x: (rms(x), 1 / of(x).sqrt(total(x * x) + EPS))),
    "layernorm, mean, scale": Program(layernorm),
    "softmax, log sum": Program(lambda x: (soft(x), log_sum(x))),
    "softmax, log softmax": Program(lambda x: (soft(x), x - log_sum(x))),
    "softmax, maximum, total": Program(lambda x: (soft(x), top(x), total(of(x).exp(x - top(x))))),
    "scaled, scale": Program(lambda x: (x / (top(abs(x)) + EPS), top(abs(x)))),
    "sum, sum of squares": Program(lambda x: (of(x).sum(x, axis=-1), of(x).sum(x * x, axis=-1))),
    "mean, variance": Program(lambda x: (of(x).mean(x, axis=-1), of(x).var(x, axis=-1))),
    "min, max": Program(lambda x: (of(x).min(x, axis=-1), of(x).max(x, axis=-1))),
    "sum, min, max": Program(
        lambda x: (of(x).sum(x, axis=-1), of(x).min(x, axis=-1), of(x).max(x, axis=-1))
    ),
    "columns": Program(lambda x: (of(x).sum(x, axis=0), of(x).sum(x * x, axis=0))),
    "everything": Program(lambda x: (of(x).sum(x), of(x).max(x)), n_kernels=2),
    "dot, norms": Program(
        lambda x, y: tuple(of(x).sum(a * b, axis=-1) for a, b in ((x, y), (x, x), (y, y))), 2
    ),
    "cells": Program(lambda x, y: (x + y, x * y), 2),
    "cells of cells": Program(
        lambda x, y: (of(x).exp(-abs(x)), of(x).exp(-abs(x)) * y, of(x).exp(-abs(x)) + y), 2
    ),
    "gate, its derivative": Program(
        lambda x, y: (x * y / (1 + of(x).exp(-x)), 1 / (1 + of(x).exp(-x))), 2
    ),
}


def compiled(name: str) -> Any:
    program = PROGRAMS[name]
    with axe.debug(cache=0):
        return axe.compile(program.fn, *[axe.Spec(SMALL, "f32")] * program.n, target="h200")


def unread(graph: ScheduleGraph) -> list[str]:
    """Buffers that a step writes, no step reads and no output is."""
    read = {a.buffer for step in graph.steps for a in step.reads}
    written = [a.buffer for step in graph.steps for a in step.writes]
    return [b for b in written if b not in read and b not in graph.outputs]


def extreme(seed: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Rows of all sizes: of 1, huge, tiny, alike, zero, and with one value apart."""
    rng = np.random.default_rng(seed)
    x = 1 + 0.5 * rng.standard_normal(SMALL)
    x[1] *= 1e15
    x[2] *= 1e-15
    x[3], x[4] = 7.0, 0.0
    x[5, 3] = 1e4
    return x.astype(np.float32)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_of_one_row_are_one_kernel_that_is_right_and_priced_as_written(name: str) -> None:
    """Its price is that of a candidate of its own formulas, with all of its parameters."""
    program, exe = PROGRAMS[name], compiled(name)
    (step,) = exe.schedule.graph.kernels
    assert len(exe.schedule.graph.steps) == 1
    assert not unread(exe.schedule.graph)

    target = installed()["cuda"].targets["h200"]
    known = {tuple(c.parameters.items()): c.time_s for c in Lanes().candidates(step, target)}
    assert known[tuple(step.parameters.items())] == pytest.approx(step.time_s)

    xs = [extreme(n) for n in range(program.n)]
    with np.errstate(over="ignore"):
        wanted = program.fn(*(x.astype(np.float64) for x in xs))
    for got, want in zip(exe.interpret(*xs), wanted, strict=True):
        rows = (SMALL[0], -1) if np.shape(want)[:1] == SMALL[:1] else (1, -1)
        got, want = np.reshape(got, rows), np.reshape(want, rows)
        most = np.abs(want).max(axis=-1, keepdims=True)
        assert np.all(np.abs(got - want) <= 3e-5 * most + 1e-30)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("shape", [LARGE, (1000, 1000)])
@pytest.mark.parametrize("name", PROGRAMS)
def test_results_of_long_rows_are_one_kernel_too(name: str, shape: tuple[int, int]) -> None:
    program = PROGRAMS[name]
    exe = axe.compile(program.fn, *[axe.Spec(shape, "f32")] * program.n, target="h200")
    steps = exe.schedule.graph.steps
    assert len(steps) <= program.n_kernels, [s.name for s in steps]
    assert not unread(exe.schedule.graph)


# -- drawn programs --------------------------------------------------------------------------------


def drawn(seed: int) -> tuple[Callable[..., Any], tuple[str, ...]]:
    """Cells, rows and products over two inputs, of which several values are results."""
    rng = random.Random(seed)
    moves = [rng.randrange(6) for _ in range(rng.randint(3, 7))]
    picks = [(rng.random(), rng.random()) for _ in moves]
    results = [rng.random() < 0.5 for _ in moves]

    def fn(x: Any, y: Any, w: Any) -> Any:
        values, found = [x, y], []
        for move, (i, j), is_result in zip(moves, picks, results, strict=True):
            a, b = (values[int(p * len(values))] for p in (i, j))
            made = (
                lambda a, b: a + b, lambda a, b: xp.exp(-abs(a)) * b, lambda a, b: a / top(b),
                lambda a, b: rms(a), lambda a, b: total(a * b), lambda a, b: a @ w,
            )[move](a, b)  # fmt: skip
            if made.shape == x.shape:
                values.append(made)
            if is_result or made.shape != x.shape:
                found.append(made)
        return (*found, values[-1] * 2, xp.sum(values[-1], axis=-1))

    extent = rng.choice((64, 256, 1024))
    return fn, (f"{rng.choice((64, 1024))}x{extent}:f16",) * 2 + (f"{extent}x{extent}:f16",)


def test_nothing_is_stored_that_nobody_reads(full: bool) -> None:
    """A sum that a variance needs was stored beside mean and variance."""
    exe = axe.compile(PROGRAMS["mean, variance"].fn, axe.Spec(LARGE, "f32"), target="h200")
    assert not unread(exe.schedule.graph)
    several = 0
    for seed in range(DRAWN if full else SAMPLED):
        fn, specs = drawn(seed)
        graph = axe.compile(fn, *specs, target="h200").schedule.graph
        assert not unread(graph), seed
        several += sum(len(step.writes) > 1 for step in graph.kernels)
    assert several >= SAMPLED // 2


def test_a_store_whose_last_reader_is_gone_is_dropped() -> None:
    """As where a kernel that joins another comes to compute what a third one wrote for it."""
    search = search_of(forest_of(program_of_results(1, 6)))
    search.set_materialised(sorted({*search.values} - search.materialised))
    grouping = merge._Grouping(search, search.selection())
    pairs = [(r, w) for r, g in grouping.groups.items() for p in g.leaves
             if (w := grouping.writer.get(p)) is not None and p not in search.roots
             and grouping.readers[p] == {r}]  # fmt: skip
    made = [(pair, merge_of(grouping, pair)) for pair in pairs]
    (pair, cone) = next((p, c) for p, c in made if c is not None)
    before = len(grouping.groups)
    grouping._remove(*pair)
    grouping._add(grouping._read(cone))
    while grouping._drop_dead():
        pass
    groups = list(grouping.groups.values())
    assert len(groups) == before - 1
    read = {leaf for group in groups for leaf in group.leaves}
    assert all(p in read or p in search.roots for group in groups for p in group.placed)
    assert search.roots <= {p for group in groups for p in group.placed}


def merge_of(grouping: merge._Grouping, pair: tuple[int, int]) -> merge.Cone | None:
    """A kernel for two that stores what each of them writes, if there is one."""
    groups = [grouping.groups[n] for n in pair]
    for way in grouping._ways(groups, True):
        members = [m for group in groups for m in grouping._moved(group, way)]
        if len(members) == sum(len(group.placed) for group in groups):
            cone = grouping._cone(members, [m.placed for m in members])
            if cone is not None and grouping._estimate(cone) < float("inf"):
                return cone
    return None
