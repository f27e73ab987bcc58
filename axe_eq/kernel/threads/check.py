"""Static checks of kernels on threads: what a machine would do wrong or refuse, before any plan.

Errors name the statement's place. What depends on values (bounds, races, deadlocks) is the
interpreter's.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from axe_eq.errors import ScheduleError
from axe_eq.kernel import check as common
from axe_eq.kernel.check import INT_MAX, broken
from axe_eq.kernel.expr import Expr, Int, Var, bounds, depends
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.counts import arrivals
from axe_eq.kernel.threads.live import live, words
from axe_eq.target import Target

_SETMAXNREG = range(24, 257, 8)  # what setmaxnreg takes (PTX ISA 9.7.19.5)
_BARRIER_BYTES = 8
Meetings = tuple[Any, ...]  # see `_meetings`
_PHASE_BYTES = (1 << 20) - 1  # that a barrier counts (PTX ISA, mbarrier object)


def check(kernel: ir.Kernel, target: Target) -> None:
    """Run every check.

    Raises:
        ScheduleError: the first rule that the kernel breaks.
    """
    for rule in RULES:
        rule(kernel, target)


def _scopes(kernel: ir.Kernel, target: Target) -> None:
    """Scopes exist on the target; collective statements stand in collective scopes."""
    for s, where in ir.walk(kernel):
        scope = {"elect": "thread"}.get(where.scope, where.scope)
        if scope not in target.scopes:
            raise broken(s, f"scope {scope}", f"a scope of {target.name}")
        if isinstance(s, ir.Sync) and where.scope in ("elect", "thread"):
            raise broken(s, f"sync in scope {where.scope} deadlocks", "a wider scope")
        if isinstance(s, ir.Gemm) and where.scope in ("elect", "thread"):
            raise broken(s, f"a product in scope {where.scope}", "whole warps")
        if isinstance(s, ir.WaitGroup | ir.Commit):
            _check_group(s, where, target)


def _check_group(s: ir.WaitGroup | ir.Commit, where: ir.Where, target: Target) -> None:
    """Groups are waited for and closed by those who issued what is in them."""
    found = target.completion(s.kind)
    if found is None:
        known = " ".join(c.name for c in target.completions) or "none"
        raise broken(s, f"groups of kind {s.kind}", f"a completion of {target.name}: {known}")
    if found.scopes and where.scope not in found.scopes:
        wrong = f"groups of kind {s.kind} in scope {where.scope}"
        raise broken(s, wrong, f"one of {' '.join(found.scopes)}, whose they are")


def _top(kernel: ir.Kernel, target: Target) -> None:
    """Roles stand at the top of a kernel; beside them are integers, signals, cluster barriers."""
    for s, _ in ir.walk(kernel):
        if isinstance(s, ir.Roles) and s not in kernel.body:
            raise broken(s, "inside another statement", "at the top of a kernel")
    if not any(isinstance(s, ir.Roles) for s in kernel.body):
        return
    for s in kernel.body:
        if not isinstance(
            s, ir.Roles | ir.Let | ir.ClusterArrive | ir.ClusterWait | ir.Signal | ir.Clear
        ):
            raise broken(s, "stands beside roles", "statements inside a role")


def _grid(kernel: ir.Kernel, target: Target) -> None:
    """The units of work are counted with 32 bits."""
    if isinstance(kernel.tiles, int) and 2 * kernel.tiles * kernel.cluster > INT_MAX + 1:
        # The loop over them adds the grid's size to the last one.
        wrong = f"has {kernel.tiles} units of work of {kernel.cluster} CTAs"
        raise ScheduleError(f"kernel {kernel.name}", wrong, f"at most {(INT_MAX + 1) // 2} CTAs")


def _capacity(kernel: ir.Kernel, target: Target) -> None:
    """Shared memory and threads fit."""
    capacity, limit = target.memory(ir.SMEM.name).n_bytes, target.most("thread", "cta")
    if kernel.launch_smem_bytes > capacity:
        used = ", ".join(f"{b} {b.n_elements * b.itemsize}" for b in kernel.buffers if b.is_shared)
        raise ScheduleError(
            f"kernel {kernel.name}",
            f"needs {kernel.launch_smem_bytes} bytes of shared memory ({used})",
            f"at most {capacity}",
        )  # fmt: skip
    if 0 < limit < kernel.n_threads:
        raise ScheduleError(f"kernel {kernel.name}", f"{kernel.n_threads} threads", f"{limit}")


def _alignment(kernel: ir.Kernel, target: Target) -> None:
    """Buffers begin where their swizzles do, and barriers at their own size."""
    placed = [(str(b), b.offset, b.alignment) for b in kernel.buffers if b.is_shared]
    placed += [(str(b), b.offset, _BARRIER_BYTES) for b in kernel.barriers]
    for name, offset, alignment in placed:
        if offset % alignment:
            raise ScheduleError(name, f"begins at byte {offset}", f"a multiple of {alignment}")


def _budgets(kernel: ir.Kernel, target: Target) -> None:
    """Register budgets of roles are numbers that the machine can give, and fit together."""
    roles = [r for s in kernel.body if isinstance(s, ir.Roles) for r in s.branches if r.registers]
    for role in roles:
        if role.registers not in _SETMAXNREG:
            raise broken(role, f"{role.registers} registers", "a multiple of 8 in 24..256")
    wanted = sum(r.registers * (r.high - r.low) for r in roles)
    granule = target.limits["register_granule"]
    share = target.limits["registers_per_unit"] // kernel.n_threads
    entry = min(share, target.limits["registers_per_thread"]) // granule * granule
    groups = sum(r.high - r.low for r in roles)
    if wanted > entry * groups:
        raise ScheduleError(
            f"kernel {kernel.name}", f"its roles want {wanted} registers for {groups} warpgroups",
            f"at most {entry * groups}, which the launch gives",
        )  # fmt: skip


def _registers(kernel: ir.Kernel, target: Target) -> None:
    """Accumulators of a role, and the tiles that live at once in it, fit in its registers."""
    share = min(
        target.limits["registers_per_unit"] // kernel.n_threads,
        target.limits["registers_per_thread"],
    )
    accumulators: dict[ir.Role | None, set[ir.Buffer]] = {}
    for s, where in ir.walk(kernel):
        if isinstance(s, ir.Gemm) and s.acc.buffer.is_private:
            tiles = accumulators.setdefault(where.role, set())
            tiles.add(s.acc.buffer)
            most = (where.role and where.role.registers) or share
            if words(tiles) > most:
                wrong = f"accumulators take {words(tiles)} registers a thread"
                raise broken(s, wrong, f"at most {most}")
    roles = [r for s in kernel.body if isinstance(s, ir.Roles) for r in s.branches]
    bodies = [(r.body, r.registers or share) for r in roles] or [(kernel.body, share)]
    for body, most in bodies:
        live(body, frozenset(), partial(_fits, most))


def _fits(most: int, s: ir.Primitive, tiles: frozenset[ir.Buffer]) -> None:
    if words(tiles) > most:
        shown = ", ".join(f"{b} {words({b})}" for b in sorted(tiles, key=lambda b: b.name))
        wrong = f"tiles that live at once take {words(tiles)} registers a thread ({shown})"
        raise broken(s, wrong, f"at most {most}")


def _written(kernel: ir.Kernel, target: Target) -> None:
    """What is read of register tiles is of tiles that the same role writes."""
    written: dict[ir.Role | None, set[ir.Buffer]] = {}
    primitives = [(s, w.role) for s, w in ir.walk(kernel) if isinstance(s, ir.Primitive)]
    for s, role in primitives:
        if not isinstance(s, ir.Gemm) or s.accumulate != 1:
            written.setdefault(role, set()).add(s.views()[0].buffer)
    for s, role in primitives:
        read = s.views() if isinstance(s, ir.Gemm) else s.views()[1:]
        for view in read:
            if view.buffer.is_private and view.buffer not in written.get(role, set()):
                raise broken(s, f"{view} is read, which nothing wrote", "a copy, fill or map to it")


def _barriers(kernel: ir.Kernel, target: Target) -> None:
    """Barriers are arrived at and waited for, in slots that they have, with counts they hold."""
    waited = {s.barrier for s, _ in ir.walk(kernel) if isinstance(s, ir.Wait)}
    for barrier in kernel.barriers:
        found = arrivals(kernel, barrier)
        if not found:  # hardware has no barrier of 0 arrivals
            raise ScheduleError(f"barrier {barrier.name}", "nobody arrives at it", "an arrive")
        if barrier not in waited:
            raise ScheduleError(f"barrier {barrier.name}", "nobody waits for it", "a wait")
    changing = frozenset(s.var.name for s, _ in ir.walk(kernel) if isinstance(s, ir.Assign))
    for s, _ in ir.walk(kernel):
        if isinstance(s, ir.Expect) and s.n_bytes > _PHASE_BYTES:
            raise broken(s, f"{s.n_bytes} bytes for one phase", f"at most {_PHASE_BYTES}")
        if isinstance(s, ir.Wait | ir.Arrive | ir.Expect):
            _check_slot(s, changing)


def _check_slot(s: ir.Wait | ir.Arrive | ir.Expect, changing: frozenset[str]) -> None:
    """A slot lies in its array, as far as it is known; what changes at run time is not."""
    low, high = bounds(s.slot)
    below, above = low is not None and low < 0, high is not None and high >= s.barrier.slots
    if (below or above) and not depends(s.slot, changing):
        wrong = f"slot {s.slot} of {s.barrier}, from {low} to {high}"
        raise broken(s, wrong, f"0 to {s.barrier.slots - 1}")


def _async_completion(kernel: ir.Kernel, target: Target) -> None:
    """Every asynchronous copy completes somewhere: a barrier, or a group that is committed."""
    committed: dict[ir.Role | None, set[str]] = {}
    for s, where in ir.walk(kernel):
        if isinstance(s, ir.Commit):
            committed.setdefault(where.role, set()).add(s.kind)
    for s, where in ir.walk(kernel):
        if isinstance(s, ir.CopyAsync) and s.barrier is None:
            kind = "bulk" if s.dst.buffer.is_global else "cp_async"
            if kind not in committed.get(where.role, set()):
                raise broken(s, f"no commit of kind {kind} in its role", f"k.commit({kind!r})")


def _cluster(kernel: ir.Kernel, target: Target) -> None:
    """Clusters exist and are no larger than the machine's; all their threads meet in pairs.

    A CTA that others reach into must not end before they have: such a kernel ends with a barrier of
    the cluster.
    """
    most = target.most("cta", "cluster") if "cluster" in target.scopes else 1
    if 0 < most < kernel.cluster:
        wrong = f"clusters of {kernel.cluster} CTAs"
        raise ScheduleError(f"kernel {kernel.name}", wrong, f"at most {most} on {target.name}")
    _check_meetings(kernel.body, kernel.cluster, "")
    for s, _ in ir.walk(kernel):
        reaches = isinstance(s, ir.Fetch) or (isinstance(s, ir.Arrive | ir.CopyAsync) and s.ranks)
        if reaches and not isinstance(kernel.body[-1], ir.ClusterWait):
            raise broken(s, "a CTA may end before this reaches it", "k.cluster_sync() at the end")


def _check_meetings(body: ir.Body, cluster: int, apart: str) -> None:
    """Every arrive has its wait in the same body, and all roles meet alike.

    Args:
        body: statements.
        cluster: CTAs of a cluster.
        apart: why not all threads of the cluster come there; "" where they do.
    """
    arrived: ir.Statement | None = None
    for s in body:
        if isinstance(s, ir.ClusterArrive | ir.ClusterWait):
            if apart:
                raise broken(s, f"stands {apart}", "where all threads of the cluster come")
            if isinstance(s, ir.ClusterWait) == (arrived is None):
                raise broken(s, "is out of turn", "an arrive, then a wait")
            arrived = s if arrived is None else None
        for part in ir.children(s):
            _check_meetings(part, cluster, apart or _apart(s, cluster))
        if isinstance(s, ir.Roles) and len({_meetings(role.body) for role in s.branches}) > 1:
            met = [_how_often(_meetings(role.body)) for role in s.branches]
            raise broken(s, f"its roles meet the cluster {met} times", "all the same")
    if arrived is not None:
        raise broken(arrived, "is not waited for", "k.cluster_wait()")


def _meetings(body: ir.Body) -> Meetings:
    """Where a body meets the cluster: by itself, or in loops and branches that values decide."""
    found: list[Any] = []
    for s in body:
        if isinstance(s, ir.ClusterWait):
            found.append(())
        elif inner := tuple(x for part in ir.children(s) for x in _meetings(part)):
            found.append((*s.uniform(), inner))
    return tuple(found)


def _how_often(meetings: Meetings) -> int:
    return sum(_how_often(m[-1]) if m else 1 for m in meetings)


def _apart(s: ir.Statement, cluster: int) -> str:
    """Why not all threads of a cluster come into a body of this statement; "" where they do.

    CTAs of one cluster have one number of a cluster, `CTA // cluster`.
    """
    if isinstance(s, ir.Scope):
        return f"in scope {s.kind}"
    same = ir.CTA // cluster
    ranked = any(_tells(e, same) for e in s.uniform())
    return "where the rank decides" if ranked else ""


def _tells(e: Int, same: Int) -> bool:
    """Whether a value tells CTAs of a cluster apart, by all that is known of it here."""
    if not isinstance(e, Expr) or e == same:
        return False
    own = isinstance(e, Var) and e.name in (ir.CTA.name, ir.RANK)
    return own or any(_tells(x, same) for x in e.args)


RULES: tuple[Callable[[ir.Kernel, Target], None], ...] = (
    common.check_memories, _scopes, _top, common.check_variables, common.check_inside,
    common.check_integers, _grid, _capacity, _alignment, _budgets, _registers, _written, _barriers,
    _async_completion, _cluster,
)  # fmt: skip
