"""Exchanges that kernels carry: they read, or store, where other devices have a value.

Where a link lets devices see each other's memory, an exchange of a value as it is may be left to
the kernels beside it. Those that read what it brings read it where it comes from. Or those that
make what it sends store it where it goes. Then it only says who waits for whom. Both are
candidates, and what they cost says which is taken: a kernel that reads an operand many times reads
it over the link as often.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from axe_eq.errors import AxeError
from axe_eq.layout import Layout, Mesh
from axe_eq.mesh.across import Across, across
from axe_eq.mesh.sides import side
from axe_eq.mesh.steps import local_type
from axe_eq.schedule import shard
from axe_eq.schedule.graph import (
    Access,
    BufferSpec,
    KernelStep,
    MoveStep,
    ScheduleGraph,
    SpmdStep,
    Step,
)
from axe_eq.schedule.meeting import buffers_of, meets, tells

ALIGNMENT_BYTES = 128  # of where blocks and parts begin, as kernels read and write memory
READ, STORE = "read", "store"  # by whom an exchange is carried
CHUNKS = (1, 2, 4)  # that devices are told of
# Why a kernel of a graph cannot be written; None where it can.
Failing = Callable[[KernelStep | MoveStep, ScheduleGraph], str | None]


def lies_across(part: BufferSpec, whole: BufferSpec, mesh: str) -> Layout:
    """How ranks' parts of a value lie across devices.

    Raises:
        ScheduleError: see `axe_eq.mesh.across`.
    """
    return _across(part, whole, mesh).layout


def _across(part: BufferSpec, whole: BufferSpec, mesh: str) -> Across:
    sides = [side(b.layout, b.value_type.shape, shard.DEVICE_AXIS) for b in (part, whole)]
    return across(sides[0], sides[1], shard.n_devices(mesh))


def _is_aligned(part: BufferSpec, whole: BufferSpec, mesh: str) -> bool:
    """Whether every rank's part begins where kernels read and write memory."""
    begins, size = _across(part, whole, mesh).begins, part.value_type.itemsize
    return all(place * size % ALIGNMENT_BYTES == 0 for _, place in begins)


@dataclass(frozen=True)
class Alike:
    """Exchanges between the same layouts of values of one type: of layers, say.

    Attributes:
        numbers: theirs.
        ways: how kernels may carry them.
        time_s: what they take together.
    """

    numbers: tuple[int, ...]
    ways: tuple[str, ...]
    time_s: float


def carriers(graph: ScheduleGraph) -> list[Alike]:
    """The exchanges that kernels may carry, those that are alike together, the longest first."""
    mesh = shard.mesh_text(Mesh(dict(graph.mesh or {})))
    kinds: dict[tuple[Any, ...], list[MoveStep]] = {}
    for step in graph.steps:
        if isinstance(step, MoveStep) and step.n_bytes and _is_plain(step):
            pair = [graph.buffers[a.buffer] for a in (*step.reads, *step.writes)]
            if ways := tuple(_ways(graph, step, pair, mesh)):
                given = pair[0].role != "temporary"
                key = ways, given, *((b.type, b.layout) for b in pair)
                kinds.setdefault(key, []).append(step)
    found = [
        Alike(tuple(map(number_of, steps)), key[0], sum(s.time_s for s in steps))
        for key, steps in kinds.items()
    ]
    return sorted(found, key=lambda alike: -alike.time_s)


def _ways(
    graph: ScheduleGraph, step: MoveStep, pair: Sequence[BufferSpec], mesh: str
) -> Iterator[str]:
    """How kernels may carry an exchange."""
    names = {b.name for b in pair}
    held = any(b.within or b.name in graph.outputs for b in pair)  # an input may be returned
    if held or any(b.within in names for b in graph.buffers.values()):
        return
    source, goal = pair
    for how, part, whole in ((STORE, source, goal), (READ, goal, source)):
        if _is_of_kernels(graph, step, part.name, how):
            with suppress(AxeError):
                if _is_aligned(part, whole, mesh):
                    yield how


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


# -- who waits -------------------------------------------------------------------------------------


