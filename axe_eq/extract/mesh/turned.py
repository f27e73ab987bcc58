"""Blocks of which every device makes the part of another one at a time.

Take ``x @ w`` of parts over devices, of which device r wants rows r. Block j of device r are rows
``r + j``: what it makes for others is under way while it makes the next block, and its own part
comes last, which is added to what has arrived in the kernel that makes it. Where rows are gathered,
own rows come first, and those of others arrive meanwhile. So nothing is sent that no kernel hides.

A block of a value whose columns are cut is as wide as the value and as high as a part, and lies in
the memory of the whole at another place on every device. Of operands that are cut by rows, block j
is the value whose parts are turned by j devices.

Source: ring algorithms of collectives, as in Wang et al., Overlap communication with dependent
computation via decomposition in large deep learning models, ASPLOS 2023.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from axe_eq.extract.mesh.blocks import Blocked, Piece, Region, joined, needs
from axe_eq.extract.mesh.choose import Cuts
from axe_eq.extract.mesh.cuts import Cut, Part
from axe_eq.extract.mesh.options import NO_WORK, Option, Work
from axe_eq.program.node import OP, Node, op_node, sel_node
from axe_eq.program.ops import MONOIDS, join_text
from axe_eq.program.signature import Affine, make, plain, signature
from axe_eq.schedule import shard


@dataclass(frozen=True, eq=False)
class Turned(Region):
    """Operators that are computed in turned blocks: one per device, each of them in some sizes.

    Attributes:
        axes: the mesh axes that number the devices.
        late: a device's own part is made in the kernel that adds what others made.
    """

    axes: tuple[str, ...] = ()
    late: bool = True
    tried_sizes: ClassVar[tuple[tuple[int, ...], ...]] = ((1,), (1, 1), (3, 1), (1, 3), (1,) * 4)

    @property
    def n_blocks(self) -> int:
        """How many blocks a value has."""
        return self.n_parts * len(self.sizes)

    @property
    def text(self) -> str:
        """How it is computed, for people."""
        late = ", its own last" if self.late else ""
        return f"by devices in blocks {':'.join(map(str, self.sizes))}{late}"

    def compute(self, into: Blocked, node: Node) -> None:
        """Compute a value of these in turned blocks."""
        _Turning(self, into, node).compute()


@dataclass(frozen=True, eq=False)
class TurnedPiece(Piece):
    """A block that is another device's part of one dim, of a value that is cut along another dim.

    Attributes:
        turn: whose part: that of the device so many behind.
    """

    region: Turned
    turn: int

    def unscaled(self, cut: Cut) -> Cut:
        """The cut of the whole that a block's cut is of."""
        n = self.region.extent
        return *cut[: self.dim], Part((), n, n), *cut[self.dim + 1 :]

    def scaled(self, cut: Cut) -> Cut:
        """The cut of the block, of a cut of the whole."""
        n = self.region.rows(self.number)
        return *cut[: self.dim], Part((), n, n), *cut[self.dim + 1 :]

    def fits(self, cut: Cut) -> bool:
        """Whether a block may lie in the memory of the whole, of the cut of either."""
        return not cut[self.dim].axes and _cut_at(cut, self.region.axes) is not None

    def lies(self, cut: Cut, mesh: str) -> tuple[str, tuple[int, ...]]:
        """The layout of the block in the memory of the whole, which is in a cut, and its begins."""
        step = self.region.part * self.row(cut)
        begins = (_place(d, self.region.axes, mesh) for d in range(shard.n_devices(mesh)))
        n = self.region.n_parts
        return super().lies(cut, mesh)[0], tuple((at + self.turn) % n * step for at in begins)

    def _pieces(self, part: Part, mesh: str) -> int:
        return 1


def _place(device: int, axes: Sequence[str], mesh: str) -> int:
    """The number of a device along mesh axes, major first."""
    known, found = shard.mesh_axes(mesh), 0
    for axis in axes:
        size, stride = known[axis]
        found = found * size + device // stride % size
    return found


# -- what may be turned ----------------------------------------------------------------------------


