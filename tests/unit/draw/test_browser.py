"""A page in a real browser: linked cells, addresses of elements, both themes, two sizes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import axe_eq as axe
from tests.unit.draw.browser import Browser, chromium

FRAGMENT = "S[(8,2,4,2):(4@lane,1@warp,1@lane,1@reg)] + R[(2):(4@warp)] + 5@warp"
LIT = "[...document.querySelectorAll('.on')].map(c=>c.dataset.x)"
TOLD = "document.getElementById('selected').textContent"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    program = chromium()
    if program is None:
        pytest.skip("no Chromium is installed")
    opened = Browser(program, tmp_path_factory.mktemp("profile"))
    yield opened
    opened.close()


@pytest.fixture
def page(tmp_path: Path) -> Path:
    path = tmp_path / "page.html"
    axe.draw(FRAGMENT, shape=(8, 16)).save(path)
    return path


def test_pointing_at_an_element_lights_up_its_places(browser: Browser, page: Path) -> None:
    browser.open(page)
    assert browser.value(LIT) == []
    browser.point('rect[data-x="19"]')
    assert browser.value(LIT) == ["19"] * 3  # the element and its two copies
    assert browser.value(TOLD).splitlines() == [
        "1,3 (element 19) at 5@lane 1@reg 5,9@warp",
        "5@lane 5@warp 1@reg holds 1,3",
        "5@lane 9@warp 1@reg holds 1,3",
    ]
    browser.point("h1")
    assert browser.value(LIT) == []
    assert browser.complaints() == []


def test_a_click_keeps_an_element_and_its_address_finds_it_again(
    browser: Browser, page: Path
) -> None:
    browser.open(page)
    browser.point('rect[data-x="19"]', click=True)
    browser.point("h1")
    assert browser.value(LIT) == ["19"] * 3
    assert browser.value("location.hash") == "#19"
    browser.point('rect[data-x="19"]', click=True)
    browser.point("h1")
    assert browser.value(LIT) == []
    for fragment, lit in (("#19", ["19"] * 3), ("#<img>", []), ("#7777", [])):
        browser.open(page, fragment)
        assert browser.value(LIT) == lit
    assert browser.complaints() == []


@pytest.mark.parametrize("width", [1280, 400])
def test_nothing_sticks_out_of_the_page(browser: Browser, page: Path, width: int) -> None:
    browser.size(width, 800)
    browser.open(page)
    assert browser.value("document.documentElement.scrollWidth") <= width
    assert browser.value("document.querySelector('.panel').scrollWidth") > 400


def test_both_themes_are_drawn(browser: Browser, page: Path) -> None:
    seen = {}
    for theme in ("light", "dark"):
        browser.theme(theme)
        browser.open(page)
        seen[theme] = browser.value(
            "['body','.axe .cell','.axe text'].map(s=>{const c=getComputedStyle("
            "document.querySelector(s));return s=='body'?c.backgroundColor:c.fill})"
        )
    assert all(one != other for one, other in zip(*seen.values(), strict=True))
    for theme, darker in (("light", 0), ("dark", 1)):  # text against its cell
        ink, cell = (sum(map(int, c[4:-1].split(","))) for c in (seen[theme][2], seen[theme][1]))
        assert (ink > cell) == bool(darker)


def test_a_picture_inside_a_notebook_s_own_theme_follows_that(
    browser: Browser, tmp_path: Path
) -> None:
    shown = axe.Layout.parse("S[(4,8):(8,1)]")._repr_html_()
    fills = []
    for theme, system in (("true", "dark"), ("false", "light")):
        path = tmp_path / f"{theme}.html"
        path.write_text(f'<body data-jp-theme-light="{theme}">{shown}</body>')
        browser.theme(system)
        browser.open(path)
        fills.append(browser.value("getComputedStyle(document.querySelector('.cell')).fill"))
    assert fills == ["rgb(246, 245, 219)", "rgb(38, 34, 59)"]


def test_the_elements_that_differ_are_outlined(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "pair.html"
    axe.draw("S[(4,8):(8,1)]", "cute:(4,8):(8,1)").save(path)
    browser.open(path)
    assert browser.value("document.querySelectorAll('rect.differs').length") == 2 * 29
    assert browser.value("document.querySelectorAll('rect.first').length") == 2
    browser.point('rect[data-x="9"]')  # named over the dims that are drawn, 4x8
    assert browser.value(TOLD) == "1,1 (element 9) at 9@m\n1,1 (element 9) at 10@m"
    assert browser.complaints() == []
