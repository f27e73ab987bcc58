"""Laws of operations on layouts, with parts that may be unknown."""

from __future__ import annotations

from typing import Any

from axe_eq.layout.symbolic import terms as t
from axe_eq.layout.symbolic.check import check
from axe_eq.layout.symbolic.polynomial import poly
from axe_eq.layout.symbolic.shapes import (
    perm_text,
    read_perm,
    read_region,
    read_shape,
    region_text,
    shape_text,
)
from axe_eq.rule.law import Sides
from axe_eq.rule.term import INT, STR, Analysis, Term, primitive
from axe_eq_rules import layout_map_samples as samples
from axe_eq_rules.layout_numbers import (
    Axis,
    Distance,
    Indices,
    Laws,
    Perm,
    Place,
    Region,
    Shape,
    Weights,
    in_other_dims,
    is_one,
)


@primitive((STR, STR), (INT,))
def is_whole(shape: str, region: str) -> int | None:
    """1 for the region that is all of a shape."""
    extents, bounds = read_shape(shape), read_region(region)
    whole = [(begin == 0 and end == n) for (begin, end), n in zip(bounds, extents, strict=False)]
    return 1 if len(extents) == len(bounds) and all(whole) else None


@primitive((STR, STR), (STR, STR))
def run_of(shape: str, region: str) -> tuple[str, str] | None:
    """The elements of a shape of several dims, and the region as one run of them, if it is one."""
    extents, bounds = read_shape(shape), read_region(region)
    if len(extents) != len(bounds) or len(extents) < 2:
        return None
    start, length, elements = poly(0), poly(1), poly(1)
    for extent, (begin, end) in zip(extents[::-1], bounds[::-1], strict=True):
        if length != elements and end - begin != 1:
            return None  # a faster dim is not taken whole
        start, length = start + begin * elements, length * (end - begin)
        elements = elements * extent
    return shape_text([elements]), region_text([(start, start + length)])


@primitive((STR,), (STR,))
def extents_of(region: str) -> str:
    """The shape of a region."""
    return shape_text(end - begin for begin, end in read_region(region))


@primitive((STR, STR), (STR,))
def region_within(outer: str, inner: str) -> str | None:
    """A region of a region, as a region of the whole."""
    one, two = read_region(outer), read_region(inner)
    if len(one) != len(two):
        return None
    pairs = zip(one, two, strict=True)
    return region_text((begin + b, begin + e) for (begin, _), (b, e) in pairs)


@primitive((STR, STR), (STR,))
def region_in_tiles(region: str, shape: str) -> str | None:
    """The region of tiles that a region is; undefined where it cuts one."""
    bounds, extents = read_region(region), read_shape(shape)
    if len(bounds) != len(extents):
        return None
    found = []
    for (begin, end), n in zip(bounds, extents, strict=True):
        ends = begin.divided(n), end.divided(n)
        if ends[0] is None or ends[1] is None:
            return None
        found.append((ends[0], ends[1]))
    return region_text(found)


@primitive((STR, STR), (STR,))
def region_permuted(region: str, perm: str) -> str | None:
    """A region with its dims in another order."""
    bounds, order = read_region(region), read_perm(perm)
    return region_text(bounds[dim] for dim in order) if len(bounds) == len(order) else None


@primitive((STR,), (STR,))
def perm_inverse(perm: str) -> str:
    """The permutation that undoes one."""
    order = read_perm(perm)
    return perm_text(order.index(dim) for dim in range(len(order)))


LAWS = Laws()


# -- what is known to denote something -------------------------------------------------------------


denotes = Analysis("denotes", t.LAYOUT, INT, lambda of, known: 1 if check(of).total else None)
"""1 for layout terms that denote a map whatever their unknowns are."""

alone = Analysis(
    "alone", t.COPIES, INT, lambda term, known: 1 if check(term).elements == 1 else None
)
"""1 for sets of one displacement."""


def _single(term: Term, known: Any) -> int | None:
    kind = check(term)
    return 1 if kind.single and kind.total else None


single = Analysis("single", t.LAYOUT, INT, _single)
"""1 for layout terms that denote a map with one copy of every element."""

for _symbol in (t.Map, t.AnyLayout):
    denotes.follows(_symbol)
