"""What it costs to have a value in a cut: the bytes that devices lack of it, and their time.

A value that selectors make is read through them, however many, in one exchange:
``concat(x[1:], x[:1])`` sends each device the one row that it lacks, where its two slices alone are
cut otherwise and would move everything.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray

from axe_eq.extract.mesh.cuts import Cut, Form, Part, Path, local_type
from axe_eq.extract.mesh.wires import Wires, wires
from axe_eq.mesh.messages import Messages, plan
from axe_eq.mesh.pieces import Piece, is_read, read_through
from axe_eq.mesh.regions import packed_bytes
from axe_eq.mesh.sides import Ints, side
from axe_eq.program.node import SEL, Node
from axe_eq.schedule import shard
from axe_eq.schedule.graph import TileNode
from axe_eq.target import Target
from axe_eq.walk import reached

Bools = NDArray[np.bool_]


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

    @cached_property
    def key(self) -> tuple[object, ...]:
        """What trees that read alike have in common."""
        at = {node: n for n, node in enumerate(self.order)}
        return tuple(
            (n.type,) if n in self.leaves else (n.text, n.type, *(at[a] for a in n.args))
            for n in self.order
        )

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

    def ends(at: Node) -> bool:
        return is_kept(at) and not (expand and at is node)

    order = tuple(reached([node], lambda at: () if ends(at) else at.args))
    return Tree(order, tuple(filter(ends, order)))


@dataclass(frozen=True)
class Price:
    """Bytes that cross links, all devices together, and seconds; bytes by link, where known."""

    n_bytes: int
    seconds: float
    by_link: Mapping[str, float] = field(default_factory=dict, compare=False)


NOTHING = Price(0, 0.0)


@dataclass
class Moves:
    """Prices of exchanges on a mesh, remembered.

    Attributes:
        mesh: text.
        target: with the links.
        along: mesh axis -> name of the link along it.
    """

    mesh: str
    target: Target
    along: Mapping[str, str] = field(default_factory=dict)
    _known: dict[tuple[object, ...], Price] = field(default_factory=dict)
    _pieces: dict[tuple[object, ...], tuple[Piece, ...]] = field(default_factory=dict)
    _has: dict[tuple[object, ...], Bools] = field(default_factory=dict)

    @cached_property
    def wires(self) -> Wires:
        """The links between devices."""
        return wires(self.mesh, self.target, self.along)

    def price(self, tree: Tree, leaf: int, held: Form, goal: Form) -> Price:
        """Of bringing what a value reads of one leaf, from a buffer into another.

        Raises:
            SearchError: bytes cross links, and the target has none.
        """
        if tree.is_leaf and held == goal:
            return NOTHING
        key = tree.key, leaf, held, goal
        if key not in self._known:
            self._known[key] = self._priced(tree, leaf, held, goal)
        return self._known[key]

    def _priced(self, tree: Tree, leaf: int, held: Form, goal: Form) -> Price:
        type_ = tree.order[-1].type
        if held.cut is None or goal.cut is None:
            return self.timed(self._planned(tree, leaf, held, goal), type_.n_bytes)
        if self.wires.packs:
            stored = local_type(type_, goal.cut).n_bytes
            return self.timed(self._planned(tree, leaf, held, goal), stored)
        lacking, messages = self._lacking(tree, leaf, held.cut, goal.cut)
        lacking *= type_.itemsize
        most = np.stack([lacking.max(1), messages.max(1)], 1).tolist()
        copying = self._copying(local_type(type_, goal.cut).n_bytes)
        seconds = max(self.wires.busiest(most), copying)
        return Price(int(lacking.sum()), seconds, self.wires.named(lacking.sum(1).tolist()))

    def timed(self, messages: Messages, stored: int) -> Price:
        """The price of messages, of which every device stores so many bytes."""
        n_bytes = self._bytes(messages)
        counts = (n_bytes > 0).astype(np.int64)
        seconds = max(self.wires.seconds(n_bytes, counts), self._copying(stored))
        if self.wires.packs and messages.pairs:
            seconds += 2 * packed_bytes(messages) / self.wires.packs
        return Price(messages.n_bytes, seconds, self.wires.by_link(n_bytes))

    def seen(
        self, messages: Messages, copied: int = 0, signals: bool = False, chunks: int = 0
    ) -> Price:
        """The price of messages that kernels carry: until devices have waited for each other.

        Args:
            messages: they.
            copied: bytes of a device that are copied to where others see them.
            signals: kernels wait for each other themselves.
            chunks: see `Wires.waiting`.
        """
        n_bytes = self._bytes(messages)
        waiting = self.wires.waiting(n_bytes, signals, chunks)
        if copied:
            waiting += self.target.launch_s + self._copying(copied)
        return Price(messages.n_bytes, waiting, self.wires.by_link(n_bytes))

    def _bytes(self, messages: Messages) -> Ints:
        """Per two devices, bytes from the first to the second."""
        n = shard.n_devices(self.mesh)
        found = np.zeros((n, n), np.int64)
        for pair, size in messages.pairs.items():
            found[pair] = size
        return found

    def _copying(self, stored: int) -> float:
        """Seconds of a device that copies so many bytes: what it has itself, beside its links."""
        return 2 * stored / self.target.memories[0].bytes_per_s

    def _lacking(self, tree: Tree, leaf: int, held: Cut, goal: Cut) -> tuple[Ints, Ints]:
        """Per link and device, elements of a leaf that come over it, and messages.

        These are what a device wants and does not hold, and those that are nearer to it do not hold
        either: the least that it is sent. Dims that selectors do not mix are apart, so what a
        device wants of a piece is a product, and so is what a group of devices holds. Messages
        are the fewest, from those that hold most of it.
        """
        if tree.key not in self._pieces:
            self._pieces[tree.key] = read_through(tree.path([None] * len(tree.leaves))[0].nodes)
        level = self.wires.level
        near = [np.eye(len(level), dtype=np.bool_), *(level <= n for n in range(level.max()))]
        lacks = np.zeros((len(near) + 1, len(level)), np.int64)  # the last link brings the rest
        messages = np.zeros((len(near), len(level)), np.int64)
        for number, piece in enumerate(self._pieces[tree.key]):
            if piece.leaf != leaf:
                continue
            want = np.ones(len(level), np.int64)
            both = np.ones((len(near), len(level)), np.int64)
            meet = np.ones(level.shape, np.int64)
            for at, group in enumerate(piece.groups):
                of, into = (tree.key, number, at), (group.leaf_dims, piece.leaf_shape, group.leaf)
                wants = self._inside(of, goal, group.dims, piece.shape, group.index)
                holds = self._inside((*of, leaf), held, *into)
                want *= _counted(wants, group.leaf)
                both[0] *= _counted(wants & holds, group.leaf)
                for n in range(1, len(near)):
                    both[n] *= _counted(wants & (near[n] @ holds), group.leaf)
                if self._counts_messages:
                    meet *= wants.astype(np.int64) @ holds.T.astype(np.int64)
            lacks[:-1] += want - both
            if self._counts_messages:
                most = [np.where(level == n, meet, 0).max(1) for n in range(len(near))]
                rest = want - both
                over = rest - np.vstack([rest[1:], np.zeros_like(want)])
                messages += -(-over // np.maximum(np.stack(most), 1))
        return lacks[:-1] - lacks[1:], messages

    @cached_property
    def _counts_messages(self) -> bool:
        return any(link.per_message_s for link in self.wires.links)

    def _inside(
        self, of: tuple[object, ...], cut: Cut, dims: Sequence[int], shape: Sequence[int], at: Ints
    ) -> Bools:
        """Per device, which of a group's indices lie in its parts of these dims."""
        key = *of, tuple(cut[d] for d in dims)
        if key not in self._has:
            found = np.ones((shard.n_devices(self.mesh), len(at)), np.bool_)
            rest = at
            for d in reversed(dims):
                rest, digit = np.divmod(rest, shape[d])
                begin, end = _ranges(cut[d], shape[d], self.mesh)
                found &= (digit >= begin[:, None]) & (digit < end[:, None])
            self._has[key] = found
        return self._has[key]

    def _planned(self, tree: Tree, leaf: int, held: Form, goal: Form) -> Messages:
        """The messages themselves."""
        forms = [held if n == leaf else None for n in range(len(tree.leaves))]
        nodes = exchange_nodes(tree, forms, goal, self.mesh)
        pieces = [p for p in read_through(nodes) if p.leaf == leaf]
        sources = [side(held.layout, held.type.shape, shard.DEVICE_AXIS)] * len(forms)
        wanted = side(goal.layout, goal.type.shape, shard.DEVICE_AXIS)
        return plan(sources, wanted, pieces, goal.type.itemsize, self.wires.near)


def _counted(inside: Bools, leaf: Ints) -> Ints:
    """Per device, the different elements that it reads: each is sent once."""
    if len(leaf) < 2 or (leaf[1:] > leaf[:-1]).all():
        return np.asarray(inside.sum(1), np.int64)
    return np.array([len(np.unique(leaf[row])) for row in inside])


def exchange_nodes(
    tree: Tree, held: Sequence[Form | None], goal: Form, mesh: str
) -> list[TileNode]:
    """The tile nodes of an exchange: loads of what buffers hold, selectors, the goal's buffer."""
    path, at = tree.path(held)
    if goal.cut is not None:
        path.into(at, goal.cut, mesh)
    return path.nodes


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
