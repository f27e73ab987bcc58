"""C1: live bytes per partition. And addresses for the timeline, so that tiles reuse memory.

A tile is live from the instruction that writes it first to the one that uses it last, in the order
of the program: the least that any order of a compiler needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from axe_eq_backends.nki.sim.errors import Line, refuse, shown
from axe_eq_backends.nki.sim.machine import Machine
from axe_eq_backends.nki.sim.state import PSUM, SBUF, Step
from axe_eq_backends.nki.sim.storage import Region, Tile
from axe_eq_backends.nki.sim.timeline import PITCH, Item

Steps = tuple[tuple[int, int], ...]  # (bytes, count), slow to fast


@dataclass(frozen=True)
class Peak:
    """The most of a memory that is live at once.

    Attributes:
        n_bytes: per partition.
        step: the instruction.
        tiles: that are live then, largest first.
    """

    n_bytes: int
    step: int
    tiles: tuple[Tile, ...]

    def lines(self) -> list[tuple[Line, int, int]]:
        """(line, tiles, bytes per partition) of each line whose tiles hold the peak."""
        held: dict[Line, tuple[int, int]] = {}
        for t in self.tiles:
            n, size = held.get(t.line, (0, 0))
            held[t.line] = n + 1, size + t.bytes_per_partition
        return sorted(((line, n, size) for line, (n, size) in held.items()), key=lambda x: -x[2])


def peaks(tiles: Sequence[Tile], machine: Machine) -> dict[str, Peak]:
    """The peak of SBUF and of PSUM.

    Raises:
        NkiError: one is above what a partition holds (C1).
    """
    out = {}
    for memory, most in ((SBUF, machine.sbuf_bytes), (PSUM, machine.psum_bytes)):
        peak = _peak([t for t in tiles if t.memory is memory and t.first >= 0])
        out[memory.value] = peak
        if peak.n_bytes > most:
            held = "; ".join(f"{size} by {n} tile{'s' * (n > 1)} of {shown(line)}"
                             for line, n, size in peak.lines()[:5])  # fmt: skip
            raise refuse(
                "C1",
                memory.value,
                f"has {peak.n_bytes} bytes per partition live at once: {held}",
                f"at most {most} on {machine.name}",
                peak.tiles[0].line,
            )
    return out


def _peak(tiles: Sequence[Tile]) -> Peak:
    """Tiles with addresses count once where they lie on one another."""
    changes: dict[int, list[tuple[Tile, int]]] = {}
    for t in tiles:
        changes.setdefault(t.first, []).append((t, 1))
        changes.setdefault(t.last + 1, []).append((t, -1))
    live: dict[int, Tile] = {}
    best, at, held = 0, 0, tuple[Tile, ...]()
    for step in sorted(changes):
        for t, sign in changes[step]:
            if sign < 0:
                live.pop(t.number, None)
        for t, sign in changes[step]:
            if sign > 0:
                live[t.number] = t
        size = _held(live.values())
        if size > best:
            best, at, held = size, step, tuple(live.values())
    return Peak(best, at, tuple(sorted(held, key=lambda t: -t.bytes_per_partition)))


def _held(tiles: object) -> int:
    free, fixed = 0, list[tuple[int, int]]()
    for t in tiles:  # type: ignore[attr-defined]
        if t.address is None:
            free += t.bytes_per_partition
        else:
            fixed.append((t.address[1], t.address[1] + t.bytes_per_partition))
    reach = 0
    for start, stop in sorted(fixed):
        free += max(0, stop - max(start, reach))
        reach = max(reach, stop)
    return free


# -- addresses -------------------------------------------------------------------------------------


def placement(tiles: Sequence[Tile], machine: Machine) -> dict[int, int]:
    """A byte for every tile: the next that is free after the last one placed, so reuse is late.

    Tiles for which fragments leave no place are absent; the timeline takes them as never reused.
    """
    out: dict[int, int] = {}
    for memory, most in ((SBUF, machine.sbuf_bytes), (PSUM, machine.psum_bytes)):
        live: list[tuple[int, int, int]] = []  # start, stop, last
        here = 0
        for t in sorted(
            (t for t in tiles if t.memory is memory and t.first >= 0), key=lambda t: t.first
        ):
            live = [x for x in live if x[2] >= t.first]
            if t.address is not None:
                out[t.number] = t.address[1]
                continue
            bank = machine.bank_bytes if memory is PSUM else 0
            for start in (here, 0):
                found = _free(live, start, t.bytes_per_partition, most, bank)
                if found is not None:
                    out[t.number] = found
                    here = found + t.bytes_per_partition
                    live.append((found, here, t.last))
                    break
    return out


def _free(
    live: Sequence[tuple[int, int, int]], start: int, size: int, most: int, bank: int
) -> int | None:
    for low, high in [*sorted((a, b) for a, b, _ in live), (most, most)]:
        if bank and start % bank and start % bank + size > bank:
            start += bank - start % bank
        if start + size <= low:
            return start
        start = max(start, high)
    return None


def items(steps: Sequence[Step], placed: Mapping[int, int]) -> list[Item]:
    """Steps for the timeline, with tiles where they were placed."""
    return [
        Item(
            s.engine,
            s.ns,
            tuple(_at(r, placed) for r in s.reads),
            tuple(_at(w, placed) for w in s.writes),
            s.op,
            f"{s.line[0]}:{s.line[1]}",
            s.n_bytes,
            s.run,
        )
        for s in steps
    ]


def _at(region: Region, placed: Mapping[int, int]) -> Region:
    tile: Tile = region.space
    region = region.ascending()
    if not tile.memory.on_chip:
        return Region(tile.number, region.first, region.steps, region.run)
    partition, first = divmod(region.first, tile.bytes_per_partition)
    partition += tile.address[0] if tile.address else 0
    at = partition * PITCH + first + placed.get(tile.number, 0)
    memory = tile.memory.value
    space = memory if tile.number in placed else (memory, tile.number)
    return Region(space, at, *_pitched(region.steps, region.run, tile.bytes_per_partition))


@lru_cache(maxsize=1 << 12)
def _pitched(of: Steps, whole: int, row: int) -> tuple[Steps, int]:
    """Steps and run of a region whose partitions, `row` bytes each, lie `PITCH` bytes apart."""
    steps, run = list[tuple[int, int]](), min(whole, row)
    for step, n in (*of, (run, whole // run)):
        inside = row // step if step < row else n  # how many of the steps stay in a partition
        steps += [(step * inside, n // inside), (step, inside)] if n > inside else [(step, n)]
    moved = tuple(
        (step // row * PITCH, n) if step % row == 0 and step >= row else (step, n)
        for step, n in steps
        if n > 1
    )
    return moved, run
