"""Blocks of a tensor on devices, as a layout puts them, and what numbers them.

A sharding gives every device one block, of ``ceil(extent / tiles)`` elements per dim. Which device
has which block is read off a layout at the first element of each block; whether the rest of a block
lies as a sharding has it is for the writer to confirm.

Two things can number blocks: mesh dims, each all of it, and the tile assignments of XLA. XLA
accepts a tile assignment for a program where it names every device once. More tiles than there are
blocks leave the last devices without any element; a layout says nothing of such devices, and their
order is free.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import combinations, islice, permutations
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from axe_eq.layout.normal.tables import point_table
from axe_eq.layout.notation.common import settled
from axe_eq.layout.notation.text import refuse
from axe_eq.layout.value import iters as it
from axe_eq.layout.value.layout import Layout, make
from axe_eq.layout.value.mesh import Mesh

MAX_DEVICES = 1 << 20

MAX_COUNTS = 4096
"""Most numbers of devices that are tried where none is given."""

MAX_TRIES = 2**12
"""Most orders of mesh dims that are tried for one tensor dim."""

Table = NDArray[np.int64]
Names = tuple[str, ...]


class Blocks(NamedTuple):
    """The blocks of a tensor that lie on one device each.

    Args:
        shape: the tensor's extents.
        sizes: the block's extent per dim.
        devices: the devices of each block, ``[blocks per dim..., copies]``.
    """

    shape: tuple[int, ...]
    sizes: tuple[int, ...]
    devices: Table

    def along(self, dim: int) -> Table:
        """The first device of each block along one dim, the others at 0."""
        line: Table = np.moveaxis(self.devices, dim, 0)
        return line.reshape(len(line), -1)[:, 0]


def find_blocks(layout: Layout, shape: tuple[int, ...], axis: str) -> Blocks:
    """The blocks of equal size whose devices a layout tells.

    Args:
        layout: of as many elements as the shape has.
        shape: the tensor's extents.
        axis: that of device ids.

    Raises:
        NotationError: two blocks share a device, a device is negative, or there are too many.
    """
    layout = settled(layout)
    copies = it.size(tuple(item for item in layout.replica if item[2] == axis))
    if copies > MAX_DEVICES:
        refuse(f"copies on {copies} devices", f"at most {MAX_DEVICES}")
    pitch = [prod(shape[dim + 1 :]) for dim in range(len(shape))]
    single = without_copies(layout)
    sizes = [_size(single, axis, n, step) for n, step in zip(shape, pitch, strict=True)]
    counts = [-(-extent // size) for extent, size in zip(shape, sizes, strict=True)]
    if prod(counts) * copies > MAX_DEVICES:
        wrong = f"blocks on {prod(counts) * copies} devices"
        refuse(wrong, f"at most {MAX_DEVICES}")
    index = np.zeros(1, dtype=np.int64)
    for count, size, step in zip(counts, sizes, pitch, strict=True):
        index = np.add.outer(index, np.arange(count) * (size * step)).reshape(-1)
    table = devices_of(layout, index, axis)
    if table.min() < 0:
        refuse(f"device {table.min()}", "0 or more")
    if len(np.unique(table)) < table.size:
        refuse("blocks are dealt out in turns", "one block per device")
    return Blocks(shape, tuple(sizes), table.reshape(*counts, copies))


def devices_of(layout: Layout, index: Table, axis: str) -> Table:
    """The devices of some elements, ``[element, copy]``, in ascending order."""
    return point_table(layout, index, (axis,))[:, :, 0]


def without_copies(layout: Layout) -> Layout:
    """One copy of every element, where copies are as far apart everywhere; else the layout."""
    return layout if layout.swizzle else make(layout.shard, (), layout.offsets, (), *layout.boxes)


def _size(layout: Layout, axis: str, extent: int, step: int) -> int:
    """How many values of a dim lie where its first one does.

    Devices have one block each, so once another one has a value, the first one has no more.
    """
    first = devices_of(layout, np.zeros(1, dtype=np.int64), axis)

    def is_elsewhere(place: int) -> bool:
        found = devices_of(layout, np.array([place * step]), axis)
        return not np.array_equal(found, first)

    return bisect_left(range(extent), True, key=is_elsewhere)


# ---- mesh dims ----------------------------------------------------------------------------------


def find_names(layout: Layout, shape: tuple[int, ...], mesh: Mesh) -> list[Names]:
    """The mesh dims of each tensor dim, slowest first.

    A mesh dim along which blocks of a tensor dim move shards that one; the slower it is, the later
    it moves. Where mesh dims belong of which only the first devices hold values is tried.

    Raises:
        NotationError: as `find_blocks`, or no whole mesh dims number these blocks.
    """
    blocks = find_blocks(layout, shape, mesh.axis)
    copies = blocks.devices.reshape(-1, blocks.devices.shape[-1])[0]
    copied = copied_dims(copies, mesh)
    if copied is None:
        wrong = f"the first element on devices {shown(copies)}"
        refuse(wrong, f"0 and its copies along whole dims of {mesh}")
    lines = [blocks.along(dim) for dim in range(len(shape))]
    moved = [moved_dims(line, mesh) for line in lines]
    tiles = list(zip(lines, shape, blocks.sizes, strict=True))
    found = next(_assigned(tiles, moved, still_dims([copied, *moved], mesh), mesh), None)
    if found is None:
        refuse("blocks over parts of mesh dims", f"whole dims of {mesh}")
    return found


def coordinate(devices: Table, mesh: Mesh, name: str) -> Table:
    """Where devices are along a mesh dim."""
    extent, stride = mesh.axes[name]
    return devices // stride % extent


def moved_dims(line: Table, mesh: Mesh) -> list[str]:
    """The mesh dims along which some devices differ, the last one to move first."""
    places = {name: coordinate(line, mesh, name) for name in mesh.axes}
    first = {name: place != place[0] for name, place in places.items()}
    return sorted((n for n in first if first[n].any()), key=lambda n: -int(np.argmax(first[n])))


def copied_dims(copies: Table, mesh: Mesh) -> list[str] | None:
    """The mesh dims over whose devices the first element's copies run; None for other copies."""
    names = moved_dims(copies, mesh)
    whole = prod(mesh.shape[name] for name in names)
    fits = copies[0] == 0 and copies[-1] < mesh.size and len(copies) == whole
    return names if fits else None


