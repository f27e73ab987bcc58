"""Static checks of a kernel: what a machine would do wrong or refuse, found before any plan.

Errors name the statement's place. What depends on values (bounds, races, deadlocks) is the
interpreter's.
"""

from __future__ import annotations

from collections.abc import Callable

from axe_eq.errors import ScheduleError
from axe_eq.kernel import ir
from axe_eq.kernel.build import arrivals
from axe_eq.target import Target


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
        bulk = isinstance(s, ir.WaitGroup | ir.Commit) and s.kind.startswith("bulk")
        if bulk and where.scope != "elect":
            raise _broken(s, "bulk groups belong to the issuing thread", "k.one_thread()")


def _top(kernel: ir.Kernel, target: Target) -> None:
    """Beside roles, the top of a kernel only computes integers."""
    if not any(isinstance(s, ir.Roles) for s in kernel.body):
        return
    for s in kernel.body:
        if not isinstance(s, ir.Roles | ir.Let):
            raise _broken(s, "stands beside roles", "statements inside a role")


def _capacity(kernel: ir.Kernel, target: Target) -> None:
    """Shared memory and threads fit."""
    capacity, limit = target.memory("smem").n_bytes, target.limits["threads_per_cta"]
    if kernel.smem_bytes > capacity:
        used = ", ".join(
            f"{b} {b.n_elements * b.itemsize}" for b in kernel.buffers if b.memory == "smem"
        )
        raise ScheduleError(
            f"kernel {kernel.name}", f"needs {kernel.smem_bytes} bytes of shared memory ({used})",
            f"at most {capacity}",
        )  # fmt: skip
    if kernel.n_threads > limit:
        raise ScheduleError(f"kernel {kernel.name}", f"{kernel.n_threads} threads", f"{limit}")


def _registers(kernel: ir.Kernel, target: Target) -> None:
    """The register tiles that live through a role's loops fit in its share."""
    share = min(
        target.limits["registers_per_unit"] // kernel.n_threads,
        target.limits["registers_per_thread"],
    )
    tiles: dict[ir.Role | None, set[ir.Buffer]] = {}
    shares: dict[ir.Role | None, int] = {}
    for s, where in ir.walk(kernel):
        if isinstance(s, ir.Gemm):
            tiles.setdefault(where.role, set()).add(s.acc.buffer)
            shares[where.role] = (where.role and where.role.registers) or share
    for role, buffers in tiles.items():
        words = sum(-(-b.n_elements * b.itemsize // 4) for b in buffers)
        if words > shares[role]:
            raise ScheduleError(
                f"kernel {kernel.name}", f"accumulators take {words} registers a thread",
                f"at most {shares[role]}",
            )  # fmt: skip


def _barriers(kernel: ir.Kernel, target: Target) -> None:
    """Barriers that are waited for are arrived at, and the other way round."""
    waited = {s.barrier for s, _ in ir.walk(kernel) if isinstance(s, ir.Wait)}
    for barrier in kernel.barriers:
        found = arrivals(kernel, barrier)
        if barrier in waited and not found:
            raise ScheduleError(f"barrier {barrier.name}", "nobody arrives at it", "an arrive")
        if found and barrier not in waited:
            raise ScheduleError(f"barrier {barrier.name}", "nobody waits for it", "a wait")


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


def _memories(kernel: ir.Kernel, target: Target) -> None:
    """Buffers lie in memories that the target has."""
    for buffer in kernel.tensors + kernel.buffers:
        target.memory(buffer.memory)


def _broken(s: ir.Statement, wrong: str, expected: str) -> ScheduleError:
    return ScheduleError(type(s).__name__.lower(), wrong, expected, at=s.at)


RULES: tuple[Callable[[ir.Kernel, Target], None], ...] = (
    _memories, _scopes, _top, _capacity, _registers, _barriers, _async_completion,
)  # fmt: skip
