"""What `axe.draw` gives: pages, pictures and text of layouts, of pairs and of certificates."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

import axe_eq as axe
from axe_eq.errors import ArgumentError, LayoutError, NotationError
from axe_eq.layout import Layout, Mesh
from axe_eq.layout.notation import NOTATIONS
from axe_eq.layout.symbolic.terms import LayoutTerm, encode
from axe_eq.pack import Pack
from axe_eq.prove.certificates.certificate import LAYOUTS, Firing, Proof, Statement
from axe_eq.prove.certificates.proof import Certificate
from axe_eq.prove.certificates.steps import account
from axe_eq.prove.certificates.verdict import Proved, Refuted
from axe_eq.rule.term import Term

FRAGMENT = "S[(8,2,4,2):(4@lane,1@warp,1@lane,1@reg)] + R[(2):(4@warp)] + 5@warp"
VOID = {"meta", "br"}


class Page(HTMLParser):
    """Fails on a tag that is not closed in order; keeps tags and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: list[str] = []
        self.words: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.seen.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script", "text"):
            self.words.append(data.strip())


PAGES = {
    "layout": lambda: axe.draw(FRAGMENT, shape=(8, 16)),
    "swizzle": lambda: axe.draw("sw(3,3,3)@m . S[(8,64):(64,1)]", itemsize=2),
    "large": lambda: axe.draw("xla:f32[16,512]{1,0:T(8,128)}"),
    "pair": lambda: axe.draw("S[(4,8):(8,1)]", "cute:(4,8):(8,1)"),
    "sizes": lambda: axe.draw("S[8:1]", "S[9:1]"),
    "proved": lambda: axe.draw("S[(4,8):(8,1)]", "S[(2,16):(16,1)] + R[3:0]"),
    "large pair": lambda: axe.draw("strides:(9,256):(256,1)", "strides:(9,256):(1,9)"),
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_well_formed_and_fetches_nothing(name: str) -> None:
    text = PAGES[name]().html()
    parsed = Page(text)
    assert not {"link", "img", "iframe"} & set(parsed.seen)
    assert not re.search(r"(?:src|href)=|url\((?!#)|@import", text)
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL):
        ElementTree.fromstring(svg)


@pytest.mark.parametrize("name", PAGES)
def test_a_picture_stands_alone_and_has_text(name: str) -> None:
    picture = PAGES[name]()
    tree = ElementTree.fromstring(picture.svg())
    assert tree.attrib["class"] == "axe"
    assert "prefers-color-scheme:dark" in picture.svg()
    assert picture._repr_html_() == picture.svg()
    assert str(picture) == picture.text()
    assert picture.text()


def test_the_text_of_pictures(golden: Callable[..., None]) -> None:
    drawn = {
        "padding": axe.draw("xla:f32[3,5]{1,0:T(2,2)}"),
        "fragment": axe.draw(FRAGMENT, shape=(8, 16)),
        "devices": axe.draw("jax:P('x')", shape=(5, 4), mesh=Mesh({"x": 2})),
        "aliasing": axe.draw("S[(2,4):(2,1)]"),
        "banks": axe.draw("sw(1,2,3)@m . S[(4,32):(32,1)]", itemsize=4),
        "refuted": axe.draw("S[(2,3):(3,1)]", "S[(2,3):(1,2)]"),
        "proved": axe.draw("S[(2,3):(3,1)]", "S[6:1]"),
        "sizes": axe.draw("S[6:1]", "S[7:1]"),
    }
    text = "\n".join(f"---- {name}\n{picture.text()}" for name, picture in drawn.items())
    golden(re.sub(r" \([^()]*packs: [^()]*\)", "", text))


def proof(a: str, b: str) -> Certificate:
    verdict = axe.equivalent(a, b)
    assert isinstance(verdict, Proved)
    return verdict.certificate  # type: ignore[no-any-return]


