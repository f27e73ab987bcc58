"""Programs as plain data: the same nodes come back, with everything beside them."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import axe_eq as axe
from axe_eq.program.meaning import evaluate
from axe_eq.program.node import Program
from axe_eq.program.store import stored
from axe_eq.program.trace import trace
from axe_eq.program.types import dtype as element_type
from benchmarks.random_programs import random_inputs, random_program

TABLE = np.arange(24, dtype=np.float32).reshape(4, 6).astype(ml_dtypes.bfloat16)


def block(x: Any, ws: dict[str, Any]) -> Any:
    hidden = axe.nn.silu(x @ ws["up"])
    return {"out": (hidden @ ws["down"], axe.array.sum(hidden)), "table": [TABLE * 2 + x[:4, :6]]}


def block_program() -> Program:
    tokens = axe.dim("tokens", divisible=8, example=16)
    program = trace(
        block,
        axe.Spec((tokens, 8), "bf16", dims=("", "hidden"), layout="S[(16,8):(8@m,1@m)]"),
        {"up": axe.Spec((8, 4), "bf16"), "down": axe.Spec((4, 8), "bf16")},
    )
    layouts = (axe.Layout.parse("S[(16,8):(1@m,16@m)]"), None, None)
    return replace(program, output_layouts=layouts)


def sent(program: Program) -> Program:
    """The program as another process gets it."""
    read: Program = pickle.loads(pickle.dumps(stored(program))).program
    return read


def assert_same(read: Program, program: Program) -> None:
    assert replace(read, retrace=program.retrace) == program
    assert all(a is b for a, b in zip(read.nodes(), program.nodes(), strict=True))
    assert (read.names, read.places) == (program.names, program.places)
    assert read.constants.keys() == program.constants.keys()
    for name, array in program.constants.items():
        assert read.constants[name].dtype == array.dtype
        assert np.array_equal(read.constants[name], array)


def test_everything_comes_back() -> None:
    program = block_program()
    assert program.constants
    assert program.names
    assert program.places
    assert_same(sent(program), program)


def test_nodes_are_made_again_where_they_are_gone() -> None:
    data = pickle.dumps(stored(block_program()))
    again = pickle.loads(data).program
    assert json.dumps(stored(again), default=str) == json.dumps(pickle.loads(data), default=str)


@pytest.mark.parametrize("seed", range(40))
def test_random_programs_come_back_with_their_meaning(seed: int) -> None:
    rng = np.random.default_rng(seed)
    program = random_program(rng, 12)
    arrays = random_inputs(program, rng)
    read = sent(program)
    assert_same(read, program)
    for a, b in zip(evaluate(read, arrays), evaluate(program, arrays), strict=True):
        assert a.tobytes() == b.tobytes()


def test_deep_programs_need_no_recursion() -> None:
    def deep(x: Any) -> Any:
        for _ in range(5000):
            x = x + x
        return x

    program = trace(deep, "2:f32")
    assert_same(sent(program), program)


@pytest.mark.parametrize("dtype", [np.float16, np.int64, np.bool_, ml_dtypes.float8_e5m2])
def test_constants_of_every_width(dtype: Any) -> None:
    table = np.array([[1, 0, 1]]).astype(dtype)
    program = trace(lambda x: axe.array.concat([axe.array.asarray(table), x]), f"2x3:{name(dtype)}")
    assert_same(sent(program), program)


def name(dtype: Any) -> str:
    return element_type(np.dtype(dtype)).name
