"""Concatenations of operators' values and of their operands: what laws say of them.

Used by the exact laws of selectors and, for sums, by the real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from axe_eq.program import sigalg
from axe_eq.program.ops import MONOIDS, join_text, selector, split_text
from axe_eq.program.signature import Affine, Signature, signature
from axe_eq.program.terms import (
    Args,
    Cell,
    Op,
    Sel,
    Sig,
    Spec,
    Value,
    args,
    op,
    operands,
    sel,
    type_of,
    types_of,
)
from axe_eq.program.types import ValueType, value_type
from axe_eq.rule.law import Sides
from axe_eq.rule.term import STR, Primitive, Term, primitive
from axe_eq_rules import selecting, through
from axe_eq_rules.digits import shape


def types_in(text: str) -> list[ValueType]:
    """The types in a list of type texts, each followed by a semicolon."""
    return [value_type(t) for t in text.split(";")[:-1]]


def shape_in(text: str) -> selecting.Shape:
    """The shape of a type's text."""
    return value_type(text).shape


def named(stem: str, positions: Sequence[int]) -> str:
    """A law's name with the operands it changes."""
    return "_".join([stem, *map(str, positions)])


def type_list(values: Sequence[Any], rest: Any) -> Any:
    """The list of the types of values and of further operands."""
    text = types_of(rest)
    for value in reversed(values):
        text = type_of(value) + ";" + text
    return text


def named_dims(spec: str, rank: int) -> set[int]:
    """The dims that a selector's parameters name: were they elsewhere, these would be others."""
    declared, params = selector(spec)
    assert declared.placed is not None
    same = {d: d for d in range(rank)}
    here = declared.placed(params, same, rank + 1)
    return {d for d in same if declared.placed(params, {**same, d: rank}, rank + 1) != here}


def join_axis(spec: str) -> int | None:
    """The axis of a concatenation's text; None for other selectors."""
    name, params = split_text(spec)
    return int(params[0]) if name == "concat" else None


def is_join(term: Term) -> bool:
    """Whether a value is a concatenation."""
    return term.symbol is Sel and join_axis(term.args[0]) is not None


def part_of_join(part: Term) -> Term | None:
    """A part of values beside each other as their parts, of those that it has anything of."""
    (name, params), given = split_text(part.args[0]), operands(part)
    if name != "slice" or not is_join(given[0]):
        return None
    axis, found, at = join_axis(given[0].args[0]) or 0, list[Term](), 0
    begin, step, n = params[0][axis] or (0, 1, shape(given[0])[axis])
    if step != 1:
        return None
    for x in operands(given[0]):
        low, high = max(begin - at, 0), min(begin + n - at, shape(x)[axis])
        at += shape(x)[axis]
        own = [(low, 1, high - low) if d == axis else p for d, p in enumerate(params[0])]
        found += [sel(join_text("slice", tuple(own)), x)] if low < high else []
    return sel(given[0].args[0], *found) if len(found) > 1 else found[0]


@primitive((STR, STR, STR, STR, STR, STR), (STR,))
def exchange_concats(outer: str, inner: str, a: str, b: str, c: str, d: str) -> str | None:
    """Defined where concatenations on two axes cut all four values alike and are out of order."""
    i, j = join_axis(outer), join_axis(inner)
    if i is None or j is None or i <= j:
        return None
    sizes = [shape_in(t) for t in (a, b, c, d)]
    return outer if sizes[0][j] == sizes[2][j] and sizes[1][j] == sizes[3][j] else None


def joined_operands(touched: tuple[int, ...]) -> Primitive:
    """(concat, sig, types of the first, of the second) -> concatenations of just these operands."""

    def fn(join: str, sig: str, first: str, second: str) -> tuple[str, ...] | None:
        axis, whole = join_axis(join), signature(sig)
        if axis is None or axis in dict(whole.fixed):
            return None
        axes = [_axis_of(operand, axis) for operand in whole.operands]
        read = tuple(n for n, a in enumerate(axes) if a is not None)
        pairs = list(zip(axes, types_in(first), types_in(second), strict=True))
        if -1 in axes or read != touched or not all(_joinable(*pair) for pair in pairs):
            return None
        return tuple(join_text("concat", axes[n]) for n in touched)

    fn.__name__ = named("joined", touched)
    return Primitive(fn, (STR, STR, STR, STR), (STR,) * len(touched))


