"""Last tiles of products: what is copied of them, by brute force, and kernels with any tails."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product

import numpy as np
import pytest

from axe_eq.kernel.expr import Int, evaluate
from axe_eq.kernel.expr import var as variable
from axe_eq.kernel.threads.interp import ORDERS, KernelFault, interpret
from axe_eq_backends.cuda.meaning import MEANINGS
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.schedules import gemm_copies as schedule
from axe_eq_backends.cuda.schedules.gemm import Matrix, Problem, Tiling, gemm
from axe_eq_backends.cuda.schedules.ragged import PART_ROWS, PERIOD_ROWS, End, Side, ends, tail_of
from axe_eq_backends.cuda.target import h200


@pytest.mark.parametrize("k_major", [True, False])
def test_a_last_tile_is_all_copied_and_less_than_others(k_major: bool) -> None:
    for tile, extent in product((64, 128, 192, 256), range(1, 600)):
        rest, found = extent % tile, tail_of(extent, tile, k_major)
        step = PERIOD_ROWS if k_major else PART_ROWS
        if found is None:  # nothing is left out that could be
            assert not rest or -(-rest // step) * step == tile
        else:
            assert rest <= found < rest + step
            assert found < tile
            assert found % step == 0


def test_every_tile_is_of_one_kind() -> None:
    row, col, filled = (variable(n, low=0, high=999) for n in ("row", "col", "filled"))
    sides = [Side("m", row, 130, 64), Side("n", col, 257, 128)]
    for some in ([], sides[:1], sides[1:], sides):
        kinds = [*ends(some, filled, 3)]
        for r, c, f in product(range(0, 130, 64), range(0, 257, 128), range(4)):
            at = {"row": r, "col": c, "filled": f}
            (kind,) = (e for e in kinds if all(evaluate(x, at) for x in e.conditions))
            begins = {"m": r, "n": c}
            past = {s.name for s in some if begins[s.name] + s.tile > s.extent}
            assert kind.last == (past if f == 3 else set())


def multiplied(major: int, tiling: Tiling, m: int, n: int, k: int, seed: int) -> None:
    """Run a product of known extents, on few CTAs, and compare it with numpy's."""
    operands = Matrix("A", major=major), Matrix("B", major=major)
    kernel, rng = gemm(Problem(m, n, k, (operands,)), tiling), np.random.default_rng(seed)
    a, b = (rng.standard_normal((e, k)).astype(np.float16) for e in (m, n))
    want = a.astype(np.float32) @ b.astype(np.float32).T
    order = random.Random(seed).choice(ORDERS)
    for planned, n_ctas in ((None, 1), (plan(kernel, h200), 2)):
        arrays = {"A": a, "B": b, "C": np.zeros((m, n), np.float16)}
        run = interpret(
            kernel, arrays, planned=planned, meanings=MEANINGS, order=order, seed=seed,
            n_ctas=n_ctas,
        )  # fmt: skip
        assert np.abs(run.outputs["C"] - want).max() <= 1e-3 * np.abs(want).max()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", ["f16", "f32"])
@pytest.mark.parametrize("major", [1, 0])
@pytest.mark.parametrize(("cols", "staging"), [(40, 1), (104, 1), (152, 1), (152, 0), (184, 1)])
def test_results_of_any_columns_in_eights_are_stored(
    cols: int, staging: int, major: int, dtype: str
) -> None:
    """Their panels are lines without a swizzle; of columns that are contiguous the last is less."""
    rng = np.random.default_rng(cols)
    a, b = (rng.integers(-2, 3, (e, 64)).astype(np.float16) for e in (72, 200))
    out = Matrix("C", dtype, major)
    kernel = gemm(Problem(72, 200, 64, out=out), Tiling(64, cols, 64, 2, 1, staging=staging))
    for planned in (None, plan(kernel, h200)):
        arrays = {"A": a, "B": b, "C": np.zeros((72, 200), dtype.replace("f", "float"))}
        found = interpret(kernel, arrays, planned=planned, meanings=MEANINGS).outputs["C"]
        assert (found == a.astype(np.float32) @ b.astype(np.float32).T).all()


@pytest.mark.sampled(3)
@pytest.mark.parametrize("major", [1, 0], ids=["K-major", "MN-major"])
@pytest.mark.parametrize("number", range(8))
def test_products_with_any_tails_are_right(number: int, major: int) -> None:
    """Slots that whole tiles filled before, and those that a last tile fills first."""
    rng = random.Random(number)
    tiles = [(64, 64), (128, 64), (192, 64), (64, 128)]
    rows, cols = rng.choice(tiles + [(64, 72), (128, 104)] * major)
    tiling = Tiling(rows, cols, 64, rng.choice((2, 3)), consumers=1 if rows % 128 else 2)
    m, n = (rng.randrange(8, 3 * side, 8) for side in (rows, cols))
    multiplied(major, tiling, m, n, rng.choice((64, 136, 264)), number)


def test_slots_that_nothing_filled_are_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def hasty(sides: Sequence[Side], filled: Int, stages: int) -> list[End]:
        return [*ends(sides, filled + stages, stages)]

    multiplied(1, Tiling(64, 64, 64, 2, consumers=1), 72, 64, 136, 0)
    monkeypatch.setattr(schedule, "ends", hasty)
    with pytest.raises(KernelFault, match="never written"):
        multiplied(1, Tiling(64, 64, 64, 2, consumers=1), 72, 64, 136, 0)
