"""What operations on layouts report besides layouts."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from axe_eq.layout.value.iters import Iters

if TYPE_CHECKING:
    from axe_eq.layout.value.layout import Layout

Coordinate = tuple[tuple[str, int], ...]
Image = frozenset[Coordinate]


class Grouped(NamedTuple):
    """A layout cut at the boundaries of a shape: `blocks[i]` holds the iters of dim i."""

    layout: Layout
    blocks: tuple[Iters, ...]


class Clash(NamedTuple):
    """Two elements on one coordinate: y is the least that meets an earlier one, which is x.

    Of the coordinates that they share it is the least on every axis, before swizzles.
    """

    x: int
    y: int
    coordinate: Coordinate


class Aliasing(NamedTuple):
    """Whether a layout is one to one, and if not its first clash."""

    injective: bool
    clash: Clash | None
