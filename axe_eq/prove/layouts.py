"""Equality of layouts: decided by the algebra, proved by a certificate of layout laws."""

from __future__ import annotations

from collections.abc import Iterable

from axe_eq.errors import SearchError
from axe_eq.layout import Layout, same_map
from axe_eq.layout.notation import read_any
from axe_eq.layout.terms import LAYOUT, encode
from axe_eq.pack import Pack
from axe_eq.prove.certificate import LAYOUTS, Firing, Proof, Statement, write
from axe_eq.prove.prover import Step, minimise, suffices, trusting
from axe_eq.prove.verdict import LayoutCounterexample, Proved, Refuted, Unknown, Verdict


def equivalent_layouts(a: Layout | str, b: Layout | str, packs: Iterable[Pack]) -> Verdict:
    """Whether two layouts are the same map.

    Args:
        a: a layout or its text, with the notation as a prefix; none means axe.
        b: another.
        packs: whose layout laws certificates may use.

    Raises:
        NotationError: a text that does not parse.
    """
    left, right = (x if isinstance(x, Layout) else read_any(x) for x in (a, b))
    if left.size != right.size:
        return Refuted(None, f"the sizes differ: a has {left.size} elements, b has {right.size}")
    try:
        index = same_map(left, right)
        if index is not None:
            found = LayoutCounterexample(index, left(index), right(index))
            return Refuted(found, f"the images of {index} differ")
        return _prove(left, right, list(packs))
    except SearchError as error:
        return Unknown(str(error))


def _prove(left: Layout, right: Layout, packs: list[Pack]) -> Verdict:
    """The certificate that both have one normal form."""
    terms = encode(left), encode(right)
    versions = {pack.name: pack.version for pack in packs}
    statement = Statement(LAYOUTS, terms[:1], terms[1:], packs=versions, numerics="exact")
    steps: list[Step] = []
    for pack in packs:
        for name, law in pack.laws.items():
            if not (law.normal and law.exact and law.params[0][1] == LAYOUT):
                continue
            for term in terms:
                instance = law.instance((term,))
                if instance is not None:
                    steps.append((Firing(f"{pack.name}/{name}", (term,)), instance))
    if not suffices(steps, statement):
        return Unknown("the maps are equal, but no layout law of the packs in use proves it")
    needed = minimise(steps, statement)
    trusted = trusting(statement, needed)
    return Proved(write(Proof(trusted, tuple(firing for firing, _ in needed))), trusted)
