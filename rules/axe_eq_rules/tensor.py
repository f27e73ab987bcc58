"""Laws of block operators that hold bit for bit: views, constants, involutions, choices.

Legend: x, y, z, c values; rest, operands of an operator; s, t signatures, v the signature of a view
(an operator whose cell is ``id``); f, g, h cells; k the text of a constant. ``s[f](x, y)`` a block
operator, ``s.0(t)`` s with its operand 0 replaced by the operands of t, which computes it.

Every law has a direction: views go into the operators that read them, broadcasts go out of the
operators that compute them, everything else shrinks. Only `commute` turns in circles, once. Over
several dims a reduction has no order of its own: signatures list them as operands meet them.
"""

from __future__ import annotations

import math
from typing import Any

from axe_eq.pack import Pack
from axe_eq.program import sigalg
from axe_eq.program.ops import CELLS, MONOIDS, folding, split_text
from axe_eq.program.signature import Signature, make, plain, signature
from axe_eq.program.terms import (
    Along,
    Args,
    Cell,
    Cons,
    Nil,
    Op,
    Sel,
    Sig,
    Spec,
    Value,
    op,
    scan,
    type_of,
    type_of_op,
)
from axe_eq.program.types import DTYPES, dtype, promote, same_ring, value_type
from axe_eq.rule.law import Sides
from axe_eq.rule.term import INT, STR, Undefined, primitive
from axe_eq_rules.constants import constant, constant_text, exact_result, holds_value
from axe_eq_rules.needs import is_defined
from axe_eq_rules.scanning import exact_end_of_scan, sample_ends, turned_scan

PACK = Pack("tensor", version="5", summary="views, constants, involutions and choices, bit for bit")


# -- signatures -----------------------------------------------------------------------------------


@primitive((STR,), (STR,))
def reads_as_is(sig: str) -> str | None:
    """Defined where a signature of one operand reads it as it is."""
    return sig if sigalg.is_identity(signature(sig)) else None


@primitive((STR, INT, STR), (STR,))
def through_view(sig: str, position: int, view: str) -> str | None:
    """The signature with one operand read through a view."""
    outer, inner = signature(sig), signature(view)
    if inner.n_reduced or len(inner.operands) != 1 or position >= len(outer.operands):
        return None
    return sigalg.inline(outer, position, inner).text


@primitive((STR, STR), (STR,))
def narrowed_by(view: str, sig: str) -> str | None:
    """The operator under a view that permutes, drops or adds unit dims, but repeats nothing."""
    outer = signature(view)
    if len(outer.operands) != 1 or outer.n_reduced:
        return None
    read = [d for p in outer.operands[0] for d, _ in p.terms]
    unread = set(range(outer.n_out)) - set(read)
    whole = all(p.plain is not None or not p.terms for p in outer.operands[0])
    if not whole or len(set(read)) < len(read) or any(dict(outer.fixed)[d] > 1 for d in unread):
        return None
    return sigalg.inline(outer, 0, signature(sig)).text


@primitive((STR, STR), (STR, STR))
def broadcast_out(sig: str, f: str) -> tuple[str, str] | None:
    """Signatures (broadcast, operator without the output dims that no operand reads)."""
    whole = signature(sig)
    read = {d for operand in whole.operands for d in sigalg.dims_of(operand)}
    kept = [d for d in range(whole.n_out) if d in read]
    repeats = {d: e for d, e in whole.fixed if d < whole.n_out}
    gone = [repeats[d] for d in range(whole.n_out) if d not in read]
    # `least_extents` drops those of extent 1.
    if not gone or max(gone) == 1 or (split_text(f)[0] == "id" and not whole.n_reduced):
        return None
    left = {d: e for d, e in whole.fixed if d in kept or d in whole.reduced}
    inner = make(whole.operands, kept, whole.monoid, whole.reduced, left)
    return make([map(plain, kept)], range(whole.n_out), fixed=repeats).text, inner.text


@PACK.law(source="definition of block operators")
def identity_view(x: Value, v: Sig) -> Sides:
    """v[id](x) = x   if v reads x as it is."""
    reads_as_is(v)
    return op(v, "id", x), x


