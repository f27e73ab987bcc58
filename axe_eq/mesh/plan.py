"""The plan of a program on a mesh: what every rank computes, and every message between them.

A plan has two kinds of step, and every rank goes through all of them in one order. A local step is
a schedule graph of one device, on each rank's own parts. An exchange is messages: a move between
layouts, a move through selectors, or the parts of a reduction, which a local step then folds. A
plan is data: it prints, is saved as JSON and runs on any transport.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from axe_eq import plain
from axe_eq.errors import ScheduleError, cause
from axe_eq.files import write_text
from axe_eq.layout import Mesh
from axe_eq.mesh.across import Across, across
from axe_eq.mesh.memory import last_uses, peaks
from axe_eq.mesh.prove import prove
from axe_eq.mesh.sides import Side, side
from axe_eq.mesh.steps import ExchangeStep, LocalStep, Step, exchange, local_type
from axe_eq.mesh.text import plan_text
from axe_eq.program.types import ValueType
from axe_eq.schedule import shard
from axe_eq.schedule.graph import Access, BufferSpec, TileNode, from_json
from axe_eq.schedule.meeting import signals_of, silent
from axe_eq.schedule.window import apart

if TYPE_CHECKING:
    from axe_eq.mesh.prove import Proof
    from axe_eq.mesh.timeline import RankEvent

FORMAT = 3


@dataclass(frozen=True, eq=False)
class MeshPlan:
    """What ranks do, in order; see `Executable.plan`.

    Attributes:
        target: name of the machine.
        mesh: axis -> size; ranks are numbered row-major.
        buffers: name -> value and layout, with its device axis.
        steps: in order.
        inputs, outputs: buffer names, as the program orders them (constants after inputs).
        types: of the outputs, of which buffers may hold reshapes.
    """

    target: str
    mesh: Mapping[str, int]
    buffers: Mapping[str, BufferSpec]
    steps: tuple[Step, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    types: tuple[str, ...]

    @property
    def n_ranks(self) -> int:
        """Number of ranks: one per device."""
        return shard.n_devices(self.mesh_text)

    @cached_property
    def mesh_text(self) -> str:
        """The mesh as the schedule's boxes name it."""
        return shard.mesh_text(Mesh(dict(self.mesh)))

    @property
    def exchanges(self) -> tuple[ExchangeStep, ...]:
        """The exchanges, in order."""
        return tuple(s for s in self.steps if isinstance(s, ExchangeStep))

    def operators(self) -> set[str]:
        """What its steps name, see `axe_eq.schedule.graph.TileNode.operators`."""
        found: set[str] = set()
        for s in self.steps:
            if isinstance(s, LocalStep):
                found |= s.graph.operators()
            else:
                found |= {name for node in s.nodes for name in node.operators}
        return found

    @cached_property
    def n_bytes(self) -> dict[str, tuple[int, ...]]:
        """Exchange -> bytes that every rank sends: what a run's trace says too, as integers."""
        return {s.name: tuple(s.messages.sent(self.n_ranks)) for s in self.exchanges}

    @property
    def link_bytes(self) -> int:
        """Bytes that cross links in all."""
        return sum(map(sum, self.n_bytes.values()))

    @cached_property
    def gone(self) -> tuple[tuple[str, ...], ...]:
        """Per step the buffers that no step after it reads; outputs stay."""
        last = last_uses(self)
        each = range(len(self.steps))
        return tuple(tuple(n for n in self.buffers if last.get(n) == number) for number in each)

    @cached_property
    def peak_bytes(self) -> tuple[int, ...]:
        """Most memory that every rank needs at once: its buffers, and temporaries within a step.

        These are values between kernels, or messages while they are sent. What a runner copies for
        itself is not counted.
        """
        return peaks(self)

    def root(self, name: str) -> str:
        """The buffer whose memory a buffer lies in: itself, where it has memory of its own."""
        return self.buffers[name].within or name

    def is_sent(self, step: ExchangeStep) -> bool:
        """Whether an exchange is done: what a view makes lies where it is read."""
        return {self.root(a.buffer) for a in step.reads} != {self.root(step.write.buffer)}

    def is_across(self, step: ExchangeStep) -> bool:
        """Whether kernels carry an exchange: what they read or store lies on other devices."""
        return any(self.buffers[a.buffer].across for a in (*step.reads, step.write))

    def is_carried(self, step: ExchangeStep) -> bool:
        """Whether something crosses links for an exchange, by messages or by kernels."""
        return self.is_sent(step) or self.is_across(step)

    @cached_property
    def seen(self) -> frozenset[str]:
        """Buffers whose memory on all devices the kernels of every device see."""
        return frozenset(b.within for b in self.buffers.values() if b.across)

    @cached_property
    def signals(self) -> frozenset[str]:
        """Buffers by which kernels wait for other devices, see `axe_eq.schedule.meeting`."""
        return signals_of(self.buffers.values())

    @cached_property
    def awaited(self) -> frozenset[str]:
        """Buffers whose reader waits itself until other devices have done what it reads."""
        return frozenset(
            name for s in self.steps if isinstance(s, LocalStep)
            for own, name in zip(s.graph.inputs, s.reads, strict=True) if s.graph.buffers[own].after
        )  # fmt: skip

    @cached_property
    def under(self) -> dict[str, str]:
        """Buffer -> the result that takes its memory, see `axe_eq.schedule.merging`."""
        return {b.over: n for n, b in self.buffers.items() if b.over}

    @cached_property
    def silent(self) -> MeshPlan:
        """The same without kernels that wait for other devices themselves."""
        if not self.signals:
            return self
        steps = list[Step]()
        for step in self.steps:
            if isinstance(step, LocalStep) and (graph := silent(step.graph)) is not step.graph:
                reads = tuple(n for n in step.reads if n not in self.signals)
                step = replace(step, name=f"{step.name}_silent", graph=graph, reads=reads)
            steps.append(step)
        kept = {n: b for n, b in self.buffers.items() if n not in self.signals}
        return replace(self, buffers=kept, steps=tuple(steps))

    @cached_property
    def apart(self) -> MeshPlan:
        """The same with messages for what kernels carry: for devices that see no other's memory."""
        if not self.seen:
            return self
        if self.signals:
            return self.silent.apart
        buffers = {
            n: replace(b, within="", across=False) if b.across else b
            for n, b in self.buffers.items()
        }
        steps: list[Step] = []
        for step in self.steps:
            if isinstance(step, LocalStep) and (graph := apart(step.graph)) is not step.graph:
                step = replace(step, name=f"{step.name}_apart", graph=graph)
            steps.append(step)
        return replace(self, buffers=buffers, steps=tuple(steps))

    @cached_property
    def computed(self) -> frozenset[str]:
        """Buffers that local steps make."""
        return frozenset(n for s in self.steps if isinstance(s, LocalStep) for n in s.writes)

    @cached_property
    def stored(self) -> frozenset[str]:
        """Buffers that lie across devices and that kernels store."""
        return frozenset(n for n in self.computed if self.buffers[n].across)

    def across(self, name: str) -> Across:
        """How ranks' parts of a buffer lie in the memory of all devices.

        Numbers that devices are told by begin at the first device that is told.

        Raises:
            ScheduleError: see `axe_eq.mesh.across`.
        """
        found = across(self.side(name), self.side(self.root(name)), self.n_ranks)
        if (stored := self._told.get(self.root(name))) is None:
            return found
        told = across(self.side(stored), self.side(self.root(stored)), self.n_ranks)
        return replace(found, begins=tuple((device, 0) for device, _ in told.begins))

    @cached_property
    def _told(self) -> dict[str, str]:
        """Meeting -> the buffer that kernels tell of there."""
        return {
            meeting: name for s in self.steps if isinstance(s, LocalStep)
            for own, name in zip(s.graph.outputs, s.writes, strict=True)
            if (meeting := s.graph.buffers[own].before)
        }  # fmt: skip

    @cached_property
    def held_bytes(self) -> int:
        """What all buffers take that a rank has at any time, together."""
        own = (b for n, b in self.buffers.items() if not b.within and n not in self.under)
        return sum(self.side(b.name).n_elements * b.value_type.itemsize for b in own)

    def side(self, name: str) -> Side:
        """Who holds what of a buffer, and where."""
        buffer = self.buffers[name]
        return side(buffer.layout, buffer.value_type.shape, shard.DEVICE_AXIS, buffer.begins)

    def local_type(self, name: str) -> ValueType:
        """Type of one rank's part of a buffer, dense and row-major."""
        return self._local_types[name]

    @cached_property
    def result_types(self) -> list[ValueType]:
        """Types of one rank's parts of the outputs."""
        found = zip(self.outputs, self.types, strict=True)
        outputs = (replace(self.buffers[name], type=type_) for name, type_ in found)
        return [local_type(b, self.mesh_text) for b in outputs]

    @cached_property
    def _local_types(self) -> dict[str, ValueType]:
        return {n: local_type(b, self.mesh_text) for n, b in self.buffers.items()}

    def prove(self, most_bytes: int | None = None) -> Proof:
        """Prove the plan by enumeration, as it is before every launch; see `axe_eq.mesh.prove`.

        Args:
            most_bytes: memory of a rank; None where it is not known.

        Raises:
            ScheduleError: says which step is wrong, with values.
        """
        return prove(self, most_bytes)

    def to_json(self) -> str:
        """The whole plan as JSON, with every message's regions and bytes, and a digest."""
        data = self._data()
        return json.dumps(data | {"digest": _digest(data)})

    @cached_property
    def digest(self) -> str:
        """A name for exactly this plan: ranks that run one have equal digests."""
        return _digest(self._data())

    def _data(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "target": self.target,
            "mesh": list(self.mesh.items()),
            "buffers": [asdict(b) for b in self.buffers.values()],
            "inputs": self.inputs,
            "outputs": self.outputs,
            "types": self.types,
            "steps": [_step_data(s) for s in self.steps],
            "n_bytes": self.n_bytes,
            "peak_bytes": self.peak_bytes,
        }

    @property
    def events(self) -> list[RankEvent]:
        """When every rank computes, sends and receives, by estimates."""
        from axe_eq.mesh.timeline import rank_events

        return rank_events(self)

    def perfetto(self) -> str:
        """The estimated timeline as trace events, which Perfetto and chrome://tracing open.

        ``Path("plan.json").write_text(exe.plan.perfetto())``
        """
        from axe_eq.mesh.timeline import perfetto

        return perfetto(self)

    def html(self, path: str | Path | None = None) -> str:
        """One self-contained page with the estimated timeline of every rank, written to `path`.

        Args:
            path: a file; None to write none.

        Raises:
            ArgumentError: the place cannot be written.
        """
        from axe_eq.mesh.timeline import plan_html

        text = plan_html(self)
        if path is not None:
            write_text(path, text)
        return text

    def __str__(self) -> str:
        return plan_text(self)


