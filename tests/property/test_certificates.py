"""Attacks on certificates: forged ones of false statements, built from real instances, are
refused."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import axe_eq.array as xp
from axe_eq.pack import installed
from axe_eq.program.meaning import evaluate_nodes
from axe_eq.program.spec import Spec
from axe_eq.program.terms import VALUE, Op, Sel, decode, type_of
from axe_eq.program.trace import trace
from axe_eq.program.types import value_type
from axe_eq.prove.certificates.certificate import Firing, Proof, Statement, parse
from axe_eq.prove.certificates.checker import check_certificate, law_statements
from axe_eq.prove.certificates.proof import write
from axe_eq.prove.certificates.verdict import Proved
from axe_eq.prove.programs.prover import prove_programs
from axe_eq.rule.term import Ground, Term, postorder

N, M, K = 3, 4, 6
PAIRS: list[tuple[Callable[..., Any], Callable[..., Any]]] = [
    (lambda x, y, w: x + y, lambda x, y, w: y + x),
    (lambda x, y, w: (x + y) @ w, lambda x, y, w: x @ w + y @ w),
    (lambda x, y, w: (x @ w) @ w.T, lambda x, y, w: x @ (w @ w.T)),
    (lambda x, y, w: (x @ w).T, lambda x, y, w: w.T @ x.T),
    (lambda x, y, w: x - (x - y), lambda x, y, w: y),
    (lambda x, y, w: xp.exp(xp.negative(xp.negative(x))), lambda x, y, w: xp.exp(x)),
    (lambda x, y, w: xp.sum(x * y, axis=1), lambda x, y, w: xp.sum(y * x, axis=1)),
    (lambda x, y, w: xp.concat([x, y], axis=0)[:N], lambda x, y, w: x),
    (lambda x, y, w: (x @ w)[1:, :], lambda x, y, w: x[1:, :] @ w),
    (lambda x, y, w: (x * 2.0 + y * 2.0) / 2.0, lambda x, y, w: x + y),
    (lambda x, y, w: xp.tanh((x + y) @ w), lambda x, y, w: xp.tanh(y @ w + x @ w)),
]  # fmt: skip
VERSIONS = {name: pack.version for name, pack in installed().items()}
SPECS = Spec((N, M), "f64"), Spec((N, M), "f64"), Spec((M, K), "f64")


@cache
def proofs() -> tuple[Proof, ...]:
    found = []
    for a, b in PAIRS:
        proved = prove_programs(trace(a, *SPECS), trace(b, *SPECS), installed().values())
        assert isinstance(proved, Proved), str(proved)
        assert check_certificate(proved.certificate)
        found.append(parse(proved.certificate))
    return tuple(found)


# -- what is false ---------------------------------------------------------------------------------


def is_false(statement: Statement) -> bool:
    """Whether the two sides differ on numbers, by far more than rounding."""
    rng = np.random.default_rng(5)
    inputs = {
        name: rng.integers(1, 9, value_type(of).shape).astype(np.float64)
        for name, of in statement.inputs
    }
    for left, right in zip(statement.left, statement.right, strict=True):
        nodes = [decode(left), decode(right)]
        a, b = (evaluate_nodes([n], inputs)[n] for n in nodes)
        with np.errstate(all="ignore"):
            if np.any(np.abs(a - b) > 1e-6 * (np.abs(a) + np.abs(b))):
                return True
    return False


# -- mutations -------------------------------------------------------------------------------------

CELLS = ("add", "sub", "mul", "div", "maximum", "id", "neg", "exp", "tanh", "abs")
SIGNATURES = ("a b -> a b", "b a -> a b", "a b, a b -> a b", "a c, c b -> a b; + c")


def replaced(term: Term, old: Term, new: Term) -> Term:
    """The term with every occurrence of `old` replaced."""
    images: dict[Term, Term] = {}
    for sub in postorder(term):
        args = tuple(images[a] if isinstance(a, Term) else a for a in sub.args)
        images[sub] = new if sub is old else Term(sub.symbol, args)
    return images[term]


def mutants(term: Term, rng: random.Random, pool: list[Term]) -> Iterator[Term]:
    """Well-typed terms of the same type that differ from this one in one place."""
    subs = [s for s in postorder(term) if s.sort == VALUE]
    for _ in range(30):
        old = rng.choice(subs)
        choices = [t for t in pool if type_of.of(t) == type_of.of(old) and t is not old]
        if old.symbol is Op:
            choices.append(Op(old.args[0], rng.choice(CELLS), old.args[2]))
            choices.append(Op(rng.choice(SIGNATURES), *old.args[1:]))
        if old.symbol is Sel:
            choices.append(Sel(old.args[0].replace("0", "1"), old.args[1]))
        if not choices:
            continue
        new = replaced(term, old, rng.choice(choices))
        if new is not term and type_of.of(new) == type_of.of(term):
            yield new


def mutated(firing: Firing, rng: random.Random, pool: list[Term]) -> Firing:
    """An instance with one of its values changed."""
    values = list(firing.values)
    at = rng.randrange(len(values))
    values[at] = other_value(values[at], rng, pool)
    return replace(firing, values=tuple(values))


def renamed(firing: Firing, old: Term, new: Term) -> Firing:
    """The instance with a term replaced everywhere."""
    values = (replaced(v, old, new) if isinstance(v, Term) else v for v in firing.values)
    return replace(firing, values=tuple(values))


def other_value(value: Ground, rng: random.Random, pool: list[Term]) -> Ground:
    if isinstance(value, Term):
        return next(mutants(value, rng, pool), value) if value.sort == VALUE else value
    if isinstance(value, int):
        return value + rng.choice((-1, 1))
    return rng.choice([*CELLS, *SIGNATURES])


def forge(rng: random.Random) -> Proof | None:
    """A certificate of a false statement, from instances of real proofs."""
    base, other = rng.choice(proofs()), rng.choice(proofs())
    statement = base.statement
    pool = [s for p in (base, other) for f in p.firings for v in f.values if isinstance(v, Term)
            for s in postorder(v) if s.sort == VALUE]  # fmt: skip
    pool += [t for t in (*other.statement.left, *other.statement.right)]
    wrong = next(mutants(statement.right[0], rng, pool), None)
    if wrong is None:
        return None
    false = replace(statement, right=(wrong,), packs=VERSIONS)
    if rng.random() < 0.3:
        real = {name for name, pack in installed().items() if not pack.exact}
        packs = {n: v for n, v in false.packs.items() if n not in real}
        false = replace(false, numerics="exact", packs=packs)
    if not is_false(false):
        return None
    firings = list(base.firings)
    style = rng.choice(("same", "renamed", "mutated", "all", "both ways"))
    if style == "renamed":  # the proof of another statement, carried over by renaming its root
        firings = [renamed(f, statement.right[0], wrong) for f in firings]
    if style in ("mutated", "both ways"):
        firings += [mutated(rng.choice(firings), rng, pool) for _ in range(4) if firings]
    if style == "both ways":
        firings += [replace(f, values=f.values[::-1]) for f in base.firings]
    if style == "all":
        firings += [f for p in proofs() for f in p.firings]
    rng.shuffle(firings)
    return listed(Proof(false, tuple(firings)))


def listed(proof: Proof) -> Proof:
    """The proof with exactly the laws that it uses, so that it is refused for nothing else."""
    return replace(proof, laws=law_statements(proof.firings, installed()))


def test_forged_certificates_of_false_statements_are_refused(full: bool) -> None:
    rng, wanted, done = random.Random(11), 500 if full else 15, 0
    for _ in range(100 * wanted):
        forged = forge(rng)
        if forged is None:
            continue
        text = write(forged)
        assert parse(text) == forged  # well-formed: only its content is false
        assert not check_certificate(text), forged
        done += 1
        if done == wanted:
            return
    pytest.fail(f"only {done} forgeries")


def test_cells_with_parameters_that_they_do_not_take_are_refused() -> None:
    tried = 0
    for text in map(write, proofs()):
        for name in CELLS:
            looks_alike = text.replace(f'"{name}"', f'"{name} 5"')  # x + y + 5 to numpy
            tried += looks_alike != text
            assert looks_alike == text or not check_certificate(looks_alike)
    assert tried > 10


def test_minimal_certificates_need_every_instance() -> None:
    for proof in proofs():
        for n in range(len(proof.firings)):
            fewer = listed(replace(proof, firings=proof.firings[:n] + proof.firings[n + 1 :]))
            assert not check_certificate(write(fewer))


def test_certificates_survive_any_order_and_any_more_instances() -> None:
    rng = random.Random(3)
    everything = [f for p in proofs() for f in p.firings]
    for proof in proofs():
        assert check_certificate(write(replace(proof, firings=proof.firings[::-1])))
        more = [*proof.firings, *rng.sample(everything, min(4, len(everything)))]
        names = {name for p in proofs() for name, _ in p.statement.inputs}
        assert names == {name for name, _ in proof.statement.inputs}
        whole = replace(proof.statement, packs=VERSIONS)
        assert check_certificate(write(listed(Proof(whole, tuple(more)))))


def test_changing_one_character_never_proves_something_else(full: bool) -> None:
    rng, done = random.Random(2), 0
    texts = [write(p) for p in proofs()]
    while done < (2000 if full else 60):
        text = rng.choice(texts)
        at = rng.randrange(len(text))
        changed = text[:at] + rng.choice('0123456789abcxyw,:;"[]{}->+ ') + text[at + 1 :]
        if changed == text:
            continue
        done += 1
        if check_certificate(changed):
            assert not is_false(parse(changed).statement), changed
