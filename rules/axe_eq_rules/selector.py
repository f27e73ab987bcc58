"""Laws of selectors that hold bit for bit: they move elements and never compute.

Legend: x, y, z, a, b values; rest, further operands; k, m, c texts of selectors; s, t signatures;
f a cell. ``k(x)`` a selector of one operand, ``x ++ y`` a concatenation, ``s[f](x, y)`` an op.

Directions: slices, pads and splits go into operators, merges come out of their operands; among
themselves slices are innermost, then splits, merges, pads. A concatenation of equal operators
becomes one operator on concatenations; the converse, which copies, is marked `expands`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import combinations
from typing import Any

from axe_eq.pack import Pack
from axe_eq.program.ops import join_text, split_text
from axe_eq.program.signature import make, plain, signature
from axe_eq.program.terms import (
    Along,
    Args,
    Cell,
    Cons,
    Op,
    Sel,
    Sig,
    Spec,
    Value,
    args,
    op,
    scan,
    sel,
    type_of,
    types_of,
)
from axe_eq.program.types import value_type
from axe_eq.rule.law import Sides
from axe_eq.rule.term import STR, Primitive, primitive
from axe_eq_rules import gathering, selecting, through
from axe_eq_rules.joins import (
    along_exact,
    along_output,
    exchange_concats,
    few,
    is_concat,
    join_axis,
    joined_operands,
    merge_of_reductions,
    named,
    operator_of_concat,
    shape_in,
    type_list,
    types_in,
)
from axe_eq_rules.needs import is_defined
from axe_eq_rules.scanning import exact_last_of_scan, sample_last, scan_of_part

PACK = Pack(
    "selector", version="5", summary="slices, pads, reshapes and concatenations, bit for bit"
)


# -- selectors by other selectors ------------------------------------------------------------------


@PACK.law(source="definition of flip")
def flip_is_slice(k: Spec, x: Value) -> Sides:
    """flip(x) = slice(x) with steps of -1."""
    return sel(k, x), sel(selecting.flip_as_slice(k, type_of(x)), x)


@primitive((STR, STR), (STR,))
def without_idle_steps(spec: str, x: str) -> str | None:
    """The normal text of a slice that is not in it: one index alone has a step."""
    parts = selecting.parts_of(spec)
    text = "" if parts is None else selecting.slice_text(parts, shape_in(x))
    return text if text and text != spec else None


@PACK.law(source="definition of slice")
def slice_of_one_index(k: Spec, x: Value) -> Sides:
    """k(x) = k'(x)   for a slice k that takes one index of a dim, with step 1 there in k'."""
    return sel(k, x), sel(without_idle_steps(k, type_of(x)), x)


@PACK.law(source="definition of repeat")
def repeat_is_merge(k: Spec, x: Value) -> Sides:
    """repeat(x) = merge(broadcast of x in a new dim)."""
    m, v = selecting.repeat_as_merge(k, type_of(x))
    return sel(k, x), sel(m, op(v, "id", x))


@PACK.law(source="definition of interleave")
def interleave_is_merge(k: Spec, x: Value, y: Value) -> Sides:
    """interleave(x, y) = merge(x' ++ y')   for x', y' with a unit dim after the axis."""
    m, c, v = selecting.interleave_as_merge(k, type_of(x))
    return sel(k, x, y), sel(m, sel(c, op(v, "id", x), op(v, "id", y)))


@PACK.law(source="ours: a transpose of the operands and their axis")
def interleave_of_many(k: Spec, x: Value, y: Value, z: Value, rest: Args) -> Sides:
    """interleave(x, y, z, rest) = merge(v[id](n(concat(x, y, z, rest))))   for n a split.

    The split gives the operands a dim, which v puts after the axis.
    """
    m, v, n, c = selecting.interleave_as_transpose(k, type_list([x, y, z], rest))
    given = args(x, y, z, rest=rest)
    return Sel(k, given), sel(m, op(v, "id", sel(n, Sel(c, given))))


@primitive((STR, STR), (STR,))
def keeps_everything(spec: str, x: str) -> str | None:
    """Defined for selectors that are the identity on this type."""
    joins = split_text(spec)[0] in ("concat", "interleave")
    return spec if joins or selecting.keeps_all(spec, shape_in(x)) else None


@PACK.law(source="definition of selectors")
def selects_all(k: Spec, x: Value) -> Sides:
    """k(x) = x   if k takes everything in order, as a concatenation of one value does."""
    keeps_everything(k, type_of(x))
    return sel(k, x), x


# -- one selector after another --------------------------------------------------------------------


@primitive((STR, STR, STR), (STR,))
def undoes(outer: str, inner: str, x: str) -> str | None:
    """Defined where the outer selector undoes the inner one."""
    return outer if selecting.cancels(outer, inner, shape_in(x)) else None


@primitive((STR, STR, STR), (STR,))
def as_one(outer: str, inner: str, x: str) -> str | None:
    """The selector that does both."""
    return selecting.fused(outer, inner, shape_in(x))


@primitive((STR, STR, STR), (STR, STR))
def in_order(outer: str, inner: str, x: str) -> tuple[str, str] | None:
    """The two selectors in canonical order."""
    return selecting.exchanged(outer, inner, shape_in(x))


@primitive((STR, STR, STR), (STR, STR))
def picks_factor(outer: str, inner: str, x: str) -> tuple[str, str] | None:
    """(view with a unit dim, slice) for a slice that takes one index of a split's last factor."""
    found = selecting.picked(outer, inner, shape_in(x))
    if found is None:
        return None
    spec, axis = found
    rank = value_type(x).rank
    dims = [d if d <= axis else d + 1 for d in range(rank)]
    return make([map(plain, dims)], range(rank + 1), fixed={axis + 1: 1}).text, spec