def still_dims(used: Sequence[Sequence[str]], mesh: Mesh) -> list[str]:
    """The mesh dims of several devices that are not used: all elements are on the first ones."""
    return [n for n, extent in mesh.shape.items() if extent > 1 and not any(n in u for u in used)]


def _assigned(
    tiles: Sequence[tuple[Table, int, int]],
    moved: Sequence[Sequence[str]],
    still: Sequence[str],
    mesh: Mesh,
) -> Iterator[list[Names]]:
    """The names per dim that number its blocks, `still` among them.

    Args:
        tiles: per dim the devices of its blocks, its extent and that of a block.
        moved: per dim the mesh dims along which they move.
        still: mesh dims along which none moves.
        mesh: the devices.
    """
    if not tiles:
        if not still:
            yield []
        return
    for names in _orders(moved[0], still):
        if _fits(*tiles[0], names, mesh):
            left = [name for name in still if name not in names]
            yield from ([names, *rest] for rest in _assigned(tiles[1:], moved[1:], left, mesh))


def _orders(moved: Sequence[str], still: Sequence[str]) -> Iterator[Names]:
    """The names that move, in order, with the fewest of the others among them."""
    orders = (
        names
        for count in range(len(still) + 1)
        for others in combinations(still, count)
        for names in permutations((*moved, *others))
        if [name for name in names if name in moved] == list(moved)
    )
    return islice(orders, MAX_TRIES)


def _fits(line: Table, extent: int, size: int, names: Names, mesh: Mesh) -> bool:
    """Whether equal blocks over these mesh dims are on these devices."""
    if -(-extent // prod(mesh.shape[name] for name in names)) != size:
        return False
    block = np.arange(len(line))
    for name in reversed(names):
        block, wanted = np.divmod(block, mesh.shape[name])
        if not np.array_equal(coordinate(line, mesh, name), wanted):
            return False
    return True


# ---- tile assignments ---------------------------------------------------------------------------


def filled(blocks: Blocks, n_devices: int | None) -> Table | None:
    """The devices of a tile assignment with these blocks in front, every device once.

    Args:
        blocks: the blocks that hold elements.
        n_devices: how many devices there are; None for the fewest that will do.

    Returns:
        ``[tiles per dim..., copies]``, devices without elements in ascending order; None where no
        number of tiles cuts blocks of these sizes for so many devices.
    """
    used, copies = blocks.devices, blocks.devices.shape[-1]
    needed = max(int(used.max()) + 1, used.size)
    if n_devices is not None and (n_devices < needed or n_devices % copies):
        return None
    low = -(-needed // copies)
    tried = range(low, min(low + MAX_COUNTS, MAX_DEVICES // copies + 1))
    for count in tried if n_devices is None else (n_devices // copies,):
        tiles = next(_tiles(blocks.shape, blocks.sizes, count), None)
        if tiles is not None:
            table = np.full((*tiles, copies), -1, dtype=np.int64)
            table[tuple(slice(extent) for extent in used.shape)] = used
            table[table < 0] = np.setdiff1d(np.arange(table.size), used)
            return table
    return None


def _tiles(shape: Sequence[int], sizes: Sequence[int], count: int) -> Iterator[tuple[int, ...]]:
    """The numbers of tiles per dim, `count` in all, that cut blocks of these sizes."""
    if not shape:
        yield from [()] if count == 1 else []
        return
    extent, size = shape[0], sizes[0]
    high = count if size == 1 else min(count, -(-extent // (size - 1)) - 1)
    for tiles in range(-(-extent // size), high + 1):
        if count % tiles == 0:
            yield from ((tiles, *rest) for rest in _tiles(shape[1:], sizes[1:], count // tiles))


def shown(devices: Sequence[int] | Table) -> str:
    """The first ones of some devices, as text."""
    return ",".join(map(str, devices[:16])) + (",..." if len(devices) > 16 else "")
