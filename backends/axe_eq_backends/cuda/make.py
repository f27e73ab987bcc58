"""From the steps of schedule graphs to kernels and their text; what a search builds."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from axe_eq.errors import EmitError, ScheduleError
from axe_eq.extract.search.commit import content
from axe_eq.kernel.cells import flops
from axe_eq.kernel.threads.dispatch import Planned
from axe_eq.lower.own import Lowered, own_lowering
from axe_eq.schedule.graph import KernelStep, MoveStep, ScheduleGraph, SpmdStep
from axe_eq.target import Target
from axe_eq_backends.cuda import sizes
from axe_eq_backends.cuda.emit import Source, emit
from axe_eq_backends.cuda.lower import lower
from axe_eq_backends.cuda.planning import plan as plan_kernel
from axe_eq_backends.cuda.sizes import MOST_INSTRUCTIONS, MOST_TEXT

MOST_MADE = 64


@dataclass(frozen=True)
class Made:
    """One step of a schedule graph, all the way to its text.

    Attributes:
        lowered: its kernel, with the buffers behind its tensors.
        planned: with a plan for every primitive.
        source: CUDA C++.
    """

    lowered: Lowered
    planned: Planned
    source: Source


_made: OrderedDict[object, tuple[object, Made]] = OrderedDict()  # with what the key names by id


def make(step: KernelStep | MoveStep, graph: ScheduleGraph, target: Target) -> Made:
    """Lower, plan and write a step; the latest ones are remembered.

    A search builds what it takes, and saving or reading the text of what it took asks again.

    Raises:
        DispatchError, ScheduleError: no schedule or instruction of the target covers it.
        EmitError: it has no text, or is larger than what is compiled in seconds.
    """
    if own_lowering(step) is not None:
        return _made_now(step, graph, target)  # by somebody's own code, another the next time
    names = tuple(a.buffer for a in (*step.reads, *step.writes))
    roles = tuple(graph.buffers[a.buffer].role for a in step.writes)
    key = step.name, names, roles, content(step, graph), id(target)
    known = _made.pop(key, None)
    if known is None:
        known = target, _made_now(step, graph, target)
    _made[key] = known
    while len(_made) > MOST_MADE:
        _made.popitem(last=False)
    return known[1]


def _made_now(step: KernelStep | MoveStep, graph: ScheduleGraph, target: Target) -> Made:
    lowered = lower(step, graph, target)
    planned = plan_kernel(lowered.kernel, target)
    # Before its text is written: a search that meets such kernels meets dozens of them.
    size = instructions(planned)
    check_size(step.name, size, "instructions for cells a thread", MOST_INSTRUCTIONS)
    source = emit(planned)
    check_size(source.name, len(source.text), "letters of text", MOST_TEXT)
    return Made(lowered, planned, source)


def check_size(name: str, n: int, what: str, most: int) -> None:
    """Refuse a kernel that NVRTC would compile for a minute.

    Raises:
        EmitError: gives its size and the limit.
    """
    if n > most:
        raise EmitError(f"kernel {name}", f"is about {n} {what}", f"at most {most}")


def instructions(planned: Planned) -> int:
    """About how many instructions the cells of a kernel are in one thread, unrolled as they are."""
    total = 0.0
    for choice in planned.choices.values():
        for call in choice.plan.calls:
            if "cell" in call.args:
                total += len(call["out"].index) * flops(call["cell"])
    return int(sizes.instructions(total))


def texts(graph: ScheduleGraph, target: Target) -> dict[str, str]:
    """Kernel name -> CUDA C++ text that compiles alone.

    Raises:
        DispatchError: a kernel that no schedule or instruction of the target covers.
    """
    return {name: made.source.text for name, made in make_all(graph, target).items()}


def make_all(graph: ScheduleGraph, target: Target) -> dict[str, Made]:
    """Step name -> its kernel.

    Raises:
        DispatchError, EmitError, ScheduleError: a step that cannot run on one device.
    """
    found = {}
    for step in graph.steps:
        if isinstance(step, SpmdStep):
            raise ScheduleError(
                f"step {step.name}", "is for the devices of a mesh", "a graph for one device"
            )
        found[step.name] = make(step, graph, target)
    return found
