"""Normal forms of sums and products over the reals.

Associativity and commutativity as rewrites explode; here every value gets its normal form once.
Terms that are equal as polynomials in their atoms become one class, whatever the order of
summation, the association of matrix products, the place of transpositions, or the side of a
distribution.
"""

from __future__ import annotations

from axe_eq.pack import Pack
from axe_eq.program import sigalg
from axe_eq.program.ops import cell, split_text
from axe_eq.program.signature import signature
from axe_eq.program.terms import Op, Sel, Value, args, op, operands
from axe_eq.program.types import DTYPES, dtype
from axe_eq.rule.term import Term, Undefined
from axe_eq_rules.polynomial import Expander, Unwieldy, shape_of, write

PACK = Pack(
    "real_normal",
    version="2",
    exact=False,
    summary="normal forms of sums and products over the reals",
)

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


@PACK.law(source="over the reals, casts between floating dtypes are the identity", normal=True)
def cast_form(t: Value) -> tuple[Term, Term]:
    """Value t = cast d(f(x, y, ..)) = f(cast d(x), cast d(y), ..)   between floating dtypes."""
    if t.symbol is not Op or split_text(t.args[1])[0] != "cast" or not _floats(t, *operands(t)):
        raise Undefined("cast form")
    (inner,) = operands(t)
    whole = sigalg.is_identity(signature(t.args[0]))
    if not whole or inner.symbol not in (Op, Sel) or not _follows(inner):
        raise Undefined("cast form")
    given = [_cast(x, t.args[1]) if _floats(x) else x for x in operands(inner)]
    return t, Term(inner.symbol, (*inner.args[:-1], args(*given)))


def _floats(*terms: Term) -> bool:
    return all(DTYPES[shape_of(x).dtype].kind == "f" for x in terms)


def _follows(term: Term) -> bool:
    """Whether an operator's value has the dtype of its floating operands, whatever that is."""
    if term.symbol is Sel:
        return bool(operands(term))
    found, _ = cell(term.args[1])
    if found.name == "nextafter":  # which number is next is not a matter of reals
        return False
    return found.result in ("promote", "number", "float", "last") and any(
        map(_floats, operands(term))
    )


def _cast(term: Term, text: str) -> Term:
    if shape_of(term).dtype == cast_dtype(text):
        return term
    return op(sigalg.identity(len(shape_of(term).shape)).text, text, term)


def cast_dtype(text: str) -> str:
    """The dtype that a cast's text names."""
    return dtype(split_text(text)[1][0]).name
