"""What kernels cost: cones of one forest, each summarised, priced and read once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import fields
from operator import attrgetter

from axe_eq.extract.price.cone import Picks, used
from axe_eq.extract.price.figures import summarise
from axe_eq.extract.price.pricer import NOTHING, Known, Price, Pricer, Way
from axe_eq.extract.price.reductions import reductions
from axe_eq.extract.read.forest import LOAD, Choice, Forest
from axe_eq.extract.read.formula import formula
from axe_eq.schedule.summary import Formula

Key = tuple[tuple[int, ...], tuple[str, ...], frozenset[int]]
"""Root tiles, the layouts they are stored in, and the alternatives picked, by identity."""


class Prices:
    """Prices of the kernels of a forest; all that is chosen by price asks here.

    Attributes:
        forest: whose cones they are.
        pricer: what prices their summaries.
        also: (placed class, layout) -> number of the class of that value kept in that layout too.
    """

    def __init__(self, forest: Forest, pricer: Pricer) -> None:
        self.forest, self.pricer = forest, pricer
        self._first = len(forest.placed)
        self._known: dict[Key, Known] = {}
        self._kind_of: dict[int, int] = {}
        self._ruled_out: dict[Key, dict[Way, str]] = {}
        self.also: dict[tuple[int, str], int] = {}
        self._loads: dict[tuple[int, int], Choice] = {}

    def by(self, pricer: Pricer) -> Prices:
        """Prices of the same kernels by another pricer, less what was ruled out here."""
        others = Prices(self.forest, pricer)
        others._ruled_out = self._ruled_out
        return others

    def number(self, kept: tuple[int, str]) -> int:
        """The class of a value in one more layout, the same one whenever it is asked for."""
        return self.also.setdefault(kept, self._first + len(self.also))

    def plainly(self, placed: Iterable[int]) -> set[int]:
        """These classes, of a value in one more layout the class it is in without."""
        sources = {number: source for (source, _), number in self.also.items()}
        return {sources.get(p, p) for p in placed}

    def load(self, tile: int, source: int, layout: str) -> Choice:
        """The load of a tile from such a class, likewise: alternatives are known by identity."""
        return self._loads.setdefault((tile, source), Choice(LOAD, "", "", (), source, layout))

    def on(self, forest: Forest) -> Prices:
        """These prices of what is left of the forest, alternatives and all."""
        same = copy(self)
        same.forest = forest
        return same

    def estimate(self, roots: Sequence[int], picks: Picks, stored: Sequence[str]) -> Price:
        """The cheapest way to implement a cone by its figures alone, as far as they say it.

        A search meets one cone under many sets of materialised values. Every alternative is one of
        one tile class, so those picked say everything.

        Args:
            roots: tiles that are stored.
            picks: the alternative taken of every tile.
            stored: the layout that each root is stored in.
        """
        known = self._of(roots, picks, stored)[0]
        return known.read or known.figures

    def price(self, roots: Sequence[int], picks: Picks, stored: Sequence[str]) -> Price:
        """The cheapest way to implement a cone, read by schedules that have candidates."""
        known, ruled_out = self._of(roots, picks, stored)
        if known.read is None:
            if known.summary is None or not known.figures.estimated:
                known.read = known.figures
                return known.read
            known.read = self.pricer.price(
                known.summary, ruled_out, lambda: self._cone(roots, picks, stored)
            )
        return known.read

    def _cone(self, roots: Sequence[int], picks: Picks, stored: Sequence[str]) -> Formula:
        """A cone node by node, for schedules that read it."""
        order = used(roots, picks)
        return formula(self.forest, roots, order, picks, stored)

    def _of(
        self, roots: Sequence[int], picks: Picks, stored: Sequence[str]
    ) -> tuple[Known, Mapping[Way, str]]:
        """What is known of a cone, and the ways that it cannot be built by."""
        key = _key(roots, picks, stored)
        found, ruled_out = self._known.get(key), self._ruled_out.get(key, NOTHING)
        if found is None:
            refused, order = None, used(roots, picks)
            if self.pricer.refuses:
                refused = self.pricer.refused(reductions(self.forest, order, picks, len(roots)))
            found = (
                Known(None, refused) if refused
                else self._found(roots, order, picks, stored, ruled_out)
            )  # fmt: skip
            self._known[key] = found
        return found, ruled_out

    def _found(
        self,
        roots: Sequence[int],
        order: Sequence[int],
        picks: Picks,
        stored: Sequence[str],
        ruled_out: Mapping[Way, str],
    ) -> Known:
        """A cone's figures and its price by them, once for all cones alike."""
        form = None if ruled_out else (tuple(stored), *self._form(roots, picks))
        found = self.pricer.forms.get(form) if form else None
        if found is None:
            summary = summarise(self.forest, roots, picks, stored, order)
            found = Known(summary, self.pricer.price(summary, ruled_out))
            if form:
                self.pricer.forms[form] = found
        return found

    def _form(self, roots: Sequence[int], picks: Picks) -> list[int]:
        """A cone up to the names of its tiles: those of repeated blocks are summarised once.

        The kind of every tile, users before operands and each once; a tile that was met before is
        its place, less than 0.
        """
        form: list[int] = []
        places: dict[int, int] = {}
        stack = list(reversed(roots))
        while stack:
            tile = stack.pop()
            place = places.get(tile)
            if place is not None:
                form.append(place)
                continue
            places[tile] = ~len(places)
            choice = picks[tile]
            kind = self._kind_of.get(id(choice))
            form.append(self._kind(tile, choice) if kind is None else kind)
            stack.extend(reversed(choice.children))
        return form

    def _kind(self, tile: int, choice: Choice) -> int:
        """A number for all that a summary may see of an alternative and the tile it computes."""
        node = self.forest.tiles[tile]
        seen = (
            *_figures(choice), len(choice.children), node.box, node.type, *node.extents.items()
        )  # fmt: skip
        kind = self._kind_of[id(choice)] = self.pricer.kinds.setdefault(
            seen, len(self.pricer.kinds)
        )
        return kind

    def rule_out(
        self, roots: Sequence[int], picks: Picks, stored: Sequence[str], way: Way, reason: str
    ) -> Price:
        """Price a cone without a way that it cannot be built by, from now on."""
        key = _key(roots, picks, stored)
        self._ruled_out.setdefault(key, {})[way] = reason
        self._known.pop(key, None)
        return self.price(roots, picks, stored)

    def offered(self, roots: Sequence[int], picks: Picks, stored: Sequence[str]) -> list[Price]:
        """Every way to implement a cone that none was ruled out of, the cheapest first."""
        known, ruled_out = self._of(roots, picks, stored)
        if known.summary is None:
            return []
        found = self.pricer.offered(known.summary, lambda: self._cone(roots, picks, stored))
        return [p for p in found if p.way not in ruled_out]

    def nearest(
        self, roots: Sequence[int], picks: Picks, stored: Sequence[str], number: int
    ) -> Iterator[Price]:
        """The cheapest ways to implement a cone, the cheapest first, each by its own candidate."""
        known, ruled_out = self._of(roots, picks, stored)
        summary, left_out = known.summary, dict(ruled_out)
        for _ in range(number):
            if summary is None:
                return
            price = self.pricer.price(summary, left_out, lambda: self._cone(roots, picks, stored))
            if price.time_s == float("inf"):
                return
            yield price
            left_out[price.way] = "measured"


_figures = attrgetter(
    *(f.name for f in fields(Choice) if f.compare and f.name not in ("children", "source"))
)


def _key(roots: Sequence[int], picks: Picks, stored: Sequence[str]) -> Key:
    return tuple(roots), tuple(stored), frozenset(map(id, picks.values()))
