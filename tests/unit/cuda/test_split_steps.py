"""CTAs of a cluster that take parts of a product's steps and merge their sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.errors import AxeError
from axe_eq.kernel.cells import apply, arg
from axe_eq.kernel.interp import KernelFault
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.interp import interpret
from axe_eq.program.types import DTYPES
from axe_eq_backends.cuda.compile import compile_text
from axe_eq_backends.cuda.emit import emit
from axe_eq_backends.cuda.meaning import MEANINGS
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.schedules.gemm import Extra, Matrix, Problem, Tiling, gemm, parameters
from axe_eq_backends.cuda.target import h200

ORDERS = ("early", "late", "random")
A, B = Matrix("A"), Matrix("B")
# Extents, orders of operands, tiling: tails of rows, columns and steps, two warpgroups, results
# that bulk copies do not store, and steps that are not even.
PRODUCTS: dict[str, tuple[tuple[int, int, int], int, Tiling]] = {
    "one tile": ((64, 64, 512), 1, Tiling(64, 64, 64, 3, 1, split=4)),
    "tails": ((60, 72, 328), 1, Tiling(64, 64, 32, 3, 1, split=2)),
    "two groups": ((200, 136, 328), 1, Tiling(128, 64, 64, 2, 2, split=2)),
    "uneven steps": ((70, 136, 592), 0, Tiling(64, 128, 64, 2, 1, split=8)),
    "odd rows": ((33, 71, 264), 1, Tiling(64, 64, 32, 2, 1, split=4, staging=1)),
}


def problem(m: int, n: int, k: int, major: int = 1) -> Problem:
    """A product whose rows of odd extents are padded, as they lie."""
    pad = -(-k // 8) * 8, -(-m // 8) * 8, -(-n // 8) * 8
    a, b = (
        Matrix(name, major=major, stride=pad[0] if major else pad[side])
        for side, name in enumerate("AB", 1)
    )
    return Problem(m, n, k, ((a, b),))


def run(kernel: ir.Kernel, m: int, n: int, k: int, planned: Any, order: str, seed: int = 0) -> Any:
    """The interpreted product of whole numbers, and numpy's."""
    rng = np.random.default_rng(m)
    a, b = (rng.integers(-2, 3, (e, k)).astype(np.float16) for e in (m, n))
    found = interpret(
        kernel, {"A": a, "B": b, "C": np.zeros((m, n), np.float16)}, {}, planned=planned,
        meanings=MEANINGS, order=order, seed=seed, compare=planned is not None,
    )  # fmt: skip
    return found.outputs["C"], a.astype(np.float32) @ b.astype(np.float32).T


@pytest.mark.sampled(2, slow=("uneven steps", "two groups"))
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_are_right(name: str) -> None:
    extents, major, tiling = PRODUCTS[name]
    kernel = gemm(problem(*extents, major), tiling)
    for number, planned in enumerate((None, plan(kernel, h200))):
        found, wanted = run(kernel, *extents, planned, ORDERS[number + 1])
        assert (found == wanted).all()


def test_sums_are_added_in_the_order_of_the_ctas() -> None:
    """2048 + 1 is 2048 in f16, but sums are f32; 1e8 + 1 - 1e8 tells orders apart."""
    kernel = gemm(Problem(64, 64, 64, ((Matrix("A", "bf16"), Matrix("B", "bf16")),),
                          out=Matrix("C", "f32")), Tiling(64, 64, 16, 2, 1, split=4))  # fmt: skip
    a, b = np.zeros((64, 64), np.float32), np.ones((64, 64), np.float32)
    a[:, ::16] = [1.0, 2.0**27, -(2.0**27), 1.0]
    arrays = {n: x.astype(DTYPES["bf16"].numpy) for n, x in (("A", a), ("B", b))}
    for seed in range(3):
        found = interpret(
            kernel, {**arrays, "C": np.zeros((64, 64), np.float32)}, {},
            planned=plan(kernel, h200), meanings=MEANINGS, seed=seed,
        ).outputs["C"]  # fmt: skip
        assert (found == 1.0).all()  # ((1 + 2^27) - 2^27) + 1, of which the first 1 is lost


