"""Searches for forms and tilings count their work: what they cost does not grow with copies."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from axe_eq.layout.normal import tables
from axe_eq.layout.notation import xla_search


def test_copies_that_are_not_symmetric_are_no_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """No search is begun for them: every sum of progressions is symmetric."""
    monkeypatch.setattr(tables, "factor", lambda *_: pytest.fail("searched"))
    monkeypatch.setattr(tables, "_clustered", lambda *_: pytest.fail("searched"))
    assert tables.steps_of(np.array([0, 1, 3, 7, 12])) is None
    assert tables.steps_of(np.array([0, 1, 2**40])) is None
    assert tables.steps_of(np.array([0, 1, 4, 5])) == ((1, 2), (4, 2))


def naive_steps(table: Any) -> list[list[int]]:
    """The steps of a tiling that may have made a table, one after the other."""
    span = int(table.max()) + 1
    found = [
        [slow, fast, block, block]
        for block in range(1, span)
        for fast in range(2, span // block + 1)
        for slow in range(2, span // (block * fast) + 2)
    ]
    for spread in range(2, span + 1):
        found += [[1, 1, b, spread] for b in range(int((table % spread).max()) + 1, spread)]
    return found


def test_steps_of_tilings_are_listed_in_the_order_of_their_digits() -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        table = rng.permutation(int(rng.integers(2, 40)))[: int(rng.integers(1, 20))]
        wanted, made = naive_steps(table), xla_search._undone(table, 10**7)
        assert (made is None) == (not wanted)
        assert made is None or made[1].tolist() == wanted
