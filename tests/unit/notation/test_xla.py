"""XLA texts: every element where XLA's own index formula puts it, written back shortest."""

from __future__ import annotations

import itertools
from math import prod

import pytest

from axe_eq.errors import NotationError
from axe_eq.layout import Layout
from axe_eq.layout.notation import read, read_any, write


@pytest.mark.parametrize(
    ("text", "axe"),
    [
        ("f32[3,5]", "S[(3,5):(5,1)]"),
        ("F32[3,5]{0,1}", "S[(3,5):(1,3)]"),
        ("f32[3,5]{1,0:T(2,2)}", "box[(3,5)] in S[(2,2,3,2):(12,2,4,1)]"),
        ("f32[]", "S[():()]"),
        ("f32[]{:T(128)}", "box[(1)] in S[(128):(1)]"),
        ("f32[5]{0:T(1,128)}", "box[(5)] in S[(128):(1)]"),
        ("bf16[256]{0:T(256)(128)(2,1)}", "S[(2,128):(1,2)]"),
        ("bf16[16,256]{1,0:T(8,128)(2,1)}", "S[(2,4,2,2,128):(2048,256,1,1024,2)]"),
        ("bf16[2,3,4]{2,1,0:T(*,6,4)}", "S[(2,3,4):(12,4,1)]"),
        ("s4[4]{0:D(D)E(4)S(0)L(2)}", "S[4:1]"),
        ("f32[8]{0:T(4)S(1)}", "S[(8):(1@S1)]"),
        ("f32[]{:T(4)(2)(*,2)}", "box[(1)] in S[(2,2):(2,1)]"),
        ("f32[2,6]{1,0:T(*,3)(*,*,4)(3,1)}", "S[(3,4):(1,3)]"),
        ("f32[6,6]{1,0:T(2,3)(3,2)}", "box[(3,2,2,3)] in S[(3,3,2,2,2):(24,2,12,6,1)]"),
    ],
)
def test_read(text: str, axe: str) -> None:
    layout, expected = read("xla", text), Layout.parse(axe)
    assert (layout.axes, layout.size) == (expected.axes, expected.size)
    assert all((layout.table(axis) == expected.table(axis)).all() for axis in layout.axes)
    assert layout.footprint == expected.footprint


def test_the_note_s_example_is_element_17() -> None:
    layout = read_any("xla:F32[3,5]{1,0:T(2,2)}")
    assert layout((2, 3)) == {(("m", 17),)}
    assert (layout.box, layout.footprint) == ((3, 5), {"m": 24})


def test_padding_inside_padding_is_a_box_in_a_box() -> None:
    layout = read("xla", "f32[5,5]{1,0:T(3,3)(2,2)}")
    assert str(layout) == (
        "box[(5,5) of (6,6)] in box[(2,6,3) of (2,8,4)] in "
        "S[(2,2,2,2,2,2):(32@m,8@m,2@m,16@m,4@m,1@m)]"
    )
    inner = {
        (i, j): i // 2 * 8 + j // 2 * 4 + i % 2 * 2 + j % 2 for i in range(3) for j in range(3)
    }
    for i, j in itertools.product(range(5), range(5)):
        place = i // 3 * 32 + j // 3 * 16 + inner[i % 3, j % 3]
        assert layout((i, j)) == {((("m", place),) if place else ())}
    assert layout.footprint == {"m": 64}
    assert read("xla", write("xla", layout)) == layout


@pytest.mark.parametrize(
    ("text", "last"),
    [
        ("f32[9]{0:T(8)(3)(5)}", 15),
        ("f32[1001,1000]{1,0:T(8,128)(3,1)}", 1160373),
        ("f32[5,9]{0,1:T(*,3)(1,4)}", 58),
        ("f32[1001,999]{0,1:T(*,7)(2,4)}", 1142858),
    ],
)
def test_tiles_that_do_not_line_up(text: str, last: int) -> None:
    layout = read("xla", text)
    assert Layout.parse(str(layout)) == layout
    assert layout(layout.size - 1) == {(("m", last),)}


