"""Layouts of values that stay between kernels, chosen where a reader gains by another one.

The e-graph asks for values in the layouts that every target takes. Others, which a target lists,
are asked for here, and only for values that a schedule keeps: each is one more placed class, made
by the kernels of the first and read wherever that is. A layout is taken where the whole schedule,
the kernel that writes the value included, gets cheaper by it. So no choice is dearer than none.
It is tried where a kernel goes over the value in another order than over what it stores.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from axe_eq.extract.price.lying import access
from axe_eq.extract.price.priced import Prices
from axe_eq.extract.read.forest import LOAD, Forest, PlacedClass
from axe_eq.extract.search.search import MODERATE_VALUES, Search
from axe_eq.extract.search.selection import Mapped
from axe_eq.schedule.kept import kept_layouts
from axe_eq.schedule.summary import Access

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
        for flips in _ways(other, p, number, best * LEAST_GAIN):
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


def _ways(search: Search, placed: int, number: int, least_s: float) -> Iterator[Sequence[int]]:
    """The value elsewhere; and with that, what is made of it not kept but computed on."""
    if placed not in search.materialised or number in search.materialised:
        return
    readers = [m for m in search.live().values() if placed in m.leaves]
    apart = [m for m in readers if _goes_apart(search.forest, m, placed)]
    if not apart or _gain(search, [placed, number], apart) < least_s:
        return
    yield [placed, number]
    if made := [m.placed for m in readers if m.placed not in search.roots]:
        yield [placed, number, *made]


def _goes_apart(forest: Forest, reader: Mapped, placed: int) -> bool:
    """Whether a kernel may gain where a value lies in another order.

    One of a product does that multiplies it, or goes over it in another order than over its result;
    one that reduces otherwise; one of cells alone that goes over values in several orders.
    """
    picks = reader.picks
    stored = _order(forest, reader.root, forest.layout_of(reader.placed))
    loads = [(c.source, _order(forest, t, c.layout)) for t, c in picks.items() if c.kind == LOAD]
    if any(c.product for c in picks.values()):
        its = [order for source, order in loads if source == placed]
        return any({*o.letters} - {*stored.letters} or o.fast != stored.fast for o in its)
    several = (o for _, o in (*loads, (placed, stored)) if len(o.letters) + (o.star > 1) > 1)
    return any(c.reduces for c in picks.values()) or len({o.fast for o in several}) > 1


def _order(forest: Forest, tile: int, layout: str) -> Access:
    return access(forest.tiles[tile], layout, passes=1, fed=False, lying=False)


def _gain(search: Search, flips: Sequence[int], apart: Sequence[Mapped]) -> float:
    """Seconds that a value elsewhere saves its writer and these readers, where it does."""
    placed, number = flips
    pairs = [(search.kernel(placed), number), *((m, m.placed) for m in apart)]
    undo = search.set_materialised(flips)
    saved = sum(max(0.0, m.time_s - search.kernel(new).time_s) for m, new in pairs)
    search.restore(flips, undo)
    return saved


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