@PACK.law(source="ours, from the definitions of merge, split, pad and slice")
def selectors_cancel(k: Spec, m: Spec, x: Value) -> Sides:
    """k(m(x)) = x   if k undoes m: merge of split, split of merge, slice of pad."""
    undoes(k, m, type_of(x))
    return sel(k, sel(m, x)), x


@PACK.law(source="ours, from the definitions of slice, pad, split and merge")
def selectors_fuse(k: Spec, m: Spec, x: Value) -> Sides:
    """k(m(x)) = n(x)   for n = k m: slice of slice, pad of pad, split of split, merge of merge."""
    return sel(k, sel(m, x)), sel(as_one(k, m, type_of(x)), x)


@PACK.law(source="ours, from the definitions of slice, pad, split and merge")
def selectors_exchange(k: Spec, m: Spec, x: Value) -> Sides:
    """k(m(x)) = m'(k'(x))   into the order: slices innermost, then splits, merges, pads."""
    outer, inner = in_order(k, m, type_of(x))
    return sel(k, sel(m, x)), sel(outer, sel(inner, x))


@PACK.law(source="ours, from the definitions of slice and split")
def slice_picks_factor(k: Spec, m: Spec, x: Value) -> Sides:
    """k(m(x)) = v[id](n(x))   if slice k takes one index of the last factor of split m."""
    v, n = picks_factor(k, m, type_of(x))
    return sel(k, sel(m, x)), op(v, "id", sel(n, x))


# -- selectors of operators ------------------------------------------------------------------------

# Which of the first three operands a law changes; the rest it leaves as they are.
CHOICES = [c for n in (1, 2, 3) for c in combinations(range(3), n)]
_BRANCHES = (1, 2)


def _into(touched: tuple[int, ...], spec: str, *of: str) -> tuple[str, ...] | None:
    sig, f, types = of
    found = through.pushed(spec, sig, f, types_in(types))
    if found is None or tuple(n for n, k in enumerate(found[1]) if k) != touched:
        return None
    return (found[0].text, *(found[1][n] for n in touched))


def _pushed(touched: tuple[int, ...]) -> Primitive:
    """(spec, sig, cell, types) -> signature and the selectors of just these operands."""

    def fn(spec: str, sig: str, f: str, types: str) -> tuple[str, ...] | None:
        if touched == _BRANCHES and split_text(spec)[0] == "pad":
            return None  # `pad_of_choice`
        return _into(touched, spec, sig, f, types)

    fn.__name__ = named("pushed_into", touched)
    return Primitive(fn, (STR, STR, STR, STR), (STR,) * (1 + len(touched)))


