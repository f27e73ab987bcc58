"""Laws that hold over the reals: functions, scaling, and reductions in parts.

Legend: x, y, z values; rest, operands of an operator; s, t, u, v signatures; f, g, h cells; k, m
texts of constants and selectors. ``s[f](x, y)`` a block operator, ``s.0(t)`` s with its operand
0 replaced by the operands of t. Sums, products and distribution have normal forms (pack
real_normal); here is what those do not see, and what a search for cheap forms wants as rewrites.

Inputs are finite; constants, and what is computed from them, may be infinite or undefined. Laws to
which this matters ask for facts (pack-wide words: `needs`): `finite` means defined and finite at
all finite inputs, `proper` finite wherever defined.
"""

from __future__ import annotations

from typing import Any

from axe_eq.pack import Pack
from axe_eq.program import sigalg
from axe_eq.program.decisions import Draw
from axe_eq.program.ops import CELLS, MONOIDS, folding, split_text
from axe_eq.program.signature import Signature, make, signature
from axe_eq.program.terms import Args, Cell, In, Nil, Op, Sel, Sig, Spec, Value, op, sel, type_of
from axe_eq.program.types import DTYPES, dtype, promote, same_ring, value_type
from axe_eq.rule.law import Sides
from axe_eq.rule.term import INT, STR, Ground, Undefined, primitive
from axe_eq_rules.constants import constant, constant_text, one_ring
from axe_eq_rules.joins import along_rounding, merge_of_reductions, named, operator_of_concat
from axe_eq_rules.needs import NOTHING, PROPER, is_above, is_proper
from axe_eq_rules.split_products import product_parts, product_sample
from axe_eq_rules.stages import (
    long_sample,
    parts,
    square_sample,
    squares,
    squares_in_parts,
    stages,
    uneven_parts,
)
from axe_eq_rules.tensor import inlined_map, swapped, without_scalar

PACK = Pack(
    "real",
    version="3",
    exact=False,
    summary="functions, scaling and reductions in parts, over the reals",
)


# -- order of operands and constants ---------------------------------------------------------------


@primitive((STR, STR), (STR,))
def swap_over_reals(sig: str, f: str) -> str | None:
    """The signature with operands exchanged, for cells that are commutative on reals only."""
    return swapped(sig, f, exact=False)


@PACK.law(source="folklore: commutativity", expands=True, search=False)
def commute(s: Sig, f: Cell, x: Value, y: Value) -> Sides:
    """s[f](x, y) = s'[f](y, x)   for maximum, minimum, hypot, logaddexp."""
    return op(s, f, x, y), op(swap_over_reals(s, f), f, y, x)


@primitive((STR, INT, STR, STR), (STR,))
def without_zero(sig: str, position: int, spec: str, x: str) -> str | None:
    """The signature of a sum less an operand that is 0."""
    k = constant(spec)
    return None if k is None or k[0] != 0 else without_scalar(sig, position, x, k).text


@PACK.law(source="folklore: neutral element")
def add_zero(s: Sig, x: Value, k: Spec) -> Sides:
    """s[add](x, 0) = t[id](x)."""
    return op(s, "add", x, Sel(k, Nil())), op(without_zero(s, 1, k, type_of(x)), "id", x)


@PACK.law(source="folklore: neutral element")
def zero_add(s: Sig, x: Value, k: Spec) -> Sides:
    """s[add](0, x) = t[id](x)."""
    return op(s, "add", Sel(k, Nil()), x), op(without_zero(s, 0, k, type_of(x)), "id", x)


@PACK.law(source="definition of neg")
def zero_minus(s: Sig, x: Value, k: Spec) -> Sides:
    """s[sub](0, x) = t[neg](x)."""
    return op(s, "sub", Sel(k, Nil()), x), op(without_zero(s, 0, k, type_of(x)), "neg", x)


# -- functions -------------------------------------------------------------------------------------

