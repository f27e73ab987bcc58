"""A planned kernel as the instructions that its text issues, and when they run.

The simulator notes the instructions of a text as it runs; here they follow from the plans. Both go
through the same timeline, so a kernel is priced by the time that the report of its text shows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count, islice, product
from math import inf, lcm, prod
from types import MappingProxyType
from typing import Any

import numpy as np

from axe_eq.kernel import ir
from axe_eq.kernel.dispatch import Planned
from axe_eq.kernel.expr import evaluate
from axe_eq.kernel.plan import Plan
from axe_eq.target import Target
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
# Turns of a loop that are looked at for what repeats: after so many periods. A loop of few more is
# taken whole.
PERIODS = 1, 2, 3
LEAST_TURNS = 9
SMALL = 8  # loops of so small a part of a kernel are taken whole
WORTH = 3  # whole kernels hold so many times the instructions of what is looked at
HIDDEN = 0.9  # of a period, which transfers take at most that no engine waits for
SAME = 1e-9  # of what repeats
WRITTEN = ("dst", "reduce_res")  # arguments of calls
NONE: Mapping[int, int] = MappingProxyType({})
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


def _nest(loop: ir.For) -> list[ir.For]:
    """A loop, and those inside it with which it has the same turns: it holds nothing else."""
    found = [loop]
    while len(body := found[-1].body) == 1 and isinstance(body[0], ir.For):
        found.append(body[0])
    return found


@dataclass(frozen=True)
class _Turned:
    """Loops of which the first turns were taken.

    Attributes:
        turns: that they have.
        starts: the first step of every turn that was taken, and of what follows.
    """

    turns: int
    starts: tuple[int, ...]

    def rest_ns(self, line: Timeline, begun: Any, full: int) -> float | None:
        """What the other turns add, where turns have come to repeat; None where they have not.

        All that ends on engines in the last turns of a period ended a period before, and one before
        that. Transfers, which run ahead until memory is full, likewise; or they take less of their
        queues than a period is long, so that engines do not wait for them. Nothing that follows the
        loop begins on an engine before the last period does.

        Args:
            line: when steps run.
            begun: when every step of an engine begins; of transfers infinite.
            full: the step by which tiles have filled SBUF once.
        """
        at, taken = self.starts, len(self.starts) - 1
        for p in PERIODS:
            parts = [slice(at[taken - n * p], at[taken - (n - 1) * p]) for n in (1, 2, 3)]
            last, before, first = (np.array(line.ends[x]) for x in parts)
            if not len(last) == len(before) == len(first):
                continue
            steps = np.concatenate([last - before, before - first])
            engines = np.tile(begun[parts[0]] < inf, 2)
            period = steps[engines].max(initial=0)
            moved = sum(x.ns for x in line.items[parts[0]] if x.engine == "dma")
            if moved < HIDDEN * period:
                steps = steps[engines]
            steady = not moved or full <= at[taken - 3 * p]
            if steady and np.ptp(steps) <= SAME * first.max():
                apart = begun[at[-1] :].min(initial=inf) >= begun[at[-1 - p] : at[-1]].min()
                return float((self.turns - taken) / p * steps[0]) if apart else None
        return None


class _Unrolling:
    """Steps and tiles so far.

    `limits` says how many turns of some loops are taken, `repeats` how many of loops that hold
    nothing but a loop together.
    """

    def __init__(
        self, planned: Planned[Any], places: Places, limits: Mapping[int, int] = NONE,
        repeats: Mapping[int, int] = NONE,
    ) -> None:  # fmt: skip
        self.planned, self.limits, self.repeats = planned, limits, repeats
        self.declared = first_uses(planned.kernel.body, places)
        self.steps: list[Step] = []
        self.tiles: list[Tile] = []
        self.held: dict[ir.Buffer, Tile] = {}
        self.turned: list[_Turned] = []
        self.numbers = count()
        self.known: dict[ir.Primitive, list[tuple[Any, ...]]] = {}

    def body(self, body: ir.Body, env: dict[str, int]) -> None:
        for s in body:
            for b in self.declared.get(id(s), ()):
                self._declare(b)
            if isinstance(s, ir.For):
                nest = _nest(s) if id(s) in self.repeats else [s]
                starts = []
                every = product(*(self._range(loop, env) for loop in nest))
                for at in islice(every, self.repeats.get(id(s), self.limits.get(id(s)))):
                    starts.append(len(self.steps))
                    turn = {loop.var.name: i for loop, i in zip(nest, at, strict=True)}
                    self.body(nest[-1].body, env | turn)
                if id(s) in self.repeats:
                    n = prod(map(turns, nest))
                    self.turned.append(_Turned(n, (*starts, len(self.steps))))
            elif isinstance(s, ir.Primitive):
                self._primitive(s, env)

    def _range(self, loop: ir.For, env: dict[str, int]) -> range:
        return range(*(int(evaluate(x, env)) for x in (loop.start, loop.stop, loop.step)))

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
    made = _Unrolling(planned, places, limits or NONE)
    made.body(planned.kernel.body, {})
    return made.steps, made.tiles


def timeline(
    planned: Planned[Any], places: Places, limits: Mapping[int, int] | None = None
) -> Timeline:
    """When the instructions of a kernel run, by the simulator's model of time."""
    return _scheduled(*unrolled(planned, places, limits), planned.target)