def test_the_page_of_a_layout_names_its_facts_and_every_notation() -> None:
    words = Page(axe.draw(FRAGMENT, shape=(8, 16)).html()).words
    assert set(NOTATIONS) <= set(words)
    assert {"2", "copies of each", "span of lane", "32"} <= set(words)
    assert "(8 2 4 2 | 4@lane 1@warp 1@lane 1@reg) + [2 | 4@warp] + 5@warp" in words
    assert "cannot: an element has several places; expected no replicas" in words


def test_the_page_of_a_refuted_pair_prints_the_counterexample() -> None:
    verdict = axe.equivalent("S[(4,8):(8,1)]", "cute:(4,8):(8,1)")
    assert isinstance(verdict, Refuted)
    words = " ".join(Page(axe.draw("S[(4,8):(8,1)]", "cute:(4,8):(8,1)").html()).words)
    assert f"Refuted: {verdict.reason}" in words
    assert str(verdict.counterexample).replace("element 1:", "element (0,1):") in words
    assert "30 of the 32 elements drawn differ." in words


def test_the_window_of_a_large_pair_shows_the_first_difference() -> None:
    a = "S[(8,1000):(1000,1)]"
    b = "box[(8,1000)] in S[(8,1024):(1024,1)]"
    page = axe.draw(a, b).html()
    assert page.count('class="mark first"') == 2
    assert page.count("<svg") == 4 + 2 * 2  # both sides, near and far, and legends
    assert "Drawn are rows 0 to 7 of 8, columns 0 to 31 of 1000." in axe.draw(a, b).text()
    far = axe.draw(a, "S[(8,2,500):(1000,501,1)]", shape=(8, 1000)).text()
    assert "columns 480 to 511 of 1000." in far
    assert " >501 " in far


def test_a_proof_is_told_from_the_left_side_to_the_right_one() -> None:
    left, right = "S[(4,8):(8@m,1@m)]", "S[(2,16):(16@m,1@m)] + R[(3):(0@m)]"
    certificate = proof(left, right)
    told = account(certificate.proof)
    assert (told.left[1], told.right[1]) == ((left,), (right,))
    assert {step.law.partition("/")[0] for step in told.steps} == {"layout"}
    texts = [link.text for link in told.chain]
    assert (texts[0], texts[-1]) == (left, right)
    for before, after in itertools.pairwise(texts):  # every piece is the same layout
        assert axe.equivalent(before, after)
    assert {link.step for link in told.chain[1:]} == set(range(len(told.steps)))
    lines = axe.draw(certificate).text().splitlines()
    assert "accepted" in lines
    assert [line[2:] for line in lines if line.startswith("= ")] == texts[1:]


def test_a_chain_of_whole_instances_is_found() -> None:
    """Instances in any order and direction; one that leads nowhere is left out."""
    pack = Pack("chain", summary="three ways to write six elements")
    texts = ["S[(2,3):(3,1)]", "S[(2,3,1):(3,1,5)]", "S[(1,6):(9,1)]", "S[6:1]"]
    terms = [encode(Layout.parse(text)) for text in texts]

    @pack.law(source="a test")
    def same(x: LayoutTerm, y: LayoutTerm) -> tuple[Term, Term]:
        """x = y."""
        return x, y

    statement = Statement(LAYOUTS, (terms[0],), (terms[3],), packs={"chain": pack.version})
    for pairs, steps in (
        (((3, 1), (2, 0), (1, 0)), [None, 2, 0]),  # both sides rewritten until they meet
        (((1, 0), (1, 3)), [None, 0, 1]),  # against the direction of a law
        (((1, 0), (2, 3)), []),
    ):
        firings = tuple(Firing("chain/same", (terms[a], terms[b])) for a, b in pairs)
        told = account(Proof(statement, firings), {"chain": pack})
        assert [link.step for link in told.chain] == steps
        if steps:
            assert [link.text for link in told.chain] == [
                str(Layout.parse(texts[n])) for n in (0, 1, 3)
            ]


