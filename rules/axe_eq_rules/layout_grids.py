"""Laws that cut lists of iters at the boundaries of shapes, reorder, join and window their dims.

One digit at a time, so that no law needs to know whether a shape groups a list: where it does not,
what is left is a term that no law reduces, and still the right function.
"""

from __future__ import annotations

from typing import Annotated, Any

from axe_eq.layout.symbolic import terms as t
from axe_eq.layout.symbolic.check import Missing, check
from axe_eq.layout.symbolic.polynomial import Polynomial, parse
from axe_eq.layout.symbolic.shapes import (
    integers,
    perm_text,
    read_perm,
    read_region,
    read_shape,
    region_text,
    shape_text,
)
from axe_eq.rule.law import Sides
from axe_eq.rule.term import INT, STR, Analysis, Term, primitive
from axe_eq_rules import layout_samples as samples
from axe_eq_rules.layout_numbers import (
    NUMBER,
    Axis,
    Begin,
    Count,
    Extent,
    IntExtent,
    IntStride,
    Laws,
    Numbers,
    Perm,
    Place,
    Region,
    Shape,
    Stride,
    on_numbers,
    product_of,
)

Number = Annotated[Any, STR, "stride"]  # a polynomial

LAWS = Laws()


def _count(term: Term, known: Any) -> int | None:
    try:
        found: int | None = check(term).elements.constant
    except Missing:
        return None
    return found


count = Analysis("elements", t.ITERS, INT, _count)
"""How many indices a list of iters has, where that is a number."""


@count.rule
def _count_none() -> tuple[Term, Any]:
    return t.NoIter(), 1


@count.rule
def _count_iter(e: IntExtent, s: IntStride, a: Axis, r: t.IterList) -> tuple[Term, Any]:
    return t.Iter(e, s, a, r), e * count(r)


# -- cutting ---------------------------------------------------------------------------------------


@on_numbers((STR, NUMBER), (STR,))
def divided_first(shape: str, extent: Polynomial) -> str | None:
    """The shape with its first extent divided by a number, if that is exact and not by 1."""
    extents = read_shape(shape)
    rest = extents[0].divided(extent) if extents and extent != 1 else None
    return None if rest is None else shape_text((rest, *extents[1:]))


@on_numbers((STR, NUMBER), (NUMBER, NUMBER, STR))
def first_within(shape: str, extent: Polynomial) -> tuple[Polynomial, Polynomial, str] | None:
    """The first extent, how often it fits in a longer one, and the other extents."""
    extents = read_shape(shape)
    if not extents or extents[0] == 1:
        return None
    times = extent.divided(extents[0])
    if times is None or times == 1:
        return None
    return extents[0], times, shape_text(extents[1:])


@primitive((STR,), (STR,))
def without_unit(shape: str) -> str | None:
    """A shape without its first dim, which is a unit dim."""
    extents = read_shape(shape)
    return shape_text(extents[1:]) if extents and extents[0] == 1 else None


@LAWS.over(source="Axe Algorithm 1, one digit at a time")
def cut_through_iter(n: Numbers, e: Extent, s: Stride, a: Axis, r: t.IterList, S: Shape) -> Sides:
    """((e, s@a) r) | (e*k, S') = (e, s@a) before dim 0 of (r | (k, S'))."""
    rest = divided_first(n, S, e)
    return t.Cut(n.iter(e, s, a, r), S), n.prepend(e, s, a, t.Cut(r, rest))


@LAWS.over(source="Axe Algorithm 1, one digit at a time", sampler=samples.cut_inside)
def cut_inside_iter(n: Numbers, e: Extent, s: Stride, a: Axis, r: t.IterList, S: Shape) -> Sides:
    """((f*k, s@a) r) | (f, S') = (f, k*s@a), (((k, s@a) r) | S')."""
    first, times, rest = first_within(n, S, e)
    slow = n.iter(first, n.times(s, times), a, t.NoIter())
    return t.Cut(n.iter(e, s, a, r), S), t.Block(slow, t.Cut(n.iter(times, s, a, r), rest))


@LAWS.law(source="a dim of one index")
def cut_unit(d: t.IterList, S: Shape) -> Sides:
    """(d | (1, S')) = (), (d | S')."""
    return t.Cut(d, S), t.Block(t.NoIter(), t.Cut(d, without_unit(S)))


@LAWS.law(source="one index in no dims")
def cut_nothing() -> Sides:
    """(() | ()) = (), of no dims."""
    return t.Cut(t.NoIter(), ""), t.NoBlock()


@LAWS.over(source="digits of one dim")
def prepend_iter(n: Numbers, e: Extent, s: Stride, a: Axis, d: t.IterList, g: t.GridTerm) -> Sides:
    """(e, s@a) before dim 0 of (d, g) = ((e, s@a) d), g."""
    return n.prepend(e, s, a, t.Block(d, g)), t.Block(n.iter(e, s, a, d), g)


