"""Windows over a dim: what every device must have of a value to compute its part of another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

import numpy as np

from axe_eq.errors import ArgumentError, LayoutError
from axe_eq.layout import Layout
from axe_eq.mesh.pieces import Group, Piece, through
from axe_eq.mesh.sides import Ints, Side, outer


@dataclass(frozen=True)
class Window:
    """Window i of `count` reads elements ``i * stride - before`` .. ``+ size``, if they exist."""

    count: int
    size: int
    stride: int = 1
    before: int = 0


def windowed_shape(shape: tuple[int, ...], windows: Mapping[int, Window]) -> tuple[int, ...]:
    """Shape of what windows of a value of this shape make: that of the goal's layout.

    Raises:
        ArgumentError: no such dim, or a window of no element.
    """
    for dim, window in windows.items():
        if not 0 <= dim < len(shape):
            raise ArgumentError(f"windows={windows!r}", f"names dim {dim}", f"dims of {shape}")
        if min(window.count, window.size, window.stride) < 1 or window.before < 0:
            raise ArgumentError(f"window {window} of dim {dim}", "reads nothing", "figures from 1")
    return tuple(windows[d].count if d in windows else n for d, n in enumerate(shape))


def windowed(
    layout: Layout, axis: str, pieces: Sequence[Piece], windows: Mapping[int, Window]
) -> tuple[Side, tuple[Piece, ...]]:
    """The side of the elements that devices need, and what these read.

    Every device holds them dense and row-major, in the extents of the device that needs most.

    Args:
        layout: of what the windows make.
        axis: the device axis.
        pieces: what the value that the windows read is made of.
        windows: dim -> window.

    Raises:
        LayoutError: the layout cuts within dims.
    """
    shape = pieces[0].shape
    out = Side(layout, windowed_shape(shape, windows), axis)
    if not out.grouped:
        raise LayoutError(f"layout {layout}", "cuts within dims", "one that groups by the shape")
    wanted = []
    for d, extent in enumerate(shape):
        device = out.tables((d,))[0]
        window = windows.get(d, Window(extent, 1))
        wanted.append(_wanted(device, extent, window))
    local = [int(place.max()) + 1 for _, _, place in wanted]
    own = tuple(
        (device, place * prod(local[d + 1 :])) for d, (_, device, place) in enumerate(wanted)
    )
    offset = {a: n for a, n in layout.offset.items() if a == axis}
    replica = [r for r in layout.replica if r[2] == axis]
    whole = Layout([(prod(local), 1, "m")], replica, offset)
    entries = tuple(len(element) for element, _, _ in wanted)
    side = Side(whole, entries, axis, own)
    groups = tuple(
        Group((d,), (d,), np.arange(len(e), dtype=np.int64), e)
        for d, (e, _, _) in enumerate(wanted)
    )
    reads = Piece(0, groups, entries, shape)
    made = tuple(p for p in (through(reads, piece) for piece in pieces) if p is not None)
    return side, made


def _wanted(device: Ints, extent: int, window: Window) -> tuple[Ints, Ints, Ints]:
    """Elements that are needed, by which devices, and their places in these devices' parts."""
    start = np.arange(window.count, dtype=np.int64) * window.stride - window.before
    element = outer([start, np.arange(window.size, dtype=np.int64)]).reshape(-1)
    needs = np.repeat(device, window.size)
    inside = (element >= 0) & (element < extent)
    pairs = np.unique(np.stack([needs[inside], element[inside]], 1), axis=0)
    first = np.searchsorted(pairs[:, 0], pairs[:, 0], side="left")
    place = np.arange(len(pairs)) - first
    return pairs[:, 1], pairs[:, 0], place
