"""Values of the interface go where Python's do: copies, other processes, masks of numpy."""

from __future__ import annotations

import copy
import os
import pickle
import subprocess
import sys
from functools import partial
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import array as xp
from axe_eq.errors import ArgumentError, ProgramError
from axe_eq.program.node import op_node
from axe_eq.program.terms import encode

SIDES: dict[str, tuple[Any, Any]] = {
    "proved": (lambda x: x + 1.0, lambda x: 1.0 + x),
    "refuted": (lambda x: x + 1.0, lambda x: x + 2.0),
    "unknown": (lambda x: x**0.0, lambda x: x * 0.0 + 1.0),
}


def test_verdicts_come_back_from_another_process() -> None:
    """Where strings have other hashes, in which symbols and terms are found."""
    verdicts = {name: axe.equivalent(*sides, "4:f32") for name, sides in SIDES.items()}
    code = (
        "import pickle, sys; given = pickle.load(sys.stdin.buffer);"
        "sys.stdout.buffer.write(pickle.dumps([(str(v), v) for v in map(pickle.loads, given)]))"
    )
    given = pickle.dumps([pickle.dumps(verdict) for verdict in verdicts.values()])
    done = subprocess.run(
        [sys.executable, "-c", code], input=given, capture_output=True, check=True,
        env={**os.environ, "PYTHONHASHSEED": "7"},
    )  # fmt: skip
    for (name, verdict), (text, back) in zip(
        verdicts.items(), pickle.loads(done.stdout), strict=True
    ):
        assert type(verdict).__name__.lower() == name
        assert text == str(back) == str(verdict)
        if isinstance(verdict, axe.Proved):
            assert back == verdict
            assert axe.check_certificate(back.certificate)


def test_nodes_and_terms_are_one_object_each_however_deep() -> None:
    node = axe.trace(lambda x: x, "4:f32").outputs[0]
    for _ in range(3000):
        node = op_node("a -> a", "neg", [node])
    term = encode([node])[node]
    for value in (node, term):
        assert pickle.loads(pickle.dumps(value)) is value
        assert copy.copy(value) is copy.deepcopy(value) is value


def test_traced_arrays_are_copied_as_arrays_are() -> None:
    def fn(x: Any) -> Any:
        return copy.deepcopy(x) + copy.copy(x)

    np.testing.assert_array_equal(axe.run(fn, np.ones(4, np.float32)), np.full(4, 2.0))
    program = axe.trace(fn, "4:f32")
    assert copy.deepcopy(program).outputs[0] is program.outputs[0]


def test_masked_elements_are_not_read_as_numbers() -> None:
    """Their values were used as if nothing had been masked."""
    exe = axe.compile(lambda x: x + 1.0, "2:f32", target="cpu")
    masked = np.ma.masked_array(np.ones(2, np.float32), [True, False])
    calls: list[Any] = [exe, exe.interpret, lambda x: axe.run(lambda y: y + 1.0, x)]
    for call in calls:
        with pytest.raises(ArgumentError, match=r"has masked elements; expected an array; filled"):
            call(masked)
        np.testing.assert_array_equal(call(masked.filled(1.0)), [2.0, 2.0])
    with pytest.raises(
        ProgramError, match=r"^operand: has masked elements; expected an array; fil"
    ):
        axe.trace(lambda x: x + masked, "2:f32")


VIEWS: dict[str, Any] = {
    "itself": lambda x: x,
    "turned": lambda x: xp.permute_dims(x, (1, 0)),
    "reshaped": lambda x: xp.reshape(x, (3, 16)),
    "cut": lambda x: x[::2, 1:5],
    "flipped": lambda x: xp.flip(x, axis=0),
    "split and turned": lambda x: xp.permute_dims(xp.reshape(x, (6, 2, 4)), (1, 0, 2)),
    "several, one of them twice": lambda x: (x, x[1:3], x, y := x + 1, y, xp.reshape(y, (48,))),
}


@pytest.mark.parametrize(
    ("name", "outputs"), [*((name, None) for name in VIEWS), ("turned", "any"), ("cut", "any")]
)
def test_results_are_arrays_of_their_own(name: str, outputs: Any) -> None:
    """In any layout: what is done to an argument, or to another result, changes none."""
    fn, x = VIEWS[name], np.arange(48, dtype=np.float32).reshape(6, 8)
    exe = axe.compile(fn, "6x8:f32", target="cpu", outputs=outputs)
    calls: list[Any] = [exe, exe.interpret, exe.schedule.run, exe.meaning, partial(axe.run, fn)]
    for call in calls:
        found, wanted = call(x), axe.run(fn, x)
        one, other = (r if isinstance(r, tuple) else (r,) for r in (found, wanted))
        for result, right in zip(one, other, strict=True):
            np.testing.assert_array_equal(result, right)
            assert result.flags.writeable
            assert not any(np.shares_memory(result, y) for y in (x, *one) if y is not result)
        assert len({id(result) for result in one}) == len(one)
