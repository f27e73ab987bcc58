"""Proof that results which memory merges with what has arrived lie where nobody else looks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from axe_eq.errors import ScheduleError
from axe_eq.mesh.steps import ExchangeStep, LocalStep, reads_of, writes_of
from axe_eq.schedule.digits import digits
from axe_eq.schedule.merging import merges

if TYPE_CHECKING:
    from axe_eq.mesh.plan import MeshPlan


def check_merging(plan: MeshPlan) -> None:
    """Show that results take the memory of nothing that is needed.

    An exchange brings what a result is merged with to where the result will lie. The kernel that
    merges it alone reads it, and no other buffer lies there.

    Raises:
        ScheduleError: says of which buffer that is not so.
    """
    for name, own in plan.buffers.items():
        if own.over:
            _check(plan, name)
    for step in plan.steps:
        if not isinstance(step, LocalStep):
            continue
        given, made = (
            dict(zip(names, of, strict=True))
            for names, of in ((step.graph.inputs, step.reads), (step.graph.outputs, step.writes))
        )
        for name, buffer in step.graph.buffers.items():
            below = plan.buffers[made[name]].over if name in made else ""
            if given.get(buffer.over, "") != below or (buffer.over and not below):
                wrong = f"merges {name!r} with {buffer.over!r}"
                raise ScheduleError(f"step {step.name}", wrong, f"{below!r}, as the plan says")
            if buffer.over:
                _check_kernel(step, name, buffer.over)


def _check(plan: MeshPlan, name: str) -> None:
    """What a result lies over arrives from others, dense, for the one step that makes that."""
    own, place = plan.buffers[name], f"buffer {name!r}"
    below = plan.buffers.get(own.over)
    if below is None or list(plan.under.values()).count(name) != 1:
        raise ScheduleError(place, f"lies over {own.over!r}", "one that nothing else lies over")
    makers = [s for s in plan.steps if below.name in writes_of(s)]
    readers = [s for s in plan.steps if below.name in reads_of(s)]
    apart = not below.within and not any(b.within == below.name for b in plan.buffers.values())
    brought = [isinstance(s, ExchangeStep) and plan.is_sent(s) for s in makers] == [True]
    if not brought or not apart or below.name in plan.outputs:
        raise ScheduleError(place, f"lies over {below.name!r}", "what an exchange brings")
    if len(readers) != 1 or name not in writes_of(readers[0]):
        who = " ".join(s.name for s in readers)
        raise ScheduleError(place, f"lies over {below.name!r}, which {who} read", "its own step")
    sizes = [(t.dtype, t.size) for t in (plan.local_type(name), plan.local_type(below.name))]
    if own.across or sizes[0] != sizes[1] or (own.within and not digits(own).is_dense):
        raise ScheduleError(place, f"lies over {below.name!r}", "one of its type and size, dense")


def _check_kernel(step: LocalStep, name: str, over: str) -> None:
    """The kernel that makes a result merges it with that last."""
    makers = [k for k in step.graph.kernels if name in {a.buffer for a in k.writes}]
    users = [s for s in step.graph.steps if over in {a.buffer for a in s.reads}]
    if users != makers or any(over not in merges(k, step.graph) for k in makers):
        raise ScheduleError(
            f"step {step.name}", f"does not merge {name!r} with {over!r}", "it last"
        )
