"""Cones on ordinary lanes: cells, sums, permutations, products with vectors, scans.

Figures say what any kernel takes; what it is written by, and what that costs, are candidates.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from axe_eq.lower.candidate import Candidate
from axe_eq.lower.read import read_cone
from axe_eq.program.types import DTYPES
from axe_eq.schedule.graph import KernelStep
from axe_eq.schedule.summary import Columns, Reductions, ScanWork, Summary, flops, grid_of
from axe_eq.target import Target
from axe_eq_backends.cuda.cost import (
    WHOLE_DIM,
    is_of_matrices,
    mixes_rows,
    no_rows_of_scores,
    not_strided,
    roofline,
    tile_rows,
    too_many_reads,
    wide_weights,
)
from axe_eq_backends.cuda.lane_price import SECTOR_BYTES, floor_s
from axe_eq_backends.cuda.online import unable
from axe_eq_backends.cuda.prefixes import alone, parts_of
from axe_eq_backends.cuda.ways import candidates_of

# Blocks of cones on lanes, as far as figures say them.
LANE_ROWS, LANE_COLS = (1, 2, 4, 8, 16, 32, 64, 128, 256), (64, 256, 1024, WHOLE_DIM)


@dataclass(frozen=True)
class Lanes:
    """Cones computed on ordinary lanes: cells, sums, permutations, products with vectors."""

    name: str = "lanes"
    families: tuple[str, ...] = ("cuda",)
    prices_places: bool = False

    def refuse_reductions(self, reductions: Reductions, target: Target) -> str | None:
        """Refused with reductions over different dims, or of several kinds."""
        if reductions.spaces > 1:
            return "reductions over different dims"
        several = reductions.structured and reductions.products > 1
        if several or (reductions.products and reductions.folds):
            return "products beside other reductions"
        return None

    def refuse(self, summary: Summary, target: Target) -> str | None:
        """Refused with products of matrices, reductions over different dims, too many reads.

        Also by monoids that are not of cells, or have no unit.
        """
        if reason := self.refuse_reductions(summary.reductions, target):
            return reason
        if unread := not_strided(summary, looks=True) or too_many_reads(summary):
            return unread
        if lost := next(filter(None, map(unable, sorted(set(summary.monoids)))), ""):
            return lost
        structured = any(w.structured for w in summary.products)
        if len({w.reduced for w in summary.products}) > 1:
            return "reductions over different dims"
        taken = all(tile_rows(target, w.dtype) for w in summary.products)
        kept = mixes_rows(summary) or no_rows_of_scores(summary) or wide_weights(summary)
        if taken and structured and not kept:
            return "products that matrix units take"
        if not structured and any(map(is_of_matrices, summary.products)):
            return "products of matrices"
        return None

    def price(self, summary: Summary, target: Target) -> Columns:
        """What every kernel takes at least, by figures."""
        return _figures(summary, target)

    def candidates(self, step: KernelStep, target: Target) -> list[Candidate]:
        """Rows, sweeps, maps and relayouts that the cone may be, by what it reads and writes."""
        return candidates_of(read_cone(step, alone), target)


@dataclass(frozen=True)
class Scans:
    """Cones with scans along one dim, and cells before, between and after them."""

    name: str = "scans"
    families: tuple[str, ...] = ("cuda",)
    scans: bool = True
    prices_places: bool = False

    def refuse_reductions(self, reductions: Reductions, target: Target) -> str | None:
        """Refused without scans, or with any reduction."""
        if not reductions.scans:
            return "no scan"
        return "reductions beside scans" if reductions.products or reductions.folds else None

    def refuse(self, summary: Summary, target: Target) -> str | None:
        """Refused without scans, with any reduction, with scans of different dims."""
        if reason := self.refuse_reductions(summary.reductions, target):
            return reason
        if unread := not_strided(summary) or too_many_reads(summary):
            return unread
        if summary.n_scanned > 1:
            return "scans along different dims"
        if len({(a.letters, a.star) for a in summary.stores}) > 1:
            return "results of several shapes"
        lost = [s.monoid for s in summary.scans if parts_of(s.monoid, _computed(s)) is None]
        return f"no cells of the monoid {lost[0]} for kernels" if lost else None

    def price(self, summary: Summary, target: Target) -> Columns:
        """What every kernel takes at least, by figures."""
        return _figures(summary, target)

    def candidates(self, step: KernelStep, target: Target) -> list[Candidate]:
        """The tiles that a cone may be scanned in."""
        return candidates_of(read_cone(step, alone), target)


def _computed(scan: ScanWork) -> list[str]:
    return [DTYPES[d].accumulate for d in scan.dtypes]


def _figures(summary: Summary, target: Target) -> Columns:
    """Blocks of rows and columns, with streaming chunks where the cone streams."""
    largest = max(summary.loads, key=lambda a: a.n_bytes, default=None)
    whole = SECTOR_BYTES // largest.itemsize if largest and largest.fast == "p" else 1
    rows = tuple(n for n in LANE_ROWS if n >= whole)
    p, q, k = grid_of(rows, LANE_COLS, (256, 1024, 4096))
    columns = Columns({"p": p, "q": q, "k": k, "s": k})
    lanes = flops(summary.products, summary, columns) / target.vector_flops_per_s
    roofline(summary, target, columns, lanes)
    costs = columns.costs
    hidden = np.minimum(costs["memory_s"], costs["matrix_s"] + costs["vector_s"])
    columns.time_s -= target.figure("exposed") * hidden  # candidates say themselves how much is
    columns.time_s += floor_s(target, float(np.min(costs["gmem_bytes"])))
    return columns
