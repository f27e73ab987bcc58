"""Structured monoids as cells of scores and values, whatever the machine.

A structured monoid here mixes values by weights of their scores, where a statistic of all scores
(their maximum, say) keeps the weights in range; or finds the index of the best value.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from axe_eq.kernel.cells import Cell, apply, arg, substituted

LAST = (1 << 31) - 1  # an index after all others


@dataclass(frozen=True)
class Online:
    """A monoid over (score, value).

    Attributes:
        statistic: the plain monoid of the scores.
        merge: the cell that merges two statistics.
        weight: a cell of (score, statistic).
        rescale: a cell of (statistic before, statistic after): what the sums are multiplied by.
        finish: a cell of (weighted sum, sum of weights).
        scales: the statistic of c x is c times that of x, for c > 0.
        unguarded: the weight as programs have it, which at scores that are all the unit of the
            statistic is undefined; None where that is `weight`.
    """

    statistic: str
    merge: str
    weight: Cell
    rescale: Cell
    finish: Cell
    scales: bool = True
    unguarded: Cell | None = None

    def reductions(self) -> Iterator[tuple[str, Cell]]:
        """The same over whole rows: plain reductions of (score, value, earlier results)."""
        weight = substituted(self.weight, {0: arg(0), 1: arg(2)})
        yield self.statistic, arg(0)
        yield "+", weight
        yield "+", apply("mul", weight, arg(1))

    def finished(self, statistic: Cell, total: Cell, mixed: Cell) -> Cell:
        """The value, of the results of `reductions`."""
        del statistic
        return substituted(self.finish, {0: mixed, 1: total})


@dataclass(frozen=True)
class Best:
    """A monoid over (value, index): the index of the first best value; NaN is the best.

    Attributes:
        statistic: the plain monoid of the values.
        last: an index after all others.
    """

    statistic: str
    last: int = LAST

    def reductions(self) -> Iterator[tuple[str, Cell]]:
        """Plain reductions of (value, index, earlier results)."""
        hit = apply("or", apply("eq", arg(0), arg(2)), apply("ne", arg(0), arg(0)))
        yield self.statistic, arg(0)
        yield "min", apply("where", hit, arg(1), self.last)

    def finished(self, statistic: Cell, first: Cell) -> Cell:
        """The value, of the results of `reductions`."""
        del statistic
        return first


def _softmax() -> Online:
    # A maximum of -inf has no weights; subtracting 0 there keeps NaN out.
    origin = apply("where", apply("eq", arg(1), -math.inf), 0.0, arg(1))
    change = apply("exp", apply("sub", arg(0), origin))
    plain = apply("exp", apply("sub", arg(0), arg(1)))
    finish = apply("div", arg(0), arg(1))
    return Online("max", "maximum", change, change, finish, unguarded=plain)


ONLINE: dict[str, Online] = {"softmax": _softmax()}
BEST: dict[str, Best] = {"argmax": Best("max"), "argmin": Best("min")}
