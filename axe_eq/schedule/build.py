"""Build the schedule graph from what extraction selected; chooses nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from axe_eq.errors import ScheduleError
from axe_eq.program.ops import split_text
from axe_eq.program.types import ValueType
from axe_eq.schedule.graph import (
    Access,
    BufferSpec,
    KernelStep,
    MoveStep,
    ScheduleGraph,
    Step,
    TileNode,
)  # fmt: skip


@dataclass(frozen=True)
class ChosenNode:
    """A tile of a chosen kernel, in the terms of the forest: see `TileNode`.

    A load has the layout of its value in the source's memory.
    """

    kind: str
    text: str
    cell: str
    box: str
    type: ValueType
    operands: tuple[int, ...] = ()
    source: int = -1
    layout: str = ""
    view: tuple[str, ...] = ()


@dataclass(frozen=True)
class ChosenKernel:
    """A kernel that extraction chose.

    Attributes:
        placed: placed classes it writes.
        nodes: operands before users.
        roots: node of every class in `placed`.
        loops: letter -> extent.
    """

    placed: tuple[int, ...]
    nodes: tuple[ChosenNode, ...]
    roots: tuple[int, ...]
    loops: Mapping[str, int]
    schedule: str
    row: str
    parameters: Mapping[str, int]
    time_s: float
    costs: Mapping[str, float] = field(default_factory=dict)
    rejected: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class ChosenBuffer:
    """A placed class: type, layout, and the input it is ("" for a computed one)."""

    type: ValueType
    layout: str
    input: str = ""


@dataclass(frozen=True)
class Chosen:
    """Everything chosen, ready to build.

    Attributes:
        kernels: in a valid order.
        buffers: by placed class.
        outputs: placed class and the layout wanted of every program output.
        views: per output, the selectors from the buffer's value to the output's.
    """

    kernels: Sequence[ChosenKernel]
    buffers: Mapping[int, ChosenBuffer]
    outputs: Sequence[tuple[int, str]]
    views: Sequence[tuple[str, ...]] = ()


def build(
    chosen: Chosen,
    *,
    target: str,
    inputs: Sequence[tuple[str, ValueType, str]],
    constants: Sequence[str] = (),
    dims: Mapping[str, tuple[str, ...]] | None = None,
    rounds: bool = False,
) -> ScheduleGraph:
    """The schedule graph of what was chosen.

    Args:
        chosen: kernels and buffers by placed class.
        target: target name.
        inputs: (name, type, layout) of every input, unused ones included.
        constants: those of them that are captured constants.
        dims: input name -> dim names.
        rounds: see `KernelStep.rounds`.
    """
    names = _buffer_names(chosen)
    buffers = {
        name: BufferSpec(name, str(type_), layout, "constant" if name in constants else "input")
        for name, type_, layout in inputs
    }
    roots = {p for p, _ in chosen.outputs}
    for placed, spec in chosen.buffers.items():
        if not spec.input:
            role = "output" if placed in roots else "temporary"
            name = names[placed]
            buffers[name] = BufferSpec(name, str(spec.type), spec.layout, role)
    steps: list[Step] = [
        _kernel(number, kernel, chosen, names, rounds)
        for number, kernel in enumerate(chosen.kernels)
    ]
    outputs = [_output(place, chosen, names, buffers, steps) for place in chosen.outputs]
    return ScheduleGraph(
        target,
        buffers,
        tuple(steps),
        tuple(name for name, _, _ in inputs),
        tuple(outputs),
        dict(dims or {}),
        None,
        sum(s.time_s for s in steps),
        tuple(chosen.views) if any(chosen.views) else (),
    )


def _buffer_names(chosen: Chosen) -> dict[int, str]:
    names = {p: b.input for p, b in chosen.buffers.items() if b.input}
    taken = set(names.values())
    for kernel in chosen.kernels:
        for placed in kernel.placed:
            number = len(names)
            while f"t{number}" in taken:
                number += 1
            names[placed] = f"t{number}"
            taken.add(names[placed])
    return names


def _kernel(
    number: int, kernel: ChosenKernel, chosen: Chosen, names: Mapping[int, str], rounds: bool
) -> KernelStep:
    loads = [n for n in kernel.nodes if n.source >= 0]
    seen = list(dict.fromkeys((n.source, n.layout) for n in loads))
    nodes = tuple(
        TileNode(
            n.kind,
            n.text,
            n.cell,
            n.box,
            str(n.type),
            n.operands,
            seen.index((n.source, n.layout)) if n.source >= 0 else -1,
            n.view,
        )
        for n in kernel.nodes
    )
    return KernelStep(
        f"k{number}_{_title(kernel)}",
        nodes,
        kernel.roots,
        tuple(Access(names[source], layout) for source, layout in seen),
        tuple(Access(names[p], chosen.buffers[p].layout) for p in kernel.placed),
        dict(kernel.loops),
        kernel.schedule,
        kernel.row,
        dict(kernel.parameters),
        kernel.time_s,
        dict(kernel.costs),
        dict(kernel.rejected),
        rounds,
    )


def _title(kernel: ChosenKernel) -> str:
    """The cells of a kernel, in order, for its name: the first few, each once."""
    words = [
        n.kind if n.kind == "scan" else split_text(n.cell or n.text)[0]
        for n in kernel.nodes
        if n.kind != "load"
    ]
    kept = list(dict.fromkeys(words))
    return "_".join(kept[:4]) or "copy"


def _output(
    place: tuple[int, str],
    chosen: Chosen,
    names: Mapping[int, str],
    buffers: dict[str, BufferSpec],
    steps: list[Step],
) -> str:
    """The buffer of an output; an input handed back, or one wanted elsewhere, is copied."""
    placed, layout = place
    spec = chosen.buffers[placed]
    if not spec.input and spec.layout == layout:
        return names[placed]
    if not spec.input and buffers[names[placed]].role != "output":
        raise ScheduleError(f"output {names[placed]!r}", "is not kept", "a kept buffer")
    name = f"out{len([s for s in steps if s.kind == 'move'])}"
    buffers[name] = BufferSpec(name, str(spec.type), layout, "output")
    read = Access(names[placed], spec.layout)
    steps.append(MoveStep(f"move_{name}", (read,), (Access(name, layout),)))
    return name
