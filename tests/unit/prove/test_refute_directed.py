"""Refutation by inputs that are chosen for it: poles, ends of integers, negative rows, NaN."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

from axe_eq.program.meaning import evaluate
from axe_eq.program.node import Node, op_node
from axe_eq.prove.certificates.verdict import ProgramCounterexample
from axe_eq.prove.programs.refute import refute
from tests.unit.prove.test_refute import (
    cell,
    chain,
    check,
    number,
    one_at,
    program,
    reduced,
    scaled,
)

# Programs that differ in where they are undefined, the side that is, and where they are.
UNDEFINED: dict[str, tuple[Callable[..., Any], Callable[..., Any], str, Callable[[Any], Any]]] = {
    "x / x": (lambda x: cell("div", x, x),
              one_at, "a", lambda x: x == 0),
    "exp of log": (lambda x: x, chain("log", "exp"), "b", lambda x: x <= 0),
    "square of root": (lambda x: cell("mul", cell("sqrt", x), cell("sqrt", x)), lambda x: x, "a",
                       lambda x: x < 0),
    "logarithm of a size": (chain("log"), chain("abs", "log"), "a", lambda x: x < 0),
    "a difference of infinities": (
        lambda x: scaled(scaled(x, "add", math.inf), "sub", math.inf), lambda x: x, "a",
        lambda x: x == x),
    "a sum of one pole": (
        lambda x: op_node("a -> b; + a [b=64]", "id", [cell("div", x, x)]),
        lambda x: scaled(scaled(x, "mul", 0.0), "add", 64.0), "a", lambda x: x == x),
    "a choice by what is undefined": (
        lambda x: op_node("a, a, a -> a", "where", [cell("gt", cell("div", x, x), x), x, x]),
        lambda x: x, "a", lambda x: x == 0),
    "a remainder": (lambda x: cell("remainder", x, x), lambda x: scaled(x, "mul", 0.0), "a",
                    lambda x: x == 0),
}  # fmt: skip


@pytest.mark.parametrize("name", UNDEFINED)
def test_sides_that_are_undefined_at_different_inputs_are_refuted(name: str) -> None:
    build_a, build_b, side, where = UNDEFINED[name]
    found = refute(program(build_a, "f32[64]"), program(build_b, "f32[64]"))
    assert found is not None
    assert f"is undefined in {side} alone" in found.reason
    at = found.counterexample
    assert isinstance(at, ProgramCounterexample)
    assert where(at.inputs[0][at.index])
    values = {"a": at.value_a, "b": at.value_b}
    assert math.isnan(values.pop(side))
    assert math.isfinite(*values.values())


WRAPPING: dict[str, tuple[Callable[..., Any], Callable[..., Any], tuple[str, ...]]] = {
    "half of a double": (
        lambda x: scaled(scaled(x, "mul", 2), "floor_divide", 2), lambda x: x, ("i32[8]",)),
    "one more is more": (
        lambda x: cell("gt", scaled(x, "add", 1), x), lambda x: cell("eq", x, x), ("i8[8]",)),
    "a difference of bytes": (
        lambda x, y: scaled(cell("sub", x, y), "gt", 0), lambda x, y: cell("gt", x, y),
        ("u8[8]", "u8[8]")),
    "a narrow integer": (lambda x: chain("cast i16", "cast i32")(x), lambda x: x, ("i32[8]",)),
    "a size": (lambda x: scaled(cell("abs", x), "ge", 0), lambda x: cell("eq", x, x), ("i16[32]",)),
    "a shift": (
        lambda x: scaled(scaled(x, "shl", 3), "shr", 3), lambda x: x, ("i32[8]",)),
    "the sum of a row": (
        lambda x: cell("cast i32", reduced("+", x)),
        lambda x: reduced("+", op_node("a b -> a b", "cast i32", [x])), ("i8[4,8]",)),
}  # fmt: skip


@pytest.mark.parametrize("numerics", ["real", "exact"])
@pytest.mark.parametrize("name", WRAPPING)
def test_integers_wrap_around(name: str, numerics: str) -> None:
    build_a, build_b, types = WRAPPING[name]
    a, b = program(build_a, *types), program(build_b, *types)
    found = check(a, b, numerics=numerics)
    bits = [evaluate(side, list(found.inputs))[0][found.index] for side in (a, b)]
    assert (bits[0] == found.value_a, bits[1] == found.value_b) == (True, True)


def largest(x: Node) -> Node:
    return op_node("a b -> a; max b", "id", [x])


NEGATIVE: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "a maximum from 0": (largest, lambda x: scaled(largest(x), "maximum", 0.0)),
    "the sign of a product": (
        lambda x: reduced("*", x), lambda x: reduced("*", op_node("a b -> a b", "abs", [x]))),
    "any of them": (
        lambda x: reduced("or", op_node("a b, -> a b", "gt", [x, number(0.0, x)])),
        lambda x: reduced("or", op_node("a b, -> a b", "gt", [x, number(-5.0, x)]))),
}  # fmt: skip


@pytest.mark.parametrize("name", NEGATIVE)
def test_rows_without_a_zero_or_a_positive_number_are_tried(name: str) -> None:
    build_a, build_b = NEGATIVE[name]
    check(program(build_a, "f32[4,32]"), program(build_b, "f32[4,32]"))


def test_nan_is_tried_without_zeros_of_both_signs() -> None:
    found = refute(
        program(lambda x: scaled(x, "maximum", 0.0), "f32[64]"),
        program(
            lambda x: op_node("a, a, -> a", "where", [scaled(x, "gt", 0.0), x, number(0.0, x)]),
            "f32[64]",
        ),
        numerics="exact",
    )
    assert found is not None
    assert isinstance(found.counterexample, ProgramCounterexample)
    assert math.isnan(found.counterexample.value_a)
