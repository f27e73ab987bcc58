"""What kernels cost: cones of one forest, each summarised and priced once."""

from __future__ import annotations

from collections.abc import Sequence

from axe_eq.extract.cone import Picks, summarise
from axe_eq.extract.forest import Forest
from axe_eq.extract.price import Price, Pricer

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

    def price(self, roots: Sequence[int], picks: Picks, stored: Sequence[str]) -> Price:
        """The cheapest way to implement a cone.

        A search meets one cone under many sets of materialised values. Every alternative is one of
        one tile class, so those picked say everything.

        Args:
            roots: tiles that are stored.
            picks: the alternative taken of every tile.
            stored: the layout that each root is stored in.
        """
        key = tuple(roots), tuple(stored), frozenset(map(id, picks.values()))
        found = self._known.get(key)
        if found is None:
            summary = summarise(self.forest, roots, picks, stored)
            found = self._known[key] = self.pricer.price(summary)
        return found
