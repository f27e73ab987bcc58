"""Proof of a mesh plan before it is launched, by enumeration.

Four things are shown. Every element of every part arrives once, from who has it, in the least bytes
(`certificate`). Steps read what was written, with the types and layouts that it was written in.
Every message is posted, sent and awaited once, under one tag and of one size, and no rank waits in
a circle even where a send ends only when its receive is posted (rendezvous). And no rank holds more
than its memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from graphlib import CycleError, TopologicalSorter
from math import prod
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from axe_eq.errors import ProgramError, ScheduleError, cause
from axe_eq.layout import Layout
from axe_eq.mesh.certificate import Certificate, certify
from axe_eq.mesh.meetings import check_meetings
from axe_eq.mesh.merging import check_merging
from axe_eq.mesh.regions import Region, parts_of
from axe_eq.mesh.sides import side
from axe_eq.mesh.steps import ExchangeStep, LocalStep, reads_of, sources_of, writes_of
from axe_eq.program.node import op_type, scan_type, sel_type
from axe_eq.program.types import ValueType, value_type
from axe_eq.schedule import shard
from axe_eq.schedule.bind import loop_extents
from axe_eq.schedule.box import ALL, parse
from axe_eq.schedule.digits import digits
from axe_eq.schedule.graph import BufferSpec, MoveStep, SpmdStep, TileNode, read_layout
from axe_eq.schedule.graph import Step as GraphStep
from axe_eq.schedule.memory import lifetimes

if TYPE_CHECKING:
    from axe_eq.mesh.plan import MeshPlan

POST, SEND, WAIT, RUN = "post", "send", "wait", "run"


class Event(NamedTuple):
    """What one rank does: posts a receive, sends, waits for a message, or runs a local step.

    A message is named by its tag and its two ranks; `n_bytes` is 0 for a local step.
    """

    what: str
    src: int
    dst: int
    tag: int
    n_bytes: int


@dataclass(frozen=True)
class Proof:
    """What the proof of a plan found.

    Attributes:
        certificates: exchange -> its own.
        n_events: events of all ranks.
        peak_bytes: most memory of a rank.
    """

    certificates: Mapping[str, Certificate]
    n_events: int
    peak_bytes: int


def prove(plan: MeshPlan, most_bytes: int | None = None) -> Proof:
    """Prove a plan.

    Args:
        plan: for all ranks.
        most_bytes: memory of a rank; None where it is not known.

    Raises:
        ScheduleError: says which step is wrong, with values.
    """
    try:
        return _proof(plan, most_bytes)
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        wrong = f"does not fit together ({cause(error)})"
        raise ScheduleError("mesh plan", wrong, "names, numbers and types of its own") from None


def _proof(plan: MeshPlan, most_bytes: int | None) -> Proof:
    _check_steps(plan)
    check_meetings(plan)
    check_merging(plan)
    certificates = {s.name: _exchange(plan, s) for s in plan.exchanges}
    programs = [program(plan, rank) for rank in range(plan.n_ranks)]
    check_programs(programs)
    peak = max(plan.peak_bytes)
    if most_bytes is not None and peak > most_bytes:
        rank = plan.peak_bytes.index(peak)
        raise ScheduleError(f"rank {rank}", f"needs {peak:,} bytes at once", f"{most_bytes:,}")
    return Proof(certificates, sum(map(len, programs)), peak)


# -- steps -----------------------------------------------------------------------------------------


def _check_steps(plan: MeshPlan) -> None:
    for name in (*plan.inputs, *plan.outputs):
        if name not in plan.buffers:
            raise ScheduleError(f"buffer {name!r}", "is not in the plan", "a buffer of it")
        if within := plan.buffers[name].within:
            raise ScheduleError(f"buffer {name!r}", f"lies within {within!r}", "memory of its own")
    for b in plan.buffers.values():
        whole = plan.buffers.get(plan.root(b.name))
        if b.begins and (not b.within or len(b.begins) != plan.n_ranks or min(b.begins) < 0):
            wrong = f"begins at {b.begins} of {b.within!r}"
            raise ScheduleError(f"buffer {b.name!r}", wrong, f"{plan.n_ranks} of another one")
        if whole is None or whole.within or (b.across and not b.within):
            raise ScheduleError(
                f"buffer {b.name!r}", f"lies within {b.within!r}", "one of the plan"
            )
    written = {*plan.inputs, *plan.signals}
    names: set[str] = set()
    last = -1  # tag of the exchange before
    for step in plan.steps:
        place = f"step {step.name}"
        if step.name in names:
            raise ScheduleError(place, "is there twice", "one step of a name")
        names.add(step.name)
        for name in reads_of(step):
            if name not in written:
                raise ScheduleError(place, f"reads {name!r} before it is written", "a valid order")
        for name in writes_of(step):
            if name not in plan.buffers or name in written:
                raise ScheduleError(place, f"writes {name!r}", "a buffer that nothing wrote before")
            _check_within(plan, step, name, written)
            written.add(name)
        if isinstance(step, LocalStep):
            _check_local(plan, step)
        elif step.number <= last:
            raise ScheduleError(place, f"has tag {step.number}", "one above those before it")
        else:
            last = step.number
    for name in plan.buffers:
        if name in written and plan.root(name) not in written:
            wrong = f"lies within {plan.root(name)!r}, which no step makes"
            raise ScheduleError(f"buffer {name!r}", wrong, "a step that joins what lies there")
    for name, text in zip(plan.outputs, plan.types, strict=True):
        if name not in written:
            raise ScheduleError(f"output {name!r}", "is written by no step", "a step that does")
        have = plan.buffers[name].value_type
        if not _reshapes(value_type(text), have):
            raise ScheduleError(f"output {name!r}", f"is {text}", f"{have}, or a reshape of it")


def _check_within(
    plan: MeshPlan, step: ExchangeStep | LocalStep, name: str, written: set[str]
) -> None:
    """Memory that several buffers lie in holds one value.

    A buffer in another one's memory is a view of it, or is written before it is: the other one is
    then a view of all that lie there, each element once, so none of them overwrites another. Views
    move nothing, and exchanges alone are views.
    """
    place, own = f"step {step.name}, buffer {name!r}", plan.buffers[name]
    reads, root = reads_of(step), plan.root(name)
    if own.across:
        _check_across(plan, step, place, name)
        return
    if own.within:
        whole = plan.buffers[root]
        digits(own)
        sides = plan.side(name), plan.side(root)
        if whole.value_type.dtype != own.value_type.dtype or not np.array_equal(
            sides[0].devices, sides[1].devices
        ):
            raise ScheduleError(place, f"lies within {root!r}", "one of its type and devices")
        if sides[0].n_elements > sides[1].n_elements:
            raise ScheduleError(place, f"reaches behind {root!r}", f"{sides[1].n_elements}")
        if root in written and (reads != (root,) or isinstance(step, LocalStep)):
            raise ScheduleError(place, f"writes to {root!r}", "memory that nothing wrote before")
        if root not in written and any(plan.root(n) == root for n in reads):
            raise ScheduleError(place, f"is made of {root!r} before all of that is", "its parts")
    inside = [n for n in written if plan.buffers[n].within == name]
    if any(plan.buffers[n].across for n in inside):
        if reads != tuple(inside) or isinstance(step, LocalStep):
            wrong = f"is stored by the kernels that make {' '.join(inside)}"
            raise ScheduleError(place, wrong, "an exchange of that alone")
        return
    if inside and (sorted(inside) != sorted(reads) or isinstance(step, LocalStep)):
        wrong = f"holds {' '.join(sorted(inside))}, and is made of {' '.join(reads)}"
        raise ScheduleError(place, wrong, "a view of what lies in it")
    if isinstance(step, ExchangeStep) and not plan.is_sent(step):
        _check_view(place, step)


def _check_across(plan: MeshPlan, step: ExchangeStep | LocalStep, place: str, name: str) -> None:
    """A buffer that lies across devices is a value as it is, which an exchange says too.

    Either all of the value is there before, and the exchange says what kernels read of it. Or the
    kernels of this step store it, nothing else reads it, and an exchange says where it came to.
    """
    own, root = plan.buffers[name], plan.buffers[plan.root(name)]
    if own.value_type != root.value_type or own.begins:
        raise ScheduleError(place, f"lies across {root.name!r}", f"{root.value_type}, as it is")
    plan.across(name)  # or it refuses
    if isinstance(step, ExchangeStep):
        plain = [n.kind for n in step.nodes] == ["load"] and reads_of(step) == (root.name,)
        if not plain:
            raise ScheduleError(place, f"is made of {' '.join(reads_of(step))}", f"{root.name!r}")
        if root.name in plan.outputs:
            raise ScheduleError(place, f"lies across output {root.name!r}", "no result of a call")
        return
    users = [s for s in plan.steps if name in reads_of(s)]
    sent = [s for s in users if isinstance(s, ExchangeStep) and writes_of(s) == (root.name,)]
    if len(users) != 1 or users != sent or name in plan.outputs or root.name in plan.outputs:
        raise ScheduleError(place, f"lies across {root.name!r}", "what one exchange brings there")
    if [n.kind for n in sent[0].nodes] != ["load"]:
        raise ScheduleError(place, f"comes to {root.name!r} through selectors", "as it is")


def _check_view(place: str, step: ExchangeStep) -> None:
    """What a step makes lies where it reads it, on every device, and is all that it reads."""
    messages = step.messages
    size = sum(prod(source.shape) for source in messages.sources)
    if step.write.buffer in [a.buffer for a in step.reads] or messages.n_bytes:
        raise ScheduleError(place, "is a view and sends something", "what lies where it is read")
    if len(step.reads) > 1 and size != step.type.size:
        raise ScheduleError(place, f"is made of {size} elements", f"{step.type.size}, each once")
    for device in messages.goal.devices.tolist():
        for part in parts_of(messages, device):
            regions = (part.source, *part.goals)
            if part.leaf < 0 or part.pick is not None or any(
                r.index is not None or (r.offset, r.shape, r.strides) != _box(part.source)
                for r in regions
            ):  # fmt: skip
                raise ScheduleError(place, "is a view and moves something", "what lies in place")


def _box(region: Region) -> tuple[object, ...]:
    return region.offset, region.shape, region.strides


def _reshapes(a: ValueType, b: ValueType) -> bool:
    """Whether values are reshapes of each other: a layout speaks of their row-major index."""
    return (a.dtype, a.size) == (b.dtype, b.size)


def _check_local(plan: MeshPlan, step: LocalStep) -> None:
    """Parts are of the buffers' types, who computes has them, and nodes have their types."""
    place, graph = f"step {step.name}", step.graph
    given = [graph.buffers[n].value_type for n in graph.inputs]
    pairs = [*zip(graph.inputs, given, step.reads, strict=False)]
    pairs += zip(graph.outputs, graph.output_types(), step.writes, strict=False)
    if (len(graph.inputs), len(graph.outputs)) != (len(step.reads), len(step.writes)):
        raise ScheduleError(place, "has a graph of other inputs or outputs", "its reads and writes")
    for own, found, name in pairs:
        want = plan.local_type(name)
        if found != want:
            raise ScheduleError(f"{place}, buffer {name!r}", f"is {found} on a rank", str(want))
        _check_lies(f"{place}, buffer {name!r}", plan, name, graph.buffers[own], want)
    for name in step.reads:
        lacking = sorted(set(step.ranks) - set(plan.side(name).devices.tolist()))
        if lacking:
            raise ScheduleError(f"{place}, rank {lacking[0]}", f"has nothing of {name!r}", "a part")
    for name in step.writes:
        holders = tuple(plan.side(name).devices.tolist())
        if holders != step.ranks:
            wrong = f"is computed by ranks {step.ranks}"
            raise ScheduleError(
                f"{place}, buffer {name!r}", wrong, f"those that hold it, {holders}"
            )
    for buffer in graph.buffers.values():
        if buffer.within or buffer.across:
            raise ScheduleError(place, f"has {buffer.name!r} within {buffer.within!r}", "none")
        if str(buffer.value_type) != buffer.type:
            raise ScheduleError(f"{place}, type {buffer.type!r}", "does not read", "as f32[2,3]")
    lifetimes(graph)
    made = {*graph.inputs, *(w.buffer for s in graph.steps for w in s.writes)}
    if missing := [n for n in graph.outputs if n not in made]:
        raise ScheduleError(place, f"writes no {missing[0]!r}", "a step that does")
    for part in graph.steps:
        _check_own(f"{place}, {part.kind} {part.name}", graph.buffers, part)


