"""Cost model of streaming contractions: scores, weights and mixed values in one kernel.

A chunk of scores takes as long as the slower of its products on matrix units and its weights on
vector lanes, which run beside each other in different warpgroups, and a start.

A kernel leaves out chunks that a mask by position proves to weigh nothing (`live`). A cone with
conditions on positions is read here as the emitter reads it, and the chunks of the busiest unit are
counted over the grid, in the order in which the emitted loops take its tiles.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from axe_eq.errors import AxeError
from axe_eq.lower.read import read_cone
from axe_eq.program.types import DTYPES
from axe_eq.schedule.summary import Column, Columns, Summary, flops, grid_of
from axe_eq.target import Instr, Target
from axe_eq_backends.cuda.cost import (
    STAGED_FLOPS,
    Run,
    misaligned,
    mixes_rows,
    no_rows_of_scores,
    not_strided,
    roofline,
    waves,
    wide_weights,
)
from axe_eq_backends.cuda.online import ONLINE
from axe_eq_backends.cuda.schedules.chunks import (
    GROUP_ROWS,
    PANEL_BYTES,
    SMEM_SLACK,
    Problem,
    Reach,
    Tiling,
    grid,
    live,
    scoring_words,
    storing_words,
)  # fmt: skip
from axe_eq_backends.cuda.streams import SIZES, read_problem, taken, tiles_of

CONSUMERS = (1, 2, 3)
CHUNKS = tuple(range(32, 177, 16))
WIDTHS = (32, 64, 96, 128, 192, 256)
WIDEST = max(WIDTHS)
# Fitted on one H200 (f16, widths of 64 and 128, chunks of 64 to 192): lane clocks of one SM to
# weigh one score by consumers, whose warps hide each other's latencies, and clocks to start a
# chunk, which other consumers hide.
WEIGH_CLOCKS = {1: 0.165, 2: 0.124, 3: 0.110}
START_CLOCKS = 380.0
# Registers of a consumer's thread per number of consumers, and those beside its tiles.
REGISTERS = {1: 240, 2: 232, 3: 160}
OTHER_REGISTERS = 32
LANES = 128
DEPTH_BYTES = 64


@dataclass(frozen=True)
class Streaming:
    """Cones with one structured reduction of products: chunk by chunk, scores in registers."""

    name: str = "streaming"
    families: tuple[str, ...] = ("cuda",)
    prices_places: bool = False

    def refuse(self, summary: Summary, target: Target) -> str | None:
        """Refused without exactly one structured reduction over rows of scores in one cone."""
        if sum(w.structured for w in summary.products) != 1:
            return "no single structured reduction of products"
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
        if summary.staged or summary.n_folds:
            return "operands of products computed in the kernel, or other reductions"
        if len(summary.stores) > 1:
            return "several results"
        if _mixed(summary) > WIDEST and not summary.has("q"):
            return f"{_mixed(summary)} columns in one block"
        missing = {w.dtype for w in summary.products if not _rows(target, w.dtype)}
        return f"no gemm row for {' '.join(sorted(missing))}" if missing else None

    def price(self, summary: Summary, target: Target) -> Columns:
        """Rows of scores, chunks, columns and stages.

        Operands that bulk copies cannot fetch go through the registers of one warpgroup, step by
        step.
        """
        (row,) = _rows(target, summary.products[0].dtype)[:1]
        carried = misaligned(summary, target)
        known = (1, 2, 3, 4) if carried else (2, 3, 4)
        p, q, s, stages = grid_of([GROUP_ROWS * c for c in CONSUMERS], WIDTHS, CHUNKS, known)
        columns = Columns({"p": p, "q": q, "s": s, "k": s}, {"stages": stages})
        columns.rows = (row.name,) * len(columns)
        run = _run(summary, target, columns)
        seconds = _seconds(summary, target, columns, row, carried is not None, run.part)
        roofline(summary, target, columns, seconds, run=run)
        _check(summary, target, columns)
        if carried:
            columns.reject((p > GROUP_ROWS) | (stages > 1), carried)
        return columns


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
    """The chunks that blocks run, by the cone's own conditions; all where it has none."""
    whole = Run(np.ones(len(columns)), waves(summary, target, columns))
    if summary.formula is None:
        return whole
    try:
        problem, _ = read_problem(read_cone(summary.formula.step(columns.rows[0])))
    except AxeError:  # what cannot be emitted is ruled out where it is built
        return whole
    if not live(problem).known:
        return whole
    sizes = (
        columns.size(x, summary.extent(x)) if summary.has(x) else np.full(len(columns), float(size))
        for x, size in SIZES.items()
    )
    blocks = list(zip(*(column.astype(int).tolist() for column in sizes), strict=True))
    known = {at: _counted(problem, tiles_of(problem, *at), target) for at in set(blocks)}
    part, busiest = (np.array(column) for column in zip(*map(known.get, blocks), strict=True))
    return Run(part, busiest)


