"""Cost model of products from tile memory: the pace of copies, matrix units and stored results.

Candidates are all tiles that a target offers for its rows, one table for a product; what a kernel
is written by is all in it. The terms follow the kernel of `schedules.gemm`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from math import gcd, prod
from typing import NamedTuple

import numpy as np

from axe_eq.program.types import DTYPES
from axe_eq.schedule.box import TILE_LETTERS, UNIT_LETTERS
from axe_eq.schedule.graph import KernelStep
from axe_eq.schedule.summary import (
    ANY_ALIGNMENT,
    Access,
    Column,
    Columns,
    Reductions,
    Summary,
    flops,
    joined,
)
from axe_eq.target import Target
from axe_eq_backends.cuda import merging
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
from axe_eq_backends.cuda.lane_price import floor_s
from axe_eq_backends.cuda.schedules.gemm import (
    BESIDE,
    GROUP_THREADS,
    MOST_SUMS,
    PANEL_BYTES,
    SMEM_SLACK,
    column_words,
    most_held,
    tile_words,
)
from axe_eq_backends.cuda.schedules.ragged import PART_ROWS, PERIOD_ROWS
from axe_eq_backends.cuda.sides import Matrices, as_matrices
from axe_eq_backends.cuda.sizes import MOST_INSTRUCTIONS, begins_early, instructions
from axe_eq_backends.cuda.tile_table import (
    WARPGROUP_ROWS,
    Mask,
    Table,
    along_side,
    bands,
    fitted,
    of_each,
    of_lines,
    offered,
)

OF_RANKS, OF_SIDES, OF_COLUMNS = 16, 8, 32  # registers of a thread
LANES_OF_UNIT = 128
WIDE, OF_FUNCTIONS = 4, 3  # bytes that functions compute in, and operations of cells with some


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
        if of_lines(turned) and fitted(turned, target):
            found.append(_priced(turned, target))
        return joined(found)

    def merging(self, step: KernelStep, target: Target) -> float:
        """Seconds of a kernel whose result memory merges, see `axe_eq.schedule.merging`."""
        return merging.seconds(step, target)


def _priced(sides: Matrices, target: Target) -> Columns:
    """The candidates of a cone by these sides."""
    summary = sides.summary
    named = sides.whole, sides.turned, of_lines(sides)
    tiles = _tiles(_alone(summary), *named, Machine(target))
    columns = Columns(tiles.block, dict(tiles.chosen), tiles.table.names, exact=True)
    roofline(summary, target, columns, tiles.matrix, shared=_of_clusters(columns))
    _pace(tiles, sides, target, columns)
    apart = sum(a.n_bytes / a.itemsize for a in summary.stores if a.fast in UNIT_LETTERS)
    columns.time_s = columns.time_s + apart * target.figure("apart_store_s")
    _check(sides, tiles, columns)
    return sides.named(columns)


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
        busiest: work of the busiest unit over the average.
        waits: seconds that units wait for copies or multiply, one step after the other.
        stored: seconds in which those that multiply store.
        shared: seconds of the cache that all units share.
        begin, late: seconds until a unit multiplies, and for kernels that begin late.
        parts: tiles that the busiest unit stores, or parts of their columns.
        wide: columns of a panel that is stored at once.
        smem: bytes of shared memory.
        lost, rejected: tiles that do not fit, and why, with their numbers.
    """

    table: Table
    block: dict[str, Column]
    chosen: dict[str, Column]
    matrix: Column
    busiest: Column
    waits: Column
    stored: Column
    shared: Column
    begin: Column
    late: Column
    parts: Column
    wide: Column
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
    summary: Summary, whole: tuple[int, int], turned: bool, in_lines: bool, machine: Machine
) -> Tiles:
    """The tiles of a product that is `_alone`; `whole` and `turned` as in `Matrices`.

    A unit's step takes what it copies, a copy's latency over the slots, or its products at the rate
    that a cool machine has for microseconds; all units together take what crosses the cache that
    they share, in whole lines.
    """
    sides, target = Matrices(summary, {}, whole, turned), machine.target
    table = offered(sides, in_lines, target)
    figure, chosen = target.figure, dict(table.chosen)
    block = {"p": chosen["m"], "q": chosen["n"], "k": chosen["k"], "s": chosen["k"]}
    columns = Columns(block, chosen, table.names, exact=True)
    chosen["band"] = bands(sides, chosen, target)
    beside, slot = _beside_the_ring(sides, table, columns), _stage_bytes(sides, columns, target)
    chosen["stages"] = _deepest((target.memory("smem").n_bytes - beside) / slot, target)
    crossing = _smem_traffic(summary, target, columns)
    peak = table.rate * _of_forms(sides, columns, target)
    rate = peak / crossing ** figure("smem_exponent")
    wasted = padded(sides.there[0], chosen["m"] * chosen["cluster_rows"])
    wasted = wasted * padded(sides.there[1], chosen["n"] * chosen["cluster_cols"])
    matrix = flops(summary.products, summary, columns) / rate * wasted
    matrix = matrix * _losses(table, target, columns)
    burst = peak * figure("burst_over_rate") / crossing ** figure("burst_exponent")
    split, rest = chosen["split"], chosen["rest"] > 0
    n_blocks = pieces(summary, columns) * _whole_clusters(sides, chosen)
    of_cluster = chosen["cluster_rows"] * chosen["cluster_cols"]
    all_steps = np.ceil(prod(summary.products[0].reduced) / chosen["k"])
    steps = np.ceil(all_steps / split)
    alone, rounds = _rounds(n_blocks, _units(target, split * of_cluster), chosen)
    parts = alone * split + rounds  # of a tile's columns that a unit stores
    flowing = _stage_bytes(sides, columns, target, of="rows") / figure("tile_unit_bytes_per_s")
    copied = (figure("copy_latency_s") + flowing) / (chosen["stages"] - 1)
    work = chosen["m"] * chosen["n"] * chosen["k"] * 2.0 * len(summary.products)
    multiplied, power = work * target.n_units / burst, figure("overlap_power")
    step = _together(power, np.maximum(copied, flowing), multiplied)
    waits = (alone * all_steps + rounds * steps) * step * (1 + rest * figure("shared_rest"))
    lines = _stage_bytes(sides, columns, target, of="lines", clusters=True)
    per_s = target.memories[0].bytes_per_s * figure("copies_over_memory")
    # Those that multiply store, panel by panel: a unit's tiles and results are one after the other.
    (store,) = summary.stores
    stored = chosen["m"] * (chosen["n"] / split) * store.itemsize / figure("store_unit_bytes_per_s")
    # CTAs that share a tile's steps wait for each other, and fetch sums.
    sums = chosen["m"] * chosen["n"] * DTYPES["f32"].itemsize * len(summary.products)
    added = figure("add_sums_s") + split * figure("add_part_s")
    added = added + sums / figure("add_sums_bytes_per_s")
    once = figure("product_begin_s")
    once = once + floor_s(target, sum(a.n_bytes for a in (*summary.loads, store)))
    # Tiles that CTAs share are one after the other.
    begin = np.where(split > 1, added * rounds + once * np.where(rest, 1.0, rounds), once)
    begin = begin + np.where(of_cluster > 1, figure("cluster_begin_s"), 0.0)
    # What lies past an operand's end comes slower than what is there, to all units together.
    past = _past_the_end(sides, columns) / figure("fill_bytes_per_s")
    shared = n_blocks * np.where(rest, all_steps, steps) * _together(power, lines / per_s, past)
    late = np.where(begins_early(n_blocks, target.n_units), 0.0, figure("late_s"))
    smem, columns.time_s = slot * chosen["stages"] + beside, np.zeros(len(columns))
    unfit = (rounds != 1) | (len(summary.products) > 1)
    columns.reject(rest & unfit, "tiles that fill waves, or more parts of the others than units")
    room = slot * chosen["stages"]
    columns.reject(rest & (sums > room), "sums that exceed the place of operands")
    _fit(sides, table.uneven, smem, target, columns)
    return Tiles(
        table, block, chosen, matrix, waves(summary, target, columns), waits,
        parts * (stored + table.panels * figure("store_panel_s")),
        shared, begin, late, parts, table.wide, smem, np.isinf(columns.time_s), columns.rejected,
    )  # fmt: skip


