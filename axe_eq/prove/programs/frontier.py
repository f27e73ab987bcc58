"""The frontier of a failed proof: the smallest pairs of values that would have to be equal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any

from axe_eq.deadline import check_deadline
from axe_eq.egraph.normal import Class, Row, read_rows, representatives
from axe_eq.egraph.session import Session
from axe_eq.layout.symbolic import terms as layout_terms
from axe_eq.layout.symbolic.show import show as show_layout
from axe_eq.program.ops import split_text
from axe_eq.program.terms import ARGS, OPERATORS, In, Op, Scan, Sel, operands
from axe_eq.prove.certificates.certificate import Statement
from axe_eq.rule.term import Symbol, Term, postorder

MAX_PAIRS = 5
_LONGEST = 160
_WORDS = {Op: "cell", Sel: "selector", Scan: "scan"}


@dataclass(frozen=True)
class StuckPair:
    """Two values that no law joined although their users differ in nothing else.

    Attributes:
        left, right: the values, each as small as its class allows.
        family: the kind of law that would have to relate them.
    """

    left: Term
    right: Term
    family: str

    def __str__(self) -> str:
        return f"{show(self.left)}  =?  {show(self.right)}   ({self.family})"


@dataclass(frozen=True)
class Frontier:
    """Why two programs were not proved equal.

    Attributes:
        pairs: what is stuck, smallest first.
        stopped: "saturated" (no law says more), "rounds", "rows", "time", or "recording".
        rows, seconds, turns: what the search spent.
        rounded: constants in one side alone of a stuck pair that their element type holds as other
            numbers, a sentence each.
    """

    pairs: tuple[StuckPair, ...]
    stopped: str
    rows: int
    seconds: float
    turns: int
    rounded: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return False

    def __str__(self) -> str:
        lines = [f"not proved ({self.stopped}); stuck at:", *(f"  {pair}" for pair in self.pairs)]
        lines += [f"  {line}" for line in self.rounded]
        return "\n".join(lines)


def find_frontier(session: Session, statement: Statement, stopped: str, turns: int) -> Frontier:
    """Walk down both sides of every unequal pair of roots, through classes, while they match."""
    rows = read_rows(session)
    walk = _Walk(rows, representatives(rows))
    roots = [
        (("Value", session.class_of(left)), ("Value", session.class_of(right)))
        for left, right in zip(statement.left, statement.right, strict=True)
        if not session.equal(left, right)
    ]
    stuck = sorted(walk.stuck(roots), key=_size)[:MAX_PAIRS]
    return Frontier(tuple(stuck), stopped, session.rows(), round(session.elapsed(), 3), turns)


class _Walk:
    """The classes of an e-graph as operators over operands."""

    def __init__(self, rows: Iterable[Row], known: Mapping[Class, Term]) -> None:
        self._known = known
        self._heads: dict[Class, dict[tuple[Any, ...], list[tuple[Class, ...]]]]
        self._heads = defaultdict(lambda: defaultdict(list))
        lists: dict[Class, tuple[Class, ...]] = {}
        operators = []
        for symbol, args, where in rows:
            if symbol.result == ARGS:
                lists.setdefault(where, args)
            else:
                operators.append((symbol, args, where))
        for symbol, args, where in operators:
            if symbol is not In:
                self._heads[where][_head(symbol, args)].append(_elements(args[-1], lists))

    def stuck(self, roots: Sequence[tuple[Class, Class]]) -> Iterator[StuckPair]:
        """Pairs below these roots at which nothing matches."""
        seen: set[tuple[Class, Class]] = set()
        todo = list(roots)
        while todo:
            check_deadline()
            pair = todo.pop()
            if pair in seen:
                continue
            seen.add(pair)
            below = self._below(*pair, seen)
            if below:
                todo += below
            elif all(side in self._known for side in pair):
                left, right = (self._known[side] for side in pair)
                yield StuckPair(left, right, family(left, right))

    def _below(
        self, left: Class, right: Class, seen: set[tuple[Class, Class]]
    ) -> list[tuple[Class, Class]]:
        """Operands that differ, of the two nodes that differ least.

        Nothing where no nodes match, or where they match in no operand: then the pair itself, not
        its operands, is what would have to be equal.
        """
        best: list[tuple[Class, Class]] = []
        for mine, other in self._matches(left, right):
            apart = [p for p in zip(mine, other, strict=True) if p[0] != p[1]]
            local = len(apart) < len(mine) or len(mine) == 1
            if local and not any(p in seen for p in apart) and (not best or len(apart) < len(best)):
                best = apart
        return best

    def _matches(
        self, left: Class, right: Class
    ) -> Iterator[tuple[tuple[Class, ...], tuple[Class, ...]]]:
        for head, ours in self._heads[left].items():
            for mine in ours:
                for other in self._heads[right].get(head, ()):
                    if len(mine) == len(other):
                        yield mine, other


def _elements(where: Class, lists: Mapping[Class, tuple[Class, ...]]) -> tuple[Class, ...]:
    """Classes of the operands in an operand list."""
    found: list[Class] = []
    while where in lists and lists[where] and len(found) < _LONGEST:
        head, where = lists[where]
        found.append(head)
    return tuple(found)


def _head(symbol: Symbol, args: Sequence[Any]) -> tuple[Any, ...]:
    return (symbol.name, *(a for a, s in zip(args, symbol.args, strict=True) if s.primitive))


def _size(pair: StuckPair) -> tuple[int, bytes, bytes]:
    both = {*postorder(pair.left), *postorder(pair.right)}
    return len(both), pair.left.digest, pair.right.digest


def family(left: Term, right: Term) -> str:
    """What kind of law is missing between two values."""
    a, b = _operator(left), _operator(right)
    if left.symbol is In and right.symbol is In:
        return "two different inputs"
    if a != b:
        return f"no law relates {a} to {b} here"
    return f"no law rearranges {a} here"


def _operator(term: Term) -> str:
    if term.symbol is In:
        return "an input"
    name = split_text(term.args[1] if term.symbol is Op else term.args[0])[0]
    return f"{_WORDS[term.symbol]} '{name}'"


def show(term: Term) -> str:
    """A term as one line, shortened."""
    if term.sort in layout_terms.SORTS:
        return show_layout(term)
    texts: dict[Term, str] = {}
    for sub in postorder(term):
        if sub.symbol is In:
            texts[sub] = sub.args[0]
        elif sub.sort == ARGS:
            texts[sub] = f"({', '.join(texts[a] for a in operands(sub))})"
        else:
            parts = operands(sub) if sub.symbol in OPERATORS else sub.args
            given = ", ".join(texts[a] if isinstance(a, Term) else repr(a) for a in parts)
            text = f"{_word(sub)}({given})"
            texts[sub] = text if len(text) <= _LONGEST else f"{_word(sub)}(...)"
    return texts[term]


def _word(term: Term) -> str:
    if term.symbol is Op:
        return f"{term.args[1]}[{term.args[0]}]"
    if term.symbol is Scan:
        return f"scan {term.args[0]}"
    return shorten(term.args[0], _LONGEST) if term.symbol is Sel else term.symbol.name
