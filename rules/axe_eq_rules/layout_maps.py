"""Laws of operations on layouts, with parts that may be unknown."""

from __future__ import annotations

from typing import Any

from axe_eq.layout.symbolic.check import check
from axe_eq.layout.symbolic.shapes import (
    perm_text,
    read_perm,
    read_shape,
    shape_text,
)
from axe_eq.layout.symbolic.terms import (
    COPIES,
    LAYOUT,
    AnyLayout,
    Boxed,
    BoxTerm,
    Compose,
    CopySet,
    Cut,
    DirectSum,
    Footprint,
    Group,
    Here,
    Inverse,
    IterList,
    Join,
    LayoutTerm,
    LeftAddend,
    Map,
    NoIter,
    Permute,
    PlaceAt,
    Region,
    Reorder,
    RightAddend,
    Scale,
    ScaleCopies,
    ScaleIters,
    Shift,
    Slice,
    SpanOf,
    SpanOfCopies,
    SpanOfIters,
    SpanProduct,
    Spans,
    SpansTerm,
    SpanSum,
    Sum,
    Swizzled,
    SymShift,
    Tile,
    TileOf,
    Zip,
)
from axe_eq.rule.law import Sides
from axe_eq.rule.term import INT, STR, Analysis, Term, primitive
from axe_eq_rules import layout_map_samples as samples
from axe_eq_rules.layout_numbers import (
    Axis,
    Laws,
    Perm,
    Place,
    Shape,
    Weights,
    in_other_dims,
    is_one,
)
from axe_eq_rules.layout_numbers import Region as RegionText
from axe_eq_rules.layout_regions import (
    extents_of,
    is_whole,
    perm_inverse,
    region_in_tiles,
    region_permuted,
    region_within,
    run_of,
)

LAWS = Laws()


# -- what is known to denote something -------------------------------------------------------------


def _denotes(term: Term, known: Any) -> int | None:
    return 1 if check(term).total else None


denotes = Analysis("denotes", LAYOUT, INT, _denotes)
"""1 for layout terms that denote a map whatever their unknowns are."""


@denotes.rule
def _map_denotes(d: IterList, p: CopySet) -> tuple[Term, Any]:
    return Map(d, p), 1


@denotes.rule
def _unknown_denotes(a: Axis, n: Shape, b: Shape) -> tuple[Term, Any]:
    return AnyLayout(a, n, b), 1


@denotes.rule
def _swizzled_denotes(a: Axis, i: Place, j: Place, k: Place, x: LayoutTerm) -> tuple[Term, Any]:
    return Swizzled(a, i, j, k, x), denotes(x)


@denotes.rule
def _boxed_denotes(b: BoxTerm, x: LayoutTerm) -> tuple[Term, Any]:
    return Boxed(b, x), denotes(x)


@denotes.rule
def _permuted_denotes(x: LayoutTerm, S: Shape, p: Perm) -> tuple[Term, Any]:
    return Permute(x, S, p), denotes(x)


@denotes.rule
def _sliced_denotes(x: LayoutTerm, S: Shape, R: RegionText) -> tuple[Term, Any]:
    return Slice(x, S, R), denotes(x)


@denotes.rule
def _tiled_denotes(x: LayoutTerm, S: Shape, y: LayoutTerm, T: Shape) -> tuple[Term, Any]:
    return Tile(x, S, y, T), denotes(x) * denotes(y)


@denotes.rule
def _summed_denotes(x: LayoutTerm, S: Shape, y: LayoutTerm, T: Shape) -> tuple[Term, Any]:
    return DirectSum(x, S, y, T), denotes(x) * denotes(y)


@denotes.rule
def _composed_denotes(x: LayoutTerm, y: LayoutTerm) -> tuple[Term, Any]:
    return Compose(x, y), denotes(x) * denotes(y)


def _alone(term: Term, known: Any) -> int | None:
    return 1 if check(term).elements == 1 else None


alone = Analysis("alone", COPIES, INT, _alone)
"""1 for sets of one displacement."""


@alone.rule
def _here_alone() -> tuple[Term, Any]:
    return Here(), 1


@alone.rule
def _shift_alone(v: Place, a: Axis, p: CopySet) -> tuple[Term, Any]:
    return Shift(v, a, p), alone(p)


