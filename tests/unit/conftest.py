"""Schedule graphs made by hand or by chance, for tests that need one without a search."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from axe_eq.layout import Layout
from axe_eq.program.node import INPUT, OP, SCAN, Node, Program
from axe_eq.program.ops import CELLS, MONOIDS, SELECTORS, Table
from axe_eq.schedule import box as boxes
from axe_eq.schedule.graph import Access, BufferSpec, KernelStep, ScheduleGraph, Step, TileNode

Choose = Callable[[Sequence[Any]], Any]


class Unreachable(Exception):
    """The value cannot be computed in this box."""


def dense(size: int) -> str:
    return str(Layout(shard=[(size, 1, "m")]))


def first(options: Sequence[Any]) -> Any:
    return options[0]


@dataclass
class Cutter:
    """Cuts a program into kernels: `kept` values are materialised, the rest is computed inside.

    `choose` picks root boxes, ways to read operands and block sizes. A value that cannot be
    computed in the box it is wanted in is kept after all.
    """

    program: Program
    kept: set[Node]
    choose: Choose
    blocks: Mapping[str, Sequence[int]]
    root_boxes: Mapping[Node, str]
    rounds: bool = False
    names: dict[Node, str] = field(default_factory=dict)
    steps: dict[Node, KernelStep] = field(default_factory=dict)

    def graph(self) -> ScheduleGraph:
        for spec in self.program.inputs:
            self.names[spec.node] = spec.name
        self.kept |= {n for n in self.program.outputs if n.kind != INPUT}
        todo = sorted(self.kept, key=self.program.nodes().index)
        while todo:
            self._kernel(todo.pop(0))
            todo += [n for n in self.kept if n not in self.steps and n not in todo]
        buffers = {
            self.name(n): BufferSpec(self.name(n), str(n.type), dense(n.type.size), self.role(n))
            for n in self.names
        }
        return ScheduleGraph(
            "test",
            buffers,
            tuple(self._ordered()),
            tuple(spec.name for spec in self.program.inputs),
            tuple(self.name(n) for n in self.program.outputs),
            {spec.name: spec.dims for spec in self.program.inputs if spec.dims},
        )

    def name(self, node: Node) -> str:
        return self.names.setdefault(node, f"t{len(self.names)}")

    def role(self, node: Node) -> str:
        if node.kind == INPUT:
            return "input"
        return "output" if node in self.program.outputs else "temporary"

    def _ordered(self) -> list[Step]:
        order: list[Step] = []
        ready = {spec.name for spec in self.program.inputs}
        left = list(self.steps.values())
        while left:
            step = next(s for s in left if all(r.buffer in ready for r in s.reads))
            left.remove(step)
            order.append(step)
            ready.update(w.buffer for w in step.writes)
        return order

    def _kernel(self, node: Node) -> None:
        options = [self.root_boxes[node]] if node in self.root_boxes else []
        options = options or list(boxes.root_boxes(str(node.type)))
        while options:
            box = self.choose(options)
            options.remove(box)
            kernel = Cone(self)
            try:
                root = kernel.compute(node, box)
            except Unreachable:
                continue
            self.steps[node] = kernel.step(node, root)
            return
        kernel = Cone(self)
        root = kernel.compute(node, " ".join(["*"] * node.type.rank))
        self.steps[node] = kernel.step(node, root)


class Cone:
    """One kernel under construction."""

    def __init__(self, cutter: Cutter) -> None:
        self.cutter = cutter
        self.nodes: list[TileNode] = []
        self.known: dict[tuple[Node, str], int] = {}
        self.reads: list[Access] = []
        self.loops: dict[str, int] = {}

    def step(self, node: Node, root: int) -> KernelStep:
        cutter = self.cutter
        parameters = {
            letter: cutter.choose(cutter.blocks[letter])
            for letter in self.loops
            if letter in cutter.blocks
        }
        return KernelStep(
            f"k{len(cutter.steps)}",
            tuple(self.nodes),
            (root,),
            tuple(self.reads),
            (Access(cutter.name(node), dense(node.type.size)),),
            self.loops,
            "hand",
            parameters=parameters,
            rounds=cutter.rounds,
        )

    def tile(self, node: Node, box: str) -> int:
        if (node, box) in self.known:
            return self.known[node, box]
        if node.kind == INPUT or node in self.cutter.kept:
            return self._load(node, box)
        before = list(self.nodes), dict(self.known), list(self.reads), dict(self.loops)
        try:
            return self.compute(node, box)
        except Unreachable:
            self.nodes, self.known, self.reads, self.loops = before
            self.cutter.kept.add(node)
            return self._load(node, box)

    def compute(self, node: Node, box: str) -> int:
        types = "".join(f"{a.type};" for a in node.args)
        if node.kind == OP:
            ways = boxes.op_boxes(node.text, node.cell, types, box)
            if not ways:
                raise Unreachable
            operands = self.cutter.choose(ways)
        elif node.kind == SCAN:
            found = boxes.scan_boxes(node.text, types, box)
            if found is None:
                raise Unreachable
            operands = found
        else:
            operands = boxes.sel_boxes(node.text, types, box) or ()
        numbers = tuple(self.tile(a, b) for a, b in zip(node.args, operands, strict=True))
        kind = {OP: "cell", SCAN: "scan"}.get(node.kind, "gather")
        return self._add(
            node, box, TileNode(kind, node.text, node.cell, box, str(node.type), numbers)
        )

    def _load(self, node: Node, box: str) -> int:
        access = Access(self.cutter.name(node), dense(node.type.size))
        if access not in self.reads:
            self.reads.append(access)
        number = self.reads.index(access)
        return self._add(node, box, TileNode("load", "", "", box, str(node.type), (), number))

    def _add(self, node: Node, box: str, made: TileNode) -> int:
        for entry, extent in zip(boxes.parse(box), node.shape, strict=True):
            if entry.letter not in ("", boxes.WHOLE):
                self.loops[entry.letter] = max(extent, self.loops.get(entry.letter, 1))
        self.nodes.append(made)
        self.known[node, box] = len(self.nodes) - 1
        return len(self.nodes) - 1


Cut = Callable[..., ScheduleGraph]


@pytest.fixture
def cut_into_kernels() -> Cut:
    """`cut_into_kernels(program, kept=(), rng=None, blocks={}, boxes={}, rounds=False)`."""

    def cut(
        program: Program,
        kept: Collection[Node] = (),
        rng: np.random.Generator | None = None,
        blocks: Mapping[str, Sequence[int]] | None = None,
        boxes: Mapping[Node, str] | None = None,
        rounds: bool = False,
    ) -> ScheduleGraph:
        def at_random(options: Sequence[Any]) -> Any:
            assert rng is not None
            return options[int(rng.integers(len(options)))]

        choose = first if rng is None else at_random
        return Cutter(program, set(kept), choose, blocks or {}, boxes or {}, rounds).graph()

    return cut


@pytest.fixture(scope="module")
def own_operators() -> Iterator[None]:
    """What tests of a module declare is gone after it: samples of laws draw all that is there."""
    tables: tuple[Table[Any], ...] = (CELLS, MONOIDS, SELECTORS)
    kept = [dict(table._by_name) for table in tables]
    yield
    for table, before in zip(tables, kept, strict=True):
        table._by_name.clear()
        table._by_name.update(before)
