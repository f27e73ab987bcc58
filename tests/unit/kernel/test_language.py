"""Writing kernels: what is derived, what is refused and where, how it prints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from axe_eq.errors import AxeError, LayoutError, ScheduleError
from axe_eq.kernel import ir
from axe_eq.kernel.build import Builder
from axe_eq.kernel.cells import IDENTITY, apply, arg, evaluate, result_dtype
from axe_eq.kernel.check import check
from axe_eq.kernel.interp import KernelFault, interpret
from axe_eq.kernel.ir import span
from axe_eq.kernel.show import show
from axe_eq.layout import Layout
from axe_eq_backends.cuda.target import h200
from axe_eq_backends.cuda.wgmma import accumulator

THREADS = Layout([(4, 1, "warp"), (32, 1, "lane")])
LINES = Layout([(2, 1, "reg"), (4, 1, "warp"), (32, 1, "lane")])


def copy_kernel() -> ir.Kernel:
    k = Builder("copy", 4)
    x, y = k.tensor("x", "f32", (1000,)), k.tensor("y", "f32", (1000,), output=True)
    t = k.reg("t", "f32", (256,), LINES)
    with k.tiles(4, persistent=False) as tile:
        k.copy(t.all, x[span(tile * 256, 256)])
        k.copy(y[span(tile * 256, 256)], t.all)
    return k.finish()


def test_a_kernel_runs_and_prints() -> None:
    kernel, x = copy_kernel(), np.arange(1000, dtype=np.float32)
    found = interpret(kernel, {"x": x, "y": np.zeros_like(x)}).outputs["y"]
    assert (found == x).all()
    text = show(kernel)
    assert "one CTA for each of 4 tiles" in text
    assert "copy t[0:+256] <- x[tile * 256:+256]" in text


def _pair(k: Builder) -> tuple[ir.Buffer, ir.Buffer]:
    return k.reg("a", "f32", (256,), LINES), k.smem("s", "f32", (256,))


REFUSALS: dict[str, tuple[Callable[[Builder], Any], str]] = {
    "shapes": (lambda k: k.copy(_pair(k)[0].all, k.smem("z", "f32", (128,)).all), "equal shapes"),
    "dtypes": (
        lambda k: k.copy(_pair(k)[0].all, k.smem("z", "i32", (256,)).all),
        "k.map with a cast",
    ),
    "two indices": (lambda k: k.smem("z", "f32", (4,))[0, 1], "has 1 dims, 2 indices"),
    "outside": (lambda k: k.smem("z", "f32", (4,))[2:6], "inside 4"),
    "step": (lambda k: k.smem("z", "f32", (4,))[::2], "contiguous slices"),
    "registers in memory": (lambda k: k.reg("r", "f32", (4,), Layout([(4, 1)])), "axes warp, lane"),
    "smem on lanes": (
        lambda k: k.smem("z", "f32", (4,), Layout([(4, 1, "lane")])),
        "iters on axis m",
    ),
    "layout text": (lambda k: k.smem("z", "f32", (4,), "S[(4):(1@"), "layout"),
    "warps": (lambda k: Builder("k", 33), "33 warps"),
    "async pair": (lambda k: k.copy_async(_pair(k)[1].all, _pair(k)[0].all), "global and shared"),
    "pending": (lambda k: k.wait_group("bulk", -1), "at least 0"),
    "arrives at the top": (lambda k: k.arrives(k.mbarriers("b", 1), 0).__enter__(), "one_thread"),
    "nested scopes": (lambda k: _nested(k), "cta or warpgroup"),
    "sync of one thread": (lambda k: _sync_one(k), "deadlock"),
    "cell operands": (
        lambda k: k.map(arg(2), _pair(k)[0].all, _pair(k)[0].all),
        "all its operands",
    ),
    "cell arity": (lambda k: apply("exp", arg(0), arg(1)), "is applied to 2"),
    "unknown cell": (lambda k: apply("nonsense", arg(0)), "not declared"),
    "broadcast": (
        lambda k: k.map(IDENTITY, _pair(k)[0].all, k.reg("b", "f32", (128,), THREADS).all),
        "broadcast to",
    ),
    "reduced shape": (lambda k: k.reduce("+", _pair(k)[0].all, _pair(k)[0].all, [0]), "shape (1,)"),
    "index dtype": (lambda k: k.index(_pair(k)[0].all, 0), "i32"),
    "gemm shapes": (
        lambda k: k.gemm(_pair(k)[0].all, _pair(k)[1].all, _pair(k)[1].all, 0),
        "(m, n), (m, k), (n, k)",
    ),
}


def _nested(k: Builder) -> None:
    with k.one_thread(), k.one_thread():
        pass


def _sync_one(k: Builder) -> None:
    with k.one_thread():
        k.sync()


@pytest.mark.parametrize("name", REFUSALS)
def test_misuse_is_refused_with_its_reason(name: str) -> None:
    write, reason = REFUSALS[name]
    with pytest.raises(AxeError) as refusal:
        write(Builder("k", 4))
    assert reason in str(refusal.value)


def test_refusals_name_the_users_line() -> None:
    k = Builder("k", 4)
    with pytest.raises(ScheduleError) as refusal:
        k.wait_group("bulk", -1)
    assert refusal.value.at.startswith(__file__)
    with pytest.raises(LayoutError) as bad:
        k.smem("z", "f32", (4,), Layout([(3, 1)]))
    assert bad.value.at.startswith(__file__)


def test_roles_must_cover_the_warpgroups() -> None:
    k = Builder("k", 8)
    with pytest.raises(ScheduleError, match="each of 2 once"), k.roles(), k.warpgroups(0, 1):
        pass


# -- static checks --


def _checked(write: Callable[[Builder], Any], warps: int = 4) -> None:
    k = Builder("k", warps)
    write(k)
    check(k.finish(), h200)


def _wait_only(k: Builder) -> None:
    k.wait(k.mbarriers("b", 1), 0, 0)


def _arrive_only(k: Builder) -> None:
    k.arrive(k.mbarriers("b", 1), 0)


def _uncommitted(k: Builder) -> None:
    x, s = k.tensor("x", "f16", (64, 64), output=True), k.smem("s", "f16", (64, 64))
    with k.one_thread():
        k.copy_async(x.all, s.all)


def _beside_roles(k: Builder) -> None:
    with k.roles(), k.warpgroups(0, 1):
        pass
    k.sync()


def _bulk_wait_by_all(k: Builder) -> None:
    k.wait_group("bulk", 0)


def _wide_accumulators(k: Builder) -> None:
    a = k.smem("a", "f16", (64, 64))
    for n in range(3):
        acc = k.reg(f"acc{n}", "f32", (64, 256), accumulator(64, 256))
        k.gemm_async(acc.all, a.all, k.smem(f"b{n}", "f16", (256, 64)).all, 0)


BROKEN: dict[str, tuple[Callable[[Builder], Any], str]] = {
    "shared memory": (lambda k: k.smem("s", "f32", (60000,)), "240000 bytes of shared memory"),
    "nobody arrives": (_wait_only, "nobody arrives"),
    "nobody waits": (_arrive_only, "nobody waits"),
    "no commit": (_uncommitted, "no commit of kind bulk"),
    "beside roles": (_beside_roles, "beside roles"),
    "bulk groups": (_bulk_wait_by_all, "issuing thread"),
    "registers": (_wide_accumulators, "384 registers"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_broken_kernels_are_refused_before_any_plan(name: str) -> None:
    write, reason = BROKEN[name]
    with pytest.raises(ScheduleError, match=reason):
        _checked(write)


# -- the interpreter's own faults --


def _exchange(sync: bool) -> ir.Kernel:
    """Write rows, read columns of a shared tile."""
    k = Builder("exchange", 4)
    x, y = k.tensor("x", "f32", (32, 32)), k.tensor("y", "f32", (32, 32), output=True)
    s = k.smem("s", "f32", (32, 32))
    layout = Layout([(8, 1, "reg"), (4, 1, "warp"), (32, 1, "lane")])
    a, b = k.reg("a", "f32", (32, 32), layout), k.reg("b", "f32", (32, 32), layout)
    k.copy(a.all, x.all)
    k.copy(s.all, a.all)
    if sync:
        k.sync()
    k.copy(b.all, s.all.T)
    k.copy(y.all, b.all)
    return k.finish()


def test_a_missing_barrier_is_a_fault_whatever_the_order() -> None:
    x = np.random.default_rng(0).standard_normal((32, 32)).astype(np.float32)
    arrays = {"x": x, "y": np.zeros_like(x)}
    assert (interpret(_exchange(True), arrays).outputs["y"] == x.T).all()
    for order in ("early", "late", "random"):
        with pytest.raises(KernelFault, match="before the write by"):
            interpret(_exchange(False), arrays, order=order)


def test_reading_what_was_never_written_is_a_fault() -> None:
    k = Builder("k", 4)
    y = k.tensor("y", "f32", (256,), output=True)
    t = k.reg("t", "f32", (256,), LINES)
    k.copy(y.all, t.all)
    with pytest.raises(KernelFault, match="registers of t that were never written"):
        interpret(k.finish(), {"y": np.zeros(256, np.float32)})


def test_an_element_written_twice_is_a_fault() -> None:
    k = Builder("k", 4)
    y = k.tensor("y", "f32", (256,), output=True)
    t = k.reg("t", "f32", (256,), LINES)
    k.fill(t.all, 1.0)
    k.copy(y.all, t.all)
    k.copy(y.all, t.all)
    with pytest.raises(KernelFault, match="is written 2 times"):
        interpret(k.finish(), {"y": np.zeros(256, np.float32)})


def test_waiting_for_ever_is_a_deadlock() -> None:
    k = Builder("k", 4)
    k.wait(k.mbarriers("b", 1), 0, 0)
    with pytest.raises(KernelFault, match="deadlock"):
        interpret(k.finish(), {})


# -- cells --


def test_cells_round_where_a_cast_says_so_and_go_on_wide() -> None:
    x = np.array([1.0 + 2.0**-12], np.float32)
    cell = apply("sub", apply("cast f16", arg(0)), 1.0)
    assert evaluate(cell, [x]) == 0.0
    assert evaluate(cell, [x]).dtype == np.float32
    assert result_dtype(cell, ["f32"]) == "f32"
    assert result_dtype(apply("lt", arg(0), 1.0), ["f16"]) == "bool"
    assert result_dtype(apply("add", arg(0), arg(1)), ["i32", "i32"]) == "i32"


@pytest.mark.parametrize("order", ["early", "late"])
def test_scopes_of_one_thread_each_hold_their_own_tile(order: str) -> None:
    """The thread-local view of a copy: every thread has its own begin (Axe, section 3.1)."""
    k = Builder("k", 4)
    x, y = k.tensor("x", "f32", (32, 128)), k.tensor("y", "f32", (16, 64), output=True)
    with k.each_thread() as thread:
        mine = k.reg("mine", "f32", (1, 8), Layout([(8, 1, "reg")]))
        row, col = thread // 8, thread % 8 * 8
        k.copy(mine.all, x[span(row + 16, 1), span(col + 64, 8)])
        k.copy(y[span(row, 1), span(col, 8)], mine.all)
    array = np.random.default_rng(0).standard_normal((32, 128)).astype(np.float32)
    found = interpret(k.finish(), {"x": array, "y": np.zeros((16, 64), np.float32)}, order=order)
    assert (found.outputs["y"] == array[16:32, 64:128]).all()
