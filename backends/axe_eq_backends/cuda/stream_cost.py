"""Cost model of streaming contractions: scores, weights and mixed values in one kernel.

A chunk of scores takes as long as the slower of its products on matrix units and its weights on
vector lanes, which run beside each other in different warpgroups, and a start. One warpgroup alone
does one after the other. A tile begins and ends by itself.

A kernel leaves out chunks that a mask by position proves to weigh nothing (`live`). A cone with
conditions on positions is read here as the emitter reads it, and the chunks of the busiest unit are
counted over the grid, in the order in which the emitted loops take its tiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import Any, NamedTuple

import numpy as np

from axe_eq.errors import AxeError
from axe_eq.kernel.structured import ONLINE
from axe_eq.lower.read import read_cone
from axe_eq.program.types import DTYPES
from axe_eq.schedule.summary import Column, Columns, Formula, Reductions, Summary, flops, grid_of
from axe_eq.target import Instr, Target
from axe_eq_backends.cuda.cost import (
    Run,
    misaligned,
    mixes_rows,
    no_rows_of_scores,
    not_strided,
    padded,
    roofline,
    waves,
    wide_weights,
)
from axe_eq_backends.cuda.lane_price import floor_s
from axe_eq_backends.cuda.schedules.chunks import GROUP_ROWS, NUMBERED, Problem, Tiling, grid, live
from axe_eq_backends.cuda.schedules.gemm import PANEL_BYTES, SMEM_SLACK, column_words, tile_words
from axe_eq_backends.cuda.schedules.tile_order import IN_ROWS
from axe_eq_backends.cuda.streams import read_problem, taken

# Registers of a consumer's thread per number of consumers, and those beside its tiles.
REGISTERS = {1: 240, 2: 232, 3: 160}
OTHER_REGISTERS = 32
LANES, DEPTH_BYTES, WIDEST = 128, 64, 256
ROWS_OF_THREAD = 2
F32_BYTES = 4


class Reach(NamedTuple):
    """What an operand of scores or of results takes, as registers hold it.

    Attributes:
        itemsize: bytes of an element.
        rows, cols: whether it has one per row, and one per column.
        counts: it is the index along one of them.
    """

    itemsize: int
    rows: bool
    cols: bool
    counts: bool = False

    def words(self, cols: Any) -> Any:
        """Registers of a thread for so many columns of a warpgroup's rows."""
        if self.cols and self.rows:
            return tile_words(GROUP_ROWS, cols, self.itemsize)
        if self.cols:
            return column_words(NUMBERED if self.counts else cols, self.itemsize)
        return ROWS_OF_THREAD if self.rows else 1


def scoring_words(chunk: Any, width: Any, n_products: int, size: int, extras: Any) -> Any:
    """Registers of a consumer's thread for the tiles of a chunk, less its statistics.

    Scores of every product, weights of the chunk before, mixed values, operands of the scores.

    Args:
        chunk: columns of the scores; a number, or an array of them.
        width: columns of the values, likewise.
        n_products: of the scores.
        size: bytes of a weight.
        extras: what each operand of the scores takes (`Reach`).
    """
    scores = tile_words(GROUP_ROWS, chunk, F32_BYTES) * max(n_products, 1)
    weights = tile_words(GROUP_ROWS, chunk, size)
    mixed = tile_words(GROUP_ROWS, width, F32_BYTES)
    return scores + weights + mixed + sum(x.words(chunk) for x in extras)


def storing_words(width: Any, size: int, more: Any) -> Any:
    """Registers of a consumer's thread for mixed values and a panel of the result.

    Args:
        width: columns of the values; a number, or an array of them.
        size: bytes of an element of the result.
        more: what each operand of the result takes (`Reach`).
    """
    panel = PANEL_BYTES // size
    mixed = tile_words(GROUP_ROWS, width, F32_BYTES)
    return mixed + tile_words(GROUP_ROWS, panel, size) + sum(x.words(panel) for x in more)


