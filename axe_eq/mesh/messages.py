"""Messages that bring a value from one layout over devices to another, found by box intersection.

Indices of a group that share who holds them and who wants them are one class; a message is a choice
of one class per group. Whoever wants it and holds it copies it; every other one is sent it once, so
the bytes that cross links are the least that any plan moves: those wanted and not held. Where the
source has replicas, the one that has sent least so far sends.

Source: Rink et al., Memory-efficient array redistribution through portable collective
communication (2112.01075), for the bound; box intersection as in ScaLAPACK's redistribution.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

import numpy as np
from numpy.typing import NDArray

from axe_eq.errors import ScheduleError
from axe_eq.mesh.pieces import FILL, MADE, Group, Piece, joined
from axe_eq.mesh.sides import Ints, Side, outer
from axe_eq.program.meaning import evaluate_sel

Array = NDArray[np.generic]
Near = Sequence[Sequence[int]]
"""Per link but the last, nearest first: per device a name of the group that the link joins."""


@dataclass(frozen=True, eq=False)
class Class:
    """Indices of a group with one holder and one that wants them.

    Attributes:
        index: of the value wanted, row-major over the group's dims.
        leaf: of the value read, each once: what is sent.
        slot: per entry of `index` its place in `leaf`.
    """

    index: Ints
    leaf: Ints
    slot: Ints

    @staticmethod
    def of(index: Ints, leaf: Ints) -> Class:
        """Entries of a group; what is read twice is sent once."""
        if len(leaf) == 1 or (leaf[1:] > leaf[:-1]).all():
            return Class(index, leaf, np.arange(len(leaf)))
        sent, slot = np.unique(leaf, return_inverse=True)
        return Class(index, sent, slot.reshape(-1).astype(np.int64))


@dataclass(frozen=True, eq=False)
class Block:
    """The messages of one piece; rows whose source is their goal are local copies.

    Attributes:
        piece: what is read.
        classes: per group of the piece.
        src, dst: per message, devices; `src` is `dst` where nothing is read.
        pick: per message and group, the number of the class.
        count: per message, elements that are sent.
    """

    piece: Piece
    classes: tuple[tuple[Class, ...], ...]
    src: Ints
    dst: Ints
    pick: Ints
    count: Ints

    def chosen(self, row: int) -> list[Class]:
        """The classes of a message."""
        return [self.classes[g][c] for g, c in enumerate(self.pick[row].tolist())]


@dataclass(frozen=True, eq=False)
class Messages:
    """One exchange: what every device sends to every other one, and copies itself.

    Attributes:
        sources: sides of the leaves that pieces read.
        goal: side of the value that is made.
        itemsize: bytes per element.
        blocks: messages per piece; later ones lie over earlier ones.
    """

    sources: tuple[Side, ...]
    goal: Side
    itemsize: int
    blocks: tuple[Block, ...]

    @cached_property
    def table(self) -> Ints:
        """Rows of (src, dst, elements, block, row) of all that crosses links, in a fixed order."""
        rows = []
        for number, b in enumerate(self.blocks):
            at = np.flatnonzero(b.src != b.dst)
            rows.append(
                np.stack(
                    [b.src[at], b.dst[at], b.count[at], np.full(len(at), number), at], 1
                )
            )  # fmt: skip
        table = np.concatenate(rows) if rows else np.zeros((0, 5), np.int64)
        return table[np.lexsort(table.T[[4, 3, 1, 0]])]

    @property
    def n_bytes(self) -> int:
        """Bytes that cross links, all devices together."""
        return int(self.table[:, 2].sum()) * self.itemsize

    @cached_property
    def pairs(self) -> dict[tuple[int, int], int]:
        """(source, goal) -> bytes; what one sends to another is one message on the wire."""
        first = self._firsts
        if not len(first):
            return {}
        src, dst, n = self.table[:, 0], self.table[:, 1], self.table[:, 2]
        sums = np.add.reduceat(n, first) * self.itemsize
        keys = zip(src[first].tolist(), dst[first].tolist(), strict=True)
        return dict(zip(keys, sums.tolist(), strict=True))

    @cached_property
    def _firsts(self) -> Ints:
        """The first row of every pair in `table`, which is in the order of pairs."""
        if not len(self.table):
            return np.zeros(0, np.int64)
        pair = self.table[:, :2]
        return np.flatnonzero(np.append(True, (pair[1:] != pair[:-1]).any(1)))

    @property
    def n_messages(self) -> int:
        """Messages on the wire."""
        return len(self._firsts)

    def sent(self, n_devices: int) -> list[int]:
        """Bytes that every device sends."""
        found = np.bincount(self.table[:, 0], self.table[:, 2], n_devices)
        return [int(n) * self.itemsize for n in found]

    def received(self, n_devices: int) -> list[int]:
        """Bytes that every device receives."""
        found = np.bincount(self.table[:, 1], self.table[:, 2], n_devices)
        return [int(n) * self.itemsize for n in found]

    # -- one device's part -------------------------------------------------------------------------

    @cached_property
    def by_pair(self) -> dict[tuple[int, int], list[tuple[int, int]]]:
        """(source, goal) -> block and row of every part of a message, in the order of packing."""
        found: dict[tuple[int, int], list[tuple[int, int]]] = {}
        for src, dst, _, block, row in self.table.tolist():
            found.setdefault((src, dst), []).append((block, row))
        return found

    def packed(self, src: int, dst: int, memories: Sequence[Array]) -> Array:
        """What one device sends another, contiguous.

        Args:
            src: the sender.
            dst: the receiver.
            memories: the flat memory that the sender has of every leaf.
        """
        parts = [self._payload(b, r, memories).reshape(-1) for b, r in self.by_pair[src, dst]]
        return np.concatenate(parts)

    def unpack(self, src: int, dst: int, payload: Array, memory: Array) -> None:
        """Store what another device sent into a device's flat memory of the goal."""
        begin = 0
        for number, row in self.by_pair[src, dst]:
            block = self.blocks[number]
            end = begin + int(block.count[row])
            self._store(block, row, payload[begin:end], memory)
            begin = end

    def start(self, device: int, memories: Sequence[Array], memory: Array) -> None:
        """Write what a device has of the goal without anybody's help.

        Constants are written first, where pieces that are read lie over them.
        """
        for number, block in enumerate(self.blocks):
            for row in np.flatnonzero((block.src == device) & (block.dst == device)).tolist():
                self._store(block, row, self._payload(number, row, memories), memory)

    def _payload(self, number: int, row: int, memories: Sequence[Array]) -> Array:
        block = self.blocks[number]
        piece, chosen = block.piece, block.chosen(row)
        if piece.leaf < 0:
            return made(piece, chosen)
        leaves = [c.leaf for c in chosen]
        source = self.sources[piece.leaf]
        begin = source.begin(int(block.src[row]))
        return memories[piece.leaf][addresses(source, leaves, piece, True, begin)]

    def _store(self, block: Block, row: int, payload: Array, memory: Array) -> None:
        chosen = block.chosen(row)
        if payload.size == 1:
            values = payload.reshape(())
        else:
            values = payload.reshape([len(c.leaf) for c in chosen])
            values = values[np.ix_(*[c.slot for c in chosen])]
        indices = [c.index for c in chosen]
        begin = self.goal.begin(int(block.dst[row]))
        for copy in self.goal.local_copies.tolist():
            memory[addresses(self.goal, indices, block.piece, False, begin + copy)] = values

    # -- what was moved, told again ---------------------------------------------------------------

    def regions(self, src: int, dst: int) -> list[dict[str, object]]:
        """What one device sends another: per part its leaf, its region of it and its bytes."""
        found: list[dict[str, object]] = []
        for number, row in self.by_pair[src, dst]:
            block = self.blocks[number]
            said = [run_text(c.leaf) for c in block.chosen(row)]
            region = dict(zip([g.leaf_dims for g in block.piece.groups], said, strict=True))
            found.append({
                "leaf": block.piece.leaf,
                "region": {",".join(map(str, d)): text for d, text in region.items() if d},
                "n_bytes": int(block.count[row]) * self.itemsize,
            })  # fmt: skip
        return found


