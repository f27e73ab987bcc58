"""Layouts as terms: iter lists as cons lists, so that laws can speak about parts of a layout.

``encode`` and ``decode`` are inverse; decoding a term that is no layout raises the error of the
layout's own constructor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from axe_eq.errors import LayoutError
from axe_eq.layout.iters import Iters
from axe_eq.layout.swizzle import Swizzle
from axe_eq.layout.value import Layout as LayoutValue
from axe_eq.rule.term import INT, STR, Sort, Symbol, Term

LAYOUT = Sort("Layout")
ITERS = Sort("Iters")
OFFSETS = Sort("Offsets")
SWIZZLES = Sort("Swizzles")
BOX = Sort("Box")

LayoutTerm = Annotated[Any, LAYOUT]
IterList = Annotated[Any, ITERS]

Map = Symbol("Map", (ITERS, ITERS, OFFSETS, SWIZZLES, BOX), LAYOUT)  # D, R, O, swizzles, box
NoIter = Symbol("NoIter", (), ITERS)
Iter = Symbol("Iter", (INT, INT, STR, ITERS), ITERS)  # extent, stride, axis, faster iters
NoOffset = Symbol("NoOffset", (), OFFSETS)
Offset = Symbol("Offset", (INT, STR, OFFSETS), OFFSETS)
NoSwizzle = Symbol("NoSwizzle", (), SWIZZLES)
Swizzled = Symbol("Swizzled", (STR, INT, INT, INT, SWIZZLES), SWIZZLES)  # axis, bits, base, shift
NoBox = Symbol("NoBox", (), BOX)
BoxEnd = Symbol("BoxEnd", (), BOX)
BoxDim = Symbol("BoxDim", (INT, INT, BOX), BOX)  # logical extent, padded extent, faster dims

SYMBOLS = (
    Map, NoIter, Iter, NoOffset, Offset, NoSwizzle, Swizzled, NoBox, BoxEnd, BoxDim,
)  # fmt: skip


def iters(items: Iters) -> Term:
    """The term of an iter list."""
    return _cons(Iter, NoIter(), items)


def encode(layout: LayoutValue) -> Term:
    """The term of a layout."""
    box = NoBox()
    if layout.box is not None and layout.padded is not None:
        box = _cons(BoxDim, BoxEnd(), list(zip(layout.box, layout.padded, strict=True)))
    return Map(
        iters(layout.shard),
        iters(layout.replica),
        _cons(Offset, NoOffset(), [(value, axis) for axis, value in layout.offsets]),
        _cons(Swizzled, NoSwizzle(), layout.swizzle),
        box,
    )


def _cons(symbol: Symbol, empty: Term, items: Sequence[tuple[Any, ...]]) -> Term:
    result = empty
    for item in reversed(items):
        result = symbol(*item, result)
    return result


def decode(term: Term) -> LayoutValue:
    """The layout of a term.

    Raises:
        LayoutError: the term is not a layout.
    """
    if term.symbol is not Map:
        raise LayoutError("layout term", f"is {term.symbol.name}", "Map")
    shard, replica, offsets, swizzles, box = (_items(part) for part in term.args)
    boxed = term.args[4].symbol is not NoBox
    axes = [axis for _, axis in offsets]
    if len(set(axes)) < len(axes):
        raise LayoutError("layout term", f"offsets on {axes}", "one offset per axis")
    return LayoutValue(
        shard,
        replica,
        {axis: value for value, axis in offsets},
        [Swizzle(*item) for item in swizzles],
        tuple(logical for logical, _ in box) if boxed else None,
        tuple(padded for _, padded in box) if boxed else None,
    )


def _items(term: Term) -> list[tuple[Any, ...]]:
    found = []
    while term.args:
        found.append(term.args[:-1])
        term = term.args[-1]
    return found
