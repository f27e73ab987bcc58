"""A pack with a wrong law: it forgets that a gate is not symmetric."""

from __future__ import annotations

from axe_eq import Pack
from axe_eq.program.ops import Cell
from axe_eq.program.terms import Sig, Value, op
from axe_eq.rule.law import Sides

PACK = Pack("wrong_gates", exact=False)
PACK.cell(Cell("otherhalf", 2, lambda y, r: y - r / 2, "float"))


@PACK.law(source="ours, and wrong")
def halves_commute(y: Value, r: Value) -> Sides:
    """[otherhalf](y, r) = [otherhalf](r, y)."""
    s = "a, a -> a"
    return op(s, "otherhalf", y, r), op(s, "otherhalf", r, y)


@PACK.law(source="x - y/2 = -(y/2 - x) on reals")
def half_of_itself(s: Sig, y: Value, r: Value) -> Sides:
    """s[otherhalf](y, r) = s[otherhalf](y, r), which is right, if useless."""
    return op(s, "otherhalf", y, r), op(s, "otherhalf", y, r)
