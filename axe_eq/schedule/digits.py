"""Where a value lies in strided memory, whose dims it may have in several digits."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod

from axe_eq.errors import ScheduleError
from axe_eq.layout import Layout
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.schedule.graph import BufferSpec


@dataclass(frozen=True)
class Digits:
    """A value in strided memory, of whose dims each may be several of the memory.

    Attributes:
        counts: per dim of the value so many digits, each with a stride of its own.
        shape, strides: of all digits, strides in elements.
        offset: the first element's address.
    """

    counts: tuple[int, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @property
    def splits(self) -> list[tuple[int, tuple[int, ...]]]:
        """Dims that are several digits, last ones first, and the extents of their inner ones."""
        found, at = [], 0
        for dim, n in enumerate(self.counts):
            found += [(dim, self.shape[at + 1 : at + n])] if n > 1 else []
            at += n
        return found[::-1]

    @property
    def layout(self) -> Layout:
        """Of the digits, from address 0."""
        return Layout(list(zip(self.shape, self.strides, strict=True))).canonical()

    @property
    def is_dense(self) -> bool:
        """Whether its elements lie behind each other, row-major."""
        return self.layout == Layout([(prod(self.shape), 1)]).canonical()


@lru_cache(maxsize=4096)
def digits(buffer: BufferSpec) -> Digits:
    """Where a buffer's value lies; on a mesh, a rank's part of it.

    Raises:
        ScheduleError: no strides say it.
    """
    layout, type_ = Layout.parse(buffer.layout), buffer.value_type
    counts: list[int] = []
    iters: list[tuple[int, int]] = []
    if layout.swizzle or layout.inner or layout.box is not None:
        raise ScheduleError(f"buffer {buffer.name!r}", f"lies in {layout}", "strides of memory")
    for _, block in layout.group_dims(type_.shape):
        own: list[tuple[int, int]] = []
        for extent, stride, axis in block:
            if axis != DEFAULT_AXIS or extent == 1:
                continue
            if own and own[-1][1] == extent * stride:
                own[-1] = own[-1][0] * extent, stride
            else:
                own.append((extent, stride))
        own = own or [(1, 1)]
        counts.append(len(own))
        iters += own
    shape, strides = zip(*iters, strict=True)
    return Digits(tuple(counts), shape, strides, layout.offset.get(DEFAULT_AXIS, 0))
