"""Swizzles of maps whose coordinates XOR the bits of an index together, by Gaussian elimination.

Where every bit of an index changes a set of bits of the coordinates, whatever the other bits are,
those sets are the columns of a matrix over GF(2), and so is a product of swizzles a matrix. Each
column gets a bit of its own, its pivot; the matrix that takes the pivots to the columns is a
product of two triangular ones, and their diagonals are swizzles. Nothing is tried, and nothing but
the map is looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import product

import numpy as np
from numpy.typing import NDArray

from axe_eq.layout.value.swizzle import MAX_BIT, Swizzle

Points = NDArray[np.int64]
Stack = tuple[Swizzle, ...]


def eliminated(points: Points, axes: Sequence[str]) -> Iterator[Stack]:
    """Stacks of swizzles that may leave a list of a map: those with few swizzles first.

    What is left has to be looked at: a digit that is no power of two needs neighbouring pivots.

    Args:
        points: ``[size, copies, axes]``.
        axes: the axis of each column.
    """
    bases = _copies(points)
    columns = None if bases is None else _columns(_reduced(points, bases))
    if bases is None or columns is None:
        return
    width = int(max(points.max(), ~points.min())).bit_length() + 1  # with the sign
    choices = []
    mask = (1 << width) - 1
    for place, axis in enumerate(axes):
        # Those that change few bits first: then they are not moved for others that change the same.
        moved = sorted([vector & mask for vector in columns[place]], key=int.bit_count)
        copies = [vector & mask for vector in bases[place]]
        choices.append(stacks(axis, [*copies, *moved], width))
    for choice in product(*choices):
        yield tuple(sw for stack in choice for sw in stack)


# ---- the matrix of a map -------------------------------------------------------------------------


def _copies(points: Points) -> list[list[int]] | None:
    """Per axis what the copies of element 0 are apart, a basis, or None: they are no such space."""
    bases = []
    count = 1
    for place in range(points.shape[2]):
        apart = np.unique(points[0, :, place] ^ points[0, 0, place]).tolist()
        basis: list[int] = []
        for vector in apart:
            for known in basis:
                vector = min(vector, vector ^ known, key=_size)
            if vector:
                basis = [min(known, known ^ vector, key=_size) for known in basis] + [vector]
                basis.sort(key=_size, reverse=True)
        bases.append(sorted(basis, key=_size))
        count <<= len(basis)
    return bases if count == points.shape[1] else None


def _size(vector: int) -> tuple[bool, int]:
    return vector < 0, vector  # the sign is the highest bit


def _reduced(points: Points, bases: Sequence[Sequence[int]]) -> Points | None:
    """One of the copies of every element, ``[size, axes]``, or None: they differ in other ways."""
    points = points.copy()
    for place, basis in enumerate(bases):
        for vector in reversed(basis):
            lead = 63 if vector < 0 else vector.bit_length() - 1
            column = points[:, :, place]
            column[(column >> lead & 1) != 0] ^= vector
    same: bool = (points == points[:, :1]).all()
    return points[:, 0] if same else None


def _columns(table: Points | None) -> list[list[int]] | None:
    """Per axis what the bits of the digits of the index change, fast to slow, without zeros.

    None where that depends on other bits, or a bit moves along several axes.
    """
    digits = None if table is None else _digits(table)
    if table is None or digits is None:
        return None
    columns: list[list[int]] = [[] for _ in range(table.shape[1])]
    for level, extent in digits:
        for bit in range((extent - 1).bit_length()):
            vector = (table[level << bit] ^ table[0]).tolist()
            moved = [place for place, change in enumerate(vector) if change]
            if len(moved) > 1:
                return None
            for place in moved:
                columns[place].append(vector[place])
    return columns


def _digits(table: Points) -> list[tuple[int, int]] | None:
    """The digits of the index whose bits act on ``[size, axes]`` by themselves: (level, extent).

    None where a digit ends at an index that is no level.
    """
    size = len(table)
    digits: list[tuple[int, int]] = []
    level = start = 1
    while start < size:
        end = min(2 * start, size)
        change = table[start] ^ table[0]
        wrong = ((table[start:end] ^ table[: end - start]) != change).any(axis=1)
        if wrong.any():
            at = start + int(np.argmax(wrong))
            if at % level or size % at:
                return None
            digits.append((level, at // level))
            level = start = at
        else:
            start *= 2
    return [*digits, (level, size // level)]


# ---- the swizzles of a matrix --------------------------------------------------------------------


def stacks(axis: str, vectors: Sequence[int], width: int) -> list[Stack]:
    """Products of swizzles that take single bits to the vectors, the least one first.

    Args:
        axis: the axis that the swizzles act on.
        vectors: below ``2**width``; none if they depend on each other.
        width: bits of a vector; the highest is the sign, which no swizzle changes.
    """
    found: set[Stack] = set()
    for down, fill in product((True, False), (0, 1, -1)):
        factors = _factors(vectors, width, down, fill)
        if factors is None:
            continue
        for order in product((True, False), repeat=2):
            outer, inner = (
                _swizzles(axis, factor, down == (place == 0), first)
                for place, (factor, first) in enumerate(zip(factors, order, strict=True))
            )
            found.add((*outer, *inner))

    def cost(stack: Stack) -> tuple[int, int, Stack]:
        return len(stack), max((sw.reach for sw in stack), default=0), stack

    return [stack for stack in sorted(found, key=cost) if cost(stack)[1] <= MAX_BIT]


def _factors(
    vectors: Sequence[int], width: int, down: bool, fill: int
) -> tuple[list[int], list[int]] | None:
    """Two triangular matrices whose product takes the pivots to the vectors, as columns.

    Args:
        vectors: as for `stacks`.
        width: likewise.
        down: pivots are the highest bits, and the first matrix adds bits to lower ones; else
            they are the lowest and it adds bits to higher ones. The second one does the opposite.
        fill: what the first matrix does to bits that are no pivots but lie between them: nothing,
            or the same as to the next lower (1) or higher (-1) bit, which makes fields longer.

    Returns:
        The matrices, or None: the vectors depend on each other, or the sign would be changed.
    """
    lead: Callable[[int], int] = _highest if down else _lowest
    outer, inner = ([1 << bit for bit in range(width)] for _ in range(2))
    pivots: set[int] = set()
    for vector in vectors:
        mixed = 0
        while vector and (pivot := lead(vector)) in pivots:
            vector ^= outer[pivot]
            mixed |= 1 << pivot
        if not vector:
            return None
        pivots.add(pivot)
        outer[pivot] = vector
        inner[pivot] |= mixed
    between = range(min(pivots, default=0) + 1, max(pivots, default=0)) if fill else range(0)
    for bit in between[:: fill or 1]:
        if bit not in pivots:
            outer[bit] = outer[bit - 1] << 1 if fill > 0 else outer[bit + 1] >> 1
    sign = width - 1
    if any(part[bit] >> sign for part in (outer, inner) for bit in range(sign)):
        return None
    return outer, inner


def _highest(vector: int) -> int:
    return vector.bit_length() - 1


def _lowest(vector: int) -> int:
    return (vector & -vector).bit_length() - 1


def _swizzles(axis: str, columns: Sequence[int], down: bool, first: bool) -> Stack:
    """Swizzles, written order, whose product is a triangular matrix with ones on the diagonal.

    Args:
        axis: the axis that they act on.
        columns: the matrix.
        down: it adds bits to lower ones.
        first: short shifts act first, else last.
    """
    top = len(columns) - 1
    work = list(columns) if down else [_mirrored(column, top) for column in reversed(columns)]
    found: list[Stack] = []
    for shift in range(1, len(work)):
        targets = [bit for bit in range(len(work) - shift) if work[bit + shift] >> bit & 1]
        for bit in targets if first else reversed(targets):
            if first:
                work[bit + shift] ^= work[bit]
            else:
                work = [column ^ (column >> shift & 1 << bit) for column in work]
        fields = []
        for start, end in _runs(
            targets
        ):  # what lies low acts first: it may read what others change
            base, bits = start, end - start
            if not down:
                base = top - shift - (end - 1)
            fields.append(Swizzle(axis, bits, base, shift if down else -shift))
        found.append(tuple(reversed(fields)))
    return tuple(sw for part in (reversed(found) if first else found) for sw in part)


def _mirrored(column: int, top: int) -> int:
    return sum(1 << top - bit for bit in range(top + 1) if column >> bit & 1)


def _runs(bits: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The runs of ascending numbers as ``(start, end)``."""
    start = 0
    for place in range(1, len(bits) + 1):
        if place == len(bits) or bits[place] != bits[place - 1] + 1:
            yield bits[start], bits[place - 1] + 1
            start = place
