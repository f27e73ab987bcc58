"""Expressions that denote layouts: unknown layouts, symbolic numbers, operations on them.

An expression is a term of `axe_eq.layout.symbolic.terms`. What it denotes for each choice of its
names and unknown layouts is a map; whether iters compute that map is not asked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from axe_eq.errors import LayoutError
from axe_eq.layout.symbolic import terms as t
from axe_eq.layout.symbolic.check import Kind, Missing, check, unknowns
from axe_eq.layout.symbolic.facts import Facts
from axe_eq.layout.symbolic.instances import TEXTS, WEIGHTS, names_in
from axe_eq.layout.symbolic.polynomial import Polynomial, parse, poly
from axe_eq.layout.symbolic.shapes import perm_text, region_text, shape_text, spans_text
from axe_eq.layout.symbolic.show import show
from axe_eq.layout.value.check import check_axes, check_axis, listed
from axe_eq.layout.value.layout import Layout
from axe_eq.rule.term import Symbol, Term, mapped, postorder

Number = int | str | Polynomial
Shape = Sequence[Number]
Region = Sequence[tuple[Number, Number]]


class LayoutExpr:
    """A layout that is not one value: for all layouts and positive integers that it speaks of.

    Made by `any_layout`, `symbolic_layout` and `read_expression`, and by operations on these. Equal
    expressions are equal terms; whether two denote the same layouts is for `axe.equivalent` to say.

    >>> axe.read_expression("S[(n,8):(8@m,1@m)]").names
    ('n',)

    Args:
        term: a term of sort `Layout`.

    Raises:
        LayoutError: the term makes no sense, whatever its names are.
    """

    __slots__ = ("term",)

    term: Term

    def __init__(self, term: Term) -> None:
        self.term = term
        with suppress(Missing):  # it may follow from assumptions that come later
            check(term)
        unknowns([term])

    @property
    def kind(self) -> Kind:
        """What is known of it.

        Raises:
            LayoutError: it needs an assumption to make sense, which the error names.
        """
        found = check(self.term)
        assert isinstance(found, Kind)
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its numbers."""
        return tuple(sorted(names_in([self.term])))

    @property
    def unknowns(self) -> tuple[str, ...]:
        """The names of its unknown layouts."""
        return tuple(sorted(unknowns([self.term])))

    def group(self, shape: Shape) -> LayoutExpr:
        """The same layout, cut at the boundaries of a shape."""
        return LayoutExpr(t.Group(self.term, _shape(shape)))

    def permute(self, shape: Shape, perm: Iterable[int]) -> LayoutExpr:
        """The dims of a shape in another order: dim i of the result is dim ``perm[i]``."""
        return LayoutExpr(t.Permute(self.term, _shape(shape), perm_text(perm)))

    def slice(self, shape: Shape, region: Region) -> LayoutExpr:
        """The elements of a region, ``(begin, end)`` per dim of a shape."""
        pairs = [tuple(listed("region", pair)) for pair in listed("region", region)]
        if any(len(pair) != 2 for pair in pairs):
            raise LayoutError("region", f"{region!r}", "a pair (begin, end) per dim")
        bounds = [(_number(begin), _number(end)) for begin, end in pairs]
        return LayoutExpr(t.Slice(self.term, _shape(shape), region_text(bounds)))

    def inverse(self, axes: Sequence[str]) -> LayoutExpr:
        """The layout from coordinates on these axes, row-major, to logical indices."""
        return LayoutExpr(t.Inverse(self.term, ",".join(check_axes(axes))))

    def __eq__(self, other: object) -> bool:
        return self.term is other.term if isinstance(other, LayoutExpr) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.term)

    def __str__(self) -> str:
        return show(self.term)

    def __repr__(self) -> str:
        return f"expression({str(self)!r})"


# -- making ----------------------------------------------------------------------------------------


def any_layout(name: str, elements: Number, *, below: Number | None = None) -> LayoutExpr:
    """Any layout with so many elements.

    >>> print(axe.any_layout("L", "4*n").permute((4, "n"), (1, 0)))
    permute(L[4*n], (4,n), (1,0))

    Args:
        name: of the layout; one name is one layout wherever it occurs.
        elements: how many it has; an integer, or text such as ``"4*n"``.
        below: where given, the layout lies on axis m with coordinates in ``[0, below)``: its
            coordinates can be indices of another.
    """
    bound = "" if below is None else str(_number(below))
    return LayoutExpr(t.AnyLayout(name, str(_number(elements)), bound))


