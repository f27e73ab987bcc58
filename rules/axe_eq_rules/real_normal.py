"""Normal forms of sums and products over the reals.

Associativity and commutativity as rewrites explode; here every value gets its normal form once.
Terms that are equal as polynomials in their atoms become one class, whatever the order of
summation, the association of matrix products, the place of transpositions, or the side of a
distribution.
"""

from __future__ import annotations

from axe_eq.pack import Pack
from axe_eq.program.terms import Value
from axe_eq.rule.term import Term, Undefined
from axe_eq_rules.polynomial import Expander, Unwieldy, shape_of, write

PACK = Pack("real_normal", exact=False, summary="normal forms of sums and products over the reals")

_SUMS = Expander(sums=True, products=False)
_PRODUCTS = Expander(sums=False, products=True)
_BOTH = Expander(sums=True, products=True)


def _normal(term: Term, expander: Expander) -> Term:
    try:
        result = write(expander.polynomial(term), shape_of(term))
    except Unwieldy:
        raise Undefined("normal form") from None
    if result is term:
        raise Undefined("normal form")
    return result


@PACK.law(source="commutative groups: sums have one normal form", normal=True)
def sum_form(t: Value) -> tuple[Term, Term]:
    """Value t = the sum of its terms, in the order of their digests   (differences are sums)."""
    return t, _normal(t, _SUMS)


@PACK.law(source="commutative rings: products have one normal form", normal=True)
def product_form(t: Value) -> tuple[Term, Term]:
    """Value t = one contraction of its factors, in the order of their digests."""
    return t, _normal(t, _PRODUCTS)


@PACK.law(source="commutative rings: polynomials have one normal form", normal=True)
def distribute_form(t: Value) -> tuple[Term, Term]:
    """Value t = the sum of its products, multiplied out."""
    return t, _normal(t, _BOTH)
