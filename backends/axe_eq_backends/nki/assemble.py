"""Steps of a schedule graph as emitted kernels, with what they are called with."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from typing import Any

import numpy as np

from axe_eq.errors import ScheduleError
from axe_eq.kernel.expr import evaluate
from axe_eq.layout import Layout
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.program.types import DTYPES, Array
from axe_eq.schedule.graph import KernelStep, Launch, MoveStep, ScheduleGraph, SpmdStep
from axe_eq.schedule.memory import buffer_elements
from axe_eq.schedule.terms import row_major
from axe_eq.target import Target
from axe_eq_backends.nki.emit import Port, Source, emit
from axe_eq_backends.nki.families import meanings
from axe_eq_backends.nki.interpret import interpret
from axe_eq_backends.nki.lower import planned
from axe_eq_backends.nki.run import FORMAT
from axe_eq_backends.nki.sim.machine import machine_of

POISON = 77  # in memory that nothing was written to


@lru_cache(maxsize=4096)
def _places(layout: str, shape: tuple[int, ...]) -> Any:
    """Element of every index of a value in a layout."""
    return Layout.parse(layout).table(DEFAULT_AXIS).reshape(shape)


def port(graph: ScheduleGraph, buffer: str, layout: str) -> Port:
    """A buffer as an argument: in its own shape where it is dense and row-major, else flat."""
    of = graph.buffers[buffer].value_type
    count = buffer_elements(layout)
    dense = count == of.size and layout == row_major(of.size)
    shape = of.shape if dense and of.shape else (count,)
    said = f"{of}, as bytes" if of.dtype == "bool" else str(of)
    return Port(buffer, shape, of.dtype, said if dense else f"{said}, flat in {layout}")


def source(
    call: KernelStep | MoveStep | Launch, graph: ScheduleGraph, target: Target, dialect: str = "0.3"
) -> Source:
    """The text of one call: its arguments and results in the order of the program's.

    Args:
        call: a step, or a launch.
        graph: what it is a part of.
        target: the machine.
        dialect: of NKI: "0.2", or "0.3", which is every later one too.

    Raises:
        DispatchError, EmitError, ScheduleError: it cannot be made, or is too large.
    """
    found = planned(call, graph, target)
    reads, writes = graph.accesses(call)
    first = (*graph.inputs, *graph.outputs)  # whoever calls the text gives them so, by position
    names = sorted({a.buffer for a in (*reads, *writes)}, key=[*first, *graph.buffers].index)
    ports = {name: port(graph, name, graph.buffers[name].layout) for name in names}
    return emit(found.made, found.buffers, ports, dialect)


def sources(graph: ScheduleGraph, target: Target, dialect: str = "0.3") -> dict[str, Source]:
    """The text of every call, by its name; see `source`.

    Raises:
        ScheduleError: a step that is no kernel of one core.
    """
    made = {}
    for call in graph.calls:
        if isinstance(call, SpmdStep):
            raise ScheduleError(
                f"step {call.name}", "is for the devices of a mesh", "a graph for one core"
            )
        made[call.name] = source(call, graph, target, dialect)
    return made


def assembled(graph: ScheduleGraph, target: Target) -> bytes:
    """The texts of a graph, and its buffers as they lie in memory."""
    steps = []
    for text in sources(graph, target).values():
        sides = [
            [[p.buffer, p.shape, p.dtype] for p in side] for side in (text.inputs, text.outputs)
        ]
        steps.append(
            {"name": text.name, "text": text.text, "inputs": sides[0], "outputs": sides[1]}
        )
    elements = {}
    for name, buffer in graph.buffers.items():
        elements[name] = {"layout": buffer.layout, "size": buffer_elements(buffer.layout)}
    return json.dumps(
        {
            "format": FORMAT, "machine": asdict(machine_of(target)), "steps": steps,
            "inputs": [*graph.inputs], "outputs": [*graph.outputs], "elements": elements,
            "types": {name: b.type for name, b in graph.buffers.items()},
        }
    ).encode()  # fmt: skip


def interpreted(
    call: KernelStep | MoveStep | Launch, graph: ScheduleGraph, target: Target,
    arrays: Mapping[str, Array],
) -> dict[str, Array]:  # fmt: skip
    """What the plans of a call write, on flat buffers in the layouts of the schedule graph."""
    found = planned(call, graph, target)
    kernel = found.made.planned.kernel
    reads, writes = ([graph.buffers[a.buffer] for a in of] for of in graph.accesses(call))
    flat: dict[str, Any] = {}
    for buffer in (*reads, *writes):
        made = np.full(buffer_elements(buffer.layout), POISON)
        flat[buffer.name] = made.astype(DTYPES[buffer.value_type.dtype].numpy)
    for buffer in reads:  # as it lies, whatever views of it are read
        array = arrays[buffer.name]
        flat[buffer.name][_places(buffer.layout, array.shape)] = array
    tensors, places = {}, {}
    for t in kernel.tensors:
        at = np.broadcast_to(
            t.place.coordinate("m") + int(evaluate(t.place.at("m"), {})), tuple(map(int, t.shape))
        )
        name = found.buffers[t.name]
        low, high = at.min(initial=0), at.max(initial=-1)
        if low < 0 or high >= len(flat[name]):
            raise ScheduleError(
                f"kernel {kernel.name}, tensor {t.name}", f"reaches from element {low} to {high}",
                f"0 to {len(flat[name]) - 1} of {name}",
            )  # fmt: skip
        places[t.name] = at
        tensors[t.name] = np.asarray(flat[name][at])
    written = interpret(kernel, tensors, found.made.planned, meanings())
    for name, array in written.items():
        flat[found.buffers[name]][places[name]] = array
    return {b.name: flat[b.name][_places(b.layout, b.value_type.shape)] for b in writes}
