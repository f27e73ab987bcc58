"""Kernels whose tiles hang over the end of a dim compute what numpy does, at extreme values too."""

from __future__ import annotations

import pytest

from benchmarks.ragged import REFUSED, RIGHT, drawn, outcome

CASES = 100


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(CASES))
def test_ragged_kernels_are_right(seed: int) -> None:
    """Drawn programs, compiled for an H200 and interpreted; NaN and infinities in their places."""
    found = outcome(seed)
    assert found.kind in (RIGHT, REFUSED), found.note


def test_drawn_programs_are_ragged_extreme_and_of_every_type() -> None:
    """What is attacked is not left out by how programs are drawn."""
    cases = [drawn(seed) for seed in range(300)]
    dtypes = {dtype for case in cases for _, _, dtype in case.specs}
    assert dtypes >= {"f8e4m3", "f8e5m2", "f16", "bf16", "f32", "f64", "i32", "i64"}
    ragged = [any(e % 16 for _, shape, _ in case.specs for e in shape) for case in cases]
    assert sum(ragged) > 250
    assert sum(case.extreme for case in cases) > 60
    words = ("where(", "sum(", "prod(", "max(", "argmax(", "any(", "var(", "softmax(", "bitwise_")
    for word in words:
        assert any(word in case.text for case in cases), word
