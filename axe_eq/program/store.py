"""Programs as text: what a worker or a file gets, and the same nodes back.

Nodes are a flat list, operands before users, so that no depth of program is too deep. Types are not
stored: nodes are made again, and equal nodes are one node.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from axe_eq.errors import AxeError, ProgramError
from axe_eq.layout import Layout
from axe_eq.program.node import (
    INPUT,
    OP,
    SCAN,
    SEL,
    InputSpec,
    Node,
    Program,
    input_node,
    made_node,
    topological,
)
from axe_eq.program.types import ANY, DTYPES, Array, dtype, value_type

if TYPE_CHECKING:
    from axe_eq.program.node import Place


def program_to_json(program: Program) -> str:
    """A program as JSON text; everything but `Program.retrace`, which is a function."""
    known = topological(
        [
            *program.outputs,
            *(i.node for i in program.inputs),
            *program.names,
            *program.places,
            *program.written,
        ]
    )
    numbers = {node: n for n, node in enumerate(known)}
    return json.dumps(
        {
            "nodes": [_node_data(node, numbers) for node in numbers],
            "inputs": [_input_data(i, numbers) for i in program.inputs],
            "outputs": [numbers[node] for node in program.outputs],
            "output_layouts": [_layout_data(layout) for layout in program.output_layouts],
            "structure": program.structure,
            "arguments": program.arguments,
            "constants": {name: _array_data(a) for name, a in program.constants.items()},
            "names": [[numbers[node], name] for node, name in program.names.items()],
            "places": [[numbers[node], place] for node, place in program.places.items()],
            "written": [[numbers[n], list(w.items())] for n, w in program.written.items()],
        }
    )


def program_from_json(text: str) -> Program:
    """Inverse of `program_to_json`: the very same nodes where they still live.

    Raises:
        ProgramError: not such a text, or an operator that is not declared here.
    """
    try:
        return _program(json.loads(text))
    except AxeError:
        raise
    except (ValueError, KeyError, IndexError, TypeError, AttributeError) as error:
        raise ProgramError(
            "program text", f"does not read ({error})", "what program_to_json wrote"
        ) from None


def _program(data: Mapping[str, Any]) -> Program:
    nodes: list[Node] = []
    for row in data["nodes"]:
        nodes.append(_node(row, nodes))
    return Program(
        inputs=tuple(_input(row, nodes) for row in data["inputs"]),
        outputs=tuple(nodes[n] for n in data["outputs"]),
        structure=data["structure"],
        constants={name: _array(row) for name, row in data["constants"].items()},
        names={nodes[n]: name for n, name in data["names"]},
        places={nodes[n]: place for n, place in data["places"]},
        written={nodes[n]: dict(map(tuple, pairs)) for n, pairs in data["written"]},
        output_layouts=tuple(_layout(given) for given in data["output_layouts"]),
        arguments=data["arguments"],
    )


def _node_data(node: Node, numbers: Mapping[Node, int]) -> list[Any]:
    if node.kind == INPUT:
        return [INPUT, node.text, str(node.type)]
    args = [numbers[arg] for arg in node.args]
    return [node.kind, node.text, node.cell, args] if node.kind == OP else [
        node.kind, node.text, args
    ]  # fmt: skip


def _node(row: Sequence[Any], known: Sequence[Node]) -> Node:
    kind, text, *rest = row
    if kind == INPUT:
        return input_node(text, value_type(rest[0]))
    args = [known[n] for n in rest[-1]]
    if kind not in (OP, SEL, SCAN):
        raise ProgramError("program text", f"has a node of kind {kind!r}", f"{OP} {SEL} {SCAN}")
    return made_node(kind, text, rest[0] if kind == OP else "", args)


def _input_data(spec: InputSpec, numbers: Mapping[Node, int]) -> list[Any]:
    return [numbers[spec.node], spec.dims, _layout_data(spec.layout), spec.divisible]


def _input(row: Sequence[Any], nodes: Sequence[Node]) -> InputSpec:
    number, dims, layout, divisible = row
    return InputSpec(nodes[number], tuple(dims), _layout(layout), tuple(divisible))


def _layout_data(layout: Place) -> str | None:
    return None if layout is None else str(layout)


def _layout(text: str | None) -> Place:
    if text is None:
        return None
    return ANY if text == ANY else Layout.parse(text)


def _array_data(array: Array) -> list[Any]:
    """Dtype, shape, and the bytes as npy in base64: npy itself knows no bfloat16."""
    file = io.BytesIO()
    flat = np.ascontiguousarray(array).reshape(-1)
    np.save(file, flat.view(np.uint8), allow_pickle=False)
    return [dtype(array.dtype).name, array.shape, base64.b64encode(file.getvalue()).decode()]


def _array(row: Sequence[Any]) -> Array:
    name, shape, text = row
    raw = np.load(io.BytesIO(base64.b64decode(text)), allow_pickle=False)
    array: Array = raw.view(DTYPES[name].numpy).reshape(shape)
    return array