@alone.rule
def _symbolic_shift_alone(v: Shape, a: Axis, p: CopySet) -> tuple[Term, Any]:
    return SymShift(v, a, p), alone(p)


def _single(term: Term, known: Any) -> int | None:
    kind = check(term)
    return 1 if kind.single and kind.total else None


single = Analysis("single", LAYOUT, INT, _single)
"""1 for layout terms that denote a map with one copy of every element."""


@single.rule
def _map_single(d: IterList, p: CopySet) -> tuple[Term, Any]:
    return Map(d, p), alone(p)


@single.rule
def _permuted_single(x: LayoutTerm, S: Shape, p: Perm) -> tuple[Term, Any]:
    return Permute(x, S, p), single(x)


@single.rule
def _sliced_single(x: LayoutTerm, S: Shape, R: RegionText) -> tuple[Term, Any]:
    return Slice(x, S, R), single(x)


@single.rule
def _swizzled_single(a: Axis, i: Place, j: Place, k: Place, x: LayoutTerm) -> tuple[Term, Any]:
    return Swizzled(a, i, j, k, x), single(x)


# -- layouts written out ---------------------------------------------------------------------------


@LAWS.law(source="Axe Appendix B: grouping only cuts", sampler=samples.one_with_shape)
def group_is_the_layout(x: LayoutTerm, S: Shape) -> Sides:
    """group(x, S) = x."""
    return Group(x, S), x


@LAWS.law(source="Axe Appendix B; dims move whole", sampler=samples.permuted_map)
def permute_map(d: IterList, p: CopySet, S: Shape, o: Perm) -> Sides:
    """permute(d + p, S, o) = join((d | S)[o]) + p."""
    return Permute(Map(d, p), S, o), Map(Join(Reorder(Cut(d, S), o)), p)


@LAWS.law(source="Axe Appendix E", sampler=samples.sliced_map)
def slice_map(d: IterList, p: CopySet, S: Shape, R: RegionText) -> Sides:
    """slice(d + p, S, R) = join((d | S)[R]) + (d | S)(begin of R) + p."""
    grid = Cut(d, S)
    return Slice(Map(d, p), S, R), Map(Join(Region(grid, R)), PlaceAt(grid, R, p))


@LAWS.law(source="Axe Appendix F.1", sampler=samples.two_maps)
def sum_maps(d: IterList, p: CopySet, S: Shape, e: IterList, q: CopySet, T: Shape) -> Sides:
    """direct_sum(d + p, S, e + q, T) = join((d | S) & (e | T)) + (p + q)."""
    whole = Map(Join(Zip(Cut(d, S), Cut(e, T))), Sum(p, q))
    return DirectSum(Map(d, p), S, Map(e, q), T), whole


@LAWS.law(source="scaling is linear")
def scale_map(d: IterList, p: CopySet, w: Weights) -> Sides:
    """(w * (d + p)) = (w * d) + (w * p)."""
    return Scale(Map(d, p), Spans(w)), Map(ScaleIters(d, w), ScaleCopies(p, w))


@LAWS.law(source="Axe Lemma C.1")
def span_of_map(d: IterList, p: CopySet) -> Sides:
    """span(d + p) = span(d) (+) span(p)."""
    return SpanOf(Map(d, p)), SpanSum(SpanOfIters(d), SpanOfCopies(p))


@LAWS.law(source="a footprint is the span with the padding", sampler=samples.boxed)
def footprint_is_span_of_padded(b: BoxTerm, x: LayoutTerm) -> Sides:
    """footprint(box b in x) = span(x)."""
    return Footprint(b, x), SpanOf(x)


# -- tile and direct sum ---------------------------------------------------------------------------


@primitive((STR, STR), (STR,))
def shape_times(a: str, b: str) -> str | None:
    """The shape whose extents are the products of those of two shapes."""
    one, two = read_shape(a), read_shape(b)
    if len(one) != len(two):
        return None
    return shape_text(x * y for x, y in zip(one, two, strict=True))


