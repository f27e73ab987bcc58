"""What the assembler says about chosen kernels at real sizes: registers, no spills, no stack."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.extract.price.pricer import Price
from axe_eq_backends.cuda.compile import compile_text
from axe_eq_backends.cuda.make import make_all
from axe_eq_backends.cuda.target import h200
from benchmarks import cuda_programs
from benchmarks.offered import Offered, offers

xp = axe.array
TOKENS, HIDDEN, INNER, HEADS, HEAD = 8192, 4096, 12288, 32, 128


def attention(q: Any, k: Any, v: Any) -> Any:
    scores = q @ xp.permute_dims(k, (0, 2, 1)) * HEAD**-0.5
    return nn.softmax(scores, axis=-1) @ v


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "bias and relu": (
        lambda x, w, b: nn.relu(x @ w + b), ((TOKENS, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN,)),
    ),
    # Tiles of 256 x 192, whose accumulators leave few registers: columns are read panel by panel.
    "bias of large tiles": (lambda x, w, b: x @ w + b, ((TOKENS, 512), (512, 28672), (28672,))),
    # The same extents, where a residual takes too many for such tiles.
    "residual": (lambda x, w, r: x @ w + r, ((TOKENS, 512), (512, 28672), (TOKENS, 28672))),
    "softmax": (lambda x: nn.softmax(x, axis=-1), ((TOKENS, HIDDEN),)),
    "bias and gelu": (lambda x, b: nn.gelu(x + b), ((TOKENS, INNER), (INNER,))),
    "transpose": (lambda x: x.T + 0, ((TOKENS, HIDDEN),)),
    "gates": (
        lambda x, w, v: nn.silu(x @ w) * (x @ v),
        ((TOKENS, HIDDEN), (HIDDEN, INNER), (HIDDEN, INNER)),
    ),
    "rmsnorm": (lambda x, g: nn.rmsnorm(x) * g, ((TOKENS, HIDDEN), (HIDDEN,))),
    "few rows": (lambda x, w: x @ w, ((16, HIDDEN), (HIDDEN, INNER))),
    "a triangle": (
        lambda x, w: xp.where(
            xp.expand_dims(xp.arange(TOKENS), axis=1) >= xp.arange(HIDDEN), x @ w, 0.0
        ),
        ((TOKENS, HIDDEN), (HIDDEN, HIDDEN)),
    ),
    "attention": (attention, ((HEADS, 4096, HEAD),) * 3),
}  # fmt: skip
NEAR = 1.5  # of what is chosen
SAMPLE = ("bias of large tiles", "residual", "softmax")


def chosen(name: str) -> Any:
    fn, shapes = PROGRAMS[name]
    return axe.compile(fn, *(axe.Spec(s, "f16") for s in shapes), target="h200")


@pytest.mark.parametrize("name", PROGRAMS)
def test_chosen_kernels_keep_everything_in_registers(name: str, full: bool) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    if not full and name not in SAMPLE:
        pytest.skip("runs under --full")
    check_registers(chosen(name))


@pytest.mark.parametrize("name", cuda_programs.programs())
def test_kernels_of_the_benchmarks_keep_everything_in_registers(name: str, full: bool) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    if not full and name != "rmsnorm_1024x12288":
        pytest.skip("runs under --full")
    check_registers(cuda_programs.executable(name))


def test_f64_cells_keep_everything_in_registers() -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    spec = axe.Spec((333, 8, 4096), "f64")
    check_registers(axe.compile(lambda x: nn.softmax(x, axis=-1), spec, target="h200"))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
@pytest.mark.parametrize("fn", [lambda a, b: a @ b, lambda a, b: xp.exp(a) @ xp.exp(b)])
def test_products_through_registers_keep_everything_in_registers(fn: Any, dtype: str) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    exe = axe.compile(fn, *[axe.Spec((2048, 2048), dtype)] * 2, target="h200")
    (kernel,) = (k for k in exe.kernels if k.schedule == "register_products")
    assert (
        kernel.parameters["m"] * kernel.parameters["n"]
        == {"f32": 128 * 128, "f64": 128 * 64}[dtype]
    )
    check_registers(exe)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("fn", "specs"),
    [
        (lambda a, b: a @ b, ("1459x64:f32", "64x1000:f32")),
        (lambda a, b: a @ b, ("1459x64:i32", "64x1000:i32")),
        (lambda a, b: xp.exp(a) @ b, ("2496x33:f32", "33x87:f32")),
        (lambda a, b: a @ b, ("1459x64:f64", "64x645:f64")),
        (lambda a, b: a @ b, ("1459x80:f64", "80x645:f64")),
        (lambda a, b, r: a @ b + r, ("2048x104:f32", "104x1864:f32", "2048x1864:f32")),
    ],
    ids=[
        "one step", "one step of integers", "one step of computed factors",
        "the one copy in the loop", "copies of rows that hang over", "a full tile and a residual",
    ],
)  # fmt: skip
def test_short_products_keep_everything_in_registers(fn: Any, specs: tuple[str, ...]) -> None:
    """What ptxas reads ahead of straight code, and keeps around loops, took the others' place."""
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    exe = axe.compile(fn, *specs, target="h200")
    assert {k.schedule for k in exe.kernels} == {"register_products"}
    check_registers(exe)


