"""Values computed in blocks along one dim, so that exchanges run beside kernels.

``y[rows] = f(x[rows])`` where no operator mixes rows: then f on some rows is the function itself at
fewer of them, cut over the mesh as the whole. While kernels make one block, exchanges bring the
next one and send the one before. Rows of a value that is cut into n parts are numbered (part,
block, row), so every device has a piece of every block, and each exchange is balanced.

A block is read as a slice of the value, and what others read is the blocks joined again: selectors,
which are in place where a buffer holds the whole, see `axe_eq.extract.mesh.build`.

Source: decomposed collectives (Wang et al., Overlap communication with dependent computation via
decomposition in large deep learning models, ASPLOS 2023).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from itertools import accumulate
from math import prod
from typing import ClassVar

from axe_eq.errors import ProgramError
from axe_eq.extract.mesh.choose import Cuts, exchanged
from axe_eq.extract.mesh.cuts import Cut, Form, Part, axes_of, selector_needs
from axe_eq.extract.mesh.moves import Tree, is_through
from axe_eq.extract.mesh.options import NO_WORK, Option, Work
from axe_eq.layout import Layout
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.program.node import INPUT, OP, SCAN, Node, made_node, op_node, sel_node, topological
from axe_eq.program.ops import join_text, scan
from axe_eq.program.signature import make, signature
from axe_eq.schedule import shard

BLOCK = "block"  # stands for a mesh axis where an operator is asked what a block of it needs


@dataclass(frozen=True, eq=False)
class Region:
    """Operators that are computed in blocks.

    Attributes:
        dims: value -> the dim that blocks cut.
        n_parts: parts of that dim on the mesh, of which every block has a piece each.
        sizes: of the blocks, each against the others.
    """

    dims: Mapping[Node, int]
    n_parts: int
    sizes: tuple[int, ...] = (1,)
    # Equal ones, more of them as long as that pays, and a smaller one first or last, so that less
    # of an exchange is beside nothing.
    tried_sizes: ClassVar[tuple[tuple[int, ...], ...]] = (
        (1, 1), (3, 1), (1, 3), (1, 1, 1, 1), (4, 2, 1, 1), (1, 1, 2, 4), (1,) * 8,
    )  # fmt: skip

    @property
    def extent(self) -> int:
        """Of the dim that is cut."""
        node, dim = next(iter(self.dims.items()))
        return node.shape[dim]

    @property
    def part(self) -> int:
        """Indices of a part."""
        return self.extent // self.n_parts

    def of_block(self, n: int, number: int) -> int:
        """What a block has of a length that all of them share."""
        return n * self.sizes[number] // sum(self.sizes)

    def rows(self, number: int) -> int:
        """Indices that a part has of a block."""
        return self.of_block(self.part, number)

    def begin(self, number: int) -> int:
        """The first of these within a part."""
        return sum(map(self.rows, range(number)))

    def split(self, *sizes: int) -> Region | None:
        """The same operators in blocks of such sizes; None where the dim has no such parts."""
        return None if self.extent % (self.n_parts * sum(sizes)) else replace(self, sizes=sizes)

    @property
    def n_blocks(self) -> int:
        """How many blocks a value has."""
        return len(self.sizes)

    @property
    def said(self) -> str:
        """What its blocks are, for people."""
        each = (str(self.n_parts * self.rows(n)) for n in range(len(self.sizes)))
        return f"in blocks of {' '.join(each)}"

    @property
    def text(self) -> str:
        """Its sizes, for people."""
        return f"in blocks {':'.join(map(str, self.sizes))}"

    def compute(self, into: Blocked, node: Node) -> None:
        """Compute a value of these in blocks."""
        dim = self.dims[node]
        reads = needs(node, dim)
        assert reads is not None
        given = [
            [into.made[a]] * self.n_blocks if e is None else into.read(a, e, self)
            for a, e in zip(node.args, reads, strict=True)
        ]
        each = enumerate(zip(*given, strict=True) if given else [()] * self.n_blocks)
        blocks = [_block(node, dim, self, n, args) for n, args in each]
        for number, block in enumerate(blocks):
            into.told(node, block, (dim, self, number))
        into.join(node, blocks, [Piece(dim, self, n) for n in range(len(blocks))],
                  joined(blocks, dim, self))  # fmt: skip


@dataclass(frozen=True, eq=False)
class Piece:
    """A block of a value.

    Attributes:
        dim: that is cut.
        region: whose block it is.
        number: of the block.
    """

    dim: int
    region: Region
    number: int

    def scaled(self, cut: Cut) -> Cut:
        """The cut of the block, of a cut of the whole."""
        return scaled(cut, self.dim, self.region, self.number)

    def unscaled(self, cut: Cut) -> Cut:
        """The cut of the whole that a block's cut is of."""
        part, region = cut[self.dim], self.region
        n = part.length * sum(region.sizes) // region.sizes[self.number]
        return *cut[: self.dim], Part(part.axes, n, n), *cut[self.dim + 1 :]

    def fits(self, cut: Cut) -> bool:
        """Whether a block may lie in the memory of the whole, of the cut of either."""
        return True

    def lies(self, cut: Cut, mesh: str) -> tuple[str, tuple[int, ...]]:
        """The layout of the block in the memory of the whole, which is in a cut, and its begins."""
        region, lengths = self.region, [p.length for p in cut]
        known = shard.mesh_axes(mesh)
        iters: list[tuple[int, int, str]] = []
        for dim, part in enumerate(cut):
            iters += [(*known[a], shard.DEVICE_AXIS) for a in part.axes]
            step = prod(lengths[dim + 1 :])
            if dim == self.dim:
                iters.append((self._pieces(part, mesh), region.part * step, DEFAULT_AXIS))
                iters.append((region.rows(self.number), step, DEFAULT_AXIS))
            else:
                iters.append((part.length, step, DEFAULT_AXIS))
        offset = region.begin(self.number) * self.row(cut)
        copies = [(*known[a], shard.DEVICE_AXIS) for a in known if a not in axes_of(cut)]
        return str(Layout(iters, copies, {DEFAULT_AXIS: offset}).canonical()), ()

    def _pieces(self, part: Part, mesh: str) -> int:
        """Pieces of the block that a device has."""
        return self.region.n_parts // shard.ways(part.axes, mesh)

    def row(self, cut: Cut) -> int:
        """Elements from one index of the dim to the next, in the memory of the whole."""
        return prod(p.length for p in cut[self.dim + 1 :])


