"""Loads of which kernels read a part: strided ones, which are read as they lie, and looked up ones.

A slice, a flip or a stride of a value in memory is one of its layout: strides and a first element.
So whatever reads it reads no more than the part, and a product takes it as it takes whole values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import gcd

import numpy as np

from axe_eq.extract.read.forest import GATHER, LOAD, Choice, Forest, TileClass
from axe_eq.layout import Layout
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.program import places
from axe_eq.program.gathers import looks
from axe_eq.program.ops import Pull, selector
from axe_eq.program.types import ValueType
from axe_eq.schedule.summary import ANY_ALIGNMENT, Access


@lru_cache(maxsize=4096)
def _strided(text: str, types: tuple[ValueType, ...]) -> tuple[Pull, ...]:
    """Where a selector reads its one operand, if that is a strided part of it; else nothing."""
    declared, _ = selector(text)
    if declared.arity != 1 or declared.inverse is not None or declared.fill is not None:
        return ()
    (row,) = places.pulls(text, types)
    return tuple(p for p in row if p) if None not in row else ()


def _pulls(forest: Forest, choice: Choice) -> tuple[Pull, ...]:
    if choice.kind != GATHER:
        return ()
    return _strided(choice.text, tuple(forest.tiles[c].type for c in choice.children))


def cut_of(choice: Choice) -> tuple[int, int] | None:
    """The axis that an alternative reads in parts, and their length; None where it reads none."""
    if choice.kind != GATHER:
        return None
    declared, params = selector(choice.text)
    return declared.cut(params) if declared.cut else None


def as_it_lies(forest: Forest, tile: int, picks: Mapping[int, Choice]) -> int:
    """The load of which a tile is a strided part, or parts; the tile itself where it is none."""
    below = tile
    while cut_of(picks[below]) or _pulls(forest, picks[below]):
        (below,) = picks[below].children
    return below if picks[below].kind == LOAD else tile


def apart(forest: Forest, tile: int, picks: Mapping[int, Choice]) -> int:
    """Elements that divide where a strided part of a load begins, and its strides but the unit.

    0 where no neighbours of it are neighbours in memory, or something is read backwards.
    """
    shape, rank = forest.tiles[tile].type.shape, forest.tiles[tile].type.rank
    at = [tuple(map(int, row)) for row in np.vstack([np.zeros((1, rank), int), np.eye(rank)])]
    at = [a for a in at if all(n < e for n, e in zip(a, shape, strict=True))]
    while (cut := cut_of(picks[tile])) or _pulls(forest, picks[tile]):
        at = [_below(a, cut, _pulls(forest, picks[tile])) for a in at]
        (tile,) = picks[tile].children
    held = forest.tiles[tile].type.shape
    begin, *steps = (_address(picks[tile].layout, held, a) for a in at)
    strides = [step - begin for step in steps]
    if min(strides, default=1) < 0 or (strides and 1 not in strides):
        return 0
    return gcd(begin, *(s for s in strides if s > 1)) or ANY_ALIGNMENT


def _below(
    at: tuple[int, ...], cut: tuple[int, int] | None, pulls: Sequence[Pull]
) -> tuple[int, ...]:
    """The index of an operand that is read at an index of parts, or of a strided part, of it."""
    if cut is None:
        return tuple(p.offset + p.scale * at[p.axis] for p in pulls)
    axis, length = cut
    return (*at[:axis], at[axis] * length + at[axis + 1], *at[axis + 2 :])


@lru_cache(maxsize=4096)
def _address(layout: str, shape: tuple[int, ...], at: tuple[int, ...]) -> int:
    """Where an element of a value of a shape lies in memory."""
    (place,) = Layout.parse(layout)(at, shape=shape)
    return dict(place).get(DEFAULT_AXIS, 0)


def seen_through(
    forest: Forest, tile: int, picks: Mapping[int, Choice], dims: Sequence[int]
) -> tuple[int, ...]:
    """Those of some dims of what a tile is a part of whose neighbours are the tile's neighbours."""
    pulls, cut = _pulls(forest, picks[tile]), cut_of(picks[tile])
    if not (pulls or cut):
        return tuple(dims)
    below = seen_through(forest, picks[tile].children[0], picks, dims)
    if cut:
        return tuple(d + (d >= cut[0]) for d in below)
    return tuple(pulls[d].axis for d in below if abs(pulls[d].scale) == 1)


def partly_read(
    forest: Forest, order: Sequence[int], picks: Mapping[int, Choice]
) -> dict[int, list[TileClass]]:
    """Loads of which only parts are read, each with the tiles that are."""
    found: dict[int, list[TileClass]] = {}
    read = {tile: _read_so(forest, picks[tile]) for tile in order if picks[tile].kind == GATHER}
    if not any(read.values()):
        return found
    plainly = set(order[:1])
    for tile in order:  # users before operands
        choice, by = picks[tile], read.get(tile, frozenset())
        for n, child in enumerate(choice.children):
            if n in by:
                found.setdefault(child, []).append(forest.tiles[tile])
            elif choice.reduces or tile not in found:
                plainly.add(child)
            else:
                found.setdefault(child, []).extend(found[tile])
    return {tile: tiles for tile, tiles in found.items() if tile not in plainly}


def _read_so(forest: Forest, choice: Choice) -> frozenset[int]:
    """Operands of a selector that are read where integers say, or in strides."""
    types = tuple(forest.tiles[c].type for c in choice.children)
    if _strided(choice.text, types):
        return frozenset((0,))
    return frozenset(look.operand for look in looks(choice.text, types))


def in_parts(
    forest: Forest, order: Sequence[int], picks: Mapping[int, Choice]
) -> dict[int, TileClass]:
    """Loads that are read in parts, each with the tile of these."""
    return {picks[t].children[0]: forest.tiles[t] for t in order if cut_of(picks[t])}


def of_parts(access: Access, parts: Sequence[TileClass]) -> Access:
    """The access of a load, or of the parts of it that are read where those are fewer bytes.

    Neighbours that are left out move with those that are read.
    """
    if not parts:
        return access
    step = min((abs(s) for _, _, s in access.strides), default=1)
    n_bytes = float(sum(t.type.size for t in parts) * access.itemsize * step)
    if n_bytes >= access.n_bytes:
        return access
    most = max(parts, key=lambda t: t.type.size)
    return access._replace(n_bytes=n_bytes, letters=most.key, star=most.star)
