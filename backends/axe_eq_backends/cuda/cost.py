"""Cost model of NVIDIA GPUs: a roofline over main memory, L2, matrix units and vector lanes.

Candidates come from the target's gemm rows, sizes and capacities; nothing here knows a program or a
shape. Times are for comparing decisions, by figures that were fitted on the target.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise, starmap
from math import gcd, prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from axe_eq.program.types import DTYPES
from axe_eq.schedule.box import UNIT_LETTERS
from axe_eq.schedule.summary import (
    ANY_ALIGNMENT,
    Access,
    Column,
    Columns,
    Reductions,
    Summary,
    Work,
    blocks,
    flops,
    grid_of,
    traffic,
)  # fmt: skip
from axe_eq.target import Instr, Target
from axe_eq_backends.cuda.contract import OF_REGISTERS, OF_TILES
from axe_eq_backends.cuda.schedules.gemm import (
    BULK_BYTES,
    GROUP_THREADS,
    MOST_HELD,
    PANEL_BYTES,
    SMEM_SLACK,
    column_words,
    tile_words,
)
from axe_eq_backends.cuda.schedules.ragged import PART_ROWS, PERIOD_ROWS
from axe_eq_backends.cuda.schedules.tensors import power_of_two_from
from axe_eq_backends.cuda.schedules.tiles import panel_width, staged_panels
from axe_eq_backends.cuda.sides import Matrices, as_matrices
from axe_eq_backends.cuda.sizes import MOST_INSTRUCTIONS, instructions

Mask = npt.NDArray[np.bool_]
# Warpgroups that multiply, at most, and the rows each takes at least; the narrowest tile, and step.
CONSUMERS, WARPGROUP_ROWS, LEAST_COLS, LEAST_DEPTH = 2, 64, 64, 16
# What caches are read by: copies of rows that begin elsewhere touch more of them.
LINE_BYTES = 128
# A block size that covers any dim: cutting is never worse than keeping a dim whole.
WHOLE_DIM = 1 << 40
# Values that a thread of a cone on lanes reads before it computes: one element of 8 bytes of each
# takes half of its registers.
MOST_READS = 64


@dataclass(frozen=True)
class TensorCores:
    """Cones with sums of products on matrix units: one instruction row per candidate."""

    name: str = "tensor_cores"
    families: tuple[str, ...] = ("cuda",)
    prices_places: bool = False

    def refuse_reductions(self, reductions: Reductions, target: Target) -> str | None:
        """Refused without products, with other reductions, with operands computed on the way."""
        if not reductions.products:
            return "no sum of products"
        if reductions.structured:
            return "a structured reduction of products"
        if reductions.folds:
            return "other reductions beside products"
        if reductions.results > 1:
            return "several results"
        return "operands of products computed in the kernel" if reductions.staged else None

    def refuse(self, summary: Summary, target: Target) -> str | None:
        """Refused without products, without a side that is cut, or without a row for the dtype."""
        if reason := self.refuse_reductions(summary.reductions, target):
            return reason
        if unread := not_strided(summary, ends=True):
            return unread
        tiled = as_matrices(summary).summary
        if not (tiled.has("p") or tiled.has("q")):
            return "no block of rows or columns"
        if unfit := not_as_they_lie(summary, target):
            return unfit
        missing = {w.dtype for w in summary.products if not tile_rows(target, w.dtype)}
        return _no_rows(target, missing) if missing else None

    def price(self, summary: Summary, target: Target) -> Columns:
        """One table over all rows and tiles; what a kernel is written by is all in it."""
        sides = as_matrices(summary)
        summary = sides.summary
        tiles = _tiles(_alone(summary), sides.whole, Machine(target))
        columns = Columns(tiles.block, dict(tiles.chosen), tiles.table.names, exact=True)
        roofline(summary, target, columns, tiles.matrix, shared=_of_clusters(columns))
        _pace(summary, tiles, target, columns)
        apart = sum(a.n_bytes / a.itemsize for a in summary.stores if a.fast in UNIT_LETTERS)
        columns.time_s = columns.time_s + apart * target.figure("apart_store_s")
        _check(sides, tiles, target, columns)
        return sides.named(columns)


def too_many_reads(summary: Summary) -> str | None:
    """Why no thread holds what a cone reads; None where it does."""
    if summary.n_reads > MOST_READS:
        return f"{summary.n_reads} or more reads at once, not {MOST_READS}"
    return None


def not_strided(summary: Summary, looks: bool = False, ends: bool = False) -> str | None:
    """Why no kernel reads what a cone reads; None where strides and one range per dim say it.

    So it is for cones whose results are not of one index space, for those that read where integers
    say, unless the kernel `looks` there, and for parts that end past a tensor, unless it `ends`.
    """
    if summary.n_looked and not looks:
        return "values from where integers say"
    if summary.n_ended and not ends:
        return "parts that end past what is there"
    if summary.unread:
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


def padded(there: int, tile: Column) -> Column:
    """What tiles cover of a side, their parts past its end included, over what is there."""
    return np.asarray(np.ceil(there / tile) * tile / there)


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


class Table(NamedTuple):
    """Tiles of a target's rows, whatever product they are of; see `gemm.PARAMETERS`.

    Attributes:
        chosen: parameters but the band, by name.
        names: of the rows.
        rate: operations of the row.
        uneven: tiles that are no whole instructions and warpgroups.
        panels, panel_bytes: of a tile of the result, and of one of them.
    """

    chosen: dict[str, Column]
    names: tuple[str, ...]
    rate: Column
    uneven: Mask
    panels: Column
    panel_bytes: Column


@lru_cache(maxsize=256)
def _table(
    rows: tuple[tuple[str, float, int, int], ...],
    sizes: tuple[tuple[int, ...], ...],
    clusters: tuple[int, ...],
    depth: int,
    itemsize: int,
) -> Table:
    """All combinations.

    Args:
        rows: (name, operations a second, rows and columns that a tile has a multiple of).
        sizes: rows and columns of a tile, stages, and panels in shared memory at most.
        clusters: CTAs of one.
        depth: of a step.
        itemsize: bytes of an element of the result.
    """
    ways = [w for n in clusters for w in dict.fromkeys(((n, 1), (1, n)))]
    at, m, n, stages, most, way = grid_of(range(len(rows)), *sizes, range(len(ways)))
    names, rates, *steps = zip(*rows, strict=True)
    row, (m_step, n_step) = at.astype(int), np.array(steps)
    shared = np.array(ways, float)[way.astype(int)]
    wide = np.array([panel_width(cols, itemsize) for cols in n.astype(int).tolist()])
    # One takes an odd number of parts alone: nothing was gained by three of them.
    consumers = np.where(m % (CONSUMERS * WARPGROUP_ROWS) == 0, CONSUMERS, 1)
    panels = n // wide
    pairs = zip(panels.astype(int).tolist(), most.astype(int).tolist(), strict=True)
    staging = np.array([float(staged_panels(*pair)) for pair in pairs])
    chosen = {
        "m": m, "n": n, "k": np.full(len(m), float(depth)), "stages": stages,
        "consumers": consumers, "staging": staging, "cluster_rows": shared[:, 0],
        "cluster_cols": shared[:, 1],
    }  # fmt: skip
    uneven = (m % (m_step[row] * consumers) + n % n_step[row]) > 0
    made = tuple(names[r] for r in row.tolist())
    return Table(chosen, made, np.array(rates)[row], uneven, panels, m * wide * itemsize)


def _offered(sides: Matrices, target: Target) -> Table:
    """What the target offers for a product.

    A tile has the columns that are there where no letter cuts them, and steps of a panel's width.
    """
    (store,), work = sides.summary.stores, sides.summary.products[0]
    rows = [
        (r.name, r.flops_per_s, r.shape[0], r.limits.get("n_step", r.shape[1]))
        for r in tile_rows(target, work.dtype)
    ]
    names = ("rows", "cols", "stages", "panels")
    sizes = [target.sizes(f"product_{name}") for name in names]
    if not sides.summary.has("q"):
        sizes[1] = (-(-sides.there[1] // LEAST_COLS) * LEAST_COLS,)
    deepest = max(LEAST_DEPTH, power_of_two_from(prod(work.reduced)))
    depth = min(PANEL_BYTES // DTYPES[work.dtype].itemsize, deepest)
    clusters = target.sizes("product_cluster")
    return _table(tuple(rows), tuple(sizes), clusters, depth, store.itemsize)


class Machine:
    """A machine as a key: itself, whatever is equal to it."""

    def __init__(self, target: Target) -> None:
        self.target = target

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Machine) and self.target is other.target

    def __hash__(self) -> int:
        return id(self.target)


class Tiles(NamedTuple):
    """What a product's tiles take, whatever is computed beside it.

    Attributes:
        table: the tiles.
        block, chosen: block sizes and parameters.
        matrix: seconds of the products, of all units together.
        waits: seconds that units wait for copies or multiply, one step after the other.
        lines: bytes of whole lines that copies take from the cache that all units share.
        ring: bytes of operands in shared memory.
    """

    table: Table
    block: dict[str, Column]
    chosen: dict[str, Column]
    matrix: Column
    waits: Column
    lines: Column
    ring: Column


def _alone(summary: Summary) -> Summary:
    """A product without what is computed beside it: searches price one with many epilogues."""
    fed = tuple(a._replace(fast="", passes=1) for a in summary.loads if a.feeds_product)
    stores = tuple(a._replace(fast="", aligned=ANY_ALIGNMENT) for a in summary.stores)
    return Summary(summary.extents, fed, stores, summary.products, (), (), (), n_nodes=0)


@lru_cache(maxsize=256)
def _tiles(summary: Summary, whole: tuple[int, int], machine: Machine) -> Tiles:
    """The tiles of a product that is `_alone`; `whole` as in `Matrices`."""
    sides, target = Matrices(summary, {}, whole), machine.target
    table = _offered(sides, target)
    figure, chosen = target.figure, dict(table.chosen)
    block = {"p": chosen["m"], "q": chosen["n"], "k": chosen["k"], "s": chosen["k"]}
    columns = Columns(block, chosen, table.names, exact=True)
    chosen["band"] = _band(sides, columns, target)
    crossing = _smem_traffic(summary, target, columns)
    rate = table.rate / crossing ** figure("smem_exponent")
    wasted = padded(sides.there[0], chosen["m"] * chosen["cluster_rows"])
    wasted = wasted * padded(sides.there[1], chosen["n"] * chosen["cluster_cols"])
    matrix = flops(summary.products, summary, columns) / rate * wasted
    matrix = matrix * _losses(table, target, columns)
    burst = table.rate * figure("burst_over_rate") / crossing ** figure("burst_exponent")
    n_blocks = blocks(summary, columns)
    steps = np.ceil(prod(summary.products[0].reduced) / chosen["k"])
    rounds = np.ceil(n_blocks / target.n_units)
    flowing = _stage_bytes(sides, columns, there=True) / figure("tile_unit_bytes_per_s")
    copied = (figure("copy_latency_s") + flowing) / (chosen["stages"] - 1)
    work = chosen["m"] * chosen["n"] * chosen["k"] * 2.0 * len(summary.products)
    multiplied = work * target.n_units / burst
    power = figure("overlap_power")
    waits = rounds * steps * _together(power, np.maximum(copied, flowing), multiplied)
    lines = _stage_bytes(sides, _of_clusters(columns), there=True, lines=True)
    of_cluster = chosen["cluster_rows"] * chosen["cluster_cols"]
    shared = n_blocks * steps * lines / of_cluster
    ring = _stage_bytes(sides, columns) * chosen["stages"]
    return Tiles(table, block, chosen, matrix, waits, shared, ring)


def _of_clusters(columns: Columns) -> Columns:
    """Blocks that read an operand once: those of a cluster read it together."""
    sizes = {"p": columns.extra["cluster_rows"], "q": columns.extra["cluster_cols"]}
    shared = {x: columns.block[x] * n for x, n in sizes.items()}
    return replace(columns, block=columns.block | shared)


def _smem_traffic(summary: Summary, target: Target, columns: Columns) -> Column:
    """Elements that cross shared memory per multiply-add, over those of a full tile; at least 1.

    A copy writes every operand once; then each group of rows is read once for all products that
    share them, and the other operands once per group.
    """

    def moved(m: Column | float, cols: Column | float, rows: Column | float) -> Column | float:
        return (2 * rows + cols * (1 + m / WARPGROUP_ROWS)) / (m * cols)

    m, cols = columns.extra["m"], columns.extra["n"] * len(summary.products)
    rows = m * max(sum("p" in a.letters for a in summary.loads if a.feeds_product), 1)
    full_m, full_n = (target.figure(f"full_tile_{side}") for side in ("rows", "cols"))
    return np.asarray(np.maximum(moved(m, cols, rows) / moved(full_m, full_n, full_m), 1.0))


def _band(sides: Matrices, columns: Columns, target: Target) -> Column:
    """Rows of tiles that the units are at together: what they read is least where it is square.

    A power of two, so that bands fill the rows of most shapes. With 132 units that is 16 tiles of
    128 x 256, which is what measured best.
    """
    fed = ["p" in a.letters for a in sides.summary.loads if a.feeds_product]
    cols = columns.extra["n"] * max(fed.count(False), 1)
    square = np.sqrt(target.n_units * cols / (columns.extra["m"] * max(fed.count(True), 1)))
    rows = np.ceil(sides.there[0] / columns.extra["m"])
    return np.clip(2.0 ** np.floor(np.log2(np.maximum(square, 1))), 1, rows)


def _losses(table: Table, target: Target, columns: Columns) -> Column:
    """Of shallow pipelines and clusters: few stages or short chunks expose the latency of loads."""
    part, figure = columns.extra["staging"] / table.panels, target.figure
    in_turns = figure("panels_in_turns") + figure("fewer_panels") * (1 - part)
    return (
        1
        + figure("short_chunk") / columns.extra["k"]
        + figure("few_stages") / (columns.extra["stages"] - 1)
        + figure("cluster") * np.log2(columns.extra["cluster_rows"] * columns.extra["cluster_cols"])
        + np.where(part < 1, in_turns, 0.0)
    )


def _pace(summary: Summary, tiles: Tiles, target: Target, columns: Columns) -> None:
    """The time of products: what matrix units take of them, else the pace of their copies.

    A unit's step takes what it copies, a copy's latency over the slots, or its products at the rate
    that a cool machine has for microseconds; all units together take what crosses the cache that
    they share, in whole lines, and main memory. None of these hides the others whole, so powers of
    them add up.

    Args:
        summary: the cone.
        tiles: those of its product.
        target: the machine.
        columns: its candidates, with their rooflines.
    """
    figure, costs, waits = target.figure, columns.costs, tiles.waits
    power, rate = figure("overlap_power"), target.memories[0].bytes_per_s
    shared = tiles.lines / (rate * figure("l2_over_memory"))
    read = costs["gmem_bytes"] / rate
    matrix, vector = costs["matrix_s"], costs["vector_s"]
    computed = np.maximum(matrix, vector) * waves(summary, target, columns)
    computed = computed + figure("exposed") * np.minimum(costs["memory_s"], matrix + vector)
    begin = figure("product_begin_s")
    paced = _together(power, waits, shared, read)
    columns.time_s = target.launch_s + np.maximum(computed, paced) + begin
    costs |= {"waits_s": waits, "latency_s": np.full(len(columns), begin)}
    costs["memory_s"] = _together(power, shared, read)


def _together(power: float, *parts: Column) -> Column:
    """What takes times that hide each other, but not whole."""
    return np.asarray(sum(part**power for part in parts) ** (1 / power))


def _stage_bytes(
    sides: Matrices, columns: Columns, there: bool = False, lines: bool = False
) -> Column:
    """Bytes of a slot of the ring.

    Args:
        sides: the product.
        columns: its candidates.
        there: those that are copied there: few rows where these are all there are.
        lines: those of the whole lines of memory that copies touch.
    """
    summary, total = sides.summary, np.zeros(len(columns))
    for access in summary.loads:
        if access.feeds_product:
            of_rows = "p" in access.letters or not (summary.has("p") or "q" in access.letters)
            side = columns.block["p" if of_rows else "q"]
            if of_rows and there:
                rows = -(-sides.there[0] // PERIOD_ROWS) * PERIOD_ROWS
                side = np.minimum(side, rows)
            touched = 2 - gcd(access.aligned, LINE_BYTES) / LINE_BYTES if lines else 1.0
            total = total + side * columns.extra["k"] * access.itemsize * touched
    return total


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
    run: Run | None = None,
    shared: Columns | None = None,
) -> None:
    """Fill time_s and the cost columns.

    Args:
        summary: the cone.
        target: the machine.
        columns: its candidates.
        matrix: seconds of the products, of all units together.
        run: the chunks that blocks run, where masks leave some out.
        shared: blocks that read operands once, where several do together.
    """
    run = run or Run(np.ones(len(columns)), waves(summary, target, columns))
    once, again = traffic(summary, shared or columns, run.part)
    n_blocks = blocks(summary, columns)
    rate = target.memories[0].bytes_per_s
    vector = flops(summary.vector, summary, columns, run.part) / target.vector_flops_per_s
    shared_rate = rate * target.figure("l2_over_memory")
    busy = np.minimum(1.0, n_blocks * target.figure("copy_unit_bytes_per_s") / shared_rate)
    streaming = np.minimum(1.0, n_blocks * target.figure("unit_bandwidth"))
    # What crosses memory crosses the cache that all units share, beside what that gives again.
    memory = np.maximum(once / rate / streaming, (once + again) / shared_rate / busy)
    compute = np.maximum(matrix, vector) * run.busiest
    exposed = target.figure("exposed") * np.minimum(memory, matrix + vector)
    columns.time_s = target.launch_s + np.maximum(memory, compute) + exposed
    columns.costs = {
        "gmem_bytes": once, "reread_bytes": again, "matrix_s": matrix, "vector_s": vector,
        "memory_s": memory, "blocks": n_blocks,
    }  # fmt: skip


def _check(sides: Matrices, tiles: Tiles, target: Target, columns: Columns) -> None:
    """Whole instructions, clusters of tiles that are there, and what they take of the machine.

    Operand stages and staged results in shared memory, accumulators in registers.
    """
    summary, chosen, table = sides.summary, columns.extra, tiles.table
    columns.reject(table.uneven, "tiles of parts of instructions")
    lost = (not summary.has("p")) & (chosen["m"] < sides.there[0])
    columns.reject(lost, "tiles of fewer rows than a block has")
    for side, of, other in (("rows", "m", "n"), ("cols", "n", "m")):
        n, there = chosen[f"cluster_{side}"], sides.there[side == "cols"]
        lone = (np.ceil(there / chosen[of]) < n) | (chosen[other] % (PART_ROWS * n) > 0)
        columns.reject((n > 1) & lone, "clusters of fewer tiles, or of parts of operand tiles")
    tile = chosen["m"] * chosen["n"]
    accumulators = tile * len(summary.products)
    smem = tiles.ring + chosen["staging"] * table.panel_bytes + SMEM_SLACK
    limit = target.memory("smem").n_bytes
    columns.costs |= {
        "smem_bytes": smem, "register_bytes": accumulators * DTYPES["f32"].itemsize
    }  # fmt: skip
    columns.reject(smem > limit, f"tiles exceed smem {limit} B")
    threads = GROUP_THREADS * chosen["consumers"]
    held = accumulators / threads
    # Of what the epilogue takes a panel's columns at least are held.
    wide = PANEL_BYTES // summary.stores[0].itemsize
    held = held + summary.n_positions * column_words(wide, DTYPES["i32"].itemsize)
    for access in summary.loads:
        if not access.feeds_product and "q" in access.letters:
            rows = chosen["m"] / chosen["consumers"]
            held = held + (
                tile_words(rows, wide, access.itemsize)
                if "p" in access.letters
                else column_words(wide, access.itemsize)
            )
    columns.reject(
        held > MOST_HELD,
        f"accumulators and a panel's operands exceed {MOST_HELD} registers of a thread",
    )
    columns.reject(
        instructions(tile / threads * summary.cells) > MOST_INSTRUCTIONS,
        f"cells of a thread exceed {MOST_INSTRUCTIONS} instructions",
    )
