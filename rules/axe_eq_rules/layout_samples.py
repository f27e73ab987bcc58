"""Samples for the laws of layouts: terms that make sense, and numbers that meet conditions.

Everything is decided by a `Draw`, so that samples near a successful one can be drawn. Numbers are
integers, or texts of polynomials where a law is about these.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from inspect import signature
from math import prod
from typing import Any, get_args, get_type_hints

from axe_eq.layout.symbolic import terms as t
from axe_eq.layout.symbolic.instances import layout_of
from axe_eq.layout.symbolic.polynomial import parse, poly
from axe_eq.layout.symbolic.shapes import perm_text, region_text, shape_text, spans_text
from axe_eq.program.decisions import Draw
from axe_eq.rule.term import Ground, Sort, Term

Values = tuple[Ground, ...] | None

_EXTENTS = (1, 2, 2, 3, 4)
_SYMBOLIC_EXTENTS = ("1", "2", "n", "n", "k", "n+1", "2*n")
_SYMBOLIC_STRIDES = ("1", "2", "n", "-n", "0", "2*k", "-3", "k*n", "k-n")
_AXES = ("m", "m", "n", "lane")


# -- parts -----------------------------------------------------------------------------------------


def extent(draw: Draw, at: str, symbolic: bool) -> Any:
    """An extent."""
    return draw.pick(at, _SYMBOLIC_EXTENTS if symbolic else _EXTENTS)


def stride(draw: Draw, at: str, symbolic: bool) -> Any:
    """A stride or a shift."""
    return draw.pick(at, _SYMBOLIC_STRIDES) if symbolic else draw.integer(at, -3, 6)


def axis(draw: Draw, at: str) -> str:
    """An axis."""
    return draw.pick(at, _AXES)


def step(draw: Draw, symbolic: bool, e: str = "e", s: str = "s", a: str = "a") -> Any:
    """Extent, stride and axis of an iter or of copies."""
    return extent(draw, e, symbolic), stride(draw, s, symbolic), axis(draw, a)


def number(value: Any, symbolic: bool) -> Any:
    """A number of the one kind or the other."""
    return str(value) if symbolic else poly(value).constant


def items(draw: Draw, at: str, symbolic: bool, most: int = 2) -> list[tuple[Any, Any, str]]:
    """Extents, strides and axes."""
    return [
        step(draw, symbolic, f"{at}.e{n}", f"{at}.s{n}", f"{at}.a{n}")
        for n in range(draw.integer(f"{at}.n", 0, most))
    ]


def iter_list(draw: Draw, at: str, symbolic: bool = False) -> Term:
    """A list of iters."""
    symbol = t.SymIter if symbolic else t.Iter
    return t.chain(symbol, t.NoIter(), items(draw, at, symbolic))


def copy_set(draw: Draw, at: str, symbolic: bool = False) -> Term:
    """A set of copies, shifted or not."""
    copy, shift = (t.SymCopy, t.SymShift) if symbolic else (t.Copy, t.Shift)
    term = t.chain(copy, t.Here(), items(draw, f"{at}.R", symbolic, 2))
    shifts = [(stride(draw, f"{at}.o{n}", symbolic), axis(draw, f"{at}.b{n}")) for n in range(2)]
    return t.chain(shift, term, shifts[: draw.integer(f"{at}.O", 0, 2)])


def grid(draw: Draw, at: str, symbolic: bool = False) -> Term:
    """A function of a few indices."""
    dims = [iter_list(draw, f"{at}.{n}", symbolic) for n in range(draw.integer(f"{at}.r", 0, 2))]
    return t.chain(t.Block, t.NoBlock(), [(dim,) for dim in dims])


def layout(draw: Draw, at: str, elements: Any = None) -> Term:
    """A layout written out, or an unknown one; of so many elements where that is said."""
    if elements is None:
        elements = draw.pick(f"{at}.size", (1, 2, 4, 6, 8, 12))
    fixed = poly(elements).constant
    if fixed is None or draw.chance(f"{at}.unknown", 0.4):
        return t.AnyLayout(_name(draw, at, str(elements)), str(elements), "")
    rng = random.Random(draw.integer(f"{at}.seed", 0, 2**32))
    return t.encode(layout_of(rng, fixed))


def _name(draw: Draw, at: str, kind: str) -> str:
    """The name of an unknown layout, another one for every kind."""
    return draw.pick(f"{at}.name", "AB") + "".join(c if c.isalnum() else "_" for c in kind)


def indices(draw: Draw, at: str, elements: int, bound: int) -> Term:
    """A layout of indices below a bound, written out or unknown."""
    if draw.chance(f"{at}.unknown", 0.4):
        name = _name(draw, at, f"{elements} {bound}")
        return t.AnyLayout(name, str(elements), str(bound))
    rng = random.Random(draw.integer(f"{at}.seed", 0, 2**32))
    return t.encode(layout_of(rng, elements, bound))


_BY_SORT: dict[Sort, Callable[[Draw, str, bool], Term]] = {
    t.ITERS: iter_list,
    t.COPIES: copy_set,
    t.GRID: grid,
    t.LAYOUT: lambda draw, at, symbolic: layout(draw, at),
    t.SPANS: lambda draw, at, symbolic: t.Spans(weights(draw, at, symbolic)),
}


def weights(draw: Draw, at: str, symbolic: bool = False) -> str:
    """A span per axis."""
    spans = {name: draw.integer(f"{at}.{name}", 1, 6) for name in ("lane", "m", "n")}
    named = draw.pick(f"{at}.named", ("n", "k+1", "1", "2*k")) if symbolic else 1
    return spans_text({**spans, "m": parse(str(named)) * spans["m"]})


def by_roles(fn: Callable[..., Any], symbolic: bool = False) -> Callable[[Draw], Values]:
    """A sampler that draws every parameter of a law by its role, or by its sort."""
    hints = get_type_hints(fn, include_extras=True)
    names = list(signature(fn).parameters)

    def sample(draw: Draw) -> Values:
        return tuple(
            _drawn(draw, name, *get_args(hints[name])[1:], symbolic=symbolic) for name in names
        )

    return sample


def _drawn(draw: Draw, at: str, sort: Sort, role: str = "", *, symbolic: bool) -> Ground:
    if sort in _BY_SORT:
        return _BY_SORT[sort](draw, at, symbolic)
    of_text = symbolic and sort.name == "String"
    if role in ("extent", "stride"):
        drawn: Ground = (extent if role == "extent" else stride)(draw, at, of_text)
        return drawn
    if role == "place":
        return draw.integer(at, 0, 3)
    if role == "axis":
        return axis(draw, at)
    if role == "weights":
        return weights(draw, at, symbolic)
    raise ValueError(f"parameter {at!r} of sort {sort} needs a sampler")


# -- conditions of laws about lists ----------------------------------------------------------------


def adjacent(of: bool, draw: Draw) -> Values:
    """Two iters that continue each other."""
    e, f, u = extent(draw, "e", of), extent(draw, "f", of), stride(draw, "u", of)
    s = number(poly(f) * poly(u), of)
    return e, s, f, u, axis(draw, "a"), iter_list(draw, "r", of)


def falling(of: bool, draw: Draw) -> Values:
    """A copy that steps down."""
    s = number(-poly(extent(draw, "s", of)), of)
    return extent(draw, "e", of), s, axis(draw, "a"), copy_set(draw, "p", of)


def _multiple(of: bool, draw: Draw) -> tuple[Any, Any, Any, Any]:
    """Extent and stride, and those of a copy that the first absorbs."""
    e, s, f = (extent(draw, name, of) for name in "esf")
    s = number(poly(s) * draw.pick("sign", (1, 1, -1)), of)
    times = draw.pick("q", (1, "n", "k", e) if of else tuple(range(1, e + 1)))
    return e, s, f, number(poly(times) * poly(s), of)


def multiple(of: bool, draw: Draw) -> Values:
    """Two copies, of which the first absorbs the second."""
    return *_multiple(of, draw), axis(draw, "a"), copy_set(draw, "p", of)


def multiple_before(of: bool, draw: Draw) -> Values:
    """Two copies, of which the second absorbs the first."""
    e, s, f, u = _multiple(of, draw)
    return f, u, e, s, axis(draw, "a"), copy_set(draw, "p", of)


def multiple_across(of: bool, draw: Draw) -> Values:
    """Two such copies with another between them."""
    e, s, f, u = _multiple(of, draw)
    between = extent(draw, "g", of), stride(draw, "v", of)
    return e, s, *between, f, u, axis(draw, "a"), axis(draw, "b"), copy_set(draw, "p", of)


def axes_out_of_order(of: bool, draw: Draw) -> Values:
    """Two copies on axes that are not sorted."""
    a, b = draw.pick("axes", (("n", "m"), ("m", "lane"), ("n", "lane")))
    one = extent(draw, "e", of), stride(draw, "s", of), a
    two = extent(draw, "f", of), stride(draw, "u", of), b
    return *one, *two, copy_set(draw, "p", of)


def shifts_out_of_order(of: bool, draw: Draw) -> Values:
    """Two shifts on axes that are not sorted."""
    a, b = draw.pick("axes", (("n", "m"), ("m", "lane"), ("n", "lane")))
    return stride(draw, "v", of), a, stride(draw, "w", of), b, copy_set(draw, "p", of)


def opposite_shifts(of: bool, draw: Draw) -> Values:
    """Two shifts that cancel."""
    value = stride(draw, "v", of)
    back = number(-poly(value), of)
    return value, back, axis(draw, "a"), copy_set(draw, "p", of)


def one_stride(draw: Draw) -> Values:
    """Two copies of one stride, the shorter first."""
    e, more = draw.integer("e", 1, 3), draw.integer("f", 1, 3)
    return e, e + more, draw.integer("s", -3, 5), axis(draw, "a"), copy_set(draw, "p")


def texts_out_of_order(of: bool, draw: Draw) -> Values:
    """Two copies whose texts are not sorted."""
    both = [(extent(draw, f"e{n}", True), stride(draw, f"s{n}", True)) for n in "ab"]
    (f, u), (e, s) = sorted(both, key=lambda pair: f"{pair[1]} {pair[0]}")
    return e, s, f, u, axis(draw, "a"), copy_set(draw, "p", True)


# -- conditions of laws about grids ----------------------------------------------------------------


def _list_of(draw: Draw, at: str, symbolic: bool) -> tuple[Term, Any]:
    """A list of iters and its size."""
    chosen = items(draw, at, symbolic)
    symbol = t.SymIter if symbolic else t.Iter
    size = prod((poly(e) for e, _, _ in chosen), start=poly(1))
    return t.chain(symbol, t.NoIter(), chosen), size


def cut_through(of: bool, draw: Draw) -> Values:
    """An iter that lies within the first dim of a shape."""
    rest, size = _list_of(draw, "r", of)
    e = extent(draw, "e", of)
    first, *more = split_size(draw, "S", size)
    shape = shape_text([poly(e) * first, *more])
    return e, stride(draw, "s", of), axis(draw, "a"), rest, shape


def cut_inside(of: bool, draw: Draw) -> Values:
    """An iter that is longer than the first dim of a shape."""
    rest, size = _list_of(draw, "r", of)
    first, more = extent(draw, "e", of), extent(draw, "f", of)
    shape = shape_text([poly(first), *split_size(draw, "S", poly(more) * size)])
    e = number(poly(first) * poly(more), of)
    return e, stride(draw, "s", of), axis(draw, "a"), rest, shape


def cut_unit(draw: Draw) -> Values:
    """A list and a shape that begins with a unit dim."""
    whole, size = _list_of(draw, "d", draw.chance("symbolic", 0.4))
    return whole, shape_text([1, *split_size(draw, "S", size)])


def split_size(draw: Draw, at: str, size: Any) -> list[Any]:
    """Extents that multiply to a size, at least one."""
    fixed = size.constant
    if fixed is None:
        return [size] if draw.chance(at, 0.6) else [1, size]
    found: list[int] = []
    while fixed > 1:
        found.append(
            draw.pick(f"{at}{len(found)}", [d for d in range(2, fixed + 1) if fixed % d == 0])
        )
        fixed //= found[-1]
    return found or [1]


def weighed_iter(of: bool, draw: Draw) -> Values:
    """An iter before others, and weights of the system's numbers."""
    return *step(draw, of), iter_list(draw, "r", of), weights(draw, "w", of)


