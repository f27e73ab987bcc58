"""Samples for the laws of operations on layouts: layouts, shapes, regions and permutations."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from axe_eq.errors import LayoutError
from axe_eq.layout import Layout, Swizzle, recover
from axe_eq.layout.symbolic import terms as t
from axe_eq.layout.symbolic.check import check
from axe_eq.layout.symbolic.instances import layout_of
from axe_eq.layout.symbolic.meaning import Meaning
from axe_eq.layout.symbolic.polynomial import parse, poly
from axe_eq.layout.symbolic.shapes import perm_text, region_text, shape_text
from axe_eq.program.decisions import Draw
from axe_eq.rule.term import Ground, Symbol, Term
from axe_eq_rules.layout_samples import (
    Values,
    axis,
    bounds,
    copy_set,
    indices,
    items,
    layout,
    split_size,
    weights,
)

# -- layouts and shapes ----------------------------------------------------------------------------


def shape(draw: Draw, at: str, rank: int) -> list[Any]:
    """A small shape; some extents are names."""
    options = (1, 2, 2, "n", "k") if draw.chance(f"{at}.symbolic", 0.3) else (1, 2, 2, 3)
    return [parse(str(draw.pick(f"{at}.{n}", options))) for n in range(rank)]


def _rank(draw: Draw) -> int:
    return draw.integer("rank", 1, 2)


def _whole(extents: Sequence[Any]) -> Any:
    return prod(extents, start=poly(1))


def factor(draw: Draw, at: str, rank: int) -> tuple[Term, list[Any]]:
    """A layout and a shape of it."""
    extents = shape(draw, f"{at}.S", rank)
    return layout(draw, at, _whole(extents)), extents


def factors(count: int, *, whole: bool = False) -> Callable[[Draw], Values]:
    """A sampler of so many layouts, each with a shape of one rank.

    With `whole` the shape of the first two together comes last.
    """

    def sample(draw: Draw) -> Values:
        rank = _rank(draw)
        found = [factor(draw, f"x{n}", rank) for n in range(count)]
        values: list[Ground] = [v for term, s in found for v in (term, shape_text(s))]
        if whole:
            values.append(times([found[0][1], found[1][1]]))
        return tuple(values)

    return sample


def factor_and_ones(draw: Draw) -> Values:
    """A layout, a shape of it, and the shape of that rank that has one element."""
    rank = _rank(draw)
    term, extents = factor(draw, "x", rank)
    return term, shape_text(extents), shape_text([1] * rank)


def factors_in_other_dims(draw: Draw) -> Values:
    """Two layouts with shapes of one rank, the one 1 where the other is not."""
    one, s = factor(draw, "x", 1)
    two, u = factor(draw, "y", 1)
    shapes = [*s, 1], [1, *u]
    if draw.integer("order", 0, 1):
        shapes = shapes[0][::-1], shapes[1][::-1]
    return one, shape_text(shapes[0]), two, shape_text(shapes[1])


def times(shapes: Sequence[Sequence[Any]]) -> str:
    """The shape whose extents are the products of those of some shapes."""
    return shape_text([_whole(extents) for extents in zip(*shapes, strict=True)])


def one_with_shape(draw: Draw) -> Values:
    """A layout and a shape of it."""
    term, extents = factor(draw, "x", draw.integer("rank", 0, 3))
    return term, shape_text(extents)


def _perm(draw: Draw, at: str, rank: int) -> list[int]:
    return draw.shuffled(at, list(range(rank)))


def permuted(count: int) -> Callable[[Draw], Values]:
    """A sampler of a layout, a shape of it and so many permutations, one after another."""

    def sample(draw: Draw) -> Values:
        rank = draw.integer("rank", 1, 3)
        term, extents = factor(draw, "x", rank)
        values: list[Ground] = [term, shape_text(extents)]
        for n in range(count):
            perm = _perm(draw, f"p{n}", rank)
            values.append(perm_text(perm))
            extents = [extents[dim] for dim in perm]
        return tuple(values)

    return sample


def permuted_factors(draw: Draw) -> Values:
    """Two layouts with shapes of one rank, and a permutation of their dims."""
    rank = draw.integer("rank", 1, 3)
    (a, s), (b, u) = (factor(draw, name, rank) for name in "ab")
    return a, shape_text(s), b, shape_text(u), perm_text(_perm(draw, "p", rank))


def _fixed(draw: Draw, at: str, rank: int) -> tuple[Term, list[int]]:
    extents = [draw.pick(f"{at}.{n}", (1, 2, 3, 4)) for n in range(rank)]
    return layout(draw, at, prod(extents)), extents


def sliced(draw: Draw) -> Values:
    """A layout, a shape of it and a region."""
    term, extents = _fixed(draw, "x", _rank(draw))
    return term, shape_text(extents), bounds(draw, "R", extents)


def sliced_twice(draw: Draw) -> Values:
    """A layout, a shape of it, a region, and a region of that."""
    term, extents = _fixed(draw, "x", _rank(draw))
    first = bounds(draw, "R", extents)
    inner = [int(end) - int(begin) for begin, end in _pairs(first)]
    return term, shape_text(extents), first, bounds(draw, "T", inner)


def _pairs(text: str) -> list[tuple[int, int]]:
    return [(int(b), int(e)) for b, e in (part.split(":") for part in text.split(",") if part)]


def sliced_factors(draw: Draw) -> Values:
    """Two layouts with shapes, and a region of the first one's."""
    rank = _rank(draw)
    a, s = _fixed(draw, "a", rank)
    b, u = _fixed(draw, "b", rank)
    return a, shape_text(s), b, shape_text(u), bounds(draw, "R", s)


