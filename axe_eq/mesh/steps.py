"""The two kinds of step that ranks go through: computing on their own parts, and exchanges."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from axe_eq.layout import Layout
from axe_eq.mesh.messages import Messages, Near, plan
from axe_eq.mesh.patterns import pattern
from axe_eq.mesh.pieces import Piece, read_through
from axe_eq.mesh.sides import Side, side
from axe_eq.program.types import ValueType, value_type
from axe_eq.schedule import shard
from axe_eq.schedule.digits import digits
from axe_eq.schedule.graph import Access, BufferSpec, ScheduleGraph, TileNode


@dataclass(frozen=True)
class LocalStep:
    """A schedule graph of one device that ranks run on their own parts.

    Attributes:
        name: unique within the plan.
        graph: dense row-major parts in and out.
        reads, writes: buffers of the plan, aligned with the graph's inputs and outputs.
        ranks: who runs it, ascending.
    """

    name: str
    graph: ScheduleGraph
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    ranks: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class ExchangeStep:
    """Messages that make one buffer of others.

    Attributes:
        name: unique within the plan.
        number: tag of its messages, unique within the plan.
        reads: buffers and the layouts they are in.
        write: the buffer made, and its layout.
        nodes: loads, by number of the read, and the selectors that the value goes through.
        messages: who sends what to whom.
        time_s: estimated seconds, of the busiest rank.
    """

    name: str
    number: int
    reads: tuple[Access, ...]
    write: Access
    nodes: tuple[TileNode, ...]
    messages: Messages
    time_s: float = 0.0

    @property
    def type(self) -> ValueType:
        """Type of the value made."""
        return value_type(self.nodes[-1].type)

    @property
    def pieces(self) -> tuple[Piece, ...]:
        """What the value reads, from its selectors."""
        return read_through(self.nodes)

    @cached_property
    def pattern(self) -> str:
        """The collective that it is."""
        return pattern(self.messages)


Step = LocalStep | ExchangeStep


def exchange(
    name: str,
    number: int,
    reads: Sequence[Access],
    write: Access,
    nodes: Sequence[TileNode],
    near: Near = (),
    time_s: float = 0.0,
) -> ExchangeStep:
    """An exchange with its messages planned; `near` is as of `ScheduleGraph`."""
    sources = sources_of(reads, nodes)
    out = value_type(nodes[-1].type)
    goal = side(write.layout, out.shape, shard.DEVICE_AXIS, write.begins)
    made = plan(sources, goal, read_through(nodes), out.itemsize, near)
    return ExchangeStep(name, number, tuple(reads), write, tuple(nodes), made, time_s)


def sources_of(reads: Sequence[Access], nodes: Sequence[TileNode]) -> list[Side]:
    """The sides of the buffers that an exchange reads, as its loads see them."""
    shapes = {n.access: value_type(n.type).shape for n in nodes if n.kind == "load"}
    found = enumerate(reads)
    return [side(r.layout, shapes[n], shard.DEVICE_AXIS, r.begins) for n, r in found]


def reads_of(step: LocalStep | ExchangeStep) -> tuple[str, ...]:
    """Buffers that a step reads."""
    return step.reads if isinstance(step, LocalStep) else tuple(a.buffer for a in step.reads)


def writes_of(step: LocalStep | ExchangeStep) -> tuple[str, ...]:
    """Buffers that a step writes."""
    return step.writes if isinstance(step, LocalStep) else (step.write.buffer,)


def local_type(buffer: BufferSpec, mesh: str) -> ValueType:
    """Type of one device's memory of a buffer.

    It has the value's dims where these are cut, the last parts padded; where a layout is another,
    it is flat.
    """
    layout, type_ = Layout.parse(buffer.layout), buffer.value_type
    if buffer.inside:
        return ValueType(type_.dtype, digits(buffer).shape)
    shape = shard.part_shape(buffer.type, layout, mesh)
    if shape is None:
        shape = (side(buffer.layout, type_.shape, shard.DEVICE_AXIS).n_elements,)
    return ValueType(type_.dtype, shape)
