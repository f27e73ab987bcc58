"""What the cost model offers, the schedules take: memory-bound programs of any shape compile.

Reductions, softmax, normalisations, transposes and cells over random shapes and element types:
extraction must find kernels for all of them, every chosen kernel must lower, fit the machine, and
lose nothing to local memory.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Any

import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq_backends.cuda.compile import compile_text
from axe_eq_backends.cuda.make import make_all
from axe_eq_backends.cuda.target import h200

xp = axe.array
FLOATS, ALL = ("f16", "bf16", "f32", "f64"), ("f16", "bf16", "f32", "f64", "i32", "i64")
EXTENTS = (1, 2, 3, 7, 8, 17, 64, 100, 127, 128, 333, 1000, 1024, 4096, 5000, 12288, 65536)
LONG = (100_000, 131_072, 1_000_000, 1_000_003, 1 << 20)
MOST = 1 << 26
Case = tuple[str, str, tuple[int, ...], Callable[..., Any]]


def shape_of(rng: random.Random, least: int = 1) -> tuple[int, ...]:
    """Up to four dims; every third shape has a very long one."""
    while True:
        rank = rng.randint(least, 4)
        shape = [rng.choice(EXTENTS) for _ in range(rank)]
        if rng.random() < 1 / 3:
            shape[rng.randrange(rank)] = rng.choice(LONG)
        if prod(shape) <= MOST:
            return tuple(shape)


def reduction(rng: random.Random) -> Case:
    shape = shape_of(rng)
    axes = tuple(d for d in range(len(shape)) if rng.random() < 0.6) or None
    name = rng.choice(("sum", "max", "min", "mean", "prod", "var"))
    dtype = rng.choice(FLOATS if name in ("mean", "var") else ALL)
    kept = rng.random() < 0.5
    return "reduction", dtype, shape, lambda x: getattr(xp, name)(x, axis=axes, keepdims=kept)


def softmax(rng: random.Random) -> Case:
    shape = shape_of(rng)
    axis = rng.randrange(len(shape))
    return "softmax", rng.choice(FLOATS), shape, lambda x: nn.softmax(x, axis=axis)


def normalisation(rng: random.Random) -> Case:
    norm = rng.choice((nn.rmsnorm, nn.layernorm))
    return "normalisation", rng.choice(FLOATS), shape_of(rng), lambda x: norm(x)


def transpose(rng: random.Random) -> Case:
    shape = shape_of(rng, least=2)
    order = tuple(rng.sample(range(len(shape)), len(shape)))
    more = rng.choice((0, 1))
    return "transpose", rng.choice(ALL), shape, lambda x: xp.permute_dims(x, order) + more


def cells(rng: random.Random) -> Case:
    fn = rng.choice((nn.gelu, nn.silu, lambda x: xp.exp(x) * 2 - x, xp.abs))
    return "cells", rng.choice(FLOATS), shape_of(rng), lambda x: fn(x)


KINDS = (reduction, softmax, normalisation, transpose, cells)


def check_taken(case: Case, compiled: bool) -> None:
    """The case's kernels lower and fit; with `compiled` the assembler's word on registers too."""
    _, dtype, shape, fn = case
    exe = axe.compile(fn, axe.Spec(shape, dtype), target="h200")
    lowered = make_all(exe.schedule.graph, h200)
    assert set(exe.source) == set(lowered)
    for name, text in exe.source.items():
        kernel = lowered[name].lowered.kernel
        assert kernel.smem_bytes <= h200.memory("smem").n_bytes
        assert kernel.n_threads <= h200.most("thread", "cta")
        if compiled:
            log = compile_text(text, h200.limits["compute_capability"], name).log
            assert "0 bytes spill stores, 0 bytes spill loads" in log, text


@pytest.mark.parametrize("kind", KINDS)
def test_what_the_cost_model_offers_the_schedules_take(
    kind: Callable[[random.Random], Case], full: bool
) -> None:
    if full:
        pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    rng, n_long, dtypes = random.Random(f"{kind.__name__} of any size"), 0, Counter[str]()
    for number in range(60 if full else 3):
        case = kind(rng)
        try:
            check_taken(case, full)
        except Exception as error:
            error.add_note(f"case {number}: {case[0]} of {case[1]}{list(case[2])}")
            raise
        dtypes[case[1]] += 1
        n_long += max(case[2]) in LONG
    print(f"\noffers taken: {kind.__name__}: {n_long} with a long dim, {dict(dtypes)}")
    assert len(dtypes) > 1
    assert n_long or not full


@pytest.mark.parametrize("shape", [(64, 64, 64), (8192, 4096), (1 << 20,), (1_000_003,)])
@pytest.mark.parametrize("name", ["sum", "max"])
def test_a_reduction_of_everything_compiles(name: str, shape: tuple[int, ...]) -> None:
    exe = axe.compile(lambda x: getattr(xp, name)(x), axe.Spec(shape, "f16"), target="h200")
    assert exe.source
    assert len(exe.kernels) == 2  # parts of it go to many units
