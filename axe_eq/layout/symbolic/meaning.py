"""What layout terms mean, by enumeration: the definition that laws are tested against.

Nothing here comes from the algebra: a layout is called, everything else is added up element by
element. None stands for what denotes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise, product
from math import prod
from typing import Any

from axe_eq.errors import LayoutError, SearchError
from axe_eq.layout.normal.nested_boxes import check_order
from axe_eq.layout.symbolic import terms as t
from axe_eq.layout.symbolic.polynomial import parse
from axe_eq.layout.symbolic.shapes import (
    integers,
    read_perm,
    read_region,
    read_shape,
    read_spans,
    shape_text,
)
from axe_eq.layout.value.indexing import flatten
from axe_eq.layout.value.layout import Layout
from axe_eq.layout.value.swizzle import Swizzle
from axe_eq.rule.term import Symbol, Term, postorder

Vector = tuple[tuple[str, int], ...]  # (axis, value), sorted, without zeros
Image = frozenset[Vector]
Spans = dict[str, int]
Shape = tuple[int, ...]

MAX_ELEMENTS = 2**14


@dataclass
class Meaning:
    """The meaning of terms where names and unknown layouts have these values.

    Attributes:
        numbers: name -> positive integer.
        layouts: name -> layout that an unknown one stands for.
    """

    numbers: Mapping[str, int] = field(default_factory=dict)
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    _known: dict[Term, Any] = field(default_factory=dict)

    def of(self, term: Term) -> Any:
        """What a term means; None where it, or a part of it, denotes nothing.

        Returns:
            Vectors over the index for `Iters`, ``(shape, vectors)`` for `Grid`, a set of vectors
            for `Copies`, sets over the index for `Layout`, axis -> span for `Spans`.

        Raises:
            SearchError: over 2**14 elements or copies.
        """
        for sub in postorder(term, self._known):
            self._known[sub] = self._one(sub)
        return self._known[term]

    def _one(self, term: Term) -> Any:
        args = []
        for arg, sort in zip(term.args, term.symbol.args, strict=True):
            value = arg if sort.primitive else self._known[arg]
            if value is None:
                return None
            args.append(value)
        try:
            return _RULES[term.symbol](self, *args)
        except LayoutError:
            return None

    # -- numbers ----------------------------------------------------------------------------------

    def number(self, text: str) -> int:
        """The value of a number's text."""
        return parse(text).at(self.numbers)

    def positive(self, text: str) -> int:
        """The value of an extent's text."""
        return _positive(self.number(text))

    def shape(self, text: str) -> Shape:
        """The extents of a shape's text."""
        fixed = integers(read_shape(text))
        given = fixed or (extent.at(self.numbers) for extent in read_shape(text))
        return tuple(map(_positive, given))

    def region(self, text: str) -> tuple[tuple[int, int], ...]:
        """The bounds of a region's text."""
        bounds = read_region(text)
        return tuple((b.at(self.numbers), e.at(self.numbers)) for b, e in bounds)

    def spans(self, text: str) -> Spans:
        """Axis -> span of a text of spans, without spans of 1."""
        return {a: s for a, p in read_spans(text).items() if (s := p.at(self.numbers)) != 1}


def _positive(extent: int) -> int:
    if extent < 1:
        raise LayoutError("extent", str(extent), "at least 1")
    return extent


def _small(count: int) -> int:
    if count > MAX_ELEMENTS:
        raise SearchError("meaning", f"{count} elements", f"at most {MAX_ELEMENTS}")
    return count


# -- vectors ---------------------------------------------------------------------------------------


def _vector(values: Mapping[str, int]) -> Vector:
    return tuple(sorted((axis, value) for axis, value in values.items() if value))


def _plus(a: Vector, b: Vector, sign: int = 1) -> Vector:
    total = dict(a)
    for axis, value in b:
        total[axis] = total.get(axis, 0) + sign * value
    return _vector(total)


def scaled(vector: Vector, spans: Spans) -> Vector:
    """A vector times a span per axis."""
    return tuple((axis, value * spans.get(axis, 1)) for axis, value in vector)


def sums(a: Iterable[Vector], b: Iterable[Vector]) -> Image:
    """All sums of a vector of one set and one of the other."""
    return frozenset(_plus(x, y) for x in a for y in b)