def _select_operands(touched: tuple[int, ...]) -> Callable[..., Sides]:
    into = _pushed(touched)

    def sides(k: Any, s: Any, f: Any, values: list[Any], rest: Any) -> Sides:
        found = into(k, s, f, type_list(values, rest))
        sig, *specs = found if touched else (found,)
        new = list(values)
        for n, spec in zip(touched, specs, strict=True):
            new[n] = sel(spec, values[n])
        left = sel(k, Op(s, f, args(*values, rest=rest)))
        return left, Op(sig, f, args(*new, rest=rest))

    def none(k: Spec, s: Sig, f: Cell, rest: Args) -> Sides:
        """k(s[f](rest)) = t[f](rest)   if the dims that k changes are read by no operand."""
        return sides(k, s, f, [], rest)

    def one(k: Spec, s: Sig, f: Cell, x: Value, rest: Args) -> Sides:
        """k(s[f](x, rest)) = t[f](k'(x), rest)   if only x reads the dims that k changes."""
        return sides(k, s, f, [x], rest)

    def two(k: Spec, s: Sig, f: Cell, x: Value, y: Value, rest: Args) -> Sides:
        """k(s[f](x, y, rest)) = t[f](k'(x), k''(y), rest)   or x for k'(x) if it lacks k's dims."""
        return sides(k, s, f, [x, y], rest)

    def three(k: Spec, s: Sig, f: Cell, x: Value, y: Value, z: Value, rest: Args) -> Sides:
        """k(s[f](x, y, z, rest)) = t[f](k'(x), k''(y), k'''(z), rest)   as they read them."""
        return sides(k, s, f, [x, y, z], rest)

    return (none, one, two, three)[max(touched, default=-1) + 1]


for _touched in [(), *CHOICES]:
    PACK.law(
        source="Tapestry, selectors and block operators; ours for pads and reshapes",
        name=named("selector_of_operator", _touched),
    )(_select_operands(_touched))


@primitive((STR, STR, STR), (STR, STR, STR))
def padded_branches(spec: str, sig: str, types: str) -> tuple[str, ...] | None:
    """(signature, pad of x, pad of y) for a padded choice whose condition lacks the padded dims."""
    return _into(_BRANCHES, spec, sig, "where", types) if split_text(spec)[0] == "pad" else None


@PACK.law(source="definition of where; ours for pads")
def pad_of_choice(k: Spec, s: Sig, c: Value, x: Value, y: Value) -> Sides:
    """k(s[where](c, x, y)) = t[where](c, k'(x), k''(y))   for a pad k beside a defined c."""
    t, m, n = padded_branches(k, s, types_of(args(c, x, y)))
    right = op(t, "where", c, sel(m, x), sel(n, y))
    return sel(k, op(s, "where", c, x, y)), right, is_defined(c)


# -- operators of merged copies --------------------------------------------------------------------


@cache
def _unmerged(position: int, other: int | None) -> Primitive:
    """(sig, merge, x) -> signature, the merge of the value, the split of the other operand."""

    def fn(sig: str, spec: str, x: str) -> tuple[str, ...] | None:
        found = through.merged_operand(signature(sig), position, spec, shape_in(x))
        if found is None:
            return None
        expanded, wrap, splits = found
        if not wrap or [bool(split) for split in splits] != [
            n == other for n in range(len(splits))
        ]:
            return None
        return (expanded.text, wrap, *filter(None, splits))

    fn.__name__ = f"unmerged_{position}_{other}"
    return Primitive(fn, (STR, STR, STR), (STR,) * (2 + (other is not None)))


@primitive((STR,), (STR,))
def repeats(view: str) -> str | None:
    """Defined for views that repeat their operand along a dim."""
    return view if any(extent > 1 for _, extent in signature(view).fixed) else None


def _operator_of_copies(position: int, other: int | None) -> Callable[..., Sides]:
    unmerged = _unmerged(position, other)

    def sides(s: Any, f: Any, m: Any, v: Any, values: list[Any], rest: Any) -> Sides:
        repeats(v)
        copies = op(v, "id", values[position])
        t, wrap, *split = unmerged(s, m, type_of(copies))
        merged, new = list(values), list(values)
        merged[position], new[position] = sel(m, copies), copies
        if other is not None:
            new[other] = sel(split[0], values[other])
        left = Op(s, f, args(*merged, rest=rest))
        return left, sel(wrap, Op(t, f, args(*new, rest=rest)))

    def first(s: Sig, f: Cell, m: Spec, v: Sig, x: Value, rest: Args) -> Sides:
        """s[f](m(copies of x), rest) = m'(t[f](copies of x, rest))   for a merge m."""
        return sides(s, f, m, v, [x], rest)

    def second(s: Sig, f: Cell, m: Spec, v: Sig, x: Value, y: Value, rest: Args) -> Sides:
        """s[f](m(copies of x), y, rest) = m'(t[f](copies of x, y', rest))   or operands swapped."""
        return sides(s, f, m, v, [x, y] if position == 0 else [y, x], rest)

    return first if position == 0 and other is None else second


