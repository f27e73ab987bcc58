"""Where tiles lie: lifetimes to places of SBUF and banks of PSUM, and what holds the most of them.

A tile lives in the innermost body of all its uses, from the first to the last of them, and is fresh
in every turn of a loop. With two copies of what a loop's turn uses, the next turn begins before the
last one has ended.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from axe_eq.errors import ScheduleError
from axe_eq.kernel import ir
from axe_eq.kernel.spaces import SHARED
from axe_eq.target import Memory, Target
from axe_eq_backends.nki.build import inputs, outputs
from axe_eq_backends.nki.order import touched


@dataclass(frozen=True)
class Placed:
    """One tile's place.

    Attributes:
        buffer: the tile.
        first_byte: of its first copy, along the last axis of its memory.
        n_bytes: of one copy, in whole banks where the memory has banks.
        copies: how many stand side by side.
        begin, end: statements of the kernel in program order, the first and the last it lives at.
    """

    buffer: ir.Buffer
    first_byte: int
    n_bytes: int
    copies: int
    begin: int
    end: int


@dataclass
class Places:
    """Where all tiles of a kernel lie.

    Attributes:
        tiles: in order of their first use.
        peaks: bytes per partition that are used at most, by memory.
        copies: of tiles inside loops, by memory.
        home: the body that every tile is declared in.
    """

    tiles: list[Placed] = field(default_factory=list)
    peaks: dict[str, int] = field(default_factory=dict)
    copies: dict[str, int] = field(default_factory=dict)
    home: dict[ir.Buffer, int] = field(default_factory=dict)


def first_uses(body: ir.Body, places: Places) -> dict[int, list[ir.Buffer]]:
    """Statement (by identity) -> the tiles that are declared before it, in order."""
    found: dict[int, list[ir.Buffer]] = {}
    known = set[ir.Buffer]()

    def visit(body: ir.Body) -> None:
        for s in body:
            for b in dict.fromkeys(v.buffer.storage for v in _operands(s)):
                if places.home.get(b) == id(body) and b not in known:
                    known.add(b)
                    found.setdefault(id(s), []).append(b)
            for inner in ir.children(s):
                visit(inner)

    visit(body)
    return found


def _operands(s: ir.Statement) -> list[ir.View]:
    """The operands of a primitive, or of every primitive inside a statement."""
    if isinstance(s, ir.Primitive):
        return [*outputs(s), *inputs(s)]
    return [v for body in ir.children(s) for inner in body for v in _operands(inner)]


@dataclass
class _Life:
    buffer: ir.Buffer
    begin: int
    end: int
    looped: bool


def lives(kernel: ir.Kernel) -> tuple[list[_Life], dict[ir.Buffer, int]]:
    """Every tile's life in program order, and the body (by identity) that it is declared in."""
    numbers: dict[int, tuple[int, int]] = {}  # statement -> first and last number inside it
    count = 0

    def number(body: ir.Body) -> None:
        nonlocal count
        for s in body:
            first = count
            count += 1
            for inner in ir.children(s):
                number(inner)
            numbers[id(s)] = first, count - 1

    number(kernel.body)
    found: list[_Life] = []
    home: dict[ir.Buffer, int] = {}

    def visit(body: ir.Body, among: set[ir.Buffer], looped: bool) -> None:
        uses = [set.union(*touched(s)) & among for s in body]
        for b in among:
            here = [s for s, used in zip(body, uses, strict=True) if b in used]
            if len(here) > 1 or any(isinstance(s, ir.Primitive) for s in here):
                ends = [numbers[id(s)] for s in here]
                found.append(_Life(b, ends[0][0], ends[-1][1], looped))
                home[b] = id(body)
        for s, used in zip(body, uses, strict=True):
            rest = {b for b in used if b not in home}
            for inner in ir.children(s) if rest else ():
                visit(inner, rest, looped or isinstance(s, ir.For))

    visit(kernel.body, set(kernel.buffers), False)
    order = {b: n for n, b in enumerate(kernel.buffers)}
    return sorted(found, key=lambda x: (x.begin, order[x.buffer])), home


def placed(kernel: ir.Kernel, target: Target, copies: int = 2) -> Places:
    """Places for the tiles of a kernel, with as many copies of those in loops as a memory fits.

    Raises:
        ScheduleError: they do not fit even once; names those that live where most is taken.
    """
    found, home = lives(kernel)
    places = Places(home=home)
    for memory in (m for m in target.memories if m.kind == SHARED):
        here = [x for x in found if x.buffer.memory == memory.name]
        for count in range(copies, 0, -1):
            tiles = _fitted(here, memory, count)
            peak = max((t.first_byte + t.n_bytes * t.copies for t in tiles), default=0)
            if peak <= memory.place_bytes:
                break
        else:
            raise _too_much(kernel, memory, here, peak)
        places.tiles += tiles
        places.peaks[memory.name], places.copies[memory.name] = peak, count
    return places


def _size(buffer: ir.Buffer, memory: Memory) -> int:
    """Bytes per partition, in whole banks."""
    taken = buffer.n_elements * buffer.itemsize
    unit = memory.bank_bytes or 4
    return -(-taken // unit) * unit


def _fitted(found: Sequence[_Life], memory: Memory, copies: int) -> list[Placed]:
    """Every tile at the lowest place that is free while it lives, the longest lives first."""
    done: list[Placed] = []
    for x in sorted(found, key=lambda x: (x.begin - x.end, x.begin)):
        count = copies if x.looped else 1
        size = _size(x.buffer, memory)
        taken = sorted(
            (p.first_byte, p.first_byte + p.n_bytes * p.copies)
            for p in done
            if p.begin <= x.end and x.begin <= p.end
        )
        at = 0
        for begin, end in taken:
            if begin - at >= size * count:
                break
            at = max(at, end)
        done.append(Placed(x.buffer, at, size, count, x.begin, x.end))
    return sorted(done, key=lambda p: (p.begin, p.first_byte))


def _too_much(
    kernel: ir.Kernel, memory: Memory, found: Sequence[_Life], peak: int
) -> ScheduleError:
    """What lives where the most is taken, the largest tiles first."""
    at = max(
        {x.begin for x in found},
        key=lambda n: sum(_size(x.buffer, memory) for x in found if x.begin <= n <= x.end),
    )
    held: Mapping[str, int] = {
        f"{x.buffer} {x.buffer.dtype}{list(x.buffer.shape)}": _size(x.buffer, memory)
        for x in found
        if x.begin <= at <= x.end
    }
    largest = sorted(held.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{name} {size}" for name, size in largest[:6])
    more = f", and {len(largest) - 6} more" if len(largest) > 6 else ""
    return ScheduleError(
        f"kernel {kernel.name}",
        f"takes {peak} bytes of {memory.name} per partition ({shown}{more})",
        f"at most {memory.place_bytes}",
    )