def scaled(cut: Cut, dim: int, region: Region, number: int) -> Cut:
    """The cut of a block, of a cut of the whole."""
    part = cut[dim]
    n = region.of_block(part.length, number)
    return *cut[:dim], Part(part.axes, n, n), *cut[dim + 1 :]


# -- what blocks need ------------------------------------------------------------------------------


def needs(node: Node, dim: int) -> tuple[int | None, ...] | None:
    """Per operand the dim that a block along a dim of the value reads a block of, None for all.

    None where a block needs more of an operand than its own rows: a window, or rows in other order.
    """
    if not node.args:
        return None
    if node.kind == OP:
        sig = signature(node.text)
        found: list[int | None] = []
        for operand in sig.operands:
            mine = [d for d, p in enumerate(operand) if any(t == dim for t, _ in p.terms)]
            if len(mine) > 1 or any(operand[d].plain != dim for d in mine):
                return None
            found.append(mine[0] if mine else None)
        return tuple(found)
    if node.kind == SCAN:
        return None if scan(node.text)[1] == dim else (dim,) * len(node.args)
    given, half = tuple(a.type for a in node.args), node.shape[dim] // 2
    if 2 * half != node.shape[dim]:
        return None
    cut = tuple(Part((BLOCK,), half, half) if d == dim else Part((), n, n)
                for d, n in enumerate(node.shape))  # fmt: skip
    parts = selector_needs(node.text, given, cut)
    if parts is None:
        return None
    plain = [own.get(dim) for own, _ in shard.readings(node.text, given)]
    cuts = [next((d for d, p in enumerate(part) if p.axes), None) for part in parts]
    return tuple(plain) if plain == cuts else None


