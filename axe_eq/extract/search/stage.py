"""The extraction stage: search, merge kernels, and say what else there is when asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from axe_eq.extract.price.priced import Prices
from axe_eq.extract.read.forest import Forest
from axe_eq.extract.search.kept import kept_otherwise
from axe_eq.extract.search.layouts import NO_CHOICE, Places, Way, cheapest, taken, unpadded
from axe_eq.extract.search.merge import Group, merged
from axe_eq.extract.search.pareto import Point, pareto, settle
from axe_eq.extract.search.running import TOLERANCE_S
from axe_eq.extract.search.search import Search
from axe_eq.extract.search.selection import Selection

MAX_ALTERNATIVES = 64
MOST_RUNNERS = 24
# Schedules one change away that are measured beside the chosen one, what they may cost more before
# kernels merge, and the values of its type that may stand for one.
MEASURED, NEAR, MOST_SWAPS = 2, 1.1, 8
INFINITE = float("inf")


@dataclass(frozen=True)
class RunnerUp:
    """A schedule that was not chosen.

    Attributes:
        change: what differs from the chosen one.
        time_s: its estimated seconds.
    """

    change: str
    time_s: float


@dataclass(frozen=True)
class Extracted:
    """What extraction found.

    Attributes:
        search: the search that ended with it, at the values it chose.
        selection: the chosen values and their kernels.
        groups: kernels, those merged that gain by it, in a valid order.
        plain: prices of the kernels of values in the layouts that every value may be kept in.
        evaluated: kernels evaluated to choose it.
        priced: distinct cones priced for that.
        outputs: placed class and layout of every output.
        kept_less: less is kept than the fastest schedule would keep.
        unwritable: why alternatives were left out that the target's emitter cannot write, and
            schedules that no known machine has.
        layouts: those chosen, of inputs by name and of outputs as "output 0".
        dense_s: estimated seconds with everything dense row-major that had a choice.
    """

    search: Search
    selection: Selection
    groups: list[Group]
    plain: Prices
    evaluated: int
    priced: int
    outputs: Sequence[tuple[int, str]]
    kept_less: bool = False
    unwritable: tuple[str, ...] = ()
    layouts: Mapping[str, str] = field(default_factory=dict)
    dense_s: float = 0.0

    @property
    def forest(self) -> Forest:
        """The classes it chose from."""
        return self.search.forest

    @property
    def prices(self) -> Prices:
        """Of the cones."""
        return self.search.prices

    @property
    def time_s(self) -> float:
        """Estimated seconds of the chosen kernels."""
        return sum(g.price.time_s for g in self.groups)

    @cached_property
    def unfused_s(self) -> float:
        """Estimated seconds with every value materialised, worked out when somebody asks."""
        return Search(self.plain).total()

    @property
    def alternatives(self) -> Iterator[list[Group]]:
        """Kernels of the cheapest schedules one change away, worked out when they are measured.

        By price those of one result are never better: of 370 drawn programs two had one that was,
        by 0.07 %.
        """
        if not self.kept_less:  # they may keep more
            for flips in _cheapest(self.search, self.selection):
                yield _groups_without(self.search, flips)

    @cached_property
    def changes(self) -> list[Change]:
        """Every schedule one change away, worked out when somebody asks what was compared."""
        return _changes(self.search, self.selection)

    @property
    def points(self) -> list[Point]:
        """Schedules that no other beats in both estimated time and stored bytes, fastest first."""
        return pareto(self.prices)

    @property
    def runners_up(self) -> tuple[RunnerUp, ...]:
        """The cheapest schedules one change away, cheapest first."""
        gain = self.selection.time_s - self.time_s  # of merging kernels, taken off all alike
        found = [RunnerUp(c.name, c.time_s - gain) for c in self.changes if c.differs]
        return tuple(sorted(found, key=lambda r: (r.time_s, r.change))[:MOST_RUNNERS])

    @property
    def needed(self) -> tuple[str, ...]:
        """Changes that no schedule covers.

        Values that their readers cannot compute, inputs that cannot be read where they arrive.
        """
        return tuple(c.name for c in self.changes if c.is_drop and c.time_s == INFINITE)


@dataclass(frozen=True)
class Change:
    """A schedule with one value more in memory than the chosen one, or one less.

    Attributes:
        name: what is done to which value.
        value: its placed class.
        is_drop: it is one less.
        time_s: estimated seconds; infinite where no schedule covers it, or above a bound.
        differs: it is a schedule, of another time.
    """

    name: str
    value: int
    is_drop: bool
    time_s: float
    differs: bool


def extract(
    prices: Prices,
    places: Places = NO_CHOICE,
    *,
    per_byte: float = 0.0,
    progress: Callable[[str], None] = lambda _: None,
) -> Extracted:
    """Choose the cheapest schedule of a forest.

    Args:
        prices: of the kernels of a saturated session's forest on the target.
        places: where inputs and outputs may lie.
        per_byte: seconds that a stored byte is worth beside its time: more leaves less in memory.
        progress: told how far the search is.

    Raises:
        SearchError: an output that nothing computes.
    """

    def of(way: Way) -> Extracted:
        left = taken(prices.forest, places, way)
        found = _extracted(prices.on(left), per_byte, progress)
        if not places.open or any(way) or (dense := unpadded(left)) is None:
            return found
        # With layouts to choose from a descent may end above one that has none.
        return min(found, _extracted(prices.on(dense), per_byte, progress), key=_time_s)

    def near(way: Way, found: Extracted) -> float:
        search = Search(prices.on(taken(prices.forest, places, way)))
        return search.keeping(prices.plainly(found.search.materialised))

    least = prices.pricer.target.figures.get("least_saved_s", 0.0)
    way, found, dense = cheapest(places, of, near, _time_s, least)
    return replace(found, layouts=places.chosen(way), dense_s=dense.time_s)


def _time_s(found: Extracted) -> float:
    return found.time_s


def _extracted(prices: Prices, per_byte: float, progress: Callable[[str], None]) -> Extracted:
    """The cheapest schedule, every input and output in its place."""
    forest, plain = prices.forest, prices
    search = Search(prices)
    if per_byte:
        settle(search, per_byte)
    selection = search.selection() if per_byte else search.run(progress)
    if not per_byte:
        other = kept_otherwise(search, prices.pricer.target.kept)
        if other is not search:
            other.cut = selection.cut
            search, selection = other, other.selection()
            forest, prices = search.forest, search.prices
    groups = merged(search, selection)
    outputs = [(_home(forest, root), forest.layout_of(root)) for root in forest.roots]
    found = Extracted(
        search, selection, groups, plain, search.evaluated, prices.pricer.priced, outputs,
        bool(per_byte),
    )  # fmt: skip
    if len(set(forest.roots)) > 1:  # of other values kernels may become fewer
        groups = min([groups, *found.alternatives], key=lambda g: sum(k.price.time_s for k in g))
    return replace(found, groups=groups)


def _home(forest: Forest, root: int) -> int:
    """The placed class an output is taken from: the input's own buffer where it is an input."""
    moves = forest.placed[root].moves
    return moves[0][0] if moves else root


