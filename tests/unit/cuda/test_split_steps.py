"""CTAs of a cluster that take parts of a product's steps and merge their sums."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.errors import AxeError
from axe_eq.kernel.cells import apply, arg
from axe_eq.kernel.expr import evaluate
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
from axe_eq_backends.cuda.tile_cost import _rounds

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


# The same where CTAs share only tiles that fill no wave: CTAs of the grid, and shared tiles.
RESTS: dict[str, tuple[tuple[int, int, int], int, Tiling, int, int]] = {
    "three after a wave": ((192, 160, 320), 1, Tiling(64, 32, 64, 3, 1, split=2, rest=1), 12, 3),
    "three, not for two": ((192, 160, 320), 1, Tiling(64, 32, 64, 3, 1, split=2, rest=1), 4, 0),
    "tails, two groups": (
        (200, 136, 328), 1, Tiling(128, 64, 64, 4, 2, split=2, rest=1, band=2), 4, 2
    ),
    "all of them": ((120, 136, 328), 0, Tiling(64, 64, 64, 4, 1, split=4, rest=1), 24, 6),
    "none of them": ((120, 120, 200), 1, Tiling(64, 64, 32, 4, 1, split=2, rest=1), 4, 0),
}  # fmt: skip


def problem(m: int, n: int, k: int, major: int = 1) -> Problem:
    """A product whose rows of odd extents are padded, as they lie."""
    pad = -(-k // 8) * 8, -(-m // 8) * 8, -(-n // 8) * 8
    a, b = (
        Matrix(name, major=major, stride=pad[0] if major else pad[side])
        for side, name in enumerate("AB", 1)
    )
    return Problem(m, n, k, ((a, b),))


def run(
    kernel: ir.Kernel,
    m: int,
    n: int,
    k: int,
    planned: Any,
    order: str,
    seed: int = 0,
    ctas: int = 2,
) -> Any:
    """The interpreted product of whole numbers, and numpy's."""
    rng = np.random.default_rng(m)
    a, b = (rng.integers(-2, 3, (e, k)).astype(np.float16) for e in (m, n))
    found = interpret(
        kernel, {"A": a, "B": b, "C": np.zeros((m, n), np.float16)}, {}, planned=planned,
        meanings=MEANINGS, order=order, seed=seed, compare=planned is not None, n_ctas=ctas,
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


@pytest.mark.sampled(3, slow=("all of them",))
@pytest.mark.parametrize("name", RESTS)
def test_the_rest_of_tiles_is_shared(name: str, full: bool) -> None:
    extents, major, tiling, ctas, _ = RESTS[name]
    kernel = gemm(problem(*extents, major), tiling)
    for seed in range(8 if full else 1):
        for number, planned in enumerate((None, plan(kernel, h200))):
            found, wanted = run(kernel, *extents, planned, ORDERS[number + 1], seed, ctas)
            assert (found == wanted).all()


@pytest.mark.parametrize("name", RESTS)
def test_as_many_tiles_are_shared_as_are_priced(name: str) -> None:
    """Those left by whole waves, where there is a cluster for each; others are refused."""
    (m, n, _), _, t, ctas, shared = RESTS[name]
    tiles = -(-m // t.m) * -(-n // t.n)
    chosen = {"split": np.array([float(t.split)]), "rest": np.array([1.0])}
    alone, rounds = _rounds(np.array([float(tiles)]), np.array([float(ctas)]), chosen)
    assert (rounds == 1) == (shared > 0)
    env = {ir.N_CTAS.name: ctas}
    lets = {}
    for s, _ in ir.walk(gemm(problem(m, n, 320), t)):
        if isinstance(s, ir.Let) and s.var.name in ("left", "room", "whole"):
            lets[s.var.name] = env[s.var.name] = evaluate(s.value, env)
    assert tiles - lets["whole"] == shared
    assert rounds != 1 or lets["whole"] == alone * ctas


def test_sums_take_the_place_of_operands() -> None:
    kernel = gemm(problem(64, 64, 256), Tiling(64, 64, 64, 2, 1, split=2, rest=1))
    places = {b.name: (b.offset, b.offset + b.n_elements * b.itemsize)
              for b in kernel.buffers if b.is_shared}  # fmt: skip
    assert places["partials"][0] == places["A_ring"][0] == 0
    assert places["partials"][1] <= places["B_ring"][1] <= places["C_staging"][0]
    with pytest.raises(AxeError, match="at byte 0 of 24576; expected room there"):
        gemm(problem(64, 128, 256), Tiling(64, 128, 32, 2, 1, split=2, rest=1))


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


def _share_at_once(kernel: ir.Kernel) -> None:
    """CTAs that share the rest of tiles do not meet before sums take the place of slots."""
    (roles,) = (s for s in kernel.body if isinstance(s, ir.Roles))
    for role in roles.branches:
        for loop in (s for s in role.body if isinstance(s, ir.For)):
            loop.body[:] = [s for s in loop.body
                            if not isinstance(s, ir.ClusterArrive | ir.ClusterWait)]  # fmt: skip


RESTS_BROKEN: dict[str, tuple[Callable[[ir.Kernel], None], str]] = {
    "sums over slots that others read": (_share_at_once, "overwrites shared memory before"),
    "sums fetched before all are there": (_meet_nowhere, "before the write|before the read"),
    "an end before the others have fetched": (_end_apart, "may end before"),
}


@pytest.mark.parametrize("name", RESTS_BROKEN)
def test_broken_rests_are_faults(name: str) -> None:
    change, message = RESTS_BROKEN[name]
    kernel = gemm(problem(200, 136, 328), Tiling(128, 64, 64, 4, 2, split=2, rest=1))
    change(kernel)

    def tried() -> None:
        for seed in range(8):
            run(kernel, 200, 136, 328, None, "random", seed, 4)

    with pytest.raises(KernelFault, match=message):
        tried()


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
