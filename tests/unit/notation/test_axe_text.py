"""The axe text is what str(layout) prints, and a bit more on the way in."""

from __future__ import annotations

import pytest

from axe_eq.errors import NotationError
from axe_eq.layout import Layout, Swizzle
from axe_eq.layout.notation import axe, read, read_any, write
from axe_eq.layout.notation.text import parse

FRAGMENT = Layout(
    shard=[(8, 4, "lane"), (2, 1, "warp"), (4, 1, "lane"), (2, 1, "reg")],
    replica=[(2, 4, "warp")],
    offset={"warp": 5},
)


@pytest.mark.parametrize(
    "layout",
    [
        FRAGMENT,
        Layout(),
        Layout(shard=[(4, -1, "m")], offset={"m": -3, "lane": 2}),
        Layout(shard=[(64, 64, "m"), (64, 1, "m")], swizzle=[Swizzle("m", 3, 4, 3)]),
        Layout(
            shard=[(8, 8, "m"), (8, 1, "lane")],
            swizzle=[Swizzle("m", 1, 0, -2), Swizzle("lane", 0, 0, 1)],
            offset={"m": 1},
        ),
        Layout(shard=[(2, 12), (2, 2), (3, 4), (2, 1)], box=(3, 5)),
        Layout(shard=[(4, 12), (3, 4), (2, 1)], box=(3, 5), padded=(4, 6)),
        Layout(shard=[(16, 1)], box=(3,), swizzle=[Swizzle("m", 1, 1, 1)], replica=[(2, 16)]),
    ],
)
def test_parse_undoes_str(layout: Layout) -> None:
    assert Layout.parse(str(layout)) == layout
    assert read("axe", write("axe", layout)) == layout
    assert read_any(str(layout)) == read_any(f"axe:{layout}") == layout
    assert read_any(f" {layout}") == layout  # which the grammar reads


@pytest.mark.parametrize(
    "text",
    [
        "S[(8,2):(4@lane,-1@m)] + R[(2):(4@warp)] + 5@warp + -3@m",
        "S[(08):(1@m)] + S[(0):(00@m)]",
        "5@warp + R[(2):(4@warp)]",
        "S[(2,3):(4@m)]",
        "R[(3):(1@S)] + 1@box",
    ],
)
def test_what_is_read_without_the_grammar_is_what_the_grammar_reads(text: str) -> None:
    assert axe._printed(text) == list(parse("axe", text, axe._Parts()))


@pytest.mark.parametrize(
    "text", ["S[8:1]", "S[(8):(1)]", "S[():()]", "S[(8,):(1@m)]", "S[(8):(1@1)]", "S[(8):(1@m)] ",
             "sw(3,4,3)@m . S[(8):(1@m)]", "S[(8):(1@m)]+5@m", "", "S[(9999999999999999999):(1@m)]"]
)  # fmt: skip
def test_all_else_is_for_the_grammar(text: str) -> None:
    assert axe._printed(text) is None


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("S[8:1]", "S[(8):(1@m)]"),
        ("S[(2,4,):(4,1,)]", "S[(2,4):(4@m,1@m)]"),
        ("  S[(8):(1@lane)]+R[2:4@warp]+R[3:1@cta]", "S[(8):(1@lane)] + R[(2,3):(4@warp,1@cta)]"),
        ("5@warp + R[2:4@warp]", "S[():()] + R[(2):(4@warp)] + 5@warp"),
        ("S[4:1] + 3 + -3@m + 2@lane", "S[(4):(1@m)] + 2@lane"),
        ("sw(3,4,3) . S[128:1]", "sw(3,4,3)@m . S[(128):(1@m)]"),
        ("S[(3):(1@S)] + R[(2):(5@R)]", "S[(3):(1@S)] + R[(2):(5@R)]"),
        ("S[(3):(1@sw)] + 1@box + 1@of", "S[(3):(1@sw)] + 1@box + 1@of"),
    ],
)
def test_spellings_that_are_read_too(text: str, canonical: str) -> None:
    assert str(Layout.parse(text)) == canonical


@pytest.mark.parametrize(
    ("mode", "itemsize", "swizzle"),
    [
        ("128B", 1, Swizzle("m", 3, 4, 3)),
        ("128B", 2, Swizzle("m", 3, 3, 3)),
        ("64B", 4, Swizzle("m", 2, 2, 3)),
        ("32B", 8, Swizzle("m", 1, 1, 3)),
        ("128B", 16, Swizzle("m", 3, 0, 3)),
    ],
)
def test_byte_modes_count_elements_of_the_itemsize(
    mode: str, itemsize: int, swizzle: Swizzle
) -> None:
    layout = read("axe", f"sw({mode})@m . S[(8,64):(64,1)]", itemsize=itemsize)
    assert layout.swizzle == (swizzle,)
    for element in range(layout.size):
        address = element * itemsize
        row = address // 128 % 8 & {"128B": 7, "64B": 3, "32B": 1}[mode]
        assert layout.table("m")[element] == (address ^ row * 16) // itemsize


def test_the_shape_is_checked_against_the_size() -> None:
    assert read("axe", "S[(8):(1)]", shape=(2, 4)).size == 8
    with pytest.raises(NotationError, match="12 elements; expected the layout's 8"):
        read("axe", "S[(8):(1)]", shape=(3, 4))