def turned(cuts: Cuts, region: Region) -> Iterator[Turned]:
    """A region's operators in turned blocks, for all mesh axes that give them some."""
    for axes in dict.fromkeys(_axes(cuts, region)):
        n = shard.ways(axes, cuts.problem.mesh)
        dims = {node: d for node, d in region.dims.items() if _may_turn(cuts, node, d, axes)}
        if region.extent % n or not all(_reads(cuts, node, dims, axes) for node in dims):
            continue
        sums = any(cuts.option[node].parts is not None for node in dims)
        brought = any(
            e is not None and arg not in dims and _cut_at(need, axes) is None
            for node, d in dims.items()
            for arg, e, need in _operands(cuts, node, d)
        )
        if sums or brought:
            yield Turned(dims, n, (1,), axes, late=False)
        if sums:
            yield Turned(dims, n, (1,), axes)


def _axes(cuts: Cuts, region: Region) -> Iterator[tuple[str, ...]]:
    for node in region.dims:
        if (option := cuts.option.get(node)) is not None:
            yield from (p.axes for p in option.home if p.axes)


def _operands(cuts: Cuts, node: Node, dim: int) -> Iterator[tuple[Node, int | None, Cut]]:
    """Operands, their dims that blocks cut, and the cuts they are read in."""
    yield from zip(node.args, needs(node, dim) or (), cuts.option[node].needs, strict=True)


def _cut_at(cut: Cut, axes: tuple[str, ...]) -> int | None:
    """The dim that mesh axes cut, and nothing else does."""
    return next((d for d, p in enumerate(cut) if p.axes == axes and not p.overlaps), None)


def _letter(node: Node, option: Option, axes: tuple[str, ...]) -> int | None:
    """The letter that mesh axes cut."""
    return _cut_at(option.home, axes) if option.parts is None else option.parts.letter


def _may_turn(cuts: Cuts, node: Node, dim: int, axes: tuple[str, ...]) -> bool:
    """Whether these axes cut another letter of an operator, and nothing else cuts the dim."""
    option = cuts.option.get(node)
    if option is None or node.kind != OP:
        return False
    own, parts = option.home, option.parts
    if parts is not None:
        if parts.axes != axes or not parts.monoid or own[dim].axes != axes:
            return False
        pairs = enumerate(zip(own, parts.cut, strict=True))
        others = any(p.axes != q.axes for d, (p, q) in pairs if d != dim)
        if others or not MONOIDS[parts.monoid].merges:
            return False
        own = parts.cut
    elif _cut_at(own, axes) is None:
        return False
    letter, sig = _letter(node, option, axes), signature(node.text)
    for operand, need in zip(sig.operands, option.needs, strict=True):
        for projection, part in zip(operand, need, strict=True):
            mine = projection.plain == letter
            uses = any(d == letter for d, _ in projection.terms)
            others = set(part.axes) & set(axes) and part.axes != axes
            if part.overlaps or others or uses != mine or mine != (part.axes == axes):
                return False
            if projection.plain == dim and part.axes:
                return False
    return not own[dim].axes


def _reads(cuts: Cuts, node: Node, dims: dict[Node, int], axes: tuple[str, ...]) -> bool:
    """Whether what an operator reads of another one's blocks is cut as these are."""
    for arg, e, need in _operands(cuts, node, dims[node]):
        if arg not in dims or cuts.option[arg].parts is not None:
            continue
        if e != dims[arg] or need != cuts.option[arg].home:
            return False
        if cuts.place.get(arg, cuts.home(arg)) != cuts.home(arg):
            return False
    return True


# -- an operator in turned blocks ------------------------------------------------------------------


