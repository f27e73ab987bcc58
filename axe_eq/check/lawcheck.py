"""Automatic tests of laws: both sides mean the same wherever the law says it holds.

Every law is a Python function, so it is its own generator of test cases: samples of its parameters
give two ground terms, which are evaluated by the numpy meaning. Exact laws must agree bit for bit,
special values included; real laws on float64 to a relative 1e-9, and where they are undefined. For
that inputs also stand for what may be undefined or infinite (`const_any_x0`), and are often 0. Each
law must also fire, alone, on its own left side.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from axe_eq.check.lawsample import Sample, Sampler
from axe_eq.check.opcheck import check_operators
from axe_eq.egraph.compile import analyses_in, variables_in
from axe_eq.egraph.normal import Normalizer
from axe_eq.egraph.session import Session
from axe_eq.errors import AxeError, cause, raised_at
from axe_eq.layout.symbolic import terms as layout_terms
from axe_eq.layout.symbolic.instances import meanings
from axe_eq.pack import Pack
from axe_eq.program.facts import ANYTHING
from axe_eq.program.meaning import evaluate_nodes, evaluate_unchecked
from axe_eq.program.node import INPUT, topological
from axe_eq.program.ops import CELLS, split_text
from axe_eq.program.terms import (
    ARGS,
    OPERATORS,
    VALUE,
    Cons,
    In,
    Nil,
    Op,
    decode,
    type_of,
    types_of,
)
from axe_eq.program.types import Array, value_type
from axe_eq.prove.certificates.rebuild import in_float64
from axe_eq.prove.programs.canonical import OneWay
from axe_eq.prove.programs.compare import difference, random_array, real_input
from axe_eq.prove.programs.frontier import show
from axe_eq.prove.programs.reals import Real, difference_over_reals, evaluate_reals
from axe_eq.rule.law import Instance, Law
from axe_eq.rule.term import Ground, Sort, Term, mapped, postorder
from axe_eq.schedule import terms as schedule_terms
from axe_eq.schedule.meaning import Evaluator, tiles_in

Inputs = Mapping[str, Array]

LEAST_SHARE = 0.1  # of samples for which a law's condition must hold
PATIENCE = 20_000  # attempts to meet a law's condition a first time
_AGAIN = 500  # attempts to find another sample
_REPEATS = 60  # usable attempts in a row, for each sample found, that give none that is new


def _value(term: Term, inputs: Inputs) -> Array:
    node = decode(term)
    return evaluate_nodes([node], inputs)[node]


def _layout(term: Term, inputs: Inputs) -> Any:
    return meanings([term])


# What terms of a sort mean: a function of the term and the inputs' arrays. Results are nested
# sequences of arrays and contents of memory, compared by value, and of things compared by ==. A
# pack that declares a sort registers its meaning here.
MEANINGS: dict[Sort, Callable[[Term, Inputs], Any]] = {
    VALUE: _value,
    **dict.fromkeys(layout_terms.SORTS, _layout),
    schedule_terms.PLACED: lambda t, x: Evaluator(x).memory(t),
    schedule_terms.TILE: lambda t, x: Evaluator(x).parts(t),
    schedule_terms.TILES: lambda t, x: [Evaluator(x).parts(tile) for tile in tiles_in(t)],
}


@dataclass(frozen=True)
class Finding:
    """Something wrong with a law or an operator.

    Attributes:
        law: its key; of an operator "cell NAME", "monoid NAME" or "selector NAME".
        problem: what is wrong, in one sentence with the values.
        statement: the law as its docstring states it.
        left, right: the two sides at which it shows, where there are any.
        value_left, value_right: what they evaluate to; undefined elements are nan.
        inputs: at which they do.
    """

    law: str
    problem: str
    statement: str = ""
    left: str = ""
    right: str = ""
    value_left: str = ""
    value_right: str = ""
    inputs: str = ""

    def __str__(self) -> str:
        about = self.law if " " in self.law else f"law '{self.law}'"
        lines = [f"{about}: {self.problem}"]
        if self.statement:
            lines.append(f"  states: {self.statement}")
        if self.left:
            lines.append(f"  left:   {self.left}\n  right:  {self.right}")
        if self.value_left:
            lines.append(f"  left is  {self.value_left}\n  right is {self.value_right}")
        if self.inputs:
            lines.append(f"  where {self.inputs}")
        return "\n".join(lines)


@dataclass(frozen=True)
class Checked:
    """What the test of one law did.

    Attributes:
        findings: what is wrong; empty for a law that passed.
        usable: samples that met the law's condition and were compared.
        tried: samples drawn since the first usable one.
        explored: samples drawn before it.
    """

    law: str
    findings: tuple[Finding, ...]
    usable: int
    tried: int
    explored: int


def check_pack(pack: Pack, samples: int = 25, *, patience: int = PATIENCE) -> list[Finding]:
    """Test every law of a pack, and what its operators declare of themselves.

    Args:
        pack: the pack.
        samples: usable samples to compare per law.
        patience: attempts per law to meet its condition a first time.
    """
    found = (check_law(f"{pack.name}/{n}", w, samples, patience) for n, w in pack.laws.items())
    wrong = [Finding(*pair) for pair in check_operators(pack.operators)]
    return wrong + [finding for checked in found for finding in checked.findings]


def check_law(key: str, law: Law, samples: int = 25, patience: int = PATIENCE) -> Checked:
    """Test one law; the same law gives the same samples in every process.

    Arguments as for `check_pack`.
    """
    findings = list(_check_text(key, law))
    try:
        sort = law.sort
        if sort not in MEANINGS:
            wrong = f"its sides are of sort {sort}, which has no entry in lawcheck.MEANINGS"
            return Checked(key, (*findings, Finding(key, wrong, law.statement)), 0, 0, 0)
        if unbound := _unbound(law):
            wrong = f"its left side does not have {unbound}, so it says nothing of them"
            return Checked(key, (*findings, Finding(key, wrong, law.statement)), 0, 0, 0)
        sampler = Sampler(law, random.Random(zlib.crc32(key.encode())))
        good = _collect(sampler, samples, patience)
        findings += _check_samples(key, law, good, sampler)
    except AxeError as error:
        findings.append(Finding(key, f"cannot be tested ({error})", law.statement))
    except Exception as error:  # its function or sampler may fail in any way
        wrong = f"cannot be tested ({cause(error)}, at {raised_at(error)})"
        findings.append(Finding(key, wrong, law.statement))
    else:
        return Checked(key, tuple(findings), len(good), sampler.tried, sampler.explored)
    return Checked(key, tuple(findings), 0, 0, 0)


def _check_text(key: str, law: Law) -> Iterator[Finding]:
    if "=" not in law.statement:
        yield Finding(key, "its docstring states no equality", law.statement)
    if not law.source:
        yield Finding(key, "it has no source", law.statement)


def _unbound(law: Law) -> str:
    """Parameters that the left side does not have: as a rewrite, the law cannot know them."""
    if law.normal:
        return ""
    known = variables_in(law.pattern().left)
    return ", ".join(name for name, _ in law.params if name not in known)


def _collect(sampler: Sampler, samples: int, patience: int) -> list[Sample]:
    """Distinct usable samples, at most so many; fewer where the sampler only repeats itself."""
    found: dict[tuple[Any, ...], Sample] = {}
    left, known = patience if sampler.law.params else 1, 0
    while len(found) < samples and left > 0 and known < _REPEATS * max(1, len(found)):
        sample = sampler.attempt()
        left -= 1
        if sample is None:
            continue
        known += 1
        if found.setdefault(sample.values, sample) is sample:
            left, known = max(left, _AGAIN), 0
    return list(found.values())


def _check_samples(
    key: str, law: Law, samples: list[Sample], sampler: Sampler
) -> Iterator[Finding]:
    if not samples:
        wrong = f"its condition held in none of {sampler.tried} samples"
        if not sampler.tried:
            why = f" ({sampler.refused})" if sampler.refused else ""
            wrong = f"no sample of its left side could be made{why}"
        yield Finding(key, f"{wrong}; give a sampler", law.statement)
        return
    if sampler.usable < LEAST_SHARE * sampler.tried:
        share = f"{sampler.usable} of {sampler.tried}"
        yield Finding(key, f"its condition held in only {share} samples; give a sampler")
    rng = np.random.default_rng(zlib.crc32(key.encode()))
    for sample in samples:
        finding = compare(key, law, sample, rng)
        if finding is not None:
            yield finding
            return
    if not law.normal or law.params[0][1] == VALUE:
        yield from _check_fires(key, law, samples[:3])


# -- both sides mean the same ----------------------------------------------------------------------


def compare(key: str, law: Law, sample: Sample, rng: np.random.Generator) -> Finding | None:
    """Evaluate both sides of a sample; what is wrong, or None.

    Where a law also holds for inputs that may be anything, both sides are evaluated at such, over
    the reals.
    """
    finding = _compare(key, law, sample.instance, _WAYS[law.exact and not law.demand], rng)
    if finding is not None:
        return finding
    found = (_compare(key, law, wild, _WILD, rng) for wild in wilder(sample, law))
    return next((finding for finding in found if finding is not None), None)


def _undeclared(side: Term) -> Iterator[str]:
    """Names of cells that nobody declared, for which no term has a type."""
    cells = (split_text(term.args[1])[0] for term in postorder(side) if term.symbol is Op)
    return (name for name in cells if name not in CELLS)


def _compare(
    key: str,
    law: Law,
    instance: Instance,
    ways: Sequence[tuple[str, str]],
    rng: np.random.Generator,
) -> Finding | None:
    left, right = instance.left, instance.right
    shown = {"statement": law.statement, "left": show(left), "right": show(right)}
    if undeclared := [name for side in (left, right) for name in _undeclared(side)]:
        return Finding(key, f"it has cell {undeclared[0]!r}, which is not declared", **shown)
    if left.sort == VALUE and type_of.of(left) != type_of.of(right):
        types = f"{type_of.of(left)} and {type_of.of(right)}"
        return Finding(key, f"its sides have types {types}", **shown)
    known: set[str] = set()  # ways that no other inputs can change
    for how, values in ways:
        if how in known:
            continue
        try:
            a, b, inputs = _both(left, right, how, values, rng)
        except Exception as error:  # a pack's own cells may fail in any way
            return Finding(key, f"cannot be evaluated ({type(error).__name__}: {error})", **shown)
        problem = _difference(a, b, how)
        if problem is not None and (how == BITS or not _overflows((left, right), inputs)):
            given = {"inputs": _print_inputs(inputs)} if isinstance(a, Real) else {}
            a, b = (_shown(x) if isinstance(x, Real) else x for x in (a, b))
            shown |= {"value_left": _print(a), "value_right": _print(b), **given}
            return Finding(key, problem, **shown)
        if not inputs:
            known |= {how} if left.sort == VALUE else {BITS, REALS}
    return None


BITS, REALS = "bits", "reals"
# How the two sides are compared, on which values; laws that hold bit for bit are also believed over
# the reals, where nothing rounds. Demand laws cut reductions in parts, whose order is not part of
# what an operator means: they are compared as reals.
_BITWISE = ("moderate", "special", "ties", "ties", "whole")
_WAYS = {
    True: (
        *((BITS, values) for values in _BITWISE),
        *((REALS, values) for values in ("moderate", "ends", "edges")),
    ),
    False: tuple((REALS, v) for v in ("moderate", "moderate", "ends", "edges", "edges")),
}
_WILD = ((REALS, "edges"),) * 3


def _difference(a: Any, b: Any, how: str) -> str | None:
    if isinstance(a, Real):
        return difference_over_reals(a, b)
    return difference(a, b, exact=how == BITS)


def _both(
    left: Term, right: Term, how: str, values: str, rng: np.random.Generator
) -> tuple[Any, Any, Mapping[str, Any]]:
    """What both sides mean on random inputs, and these."""
    with np.errstate(all="ignore"):
        if left.sort != VALUE:
            meaning, inputs = MEANINGS[left.sort], _inputs((left, right), rng, values)
            return meaning(left, inputs), meaning(right, inputs), inputs
        sides = [decode(left), decode(right)]
        if how == REALS:
            sides = in_float64(sides)
        given = [n for n in topological(sides) if n.kind == INPUT]
        if how == REALS:
            reals = {n.text: real_input(n.text, n.type, rng, values) for n in given}
            found = evaluate_reals(sides, reals)
            return found[sides[0]], found[sides[1]], reals
        inputs = {n.text: random_array(n.type, rng, values) for n in given}
        a, b = OneWay(inputs).evaluate(sides)
        return a, b, inputs


def _inputs(terms: Iterable[Term], rng: np.random.Generator, values: str) -> Inputs:
    found: dict[str, Array] = {}
    for term in terms:
        for sub in postorder(term):
            if sub.symbol is In and sub.args[0] not in found:
                found[sub.args[0]] = random_array(value_type(sub.args[1]), rng, values)
    return found


def _overflows(sides: tuple[Term, Term], given: Mapping[str, Any]) -> bool:
    """Whether some value is so large that rounding explains any difference."""
    inputs = {n: x.values if isinstance(x, Real) else x for n, x in given.items()}
    nodes = [decode(t) for side in sides for t in postorder(side) if t.sort == VALUE]
    for node, array in evaluate_nodes(in_float64(nodes), inputs, evaluate_unchecked).items():
        if array.dtype.kind in "iub" or not node.args:
            continue
        size = np.abs(array.astype(np.float64))
        if bool(((size > 1e12) & np.isfinite(size)).any()):
            return True
    return False


def _shown(value: Real) -> Array:
    """Values with NaN where they are undefined."""
    if not value.undefined.any():
        return value.values
    return np.where(value.undefined, np.nan, value.values)


def _print_inputs(inputs: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} = {_print(_shown(value))}" for name, value in inputs.items())


def _print(value: Any) -> str:
    text = str(value.tolist() if isinstance(value, np.ndarray) else value)
    return text if len(text) <= 400 else f"{text[:400]}..."


# -- the law fires ---------------------------------------------------------------------------------


def _check_fires(key: str, law: Law, samples: Sequence[Sample]) -> Iterator[Finding]:
    """Each law, alone in an e-graph that holds the left side, must make the sides equal."""
    if samples[0].facts:  # other samples may state others about the same input
        samples = samples[:1]
    laws = {key: law}
    calls = [] if law.normal else [c.function for c in law.pattern().calls]
    analyses = dict.fromkeys([type_of, types_of, *analyses_in(calls)])
    pairs = [(s.instance.left, s.instance.right) for s in samples]
    about_layouts = pairs[0][0].sort in layout_terms.SORTS
    met = dict.fromkeys(t.symbol for pair in pairs for side in pair for t in postorder(side))
    symbols = layout_terms.SYMBOLS if about_layouts else met
    session = Session({"law": laws}, [In, *OPERATORS, Nil, Cons, *symbols], list(analyses))
    for left, _ in pairs:
        for term in postorder(
            left
        ):  # one by one: requests inside others are not inserted with them
            session.insert(term)
    for analysis, term, fact in (fact for s in samples for fact in s.facts):
        if term in postorder(pairs[0][0]):
            session.set_facts(analysis, [(term, fact)])
    session.close()
    if law.normal:
        Normalizer(session, laws).round()
    for _ in range(6):  # primitives that call one another are answered a round apart
        session.run("law", rounds=1)
    for left, right in pairs:
        for term in postorder(right):
            session.insert(term)
        session.close()
        if not session.equal(left, right):
            yield Finding(
                key, "it does not fire on its own left side", law.statement, show(left), show(right)
            )
            return


# -- inputs that may be anything -------------------------------------------------------------------


def wilder(sample: Sample, law: Law) -> Iterator[Instance]:
    """The law where its inputs, one by one and all, may be undefined or infinite.

    It says nothing there where its condition asks for more; inputs of which something is
    stated stay as they are.
    """
    leaves = {t for v in sample.values if isinstance(v, Term) for t in postorder(v)}
    inputs = sorted((t for t in leaves if t.symbol is In), key=repr)
    if sample.facts or law.demand or sample.instance.left.sort not in (VALUE, ARGS):
        return
    for chosen in ([x] for x in inputs), [inputs] if len(inputs) > 1 else []:
        for group in chosen:
            image = {x: In(ANYTHING + x.args[0], x.args[1]) for x in group}
            found = law.instance([replaced(v, image) for v in sample.values])
            if found is not None:
                yield found


def replaced(value: Ground, image: Mapping[Term, Term]) -> Ground:
    """A value with some of its inputs replaced."""
    return mapped(value, known=image) if isinstance(value, Term) else value