# -- joining ---------------------------------------------------------------------------------------


@LAWS.law(source="digits in a row")
def join_dims(d: t.IterList, g: t.GridTerm) -> Sides:
    """join(d, g) = d join(g)."""
    return t.Join(t.Block(d, g)), t.Append(d, t.Join(g))


@LAWS.law(source="digits in a row")
def join_no_dims() -> Sides:
    """join() = ()."""
    return t.Join(t.NoBlock()), t.NoIter()


@LAWS.over(source="digits in a row")
def append_iter(n: Numbers, e: Extent, s: Stride, a: Axis, r: t.IterList, d: t.IterList) -> Sides:
    """((e, s@a) r) d = (e, s@a) (r d)."""
    return t.Append(n.iter(e, s, a, r), d), n.iter(e, s, a, t.Append(r, d))


@LAWS.law(source="digits in a row")
def append_nothing(d: t.IterList) -> Sides:
    """() d = d."""
    return t.Append(t.NoIter(), d), d


@LAWS.law(source="Axe F.2: dims alternate")
def zip_dims(a: t.IterList, g: t.GridTerm, b: t.IterList, h: t.GridTerm) -> Sides:
    """(a, g) & (b, h) = a, b, (g & h)."""
    return t.Zip(t.Block(a, g), t.Block(b, h)), t.Block(a, t.Block(b, t.Zip(g, h)))


@LAWS.law(source="Axe F.2: dims alternate")
def zip_no_dims() -> Sides:
    """() & () = (), of no dims."""
    return t.Zip(t.NoBlock(), t.NoBlock()), t.NoBlock()


# -- reordering ------------------------------------------------------------------------------------


@primitive((STR,), (INT, STR))
def place_of_first(perm: str) -> tuple[int, str] | None:
    """Where dim 0 goes, and the permutation of the other dims."""
    order = read_perm(perm)
    if not order:
        return None
    place = order.index(0)
    return place, perm_text(dim - 1 for dim in order if dim)


@LAWS.law(source="permutations are insertions one after another")
def reorder_dims(d: t.IterList, g: t.GridTerm, p: Perm) -> Sides:
    """(d, g)[p] = g[p without 0] with d inserted where p has 0."""
    place, rest = place_of_first(p)
    return t.Reorder(t.Block(d, g), p), t.Insert(d, place, t.Reorder(g, rest))


@LAWS.law(source="permutations are insertions one after another")
def reorder_no_dims() -> Sides:
    """()[] = (), of no dims."""
    return t.Reorder(t.NoBlock(), ""), t.NoBlock()


@LAWS.law(source="permutations are insertions one after another")
def insert_first(d: t.IterList, g: t.GridTerm) -> Sides:
    """(g with d inserted at 0) = d, g."""
    return t.Insert(d, 0, g), t.Block(d, g)


@LAWS.law(source="permutations are insertions one after another")
def insert_later(d: t.IterList, k: Place, c: t.IterList, g: t.GridTerm) -> Sides:
    """(c, g) with d inserted at k = c, (g with d inserted at k-1)   if k > 0."""
    return t.Insert(d, k, t.Block(c, g)), t.Block(c, t.Insert(d, k - 1, g)), k > 0


# -- regions ---------------------------------------------------------------------------------------


@primitive((STR,), (INT, INT, STR))
def first_bounds(region: str) -> tuple[int, int, str] | None:
    """Begin and length of a region in its first dim, and the region of the other dims."""
    bounds = read_region(region)
    first = integers(bounds[0]) if bounds else None
    if first is None:
        return None
    return first[0], first[1] - first[0], region_text(bounds[1:])


@LAWS.law(source="Axe Appendix E: dims are independent")
def region_of_dims(d: t.IterList, g: t.GridTerm, R: Region) -> Sides:
    """(d, g)[b:b+c, R'] = d[b:b+c], g[R']."""
    begin, length, rest = first_bounds(R)
    return t.Region(t.Block(d, g), R), t.Block(t.Window(d, begin, length), t.Region(g, rest))


@LAWS.law(source="Axe Appendix E: dims are independent")
def region_of_no_dims() -> Sides:
    """()[] = (), of no dims."""
    return t.Region(t.NoBlock(), ""), t.NoBlock()


@primitive((STR, STR), (STR, STR, STR))
def first_inside(region: str, extent: str) -> tuple[str, str, str] | None:
    """Begin and length in the first dim, known to be inside, and the region of the other dims."""
    bounds, whole = read_region(region), parse(extent)
    if not bounds:
        return None
    (begin, end), *rest = bounds
    if not (begin.at_least(0) and (end - begin).at_least(1) and (whole - end).at_least(0)):
        return None
    return str(begin), str(end - begin), region_text(rest)


