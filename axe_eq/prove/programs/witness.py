"""An input at which a program is defined: without one, equal sides say nothing over the reals.

x + inf - inf equals itself at every input, being undefined at all of them. Where facts do not say
that every output is defined everywhere, inputs are tried: one at which every output has an element
that is defined is a proof, whichever it is.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from axe_eq.program.facts import facts_of
from axe_eq.program.gathers import index_limits
from axe_eq.program.known import DEFINED
from axe_eq.program.node import Program
from axe_eq.program.terms import encode
from axe_eq.prove.certificates.rebuild import in_float64, reductions, reshape_program
from axe_eq.prove.programs.compare import random_array
from axe_eq.prove.programs.reals import Real, evaluate_reals, real

_LARGEST = 1 << 18  # elements of all values together
_TRIED = tuple(product(("positive", "moderate", "edges"), (1.0, 100.0, 0.01)))


def is_defined_somewhere(program: Program) -> bool:
    """Whether some input gives every output an element that is defined.

    Programs too large to evaluate are tried at smaller extents, and believed where these cannot
    stand for them.
    """
    terms = encode(program.outputs)
    if all((facts_of.of(terms[node]) or 0) & DEFINED for node in program.outputs):
        return True
    small = _small(program)
    return small is None or any(_is_defined(small, *way) for way in _TRIED)


def _small(program: Program) -> Program | None:
    candidates = (reshape_program(program, extents) for extents in reductions([program]))
    for found in (program, *filter(None, candidates)):
        if sum(node.type.size for node in found.nodes()) <= _LARGEST:
            return found
    return None


def _is_defined(program: Program, values: str, scale: float) -> bool:
    rng = np.random.default_rng(0)
    given: dict[str, Real] = {}
    roots = in_float64(program.outputs)
    limits = index_limits(program.outputs)
    for spec in program.inputs:
        array = random_array(spec.node.type, rng, values)
        if spec.node in limits:  # elsewhere nothing is read
            array = np.mod(array, np.minimum(limits[spec.node], np.iinfo(array.dtype).max))
        if array.dtype.kind not in "iub":
            array = array.astype(np.float64) * scale
        given[spec.name] = real(array)
    for name, array in program.constants.items():
        wide = array if array.dtype.kind in "iub" else array.astype(np.float64)
        given[name] = real(wide)
    found = evaluate_reals(roots, given)
    return all(bool((~found[root].undefined & ~found[root].lost).any()) for root in roots)
