"""Pairs of programs written by hand: nothing false is Proved, nothing true is Refuted."""

from __future__ import annotations

import pytest

from benchmarks.hand_pairs import Pair, outcome, pairs, sides

PAIRS = list(pairs())


@pytest.mark.sampled(30)
@pytest.mark.parametrize("pair", PAIRS, ids=str)
def test_what_is_said_of_a_pair_is_so(pair: Pair) -> None:
    said = outcome(pair, budget=1.0)
    assert not said.wrong, said


def test_what_is_said_against_the_truth_is_seen() -> None:
    mild, odd = (
        Pair("swapped", *sides(line), "3:f32", True) for line in ("x + x = x", "x - x = x")
    )
    assert outcome(mild, 1.0).wrong
    assert outcome(odd, 1.0).wrong
    proved = Pair("said to be false", *sides("x + y = y + x"), "3:f32", False)
    assert outcome(proved, 1.0).wrong


def test_there_are_500_pairs_about_half_of_them_true() -> None:
    assert len({p.name for p in PAIRS}) == len(PAIRS) >= 500
    assert 0.4 < sum(p.is_true for p in PAIRS) / len(PAIRS) < 0.6
