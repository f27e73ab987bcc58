"""Cells of a choice: computed on either branch, alone or beside a scalar.

Legend as in pack tensor, whose laws these are. Masks by position move so behind what computes a
score, where a kernel can leave them out of whole chunks.
"""

from __future__ import annotations

from functools import partial

from axe_eq.program import sigalg
from axe_eq.program.decisions import Draw
from axe_eq.program.ops import join_text
from axe_eq.program.signature import Signature, make, signature
from axe_eq.program.terms import Cell, In, Nil, Sel, Sig, Spec, Value, op, type_of
from axe_eq.program.types import value_type
from axe_eq.rule.law import Sides
from axe_eq.rule.term import INT, STR, Ground, primitive
from axe_eq_rules.constants import constant
from axe_eq_rules.layout_numbers import Laws

LAWS = Laws()


@primitive((STR, STR, STR, STR), (STR,))
def of_the_condition(sig: str, k: str, m: str, c: str) -> str | None:
    """The signature of a choice between true and false, less both."""
    if (constant(k), constant(m)) != ((True, "bool"), (False, "bool")):
        return None
    s, scalars = signature(sig), [value_type(c).shape, (), ()]
    if s.operands[1:] != ((), ()) or s.n_reduced:
        return None
    return make([s.operands[0]], range(s.n_out), fixed=dict(enumerate(s.extents(scalars)))).text


def _truth(draw: Draw) -> tuple[Ground, ...]:
    """A choice between true and false."""
    read = draw.pick("dims", ("a b", "b a", "a", "b", "a a", "a 1", ""))
    a, b = draw.integer("a", 1, 4), draw.integer("b", 1, 4)
    shape = ",".join(str({"a": a, "b": b, "1": 2}[d]) for d in read.split())
    s = signature(f"{read}, , -> a b [a={a} b={b}]").text
    ends = draw.pick("ends", ((True, False), (True, False), (False, True)))
    k, m = (join_text("full", (), v, draw.pick("dtype", ("bool", "bool", "i8"))) for v in ends)
    return s, In("c", f"bool[{shape}]"), k, m


@LAWS.law(source="definition of where", sampler=_truth)
def where_truth(s: Sig, c: Value, k: Spec, m: Spec) -> Sides:
    """s[where](c, true, false) = t[id](c)."""
    left = op(s, "where", c, Sel(k, Nil()), Sel(m, Nil()))
    return left, op(of_the_condition(s, k, m, type_of(c)), "id", c)


@primitive((STR, INT, STR, STR, STR), (STR, STR))
def branch_maps(sig: str, position: int, choice: str, x: str, y: str) -> tuple[str, str] | None:
    """Signatures of a cell on either branch of a choice, beside scalars, for a pointwise cell."""
    s, t = signature(sig), signature(choice)
    own = sigalg.identity(s.n_out).operands[0]
    pointwise = s == make(
        [own if n == position else () for n in range(len(s.operands))], range(s.n_out)
    )
    if not pointwise or t.n_reduced or value_type(x).dtype != value_type(y).dtype:
        return None
    return _beside_scalars(s, position, x), _beside_scalars(s, position, y)


def _beside_scalars(sig: Signature, position: int, x: str) -> str:
    own = sigalg.identity(value_type(x).rank).operands[0]
    operands = [own if n == position else () for n in range(len(sig.operands))]
    return make(operands, range(len(own))).text


def _choice(draw: Draw, *, position: int | None = None) -> tuple[Ground, ...]:
    """A cell of a choice, and of a scalar beside it where the choice has a position.

    The branches read all dims, some of them, or none.
    """
    names = ("a", "b", "c")[: draw.integer("rank", 0, 3)]
    sizes = {n: draw.integer(n, 1, 3) for n in names}
    read = [tuple(n for n in names if draw.chance(f"{v} {n}", 0.8)) for v in ("c", "x", "y")]
    if any(n not in {*read[0], *read[1], *read[2]} for n in names):
        read[1] = names
    dtype = draw.pick("dtype", ("f64", "f32", "i64", "i8"))
    kinds = ("bool", dtype, dtype)
    made = [
        In(v, f"{kind}[{','.join(str(sizes[n]) for n in dims)}]")
        for v, kind, dims in zip(("c", "x", "y"), kinds, read, strict=True)
    ]
    out = " ".join(names)
    choice = signature(f"{', '.join(map(' '.join, read))} -> {out}").text
    if position is None:
        cell = draw.pick("cell", ("neg", "abs", "sign", "floor"))
        return signature(f"{out} -> {out}").text, cell, choice, *made
    parts = [out, ""] if position == 0 else ["", out]
    scalar = join_text("full", (), draw.pick("k", (0, 1, 2, 3)), dtype)
    cell = draw.pick("cell", ("add", "sub", "mul", "maximum", "minimum", "lt", "eq"))
    return signature(f"{', '.join(parts)} -> {out}").text, cell, choice, *made, scalar


@LAWS.law(source="definition of where", expands=True, sampler=_choice)
def cell_of_where(s: Sig, f: Cell, t: Sig, c: Value, x: Value, y: Value) -> Sides:
    """s[f](t[where](c, x, y)) = t[where](c, f(x), f(y))   for pointwise s."""
    u, v = branch_maps(s, 0, t, type_of(x), type_of(y))
    return op(s, f, op(t, "where", c, x, y)), op(t, "where", c, op(u, f, x), op(v, f, y))