def _check_lies(place: str, plan: MeshPlan, name: str, own: BufferSpec, want: ValueType) -> None:
    """A local graph's buffer lies as a rank's part does: dense, within another one, or across."""
    buffer, lies = plan.buffers[name], Layout([(want.size, 1)]).canonical()
    if buffer.within:
        lies = plan.across(name).layout if buffer.across else digits(buffer).layout
    if Layout.parse(own.layout).canonical() != lies:
        raise ScheduleError(place, f"lies in {own.layout} on a rank", str(lies))


def _check_own(place: str, buffers: Mapping[str, BufferSpec], step: GraphStep) -> None:
    """A step of one device: it accesses buffers as they lie, and nodes have their types."""
    for number, access in enumerate(step.reads):
        buffer = buffers[access.buffer]
        seen = read_layout(step, number, buffer.value_type, buffer.layout)
        if Layout.parse(seen).canonical() != Layout.parse(access.layout).canonical():
            wrong = f"accesses {access.buffer!r} in layout {access.layout}"
            raise ScheduleError(place, wrong, "a buffer of its graph, as it lies")
    for access in step.writes:
        if buffers[access.buffer].layout != access.layout:
            wrong = f"accesses {access.buffer!r} in layout {access.layout}"
            raise ScheduleError(place, wrong, "a buffer of its graph, as it lies")
    if isinstance(step, SpmdStep):
        raise ScheduleError(place, "is for a mesh", "steps of one device")
    if isinstance(step, MoveStep):
        return
    check_nodes(place, step.nodes, len(step.reads))
    for number, node in enumerate(step.nodes):
        if len(parse(node.box)) != value_type(node.type).rank:
            wrong = f"has box {node.box!r} for {node.type}"
            raise ScheduleError(f"{place}, node {number}", wrong, "an entry per dim")
    extents = loop_extents(step.nodes)
    for letter, n in step.loops.items():
        if n > (most := extents.get(letter, 1)):
            raise ScheduleError(place, f"loops {n:,} times over {letter}", f"{most:,} at most")
    for root, access in zip(step.roots, step.writes, strict=True):
        if step.nodes[root].type != buffers[access.buffer].type:
            raise ScheduleError(place, f"stores {step.nodes[root].type}", f"as {access.buffer!r}")
        _check_stored(place, step.nodes[root], step.loops)


