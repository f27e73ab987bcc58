"""Compositions in expressions whose inner layout is written out, with swizzles or boxes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

import axe_eq as axe
from axe_eq.errors import AxeError, LayoutError
from axe_eq.layout import Layout
from axe_eq.layout.symbolic import terms as t
from axe_eq.layout.symbolic.check import check
from axe_eq.prove.certificates.verdict import Proved, Refuted, Unknown
from tests.property.layout_model import AXES, BOX, NESTED, SWIZZLE
from tests.property.test_layout_maps import random_layout


def composed(elements: int, inner: Layout) -> Any:
    """A composition of any layout with so many elements, as a term."""
    return t.Compose(t.AnyLayout("A", str(elements), ""), t.encode(inner))


def test_it_is_known_which_indices_a_written_layout_reaches(campaign: Callable[..., Any]) -> None:
    """An outer layout with as many elements as are reached will do, and one with fewer not."""
    run = campaign("inner layouts", SWIZZLE, BOX, NESTED, AXES, every=False, part=100)
    for maker in run.cases():
        inner = random_layout(maker.random)
        run.met(inner)
        points = [dict(place) for x in range(inner.size) for place in inner(x)]
        axes = {axis for point in points for axis in point}
        low = min((value for point in points for value in point.values()), default=0)
        if len(axes) > 1 or low < 0:
            run.saw("refused")
            with pytest.raises(LayoutError):
                check(composed(2**40, inner))
            continue
        run.saw("indices")
        top = max((value for point in points for value in point.values()), default=0)
        if top < 2**40:
            assert check(composed(top + 1, inner)).elements == inner.size
        if 0 < top < 2**40:
            with pytest.raises(LayoutError, match=f"them below {top}, the elements"):
                check(composed(top, inner))


INNER = [
    "box[(5)] in S[(2,4):(4,1)]",
    "sw(1,0,1) . S[8:1]",
    "box[(3,2) of (4,2)] in S[(4,2):(1,4)]",
    "box[(4,2) of (4,3)] in S[(4,3):(2,1)] + R[2:8]",
]
OUTER = [Layout([(16, 3)]), Layout([(4, 1), (4, 4)]), Layout([(20, 1)], [(2, 40)])]


@pytest.mark.parametrize("text", INNER)
def test_they_are_proved_and_refuted(text: str) -> None:
    inner, said = Layout.parse(text), {Proved: 0, Refuted: 0}
    for outer in OUTER:
        meant = [
            frozenset().union(*(outer(dict(place).get("m", 0)) for place in inner(x)))
            for x in range(inner.size)
        ]
        candidates = [inner, Layout([(inner.size, 3)]), Layout([(inner.size, 1)], [(2, 40)])]
        with suppress(LayoutError):
            candidates.append(axe.compose(outer, inner))
        for other in candidates:
            same = [other(x) for x in range(inner.size)] == meant
            verdict = axe.equivalent(f'compose({outer},"axe:{inner}")', other)
            assert isinstance(verdict, Proved if same else Refuted), f"{outer} {other} {verdict}"
            said[type(verdict)] += 1
    assert min(said.values()) > 0


def test_slices_of_written_layouts_reach_what_they_reach() -> None:
    for begin, end in ((0, 4), (2, 5), (7, 8)):
        left = f"compose(A[{end}],slice(S[8:1],(8),({begin}:{end})))"
        assert isinstance(axe.equivalent(left, f"slice(A[{end}],({end}),({begin}:{end}))"), Proved)
    with pytest.raises(AxeError, match="inner indices below 6; expected them below 5, the el"):
        axe.equivalent("compose(A[5],slice(S[8:1],(8),(2:6)))", "A[4]")


def test_what_may_hold_is_no_error() -> None:
    """The bound of a composition is that of its outer layout, which it may not reach."""
    verdict = axe.equivalent("compose(A[4],compose(I[8 below 8],S[4:1]))", "A[4]")
    assert isinstance(verdict, Unknown)
    assert str(verdict) == (
        "Unknown: the assumption that the inner indices, known to be below 8, are below 4, the "
        "elements of the outer layout, which composition needs"
    )
