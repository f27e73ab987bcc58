"""Single kernels on the CPU, for comparing them with the cones that they implement."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from axe_eq.program.types import Array
from axe_eq.schedule.graph import KernelStep, MoveStep, ScheduleGraph
from axe_eq.target import Target
from axe_eq_backends.cpu.run import run_schedule


class CpuInterpreter:
    """The interpreter of family "cpu": a graph of one kernel is run."""

    def run(
        self,
        step: KernelStep | MoveStep,
        graph: ScheduleGraph,
        target: Target,
        arrays: Mapping[str, Array],
        order: int = 0,
    ) -> dict[str, Array]:
        """What a step writes, by buffer; see `axe_eq.run.interpret.Interpreter`.

        numpy leaves no order open.

        Raises:
            ScheduleError: it is not valid.
        """
        reads = tuple(dict.fromkeys(a.buffer for a in step.reads))
        writes = tuple(a.buffer for a in step.writes)
        buffers = {n: replace(graph.buffers[n], role="input") for n in reads}
        buffers |= {n: replace(graph.buffers[n], role="output") for n in writes}
        alone = ScheduleGraph(graph.target, buffers, (step,), reads, writes)
        return dict(zip(writes, run_schedule(alone, [arrays[n] for n in reads]), strict=True))


INTERPRETER = CpuInterpreter()