def _joinable(axis: int | None, a: ValueType, b: ValueType) -> bool:
    """Whether two values differ at most in their extent on the axis."""
    ends = zip(a.shape, b.shape, strict=True)
    return a.dtype == b.dtype and all(d == axis or x == y for d, (x, y) in enumerate(ends))


def _axis_of(operand: tuple[Affine, ...], dim: int) -> int | None:
    """The axis that reads an index dim; None for no axis, -1 for several or a window."""
    reads = [n for n, p in enumerate(operand) if any(d == dim for d, _ in p.terms)]
    if not reads:
        return None
    return reads[0] if len(reads) == 1 and operand[reads[0]].plain == dim else -1


MERGE_CELL = {
    "+": "add", "*": "mul", "max": "maximum", "min": "minimum", "and": "and", "or": "or",
}  # fmt: skip


def apart(position: int, other: int | None, wanted: Callable[[Signature, int], str]) -> Primitive:
    """(sig, concat, x, y, types of the others) -> how the values are joined, the other's slices.

    `wanted` gives the text that joins along a dim, "" where the law is not about such dims.
    """

    def fn(sig: str, join: str, x: str, y: str, others: str) -> tuple[str, ...] | None:
        axis, whole = join_axis(join), signature(sig)
        dim = None if axis is None else through.joined_dim(whole, position, axis)
        text = "" if dim is None else wanted(whole, dim)
        if dim is None or axis is None or not text:
            return None
        types = types_in(others)
        types.insert(position, value_type(x))
        cuts = through.parts_of_operands(whole, dim, position, types, shape_in(x)[axis])
        if [bool(a) for a, _ in cuts] != [n == other for n in range(len(cuts))]:
            return None
        return (text, *(() if other is None else cuts[other]))

    fn.__name__ = f"apart_{position}_{other}_{wanted.__name__}"
    return Primitive(fn, (STR,) * 5, (STR,) * (1 if other is None else 3))


def along_output(sig: Signature, dim: int) -> str:
    """The concatenation of the values, along an output dim."""
    return join_text("concat", dim) if dim < sig.n_out else ""


def along_exact(sig: Signature, dim: int) -> str:
    """The cell that merges two values reduced by an exact monoid."""
    exact = dim >= sig.n_out and MONOIDS[sig.monoid].exact
    return MERGE_CELL.get(sig.monoid, "") if exact else ""


def along_rounding(sig: Signature, dim: int) -> str:
    """The cell that merges two values reduced by a monoid that rounds."""
    rounds = dim >= sig.n_out and not MONOIDS[sig.monoid].exact
    return MERGE_CELL.get(sig.monoid, "") if rounds else ""


@primitive((STR,), (STR,))
def pointwise(sig: str) -> str:
    """The signature of a cell on two values of this operator's shape."""
    return sigalg.elementwise(signature(sig).n_out, 2).text


