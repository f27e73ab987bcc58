"""Cost model of NVIDIA GPUs: a roofline over main memory, L2, matrix units and vector lanes.

Candidates come from the target's gemm rows and capacities; nothing here knows a program or a shape.
Times are for comparing decisions: the fitted constants say where they come from.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise, starmap
from math import gcd, prod
from typing import NamedTuple

import numpy as np

from axe_eq.program.types import DTYPES
from axe_eq.schedule.box import UNIT_LETTERS
from axe_eq.schedule.summary import (
    Access,
    Column,
    Columns,
    Summary,
    Work,
    blocks,
    flops,
    grid_of,
    traffic,
)  # fmt: skip
from axe_eq.target import Instr, Target
from axe_eq_backends.cuda.schedules.gemm import (
    BULK_BYTES,
    GROUP_THREADS,
    MOST_HELD,
    PANEL_BYTES,
    PERIOD_ROWS,
    column_words,
    tile_words,
)
from axe_eq_backends.cuda.sides import as_matrices
from axe_eq_backends.cuda.sizes import MOST_INSTRUCTIONS, instructions

# Re-reads come from L2: GEMM tiles of 128 x 256 at 770 TFLOP/s draw 9.0e12 B/s from it, so at least
# 2.1; 3 fits.
L2_OVER_HBM = 3.0
# Share of arithmetic that does not hide behind memory traffic.
EXPOSED = 0.1
# Products wait for shared memory where copies into it and instructions that read it move more per
# multiply-add than those of a tile of 128 x 256. Measured on one H200 (f16, M = 8192), against that
# tile: 256 x 128 at 0.935, 128 x 128 at 0.92, two products of 128 x 128 with the same rows at 1.
FULL_TILE = (128, 256)
SMEM_EXPONENT = 0.45
# Relative loss of a pipeline: per element of a chunk, and per stage beyond the first (fitted to
# four GEMM shapes
# at k = 64 with 3 and 4 stages, which are equal within 1 %).
SHORT_CHUNK = 0.64
FEW_STAGES = 0.02
# An operand computed in the kernel costs about this many lane operations per element (convert,
# swizzle, store).
STAGED_FLOPS = 8.0
# Warpgroups that multiply, and the rows each takes at least.
CONSUMERS, WARPGROUP_ROWS = 2, 64
# Shared memory for barriers and alignment; the narrowest tile.
SMEM_SLACK, LEAST_COLS = 2048, 64
# Steps on their way, and panels of the result in shared memory, that a kernel may have.
STAGES, STAGED_PANELS = (2, 3, 4, 5, 6, 8, 10, 12), (1, 2, 8)
# A step's copies take LATENCY_S and their bytes at UNIT_RATE_B_S, and no more of them are on their
# way than slots. Fitted to products of 1 to 128 rows in tiles of 64 to 256 columns with 2 to 12
# slots on one H200: with the 1.7 us that they take beside their steps, within 10 % where they wait.
LATENCY_S, UNIT_RATE_B_S, STEP_S = 0.62e-6, 125e9, 0.02e-6
# Storing a tile's panels in turns: worth more than a fourth stage, not than a third.
IN_TURNS, FEWER_PANELS = 0.004, 0.001
# A block size that covers any dim: cutting is never worse than keeping a dim whole.
WHOLE_DIM = 1 << 40
# A grid too small to fill the machine still streams from a few units at most this part of the
# bandwidth each.
UNIT_BANDWIDTH = 1 / 40
# Values that a thread of a cone on lanes reads before it computes: one element of 8 bytes of each
# takes half of its registers.
MOST_READS = 64


@dataclass(frozen=True)
class TensorCores:
    """Cones with sums of products on matrix units: one instruction row per candidate."""

    name: str = "tensor_cores"
    families: tuple[str, ...] = ("cuda",)
    prices_places: bool = False

    def refuse(self, summary: Summary, target: Target) -> str | None:
        """Refused without products, without a side that is cut, or without a row for the dtype."""
        if not summary.products:
            return "no sum of products"
        if unread := not_strided(summary):
            return unread
        tiled = as_matrices(summary).summary
        if not (tiled.has("p") or tiled.has("q")):
            return "no block of rows or columns"
        if any(w.structured for w in summary.products):
            return "a structured reduction of products"
        if summary.n_folds:
            return "other reductions beside products"
        if _computes_operands(summary):
            return "operands of products computed in the kernel"
        if len(summary.stores) > 1:
            return "several results"
        if unfit := not_as_they_lie(summary, target):
            return unfit
        missing = {w.dtype for w in summary.products if not tile_rows(target, w.dtype)}
        return _no_rows(target, missing) if missing else None

    def price(self, summary: Summary, target: Target) -> Columns:
        """One table over all rows: tiles are multiples of the row's shape."""
        sides = as_matrices(summary)
        summary = sides.summary
        columns = _tiles(tile_rows(target, summary.products[0].dtype), summary)
        if (cluster := target.limits.get("product_cluster", 1)) > 1:
            columns.extra["cluster"] = np.full(len(columns), float(cluster))
        columns.extra["band"] = _band(summary, columns, target)
        rate = np.array([r.flops_per_s for r in _row_of(columns, target)])
        rate = rate / _smem_traffic(summary, columns) ** SMEM_EXPONENT
        wasted = _padded(summary, columns, "p") * _padded(summary, columns, "q")
        matrix = flops(summary.products, summary, columns) / rate * wasted
        matrix = matrix * _pipeline(summary, columns) + _staging(summary, target, columns)
        roofline(summary, target, columns, matrix)
        waits = _waits(summary, target, columns)
        columns.time_s = np.maximum(columns.time_s, target.launch_s + waits)
        _check_tensor_capacity(summary, target, columns)
        return sides.named(columns)