@LAWS.law(source="definition of where", expands=True,
          sampler=partial(_choice, position=0))  # fmt: skip
def cell_of_where_right(s: Sig, f: Cell, t: Sig, c: Value, x: Value, y: Value, k: Spec) -> Sides:
    """s[f](t[where](c, x, y), k) = t[where](c, f(x, k), f(y, k))   for pointwise s."""
    u, v = branch_maps(s, 0, t, type_of(x), type_of(y))
    scalar = Sel(k, Nil())
    left = op(s, f, op(t, "where", c, x, y), scalar)
    return left, op(t, "where", c, op(u, f, x, scalar), op(v, f, y, scalar))


@LAWS.law(source="definition of where", expands=True,
          sampler=partial(_choice, position=1))  # fmt: skip
def cell_of_where_left(s: Sig, f: Cell, t: Sig, c: Value, x: Value, y: Value, k: Spec) -> Sides:
    """s[f](k, t[where](c, x, y)) = t[where](c, f(k, x), f(k, y))   for pointwise s."""
    u, v = branch_maps(s, 1, t, type_of(x), type_of(y))
    scalar = Sel(k, Nil())
    left = op(s, f, scalar, op(t, "where", c, x, y))
    return left, op(t, "where", c, op(u, f, scalar, x), op(v, f, scalar, y))


@primitive((STR, INT, STR, STR, STR, STR, STR), (STR, STR))
def beside_choice(
    sig: str, position: int, choice: str, c: str, x: str, k: str, m: str
) -> tuple[str, str] | None:
    """(choice, cell beside a scalar) for a cell of two operands, one a choice of two constants."""
    s, t, one, other = signature(sig), signature(choice), constant(k), constant(m)
    if s.n_reduced or t.n_reduced or t.operands[1:] != ((), ()) or len(s.operands) != 2:
        return None
    if one is None or other is None or one[1] != other[1]:
        return None
    whole = sigalg.inline(s, position, t)
    asked, read = (0, 3) if position == 0 else (1, 0)
    shapes: list[tuple[int, ...]] = [(), (), (), ()]
    shapes[asked], shapes[read] = value_type(c).shape, value_type(x).shape
    fixed = dict(enumerate(whole.extents(shapes)))
    own = sigalg.identity(s.n_out).operands[0]
    beside = [(), whole.operands[read]] if position == 0 else [whole.operands[read], ()]
    out = range(s.n_out)
    both = make([whole.operands[asked], own, own], out, fixed=fixed)
    return both.text, make(beside, out, fixed=fixed).text


def _masked(draw: Draw, *, position: int) -> tuple[Ground, ...]:
    """A cell of a value and a choice of two constants."""
    dims = ("a b", "a", "b", "")
    reads = {n: draw.pick(n, dims) for n in "cx"}
    dtype = draw.pick("dtype", ("f32", "f64", "i64"))
    sizes = {"a": "2", "b": "3"}
    c, x = (
        In(n, f"{of}[{','.join(sizes[d] for d in reads[n].split())}]")
        for n, of in (("c", "bool"), ("x", dtype))
    )
    # The choice has all dims, so that the cell's signature needs no extents of its own.
    t = signature(f"{reads['c']}, , -> a b [a=2 b=3]").text
    operands = ["a b", reads["x"]] if position == 0 else [reads["x"], "a b"]
    s = signature(f"{', '.join(operands)} -> a b").text
    k, m = (join_text("full", (), draw.pick(n, (0, 1, 2)), dtype) for n in "km")
    cell = draw.pick("cell", ("add", "sub", "mul", "maximum", "lt"))
    return s, cell, t, c, x, k, m


@LAWS.law(source="definition of where",
          sampler=partial(_masked, position=1))  # fmt: skip
def cell_beside_where(s: Sig, f: Cell, t: Sig, c: Value, x: Value, k: Spec, m: Spec) -> Sides:
    """s[f](x, t[where](c, k, m)) = u[where](c, v[f](x, k), v[f](x, m))   for constants k, m."""
    u, v = beside_choice(s, 1, t, type_of(c), type_of(x), k, m)
    one, other = Sel(k, Nil()), Sel(m, Nil())
    left = op(s, f, x, op(t, "where", c, one, other))
    return left, op(u, "where", c, op(v, f, x, one), op(v, f, x, other))


@LAWS.law(source="definition of where",
          sampler=partial(_masked, position=0))  # fmt: skip
def cell_beside_where_left(s: Sig, f: Cell, t: Sig, c: Value, x: Value, k: Spec, m: Spec) -> Sides:
    """s[f](t[where](c, k, m), x) = u[where](c, v[f](k, x), v[f](m, x))   for constants k, m."""
    u, v = beside_choice(s, 0, t, type_of(c), type_of(x), k, m)
    one, other = Sel(k, Nil()), Sel(m, Nil())
    left = op(s, f, op(t, "where", c, one, other), x)
    return left, op(u, "where", c, op(v, f, one, x), op(v, f, other, x))
