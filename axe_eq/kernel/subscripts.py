"""Indices of buffers and views: numbers, slices, and spans from run-time positions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from axe_eq.errors import LayoutError
from axe_eq.kernel import given
from axe_eq.kernel.expr import Int, bounds
from axe_eq.kernel.placement import number
from axe_eq.kernel.userline import user_line

if TYPE_CHECKING:
    from axe_eq.kernel.ir import Buffer


@dataclass(frozen=True)
class span:
    """`extent` elements from a run-time `begin`, as an index of a buffer or view."""

    begin: Int
    extent: int


Subscript = int | slice | span | Int


def part(buffer: Buffer, dim: int, index: Subscript, extent: Int) -> tuple[Int, int, bool]:
    """(begin, extent, kept) of one index of a buffer's dim.

    Raises:
        LayoutError: it lies outside, or takes steps.
    """
    thing, kept, size = f"buffer {buffer.name}", True, 1
    at = partial(given.position, thing, dim, extent, buffer.is_global)
    if isinstance(index, span):
        begin = given.integer(thing, "begin", index.begin)
        size = given.whole(thing, "extent", index.extent)
    elif isinstance(index, slice):
        if index.step not in (None, 1):
            raise LayoutError(thing, f"step {index.step}", "contiguous slices", at=user_line())
        begin = 0 if index.start is None else at("begin", index.start)
        end = extent if index.stop is None else at("end", index.stop)
        with given.at_user_line():
            size = number(end - begin)
    else:
        begin, kept = at("index", index), False
    low, high = bounds(begin)
    before = (high is not None and high < 0) or (low is not None and low < 0)
    outside = size < 1 or (before and not buffer.is_global)  # arguments are masked
    fixed = isinstance(extent, int) and not buffer.is_global and low is not None
    if outside or (fixed and number(low or 0) + size > number(extent)):
        wrong = f"part of {size} from {begin} of dim {dim}"
        raise LayoutError(thing, wrong, f"inside {extent}", at=user_line())
    return begin, size, kept