# Grouped attention: shared heads need no copies once their dim is not merged.
for _position, _other in ((0, None), (1, None), (0, 1), (1, 0)):
    PACK.law(
        source="row-major order; Ainslie et al. 2023 (grouped-query attention)",
        name=named("operator_of_copies", (_position, *([] if _other is None else [_other]))),
    )(_operator_of_copies(_position, _other))


# -- reductions of splits --------------------------------------------------------------------------


@primitive((STR, STR), (STR,))
def unsplit_one(sig: str, spec: str) -> str | None:
    """The signature of a reduction over all factors of its first operand's split."""
    found = through.unsplit(signature(sig), [spec])
    return None if found is None else found.text


@primitive((STR, STR, STR), (STR,))
def unsplit_two(sig: str, first: str, second: str) -> str | None:
    """The signature of a reduction over all factors of splits of two operands."""
    found = through.unsplit(signature(sig), [first, second])
    return None if found is None else found.text


@PACK.law(source="folklore: reductions in two stages, contiguous or strided")
def reduction_of_split(s: Sig, f: Cell, k: Spec, x: Value, rest: Args) -> Sides:
    """s[f](k(x), rest) = t[f](x, rest)   if all factors of split k are reduced, in any order."""
    return Op(s, f, args(sel(k, x), rest=rest)), Op(unsplit_one(s, k), f, args(x, rest=rest))


@PACK.law(source="folklore: reductions in two stages, contiguous or strided (split-K)")
def reduction_of_splits(s: Sig, f: Cell, k: Spec, m: Spec, x: Value, y: Value, rest: Args) -> Sides:
    """s[f](k(x), m(y), rest) = t[f](x, y, rest)   if all factors of k and m, alike, are reduced."""
    left = Op(s, f, args(sel(k, x), sel(m, y), rest=rest))
    return left, Op(unsplit_two(s, k, m), f, args(x, y, rest=rest))


# -- scans -----------------------------------------------------------------------------------------


@PACK.law(source="ours: what comes before an element lies in the same row")
def part_of_scan(k: Spec, m: Along, x: Value) -> Sides:
    """k(Scan(m, x)) = Scan(m', k(x))   for selectors that take the axis whole."""
    return sel(k, scan(m, x)), scan(scan_of_part(k, m, type_of(x)), sel(k, x))


@PACK.law(source="ours: what comes before an element lies in the same row", search=False)
def part_of_scan_of_two(k: Spec, m: Along, x: Value, y: Value) -> Sides:
    """k(Scan(m, x, y)) = Scan(m', k(x), k(y))   for selectors that take the axis whole."""
    made = scan_of_part(k, m, type_of(x))
    return sel(k, scan(m, x, y)), scan(made, sel(k, x), sel(k, y))


@PACK.law(source="definition of scans", sampler=sample_last(exact=True))
def last_of_exact_scan(k: Spec, m: Along, x: Value) -> Sides:
    """k(Scan(m, x)) = v[id](t[id](x))   if k takes the end of the axis, where merging is exact."""
    t, v = exact_last_of_scan(k, m, type_of(x))
    return sel(k, scan(m, x)), op(v, "id", op(t, "id", x))


# -- concatenations --------------------------------------------------------------------------------


@PACK.law(source="folklore: concatenation is associative")
def concat_of_few(k: Spec, x: Value, y: Value, z: Value, rest: Args) -> Sides:
    """concat(x, y, z, rest) = x ++ concat(y, z, rest)   if they are at most 8."""
    is_concat(k)
    few(type_list([x, y, z], rest))
    return Sel(k, args(x, y, z, rest=rest)), sel(k, x, Sel(k, args(y, z, rest=rest)))