def weighed_copy(of: bool, draw: Draw) -> Values:
    """A copy before others, and weights of the system's numbers."""
    return *step(draw, of), copy_set(draw, "p", of), weights(draw, "w", of)


def weighed_shift(of: bool, draw: Draw) -> Values:
    """A shift, and weights of the system's numbers."""
    return stride(draw, "v", of), axis(draw, "a"), copy_set(draw, "p", of), weights(draw, "w", of)


def _signed(draw: Draw, of: bool) -> Any:
    """A stride whose sign is known."""
    return (
        draw.pick("s", ("1", "n", "-n", "2*k", "-3", "k*n", "0"))
        if of
        else draw.integer("s", -3, 6)
    )


def spanned_iter(of: bool, draw: Draw) -> Values:
    """An iter whose direction is known, before others."""
    return extent(draw, "e", of), _signed(draw, of), axis(draw, "a"), iter_list(draw, "r", of)


def spanned_copy(of: bool, draw: Draw) -> Values:
    """A copy whose direction is known, before others."""
    return extent(draw, "e", of), _signed(draw, of), axis(draw, "a"), copy_set(draw, "p", of)


def summed(of: bool, draw: Draw) -> Values:
    """A copy before others, and a second set."""
    return *step(draw, of), copy_set(draw, "p", of), copy_set(draw, "q", of)


