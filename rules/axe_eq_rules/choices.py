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
from axe_eq_rules.layout_numbers import Laws

LAWS = Laws()


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
