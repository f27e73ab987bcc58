"""Kernels that wait themselves until all devices have come: meetings.

Kernels that read what other devices store, or have, must wait for them. That may be done between
kernels, or by the kernels that read it. There are two ways to tell them.

The one kernel that reads, when it begins, tells all devices that what its own one did before is
done, and its threads wait for all of them before they read. A device has a number that all add 1
to, and another one for the meeting before, which the kernel clears: who comes to this meeting has
left that one.

Or the kernel that stores on other devices tells each of them, tile by tile, how many elements are
there. A device has a number for every chunk of what is stored there, and readers, several of them
too, wait for the chunks that they read. The kernel that stores clears the numbers of the meeting
before. On a mesh of several axes numbers of all devices begin at the first one that is told.

A meeting is three buffers of role "signal": the numbers of all devices, the own ones, and those of
the meeting before. The first way is a meeting of no chunks, whose kernel reads all three.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from axe_eq.layout import Layout
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.schedule.graph import SIGNAL, Access, BufferSpec, KernelStep, ScheduleGraph, Step
from axe_eq.schedule.shard import DEVICE_AXIS

ALL, LAST = "_all", "_last"


def buffers_of(
    name: str, n_devices: int, chunks: int = 0
) -> tuple[BufferSpec, BufferSpec, BufferSpec]:  # fmt: skip
    """The buffers of a meeting on a mesh: numbers of all, the own ones, those of the one before."""
    type_ = f"i32[{n_devices},{chunks}]" if chunks else f"i32[{n_devices}]"
    n = max(chunks, 1)
    everywhere = [(n_devices, 1, DEVICE_AXIS)]
    apart = str(Layout([*everywhere, (n, 1, DEFAULT_AXIS)]).canonical())
    whole = str(Layout([(n_devices * n, 1, DEFAULT_AXIS)], everywhere).canonical())
    return (
        BufferSpec(f"{name}{ALL}", type_, whole, SIGNAL, within=name, across=True),
        BufferSpec(name, type_, apart, SIGNAL),
        BufferSpec(name + LAST, type_, apart, SIGNAL),
    )


def chunks_of(numbers: BufferSpec) -> int:
    """How many chunks devices are told of, by the numbers of a meeting; 0 where they are not."""
    return numbers.value_type.shape[1] if numbers.value_type.rank > 1 else 0


def _local(name: str, n_devices: int, chunks: int) -> list[BufferSpec]:
    """The same as a graph of one device has them."""
    n, (seen, *own) = max(chunks, 1), buffers_of(name, n_devices, chunks)
    of = f",{chunks}" if chunks else ""
    across = Layout([(n_devices, 1, DEVICE_AXIS), (n, 1, DEFAULT_AXIS)]).canonical()
    here = Layout([(n, 1, DEFAULT_AXIS)]).canonical()
    held = [BufferSpec(seen.name, f"i32[{n_devices}{of}]", str(across), SIGNAL)]
    return held + [BufferSpec(b.name, f"i32[1{of}]", str(here), SIGNAL) for b in own]


def meeting_of(last: str) -> str:
    """The name of a meeting, by that of the numbers of the one before it."""
    return last.removesuffix(LAST)


def meets(
    graph: ScheduleGraph, name: str, awaited: Collection[str], n_devices: int, chunks: int = 0,
    chunk: int = 0,
) -> ScheduleGraph | None:  # fmt: skip
    """A graph of one device whose kernels that read some inputs wait for all devices.

    Args:
        graph: of one device.
        name: of the meeting.
        awaited: inputs.
        n_devices: that meet.
        chunks: that devices are told of by those who store them; where it is 0, the one kernel
            that reads tells all devices that it has come.
        chunk: elements of one.

    Returns:
        None where no kernel alone reads them, or it waits for others already.
    """
    users = [s for s in graph.steps if any(a.buffer in awaited for a in s.reads)]
    kernels = [s for s in users if isinstance(s, KernelStep) and s not in meeting(graph)]
    if not users or len(kernels) < len(users) or (len(users) > 1 and not chunks):
        return None
    held = _local(name, n_devices, chunks)
    held = held[1:2] if chunks else held
    changed = {n: replace(graph.buffers[n], after=name, chunk=chunk) for n in awaited}
    return _with(graph, users, held, changed)


def tells(
    graph: ScheduleGraph, name: str, stored: str, n_devices: int, chunks: int, chunk: int
) -> ScheduleGraph | None:  # fmt: skip
    """A graph of one device whose kernel that stores a result on others tells them so.

    Args:
        graph: of one device.
        name: of the meeting.
        stored: the result.
        n_devices: that meet.
        chunks: that devices are told of.
        chunk: elements of one.

    Returns:
        None where no kernel stores it, or it tells of something else already.
    """
    makers = [s for s in graph.steps if any(a.buffer == stored for a in s.writes)]
    if len(makers) != 1 or not isinstance(makers[0], KernelStep) or len(makers[0].writes) > 1:
        return None
    if graph.buffers[stored].before or any(stored in {a.buffer for a in s.reads}
                                           for s in graph.steps):  # fmt: skip
        return None
    seen, _, last = _local(name, n_devices, chunks)
    changed = {stored: replace(graph.buffers[stored], before=name, chunk=chunk)}
    return _with(graph, makers, [seen, last], changed)


def _with(
    graph: ScheduleGraph, kernels: Collection[Step], held: Sequence[BufferSpec],
    changed: Mapping[str, BufferSpec],
) -> ScheduleGraph:  # fmt: skip
    """A graph whose kernels read some numbers too, and some of whose buffers are others."""
    added = tuple(Access(b.name, b.layout) for b in held)
    steps = tuple(replace(s, reads=(*s.reads, *added)) if s in kernels else s for s in graph.steps)
    return replace(
        graph, steps=steps, buffers={**graph.buffers, **changed, **{b.name: b for b in held}},
        inputs=(*graph.inputs, *(b.name for b in held)),
    )  # fmt: skip


def meeting(graph: ScheduleGraph) -> list[KernelStep]:
    """The kernels of a graph of one device that wait for others themselves."""
    own = {b.after for b in graph.buffers.values() if b.after}
    return [s for s in graph.kernels if any(a.buffer in own for a in s.reads)]


def silent(graph: ScheduleGraph) -> ScheduleGraph:
    """The same without meetings."""
    signals = signals_of(graph.buffers.values())
    if not signals and not any(b.after or b.before for b in graph.buffers.values()):
        return graph
    steps = tuple(
        replace(s, reads=tuple(a for a in s.reads if a.buffer not in signals)) for s in graph.steps
    )
    kept = {
        n: replace(b, after="", before="", chunk=0)
        for n, b in graph.buffers.items() if n not in signals
    }  # fmt: skip
    inputs = tuple(n for n in graph.inputs if n not in signals)
    return replace(graph, steps=steps, buffers=kept, inputs=inputs)


def signals_of(buffers: Iterable[BufferSpec]) -> frozenset[str]:
    """The buffers of meetings among some."""
    return frozenset(b.name for b in buffers if b.role == SIGNAL)