@PACK.law(source="folklore: concatenation is associative", search=False)
def concat_of_many(k: Spec, x: Value, y: Value, z: Value, rest: Args) -> Sides:
    """concat(x, y, z, rest) = x ++ concat(y, z, rest)."""
    is_concat(k)
    tail = Cons(y, Cons(z, rest))
    return Sel(k, Cons(x, tail)), sel(k, x, Sel(k, tail))


@PACK.law(source="folklore: concatenation is associative")
def concat_to_the_right(k: Spec, x: Value, y: Value, z: Value) -> Sides:
    """(x ++ y) ++ z = x ++ (y ++ z)."""
    is_concat(k)
    return sel(k, sel(k, x, y), z), sel(k, x, sel(k, y, z))


@PACK.law(source="folklore: block matrices")
def concat_of_concats(k: Spec, m: Spec, a: Value, b: Value, x: Value, y: Value) -> Sides:
    """(a ++ b) +++ (x ++ y) = (a +++ x) ++ (b +++ y)   on two axes, where the cuts agree."""
    exchange_concats(k, m, type_of(a), type_of(b), type_of(x), type_of(y))
    return sel(k, sel(m, a, b), sel(m, x, y)), sel(m, sel(k, a, x), sel(k, b, y))


def _sliced(first: bool, second: bool, forwards: bool) -> Primitive:
    """(slice, concat, a, b) -> slices of the values from which something is taken."""

    def fn(spec: str, join: str, a: str, b: str) -> tuple[str, ...] | None:
        axis = join_axis(join)
        if axis is None:
            return None
        found = selecting.slice_of_join(spec, axis, shape_in(a), shape_in(b))
        if found is None or (bool(found[0]), bool(found[1])) != (first, second):
            return None
        part = (selecting.parts_of(spec) or ())[axis]
        if first and second and (part is None or part[1] > 0) != forwards:
            return None
        return tuple(k for k in found if k)

    fn.__name__ = f"slices_{first:d}{second:d}{forwards:d}"
    return Primitive(fn, (STR, STR, STR, STR), (STR,) * (first + second))


_SLICE_FIRST, _SLICE_SECOND = _sliced(True, False, True), _sliced(False, True, True)
_SLICE_BOTH, _SLICE_BACK = _sliced(True, True, True), _sliced(True, True, False)


@PACK.law(source="definition of slice and concat")
def slice_of_first(k: Spec, c: Spec, x: Value, y: Value) -> Sides:
    """k(x ++ y) = k'(x)   if slice k takes nothing of y."""
    return sel(k, sel(c, x, y)), sel(_SLICE_FIRST(k, c, type_of(x), type_of(y)), x)


@PACK.law(source="definition of slice and concat")
def slice_of_second(k: Spec, c: Spec, x: Value, y: Value) -> Sides:
    """k(x ++ y) = k'(y)   if slice k takes nothing of x."""
    return sel(k, sel(c, x, y)), sel(_SLICE_SECOND(k, c, type_of(x), type_of(y)), y)


@PACK.law(source="definition of slice and concat")
def slice_of_both(k: Spec, c: Spec, x: Value, y: Value) -> Sides:
    """k(x ++ y) = k'(x) ++ k''(y)   for a slice k of both, forwards."""
    a, b = _SLICE_BOTH(k, c, type_of(x), type_of(y))
    return sel(k, sel(c, x, y)), sel(c, sel(a, x), sel(b, y))


@PACK.law(source="definition of slice and concat")
def slice_backwards(k: Spec, c: Spec, x: Value, y: Value) -> Sides:
    """k(x ++ y) = k''(y) ++ k'(x)   for a slice k of both, backwards."""
    a, b = _SLICE_BACK(k, c, type_of(x), type_of(y))
    return sel(k, sel(c, x, y)), sel(c, sel(b, y), sel(a, x))


@primitive((STR, STR, STR, STR), (STR, STR, STR))
def before_concat(spec: str, join: str, a: str, b: str) -> tuple[str, str, str] | None:
    """(concat, of the first, of the second): a pad, split or merge done before it."""
    axis = join_axis(join)
    found = None if axis is None else selecting.over_join(spec, axis, shape_in(a), shape_in(b))
    return None if found is None else (join_text("concat", found[0]), *found[1:])


