"""Cost model of contractions through registers: any element type, computed factors and results.

A step's reads are on their way while the step before is multiplied, and no longer: small grids wait
for every step.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd, prod

import numpy as np

from axe_eq.program.types import DTYPES
from axe_eq.schedule.box import STREAM_LETTERS, TILE_LETTERS
from axe_eq.schedule.summary import (
    Access,
    Column,
    Columns,
    Reductions,
    Summary,
    blocks,
    flops,
    grid_of,
)
from axe_eq.target import Instr, Target
from axe_eq_backends.cuda.contract import OF_REGISTERS
from axe_eq_backends.cuda.cost import (
    not_as_they_lie,
    not_strided,
    padded,
    roofline,
    tile_rows,
    waves,
)
from axe_eq_backends.cuda.lane_price import floor_s
from axe_eq_backends.cuda.schedules.contraction import common_dtype, dtype_for
from axe_eq_backends.cuda.schedules.product_tiles import (
    MOST_BYTES,
    MOST_HELD,
    WARP,
    WORD,
    Tile,
    few_accumulators,
    largest_tile,
    least_tile,
    most_parts,
    step_depth,
)  # fmt: skip
from axe_eq_backends.cuda.schedules.products import SLOTS
from axe_eq_backends.cuda.schedules.tensors import VECTOR_BYTES
from axe_eq_backends.cuda.sides import Matrices, as_matrices
from axe_eq_backends.cuda.sizes import instructions


def register_rows(target: Target, summary: Summary) -> list[Instr]:
    """Rows that multiply the operands in registers, or else wider ones; none for several kinds."""
    rows = [r for r in target.rows("gemm") if r.family in OF_REGISTERS]
    dtype = common_dtype([dtype_for(w.dtypes or (w.dtype,)) for w in summary.products])
    for held in (dtype, DTYPES[dtype].accumulate) if dtype else ():
        if found := [r for r in rows if any(held == accepted[0] for accepted in r.dtypes)]:
            return found
    return []


# Registers of a thread beside sums and factors, and on ordinary lanes those of tiles of fewer rows.
OF_OTHERS, OF_FEWER, TALL = 64, 56, 128
WHOLE = 4  # CTAs of a unit, at most, of which the busiest runs whole ones
PAIRS = 2  # CTAs that a unit holds and begins again together, of so many in all
DEEP = 64  # elements of a step from which rows along it are turned slower
WRITTEN = 2048  # multiply-adds of a thread's step that caches of instructions do not hold
OF_COPIED = 40  # registers of a thread beside sums and fragments where copies fetch factors


@dataclass(frozen=True)
class RegisterProducts:
    """Cones with sums of products whose factors pass through registers."""

    name: str = "register_products"
    families: tuple[str, ...] = ("cuda",)
    prices_places: bool = False

    def refuse_reductions(self, reductions: Reductions, target: Target) -> str | None:
        """Refused without products, with other reductions, where several have computed operands."""
        if not reductions.products:
            return "no sum of products"
        if reductions.folds or reductions.structured:
            return "other reductions beside products"
        several = reductions.staged and reductions.products > 1
        return "several products of computed operands" if several else None

    def refuse(self, summary: Summary, target: Target) -> str | None:
        """Refused without products, with other reductions, or where a product feeds another."""
        if reason := self.refuse_reductions(summary.reductions, target):
            return reason
        if unread := not_strided(summary):
            return unread
        if summary.uneven:
            return "a result that lacks a dim of another"
        other = not_as_they_lie(summary, target)
        as_they_lie = not (summary.staged or len(summary.stores) > 1 or other)
        if as_they_lie and all(tile_rows(target, w.dtype) for w in summary.products):
            return "products of tensors as they lie"
        if not register_rows(target, summary):
            return f"no gemm row for {' '.join(sorted({w.dtype for w in summary.products}))}"
        return None

    def price(self, summary: Summary, target: Target) -> Columns:
        """Tiles of the first row that takes the operands and has some, with kernels' steps."""
        first, *others = register_rows(target, summary)
        found = self._priced(summary, target, first)
        if others and np.isinf(found.time_s).all():  # too little for matrix units
            return self._priced(summary, target, others[0])
        return found

    def _priced(self, summary: Summary, target: Target, row: Instr) -> Columns:
        """All tiles of a row."""
        sides = as_matrices(summary)
        summary, figure = sides.summary, target.figure
        number = len(summary.products)
        dtype, matrix = row.dtypes[0][0], row.family == OF_REGISTERS[0]
        lows, wide = least_tile(matrix), target.sizes("register_sides")
        sizes = (dict.fromkeys(max(x, low) for x in wide) for low in lows)
        more = [target.sizes(f"register_{name}") for name in ("warps", "band", "steps")]
        more[2] = more[2][matrix and -1 :]  # of matrix units deep ones alone were measured
        m, n, warps, band, deep = grid_of(*sizes, *more)
        each = zip(*(x.astype(int).tolist() for x in (m, n, warps, deep)), strict=True)
        k = _depths(summary, [(Tile(a, b, 0, matrix, dtype, w), d) for a, b, w, d in each])
        same = np.unique(np.stack([m, n, warps, band, k]), axis=1, return_index=True)[1]
        m, n, warps, band, k = (x[np.sort(same)] for x in (m, n, warps, band, k))
        each = zip(*(x.astype(int).tolist() for x in (m, n, warps)), strict=True)
        tiles = [Tile(a, b, 0, matrix, dtype, w) for a, b, w in each]
        columns = Columns({"p": m, "q": n, "k": k, "s": k}, exact=True)
        columns.extra = {"m": m, "n": n, "k": k, "warps": warps, "band": band}
        columns.rows = (row.name,) * len(m)
        work = flops(summary.products, summary, columns)
        work = work * padded(sides.there[0], m) * padded(sides.there[1], n)
        rate = row.flops_per_s * (1.0 if _copied(summary, row) else figure(f"{row.family}_part"))
        roofline(summary, target, columns, work / rate)
        paced = _paced(sides, target, columns, row, rate)
        begin = floor_s(target, float(np.min(columns.costs["gmem_bytes"])))
        columns.time_s = np.maximum(columns.time_s, target.launch_s + paced) + begin
        columns.time_s = columns.time_s + _of_cells(summary, target, columns)
        columns.time_s = columns.time_s + _of_reads(summary, target, columns, row)
        first = np.minimum(target.memories[0].latency_s, paced)  # what the first step waits
        columns.costs |= {"waits_s": paced - first, "latency_s": begin + first}
        largest = largest_tile(dtype)
        held = m * n * number
        there = [int(n) for n in sides.there]
        few = np.array([matrix and few_accumulators(t, dtype, *there) for t in tiles])
        columns.reject(few, "fewer accumulators of a warp than its products need")
        columns.reject(held > largest, f"accumulators exceed {largest} of a CTA")
        room = MOST_HELD * DTYPES["f32"].itemsize * WARP * warps
        parts = np.array([most_parts(t, dtype) for t in tiles])
        taken = held * MOST_BYTES / largest + m * n * _bytes_stored(summary) / parts
        reason = "accumulators and what results read exceed the registers of a CTA"
        columns.reject(taken > room, reason)
        for tile, whole in zip((m, n), sides.whole, strict=True):
            columns.reject(tile < whole, "tiles of parts of a whole side")  # kernels would cut it
        return sides.named(columns)