@PACK.law(source="Tapestry, index projections compose")
def view_in_operand_0(s: Sig, f: Cell, v: Sig, x: Value, rest: Args) -> Sides:
    """s[f](v[id](x), rest) = s.0(v)[f](x, rest)."""
    left = Op(s, f, Cons(op(v, "id", x), rest))
    return left, Op(through_view(s, 0, v), f, Cons(x, rest))


@PACK.law(source="Tapestry, index projections compose")
def view_in_operand_1(s: Sig, f: Cell, v: Sig, x: Value, y: Value, rest: Args) -> Sides:
    """s[f](x, v[id](y), rest) = s.1(v)[f](x, y, rest)."""
    left = Op(s, f, Cons(x, Cons(op(v, "id", y), rest)))
    return left, Op(through_view(s, 1, v), f, Cons(x, Cons(y, rest)))


@PACK.law(source="Tapestry, index projections compose")
def view_in_operand_2(s: Sig, f: Cell, v: Sig, x: Value, y: Value, z: Value, rest: Args) -> Sides:
    """s[f](x, y, v[id](z), rest) = s.2(v)[f](x, y, z, rest)."""
    left = Op(s, f, Cons(x, Cons(y, Cons(op(v, "id", z), rest))))
    return left, Op(through_view(s, 2, v), f, Cons(x, Cons(y, Cons(z, rest))))


@PACK.law(source="Tapestry, index projections compose")
def view_of_operator(v: Sig, s: Sig, f: Cell, rest: Args) -> Sides:
    """v[id](s[f](rest)) = v.0(s)[f](rest)   if v permutes, drops or adds unit dims."""
    return op(v, "id", Op(s, f, rest)), Op(narrowed_by(v, s), f, rest)


@PACK.law(source="ours: what comes before an element lies in the same row")
def turn_scan(v: Sig, m: Along, x: Value) -> Sides:
    """v[id](Scan(m, x)) = Scan(m', v[id](x))   if v permutes dims."""
    return op(v, "id", scan(m, x)), scan(turned_scan(v, m), op(v, "id", x))


@PACK.law(source="ours: what comes before an element lies in the same row", search=False)
def turn_scan_of_two(v: Sig, m: Along, x: Value, y: Value) -> Sides:
    """v[id](Scan(m, x, y)) = Scan(m', v[id](x), v[id](y))   if v permutes dims."""
    return op(v, "id", scan(m, x, y)), scan(turned_scan(v, m), op(v, "id", x), op(v, "id", y))


@PACK.law(source="definition of scans", sampler=sample_ends(exact=True))
def end_of_exact_scan(s: Sig, m: Along, x: Value) -> Sides:
    """s[id](Scan(m, x)) = t[id](x)   if s reads the end of the axis, where merging is exact."""
    return op(s, "id", scan(m, x)), op(exact_end_of_scan(s, m, type_of(x)), "id", x)


@PACK.law(source="definition of block operators")
def broadcast_last(s: Sig, f: Cell, rest: Args) -> Sides:
    """s[f](rest) = v[id](t[f](rest))   for t without the output dims that no operand reads."""
    v, t = broadcast_out(s, f)
    return Op(s, f, rest), op(v, "id", Op(t, f, rest))


@primitive((STR, STR), (STR,))
def merged_reductions(outer: str, inner: str) -> str | None:
    """One reduction over the dims of both, for a monoid whose merging is exact."""
    s, t = signature(outer), signature(inner)
    if not s.monoid or s.monoid != t.monoid or not MONOIDS[s.monoid].exact:
        return None
    return sigalg.inline(s, 0, t).text if folding(s.monoid) == s.monoid else None


@PACK.law(source="folklore: associativity of max, min, and, or")
def nested_reduction(s: Sig, t: Sig, f: Cell, rest: Args) -> Sides:
    """s[id](t[f](rest)) = s.0(t)[f](rest)   if both reduce by one exact monoid."""
    return op(s, "id", Op(t, f, rest)), Op(merged_reductions(s, t), f, rest)


# -- commutativity --------------------------------------------------------------------------------

# maximum and minimum choose between 0.0 and -0.0 by the order of their operands.
ORDER_MATTERS = {"maximum", "minimum", "hypot", "logaddexp"}


