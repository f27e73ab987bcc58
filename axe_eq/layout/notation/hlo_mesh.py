"""HLO shardings that name the dims of a mesh, as tile assignments.

``{mesh['x'=2,'y'=4], [{'x'}, {'y':(1)2}]}``: per tensor dim the mesh dims it is sharded over, the
first one slowest. ``'y':(p)s`` is a part of a mesh dim: of its digits, slow to fast, the one of
extent s behind those that multiply to p. What no dim names replicates.

Source: the texts of ``xla::NamedSharding`` and ``xla::Mesh``.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from typing import NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from axe_eq.layout.notation.text import refuse

Table = NDArray[np.int64]


class Axes(NamedTuple):
    """The dims of a mesh by name, slow to fast, and its devices in that order."""

    extents: dict[str, int]
    devices: Table


class AxisPart(NamedTuple):
    """A part of a mesh dim: extents `pre` in front of it, and `size`; both None for all of it."""

    name: str
    pre: int | None = None
    size: int | None = None

    def __str__(self) -> str:
        return repr(self.name) + ("" if self.size is None else f":({self.pre}){self.size}")


class Dim(NamedTuple):
    """What one tensor dim is sharded over; an open one may be sharded further by the compiler."""

    parts: tuple[AxisPart, ...]
    is_open: bool


class _Piece(NamedTuple):
    """Digits of a mesh dim from `start` on: the extents in front of them, and their own."""

    name: str
    start: int
    extent: int


def tile_assignment(
    text: str, axes: Axes, dims: Sequence[Dim], others: Sequence[AxisPart]
) -> tuple[tuple[int, ...], Table]:
    """The tiles per tensor dim with the copies behind them, and the devices of the tiles.

    Args:
        text: the whole text, for errors.
        axes: the mesh.
        dims: what each tensor dim is sharded over.
        others: parts that the text says are replicated; what is not named is, too.

    Raises:
        NotationError: an open dim, an unknown mesh dim, parts that overlap or do not divide it.
    """
    for number, dim in enumerate(dims):
        if dim.is_open:
            _refuse(text, f"dim {number} is open: the compiler may shard it further", "no '?'")
    used = [part for dim in dims for part in dim.parts]
    pieces = _pieces(text, axes, [*used, *others])
    ordered, tiles = [], []
    for dim in dims:
        own = [piece for part in dim.parts for piece in _within(part, axes, pieces)]
        tiles.append(prod(piece.extent for piece in own))
        ordered += own
    rest = [piece for piece in pieces if piece not in ordered]
    order = [pieces.index(piece) for piece in [*ordered, *rest]]
    table = axes.devices.reshape([piece.extent for piece in pieces]).transpose(order)
    return (*tiles, prod(piece.extent for piece in rest)), table.reshape(-1)


def _refuse(text: str, wrong: str, expected: str) -> NoReturn:
    refuse("hlo_sharding", text, wrong, expected)


def _pieces(text: str, axes: Axes, parts: Sequence[AxisPart]) -> list[_Piece]:
    """The mesh dims cut wherever a part begins or ends, without extents of 1."""
    cuts = {name: {1, extent} for name, extent in axes.extents.items()}
    seen: list[AxisPart] = []
    for part in parts:
        extent = axes.extents.get(part.name)
        if extent is None:
            known = ", ".join(map(repr, axes.extents))
            _refuse(text, f"unknown mesh dim {part.name!r}", f"one of {known}")
        begin, end = _span(part, axes)
        empty = part.size is not None and (begin < 1 or end <= begin)
        if empty or extent % end or end % begin:
            _refuse(text, f"part {part} of a mesh dim of {extent}", "parts that divide it")
        if any(_overlap(part, other, axes) for other in seen):
            _refuse(text, f"mesh dim {part} twice", "once")
        seen.append(part)
        cuts[part.name] |= {begin, end}
    pieces = []
    for name, marks in cuts.items():
        for begin, end in pairwise(sorted(marks)):
            if end % begin:
                _refuse(text, f"parts of mesh dim {name!r} cut at {begin} and {end}", "a chain")
            pieces.append(_Piece(name, begin, end // begin))
    return pieces


def _span(part: AxisPart, axes: Axes) -> tuple[int, int]:
    """The extents in front of a part, without and with it."""
    if part.pre is None or part.size is None:
        return 1, axes.extents[part.name]
    return part.pre, part.pre * part.size


def _overlap(part: AxisPart, other: AxisPart, axes: Axes) -> bool:
    if part.name != other.name:
        return False
    (begin, end), (start, stop) = _span(part, axes), _span(other, axes)
    return None in (part.size, other.size) or (begin < stop and start < end)


def _within(part: AxisPart, axes: Axes, pieces: Sequence[_Piece]) -> list[_Piece]:
    begin, end = _span(part, axes)
    return [p for p in pieces if p.name == part.name and begin <= p.start < end]
