from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.program.types import ValueType
from axe_eq.prove.certificates.verdict import (
    LayoutCounterexample,
    ProgramCounterexample,
    Proved,
    Refuted,
    Unknown,
)
from axe_eq.prove.programs.sample import Sample, SampledInputs


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


def test_what_a_prompt_shows_of_a_verdict_is_its_text_and_how_it_was_proved() -> None:
    """Neither the certificate's JSON nor the terms of a search."""
    proved = axe.equivalent(lambda x: x + x, lambda x: 2 * x, "4:f32")
    assert repr(proved) == f"<Proved (decided): {proved.statement}>"  # type: ignore[union-attr]
    unknown = axe.equivalent(lambda x: x + x, lambda x: 2 * x, "4:f32", numerics="exact")
    refuted = axe.equivalent("S[4:1]", "S[4:2]")
    assert [repr(v) for v in (unknown, refuted)] == [f"<{unknown}>", f"<{refuted}>"]


def test_text_of_a_layout_counterexample() -> None:
    found = LayoutCounterexample(
        4, frozenset({(("lane", 1), ("warp", 2)), ()}), frozenset({(("m", -2),)})
    )
    assert str(found) == "at element 4: a gives {0, 1@lane 2@warp}, b gives {-2@m}"
    assert str(Refuted(found, "the maps differ")).startswith(
        "Refuted: the maps differ\nat element 4:"
    )
    assert str(dataclasses.replace(found, dims=(2, 3))).startswith("at element (1,1): a gives")
    assert dataclasses.replace(found, numbers={"n": 8}, dims=(2, 3)).element == (1, 1)
    assert "a gives nothing" in str(LayoutCounterexample((0, 1), frozenset(), frozenset({()})))


def test_text_of_a_program_counterexample() -> None:
    assert str(counterexample()).splitlines() == [
        "output 0 at (1, 0): a gives 3.0, b gives 5.5 (in [5.25, 5.75])",
        "  x: float16[2, 2] [[1, 0], [2, -3]]",
        "  n: int32[] 2",
    ]


def test_inputs_are_shown_as_they_are_where_bits_tell_programs_apart() -> None:
    shown = counterexample(inputs=(np.array([-0.0, 1e300, 0.5]),), names=("x",))
    assert "x: float64[3] [-0, 1e+300, 0.5]" in str(shown)


def test_text_of_large_inputs_is_short() -> None:
    large = np.zeros((100, 100), np.float32)
    large[3, :5] = 0.25
    text = str(counterexample(inputs=(large,), names=("x",), reduced=counterexample()))
    listed = ", ".join(f"[3, {n}] = 0.25" for n in range(5))
    assert f"  x: float32[100, 100], all 0 but {listed}\n" in text
    assert "the same at smaller extents:\n  output 0 at (1, 0)" in text
    assert len(text) < 500


def large(dtype: str, others: float, **elements: float) -> np.ndarray[Any, Any]:
    array = np.full((20, 30), others, dtype)
    for place, value in elements.items():
        array[tuple(map(int, place.removeprefix("at").split("_")))] = value
    return array


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (large("f4", 0), "float32[20, 30], all 0"),
        (large("f4", 1), "float32[20, 30], all 1"),
        (
            large("i8", 0, at3_7=-(2**62) - 1),
            "int64[20, 30], all 0 but [3, 7] = -4611686018427387905",
        ),
        (large("f2", 2.5, at0_0=1, at19_29=2.5), "float16[20, 30], all 2.5 but [0, 0] = 1"),
        (large("?", True, at5_6=False), "bool[20, 30], all True but [5, 6] = False"),
        (large("f8", 0, at1_2=-0.0), "float64[20, 30], all 0 but [1, 2] = -0"),
        (large("f8", np.nan, at1_2=np.inf), "float64[20, 30], all nan but [1, 2] = inf"),
        (
            np.arange(600, dtype="i4").reshape(20, 30),
            "int32[20, 30], 599 of 600 not 0: [0, 1] = 1, [0, 2] = 2, [0, 3] = 3, [0, 4] = 4, ...",
        ),
    ],
)
def test_of_a_large_input_the_elements_unlike_the_others_are_shown(
    array: np.ndarray[Any, Any], text: str
) -> None:
    assert f"  x: {text}\n" in f"{counterexample(inputs=(array,), names=('x',))}\n"


@pytest.mark.parametrize("pattern", ["one hot", "dense"])
def test_of_an_input_too_large_to_make_the_elements_that_are_not_zero_are_shown(
    pattern: str,
) -> None:
    of = ValueType("f32", (500, 600))
    sample = Sample(pattern, 3, 3 if pattern == "dense" else None, pattern == "dense")
    inputs = SampledInputs(sample, [of])
    found = counterexample(inputs=inputs, names=("x",))
    (elements,) = found.elements
    assert elements is not None
    (whole,) = inputs
    assert elements.others == 0
    assert [list(index) for index, _ in elements.first] == np.argwhere(whole).tolist()
    assert all(whole[index] == value for index, value in elements.first)
    assert f"  x: float32[500, 600], all 0 but {list(elements.first[0][0])} = " in str(found)


def test_layouts_are_compared_with_what_their_texts_leave_out() -> None:
    sides = ("jax:P('x',None)", "dtensor:(Shard(0), Replicate())")
    said: dict[str, Any] = {"shape": (8, 16), "mesh": axe.Mesh({"x": 2, "y": 4})}
    proved = axe.equivalent(*sides, **said)
    assert isinstance(proved, Proved)
    assert axe.check_certificate(proved.certificate)
    assert proved.statement.texts == sides
    value = axe.read("jax", "P('x',None)", **said)
    assert axe.equivalent(value, sides[1], **said)
    refuted = axe.equivalent(sides[0], "jax:P('y',None)", **said)
    assert isinstance(refuted, Refuted)
    assert isinstance(refuted.counterexample, LayoutCounterexample)
    assert refuted.counterexample.dims == (8, 16)
    with pytest.raises(axe.LayoutError, match=r"shape \(8, 8\)"):
        axe.equivalent(value, value, shape=(8, 8))
    with pytest.raises(axe.ArgumentError, match="how layouts are read"):
        axe.equivalent(lambda x: x, lambda x: x, "8:f32", shape=(8,))
    with pytest.raises(axe.NotationError, match="mesh: a dict"):
        axe.equivalent(*sides, shape=(8, 16), mesh={"x": 2})  # type: ignore[arg-type]


def test_a_verdict_s_stages_are_shown_with_the_laws_that_a_proof_uses(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with axe.debug(level=3):
        assert axe.equivalent(lambda x: x + x, lambda x: x * 2, "4:f32", packs=["real_normal"])
        said = capsys.readouterr().err
        assert "refute " in said
        assert "found=False" in said
        assert "stopped=proved" in said
        assert "1  real_normal/sum_form\n" in said or "2  real_normal/sum_form\n" in said
        assert axe.equivalent("S[(4,4):(4,1)]", "cute:(4,4):(1,4)")
        said = capsys.readouterr().err
        assert "verdict=proved\nboth sides are one term: no law is needed\n" in said
        assert not axe.equivalent("S[4:1]", "S[4:2]")
        assert "verdict=refuted\nRefuted: " in capsys.readouterr().err
