"""Structured reductions as plain ones over whole rows, and as running states over chunks.

Softmax mixes values by weights of scores that a maximum keeps in range; argmax and argmin are the
first index of the best value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from axe_eq.errors import DispatchError
from axe_eq.kernel import structured
from axe_eq.kernel.cells import Apply, Cell, apply, arg, replaced, substituted
from axe_eq.kernel.structured import Best, Online
from axe_eq.lower.formulas import Cone, Fold, Leaf, Load, Prefix
from axe_eq_backends.nki.vector import FOLDS

LARGEST = float(np.finfo(np.float32).max)
# Indices are float32 on the engines: 2^24 - 1 is the last that they tell from the next.
BEST = {name: Best(best.statistic, last=(1 << 24) - 1) for name, best in structured.BEST.items()}


def _softmax() -> Online:
    # A maximum of -inf has no weights; the least float in its place keeps NaN out, by an operator
    # that an instruction has beside others.
    change = apply("exp", apply("sub", arg(0), apply("maximum", arg(1), -LARGEST)))
    return replace(structured.ONLINE["softmax"], weight=change, rescale=change)


ONLINE = {**structured.ONLINE, "softmax": _softmax()}


def _structured(fold: Fold, added: Callable[[Leaf], Cell]) -> Cell:
    """Add the plain reductions of a structured one; its value as a cell of them."""
    monoid = ONLINE.get(fold.monoid) or BEST.get(fold.monoid)
    if monoid is None:
        raise DispatchError(
            f"monoid {fold.monoid}", "is none that engines reduce by",
            " ".join((*FOLDS, *ONLINE, *BEST)),
        )  # fmt: skip
    assert isinstance(fold.cell, Apply)
    given, results = dict(enumerate(fold.cell.args)), list[Cell]()
    for name, cell in monoid.reductions():
        dtypes = fold.dtypes[1:] if name == "min" and results else ("f32",)
        value = substituted(cell, given)
        results.append(added(Fold(name, fold.dims, fold.coords, value, False, dtypes)))
        given[1 + len(results)] = results[-1]
    return monoid.finished(*results)


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
            known[arg(n)] = _structured(fold, added)
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