def _computes_operands(summary: Summary) -> bool:
    """Whether a plain product reads what the cone computes, which no schedule stages."""
    return bool(summary.staged)


def too_many_reads(summary: Summary) -> str | None:
    """Why no thread holds what a cone reads; None where it does."""
    if summary.n_reads > MOST_READS:
        return f"{summary.n_reads} or more reads at once, not {MOST_READS}"
    return None


def not_strided(summary: Summary, looks: bool = False) -> str | None:
    """Why no kernel reads what a cone reads; None where strides and one range per dim say it.

    So it is for cones whose results are not of one index space, and for those that read where
    integers say, unless the kernel `looks` there.
    """
    if summary.n_looked and not looks:
        return "values from where integers say"
    if summary.n_guarded:
        return "reads that end along several dims at once"
    if summary.n_scattered:
        return "values from places that no strides describe"
    if summary.n_outside:
        return "results over several index spaces"
    return None


def not_as_they_lie(summary: Summary, target: Target) -> str | None:
    """Why warpgroup products of tensors as they lie are not what a cone is; None where they are."""
    if len({t for w in summary.products for t in w.dtypes}) > 1:
        return "operands of different element types"
    if len({w.reduced for w in summary.products}) > 1:
        return "products that sum over different dims"
    if any(w.crossed for w in summary.products):
        return "operands contiguous along different reduced dims"
    if summary.n_parts:
        return "values put together from parts"
    return misaligned(as_matrices(summary).summary, target)


def misaligned(summary: Summary, target: Target) -> str | None:
    """Why bulk copies cannot fetch the operands of products; None where they can."""
    operands = [a for a in summary.loads if a.feeds_product]
    fed = [a.aligned for a in operands]
    # Tiles have one index of a unit letter's dim.
    along = {x for a in operands for x, _, step in a.strides if step == 1}
    if 0 in fed or along & set(UNIT_LETTERS):
        return "an operand without a contiguous dim"
    least = min((gcd(a, BULK_BYTES) for a in fed), default=BULK_BYTES)
    if least < BULK_BYTES:
        return (
            f"rows of operands {least} B apart, and bulk copies (TMA) need strides that are "
            f"multiples of {BULK_BYTES} B"
        )
    dims = max((_n_dims(a, summary) for a in summary.loads if a.feeds_product), default=0)
    most = min(
        (r.limits["rank"] for r in target.rows("copy_async") if "rank" in r.limits), default=0
    )
    return f"operands of {dims} dims in memory, not {most}" if dims > most else None


def _n_dims(access: Access, summary: Summary) -> int:
    """Dims of an operand where those are one that operands and results run through as one."""
    known = (a for a in (*summary.loads, *summary.stores) if a.strides)
    steps = [{x: (e, s) for x, e, s in a.strides} for a in known]

    def are_one(slow: str, fast: str) -> bool:
        pairs = ((a.get(slow, (1, 0)), a.get(fast, (1, 0))) for a in steps)
        return slow != fast and all(s == inner * e for (_, s), (e, inner) in pairs)

    letters = [x for x, _, _ in access.strides]
    return len(letters) - sum(starmap(are_one, pairwise(letters)))


