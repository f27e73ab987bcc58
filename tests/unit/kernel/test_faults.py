"""What the interpreter objects to: races, deadlocks, stray and unwritten reads, unfinished work."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from axe_eq.kernel.cells import IDENTITY
from axe_eq.kernel.expr import equal
from axe_eq.kernel.interp import GlobalTensor
from axe_eq.kernel.placement import number
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.kernel.threads.interp import ORDERS, KernelFault, interpret
from axe_eq.kernel.threads.ir import span
from axe_eq.layout import Layout
from axe_eq_backends.cuda.wgmma import accumulator

LINES = Layout([(2, 1, "reg"), (4, 1, "warp"), (32, 1, "lane")])
ROWS = Layout([(8, 1, "reg"), (4, 1, "warp"), (32, 1, "lane")])
MATRIX = Layout([(16, 2, "reg"), (4, 1, "warp"), (2, 1, "reg"), (32, 1, "lane")])
Arrays = dict[str, Any]


def exchange(sync: bool) -> ir.Kernel:
    """Write rows, read columns of a shared tile."""
    k = ThreadBuilder("exchange", 4)
    x, y = k.tensor("x", "f32", (32, 32)), k.tensor("y", "f32", (32, 32), output=True)
    s = k.smem("s", "f32", (32, 32))
    a, b = k.reg("a", "f32", (32, 32), ROWS), k.reg("b", "f32", (32, 32), ROWS)
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
    assert (interpret(exchange(True), arrays).outputs["y"] == x.T).all()
    for order in ORDERS:
        with pytest.raises(KernelFault, match="before the write by"):
            interpret(exchange(False), arrays, order=order)


# -- kernels with one fault --


def _tile(k: ThreadBuilder, name: str = "t") -> ir.Buffer:
    return k.reg(name, "f32", (256,), LINES)


def _unwritten(k: ThreadBuilder) -> None:
    k.copy(k.tensor("y", "f32", (256,), output=True).all, _tile(k).all)


def _twice(k: ThreadBuilder) -> None:
    y, t = k.tensor("y", "f32", (256,), output=True), _tile(k)
    k.fill(t.all, 1.0)
    k.copy(y.all, t.all)
    k.copy(y.all, t.all)


def _again(k: ThreadBuilder, value: float = 1.0) -> None:
    _twice(k)
    k.kernel.again = frozenset({"y"})
    if value != 1.0:
        (t,) = k.kernel.buffers
        k.fill(t.all, value)
        k.copy(k.kernel.tensors[-1].all, t.all)


def _half(k: ThreadBuilder) -> None:
    y, t = k.tensor("y", "f32", (512,), output=True), _tile(k)
    k.fill(t.all, 1.0)
    k.copy(y[0:256], t.all)


def _for_ever(k: ThreadBuilder) -> None:
    k.wait(k.mbarriers("b", 1), 0, 0)


def _output_as_input(k: ThreadBuilder) -> None:
    y, t = k.tensor("y", "f32", (256,), output=True), _tile(k)
    k.copy(t.all, y.all)
    k.copy(y.all, t.all)


def _output_of_another_cta(k: ThreadBuilder) -> None:
    """CTA 1 reads what CTA 0 wrote."""
    y, t = k.tensor("y", "f32", (512,), output=True), _tile(k)
    k.fill(t.all, 1.0)
    with k.tiles(2, persistent=False) as tile:
        with k.when(tile > 0):
            k.copy(t.all, y[0:256])
        k.copy(y[span(tile * 256, 256)], t.all)


def _stray_slot(k: ThreadBuilder) -> None:
    b, slot = k.mbarriers("b", 2), k.state("slot", 2)
    k.arrive(b, slot)
    k.wait(b, 0, 0)


def _stray_phase(k: ThreadBuilder) -> None:
    b, phase = k.mbarriers("b", 1), k.state("phase", 2)
    k.arrive(b, 0)
    k.wait(b, 0, phase)


def _load(k: ThreadBuilder) -> tuple[ir.Buffer, ir.MBarrier]:
    x, s, full = k.tensor("x", "f32", (256,)), k.smem("s", "f32", (256,)), k.mbarriers("full", 1)
    with k.one_thread(), k.arrives(full, 0):
        k.copy_async(s.all, x.all)
    return s, full


def _read_before_arrival(k: ThreadBuilder) -> None:
    s, _ = _load(k)
    t, y = _tile(k), k.tensor("y", "f32", (256,), output=True)
    k.copy(t.all, s.all)
    k.copy(y.all, t.all)


def _never_waited_load(k: ThreadBuilder) -> None:
    _load(k)


def _load_over_ordinary_writes(k: ThreadBuilder) -> None:
    x, s, full = k.tensor("x", "f32", (256,)), k.smem("s", "f32", (256,)), k.mbarriers("full", 1)
    t = _tile(k)
    k.fill(t.all, 0.0)
    k.copy(s.all, t.all)
    k.sync()
    with k.one_thread(), k.arrives(full, 0):
        k.copy_async(s.all, x.all)
    k.wait(full, 0, 0)


def _load_over_what_is_read(k: ThreadBuilder) -> None:
    """The second load does not wait for the readers of the first."""
    x, s, full = k.tensor("x", "f32", (256,)), k.smem("s", "f32", (256,)), k.mbarriers("full", 1)
    t, y = _tile(k), k.tensor("y", "f32", (256,), output=True)
    with k.one_thread(), k.arrives(full, 0):
        k.copy_async(s.all, x.all)
    k.wait(full, 0, 0)
    k.copy(t.all, s.all)
    with k.one_thread(), k.arrives(full, 0):
        k.copy_async(s.all, x.all)
    k.wait(full, 0, 1)
    k.copy(y.all, t.all)


def _store(k: ThreadBuilder, fence: bool = True, sync: bool = True, wait: bool = True) -> None:
    y, s, t = k.tensor("y", "f32", (256,), output=True), k.smem("s", "f32", (256,)), _tile(k)
    k.fill(t.all, 1.0)
    k.copy(s.all, t.all)
    if fence:
        k.fence_async()
    if sync:
        k.sync()
    with k.one_thread():
        k.copy_async(y.all, s.all)
        k.commit("bulk")
        if wait:
            k.wait_group("bulk", 0)


def _rewritten_while_stored(k: ThreadBuilder) -> None:
    y, s, t = k.tensor("y", "f32", (256,), output=True), k.smem("s", "f32", (256,)), _tile(k)
    k.fill(t.all, 1.0)
    k.copy(s.all, t.all)
    k.fence_async()
    k.sync()
    with k.one_thread():
        k.copy_async(y.all, s.all)
        k.commit("bulk")
    k.copy(s.all, t.all)
    with k.one_thread():
        k.wait_group("bulk", 0)


def _matrices(k: ThreadBuilder, fence: bool = True) -> tuple[ir.Buffer, ir.Buffer, ir.Buffer]:
    """Two operands that ordinary code wrote, and an accumulator."""
    a, b = k.smem("a", "f16", (64, 64)), k.smem("b", "f16", (64, 64))
    t = k.reg("t", "f16", (64, 64), MATRIX)
    k.fill(t.all, 1.0)
    k.copy(a.all, t.all)
    k.copy(b.all, t.all)
    if fence:
        k.fence_async()
    k.sync()
    return a, b, k.reg("acc", "f32", (64, 64), accumulator(64, 64))


def _product_of_unfenced(k: ThreadBuilder) -> None:
    a, b, acc = _matrices(k, fence=False)
    k.gemm_async(acc.all, a.all, b.all, 0)
    k.wait_group("wgmma", 0)


def _accumulate_nothing(k: ThreadBuilder) -> None:
    a, b, acc = _matrices(k)
    k.gemm_async(acc.all, a.all, b.all, 1)
    k.wait_group("wgmma", 0)


def _read_unfinished_product(k: ThreadBuilder) -> None:
    a, b, acc = _matrices(k)
    k.gemm_async(acc.all, a.all, b.all, 0)
    k.map(IDENTITY, k.reg_like("c", "f32", acc.all).all, acc.all)


def _change_unfinished_product(k: ThreadBuilder) -> None:
    a, b, acc = _matrices(k)
    k.gemm_async(acc.all, a.all, b.all, 0)
    k.fill(acc.all, 0.0)


def _operand_rewritten(k: ThreadBuilder) -> None:
    a, b, acc = _matrices(k)
    k.gemm_async(acc.all, a.all, b.all, 0)
    t = k.reg("u", "f16", (64, 64), MATRIX)
    k.fill(t.all, 2.0)
    k.copy(a.all, t.all)


def _async_copy(
    k: ThreadBuilder, commit: bool = True, wait: bool = True, sync: bool = True
) -> None:
    x, s, t = k.tensor("x", "f32", (256,)), k.smem("s", "f32", (256,)), _tile(k)
    y = k.tensor("y", "f32", (256,), output=True)
    k.copy_async(s.all, x.all)
    if commit:
        k.commit("cp_async")
    if wait:
        k.wait_group("cp_async", 0)
    if sync:
        k.sync()
    k.copy(t.all, s.all)
    k.copy(y.all, t.all)


X, Y = np.arange(256, dtype=np.float32), np.zeros(256, np.float32)
FAULTS: dict[str, tuple[Callable[[ThreadBuilder], None], str]] = {
    "unwritten registers": (_unwritten, "registers of t that were never written"),
    "written twice": (_twice, r"element \(0,\) is written 2 times"),
    "other bits again": (lambda k: _again(k, 2.0), r"element \(0,\) is written 2 times"),
    "half written": (_half, r"element \(256,\) is written 0 times"),
    "a wait without end": (_for_ever, "deadlock"),
    "an output as input": (_output_as_input, "y: is read where this CTA has not written it"),
    "another CTA's output": (_output_of_another_cta, "is read where this CTA has not"),
    "a slot that is not there": (_stray_slot, "barrier b: slot 2; expected 0 to 1"),
    "a phase that is none": (_stray_phase, "is no phase; expected parity 0 or 1"),
    "a read before arrival": (_read_before_arrival, "before the write by bulk loads on full"),
    "a load that nobody waits for": (_never_waited_load, r"bulk load on full\[0\] may still write"),
    "a load over ordinary writes": (_load_over_ordinary_writes, "overwrites ordinary writes"),
    "a load over what is read": (_load_over_what_is_read, "overwrites .* before the read"),
    "a store without a fence": (lambda k: _store(k, fence=False), "reads ordinary writes"),
    "a store without a barrier": (lambda k: _store(k, sync=False), "before the write by warp"),
    "a store that is not waited for": (lambda k: _store(k, wait=False), "ends while its bulk"),
    "a rewrite of what is stored": (_rewritten_while_stored, "the read by bulk stores"),
    "operands without a fence": (_product_of_unfenced, "reads ordinary writes"),
    "accumulating nothing": (_accumulate_nothing, "accumulates into .* never written"),
    "reading a product on its way": (_read_unfinished_product, "reads acc before its product"),
    "changing a product on its way": (_change_unfinished_product, "changes acc before its"),
    "rewriting an operand": (_operand_rewritten, "overwrites .* the read by wgmma"),
    "an uncommitted copy": (lambda k: _async_copy(k, commit=False), "write by async copies"),
    "a copy not waited for": (lambda k: _async_copy(k, wait=False), "write by async copies"),
    "a copy seen by one thread": (lambda k: _async_copy(k, sync=False), "write by async copies"),
}  # fmt: skip


@pytest.mark.parametrize("name", FAULTS)
def test_the_fault_is_named_in_every_order(name: str) -> None:
    write, message = FAULTS[name]
    k = ThreadBuilder("k", 4)
    write(k)
    kernel = k.finish()
    arrays = {t.name: np.zeros(list(map(number, t.shape)), np.float32) for t in kernel.tensors}
    for order in ORDERS:
        for seed in range(3):
            with pytest.raises(KernelFault, match=message):
                interpret(kernel, arrays, order=order, seed=seed)


def _product(k: ThreadBuilder) -> None:
    a, b, acc = _matrices(k)
    k.gemm_async(acc.all, a.all, b.all, 0)
    k.wait_group("wgmma", 0)
    k.copy(k.tensor("y", "f32", (64, 64), output=True).all, acc.all)


RIGHT: dict[str, tuple[Callable[[ThreadBuilder], None], Arrays, Any]] = {
    "store": (_store, {"y": Y}, 1.0),
    "async copy": (_async_copy, {"x": X, "y": Y}, X),
    "the same bits again": (_again, {"y": Y}, 1.0),
    "product": (_product, {"y": np.zeros((64, 64), np.float32)}, 64.0),
}


@pytest.mark.parametrize("name", RIGHT)
@pytest.mark.parametrize("order", ORDERS)
def test_the_kernels_without_the_fault_run(name: str, order: str) -> None:
    write, arrays, expected = RIGHT[name]
    k = ThreadBuilder("k", 4)
    write(k)
    assert (interpret(k.finish(), arrays, order=order).outputs["y"] == expected).all()


# -- phases of barriers: one parity tells two phases apart, no more --


def _in_turns(flip: bool) -> ir.Kernel:
    """Two warpgroups take turns, and expect the next phase each time, or the same parity."""
    k = ThreadBuilder("turns", 8)
    turn = k.mbarriers("turn", 2)
    with k.roles(), k.warpgroups(0, 2) as group:
        parity = k.state("parity", equal(group, 0), high=1)
        with k.range(6):
            k.wait(turn, group, parity)
            if flip:
                k.assign(parity, parity ^ 1)
            with k.one_thread():
                k.arrive(turn, (group + 1) % 2)
    return k.finish()


def _watched(answer: bool) -> ir.Kernel:
    """A warpgroup starts rounds; two others wait for each, and one of them never says so."""
    k = ThreadBuilder("watched", 12)
    start, done = k.mbarriers("start", 1), k.mbarriers("done", 1)
    with k.roles():
        with k.warpgroups(0, 1), k.range(4, name="i") as i:
            with k.one_thread():
                k.arrive(start, 0)
            k.wait(done, 0, i % 2)
        for group in (1, 2):
            with k.warpgroups(group, group + 1), k.range(4, name="i") as i:
                k.wait(start, 0, i % 2)
                if answer or group == 1:
                    with k.one_thread():
                        k.arrive(done, 0)
    return k.finish()


def _gathered(answer: bool) -> ir.Kernel:
    """Two warpgroups arrive at what a third waits for; it tells both, or only one listens."""
    k = ThreadBuilder("gathered", 12)
    both, told = k.mbarriers("both", 1), k.mbarriers("told", 1)
    with k.roles():
        for group in (0, 1):
            with k.warpgroups(group, group + 1), k.range(4, name="i") as i:
                with k.one_thread():
                    k.arrive(both, 0)
                if answer or group == 1:
                    k.wait(told, 0, i % 2)
        with k.warpgroups(2, 3), k.range(4, name="i") as i:
            k.wait(both, 0, i % 2)
            with k.one_thread():
                k.arrive(told, 0)
    return k.finish()


PHASES: dict[str, tuple[Callable[[bool], ir.Kernel], str]] = {
    "arrivals": (_gathered, "phase . is not known to be complete, so it may count for that one"),
    "turns": (_in_turns, "is not known to be complete|the phase after the one it waits for"),
    "waits": (_watched, r"the phase after the one it waits for \(.\) may complete"),
}


@pytest.mark.parametrize("name", PHASES)
@pytest.mark.parametrize("order", ORDERS)
def test_phases_that_a_parity_cannot_tell_apart_are_a_fault(name: str, order: str) -> None:
    write, message = PHASES[name]
    for seed in range(5):
        interpret(write(True), {}, order=order, seed=seed)
        with pytest.raises(KernelFault, match=message):
            interpret(write(False), {}, order=order, seed=seed)


def test_what_lies_between_rows_is_not_written() -> None:
    buffer = ThreadBuilder("k", 1).tensor("y", "f32", (2, 3), strides=(4, 1), output=True)
    y = GlobalTensor(buffer, np.zeros((2, 3), np.float32), {}, "CTA")
    y.write(np.array([2, 4]), np.ones(2, np.float32), True)
    with pytest.raises(KernelFault, match="element 3 is written; expected elements that it has"):
        y.write(np.array([2, 3]), np.ones(2, np.float32), True)
