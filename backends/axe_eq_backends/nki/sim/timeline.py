"""One model of time: engines that issue in order, DMA queues, waits by data.

An item keeps its engine busy for so many ns; it waits for what it reads to be written and for what
it writes to be read and written before (RAW, WAR and WAW, on bytes). Engines take items in order. A
result is there some cycles after its item ended; what only must not come before (a write after a
read, or after a write of the same engine, such as products of one sum) waits for the end alone.
A transfer starts when what it waits for is there; it is split over up to 16 queues, which work one
after the other on what is ready. All times are the model's: nothing here was measured.
"""

from __future__ import annotations

import heapq
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple

from axe_eq_backends.nki.sim.machine import Machine
from axe_eq_backends.nki.sim.storage import Region

ACCESS_CYCLES = 60  # from the end of an instruction to its result (architecture guide)
PIECE_BYTES = 512  # of a transfer, which one queue moves alone
PITCH = 1 << 18  # bytes from a partition to the next, in one space for all tiles of a memory

Cuts = tuple[tuple[int, int], ...]  # ranges of cells


class Item(NamedTuple):
    """What occupies an engine, or DMA queues.

    Attributes:
        engine: "tensor", "vector", "scalar", "gpsimd", "sync" or "dma".
        ns: model time; of a transfer, at the rate of all queues together.
        reads, writes: bytes.
        name, note: what a trace shows.
        n_bytes, run: of a transfer: bytes moved, and of its contiguous runs.
    """

    engine: str
    ns: float
    reads: tuple[Region, ...] = ()
    writes: tuple[Region, ...] = ()
    name: str = ""
    note: str = ""
    n_bytes: int = 0
    run: int = 0


class Span(NamedTuple):
    """When an item was on a lane: an engine, or one of the queues.

    Attributes:
        item: its number.
        lane: "vector", "dma 3", ...
        start, stop: ns.
    """

    item: int
    lane: str
    start: float
    stop: float


@dataclass(frozen=True)
class Timeline:
    """Items on engines and queues; simulated, by a model.

    Attributes:
        items: in the order of the program.
        spans: where and when each was.
        ends: ns at which the results of each item are there.
        total_ns: end of the last.
        busy_ns: engine -> ns; of "dma", the mean of its queues.
    """

    items: tuple[Item, ...]
    spans: tuple[Span, ...]
    ends: tuple[float, ...]
    total_ns: float
    busy_ns: dict[str, float] = field(default_factory=dict)

    def utilisation(self) -> dict[str, float]:
        """Share of the time that each engine is busy, busiest first."""
        shares = {e: ns / self.total_ns if self.total_ns else 0.0 for e, ns in self.busy_ns.items()}
        return dict(sorted(shares.items(), key=lambda x: -x[1]))

    def text(self) -> str:
        """Total and utilisation, in a few lines."""
        lines = [f"model time {self.total_ns / 1e3:.2f} us (simulated, not measured)"]
        lines += [
            f"  {engine:<7} {share:6.1%} busy" for engine, share in self.utilisation().items()
        ]
        return "\n".join(lines)

    def perfetto(self) -> str:
        """The timeline as trace events, which Perfetto and chrome://tracing open."""
        lanes = {lane: n for n, lane in enumerate(sorted({s.lane for s in self.spans}), 1)}
        events: list[dict[str, Any]] = [
            {
                "ph": "M",
                "name": "process_name",
                "pid": 1,
                "args": {"name": "simulated NeuronCore (model)"},
            }
        ]
        events += [{"ph": "M", "name": "thread_name", "pid": 1, "tid": n, "args": {"name": lane}}
                   for lane, n in lanes.items()]  # fmt: skip
        for s in self.spans:
            item = self.items[s.item]
            events.append({
                "ph": "X", "name": item.name or item.engine, "cat": item.engine, "pid": 1,
                "tid": lanes[s.lane], "ts": s.start / 1e3, "dur": (s.stop - s.start) / 1e3,
                "args": {"item": s.item, "line": item.note},
            })  # fmt: skip
        return json.dumps({"traceEvents": events, "otherData": {"time": "model, not measured"}})