def _padded(summary: Summary, columns: Columns, letter: str) -> Column:
    """What tiles cover along a letter, their parts past its end included, over its extent.

    Without rows there is one; columns that no letter cuts are whole.
    """
    if letter == "q" and not summary.has(letter):
        return np.ones(len(columns))
    extent = summary.extent(letter)
    return np.asarray(np.ceil(extent / columns.block[letter]) * columns.block[letter] / extent)


def no_rows_of_scores(summary: Summary) -> str | None:
    """Why a structured reduction has no rows of scores over one dim; None where it has them."""
    if not summary.has("p") or summary.extent("s") == 1:
        return "no block dim p, or no more than one index of a streamed dim s"
    if any(w.structured and len(w.reduced) > 1 for w in summary.products):
        return "a structured reduction over several dims"
    return None


def wide_weights(summary: Summary) -> str | None:
    """Why weights must not be rounded to the values' type, as kernels of matrix units have them.

    None where no score is wider than the values, or results are stored as narrow: rounding weights
    is then no coarser than rounding results.
    """
    for work in summary.products:
        widest = max((DTYPES[t].itemsize for t in work.dtypes), default=0)
        size = DTYPES[work.dtype].itemsize
        if work.structured and widest > size and max(a.itemsize for a in summary.stores) > size:
            return f"weights that {work.dtype} does not hold, for a wider result"
    return None


def mixes_rows(summary: Summary) -> bool:
    """Whether every row mixes values of its own: no products of rows with what they share."""
    return any({"p", "s"} <= set(a.letters) for a in summary.loads if a.feeds_product)


# Families of instructions that kernels are written with: from tile memory, and of registers, which
# are other kernels.
OF_TILES, OF_REGISTERS = "wgmma", ("mma", "fma")


def tile_rows(target: Target, dtype: str) -> list[Instr]:
    """Rows that multiply an element type from tile memory, and that a kernel is written with."""
    return [r for r in _rows_of(target, dtype) if r.family == OF_TILES]


def _rows_of(target: Target, dtype: str) -> list[Instr]:
    return [r for r in target.rows("gemm") if any(dtype == accepted[0] for accepted in r.dtypes)]


def _no_rows(target: Target, dtypes: Collection[str]) -> str:
    """Why there is no row that multiplies element types from tile memory."""
    known = {r.name for d in dtypes for r in _rows_of(target, d)}
    unwritten = sorted(n for n in known if n.partition(".")[0] not in (OF_TILES, *OF_REGISTERS))
    if unwritten:
        return f"no kernel is written with {' '.join(unwritten)}"
    return f"no gemm row for {' '.join(sorted(dtypes))}"


def is_of_matrices(work: Work) -> bool:
    """Whether each operand of a product has dims of its own; else one of them is a vector."""
    return {"a", "b"} <= {reach for _, _, reach in work.kept}


def _row_of(columns: Columns, target: Target) -> list[Instr]:
    by_name = {r.name: r for r in target.rows("gemm")}
    return [by_name[name] for name in columns.rows]


