"""Whether two programs of one origin still agree: proved, or not believed.

A schedule that was chosen at some extents is compared so with the function traced again at others.
Almost always both are nearly the same program, so a proof by the laws that made one of the other is
found at once. Samples decide nothing: what agrees on them may differ elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable

from axe_eq.pack import Pack
from axe_eq.program.node import Program
from axe_eq.prove.certificates.rebuild import over_inputs_of, type_difference
from axe_eq.prove.programs.prover import prove_programs
from axe_eq.prove.programs.refute import refute
from axe_eq.prove.programs.search import Budget

_GLANCE = 1e6  # interval operations: a twentieth of a second
_BUDGET = Budget(seconds=10.0)


def disagreement(
    a: Program, b: Program, *, numerics: str = "real", packs: Iterable[Pack] = ()
) -> str | None:
    """Why a program is not known to compute what another does.

    Args:
        a: a program.
        b: another over inputs of the same types, in order.
        numerics: "real" or "exact", see `axe_eq.equivalent`.
        packs: whose laws may prove that they agree.

    Returns:
        None where they agree; else one sentence.
    """
    types = type_difference(a, b)
    if types is not None:
        return f"its types differ: {types}"
    if list(a.outputs) == over_inputs_of(a, b):
        return None
    # Most programs that differ do so at once; a proof of those would be searched for in vain.
    refuted = refute(a, b, numerics=numerics, budget=_GLANCE)
    if refuted is not None:
        return refuted.reason
    if prove_programs(a, b, packs, numerics, (), _BUDGET):
        return None
    refuted = refute(a, b, numerics=numerics)
    if refuted is not None:
        return refuted.reason
    return "it could be neither proved nor refuted to compute the same"
