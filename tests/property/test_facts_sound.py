"""Facts about values hold: whatever the inputs, also where these may be undefined or infinite."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np

from axe_eq.check.lawcheck import replaced
from axe_eq.check.lawkinds import Misfit
from axe_eq.check.lawsample import Maker
from axe_eq.errors import AxeError
from axe_eq.program.decisions import Draw
from axe_eq.program.facts import ANYTHING, MASKED, facts_of, facts_of_number
from axe_eq.program.known import ABOVE, BELOW, DEFINED, NONNEGATIVE, NONZERO
from axe_eq.program.node import INPUT, topological
from axe_eq.program.ops import CELLS, MONOIDS
from axe_eq.program.signature import signature
from axe_eq.program.terms import In, decode, op, type_of
from axe_eq.prove.certificates.rebuild import in_float64
from axe_eq.prove.programs.compare import real_input
from axe_eq.prove.programs.reals import Real, evaluate_reals
from axe_eq.rule.term import Term, postorder

CLAIMS: dict[int, Callable[[Real], Any]] = {
    DEFINED: lambda x: ~x.undefined,
    BELOW: lambda x: x.undefined | (x.values != np.inf),
    ABOVE: lambda x: x.undefined | (x.values != -np.inf),
    NONNEGATIVE: lambda x: x.undefined | ~(x.values < 0),
    NONZERO: lambda x: x.undefined | (x.values != 0),
}


def evaluated(term: Term, rng: np.random.Generator, values: str) -> Real:
    (root,) = in_float64([decode(term)])
    given = {
        n.text: real_input(n.text, n.type, rng, values)
        for n in topological([root])
        if n.kind == INPUT
    }
    return evaluate_reals([root], given)[root]


def broken(term: Term, rng: np.random.Generator) -> str:
    """A claim that a sample breaks; "" where none does."""
    facts = facts_of.of(term)
    for values in ("moderate", "edges", "edges", "ends"):
        found = evaluated(term, rng, values)
        for fact, claim in CLAIMS.items():
            if facts & fact and not (claim(found) | found.lost).all():
                return f"fact {fact} of {term}"
    return ""


def wild(term: Term, rng: random.Random) -> Term:
    """The value with some inputs that may be anything, or -inf."""
    inputs = [t for t in postorder(term) if t.symbol is In]
    kinds = {x: rng.choice(("", "", MASKED, ANYTHING)) for x in inputs}
    image = {x: In(kind + x.args[0], x.args[1]) for x, kind in kinds.items()}
    found = replaced(term, image)
    assert isinstance(found, Term)
    return found


def test_facts_about_random_values_hold(full: bool) -> None:
    rng, numbers, known = random.Random(3), np.random.default_rng(3), Counter[int]()
    for _ in range(4000 if full else 140):
        try:
            drawn = Maker(Draw(rng, None, 0.0), real=True).random_value(3, "t")
            term = wild(drawn, rng)
            if type_of.of(term) is None:
                continue
        except (Misfit, AxeError):
            continue
        known.update(fact for fact in CLAIMS if facts_of.of(term) & fact)
        assert not broken(term, numbers)
    assert all(known[fact] for fact in CLAIMS), known


def test_facts_about_every_cell_and_reduction_hold(full: bool) -> None:
    """One operator on inputs of every kind, positive and not zero ones among them."""
    rng, numbers = random.Random(4), np.random.default_rng(4)
    x = In("x", "f64[3,4]")
    anything, masked = In(f"{ANYTHING}y", "f64[3,4]"), In(f"{MASKED}z", "f64[3,4]")
    plain = "a b -> a b"
    leaves = [x, anything, masked, *(op(plain, f, v) for f in ("exp", "abs", "cosh", "neg")
                                     for v in (x, masked, anything))]  # fmt: skip
    for name in CELLS:
        declared = CELLS[name]
        arity = declared.arity or 2
        for _ in range(20 if full else 1):
            operands = [rng.choice(leaves) for _ in range(arity)]
            for n in range(declared.n_conditions):
                operands[n] = op("a b, a b -> a b", "gt", *(rng.choice(leaves) for _ in "xy"))
            text = f"{name} f64" if declared.result == "param" else name
            for monoid in ("", "+", "max", "*") if declared.n_values == 1 else ("softmax",):
                if monoid and monoid not in MONOIDS:
                    continue
                read = ", ".join(["a b"] * arity)
                sig = signature(f"{read} -> a; {monoid} b" if monoid else f"{read} -> a b").text
                term = op(sig, text, *operands)
                if type_of.of(term) is not None:
                    assert not broken(term, numbers), term


def test_numbers_are_what_they_are() -> None:
    assert facts_of_number(0.0) == DEFINED | BELOW | ABOVE | NONNEGATIVE
    assert facts_of_number(-np.inf) == DEFINED | BELOW | NONZERO
    assert not facts_of_number(float("nan")) & DEFINED
    assert facts_of_number(-(10**400)) == DEFINED | BELOW | ABOVE | NONZERO