def _paced(sides: Matrices, target: Target, columns: Columns, row: Instr, rate: float) -> Column:
    """Seconds of the busiest unit: the CTAs that it runs, each step by step.

    A CTA multiplies, and its factors pass through shared memory. One at a time leaves latencies
    open that others hide, a part of its own time, and waits for instructions that caches do not
    hold. Units that hold few CTAs run whole ones, and those that hold two begin two again; where
    the kernel before has left too few places for all at once, units that are done first are filled.
    Steps of little work wait for their reads. Copies are ahead of all of that.
    """
    if _copied(sides.summary, row):
        return _fetched(sides, target, columns, row, rate)
    summary, figure, chosen = sides.summary, target.figure, columns.extra
    number = len(summary.products)
    m, n, k = chosen["m"], chosen["n"], chosen["k"]
    read, reads = np.zeros(len(m)), np.zeros(len(m))
    for a in _factors(summary):
        side = _side(a, chosen)
        vector = max(1, gcd(a.aligned, max(VECTOR_BYTES, a.itemsize)) // a.itemsize)
        if row.family == OF_REGISTERS[0]:
            read += side / vector * figure("fragment_read_s")
        else:
            along = np.where(k < DEEP, figure("along_s"), figure("along_deep_s"))
            read += side * (figure("across_s") if a.fast in TILE_LETTERS else along)
        # What lies past an end is not read.
        reads += np.minimum(side, sides.there["q" in a.letters]) / vector
    multiplied = 2.0 * m * n * number * target.n_units / rate
    each = multiplied + read + figure("depth_s")
    held = _resident(summary, target, columns, row)
    of_unit = blocks(summary, columns) / target.n_units
    at_once = np.where(of_unit > held / 2, held, np.ceil(of_unit))
    pairs = held * np.ceil(of_unit / held)
    few = np.where(held <= PAIRS, pairs, np.ceil(of_unit))
    more = np.where((held <= PAIRS) & (of_unit <= 2 * WHOLE), (pairs + of_unit) / 2, of_unit)
    run = np.where(of_unit <= np.maximum(held, WHOLE), few, more)
    run = np.where(of_unit <= held, at_once, run)
    beside = np.where(of_unit <= WHOLE, figure("lone.few"), figure("lone.many"))
    lone = np.where(m * n * k * number / (chosen["warps"] * WARP) < WRITTEN, "lone.short", "lone")
    lone = np.array([figure(x if row.family != OF_REGISTERS[0] else "lone") for x in lone.tolist()])
    beside = np.where(run == 1, lone, beside)
    reduced = max(prod(w.reduced) for w in summary.products)
    steps = np.ceil(reduced / k)
    # A thread's reads are one after the other, and in turns with those of the unit's other warps.
    name, latency = "read_one_s", np.full(len(m), target.memories[0].latency_s)
    if row.family != OF_REGISTERS[0]:  # what is little has been read by another CTA
        name, of_l2 = f"{name}.lanes", columns.costs["gmem_bytes"] / target.limits["l2_bytes"]
        latency = latency * (1 + np.minimum(1, of_l2 / figure("read_again"))) / 2
    one = figure(name) + run * chosen["warps"] * figure("ask_s")
    waits = reads * np.minimum(k, reduced) / (chosen["warps"] * WARP) * one + latency
    return np.asarray(steps * np.maximum(each * k * (run + beside), waits))


def _copied(summary: Summary, row: Instr) -> bool:
    """Whether copies fetch the factors: whole words that matrix units take as they lie."""
    size = DTYPES[row.dtypes[0][0]].itemsize
    plain = not summary.staged and all(a.itemsize == size for a in _factors(summary))
    return row.family == OF_REGISTERS[0] and size >= WORD and plain


def _fetched(sides: Matrices, target: Target, columns: Columns, row: Instr, rate: float) -> Column:
    """The same where copies fetch what is multiplied, whole slots ahead."""
    summary, figure, chosen = sides.summary, target.figure, columns.extra
    m, n, k, number = chosen["m"], chosen["n"], chosen["k"], len(summary.products)
    each = 2.0 * m * n * number * target.n_units / rate + figure("depth_s")
    for a in _factors(summary):
        vector = max(1, gcd(a.aligned, max(VECTOR_BYTES, a.itemsize)) // a.itemsize)
        each = each + _side(a, chosen) / vector * figure("copied_side_s")
    held = _resident(summary, target, columns, row)
    of_unit = blocks(summary, columns) / target.n_units
    whole, again = np.ceil(of_unit), held * np.ceil(of_unit / held)
    run = np.where(of_unit <= 2 * WHOLE, (again + of_unit) / 2, of_unit)
    few = whole + figure("copied_uneven") * (again - whole)
    run = np.where(of_unit <= np.maximum(held, WHOLE), few, run)
    run = np.where(of_unit <= 1, 1.0, run + figure("copied_beside"))
    steps = np.ceil(max(prod(w.reduced) for w in summary.products) / k)
    return np.asarray(
        steps * np.maximum(each * k * run, target.memories[0].latency_s / (SLOTS - 1))
    )


def _of_cells(summary: Summary, target: Target, columns: Columns) -> Column:
    """Seconds of computing factors, which those that multiply do before: what lanes issue.

    A step's instructions are written out, so the first ones are read from cold caches.
    """
    if not summary.staged:
        return np.zeros(len(columns))
    chosen = columns.extra
    issue = columns.costs["vector_s"] * waves(summary, target, columns)
    one = issue / (blocks(summary, columns) * np.ceil(summary.extent("k") / chosen["k"]))
    written = one * target.vector_flops_per_s / (chosen["warps"] * WARP)
    cold = instructions(written) * target.figure("cold_instruction_s")
    return np.asarray(2 * instructions(issue) + cold)


def _of_reads(summary: Summary, target: Target, columns: Columns, row: Instr) -> Column:
    """Seconds of reading what results take whole, as in products from tile memory."""
    chosen, figure = columns.extra, target.figure
    words = sum(a.itemsize for a in summary.loads if _reaches_tile(a)) / WORD
    held = chosen["m"] * chosen["n"] / (chosen["warps"] * WARP) * words
    of_unit = blocks(summary, columns) / target.n_units
    turns = np.ceil(of_unit / _resident(summary, target, columns, row))
    each = figure("read_panel_s") + held * figure("read_word_s")
    return np.asarray(turns * each if words else np.zeros(len(columns)))


def _factors(summary: Summary) -> list[Access]:
    """What is read for every step: factors, and what they are computed from."""
    streamed = [a for a in summary.loads if set(STREAM_LETTERS) & set(a.letters)]
    return [a for a in summary.loads if a.feeds_product or (summary.staged and a in streamed)]


def _side(factor: Access, chosen: Mapping[str, Column]) -> Column:
    """Rows or columns of a tile that a factor has."""
    return chosen["n" if "q" in factor.letters else "m"]


def _resident(summary: Summary, target: Target, columns: Columns, row: Instr) -> Column:
    """CTAs that a unit holds, by registers: sums, the next step's factors, and what is beside."""
    chosen, f32 = columns.extra, DTYPES["f32"].itemsize
    threads, tile = chosen["warps"] * WARP, chosen["m"] * chosen["n"]
    step = sum(_side(a, chosen) * chosen["k"] * a.itemsize for a in _factors(summary))
    granule, most = (target.limits[f"register{x}"] for x in ("_granule", "s_per_thread"))
    of_lanes = np.where(chosen["m"] < TALL, OF_FEWER, OF_OTHERS)
    others = OF_OTHERS if row.family == OF_REGISTERS[0] else of_lanes
    taken = (tile * len(summary.products) * f32 + step) / WORD / threads + others
    places: Column = np.full(len(tile), float(target.limits["ctas_per_unit"]))
    if _copied(summary, row):  # two fragments of about square parts of the tile take turns
        words = DTYPES[row.dtypes[0][2]].itemsize / WORD
        taken = (tile * len(summary.products) / threads + np.sqrt(tile) / 2) * words + OF_COPIED
        of_cta = SLOTS * step + target.limits["smem_reserved_per_cta"]
        places = np.asarray(target.limits["smem_per_unit"] // of_cta)
    registers = np.minimum(np.ceil(taken / granule) * granule, most)
    places = np.minimum(places, target.limits["registers_per_unit"] // (threads * registers))
    return np.asarray(np.maximum(1, places))


def _bytes_stored(summary: Summary) -> int:
    """Bytes per element of the tile that results take, and what they read."""
    read = (a.itemsize for a in summary.loads if _reaches_tile(a))
    return sum(read) + sum(a.itemsize for a in summary.stores)


def _reaches_tile(a: Access) -> bool:
    """Whether a result reads a value for every element of a tile: sides may be whole."""
    sides = sum(x in a.letters for x in TILE_LETTERS) + (a.star > 1)
    return sides > 1 and not a.feeds_product and not set(STREAM_LETTERS) & set(a.letters)


def _depths(summary: Summary, tiles: Sequence[tuple[Tile, int]]) -> Column:
    """Steps of every tile, each with how many times as deep as a full one's they are at most."""
    deepest, number = max(prod(w.reduced) for w in summary.products), len(summary.products)
    read = _bytes_read(summary, DTYPES[tiles[0][0].dtype].itemsize)
    return np.array([float(step_depth(t, number, deepest, *read, d)) for t, d in tiles])


def _bytes_read(summary: Summary, size: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Bytes of registers of an element of the factors of rows, and of columns.

    And how many more those take that are read: what is read one by one has a register each until
    all of it has arrived.
    """
    held = [(w.letters, size, 0) for w in summary.staged]
    for a in summary.loads:
        row = summary.extent(a.fast) * a.itemsize if summary.has(a.fast) else 0
        words = a.aligned and gcd(a.aligned, row) % WORD == 0
        more = 0 if words else max(0, WORD - a.itemsize)
        if a.feeds_product:
            held.append((a.letters, a.itemsize + size * (a.itemsize != size), more))
        elif summary.staged and (a.star > 1 or set(STREAM_LETTERS) & set(a.letters)):
            held.append((a.letters, a.itemsize, more))
    rows, cols = [0, 0], [0, 0]
    for letters, *n_bytes in held:
        of_columns = "q" in letters or not ("p" in letters or summary.has("q"))  # or whole ones
        side = cols if of_columns else rows
        side[:] = (n + more for n, more in zip(side, n_bytes, strict=True))
    return (rows[0], cols[0]), (rows[1], cols[1])
