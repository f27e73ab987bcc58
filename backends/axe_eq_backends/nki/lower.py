"""From the kernels of a schedule graph to the kernel language, by the parameters of a candidate.

A schedule's candidates are written here too, to be priced: what is priced is what is emitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from axe_eq.errors import DispatchError, ScheduleError
from axe_eq.kernel import ir
from axe_eq.kernel.placement import number, of_layout
from axe_eq.layout import Layout
from axe_eq.lower.formulas import Cone
from axe_eq.lower.own import Lowered, own_kernel
from axe_eq.lower.read import as_kernel, read_cone
from axe_eq.program.types import value_type
from axe_eq.schedule.graph import KernelStep, Launch, MoveStep, ScheduleGraph
from axe_eq.schedule.memory import buffer_elements
from axe_eq.target import Target
from axe_eq_backends.nki.build import EngineBuilder, EngineKernel
from axe_eq_backends.nki.near import Kept, Lying, ways_to_lie
from axe_eq_backends.nki.planning import Made, plan
from axe_eq_backends.nki.schedules.contraction import Contraction, contraction
from axe_eq_backends.nki.schedules.gemm import gemm
from axe_eq_backends.nki.schedules.region import Names
from axe_eq_backends.nki.schedules.stream import Mixture, mixture, stream
from axe_eq_backends.nki.schedules.walk import walk
from axe_eq_backends.nki.space import space_of

Write = Callable[[Any, Names, Target, Mapping[str, int]], None]


@dataclass(frozen=True)
class Planned:
    """A lowered kernel with its plans.

    Attributes:
        made: the kernel, planned and placed.
        buffers: behind its tensors.
    """

    made: Made
    buffers: Mapping[str, str]


def _products(cone: Cone) -> Contraction:
    return contraction(space_of(cone))


def _mixture(cone: Cone) -> Mixture:
    return mixture(space_of(cone, structured=True))


# Schedule -> what it reads of a cone, whatever the parameters, and what writes that by them.
READS: Mapping[str, Callable[[Cone], Any]] = {
    "tiles": space_of, "tensor_engine": _products, "stream": _mixture
}  # fmt: skip
NONE: Mapping[str, Any] = MappingProxyType({})
WRITES: Mapping[str, Write] = {"tiles": walk, "tensor_engine": gemm, "stream": stream}


@dataclass(frozen=True)
class Stage:
    """What one kernel of a call computes.

    Attributes:
        schedule: that writes it.
        problem: what the schedule reads of its cone.
        parameters: of a candidate.
    """

    schedule: str
    problem: Any
    parameters: Mapping[str, int]


@dataclass(frozen=True)
class Near:
    """How a value lies in SBUF between two stages.

    Attributes:
        dtype: its element type.
        lying: its place.
        is_stored: it is stored to HBM too, as others read it.
    """

    dtype: str
    lying: Lying
    is_stored: bool


def written(
    stages: Sequence[Stage], name: str, target: Target, near: Mapping[str, Near] = NONE
) -> tuple[ir.Kernel, dict[str, str]]:
    """The kernel of stages, one after another, and the buffers behind its tensors.

    Args:
        stages: writers of values before their readers.
        name: of the kernel.
        target: the machine.
        near: values that stay in SBUF between them, by buffer.

    Raises:
        DispatchError: something that no instruction computes, or a value that a stage reads or
            writes where it does not lie.
    """
    k = EngineBuilder(name, target)
    kept = {
        b: Kept(x.lying.tile(k, b, x.dtype), x.lying, x.is_stored) for b, x in near.items()
    }  # fmt: skip
    names = Names(k, kept)
    for stage in stages:
        WRITES[stage.schedule](stage.problem, names, target, stage.parameters)
    return k.finish(), names.buffers


def stage_of(step: KernelStep, cone: Cone) -> Stage:
    """What a step computes, as its schedule reads it.

    Raises:
        DispatchError: its schedule writes no kernel, or not of this cone.
    """
    if step.schedule not in WRITES:
        known = " ".join(WRITES)
        raise cone.refuse(f"is priced by {step.schedule!r}, which writes no kernel", known)
    return Stage(step.schedule, READS[step.schedule](cone), step.parameters)


def check_results(step: KernelStep) -> None:
    """Refuse results that have gaps: a kernel returns all of a tensor that it wrote.

    Raises:
        DispatchError: the first of them.
    """
    for root, result in zip(step.roots, step.writes, strict=True):
        size, held = value_type(step.nodes[root].type).size, buffer_elements(result.layout)
        if held > size:
            wrong = f"lies in {result.layout}, {held} elements for {size}"
            raise DispatchError(f"result of kernel {step.name}", wrong, "a layout without gaps")


def lower(step: KernelStep | MoveStep, graph: ScheduleGraph, target: Target) -> Lowered:
    """The kernel of one step: its schedule's own where that writes one.

    Raises:
        DispatchError: no instruction of the target computes it; says what.
        PackError: the schedule's own `lower` fails, or returns what is no kernel.
    """
    own = own_kernel(step, graph, target, EngineKernel)
    if own is not None:
        return own
    if isinstance(step, MoveStep):
        step = as_kernel(step, graph, "tiles")
        from axe_eq_backends.nki.cost import cheapest

        step = replace(step, parameters=cheapest(step, target))
    check_results(step)
    cone = read_cone(step)
    try:
        return Lowered(*written([stage_of(step, cone)], step.name, target))
    except ScheduleError as error:
        raise cone.refuse(str(error), "a cone that a schedule covers") from error


def planned(call: KernelStep | MoveStep | Launch, graph: ScheduleGraph, target: Target) -> Planned:
    """A call lowered, dispatched and placed.

    Raises:
        DispatchError, ScheduleError: it cannot be made, or is too large.
    """
    if isinstance(call, Launch):
        steps = graph.stages(call)
        stages = [stage_of(step, read_cone(step)) for step in steps]
        near = {b: lies_in(text, b, steps, graph, target) for b, text in call.kept.items()}
        lowered = Lowered(*written(stages, call.name, target, near))
    else:
        lowered = lower(call, graph, target)
    return Planned(plan(lowered.kernel, target), lowered.buffers)


def near_ways(
    buffer: str, steps: Sequence[KernelStep], graph: ScheduleGraph, target: Target
) -> list[Near]:
    """Ways in which a value may lie in SBUF between these steps; none where it is not dense."""
    held = graph.buffers[buffer]
    of, layout = held.value_type, Layout.parse(held.layout)
    if buffer_elements(held.layout) != of.size or not layout.is_linear():
        return []
    blocks = of_layout(layout, of.shape).blocks
    if any(len(b) > 1 for b in blocks):
        return []
    strides = [number(b[0].stride) if b else 1 for b in blocks]
    names = {s.name for s in steps}
    read = {a.buffer for s in graph.steps if s.name not in names for a in s.reads}
    stored = held.role != "temporary" or buffer in read
    return [Near(of.dtype, lying, stored) for lying in ways_to_lie(of.shape, strides, target)]


def lies_in(
    text: str, buffer: str, steps: Sequence[KernelStep], graph: ScheduleGraph, target: Target
) -> Near:
    """The way to lie that a layout says.

    Raises:
        ScheduleError: there is none.
    """
    for near in near_ways(buffer, steps, graph, target):
        if near.lying.layout == text:
            return near
    raise ScheduleError(f"buffer {buffer}", f"lies in {text}", "a layout of it in SBUF")
