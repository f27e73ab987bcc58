"""Memory plan: where temporaries live in one arena, with reuse once their last reader is done.

A temporary is live from the step that writes it to the last step that reads it, both included: a
step never writes over what it reads. Placing intervals of given lengths in the least memory is
NP-hard (dynamic storage allocation), so a few orders of best-fit placement are tried and the best
is taken; graphs of few temporaries are placed optimally.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

from axe_eq.errors import ScheduleError
from axe_eq.layout import Layout
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.schedule.graph import GIVEN, BufferSpec, ScheduleGraph

ALIGNMENT_BYTES = 64
EXACT_BUFFERS = 6


@lru_cache(maxsize=4096)
def buffer_elements(layout: str) -> int:
    """Elements of flat memory a buffer in this layout needs, from address 0, padding included.

    On a mesh these are the elements of one device.

    Raises:
        ScheduleError: the layout has an address below 0.
    """
    parsed = Layout.parse(layout)
    whole = Layout(parsed.shard, parsed.replica, parsed.offset, parsed.swizzle)
    low, high = whole.range(DEFAULT_AXIS)
    if low < 0:
        raise ScheduleError(f"layout {layout}", f"reaches address {low}", "addresses from 0")
    return high + 1


def layout_bytes(layout: str, itemsize: int) -> int:
    """Bytes of flat memory that a value in this layout needs, padding included."""
    return buffer_elements(layout) * itemsize


def buffer_bytes(buffer: BufferSpec) -> int:
    """Bytes of a buffer, padding included."""
    return layout_bytes(buffer.layout, buffer.value_type.itemsize)


@dataclass(frozen=True)
class Lifetime:
    """A temporary's bytes (rounded up to the alignment) and its first and last step."""

    buffer: str
    n_bytes: int
    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        """Both are live at some step."""
        return self.first <= other.last and other.first <= self.last


@dataclass(frozen=True)
class MemoryPlan:
    """Where temporaries live.

    Attributes:
        offsets: temporary -> byte offset in the arena.
        arena_bytes: size of the arena.
        peak_bytes: memory of the whole run: inputs, constants, outputs and the arena.
        least_bytes: most bytes of temporaries that are live at once; no arena is smaller.
        table: the temporaries in the order of their first step.
    """

    offsets: dict[str, int]
    arena_bytes: int
    peak_bytes: int
    least_bytes: int
    table: tuple[Lifetime, ...]

    def __str__(self) -> str:
        lines = [f"{'buffer':<16} {'bytes':>12} {'offset':>12}  steps"]
        lines += [
            f"{row.buffer:<16} {row.n_bytes:>12} {self.offsets[row.buffer]:>12}  "
            f"{row.first}..{row.last}"
            for row in self.table
        ]
        return "\n".join([*lines, f"arena {self.arena_bytes} B, peak {self.peak_bytes} B"])


def lifetimes(graph: ScheduleGraph) -> tuple[Lifetime, ...]:
    """Lifetimes of the temporaries, in the order of their first step.

    Raises:
        ScheduleError: a step reads what no earlier step wrote, a buffer is written twice, or an
            access names no buffer.
    """
    first: dict[str, int] = {}
    last: dict[str, int] = {}
    ready = {name for name, b in graph.buffers.items() if b.role in GIVEN}
    for number, step in enumerate(graph.calls):
        reads, writes = graph.accesses(step)
        for read in reads:
            if read.buffer not in ready:
                wrong = f"reads buffer {read.buffer!r} before it is written"
                raise ScheduleError(f"step {step.name}", wrong, "a valid order of steps")
            last[read.buffer] = number
        for write in writes:
            if write.buffer not in graph.buffers or write.buffer in ready:
                wrong = f"writes buffer {write.buffer!r}"
                raise ScheduleError(
                    f"step {step.name}", wrong, "a buffer of the graph that nothing wrote before"
                )
            first[write.buffer] = last[write.buffer] = number
        ready.update(w.buffer for w in writes)
    return tuple(
        Lifetime(name, _aligned(buffer_bytes(graph.buffers[name])), first[name], last[name])
        for name in sorted(first, key=lambda n: (first[n], n))
        if graph.buffers[name].role == "temporary"
    )


