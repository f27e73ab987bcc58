"""Pricing: the cheapest schedule and parameters of a cone, remembered by its summary.

What a schedule says of a cone's figures is a promise until its kernel is built. Schedules with
`candidates` read the cone itself before it is taken: the cheapest candidate is its price then.
Candidates that one cone could not be built by are left out of its price, and of no other's of the
same figures.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from axe_eq.errors import AxeError, PackError
from axe_eq.lower.candidate import Candidate
from axe_eq.pack import ask_schedule
from axe_eq.program.types import Array
from axe_eq.schedule.summary import Columns, Formula, Reductions, Schedule, Summary, link_bytes
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
        others: parameters of the next best candidates of the schedule as text, and their seconds;
            of schedules that read the cone.
        estimated: it is one by figures of a schedule that reads cones before they are taken.
    """

    time_s: float
    schedule: str = ""
    row: str = ""
    parameters: tuple[tuple[str, int], ...] = ()
    costs: tuple[tuple[str, float], ...] = ()
    rejected: tuple[tuple[str, int], ...] = ()
    others: tuple[tuple[str, float], ...] = ()
    estimated: bool = False

    @property
    def way(self) -> Way:
        """How it is implemented: what a kernel is built from."""
        return self.schedule, self.row, self.parameters


Way = tuple[str, str, tuple[tuple[str, int], ...]]
"""Schedule, instruction row and parameters."""
Form = tuple[object, ...]
"""The layouts that a cone's roots are stored in, and the kinds of its tiles."""


@dataclass
class Known:
    """A cone's figures, its price by them, and its price once schedules have read it.

    There are no figures of a cone that its reductions alone forbid.
    """

    summary: Summary | None
    figures: Price
    read: Price | None = None


NOTHING: Mapping[Way, str] = MappingProxyType({})
INFINITE = float("inf")
MOST_OTHERS = 3
A_SCAN = "a scan"


