"""Where elements lie in layouts that no strides describe, as integer cells: blocks and their ends.

A kernel reads such a value as it reads where integers say: every digit of the layout is a dim whose
index is computed from that of the value. What stores one runs over the places of its memory, and
works out whose they are; past an end of the value the nearest element's, so padding is filled.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from axe_eq.kernel.cells import Cell, Constant, apply
from axe_eq.layout import Layout
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.lower.formulas import Looked

Digit = tuple[Cell, int]  # an index, and what it is below

_MOST = (1 << 31) - 1
_ZERO = Constant(0, "i32")


def looks_of(layout: Layout, index: Sequence[Cell], shape: Sequence[int]) -> list[Looked] | None:
    """The dims of a memory that say where a value in a layout lies, as integers of its index.

    Args:
        layout: on the memory's one axis; of copies the first is read.
        index: per dim an integer inside the value.
        shape: its extents.

    Returns:
        None where 32 bits do not count the elements.
    """
    digits = list(zip(index, shape, strict=True))
    for box, padded, order in _boxes(layout):
        came = redigited(digits, box if not order else _incoming(box, order))
        digits = [came[n] for n in order] if order else came
        digits = [(c, wide) for (c, _), wide in zip(digits, padded, strict=True)]
    if prod(e for _, e in digits) > _MOST:
        return None
    placed = redigited(digits, [e for e, _, _ in layout.shard])
    begin = layout.offset.get(DEFAULT_AXIS, 0)
    steps = [(c, e, s) for (c, e), (_, s, _) in zip(placed, layout.shard, strict=True) if s]
    if not layout.swizzle:
        return [Looked(c, "i32", s, e) for c, e, s in steps if e > 1]
    at: Cell | None = None
    for cell, _, step in steps:
        moved = _times(cell, step)
        at = moved if at is None else apply("add", at, moved)
    if at is None:
        return []
    at = apply("add", at, begin) if begin else at
    for sw in reversed(layout.swizzle):
        field = apply("bit_and", at, sw.mask)
        field = apply("shr" if sw.shift > 0 else "shl", field, abs(sw.shift))
        at = apply("bit_xor", at, field)
    return [Looked(at, "i32", 1, layout.range(DEFAULT_AXIS)[1] + 1)]


def elements_of(layout: Layout, places: Sequence[Cell], shape: Sequence[int]) -> list[Cell]:
    """The index of the element at a place of a layout, the nearest one where padding lies.

    Args:
        layout: without swizzles and copies.
        places: per iter of its shard an index.
        shape: extents of the value.
    """
    digits = [(c, e) for c, (e, _, _) in zip(places, layout.shard, strict=True)]
    for box, padded, order in reversed(_boxes(layout)):
        wide = redigited(digits, padded)
        inside = [(_at_most(c, e - 1) if p > e else c, e)
                  for (c, p), e in zip(wide, box, strict=True)]  # fmt: skip
        digits = [inside[order.index(d)] for d in range(len(order))] if order else inside
    return [c for c, _ in redigited(digits, shape)]


def redigited(digits: Sequence[Digit], extents: Sequence[int]) -> list[Digit]:
    """An index in digits of other extents, slow to fast, of the same number of indices.

    >>> from axe_eq.kernel.cells import arg
    >>> [str(c) for c, _ in redigited([(arg(0), 8)], (2, 4))]
    ['floor_divide(x0, 4)', 'remainder(x0, 4)']
    """
    rest, found = [d for d in digits if d[1] > 1], list[Digit]()
    for extent in reversed(extents):
        cell, below = None, 1
        while extent > 1 and rest and (below < extent or below % extent):
            more, n = rest.pop()
            moved = _times(more, below)
            cell, below = moved if cell is None else apply("add", moved, cell), below * n
        if cell is None:
            found.append((_ZERO, extent))
            continue
        if below > extent:
            rest.append((apply("floor_divide", cell, extent), below // extent))
            cell = apply("remainder", cell, extent)
        found.append((cell, extent))
    return found[::-1]


def _boxes(layout: Layout) -> list[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]]:
    """Boxes, what they are padded to, and how dims are reordered before, outermost first."""
    if layout.box is None or layout.padded is None:
        return []
    return [(layout.box, layout.padded, ()), *layout.inner]


def _incoming(box: Sequence[int], order: Sequence[int]) -> list[int]:
    return [box[order.index(d)] for d in range(len(order))]


def _times(cell: Cell, factor: int) -> Cell:
    return cell if factor == 1 else apply("mul", cell, factor)


def _at_most(cell: Cell, most: int) -> Cell:
    return apply("minimum", cell, most)