def _rounds(n_blocks: Column, units: Column, chosen: Mapping[str, Column]) -> tuple[Column, Column]:
    """Tiles that the busiest unit has alone where it shares the rest, and those that it shares.

    Where nothing or every tile is shared they are all of the second kind.
    """
    rest = chosen["rest"] > 0
    alone = np.where(rest, np.floor(n_blocks / units), 0.0)
    left = n_blocks - alone * units
    return alone, np.ceil(left * np.where(rest, chosen["split"], 1.0) / units)


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

    def moved(
        m: Column | float, cols: Column | float, rows: Column | float, across: Column | float
    ) -> Column | float:
        again = 2 + target.figure("read_beside") * (across - 1)  # of rows, by consumers beside
        return (rows * again + cols * (1 + m / WARPGROUP_ROWS)) / (m * cols)

    m, cols = columns.extra["m"], columns.extra["n"] * len(summary.products)
    across = columns.extra["across"]
    rows = m * max(sum("p" in a.letters for a in summary.loads if a.feeds_product), 1)
    full_m, full_n = (target.figure(f"full_tile_{side}") for side in ("rows", "cols"))
    return np.asarray(
        np.maximum(moved(m, cols, rows, across) / moved(full_m, full_n, full_m, 1), 1.0)
    )


def _in_step(target: Target, columns: Columns) -> Column:
    """How much longer CTAs take that wait for each other because they share operand tiles."""
    of_cluster = columns.extra["cluster_rows"] * columns.extra["cluster_cols"]
    return np.asarray(1 + target.figure("cluster") * np.log2(of_cluster))