for _symbol, *_parts in (
    (t.Swizzled, 4), (t.Boxed, 1), (t.Permute, 0), (t.Slice, 0), (t.Tile, 0, 2),
    (t.DirectSum, 0, 2), (t.Compose, 0, 1),
):  # fmt: skip
    denotes.follows(_symbol, *_parts)
alone.follows(t.Here)
alone.follows(t.Shift, 2)
alone.follows(t.SymShift, 2)
for _symbol, _part in ((t.Permute, 0), (t.Slice, 0), (t.Swizzled, 4)):
    single.follows(_symbol, _part)


@single.rule
def _map_single(d: t.IterList, p: t.CopySet) -> tuple[Term, Any]:
    return t.Map(d, p), alone(p)


# -- layouts written out ---------------------------------------------------------------------------


@LAWS.law(source="Axe Appendix B: grouping only cuts")
def group_is_the_layout(x: t.LayoutTerm, S: Shape) -> Sides:
    """group(x, S) = x."""
    return t.Group(x, S), x


@LAWS.law(source="Axe Appendix B; dims move whole")
def permute_map(d: t.IterList, p: t.CopySet, S: Shape, o: Perm) -> Sides:
    """permute(d + p, S, o) = join((d | S)[o]) + p."""
    return t.Permute(t.Map(d, p), S, o), t.Map(t.Join(t.Reorder(t.Cut(d, S), o)), p)


@LAWS.law(source="Axe Appendix E")
def slice_map(d: t.IterList, p: t.CopySet, S: Shape, R: Region) -> Sides:
    """slice(d + p, S, R) = join((d | S)[R]) + (d | S)(begin of R) + p."""
    grid = t.Cut(d, S)
    return t.Slice(t.Map(d, p), S, R), t.Map(t.Join(t.Region(grid, R)), t.PlaceAt(grid, R, p))


@LAWS.law(source="Axe Appendix F.1")
def sum_maps(d: t.IterList, p: t.CopySet, S: Shape, e: t.IterList, q: t.CopySet, T: Shape) -> Sides:
    """direct_sum(d + p, S, e + q, T) = join((d | S) & (e | T)) + (p + q)."""
    whole = t.Map(t.Join(t.Zip(t.Cut(d, S), t.Cut(e, T))), t.Sum(p, q))
    return t.DirectSum(t.Map(d, p), S, t.Map(e, q), T), whole


@LAWS.law(source="scaling is linear")
def scale_map(d: t.IterList, p: t.CopySet, w: Weights) -> Sides:
    """(w * (d + p)) = (w * d) + (w * p)."""
    return t.Scale(t.Map(d, p), t.Spans(w)), t.Map(t.ScaleIters(d, w), t.ScaleCopies(p, w))


@LAWS.law(source="Axe Lemma C.1")
def span_of_map(d: t.IterList, p: t.CopySet) -> Sides:
    """span(d + p) = span(d) (+) span(p)."""
    return t.SpanOf(t.Map(d, p)), t.SpanSum(t.SpanOfIters(d), t.SpanOfCopies(p))


@LAWS.law(source="a footprint is the span with the padding")
def footprint_is_span_of_padded(b: t.BoxTerm, x: t.LayoutTerm) -> Sides:
    """footprint(box b in x) = span(x)."""
    return t.Footprint(b, x), t.SpanOf(x)


# -- tile and direct sum ---------------------------------------------------------------------------


@primitive((STR, STR), (STR,))
def shape_times(a: str, b: str) -> str | None:
    """The shape whose extents are the products of those of two shapes."""
    one, two = read_shape(a), read_shape(b)
    if len(one) != len(two):
        return None
    return shape_text(x * y for x, y in zip(one, two, strict=True))


@LAWS.law(source="Axe F.3, with R and O scaled as C.2 has it")
def tile_is_scaled_sum(x: t.LayoutTerm, S: Shape, y: t.LayoutTerm, T: Shape) -> Sides:
    """tile(x, S, y, T) = direct_sum(span(y) * x, S, y, T)."""
    return t.Tile(x, S, y, T), t.DirectSum(t.Scale(x, t.SpanOf(y)), S, y, T)


