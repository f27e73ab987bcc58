"""From chosen cuts to a schedule graph: what every rank computes between exchanges, and these.

Operators whose operands are there at once are one program of a rank's own parts, which the search
for one device compiles: so kernels of several operators are what a rank runs. Values are stored
where an exchange, an output or a later program reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from axe_eq.extract.mesh.blocks import Piece
from axe_eq.extract.mesh.choose import Cuts, exchanged
from axe_eq.extract.mesh.cuts import Cut, Form, Part, from_buffer, is_even, selector_needs
from axe_eq.extract.mesh.fused import Kernel
from axe_eq.extract.mesh.lookup import index_dtype, own_reads
from axe_eq.extract.mesh.merge import merge
from axe_eq.extract.mesh.moves import NOTHING, Tree, exchange_nodes, is_through, tree_of
from axe_eq.extract.mesh.options import (
    Option,
    Parts,
    fold_text,
    folded_by,
    scanned_totals,
    stands_for,
)
from axe_eq.extract.mesh.seen import (
    ALIGNMENT_BYTES,
    CHUNKS,
    READ,
    STORE,
    Failing,
    fresh_name,
    lies_across,
    meet,
)  # fmt: skip
from axe_eq.layout import Layout
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.mesh.steps import exchange
from axe_eq.program.gathers import looks
from axe_eq.program.nesting import flatten
from axe_eq.program.node import (
    INPUT,
    OP,
    InputSpec,
    Node,
    Program,
    input_node,
    made_node,
    op_node,
    scan_node,
    sel_node,
    topological,
)
from axe_eq.program.ops import Look, join_text, scan
from axe_eq.program.signature import Affine, make, plain, signature
from axe_eq.program.types import ValueType
from axe_eq.schedule import shard
from axe_eq.schedule.digits import digits
from axe_eq.schedule.graph import (
    Access,
    BufferSpec,
    MoveStep,
    ScheduleGraph,
    SpmdStep,
    Step,
    TileNode,
)
from axe_eq.schedule.merging import Merging
from axe_eq.target import Target


@dataclass(frozen=True)
class Local:
    """A program of one device, compiled.

    Attributes:
        graph: its schedule.
        kernels: per kernel the values of the program that it computes, those that it stores, and
            its seconds.
    """

    graph: ScheduleGraph
    kernels: tuple[tuple[frozenset[Node], frozenset[Node], float], ...]


Compile = Callable[[Program], Local]
VIEW = "view"  # kind of a move that moves nothing


@dataclass(frozen=True)
class Built:
    """The schedule graph of chosen cuts, and what its kernels compute of the program."""

    graph: ScheduleGraph
    kernels: tuple[Kernel, ...]


@dataclass(frozen=True)
class Have:
    """A rank's part of a value.

    Attributes:
        node: of the part's type.
        level: the first local program that has it.
        free: it is memory, or a view of it: any later program has it too.
        tag: number of the block whose programs have it, -1 where it is of none.
    """

    node: Node
    level: int
    free: bool
    tag: int = -1


def build(
    cuts: Cuts,
    target: Target,
    inputs: Sequence[tuple[str, ValueType, str]],
    compile_local: Compile,
    carried: Mapping[int, str] = MappingProxyType({}),
    failing: Failing = lambda step, graph: "nothing is emitted",
    merging: Merging = lambda step, graph: None,
) -> Built:
    """The schedule graph of chosen cuts.

    Args:
        cuts: of all operators.
        target: the machine.
        inputs: name, type and role of inputs and constants.
        compile_local: compiles a program of one device; equal ones are asked for every time.
        carried: exchanges that kernels carry, by number, and how; see `axe_eq.extract.mesh.seen`.
        failing: why a kernel of a graph cannot be written; None where it can.
        merging: what a kernel takes whose result memory merges.

    Raises:
        ScheduleError: what such an exchange brings lies otherwise for every device.
    """
    building = _Building(cuts, inputs, carried)
    for node in cuts.place:
        if node.kind == INPUT:
            building.bring(node)
    for node in cuts.computed:
        building.compute(node)
    outputs = [
        building.output(root, wanted)
        for root, wanted in zip(cuts.roots, cuts.problem.wanted, strict=True)
    ]
    steps = building.steps(compile_local)
    merge(steps, building.buffers, outputs, cuts.problem.mesh, merging)
    if set(outputs) <= {w.buffer for s in steps if isinstance(s, SpmdStep) for w in s.writes}:
        meet(steps, building.buffers, building.told, cuts.problem.mesh, failing)
    buffers = {
        n: replace(b, role="output" if n in outputs else b.role) if b.role == "temporary" else b
        for n, b in building.buffers.items()
    }
    sizes = {name: size for name, (size, _) in shard.mesh_axes(cuts.problem.mesh).items()}
    graph = ScheduleGraph(
        target.name, buffers, tuple(steps), tuple(n for n, _, _ in inputs), tuple(outputs), {},
        sizes, sum(s.time_s for s in steps), tuple(() for _ in outputs),
        cuts.problem.moves.wires.near,
    )  # fmt: skip
    return Built(graph, tuple(building.kernels))


class _Building:
    def __init__(
        self, cuts: Cuts, inputs: Sequence[tuple[str, ValueType, str]], carried: Mapping[int, str]
    ) -> None:
        self.cuts, self.mesh, self.carried = cuts, cuts.problem.mesh, carried
        self.buffers: dict[str, BufferSpec] = {}
        self.have: dict[tuple[Node, Cut], Have] = {}
        self.at: dict[Node, Form] = {}  # values that are somewhere, parts of reductions too
        self.stored: dict[tuple[Node, Form], str] = {}
        # Level and block -> buffer -> what is stored there.
        self.outputs: dict[tuple[int, int], dict[str, Node]] = {}
        self.moves: dict[int, list[MoveStep]] = {}
        # Exchange -> its seconds where kernels wait themselves, by chunks that they wait for.
        self.told: dict[str, dict[int, float]] = {}
        self.wholes: dict[tuple[Node, Cut], str] = {}  # buffers that blocks lie in
        self.read = frozenset(topological(cuts.roots))
        self.tag = -1  # of the block that is computed
        self.sent: dict[tuple[Node, Form], str] = {}
        self.ready: dict[str, int] = {}  # buffer -> level of the program or exchange that makes it
        self.source: dict[Node, Node] = {}  # what a rank computes -> the operator that it is of
        self.kernels: list[Kernel] = []
        for name, type_, role in inputs:
            held = cuts.problem.arrive[name]
            self.buffers[name] = BufferSpec(name, str(type_), held.layout, role)
            node = input_node(name, type_)
            self.at[node] = held
            self.stored[node, held], self.ready[name] = name, -1
            if held.cut is not None:
                self.have[node, held.cut] = Have(self._memory(name, held), 0, True)

    def _memory(self, name: str, held: Form) -> Node:
        """A rank's part of a value, read from its buffer."""
        assert held.cut is not None
        if self.buffers[name].inside:
            inside = digits(self.buffers[name])
            node = input_node(name, ValueType(held.type.dtype, inside.shape))
            for dim, count in reversed(list(enumerate(inside.counts))):
                if count > 1:
                    node = sel_node(join_text("merge", dim, count), [node])
            return node
        local = [(1, p.length) if p.overlaps else (p.length,) for p in held.cut]
        shape = tuple(n for dims in local for n in dims)
        return from_buffer(input_node(name, ValueType(held.type.dtype, shape)), held.cut)

    # -- values ------------------------------------------------------------------------------------

    def compute(self, node: Node) -> None:
        """An operator, as its option says."""
        option, self.tag = self.cuts.option[node], self.cuts.tag.get(node, -1)
        self.at[node] = self.cuts.form(node, option.home)
        if is_through(node):
            found = self._through(node, option.home, self.cuts.tree(node, expand=True))
        else:
            found = self._applied(node, option)
            self.source.setdefault(found.node, node)
        self.have[node, option.home] = found
        self.bring(node)

    def bring(self, node: Node) -> None:
        """A value that is read several times is brought to where all of them read it."""
        place = self.cuts.place.get(node, self.at[node])
        if place != self.at[node]:
            assert place.cut is not None
            self.get(node, place.cut)
            self.at[node] = place

    def _applied(self, node: Node, option: Option) -> Have:
        if option.parts is None:
            late = node in self.cuts.late
            level, args = self._given(zip(node.args, option.needs, strict=True), late)
            return Have(_local(node, option, args), level, late, self.tag)
        if not option.parts.monoid:
            return self._scanned(node, option)
        return self._folded(node, option, option.parts)

    def _given(
        self, reads: Iterable[tuple[Node, Cut]], stored: bool = False
    ) -> tuple[int, list[Node]]:
        """Values in cuts, and the first local program that has all of them, or all in memory."""
        found = [(value, cut, self.get(value, cut)) for value, cut in reads]
        since = (h.level + (not h.free) if stored else self._since(h) for _, _, h in found)
        level = max(since, default=0)
        return level, [self._use(value, cut, have, level) for value, cut, have in found]

    def _since(self, have: Have) -> int:
        """The first program of this block that has a value: what others make is stored before."""
        return have.level + (not have.free and have.tag != self.tag)

    def _folded(self, node: Node, option: Option, parts: Parts) -> Have:
        """Parts of a reduction: sent in slices, then reduced in one order."""
        reads = list(zip(node.args, option.needs, strict=True))
        if node.kind == OP:
            level, args = self._given(reads)
            part = _local(node, option, args)
        else:  # a read at integers
            (look,) = looks(node.text, tuple(a.type for a in node.args))
            level, args = self._given([*reads, _numbers(node, look, parts, self.mesh)])
            part = own_reads(node, args[:-1], args[-1], look)
        ways = exchanged(node, option, self.mesh, f"parts of {len(self.at)}")
        values = stands_for(part)
        for way, (value, dims) in zip(ways, values, strict=True):
            rank = len(dims)
            front = make([map(plain, range(1, rank + 1))], range(rank + 1), fixed={0: 1})
            sent = op_node(front.text, "id", [value])
            self.source |= {n: node for n in (value, sent) if n not in self.source}
            self._add(way.parts, way.cut, Have(sent, level, False, self.tag))
        level, given = self._given([(way.wanted, way.goal) for way in ways])
        text = fold_text([dims for _, dims in values], len(node.shape), parts.monoid)
        return Have(op_node(text, folded_by(node), given), level, False, self.tag)

    def _scanned(self, node: Node, option: Option) -> Have:
        """A scan of a rank's part behind the totals of the ranks before it."""
        (_, axis), reads = scan(node.text), list(zip(node.args, option.needs, strict=True))
        since, own = self._given(reads)
        ways = exchanged(node, option, self.mesh, f"totals of {len(self.at)}")
        for way, total in zip(ways, scanned_totals(scan_node(node.text, own)), strict=True):
            self._add(way.parts, way.cut, Have(total, since, False, self.tag))
        level, given = self._given([*reads, *((way.wanted, way.goal) for way in ways)])
        pairs = list(zip(given[len(ways) :], given, strict=False))
        behind = [sel_node(join_text("concat", axis), pair) for pair in pairs]
        every = scan_node(node.text, behind)
        self.source.setdefault(every, node)
        before, part = (x.shape[axis] for x in pairs[0])
        rows = tuple((before, 1, part) if d == axis else None for d in range(len(node.shape)))
        return Have(sel_node(join_text("slice", rows), [every]), level, False, self.tag)

    def _add(self, value: Node, cut: Cut, have: Have) -> None:
        self.at[value] = self.cuts.form(value, cut)
        self.have[value, cut] = have

    def get(self, value: Node, cut: Cut) -> Have:
        """A rank's part of a value in a cut: there already, a view of what is, or sent."""
        if (value, cut) not in self.have:
            found = self._in_place(value, cut)
            self.have[value, cut] = found or self._through(value, cut, self._tree(value))
        return self.have[value, cut]

    def _tree(self, value: Node) -> Tree:
        return tree_of(value, lambda n: n in self.at or self.cuts.is_kept(n))

    def _through(self, value: Node, cut: Cut, tree: Tree) -> Have:
        found = self._here(value, cut, top=True)
        if found is not None:
            return found
        goal = self.cuts.form(value, cut)
        name = self._sent(tree, goal)
        return Have(self._memory(name, goal), self.ready[name] + 1, True)

    def _here(self, value: Node, cut: Cut, top: bool = False) -> Have | None:
        """A value that every rank makes of what it has by selectors alone; None where it lacks."""
        if not top and (value, cut) in self.have:
            return self.have[value, cut]
        if not top and (found := self._in_place(value, cut)) is not None:
            self.have[value, cut] = found
            return found
        if not is_through(value) or (value in self.at and not top):
            return None
        needs = selector_needs(value.text, tuple(a.type for a in value.args), cut)
        if needs is None:
            return None
        below = [self._here(a, n) for a, n in zip(value.args, needs, strict=True)]
        reads = [h for h in below if h is not None]
        if len(reads) < len(below):
            return None
        level, args = self._given(zip(value.args, needs, strict=True))
        free = all(h.free for h in reads)
        return Have(sel_node(value.text, args), level, free, self.tag)

    # -- memory ------------------------------------------------------------------------------------

    def _use(self, value: Node, cut: Cut, have: Have, level: int) -> Node:
        """A part as a local program of a level reads it."""
        if have.free or (have.level, have.tag) == (level, self.tag):
            return have.node
        held = self.cuts.form(value, cut)
        return self._memory(self._store(value, held, have), held)

    def _store(self, value: Node, held: Form, have: Have) -> str:
        """The buffer of a value that a local program makes."""
        key = value, held
        if key not in self.stored:
            name = self._block(value, held) or self._buffer(held)
            self.stored[key], self.ready[name] = name, have.level
            node = have.node
            if self.buffers[name].inside:
                for dim, extents in digits(self.buffers[name]).splits:
                    node = sel_node(join_text("split", dim, (-1, *extents)), [node])
            self.outputs.setdefault((have.level, have.tag), {})[name] = node
        return self.stored[key]

    def _buffer(self, held: Form) -> str:
        name = fresh_name("t", self.buffers)
        self.buffers[name] = BufferSpec(name, str(held.type), held.layout, "temporary")
        return name

    def _sent(self, tree: Tree, goal: Form, inside: bool = False) -> str:
        """An exchange of what is stored; the buffer it makes, of a block inside that of all."""
        key = tree.order[-1], goal
        if key in self.sent:
            return self.sent[key]
        held = [self.at[leaf] for leaf in tree.leaves]
        names = [self._stored(leaf) for leaf in tree.leaves]
        name = (self._block(*key) if inside else None) or self._buffer(goal)
        nodes = tuple(exchange_nodes(tree, held, goal, self.mesh))
        self.sent[key] = self.stored[key] = name
        self._move(names, name, nodes, "move" if tree.is_leaf else "select")
        return name

    def _lie_across(self, how: str, source: str, goal: str) -> None:
        """What an exchange brings lies where the source does, or the source where that is."""
        name, root = (goal, source) if how == READ else (source, goal)
        self.buffers[name] = replace(self.buffers[name], within=root, across=True)

    def _move(
        self, names: Sequence[str], name: str, nodes: tuple[TileNode, ...], kind: str
    ) -> None:
        """A step that makes a buffer of others by messages, or by none where it lies in place."""
        number = sum(map(len, self.moves.values()))
        if how := self.carried.get(number, ""):
            self._lie_across(how, names[0], name)
        reads = tuple(map(self._access, names))
        write, moves = self._access(name), self.cuts.problem.moves
        messages = exchange(name, 0, reads, write, nodes, moves.wires.near).messages
        price = NOTHING
        if kind != VIEW:
            n_bytes = self.buffers[name].value_type.n_bytes
            price = moves.timed(messages, n_bytes // shard.n_devices(self.mesh))
        if how:
            given = self.buffers[names[0]]  # what a call is given lies anywhere
            held = given.value_type.n_bytes if how == READ and given.role != "temporary" else 0
            kind, part = how, held // shard.n_devices(self.mesh)
            price = moves.seen(messages, part)
            self.told[f"m{number}_{kind}"] = ways = dict[int, float]()
            if all(link.signal_s for link in moves.wires.links):
                ways[0] = moves.seen(messages, part, signals=True).seconds
            if how == STORE and all(link.tell_s for link in moves.wires.links):
                ways |= {n: moves.seen(messages, part, chunks=n).seconds for n in CHUNKS}
        step = MoveStep(f"m{number}_{kind}", reads, (write,),
                        messages.n_bytes, price.seconds, price.by_link, nodes)  # fmt: skip
        level = max((self.ready[n] for n in names), default=-1)
        self.moves.setdefault(level, []).append(step)
        self.ready[name] = level

    def _access(self, name: str) -> Access:
        return Access(name, self.buffers[name].layout, self.buffers[name].begins)

    def _stored(self, value: Node) -> str:
        """The buffer of a value that is somewhere."""
        held = self.at[value]
        if (value, held) not in self.stored:
            assert held.cut is not None
            self._store(value, held, self.have[value, held.cut])
        return self.stored[value, held]

    def output(self, root: Node, wanted: Form | None) -> str:
        """The buffer of an output."""
        self.tag = -1
        if wanted is None and root in self.cuts.joins:
            first = self.cuts.joins[root][0]
            home = self.cuts.pieces[first][1].unscaled(self.cuts.option[first].home)
            wanted = self.cuts.form(root, home)
        if wanted is None:
            return self._stored(root)
        if wanted.cut is None:
            return self._sent(self._tree(root), wanted)
        have = self.get(root, wanted.cut)
        return self.wholes.get((root, wanted.cut)) or self._store(root, wanted, have)

    # -- blocks ------------------------------------------------------------------------------------

    def _in_place(self, value: Node, cut: Cut) -> Have | None:
        """A block of what a buffer holds, or what blocks are joined to in one; None where neither.

        Nothing is copied: a block lies within the memory of the whole.
        """
        if value in self.cuts.joins:
            return self._whole(value, cut)
        if value not in self.cuts.pieces or not is_through(value) or value in self.cuts.option:
            return None
        whole, piece = self.cuts.pieces[value]
        if value in self.cuts.joins.get(whole, ()):  # a block itself, of other blocks
            return None
        if not piece.fits(cut):
            return None
        of = self.cuts.form(whole, piece.unscaled(cut))
        assert of.cut is not None
        if whole in self.cuts.joins:
            if self._whole(whole, of.cut) is None:
                return None
            root = self.wholes[whole, of.cut]
        elif self.at.get(whole) == of and self._may_hold(whole, of, piece):
            root = self._stored(whole)
        else:
            return None
        held = self.cuts.form(value, cut)
        if (value, held) not in self.stored:
            name = self.stored[value, held] = self._within(root, of.cut, piece, held)
            tree = tree_of(value, lambda node: node is whole)
            self._move([root], name, tuple(exchange_nodes(tree, [of], held, self.mesh)), VIEW)
        name = self.stored[value, held]
        return Have(self._memory(name, held), self.ready[name] + 1, True)

    def _whole(self, value: Node, cut: Cut) -> Have | None:
        """Blocks in one buffer, each made or brought there; None where they cannot lie in one."""
        form, blocks = self.cuts.form(value, cut), self.cuts.joins[value]
        if any(b not in self.at for b in blocks):  # they are read through
            return None
        if not all(self._may_hold(value, form, self.cuts.pieces[b][1]) for b in blocks):
            return None
        for block in blocks:
            goal = self.cuts.form(block, self.cuts.pieces[block][1].scaled(cut))
            if self.at[block] == goal:
                self._stored(block)
            else:
                self._sent(self._tree(block), goal, inside=True)
        name = self._joined(value, cut)
        return Have(self._memory(name, form), self.ready[name] + 1, True)

    def _joined(self, value: Node, cut: Cut) -> str:
        """The buffer that all blocks of a value lie in."""
        name = self.wholes[value, cut]
        if name not in self.ready:
            tree = tree_of(value, lambda node: node in self.cuts.joins[value])
            of = [self.cuts.pieces[b][1] for b in tree.leaves]
            held = [self.cuts.form(b, p.scaled(cut)) for b, p in zip(tree.leaves, of, strict=True)]
            names = [self.stored[key] for key in zip(tree.leaves, held, strict=True)]
            nodes = exchange_nodes(tree, held, self.cuts.form(value, cut), self.mesh)
            self._move(names, name, tuple(nodes), VIEW)
        return name

    def _block(self, value: Node, held: Form) -> str | None:
        """A buffer for a block within that of the value that all blocks are joined to."""
        whole, piece = self.cuts.pieces.get(value, (value, None))
        blocks = self.cuts.joins.get(whole, ())
        if piece is None or value not in blocks or held.cut is None or whole not in self.read:
            return None
        if not piece.fits(held.cut):
            return None
        key = whole, piece.unscaled(held.cut)
        form = self.cuts.form(*key)
        if not all(self._may_hold(whole, form, self.cuts.pieces[b][1]) for b in blocks):
            return None
        if key not in self.wholes:
            self.wholes[key] = self._buffer(form)
        return self._within(self.wholes[key], key[1], piece, held)

    def _may_hold(self, whole: Node, held: Form, piece: Piece) -> bool:
        """Whether a block is a part of every device's memory of the whole that kernels may read."""
        assert held.cut is not None
        if not piece.fits(held.cut) or not is_even(held.cut, whole.shape, self.mesh):
            return False
        layout, begins = piece.lies(held.cut, self.mesh)
        places = (Layout.parse(layout).offset.get(DEFAULT_AXIS, 0), *begins)
        return all(n * held.type.itemsize % ALIGNMENT_BYTES == 0 for n in places)

    def _within(self, root: str, cut: Cut, piece: Piece, held: Form) -> str:
        """A buffer of a block within the memory of the whole, which is in a cut."""
        layout, begins = piece.lies(cut, self.mesh)
        name = self._buffer(replace(held, layout=layout))
        self.buffers[name] = replace(self.buffers[name], within=root, begins=begins)
        return name

    # -- steps -------------------------------------------------------------------------------------

    def steps(self, compile_local: Compile) -> list[Step]:
        """Local programs and exchanges, in order."""
        for key in self.wholes:
            self._joined(*key)
        found: list[Step] = []
        programs = sorted(self.outputs)
        for level in sorted({*(level for level, _ in programs), *self.moves}):
            found += [self._program(level, t, compile_local) for at, t in programs if at == level]
            found += self.moves.get(level, ())
        return found

    def _program(self, level: int, tag: int, compile_local: Compile) -> SpmdStep:
        stored = self.outputs[level, tag]
        reads = [n for n in topological(stored.values()) if n.kind == INPUT]
        names = {n: input_node(f"a{i}", n.type) for i, n in enumerate(reads)}
        made = _renamed(tuple(stored.values()), names)
        roots = tuple(made[n] for n in stored.values())
        given = tuple(InputSpec(m, layout=self._lies(n.text)) for n, m in names.items())
        wanted = tuple(map(self._lies, stored))
        wanted = wanted if any(wanted) else ()
        local = compile_local(Program(given, roots, flatten(roots)[0], output_layouts=wanted))
        of = {n: self.source[old] for old, n in made.items() if old in self.source}
        left = set(of.values()).difference(*(map(of.get, made) for made, _, _ in local.kernels))
        for computes, stores, seconds in local.kernels:
            own, kept = (frozenset(of[n] for n in nodes if n in of) for nodes in (computes, stores))
            # What laws made alone stands for the operators that no kernel computes as they are.
            self.kernels.append(Kernel(level, own or frozenset(left), kept, seconds))
        name = f"k{level}" if tag < 0 else f"k{level}_{tag}"
        return SpmdStep(name, local.graph, tuple(self._access(n.text) for n in reads),
                        tuple(map(self._access, stored)), local.graph.time_s)  # fmt: skip

    def _lies(self, name: str) -> Layout | None:
        """How a rank's part of a buffer lies in memory; None where it is dense."""
        buffer = self.buffers[name]
        if buffer.across:
            return lies_across(buffer, self.buffers[buffer.within], self.mesh)
        part = digits(buffer) if buffer.within else None
        return None if part is None or part.is_dense else part.layout


def _numbers(node: Node, look: Look, parts: Parts, mesh: str) -> tuple[Node, Cut]:
    """The number of every device's part along the dim that integers index."""
    dtype = index_dtype(node.args[look.by].dtype)
    counted = sel_node(join_text("iota", shard.ways(parts.axes, mesh), dtype), [])
    return counted, (Part(parts.axes, 1, 1),)


def _renamed(roots: tuple[Node, ...], names: Mapping[Node, Node]) -> dict[Node, Node]:
    """Values -> the same ones of inputs by other names."""
    made: dict[Node, Node] = dict(names)
    for node in topological(roots):
        if node not in made:
            made[node] = made_node(node.kind, node.text, node.cell, [made[a] for a in node.args])
    return made


def _local(node: Node, option: Option, args: Sequence[Node]) -> Node:
    """An operator on a rank's own parts."""
    if node.kind != OP:
        return made_node(node.kind, node.text, node.cell, args)
    sig = signature(node.text)
    own = option.home if option.parts is None else option.parts.cut
    operands = [
        [Affine(p.terms) if part.overlaps else p for p, part in zip(dims, need, strict=True)]
        for dims, need in zip(sig.operands, option.needs, strict=True)
    ]
    fixed = {d: own[d].length if d < sig.n_out else n for d, n in sig.fixed}
    local = make(operands, range(sig.n_out), sig.monoid, sig.reduced, fixed)
    return op_node(local.text, node.cell, args)
