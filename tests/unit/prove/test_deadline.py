"""A budget bounds the whole call: a clock that moves at every look ends it at any step."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

import axe_eq as axe
import axe_eq.array as xp
from axe_eq import deadline as clock
from axe_eq.pack import Pack, installed
from axe_eq.prove.certificates.verdict import Proved, Refuted, Unknown

SPECS = ("3x4:f64", "3x4:f64")


class Ticks:
    """A clock that moves one second every time it is looked at."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self) -> float:
        self.seen += 1
        return float(self.seen)


@pytest.fixture
def ticks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Ticks]:
    made = Ticks()
    monkeypatch.setattr(clock, "_clock", made)
    yield made
    assert clock.seconds_left() is None  # nothing is left over for the next call


@pytest.fixture(scope="module")
def normal() -> list[Pack]:
    return [installed()["real_normal"]]


def gated(x: Any, y: Any) -> Any:
    return xp.exp(x + y) * y


def turned(x: Any, y: Any) -> Any:
    return y * xp.exp(y + x)


def cut(x: Any, y: Any) -> Any:
    return xp.exp(x + y) * x


def spread(x: Any, y: Any) -> Any:
    return y * (xp.exp(y) * xp.exp(x))


@pytest.mark.parametrize(("other", "kind"), [(turned, Proved), (cut, Refuted), (spread, Unknown)])
def test_at_whatever_step_time_ends_the_verdict_is_unknown(
    other: Any, kind: type, ticks: Ticks, normal: list[Pack]
) -> None:
    kinds = []
    for seconds in (1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144, 10**6):
        begun = ticks.seen
        verdict = axe.equivalent(gated, other, *SPECS, packs=normal, budget=seconds)
        kinds.append(type(verdict))
        if isinstance(verdict, Unknown):
            assert ticks.seen - begun < 20 * seconds  # parts of the call have shares of the limit
            assert verdict.budget
    assert kinds[0] is Unknown
    assert kinds[-1] is kind
    assert set(kinds) <= {Unknown, kind}


def test_what_was_spent_is_said(ticks: Ticks, normal: list[Pack]) -> None:
    verdict = axe.equivalent(gated, spread, *SPECS, packs=normal, budget=2)
    assert str(verdict).startswith("Unknown: time: the budget of 2 s was spent (budget: ")


def test_questions_about_layouts_end_too(ticks: Ticks) -> None:
    left, right = "tile(A[4],(4),B[6],(6))", "tile(A[4],(2,2),B[6],(1,6))"
    kinds = [type(axe.equivalent(left, right, budget=n)) for n in (1, 4, 16, 64, 10**6)]
    assert kinds[0] is Unknown
    assert kinds[-1] is Proved
    verdict = axe.equivalent("A[4]", "A[4]", budget=1)
    assert isinstance(verdict, Unknown | Proved)


def test_without_a_budget_no_clock_is_looked_at(ticks: Ticks, normal: list[Pack]) -> None:
    assert axe.equivalent(gated, turned, *SPECS, packs=normal)
    assert ticks.seen == 0


def test_limits_nest_and_end(ticks: Ticks) -> None:
    with clock.deadline(100.0):
        with clock.deadline(1.0), pytest.raises(clock.DeadlinePassed):
            clock.check_deadline()
        with clock.deadline(None):
            clock.check_deadline()
        assert clock.seconds_left()
