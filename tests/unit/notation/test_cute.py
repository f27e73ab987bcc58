"""CuTe texts: which index runs fastest, nested modes, swizzles."""

from __future__ import annotations

import itertools

import pytest

from axe_eq.errors import NotationError
from axe_eq.layout import Layout
from axe_eq.layout.notation import read, read_any, write


def offsets(layout: Layout) -> list[int]:
    return [int(value) for value in layout.table("m")]


def test_without_a_shape_the_first_mode_is_fastest() -> None:
    assert read_any("cute:(4,8):(8,1)") == Layout.parse("S[(8,4):(1@m,8@m)]")
    assert offsets(read("cute", "(2,3):(3,1)")) == [0, 3, 1, 4, 2, 5]


def test_with_a_shape_the_top_level_modes_are_its_dims() -> None:
    layout = read("cute", "((2,2),3):((1,6),2)", shape=(4, 3))
    crd2idx = {(i, j): i % 2 + i // 2 * 6 + j * 2 for i in range(4) for j in range(3)}
    for index in itertools.product(range(4), range(3)):
        assert layout(index, shape=(4, 3)) == Layout.parse(f"S[():()] + {crd2idx[index]}")(0)


def test_one_layout_in_three_notations() -> None:
    axe = Layout.parse("S[(128,8,4,128):(4096,128,1024,1)]")
    assert read_any("xla:f32[1024,512]{1,0:T(8,128)}") == axe
    assert read_any("cute:((128,4),(8,128)):((1,1024),(128,4096))") == axe
    assert write("cute", axe, shape=(1024, 512)) == "((8,128),(128,4)):((128,4096),(1,1024))"
    assert read("cute", write("cute", axe, shape=(1024, 512)), shape=(1024, 512)) == axe


@pytest.mark.parametrize(
    ("text", "same"),
    [
        ("(_4,_8):(_8,_1)", "(4,8):(8,1)"),
        ("((4)):((2))", "4:2"),
        ("():()", "1:0"),
        ("(2,(2,(2,2))):(8,(4,(2,1)))", "(2,2,2,2):(8,4,2,1)"),
        ("Sw<0,4,3> o 0 o 8:1", "8:1"),
        ("S<2,1,2> o 8:1", "Swizzle<2,1,2> o _0 o (8):(1)"),
        ("Sw<3,4,3> o smem_ptr[16b](unset) o (8,64):(64,1)", "Sw<3,3,3> o 0 o (8,64):(64,1)"),
        ("Sw<3,4,3> o smem_ptr[8b](0x7f00) o 128:1", "Sw<3,4,3> o 0 o 128:1"),
        ("Sw<2,4,3> o smem_ptr[4b](unset) o 512:1", "Sw<2,5,3> o 0 o 512:1"),
    ],
)
def test_spellings(text: str, same: str) -> None:
    assert read("cute", text).swizzle == read("cute", same).swizzle
    assert offsets(read("cute", text)) == offsets(read("cute", same))


@pytest.mark.parametrize(
    ("axe", "text"),
    [
        ("S[():()]", "1:0"),
        ("S[(8):(2)]", "8:2"),
        ("S[(8,4):(1,8)]", "(4,8):(8,1)"),
        ("S[(4):(0)]", "4:0"),
        ("S[(4):(-1)] + 3", "Sw<0,4,3> o 3 o 4:-1"),
        ("sw(3,4,3)@m . S[(64,64):(64,1)] + 7", "Sw<3,4,3> o 7 o (64,64):(1,64)"),
        ("sw(1,0,1)@m . sw(1,1,-1)@m . S[8:1]", "Sw<1,0,1> o 0 o Sw<1,1,-1> o 0 o 8:1"),
        ("S[(1,4):(3@lane,1@m)]", "(4,1):(1,3)"),
    ],
)
def test_written(axe: str, text: str) -> None:
    layout = Layout.parse(axe)
    assert write("cute", layout) == text
    assert offsets(read("cute", text)) == offsets(layout)


def test_written_modes_follow_the_shape() -> None:
    layout = Layout.parse("S[(2,2,3):(1,6,2)]")
    assert write("cute", layout, shape=(4, 3)) == "((2,2),3):((6,1),2)"
    assert write("cute", Layout.parse("S[(4,6):(6,1)]"), shape=(2, 1, 12)) == "(2,1,12):(12,0,1)"


@pytest.mark.parametrize(
    ("axe", "shape", "message"),
    [
        (
            "S[(4):(1@lane)]",
            None,
            "cute text of 'S[(4):(1@lane)]': axis lane; expected CuTe offsets have one axis, m",
        ),
        (
            "S[(4):(1)] + R[(2):(4)]",
            None,
            "cute text of 'S[(4):(1@m)] + R[(2):(4@m)]': an element has several places; "
            "expected no replicas",
        ),
        (
            "box[(3,5)] in S[(2,2,3,2):(12,2,4,1)]",
            None,
            "cute text of 'box[(3,5)] in S[(2,2,3,2):(12@m,2@m,4@m,1@m)]': 15 elements padded to "
            "24; expected no padding",
        ),
        (
            "S[(8):(1)]",
            (3, 3),
            "cute text of 'S[(8):(1@m)]': shape (3, 3): 9 elements; expected the layout's 8",
        ),
    ],
)
def test_what_cute_cannot_express(axe: str, shape: tuple[int, ...] | None, message: str) -> None:
    with pytest.raises(NotationError) as refused:
        write("cute", Layout.parse(axe), shape=shape)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("axe", "text"),
    [
        ("sw(2,0,1)@m . S[8:1]", "Sw<1,1,1> o 0 o Sw<1,0,1> o 0 o 8:1"),
        ("sw(5,1,2)@m . S[256:1]", "Sw<1,5,2> o 0 o Sw<2,3,2> o 0 o Sw<2,1,2> o 0 o 256:1"),
        ("sw(3,0,-2)@m . S[64:1] + 3", "Sw<2,0,-2> o 0 o Sw<1,2,-2> o 3 o 64:1"),
        ("sw(3,2,1)@m . sw(2,0,-1)@m . S[(9,9):(7,5)]", None),
    ],
)
def test_a_swizzle_that_overlaps_itself_is_several(axe: str, text: str | None) -> None:
    layout = Layout.parse(axe)
    written = write("cute", layout)
    assert text in (None, written)
    assert list(read("cute", written).table("m")) == list(layout.table("m"))


@pytest.mark.parametrize(
    ("text", "shape"),
    [("Sw<1,3,-2> o -3 o (3):(2)", None), ("Sw<1,0,-2> o 6 o (3,3):(1,0)", (3, 3))],
)
def test_a_canonical_form_in_a_box_is_written_without(
    text: str, shape: tuple[int, ...] | None
) -> None:
    layout = read("cute", text, shape=shape).canonical()
    assert layout.box is not None
    again = read("cute", write("cute", layout, shape=shape), shape=shape)
    assert list(again.table("m")) == list(layout.table("m"))
