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
from axe_eq.rule.term import STR, Ground, Sort, Term

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


def copy_set(draw: Draw, at: str, symbolic: bool = False) -> Term:
    """A set of copies, shifted or not."""
    copy, shift = (t.SymCopy, t.SymShift) if symbolic else (t.Copy, t.Shift)
    term = t.chain(copy, t.Here(), items(draw, f"{at}.R", symbolic, 2))
    shifts = [(stride(draw, f"{at}.o{n}", symbolic), axis(draw, f"{at}.b{n}")) for n in range(2)]
    return t.chain(shift, term, shifts[: draw.integer(f"{at}.O", 0, 2)])


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


def weights(draw: Draw, at: str, symbolic: bool = False) -> str:
    """A span per axis."""
    spans = {name: draw.integer(f"{at}.{name}", 1, 6) for name in ("lane", "m", "n")}
    named = draw.pick(f"{at}.named", ("n", "k+1", "1", "2*k")) if symbolic else 1
    return spans_text({**spans, "m": parse(str(named)) * spans["m"]})


class Roles:
    """Draws parameters of a law one after another; what is drawn later fits what came before.

    Attributes:
        symbolic: numbers that are texts are polynomials.
        fixed: all extents are integers, for the law has regions or indices.
        rank: of the shapes.
        given: extents whose product is the size of what the next shape or window is of.
        begin: of the window.
        whole: they are extents of a shape of it.
        size: of the last layout.
        open: the dims that the next permutation or region is of; those of tiles for two layouts.
        tile: extents of the last layout of two, of which regions are often whole tiles.
        padded: the extents of the next layout, in a box.
        written: makes a layout that is written out; without it some are unknown.
    """

    def __init__(
        self,
        draw: Draw,
        symbolic: bool,
        fixed: bool,
        ranks: Sequence[int],
        written: Callable[[Draw, str, int], Term] | None = None,
    ) -> None:
        self.draw, self.symbolic, self.fixed = draw, symbolic, fixed
        self.rank = draw.pick("rank", ranks)
        self.given: list[Any] = []
        self.open: list[Any] = []
        self.size: Any = poly(1)
        self.padded: list[int] = []
        self.begin = 0
        self.written = written
        self.tile: list[Any] = []
        self.whole = False

    def value(self, at: str, sort: Sort, role: str = "") -> Ground:
        """A value of a sort, for a parameter of this name and role."""
        of_text = self.symbolic and sort.name == "String"
        if role in ("extent", "stride"):
            drawn = (extent if role == "extent" else stride)(self.draw, at, of_text)
            self.given += [poly(drawn)] if role == "extent" else []
            return drawn  # type: ignore[no-any-return]
        make = getattr(self, f"_{role or sort.name.lower()}", None)
        if make is None:
            raise ValueError(f"parameter {at!r} of sort {sort} needs a sampler")
        return make(at)  # type: ignore[no-any-return]

    def _place(self, at: str) -> int:
        return self.draw.integer(at, 0, 3)

    def _begin(self, at: str) -> int:
        self.begin = self.draw.integer(at, 0, self._count_of() - 1)
        return self.begin

    def _count(self, at: str) -> int:
        return self.draw.integer(at, 1, self._count_of() - self.begin)

    def _count_of(self) -> int:
        return prod(self.given, start=poly(1)).constant or 1

    def _distance(self, at: str) -> int:
        return self.draw.integer(at, -3, 3)

    def _axis(self, at: str) -> str:
        return axis(self.draw, at)

    def _weights(self, at: str) -> str:
        return weights(self.draw, at, self.symbolic)

    def _spans(self, at: str) -> Term:
        return t.Spans(weights(self.draw, at, symbolic=not self.fixed))

    def _copies(self, at: str) -> Term:
        return copy_set(self.draw, at, self.symbolic)

    def _iters(self, at: str) -> Term:
        chosen = items(self.draw, at, self.symbolic)
        extents = [poly(e) for e, _, _ in chosen]
        self.given += extents
        self.open.append(prod(extents, start=poly(1)))
        return t.chain(t.SymIter if self.symbolic else t.Iter, t.NoIter(), chosen)

    def _grid(self, at: str) -> Term:
        dims = [self._iters(f"{at}.{n}") for n in range(self.draw.integer(f"{at}.r", 0, 2))]
        return t.chain(t.Block, t.NoBlock(), [(dim,) for dim in dims])

    def _box(self, at: str) -> Term:
        self.padded = [self.draw.pick(f"{at}.{n}", (1, 2, 3, 4)) for n in range(self.rank)]
        dims = [(self.draw.integer(f"{at}.n{n}", 1, m), m) for n, m in enumerate(self.padded)]
        turned = len(dims) > 1 and self.draw.chance(f"{at}.turned", 0.3)
        order = self.draw.shuffled(f"{at}.order", list(range(len(dims))))
        return t.chain(t.BoxDim, t.BoxOrder(perm_text(order)) if turned else t.BoxEnd(), dims)

    def _layout(self, at: str) -> Term:
        names = not self.fixed and self.draw.chance(f"{at}.symbolic", 0.3)
        options: Sequence[Any] = (1, 2, 2, "n", "k") if names else (1, 2, 2, 3)
        drawn = [self.draw.pick(f"{at}.{n}", options) for n in range(self.rank)]
        self.given, self.whole = [poly(e) for e in self.padded or drawn], True
        self.size = prod(self.given, start=poly(1))
        if self.written is not None:
            return self.written(self.draw, at, self.size.constant)
        return layout(self.draw, at, self.size)

    def _indices(self, at: str) -> Term:
        bound = self.size.constant
        self._layout(at)
        return indices(self.draw, at, self.size.constant, bound)

    def _shape(self, at: str) -> str:
        extents = [poly(1)] * self.rank
        if self.whole:
            extents = self.given
        else:  # digits, each in some dim; or a shape of nothing that was drawn
            for n, digit in enumerate(self.given or [poly(self.draw.pick(at, (1, 1, 2)))]):
                extents[self.draw.integer(f"{at}.{n}", 0, self.rank - 1)] *= digit
        tiled = bool(self.tile) and self.whole
        before = self.open if tiled else [poly(1)] * self.rank
        self.open = [a * b for a, b in zip(before, extents, strict=True)]
        self.tile = extents if self.whole else []
        self.given, self.whole = [], False
        return shape_text(extents)

    def _perm(self, at: str) -> str:
        order = self.draw.shuffled(at, list(range(len(self.open))))
        self.open = [self.open[dim] for dim in order]
        return perm_text(order)

    def _region(self, at: str) -> str:
        extents = [whole.constant for whole in self.open]
        chosen = bounds(self.draw, at, extents)
        if self.tile not in ([], self.open) and self.draw.chance(f"{at}.tiles", 0.7):
            tile = [n.constant for n in self.tile]
            tiles = [whole // n for whole, n in zip(extents, tile, strict=True)]
            pairs = zip(bounds(self.draw, at, tiles), tile, strict=True)
            chosen = [(begin * n, end * n) for (begin, end), n in pairs]
        self.open, self.tile = [poly(end - begin) for begin, end in chosen], []
        return region_text(chosen)


def bounds(draw: Draw, at: str, extents: Sequence[int]) -> list[tuple[int, int]]:
    """A region of a shape."""
    begins = [draw.integer(f"{at}.b{n}", 0, whole - 1) for n, whole in enumerate(extents)]
    both = zip(begins, extents, strict=True)
    return [(b, draw.integer(f"{at}.e{n}", b + 1, whole)) for n, (b, whole) in enumerate(both)]


def by_roles(fn: Callable[..., Any], symbolic: bool = False) -> Callable[[Draw], Values]:
    """A sampler that draws every parameter of a law by its role, or by its sort."""
    hints = get_type_hints(fn, include_extras=True)
    roles = {name: (*get_args(hints[name])[1:], "")[:2] for name in signature(fn).parameters}
    used = {role for _, role in roles.values()}
    fixed = not used.isdisjoint(("region", "indices"))

    def sample(draw: Draw) -> Values:
        drawn = Roles(draw, symbolic, fixed, (1, 2, 3, 3) if "perm" in used else (1, 2, 2))
        return tuple(drawn.value(name, *wanted) for name, wanted in roles.items())

    return sample


# -- conditions of laws about grids ----------------------------------------------------------------


def _list_of(draw: Draw, at: str, symbolic: bool) -> tuple[Term, Any]:
    """A list of iters and its size."""
    chosen = items(draw, at, symbolic)
    symbol = t.SymIter if symbolic else t.Iter
    size = prod((poly(e) for e, _, _ in chosen), start=poly(1))
    return t.chain(symbol, t.NoIter(), chosen), size


def cut_inside(of: bool, draw: Draw) -> Values:
    """An iter that is longer than the first dim of a shape."""
    rest, size = _list_of(draw, "r", of)
    first, more = extent(draw, "e", of), extent(draw, "f", of)
    shape = shape_text([poly(first), *split_size(draw, "S", poly(more) * size)])
    e = number(poly(first) * poly(more), of)
    return e, stride(draw, "s", of), axis(draw, "a"), rest, shape


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


# An extent with names, and a window that is in it for all numbers, or for some only.
_INSIDE = (
    ("4", "1", "3"), ("n", "0", "1"), ("n", "0", "n"), ("n+2", "1", "n+1"), ("2*n", "n", "2*n"),
    ("k+n", "n", "k+n"), ("3", "0", "n"),
)  # fmt: skip
_STEPS = ("1", "5", "-2", "0", "n", "-k")


def digit_dim(draw: Draw) -> Values:
    """A dim of one digit with names before others, and a region."""
    e, begin, end = draw.pick("e", _INSIDE)
    roles = Roles(draw, False, True, (2,))
    rest, region = roles.value("g", t.GRID), roles.value("R", STR, "region")
    whole = ",".join(filter(None, (f"{begin}:{end}", str(region))))
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
