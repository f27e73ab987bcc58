"""What is not demanded: alternatives through which a value would wait for itself.

Extraction never takes them (`order.admissible`). Nor may they be demanded: a circle through a
concatenation, x = slice(z) where z = x ++ f(x), asks for x at an offset further away every time
around, for ever. Without them demand follows values that become strictly simpler, so it ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from axe_eq.egraph.session import Session
from axe_eq.extract.read.forest import Reader, ValueRow, value_rows
from axe_eq.extract.read.order import admissible, ranks
from axe_eq.program.ops import selector
from axe_eq.program.terms import In, Sel, args
from axe_eq.rule.term import Term
from axe_eq.walk import reached


def leave_out_circles(session: Session) -> None:
    """Set aside the alternatives that lead back to where they come from.

    Selectors that keep the row-major order stay: they say which values share memory, and a circle
    of them alone asks for no other offset.
    """
    rows = list(value_rows(Reader(session)))
    nodes: dict[int, list[tuple[int, ...]]] = {}
    for row in rows:
        nodes.setdefault(row.value, []).append(row.operands)
    views = [row for row in rows if _keeps_order(row)]
    allowed = admissible(nodes, [(row.value, row.operands[0]) for row in views])
    idle = [r for r in rows if not allowed(r.value, r.operands) and not _keeps_order(r)]
    terms = _simplest(rows, ranks(nodes), (v for row in idle for v in row.operands))
    session.set_aside([_term(row, terms) for row in idle])


def _keeps_order(row: ValueRow) -> bool:
    return row.symbol is Sel and selector(row.texts[0])[0].inverse is not None


def _simplest(
    rows: Sequence[ValueRow], rank: Mapping[int, int], wanted: Iterable[int]
) -> dict[int, Term]:
    """A term of each wanted value class, of those nearest to the inputs."""
    best: dict[int, ValueRow] = {}
    for row in rows:
        if max((rank[v] + 1 for v in row.operands), default=0) == rank[row.value]:
            best.setdefault(row.value, row)
    terms: dict[int, Term] = {}
    for value in reached(wanted, lambda value: best[value].operands):
        terms[value] = _term(best[value], terms)
    return terms


def _term(row: ValueRow, known: Mapping[int, Term]) -> Term:
    given = () if row.symbol is In else (args(*(known[v] for v in row.operands)),)
    return Term(row.symbol, (*row.texts, *given))
