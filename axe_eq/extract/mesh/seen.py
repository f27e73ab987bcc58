"""Exchanges that kernels carry: they read, or store, where other devices have a value.

Where a link lets devices see each other's memory, an exchange of a value as it is may be left to
the kernels beside it. Those that read what it brings read it where it comes from. Or those that
make what it sends store it where it goes. Then it only says who waits for whom. Both are
candidates, and what they cost says which is taken: a kernel that reads an operand many times reads
it over the link as often.
"""

from __future__ import annotations

from axe_eq.errors import AxeError
from axe_eq.layout import Layout, Mesh
from axe_eq.mesh.across import across
from axe_eq.mesh.sides import side
from axe_eq.schedule import shard
from axe_eq.schedule.graph import BufferSpec, MoveStep, ScheduleGraph, SpmdStep

READ, STORE = "read", "store"  # by whom an exchange is carried


def lies_across(part: BufferSpec, whole: BufferSpec, mesh: str) -> Layout:
    """How ranks' parts of a value lie across devices.

    Raises:
        ScheduleError: see `axe_eq.mesh.across`.
    """
    sides = [side(b.layout, b.value_type.shape, shard.DEVICE_AXIS) for b in (part, whole)]
    return across(sides[0], sides[1], shard.n_devices(mesh)).layout


def carriers(graph: ScheduleGraph) -> dict[int, list[str]]:
    """The exchanges that kernels may carry, by number, and how, the longest first."""
    found: dict[int, list[str]] = {}
    mesh = shard.mesh_text(Mesh(dict(graph.mesh or {})))
    moves = [s for s in graph.steps if isinstance(s, MoveStep) and s.n_bytes and _is_plain(s)]
    for step in sorted(moves, key=lambda s: -s.time_s):
        (source,), (goal,) = step.reads, step.writes
        pair = graph.buffers[source.buffer], graph.buffers[goal.buffer]
        names = {b.name for b in pair}
        if any(b.within or b.role == "output" for b in pair) or any(
            b.within in names for b in graph.buffers.values()
        ):
            continue
        for how, (part, whole) in ((STORE, pair), (READ, pair[::-1])):
            if _is_of_kernels(graph, step, part.name, how):
                try:
                    lies_across(part, whole, mesh)
                except AxeError:
                    continue
                found.setdefault(number_of(step), []).append(how)
    return found


def number_of(step: MoveStep) -> int:
    """The number of an exchange, which its name begins with."""
    return int(step.name.removeprefix("m").partition("_")[0])


def _is_plain(step: MoveStep) -> bool:
    """Whether one value is brought as it is."""
    return len(step.reads) == 1 and all(node.kind == "load" for node in step.nodes)


def _is_of_kernels(graph: ScheduleGraph, step: MoveStep, name: str, how: str) -> bool:
    """Whether kernels alone read what is brought, or make what is sent, for this exchange alone."""
    readers = [s for s in graph.steps if name in {a.buffer for a in s.reads}]
    if how == READ:
        return all(isinstance(s, SpmdStep) for s in readers)
    makers = [s for s in graph.steps if name in {a.buffer for a in s.writes}]
    return readers == [step] and all(isinstance(s, SpmdStep) for s in makers) and bool(makers)
