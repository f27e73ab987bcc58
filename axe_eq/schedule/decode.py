"""What a schedule graph computes, as nodes of a program: the inverse of choosing one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from axe_eq.errors import ScheduleError
from axe_eq.program.node import OP, SCAN, SEL, Node, made_node, sel_node
from axe_eq.schedule.graph import KernelStep, ScheduleGraph, SpmdStep
from axe_eq.schedule.views import COPY, is_signature

_KINDS = {"cell": OP, "gather": SEL, "scan": SCAN}


def decode(graph: ScheduleGraph, inputs: Mapping[str, Node]) -> tuple[Node, ...]:
    """The values of a graph's outputs.

    Args:
        graph: of one device.
        inputs: the node of every input and constant, by buffer name.

    Raises:
        ScheduleError: a step of a mesh: what devices compute is not one program's value.
    """
    held = values(graph, inputs)
    views = graph.views or ((),) * len(graph.outputs)
    return tuple(_viewed(held[name], v) for name, v in zip(graph.outputs, views, strict=True))


def values(graph: ScheduleGraph, inputs: Mapping[str, Node]) -> dict[str, Node]:
    """The value of every buffer, by name; arguments and errors as for `decode`."""
    held = dict(inputs)
    for step in graph.steps:
        if isinstance(step, SpmdStep):
            raise ScheduleError(f"step {step.name}", "runs on a mesh", "a graph of one device")
        if isinstance(step, KernelStep):
            held |= written(step, held)
        else:
            held[step.writes[0].buffer] = held[step.reads[0].buffer]
    return held


def written(step: KernelStep, held: Mapping[str, Node]) -> dict[str, Node]:
    """The values that a kernel writes, by buffer, over those of the buffers that it reads."""
    made = _kernel(step, held)
    return {w.buffer: made[r] for w, r in zip(step.writes, step.roots, strict=True)}


def _kernel(step: KernelStep, held: Mapping[str, Node]) -> list[Node]:
    """The values of a kernel's nodes."""
    values: list[Node] = []
    for node in step.nodes:
        operands = [values[o] for o in node.operands]
        if node.kind == "load":
            values.append(_viewed(held[step.reads[node.access].buffer], node.view))
        else:
            values.append(made_node(_KINDS[node.kind], node.text, node.cell, operands))
    return values


def _viewed(value: Node, view: Sequence[str]) -> Node:
    for text in view:
        is_copy = is_signature(text)
        value = made_node(OP, text, COPY, [value]) if is_copy else sel_node(text, [value])
    return value
