"""Axes on which no element is away from 0: an inner layout and an inverse do not mind them."""

from __future__ import annotations

import pytest

from axe_eq.errors import LayoutError
from axe_eq.layout import Layout, complement, compose, left_inverse, right_inverse

STILL = [  # the same places as 0 to size - 1 on m, with a p that moves nothing
    "S[(1,4):(1@p,1@m)]",
    "S[(4,1):(1@m,-7@p)]",
    "S[4:1] + R[1:6@p]",
    "S[4:1] + R[5:0@p]",
    "box[(1,4) of (2,4)] in S[(2,4):(1@p,1)]",
    "box[(4,1) of (4,2)] in S[(4,2):(1,1@p)]",
    "sw(1,0,1)@p . S[4:1]",
    "box[(1,4) of (2,4)] in sw(1,0,1)@p . S[(2,4):(1@p,1)]",
    "box[(1,2,2) of (3,2,2)] in box[(3,2,2) of (3,2,4)] in S[(3,2,4):(1@p,2,1)]",
]
OUTER = ["S[8:1]", "S[(2,2,2):(1,2,4)]", "S[(4,2):(1@q,5)] + R[2:30@q] + 2@q"]


def images(layout: Layout) -> list[frozenset[tuple[tuple[str, int], ...]]]:
    return [layout(x) for x in range(layout.size)]


@pytest.mark.parametrize("text", STILL)
@pytest.mark.parametrize("outer", OUTER)
def test_composition(text: str, outer: str) -> None:
    a, b = Layout.parse(outer), Layout.parse(text)
    assert b.moving() == ("m",)
    found = images(compose(a, b))
    places = [dict(place) for x in range(4) for place in b(x)]
    assert found == [a(place.get("m", 0)) for place in places]


@pytest.mark.parametrize("text", STILL)
def test_inverse(text: str) -> None:
    for axes in ((), ("m",), ("p", "m"), ("m", "p")):
        back = Layout.parse(text).inverse(axes)
        axis = axes[0] if axes else "m"
        assert images(back) == [frozenset([((axis, x),) if x else ()]) for x in range(4)]


def test_an_element_that_is_away_on_another_axis() -> None:
    away = Layout.parse("S[1:1] + 3@p")
    assert compose(Layout.parse("S[8:2@q]"), away)(0) == frozenset([(("q", 6),)])
    with pytest.raises(LayoutError, match=r"axes \('m', 'p'\); expected an inner layout on one"):
        compose(Layout.parse("S[8:2@q]"), Layout.parse("S[1:1] + 1@m + 3@p"))
    with pytest.raises(LayoutError, match=r"axes \('m', 'p'\); expected one axis"):
        Layout.parse("S[(2,2):(1@p,1)]").inverse()
    with pytest.raises(LayoutError, match="a box or replicas"):
        Layout.parse("box[(3,3) of (4,3)] in S[(2,2,3):(3,7,1)]").inverse()


def test_swizzles_of_an_axis_and_behind_a_box_are_undone() -> None:
    for text in ("sw(1,0,1)@p . sw(1,0,1) . S[(1,4):(1@p,1)]",
                 "box[(1,4) of (2,4)] in sw(1,0,1) . S[(2,4):(1@p,1)]"):  # fmt: skip
        layout = Layout.parse(text)
        back = layout.inverse()
        indices = [dict(place).get("m", 0) for c in range(4) for place in back(c)]
        assert [layout(x) for x in indices] == images(Layout.parse("S[4:1]"))


def test_what_is_left_free() -> None:
    with_p, without = Layout.parse("S[(1,4):(1@p,2)]"), Layout.parse("S[4:2]")
    assert complement(with_p, 16) == complement(without, 16)
    assert left_inverse(with_p) == left_inverse(without)
    assert right_inverse(with_p) == right_inverse(without)
