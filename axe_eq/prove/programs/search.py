"""Proof search: both programs in one e-graph, laws in turns until the roots meet.

A turn is one round of normal forms, a few rounds of exact laws, and one round each of laws that
grow terms and of laws over the reals. Sessions are kept and rewound, since compiling the laws of
all packs takes far longer than most proofs.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from axe_eq.egraph.normal import Normalizer
from axe_eq.egraph.phases import EXACT, GROW, REAL, phase_of
from axe_eq.egraph.session import Limits, Session
from axe_eq.pack import Pack
from axe_eq.program.terms import ARGS, OPERATORS, VALUE, Cons, In, Nil, type_of, types_of
from axe_eq.prove.certificates.certificate import Statement
from axe_eq.rule.law import Law

PHASES = (EXACT, GROW, REAL)
_KEPT = 4  # sessions


@dataclass(frozen=True)
class Budget:
    """Limits of a proof search.

    Attributes:
        rows: rows of all tables of the e-graph.
        seconds: wall time of the search; the certificate takes at most as long again.
        rounds: turns of all phases.
        exact_rounds: rounds of exact laws in one turn.
    """

    rows: int = 150_000
    seconds: float = 20.0
    rounds: int = 16
    exact_rounds: int = 2


@dataclass
class Search:
    """One proof search.

    Attributes:
        statement: what is to be proved.
        session: the e-graph, both sides inserted.
        normalizer: drives the normal forms; keeps their instances.
        budget: limits.
        stopped: "proved", "saturated", "rounds", "rows" or "time".
        turns: turns begun.
    """

    statement: Statement
    session: Session
    normalizer: Normalizer
    budget: Budget
    stopped: str = "rounds"
    turns: int = 0

    def proved(self) -> bool:
        """Whether all pairs of roots are equal now."""
        pairs = zip(self.statement.left, self.statement.right, strict=True)
        return all(self.session.equal(left, right) for left, right in pairs)

    def run(self) -> bool:
        """Search; whether all roots met."""
        self.stopped = "proved" if self.proved() else self._turns()
        return self.stopped == "proved"

    def _turns(self) -> str:
        for _ in range(self.budget.rounds):
            self.turns += 1
            before = self.session.rows()
            for stopped in self._turn():
                if self.proved():
                    return "proved"
                if stopped in ("rows", "time"):
                    return stopped
            if self.session.rows() == before:
                return "saturated"
        return "rounds"

    def _turn(self) -> Iterator[str]:
        """One round of every phase; yields why each stopped."""
        self.normalizer.round()
        self.session.close()
        yield self._over()
        for _ in range(self.budget.exact_rounds):
            stopped = self.session.run(EXACT, rounds=1).stopped
            yield stopped
            if stopped == "saturated":
                break
        for phase in (GROW, REAL):
            yield self.session.run(phase, rounds=1).stopped

    def _over(self) -> str:
        if self.session.rows() > self.budget.rows:
            return "rows"
        return "time" if self.session.elapsed() > self.budget.seconds else ""


@contextmanager
def begin(statement: Statement, laws: Mapping[str, Law], budget: Budget) -> Iterator[Search]:
    """A search for a proof of a statement by these laws; the session is given back at the end."""
    rewrites = {key: law for key, law in laws.items() if not law.normal}
    normal = {key: law for key, law in laws.items() if law.normal}
    with _session(rewrites) as session:
        session.limits = Limits(rows=budget.rows, seconds=budget.seconds)
        for term in (*statement.left, *statement.right):
            session.insert(term)
        session.union_all(statement.given)
        session.close()
        yield Search(statement, session, Normalizer(session, normal), budget)


_SESSIONS: dict[tuple[tuple[str, int], ...], Session] = {}


@contextmanager
def _session(laws: Mapping[str, Law]) -> Iterator[Session]:
    """A fresh or rewound session; not kept if what happens in it raises.

    An e-graph must not leave its thread, not even to be dropped, so only the main thread keeps any.
    """
    keeps = threading.current_thread() is threading.main_thread()
    key = tuple((name, id(law)) for name, law in laws.items())
    session = _SESSIONS.pop(key, None) if keeps else None
    if session is None:
        session = Session(_by_phase(laws), SYMBOLS, [type_of, types_of], record=True)
        session.mark()
    else:
        session.rewind()
    yield session
    if keeps:
        _SESSIONS[key] = session
        while len(_SESSIONS) > _KEPT:
            del _SESSIONS[next(iter(_SESSIONS))]


SYMBOLS = (In, *OPERATORS, Nil, Cons)


def _by_phase(laws: Mapping[str, Law]) -> dict[str, dict[str, Law]]:
    groups: dict[str, dict[str, Law]] = {phase: {} for phase in PHASES}
    for key, law in laws.items():
        groups[phase_of(law)][key] = law
    return groups


def program_laws(packs: Iterable[Pack]) -> dict[str, Law]:
    """Laws about values of programs, by key; demand laws answer requests and prove nothing."""
    return {
        f"{pack.name}/{name}": law
        for pack in packs
        for name, law in pack.laws.items()
        if not law.demand and law.sort in (VALUE, ARGS)
    }
