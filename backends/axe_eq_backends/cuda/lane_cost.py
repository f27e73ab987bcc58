"""Cost model of cones on ordinary lanes: cells, sums, permutations, products with vectors."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from axe_eq.schedule.box import TILE_LETTERS
from axe_eq.schedule.summary import Column, Columns, Summary, elements, flops, grid_of
from axe_eq.target import Target
from axe_eq_backends.cuda.cost import (
    UNIT_BANDWIDTH,
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
from axe_eq_backends.cuda.online import unable

# Part of a unit's registers that may hold rows; addresses, results, reads on their way take more.
HELD_SHARE = 0.5
# Blocks of cones on lanes, and bytes that the lanes of a warp read of a row at once.
LANE_ROWS, LANE_COLS = (1, 2, 4, 8, 16, 32, 64, 128, 256), (64, 256, 1024, WHOLE_DIM)
RUN_BYTES = 32 * 16
# A block that sums across columns has few reads on their way. Measured on one H200: 56 blocks of a
# row of f16[4096] times f16[4096,14336] take 119 us.
COLUMNS_B_S = 17.6e9


@dataclass(frozen=True)
class Lanes:
    """Cones computed on ordinary lanes: cells, sums, permutations, products with vectors."""

    name: str = "lanes"
    families: tuple[str, ...] = ("cuda",)
    prices_places: bool = True

    def refuse(self, summary: Summary, target: Target) -> str | None:
        """Refused with products of matrices, reductions over different dims, too many reads.

        Also by monoids that are not of cells, or have no unit.
        """
        if unread := not_strided(summary, looks=True) or too_many_reads(summary):
            return unread
        if lost := next(filter(None, map(unable, sorted(set(summary.monoids)))), ""):
            return lost
        structured = any(w.structured for w in summary.products)
        if summary.n_reduced > 1 or len({w.reduced for w in summary.products}) > 1:
            return "reductions over different dims"
        if (structured and len(summary.products) > 1) or (summary.products and summary.n_folds):
            return "products beside other reductions"
        taken = all(tile_rows(target, w.dtype) for w in summary.products)
        kept = mixes_rows(summary) or no_rows_of_scores(summary) or wide_weights(summary)
        if taken and structured and not kept:
            return "products that matrix units take"
        if not structured and any(map(is_of_matrices, summary.products)):
            return "products of matrices"
        return None

    def price(self, summary: Summary, target: Target) -> Columns:
        """Blocks of rows and columns, with streaming chunks where the cone streams.

        All are estimates: kernels on lanes have the tiles that measured best for how many elements
        are contiguous and aligned, and for the registers that their cells take.
        """
        run = _columns_of_sums(summary)
        sizes = [(run.get(e, 1),) for e in TILE_LETTERS] if run else (LANE_ROWS, LANE_COLS)
        p, q, k = grid_of(*sizes, (256, 1024, 4096))
        columns = Columns({"p": p, "q": q, "k": k, "s": k})
        columns.rows, columns.estimated = ("",) * len(p), frozenset(columns.block)
        matrix = flops(summary.products, summary, columns) / target.vector_flops_per_s
        part = COLUMNS_B_S / target.memories[0].bytes_per_s if run else UNIT_BANDWIDTH
        summary = _repeated(summary)
        roofline(summary, target, columns, matrix, part)
        if (swept := _swept(summary)) == summary:
            return columns
        held_s, held_costs = columns.time_s, columns.costs
        roofline(swept, target, columns, matrix, part)
        held = _row_bytes(summary, columns) <= HELD_SHARE * _register_bytes(target)
        columns.time_s = np.where(held, held_s, columns.time_s)
        columns.costs = {n: np.where(held, held_costs[n], c) for n, c in columns.costs.items()}
        return columns


def _columns_of_sums(summary: Summary) -> dict[str, int]:
    """Columns of a block by letter, where products are summed across what is contiguous.

    Sums along what is contiguous take any number of rows; these take a vector of every lane.
    """
    if not (summary.products and summary.loads):
        return {}
    largest = max(summary.loads, key=lambda a: a.n_bytes)
    along = {x for x, _, step in largest.strides if step == 1}
    kept = along & {x for w in summary.products for x, _, _ in w.kept}
    return {x: RUN_BYTES // largest.itemsize for x in kept & set(TILE_LETTERS)}


def _repeated(summary: Summary) -> Summary:
    """A cone that reads, and computes, once for every place that a moved value is used at."""
    times = -(-summary.n_reads // max(1, len(summary.loads)))
    if times <= 1:
        return summary
    loads = tuple(a._replace(passes=a.passes * times) for a in summary.loads)
    vector = tuple(w._replace(flops=w.flops * times) for w in summary.vector)
    return replace(summary, loads=loads, vector=vector)


def _swept(summary: Summary) -> Summary:
    """A cone whose rows do not stay on chip: every reduction reads them once more, and results."""
    sweeps = summary.n_folds + any(a.star > 1 for a in summary.stores)
    loads = (a._replace(passes=max(a.passes, sweeps)) if a.star > 1 else a for a in summary.loads)
    return replace(summary, loads=tuple(loads))


def _register_bytes(target: Target) -> float:
    return target.limits.get("registers_per_unit", 65536) * 4.0


def _row_bytes(summary: Summary, columns: Columns) -> Column:
    """Bytes of the loaded tiles that hold whole dims: rows kept on chip."""
    total = np.zeros(len(columns))
    for access in summary.loads:
        if access.star > 1:
            total = (
                total + elements(access.letters, access.star, summary, columns) * access.itemsize
            )
    return total
