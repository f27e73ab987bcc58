"""Elements of a layout that share a place: what memory can hold of a value."""

from __future__ import annotations

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.errors import ArgumentError
from axe_eq.schedule.contents import may_alias, shared

VALUE = np.arange(6).reshape(2, 3)
KEPT: dict[str, list[list[int]]] = {
    "S[(6):(1)]": [[0, 1, 2], [3, 4, 5]],
    "S[(2,3):(-3,1)] + 3@m": [[0, 1, 2], [3, 4, 5]],
    "S[(6):(1)] + R[(2):(6)]": [[0, 1, 2], [3, 4, 5]],
    "S[(2,3):(0,1)]": [[0, 1, 2], [0, 1, 2]],
    "S[(2,3):(1,1)]": [[0, 1, 2], [1, 2, 5]],
    "S[(6):(1)] + R[(2):(1)]": [[0, 0, 0], [0, 0, 0]],  # each shares a place with the next
    "S[(6):(1)] + R[(2):(2)]": [[0, 1, 0], [1, 0, 1]],
}


@pytest.mark.parametrize("layout", KEPT)
def test_elements_at_one_place_become_the_first_of_them(layout: str) -> None:
    np.testing.assert_array_equal(shared(VALUE, layout), KEPT[layout])
    assert may_alias(layout) == (KEPT[layout] != VALUE.tolist())


@pytest.mark.parametrize("layout", ["S[(4,6):(0@m,1@m)]", "S[(4,6):(1@m,1@m)]"])
def test_a_device_s_interpreter_refuses_what_its_memory_cannot_hold(layout: str) -> None:
    """One of several elements was taken for all; and samples that held others were called wrong."""
    with axe.debug(check=2):
        exe = axe.compile(lambda x: x + 1, axe.Spec((4, 6), "f32", layout=layout), target="h200")
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    fits = shared(x, layout)
    np.testing.assert_array_equal(exe.interpret(fits), fits + 1)
    with pytest.raises(ArgumentError, match="'x': has different elements at one address of its"):
        exe.interpret(x)


@pytest.mark.parametrize("layout", ["S[(4,6):(0@m,1@m)]", "S[(4,6):(1@m,1@m)]"])
@pytest.mark.parametrize("mesh", [None, axe.Mesh({"x": 2})], ids=["one device", "a mesh"])
def test_calls_refuse_what_a_memory_cannot_hold(mesh: axe.Mesh | None, layout: str) -> None:
    """On a mesh every device has such a copy."""
    cut = axe.Layout.parse(layout + (" + R[(2):(1@gpuid)]" if mesh else ""))
    spec = axe.Spec((4, 6), "f32", layout=cut)
    exe = axe.compile(lambda x: x + 1, spec, target="cpu" if mesh else "trn2", mesh=mesh)
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    fits = shared(x, layout)
    np.testing.assert_array_equal(exe(fits), fits + 1)
    with pytest.raises(ArgumentError, match="'x': has different elements at one address of its"):
        exe(x)
