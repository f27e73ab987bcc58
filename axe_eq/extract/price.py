"""Pricing: the cheapest schedule and parameters of a cone, remembered by its summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from axe_eq.errors import PackError
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

    def price(self, summary: Summary) -> Price:
        """The cheapest way to implement a cone with this summary."""
        found = self._memo.get(summary)
        if found is None:
            found = self._memo[summary] = self._price(summary)
        return found

    def _price(self, summary: Summary) -> Price:
        best = Price(float("inf"))
        reasons: dict[str, int] = {}
        for schedule in self.schedules:
            reason = schedule.refuse(summary, self.target)
            if reason is not None:
                reasons[f"{schedule.name}: {reason}"] = 1
                continue
            columns = schedule.price(summary, self.target)
            for why, count in columns.rejected.items():
                reasons[f"{schedule.name}: {why}"] = count
            at = int(np.argmin(columns.time_s))
            if columns.time_s[at] < best.time_s:
                best = _chosen(schedule.name, columns, at, summary)
        return Price(
            best.time_s,
            best.schedule,
            best.row,
            best.parameters,
            best.costs,
            tuple(reasons.items()),
        )

    @property
    def priced(self) -> int:
        """Distinct cones priced so far."""
        return len(self._memo)


def _chosen(name: str, columns: Columns, at: int, summary: Summary) -> Price:
    letters = [letter for letter, _ in summary.extents if letter in columns.block]
    sizes = {e: int(columns.size(e, summary.extent(e))[at]) for e in letters}
    sizes |= {key: int(column[at]) for key, column in columns.extra.items() if summary.products}
    costs = {key: float(column[at]) for key, column in columns.costs.items()}
    row = columns.rows[at] if columns.rows else ""
    return Price(float(columns.time_s[at]), name, row, tuple(sizes.items()), tuple(costs.items()))
