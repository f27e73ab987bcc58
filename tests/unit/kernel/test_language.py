"""Writing kernels: what is derived, what is refused and where, how it prints."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from axe_eq.errors import AxeError, LayoutError, ScheduleError
from axe_eq.kernel.cells import IDENTITY, Apply, Cell, apply, arg, evaluate, replaced, result_dtype
from axe_eq.kernel.show import show
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.kernel.threads.interp import interpret
from axe_eq.kernel.threads.ir import span
from axe_eq.kernel.threads.placement import of_layout
from axe_eq.layout import Layout

THREADS = Layout([(4, 1, "warp"), (32, 1, "lane")])
LINES = Layout([(2, 1, "reg"), (4, 1, "warp"), (32, 1, "lane")])


def copy_kernel(loop: bool = True) -> ir.Kernel:
    k = ThreadBuilder("copy", 4)
    x, y = k.tensor("x", "f32", (1000,)), k.tensor("y", "f32", (1000,), output=True)
    t = k.reg("t", "f32", (256,), LINES)
    with k.tiles(4, persistent=False, loop=loop) as tile:
        k.copy(t.all, x[span(tile * 256, 256)])
        k.copy(y[span(tile * 256, 256)], t.all)
    return k.finish()


@pytest.mark.parametrize("loop", [True, False])
def test_a_kernel_runs_and_prints(loop: bool) -> None:
    kernel, x = copy_kernel(loop), np.arange(1000, dtype=np.float32)
    found = interpret(kernel, {"x": x, "y": np.zeros_like(x)}).outputs["y"]
    assert (found == x).all()
    text = show(kernel)
    assert "one CTA for each of 4 tiles" in text
    assert "copy t[0:+256] <- x[tile * 256:+256]" in text
    assert ("for tile in" in text) == loop


def _pair(k: ThreadBuilder) -> tuple[ir.Buffer, ir.Buffer]:
    return k.reg("a", "f32", (256,), LINES), k.smem("s", "f32", (256,))


REFUSALS: dict[str, tuple[Callable[[ThreadBuilder], Any], str]] = {
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
    "warps": (lambda k: ThreadBuilder("k", 33), "33 warps"),
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
    "indices of a view": (lambda k: k.smem("z", "f32", (4,)).all[0, 1], "has 1 dims, 2 indices"),
    "registers of another shape": (
        lambda k: k.reg("r", "f32", (128,), of_layout(LINES, (256,))),
        "expected (128,)",
    ),
    "two grids": (lambda k: _two_grids(k), "one grid per kernel"),
    "roles in a scope": (lambda k: _roles_in_a_scope(k), "at the top of a kernel"),
    "warpgroups alone": (lambda k: k.warpgroups(0, 1).__enter__(), "k.roles()"),
    "async dtypes": (
        lambda k: k.copy_async(_pair(k)[1].all, k.tensor("x", "i32", (256,)).all),
        "one dtype",
    ),
    "no barriers": (lambda k: k.mbarriers("b", 0), "at least 1"),
    "a slot to arrive at": (lambda k: k.arrive(k.mbarriers("b", 2), 2), "slot 2; expected 0 to 1"),
    "a slot to wait for": (lambda k: k.wait(k.mbarriers("b", 1), -1, 0), "slot -1"),
    "a slot to complete on": (lambda k: _complete_on(k), "slot 3; expected 0 to 1"),
    "a phase": (lambda k: k.wait(k.mbarriers("b", 1), 0, 2), "parity 2; expected 0 or 1"),
    "a kind to commit": (
        lambda k: k.commit("wgmma"),
        "kind 'wgmma'; expected one of cp_async bulk",
    ),
    "a kind to wait for": (lambda k: k.wait_group("tma", 0), "kind 'tma'"),
    "gemm shapes": (
        lambda k: k.gemm(_pair(k)[0].all, _pair(k)[1].all, _pair(k)[1].all, 0),
        "(m, n), (m, k), (n, k)",
    ),
}


def _two_grids(k: ThreadBuilder) -> None:
    for count in (4, 5):
        with k.tiles(count):
            pass


def _roles_in_a_scope(k: ThreadBuilder) -> None:
    with k.one_thread(), k.roles():
        pass


def _complete_on(k: ThreadBuilder) -> None:
    with k.one_thread(), k.arrives(k.mbarriers("b", 2), 3):
        pass


def _nested(k: ThreadBuilder) -> None:
    with k.one_thread(), k.one_thread():
        pass


def _sync_one(k: ThreadBuilder) -> None:
    with k.one_thread():
        k.sync()


@pytest.mark.parametrize("name", REFUSALS)
def test_misuse_is_refused_with_its_reason(name: str) -> None:
    write, reason = REFUSALS[name]
    with pytest.raises(AxeError) as refusal:
        write(ThreadBuilder("k", 4))
    assert reason in str(refusal.value)
    if name not in ("cell arity", "unknown cell"):  # a cell is a value of its own, in no kernel
        assert refusal.value.at.rpartition(":")[0] == __file__


def test_refusals_name_the_very_line() -> None:
    k = ThreadBuilder("k", 4)
    here = sys._getframe().f_lineno
    with pytest.raises(ScheduleError) as refusal:
        k.wait_group("bulk", -1)
    assert refusal.value.at == f"{__file__}:{here + 2}"
    with pytest.raises(LayoutError) as bad:
        k.smem("z", "f32", (4,), Layout([(3, 1)]))
    assert bad.value.at == f"{__file__}:{here + 5}"


def test_a_kernel_has_the_tensors_that_it_declares() -> None:
    kernel = copy_kernel()
    assert kernel.tensor("x") is kernel.tensors[0]
    with pytest.raises(ScheduleError, match="has no tensor 'z'; expected one of x y"):
        kernel.tensor("z")


def test_roles_must_cover_the_warpgroups() -> None:
    k = ThreadBuilder("k", 8)
    with pytest.raises(ScheduleError, match="each of 2 once"), k.roles(), k.warpgroups(0, 1):
        pass


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
    k = ThreadBuilder("k", 4)
    x, y = k.tensor("x", "f32", (32, 128)), k.tensor("y", "f32", (16, 64), output=True)
    with k.each_thread() as thread:
        mine = k.reg("mine", "f32", (1, 8), Layout([(8, 1, "reg")]))
        row, col = thread // 8, thread % 8 * 8
        k.copy(mine.all, x[span(row + 16, 1), span(col + 64, 8)])
        k.copy(y[span(row, 1), span(col, 8)], mine.all)
    array = np.random.default_rng(0).standard_normal((32, 128)).astype(np.float32)
    found = interpret(k.finish(), {"x": array, "y": np.zeros((16, 64), np.float32)}, order=order)
    assert (found.outputs["y"] == array[16:32, 64:128]).all()


def test_what_a_cell_shares_is_replaced_once() -> None:
    """A chain of 12 squares has 12 parts, and 4096 operands as a tree."""
    shared: Cell = arg(0)
    for _ in range(12):
        shared = apply("mul", shared, shared)
    found = replaced(shared, {arg(0): arg(3)})
    assert str(found) == str(shared).replace("x0", "x3")
    while isinstance(found, Apply):
        found, other = found.args
        assert found is other
