"""Congruence closure against a naive fixpoint, and its explanations."""

from __future__ import annotations

import itertools
import random

import pytest

from axe_eq.program.terms import VALUE, In
from axe_eq.prove.certificates.closure import Closure
from axe_eq.rule.term import STR, Symbol, Term

F = Symbol("F", (VALUE,), VALUE)
G = Symbol("G", (STR, VALUE, VALUE), VALUE)


def random_term(rng: random.Random, depth: int) -> Term:
    if depth == 0 or rng.random() < 0.2:
        return In(rng.choice("abc"), "f32[]")
    if rng.random() < 0.5:
        return F(random_term(rng, depth - 1))
    return G(rng.choice("pq"), random_term(rng, depth - 1), random_term(rng, depth - 1))


def subterms(term: Term) -> set[Term]:
    return {term}.union(*(subterms(a) for a in term.args if isinstance(a, Term)))


def naive(pairs: list[tuple[Term, Term]], terms: set[Term]) -> dict[Term, int]:
    """Class numbers by repeating every rule until nothing changes."""
    number = {t: n for n, t in enumerate(sorted(terms, key=repr))}

    def join(a: Term, b: Term) -> bool:
        old, new = number[a], number[b]
        if old == new:
            return False
        for t in number:
            if number[t] == old:
                number[t] = new
        return True

    changed = True
    while changed:
        changed = any([join(a, b) for a, b in pairs])
        for s, t in itertools.combinations(number, 2):
            if s.symbol is t.symbol and all(
                number[a] == number[b] if isinstance(a, Term) else a == b
                for a, b in zip(s.args, t.args, strict=True)
            ):
                changed |= join(s, t)
    return number


@pytest.mark.parametrize("seed", range(25))
def test_closure_equals_the_naive_fixpoint(seed: int) -> None:
    rng = random.Random(seed)
    pairs = [(random_term(rng, 2), random_term(rng, 2)) for _ in range(rng.randint(1, 6))]
    extra = [random_term(rng, 3) for _ in range(4)]
    terms = set().union(*(subterms(t) for t in itertools.chain(extra, *pairs)))
    closure = Closure()
    for early in extra[:2]:
        closure.add(early)
    for n, (left, right) in enumerate(pairs):
        closure.merge(left, right, n)
    number = naive(pairs, terms)
    for s, t in itertools.combinations(sorted(terms, key=repr), 2):
        assert closure.equal(s, t) == (number[s] == number[t]), (s, t)


@pytest.mark.parametrize("seed", range(25))
def test_explanations_suffice(seed: int) -> None:
    rng = random.Random(100 + seed)
    pairs = [(random_term(rng, 2), random_term(rng, 2)) for _ in range(12)]
    closure = Closure()
    for n, (left, right) in enumerate(pairs):
        closure.merge(left, right, n)
    terms = sorted(set().union(*(subterms(t) for pair in pairs for t in pair)), key=repr)
    for s, t in itertools.combinations(terms, 2):
        if not closure.equal(s, t):
            continue
        again = Closure()
        for n in closure.explain([(s, t)]):
            again.merge(*pairs[n], n)
        assert again.equal(s, t)


def test_explaining_unequal_terms_is_refused() -> None:
    closure = Closure()
    a, b = In("a", "f32[]"), In("b", "f32[]")
    assert not closure.equal(a, b)
    with pytest.raises(ValueError, match="not equal"):
        closure.explain([(a, b)])


def test_primitive_arguments_are_compared_by_value_and_deep_terms_need_no_recursion() -> None:
    a = In("a", "f32[]")
    closure = Closure()
    assert not closure.equal(G("p", a, a), G("q", a, a))
    deep, other = a, In("b", "f32[]")
    for _ in range(20_000):
        deep, other = F(deep), F(other)
    closure.merge(a, In("b", "f32[]"), 0)
    assert closure.equal(deep, other)
    assert closure.explain([(deep, other)]) == {0}
