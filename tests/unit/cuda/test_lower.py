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
from axe_eq.extract.search.commit import as_priced
from axe_eq.extract.search.merge import stored
from axe_eq.program.types import DTYPES
from axe_eq_backends.cuda.compile import compile_text
from axe_eq_backends.cuda.lower import lower
from axe_eq_backends.cuda.target import h200
from tests.unit.cuda.whole import interpreted, sample

Fn = Callable[..., Any]
xp = axe.array


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


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = nn.einsum("hte,hse->hts", q, k) * 0.125
    return nn.einsum("hts,hse->hte", nn.softmax(scores, axis=-1), v)


def two_widths(x: Any, y: Any) -> Any:
    """Results of rows that are nearly as long: no kernel is of both index spaces."""
    h = nn.rmsnorm(x)
    return h[:, 1:] + y[:, :-1], xp.flip(h, axis=-1) + y


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
    "two outputs of rows of two lengths": (
        two_widths, (spec(7, 59, dtype="f32"), spec(7, 59, dtype="f32")),
    ),
    # Computed anew for every element it is needed for, this is more than 2^63 indices.
    "softmax of gates": (
        lambda a, b, c: nn.softmax(nn.silu(a / 8 @ b) * (a / 8 @ c), axis=-1),
        (spec(7, 314), spec(314, 220), axe.Spec((314, 220), "f16", layout="S[(314,220):(222,1)]")),
    ),
    "f32 cells": (exact, (spec(7, 5, dtype="f32"), spec(7, 5, dtype="f32"))),
    "transpose": (lambda x: x.T + 1.0, (spec(72, 136),)),
    "batched transpose": (lambda x: nn_permute(x, (0, 2, 1)), (spec(2, 40, 48),)),
    "softmax": (lambda x: nn.softmax(x, axis=-1), (spec(9, 100),)),
    "softmax of a long row": (lambda x: nn.softmax(x, axis=-1), (spec(1, 36_000, dtype="f32"),)),
    "softmax of three dims": (lambda x: nn.softmax(x, axis=-1), (spec(2, 3, 64),)),
    "layernorm": (lambda x, g: nn.layernorm(x) * g, (spec(9, 96), spec(96))),
    "concat": (lambda a, b: xp.concat([a, b], axis=1), (spec(24, 40), spec(24, 72))),
    "concat of rows": (lambda a, b: xp.concat([a, b, a], axis=0) * 2, (spec(9, 40), spec(7, 40))),
    "slice": (lambda a: a[8:72, 3:50] + 1, (spec(100, 64),)),
    "every third": (lambda a: a[1:40:3, ::2], (spec(50, 64),)),
    "backwards": (lambda a: xp.flip(a, axis=1), (spec(10, 33),)),
    "rolled": (lambda a: xp.roll(a, 5, axis=1) + a, (spec(10, 64),)),
    "attention": (attention, (spec(2, 130, 64), spec(2, 100, 64), spec(2, 100, 64))),
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


@pytest.mark.sampled(4, slow=("mlp of one token",))
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


@pytest.mark.sampled(1)
@pytest.mark.parametrize("name", ["mlp", "three gates", "softmax", "transpose"])
def test_the_source_compiles_alone(name: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    exe = compiled(name)
    texts = exe.source
    assert list(texts) == [k.name for k in exe.kernels]
    for kernel, text in texts.items():
        assert "#include" not in text
        assert "0 bytes spill stores" in compile_text(text, 90, kernel).log


@pytest.mark.parametrize("dtype", ["f16", "f32"])
def test_a_factor_may_be_read_beside_its_product_too(dtype: str) -> None:
    """Where the summed dim has extent 1 both are one load, and two tensors of the kernel."""

    def beside(a: Any, b: Any) -> Any:
        return a @ b - b

    specs = f"3x1:{dtype}", f"1x37:{dtype}"
    exe = axe.compile(beside, *specs, target="h200")
    rng = np.random.default_rng(0)
    a, b = (sample(rng, i.node.type) for i in axe.trace(beside, *specs).inputs)
    assert np.allclose(exe.interpret(a, b), axe.run(beside, a, b), rtol=1e-2, atol=1e-2)


@pytest.mark.usefixtures("searched")
def test_every_candidate_names_the_buffers_of_its_own_tensors_alone() -> None:
    """Small reductions are cells to some kernels, with a tensor for each place; not to sweeps.

    Others had tensors without a parameter, and launches that move look for those.
    """
    exe = axe.compile(lambda x: xp.sum(x, axis=0), axe.Spec((13, 64, 320), "f32"), target="h200")
    found, graph = exe._searched, exe.schedule.graph
    (step,), (group,) = graph.kernels, found.groups
    places = stored(found.forest, group)
    prices = [*found.prices.nearest(group.roots, group.picks, places, 12)]
    assert {"map_warps", "sweep_warps"} <= {name for p in prices for name, _ in p.parameters}
    offered = found.prices.offered(group.roots, group.picks, places)
    assert [p.way for p in prices] == [p.way for p in offered[:12]]
    assert len({p.way for p in offered}) == len(offered) > 12
    for price in prices:
        made = lower(as_priced(step, price), graph, h200)
        assert made.buffers.keys() == {t.name for t in made.kernel.tensors}
