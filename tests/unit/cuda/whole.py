"""Programs as one kernel each, without a search, and kernels run on flat buffers.

A test invents any program; all of it becomes the cone of one kernel, which is lowered and
interpreted on buffers in the layouts of the specs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import axe_eq as axe
from axe_eq.errors import AxeError
from axe_eq.layout import Layout
from axe_eq.lower.own import Lowered
from axe_eq.lower.read import read_cone
from axe_eq.program.node import INPUT, OP, SCAN, Program
from axe_eq.program.types import DTYPES, ValueType
from axe_eq.schedule.graph import Access, BufferSpec, KernelStep, ScheduleGraph, TileNode
from axe_eq_backends.cuda.interpret import elements, launch
from axe_eq_backends.cuda.lower import lower
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.prefixes import alone
from axe_eq_backends.cuda.streams import is_streaming
from axe_eq_backends.cuda.target import h200
from axe_eq_backends.cuda.ways import cheapest

Flat = dict[str, Any]


def dense(type_: ValueType) -> str:
    """The row-major layout of a value."""
    return str(Layout([(max(type_.size, 1), 1, "m")]))


def cone_of(program: Program, row: str = "", sizes: Mapping[str, int] | None = None) -> KernelStep:
    """All of a program as one kernel; `row` and `sizes` stand for what extraction would choose."""
    order = program.nodes()
    numbers = {node: n for n, node in enumerate(order)}
    given = [i for i in program.inputs if i.node in numbers]
    reads = [Access(i.name, str(i.layout) if i.layout else dense(i.node.type)) for i in given]
    places = {i.node: n for n, i in enumerate(given)}
    nodes = []
    for node in order:
        operands = tuple(numbers[a] for a in node.args)
        if node.kind == INPUT:
            nodes.append(TileNode("load", "", "", "", str(node.type), access=places[node]))
        else:
            kind = {OP: "cell", SCAN: "scan"}.get(node.kind, "gather")
            nodes.append(TileNode(kind, node.text, node.cell, "", str(node.type), operands))
    writes = tuple(
        Access(f"out{n}", str(layout) if layout else dense(node.type))
        for n, (node, layout) in enumerate(
            zip(program.outputs, program.output_layouts or [None] * 9, strict=False)
        )
    )
    roots = tuple(numbers[o] for o in program.outputs)
    return KernelStep(
        "whole", tuple(nodes), roots, tuple(reads), writes, {}, "test", row, sizes or {}
    )


def graph_of(step: KernelStep) -> ScheduleGraph:
    """The schedule of one step: what it reads arrives, what it writes is handed back."""
    loaded = {step.reads[n.access].buffer: n.type for n in step.nodes if n.kind == "load"}
    roles = [(a, loaded.get(a.buffer, ""), "input") for a in step.reads]
    roles += [
        (a, step.nodes[n].type, "output") for n, a in zip(step.roots, step.writes, strict=True)
    ]
    buffers = {a.buffer: BufferSpec(a.buffer, t, a.layout, role) for a, t, role in roles}
    given, made = (tuple(a.buffer for a in accesses) for accesses in (step.reads, step.writes))
    return ScheduleGraph("h200", buffers, (step,), given, made)


@dataclass(frozen=True)
class Whole:
    """A program as one lowered kernel, with random inputs and what its meaning makes of them."""

    program: Program
    step: KernelStep
    lowered: Lowered
    inputs: dict[str, Any]
    expected: list[Any]

    def check(self, flat: Flat, tolerance: float) -> None:
        """The results in flat buffers are those expected, up to a part of the largest."""
        for write, want in zip(self.step.writes, self.expected, strict=True):
            got = flat[write.buffer][elements(write.layout, want.shape)].astype(np.float64)
            want = np.asarray(want, np.float64)
            scale = np.abs(want).max(initial=0) + 1e-30
            worst = np.abs(got - want).max(initial=0) / scale
            assert worst <= tolerance, f"{write.buffer}: {worst} of the largest value"

    def flat(self) -> Flat:
        """The buffers, results poisoned."""
        made: Flat = {}
        for read in self.step.reads:
            at = elements(read.layout, self.inputs[read.buffer].shape)
            made[read.buffer] = np.zeros(int(at.max(initial=0)) + 1, self.inputs[read.buffer].dtype)
            made[read.buffer][at] = self.inputs[read.buffer]
        for write, want in zip(self.step.writes, self.expected, strict=True):
            at = elements(write.layout, want.shape)
            made[write.buffer] = np.full(int(at.max(initial=0)) + 1, 77).astype(want.dtype)
        return made


def whole(
    fn: Callable[..., Any], *specs: axe.Spec, seed: int = 0, row: str = "", **sizes: int
) -> Whole:
    """Trace a function, make it one kernel, and compute what it means on random inputs."""
    program = axe.trace(fn, *specs)
    step, made = _lowered(program, row, sizes)
    rng = np.random.default_rng(seed)
    inputs = {i.name: sample(rng, i.node.type) for i in program.inputs} | program.constants
    wanted = axe.run(fn, *(inputs[i.name] for i in program.inputs if i.name in inputs))
    expected = list(wanted) if isinstance(wanted, tuple) else [wanted]
    return Whole(program, step, made, inputs, expected)


def lowered(program: Program, row: str = "", sizes: Mapping[str, int] | None = None) -> Lowered:
    """A program as one kernel."""
    return _lowered(program, row, sizes or {})[1]


# What kernels on rows of instructions are written by, but for what a test says.
WRITTEN_BY = {
    "wgmma": {"m": 128, "n": 64, "k": 64, "stages": 3, "consumers": 2, "across": 1, "staging": 1,
              "band": 16, "cluster_rows": 1, "cluster_cols": 1, "split": 1, "rest": 0, "turned": 0},
    "stream": {"consumers": 1, "s": 64, "q": 64, "stages": 2, "staging": 1, "band": 1,
               "falling": 0, "turned": 0},
    "mma": {"m": 32, "n": 32, "k": 16, "warps": 4, "band": 8},
    "fma": {"m": 32, "n": 32, "k": 16, "warps": 4, "band": 8},
}  # fmt: skip


def _lowered(program: Program, row: str, sizes: Mapping[str, int]) -> tuple[KernelStep, Lowered]:
    """The step and its kernel: without a row lanes, for products the first row that takes them."""
    step = cone_of(program, row, sizes)
    graph = graph_of(step)
    cone = read_cone(step, alone)
    if is_streaming(cone) and row:
        step = replace(step, parameters={**WRITTEN_BY["stream"], **sizes})
        return step, lower(step, graph, h200)
    if not (cone.folds and all(f.product and min(f.dims) >= cone.rank for f in cone.folds)):
        step = replace(step, parameters=sizes or cheapest(cone, h200))
        return step, lower(step, graph, h200)
    rows = [row] if row else [r.name for r in h200.rows("gemm")]
    for name in rows:
        step = replace(step, row=name, parameters={**WRITTEN_BY[name.partition(".")[0]], **sizes})
        try:
            made = lower(step, graph, h200)
            plan(made.kernel, h200)
        except AxeError:
            if name == rows[-1]:
                raise
        else:
            break
    return step, made


def sample(rng: np.random.Generator, type_: ValueType) -> Any:
    """Values of moderate size; small ones where an element type has few digits."""
    dtype = DTYPES[type_.dtype]
    if dtype.kind == "i":
        return rng.integers(-9, 10, type_.shape).astype(dtype.numpy)
    return (rng.standard_normal(type_.shape) / 2).astype(dtype.numpy)


def interpreted(
    graph: ScheduleGraph, inputs: list[Any], *, order: str = "random", seed: int = 1
) -> list[Any]:
    """Every kernel of a graph at plan level, each on what those before it wrote."""
    flat: Flat = {}
    for name, spec in graph.buffers.items():
        at = elements(spec.layout, spec.value_type.shape)
        dtype = DTYPES[spec.value_type.dtype].numpy
        flat[name] = np.zeros(int(at.max(initial=0)) + 1, dtype)
    for name, array in zip(graph.inputs, inputs, strict=True):
        spec = graph.buffers[name]
        flat[name][elements(spec.layout, spec.value_type.shape)] = array
    for step in graph.steps:
        assert not isinstance(step, str)
        lowered = lower(step, graph, h200)  # type: ignore[arg-type]
        launch(lowered, flat, planned=plan(lowered.kernel, h200), order=order, seed=seed)
    found = []
    for name in graph.outputs:
        spec = graph.buffers[name]
        found.append(flat[name][elements(spec.layout, spec.value_type.shape)])
    return found


__all__ = ["Whole", "cone_of", "interpreted", "launch", "lowered", "whole"]
