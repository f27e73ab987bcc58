"""From chosen cuts to a schedule graph: what every rank computes between exchanges, and these.

Operators whose operands are there at once are one program of a rank's own parts, which the search
for one device compiles: so kernels of several operators are what a rank runs. Values are stored
where an exchange, an output or a later program reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from axe_eq.extract.mesh.choose import Cuts, exchanged
from axe_eq.extract.mesh.cuts import (
    Cut,
    Form,
    Part,
    from_buffer,
    selector_needs,
)
from axe_eq.extract.mesh.fused import Kernel
from axe_eq.extract.mesh.lookup import index_dtype, own_reads
from axe_eq.extract.mesh.moves import Tree, exchange_nodes, is_through, tree_of
from axe_eq.extract.mesh.options import Option, Parts, fold_text
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
from axe_eq.schedule.graph import Access, BufferSpec, MoveStep, ScheduleGraph, SpmdStep, Step
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
    """

    node: Node
    level: int
    free: bool


def build(
    cuts: Cuts,
    target: Target,
    inputs: Sequence[tuple[str, ValueType, str]],
    compile_local: Compile,
) -> Built:
    """The schedule graph of chosen cuts.

    Args:
        cuts: of all operators.
        target: the machine.
        inputs: name, type and role of inputs and constants.
        compile_local: compiles a program of one device; equal ones are asked for every time.
    """
    building = _Building(cuts, inputs)
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
    buffers = {
        n: BufferSpec(n, b.type, b.layout, "output" if n in outputs else b.role)
        if b.role == "temporary"
        else b
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
    def __init__(self, cuts: Cuts, inputs: Sequence[tuple[str, ValueType, str]]) -> None:
        self.cuts, self.mesh = cuts, cuts.problem.mesh
        self.buffers: dict[str, BufferSpec] = {}
        self.have: dict[tuple[Node, Cut], Have] = {}
        self.at: dict[Node, Form] = {}  # values that are somewhere, parts of reductions too
        self.stored: dict[tuple[Node, Form], str] = {}
        self.outputs: dict[int, dict[str, Node]] = {}  # level -> buffer -> what is stored there
        self.moves: dict[int, list[MoveStep]] = {}
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
        local = [(1, p.length) if p.overlaps else (p.length,) for p in held.cut]
        shape = tuple(n for dims in local for n in dims)
        return from_buffer(input_node(name, ValueType(held.type.dtype, shape)), held.cut)

    # -- values ------------------------------------------------------------------------------------

    def compute(self, node: Node) -> None:
        """An operator, as its option says."""
        option = self.cuts.option[node]
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
            level, args = self._given(zip(node.args, option.needs, strict=True))
            return Have(_local(node, option, args), level, False)
        if not option.parts.monoid:
            return self._scanned(node, option)
        return self._folded(node, option, option.parts)

    def _given(self, reads: Iterable[tuple[Node, Cut]]) -> tuple[int, list[Node]]:
        """Values in cuts, and the first local program that has all of them."""
        found = [(value, cut, self.get(value, cut)) for value, cut in reads]
        level = max((have.level for _, _, have in found), default=0)
        return level, [self._use(value, cut, have, level) for value, cut, have in found]

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
        way = exchanged(node, option, self.mesh, f"parts of {len(self.at)}")
        rank = len(node.shape)
        front = make([map(plain, range(1, rank + 1))], range(rank + 1), fixed={0: 1})
        sent = op_node(front.text, "id", [part])
        self.source |= {n: node for n in (part, sent) if n not in self.source}
        self._add(way.parts, way.cut, Have(sent, level, False))
        got = self.get(way.wanted, way.goal)
        fold = op_node(fold_text(rank, parts.monoid), "id", [got.node])
        return Have(fold, got.level, False)

    def _scanned(self, node: Node, option: Option) -> Have:
        """A scan of a rank's part behind the totals of the ranks before it."""
        assert option.parts is not None
        monoid, axis = scan(node.text)
        (arg,), (need,) = node.args, option.needs
        own = self.get(arg, need)
        part = self._use(arg, need, own, own.level)
        rank = len(node.shape)
        total = make(
            [[plain(rank if d == axis else d) for d in range(rank)]], range(rank), monoid.name,
            [rank], {axis: 1},
        )  # fmt: skip
        way = exchanged(node, option, self.mesh, f"totals of {len(self.at)}")
        self._add(way.parts, way.cut, Have(op_node(total.text, "id", [part]), own.level, False))
        before = self.get(way.wanted, way.goal)
        level = max(own.level, before.level)
        part = self._use(arg, need, own, level)
        behind = sel_node(join_text("concat", axis), [before.node, part])
        every = scan_node(node.text, [behind])
        self.source.setdefault(every, node)
        n = before.node.shape[axis]
        rows = tuple((n, 1, part.shape[d]) if d == axis else None for d in range(rank))
        return Have(sel_node(join_text("slice", rows), [every]), level, False)

    def _add(self, value: Node, cut: Cut, have: Have) -> None:
        self.at[value] = self.cuts.form(value, cut)
        self.have[value, cut] = have

    def get(self, value: Node, cut: Cut) -> Have:
        """A rank's part of a value in a cut: there already, a view of what is, or sent."""
        if (value, cut) not in self.have:
            self.have[value, cut] = self._through(value, cut, self._tree(value))
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
        return Have(sel_node(value.text, args), level, all(h.free for h in reads))

    # -- memory ------------------------------------------------------------------------------------

    def _use(self, value: Node, cut: Cut, have: Have, level: int) -> Node:
        """A part as a local program of a level reads it."""
        if have.free or have.level == level:
            return have.node
        held = self.cuts.form(value, cut)
        return self._memory(self._store(value, held, have), held)

    def _store(self, value: Node, held: Form, have: Have) -> str:
        """The buffer of a value that a local program makes."""
        key = value, held
        if key not in self.stored:
            name = self._buffer(held)
            self.stored[key], self.ready[name] = name, have.level
            self.outputs.setdefault(have.level, {})[name] = have.node
        return self.stored[key]

    def _buffer(self, held: Form) -> str:
        number = len(self.buffers)
        while (name := f"t{number}") in self.buffers:  # an input may be called so
            number += 1
        self.buffers[name] = BufferSpec(name, str(held.type), held.layout, "temporary")
        return name

    def _sent(self, tree: Tree, goal: Form) -> str:
        """An exchange of what is stored; the buffer it makes."""
        key = tree.order[-1], goal
        if key in self.sent:
            return self.sent[key]
        held = [self.at[leaf] for leaf in tree.leaves]
        names = [self._stored(leaf) for leaf in tree.leaves]
        reads = tuple(Access(n, h.layout) for n, h in zip(names, held, strict=True))
        name = self._buffer(goal)
        nodes = tuple(exchange_nodes(tree, held, goal, self.mesh))
        write = Access(name, goal.layout)
        moves = self.cuts.problem.moves
        messages = exchange(name, 0, reads, write, nodes, moves.wires.near).messages
        price = moves.timed(messages, goal.type.n_bytes // shard.n_devices(self.mesh))
        kind = "move" if tree.is_leaf else "select"
        step = MoveStep(f"m{sum(map(len, self.moves.values()))}_{kind}", reads, (write,),
                        messages.n_bytes, price.seconds, price.by_link, nodes)  # fmt: skip
        level = max((self.ready[n] for n in names), default=-1)
        self.moves.setdefault(level, []).append(step)
        self.sent[key] = self.stored[key] = name
        self.ready[name] = level
        return name

    def _stored(self, value: Node) -> str:
        """The buffer of a value that is somewhere."""
        held = self.at[value]
        if (value, held) not in self.stored:
            assert held.cut is not None
            self._store(value, held, self.have[value, held.cut])
        return self.stored[value, held]

    def output(self, root: Node, wanted: Form | None) -> str:
        """The buffer of an output."""
        if wanted is None:
            return self._stored(root)
        if wanted.cut is None:
            return self._sent(self._tree(root), wanted)
        have = self.get(root, wanted.cut)
        return self._store(root, wanted, have)

    # -- steps -------------------------------------------------------------------------------------

    def steps(self, compile_local: Compile) -> list[Step]:
        """Local programs and exchanges, in order."""
        found: list[Step] = []
        for level in sorted({*self.outputs, *self.moves}):
            if level in self.outputs:
                found.append(self._program(level, compile_local))
            found += self.moves.get(level, ())
        return found

    def _program(self, level: int, compile_local: Compile) -> SpmdStep:
        stored = self.outputs[level]
        reads = [n for n in topological(stored.values()) if n.kind == INPUT]
        names = {n: input_node(f"a{i}", n.type) for i, n in enumerate(reads)}
        made = _renamed(tuple(stored.values()), names)
        roots = tuple(made[n] for n in stored.values())
        given = tuple(InputSpec(n) for n in names.values())
        local = compile_local(Program(given, roots, flatten(roots)[0]))
        of = {n: self.source[old] for old, n in made.items() if old in self.source}
        left = set(of.values()).difference(*(map(of.get, made) for made, _, _ in local.kernels))
        for computes, stores, seconds in local.kernels:
            own, kept = (frozenset(of[n] for n in nodes if n in of) for nodes in (computes, stores))
            # What laws made alone stands for the operators that no kernel computes as they are.
            self.kernels.append(Kernel(level, own or frozenset(left), kept, seconds))

        def access(name: str) -> Access:
            return Access(name, self.buffers[name].layout)

        return SpmdStep(f"k{level}", local.graph, tuple(access(n.text) for n in reads),
                        tuple(map(access, stored)), local.graph.time_s)  # fmt: skip


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