def test_a_forged_certificate_is_drawn_as_refused() -> None:
    document = json.loads(proof("S[(4,8):(8,1)]", "S[(2,16):(16,1)] + R[3:0]"))
    outer = next(t for t in document["statement"]["right"]["terms"] if t["symbol"] == "Iter")
    outer["args"][1] += 1
    picture = axe.draw(Certificate(json.dumps(document)))
    assert "refused: certificate: " in picture.text()
    assert 'class="verdict no"' in picture.html()


def test_a_proof_about_programs_defines_its_values() -> None:
    verdict = axe.equivalent(lambda x, w: (x @ w).T, lambda x, w: w.T @ x.T, "8x4:f32", "4x6:f32")
    assert isinstance(verdict, Proved)
    page = Page(axe.draw(verdict.certificate).html())
    assert any("mul(x, w)" in word for word in page.words)
    assert any("real_normal/" in word for word in page.words)


def test_a_layout_shows_itself_in_a_notebook() -> None:
    shown = Layout.parse(FRAGMENT)._repr_html_()
    ElementTree.fromstring(shown)
    assert ">L31<" in shown
    assert "Elements, L for lane, W for warp, R for reg" in shown
    assert "data-jp-theme-light" in shown  # follows the notebook's theme
    assert len(Layout.parse("S[(4096,4096):(4096,1)]")._repr_html_()) < 10**6


def test_a_picture_is_written_whole_in_the_form_its_name_asks_for(tmp_path: Path) -> None:
    picture = axe.draw(FRAGMENT)
    picture.save(tmp_path / "a.html")
    picture.save(tmp_path / "a.SVG")
    assert (tmp_path / "a.html").read_text() == picture.html()
    assert (tmp_path / "a.SVG").read_text() == picture.svg()
    with pytest.raises(ArgumentError, match=r"ends in '\.png'; expected \.html or \.svg"):
        picture.save(tmp_path / "a.png")
    with pytest.raises(ArgumentError, match="cannot be written"):
        picture.save(tmp_path / "nowhere" / "a.html")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.SVG", "a.html"]


