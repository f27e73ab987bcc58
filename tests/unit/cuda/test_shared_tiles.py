"""Products of clusters of CTAs: operand tiles that they share, and what mistakes in that cause.

Oracles are numpy's products; every mistake is a fault, or a wrong value, in every order of effects.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.errors import AxeError
from axe_eq.kernel.cells import apply, arg
from axe_eq.kernel.expr import equal, var
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.dispatch import Planned
from axe_eq.kernel.threads.interp import ORDERS, KernelFault, Report, interpret
from axe_eq.target import Target
from axe_eq_backends.cuda.compile import compile_text
from axe_eq_backends.cuda.emit import emit
from axe_eq_backends.cuda.lower import lower
from axe_eq_backends.cuda.meaning import MEANINGS
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.schedules.gemm import Extra, Matrix, Problem, Tiling, gemm, parameters
from axe_eq_backends.cuda.target import h200
from tests.unit.cuda.clustered import RACES, changed, levels, spread
from tests.unit.cuda.whole import interpreted

SMALL = {
    "rows": Tiling(64, 128, 64, 2, consumers=1, cluster_rows=2),
    "columns": Tiling(128, 64, 64, 2, cluster_cols=2),
    "four columns": Tiling(256, 64, 32, 2, band=2, cluster_cols=4),
    "rows and columns": Tiling(64, 64, 32, 2, consumers=1, cluster_rows=2, cluster_cols=4),
}
M, N, K = parameters()


def problem(major: int = 1) -> Problem:
    """A product whose operands are both contiguous along k, or neither."""
    return Problem(M, N, K, ((Matrix("A", major=major), Matrix("B", major=major)),))


def multiplied(
    kernel: ir.Kernel,
    sizes: tuple[int, int, int],
    planned: Planned | None,
    order: str = "random",
    seed: int = 0,
) -> Report:
    """Run a product and compare it with numpy's."""
    m, n, k = sizes
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal((e, k)).astype(np.float16) for e in (m, n))
    arrays = {"A": a, "B": b, "C": np.zeros((m, n), np.float16)}
    params = {p.name: size for p, size in zip(kernel.params, sizes, strict=False)}
    run = interpret(
        kernel, arrays, params, planned=planned, meanings=MEANINGS,
        order=order, seed=seed, n_ctas=2 * kernel.cluster,
    )  # fmt: skip
    expected = a.astype(np.float32) @ b.astype(np.float32).T
    assert np.abs(run.outputs["C"] - expected).max() <= 1e-3 * np.abs(expected).max()
    return run


@pytest.mark.sampled(3)
@pytest.mark.parametrize("major", [1, 0], ids=["K-major", "MN-major"])
@pytest.mark.parametrize("name", SMALL)
def test_products_share_operand_tiles_and_are_right_with_tails(
    name: str, major: int, full: bool
) -> None:
    kernel = gemm(problem(major), SMALL[name])
    shared = [s for s, _ in ir.walk(kernel) if isinstance(s, ir.CopyAsync) and s.ranks]
    sides = {"rows": "B", "rows and columns": "AB"}.get(name, "A")
    assert [s.dst.buffer.name for s in shared] == [f"{side}_ring" for side in sides]
    rng = random.Random(name)
    for number, planned in enumerate([*levels(kernel)] * (2 if full else 1)):
        extents = (rng.randrange(8, 312, 8), rng.randrange(8, 312, 8), rng.randrange(8, 200, 8))
        multiplied(kernel, extents, planned, rng.choice(ORDERS), number)


def test_a_cluster_s_last_cta_may_have_no_tile_of_its_own() -> None:
    """Its loads are zeros, its stores nothing; it still loads its part for the others."""
    kernel = gemm(problem(), SMALL["rows"])
    for planned in levels(kernel):
        multiplied(kernel, (8, 8, 72), planned)
        multiplied(kernel, (3 * 64, 128, 72), planned)


def test_parts_of_shared_tiles_may_be_eights_of_rows() -> None:
    kernel = gemm(problem(), Tiling(64, 144, 64, 2, consumers=1, cluster_rows=2))
    for planned in levels(kernel):
        multiplied(kernel, (136, 152, 136), planned)


