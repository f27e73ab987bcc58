"""Where the elements of messages lie: strided boxes of memory, which need no packing.

`Messages` says which indices of which groups go where. Here a part of a message becomes a region of
the sender's memory and regions of the receiver's. A region is a strided box where its addresses are
one, as slices of dense parts are: then a library's view of the memory reads or writes it, and a
contiguous one is sent as it lies. Else it is a table of addresses.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.mesh.messages import Array, Block, Messages, addresses, made
from axe_eq.mesh.pieces import Piece
from axe_eq.mesh.sides import Ints, Side, outer


@dataclass(frozen=True, eq=False)
class Region:
    """Elements of a flat memory, in order.

    Attributes:
        offset: the first one's address.
        shape: extents of the box, dims of extent 1 left out and contiguous ones as one.
        strides: in elements, per dim.
        index: every address, where they are no box; then `shape` is their number.
    """

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    index: Ints | None = None

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def addresses(self) -> Ints:
        """Every element's address, as its shape."""
        if self.index is not None:
            return self.index
        steps = [np.arange(n) * s for n, s in zip(self.shape, self.strides, strict=True)]
        return outer(steps, self.offset)

    @property
    def is_dense(self) -> bool:
        """Whether the elements lie behind each other."""
        return self.index is None and self.strides in ((), (1,))


@dataclass(frozen=True, eq=False)
class Part:
    """What one device sends another of one piece, or copies itself.

    Attributes:
        leaf: number of the memory that is read; -1 where `value` is stored.
        source: what is read there.
        goals: where it is stored; several where a device holds copies.
        pick: per element stored, its place among those read; None where they are the same.
        value: constants, of as many elements as are stored or one.
    """

    leaf: int
    source: Region
    goals: tuple[Region, ...]
    pick: Ints | None = None
    value: Array | None = None

    @property
    def is_dense(self) -> bool:
        """Whether it is stored once, in order and dense."""
        return self.pick is None and len(self.goals) == 1 and self.goals[0].is_dense


def parts_between(messages: Messages, src: int, dst: int) -> list[Part]:
    """The parts of a message, in the order in which they are packed."""
    return [_part(messages, messages.blocks[b], r) for b, r in messages.by_pair[src, dst]]


def parts_of(messages: Messages, device: int) -> list[Part]:
    """What a device has of the goal without anybody's help; later ones lie over earlier ones."""
    return [
        _part(messages, block, row)
        for block in messages.blocks
        for row in np.flatnonzero((block.src == device) & (block.dst == device)).tolist()
    ]


def packed_bytes(messages: Messages) -> int:
    """What the device that moves most copies of what does not lie dense, where messages have to.

    That is into messages, out of them, and its own elements.
    """
    moved = Counter[int]()
    for pair, n_bytes in messages.pairs.items():
        moved.update(dict.fromkeys(pair, n_bytes))
    ((busy, _),) = moved.most_common(1) or [(0, 0)]
    copied = 0
    for pair in (p for p in messages.pairs if busy in p):
        parts = parts_between(messages, *pair)
        lies = [p.source.is_dense if busy == pair[0] else p.is_dense for p in parts]
        copied += messages.pairs[pair] * (lies != [True])
    own = (p for p in parts_of(messages, busy) if p.value is None)
    strided = (p.source.size for p in own if not (p.source.is_dense and p.is_dense))
    return copied + sum(strided) * messages.itemsize


def fills(parts: Sequence[Part], n_elements: int) -> bool:
    """Whether parts store every element of a memory."""
    stored = np.zeros(n_elements, bool)
    for goal in (goal for part in parts for goal in part.goals):
        put(stored, goal, True)
    return bool(stored.all())


def _part(messages: Messages, block: Block, row: int) -> Part:
    piece, chosen = block.piece, block.chosen(row)
    copies = (messages.goal.local_copies + messages.goal.begin(int(block.dst[row]))).tolist()
    indices = [c.index for c in chosen]
    goals = tuple(_region(messages.goal, indices, piece, False, copy) for copy in copies)
    slots = [c.slot for c in chosen]
    pick = None
    if any(len(c.slot) != len(c.leaf) or (np.diff(c.slot) != 1).any() for c in chosen):
        sizes = [len(c.leaf) for c in chosen]
        pick = np.ravel_multi_index(np.ix_(*slots), sizes).reshape(-1)
    if piece.leaf < 0:
        value = np.asarray(made(piece, chosen)).reshape(-1)
        if pick is not None and value.size > 1:
            value, pick = value[pick], None
        return Part(-1, Region(0, (value.size,), (1,)), goals, None, value)
    leaves = [c.leaf for c in chosen]
    source = messages.sources[piece.leaf]
    begin = source.begin(int(block.src[row]))
    return Part(piece.leaf, _region(source, leaves, piece, True, begin), goals, pick)


def _region(side: Side, indices: Sequence[Ints], piece: Piece, leaf: bool, begin: int) -> Region:
    """The region of a choice of indices per group, `begin` added to all addresses."""
    if any(s.axis == DEFAULT_AXIS and s.bits for s in side.layout.swizzle):
        flat = addresses(side, indices, piece, leaf, begin).reshape(-1)
        return Region(0, (len(flat),), (1,), flat)
    offset, dims = side.base[1] + begin, []
    for index, group in zip(indices, piece.groups, strict=True):
        of = group.leaf_dims if leaf else group.dims
        if not of:
            continue
        found = box_of(side.tables(of)[1][index])
        if found is None:
            flat = addresses(side, indices, piece, leaf, begin).reshape(-1)
            return Region(0, (len(flat),), (1,), flat)
        offset += found[0]
        dims += found[1]
    return Region(offset, *_merged(dims))


def box_of(values: Ints) -> tuple[int, list[tuple[int, int]]] | None:
    """Offset, and extent and stride per dim, of addresses that are a strided box; else None."""
    dims: list[tuple[int, int]] = []
    while len(values) > 1:
        steps = np.diff(values)
        step = int(steps[0])
        breaks = np.flatnonzero(steps != step)
        n = int(breaks[0]) + 1 if len(breaks) else len(values)
        rows = values.reshape(-1, n) if len(values) % n == 0 else None
        if rows is None or (rows - rows[:, :1] != np.arange(n) * step).any():
            return None
        dims.insert(0, (n, step))
        values = rows[:, 0]
    return int(values[0]), dims


def _merged(dims: Sequence[tuple[int, int]]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Extents and strides, neighbours as one where they step alike."""
    found: list[tuple[int, int]] = []
    for extent, stride in dims:
        if extent == 1:
            continue
        if found and found[-1][1] == extent * stride:
            found[-1] = (found[-1][0] * extent, stride)
        else:
            found.append((extent, stride))
    return tuple(e for e, _ in found), tuple(s for _, s in found)


def view(memory: Array, region: Region) -> Any:
    """A numpy view of a region; a copy where it is a table."""
    if region.index is not None:
        return memory[region.index]
    steps = tuple(s * memory.itemsize for s in region.strides)
    return np.ndarray(region.shape, memory.dtype, memory, region.offset * memory.itemsize, steps)


def put(memory: Array, region: Region, values: Any) -> None:
    """Store values, in the order of a region or one for all of it, on numpy."""
    if region.index is not None:
        memory[region.index] = values
    elif np.ndim(values) and np.size(values) > 1:
        view(memory, region)[...] = np.reshape(values, region.shape)
    else:
        view(memory, region)[...] = np.reshape(values, ())
