"""Values on several devices, as a kernel on one of them sees them: in one space of addresses.

A layout with the device axis says on which device an element lies, and where there. Devices that
see each other's memory see it `WINDOW_BYTES` apart, so for a kernel the device is one more stride.

>>> from axe_eq.layout import Layout
>>> str(in_window(Layout.parse("S[(2,64,8):(1@gpuid,8@m,1@m)]"), 4))
'S[(2,64,8):(17179869184@m,8@m,1@m)]'
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import prod

from axe_eq.kernel.spaces import WINDOW_BYTES
from axe_eq.layout import Layout
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.schedule.graph import Access, ScheduleGraph
from axe_eq.schedule.shard import DEVICE_AXIS


def is_across(layout: Layout) -> bool:
    """Whether a value lies on several devices."""
    return any(a == DEVICE_AXIS and e > 1 for e, _, a in layout.shard)


def window_elements(itemsize: int) -> int:
    """Elements from a device's memory to the next one's."""
    return WINDOW_BYTES // itemsize


def in_window(layout: Layout, itemsize: int) -> Layout:
    """A layout over devices as one of memory; others are as they are."""
    if not is_across(layout):
        return layout
    return side_by_side(layout, window_elements(itemsize))


def span(layout: Layout) -> int:
    """Elements of one device's memory that a value over devices reaches."""
    return layout.range(DEFAULT_AXIS)[1] + 1


def side_by_side(layout: Layout, n_elements: int) -> Layout:
    """A layout over devices as one of flat memory that has so many elements of each."""
    shard = [(e, s * n_elements, DEFAULT_AXIS) if a == DEVICE_AXIS else (e, s, a)
             for e, s, a in layout.shard]  # fmt: skip
    return Layout(shard, layout.replica, layout.offset, layout.swizzle, *layout.boxes)


def flattened(graph: ScheduleGraph) -> ScheduleGraph:
    """A graph of one device whose buffers that lie across devices lie in flat memory instead."""

    def flat(text: str, held: Layout) -> str:
        return str(side_by_side(Layout.parse(text), span(held)))

    return _changed(graph, flat)


def apart(graph: ScheduleGraph) -> ScheduleGraph:
    """A graph of one device that has all it reads and stores in its own memory, dense."""
    return _changed(graph, lambda text, held: str(Layout([(held.size, 1)]).canonical()))


def _changed(graph: ScheduleGraph, change: Callable[[str, Layout], str]) -> ScheduleGraph:
    """A graph with other layouts of what lies across devices.

    Args:
        graph: of one device.
        change: gives the layout of an access for one, and for that of its buffer.
    """
    over = {n: of for n, b in graph.buffers.items() if is_across(of := Layout.parse(b.layout))}
    if not over:
        return graph

    def flat(name: str, text: str) -> str:
        return change(text, over[name]) if name in over else text

    def moved(accesses: tuple[Access, ...]) -> tuple[Access, ...]:
        return tuple(replace(a, layout=flat(a.buffer, a.layout)) for a in accesses)

    steps = tuple(replace(s, reads=moved(s.reads), writes=moved(s.writes)) for s in graph.steps)
    buffers = {n: replace(b, layout=flat(n, b.layout)) for n, b in graph.buffers.items()}
    return replace(graph, buffers=buffers, steps=steps)


def remote(text: str) -> float:
    """The part of a value in a layout that lies on other devices than the one that uses it.

    Devices go through their tiles in one order, so all others want the part of one at a time, and
    its link serves them one after the other: of more than two devices it counts so often.
    """
    n = prod(e for e, _, a in Layout.parse(text).shard if a == DEVICE_AXIS)
    return (1.0 - 1.0 / n) * max(n - 1, 1)