def regions(cuts: Cuts, worth_s: float) -> list[Region]:
    """What may be computed in blocks beside exchanges that take so long; one block each.

    From who reads what an exchange brings, or makes what it sends, along each dim as far as
    operators take that dim as it is. Longer exchanges and longer dims come first.
    """
    users: dict[Node, list[tuple[Node, int]]] = {}
    for node in topological(cuts.roots):
        for number, arg in enumerate(node.args):
            users.setdefault(arg, []).append((node, number))
    found: dict[frozenset[tuple[Node, int]], Region] = {}
    for _, node, dim in sorted(_seeds(cuts, worth_s), key=lambda s: (-s[0], -s[1].shape[s[2]])):
        if any(region.dims.get(node) == dim for region in found.values()):
            continue
        dims = _reached(node, dim, users)
        n_parts = _parts(cuts, dims)
        if dims and n_parts:
            found.setdefault(frozenset(dims.items()), Region(dims, n_parts))
    return list(found.values())


def _reached(
    node: Node, dim: int, users: Mapping[Node, Sequence[tuple[Node, int]]]
) -> dict[Node, int]:
    """All values that have a dim of a value as one of theirs, and that dim."""
    dims: dict[Node, int] = {}
    seen = {(node, dim)}
    queue = [(node, dim)]
    while queue:
        at, d = queue.pop(0)
        if at in dims or at.kind == INPUT or (reads := needs(at, d)) is None:
            continue
        dims[at] = d
        near = [(a, e) for a, e in zip(at.args, reads, strict=True) if e is not None]
        for user, number in users.get(at, ()):
            each = ((d2, needs(user, d2)) for d2 in range(len(user.shape)))
            near += [(user, d2) for d2, its in each if its is not None and its[number] == d]
        queue += [pair for pair in near if pair not in seen]
        seen.update(near)
    return dims


def _seeds(cuts: Cuts, worth_s: float) -> Iterator[tuple[float, Node, int]]:
    """Exchanges that take so long: seconds, a value that is read or sent, and one of its dims."""
    for seconds, value, user in _exchanges(cuts):
        if seconds < worth_s:
            continue
        if value.kind != INPUT:
            yield from ((seconds, value, d) for d in range(len(value.shape)))
        if user is None:
            continue
        for d in range(len(user.shape)):
            for arg, e in zip(user.args, needs(user, d) or (None,) * len(user.args), strict=True):
                if e is not None and value in cuts.tree(arg).leaves:
                    yield seconds, user, d


def _exchanges(cuts: Cuts) -> Iterator[tuple[float, Node, Node | None]]:
    """Of every exchange its seconds, what is sent, and who reads it (None: an output)."""
    for node in cuts.computed:
        option = cuts.option[node]
        if option.parts is not None:
            ways = exchanged(node, option, cuts.problem.mesh)
            yield sum(cuts.exchange_price(way).seconds for way in ways), node, None
        for tree, need in zip(cuts.reads(node), option.needs, strict=True):
            yield from _read(cuts, tree, cuts.form(tree.order[-1], need), node)
    for root, wanted in zip(cuts.roots, cuts.problem.wanted, strict=True):
        if wanted is not None:
            yield from _read(cuts, cuts.tree(root), wanted, None)


def _read(
    cuts: Cuts, tree: Tree, goal: Form, user: Node | None
) -> Iterator[tuple[float, Node, Node | None]]:
    """What a value is read through; one that is brought to a place is on its way there."""
    for number, leaf in enumerate(tree.leaves):
        held, place = cuts.home(leaf), cuts.place.get(leaf)
        price = cuts.problem.moves.price
        seconds = price(tree, number, place or held, goal).seconds
        if place is not None:
            seconds += price(Tree((leaf,), (leaf,)), 0, held, place).seconds
        yield seconds, leaf, user


def _parts(cuts: Cuts, dims: Mapping[Node, int]) -> int:
    """Into how many parts the mesh cuts the dim, at most; 0 where parts are no equal ones."""
    ways = 1
    for part, extent in _cut_dims(cuts, dims):
        n = shard.ways(part.axes, cuts.problem.mesh)
        if part.overlaps or part.length * n != extent:
            return 0
        ways = math.lcm(ways, n)
    return ways