def meet(
    steps: list[Step], buffers: dict[str, BufferSpec], told: Mapping[str, Mapping[int, float]],
    mesh: str, failing: Failing,
) -> None:  # fmt: skip
    """Let kernels wait for other devices themselves where that is cheaper.

    Calls take two windows in turns then, for results are the same arrays in all of them.

    Args:
        steps: of all ranks, which are changed.
        buffers: theirs, to which the numbers of meetings are added.
        told: exchange -> its seconds where kernels wait themselves, by the number of chunks that
            those who store tell of; 0 where those who read tell that they have come.
        mesh: text.
        failing: whether kernels can be written so.
    """
    for number, move in enumerate(steps):
        if not isinstance(move, MoveStep):
            continue
        ways = sorted(told.get(move.name, {}).items(), key=lambda way: way[1])
        for chunks, seconds in ways:
            if seconds >= move.time_s:
                break
            meeting_ = _Meeting(fresh_name("s", buffers), mesh, chunks, failing)
            made = meeting_.met(steps, move, buffers)
            if made is not None:
                for at, step in made.items():
                    steps[at] = step
                steps[number] = replace(move, time_s=seconds)
                n_devices = shard.n_devices(mesh)
                buffers |= {b.name: b for b in buffers_of(meeting_.name, n_devices, chunks)}
                break


@dataclass(frozen=True)
class _Meeting:
    """A meeting that may be made of an exchange.

    Attributes:
        name: its own.
        mesh: text.
        chunks: that those who store tell of, or 0.
        failing: whether kernels can be written so.
    """

    name: str
    mesh: str
    chunks: int
    failing: Failing

    def met(
        self, steps: Sequence[Step], move: MoveStep, buffers: Mapping[str, BufferSpec]
    ) -> dict[int, SpmdStep] | None:
        """The steps that tell and wait, by number; None where kernels cannot."""
        (source,), (goal,), found = move.reads, move.writes, dict[int, SpmdStep]()
        chunk = self._chunk(buffers[source.buffer], buffers[goal.buffer])
        if chunk is None:
            return None
        sides = [(n, s, goal) for n, s in enumerate(steps) if goal in s.reads]
        if self.chunks:
            sides += [(n, s, source) for n, s in enumerate(steps) if source in s.writes]
        elif len(sides) != 1:
            return None
        for n, step, access in sides:
            made = self._step(step, access, chunk)
            if made is None or n in found:
                return None
            found[n] = made
        return found

    def _chunk(self, source: BufferSpec, goal: BufferSpec) -> int | None:
        """Elements of a chunk; None where devices cannot be told so."""
        if not self.chunks:
            return 0
        whole, part = goal.value_type.shape, local_type(goal, self.mesh).shape
        return _across(source, goal, self.mesh).chunk(whole, part, self.chunks)

    def _step(self, step: Step, access: Access, chunk: int) -> SpmdStep | None:
        """A step whose kernels wait for what they read, or tell of what they store."""
        if not isinstance(step, SpmdStep):
            return None
        given, made = (
            [own for own, a in zip(names, of, strict=True) if a == access]
            for names, of in ((step.graph.inputs, step.reads), (step.graph.outputs, step.writes))
        )
        n = shard.n_devices(self.mesh)
        if made:
            graph = tells(step.graph, self.name, made[0], n, self.chunks, chunk)
        else:
            graph = meets(step.graph, self.name, given, n, self.chunks, chunk)
        if graph is None:
            return None
        added = graph.inputs[len(step.graph.inputs) :]
        changed = [s for s in graph.kernels if {a.buffer for a in s.reads} & {*added}]
        if any(self.failing(s, graph) for s in changed):
            return None
        all_ = {b.name: b for b in buffers_of(self.name, n, self.chunks)}
        more = tuple(Access(name, all_[name].layout) for name in added)
        return replace(step, graph=graph, reads=(*step.reads, *more))


def fresh_name(stem: str, taken: Iterable[str]) -> str:
    """A name for a buffer that begins so; an input may be called like another one."""
    names = tuple(taken)
    number = len(names)
    while any(n.startswith(f"{stem}{number}") for n in names):
        number += 1
    return f"{stem}{number}"
