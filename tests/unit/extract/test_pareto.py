"""The Pareto front against all schedules of small graphs."""

from __future__ import annotations

from itertools import combinations, pairwise

from axe_eq.extract.search.pareto import PRICES, Point, front, pareto, stored_bytes
from axe_eq.extract.search.search import Search
from tests.unit.extract.graphs import forest_of, random_program, search_of


def every_schedule(search: Search) -> list[tuple[float, int]]:
    """Time and peak memory under every set of materialised values, each from scratch."""
    found = []
    for count in range(len(search.values) + 1):
        for chosen in combinations(search.values, count):
            fresh = Search(search.prices)
            fresh.set_materialised(sorted(set(fresh.values) - set(chosen)))
            if fresh.total() < float("inf"):
                found.append((fresh.total(), stored_bytes(fresh.forest, fresh.live())))
    return found


def test_no_schedule_beats_a_point_of_the_front() -> None:
    """Every schedule is matched or beaten by a point; no point beats another."""
    for seed in (1, 2, 3):
        search = search_of(forest_of(random_program(seed, 5)))
        points = pareto(search.prices)
        for time_s, peak in every_schedule(search):
            assert any(p.time_s <= time_s + 1e-15 and p.stored_bytes <= peak for p in points)
        costs = [(p.time_s, p.stored_bytes) for p in points]
        assert costs == sorted(costs)
        assert sorted((b for _, b in costs), reverse=True) == [b for _, b in costs]


def test_front_drops_what_is_beaten() -> None:
    """A point that is slower and no smaller goes."""
    points = [Point(1.0, 10, ()), Point(2.0, 10, ()), Point(3.0, 5, ()), Point(4.0, 7, ())]
    assert [(p.time_s, p.stored_bytes) for p in front(points)] == [(1.0, 10), (3.0, 5)]


def test_large_graphs_trade_time_for_memory() -> None:
    """Beyond exhaustive search, dearer bytes give schedules of less memory and more time."""
    search = search_of(forest_of(random_program(7, 30)))
    points = pareto(search.prices)
    assert 1 < len(points) <= len(PRICES)
    assert all(
        a.time_s <= b.time_s and a.stored_bytes > b.stored_bytes for a, b in pairwise(points)
    )