# -- lists, grids, sets ----------------------------------------------------------------------------


def _iter(m: Meaning, extent: int, stride: int, axis: str, rest: Sequence[Vector]) -> Any:
    _small(_positive(extent) * len(rest))
    steps = [_vector({axis: digit * stride}) for digit in range(extent)]
    return tuple(_plus(step, point) for step in steps for point in rest)


def _copy(m: Meaning, extent: int, stride: int, axis: str, rest: Image) -> Any:
    _small(_positive(extent) * len(rest))
    return sums([_vector({axis: digit * stride}) for digit in range(extent)], rest)


def _append(m: Meaning, slow: Sequence[Vector], fast: Sequence[Vector]) -> Any:
    _small(len(slow) * len(fast))
    return tuple(_plus(x, y) for x in slow for y in fast)


def _window(m: Meaning, whole: Sequence[Vector], begin: int, count: int) -> Any:
    if not 0 <= begin < begin + count <= len(whole):
        return None
    return tuple(_plus(point, whole[begin], -1) for point in whole[begin : begin + count])


def _cut(m: Meaning, whole: Sequence[Vector], text: str) -> Any:
    shape = m.shape(text)
    return (shape, whole) if prod(shape) == len(whole) else None


def _prepend(m: Meaning, extent: int, stride: int, axis: str, grid: Any) -> Any:
    shape, points = grid
    if not shape:
        return None
    return (extent * shape[0], *shape[1:]), _iter(m, extent, stride, axis, points)


def _block(m: Meaning, dim: Sequence[Vector], grid: Any) -> Any:
    return (len(dim), *grid[0]), _append(m, dim, grid[1])


def _insert(m: Meaning, dim: Sequence[Vector], place: int, grid: Any) -> Any:
    rank = len(grid[0])
    if not 0 <= place <= rank:
        return None
    order = [*range(1, place + 1), 0, *range(place + 1, rank + 1)]
    return _reorder(m, _block(m, dim, grid), ",".join(map(str, order)))


def _reorder(m: Meaning, grid: Any, text: str) -> Any:
    shape, points = grid
    perm = read_perm(text)
    if len(perm) != len(shape):
        return None
    return tuple(shape[d] for d in perm), _permuted(points, shape, perm)


def _permuted(items: Sequence[Any], shape: Shape, perm: Sequence[int]) -> tuple[Any, ...]:
    """The items of a shape, whose dims are put in another order."""
    found = []
    for index in product(*(range(shape[dim]) for dim in perm)):
        old = [0] * len(shape)
        for place, dim in enumerate(perm):
            old[dim] = index[place]
        found.append(items[flatten(old, shape)])
    return tuple(found)


def _zip(m: Meaning, left: Any, right: Any) -> Any:
    (shape, points), (other, more) = left, right
    if len(shape) != len(other):
        return None
    _small(len(points) * len(more))
    both = tuple(extent for pair in zip(shape, other, strict=True) for extent in pair)
    return both, tuple(_plus(points[x], more[y]) for x, y in factor_pairs(shape, other))


def _chosen(shape: Shape, bounds: Sequence[tuple[int, int]]) -> list[int] | None:
    """The flat indices of a region, or None where it is out of range."""
    if len(shape) != len(bounds):
        return None
    if any(not 0 <= b < e <= extent for (b, e), extent in zip(bounds, shape, strict=True)):
        return None
    return [flatten(index, shape) for index in product(*(range(b, e) for b, e in bounds))]


def _region(m: Meaning, grid: Any, text: str) -> Any:
    shape, points = grid
    bounds = m.region(text)
    chosen = _chosen(shape, bounds)
    if chosen is None:
        return None
    first = points[chosen[0]]
    return tuple(e - b for b, e in bounds), tuple(_plus(points[i], first, -1) for i in chosen)


def _move(m: Meaning, whole: Sequence[Vector], index: int, copies: Image) -> Any:
    return sums(copies, [whole[index]]) if 0 <= index < len(whole) else None


def _place(m: Meaning, grid: Any, text: str, copies: Image) -> Any:
    shape, points = grid
    chosen = _chosen(shape, m.region(text))
    return None if chosen is None else sums(copies, [points[chosen[0]]])