FUNCTION_PAIRS: dict[tuple[str, str], str] = {
    ("log", "exp"): "id", ("log1p", "expm1"): "id", ("asinh", "sinh"): "id",
    ("sinh", "asinh"): "id", ("atanh", "tanh"): "id", ("tan", "atan"): "id",
    ("cos", "neg"): "cos", ("cos", "abs"): "cos", ("cosh", "neg"): "cosh", ("cosh", "abs"): "cosh",
    **{("abs", f): f for f in ("exp", "sqrt", "rsqrt", "sigmoid", "cosh")},
}  # fmt: skip


# Inverse functions, one of which has a pole where the other one is at infinity.
_INVERSE = {("log", "exp"), ("log1p", "expm1"), ("atanh", "tanh"), ("tan", "atan")}


@primitive((STR, STR, STR), (STR, INT))
def merged_functions(f: str, g: str, x: str) -> tuple[str, int] | None:
    """The cell that is f(g(x)), and what x must be; casts between floating dtypes lose nothing."""
    (outer, to), (inner, between) = split_text(f), split_text(g)
    own = value_type(x).dtype
    if outer == inner == "cast":
        floats = all(DTYPES[dtype(d).name].kind == "f" for d in (to[0], between[0], own))
        same = dtype(to[0]).name == own
        return ("id" if same else f, NOTHING) if floats else None
    found = FUNCTION_PAIRS.get((f, g))
    return None if found is None else (found, PROPER if (f, g) in _INVERSE else NOTHING)


def _pairs(draw: Draw) -> tuple[Ground, ...]:
    """One function of another, elementwise."""
    f, g = draw.pick("pair", [*FUNCTION_PAIRS, ("cast f32", "cast f16"), ("cast f64", "cast f32")])
    rank = draw.integer("rank", 0, 2)
    s = sigalg.identity(rank).text
    return s, f, s, g, In("x0", f"f64[{','.join('34'[:rank])}]")


@PACK.law(source="folklore: inverse and even functions", sampler=_pairs)
def function_of_function(s: Sig, f: Cell, t: Sig, g: Cell, x: Value) -> Sides:
    """s[f](t[g](x)) = s.0(t)[h](x)   if h = f g: cos neg, cast cast, log exp of a proper x, ..."""
    h, need = merged_functions(f, g, type_of(x))
    right = op(inlined_map(s, t), h, x)
    return op(s, f, op(t, g, x)), right, is_proper(x, need)


# Exponent -> the cell that is that power.
_POWERS = {0.5: "sqrt", -0.5: "rsqrt"}


@primitive((STR, STR, STR), (STR, STR))
def power_cell(sig: str, spec: str, x: str) -> tuple[str, str] | None:
    """(signature, cell) of a root."""
    k = constant(spec)
    cell = None if k is None else _POWERS.get(k[0])
    if k is None or cell is None or DTYPES[value_type(x).dtype].kind != "f":
        return None
    return without_scalar(sig, 1, x, k).text, cell


def _roots(draw: Draw) -> tuple[Ground, ...]:
    """A power with a constant exponent."""
    rank, k = draw.integer("rank", 0, 2), draw.pick("k", (0.5, -0.5))
    sig = make([sigalg.identity(rank).operands[0], ()], range(rank))
    x = In("x0", f"f64[{','.join('34'[:rank])}]")
    return sig.text, x, constant_text(k, "f64")


@PACK.law(source="folklore: roots are powers", sampler=_roots)
def power_is_root(s: Sig, x: Value, k: Spec) -> Sides:
    """s[pow](x, k) = t[f](x)   for sqrt and k = 1/2, rsqrt and k = -1/2, x never -inf."""
    t, f = power_cell(s, k, type_of(x))
    return op(s, "pow", x, Sel(k, Nil())), op(t, f, x), is_above(x)


@primitive((STR, STR, STR), (STR,))
def square_signature(sig: str, spec: str, x: str) -> str | None:
    """The signature of x times x, for a power of 2."""
    k = constant(spec)
    if k is None or k[0] != 2:
        return None
    rest = without_scalar(sig, 1, x, k)
    return sigalg.rebuild(rest, [rest.operands[0], rest.operands[0]]).text


