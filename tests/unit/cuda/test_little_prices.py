"""Prices of little, and of what is stored across lanes: latencies, steps, parts of sectors."""

from __future__ import annotations

from math import isclose

import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq_backends.cuda.lane_price import Tensors, first_s, floor_s
from axe_eq_backends.cuda.schedules.tensors import Operand
from axe_eq_backends.cuda.target import h200

ROWS, COLS = 64, 128
PART, UNIT = h200.figure("apart_store_s"), h200.figure("unit_store_s")
LATENCY = h200.memories[0].latency_s


def stored(strides: tuple[int, int], dtype: str = "f32", run: int = 0, blocks: int = 132) -> float:
    """Seconds of a kernel whose result lies so, beside those of one that lies as it is read."""

    def seconds(strides: tuple[int, int], run: int) -> float:
        ins, outs = [Operand("x", dtype, (COLS, 1))], [Operand("y", dtype, strides)]
        tensors = Tensors((ROWS, COLS), ins, outs, {"x": "x", "y": "y"}, 0.0)
        found = tensors.candidate(
            h200, {}, blocks=blocks, warps=4, resident=1.0, counts=(ROWS, 1), run=run
        )
        return found.time_s

    return seconds(strides, run) - seconds((COLS, 1), 0)


@pytest.mark.parametrize(
    ("strides", "dtype", "run", "parts"),
    [
        ((1, ROWS), "f32", 0, 1.0),  # a sector for each
        ((1, 16), "f16", 0, 1.0),
        ((1, 4), "f16", 0, 0.25),  # four neighbours of a column share one
        ((2 * COLS, 2), "f32", 0, 0.25),
        ((COLS, 1), "f32", 2, 0.5),  # two neighbours at once, then those of the next row
        ((COLS, 1), "f32", 8, 0.0),  # a whole sector
    ],
)
def test_each_part_of_a_sector_that_is_stored_alone_takes_its_time(
    strides: tuple[int, int], dtype: str, run: int, parts: float
) -> None:
    assert isclose(stored(strides, dtype, run), parts * ROWS * COLS * PART, abs_tol=1e-12)


def test_few_ctas_store_parts_of_sectors_no_faster_than_their_units() -> None:
    assert isclose(stored((1, ROWS), blocks=2), ROWS * COLS * UNIT / 2, rel_tol=1e-9)


def test_what_is_little_has_been_asked_for_before_it_is_read() -> None:
    assert first_s(h200, 0) == floor_s(h200, 0) == 0
    assert first_s(h200, 1 << 30) == LATENCY
    assert floor_s(h200, 1 << 30) == 2 * LATENCY
    assert 0 < first_s(h200, 1 << 16) < LATENCY / 3


def test_a_scan_whose_results_lie_across_its_lanes_is_dearer() -> None:
    """It was priced as if they lay along them, at 4.3 us, and took 13.6."""
    given = axe.Spec((137, 33, 115), "bf16", layout=axe.Layout([(137, 1), (3795, 137)]))
    free = h200.replace(figures={**h200.figures, "apart_store_s": 0.0, "unit_store_s": 0.0})
    priced, before = (
        axe.compile(lambda x: axe.array.cumulative_sum(x, axis=2), given, target=target)
        for target in (h200, free)
    )
    assert "scans" in {k.schedule for k in before.kernels}
    assert priced.cost["time_s"] - before.cost["time_s"] > 0.5e-6


def test_steps_of_little_work_wait_for_their_reads() -> None:
    def waits(k: int) -> float:
        exe = axe.compile(lambda a, b: nn.gelu(a @ b), f"8x{k}:f32", f"{k}x8:f32", target="h200")
        (kernel,) = exe.kernels
        assert kernel.schedule == "register_products"
        return float(kernel.time_s)

    assert 3 * LATENCY < waits(512) - waits(256) < 6 * LATENCY  # four steps more
