"""Linear maps over F2 on the bits of one axis, as XOR swizzles behind a permutation of bits.

A matrix is a list of columns; a column is an int whose bit i is the entry of row i.
"""

from __future__ import annotations

from collections.abc import Sequence

from axe_eq.layout.value.swizzle import Swizzle


def inverse(columns: Sequence[int]) -> list[int] | None:
    """The inverse of a square matrix, or None if it is singular."""
    work = list(columns)
    result = [1 << place for place in range(len(work))]
    for row in range(len(work)):
        pivot = next((at for at in range(row, len(work)) if work[at] >> row & 1), None)
        if pivot is None:
            return None
        for table in (work, result):
            table[row], table[pivot] = table[pivot], table[row]
        for at in range(len(work)):
            if at != row and work[at] >> row & 1:
                work[at] ^= work[row]
                result[at] ^= result[row]
    return result


def independent(columns: Sequence[int]) -> list[int]:
    """Positions of the first columns that are independent of the ones before them."""
    basis: list[int] = []
    chosen: list[int] = []
    for place, column in enumerate(columns):
        for vector in basis:
            column = min(column, column ^ vector)
        if column:
            basis.append(column)
            chosen.append(place)
    return chosen


def diagonal(columns: Sequence[int]) -> list[int]:
    """A row of each column, all different, where it has a one: so exists in a regular matrix."""
    owner: dict[int, int] = {}

    def assign(column: int, tried: set[int]) -> bool:
        for row in (row for row in range(len(columns)) if columns[column] >> row & 1):
            if row not in tried:
                tried.add(row)
                if row not in owner or assign(owner[row], tried):
                    owner[row] = column
                    return True
        return False

    for column in range(len(columns)):
        assign(column, set())
    rows = {column: row for row, column in owner.items()}
    return [rows[column] for column in range(len(columns))]


def swizzles(columns: Sequence[int], axis: str) -> list[Swizzle]:
    """Swizzles, written order, whose product is a regular matrix.

    Gauss-Jordan elimination by additions of rows alone; each addition is a swizzle of one bit, and
    neighbouring ones are joined.
    """
    rows = _transposed(columns)
    additions: list[tuple[int, int]] = []  # (target, source)

    def add(target: int, source: int) -> None:
        rows[target] ^= rows[source]
        additions.append((target, source))

    for place in range(len(rows)):
        if not rows[place] >> place & 1:
            add(place, next(at for at in range(place + 1, len(rows)) if rows[at] >> place & 1))
        for target in range(len(rows)):
            if target != place and rows[target] >> place & 1:
                add(target, place)
    return _joined(additions, axis)


def _transposed(columns: Sequence[int]) -> list[int]:
    return [
        sum((column >> row & 1) << place for place, column in enumerate(columns))
        for row in range(len(columns))
    ]


def _joined(additions: Sequence[tuple[int, int]], axis: str) -> list[Swizzle]:
    joined: list[Swizzle] = []
    for target, source in additions:
        shift, base = source - target, min(source, target)
        if joined:
            last = joined[-1]
            if last.shift == shift and last.base + last.bits == base and last.bits < abs(shift):
                joined[-1] = last._replace(bits=last.bits + 1)
                continue
        joined.append(Swizzle(axis, 1, base, shift))
    return joined