@dataclass(frozen=True)
class Streaming:
    """Cones with one structured reduction of products: chunk by chunk, scores in registers."""

    name: str = "streaming"
    families: tuple[str, ...] = ("cuda",)
    prices_places: bool = False

    def refuse_reductions(self, reductions: Reductions, target: Target) -> str | None:
        """Refused without exactly one structured reduction, with others or operands computed.

        Others of several results may be what that one has at hand.
        """
        if reductions.structured != 1:
            return "no single structured reduction of products"
        if reductions.staged or (reductions.folds and reductions.results == 1):
            return "operands of products computed in the kernel, or other reductions"
        return None

    def refuse(self, summary: Summary, target: Target) -> str | None:
        """Refused without exactly one structured reduction over rows of scores in one cone.

        Of several results the others are cells of what that reduction has for every row.
        """
        if summary.mixed is not None:
            return self.refuse(summary.mixed, target) or _unread(summary, target)
        if reason := self.refuse_reductions(summary.reductions, target):
            return reason
        if unread := not_strided(summary):
            return unread
        if missing := set(summary.monoids) - {"+", *ONLINE}:
            return f"reduces by {' '.join(sorted(missing))}, and chunks by {' '.join(ONLINE)}"
        if rowless := no_rows_of_scores(summary):
            return rowless
        if mixes_rows(summary):
            return "rows that do not share what is streamed"
        if wide := wide_weights(summary):
            return wide
        if len(summary.stores) > 1:
            return "several results"
        if _mixed(summary) > WIDEST and not summary.has("q"):
            return f"{_mixed(summary)} columns in one block"
        missing = {w.dtype for w in summary.products if not _rows(target, w.dtype)}
        return f"no gemm row for {' '.join(sorted(missing))}" if missing else None

    def price(self, summary: Summary, target: Target) -> Columns:
        """Rows of scores, chunks, columns and stages.

        A value per row beside the result costs its bytes. Operands that bulk copies cannot fetch go
        through the registers of one warpgroup, step by step.
        """
        if summary.mixed is not None:
            columns, (_, *others) = self.price(summary.mixed, target), _stores(summary)
            columns.time_s = columns.time_s + sum(others) / target.memories[0].bytes_per_s
            return columns
        (row,) = _rows(target, summary.products[0].dtype)[:1]
        carried, known = misaligned(summary, target), target.sizes("stream_stages")
        known = known if carried else tuple(n for n in known if n > 1) or known
        sizes = (target.sizes(f"stream_{name}") for name in ("groups", "cols", "chunk"))
        groups, cols, s, stages = grid_of(*sizes, known)
        columns = Columns({"p": groups * GROUP_ROWS, "q": cols, "s": s, "k": s}, exact=True)
        columns.rows = (row.name,) * len(columns)
        columns.extra = {
            "consumers": groups, "s": s, "q": _width(summary, columns), "stages": stages,
        }  # fmt: skip
        smem = _smem(summary, target, columns)
        run = _run(summary, target, columns)
        seconds = _seconds(summary, target, columns, row, run.part)
        roofline(summary, target, columns, seconds, run=run)
        tiles = run.busiest * columns.costs["blocks"] / target.n_units
        begin = target.figure("stream_begin_s") + tiles * target.figure("stream_tile_s")
        begin = begin + floor_s(target, float(np.min(columns.costs["gmem_bytes"])))
        columns.time_s, columns.costs["latency_s"] = columns.time_s + begin, begin
        _check(summary, target, columns, smem)
        alone = (groups == 1) & (stages == 1)
        columns.reject(~alone if carried else stages == 1, carried or "chunks that go one by one")
        return columns


def _stores(summary: Summary) -> list[float]:
    """Bytes of the results, the largest first."""
    return sorted((a.n_bytes for a in summary.stores), reverse=True)


def _unread(summary: Summary, target: Target) -> str | None:
    """Why the results of a cone are not those of one kernel; None where they are."""
    if summary.formula is None or summary.mixed is None:
        return "several results"
    (row,) = _rows(target, summary.mixed.products[0].dtype)[:1]
    problem = _problem(summary.formula, row.name)
    return f"several results, and {problem}" if isinstance(problem, str) else None


