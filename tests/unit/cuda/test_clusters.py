"""Clusters of CTAs: multicast copies and shared operand tiles, and what the interpreter objects to.

Oracles are numpy's copies and products; every mistake is a fault, or a wrong value, in every order
of effects and at both levels.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from axe_eq.errors import AxeError, DispatchError
from axe_eq.kernel.expr import equal, var
from axe_eq.kernel.show import show
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.kernel.threads.dispatch import Planned
from axe_eq.kernel.threads.interp import ORDERS, KernelFault, interpret
from axe_eq.layout import Layout
from axe_eq_backends.cuda.emit import emit
from axe_eq_backends.cuda.meaning import MEANINGS
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.schedules.gemm import Problem, Tiling, gemm
from axe_eq_backends.cuda.target import h200
from tests.unit.cuda import clustered
from tests.unit.cuda.clustered import RACES, changed, in_step, levels, spread

Write = Callable[[], ir.Kernel]


def copied(kernel: ir.Kernel, planned: Planned | None, order: str, seed: int) -> bool:
    """Whether a copy kernel, run by two clusters, gives every CTA all of x."""
    arrays = clustered.arrays(kernel.cluster, seed)
    run = interpret(
        kernel, arrays, planned=planned, meanings=MEANINGS, order=order, seed=seed,
        n_ctas=2 * kernel.cluster, compare=planned is not None,
    )  # fmt: skip
    assert run.n_ctas == 2 * kernel.cluster
    return bool((run.outputs["y"] == arrays["x"]).all())


RIGHT: dict[str, Write] = {
    "two": spread,
    "four": lambda: spread(4),
    "three stages": lambda: spread(2, 3),
    "by the rank's number": lambda: spread(send=lambda k: (k.rank, (k.rank + 1) % 2)),
    "one sender": in_step,
    "the last of four sends": lambda: in_step(4, sender=3),
}


@pytest.mark.parametrize("name", RIGHT)
def test_multicast_copies_are_right_in_every_order(name: str, full: bool) -> None:
    kernel = RIGHT[name]()
    plan(kernel, h200)
    for planned in levels(kernel):
        for order in ORDERS:
            for seed in range(4 if full and order == "random" else 1):
                assert copied(kernel, planned, order, seed)


# -- mistakes --


def _own(k: ThreadBuilder) -> tuple[Any, ...]:
    return (k.rank,)


def _other(k: ThreadBuilder) -> Any:
    return 1 - k.rank


def _sent_to(*ranks: int) -> ir.Kernel:
    def change(s: ir.Statement) -> None:
        if isinstance(s, ir.CopyAsync) and s.barrier is not None:
            s.ranks = ranks

    return changed(spread(), change)


def _counted_for_one() -> ir.Kernel:
    kernel = spread()
    kernel.barriers[1].arrivals //= 2
    return kernel


def _twice_met() -> ir.Kernel:
    kernel = in_step()
    kernel.body.insert(0, ir.ClusterArrive())
    return kernel


def _never_come() -> ir.Kernel:
    kernel = in_step()
    kernel.body.insert(0, ir.ClusterWait())
    return kernel


def _met_by_one() -> ir.Kernel:
    kernel = in_step()
    meeting = ir.If(equal(var(ir.RANK, high=1), 0), kernel.body[-2:])
    kernel.body[-2:] = [meeting]
    return kernel


MISTAKES: dict[str, tuple[Write, str]] = {
    "no barrier at the end": (lambda: spread(end=False), "CTA . may end before .* arrives in it"),
    "slots released by their own CTA": (lambda: spread(release=_own), RACES),
    "slots released as without clusters": (lambda: spread(release=lambda k: ()), RACES),
    "slots released by the other CTA": (lambda: spread(release=lambda k: (_other(k),)), "phase"),
    "a count for one CTA": (_counted_for_one, "phase"),
    "slots that are not waited for": (lambda: spread(frees=False), RACES),
    "a mask of the own CTA": (lambda: spread(send=lambda k: ()), "never written"),
    "a mask of the other CTA": (lambda: spread(send=lambda k: (_other(k),)), "never written"),
    "a mask without CTA 1": (lambda: _sent_to(0), "deadlock: .* of CTA 1 waits for full"),
    "a mask without CTA 0": (lambda: _sent_to(1), "deadlock: .* of CTA 0 waits for full"),
    "a mask past the cluster": (lambda: _sent_to(0, 2), r"names CTAs \[0, 2\]"),
    "a mask of one CTA twice": (lambda: _sent_to(1, 1), r"names CTAs \[1, 1\]"),
    "every CTA sends the first part": (lambda: spread(source=lambda k: 0), "values"),
    "the other's part is sent": (lambda: spread(source=_other), "values"),
    "parts change places": (lambda: spread(target=_other), "values"),
    "every part to the first place": (lambda: spread(target=lambda k: 0), RACES),
    "copies out of step": (lambda: in_step(arrive=""), RACES),
    "the barrier before the read": (lambda: in_step(arrive="before"), RACES),
    "bytes that are not waited for": (lambda: in_step(wait=False), "never written|" + RACES),
    "two arrivals at the cluster": (_twice_met, "of CTA . arrive twice"),
    "a wait before the arrival": (_never_come, "of CTA . have not arrived"),
    "a barrier for one CTA": (_met_by_one, "deadlock: .* waits for the barrier of its cluster"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_show_in_every_order_and_at_both_levels(name: str, full: bool) -> None:
    write, message = MISTAKES[name]
    kernel = write()
    for planned in levels(kernel):
        for order in ORDERS:
            for seed in range(3 if full and order == "random" else 1):
                if message == "values":
                    assert not copied(kernel, planned, order, seed)
                    continue
                with pytest.raises(KernelFault, match=message):
                    copied(kernel, planned, order, seed)


LINES = Layout([(2, 1, "reg"), (4, 1, "warp"), (32, 1, "lane")])


def _over_ordinary_writes(fence: bool) -> ir.Kernel:
    """CTA 1 writes to its shared memory; then CTA 0 copies x into that of both."""
    k = ThreadBuilder("k", 4, 2)
    x, y = k.tensor("x", "f32", (256,)), k.tensor("y", "f32", (2, 256), output=True)
    s, full, t = (
        k.smem("s", "f32", (256,)),
        k.mbarriers("full", 1),
        k.reg("t", "f32", (256,), LINES),
    )
    k.fill(t.all, 7.0)
    with k.when(equal(k.rank, 1)):
        k.copy(s.all, t.all)
    if fence:
        k.fence_async()
    k.cluster_sync()
    with k.one_thread(), k.arrives(full, 0), k.when(equal(k.rank, 0)):
        k.copy_async(s.all, x.all, ranks=(0, 1))
    k.wait(full, 0, 0)
    k.copy(t.all, s.all)
    k.copy(y[k.rank], t.all)
    k.cluster_sync()
    return k.finish()


def _read_back(other: bool) -> ir.Kernel:
    """Every CTA writes a row of y, and reads one back."""
    k = ThreadBuilder("k", 4, 2)
    y, z = (k.tensor(n, "f32", (2, 256), output=True) for n in "yz")
    t = k.reg("t", "f32", (256,), LINES)
    k.fill(t.all, 7.0)
    k.copy(y[k.rank], t.all)
    k.cluster_sync()
    k.copy(t.all, y[1 - k.rank if other else k.rank])
    k.copy(z[k.rank], t.all)
    return k.finish()


@pytest.mark.parametrize("order", ORDERS)
def test_fences_and_owners_are_those_of_each_cta(order: str) -> None:
    x, two = np.arange(256, dtype=np.float32), np.zeros((2, 256), np.float32)
    fenced, open_ = _over_ordinary_writes(True), _over_ordinary_writes(False)
    own, other = _read_back(False), _read_back(True)
    for kernels, arrays, wanted, message in (
        ((fenced, open_), {"x": x, "y": two}, x, "overwrites ordinary writes"),
        ((own, other), {"y": two, "z": two}, 7.0, "is read where this CTA has not written it"),
    ):
        right, wrong = kernels
        for planned in levels(right):
            found = interpret(right, arrays, planned=planned, meanings=MEANINGS, order=order)
            assert all((a == wanted).all() for a in found.outputs.values())
        for planned in levels(wrong):
            with pytest.raises(KernelFault, match=message):
                interpret(wrong, arrays, planned=planned, meanings=MEANINGS, order=order)


# -- what the language refuses --


def _uneven_bytes(k: ThreadBuilder) -> None:
    x, s, b = k.tensor("x", "f16", (64,)), k.smem("s", "f16", (64,)), k.mbarriers("b", 1)
    with k.one_thread(), k.arrives(b, 0):
        k.copy_async(s.all, x.all, ranks=(0,))


def _uncompleted(k: ThreadBuilder) -> None:
    x, s = k.tensor("x", "f16", (64,)), k.smem("s", "f16", (64,))
    with k.one_thread():
        k.copy_async(s.all, x.all, ranks=(0, 1))


REFUSED: dict[str, tuple[Callable[[ThreadBuilder], object], str]] = {
    "uneven arrivals": (
        lambda k: k.arrive(k.mbarriers("b", 1), 0, ranks=(1,)),
        "CTAs 0 to 1 are reached (0, 2) times; expected the same for every CTA",
    ),
    "uneven bytes": (_uneven_bytes, "copies to s[0:+64]: CTAs 0 to 1 are reached (2, 0) times"),
    "past the cluster": (
        lambda k: k.arrive(k.mbarriers("b", 1), 0, ranks=(0, 2)),
        "names CTAs [0, 2] of a cluster of 2",
    ),
    "no barrier to complete on": (_uncompleted, "to CTAs 0, 1; expected k.arrives"),
    "no cluster": (lambda k: ThreadBuilder("k", 4, 0), "a cluster of 0 CTAs; expected at least 1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_meant_is_refused_at_the_line(name: str) -> None:
    write, message = REFUSED[name]
    with pytest.raises(AxeError) as refusal:
        write(ThreadBuilder("k", 4, 2))
    assert message in str(refusal.value)
    assert refusal.value.at.rpartition(":")[0] == __file__


def test_counts_are_those_of_one_cta() -> None:
    kernel = spread(4)
    assert [b.arrivals for b in kernel.barriers] == [1, 4]
    (expect,) = (s for s, _ in ir.walk(kernel) if isinstance(s, ir.Expect))
    assert expect.n_bytes == clustered.ROWS * clustered.COLS * 2
    (expect,) = (s for s, _ in ir.walk(in_step(4)) if isinstance(s, ir.Expect))
    assert expect.n_bytes == clustered.ROWS * clustered.COLS * 2


def test_one_cta_may_start_the_others() -> None:
    """Arrivals under a condition on the rank come from the CTAs that it holds for."""
    k = ThreadBuilder("k", 4, 4)
    go, y = k.mbarriers("go", 1), k.tensor("y", "f32", (4, 256), output=True)
    t = k.reg("t", "f32", (256,), LINES)
    with k.when(equal(k.rank, 2)), k.one_thread():
        k.arrive(go, 0, ranks=range(4))
    k.wait(go, 0, 0)
    k.fill(t.all, 3.0)
    k.copy(y[k.rank], t.all)
    k.cluster_sync()
    kernel = k.finish()
    assert kernel.barriers[0].arrivals == 1
    for planned in (None, plan(kernel, h200)):
        for order in ORDERS:
            found = interpret(
                kernel, {"y": np.zeros((4, 256), np.float32)}, planned=planned, meanings=MEANINGS,
                order=order,
            )  # fmt: skip
            assert (found.outputs["y"] == 3.0).all()


# -- dispatch, texts --


def test_one_row_copies_into_several_ctas_and_the_others_say_why_not() -> None:
    planned = plan(spread(), h200)
    text = planned.explain()
    assert "ranks=" not in text
    assert "tma.load_multicast (1 boxes of 64x16, swizzle 128 bytes)" in text
    for reason in (
        "not tma.load: the destination is in CTAs 0, 1; needs the own CTA",
        "not cp.async: completes on a barrier",
    ):
        assert reason in text
    alone = plan(gemm(Problem(256, 256, 64), Tiling(128, 128)), h200).explain()
    assert "not tma.load_multicast: the destination is one CTA's; needs CTAs of a cluster" in alone


@pytest.mark.parametrize(
    ("rows", "width", "swizzle", "reason"),
    [
        (4, 64, "sw(3,3,3)", "begins at byte rank * 512; needs a multiple of 1024"),
        (8, 64, "sw(2,3,3)", "a box begins at element rank * 512 + 64"),
        (8, 64, "sw(3,4,3)", "16-byte chunks XORed with 8-row numbers"),
        (8, 61, "sw(3,3,3)", "stride of 122 bytes; needs multiples of 16"),
    ],
)
def test_multicast_copies_need_what_bulk_copies_need(
    rows: int, width: int, swizzle: str, reason: str
) -> None:
    k = ThreadBuilder("k", 4, 2)
    x, full = k.tensor("x", "f16", (64, width)), k.mbarriers("full", 1)
    ring = k.smem("ring", "f16", (16, 64), f"{swizzle}@m . S[(16,64):(64,1)]")
    with k.one_thread(), k.arrives(full, 0):
        part = ir.span(k.rank * rows, rows)
        k.copy_async(ring[part], x[part, ir.span(0, 64)], ranks=(0, 1))
    k.wait(full, 0, 0)
    k.cluster_sync()
    with pytest.raises(DispatchError) as refusal:
        plan(k.finish(), h200)
    (why,) = (r for r in refusal.value.hint.split("; tma.") if "load_multicast: " in r)
    assert reason in why


def test_clusters_are_printed() -> None:
    kernel = spread()
    text = show(kernel, plan(kernel, h200))
    for part in (
        "clusters of 2 CTAs", "persistent over 5 tiles", "for tile in range(cta // 2, 5, n_ctas",
        "completes full[stage_1] of CTAs 0, 1", "arrive empty[stage] of CTAs 0, 1",
        "arrive at the cluster's barrier\n", "wait for the cluster\n", "ranks=(0, 1)",
    ):  # fmt: skip
        assert part in text


def test_golden_text(golden: Callable[..., None]) -> None:
    golden(emit(plan(spread(), h200)).text)