@LAWS.law(source="Axe F.3, with R and O scaled as C.2 has it", sampler=samples.factors(2))
def tile_is_scaled_sum(x: LayoutTerm, S: Shape, y: LayoutTerm, T: Shape) -> Sides:
    """tile(x, S, y, T) = direct_sum(span(y) * x, S, y, T)."""
    return Tile(x, S, y, T), DirectSum(Scale(x, SpanOf(y)), S, y, T)


@LAWS.law(source="ours: spans multiply, Theorem C.2", expands=True, both_ways=True,
          sampler=samples.factors(3))  # fmt: skip
def tile_associates(
    x: LayoutTerm, S: Shape, y: LayoutTerm, T: Shape, z: LayoutTerm, U: Shape
) -> Sides:
    """tile(tile(x, S, y, T), S*T, z, U) = tile(x, S, tile(y, T, z, U), T*U)."""
    left = Tile(Tile(x, S, y, T), shape_times(S, T), z, U)
    return left, Tile(x, S, Tile(y, T, z, U), shape_times(T, U))


@LAWS.law(source="sums associate", expands=True, both_ways=True, sampler=samples.factors(3))
def sum_associates(
    x: LayoutTerm, S: Shape, y: LayoutTerm, T: Shape, z: LayoutTerm, U: Shape
) -> Sides:
    """((x, S) + (y, T), S*T) + (z, U) = (x, S) + ((y, T) + (z, U), T*U) for direct sums."""
    left = DirectSum(DirectSum(x, S, y, T), shape_times(S, T), z, U)
    return left, DirectSum(x, S, DirectSum(y, T, z, U), shape_times(T, U))


@LAWS.law(source="a sum with 0", sampler=samples.factor_and_ones)
def sum_with_nothing(x: LayoutTerm, S: Shape, T: Shape) -> Sides:
    """direct_sum(x, S, () + 0, T) = x   if T has one element."""
    return DirectSum(x, S, Map(NoIter(), Here()), T), x, is_one(T) == 1


@LAWS.law(source="a sum with 0", sampler=samples.factor_and_ones)
def sum_with_nothing_before(x: LayoutTerm, S: Shape, T: Shape) -> Sides:
    """direct_sum(() + 0, T, x, S) = x   if T has one element."""
    return DirectSum(Map(NoIter(), Here()), T, x, S), x, is_one(T) == 1


@LAWS.law(source="sums commute", expands=True, sampler=samples.factors_in_other_dims)
def sum_in_other_dims(x: LayoutTerm, S: Shape, y: LayoutTerm, T: Shape) -> Sides:
    """direct_sum(x, S, y, T) = direct_sum(y, T, x, S)   if S or T is 1 in every dim."""
    return DirectSum(x, S, y, T), DirectSum(y, T, x, S), in_other_dims(S, T) == 1


@LAWS.law(source="scaling is linear", sampler=samples.spans_and(samples.factors(2), 4))
def scale_sum(x: LayoutTerm, S: Shape, y: LayoutTerm, T: Shape, w: SpansTerm) -> Sides:
    """(w * direct_sum(x, S, y, T)) = direct_sum(w * x, S, w * y, T)."""
    return Scale(DirectSum(x, S, y, T), w), DirectSum(Scale(x, w), S, Scale(y, w), T)


@LAWS.law(source="scaling is linear")
def scale_scaled(x: LayoutTerm, v: SpansTerm, w: SpansTerm) -> Sides:
    """(w * (v * x)) = (v (x) w) * x."""
    return Scale(Scale(x, v), w), Scale(x, SpanProduct(v, w))


@LAWS.law(source="scaling by 1")
def scale_by_one(x: LayoutTerm) -> Sides:
    """1 * x = x."""
    return Scale(x, Spans("")), x


@LAWS.law(source="scaling is linear")
def scale_nothing_at_all(w: SpansTerm) -> Sides:
    """(w * (() + 0)) = () + 0."""
    return Scale(Map(NoIter(), Here()), w), Map(NoIter(), Here())


@LAWS.law(source="Axe Lemma C.1: parts are independent", sampler=samples.factors(2))
def span_of_sum(x: LayoutTerm, S: Shape, y: LayoutTerm, T: Shape) -> Sides:
    """span(direct_sum(x, S, y, T)) = span(x) (+) span(y)."""
    return SpanOf(DirectSum(x, S, y, T)), SpanSum(SpanOf(x), SpanOf(y))


