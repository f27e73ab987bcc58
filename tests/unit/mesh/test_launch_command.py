"""`axe launch`: what its options mean, and one clear error for each that means nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import axe_eq as axe
from axe_eq.cli.launch import compiled_on, long_begin, mesh_of
from tests.unit.mesh.refusals import refusals

M2 = axe.Mesh({"x": 2})
TEXT = "def doubled(x):\n    return x * 2\n"


@pytest.fixture
def function(tmp_path: Path) -> str:
    (tmp_path / "f.py").write_text(TEXT)
    return f"{tmp_path / 'f.py'}:doubled"


def launched(function: str, *layouts: str, wanted: tuple[str, ...] = ()) -> Any:
    return compiled_on(M2, layouts, wanted, function, ("8x4:f32",), None, None, (), "real")


def test_layouts_of_arguments_and_outputs_are_those_asked_for(function: str) -> None:
    assert (mesh_of(4, None), mesh_of(None, "x=2,y=2")) == (
        axe.Mesh({"x": 4}), axe.Mesh({"x": 2, "y": 2}),
    )  # fmt: skip
    rows = axe.read("jax", "P('x',None)", shape=(8, 4), mesh=M2)
    exe = launched(function, "jax:P('x',None)", wanted=("jax:P('x',None)",))
    assert exe.layouts == {"x": rows.canonical(), "output 0": rows.canonical()}
    whole = launched(function, "-", wanted=("-",)).layouts["x"]
    assert len(whole.replica) == 1


def test_bad_options_are_one_clear_error(function: str, golden: Callable[[str], None]) -> None:
    calls: dict[str, Callable[[], Any]] = {
        "no devices": lambda: mesh_of(None, None),
        "two numbers of devices": lambda: mesh_of(3, "x=2"),
        "layouts": lambda: launched(function, "-", "-"),
        "layout": lambda: launched(function, "jax:P('y',None)"),
        "output layouts": lambda: launched(function, wanted=("-", "-")),
    }
    golden(refusals(calls))


def test_what_takes_long_to_begin_is_said_before() -> None:
    assert long_begin(8, 2) == ""
    assert long_begin(600, 2) == "600 processes on 2 cores: about 240 s and 27.9 GiB to begin"