SQUARE = ("4224x1024:f16", "1024x4224:f16")


def where_below(x: Any, w: Any) -> Any:
    at = xp.arange(4224)
    return xp.where(xp.expand_dims(at, axis=1) >= at, x @ w, 0.0)


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("fn", "specs"),
    [
        (lambda x, w, b, r: (x @ w + b) + r, (*SQUARE, "4224:f32", "4224x4224:f16")),
        (lambda x, w, b: nn.gelu(x @ w + b), (*SQUARE, "4224:f16")),
        (where_below, SQUARE),
        (lambda x, w: x @ w, ("1459x640:f16", "640x3795:f16")),
    ],
    ids=[
        "columns and a narrower residual", "columns and a function", "positions",
        "results that no bulk copy stores",
    ],
)  # fmt: skip
def test_offered_tiles_of_most_accumulators_keep_everything_in_registers(
    fn: Any, specs: tuple[str, ...]
) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    *_, last = offers(fn, specs)
    limit = NEAR * last.step.time_s
    near = [p for p in last.prices if p.schedule == "tensor_cores" and p.time_s < limit]
    _check_candidate(last, max(near, key=_sums))


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    ("rows", "narrow"), [(4224, True), (200, False), (200, True)],
)  # fmt: skip
def test_offered_tiles_whose_results_are_turned_keep_everything_in_registers(
    rows: int, narrow: bool
) -> None:
    """A residual is read element by element there. Of many rows none is offered any more."""
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    beside = "4224:f32", f"{rows}x4224:{'f16' if narrow else 'f32'}"
    specs = f"{rows}x1024:f16", "1024x4224:f16", *beside
    *_, last = offers(lambda x, w, b, r: (x @ w + b) + r, specs)
    turned = [p for p in last.prices if dict(p.parameters).get("turned")]
    assert turned or rows > 200
    if turned:
        _check_candidate(last, max(turned, key=_sums))


def _check_candidate(offered: Offered, price: Price) -> None:
    _, graph = offered.made(price)
    for kernel, one in make_all(graph, h200).items():
        check_text(one.source.text, kernel, one.lowered.kernel.n_threads)


def _sums(price: Price) -> tuple[float, ...]:
    """Accumulators of a thread; of those with as many the kernel whose CTAs share nothing."""
    p = dict(price.parameters)
    shared = p["cluster_rows"] * p["cluster_cols"] * p["split"]
    return p["m"] * p["n"] / p["consumers"], -shared, -p["turned"], p["consumers"], -p["staging"]


def check_registers(exe: Any) -> None:
    lowered = make_all(exe.schedule.graph, h200)
    for kernel, text in exe.source.items():
        check_text(text, kernel, lowered[kernel].lowered.kernel.n_threads)


def check_text(text: str, kernel: str, threads: int) -> None:
    log = compile_text(text, h200.limits["compute_capability"], kernel).log
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in log
    (used,) = re.findall(r"Used (\d+) registers", log)
    share = h200.limits["registers_per_unit"] // threads
    assert 0 < int(used) <= min(share, h200.limits["registers_per_thread"])
