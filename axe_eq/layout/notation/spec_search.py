"""Which mesh dims shard each tensor dim, from where a layout puts the values of each.

The digits of a layout tell it only where no dim is padded: a canonical form is cut to the values
that there are. A mesh dim along which a tensor dim moves shards that one; its place among the names
is tried, and so is where mesh dims belong of which only the first devices hold values.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations, islice, permutations
from math import prod

import numpy as np

from axe_eq.layout.notation.dtensor_search import Line, coordinate, lines_of
from axe_eq.layout.value.layout import Layout
from axe_eq.layout.value.mesh import Mesh

Names = tuple[str, ...]

MAX_TRIES = 2**12


def find_names(layout: Layout, shape: Sequence[int], mesh: Mesh) -> list[Names] | None:
    """The mesh dims of each tensor dim, slowest first, a proposal; None where none fit.

    Args:
        layout: with the replicas of its canonical form.
        shape: the tensor dims.
        mesh: the devices.
    """
    told = lines_of(layout, shape, mesh)
    if told is None:
        return None
    lines, copied = told
    moved = [[n for n in mesh.axes if np.ptp(coordinate(x.device, mesh, n))] for x in lines]
    named = [name for names in moved for name in names]
    if len({*named, *copied}) < len(named) + len(copied):
        return None
    still = [n for n, extent in mesh.shape.items() if extent > 1 and n not in {*named, *copied}]
    return next(_assigned(lines, moved, still, mesh), None)


def _assigned(
    lines: Sequence[Line], moved: Sequence[Sequence[str]], still: Sequence[str], mesh: Mesh
) -> Iterator[list[Names]]:
    """The names per dim that put every value where its line does, `still` among them."""
    if not lines:
        if not still:
            yield []
        return
    for names in _orders(moved[0], still):
        if _fits(lines[0], names, mesh):
            left = [name for name in still if name not in names]
            yield from ([names, *rest] for rest in _assigned(lines[1:], moved[1:], left, mesh))


def _orders(moved: Sequence[str], still: Sequence[str]) -> Iterator[Names]:
    """Orders of the names of a dim, with the fewest of the others."""
    orders = (
        names
        for count in range(len(still) + 1)
        for others in combinations(still, count)
        for names in permutations((*moved, *others))
    )
    return islice(orders, MAX_TRIES)


def _fits(line: Line, names: Names, mesh: Mesh) -> bool:
    """Whether equal blocks over these mesh dims are where the line says."""
    extent = len(line.device)
    index = np.arange(extent)
    size = -(-extent // prod(mesh.shape[name] for name in names))
    step = line.local[1] if size > 1 else 0
    if not np.array_equal(line.local, index % size * step):
        return False
    block = index // size
    for name in reversed(names):
        block, wanted = np.divmod(block, mesh.shape[name])
        if not np.array_equal(coordinate(line.device, mesh, name), wanted):
            return False
    return True