class _Turning:
    def __init__(self, region: Turned, into: Blocked, node: Node) -> None:
        self.region, self.into, self.node, self.dim = region, into, node, region.dims[node]
        self.option = into.plain.option[node]
        self.first = into.first[id(region)]

    def compute(self) -> None:
        region, parts = self.region, self.option.parts
        each = [(turn, s) for turn in range(region.n_parts) for s in range(len(region.sizes))]
        made = {(turn, s): self._block(turn, s) for turn, s in each}
        if parts is None:
            blocks = [made[key] for key in each]
            pieces = [TurnedPiece(self.dim, region, s, turn) for turn, s in each]
            at = _cut_at(self.option.home, region.axes)
            assert at is not None
            whole = _whole(made, self.dim, at, region)
            self.into.join(self.node, blocks, pieces, whole)
            return
        sums = [self._folded([made[t, s] for t in range(region.n_parts)], s, parts.monoid)
                for s in range(len(region.sizes))]  # fmt: skip
        if len(sums) == 1:
            self.into.made[self.node] = sums[0]
            return
        pieces = [Piece(self.dim, region, s) for s in range(len(sums))]
        self.into.join(self.node, sums, pieces, joined(sums, self.dim, region))

    def _kept(self, node: Node, option: Option, s: int, turn: int = 0) -> Node:
        """A value that is somewhere."""
        self.into.option[node] = option
        self.into.kept.add(node)
        self.into.tag[node] = self.first + turn * len(self.region.sizes) + s
        return node

    # -- operands --

    def _operand(self, arg: Node, dim: int, need: Cut, turn: int, s: int) -> tuple[Node, bool]:
        """A block of an operand, and whether devices have their part of it along the dim."""
        into, region = self.into, self.region
        at = _cut_at(need, region.axes)
        if region.dims.get(arg) == dim and into.plain.option[arg].parts is None:
            return into.blocks[arg][turn * len(region.sizes) + s], False
        key = arg, dim, id(region), at, turn, s
        if key not in into.turned:
            found = into.turned[key] = self._slice(arg, dim, at, turn, s)
            into.tag.setdefault(found, self.first + turn * len(region.sizes) + s)
        return into.turned[key], at is None

    def _slice(self, arg: Node, dim: int, at: int | None, turn: int, s: int) -> Node:
        region, into = self.region, self.into
        whole = into.made[arg]
        n = region.n_parts
        if at is not None:  # every device has all rows of its columns
            found = _split(whole, dim, region.part)
            into.views.add(found)
            column, row = at + (at > dim), dim + (dim > at)
            found = _split(found, column, whole.shape[at] // n)
            own = {row + 1: (region.begin(s), region.rows(s))}
            mine = [_cut_out(found, {**own, row: ((r + turn) % n, 1), column: (r, 1)})
                    for r in range(n)]  # fmt: skip
            found = sel_node(join_text("concat", column), mine)
            for d in sorted((row, column), reverse=True):
                found = sel_node(join_text("merge", d, 2), [found])
            into.pieces[found] = whole, TurnedPiece(dim, region, s, turn)
            return found
        several = len(region.sizes) > 1
        found = into.read(arg, dim, region, brought=False)[s] if several else whole
        if not turn:
            return found
        ahead = turn * region.rows(s)
        one = _cut_out(found, {dim: (ahead, found.shape[dim] - ahead)})
        two = _cut_out(found, {dim: (0, ahead)})
        into.views |= {one, two}
        return sel_node(join_text("concat", dim), [one, two])

    # -- the operator --

    def _block(self, turn: int, s: int) -> Node:
        """A block of the value, or of the parts of it."""
        region, node, dim, option = self.region, self.node, self.dim, self.option
        rows, axes = region.rows(s), region.axes
        sig, letter = signature(node.text), _letter(node, option, axes)
        args: list[Node] = []
        own: list[Cut] = []
        by_rows: list[bool] = []
        for arg, e, need in _operands(self.into.plain, node, dim):
            if e is None:
                given, is_part = self.into.made[arg], False
            else:
                given, is_part = self._operand(arg, e, need, turn, s)
                need = *need[:e], Part((), rows, rows), *need[e + 1 :]
            args.append(given)
            own.append(need)
            by_rows.append(is_part)
        parts = option.parts
        home = option.home if parts is None else parts.cut
        home = *home[:dim], Part((), rows, rows), *home[dim + 1 :]
        work = option.work
        share = rows / region.extent
        less = Work(work.compute_s * share, tuple(t * share for t in work.given_s),
                    work.made_s * share)  # fmt: skip
        assert letter is not None
        if parts is None and not any(by_rows):
            fixed = {d: rows if d == dim else n for d, n in sig.fixed}
            made = make(sig.operands, range(sig.n_out), sig.monoid, sig.reduced, fixed)
            block = op_node(made.text, node.cell, args)
            return self._kept(block, Option(tuple(own), home, less), s, turn)
        # A letter more: the device. It is a digit of what is cut, and of an operand's rows.
        front = letter if parts is None else dim
        one = Part(axes, 1, 1)
        reads = needs(node, dim)
        assert reads is not None
        operands: list[list[Affine]] = []
        cuts: list[Cut] = []
        for number, (operand, need) in enumerate(zip(sig.operands, own, strict=True)):
            row: list[Affine] = []
            cut: list[Part] = []
            at = reads[number] if by_rows[number] else None
            for d, (projection, part) in reversed(list(enumerate(zip(operand, need, strict=True)))):
                found = Affine.of({k + (k >= front): c for k, c in projection.terms},
                                  projection.offset)  # fmt: skip
                if projection.plain == letter or d == at:
                    args[number] = _split(args[number], d, part.length)
                    if d == at and len(region.sizes) == 1 and not turn:
                        self.into.views.add(args[number])
                    row[:0] = [plain(front), found]
                    cut[:0] = [one, Part((), part.length, part.length)]
                else:
                    row.insert(0, found)
                    cut.insert(0, part)
            operands.append(row)
            cuts.append(tuple(cut))
        fixed = {
            d + (d >= front): rows if d == dim else n // (region.n_parts if d == letter else 1)
            for d, n in sig.fixed
        }
        reduced = [d + 1 for d in sig.reduced]
        made = make(operands, range(sig.n_out + 1), sig.monoid, reduced, fixed)
        block = op_node(made.text, node.cell, args)
        inner = Part((), home[front].length, home[front].length)
        stacked = *home[:front], one, inner, *home[front + 1 :]
        self._kept(block, Option(tuple(cuts), stacked, less), s, turn)
        if parts is not None:
            return block
        merged = sel_node(join_text("merge", front, 2), [block])
        return self._kept(merged, Option((stacked,), home, NO_WORK), s, turn)

    def _folded(self, made: Sequence[Node], s: int, monoid: str) -> Node:
        """A device's part of the value: its own parts, and what others made of it."""
        dim, into, option = self.dim, self.into, self.option
        found, n = made[0], len(made)
        if self.region.late:
            into.late.add(found)
        home = into.option[found].home
        dims = tuple(map(plain, range(len(found.shape))))
        text = make([dims, dims], range(len(dims))).text
        for turn in range(1, n):
            arrived = sel_node(join_text("concat", dim), [
                _cut_out(made[turn], {dim: (n - turn, turn)}),
                _cut_out(made[turn], {dim: (0, n - turn)}),
            ])  # fmt: skip
            found = op_node(text, MONOIDS[monoid].merges, [found, arrived])
            self._kept(found, Option((home, home), home, NO_WORK), s)
        merged = sel_node(join_text("merge", dim, 2), [found])
        rows = self.region.rows(s)
        own = *option.home[:dim], Part(self.region.axes, rows, rows), *option.home[dim + 1 :]
        return self._kept(merged, Option((home,), own, NO_WORK), s)


def _split(node: Node, dim: int, inner: int) -> Node:
    return sel_node(join_text("split", dim, (-1, inner)), [node])


def _cut_out(node: Node, rows: dict[int, tuple[int, int]]) -> Node:
    """A slice of some dims, of each so many indices from one on."""
    text = tuple((rows[d][0], 1, rows[d][1]) if d in rows else None
                 for d in range(len(node.shape)))  # fmt: skip
    return sel_node(join_text("slice", text), [node])


def _whole(made: dict[tuple[int, int], Node], dim: int, at: int, region: Turned) -> Node:
    """The value whose turned blocks these are."""
    n, every = region.n_parts, list[Node]()
    for part in range(n):
        for s in range(len(region.sizes)):
            blocks = [made[(part - r) % n, s] for r in range(n)]
            columns = blocks[0].shape[at] // n
            mine = [_cut_out(b, {at: (r * columns, columns)}) for r, b in enumerate(blocks)]
            every.append(sel_node(join_text("concat", at), mine))
    return sel_node(join_text("concat", dim), every)