@LAWS.law(source="ours: spans multiply, Theorem C.2", expands=True, both_ways=True)
def tile_associates(
    x: t.LayoutTerm, S: Shape, y: t.LayoutTerm, T: Shape, z: t.LayoutTerm, U: Shape
) -> Sides:
    """tile(tile(x, S, y, T), S*T, z, U) = tile(x, S, tile(y, T, z, U), T*U)."""
    left = t.Tile(t.Tile(x, S, y, T), shape_times(S, T), z, U)
    return left, t.Tile(x, S, t.Tile(y, T, z, U), shape_times(T, U))


@LAWS.law(source="sums associate", expands=True, both_ways=True)
def sum_associates(
    x: t.LayoutTerm, S: Shape, y: t.LayoutTerm, T: Shape, z: t.LayoutTerm, U: Shape
) -> Sides:
    """((x, S) + (y, T), S*T) + (z, U) = (x, S) + ((y, T) + (z, U), T*U) for direct sums."""
    left = t.DirectSum(t.DirectSum(x, S, y, T), shape_times(S, T), z, U)
    return left, t.DirectSum(x, S, t.DirectSum(y, T, z, U), shape_times(T, U))


@LAWS.law(source="a sum with 0")
def sum_with_nothing(x: t.LayoutTerm, S: Shape, T: Shape) -> Sides:
    """direct_sum(x, S, () + 0, T) = x   if T has one element."""
    return t.DirectSum(x, S, t.Map(t.NoIter(), t.Here()), T), x, is_one(T) == 1


@LAWS.law(source="a sum with 0")
def sum_with_nothing_before(x: t.LayoutTerm, S: Shape, T: Shape) -> Sides:
    """direct_sum(() + 0, T, x, S) = x   if T has one element."""
    return t.DirectSum(t.Map(t.NoIter(), t.Here()), T, x, S), x, is_one(T) == 1


@LAWS.law(source="sums commute", expands=True)
def sum_in_other_dims(x: t.LayoutTerm, S: Shape, y: t.LayoutTerm, T: Shape) -> Sides:
    """direct_sum(x, S, y, T) = direct_sum(y, T, x, S)   if S or T is 1 in every dim."""
    return t.DirectSum(x, S, y, T), t.DirectSum(y, T, x, S), in_other_dims(S, T) == 1


@LAWS.law(source="scaling is linear")
def scale_sum(x: t.LayoutTerm, S: Shape, y: t.LayoutTerm, T: Shape, w: t.SpansTerm) -> Sides:
    """(w * direct_sum(x, S, y, T)) = direct_sum(w * x, S, w * y, T)."""
    return t.Scale(t.DirectSum(x, S, y, T), w), t.DirectSum(t.Scale(x, w), S, t.Scale(y, w), T)


@LAWS.law(source="scaling is linear")
def scale_scaled(x: t.LayoutTerm, v: t.SpansTerm, w: t.SpansTerm) -> Sides:
    """(w * (v * x)) = (v (x) w) * x."""
    return t.Scale(t.Scale(x, v), w), t.Scale(x, t.SpanProduct(v, w))


@LAWS.law(source="scaling by 1")
def scale_by_one(x: t.LayoutTerm) -> Sides:
    """1 * x = x."""
    return t.Scale(x, t.Spans("")), x


@LAWS.law(source="scaling is linear")
def scale_nothing_at_all(w: t.SpansTerm) -> Sides:
    """(w * (() + 0)) = () + 0."""
    return t.Scale(t.Map(t.NoIter(), t.Here()), w), t.Map(t.NoIter(), t.Here())


@LAWS.law(source="Axe Lemma C.1: parts are independent")
def span_of_sum(x: t.LayoutTerm, S: Shape, y: t.LayoutTerm, T: Shape) -> Sides:
    """span(direct_sum(x, S, y, T)) = span(x) (+) span(y)."""
    return t.SpanOf(t.DirectSum(x, S, y, T)), t.SpanSum(t.SpanOf(x), t.SpanOf(y))


@LAWS.law(source="ours: (v - 1)*w + (w - 1) + 1 = v*w, axis by axis")
def span_of_tile(x: t.LayoutTerm, S: Shape, y: t.LayoutTerm, T: Shape) -> Sides:
    """span(tile(x, S, y, T)) = span(x) (x) span(y)."""
    return t.SpanOf(t.Tile(x, S, y, T)), t.SpanProduct(t.SpanOf(x), t.SpanOf(y))


