"""What rows cost beside memory's rate: reads one by one, and weights that a unit's cache keeps."""

from __future__ import annotations

from typing import Any

import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.lower.read import read_cone
from axe_eq_backends.cuda.prefixes import alone
from axe_eq_backends.cuda.target import h200
from axe_eq_backends.cuda.ways import candidates_of


def _norm(x: Any, w: Any) -> Any:
    return nn.rmsnorm(x) * w


def _price(columns: int, rows: int = 1024, **figures: float) -> float:
    """Seconds of the cheapest kernel whose vectors begin where rows do."""
    target = h200.replace(name="changed", figures={**h200.figures, **figures})
    exe = axe.compile(_norm, f"{rows}x{columns}:f16", f"{columns}:f16", target=target)
    (step,) = exe.schedule.graph.kernels
    offered = candidates_of(read_cone(step, alone), target)
    return min(c.time_s for c in offered if "shifted" not in c.parameters)


def test_elements_that_no_vector_holds_are_asked_for_one_by_one() -> None:
    # 423 x 9759 took 1.7 times what it was priced at as if it were read in vectors.
    assert _price(9759) > 1.3 * _price(9760)
    assert _price(9759, ask_s=0.0) < 1.2 * _price(9760, ask_s=0.0)


def test_rows_that_begin_anywhere_are_read_in_vectors() -> None:
    for columns in (9759, 9760):
        (kernel,) = axe.compile(_norm, f"1024x{columns}:f16", f"{columns}:f16", target=h200).kernels
        assert (kernel.parameters["vector"], "shifted" in kernel.parameters) == (8, columns == 9759)


def test_weights_of_rows_are_read_once_by_a_unit() -> None:
    by_l2 = _price(12288, rows=8192, unit_cache_bytes=0)
    again = 2 * 12288 * 8192 / (h200.memories[0].bytes_per_s * h200.figure("l2_over_memory"))
    assert 0.5 * again < by_l2 - _price(12288, rows=8192) < 1.1 * again
    # More than a unit's cache holds is read again all the same.
    assert _price(24576, unit_cache_bytes=0) == _price(24576)


@pytest.mark.parametrize("columns", [1000, 4096, 12288])
def test_rows_that_fit_in_registers_are_held_by_threads_of_their_own(columns: int) -> None:
    # A sweep that holds whole rows has as many steps, and CTAs of more of them.
    exe = axe.compile(_norm, f"1024x{columns}:f16", f"{columns}:f16", target="h200")
    (kernel,) = exe.kernels
    assert "row_threads" in kernel.parameters
