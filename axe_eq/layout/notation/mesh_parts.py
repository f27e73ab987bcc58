"""Parts of mesh dims, over which texts of XLA and of Shardy shard tensor dims: ``'y':(p)s``.

That is, of the digits of mesh dim y, slow to fast, the one of extent s behind those that multiply
to p; without numbers all of y. What no tensor dim names replicates.

Source: the texts of ``xla::NamedSharding`` and ``xla::Mesh``; Shardy, "Sharding representation".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from lark import Token, v_args

from axe_eq.layout.notation.text import Reader, refuse


class Part(NamedTuple):
    """A part of a mesh dim: extents `pre` in front of it, and `size`; both None for all of it."""

    name: str
    pre: int | None = None
    size: int | None = None

    def shown(self, quote: str) -> str:
        """Its text, the name in such quotes."""
        digits = "" if self.size is None else f":({self.pre}){self.size}"
        return f"{quote}{self.name}{quote}{digits}"

    def span(self, extent: int) -> tuple[int, int]:
        """The extents in front of the part, without and with it, of a dim of this extent."""
        return (
            (1, extent)
            if self.pre is None or self.size is None
            else (self.pre, self.pre * self.size)
        )


class Dim(NamedTuple):
    """What one tensor dim is sharded over; an open one may be sharded further by the compiler."""

    parts: tuple[Part, ...]
    is_open: bool


@v_args(inline=True)
class PartReader(Reader):
    """A reader of parts, and of what tensor dims are sharded over."""

    part = Part

    def dim(self, *items: Part | Token | None) -> Dim:
        """The parts of one tensor dim, and whether it is open."""
        parts = tuple(item for item in items if isinstance(item, Part))
        return Dim(parts, any(getattr(item, "type", "") == "OPEN" for item in items))


class Piece(NamedTuple):
    """Digits of a mesh dim from `start` on: the extents in front of them, and their own."""

    name: str
    start: int
    extent: int


def pieces_of(
    extents: Mapping[str, int], dims: Sequence[Dim], others: Sequence[Part], quote: str
) -> tuple[list[Piece], list[list[Piece]]]:
    """The mesh dims cut wherever a part begins or ends, and the pieces of each tensor dim.

    Args:
        extents: mesh dim -> extent, slow to fast.
        dims: what each tensor dim is sharded over.
        others: parts that the text names otherwise.
        quote: what names stand in.

    Raises:
        NotationError: an open dim, an unknown mesh dim, parts that overlap or do not divide it.
    """
    for number, dim in enumerate(dims):
        if dim.is_open:
            wrong = f"dim {number} is open: the compiler may shard it further"
            refuse(wrong, "no '?'")
    cuts = {name: {1, extent} for name, extent in extents.items()}
    seen: list[tuple[str, int, int]] = []
    for part in (*(part for dim in dims for part in dim.parts), *others):
        shown = part.shown(quote)
        if part.name not in extents:
            known = ", ".join(f"{quote}{name}{quote}" for name in extents)
            refuse(f"unknown mesh dim {Part(part.name).shown(quote)}", f"one of {known}")
        extent = extents[part.name]
        begin, end = part.span(extent)
        empty = begin < 1 or (part.size is not None and end <= begin)
        if empty or extent % end or end % begin:
            refuse(f"part {shown} of a mesh dim of {extent}", "parts that divide it")
        own = [(start, stop) for name, start, stop in seen if name == part.name]
        if (begin, end) in own or any(start < end and begin < stop for start, stop in own):
            refuse(f"mesh dim {shown} twice", "once")
        seen.append((part.name, begin, end))
        cuts[part.name] |= {begin, end}
    pieces: list[Piece] = []
    for name, marks in cuts.items():
        for begin, end in pairwise(sorted(marks)):
            if end % begin:
                wrong = f"parts of mesh dim {quote}{name}{quote} cut at {begin} and {end}"
                refuse(wrong, "a chain")
            pieces.append(Piece(name, begin, end // begin))
    return pieces, [
        [piece for part in dim.parts for piece in _within(part, extents[part.name], pieces)]
        for dim in dims
    ]


def _within(part: Part, extent: int, pieces: Sequence[Piece]) -> list[Piece]:
    begin, end = part.span(extent)
    return [p for p in pieces if p.name == part.name and begin <= p.start < end]
