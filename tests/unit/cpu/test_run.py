"""The CPU runner against the numpy meaning: all blocks, every layout, every kind of node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from axe_eq.layout import Layout, Swizzle
from axe_eq.program import standard as standard
from axe_eq.program.meaning import evaluate
from axe_eq.program.node import INPUT, OP, InputSpec, Node, Program, input_node, made_node, op_node
from axe_eq.program.types import Array, value_type
from axe_eq.schedule.graph import ScheduleGraph
from axe_eq_backends.cpu.flat import addressing
from axe_eq_backends.cpu.run import run_schedule
from benchmarks.random_programs import JUMPING, random_inputs, random_program
from tests.unit.schedule.layouts import in_layouts

Rng = np.random.Generator
Cut = Callable[..., ScheduleGraph]
BLOCKS = {letter: (1, 2, 3, 4, 5, 100) for letter in "pqks"}


def in_double(program: Program) -> Program:
    """The same program with every floating dtype f64, so that only wrong code differs by much."""

    def widened(text: str) -> str:
        for name in ("f8e4m3", "f8e5m2", "bf16", "f16", "f32"):
            text = text.replace(name, "f64")
        return text

    made: dict[Node, Node] = {}
    for node in program.nodes():
        args = [made[a] for a in node.args]
        if node.kind == INPUT:
            made[node] = input_node(node.text, value_type(widened(str(node.type))))
        elif node.kind == OP:
            made[node] = op_node(node.text, node.cell, args)
        else:
            made[node] = made_node(node.kind, widened(node.text), "", args)
    inputs = tuple(InputSpec(made[spec.node]) for spec in program.inputs)
    return Program(inputs, tuple(made[n] for n in program.outputs))


def some(nodes: Sequence[Node], rng: Rng, share: float) -> list[Node]:
    return [n for n in nodes if n.kind != INPUT and rng.random() < share]


def assert_close(found: Sequence[Array], wanted: Sequence[Array], tolerance: float) -> None:
    assert len(found) == len(wanted)
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        np.testing.assert_allclose(
            a.astype(np.float64), b.astype(np.float64), rtol=tolerance, atol=tolerance
        )


def test_random_cones_in_random_boxes_mean_the_program(
    cut_into_kernels: Cut, rng: Rng, full: bool
) -> None:
    kinds: Counter[str] = Counter()
    for number in range(2000 if full else 80):
        program = in_double(random_program(rng, 2 + number % 12, without=JUMPING))
        kept = some(program.nodes(), rng, [0.0, 0.2, 0.6][number % 3])
        graph = cut_into_kernels(program, kept, rng, BLOCKS)
        arrays = random_inputs(program, rng)
        assert_close(run_schedule(graph, arrays), evaluate(program, arrays), 1e-9)
        for kernel in graph.kernels:
            kinds.update(n.kind for n in kernel.nodes)
            kinds.update(kernel.loops)
    assert min(kinds[k] for k in ("cell", "gather", "load", *"pqkbc")) >= 20, kinds


def test_exact_kernels_equal_the_meaning_bit_for_bit(
    cut_into_kernels: Cut, rng: Rng, full: bool
) -> None:
    for number in range(600 if full else 60):
        program = random_program(rng, 3 + number % 9)
        kept = some(program.nodes(), rng, 0.3)
        graph = cut_into_kernels(program, kept, rng, BLOCKS, rounds=True)
        arrays = random_inputs(program, rng)
        for found, wanted in zip(
            run_schedule(graph, arrays), evaluate(program, arrays), strict=True
        ):
            assert found.dtype == wanted.dtype
            assert found.tobytes() == wanted.tobytes()


# -- layouts --------------------------------------------------------------------------------------


def random_layout(size: int, shape: tuple[int, ...], rng: Rng) -> Layout:
    """An injective layout: padded strides in any order and direction, copies, swizzles, a box."""
    box: tuple[int, ...] | None = None
    padded: tuple[int, ...] | None = None
    if shape and rng.random() < 0.2:
        box, padded = shape, tuple(e + int(rng.integers(3)) for e in shape)
    factors = [f for e in padded or (size,) for f in random_factors(e, rng)]
    strides, step, offset = [0] * len(factors), 1, int(rng.integers(4))
    for place in rng.permutation(len(factors)):
        step *= int(rng.integers(1, 3)) if rng.random() < 0.4 else 1
        sign = -1 if rng.random() < 0.2 else 1
        strides[place] = sign * step
        offset += step * (factors[place] - 1) if sign < 0 else 0
        step *= factors[place]
    replica = [(int(rng.integers(2, 4)), step, "m")] if rng.random() < 0.2 else []
    swizzle = [Swizzle("m", 2, int(rng.integers(2)), 2)] if rng.random() < 0.3 else []
    shard = [(f, s, "m") for f, s in zip(factors, strides, strict=True)]
    return Layout(shard, replica, {"m": offset}, swizzle, box, padded)


def random_factors(extent: int, rng: Rng) -> list[int]:
    factors = []
    for prime in (2, 3):
        while extent % prime == 0 and extent > 1 and rng.random() < 0.5:
            extent //= prime
            factors.append(prime)
    return [*map(int, rng.permutation([extent, *factors]))]


def test_layouts_of_buffers_change_nothing(cut_into_kernels: Cut, rng: Rng, full: bool) -> None:
    kinds: Counter[str] = Counter()
    for number in range(1000 if full else 50):
        program = in_double(random_program(rng, 2 + number % 8, without=JUMPING))
        graph = cut_into_kernels(program, some(program.nodes(), rng, 0.5), rng, BLOCKS)
        layouts = {}
        for name, buffer in graph.buffers.items():
            shape = buffer.value_type.shape
            layout = random_layout(buffer.value_type.size, shape, rng)
            layouts[name] = str(layout)
            kinds["swizzle"] += bool(layout.swizzle)
            kinds["copies"] += bool(layout.replica)
            kinds["box"] += layout.box is not None
            where = addressing(str(layout), shape)
            kinds["in place"] += where.strides is not None
            kinds["tables"] += len(where.tables) == len(shape) > 1
            kinds["enumerated"] += len(where.tables) == 1 < len(shape)
        arrays = random_inputs(program, rng)
        found = run_schedule(in_layouts(graph, layouts), arrays)
        assert_close(found, evaluate(program, arrays), 1e-9)
    names = ("swizzle", "copies", "box", "in place", "tables", "enumerated")
    assert min(kinds[k] for k in names) >= 10, kinds


def test_another_layout_at_one_access_changes_a_result(cut_into_kernels: Cut, rng: Rng) -> None:
    """Distinct values, so every other map of the buffer shows: at each reader and each writer."""
    x, y = (input_node(n, value_type("f64[4,6]")) for n in "xy")
    s = op_node("a b, a b -> a b", "sub", [x, y])
    t = op_node("a b -> b a", "exp", [s])
    program = Program((InputSpec(x), InputSpec(y)), (t,))
    graph = cut_into_kernels(program, [s])
    arrays = [rng.permutation(24).reshape(4, 6) / 24.0, np.sqrt(np.arange(24.0).reshape(4, 6))]
    (wanted,) = run_schedule(graph, arrays)
    np.testing.assert_allclose(wanted, np.exp(arrays[0] - arrays[1]).T)
    other = str(Layout([(4, 1, "m"), (6, 4, "m")]))
    changed = 0
    for number, step in enumerate(graph.steps):
        for side in ("reads", "writes"):
            for place in range(len(getattr(step, side))):
                accesses = list(getattr(step, side))
                accesses[place] = replace(accesses[place], layout=other)
                steps = list(graph.steps)
                change: dict[str, Any] = {side: tuple(accesses)}
                steps[number] = replace(step, **change)
                (found,) = run_schedule(replace(graph, steps=tuple(steps)), arrays)
                assert not np.array_equal(found, wanted)
                changed += 1
    assert changed == 5