@LAWS.law(source="Axe Appendix E: a window of one digit", sampler=samples.digit_dim)
def region_of_a_digit(e: Number, s: Number, a: Axis, g: t.GridTerm, R: Region) -> Sides:
    """((e, s@a), g)[b:b+c, R'] = (c, s@a), g[R']   if b >= 0, c > 0 and b+c <= e."""
    _, length, rest = first_inside(R, e)
    left = t.Region(t.Block(t.SymIter(e, s, a, t.NoIter()), g), R)
    return left, t.Block(t.SymIter(length, s, a, t.NoIter()), t.Region(g, rest))


@LAWS.law(source="the first element of a region", sampler=samples.placed_digit)
def place_at_a_digit(
    e: Number, s: Number, a: Axis, g: t.GridTerm, R: Region, p: t.CopySet
) -> Sides:
    """((e, s@a), g)(begin of b:b+c, R') + p = b*s@a + g(begin of R') + p   if b:b+c is in e."""
    begin, _, rest = first_inside(R, e)
    left = t.PlaceAt(t.Block(t.SymIter(e, s, a, t.NoIter()), g), R, p)
    return left, t.SymShift(product_of(begin, s), a, t.PlaceAt(g, rest, p))


@primitive((STR, INT, INT), (STR, STR))
def window_inside(extent: str, begin: int, count: int) -> tuple[str, str] | None:
    """Begin and length of a window that is known to be inside, as texts."""
    known = begin >= 0 and count >= 1 and (parse(extent) - (begin + count)).at_least(0)
    return (str(begin), str(count)) if known else None


@LAWS.law(source="Axe Appendix E: a window of one digit", sampler=samples.digit_window)
def window_of_a_digit(e: Number, s: Number, a: Axis, b: Place, c: Place) -> Sides:
    """(e, s@a)[b:b+c] = (c, s@a)   if b >= 0, c > 0 and b+c <= e."""
    _, length = window_inside(e, b, c)
    return t.Window(t.SymIter(e, s, a, t.NoIter()), b, c), t.SymIter(length, s, a, t.NoIter())


@LAWS.law(source="digits of an index", sampler=samples.moved_digit)
def move_by_a_digit(e: Number, s: Number, a: Axis, i: Place, p: t.CopySet) -> Sides:
    """((e, s@a)(i) + p) = i*s@a + p   if 0 <= i < e."""
    index, _ = window_inside(e, i, 1)
    return t.MoveTo(t.SymIter(e, s, a, t.NoIter()), i, p), t.SymShift(product_of(index, s), a, p)


@LAWS.law(source="Axe Appendix E: no digit is cut")
def window_of_digits(
    e: IntExtent, s: IntStride, a: Axis, r: t.IterList, b: Begin, c: Count
) -> Sides:
    """((e, s@a) r)[b:b+c] = (c/n, s@a) r   if n = elements(r) divides b and c."""
    n = count(r)
    whole = t.Iter(c // n, s, a, r)
    return t.Window(t.Iter(e, s, a, r), b, c), whole, b % n == 0, c % n == 0


@LAWS.law(source="Axe Appendix E: the slow digit stays")
def window_inside_digit(
    e: IntExtent, s: IntStride, a: Axis, r: t.IterList, b: Begin, c: Count
) -> Sides:
    """((e, s@a) r)[b:b+c] = r[b%n : b%n + c]   if n = elements(r) and b%n + c <= n."""
    n = count(r)
    return t.Window(t.Iter(e, s, a, r), b, c), t.Window(r, b % n, c), b % n + c <= n


@LAWS.law(source="all of it")
def window_of_all(d: t.IterList, c: Count) -> Sides:
    """(d[0:n]) = d   if n = elements(d)."""
    return t.Window(d, 0, c), d, c == count(d)


@LAWS.law(source="the first element of a region")
def place_at_dims(d: t.IterList, g: t.GridTerm, R: Region, p: t.CopySet) -> Sides:
    """(d, g)(begin of b:e, R') + p = d(b) + g(begin of R') + p."""
    begin, _, rest = first_bounds(R)
    return t.PlaceAt(t.Block(d, g), R, p), t.MoveTo(d, begin, t.PlaceAt(g, rest, p))


@LAWS.law(source="the first element of a region")
def place_at_no_dims(p: t.CopySet) -> Sides:
    """()() + p = p, for no dims."""
    return t.PlaceAt(t.NoBlock(), "", p), p


@LAWS.law(source="digits of an index")
def move_by_digit(
    e: IntExtent, s: IntStride, a: Axis, r: t.IterList, i: Begin, p: t.CopySet
) -> Sides:
    """((e, s@a) r)(i) + p = (i//n)*s@a + r(i%n) + p   if n = elements(r)."""
    n = count(r)
    return t.MoveTo(t.Iter(e, s, a, r), i, p), t.Shift(s * (i // n), a, t.MoveTo(r, i % n, p))


@LAWS.law(source="lists are 0 at index 0")
def move_to_first(d: t.IterList, p: t.CopySet) -> Sides:
    """(d(0) + p) = p."""
    return t.MoveTo(d, 0, p), p
