"""Masks that are added to scores, and identity matrices, over the reals.

Legend as in pack real, whose laws these are.
"""

from __future__ import annotations

import math

import numpy as np

from axe_eq.program.decisions import Draw
from axe_eq.program.facts import facts_of
from axe_eq.program.known import FINITE, has
from axe_eq.program.ops import join_text
from axe_eq.program.sigalg import identity, is_rigid, rebuild
from axe_eq.program.signature import Signature, make, plain, signature
from axe_eq.program.terms import In, Nil, Op, Sel, Sig, Spec, Value, op, operands, sel, type_of
from axe_eq.program.types import promote, value_type
from axe_eq.rule.law import Sides
from axe_eq.rule.term import STR, Ground, Term, Undefined, primitive
from axe_eq_rules.constants import constant, constant_text
from axe_eq_rules.enumerated import elements
from axe_eq_rules.layout_numbers import Laws
from axe_eq_rules.needs import BOUNDED, is_bounded

LAWS = Laws()


@primitive((STR, STR, STR), (STR, STR))
def minus_infinity(sig: str, spec: str, x: str) -> tuple[str, str] | None:
    """(broadcast, constant) of the sum of a value and -inf, nothing reduced."""
    s, k, of = signature(sig), constant(spec), value_type(x)
    if k is None or k[0] != -math.inf or s.n_reduced or len(s.operands) != 2 or s.operands[1]:
        return None
    extents = dict(enumerate(s.extents([of.shape, ()])))
    view = make([()], range(s.n_out), fixed=extents)
    return view.text, constant_text(-math.inf, promote(of.dtype, k[1]))


def _masked(draw: Draw) -> tuple[Ground, ...]:
    """A sum with -inf."""
    dtype, rank = draw.pick("dtype", ("f32", "f64")), draw.integer("rank", 0, 3)
    read = make([identity(rank).operands[0], ()], range(rank))
    extents = (str(draw.integer(f"extent {d}", 1, 4)) for d in range(rank))
    x = In("x0", f"{dtype}[{','.join(extents)}]")
    return read.text, x, constant_text(-math.inf, draw.pick("k", ("f32", "f64")))


@LAWS.law(source="IEEE 754, 6.1", sampler=_masked)
def add_minus_infinity(s: Sig, x: Value, k: Spec) -> Sides:
    """s[add](x, -inf) = v[id](-inf)   if x is defined and never +inf."""
    v, m = minus_infinity(s, k, type_of(x))
    right = op(v, "id", Sel(m, Nil()))
    return op(s, "add", x, Sel(k, Nil())), right, is_bounded(x, BOUNDED)


def _unit_matrix(draw: Draw) -> tuple[Ground, ...]:
    """A contraction with an identity matrix, on either side."""
    n = draw.integer("n", 2, 4)
    dtype = draw.pick("dtype", ("f32", "f64", "i32"))
    one = op("b, a -> a b", "eq", *2 * [sel(join_text("iota", n, "i64"))])
    unit = op("a b -> a b", f"cast {dtype}", one)
    x = In("x0", f"{dtype}[{n},{n}]")
    read = draw.pick(
        "read", ("a c, c b -> a b; + c", "c b, c a -> a b; + c", "a c, b c -> a b; + c")
    )
    sides = (x, unit) if draw.chance("right", 0.5) else (unit, x)
    return (op(signature(read).text, "mul", *sides),)


def _less_unit(sig: Signature, position: int) -> Signature | None:
    """The signature less an identity matrix, its other dim in the place of the summed one."""
    read = {p.plain for p in sig.operands[position]}
    summed = max((d for d in read if d is not None), default=-1)
    others = [d for d in read if d is not None and d != summed]
    if summed < sig.n_out or len(read) != 2 or len(others) != 1:
        return None
    (other,) = others
    images = {d: plain(other if d == summed else d) for d in range(sig.n_dims)}
    rest = [tuple(p.substitute(images) for p in sig.operands[1 - position])]
    left = [d for d in sig.reduced if d != summed]
    return rebuild(sig, rest, reduced=left)


@LAWS.law(source="definition of the identity matrix", normal=True, sampler=_unit_matrix)
def unit_matrix_form(t: Value) -> tuple[Term, Term]:
    """Value s[mul](x, I) = s[mul](I, x) = t[id](x)   for identity matrices I, summed; x finite."""
    sides = operands(t) if t.symbol is Op and t.args[1] == "mul" else []
    sig = signature(t.args[0]) if len(sides) == 2 else None
    for position, side in enumerate(sides if sig is not None and sig.monoid == "+" else ()):
        shape, x = value_type(type_of(side)).shape, sides[1 - position]
        if len(shape) != 2 or shape[0] != shape[1] or not has(facts_of.of(x) or 0, FINITE):
            continue
        assert sig is not None
        less = _less_unit(sig, position)
        found = None if less is None or not is_rigid(less) else elements(side)
        if less is None or found is None or not np.array_equal(found, np.eye(shape[0])):
            continue
        right = op(less.text, "id", x)
        if type_of.of(right) == type_of.of(t):
            return t, right
    raise Undefined("unit matrix form")
