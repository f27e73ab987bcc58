"""A search ends with the best schedule whose kernels it has read, not with its last one."""

from __future__ import annotations

from typing import Any

import pytest

import axe_eq as axe
from axe_eq.extract.search.search import EXACT_VALUES, MODERATE_VALUES, Search

xp = axe.array


def steps(x: Any) -> Any:
    for _ in range(EXACT_VALUES // 2 + 1):
        x = xp.tanh(x * x)
    return x


@pytest.mark.usefixtures("searched")
def test_a_round_that_is_dearer_once_it_is_read_is_taken_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Kernels taken by figures alone may be refused when they are read: none is left then."""
    sizes, settled = [], []

    def dearer(search: Search) -> bool:
        sizes.append(len(search.values))
        settled.append(search.total())
        search._become(frozenset(search.values) | search.roots)
        return False

    monkeypatch.setattr(Search, "_exchange", dearer)
    exe = axe.compile(steps, "8x16:f32", target="h200")
    assert EXACT_VALUES < min(sizes) <= max(sizes) <= MODERATE_VALUES
    assert exe.cost["time_s"] == min(settled)
