"""Laws of lists of iters and of sets of copies: what makes a layout canonical."""

from __future__ import annotations

from axe_eq.layout.symbolic import terms as t
from axe_eq.layout.symbolic.polynomial import Polynomial
from axe_eq.layout.symbolic.shapes import read_spans, span_of, spans_text
from axe_eq.rule.law import Sides
from axe_eq.rule.term import INT, STR, primitive
from axe_eq_rules.layout_numbers import (
    INTEGERS,
    NUMBER,
    POLYNOMIALS,
    Axis,
    Extent,
    IntExtent,
    IntStride,
    Laws,
    Numbers,
    Stride,
    Weights,
    on_numbers,
    text_before,
)

LAWS = Laws()

# -- lists of iters --------------------------------------------------------------------------------


@LAWS.over(source="Axe A.1, D0")
def drop_unit(n: Numbers, s: Stride, a: Axis, r: t.IterList) -> Sides:
    """(1, s@a) r = r."""
    return n.iter(n.one, s, a, r), r


@LAWS.over(source="Axe A.1, D1")
def fuse_adjacent(
    n: Numbers, e: Extent, s: Stride, f: Extent, u: Stride, a: Axis, r: t.IterList
) -> Sides:
    """(e, s@a) (f, u@a) r = (e*f, u@a) r   if s = f*u."""
    return (n.iter(e, s, a, n.iter(f, u, a, r)), n.iter(n.times(e, f), u, a, r), s == n.times(f, u))


@LAWS.over(source="ours: a step of nothing has no axis; Axe Definition 2.1 excludes it")
def zero_stride_has_no_axis(n: Numbers, e: Extent, a: Axis, r: t.IterList) -> Sides:
    """(e, 0@a) r = (e, 0@m) r   if a is not m."""
    return n.iter(e, n.zero, a, r), n.iter(e, n.zero, "m", r), a != "m"


# -- sets of copies --------------------------------------------------------------------------------


@LAWS.over(source="Axe A.1, C0")
def drop_unit_copy(n: Numbers, s: Stride, a: Axis, p: t.CopySet) -> Sides:
    """[1, s@a] + p = p."""
    return n.copy(n.one, s, a, p), p


@LAWS.over(source="ours: copies on one place are one")
def drop_still_copy(n: Numbers, e: Extent, a: Axis, p: t.CopySet) -> Sides:
    """[e, 0@a] + p = p."""
    return n.copy(e, n.zero, a, p), p


@LAWS.over(source="Axe A.1, C1")
def turn_copy(n: Numbers, e: Extent, s: Stride, a: Axis, p: t.CopySet) -> Sides:
    """[e, s@a] + p = (e-1)*s@a + [e, -s@a] + p   if s < 0."""
    reach, turned, conditions = n.turned(e, s)
    return n.copy(e, s, a, p), n.shift(reach, a, n.copy(e, turned, a, p)), *conditions


@LAWS.over(source="Axe A.1, C2, with q <= E: the strict form leaves [2, 1] + [2, 2] apart")
def absorb_multiple(
    n: Numbers, e: Extent, s: Stride, f: Extent, u: Stride, a: Axis, p: t.CopySet
) -> Sides:
    """[e, s@a] + [f, u@a] + p = [e + q*(f-1), s@a] + p   if u = q*s and 1 <= q <= e."""
    whole, conditions = n.absorbed(e, s, f, u)
    return n.copy(e, s, a, n.copy(f, u, a, p)), n.copy(whole, s, a, p), *conditions


@LAWS.over(source="Axe A.1, C2, with q <= E; the order of copies does not matter")
def absorb_multiple_across(
    n: Numbers, e: Extent, s: Stride, g: Extent, v: Stride, f: Extent, u: Stride, a: Axis, b: Axis,
    p: t.CopySet,
) -> Sides:  # fmt: skip
    """[e, s@a] + [g, v@b] + [f, u@a] + p = [e + q*(f-1), s@a] + [g, v@b] + p   if as above."""
    whole, conditions = n.absorbed(e, s, f, u)
    left = n.copy(e, s, a, n.copy(g, v, b, n.copy(f, u, a, p)))
    return left, n.copy(whole, s, a, n.copy(g, v, b, p)), *conditions


@LAWS.over(POLYNOMIALS, source="Axe A.1, C2, with q <= E; the order of copies does not matter")
def absorb_multiple_before(
    n: Numbers, f: Extent, u: Stride, e: Extent, s: Stride, a: Axis, p: t.CopySet
) -> Sides:
    """[f, u@a] + [e, s@a] + p = [e + q*(f-1), s@a] + p   if u = q*s and 1 <= q <= e."""
    whole, conditions = n.absorbed(e, s, f, u)
    return n.copy(f, u, a, n.copy(e, s, a, p)), n.copy(whole, s, a, p), *conditions


@primitive((STR, STR), (INT,))
def axis_before(a: str, b: str) -> int | None:
    """1 where the first axis sorts before the second."""
    return 1 if a < b else None