# -- layouts ---------------------------------------------------------------------------------------


def _map(m: Meaning, points: Sequence[Vector], copies: Image) -> Any:
    _small(len(points) * len(copies))
    return tuple(sums([point], copies) for point in points)


def _swizzled(m: Meaning, axis: str, bits: int, base: int, shift: int, of: Any) -> Any:
    if bits < 0 or base < 0 or (bits and shift == 0):
        return None
    sw = Swizzle(axis, bits, base, shift)

    def turned(vector: Vector) -> Vector:
        values = dict(vector)
        return _vector({**values, axis: sw.apply(values.get(axis, 0))})

    return tuple(frozenset(map(turned, image)) for image in of)


def _boxed(m: Meaning, box: tuple[Sequence[tuple[int, int]], str], of: Any) -> Any:
    dims, text = box
    logical, padded = [n for n, _ in dims], [n for _, n in dims]
    if prod(padded) != len(of) or any(not 1 <= n <= whole for n, whole in dims):
        return None
    order = check_order(text, len(dims)) if text else range(len(dims))
    incoming = [logical[list(order).index(dim)] for dim in range(len(dims))]
    places = product(*map(range, incoming))
    return tuple(of[flatten([place[dim] for dim in order], padded)] for place in places)


def _any(m: Meaning, name: str, elements: str, bound: str) -> Any:
    layout = m.layouts[name]
    size = _small(m.positive(elements))
    if layout.size != size:
        return None
    images = tuple(layout(index) for index in range(size))
    top = m.number(bound) if bound else None
    if top is not None and not all(0 <= _index(p) < top for image in images for p in image):
        return None
    return images


def _index(point: Vector) -> int:
    """A coordinate as an index: the value on m, or -1 where it lies on another axis too."""
    return dict(point).get("m", 0) if all(axis == "m" for axis, _ in point) else -1


def permuted_elements(m: Meaning, of: Any, shape: str, perm: str) -> Any:
    """What stands at every index after a reordering of dims; None where the shape does not fit."""
    extents, order = m.shape(shape), read_perm(perm)
    fits = prod(extents) == len(of) and len(order) == len(extents)
    return _permuted(of, extents, order) if fits else None


def chosen_elements(m: Meaning, of: Any, shape: str, region: str) -> Any:
    """What stands at the indices of a region; None where it does not fit."""
    extents = m.shape(shape)
    if prod(extents) != len(of):
        return None
    chosen = _chosen(extents, m.region(region))
    return None if chosen is None else tuple(of[index] for index in chosen)


def factor_pairs(outer: Shape, inner: Shape) -> Iterable[tuple[int, int]]:
    """Indices of the two factors, for every element of their tile."""
    both = [extent for pair in zip(outer, inner, strict=True) for extent in pair]
    for index in product(*map(range, both)):
        yield flatten(index[::2], outer), flatten(index[1::2], inner)


def _sum(m: Meaning, a: Any, shape: str, b: Any, other: str) -> Any:
    outer, inner = m.shape(shape), m.shape(other)
    if (prod(outer), prod(inner), len(outer)) != (len(a), len(b), len(inner)):
        return None
    _small(len(a) * len(b) * len(a[0]) * len(b[0]))
    return tuple(sums(a[x], b[y]) for x, y in factor_pairs(outer, inner))


def spans_of(images: Sequence[Image]) -> Spans:
    """Axis -> greatest minus least coordinate plus 1, without spans of 1."""
    points = [dict(point) for image in images for point in image]
    spans = {}
    for axis in sorted({axis for point in points for axis in point}):
        values = [point.get(axis, 0) for point in points]
        if max(values) > min(values):
            spans[axis] = max(values) - min(values) + 1
    return spans


def _scale(m: Meaning, of: Any, spans: Spans) -> Any:
    return tuple(frozenset(scaled(point, spans) for point in image) for image in of)


def _tile(m: Meaning, a: Any, shape: str, b: Any, other: str) -> Any:
    return _sum(m, _scale(m, a, spans_of(b)), shape, b, other)


