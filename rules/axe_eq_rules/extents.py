"""One signature of an operator at its extents: no unit dims read, no extents said twice.

Signatures hold no extents but those that operands leave open, so what an operand's shape makes
the same stays apart: `0 b -> a b [a=1]` and `a b -> a b` of one row, windows with and without the
number of their places. Legend as in pack tensor, whose law this is.
"""

from __future__ import annotations

from axe_eq.errors import ProgramError
from axe_eq.program.decisions import Draw
from axe_eq.program.ops import MONOIDS
from axe_eq.program.sigalg import dims_of, is_rigid, rebuild
from axe_eq.program.signature import Affine, Signature, plain, signature
from axe_eq.program.terms import In, Op, Value, op, operands, type_of
from axe_eq.program.types import value_type
from axe_eq.rule.term import Ground, Term, Undefined
from axe_eq_rules.layout_numbers import Laws

LAWS = Laws()


def least(sig: Signature, shapes: list[tuple[int, ...]]) -> Signature:
    """The signature that reads unit dims at 0, reduces none and fixes the fewest extents.

    Raises:
        ProgramError: the shapes do not fit.
    """
    extents = sig.extents(shapes)
    images = {d: plain(d) if e > 1 else Affine(()) for d, e in enumerate(extents)}
    read = []
    for operand, shape in zip(sig.operands, shapes, strict=True):
        moved = [p.substitute(images) for p in operand]
        # A window that a unit dim leaves plain would claim the whole dim.
        fits = [q.plain is None or extents[q.plain] == e for q, e in zip(moved, shape, strict=True)]
        read.append(tuple(q if ok else p for p, q, ok in zip(operand, moved, fits, strict=True)))
    whole = MONOIDS[sig.monoid] if sig.monoid else None
    spare = whole is not None and whole.exact and whole.n_values == 1
    used = frozenset().union(*map(dims_of, read))
    reduced = [d for d in sig.reduced if extents[d] > 1 or d in used or not spare]
    fixed = {d: e for d, e in enumerate(extents) if d < sig.n_out or d in reduced}
    found = rebuild(sig, read, reduced=reduced, fixed=fixed)
    wanted = found.extents(shapes)
    for dim, _ in found.fixed:
        left = {d: e for d, e in found.fixed if d != dim}
        fewer = rebuild(found, fixed=left)
        try:
            found = fewer if is_rigid(fewer) and fewer.extents(shapes) == wanted else found
        except ProgramError:
            continue
    return found


def _sample(draw: Draw) -> tuple[Ground, ...]:
    """An operator with windows, unit dims, or both."""
    read, shape = draw.pick("read", (
        ("a 2b+c -> a b; max c [b=3 c=2]", (2, 6)), ("a 2b+c -> a b; + c [b=2 c=2]", (1, 5)),
        ("a b -> a b", (1, 3)), ("a b -> a; max b", (2, 1)), ("a b -> a; + b", (2, 1)),
        ("0 b -> a b; max c [a=1 c=3]", (1, 2)), ("a+c b -> a b; min c [a=2 c=3]", (4, 1)),
        ("a+c b -> a b; max c [a=1 c=2]", (3, 2)), ("a+c -> a; max c [a=1 c=2]", (2,)),
        ("a+c -> a; max c [a=3 c=1]", (3,)),
    ))  # fmt: skip
    dtype = draw.pick("dtype", ("f32", "f64", "i32", "f16"))
    cell = draw.pick("cell", ("id", "neg", "abs"))
    x = In("x0", f"{dtype}[{','.join(map(str, shape))}]")
    return (op(signature(read).text, cell, x),)


@LAWS.law(source="definition of block operators", normal=True, sampler=_sample)
def least_extents(t: Value) -> tuple[Term, Term]:
    """Value s[f](rest) = s'[f](rest)   for s' less unit dims and spare extents at these shapes."""
    if t.symbol is not Op:
        raise Undefined("least extents")
    sig, shapes = signature(t.args[0]), [value_type(type_of(x)).shape for x in operands(t)]
    if not sig.fixed and all(e > 1 for shape in shapes for e in shape):
        raise Undefined("least extents")
    found = Op(least(sig, shapes).text, *t.args[1:])
    if found is t or type_of.of(found) != type_of.of(t):
        raise Undefined("least extents")
    return t, found
