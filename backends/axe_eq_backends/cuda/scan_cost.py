"""Cost model of scans: every byte once, and a wait per tile that one CTA takes after another."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from axe_eq.program.types import DTYPES
from axe_eq.schedule.summary import Columns, ScanWork, Summary, blocks, flops, grid_of, traffic
from axe_eq.target import Target
from axe_eq_backends.cuda.cost import EXPOSED, L2_OVER_HBM, not_strided, too_many_reads
from axe_eq_backends.cuda.prefixes import parts_of
from axe_eq_backends.cuda.schedules.scans import WARP, ScanTiling, scan_tiling
from axe_eq_backends.cuda.schedules.tensors import VECTOR_BYTES

# Estimates: what a CTA waits for the reads of one tile, its shuffles and its barriers.
TILE_S = 1.5e-6
# Threads of a unit that run side by side.
UNIT_THREADS = 1024


@dataclass(frozen=True)
class Scans:
    """Cones with scans along one dim, and cells before, between and after them."""

    name: str = "scans"
    families: tuple[str, ...] = ("cuda",)
    scans: bool = True
    prices_places: bool = False

    def refuse(self, summary: Summary, target: Target) -> str | None:
        """Refused without scans, with any reduction, with scans of different dims."""
        if not summary.scans:
            return "no scan"
        if unread := not_strided(summary) or too_many_reads(summary):
            return unread
        if summary.products or summary.n_folds:
            return "reductions beside scans"
        if any(s.dim < 0 for s in summary.scans):
            return "scans of parts of a dim"
        if len({s.dim for s in summary.scans}) > 1:
            return "scans along different dims"
        if len({(a.letters, a.star) for a in summary.stores}) > 1:
            return "results of several shapes"
        lost = [s.monoid for s in summary.scans if parts_of(s.monoid, _computed(s)) is None]
        return f"no cells of the monoid {lost[0]} for kernels" if lost else None

    def price(self, summary: Summary, target: Target) -> Columns:
        """One candidate: kernels work out their tiles from how tensors lie."""
        rows, cols = _tiling(summary, target).tile
        columns = Columns(
            dict(zip("pqks", grid_of((rows,), (cols,), (cols,), (cols,)), strict=True))
        )
        columns.rows, columns.estimated = ("",), frozenset(columns.block)
        once, again = traffic(summary, columns)
        rate = target.memories[0].bytes_per_s
        memory = once / rate + again / (rate * L2_OVER_HBM)
        waits = np.full(len(columns), _waits(summary, target))
        vector = flops(summary.vector, summary, columns) / target.vector_flops_per_s
        columns.time_s = target.launch_s + np.maximum(memory, waits) + EXPOSED * vector
        columns.costs = {
            "gmem_bytes": once, "reread_bytes": again, "vector_s": vector, "memory_s": memory,
            "waits_s": waits, "blocks": blocks(summary, columns),
        }  # fmt: skip
        return columns


def _computed(scan: ScanWork) -> list[str]:
    return [DTYPES[d].accumulate for d in scan.dtypes]


def _sides(scan: ScanWork) -> tuple[int, int, int]:
    """Extents of the scanned dim, of the one that is contiguous beside it, of all others."""
    shape = [e for d, e in enumerate(scan.shape) if d != scan.dim] or [1]
    return scan.shape[scan.dim], shape[-1], prod(shape[:-1])


def _tiling(summary: Summary, target: Target) -> ScanTiling:
    """The tile as if tensors were dense and began at multiples of vectors."""
    scan = summary.scans[0]
    extent, other, outer = _sides(scan)
    fast = int(scan.dim == len(scan.shape) - 1)
    size = max((a.itemsize for a in (*summary.loads, *summary.stores)), default=4)
    wide, along = VECTOR_BYTES // size, extent if fast else other
    while along % wide:
        wide //= 2
    return scan_tiling(extent, other, outer, fast, wide, target.n_units)


def _waits(summary: Summary, target: Target) -> float:
    """Seconds of the tiles that follow each other: of one CTA, and of CTAs in turns."""
    tiling, (extent, other, outer) = _tiling(summary, target), _sides(summary.scans[0])
    ctas = outer * -(-other // tiling.other)
    at_once = target.n_units * max(1, UNIT_THREADS // (tiling.warps * WARP))
    return TILE_S * -(-extent // tiling.scanned) * -(-ctas // at_once)


__all__ = ["Scans"]
