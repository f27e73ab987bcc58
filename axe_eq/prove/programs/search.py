"""Proof search: both programs in one e-graph, laws in turns until the roots meet.

A turn is one round of normal forms, a few rounds of exact laws, and one round each of laws that
grow terms and of laws over the reals. Sessions are kept and rewound, since compiling the laws of
all packs takes far longer than most proofs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from axe_eq.egraph.normal import Normalizer
from axe_eq.egraph.phases import EXACT, GROW, REAL, phase_of
from axe_eq.egraph.session import Limits, Session
from axe_eq.pack import Pack, laws_of
from axe_eq.program.terms import ARGS, OPERATORS, VALUE, Cons, In, Nil, type_of, types_of
from axe_eq.prove.certificates.certificate import Statement
from axe_eq.rule.law import Law
from axe_eq.rule.term import Analysis, Symbol

PHASES = (EXACT, GROW, REAL)


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


def begin(statement: Statement, laws: Mapping[str, Law], budget: Budget) -> Search:
    """A search for a proof of a statement by these laws."""
    rewrites = {key: law for key, law in laws.items() if not law.normal}
    normal = {key: law for key, law in laws.items() if law.normal}
    session = opened(statement, _by_phase(rewrites), SYMBOLS, [type_of, types_of], budget)
    return Search(statement, session, Normalizer(session, normal), budget)


def opened(
    statement: Statement,
    laws: Mapping[str, Mapping[str, Law]],
    symbols: Sequence[Symbol],
    analyses: Sequence[Analysis],
    budget: Budget,
) -> Session:
    """An e-graph with laws by phase, both sides of a statement, and what it takes for equal."""
    limits = Limits(rows=budget.rows, seconds=budget.seconds)
    session = Session(laws, symbols, analyses, record=True, limits=limits)
    session.insert_all([*statement.left, *statement.right])
    session.union_all(statement.given)
    session.close()
    return session


SYMBOLS = (In, *OPERATORS, Nil, Cons)


def _by_phase(laws: Mapping[str, Law]) -> dict[str, dict[str, Law]]:
    groups: dict[str, dict[str, Law]] = {phase: {} for phase in PHASES}
    for key, law in laws.items():
        groups[phase_of(law)][key] = law
    return groups


def program_laws(packs: Iterable[Pack]) -> dict[str, Law]:
    """Laws about values of programs, by key; demand laws answer requests and prove nothing."""
    return {
        key: law
        for key, law in laws_of(packs).items()
        if not law.demand and law.sort in (VALUE, ARGS)
    }
