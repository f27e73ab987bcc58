"""The prover: equality of programs by saturation, with a certificate read back from the firings.

Both programs are terms of one e-graph. Normal forms, exact laws and (over the reals) real laws take
turns until the roots meet, nothing changes, or a limit is reached. What fired becomes a set of
ground instances, cut down to those that congruence closure needs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from axe_eq.egraph.normal import Normalizer
from axe_eq.egraph.record import read_firings
from axe_eq.egraph.session import Limits, Session
from axe_eq.errors import AxeError
from axe_eq.pack import Pack
from axe_eq.program.node import Program
from axe_eq.program.terms import ARGS, VALUE, Cons, In, Nil, Op, Sel, encode, type_of, types_of
from axe_eq.prove.certificate import PROGRAMS, Certificate, Firing, Proof, Statement, write
from axe_eq.prove.checker import instantiate
from axe_eq.prove.closure import Closure
from axe_eq.prove.frontier import Frontier, find_frontier
from axe_eq.prove.rebuild import over_inputs_of
from axe_eq.prove.verdict import Proved
from axe_eq.rule.law import Instance, Law
from axe_eq.rule.term import Sort

EXACT, EXPANDING, REAL = "exact", "expanding", "real"


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
    rounds: int = 8
    exact_rounds: int = 6


@dataclass
class Search:
    """One proof search: the session and what happened in it.

    Attributes:
        statement: what is to be proved.
        stopped: "proved", "saturated", "rounds", "rows" or "time".
        turns: turns begun.
    """

    statement: Statement
    packs: dict[str, Pack]
    budget: Budget
    stopped: str = "rounds"
    turns: int = 0
    session: Session = field(init=False)
    normalizer: Normalizer = field(init=False)

    def __post_init__(self) -> None:
        laws = phases(self.packs.values())
        normal = {k: w for k, w in program_laws(self.packs.values()).items() if w.normal}
        limits = Limits(rows=self.budget.rows, seconds=self.budget.seconds)
        self.session = Session(
            laws, [In, Op, Sel, Nil, Cons], [type_of, types_of], record=True, limits=limits
        )
        self.normalizer = Normalizer(self.session, normal)
        for term in (*self.statement.left, *self.statement.right):
            self.session.insert(term)
        self.session.union_all(self.statement.assume)
        self.session.close()

    def proved(self) -> bool:
        """Whether all pairs of roots are equal now."""
        pairs = zip(self.statement.left, self.statement.right, strict=True)
        return all(self.session.equal(left, right) for left, right in pairs)

    def run(self) -> bool:
        """Search; whether all roots met."""
        if self.proved():
            self.stopped = "proved"
            return True
        for _ in range(self.budget.rounds):
            self.turns += 1
            before = self.session.rows()
            for stopped in self._turn():
                if self.proved():
                    self.stopped = "proved"
                    return True
                if stopped in ("rows", "time"):
                    self.stopped = stopped
                    return False
            if self.session.rows() == before:
                self.stopped = "saturated"
                return False
        return False

    def _turn(self) -> Iterator[str]:
        """One round of every phase; yields why each stopped."""
        self.normalizer.round()
        self.session.close()
        yield self._over()
        for _ in range(self.budget.exact_rounds):
            report = self.session.run(EXACT, rounds=1)
            yield report.stopped
            if report.stopped == "saturated":
                break
        for phase in (EXPANDING, REAL):
            yield self.session.run(phase, rounds=1).stopped

    def _over(self) -> str:
        if self.session.rows() > self.budget.rows:
            return "rows"
        return "time" if self.session.elapsed() > self.budget.seconds else ""


def program_laws(packs: Iterable[Pack]) -> dict[str, Law]:
    """Laws about values of programs, by key; demand laws answer requests and prove nothing."""
    return {
        f"{pack.name}/{name}": law
        for pack in packs
        for name, law in pack.laws.items()
        if not law.demand and _side_sort(law) in (VALUE, ARGS)
    }


def _side_sort(law: Law) -> Sort:
    """Sort of the two sides; a normal-form law is about its only parameter."""
    left = law.params[0][1] if law.normal else law.pattern().left.sort
    return left if isinstance(left, Sort) else left.sort


def phases(packs: Iterable[Pack]) -> dict[str, dict[str, Law]]:
    """Laws that are rewrites, by the phase they run in."""
    found: dict[str, dict[str, Law]] = {EXACT: {}, EXPANDING: {}, REAL: {}}
    for key, law in program_laws(packs).items():
        if not law.normal:
            phase = EXPANDING if law.expands else EXACT if law.exact else REAL
            found[phase][key] = law
    return found


def usable(packs: Iterable[Pack], numerics: str) -> dict[str, Pack]:
    """Packs whose laws may be believed under these numerics and say something about programs."""
    return {
        pack.name: pack
        for pack in packs
        if (pack.exact or numerics == "real") and program_laws([pack])
    }


def state(
    a: Program,
    b: Program,
    packs: Mapping[str, Pack],
    numerics: str,
    assume: Sequence[tuple[Program, Program]] = (),
) -> Statement:
    """The statement that two programs are equal, over the inputs of the first."""
    inputs = {i.node.text: str(i.node.type) for i in a.inputs}
    sides = [a.outputs, over_inputs_of(a, b)]
    for pair in assume:
        sides += [over_inputs_of(a, side) for side in pair]
    nodes = [node for side in sides for node in side]
    terms = encode(nodes)
    for term in terms.values():
        if term.symbol is In:
            inputs.setdefault(term.args[0], term.args[1])
    left, right, *given = [tuple(terms[node] for node in side) for side in sides]
    pairs = tuple(p for n in range(0, len(given), 2) for p in zip(*given[n : n + 2], strict=True))
    versions = {name: pack.version for name, pack in packs.items()}
    return Statement(PROGRAMS, left, right, tuple(inputs.items()), versions, numerics, pairs)


def prove_programs(
    a: Program,
    b: Program,
    packs: Iterable[Pack],
    numerics: str = "real",
    assume: Sequence[tuple[Program, Program]] = (),
    budget: Budget | None = None,
) -> Proved | Frontier:
    """Prove that two programs of equal types are equal.

    Args:
        a: a program.
        b: another; inputs and outputs are matched by position.
        packs: whose laws may be used; real packs only where numerics allow them.
        numerics: "real" or "exact".
        assume: pairs of programs over the same inputs that are taken to be equal.
        budget: limits of the search.

    Returns:
        The proof with its certificate, or what could not be joined.
    """
    chosen = usable(packs, numerics)
    search = Search(state(a, b, chosen, numerics, assume), chosen, budget or Budget())
    certificate = certify(search) if search.run() else None
    if certificate is None:
        return find_frontier(search.session, search.statement, search.stopped, search.turns)
    return Proved(certificate, certificate.proof.statement)


# -- certificates ----------------------------------------------------------------------------------

Step = tuple[Firing, Instance]


def certify(search: Search) -> Certificate | None:
    """The certificate of a search that succeeded; None where the firings do not add up to one."""
    statement = search.statement
    steps: list[Step] = []
    closure = _assuming(statement)
    for firing in _firings(search):
        try:
            instance = instantiate(firing, search.packs, statement)
        except AxeError:
            continue
        steps.append((firing, instance))
        closure.merge(instance.left, instance.right, len(steps) - 1)
        if _joined(closure, statement):
            break
    if not _joined(closure, statement):
        search.stopped = "recording"
        return None
    needed = closure.explain(zip(statement.left, statement.right, strict=True))
    chosen = minimise([steps[n] for n in sorted(needed) if n >= 0], statement)
    return write(Proof(trusting(statement, chosen), tuple(firing for firing, _ in chosen)))


def _firings(search: Search) -> Iterator[Firing]:
    for key, values in search.normalizer.instances:
        yield Firing(key, values)
    for key, values, choices in read_firings(search.session):
        yield Firing(key, values, choices)


def _assuming(statement: Statement) -> Closure:
    """A closure over the roots and the assumptions, which have negative numbers."""
    closure = Closure()
    for number, (left, right) in enumerate(statement.assume):
        closure.merge(left, right, -1 - number)
    for root in (*statement.left, *statement.right):
        closure.add(root)
    return closure


def _joined(closure: Closure, statement: Statement) -> bool:
    pairs = zip(statement.left, statement.right, strict=True)
    return all(closure.find(left) is closure.find(right) for left, right in pairs)


def minimise(steps: Sequence[Step], statement: Statement, seconds: float = 2.0) -> list[Step]:
    """Drop what congruence does not need: halves first, then ever smaller parts, then single steps.

    Args:
        steps: instances that suffice.
        statement: what they prove.
        seconds: when to stop trying; what is left still suffices.
    """
    end = time.monotonic() + seconds
    kept, size = list(steps), len(steps)
    while size and kept:
        size = (size + 1) // 2
        at = 0
        while at < len(kept) and time.monotonic() < end:
            fewer = kept[:at] + kept[at + size :]
            if suffices(fewer, statement):
                kept = fewer
            else:
                at += size
        if size == 1:
            break
    return kept


def suffices(steps: Iterable[Step], statement: Statement) -> bool:
    """Whether these instances prove a statement."""
    closure = _assuming(statement)
    for _, instance in steps:
        closure.merge(instance.left, instance.right, 0)
    return _joined(closure, statement)


def trusting(statement: Statement, steps: Iterable[Step]) -> Statement:
    """The statement with only the packs whose laws are used."""
    used = {firing.law.partition("/")[0] for firing, _ in steps}
    packs = {name: version for name, version in statement.packs.items() if name in used}
    return replace(statement, packs=packs)
