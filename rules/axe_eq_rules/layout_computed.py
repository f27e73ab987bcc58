"""Laws that write operations on layouts out: Python computes one side from the other.

The laws of lists, grids and maps rewrite; these decide. They reach what rewriting does not: windows
whose carries ripple, compositions that carry, factors, inverses, swizzled and padded layouts, and
copies off the gap condition.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any

from axe_eq.errors import LayoutError, SearchError
from axe_eq.layout import (
    Layout,
    common_refinement,
    compose,
    direct_sum,
    direct_sum_left,
    direct_sum_right,
    same_map,
    tile,
    tile_of,
)
from axe_eq.layout.symbolic import elements
from axe_eq.layout.symbolic import terms as t
from axe_eq.layout.symbolic.check import check
from axe_eq.layout.symbolic.polynomial import ONE, Polynomial, parse
from axe_eq.layout.symbolic.shapes import (
    integers,
    read_perm,
    read_region,
    read_shape,
    shape_text,
    spans_text,
)
from axe_eq.layout.symbolic.terms import CopySet, LayoutTerm, SpansTerm, decode, encode
from axe_eq.rule.law import Sides
from axe_eq.rule.term import Symbol, Term, Undefined
from axe_eq_rules import layout_map_samples as samples
from axe_eq_rules.layout_numbers import Laws

LAWS = Laws()

ShapeTerm = Annotated[Any, t.SHAPE]
ReportTerm = Annotated[Any, t.REPORT]


def _computed(fn: Callable[[Term], Term]) -> Callable[[Term], Sides]:
    """A law whose right side is computed; undefined where the computation is refused."""

    @wraps(fn)
    def law(term: Term) -> Sides:
        try:
            found = fn(term)
        except (LayoutError, SearchError):
            raise Undefined(fn.__name__) from None
        if found is term:
            raise Undefined(fn.__name__)
        return term, found

    return law


def _args(term: Term, symbol: Symbol) -> tuple[Any, ...]:
    """The arguments of an operation whose layouts are written out.

    Raises:
        Undefined: another term.
    """
    if term.symbol is not symbol:
        raise Undefined(symbol.name)
    for arg in term.args:
        if isinstance(arg, Term) and not t.is_written(arg):
            raise Undefined(symbol.name)
    return tuple(decode(a) if isinstance(a, Term) and a.sort == t.LAYOUT else a for a in term.args)


def _shape(text: str) -> tuple[int, ...]:
    found = integers(read_shape(text))
    if found is None:
        raise Undefined("shape")
    return found


# -- one layout ------------------------------------------------------------------------------------


@LAWS.law(source="Axe, Theorem A.8 (D) and C0-C2 (R), completed by exact search", normal=True,
          sampler=samples.written)  # fmt: skip
@_computed
def canonical(x: LayoutTerm) -> Term:
    """(d + p) = its canonical form: fused iters, one list per set of copies, no zero shifts."""
    if not t.is_written(x):
        raise Undefined("canonical")
    return encode(decode(x).canonical())


@LAWS.law(source="Axe A.6: digits or enumeration decide", normal=True,
          sampler=samples.written_out(t.Permute, "shape", "perm"))  # fmt: skip
@_computed
def write_out_permutation(x: LayoutTerm) -> Term:
    """permute(L, S, p) = the layout that computes it, for L written out."""
    layout, shape, perm = _args(x, t.Permute)
    return encode(layout.permute(_shape(shape), read_perm(perm)))


@LAWS.law(source="Axe A.6: carries that ripple are decided, not assumed", normal=True,
          sampler=samples.written_out(t.Slice, "shape", "region"))  # fmt: skip
@_computed
def write_out_slice(x: LayoutTerm) -> Term:
    """slice(L, S, R) = the layout that computes it, for L written out."""
    layout, shape, region = _args(x, t.Slice)
    bounds = [integers(pair) for pair in read_region(region)]
    if None in bounds:
        raise Undefined("region")
    return encode(layout.slice(_shape(shape), bounds))


@LAWS.law(
    source="Axe Theorem C.2", normal=True, sampler=samples.written_out(t.Tile, "shape", "shape")
)
@_computed
def write_out_tile(x: LayoutTerm) -> Term:
    """tile(L, S, M, T) = the layout that computes it, for L and M written out."""
    a, s, b, u = _args(x, t.Tile)
    return encode(tile(a, _shape(s), b, _shape(u)))


@LAWS.law(source="Axe F.1", normal=True, sampler=samples.written_out(t.DirectSum, "shape", "shape"))
@_computed
def write_out_sum(x: LayoutTerm) -> Term:
    """direct_sum(L, S, M, T) = the layout that computes it, for L and M written out."""
    a, s, b, u = _args(x, t.DirectSum)
    return encode(direct_sum(a, _shape(s), b, _shape(u)))


@LAWS.law(source="Axe Theorem D.1, corrected and completed by A.6", normal=True,
          sampler=samples.written_factor(t.Tile, t.TileOf))  # fmt: skip
@_computed
def write_out_tile_of(x: LayoutTerm) -> Term:
    """tile_of(L, S, M, T) = the layout C with tile(C, S/T, M, T) = L, for L and M written out."""
    a, s, b, u = _args(x, t.TileOf)
    return encode(tile_of(a, _shape(s), b, _shape(u)))


@LAWS.law(source="Axe F.3, copies as a multiset", normal=True,
          sampler=samples.written_factor(t.DirectSum, t.LeftAddend))  # fmt: skip
@_computed
def write_out_left_addend(x: LayoutTerm) -> Term:
    """direct_sum_left(L, S, M, T) = the addend before M, for L and M written out."""
    a, s, b, u = _args(x, t.LeftAddend)
    found = direct_sum_left(a.canonical(), _shape(s), b.canonical(), _shape(u))
    return encode(found.canonical())


@LAWS.law(source="Axe F.3, copies as a multiset", normal=True,
          sampler=samples.written_factor(t.DirectSum, t.RightAddend))  # fmt: skip
@_computed
def write_out_right_addend(x: LayoutTerm) -> Term:
    """direct_sum_right(L, S, M, T) = the addend after M, for L and M written out."""
    a, s, b, u = _args(x, t.RightAddend)
    found = direct_sum_right(a.canonical(), _shape(s), b.canonical(), _shape(u))
    return encode(found.canonical())


@LAWS.law(source="CuTe composition, without its divisibility conditions", normal=True,
          sampler=samples.written_composition)  # fmt: skip
@_computed
def write_out_composition(x: LayoutTerm) -> Term:
    """compose(L, M) = the layout that computes it, for L and M written out."""
    a, b = _args(x, t.Compose)
    check(x)  # coordinates of M that are no indices of L
    return encode(compose(a, b))


@LAWS.law(source="ours: strides of a one-to-one list are products of extents", normal=True,
          sampler=samples.written_inverse)  # fmt: skip
@_computed
def write_out_inverse(x: LayoutTerm) -> Term:
    """inverse(L, axes) = the layout that computes it, for L written out."""
    layout, axes = _args(x, t.Inverse)
    return encode(layout.inverse(axes.split(",")))


@LAWS.law(source="ours: strides of a one-to-one list are products of extents", normal=True,
          sampler=samples.symbolic_inverse)  # fmt: skip
@_computed
def write_out_inverse_symbolic(x: LayoutTerm) -> Term:
    """inverse(D, axes) = the list whose strides are the levels of D's digits, by D's strides.

    For iters with names whose strides on each axis are the products of the extents before them.
    """
    if x.symbol is not t.Inverse or x.args[0].symbol is not t.Map:
        raise Undefined("inverse")
    points, copies = x.args[0].args
    if copies is not t.Here():
        raise Undefined("iters alone")
    level, left = ONE, []
    for extent, stride, axis in reversed(t.items_of(points, t.SymIter)):
        left.append((parse(extent), parse(stride), axis, level))
        level *= parse(extent)
    left = [step for step in left if step[0] != 1]
    found: list[tuple[str, str, str]] = []
    first, *_ = axes = x.args[1].split(",")
    for axis in axes:
        covered, ascending = ONE, []
        while step := next((s for s in left if s[1:3] == (covered, axis)), None):
            left.remove(step)
            ascending.append((str(step[0]), str(step[3]), first))
            covered *= step[0]
        found += reversed(ascending)
    if left:
        raise Undefined("one to one")
    return _of_points(t.chain(t.SymIter, t.NoIter(), found))


@LAWS.law(source="indices of all elements, in order", normal=True,
          sampler=samples.composed_with_indices)  # fmt: skip
@_computed
def compose_with_indices(x: LayoutTerm) -> Term:
    """compose(y, (n, 1@a)) = y   if y has n elements."""
    if x.symbol is not t.Compose or not _is_in_order(x.args[1], check(x.args[0]).elements):
        raise Undefined("indices")
    found: Term = x.args[0]
    return found


def _of_points(points: Term) -> Term:
    found: Term = t.Map(points, t.Here())
    return found


@LAWS.law(source="one coordinate is left below 1", normal=True, sampler=samples.only_zero)
@_computed
def nowhere_but_at_zero(x: LayoutTerm) -> Term:
    """Any layout of n elements below 1 = (n, 0@m)."""
    if x.symbol is not t.AnyLayout or x.args[2] != "1":
        raise Undefined("unknown layout")
    elements = read_shape(x.args[1])[0].constant
    if elements is None:
        points = t.chain(t.SymIter, t.NoIter(), [(x.args[1], "0", "m")])
        return _of_points(points)
    return encode(Layout([(elements, 0)]))


@LAWS.law(source="indices of all elements, in order", normal=True,
          sampler=samples.composed_into_indices)  # fmt: skip
@_computed
def compose_into_indices(x: LayoutTerm) -> Term:
    """compose((n, 1@a), y) = y   if y lies on a, below n."""
    if x.symbol is not t.Compose:
        raise Undefined("composition")
    outer, inner = x.args
    check(x)  # coordinates of y that are no indices of (n, 1@a)
    kind = check(inner)
    if kind.bound is None or kind.axis not in ("", _axis_in_order(outer, check(outer).elements)):
        raise Undefined("indices")
    found: Term = inner
    return found


def _axis_in_order(y: Term, size: Polynomial) -> str | None:
    """The axis a of ``(size, 1@a)``, else None."""
    if not _is_in_order(y, size):
        return None
    if t.is_written(y):
        return next(iter(decode(y).moving()), "")
    axis: str = y.args[0].args[2]
    return axis


def _is_in_order(y: Term, size: Polynomial) -> bool:
    """Whether a layout is ``(size, 1@a)`` on some axis."""
    if not t.is_written(y):
        lone = y.symbol is t.Map and y.args[1] is t.Here() and y.args[0].symbol is t.SymIter
        return lone and y.args[0].args[:2] == (str(size), "1") and not y.args[0].args[3].args
    order = decode(y).canonical()
    if size.constant is None or order.replica or order.offsets or not order.is_linear():
        return False
    return order.shard == Layout([(size.constant, 1, *order.axes)]).shard


# -- questions about layouts -----------------------------------------------------------------------


@LAWS.law(source="Axe Definition 2.3", normal=True, sampler=samples.written_out(t.SpanOf))
@_computed
def write_out_span(v: SpansTerm) -> Term:
    """span(L) = greatest minus least coordinate plus 1 on every axis, for L written out."""
    (layout,) = _args(v, t.SpanOf)
    return t.Spans(spans_text({axis: layout.span(axis) for axis in layout.axes}))


@LAWS.law(source="ours: the union of the cuts", normal=True, sampler=samples.two_shapes)
@_computed
def write_out_refinement(s: ShapeTerm) -> Term:
    """common_refinement(S, T) = the coarsest shape that cuts wherever one of them does."""
    one, two = _args(s, t.CommonRefinement)
    return t.ShapeIs(shape_text(common_refinement([_shape(one), _shape(two)])))


@LAWS.law(source="ours: digit differences by branch and bound", normal=True,
          sampler=samples.written_out(t.Aliasing))  # fmt: skip
@_computed
def write_out_aliasing(r: ReportTerm) -> Term:
    """aliasing(L) = injective, or the first two elements on one coordinate, for L written out."""
    (layout,) = _args(r, t.Aliasing)
    clash = layout.aliasing().clash
    return t.Injective() if clash is None else t.Clashing(clash.x, clash.y)


# -- decisions about two ---------------------------------------------------------------------------


@LAWS.law(source="Axe A.2.2 under the gap condition; off it both sets are enumerated", normal=True,
          sampler=samples.one_image)  # fmt: skip
def same_image(p: CopySet, q: CopySet) -> Sides:
    """(p) = q   if both are the same set."""
    _decide(t.Map(t.NoIter(), p), t.Map(t.NoIter(), q))
    return p, q


@LAWS.law(source="ours: indices are told apart by the digits that swizzles see", normal=True,
          sampler=samples.one_map)  # fmt: skip
def same_swizzled_map(x: LayoutTerm, y: LayoutTerm) -> Sides:
    """(x) = y   if every index has the same image, for layouts with swizzles or boxes."""
    if not any(term.symbol in (t.Swizzled, t.Boxed) for term in (x, y)):
        raise Undefined("swizzle")
    _decide(x, y)
    return x, y


@LAWS.law(source="ours: operations on layouts choose, add and scale elements, whatever these are",
          normal=True, sampler=samples.same_sums)  # fmt: skip
def same_elements(x: LayoutTerm, y: LayoutTerm) -> Sides:
    """(x) = y   if both are the same sum of elements of unknown layouts at every index."""
    if t.is_written(x) and t.is_written(y):
        raise Undefined("unknown layouts")
    try:
        holds = elements.same_elements(x, y)
    except (LayoutError, SearchError):
        raise Undefined("sums of elements") from None
    if not holds:
        raise Undefined("equality")
    return x, y


def _decide(x: Term, y: Term) -> None:
    if not (t.is_written(x) and t.is_written(y)):
        raise Undefined("written out")
    try:
        found = same_map(decode(x), decode(y))
    except (LayoutError, SearchError):
        raise Undefined("decision") from None
    if found is not None:
        raise Undefined("equality")