def _tiles(rows: list[Instr], summary: Summary) -> Columns:
    """Tiles of every row, as kernels have them: multiples of its m and n, steps of a panel's width.

    What a row leaves open is how many steps are on their way, and how many panels of the result are
    in shared memory at once.
    """
    size = DTYPES[summary.products[0].dtype].itemsize
    parts, names = [], []
    for row in rows:
        m, n, _ = row.shape
        step = row.limits.get("n_step", n)
        widths = sorted({w for w in (64, 128, 192, 256) if w % step == 0})
        table = grid_of([m, 2 * m, 4 * m], widths, STAGES, STAGED_PANELS)
        parts.append(table)
        names += [row.name] * len(table[0])
    p, q, stages, staging = (np.concatenate(column) for column in zip(*parts, strict=True))
    depth = max(1.0, PANEL_BYTES // size // _chunk_width(summary))
    chunk: Column = np.full(len(p), depth)
    columns = Columns(
        {"p": p, "q": q, "k": chunk, "s": chunk}, {"stages": stages, "staging": staging},
        tuple(names),
    )  # fmt: skip
    columns.extra["staging"] = np.minimum(staging, _panels(summary, columns)[0])
    return columns


def _panels(summary: Summary, columns: Columns) -> tuple[Column, Column]:
    """Panels of a tile of the result, and bytes of one."""
    (store,) = summary.stores
    width = _block(summary, columns, "q", store.star if "q" not in store.letters else 1)
    row = width * store.itemsize
    return np.ceil(row / PANEL_BYTES), columns.block["p"] * np.minimum(row, PANEL_BYTES)


def _block(summary: Summary, columns: Columns, letter: str, whole: int) -> Column:
    """A tile's extent along a letter, parts past the end included; padded where it is whole."""
    if summary.has(letter):
        return columns.block[letter]
    return np.full(len(columns), float(-(-whole // LEAST_COLS) * LEAST_COLS))


def _chunk_width(summary: Summary) -> float:
    """Reduced elements per index of the streaming letter: dims reduced whole beside it."""
    fed = [a for a in summary.loads if a.feeds_product and "k" in a.letters]
    widths = [a.star for a in fed if {"p", "q"} & set(a.letters)]  # else columns are whole as well
    return float(max(widths, default=1))


def _smem_traffic(summary: Summary, columns: Columns) -> Column:
    """Elements that cross shared memory per multiply-add, over those of a full tile; at least 1.

    A copy writes every operand once; then each group of rows is read once for all products that
    share them, and the other operands once per group.
    """
    p, tile = columns.block["p"], np.zeros(len(columns))
    for star, letters in summary.resident:
        tile = tile + star * p * (columns.block["q"] if "q" in letters else 1.0)
    fed = [a for a in summary.loads if a.feeds_product]
    rows = p * max(sum("p" in a.letters for a in fed), 1)
    cols = tile / p
    moved = rows + cols + rows + cols * p / WARPGROUP_ROWS
    full = 2 * FULL_TILE[0] + FULL_TILE[1] * (1 + FULL_TILE[0] / WARPGROUP_ROWS)
    return np.asarray(np.maximum(moved / tile / (full / FULL_TILE[0] / FULL_TILE[1]), 1.0))


def _band(summary: Summary, columns: Columns, target: Target) -> Column:
    """Rows of tiles that the units are at together: what they read is least where it is square.

    A power of two, so that bands fill the rows of most shapes. With 132 units that is 16 tiles of
    128 x 256, which is what measured best.
    """
    fed = ["p" in a.letters for a in summary.loads if a.feeds_product]
    cols = _block(summary, columns, "q", 1) * max(fed.count(False), 1)
    square = np.sqrt(target.n_units * cols / (columns.block["p"] * max(fed.count(True), 1)))
    rows = np.ceil(summary.extent("p") / columns.block["p"])
    return np.clip(2.0 ** np.floor(np.log2(np.maximum(square, 1))), 1, rows)


def _pipeline(summary: Summary, columns: Columns) -> Column:
    """Loss of shallow pipelines: few stages or short chunks expose the latency of loads."""
    part = columns.extra["staging"] / _panels(summary, columns)[0]
    return (
        1
        + SHORT_CHUNK / (columns.block["k"] * _chunk_width(summary))
        + FEW_STAGES / (columns.extra["stages"] - 1)
        + np.where(part < 1, IN_TURNS + FEWER_PANELS * (1 - part), 0.0)
    )


def _waits(summary: Summary, target: Target, columns: Columns) -> Column:
    """Seconds that a unit's tiles wait for copies, where only its slots are on their way."""
    size = DTYPES[summary.products[0].dtype].itemsize
    steps = np.ceil(prod(summary.products[0].reduced) * size / PANEL_BYTES)
    copied = _stage_bytes(summary, columns, copied=True)
    alone = (LATENCY_S + copied / UNIT_RATE_B_S) / (columns.extra["stages"] - 1) + STEP_S
    rounds = np.ceil(blocks(summary, columns) / target.n_units)
    return np.asarray(rounds * steps * np.maximum(alone, copied / UNIT_RATE_B_S))


def _stage_bytes(summary: Summary, columns: Columns, copied: bool = False) -> Column:
    """Bytes of a slot of the ring; or of what is copied there, where few rows are all there are."""
    depth, total = columns.block["k"] * _chunk_width(summary), np.zeros(len(columns))
    for access in summary.loads:
        if access.feeds_product:
            of_rows = "p" in access.letters or not (summary.has("p") or "q" in access.letters)
            side = columns.block["p"] if of_rows else _block(summary, columns, "q", access.star)
            if of_rows and copied:
                rows = summary.extent("p")
                side = np.minimum(side, -(-rows // PERIOD_ROWS) * PERIOD_ROWS)
            total = total + side * depth * access.itemsize
    return total


def _staging(summary: Summary, target: Target, columns: Columns) -> Column:
    """Seconds to write computed operands to shared memory, between loads and matrix units."""
    staged = flops(summary.staged, summary, columns)
    return np.asarray(staged * STAGED_FLOPS / target.vector_flops_per_s)


class Run(NamedTuple):
    """What of a structured reduction's chunks blocks run.

    Attributes:
        part: of all chunks.
        busiest: chunks of the busiest unit over the average of all units.
    """

    part: Column
    busiest: Column


def waves(summary: Summary, target: Target, columns: Columns) -> Column:
    """Blocks of the busiest unit over the average, where blocks are alike."""
    per_unit = blocks(summary, columns) / target.n_units
    return np.asarray(np.ceil(per_unit) / per_unit)


def roofline(
    summary: Summary,
    target: Target,
    columns: Columns,
    matrix: Column,
    part: float = UNIT_BANDWIDTH,
    run: Run | None = None,
) -> None:
    """Fill time_s and the cost columns.

    Args:
        summary: the cone.
        target: the machine.
        columns: its candidates.
        matrix: seconds of the products, of all units together.
        part: of the bandwidth, with which a block streams at most.
        run: the chunks that blocks run, where masks leave some out.
    """
    run = run or Run(np.ones(len(columns)), waves(summary, target, columns))
    once, again = traffic(summary, columns, run.part)
    n_blocks = blocks(summary, columns)
    rate = target.memories[0].bytes_per_s
    vector = flops(summary.vector, summary, columns, run.part) / target.vector_flops_per_s
    busy = np.minimum(1.0, n_blocks / target.n_units)
    streaming = np.minimum(1.0, n_blocks * part)
    memory = once / rate / streaming + again / (rate * L2_OVER_HBM) / busy
    compute = np.maximum(matrix, vector) * run.busiest
    columns.time_s = target.launch_s + np.maximum(memory, compute) + EXPOSED * np.minimum(
        memory, matrix + vector
    )  # fmt: skip
    columns.costs = {
        "gmem_bytes": once, "reread_bytes": again, "matrix_s": matrix, "vector_s": vector,
        "memory_s": memory, "blocks": n_blocks,
    }  # fmt: skip


def _check_tensor_capacity(summary: Summary, target: Target, columns: Columns) -> None:
    """Operand stages and staged results in shared memory, accumulators in registers."""
    accumulators = np.zeros(len(columns))
    for star, letters in summary.resident:
        cols = _block(summary, columns, "q", 1 if "q" in letters else star)
        accumulators = accumulators + columns.block["p"] * cols
    ring = _stage_bytes(summary, columns) * columns.extra["stages"]
    smem = ring + columns.extra["staging"] * _panels(summary, columns)[1] + SMEM_SLACK
    limit = target.memory("smem").n_bytes
    columns.costs |= {
        "smem_bytes": smem, "register_bytes": accumulators * DTYPES["f32"].itemsize
    }  # fmt: skip
    columns.reject(smem > limit, f"tiles exceed smem {limit} B")
    warpgroups = np.clip(columns.block["p"] // WARPGROUP_ROWS, 1, CONSUMERS)
    held = accumulators / (GROUP_THREADS * warpgroups)
    # Of what the epilogue takes a panel's columns at least are held.
    wide = PANEL_BYTES // summary.stores[0].itemsize
    held = held + summary.n_positions * column_words(wide, DTYPES["i32"].itemsize)
    for access in summary.loads:
        if not access.feeds_product and "q" in access.letters:
            rows = columns.block["p"] / warpgroups
            held = held + (
                tile_words(rows, wide, access.itemsize)
                if "p" in access.letters
                else column_words(wide, access.itemsize)
            )
    columns.reject(
        held > MOST_HELD,
        f"accumulators and a panel's operands exceed {MOST_HELD} registers of a thread",
    )
    cols = _block(summary, columns, "q", summary.stores[0].star)
    stored = columns.block["p"] * cols / (GROUP_THREADS * warpgroups)
    columns.reject(
        instructions(stored * summary.cells) > MOST_INSTRUCTIONS,
        f"cells of a thread exceed {MOST_INSTRUCTIONS} instructions",
    )
