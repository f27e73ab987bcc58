"""Answers that depend on a set by a few of its members, found again for every set alike in those.

Sets and their parts are integers: bit n says that n is a member.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")


def bits(members: Iterable[int]) -> int:
    """The set of these members.

    >>> bin(bits([0, 3]))
    '0b1001'
    """
    found = 0
    for member in members:
        found |= 1 << member
    return found


def members(of: int) -> list[int]:
    """The members of a set, the least first.

    >>> members(0b1001)
    [0, 3]
    """
    found = []
    while of:
        lowest = of & -of
        found.append(lowest.bit_length() - 1)
        of ^= lowest
    return found


class Recall(Generic[T]):
    """Remembered answers.

    >>> known = Recall[str](most=8)
    >>> known.keep(7, met=0b011, members=0b101, answer="without 1")
    >>> known.find(7, 0b001)  # 2 was not looked at
    'without 1'
    >>> known.find(7, 0b011)  # 1 was

    Args:
        most: answers kept of one question; where there are more, all of them are forgotten. 0 keeps
            none.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: dict[int, dict[int, dict[int, T]]] = {}
        self._count: dict[int, int] = {}

    def find(self, question: int, members: int) -> T | None:
        """The answer to a question for a set; None where it is not known."""
        for met, answers in self._known.get(question, {}).items():
            found = answers.get(met & members)
            if found is not None:
                return found
        return None

    def keep(self, question: int, *, met: int, members: int, answer: T) -> None:
        """Remember an answer that looked at the members `met` of a set, and at no others."""
        if not self._most:
            return
        count = self._count.get(question, 0)
        if count == self._most:
            del self._known[question]
            count = 0
        self._known.setdefault(question, {}).setdefault(met, {})[met & members] = answer
        self._count[question] = count + 1