@LAWS.law(source="products associate", expands=True, both_ways=True)
def span_product_associates(u: t.SpansTerm, v: t.SpansTerm, w: t.SpansTerm) -> Sides:
    """(u (x) v) (x) w = u (x) (v (x) w)."""
    return t.SpanProduct(t.SpanProduct(u, v), w), t.SpanProduct(u, t.SpanProduct(v, w))


@LAWS.law(source="the same elements")
def span_of_permutation(x: t.LayoutTerm, S: Shape, p: Perm) -> Sides:
    """span(permute(x, S, p)) = span(x)."""
    return t.SpanOf(t.Permute(x, S, p)), t.SpanOf(x)


@LAWS.law(source="ours: scaled coordinates are a span apart, so the factor is unique")
def tile_of_tile(x: t.LayoutTerm, S: Shape, y: t.LayoutTerm, T: Shape) -> Sides:
    """tile_of(tile(x, S, y, T), S*T, y, T) = x   if y denotes a map."""
    whole = shape_times(S, T)
    return t.TileOf(t.Tile(x, S, y, T), whole, y, T), x, denotes(y) == 1


@LAWS.law(source="ours: with one copy of y the addend is unique")
def left_addend_of_sum(x: t.LayoutTerm, S: Shape, y: t.LayoutTerm, T: Shape) -> Sides:
    """direct_sum_left(direct_sum(x, S, y, T), S*T, y, T) = x   if y has one copy."""
    whole = t.DirectSum(x, S, y, T)
    return t.LeftAddend(whole, shape_times(S, T), y, T), x, single(y) == 1


@LAWS.law(source="ours: with one copy of y the addend is unique")
def right_addend_of_sum(x: t.LayoutTerm, S: Shape, y: t.LayoutTerm, T: Shape) -> Sides:
    """direct_sum_right(direct_sum(y, T, x, S), S*T, y, T) = x   if y has one copy."""
    whole = t.DirectSum(y, T, x, S)
    return t.RightAddend(whole, shape_times(S, T), y, T), x, single(y) == 1


# -- permute ---------------------------------------------------------------------------------------


@primitive((STR, STR), (INT,))
def keeps_order(shape: str, perm: str) -> int | None:
    """1 for a permutation that keeps the dims that are not 1 in their order."""
    extents, order = read_shape(shape), read_perm(perm)
    if len(extents) != len(order):
        return None
    moved = [dim for dim in order if extents[dim] != 1]
    return 1 if moved == sorted(moved) else None


@primitive((STR, STR), (STR,))
def shape_permuted(shape: str, perm: str) -> str | None:
    """A shape with its dims in another order."""
    extents, order = read_shape(shape), read_perm(perm)
    return shape_text(extents[dim] for dim in order) if len(extents) == len(order) else None


@primitive((STR, STR), (STR,))
def perm_after(first: str, then: str) -> str | None:
    """One permutation after another."""
    one, two = read_perm(first), read_perm(then)
    return perm_text(one[dim] for dim in two) if len(one) == len(two) else None


@LAWS.law(source="nothing moves")
def permute_in_order(x: t.LayoutTerm, S: Shape, p: Perm) -> Sides:
    """permute(x, S, p) = x   if p keeps the dims that are not 1 in their order."""
    return t.Permute(x, S, p), x, keeps_order(S, p) == 1


@LAWS.law(source="permutations compose")
def permute_permuted(x: t.LayoutTerm, S: Shape, p: Perm, q: Perm) -> Sides:
    """permute(permute(x, S, p), S[p], q) = permute(x, S, p[q])."""
    return t.Permute(t.Permute(x, S, p), shape_permuted(S, p), q), t.Permute(x, S, perm_after(p, q))


@LAWS.law(source="dims are independent", both_ways=True)
def permute_sum(x: t.LayoutTerm, S: Shape, y: t.LayoutTerm, T: Shape, p: Perm) -> Sides:
    """permute((x, S) + (y, T), S*T, p) = (permute(x, S, p), S[p]) + (permute(y, T, p), T[p])."""
    left = t.Permute(t.DirectSum(x, S, y, T), shape_times(S, T), p)
    return left, t.DirectSum(
        t.Permute(x, S, p), shape_permuted(S, p), t.Permute(y, T, p), shape_permuted(T, p)
    )