def reordered(draw: Draw) -> Values:
    """A grid of at least one dim and a permutation of its dims."""
    symbolic = draw.chance("symbolic", 0.3)
    first, rest = iter_list(draw, "d", symbolic), grid(draw, "g", symbolic)
    rank = 1 + len(blocks(rest))
    return first, rest, perm_text(draw.shuffled("p", list(range(rank))))


def blocks(term: Term) -> list[Term]:
    """The dims of a grid that is written out."""
    found = []
    while term.args:
        found.append(term.args[0])
        term = term.args[1]
    return found


def bounds(draw: Draw, at: str, extents: Sequence[int]) -> str:
    """A region of a shape."""
    found = []
    for n, whole in enumerate(extents):
        begin = draw.integer(f"{at}.b{n}", 0, whole - 1)
        found.append((begin, draw.integer(f"{at}.e{n}", begin + 1, whole)))
    return region_text(found)


def windowed(draw: Draw) -> Values:
    """A grid of at least one dim and a region of it."""
    first, rest = iter_list(draw, "d"), grid(draw, "g")
    sizes = [_size(dim) for dim in (first, *blocks(rest))]
    return first, rest, bounds(draw, "R", sizes)


def placed(draw: Draw) -> Values:
    """The same, and a set of copies."""
    values = windowed(draw)
    return None if values is None else (*values, copy_set(draw, "p"))


