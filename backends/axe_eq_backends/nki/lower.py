"""From the kernels of a schedule graph to the kernel language, by the parameters of a candidate.

A schedule's candidates are written here too, to be priced: what is priced is what is emitted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from axe_eq.errors import DispatchError, ScheduleError, said
from axe_eq.kernel import ir
from axe_eq.lower.formulas import Cone
from axe_eq.lower.read import as_kernel, own_lowering, read_cone
from axe_eq.pack import ask_schedule
from axe_eq.program.types import value_type
from axe_eq.schedule.graph import KernelStep, MoveStep, ScheduleGraph
from axe_eq.schedule.memory import buffer_elements
from axe_eq.target import Target
from axe_eq_backends.nki.planning import Made, plan
from axe_eq_backends.nki.schedules.gemm import Contraction, contraction, gemm
from axe_eq_backends.nki.schedules.stream import Mixture, mixture, stream
from axe_eq_backends.nki.schedules.walk import walk
from axe_eq_backends.nki.space import space_of

Write = Callable[[Any, str, Target, Mapping[str, int]], tuple[ir.Kernel, Mapping[str, str]]]


@dataclass(frozen=True)
class Lowered:
    """A kernel, and the buffer of the schedule graph behind every tensor of it."""

    kernel: ir.Kernel
    buffers: Mapping[str, str]


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
WRITES: Mapping[str, Write] = {"tiles": walk, "tensor_engine": gemm, "stream": stream}


def check_results(step: KernelStep) -> None:
    """Refuse results that have gaps: a kernel returns all of a tensor that it wrote.

    Raises:
        DispatchError: the first of them.
    """
    for root, written in zip(step.roots, step.writes, strict=True):
        size, held = value_type(step.nodes[root].type).size, buffer_elements(written.layout)
        if held > size:
            wrong = f"lies in {written.layout}, {held} elements for {size}"
            raise DispatchError(f"result of kernel {step.name}", wrong, "a layout without gaps")


def lower(step: KernelStep | MoveStep, graph: ScheduleGraph, target: Target) -> Lowered:
    """The kernel of one step: its schedule's own where that writes one.

    Raises:
        DispatchError: no instruction of the target computes it; says what.
        PackError: the schedule's own `lower` fails, or returns what is no kernel.
    """
    own = own_lowering(step)
    if own is not None:
        made: Lowered = ask_schedule(
            own, "lower", step, graph, target,
            expected="Lowered(kernel, {name of a tensor: buffer of the step})", wrong=_wrong_answer,
        )  # fmt: skip
        return made
    if isinstance(step, MoveStep):
        step = as_kernel(step, graph, "tiles")
        from axe_eq_backends.nki.cost import cheapest

        parameters = cheapest(step, target)
    else:
        parameters = step.parameters
    check_results(step)
    cone = read_cone(step)
    if step.schedule not in WRITES:
        known = " ".join(WRITES)
        raise cone.refuse(f"is priced by {step.schedule!r}, which writes no kernel", known)
    try:
        problem = READS[step.schedule](cone)
        return Lowered(*WRITES[step.schedule](problem, step.name, target, parameters))
    except ScheduleError as error:
        raise cone.refuse(str(error), "a cone that a schedule covers") from error


def _wrong_answer(made: Any) -> str | None:
    fits = isinstance(made, Lowered) and isinstance(made.kernel, ir.Kernel)
    return None if fits else f"returns {said(made)}"


def planned(step: KernelStep | MoveStep, graph: ScheduleGraph, target: Target) -> Planned:
    """A step lowered, dispatched and placed.

    Raises:
        DispatchError, ScheduleError: it cannot be made, or is too large.
    """
    lowered = lower(step, graph, target)
    return Planned(plan(lowered.kernel, target), lowered.buffers)