@pytest.mark.parametrize(
    ("axe", "shape", "text"),
    [
        ("S[(3,5):(5,1)]", (3, 5), "f32[3,5]{1,0}"),
        ("S[(3,5):(5,1)]", None, "f32[15]{0}"),
        ("S[():()]", (), "f32[]"),
        ("S[(2,3,4):(1,2,6)]", (2, 3, 4), "f32[2,3,4]{0,1,2}"),
        ("S[(128,8,4,128):(4096,128,1024,1)]", (1024, 512), "f32[1024,512]{1,0:T(8,128)}"),
        ("S[(2,4,2,2,128):(2048,256,1,1024,2)]", (16, 256), "f32[16,256]{1,0:T(8,128)(2,1)}"),
        ("box[(3,5)] in S[(2,2,3,2):(12,2,4,1)]", None, "f32[3,5]{1,0:T(2,2)}"),
        ("S[(4,3):(8,1)]", (4, 3), "f32[4,3]{1,0:T(4,8)}"),
        ("S[(4):(3)]", None, "f32[4]{0:T(1)(3)}"),
        ("S[(8,3):(1,8)]", (4, 6), "f32[4,6]{1,0:T(3)(4,2,1)}"),
        ("S[(4,2,2):(16,3,1)]", (4, 2, 2), "f32[4,2,2]{2,1,0:T(4,2,3)(*,16)}"),
        ("S[(2,3):(7,2)]", (2, 3), "f32[2,3]{1,0:T(1)(2)(*,*,7)}"),
        ("S[(8):(1@S5)]", None, "f32[8]{0:S(5)}"),
        ("box[(2,3)] in S[(2,4):(4,1)]", (3, 2), "f32[3,2]{1,0:T(*,3)(4)}"),
        ("S[(2,2,2):(1,2,4)]", (8,), "f32[8]{0:T(4)(2)(2,1)(2,1,1,1,1)}"),
    ],
)
def test_written(axe: str, shape: tuple[int, ...] | None, text: str) -> None:
    layout = Layout.parse(axe)
    assert write("xla", layout, shape=shape) == text
    again = read("xla", text)
    assert (again.axes, again.size) == (layout.axes, layout.size)
    assert all((again.table(axis) == layout.table(axis)).all() for axis in layout.axes)


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_every_order_of_digits_can_be_written(order: tuple[int, ...]) -> None:
    extents = (2, 3, 4, 2)
    strides = [0] * 4
    for place, digit in enumerate(order):
        strides[digit] = prod(extents[d] for d in order[place + 1 :])
    layout = Layout([(e, s, "m") for e, s in zip(extents, strides, strict=True)])
    for shape in ((48,), (6, 8), (2, 12, 2), (4, 12)):
        again = read("xla", write("xla", layout, shape=shape), shape=shape)
        assert list(again.table("m")) == list(layout.table("m"))


@pytest.mark.parametrize(
    ("axe", "wrong"),
    [
        ("S[(4):(0)]", "stride 0, and tiles only have positive ones"),
        ("S[(4):(-1)]", "stride -1, and tiles only have positive ones"),
        ("S[(4,4):(2,1)]", "strides 2 and 1 interleave"),
        ("S[(4,4):(6,4)]", "strides 6 and 4 interleave"),
        ("S[(4):(1)] + 3", "offset 3"),
        ("S[(4):(1@lane)]", "axis lane"),
        ("S[(4):(1)] + R[(2):(8)]", "an element has several places"),
        ("sw(5,0,5)@m . S[1024:1]", "swizzle sw(5,0,5)@m"),
    ],
)
def test_what_xla_cannot_express(axe: str, wrong: str) -> None:
    with pytest.raises(NotationError) as refused:
        write("xla", Layout.parse(axe))
    assert refused.value.wrong == wrong


CROSSING = [
    "f32[3,3]{0,1:T(3,3)(*,*,2)(1,4)}",
    "f32[1,6]{0,1:T(4,2)(3,*,3)(1,3)}",
    "f32[2,5,3]{1,2,0:T(*,2,3)(*,1,4)}",
    "f32[3,5]{0,1:T(*,2)(3,1,2)(*,3)}",
    "f32[4,3,3]{2,0,1:T(*,3,1)(3,2,4)}",
    "f32[6,4]{0,1:T(3,4)(*,2,2)(1,4)}",
    "f32[2,3]{1,0:T(3,2)(2,*,3)(2,2)}",
    "f32[1,5]{0,1:T(4,3)(2,*,4)(3,3)}",
]


@pytest.mark.parametrize("text", CROSSING)
def test_digits_that_cross_are_written_back(text: str) -> None:
    """From the boxes box by box, from the canonical form, which has other ones, by search."""
    layout = read("xla", text)
    assert any(stage.order for stage in layout.inner)
    for form in (layout, layout.canonical()):
        again = read("xla", write("xla", form, shape=layout.box), shape=layout.box)
        assert list(again.table("m")) == list(layout.table("m"))


def test_large_arrays_whose_tiles_cross_are_written_from_their_boxes() -> None:
    layout = read("xla", "f32[1001,999]{0,1:T(*,7)(2,4)}")
    again = read("xla", write("xla", layout))
    assert [again((i, j)) for i in (0, 500, 1000) for j in (0, 1, 998)] == [
        layout((i, j)) for i in (0, 500, 1000) for j in (0, 1, 998)
    ]


@pytest.mark.parametrize(
    "axe", ["S[(2,2):(3,2)]", "S[(3,3):(5,4)]", "S[(8,4):(6,5)]", "sw(1,0,1)@m . S[4:1]"]
)
def test_crossing_digits_of_any_layout_have_tiles_where_they_are_found(axe: str) -> None:
    layout = Layout.parse(axe)
    assert list(read("xla", write("xla", layout)).table("m")) == list(layout.table("m"))


def test_the_search_says_where_it_ends() -> None:
    with pytest.raises(NotationError, match="6 and 5 interleave, and no tiles are found in 2048"):
        write("xla", Layout.parse("S[(1000,5):(6,5)]"))
    with pytest.raises(NotationError, match="interleave, and tiles are searched for up to 65536"):
        write("xla", Layout.parse("S[(20000,5):(6,5)]"))


def test_the_asterisk_of_xla_s_own_page_combines_dims_too() -> None:
    """Its page on tiled layouts prints U+2217, and the compiler `*`."""
    for star in ("f32[2,3,4]{2,1,0:T(*,2)}", "f32[2,7,8,11,10]{4,3,2,1,0:T(*,*,2,*,3)}"):
        assert read("xla", star.replace("*", "∗")) == read("xla", star)
