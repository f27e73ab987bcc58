"""Cones that their reductions alone forbid are refused before their figures are worked out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

import axe_eq as axe
from axe_eq.errors import PackError
from axe_eq.extract.price.cone import Picks, used
from axe_eq.extract.price.figures import summarise
from axe_eq.extract.price.priced import Prices
from axe_eq.extract.price.pricer import Price, Pricer
from axe_eq.extract.price.reductions import reductions
from axe_eq.schedule.summary import Reductions
from axe_eq_backends.cuda.lane_cost import Lanes
from axe_eq_backends.cuda.target import h200
from benchmarks.compile import FAMILIES
from benchmarks.drawn_programs import case

DRAWN = {"scans": 169, "tests": 36}


def _program(name: str) -> object:
    return FAMILIES[name](8) if name in FAMILIES else case(DRAWN[name]).program


@pytest.mark.parametrize("name", ["transformer", *DRAWN])
def test_what_is_refused_early_no_schedule_takes(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    met: list[bool] = []
    real = Prices.estimate

    def checked(self: Prices, roots: Sequence[int], picks: Picks, stored: Sequence[str]) -> Price:
        summary = summarise(self.forest, roots, picks, stored)
        found = reductions(self.forest, used(roots, picks), picks, len(roots))
        assert found == summary.reductions
        if early := self.pricer.refused(found):
            late = self.pricer.price(summary)
            assert late.time_s == float("inf")
            # The same reasons, said of the same schedules; figures may say another one first.
            assert len(early.rejected) == len(late.rejected) == len(self.pricer.schedules)
        met.append(bool(early))
        return real(self, roots, picks, stored)

    monkeypatch.setattr(Prices, "estimate", checked)
    with axe.debug(cache=0):
        axe.compile(_program(name), target="h200")  # type: ignore[arg-type]
    assert met
    assert any(met) == (name in ("transformer", "tests"))


def _pricer(*schedules: Any) -> Pricer:
    return Pricer(h200, schedules)


def test_a_schedule_that_does_not_say_is_asked_about_figures() -> None:
    nested = Reductions(folds=2, spaces=2)
    assert _pricer(Lanes()).refused(nested)

    class Plain:
        """A schedule of a pack: it has what the protocol asks for."""

        name, families = "plain", ("cuda",)
        price, refuse = Lanes.price, Lanes.refuse

    assert _pricer(Lanes(), Plain()).refused(nested) is None


def test_an_answer_that_is_no_reason_names_the_schedule() -> None:
    class Says(Lanes):
        """Lanes that answer with no text."""

        name = "says"

        def refuse_reductions(self, *_: object) -> object:  # type: ignore[override]
            """Yes."""
            return True

    with pytest.raises(
        PackError, match=r"'lanes'.*refuse_reductions returns True; expected a reas"
    ):
        _pricer(Says()).refused(Reductions())