def _counted(problem: Problem, tiling: Tiling, target: Target) -> tuple[float, float]:
    """The part of all chunks that is run, and the busiest unit's chunks over the average."""
    tiles, found = grid(problem, tiling), taken(problem, tiling, target)
    part = found.chunks / (tiles.tiles * tiles.steps)
    return part, found.busiest * target.n_units / found.chunks


def _seconds(
    summary: Summary,
    target: Target,
    columns: Columns,
    row: Instr,
    carried: bool,
    part: Column,
) -> Column:
    """Matrix units beside lanes, over all blocks; where operands are carried, after each other.

    Args:
        summary: the cone.
        target: the machine.
        columns: its candidates.
        row: the instruction row of the products.
        carried: operands go through registers.
        part: of the chunks, those that are run.
    """
    chunk = columns.block["s"]
    rows = columns.block["p"]
    padded = np.ceil(summary.extent("s") / chunk) * chunk / summary.extent("s")
    padded = padded * np.ceil(summary.extent("p") / rows) * rows / summary.extent("p") * part
    matrix = flops(summary.products, summary, columns) * padded / row.flops_per_s
    mixed = sum(w.flops for w in summary.products if w.structured) / (2.0 * _mixed(summary))
    blocks = np.ceil(summary.extent("q") / columns.block["q"])
    scores = mixed / summary.extent("q") * blocks  # once more for every block of columns
    clock = target.vector_flops_per_s / (2.0 * LANES * target.n_units)
    weighing = np.array([WEIGH_CLOCKS[int(r)] for r in rows / GROUP_ROWS])
    weigh = scores * padded * weighing / clock / target.n_units
    started = scores * padded / (GROUP_ROWS * chunk)
    start = started * START_CLOCKS / (rows / GROUP_ROWS) / clock / target.n_units
    if not carried:
        return np.asarray(np.maximum(matrix, weigh) + start)
    across = sum(
        _padded(a.star, a.itemsize)
        for a in summary.loads
        if a.feeds_product and "p" not in a.letters
    )
    elements = scores * padded / GROUP_ROWS * across
    return np.asarray(matrix + weigh + start + elements * STAGED_FLOPS / target.vector_flops_per_s)


def _check(summary: Summary, target: Target, columns: Columns) -> None:
    """Operand rings and the result in shared memory, tiles in registers."""
    chunk, rows, width = columns.block["s"], columns.block["p"], _width(summary, columns)
    smem = np.zeros(len(columns))
    for a in summary.loads:
        if a.feeds_product and "p" in a.letters:
            smem = smem + rows * _padded(a.star, a.itemsize) * a.itemsize
        elif a.feeds_product:
            values = "q" in a.letters or a.star == _mixed(summary)
            across = np.maximum(width if values else 0, _padded(a.star, a.itemsize))
            smem = smem + chunk * across * a.itemsize * columns.extra["stages"]
    limit = target.memory("smem").n_bytes
    smem = smem + SMEM_SLACK
    # As many panels of the result as fit, one at least.
    (store,) = summary.stores
    panels = np.ceil(width * store.itemsize / PANEL_BYTES)
    staged = [np.minimum(n, panels) for n in (panels, 2.0, 1.0)]
    fits = [smem + n * PANEL_BYTES * rows <= limit for n in staged]
    smem = smem + PANEL_BYTES * rows * np.select(fits, staged, 1.0)
    registers = _words(summary, chunk, width)
    room = np.array([REGISTERS[int(r)] for r in rows / GROUP_ROWS]) - OTHER_REGISTERS
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
