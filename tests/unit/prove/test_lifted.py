"""Inputs with few classes of indices: enclosures at one index of each are those of all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.program.interval import literal, point
from axe_eq.program.node import Node, Program, op_node
from axe_eq.program.types import ValueType
from axe_eq.prove.certificates.verdict import ProgramCounterexample
from axe_eq.prove.programs.enclose import enclose_program, run
from axe_eq.prove.programs.lifted import ALIKE, lifted_plan
from axe_eq.prove.programs.refute import refute
from axe_eq.prove.programs.region import Region, size
from axe_eq.prove.programs.sample import PATTERNS, RANDOM, Sample
from benchmarks.random_programs import random_program
from tests.unit.prove.test_refute import MATMUL, cell, number, program, reduced


def compare(of: Program, sample: Sample) -> bool:
    """The lifted values agree with the program's, everywhere; False where it is not lifted."""
    plan = lifted_plan(of.outputs, of.constants)
    if plan is None:
        return False
    nodes = [i.node for i in of.inputs]
    given = run(plan, lambda n, r: _given(of, nodes, sample, n, r))
    with np.errstate(all="ignore"):
        wanted = enclose_program(of, [sample.array(n, x.type) for n, x in enumerate(nodes)])
    for lifted, value in zip(given, wanted, strict=True):
        at = np.ix_(*(np.minimum(np.arange(e), ALIKE) for e in value.low.shape))
        low, high = lifted.low[at], lifted.high[at]
        undefined = np.isnan(low) | np.isnan(value.low)
        assert np.all(undefined | ((low <= value.high) & (value.low <= high)))
        # As tight, but for the roundings of other sums: no value is enclosed by "anything".
        assert np.all(np.isnan(value.low) | ~np.isnan(low))
        finite = ~undefined & np.isfinite(value.low) & np.isfinite(value.high)
        wide = 1e-6 * (1 + np.abs(value.low)) + 4 * (value.high - value.low)
        assert np.all(~finite | (high - low <= wide))
    return True


def _given(of: Program, nodes: Sequence[Node], sample: Sample, node: Node, region: Any) -> Any:
    if node.text in of.constants:
        return literal(of.constants[node.text][np.ix_(*region)], node.dtype)
    return point(sample.values(nodes.index(node), node.type, region))


