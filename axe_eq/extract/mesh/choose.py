"""Cuts of all operators of a program together, with the exchanges that they imply: exactly.

Every operator has options, every edge between two of them a price for each pair of options: what
devices lack of the cut that one needs, of the cut that the other leaves. Min-sum elimination finds
the cheapest choice. Which alternative of a value is computed (algebra) is chosen around it: from
the program's own form and from the cheapest tree, single values are changed as long as that pays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

import numpy as np

from axe_eq.extract.mesh.cuts import Cut, Form, Part, form
from axe_eq.extract.mesh.minsum import Costs, solve, total
from axe_eq.extract.mesh.moves import Moves, Price, Tree, is_through, tree_of
from axe_eq.extract.mesh.options import Machine, Option, lead, scanned_unit
from axe_eq.extract.mesh.values import Values
from axe_eq.program.node import INPUT, Node, input_node, sel_node, topological
from axe_eq.program.ops import join_text
from axe_eq.program.types import ValueType
from axe_eq.schedule import shard

MOST_PIECES = 64  # that one exchange reads
MOST_TRIED = 60  # alternatives of values, each with all cuts chosen anew
MOST_WORK = 4000  # operators whose cuts are chosen on the way, in all
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
        objective: "time" or "link_bytes".
        tables: prices of edges between operators, remembered.
    """

    machine: Machine
    moves: Moves
    arrive: Mapping[str, Form]
    wanted: Sequence[Form | None]
    objective: str = TIME
    tables: dict[object, Costs] = field(default_factory=dict, compare=False)

    @property
    def mesh(self) -> str:
        """Text of the mesh."""
        return self.machine.mesh

    def weight(self, price: Price) -> float:
        """What a price counts: time breaks ties of bytes."""
        return price.seconds if self.objective == TIME else price.n_bytes + price.seconds / 1e3


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


def exchanged(node: Node, option: Option, mesh: str, name: str = "parts") -> Exchanged:
    """The exchange of an option whose reduced, scanned or indexed letter is cut."""
    parts = option.parts
    assert parts is not None
    n = shard.ways(parts.axes, mesh)
    one = Part(parts.axes, 1, 1)
    if parts.monoid:
        value = input_node(name, lead(node.type, n))
        goal = Part((), n, n), *option.home
        return Exchanged(value, (one, *parts.cut), value, goal)
    at, shape = parts.letter, node.shape
    value = input_node(name, ValueType(node.dtype, (*shape[:at], n, *shape[at + 1 :])))
    rows = tuple((0, 1, n - 1) if d == at else None for d in range(len(shape)))
    others = sel_node(join_text("slice", rows), [value])  # nobody waits for the last one's
    wide = tuple((n - 1, 0) if d == at else (0, 0) for d in range(len(shape)))
    before = sel_node(join_text("pad", wide, scanned_unit(node)), [others])

    def along(part: Part) -> Cut:
        return *parts.cut[:at], part, *parts.cut[at + 1 :]

    return Exchanged(value, along(one), before, along(Part(parts.axes, 1, n - 1)))


