"""The Pareto front of schedules: estimated time against the memory of stored values.

Small graphs: every set of materialised values, so the front is exact. Larger ones: searches whose
objective adds a price per materialised byte, for a range of prices; each gives one point, and
points that another one beats in both costs are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from axe_eq.extract.price.priced import Prices
from axe_eq.extract.price.pricer import NOTHING, Price, Pricer, Way
from axe_eq.extract.read.forest import Forest
from axe_eq.extract.search.search import EXACT_VALUES, Search
from axe_eq.extract.search.selection import Mapped
from axe_eq.schedule.summary import Formula, Summary

# Seconds per byte: from what main memory costs to a price at which nothing is materialised twice.
PRICES = (0.0, 1e-13, 3e-13, 1e-12, 1e-11, 1e-10, 1e-9)


@dataclass(frozen=True)
class Point:
    """One schedule: its costs, and what it materialises.

    Attributes:
        time_s: estimated seconds.
        stored_bytes: most bytes of temporaries and outputs that are alive at once.
        materialised: labels of the values kept between kernels.
    """

    time_s: float
    stored_bytes: int
    materialised: tuple[str, ...]


def pareto(prices: Prices) -> list[Point]:
    """Schedules that no other beats in time and memory, fastest first."""
    search = Search(prices)
    if len(search.values) <= EXACT_VALUES:
        return front(_all(search))
    return front(_priced(prices, price) for price in PRICES)


def front(points: Iterable[Point]) -> list[Point]:
    """The points that no other beats in both costs, fastest first."""
    kept: list[Point] = []
    for point in sorted(points, key=lambda p: (p.time_s, p.stored_bytes, p.materialised)):
        if not kept or point.stored_bytes < kept[-1].stored_bytes:
            kept.append(point)
    return kept


def _all(search: Search) -> Iterable[Point]:
    previous = 0
    for code in range(1 << len(search.values)):
        gray = code ^ (code >> 1)
        if gray != previous:
            search.set_materialised([search.values[(gray ^ previous).bit_length() - 1]])
        previous = gray
        time_s = search.total()
        if time_s < float("inf"):
            yield _point(search, search.live(), time_s)


def _point(search: Search, kernels: Mapping[int, Mapped], time_s: float) -> Point:
    labels = tuple(search.forest.label(p) for p in kernels if p not in search.roots)
    return Point(time_s, stored_bytes(search.forest, kernels), labels)


def stored_bytes(forest: Forest, kernels: Mapping[int, Mapped]) -> int:
    """Most bytes alive at once, in this order of kernels; outputs stay, inputs do not count."""
    last = {leaf: n for n, mapped in enumerate(kernels.values()) for leaf in mapped.leaves}
    alive = peak = 0
    for n, (placed, mapped) in enumerate(kernels.items()):
        alive += forest.type_of(placed).n_bytes
        peak = max(peak, alive)
        for leaf in mapped.leaves:
            if leaf in kernels and last[leaf] == n and leaf not in forest.roots:
                alive -= forest.type_of(leaf).n_bytes
    return peak


class _BytesPricer(Pricer):
    """A pricer that adds a price per stored byte to the time it minimises."""

    def __init__(self, pricer: Pricer, per_byte: float) -> None:
        super().__init__(pricer.target, pricer.schedules)
        self._inner, self._per_byte = pricer, per_byte

    def price(
        self,
        summary: Summary,
        ruled_out: Mapping[Way, str] = NOTHING,
        cone: Callable[[], Formula] | None = None,
    ) -> Price:
        price = self._inner.price(summary, ruled_out, cone)
        extra = self._per_byte * sum(a.n_bytes for a in summary.stores)
        return replace(price, time_s=price.time_s + extra)


def _priced(prices: Prices, per_byte: float) -> Point:
    plain = Search(prices)
    settle(plain, per_byte)
    return _point(plain, plain.live(), plain.total())


def settle(search: Search, per_byte: float) -> None:
    """Materialise what a search does that pays so many seconds for every byte that it stores."""
    prices = search.prices
    found = Search(prices.by(_BytesPricer(prices.pricer, per_byte))).run()
    search.set_materialised(sorted(search.materialised ^ (found.materialised | search.roots)))
