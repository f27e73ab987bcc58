"""Placements from the devices that have the values of each tensor dim.

A mesh dim either has copies, or the coordinate along it changes along one tensor dim, or it is 0
everywhere, where only its first devices hold values. A coordinate counts chunks and begins anew
with every piece, which tells the size of a piece. Only factors that change the size of a piece of
some device's values differ, so few are tried, in the order of the mesh.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

import numpy as np

from axe_eq.layout.notation.blocks import (
    Table,
    coordinate,
    copied_dims,
    devices_of,
    moved_dims,
    still_dims,
    without_copies,
)
from axe_eq.layout.value.layout import Layout
from axe_eq.layout.value.mesh import Mesh

Placement = tuple[int, int] | None
"""Tensor dim and split factor; None for copies."""

MAX_LINE = 1 << 22
"""Most values of one tensor dim that are looked at."""


def find_placements(layout: Layout, shape: Sequence[int], mesh: Mesh) -> list[Placement] | None:
    """One placement per mesh dim, a proposal; None where none fits the layout's tensor dims."""
    copied = copied_dims(devices_of(layout, np.zeros(1, dtype=np.int64), mesh.axis)[0], mesh)
    lines = [_line(layout, shape, dim, mesh) for dim in range(len(shape))]
    if copied is None:
        return None
    found: dict[str, Placement] = dict.fromkeys(copied)
    moved = [moved_dims(line, mesh) for line in lines]
    if still := still_dims([copied, *moved], mesh):
        if not shape:
            return None
        moved[min(range(len(shape)), key=lambda dim: shape[dim])] += still
    for dim, line in enumerate(lines):
        names = [name for name in mesh.axes if name in moved[dim]]
        factors = next(_factors(line, mesh, names, {0: np.arange(len(line))}), None)
        if factors is None or found.keys() & set(names):
            return None
        found |= {name: (dim, factor) for name, factor in zip(names, factors, strict=True)}
    return [found.get(name) for name in mesh.shape]


def _line(layout: Layout, shape: Sequence[int], dim: int, mesh: Mesh) -> Table:
    """The first device of each value of a dim while other dims are 0.

    Of dims too long for that, of every part that the mesh cuts.
    """
    step = max(1, shape[dim] // mesh.size) if shape[dim] > MAX_LINE else 1
    index = np.arange(0, shape[dim], step) * prod(shape[dim + 1 :])
    line: Table = devices_of(without_copies(layout), index, mesh.axis).min(axis=1)
    return line


def _factors(
    line: Table, mesh: Mesh, names: Sequence[str], held: dict[int, Table]
) -> Iterator[tuple[int, ...]]:
    """Split factors with which the placements give every value of a dim to its device.

    Args:
        line: the devices of the dim's values.
        mesh: the devices.
        names: the mesh dims of the placements that are left.
        held: device -> its values after those before.
    """
    if not names:
        yield ()
        return
    count, stride = mesh.axes[names[0]]
    wanted = coordinate(line, mesh, names[0])
    most = max(held.values(), key=len)
    piece = _piece(wanted[most])
    sizes = {len(values) for values in held.values()}
    for factor in sorted({factor for size in sizes for factor in _breaks(size)}):
        if -(-len(most) // factor) != piece:
            continue
        owner = {size: _owner(size, count, factor) for size in sizes}
        if all((owner[len(values)] == wanted[values]).all() for values in held.values()):
            given = {
                device + place * stride: values[wanted[values] == place]
                for device, values in held.items()
                for place in np.unique(wanted[values]).tolist()
            }
            for rest in _factors(line, mesh, names[1:], given):
                yield factor, *rest


def _piece(chunks: Table) -> int:
    """How many values the first piece has, of whose values these are the chunks' numbers."""
    again = np.flatnonzero(np.diff(chunks) < 0)
    if len(again):
        return int(again[0]) + 1
    return len(chunks) if chunks.any() else 1  # of more values, some would be in other chunks


def _breaks(size: int) -> Iterator[int]:
    """The least factor for every size of a piece that `size` values can be cut into."""
    factor = 1
    while True:
        yield factor
        piece = -(-size // factor)
        if piece <= 1:
            return
        factor = -(-size // (piece - 1))


def _owner(size: int, count: int, factor: int) -> Table:
    """Which of `count` chunks each of `size` values is in, `factor` pieces being cut first."""
    whole = -(-size // factor)
    piece, place = np.divmod(np.arange(size), whole)
    chunk = -(-np.minimum(whole, size - piece * whole) // count)
    owner: Table = place // chunk
    return owner
