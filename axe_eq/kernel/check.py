"""Static checks of a kernel: what a machine would do wrong or refuse, found before any plan.

Errors name the statement's place. What depends on values (bounds, races, deadlocks) is the
interpreter's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from axe_eq.errors import ScheduleError
from axe_eq.kernel import ir
from axe_eq.kernel.counts import arrivals
from axe_eq.kernel.expr import Expr, Int, bounds, depends, variables
from axe_eq.kernel.live import live, words
from axe_eq.kernel.placement import number
from axe_eq.target import Target

# Scopes whose threads run for themselves, and the number that tells them apart.
_THREAD_NUMBERS = {"warp": {ir.WARP.name}, "thread": {ir.WARP.name, ir.LANE.name, ir.THREAD.name}}
_SETMAXNREG = range(24, 257, 8)  # what setmaxnreg takes (PTX ISA 9.7.19.5)
_BARRIER_BYTES = 8
_PHASE_BYTES = (1 << 20) - 1  # that a barrier counts (PTX ISA, mbarrier object)
_INT_MAX = (1 << 31) - 1  # kernels count with 32 bits; element numbers of tensors may be wider


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
            raise _broken(s, f"scope {scope}", f"a scope of {target.name}")
        if isinstance(s, ir.Sync) and where.scope in ("elect", "thread"):
            raise _broken(s, f"sync in scope {where.scope} deadlocks", "a wider scope")
        if isinstance(s, ir.Gemm) and where.scope in ("elect", "thread"):
            raise _broken(s, f"a product in scope {where.scope}", "whole warps")
        if isinstance(s, ir.WaitGroup | ir.Commit):
            _check_group(s, where)


def _check_group(s: ir.WaitGroup | ir.Commit, where: ir.Where) -> None:
    """Groups are waited for and closed by those who issued what is in them."""
    if s.kind.startswith("bulk") and where.scope != "elect":
        raise _broken(s, "bulk groups belong to the issuing thread", "k.one_thread()")
    if s.kind == "wgmma" and where.scope in ("elect", "thread", "warp"):
        raise _broken(s, f"groups of products in scope {where.scope}", "the whole warpgroup")
    if s.kind == "cp_async" and where.scope == "elect":
        raise _broken(s, "every thread has groups of its own copies", "all threads that copy")


def _top(kernel: ir.Kernel, target: Target) -> None:
    """Roles stand at the top of a kernel; beside them are integers and barriers of the cluster."""
    for s, _ in ir.walk(kernel):
        if isinstance(s, ir.Roles) and s not in kernel.body:
            raise _broken(s, "inside another statement", "at the top of a kernel")
    if not any(isinstance(s, ir.Roles) for s in kernel.body):
        return
    for s in kernel.body:
        if not isinstance(s, ir.Roles | ir.Let | ir.ClusterArrive | ir.ClusterWait):
            raise _broken(s, "stands beside roles", "statements inside a role")


def _variables(kernel: ir.Kernel, target: Target) -> None:
    """Values are used where they are declared, and changed by the threads that share them.

    The threads of a scope run in step, so what controls them is one value for all of them: it does
    not depend on the thread, and no single thread changes it for the others.
    """
    own = (ir.CTA.name, ir.N_CTAS.name, *([ir.RANK] if kernel.cluster > 1 else []))
    known = dict.fromkeys([*(p.name for p in kernel.params), *own], "cta")
    # Beside roles every warpgroup computes the integers of the top for itself.
    divided = any(isinstance(s, ir.Roles) for s in kernel.body)
    _check_body(kernel.body, ir.Where("warpgroup" if divided else "cta", kernel.n_warps), known)


def _check_body(body: ir.Body, where: ir.Where, outer: dict[str, str]) -> None:
    known = dict(outer)
    for s in body:
        for e in _uniform(s):
            _check_known(s, e, known)
        if isinstance(s, ir.Primitive):
            for e in _places(s):
                own = dict.fromkeys(_THREAD_NUMBERS.get(where.scope, ()), where.scope)
                _check_known(s, e, known | own)
        if isinstance(s, ir.Assign) and known.get(s.var.name) != where.scope:
            wrong = f"{s.var} of scope {known.get(s.var.name)} changes in scope {where.scope}"
            raise _broken(s, wrong, "a change by all threads that have it")
        if isinstance(s, ir.Let):
            known[s.var.name] = where.scope
        if isinstance(s, ir.Roles):
            for role in s.branches:
                group = ir.Where("warpgroup", ir.WARPS_PER_GROUP, role)
                _check_body(role.body, group, known | {role.var.name: "warpgroup"})
            continue
        inner = known | ({s.var.name: where.scope} if isinstance(s, ir.For) else {})
        for part in ir.children(s):
            _check_body(part, where.inside(s), inner)


def _check_known(s: ir.Statement, e: Int, known: dict[str, str]) -> None:
    for v in variables(e):
        if v.name not in known:
            own = v.name in _THREAD_NUMBERS["thread"]
            wrong = f"{e} depends on the thread" if own else f"{v} is not declared here"
            raise _broken(s, wrong, "one value for the whole scope" if own else "a value in scope")


def _uniform(s: ir.Statement) -> Iterator[Int]:
    """Expressions that are one value for all threads of the scope."""
    match s:
        case ir.For():
            yield from (s.start, s.stop, s.step)
        case ir.If():
            yield s.condition
        case ir.Let() | ir.Assign():
            yield s.value
        case ir.Wait():
            yield from (s.slot, s.parity)
        case ir.Arrive() | ir.CopyAsync():
            yield from (s.slot, *s.ranks)
        case ir.Expect():
            yield s.slot
        case ir.Gemm():
            yield s.accumulate


def _places(s: ir.Primitive) -> Iterator[Int]:
    """Where the operands of a primitive begin, which may differ between threads."""
    for view in s.views():
        yield from view.begin
    if isinstance(s, ir.Index):
        yield s.begin


def _integers(kernel: ir.Kernel, target: Target) -> None:
    """Integers fit in 32 bits, as far as they are known before a launch."""
    if isinstance(kernel.tiles, int) and 2 * kernel.tiles * kernel.cluster > _INT_MAX + 1:
        # The loop over them adds the grid's size to the last one.
        wrong = f"has {kernel.tiles} units of work of {kernel.cluster} CTAs"
        raise ScheduleError(f"kernel {kernel.name}", wrong, f"at most {(_INT_MAX + 1) // 2} CTAs")
    given = {p.name for p in kernel.params}
    for s, _ in ir.walk(kernel):
        if isinstance(s, ir.Let) and depends(s.value, frozenset(given)):
            given.add(s.var.name)
        if isinstance(s, ir.For) and depends(s.stop, frozenset(given)):
            given.add(s.var.name)
        for e in _counted(s):
            if not depends(e, frozenset(given)) and (wide := _too_wide(e)) is not None:
                raise ScheduleError(
                    f"kernel {kernel.name}", f"counts to {bounds(wide)[1]} ({wide})",
                    f"at most {_INT_MAX}, what 32 bits hold", at=s.at,
                )  # fmt: skip


def _counted(s: ir.Statement) -> Iterator[Int]:
    """Integers of a statement, and where the operands of primitives end."""
    yield from _uniform(s)
    if isinstance(s, ir.For):
        yield s.stop + s.step
    if isinstance(s, ir.Index):
        yield s.begin + (number(s.out.shape[s.dim]) - 1)
    for view in s.views() if isinstance(s, ir.Primitive) else ():
        yield from (b + (e - 1) for b, e in zip(view.begin, view.extent, strict=True))


def _too_wide(e: Int) -> Int | None:
    """A part of an expression that 32 bits are proven not to hold at its bounds."""
    low, high = bounds(e)
    if (high is not None and high > _INT_MAX) or (low is not None and low < -_INT_MAX - 1):
        return e
    parts = (_too_wide(x) for x in e.args) if isinstance(e, Expr) else ()
    return next((x for x in parts if x is not None), None)


def _capacity(kernel: ir.Kernel, target: Target) -> None:
    """Shared memory and threads fit."""
    capacity, limit = target.memory("smem").n_bytes, target.limits["threads_per_cta"]
    if kernel.launch_smem_bytes > capacity:
        used = ", ".join(
            f"{b} {b.n_elements * b.itemsize}" for b in kernel.buffers if b.memory == "smem"
        )
        raise ScheduleError(
            f"kernel {kernel.name}",
            f"needs {kernel.launch_smem_bytes} bytes of shared memory ({used})",
            f"at most {capacity}",
        )  # fmt: skip
    if kernel.n_threads > limit:
        raise ScheduleError(f"kernel {kernel.name}", f"{kernel.n_threads} threads", f"{limit}")


def _inside(kernel: ir.Kernel, target: Target) -> None:
    """Parts of registers and shared memory lie inside their buffers, as far as they are known."""
    for s, _ in ir.walk(kernel):
        for view in s.views() if isinstance(s, ir.Primitive) else ():
            if view.buffer.memory != "gmem" and not _is_inside(view):
                raise _broken(s, f"{view} is not inside {view.buffer}", f"{view.buffer.shape}")


def _is_inside(view: ir.View) -> bool:
    return all(
        begin >= 0 and begin + extent <= number(size)
        for begin, extent, size in zip(view.begin, view.extent, view.buffer.shape, strict=True)
        if isinstance(begin, int)
    )


def _alignment(kernel: ir.Kernel, target: Target) -> None:
    """Buffers begin where their swizzles do, and barriers at their own size."""
    placed = [(str(b), b.offset, b.alignment) for b in kernel.buffers if b.memory == "smem"]
    placed += [(str(b), b.offset, _BARRIER_BYTES) for b in kernel.barriers]
    for name, offset, alignment in placed:
        if offset % alignment:
            raise ScheduleError(name, f"begins at byte {offset}", f"a multiple of {alignment}")


def _budgets(kernel: ir.Kernel, target: Target) -> None:
    """Register budgets of roles are numbers that the machine can give, and fit together."""
    roles = [r for s in kernel.body if isinstance(s, ir.Roles) for r in s.branches if r.registers]
    for role in roles:
        if role.registers not in _SETMAXNREG:
            raise _broken(role, f"{role.registers} registers", "a multiple of 8 in 24..256")
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
        if isinstance(s, ir.Gemm) and s.acc.buffer.memory == "reg":
            tiles = accumulators.setdefault(where.role, set())
            tiles.add(s.acc.buffer)
            most = (where.role and where.role.registers) or share
            if words(tiles) > most:
                wrong = f"accumulators take {words(tiles)} registers a thread"
                raise _broken(s, wrong, f"at most {most}")
    roles = [r for s in kernel.body if isinstance(s, ir.Roles) for r in s.branches]
    bodies = [(r.body, r.registers or share) for r in roles] or [(kernel.body, share)]
    for body, most in bodies:
        live(body, frozenset(), partial(_fits, most))


def _fits(most: int, s: ir.Primitive, tiles: frozenset[ir.Buffer]) -> None:
    if words(tiles) > most:
        shown = ", ".join(f"{b} {words({b})}" for b in sorted(tiles, key=lambda b: b.name))
        wrong = f"tiles that live at once take {words(tiles)} registers a thread ({shown})"
        raise _broken(s, wrong, f"at most {most}")


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
            if view.buffer.memory == "reg" and view.buffer not in written.get(role, set()):
                raise _broken(
                    s, f"{view} is read, which nothing wrote", "a copy, fill or map to it"
                )


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
            raise _broken(s, f"{s.n_bytes} bytes for one phase", f"at most {_PHASE_BYTES}")
        if isinstance(s, ir.Wait | ir.Arrive | ir.Expect):
            _check_slot(s, changing)


def _check_slot(s: ir.Wait | ir.Arrive | ir.Expect, changing: frozenset[str]) -> None:
    """A slot lies in its array, as far as it is known; what changes at run time is not."""
    low, high = bounds(s.slot)
    below, above = low is not None and low < 0, high is not None and high >= s.barrier.slots
    if (below or above) and not depends(s.slot, changing):
        wrong = f"slot {s.slot} of {s.barrier}, from {low} to {high}"
        raise _broken(s, wrong, f"0 to {s.barrier.slots - 1}")


def _async_completion(kernel: ir.Kernel, target: Target) -> None:
    """Every asynchronous copy completes somewhere: a barrier, or a group that is committed."""
    committed: dict[ir.Role | None, set[str]] = {}
    for s, where in ir.walk(kernel):
        if isinstance(s, ir.Commit):
            committed.setdefault(where.role, set()).add(s.kind)
    for s, where in ir.walk(kernel):
        if isinstance(s, ir.CopyAsync) and s.barrier is None:
            kind = "bulk" if s.dst.buffer.memory == "gmem" else "cp_async"
            if kind not in committed.get(where.role, set()):
                raise _broken(s, f"no commit of kind {kind} in its role", f"k.commit({kind!r})")


def _cluster(kernel: ir.Kernel, target: Target) -> None:
    """Clusters exist and are no larger than the machine's; all their threads meet in pairs.

    A CTA that others reach into must not end before they have: such a kernel ends with a barrier of
    the cluster.
    """
    most = target.limits.get("ctas_per_cluster", 1) if "cluster" in target.scopes else 1
    if kernel.cluster > most:
        wrong = f"clusters of {kernel.cluster} CTAs"
        raise ScheduleError(f"kernel {kernel.name}", wrong, f"at most {most} on {target.name}")
    _check_meetings(kernel.body, "")
    for s, _ in ir.walk(kernel):
        reaches = isinstance(s, ir.Arrive | ir.CopyAsync) and s.ranks
        if reaches and not isinstance(kernel.body[-1], ir.ClusterWait):
            raise _broken(s, "a CTA may end before this reaches it", "k.cluster_sync() at the end")


def _check_meetings(body: ir.Body, apart: str) -> None:
    """Every arrive has its wait in the same body; `apart` says why not all threads come there."""
    arrived: ir.Statement | None = None
    for s in body:
        if isinstance(s, ir.ClusterArrive | ir.ClusterWait):
            if apart:
                raise _broken(s, f"stands {apart}", "where all threads of the cluster come")
            if isinstance(s, ir.ClusterWait) == (arrived is None):
                raise _broken(s, "is out of turn", "an arrive, then a wait")
            arrived = s if arrived is None else None
        for part in ir.children(s):
            _check_meetings(part, apart or _apart(s))
    if arrived is not None:
        raise _broken(arrived, "is not waited for", "k.cluster_wait()")


def _apart(s: ir.Statement) -> str:
    """Why not all threads of a cluster come into a body of this statement; "" where they do."""
    match s:
        case ir.Roles():
            return "in a role"
        case ir.Scope():
            return f"in scope {s.kind}"
    ranked = any(v.name == ir.RANK for e in _uniform(s) for v in variables(e))
    return "where the rank decides" if ranked else ""


def _memories(kernel: ir.Kernel, target: Target) -> None:
    """Buffers lie in memories that the target has."""
    for buffer in kernel.tensors + kernel.buffers:
        target.memory(buffer.memory)


def _broken(s: ir.Statement, wrong: str, expected: str) -> ScheduleError:
    return ScheduleError(type(s).__name__.lower(), wrong, expected, at=s.at)


RULES: tuple[Callable[[ir.Kernel, Target], None], ...] = (
    _memories, _scopes, _top, _variables, _inside, _integers, _capacity, _alignment, _budgets,
    _registers, _written, _barriers, _async_completion, _cluster,
)  # fmt: skip
