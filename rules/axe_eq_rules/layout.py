"""Laws of layouts: equal maps have equal canonical forms."""

from __future__ import annotations

from axe_eq.layout.terms import LayoutTerm, decode, encode
from axe_eq.pack import Pack
from axe_eq.rule.term import Term, Undefined

PACK = Pack("layout", summary="the canonical form of layouts")


@PACK.law(source="Axe, Theorem A.8 (D) and C0-C2 (R), completed by exact search", normal=True)
def canonical(layout: LayoutTerm) -> tuple[Term, Term]:
    """A layout = its canonical form: fused iters, least replica list, offsets without zeros."""
    result = encode(decode(layout).canonical())
    if result is layout:
        raise Undefined("canonical form")
    return layout, result
