"""The module of a pack runs again, as a notebook's cell does: what it declares is what counts."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.errors import PackError
from axe_eq.pack import Pack
from axe_eq.program.ops import Cell

TEXT = """
import axe_eq as axe
from axe_eq.program.ops import Cell, monoid_of
from axe_eq.program.traced import elementwise

PACK = axe.Pack("reloaded_of_tests")
PACK.cell(Cell("reloaded_of_tests", 1, lambda x: x * FACTOR, RESULT))
PACK.spelling("cuda", "reloaded_of_tests", f32="({0} * FACTOR)")
PACK.monoid(monoid_of("most_reloaded", "maximum", lifts="reloaded_of_tests", exact=True))


def rows(x):
    return axe.array.block("a b -> a; most_reloaded b", "id", elementwise("reloaded_of_tests", x))
"""


@pytest.mark.usefixtures("own_operators")
def test_a_module_that_runs_again_replaces_what_it_declared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    file, x = tmp_path / "reloaded_pack_of_tests.py", np.array([[1, 3, 2]], np.int32)
    found: list[Any] = []
    for factor, result in ((2, "promote"), (5, "promote"), (0.5, "float")):
        file.write_text(TEXT.replace("FACTOR", str(factor)).replace("RESULT", repr(result)))
        if not found:
            module = importlib.import_module("reloaded_pack_of_tests")
        else:
            importlib.reload(module)
        given = x if result == "promote" else x.astype(np.float32)
        exe = axe.compile(module.rows, given, target="cpu")
        found.append(exe(given).tolist())
    assert found == [[12], [75], [0.75]]


@pytest.mark.usefixtures("own_operators")
def test_a_name_of_another_pack_and_one_declared_twice_are_refused() -> None:
    mine, theirs = Pack("mine_of_tests"), Pack("theirs_of_tests")
    mine.cell(Cell("taken_of_tests", 1, lambda x: x))
    for pack in (mine, theirs):
        with pytest.raises(PackError, match="cell 'taken_of_tests': is declared twice"):
            pack.cell(Cell("taken_of_tests", 1, lambda x: -x))
