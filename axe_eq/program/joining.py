"""Nodes of selectors that join any number of values: one kernel takes a few tens of them."""

from __future__ import annotations

from collections.abc import Sequence

from axe_eq.program.node import Node, op_node, sel_node, sel_type
from axe_eq.program.ops import join_text, split_text
from axe_eq.program.signature import make, plain

MOST_JOINED = 12  # arrays that one concatenation joins: each has a load, a slice and a view at most


def joined(text: str, nodes: Sequence[Node]) -> Node:
    """A selector on these nodes; many are joined in groups, and the groups again.

    Args:
        text: of the selector, ``"concat 0"``.
        nodes: its operands, of any number where it joins.

    Returns:
        One node of the selector for at most `MOST_JOINED` operands, and for selectors that join
        nothing. More that are interleaved are concatenated, and what they are gets a dim.

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
    name, params = split_text(text)
    if len(nodes) <= MOST_JOINED or name not in ("concat", "interleave"):
        return sel_node(text, nodes)
    sel_type(text, tuple(node.type for node in nodes))  # errors are about what was asked for
    return _concatenated(text, nodes) if name == "concat" else _interleaved(params[0], nodes)


def _concatenated(text: str, nodes: Sequence[Node]) -> Node:
    while len(nodes) > MOST_JOINED:
        groups = [nodes[n : n + MOST_JOINED] for n in range(0, len(nodes), MOST_JOINED)]
        nodes = [group[0] if len(group) == 1 else sel_node(text, group) for group in groups]
    return sel_node(text, nodes)


def _interleaved(axis: int, nodes: Sequence[Node]) -> Node:
    """The operands in a dim of their own, which goes after their axis."""
    shape = nodes[0].shape
    whole = _concatenated(join_text("concat", axis), nodes)
    apart = sel_node(join_text("split", axis, (-1, shape[axis])), [whole])
    rank = len(shape) + 1
    dims = [*range(axis), axis + 1, axis, *range(axis + 2, rank)]
    view = op_node(make([map(plain, dims)], range(rank)).text, "id", [apart])
    return sel_node(join_text("merge", axis, 2), [view])
