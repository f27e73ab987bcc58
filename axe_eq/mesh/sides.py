"""One side of a redistribution: which device holds every index of a value, and where in its memory.

Both sides of a redistribution are read group by group. A group is some dims of a shape; its table
says, for every index of these dims, the device and the address that they add. Only groups are
enumerated, never elements: a matrix of 4096 x 4096 is two tables of 4096.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axe_eq.errors import LayoutError, ScheduleError
from axe_eq.layout import Layout
from axe_eq.layout.value.indexing import block_table
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.schedule.contents import may_alias, same

Ints = NDArray[np.int64]
MOST_ENTRIES = 1 << 24  # indices of a group that is enumerated
SLAB_ENTRIES = 1 << 21  # of elements that are looked at together where there are more


def outer(parts: Sequence[Ints], start: int = 0) -> Ints:
    """All sums of one entry of each part, one dim per part."""
    return reduce(np.add.outer, parts, np.array(start, np.int64))


def check_entries(what: object, count: int) -> None:
    """Refuse tables that are too long.

    Raises:
        ScheduleError: more than `MOST_ENTRIES`.
    """
    if count > MOST_ENTRIES:
        wrong = f"is read by a table of {count:,} indices"
        raise ScheduleError(str(what), wrong, f"{MOST_ENTRIES:,}")


@dataclass(frozen=True, eq=False)
class Side:
    """A value of a shape in a layout over devices.

    Attributes:
        layout: with the device axis and flat memory `m`.
        shape: of the value.
        axis: the device axis.
        own: per dim, device and address of every index where `layout` does not say them: parts
            that overlap, see `axe_eq.mesh.windows`.
        begins: per device, what is added to all addresses; () for nothing.
    """

    layout: Layout
    shape: tuple[int, ...]
    axis: str
    own: tuple[tuple[Ints, Ints], ...] | None = None
    begins: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        strange = [a for a in self.layout.axes if a not in (self.axis, DEFAULT_AXIS)]
        if strange:
            raise self._wrong(f"lies on {' '.join(strange)}", f"{self.axis} and {DEFAULT_AXIS}")
        if self.own is None and self.layout.size != prod(self.shape):
            raise self._wrong(f"holds {self.layout.size} elements", f"{prod(self.shape)}")
        if any(s.axis == self.axis and s.bits for s in self.layout.swizzle):
            raise self._wrong(f"swizzles {self.axis}", "devices in plain order")
        for axis in (self.axis, DEFAULT_AXIS):
            if (low := self.layout.range(axis)[0]) < 0:
                raise self._wrong(f"reaches {low}@{axis}", "coordinates from 0")
        if min(self.begins, default=0) < 0:
            raise self._wrong(f"begins at {self.begins}", "addresses from 0")

    def begin(self, device: int) -> int:
        """What is added to all addresses of a device."""
        return self.begins[device] if self.begins else 0

    @cached_property
    def _key(self) -> tuple[object, ...]:
        own = None if self.own is None else tuple(t.tobytes() for pair in self.own for t in pair)
        return self.layout, self.shape, self.axis, own, self.begins

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Side) and self._key == other._key)

    def __hash__(self) -> int:
        return hash(self._key)

    def _wrong(self, wrong: str, expected: str) -> LayoutError:
        return LayoutError(f"layout {self.layout} of {self.shape}", wrong, expected)

    @cached_property
    def _dims(self) -> tuple[tuple[Ints, Ints], ...] | None:
        """Device and address of every index, per dim; None where the layout cuts dims otherwise."""
        if self.own is not None or self.layout.inner:
            return self.own
        try:
            dims = self.layout.group_dims(self.shape)
        except LayoutError:
            return None
        return tuple(
            (block_table(block, self.axis)[:n], block_table(block, DEFAULT_AXIS)[:n])
            for n, block in dims
        )

    @property
    def grouped(self) -> bool:
        """Whether every dim has a table of its own."""
        return self._dims is not None

    def tables(self, dims: Sequence[int]) -> tuple[Ints, Ints]:
        """Device and address that these dims add, over their index, row-major.

        Raises:
            ScheduleError: too many of them, see `check_entries`.
        """
        if self._dims is not None:
            check_entries(self.layout, prod(self.shape[d] for d in dims))
            device = outer([self._dims[d][0] for d in dims]).reshape(-1)
            return device, outer([self._dims[d][1] for d in dims]).reshape(-1)
        assert tuple(dims) == tuple(range(len(self.shape))), "a whole layout is one group"
        check_entries(self.layout, self.layout.size)
        found = self.layout.linear_table(self.axis), self.layout.linear_table(DEFAULT_AXIS)
        return found[0] - self.base[0], found[1] - self.base[1]

    @cached_property
    def base(self) -> tuple[int, int]:
        """Device and address of every element besides its tables."""
        offset = self.layout.offset
        return offset.get(self.axis, 0), offset.get(DEFAULT_AXIS, 0)

    @cached_property
    def copies(self) -> Ints:
        """Displacements of the devices that hold copies, ascending."""
        return self.layout.replica_table(self.axis)

    @cached_property
    def local_copies(self) -> Ints:
        """Displacements of copies in one device's memory."""
        return self.layout.replica_table(DEFAULT_AXIS)

    @cached_property
    def bases(self) -> Ints:
        """Devices that hold an element's first copy, ascending."""
        every = tuple(range(len(self.shape)))
        groups = [(d,) for d in every] if self.grouped else [every]
        parts = [np.unique(self.tables(g)[0]) for g in groups]
        return np.unique(outer(parts, self.base[0]))

    @cached_property
    def devices(self) -> Ints:
        """All devices that hold something, ascending."""
        return np.unique(np.add.outer(self.bases, self.copies))

    @cached_property
    def n_elements(self) -> int:
        """Elements of memory that one device needs, from address 0, padding included."""
        whole = Layout(
            self.layout.shard, self.layout.replica, self.layout.offset, self.layout.swizzle
        )
        return whole.range(DEFAULT_AXIS)[1] + 1 + max(self.begins, default=0)

    def placed(self, sums: Ints) -> Ints:
        """Addresses, given the sums of what groups add and a displacement of copies."""
        return self.layout.swizzled(DEFAULT_AXIS, sums + self.base[1])

    @cached_property
    def _bases(self) -> Ints:
        """The device of every element's first copy, as the value's shape."""
        return self._whole(0) + self.base[0]

    def _whole(self, which: int) -> Ints:
        every = tuple(range(len(self.shape)))
        check_entries(self.layout, prod(self.shape))
        if self.grouped:
            return outer([self.tables((d,))[which] for d in every]).reshape(self.shape)
        return self.tables(every)[which].reshape(self.shape)

    def held_by(self, device: int) -> NDArray[np.bool_]:
        """Which elements a device holds, as the value's shape."""
        return np.isin(self._bases, device - self.copies)

    def held(self, device: int) -> Iterator[tuple[Any, NDArray[np.bool_], Ints]]:
        """What a device holds of a value, slab by slab of its first dim.

        Yields:
            The index of the slab, which of its elements are held, and the sums of what the groups
            add to their addresses, see `placed`.
        """
        if not self.grouped or prod(self.shape) <= MOST_ENTRIES:
            mine = self.held_by(device)
            yield ..., mine, self._whole(1)[mine]
            return
        holders = device - self.copies - self.base[0]
        check_entries(self.layout, per_row := prod(self.shape[1:]))
        tables = [self.tables((d,)) for d in range(len(self.shape))]
        rows = max(1, SLAB_ENTRIES // per_row)
        for begin in range(0, self.shape[0], rows):
            slab = slice(begin, begin + rows)
            devices, sums = (
                outer([tables[0][which][slab], *(t[which] for t in tables[1:])]) for which in (0, 1)
            )
            mine = np.isin(devices, holders)
            yield slab, mine, sums[mine]

    def scatter(self, value: NDArray[np.generic], device: int) -> NDArray[np.generic]:
        """A device's flat memory with its part of a value; what is no element is 0."""
        flat = np.zeros(self.n_elements, value.dtype)
        for slab, mine, sums in self.held(device):
            for copy in self.local_copies.tolist():
                flat[self.placed(sums + copy)] = value[slab][mine]
        return flat

    def gives(self, flat: NDArray[np.generic], value: NDArray[np.generic], device: int) -> bool:
        """Whether a device's flat memory holds all of its part, NaN to NaN.

        It may not where the layout has several elements at one place, and they differ.
        """
        return not may_alias(str(self.layout)) or all(
            same(flat[self.placed(sums + copy)], value[slab][mine])
            for slab, mine, sums in self.held(device)
            for copy in self.local_copies.tolist()
        )


@lru_cache(maxsize=1024)
def side(layout: str, shape: tuple[int, ...], axis: str, begins: tuple[int, ...] = ()) -> Side:
    """The side of a layout's text; remembered, with its tables."""
    return Side(Layout.parse(layout), shape, axis, None, begins)
