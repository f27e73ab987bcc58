"""Proof of an exchange by enumeration: all that is wanted arrives once, from who has it.

Nothing here trusts the planner: classes are compared with what pieces read, senders and goals with
the layouts, and the bytes with the least that any plan moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from math import prod

import numpy as np
from numpy.typing import NDArray

from axe_eq.errors import ScheduleError
from axe_eq.mesh.messages import Block, Messages
from axe_eq.mesh.pieces import FILL, Group, Piece, joined
from axe_eq.mesh.sides import Ints, Side, check_entries, outer


@dataclass(frozen=True)
class Certificate:
    """What the proof of an exchange found.

    Attributes:
        n_bytes: what crosses links.
        bound_bytes: what any plan must move: per device the elements it wants and does not hold,
            each once for every piece that reads it.
        n_elements: elements of the goal that were counted, every copy.
        n_messages: messages on the wire.
    """

    n_bytes: int
    bound_bytes: int
    n_elements: int
    n_messages: int

    def __str__(self) -> str:
        return (
            f"{self.n_elements:,} elements, each stored once; {self.n_bytes:,} bytes in "
            f"{self.n_messages:,} messages, at least {self.bound_bytes:,} needed"
        )


def certify(name: str, messages: Messages, pieces: Sequence[Piece]) -> Certificate:
    """Prove an exchange.

    Args:
        name: what errors call it.
        messages: the exchange.
        pieces: what its value reads, worked out anew from its selectors.

    Raises:
        ScheduleError: says what is wrong, with values.
    """
    if len(messages.blocks) != len(pieces):
        raise _wrong(name, f"has {len(messages.blocks)} blocks", f"{len(pieces)}, of its pieces")
    clash = messages.goal.layout.aliasing().clash
    if clash is not None:
        wrong = f"keeps elements {clash.x} and {clash.y} in one place"
        raise _wrong(f"{name}, layout {messages.goal.layout}", wrong, "a place for each")
    bound = 0
    for block, piece in zip(messages.blocks, pieces, strict=True):
        source = messages.sources[piece.leaf] if piece.leaf >= 0 else None
        bound += _block(name, block, piece, source, messages.goal) * messages.itemsize
    check_coverage(name, pieces)
    if messages.n_bytes != bound:
        raise _wrong(name, f"moves {messages.n_bytes} bytes", f"{bound}, wanted and not held")
    n = prod(messages.goal.shape) * len(messages.goal.copies)
    return Certificate(messages.n_bytes, bound, n, messages.n_messages)


def _wrong(thing: str, wrong: str, expected: str) -> ScheduleError:
    return ScheduleError(thing, wrong, expected)


def _block(name: str, block: Block, piece: Piece, source: Side | None, goal: Side) -> int:
    """Check the messages of one piece; the elements that must cross links."""
    if block.piece.leaf != piece.leaf or len(block.classes) != len(block.piece.groups):
        raise _wrong(name, f"reads leaf {block.piece.leaf}", f"leaf {piece.leaf}, as its selectors")
    columns = (block.src, block.dst, block.count, block.pick)
    if {len(c) for c in columns} != {len(block.src)}:
        raise _wrong(name, f"has columns of {[len(c) for c in columns]} rows", "as many in each")
    sizes = [len(c) for c in block.classes]
    pick = block.pick
    if pick.shape[1] != len(sizes) or (pick < 0).any() or (pick >= np.array(sizes)).any():
        raise _wrong(name, "names classes that it has not", f"below {sizes}")
    holds, wants, counts = [], [], []
    _check_groups(name, block.piece, piece)
    for g, (group, classes) in enumerate(zip(block.piece.groups, block.classes, strict=True)):
        found = _check_classes(f"{name}, dims {group.dims}", group, block, g, source, goal)
        holds.append(found[0])
        wants.append(found[1])
        counts.append(np.array([len(c.leaf) for c in classes]))
    at = list(enumerate(pick.T))
    count = reduce(np.multiply, [counts[g][p] for g, p in at], np.ones(len(pick), np.int64))
    if (bad := np.flatnonzero(count != block.count)).size:
        row = int(bad[0])
        raise _wrong(name, f"counts {block.count[row]} elements in row {row}", str(count[row]))
    want = sum((wants[g][p] for g, p in at), np.int64(goal.base[0]))
    _check_goals(name, block, np.broadcast_to(want, len(pick)), goal.copies, prod(sizes))
    if source is None:
        if (bad := np.flatnonzero(block.src != block.dst)).size:
            raise _wrong(name, f"sends what devices make, in row {bad[0]}", "nothing")
        return 0
    hold = np.broadcast_to(sum((holds[g][p] for g, p in at), np.int64(source.base[0])), len(pick))
    if (bad := np.flatnonzero(~np.isin(block.src - hold, source.copies))).size:
        row = int(bad[0])
        owners = (hold[row] + source.copies).tolist()
        raise _wrong(name, f"device {block.src[row]} sends what it lacks in row {row}", f"{owners}")
    return int(count[~np.isin(block.dst - hold, source.copies)].sum())


def _check_groups(name: str, found: Piece, piece: Piece) -> None:
    """The groups of a block are those of its piece, or all of them as one."""
    same = len(found.groups) == len(piece.groups) and all(
        a.dims == b.dims and np.array_equal(a.index, b.index) and np.array_equal(a.leaf, b.leaf)
        for a, b in zip(found.groups, piece.groups, strict=True)
    )
    if not same:
        (only,) = found.groups if len(found.groups) == 1 else (None,)
        whole = joined(piece.groups, piece.shape, piece.leaf_shape)
        if (
            only is None
            or not np.array_equal(only.index, whole.index)
            or not np.array_equal(only.leaf, whole.leaf)
        ):
            raise _wrong(name, "groups dims otherwise than its selectors", "their groups")


def _check_classes(
    name: str, group: Group, block: Block, number: int, source: Side | None, goal: Side
) -> tuple[Ints, Ints]:
    """Every entry of a group is in one class, whose entries share holder and goal."""
    classes = block.classes[number]
    index = np.concatenate([c.index for c in classes])
    leaf = np.concatenate([c.leaf[c.slot] for c in classes])
    order = np.argsort(index, kind="stable")
    expected = group.index if group.dims else np.zeros(1, np.int64)
    if not np.array_equal(index[order], expected) or not np.array_equal(leaf[order], group.leaf):
        raise _wrong(name, "its classes are no partition of its indices", "each index once")
    goals = goal.tables(group.dims)[0] if group.dims else np.zeros(1, np.int64)
    held = None
    if source is not None and group.leaf_dims:
        held = source.tables(group.leaf_dims)[0]
    of = np.repeat(np.arange(len(classes)), [len(c.index) for c in classes])
    begin = np.concatenate([[0], np.cumsum([len(c.index) for c in classes])[:-1]])
    wants = goals[index]
    holds = np.zeros(len(leaf), np.int64) if held is None else held[leaf]
    if (wants != wants[begin][of]).any() or (holds != holds[begin][of]).any():
        raise _wrong(name, "a class has several holders or goals", "one of each")
    return holds[begin], wants[begin]


def _check_goals(name: str, block: Block, want: Ints, copies: Ints, n_choices: int) -> None:
    """Every choice of classes reaches every copy of its goal once."""
    if (bad := np.flatnonzero(~np.isin(block.dst - want, copies))).size:
        row = int(bad[0])
        expected = f"one of {(want[row] + copies).tolist()}"
        raise _wrong(name, f"sends row {row} to device {block.dst[row]}", expected)
    sizes = [len(c) for c in block.classes]
    flat = np.zeros(len(block.dst), np.int64)
    for g, size in enumerate(sizes):
        flat = flat * size + block.pick[:, g]
    keys = flat * len(copies) + np.searchsorted(copies, block.dst - want)
    found = np.bincount(keys, minlength=n_choices * len(copies))
    if len(found) != n_choices * len(copies) or (found != 1).any():
        at = int(np.flatnonzero(found != 1)[0])
        wrong = f"part {at // len(copies)} arrives {found[at]} times at copy {at % len(copies)}"
        raise _wrong(name, wrong, "once")


def check_coverage(name: str, pieces: Sequence[Piece]) -> None:
    """Every element is read by one piece, or is a constant that no piece lies over.

    Indices that lie in the same pieces are looked at once: a dim is enumerated, the whole never.
    """
    if not pieces or (len(pieces) == 1 and _is_whole(pieces[0])):
        return
    shape, members = pieces[0].shape, list[NDArray[np.bool_]]()
    first: list[Ints] = []  # per dims, the first index that lies so
    for dims in _mixed_dims(pieces):
        check_entries(name, size := prod(shape[d] for d in dims))
        member = np.zeros((len(pieces), size), np.bool_)
        for number, piece in enumerate(pieces):
            member[number, _indices(piece, dims)] = True
        found, at = np.unique(member, axis=1, return_index=True)
        members.append(found)
        digits = np.unravel_index(at, [shape[d] for d in dims])
        strides = [prod(shape[d + 1 :]) for d in dims]
        first.append(np.stack([i * s for i, s in zip(digits, strides, strict=True)]).sum(0))
    sizes = [m.shape[1] for m in members]
    check_entries(name, prod(sizes))
    read, filled = np.zeros(sizes, np.int64), np.zeros(sizes, np.bool_)
    for number, piece in enumerate(pieces):
        there = reduce(np.multiply.outer, [m[number] for m in members], np.True_)
        if piece.leaf == FILL:
            filled |= there
        else:
            read += there
    wrong = np.argwhere((read > 1) | ((read == 0) & ~filled))
    if len(wrong):
        element = sum(int(f[i]) for f, i in zip(first, wrong[0].tolist(), strict=True))
        times = read[tuple(wrong[0])]
        raise _wrong(name, f"element {element} is read {times} times", "once")


def _mixed_dims(pieces: Sequence[Piece]) -> list[tuple[int, ...]]:
    """The dims of the value, those together that a group of some piece has together."""
    sets: list[set[int]] = []
    for group in (g for piece in pieces for g in piece.groups if g.dims):
        met = [s for s in sets if s & set(group.dims)]
        sets = [s for s in sets if not s & set(group.dims)]
        sets.append(set(group.dims).union(*met))
    return sorted(tuple(sorted(s)) for s in sets)


def _indices(piece: Piece, dims: tuple[int, ...]) -> Ints:
    """Row-major indices over some dims of a piece's elements; its other dims are not looked at."""
    parts = []
    for g in (g for g in piece.groups if set(g.dims) & set(dims)):
        rest, found = g.index, np.zeros_like(g.index)
        for d in reversed(g.dims):
            rest, digit = np.divmod(rest, piece.shape[d])
            found = found + digit * prod(piece.shape[e] for e in dims if e > d)
        parts.append(found)
    return outer(parts).reshape(-1)


def _is_whole(piece: Piece) -> bool:
    return all(len(g.index) == prod(piece.shape[d] for d in g.dims) for g in piece.groups)
