"""Values that laws made of one another: demand ends, and misses nothing that is chosen."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import axe_eq as axe
from axe_eq import nn

xp = axe.array


def part_of_a_join(x: Any) -> Any:
    whole = xp.concat([x, 2 * x])
    return whole, whole[:5] + 1


def square_of_a_join(x: Any) -> Any:
    whole = xp.concat([x, 2 * x], axis=-1)
    return whole @ whole.mT


def parts_of_a_product(x: Any, w: Any) -> Any:
    both = x @ xp.concat([w, 2 * w], axis=1)
    return xp.tanh(both[:, :5]) * both[:, 5:]


def one_index_of_one(x: Any) -> Any:
    whole = xp.sum(x, keepdims=True)
    part = (whole @ whole.mT)[::-2, ::3]
    return part - xp.mean(part, axis=1, keepdims=True)


ENDLESS: dict[Callable[..., Any], tuple[str, ...]] = {
    part_of_a_join: ("5:f32",),
    square_of_a_join: ("4x12x5:f16",),
    parts_of_a_product: ("5x8:f32", "8x5:f32"),
    one_index_of_one: ("4x2:f32",),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("fn", ENDLESS)
def test_demand_ends(fn: Callable[..., Any]) -> None:
    with axe.debug(node_limit=5000):
        exe = axe.compile(fn, *ENDLESS[fn], target="h200")
    assert exe.stopped == "saturated"


def halves_joined(x: Any) -> Any:
    y = xp.exp(x)
    return xp.concat([xp.tanh(y[:2]), xp.tanh(y[2:])])


def rolled_twice(x: Any) -> Any:
    return xp.roll(xp.roll(xp.exp(x), 2, axis=0), 3, axis=0) * 2


def rows_of_one(x: Any) -> Any:
    return nn.layernorm(x) * 2


CIRCLES = {halves_joined: "5x4:f32", rolled_twice: "5x4:f32", rows_of_one: "4x1:f32"}


@pytest.mark.sampled(1, slow=("rolled_twice",))
@pytest.mark.parametrize("fn", CIRCLES)
def test_what_is_set_aside_is_nothing_that_is_chosen(
    fn: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = axe.compile(fn, CIRCLES[fn], target="h200")
    monkeypatch.setattr("axe_eq.pipeline.saturation.leave_out_circles", lambda session: None)
    with axe.debug(cache=0):
        every = axe.compile(fn, CIRCLES[fn], target="h200")
    assert every.stopped == "saturated"  # these circles end
    few, many = (int(str(exe.report["saturate"].notes["rows"])) for exe in (found, every))
    assert few < many
    assert found.schedule.graph == every.schedule.graph