@lru_cache(maxsize=256)
def _problem(cone: Formula, row: str) -> Problem | str:
    """What a streaming kernel computes; or why it computes no such cone."""
    try:
        return read_problem(read_cone(cone.step(row)))[0]
    except AxeError as error:
        return error.wrong


def _rows(target: Target, dtype: str) -> list[Instr]:
    """Rows of whole warpgroups: their accumulators are the next product's operand."""
    fits = [r for r in target.rows("gemm") if r.scope == "warpgroup"]
    return [r for r in fits if any(dtype == accepted[0] for accepted in r.dtypes)]


def _mixed(summary: Summary) -> int:
    """Columns of the result that a block keeps whole."""
    return max((w.star for w in summary.products if w.structured), default=1)


def _width(summary: Summary, columns: Columns) -> Column:
    """Columns of the result in a block, as tiles hold them."""
    width = columns.size("q", summary.extent("q")) if summary.has("q") else np.ones(len(columns))
    return np.asarray(_padded(width * _mixed(summary), 2))


def _padded(n: Column | float, itemsize: int) -> Column:
    unit = DEPTH_BYTES // itemsize
    return np.ceil(np.asarray(n) / unit) * unit


def _run(summary: Summary, target: Target, columns: Columns) -> Run:
    """The chunks that blocks run, by the cone's own conditions; all where it has none.

    With the order in which tiles are taken, which is the rest of what kernels are written by.
    """
    whole = Run(np.ones(len(columns)), waves(summary, target, columns))
    names = ("band", "falling", "turned")
    columns.extra |= {name: np.full(len(columns), float(getattr(IN_ROWS, name))) for name in names}
    if summary.formula is None:
        return whole
    problem = _problem(summary.formula, columns.rows[0])
    if isinstance(problem, str) or not live(problem).known:
        return whole  # what cannot be emitted is ruled out where it is built
    sizes = (columns.extra[name].astype(int).tolist() for name in ("consumers", "s", "q"))
    blocks = list(zip(*sizes, strict=True))
    known = {at: _counted(problem, Tiling(*at), target) for at in set(blocks)}
    part, busiest, *order = (np.array(c, float) for c in zip(*map(known.get, blocks), strict=True))
    columns.extra |= zip(names, order, strict=True)
    return Run(part, busiest)


def _counted(problem: Problem, tiling: Tiling, target: Target) -> tuple[float, ...]:
    """The part of all chunks that is run, the busiest unit's over the average, and the order."""
    tiles, found = grid(problem, tiling), taken(problem, tiling, target)
    part = found.chunks / (tiles.tiles * tiles.steps)
    busiest = found.busiest * target.n_units / found.chunks
    return part, busiest, found.order.band, found.order.falling, found.order.turned


def _seconds(
    summary: Summary, target: Target, columns: Columns, row: Instr, part: Column
) -> Column:
    """Matrix units beside lanes, over all blocks; of one chunk on its way after each other.

    Args:
        summary: the cone.
        target: the machine.
        columns: its candidates.
        row: the instruction row of the products.
        part: of the chunks, those that are run.
    """
    chunk, groups, figure = columns.extra["s"], columns.extra["consumers"], target.figure
    covered = padded(summary.extent("s"), chunk) * part
    covered = covered * padded(summary.extent("p"), groups * GROUP_ROWS)
    wide = columns.extra["q"] * np.ceil(summary.extent("q") / columns.block["q"])
    matrix = np.zeros(len(columns))
    for work in summary.products:  # columns of values and depths are padded
        deep = prod(work.reduced)
        there = summary.extent("q") * _mixed(summary) / wide if work.structured else 1.0
        there = there if work.structured else deep / _padded(deep, DTYPES[work.dtype].itemsize)
        matrix = matrix + flops((work,), summary, columns) / there
    matrix = matrix * covered / row.flops_per_s / figure("stream_over_rate")
    mixed = sum(w.flops for w in summary.products if w.structured) / (2.0 * _mixed(summary))
    blocks = np.ceil(summary.extent("q") / columns.block["q"])
    scores = mixed / summary.extent("q") * blocks  # once more for every block of columns
    clock = target.vector_flops_per_s / (2.0 * LANES * target.n_units)
    known = {n: figure(f"weigh_clocks.{n}") for n in set(groups.astype(int).tolist())}
    weighing = np.array([known.get(n, 0.0) for n in range(max(known) + 1)])[groups.astype(int)]
    weigh = scores * covered * weighing / clock / target.n_units
    started = scores * covered / (GROUP_ROWS * chunk)
    start = started * figure("start_clocks") / groups / clock / target.n_units
    across = sum(
        _padded(a.star, a.itemsize)
        for a in summary.loads
        if a.feeds_product and "p" not in a.letters
    )
    carried = scores * covered / GROUP_ROWS * across * figure("carried_flops")
    alone = matrix + weigh + carried / target.vector_flops_per_s
    beside = np.where(groups == 1, matrix + weigh, np.maximum(matrix, weigh))
    stages = columns.extra["stages"]
    beside = beside * (1 + (stages == 2) * figure("stream_two_slots"))
    return np.asarray(np.where(stages == 1, alone, beside) + start)


