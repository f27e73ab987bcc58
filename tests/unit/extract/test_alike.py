"""Cones that are alike up to the names of their tiles are summarised once, and no others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import axe_eq as axe
from axe_eq.extract.price import priced
from axe_eq.extract.price.cone import Picks
from axe_eq.extract.price.figures import summarise
from axe_eq.extract.price.priced import Prices
from axe_eq.extract.price.pricer import Price
from benchmarks.compile import FAMILIES


def test_repeated_blocks_are_summarised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    counts: list[int] = []

    def counted(*given: Any) -> Any:
        counts[-1] += 1
        return summarise(*given)

    monkeypatch.setattr(priced, "summarise", counted)
    with axe.debug(cache=0):
        for n_ops in (30, 60):
            counts.append(0)
            axe.compile(FAMILIES["mlp"](n_ops), target="h200")
    assert 0 < counts[1] <= 1.1 * counts[0]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("family", FAMILIES)
def test_cones_of_one_form_have_one_summary(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known: dict[tuple[object, ...], Any] = {}
    met = 0
    real = Prices.price

    def checked(self: Prices, roots: Sequence[int], picks: Picks, stored: Sequence[str]) -> Price:
        nonlocal met
        met += 1
        form = id(self), tuple(stored), *self._form(roots, picks)
        summary = summarise(self.forest, roots, picks, stored)
        assert known.setdefault(form, summary) == summary
        return real(self, roots, picks, stored)

    monkeypatch.setattr(Prices, "price", checked)
    with axe.debug(cache=0):
        axe.compile(FAMILIES[family](16), target="h200")
    assert len(known) < met