def swapped(sig: str, f: str, exact: bool) -> str | None:
    """The signature with its two operands exchanged, if cell and reduction allow it."""
    whole = signature(sig)
    name = split_text(f)[0]
    if len(whole.operands) != 2 or not CELLS[name].commutative:
        return None
    return sigalg.reorder(whole, (1, 0)).text if (name in ORDER_MATTERS) != exact else None


@primitive((STR, STR), (STR,))
def swap_exactly(sig: str, f: str) -> str | None:
    """The signature with operands exchanged, for cells to which their order is nothing."""
    return swapped(sig, f, exact=True)


@PACK.law(source="IEEE 754, 5.4.1: add and multiply are commutative", expands=True, search=False)
def commute(s: Sig, f: Cell, x: Value, y: Value) -> Sides:
    """s[f](x, y) = s'[f](y, x)   if f is commutative, s' with its operands exchanged."""
    return op(s, f, x, y), op(swap_exactly(s, f), f, y, x)


# -- constants ------------------------------------------------------------------------------------


@primitive((STR,), (STR, STR))
def broadcast_constant(spec: str) -> tuple[str, str] | None:
    """A constant array as (view, scalar constant)."""
    name, params = split_text(spec)
    if name != "full" or params[0] == ():
        return None
    view = make([()], range(len(params[0])), fixed=dict(enumerate(params[0])))
    return view.text, constant_text(params[1], params[2])


@PACK.law(source="definition of full")
def full_is_broadcast(k: Spec) -> Sides:
    """full(shape, value) = broadcast of full((), value)."""
    v, scalar = broadcast_constant(k)
    return Sel(k, Nil()), op(v, "id", Sel(scalar, Nil()))


def folded(f: str, *specs: str) -> str | None:
    """The constant that a cell gives on scalar constants, where nothing rounds."""
    known = [k for k in map(constant, specs) if k is not None]
    found = exact_result(f, known) if len(known) == len(specs) else None
    return None if found is None else constant_text(*found)


@primitive((STR, STR), (STR,))
def fold_one(f: str, spec: str) -> str | None:
    """The constant f(k)."""
    return folded(f, spec)


@primitive((STR, STR, STR), (STR,))
def fold_two(f: str, left: str, right: str) -> str | None:
    """The constant f(k, m)."""
    return folded(f, left, right)


@PACK.law(source="definition of block operators")
def fold_unary(f: Cell, k: Spec) -> Sides:
    """f(k) = the constant it is   if the cell rounds nothing there."""
    return op("->", f, Sel(k, Nil())), Sel(fold_one(f, k), Nil())


@PACK.law(source="definition of block operators")
def fold_binary(f: Cell, k: Spec, m: Spec) -> Sides:
    """f(k, m) = the constant it is   if the cell rounds nothing there."""
    left = op(", ->", f, Sel(k, Nil()), Sel(m, Nil()))
    return left, Sel(fold_two(f, k, m), Nil())


# -- neutral constants: cell -> (value, whether it may stand on the left) --------------------------

NEUTRAL: dict[str, tuple[Any, bool]] = {
    "mul": (1, True), "div": (1, False), "pow": (1, False), "sub": (0, False), "and": (1, True),
    "or": (0, True), "xor": (0, True), "bit_and": (-1, True), "bit_or": (0, True),
    "bit_xor": (0, True), "shl": (0, False), "shr": (0, False), "maximum": (-math.inf, True),
    "minimum": (math.inf, True),
}  # fmt: skip


def is_neutral(f: str, value: Any, name: str, left: bool) -> bool:
    """Whether f(x, value) = x, or f(value, x) = x where `left`, bit for bit."""
    if f == "add":
        # x + 0.0 turns -0.0 into 0.0.
        return bool(value == 0 and (DTYPES[name].kind != "f" or math.copysign(1, value) < 0))
    unit, either = NEUTRAL.get(f, (None, False))
    if f == "sub" and DTYPES[name].kind == "f" and math.copysign(1, value) < 0:
        return False
    return bool(value == unit and (either or not left))