def _losses(table: Table, target: Target, columns: Columns) -> Column:
    """Of shallow pipelines and clusters: few stages or short chunks expose the latency of loads."""
    chosen, figure = columns.extra, target.figure
    part = chosen["staging"] / table.panels
    part = part / np.where(chosen["rest"] > 0, chosen["split"], 1)
    in_turns = figure("panels_in_turns") + figure("fewer_panels") * (1 - part)
    return np.asarray(
        1
        + figure("short_chunk") / columns.extra["k"]
        + figure("few_stages") / (columns.extra["stages"] - 1)
        + _in_step(target, columns)
        - 1
        + (chosen["rest"] > 0) * figure("shared_rest")
        + (chosen["consumers"] > 2) * figure("third_consumer")
        + (chosen["across"] > 1) * (chosen["m"] / WARPGROUP_ROWS - 1) * figure("rows_beside")
        + np.where(part < 1, in_turns, 0.0)
    )


def _pace(tiles: Tiles, sides: Matrices, target: Target, columns: Columns) -> None:
    """The time of products: what matrix units take of them, else the pace of their copies.

    Units that wait, the cache that they share and main memory: none of these hides the others
    whole, so powers of them add up.

    Args:
        tiles: those of the product.
        sides: the product and what follows it.
        target: the machine.
        columns: its candidates, with their rooflines.
    """
    figure, costs, summary = target.figure, columns.costs, sides.summary
    power = figure("overlap_power")
    slower = _slower_reads(sides, target, columns)
    read = (costs["gmem_bytes"] + slower) / target.memories[0].bytes_per_s
    read = read * _in_step(target, columns)
    matrix, vector = costs["matrix_s"], costs["vector_s"]
    # A row's rate is what all units have power for: where few have something to do they have more.
    few = costs["blocks"] < target.n_units
    idle = np.where(few, figure("few_exposed"), figure("waves_exposed"))
    matrix = matrix * (1 + idle * (tiles.busiest - 1))
    computed = np.maximum(matrix, vector * tiles.busiest)
    computed = computed + figure("exposed") * np.minimum(costs["memory_s"], matrix + vector)
    paced = _together(power, tiles.waits + tiles.stored, tiles.shared, read)
    columns.time_s = target.launch_s + np.maximum(computed, paced) + tiles.begin + tiles.late
    columns.time_s = columns.time_s + _of_cells(tiles, summary.cells, target)
    columns.time_s = columns.time_s + _of_reads(tiles, summary, target)
    costs |= {"waits_s": tiles.waits, "latency_s": tiles.begin}
    costs["memory_s"] = _together(power, tiles.shared, read)


