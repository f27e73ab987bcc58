"""Layouts in which a value may be kept in memory: the data that targets choose from.

A value is kept in rows along one of its dims, the others in order. Rows follow each other, or,
where they would then begin askew and it costs little, begin at multiples of what vector accesses
and bulk copies move.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from axe_eq.errors import PackError
from axe_eq.layout import Layout
from axe_eq.program.types import ValueType
from axe_eq.schedule.terms import row_major

# Lines of memory, and what vector accesses and bulk copies of every machine here move at least.
ROW_BYTES = (128, 16)
MOST_PADDED = 1.125  # of a dense row
PADDED, TURNED = "padded", "turned"
KINDS = {
    PADDED: "rows that begin at multiples of 128 bytes, else of 16, an eighth longer at most",
    TURNED: "rows along any dim, the others in order",
}


class Kept(NamedTuple):
    """A layout of a value.

    Attributes:
        turn: the dim that its rows run along, counted from the last.
        layout: its canonical text.
    """

    turn: int
    layout: str


def kept_layouts(type: ValueType, kinds: Collection[str]) -> tuple[Kept, ...]:
    """Layouts of a value: dense row-major first, then what these kinds allow, each once.

    Raises:
        PackError: no such kind.
    """
    if strange := sorted(set(kinds) - KINDS.keys()):
        raise PackError(f"kept layouts {strange[0]!r}", "are of no kind", " ".join(KINDS))
    found = {row_major(type.size): 0}
    for turn in range(type.rank if TURNED in kinds else 1):
        for pitch in _pitches(type, turn, padded=PADDED in kinds):
            found.setdefault(str(_rows(type, turn, pitch).canonical()), turn)
    return tuple(Kept(turn, layout) for layout, turn in found.items())


def _pitches(type: ValueType, turn: int, *, padded: bool) -> list[int]:
    """How far apart rows may be."""
    if not type.shape:
        return []
    columns = type.shape[-1 - turn]
    if not padded or columns == type.size:
        return [columns]
    ways = (-(-columns * type.itemsize // n) * n // type.itemsize for n in ROW_BYTES)
    apart = next((n for n in ways if n <= columns * MOST_PADDED), columns)
    return [columns, apart] if apart > columns else [columns]


def _rows(type: ValueType, turn: int, pitch: int) -> Layout:
    """Rows along a dim, so many elements apart."""
    dim, steps, step = type.rank - 1 - turn, {}, pitch
    for other in reversed(range(type.rank)):
        if other != dim:
            steps[other], step = step, step * type.shape[other]
    steps[dim] = 1
    return Layout([(extent, steps[d]) for d, extent in enumerate(type.shape)])
