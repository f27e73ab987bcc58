"""What a value reads through selectors: per operand, group by group, which index reads which.

``concat 0(x[1:], x[:1])`` reads x in two pieces: indices 0 .. 6 of dim 0 read 1 .. 7, and index 7
reads 0. A piece is one group per set of dims that a selector mixes (a split dim and what it is
split into), and every other dim is a group of its own. A selector is read by what it declares of
itself, `Selector.pull`; dims that it pulls from nowhere are read off its own numpy meaning.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod

import numpy as np

from axe_eq.errors import ScheduleError
from axe_eq.mesh.sides import Ints, check_entries
from axe_eq.program.node import sel_type
from axe_eq.program.ops import Pull, Selector, selector
from axe_eq.program.types import ValueType, value_type
from axe_eq.schedule.graph import TileNode

FILL, MADE = -1, -2  # leaves of pieces that read nothing: a constant, and what a selector makes


@dataclass(frozen=True, eq=False)
class Group:
    """Indices of some dims of a value, and what they read.

    Attributes:
        dims: of the value.
        leaf_dims: of what is read.
        index: row-major indices over `dims`, ascending.
        leaf: row-major indices over `leaf_dims`, one per entry of `index`.
    """

    dims: tuple[int, ...]
    leaf_dims: tuple[int, ...]
    index: Ints
    leaf: Ints


@dataclass(frozen=True, eq=False)
class Piece:
    """The part of a value that reads one leaf: the product of its groups.

    Attributes:
        leaf: number of the leaf; `FILL` for the constant `fill`, `MADE` for what `text` makes.
        groups: of all dims of the value and of the leaf, each dim in one.
        shape: of the value.
        leaf_shape: of the leaf.
        fill: the constant.
        text: a selector without operands.
    """

    leaf: int
    groups: tuple[Group, ...]
    shape: tuple[int, ...]
    leaf_shape: tuple[int, ...]
    fill: float = 0.0
    text: str = ""


def identity(leaf: int, shape: tuple[int, ...]) -> Piece:
    """A leaf, read as it is."""
    every = [np.arange(n, dtype=np.int64) for n in shape]
    groups = tuple(Group((d,), (d,), index, index) for d, index in enumerate(every))
    return Piece(leaf, groups, shape, shape)


def joined(groups: Sequence[Group], shape: tuple[int, ...], leaf_shape: tuple[int, ...]) -> Group:
    """Several groups as one."""
    check_entries("a group of dims", prod(len(g.index) for g in groups))
    dims = tuple(sorted(d for g in groups for d in g.dims))
    leaf_dims = tuple(sorted(d for g in groups for d in g.leaf_dims))
    index = _joined([g.index for g in groups], [g.dims for g in groups], dims, shape)
    leaf = _joined([g.leaf for g in groups], [g.leaf_dims for g in groups], leaf_dims, leaf_shape)
    order = np.argsort(index, kind="stable")
    return Group(dims, leaf_dims, index[order], leaf[order])


def _joined(
    parts: Sequence[Ints],
    of: Sequence[tuple[int, ...]],
    dims: tuple[int, ...],
    shape: tuple[int, ...],
) -> Ints:
    """Indices over all dims, of every choice of one index per part."""
    total = np.zeros((1,) * len(parts), np.int64)
    strides = {d: prod(shape[e] for e in dims[n + 1 :]) for n, d in enumerate(dims)}
    for number, (part, own) in enumerate(zip(parts, of, strict=True)):
        rest, found = part, np.zeros_like(part)
        for d in reversed(own):
            rest, digit = np.divmod(rest, shape[d])
            found = found + digit * strides[d]
        at = [1] * len(parts)
        at[number] = len(part)
        total = total + found.reshape(at)
    return total.reshape(-1)


# -- one selector ----------------------------------------------------------------------------------


def is_read(spec: str, types: Sequence[ValueType]) -> bool:
    """Whether it is known where a selector reads: not where integers of an operand say."""
    declared, params = selector(spec)
    if not types:
        return declared.look is None
    if declared.pull is None or declared.look is not None:
        return False
    pulls = declared.pull(params, types)
    return declared.uniform or all(p is not None for row in pulls for p in row)


@lru_cache(maxsize=1024)
def steps(spec: str, types: tuple[ValueType, ...]) -> tuple[Piece, ...]:
    """The pieces of a selector's value over its operands; later ones lie over earlier ones.

    Raises:
        ScheduleError: it reads where integers say.
    """
    declared, params = selector(spec)
    shape = sel_type(spec, tuple(types)).shape
    if not is_read(spec, types):
        raise ScheduleError(f"selector '{spec}'", "reads where integers say", "one that does not")
    whole = [np.arange(n, dtype=np.int64) for n in shape]
    found: list[Piece] = []
    value = 0.0 if declared.cut else declared.fill(params) if declared.fill else None
    if value is not None:
        groups = tuple(Group((d,), (), i, np.zeros_like(i)) for d, i in enumerate(whole))
        found.append(Piece(FILL, groups, shape, (), fill=value))
    elif not types:
        groups = tuple(Group((d,), (d,), i, i) for d, i in enumerate(whole))
        found.append(Piece(MADE, groups, shape, shape, text=spec))
    pulls = declared.pull(params, types) if types and declared.pull is not None else []
    for number, row in enumerate(pulls):
        groups = _groups(declared, params, types, number, row, shape)
        if all(len(g.index) for g in groups):
            found.append(Piece(number, groups, shape, types[number].shape))
    return tuple(found)


def _groups(
    declared: Selector,
    params: tuple[object, ...],
    types: Sequence[ValueType],
    number: int,
    row: Sequence[Pull | None],
    shape: tuple[int, ...],
) -> tuple[Group, ...]:
    """The groups of a selector's value over one operand."""
    found = []
    for d, pull in enumerate(row):
        if pull is not None:
            index = np.arange(shape[pull.axis], dtype=np.int64)
            leaf = index * pull.scale + pull.offset
            inside = (leaf >= 0) & (leaf < types[number].shape[d])
            found.append(Group((pull.axis,), (d,), index[inside], leaf[inside]))
    rest = tuple(sorted(set(range(len(shape))) - {d for g in found for d in g.dims}))
    mixed = tuple(d for d, pull in enumerate(row) if pull is None)
    if rest or mixed:
        found.append(_mixed(declared, params, types, number, rest, mixed))
    return tuple(found)


