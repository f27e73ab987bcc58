"""Kernels that wait themselves until all devices have come: meetings.

Kernels that read what other devices store, or have, must wait for them. That may be done between
kernels, or by the first kernel that reads it: when it begins, it tells all devices that what its
own one did before is done, and its threads wait for all of them before they read. A device has a
number that all add to, and another one for the meeting before, which the kernel clears: who comes
to this meeting has left that one.

A meeting is three buffers of role "signal" that the kernel reads: the numbers of all devices, the
own one, and that of the meeting before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from axe_eq.layout import Layout
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.schedule.graph import SIGNAL, Access, BufferSpec, KernelStep, ScheduleGraph
from axe_eq.schedule.shard import DEVICE_AXIS

LAST = "_last"


def buffers_of(name: str, n_devices: int) -> tuple[BufferSpec, BufferSpec, BufferSpec]:
    """The buffers of a meeting on a mesh: numbers of all, the own one, that of the one before."""
    type_ = f"i32[{n_devices}]"
    everywhere = [(n_devices, 1, DEVICE_AXIS)]
    apart = str(Layout(everywhere).canonical())
    whole = str(Layout([(n_devices, 1, DEFAULT_AXIS)], everywhere).canonical())
    return (
        BufferSpec(f"{name}_all", type_, whole, SIGNAL, within=name, across=True),
        BufferSpec(name, type_, apart, SIGNAL),
        BufferSpec(name + LAST, type_, apart, SIGNAL),
    )


def meeting_of(last: str) -> str:
    """The name of a meeting, by that of the numbers of the one before it."""
    return last.removesuffix(LAST)


def meets(
    graph: ScheduleGraph, name: str, awaited: Collection[str], n_devices: int
) -> ScheduleGraph | None:
    """A graph of one device whose kernel that reads some inputs waits for all devices.

    Args:
        graph: of one device.
        name: of the meeting.
        awaited: inputs.
        n_devices: that meet.

    Returns:
        None where no kernel alone reads them, or it waits for others already.
    """
    users = [s for s in graph.steps if any(a.buffer in awaited for a in s.reads)]
    if len(users) != 1 or not isinstance(users[0], KernelStep) or users[0] in meeting(graph):
        return None
    seen, *own = buffers_of(name, n_devices)
    lies = [Layout([(n_devices, 1, DEVICE_AXIS)]), Layout([(1, 1)]), Layout([(1, 1)])]
    held = [
        BufferSpec(b.name, f"i32[{n}]", str(x.canonical()), SIGNAL)
        for b, x, n in zip((seen, *own), lies, (n_devices, 1, 1), strict=True)
    ]
    added = tuple(Access(b.name, b.layout) for b in held)
    steps = tuple(replace(s, reads=(*s.reads, *added)) if s is users[0] else s for s in graph.steps)
    buffers = {n: replace(b, after=name) if n in awaited else b for n, b in graph.buffers.items()}
    return replace(
        graph, steps=steps, buffers=buffers | {b.name: b for b in held},
        inputs=(*graph.inputs, *(b.name for b in held)),
    )  # fmt: skip


def meeting(graph: ScheduleGraph) -> list[KernelStep]:
    """The kernels of a graph of one device that wait for others themselves."""
    signals = signals_of(graph.buffers.values())
    return [s for s in graph.kernels if any(a.buffer in signals for a in s.reads)]


def silent(graph: ScheduleGraph) -> ScheduleGraph:
    """The same without meetings."""
    signals = signals_of(graph.buffers.values())
    if not signals and not any(b.after for b in graph.buffers.values()):
        return graph
    steps = tuple(
        replace(s, reads=tuple(a for a in s.reads if a.buffer not in signals)) for s in graph.steps
    )
    kept = {n: replace(b, after="") for n, b in graph.buffers.items() if n not in signals}
    inputs = tuple(n for n in graph.inputs if n not in signals)
    return replace(graph, steps=steps, buffers=kept, inputs=inputs)


def signals_of(buffers: Iterable[BufferSpec]) -> frozenset[str]:
    """The buffers of meetings among some."""
    return frozenset(b.name for b in buffers if b.role == SIGNAL)
