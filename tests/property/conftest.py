"""Campaigns that count what they met."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from axe_eq.layout import Layout
from tests.property.layout_model import LINEAR, Maker, classes_of

CASES = 20_000  # per operation under --full; 2 % of them otherwise
SHARE = 20  # every class of an operation has at least CASES / SHARE cases


class Campaign:
    """Counts what a test met, and requires every class to have its share."""

    def __init__(self, name: str, full: bool, classes: set[str], part: int) -> None:
        self.name, self.total = name, CASES if full else CASES // part
        self.classes = classes
        self.made = Maker(sum(map(ord, name)))
        self.seen: Counter[str] = Counter()

    def cases(self) -> Iterator[Maker]:
        for _ in range(self.total):
            yield self.made
        self.report()

    def saw(self, *classes: str) -> None:
        self.seen.update(classes)

    def met(self, *layouts: Layout) -> None:
        """Count the classes of layouts, once per case."""
        self.seen.update(set().union(*map(classes_of, layouts)))

    def report(self) -> None:
        print(f"\n{self.name}: {self.total} cases")
        for name, count in sorted(self.seen.items()):
            print(f"  {count:6} {name}")
        short = {name for name in self.classes if self.seen[name] * SHARE < self.total}
        assert not short, f"{self.name}: too few cases of {short}"


@pytest.fixture
def campaign(full: bool) -> Callable[..., Campaign]:
    """`campaign(name, *classes)`: random cases that print a histogram.

    One in `part` of them runs unless --full. Every class named must have its share, and every
    awkward class of linear layouts unless `every` is False.
    """

    def start(name: str, *classes: str, every: bool = True, part: int = 50) -> Campaign:
        return Campaign(name, full, {*classes, *(LINEAR if every else ())}, part)

    return start