def test_gated_products_share_what_is_common() -> None:
    """Clusters along columns share the rows that both products read."""
    common, pair = Matrix("A"), (Matrix("B"), Matrix("G"))
    extras = (Extra("bias", "n"),)
    cell = apply("add", apply("mul", arg(0), arg(1)), arg(2))
    p = Problem(M, N, K, tuple((common, b) for b in pair), cell, extras)
    kernel = gemm(p, SMALL["columns"])
    rng = np.random.default_rng(0)
    a, b, g = (rng.standard_normal((e, 136)).astype(np.float16) / 8 for e in (200, 152, 152))
    bias = rng.standard_normal(152).astype(np.float16)
    x, y = (a.astype(np.float32) @ w.astype(np.float32).T for w in (b, g))
    expected = x * y + bias
    arrays: dict[str, Any] = {
        "A": a,
        "B": b,
        "G": g,
        "bias": bias,
        "C": np.zeros((200, 152), np.float16),
    }
    for planned in levels(kernel):
        run = interpret(
            kernel, arrays, {"M": 200, "N": 152, "K": 136}, planned=planned, meanings=MEANINGS,
            n_ctas=4,
        )  # fmt: skip
        assert np.abs(run.outputs["C"] - expected).max() <= 2e-3 * np.abs(expected).max()


def _release_own(kernel: ir.Kernel) -> None:
    """Slots are released for the own CTA only, and counted so."""

    def change(s: ir.Statement) -> None:
        if isinstance(s, ir.Arrive):
            s.ranks = ()

    changed(kernel, change)
    kernel.barriers[1].arrivals //= kernel.cluster


def _count_own(kernel: ir.Kernel) -> None:
    kernel.barriers[1].arrivals //= kernel.cluster


def _end_apart(kernel: ir.Kernel) -> None:
    del kernel.body[-2:]


def _send_to_own(kernel: ir.Kernel) -> None:
    def change(s: ir.Statement) -> None:
        if isinstance(s, ir.CopyAsync):
            s.ranks = ()

    changed(kernel, change)


def _release_early_in_one(kernel: ir.Kernel) -> None:
    """CTA 1 releases the slot of the step whose products may still run."""

    def early(body: ir.Body) -> None:
        for i, s in enumerate(body):
            if isinstance(s, ir.WaitGroup) and s.kind == "wgmma" and s.pending == 1:
                rank = var(ir.RANK, high=1)
                one = ir.If(equal(rank, 1), [ir.WaitGroup("wgmma", 2)])
                body[i : i + 1] = [one, ir.If(equal(rank, 0), [s])]
                return
            for inner in ir.children(s):
                early(inner)

    early(kernel.body)


BROKEN_PRODUCTS: dict[str, tuple[Callable[[ir.Kernel], None], str]] = {
    "slots released by their own CTA": (_release_own, RACES),
    "slots counted for one CTA": (_count_own, "phase|" + RACES),
    "no barrier at the end": (_end_apart, "may end before"),
    "parts for the own CTA alone": (_send_to_own, "deadlock|never written"),
    "an early release in one CTA": (_release_early_in_one, "the read by wgmma"),
}


@pytest.mark.parametrize("name", BROKEN_PRODUCTS)
def test_broken_products_are_faults(name: str) -> None:
    change, message = BROKEN_PRODUCTS[name]
    kernel = gemm(problem(), SMALL["rows"])
    change(kernel)
    for planned in levels(kernel):
        for order in ORDERS:
            with pytest.raises(KernelFault, match=message):
                multiplied(kernel, (256, 136, 264), planned, order)


def _linear(x: Any, w: Any) -> Any:
    return axe.nn.einsum("mk,nk->mn", x, w)


def _batched(x: Any, w: Any) -> Any:
    return axe.nn.einsum("bmk,bnk->bmn", x, w)


CHOSEN: dict[str, tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...], int, str]] = {
    "the larger operand is shared": (_linear, (512, 64), (512, 64), 256, "m"),
    "two tiles of columns, one of rows": (_linear, (100, 64), (512, 64), 256, "n"),
    "five tiles of rows, two of columns": (_linear, (640, 128), (512, 128), 256, "n"),
    "batches": (_batched, (3, 256, 64), (3, 256, 64), 256, "m"),
    # As 2 parts of 96 rows each, columns of 192 are no whole periods of a swizzle.
    "columns that cannot be cut": (lambda x, w: x @ w, (512, 64), (64, 384), 192, "n"),
}


def _sharing(columns: int, *cluster: int) -> Target:
    """A machine of tiles of 128 rows and so many columns, in clusters."""
    sizes: dict[str, tuple[int, ...]] = {
        "product_rows": (128,),
        "product_cols": (columns,),
        "product_stages": (3,),
    }
    sizes |= {"product_waves": (), "product_cluster": cluster}
    return h200.replace(choices={**h200.choices, **sizes})