@PACK.law(source="folklore: squares are products")
def power_is_square(s: Sig, x: Value, k: Spec) -> Sides:
    """s[pow](x, 2) = t[mul](x, x)."""
    return op(s, "pow", x, Sel(k, Nil())), op(square_signature(s, k, type_of(x)), "mul", x, x)


@primitive((STR, STR, STR), (STR, STR))
def exponents(sig: str, first: str, second: str) -> tuple[str, str] | None:
    """(pointwise, map) for a cell of two functions of single operands, nothing reduced."""
    s, t, u = signature(sig), signature(first), signature(second)
    if s.n_reduced or t.n_reduced or u.n_reduced:
        return None
    whole = sigalg.inline(sigalg.inline(s, 1, u), 0, t)
    return sigalg.identity(s.n_out).text, whole.text


@PACK.law(source="folklore: exponentials")
def product_of_exponentials(s: Sig, t: Sig, u: Sig, x: Value, y: Value) -> Sides:
    """s[mul](t[exp](x), u[exp](y)) = exp(x + y)."""
    e, v = exponents(s, t, u)
    left = op(s, "mul", op(t, "exp", x), op(u, "exp", y))
    return left, op(e, "exp", op(v, "add", x, y))


@PACK.law(source="folklore: exponentials")
def quotient_of_exponentials(s: Sig, t: Sig, u: Sig, x: Value, y: Value) -> Sides:
    """s[div](t[exp](x), u[exp](y)) = exp(x - y)   if y is never -inf."""
    e, v = exponents(s, t, u)
    left = op(s, "div", op(t, "exp", x), op(u, "exp", y))
    return left, op(e, "exp", op(v, "sub", x, y)), is_above(y)


@primitive((STR,), (STR,))
def is_map(sig: str) -> str | None:
    """Defined for signatures without a reduction."""
    return None if signature(sig).n_reduced else sig


@PACK.law(source="definition of rsqrt")
def divide_by_root(s: Sig, t: Sig, x: Value, y: Value) -> Sides:
    """s[div](x, t[sqrt](y)) = s[mul](x, t[rsqrt](y))   if t reduces nothing."""
    is_map(t)
    return op(s, "div", x, op(t, "sqrt", y)), op(s, "mul", x, op(t, "rsqrt", y))


@primitive((STR,), (STR, STR))
def with_scalar(sig: str) -> tuple[str, str] | None:
    """(pointwise, cell of a scalar and an array) for a function of a map written out."""
    s = signature(sig)
    own = sigalg.identity(s.n_out)
    return None if s.n_reduced else (own.text, make([(), own.operands[0]], range(s.n_out)).text)


@primitive((INT, STR), (STR,))
def number(value: int, like: str) -> str:
    """A whole number as a constant of a type's dtype."""
    return constant_text(float(value), value_type(like).dtype)


@PACK.law(source="definition of sigmoid", expands=True, search=False)
def sigmoid(s: Sig, x: Value) -> Sides:
    """s[sigmoid](x) = 1 / (1 + exp(-x))."""
    e, b = with_scalar(s)
    one = Sel(number(1, type_of(x)), Nil())
    return op(s, "sigmoid", x), op(b, "div", one, op(b, "add", one, op(e, "exp", op(s, "neg", x))))


@PACK.law(source="definition of tanh", expands=True, search=False)
def tanh(s: Sig, x: Value) -> Sides:
    """s[tanh](x) = 2 sigmoid(2 x) - 1."""
    e, b = with_scalar(s)
    two, minus = Sel(number(2, type_of(x)), Nil()), Sel(number(-1, type_of(x)), Nil())
    inner = op(e, "sigmoid", op(b, "mul", two, op(s, "id", x)))
    return op(s, "tanh", x), op(b, "add", minus, op(b, "mul", two, inner))


