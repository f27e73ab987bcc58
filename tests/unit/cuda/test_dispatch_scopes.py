"""The same primitives in other scopes, memories and dtypes: what each becomes, or why nothing fits.

`test_dispatch` varies layouts under the scopes that kernels use most; here scope, memory and dtype
vary, down to single warps and threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from axe_eq.errors import DispatchError
from axe_eq.kernel.cells import IDENTITY, apply, arg
from axe_eq.kernel.dispatch import Choice, Names, choose
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.kernel.threads.interp import interpret
from axe_eq.kernel.threads.ir import Where
from axe_eq.layout import Layout
from axe_eq_backends.cuda.emit import emit
from axe_eq_backends.cuda.families import derivations
from axe_eq_backends.cuda.meaning import MEANINGS
from axe_eq_backends.cuda.mma import fragment
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.schedules import tiles
from axe_eq_backends.cuda.target import b200, h200
from axe_eq_backends.cuda.wgmma import accumulator

CTA, GROUP = Where("cta", 4), Where("warpgroup", 4)
WARP, THREAD, ELECT = Where("warp", 4), Where("thread", 4), Where("elect", 4)
Write = Callable[[ThreadBuilder], None]

# Register tiles of 256 elements by the scope that holds them.
TX = Layout([(2, 1, "reg"), (4, 1, "warp"), (32, 1, "lane")])
LANES = Layout([(32, 1, "lane"), (8, 1, "reg")])
ALONE = Layout([(256, 1, "reg")])
# A matrix of fragments that lies over one warp.
ONE_WARP = Layout([(2, 2, "reg"), (8, 4, "lane"), (4, 1, "lane"), (2, 1, "reg")])
PAIRS = Layout([(16, 2, "reg"), (4, 1, "warp"), (2, 1, "reg"), (32, 1, "lane")])


def choice(write: Write, where: Where, target: Any = h200) -> Choice:
    k = ThreadBuilder("k", 4)
    write(k)
    primitive = next(s for s in k.kernel.body if isinstance(s, ir.Primitive))
    return choose(primitive, target, where, derivations(), Names())


def load(layout: Layout, dtype: str = "f32", memory: str = "gmem") -> Write:
    def write(k: ThreadBuilder) -> None:
        t = k.reg("t", dtype, (256,), layout)
        x = k.tensor("x", dtype, (256,)) if memory == "gmem" else k.smem("x", dtype, (256,))
        k.copy(t.all, x.all)

    return write


def store(layout: Layout, dtype: str = "f32", memory: str = "gmem") -> Write:
    def write(k: ThreadBuilder) -> None:
        t = k.reg("t", dtype, (256,), layout)
        gmem = memory == "gmem"
        x = k.tensor("x", dtype, (256,), output=True) if gmem else k.smem("x", dtype, (256,))
        k.copy(x.all, t.all)

    return write


def matrix(layout: Layout, dtype: str = "f16") -> Write:
    def write(k: ThreadBuilder) -> None:
        rows = 16 if layout is ONE_WARP else 64
        cols = layout.size // rows
        t = k.reg("t", dtype, (rows, cols), layout)
        k.copy(k.smem("s", dtype, (rows, cols)).all, t.all)

    return write


def async_load(dtype: str = "f16", barrier: bool = False, rank: int = 2) -> Write:
    def write(k: ThreadBuilder) -> None:
        shape = (1,) * (rank - 2) + (64, 64)
        x, s = k.tensor("x", dtype, (2,) * (rank - 2) + (64, 64)), k.smem("s", dtype, shape)
        copy = ir.CopyAsync(s.all, x[tuple(slice(0, e) for e in shape)])
        copy.barrier = k.mbarriers("b", 1) if barrier else None
        k.kernel.body.append(copy)

    return write


def product(
    a: str, dtype: str = "f16", asynchronous: bool = True, warps: tuple[int, int] = (2, 2)
) -> Write:
    """A (64, 64, 64) product whose rows lie in registers or shared memory."""

    def write(k: ThreadBuilder) -> None:
        held = "S[(4,2,8,4,2,4,2):(1@warp,2@reg,4@lane,8@reg,4@reg,1@lane,1@reg)]"
        form = tiles.panels((), 64, 64, 2)
        if asynchronous:
            x = (
                k.reg("x", dtype, (64, 64), held)
                if a == "reg"
                else k.smem("x", dtype, (64, 64), form)
            )
            y = k.smem("y", dtype, (64, 64), form)
            acc = k.reg("acc", "f32", (64, 64), accumulator(64, 64))
            k.gemm_async(acc.all, x.all, y.all, 0)
            return
        pieces = [k.reg(n, dtype, (64, 64), fragment(n, 64, 64, warps, dtype)) for n in "ab"]
        acc_dtype = "f64" if dtype == "f64" else "f32"
        acc = k.reg("acc", acc_dtype, (64, 64), fragment("c", 64, 64, warps, dtype))
        k.gemm(acc.all, pieces[0].all, pieces[1].all, 0)

    return write


def total(layout: str, dims: list[int], dtype: str = "f32", scratch: int = 0) -> Write:
    """A sum over dims of an (8, 128) tile."""

    def write(k: ThreadBuilder) -> None:
        x = k.reg("x", "f32", (8, 128), layout)
        out = k.reg_reduced("s", dtype, x.all, dims)
        shared = k.smem("scratch", "f32", (scratch,)) if scratch else None
        k.reduce("+", out.all, x.all, dims, shared)

    return write


def mapped(to: str, of: str) -> Write:
    def write(k: ThreadBuilder) -> None:
        x, y = k.reg("x", of, (256,), TX), k.reg("y", to, (256,), TX)
        k.map(apply("add", arg(0), arg(0)), y.all, x.all)

    return write


def shared_map(k: ThreadBuilder) -> None:
    x, y = k.smem("x", "f32", (256,)), k.reg("y", "f32", (256,), TX)
    k.kernel.body.append(ir.Map(IDENTITY, y.all, (x.all,)))


def half_word(k: ThreadBuilder) -> None:
    """One f16 of a register that holds two."""
    t = k.reg("t", "f16", (4, 128), Layout([(4, 1, "reg"), (128, 1, "tx")]))
    k.fill(t[0], 1.0)


BY_LANES = "S[(8,4,32):(1@reg,1@warp,1@lane)]"
BY_WARPS = "S[(8,32,4):(1@reg,1@lane,1@warp)]"
IN_LANES = "S[(4,2,32,4):(1@warp,4@reg,1@lane,1@reg)]"

ACCEPTED: dict[str, tuple[Write, Where, str]] = {
    "a load of the cta": (load(TX), CTA, "ldst.ld_global: 4 bytes a thread"),
    "a load of the warpgroup": (load(TX), GROUP, "ldst.ld_global: 4 bytes a thread"),
    "a load of each warp": (load(LANES), WARP, "ldst.ld_global: 16 bytes a thread"),
    "a load of each thread": (load(ALONE), THREAD, "ldst.ld_global: 16 bytes a thread"),
    "f64": (load(ALONE, "f64"), THREAD, "16 bytes a thread"),
    "i64": (store(LANES, "i64"), WARP, "ldst.st_global: 16 bytes a thread"),
    "f8": (load(LANES, "f8e4m3"), WARP, "8 bytes a thread"),
    "shared, each warp": (store(LANES, memory="smem"), WARP, "ldst.st_shared: 16 bytes a thread"),
    "shared, each thread": (load(ALONE, memory="smem"), THREAD, "ldst.ld_shared: 16 bytes"),
    "matrices of one warp": (matrix(ONE_WARP), WARP, "matrix.stmatrix: 1 calls x2"),
    "bf16 matrices of one warp": (matrix(ONE_WARP, "bf16"), WARP, "matrix.stmatrix: 1 calls x2"),
    "pairs without matrices": (matrix(PAIRS), CTA, "ldst.st_shared: 2 bytes a thread"),
    "bulk f32": (async_load("f32", True), ELECT, "tma.load: 1 boxes of 64x64"),
    "bulk i32": (async_load("i32", True), ELECT, "tma.load: 1 boxes"),
    "bulk of five dims": (async_load(barrier=True, rank=5), ELECT, "1 boxes of 64x64x1x1x1"),
    "ordinary async of a warpgroup": (async_load(), GROUP, "cp.async: 4 chunks of 16 bytes"),
    "rows in registers": (product("reg"), GROUP, "wgmma.f16: 4 x m64n64k16"),
    "bf16 rows in registers": (product("reg", "bf16"), GROUP, "wgmma.bf16"),
    "a warpgroup that is the cta": (product("smem"), CTA, "wgmma.f16: 4 x m64n64k16"),
    "fragments of four warps": (product("reg", asynchronous=False), CTA, "mma.f16: 32 x m16n8k16"),
    "bf16 fragments": (product("reg", "bf16", False), CTA, "mma.bf16"),
    "f64 fragments": (product("reg", "f64", False), CTA, "mma.f64: 64 x m16n8k8"),
    "fragments side by side": (product("reg", asynchronous=False, warps=(1, 4)), CTA, "mma.f16"),
    "a sum over lanes and warps": (
        total(BY_LANES, [1], scratch=1024), CTA, "lanes [(1, 32)], warps [(1, 4)]",
    ),
    "a sum over registers": (total(BY_LANES, [0]), CTA, "lanes none, warps none"),
    "a sum over lanes alone": (total(IN_LANES, [1]), CTA, "lanes [(1, 32)], warps none"),
    "a map that rounds": (mapped("f16", "f32"), CTA, "cells.map: 2 registers a thread"),
    "a map that widens": (mapped("f32", "bf16"), CTA, "cells.map"),
}  # fmt: skip


@pytest.mark.parametrize("name", ACCEPTED)
def test_the_expected_instruction_is_chosen(name: str) -> None:
    write, where, shown = ACCEPTED[name]
    chosen = choice(write, where).plan
    assert shown in f"{chosen.row.name}: {chosen.notes}"


REFUSED: dict[str, tuple[Write, Where, str]] = {
    "warps in a warp's scope": (load(TX), WARP, "uses warp in scope warp; needs axes lane reg"),
    "lanes in a thread's scope": (load(LANES), THREAD, "uses lane in scope thread; needs axes reg"),
    "one warp's tile in the cta": (load(LANES), CTA, "covers warp 0..0 + 1; needs 0..3 exactly"),
    "one thread's tile in the cta": (load(ALONE), CTA, "covers lane 0..0 + 1; needs 0..31 exactly"),
    "f32 matrices": (matrix(ONE_WARP, "f32"), THREAD, "matrix.stmatrix: f32 tile"),
    "bulk of six dims": (async_load(barrier=True, rank=6), ELECT, "at most 5 dims"),
    "bulk by each thread": (async_load(barrier=True), THREAD, "scope thread; needs one elected"),
    "bulk by a warp": (async_load(barrier=True), WARP, "scope warp; needs one elected"),
    "ordinary async by one": (async_load(), ELECT, "cp.async: completes on scope elect"),
    "ordinary async on a barrier": (async_load(barrier=True), CTA, "completes on a barrier"),
    "a warp's wgmma": (product("smem"), WARP, "scope warp of 4 warps; needs one warpgroup"),
    "a thread's wgmma": (product("reg"), THREAD, "needs one warpgroup"),
    "rows of f32": (product("smem", "f32"), GROUP, "dtypes f32 f32 f32"),
    "fragments in a warp's scope": (product("reg", asynchronous=False), WARP, "uses warp in scope"),
    "warps with too small a scratch": (
        total(BY_LANES, [1], scratch=16), CTA, "scratch scratch; needs shared memory of",
    ),
    "an f16 sum": (total(BY_LANES, [0], "f16"), CTA, "result dtype f16; needs f32"),
    "a map of shared memory": (shared_map, CTA, "lies in smem; needs registers"),
    "half of a register": (half_word, CTA, "covers parts of registers; needs groups of 2"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refusals_say_why(name: str) -> None:
    write, where, reason = REFUSED[name]
    with pytest.raises(DispatchError) as refusal:
        choice(write, where)
    assert reason in str(refusal.value)


def test_every_refusal_names_every_row_of_the_primitive() -> None:
    for write, where, _ in REFUSED.values():
        with pytest.raises(DispatchError) as refusal:
            choice(write, where)
        k = ThreadBuilder("k", 4)
        write(k)
        primitive = next(s for s in k.kernel.body if isinstance(s, ir.Primitive))
        kind = {ir.CopyAsync: "copy_async", ir.Gemm: "gemm"}.get(
            type(primitive), type(primitive).__name__.lower()
        )
        for row in h200.rows(kind):
            assert f"{row.name}:" in refusal.value.hint


def test_warps_store_matrices_each_for_itself() -> None:
    """Four warps turn an (8, 8) matrix each, through their own part of shared memory."""
    k = ThreadBuilder("k", 4)
    x = k.tensor("x", "f16", (4, 16, 8))
    y = k.tensor("y", "f16", (4, 16, 8), output=True)
    s = k.smem("s", "f16", (4, 16, 8))
    with k.each_warp() as warp:
        t = k.reg("t", "f16", (16, 8), ONE_WARP)
        u = k.reg("u", "f16", (16, 8), Layout([(16, 2, "lane"), (2, 1, "lane"), (4, 1, "reg")]))
        k.copy(t.all, x[warp])
        k.copy(s[warp], t.all)
        k.sync()
        k.copy(u.all, s[warp])
        k.copy(y[warp], u.all)
    kernel = k.finish()
    planned = plan(kernel, h200)
    assert "matrix.stmatrix (1 calls x2, 1-way)" in planned.explain()
    array = np.arange(512, dtype=np.float16).reshape(4, 16, 8)
    for plans in (None, planned):
        arrays = {"x": array, "y": np.zeros_like(array)}
        found = interpret(kernel, arrays, planned=plans, meanings=MEANINGS)
        assert (found.outputs["y"] == array).all()
    assert "__syncwarp" in emit(planned).text


def test_another_machine_takes_what_it_has() -> None:
    assert choice(product("reg", asynchronous=False), CTA, b200).plan.row.name == "mma.f16"
    assert choice(async_load(barrier=True), ELECT, b200).plan.row.name == "tma.load"
    with pytest.raises(DispatchError, match="tcgen05"):
        choice(product("smem"), GROUP, b200)