@LAWS.over(source="copies are a multiset: Axe Definition 2.2")
def sort_copies_by_axis(
    n: Numbers, e: Extent, s: Stride, a: Axis, f: Extent, u: Stride, b: Axis, p: t.CopySet
) -> Sides:
    """[e, s@a] + [f, u@b] + p = [f, u@b] + [e, s@a] + p   if b sorts before a."""
    left, right = n.copy(e, s, a, n.copy(f, u, b, p)), n.copy(f, u, b, n.copy(e, s, a, p))
    return left, right, axis_before(b, a) == 1


@LAWS.over(INTEGERS, source="copies are a multiset: Axe Definition 2.2")
def sort_copies_by_stride(
    n: Numbers, e: Extent, s: Stride, f: Extent, u: Stride, a: Axis, p: t.CopySet
) -> Sides:
    """[e, s@a] + [f, u@a] + p = [f, u@a] + [e, s@a] + p   if s > u."""
    left, right = n.copy(e, s, a, n.copy(f, u, a, p)), n.copy(f, u, a, n.copy(e, s, a, p))
    return left, right, s > u


@LAWS.law(source="copies are a multiset: Axe Definition 2.2")
def sort_copies_by_extent(e: IntExtent, f: IntExtent, s: IntStride, a: Axis, p: t.CopySet) -> Sides:
    """[e, s@a] + [f, s@a] + p = [f, s@a] + [e, s@a] + p   if e < f."""
    copy = INTEGERS.copy
    return copy(e, s, a, copy(f, s, a, p)), copy(f, s, a, copy(e, s, a, p)), e < f


@LAWS.over(POLYNOMIALS, source="copies are a multiset: Axe Definition 2.2")
def sort_copies_by_text(
    n: Numbers, e: Extent, s: Stride, f: Extent, u: Stride, a: Axis, p: t.CopySet
) -> Sides:
    """[e, s@a] + [f, u@a] + p = [f, u@a] + [e, s@a] + p   if u s f sorts before s u e."""
    left, right = n.copy(e, s, a, n.copy(f, u, a, p)), n.copy(f, u, a, n.copy(e, s, a, p))
    return left, right, text_before(u + " " + f, s + " " + e) == 1


@LAWS.over(source="sums commute")
def shift_before_copy(
    n: Numbers, e: Extent, s: Stride, a: Axis, v: Stride, b: Axis, p: t.CopySet
) -> Sides:
    """[e, s@a] + v@b + p = v@b + [e, s@a] + p."""
    return n.copy(e, s, a, n.shift(v, b, p)), n.shift(v, b, n.copy(e, s, a, p))


@LAWS.over(source="sums associate")
def join_shifts(n: Numbers, v: Stride, w: Stride, a: Axis, p: t.CopySet) -> Sides:
    """v@a + w@a + p = (v+w)@a + p   if v+w is not 0."""
    both = n.plus(v, w)
    return n.shift(v, a, n.shift(w, a, p)), n.shift(both, a, p), both != n.zero


@LAWS.over(source="sums associate")
def cancel_shifts(n: Numbers, v: Stride, w: Stride, a: Axis, p: t.CopySet) -> Sides:
    """v@a + w@a + p = p   if v+w = 0."""
    return n.shift(v, a, n.shift(w, a, p)), p, n.plus(v, w) == n.zero


@LAWS.over(source="a shift by nothing")
def drop_zero_shift(n: Numbers, a: Axis, p: t.CopySet) -> Sides:
    """0@a + p = p."""
    return n.shift(n.zero, a, p), p


@LAWS.over(source="sums commute")
def sort_shifts(n: Numbers, v: Stride, a: Axis, w: Stride, b: Axis, p: t.CopySet) -> Sides:
    """v@a + w@b + p = w@b + v@a + p   if b sorts before a."""
    left, right = n.shift(v, a, n.shift(w, b, p)), n.shift(w, b, n.shift(v, a, p))
    return left, right, axis_before(b, a) == 1


# -- sums, multiples, spans ------------------------------------------------------------------------


@LAWS.over(source="sums associate")
def sum_of_copies(n: Numbers, e: Extent, s: Stride, a: Axis, p: t.CopySet, q: t.CopySet) -> Sides:
    """([e, s@a] + p) + q = [e, s@a] + (p + q)."""
    return t.Sum(n.copy(e, s, a, p), q), n.copy(e, s, a, t.Sum(p, q))


@LAWS.over(source="sums associate")
def sum_of_shift(n: Numbers, v: Stride, a: Axis, p: t.CopySet, q: t.CopySet) -> Sides:
    """(v@a + p) + q = v@a + (p + q)."""
    return t.Sum(n.shift(v, a, p), q), n.shift(v, a, t.Sum(p, q))


@LAWS.law(source="a sum with 0")
def sum_of_nothing(q: t.CopySet) -> Sides:
    """0 + q = q."""
    return t.Sum(t.Here(), q), q


@on_numbers((STR, STR), (NUMBER,))
def weight(weights: str, axis: str) -> Polynomial:
    """The span on an axis."""
    return span_of(read_spans(weights), axis)


