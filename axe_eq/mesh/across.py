"""Buffers that lie in the memory of all devices: what a rank reads or stores where others have it.

An exchange brings every rank its part of a value. Where devices see each other's memory the part
need not be brought: a kernel of the rank reads it, or stores it, where the value lies. How it lies
there is a layout over the device axis and memory, the same for all ranks, from where the part's
first element lies. It is worked out dim by dim, and every index of a dim is looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import product
from math import prod

import numpy as np

from axe_eq.errors import ScheduleError
from axe_eq.layout import Layout
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.mesh.sides import Ints, Side
from axe_eq.schedule.shard import DEVICE_AXIS

MOST_TOLD = 1 << 30  # elements: numbers have 32 bits, and a transport may begin at half of them


@dataclass(frozen=True)
class Across:
    """How ranks' parts of a value lie where devices have it.

    Attributes:
        layout: of a part's elements, row-major: device and address from the first one's.
        begins: per rank device and address of the first.
    """

    layout: Layout
    begins: tuple[tuple[int, int], ...]

    @cached_property
    def groups(self) -> list[frozenset[int]]:
        """Per rank the devices that its part lies on."""
        steps = [range(0, e * s, s) for e, s, a in self.layout.shard if a == DEVICE_AXIS]
        return [frozenset(first + sum(of) for of in product(*steps)) for first, _ in self.begins]

    @property
    def is_mutual(self) -> bool:
        """Whether devices lie in each other's groups, or neither does in the other one's."""
        each = enumerate(self.groups)
        return all(rank in self.groups[device] for rank, group in each for device in group)

    def chunk(self, whole: Sequence[int], part: Sequence[int], chunks: int) -> int | None:
        """Elements of a chunk of what is stored on a device, of which it is told in so many.

        Chunks are along the first dim that devices have parts of, so all who store have some of
        each. A device stores in a call what those read in the call before the last whom it has
        waited for since: in two calls that follow each other devices tell who tells them.

        Args:
            whole: shape of what is stored.
            part: of what a device gets of it.
            chunks: how many, or 1.

        Returns:
            0 for one chunk; None where devices cannot be told so.
        """
        if prod(part) >= MOST_TOLD or not self.is_mutual:
            return None
        if chunks == 1:
            return 0
        dim = next((d for d, n in enumerate(part) if len(part) == len(whole) and n < whole[d]), -1)
        if dim < 0 or part[dim] % chunks:
            return None
        span = prod(part[dim:])
        return None if any(place % span for _, place in self.begins) else span // chunks

    def places(self, rank: int) -> tuple[Ints, Ints]:
        """Device and address of every element of a rank's part, row-major."""
        tables = (self.layout.table(a).reshape(-1) for a in (DEVICE_AXIS, DEFAULT_AXIS))
        device, address = (t + n for t, n in zip(tables, self.begins[rank], strict=True))
        return device, address


@lru_cache(maxsize=1024)
def across(part: Side, whole: Side, n_ranks: int) -> Across:
    """How ranks' parts lie in a value.

    Args:
        part: the value as every rank is to have its part of it.
        whole: the value as devices have it.
        n_ranks: of the mesh.

    Raises:
        ScheduleError: parts that are not dense or that some rank lacks, a value that several
            devices have, or no one layout for all ranks.
    """
    if part.shape != whole.shape or not (part.grouped and whole.grouped):
        raise _wrong(part, whole, "cuts within dims")
    if len(whole.copies) > 1 or len(whole.local_copies) > 1 or whole.layout.swizzle:
        raise _wrong(part, whole, "has copies, or a swizzle")
    found = [_of_rank(part, whole, rank) for rank in range(n_ranks)]
    layouts = {layout for layout, _ in found}
    if len(layouts) > 1:
        raise _wrong(part, whole, "lies otherwise for other ranks")
    return Across(layouts.pop(), tuple(begin for _, begin in found))


def _wrong(part: Side, whole: Side, wrong: str) -> ScheduleError:
    thing = f"layout {whole.layout} as {part.layout}"
    return ScheduleError(thing, wrong, "parts that lie alike across devices")


def _of_rank(part: Side, whole: Side, rank: int) -> tuple[Layout, tuple[int, int]]:
    dims = range(len(part.shape))
    held = _held(part, whole, rank)
    _check_dense(part, whole, held)
    iters: list[tuple[int, int, str]] = []
    begin = list(whole.base)
    begin[1] += whole.begin(rank)
    for d in dims:
        lies = np.stack(whole.tables((d,)), 1)[held[d]]
        begin = [b + int(n) for b, n in zip(begin, lies[0], strict=True)]
        own = _digits(lies - lies[0])
        if own is None:
            raise _wrong(part, whole, f"has no strides along dim {d}")
        iters += own
    return Layout(iters).canonical(), (begin[0], begin[1])


def _held(part: Side, whole: Side, rank: int) -> list[Ints]:
    """Per dim the indices that a rank has."""
    tables = [part.tables((d,))[0] for d in range(len(part.shape))]
    found = [
        at for at in product(*map(np.unique, tables))
        if (rank - part.base[0] - sum(map(int, at))) in part.copies
    ]  # fmt: skip
    if len(found) != 1:
        raise _wrong(part, whole, f"is {len(found)} boxes on rank {rank}")
    return [np.flatnonzero(t == n) for t, n in zip(tables, found[0], strict=True)]


def _check_dense(part: Side, whole: Side, held: list[Ints]) -> None:
    """A rank's part is row-major from address 0, of the dims that it has."""
    step = 1
    for d in reversed(range(len(held))):
        places = part.tables((d,))[1][held[d]]
        if (places != np.arange(len(places)) * step).any():
            raise _wrong(part, whole, "is not dense on a rank")
        step *= len(places)
    if part.base[1] or len(part.local_copies) > 1 or part.layout.swizzle or part.begins:
        raise _wrong(part, whole, "is not dense on a rank")


def _digits(lies: Ints) -> list[tuple[int, int, str]] | None:
    """Iters of a dim, slow to fast, of the device and address of every index; None without."""
    n, run = len(lies), 1
    found: list[tuple[int, int, str]] = []
    while run < n:
        step, count = lies[run], 1
        while (count + 1) * run <= n and (
            lies[count * run : (count + 1) * run] == lies[:run] + count * step
        ).all():
            count += 1
        while n % (count * run):
            count -= 1
        if count == 1 or (step != 0).sum() != 1:
            return None
        axis = DEVICE_AXIS if step[0] else DEFAULT_AXIS
        found.insert(0, (count, int(step.sum()), axis))
        run *= count
    return found
