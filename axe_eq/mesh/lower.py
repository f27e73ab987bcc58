"""From the schedule graph that extraction chose for a mesh to the plan of all ranks.

What every device computes runs on every rank's own parts. A move, through selectors or not, is an
exchange with all its messages. A reduction over devices is an exchange of slices and a fold that a
rank computes, in a fixed order: all copies of a result are copies of one sum, or made alike. Steps
are in the order in which exchanges are hidden best, see `axe_eq.mesh.overlap`.
"""

from __future__ import annotations

from axe_eq.errors import ScheduleError
from axe_eq.layout import Mesh
from axe_eq.mesh.overlap import overlapped
from axe_eq.mesh.plan import MeshPlan
from axe_eq.mesh.steps import LocalStep, Step, exchange
from axe_eq.schedule import shard
from axe_eq.schedule.graph import MoveStep, ScheduleGraph, SpmdStep, TileNode


def lower(graph: ScheduleGraph) -> MeshPlan:
    """The plan of a schedule graph on a mesh.

    Raises:
        ScheduleError: a graph of one device, or a step of one.
    """
    if graph.mesh is None:
        raise ScheduleError("schedule", "is of one device", "one on a mesh")
    graph = overlapped(graph)
    assert graph.mesh is not None
    every = tuple(range(shard.n_devices(shard.mesh_text(Mesh(dict(graph.mesh))))))
    steps: list[Step] = []
    for step in graph.steps:
        reads = tuple(a.buffer for a in step.reads)
        writes = tuple(a.buffer for a in step.writes)
        if isinstance(step, SpmdStep):
            steps.append(LocalStep(step.name, step.graph, reads, writes, every))
        elif isinstance(step, MoveStep):
            nodes = step.nodes or (
                TileNode("load", "", "", "", graph.buffers[writes[0]].type, (), 0),
            )
            write, near = step.writes[0], graph.near
            steps.append(
                exchange(step.name, len(steps), step.reads, write, nodes, near, step.time_s)
            )
        else:
            raise ScheduleError(f"step {step.name}", "is of one device", "one on a mesh")
    return MeshPlan(
        graph.target, dict(graph.mesh), dict(graph.buffers), tuple(steps), graph.inputs,
        graph.outputs, tuple(map(str, graph.output_types())),
    )  # fmt: skip