def _ratio(m: Meaning, whole: str, part: str) -> Shape | None:
    one, two = m.shape(whole), m.shape(part)
    if len(one) != len(two) or any(n % k for n, k in zip(one, two, strict=True)):
        return None
    return tuple(n // k for n, k in zip(one, two, strict=True))


def _tile_of(m: Meaning, a: Any, shape: str, b: Any, other: str) -> Any:
    """The factor is unique: scaled coordinates are a span apart, and those of b lie in one span."""
    ratio = _ratio(m, shape, other)
    if ratio is None or prod(m.shape(shape)) != len(a) or prod(m.shape(other)) != len(b):
        return None
    spans = spans_of(b)
    low = {axis: min(dict(p).get(axis, 0) for image in b for p in image) for axis in spans}
    rest = {axis: value for axis, value in next(iter(b[0]))} if b[0] else {}

    def outer(point: Vector) -> Vector:
        values = dict(point)
        for axis, value in rest.items():
            if axis not in spans:
                values[axis] = values.get(axis, 0) - value
        for axis, span in spans.items():
            values[axis] = (values.get(axis, 0) - low[axis]) // span
        return _vector(values)

    found: list[Image | None] = [None] * prod(ratio)
    for (x, y), image in zip(factor_pairs(ratio, m.shape(other)), a, strict=True):
        if y == 0:
            found[x] = frozenset(map(outer, image))
    return tuple(found) if _tile(m, found, shape_text(ratio), b, other) == a else None


def _addend(m: Meaning, a: Any, shape: str, b: Any, other: str, *, left: bool) -> Any:
    """The addend where `b` has one copy: then it is unique; else what the algebra chooses."""
    ratio = _ratio(m, shape, other)
    if ratio is None or prod(m.shape(shape)) != len(a) or prod(m.shape(other)) != len(b):
        return None
    if len(b[0]) > 1:
        return _chosen_addend(m, a, shape, b, other, left=left)
    (first,) = b[0]
    pairs = (
        factor_pairs(ratio, m.shape(other))
        if left
        else ((y, x) for x, y in factor_pairs(m.shape(other), ratio))
    )
    found: list[Image | None] = [None] * prod(ratio)
    for (x, y), image in zip(pairs, a, strict=True):
        if y == 0:
            found[x] = frozenset(_plus(point, first, -1) for point in image)
    sides = (found, shape_text(ratio), b, other) if left else (b, other, found, shape_text(ratio))
    return tuple(found) if _sum(m, *sides) == a else None


def _chosen_addend(m: Meaning, a: Any, shape: str, b: Any, other: str, *, left: bool) -> Any:
    from axe_eq.layout.algebra.products import direct_sum_left, direct_sum_right

    choose = direct_sum_left if left else direct_sum_right
    found = choose(_recovered(a), m.shape(shape), _recovered(b), m.shape(other))
    return tuple(found(index) for index in range(found.size))


def _recovered(images: Sequence[Image]) -> Layout:
    """The canonical layout of a map.

    Raises:
        LayoutError: none computes it.
    """
    from axe_eq.layout.normal.tables import recover

    axes = sorted({axis for image in images for point in image for axis, _ in point}) or ["m"]
    table = [[[dict(p).get(axis, 0) for axis in axes] for p in sorted(image)] for image in images]
    if len({len(copies) for copies in table}) > 1:
        raise LayoutError("map", "has elements with different numbers of copies", "as many each")
    return recover(table, axes)


def _compose(m: Meaning, a: Any, b: Any) -> Any:
    axes = {axis for image in b for point in image for axis, _ in point}
    if len(axes) > 1:
        return None
    found = []
    for image in b:
        indices = [point[0][1] if point else 0 for point in image]
        if any(not 0 <= index < len(a) for index in indices):
            return None
        found.append(frozenset().union(*(a[index] for index in indices)))
    return tuple(found)


def _inverse(m: Meaning, of: Any, axes: str) -> Any:
    names = axes.split(",")
    back: dict[tuple[int, ...], int] = {}
    for index, image in enumerate(of):
        if len(image) != 1:
            return None
        (point,) = image
        values = dict(point)
        key = tuple(values.pop(axis, 0) for axis in names)
        if values or key in back:
            return None
        back[key] = index
    shape = tuple(max(key[d] for key in back) + 1 for d in range(len(names)))
    if prod(shape) != len(back) or any(min(key) < 0 for key in back):
        return None
    found = (back[key] for key in product(*map(range, shape)))
    return tuple(frozenset([_vector({names[0]: index})]) for index in found)


def _refined(m: Meaning, one: str, two: str) -> Any:
    shapes = m.shape(one), m.shape(two)
    if prod(shapes[0]) != prod(shapes[1]):
        return None
    cuts = sorted({prod(shape[place:]) for shape in shapes for place in range(len(shape) + 1)})
    if any(b % a for a, b in pairwise(cuts)):
        return None
    return tuple(b // a for a, b in pairwise(cuts))[::-1]


def _aliasing(m: Meaning, of: Any) -> Any:
    for y, image in enumerate(of):
        for x in range(y):
            if of[x] & image:
                return x, y
    return ()


def _span_sum(m: Meaning, a: Spans, b: Spans) -> Spans:
    return {axis: a.get(axis, 1) + b.get(axis, 1) - 1 for axis in sorted({*a, *b})}


def _span_product(m: Meaning, a: Spans, b: Spans) -> Spans:
    return {axis: a.get(axis, 1) * b.get(axis, 1) for axis in sorted({*a, *b})}


def _spans_literal(m: Meaning, text: str) -> Spans | None:
    spans = m.spans(text)
    return None if any(span < 1 for span in spans.values()) else spans


_RULES: dict[Symbol, Callable[..., Any]] = {
    t.NoIter: lambda m: ((),),
    t.Iter: _iter,
    t.SymIter: lambda m, e, s, a, r: _iter(m, m.positive(e), m.number(s), a, r),
    t.Append: _append,
    t.Join: lambda m, grid: grid[1],
    t.Window: _window,
    t.ScaleIters: lambda m, d, w: tuple(scaled(point, m.spans(w)) for point in d),
    t.NoBlock: lambda m: ((), ((),)),
    t.Block: _block,
    t.Cut: _cut,
    t.Prepend: _prepend,
    t.SymPrepend: lambda m, e, s, a, g: _prepend(m, m.positive(e), m.number(s), a, g),
    t.Insert: _insert,
    t.Reorder: _reorder,
    t.Zip: _zip,
    t.Region: _region,
    t.Here: lambda m: frozenset([()]),
    t.Copy: _copy,
    t.SymCopy: lambda m, e, s, a, r: _copy(m, m.positive(e), m.number(s), a, r),
    t.Shift: lambda m, v, a, r: sums([_vector({a: v})], r),
    t.SymShift: lambda m, v, a, r: sums([_vector({a: m.number(v)})], r),
    t.Sum: lambda m, p, q: sums(p, q),
    t.ScaleCopies: lambda m, p, w: frozenset(scaled(point, m.spans(w)) for point in p),
    t.MoveTo: _move,
    t.PlaceAt: _place,
    t.Map: _map,
    t.Swizzled: _swizzled,
    t.BoxEnd: lambda m: ((), ""),
    t.BoxOrder: lambda m, order: ((), order),
    t.BoxDim: lambda m, logical, padded, rest: (((logical, padded), *rest[0]), rest[1]),
    t.Boxed: _boxed,
    t.AnyLayout: _any,
    t.Group: lambda m, of, shape: of if prod(m.shape(shape)) == len(of) else None,
    t.Permute: permuted_elements,
    t.Slice: chosen_elements,
    t.Tile: _tile,
    t.DirectSum: _sum,
    t.TileOf: _tile_of,
    t.LeftAddend: partial(_addend, left=True),
    t.RightAddend: partial(_addend, left=False),
    t.Compose: _compose,
    t.Inverse: _inverse,
    t.Scale: _scale,
    t.Spans: _spans_literal,
    t.SpanOf: lambda m, of: spans_of(of),
    t.Footprint: lambda m, box, of: spans_of(of),
    t.SpanOfIters: lambda m, d: spans_of([frozenset(d)]),
    t.SpanOfCopies: lambda m, p: spans_of([p]),
    t.SpanSum: _span_sum,
    t.SpanProduct: _span_product,
    t.ShapeIs: lambda m, text: m.shape(text),
    t.CommonRefinement: _refined,
    t.Aliasing: _aliasing,
    t.Injective: lambda m: (),
    t.Clashing: lambda m, x, y: (x, y),
}