def symbolic_layout(
    shard: Iterable[Sequence[Any]] = (),
    replica: Iterable[Sequence[Any]] = (),
    offset: Mapping[str, Number] | None = None,
) -> LayoutExpr:
    """A layout with numbers that are polynomials in names, each any positive integer.

    >>> print(axe.symbolic_layout([("n", 8), (8, 1)]))
    S[(n,8):(8@m,1@m)]

    Args:
        shard: ``(extent, stride, axis)`` as for `Layout`; numbers may be texts, ``"4*n"``.
        replica: the same.
        offset: axis -> value.

    Raises:
        LayoutError: an extent below 1, or a text that is no number.
    """
    points = [_iter(item) for item in listed("shard", shard)]
    copies = [_iter(item) for item in listed("replica", replica)]
    shifts = {check_axis(axis): _number(value) for axis, value in (offset or {}).items()}
    plain = _concrete(points), _concrete(copies), _concrete([(v, 0, a) for a, v in shifts.items()])
    if None not in plain:
        moved = {axis: value for value, _, axis in plain[2] or ()}
        return expression(Layout(plain[0] or (), plain[1] or (), moved))
    texts = [[(str(e), str(s), a) for e, s, a in part] for part in (points, copies)]
    rest = t.chain(t.SymCopy, t.Here(), texts[1])
    moves = [(str(value), axis) for axis, value in sorted(shifts.items()) if value != 0]
    return LayoutExpr(
        t.Map(t.chain(t.SymIter, t.NoIter(), texts[0]), t.chain(t.SymShift, rest, moves))
    )


def _concrete(items: Iterable[tuple[Any, Any, str]]) -> list[tuple[int, int, str]] | None:
    """The items in integers; None where one has names."""
    found = [(poly(e).constant, poly(s).constant, a) for e, s, a in items]
    if any(e is None or s is None for e, s, _ in found):
        return None
    return found  # type: ignore[return-value]


def _iter(item: Sequence[Any]) -> tuple[Polynomial, Polynomial, str]:
    parts = tuple(listed("iter", item))
    if len(parts) not in (2, 3):
        raise LayoutError(f"iter {item!r}", "not a triple", "(extent, stride, axis)")
    extent, stride, *axis = parts
    return _number(extent), _number(stride), check_axis(axis[0] if axis else "m")


def _number(value: Number) -> Polynomial:
    if isinstance(value, bool) or not isinstance(value, int | str | Polynomial):
        raise LayoutError(f"number {value!r}", "is none", "an integer or a text such as 4*n")
    return poly(value)


def _shape(shape: Shape) -> str:
    return shape_text(map(_number, listed("shape", shape)))


def expression(value: LayoutExpr | Layout) -> LayoutExpr:
    """A layout as an expression."""
    return value if isinstance(value, LayoutExpr) else LayoutExpr(t.encode(value))


def pair(symbol: Symbol, a: Any, shape_a: Shape, b: Any, shape_b: Shape) -> LayoutExpr:
    """An operation on two layouts with shapes."""
    one, two = expression(a).term, expression(b).term
    return LayoutExpr(symbol(one, _shape(shape_a), two, _shape(shape_b)))


def composition(a: Any, b: Any) -> LayoutExpr:
    """``x -> a(b(x))``."""
    return LayoutExpr(t.Compose(expression(a).term, expression(b).term))


# -- numbers under assumptions ---------------------------------------------------------------------

_CONCRETE = {t.SymIter: t.Iter, t.SymCopy: t.Copy, t.SymShift: t.Shift, t.SymPrepend: t.Prepend}
_SYMBOLIC = {concrete: symbolic for symbolic, concrete in _CONCRETE.items()}
# Symbol -> how many of its arguments, from the first on, are numbers.
_NUMBERS = {t.Iter: 2, t.Copy: 2, t.Shift: 1, t.Prepend: 2}


def settle(terms: Sequence[Term], facts: Facts) -> list[Term]:
    """Terms under assumptions: polynomials throughout where any is left, else integers.

    Raises:
        LayoutError: a quotient of integers that is none.
    """
    changed = [mapped(term, lambda sub: _assumed(sub, facts)) for term in terms]
    symbolic = bool(names_in(changed)) or any("(" in _quotients(term) for term in changed)
    return [mapped(term, _to_symbolic if symbolic else _to_concrete) for term in changed]


def _assumed(term: Term, facts: Facts) -> Term:
    args = list(term.args)
    for place in TEXTS.get(term.symbol, ()):
        parts = args[place].split(",") if args[place] else []
        args[place] = ",".join(
            ":".join(str(facts.apply(parse(number))) for number in part.split(":"))
            for part in parts
        )
    if term.symbol in WEIGHTS:
        place = WEIGHTS[term.symbol]
        spans = (part.partition(":") for part in args[place].split(",") if part)
        args[place] = spans_text({axis: facts.apply(parse(span)) for axis, _, span in spans})
    return Term(term.symbol, tuple(args))


def _quotients(term: Term) -> str:
    """The texts of all numbers in a term."""
    texts = [sub.args[place] for sub in postorder(term) for place in TEXTS.get(sub.symbol, ())]
    return " ".join(texts)


def _to_symbolic(term: Term) -> Term:
    symbol = _SYMBOLIC.get(term.symbol)
    if symbol is None:
        return term
    count = _NUMBERS[term.symbol]
    return symbol(*map(str, term.args[:count]), *term.args[count:])


def _to_concrete(term: Term) -> Term:
    symbol = _CONCRETE.get(term.symbol)
    if symbol is None:
        return term
    count = _NUMBERS[symbol]
    return symbol(*map(int, term.args[:count]), *term.args[count:])
