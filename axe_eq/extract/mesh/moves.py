"""What it costs to have a value in a cut: the bytes that devices lack of it, and the time they take.

A value that selectors make is read through them, however many, in one exchange:
``concat(x[1:], x[:1])`` sends each device the one row that it lacks, where its two slices alone are
cut otherwise and would move everything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from axe_eq.errors import SearchError
from axe_eq.extract.mesh.cuts import Cut, Form, Part, Path, local_type
from axe_eq.mesh.messages import plan
from axe_eq.mesh.pieces import is_read, read_through
from axe_eq.mesh.sides import Ints, side
from axe_eq.program.node import SEL, Node
from axe_eq.program.types import ValueType
from axe_eq.schedule import shard
from axe_eq.schedule.graph import TileNode
from axe_eq.target import Target


def is_through(node: Node) -> bool:
    """Whether a value is read through: a selector's of which the program says what it reads."""
    return node.kind == SEL and is_read(node.text, [a.type for a in node.args])


@dataclass(frozen=True, eq=False)
class Tree:
    """A value as selectors over others.

    Attributes:
        order: nodes, operands before users; those of leaves too.
        leaves: what is read.
    """

    order: tuple[Node, ...]
    leaves: tuple[Node, ...]

    @property
    def is_leaf(self) -> bool:
        """Whether the value is read as it is."""
        return len(self.order) == 1 and bool(self.leaves)

    def path(self, held: Sequence[Form | None]) -> tuple[Path, int]:
        """The tile nodes of the value over its leaves, where buffers hold them, and its number."""
        path, numbers = Path(), dict[Node, int]()
        for node in self.order:
            if node in self.leaves:
                at = self.leaves.index(node)
                of = held[at] or Form(node.type, "")
                numbers[node] = path.load(at, of, node.type)
            else:
                operands = [numbers[a] for a in node.args]
                numbers[node] = path.select(node.text, node.type, operands)
        return path, numbers[self.order[-1]]


def tree_of(node: Node, is_kept: Callable[[Node], bool], expand: bool = False) -> Tree:
    """A value over the nearest ones that are somewhere.

    Args:
        node: the value.
        is_kept: which values are somewhere; the others are read through.
        expand: read this one through in any case.
    """
    order: dict[Node, None] = {}
    leaves: list[Node] = []
    stack = [(node, False)]
    while stack:
        at, ready = stack.pop()
        if at in order:
            continue
        if is_kept(at) and not (expand and at is node):
            order[at] = None
            leaves.append(at)
        elif ready:
            order[at] = None
        else:
            stack.append((at, True))
            stack += [(a, False) for a in reversed(at.args)]
    return Tree(tuple(order), tuple(leaves))


@dataclass(frozen=True)
class Price:
    """Bytes that cross links, all devices together, and seconds."""

    n_bytes: int
    seconds: float

    def __add__(self, other: Price) -> Price:
        return Price(self.n_bytes + other.n_bytes, self.seconds + other.seconds)


NOTHING = Price(0, 0.0)


@dataclass
class Moves:
    """Prices of exchanges on a mesh, remembered.

    Attributes:
        mesh: text.
        target: with the links.
    """

    mesh: str
    target: Target
    known: dict[tuple[object, ...], Price] = field(default_factory=dict)

    def price(self, tree: Tree, leaf: int, held: Form, goal: Form) -> Price:
        """Of bringing what a value reads of one leaf, from a buffer into another.

        Raises:
            SearchError: bytes cross links, and the target has none.
        """
        if tree.is_leaf and held == goal:
            return NOTHING
        key = (tree.order if len(tree.order) > 1 else tree.order[0].type, leaf, held, goal)
        if key not in self.known:
            self.known[key] = self._priced(tree, leaf, held, goal)
        return self.known[key]

    def _priced(self, tree: Tree, leaf: int, held: Form, goal: Form) -> Price:
        type_ = tree.order[-1].type
        if tree.is_leaf and held.cut is not None and goal.cut is not None:
            total, most = _lacking(type_, held.cut, goal.cut, self.mesh)
        else:
            total, most = self._planned(tree, leaf, held, goal)
        size = local_type(type_, goal.cut).size if goal.cut is not None else type_.size
        return self.timed(total, most, size * type_.itemsize)

    def timed(self, n_bytes: int, most: int, stored: int) -> Price:
        """The price of an exchange in which the busiest device sends or receives so many bytes."""
        copying = 2 * stored / self.target.memories[0].bytes_per_s
        if not n_bytes:
            return Price(0, copying)
        if not self.target.links:
            raise SearchError(
                f"target {self.target.name!r}", "has no links to other devices",
                "a target with links",
            )  # fmt: skip
        link = self.target.links[0]
        return Price(n_bytes, link.latency_s + most / link.bytes_per_s + copying)

    def _planned(self, tree: Tree, leaf: int, held: Form, goal: Form) -> tuple[int, int]:
        nodes = exchange_nodes(
            tree, [held if n == leaf else None for n in range(len(tree.leaves))], goal, self.mesh
        )
        pieces = [p for p in read_through(nodes) if p.leaf == leaf]
        shapes = {n.access: n.type for n in nodes if n.kind == "load"}
        sources = [side(held.layout, held.type.shape, shard.DEVICE_AXIS)] * len(shapes)
        wanted = side(goal.layout, goal.type.shape, shard.DEVICE_AXIS)
        made = plan(sources, wanted, pieces, goal.type.itemsize)
        n = shard.n_devices(self.mesh)
        return made.n_bytes, max((*made.sent(n), *made.received(n)), default=0)


def exchange_nodes(
    tree: Tree, held: Sequence[Form | None], goal: Form, mesh: str
) -> list[TileNode]:
    """The tile nodes of an exchange: loads of what buffers hold, selectors, the goal's buffer."""
    path, at = tree.path(held)
    if goal.cut is not None:
        path.into(at, goal.cut, mesh)
    return path.nodes


def _lacking(type: ValueType, held: Cut, goal: Cut, mesh: str) -> tuple[int, int]:
    """Bytes that devices want of a value and do not hold: of all, and of the one that lacks most."""
    n = shard.n_devices(mesh)
    want, both = np.ones(n, np.int64), np.ones(n, np.int64)
    for extent, a, b in zip(type.shape, held, goal, strict=True):
        first, last = _ranges(a, extent, mesh)
        begin, end = _ranges(b, extent, mesh)
        want *= np.maximum(end - begin, 0)
        both *= np.maximum(np.minimum(last, end) - np.maximum(first, begin), 0)
    lacking = (want - both) * type.itemsize
    return int(lacking.sum()), int(lacking.max())


@lru_cache(maxsize=1 << 14)
def _ranges(part: Part, extent: int, mesh: str) -> tuple[Ints, Ints]:
    """First and one behind the last index that every device has of a dim."""
    sizes = {name: size for name, (size, _) in shard.mesh_axes(mesh).items()}
    places = np.indices(tuple(sizes.values())).reshape(len(sizes), -1)
    number = np.zeros(places.shape[1], np.int64)
    for axis in part.axes:
        number = number * sizes[axis] + places[list(sizes).index(axis)]
    begin = number * part.step + part.begin
    return np.minimum(begin, extent), np.minimum(begin + part.length, extent)
