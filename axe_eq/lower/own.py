"""Schedules that write their kernels themselves, and what these may be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from axe_eq.errors import said
from axe_eq.kernel import ir
from axe_eq.pack import ask_schedule, schedule_named
from axe_eq.schedule.graph import KernelStep, MoveStep, ScheduleGraph
from axe_eq.target import Target


@dataclass(frozen=True)
class Lowered:
    """A kernel, the buffer of the schedule graph behind every tensor of it, and its parameters."""

    kernel: Any  # of the IR of the target's family
    buffers: Mapping[str, str]
    params: Mapping[str, int] = field(default_factory=dict)


def own_lowering(step: KernelStep | MoveStep) -> Any:
    """The schedule of a step that writes its kernels itself; None where the backend writes them."""
    own = schedule_named(step.schedule) if isinstance(step, KernelStep) else None
    return own if hasattr(own, "lower") else None


def own_kernel(
    step: KernelStep | MoveStep, graph: ScheduleGraph, target: Target, kind: type[ir.Kernel]
) -> Lowered | None:
    """What the schedule of a step writes itself; None where the backend writes it.

    Args:
        step: a kernel or a move of the graph.
        graph: the schedule graph it stands in.
        target: the machine, for capacities.
        kind: of kernel that the target's family has.

    Raises:
        PackError: the schedule's `lower` fails, or returns what is no kernel of the step.
    """
    own = own_lowering(step)
    if own is None:
        return None
    made: Lowered = ask_schedule(
        own, "lower", step, graph, target,
        expected="Lowered(kernel, {name of a tensor: buffer of the step})",
        wrong=lambda answer: _wrong_answer(answer, step, kind),
    )  # fmt: skip
    return made


def _wrong_answer(made: Any, step: KernelStep | MoveStep, kind: type[ir.Kernel]) -> str | None:
    """What is wrong with what a schedule's own `lower` returned."""
    if not isinstance(made, Lowered):
        return f"returns {said(made)} for kernel {step.name}"
    if not isinstance(made.kernel, kind):
        return f"returns a {type(made.kernel).__name__} for kernel {step.name}, no {kind.__name__}"
    for part in ("buffers", "params"):
        if not isinstance(getattr(made, part), Mapping):
            return f"gives {part}={said(getattr(made, part))}, which is no mapping of names"
    read, written = ({a.buffer: None for a in side} for side in (step.reads, step.writes))
    for tensor in made.kernel.tensors:
        what = f"tensor {tensor.name!r} of kernel {made.kernel.name!r}"
        if tensor.name not in made.buffers:
            return f"leaves {what} without a buffer"
        buffer, is_written = made.buffers[tensor.name], tensor.name in made.kernel.outputs
        known = written if is_written else {**read, **written}
        if buffer not in known:
            verb = "writes" if is_written else "reads"
            return f"puts {what} on {said(buffer)}, and the step {verb} {' '.join(known)}"
    if unset := [v.name for v in made.kernel.params if v.name not in made.params]:
        return f"gives no number for {' '.join(unset)} of kernel {made.kernel.name!r}"
    bare = written.keys() - {made.buffers[name] for name in made.kernel.outputs}
    return f"returns a kernel that does not write {' '.join(sorted(bare))}" if bare else None
