"""Lowered kernels run without a device, on flat buffers in the layouts of the schedule graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from axe_eq.errors import ScheduleError
from axe_eq.kernel.devices import Device
from axe_eq.kernel.expr import evaluate
from axe_eq.kernel.threads.dispatch import Planned
from axe_eq.kernel.threads.interp import interpret
from axe_eq.layout import Layout
from axe_eq.lower.own import Lowered
from axe_eq.program.types import DTYPES, Array
from axe_eq.schedule.graph import KernelStep, MoveStep, ScheduleGraph
from axe_eq.schedule.memory import buffer_elements
from axe_eq.schedule.window import flattened, span, window_elements
from axe_eq.target import Target
from axe_eq_backends.cuda.families import meanings
from axe_eq_backends.cuda.make import make

POISON = 77  # in memory that nothing was written to
SWEEP = ("random", "early", "late")  # when asynchronous effects happen, in the first few orders


def elements(layout: str, shape: tuple[int, ...]) -> Array:
    """Element of every index of a value in a layout."""
    return Layout.parse(layout).table("m").reshape(shape)


def launch(
    lowered: Lowered,
    flat: dict[str, Any],
    *,
    planned: Planned | None,
    order: str = "random",
    seed: int = 0,
    spans: Mapping[str, int] = MappingProxyType({}),
    device: Device | None = None,
) -> None:
    """Interpret a kernel on flat buffers, at plan level where plans are given.

    Args:
        lowered: the kernel.
        flat: buffers by name; of one across devices all of these devices' memories.
        planned: its plans.
        order: when asynchronous effects happen.
        seed: of those that happen at random.
        spans: elements of one device's memory of buffers that lie across devices.
        device: which one runs it, where several are interpreted together.

    Raises:
        KernelFault: what it does wrong.
        ScheduleError: a tensor of it stands for no buffer, or reaches outside of one.
    """
    tensors, places = {}, {}
    for tensor in lowered.kernel.tensors:
        place = tensor.place
        shape = [int(evaluate(e, lowered.params)) for e in tensor.shape]
        # Along a dim without a stride everything lies at one place.
        met = [b if any(i.stride for i in b) else () for b in place.blocks]
        at = replace(place, blocks=tuple(met)).coordinate("m") + int(evaluate(place.at("m"), {}))
        buffer = lowered.buffers.get(tensor.name)
        what = f"kernel {lowered.kernel.name}, tensor {tensor.name}"
        far = window_elements(tensor.itemsize)
        if at.max(initial=0) >= far:  # on several devices, whose memories lie behind each other
            at = at // far * spans.get(str(buffer), far) + at % far
        if buffer not in flat:
            known = " ".join(flat)
            raise ScheduleError(what, f"stands for buffer {buffer!r}", f"one of {known}")
        low, high = at.min(initial=0), at.max(initial=-1)
        if low < 0 or high >= len(flat[buffer]):
            wrong = f"reaches from element {low} to {high} of {buffer}"
            raise ScheduleError(what, wrong, f"0 to {len(flat[buffer]) - 1}")
        places[tensor.name] = np.broadcast_to(at, shape)
        tensors[tensor.name] = np.broadcast_to(flat[buffer][at], shape)
    run = interpret(
        lowered.kernel, tensors, lowered.params, planned=planned, meanings=meanings(),
        order=order, seed=seed, device=device,
        shared={} if device is None else {
            name: device.shared[b] for name, b in lowered.buffers.items() if b in device.shared
        },
    )  # fmt: skip
    for name, found in run.outputs.items():
        flat[lowered.buffers[name]][places[name]] = found


def run(
    step: KernelStep | MoveStep,
    graph: ScheduleGraph,
    target: Target,
    arrays: Mapping[str, Array],
    order: int = 0,
    device: Device | None = None,
) -> dict[str, Array]:
    """Lower a step and run its instruction calls; see `axe_eq.run.interpret.Interpreter`.

    Raises:
        DispatchError, ScheduleError: nothing covers the kernel, or it breaks a rule.
        KernelFault: what it does wrong.
    """
    kernel = make(step, graph, target)
    flat: dict[str, Any] = {}
    over = flattened(graph)  # of a value across devices all their memories, behind each other
    for access in (*step.reads, *step.writes):
        held = over.buffers[access.buffer]
        made = np.full(buffer_elements(held.layout), POISON)
        flat[access.buffer] = made.astype(DTYPES[held.value_type.dtype].numpy)
    for name in {read.buffer for read in step.reads}:  # a step may see a view of one
        flat[name][elements(over.buffers[name].layout, arrays[name].shape)] = arrays[name]
    for write in step.writes:
        if over_it := graph.buffers[write.buffer].over:
            flat[write.buffer] = flat[over_it].copy()
    when = SWEEP[order] if order < len(SWEEP) else "random"
    launch(kernel.lowered, flat, planned=kernel.planned, order=when, seed=order,
           spans={n: span(Layout.parse(graph.buffers[n].layout)) for n in flat},
           device=device)  # fmt: skip
    return {
        w.buffer: flat[w.buffer][
            elements(over.buffers[w.buffer].layout, graph.buffers[w.buffer].value_type.shape)
        ]
        for w in step.writes
    }


@dataclass(frozen=True)
class CudaInterpreter:
    """The interpreter of family "cuda".

    Attributes:
        device: which one runs it, where several are interpreted together.
    """

    device: Device | None = None

    def run(
        self,
        step: KernelStep | MoveStep,
        graph: ScheduleGraph,
        target: Target,
        arrays: Mapping[str, Array],
        order: int = 0,
    ) -> dict[str, Array]:
        """Run a step; see `axe_eq.run.interpret.Interpreter`."""
        return run(step, graph, target, arrays, order, self.device)

    def on(self, device: Device) -> CudaInterpreter:
        """That of one of several devices; see `axe_eq.run.interpret.DeviceInterpreter`."""
        return CudaInterpreter(device)


INTERPRETER = CudaInterpreter()