@LAWS.law(source="ours: (v - 1)*w + (w - 1) + 1 = v*w, axis by axis", sampler=samples.factors(2))
def span_of_tile(x: LayoutTerm, S: Shape, y: LayoutTerm, T: Shape) -> Sides:
    """span(tile(x, S, y, T)) = span(x) (x) span(y)."""
    return SpanOf(Tile(x, S, y, T)), SpanProduct(SpanOf(x), SpanOf(y))


@LAWS.law(source="products associate", expands=True, both_ways=True)
def span_product_associates(u: SpansTerm, v: SpansTerm, w: SpansTerm) -> Sides:
    """(u (x) v) (x) w = u (x) (v (x) w)."""
    return SpanProduct(SpanProduct(u, v), w), SpanProduct(u, SpanProduct(v, w))


@LAWS.law(source="the same elements", sampler=samples.permuted(1))
def span_of_permutation(x: LayoutTerm, S: Shape, p: Perm) -> Sides:
    """span(permute(x, S, p)) = span(x)."""
    return SpanOf(Permute(x, S, p)), SpanOf(x)


@LAWS.law(source="ours: scaled coordinates are a span apart, so the factor is unique",
          sampler=samples.factors(2))  # fmt: skip
def tile_of_tile(x: LayoutTerm, S: Shape, y: LayoutTerm, T: Shape) -> Sides:
    """tile_of(tile(x, S, y, T), S*T, y, T) = x   if y denotes a map."""
    whole = shape_times(S, T)
    return TileOf(Tile(x, S, y, T), whole, y, T), x, denotes(y) == 1


@LAWS.law(source="ours: with one copy of y the addend is unique", sampler=samples.single_factor)
def left_addend_of_sum(x: LayoutTerm, S: Shape, y: LayoutTerm, T: Shape) -> Sides:
    """direct_sum_left(direct_sum(x, S, y, T), S*T, y, T) = x   if y has one copy."""
    whole = DirectSum(x, S, y, T)
    return LeftAddend(whole, shape_times(S, T), y, T), x, single(y) == 1


@LAWS.law(source="ours: with one copy of y the addend is unique", sampler=samples.single_factor)
def right_addend_of_sum(x: LayoutTerm, S: Shape, y: LayoutTerm, T: Shape) -> Sides:
    """direct_sum_right(direct_sum(y, T, x, S), S*T, y, T) = x   if y has one copy."""
    whole = DirectSum(y, T, x, S)
    return RightAddend(whole, shape_times(S, T), y, T), x, single(y) == 1


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


@LAWS.law(source="nothing moves", sampler=samples.permuted_in_order)
def permute_in_order(x: LayoutTerm, S: Shape, p: Perm) -> Sides:
    """permute(x, S, p) = x   if p keeps the dims that are not 1 in their order."""
    return Permute(x, S, p), x, keeps_order(S, p) == 1


@LAWS.law(source="permutations compose", sampler=samples.permuted(2))
def permute_permuted(x: LayoutTerm, S: Shape, p: Perm, q: Perm) -> Sides:
    """permute(permute(x, S, p), S[p], q) = permute(x, S, p[q])."""
    return Permute(Permute(x, S, p), shape_permuted(S, p), q), Permute(x, S, perm_after(p, q))


@LAWS.law(source="dims are independent", sampler=samples.permuted_factors, both_ways=True)
def permute_sum(x: LayoutTerm, S: Shape, y: LayoutTerm, T: Shape, p: Perm) -> Sides:
    """permute((x, S) + (y, T), S*T, p) = (permute(x, S, p), S[p]) + (permute(y, T, p), T[p])."""
    left = Permute(DirectSum(x, S, y, T), shape_times(S, T), p)
    return left, DirectSum(
        Permute(x, S, p), shape_permuted(S, p), Permute(y, T, p), shape_permuted(T, p)
    )


@LAWS.law(source="dims are independent", sampler=samples.permuted_factors, both_ways=True)
def permute_tile(x: LayoutTerm, S: Shape, y: LayoutTerm, T: Shape, p: Perm) -> Sides:
    """permute(tile(x, S, y, T), S*T, p) = tile of permute(x, S, p) and permute(y, T, p)."""
    left = Permute(Tile(x, S, y, T), shape_times(S, T), p)
    return left, Tile(
        Permute(x, S, p), shape_permuted(S, p), Permute(y, T, p), shape_permuted(T, p)
    )


