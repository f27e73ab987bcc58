"""The whole way on random programs: the chosen schedule computes on `cpu` what they mean."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.layout import Layout
from axe_eq.program.meaning import evaluate
from axe_eq.program.node import Program
from axe_eq.program.terms import decode, encode
from axe_eq.program.types import DTYPES, Array, value_type
from axe_eq.schedule.graph import Access, KernelStep, ScheduleGraph
from axe_eq_backends.cpu.run import run_schedule
from benchmarks.random_programs import (
    JUMPING,
    operator_counts,
    operator_names,
    random_inputs,
    random_program,
)
from tests.unit.schedule.layouts import in_layouts

CASES, SAMPLE = 1000, 0.02
LEAST_USES = 20
# Exact schedules round where the meaning rounds; sums may run in another order within an operator.
EXACT_ERROR = {"f8e4m3": 0.15, "f8e5m2": 0.3, "bf16": 2e-2, "f16": 2e-3, "f32": 1e-5, "f64": 1e-12}


def programs(count: int, full: bool, **options: object) -> list[tuple[Program, list[Array]]]:
    """Random programs with inputs; all of them, or a sample."""
    found = []
    for seed in range(count if full else max(4, int(count * SAMPLE))):
        rng = np.random.default_rng(seed)
        program = random_program(rng, 3 + seed % 8, **options)  # type: ignore[arg-type]
        found.append((program, random_inputs(program, rng)))
    return found


def run(graph: ScheduleGraph, program: Program, inputs: list[Array]) -> list[Array]:
    """Outputs of a schedule on the cpu runner."""
    return run_schedule(graph, [*inputs, *program.constants.values()])


def assert_close(
    got: list[Array], want: list[Array], error: dict[str, float], seed: object
) -> None:
    """Equal types, and values within the error of their dtype, relative to the largest."""
    for a, b in zip(got, want, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape), seed
        name = next(n for n, d in DTYPES.items() if d.numpy == b.dtype)
        x, y = a.astype(np.float64), b.astype(np.float64)
        scale = float(np.max(np.abs(y), initial=1.0))
        np.testing.assert_allclose(
            x, y, rtol=0, atol=error.get(name, 0.0) * scale, err_msg=str(seed)
        )


def test_random_programs_mean_the_same_after_compilation(full: bool) -> None:
    """Encoding is undone by decoding; the schedule graph on cpu means what the program means."""
    counts: Counter[str] = Counter()
    for seed, (program, inputs) in enumerate(programs(CASES, full)):
        counts += operator_counts([program])
        terms = encode(program.outputs)
        assert all(decode(terms[root]) is root for root in program.outputs), seed
        exe = axe.compile(program, target="cpu", numerics="exact")
        got = run(exe.schedule.graph, program, inputs)
        assert_close(got, evaluate(program, inputs), EXACT_ERROR, seed)
    print(sorted(counts.items(), key=lambda item: item[1]))
    if full:
        rare = {name for name in operator_names() if counts[name] < LEAST_USES}
        assert not rare


def test_real_laws_change_no_meaning(full: bool) -> None:
    """Over real laws the same holds up to rounding, for programs without jumps and half types."""
    wide = {name: 1e-4 for name in ("f32", "f64")}
    for seed, (program, inputs) in enumerate(programs(CASES // 4, full, without=JUMPING)):
        if any(n.dtype not in ("f32", "f64", "bool", "i32", "i64") for n in program.nodes()):
            continue
        graph = axe.compile(program, target="cpu").schedule.graph
        assert_close(run(graph, program, inputs), evaluate(program, inputs), wide, seed)


def strided(type_text: str, rng: random.Random) -> str:
    """A layout of random dim order, padding and offset; injective."""
    shape = value_type(type_text).shape
    order = list(range(len(shape)))
    rng.shuffle(order)
    stride, strides = rng.randint(1, 2), [0] * len(shape)
    for dim in order:
        strides[dim] = stride
        stride *= shape[dim] + rng.randint(0, 2)
    shard = [(n, s, "m") for n, s in zip(shape, strides, strict=True)]
    return str(Layout(shard=shard, offset={"m": rng.randint(0, 3)}))


def test_strides_and_padding_of_buffers_change_nothing(full: bool) -> None:
    """Any injective layout of every temporary and output gives the same values."""
    for seed, (program, inputs) in enumerate(programs(CASES // 4, full)):
        rng = random.Random(seed)
        graph = axe.compile(program, target="cpu", numerics="exact").schedule.graph
        kept = {n: b for n, b in graph.buffers.items() if b.role in ("temporary", "output")}
        other = in_layouts(graph, {n: strided(b.type, rng) for n, b in kept.items()})
        for a, b in zip(run(other, program, inputs), run(graph, program, inputs), strict=True):
            np.testing.assert_array_equal(a, b, err_msg=str(seed))


def three_kernels() -> Program:
    """Two products in a row and a reduction: buffers between kernels."""
    spec = axe.Spec((6, 6), "f64")

    def fn(x: object, w: object) -> object:
        h = x @ w  # type: ignore[operator]
        return (h @ w) @ w

    return axe.trace(fn, spec, spec)


@pytest.mark.parametrize("side", ["reads", "writes"])
def test_corrupting_one_access_changes_the_result(side: str) -> None:
    """Transposing the layout at one reader, or at the writer only, changes what comes out."""
    program = three_kernels()
    rng = np.random.default_rng(0)
    inputs = [rng.standard_normal((6, 6)), rng.standard_normal((6, 6))]
    graph = axe.compile(program, target="cpu", numerics="exact").schedule.graph
    right = run(graph, program, inputs)[0]
    tried = 0
    for number, step in enumerate(graph.steps):
        assert isinstance(step, KernelStep)
        for place, access in enumerate(getattr(step, side)):
            bad = Access(access.buffer, "S[(6,6):(1@m,6@m)]")
            changed = list(getattr(step, side))
            changed[place] = bad
            broken = replace(step, **{side: tuple(changed)})  # type: ignore[arg-type]
            steps = (*graph.steps[:number], broken, *graph.steps[number + 1 :])
            wrong = run(replace(graph, steps=steps), program, inputs)[0]
            assert not np.allclose(wrong, right), (step.name, access.buffer)
            tried += 1
    assert tried >= 2