def without_scalar(sig: str, position: int, x: str, k: tuple[Any, str]) -> Signature:
    """The signature less a scalar operand, if the other one (of type x) gives the dtype alone."""
    whole = signature(sig)
    if whole.operands[position] or promote(value_type(x).dtype, k[1]) != value_type(x).dtype:
        raise Undefined("without_scalar")
    return sigalg.without_operand(whole, position)


@primitive((STR, STR, INT, STR, STR), (STR,))
def without_neutral(sig: str, f: str, position: int, spec: str, x: str) -> str | None:
    """The signature less an operand that is a neutral constant."""
    k = constant(spec)
    if k is None or not is_neutral(f, *k, left=position == 0):
        return None
    return without_scalar(sig, position, x, k).text


@PACK.law(source="IEEE 754, 5.4.1")
def neutral_right(s: Sig, f: Cell, x: Value, k: Spec) -> Sides:
    """s[f](x, k) = t[id](x)   if k is neutral: x * 1, x / 1, x - 0, maximum(x, -inf)."""
    t = without_neutral(s, f, 1, k, type_of(x))
    return op(s, f, x, Sel(k, Nil())), op(t, "id", x)


@PACK.law(source="IEEE 754, 5.4.1")
def neutral_left(s: Sig, f: Cell, x: Value, k: Spec) -> Sides:
    """s[f](k, x) = t[id](x)   if k is neutral: 1 * x, -0.0 + x, true and x, maximum(-inf, x)."""
    t = without_neutral(s, f, 0, k, type_of(x))
    return op(s, f, Sel(k, Nil()), x), op(t, "id", x)


@primitive((STR,), (STR,))
def exact_reciprocal(spec: str) -> str | None:
    """The reciprocal of a constant that is a power of two, of moderate size."""
    found = constant(spec)
    if found is None or DTYPES[found[1]].kind != "f":
        return None
    mantissa, _ = math.frexp(found[0])
    if abs(mantissa) != 0.5 or not holds_value(found[1], 1 / found[0]):
        return None
    return constant_text(1 / found[0], found[1])


@PACK.law(source="IEEE 754, 4.3: both round the same real number")
def divide_by_power_of_two(s: Sig, x: Value, k: Spec) -> Sides:
    """s[div](x, k) = s[mul](x, 1 / k)   if k is a power of two."""
    left = op(s, "div", x, Sel(k, Nil()))
    return left, op(s, "mul", x, Sel(exact_reciprocal(k), Nil()))


# -- cells of cells -------------------------------------------------------------------------------

_ROUNDINGS = ("floor", "ceil", "trunc", "round")
CELL_PAIRS: dict[tuple[str, str], str] = {
    ("neg", "neg"): "id", ("not", "not"): "id", ("bit_not", "bit_not"): "id",
    ("abs", "abs"): "abs", ("abs", "neg"): "abs", ("sign", "sign"): "sign",
    **{(f, g): g for f in _ROUNDINGS for g in _ROUNDINGS},
}  # fmt: skip

# Element types that hold every value of another exactly.
_HOLDS = {
    "bool": ("i8", "u8", "i16", "i32", "i64", "f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64"),
    "i8": ("i16", "i32", "i64", "f16", "bf16", "f32", "f64"),
    "u8": ("i16", "i32", "i64", "f16", "bf16", "f32", "f64"),
    "i16": ("i32", "i64", "f32", "f64"),
    "i32": ("i64", "f64"),
    "f8e4m3": ("f16", "bf16", "f32", "f64"),
    "f8e5m2": ("f16", "bf16", "f32", "f64"),
    "f16": ("f32", "f64"),
    "bf16": ("f32", "f64"),
    "f32": ("f64",),
}


def holds(wide: str, narrow: str) -> bool:
    """Whether every value of the dtype `narrow` is one of `wide`."""
    return wide == narrow or wide in _HOLDS.get(narrow, ())


def _cast_to(f: str) -> str:
    name, params = split_text(f)
    return dtype(params[0]).name if name == "cast" else ""


@primitive((STR, STR, STR), (STR,))
def merged_cells(f: str, g: str, x: str) -> str | None:
    """The cell f(g(x)), where one cell is that bit for bit."""
    outer, inner, own = _cast_to(f), _cast_to(g), value_type(x).dtype
    if outer and inner and holds(inner, own):
        return "id" if outer == own else f
    if f == "abs" and g == "neg" and not DTYPES[own].signed:
        return None  # what unsigned integers call a negation wraps around
    return CELL_PAIRS.get((f, g))