# -- choices ---------------------------------------------------------------------------------------

# Comparison -> the cell that takes the operand for which it holds.
_TAKES = {"gt": "maximum", "ge": "maximum", "lt": "minimum", "le": "minimum"}


@primitive((STR, STR, STR, INT), (STR, STR))
def compared(sig: str, f: str, comparison: str, crossed: int) -> tuple[str, str] | None:
    """(signature, cell) of a choice between the very operands that its condition compares."""
    s, t = signature(sig), signature(comparison)
    if f not in _TAKES or s.n_reduced or t.n_reduced:
        return None
    whole = sigalg.inline(s, 0, t)
    branches = (3, 2) if crossed else (2, 3)
    if any(whole.operands[n] != whole.operands[b] for n, b in enumerate(branches)):
        return None
    other = {"maximum": "minimum", "minimum": "maximum"}
    cell = other[_TAKES[f]] if crossed else _TAKES[f]
    return sigalg.without_operand(whole, 2, 3).text, cell


@PACK.law(source="definition of maximum and minimum")
def where_greater(s: Sig, t: Sig, f: Cell, x: Value, y: Value) -> Sides:
    """s[where](t[f](x, y), x, y) = u[g](x, y)   for maximum and >, >=, minimum and <, <=."""
    u, g = compared(s, f, t, 0)
    return op(s, "where", op(t, f, x, y), x, y), op(u, g, x, y)


@PACK.law(source="definition of maximum and minimum")
def where_smaller(s: Sig, t: Sig, f: Cell, x: Value, y: Value) -> Sides:
    """s[where](t[f](x, y), y, x) = u[g](x, y)   for minimum and >, >=, maximum and <, <=."""
    u, g = compared(s, f, t, 1)
    return op(s, "where", op(t, f, x, y), y, x), op(u, g, x, y)


@primitive((STR, STR, STR), (STR,))
def negated_twin(sig: str, negation: str, x: str) -> str | None:
    """The signature of abs, for a cell of a value and its negation read alike.

    Where a value has a sign: what unsigned integers call a negation wraps around.
    """
    s, t = signature(sig), signature(negation)
    if t.n_reduced or not DTYPES[value_type(x).dtype].signed:
        return None
    whole = sigalg.inline(s, 1, t)
    same = whole.operands[0] == whole.operands[1]
    return sigalg.without_operand(whole, 1).text if same else None


@PACK.law(source="definition of abs")
def maximum_of_negated(s: Sig, t: Sig, x: Value) -> Sides:
    """s[maximum](x, t[neg](x)) = u[abs](x)   if x is read alike, and has a sign."""
    return op(s, "maximum", x, op(t, "neg", x)), op(negated_twin(s, t, type_of(x)), "abs", x)


# -- scaling out of reductions ---------------------------------------------------------------------


@primitive((STR, STR, STR, STR, STR), (STR, STR, INT))
def scaled_sum(outer: str, inner: str, f: str, x: str, y: str) -> tuple[str, str, int] | None:
    """(pointwise, reduction) with the inner cell's second operand taken out; what that must be."""
    s, t = signature(outer), signature(inner)
    own = value_type(x).dtype
    common = promote(own, value_type(y).dtype)
    # Integers wrap around: their sums are a ring, but adding to them does not keep their order.
    fits = same_ring(own, common) if s.monoid == "+" else DTYPES[common].kind == "f"
    if (s.monoid, f) not in _SCALES or t.n_reduced or not fits:
        return None
    return *_taken_out(sigalg.inline(s, 0, t), (0,), 1), _FREE_OF[f]


# Infinity times a sum of both signs is no sum of infinities; divided by it all are 0.
_FREE_OF = {"mul": PROPER, "div": NOTHING, "add": PROPER, "sub": PROPER}
# Cells f with reduce(f(x, y)) = f(reduce(x), y) for y without the reduced dims.
_SCALES = {
    ("+", "mul"), ("+", "div"), ("max", "add"), ("max", "sub"), ("min", "add"), ("min", "sub"),
}  # fmt: skip


