"""Layouts in which a value may be kept in memory: the data that targets choose from.

A value is kept in rows along one of its dims, the others in order. Rows follow each other, or,
where they would then begin askew and it costs little, begin at multiples of what vector accesses
and bulk copies move. Or it is kept in blocks: dims are split, and their parts lie in an order of
their own, which is a text of the target.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from functools import cache
from typing import NamedTuple

from axe_eq.errors import PackError
from axe_eq.layout import Layout
from axe_eq.program.types import ValueType
from axe_eq.schedule.terms import row_major

# Runs that are as good as longer ones: of a DMA whose rate is halved by runs of 16 bytes they have
# 97 %, and they are whole lines of memory.
LONG_RUN_BYTES = 512
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


Part = tuple[int, int, bool]
"""A dim, counted from the last; indices of a block of it, 0 where it is whole; the index in one."""
_PART = re.compile(r"(\d+)(?:([/%])(\d+))?")
_FORM = "a form of blocks such as '0/128 1 0%128'"


def kept_layouts(type: ValueType, kinds: Collection[str]) -> tuple[Kept, ...]:
    """Layouts of a value: dense row-major first, then what these kinds allow, each once.

    A kind is one of `KINDS`, or a form of blocks: parts of dims, slow to fast. ``0`` is the last
    dim, ``1`` the one before; ``0/128`` is the number of a block of 128 indices, ``0%128`` the
    index in it. Dims that a form does not name are slower, in order. It is for values whose dims
    its blocks divide. One that keeps dense rows is for short rows alone: others gain nothing.

    >>> from axe_eq.program.types import value_type
    >>> panels = kept_layouts(value_type("f16[64,512]"), ("0/128 1 0%128",))
    >>> [kept.layout for kept in panels]
    ['S[(32768):(1@m)]', 'S[(64,4,128):(128@m,8192@m,1@m)]']

    Raises:
        PackError: no such kind.
    """
    found = {row_major(type.size): 0}
    for turn in range(type.rank if TURNED in kinds else 1):
        for pitch in _pitches(type, turn, padded=PADDED in kinds):
            found.setdefault(str(_rows(type, turn, pitch).canonical()), turn)
    for form in kinds:
        if form not in KINDS and (layout := _in_blocks(type, blocks_of(form))) is not None:
            found.setdefault(str(layout.canonical()), blocks_of(form)[-1][0])
    return tuple(Kept(turn, layout) for layout, turn in found.items())


@cache
def blocks_of(form: str) -> tuple[Part, ...]:
    """The parts of a form of blocks, slow to fast.

    Raises:
        PackError: it is none: something else, a part named twice, or a number without its index.
    """
    matches = [_PART.fullmatch(word) for word in form.split()]
    parts = tuple((int(m[1]), int(m[3] or 0), m[2] == "%") for m in matches if m)
    cut: dict[int, list[tuple[int, bool]]] = {}
    for dim, size, inner in parts:
        cut.setdefault(dim, []).append((size, inner))
    whole = all(
        of == [(0, False)] or (len(of) == 2 and of[0][0] == of[1][0] > 0 and of[0][1] != of[1][1])
        for of in cut.values()
    )
    if None in matches or not parts or not whole:
        expected = f"{' '.join(KINDS)}, or {_FORM}"
        raise PackError(f"kept layouts {form!r}", "are of no kind", expected)
    return parts


def _in_blocks(type: ValueType, parts: Sequence[Part]) -> Layout | None:
    """A value in blocks; None where it has too few dims, or blocks that end inside them.

    Nor where it keeps dense rows that are long already.
    """
    if parts[-1] == (0, 0, False) and type.shape[-1:] >= (-(-LONG_RUN_BYTES // type.itemsize),):
        return None
    if any(d >= type.rank or type.shape[-1 - d] % (n or 1) for d, n, _ in parts):
        return None
    named = {d for d, *_ in parts}
    order = [(d, 0, False) for d in reversed(range(type.rank)) if d not in named]
    strides, step = dict[Part, int](), 1
    for part in reversed([*order, *parts]):
        dim, size, inner = part
        strides[part] = step
        step *= size if inner else type.shape[-1 - dim] // (size or 1)
    shard = []
    for d in reversed(range(type.rank)):
        for dim, size, inner in sorted(p for p in strides if p[0] == d):  # numbers before indices
            extent = size if inner else type.shape[-1 - dim] // (size or 1)
            shard.append((extent, strides[dim, size, inner]))
    return Layout(shard)


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
