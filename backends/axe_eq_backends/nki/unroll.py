"""A planned kernel as the instructions that its text issues, and when they run.

The simulator notes the instructions of a text as it runs; here they follow from the plans. Both go
through the same timeline, so a kernel is priced by the time that the report of its text shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count, product
from math import prod
from typing import Any

import numpy as np

from axe_eq.kernel import ir
from axe_eq.kernel.dispatch import Planned
from axe_eq.kernel.expr import evaluate
from axe_eq.kernel.plan import Plan
from axe_eq_backends.nki.access import Access, repeats
from axe_eq_backends.nki.order import busy, instructions, turns
from axe_eq_backends.nki.place import Places, first_uses
from axe_eq_backends.nki.sim.capacity import items, placement
from axe_eq_backends.nki.sim.errors import NOWHERE
from axe_eq_backends.nki.sim.machine import machine_of
from axe_eq_backends.nki.sim.state import Step
from axe_eq_backends.nki.sim.storage import MemoryRegion, Region, Tile, region
from axe_eq_backends.nki.sim.timeline import Timeline, schedule

MOST_UNROLLED = 24_000  # instructions that are put on a timeline one by one
FEW = 2, 3  # turns of a loop by which larger kernels are timed
WRITTEN = ("dst", "reduce_res")  # arguments of calls
READ_TOO = {"tensor_copy_predicated"}  # calls that also read what they write


@dataclass(frozen=True)
class _Operand:
    """An access on chip: its bytes but for the place where it begins."""

    access: Access
    row_bytes: int
    shape: Region

    @staticmethod
    def of(a: Access) -> _Operand:
        size = a.buffer.itemsize
        row = a.buffer.n_elements * size
        extents, steps = (
            [a.partitions, *(n for _, n in a.steps)],
            [row, *(s * size for s, _ in a.steps)],
        )
        return _Operand(a, row, region(None, 0, extents, steps, size))

    def firsts(self, env: Mapping[str, Any], times: int) -> Any:
        """The first byte in every turn of a plan's loops."""
        rows, at = (evaluate(e, env) for e in (self.access.first, self.access.begin))
        first = rows * self.row_bytes + at * self.access.buffer.itemsize
        return np.broadcast_to(first, times) if times > 1 else (int(first),)


class _Unrolling:
    """Steps and tiles so far; `limits` says how many turns of some loops are taken."""

    def __init__(self, planned: Planned[Any], places: Places, limits: Mapping[int, int]) -> None:
        self.planned, self.limits = planned, limits
        self.declared = first_uses(planned.kernel.body, places)
        self.steps: list[Step] = []
        self.tiles: list[Tile] = []
        self.held: dict[ir.Buffer, Tile] = {}
        self.numbers = count()
        self.known: dict[ir.Primitive, list[tuple[Any, ...]]] = {}

    def body(self, body: ir.Body, env: dict[str, int]) -> None:
        for s in body:
            for b in self.declared.get(id(s), ()):
                self._declare(b)
            if isinstance(s, ir.For):
                begin, stop, step = (int(evaluate(x, env)) for x in (s.start, s.stop, s.step))
                for i in range(begin, stop, step)[: self.limits.get(id(s))]:
                    self.body(s.body, {**env, s.var.name: i})
            elif isinstance(s, ir.Primitive):
                self._primitive(s, env)

    def _declare(self, b: ir.Buffer) -> None:
        row = b.n_elements * b.itemsize
        rows, memory = b.place.extent_on("P"), MemoryRegion[b.memory]
        tile = self.held[b] = Tile(next(self.numbers), b.name, memory, rows, row)
        self.tiles.append(tile)

    def _operands(self, plan: Plan) -> list[tuple[Any, ...]]:
        """Per call its name, engine, time, and what it reads and writes on chip."""
        found = []
        for call in plan.calls:
            given = {k: x for k, x in call.args.items() if isinstance(x, Access) and not x.is_far}
            writes = [_Operand.of(x) for k, x in given.items() if k in WRITTEN]
            reads = [_Operand.of(x) for k, x in given.items() if k not in WRITTEN]
            reads += writes if call.op in READ_TOO else []
            moved = [x for x in call.args.values() if isinstance(x, Access)]
            n_bytes = 0
            if plan.row.scope == "dma":
                n_bytes = max(x.partitions * x.elements * x.buffer.itemsize for x in moved)
            ns = call.cycles or plan.cycles / (repeats(plan.loops) * len(plan.calls))
            found.append((call.op, plan.row.scope, ns, reads, writes, n_bytes))
        return found

    def _primitive(self, s: ir.Primitive, env: dict[str, int]) -> None:
        plan = self.planned.plan(s)
        if s not in self.known:
            self.known[s] = self._operands(plan)
        sizes = [(v.high or 0) + 1 for v in plan.loops]
        times, inner = prod(sizes), dict[str, Any](env)
        if plan.loops:
            at = np.indices(sizes).reshape(len(sizes), times)
            inner |= {v.name: x for v, x in zip(plan.loops, at, strict=True)}
        calls = [
            (
                op,
                engine,
                ns,
                self._begun(reads, inner, times),
                self._begun(writes, inner, times),
                size,
            )
            for op, engine, ns, reads, writes, size in self.known[s]
        ]
        for turn in range(times):
            for op, engine, ns, reads, writes, size in calls:
                number = len(self.steps)
                for _, _, tile in (*writes, *reads):
                    tile.last = number
                    if tile.first < 0:
                        tile.first = number
                self.steps.append(Step(
                    op, engine, ns, NOWHERE, tuple(_placed(x, turn) for x in reads),
                    tuple(_placed(x, turn) for x in writes), size,
                ))  # fmt: skip

    def _begun(self, operands: Sequence[_Operand], env: Mapping[str, Any], times: int) -> Any:
        return [(o.shape, o.firsts(env, times), self.held[o.access.buffer]) for o in operands]


