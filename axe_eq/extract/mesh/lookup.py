"""Reads at integers along a dim that is cut over devices, as a program of one device's part."""

from __future__ import annotations

from collections.abc import Sequence

from axe_eq import array as xp
from axe_eq.program.node import Node, Program, made_node, topological
from axe_eq.program.ops import Look, selector
from axe_eq.program.spec import Spec
from axe_eq.program.trace import trace
from axe_eq.program.traced import Traced, select
from axe_eq.program.types import DTYPES

LEAST_BYTES = 4


def index_dtype(name: str) -> str:
    """A dtype in which integers of another one are compared with extents: of 32 bits at least."""
    return name if DTYPES[name].itemsize >= LEAST_BYTES else "i32"


def own_reads(node: Node, parts: Sequence[Node], rank: Node, look: Look) -> Node:
    """What a device reads of its own part, and 0 where another one has what is read.

    Args:
        node: the selector.
        parts: of its operands.
        rank: one integer, the number of the device's part along the dim, of `index_dtype`.
        look: which dim integers index.
    """
    declared, params = selector(node.text)
    assert declared.pull is not None
    pulls = declared.pull(params, [a.type for a in node.args])[look.by]
    extent = parts[look.operand].shape[look.dim]
    whole = node.args[look.operand].shape[look.dim]

    def read(first: Traced, *given: Traced) -> Traced:
        says = xp.astype(given[look.by], first.dtype)
        at = says - first[0] * extent
        # What is no index of the whole is none here: so it is undefined as without a mesh.
        inside = xp.logical_and(says >= 0, says < whole)
        other = xp.logical_and(inside, xp.logical_or(at < 0, at >= extent))
        near = xp.where(other, xp.zeros_like(at), at)
        operands = [near if n == look.by else g for n, g in enumerate(given)]
        found = select(node.text, *operands)
        axes = {p.axis: n for p, n in zip(pulls, at.shape, strict=True) if p is not None}
        mask = xp.reshape(other, tuple(axes.get(d, 1) for d in range(len(found.shape))))
        return xp.where(mask, xp.zeros_like(found), found)

    program = trace(read, *(Spec(n.shape, n.dtype) for n in (rank, *parts)))
    (root,) = program.outputs
    return _grafted(program, root, [rank, *parts])


def _grafted(program: Program, root: Node, given: Sequence[Node]) -> Node:
    """A traced value of other operands."""
    made = dict(zip((i.node for i in program.inputs), given, strict=True))
    for node in topological([root]):
        if node not in made:
            made[node] = made_node(node.kind, node.text, node.cell, [made[a] for a in node.args])
    return made[root]