def sliced_permutation(draw: Draw) -> Values:
    """A layout, a shape of it, a permutation of its dims, and a region of what that gives."""
    rank = draw.integer("rank", 1, 3)
    term, extents = _fixed(draw, "x", rank)
    perm = _perm(draw, "p", rank)
    return term, shape_text(extents), perm_text(perm), bounds(draw, "R", [extents[d] for d in perm])


def composed(draw: Draw) -> Values:
    """A layout and two layouts of indices, each below the size of the one before."""
    sizes = [draw.pick(f"size{n}", (1, 2, 4, 6, 8)) for n in range(3)]
    inner = [indices(draw, "bc"[n], sizes[n + 1], sizes[n]) for n in range(2)]
    return layout(draw, "a", sizes[0]), *inner


def composed_pair(draw: Draw) -> Values:
    """A layout and a layout of indices of it."""
    values = composed(draw)
    return None if values is None else values[:2]


def swizzle(draw: Draw) -> tuple[str, int, int, int]:
    """Axis, bits, base and shift."""
    bits = draw.integer("bits", 0, 2)
    sign = draw.pick("sign", (1, -1))
    return "m", bits, draw.integer("base", 0, 1), sign * draw.integer("shift", 1, 3)


def swizzled(*samplers: Callable[[Draw], Values]) -> Callable[[Draw], Values]:
    """A sampler of a swizzle before the values of another."""

    def sample(draw: Draw) -> Values:
        values = samplers[0](draw) if samplers else (layout(draw, "x"),)
        return None if values is None else (*swizzle(draw), *values)

    return sample


def spans_and(sampler: Callable[[Draw], Values], place: int) -> Callable[[Draw], Values]:
    """A sampler of the values of another with spans put in at a place."""

    def sample(draw: Draw) -> Values:
        values = sampler(draw)
        if values is None:
            return None
        return *values[:place], t.Spans(weights(draw, "w", True)), *values[place:]

    return sample


def permuted_map(draw: Draw) -> Values:
    """The parts of a map, a shape of it and a permutation of its dims."""
    d, p, s = _map_parts(draw, "x", rank := draw.integer("rank", 1, 3))
    return d, p, s, perm_text(_perm(draw, "o", rank))


