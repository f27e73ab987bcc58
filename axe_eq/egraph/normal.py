"""Normal-form laws: Python picks the terms, the law computes their normal form.

Associativity and commutativity explode as rewrites. A law marked `normal` maps any one term to its
normal form instead; this driver reads the frozen graph, builds every operator node once over a
representative of each operand class, asks the laws for normal forms, and makes the two sides equal.
Each answer is kept as a law instance, so certificates carry it like any firing.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from axe_eq.deadline import check_deadline
from axe_eq.egraph.session import Session
from axe_eq.program.ops import CELLS, split_text
from axe_eq.program.terms import ARGS, VALUE, In, Op, type_of
from axe_eq.rule.law import Law
from axe_eq.rule.term import Ground, Symbol, Term

Class = tuple[str, Any]  # sort name, raw value
Row = tuple[Symbol, tuple[Any, ...], Class]  # symbol, primitives and classes, class

_PLAIN, _OTHER = 1000, 3000
_INPUT = _OTHER + 2  # more than a constant: an input that equals one is an array that is known


class Normalizer:
    """Applies normal-form laws to a session, round by round.

    Args:
        session: the e-graph.
        laws: law key -> law; each takes one value.

    Attributes:
        instances: (law key, values) of every normal form found so far, for certificates.
    """

    def __init__(self, session: Session, laws: Mapping[str, Law]) -> None:
        self.session, self.laws = session, dict(laws)
        self.instances: list[tuple[str, tuple[Ground, ...]]] = []
        self._tried: set[Term] = set()

    def round(self) -> int:
        """Normalise every operator node not tried before; returns the number of new equalities."""
        rows = read_rows(self.session)
        known = representatives(rows)
        pairs: list[tuple[Term, Term]] = []
        for symbol, args, _ in rows:
            term = build(symbol, args, known) if symbol.result == VALUE else None
            if term is None or term.symbol is In or term in self._tried or not _typed(term):
                continue
            check_deadline()
            self._tried.add(term)
            pairs += self._normal_forms(term)
        self.session.union_all(pairs)
        return len(pairs)

    def _normal_forms(self, term: Term) -> Iterable[tuple[Term, Term]]:
        found: dict[Term, str] = {}
        for key, law in self.laws.items():
            instance = law.instance((term,))
            if instance is not None:
                found.setdefault(instance.right, key)
        for right, key in found.items():
            self.instances.append((key, (term,)))
            self._tried.add(right)
            yield term, right


def read_rows(session: Session) -> list[Row]:
    """Every row of every constructor that is not a request, in a stable order."""
    frozen = session.freeze()
    rows: list[Row] = []
    for name, symbol in session.symbols.items():
        if symbol.demand or name not in frozen:
            continue
        for row in frozen[name].rows:
            args = tuple(
                session.read(v, s.name) if s.primitive else (s.name, v)
                for v, s in zip(row.inputs, symbol.args, strict=True)
            )
            rows.append((symbol, args, (symbol.result.name, row.output)))
    return rows


def build(symbol: Symbol, args: tuple[Any, ...], known: Mapping[Class, Term]) -> Term | None:
    """A row's term over representatives of its arguments; None where one has none."""
    given = []
    for arg, sort in zip(args, symbol.args, strict=True):
        value = arg if sort.primitive else known.get(arg)
        if value is None:
            return None
        given.append(value)
    return Term(symbol, tuple(given))


def representatives(rows: Iterable[Row]) -> dict[Class, Term]:
    """One term per class: the shallowest; a class without a finite term has none.

    Operators that normal forms see through count less, so that sums and products show where a class
    has them. Depths, not sizes, keep shared values from counting twice.
    """
    waiting: dict[Class, list[tuple[int, Row]]] = defaultdict(list)
    open_args: list[int] = []
    levels: dict[int, list[Row]] = defaultdict(list)
    for row in rows:
        missing = {a for a, s in zip(row[1], row[0].args, strict=True) if not s.primitive}
        for arg in missing:
            waiting[arg].append((len(open_args), row))
        open_args.append(len(missing))
        if not missing:
            levels[_weight(row)].append(row)
    known: dict[Class, Term] = {}
    while levels:
        level = min(levels)
        for where, term in _best(levels.pop(level), known):
            known[where] = term
            for number, row in waiting.pop(where, ()):
                open_args[number] -= 1
                if not open_args[number]:
                    levels[level + _weight(row)].append(row)
    return known


def _best(rows: Iterable[Row], known: Mapping[Class, Term]) -> list[tuple[Class, Term]]:
    found: dict[Class, tuple[int, bytes, Term]] = {}
    for row in rows:
        symbol, args, where = row
        if where in known:
            continue
        check_deadline()
        term = build(symbol, args, known)
        if term is None or not _typed(term):
            continue
        # At equal depth what normal forms see through goes on top: they start there.
        found[where] = min(
            found.get(where, (_INPUT + 1, b"", term)), (_weight(row), term.digest, term)
        )
    return [(where, term) for where, (_, _, term) in found.items()]


def _weight(row: Row) -> int:
    symbol, args, _ = row
    if symbol.result == ARGS:
        return 1
    if symbol is In:
        return _INPUT
    if symbol is Op:
        name, _ = split_text(args[1])
        if name in CELLS and (CELLS[name].associative or not CELLS[name].rounds):
            return _PLAIN
    return _OTHER


def _typed(term: Term) -> bool:
    return term.sort != VALUE or type_of.of(term) is not None
