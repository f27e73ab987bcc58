"""How the outputs of a program are nested that was not traced."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.errors import ProgramError
from axe_eq.program.node import InputSpec, Program, input_node, op_node
from axe_eq.program.types import value_type


def by_hand(n_outputs: int, structure: Any = None) -> Program:
    x = input_node("x", value_type("f32[4]"))
    made = [op_node("a -> a", name, [x]) for name in ("neg", "abs", "exp")]
    return Program((InputSpec(x),), tuple(made[:n_outputs]), structure)


def test_a_program_that_says_no_nesting_of_its_outputs_gives_one_or_a_tuple(tmp_path: Path) -> None:
    x = np.arange(4, dtype=np.float32)
    one, two = (axe.compile(by_hand(n), target="cpu") for n in (1, 2))
    assert np.array_equal(one(x), -x)
    given = two.meaning(x)
    assert isinstance(given, tuple)
    assert all(map(np.array_equal, given, (-x, x)))
    one.save(tmp_path / "one.axe")
    assert np.array_equal(axe.load(tmp_path / "one.axe")(x), -x)


@pytest.mark.parametrize(
    "structure", [(), "x", 3, 1, ["tuple", [0, 0]], ["set", [0, 1]], ["dict", [0, 1]], ["list", 0]]
)
def test_a_nesting_of_other_outputs_is_one_clear_error(structure: Any) -> None:
    with pytest.raises(
        ProgramError, match=r"program: has structure .*; expected outputs 0 1, nest"
    ):
        by_hand(2, structure)
    assert by_hand(2, ["dict", [["b", 1], [("a", 0), 0]]]).structure[0] == "dict"
