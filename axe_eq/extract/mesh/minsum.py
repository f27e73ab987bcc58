"""The least sum of costs of choices and of pairs of choices: min-sum elimination.

Variables are eliminated one after the other, that with the smallest table first. A table has a dim
for every variable that is left and met: where it would be too large, some of these are held at
what was chosen last, and rounds of exact eliminations follow until nothing improves. So the result
is exact for trees and graphs that are near them, and a local optimum else.

Source: Dechter, Bucket elimination: a unifying framework for reasoning (1999).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

import numpy as np
from numpy.typing import NDArray

Costs = NDArray[np.float64]
Factor = tuple[tuple[int, ...], Costs]
MOST_ENTRIES = 1 << 21  # of a table
ROUNDS = 8


def solve(
    alone: Sequence[Costs], pairs: Mapping[tuple[int, int], Costs], most: int = MOST_ENTRIES
) -> tuple[list[int], bool]:
    """A choice per variable, and whether it is known to be the cheapest.

    Args:
        alone: per variable, what each of its choices costs.
        pairs: (variable, variable) -> what every pair of their choices costs.
        most: entries of a table.
    """
    factors: list[Factor] = [((n,), costs) for n, costs in enumerate(alone)]
    factors += list(pairs.items())
    chosen = [int(np.argmin(costs)) for costs in alone]
    best, held = _round(alone, factors, chosen, most)
    if not held:
        return best, True
    cost = total(alone, pairs, best)
    for _ in range(ROUNDS):
        found, _ = _round(alone, factors, best, most, held)
        now = total(alone, pairs, found)
        if not now < cost:
            break
        best, cost, held = found, now, not held
    return best, False


def total(
    alone: Sequence[Costs], pairs: Mapping[tuple[int, int], Costs], chosen: Sequence[int]
) -> float:
    """What a choice per variable costs."""
    own = sum(float(costs[chosen[n]]) for n, costs in enumerate(alone))
    return own + sum(float(costs[chosen[a], chosen[b]]) for (a, b), costs in pairs.items())


def _round(
    alone: Sequence[Costs],
    factors: Sequence[Factor],
    known: Sequence[int],
    most: int,
    other: bool = False,
) -> tuple[list[int], bool]:
    """One elimination, and whether some variables were held at what is known.

    Held are those with the most neighbours; of `other` those with the most choices.
    """
    sizes = [len(costs) for costs in alone]
    left = _Graph(factors)
    order: list[tuple[int, tuple[int, ...], Costs]] = []
    best = list(known)
    held = False
    while left.near:
        variable = min(left.near, key=lambda v: (prod(sizes[u] for u in left.near[v]), v))
        scope = left.near[variable]
        if prod(sizes[u] for u in scope) > most:
            held = True
            rank = (lambda v: (-sizes[v], v)) if other else (lambda v: (-len(left.near[v]), v))
            left.hold(min(scope, key=rank), best)
            continue
        inside, table = left.join(variable, sizes)
        order.append((variable, inside, table))
        left.reduce(variable, inside, table)
    for variable, inside, table in reversed(order):
        at = tuple(slice(None) if v == variable else best[v] for v in inside)
        best[variable] = int(np.argmin(table[at]))
    return best, held


class _Graph:
    """Factors by variable, while variables are eliminated."""

    def __init__(self, factors: Sequence[Factor]) -> None:
        self.of: dict[int, list[Factor]] = {}
        self.near: dict[int, set[int]] = {}
        for factor in factors:
            self._add(factor)

    def _add(self, factor: Factor) -> None:
        for v in factor[0]:
            self.of.setdefault(v, []).append(factor)
            self.near.setdefault(v, {v}).update(factor[0])

    def _take(self, variable: int) -> list[Factor]:
        mine = self.of.pop(variable)
        for factor in mine:
            for v in factor[0]:
                if v != variable:
                    self.of[v] = [f for f in self.of[v] if f is not factor]
        for v in self.near.pop(variable):
            if v != variable:
                self.near[v] = {v}.union(*(f[0] for f in self.of[v]))
        return mine

    def join(self, variable: int, sizes: Sequence[int]) -> tuple[tuple[int, ...], Costs]:
        """All factors of a variable as one; they leave the graph."""
        scope = tuple(sorted(self.near[variable]))
        table = np.zeros([sizes[v] for v in scope])
        for inside, costs in self._take(variable):
            shape = [sizes[v] if v in inside else 1 for v in scope]
            turned = sorted(range(len(inside)), key=lambda n: scope.index(inside[n]))
            table += np.transpose(costs, turned).reshape(shape)
        return scope, table

    def reduce(self, variable: int, scope: tuple[int, ...], table: Costs) -> None:
        """Put back what others pay for the best choice of a variable."""
        rest = tuple(v for v in scope if v != variable)
        if rest:
            self._add((rest, table.min(axis=scope.index(variable))))

    def hold(self, variable: int, chosen: Sequence[int]) -> None:
        """Leave a variable at what is chosen."""
        for scope, costs in self._take(variable):
            rest = tuple(v for v in scope if v != variable)
            if rest:
                self._add((rest, np.take(costs, chosen[variable], axis=scope.index(variable))))