def _smem(summary: Summary, target: Target, columns: Columns) -> Column:
    """Bytes of operand rings and of panels of the result: as many as fit, one at least."""
    chosen, smem = columns.extra, np.full(len(columns), float(SMEM_SLACK))
    rows, width = chosen["consumers"] * GROUP_ROWS, chosen["q"]
    for a in summary.loads:
        if a.feeds_product and "p" in a.letters:
            smem = smem + rows * _padded(a.star, a.itemsize) * a.itemsize
        elif a.feeds_product:
            values = "q" in a.letters or a.star == _mixed(summary)
            across = np.maximum(width if values else 0, _padded(a.star, a.itemsize))
            smem = smem + chosen["s"] * across * a.itemsize * chosen["stages"]
    (store,) = summary.stores
    cols = width.astype(int)
    wide = np.minimum(PANEL_BYTES // store.itemsize, cols & -cols)
    panel, panels = rows * wide * store.itemsize, width / wide
    staged = [panels, np.where(panels % 2, 1.0, 2.0), np.ones(len(columns))]
    limit = target.memory("smem").n_bytes
    chosen["staging"] = np.select([smem + n * panel <= limit for n in staged], staged, 1.0)
    return np.asarray(smem + chosen["staging"] * panel)


def _check(summary: Summary, target: Target, columns: Columns, smem: Column) -> None:
    """Operand rings and the result in shared memory, tiles in registers."""
    width, limit = columns.extra["q"], target.memory("smem").n_bytes
    registers = _words(summary, columns.extra["s"], width)
    groups = columns.extra["consumers"].astype(int).tolist()
    room = np.array([REGISTERS.get(n, 0) for n in groups]) - OTHER_REGISTERS
    columns.costs |= {"smem_bytes": smem, "register_bytes": registers * DTYPES["f32"].itemsize}
    columns.reject(smem > limit, f"tiles exceed smem {limit} B")
    columns.reject(registers > room, "tiles exceed the registers of a thread")
    columns.reject(width > WIDEST, f"more than {WIDEST} columns")


def _words(summary: Summary, chunk: Column, width: Column) -> Column:
    """Registers of a consumer's thread that tiles take at once: of a chunk, or of the result."""
    scores, more = list[Reach](), list[Reach]()
    for a in summary.loads:
        if not a.feeds_product:
            of_scores = "s" in a.letters
            cols = of_scores or "q" in a.letters or a.star > 1
            reach = Reach(a.itemsize, "p" in a.letters, cols)
            (scores if of_scores else more).append(reach)
    # One value per row may be of either.
    per_row = [reach for reach in more if not reach.cols]
    numbers = [Reach(DTYPES["i32"].itemsize, False, True, counts=True)] * summary.n_positions
    (weight,) = {DTYPES[w.dtype].itemsize for w in summary.products if w.structured}
    n_scores = sum(not w.structured for w in summary.products)
    (store,) = summary.stores
    scoring = scoring_words(chunk, width, n_scores, weight, [*scores, *per_row, *numbers])
    return np.asarray(np.maximum(scoring, storing_words(width, store.itemsize, more)))