def _check_stored(place: str, root: TileNode, loops: Mapping[str, int]) -> None:
    """The blocks of a stored value's box, over its loops, are all of the value."""
    for d, (entry, extent) in enumerate(
        zip(parse(root.box), value_type(root.type).shape, strict=True)
    ):
        if entry == ALL:
            continue
        n, step = loops.get(entry.letter, 1) if entry.scale else 1, abs(entry.scale) or 1
        low = entry.offset + min(0, entry.scale * (n - 1))
        first = low + step * min(max(-low // step, 0), n - 1)  # the last one that is not behind 0
        last = low + step * (n - 1) if entry.window >= step else first
        if n < 1 or first > 0 or last + entry.window < extent:
            wrong = f"stores {entry} of dim {d} over loops {dict(loops)}"
            raise ScheduleError(place, wrong, f"all {extent} indices")


def check_nodes(place: str, nodes: Sequence[TileNode], n_reads: int) -> None:
    """Every node has the type that its operator gives it, of operands before it.

    Raises:
        ScheduleError: one has not.
    """
    for number, node in enumerate(nodes):
        if not all(0 <= o < number for o in node.operands):
            raise ScheduleError(f"{place}, node {number}", f"reads {node.operands}", "nodes before")
        if node.kind == "load":
            if not 0 <= node.access < n_reads:
                wrong = f"loads access {node.access}"
                raise ScheduleError(f"{place}, node {number}", wrong, f"one of {n_reads}")
            continue
        types = tuple(value_type(nodes[o].type) for o in node.operands)
        try:
            found = _type(node, types)
        except ProgramError as error:
            raise ScheduleError(f"{place}, node {number}", error.wrong, error.expected) from None
        if str(found) != node.type:
            raise ScheduleError(f"{place}, node {number}", f"is {node.type}", str(found))


def _type(node: TileNode, types: tuple[ValueType, ...]) -> ValueType:
    if node.kind == "cell":
        return op_type(node.text, node.cell, types)
    return sel_type(node.text, types) if node.kind == "gather" else scan_type(node.text, types)


def _exchange(plan: MeshPlan, step: ExchangeStep) -> Certificate:
    """Prove one exchange: accesses, selectors and messages."""
    place = f"step {step.name}"
    for access in (*step.reads, step.write):
        buffer = plan.buffers[access.buffer]
        if (buffer.layout, buffer.begins) != (access.layout, access.begins):
            wrong = f"accesses {access.buffer!r} in layout {access.layout} from {access.begins}"
            raise ScheduleError(place, wrong, f"{buffer.layout} from {buffer.begins}")
    check_nodes(place, step.nodes, len(step.reads))
    for node in step.nodes:
        if node.kind == "load":
            have = plan.buffers[step.reads[node.access].buffer].value_type
            if not _reshapes(value_type(node.type), have):
                raise ScheduleError(place, f"loads {node.type}", f"{have}, or a reshape of it")
    if step.type != plan.buffers[step.write.buffer].value_type:
        raise ScheduleError(place, f"makes {step.type}", f"as {step.write.buffer!r}")
    sources, goal = sources_of(step.reads, step.nodes), step.messages.goal
    wanted = side(step.write.layout, step.type.shape, shard.DEVICE_AXIS, step.write.begins)
    if list(step.messages.sources) != sources or goal != wanted:
        raise ScheduleError(place, "has messages of other layouts", "those of its accesses")
    if step.messages.itemsize != step.type.itemsize:
        wrong = f"counts {step.messages.itemsize} bytes per element"
        raise ScheduleError(place, wrong, f"{step.type.itemsize}, of {step.type.dtype}")
    return certify(place, step.messages, step.pieces)


# -- events ----------------------------------------------------------------------------------------


def program(plan: MeshPlan, rank: int) -> list[Event]:
    """What a rank does: of an exchange it posts its receives, sends, and waits for all."""
    found = []
    for step in plan.steps:
        if isinstance(step, LocalStep):
            if rank in step.ranks:
                found.append(Event(RUN, rank, rank, -1, 0))
            continue
        pairs = step.messages.pairs.items()
        mine = [(src, dst, n) for (src, dst), n in pairs if rank in (src, dst)]
        into = [(src, dst, step.number, n) for src, dst, n in mine if dst == rank]
        out = [(src, dst, step.number, n) for src, dst, n in mine if src == rank]
        found += [Event(POST, *m) for m in into]
        found += [Event(SEND, *m) for m in out]
        found += [Event(WAIT, *m) for m in (*into, *out)]
    return found


def check_programs(programs: Sequence[Sequence[Event]]) -> None:
    """Every message is posted, sent and awaited by its ranks, and nobody waits in a circle.

    Ranks go through exchanges in the order of their tags.

    Raises:
        ScheduleError: names the rank and the message.
    """
    where: dict[tuple[str, int, int, int, int], tuple[int, int, int]] = {}
    for rank, events in enumerate(programs):
        tag = -1
        for at, e in enumerate(events):
            if e.what == RUN:
                continue
            if e.tag < tag:
                raise ScheduleError(
                    f"rank {rank}", f"{e.what}s {_name(e)} late", "the plan's order"
                )
            tag = e.tag
            owner = {POST: (e.dst,), SEND: (e.src,), WAIT: (e.src, e.dst)}[e.what]
            if rank not in owner or e.src == e.dst:
                raise ScheduleError(f"rank {rank}", f"{e.what}s {_name(e)}", "a message of its own")
            key = (e.what, e.src, e.dst, e.tag, rank)
            if key in where:
                raise ScheduleError(f"rank {rank}", f"{e.what}s {_name(e)} twice", "once")
            where[key] = rank, at, e.n_bytes
    _check_matched(where)
    waits: TopologicalSorter[tuple[int, int]] = TopologicalSorter()
    for rank, events in enumerate(programs):
        for at, e in enumerate(events):
            needs = [(rank, at - 1)] if at else []
            if e.what == WAIT:  # its data go when both are there
                needs.append(where[SEND, e.src, e.dst, e.tag, e.src][:2])
                needs.append(where[POST, e.src, e.dst, e.tag, e.dst][:2])
            waits.add((rank, at), *needs)
    try:
        waits.prepare()
    except CycleError as error:
        ranks = " ".join(str(rank) for rank, _ in error.args[1][:8])
        raise ScheduleError("plan", f"ranks wait in a circle ({ranks})", "an order") from None


def _name(event: Event) -> str:
    return f"message {event.tag} from {event.src} to {event.dst}"


def _check_matched(where: Mapping[tuple[str, int, int, int, int], tuple[int, int, int]]) -> None:
    for (what, src, dst, tag, rank), (_, _, n_bytes) in where.items():
        partners = {(POST, dst), (SEND, src), (WAIT, src), (WAIT, dst)} - {(what, rank)}
        for other, whose in partners:
            there = where.get((other, src, dst, tag, whose))
            message = f"message {tag} from {src} to {dst}"
            if there is None:
                raise ScheduleError(message, f"is {what}ed, and rank {whose} does not {other}", "")
            if there[2] != n_bytes:
                wrong = f"is {n_bytes} bytes for rank {rank} and {there[2]} for rank {whose}"
                raise ScheduleError(message, wrong, "one size")