def _mixed(
    declared: Selector,
    params: tuple[object, ...],
    types: Sequence[ValueType],
    number: int,
    rest: tuple[int, ...],
    mixed: tuple[int, ...],
) -> Group:
    """The dims without a pull, from the selector's meaning on elements numbered from 1.

    A uniform selector does the same to them at every index of the others, so these have extent 1.
    """
    arrays = []
    for n, of in enumerate(types):
        thin = tuple(e if d in mixed else 1 for d, e in enumerate(of.shape))
        check_entries("dims that a selector mixes", prod(thin))
        own = np.arange(1, prod(thin) + 1, dtype=np.int64) * (n == number)
        arrays.append(own.reshape(thin))
    leaf = np.asarray(declared.run(params, arrays), np.int64).reshape(-1) - 1
    index = np.flatnonzero(leaf >= 0).astype(np.int64)
    return Group(rest, mixed, index, leaf[index])


# -- selectors of selectors ------------------------------------------------------------------------


def through(first: Piece, second: Piece) -> Piece | None:
    """What a piece reads whose leaf is a value that another piece is of; None where nothing.

    Args:
        first: of a value, over its leaf.
        second: of that leaf, over its own.
    """
    sets = _components(first, second)
    found = []
    for mine, theirs in sets:
        a = joined([first.groups[g] for g in mine], first.shape, first.leaf_shape)
        b = joined([second.groups[g] for g in theirs], second.shape, second.leaf_shape)
        if not mine:
            assert not b.dims  # every dim of the leaf is read by some group
        where = np.full(prod(first.leaf_shape[d] for d in b.dims), -1, np.int64)
        where[b.index] = b.leaf
        leaf = where[a.leaf] if b.dims else np.broadcast_to(b.leaf, a.leaf.shape)
        kept = leaf >= 0
        found.append(Group(a.dims, b.leaf_dims, a.index[kept], leaf[kept]))
    if not all(len(g.index) for g in found):
        return None
    return Piece(
        second.leaf, tuple(found), first.shape, second.leaf_shape, second.fill, second.text
    )


def _components(first: Piece, second: Piece) -> list[tuple[list[int], list[int]]]:
    """Groups of both pieces that share dims of the value between them, in sets."""
    sets: list[tuple[list[int], list[int], set[int]]] = []
    every: list[tuple[list[int], list[int], set[int]]]
    every = [([n], [], set(g.leaf_dims)) for n, g in enumerate(first.groups)]
    every += [([], [n], set(g.dims)) for n, g in enumerate(second.groups)]
    for mine, theirs, dims in every:
        met = [other for other in sets if other[2] & dims]
        sets = [other for other in sets if not other[2] & dims]
        for a, b, shared in met:
            mine, theirs, dims = [*mine, *a], [*theirs, *b], dims | shared
        sets.append((mine, theirs, dims))
    return [(sorted(a), sorted(b)) for a, b, _ in sets]


def read_through(nodes: Sequence[TileNode]) -> tuple[Piece, ...]:
    """The pieces of the last node's value over the leaves, which loads name by their access.

    Args:
        nodes: loads and selectors, operands before users.

    Raises:
        ScheduleError: a selector that reads where integers say.
    """
    known: list[tuple[Piece, ...]] = []
    for node in nodes:
        if node.kind == "load":
            known.append((identity(node.access, value_type(node.type).shape),))
            continue
        types = tuple(value_type(nodes[o].type) for o in node.operands)
        found = []
        for piece in steps(node.text, types):
            if piece.leaf < 0:
                found.append(piece)
                continue
            ways = (through(piece, below) for below in known[node.operands[piece.leaf]])
            found += [way for way in ways if way is not None]
        known.append(tuple(found))
    return known[-1]
