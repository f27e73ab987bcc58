"""Layouts of inputs and outputs on axes that a target does not have: one clear error each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import axe_eq as axe
from axe_eq.errors import LayoutError


def shift(x: Any) -> Any:
    return x + 1


def test_an_axis_that_the_target_lacks_is_one_clear_error(golden: Callable[..., None]) -> None:
    mesh = axe.Mesh({"x": 2}, axis="dev")
    messages = []
    for layout, options in (
        ("S[8:1@lane]", {"target": "cpu"}),
        ("S[(4,2):(1@P,1@F)]", {"target": "h200"}),
        ("S[(2,4):(1@gpuid,1)]", {"target": "cpu"}),
        ("S[(2,4):(1@gpuid,1)]", {"target": "cpu", "mesh": mesh}),
        ("S[8:1] + 1@dev", {"target": "cpu"}),
    ):
        with pytest.raises(LayoutError) as raised:
            axe.compile(shift, axe.Spec((8,), "f32", layout=layout), **options)
        messages.append(str(raised.value))
    outputs = [axe.Layout.parse("S[8:1@lane]")]
    with pytest.raises(LayoutError) as raised:
        axe.compile(shift, "8:f32", target="cpu", outputs=outputs)
    golden("\n".join([*messages, str(raised.value)]))


def test_an_axis_that_is_only_named_is_no_error() -> None:
    spec = axe.Spec((8,), "f32", layout="S[8:1] + R[(1):(4@lane)]")
    assert axe.compile(shift, spec, target="cpu").schedule is not None
