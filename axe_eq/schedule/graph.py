"""The schedule graph: steps over buffers, on one device or a mesh.

A step is a kernel (the cone that extraction chose, as a small DAG of tile nodes), a movement
between layouts, or on a mesh a schedule graph of one device that all of them run on their parts.
Buffers are flat memory with a layout; every access of a step carries the layout it reads or writes
with, so a step never looks at a buffer's own. The graph is plain data: it prints, saves to JSON and
runs without the e-graph.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from axe_eq import plain
from axe_eq.errors import ScheduleError, cause
from axe_eq.program.node import sel_type
from axe_eq.program.ops import split_text
from axe_eq.program.signature import signature
from axe_eq.program.types import ValueType, value_type
from axe_eq.schedule.views import is_signature, view_layout, view_type

if TYPE_CHECKING:
    import networkx as nx


@dataclass(frozen=True)
class TileNode:
    """One tile value of a kernel.

    Attributes:
        kind: "load", "cell", "gather" or "scan".
        text: signature of a cell, selector of a gather, a scan's text, "" for a load.
        cell: cell text.
        box: which part of the value, see `axe_eq.schedule.box`.
        type: type text of the whole value.
        operands: node numbers within the kernel.
        access: for a load, the number of the kernel's read it goes through; -1 otherwise.
        view: selectors and signatures of copies, in order, that turn the buffer's value into this
            one without moving anything.
    """

    kind: str
    text: str
    cell: str
    box: str
    type: str
    operands: tuple[int, ...] = ()
    access: int = -1
    view: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """What it computes, for people: its cell, its selector, or the scan."""
        return f"scan {self.text}" if self.kind == "scan" else self.cell or self.text

    @property
    def operators(self) -> set[str]:
        """What it names, as packs declare it: "cell exp", "monoid max", "selector slice"."""
        named = _selectors(self.view)
        if self.kind == "cell":
            named |= {f"cell {split_text(self.cell)[0]}", f"monoid {signature(self.text).monoid}"}
        if self.kind in ("gather", "scan"):
            kind = "selector" if self.kind == "gather" else "monoid"
            named.add(f"{kind} {split_text(self.text)[0]}")
        return named


def _selectors(view: tuple[str, ...]) -> set[str]:
    return {f"selector {split_text(text)[0]}" for text in view if not is_signature(text)}


@dataclass(frozen=True)
class Access:
    """A buffer as one step sees it: its name, the layout it is accessed with, where it begins."""

    buffer: str
    layout: str
    begins: tuple[int, ...] = ()


@dataclass(frozen=True)
class KernelStep:
    """One kernel.

    Attributes:
        name: unique within the graph; readable ("k3_mul_sum").
        nodes: tile nodes, operands before users.
        roots: node numbers that are stored, aligned with `writes`.
        reads, writes: buffer accesses.
        loops: extent of every loop letter.
        schedule: name of the schedule that prices and implements it.
        row: instruction row it is built on, "" where none.
        parameters: block sizes by letter, stages and other parameters.
        time_s: estimated seconds.
        costs: named costs with units in their names.
        rejected: reason -> number of candidates it ruled out.
        rounds: every node rounds to its own dtype (exact numerics); else only stores round.
    """

    name: str
    nodes: tuple[TileNode, ...]
    roots: tuple[int, ...]
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    loops: Mapping[str, int]
    schedule: str
    row: str = ""
    parameters: Mapping[str, int] = field(default_factory=dict)
    time_s: float = 0.0
    costs: Mapping[str, float] = field(default_factory=dict)
    rejected: Mapping[str, int] = field(default_factory=dict)
    rounds: bool = False
    kind: str = "kernel"


@dataclass(frozen=True)
class MoveStep:
    """A copy of one value to another layout; bytes are what crosses links.

    Attributes:
        nodes: on a mesh, loads and the selectors that the value goes through on its way, operands
            before users; empty where it goes through none.
    """

    name: str
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    n_bytes: int = 0
    time_s: float = 0.0
    costs: Mapping[str, float] = field(default_factory=dict)
    nodes: tuple[TileNode, ...] = ()
    kind: str = "move"


@dataclass(frozen=True)
class SpmdStep:
    """A schedule of one device that every device of a mesh runs on its own parts.

    Attributes:
        name: unique within the graph.
        graph: of one device, on parts.
        reads, writes: buffers of the mesh, aligned with the inputs and outputs of `graph`.
    """

    name: str
    graph: ScheduleGraph
    reads: tuple[Access, ...]
    writes: tuple[Access, ...]
    time_s: float = 0.0
    costs: Mapping[str, float] = field(default_factory=dict)
    kind: str = "spmd"


Step = KernelStep | MoveStep | SpmdStep


def read_layout(step: Step, number: int, type: ValueType, layout: str) -> str:
    """The layout that a step reads a buffer of this type in where it lies in one.

    It is another one where what is read is a view of the buffer's value.

    Raises:
        ScheduleError: the view has no layout there.
    """
    nodes = step.nodes if isinstance(step, KernelStep) else ()
    for text in next((n.view for n in nodes if n.access == number), ()):
        seen = view_layout(text, type, layout)
        if seen is None:
            wrong = f"reads {text!r} of {type}, which is no view of {layout}"
            raise ScheduleError(f"step {step.name}", wrong, "a layout that the algebra gives")
        type, layout = view_type(text, type), seen
    return layout


def output_name(number: int) -> str:
    """What an output of a program is called beside its inputs."""
    return f"output {number}"


SIGNAL = "signal"  # role of numbers that devices meet by, see `axe_eq.schedule.meeting`
GIVEN = ("input", "constant", SIGNAL)  # roles of what is there before the first step


@dataclass(frozen=True)
class BufferSpec:
    """A buffer: flat memory that holds one value in a layout.

    Attributes:
        name: unique within the graph.
        type: type text of the value as its writer sees it.
        layout: canonical axe text of the layout it is kept in.
        role: "input", "output", "constant", "temporary" or "signal".
        within: on a mesh, the buffer whose memory it lies in, where its layout says; "" where it
            has memory of its own.
        begins: within another one's memory, per device so many elements behind where the layout
            says; () where all devices have it at one place.
        across: it lies in the memory of all devices that have that other one: kernels read or store
            every element there, see `axe_eq.mesh.across`. Its layout says which devices use it.
        after: of one device, the signal that its first kernel waits for before it reads it, see
            `axe_eq.schedule.meeting`; "" where it is there when kernels begin.
        before: of one device, the signal by which the kernel that stores it tells others so.
        chunk: of such, elements that one number of a signal stands for: the number of an element is
            its address over that, modulo how many there are. 0 where one stands for all.
        over: the buffer whose memory it takes, for its kernel merges what it computes with what
            that holds, see `axe_eq.schedule.merging`; "" where none.
    """

    name: str
    type: str
    layout: str
    role: str
    within: str = ""
    begins: tuple[int, ...] = ()
    across: bool = False
    after: str = ""
    before: str = ""
    chunk: int = 0
    over: str = ""

    @property
    def inside(self) -> str:
        """The buffer in whose memory on the same device it lies, "" where in none."""
        return "" if self.across else self.within

    @property
    def value_type(self) -> ValueType:
        """Type of the value."""
        return value_type(self.type)


@dataclass(frozen=True)
class Launch:
    """Kernels that one call runs, one after another: its stages.

    Attributes:
        name: of the call; unique among steps too.
        steps: their names, next to each other in the graph.
        kept: buffer -> the layout in which its value stays near the engines from its writer to the
            readers in this call, on the axes of that memory. Of a temporary that no other call
            reads nothing is stored.
    """

    name: str
    steps: tuple[str, ...]
    kept: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class ScheduleGraph:
    """The chosen schedule.

    Attributes:
        target: target name.
        buffers: by name.
        steps: in a valid order.
        inputs: buffer names in the order of the program's inputs (constants included, after them).
        outputs: buffer names in the order of the program's outputs.
        views: per output the selectors, in order, that turn the buffer's value into the output's
            without moving anything; empty where every output is its buffer's value.
        dims: input name -> dim names ("" where unnamed), for rebinding.
        mesh: mesh axes and sizes, None on one device.
        time_s: estimated seconds of the whole graph.
        near: on a mesh, per link but the last, per device the first of those it reaches by no
            other: who has what is sent by who is nearest.
        launches: kernels that run in one call; steps of none have a call each.
        apart: why kernels of which one reads the other's value are not in one call.
    """

    target: str
    buffers: Mapping[str, BufferSpec]
    steps: tuple[Step, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    dims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    mesh: Mapping[str, int] | None = None
    time_s: float = 0.0
    views: tuple[tuple[str, ...], ...] = ()
    near: tuple[tuple[int, ...], ...] = ()
    launches: tuple[Launch, ...] = ()
    apart: tuple[str, ...] = ()

    @property
    def calls(self) -> tuple[Step | Launch, ...]:
        """What is run one after another: launches, and steps that are in none."""
        launch_of = {name: launch for launch in self.launches for name in launch.steps}
        called: list[Step | Launch] = []
        for step in self.steps:
            call = launch_of.get(step.name, step)
            if not called or called[-1] is not call:
                called.append(call)
        return tuple(called)

    def stages(self, launch: Launch) -> tuple[KernelStep, ...]:
        """The steps of a launch."""
        return tuple(s for s in self.kernels if s.name in launch.steps)

    def accesses(self, call: Step | Launch) -> tuple[tuple[Access, ...], tuple[Access, ...]]:
        """(what a call reads that others wrote, what it writes that others may read)."""
        if not isinstance(call, Launch):
            return call.reads, call.writes
        steps = self.stages(call)
        own = {w.buffer for s in steps for w in s.writes}
        others = {a.buffer for s in self.steps if s.name not in call.steps for a in s.reads}
        reads = dict.fromkeys(a for s in steps for a in s.reads if a.buffer not in own)
        writes = dict.fromkeys(
            w for s in steps for w in s.writes
            if w.buffer in others or self.buffers[w.buffer].role != "temporary"
        )  # fmt: skip
        return tuple(reads), tuple(writes)

    def output_types(self) -> list[ValueType]:
        """Types of the program's outputs, through their views."""
        found = []
        for number, name in enumerate(self.outputs):
            type_ = self.buffers[name].value_type
            for text in self.views[number] if self.views else ():
                type_ = sel_type(text, (type_,))
            found.append(type_)
        return found

    def operators(self) -> set[str]:
        """What its steps name, see `TileNode.operators`."""
        found = {name for view in self.views for name in _selectors(view)}
        for step in self.steps:
            found |= step.graph.operators() if isinstance(step, SpmdStep) else set()
            nodes = () if isinstance(step, SpmdStep) else step.nodes
            found |= {name for node in nodes for name in node.operators}
        return found

    def networkx(self) -> nx.DiGraph[str]:
        """Steps as nodes (by name), buffers as edge attributes `buffer`."""
        import networkx as nx  # running a compiled program needs no graph library

        graph: nx.DiGraph[str] = nx.DiGraph()
        writer = {w.buffer: s.name for s in self.steps for w in s.writes}
        for step in self.steps:
            graph.add_node(step.name, step=step)
            for read in step.reads:
                if read.buffer in writer:
                    graph.add_edge(writer[read.buffer], step.name, buffer=read.buffer)
        return graph

    @property
    def kernels(self) -> tuple[KernelStep, ...]:
        """The kernels, in order; on a mesh those of every device."""
        return tuple(s for s in self.flat if isinstance(s, KernelStep))

    @property
    def flat(self) -> tuple[Step, ...]:
        """All steps, with those of devices in place of what devices run."""
        parts = ((s.graph.steps if isinstance(s, SpmdStep) else (s,)) for s in self.steps)
        return tuple(step for part in parts for step in part)

    def to_json(self) -> str:
        """The whole graph as JSON text."""
        return plain.text(self)


def from_json(text: str) -> ScheduleGraph:
    """Inverse of `ScheduleGraph.to_json`.

    Raises:
        ScheduleError: not such a text.
    """
    try:
        return plain.read("schedule", json.loads(text), ScheduleGraph)
    except plain.DAMAGED as error:
        wrong = f"does not read ({cause(error)})"
        raise ScheduleError("schedule text", wrong, "what to_json wrote") from None
