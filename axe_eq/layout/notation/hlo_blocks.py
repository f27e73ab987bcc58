"""Tile assignments from layouts: which device has which block, and devices that have none.

XLA accepts a tile assignment for a program where it names every device once. Blocks have
``ceil(extent / tiles)`` elements, so that more tiles than there are blocks leave the last devices
without any element; a layout says nothing of such devices, and their order is free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from axe_eq.layout.value.layout import Layout

MAX_COUNTS = 4096
"""Most numbers of devices that are tried where none is given."""

Table = NDArray[np.int64]


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


def find_blocks(layout: Layout, shape: tuple[int, ...], axis: str, most: int) -> Blocks | None:
    """The blocks of equal size whose devices a layout tells, if they are blocks.

    What is found is a proposal: elements inside a block are not looked at. None where two blocks
    share a device, a device is negative, or there are more than `most`.
    """
    pitch = [prod(shape[dim + 1 :]) for dim in range(len(shape))]
    sizes: list[int] = []
    for extent, step in zip(shape, pitch, strict=True):
        line = _devices(layout, np.arange(extent) * step, axis)
        differs = line != line[0]
        sizes.append(int(np.argmax(differs)) if differs.any() else extent)
    counts = [-(-extent // size) for extent, size in zip(shape, sizes, strict=True)]
    copies = layout.replica_table(axis)
    if prod(counts) * len(copies) > most:
        return None
    index = np.zeros(1, dtype=np.int64)
    for count, size, step in zip(counts, sizes, pitch, strict=True):
        index = np.add.outer(index, np.arange(count) * (size * step)).reshape(-1)
    table = np.add.outer(_devices(layout, index, axis), copies)
    if table.min() < 0 or len(np.unique(table)) < table.size:
        return None
    return Blocks(shape, tuple(sizes), table.reshape(*counts, len(copies)))


def _devices(layout: Layout, index: Table, axis: str) -> Table:
    found = layout.coordinates(index).get(axis, np.zeros(1, dtype=np.int64))
    return np.broadcast_to(found, index.shape)


def filled(blocks: Blocks, n_devices: int | None, most: int) -> Table | None:
    """The devices of a tile assignment with these blocks in front, every device once.

    Args:
        blocks: the blocks that hold elements.
        n_devices: how many devices there are; None for the fewest that will do.
        most: how many there may be.

    Returns:
        ``[tiles per dim..., copies]``, devices without elements in ascending order; None where no
        number of tiles cuts blocks of these sizes for so many devices.
    """
    used, copies = blocks.devices, blocks.devices.shape[-1]
    needed = max(int(used.max()) + 1, used.size)
    if n_devices is not None and n_devices < needed:
        return None
    low = -(-needed // copies)
    tried = range(low, min(low + MAX_COUNTS, most // copies + 1))
    for count in tried if n_devices is None else _whole(n_devices, copies):
        tiles = next(_tiles(blocks.shape, blocks.sizes, count), None)
        if tiles is not None:
            table = np.full((*tiles, copies), -1, dtype=np.int64)
            table[tuple(slice(extent) for extent in used.shape)] = used
            table[table < 0] = np.setdiff1d(np.arange(table.size), used)
            return table
    return None


def _whole(number: int, part: int) -> list[int]:
    return [] if number % part else [number // part]


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
