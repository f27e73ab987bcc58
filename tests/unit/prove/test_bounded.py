"""What a question costs is bounded by its budget, whatever the extents it is about."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.array import flip, pad, repeat, sum
from axe_eq.errors import SearchError
from axe_eq.program.node import input_node, sel_node
from axe_eq.program.trace import trace
from axe_eq.program.types import ValueType
from axe_eq.prove.programs.enclose import plan, run
from axe_eq.prove.programs.refute import refute
from axe_eq.prove.programs.region import sel_sources, whole

LARGE = ("400000000:f32", "1x600000000:f32", "281474976710656:i64", "62147483648x128:f16")
MIB = 1 << 20


def traced_mib(call: Callable[[], Any]) -> tuple[Any, float]:
    """What a call returns, and the most memory that Python's allocators gave it, in MiB."""
    tracemalloc.start()
    try:
        return call(), tracemalloc.get_traced_memory()[1] / MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("spec", LARGE)
def test_large_programs_are_decided_without_arrays_of_their_size(spec: str) -> None:
    def decided() -> list[Any]:
        twice, more = (trace(f, spec) for f in (lambda x: x + x, lambda x: x * 2))
        other = trace(lambda x: x * 3, spec)
        return [refute(twice, more), refute(twice, other)]

    (same, differ), most = traced_mib(decided)
    assert same is None
    assert differ is not None
    assert most < 64
    assert axe.equivalent(lambda x: x + x, lambda x: x * 2, spec, packs=["real_normal"])


def test_bit_for_bit_and_long_sums_are_bounded_too() -> None:
    def decided() -> list[Any]:
        twice, more = (trace(f, LARGE[0]) for f in (lambda x: x + x, lambda x: flip(x) + x))
        sums = [trace(f, "4:f32") for f in (lambda x: sum(repeat(x, 1 << 30)), lambda x: sum(x))]
        return [refute(twice, more, numerics="exact"), refute(*sums)]

    assert traced_mib(decided)[1] < 64


def test_a_plan_that_costs_more_than_its_limit_is_given_up_before_it_is_made() -> None:
    shape = (112, 64, 512, 512)

    def f(x: Any) -> Any:
        rows = axe.array.reshape(x, (112, 8, -1))
        return axe.array.reshape(nn.layernorm(rows), shape)

    outputs = trace(f, axe.Spec(shape, "f32")).outputs
    wanted = [tuple(np.arange(1) for _ in shape)]

    def limited() -> None:
        with pytest.raises(SearchError, match="costs too much; expected <= 100000 operations"):
            plan(outputs, wanted, 1e5)

    assert traced_mib(limited)[1] < 256
    with pytest.raises(SearchError, match="needs a list of 400000000 indices"):
        whole((400_000_000,))


def test_values_of_which_nothing_is_read_have_no_index_that_is_looked_up() -> None:
    """Only padding is read of the output: everything below it has an empty region."""

    def f(x: Any) -> Any:
        return pad(nn.softmax(x), ((3, 0), (0, 0)))

    (output,) = trace(f, "4x8:f32").outputs

    found = run(plan([output], [(np.arange(3), np.arange(8))]), lambda *_: pytest.fail("read"))
    assert found[0].low.tolist() == found[0].high.tolist() == [[0.0] * 8] * 3


FACTORS = ((60,), (4, 15), (2, 2, 15), (1, 60, 1), (2, 1, 30), (3, 4, 5), (5, 12), (60, 1))


@pytest.mark.parametrize("a", FACTORS)
def test_a_reshape_reads_what_the_row_major_order_says(a: tuple[int, ...]) -> None:
    """`split` and `merge` of every pair of shapes of 60 elements, at random regions."""
    rng = np.random.default_rng(0)
    x = input_node("x", ValueType("f32", a))
    flat = x if len(a) == 1 else sel_node(f"merge 0 {len(a)}", [x])
    for b in FACTORS:
        node = (
            flat if len(b) == 1 else sel_node(f"split 0 {(-1, *b[1:])}".replace(", ", ","), [flat])
        )
        if node is x:
            continue
        region = tuple(np.sort(rng.choice(e, rng.integers(1, e + 1), replace=False)) for e in b)
        middle = node.args[0]
        (source,) = sel_sources(node, region)
        wanted = np.unravel_index(np.arange(60).reshape(b)[np.ix_(*region)], middle.shape)
        for got, index in zip(source.coordinates, wanted, strict=True):
            assert np.array_equal(np.broadcast_to(got, index.shape), index)
        for needed, index in zip(source.needs(), wanted, strict=True):
            assert np.array_equal(needed, np.unique(index))
