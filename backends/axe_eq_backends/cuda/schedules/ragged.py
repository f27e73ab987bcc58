"""Last tiles of operands, of which little is there: what is copied of them, and when.

What bulk copies fill in past the end of a tensor is slower than what they read, on all units
together: of 129 rows in tiles of 64 the last one took 1.6 times as long as the others. One copy of
the rows that are there is not: several of fewer rows are, at 37 ns each (H200, 2026-11-24). So a
last tile is copied whole until every slot holds values, and then what is there of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

from axe_eq.kernel.expr import Int

# Rows of a K-major operand that are one period of every swizzle.
PERIOD_ROWS = 8
PART_ROWS = 64  # of an operand that is contiguous along its rows, in any form


class Side(NamedTuple):
    """A side of a tile: its letter, where the tile begins, the side's extent and the tile's."""

    name: str
    begin: Int
    extent: Int
    tile: int


class End(NamedTuple):
    """A kind of tile: conditions on it, and the sides of which only what is there is copied."""

    conditions: tuple[Int, ...]
    last: frozenset[str]


def tail_of(extent: Int, tile: int, k_major: bool) -> int | None:
    """Rows that are copied of an operand's last tile; None where that is like all others.

    >>> tail_of(129, 64, True)
    8
    """
    if not isinstance(extent, int) or not (rest := extent % tile):
        return None
    step = PERIOD_ROWS if k_major else PART_ROWS
    rows = -(-rest // step) * step
    return rows if rows < tile else None


def ends(sides: Sequence[Side], filled: Int, stages: int) -> Iterator[End]:
    """Every kind of tile, one of which each is.

    Args:
        sides: those whose last tile is copied in another way.
        filled: how many slots hold values.
        stages: how many there are.
    """
    if not sides:
        yield End((), frozenset())
        return
    yield End((filled < stages,), frozenset())
    for are in product((False, True), repeat=len(sides)):
        which = [*zip(sides, are, strict=True)]
        conditions = [
            s.begin > s.extent - s.tile if is_last else s.begin < s.extent - s.tile + 1
            for s, is_last in which
        ]
        last = frozenset(side.name for side, is_last in which if is_last)
        yield End((filled > stages - 1, *conditions), last)
