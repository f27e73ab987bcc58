"""How a block operator over digits reads its operands, and digits that it reads as one number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations

from axe_eq.rule.term import Term
from axe_eq_rules.digits import shape

Read = tuple[dict[int, int], int]  # digit -> coefficient, offset


@dataclass
class Reads:
    """A block operator over digits, while it is made.

    Attributes:
        cores: operands.
        reads: per operand, per dim of its core, digit -> coefficient, and an offset.
        out: digits of the value.
        reduced: digits that are reduced.
        extents: of all digits.
    """

    cores: list[Term]
    reads: list[list[Read]]
    out: list[int]
    reduced: list[int]
    extents: dict[int, int]

    def join(self, slow: int, fast: int, step: int, n: int) -> None:
        """Make of two digits the slow one, of this extent; operands read it in steps of these."""
        self.extents = {**self.extents, slow: n}
        for operand in self.reads:
            for coefficients, _ in operand:
                if fast in coefficients:
                    coefficients[slow] = coefficients.pop(fast) // step


def fits(read: Read, extent: int, extents: Mapping[int, int]) -> bool:
    """Whether a signature can say this read: a plain one is of a whole dim."""
    coefficients, offset = read
    if offset or len(coefficients) != 1 or next(iter(coefficients.values())) != 1:
        return True
    return extents[next(iter(coefficients))] == extent


def fuse(made: Reads) -> dict[int, list[int]]:
    """Digits that are always read as one number become one: the slowest -> all of them."""
    members = {d: [d] for d in (*made.out, *made.reduced)}
    while (pair := _pair(made)) is not None:
        slow, fast = pair
        made.join(slow, fast, 1, made.extents[slow] * made.extents[fast])
        (made.out if fast in made.out else made.reduced).remove(fast)
        members[slow] += members.pop(fast)
    return members


def _pair(made: Reads) -> tuple[int, int] | None:
    """Two digits of one kind that all operands read as one number, if at all."""
    for digits in (made.out, made.reduced):
        for slow, fast in permutations(digits, 2):
            unread = slow in made.reduced and slow < fast and not _met(made, slow, fast)
            if unread or (_steps(made, slow, fast) or ())[:2] == (made.extents[fast], 1):
                return slow, fast
    return None


def overlapping(made: Reads) -> dict[int, dict[int, int]]:
    """Digits of the value that operands read as one number alone, as 2b+c, become this number.

    Only where it has fewer values than they have together: what is computed of windows that overlap
    is then windows of what is computed once.

    Returns:
        Digits of the value now -> the numbers that they are: step of every digit before.
    """
    found = {d: {d: 1} for d in made.out}
    while (pair := _overlap(made, list(found))) is not None:
        slow, fast, a, b, n = pair
        made.join(slow, fast, b, n)
        other = found.pop(fast)
        found[slow] = {d: a * c for d, c in found[slow].items()} | {
            d: b * c for d, c in other.items()
        }
        made.out = list(found)
    return found


def _overlap(made: Reads, digits: list[int]) -> tuple[int, int, int, int, int] | None:
    for slow, fast in permutations(digits, 2):
        steps = _steps(made, slow, fast)
        if steps is not None and steps[2] < made.extents[slow] * made.extents[fast]:
            return slow, fast, *steps
    return None


def _met(made: Reads, slow: int, fast: int) -> list[tuple[Read, int]]:
    """How dims of operands are read that are read by either digit, and their extents."""
    return [
        (read, extent)
        for core, operand in zip(made.cores, made.reads, strict=True)
        for read, extent in zip(operand, shape(core), strict=True)
        if slow in read[0] or fast in read[0]
    ]


def _steps(made: Reads, slow: int, fast: int) -> tuple[int, int, int] | None:
    """Steps a and b where operands read two digits as a * slow + b * fast alone, and its extent."""
    met = _met(made, slow, fast)
    ratios = {Fraction(own.get(slow, 0), own[fast]) for (own, _), _ in met if fast in own}
    if len(ratios) != 1 or min(ratios) <= 0 or any(fast not in own for (own, _), _ in met):
        return None
    a, b = ratios.pop().as_integer_ratio()
    n = a * (made.extents[slow] - 1) + b * (made.extents[fast] - 1) + 1
    known = {**made.extents, slow: n}
    for (own, at), extent in met:
        joined = {d: c for d, c in own.items() if d != fast} | {slow: own[fast] // b}
        if not fits((joined, at), extent, known):
            return None
    return a, b, n