@LAWS.law(source="dims are independent", both_ways=True)
def permute_tile(x: t.LayoutTerm, S: Shape, y: t.LayoutTerm, T: Shape, p: Perm) -> Sides:
    """permute(tile(x, S, y, T), S*T, p) = tile of permute(x, S, p) and permute(y, T, p)."""
    left = t.Permute(t.Tile(x, S, y, T), shape_times(S, T), p)
    return left, t.Tile(
        t.Permute(x, S, p), shape_permuted(S, p), t.Permute(y, T, p), shape_permuted(T, p)
    )


@LAWS.law(source="scaling is linear")
def permute_scaled(x: t.LayoutTerm, S: Shape, p: Perm, w: t.SpansTerm) -> Sides:
    """permute(w * x, S, p) = w * permute(x, S, p)."""
    return t.Permute(t.Scale(x, w), S, p), t.Scale(t.Permute(x, S, p), w)


# -- slice -----------------------------------------------------------------------------------------


@LAWS.law(source="all of it")
def slice_of_all(x: t.LayoutTerm, S: Shape, R: Region) -> Sides:
    """slice(x, S, all of S) = x."""
    return t.Slice(x, S, R), x, is_whole(S, R) == 1


@LAWS.law(source="row-major order", expands=True)
def slice_of_a_run(x: t.LayoutTerm, S: Shape, R: Region) -> Sides:
    """slice(x, S, R) = slice(x, n, b:e)   if R is b:e in the order of all n elements of S."""
    elements, bounds = run_of(S, R)
    return t.Slice(x, S, R), t.Slice(x, elements, bounds)


@LAWS.law(source="regions of regions")
def slice_sliced(x: t.LayoutTerm, S: Shape, R: Region, T: Region) -> Sides:
    """slice(slice(x, S, R), extents of R, T) = slice(x, S, T within R)."""
    return t.Slice(t.Slice(x, S, R), extents_of(R), T), t.Slice(x, S, region_within(R, T))


@LAWS.law(source="dims are independent")
def slice_tiles_of_sum(x: t.LayoutTerm, S: Shape, y: t.LayoutTerm, T: Shape, R: Region) -> Sides:
    """slice((x, S) + (y, T), S*T, R*T) = (slice(x, S, R), extents of R) + (y, T)."""
    tiles = region_in_tiles(R, T)
    left = t.Slice(t.DirectSum(x, S, y, T), shape_times(S, T), R)
    return left, t.DirectSum(t.Slice(x, S, tiles), extents_of(tiles), y, T)


@LAWS.law(source="dims are independent")
def slice_tiles(x: t.LayoutTerm, S: Shape, y: t.LayoutTerm, T: Shape, R: Region) -> Sides:
    """slice(tile(x, S, y, T), S*T, R*T) = tile(slice(x, S, R), extents of R, y, T)."""
    tiles = region_in_tiles(R, T)
    left = t.Slice(t.Tile(x, S, y, T), shape_times(S, T), R)
    return left, t.Tile(t.Slice(x, S, tiles), extents_of(tiles), y, T)


@LAWS.law(source="dims are independent")
def slice_permuted(x: t.LayoutTerm, S: Shape, p: Perm, R: Region) -> Sides:
    """slice(permute(x, S, p), S[p], R[p]) = permute(slice(x, S, R), extents of R, p)."""
    inner = region_permuted(R, perm_inverse(p))
    left = t.Slice(t.Permute(x, S, p), shape_permuted(S, p), R)
    return left, t.Permute(t.Slice(x, S, inner), extents_of(inner), p)


@LAWS.law(source="scaling is linear")
def slice_scaled(x: t.LayoutTerm, S: Shape, R: Region, w: t.SpansTerm) -> Sides:
    """slice(w * x, S, R) = w * slice(x, S, R)."""
    return t.Slice(t.Scale(x, w), S, R), t.Scale(t.Slice(x, S, R), w)


# -- compose ---------------------------------------------------------------------------------------


