"""Values between kernels in layouts of a target's list: taken where the whole schedule gains."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.program.types import Array
from axe_eq_backends.cuda.target import h200
from benchmarks.drawn_programs import case

xp = axe.array
DENSE = h200.replace(kept=())


def integers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float16)


def columns(a: Any, b: Any) -> Any:
    """A softmax along the columns of a product, summed along them."""
    return xp.sum(xp.exp(nn.softmax(a @ b, axis=0)), axis=0)


PROGRAMS: dict[str, tuple[Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "columns": (columns, ((256, 32), (32, 128))),
    "a mean of columns": (
        lambda a, b: xp.mean((a @ b - xp.max(a @ b, axis=0)) ** 2, axis=0), ((1024, 64), (64, 512)),
    ),
    "rows": (lambda a, b: nn.softmax(a @ b, axis=1), ((256, 64), (64, 512))),
    "two products": (lambda a, b, c: (a @ b) @ c, ((256, 64), (64, 128), (128, 64))),
}  # fmt: skip


def both(name: str) -> tuple[Any, Any]:
    """A program compiled for a target that keeps dense rows alone, and for one that keeps more."""
    program, shapes = PROGRAMS[name]
    specs = [axe.Spec(shape, "f16") for shape in shapes]
    return axe.compile(program, *specs, target=DENSE), axe.compile(program, *specs, target=h200)


def turned(exe: Any) -> list[str]:
    """Values between kernels whose rows run along another dim than the last."""
    held = [b for b in exe.schedule.graph.buffers.values() if b.role == "temporary"]
    parsed = [axe.Layout.parse(b.layout).shard for b in held]
    return [b.name for b, shard in zip(held, parsed, strict=True) if shard[-1][1] != 1]


def test_a_product_is_kept_in_columns_where_columns_are_reduced() -> None:
    dense, exe = both("columns")
    assert turned(exe)
    assert not turned(dense)
    assert exe.cost["time_s"] < dense.cost["time_s"]
    arrays = [integers(*shape, seed=n) for n, shape in enumerate(PROGRAMS["columns"][1])]
    found = np.asarray(exe.interpret(*arrays), np.float64)
    assert np.allclose(found, np.asarray(axe.run(columns, *arrays), np.float64), rtol=2e-3)


@pytest.mark.sampled(3, slow=("a mean of columns",))
@pytest.mark.parametrize("name", PROGRAMS)
def test_no_choice_is_dearer_than_dense(name: str) -> None:
    dense, exe = both(name)
    assert exe.cost["time_s"] <= dense.cost["time_s"] * (1 + 1e-9)


def test_rows_are_kept_where_nothing_gains() -> None:
    assert not turned(both("two products")[1])


@pytest.mark.sampled(1)
@pytest.mark.parametrize("seed", range(100_000, 100_040))
def test_drawn_programs_are_never_dearer_than_dense(seed: int) -> None:
    program = case(seed).program
    costs = [axe.compile(program, target=t).cost["time_s"] for t in (DENSE, h200)]
    assert costs[1] <= costs[0] * (1 + 1e-9)