@primitive((STR, STR), (STR,))
def inlined_map(outer: str, inner: str) -> str | None:
    """The signature s.0(t) of a cell of a cell, t without a reduction."""
    s, t = signature(outer), signature(inner)
    return None if t.n_reduced else sigalg.inline(s, 0, t).text


@PACK.law(source="IEEE 754, 5.5.1; roundings are idempotent; exact casts lose nothing")
def cell_of_cell(s: Sig, f: Cell, t: Sig, g: Cell, x: Value) -> Sides:
    """s[f](t[g](x)) = s.0(t)[h](x)   if h = f g: neg neg, abs neg, floor ceil, cast cast, ..."""
    h = merged_cells(f, g, type_of(x))
    return op(s, f, op(t, g, x)), op(inlined_map(s, t), h, x)


@primitive((STR, STR), (STR,))
def casts_to_own(f: str, x: str) -> str | None:
    """Defined for a cast to the operand's own dtype."""
    return f if _cast_to(f) == value_type(x).dtype else None


@PACK.law(source="definition of cast")
def cast_to_own(s: Sig, f: Cell, x: Value) -> Sides:
    """s[cast d](x) = s[id](x)   if x has dtype d."""
    casts_to_own(f, type_of(x))
    return op(s, f, x), op(s, "id", x)


@primitive((STR, STR, STR, STR), (STR,))
def inlined_second(outer: str, inner: str, x: str, y: str) -> str | None:
    """The signature s.1(t), t a map that negates y, beside x.

    The negation must be that of the sum: -y in i32 wraps around where x - y in i64 does not.
    """
    s, t = signature(outer), signature(inner)
    own = value_type(y).dtype
    if t.n_reduced or len(s.operands) != 2 or not same_ring(own, promote(value_type(x).dtype, own)):
        return None
    return sigalg.inline(s, 1, t).text


@PACK.law(source="IEEE 754, 5.4.1: x - y is x + (-y)")
def add_negated(s: Sig, t: Sig, x: Value, y: Value) -> Sides:
    """s[add](x, t[neg](y)) = s.1(t)[sub](x, y)   if both compute in one ring."""
    u = inlined_second(s, t, type_of(x), type_of(y))
    type_of_op(u, "sub", type_of(x) + ";" + type_of(y) + ";")
    return op(s, "add", x, op(t, "neg", y)), op(u, "sub", x, y)


@PACK.law(source="IEEE 754, 5.4.1: x - y is x + (-y)")
def subtract_negated(s: Sig, t: Sig, x: Value, y: Value) -> Sides:
    """s[sub](x, t[neg](y)) = s.1(t)[add](x, y)   if both compute in one ring."""
    u = inlined_second(s, t, type_of(x), type_of(y))
    return op(s, "sub", x, op(t, "neg", y)), op(u, "add", x, y)


# -- idempotent cells and choices -----------------------------------------------------------------

IDEMPOTENT = {"maximum", "minimum", "and", "or", "bit_and", "bit_or"}


@primitive((STR, STR), (STR,))
def one_of_twins(sig: str, f: str) -> str | None:
    """The signature less its second operand, read as the first is, for idempotent cells."""
    whole = signature(sig)
    same = whole.operands[0] == whole.operands[1]
    return sigalg.without_operand(whole, 1).text if same and f in IDEMPOTENT else None


@PACK.law(source="folklore: idempotence")
def idempotent(s: Sig, f: Cell, x: Value) -> Sides:
    """s[f](x, x) = t[id](x)   for maximum, minimum, and, or, if s reads both alike."""
    return op(s, f, x, x), op(one_of_twins(s, f), "id", x)


@primitive((STR, INT, STR, STR), (STR,))
def absorbed(outer: str, position: int, inner: str, f: str) -> str | None:
    """The signature s.p(t) less an operand that occurs twice at the same end."""
    s, t = signature(outer), signature(inner)
    if f not in IDEMPOTENT or t.n_reduced or len(t.operands) != 2 or s.n_reduced > 1:
        return None
    whole = sigalg.inline(s, position, t)
    twins = (1, 2) if position == 0 else (0, 1)
    if whole.operands[twins[0]] != whole.operands[twins[1]]:
        return None
    return sigalg.without_operand(whole, twins[1]).text


