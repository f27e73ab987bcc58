"""Schedules of NeuronCores: which cones they take, and candidates priced by their own plans.

Figures say what any kernel of a cone takes at least. A candidate is written, dispatched and placed;
its price is what its instructions take of every engine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import inf, prod
from typing import TYPE_CHECKING, Any

import numpy as np

from axe_eq.errors import AxeError, DispatchError
from axe_eq.lower.candidate import Candidate
from axe_eq.lower.formulas import Cone
from axe_eq.lower.read import read_cone
from axe_eq.schedule.graph import KernelStep
from axe_eq.schedule.summary import Columns, Summary, Work, flops, grid_of, traffic
from axe_eq.target import Target
from axe_eq_backends.nki.instrs import WIDENED

# What writes kernels is imported where it is asked for: most programs are for other machines.
if TYPE_CHECKING:
    from axe_eq_backends.nki.planning import Made, Spread
    from axe_eq_backends.nki.space import Space

MOST_WAYS = 3  # to fill partitions, that are priced
MOST_BLOCKS = 16  # of a product, that are priced
MOST_CHUNKS = 3  # of a streamed dim, the longest
# Operations of cells that figures take as done in the time of one: three engines share them, and a
# function of the scalar engine counts as several. Assumed; figures only have to stay below prices.
SHARED = 8
# Candidates of a cone that go through the timeline: of tiles few differ by what engines overlap.
MOST_TIMED = {"tiles": 2, "tensor_engine": 3}
TIMED = 4  # of other schedules
WORTHWHILE = 0.98  # of the best one's time: who takes more at least is not timed
Parameters = Mapping[str, int]


def figures(summary: Summary, target: Target) -> Columns:
    """What every kernel takes at least: memory once, arithmetic at the rate of the engines."""
    (p,) = grid_of((1 << 40,))
    columns = Columns(dict.fromkeys("pqks", p))
    once, _ = traffic(summary, columns)
    rows = {d: row for row in target.rows("gemm") for d in row.dtypes}
    matrix = max((row.flops_per_s for row in rows.values()), default=target.vector_flops_per_s)
    lanes = flops(summary.vector, summary, columns) / target.vector_flops_per_s
    products = flops(summary.products, summary, columns) / matrix
    memory = once / target.memories[0].bytes_per_s
    columns.time_s = target.launch_s + np.maximum.reduce([memory, lanes / SHARED, products])
    columns.costs = {"dma_s": memory}
    return columns


def priced(
    cone: Cone, problem: Any, schedule: str, target: Target, offered: Iterable[Parameters]
) -> list[Candidate]:
    """Candidates of a cone, each by its kernel's plans; `problem` is what the schedule reads of it.

    Those whose engines work least are timed; one whose busiest engine alone takes longer than
    another in all has that engine's time.

    Raises:
        AxeError: none can be made; the first one's reason.
    """
    sizes = tuple(tuple(parameters.items()) for parameters in offered)
    try:
        return [*_priced(problem, schedule, _Same(target), sizes)]
    except DispatchError as error:
        raise DispatchError(f"kernel {cone.name}", error.wrong, error.expected) from error


@dataclass(frozen=True)
class _Same:
    """A target that is equal to itself alone."""

    target: Target

    def __hash__(self) -> int:
        return id(self.target)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and other.target is self.target


@lru_cache(maxsize=1 << 10)
def _priced(
    problem: Any, schedule: str, same: _Same, offered: tuple[tuple[tuple[str, int], ...], ...]
) -> tuple[Candidate, ...]:
    """The candidates of a problem, which many cones of a search have."""
    from axe_eq_backends.nki.lower import Stage, written
    from axe_eq_backends.nki.planning import on_engines

    target = same.target
    begun: list[tuple[int, Spread]] = []
    errors: dict[int, AxeError] = {}
    for n, parameters in enumerate(offered):
        try:
            kernel, _ = written([Stage(schedule, problem, dict(parameters))], "cone", target)
            begun.append((n, on_engines(kernel, target)))
        except AxeError as error:
            errors[n] = error
    found = list[Candidate]()
    best = inf
    for n, m in nearest(begun, MOST_TIMED.get(schedule, TIMED), errors):
        chosen = dict(offered[n])
        if m.least_s < WORTHWHILE * best:
            best = min(best, m.time_s)
            found.append(Candidate(chosen, m.time_s, m.costs))
        elif m.least_s >= best:
            found.append(Candidate(chosen, m.least_s, m.costs))
    if not found:
        if not errors:
            raise DispatchError(schedule, "has no candidate", "sizes that fit")
        first = errors[min(errors)]
        raise DispatchError(schedule, f"{first.thing}: {first.wrong}", first.expected)
    return tuple(found)


def nearest(
    begun: Iterable[tuple[int, Spread]], most: int, errors: dict[int, AxeError]
) -> list[tuple[int, Made]]:
    """Those of the least `near_s`, so many of them; of equal ones the first.

    They are ordered and placed by their bounds, until every other one's is above what is kept.

    Args:
        begun: kernels, by number.
        most: that are kept.
        errors: why a kernel has no place is added here.
    """
    found: list[tuple[float, int, Made]] = []
    for n, spread in sorted(begun, key=lambda x: x[1].least_near_s):
        if len(found) == most and spread.least_near_s > found[-1][0]:
            break
        try:
            made = spread.made()
        except AxeError as error:
            errors[n] = error
            continue
        found = sorted([*found, (made.near_s, n, made)], key=lambda x: x[:2])[:most]
    return [(n, made) for _, n, made in found]


def _cone(step: KernelStep) -> Cone:
    """The formulas of a kernel that returns what it writes."""
    from axe_eq_backends.nki.lower import check_results

    check_results(step)
    return read_cone(step)


def _read(cone: Cone, schedule: str) -> Any:
    """What a schedule reads of a cone."""
    from axe_eq_backends.nki.lower import READS

    return READS[schedule](cone)


def _up_to(sizes: Iterable[int], extent: int) -> list[int]:
    """Sizes below an extent, and the next one, which takes all of it."""
    ordered = sorted(sizes)
    return ordered[: sum(size < extent for size in ordered) + 1]


def products_of(target: Target) -> set[str]:
    """Element types that some row multiplies, or holds in another one that it does."""
    found = {d for row in target.rows("gemm") for kinds in row.dtypes for d in kinds[:2]}
    return found | {d for d, wide in WIDENED.items() if wide in found}


def _beyond_rows(summary: Summary, target: Target) -> str | None:
    """Why no row of products reads what a product reads, whatever the product is."""
    if summary.unread or summary.n_ended or summary.n_looked:
        return "places that strides do not say"
    if lost := {d for w in summary.products for d in w.dtypes} - products_of(target):
        return f"no row of products of {' '.join(sorted(lost))}"
    return None


def _of_matrices(w: Work) -> bool:
    """Whether both factors of a product have dims of their own."""
    reached = {reach for _, extent, reach in w.kept if extent > 1}
    return not w.structured and {"a", "b"} <= reached and prod(w.reduced) > 1


@dataclass(frozen=True)
class Tiles:
    """Cells and reductions on the vector, scalar and GpSimd engines."""

    name: str = "tiles"
    families: tuple[str, ...] = ("nki",)
    prices_places: bool = False
    scans: bool = True

    def refuse(self, summary: Summary, target: Target) -> str | None:
        """Refused by monoids that no engine reduces by."""
        from axe_eq_backends.nki.monoids import unable

        if lost := next(filter(None, map(unable, sorted(set(summary.monoids)))), ""):
            return lost
        if summary.unread or summary.n_ended:
            return "places that strides do not say"
        taken = products_of(target) if set(summary.monoids) == {"+"} else set()
        if any(set(w.dtypes) <= taken and _of_matrices(w) for w in summary.products):
            return "products of matrices, which the tensor engine takes"
        return None

    def price(self, summary: Summary, target: Target) -> Columns:
        """What every kernel takes at least; operands of scores lie on all partitions.

        What products multiply is summed at one a cycle of the vector engine, and GpSimd sums a
        quarter as many at most.
        """
        columns = figures(summary, target)
        summed = flops(summary.products, summary, columns) / 2
        rate = target.vector_flops_per_s / 2 * 1.5
        columns.time_s = np.maximum(columns.time_s, target.launch_s + summed / rate)
        if any(w.structured for w in summary.products) and len(summary.products) > 1:
            copies = target.memory("sbuf").extents[0]
            read = sum(a.n_bytes for a in summary.loads)
            columns.time_s = columns.time_s + copies * read / target.memories[0].bytes_per_s
        return columns

    def candidates(self, step: KernelStep, target: Target) -> list[Candidate]:
        """Ways to fill partitions, and tiles."""
        cone = _cone(step)
        space = _read(cone, self.name)
        return priced(cone, space, self.name, target, self._offered(space, target))

    def _offered(self, space: Space, target: Target) -> Iterator[Parameters]:
        from axe_eq_backends.nki.schedules.walk import ways

        for n, way in enumerate(ways(space, target)[:MOST_WAYS]):
            rows = (space.shape[way.dim] // way.unit) if way.dim is not None else 1
            most = prod(space.shape) // rows  # a larger tile is the same kernel
            for tile in _up_to(target.sizes("tile_elements"), most):
                yield {"across": n, "tile": tile}


@dataclass(frozen=True)
class TensorEngine:
    """Sums of products with cells around them."""

    name: str = "tensor_engine"
    families: tuple[str, ...] = ("nki",)
    prices_places: bool = False

    def refuse(self, summary: Summary, target: Target) -> str | None:
        """Refused without products, with other reductions, with element types no row takes."""
        if not summary.products or summary.n_folds or any(w.structured for w in summary.products):
            return "not sums of products alone"
        if summary.uneven:
            return "a result that lacks a dim of another"
        return _beyond_rows(summary, target)

    def price(self, summary: Summary, target: Target) -> Columns:
        """What every kernel takes at least, by figures."""
        return figures(summary, target)

    def candidates(self, step: KernelStep, target: Target) -> list[Candidate]:
        """Blocks of rows, columns and depth."""
        from axe_eq_backends.nki.schedules.gemm import sizes

        cone = _cone(step)
        problem = _read(cone, self.name)
        return priced(cone, problem, self.name, target, sizes(problem, target)[:MOST_BLOCKS])


@dataclass(frozen=True)
class Stream:
    """Values mixed by weights of scores that are products, chunk by chunk."""

    name: str = "stream"
    families: tuple[str, ...] = ("nki",)
    prices_places: bool = False

    def refuse(self, summary: Summary, target: Target) -> str | None:
        """Refused but for one mixture and the product of its scores, of types that rows take."""
        structured = [w for w in summary.products if w.structured]
        if len(structured) != 1 or len(summary.products) != 2 or summary.n_folds:
            return "not one mixture and the product of its scores"
        return _beyond_rows(summary, target)

    def price(self, summary: Summary, target: Target) -> Columns:
        """What every kernel takes at least, by figures."""
        return figures(summary, target)

    def candidates(self, step: KernelStep, target: Target) -> list[Candidate]:
        """Chunks of the streamed dim, whose operands stay in SBUF or are read for every block."""
        cone = _cone(step)
        problem = _read(cone, self.name)
        length = problem.scores.extent(problem.scores.n)
        chunks = _up_to(target.sizes("stream_chunk"), length)[-MOST_CHUNKS:]
        ways = [*product((0, 1), repeat=2)]
        offered = [{"chunk": n, "kept": k, "turned": t} for n in chunks for k, t in ways]
        return priced(cone, problem, self.name, target, offered)


SCHEDULES = {s.name: s for s in (Tiles(), TensorEngine(), Stream())}


def cheapest(step: KernelStep, target: Target) -> Parameters:
    """The parameters of the cheapest candidate of a step that no search chose."""
    return min(Tiles().candidates(step, target), key=lambda c: c.time_s).parameters
