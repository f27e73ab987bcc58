"""From the schedule graph that extraction chose for a mesh to the plan of all ranks.

A kernel runs on every rank's own parts. A move, through selectors or not, is an exchange. A
reduction over a mesh axis is an exchange of the parts' slices and a local fold in a fixed order
(reduce-scatter), then an exchange to where the result is wanted (all-reduce): all copies of a
result are copies of one sum. Where nothing can be sliced, the first device along the axis folds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from axe_eq.errors import ScheduleError
from axe_eq.layout import Layout, Mesh
from axe_eq.mesh.plan import MeshPlan
from axe_eq.mesh.sides import side
from axe_eq.mesh.steps import LocalStep, Step, exchange, local_type
from axe_eq.program.signature import make, plain
from axe_eq.program.types import ValueType
from axe_eq.schedule import shard
from axe_eq.schedule.graph import (
    Access,
    BufferSpec,
    CollectiveStep,
    KernelStep,
    MoveStep,
    ScheduleGraph,
    TileNode,
)
from axe_eq.schedule.terms import row_major


def lower(graph: ScheduleGraph) -> MeshPlan:
    """The plan of a schedule graph on a mesh.

    Raises:
        ScheduleError: a graph of one device, or a buffer that is no cut over the mesh.
    """
    if graph.mesh is None:
        raise ScheduleError("schedule", "is of one device", "one on a mesh")
    lowering = _Lowering(graph, shard.mesh_text(Mesh(dict(graph.mesh))))
    for step in graph.steps:
        if isinstance(step, KernelStep):
            lowering.kernel(step)
        elif isinstance(step, MoveStep):
            lowering.move(step)
        else:
            lowering.collective(step)
    return MeshPlan(
        graph.target, dict(graph.mesh), lowering.buffers, tuple(lowering.steps), graph.inputs,
        graph.outputs, tuple(map(str, graph.output_types())),
    )  # fmt: skip


class _Lowering:
    def __init__(self, graph: ScheduleGraph, mesh: str) -> None:
        self.graph, self.mesh = graph, mesh
        self.buffers = dict(graph.buffers)
        self.steps: list[Step] = []

    def kernel(self, step: KernelStep) -> None:
        """A kernel on every rank's own parts."""
        self._local(step, [a.buffer for a in step.reads], [a.buffer for a in step.writes])

    def _local(self, step: KernelStep, reads: Sequence[str], writes: Sequence[str]) -> None:
        def local(names: Sequence[str], role: str) -> dict[str, BufferSpec]:
            found = {}
            for name in names:
                type_ = local_type(self.buffers[name], self.mesh)
                found[name] = BufferSpec(name, str(type_), row_major(type_.size), role)
            return found

        buffers = local(reads, "input") | local(writes, "output")

        def accesses(names: Sequence[str]) -> tuple[Access, ...]:
            return tuple(Access(n, buffers[n].layout) for n in names)

        kernel = replace(step, reads=accesses(reads), writes=accesses(writes))
        once = tuple(dict.fromkeys(reads))
        graph = ScheduleGraph(
            self.graph.target, buffers, (kernel,), once, tuple(writes), time_s=step.time_s
        )
        buffer = self.buffers[writes[0]]
        who = side(buffer.layout, buffer.value_type.shape, shard.DEVICE_AXIS).devices
        self.steps.append(LocalStep(step.name, graph, once, tuple(writes), tuple(who.tolist())))

    def move(self, step: MoveStep) -> None:
        """A move between layouts, through selectors where it has some."""
        (write,) = step.writes
        type_ = self.buffers[write.buffer].type
        nodes = step.nodes or (TileNode("load", "", "", "", type_, (), 0),)
        self._exchange(step.name, step.reads, write, nodes)

    def _exchange(
        self, name: str, reads: Sequence[Access], write: Access, nodes: Sequence[TileNode]
    ) -> None:
        self.steps.append(exchange(name, len(self.steps), reads, write, nodes))

    def collective(self, step: CollectiveStep) -> None:
        """A reduction over a mesh axis: slices to whoever folds them, then to whoever wants it."""
        ((read,), (write,)), (axis,) = (step.reads, step.writes), step.axes
        partial, out = self.buffers[read.buffer], self.buffers[write.buffer]
        box = shard.box_of(out.type, Layout.parse(write.layout), self.mesh)
        scattered = shard.cut_further(out.type, box, axis, self.mesh)
        apart = "" if any(axis in axes for axes in shard.entries(scattered)) else axis
        slices = self._buffer(
            f"{step.name}.slices", partial.type, f"{shard.NONE} {scattered}", apart
        )
        loads = (TileNode("load", "", "", "", partial.type, (), 0),)
        self._exchange(f"{step.name}.exchange", [read], slices, loads)
        done = write
        if scattered != box or apart:
            done = self._buffer(f"{step.name}.folded", out.type, scattered, apart)
        self._local(self._fold(step, slices.buffer), [slices.buffer], [done.buffer])
        if done is not write:
            loads = (TileNode("load", "", "", "", out.type, (), 0),)
            self._exchange(f"{step.name}.gather", [done], write, loads)

    def _buffer(self, name: str, type_: str, box: str, apart: str) -> Access:
        layout = shard.layout_text(type_, " ".join(box.split()), self.mesh, apart)
        self.buffers[name] = BufferSpec(name, type_, layout, "temporary")
        return Access(name, layout)

    def _fold(self, step: CollectiveStep, slices: str) -> KernelStep:
        """The reduction of dim 0, first to last."""
        given = local_type(self.buffers[slices], self.mesh)
        rank = given.rank - 1
        sig = make([[plain(rank), *map(plain, range(rank))]], range(rank), step.monoid, [rank])
        out = ValueType(given.dtype, given.shape[1:])
        load = TileNode("load", "", "", _whole(given.rank), str(given), (), 0)
        cell = TileNode("cell", sig.text, "id", _whole(rank), str(out), (0,))
        return KernelStep(f"{step.name}.fold", (load, cell), (1,), (), (), {}, "spmd")


def _whole(rank: int) -> str:
    return " ".join("*" for _ in range(rank))
