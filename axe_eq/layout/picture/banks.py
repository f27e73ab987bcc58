"""Shared memory as banks: which bank holds which element, and which accesses collide.

Source of the figures: CUDA C++ Programming Guide, "Shared Memory": 32 banks, successive 4-byte
words in successive banks; 16-byte accesses are served eight threads at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from axe_eq.draw.colour import hue
from axe_eq.draw.grid import Cell, Grid
from axe_eq.errors import ArgumentError
from axe_eq.layout.picture.matrix import Matrix
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.layout.value.layout import Layout, make

BANKS, WORD_BYTES = 32, 4
WARP, PIECE_BYTES, PIECES = 32, 16, 8
LINES = 16  # rows of 128 bytes that are drawn: swizzles repeat after eight
MOST_BYTES = 2**20  # of a layout whose banks are drawn


class Access(NamedTuple):
    """One access pattern: how many turns the banks need for it; 1 is free of conflicts."""

    name: str
    turns: int


def check_banked(layout: Layout, itemsize: int) -> None:
    """Checks that a layout can be seen as banks of shared memory.

    Raises:
        ArgumentError: replicas, several axes, negative offsets, or too much memory.
    """
    thing = f"banks of {layout}"
    if layout.replica or set(layout.axes) - {DEFAULT_AXIS}:
        raise ArgumentError(thing, "replicas or several axes", "elements on m alone")
    low, high = layout.range(DEFAULT_AXIS)
    if low < 0:
        raise ArgumentError(thing, f"element at {low}", "offsets of at least 0")
    if (high + 1) * itemsize > MOST_BYTES:
        raise ArgumentError(thing, f"{(high + 1) * itemsize} bytes", f"at most {MOST_BYTES}")


def without_swizzle(layout: Layout) -> Layout:
    """The same layout with its swizzles left out: another map, to compare with."""
    parts = layout.shard, layout.replica, layout.offsets, (), *layout.boxes
    return make(*parts)


def banks(layout: Layout, matrix: Matrix, itemsize: int) -> Grid:
    """Memory as rows of 32 banks; the colour is an element's 16-byte piece of its row.

    An access down a column is free of conflicts where one colour is spread over all banks.

    Raises:
        ArgumentError: as `check_banked`.
    """
    check_banked(layout, itemsize)
    held: dict[int, list[int]] = {}
    for x, at in enumerate(layout.table(DEFAULT_AXIS).tolist()):
        for word in range(at * itemsize // WORD_BYTES, -(-(at + 1) * itemsize // WORD_BYTES)):
            held.setdefault(word, []).append(x)
    lines = min(LINES, max(held) // BANKS + 1)
    cells = [
        [_word(matrix, held.get(line * BANKS + bank, ()), itemsize, bank) for bank in range(BANKS)]
        for line in range(lines)
    ]
    return Grid(
        cells,
        [str(line * BANKS * WORD_BYTES) for line in range(lines)],
        [str(bank) for bank in range(BANKS)],
        name="banks of shared memory with their elements",
        corner="byte\\bank",
    )


def _word(matrix: Matrix, held: Sequence[int], itemsize: int, bank: int) -> Cell:
    if not held:
        return Cell((), "hole", (), f"bank {bank}, nothing")
    piece = held[0] % matrix.n_columns * itemsize // PIECE_BYTES
    told = "; ".join(matrix.element(x) for x in held)
    return Cell(
        (matrix.element(held[0]),), hue(piece), (), f"bank {bank} holds {told}", tuple(held)
    )


def accesses(layout: Layout, matrix: Matrix, itemsize: int) -> list[Access]:
    """The turns of the usual accesses: 32 elements along each dim, and eight 16-byte pieces."""
    table = layout.table(DEFAULT_AXIS).reshape(matrix.dims)
    found = []
    for dim, extent in enumerate(matrix.dims):
        count = min(extent, WARP)
        if count > 1:
            line = np.moveaxis(table, dim, 0).reshape(extent, -1)[:count, 0]
            name = f"{count} threads, one element each, along dim {dim}"
            found.append(Access(name, turns(line[:, None], itemsize)))
    per_piece = PIECE_BYTES // itemsize
    if len(matrix.dims) > 1 and per_piece and matrix.dims[-1] >= per_piece:
        rows = table.reshape(-1, matrix.dims[-1])
        rows = rows[: min(PIECES, matrix.dims[-2]), :per_piece]
        if (rows - rows[:, :1] == np.arange(per_piece)).all() and len(rows) > 1:
            name = f"{len(rows)} threads, 16 bytes each, in successive rows"
            found.append(Access(name, turns(rows, itemsize)))
    return found


def turns(places: NDArray[np.int64], itemsize: int) -> int:
    """Turns of one access: the most words that any bank is asked for.

    Args:
        places: element offsets, ``[threads, elements per thread]``.
        itemsize: bytes of one element.
    """
    start = places.reshape(-1) * itemsize
    ends = zip(start // WORD_BYTES, (start + itemsize - 1) // WORD_BYTES, strict=True)
    words = {word for first, last in ends for word in range(int(first), int(last) + 1)}
    return int(np.bincount([word % BANKS for word in words]).max())