class Cuts:
    """The cheapest cuts of one form of a program.

    Attributes:
        roots: the outputs' nodes.
        computed: nodes that are somewhere and no inputs, operands before users.
        option: of each of these, the one chosen.
        cost: in the problem's terms.
        exact: no other cuts are cheaper.
        tried: forms of the program whose cuts were chosen.
    """

    def __init__(self, problem: Problem, roots: Sequence[Node]) -> None:
        self.problem, self.roots, self.tried = problem, tuple(roots), 1
        self._trees: dict[tuple[Node, bool], Tree] = {}
        self._kept = self._keep()
        self.computed = [n for n in topological(self.roots) if self.is_kept(n) and n.kind != INPUT]
        self._number = {n: i for i, n in enumerate(self.computed)}
        self._options = {n: self._options_of(n) for n in self.computed}
        alone, pairs = self._factors()
        chosen, self.exact = solve(alone, pairs)
        self.cost = total(alone, pairs, chosen)
        self.option = {n: self._options[n][chosen[i]] for n, i in self._number.items()}

    @property
    def notes(self) -> dict[str, object]:
        """Figures of the choice."""
        return {"operators": len(self.computed), "forms": self.tried, "exact": self.exact}

    # -- what is somewhere -------------------------------------------------------------------------

    def _keep(self) -> frozenset[Node]:
        """Selectors' values that are not read through: where nothing says the cut, and too many."""
        free = {r for r, w in zip(self.roots, self.problem.wanted, strict=True) if w is None}
        found, pieces = set(), dict[Node, int]()
        for node in topological(self.roots):
            pieces[node] = max(1, sum(pieces[a] for a in node.args)) if is_through(node) else 1
            if is_through(node) and (node in free or pieces[node] > MOST_PIECES):
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
        wanted = zip(self.roots, self.problem.wanted, strict=True)
        if any(r is node and w is None for r, w in wanted):
            found = machine.even(found, node.shape)
        return found

    def form(self, node: Node, cut: Cut) -> Form:
        """The buffer of a value in a cut."""
        return form(node.type, cut, self.problem.mesh)

    def home(self, node: Node) -> Form:
        """The buffer that a value is in."""
        if node.kind == INPUT:
            return self.problem.arrive[node.text]
        return self.form(node, self.option[node].home)

    # -- prices ------------------------------------------------------------------------------------

    def _factors(self) -> tuple[list[Costs], dict[tuple[int, int], Costs]]:
        alone = [self._alone(n) for n in self.computed]
        pairs: dict[tuple[int, int], Costs] = {}
        for node in self.computed:
            user = self._number[node]
            for number, tree in enumerate(self.reads(node)):
                for leaf, of in enumerate(tree.leaves):
                    table = self._edge(node, number, tree, leaf)
                    if of.kind == INPUT:
                        alone[user] = alone[user] + table[0]
                    else:
                        key = self._number[of], user
                        pairs[key] = pairs.get(key, 0) + table
        for root, wanted in zip(self.roots, self.problem.wanted, strict=True):
            tree = self.tree(root)
            for leaf, of in enumerate(tree.leaves):
                if wanted is not None and of.kind != INPUT:
                    table = self._table(tree, leaf, [wanted])
                    alone[self._number[of]] = alone[self._number[of]] + table[:, 0]
        return alone, pairs

    def _edge(self, node: Node, number: int, tree: Tree, leaf: int) -> Costs:
        """Prices of what options of an operator need of a leaf, for each of its own options."""
        known, of = self.problem.tables, tree.leaves[leaf]
        held = self.problem.arrive[of.text] if of.kind == INPUT else id(self._options[of])
        key = tree.key, leaf, number, id(self._options[node]), held
        if key not in known:
            goals = [self.form(tree.order[-1], o.needs[number]) for o in self._options[node]]
            known[key] = self._table(tree, leaf, goals)
        return known[key]

    def _table(self, tree: Tree, leaf: int, goals: Sequence[Form]) -> Costs:
        """Prices of bringing a leaf from each of its options to each goal."""
        of, problem = tree.leaves[leaf], self.problem
        held = (
            [problem.arrive[of.text]]
            if of.kind == INPUT
            else [self.form(of, o.home) for o in self._options[of]]
        )
        rows, row_of = _distinct(held)
        columns, column_of = _distinct(goals)
        table = np.array([
            [problem.weight(problem.moves.price(tree, leaf, a, b)) for b in columns] for a in rows
        ])  # fmt: skip
        return table[np.ix_(row_of, column_of)]

    def _alone(self, node: Node) -> Costs:
        """What every option of an operator costs by itself."""
        known, options = self.problem.tables, self._options[node]
        if id(options) not in known:
            known[id(options)] = np.array([self._own(node, o) for o in options])
        return known[id(options)]

    def _own(self, node: Node, option: Option) -> float:
        """What an option costs by itself: computing, and the exchange of parts."""
        price = Price(0, option.seconds)
        if option.parts is not None:
            way = exchanged(node, option, self.problem.mesh)
            tree = tree_of(way.wanted, lambda n: n is way.parts)
            held, goal = self.form(way.parts, way.cut), self.form(way.wanted, way.goal)
            price += self.problem.moves.price(tree, 0, held, goal)
        return self.problem.weight(price)


def _distinct(forms: Sequence[Form]) -> tuple[list[Form], list[int]]:
    """Forms, each once, and where every one of them is there."""
    known: dict[Form, int] = {}
    where = [known.setdefault(f, len(known)) for f in forms]
    return list(known), where


def choose(problem: Problem, values: Values) -> Cuts:
    """The cheapest cuts found over the forms that laws gave a program."""
    best = Cuts(problem, values.roots())
    tried, work = 1, len(best.computed)
    changes = chain(filter(None, [values.cheapest()]), values.changes())
    while tried < MOST_TRIED and work < MOST_WORK and (other := next(changes, None)) is not None:
        if other.roots() == best.roots:
            continue
        found = Cuts(problem, other.roots())
        tried, work = tried + 1, work + len(found.computed)
        if found.cost < best.cost * (1 - ROUNDING):
            best, changes = found, chain(other.changes())
    best.tried = tried
    return best


__all__ = ["BYTES", "TIME", "Cuts", "Exchanged", "Problem", "choose", "exchanged"]
