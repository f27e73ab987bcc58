"""Min-sum elimination against brute force."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from axe_eq.extract.mesh.minsum import Costs, solve, total


def problem(seed: int, n: int, edges: float) -> tuple[list[Costs], dict[tuple[int, int], Costs]]:
    """Random costs, some of them infinite; pairs in either order."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 4, n)
    alone = [rng.integers(0, 9, size).astype(float) for size in sizes]
    pairs = {}
    for a, b in product(range(n), repeat=2):
        if a != b and (b, a) not in pairs and rng.random() < edges:
            table = rng.integers(0, 9, (sizes[a], sizes[b])).astype(float)
            table[rng.random(table.shape) < 0.1] = np.inf
            pairs[a, b] = table
    return alone, pairs


@pytest.mark.parametrize("seed", range(20))
def test_no_other_choice_is_cheaper(seed: int) -> None:
    alone, pairs = problem(seed, 6, 0.5)
    chosen, exact = solve(alone, pairs)
    costs = [total(alone, pairs, c) for c in product(*(range(len(a)) for a in alone))]
    assert exact
    assert total(alone, pairs, chosen) == min(costs)


@pytest.mark.parametrize("seed", range(20))
def test_where_tables_are_too_large_it_says_so_and_improves(seed: int) -> None:
    """Each variable's own cheapest choice is where it begins; it ends no worse."""
    alone, pairs = problem(seed, 8, 0.8)
    start = [int(np.argmin(a)) for a in alone]
    chosen, exact = solve(alone, pairs, most=6)
    best, known = solve(alone, pairs)
    assert known
    assert not exact
    assert total(alone, pairs, best) <= total(alone, pairs, chosen)
    assert total(alone, pairs, chosen) <= total(alone, pairs, start)


def test_tables_that_several_pairs_share_are_told_apart() -> None:
    shared = np.array([[0.0, 2.0], [2.0, 0.0]])
    alone = [np.array([1.0, 0.0]), np.zeros(2), np.array([0.0, 3.0])]
    chosen, exact = solve(alone, {(0, 1): shared, (1, 2): shared, (0, 2): shared})
    assert exact
    assert chosen == [0, 0, 0]