@PACK.law(source="folklore: idempotence; of zeros of both signs the same end wins twice")
def absorb_left(s: Sig, t: Sig, f: Cell, x: Value, y: Value) -> Sides:
    """s[f](t[f](x, y), y) = u[f](x, y)   for idempotent f, if y is read alike."""
    return op(s, f, op(t, f, x, y), y), op(absorbed(s, 0, t, f), f, x, y)


@PACK.law(source="folklore: idempotence; of zeros of both signs the same end wins twice")
def absorb_right(s: Sig, t: Sig, f: Cell, x: Value, y: Value) -> Sides:
    """s[f](x, t[f](x, y)) = u[f](x, y)   for idempotent f, if x is read alike."""
    return op(s, f, x, op(t, f, x, y)), op(absorbed(s, 1, t, f), f, x, y)


@primitive((STR,), (STR,))
def either_branch(sig: str) -> str | None:
    """The signature of a choice between equal branches, less condition and one branch."""
    whole = signature(sig)
    if whole.operands[1] != whole.operands[2]:
        return None
    return sigalg.without_operand(whole, 0, 2).text


@PACK.law(source="definition of where")
def where_same(s: Sig, c: Value, x: Value) -> Sides:
    """s[where](c, x, x) = t[id](x)   if s reads both branches alike and c is defined."""
    left = op(s, "where", c, x, x)
    return left, op(either_branch(s), "id", x), is_defined(c)


@primitive((STR, STR), (STR,))
def exchanged_branches(sig: str, negation: str) -> str | None:
    """The signature of a choice by a negated condition, branches exchanged."""
    s, t = signature(sig), signature(negation)
    if t.n_reduced or s.n_reduced:
        return None
    return sigalg.reorder(sigalg.inline(s, 0, t), (0, 2, 1)).text


@PACK.law(source="definition of where")
def where_not(s: Sig, t: Sig, c: Value, x: Value, y: Value) -> Sides:
    """s[where](t[not](c), x, y) = u[where](c, y, x)."""
    left = op(s, "where", op(t, "not", c), x, y)
    return left, op(exchanged_branches(s, t), "where", c, y, x)


@primitive((STR, INT, STR, STR, STR), (STR,))
def decided_branch(outer: str, position: int, inner: str, live: str, dead: str) -> str | None:
    """The signature of a choice in a branch whose condition is decided already.

    The dead value must not have decided the dtype of the live one.
    """
    s, t = signature(outer), signature(inner)
    own = value_type(live).dtype
    if t.n_reduced or s.n_reduced or promote(own, value_type(dead).dtype) != own:
        return None
    whole = sigalg.inline(s, position, t)
    if whole.operands[0] != whole.operands[position]:
        return None
    # Operands are now c, (c, x, y), z or c, x, (c, y, z).
    return sigalg.without_operand(whole, position, 3).text


@PACK.law(source="definition of where")
def where_in_true(s: Sig, t: Sig, c: Value, x: Value, y: Value, z: Value) -> Sides:
    """s[where](c, t[where](c, x, y), z) = u[where](c, x, z)   if c is read alike."""
    left = op(s, "where", c, op(t, "where", c, x, y), z)
    u = decided_branch(s, 1, t, type_of(x), type_of(y))
    return left, op(u, "where", c, x, z)


@PACK.law(source="definition of where")
def where_in_false(s: Sig, t: Sig, c: Value, x: Value, y: Value, z: Value) -> Sides:
    """s[where](c, x, t[where](c, y, z)) = u[where](c, x, z)   if c is read alike."""
    left = op(s, "where", c, x, op(t, "where", c, y, z))
    u = decided_branch(s, 2, t, type_of(z), type_of(y))
    return left, op(u, "where", c, x, z)


for _of in ("choices", "enumerated", "extents", "whole_numbers"):
    PACK.proof_laws(f"axe_eq_rules.{_of}:LAWS.add_to")
