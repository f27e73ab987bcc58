"""Which layout terms make sense: sizes fit, regions and indices are in range, for all numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from axe_eq.errors import LayoutError, SearchError
from axe_eq.layout.algebra.composition import compose
from axe_eq.layout.algebra.products import direct_sum, tile
from axe_eq.layout.normal.nested_boxes import check_order
from axe_eq.layout.symbolic import terms as t
from axe_eq.layout.symbolic.polynomial import ONE, ZERO, Polynomial, fraction, parse, poly, product
from axe_eq.layout.symbolic.shapes import (
    integers,
    read_perm,
    read_region,
    read_shape,
    read_spans,
    region_text,
)
from axe_eq.layout.value.layout import Layout
from axe_eq.rule.term import Symbol, Term, postorder

MAX_DEPTH = 64  # operations inside each other that are worked out

Extents = tuple[Polynomial, ...]


class Missing(LayoutError):
    """Something that has to hold for all numbers and is not known to: `fact` says what."""

    def __init__(self, thing: str, fact: str) -> None:
        super().__init__(thing, f"needs {fact}", "an assumption from which it follows")
        self.fact = fact


@dataclass(frozen=True)
class Kind:
    """What is known of a layout term.

    Attributes:
        elements: how many it has.
        total: it denotes a layout or another map, never nothing.
        single: every element has one copy.
        bound: its coordinates lie on one axis, `axis`, in [0, bound); None where that is not known.
        axis: that axis, where `bound` is known.
        loose: its coordinates may all lie below a smaller bound.
    """

    elements: Polynomial
    total: bool = True
    single: bool = False
    bound: Polynomial | None = None
    axis: str = ""
    loose: bool = False


# Axis -> least and greatest value; None where a sign is not known or nobody asked.
Range = dict[str, tuple[Polynomial, Polynomial]] | None


@dataclass(frozen=True)
class Part:
    """What is known of a list of iters or of a set of copies.

    Attributes:
        elements: how many indices a list has; 1 for a set of one displacement, else 0.
        range: of its coordinates.
    """

    elements: Polynomial
    range: Range = None


def check(term: Term) -> Any:
    """What is known of a term that makes sense.

    Returns:
        The `Part` of `Iters` and `Copies`, the extents of a `Grid`, the `Kind` of a `Layout`.

    Raises:
        Missing: a condition that holds for some numbers only, as far as is known.
        LayoutError: the term makes no sense.
    """
    known: dict[Term, Any] = {}
    for sub in postorder(term):
        args = [known[a] if isinstance(a, Term) else a for a in sub.args]
        if sub.symbol is t.Compose:
            args = [_reached(a, known[a]) for a in sub.args]
        rule = _RULES.get(sub.symbol)
        if rule is None:
            raise LayoutError("layout term", f"has the symbol {sub.symbol.name!r}", "a layout's")
        known[sub] = rule(*args)
    return known[term]


def unknowns(terms: Iterable[Term]) -> dict[str, tuple[str, str]]:
    """Name -> (elements, bound) of every unknown layout in some terms.

    Raises:
        LayoutError: one name for layouts of different kinds.
    """
    found: dict[str, tuple[str, str]] = {}
    seen: set[Term] = set()
    for term in terms:
        for sub in postorder(term, seen):
            seen.add(sub)
            if sub.symbol is t.AnyLayout:
                name, *kind = sub.args
                if found.setdefault(name, (kind[0], kind[1])) != tuple(kind):
                    raise LayoutError(f"layout {name!r}", "is of two kinds", "one size and bound")
    return found


# -- conditions ------------------------------------------------------------------------------------


def same(thing: str, a: Polynomial, b: Polynomial) -> None:
    """Require that two numbers are equal for all numbers."""
    if a == b:
        return
    if a.constant is not None and b.constant is not None:
        raise LayoutError(thing, f"has {a}", str(b))
    raise Missing(thing, f"{a} == {b}")


def least(thing: str, value: Polynomial, bound: int) -> Polynomial:
    """Require that a number is at least so much for all numbers."""
    if value.at_least(bound):
        return value
    if value.constant is not None:
        raise LayoutError(thing, str(value), f"at least {bound}")
    raise Missing(thing, f"{value} >= {bound}")


def _number(text: str) -> Polynomial:
    value = parse(text)
    if str(value) != text:
        raise LayoutError(f"number {text!r}", "is not in its normal form", str(value))
    for atom in sorted(value.atoms):
        if atom.startswith("("):
            above, below = fraction(atom)
            raise Missing(f"quotient {atom}", f"{above} % {below} == 0")
    return value


def _extent(value: int | str) -> Polynomial:
    number = poly(value) if isinstance(value, int) else _number(value)
    return least("extent", number, 1)


def _shape(text: str, elements: Polynomial | None = None) -> Extents:
    extents = read_shape(text)
    for extent in extents:
        _extent(str(extent))
    if elements is not None:
        same(f"shape ({text})", product(extents), elements)
    return extents


def _bounds(text: str, shape: Extents) -> tuple[tuple[Polynomial, Polynomial], ...]:
    bounds = read_region(text)
    if len(bounds) != len(shape):
        raise LayoutError(f"region ({text})", f"has {len(bounds)} dims", f"{len(shape)}")
    for (begin, end), extent in zip(bounds, shape, strict=True):
        part = f"region ({region_text([(begin, end)])}) of {extent}"
        for number in (begin, end):
            _number(str(number))
        least(part, begin, 0)
        least(part, end - begin, 1)
        least(part, extent - end, 0)
    return bounds


def _axis(axis: str) -> str:
    if not axis.isidentifier():
        raise LayoutError(f"axis {axis!r}", "is not a name", "an identifier")
    return axis


# -- terms -----------------------------------------------------------------------------------------


def _iter(extent: int | str, stride: int | str, axis: str, rest: Part) -> Part:
    count, step = _extent(extent), poly(stride) if isinstance(stride, int) else _number(stride)
    return Part(count * rest.elements, _wider(rest.range, _axis(axis), (count - 1) * step))


def _wider(range_: Range, axis: str, reach: Polynomial, *, shift: bool = False) -> Range:
    """The range after adding something between 0 and `reach`, or all of it."""
    if range_ is None or not (reach.at_least(0) or (-reach).at_least(0)):
        return None
    low, high = range_.get(axis, (ZERO, ZERO))
    down, up = (ZERO, reach) if reach.at_least(0) else (reach, ZERO)
    return {**range_, axis: (low + reach, high + reach) if shift else (low + down, high + up)}


def _copy(extent: int | str, stride: int | str, axis: str, rest: Part) -> Part:
    more = _iter(extent, stride, axis, Part(ONE, rest.range))
    same_place = more.elements == 1 or poly(stride) == 0
    return Part(rest.elements if same_place else ZERO, more.range)


def _shift(value: int | str, axis: str, rest: Part) -> Part:
    number = poly(value) if isinstance(value, int) else _number(value)
    return Part(rest.elements, _wider(rest.range, _axis(axis), number, shift=True))


def _window(whole: Part, begin: int, count: int) -> Part:
    least(f"window [{begin}, {begin + count})", poly(begin), 0)
    least(f"window of {count}", poly(count), 1)
    least(f"window [{begin}, {begin + count})", whole.elements - (begin + count), 0)
    return Part(poly(count))


def _both(a: Range, b: Range) -> Range:
    if a is None or b is None:
        return None
    none = (ZERO, ZERO)
    ends = {axis: (a.get(axis, none), b.get(axis, none)) for axis in {*a, *b}}
    return {axis: (one[0] + two[0], one[1] + two[1]) for axis, (one, two) in ends.items()}


def _spans(text: str) -> None:
    for span in read_spans(text).values():
        _extent(str(span))


def _scaled(of: Part, text: str) -> Part:
    _spans(text)
    return Part(of.elements)


def _insert(dim: Part, place: int, grid: Extents) -> Extents:
    if not 0 <= place <= len(grid):
        raise LayoutError("dim", f"inserted at {place} of {len(grid)}", "a place there is")
    return (*grid[:place], dim.elements, *grid[place:])


def _reorder(grid: Extents, text: str) -> Extents:
    perm = read_perm(text)
    if len(perm) != len(grid):
        raise LayoutError(f"permutation ({text})", f"of {len(grid)} dims", f"{len(perm)}")
    return tuple(grid[dim] for dim in perm)


def _zip(a: Extents, b: Extents) -> Extents:
    if len(a) != len(b):
        raise LayoutError("shapes", f"of ranks {len(a)} and {len(b)}", "equal ranks")
    return tuple(extent for pair in zip(a, b, strict=True) for extent in pair)


def _region(grid: Extents, text: str) -> Extents:
    return tuple(end - begin for begin, end in _bounds(text, grid))


def _place(grid: Extents, text: str, copies: Part) -> Part:
    _bounds(text, grid)
    return Part(copies.elements)


def _prepend(extent: int | str, stride: int | str, axis: str, grid: Extents) -> Extents:
    if not grid:
        raise LayoutError("iter", "before a grid of no dims", "at least one dim")
    return (_iter(extent, stride, axis, Part(grid[0])).elements, *grid[1:])


def _move(whole: Part, index: int, copies: Part) -> Part:
    _window(whole, index, 1)
    return Part(copies.elements)


def _any(name: str, elements: str, bound: str) -> Kind:
    if not name.isidentifier():
        raise LayoutError(f"layout {name!r}", "is not a name", "an identifier")
    top = _extent(bound) if bound else None
    return Kind(_extent(elements), bound=top, axis="m" if bound else "")


def _swizzled(axis: str, bits: int, base: int, shift: int, of: Kind) -> Kind:
    from axe_eq.layout.value.swizzle import Swizzle, check_swizzles

    check_swizzles([Swizzle(_axis(axis), bits, base, shift)])
    return Kind(of.elements, of.total, of.single)


def _box(logical: int, padded: int, rest: Any) -> Any:
    if not 1 <= logical <= padded:
        raise LayoutError("box", f"{logical} of {padded}", "at least 1, at most the padded extent")
    return ((logical, padded), *rest[0]), rest[1]


def _boxed(box: tuple[Sequence[tuple[int, int]], str], of: Kind) -> Kind:
    dims, order = box
    if order:
        check_order(order, len(dims))
    same("box", product(padded for _, padded in dims), of.elements)
    return Kind(product(n for n, _ in dims), of.total, of.single, of.bound, of.axis, loose=True)


def _permute(of: Kind, shape: str, perm: str) -> Kind:
    _reorder(_shape(shape, of.elements), perm)
    return of


def _slice(of: Kind, shape: str, region: str) -> Kind:
    bounds = _bounds(region, _shape(shape, of.elements))
    elements = product(end - begin for begin, end in bounds)
    return Kind(elements, of.total, of.single, of.bound, of.axis, loose=True)


def _group(of: Kind, shape: str) -> Kind:
    _shape(shape, of.elements)
    return of


def _sum(a: Kind, shape: str, b: Kind, other: str) -> Kind:
    _zip(_shape(shape, a.elements), _shape(other, b.elements))
    return Kind(a.elements * b.elements, a.total and b.total, a.single and b.single)


def _direct_sum(a: Kind, shape: str, b: Kind, other: str) -> Kind:
    whole = _sum(a, shape, b, other)
    if a.bound is None or b.bound is None or (a.axis and b.axis and a.axis != b.axis):
        return whole
    bound = a.bound + b.bound - 1
    return replace(whole, bound=bound, axis=a.axis or b.axis, loose=a.loose or b.loose)


def _factor(a: Kind, shape: str, b: Kind, other: str) -> Kind:
    outer, inner = _shape(shape, a.elements), _shape(other, b.elements)
    _zip(outer, inner)
    parts = [whole.divided(part) for whole, part in zip(outer, inner, strict=True)]
    for whole, part, ratio in zip(outer, inner, parts, strict=True):
        if ratio is None:
            if whole.constant is not None and part.constant is not None:
                raise LayoutError(f"shape ({shape})", f"by ({other})", "one that divides it")
            raise Missing(f"shape ({shape}) by ({other})", f"{whole} % {part} == 0")
    return Kind(product(ratio for ratio in parts if ratio is not None), total=False)


def _compose(a: Kind, b: Kind) -> Kind:
    if b.bound is None:
        raise Missing("composition", "that the inner coordinates are indices of the outer layout")
    if not (a.elements - b.bound).at_least(0):
        wanted = f"below {a.elements}, the elements of the outer layout"
        if b.loose and (a.elements - b.bound).constant is not None:
            known = f"that the inner indices, known to be below {b.bound}, are {wanted}"
            raise Missing("composition", known)
        if (a.elements - b.bound).constant is not None:
            raise LayoutError("composition", f"inner indices below {b.bound}", f"them {wanted}")
        raise Missing("composition", f"{a.elements} >= {b.bound}")
    single = a.single and b.single
    return Kind(b.elements, a.total and b.total, single, a.bound, a.axis, loose=True)


def _reached(term: Term, kind: Kind) -> Kind:
    """The kind of a layout; by its range, where nothing in it is unknown."""
    if kind.bound is not None and not kind.loose:
        return kind
    ends = _ends(term)
    if ends is None:
        return kind
    axis, (low, high) = next(iter(ends.items()), ("", (0, 0)))
    if len(ends) > 1 or low < 0:
        return replace(kind, bound=None, axis="")
    return replace(kind, bound=poly(high + 1), axis=axis, loose=False)


@lru_cache(maxsize=1024)
def _ends(term: Term) -> dict[str, tuple[int, int]] | None:
    """Axis -> least and greatest coordinate where some is not 0; None where that is not known."""
    try:
        layout = _value(term)
        return None if layout is None else {a: layout.range(a) for a in layout.moving()}
    except (LayoutError, SearchError):
        return None


@lru_cache(maxsize=1024)
def _value(term: Term, deep: int = MAX_DEPTH) -> Layout | None:
    """The layout that operations on written ones make; None where something is unknown.

    Raises:
        LayoutError: they make none.
        SearchError: undecided.
    """
    if t.is_written(term):
        return t.decode(term)
    operation = _OPERATIONS.get(term.symbol)
    if operation is None or not deep:
        return None
    args: list[Any] = []
    for part in term.args:
        args.append(_value(part, deep - 1) if isinstance(part, Term) else _numbers(part))
        if args[-1] is None:
            return None
    made: Layout = operation(*args)
    return made


def _numbers(text: str) -> tuple[int, ...] | None:
    """A shape, a permutation, or a region as its ends one after the other."""
    if ":" not in text:
        return integers(read_shape(text))
    return integers([end for pair in read_region(text) for end in pair])


_OPERATIONS: dict[Symbol, Callable[..., Layout]] = {
    t.Slice: lambda a, shape, ends: a.slice(shape, list(zip(ends[::2], ends[1::2], strict=True))),
    t.Permute: lambda a, shape, order: a.permute(shape, order),
    t.Group: lambda a, shape: a,
    t.Compose: compose,
    t.Tile: tile,
    t.DirectSum: direct_sum,
}


def _inverse(of: Kind, axes: str) -> Kind:
    names = [_axis(axis) for axis in axes.split(",")]
    if len(set(names)) < len(names):
        raise LayoutError("inverse", f"axes {names}", "each once")
    return Kind(of.elements, total=False, single=True, bound=of.elements, axis=names[0])


def _scale(of: Kind, spans: None) -> Kind:
    return Kind(of.elements, of.total, of.single)


def _refine(one: str, two: str) -> None:
    same("shapes", product(_shape(one)), product(_shape(two)))


def _map(points: Part, copies: Part) -> Kind:
    single = copies.elements == 1
    both = _both(points.range, copies.range)
    ends = None if both is None else {a: r for a, r in both.items() if r != (ZERO, ZERO)}
    if ends is None or len(ends) > 1:
        return Kind(points.elements, single=single)
    axis, (low, high) = next(iter(ends.items()), ("", (ZERO, ZERO)))
    bound = high + 1 if low.at_least(0) else None
    return Kind(points.elements, single=single, bound=bound, axis=axis if bound else "")


_RULES: dict[Symbol, Callable[..., Any]] = {
    t.NoIter: lambda: Part(ONE, {}),
    t.Iter: _iter,
    t.SymIter: _iter,
    t.Append: lambda a, b: Part(a.elements * b.elements, _both(a.range, b.range)),
    t.Join: lambda grid: Part(product(grid)),
    t.Window: _window,
    t.ScaleIters: _scaled,
    t.NoBlock: lambda: (),
    t.Block: lambda dim, grid: (dim.elements, *grid),
    t.Cut: lambda d, text: _shape(text, d.elements),
    t.Prepend: _prepend,
    t.SymPrepend: _prepend,
    t.Insert: _insert,
    t.Reorder: _reorder,
    t.Zip: _zip,
    t.Region: _region,
    t.Here: lambda: Part(ONE, {}),
    t.Copy: _copy,
    t.SymCopy: _copy,
    t.Shift: _shift,
    t.SymShift: _shift,
    t.Sum: lambda a, b: Part(a.elements * b.elements, _both(a.range, b.range)),
    t.ScaleCopies: _scaled,
    t.MoveTo: _move,
    t.PlaceAt: _place,
    t.Map: _map,
    t.Swizzled: _swizzled,
    t.BoxEnd: lambda: ((), ""),
    t.BoxOrder: lambda order: ((), order),
    t.BoxDim: _box,
    t.Boxed: _boxed,
    t.AnyLayout: _any,
    t.Group: _group,
    t.Permute: _permute,
    t.Slice: _slice,
    t.Tile: _sum,
    t.DirectSum: _direct_sum,
    t.TileOf: _factor,
    t.LeftAddend: _factor,
    t.RightAddend: _factor,
    t.Compose: _compose,
    t.Inverse: _inverse,
    t.Scale: _scale,
    t.Spans: _spans,
    t.ShapeIs: _shape,
    t.CommonRefinement: _refine,
    **dict.fromkeys(
        (t.SpanOf, t.SpanOfIters, t.SpanOfCopies, t.SpanSum, t.SpanProduct, t.Footprint,
         t.Aliasing, t.Injective, t.Clashing), lambda *_: None,
    ),
}  # fmt: skip
