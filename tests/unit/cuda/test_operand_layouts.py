"""Cells, rows, moves and products of operands in any layout are right.

Every program is one kernel, without a search, on flat buffers in the layouts of its specs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.errors import AxeError
from axe_eq.kernel.threads.interp import ORDERS
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.target import h200
from tests.unit.cuda.whole import Whole, launch, whole

xp = axe.array
ROWS, COLS = 24, 40
# Layouts of a (24, 40) value.
LAYOUTS = {
    "rows": "S[(24,40):(40@m,1@m)]",
    "columns": "S[(24,40):(1@m,24@m)]",
    "padded rows": "S[(24,40):(48@m,1@m)]",
    "oddly padded rows": "S[(24,40):(43@m,1@m)]",
    "padded columns": "S[(24,40):(1@m,32@m)]",
    "every other element": "S[(24,40):(80@m,2@m)]",
    "blocks": "S[(3,8,5,8):(320@m,8@m,64@m,1@m)]",
    "blocks of columns": "S[(3,8,5,8):(320@m,1@m,64@m,8@m)]",
    "small blocks": "S[(12,2,20,2):(80@m,2@m,4@m,1@m)]",
}
PROGRAMS: dict[str, Callable[[Any, Any], Any]] = {
    "cells": lambda x, y: nn.relu(x) + y,
    "turned cells": lambda x, y: x.T * 2 + y.T,
    "a move": lambda x, y: xp.abs(x),
    "softmax": lambda x, y: nn.softmax(x + y, axis=-1),
    "sums of columns": lambda x, y: xp.sum(x * y, axis=0),
    "a product": lambda x, y: x @ y.T,
}


def made(name: str, x: str, y: str) -> Whole:
    specs = (axe.Spec((ROWS, COLS), "f16", layout=LAYOUTS[layout]) for layout in (x, y))
    return whole(PROGRAMS[name], *specs)


def check(w: Whole, orders: Sequence[str], levels: Sequence[bool] = (True,)) -> None:
    planned = plan(w.lowered.kernel, h200)
    for order, with_plans in product(orders, levels):
        flat = w.flat()
        launch(w.lowered, flat, planned=planned if with_plans else None, order=order)
        w.check(flat, 4e-3)


@pytest.mark.sampled(18)
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_operands_in_every_layout_are_right(name: str, layout: str, full: bool) -> None:
    for other in LAYOUTS if full else ("rows",):
        check(made(name, layout, other), ORDERS if full else ("random",), (True, False))


def test_what_lies_on_lanes_is_refused_with_the_reason() -> None:
    spec = axe.Spec((ROWS, COLS), "f16", layout="S[(24,40):(40@m,1@lane)]")
    with pytest.raises(AxeError, match="one memory axis"):
        whole(PROGRAMS["cells"], spec, axe.Spec((ROWS, COLS), "f16"))


@pytest.mark.parametrize(
    "layout",
    ["sw(3,3,3)@m . S[(24,40):(40@m,1@m)]", "S[(24,40):(40@m,1@m)] + R[(2):(960@m)]"],
    ids=["swizzled", "replicated"],
)
def test_what_has_no_strides_is_read_where_integers_say(layout: str) -> None:
    specs = (axe.Spec((ROWS, COLS), "f16", layout=layout), axe.Spec((ROWS, COLS), "f16"))
    exe = axe.compile(PROGRAMS["cells"], *specs, target="h200")
    given = [np.arange(ROWS * COLS).reshape(ROWS, COLS).astype("f2") / n for n in (64, 128)]
    assert np.array_equal(exe.interpret(*given), axe.run(PROGRAMS["cells"], *given))
