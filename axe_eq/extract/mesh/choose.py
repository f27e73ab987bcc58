"""Cuts of all operators of a program together, with the exchanges that they imply: exactly.

Every operator has options, every edge between two of them a price for each pair of options: what
devices lack of the cut that one needs, of the cut that the other leaves. Min-sum elimination finds
the cheapest choice. Which alternative of a value is computed (algebra) is chosen around it: from
the program's own form and from the cheapest tree, single values are changed as long as that pays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np

from axe_eq.extract.mesh.cuts import Cut, Form, Part, form, local_type
from axe_eq.extract.mesh.fused import Fused, Kernel
from axe_eq.extract.mesh.minsum import Costs, solve, total
from axe_eq.extract.mesh.moves import Moves, Price, Tree, is_through, tree_of
from axe_eq.extract.mesh.options import Machine, Option, lead, scanned_units, stands_for
from axe_eq.extract.mesh.values import Values
from axe_eq.program.node import INPUT, OP, Node, input_node, sel_node, topological
from axe_eq.program.ops import join_text
from axe_eq.program.signature import signature
from axe_eq.program.types import ValueType
from axe_eq.schedule import shard

if TYPE_CHECKING:
    from axe_eq.extract.mesh.blocks import Piece

MOST_PIECES = 64  # that one exchange reads
MOST_PLACES = 64  # buffers that a value may be read from
MOST_TRIED = 60  # alternatives of values, each with all cuts chosen anew
MOST_NEAR, MOST_SOLVED = (
    4,
    1000,
)  # other options of an operator, operators whose cuts are chosen anew
LEAST_SHARE = 0.01  # of all costs, of an operator that is cut otherwise
MOST_WORK = 4000  # operators whose cuts are chosen for one search
ROUNDING = 1e-9  # of costs that are equal
BYTES, TIME = "link_bytes", "time"


@dataclass(frozen=True)
class Problem:
    """What is asked of cuts.

    Attributes:
        machine: the mesh.
        moves: prices of exchanges.
        arrive: input and constant -> the buffer it arrives in.
        wanted: per output the buffer it is wanted in, or None.
        objective: "time", "link_bytes", or the name of a cost.
        fused: prices of operators as they were compiled, as far as they were.
        per_byte: what a byte that a device holds costs, where time alone takes too much memory.
        tables: prices of edges between operators, remembered.
        lists: of buffers, by what they are of.
    """

    machine: Machine
    moves: Moves
    arrive: Mapping[str, Form]
    wanted: Sequence[Form | None]
    objective: str = TIME
    fused: Fused = field(default_factory=Fused, compare=False)
    per_byte: float = 0.0
    tables: dict[object, Costs] = field(default_factory=dict, compare=False)

    lists: dict[tuple[object, ...], list[Form]] = field(default_factory=dict, compare=False)

    @property
    def mesh(self) -> str:
        """Text of the mesh."""
        return self.machine.mesh

    @property
    def counts_bytes(self) -> bool:
        """Whether bytes are to be least, and time only breaks ties of them."""
        return self.objective == BYTES or self.objective in self.moves.wires.named(())

    def weight(self, price: Price) -> float:
        """What a price counts. Costs that cuts do not have are stood for by time."""
        if not self.counts_bytes:
            return price.seconds
        return price.by_link.get(self.objective, price.n_bytes) + price.seconds / 1e3


@dataclass(frozen=True)
class Exchanged:
    """Parts of a reduction or a scan on their way.

    Attributes:
        parts: stands for all of them as one value, in this cut.
        cut: of it.
        wanted: what devices read of it.
        goal: the cut they read that in.
    """

    parts: Node
    cut: Cut
    wanted: Node
    goal: Cut


def exchanged(node: Node, option: Option, mesh: str, name: str = "parts") -> list[Exchanged]:
    """The exchanges of an option whose reduced, scanned or indexed letter is cut."""
    parts = option.parts
    assert parts is not None
    n = shard.ways(parts.axes, mesh)
    one, found = Part(parts.axes, 1, 1), list[Exchanged]()
    if parts.monoid:
        for number, (value, dims) in enumerate(stands_for(node)):
            of = input_node(f"{name} {number}", lead(value.type, n))
            cut = (one, *(parts.cut[d] for d in dims))
            goal = Part((), n, n), *(option.home[d] for d in dims)
            found.append(Exchanged(of, cut, of, goal))
        return found
    at, shape = parts.letter, node.shape
    rows = tuple((0, 1, n - 1) if d == at else None for d in range(len(shape)))
    wide = tuple((n - 1, 0) if d == at else (0, 0) for d in range(len(shape)))

    def along(part: Part) -> Cut:
        return *parts.cut[:at], part, *parts.cut[at + 1 :]

    for number, unit in enumerate(scanned_units(node)):
        type_ = ValueType(node.dtype, (*shape[:at], n, *shape[at + 1 :]))
        value = input_node(f"{name} {number}", type_)
        others = sel_node(join_text("slice", rows), [value])  # nobody waits for the last one's
        before = sel_node(join_text("pad", wide, unit), [others])
        found.append(Exchanged(value, along(one), before, along(Part(parts.axes, 1, n - 1))))
    return found


@dataclass(frozen=True)
class Edge:
    """A value that is read.

    Attributes:
        tree: it, over values that are somewhere.
        leaf: which of these.
        goals: the buffers it is wanted in, aligned with the options of who reads.
        user: number of who reads; -1 for an output.
    """

    tree: Tree
    leaf: int
    goals: list[Form]
    user: int


class Cuts:
    """The cheapest cuts of one form of a program.

    Attributes:
        roots: the outputs' nodes.
        values: the form that they are of.
        computed: nodes that are somewhere and no inputs, operands before users.
        option: of each of these, the one chosen.
        place: of values that are read several times, the buffer that all of them read.
        cost: in the problem's terms.
        exact: no other cuts are cheaper.
        tried: forms of the program whose cuts were chosen.
        tag: value -> number of the block that it is of, see `axe_eq.extract.mesh.blocks`.
        pieces: block of a value, or slice that stands for one -> the value, and which block.
        joins: value -> the blocks that it is joined of.
        late: values that whoever reads them computes itself.
    """

    def __init__(self, problem: Problem, roots: Sequence[Node], values: Values) -> None:
        self.problem, self.roots, self.values, self.tried = problem, tuple(roots), values, 1
        self.tag: Mapping[Node, int] = {}
        self.pieces: Mapping[Node, tuple[Node, Piece]] = {}
        self.joins: Mapping[Node, tuple[Node, ...]] = {}
        self.late: frozenset[Node] = frozenset()
        self._trees: dict[tuple[Node, bool], Tree] = {}
        self._fixed: list[float] = []  # costs that nothing changes
        wanted = zip(self.roots, problem.wanted, strict=True)
        self._free = {r for r, w in wanted if w is None}  # outputs in any cut that is a layout
        self._kept = self._keep()
        self.computed = [n for n in topological(self.roots) if self.is_kept(n) and n.kind != INPUT]
        self._number = {n: i for i, n in enumerate(self.computed)}
        self._options = {n: self._options_of(n) for n in self.computed}
        self._edges = [*self._edges_of_operators(), *self._edges_of_outputs()]
        self._places = self._places_of()
        self._alone_costs, self._pairs = self._factors()
        self._take(*solve(self._alone_costs, self._pairs))

    def _take(self, chosen: list[int], exact: bool) -> None:
        self._chosen, self.exact = chosen, exact
        cost = total(self._alone_costs, self._pairs, chosen)
        self.cost = float(cost + sum(self._fixed))
        self.option = {n: self._options[n][chosen[i]] for n, i in self._number.items()}
        self.place = {n: forms[chosen[i]] for n, (i, forms) in self._places.items()}

    @property
    def notes(self) -> dict[str, object]:
        """Figures of the choice."""
        return {
            "operators": len(self.computed), "forms": self.tried, "cost": self.cost,
            "exact": self.exact,
        }  # fmt: skip

    @property
    def key(self) -> tuple[object, ...]:
        """What cuts that are the same ones have in common."""
        places = ((n, at) for n, at in self.place.items())
        return self.roots, tuple(self.option.items()), tuple(places), self.late

    def again(self, per_byte: float = 0.0) -> Cuts:
        """The cheapest cuts of this form by what was learned since."""
        return Cuts(replace(self.problem, per_byte=per_byte), self.roots, self.values)

    def others(self) -> list[tuple[Node, Cuts]]:
        """Cuts with one operator cut otherwise, and all others as is cheapest then: cheapest first.

        Of every operator those few options are tried that cost least while all others are held.
        """
        found = []
        most = max(1, MOST_SOLVED // max(1, len(self.computed)))
        for _, number, choice in self._nearest()[:most]:
            alone = list(self._alone_costs)
            alone[number] = alone[number][choice : choice + 1]
            pairs = {k: _only(t, k, number, choice) for k, t in self._pairs.items()}
            chosen, exact = solve(alone, pairs)
            chosen[number] = choice
            other = copy(self)
            other._take(chosen, exact)
            found.append((self.computed[number], other))
        return sorted(found, key=lambda pair: pair[1].cost)

    def _nearest(self) -> list[tuple[float, int, int]]:
        """What other options of operators cost more while all others are held, least first.

        Of operators that cost next to nothing there are none.
        """
        own = list(self._alone_costs)
        for (a, b), table in self._pairs.items():
            own[a] = own[a] + table[:, self._chosen[b]]
            own[b] = own[b] + table[self._chosen[a]]
        found = []
        for number in range(len(self.computed)):
            at, costs = self._chosen[number], own[number]
            if costs[at] < LEAST_SHARE * self.cost:
                continue
            near = [n for n in np.argsort(costs, kind="stable").tolist() if n != at][:MOST_NEAR]
            found += [(float(costs[n] - costs[at]), number, n) for n in near]
        return sorted(found)

    def crossing(self, kernels: Sequence[Kernel]) -> list[tuple[Node, int]]:
        """Values of cells that one local program stores for another, and bytes, largest first."""
        level = {n: kernel.level for kernel in kernels for n in kernel.computes}
        read = {
            a for n in level for a in n.args
            if level.get(a, level[n]) != level[n] and self._is_cell(a) and a not in self.roots
        }  # fmt: skip
        found = [(n, local_type(n.type, self.option[n].home).n_bytes) for n in read]
        return sorted(found, key=lambda one: (-one[1], self._number[one[0]]))

    def late_too(self, node: Node) -> Cuts:
        """The same cuts, a value and the cells that it is made of computed where it is read."""
        other, late, left = copy(self), {*self.late}, [node]
        while left:
            late.add(at := left.pop())
            left += [a for a in at.args if a not in late and self._is_cell(a)]
        other.late = frozenset(late)
        return other

    def _is_cell(self, node: Node) -> bool:
        """Whether a device computes a value element by element."""
        if node.kind != OP or node not in self.option or self.option[node].parts is not None:
            return False
        here = self.place.get(node, self.home(node)) == self.home(node)
        return here and not signature(node.text).n_reduced

    def learn(self, kernels: Sequence[Kernel]) -> None:
        """Keep what the kernels cost that these cuts were compiled to."""
        reads = {n: [t.leaves for t in self.reads(n)] for n in self.computed}
        self.problem.fused.learn(self.option, reads, kernels)

    # -- what is somewhere -------------------------------------------------------------------------

    def _keep(self) -> frozenset[Node]:
        """Selectors' values that are not read through: where nothing says the cut, and too many."""
        found, pieces = set(), dict[Node, int]()
        for node in topological(self.roots):
            pieces[node] = max(1, sum(pieces[a] for a in node.args)) if is_through(node) else 1
            if is_through(node) and (node in self._free or pieces[node] > MOST_PIECES):
                found.add(node)
                pieces[node] = 1
        return frozenset(found)

    def is_kept(self, node: Node) -> bool:
        """Whether a value is somewhere, and not only read through."""
        return not is_through(node) or node in self._kept

    def tree(self, node: Node, expand: bool = False) -> Tree:
        """A value over those that are somewhere."""
        key = node, expand
        if key not in self._trees:
            self._trees[key] = tree_of(node, self.is_kept, expand)
        return self._trees[key]

    def reads(self, node: Node) -> list[Tree]:
        """What a computed value reads, aligned with the needs of its options."""
        if is_through(node):
            return [self.tree(node, expand=True)]
        return [self.tree(a) for a in node.args]

    # -- options -----------------------------------------------------------------------------------

    def _options_of(self, node: Node) -> list[Option]:
        machine = self.problem.machine
        found = machine.cuts(node.shape) if is_through(node) else machine.options(node)
        return machine.even(found, node.shape) if node in self._free else found

    def form(self, node: Node, cut: Cut) -> Form:
        """The buffer of a value in a cut."""
        return form(node.type, cut, self.problem.mesh)

    def home(self, node: Node) -> Form:
        """The buffer that an input arrives in, or that a computed value is made in."""
        if node.kind == INPUT:
            return self.problem.arrive[node.text]
        return self.form(node, self.option[node].home)

    def in_blocks(self, kept: Iterable[Node], computed: Sequence[Node]) -> None:
        """Be the cuts of a program in blocks, of which these values are somewhere."""
        self._kept, self._trees, self.computed = frozenset(kept), {}, list(computed)

    # -- edges -------------------------------------------------------------------------------------

    def _listed(self, key: tuple[object, ...], forms: Iterable[Form]) -> list[Form]:
        """One list for one key, so that prices are remembered by it."""
        known = self.problem.lists
        if key not in known:
            known[key] = list(forms)
        return known[key]

    def _homes(self, node: Node) -> list[Form]:
        """The buffers that a value may be in, aligned with its options."""
        if node.kind == INPUT:
            arrived = self.problem.arrive[node.text]
            return self._listed((arrived,), [arrived])
        options = self._options[node]
        homes = (self.form(node, o.home) for o in options)
        return self._listed(("homes", id(options), node.type), homes)

    def _edges_of_operators(self) -> Iterator[Edge]:
        for node in self.computed:
            options = self._options[node]
            for number, tree in enumerate(self.reads(node)):
                needs = (self.form(tree.order[-1], o.needs[number]) for o in options)
                goals = self._listed(("needs", id(options), number, tree.order[-1].type), needs)
                for leaf in range(len(tree.leaves)):
                    yield Edge(tree, leaf, goals, self._number[node])

    def _edges_of_outputs(self) -> Iterator[Edge]:
        for root, wanted in zip(self.roots, self.problem.wanted, strict=True):
            if wanted is not None:
                tree, goals = self.tree(root), self._listed((wanted,), [wanted])
                yield from (Edge(tree, leaf, goals, -1) for leaf in range(len(tree.leaves)))

    def _places_of(self) -> dict[Node, tuple[int, list[Form]]]:
        """Of values that are read several times a variable more: the one buffer that all read.

        So what several operators need of a value is sent once.
        """
        goals: dict[Node, list[list[Form]]] = {}
        times: Counter[Node] = Counter()
        for edge in self._edges:
            of = edge.tree.leaves[edge.leaf]
            times[of] += 1
            goals.setdefault(of, []).extend([edge.goals] if edge.tree.is_leaf else [])
        found: dict[Node, tuple[int, list[Form]]] = {}
        for of in (n for n, count in times.items() if count > 1):
            lists = {id(forms): forms for forms in (self._homes(of), *goals[of])}
            every = dict.fromkeys(f for held in lists.values() for f in held)
            free = of in self._free
            places = (f for f in every if self._is_place(of, f) and (not free or f.type == of.type))
            forms = self._listed(("places", free, of.type, *lists), places)
            if 1 < len(forms) <= MOST_PLACES:
                found[of] = len(self.computed) + len(found), forms
        return found

    def _is_place(self, value: Node, at: Form) -> bool:
        """Whether a buffer holds all of a value, each element on some device once or in copies."""
        if at.cut is None:
            return value.kind == INPUT and at == self.problem.arrive[value.text]
        reach = zip(at.cut, value.shape, strict=True)
        mesh = self.problem.mesh
        return all(not p.overlaps and p.length * shard.ways(p.axes, mesh) >= n for p, n in reach)

    # -- prices ------------------------------------------------------------------------------------

    def _factors(self) -> tuple[list[Costs], dict[tuple[int, int], Costs]]:
        alone = [self._alone(n) for n in self.computed]
        alone += [np.zeros(len(forms)) for _, forms in self._places.values()]
        pairs: dict[tuple[int, int], Costs] = {}

        def add(source: int, user: int, table: Costs) -> None:
            if source >= 0 and user >= 0:
                pairs[source, user] = pairs.get((source, user), 0) + table
            elif source >= 0:
                alone[source] = alone[source] + table[:, 0]
            elif user >= 0:
                alone[user] = alone[user] + table[0]
            else:  # an input that is an output, as far as selectors go
                self._fixed.append(float(table[0, 0]))

        for edge in self._edges:
            of = edge.tree.leaves[edge.leaf]
            source, held = self._places.get(of, (self._number.get(of, -1), self._homes(of)))
            add(source, edge.user, self._table(edge.tree, edge.leaf, held, edge.goals))
        for of, (place, forms) in self._places.items():
            table = self._table(Tree((of,), (of,)), 0, self._homes(of), forms)
            add(self._number.get(of, -1), place, table)
        return alone, pairs

    def _table(self, tree: Tree, leaf: int, held: list[Form], goals: list[Form]) -> Costs:
        """Prices of bringing a leaf from each buffer to each other."""
        known, problem = self.problem.tables, self.problem
        key = tree.key, leaf, id(held), id(goals)
        if key not in known:
            rows, row_of = _distinct(held)
            columns, column_of = _distinct(goals)
            price = problem.moves.price
            table = [[problem.weight(price(tree, leaf, a, b)) for b in columns] for a in rows]
            known[key] = np.array(table)[np.ix_(row_of, column_of)]
        return known[key]

    def _alone(self, node: Node) -> Costs:
        """What options of an operator cost by themselves: computing, and exchanges of parts."""
        problem, options = self.problem, self._options[node]
        if id(options) not in problem.tables:
            problem.tables[id(options)] = np.array([self._sent(node, o) for o in options])
            alone = [problem.weight(Price(0, o.seconds)) for o in options]
            problem.tables["alone", id(options)] = np.array(alone)
        if node in problem.fused.known:
            seconds = (problem.fused.seconds(node, o) for o in options)
            own = np.array([problem.weight(Price(0, s)) for s in seconds])
        else:
            own = problem.fused.typical * problem.tables["alone", id(options)]
        if problem.per_byte:
            own += [problem.per_byte * self._held(node, o) for o in options]
        return np.asarray(problem.tables[id(options)] + own)

    def _held(self, node: Node, option: Option) -> int:
        """Bytes of a device that an option holds: what it is computed from, and the value."""
        reads = zip(self.reads(node), option.needs, strict=True)
        given = sum(local_type(t.order[-1].type, need).n_bytes for t, need in reads)
        return given + local_type(node.type, option.home).n_bytes

    def _sent(self, node: Node, option: Option) -> float:
        """What the exchange of parts costs, if there is one."""
        if option.parts is None:
            return 0.0
        ways = exchanged(node, option, self.problem.mesh)
        return sum(self.problem.weight(self.exchange_price(way)) for way in ways)

    def exchange_price(self, way: Exchanged) -> Price:
        """The price of an exchange of parts."""
        tree = tree_of(way.wanted, lambda n: n is way.parts)
        held, goal = self.form(way.parts, way.cut), self.form(way.wanted, way.goal)
        return self.problem.moves.price(tree, 0, held, goal)


