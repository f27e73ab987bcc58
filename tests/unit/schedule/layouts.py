"""The same schedule with buffers in other layouts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from axe_eq.schedule.graph import Access, ScheduleGraph, Step, read_layout


def in_layouts(graph: ScheduleGraph, layouts: Mapping[str, str]) -> ScheduleGraph:
    """The same schedule with some buffers in other layouts, for readers and writer alike."""

    def read(step: Step, number: int, access: Access) -> Access:
        if access.buffer not in layouts:
            return access
        type_ = graph.buffers[access.buffer].value_type
        return replace(access, layout=read_layout(step, number, type_, layouts[access.buffer]))

    def written(access: Access) -> Access:
        return replace(access, layout=layouts.get(access.buffer, access.layout))

    steps = tuple(
        replace(
            s,
            reads=tuple(read(s, n, a) for n, a in enumerate(s.reads)),
            writes=tuple(map(written, s.writes)),
        )
        for s in graph.steps
    )
    buffers = {n: replace(b, layout=layouts.get(n, b.layout)) for n, b in graph.buffers.items()}
    return replace(graph, buffers=buffers, steps=steps)