LIFTED: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "product": (lambda x, y: op_node(MATMUL, "mul", [x, y]), ("f32[7,9]", "f32[9,6]")),
    "sum of squares": (lambda x: reduced("+", cell("mul", x, x)), ("f32[5,8]",)),
    "sum over all": (lambda x: op_node("a b ->; + a b", "id", [x]), ("f32[5,8]",)),
    "largest": (lambda x: reduced("max", x), ("f32[5,8]",)),
    "least": (lambda x: reduced("min", x), ("i32[5,8]",)),
    "transposed": (lambda x: op_node("a b -> b a", "exp", [x]), ("f32[5,8]",)),
    "broadcast": (lambda x, b: op_node("a b, b -> a b", "add", [x, b]), ("f32[5,8]", "f32[8]")),
    "mean": (
        lambda x: op_node("a, -> a", "div", [reduced("+", x), number(8.0, x)]), ("f32[5,8]",),
    ),
    "small product over a dim": (lambda x: op_node("a b -> a; * b", "id", [x]), ("f32[9,3]",)),
    "three operands": (
        lambda x, y, z: op_node("a c, c b, c -> a b; + c", "where", [cell("signbit", x), y, z]),
        ("f32[5,6]", "f32[6,7]", "f32[6]"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", LIFTED)
@pytest.mark.parametrize("padded", [True, False])
def test_values_are_those_of_the_whole_program(name: str, padded: bool) -> None:
    build, types = LIFTED[name]
    for pattern in PATTERNS:
        if pattern not in RANDOM:
            assert compare(program(build, *types), Sample(pattern, 2, ALIKE, padded))


TRACED: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "softmax": (lambda x: nn.softmax(x, axis=-1), ("6x9:f32",)),
    "rmsnorm": (lambda x, g: nn.rmsnorm(x) * g, ("6x9:f32", "9:f32")),
    "layernorm": (nn.layernorm, ("6x9:f32",)),
    "second half": (lambda x: x[:, 6:] * 2, ("5x12:f32",)),
    "every second": (lambda x: x[1::2] + 1, ("11x5:f32",)),
    "stacked along a small dim": (
        lambda x, y: x.__array_namespace__().stack([x, y]), ("5x6:f32", "5x6:f32"),
    ),
    "new dim": (lambda x: x[:, None, :] * x[None, :, :], ("5x6:f32",)),
}  # fmt: skip


@pytest.mark.parametrize("name", TRACED)
def test_traced_programs_are_lifted(name: str) -> None:
    function, specs = TRACED[name]
    for sample in (Sample("dense", 1, ALIKE), Sample("positive", 3, ALIKE, True)):
        assert compare(axe.trace(function, *specs), sample)


REFUSED: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "product over a large dim": (lambda x: x.__array_namespace__().prod(x, axis=0), ("9x2:f32",)),
    "position of the largest": (lambda x: x.__array_namespace__().argmax(x, axis=0), ("9x2:f32",)),
    "flip": (lambda x: x[::-1], ("9x2:f32",)),
    "pad": (lambda x: x.__array_namespace__().concat([x, x]), ("9x2:f32",)),
    "reshape": (lambda x: x.__array_namespace__().reshape(x, (3, 6)), ("9x2:f32",)),
    "iota": (lambda x: x + x.__array_namespace__().arange(9, dtype=x.dtype), ("2x9:f32",)),
    "captured": (lambda x: x + np.arange(9, dtype=np.float32), ("2x9:f32",)),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_tells_equal_indices_apart_is_not_lifted(name: str) -> None:
    function, specs = REFUSED[name]
    traced = axe.trace(function, *specs)
    assert lifted_plan(traced.outputs, traced.constants) is None


def test_windows_over_large_dims_are_not_lifted() -> None:
    windowed = program(lambda x: op_node("a+b -> a; + b [b=3]", "id", [x]), "f32[9]")
    assert lifted_plan(windowed.outputs, ()) is None


def test_random_programs_agree_where_they_are_lifted() -> None:
    seen = lifted = 0
    for seed in range(60):
        of = random_program(np.random.default_rng([77, seed]), 5)
        seen += any(e > ALIKE + 1 for node in of.nodes() for e in node.shape)
        lifted += compare(of, Sample("positive", seed, ALIKE, bool(seed % 2)))
    assert seen >= 20
    assert lifted >= 20


def test_a_large_block_is_refuted_at_its_own_shape_for_little() -> None:
    """A billion multiplications whole; what is asked for is a difference in one addition."""

    def block(x: Any, g: Any, w: Any, v: Any) -> Any:
        return x + nn.silu((nn.rmsnorm(x) * g) @ w) @ v

    def forgotten(x: Any, g: Any, w: Any, v: Any) -> Any:
        return nn.silu((nn.rmsnorm(x) * g) @ w) @ v

    specs = ("8192x4096:f16", "4096:f16", "4096x12288:f16", "12288x4096:f16")
    a, b = axe.trace(block, *specs), axe.trace(forgotten, *specs)
    found = refute(a, b, budget=1 << 20)
    assert found is not None
    witness = found.counterexample
    assert isinstance(witness, ProgramCounterexample)
    assert abs(float(witness.value_a)) < 65504, "what f16 holds"
    assert [x.shape for x in witness.inputs[1:2]] == [(4096,)]
    assert "from index 3 of a dim on" in str(found)
    # The same in float64 on the rows and columns that are not zero.
    row, column = witness.index
    sample = Sample(*_named(str(witness.inputs)))
    few = [np.arange(8192), np.arange(4096), np.arange(12288)]
    types = [i.node.type for i in a.inputs]
    x = sample.values(0, types[0], (few[0][[row]], few[1]))[0]
    g = sample.values(1, types[1], (few[1],))
    w = sample.values(2, types[2], (few[1][:8], few[2][:8]))
    v = sample.values(3, types[3], (few[2][:8], few[1][[column]]))[:, 0]
    h = x / np.sqrt(np.mean(x * x) + 1e-6) * g
    assert not h[8:].any()
    gate = h[:8] @ w
    product = gate / (1 + np.exp(-gate)) @ v
    np.testing.assert_allclose(float(witness.value_b), product, rtol=1e-5)
    np.testing.assert_allclose(float(witness.value_a), x[column] + product, rtol=1e-5)


def _named(text: str) -> tuple[str, int, int, bool]:
    """The sample that the text of large inputs names."""
    pattern, seed, how = text.split(": pattern ")[1].split(", ")
    assert how == f"zero from index {ALIKE} of a dim on"
    return pattern.strip("'"), int(seed.removeprefix("seed ")), ALIKE, True


def test_an_equal_pair_costs_no_more_than_its_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where lifted inputs say nothing, one element of a wide program is not paid for either."""

    def square(x: Any, w: Any, v: Any) -> Any:
        return ((x @ w) * (x @ w)) @ v

    def power(x: Any, w: Any, v: Any) -> Any:
        return (x @ w) ** 2 @ v

    specs = ("8192x4096:f16", "4096x12288:f16", "12288x4096:f16")
    largest = 0

    def values(self: Sample, position: int, of: ValueType, region: Region) -> Any:
        nonlocal largest
        largest = max(largest, size(region))
        return sampled_values(self, position, of, region)

    sampled_values = Sample.values
    monkeypatch.setattr(Sample, "values", values)
    a, b = axe.trace(square, *specs), axe.trace(power, *specs)
    assert refute(a, b, budget=1 << 22) is None
    assert largest == (ALIKE + 1) ** 2