def _groups_without(search: Search, flipped: Sequence[int]) -> list[Group]:
    """Kernels of the schedule with some values flipped."""
    undo = search.set_materialised(flipped)
    groups = merged(search, search.selection())
    search.restore(flipped, undo)
    return groups


def _nearby(search: Search, selection: Selection) -> list[int]:
    """The values that a change may be about: those that the chosen kernels depend on."""
    met = {p for m in selection.kernels.values() for p in m.met} & set(search.values)
    return sorted(met)[:MAX_ALTERNATIVES]


def _changes(search: Search, selection: Selection) -> list[Change]:
    """Every change there is."""
    return [_change(search, selection, value) for value in _nearby(search, selection)]


def _change(search: Search, selection: Selection, value: int, bound: float = INFINITE) -> Change:
    """The schedule with one value flipped."""
    undo = search.set_materialised([value])
    cost = search.total(bound)
    search.restore([value], undo)
    is_drop = value in selection.materialised
    verbs = ("read", "copy") if search.forest.copied(value) else ("recompute", "materialise")
    name = f"{verbs[not is_drop]} {search.forest.label(value)}"
    differs = cost < INFINITE and abs(cost - selection.time_s) > TOLERANCE_S
    return Change(name, value, is_drop, cost, differs)


def _cheapest(search: Search, selection: Selection) -> list[tuple[int, ...]]:
    """The flips that make the cheapest other schedules; much dearer ones are not priced out.

    Those of one value, and one for another of its kind: kernels of either may merge with others.
    """
    most = selection.time_s * NEAR
    best: list[Change] = []
    for value in _nearby(search, selection):
        bound = best[-1].time_s if len(best) == MEASURED else most
        change = _change(search, selection, value, bound)
        if change.differs:
            best = sorted([*best, change], key=lambda c: (c.time_s, c.name))[:MEASURED]
    swaps = sorted((t, s) for t, s in _swaps(search, selection, most) if t < most)
    return [*((change.value,) for change in best), *(s for _, s in swaps[:MEASURED])]


def _swaps(
    search: Search, selection: Selection, most: float
) -> list[tuple[float, tuple[int, ...]]]:
    """Cost with one value in memory in place of another of its type, where as many kernels are.

    Infinite above `most`.
    """
    near, type_of = _nearby(search, selection), search.forest.type_of
    found: list[tuple[float, tuple[int, ...]]] = []
    for value in sorted(selection.materialised & selection.kernels.keys() & set(near)):
        like = (p for p in near if p not in search.materialised and type_of(p) == type_of(value))
        for other in list(like)[:MOST_SWAPS]:
            undo = search.set_materialised([value, other])
            found.append((search.total(most), (value, other)))
            search.restore([value, other], undo)
    return found