def test_an_epilogue_follows_the_whole_sums() -> None:
    cell = apply("add", apply("mul", arg(0), arg(1)), arg(2))
    pairs = ((A, B), (A, Matrix("G")))
    p = Problem(64, 128, 256, pairs, cell, (Extra("bias", "n"),))
    kernel = gemm(p, Tiling(64, 64, 64, 2, 1, split=2))
    rng = np.random.default_rng(0)
    a, b, g = (rng.integers(-1, 2, (e, 256)).astype(np.float16) for e in (64, 128, 128))
    bias = rng.integers(-4, 5, 128).astype(np.float16)
    x, y = (a.astype(np.float32) @ w.astype(np.float32).T for w in (b, g))
    arrays = {"A": a, "B": b, "G": g, "bias": bias, "C": np.zeros((64, 128), np.float16)}
    for planned in (None, plan(kernel, h200)):
        found = interpret(kernel, arrays, {}, planned=planned, meanings=MEANINGS)
        assert (found.outputs["C"] == (x * y + bias).astype(np.float16)).all()


def _without(kind: type[ir.Statement], of_roles: bool) -> Callable[[ir.Kernel], None]:
    def change(kernel: ir.Kernel) -> None:
        (roles,) = (s for s in kernel.body if isinstance(s, ir.Roles))
        for body in [r.body for r in roles.branches] if of_roles else [kernel.body]:
            body[:] = [s for s in body if not isinstance(s, kind)]

    return change


def _meet_nowhere(kernel: ir.Kernel) -> None:
    for kind in (ir.ClusterArrive, ir.ClusterWait):
        _without(kind, True)(kernel)


def _end_apart(kernel: ir.Kernel) -> None:
    for kind in (ir.ClusterArrive, ir.ClusterWait):
        _without(kind, False)(kernel)


def _fetch_twice_of_one(kernel: ir.Kernel) -> None:
    for s, _ in ir.walk(kernel):
        if isinstance(s, ir.Fetch) and s.rank == 1:
            s.rank = 0


BROKEN: dict[str, tuple[Callable[[ir.Kernel], None], str]] = {
    "sums fetched before all are there": (_meet_nowhere, "never written|before the write"),
    "an end before the others have fetched": (_end_apart, "may end before|ends while|ends before"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_products_are_faults(name: str) -> None:
    (m, n, k), major, tiling = PRODUCTS["tails"]
    change, message = BROKEN[name]
    for number, order in enumerate(ORDERS):
        kernel = gemm(problem(m, n, k, major), tiling)
        planned = plan(kernel, h200) if number else None
        change(kernel)
        with pytest.raises(KernelFault, match=message):
            run(kernel, m, n, k, planned, order)


def test_sums_of_the_wrong_cta_are_seen() -> None:
    (m, n, k), major, tiling = PRODUCTS["tails"]
    kernel = gemm(problem(m, n, k, major), tiling)
    _fetch_twice_of_one(kernel)
    found, wanted = run(kernel, m, n, k, None, "random")
    assert (found != wanted).any()


def test_tilings_that_cannot_be_split_are_refused() -> None:
    m, n, k = parameters()
    for p, tiling, message in (
        (Problem(64, 64, 128), Tiling(64, 64, 64, 2, 1, split=4), "2 steps for 4 CTAs"),
        (Problem(m, n, k), Tiling(64, 64, 64, 2, 1, split=2), "steps for 2 CTAs"),
        (Problem(64, 64, 512), Tiling(64, 128, 64, 2, 1, cluster_rows=2, split=2), "clusters of 2"),
        (Problem(64, 64, 512), Tiling(64, 96, 64, 2, 1, split=8), "96 columns"),
    ):
        with pytest.raises(AxeError, match=message):
            gemm(p, tiling)


def test_few_rows_are_multiplied_by_ctas_that_share_steps() -> None:
    """Without a second kernel for the sum of parts, whatever that costs."""

    def product(x: Any, w: Any) -> Any:
        return x @ w.T

    specs = axe.Spec((4, 10496), "f16"), axe.Spec((1728, 10496), "f16")
    without = ("long_product_in_parts",)
    (kernel,) = axe.compile(product, *specs, target="h200", without=without).kernels
    assert kernel.parameters["split"] > 1
    alone = h200.replace(choices={**h200.choices, "product_split": (1,)})
    assert len(axe.compile(product, *specs, target=alone).kernels) == 2


def test_texts_compile_without_spills() -> None:
    pytest.importorskip("cuda.bindings.nvrtc", reason="NVRTC is not installed")
    source = emit(plan(gemm(Problem(256, 256, 1024), Tiling(128, 128, 64, 4, 2, split=4)), h200))
    assert "ld.shared::cluster" in source.text
    log = compile_text(source.text, 90, source.name).log
    assert "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads" in log