def schedule(items: Sequence[Item], machine: Machine) -> Timeline:
    """When each item runs."""
    missing, followers = [0] * len(items), list[list[tuple[int, bool]]]([] for _ in items)
    for n, (results, stops) in enumerate(dependences(items)):
        missing[n] = len(results) + len(stops)
        for b in results:
            followers[b].append((n, True))
        for b in stops:
            followers[b].append((n, False))
    queues: dict[str, list[int]] = defaultdict(list)
    for n, item in enumerate(items):
        if item.engine != "dma":
            queues[item.engine].append(n)
    heads = dict.fromkeys(queues, 0)
    free: dict[str, float] = defaultdict(float)
    dma = [(0.0, q) for q in range(machine.dma_queues)]
    ready, ends = [0.0] * len(items), [0.0] * len(items)
    spans: list[Span] = []
    events = [(0.0, n) for n, item in enumerate(items) if not missing[n]]
    heapq.heapify(events)
    startable = [not m for m in missing]

    def done(n: int, stop: float, end: float) -> None:
        ends[n] = end
        for f, result in followers[n]:
            missing[f] -= 1
            ready[f] = max(ready[f], end if result else stop)
            if not missing[f]:
                startable[f] = True
                heapq.heappush(events, (ready[f], f))

    while events:
        at, n = heapq.heappop(events)
        item = items[n]
        if item.engine == "dma":
            stop = _transfer(n, item, at, dma, machine, spans)
            done(n, stop, stop + machine.dma_latency_ns)
            continue
        queue = queues[item.engine]
        while heads[item.engine] < len(queue) and startable[queue[heads[item.engine]]]:
            m = queue[heads[item.engine]]
            heads[item.engine] += 1
            start = max(free[item.engine], ready[m])
            stop = free[item.engine] = start + items[m].ns
            spans.append(Span(m, item.engine, start, stop))
            done(m, stop, stop + ACCESS_CYCLES / machine.ghz[item.engine])
    busy: dict[str, float] = defaultdict(float)
    for s in spans:
        engine = s.lane.partition(" ")[0]
        busy[engine] += (s.stop - s.start) / (machine.dma_queues if engine == "dma" else 1)
    return Timeline(tuple(items), tuple(spans), tuple(ends), max(ends, default=0.0), dict(busy))


@cache
def _lane(queue: int) -> str:
    return f"dma {queue}"