def sliced_map(draw: Draw) -> Values:
    """The parts of a map, a shape of it and a region."""
    d, p, s = _map_parts(draw, "x", _rank(draw))
    return d, p, s, bounds(draw, "R", [int(extent) for extent in s.split(",")])


def two_maps(draw: Draw) -> Values:
    """The parts of two maps with shapes of one rank."""
    rank = _rank(draw)
    return *_map_parts(draw, "x", rank), *_map_parts(draw, "y", rank)


def _map_parts(draw: Draw, at: str, rank: int) -> tuple[Term, Term, str]:
    chosen = items(draw, f"{at}.d", False)
    extents = [1] * rank
    for n, (size, _, _) in enumerate(chosen):
        extents[min(rank - 1, draw.integer(f"{at}.to{n}", 0, rank - 1))] *= size
    return t.chain(t.Iter, t.NoIter(), chosen), copy_set(draw, f"{at}.p"), shape_text(extents)


def permuted_in_order(draw: Draw) -> Values:
    """A layout, a shape of it with unit dims, and a permutation that moves these alone."""
    rank = draw.integer("rank", 0, 3)
    term, extents = factor(draw, "x", rank)
    order = list(range(rank))
    if draw.chance("unit", 0.7):
        place, to = draw.integer("place", 0, rank), draw.integer("to", 0, rank)
        extents.insert(place, parse("1"))
        order = [dim + (dim >= place) for dim in order]
        order.insert(to, place)
    return term, shape_text(extents), perm_text(order)


def sliced_run(draw: Draw) -> Values:
    """A layout, a shape of it, and one index of the slow dims, some of the next, all the others."""
    rank = draw.integer("rank", 2, 3)
    term, extents = factor(draw, "x", rank)
    some = draw.integer("some", 0, rank - 1)
    first = (parse("0"), parse("1"))
    region = [first if dim < some else (parse("0"), n) for dim, n in enumerate(extents)]
    constant = extents[some].constant
    if constant is not None:
        region[some] = _pairs_of(bounds(draw, "R", [constant]))
    return term, shape_text(extents), region_text(region)


def _pairs_of(text: str) -> tuple[Any, Any]:
    begin, _, end = text.partition(":")
    return parse(begin), parse(end)


def sliced_whole(draw: Draw) -> Values:
    """A layout, a shape of it and all of that as a region."""
    term, extents = factor(draw, "x", draw.integer("rank", 0, 2))
    return term, shape_text(extents), region_text((0, n) for n in extents)


def sliced_tiles(draw: Draw) -> Values:
    """Two layouts with shapes, and a region of whole tiles."""
    values = sliced_factors(draw)
    if values is None:
        return None
    a, s, b, u, region = values
    inner = [int(n) for n in str(u).split(",")]
    tiles = [(x * n, y * n) for (x, y), n in zip(_pairs(str(region)), inner, strict=True)]
    return a, s, b, u, region_text(tiles)


def boxed(draw: Draw) -> Values:
    """A box and a layout of its padded size."""
    term, extents = _fixed(draw, "x", _rank(draw))
    dims = [(draw.integer(f"n{n}", 1, whole), whole) for n, whole in enumerate(extents)]
    turned = len(dims) > 1 and draw.chance("turned", 0.3)
    end = t.BoxOrder(perm_text(_perm(draw, "order", len(dims)))) if turned else t.BoxEnd()
    return t.chain(t.BoxDim, end, dims), term


def swizzled_box(draw: Draw) -> Values:
    """A swizzle, a box, and a layout of its padded size."""
    return swizzled(boxed)(draw)


def swizzled_by_nothing(draw: Draw) -> Values:
    """A swizzle of no bits and a layout."""
    name, _, base, shift = swizzle(draw)
    return name, base, shift, layout(draw, "x")


def composed_permutation(draw: Draw) -> Values:
    """A layout, a layout of indices of it, a shape of that, and a permutation of its dims."""
    x, y, extents = _composed(draw)
    return x, y, shape_text(extents), perm_text(_perm(draw, "p", len(extents)))


