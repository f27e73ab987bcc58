"""Linear maps over F2: matrices as lists of columns, ints whose bit i is the entry of row i."""

from __future__ import annotations

from collections.abc import Sequence


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