def _slower_reads(sides: Matrices, target: Target, columns: Columns) -> Column:
    """Bytes that reads of operands from main memory are worth beside their own.

    CTAs of a cluster that read apart wait for what memory gives last to any of them, for what they
    share binds their steps together. What several read at once, and share in no cluster, comes
    slower to all of them. So do tiles of an odd number of groups of rows, or of rows below a line.
    """
    chosen, found = columns.extra, np.zeros(len(columns))
    tiles = {of: np.ceil(n / chosen[of]) for of, n in zip("mn", sides.there, strict=True)}
    most = target.figure("most_apart")
    for a in sides.summary.loads:
        if a.feeds_product:
            own, other = ("m", "rows"), ("n", "cols")
            (side, others), (across, sharing) = (own, other) if "p" in a.letters else (other, own)
            more = target.figure("lagging") * np.log2(chosen[f"cluster_{others}"])
            readers = np.ceil(tiles[across] / chosen[f"cluster_{sharing}"])
            more = more + target.figure("read_apart") * np.log2(np.minimum(readers, most))
            if along_side(a):
                lines = chosen[side] * a.itemsize / LINE_BYTES
                more = more + target.figure("short_lines") * np.log2(1 / np.minimum(1.0, lines))
            else:
                more = more + target.figure("odd_rows") * (chosen[side] % (2 * PERIOD_ROWS) > 0)
            found = found + a.n_bytes * more
    return found


def _of_cells(tiles: Tiles, cells: float, target: Target) -> Column:
    """Seconds of what follows products, by those that multiply: they do nothing else meanwhile.

    All of a thread's elements are written out, so the first tile's are read from cold caches.
    """
    chosen = tiles.chosen
    threads = GROUP_THREADS * chosen["consumers"]
    written = instructions(chosen["m"] * chosen["n"] / chosen["split"] / threads * cells)
    issue = chosen["consumers"] * target.n_units * 2 * LANES_OF_UNIT / target.vector_flops_per_s
    # Tiles that are shared and those that are not have instructions of their own.
    texts = np.where(chosen["rest"] > 0, chosen["split"] + 1, 1)
    return np.asarray(written * (tiles.parts * issue + texts * target.figure("cold_instruction_s")))


def _rows(chosen: Mapping[str, Column]) -> Column:
    """Rows of a consumer's part of a tile."""
    return np.asarray(chosen["m"] * chosen["across"] / chosen["consumers"])


def _of_columns(access: Access, summary: Summary) -> bool:
    """Whether what a result takes is another one for every column of a tile."""
    return "q" in access.letters or (access.star > 1 and not summary.has("q"))


def _of_reads(tiles: Tiles, summary: Summary, target: Target) -> Column:
    """Seconds in which those that multiply read what results take whole: panel by panel."""
    chosen, found = tiles.chosen, np.zeros(len(tiles.smem))
    panels = np.ceil(chosen["n"] / chosen["split"] / chosen["across"] / tiles.wide)
    for a in summary.loads:
        if not a.feeds_product and "p" in a.letters and _of_columns(a, summary):
            # A thread reads pairs of neighbours in a row, and those of a column one by one.
            one_by_one = a.fast == "p"
            size, word = (4, "read_across_s") if one_by_one else (a.itemsize, "read_word_s")
            words = tile_words(_rows(chosen), tiles.wide, size)
            each = target.figure("read_panel_s") + words * target.figure(word)
            found = found + tiles.parts * panels * each
    return found


