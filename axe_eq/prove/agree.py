"""Whether two programs of one origin still agree: sampled first, then refuted or proved.

A schedule that was chosen at some extents is compared so with the function traced again at others.
Almost always both are nearly the same program, so evaluating them on random inputs decides; extents
are made small for that, consistently in both. What differs there is decided at its own extents.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from axe_eq.pack import Pack
from axe_eq.program.meaning import evaluate_nodes
from axe_eq.program.node import INPUT, OP, Node, Program, topological
from axe_eq.program.signature import signature
from axe_eq.program.types import Array
from axe_eq.prove.bitwise import differing_bits
from axe_eq.prove.compare import difference, random_array
from axe_eq.prove.prover import prove_programs
from axe_eq.prove.rebuild import (
    at_extents,
    in_float64,
    over_inputs_of,
    reductions,
    type_difference,
)
from axe_eq.prove.refute import refute
from axe_eq.prove.search import Budget

Roots = Sequence[Node]
_CHEAP = 1 << 22  # points of index spaces that are evaluated at their own extents
_SAMPLES = ("moderate", "positive", "whole")
_BUDGET = Budget(seconds=10.0)


def disagreement(
    a: Program, b: Program, *, numerics: str = "real", packs: Iterable[Pack] = ()
) -> str | None:
    """Why a program does not compute what another does, as far as can be found out.

    Args:
        a: a program.
        b: another over inputs of the same types, in order.
        numerics: "real" or "exact", see `axe_eq.equivalent`.
        packs: whose laws may prove that they agree, where samples do not show it.

    Returns:
        None where they agree; else one sentence.
    """
    types = type_difference(a, b)
    if types is not None:
        return f"its types differ: {types}"
    left, right = list(a.outputs), over_inputs_of(a, b)
    if left == right:
        return None
    both = next(_affordable(left, right, reductions([a, b])), None)
    if both is not None and _sampled(*both, numerics) is None:
        return None
    refuted = refute(a, b, numerics=numerics)
    if refuted is not None:
        return refuted.reason
    if prove_programs(a, b, packs, numerics, budget=_BUDGET):
        return None
    return "it could be neither proved nor refuted to compute the same"


def _affordable(
    left: Roots, right: Roots, smaller: Iterator[dict[int, int]]
) -> Iterator[tuple[Roots, Roots]]:
    """Both at their own extents, if that is cheap; then at smaller ones."""
    if _points([*left, *right]) <= _CHEAP:
        yield left, right
    for extents in smaller:
        both = at_extents(left, extents), at_extents(right, extents)
        if both[0] is None or both[1] is None or _points([*both[0], *both[1]]) > _CHEAP:
            continue
        if [n.type for n in both[0]] == [n.type for n in both[1]]:
            yield both[0], both[1]


def _points(roots: Roots) -> int:
    """Points of all index spaces."""
    nodes = [n for n in topological(roots) if n.kind == OP]
    spaces = (signature(n.text).extents([a.shape for a in n.args]) for n in nodes)
    return sum(map(math.prod, spaces)) + sum(n.type.size for n in topological(roots))


def _sampled(left: Roots, right: Roots, numerics: str) -> str | None:
    """What differs on random inputs; None where both agree and something could be compared."""
    rng = np.random.default_rng(0)
    wide = in_float64([*left, *right])
    told = False
    for values in _SAMPLES:
        if numerics == "exact":
            bits = differing_bits(left, right, _inputs([*left, *right], rng, values))
            if bits is not None:
                return f"output {bits[0]} differs bit for bit at {bits[1]}"
        with np.errstate(all="ignore"):
            found = evaluate_nodes(wide, _inputs(wide, rng, values))
        for number, (a, b) in enumerate(zip(wide[: len(left)], wide[len(left) :], strict=True)):
            if difference(found[a], found[b], exact=False) is not None:
                return f"output {number} differs"
            told |= bool(np.any(found[a] == found[a]))
    return None if told else "nothing could be compared"


def _inputs(roots: Roots, rng: np.random.Generator, values: str) -> dict[str, Array]:
    inputs = [n for n in topological(roots) if n.kind == INPUT]
    return {n.text: random_array(n.type, rng, values) for n in inputs}
