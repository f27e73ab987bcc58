"""The extraction stage: search, merge kernels, rank alternatives, and keep why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from axe_eq.extract.price.priced import Prices
from axe_eq.extract.read.forest import Forest
from axe_eq.extract.search.merge import Group, merged
from axe_eq.extract.search.pareto import settle
from axe_eq.extract.search.search import Search
from axe_eq.extract.search.selection import Selection

MAX_ALTERNATIVES = 64
RANKED = 3


@dataclass(frozen=True)
class RunnerUp:
    """A schedule that was not chosen.

    Attributes:
        change: what differs from the chosen one.
        time_s: its estimated seconds.
        flipped: the placed class that is materialised here and not there, or the other way round.
    """

    change: str
    time_s: float
    flipped: int = -1


@dataclass(frozen=True)
class Extracted:
    """What extraction found.

    Attributes:
        forest: the classes it chose from.
        selection: the chosen values and their kernels.
        groups: kernels, those merged that gain by it, in a valid order.
        unfused_s: estimated seconds with every value materialised.
        runners_up: the cheapest schedules one change away.
        alternatives: kernels of the best runners-up, to be ranked by their timelines.
        evaluated: kernels evaluated.
        priced: distinct cones priced.
        outputs: placed class and layout of every output.
        prices: of the cones.
        needed: changes that no schedule covers: values that their readers cannot compute, inputs
            that cannot be read where they arrive.
        unwritable: why alternatives were left out that the target's emitter cannot write, and
            schedules that no known machine has.
    """

    forest: Forest
    selection: Selection
    groups: list[Group]
    unfused_s: float
    runners_up: tuple[RunnerUp, ...] = ()
    alternatives: tuple[list[Group], ...] = ()
    evaluated: int = 0
    priced: int = 0
    outputs: Sequence[tuple[int, str]] = field(default_factory=list)
    prices: Prices | None = None
    unwritable: tuple[str, ...] = ()
    needed: tuple[str, ...] = ()

    @property
    def time_s(self) -> float:
        """Estimated seconds of the chosen kernels."""
        return sum(g.price.time_s for g in self.groups)


def extract(
    prices: Prices,
    *,
    keep: int = 24,
    per_byte: float = 0.0,
    progress: Callable[[str], None] = lambda _: None,
) -> Extracted:
    """Choose the cheapest schedule of a forest.

    Args:
        prices: of the kernels of a saturated session's forest on the target.
        keep: number of runners-up to report.
        per_byte: seconds that a stored byte is worth beside its time: more leaves less in memory.
        progress: told how far the search is.

    Raises:
        SearchError: an output that nothing computes.
    """
    forest = prices.forest
    search = Search(prices)
    unfused = search.total()
    if per_byte:
        settle(search, per_byte)
    selection = search.selection() if per_byte else search.run(progress)
    groups = merged(prices, selection)
    gain = selection.time_s - sum(g.price.time_s for g in groups)
    runners, needed = _runners_up(search, selection, gain)
    runners = runners[:keep]
    ranked = 0 if per_byte else RANKED - 1  # those keep more
    others = tuple(_groups_without(search, r.flipped) for r in runners[:ranked])
    outputs = [(_home(forest, root), forest.layout_of(root)) for root in forest.roots]
    return Extracted(
        forest, selection, groups, unfused, runners, others, search.evaluated,
        prices.pricer.priced, outputs, prices, needed=needed,
    )  # fmt: skip


def _home(forest: Forest, root: int) -> int:
    """The placed class an output is taken from: the input's own buffer where it is an input."""
    moves = forest.placed[root].moves
    return moves[0][0] if moves else root


def _groups_without(search: Search, flipped: int) -> list[Group]:
    """Kernels of the schedule with one value flipped."""
    undo = search.set_materialised([flipped])
    groups = merged(search.prices, search.selection())
    search.restore([flipped], undo)
    return groups


def _runners_up(
    search: Search, selection: Selection, gain: float
) -> tuple[tuple[RunnerUp, ...], tuple[str, ...]]:
    """Every schedule one changed value away from the chosen one, cheapest first.

    And changes of the chosen one that no schedule covers: values whose readers cannot compute them,
    inputs that cannot be read where they arrive.

    Args:
        search: at the chosen M.
        selection: the chosen schedule.
        gain: seconds that merging kernels saved; taken off the others alike.
    """
    found, needed = [], []
    live = selection.materialised
    nearby = {p for m in selection.kernels.values() for p in m.met} & set(search.values)
    for value in sorted(nearby)[:MAX_ALTERNATIVES]:
        undo = search.set_materialised([value])
        cost = search.total()
        search.restore([value], undo)
        verbs = ("read", "copy") if search.forest.copied(value) else ("recompute", "materialise")
        change = f"{verbs[value not in live]} {search.forest.label(value)}"
        if cost == float("inf") and value in live:
            needed.append(change)
        if cost < float("inf") and abs(cost - selection.time_s) > 1e-15:
            found.append(RunnerUp(change, cost - gain, value))
    return tuple(sorted(found, key=lambda r: (r.time_s, r.change))), tuple(needed)
