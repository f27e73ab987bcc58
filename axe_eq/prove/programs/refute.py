"""Refutation of program equality, rigorous: what it returns is never a rounding difference.

Over the reals, two programs are refuted by inputs on which the enclosures of one output element are
disjoint, or one of which is undefined for certain while the other is enclosed. Inputs are small
integers of both signs (then quarters, larger integers, and the ends of integer types), dense and
sparse, at the programs' own shapes. Where evaluating whole outputs would be expensive, inputs that
are equal from some index of every dim on are tried first, whose values are known from a few
elements each; then only some elements of the outputs are evaluated. Bit for bit, they are refuted
by a difference that no order of summation and no implementation of a function can explain.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from axe_eq.errors import ArgumentError, OutOfRange, SearchError
from axe_eq.program.gathers import index_limits
from axe_eq.program.interval import Interval, disjoint, literal, point, undefined
from axe_eq.program.node import Node, Program
from axe_eq.program.types import DTYPES, Array
from axe_eq.prove.certificates.rebuild import (
    over_inputs_of,
    reductions,
    reshape_program,
    type_difference,
)
from axe_eq.prove.certificates.verdict import ProgramCounterexample, Refuted
from axe_eq.prove.programs.bitwise import differing_bits
from axe_eq.prove.programs.enclose import Plan, enclose_program, plan, run
from axe_eq.prove.programs.lifted import lifted_plan
from axe_eq.prove.programs.region import Region, whole
from axe_eq.prove.programs.rounded import Rounded
from axe_eq.prove.programs.sample import ENDS, PATTERNS, PLAIN, RANDOM, SEARCHED, Sample, sampled
from axe_eq.prove.programs.undefined import undefined_apart, whole_plan

__all__ = ["BUDGET", "enclose_program", "find_counterexample", "refute", "reshape_program"]

BUDGET = 1 << 27  # interval operations, about 50 ns each
_CHEAP = 1 << 20  # outputs that cost no more are evaluated whole at once
_ROUNDS = 4
_LAST_RESORT = 64  # times its share that a single element may cost where nothing cheaper exists
_SHARE = 4  # at least so many evaluations fit in a budget
_CLEAR = 2.0**-6  # relative difference of values that stays visible in 8 bits
_POLES = ("ones", "minus ones", "dense", "negative", "sparse")  # patterns that meet poles
_READABLE = 64  # inputs with more elements get a witness at smaller extents


def refute(
    a: Program, b: Program, *, numerics: str = "real", seed: int = 0, budget: float = BUDGET
) -> Refuted | None:
    """Refute that two programs are equal.

    Args:
        a: a program.
        b: another; inputs and outputs are matched by position.
        numerics: "real" (over the reals) or "exact" (bit for bit, NaN = NaN).
        seed: of all choices; equal seeds give equal answers.
        budget: interval operations to spend, about 50 ns each.

    Returns:
        None where no certain difference was found.

    Raises:
        ArgumentError: unknown numerics.
    """
    difference = type_difference(a, b)
    if difference is not None:
        return Refuted(None, f"the types differ: {difference}")
    found = find_counterexample(a, b, numerics=numerics, seed=seed, budget=budget)
    if found is None:
        return None
    if numerics == "exact":
        return Refuted(found, f"output {found.output} differs bit for bit")
    alone = [side for side in "ab" if math.isnan(getattr(found, f"value_{side}"))]
    what = f"is undefined in {alone[0]} alone," if alone else "differs"
    return Refuted(found, f"output {found.output} {what} over the reals")


def find_counterexample(
    a: Program, b: Program, *, numerics: str = "real", seed: int = 0, budget: float = BUDGET
) -> ProgramCounterexample | None:
    """Inputs that tell two programs of equal types apart, with a witness at smaller extents.

    Arguments and errors as for `refute`.
    """
    if numerics not in ("real", "exact"):
        raise ArgumentError("numerics", f"is {numerics!r}", "'real' or 'exact'")
    pair = _Pair.of(a, b)
    if not pair.open_outputs:
        return None
    search = _search_real if numerics == "real" else _search_exact
    found = search(pair, seed, budget)
    if found is None or sum(x.type.size for x in pair.inputs) <= _READABLE:
        return found
    return dataclasses.replace(found, reduced=_reduced(a, b, numerics, seed, budget / 16))


def _reduced(
    a: Program, b: Program, numerics: str, seed: int, budget: float
) -> ProgramCounterexample | None:
    """A counterexample to the same two programs at smaller extents."""
    for extents in reductions([a, b]):
        small = reshape_program(a, extents), reshape_program(b, extents)
        if small[0] is None or small[1] is None or type_difference(small[0], small[1]):
            continue
        pair = _Pair.of(small[0], small[1])
        search = _search_real if numerics == "real" else _search_exact
        found = search(pair, seed, budget) if pair.open_outputs else None
        if found is not None:
            return found
    return None


@dataclass(frozen=True)
class _Pair:
    """Two programs over one list of inputs."""

    inputs: tuple[Node, ...]
    constants: dict[str, Array]
    outputs_a: tuple[Node, ...]
    outputs_b: tuple[Node, ...]
    rounded: Rounded
    below: tuple[int, ...] = ()

    @staticmethod
    def of(a: Program, b: Program) -> _Pair:
        inputs = tuple(i.node for i in a.inputs)
        outputs = a.outputs, tuple(over_inputs_of(a, b))
        below = index_limits([*outputs[0], *outputs[1]])
        limits = tuple(below.get(node, 0) for node in inputs) if below else ()
        return _Pair(inputs, a.constants | b.constants, *outputs, Rounded.of(a, b), limits)

    @property
    def open_outputs(self) -> list[int]:
        """Outputs that are not one node on both sides."""
        both = zip(self.outputs_a, self.outputs_b, strict=True)
        return [n for n, (x, y) in enumerate(both) if x is not y]

    @property
    def searched(self) -> tuple[str, ...]:
        """Patterns that may tell the programs apart."""
        whole = any(DTYPES[n.dtype].kind == "i" for n in self.inputs)
        return (*SEARCHED[:2], ENDS, *SEARCHED[2:]) if whole else SEARCHED

    def counterexample(
        self, sample: Sample, output: int, index: Sequence[int], a: Interval, b: Interval
    ) -> ProgramCounterexample:
        """From what the two sides have at one element."""
        kind = DTYPES[self.outputs_a[output].dtype].kind
        return ProgramCounterexample(
            inputs=sampled(sample, [n.type for n in self.inputs]),
            output=output,
            index=tuple(map(int, index)),
            value_a=_value(a, kind),
            value_b=_value(b, kind),
            bounds_a=(float(a.low), float(a.high)),
            bounds_b=(float(b.low), float(b.high)),
            names=tuple(n.text for n in self.inputs),
        )


def _value(x: Interval, kind: str) -> float | int | bool:
    if x.low != x.high:  # or there is no value
        return float(x.low / 2 + x.high / 2)
    return bool(x.low) if kind == "b" else int(x.low) if kind == "i" else float(x.low)


# -- bit for bit ---------------------------------------------------------------------------------


def _search_exact(pair: _Pair, seed: int, budget: float) -> ProgramCounterexample | None:
    outputs = [*pair.outputs_a, *pair.outputs_b]
    planned = _affordable(outputs, None, budget / _SHARE)
    if planned is None:
        return None
    for turn in range(_ROUNDS):
        for pattern in (*PLAIN, *pair.searched, *RANDOM):
            budget -= planned.cost
            found = (
                _try_exact(pair, planned, Sample(pattern, seed + turn, below=pair.below))
                if budget >= 0
                else None
            )
            if found is not None:
                return found
    return None


def _try_exact(pair: _Pair, planned: Plan, sample: Sample) -> ProgramCounterexample | None:
    arrays = {n.text: sample.array(i, n.type) for i, n in enumerate(pair.inputs)}
    try:
        found = differing_bits(pair.outputs_a, pair.outputs_b, pair.constants | arrays)
    except OutOfRange:  # of what is read where integers say nothing is stated there
        return None
    if found is None:
        return None
    output, index, *values = found
    made = pair.counterexample(sample, output, index, *(point(np.asarray(v)) for v in values))
    return _hinging(made, pair, planned, sample, (output, output + len(pair.outputs_a)), index)


# -- over the reals -------------------------------------------------------------------------------


def _search_real(pair: _Pair, seed: int, budget: float) -> ProgramCounterexample | None:
    left = budget
    for turn, planned in enumerate(_plans(pair, seed, budget / _SHARE)):
        left = max(left, planned.cost)  # a plan that was made is tried at least once
        for sample in _samples(planned, pair.searched, seed + turn, pair.below):
            left -= planned.cost
            if left < 0:
                return _search_undefined(pair, seed, budget / _SHARE)
            found = _try(pair, planned, sample)
            if found is not None:
                return _plainer(pair, planned, seed) or found
    return _search_undefined(pair, seed, budget / _SHARE)


def _search_undefined(pair: _Pair, seed: int, budget: float) -> ProgramCounterexample | None:
    """An input at which one side alone is defined."""
    try:
        planned = whole_plan([*pair.outputs_a, *pair.outputs_b], min(budget, _CHEAP))
    except SearchError:
        return None
    if planned is None:
        return None
    both = list(zip(pair.outputs_a, pair.outputs_b, strict=True))
    for pattern in _POLES:
        budget -= planned.cost
        sample = Sample(pattern, seed, below=pair.below)
        given = partial(_given, pair, sample)
        found = undefined_apart(planned, both, given) if budget >= 0 else None
        if found is not None:
            output, index, first = found
            return _undefined_at(pair, sample, output, index, first)
    return None


def _undefined_at(
    pair: _Pair, sample: Sample, output: int, index: tuple[int, ...], first: bool
) -> ProgramCounterexample:
    side = (pair.outputs_b if first else pair.outputs_a)[output]
    at = tuple(np.array([i]) for i in index)
    (value,) = run(plan([side], [at]), partial(_given, pair, sample))
    there = value.map(lambda bound: bound.reshape(()))
    none = undefined(())
    return pair.counterexample(sample, output, index, *((none, there) if first else (there, none)))


def _plainer(pair: _Pair, planned: Plan, seed: int) -> ProgramCounterexample | None:
    """The counterexample of the plainest pattern that shows it clearly, or else of the plainest."""
    first = None
    for sample in _samples(planned, PLAIN, seed, pair.below):
        found = _try(pair, planned, sample)
        if found is not None and (planned.alike is None or _gap(found) > _CLEAR):
            return found
        first = first or found
    return first


def _gap(found: ProgramCounterexample) -> float:
    """Difference of the two values, relative to the larger."""
    a, b = float(found.value_a), float(found.value_b)
    return abs(a - b) / max(abs(a), abs(b), 1e-300)


def _samples(
    planned: Plan, patterns: Sequence[str], seed: int, below: tuple[int, ...]
) -> Iterator[Sample]:
    """Samples that a plan is good for, those that are zero at most elements first."""
    if planned.alike is None:
        yield from (Sample(pattern, seed, below=below) for pattern in patterns)
        return
    for padded in (True, False):
        for pattern in patterns:
            if pattern in PATTERNS or pattern == ENDS:
                yield Sample(pattern, seed, planned.alike, padded, below)


def _plans(pair: _Pair, seed: int, limit: float) -> Iterator[Plan]:
    """What to evaluate in each round: first some elements of every output, at last all of them.

    Most differences show in a few elements; outputs that cost little are evaluated whole at once.
    Others are tried on inputs of few classes before, where the cost does not grow with extents.
    """
    outputs = [side[n] for n in pair.open_outputs for side in (pair.outputs_a, pair.outputs_b)]
    complete = _affordable(outputs, None, limit)
    if complete is None or complete.cost > _CHEAP:
        few = lifted_plan(outputs, pair.constants)
        lifted = few is not None and few.cost <= limit
        if few is not None and lifted:
            yield from [few] * 2
        for most in (16, 4, 1):
            first = _sparse_plan(outputs, most, [seed, 0], limit)
            if first is not None:  # others of that size cost about as much
                yield first
                later = (_sparse_plan(outputs, most, [seed, n], limit) for n in range(1, _ROUNDS))
                yield from filter(None, later)
                break
        else:
            # Wide programs: one element may need all weights; try one where nothing cheaper was.
            last = None if lifted else _sparse_plan(outputs, 1, [seed, 0], limit * _LAST_RESORT)
            if last is not None:
                yield last
    if complete is not None:
        yield from [complete] * _ROUNDS


def _sparse_plan(
    outputs: Sequence[Node], most: int, seed: Sequence[int], limit: float
) -> Plan | None:
    """At most so many indices per dim of every output, the same on both sides."""
    rng = np.random.default_rng(seed)
    wanted = [tuple(_few(extent, most, rng) for extent in node.shape) for node in outputs[::2]]
    return _affordable(outputs, [region for region in wanted for _ in "ab"], limit)


def _affordable(
    outputs: Sequence[Node], wanted: Sequence[Region] | None, limit: float
) -> Plan | None:
    """A plan for these regions, or for whole outputs, within a limit; None where there is none."""
    if wanted is None and sum(node.type.size for node in outputs) / 2 > limit:
        return None  # at least so many operations: not even their indices are listed
    try:
        regions = [whole(node.shape) for node in outputs] if wanted is None else wanted
        return plan(outputs, regions, limit)
    except SearchError:
        return None


def _few(extent: int, most: int, rng: np.random.Generator) -> Array:
    """Indices at both ends, around the middle and at random."""
    if extent <= most:
        return np.arange(extent)
    middle = extent // 2
    edges = [0, extent - 1, middle - 1, middle, 1, extent - 2][: most // 2]
    chosen = np.union1d(edges, rng.integers(0, extent, most - len(edges)))
    return chosen.astype(np.int64)


def _try(pair: _Pair, planned: Plan, sample: Sample) -> ProgramCounterexample | None:
    values = run(planned, lambda node, region: _given(pair, sample, node, region))
    for m, n in enumerate(pair.open_outputs):
        a, b = values[2 * m], values[2 * m + 1]
        apart = disjoint(a, b)
        if apart.any():
            # Where classes stand for many elements values are large: the clearest difference.
            shown = apart if planned.alike is None else np.where(apart, _distance(a, b), -1.0)
            at = tuple(map(int, np.unravel_index(int(np.argmax(shown)), apart.shape)))
            index = [indices[i] for indices, i in zip(planned.wanted[2 * m], at, strict=True)]
            here = (Interval(*(np.asarray(bound[at]) for bound in x)) for x in (a, b))
            found = pair.counterexample(sample, n, index, *here)
            return _hinging(found, pair, planned, sample, (2 * m, 2 * m + 1), at)
    return None


def _hinging(
    found: ProgramCounterexample,
    pair: _Pair,
    planned: Plan,
    sample: Sample,
    sides: tuple[int, int],
    at: Sequence[int],
) -> ProgramCounterexample:
    """A counterexample with the constants that were rounded, if it is none with them as written.

    Args:
        found: the counterexample.
        pair: the programs.
        planned: how both were evaluated.
        sample: on which inputs.
        sides: which of the plan's outputs differ.
        at: where in their regions.
    """
    said = pair.rounded.said_of([planned.outputs[n] for n in sides])
    if not said:
        return found
    values = run(
        planned, lambda node, region: _given(pair, sample, node, region), pair.rounded.as_written
    )
    a, b = (values[n].map(lambda bound: np.asarray(bound[tuple(at)])) for n in sides)
    return found if disjoint(a, b).any() else dataclasses.replace(found, rounded=said)


def _distance(a: Interval, b: Interval) -> Array:
    """How far apart enclosures are, relative to their magnitude; 0 where that is no number."""
    with np.errstate(all="ignore"):
        size = np.maximum(np.abs(a.low), np.abs(b.low))
        return np.asarray(np.nan_to_num(np.abs(a.low - b.low) / size, posinf=0.0))


def _given(pair: _Pair, sample: Sample, node: Node, region: Region) -> Interval:
    if node.text in pair.constants:
        return literal(pair.constants[node.text][np.ix_(*region)], node.dtype)
    return point(sample.values(pair.inputs.index(node), node.type, region))
