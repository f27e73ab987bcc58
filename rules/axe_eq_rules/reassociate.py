"""Another association of contractions and of scans' ends, for the search of cheaper schedules.

Legend: s, t signatures of contractions (cell ``mul``, monoid ``+``); a, b, c values. (a b) c and
a (b c) differ by orders of magnitude in work and in bytes on a mesh; both are kept, extraction
chooses. Chains are reassociated for a bounded number of rounds. The ends of a chain must not be
infinite (facts of them are asked for): infinity times a sum is not always the sum of infinities.
"""

from __future__ import annotations

from typing import Any

from axe_eq.pack import Pack
from axe_eq.program import sigalg
from axe_eq.program.signature import signature
from axe_eq.program.terms import Along, Sig, Spec, Value, op, scan, sel, type_of
from axe_eq.rule.law import Sides
from axe_eq.rule.term import STR, primitive
from axe_eq_rules.constants import one_ring
from axe_eq_rules.needs import is_proper
from axe_eq_rules.scanning import end_of_scan, last_of_scan, sample_ends, sample_last

PACK = Pack(
    "reassociate",
    version="2",
    exact=False,
    summary="contractions and ends of scans in another order",
)


def _regrouped(
    outer: str, inner: str, position: int, group: tuple[int, int]
) -> tuple[str, str] | None:
    """Two nested contractions as others: these two of all three operands are contracted first."""
    s, t = signature(outer), signature(inner)
    if any(len(of.operands) != 2 or not of.n_reduced or of.monoid != "+" for of in (s, t)):
        return None
    last, first = sigalg.outline(sigalg.inline(s, position, t), group, reduce=True)
    # An outer product first only adds work.
    return (last.text, first.text) if first.n_reduced else None


@primitive((STR,) * 5, (STR, STR))
def right_first(outer: str, inner: str, a: str, b: str, c: str) -> tuple[str, str] | None:
    """Signatures of a (b c), given those of (a b) c; integers must not wrap around elsewhere."""
    return _regrouped(outer, inner, 0, (1, 2)) if one_ring(a, b, c) else None


@primitive((STR,) * 5, (STR, STR))
def left_first(outer: str, inner: str, a: str, b: str, c: str) -> tuple[str, str] | None:
    """Signatures of (a b) c, given those of a (b c); integers must not wrap around elsewhere."""
    return _regrouped(outer, inner, 1, (0, 1)) if one_ring(a, b, c) else None


def _proper(a: Any, c: Any) -> tuple[Any, Any]:
    return is_proper(a), is_proper(c)


@PACK.law(source="folklore: associativity of contractions over a ring", expands=True)
def to_the_right(s: Sig, t: Sig, a: Value, b: Value, c: Value) -> Sides:
    """Chain (a b) c = a (b c)   for contractions in one ring, a and c never infinite."""
    outer, inner = right_first(s, t, type_of(a), type_of(b), type_of(c))
    right = op(outer, "mul", a, op(inner, "mul", b, c))
    return op(s, "mul", op(t, "mul", a, b), c), right, *_proper(a, c)


@PACK.law(source="folklore: associativity of contractions over a ring", expands=True)
def to_the_left(s: Sig, t: Sig, a: Value, b: Value, c: Value) -> Sides:
    """Chain a (b c) = (a b) c   for contractions in one ring, a and c never infinite."""
    outer, inner = left_first(s, t, type_of(a), type_of(b), type_of(c))
    right = op(outer, "mul", op(inner, "mul", a, b), c)
    return op(s, "mul", a, op(t, "mul", b, c)), right, *_proper(a, c)


@PACK.law(source="definition of scans", sampler=sample_ends(exact=False))
def end_of_a_scan(s: Sig, m: Along, x: Value) -> Sides:
    """s[id](Scan(m, x)) = t[id](x)   if s reads the end of the axis, where merging rounds."""
    return op(s, "id", scan(m, x)), op(end_of_scan(s, m, type_of(x)), "id", x)


@PACK.law(source="definition of scans", sampler=sample_last(exact=False))
def last_of_a_scan(k: Spec, m: Along, x: Value) -> Sides:
    """k(Scan(m, x)) = v[id](t[id](x))   if k takes the end of the axis, where merging rounds."""
    t, v = last_of_scan(k, m, type_of(x))
    return sel(k, scan(m, x)), op(v, "id", op(t, "id", x))
