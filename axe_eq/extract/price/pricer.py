"""Pricing: the cheapest schedule and parameters of a cone, remembered by its summary.

What a schedule says of a cone's figures is a promise until its kernel is built. Candidates that
one cone could not be built by are left out of its price, and of no other's of the same figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np

from axe_eq.errors import PackError
from axe_eq.pack import ask_schedule
from axe_eq.program.types import Array
from axe_eq.schedule.summary import Columns, Schedule, Summary
from axe_eq.target import Target


@dataclass(frozen=True)
class Price:
    """What a cone costs, how, and what was ruled out.

    Attributes:
        time_s: estimated seconds; inf where nothing implements it.
        schedule: name of the schedule.
        row: instruction row, "" where none.
        parameters: block sizes by letter and other parameters.
        costs: named costs with units in their names.
        rejected: reasons, with the number of candidates each ruled out.
    """

    time_s: float
    schedule: str = ""
    row: str = ""
    parameters: tuple[tuple[str, int], ...] = ()
    costs: tuple[tuple[str, float], ...] = ()
    rejected: tuple[tuple[str, int], ...] = ()

    @property
    def candidate(self) -> Candidate:
        """How it is implemented: what a kernel is built from."""
        return self.schedule, self.row, self.parameters


Candidate = tuple[str, str, tuple[tuple[str, int], ...]]
"""Schedule, instruction row and parameters."""
NOTHING: Mapping[Candidate, str] = MappingProxyType({})


class Pricer:
    """Prices summaries on one target with the schedules of some packs.

    Raises:
        PackError: no schedule exists for the target's family.
    """

    def __init__(self, target: Target, schedules: Sequence[Schedule]) -> None:
        self.target = target
        self.schedules = [s for s in schedules if target.family in s.families]
        if not self.schedules:
            raise PackError(
                f"target {target.name!r}",
                f"no schedule for family {target.family!r}",
                "a pack with one",
            )
        self._memo: dict[Summary, Price] = {}
        self._tables: dict[tuple[str, Summary], Columns] = {}

    def price(self, summary: Summary, ruled_out: Mapping[Candidate, str] = NOTHING) -> Price:
        """The cheapest way to implement a cone.

        Args:
            summary: its figures.
            ruled_out: candidates that this cone cannot be built by, and why.

        Raises:
            PackError: a schedule fails, or answers with what is no reason or no table.
        """
        if ruled_out:
            return self._price(summary, ruled_out)
        found = self._memo.get(summary)
        if found is None:
            found = self._memo[summary] = self._price(summary, ruled_out)
        return found

    def _price(self, summary: Summary, ruled: Mapping[Candidate, str]) -> Price:
        best = Price(float("inf"))
        reasons: dict[str, int] = Counter(f"{name}: {why}" for (name, *_), why in ruled.items())
        for schedule in self.schedules:
            if summary.scans and not getattr(schedule, "scans", False):
                reasons[f"{schedule.name}: a scan"] = 1
                continue
            reason = self._asked(schedule, "refuse", summary)
            if reason is not None:
                reasons[f"{schedule.name}: {reason}"] = 1
                continue
            columns = self._table(schedule, summary)
            for why, count in columns.rejected.items():
                reasons[f"{schedule.name}: {why}"] = count
            time_s = _left(schedule.name, columns, summary, ruled)
            at = int(np.argmin(time_s))
            if time_s[at] < best.time_s:
                best = _chosen(schedule.name, columns, at, summary)
        return Price(
            best.time_s,
            best.schedule,
            best.row,
            best.parameters,
            best.costs,
            tuple(reasons.items()),
        )

    def _table(self, schedule: Schedule, summary: Summary) -> Columns:
        """Its candidates; asked once for all places of operands where these do not matter to it."""
        if getattr(schedule, "prices_places", True):
            found: Columns = self._asked(schedule, "price", summary)
            return found
        key = schedule.name, summary.without_places()
        if key not in self._tables:
            self._tables[key] = self._asked(schedule, "price", key[1])
        return self._tables[key]

    def _asked(self, schedule: Schedule, what: str, summary: Summary) -> Any:
        """What a schedule answers."""
        return ask_schedule(
            schedule, what, summary, self.target, expected=_ANSWERS[what],
            wrong=lambda answer: _wrong_answer(what, answer),
        )  # fmt: skip

    @property
    def summaries(self) -> Collection[Summary]:
        """The cones priced so far, each once."""
        return self._memo.keys()

    @property
    def priced(self) -> int:
        """Distinct cones priced so far."""
        return len(self._memo)


_ANSWERS = {
    "refuse": "a reason as text, or None",
    "price": "Columns: as many seconds in time_s (inf where rejected) as candidates in every block",
}


def _wrong_answer(what: str, answer: Any) -> str | None:
    """What is wrong with the answer of a schedule."""
    if what == "refuse":
        fits = answer is None or isinstance(answer, str)
        return None if fits else f"returns {answer!r}"
    if not isinstance(answer, Columns) or not answer.block:
        return f"returns {answer!r}"
    number = len(answer)
    columns = {**answer.block, **answer.extra, **answer.costs, "time_s": answer.time_s}
    for name, column in columns.items():
        if np.shape(column) != (number,):
            held = f"of shape {np.shape(column)}" if np.shape(column) else f"{column!r}"
            unset = " (is it unset?)" if name == "time_s" and not np.size(column) else ""
            return f"gives {name} {held} for {number} candidates{unset}"
    if not number:
        return "returns no candidate"
    if len(answer.rows) not in (0, number):
        return f"gives {len(answer.rows)} rows for {number} candidates"
    time_s = np.asarray(answer.time_s)
    bad = time_s[~(time_s >= 0)]  # NaN too
    return f"gives a time_s of {bad[0]}" if bad.size else None


def _left(name: str, columns: Columns, summary: Summary, ruled: Mapping[Candidate, str]) -> Array:
    """Seconds of a schedule's candidates, infinite where one was built in vain."""
    time_s = np.asarray(columns.time_s)
    if not any(schedule == name for schedule, _, _ in ruled):
        return time_s
    time_s = time_s.copy()
    while time_s.min() < np.inf:
        at = int(np.argmin(time_s))
        if _chosen(name, columns, at, summary).candidate not in ruled:
            break
        time_s[at] = np.inf
    return time_s


def _chosen(name: str, columns: Columns, at: int, summary: Summary) -> Price:
    chosen = columns.block.keys() - columns.estimated
    letters = [letter for letter, _ in summary.extents if letter in chosen]
    sizes = {e: int(columns.size(e, summary.extent(e))[at]) for e in letters}
    sizes |= {key: int(column[at]) for key, column in columns.extra.items()}
    costs = {key: float(column[at]) for key, column in columns.costs.items()}
    row = columns.rows[at] if columns.rows else ""
    return Price(float(columns.time_s[at]), name, row, tuple(sizes.items()), tuple(costs.items()))
