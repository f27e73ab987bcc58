"""Flat memory seen through a layout: every read and write of a step goes through one of these.

An address is the coordinate of an element on the memory's axis ``m``. Where every dim has one
stride the buffer is viewed in place; otherwise addresses come from a table per dim (a layout that
groups by the shape), or from one table of all elements, and then through the swizzles.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axe_eq.errors import LayoutError, ScheduleError
from axe_eq.layout import Layout, Swizzle
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.program.types import Array
from axe_eq.schedule.box import Range

Addresses = NDArray[np.int64]


@lru_cache(maxsize=4096)
def parse_layout(text: str) -> Layout:
    """The layout of an axe text, in memory of the one axis ``m``.

    Raises:
        ScheduleError: it needs another axis, or addresses below 0.
    """
    layout = Layout.parse(text)
    others = [axis for axis in layout.axes if axis != DEFAULT_AXIS]
    if others:
        raise ScheduleError(
            f"layout {text}", f"lies on axis {' '.join(others)}", "the axis m of flat memory"
        )
    low, _ = layout.range(DEFAULT_AXIS)
    if low < 0:
        raise ScheduleError(f"layout {text}", f"reaches address {low}", "addresses from 0")
    return layout


@dataclass(frozen=True, eq=False)
class Addressing:
    """Where the elements of a value lie.

    Attributes:
        shape: of the value.
        last: the highest address.
        offset: address of element 0, before swizzles.
        strides: per dim, where every dim has one and nothing is swizzled; else None.
        tables: addresses per dim that add up, or one table of all elements; empty with strides.
        copies: displacements of an element's copies, the first is 0.
        swizzles: applied to the sum, the last one first.
    """

    shape: tuple[int, ...]
    last: int
    offset: int
    strides: tuple[int, ...] | None
    tables: tuple[Addresses, ...]
    copies: tuple[int, ...]
    swizzles: tuple[Swizzle, ...]

    def addresses(self, region: tuple[slice, ...]) -> Addresses:
        """Addresses of a region's first copies, before displacement and swizzles."""
        if len(self.tables) == len(self.shape):
            parts = [table[cut] for table, cut in zip(self.tables, region, strict=True)]
            return reduce(np.add.outer, parts, np.array(self.offset))
        found: Addresses = self.offset + self.tables[0][region]
        return found

    def swizzled(self, addresses: Addresses) -> Addresses:
        """The addresses after the swizzles."""
        for swizzle in reversed(self.swizzles):
            addresses = swizzle.apply(addresses)
        return addresses


@lru_cache(maxsize=4096)
def addressing(text: str, shape: tuple[int, ...]) -> Addressing:
    """The addressing of a value of this shape, its row-major index mapped by the layout.

    Raises:
        ScheduleError: sizes differ, or the layout is not one of flat memory.
    """
    layout = parse_layout(text)
    if layout.size != math.prod(shape):
        raise ScheduleError(
            f"layout {text}", f"holds {layout.size} elements", f"{math.prod(shape)}, of {shape}"
        )
    straight = Layout(layout.shard, (), {}, (), *layout.boxes)
    strides, tables = _dims(straight, shape)
    if layout.swizzle and strides is not None:
        tables = tuple(np.arange(n) * s for n, s in zip(shape, strides, strict=True))
        strides = None
    displacements = set(layout.replica_table(DEFAULT_AXIS).tolist())
    return Addressing(
        shape,
        layout.range(DEFAULT_AXIS)[1],
        layout.offset.get(DEFAULT_AXIS, 0),
        strides,
        tables,
        (0, *sorted(displacements - {0})),
        layout.swizzle,
    )


def _dims(
    layout: Layout, shape: tuple[int, ...]
) -> tuple[tuple[int, ...] | None, tuple[Addresses, ...]]:
    """Strides where every dim has one; else tables."""
    try:
        blocks = layout.strided(shape)
    except LayoutError:
        return None, (layout.table(DEFAULT_AXIS).reshape(shape),)
    if all(len(block) <= 1 for block in blocks):
        return tuple(block[0][1] if block else 0 for block in blocks), ()
    return None, tuple(_table(b)[:n] for b, n in zip(blocks, shape, strict=True))