def _scheduled(steps: Sequence[Step], tiles: Sequence[Tile], target: Target) -> Timeline:
    machine = machine_of(target)
    return schedule(items(steps, placement(tiles, machine)), machine)


def total_ns(planned: Planned[Any], places: Places) -> float:
    """Model time of a kernel: the end of its timeline.

    Of long loops the first turns are taken. Where these come to repeat, the others take as long
    each, which is the end of the whole timeline. Where they do not, kernels of at most
    `MOST_UNROLLED` instructions are taken whole. Of larger ones loops are taken for a few turns,
    and what the last of them adds is counted for all the others: the outer ones first, until what
    is left is small enough. On large products that is within some 5 % of all turns.
    """
    found = _repeating(planned, places)
    if found is not None:
        return found
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


def _repeating(planned: Planned[Any], places: Places) -> float | None:
    """The time of a kernel by the first turns of its long loops; None where these do not repeat.

    Loads run ahead until memory is full, so it takes as many turns as fill it: twice as many are
    tried until they repeat.
    """
    least = LEAST_TURNS
    while True:
        repeats, left = _repeats(planned, planned.kernel.body, least)
        if not repeats or WORTH * left > instructions(planned) or left > MOST_UNROLLED:
            return None
        made = _Unrolling(planned, places, repeats=repeats)
        made.body(planned.kernel.body, {})
        line = _scheduled(made.steps, made.tiles, planned.target)
        begun = np.full(len(line.ends), inf)
        for x in line.spans:
            if line.items[x.item].engine != "dma":
                begun[x.item] = x.start
        full = _filled(made.tiles, planned.target)
        rests = [loop.rest_ns(line, begun, full) for loop in made.turned]
        if None not in rests:
            return line.total_ns + sum(x for x in rests if x is not None)
        least *= 2


def _filled(tiles: Sequence[Tile], target: Target) -> int:
    """The step by which the tiles that were written would fill SBUF, each in a place of its own."""
    room = target.memory("sbuf").place_bytes
    for t in sorted(tiles, key=lambda t: t.first):
        room -= t.bytes_per_partition if t.memory is MemoryRegion.sbuf else 0
        if room < 0:
            return t.first
    return tiles[-1].last + 1 if tiles else 0


def _repeats(planned: Planned[Any], body: ir.Body, least: int) -> tuple[dict[int, int], int]:
    """Turns of the outermost long loops that are looked at, and instructions that are left."""
    repeats: dict[int, int] = {}
    left = 0
    for s in body:
        if not isinstance(s, ir.For):
            left += instructions(planned, [s])
            continue
        nest = _nest(s)
        n = prod(map(turns, nest))
        taken = least + (n - least) % lcm(*PERIODS)
        if n >= 2 * taken and SMALL * instructions(planned, [s]) > instructions(planned):
            repeats[id(s)] = taken
            left += taken * instructions(planned, nest[-1].body)
        else:
            more, inside = _repeats(planned, s.body, least)
            repeats |= more
            left += turns(s) * inside
    return repeats, left


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
