"""A mesh plan as a program of whole arrays.

The plan's own proof (`axe_eq.mesh.prove`) comes first: it shows by enumeration that an exchange
puts into every rank's memory what its selectors say of whole values, if all copies that may be
sent are equal. So a buffer means a whole value; an exchange is selectors on it; a local step is
lifted, from parts to parts. That copies are equal is a lemma wherever ranks might differ.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from axe_eq import array as xp
from axe_eq.errors import ScheduleError
from axe_eq.layout import Layout, Mesh
from axe_eq.mesh.joint import Joint
from axe_eq.mesh.lift import Lift, Lifted, array_code
from axe_eq.mesh.parts import Parts, parts_of
from axe_eq.mesh.plan import MeshPlan
from axe_eq.mesh.steps import ExchangeStep, LocalStep
from axe_eq.program.facts import is_captured
from axe_eq.program.node import InputSpec, Node, Program, input_node, op_node, scan_node, sel_node
from axe_eq.program.traced import Traced
from axe_eq.program.types import DTYPES, ValueType, value_type
from axe_eq.schedule import shard
from axe_eq.schedule.graph import KernelStep, ScheduleGraph, SpmdStep, TileNode
from axe_eq.schedule.views import is_signature

Values = dict[str, Node]


def plan_joint(plan: MeshPlan, names: Sequence[str] = ()) -> Joint:
    """What all ranks of a plan compute together.

    Args:
        plan: proved here first.
        names: of the program's inputs, by position; those of buffers by default. Constants keep
            theirs, which are digests of what they hold.

    Raises:
        ScheduleError: the plan is wrong in itself.
        LayoutError: a local step reads or writes parts that are no digits of indices.
    """
    plan.prove()
    plan = plan.silent
    mesh = Mesh(dict(plan.mesh), shard.DEVICE_AXIS)
    lift = Lift(mesh)
    inputs = []
    wholes: Values = {}
    given = iter(names)
    for name in plan.inputs:
        buffer = plan.buffers[name]
        called = name if is_captured(name) else next(given, name)
        node = input_node(called, buffer.value_type)
        inputs.append(InputSpec(node))
        wholes[name] = node
    lemmas: list[tuple[str, Node, Node]] = []
    for step in plan.steps:
        if isinstance(step, ExchangeStep):
            wholes[step.write.buffer] = _exchanged(step, wholes)
        else:
            lemmas += _local(plan, step, lift, wholes)
    outputs = []
    with array_code():
        for name, text in zip(plan.outputs, plan.types, strict=True):
            outputs.append(_shaped(wholes[name], value_type(text)))

    def holder(output: int, copies: dict[str, int], index: Sequence[int]) -> int:
        side = plan.side(plan.outputs[output])
        shape = value_type(plan.types[output]).shape
        at = int(np.ravel_multi_index(tuple(index), shape)) if shape else 0
        held = (d for d in side.devices.tolist() if side.held_by(d).reshape(-1)[at])
        return int(next(held))

    program = Program(tuple(inputs), tuple(outputs))
    return Joint(program, mesh, ((),) * len(outputs), holder, tuple(lemmas))


def _shaped(node: Node, wanted: ValueType) -> Node:
    if node.type == wanted:
        return node
    if (node.dtype, prod(node.shape)) != (wanted.dtype, prod(wanted.shape)):
        raise ScheduleError("value", f"is {node.type}", f"{wanted}, or a reshape of it")
    return xp.reshape(Traced(node), wanted.shape).node


def _exchanged(step: ExchangeStep, wholes: Values) -> Node:
    made: list[Node] = []
    with array_code():
        for node in step.nodes:
            if node.kind == "load":
                of = wholes[step.reads[node.access].buffer]
                made.append(_shaped(of, value_type(node.type)))
            else:
                made.append(_operator(node, [made[n] for n in node.operands]))
    return made[-1]


def _operator(node: TileNode, operands: Sequence[Node]) -> Node:
    if node.kind == "cell":
        return op_node(node.text, node.cell, operands)
    make = sel_node if node.kind == "gather" else scan_node
    return make(node.text, operands)


# -- local steps -----------------------------------------------------------------------------------


def _local(
    plan: MeshPlan, step: LocalStep, lift: Lift, wholes: Values
) -> list[tuple[str, Node, Node]]:
    """Lift a local step; the whole values that it makes, and what has to hold of their copies."""
    given: dict[Node, Lifted] = {}
    loads: Values = {}
    for own, name in zip(step.graph.inputs, step.reads, strict=True):
        parts, type_ = _parts(plan, name, lift.mesh), plan.local_type(name)
        value = lift.shards(wholes[name], parts)
        node = input_node(f"{step.name} {own}", type_)
        loads[own] = node
        given[node] = _as_part(plan, name, lift, value, parts)
    roots = graph_values(step.graph, loads)
    values = lift.values(roots, given)
    lemmas = []
    for root, name in zip(roots, step.writes, strict=True):
        parts, type_ = _parts(plan, name, lift.mesh), plan.local_type(name)
        if root.type != type_:
            raise ScheduleError(f"step {step.name}, buffer {name!r}", f"is {root.type}", str(type_))
        value = values[root]
        if plan.buffers[name].inside:
            value = lift.shaped(value, parts.local)
        elif parts.local != type_.shape:
            value = lift.with_dims(value, parts)
        whole, copies = lift.whole(value, parts)
        if copies:
            with array_code():
                first = Traced(whole)[(0,) * len(copies)].node
            lemmas.append((name, whole, lift.varying(Lifted(first, ()), copies).node))
            whole = first
        wholes[name] = whole
    return lemmas


def _as_part(plan: MeshPlan, name: str, lift: Lift, value: Lifted, parts: Parts) -> Lifted:
    """A part of a value, with the dims that a rank's memory of it has."""
    shape = plan.local_type(name).shape
    if plan.buffers[name].inside:
        return lift.shaped(value, shape)
    return value if parts.local == shape else lift.flat(value, parts)


