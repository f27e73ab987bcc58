"""Examples: every public name has one in its docstring, and what it shows is what comes out."""

from __future__ import annotations

import doctest
import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import nn

# Functions of the array namespace that its standard does not document.
EXTENSIONS = ("associative_scan", "block", "dynamic_slice", "pad", "select", "take")
ROOT = Path(__file__).parents[2]
ROOMS = (ROOT / "axe_eq", ROOT / "rules" / "axe_eq_rules", ROOT / "backends" / "axe_eq_backends")
USED = {"axe": axe, "np": np, "nn": nn, "xp": axe.array}  # names that examples need not import


def public() -> Iterator[tuple[str, Any]]:
    """Public functions and classes, without those that the array API standard documents."""
    for name in axe.__all__:
        value = getattr(axe, name)
        if not inspect.ismodule(value):
            yield name, value
    for module, names in ((nn, nn.__all__), (axe.array, EXTENSIONS)):
        yield from ((f"{module.__name__}.{name}", getattr(module, name)) for name in names)


def test_every_public_name_has_an_example() -> None:
    lacks = [
        name for name, value in public()
        if callable(value) and ">>> " not in (inspect.getdoc(value) or "")
        and not (inspect.isclass(value) and issubclass(value, axe.AxeError))
    ]  # fmt: skip
    assert lacks == []


def written() -> list[str]:
    """Modules with examples."""
    files = (path for room in ROOMS for path in sorted(room.rglob("*.py")))
    found = (path for path in files if ">>> " in path.read_text(encoding="utf-8"))
    names = (".".join(path.relative_to(ROOT).with_suffix("").parts) for path in found)
    return [
        n.removeprefix("rules.").removeprefix("backends.").removesuffix(".__init__") for n in names
    ]


@pytest.mark.parametrize("name", written())
def test_examples_give_what_they_show(name: str) -> None:
    module = import_module(name)
    failed, tried = doctest.testmod(module, extraglobs=USED)
    assert tried
    assert failed == 0
