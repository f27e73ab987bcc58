"""Grids in general: what is drawn is what the cells say, as SVG and as text."""

from __future__ import annotations

import itertools
import re
from xml.etree import ElementTree

import pytest

from axe_eq.draw import colour
from axe_eq.draw.grid import ABSENT, Cell, Frame, Grid, figure_svg, grid_svg, grid_text
from axe_eq.draw.page import page

SVG = "{http://www.w3.org/2000/svg}"


def sample(**changes: object) -> Grid:
    cells = [
        [
            Cell(("a<b",), "h0", (), 'title "1"', (0,)),
            Cell(("lane 7", "reg 1"), "r15", ("differs",)),
        ],
        [Cell((), "hole", (), "nothing"), Cell((), ABSENT)],
    ]
    given = {"rows": ["0", "1"], "columns": ["0", "1"], "corner": "x\\y", "name": "a & b"}
    return Grid(cells, **{**given, **changes})  # type: ignore[arg-type]


def cells_of(svg: str) -> list[ElementTree.Element]:
    return [
        rect
        for rect in ElementTree.fromstring(svg).iter(f"{SVG}rect")
        if rect.attrib["class"].startswith("cell")
    ]


def box(rect: ElementTree.Element) -> tuple[float, float, float, float]:
    x, y, w, h = (float(rect.attrib[name]) for name in ("x", "y", "width", "height"))
    return x, y, x + w, y + h


def test_every_cell_is_a_rectangle_of_its_own_and_an_absent_one_is_none() -> None:
    rects = cells_of(grid_svg(sample()))
    assert [rect.attrib["class"] for rect in rects] == ["cell h0", "cell r15", "cell hole"]
    boxes = [box(rect) for rect in rects]
    for n, (left, top, right, bottom) in enumerate(boxes):
        for l2, t2, r2, b2 in boxes[n + 1 :]:
            assert right <= l2 or r2 <= left or bottom <= t2 or b2 <= top


def test_the_text_of_a_cell_lies_inside_it() -> None:
    tree = ElementTree.fromstring(grid_svg(sample()))
    left, top, right, bottom = box(cells_of(grid_svg(sample()))[1])
    for text in tree.iter(f"{SVG}text"):
        if text.text in ("lane 7", "reg 1"):
            x, y = float(text.attrib["x"]), float(text.attrib["y"])
            assert left < x < right
            assert top + 8 < y < bottom
            half = len(text.text) * 6.65 / 2
            assert x - half >= left
            assert x + half <= right


def test_a_picture_that_stands_alone_has_its_style_and_titles_as_elements() -> None:
    alone, inside = grid_svg(sample()), grid_svg(sample(), styled=False)
    assert "<style>" in alone
    assert "<title>title &quot;1&quot;</title>" in alone
    assert "<style>" not in inside
    assert 'data-t="title &quot;1&quot;"' in inside
    assert 'data-x="0"' in inside
    assert 'aria-label="a &amp; b"' in alone


def test_breaks_move_what_comes_after_them() -> None:
    plain = [box(rect) for rect in cells_of(grid_svg(sample()))]
    apart = [
        box(rect)
        for rect in cells_of(
            grid_svg(sample(row_breaks=frozenset({1}), column_breaks=frozenset({1})))
        )
    ]
    assert apart[0] == plain[0]
    assert apart[1][0] == plain[1][0] + 7
    assert apart[2][1] == plain[2][1] + 7


def test_a_frame_encloses_its_cells() -> None:
    svg = grid_svg(sample(frames=(Frame(range(2), range(1), "window"),)))
    (frame,) = (
        rect
        for rect in ElementTree.fromstring(svg).iter(f"{SVG}rect")
        if rect.attrib["class"] == "mark window"
    )
    first, _, last = cells_of(svg)
    assert box(frame) == (*box(first)[:2], *box(last)[2:])


def test_labels_that_would_overlap_are_thinned_out() -> None:
    wide = Grid([[Cell() for _ in range(64)]], [""], [str(8 * n) for n in range(64)])
    tree = ElementTree.fromstring(grid_svg(wide))
    middles = [(float(t.attrib["x"]), len(t.text or "") * 3.4) for t in tree.iter(f"{SVG}text")]
    assert 8 <= len(middles) < 64
    for (one, half), (other, half_of_other) in itertools.pairwise(middles):
        assert one + half <= other - half_of_other


def test_text_mode_marks_what_colours_mark() -> None:
    clash = Cell(("3",), "r0", ("clash",))
    first = Cell(("4",), "r0", ("first",))
    grid = sample(rows=["0", "10"], column_breaks=frozenset({1}))
    assert grid_text(grid) == "x\\y    0 |             1\n  0  a<b | *lane 7/reg 1\n 10    · |"
    assert grid_text(Grid([[clash, first]], [""], ["", ""])) == "\n  !3 >4"


def test_a_figure_holds_its_grids_beside_and_below_each_other() -> None:
    many = figure_svg([(f"number {n}", sample()) for n in range(12)], ["a line", "another <line>"])
    tree = ElementTree.fromstring(many)
    places = [
        tuple(map(int, re.findall(r"\d+", group.attrib["transform"])))
        for group in tree.iter(f"{SVG}g")
    ]
    assert len(places) == len(set(places)) == 12
    assert len({y for _, y in places}) > 1
    assert all(x < 1100 for x, _ in places)
    assert "another &lt;line&gt;" in many
    lowest = max(float(t.attrib["y"]) for t in tree.iter(f"{SVG}text"))
    assert lowest < int(tree.attrib["height"])


def luminance(colour_text: str) -> float:
    channels = (int(colour_text[n : n + 2], 16) / 255 for n in (1, 3, 5))
    red, green, blue = (
        c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in channels
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


@pytest.mark.parametrize(("theme", "ink", "least"), [(0, "#1d2125", 7.0), (1, "#eef1f4", 4.8)])
def test_text_is_readable_on_every_tone(theme: int, ink: str, least: float) -> None:
    assert ink in colour.style()
    tones = colour.tones(theme)
    assert len(tones) == colour.HUES + colour.STEPS
    for tone in tones.values():
        low, high = sorted((luminance(tone), luminance(ink)))
        assert (high + 0.05) / (low + 0.05) >= least


def test_the_ramp_keeps_the_order_of_values() -> None:
    steps = [int(colour.ramp(value, -5, 40)[1:]) for value in range(-5, 41)]
    assert steps == sorted(steps)
    assert (steps[0], steps[-1]) == (0, colour.STEPS - 1)
    assert colour.ramp(3, 3, 3) == "r0"
    assert colour.hue(colour.HUES + 1) == "h1"


def test_a_page_quotes_its_title_and_fetches_nothing() -> None:
    made = page("<&>", ["<p>x</p>"], linked=True)
    assert "<h1>&lt;&amp;&gt;</h1>" in made
    assert not re.search(r"(?:src|href)=|url\((?!#)|@import|https?://", made)
    assert "<script>" not in page("t", [])