def _parts(plan: MeshPlan, name: str, mesh: Mesh) -> Parts:
    buffer = plan.buffers[name]
    return parts_of(Layout.parse(buffer.layout), buffer.value_type.shape, mesh)


def graph_values(graph: ScheduleGraph, given: Values) -> list[Node]:
    """What a schedule graph of one device computes of its inputs.

    Raises:
        ScheduleError: a load that is no view of its buffer.
    """
    made = dict(given)
    for step in graph.steps:
        if isinstance(step, SpmdStep):
            raise ScheduleError(f"step {step.name}", "is for a mesh", "steps of one device")
        if not isinstance(step, KernelStep):
            made[step.writes[0].buffer] = made[step.reads[0].buffer]
            continue
        nodes: list[Node] = []
        for node in step.nodes:
            if node.kind == "load":
                nodes.append(_loaded(step, node, made[step.reads[node.access].buffer]))
            else:
                nodes.append(_operator(node, [nodes[n] for n in node.operands]))
        for root, access in zip(step.roots, step.writes, strict=True):
            made[access.buffer] = nodes[root]
    return [
        _viewed(made[name], graph.views[n] if graph.views else ())
        for n, name in enumerate(graph.outputs)
    ]


def _loaded(step: KernelStep, node: TileNode, of: Node) -> Node:
    value = _viewed(of, node.view)
    if str(value.type) != node.type:
        raise ScheduleError(f"step {step.name}", f"loads {node.type}", f"{value.type}, its buffer")
    return value


def _viewed(value: Node, view: Sequence[str]) -> Node:
    for text in view:
        value = op_node(text, "id", [value]) if is_signature(text) else sel_node(text, [value])
    return value


def keeps_narrow(plan: MeshPlan) -> str:
    """The first kernel that keeps values wider than their types are, "" where none does.

    Bit for bit it is then no program of operators that round.
    """
    for step in plan.steps:
        for part in step.graph.steps if isinstance(step, LocalStep) else ():
            if isinstance(part, KernelStep) and not part.rounds:
                inside = (n for at, n in enumerate(part.nodes) if n.kind != "load"
                          and at not in part.roots)  # fmt: skip
                for node in inside:
                    dtype = value_type(node.type).dtype
                    if DTYPES[dtype].accumulate != dtype:
                        return part.name
    return ""
