"""Values read through selectors on a mesh: trees of selectors over values that are somewhere.

A tree is moved through in one exchange: ``concat(x[1:], x[:1])`` sends each device the one row that
it lacks, where its two slices alone are cut otherwise and would move everything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from itertools import islice, product

from axe_eq.mesh.messages import plan
from axe_eq.mesh.pieces import Piece, read_through
from axe_eq.mesh.sides import side
from axe_eq.program.node import sel_type
from axe_eq.program.types import ValueType, value_type
from axe_eq.schedule import shard
from axe_eq.schedule.graph import TileNode

MOST_DEEP = 6  # selectors above each other
MOST_TREES = 16  # per value

Selected = Mapping[int, Sequence[tuple[str, tuple[int, ...]]]]


@dataclass(frozen=True, eq=False)
class Tree:
    """Selectors over leaves.

    Attributes:
        nodes: loads, whose access is the number of their leaf, and selectors above them.
        leaves: value classes.
    """

    nodes: tuple[TileNode, ...]
    leaves: tuple[int, ...]

    @cached_property
    def pieces(self) -> tuple[Piece, ...]:
        """What the value reads."""
        return read_through(self.nodes)

    @cache  # noqa: B019
    def bytes(self, leaf: int, source: str, goal: str, mesh: str) -> int:
        """Bytes of one leaf that cross links, from one cut to another."""
        given = next(n.type for n in self.nodes if n.access == leaf)
        out = self.nodes[-1].type
        pieces = [replace(p, leaf=0) for p in self.pieces if p.leaf == leaf]
        before, after = (
            side(shard.layout_text(t, box, mesh), value_type(t).shape, shard.DEVICE_AXIS)
            for t, box in ((given, source), (out, goal))
        )
        return plan([before], after, pieces, value_type(out).itemsize).n_bytes


def trees(value: int, selected: Selected, types: Mapping[int, ValueType]) -> list[Tree]:
    """The trees of selectors that a value is read through, each with a selector at its root."""
    found = []
    for shape in islice(_shapes(value, selected, MOST_DEEP, frozenset()), MOST_TREES):
        if isinstance(shape, tuple):
            nodes: list[TileNode] = []
            leaves: list[int] = []
            _write(shape, types, nodes, leaves)
            found.append(Tree(tuple(nodes), tuple(leaves)))
    return found


# A value class that is read, or a selector and the shapes of its operands.
Shape = int | tuple[str, tuple["Shape", ...]]


def _shapes(value: int, selected: Selected, deep: int, path: frozenset[int]) -> Iterator[Shape]:
    """Ways to read a value: through its selectors, deep ones first, and as it is."""
    if value in path:
        return
    if deep:
        for text, operands in selected.get(value, ()):
            below = (_shapes(o, selected, deep - 1, path | {value}) for o in operands)
            ways = [list(islice(shapes, MOST_TREES)) for shapes in below]
            for choice in islice(product(*ways), MOST_TREES):
                yield text, choice
    if path:
        yield value


def _write(
    shape: Shape, types: Mapping[int, ValueType], nodes: list[TileNode], leaves: list[int]
) -> int:
    """Append a shape's nodes, and what it reads; the number of its last node."""
    if isinstance(shape, int):
        if shape not in leaves:
            leaves.append(shape)
        access = leaves.index(shape)
        known = next((n for n, node in enumerate(nodes) if node.access == access), None)
        if known is None:
            nodes.append(TileNode("load", "", "", "", str(types[shape]), (), access))
            known = len(nodes) - 1
        return known
    text, below = shape
    operands = tuple(_write(s, types, nodes, leaves) for s in below)
    given = tuple(value_type(nodes[o].type) for o in operands)
    nodes.append(TileNode("gather", text, "", "", str(sel_type(text, given)), operands))
    return len(nodes) - 1