@pytest.mark.sampled(3)
@pytest.mark.parametrize("name", CHOSEN)
def test_a_chosen_cluster_lies_where_few_tiles_are_missing(name: str) -> None:
    fn, rows, cols, width, along = CHOSEN[name]
    specs = axe.Spec(rows, "f16"), axe.Spec(cols, "f16")
    exe = axe.compile(fn, *specs, target=_sharing(width, 2))
    graph, (step,) = exe.schedule.graph, exe.schedule.graph.kernels
    sides = step.parameters["cluster_rows"], step.parameters["cluster_cols"]
    assert sides == ((2, 1) if along == "m" else (1, 2))
    kernel = lower(step, graph, exe.target).kernel
    (shared,) = (s for s, _ in ir.walk(kernel) if isinstance(s, ir.CopyAsync) and s.ranks)
    assert shared.dst.shape[0] == (width // 2 if along == "m" else 64)
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float16) for s in (rows, cols))
    (found,) = interpreted(graph, [x, w])
    np.testing.assert_allclose(found, axe.run(fn, x, w), atol=0.1)


def test_tiles_that_are_too_few_for_a_cluster_rule_it_out() -> None:
    specs = axe.Spec((100, 64), "f16"), axe.Spec((200, 64), "f16")
    (kernel,) = axe.compile(_linear, *specs, target=_sharing(256, 1, 2)).kernels
    assert (kernel.parameters["cluster_rows"], kernel.parameters["cluster_cols"]) == (1, 1)
    assert "tensor_cores: clusters of fewer tiles, or of parts of operand tiles" in kernel.rejected


@pytest.mark.parametrize("cluster", [1, 2])
def test_the_machine_says_how_many_ctas_share(cluster: int) -> None:
    target = h200.replace(choices={**h200.choices, "product_cluster": (cluster,)})
    specs = axe.Spec((1024, 512), "f16"), axe.Spec((1024, 512), "f16")
    exe = axe.compile(_linear, *specs, target=target)
    (text,) = exe.source.values()
    assert ("__cluster_dims__(2, 1, 1)" in text) == (cluster == 2)
    (kernel,) = exe.kernels
    assert kernel.parameters["cluster_rows"] * kernel.parameters["cluster_cols"] == cluster


def test_tilings_that_clusters_cannot_share_are_refused() -> None:
    message = "32 shared elements of A for 8 CTAs; expected a mu"
    with pytest.raises(AxeError, match=message):
        gemm(problem(0), Tiling(128, 72, 32, cluster_cols=8))


# Sides that are no whole parts for each CTA, or of whose last tile some would have nothing.
TURNS = {
    "rows": ((160, 136, 200), Tiling(64, 24, 64, 3, consumers=1, cluster_rows=2)),
    "more than slots": ((264, 40, 328), Tiling(64, 40, 64, 3, consumers=1, cluster_rows=4)),
    "both": ((200, 248, 264), Tiling(64, 120, 32, 3, consumers=1, cluster_rows=2, cluster_cols=4)),
    "past the end": ((72, 136, 136), Tiling(64, 64, 32, 3, consumers=1, cluster_cols=2)),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", TURNS)
def test_clusters_copy_in_turns_what_has_no_parts(name: str, full: bool) -> None:
    """A CTA tells those alone whose slot it is, and the interpreter that nobody is early."""
    (m, n, depth), tiling = TURNS[name]
    kernel = gemm(Problem(m, n, depth), tiling)
    assert any(b.name.startswith("free") for b in kernel.barriers)
    for number, planned in enumerate([*levels(kernel)] * (25 if full else 1)):
        multiplied(kernel, (m, n, depth), planned, ORDERS[number % len(ORDERS)], number)


def _fill_unasked(s: ir.Statement) -> None:
    """Whose turn it is fills a slot before the others have read it."""
    if isinstance(s, ir.If) and any(
        isinstance(w, ir.Wait) and w.barrier.name == "free_n" for w in s.body
    ):
        s.body.clear()


def _tell_the_first(s: ir.Statement) -> None:
    """CTA 0 is told, whoever fills the slot."""
    if isinstance(s, ir.Arrive) and s.barrier.name == "free_n":
        s.ranks = (0,)


def _copy_always(s: ir.Statement) -> None:
    """Both copy into every slot."""
    if isinstance(s, ir.If) and any(isinstance(c, ir.CopyAsync) for c in s.body):
        s.condition = 1


@pytest.mark.parametrize("change", [_fill_unasked, _tell_the_first, _copy_always])
def test_turns_that_are_not_kept_are_found(change: Callable[[ir.Statement], None]) -> None:
    (m, n, depth), tiling = TURNS["rows"]
    kernel = changed(gemm(Problem(m, n, depth), tiling), change)
    for order in ORDERS:
        with pytest.raises(KernelFault):
            multiplied(kernel, (m, n, depth), None, order)


@pytest.mark.parametrize("tiling", [Tiling(cluster_rows=2), Tiling(cluster_cols=2)], ids="mn")
def test_clustered_texts_compile(tiling: Tiling) -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    for kernel in (spread(), gemm(problem(), tiling)):
        source = emit(plan(kernel, h200))
        log = compile_text(source.text, 90, source.name).log
        assert "__cluster_dims__(2, 1, 1)" in source.text
        assert " 0 bytes spill stores" in log