class Pricer:
    """Prices summaries on one target with the schedules of some packs.

    What it remembers is of no program: the programs that a mesh's devices run share one.

    Args:
        target: the machine.
        schedules: those of other families are left out.
        rounds: kernels round every node to its own dtype, see `KernelStep.rounds`.

    Raises:
        PackError: no schedule exists for the target's family.
    """

    def __init__(self, target: Target, schedules: Sequence[Schedule], rounds: bool = False) -> None:
        self.target, self.rounds = target, rounds
        self.schedules = [s for s in schedules if target.family in s.families]
        if not self.schedules:
            raise PackError(
                f"target {target.name!r}",
                f"no schedule for family {target.family!r}",
                "a pack with one",
            )
        # Whether there may be a cone that its reductions alone forbid.
        self.refuses = not any(getattr(s, "scans", False) and not hasattr(s, "refuse_reductions")
                               for s in self.schedules)  # fmt: skip
        self._readers = {s.name: s for s in self.schedules if hasattr(s, "candidates")}
        self._candidates: dict[tuple[str, Formula], list[Candidate] | str] = {}
        self._memo: dict[Summary, tuple[list[Price], dict[str, int]]] = {}
        self._tables: dict[tuple[str, Summary], Columns] = {}
        self._refused: dict[Reductions, Price | None] = {}
        # What cones cost by their form, and the numbers of kinds of tiles: see `priced.Prices`.
        self.forms: dict[Form, Known] = {}
        self.kinds: dict[tuple[object, ...], int] = {}

    def refused(self, reductions: Reductions) -> Price | None:
        """The price of a cone that its reductions alone forbid; None where a schedule may take it.

        Raises:
            PackError: a schedule fails, or answers with what is no reason.
        """
        if reductions not in self._refused:
            reasons = [self._why_not(s, reductions) for s in self.schedules]
            rejected = tuple((reason, 1) for reason in reasons if reason)
            none_left = len(rejected) == len(reasons)
            self._refused[reductions] = Price(INFINITE, rejected=rejected) if none_left else None
        return self._refused[reductions]

    def _why_not(self, schedule: Schedule, reductions: Reductions) -> str | None:
        """Why a schedule takes no cone with these; None where it may, or does not say."""
        if _is_deaf(schedule, reductions):
            return f"{schedule.name}: {A_SCAN}"
        if not hasattr(schedule, "refuse_reductions"):
            return None
        reason = self._asked(schedule, "refuse_reductions", reductions)
        return reason and f"{schedule.name}: {reason}"

    def price(
        self,
        summary: Summary,
        ruled_out: Mapping[Way, str] = NOTHING,
        cone: Callable[[], Formula] | None = None,
    ) -> Price:
        """The cheapest way to implement a cone.

        Args:
            summary: its figures.
            ruled_out: ways that this cone cannot be built by, and why.
            cone: the cone node by node; with it schedules that have candidates read it, and the
                price is what the kernel is built by. Without it theirs are estimates.

        Raises:
            PackError: a schedule fails, or answers with what is no reason or no table.
        """
        found, reasons = self._by_figures(summary, ruled_out)
        unread = set(self._readers) if cone else set[str]()
        best = min(found, key=_seconds, default=Price(INFINITE))
        while cone and best.schedule in unread:  # until the cheapest has been read
            unread.remove(best.schedule)
            found.remove(best)
            read = self._read(best.schedule, cone(), ruled_out, reasons)
            found += [read] if read else []
            best = min(found, key=_seconds, default=Price(INFINITE))
        return replace(best, rejected=tuple(reasons.items()))

    def offered(self, summary: Summary, cone: Callable[[], Formula]) -> list[Price]:
        """Every way of every schedule to implement a cone, the cheapest first; see `price`.

        Tables may have one in several rows.
        """
        found: list[Price] = []
        for schedule in self.schedules:
            if self._refusal(schedule, summary) is not None:
                continue
            if schedule.name in self._readers:
                read = self._asked_for(schedule, cone())
                ways = () if isinstance(read, str) else read
                found += (Price(c.time_s, *_way(schedule.name, c), tuple(c.costs.items()))
                          for c in ways)  # fmt: skip
            else:
                table = self._table(schedule, summary)
                left = np.nonzero(np.isfinite(table.time_s))[0].tolist()
                found += (_chosen(schedule.name, table, at, summary) for at in left)
        cheapest: dict[Way, Price] = {}
        for price in sorted(found, key=_seconds):
            cheapest.setdefault(price.way, price)
        return list(cheapest.values())

    def _refusal(self, schedule: Schedule, summary: Summary) -> str | None:
        """Why a schedule takes no cone of these figures; None where it may."""
        if _is_deaf(schedule, summary):
            return A_SCAN
        reason: str | None = self._asked(schedule, "refuse", summary)
        return reason

    def _by_figures(
        self, summary: Summary, ruled: Mapping[Way, str]
    ) -> tuple[list[Price], dict[str, int]]:
        """The cheapest of every schedule by figures alone, and why others are none."""
        if not ruled and summary in self._memo:
            known, why = self._memo[summary]
            return list(known), dict(why)
        reasons: dict[str, int] = Counter(f"{name}: {why}" for (name, *_), why in ruled.items())
        found: list[Price] = []
        for schedule in self.schedules:
            reason = self._refusal(schedule, summary)
            if reason is not None:
                reasons[f"{schedule.name}: {reason}"] = 1
                continue
            columns = self._table(schedule, summary)
            for text, count in columns.rejected.items():
                reasons[f"{schedule.name}: {text}"] = count
            time_s = _left(schedule.name, columns, summary, ruled)
            at = int(np.argmin(time_s))
            if time_s[at] < INFINITE:
                is_estimate = schedule.name in self._readers
                found.append(_chosen(schedule.name, columns, at, summary, is_estimate))
        if not ruled:
            self._memo[summary] = list(found), dict(reasons)
        return found, reasons

    def _read(
        self, name: str, cone: Formula, ruled: Mapping[Way, str], reasons: dict[str, int]
    ) -> Price | None:
        """The cheapest of a schedule's candidates for a cone that is left."""
        key = name, cone
        found = self._candidates.get(key)
        if found is None:
            found = self._candidates[key] = self._asked_for(self._readers[name], cone)
        if isinstance(found, str):
            reasons[f"{name}: {found}"] = 1
            return None
        left = [(way, c) for c in found if (way := _way(name, c)) not in ruled]
        if not left:
            return None
        (way, best), *others = left[: 1 + MOST_OTHERS]
        said = tuple((_text(way), other.time_s) for way, other in others)
        return Price(best.time_s, *way, tuple(best.costs.items()), others=said)

    def _asked_for(self, schedule: Any, cone: Formula) -> list[Candidate] | str:
        """A schedule's candidates for a cone, the cheapest first; or why it has none."""
        try:
            found: Sequence[Candidate] = ask_schedule(
                schedule, "candidates", cone.step("", self.rounds), self.target,
                expected="candidates, each with seconds and parameters", wrong=_no_candidates,
            )  # fmt: skip
        except PackError:
            raise
        except AxeError as error:
            return f"{error.wrong}; expected {error.expected}"
        factor = self.target.correction(schedule.name)
        over = self._link_s(cone.remote_bytes) if cone.remote_bytes else 0.0
        said = {"link_s": over} if over else {}
        finite = [
            replace(c, time_s=c.time_s * factor + over, costs={**c.costs, **said})
            for c in found if c.time_s < INFINITE
        ]  # fmt: skip
        return sorted(finite, key=lambda c: c.time_s) or "no candidate"

    def _table(self, schedule: Schedule, summary: Summary) -> Columns:
        """Its candidates; asked once for all places of operands where these do not matter to it."""
        if getattr(schedule, "prices_places", True):
            found = self._asked(schedule, "price", summary)
            return self._corrected(schedule.name, self._linked(summary, found))
        key = schedule.name, summary.without_places()
        if key not in self._tables:
            found = self._asked(schedule, "price", key[1])
            self._tables[key] = self._corrected(schedule.name, self._linked(summary, found))
        return self._tables[key]

    def _linked(self, summary: Summary, columns: Columns) -> Columns:
        """Candidates with what they move over a link as well.

        Units that wait for it do little else: kernels take as long as both one after the other.
        """
        if any(a.remote for a in (*summary.loads, *summary.stores)):
            over = self._link_s(link_bytes(summary, columns))
            columns.time_s, columns.costs["link_s"] = columns.time_s + over, over
        return columns

    def _link_s(self, n_bytes: Any) -> Any:
        """Seconds of so many bytes over the link that lets devices see each other's memory."""
        rates = [link.bytes_per_s for link in self.target.links if link.wait_s]
        return n_bytes / rates[0] if rates else n_bytes * INFINITE

    def _corrected(self, name: str, columns: Columns) -> Columns:
        """Candidates with what was measured of their schedule and rows."""
        if self.target.corrections:
            rows = columns.rows or ("",) * len(columns)
            factors = np.array([self.target.correction(name, row) for row in rows])
            columns.time_s = np.asarray(columns.time_s) * factors
        return columns

    def _asked(self, schedule: Schedule, what: str, about: Summary | Reductions) -> Any:
        """What a schedule answers."""
        return ask_schedule(
            schedule, what, about, self.target, expected=_ANSWERS[what],
            wrong=lambda answer: _wrong_answer(what, answer),
        )  # fmt: skip

    def forget(self) -> None:
        """Forget what was answered for figures and formulas; prices of cones hold what they need.

        A search that has ended asks for few others, and its answers are most of what it holds.
        """
        for known in (self._memo, self._tables, self._candidates):
            known.clear()

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
    "refuse_reductions": "a reason as text, or None",
    "price": "Columns: as many seconds in time_s (inf where rejected) as candidates in every block",
}


