"""What kernels cost: cones of one forest, each summarised and priced once."""

from __future__ import annotations

from collections.abc import Sequence

from axe_eq.extract.price.cone import Picks, summarise
from axe_eq.extract.price.pricer import Candidate, Price, Pricer
from axe_eq.extract.read.forest import Forest

Key = tuple[tuple[int, ...], tuple[str, ...], frozenset[int]]
"""Root tiles, the layouts they are stored in, and the alternatives picked, by identity."""


class Prices:
    """Prices of the kernels of a forest; all that is chosen by price asks here.

    Attributes:
        forest: whose cones they are.
        pricer: what prices their summaries.
    """

    def __init__(self, forest: Forest, pricer: Pricer) -> None:
        self.forest, self.pricer = forest, pricer
        self._known: dict[Key, Price] = {}
        self._ruled_out: dict[Key, dict[Candidate, str]] = {}

    def by(self, pricer: Pricer) -> Prices:
        """Prices of the same kernels by another pricer, less what was ruled out here."""
        others = Prices(self.forest, pricer)
        others._ruled_out = self._ruled_out
        return others

    def price(self, roots: Sequence[int], picks: Picks, stored: Sequence[str]) -> Price:
        """The cheapest way to implement a cone.

        A search meets one cone under many sets of materialised values. Every alternative is one of
        one tile class, so those picked say everything.

        Args:
            roots: tiles that are stored.
            picks: the alternative taken of every tile.
            stored: the layout that each root is stored in.
        """
        key = _key(roots, picks, stored)
        found = self._known.get(key)
        if found is None:
            summary = summarise(self.forest, roots, picks, stored)
            found = self.pricer.price(summary, self._ruled_out.get(key, {}))
            self._known[key] = found
        return found

    def rule_out(
        self,
        roots: Sequence[int],
        picks: Picks,
        stored: Sequence[str],
        candidate: Candidate,
        reason: str,
    ) -> Price:
        """Price a cone without a candidate that it cannot be built by, from now on."""
        key = _key(roots, picks, stored)
        self._ruled_out.setdefault(key, {})[candidate] = reason
        self._known.pop(key, None)
        return self.price(roots, picks, stored)


def _key(roots: Sequence[int], picks: Picks, stored: Sequence[str]) -> Key:
    return tuple(roots), tuple(stored), frozenset(map(id, picks.values()))
