"""Searches for forms and tilings count their work: what they cost does not grow with copies."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from axe_eq.errors import SearchError
from axe_eq.layout import Layout
from axe_eq.layout.normal import swizzle_filter as sieve
from axe_eq.layout.normal import swizzled, tables, unswizzle
from axe_eq.layout.notation import xla_search
from axe_eq.layout.value.swizzle import Swizzle

MANY_COPIES = (
    "sw(2,3,5)@m . sw(2,0,2)@m . sw(4,1,2)@m . S[(128):(64@m)] + R[(2,5,6):(3@m,63@m,6@m)]"
)


def test_pairs_of_swizzles_are_priced_with_all_copies_that_they_undo(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A form of 128 elements with 48 copies each undid several times the values allowed."""
    undone: list[int] = []
    real: Callable[..., Any] = sieve.pairs

    def counted(column: Any, singles: Any) -> Any:
        undone.append(len(singles) ** 2 * min(sieve.START, len(column)) * column.shape[1])
        yield from real(column, singles[:2])  # what it finds is not asked

    monkeypatch.setattr(swizzled, "pairs", counted)
    with pytest.raises(SearchError, match="fewer swizzles"):
        Layout.parse(MANY_COPIES).canonical()
    assert undone
    assert max(undone) <= swizzled.MAX_UNDONE


def test_lists_are_asked_for_so_many_copies_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def no_list(values: tuple[int, ...]) -> bool:
        asked.append(len(values))
        return False

    column = np.sort(Swizzle("m", 2, 0, 2).apply_table(np.arange(64).reshape(4, 16) * 5), axis=1)
    monkeypatch.setattr(unswizzle, "_have_list", no_list)
    monkeypatch.setattr(unswizzle, "_alike", lambda t: np.ones(len(t), dtype=bool))
    monkeypatch.setattr(unswizzle, "MAX_COPIES", 160)
    assert list(unswizzle.unswizzled(column, "m", 9)) == []
    assert sum(asked) <= 160 + 16  # the sets as they are, and so many more


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