def made(piece: Piece, chosen: Sequence[Class]) -> Array:
    """What is stored of a piece that reads nothing."""
    if piece.leaf == FILL:
        return np.asarray(piece.fill)
    assert piece.leaf == MADE
    whole = evaluate_sel(piece.text, ()).reshape(-1)
    return whole[_flat([c.leaf for c in chosen], piece.groups, piece.leaf_shape)]


def addresses(side: Side, indices: Sequence[Ints], piece: Piece, leaf: bool, begin: int) -> Ints:
    """Addresses of a choice of indices per group, one dim per group, `begin` added to all."""
    parts = []
    for index, group in zip(indices, piece.groups, strict=True):
        dims = group.leaf_dims if leaf else group.dims
        parts.append(side.tables(dims)[1][index] if dims else np.zeros(len(index), np.int64))
    return side.placed(outer(parts, begin))


def _flat(indices: Sequence[Ints], groups: Sequence[Group], shape: tuple[int, ...]) -> Ints:
    """Row-major indices of a shape, whose every dim is a group of its own."""
    steps = [prod(shape[g.leaf_dims[0] + 1 :]) for g in groups]
    return outer([i * s for i, s in zip(indices, steps, strict=True)])


def run_text(index: Ints) -> str:
    """Indices for people: ``0:128``, ``1:9:2`` or a list; runs of equal length as one."""
    values = index.tolist()
    if len(values) == 1:
        return str(values[0])
    step = values[1] - values[0]
    if step and np.array_equal(index, np.arange(len(values)) * step + values[0]):
        return f"{values[0]}:{values[-1] + (1 if step > 0 else -1)}" + (
            f":{step}" if step != 1 else ""
        )
    return ",".join(map(str, values[:8])) + (",.." if len(values) > 8 else "")


