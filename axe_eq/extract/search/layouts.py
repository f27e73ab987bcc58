"""Layouts of inputs and outputs, chosen with the schedule that reads and writes them.

Where a program leaves the layout of an input or output to the compiler, the e-graph holds what
reads or writes it in every layout. One way to lay out all of them leaves a forest, in which the
cheapest schedule is searched for. The first way is dense row-major, and no dearer one is taken,
nor one that saves less than estimates of the target are off by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from math import prod
from typing import TypeVar

from axe_eq.errors import SearchError
from axe_eq.extract.read.forest import Forest
from axe_eq.layout import Layout
from axe_eq.schedule.graph import output_name
from axe_eq.schedule.kept import Kept

FEW = 16  # ways that are all compared
LEAST_GAIN = 1e-3  # of the time: a layout that is not dense is work for who makes the array

T = TypeVar("T")
Way = tuple[int, ...]
"""Which layout is taken, by the number of what is left open."""


@dataclass(frozen=True)
class Places:
    """Where inputs may lie and outputs may be put.

    Attributes:
        inputs: input name -> layouts that it may arrive in.
        outputs: per output, the layouts that it may be wanted in.
    """

    inputs: Mapping[str, Sequence[Kept]] = field(default_factory=dict)
    outputs: Sequence[Sequence[Kept]] = ()

    @cached_property
    def open(self) -> dict[str, Sequence[Kept]]:
        """The layouts of what has a choice: of inputs by name, of outputs as "output 0"."""
        outputs = {output_name(n): layouts for n, layouts in enumerate(self.outputs)}
        each = {**self.inputs, **outputs}
        return {thing: layouts for thing, layouts in each.items() if len(layouts) > 1}

    def chosen(self, way: Way) -> dict[str, str]:
        """The layout of what has a choice."""
        pairs = zip(self.open.items(), way, strict=True)
        return {thing: layouts[number].layout for (thing, layouts), number in pairs}

    def wanted(self, way: Way, requests: Sequence[int]) -> list[int]:
        """One request of every output, of one for each of its layouts in turn."""
        if not self.outputs:
            return list(requests)
        taken, at, found = dict(zip(self.open, way, strict=True)), 0, []
        for number, layouts in enumerate(self.outputs):
            found.append(requests[at + taken.get(output_name(number), 0)])
            at += len(layouts)
        return found


NO_CHOICE = Places()


def cheapest(
    places: Places,
    search: Callable[[Way], T],
    near: Callable[[Way, T], float],
    cost: Callable[[T], float],
    least_s: float = 0.0,
) -> tuple[Way, T, T]:
    """The way whose schedule costs least: it, its schedule, and that of dense row-major ones.

    Ways are compared by what they cost with the values in memory that the dense schedule keeps
    there; of the best of them a schedule is searched for.

    Args:
        places: what there is to choose from.
        search: the schedule of a way.
        near: the cost of a way with the values that a schedule keeps.
        cost: of a schedule, in seconds.
        least_s: what saves less is not taken.

    Raises:
        SearchError: the dense way has no schedule.
    """
    first: Way = (0,) * len(places.open)
    found = {first: search(first)}
    if places.open:
        way = _best(places, lambda way: near(way, found[first]))
        if way != first:
            with suppress(SearchError):  # no kernel reads what lies so
                found[way] = search(way)
    best = _plainest({way: cost(schedule) for way, schedule in found.items()})
    if cost(found[first]) - cost(found[best]) < least_s:
        best = first
    return best, found[best], found[first]


def _plainest(costs: Mapping[Way, float]) -> Way:
    """Of the ways that cost least, as far as it matters, the one that is most like the first."""
    most = min(costs.values()) * (1 + LEAST_GAIN)
    fits = [way for way, cost in costs.items() if cost <= most]
    return min(fits, key=lambda way: (sum(map(bool, way)), sum(way), way))


def _best(places: Places, cost: Callable[[Way], float]) -> Way:
    """The best of few ways; of many, where changes of all at once and then of single ones end."""
    numbers = [range(len(layouts)) for layouts in places.open.values()]
    if prod(map(len, numbers)) <= FEW:
        return _plainest({way: cost(way) for way in product(*numbers)})
    first: Way = (0,) * len(places.open)
    known = {way: cost(way) for way in (first, *_alike(places))}
    while True:
        best = _plainest(known)
        left = [way for way in _single(places, best) if way not in known]
        if not left:
            return best
        known |= {way: cost(way) for way in left}


def _alike(places: Places) -> Iterator[Way]:
    """Everything in rows along the same dim, as far as it can lie so."""
    turns = sorted({kept.turn for layouts in places.open.values() for kept in layouts})
    for turn in turns:
        yield tuple(
            max((n for n, kept in enumerate(layouts) if kept.turn == turn), default=0)
            for layouts in places.open.values()
        )


def _single(places: Places, way: Way) -> Iterator[Way]:
    """One of them in another layout."""
    for at, layouts in enumerate(places.open.values()):
        for number in range(len(layouts)):
            if number != way[at]:
                yield (*way[:at], number, *way[at + 1 :])


def taken(forest: Forest, places: Places, way: Way) -> Forest:
    """What is left of a forest where inputs and outputs lie in one way."""
    arrive, roots = places.chosen(way), places.wanted(way, forest.roots)
    gone = {
        n for n, p in enumerate(forest.placed)
        if any(arrive.get(name, layout) != layout for name, layout in p.buffers)
    }  # fmt: skip
    idle = {r for r in forest.roots if r not in roots and r not in forest.users}
    left = _without(forest, gone, idle)
    return replace(left, roots=roots, root_values=places.wanted(way, forest.root_values))


def unpadded(forest: Forest) -> Forest | None:
    """What is left of a forest where values between kernels are dense; None where all are."""
    kept = {
        n for n, p in enumerate(forest.placed)
        if p.kernels and not p.buffers and n not in forest.roots
        and len(Layout.parse(forest.layout_of(n)).shard) > 1
    }  # fmt: skip
    return _without(forest, kept, kept) if kept else None


def _without(forest: Forest, gone: Set[int], idle: Set[int]) -> Forest:
    """A forest without some arrivals, and what some classes are made by.

    Classes keep their numbers and alternatives, so prices hold for both.
    """
    placed = [
        replace(
            p,
            kernels=[] if n in idle else p.kernels,
            buffers=[] if n in gone else p.buffers,
            moves=[] if n in idle else [m for m in p.moves if m[0] not in gone],
        )
        for n, p in enumerate(forest.placed)
    ]
    tiles = [
        replace(tile, loads=[c for c in tile.loads if c.source not in gone])
        for tile in forest.tiles
    ]
    users = {p: tiles for p, tiles in forest.users.items() if p not in gone}
    return replace(forest, tiles=tiles, placed=placed, users=users)