def _transfer(
    n: int, item: Item, at: float, dma: list[tuple[float, int]], machine: Machine, spans: list[Span]
) -> float:
    """Put a transfer on the queues that are free first; when its last piece is moved."""
    pieces = max(1, min(machine.dma_queues, item.n_bytes // max(PIECE_BYTES, 1)))
    ns = item.ns * machine.dma_queues / pieces
    stop = at
    for _ in range(pieces):
        free, queue = dma[0]
        start = max(free, at)
        end = start + ns
        heapq.heapreplace(dma, (end, queue))
        spans.append(Span(n, _lane(queue), start, end))
        stop = max(stop, end)
    return stop


# -- dependences -----------------------------------------------------------------------------------


def dependences(items: Sequence[Item]) -> list[tuple[list[int], list[int]]]:
    """For every item, earlier ones whose results it waits for, and those whose end is enough.

    What these wait for themselves it need not name.

    The bytes of a space are cut where accesses begin and end, so that tiles of a large memory are
    a few cells each. A cell knows its last writer and who read it since: the last of each engine,
    which is in order, and every transfer.
    """
    written = {w.space for item in items for w in item.writes}
    regions: dict[Any, dict[Region, Cuts]] = {space: {} for space in written}
    for item in items:
        for r in (*item.reads, *item.writes):
            if r.space in written:
                regions[r.space][r] = ()
    spaces = {space: _Space(found) for space, found in regions.items()}
    out: list[tuple[list[int], list[int]]] = []
    for n, item in enumerate(items):
        results, stops, before = {-1}, {-1}, {-1}
        reads = [(spaces[r.space], r) for r in item.reads if r.space in written]
        writes = [(spaces[w.space], w) for w in item.writes]
        for space, r in reads:
            space.collect(space.writer, r, results)
        for space, w in writes:
            space.collect(space.writer, w, before)
            for at in space.readers.values():
                space.collect(at, w, stops)
        for m in before - results:
            pipelined = items[m].engine == item.engine != "dma"
            (stops if pipelined else results).add(m)
        for space, r in reads:
            space.note(space.reader(r, item.engine), r, n)
        for space, w in writes:
            for at in space.readers.values():
                space.note(at, w, -1)
            space.note(space.writer, w, n)
        stops -= results
        results.remove(-1)
        out.append((sorted(results), sorted(stops)))
    return out


class _Space:
    """The cells of a space: for each the last writer, and who read it since, by engine.

    Args:
        regions: that are accessed.
    """

    def __init__(self, regions: dict[Region, Cuts]) -> None:
        self.none = [-1] * _cut(regions)
        self.cuts = regions
        self.writer = list(self.none)
        self.readers: dict[str, list[int]] = {}

    def collect(self, at: list[int], r: Region, found: set[int]) -> None:
        """Add the items that are known of a region, and -1 where there is none."""
        for a, b in self.cuts[r]:
            if b - a == 1:
                found.add(at[a])
            else:
                found.update(at[a:b])

    def note(self, at: list[int], r: Region, n: int) -> None:
        """An item for every cell of a region."""
        for a, b in self.cuts[r]:
            if b - a == 1:
                at[a] = n
            else:
                at[a:b] = [n] * (b - a)

    def reader(self, r: Region, engine: str) -> list[int]:
        """Whose reads an item is noted under: of transfers, the first that has none there."""
        name, n = engine, 0
        while name in self.readers and engine == "dma":
            found = {-1}
            self.collect(self.readers[name], r, found)
            if len(found) == 1:
                break
            n += 1
            name = f"dma {n}"
        return self.readers.setdefault(name, list(self.none))


def _cut(regions: dict[Region, Cuts]) -> int:
    """Give every region of a space its cells, as ranges; how many cells there are.

    Rows, PITCH bytes apart, are cut by themselves where no access crosses from one to another.
    """
    parts = {r: _apart(r) for r in regions}
    if any(inner.first + inner.reach > PITCH for _, _, inner in parts.values()):
        parts = {r: (0, 1, _joined(r)) for r in regions}
    rows = sorted({x for low, high, _ in parts.values() for x in (low, high)})
    row = {x: n for n, x in enumerate(rows)}
    starts = {inner: _starts(inner) for _, _, inner in parts.values()}
    found = {x for inner, at in starts.items() for first in at for x in (first, first + inner.run)}
    edges = {x: n for n, x in enumerate(sorted(found))}
    line = len(edges) - 1
    along = {
        inner: [(edges[first], edges[first + inner.run]) for first in at]
        for inner, at in starts.items()
    }
    for r, (low, high, inner) in parts.items():
        regions[r] = tuple(
            (n * line + a, n * line + b)
            for n in range(row[low], row[high])
            for a, b in along[inner]
        )
    return line * (len(rows) - 1)


def _apart(r: Region) -> tuple[int, int, Region]:
    """(first row, row after the last, what of a row) of a region; all of it in row 0 if it must."""
    first, rest = divmod(r.first, PITCH)
    rows = [n for s, n in r.steps if s == PITCH]
    inner = _joined(Region(r.space, rest, tuple(x for x in r.steps if x[0] != PITCH), r.run))
    if len(rows) > 1 or any(s > PITCH for s, _ in inner.steps):
        return 0, 1, _joined(r)
    return first, first + (rows[0] if rows else 1), inner


def _joined(r: Region) -> Region:
    """The same bytes in as few runs as steps that continue one another make, in any order."""
    run, steps = r.run, list[tuple[int, int]]()
    for step, n in sorted(r.steps):
        if step == run and not steps:
            run *= n
        else:
            steps.insert(0, (step, n))
    return Region(r.space, r.first, tuple(steps), run)


def _starts(r: Region) -> list[int]:
    """The first byte of every contiguous run."""
    at = [r.first]
    for step, n in r.steps:
        at = [first + step * k for first in at for k in range(n)]
    return at