# -- planning -------------------------------------------------------------------------------------


def plan(
    sources: Sequence[Side], goal: Side, pieces: Sequence[Piece], itemsize: int, near: Near = ()
) -> Messages:
    """The messages that make a value in a layout from leaves in theirs.

    Args:
        sources: sides of the leaves.
        goal: side of the value.
        pieces: what the value reads, see `axe_eq.mesh.pieces`.
        itemsize: bytes per element.
        near: which devices are near each other: of copies, a nearest one sends.

    Raises:
        ScheduleError: a group of too many indices.
    """
    load: dict[int, int] = {}
    blocks = []
    for piece in pieces:
        source = sources[piece.leaf] if piece.leaf >= 0 else None
        blocks.append(_block(source, goal, _grouped(piece, source, goal), load, near))
    return Messages(tuple(sources), goal, itemsize, tuple(blocks))


def _grouped(piece: Piece, source: Side | None, goal: Side) -> Piece:
    """A piece whose groups both sides have tables for: one group where a side has no dims."""
    if goal.grouped and (source is None or source.grouped):
        return piece
    if piece.leaf == MADE:
        raise ScheduleError(f"layout {goal.layout}", "cuts within dims", "one that groups by them")
    return replace(piece, groups=(joined(piece.groups, piece.shape, piece.leaf_shape),))


def _block(
    source: Side | None, goal: Side, piece: Piece, load: dict[int, int], near: Near
) -> Block:
    per_group = [_classes(source, goal, g) for g in piece.groups]
    classes = tuple(found for _, _, found in per_group)
    sizes = [len(c) for c in classes]
    chosen = np.indices(sizes).reshape(len(sizes), -1) if sizes else np.zeros((0, 1), np.int64)
    n = chosen.shape[1]
    src = np.full(n, source.base[0] if source else 0, np.int64)
    dst, count = np.full(n, goal.base[0], np.int64), np.ones(n, np.int64)
    for at, (holds, wants, found) in zip(chosen, per_group, strict=True):
        src += holds[at]
        dst += wants[at]
        count *= np.array([len(c.leaf) for c in found])[at]
    copies, pick = goal.copies, chosen.T.astype(np.int64)
    if len(copies) > 1:  # every copy of the goal wants it
        pick, count = np.repeat(pick, len(copies), 0), np.repeat(count, len(copies))
        src = np.repeat(src, len(copies))
    dst = np.add.outer(dst, copies).reshape(-1)
    sender = dst if source is None else _senders(src, dst, count, source.copies, load, near)
    return Block(piece, classes, sender, dst, pick, count)


