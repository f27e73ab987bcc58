"""Programs chosen for an H200, lowered to kernels: right in the interpreter, refused with reasons.

Every kernel of a schedule graph runs at plan level on the buffers that the kernel before it wrote;
what comes out is compared with the numpy meaning of the program.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.errors import DispatchError
from axe_eq.kernel.expr import evaluate
from axe_eq.kernel.interp import interpret
from axe_eq.program.types import DTYPES
from axe_eq_backends.cuda.compile import compile_text
from axe_eq_backends.cuda.lower import lower
from axe_eq_backends.cuda.meaning import MEANINGS
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.target import h200

Fn = Callable[..., Any]


def spec(*shape: int, dtype: str = "f16") -> axe.Spec:
    return axe.Spec(shape, dtype)


def mlp(x: Any, g: Any, wg: Any, wu: Any, wd: Any) -> Any:
    h = nn.rmsnorm(x) * g
    return x + (nn.silu(h @ wg) * (h @ wu)) @ wd


def two_outputs(x: Any, y: Any) -> Any:
    return x + y, x * y


def exact(x: Any, y: Any) -> Any:
    xp = x.__array_namespace__()
    return xp.exp(x) * y + 1.5


PROGRAMS: dict[str, tuple[Fn, tuple[axe.Spec, ...]]] = {
    "mlp": (mlp, (spec(136, 128), spec(128), spec(128, 256), spec(128, 256), spec(256, 128))),
    "mlp of one token": (
        mlp, (spec(1, 128), spec(128), spec(128, 256), spec(128, 256), spec(256, 128)),
    ),
    "two products": (
        lambda a, b, c: (a @ b, a @ c), (spec(64, 64), spec(64, 128), spec(64, 128)),
    ),
    "product": (lambda a, b: a @ b, (spec(72, 64), spec(64, 136))),
    "product by rows": (lambda a, b: a @ b.T, (spec(72, 64), spec(136, 64))),
    "product of columns": (lambda a, b: a.T @ b, (spec(64, 72), spec(64, 136))),
    "bias and relu": (lambda a, b, c: nn.relu(a @ b + c), (spec(72, 64), spec(64, 136), spec(136))),
    "three gates": (
        lambda a, b, c, d: nn.silu(a @ b) * (a @ c) + nn.gelu(a @ d),
        (spec(64, 64), spec(64, 128), spec(64, 128), spec(64, 128)),
    ),
    "cells": (exact, (spec(33, 40), spec(40))),
    "two outputs": (two_outputs, (spec(24, 32), spec(24, 32))),
    "f32 cells": (exact, (spec(7, 5, dtype="f32"), spec(7, 5, dtype="f32"))),
    "transpose": (lambda x: x.T + 1.0, (spec(72, 136),)),
    "batched transpose": (lambda x: nn_permute(x, (0, 2, 1)), (spec(2, 40, 48),)),
    "softmax": (lambda x: nn.softmax(x, axis=-1), (spec(9, 100),)),
    "softmax of three dims": (lambda x: nn.softmax(x, axis=-1), (spec(2, 3, 64),)),
    "layernorm": (lambda x, g: nn.layernorm(x) * g, (spec(9, 96), spec(96))),
    "row sums": (lambda x: axe.array.sum(x * x, axis=-1), (spec(17, 64),)),
}  # fmt: skip


def nn_permute(x: Any, axes: tuple[int, ...]) -> Any:
    return x.__array_namespace__().permute_dims(x, axes)


def compiled(name: str) -> Any:
    fn, specs = PROGRAMS[name]
    return axe.compile(fn, *specs, target="h200")


def arrays_for(specs: tuple[axe.Spec, ...]) -> list[Any]:
    rng = np.random.default_rng(3)
    return [(rng.standard_normal(s.shape) / 4).astype(DTYPES[s.dtype].numpy) for s in specs]


def interpreted(graph: Any, inputs: list[Any]) -> list[Any]:
    """Every kernel of a graph at plan level, each on what those before it wrote."""
    buffers = dict(zip(graph.inputs, inputs, strict=True))
    for step in graph.steps:
        lowered = lower(step, graph, h200)
        planned = plan(lowered.kernel, h200)
        tensors = {}
        for tensor in lowered.kernel.tensors:
            spec_ = graph.buffers[lowered.buffers[tensor.name]]
            dtype = DTYPES[spec_.value_type.dtype].numpy
            whole = buffers.get(
                lowered.buffers[tensor.name], np.zeros(spec_.value_type.shape, dtype)
            )
            tensors[tensor.name] = seen(whole, tensor, lowered.params)
        run = interpret(
            lowered.kernel,
            tensors,
            lowered.params,
            planned=planned,
            meanings=MEANINGS,
            order="random",
            seed=1,
        )
        for name, found in run.outputs.items():
            buffer = lowered.buffers[name]
            kept = np.zeros(graph.buffers[buffer].value_type.shape, found.dtype)
            flat = kept.reshape(-1)
            strides = [
                int(evaluate(b[0].stride, lowered.params)) * found.itemsize if b else 0
                for b in place_of(lowered, name)
            ]
            np.lib.stride_tricks.as_strided(flat, found.shape, strides)[...] = found
            buffers[buffer] = kept
    return [buffers[n] for n in graph.outputs]


def place_of(lowered: Any, name: str) -> Any:
    return next(t for t in lowered.kernel.tensors if t.name == name).place.blocks


def seen(whole: Any, tensor: Any, params: Any) -> Any:
    """A dense array as a kernel's tensor sees it."""
    strides = [
        int(evaluate(b[0].stride, params)) * whole.itemsize if b else 0 for b in tensor.place.blocks
    ]
    flat = np.ascontiguousarray(whole).reshape(-1)
    shape = [int(evaluate(e, params)) for e in tensor.shape]
    return np.lib.stride_tricks.as_strided(flat, shape, strides)


@pytest.mark.parametrize("name", PROGRAMS)
def test_lowered_programs_mean_what_the_program_means(name: str) -> None:
    exe = compiled(name)
    inputs = arrays_for(PROGRAMS[name][1])
    wanted = exe.meaning(*inputs)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    found = interpreted(exe.schedule.graph, [*inputs, *exe.program.constants.values()])
    for got, want in zip(found, wanted, strict=True):
        scale = np.abs(np.asarray(want, np.float64)).max() + 1e-6
        assert got.shape == want.shape
        assert (
            np.abs(np.asarray(got, np.float64) - np.asarray(want, np.float64)).max() < 4e-3 * scale
        )


@pytest.mark.parametrize("name", ["mlp", "three gates", "softmax", "transpose"])
def test_the_source_compiles_alone(name: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    exe = compiled(name)
    texts = exe.source
    assert list(texts) == [k.name for k in exe.kernels]
    for kernel, text in texts.items():
        assert "#include" not in text
        assert "0 bytes spill stores" in compile_text(text, 90, kernel).log


REFUSED: dict[str, tuple[Fn, tuple[axe.Spec, ...], str]] = {
    "a batch of products": (
        lambda a, b: a @ b, (spec(3, 64, 64), spec(3, 64, 64)), "batches of matrices",
    ),
    "an unaligned row": (lambda a, b: a @ b, (spec(16, 17), spec(17, 64)), "single run"),
    "a row too long": (
        lambda x: nn.softmax(x, axis=-1), (spec(2, 200_000),), "registers|structured",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_schedule_covers_is_refused_with_the_reason(name: str) -> None:
    fn, specs, reason = REFUSED[name]
    exe = axe.compile(fn, *specs, target="h200")
    with pytest.raises(DispatchError, match=reason):
        assert exe.source