@PACK.law(source="definition of pad, split, merge and concat")
def selector_of_concat(k: Spec, c: Spec, x: Value, y: Value) -> Sides:
    """k(x ++ y) = k'(x) ++ k''(y)   for a pad, split or merge k."""
    join, a, b = before_concat(k, c, type_of(x), type_of(y))
    return sel(k, sel(c, x, y)), sel(join, sel(a, x), sel(b, y))


@primitive((STR, STR, STR, STR), (STR,))
def together(join: str, first: str, second: str, x: str) -> str | None:
    """The slice that takes what two joined slices of one value take."""
    name, params = split_text(join)
    rule = {"concat": selecting.adjacent, "interleave": selecting.alternating}.get(name)
    return None if rule is None else rule(first, second, params[0], shape_in(x))


@PACK.law(source="definition of slice, concat and interleave")
def join_of_slices(c: Spec, k: Spec, m: Spec, x: Value) -> Sides:
    """k(x) ++ m(x) = n(x)   for slices side by side; interleaved, for alternating slices."""
    return sel(c, sel(k, x), sel(m, x)), sel(together(c, k, m, type_of(x)), x)


@PACK.law(source="definition of slice and concat")
def concat_of_slices_first(c: Spec, k: Spec, m: Spec, x: Value, y: Value) -> Sides:
    """k(x) ++ (m(x) ++ y) = n(x) ++ y   for slices k, m side by side."""
    is_concat(c)
    n = together(c, k, m, type_of(x))
    return sel(c, sel(k, x), sel(c, sel(m, x), y)), sel(c, sel(n, x), y)


# -- concatenations of operators and operators of concatenations -----------------------------------


def _concat_of_operators(touched: tuple[int, ...]) -> Callable[..., Sides]:
    joined = joined_operands(touched)

    def sides(c: Any, s: Any, f: Any, first: list[Any], second: list[Any], rest: Any) -> Sides:
        found = joined(c, s, type_list(first, rest), type_list(second, rest))
        specs = found if isinstance(found, tuple) else (found,)
        new = list(first)
        for n, spec in zip(touched, specs, strict=True):
            new[n] = sel(spec, first[n], second[n])
        a, b = (Op(s, f, args(*values, rest=rest)) for values in (first, second))
        return sel(c, a, b), Op(s, f, args(*new, rest=rest))

    def one(c: Spec, s: Sig, f: Cell, x: Value, a: Value, rest: Args) -> Sides:
        """s[f](x, rest) ++ s[f](a, rest) = s[f](x ++ a, rest)   along a dim that x reads."""
        return sides(c, s, f, [x], [a], rest)

    def two(c: Spec, s: Sig, f: Cell, x: Value, y: Value, a: Value, b: Value, rest: Args) -> Sides:
        """s[f](x, y, rest) ++ s[f](a, b, rest) = s[f](x ++ a, y ++ b, rest)   along both."""
        return sides(c, s, f, [x, y], [a, b], rest)

    def other(c: Spec, s: Sig, f: Cell, x: Value, y: Value, b: Value, rest: Args) -> Sides:
        """s[f](x, y, rest) ++ s[f](x, b, rest) = s[f](x, y ++ b, rest)   along a dim of y alone."""
        return sides(c, s, f, [x, y], [x, b], rest)

    laws: dict[tuple[int, ...], Callable[..., Sides]] = {(0,): one, (1,): other, (0, 1): two}
    return laws[touched]


for _touched in ((0,), (1,), (0, 1)):
    PACK.law(
        source="TASO (SOSP 2019), table 2, for convolution and matrix product; ours in general",
        name=named("concat_of_operators", _touched),
    )(_concat_of_operators(_touched))


for _count in (1, 2):
    PACK.law(
        source="definition of reductions",
        expands=True,
        search=False,
        name=named("merge_of_reductions", (_count,)),
    )(merge_of_reductions(_count, along_exact))

for _position, _other in ((0, None), (1, None), (0, 1), (1, 0)):
    for _wanted in (along_output, along_exact):
        _stem = "operator_of_concat" if _wanted is along_output else "reduction_of_concat"
        PACK.law(
            source="definition of block operators",
            expands=True,
            name=named(_stem, (_position, *([] if _other is None else [_other]))),
        )(operator_of_concat(_position, _other, _wanted))

gathering.register(PACK)
