"""The kernels that the outputs need, counted while single values flip.

A trial flips a few values of thousands, so its cost is the present one with the changed kernels
taken off and put on: every live kernel knows how many others load what it writes, as in reference
counting. A full walk is only needed to start from and after dead values are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field

from axe_eq.extract.search.selection import Mapped
from axe_eq.walk import in_order

TOLERANCE_S = 1e-15


@dataclass(frozen=True, order=True)
class Cost:
    """What a schedule costs: values that nothing implements count before any time.

    Attributes:
        missing: kernels without any implementation.
        time_s: estimated seconds of the others.
    """

    missing: int = 0
    time_s: float = 0.0

    def below(self, other: Cost) -> bool:
        """Less than another by more than the error of adding up in another order."""
        return self < Cost(other.missing, other.time_s - TOLERANCE_S)


@dataclass
class Trail:
    """What a change replaced.

    Attributes:
        counts: readers before it, by placed class.
        kernels: live kernel before it, None where there was none.
        cost: the cost before it.
        grown: classes whose kernel is new, so that it may load something it did not.
    """

    cost: Cost
    counts: dict[int, int] = field(default_factory=dict)
    kernels: dict[int, Mapped | None] = field(default_factory=dict)
    grown: list[int] = field(default_factory=list)


class Running:
    """Live kernels with their number of readers, and what they cost together.

    Args:
        inputs: placed classes that need no kernel.
    """

    def __init__(self, inputs: Collection[int]) -> None:
        self._inputs = inputs
        self.live: dict[int, Mapped] = {}
        self._readers: dict[int, int] = {}
        self._places: dict[int, int] = {}
        self.cost = Cost()

    def start(self, roots: Iterable[int], live: Iterable[Mapped]) -> None:
        """Count anew: these outputs, these kernels, none twice, operands before users."""
        self.live = {m.placed: m for m in live}
        self._places = {placed: n for n, placed in enumerate(self.live)}
        self._readers = dict.fromkeys(roots, 1)
        for mapped in self.live.values():
            for leaf in mapped.leaves:
                self._readers[leaf] = self._readers.get(leaf, 0) + 1
        self.cost = Cost(
            sum(m.root < 0 for m in self.live.values()),
            sum(m.time_s for m in self.live.values() if m.root >= 0),
        )

    def others(self, placed: int, users: Iterable[int]) -> int:
        """How many live kernels beside these load what a class holds."""
        return self._readers.get(placed, 0) - sum(placed in self.live[u].leaves for u in users)

    def change(self, replaced: Iterable[int], kernel: Callable[[int], Mapped]) -> Trail:
        """Account for these classes having other kernels now; `undo` takes the trail back.

        Kernels may wait for each other in a circle afterwards: see `circular`.

        Args:
            replaced: the classes.
            kernel: the best kernel of a class at present. It is not kept: a search that is let go
                is then gone at once, without waiting for the collector of cyclic garbage.
        """
        trail = Trail(self.cost)
        wanted: list[int] = []
        dropped: list[int] = []
        for placed in replaced:
            old = self.live.get(placed)
            if old is None:
                continue
            new = kernel(placed)
            if new is not old:
                self._set(placed, new, trail)
                wanted += sorted(new.leaves - old.leaves)
                dropped += sorted(old.leaves - new.leaves)
        while wanted:
            placed = wanted.pop()
            if self._count(placed, 1, trail) == 1 and placed not in self._inputs:
                new = kernel(placed)
                self._set(placed, new, trail)
                wanted += sorted(new.leaves)
        while dropped:
            placed = dropped.pop()
            if self._count(placed, -1, trail) == 0 and placed not in self._inputs:
                old = self.live[placed]
                self._set(placed, None, trail)
                dropped += sorted(old.leaves)
        return trail

    def undo(self, trail: Trail) -> None:
        """Everything as it was before the change with this trail."""
        self._readers.update(trail.counts)
        for placed, mapped in trail.kernels.items():
            if mapped is None:
                self.live.pop(placed, None)
            else:
                self.live[placed] = mapped
        self.cost = trail.cost

    def circular(self, trail: Trail) -> bool:
        """Whether a change made kernels wait for each other: only new kernels can close a circle.

        Not where every new kernel loads what stood before it in the order counted from. The first
        change that breaks with that order, which is kept if this says no, ends its use.
        """
        if all(self._in_order(p) for p in trail.grown if p in self.live):
            return False
        self._places.clear()
        live = self.live
        grown = (placed for placed in trail.grown if placed in live)
        below = lambda placed: [p for p in live[placed].leaves if p in live]  # noqa: E731
        return None in in_order(grown, below)

    def _in_order(self, placed: int) -> bool:
        place = self._places.get(placed, -1)
        return all(
            leaf in self._inputs or self._places.get(leaf, place) < place
            for leaf in self.live[placed].leaves
        )

    def _count(self, placed: int, by: int, trail: Trail) -> int:
        before = self._readers.get(placed, 0)
        trail.counts.setdefault(placed, before)
        self._readers[placed] = before + by
        return before + by

    def _set(self, placed: int, new: Mapped | None, trail: Trail) -> None:
        old = self.live.get(placed)
        trail.kernels.setdefault(placed, old)
        missing, time_s = self.cost.missing, self.cost.time_s
        if old is not None:
            missing, time_s = (
                (missing - 1, time_s) if old.root < 0 else (missing, time_s - old.time_s)
            )
            del self.live[placed]
        if new is not None:
            missing, time_s = (
                (missing + 1, time_s) if new.root < 0 else (missing, time_s + new.time_s)
            )
            self.live[placed] = new
            trail.grown.append(placed)
        self.cost = Cost(missing, time_s)
