"""Sums over any dims: every way to write them, and splits, against numpy on the interpreter."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import array as xp
from axe_eq import nn
from axe_eq.lower.read import read_cone
from axe_eq_backends.cuda.interpret import run
from axe_eq_backends.cuda.prefixes import alone
from axe_eq_backends.cuda.target import h200
from axe_eq_backends.cuda.ways import candidates_of
from axe_eq_rules import stages

Dims = tuple[int, ...]
EXTENTS = (1, 2, 3, 5, 7, 8, 16, 31, 33, 64, 129)
NUMPY: dict[str, Any] = {"f16": np.float16, "f32": np.float32, "i32": np.int32}


def _normed(x: Any, dims: Dims) -> Any:
    centred = x - xp.mean(x, axis=dims, keepdims=True)
    return centred / xp.sqrt(xp.mean(centred * centred, axis=dims, keepdims=True) + 1e-3)


def _normed_in_numpy(x: Any, dims: Dims) -> Any:
    return (x - x.mean(dims, keepdims=True)) / np.sqrt(x.var(dims, keepdims=True) + 1e-3)


def _softmax(x: Any, dims: Dims) -> Any:
    e = np.exp(x - x.max(dims[0], keepdims=True))
    return e / e.sum(dims[0], keepdims=True)


# The program, and numpy's in float64.
KINDS: dict[str, tuple[Callable[[Any, Dims], Any], Callable[[Any, Dims], Any]]] = {
    "sum": (lambda x, d: xp.sum(x, axis=d), lambda x, d: x.sum(d)),
    "max": (lambda x, d: xp.max(x, axis=d), lambda x, d: x.max(d)),
    "min": (lambda x, d: xp.min(x, axis=d), lambda x, d: x.min(d)),
    "product": (lambda x, d: xp.prod(1 + x / 16, axis=d), lambda x, d: (1 + x / 16).prod(d)),
    "argmax": (lambda x, d: xp.argmax(x, axis=d[0]), lambda x, d: x.argmax(d[0])),
    "mean and variance": (
        lambda x, d: (xp.mean(x, axis=d), xp.var(x, axis=d)),
        lambda x, d: (x.mean(d), x.var(d)),
    ),
    "norm": (_normed, _normed_in_numpy),
    "softmax": (lambda x, d: nn.softmax(x, axis=d[0]), _softmax),
}


def drawn(rng: random.Random, kind: str, most: int) -> tuple[Any, Dims]:
    """An array of at most so many elements, and dims to reduce."""
    while True:
        shape = tuple(rng.choice(EXTENTS) for _ in range(rng.randint(1, 4)))
        if np.prod(shape) <= most:
            break
    dims = tuple(sorted(rng.sample(range(len(shape)), rng.randint(1, len(shape)))))
    whole = ("i32",) if kind in ("sum", "max", "min", "argmax") else ()
    dtype = rng.choice(("f16", "f32", *whole))
    values = np.random.default_rng(rng.randint(0, 1 << 30))
    x = values.integers(-9, 9, shape) if dtype == "i32" else values.standard_normal(shape)
    return x.astype(NUMPY[dtype]), dims


def check(found: Any, wanted: Any, dtype: Any) -> None:
    """Equal within what the element type holds; infinities and NaN alike."""
    pairs = zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]
    near = 4e-3 if dtype == np.float16 else 1e-5
    for a, b in pairs:
        most = np.abs(b, where=np.isfinite(b), out=np.ones(np.shape(b))).max()
        np.testing.assert_allclose(np.asarray(a, np.float64), b, rtol=near, atol=near * most)


@pytest.mark.parametrize("kind", KINDS)
def test_every_way_to_write_a_reduction_is_right(kind: str, full: bool) -> None:
    rng, (program, wanted) = random.Random(f"ways {kind}"), KINDS[kind]
    for _ in range(8 if full else 1):
        x, dims = drawn(rng, kind, 600)
        spec = axe.Spec(x.shape, {v: k for k, v in NUMPY.items()}[x.dtype.type])
        exe = axe.compile(lambda a, dims=dims: program(a, dims), spec, target="h200")
        if len(exe.schedule.graph.kernels) != 1:
            check(exe.interpret(x), wanted(x.astype(np.float64), dims), x.dtype)
            continue
        (step,), graph = exe.schedule.graph.kernels, exe.schedule.graph
        found = {tuple(c.parameters): c for c in candidates_of(read_cone(step, alone), h200)}
        every = candidates_of(read_cone(step, alone), h200)
        for c in [*found.values(), *rng.sample(every, min(2, len(every)))]:
            made = run(
                replace(step, parameters=dict(c.parameters)), graph, h200,
                {step.reads[0].buffer: x} if step.reads else {},
            )  # fmt: skip
            results = tuple(made[name] for name in graph.outputs)
            want = wanted(x.astype(np.float64), dims)
            wants = want if isinstance(want, tuple) else (want,)
            assert len(results) == len(wants)
            for result, one in zip(results, wants, strict=True):
                check(result.reshape(np.shape(one)), one, x.dtype)


@pytest.mark.parametrize("kind", ["sum", "max", "min"])
@pytest.mark.parametrize("first", [np.inf, -np.inf, np.nan])
def test_what_is_no_number_stays_in_its_column(kind: str, first: float) -> None:
    """Nothing past the end of a chunk mixes with it, and no other column sees it."""
    program, wanted = KINDS[kind]
    x = np.random.default_rng(3).standard_normal((67, 9)).astype(np.float32)
    x[66, 2], x[0, 5], x[5, 5] = first, first, -first
    exe = axe.compile(lambda a: program(a, (0,)), axe.Spec(x.shape, "f32"), target="h200")
    with np.errstate(invalid="ignore"):
        check(exe.interpret(x), wanted(x.astype(np.float64), (0,)), x.dtype)


@pytest.fixture
def split(monkeypatch: pytest.MonkeyPatch) -> axe.Target:
    """A machine on which a CTA streams slowly and launches cost nothing: reductions are split."""
    for name, size in (("LEAST", 64), ("SHORT", 4), ("PIECES", (8, 32)), ("ALIGNED", 4)):
        monkeypatch.setattr(stages, name, size)
    gmem = replace(h200.memories[0], bytes_per_s=1e7, latency_s=0.0)
    seconds = (n for n in h200.figures if n.endswith("_s") and not n.endswith("_per_s"))
    free = dict.fromkeys(seconds, 0.0)
    figures = {**h200.figures, **free}
    memories = (gmem, *h200.memories[1:])
    return h200.replace(name="slow", memories=memories, launch_s=0.0, figures=figures)


@pytest.mark.sampled(5, slow=("mean and variance-shape6-dims6", "product-shape5-dims5"))
@pytest.mark.parametrize(
    ("kind", "shape", "dims"),
    [
        ("sum", (129, 8), (0,)),
        ("sum", (2, 4096), (1,)),
        ("sum", (17, 127), (0, 1)),
        ("sum", (3, 128, 5), (1,)),
        ("max", (257, 3), (0,)),
        ("product", (4, 8, 9, 2), (0, 1, 2)),
        ("mean and variance", (2, 128, 8), (0, 1)),
    ],
)
def test_split_reductions_are_right(
    kind: str, shape: tuple[int, ...], dims: Dims, split: axe.Target
) -> None:
    program, wanted = KINDS[kind]
    x = np.random.default_rng(5).standard_normal(shape).astype(np.float32)
    spec = axe.Spec(shape, "f32")
    exe = axe.compile(lambda a: program(a, dims), spec, target=split)
    assert len(exe.kernels) > 1
    check(exe.interpret(x), wanted(x.astype(np.float64), dims), x.dtype)


@pytest.mark.parametrize(("shape", "dims"), [((48, 1024, 511), (0, 1)), ((512, 50257), (0,))])
def test_columns_of_rows_that_begin_anywhere_are_added_up_by_vectors(
    shape: tuple[int, ...], dims: Dims
) -> None:
    """Eight rows are one that begins aligned: those of a kind are added first."""
    exe = axe.compile(lambda a: xp.sum(a, axis=dims), axe.Spec(shape, "f16"), target="h200")
    first, *others = exe.kernels
    assert (first.parameters["vector"], len(others)) == (8, 1)
    assert "shifted" not in first.parameters


def test_what_lies_along_slower_dims_is_read_anew_in_every_row_of_a_chunk() -> None:
    """It was read once where a chunk that stays in registers was all rows."""
    exe = axe.compile(lambda x: xp.max(x[:, None] + x[None, :]), "4:i32", target="h200")
    (step,), graph = exe.schedule.graph.kernels, exe.schedule.graph
    x = np.array([-5, -7, 6, -6], np.int32)
    for c in candidates_of(read_cone(step, alone), h200):
        given = {step.reads[0].buffer: x}
        made = run(replace(step, parameters=dict(c.parameters)), graph, h200, given)
        assert made[graph.outputs[0]] == 12, c.parameters
