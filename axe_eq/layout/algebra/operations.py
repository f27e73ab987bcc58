"""The operations on layouts as users call them: on layouts, on their texts, and on expressions.

On layouts and texts of layouts the result is a layout, computed at once. Where a part is unknown or
has symbolic numbers the result is an expression, about which `axe.equivalent` can be asked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Protocol, overload

from axe_eq.errors import LayoutError
from axe_eq.layout.algebra import composition, partial_inverse, products
from axe_eq.layout.symbolic import expression, terms
from axe_eq.layout.symbolic.expression import LayoutExpr
from axe_eq.layout.symbolic.text import read_layout
from axe_eq.layout.value.check import listed
from axe_eq.layout.value.layout import Layout
from axe_eq.rule.term import Symbol

Shape = Sequence[Any]
Known = Layout | str


class Operation(Protocol):
    """An operation on two layouts with shapes; an expression where one of them is no value."""

    @overload
    def __call__(self, a: Known, shape_a: Shape, b: Known, shape_b: Shape) -> Layout: ...
    @overload
    def __call__(
        self, a: Known | LayoutExpr, shape_a: Shape, b: Known | LayoutExpr, shape_b: Shape
    ) -> Any: ...


def _on_expressions_too(
    symbol: Symbol, compute: Callable[..., Layout]
) -> Callable[[Callable[..., Any]], Operation]:
    """Decorator: what an operation says is computed on layouts, and written down on others."""

    def declare(fn: Callable[..., Any]) -> Operation:
        @wraps(fn)
        def run(a: Any, shape_a: Shape, b: Any, shape_b: Shape) -> Any:
            shape_a, shape_b = tuple(listed("shape", shape_a)), tuple(listed("shape", shape_b))
            one, two = read_layout(a), read_layout(b)
            if isinstance(one, Layout) and isinstance(two, Layout):
                return compute(one, shape_a, two, shape_b)
            return expression.pair(symbol, one, shape_a, two, shape_b)

        return run

    return declare


@_on_expressions_too(terms.Tile, products.tile)
def tile(a: Any, shape_a: Shape, b: Any, shape_b: Shape) -> Any:
    """The tiled layout: ``T(x, y) = A(x) * span(B) + B(y)``, A outside (Axe 3.3, Theorem C.2).

    >>> print(axe.tile("S[(2):(1@warp)]", (2,), "S[(4):(1@lane)]", (4,)))
    S[(2,4):(1@warp,1@lane)]

    Args:
        a: the outer layout, its text, or an expression.
        shape_a: a shape of it.
        b: the inner layout.
        shape_b: a shape of it, of the same rank.

    Raises:
        LayoutError: a shape does not group its layout, the ranks differ, the result does not fit in
            63 bits, or a swizzle would not stay one.
    """


@_on_expressions_too(terms.DirectSum, products.direct_sum)
def direct_sum(a: Any, shape_a: Shape, b: Any, shape_b: Shape) -> Any:
    """The unscaled tile: ``S(x, y) = A(x) + B(y)`` on the same domain (Axe F.1).

    Arguments and errors as for `tile`.

    >>> print(axe.direct_sum("S[(2):(1@m)]", (2,), "S[(3):(2@m)]", (3,)))
    S[(2,3):(1@m,2@m)]
    """


@_on_expressions_too(terms.TileOf, products.tile_of)
def tile_of(a: Any, shape_a: Shape, b: Any, shape_b: Shape) -> Any:
    """The layout C with ``tile(C, shape_a / shape_b, b, shape_b) = a``. Complete.

    >>> print(axe.tile_of("S[(2,4):(4@m,1@m)]", (8,), "S[(4):(1@m)]", (4,)))
    S[(2):(1@m)]

    Raises:
        LayoutError: there is none, with the reason and the first index that breaks.
        SearchError: undecided, a replica list off the gap condition spans over 2**24.
    """


@_on_expressions_too(terms.LeftAddend, products.direct_sum_left)
def direct_sum_left(a: Any, shape_a: Shape, b: Any, shape_b: Shape) -> Any:
    """The left addend: C with ``direct_sum(C, shape_a / shape_b, b, shape_b) = a``. Complete.

    >>> print(axe.direct_sum_left("S[(2,3):(1@m,2@m)]", (6,), "S[(3):(2@m)]", (3,)))
    S[(2):(1@m)]

    Raises:
        LayoutError: there is none, with the reason and the first index that breaks.
        SearchError: as `tile_of`.
    """


@_on_expressions_too(terms.RightAddend, products.direct_sum_right)
def direct_sum_right(a: Any, shape_a: Shape, b: Any, shape_b: Shape) -> Any:
    """The right addend: C with ``direct_sum(b, shape_b, C, shape_a / shape_b) = a``. Complete.

    >>> print(axe.direct_sum_right("S[(2,3):(1@m,2@m)]", (6,), "S[(2):(1@m)]", (2,)))
    S[(3):(2@m)]

    Raises:
        LayoutError: there is none, with the reason and the first index that breaks.
        SearchError: as `tile_of`.
    """


@overload
def compose(a: Known, b: Known) -> Layout: ...
@overload
def compose(a: Known | LayoutExpr, b: Known | LayoutExpr) -> Any: ...
def compose(a: Any, b: Any) -> Any:
    """The layout ``x -> A(B(x))``: B moves on one axis, in indices of A. Complete.

    An element with several copies in B has the union of their images. Indices past the size of A
    continue its slowest iter, as CuTe reads a layout; not so in expressions.

    >>> print(axe.compose("S[(4,8):(8@m,1@m)]", "S[(8,4):(1@m,8@m)]"))
    S[(8,4):(1@m,8@m)]

    Args:
        a: the outer layout, its text, or an expression; its swizzles stay in front.
        b: the inner one, away from 0 on at most one axis, with coordinates of at least 0.

    Raises:
        LayoutError: B moves on several axes or has an index that A has no iter for, or no layout
            computes the composition, with the first index that breaks.
        SearchError: undecided, over 2**22 points where iters of B carry over those of A.

    Source: CuTe composition; here without its divisibility conditions.
    """
    one, two = read_layout(a), read_layout(b)
    if isinstance(one, Layout) and isinstance(two, Layout):
        return composition.compose(one, two)
    return expression.composition(one, two)


def complement(layout: Known, size: int) -> Layout:
    """`axe_eq.layout.complement` of a layout or its text.

    >>> print(axe.complement("S[(4):(2@m)]", 16))
    S[(2,2):(8@m,1@m)]
    """
    return partial_inverse.complement(_value(layout), size)


def left_inverse(layout: Known) -> Layout:
    """`axe_eq.layout.left_inverse` of a layout or its text.

    >>> print(axe.left_inverse("S[(2,3):(1@m,2@m)]"))
    S[(3,2):(1@m,3@m)]
    """
    return partial_inverse.left_inverse(_value(layout))


def right_inverse(layout: Known) -> Layout:
    """`axe_eq.layout.right_inverse` of a layout or its text.

    >>> print(axe.right_inverse("S[(2,3):(1@m,2@m)]"))
    S[(3,2):(1@m,3@m)]
    """
    return partial_inverse.right_inverse(_value(layout))


def _value(value: Any) -> Layout:
    found = read_layout(value)
    if not isinstance(found, Layout):
        raise LayoutError(f"layout {found}", "is an expression", "a layout without unknowns")
    return found