def _only(table: Costs, pair: tuple[int, int], variable: int, choice: int) -> Costs:
    """A table of a pair with one choice left of a variable."""
    if variable not in pair:
        return table
    return np.take(table, [choice], axis=pair.index(variable))


def _distinct(forms: Sequence[Form]) -> tuple[list[Form], list[int]]:
    """Forms, each once, and where every one of them is there."""
    known: dict[Form, int] = {}
    where = [known.setdefault(f, len(known)) for f in forms]
    return list(known), where


def choose(problem: Problem, values: Values, most_work: int = MOST_WORK) -> list[Cuts]:
    """The cheapest cuts of the forms that laws gave a program, the cheapest forms first.

    Args:
        problem: what is asked, with prices of what was compiled.
        values: the form that the search begins with.
        most_work: operators whose cuts are chosen on the way, in all.
    """
    best = Cuts(problem, values.roots(), values)
    found = {best.roots: best}
    work = len(best.computed)
    changes = chain(filter(None, [values.cheapest()]), values.changes())
    while (
        len(found) < MOST_TRIED and work < most_work and (other := next(changes, None)) is not None
    ):
        if (roots := other.roots()) in found:
            continue
        cuts = found[roots] = Cuts(problem, roots, other)
        work += len(cuts.computed)
        if cuts.cost < best.cost * (1 - ROUNDING):
            best, changes = cuts, chain(other.changes())
    for cuts in found.values():
        cuts.tried = len(found)
    return sorted(found.values(), key=lambda c: c.cost)
