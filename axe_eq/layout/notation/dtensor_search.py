"""Placements from where a layout puts the values of each tensor dim.

What digits do not tell is searched: uneven chunks, mesh dims of which only the first devices hold
values, pieces of which the last one is short. A mesh dim either has copies, or the coordinate along
it changes along one tensor dim, or it is 0 everywhere. For a changing coordinate the split factor
is tried, in the order of the mesh; only factors that change the size of a piece differ.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from axe_eq.layout.normal.tables import point_table
from axe_eq.layout.value import iters as it
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.layout.value.layout import Layout
from axe_eq.layout.value.mesh import Mesh

Values = NDArray[np.int64]
Placement = tuple[int, int] | None
"""Tensor dim and split factor; None for copies."""

MAX_LINE = 1 << 16
"""Most values of one tensor dim that are looked at."""


class Line(NamedTuple):
    """A tensor dim: the devices and the places in them of its values while other dims are 0."""

    device: Values
    local: Values


def find_placements(layout: Layout, shape: Sequence[int], mesh: Mesh) -> list[Placement] | None:
    """One placement per mesh dim, a proposal; None where none fits the layout's tensor dims."""
    told = lines_of(layout, shape, mesh)
    if told is None:
        return None
    lines, copied = told
    found: dict[str, Placement] = dict.fromkeys(copied)
    for dim, line in enumerate(lines):
        names = [name for name in mesh.axes if np.ptp(coordinate(line.device, mesh, name))]
        if found.keys() & set(names):
            return None
        factors = next(_factors(line, mesh, names, {0: np.arange(len(line.device))}), None)
        if factors is None:
            return None
        found |= {name: (dim, factor) for name, factor in zip(names, factors, strict=True)}
    for name, extent in mesh.shape.items():
        if name not in found and extent > 1:  # only its first devices hold values
            if not shape:
                return None
            dim = min(range(len(shape)), key=lambda dim: shape[dim])
            found[name] = dim, shape[dim]  # pieces of one value
    return [found.get(name) for name in mesh.shape]


def lines_of(
    layout: Layout, shape: Sequence[int], mesh: Mesh
) -> tuple[list[Line], set[str]] | None:
    """Every tensor dim, and the mesh dims of the copies; None where none fit the tensor or mesh."""
    most = max(shape, default=1) * (it.size(layout.replica) if layout.swizzle else 1)
    if prod(shape) != layout.size or most > MAX_LINE:
        return None
    lines = [_line(layout, shape, dim, mesh.axis) for dim in range(len(shape))]
    copied = _copied(layout, mesh)
    if copied is None or any(int(line.device.min()) < 0 for line in lines):
        return None
    return lines, copied


def _line(layout: Layout, shape: Sequence[int], dim: int, axis: str) -> Line:
    index = np.arange(shape[dim]) * prod(shape[dim + 1 :])
    if layout.swizzle:  # the copy on the first devices
        points = point_table(layout, index, (axis, DEFAULT_AXIS)).min(axis=1)
        return Line(points[:, 0], points[:, 1])
    zero = np.zeros(len(index), dtype=np.int64)
    values = layout.coordinates(index)
    return Line(values.get(axis, zero) + zero, values.get(DEFAULT_AXIS, zero) + zero)


def coordinate(devices: Values, mesh: Mesh, name: str) -> Values:
    """Where devices are along a mesh dim."""
    extent, stride = mesh.axes[name]
    return devices // stride % extent


def _copied(layout: Layout, mesh: Mesh) -> set[str] | None:
    """The mesh dims over whose devices the copies run, all of them; None for other copies."""
    copies = layout.replica_table(mesh.axis)
    if layout.swizzle:
        first = point_table(layout, np.zeros(1, dtype=np.int64), (mesh.axis,))
        copies = np.unique(first)
    names = {name for name in mesh.shape if np.ptp(coordinate(copies, mesh, name))}
    whole = prod(mesh.shape[name] for name in names)
    fits = copies[0] == 0 and copies[-1] < mesh.size and len(copies) == whole
    return names if fits else None


def _factors(
    line: Line, mesh: Mesh, names: Sequence[str], held: dict[int, Values]
) -> Iterator[tuple[int, ...]]:
    """Split factors with which the placements put every value of a dim where the layout does.

    Args:
        line: the dim.
        mesh: the devices.
        names: the mesh dims of the placements that are left.
        held: device -> its values after those before.
    """
    if not names:
        if all(_is_dense(line.local[values]) for values in held.values()):
            yield ()
        return
    count, stride = mesh.axes[names[0]]
    wanted = coordinate(line.device, mesh, names[0])
    sizes = {len(values) for values in held.values()}
    for factor in sorted({factor for size in sizes for factor in _breaks(size)}):
        owner = {size: _owner(size, count, factor) for size in sizes}
        if all((owner[len(values)] == wanted[values]).all() for values in held.values()):
            given = {
                device + place * stride: values[wanted[values] == place]
                for device, values in held.items()
                for place in np.unique(wanted[values]).tolist()
            }
            for rest in _factors(line, mesh, names[1:], given):
                yield factor, *rest


def _is_dense(local: Values) -> bool:
    """Whether values lie in order, one step apart; which step is seen later."""
    steps = np.diff(local)
    return local[0] == 0 and (len(steps) == 0 or bool((steps == steps[0]).all() and steps[0] > 0))


def _breaks(size: int) -> Iterator[int]:
    """The least factor for every size of a piece that `size` values can be cut into."""
    factor = 1
    while True:
        yield factor
        piece = -(-size // factor)
        if piece <= 1:
            return
        factor = -(-size // (piece - 1))


def _owner(size: int, count: int, factor: int) -> Values:
    """Which of `count` chunks each of `size` values is in, `factor` pieces being cut first."""
    whole = -(-size // factor)
    piece, place = np.divmod(np.arange(size), whole)
    chunk = -(-np.minimum(whole, size - piece * whole) // count)
    owner: Values = place // chunk
    return owner