@LAWS.law(source="scaling is linear", sampler=samples.spans_and(samples.permuted(1), 3))
def permute_scaled(x: LayoutTerm, S: Shape, p: Perm, w: SpansTerm) -> Sides:
    """permute(w * x, S, p) = w * permute(x, S, p)."""
    return Permute(Scale(x, w), S, p), Scale(Permute(x, S, p), w)


# -- slice -----------------------------------------------------------------------------------------


@LAWS.law(source="all of it", sampler=samples.sliced_whole)
def slice_of_all(x: LayoutTerm, S: Shape, R: RegionText) -> Sides:
    """slice(x, S, all of S) = x."""
    return Slice(x, S, R), x, is_whole(S, R) == 1


@LAWS.law(source="row-major order", sampler=samples.sliced_run, expands=True)
def slice_of_a_run(x: LayoutTerm, S: Shape, R: RegionText) -> Sides:
    """slice(x, S, R) = slice(x, n, b:e)   if R is b:e in the order of all n elements of S."""
    elements, bounds = run_of(S, R)
    return Slice(x, S, R), Slice(x, elements, bounds)


@LAWS.law(source="regions of regions", sampler=samples.sliced_twice)
def slice_sliced(x: LayoutTerm, S: Shape, R: RegionText, T: RegionText) -> Sides:
    """slice(slice(x, S, R), extents of R, T) = slice(x, S, T within R)."""
    return Slice(Slice(x, S, R), extents_of(R), T), Slice(x, S, region_within(R, T))


@LAWS.law(source="dims are independent", sampler=samples.sliced_tiles)
def slice_tiles_of_sum(x: LayoutTerm, S: Shape, y: LayoutTerm, T: Shape, R: RegionText) -> Sides:
    """slice((x, S) + (y, T), S*T, R*T) = (slice(x, S, R), extents of R) + (y, T)."""
    tiles = region_in_tiles(R, T)
    left = Slice(DirectSum(x, S, y, T), shape_times(S, T), R)
    return left, DirectSum(Slice(x, S, tiles), extents_of(tiles), y, T)


@LAWS.law(source="dims are independent", sampler=samples.sliced_tiles)
def slice_tiles(x: LayoutTerm, S: Shape, y: LayoutTerm, T: Shape, R: RegionText) -> Sides:
    """slice(tile(x, S, y, T), S*T, R*T) = tile(slice(x, S, R), extents of R, y, T)."""
    tiles = region_in_tiles(R, T)
    left = Slice(Tile(x, S, y, T), shape_times(S, T), R)
    return left, Tile(Slice(x, S, tiles), extents_of(tiles), y, T)


@LAWS.law(source="dims are independent", sampler=samples.sliced_permutation)
def slice_permuted(x: LayoutTerm, S: Shape, p: Perm, R: RegionText) -> Sides:
    """slice(permute(x, S, p), S[p], R[p]) = permute(slice(x, S, R), extents of R, p)."""
    inner = region_permuted(R, perm_inverse(p))
    left = Slice(Permute(x, S, p), shape_permuted(S, p), R)
    return left, Permute(Slice(x, S, inner), extents_of(inner), p)


@LAWS.law(source="scaling is linear", sampler=samples.spans_and(samples.sliced, 3))
def slice_scaled(x: LayoutTerm, S: Shape, R: RegionText, w: SpansTerm) -> Sides:
    """slice(w * x, S, R) = w * slice(x, S, R)."""
    return Slice(Scale(x, w), S, R), Scale(Slice(x, S, R), w)


# -- compose ---------------------------------------------------------------------------------------


@LAWS.law(source="functions compose", sampler=samples.composed)
def compose_associates(x: LayoutTerm, y: LayoutTerm, z: LayoutTerm) -> Sides:
    """compose(compose(x, y), z) = compose(x, compose(y, z))."""
    return Compose(Compose(x, y), z), Compose(x, Compose(y, z))


@LAWS.law(source="ours: both read x at the permuted indices",
          sampler=samples.composed_permutation)  # fmt: skip
