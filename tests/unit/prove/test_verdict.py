from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from axe_eq.prove.verdict import (
    LayoutCounterexample,
    ProgramCounterexample,
    Proved,
    Refuted,
    Unknown,
)


def counterexample(**more: object) -> ProgramCounterexample:
    fields: dict[str, object] = {
        "inputs": (np.array([[1, 0], [2, -3]], np.float16), np.array(2, np.int32)),
        "output": 0,
        "index": (1, 0),
        "value_a": 3.0,
        "value_b": 5.5,
        "bounds_a": (3.0, 3.0),
        "bounds_b": (5.25, 5.75),
        "names": ("x", "n"),
    }
    return ProgramCounterexample(**(fields | more))  # type: ignore[arg-type]


def test_only_proved_is_true() -> None:
    assert Proved("certificate", "a = b")
    assert not Refuted(None, "the types differ")
    assert not Unknown("a law for sort", "2 s")


@pytest.mark.parametrize("verdict", [Proved("c", "s"), Refuted(None, "r"), Unknown("m")])
def test_verdicts_are_frozen(verdict: object) -> None:
    name = dataclasses.fields(verdict)[0].name  # type: ignore[arg-type]
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(verdict, name, "other")


def test_text_of_verdicts() -> None:
    assert str(Proved("c", "a = b over the reals")) == "Proved: a = b over the reals"
    assert str(Unknown("no law rewrites sort")) == "Unknown: no law rewrites sort"
    assert str(Unknown("time", "2 s")) == "Unknown: time (budget: 2 s)"
    assert str(Refuted(None, "a has 1 outputs, b has 2")) == "Refuted: a has 1 outputs, b has 2"


def test_text_of_a_layout_counterexample() -> None:
    found = LayoutCounterexample(
        4, frozenset({(("lane", 1), ("warp", 2)), ()}), frozenset({(("m", -2),)})
    )
    assert str(found) == "at x = 4: a gives {0, 1@lane 2@warp}, b gives {-2@m}"
    assert str(Refuted(found, "the maps differ")).startswith("Refuted: the maps differ\nat x = 4:")
    assert "a gives nothing" in str(LayoutCounterexample((0, 1), frozenset(), frozenset({()})))


def test_text_of_a_program_counterexample() -> None:
    assert str(counterexample()).splitlines() == [
        "output 0 at (1, 0): a gives 3.0, b gives 5.5 (in [5.25, 5.75])",
        "  x: float16[2, 2] [[1, 0], [2, -3]]",
        "  n: int32[] 2",
    ]


def test_text_of_large_inputs_is_short() -> None:
    large = np.zeros((100, 100), np.float32)
    large[3, :5] = 0.25
    text = str(counterexample(inputs=(large,), names=("x",), reduced=counterexample()))
    assert "  x: float32[100, 100], 5 of 10000 not zero" in text
    assert "the same at smaller extents:\n  output 0 at (1, 0)" in text
    assert len(text) < 500
