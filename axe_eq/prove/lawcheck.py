"""Automatic tests of laws: both sides mean the same wherever the law says it holds.

Every law is a Python function, so it is its own generator of test cases: samples of its parameters
give two ground terms, which are evaluated by the numpy meaning. Exact laws must agree bit for bit,
special values included; real laws on float64 to a relative 1e-9. Each law must also fire, alone, on
its own left side.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from axe_eq.egraph.normal import Normalizer
from axe_eq.egraph.session import Session
from axe_eq.errors import AxeError
from axe_eq.layout import terms as layout_terms
from axe_eq.pack import Pack
from axe_eq.program.meaning import evaluate_nodes
from axe_eq.program.terms import VALUE, Cons, In, Nil, Op, Sel, decode, type_of, types_of
from axe_eq.program.types import DTYPES, Array, ValueType, value_type
from axe_eq.prove.bitwise import differing_bits
from axe_eq.prove.frontier import show
from axe_eq.prove.lawsample import Sample, Sampler
from axe_eq.rule.law import Law
from axe_eq.rule.term import Analysis, Sort, Term, postorder

Inputs = Mapping[str, Array]

TOLERANCE = 1e-9
LEAST_SHARE = 0.1  # of samples for which a law's condition must hold
PATIENCE = 20_000  # attempts to meet a law's condition a first time
_AGAIN = 500  # attempts to find another sample


def _value(term: Term, inputs: Inputs) -> Array:
    node = decode(term)
    return evaluate_nodes([node], inputs)[node]


def _map(term: Term, inputs: Inputs) -> Any:
    layout = layout_terms.decode(term)
    return [layout(x) for x in range(layout.size)]


# What terms of a sort mean: a function of the term and the inputs' arrays, whose results compare by
# values (arrays) or by ==. A pack that declares a sort registers its meaning here.
MEANINGS: dict[Sort, Callable[[Term, Inputs], Any]] = {
    VALUE: _value,
    layout_terms.LAYOUT: _map,
}


@dataclass(frozen=True)
class Finding:
    """Something wrong with a law.

    Attributes:
        law: its key.
        problem: what is wrong, in one sentence with the values.
        statement: the law as its docstring states it.
        left, right: the two sides at which it shows, where there are any.
        value_left, value_right: what they evaluate to.
    """

    law: str
    problem: str
    statement: str = ""
    left: str = ""
    right: str = ""
    value_left: str = ""
    value_right: str = ""

    def __str__(self) -> str:
        lines = [f"law '{self.law}': {self.problem}"]
        if self.statement:
            lines.append(f"  states: {self.statement}")
        if self.left:
            lines.append(f"  left:   {self.left}\n  right:  {self.right}")
        if self.value_left:
            lines.append(f"  left is  {self.value_left}\n  right is {self.value_right}")
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
    """Test every law of a pack.

    Args:
        pack: the pack.
        samples: usable samples to compare per law.
        patience: attempts per law to meet its condition a first time.
    """
    found = (check_law(f"{pack.name}/{n}", w, samples, patience) for n, w in pack.laws.items())
    return [finding for checked in found for finding in checked.findings]


def check_law(key: str, law: Law, samples: int = 25, patience: int = PATIENCE) -> Checked:
    """Test one law; the same law gives the same samples in every process.

    Arguments as for `check_pack`.
    """
    findings = list(_check_text(key, law))
    if not _can_evaluate(law):
        return Checked(key, tuple(findings), 0, 0, 0)
    try:
        sampler = Sampler(law, random.Random(zlib.crc32(key.encode())))
        good = _collect(sampler, samples, patience)
        findings += _check_samples(key, law, good, sampler)
    except AxeError as error:
        findings.append(Finding(key, f"cannot be tested ({error})", law.statement))
        return Checked(key, tuple(findings), 0, 0, 0)
    return Checked(key, tuple(findings), len(good), sampler.tried, sampler.explored)


def _can_evaluate(law: Law) -> bool:
    """Whether the sides of a law mean something that can be compared here."""
    if law.normal:
        return law.params[0][1] in MEANINGS
    return law.pattern().left.sort in MEANINGS


def _check_text(key: str, law: Law) -> Iterator[Finding]:
    if "=" not in law.statement:
        yield Finding(key, "its docstring states no equality", law.statement)
    if not law.source:
        yield Finding(key, "it has no source", law.statement)


def _collect(sampler: Sampler, samples: int, patience: int) -> list[Sample]:
    """Distinct usable samples, at most so many."""
    found: dict[tuple[Any, ...], Sample] = {}
    left = patience
    while len(found) < samples and left > 0:
        sample = sampler.attempt()
        left -= 1
        if sample is not None and found.setdefault(sample.values, sample) is sample:
            left = max(left, _AGAIN)
    return list(found.values())


def _check_samples(
    key: str, law: Law, samples: list[Sample], sampler: Sampler
) -> Iterator[Finding]:
    if not samples:
        tried = sampler.tried
        yield Finding(key, f"its condition held in none of {tried} samples; give a sampler")
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
    """Evaluate both sides of a sample; what is wrong, or None."""
    left, right = sample.instance.left, sample.instance.right
    shown = {"statement": law.statement, "left": show(left), "right": show(right)}
    if left.sort == VALUE and type_of.of(left) != type_of.of(right):
        types = f"{type_of.of(left)} and {type_of.of(right)}"
        return Finding(key, f"its sides have types {types}", **shown)
    meaning = MEANINGS[left.sort]
    for values in ("moderate", "special", "whole") if law.exact else ("moderate", "moderate"):
        inputs = _inputs((left, right), rng, values)
        try:
            a, b = meaning(left, inputs), meaning(right, inputs)
        except Exception as error:  # a pack's own cells may fail in any way
            return Finding(key, f"cannot be evaluated ({type(error).__name__}: {error})", **shown)
        problem = _difference(a, b, exact=law.exact)
        if problem is not None and not _allowed(law, (left, right), inputs):
            return Finding(key, problem, **shown, value_left=_print(a), value_right=_print(b))
    return None


def _inputs(terms: Iterable[Term], rng: np.random.Generator, values: str) -> Inputs:
    found: dict[str, Array] = {}
    for term in terms:
        for sub in postorder(term):
            if sub.symbol is In and sub.args[0] not in found:
                found[sub.args[0]] = _array(value_type(sub.args[1]), rng, values)
    return found


_SPECIAL = (0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, 3e38, 65504.0)


def _array(of: ValueType, rng: np.random.Generator, values: str) -> Array:
    """Values for an input.

    "moderate" ones of both signs; with "special" values among them; or "whole" numbers, whose sums
    do not depend on their order.
    """
    kind, numpy = DTYPES[of.dtype].kind, DTYPES[of.dtype].numpy
    if kind == "b":
        return np.asarray(rng.integers(0, 2, of.shape), dtype=bool)
    if kind == "i":
        special = values == "special"
        low, high = (np.iinfo(numpy).min, np.iinfo(numpy).max) if special else (-4, 5)
        return np.asarray(rng.integers(low, high, of.shape), dtype=numpy)
    if values == "whole":
        return np.asarray(rng.integers(-3, 4, of.shape), dtype=numpy)
    array = rng.uniform(0.5, 2.0, of.shape) * rng.choice([-1.0, 1.0], of.shape)
    if values == "special":
        array = np.where(rng.random(of.shape) < 0.4, rng.choice(_SPECIAL, of.shape), array)
    with np.errstate(all="ignore"):
        return np.asarray(array, dtype=numpy)


def _difference(a: Any, b: Any, *, exact: bool) -> str | None:
    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        return None if a == b else "its sides differ"
    if a.dtype != b.dtype or a.shape != b.shape:
        return f"its sides are {a.dtype}{list(a.shape)} and {b.dtype}{list(b.shape)}"
    if exact:
        return None if _bits(a) == _bits(b) else "its sides differ bit for bit"
    if a.dtype.kind in "ib":
        return None if np.array_equal(a, b) else "its sides differ"
    x, y = a.astype(np.float64), b.astype(np.float64)
    if not np.array_equal(np.isnan(x), np.isnan(y)):
        return "its sides are not defined at the same places"
    scale = np.maximum(np.maximum(np.abs(x), np.abs(y)), 1.0)
    with np.errstate(invalid="ignore"):
        apart = (x != y) & ~(np.abs(x - y) <= TOLERANCE * scale) & ~np.isnan(x)
    return "its sides differ over the reals" if bool(apart.any()) else None


def _bits(array: Array) -> bytes:
    """The bytes of an array, every NaN alike."""
    if array.dtype.kind in "ib":
        return array.tobytes()
    plain = array.astype(array.dtype, copy=True)
    plain[np.isnan(plain.astype(np.float64))] = np.nan
    return plain.tobytes()


def _allowed(law: Law, sides: tuple[Term, Term], inputs: Inputs) -> bool:
    """Whether a difference comes from what an implementation may choose, or from overflow."""
    if any(side.sort != VALUE for side in sides):
        return False
    left, right = map(decode, sides)
    if law.exact:
        same_type = left.type == right.type
        return same_type and differing_bits([left], [right], inputs) is None
    for node, array in evaluate_nodes([left, right], inputs).items():
        if array.dtype.kind in "ib" or not node.args:
            continue
        size = np.abs(array.astype(np.float64))
        if bool(((size > 1e12) & ~np.isnan(size)).any()):
            return True
    return False


def _print(value: Any) -> str:
    text = str(value.tolist() if isinstance(value, np.ndarray) else value)
    return text if len(text) <= 400 else f"{text[:400]}..."


# -- the law fires ---------------------------------------------------------------------------------


def _check_fires(key: str, law: Law, samples: Iterable[Sample]) -> Iterator[Finding]:
    """Each law, alone in an e-graph that holds the left side, must make the sides equal."""
    laws = {key: law}
    calls = [] if law.normal else [c.function for c in law.pattern().calls]
    analyses = dict.fromkeys([type_of, types_of, *(f for f in calls if isinstance(f, Analysis))])
    session = Session({"law": laws}, [In, Op, Sel, Nil, Cons], list(analyses))
    pairs = [(s.instance.left, s.instance.right) for s in samples]
    for left, _ in pairs:
        session.insert(left)
    session.close()
    if law.normal:
        Normalizer(session, laws).round()
    for _ in range(4):
        session.run("law", rounds=1)
    for left, right in pairs:
        session.insert(right)
        session.close()
        if not session.equal(left, right):
            yield Finding(
                key, "it does not fire on its own left side", law.statement, show(left), show(right)
            )
            return
