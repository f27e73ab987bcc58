"""Nodes of selectors that join any number of values: one kernel takes a few tens of them."""

from __future__ import annotations

from collections.abc import Sequence

from axe_eq.program.node import Node, op_node, sel_node, sel_type
from axe_eq.program.ops import selector

MOST_JOINED = 12  # arrays that one concatenation joins: each has a load, a slice and a view at most


def joined(text: str, nodes: Sequence[Node]) -> Node:
    """A selector on these nodes; many are joined in groups, and the groups again.

    Args:
        text: of the selector, ``"concat 0"``.
        nodes: its operands, of any number where it joins.

    Returns:
        One node of the selector for at most `MOST_JOINED` operands, and for selectors that join
        nothing; for more, what the selector says of groups (`ops.Selector.regroup`).

    Raises:
        ProgramError: the text names no selector, or arity, shapes or parameters do not fit.

    Example:
        >>> from axe_eq.program.node import input_node
        >>> from axe_eq.program.types import value_type
        >>> pieces = [input_node(f"x{n}", value_type("f32[2]")) for n in range(20)]
        >>> node = joined("concat 0", pieces)
        >>> len(node.args), str(node.type)
        (2, 'f32[40]')
    """
    declared, params = selector(text)
    if len(nodes) <= MOST_JOINED or declared.regroup is None:
        return sel_node(text, nodes)
    types = tuple(node.type for node in nodes)
    sel_type(text, types)  # errors are about what was asked for
    join, *steps = declared.regroup(params, types)
    node = _in_groups(join, nodes)
    for step in steps:
        node = op_node(step, "id", [node]) if "->" in step else sel_node(step, [node])
    return node


def _in_groups(text: str, nodes: Sequence[Node]) -> Node:
    while len(nodes) > MOST_JOINED:
        groups = [nodes[n : n + MOST_JOINED] for n in range(0, len(nodes), MOST_JOINED)]
        nodes = [group[0] if len(group) == 1 else sel_node(text, group) for group in groups]
    return sel_node(text, nodes)
