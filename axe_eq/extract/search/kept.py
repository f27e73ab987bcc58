"""Layouts of values that stay between kernels, chosen where a reader gains by another one.

The e-graph asks for values in the layouts that every target takes. Others, which a target lists,
are asked for here, and only for values that a schedule keeps: each is one more placed class, made
by the kernels of the first and read wherever that is. A layout is taken where the whole schedule,
the kernel that writes the value included, gets cheaper by it. So no choice is dearer than none.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from axe_eq.extract.price.priced import Prices
from axe_eq.extract.read.forest import Forest, PlacedClass
from axe_eq.extract.search.search import MODERATE_VALUES, Search
from axe_eq.schedule.kept import kept_layouts

LEAST_GAIN = 1e-3  # of the time, as for inputs and outputs


def kept_otherwise(search: Search, kinds: Collection[str]) -> Search:
    """A search that ends at most where another does, with values kept in other layouts.

    Args:
        search: at its end.
        kinds: of layouts that the target keeps values in.
    """
    forest, live = search.forest, search.live()
    values = [p for p in live if p not in search.roots and forest.placed[p].requests]
    wanted = [(p, layout) for p in values for layout in _others(forest, p, kinds)]
    if not wanted or len(values) > MODERATE_VALUES:
        return search
    prices = search.prices
    numbers = [prices.number(pair) for pair in wanted]
    other = Search(prices.on(_extended(prices, forest)))
    more: dict[int, list[int]] = {}
    for (source, _), number in prices.also.items():
        more.setdefault(source, []).append(number)
    best = other.begin_as(search, more)
    first = best
    for (p, _), number in zip(wanted, numbers, strict=True):
        for flips in _ways(other, p, number):
            cost = other.flipped(flips, best * (1 - LEAST_GAIN))
            if cost is not None:
                best = cost
                break
    return other if best < first else search


def _others(forest: Forest, placed: int, kinds: Collection[str]) -> Iterator[str]:
    """Layouts that a value may be kept in beside those that it has a class for."""
    value, _ = forest.placed[placed].requests[0]
    asked = {layout for p in forest.placed for v, layout in p.requests if v == value}
    for kept in kept_layouts(forest.types[value], kinds):
        if kept.layout not in asked:
            yield kept.layout


def _ways(search: Search, placed: int, number: int) -> Iterator[Sequence[int]]:
    """The value elsewhere; and with that, what is made of it not kept but computed on."""
    if placed not in search.materialised or number in search.materialised:
        return
    made = [
        q for q, mapped in search.live().items()
        if placed in mapped.leaves and q not in search.roots
    ]  # fmt: skip
    yield [placed, number]
    if made:
        yield [placed, number, *made]


def _extended(prices: Prices, forest: Forest) -> Forest:
    """The forest with a class for every value and layout that was ever asked for."""
    placed, tiles, users = list(forest.placed), list(forest.tiles), dict(forest.users)
    for (source, layout), number in prices.also.items():
        before = forest.placed[source]
        requests = [(value, layout) for value, _ in before.requests]
        placed.append(PlacedClass(requests, before.kernels))
        home, users[number] = before.requests[0][1], list[int]()
        for tile in forest.users.get(source, ()):
            node = tiles[tile]
            if any(c.source == source and c.layout == home for c in node.loads):
                load = prices.load(tile, number, layout)
                tiles[tile] = replace(node, loads=[*node.loads, load], known={})
                users[number].append(tile)
    return replace(forest, placed=placed, tiles=tiles, users=users)