def _cut_dims(cuts: Cuts, dims: Mapping[Node, int]) -> Iterator[tuple[Part, int]]:
    """How that dim is cut of all that is computed, read and wanted, and its extent."""
    wanted = dict(zip(cuts.roots, cuts.problem.wanted, strict=True))
    for node, dim in dims.items():
        extent, forms = node.shape[dim], [cuts.place.get(node), wanted.get(node)]
        for at in forms:
            if at is not None and at.cut is not None:
                yield at.cut[dim], extent
        option = cuts.option.get(node)
        if option is not None:
            yield option.home[dim], extent
            if option.parts is not None:
                yield option.parts.cut[dim], extent
        for number, e in enumerate(needs(node, dim) or ()):
            if e is None:
                continue
            arg = node.args[number]
            if option is not None and not is_through(node):
                yield option.needs[number][e], extent
            if arg.kind == INPUT and (held := cuts.home(arg)).cut is not None:
                yield held.cut[e], extent


# -- the program in blocks -------------------------------------------------------------------------


def blocked(cuts: Cuts, chosen: Sequence[Region]) -> Cuts | None:
    """The cuts of a program with regions in blocks; None where it has an operator without them.

    Args:
        cuts: of the program.
        chosen: regions that share no operator.
    """
    try:
        return Blocked(cuts, chosen).cuts
    except ProgramError:  # the text of an operator says the extent
        return None


class Blocked:
    """The making of a program in blocks.

    Attributes:
        plain: the cuts of the program.
        made: value -> what stands for it, whole.
        blocks: value -> its blocks, where it is computed in such.
        of: value -> the region whose blocks it is computed in.
        tag, pieces, joins, kept, place, option: of what is made, see `Cuts`; blocks and slices
            of what is whole are pieces.
        late: what whoever reads it computes itself.
        views: what reads a whole value to make blocks of it.
    """

    def __init__(self, plain: Cuts, chosen: Sequence[Region]) -> None:
        self.plain = plain
        self.of = {node: region for region in chosen for node in region.dims}
        self.made: dict[Node, Node] = {}  # whole values
        self.blocks: dict[Node, Sequence[Node]] = {}
        self.slices: dict[tuple[Node, int, int], list[Node]] = {}
        self.tag: dict[Node, int] = {}
        self.pieces: dict[Node, tuple[Node, Piece]] = {}
        self.joins: dict[Node, tuple[Node, ...]] = {}
        self.late: set[Node] = set()
        self.views: set[Node] = set()
        self.turned: dict[tuple[object, ...], Node] = {}
        self.option: dict[Node, Option] = {}
        self.place: dict[Node, Form] = {}
        self.kept: set[Node] = set()
        ends = accumulate((region.n_blocks for region in chosen), initial=0)
        self.first = {id(region): n for region, n in zip(chosen, ends, strict=False)}
        for node in topological(plain.roots):
            self._node(node)
        self.cuts = self._cuts()

    def _node(self, node: Node) -> None:
        region = self.of.get(node)
        if region is None:
            args = [self.made[a] for a in node.args]
            same = all(a is b for a, b in zip(args, node.args, strict=True))
            made = node if same else made_node(node.kind, node.text, node.cell, args)
            self.made[node] = made
            self.told(node, made, None)
        else:
            region.compute(self, node)

    def join(
        self, node: Node, blocks: Sequence[Node], pieces: Sequence[Piece], whole: Node
    ) -> None:
        """Have a value as the whole of its blocks."""
        self.made[node], self.blocks[node] = whole, blocks
        self.joins[whole] = tuple(blocks)
        for number, (block, piece) in enumerate(zip(blocks, pieces, strict=True)):
            self.tag[block] = self.first[id(piece.region)] + number
            self.pieces[block] = whole, piece

    def told(self, node: Node, made: Node, block: tuple[int, Region, int] | None) -> None:
        """What was chosen for a value, for what stands for it."""
        plain = self.plain
        if node in plain.option:
            option = plain.option[node]
            self.option[made] = option if block is None else _option(node, option, *block)
        if node in plain.place:
            at = plain.place[node]
            if block is not None:
                assert at.cut is not None
                at = plain.form(made, scaled(at.cut, *block))
            self.place[made] = at
        if node.kind != INPUT and plain.is_kept(node):
            self.kept.add(made)

    def read(self, arg: Node, dim: int, region: Region, brought: bool = True) -> Sequence[Node]:
        """The blocks of an operand; where it is brought to a place, they are, or are not."""
        if self.of.get(arg) is region and region.dims[arg] == dim:
            return self.blocks[arg]
        key = arg, dim, id(region)
        if key not in self.slices:
            whole = self.made[arg]
            split = sel_node(join_text("split", dim, (-1, region.part)), [whole])
            self.views.add(split)
            self.slices[key] = [_slice(split, dim, region, n) for n in range(len(region.sizes))]
            for number, one in enumerate(self.slices[key]):
                piece = Piece(dim, region, number)
                self.pieces[one] = whole, piece
                self.tag[one] = self.first[id(region)] + number
                at = self.plain.place.get(arg)
                if (
                    brought and at is not None and at.cut is not None
                ):  # brought there once for all readers
                    goal = piece.scaled(at.cut)
                    self.option[one] = Option((goal,), goal, NO_WORK)
                    self.kept.add(one)
        return self.slices[key]

    def _cuts(self) -> Cuts:
        roots = tuple(self.made[r] for r in self.plain.roots)
        order = list(topological(roots))
        read = {a for node in order if node not in self.views for a in node.args} | set(roots)
        found = copy(self.plain)
        found.roots, found.option = roots, self.option
        found.place = {n: at for n, at in self.place.items() if n in read}
        found.in_blocks(self.kept, [n for n in order if n in self.kept])
        found.tag, found.pieces, found.joins = self.tag, self.pieces, self.joins
        found.late = frozenset(self.late)
        return found


