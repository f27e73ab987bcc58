"""The values of a saturated e-graph as programs: which alternative of every class is computed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from axe_eq.egraph.session import Session
from axe_eq.errors import ProgramError
from axe_eq.extract.read.forest import Reader, ValueRow, value_rows
from axe_eq.program.node import INPUT, OP, Node, Program, made_node, op_type, scan_type, sel_type
from axe_eq.program.signature import signature
from axe_eq.program.terms import Op, Scan, Sel
from axe_eq.program.types import ValueType
from axe_eq.rule.term import Term
from axe_eq.walk import in_order

KINDS = {Op.name: "op", Sel.name: "sel", Scan.name: "scan"}


@dataclass(frozen=True)
class Values:
    """One form of a program: an alternative per value class.

    Attributes:
        rows: value class -> its alternatives.
        inputs: value class -> input node.
        wanted: value classes of the outputs.
        picks: value class -> number of the alternative that is computed.
        shapes: of value classes.
    """

    rows: Mapping[int, Sequence[ValueRow]]
    inputs: Mapping[int, Node]
    wanted: tuple[int, ...]
    picks: Mapping[int, int]
    shapes: Mapping[int, tuple[int, ...]]

    def roots(self) -> tuple[Node, ...]:
        """The outputs of this form."""
        return tuple(self._nodes[c] for c in self.wanted)

    @cached_property
    def _order(self) -> list[int] | None:
        """Classes that are computed, operands first; None where one waits for itself."""
        order = list[int]()
        for c in in_order(self.wanted, self._operands):
            if c is None:
                return None
            order.append(c)
        return order

    def _operands(self, of: int) -> tuple[int, ...]:
        return () if of in self.inputs else self.rows[of][self.picks[of]].operands

    @cached_property
    def _nodes(self) -> dict[int, Node]:
        found: dict[int, Node] = {}
        for at in self._order or ():
            if at in self.inputs:
                found[at] = self.inputs[at]
                continue
            found[at] = _made(self.rows[at][self.picks[at]], found)
        return found

    def changes(self) -> Iterator[Values]:
        """The forms that are one alternative away, of values that this one computes."""
        for at in self._order or ():
            for number in range(len(self.rows.get(at, ()))):
                if at not in self.inputs and number != self.picks[at]:
                    other = replace(self, picks={**self.picks, at: number})
                    if other._order is not None:
                        yield other

    def cheapest(self) -> Values | None:
        """The form whose tree takes the fewest operations and elements; None where it is this."""
        cost = {c: 0.0 for c in self.inputs}
        picks = dict(self.picks)
        better = True
        while better:
            better = False
            for at, rows in self.rows.items():
                for number, row in enumerate(rows):
                    if at in self.inputs or not all(o in cost for o in row.operands):
                        continue
                    now = self._work(at, row) + sum(cost[o] for o in row.operands)
                    if now < cost.get(at, float("inf")) * (1 - 1e-12):
                        cost[at], picks[at], better = now, number, True
        other = replace(self, picks=picks)
        return None if other._order is None or other.roots() == self.roots() else other

    def _work(self, at: int, row: ValueRow) -> float:
        """Operations of one alternative, one at least for each element that it makes."""
        size = float(prod(self.shapes[at]))
        if row.symbol.name != Op.name:
            return size
        sig = signature(row.texts[0])
        return size + prod(sig.extents([self.shapes[o] for o in row.operands]))


def _made(row: ValueRow, known: Mapping[int, Node]) -> Node:
    texts = (*row.texts, "")
    return made_node(KINDS[row.symbol.name], texts[0], texts[1], [known[o] for o in row.operands])


def _drop_untyped(
    rows: dict[int, list[ValueRow]], inputs: Mapping[int, Node]
) -> dict[int, ValueType]:
    """Leave out alternatives that inputs do not reach, or that fit no type; types of the others.

    Rows that no request asked for may be what a law only proposed.
    """
    known = {c: node.type for c, node in inputs.items()}
    waiting = [(c, row) for c, ways in rows.items() for row in ways]
    for ways in rows.values():
        ways.clear()
    ready = waiting
    while ready:
        ready = [(c, row) for c, row in waiting if all(o in known for o in row.operands)]
        waiting = [(c, row) for c, row in waiting if not all(o in known for o in row.operands)]
        for c, row in ready:
            type_ = _type(row, tuple(known[o] for o in row.operands))
            if type_ is not None and known.setdefault(c, type_) == type_:
                rows[c].append(row)
    return known


def _type(row: ValueRow, given: tuple[ValueType, ...]) -> ValueType | None:
    try:
        if row.symbol.name == Op.name:
            return op_type(row.texts[0], row.texts[1], given)
        return (sel_type if row.symbol.name == Sel.name else scan_type)(row.texts[0], given)
    except ProgramError:
        return None


def read_values(session: Session, program: Program, terms: Mapping[Node, Term]) -> Values:
    """Read a session whose laws have run, with the program's own form picked.

    Args:
        session: an e-graph that has the terms.
        program: what they are of.
        terms: of its nodes.
    """
    reader = Reader(session)
    rows: dict[int, list[ValueRow]] = {}
    for row in value_rows(reader):
        if row.symbol.name in KINDS:
            rows.setdefault(row.value, []).append(row)
    of = {node: reader.id("Value", session.class_of(terms[node])) for node in program.nodes()}
    inputs = {of[n]: n for n in of if n.kind == INPUT}
    types = _drop_untyped(rows, inputs)
    picks: dict[int, int] = {}
    for node, at in of.items():
        if node.kind == INPUT or at in picks:
            continue
        texts = (node.text, node.cell) if node.kind == OP else (node.text,)
        operands = tuple(of[a] for a in node.args)
        mine = [
            n for n, row in enumerate(rows.get(at, ()))
            if KINDS[row.symbol.name] == node.kind and row.texts[: len(texts)] == texts
            and row.operands == operands
        ]  # fmt: skip
        if mine:
            picks[at] = mine[0]
    for at, ways in rows.items():
        if ways:
            picks.setdefault(at, 0)
    shapes = {c: type_.shape for c, type_ in types.items()}
    return Values(rows, inputs, tuple(of[r] for r in program.outputs), picks, shapes)
