"""Cost model of contractions through registers: any element type, computed factors and results.

A step's reads are on their way while the step before is multiplied, and no longer: small grids wait
for every step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from axe_eq.program.types import DTYPES
from axe_eq.schedule.summary import Columns, Summary, blocks, elements, flops, grid_of
from axe_eq.target import Instr, Target
from axe_eq_backends.cuda.cost import OF_REGISTERS, not_as_they_lie, roofline, tile_rows
from axe_eq_backends.cuda.schedules.contraction import HOLDS

SIDES, DEPTHS = (16, 32, 64, 128), (32, 64, 128)
# Measured on one H200 (f16 with a cell before the product, f32, f64; 4096 squared): the part of a
# row's rate at its largest tile, and how smaller tiles lose.
RATES = {"mma": 0.78, "fma": 0.67}
TILES = {"mma": 128 * 128, "fma": 128 * 64}
SMALL_TILE_EXPONENT = 0.42
# Seconds of a step whose reads nothing hides, and more per element of its depth; CTAs that a unit
# runs side by side.
STEP_S, DEPTH_S, SIDE_BY_SIDE = 0.48e-6, 5.3e-9, 2


def family(row: Instr) -> str:
    """The family of instructions that a row belongs to."""
    return row.name.partition(".")[0]


def register_rows(target: Target, dtype: str) -> list[Instr]:
    """Rows that multiply registers of an element type, or else of the one it is computed in."""
    rows = [r for r in target.rows("gemm") if family(r) in OF_REGISTERS]
    wide = next((w for w, held in HOLDS.items() if dtype in held), dtype)
    for held in (wide, DTYPES[dtype].accumulate):
        if found := [r for r in rows if any(held == accepted[0] for accepted in r.dtypes)]:
            return found
    return []


@dataclass(frozen=True)
class RegisterProducts:
    """Cones with sums of products whose factors pass through registers."""

    name: str = "register_products"
    families: tuple[str, ...] = ("cuda",)
    prices_places: bool = False

    def refuse(self, summary: Summary, target: Target) -> str | None:
        """Refused without products, with other reductions, or where a product feeds another."""
        if not summary.products:
            return "no sum of products"
        if summary.n_folds or any(w.structured for w in summary.products):
            return "other reductions beside products"
        if summary.staged and len(summary.products) > 1:
            return "several products of computed operands"
        other = not_as_they_lie(summary, target)
        as_they_lie = not (summary.staged or len(summary.stores) > 1 or other)
        if as_they_lie and all(tile_rows(target, w.dtype) for w in summary.products):
            return "products of tensors as they lie"
        missing = {w.dtype for w in summary.products if not register_rows(target, w.dtype)}
        return f"no gemm row for {' '.join(sorted(missing))}" if missing else None

    def price(self, summary: Summary, target: Target) -> Columns:
        """Tiles and steps of the one row that takes the operands."""
        row = register_rows(target, summary.products[0].dtype)[0]
        p, q, k = grid_of(SIDES, SIDES, DEPTHS)
        columns = Columns({"p": p, "q": q, "k": k, "s": k}, {"stages": np.full(len(p), 2.0)})
        columns.rows = (row.name,) * len(p)
        largest = TILES[family(row)]
        tile = sum(
            (elements(letters, star, summary, columns) for star, letters in summary.resident),
            np.zeros(len(columns)),
        )
        area = np.clip(tile, 1, largest)
        rate = row.flops_per_s * RATES[family(row)] * (area / largest) ** SMALL_TILE_EXPONENT
        roofline(summary, target, columns, flops(summary.products, summary, columns) / rate)
        steps = np.ceil(summary.extent("k") / columns.block["k"])
        rounds = np.ceil(blocks(summary, columns) / (target.n_units * SIDE_BY_SIDE))
        waits = steps * (STEP_S + DEPTH_S * columns.block["k"]) * rounds
        columns.time_s = np.maximum(columns.time_s, target.launch_s + waits)
        columns.reject(tile > largest, f"accumulators exceed {largest} of a CTA")
        return columns
