"""What things reach through others, against networkx."""

from __future__ import annotations

import random

import networkx as nx
import pytest

from axe_eq.walk import circles, in_order, reached


@pytest.mark.parametrize("seed", range(8))
def test_circles_and_orders_of_drawn_graphs(seed: int) -> None:
    draw = random.Random(seed)
    met = 0
    for _ in range(60):
        n = draw.randint(0, 9)
        below = {i: [draw.randrange(n + 2) for _ in range(draw.randint(0, 2))] for i in range(n)}
        graph = nx.DiGraph((a, b) for a, others in below.items() for b in others)
        graph.add_nodes_from(below)
        parts = list(circles(below))
        wanted = {frozenset(part) for part in nx.strongly_connected_components(graph)}
        assert {frozenset(part) for part in parts} == wanted
        assert sum(map(len, parts)) == len(graph)
        order = list(reached(below, lambda thing, below=below: below.get(thing, [])))  # type: ignore[misc]
        assert sorted(order) == sorted(graph)
        waits = None in in_order(below, lambda thing, below=below: below.get(thing, []))  # type: ignore[misc]
        assert waits == (not nx.is_directed_acyclic_graph(graph))
        met += waits
        if not waits:
            assert all(order.index(b) < order.index(a) for a, b in graph.edges)
    assert 5 < met < 55