@LAWS.law(source="functions compose")
def compose_associates(x: t.LayoutTerm, y: Indices, z: Indices) -> Sides:
    """compose(compose(x, y), z) = compose(x, compose(y, z))."""
    return t.Compose(t.Compose(x, y), z), t.Compose(x, t.Compose(y, z))


@LAWS.law(source="ours: both read x at the permuted indices")
def permute_composition(x: t.LayoutTerm, y: Indices, S: Shape, p: Perm) -> Sides:
    """permute(compose(x, y), S, p) = compose(x, permute(y, S, p))."""
    return t.Permute(t.Compose(x, y), S, p), t.Compose(x, t.Permute(y, S, p))


@LAWS.law(source="ours: both read x at the indices of the region")
def slice_composition(x: t.LayoutTerm, y: Indices, S: Shape, R: Region) -> Sides:
    """slice(compose(x, y), S, R) = compose(x, slice(y, S, R))."""
    return t.Slice(t.Compose(x, y), S, R), t.Compose(x, t.Slice(y, S, R))


@LAWS.law(source="scaling is linear")
def compose_scaled(x: t.LayoutTerm, y: Indices, w: t.SpansTerm) -> Sides:
    """compose(w * x, y) = w * compose(x, y)."""
    return t.Compose(t.Scale(x, w), y), t.Scale(t.Compose(x, y), w)


# -- swizzles act on coordinates -------------------------------------------------------------------


@LAWS.law(source="ours: what has an inverse is one", sampler=samples.inverted)
def inverse_of_inverse_of_inverse(x: t.LayoutTerm, a: Axis) -> Sides:
    """inverse(inverse(inverse(x, a), a), a) = inverse(x, a)."""
    return t.Inverse(t.Inverse(t.Inverse(x, a), a), a), t.Inverse(x, a)


@LAWS.law(source="a swizzle moves coordinates, a permutation indices")
def permute_swizzled(
    a: Axis, i: Place, j: Place, k: Distance, x: t.LayoutTerm, S: Shape, p: Perm
) -> Sides:
    """permute(sw . x, S, p) = sw . permute(x, S, p)."""
    return t.Permute(t.Swizzled(a, i, j, k, x), S, p), t.Swizzled(a, i, j, k, t.Permute(x, S, p))


@LAWS.law(source="a swizzle moves coordinates, a region indices")
def slice_swizzled(
    a: Axis, i: Place, j: Place, k: Distance, x: t.LayoutTerm, S: Shape, R: Region
) -> Sides:
    """slice(sw . x, S, R) = sw . slice(x, S, R)."""
    return t.Slice(t.Swizzled(a, i, j, k, x), S, R), t.Swizzled(a, i, j, k, t.Slice(x, S, R))


@LAWS.law(source="a swizzle moves coordinates, a composition indices")
def compose_swizzled(
    a: Axis, i: Place, j: Place, k: Distance, x: t.LayoutTerm, y: Indices
) -> Sides:
    """compose(sw . x, y) = sw . compose(x, y)."""
    return t.Compose(t.Swizzled(a, i, j, k, x), y), t.Swizzled(a, i, j, k, t.Compose(x, y))


@LAWS.law(source="a swizzle moves coordinates, a box cuts indices")
def box_swizzled(a: Axis, i: Place, j: Place, k: Distance, b: t.BoxTerm, x: t.LayoutTerm) -> Sides:
    """(sw . (box b in x)) = box b in (sw . x)."""
    return t.Swizzled(a, i, j, k, t.Boxed(b, x)), t.Boxed(b, t.Swizzled(a, i, j, k, x))


@LAWS.law(source="XOR twice is nothing; CuTe")
def swizzle_twice(a: Axis, i: Place, j: Place, k: Distance, x: t.LayoutTerm) -> Sides:
    """Sw . (sw . x) = x   if the fields do not overlap, |k| >= i."""
    left = t.Swizzled(a, i, j, k, t.Swizzled(a, i, j, k, x))
    return left, x, k * k >= i * i


@LAWS.law(source="a field of no bits")
def swizzle_of_no_bits(a: Axis, j: Place, k: Distance, x: t.LayoutTerm) -> Sides:
    """sw(0, j, k) . x = x."""
    return t.Swizzled(a, 0, j, k, x), x
