"""What layout terms make of the elements of unknown layouts, index by index.

At every index an expression is a sum: known coordinates, and elements of unknown layouts, each
times spans. Two expressions with the same sum at every index are the same map, whatever the unknown
layouts are. The converse does not hold: two sums may be equal for a reason that is not seen here.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

from axe_eq.errors import LayoutError
from axe_eq.layout.symbolic import terms as t
from axe_eq.layout.symbolic.check import check
from axe_eq.layout.symbolic.instances import names_in
from axe_eq.layout.symbolic.meaning import (
    MAX_ELEMENTS,
    Image,
    Meaning,
    chosen_elements,
    factor_pairs,
    permuted_elements,
    scaled,
    spans_of,
    sums,
)
from axe_eq.layout.symbolic.shapes import read_spans
from axe_eq.layout.value.indexing import flatten
from axe_eq.layout.value.swizzle import Swizzle
from axe_eq.rule.term import Symbol, Term, postorder

NOTHING: Image = frozenset([()])


class Weight(NamedTuple):
    """A product of spans: of known ones per axis, and of unknown ones, by their numbers."""

    known: tuple[tuple[str, int], ...] = ()
    unknown: tuple[int, ...] = ()

    def times(self, other: Weight) -> Weight:
        """The product of two."""
        spans = dict(self.known)
        for axis, span in other.known:
            spans[axis] = spans.get(axis, 1) * span
        return Weight(_spans(spans), tuple(sorted(self.unknown + other.unknown)))


ONE = Weight()


class Total(NamedTuple):
    """Known coordinates plus weighted elements, by their numbers."""

    known: Image
    parts: tuple[tuple[int, Weight], ...] = ()


Totals = tuple[Total, ...]


def same_elements(x: Term, y: Term) -> bool:
    """Whether two expressions without names are the same sum of elements at every index.

    Raises:
        LayoutError: an expression that may denote nothing, has names, or is none of the operations
            that act element by element.
    """
    if names_in([x, y]) or not (check(x).total and check(y).total):
        raise LayoutError("expression", "has names or may denote nothing", "numbers and layouts")
    elements = _Elements()
    return elements.of(x) == elements.of(y)


def _spans(spans: dict[str, int]) -> tuple[tuple[str, int], ...]:
    return tuple(sorted((axis, span) for axis, span in spans.items() if span != 1))


class _Elements:
    """Totals of terms; what is not known is numbered as it comes."""

    def __init__(self) -> None:
        self._numbers: dict[Hashable, int] = {}
        self._totals: dict[Term, Totals] = {}
        self._meaning = Meaning()

    def of(self, term: Term) -> Totals:
        """The total at every index of a layout term."""
        known = self._totals
        if term not in known:
            if any(sub.symbol is t.AnyLayout for sub in postorder(term)):
                rule = _RULES.get(term.symbol)
                if rule is None:
                    raise LayoutError("expression", f"has {term.symbol.name}", "element by element")
                if (check(term).elements.constant or 0) > MAX_ELEMENTS:
                    raise LayoutError("expression", "is too large", f"{MAX_ELEMENTS} elements")
                known[term] = rule(self, *term.args)
            else:
                images = self._meaning.of(term)
                if images is None:
                    raise LayoutError("expression", "denotes nothing", "a layout")
                known[term] = tuple(map(Total, images))
        return known[term]

    def number(self, what: Hashable) -> int:
        """The number of something unknown; equal things have one."""
        return self._numbers.setdefault(what, len(self._numbers))

    def element(self, *what: Hashable) -> Total:
        """The total of one unknown element."""
        return Total(NOTHING, ((self.number(what), ONE),))

    def shape(self, text: str) -> tuple[int, ...]:
        """The extents of a text."""
        return self._meaning.shape(text)

    # -- weights ----------------------------------------------------------------------------------

    def span(self, term: Term) -> Weight:
        """The span of a layout term."""
        if term.symbol is t.Tile:
            return self.span(term.args[0]).times(self.span(term.args[2]))
        if term.symbol in (t.Group, t.Permute):
            return self.span(term.args[0])
        if term.symbol is t.DirectSum:
            return self.span_sum(self.span(term.args[0]), self.span(term.args[2]))
        totals = frozenset(self.of(term))
        if any(total.parts for total in totals):
            return Weight((), (self.number(("span", totals)),))
        return Weight(_spans(spans_of([total.known for total in totals])))

    def span_sum(self, a: Weight, b: Weight) -> Weight:
        """The span of a sum of independent parts with these spans."""
        if a.unknown or b.unknown:
            return Weight((), (self.number(("span sum", tuple(sorted((a, b))))),))
        one, two = dict(a.known), dict(b.known)
        return Weight(_spans({k: one.get(k, 1) + two.get(k, 1) - 1 for k in {*one, *two}}))

    def weight(self, term: Term) -> Weight:
        """The weight of a term of sort `Spans`."""
        if term.symbol is t.Spans:
            return Weight(_spans({a: s.at({}) for a, s in read_spans(term.args[0]).items()}))
        if term.symbol is t.SpanOf:
            return self.span(term.args[0])
        if term.symbol in (t.SpanProduct, t.SpanSum):
            one, two = map(self.weight, term.args)
            return one.times(two) if term.symbol is t.SpanProduct else self.span_sum(one, two)
        raise LayoutError("expression", f"has {term.symbol.name}", "spans of layouts")

    def scaled(self, total: Total, weight: Weight) -> Total:
        """A total times a weight."""
        spans = dict(weight.known)
        known: Image = frozenset(scaled(point, spans) for point in total.known)
        parts = [(part, own.times(weight)) for part, own in total.parts]
        if weight.unknown and known != NOTHING:
            parts.append((self.number(("known", known)), Weight((), weight.unknown)))
            known = NOTHING
        return Total(known, tuple(sorted(parts)))


# -- operations ------------------------------------------------------------------------------------


def _any(e: _Elements, name: str, elements: str, bound: str) -> Totals:
    return tuple(e.element(name, elements, bound, index) for index in range(int(elements)))


def _group(e: _Elements, of: Term, shape: str) -> Totals:
    return e.of(of)


def _permute(e: _Elements, of: Term, shape: str, perm: str) -> Any:
    return permuted_elements(Meaning(), e.of(of), shape, perm) or _none("permutation")


def _slice(e: _Elements, of: Term, shape: str, region: str) -> Any:
    return chosen_elements(Meaning(), e.of(of), shape, region) or _none("region")


def _none(what: str) -> Any:
    raise LayoutError(what, "does not fit", "one of these elements")


def _sum(e: _Elements, a: Term, shape: str, b: Term, other: str) -> Totals:
    return _added(e.of(a), e.shape(shape), e.of(b), e.shape(other))


def _tile(e: _Elements, a: Term, shape: str, b: Term, other: str) -> Totals:
    weight = e.span(b)
    outer = tuple(e.scaled(total, weight) for total in e.of(a))
    return _added(outer, e.shape(shape), e.of(b), e.shape(other))


def _added(a: Totals, shape: Sequence[int], b: Totals, other: Sequence[int]) -> Totals:
    if (prod(shape), prod(other)) != (len(a), len(b)):
        _none("shape")
    return tuple(
        Total(frozenset(sums(a[x].known, b[y].known)), tuple(sorted(a[x].parts + b[y].parts)))
        for x, y in factor_pairs(tuple(shape), tuple(other))
    )


def _scale(e: _Elements, of: Term, by: Term) -> Totals:
    weight = e.weight(by)
    return tuple(e.scaled(total, weight) for total in e.of(of))


def _compose(e: _Elements, a: Term, b: Term) -> Totals:
    outer = e.of(a)
    return tuple(_at(e, outer, index) for index in e.of(b))


def _at(e: _Elements, outer: Totals, index: Total) -> Total:
    """The outer layout at an index that may be unknown, or have copies."""
    if index.parts or len(index.known) > 1:
        return e.element("at", outer, index)
    (point,) = index.known
    return outer[point[0][1] if point else 0]


def _swizzled(e: _Elements, axis: str, bits: int, base: int, shift: int, of: Term) -> Totals:
    found = []
    sw = Swizzle(axis, bits, base, shift)
    for total in e.of(of):
        if not bits:
            found.append(total)
        elif total.parts:
            found.append(e.element(sw, total))
        else:
            turned = ({**dict(p), axis: sw.apply(dict(p).get(axis, 0))} for p in total.known)
            image = frozenset(tuple(sorted((a, v) for a, v in p.items() if v)) for p in turned)
            found.append(Total(image))
    return tuple(found)


def _boxed(e: _Elements, box: Term, of: Term) -> Totals:
    dims = t.items_of(box, t.BoxDim)
    whole, padded = e.of(of), [extent for _, extent in dims]
    return tuple(whole[flatten(i, padded)] for i in product(*(range(n) for n, _ in dims)))


_RULES: dict[Symbol, Callable[..., Totals]] = {
    t.AnyLayout: _any,
    t.Group: _group,
    t.Permute: _permute,
    t.Slice: _slice,
    t.DirectSum: _sum,
    t.Tile: _tile,
    t.Scale: _scale,
    t.Compose: _compose,
    t.Swizzled: _swizzled,
    t.Boxed: _boxed,
}