def _placed(operand: tuple[Region, Any, Tile], turn: int) -> Region:
    shape, firsts, tile = operand
    return Region(tile, int(firsts[turn]), shape.steps, shape.run)


def unrolled(
    planned: Planned[Any], places: Places, limits: Mapping[int, int] | None = None
) -> tuple[list[Step], list[Tile]]:
    """The instructions of a kernel in the order of its text, and the tiles that it declares.

    Args:
        planned: the kernel and its plans.
        places: the bodies that tiles are declared in.
        limits: how many turns of a loop (by identity) are taken, where that is not all of them.
    """
    made = _Unrolling(planned, places, limits or {})
    made.body(planned.kernel.body, {})
    return made.steps, made.tiles


def timeline(
    planned: Planned[Any], places: Places, limits: Mapping[int, int] | None = None
) -> Timeline:
    """When the instructions of a kernel run, by the simulator's model of time."""
    machine = machine_of(planned.target)
    steps, tiles = unrolled(planned, places, limits)
    return schedule(items(steps, placement(tiles, machine)), machine)


def total_ns(planned: Planned[Any], places: Places) -> float:
    """Model time of a kernel: the end of its timeline.

    Loops of a kernel of more than `MOST_UNROLLED` instructions are taken for a few turns, and what
    the last of them adds is counted for all the others: the outer ones first, until what is left is
    small enough. On large products that is within some 5 % of all turns.
    """
    if instructions(planned) <= MOST_UNROLLED:
        return timeline(planned, places).total_ns
    cut, (few, more) = _shortened(planned), FEW
    total = 0.0
    for taken in product(FEW, repeat=len(cut)):
        turned = list(zip(cut, taken, strict=True))
        weight = prod(n - few if k == more else more - n for (_, n), k in turned)
        limits = {id(loop): k for (loop, _), k in turned}
        total += weight * timeline(planned, places, limits).total_ns
    return max(total, max(busy(planned).values()) * 1e9)


def _shortened(planned: Planned[Any]) -> list[tuple[ir.For, int]]:
    """Loops, with their turns, of which a few turns leave at most `MOST_UNROLLED` instructions."""
    cut: list[tuple[ir.For, int]] = []
    body, left = planned.kernel.body, float(instructions(planned))
    while left > MOST_UNROLLED:
        loops = [s for s in body if isinstance(s, ir.For)]
        if not loops:
            break
        loop = max(loops, key=lambda s: instructions(planned, s.body) * turns(s))
        if (n := turns(loop)) > sum(FEW):
            cut.append((loop, n))
            left = left * sum(FEW) / n  # in every combination with the loops around
        body = loop.body
    return cut