def stored_bytes(graph: ScheduleGraph) -> int:
    """Most bytes of temporaries and outputs that are alive at once: outputs stay once written.

    Memory that several buffers of a mesh lie in counts from when all of it is written.
    """
    accesses = [graph.accesses(call) for call in graph.calls]
    last = {read.buffer: n for n, (reads, _) in enumerate(accesses) for read in reads}
    alive = peak = 0
    for number, (_, writes) in enumerate(accesses):
        written = [b for w in writes if not (b := graph.buffers[w.buffer]).within]
        alive += sum(map(buffer_bytes, written))
        peak = max(peak, alive)
        done = [
            b for name, n in last.items() if n == number and not (b := graph.buffers[name]).within
        ]
        unread = [b for b in written if b.name not in last]
        alive -= sum(buffer_bytes(b) for b in (*done, *unread) if b.role == "temporary")
    return peak


def _aligned(n_bytes: int) -> int:
    return -(-n_bytes // ALIGNMENT_BYTES) * ALIGNMENT_BYTES


def plan(graph: ScheduleGraph) -> MemoryPlan:
    """Place the temporaries of a schedule graph; deterministic.

    Raises:
        ScheduleError: as `lifetimes`.
    """
    table = lifetimes(graph)
    least = _most_live(table)
    offsets, arena = _best(table, least)
    resident = sum(buffer_bytes(b) for b in graph.buffers.values() if b.role != "temporary")
    return MemoryPlan(offsets, arena, resident + arena, least, table)


def _most_live(table: Sequence[Lifetime]) -> int:
    """The most bytes live at once; the maximum is reached at some first step."""
    return max(
        (sum(b.n_bytes for b in table if b.first <= a.first <= b.last) for a in table), default=0
    )


_ORDERS: tuple[Callable[[Lifetime], tuple[int, ...]], ...] = (
    lambda b: (-b.n_bytes, b.first),
    lambda b: (b.first, -b.n_bytes),
    lambda b: (b.first - b.last, -b.n_bytes),
    lambda b: (-b.n_bytes * (b.last - b.first + 1), b.first),
)


def _best(table: Sequence[Lifetime], least: int) -> tuple[dict[str, int], int]:
    """The smallest arena over the orders tried; stops at the lower bound."""
    orders: Iterable[Sequence[Lifetime]] = (sorted(table, key=order) for order in _ORDERS)
    found = _smallest(orders, least, _best_fit)
    if found[1] > least and len(table) <= EXACT_BUFFERS:
        # Placed lowest first in the order of their offsets, an optimal placement is found again.
        found = min(found, _smallest(permutations(table), least, _lowest), key=lambda f: f[1])
    return found


def _smallest(
    orders: Iterable[Sequence[Lifetime]], least: int, fit: Callable[[list[tuple[int, int]]], int]
) -> tuple[dict[str, int], int]:
    best: tuple[dict[str, int], int] | None = None
    for order in orders:
        made = _place(order, fit)
        if best is None or made[1] < best[1]:
            best = made
        if best[1] == least:
            break
    assert best is not None  # there is always an order
    return best


def _place(
    order: Sequence[Lifetime], fit: Callable[[list[tuple[int, int]]], int]
) -> tuple[dict[str, int], int]:
    """Place buffers one after another, each in a gap between those it meets."""
    offsets: dict[str, int] = {}
    placed: list[Lifetime] = []
    for buffer in order:
        taken = sorted((offsets[p.buffer], p.n_bytes) for p in placed if p.meets(buffer))
        offsets[buffer.buffer] = fit(_gaps(taken, buffer.n_bytes))
        placed.append(buffer)
    return offsets, max((offsets[p.buffer] + p.n_bytes for p in placed), default=0)


def _gaps(taken: Sequence[tuple[int, int]], n_bytes: int) -> list[tuple[int, int]]:
    """(size, offset) of the gaps that are large enough, lowest first; the last one is open."""
    gaps, end = [], 0
    for offset, size in taken:
        if offset - end >= n_bytes:
            gaps.append((offset - end, end))
        end = max(end, offset + size)
    return [*gaps, (1 << 62, end)]


def _best_fit(gaps: list[tuple[int, int]]) -> int:
    return min(gaps)[1]


def _lowest(gaps: list[tuple[int, int]]) -> int:
    return gaps[0][1]