def _together(power: float, *parts: Column) -> Column:
    """What takes times that hide each other, but not whole."""
    return np.asarray(sum(part**power for part in parts) ** (1 / power))


def _whole_clusters(sides: Matrices, chosen: Mapping[str, Column]) -> Column:
    """Tiles of whole clusters over those that are there."""
    return np.asarray(prod(
        np.ceil(np.ceil(there / chosen[of]) / chosen[n]) * chosen[n] / np.ceil(there / chosen[of])
        for there, of, n in zip(sides.there, "mn", ("cluster_rows", "cluster_cols"), strict=True)
    ))  # fmt: skip


def _stage_bytes(
    sides: Matrices, columns: Columns, target: Target, of: str = "", clusters: bool = False
) -> Column:
    """Bytes of a slot of the ring.

    Args:
        sides: the product.
        columns: its candidates.
        target: the machine.
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
            run = (own if along_side(access) else depth) * access.itemsize
            n_bytes = side * depth * access.itemsize
            wide = np.gcd(run.astype(int), PANEL_BYTES)  # of a box, whose lines no other one has
            inside = 1 - gcd(access.aligned, LINE_BYTES) / LINE_BYTES
            if of == "rows":
                n_bytes = n_bytes * PANEL_BYTES / wide
            elif of == "lines":
                more = target.figure(f"lines_along_{'side' if along_side(access) else 'depth'}")
                n_bytes = n_bytes * (1 + more * inside * LINE_BYTES / wide)
            total = total + n_bytes
    ctas = columns.extra["cluster_rows"] * columns.extra["cluster_cols"] if clusters else 1.0
    return np.asarray(total / ctas)


def _past_the_end(sides: Matrices, columns: Columns) -> Column:
    """Bytes of a step past the ends of operands that a CTA asks for, on average.

    Of a last tile of rows lone CTAs copy what is there, of one along a side whole parts (`ragged`).
    """
    chosen, found = columns.extra, np.zeros(len(columns))
    lone = chosen["cluster_rows"] * chosen["cluster_cols"] == 1
    for access in sides.summary.loads:
        if access.feeds_product:
            rows = "p" in access.letters
            there, tile = sides.there[not rows], chosen["m" if rows else "n"]
            step = PART_ROWS if along_side(access) else PERIOD_ROWS
            covered = np.ceil(there / tile) * tile
            copied = np.where(lone, np.minimum(np.ceil(there / step) * step, covered), covered)
            asked = tile * chosen["k"] / chosen["cluster_cols" if rows else "cluster_rows"]
            found = found + (copied - there) / covered * asked * access.itemsize
    return found


def _of_forms(sides: Matrices, columns: Columns, target: Target) -> Column:
    """The part of a row's rate that tiles have by the widths that they lie in in shared memory."""
    (row, *_), found = tile_rows(target, sides.summary.products[0].dtype), np.ones(len(columns))
    for access in sides.summary.loads:
        if access.feeds_product and along_side(access):
            chosen = columns.extra
            side = chosen["m"] if "p" in access.letters else chosen["n"] / chosen["across"]
            side = side.astype(int)
            widths = np.gcd(side * access.itemsize, PANEL_BYTES)
            part = of_each(widths, lambda w: row.efficiency.get(f"MN {w}B", 1.0))
            found = np.minimum(found, part)
    return found


def _units(target: Target, cluster: Column) -> Column:
    """Units that clusters of so many CTAs run on, one of each: those of a machine's groups."""
    found = of_each(
        cluster, lambda n: target.figure(f"units_in_clusters.{n}") if n > 1 else target.n_units
    )
    return np.minimum(found, target.n_units)


