"""Monoids of packs that lift values: lifting twice is another function, which no law may do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
import axe_eq.array as xp
from axe_eq.pack import installed
from axe_eq.program.ops import Cell, Monoid, folding, monoid_of

LIFTING = ("sum_of_twice", "max_of_twice")


@pytest.fixture(scope="module", autouse=True)
def packs(own_operators: None) -> list[axe.Pack]:
    """All installed packs and one with monoids that lift, and one that says nothing of itself."""
    pack = axe.Pack("lifting_of_tests")
    pack.cell(Cell("twice_of_tests", 1, lambda x: x + x, "number"))
    pack.monoid(monoid_of("sum_of_twice", "add", 0.0, lifts="twice_of_tests"))
    pack.monoid(monoid_of("max_of_twice", "maximum", lifts="twice_of_tests", exact=True))
    pack.monoid(monoid_of("length_of_twice", "hypot", lifts="twice_of_tests", result="float"))
    pack.monoid(
        Monoid(
            "squares_of_tests",
            lambda values, axes: ((values[0] ** 2).sum(axis=axes, keepdims=True),),
            lambda a, b: (a[0] + b[0],),
            lambda state: state[0],
        )
    )
    return [*installed().values(), pack]


def rows(monoid: str) -> Callable[[Any], Any]:
    return lambda x: xp.block(f"a b -> a; {monoid} b", "id", x)


def test_values_are_reduced_again_by_a_monoid_of_the_same_cell() -> None:
    assert [folding(m) for m in ("+", "max", "softmax", "argmax")] == ["+", "max", "", ""]
    assert [folding(m) for m in LIFTING] == ["+", "max"]
    assert folding("length_of_twice") == folding("squares_of_tests") == ""


@pytest.mark.parametrize("monoid", [*LIFTING, "squares_of_tests"])
def test_a_reduction_of_reductions_is_not_one_reduction(monoid: str, packs: list[axe.Pack]) -> None:
    def nested(x: Any) -> Any:
        return xp.block(f"a -> ; {monoid} a", "id", rows(monoid)(x))

    def once(x: Any) -> Any:
        return xp.block(f"a b -> ; {monoid} a b", "id", x)

    assert not axe.equivalent(nested, once, "4x3:f32", packs=packs)


def test_padding_does_not_move_into_a_monoid_that_changes_what_it_pads_with(
    packs: list[axe.Pack],
) -> None:
    def inside(x: Any) -> Any:
        return rows("max_of_twice")(xp.pad(x, ((1, 0), (0, 0)), constant_values=1.0))

    def outside(x: Any) -> Any:
        return xp.pad(rows("max_of_twice")(x), ((1, 0),), constant_values=1.0)

    assert not axe.equivalent(inside, outside, "4x3:f32", packs=packs)


def test_a_long_reduction_in_two_stages_lifts_once(packs: list[axe.Pack]) -> None:
    exe = axe.compile(rows("sum_of_twice"), "2x131072:f32", target="cpu", packs=packs)
    x = np.ones((2, 131072), np.float32)
    assert exe(x).tolist() == exe.meaning(x).tolist()
    texts = [n.text for k in exe.kernels for n in k.nodes if n.text]
    assert texts == ["a b c -> a b; sum_of_twice c", "a b -> a; + b"]


def test_parts_on_devices_lift_once_and_are_as_few_bytes_as_those_of_max(
    packs: list[axe.Pack],
) -> None:
    mesh = axe.Mesh({"x": 4})
    columns = axe.read("jax", "P(None,'x')", shape=(64, 300), mesh=mesh)
    x = axe.Spec((64, 300), "f32", layout=columns)
    given = np.random.default_rng(0).integers(-9, 9, (64, 300)).astype(np.float32)
    bytes_of = {}
    for monoid in (*LIFTING, "squares_of_tests", "max"):
        exe = axe.compile(
            rows(monoid), x, target="cpu", mesh=mesh, packs=packs, objective="link_bytes"
        )
        assert (exe(given) == exe.meaning(given)).all()
        bytes_of[monoid] = exe.plan.link_bytes
    assert bytes_of.pop("squares_of_tests") == 3 * 64 * 300  # all columns: 4 bytes, 3 of 4 devices
    assert set(bytes_of.values()) == {3 * 64 * 4}