def composed_region(draw: Draw) -> Values:
    """A layout, a layout of indices of it, a shape of that, and a region."""
    x, y, extents = _composed(draw)
    return x, y, shape_text(extents), bounds(draw, "R", extents)


def _composed(draw: Draw) -> tuple[Term, Term, list[int]]:
    size = draw.pick("size", (2, 4, 6))
    extents = [draw.pick(f"e{n}", (1, 2, 3)) for n in range(_rank(draw))]
    return layout(draw, "x", size), indices(draw, "y", prod(extents), size), extents


def single_factor(draw: Draw) -> Values:
    """Two layouts with shapes of one rank, the second with one copy."""
    rank = _rank(draw)
    a, s = factor(draw, "x", rank)
    d, _, u = _map_parts(draw, "y", rank)
    shift = draw.integer("o", -2, 3)
    return a, shape_text(s), t.Map(d, t.Shift(shift, axis(draw, "oa"), t.Here())), u


# -- layouts written out ---------------------------------------------------------------------------


def _written(draw: Draw, at: str, elements: int | None = None) -> Term:
    size = draw.pick(f"{at}.size", (1, 2, 3, 4, 6, 8, 12)) if elements is None else elements
    found = layout_of(random.Random(draw.integer(f"{at}.seed", 0, 2**32)), size)
    if draw.chance(f"{at}.boxed", 0.15):
        inside = draw.integer(f"{at}.box", 1, size)
        boxes: tuple[Any, ...] = ((inside,),)
        if size % 2 == 0 and draw.chance(f"{at}.nested", 0.3):  # two rows, short at both ends
            row = draw.integer(f"{at}.row", 1, size // 2)
            inner = (2, row), (2, size // 2), draw.pick(f"{at}.order", ((0, 1), (1, 0)))
            inner = inner if inner[2] == (0, 1) else ((row, 2), (size // 2, 2), (1, 0))
            boxes = (draw.integer(f"{at}.first", 1, 2 * row),), (2 * row,), (inner,)
        found = Layout(found.shard, found.replica, found.offset, found.swizzle, *boxes)
    return t.encode(found)


def _elements(term: Term) -> int:
    return t.decode(term).size


def written(draw: Draw) -> Values:
    """A layout written out."""
    return (_written(draw, "x"),)


def _cut_up(draw: Draw, at: str, size: int) -> list[int]:
    """A shape of so many elements."""
    return [poly(part).constant or 1 for part in split_size(draw, at, poly(size))]


def written_permutation(draw: Draw) -> Values:
    """A permutation of a layout written out."""
    x = _written(draw, "x")
    extents = _cut_up(draw, "S", _elements(x))
    perm = _perm(draw, "p", len(extents))
    return (t.Permute(x, shape_text(extents), perm_text(perm)),)


def written_slice(draw: Draw) -> Values:
    """A slice of a layout written out."""
    x = _written(draw, "x")
    extents = _cut_up(draw, "S", _elements(x))
    return (t.Slice(x, shape_text(extents), bounds(draw, "R", extents)),)


def written_pair(symbol: Symbol) -> Callable[[Draw], Values]:
    """A sampler of an operation on two layouts written out."""

    def sample(draw: Draw) -> Values:
        return (symbol(*_two(draw)),)

    return sample


def _two(draw: Draw) -> tuple[Term, str, Term, str]:
    rank = _rank(draw)
    found: list[Any] = []
    for at in "ab":
        extents = [draw.pick(f"{at}.{n}", (1, 2, 3)) for n in range(rank)]
        found += [_written(draw, at, prod(extents)), shape_text(extents)]
    if any(_elements(found[n]) != prod(map(int, found[n + 1].split(","))) for n in (0, 2)):
        return _two(draw)  # a box has made one smaller
    return found[0], found[1], found[2], found[3]


def written_factor(make: Symbol, ask: Symbol) -> Callable[[Draw], Values]:
    """A sampler of a question for a factor of what another operation makes."""

    def sample(draw: Draw) -> Values:
        a, s, b, u = _two(draw)
        left = ask is not t.RightAddend
        sides = (a, s, b, u) if left else (b, u, a, s)
        images = Meaning().of(make(*sides))
        whole = _recovered(images)
        if whole is None:
            return None
        shapes = ([parse(n) for n in text.split(",")] for text in (s, u))
        return (ask(whole, times(list(shapes)), b, u),)

    return sample


def _recovered(images: Any) -> Term | None:
    axes = sorted({axis for image in images for point in image for axis, _ in point}) or ["m"]
    table = [[[dict(p).get(axis, 0) for axis in axes] for p in sorted(image)] for image in images]
    try:
        return t.encode(recover(table, axes))
    except (LayoutError, ValueError):
        return None


def written_composition(draw: Draw) -> Values:
    """A composition of layouts written out."""
    size = draw.pick("size", (2, 4, 6, 8))
    rng = random.Random(draw.integer("seed", 0, 2**32))
    x = t.encode(layout_of(rng, size))
    return (t.Compose(x, t.encode(layout_of(rng, draw.pick("n", (1, 2, 4, 6)), size))),)


def composed_with_indices(draw: Draw) -> Values:
    """A layout composed with the indices of its elements."""
    size = draw.pick("size", (1, 2, 4, 6))
    return (t.Compose(layout(draw, "x", size), t.encode(Layout([(size, 1, axis(draw, "a"))]))),)


def symbolic_inverse(draw: Draw) -> Values:
    """The inverse of a list with names that is one to one, or nearly."""
    extents = draw.shuffled("order", ["n", "2", "k", "3"][: draw.integer("count", 1, 4)])
    stride, items = {"m": poly(1), "n": poly(1)}, []
    for place, extent in enumerate(extents):
        on = draw.pick(f"a{place}", ("m", "m", "n"))
        items.append((extent, str(stride[on]), on))
        stride[on] *= poly(extent) + (1 if draw.integer(f"gap{place}", 0, 9) == 0 else 0)
    items = draw.shuffled("places", items)
    layout = t.Map(t.chain(t.SymIter, t.NoIter(), items), t.Here())
    return (t.Inverse(layout, draw.pick("axes", ("m,n", "n,m"))),)


def only_zero(draw: Draw) -> Values:
    """An unknown layout whose coordinates are below a small number."""
    elements = draw.pick("n", ("1", "4", "6", "n", "2*n"))
    return (t.AnyLayout("A", elements, draw.pick("bound", ("1", "1", "1", "2"))),)


def composed_into_indices(draw: Draw) -> Values:
    """Indices in order composed with a layout that has such."""
    size = draw.pick("size", (1, 2, 4, 6))
    rng = random.Random(draw.integer("seed", 0, 2**32))
    inner = t.encode(layout_of(rng, draw.pick("n", (1, 2, 4, 6)), size))
    return (t.Compose(t.encode(Layout([(size, 1, axis(draw, "a"))])), inner),)


def written_inverse(draw: Draw) -> Values:
    """The inverse of a one-to-one layout written out."""
    extents = draw.shuffled("order", [2, 3, 4][: draw.integer("n", 1, 3)])
    stride, found = {"m": 1, "n": 1}, []
    for n, e in enumerate(extents):
        name = draw.pick(f"a{n}", "mmn")
        found.append((e, stride[name], name))
        stride[name] *= e
    shard = draw.shuffled("D", found)
    return (t.Inverse(t.encode(Layout(shard)), "m,n" if draw.chance("mn", 0.5) else "n,m"),)


def inverted(draw: Draw) -> Values:
    """A layout and the axes on which it has an inverse."""
    values = written_inverse(draw)
    return None if values is None or not isinstance(values[0], Term) else values[0].args


def written_spans(draw: Draw) -> Values:
    """The span of a layout written out."""
    return (t.SpanOf(_written(draw, "x")),)


def written_question(draw: Draw) -> Values:
    """Whether elements of a layout written out meet."""
    return (t.Aliasing(_written(draw, "x")),)


def two_shapes(draw: Draw) -> Values:
    """Two shapes of one size."""
    size = draw.pick("size", (1, 4, 6, 8, 12, 16, 24))
    return (t.CommonRefinement(*(shape_text(_cut_up(draw, at, size)) for at in "ST")),)


_ALIKE: tuple[tuple[list[tuple[int, int]], list[tuple[int, int]]], ...] = (
    ([(3, 2), (5, 3)], [(2, 3), (2, 5), (5, 2)]),
    ([(7, 2), (3, 3)], [(4, 2), (5, 3)]),
    ([(4, 1)], [(2, 1), (2, 2)]),
    ([(4, 1)], [(3, 1), (2, 1)]),
    ([(2, 5), (3, 1)], [(3, 1), (2, 5)]),
)


def one_image(draw: Draw) -> Values:
    """Two lists of copies with one image."""
    both = draw.pick("pair", _ALIKE)
    name, offset = axis(draw, "a"), draw.integer("o", -2, 2)
    found = [
        t.copies(tuple((e, s, name) for e, s in one), [("m", offset)] if offset else [])
        for one in draw.shuffled("order", list(both))
    ]
    return found[0], found[1]


def one_map(draw: Draw) -> Values:
    """Two layouts with swizzles that are one map."""
    rng = random.Random(draw.integer("seed", 0, 2**32))
    plain = layout_of(rng, draw.pick("size", (2, 4, 6, 8)))
    bits = draw.integer("bits", 1, 2)
    sw = Swizzle("m", bits, draw.integer("base", 0, 1), bits + draw.integer("more", 0, 1))
    few, many = draw.pick("times", ((0, 2), (1, 3), (2, 4)))
    return tuple(
        t.encode(Layout(plain.shard, plain.replica, plain.offset, [sw] * n)) for n in (few, many)
    )


# -- pairs of expressions --------------------------------------------------------------------------


def same_sums(draw: Draw) -> Values:
    """Two expressions that take the same elements of unknown layouts at every index."""
    n, k, j = (draw.pick(f"extent{i}", (1, 2, 3)) for i in range(3))
    x, y = (t.AnyLayout(name, str(size), "") for name, size in (("A", n * k), ("B", j)))
    begin = draw.integer("begin", 0, k - 1)
    end = draw.integer("end", begin + 1, k)
    row = draw.integer("row", 0, n - 1)
    part = t.Slice(x, f"{n},{k}", f"{row}:{row + 1},{begin}:{end}")
    window = t.encode(Layout([(end - begin, 1)], offset={"m": row * k + begin}))
    columns = t.encode(Layout([(k, 1), (n, k)]))
    pairs = [
        (t.Permute(x, f"{n},1,{k}", "0,2,1"), x),
        (t.DirectSum(x, str(n * k), y, str(j)),
         t.Permute(t.DirectSum(y, str(j), x, str(n * k)), f"{j},{n * k}", "1,0")),
        (part, t.Slice(x, str(n * k), f"{row * k + begin}:{row * k + end}")),
        (part, t.Compose(x, window)),
        (t.Compose(x, columns), t.Permute(x, f"{n},{k}", "1,0")),
        (t.Tile(x, f"{n * k},1", y, f"1,{j}"), t.Tile(x, str(n * k), y, str(j))),
        (t.Tile(x, f"{n},{k}", y, f"{j},1"),
         t.Permute(t.Tile(x, str(n * k), y, str(j)), f"{n},{k},{j}", "0,2,1")),
    ]  # fmt: skip
    a, b = draw.pick("pair", pairs)
    if draw.chance("outside", 0.3):
        return t.Tile(y, str(j), a, _size(a)), t.Tile(y, str(j), b, _size(b))
    return a, b


def _size(term: Term) -> str:
    return str(check(term).elements)