def _taken_out(whole: Signature, group: tuple[int, ...], free: int) -> tuple[str, str]:
    """(outer, inner) that reduce the group first; the free operand must lack all reduced dims."""
    if any(d in whole.reduced for d in sigalg.dims_of(whole.operands[free])):
        raise Undefined("free of what is reduced")
    if len(group) == 1:
        return _reduced_alone(whole, group[0])
    outer, inner = sigalg.outline(whole, group, reduce=True)
    if outer.n_reduced or not inner.n_reduced:
        raise Undefined("reduced inside")
    return outer.text, inner.text


def _reduced_alone(whole: Signature, position: int) -> tuple[str, str]:
    operand = whole.operands[position]
    kept = sorted(d for d in sigalg.dims_of(operand) if d < whole.n_out)
    own = sigalg.dims_of(operand)
    fixed = {d: e for d, e in whole.fixed if d in own or d in whole.reduced}
    inner = make([operand], kept, whole.monoid, whole.reduced, fixed)
    read = tuple(sigalg.identity(whole.n_dims).operands[0][d] for d in kept)
    operands = list(whole.operands)
    operands[position] = read
    left = {d: e for d, e in whole.fixed if d not in whole.reduced}
    outer = make(operands, range(whole.n_out), fixed=left)
    if sigalg.windows(inner) != {} or sigalg.windows(outer) != {}:
        raise Undefined("windows")
    return outer.text, inner.text


@PACK.law(source="folklore: linearity; max(x + c) = max(x) + c")
def scale_of_reduction(s: Sig, f: Cell, t: Sig, x: Value, y: Value) -> Sides:
    """s[id](t[f](x, y)) = u[f](s'[id](x), y)   for + of mul, div; max of add, sub; proper y."""
    u, v, need = scaled_sum(s, t, f, type_of(x), type_of(y))
    right = op(u, f, op(v, "id", x), y)
    return op(s, "id", op(t, f, x, y)), right, is_proper(y, need)


@primitive((STR, INT, STR, STR, STR, STR, STR), (STR, STR, INT))
def scaled_product(
    outer: str, position: int, inner: str, f: str, x: str, y: str, z: str
) -> tuple[str, str, int] | None:
    """(pointwise, contraction) with the second operand of x f y taken out; what that must be."""
    s, t = signature(outer), signature(inner)
    if s.monoid != "+" or f not in ("mul", "div") or t.n_reduced or len(t.operands) != 2:
        return None
    if not one_ring(x, y, z):
        return None
    group, free = ((0, 2), 1) if position == 0 else ((0, 1), 2)
    return *_taken_out(sigalg.inline(s, position, t), group, free), _FREE_OF[f]


@PACK.law(source="folklore: linearity of contractions", expands=True)
def scale_of_left(s: Sig, f: Cell, t: Sig, x: Value, y: Value, z: Value) -> Sides:
    """s[mul](t[f](x, y), z) = u[f](v[mul](x, z), y)   f mul, div; y proper, lacks summed dims."""
    u, v, need = scaled_product(s, 0, t, f, type_of(x), type_of(y), type_of(z))
    right = op(u, f, op(v, "mul", x, z), y)
    return op(s, "mul", op(t, f, x, y), z), right, is_proper(y, need)


@PACK.law(source="folklore: linearity of contractions", expands=True)
def scale_of_right(s: Sig, f: Cell, t: Sig, x: Value, y: Value, z: Value) -> Sides:
    """s[mul](z, t[f](x, y)) = u[f](v[mul](z, x), y)   f mul, div; y proper, lacks summed dims."""
    u, v, need = scaled_product(s, 1, t, f, type_of(x), type_of(y), type_of(z))
    right = op(u, f, op(v, "mul", z, x), y)
    return op(s, "mul", z, op(t, f, x, y)), right, is_proper(y, need)


