"""The strategy: in which order kinds of laws run, and for how many rounds."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from axe_eq.egraph.session import Limits, Report, Session
from axe_eq.rule.law import Law
from axe_eq.rule.term import Analysis, Symbol, Term

EXACT, GROW, REAL, DEMAND = "exact", "grow", "real", "demand"
AGAIN = "exact again"  # where a real law fired
LATE = "late"
EXACT_ROUNDS = 6
GROW_ROUNDS = 2
REAL_ROUNDS = 3
LATE_ROUNDS = 2  # one that asks primitives, and one that is answered
# What laws may take before anything is demanded: of the limit of rows one in so many, and for a
# large program so many times the rows that it has itself; of the limit of time a half.
LAW_SHARE = 20
LAW_GROWTH = 50
# And how many values there may be for each of the program's, from so many on. Every value is a
# candidate to be kept and demanded in every box. Laws give stacks of blocks 1.13 times their own at
# most, and n steps of a stencil the values of all their steps at n places.
VALUE_GROWTH, MANY_VALUES = 1.25, 100
# For late laws the same of the values that the others made: a product in parts has 8 more.
LATE_GROWTH = 4.0


def phase_of(law: Law) -> str:
    """The phase of a law: exact ones first, growing ones bounded, demand last."""
    if law.demand:
        return DEMAND
    if not law.exact:
        return REAL
    return GROW if law.expands else EXACT


def by_phase(laws: Mapping[str, Law]) -> dict[str, dict[str, Law]]:
    """Laws that search for schedules, by phase; normal forms and laws for proofs stay out."""
    groups: dict[str, dict[str, Law]] = {EXACT: {}, GROW: {}, REAL: {}, LATE: {}, DEMAND: {}}
    for key, law in laws.items():
        if law.searches:
            groups[LATE if law.late else phase_of(law)][key] = law
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
            if report.stopped in ("rows", "values", "time", "memory"):
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
    facts: Sequence[tuple[Analysis, Sequence[tuple[Term, int | str]]]],
    requests: Sequence[Term],
    *,
    limits: Limits,
    before_demand: Callable[[Session], None] = lambda _: None,
    progress: Callable[[str], None] = lambda _: None,
) -> Saturated:
    """Insert terms, close facts, run the phases, then answer requests.

    Laws that make too many rows or values are cut: the search begins again and stops that phase one
    round earlier, so that what was found by then, the program's own form at least, is demanded.

    Args:
        laws: by key.
        symbols: constructors of the terms.
        analyses: facts to keep per class.
        terms: to insert, operands before users.
        facts: analysis facts that are known already; of those that no law asks for none is kept.
        requests: demand terms, inserted before the last phase.
        limits: rows and seconds; a phase that reaches one stops and says so.
        before_demand: may set aside what is not to be demanded.
        progress: told where it is.
    """
    known = list(dict.fromkeys([*symbols, *(request.symbol for request in requests)]))
    groups = by_phase(laws)
    plan = {EXACT: EXACT_ROUNDS, GROW: GROW_ROUNDS, REAL: REAL_ROUNDS, AGAIN: EXACT_ROUNDS,
            LATE: LATE_ROUNDS}  # fmt: skip
    began = time.perf_counter()
    cut: dict[str, str] = {}
    while True:
        session = Session(groups, known, analyses, limits=limits, began=began)
        session.insert_all(terms)
        for analysis, given in facts:
            if analysis.name in session.analyses:
                session.set_facts(analysis, given)
        result = Saturated(session, list(requests))
        phase = _run_laws(result, plan, progress)
        if phase is None:
            break
        plan[phase] = result.reports[phase].rounds - 1
        cut[phase] = result.reports[phase].stopped
        del session, result  # the next one takes its e-graph
    for phase, reason in cut.items():
        result.reports[phase].stopped = reason
    before_demand(session)
    session.insert_all(requests)
    progress(f"{DEMAND}, {session.rows()} rows")
    result.reports[DEMAND] = session.run(DEMAND, finite=True)
    return result


def _run_laws(
    result: Saturated, plan: Mapping[str, int], progress: Callable[[str], None]
) -> str | None:
    """Run the phases of laws for at most so many rounds; the first that made too much."""
    session, given = result.session, result.session.limits
    session.close()
    most = max(given.rows // LAW_SHARE, LAW_GROWTH * session.rows())
    values = max(MANY_VALUES, int(VALUE_GROWTH * session.values()))
    limits = Limits(min(given.rows, most), given.seconds / 2, values)
    for phase, rounds in plan.items():
        if phase == AGAIN and not result.reports[REAL].matches:
            continue
        if phase == LATE:
            values = max(values, int(LATE_GROWTH * session.values()))
            limits = replace(limits, values=values)
        progress(f"{phase} laws, {session.rows()} rows")
        ruleset = EXACT if phase == AGAIN else phase
        report = result.reports[phase] = session.run(ruleset, rounds, limits=limits)
        if report.rounds and report.rows > limits.rows:
            report.stopped = "rows"
            return phase
        if report.rounds and session.values() > values:
            report.stopped = "values"
            return phase
    return None
