"""Last tiles of operands, of which little is there: what is copied of them, and when.

What bulk copies fill in past the end of a tensor is slower than what they read, on all units
together: of 129 rows in tiles of 64 the last one took 1.6 times as long as the others.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

from axe_eq.kernel.expr import Int

# Rows of a K-major operand that are one period of every swizzle.
PERIOD_ROWS = 8
PART_ROWS = 64  # a part of a shared operand tile is whole periods of its swizzle, in any form
COPY_ROWS = 4  # of an operand, which take as long as one copy more


class Tail(NamedTuple):
    """What is copied of an operand's last tile: so many copies of so many rows."""

    rows: int
    copies: int


class Side(NamedTuple):
    """A side of a tile: its letter, where the tile begins, the side's extent and the tile's."""

    name: str
    begin: Int
    extent: Int
    tile: int


class End(NamedTuple):
    """A kind of tile: conditions, the sides on which it is the last, and if slots are unfilled."""

    conditions: tuple[Int, ...]
    last: frozenset[str]
    is_first: bool


def tail_of(extent: Int, tile: int, k_major: bool) -> Tail | None:
    """How the last tile of an operand is copied; None where that is like all others.

    >>> tail_of(129, 64, True)
    Tail(rows=8, copies=1)
    """
    if not isinstance(extent, int) or not (rest := extent % tile):
        return None
    sizes = [PERIOD_ROWS << n for n in range(4)] if k_major else [PART_ROWS]
    ways = [Tail(n, -(-rest // n)) for n in sizes if tile % n == 0]
    found = [way for way in ways if way.rows * way.copies < tile]
    return min(found, key=lambda way: (way.rows + COPY_ROWS) * way.copies, default=None)


def ends(sides: Sequence[Side], filled: Int, stages: int) -> Iterator[End]:
    """Every kind of tile, one of which each is.

    Args:
        sides: those whose last tile is copied in another way.
        filled: how many slots hold values.
        stages: how many there are.
    """
    for are in product((False, True), repeat=len(sides)):
        which = [*zip(sides, are, strict=True)]
        last = frozenset(side.name for side, is_last in which if is_last)
        conditions = tuple(
            s.begin > s.extent - s.tile if is_last else s.begin < s.extent - s.tile + 1
            for s, is_last in which
        )
        if not last:
            yield End(conditions, last, False)
            continue
        yield End((*conditions, filled < stages), last, True)
        yield End((*conditions, filled > stages - 1), last, False)