# -- factoring -------------------------------------------------------------------------------------


@primitive((STR, STR), (STR,))
def pointwise_sum(s: str, f: str) -> str | None:
    """The signature itself where it adds or subtracts two values of one shape."""
    of = signature(s)
    return s if f in ("add", "sub") and of == sigalg.elementwise(of.n_out, 2) else None


@primitive((STR, STR, STR, STR), (STR,))
def common_factor(product: str, x: str, y: str, z: str) -> str | None:
    """The signature of the sum of the other factors, for a pointwise sum of two like products."""
    of = value_type(x)
    linear = signature(product).monoid in ("", "+") and DTYPES[of.dtype].kind != "b"
    linear = linear and same_ring(of.dtype, promote(of.dtype, value_type(z).dtype))
    return sigalg.elementwise(of.rank, 2).text if x == y and linear else None


# Asking for the sum first is what keeps these laws linear in the size of a program: without it the
# e-graph joins all products with a common factor before it looks at what adds them.
@PACK.law(source="folklore: distributivity")
def factor_left(s: Sig, f: Cell, t: Sig, x: Value, y: Value, z: Value) -> Sides:
    """s[f](t[mul](z, x), t[mul](z, y)) = t[mul](z, u[f](x, y))   for f add or sub, z proper."""
    pointwise_sum(s, f)
    u = common_factor(t, type_of(x), type_of(y), type_of(z))
    left = op(s, f, op(t, "mul", z, x), op(t, "mul", z, y))
    return left, op(t, "mul", z, op(u, f, x, y)), is_proper(z)


@PACK.law(source="folklore: distributivity")
def factor_right(s: Sig, f: Cell, t: Sig, x: Value, y: Value, z: Value) -> Sides:
    """s[f](t[mul](x, z), t[mul](y, z)) = t[mul](u[f](x, y), z)   for f add or sub, z proper."""
    pointwise_sum(s, f)
    u = common_factor(t, type_of(x), type_of(y), type_of(z))
    left = op(s, f, op(t, "mul", x, z), op(t, "mul", y, z))
    return left, op(t, "mul", op(u, f, x, y), z), is_proper(z)


# -- reductions in parts ---------------------------------------------------------------------------


@primitive((STR, STR, STR), (STR,))
def merged_sums(outer: str, inner: str, cell: str) -> str | None:
    """One reduction over the dims of both, for a monoid whose merging rounds.

    Not of products that are kept wide for a sum of parts: they were one sum.
    """
    s, t = signature(outer), signature(inner)
    if not s.monoid or s.monoid != t.monoid or CELLS[split_text(cell)[0]].result == "wide":
        return None
    again = folding(s.monoid) == s.monoid and not MONOIDS[s.monoid].exact
    return sigalg.inline(s, 0, t).text if again else None


@PACK.law(source="folklore: associativity of sums and products")
def nested_reduction(s: Sig, t: Sig, f: Cell, rest: Args) -> Sides:
    """s[id](t[f](rest)) = s.0(t)[f](rest)   if both sum, or both multiply; f rounds its sums."""
    return op(s, "id", Op(t, f, rest)), Op(merged_sums(s, t, f), f, rest)


@PACK.law(source="folklore: reductions in two stages", expands=True,
          sampler=long_sample(single=False))  # fmt: skip
def long_reduction_in_stages(s: Sig, x: Value) -> Sides:
    """s[id](x) = m[n](t[id](u[w](x)))   if s reduces many elements of several dims; w, n cast."""
    t, u, w, m, n = stages(s, type_of(x))
    return op(s, "id", x), op(m, n, op(t, "id", op(u, w, x)))


@PACK.law(source="folklore: reductions in two stages", expands=True,
          sampler=long_sample(single=True))  # fmt: skip
def long_reduction_in_parts(s: Sig, x: Value) -> Sides:
    """s[id](x) = m[n](t[id](u[w](k(x))))   as above if k splits a dim."""
    t, u, k, w, m, n = parts(s, type_of(x))
    return op(s, "id", x), op(m, n, op(t, "id", op(u, w, sel(k, x))))


