"""Samples of the campaigns that draw programs and pairs of them: never a wrong answer."""

from __future__ import annotations

import pytest

from benchmarks.drawn_programs import case
from benchmarks.pairs import judged, pair
from benchmarks.programs import CRASH, NOT_EMITTED, WRONG, is_large, outcome

PAIRS = 200  # 2 % of those of a whole campaign
SEEDS = range(100_000, 100_060)  # as much, and others than the campaign's own


def check(seed: int, target: str) -> None:
    if is_large(case(seed).program):
        pytest.skip("more than an interpreter should be given")
    found = outcome(seed, target, "interpreter")
    assert found.state not in (WRONG, NOT_EMITTED, CRASH), found


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", SEEDS)
def test_kernels_of_a_drawn_program_are_right(seed: int) -> None:
    """What compiles for an H200 is emitted, and computes what numpy does in float64."""
    check(seed, "h200")


@pytest.mark.sampled(8)
@pytest.mark.parametrize("seed", SEEDS)
def test_a_drawn_program_is_right_on_the_cpu(seed: int) -> None:
    check(seed, "cpu")


@pytest.mark.sampled(20)
@pytest.mark.parametrize("number", range(PAIRS))
def test_what_is_proved_of_a_drawn_pair_is_true(number: int) -> None:
    """Proved means equal wherever numpy looks, by a certificate that is accepted."""
    dtype, left, right, _ = pair(2, number)
    found = judged(dtype, left, right, f"2:{number}", budget=0.2)
    assert found["verdict"] in ("Proved", "Refuted", "Unknown"), found
    assert "wrong" not in found, found
    assert found.get("accepted", True), found
