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
from math import gcd
from typing import Any

import numpy as np

from axe_eq_backends.nki.sim.machine import Machine
from axe_eq_backends.nki.sim.storage import Region

ACCESS_CYCLES = 60  # from the end of an instruction to its result (architecture guide)
PIECE_BYTES = 512  # of a transfer, which one queue moves alone


@dataclass(frozen=True)
class Item:
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


@dataclass(frozen=True)
class Span:
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


def _transfer(
    n: int, item: Item, at: float, dma: list[tuple[float, int]], machine: Machine, spans: list[Span]
) -> float:
    """Put a transfer on the queues that are free first; when its last piece is moved."""
    pieces = max(1, min(machine.dma_queues, item.n_bytes // max(PIECE_BYTES, 1)))
    ns = item.ns * machine.dma_queues / pieces
    stop = at
    for _ in range(pieces):
        free, queue = heapq.heappop(dma)
        start = max(free, at)
        heapq.heappush(dma, (start + ns, queue))
        spans.append(Span(n, f"dma {queue}", start, start + ns))
        stop = max(stop, start + ns)
    return stop


# -- dependences -----------------------------------------------------------------------------------


def dependences(items: Sequence[Item]) -> list[tuple[list[int], list[int]]]:
    """For every item, earlier ones whose results it waits for, and those whose end is enough.

    What these wait for themselves it need not name.

    Bytes of a space are looked at in units of the greatest common divisor of all accesses to it, so
    that tiles of a large tensor are a few cells each. A cell knows its last writer and who read it
    since: the last of each engine, which is in order, and every transfer.
    """
    units: dict[Any, int] = defaultdict(int)
    sizes: dict[Any, int] = defaultdict(int)
    written = {w.space for item in items for w in item.writes}
    for item in items:
        for r in (*item.reads, *item.writes):
            units[r.space] = gcd(units[r.space], r.first, r.run, *(s for s, _ in r.steps))
            end = r.first + sum((n - 1) * s for s, n in r.steps) + r.run
            sizes[r.space] = max(sizes[r.space], end)
    held: dict[tuple[Any, str], Any] = {}  # (space, "writer" or whose reads) -> cells
    readers: dict[Any, list[str]] = defaultdict(list)

    def cells(r: Region, who: str) -> Any:
        unit = units[r.space]
        if (r.space, who) not in held:
            held[r.space, who] = np.full(-(-sizes[r.space] // unit), -1, np.int32)
        shape = (*(n for _, n in r.steps), r.run // unit)
        steps = (*(s // unit * 4 for s, _ in r.steps), 4)
        return np.ndarray(shape, np.int32, held[r.space, who].data, r.first // unit * 4, steps)

    def reader(r: Region, engine: str) -> str:
        """Whose reads an item is noted under: of transfers, the first that has none there."""
        name, n = engine, 0
        while True:
            if name not in readers[r.space]:
                readers[r.space].append(name)
                return name
            if engine != "dma" or (cells(r, name) == -1).all():
                return name
            n += 1
            name = f"dma {n}"

    def found(r: Region, who: str) -> list[int]:
        return [n for n in np.unique(cells(r, who)).tolist() if n >= 0]

    out: list[tuple[list[int], list[int]]] = []
    for n, item in enumerate(items):
        results: set[int] = set()
        stops: set[int] = set()
        for r in item.reads:
            if r.space in written:
                results.update(found(r, "writer"))
        for r in item.writes:
            for before in found(r, "writer"):
                pipelined = items[before].engine == item.engine != "dma"
                (stops if pipelined else results).add(before)
            for who in readers[r.space]:
                stops.update(found(r, who))
        for r in item.reads:
            if r.space in written:
                cells(r, reader(r, item.engine))[...] = n
        for r in item.writes:
            for who in readers[r.space]:
                cells(r, who)[...] = -1
            cells(r, "writer")[...] = n
        out.append((sorted(results), sorted(stops - results)))
    return out
