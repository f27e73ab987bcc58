"""Cost model of products from tile memory: the pace of copies, matrix units and stored results.

Candidates are all tiles that a target offers for its rows, one table for a product; what a kernel
is written by is all in it. The terms follow the kernel of `schedules.gemm`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from math import gcd, prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from axe_eq.program.types import DTYPES
from axe_eq.schedule.box import TILE_LETTERS, UNIT_LETTERS
from axe_eq.schedule.summary import (
    ANY_ALIGNMENT,
    Access,
    Column,
    Columns,
    Reductions,
    Summary,
    flops,
    grid_of,
    joined,
)
from axe_eq.target import Target
from axe_eq_backends.cuda.cost import (
    LINE_BYTES,
    no_rows,
    not_as_they_lie,
    not_strided,
    padded,
    pieces,
    roofline,
    tile_rows,
    waves,
)
from axe_eq_backends.cuda.schedules.gemm import (
    BULK_BYTES,
    CORE_COLS,
    GROUP_THREADS,
    MOST_HELD,
    PANEL_BYTES,
    SMEM_SLACK,
    column_words,
    tile_words,
)
from axe_eq_backends.cuda.schedules.ragged import PERIOD_ROWS, part_rows
from axe_eq_backends.cuda.schedules.tensors import power_of_two_from
from axe_eq_backends.cuda.schedules.tiles import panel_width, staged_panels
from axe_eq_backends.cuda.sides import Matrices, as_matrices
from axe_eq_backends.cuda.sizes import MOST_INSTRUCTIONS, begins_early, instructions

Mask = npt.NDArray[np.bool_]
MOST_COLS, MOST_FEW = 256, 512  # of a tile, and of a result that one or two tiles cover
# Warpgroups that multiply, at most, and the rows each takes at least; the narrowest tile, and step.
CONSUMERS, WARPGROUP_ROWS, LEAST_COLS, LEAST_DEPTH = 2, 64, 64, 16
OF_RANKS = 16  # registers of a thread
LANES_OF_UNIT = 128


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
        return no_rows(target, missing) if missing else None

    def price(self, summary: Summary, target: Target) -> Columns:
        """One table over all rows and tiles; what a kernel is written by is all in it."""
        found, turned = [_priced(as_matrices(summary), target)], as_matrices(summary, turned=True)
        if _of_lines(turned) and _fitted(turned, target):
            found.append(_priced(turned, target))
        return joined(found)


def _of_lines(sides: Matrices) -> bool:
    """Whether bulk copies store tiles of any columns in eights: results lie in lines of a side."""
    (store,) = sides.summary.stores
    return store.fast in TILE_LETTERS and store.aligned % BULK_BYTES == 0


def _fitted(sides: Matrices, target: Target) -> tuple[tuple[int, int], ...]:
    """Rows and columns of tiles that cover the result in one or two waves with the least columns.

    Tiles have 64 rows or a multiple, columns in eights. So of 73 rows that are columns here 80 are
    multiplied, and each weight is read once; and units have all alike to do where tiles of round
    sizes leave some of them idle. Columns that lie side by side are copied in lines.
    """
    summary, (rows, cols) = sides.summary, sides.there
    itemsize = max(DTYPES[t].itemsize for t in summary.products[0].dtypes)
    lines = any("q" in a.letters and _along_side(a) for a in summary.loads if a.feeds_product)
    step = PANEL_BYTES // itemsize if lines else CORE_COLS
    batches = prod(summary.extent(x) for x in UNIT_LETTERS if summary.has(x))
    splits = [n for n in target.sizes("product_split") if n > 1]
    waves = target.sizes("product_waves")
    if not (waves and summary.has("p") and summary.has("q")):
        return ()
    found = dict[tuple[int, int], None]()
    for m in target.sizes("product_rows"):
        across = -(-rows // m) * batches
        parts = {n * target.n_units // across for n in waves}
        for part in sorted(parts | {1, 2} if cols <= MOST_FEW else parts):
            fitting = -(-cols // max(part, 1))
            steps = [step, *(CORE_COLS * n for n in splits if part <= 2 and cols <= MOST_FEW)]
            wide = [-(-fitting // s) * s for s in steps]
            found.update(dict.fromkeys((m, n) for n in wide if part and n <= MOST_COLS))
    return tuple(found)


def _priced(sides: Matrices, target: Target) -> Columns:
    """The candidates of a cone by these sides."""
    summary = sides.summary
    named = sides.whole, sides.turned, _of_lines(sides)
    tiles = _tiles(_alone(summary), *named, Machine(target))
    columns = Columns(tiles.block, dict(tiles.chosen), tiles.table.names, exact=True)
    roofline(summary, target, columns, tiles.matrix, shared=_of_clusters(columns))
    _pace(tiles, summary.cells, target, columns)
    apart = sum(a.n_bytes / a.itemsize for a in summary.stores if a.fast in UNIT_LETTERS)
    columns.time_s = columns.time_s + apart * target.figure("apart_store_s")
    _check(sides, tiles, columns)
    return sides.named(columns)


class Table(NamedTuple):
    """Tiles of a target's rows, whatever product they are of; see `gemm.PARAMETERS`.

    Attributes:
        chosen: parameters but the band and the stages, by name.
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
    tiles: tuple[tuple[int, int, int], ...],
    clusters: tuple[int, ...],
    splits: tuple[int, ...],
    depth: int,
    itemsize: int,
    turned: bool,
) -> Table:
    """All combinations.

    Args:
        rows: (name, operations a second, rows and columns that a tile has a multiple of).
        tiles: rows and columns, and panels in shared memory at most.
        clusters: CTAs of one that share operands.
        splits: CTAs of one that take parts of a tile's steps.
        depth: of a step.
        itemsize: bytes of an element of the result.
        turned: as in `Matrices`.
    """
    ways = [w for n in clusters for w in dict.fromkeys(((n, 1, 1), (1, n, 1)))]
    ways += [(1, 1, n) for n in splits if n > 1]
    at, tile, way = grid_of(range(len(rows)), range(len(tiles)), range(len(ways)))
    m, n, most = np.array(tiles, float)[tile.astype(int)].T
    names, rates, *steps = zip(*rows, strict=True)
    row, (m_step, n_step) = at.astype(int), np.array(steps)
    shared = np.array(ways, float)[way.astype(int)]
    own = np.maximum(n // shared[:, 2], 1)  # columns that a CTA stores
    wide = panel_columns(own, itemsize, turned)
    # One takes an odd number of parts alone: nothing was gained by three of them.
    consumers = np.where(m % (CONSUMERS * WARPGROUP_ROWS) == 0, CONSUMERS, 1)
    panels = np.ceil(own / wide)
    pairs = zip(panels.astype(int).tolist(), most.astype(int).tolist(), strict=True)
    staging = np.array([float(staged_panels(*pair)) for pair in pairs])
    chosen = {
        "m": m, "n": n, "k": np.full(len(m), float(depth)),
        "consumers": consumers, "staging": staging, "cluster_rows": shared[:, 0],
        "cluster_cols": shared[:, 1], "split": shared[:, 2],
        "turned": np.full(len(m), float(turned)),
    }  # fmt: skip
    uneven = (m % (m_step[row] * consumers) + n % (CORE_COLS * shared[:, 2]) + n % n_step[row]) > 0
    made = tuple(names[r] for r in row.tolist())
    return Table(chosen, made, np.array(rates)[row], uneven, panels, m * wide * itemsize)


def _offered(sides: Matrices, lines: bool, target: Target) -> Table:
    """What the target offers for a product, and what fits it where results lie in `lines`.

    A tile has the columns that are there where no letter cuts them, and steps of a panel's width.
    Of sides that are turned there are those that fit alone.
    """
    (store,), work = sides.summary.stores, sides.summary.products[0]
    rows = [
        (r.name, r.flops_per_s, r.shape[0], r.limits.get("n_step", r.shape[1]))
        for r in tile_rows(target, work.dtype)
    ]
    sizes = [target.sizes(f"product_{name}") for name in ("rows", "cols", "panels")]
    if not sides.summary.has("q"):
        sizes[1] = (-(-sides.there[1] // LEAST_COLS) * LEAST_COLS,)
    tiles = [] if sides.turned else [*product(*sizes)]
    if lines:
        tiles += [(m, n, 1) for m, n in _fitted(sides, target)]
    deepest = max(LEAST_DEPTH, power_of_two_from(prod(work.reduced)))
    depth = min(PANEL_BYTES // DTYPES[work.dtype].itemsize, deepest)
    ways = (target.sizes(f"product_{name}") for name in ("cluster", "split"))
    return _table(
        tuple(rows), tuple(dict.fromkeys(tiles)), *ways, depth, store.itemsize, sides.turned
    )


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
        busiest: work of the busiest unit over the average, for matrix units and for cells.
        waits: seconds that units wait for copies or multiply, one step after the other.
        stored: seconds in which those that multiply store.
        shared: seconds of the cache that all units share.
        begin, late: seconds until a unit multiplies, and for kernels that begin late.
        rounds: tiles of the busiest unit.
        smem: bytes of shared memory.
        lost, rejected: tiles that do not fit, and why, with their numbers.
    """

    table: Table
    block: dict[str, Column]
    chosen: dict[str, Column]
    matrix: Column
    busiest: tuple[Column, Column]
    waits: Column
    stored: Column
    shared: Column
    begin: Column
    late: Column
    rounds: Column
    smem: Column
    lost: Mask
    rejected: dict[str, int]


def _alone(summary: Summary) -> Summary:
    """A product without what is computed beside it: searches price one with many epilogues."""
    fed = tuple(a._replace(passes=1) for a in summary.loads if a.feeds_product)
    stores = tuple(a._replace(fast="", aligned=ANY_ALIGNMENT) for a in summary.stores)
    return Summary(summary.extents, fed, stores, summary.products, (), (), (), n_nodes=0)


@lru_cache(maxsize=256)
def _tiles(
    summary: Summary, whole: tuple[int, int], turned: bool, lines: bool, machine: Machine
) -> Tiles:
    """The tiles of a product that is `_alone`; `whole` and `turned` as in `Matrices`.

    A unit's step takes what it copies, a copy's latency over the slots, or its products at the rate
    that a cool machine has for microseconds; all units together take what crosses the cache that
    they share, in whole lines.
    """
    sides, target = Matrices(summary, {}, whole, turned), machine.target
    table = _offered(sides, lines, target)
    figure, chosen = target.figure, dict(table.chosen)
    block = {"p": chosen["m"], "q": chosen["n"], "k": chosen["k"], "s": chosen["k"]}
    columns = Columns(block, chosen, table.names, exact=True)
    chosen["band"] = _band(sides, columns, target)
    beside, slot = _beside_the_ring(sides, table, columns), _stage_bytes(sides, columns)
    chosen["stages"] = _deepest((target.memory("smem").n_bytes - beside) / slot, target)
    crossing = _smem_traffic(summary, target, columns)
    peak = table.rate * _of_forms(sides, columns, target)
    rate = peak / crossing ** figure("smem_exponent")
    wasted = padded(sides.there[0], chosen["m"] * chosen["cluster_rows"])
    wasted = wasted * padded(sides.there[1], chosen["n"] * chosen["cluster_cols"])
    matrix = flops(summary.products, summary, columns) / rate * wasted
    matrix = matrix * _losses(table, target, columns)
    burst = peak * figure("burst_over_rate") / crossing ** figure("burst_exponent")
    split, n_blocks = chosen["split"], pieces(summary, columns) * _whole_clusters(sides, chosen)
    of_cluster = chosen["cluster_rows"] * chosen["cluster_cols"]
    steps = np.ceil(np.ceil(prod(summary.products[0].reduced) / chosen["k"]) / split)
    rounds = np.ceil(n_blocks / _units(target, split * of_cluster))
    flowing = _stage_bytes(sides, columns, of="rows") / figure("tile_unit_bytes_per_s")
    copied = (figure("copy_latency_s") + flowing) / (chosen["stages"] - 1)
    work = chosen["m"] * chosen["n"] * chosen["k"] * 2.0 * len(summary.products)
    multiplied, power = work * target.n_units / burst, figure("overlap_power")
    waits = rounds * steps * _together(power, np.maximum(copied, flowing), multiplied)
    lines = _stage_bytes(sides, columns, of="lines", clusters=True)
    per_s = target.memories[0].bytes_per_s * figure("copies_over_memory")
    # A row's rate is what all units have power for: where some have nothing to do others have more.
    busiest = waves(summary, target, columns)
    idle = n_blocks < target.n_units
    # Those that multiply store, panel by panel: a unit's tiles and results are one after the other.
    (store,) = summary.stores
    own = chosen["n"] / split
    panels = np.ceil(own / panel_columns(own, store.itemsize, turned))
    stored = chosen["m"] * (chosen["n"] / split) * store.itemsize / figure("store_unit_bytes_per_s")
    # CTAs that share a tile's steps wait for each other, and fetch sums.
    sums = chosen["m"] * chosen["n"] * DTYPES["f32"].itemsize * len(summary.products)
    added = figure("add_sums_s") + sums / figure("add_sums_bytes_per_s")
    once = figure("product_begin_s")
    begin = np.where(split > 1, (once + added) * rounds, once)  # tiles are one after the other
    begin = begin + np.where(of_cluster > 1, figure("cluster_begin_s"), 0.0)
    late = np.where(begins_early(n_blocks, target.n_units), 0.0, figure("late_s"))
    smem, columns.time_s = slot * chosen["stages"] + beside, np.zeros(len(columns))
    _fit(sides, table.uneven, smem, target, columns)
    return Tiles(
        table, block, chosen, matrix, (np.where(idle, 1.0, busiest), busiest), waits,
        rounds * (stored + panels * figure("store_panel_s")), n_blocks * steps * lines / per_s,
        begin, late, rounds, smem, np.isinf(columns.time_s), columns.rejected,
    )  # fmt: skip


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


def _in_step(target: Target, columns: Columns) -> Column:
    """How much longer CTAs take that wait for each other because they share operand tiles."""
    of_cluster = columns.extra["cluster_rows"] * columns.extra["cluster_cols"]
    return np.asarray(1 + target.figure("cluster") * np.log2(of_cluster))


def _losses(table: Table, target: Target, columns: Columns) -> Column:
    """Of shallow pipelines and clusters: few stages or short chunks expose the latency of loads."""
    part, figure = columns.extra["staging"] / table.panels, target.figure
    in_turns = figure("panels_in_turns") + figure("fewer_panels") * (1 - part)
    return (
        1
        + figure("short_chunk") / columns.extra["k"]
        + figure("few_stages") / (columns.extra["stages"] - 1)
        + _in_step(target, columns)
        - 1
        + np.where(part < 1, in_turns, 0.0)
    )


def _pace(tiles: Tiles, cells: float, target: Target, columns: Columns) -> None:
    """The time of products: what matrix units take of them, else the pace of their copies.

    Units that wait, the cache that they share and main memory: none of these hides the others
    whole, so powers of them add up.

    Args:
        tiles: those of the product.
        cells: operations of an element of the result.
        target: the machine.
        columns: its candidates, with their rooflines.
    """
    figure, costs = target.figure, columns.costs
    power = figure("overlap_power")
    read = costs["gmem_bytes"] / target.memories[0].bytes_per_s * _in_step(target, columns)
    matrix, vector = costs["matrix_s"], costs["vector_s"]
    computed = np.maximum(matrix * tiles.busiest[0], vector * tiles.busiest[1])
    computed = computed + figure("exposed") * np.minimum(costs["memory_s"], matrix + vector)
    paced = _together(power, tiles.waits + tiles.stored, tiles.shared, read)
    columns.time_s = target.launch_s + np.maximum(computed, paced) + tiles.begin + tiles.late
    columns.time_s = columns.time_s + _of_cells(tiles, cells, target)
    costs |= {"waits_s": tiles.waits, "latency_s": tiles.begin}
    costs["memory_s"] = _together(power, tiles.shared, read)


def _of_cells(tiles: Tiles, cells: float, target: Target) -> Column:
    """Seconds of what follows products, by those that multiply: they do nothing else meanwhile.

    All of a thread's elements are written out, so the first tile's are read from cold caches.
    """
    chosen = tiles.chosen
    threads = GROUP_THREADS * chosen["consumers"]
    written = instructions(chosen["m"] * chosen["n"] / chosen["split"] / threads * cells)
    issue = chosen["consumers"] * target.n_units * 2 * LANES_OF_UNIT / target.vector_flops_per_s
    return np.asarray(written * (tiles.rounds * issue + target.figure("cold_instruction_s")))


def _together(power: float, *parts: Column) -> Column:
    """What takes times that hide each other, but not whole."""
    return np.asarray(sum(part**power for part in parts) ** (1 / power))


def panel_columns(cols: Column, itemsize: int, turned: bool = False) -> Column:
    """Columns of results that are stored at once, of tiles that have so many."""
    return _of_each(np.asarray(cols), lambda n: panel_width(n, itemsize, int(not turned)))


def _of_each(column: Column, of: Callable[[int], float]) -> Column:
    """A function of every entry of a column of few whole numbers."""
    several, at = np.unique(column.astype(int), return_inverse=True)
    return np.array([of(n) for n in several.tolist()])[at]


def _whole_clusters(sides: Matrices, chosen: Mapping[str, Column]) -> Column:
    """Tiles of whole clusters over those that are there."""
    return np.asarray(prod(
        np.ceil(np.ceil(there / chosen[of]) / chosen[n]) * chosen[n] / np.ceil(there / chosen[of])
        for there, of, n in zip(sides.there, "mn", ("cluster_rows", "cluster_cols"), strict=True)
    ))  # fmt: skip


def _stage_bytes(sides: Matrices, columns: Columns, of: str = "", clusters: bool = False) -> Column:
    """Bytes of a slot of the ring.

    Args:
        sides: the product.
        columns: its candidates.
        of: "rows": those that are copied, each row of a box as if it were as long as a swizzle's
            widest, for copies take as long for shorter ones; "lines": those of the whole lines of
            memory that copies touch.
        clusters: of all CTAs of a cluster, over their number.
    """
    summary, total, depth = sides.summary, np.zeros(len(columns)), columns.extra["k"]
    shared = _of_clusters(columns).block if clusters else columns.block
    for access in summary.loads:
        if access.feeds_product:
            of_rows = "p" in access.letters or not (summary.has("p") or "q" in access.letters)
            letter, own = ("p", columns.extra["m"]) if of_rows else ("q", columns.extra["n"])
            side = shared[letter]
            if of_rows and of:
                rows = -(-sides.there[0] // PERIOD_ROWS) * PERIOD_ROWS
                side = np.minimum(side, rows)
            # Bytes of a tile that are one run in memory.
            run = (own if _along_side(access) else depth) * access.itemsize
            n_bytes = side * depth * access.itemsize
            wide = np.gcd(run.astype(int), PANEL_BYTES)  # of a box, whose lines no other one has
            if of == "rows":
                n_bytes = n_bytes * PANEL_BYTES / wide
            elif of == "lines":
                inside = 1 - gcd(access.aligned, LINE_BYTES) / LINE_BYTES
                n_bytes = n_bytes * (1 + inside * LINE_BYTES / wide)
            total = total + n_bytes
    ctas = columns.extra["cluster_rows"] * columns.extra["cluster_cols"] if clusters else 1.0
    return np.asarray(total / ctas)


def _along_side(access: Access) -> bool:
    """Whether an operand is contiguous along its rows or columns, not along the reduced dim."""
    return access.fast in TILE_LETTERS


def _of_forms(sides: Matrices, columns: Columns, target: Target) -> Column:
    """The part of a row's rate that tiles have by the widths that they lie in in shared memory."""
    (row, *_), found = tile_rows(target, sides.summary.products[0].dtype), np.ones(len(columns))
    for access in sides.summary.loads:
        if access.feeds_product and _along_side(access):
            side = columns.extra["m" if "p" in access.letters else "n"].astype(int)
            widths = np.gcd(side * access.itemsize, PANEL_BYTES)
            part = _of_each(widths, lambda w: row.efficiency.get(f"MN {w}B", 1.0))
            found = np.minimum(found, part)
    return found


def _units(target: Target, cluster: Column) -> Column:
    """Units that clusters of so many CTAs run on, one of each: those of a machine's groups."""
    found = _of_each(
        cluster, lambda n: target.figure(f"units_in_clusters.{n}") if n > 1 else target.n_units
    )
    return np.minimum(found, target.n_units)


def _beside_the_ring(sides: Matrices, table: Table, columns: Columns) -> Column:
    """Bytes of shared memory that no operand takes: staged results, and sums that others fetch."""
    chosen = columns.extra
    sums = chosen["m"] * chosen["n"] * len(sides.summary.products) * DTYPES["f32"].itemsize
    fetched = np.where(chosen["split"] > 1, sums, 0)
    return np.asarray(chosen["staging"] * table.panel_bytes + fetched + SMEM_SLACK)


def _deepest(fitting: Column, target: Target) -> Column:
    """Stages, as many as a target offers and memory holds, for more never take longer."""
    offered = np.array(sorted(target.sizes("product_stages")), float)
    number = np.searchsorted(offered, fitting, side="right") - 1
    return np.asarray(offered[np.maximum(number, 0)])


def _fit(sides: Matrices, uneven: Mask, smem: Column, target: Target, columns: Columns) -> None:
    """Whole instructions, clusters of tiles that are there, and stages that memory holds."""
    summary, chosen = sides.summary, columns.extra
    columns.reject(uneven, "tiles of parts of instructions")
    lost = (not summary.has("p")) & (chosen["m"] < sides.there[0])
    columns.reject(lost, "tiles of fewer rows than a block has")
    for side, of, other in (("rows", "m", "n"), ("cols", "n", "m")):
        n, there = chosen[f"cluster_{side}"], sides.there[side == "cols"]
        letter = TILE_LETTERS[side == "rows"]  # of the operands that a cluster shares
        fed = [a for a in summary.loads if a.feeds_product and letter in a.letters]
        part = part_rows(not _along_side(a) for a in fed)
        lone = (np.ceil(there / chosen[of]) < n) | (chosen[other] % (part * n) > 0)
        columns.reject((n > 1) & lone, "clusters of fewer tiles, or of parts of operand tiles")
        # Copies of what lies past an operand's end are slow, and all CTAs wait for them.
        last = sides.there[side == "rows"] % chosen[other]
        beyond = (last > 0) & (last <= chosen[other] * (n - 1) / n)
        columns.reject((n > 1) & beyond, "parts of operand tiles past their end")
    steps = np.ceil(prod(summary.products[0].reduced) / chosen["k"])
    columns.reject(chosen["split"] > steps, "parts of fewer steps than one")
    limit = target.memory("smem").n_bytes
    columns.reject(smem > limit, f"tiles exceed smem {limit} B")


def _check(sides: Matrices, tiles: Tiles, columns: Columns) -> None:
    """What does not fit, and registers: accumulators and what is computed beside products."""
    summary, chosen = sides.summary, columns.extra
    columns.time_s = np.where(tiles.lost, np.inf, columns.time_s)
    columns.rejected = dict(tiles.rejected)
    tile = chosen["m"] * chosen["n"]
    accumulators = tile * len(summary.products)
    columns.costs |= {
        "smem_bytes": tiles.smem, "register_bytes": accumulators * DTYPES["f32"].itemsize
    }  # fmt: skip
    threads = GROUP_THREADS * chosen["consumers"]
    held = accumulators / threads
    # Of what the epilogue takes a panel's columns at least are held.
    itemsize = summary.stores[0].itemsize
    wide = panel_columns(chosen["n"] / chosen["split"], itemsize, sides.turned)
    wide = np.maximum(wide, PANEL_BYTES // itemsize)
    held = held + summary.n_positions * column_words(wide, DTYPES["i32"].itemsize)
    beside = (a for a in summary.loads if not a.feeds_product and "q" in a.letters)
    for (of_rows, size), number in Counter(("p" in a.letters, a.itemsize) for a in beside).items():
        rows = chosen["m"] / chosen["consumers"]
        words = tile_words(rows, wide, size) if of_rows else column_words(wide, size)
        held = held + number * words
    # Ranks take some too: 200 beside them spill, as compiled.
    clusters = chosen["cluster_rows"] * chosen["cluster_cols"] * chosen["split"] > 1
    columns.reject(
        held > MOST_HELD - np.where(clusters, OF_RANKS, 0),
        f"accumulators and a panel's operands exceed {MOST_HELD} registers of a thread",
    )
    columns.reject(
        instructions(tile / threads * summary.cells) > MOST_INSTRUCTIONS,
        f"cells of a thread exceed {MOST_INSTRUCTIONS} instructions",
    )
