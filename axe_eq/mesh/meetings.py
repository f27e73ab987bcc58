"""Proof that kernels which wait for other devices themselves wait for what they read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from axe_eq.errors import ScheduleError
from axe_eq.mesh.steps import LocalStep, reads_of, writes_of
from axe_eq.schedule.graph import SIGNAL, BufferSpec, ScheduleGraph
from axe_eq.schedule.meeting import buffers_of, chunks_of, meets, silent, tells

if TYPE_CHECKING:
    from axe_eq.mesh.plan import MeshPlan


def check_meetings(plan: MeshPlan) -> None:
    """Show that kernels which read what other devices do wait for it, and are told by these.

    Raises:
        ScheduleError: they wait or tell otherwise, others read it too, or not all devices come.
    """
    found = [_Local(plan, s) for s in plan.steps if isinstance(s, LocalStep)]
    names = list(dict.fromkeys(name for one in found for name in (*one.awaited, *one.told)))
    for name in names:
        _check_meeting(plan, found, name)
    held = {n: b for n, b in plan.buffers.items() if b.role == SIGNAL or b.after or b.before}
    wanted = dict[str, BufferSpec]()
    for name in names:
        chunks = _chunks(plan, name)
        wanted |= {b.name: b for b in buffers_of(name, plan.n_ranks, chunks)}
    if held != wanted:
        raise ScheduleError("mesh plan", "has other signals than its kernels", str(names))
    if names and not set(plan.outputs) <= plan.computed:
        raise ScheduleError("mesh plan", "meets, and has results that lie in place", "kernels' own")


class _Local:
    """A local step, and what its kernels wait for and tell of.

    Attributes:
        step: the step.
        awaited: meeting -> buffers of the plan that its kernels wait for there.
        told: meeting -> the buffer that its kernel tells of.
    """

    def __init__(self, plan: MeshPlan, step: LocalStep) -> None:
        self.step, graph, n = step, step.graph, plan.n_ranks
        given = dict(zip(graph.inputs, step.reads, strict=False))
        made = dict(zip(graph.outputs, step.writes, strict=False))
        again: ScheduleGraph = silent(graph)
        self.awaited, self.told = dict[str, list[str]](), dict[str, str]()
        for name, own, chunk in _kinds(graph, "after"):
            chunks = _chunks(plan, name)
            again = meets(again, name, own, n, chunks, chunk) or again
            self.awaited[name] = [given[o] for o in own]
        for name, own, chunk in _kinds(graph, "before"):
            chunks = _chunks(plan, name)
            again = tells(again, name, own[0], n, chunks, chunk) or again
            self.told[name] = made[own[0]]
        if graph != again:
            raise ScheduleError(f"step {step.name}", "waits otherwise", "the kernel that reads")
        signals = [b for b in graph.inputs if graph.buffers[b].role == SIGNAL]
        if any(given[b] != b for b in signals):
            raise ScheduleError(f"step {step.name}", f"waits at {signals}", "the plan's")
        if signals and step.ranks != tuple(range(n)):
            raise ScheduleError(f"step {step.name}", f"is met by ranks {step.ranks}", "all of them")


def _chunks(plan: MeshPlan, name: str) -> int:
    return chunks_of(plan.buffers[name]) if name in plan.buffers else 0


def _kinds(graph: ScheduleGraph, kind: str) -> list[tuple[str, list[str], int]]:
    """Meeting, buffers, and elements of a chunk, in the order in which numbers are read."""
    found: dict[str, tuple[list[str], int]] = {}
    for n, b in graph.buffers.items():
        if name := getattr(b, kind):
            found.setdefault(name, ([], b.chunk))[0].append(n)
    order: Mapping[str, int] = {n: at for at, n in enumerate(graph.inputs)}
    ranked = sorted(found, key=lambda n: min(order.get(n, -1), order.get(f"{n}_all", -1)))
    return [(name, *found[name]) for name in ranked]


def _check_meeting(plan: MeshPlan, found: list[_Local], name: str) -> None:
    """All who read what an exchange brings wait for it, and those who store it tell of that."""
    waiting = [one for one in found if name in one.awaited]
    buffers = {b for one in waiting for b in one.awaited[name]}
    brings = [s for s in plan.exchanges if plan.is_across(s) and s.write.buffer in buffers]
    who = " ".join(one.step.name for one in waiting) or "nobody"
    readers = [s for s in plan.steps if set(reads_of(s)) & buffers]
    tellers = [one for one in found if name in one.told]
    if len(buffers) != 1 or len(brings) != 1 or readers != [one.step for one in waiting]:
        raise ScheduleError(f"step {who}", f"waits at {name!r}", "for what it reads")
    (brought,) = brings
    if not _chunks(plan, name):
        if len(waiting) > 1 or tellers:
            raise ScheduleError(f"step {who}", f"waits at {name!r}", "one, who tells all")
        return
    told = [one.told[name] for one in tellers]
    if told != [a.buffer for a in brought.reads] or not plan.buffers[told[0]].across:
        raise ScheduleError(f"step {who}", f"waits at {name!r}", "for who stores, and tells of it")
    (goal,) = buffers
    part, whole = plan.local_type(goal).shape, plan.buffers[goal].value_type.shape
    wanted = plan.across(told[0]).chunk(whole, part, _chunks(plan, name))
    chunks = {b.chunk for one in (*waiting, *tellers) for b in one.step.graph.buffers.values()
              if name in (b.after, b.before)}  # fmt: skip
    makers = [s for s in plan.steps if told[0] in writes_of(s)]
    if chunks != {wanted} or makers != [one.step for one in tellers]:
        raise ScheduleError(
            f"step {who}", f"waits for chunks of {sorted(chunks)}", f"those told of, {wanted}"
        )