@LAWS.over(source="scaling is linear")
def scale_iter(n: Numbers, e: Extent, s: Stride, a: Axis, r: t.IterList, w: Weights) -> Sides:
    """(w * ((e, s@a) r)) = (e, w[a]*s@a) (w * r)."""
    scaled = n.times(s, weight(n, w, a))
    return t.ScaleIters(n.iter(e, s, a, r), w), n.iter(e, scaled, a, t.ScaleIters(r, w))


@LAWS.law(source="scaling is linear")
def scale_no_iter(w: Weights) -> Sides:
    """(w * ()) = ()."""
    return t.ScaleIters(t.NoIter(), w), t.NoIter()


@LAWS.over(source="scaling is linear")
def scale_copy(n: Numbers, e: Extent, s: Stride, a: Axis, p: t.CopySet, w: Weights) -> Sides:
    """(w * ([e, s@a] + p)) = [e, w[a]*s@a] + w * p."""
    scaled = n.times(s, weight(n, w, a))
    return t.ScaleCopies(n.copy(e, s, a, p), w), n.copy(e, scaled, a, t.ScaleCopies(p, w))


@LAWS.over(source="scaling is linear")
def scale_shift(n: Numbers, v: Stride, a: Axis, p: t.CopySet, w: Weights) -> Sides:
    """(w * (v@a + p)) = w[a]*v@a + w * p."""
    scaled = n.times(v, weight(n, w, a))
    return t.ScaleCopies(n.shift(v, a, p), w), n.shift(scaled, a, t.ScaleCopies(p, w))


@LAWS.law(source="scaling is linear")
def scale_nothing(w: Weights) -> Sides:
    """(w * 0) = 0."""
    return t.ScaleCopies(t.Here(), w), t.Here()


@on_numbers((NUMBER, NUMBER, STR), (STR,))
def span_of_steps(extent: Polynomial, stride: Polynomial, axis: str) -> str | None:
    """The spans of one iter; undefined where the sign of the stride is not known."""
    for step in (stride, -stride):
        if step.at_least(0):
            return spans_text({axis: (extent - 1) * step + 1})
    return None


@LAWS.over(source="Axe Lemma C.1: digits are independent")
def span_of_iter(n: Numbers, e: Extent, s: Stride, a: Axis, r: t.IterList) -> Sides:
    """span((e, s@a) r) = span(r) + (e-1)*|s|@a."""
    mine = t.Spans(span_of_steps(n, e, s, a))
    return t.SpanOfIters(n.iter(e, s, a, r)), t.SpanSum(mine, t.SpanOfIters(r))


@LAWS.law(source="Axe Definition 2.3")
def span_of_no_iter() -> Sides:
    """span(()) = 1."""
    return t.SpanOfIters(t.NoIter()), t.Spans("")


@LAWS.over(source="Axe Lemma C.1: copies are independent")
def span_of_copy(n: Numbers, e: Extent, s: Stride, a: Axis, p: t.CopySet) -> Sides:
    """span([e, s@a] + p) = span(p) + (e-1)*|s|@a."""
    mine = t.Spans(span_of_steps(n, e, s, a))
    return t.SpanOfCopies(n.copy(e, s, a, p)), t.SpanSum(mine, t.SpanOfCopies(p))


@LAWS.over(source="Axe Definition 2.3: the offset is not counted")
def span_of_shift(n: Numbers, v: Stride, a: Axis, p: t.CopySet) -> Sides:
    """span(v@a + p) = span(p)."""
    return t.SpanOfCopies(n.shift(v, a, p)), t.SpanOfCopies(p)


@LAWS.law(source="Axe Definition 2.3")
def span_of_nothing() -> Sides:
    """span(0) = 1."""
    return t.SpanOfCopies(t.Here()), t.Spans("")


@primitive((STR, STR), (STR,))
def added_spans(a: str, b: str) -> str:
    """The spans of a sum of independent parts."""
    one, two = read_spans(a), read_spans(b)
    return spans_text({axis: span_of(one, axis) + span_of(two, axis) - 1 for axis in {*one, *two}})


@primitive((STR, STR), (STR,))
def multiplied_spans(a: str, b: str) -> str:
    """The products of spans."""
    one, two = read_spans(a), read_spans(b)
    return spans_text({axis: span_of(one, axis) * span_of(two, axis) for axis in {*one, *two}})


@LAWS.law(source="Axe Lemma C.1")
def add_spans(v: Weights, w: Weights) -> Sides:
    """(v (+) w) = v + w - 1, axis by axis."""
    return t.SpanSum(t.Spans(v), t.Spans(w)), t.Spans(added_spans(v, w))


@LAWS.law(source="Axe Theorem C.2")
def multiply_spans(v: Weights, w: Weights) -> Sides:
    """(v (x) w) = v * w, axis by axis."""
    return t.SpanProduct(t.Spans(v), t.Spans(w)), t.Spans(multiplied_spans(v, w))