def _table(block: Sequence[tuple[int, int]]) -> Addresses:
    steps = (np.arange(extent, dtype=np.int64) * stride for extent, stride in block)
    return reduce(lambda a, b: np.add.outer(a, b).reshape(-1), steps, np.zeros(1, np.int64))


def cut(array: Array, slices: Sequence[Any]) -> Array:
    """The region of an array, an array too where it has no dims."""
    part: Array = array[(*slices, ...)]
    return part


def restrided(flat: Array, begin: int, shape: Sequence[int], strides: Sequence[int]) -> Array:
    """A flat buffer as an array of this shape, at strides in elements."""
    item = flat.itemsize
    # Unlike as_strided this checks the bounds, and knows the 8-bit floats.
    return np.ndarray(shape, flat.dtype, flat, begin * item, [s * item for s in strides])


class View:
    """A flat buffer seen as a value through a layout.

    Args:
        place: what errors name, such as "step k0, buffer 'x'".
        flat: the buffer, one-dimensional.
        layout: axe text.
        shape: of the value.

    Raises:
        ScheduleError: the layout does not fit the shape, or leaves the buffer.
    """

    def __init__(self, place: str, flat: Array, layout: str, shape: tuple[int, ...]) -> None:
        try:
            self.where = addressing(layout, shape)
        except ScheduleError as error:
            error.thing = f"{place}, {error.thing}"
            raise
        if self.where.last >= len(flat):
            raise ScheduleError(
                f"{place}, layout {layout}",
                f"reaches address {self.where.last}",
                f"addresses below {len(flat)}, the buffer's",
            )
        self.flat = flat
        self._copies = [self._strided(c) for c in self.where.copies] if self._in_place else []

    @property
    def _in_place(self) -> bool:
        return self.where.strides is not None

    def _strided(self, displacement: int) -> Array:
        assert self.where.strides is not None
        begin = self.where.offset + displacement
        return restrided(self.flat, begin, self.where.shape, self.where.strides)

    def read(self, ranges: Sequence[Range]) -> Array:
        """The elements of a region; a view of the buffer where strides allow."""
        region = tuple(slice(r.begin, r.end) for r in ranges)
        if self._copies:
            return cut(self._copies[0], region)
        return np.asarray(self.flat[self.where.swizzled(self.where.addresses(region))])

    def write(self, ranges: Sequence[Range], values: Array) -> None:
        """Store a region, all its copies, rounded to the buffer's dtype."""
        region = tuple(slice(r.begin, r.end) for r in ranges)
        rounded = values.astype(self.flat.dtype, copy=False)
        for copy in self._copies:
            cut(copy, region)[...] = rounded
        if not self._copies:
            addresses = self.where.addresses(region)
            for displacement in self.where.copies:
                self.flat[self.where.swizzled(addresses + displacement)] = rounded

    def holds(self, values: Array) -> bool:
        """Whether every element is there: where elements share an address they must be one."""
        there = np.ascontiguousarray(self.read(self.everything))
        return there.tobytes() == np.ascontiguousarray(values).tobytes()

    @property
    def everything(self) -> tuple[Range, ...]:
        """The region of the whole value."""
        return tuple(Range(0, extent) for extent in self.where.shape)


class Coverage:
    """Counts the stores to every address of a view, to see that each happens exactly once."""

    def __init__(self, place: str, view: View, layout: str) -> None:
        self.place = place
        self.counts = np.zeros(len(view.flat), np.uint8)
        self.view = View(place, self.counts, layout, view.where.shape)

    def add(self, ranges: Sequence[Range]) -> None:
        """A region is stored."""
        self.view.write(ranges, self.view.read(ranges) + np.uint8(1))

    def check(self) -> None:
        """Raise ScheduleError unless every element was stored once, to an address of its own."""
        wanted = math.prod(self.view.where.shape) * len(self.view.where.copies)
        covered = np.count_nonzero(self.counts)
        most = int(self.counts.max(initial=0))
        if covered != wanted or most != 1:
            raise ScheduleError(
                self.place,
                f"stores to {covered} addresses, up to {most} times each",
                f"{wanted} addresses, once each",
            )
