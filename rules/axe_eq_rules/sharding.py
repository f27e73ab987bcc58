"""Laws of programs whose ranks are one: dims that are read together as the digits of one number.

Legend: t a value. All ranks of a mesh together are one program of whole arrays with a dim per mesh
axis (`axe_eq.mesh.lift`). These laws write its operators as ones over whole dims. They are normal
forms for proofs: no search for a plan uses them, for extraction cuts the letters of operators, and
knows exchanges by their bytes (`axe_eq.extract.mesh`).
"""

from __future__ import annotations

from axe_eq.pack import Later, Pack
from axe_eq.program.terms import Value, type_of
from axe_eq.rule.term import Term, Undefined

PACK = Pack("sharding", version="11", summary="programs of all ranks of a mesh: laws for proofs")

form = Later("axe_eq_rules.digit_forms:form")


def _formed(t: Term, sums: bool) -> tuple[Term, Term]:
    found = None if type_of.of(t) is None else form(t, sums)
    if found is None or found is t:
        raise Undefined("digit form")
    return t, found


@PACK.law(
    source="Axe def. 2.2: digits of an index; reductions in two stages; blocks: Wang et al., "
    "ASPLOS 2023",
    normal=True,
    search=False,
)
def digit_form(t: Value) -> tuple[Term, Term]:
    """Value t = a view of operators whose dims are the digits that they read as one number.

    And f(x) ++ f(y) = f(x ++ y), where f reads the joined dim as it is and all else is the same;
    f of windows that overlap = windows of f; a part of f(x), in steps or not, = f of a part; a
    scan of each part behind the totals of those before it = the scan of all; rows that integers
    without inputs count = a view; the index of the greatest of parts' = that of all; a sum of what
    devices read of their rows of a table = a read of the table.
    """
    return _formed(t, sums=False)


@PACK.law(
    source="Axe def. 2.2: digits of an index; reductions in two stages",
    normal=True,
    search=False,
    exact=False,
)
def digit_form_of_sums(t: Value) -> tuple[Term, Term]:
    """Value t = its digit form, where sums of sums and products of products are one too."""
    return _formed(t, sums=True)
