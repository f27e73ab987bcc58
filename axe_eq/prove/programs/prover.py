"""The prover: equality of programs by saturation, with a certificate read back from the firings.

What fired in a search becomes a set of ground instances, each repeated as the checker will repeat
it, and cut down to those that congruence closure needs.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from axe_eq.deadline import seconds_left
from axe_eq.egraph.record import read_firings
from axe_eq.errors import AxeError
from axe_eq.pack import Pack
from axe_eq.program.node import Program
from axe_eq.program.selectors import array_text
from axe_eq.program.terms import In, encode
from axe_eq.prove.certificates.certificate import PROGRAMS, Firing, Proof, Statement
from axe_eq.prove.certificates.checker import instantiate, law_statements
from axe_eq.prove.certificates.closure import Closure
from axe_eq.prove.certificates.proof import Certificate, write
from axe_eq.prove.certificates.rebuild import over_inputs_of
from axe_eq.prove.certificates.verdict import Proved
from axe_eq.prove.programs.frontier import Frontier, find_frontier
from axe_eq.prove.programs.search import Budget, Search, begin, program_laws
from axe_eq.rule.law import Instance, Law
from axe_eq.rule.term import Term, postorder


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
    captured = {name: array for program in (a, b) for name, array in program.constants.items()}
    held = ((name, array_text(array)) for name, array in captured.items() if name in inputs)
    where = tuple((name, text) for name, text in held if text is not None)
    return Statement(
        PROGRAMS, left, right, tuple(inputs.items()), versions, numerics, pairs, where=where
    )


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
    statement = state(a, b, chosen, numerics, assume)
    laws = {
        key: law for key, law in program_laws(chosen.values()).items()
        if law.exact or numerics == "real"
    }  # fmt: skip
    limits = budget or Budget()
    normal = {key: law for key, law in laws.items() if law.normal}
    # Normal forms alone prove much of what is true over the reals, before any law is compiled.
    first = _attempt(statement, normal, chosen, limits) if 0 < len(normal) < len(laws) else None
    return first if isinstance(first, Proved) else _attempt(statement, laws, chosen, limits)


def _attempt(
    statement: Statement, laws: Mapping[str, Law], packs: Mapping[str, Pack], budget: Budget
) -> Proved | Frontier:
    left = seconds_left()
    if left is not None:  # what comes after a search that fails needs time too
        budget = replace(budget, seconds=min(budget.seconds, left / 2))
    search = begin(statement, laws, budget)
    return proved_by(search, packs) or find_frontier(
        search.session, statement, search.stopped, search.turns
    )


# -- certificates ----------------------------------------------------------------------------------

Step = tuple[Firing, Instance]


def proved_by(search: Search, packs: Mapping[str, Pack]) -> Proved | None:
    """What a search proves; None where it stopped before, or its firings are no proof."""
    certificate = _certify(search, packs) if search.run() else None
    if certificate is None:
        return None
    proof = certificate.proof
    return verdict_of(certificate, proof.statement, proof.laws, packs)


def _certify(search: Search, packs: Mapping[str, Pack]) -> Certificate | None:
    """The certificate of a search that succeeded; None where the firings do not add up to one."""
    statement = search.statement
    steps: list[Step] = []
    closure = _assuming(statement)
    for firing in _firings(search):
        try:
            instance = instantiate(firing, packs, statement)
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
    return write_proof(statement, chosen, packs)


def write_proof(
    statement: Statement, steps: Sequence[Step], packs: Mapping[str, Pack]
) -> Certificate:
    """The certificate of these steps, which trusts only the packs whose laws they use."""
    firings = tuple(firing for firing, _ in steps)
    return write(Proof(trusting(statement, steps), firings, law_statements(firings, packs)))


def verdict_of(
    certificate: Certificate, statement: Statement, laws: Iterable[str], packs: Mapping[str, Pack]
) -> Proved:
    """The verdict with a certificate, and what its laws did.

    Args:
        certificate: the proof.
        statement: what it proves.
        laws: keys of the laws that it uses.
        packs: whose laws they are.
    """
    keys = tuple(sorted(laws))
    parts = (key.partition("/") for key in keys)
    computed = all(packs[pack].laws[name].normal for pack, _, name in parts)
    how = "identical" if not keys else "decided" if computed else "rewritten"
    return Proved(certificate, statement, how, keys)


def _firings(search: Search) -> list[Firing]:
    """Every firing, those about small terms first: they make the shorter proofs."""
    found = [Firing(key, values) for key, values in search.normalizer.instances]
    found += [Firing(*record) for record in read_firings(search.session)]
    sizes: dict[Term, int] = {}

    def size(firing: Firing) -> int:
        terms = [v for v in firing.values if isinstance(v, Term)]
        return sum(_size(term, sizes) for term in terms)

    return sorted(found, key=size)


def _size(term: Term, known: dict[Term, int]) -> int:
    """Nodes of a term written as a tree, at most 2**62."""
    for sub in postorder(term, known):
        below = sum(known[a] for a in sub.args if isinstance(a, Term))
        known[sub] = min(1 + below, 1 << 62)
    return known[term]


def _assuming(statement: Statement) -> Closure:
    """A closure over the roots and what is given, which has negative numbers."""
    closure = Closure()
    for number, (left, right) in enumerate(statement.given):
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


def explained(statement: Statement, steps: Sequence[Step]) -> list[Step]:
    """Those of the steps that one explanation of the statement uses."""
    closure = _assuming(statement)
    for number, (_, instance) in enumerate(steps):
        closure.merge(instance.left, instance.right, number)
    needed = closure.explain(zip(statement.left, statement.right, strict=True))
    return [steps[number] for number in sorted(needed) if number >= 0]


def suffices(steps: Iterable[Step], statement: Statement) -> bool:
    """Whether these instances prove a statement."""
    closure = _assuming(statement)
    for _, instance in steps:
        closure.merge(instance.left, instance.right, 0)
    return _joined(closure, statement)


def trusting(statement: Statement, steps: Iterable[Step]) -> Statement:
    """The statement with only the packs whose laws are used, and the arrays that are looked at."""
    given = list(steps)
    used = {firing.law.partition("/")[0] for firing, _ in given}
    packs = {name: version for name, version in statement.packs.items() if name in used}
    statement = replace(statement, packs=packs)
    for pair in statement.where if statement.kind == PROGRAMS else ():
        fewer = replace(statement, where=tuple(p for p in statement.where if p != pair))
        statement = fewer if suffices(given, fewer) else statement
    return statement
