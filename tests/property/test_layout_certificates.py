"""Attacks on certificates about layouts: mutated ones, and ones forged for false statements.

Truth is judged by enumeration: both sides of a statement are evaluated by their definition, for
several choices of numbers and of unknown layouts.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import cache

import pytest

from axe_eq.errors import AxeError
from axe_eq.layout.symbolic import terms as t
from axe_eq.layout.symbolic.instances import meanings
from axe_eq.pack import installed
from axe_eq.prove.certificates.certificate import SYMBOLS, Firing, Proof, Statement, parse
from axe_eq.prove.certificates.checker import check_certificate, law_statements
from axe_eq.prove.certificates.proof import write
from axe_eq.prove.certificates.verdict import Proved
from axe_eq.prove.equivalent import equivalent
from axe_eq.rule.term import Ground, Sort, Symbol, Term, postorder

PAIRS: list[tuple[str, str, tuple[object, ...]]] = [
    ("S[(2,4):(4,1)]", "S[8:1]", ()),
    ("S[(2,1,4):(4,9@n,1)] + R[(2,3):(-4,0)]", "S[8:1] + R[(2):(4)] + -4@m", ()),
    ("S[4:1] + R[(3,5):(2,3)]", "S[4:1] + R[(2,2,5):(3,5,2)]", ()),
    ("S[(2,2):(0@n,1)] + R[(2,2,2):(4,1,2)]", "S[(2,2):(0,1)] + R[8:1]", ()),
    ("sw(1,1,1)@m . S[8:1]", "sw(1,1,1)@m . sw(1,1,1)@m . sw(1,1,1)@m . S[(2,4):(4,1)]", ()),
    ("box[(3)] in S[4:1]", "S[3:1]", ()),
    ("S[(n,4):(4,1)]", "S[(4*n):(1)]", ()),
    ("S[(n/8,8):(8,1)]", "S[(n):(1)]", ("n % 8 == 0",)),
    ("S[4:1] + R[(n,2):(1,k)]", "S[4:1] + R[(n+k):(1)]", ("n >= k",)),
    ("tile(tile(A[4],(2,2),B[6],(2,3)),(4,6),C[2],(1,2))",
     "tile(A[4],(2,2),tile(B[6],(2,3),C[2],(1,2)),(2,6))", ()),
    ("tile(A[4],(4),S[(2,2):(2,1)],(4))", "tile(A[4],(4),S[4:1],(4))", ()),
    ("tile(S[4:1],(2,2),S[(2,2):(2,1)],(2,2))", "S[(2,2,2,2):(8,2,4,1)]", ()),
    ("tile(S[(n,4):(4,1)],(n,4),S[(2,2):(2,1)],(2,2))", "S[(n,2,4,2):(16,2,4,1)]", ()),
    ("compose(compose(A[8],I[4 below 8]),J[2 below 4])",
     "compose(A[8],compose(I[4 below 8],J[2 below 4]))", ()),
    ("permute(permute(A[12],(2,3,2),(2,0,1)),(2,2,3),(1,2,0))", "A[12]", ()),
    ("permute(S[(2,3):(3,1)],(2,3),(1,0))", "S[(3,2):(1,3)]", ()),
    ("slice(tile(A[4],(4),B[3],(3)),(12),(3:9))", "tile(slice(A[4],(4),(1:3)),(2),B[3],(3))", ()),
    ("slice(\"S[(2,2,4):(100,10,1)]\",(16),(6:10))", "S[(2,2):(88,1)] + 12@m", ()),
    ("tile_of(tile(A[4],(4),B[3],(3)),(12),B[3],(3))", "A[4]", ()),
    ("tile(A[4],(4),C[2],(2))", "tile(B[4],(4),C[2],(2))", (("A[4]", "B[4]"),)),
]  # fmt: skip


@cache
def proofs() -> tuple[Proof, ...]:
    found = []
    for a, b, assume in PAIRS:
        verdict = equivalent(a, b, assume=assume)
        assert isinstance(verdict, Proved), f"{a} = {b}: {verdict}"
        assert check_certificate(verdict.certificate)
        found.append(parse(verdict.certificate))
    return tuple(found)


def is_false(statement: Statement) -> bool:
    """Whether the two sides differ somewhere, for some choice; equal assumptions are not judged."""
    try:
        both = meanings([statement.left[0], statement.right[0]], 6)
    except AxeError:
        return False
    return any(left != right for left, right in both)


# -- mutations -------------------------------------------------------------------------------------

TEXTS = ("m", "n", "2", "4", "2,2", "4,2", "8", "0:2", "1:3", "1,0", "0,1", "n", "2*n", "k", "m:2")


def mutated(term: Term, rng: random.Random, pool: list[Term]) -> Term:
    """A term that differs in one place: a number, a text, a symbol or a part."""
    old = rng.choice(list(postorder(term)))
    new = rng.choice([t for t in pool if t.sort == old.sort] or [old])
    if rng.random() < 0.8:
        new = other_application(old, rng)
    images: dict[Term, Term] = {}
    for sub in postorder(term):
        args = tuple(images[a] if isinstance(a, Term) else a for a in sub.args)
        images[sub] = new if sub is old else Term(sub.symbol, args)
    return images[term]


def other_application(term: Term, rng: random.Random) -> Term:
    """The term with another argument, or under another symbol that takes the same ones."""
    sorts = term.symbol.args
    alike = [s for s in SYMBOLS["layouts"].values() if (s.args, s.result) == (sorts, term.sort)]
    places = [n for n, sort in enumerate(sorts) if sort.primitive]
    if places and rng.random() < 0.75:
        args = list(term.args)
        place = rng.choice(places)
        args[place] = other_value(args[place], rng)
        return Term(term.symbol, tuple(args))
    return Term(rng.choice(alike), term.args)


def other_value(value: Ground, rng: random.Random) -> Ground:
    if isinstance(value, int):
        return value + rng.choice((-2, -1, 1, 2)) if rng.random() < 0.8 else -value
    return rng.choice(TEXTS)


def mutant(proof: Proof, rng: random.Random) -> Proof:
    """A proof with one thing changed."""
    pool = terms_of(proof)
    firings, statement = list(proof.firings), proof.statement
    what = rng.choice(("value", "value", "law", "drop", "left", "right"))
    if what in ("left", "right"):
        side = (mutated(getattr(statement, what)[0], rng, pool),)
        left, right = (side, statement.right) if what == "left" else (statement.left, side)
        return replace(proof, statement=replace(statement, left=left, right=right))
    if not firings:
        return proof
    place = rng.randrange(len(firings))
    if what == "drop":
        del firings[place]
    elif what == "law" or not firings[place].values:
        names = [f"layout/{name}" for name in installed()["layout"].laws]
        firings[place] = replace(firings[place], law=rng.choice(names))
    else:
        values = list(firings[place].values)
        at = rng.randrange(len(values))
        old = values[at]
        values[at] = mutated(old, rng, pool) if isinstance(old, Term) else other_value(old, rng)
        firings[place] = replace(firings[place], values=tuple(values))
    return replace(proof, firings=tuple(firings))


def terms_of(*several: Proof) -> list[Term]:
    found: dict[Term, None] = {}
    for proof in several:
        values = [v for firing in proof.firings for v in firing.values if isinstance(v, Term)]
        for term in (*proof.statement.left, *proof.statement.right, *values):
            found |= dict.fromkeys(postorder(term))
    return list(found)


def written(proof: Proof) -> str:
    """The text, with the statements of the laws that it uses: they are no obstacle to a forger."""
    laws = law_statements([f for f in proof.firings if is_law(f)], installed())
    return write(replace(proof, laws=laws))


def is_law(firing: Firing) -> bool:
    pack, _, name = firing.law.partition("/")
    return pack in installed() and name in installed()[pack].laws


def test_mutated_certificates_prove_nothing_false(full: bool) -> None:
    rng, seen = random.Random(5), Counter[str]()
    for _ in range(1000 if full else 25):
        base = rng.choice(proofs())
        changed = mutant(base, rng)
        text = written(changed)
        if not check_certificate(text):
            seen["refused"] += 1
            continue
        assert changed.statement.assume or not is_false(changed.statement), str(changed.statement)
        same = changed.statement.left == base.statement.left
        same &= changed.statement.right == base.statement.right
        seen["still proves the same" if same else "proves something else that is true"] += 1
    print("\n", dict(seen))
    assert seen["refused"] > 0.4 * sum(seen.values())


def test_one_changed_character_proves_nothing_false(full: bool) -> None:
    rng, texts = random.Random(6), [written(proof) for proof in proofs()]
    for _ in range(1000 if full else 25):
        text = rng.choice(texts)
        at = rng.randrange(len(text))
        changed = text[:at] + rng.choice('0123456789mnAB*,:;"[]{}-+ ') + text[at + 1 :]
        if changed != text and check_certificate(changed):
            statement = parse(changed).statement
            assert statement.assume or not is_false(statement), changed


def forge(rng: random.Random) -> Proof | None:
    """A false statement with instances of real proofs, some renamed to fit it."""
    base, other = rng.choice(proofs()), rng.choice(proofs())
    pool = terms_of(base, other)
    right = mutated(base.statement.right[0], rng, pool)
    if rng.random() < 0.3:
        right = other.statement.right[0]
    packs = {"layout": installed()["layout"].version}
    false = replace(base.statement, right=(right,), packs=packs, assume=())
    if not is_false(false):
        return None
    firings = list(base.firings)
    style = rng.choice(("same", "renamed", "mutated", "all"))
    if style == "renamed":
        firings = [renamed(f, base.statement.right[0], right) for f in firings]
    if style == "mutated":
        firings += mutant(base, rng).firings
    if style == "all":
        firings += [f for proof in proofs() for f in proof.firings]
    rng.shuffle(firings)
    return Proof(false, tuple(firings))


def renamed(firing: Firing, old: Term, new: Term) -> Firing:
    """The instance with a term replaced everywhere."""

    def image(term: Term) -> Term:
        images: dict[Term, Term] = {}
        for sub in postorder(term):
            args = tuple(images[a] if isinstance(a, Term) else a for a in sub.args)
            images[sub] = new if sub is old else Term(sub.symbol, args)
        return images[term]

    values = (image(v) if isinstance(v, Term) else v for v in firing.values)
    return replace(firing, values=tuple(values))


def test_forged_certificates_of_false_statements_are_refused(full: bool) -> None:
    rng, wanted, done = random.Random(8), 200 if full else 20, 0
    for _ in range(50 * wanted):
        forged = forge(rng)
        if forged is None:
            continue
        assert not check_certificate(written(forged)), str(forged.statement)
        done += 1
        if done == wanted:
            return
    pytest.fail(f"only {done} forgeries")


def test_what_is_needed_is_needed(full: bool) -> None:
    for number, proof in enumerate(proofs()):
        for n in range(0 if full else number % 4, len(proof.firings), 1 if full else 4):
            fewer = replace(proof, firings=proof.firings[:n] + proof.firings[n + 1 :])
            accepted = check_certificate(written(fewer))
            assert not accepted or len(proof.firings) > 12, str(proof.statement)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (t.AnyLayout("A", "4", ""), t.AnyLayout("A", "8", "")),
        (t.AnyLayout("A", "4", ""), t.Permute(t.AnyLayout("A", "4", ""), "2,3", "1,0")),
        (t.Slice(t.AnyLayout("A", "4", ""), "4", "0:n"), t.AnyLayout("B", "n", "")),
        (t.Compose(t.AnyLayout("A", "4", ""), t.AnyLayout("B", "2", "")),) * 2,
        (t.AnyLayout("A", "n/8", ""),) * 2,
        (t.AnyLayout("A", "n * 1", ""),) * 2,
        (t.Map(t.SymIter("n-1", "1", "m", t.NoIter()), t.Here()),) * 2,
        (t.Map(t.Iter(0, 1, "m", t.NoIter()), t.Here()),) * 2,
    ],
)
def test_statements_that_make_no_sense_are_refused(left: Term, right: Term) -> None:
    statement = Statement("layouts", (left,), (right,), packs={}, numerics="exact")
    assert not check_certificate(write(Proof(statement, ())))


def test_sorts_and_symbols_of_certificates_are_those_of_layouts() -> None:
    sorts: set[Sort] = {s for symbol in SYMBOLS["layouts"].values() for s in symbol.args}
    assert {sort for sort in sorts if not sort.primitive} <= {*t.SORTS, t.BOX}
    symbols: set[Symbol] = set(SYMBOLS["layouts"].values())
    assert symbols == set(t.SYMBOLS)
