"""Cost model of the CPU: what the runner does, which is to interpret tiles and to call BLAS.

Large tiles cost less interpreting, small ones stay in cache; the rest is a roofline. Candidates
come from the target's rows and memories; nothing here knows a program or a shape.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from axe_eq.program.scans import n_merges
from axe_eq.program.types import DTYPES
from axe_eq.schedule.summary import (
    Column,
    Columns,
    Summary,
    blocks,
    elements,
    flops,
    grid_of,
    repeats,
    traffic,
)
from axe_eq.target import Instr, Target

# Data read again comes from a cache between L2 and memory more often than not.
CACHE_OVER_RAM = 3.0
# Loops over tiles that do not stay in L2 against those that do (additions: 1.1e9 and 10e9 per
# second, half of which later nodes hide).
SPILLED = 5.0
# Tiles alive at once: two operands and a result.
LIVE_TILES = 3
_NARROW_BYTES = 2


@dataclass(frozen=True)
class Blas:
    """Cones with sums of products: one BLAS row per candidate."""

    name: str = "blas"
    families: tuple[str, ...] = ("cpu",)
    scans: bool = True

    def refuse(self, summary: Summary, target: Target) -> str | None:
        """Refused without products, or without a row for their dtype."""
        if not summary.products:
            return "no sum of products"
        missing = {w.dtype for w in summary.products if not _rows(target, w.dtype)}
        return f"no gemm row for {' '.join(sorted(missing))}" if missing else None

    def price(self, summary: Summary, target: Target) -> Columns:
        """Blocks of rows and columns, chunks of the streamed dim, for every row."""
        rows = _rows(target, summary.products[0].dtype)
        tables = [_candidates() for _ in rows]
        p, q, k = (np.concatenate(column) for column in zip(*tables, strict=True))
        names = tuple(row.name for row, table in zip(rows, tables, strict=True) for _ in table[0])
        rate = np.repeat([row.flops_per_s for row in rows], len(tables[0][0]))
        columns = Columns({"p": p, "q": q, "k": k, "s": k}, {}, names)
        _roofline(summary, target, columns, flops(summary.products, summary, columns) / rate)
        return columns


@dataclass(frozen=True)
class Loops:
    """Any cone in numpy's own loops; products without a row too, which is only ever slow."""

    name: str = "loops"
    families: tuple[str, ...] = ("cpu",)
    scans: bool = True

    def refuse(self, summary: Summary, target: Target) -> str | None:
        """Any cone."""
        return None

    def price(self, summary: Summary, target: Target) -> Columns:
        """Blocks of rows and columns, with streaming chunks where the cone streams."""
        p, q, k = _candidates()
        columns = Columns({"p": p, "q": q, "k": k, "s": k}, {}, ("",) * len(p))
        products = flops(summary.products, summary, columns)
        _roofline(summary, target, columns, products / target.vector_flops_per_s)
        return columns


def _candidates() -> list[Column]:
    return grid_of((16, 64, 256, 1024, 4096), (64, 256, 1024, 4096), (64, 256, 1024, 4096))


def _rows(target: Target, dtype: str) -> list[Instr]:
    return [r for r in target.rows("gemm") if any(dtype in accepted for accepted in r.dtypes)]


def _roofline(summary: Summary, target: Target, columns: Columns, matrix: Column) -> None:
    """Fill time_s and the cost columns."""
    ram, cache = target.memories[0], target.memory("l2")
    once, again = traffic(summary, columns)
    memory = once / ram.bytes_per_s + again / (ram.bytes_per_s * CACHE_OVER_RAM)
    tile = _tile_bytes(summary, columns)
    slow = np.where(tile > cache.n_bytes, SPILLED, 1.0)
    vector = flops(summary.vector, summary, columns) / target.vector_flops_per_s * slow
    interpreted = _tiles(summary, columns) * target.limits.get("tile_ns", 0) * 1e-9
    convert = _converted(summary, columns) / target.limits.get("converts_per_s", 1 << 60)
    # One thread of Python does these one after another; only memory traffic overlaps.
    columns.time_s = target.launch_s + np.maximum(memory, matrix + vector + convert) + interpreted
    columns.costs = {
        "ram_bytes": once, "reread_bytes": again, "tile_bytes": tile, "matrix_s": matrix,
        "vector_s": vector, "convert_s": convert, "interpret_s": interpreted, "memory_s": memory,
        "blocks": blocks(summary, columns),
    }  # fmt: skip
    columns.reject(tile > ram.n_bytes / 2, f"tiles exceed half of ram {ram.n_bytes} B")


def _tile_bytes(summary: Summary, columns: Columns) -> Column:
    """Bytes of the largest tiles of a block, as computed with."""
    wide = float(DTYPES["f32"].itemsize)
    shapes = [(a.letters, a.star) for a in (*summary.loads, *summary.stores)]
    shapes += [(letters, star) for star, letters in summary.resident]
    sizes = [elements(letters, star, summary, columns) for letters, star in shapes]
    return np.asarray(LIVE_TILES * wide * np.max(sizes, axis=0))


def _tiles(summary: Summary, columns: Columns) -> Column:
    """Tiles evaluated: every node once per block, and per chunk where the cone streams."""
    chunks = np.ones(len(columns))
    for letter in summary.streams:
        extent = summary.extent(letter)
        chunks = chunks * np.ceil(extent / columns.size(letter, extent))
    passes = max((a.passes for a in summary.loads), default=1)
    merges = sum(n_merges(x.length) for x in summary.scans)
    nodes = summary.n_nodes + len(summary.loads) + merges
    return blocks(summary, columns) * nodes * np.maximum(1.0, chunks * passes)


def _converted(summary: Summary, columns: Columns) -> Column:
    """Elements that change their width on the way in or out."""
    total = np.zeros(len(columns))
    for access in summary.loads:
        if access.itemsize <= _NARROW_BYTES:
            runs = access.passes * repeats(summary, columns, access.letters)
            total = total + access.n_bytes / access.itemsize * runs
    for access in summary.stores:
        if access.itemsize <= _NARROW_BYTES:
            total = total + access.n_bytes / access.itemsize
    return total


SCHEDULES = (Blas(), Loops())