# An extent with names, and a window that is in it for all numbers, or for some only.
_INSIDE = (
    ("4", "1", "3"), ("n", "0", "1"), ("n", "0", "n"), ("n+2", "1", "n+1"), ("2*n", "n", "2*n"),
    ("k+n", "n", "k+n"), ("3", "0", "n"),
)  # fmt: skip
_STEPS = ("1", "5", "-2", "0", "n", "-k")


def digit_dim(draw: Draw) -> Values:
    """A dim of one digit with names before others, and a region."""
    e, begin, end = draw.pick("e", _INSIDE)
    rest = grid(draw, "g")
    region = bounds(draw, "R", [_size(dim) for dim in blocks(rest)])
    whole = ",".join(filter(None, (f"{begin}:{end}", region)))
    return e, draw.pick("s", _STEPS), axis(draw, "a"), rest, whole


def placed_digit(draw: Draw) -> Values:
    """The same, and a set of copies."""
    values = digit_dim(draw)
    return None if values is None else (*values, copy_set(draw, "p"))


def digit_window(draw: Draw) -> Values:
    """A digit with names, and a window in integers."""
    e, begin, count = draw.pick("e", (("4", 1, 2), ("n", 0, 1), ("n+2", 1, 2), ("n", 1, 2)))
    return e, draw.pick("s", _STEPS), axis(draw, "a"), begin, count


def moved_digit(draw: Draw) -> Values:
    """A digit with names, an index, and a set of copies."""
    e, s, a, begin, _ = digit_window(draw) or ()
    return e, s, a, begin, copy_set(draw, "p")


def _size(term: Term) -> int:
    return prod(item[0] for item in t.items_of(term, t.Iter))


def window_digit(draw: Draw) -> Values:
    """A window of whole turns of all but the slowest iter."""
    rest = iter_list(draw, "r")
    e, n = draw.integer("e", 1, 5), _size(rest)
    begin = draw.integer("b", 0, e - 1)
    count = draw.integer("c", 1, e - begin)
    return e, draw.integer("s", -3, 5), axis(draw, "a"), rest, begin * n, count * n


def window_inside(draw: Draw) -> Values:
    """A window within one turn of all but the slowest iter."""
    rest = iter_list(draw, "r")
    e, n = draw.integer("e", 1, 4), _size(rest)
    begin = draw.integer("b", 0, n - 1)
    count = draw.integer("c", 1, n - begin)
    turn = draw.integer("t", 0, e - 1)
    return e, draw.integer("s", -3, 5), axis(draw, "a"), rest, turn * n + begin, count


def window_whole(draw: Draw) -> Values:
    """A list and its size."""
    whole = iter_list(draw, "d")
    return whole, _size(whole)


def moved(draw: Draw) -> Values:
    """A list of at least one iter, an index of it, and a set of copies."""
    rest, e = iter_list(draw, "r"), draw.integer("e", 1, 4)
    index = draw.integer("i", 0, e * _size(rest) - 1)
    return e, draw.integer("s", -3, 5), axis(draw, "a"), rest, index, copy_set(draw, "p")


def inserted(draw: Draw) -> Values:
    """A dim, a place after the first, and a grid of enough dims."""
    rest = grid(draw, "g")
    place = draw.integer("k", 1, 1 + len(blocks(rest)))
    return iter_list(draw, "d"), place, iter_list(draw, "c"), rest