# -- JSON ------------------------------------------------------------------------------------------


def _digest(data: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()


def _step_data(step: Step) -> dict[str, Any]:
    if isinstance(step, LocalStep):
        graph = json.loads(step.graph.to_json())
        return {
            "kind": "local", "name": step.name, "graph": graph, "reads": step.reads,
            "writes": step.writes, "ranks": step.ranks,
        }  # fmt: skip
    return {
        "kind": "exchange",
        "name": step.name,
        "number": step.number,
        "reads": [asdict(a) for a in step.reads],
        "write": asdict(step.write),
        "nodes": [asdict(n) for n in step.nodes],
        "pattern": step.pattern,
        "time_s": step.time_s,
        "blocks": [
            {"src": b.src.tolist(), "dst": b.dst.tolist(), "pick": b.pick.tolist(),
             "count": b.count.tolist()}
            for b in step.messages.blocks
        ],
        "messages": [
            {"src": src, "dst": dst, "tag": step.number, "n_bytes": n,
             "parts": step.messages.regions(src, dst)}
            for (src, dst), n in step.messages.pairs.items()
        ],
    }  # fmt: skip


def plan_from_json(text: str) -> MeshPlan:
    """Inverse of `MeshPlan.to_json`.

    Raises:
        ScheduleError: not such a text, or changed since it was written.
    """
    try:
        data = json.loads(text)
        digest = data.pop("digest")
        if data["format"] != FORMAT:
            wrong = f"has format {data['format']}"
            raise ScheduleError("mesh plan", wrong, f"format {FORMAT}")
        if _digest(data) != digest:
            raise ScheduleError(
                "mesh plan", "was changed after it was written", "what to_json wrote"
            )
        return plan_of(data)
    except ScheduleError:
        raise
    except plain.DAMAGED as error:
        wrong = f"does not read ({cause(error)})"
        raise ScheduleError("mesh plan", wrong, "what to_json wrote") from None


def plan_of(data: Mapping[str, Any]) -> MeshPlan:
    """A plan from its JSON data.

    Raises:
        ScheduleError: its messages are told otherwise than its columns say.
    """
    buffers = {b["name"]: BufferSpec(**b | {"begins": tuple(b["begins"])}) for b in data["buffers"]}
    made = MeshPlan(
        data["target"], dict(data["mesh"]), buffers, tuple(map(_step_of, data["steps"])),
        tuple(data["inputs"]), tuple(data["outputs"]), tuple(data["types"]),
    )  # fmt: skip
    for step, given in zip(made.steps, data["steps"], strict=True):
        again = json.loads(json.dumps(_step_data(step)))
        if (wrong := next((k for k in again if again[k] != given.get(k)), None)) is not None:
            said = f"says {wrong} otherwise than its layouts and columns do"
            raise ScheduleError(f"step {step.name}", said, "one plan")
    for name, found in (("n_bytes", made.n_bytes), ("peak_bytes", made.peak_bytes)):
        if json.loads(json.dumps(found)) != data[name]:
            raise ScheduleError("mesh plan", f"has other {name} than its steps", str(found))
    return made


def _access(data: Mapping[str, Any]) -> Access:
    return Access(data["buffer"], data["layout"], tuple(data["begins"]))


def _step_of(data: Mapping[str, Any]) -> Step:
    if data["kind"] == "local":
        graph = from_json(json.dumps(data["graph"]))
        return LocalStep(
            data["name"], graph, tuple(data["reads"]), tuple(data["writes"]), tuple(data["ranks"])
        )
    nodes = tuple(
        TileNode(**{**n, "operands": tuple(n["operands"]), "view": tuple(n["view"])})
        for n in data["nodes"]
    )
    reads, write = tuple(map(_access, data["reads"])), _access(data["write"])
    time_s = float(data["time_s"])
    step = exchange(data["name"], data["number"], reads, write, nodes, time_s=time_s)
    blocks = zip(step.messages.blocks, data["blocks"], strict=True)
    given = tuple(
        replace(
            block,
            src=np.array(columns["src"], np.int64),
            dst=np.array(columns["dst"], np.int64),
            count=np.array(columns["count"], np.int64),
            pick=np.array(columns["pick"], np.int64).reshape(len(columns["src"]), -1),
        )
        for block, columns in blocks
    )
    return replace(step, messages=replace(step.messages, blocks=given))