def operator_of_concat(
    position: int, other: int | None, wanted: Callable[[Signature, int], str]
) -> Callable[..., Sides]:
    """The law that takes an operator of a concatenation apart.

    Args:
        position: operand that is concatenated.
        other: the other operand that reads the dim, if any.
        wanted: as in `apart`.
    """
    parts = apart(position, other, wanted)

    def sides(s: Any, f: Any, c: Any, x: Any, y: Any, values: list[Any], rest: Any) -> Sides:
        found = parts(s, c, type_of(x), type_of(y), type_list(values, rest))
        text, *cuts = found if isinstance(found, tuple) else (found,)
        halves = []
        for n, half in enumerate((x, y)):
            operands = [sel(cuts[n], v) if cuts else v for v in values]
            operands.insert(position, half)
            halves.append(Op(s, f, args(*operands, rest=rest)))
        whole = list(values)
        whole.insert(position, sel(c, x, y))
        left = Op(s, f, args(*whole, rest=rest))
        if wanted is along_output:
            return left, sel(text, *halves)
        return left, op(pointwise(s), text, *halves)

    def alone(s: Sig, f: Cell, c: Spec, x: Value, y: Value, rest: Args) -> Sides:
        """s[f](x ++ y, rest) = s[f](x, rest) ++ s[f](y, rest), merged by the monoid if reduced."""
        return sides(s, f, c, x, y, [], rest)

    def paired(s: Sig, f: Cell, c: Spec, x: Value, y: Value, z: Value, rest: Args) -> Sides:
        """s[f](x ++ y, z, rest) = s[f](x, z', rest) ++ s[f](y, z'', rest), or so merged."""
        return sides(s, f, c, x, y, [z], rest)

    return alone if position == 0 and other is None else paired


def _together(count: int, wanted: Callable[[Signature, int], str]) -> Primitive:
    """(cell, sig, types of the first, of the second) -> ways to join the operands of both."""

    def fn(f: str, sig: str, first: str, second: str) -> list[tuple[str, ...]]:
        whole = signature(sig)
        if len(whole.operands) != count:
            return []
        pairs = list(zip(types_in(first), types_in(second), strict=True))
        found = []
        for dim in whole.reduced:
            axes = [_axis_of(operand, dim) for operand in whole.operands]
            if wanted(whole, dim) != f or None in axes or -1 in axes:
                continue
            if all(_joinable(a, *pair) for a, pair in zip(axes, pairs, strict=True)):
                found.append(tuple(join_text("concat", a) for a in axes))
            if all(a == b for a, b in pairs):
                found.append(tuple(join_text("interleave", a) for a in axes))
        return found

    fn.__name__ = f"together_{count}_{wanted.__name__}"
    return Primitive(fn, (STR,) * 4, (STR,) * count, many=True)


def merge_of_reductions(
    count: int, wanted: Callable[[Signature, int], str]
) -> Callable[..., Sides]:
    """The law that merges two like reductions into one of joined operands.

    Args:
        count: number of operands, 1 or 2.
        wanted: the cell that merges values reduced along a dim, as in `apart`.
    """
    together = _together(count, wanted)

    def sides(s: Any, m: Any, t: Any, f: Any, first: list[Any], second: list[Any]) -> Sides:
        found = together(m, t, types_of(args(*first)), types_of(args(*second)))
        joins = found if isinstance(found, tuple) else (found,)
        joined = [sel(j, a, b) for j, a, b in zip(joins, first, second, strict=True)]
        left = op(s, m, op(t, f, *first), op(t, f, *second))
        return left, op(t, f, *joined), s == pointwise(t)

    def one(s: Sig, m: Cell, t: Sig, f: Cell, x: Value, a: Value) -> Sides:
        """s[m](t[f](x), t[f](a)) = t[f](x ++ a)   for the cell m that merges what t reduces."""
        return sides(s, m, t, f, [x], [a])

    def two(s: Sig, m: Cell, t: Sig, f: Cell, x: Value, y: Value, a: Value, b: Value) -> Sides:
        """s[m](t[f](x, y), t[f](a, b)) = t[f](x ++ a, y ++ b)   for the cell m that merges t's."""
        return sides(s, m, t, f, [x, y], [a, b])

    return one if count == 1 else two


FEW = 8  # operands of a concatenation: one is taken off in every round


@primitive((STR,), (STR,))
def is_concat(spec: str) -> str | None:
    """Defined for concatenations."""
    return spec if join_axis(spec) is not None else None


@primitive((STR,), (STR,))
def few(types: str) -> str | None:
    """Defined for lists of as many operands as a search takes apart to the end."""
    return types if len(types_in(types)) <= FEW else None
