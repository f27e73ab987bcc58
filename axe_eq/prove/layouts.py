"""Equality of layouts: decided by the algebra, proved by a certificate of layout laws."""

from __future__ import annotations

from collections.abc import Iterable

from axe_eq.errors import SearchError
from axe_eq.layout import Difference, Layout, same_map
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
    try:
        found = same_map(left, right)
        if found is not None:
            return _refuted(found)
        return _prove(left, right, list(packs))
    except SearchError as error:
        return Unknown(str(error))


def _refuted(found: Difference) -> Refuted:
    if found.x is None or found.image_a is None or found.image_b is None:
        return Refuted(None, found.reason)
    return Refuted(LayoutCounterexample(found.x, found.image_a, found.image_b), found.reason)


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
