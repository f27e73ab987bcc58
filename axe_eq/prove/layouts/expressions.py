"""Equality of layout expressions: with unknown layouts, and with symbolic numbers.

Refuted by trying numbers and layouts against the definition; proved by rewriting, then in the
e-graph; else Unknown, with what was missing. What is assumed of names is substituted first, so that
a statement holds for all positive integers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from axe_eq.deadline import check_deadline
from axe_eq.egraph.compile import analyses_in
from axe_eq.egraph.normal import Class, Normalizer, Row, build, read_rows, representatives
from axe_eq.egraph.phases import EXACT, GROW
from axe_eq.errors import ArgumentError, LayoutError, SearchError
from axe_eq.layout import Difference, Layout, same_map
from axe_eq.layout.symbolic import terms as t
from axe_eq.layout.symbolic.check import Missing, check, unknowns
from axe_eq.layout.symbolic.expression import LayoutExpr, expression, settle
from axe_eq.layout.symbolic.facts import Facts, facts
from axe_eq.layout.symbolic.instances import choices, names_in, numbers_of
from axe_eq.layout.symbolic.meaning import MAX_ELEMENTS, Meaning
from axe_eq.layout.symbolic.polynomial import fraction, name, poly
from axe_eq.layout.symbolic.show import show
from axe_eq.layout.symbolic.text import read_layout
from axe_eq.pack import Pack, laws_of
from axe_eq.prove.certificates.certificate import Statement
from axe_eq.prove.certificates.verdict import (
    LayoutCounterexample,
    Proved,
    Refuted,
    Unknown,
    Verdict,
)
from axe_eq.prove.layouts.equality import compare, proved, rewrite, rules, statement
from axe_eq.prove.layouts.rewrite import Rewriter, Rules, laws_about
from axe_eq.prove.programs.prover import Step, proved_by
from axe_eq.prove.programs.search import Budget, Search, opened
from axe_eq.rule.law import Law
from axe_eq.rule.term import Sort, Symbol, Term, mapped, postorder

SECONDS = 10.0
MAX_ROWS = 200_000
TURNS = 6
FIRST_TRIES, LAST_TRIES = (
    12,
    200,
)  # choices of numbers and layouts before and after a proof is tried
MAX_FACTS = 24  # assumptions tried to name the one that was missing


def equivalent_expressions(
    a: Layout | LayoutExpr,
    b: Layout | LayoutExpr,
    packs: list[Pack],
    assume: Sequence[Any] = (),
    budget: float | None = None,
) -> Verdict:
    """Whether two expressions denote the same map, for all numbers and layouts they speak of.

    Args:
        a: an expression or a layout.
        b: another.
        packs: whose layout laws may be used.
        assume: texts that say something of names, and pairs of layouts or expressions.
        budget: seconds for the search of a proof.

    Raises:
        LayoutError: an expression that makes no sense, or an assumption that is none.
    """
    if not isinstance(assume, list | tuple):
        raise ArgumentError("assume", f"is {assume!r}", "a list of texts and of pairs of layouts")
    texts = [fact for fact in assume if isinstance(fact, str)]
    given = [_pair(fact) for fact in assume if not isinstance(fact, str)]
    sides = [expression(x).term for x in (a, b, *(x for pair in given for x in pair))]
    try:
        state, known = _settled(sides, texts, packs)
    except Missing as missing:
        return Unknown(f"the assumption {missing.fact}, which {missing.thing} needs")
    question = _Question(state, known, sides, packs, SECONDS if budget is None else budget)
    return question.answer(texts)


def _pair(fact: Any) -> tuple[Any, Any]:
    if not isinstance(fact, tuple) or len(fact) != 2:
        raise ArgumentError(f"assumption {fact!r}", "is none", '"n % 8 == 0", or a pair of layouts')
    return read_layout(fact[0]), read_layout(fact[1])


def _settled(
    sides: Sequence[Term], texts: Sequence[str], packs: Sequence[Pack]
) -> tuple[Statement, Facts]:
    """The statement under the assumptions.

    Raises:
        Missing: a condition that does not follow from them.
        LayoutError: sides that make no sense, or no assumptions.
    """
    names = names_in(sides)
    known = facts(texts, names)
    _check_quotients(sides, known)
    left, right, *given = settle(sides, known)
    for term in (left, right, *given):
        check(term)
    unknowns((left, right, *given))
    where = tuple((n, str(p)) for n, p in sorted(known.images.items()) if n in names)
    where = tuple((n, p) for n, p in where if n != p)
    pairs = tuple(zip(given[::2], given[1::2], strict=True))
    return statement(left, right, packs, where=where, assume=pairs), known


def _check_quotients(sides: Sequence[Term], known: Facts) -> None:
    """Refuse quotients that are not known to be exact, in the names that were given."""
    atoms = {
        atom
        for side in sides
        for sub in postorder(side)
        for number in numbers_of(sub)
        for atom in number.atoms
        if atom.startswith("(")
    }
    for atom in sorted(atoms):
        if any(left.startswith("(") for left in known.apply(name(atom)).atoms):
            above, below = fraction(atom)
            raise Missing(f"quotient {atom}", f"{above} % {below} == 0")


class _Question:
    """One question about two expressions."""

    def __init__(
        self,
        state: Statement,
        known: Facts,
        sides: Sequence[Term],
        packs: list[Pack],
        seconds: float,
    ) -> None:
        self.state, self.known, self.sides = state, known, sides
        self.packs, self.budget = packs, f"{seconds:g} s"
        self.limits = Budget(rows=MAX_ROWS, seconds=seconds, rounds=TURNS)
        self.left, self.right = state.left[0], state.right[0]

    def answer(self, texts: Sequence[str]) -> Verdict:
        """The verdict."""
        found = self.refute(0, FIRST_TRIES)
        if found is not None:
            return found
        verdict = self.by(rewrite) or self.searched()
        if isinstance(verdict, str):
            verdict = self.by(compare) or verdict
        if isinstance(verdict, Proved):
            return verdict
        found = self.refute(FIRST_TRIES, LAST_TRIES)
        return Unknown(self.missing(texts, verdict), self.budget) if found is None else found

    # -- refutation -------------------------------------------------------------------------------

    def refute(self, start: int, stop: int) -> Refuted | None:
        """Numbers and layouts for which the two sides differ, if some are found."""
        if self.state.assume:  # what breaks an assumed equality refutes nothing
            return None
        terms = (self.left, self.right)
        for meaning in islice(choices(terms), start, stop):
            check_deadline()
            try:
                found = self._difference(meaning)
            except (SearchError, LayoutError):
                continue
            if found is not None:
                return found
        return None

    def _difference(self, meaning: Meaning) -> Refuted | None:
        found = _compare(self.left, self.right, meaning, rules(self.packs))
        if found is None:
            return None
        numbers = self.known.numbers(names_in(self.sides[:2]), meaning.numbers)
        layouts = dict(meaning.layouts)
        if found.x is None or found.image_a is None or found.image_b is None:
            given = ", ".join(f"{k} = {v}" for k, v in (*numbers.items(), *layouts.items()))
            return Refuted(None, f"{found.reason}, with {given}" if given else found.reason)
        shown = LayoutCounterexample(found.x, found.image_a, found.image_b, numbers, layouts)
        return Refuted(shown, found.reason)

    # -- proof ------------------------------------------------------------------------------------

    def by(self, find: Callable[[Statement, Rules], list[Step] | None]) -> Proved | None:
        """A proof without a search."""
        if self.state.assume:
            return None
        try:
            steps = find(self.state, rules(self.packs))
        except SearchError:
            return None
        return None if steps is None else proved(self.state, steps, self.packs)

    def searched(self) -> Proved | str:
        """A proof in the e-graph, or why there is none."""
        laws = _fitting(laws_of(pack for pack in self.packs if pack.exact), self.state)
        normal = {key: law for key, law in laws.items() if law.normal}
        groups: dict[str, dict[str, Law]] = {EXACT: {}, GROW: {}}
        for key, law in laws.items():
            if not law.normal:
                groups[GROW if law.expands or law.both_ways else EXACT][key] = law
        calls = [c for group in groups.values() for w in group.values() for c in w.pattern().calls]
        analyses = analyses_in(call.function for call in calls)
        session = opened(self.state, groups, t.SYMBOLS, analyses, self.limits)
        normalizer = LayoutNormalizer(session, normal)
        search = _LayoutSearch(self.state, session, normalizer, self.limits)
        return proved_by(search, {pack.name: pack for pack in self.packs}) or search.stopped

    # -- what was missing -------------------------------------------------------------------------

    def missing(self, texts: Sequence[str], stopped: str) -> str:
        """An assumption that would do, else where the proof got stuck."""
        for fact in islice(self._candidates(), MAX_FACTS):
            check_deadline()
            try:
                state, _ = _settled(self.sides, [*texts, fact], self.packs)
                if rewrite(state, rules(self.packs)) is not None:
                    return f"the assumption {fact}: with it the two are equal"
            except (LayoutError, SearchError):
                continue
        partial = _partial(self.left, self.right)
        if partial is not None:
            return f"that {show(partial)} denotes a layout: {_definedness(partial)}"
        rewriter = Rewriter(rules(self.packs))
        one, two = _stuck(rewriter.normal(self.left), rewriter.normal(self.right))
        return f"a law that joins {show(one)} and {show(two)} (stopped: {stopped})"

    def _candidates(self) -> Iterator[str]:
        names = sorted(names_in(self.sides[:2]) - set(self.known.images))
        for own in names:
            yield from (f"{own} >= {other}" for other in names if other != own)
        for own in names:
            yield from (f"{own} >= {bound}" for bound in (2, 3, 4))
        for own in names:
            yield from (f"{own} % {divisor} == 0" for divisor in (2, 4, 8, 3))


def _compare(left: Term, right: Term, meaning: Meaning, known: Rules) -> Difference | None:
    """How two terms differ where names and unknown layouts have these values.

    By enumeration; what has too many elements or copies for that is rewritten to layouts, which are
    compared, as layouts that are written out are in the first place.

    Raises:
        SearchError: undecided.
        LayoutError: a term that denotes no layout there.
    """
    values = Facts(images={name: poly(value) for name, value in meaning.numbers.items()})
    one, two = (_filled(term, meaning) for term in settle([left, right], values))
    kinds = check(one), check(two)
    sizes = kinds[0].elements, kinds[1].elements
    if sizes[0] != sizes[1] and kinds[0].total and kinds[1].total:
        return Difference(f"sizes differ: {sizes[0]} and {sizes[1]}", None, None, None)
    if t.is_written(one) and t.is_written(two):
        return same_map(t.decode(one), t.decode(two))
    try:
        if max(size.constant or 0 for size in sizes) > MAX_ELEMENTS:
            raise SearchError("expression", f"over {MAX_ELEMENTS} elements", "fewer")
        return _enumerated(meaning.of(left), meaning.of(right))
    except SearchError:
        rewriter = Rewriter(known, t.is_answer)
        one, two = rewriter.normal(one), rewriter.normal(two)
        if not (t.is_written(one) and t.is_written(two)):
            raise
    return same_map(t.decode(one), t.decode(two))


def _enumerated(*images: Any) -> Difference | None:
    """The first difference of two maps; None too where one of them is nothing."""
    if images[0] is None or images[1] is None:
        return None  # a factor or an inverse that is not there: nothing is compared
    if len(images[0]) != len(images[1]):
        reason = f"sizes differ: {len(images[0])} and {len(images[1])}"
        return Difference(reason, None, None, None)
    for x, (a, b) in enumerate(zip(*images, strict=True)):
        if a != b:
            return Difference(f"index {x} maps to different coordinates", x, a, b)
    return None


def _filled(term: Term, meaning: Meaning) -> Term:
    """The term with a layout for every unknown one."""

    def filled(sub: Term) -> Term:
        return t.encode(meaning.layouts[sub.args[0]]) if sub.symbol is t.AnyLayout else sub

    return mapped(term, filled)


def _partial(left: Term, right: Term) -> Term | None:
    """The smallest part that may denote nothing, where only one of two sides has such a part."""
    found = [next(filter(_may_fail, postorder(side)), None) for side in (left, right)]
    return (found[0] or found[1]) if None in found else None


def _may_fail(term: Term) -> bool:
    """Whether it depends on unknown layouts that a part of a term denotes a layout."""
    return term.symbol in _PARTIAL and any(sub.symbol is t.AnyLayout for sub in postorder(term))


def _definedness(term: Term) -> str:
    """When an operation that may denote nothing denotes a layout."""
    if term.symbol is not t.Inverse:
        return f"{show(term.args[0])} has such a part"
    of, axes = term.args
    onto = f"the coordinates of {axes} from 0 on"
    return f"{show(of)} is one to one onto {onto}, and lies on no other axis"


_PARTIAL = frozenset({t.Inverse, t.TileOf, t.LeftAddend, t.RightAddend})


def _stuck(one: Term, two: Term) -> tuple[Term, Term]:
    """The smallest parts in which two terms differ, where only one differs."""
    while one.symbol == two.symbol:
        pairs = [(a, b) for a, b in zip(one.args, two.args, strict=True) if a != b]
        if len(pairs) != 1 or not isinstance(pairs[0][0], Term):
            break
        one, two = pairs[0]
    return one, two


# -- the e-graph -----------------------------------------------------------------------------------


class _LayoutSearch(Search):
    """Rewriting to a fixpoint, computed laws, then one round of the laws that grow terms."""

    def _turn(self) -> Iterator[str]:
        yield self.session.run(EXACT, rounds=40).stopped
        self.normalizer.round()
        self.session.close()
        yield self._over()
        yield self.session.run(EXACT, rounds=40).stopped
        yield self.session.run(GROW, rounds=1).stopped


_SYMBOLIC = frozenset({t.SymIter, t.SymCopy, t.SymShift, t.SymPrepend})
_CONCRETE = frozenset({t.Iter, t.Copy, t.Shift, t.Prepend})


def _fitting(laws: dict[str, Law], state: Statement) -> dict[str, Law]:
    """Layout laws, without those about the kind of numbers that the statement has none of."""
    terms = (*state.left, *state.right, *(x for pair in state.assume for x in pair))
    used = {sub.symbol for term in terms for sub in postorder(term)}
    other = _CONCRETE if used & _SYMBOLIC else _SYMBOLIC
    return {
        key: law
        for key, law in laws_about(laws, t.SORTS).items()
        if law.normal or not _symbols(law) & other
    }


def _symbols(law: Law) -> set[Symbol]:
    return {sub.symbol for sub in postorder(law.pattern().left)}


# -- computed laws ---------------------------------------------------------------------------------


MAX_PAIRED = 24  # classes of one sort that laws about two terms are tried on


class LayoutNormalizer(Normalizer):
    """Applies computed laws to operations whose parts are written out, and to pairs of terms."""

    def round(self) -> int:
        """Compute what was not tried before; returns the number of new equalities."""
        rows = read_rows(self.session)
        written = representatives([row for row in rows if row[0] in t.LITERALS])
        known = {**representatives(rows), **written}
        pairs: list[tuple[Term, Term]] = []
        for term in self._terms(rows, known, written):
            if term not in self._tried:
                self._tried.add(term)
                pairs += self._normal_forms(term)
        for sort, laws in self._by_pairs().items():
            terms = [term for (name, _), term in written.items() if name == sort.name]
            pairs += self._decided(laws, terms[:MAX_PAIRED])
        self.session.union_all(pairs)
        return len(pairs)

    def _terms(
        self, rows: list[Row], known: Mapping[Class, Term], written: Mapping[Class, Term]
    ) -> Iterator[Term]:
        yield from (term for (name, _), term in written.items() if name == t.LAYOUT.name)
        for symbol, args, _ in rows:
            if symbol in t.OPERATIONS:
                term = build(symbol, args, known)
                if term is not None:
                    yield term

    def _normal_forms(self, term: Term) -> Iterator[tuple[Term, Term]]:
        for key, law in self.laws.items():
            if len(law.params) == 1 and law.params[0][1] == term.sort:
                instance = law.instance((term,))
                if instance is not None:
                    self.instances.append((key, (term,)))
                    yield term, instance.right

    def _by_pairs(self) -> dict[Sort, dict[str, Law]]:
        found: dict[Sort, dict[str, Law]] = {}
        for key, law in self.laws.items():
            if len(law.params) == 2:
                found.setdefault(law.params[0][1], {})[key] = law
        return found

    def _decided(self, laws: Mapping[str, Law], terms: list[Term]) -> Iterator[tuple[Term, Term]]:
        for place, right in enumerate(terms):
            for left in terms[:place]:
                if self._equal(left, right):
                    continue
                for key, law in laws.items():
                    instance = law.instance((left, right))
                    if instance is not None:
                        self.instances.append((key, (left, right)))
                        yield left, right
                        break

    def _equal(self, left: Term, right: Term) -> bool:
        for term in (left, right):
            self.session.insert(term)
        return self.session.equal(left, right)
