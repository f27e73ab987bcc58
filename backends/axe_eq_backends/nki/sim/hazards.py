"""Checks of where accesses lie: declarations, partitions, memories, accumulation groups, addresses.

They hold for every instruction; what an instruction asks of its own operands is in `isa`.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from axe_eq_backends.nki.sim.dtypes import Dtype
from axe_eq_backends.nki.sim.errors import Line, refuse
from axe_eq_backends.nki.sim.machine import Machine
from axe_eq_backends.nki.sim.storage import Group, MemoryRegion, Storage, Tile
from axe_eq_backends.nki.sim.views import Tensor

if TYPE_CHECKING:
    from axe_eq_backends.nki.sim.state import Run

Address = tuple[int, int]
Place = tuple[int, int, int, int]  # partitions from and to, bytes from and to


def declared(
    machine: Machine, shape: tuple[int, ...], dtype: Dtype, memory: MemoryRegion, name: str,
    address: Address | None, line: Line,
) -> None:  # fmt: skip
    """P1, C1, C2 and P2 of a declaration."""
    thing = f"tensor {name} {shape}" if name else f"tensor {shape}"
    if not shape or min(shape) < 1:
        raise refuse("P1", thing, "has no elements", "extents of 1 or more", line)
    if not memory.on_chip:
        return
    if len(shape) < 2:
        raise refuse(
            "P1", thing, f"has {len(shape)} dim on chip", "partitions and a free dim", line
        )
    if shape[0] > machine.partitions:
        raise refuse(
            "P1", thing, f"has {shape[0]} partitions", f"at most {machine.partitions}", line
        )
    n_bytes = prod(shape[1:]) * dtype.itemsize
    held = machine.psum_bytes if memory is MemoryRegion.psum else machine.sbuf_bytes
    start = 0 if address is None else address[1]
    if start + n_bytes > held:
        at = f" from byte {start}" if start else ""
        raise refuse("C1", thing, f"takes {n_bytes} bytes per partition{at}",
                     f"at most {held} of {memory.value} on {machine.name}", line)  # fmt: skip
    if address is None:
        return
    partition, byte = address
    if partition not in starts(shape[0]) or partition + shape[0] > machine.partitions:
        allowed = " ".join(str(p) for p in starts(shape[0]) if p + shape[0] <= machine.partitions)
        raise refuse("P2", thing, f"starts at partition {partition}", allowed, line)
    if (
        memory is MemoryRegion.psum
        and byte // machine.bank_bytes != (byte + n_bytes - 1) // machine.bank_bytes
        and byte % machine.bank_bytes
    ):
        raise refuse("C2", thing, f"starts at byte {byte} of PSUM and crosses into another bank",
                     f"a multiple of {machine.bank_bytes}, or all in one bank", line)  # fmt: skip
    if byte % dtype.itemsize or byte < 0:
        allowed = f"0 or more, in steps of {dtype.itemsize}"
        raise refuse("C2", thing, f"starts at byte {byte}", allowed, line)


def starts(partitions: int) -> tuple[int, ...]:
    """Where an access of so many partitions may start (architecture guide of NeuronCore-v2)."""
    return (0,) if partitions > 64 else (0, 64) if partitions > 32 else (0, 32, 64, 96)


def reached(run: Run, engine: str, views: Sequence[Tensor]) -> None:
    """B1, B2, P2 and P3 of the views that an engine accesses."""
    for t in views:
        if not t.buffer.on_chip:
            continue
        if engine == "dma":
            if t.buffer is MemoryRegion.psum and run.dialect != "0.2":
                raise run.wrong("B1", f"{t!r}", "is in PSUM", "SBUF or HBM: no DMA reaches PSUM")
            continue
        if engine == "gpsimd" and t.buffer is MemoryRegion.psum:
            raise run.wrong(
                "B2", f"{t!r}", "is in PSUM", "SBUF: the gpsimd engine does not reach PSUM"
            )
        t.fits_descriptor()
        tile, part = t.storage.tile, (t.start, t.partitions)
        if run.by_rows or part in tile.reached:
            continue
        allowed = starts(t.partitions)
        bases = _bases(tile) if tile.bases is None else tile.bases
        tile.bases = bases & {p - t.start for p in allowed}
        if not tile.bases:
            start = t.start + (tile.address[0] if tile.address else 0)
            where = "" if len(bases) == 1 else " of its tile"
            raise run.wrong("P2", f"{t!r}", f"starts at partition {start}{where}",
                            " or ".join(map(str, allowed)))  # fmt: skip
        tile.reached.add(part)


def _bases(tile: Tile) -> set[int]:
    """Partitions at which a tile may begin: at its address, else wherever a compiler likes."""
    if tile.address is not None:
        return {tile.address[0]}
    return {0} if tile.partitions > 64 else set(range(129 - tile.partitions))


# -- accumulation groups ---------------------------------------------------------------------------


def place(t: Tensor) -> Place:
    """The box that holds a view within its storage."""
    ends = [(n - 1) * s for n, s in zip(t.shape[1:], t.steps[1:], strict=True)]
    least, most = t.byte + sum(min(e, 0) for e in ends), t.byte + sum(max(e, 0) for e in ends)
    return t.start, t.start + t.partitions, least, most + t.itemsize


def meet(a: Place, b: Place) -> bool:
    """Whether two boxes have bytes in common."""
    return a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3]


def group_read(t: Tensor, line: Line) -> None:
    """An engine reads what accumulation groups may have open."""
    here = place(t)
    for where, group in t.storage.groups.items():
        if meet(here, where):  # type: ignore[arg-type]
            group.read = line


def group_cleared(t: Tensor) -> None:
    """An engine writes over groups, which ends them."""
    here = place(t)
    for where in [w for w in t.storage.groups if meet(here, w)]:  # type: ignore[arg-type]
        del t.storage.groups[where]


def group_written(run: Run, t: Tensor, accumulates: bool) -> None:
    """M3: a product starts or goes on with the group at `t`."""
    storage, here = t.storage, place(t)
    base = storage.tile.address[1] if storage.tile.address else 0
    bank = (base + here[2]) // run.machine.bank_bytes
    if not accumulates:
        group_cleared(t)
        storage.groups[here] = Group(here, run.line)
        storage.latest[bank] = here
        return
    group = storage.groups.setdefault(here, Group(here, run.line))
    if group.read is not None:
        run.warn(
            "M3",
            f"dst {t!r}",
            f"was read at {group.read[0]}:{group.read[1]} before this product "
            "of its accumulation group",
            "reads after the last product of a group",
        )
    latest = storage.latest.get(bank, here)
    if latest != here and meet_rows(latest, here) and latest in storage.groups:
        run.warn(
            "M3",
            f"dst {t!r}",
            f"goes on in bank {bank} of its tile after another group started there",
            "one open accumulation group in a bank",
        )


def meet_rows(a: Sequence[int], b: Sequence[int]) -> bool:
    """Whether two boxes have partitions in common."""
    return a[0] < b[1] and b[0] < a[1]


# -- explicit addresses ----------------------------------------------------------------------------


def overwrites(t: Tensor, addressed: Sequence[weakref.ref[Storage]], line: Line) -> None:
    """A write at an explicit address takes the bytes of other tiles there: they are stale (C2)."""
    mine = t.storage.tile
    assert mine.address is not None
    p0, p1, b0, b1 = place(t)
    box = (p0 + mine.address[0], p1 + mine.address[0], b0 + mine.address[1], b1 + mine.address[1])
    for ref in addressed:
        other = ref()
        if other is None or other is t.storage or other.memory is not t.storage.memory:
            continue
        at = other.tile.address
        assert at is not None
        theirs = at[0], at[0] + other.tile.partitions, at[1], at[1] + other.tile.bytes_per_partition
        if not meet(box, theirs):
            continue
        if other.whole:
            other.init[:], other.whole = True, False
        rows = other.init.reshape(other.tile.partitions, -1)
        low, high = (max(box[2], theirs[2]) - at[1]), (min(box[3], theirs[3]) - at[1])
        part = slice(max(box[0], theirs[0]) - at[0], min(box[1], theirs[1]) - at[0])
        cells = slice(low // other.grain, -(-high // other.grain))
        if np.any(rows[part, cells]):
            rows[part, cells] = False
            other.clobbered = line, mine