def _beside_the_ring(sides: Matrices, table: Table, columns: Columns) -> Column:
    """Bytes of shared memory that no operand takes: staged results, and sums that others fetch."""
    chosen = columns.extra
    sums = chosen["m"] * chosen["n"] * len(sides.summary.products) * DTYPES["f32"].itemsize
    fetched = np.where((chosen["split"] > 1) & (chosen["rest"] == 0), sums, 0)
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
    for side, of in (("rows", "m"), ("cols", "n")):
        n, there = chosen[f"cluster_{side}"], sides.there[side == "cols"]
        letter = TILE_LETTERS[side == "rows"]  # of the operands that a cluster shares
        fed = [a for a in summary.loads if a.feeds_product and letter in a.letters]
        # Parts are of the reduced dim where it is not contiguous.
        parts = any(map(along_side, fed)) & (chosen["k"] % (PERIOD_ROWS * n) > 0)
        lone = (np.ceil(there / chosen[of]) < n) | parts
        columns.reject((n > 1) & lone, "clusters of fewer tiles, or of parts of operand tiles")
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
    columns.costs["smem_bytes"] = tiles.smem
    columns.costs["register_bytes"] = accumulators * DTYPES["f32"].itemsize
    threads = GROUP_THREADS * chosen["consumers"]
    held = accumulators / threads
    # Of what the epilogue takes a panel's columns at least are held.
    wide = np.maximum(tiles.wide, PANEL_BYTES // summary.stores[0].itemsize)
    rows, most = _rows(chosen), most_held(chosen["consumers"])
    fetched = chosen["split"] * tile_words(rows, tiles.wide, DTYPES["f32"].itemsize)
    held = held + np.where(chosen["rest"] > 0, fetched, 0)
    # Positions are compared: what is told of them is there beside them.
    held = held + 2 * summary.n_positions * column_words(wide, DTYPES["i32"].itemsize)
    results = tile_words(rows, tiles.wide, summary.stores[0].itemsize)
    beside = (a for a in summary.loads if not a.feeds_product and _of_columns(a, summary))
    # Neighbours of a column are read and stored one by one, each by a register, then packed, beside
    # a panel's results and addresses. As compiled, of 24 programs.
    each = Counter(("p" in a.letters, a.itemsize, a.fast == "p") for a in beside)
    alone = any(of_rows and by_one for of_rows, _, by_one in each)
    if alone or (sides.turned and summary.stores[0].itemsize >= WIDE):
        held = held + results + OF_COLUMNS
    for (of_rows, size, by_one), number in each.items():
        words = tile_words(rows, wide, size) if of_rows else column_words(wide, size)
        held = held + number * words
        # What is narrower than a result, or than what functions compute in, is there twice.
        twice = max(summary.stores[0].itemsize, WIDE * by_one)
        if of_rows and size < twice:
            held = held + tile_words(rows, tiles.wide, twice)
        elif not of_rows and size < WIDE and summary.cells >= OF_FUNCTIONS:
            held = held + column_words(tiles.wide, WIDE)
    # Ranks take some too, and sides of a tile: 200 beside ranks spill, as compiled.
    clusters = chosen["cluster_rows"] * chosen["cluster_cols"] * chosen["split"] > 1
    columns.reject(
        held > most - np.where(clusters, OF_RANKS, np.where(chosen["across"] > 1, OF_SIDES, 0)),
        "accumulators and a panel's operands exceed the registers of a thread",
    )
    # What no bulk copy stores is read back in rows, beside the sums: 192 of them spill there.
    sums = MOST_SUMS - (0 if of_lines(sides) else OF_COLUMNS)
    columns.reject(
        (accumulators / threads + results > most + BESIDE) | (accumulators / threads > sums),
        "accumulators and a panel of results exceed the registers of a thread",
    )
    columns.reject(
        instructions(tile / threads * summary.cells) > MOST_INSTRUCTIONS,
        f"cells of a thread exceed {MOST_INSTRUCTIONS} instructions",
    )
