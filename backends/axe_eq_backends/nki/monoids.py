"""Structured reductions as plain ones over whole rows, and as running states over chunks.

Softmax mixes values by weights of scores that a maximum keeps in range; argmax and argmin are the
first index of the best value.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from axe_eq.errors import DispatchError
from axe_eq.kernel.cells import Apply, Cell, Operand, apply, arg, replaced
from axe_eq.lower.formulas import Cone, Fold, Leaf, Load, Prefix
from axe_eq_backends.nki.vector import FOLDS

LAST = (1 << 24) - 1  # an index after all others; float32 holds it


@dataclass(frozen=True)
class Online:
    """A reduction of values by weights of scores.

    Attributes:
        statistic: the plain monoid of the scores.
        merge: the cell that merges two statistics.
        weight: a cell of (score, statistic).
        finish: a cell of (weighted sum, sum of weights).
    """

    statistic: str
    merge: str
    weight: Cell
    finish: Cell


def _softmax() -> Online:
    # Where all scores are -inf there are no weights; less 0 there keeps NaN out.
    origin = apply("where", apply("eq", arg(1), -math.inf), 0.0, arg(1))
    return Online(
        "max", "maximum", apply("exp", apply("sub", arg(0), origin)), apply("div", arg(0), arg(1))
    )


ONLINE: Mapping[str, Online] = {"softmax": _softmax()}
BEST = {"argmax": "max", "argmin": "min"}


def substituted(cell: Cell, values: Mapping[int, Cell]) -> Cell:
    """The cell with operands replaced by expressions."""
    if isinstance(cell, Operand):
        return values.get(cell.index, cell)
    if isinstance(cell, Apply):
        return Apply(cell.cell, tuple(substituted(a, values) for a in cell.args))
    return cell


def _reductions(
    fold: Fold,
) -> tuple[list[tuple[str, Callable[[list[Cell]], Cell]]], Callable[[list[Cell]], Cell]]:
    """Plain reductions in turn, each a cell of the results before, and the value of all."""
    assert isinstance(fold.cell, Apply)
    score, value = fold.cell.args
    if fold.monoid in ONLINE:
        online = ONLINE[fold.monoid]

        def weight(done: list[Cell]) -> Cell:
            return substituted(online.weight, {0: score, 1: done[0]})

        return [
            (online.statistic, lambda done: score),
            ("+", weight),
            ("+", lambda done: apply("mul", weight(done), value)),
        ], lambda done: substituted(online.finish, {0: done[2], 1: done[1]})
    if fold.monoid in BEST:

        def hit(done: list[Cell]) -> Cell:
            same = apply("or", apply("eq", score, done[0]), apply("ne", score, score))
            return apply("where", same, value, LAST)

        return [(BEST[fold.monoid], lambda done: score), ("min", hit)], lambda done: done[1]
    raise DispatchError(
        f"monoid {fold.monoid}", "is none that engines reduce by",
        " ".join((*FOLDS, *ONLINE, *BEST)),
    )  # fmt: skip


def plain(cone: Cone) -> Cone:
    """A cone whose reductions are all by operators that an engine reduces by.

    Raises:
        DispatchError: a monoid that is none of them.
    """
    leaves: list[Leaf] = []
    known: dict[Cell, Cell] = {}

    def added(leaf: Leaf) -> Cell:
        leaves.append(leaf)
        return arg(len(leaves) - 1)

    for n, leaf in enumerate(cone.leaves):
        if isinstance(leaf, Fold) and leaf.monoid not in FOLDS:
            fold = replace(leaf, cell=replaced(leaf.cell, known))
            rest, finish = _reductions(fold)
            done: list[Cell] = []
            for monoid, cell in rest:
                dtypes = leaf.dtypes[1:] if monoid == "min" and done else ("f32",)
                done.append(added(Fold(monoid, leaf.dims, leaf.coords, cell(done), False, dtypes)))
            known[arg(n)] = finish(done)
        elif isinstance(leaf, Fold):
            known[arg(n)] = added(replace(leaf, cell=replaced(leaf.cell, known)))
        elif isinstance(leaf, Prefix):
            cells = tuple(replaced(c, known) for c in leaf.cells)
            known[arg(n)] = added(replace(leaf, cells=cells))
        elif isinstance(leaf, Load):
            looks = tuple(replace(x, cell=replaced(x.cell, known)) for x in leaf.looks)
            known[arg(n)] = added(replace(leaf, looks=looks))
        else:
            known[arg(n)] = added(leaf)
    roots = [replace(r, cell=replaced(r.cell, known)) for r in cone.roots]
    return replace(cone, leaves=leaves, roots=roots)


def unable(monoid: str) -> str:
    """Why engines do not reduce by a monoid; "" where they do."""
    if monoid in FOLDS or monoid in ONLINE or monoid in BEST:
        return ""
    return f"reduces by {monoid}, which is no operator of an engine"


__all__ = ["BEST", "ONLINE", "Iterator", "Online", "plain", "unable"]