@PACK.law(source="folklore: reductions in two stages; what is left is one more row", expands=True,
          sampler=long_sample(single=True, even=False))  # fmt: skip
def long_reduction_in_uneven_parts(s: Sig, x: Value) -> Sides:
    """s[id](x) = m[n](t[id](join(u[w](k(head(x))), v[w](tail(x)))))   as above, for any extent."""
    t, u, k, head, tail, join, v, w, m, n = uneven_parts(s, type_of(x))
    begun = op(u, w, sel(k, sel(head, x)))
    return op(s, "id", x), op(m, n, op(t, "id", sel(join, begun, op(v, w, sel(tail, x)))))


@PACK.law(source="folklore: split-K", late=True, sampler=product_sample)
def long_product_in_parts(s: Sig, x: Value, y: Value) -> Sides:
    """s[mul](x, y) = m[c](t[id](u[product](k(x), h(y))))   if k, h cut a long dim; c casts."""
    t, u, k, h, m, c = product_parts(s, type_of(x), type_of(y))
    parts = op(u, "product", sel(k, x), sel(h, y))
    return op(s, "mul", x, y), op(m, c, op(t, "id", parts))


def _squares_of_parts(u: Any, t: Any, names: tuple[Any, ...], m: Value, y: Value) -> Any:
    """t[id](u[id]((y - c)^2) + r (c - m)^2), c = u[id](y) / r   by names of `squares`."""
    read, product, r, of_parts, their, scaled = names
    count = Sel(r, Nil())
    c = op(scaled, "div", op(u, "id", y), count)
    inside, between = op(read, "sub", y, c), op(of_parts, "sub", c, m)
    spread = op(scaled, "mul", op(their, "mul", between, between), count)
    within = op(u, "id", op(product, "mul", inside, inside))
    return op(t, "id", op(their, "add", within, spread))


@PACK.law(source="Chan, Golub and LeVeque (1983), eq. 2.1", expands=True, sampler=square_sample)
def long_squares_in_stages(s: Sig, e: Sig, g: Sig, x: Value, m: Value) -> Sides:
    """s[id]((x - m)^2) = t[id](u[id]((x - c)^2) + r (c - m)^2), c = u[id](x) / r   for any m."""
    u, t, *names = squares(s, e, g, type_of(x))
    d = op(g, "sub", x, m)
    return op(s, "id", op(e, "mul", d, d)), _squares_of_parts(u, t, tuple(names), m, x)


@PACK.law(source="Chan, Golub and LeVeque (1983), eq. 2.1", expands=True, sampler=square_sample)
def long_squares_in_parts(s: Sig, e: Sig, g: Sig, x: Value, m: Value) -> Sides:
    """s[id]((x - m)^2) = t[id](u[id]((y - c)^2) + r (c - m)^2), c = u[id](y) / r, y = k(x)."""
    k, u, t, *names = squares_in_parts(s, e, g, type_of(x))
    d = op(g, "sub", x, m)
    left = op(s, "id", op(e, "mul", d, d))
    return left, _squares_of_parts(u, t, tuple(names), m, sel(k, x))


for _count in (1, 2):
    PACK.law(
        source="TASO (SOSP 2019), table 2, for matrix products; ours in general",
        expands=True,
        search=False,
        name=named("merge_of_reductions", (_count,)),
    )(merge_of_reductions(_count, along_rounding))

for _position, _other in ((0, None), (1, None), (0, 1), (1, 0)):
    PACK.law(
        source="TASO (SOSP 2019), table 2, for matrix products; ours in general",
        expands=True,
        name=named("reduction_of_concat", (_position, *([] if _other is None else [_other]))),
    )(operator_of_concat(_position, _other, along_rounding))

for _of in ("zeros", "masks"):
    PACK.proof_laws(f"axe_eq_rules.{_of}:LAWS.add_to")
