"""Laws of gathers, which read a dim of one operand where integers of another say.

Where an integer is no index of the dim the value is undefined; both sides of every law here read by
the same integers, so they are undefined at the same elements. Legend of `selector`; i, j integers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from axe_eq.pack import Pack
from axe_eq.program.decisions import Draw
from axe_eq.program.gathers import gather_text
from axe_eq.program.ops import cell, join_text, split_text
from axe_eq.program.signature import Signature, make, plain, signature
from axe_eq.program.terms import (
    Args,
    Cell,
    In,
    Nil,
    Op,
    Sel,
    Sig,
    Spec,
    Value,
    args,
    op,
    sel,
    type_of,
)
from axe_eq.program.types import DTYPES, ValueType, value_type
from axe_eq.rule.law import Sides
from axe_eq.rule.term import STR, Ground, Primitive, primitive
from axe_eq_rules.joins import join_axis, named, type_list, types_in

TAPESTRY = "Tapestry, selectors and block operators; ours for gathers"


def _along(spec: str) -> tuple[int, tuple[int, ...]] | None:
    """Axis and dims of the integers of a gather; None for other selectors."""
    name, params = split_text(spec)
    return (params[0], params[1]) if name == "lookup" else None


def _of_rows(spec: str) -> int | None:
    """The axis of a gather whose integers lie along it alone: of whole slices."""
    found = _along(spec)
    return found[0] if found is not None and found[1] == (found[0],) else None


def _into(sig: Signature, axis: int, dims: tuple[int, ...], position: int) -> str | None:
    """The gather of an operand that makes that of the value; "" where it lacks the axis."""
    operand = sig.operands[position]
    reads = [d for d, p in enumerate(operand) if any(x == axis for x, _ in p.terms)]
    if not reads:
        return ""
    own = [d for d, p in enumerate(operand) if p.plain is not None]
    if len(reads) != 1 or operand[reads[0]].plain != axis:
        return None
    places = {operand[d].plain: d for d in own}
    found = [places.get(d) for d in dims]
    if None in found or found != sorted(d for d in found if d is not None):
        return None
    return gather_text(reads[0], [d for d in found if d is not None])


def _pushed(touched: tuple[int, ...]) -> Primitive:
    """(gather, signature, cell, types) -> the gathers of just these operands."""

    def fn(spec: str, text: str, f: str, types: str) -> tuple[str, ...] | None:
        found, sig, declared = _along(spec), signature(text), cell(f)[0]
        if found is None or found[0] in dict(sig.fixed) or declared.n_values > 1:
            return None
        made = [_into(sig, *found, n) for n in range(len(types_in(types)))]
        if None in made or tuple(n for n, k in enumerate(made) if k) != touched:
            return None
        # A choice reads the branch that it takes: what it does not take may be undefined.
        if declared.n_conditions and 0 not in touched:
            return None
        return tuple(k for k in made if k)

    fn.__name__ = named("gathers_into", touched)
    return Primitive(fn, (STR, STR, STR, STR), (STR,) * len(touched))


def _gather_of_operator(touched: tuple[int, ...]) -> Callable[..., Sides]:
    into = _pushed(touched)

    def sides(k: Any, s: Any, f: Any, values: list[Any], rest: Any, i: Any) -> Sides:
        found = into(k, s, f, type_list(values, rest))
        specs, new = found if isinstance(found, tuple) else (found,), list(values)
        for n, spec in zip(touched, specs, strict=True):
            new[n] = sel(spec, values[n], i)
        left = sel(k, Op(s, f, args(*values, rest=rest)), i)
        return left, Op(s, f, args(*new, rest=rest))

    def one(k: Spec, s: Sig, f: Cell, x: Value, rest: Args, i: Value) -> Sides:
        """k(s[f](x, rest), i) = s[f](k'(x, i), rest)   if only x reads the axis of the gather k."""
        return sides(k, s, f, [x], rest, i)

    def two(k: Spec, s: Sig, f: Cell, x: Value, y: Value, rest: Args, i: Value) -> Sides:
        """k(s[f](x, y, rest), i) = s[f](k'(x, i), k''(y, i), rest)   or x for k'(x, i)."""
        return sides(k, s, f, [x, y], rest, i)

    return one if touched == (0,) else two


@primitive((STR, STR), (STR, STR))
def composed(outer: str, inner: str) -> tuple[str, str] | None:
    """The gather of a value by the integers that two gathers along an axis find; that of those."""
    axis, found = _of_rows(inner), _along(outer)
    if axis is None or found is None or found[0] != axis or found[1] not in ((axis,), ()):
        return None
    return inner, gather_text(0, (0,) if found[1] else ())


def gather_of_gather(k: Spec, m: Spec, x: Value, i: Value, j: Value) -> Sides:
    """k(m(x, i), j) = m(x, n(i, j))   for gathers k, m of whole slices along one axis."""
    m2, n = composed(k, m)
    return sel(k, sel(m, x, i), j), sel(m2, x, sel(n, i, j))


@primitive((STR, STR, STR), (STR,))
def counted_slice(spec: str, iota: str, x: str) -> str | None:
    """The slice that a gather takes by counting from 0."""
    axis, (name, params), of = _of_rows(spec), split_text(iota), value_type(x)
    if axis is None or name != "iota" or params[0] > of.shape[axis]:
        return None
    if DTYPES[params[1]].kind != "i" or params[0] - 1 > np.iinfo(DTYPES[params[1]].numpy).max:
        return None
    return join_text(
        "slice", tuple((0, 1, params[0]) if d == axis else None for d in range(of.rank))
    )


def gather_of_counted(k: Spec, m: Spec, x: Value) -> Sides:
    """k(x, iota) = slice(x)   for integers that count from 0 and stay inside."""
    return sel(k, x, Sel(m, Nil())), sel(counted_slice(k, m, type_of(x)), x)


@primitive((STR, STR, STR, STR, STR), (STR,))
def counted_from(spec: str, sig: str, iota: str, first: str, x: str) -> str | None:
    """The slice that a gather takes by counting from a constant."""
    (name, params), (other, given), axis = split_text(iota), split_text(first), _of_rows(spec)
    of = value_type(x)
    if axis is None or (name, other) != ("iota", "full") or sig != "a, -> a" or given[0] != ():
        return None
    (n, dtype), begin = params, given[1]
    if dtype != given[2] or DTYPES[dtype].kind != "i" or not 0 <= begin <= of.shape[axis] - n:
        return None
    if begin + n - 1 > np.iinfo(DTYPES[dtype].numpy).max:
        return None
    return join_text("slice", tuple((begin, 1, n) if d == axis else None for d in range(of.rank)))


def gather_of_counted_from(k: Spec, s: Sig, m: Spec, c: Spec, x: Value) -> Sides:
    """k(x, s[add](iota, c)) = slice(x)   for integers that count from c and stay inside."""
    by = op(s, "add", Sel(m, Nil()), Sel(c, Nil()))
    return sel(k, x, by), sel(counted_from(k, s, m, c, type_of(x)), x)


@primitive((STR, STR, STR), (STR, STR))
def cut(outer: str, inner: str, x: str) -> tuple[str, str] | None:
    """(slice of the source, slice of the integers) for a slice of a gather of whole slices."""
    axis, (name, params) = _of_rows(inner), split_text(outer)
    if axis is None or name != "slice":
        return None
    parts = params[0]
    here = tuple(None if d == axis else p for d, p in enumerate(parts))
    return join_text("slice", here), join_text("slice", (parts[axis],))


def slice_of_gather(k: Spec, m: Spec, x: Value, i: Value) -> Sides:
    """k(m(x, i)) = m(k'(x), k''(i))   for a slice k: along the axis of m of the integers."""
    a, b = cut(k, m, type_of(x))
    return sel(k, sel(m, x, i)), sel(m, sel(a, x), sel(b, i))


@primitive((STR, STR), (STR,))
def beside(spec: str, join: str) -> str | None:
    """The gather, if it is one of whole slices along another axis than the concatenation's."""
    axis, joined = _of_rows(spec), join_axis(join)
    return None if axis is None or joined in (None, axis) else spec


def gather_of_concat(k: Spec, c: Spec, x: Value, y: Value, i: Value) -> Sides:
    """k(x ++ y, i) = k(x, i) ++ k(y, i)   for a gather k along another axis."""
    m = beside(k, c)
    return sel(k, sel(c, x, y), i), sel(c, sel(m, x, i), sel(m, y, i))


@primitive((STR, STR), (STR,))
def joined_along(spec: str, join: str) -> str | None:
    """The concatenation of what a gather of whole slices takes by joined integers."""
    axis = _of_rows(spec)
    return None if axis is None or join_axis(join) != 0 else join_text("concat", axis)


def gather_by_concat(k: Spec, c: Spec, x: Value, i: Value, j: Value) -> Sides:
    """k(x, i ++ j) = k(x, i) ++ k(x, j)   for a gather k of whole slices."""
    d = joined_along(k, c)
    return sel(k, x, sel(c, i, j)), sel(d, sel(k, x, i), sel(k, x, j))


# -- samples ---------------------------------------------------------------------------------------

_FLOATS, _WHOLE = ("f64", "f64", "f16", "i32", "bool"), ("i32", "i64", "i8", "u8", "i16")
Sampler = Callable[[Draw], tuple[Ground, ...]]


class _Made:
    """A source, a gather along it and integers, some of them no indices."""

    def __init__(self, draw: Draw) -> None:
        rank = draw.integer("rank", 1, 3)
        shape = tuple(draw.integer(f"e{d}", 1, 5) for d in range(rank))
        self.draw, self.of = draw, ValueType(draw.pick("dtype", _FLOATS), shape)
        self.axis, self.count = draw.integer("axis", 0, rank - 1), draw.integer("count", 1, 4)
        self.rows = gather_text(self.axis, (self.axis,))
        self.x = In("x", str(self.of))

    def whole(self, name: str, *shape: int) -> Ground:
        """Integers of this shape."""
        return In(name, str(ValueType(self.draw.pick(f"{name}.dtype", _WHOLE), shape)))

    def other(self, name: str, shape: tuple[int, ...]) -> Ground:
        return In(name, str(ValueType(self.of.dtype, shape)))


def _operators(touched: tuple[int, ...]) -> Sampler:
    """An operator with reductions, or none, whose operands read the axis as they are."""

    def sample(draw: Draw) -> tuple[Ground, ...]:
        made = _Made(draw)
        rank, shape, axis = made.of.rank, made.of.shape, made.axis
        numeric = made.of.dtype != "bool"
        reduces = numeric and draw.chance("reduces", 0.4)
        each = draw.chance("each", 0.3) and not reduces
        dims = tuple(range(rank)) if each else (axis,)
        dims = dims if draw.chance("dims", 0.8) else ()
        inner = draw.integer("inner", 1, 3)
        full = [*map(plain, range(rank)), *([plain(rank)] if reduces else [])]
        extents = (*shape, *([inner] if reduces else []))
        kept = [d for d in range(len(full)) if d != axis]
        dims_of = [range(len(full)) if k in touched else kept for k in range(2)]
        reads = [[full[d] for d in of] for of in dims_of]
        shapes = [tuple(extents[d] for d in of) for of in dims_of]
        n = 1 if touched == (0,) and draw.chance("alone", 0.3) else 2
        monoid = draw.pick("monoid", ("+", "max")) if reduces else ""
        sig = make(reads[:n], range(rank), monoid, [rank] if reduces else [])
        binary = ("mul", "add", "maximum") if numeric else ("and", "or")
        f = draw.pick("cell", binary if n == 2 else ("id",))
        values = [made.other(f"x{k}", shapes[k]) for k in range(n)]
        count = made.count
        i = made.whole("i", *(count if d == axis else shape[d] for d in dims))
        taken = 1 + max(touched)
        return gather_text(axis, dims), sig.text, f, *values[:taken], args(*values[taken:]), i

    return sample


def _sample(kind: str) -> Sampler:
    def sample(draw: Draw) -> tuple[Ground, ...]:
        made = _Made(draw)
        axis, rank, shape = made.axis, made.of.rank, made.of.shape
        i = made.whole("i", made.count)
        if kind == "gathers":
            dims: tuple[int, ...] = ()
            j = made.whole("j")
            if draw.chance("many", 0.7):
                dims, j = (axis,), made.whole("j", draw.integer("more", 1, 3))
            return gather_text(axis, dims), made.rows, made.x, i, j
        if kind == "counted":
            iota = join_text("iota", draw.integer("n", 1, shape[axis]), draw.pick("of", _WHOLE))
            return made.rows, iota, made.x
        if kind == "counted from":
            n, dtype = draw.integer("n", 1, shape[axis]), draw.pick("of", _WHOLE)
            full = join_text("full", (), draw.integer("c", 0, shape[axis] - n), dtype)
            return made.rows, "a, -> a", join_text("iota", n, dtype), full, made.x
        if kind == "slices":
            ends = (*shape[:axis], made.count, *shape[axis + 1 :])
            parts = []
            for d, extent in enumerate(ends):
                first = draw.integer(f"first{d}", 0, extent - 1)
                count = draw.integer(f"count{d}", 1, extent - first)
                parts.append((first, 1, count) if draw.chance(f"cut{d}", 0.7) else None)
            return join_text("slice", tuple(parts)), made.rows, made.x, i
        j = In("j", str(ValueType(value_type(str(i.args[1])).dtype, (draw.integer("m", 1, 3),))))  # type: ignore[union-attr]
        if kind == "integers":
            return made.rows, join_text("concat", 0), made.x, i, j
        other = (axis + 1) % rank
        more = tuple(draw.integer("y", 1, 3) if d == other else e for d, e in enumerate(shape))
        return made.rows, join_text("concat", other), made.x, made.other("y", more), i

    return sample


def register(pack: Pack) -> None:
    """Add the laws to a pack."""
    for touched in ((0,), (0, 1), (1,)):
        name = named("gather_of_operator", touched)
        declare = pack.law(source=TAPESTRY, sampler=_operators(touched), name=name)
        declare(_gather_of_operator(touched))
    for law, kind in (
        (gather_of_gather, "gathers"), (gather_of_counted, "counted"),
        (gather_of_counted_from, "counted from"), (slice_of_gather, "slices"),
        (gather_of_concat, "concat"), (gather_by_concat, "integers"),
    ):  # fmt: skip
        pack.law(source="ours, from the definition of gathers", sampler=_sample(kind))(law)
