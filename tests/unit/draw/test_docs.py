"""docs/layouts.md: its statements hold; the pictures of docs are those that `make docs` makes."""

from __future__ import annotations

import doctest
import re
from pathlib import Path
from xml.etree import ElementTree

from examples.pictures import main, of_layouts
from tests.unit.layout import test_paper_errors

DOCS = Path(__file__).parents[3] / "docs"
PICTURES = DOCS / "pictures"
PAGE = (DOCS / "layouts.md").read_text(encoding="utf-8")


def test_the_statements_hold() -> None:
    failed, tried = doctest.testfile(str(DOCS / "layouts.md"), module_relative=False)
    assert tried > 40
    assert failed == 0


def test_the_pictures_are_current(tmp_path: Path) -> None:
    main(str(tmp_path))
    made = {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()}
    kept = {p.name: p.read_text(encoding="utf-8") for p in PICTURES.iterdir()}
    assert sorted(made) == sorted(kept)
    assert [name for name in made if made[name] != kept[name]] == [], "make docs"


def test_every_picture_is_on_the_page_once() -> None:
    shown = re.findall(r"\]\(pictures/(\w+)\.svg\)", PAGE)
    assert shown == list(dict.fromkeys(shown))
    assert sorted(shown) == sorted(name for name, _ in of_layouts())
    others = "".join(p.read_text(encoding="utf-8") for p in DOCS.glob("*.md"))
    every = re.findall(r"\]\(pictures/(\w+)\.svg\)", others)
    assert sorted(every) == sorted(p.stem for p in PICTURES.iterdir())
    assert len(shown) == len(re.findall(r"^### \d+\. ", PAGE, re.MULTILINE)) == 10


def test_every_picture_stands_alone() -> None:
    for path in PICTURES.iterdir():
        svg = path.read_text(encoding="utf-8")
        tree = ElementTree.fromstring(svg)
        assert tree.attrib["aria-label"]
        assert "prefers-color-scheme:dark" in svg
        assert not re.search(r"(?:src|href)=|url\((?!#)|@import|<script", svg)


def test_every_error_of_the_paper_has_its_row_and_its_test() -> None:
    rows = re.findall(r"^\| D(\d+) \|", PAGE, re.MULTILINE)
    tests = {m[1] for name in dir(test_paper_errors) if (m := re.match(r"test_d(\d+)_", name))}
    assert rows == [str(number) for number in range(1, 21)]
    assert tests == set(rows)