def _block(node: Node, dim: int, region: Region, number: int, args: Sequence[Node]) -> Node:
    """An operator on a block.

    Raises:
        ProgramError: it says the extent of the whole.
    """
    if node.kind == OP:
        sig = signature(node.text)
        fixed = {d: region.of_block(n, number) if d == dim else n for d, n in sig.fixed}
        own = make(sig.operands, range(sig.n_out), sig.monoid, sig.reduced, fixed)
        made = op_node(own.text, node.cell, args)
    else:
        made = made_node(node.kind, node.text, node.cell, args)
    wanted = tuple(region.of_block(n, number) if d == dim else n
                   for d, n in enumerate(node.shape))  # fmt: skip
    if made.shape != wanted:
        raise ProgramError(f"a block of {node.text!r}", f"is {made.type}", f"of shape {wanted}")
    return made


def _option(node: Node, option: Option, dim: int, region: Region, number: int) -> Option:
    """What was chosen for an operator, for a block of it."""
    reads = needs(node, dim)
    assert reads is not None
    own, share = option.needs, region.sizes[number] / sum(region.sizes)
    if is_through(node):
        own = (scaled(own[0], dim, region, number),)
    else:
        own = tuple(c if e is None else scaled(c, e, region, number)
                    for c, e in zip(own, reads, strict=True))  # fmt: skip
    given = tuple(s * share for s in option.work.given_s)
    work = Work(option.work.compute_s * share, given, option.work.made_s * share)
    parts = option.parts
    if parts is not None:
        parts = replace(parts, cut=scaled(parts.cut, dim, region, number))
    return Option(own, scaled(option.home, dim, region, number), work, parts)


def _slice(split: Node, dim: int, region: Region, number: int) -> Node:
    """A block of a value whose dim is split into parts: of every one so many rows."""
    cut = tuple((region.begin(number), 1, region.rows(number)) if d == dim + 1 else None
                for d in range(len(split.shape)))  # fmt: skip
    return sel_node(join_text("merge", dim, 2), [sel_node(join_text("slice", cut), [split])])


def joined(blocks: Sequence[Node], dim: int, region: Region) -> Node:
    """The value whose blocks these are."""
    splits = [sel_node(join_text("split", dim, (-1, region.rows(n))), [b])
              for n, b in enumerate(blocks)]  # fmt: skip
    beside = sel_node(join_text("concat", dim + 1), splits)
    return sel_node(join_text("merge", dim, 2), [beside])
