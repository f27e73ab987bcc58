"""The CPU runner against the numpy meaning: every box, every layout, every kind of node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from axe_eq.layout import Layout
from axe_eq.program import standard as standard
from axe_eq.program.meaning import evaluate
from axe_eq.program.node import (
    INPUT,
    OP,
    InputSpec,
    Node,
    Program,
    input_node,
    op_node,
    sel_node,
)
from axe_eq.program.random import JUMPING, random_inputs, random_program
from axe_eq.program.types import Array, value_type
from axe_eq.schedule.graph import ScheduleGraph
from axe_eq_backends.cpu.run import run_schedule

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
            made[node] = sel_node(widened(node.text), args)
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
    for number in range(2000 if full else 150):
        program = in_double(random_program(rng, 2 + number % 12, without=JUMPING))
        kept = some(program.nodes(), rng, [0.0, 0.2, 0.6][number % 3])
        graph = cut_into_kernels(program, kept, rng, BLOCKS)
        arrays = random_inputs(program, rng)
        assert_close(run_schedule(graph, arrays), evaluate(program, arrays), 1e-9)
        for kernel in graph.kernels:
            kinds.update(n.kind for n in kernel.nodes)
            kinds.update(kernel.loops)
    assert min(kinds[k] for k in ("cell", "gather", "load", *"pqkbc")) >= 20, kinds
