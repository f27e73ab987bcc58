"""Storage of tensors: bytes with two bitmaps that all views share, and when it was in use.

`init` says which bytes were written, `product` which of them by a matrix product last. Bitmaps
count in elements of the storage until a view of a smaller dtype needs a finer count.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from math import prod
from typing import Any, NamedTuple

import numpy as np

from axe_eq_backends.nki.sim.dtypes import Dtype
from axe_eq_backends.nki.sim.errors import NOWHERE, Line

Array = np.ndarray[Any, Any]


class MemoryRegion(Enum):
    """Memories by the names of NKI."""

    sbuf = "sbuf"
    psum = "psum"
    hbm = "hbm"
    private_hbm = "private_hbm"
    shared_hbm = "shared_hbm"

    @property
    def on_chip(self) -> bool:
        """Whether it has partitions."""
        return self in (MemoryRegion.sbuf, MemoryRegion.psum)


@dataclass(eq=False)
class Tile:
    """What stays known of a storage when its bytes are gone.

    Attributes:
        memory: where it is.
        partitions: of it; 1 off chip.
        bytes_per_partition: all bytes off chip.
        line: of its declaration.
        address: partition and first byte, where the kernel says them.
        first, last: instructions that wrote it first and used it last; -1 for none.
        reached: (first partition, partitions) of what engines accessed.
        bases: partitions at which it may begin, so that all of that may begin where it does.
    """

    number: int
    name: str
    memory: MemoryRegion
    partitions: int
    bytes_per_partition: int
    line: Line = NOWHERE
    address: tuple[int, int] | None = None
    first: int = -1
    last: int = -1
    reached: set[tuple[int, int]] = field(default_factory=set)
    bases: set[int] | None = None

    def __str__(self) -> str:
        size = f"{self.partitions} x {self.bytes_per_partition} B"
        return f"{self.name or 'a tile'} ({size} of {self.memory.value})"


@dataclass(eq=False)
class Group:
    """The accumulation group of a bank that wrote last.

    Attributes:
        place: bytes of it: which group.
        read: the line that read it after its last product, if any.
    """

    place: tuple[int, ...]
    line: Line
    read: Line | None = None


_numbers = itertools.count()


@dataclass(eq=False)
class Storage:
    """Bytes of one tensor.

    Attributes:
        whole: every byte was written, so that `init` need not be asked.
        groups: (bank, place) -> accumulation group, for PSUM.
        latest: bank -> place of the group that started last in it.
        clobbered: the line and tile that overwrote bytes of this one, which has an address.
    """

    shape: tuple[int, ...]
    dtype: Dtype
    tile: Tile
    whole: bool = False
    groups: dict[tuple[int, ...], Group] = field(default_factory=dict)
    latest: dict[int, tuple[int, ...]] = field(default_factory=dict)
    clobbered: tuple[Line, Tile] | None = None

    def __post_init__(self) -> None:
        self.n_bytes = prod(self.shape) * self.dtype.itemsize
        self.data = np.empty(self.n_bytes, np.uint8)
        self.grain = self.dtype.itemsize
        self.init = np.zeros(self.n_bytes // self.grain, np.bool_)
        on_psum = self.tile.memory is MemoryRegion.psum
        self.product = np.zeros(len(self.init), np.bool_) if on_psum else None

    @property
    def memory(self) -> MemoryRegion:
        """Where it is."""
        return self.tile.memory

    def refine(self, n_bytes: int) -> None:
        """Let bitmaps count in so many bytes, or in a divisor."""
        grain = int(np.gcd(self.grain, n_bytes))
        if grain != self.grain:
            times, self.grain = self.grain // grain, grain
            self.init = np.repeat(self.init, times)
            if self.product is not None:
                self.product = np.repeat(self.product, times)


def new_storage(
    shape: tuple[int, ...], dtype: Dtype, memory: MemoryRegion, *, name: str = "",
    line: Line = NOWHERE, address: tuple[int, int] | None = None,
) -> Storage:  # fmt: skip
    """Storage that nothing has written yet."""
    n_bytes = prod(shape) * dtype.itemsize
    partitions = shape[0] if memory.on_chip and shape else 1
    tile = Tile(
        next(_numbers), name, memory, partitions, n_bytes // max(partitions, 1), line, address
    )
    return Storage(shape, dtype, tile)


class Region(NamedTuple):
    """Bytes that an instruction reads or writes, for dependences.

    Attributes:
        space: what the bytes belong to: equal for accesses that may meet.
        first: byte.
        steps: (bytes, count) of each dim that is not contiguous, slow to fast.
        run: contiguous bytes at the end of every step.
    """

    space: Any
    first: int
    steps: tuple[tuple[int, int], ...]
    run: int

    @property
    def reach(self) -> int:
        """Bytes from the first to the last."""
        return sum((n - 1) * s for s, n in self.steps) + self.run

    def ascending(self) -> Region:
        """The same bytes without negative steps, from the least."""
        if all(s > 0 for s, _ in self.steps):
            return self
        least = self.first + sum((n - 1) * s for s, n in self.steps if s < 0)
        return Region(self.space, least, tuple((abs(s), n) for s, n in self.steps), self.run)


def region(space: Any, first: int, shape: Sequence[int], steps: Sequence[int], size: int) -> Region:
    """The region of a strided access, with dims that lie one after the other taken as one."""
    run, kept = size, list[tuple[int, int]]()
    for count, step in zip(reversed(shape), reversed(steps), strict=True):
        if count == 1 or step == 0:
            continue
        if not kept and step == run:
            run *= count
        elif kept and step == kept[-1][0] * kept[-1][1]:
            kept[-1] = kept[-1][0], kept[-1][1] * count
        else:
            kept.append((step, count))
    return Region(space, first, tuple(reversed(kept)), run)
