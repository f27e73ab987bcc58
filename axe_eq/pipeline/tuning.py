"""Tuning: the candidates that are nearest by price are measured, and the fastest are taken.

Extraction has chosen, and a few schedules are near it. Of every kernel in these the cheapest
candidates by price are built and run alone; a schedule is as fast as its kernels' fastest
candidates together. The winner replaces what was chosen only where it is faster as a whole, so
tuning makes no program slower.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from axe_eq.debug import progress
from axe_eq.errors import ArgumentError, SearchError
from axe_eq.extract.search.commit import as_priced, content
from axe_eq.extract.search.merge import Group, stored
from axe_eq.extract.search.stage import Extracted
from axe_eq.layout import Mesh
from axe_eq.pipeline.job import Job
from axe_eq.pipeline.rounds import Choices, graph_of
from axe_eq.run.corrections import MEASURED
from axe_eq.run.timing import Timing, alone, timed
from axe_eq.schedule.graph import KernelStep, MoveStep, ScheduleGraph, SpmdStep, Step

NEAREST = 8  # candidates of a kernel that are measured
BUDGET_S = 60.0  # for all of a program, where no other is given
SHARE_S = 0.05  # for the rounds of one candidate


@dataclass(frozen=True)
class Tuned:
    """The fastest schedule that was measured.

    Attributes:
        schedule: each of its steps with what it takes alone as the cost "measured_s".
        before_s, after_s: seconds of what extraction chose, and of this, as wholes.
        n_measured: candidates that ran.
        left: kernels of which some candidates did not run, since the time was over.
    """

    schedule: ScheduleGraph
    before_s: float
    after_s: float
    n_measured: int
    left: int

    def notes(self) -> dict[str, object]:
        """Figures of the stage."""
        found = {"measured": self.n_measured, "before_s": self.before_s, "after_s": self.after_s}
        return {**found, "left": self.left} if self.left else {**found}


@dataclass
class _Bench:
    """Measures steps, each once, until the time is over."""

    run: Callable[[ScheduleGraph], Timing]
    until: float
    left: int = 0
    known: dict[object, float] = field(default_factory=dict)

    def is_over(self) -> bool:
        """Whether the time is over."""
        return time.monotonic() > self.until

    def seconds(self, step: Step, graph: ScheduleGraph) -> float:
        """What a step takes alone."""
        assert not isinstance(step, SpmdStep)
        kind = content(step, graph)
        if kind not in self.known:
            progress.at(f"tuning: {len(self.known)} candidates measured, {step.name}")
            self.known[kind] = self.run(alone(graph, step)).median_s
        return self.known[kind]


def check_tuning(tune: Any, mesh: Mesh | None) -> None:
    """Refuse what cannot be tuned.

    Raises:
        ArgumentError: no number of seconds.
        SearchError: a plan on a mesh.
    """
    if not isinstance(tune, bool | int | float) or not 0 <= tune < float("inf"):
        raise ArgumentError(f"tune={tune!r}", "is no number of seconds", "True, False or seconds")
    if tune and mesh is not None:
        raise SearchError(f"tune={tune!r}", "plans on a mesh are not measured", "one device")


def tune(job: Job, choices: Choices, found: Extracted, chosen: ScheduleGraph) -> Tuned:
    """Measure what is near the chosen schedule, and take the fastest.

    Raises:
        DeviceError: this machine is no such target.
    """
    runner = job.runner()

    def run(graph: ScheduleGraph) -> Timing:
        return timed(runner, graph, job.target, SHARE_S)

    budget_s = BUDGET_S if job.tune is True else float(job.tune)
    bench = _Bench(run, time.monotonic() + budget_s)
    before = run(chosen)
    made = [chosen]
    for number, groups in enumerate((found.groups, *found.alternatives)):
        if number == 0 or not bench.is_over():
            graph = graph_of(job.program, found, groups, job.target, job.numerics)
            if (fastest := _fastest(graph, groups, choices, found, bench)) is not None:
                made.append(fastest)
    best = min(made, key=lambda g: sum(bench.seconds(s, g) for s in g.steps))
    after = run(best)
    if after.median_s >= before.median_s:
        best, after = chosen, before
    steps = tuple(_measured(s, bench.seconds(s, best)) for s in best.steps)
    best = replace(best, steps=steps, time_s=sum(s.time_s for s in steps))
    return Tuned(best, before.median_s, after.median_s, len(bench.known), bench.left)


def _fastest(
    graph: ScheduleGraph, groups: Sequence[Group], choices: Choices, found: Extracted, bench: _Bench
) -> ScheduleGraph | None:
    """A schedule with every kernel's fastest candidate; None where a kernel has none."""
    of_kernels, steps = iter(groups), list[Step]()
    for step in graph.steps:
        made: Iterator[Step] = iter((step,))
        if isinstance(step, KernelStep):
            made = _candidates(step, next(of_kernels), graph, choices, found, bench)
        taken = min(made, key=lambda s: bench.seconds(s, graph), default=None)
        if taken is None:
            return None
        steps.append(taken)
    return replace(graph, steps=tuple(steps))


def _candidates(
    step: KernelStep,
    group: Group,
    graph: ScheduleGraph,
    choices: Choices,
    found: Extracted,
    bench: _Bench,
) -> Iterator[KernelStep]:
    """A kernel by its nearest candidates that can be built, the first in any case."""
    layouts, first = stored(found.forest, group), True  # what was split is in no other forest
    for price in found.prices.nearest(group.roots, group.picks, layouts, NEAREST):
        if not first and bench.is_over():
            bench.left += 1
            return
        made = replace(as_priced(step, price), rejected=step.rejected)
        if choices.kernels.reason(made, graph) is None:
            first = False
            yield made


def _measured(step: Step, seconds: float) -> Step:
    assert isinstance(step, KernelStep | MoveStep)
    return replace(step, costs={**step.costs, MEASURED: seconds})
