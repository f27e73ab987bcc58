"""Several kernels as one: what one hands another stays in SBUF, where that fits.

To NKI a call is a function, and nothing stays in SBUF between two. So kernels of which one reads
what the other writes become stages of one function. Candidates are where their values lie there,
and the last stage's own candidates; each is written, placed and timed as any kernel is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice, product

from axe_eq.errors import AxeError
from axe_eq.lower.candidate import Joined
from axe_eq.lower.own import own_lowering
from axe_eq.lower.read import read_cone
from axe_eq.schedule.graph import KernelStep, ScheduleGraph
from axe_eq.target import Target
from axe_eq_backends.nki.cost import SCHEDULES, TIMED
from axe_eq_backends.nki.lower import Near, Stage, lies_in, near_ways, stage_of, written
from axe_eq_backends.nki.order import instructions
from axe_eq_backends.nki.planning import Made, plan

# Of longer calls a launch is a small part, and each more of them takes long to price.
MOST_INSTRUCTIONS = 8_000
MOST_WAYS = 6  # to lie, of all values together
MOST_CANDIDATES = 3  # of the last stage


def joined(
    steps: Sequence[KernelStep], graph: ScheduleGraph, target: Target, kept: Mapping[str, str]
) -> Joined | str:
    """The cheapest call of some kernels; or why there is none.

    Args:
        steps: writers of values before their readers.
        graph: that they stand in.
        target: the machine.
        kept: layouts of values that stay in SBUF between all but the last.
    """
    own = next((s.schedule for s in steps if own_lowering(s) is not None), None)
    if own is not None:
        return f"schedule {own!r} writes kernels of its own"
    fixed = {b: lies_in(text, b, steps, graph, target) for b, text in kept.items()}
    cones = [read_cone(s) for s in steps]
    stages = [stage_of(s, c) for s, c in zip(steps, cones, strict=True)]
    made = list[tuple[Made, dict[str, Near], Stage]]()
    unwritten, unplanned = list[AxeError](), list[AxeError]()
    for near, last in product(
        islice(_ways(steps, graph, target, fixed), MOST_WAYS), _last(steps[-1], stages[-1], target)
    ):  # fmt: skip
        try:
            kernel, _ = written([*stages[:-1], last], "call", target, near)
        except AxeError as error:
            unwritten.append(error)
            continue
        try:
            found = plan(kernel, target)
        except AxeError as error:  # too large for SBUF, among others
            unplanned.append(error)
            continue
        if (count := instructions(found.planned)) > MOST_INSTRUCTIONS:
            return f"together {count} instructions, at most {MOST_INSTRUCTIONS} are joined"
        made.append((found, near, last))
    if not made:
        why = next(iter((*unplanned, *unwritten)), None)
        return f"{why.thing} {why.wrong}; expected {why.expected}" if why else "no dense value"
    nearest = sorted(made, key=lambda x: x[0].near_s)[:TIMED]
    best, near, last = min(nearest, key=lambda x: x[0].time_s)
    layouts = {b: x.lying.layout for b, x in near.items()}
    parameters = (*(s.parameters for s in stages[:-1]), last.parameters)
    return Joined(best.time_s, best.costs, layouts, parameters)


def _ways(
    steps: Sequence[KernelStep], graph: ScheduleGraph, target: Target, fixed: Mapping[str, Near]
) -> Iterator[dict[str, Near]]:
    """Where the values between kernels may lie: those that the last one is the first to read."""
    made = {w.buffer for s in steps for w in s.writes}
    new = dict.fromkeys(a.buffer for a in steps[-1].reads if a.buffer in made - fixed.keys())
    for chosen in product(*(near_ways(b, steps, graph, target) for b in new)):
        yield {**fixed, **dict(zip(new, chosen, strict=True))}


def _last(step: KernelStep, stage: Stage, target: Target) -> list[Stage]:
    """The last stage by its own parameters, and by those of its schedule's other candidates."""
    candidates = SCHEDULES[step.schedule].candidates(step, target)
    others = [c.parameters for c in candidates if c.parameters != stage.parameters]
    return [stage, *(replace(stage, parameters=p) for p in others[: MOST_CANDIDATES - 1])]
