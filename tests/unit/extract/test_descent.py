"""Where a descent ends, no single value in memory more or less makes the schedule cheaper."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

import axe_eq as axe
from axe_eq.extract.search import stage
from axe_eq.extract.search.search import MODERATE_VALUES, Search
from axe_eq.extract.search.selection import Selection
from benchmarks.drawn_programs import case

# Reductions with cells around them: figures promise what no candidate reaches.
SEEDS = (3488,)


@pytest.mark.parametrize("seed", SEEDS)
def test_no_single_flip_is_cheaper(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[float] = []
    real: Callable[..., Any] = stage._cheapest

    def checked(search: Search, selection: Selection, number: int) -> Sequence[tuple[int, ...]]:
        assert len(search.values) > MODERATE_VALUES  # smaller ones also exchange several
        for value in search.values:
            undo = search.set_materialised([value])
            found.append(search.total() / selection.time_s)
            search.restore([value], undo)
        flips: Sequence[tuple[int, ...]] = real(search, selection, number)
        return flips

    monkeypatch.setattr(stage, "_cheapest", checked)
    with axe.debug(cache=0):
        axe.compile(case(seed).program, target="h200")
    assert found
    assert min(found) > 1 - 1e-9
