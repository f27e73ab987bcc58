"""The strategy: in which order kinds of laws run, and for how many rounds."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from axe_eq.egraph.session import Limits, Report, Session
from axe_eq.rule.law import Law
from axe_eq.rule.term import Analysis, Symbol, Term

EXACT, GROW, REAL, DEMAND = "exact", "grow", "real", "demand"
EXACT_ROUNDS = 6
GROW_ROUNDS = 2
REAL_ROUNDS = 3


def phase_of(law: Law) -> str:
    """The phase of a law: exact ones first, growing ones bounded, demand last."""
    if law.demand:
        return DEMAND
    if not law.exact:
        return REAL
    return GROW if law.expands else EXACT


def by_phase(laws: Mapping[str, Law]) -> dict[str, dict[str, Law]]:
    """Laws that search for schedules, by phase; normal forms and laws for proofs stay out."""
    groups: dict[str, dict[str, Law]] = {EXACT: {}, GROW: {}, REAL: {}, DEMAND: {}}
    for key, law in laws.items():
        if law.search and not law.normal:
            groups[phase_of(law)][key] = law
    return groups


@dataclass
class Saturated:
    """A saturated session.

    Attributes:
        session: the e-graph.
        requests: the inserted requests, in order.
        reports: per phase.
    """

    session: Session
    requests: list[Term]
    reports: dict[str, Report] = field(default_factory=dict)

    @property
    def stopped(self) -> str:
        """Why it stopped: "saturated", or the first phase that hit a bound, with the bound."""
        for phase, report in self.reports.items():
            if report.stopped in ("rows", "time", "memory"):
                return f"{report.stopped} in phase {phase}"
        return "saturated"

    @property
    def matches(self) -> dict[str, int]:
        """Firings per law."""
        return {k: n for r in self.reports.values() for k, n in r.matches.items()}

    @property
    def rows(self) -> int:
        """Rows at the end."""
        return self.session.rows()


def saturate(
    laws: Mapping[str, Law],
    symbols: Sequence[Symbol],
    analyses: Sequence[Analysis],
    terms: Sequence[Term],
    facts: Sequence[tuple[Analysis, Sequence[tuple[Term, str]]]],
    requests: Sequence[Term],
    *,
    limits: Limits,
    progress: Callable[[str], None] = lambda _: None,
) -> Saturated:
    """Insert terms, close facts, run the phases, then answer requests.

    Args:
        laws: by key.
        symbols: constructors of the terms.
        analyses: facts to keep per class.
        terms: to insert, operands before users.
        facts: analysis facts that are known already.
        requests: demand terms, inserted before the last phase.
        limits: rows and seconds; a phase that reaches one stops and says so.
        progress: told where it is.
    """
    known = dict.fromkeys([*symbols, *(request.symbol for request in requests)])
    session = Session(by_phase(laws), list(known), analyses, limits=limits)
    for term in terms:
        session.insert(term)
    for analysis, given in facts:
        session.set_facts(analysis, given)
    result = Saturated(session, list(requests))
    for phase, rounds in ((EXACT, EXACT_ROUNDS), (GROW, GROW_ROUNDS), (REAL, REAL_ROUNDS)):
        progress(f"{phase} laws, {session.rows()} rows")
        result.reports[phase] = session.run(phase, rounds)
    if result.reports[REAL].matches:
        result.reports["exact again"] = session.run(EXACT, EXACT_ROUNDS)
    for request in requests:
        session.insert(request)
    progress(f"{DEMAND}, {session.rows()} rows")
    result.reports[DEMAND] = session.run(DEMAND, finite=True)
    return result