def _seconds(price: Price) -> float:
    return price.time_s


def _is_deaf(schedule: Schedule, of: Summary | Reductions) -> bool:
    """Whether a schedule is not asked about a cone, because that scans."""
    return bool(of.scans) and not getattr(schedule, "scans", False)


def _way(schedule: str, candidate: Candidate) -> Way:
    return schedule, "", tuple(candidate.parameters.items())


def _text(way: Way) -> str:
    return " ".join(f"{name}={size}" for name, size in way[2])


def _no_candidates(answer: Any) -> str | None:
    """What is wrong with the candidates of a schedule."""
    for one in answer if isinstance(answer, list | tuple) else (answer,):
        if not isinstance(one, Candidate) or not one.time_s >= 0:
            return f"returns {one!r}"
    return None


def _wrong_answer(what: str, answer: Any) -> str | None:
    """What is wrong with the answer of a schedule."""
    if what != "price":
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


def _left(name: str, columns: Columns, summary: Summary, ruled: Mapping[Way, str]) -> Array:
    """Seconds of a schedule's candidates, infinite where one was built in vain."""
    time_s = np.asarray(columns.time_s)
    if not any(schedule == name for schedule, _, _ in ruled):
        return time_s
    time_s = time_s.copy()
    while time_s.min() < np.inf:
        at = int(np.argmin(time_s))
        if _chosen(name, columns, at, summary).way not in ruled:
            break
        time_s[at] = np.inf
    return time_s


def _chosen(
    name: str, columns: Columns, at: int, summary: Summary, estimated: bool = False
) -> Price:
    letters = () if columns.exact else (x for x, _ in summary.extents if x in columns.block)
    sizes = {x: int(columns.size(x, summary.extent(x))[at]) for x in letters}
    sizes |= {key: int(column[at]) for key, column in columns.extra.items()}
    costs = {key: float(column[at]) for key, column in columns.costs.items()}
    row = columns.rows[at] if columns.rows else ""
    return Price(
        float(columns.time_s[at]), name, row, tuple(sizes.items()), tuple(costs.items()),
        estimated=estimated,
    )  # fmt: skip
