"""docs/notations.md: its examples run, and its grammars are those that parse."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from axe_eq.layout.notation import NOTATIONS, registry
from tests.unit.notation.examples import EXAMPLES, PAGE

GRAMMARS = Path(registry.__file__).parent / "grammars"


def test_the_examples_run() -> None:
    failed, tried = doctest.testfile(str(PAGE), module_relative=False)
    assert tried > 30
    assert failed == 0


@pytest.mark.parametrize("notation", NOTATIONS.values(), ids=lambda entry: entry.name)
def test_every_notation_has_its_grammar_on_the_page(notation: registry.Notation) -> None:
    section = PAGE.read_text(encoding="utf-8").partition(f"\n## {notation.name}\n")[2]
    shown = re.search(r"```lark\n(.*?)\n```", section, re.DOTALL)
    assert shown
    lines = (GRAMMARS / f"{notation.name}.lark").read_text(encoding="utf-8").splitlines()
    rules = "\n".join(line for line in lines if not line.startswith("//"))
    assert shown[1] == rules.strip()
    assert notation.name in EXAMPLES
