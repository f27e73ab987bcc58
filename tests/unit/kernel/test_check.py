"""Static checks: every rule refuses what only it refuses, at the user's line."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from axe_eq.errors import AxeError, ScheduleError
from axe_eq.kernel.expr import Int, equal, var
from axe_eq.kernel.spaces import SHARED, Space
from axe_eq.kernel.threads import check, ir
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.kernel.threads.ir import span
from axe_eq.layout import Layout
from axe_eq_backends.cuda.schedules.gemm import Problem, Tiling, gemm
from axe_eq_backends.cuda.target import h200
from axe_eq_backends.cuda.wgmma import accumulator

THREADS = Layout([(4, 1, "warp"), (32, 1, "lane")])
Write = Callable[[ThreadBuilder], Any]


def kernel(write: Write, warps: int = 4) -> ir.Kernel:
    k = ThreadBuilder("k", warps)
    write(k)
    return k.finish()


def _in_one_thread(statement: Write) -> Write:
    def write(k: ThreadBuilder) -> None:
        with k.one_thread():
            statement(k)

    return write


def _in_each_thread(statement: Write) -> Write:
    def write(k: ThreadBuilder) -> None:
        with k.each_thread():
            statement(k)

    return write


def _bare_sync(k: ThreadBuilder) -> None:
    """A sync that the builder would refuse, as a changed kernel may have it."""
    node = ir.Scope("elect")
    node.body.append(ir.Sync(at=f"{__file__}:1"))
    k.kernel.body.append(node)


def _product(k: ThreadBuilder) -> None:
    a, b = k.smem("a", "f16", (64, 64)), k.smem("b", "f16", (64, 64))
    k.gemm_async(k.reg("c", "f32", (64, 64), accumulator(64, 64)).all, a.all, b.all, 0)


def _inner_roles(k: ThreadBuilder) -> None:
    node = ir.If(equal(ir.CTA, 0), [ir.Roles(at=f"{__file__}:1")])
    k.kernel.body.append(node)


def _beside_roles(k: ThreadBuilder) -> None:
    with k.roles(), k.warpgroups(0, 1):
        pass
    k.sync()


def _changed_by_one(k: ThreadBuilder) -> None:
    stage = k.state("stage", 0, high=3)
    with k.one_thread():
        k.assign(stage, stage + 1)


def _pipe_of_all_advanced_by_one(k: ThreadBuilder) -> None:
    pipe = k.pipe(2)
    with k.one_thread():
        pipe.advance()


def _used_outside(k: ThreadBuilder) -> None:
    with k.when(equal(ir.CTA, 0)):
        inner = k.let("inner", ir.CTA * 2)
    k.let("outer", inner + 1)


def _loop_variable_outside(k: ThreadBuilder) -> None:
    with k.range(4) as i:
        pass
    k.let("after", i + 1)


def _foreign_variable(k: ThreadBuilder) -> None:
    x, s = k.tensor("x", "f32", (1024,)), k.reg("s", "f32", (128,), THREADS)
    k.copy(s.all, x[span(var("elsewhere", 128), 128)])


def _branch_of_a_thread(k: ThreadBuilder) -> None:
    with k.each_thread() as thread, k.when(thread < 5):
        pass


def _loop_of_a_warp(k: ThreadBuilder) -> None:
    with k.each_warp() as warp, k.range(warp + 1):
        pass


def _wait_only(k: ThreadBuilder) -> None:
    k.wait(k.mbarriers("b", 1), 0, 0)


def _arrive_only(k: ThreadBuilder) -> None:
    k.arrive(k.mbarriers("b", 1), 0)


def _uncommitted(k: ThreadBuilder) -> None:
    x, s = k.tensor("x", "f16", (64, 64), output=True), k.smem("s", "f16", (64, 64))
    with k.one_thread():
        k.copy_async(x.all, s.all)


def _uncommitted_loads(k: ThreadBuilder) -> None:
    k.copy_async(k.smem("s", "f16", (64, 64)).all, k.tensor("x", "f16", (64, 64)).all)


def _wide_accumulators(k: ThreadBuilder) -> None:
    a = k.smem("a", "f16", (64, 64))
    for n in range(3):
        acc = k.reg(f"acc{n}", "f32", (64, 256), accumulator(64, 256))
        k.gemm_async(acc.all, a.all, k.smem(f"b{n}", "f16", (256, 64)).all, 0)


def _held(*n_registers: int, together: bool = True) -> Write:
    """Tiles of so many registers, written and then read, all or one by one."""

    def write(k: ThreadBuilder) -> None:
        pairs = []
        for number, n in enumerate(n_registers):
            layout = Layout([(n, 1, "reg"), (4, 1, "warp"), (32, 1, "lane")])
            out = k.tensor(f"out{number}", "f32", (128 * n,), output=True)
            pairs.append((out, k.reg(f"t{number}", "f32", (128 * n,), layout)))
        for out, tile in pairs:
            k.fill(tile.all, 1.0)
            if not together:
                k.copy(out.all, tile.all)
        for out, tile in pairs if together else []:
            k.copy(out.all, tile.all)

    return write


def _held_around_a_loop(k: ThreadBuilder) -> None:
    layout = Layout([(130, 1, "reg"), (4, 1, "warp"), (32, 1, "lane")])
    kept, inner = (k.reg(name, "f32", (128 * 130,), layout) for name in ("kept", "inner"))
    k.fill(kept.all, 1.0)
    with k.range(4):
        k.fill(inner.all, 2.0)
        k.copy(inner.all, kept.all)


def _held_in_a_role(k: ThreadBuilder) -> None:
    with k.roles():
        with k.warpgroups(0, 1):
            k.sync()
        with k.warpgroups(1, 3):
            _held(200)(k)
            _held(241)(k)


def _tensor_memory(k: ThreadBuilder) -> None:
    place = k.smem("s", "f32", (4,)).place
    k.kernel.buffers.append(ir.Buffer("t", Space("tmem", SHARED, ("m",)), "f32", (4,), place))


def _beyond(memory: str) -> Write:
    """A part that the builder would refuse, as a changed kernel may have it."""

    def write(k: ThreadBuilder) -> None:
        t, s = k.reg("t", "f32", (128,), THREADS), k.smem("s", "f32", (128,))
        k.copy(t.all, s.all)
        copy = k.kernel.body[-1]
        assert isinstance(copy, ir.Copy)
        if memory == "reg":
            copy.dst = replace(copy.dst, begin=(128,))
        else:
            copy.src = replace(copy.src, begin=(-1,))

    return write


def _tile_beyond_32_bits(k: ThreadBuilder) -> None:
    with k.range(1 << 21) as i:
        k.let("begin", i * 2048)


def _end_beyond_32_bits(k: ThreadBuilder) -> None:
    x, s = k.tensor("x", "f32", (1 << 32,)), k.reg("s", "f32", (128,), THREADS)
    with k.range(1 << 24) as i:
        k.copy(s.all, x[span(i * 128 + 64, 128)])


def _positions_beyond_32_bits(k: ThreadBuilder) -> None:
    with k.range(1 << 24) as i:
        k.index(k.reg("s", "i32", (128,), THREADS).all, 0, i * 128 + 64)


def _last_step_beyond_32_bits(k: ThreadBuilder) -> None:
    with k.range((1 << 31) - 2, step=4):
        pass


def _many_tiles(k: ThreadBuilder) -> None:
    with k.tiles((1 << 30) + 1, persistent=False):
        pass


def _read_of_nothing(k: ThreadBuilder) -> None:
    x, s = k.tensor("x", "f32", (128,), output=True), k.reg("s", "f32", (128,), THREADS)
    k.copy(x.all, s.all)


def _sum_onto_nothing(k: ThreadBuilder) -> None:
    a, b = k.smem("a", "f16", (64, 64)), k.smem("b", "f16", (64, 64))
    k.gemm_async(k.reg("c", "f32", (64, 64), accumulator(64, 64)).all, a.all, b.all, 1)


def _written_in_another_role(k: ThreadBuilder) -> None:
    x, s = k.tensor("x", "f32", (128,), output=True), k.reg("s", "f32", (128,), THREADS)
    with k.roles():
        with k.warpgroups(0, 1):
            k.fill(s.all, 0.0)
        with k.warpgroups(1, 2):
            k.copy(x.all, s.all)


def _slot_of_a_loop(k: ThreadBuilder) -> None:
    b = k.mbarriers("b", 2)
    with k.range(3) as i:
        k.wait(b, i, 0)
    k.arrive(b, 0)


def _long_phase(k: ThreadBuilder) -> None:
    b, x = k.mbarriers("b", 1), k.tensor("x", "f16", (256, 256))
    s = k.smem("s", "f16", (256, 256))
    with k.one_thread(), k.arrives(b, 0):
        for _ in range(9):
            k.copy_async(s.all, x.all)
    k.wait(b, 0, 0)


def _in_clusters(n: int, write: Write) -> Write:
    def clustered(k: ThreadBuilder) -> None:
        k.kernel.cluster = n
        write(k)

    return clustered


def _meeting_of_one_role(k: ThreadBuilder) -> None:
    with k.roles():
        with k.warpgroups(0, 1):
            k.cluster_sync()
        with k.warpgroups(1, 2) as wg:
            k.let("nothing", wg + 1)


def _meet_in_loops(*starts: Callable[[ThreadBuilder], Int]) -> Write:
    """Meet the cluster in a loop of every role, from these numbers on."""

    def write(k: ThreadBuilder) -> None:
        with k.roles():
            for number, start in enumerate(starts):
                with k.warpgroups(number, number + 1), k.range(64, start(k)):
                    k.cluster_sync()

    return write


def _fetches_at_the_end(k: ThreadBuilder) -> None:
    held = k.reg("held", "f32", (128,), Layout([(4, 1, "warp"), (32, 1, "lane")]))
    there = k.smem("there", "f32", (128,))
    k.fill(held.all, 0.0)
    k.copy(there.all, held.all)
    k.cluster_sync()
    k.fetch(held.all, there.all, 1)


def _meeting_of_one_cta(k: ThreadBuilder) -> None:
    with k.when(equal(k.rank, 0)):
        k.cluster_sync()


def _reaches_at_the_end(k: ThreadBuilder) -> None:
    b = k.mbarriers("b", 1)
    k.arrive(b, 0, ranks=(0, 1))
    k.wait(b, 0, 0)


# Rule -> what it refuses: how to write it, warps, and what the message says.
BROKEN: dict[str, list[tuple[Write, int, str]]] = {
    "check_memories": [(_tensor_memory, 4, "has no memory 'tmem'")],
    "_scopes": [
        (_bare_sync, 4, "sync in scope elect deadlocks"),
        (_in_one_thread(_product), 4, "a product in scope elect"),
        (_in_each_thread(_product), 4, "a product in scope thread"),
        (lambda k: k.wait_group("bulk", 0), 4, "kind bulk in scope cta; expected one of elect"),
        (lambda k: k.commit("bulk"), 4, "groups of kind bulk in scope cta; expected one of elect"),
        (_in_one_thread(lambda k: k.wait_group("wgmma", 0)), 4, "kind wgmma in scope elect"),
        (_in_one_thread(lambda k: k.commit("cp_async")), 4, "groups of kind cp_async in scope"),
        (_in_one_thread(lambda k: k.wait_group("cp_async", 0)), 4, "kind cp_async in scope elect"),
    ],
    "_top": [
        (_beside_roles, 4, "beside roles"),
        (_inner_roles, 4, "inside another statement"),
    ],
    "check_variables": [
        (_changed_by_one, 4, "stage of scope cta changes in scope elect"),
        (_pipe_of_all_advanced_by_one, 4, "stage of scope cta changes in scope elect"),
        (_used_outside, 4, "inner is not declared here"),
        (_loop_variable_outside, 4, "i is not declared here"),
        (_foreign_variable, 4, "elsewhere is not declared here"),
        (_branch_of_a_thread, 4, "thread < 5 depends on the thread"),
        (_loop_of_a_warp, 4, "warp + 1 depends on the thread"),
    ],
    "check_inside": [
        (_beyond("reg"), 4, "t[128:+128] is not inside t"),
        (_beyond("smem"), 4, "s[-1:+128] is not inside s"),
    ],
    "check_integers": [
        (_tile_beyond_32_bits, 4, "counts to 4294965248 (i * 2048); expected at most 2147483647"),
        (_end_beyond_32_bits, 4, "counts to 2147483711 (i * 128 + 191)"),
        (_positions_beyond_32_bits, 4, "counts to 2147483711 (i * 128 + 191)"),
        (_last_step_beyond_32_bits, 4, "counts to 2147483650"),
    ],
    "_grid": [
        (_many_tiles, 4, "has 1073741825 units of work of 1 CTAs; expected at most 1073741824"),
    ],
    "_capacity": [
        (lambda k: k.smem("s", "f32", (60000,)), 4, "240128 bytes of shared memory (s 240000)"),
        # It begins at a multiple of 128 bytes, for which a launch asks for more.
        (lambda k: k.smem("s", "f32", (227 * 256,)), 4, "232576 bytes of shared memory"),
    ],
    "_registers": [
        (_wide_accumulators, 4, "gemm: accumulators take 256 registers a thread; expected at m"),
        (_held(4000), 4, "fill: tiles that live at once take 4000 registers a thread (t0 4000)"),
        (_held(128, 128), 4, "take 256 registers a thread (t0 128, t1 128); expected at most 255"),
        (_held_around_a_loop, 4, "take 260 registers a thread (inner 130, kept 130)"),
        (_held_in_a_role, 12, "take 241 registers a thread (t0_1 241); expected at most 232"),
    ],
    "_written": [
        (_read_of_nothing, 4, "s[0:+128] is read, which nothing wrote"),
        (_sum_onto_nothing, 4, "c[0:+64, 0:+64] is read, which nothing wrote"),
        (_written_in_another_role, 8, "s[0:+128] is read, which nothing wrote"),
    ],
    "_barriers": [
        (_wait_only, 4, "nobody arrives"),
        (lambda k: k.mbarriers("b", 1), 4, "nobody arrives"),
        (_arrive_only, 4, "nobody waits"),
        (_slot_of_a_loop, 4, "slot i of b, from 0 to 2; expected 0 to 1"),
        (_long_phase, 4, "1179648 bytes for one phase; expected at most 1048575"),
    ],
    "_async_completion": [
        (_uncommitted, 4, "no commit of kind bulk"),
        (_uncommitted_loads, 4, "no commit of kind cp_async"),
    ],
    "_cluster": [
        (_in_clusters(16, lambda k: None), 4, "clusters of 16 CTAs; expected at most 8 on h200"),
        (_in_one_thread(lambda k: k.cluster_sync()), 4, "stands in scope elect"),
        (_in_clusters(2, _meeting_of_one_role), 8, "its roles meet the cluster [1, 0] times"),
        (_in_clusters(2, _meet_in_loops(lambda k: 0, lambda k: 1)), 8, "roles meet the cluster"),
        (_in_clusters(2, _meet_in_loops(lambda k: k.rank)), 4, "stands where the rank decides"),
        (_in_clusters(2, _meet_in_loops(lambda k: ir.CTA)), 4, "stands where the rank decides"),
        (_in_clusters(2, _meeting_of_one_cta), 4, "stands where the rank decides"),
        (lambda k: k.cluster_arrive(), 4, "is not waited for"),
        (lambda k: k.cluster_wait(), 4, "is out of turn; expected an arrive, then a wait"),
        (_in_clusters(2, _reaches_at_the_end), 4, "a CTA may end before this reaches it"),
        (_in_clusters(2, _fetches_at_the_end), 4, "a CTA may end before this reaches it"),
    ],
}  # fmt: skip
CASES = [(rule, n) for rule, cases in BROKEN.items() for n in range(len(cases))]


@pytest.mark.parametrize(("rule", "number"), CASES)
def test_what_a_rule_refuses_is_refused_at_the_user_s_line(rule: str, number: int) -> None:
    write, warps, message = BROKEN[rule][number]
    broken = kernel(write, warps)
    with pytest.raises(AxeError) as refusal:
        check.check(broken, h200)
    assert message in str(refusal.value)
    # Rules about a statement name its line; those about a whole kernel name the kernel's part.
    assert refusal.value.at.startswith(__file__) or refusal.value.thing.startswith(
        ("kernel k", "barrier b", "target 'h200'")
    )


@pytest.mark.parametrize(("rule", "number"), CASES)
def test_no_other_rule_refuses_it(rule: str, number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    write, warps, _ = BROKEN[rule][number]
    rest = tuple(r for r in check.RULES if r.__name__ != rule)
    assert len(rest) == len(check.RULES) - 1
    monkeypatch.setattr(check, "RULES", rest)
    check.check(kernel(write, warps), h200)


# What is derived when a kernel is finished, changed afterwards.


def _odd_budget(k: ir.Kernel) -> None:
    k.body[-1].branches[0].registers = 44  # type: ignore[attr-defined]


def _greedy_budget(k: ir.Kernel) -> None:
    k.body[-1].branches[1].registers += 8  # type: ignore[attr-defined]


def _shifted_ring(k: ir.Kernel) -> None:
    next(b for b in k.buffers if b.memory == "smem").offset += 128


def _shifted_barrier(k: ir.Kernel) -> None:
    k.barriers[0].offset += 4


CHANGED: dict[str, tuple[Callable[[ir.Kernel], None], str]] = {
    "_budgets odd": (_odd_budget, "44 registers; expected a multiple of 8"),
    "_budgets sum": (_greedy_budget, "its roles want 520 registers for 3 warpgroups"),
    "_alignment ring": (_shifted_ring, "begins at byte 128; expected a multiple of 1024"),
    "_alignment barrier": (_shifted_barrier, "expected a multiple of 8"),
}


@pytest.mark.parametrize("name", CHANGED)
def test_wrong_derived_numbers_are_refused(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    change, message = CHANGED[name]
    made = gemm(Problem(256, 256, 192), Tiling(128, 128, 64, 3))
    check.check(made, h200)
    change(made)
    with pytest.raises(ScheduleError) as refusal:
        check.check(made, h200)
    assert message in str(refusal.value)
    rest = tuple(r for r in check.RULES if r.__name__ != name.partition(" ")[0])
    monkeypatch.setattr(check, "RULES", rest)
    check.check(made, h200)


def test_tiles_that_live_one_after_another_share_registers() -> None:
    check.check(kernel(_held(255, 255, together=False)), h200)


def test_every_rule_has_a_case() -> None:
    cases = {*BROKEN, *(name.partition(" ")[0] for name in CHANGED)}
    assert cases == {rule.__name__ for rule in check.RULES}


def test_arrivals_that_differ_within_a_role_are_refused_at_the_line() -> None:
    def write(k: ThreadBuilder) -> None:
        b = k.mbarriers("b", 1)
        k.arrive(b, 0)
        with k.one_thread():
            k.arrive(b, 0)

    with pytest.raises(ScheduleError, match="1 arrivals here, 128 elsewhere in the role") as found:
        kernel(write)
    assert found.value.at.startswith(__file__)


def test_too_many_threads_are_refused() -> None:
    made = kernel(lambda k: None, 32)
    with pytest.raises(ScheduleError, match="1024 threads; expected 512"):
        check.check(made, h200.replace(warpgroup=4))


def test_a_scope_that_the_machine_lacks_is_refused() -> None:
    target = h200.replace(levels=("device", "cta", "thread"), instrs=())

    def write(k: ThreadBuilder) -> None:
        with k.roles(), k.warpgroups(0, 1):
            k.sync()

    with pytest.raises(ScheduleError, match="scope warpgroup") as refusal:
        check.check(kernel(write), target)
    assert Path(refusal.value.at.rpartition(":")[0]) == Path(__file__)