def _classes(source: Side | None, goal: Side, group: Group) -> tuple[Ints, Ints, tuple[Class, ...]]:
    """Holder and goal of every class of a group, as parts of device numbers, and the classes."""
    wants = goal.tables(group.dims)[0][group.index] if group.dims else np.zeros(1, np.int64)
    wants = np.broadcast_to(wants, group.leaf.shape)
    if source is None or not group.leaf_dims:
        holds = np.zeros(len(group.leaf), np.int64)
    else:
        holds = source.tables(group.leaf_dims)[0][group.leaf]
    low = int(wants.min())
    key = holds * (int(wants.max()) - low + 1) + (wants - low)
    order = np.argsort(key, kind="stable")
    cuts = np.flatnonzero(np.diff(key[order])) + 1
    runs = np.split(order, cuts)
    first = order[np.concatenate([[0], cuts]).astype(np.int64)]
    index = group.index if group.dims else np.zeros(1, np.int64)
    classes = tuple(Class.of(index[r], group.leaf[r]) for r in runs)
    return holds[first], wants[first], classes


def _senders(
    src: Ints, dst: Ints, count: Ints, copies: Ints, load: dict[int, int], near: Near
) -> Ints:
    """Who sends every message: the goal itself where it holds it, else the least loaded copy.

    Where devices are nearer or farther, it is the least loaded one of the nearest copies.
    """
    if len(copies) == 1:
        return np.asarray(src + copies[0])
    holds = np.isin(dst - src, copies)
    sender = np.where(holds, dst, 0)
    rest = np.flatnonzero(~holds)
    if near:
        _nearest(sender, rest, src, dst, count, copies, load, np.array(near))
    else:
        _balance(sender, rest, src, count, copies, load)
    return sender


def _nearest(
    sender: Ints, rest: Ints, src: Ints, dst: Ints, count: Ints, copies: Ints,
    load: dict[int, int], near: Ints,
) -> None:  # fmt: skip
    """Give messages, largest first, to the nearest copy; of several to the one that sends least."""
    for at in rest[np.argsort(-count[rest], kind="stable")].tolist():
        owners = src[at] + copies
        far = (near[:, owners] != near[:, [dst[at]]]).sum(0)
        closest = owners[far == far.min()].tolist()
        who = min(closest, key=lambda owner: (load.get(owner, 0), owner))
        sender[at] = who
        load[who] = load.get(who, 0) + int(count[at])


def _balance(
    sender: Ints, rest: Ints, src: Ints, count: Ints, copies: Ints, load: dict[int, int]
) -> None:
    """Give messages, largest first, to the copy of their part that sends least; ties by number.

    Copies of one part are copies of no other, so every part has a heap of its own.
    """
    heaps: dict[int, list[tuple[int, int]]] = {}
    order = rest[np.argsort(-count[rest], kind="stable")]
    displacements = copies.tolist()
    disjoint = _are_disjoint(np.unique(src[rest]), copies)
    bases, sizes = src[order].tolist(), count[order].tolist()
    for at, base, size in zip(order.tolist(), bases, sizes, strict=True):
        owners = heaps.get(base)
        if owners is None or not disjoint:
            owners = [(load.get(base + c, 0), base + c) for c in displacements]
            heapq.heapify(owners)
            heaps[base] = owners
        sent, who = owners[0]
        sender[at] = who
        load[who] = sent + size
        heapq.heapreplace(owners, (load[who], who))


def _are_disjoint(bases: Ints, copies: Ints) -> bool:
    every = np.add.outer(bases, copies).reshape(-1)
    return len(np.unique(every)) == len(every)