@pytest.mark.parametrize(
    ("arguments", "options", "error", "message"),
    [
        (("S[8:1]",), {"colour": "lane"}, ArgumentError, "no axis of what is drawn; expected m"),
        (("S[8:1]",), {"shape": (3, 3)}, NotationError, r"shape \(3, 3\)"),
        (("S[8:1]",), {"at": (9,)}, LayoutError, "out of range"),
        ((Layout.parse("S[8:1]"),), {"shape": (3, 3)}, LayoutError, r"shape \(3, 3\)"),
        (("S[8:1@lane]",), {"itemsize": 2}, ArgumentError, "several axes"),
        (("S[8:1",), {}, NotationError, "ends too early"),
        ((Certificate("{}"), "S[8:1]"), {}, ArgumentError, "a certificate alone"),
    ],
)
def test_what_cannot_be_drawn_is_one_clear_error(
    arguments: tuple[Any, ...], options: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        axe.draw(*arguments, **options).html()


def test_texts_state_their_own_shape() -> None:
    for text in ("cute:(4,8):(8,1)", "strides:(4,8):(8,1)", "xla:f32[4,8]"):
        assert "3  24 25 26 27 28 29 30 31" in axe.draw(text).text()
    # Compared are functions of the linear index: CuTe's runs through the first mode fastest.
    assert axe.draw("cute:(4,8):(8,1)", "strides:(8,4):(1,8)").text().startswith("Proved")


def test_a_cute_layout_is_its_own_function_however_it_is_drawn() -> None:
    text, read = "cute:(4,8):(8,1)", "S[(8,4):(1@m,8@m)]"
    drawn = "Drawn with its modes as dims in order, 4x8: S[(4,8):(8@m,1@m)]"
    assert str(axe.read("cute", "(4,8):(8,1)")) == read
    alone = axe.draw(text)
    assert alone.text().splitlines()[:3] == [text, read, drawn]
    assert read in alone.svg()
    assert drawn in alone.svg()
    words = " ".join(Page(alone.html()).words)
    assert drawn in words
    assert f"canonical {read}" in words  # the facts are those of what was read
    assert f"{text} = {read}" in axe.draw(text, text).text()
    ordered = axe.draw(text, shape=(4, 8)).text()
    assert ordered.splitlines()[:2] == [text, "S[(4,8):(8@m,1@m)]"]
    for other in (ordered, axe.draw("xla:f32[4,8]").text(), axe.draw("cute:32:1").text()):
        assert "Drawn with its modes" not in other


def test_steps_about_unknown_layouts_read_like_expressions() -> None:
    verdict = axe.equivalent("tile(A[n],(n),S[1:1],(1))", "A[n]")
    assert isinstance(verdict, Proved)
    text = axe.draw(verdict.certificate).text()
    assert "tile(A[n], (n), S[(1):(1@m)], (1))" in text
    assert "= direct_sum(A[n], (n), S[():()], (1))" in text
    assert "Map(" not in text


def test_two_layouts_are_drawn_over_the_dims_of_the_first() -> None:
    text = axe.draw("S[(4,8):(8,1)]", "cute:(4,8):(8,1)").text()
    grids = text.split("\n\n")[1:3]
    for grid in grids:
        _, columns, *rows = grid.splitlines()
        assert columns.split() == [str(n) for n in range(8)]
        assert [row.split()[0] for row in rows] == [str(n) for n in range(4)]
    assert "> the first element that differs, * others that differ" in text
    same = axe.draw("S[(4,8):(8,1)]", "S[(4,8):(8,1)]").text()
    assert "differs, *" not in same


def test_a_picture_is_written_as_a_schedule_s_page_is(tmp_path: Path) -> None:
    picture = axe.draw("S[(4,8):(8,1)]")
    page = picture.html(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page == picture.html()


def test_a_picture_that_stands_alone_lies_on_paper() -> None:
    """Its text is light where the reader's system is dark, whatever page holds it."""
    for drawn in (
        axe.draw(FRAGMENT).svg(),
        axe.draw("S[(4,8):(8,1)]", "cute:(4,8):(8,1)").svg(),
        axe.trace(lambda x: x + 1, "4:f32").draw(),
    ):
        tree = ElementTree.fromstring(drawn)
        paper = next(r for r in tree.iter() if r.attrib.get("class") == "paper")
        assert [paper.attrib[side] for side in ("width", "height")] == [
            tree.attrib[side] for side in ("width", "height")
        ]
        dark = drawn.partition("prefers-color-scheme:dark")[2]
        assert ".paper{fill:#1d2126}" in dark
        assert "text{fill:#eef1f4}" in dark


def test_a_proof_says_how_its_texts_are_read() -> None:
    """A proof that rests on reading alone has no steps, and still something to say."""
    sides = "xla:f32[1024,512]{1,0:T(8,128)}", "cute:((128,4),(8,128)):((1,1024),(128,4096))"
    verdict = axe.equivalent(*sides)
    assert isinstance(verdict, Proved)
    drawn = axe.draw(verdict.certificate)
    words = " ".join(Page(drawn.html()).words)
    for text in sides:
        assert f"{text} is read as S[(128,8,4,128):(4096@m,128@m,1024@m,1@m)]" in drawn.text()
        assert text in words
    assert "Both texts are read as one layout: there is nothing to prove." in words
    assert "How the texts are read" in words


def test_a_drawn_difference_tells_of_the_order_of_modes_as_a_verdict_does() -> None:
    sides = "S[(4,8):(8,1)]", "cute:(4,8):(8,1)"
    (note,) = [line for line in str(axe.equivalent(*sides)).splitlines() if "note: " in line]
    assert note in axe.draw(*sides).text().splitlines()
    assert "note: " not in axe.draw(*sides, shape=(4, 8)).text()
