"""Which kernels run in one call, with what one hands another kept near the engines between them.

Where the emitter of a target joins kernels (`Joiner`), a kernel becomes a stage of the call that
writes what it reads, if that is cheaper: a launch less, and nothing of the value between them is
written to the first memory and read from there. Of the last call it becomes one for the launch. The
emitter prices the call as it emits it; what does not fit stays apart, and the schedule says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol, runtime_checkable

from axe_eq.lower.candidate import Joined
from axe_eq.schedule.graph import KernelStep, Launch, ScheduleGraph, Step
from axe_eq.target import Target


@runtime_checkable
class Joiner(Protocol):
    """What an emitter brings that writes several kernels as one call."""

    def join(
        self, steps: Sequence[KernelStep], graph: ScheduleGraph, target: Target,
        kept: Mapping[str, str],
    ) -> Joined | str:  # fmt: skip
        """The cheapest call of some kernels; or why there is none.

        Args:
            steps: writers of values before their readers.
            graph: that they stand in.
            target: the machine.
            kept: where values lie that are kept already.
        """


def launched(graph: ScheduleGraph, builder: Joiner, target: Target) -> ScheduleGraph:
    """A schedule of one device with kernels joined to calls, one after another, where it pays.

    Args:
        graph: of kernels that can be built.
        builder: the target's emitter, which joins kernels.
        target: the machine.
    """
    if len(graph.kernels) < 2:
        return graph
    return _Launches(graph, builder, target).run()


class _Launches:
    def __init__(self, graph: ScheduleGraph, joiner: Joiner, target: Target) -> None:
        self.graph, self.joiner, self.target = graph, joiner, target
        self.calls: list[list[Step]] = []
        self.joined: dict[int, Joined] = {}  # by call
        self.apart: list[str] = []

    def run(self) -> ScheduleGraph:
        """The graph with its launches; times of stages are shares of their call's."""
        for step in self.graph.steps:
            if not isinstance(step, KernelStep) or not self._joins(step):
                self.calls.append([step])
        for number, joined in self.joined.items():
            self.calls[number] = self._shared(self.calls[number], joined)
        launches = tuple(
            Launch(_name(self.calls[n]), tuple(s.name for s in self.calls[n]), joined.kept)
            for n, joined in self.joined.items()
        )
        steps = tuple(step for call in self.calls for step in call)
        time_s = sum(s.time_s for s in steps)
        return replace(self.graph, steps=steps, launches=launches, apart=tuple(self.apart),
                       time_s=time_s)  # fmt: skip

    def _joins(self, step: KernelStep) -> bool:
        """Put a kernel at the end of the latest call that it reads from, where that is cheaper.

        Else of the last one, for a launch less. What a kernel reads must be written before its call
        begins, or in it.
        """
        writer = {w.buffer: n for n, call in enumerate(self.calls) for s in call for w in s.writes}
        read = max((writer[a.buffer] for a in step.reads if a.buffer in writer), default=-1)
        calls = dict.fromkeys(n for n in (read, len(self.calls) - 1) if n >= 0)
        return any(self._joins_call(step, n, n == read) for n in calls)

    def _joins_call(self, step: KernelStep, number: int, reads: bool) -> bool:
        if not all(isinstance(s, KernelStep) for s in self.calls[number]):
            return False
        stages = [s for s in (*self.calls[number], step) if isinstance(s, KernelStep)]
        known = self.joined[number].kept if number in self.joined else {}
        found = self.joiner.join(stages, self.graph, self.target, known)
        before = self.joined[number].time_s if number in self.joined else stages[0].time_s
        if isinstance(found, Joined) and found.time_s >= before + step.time_s:
            found = "one call takes longer"
        if isinstance(found, str):
            if reads:
                self.apart.append(f"{step.name} after {stages[-2].name}: {found}")
            return False
        self.joined[number], self.calls[number] = found, [*self.calls[number], step]
        return True

    def _shared(self, stages: Sequence[Step], joined: Joined) -> list[Step]:
        """Stages with the parameters they are written by, and their shares of the call's costs."""
        whole, how = sum(s.time_s for s in stages), self.target.costs
        made = list[Step]()
        for s, parameters in zip(stages, joined.parameters, strict=True):
            assert isinstance(s, KernelStep)
            share = s.time_s / whole
            costs = {
                k: v if how.get(k) == "peak" else v * share for k, v in joined.costs.items()
            }  # fmt: skip
            time_s = joined.time_s * share
            made.append(replace(s, parameters=parameters, time_s=time_s, costs=costs))
        return made


def _name(stages: Sequence[Step]) -> str:
    """A name of a call: its first kernel's, and the last one's number."""
    return f"{stages[0].name}_to_{stages[-1].name.partition('_')[0]}"