def permute_composition(x: LayoutTerm, y: LayoutTerm, S: Shape, p: Perm) -> Sides:
    """permute(compose(x, y), S, p) = compose(x, permute(y, S, p))."""
    return Permute(Compose(x, y), S, p), Compose(x, Permute(y, S, p))


@LAWS.law(source="ours: both read x at the indices of the region",
          sampler=samples.composed_region)  # fmt: skip
def slice_composition(x: LayoutTerm, y: LayoutTerm, S: Shape, R: RegionText) -> Sides:
    """slice(compose(x, y), S, R) = compose(x, slice(y, S, R))."""
    return Slice(Compose(x, y), S, R), Compose(x, Slice(y, S, R))


@LAWS.law(source="scaling is linear", sampler=samples.spans_and(samples.composed_pair, 2))
def compose_scaled(x: LayoutTerm, y: LayoutTerm, w: SpansTerm) -> Sides:
    """compose(w * x, y) = w * compose(x, y)."""
    return Compose(Scale(x, w), y), Scale(Compose(x, y), w)


# -- swizzles act on coordinates -------------------------------------------------------------------


@LAWS.law(source="ours: what has an inverse is one", sampler=samples.inverted)
def inverse_of_inverse_of_inverse(x: LayoutTerm, a: Axis) -> Sides:
    """inverse(inverse(inverse(x, a), a), a) = inverse(x, a)."""
    return Inverse(Inverse(Inverse(x, a), a), a), Inverse(x, a)


@LAWS.law(source="a swizzle moves coordinates, a permutation indices",
          sampler=samples.swizzled(samples.permuted(1)))  # fmt: skip
def permute_swizzled(
    a: Axis, i: Place, j: Place, k: Place, x: LayoutTerm, S: Shape, p: Perm
) -> Sides:
    """permute(sw . x, S, p) = sw . permute(x, S, p)."""
    return Permute(Swizzled(a, i, j, k, x), S, p), Swizzled(a, i, j, k, Permute(x, S, p))


@LAWS.law(source="a swizzle moves coordinates, a region indices",
          sampler=samples.swizzled(samples.sliced))  # fmt: skip
def slice_swizzled(
    a: Axis, i: Place, j: Place, k: Place, x: LayoutTerm, S: Shape, R: RegionText
) -> Sides:
    """slice(sw . x, S, R) = sw . slice(x, S, R)."""
    return Slice(Swizzled(a, i, j, k, x), S, R), Swizzled(a, i, j, k, Slice(x, S, R))


@LAWS.law(source="a swizzle moves coordinates, a composition indices",
          sampler=samples.swizzled(samples.composed_pair))  # fmt: skip
def compose_swizzled(a: Axis, i: Place, j: Place, k: Place, x: LayoutTerm, y: LayoutTerm) -> Sides:
    """compose(sw . x, y) = sw . compose(x, y)."""
    return Compose(Swizzled(a, i, j, k, x), y), Swizzled(a, i, j, k, Compose(x, y))


@LAWS.law(source="a swizzle moves coordinates, a box cuts indices", sampler=samples.swizzled_box)
def box_swizzled(a: Axis, i: Place, j: Place, k: Place, b: BoxTerm, x: LayoutTerm) -> Sides:
    """(sw . (box b in x)) = box b in (sw . x)."""
    return Swizzled(a, i, j, k, Boxed(b, x)), Boxed(b, Swizzled(a, i, j, k, x))


@LAWS.law(source="XOR twice is nothing; CuTe", sampler=samples.swizzled())
def swizzle_twice(a: Axis, i: Place, j: Place, k: Place, x: LayoutTerm) -> Sides:
    """Sw . (sw . x) = x   if the fields do not overlap, |k| >= i."""
    left = Swizzled(a, i, j, k, Swizzled(a, i, j, k, x))
    return left, x, k * k >= i * i


@LAWS.law(source="a field of no bits", sampler=samples.swizzled_by_nothing)
def swizzle_of_no_bits(a: Axis, j: Place, k: Place, x: LayoutTerm) -> Sides:
    """sw(0, j, k) . x = x."""
    return Swizzled(a, 0, j, k, x), x
