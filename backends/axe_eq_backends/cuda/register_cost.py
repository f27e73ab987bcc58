"""Cost model of contractions through registers: any element type, computed factors and results.

A step's reads are on their way while the step before is multiplied, and no longer: small grids wait
for every step.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from axe_eq.program.types import DTYPES
from axe_eq.schedule.box import STREAM_LETTERS, TILE_LETTERS
from axe_eq.schedule.summary import (
    Access,
    Column,
    Columns,
    Summary,
    blocks,
    elements,
    flops,
    grid_of,
)
from axe_eq.target import Instr, Target
from axe_eq_backends.cuda.cost import (
    OF_REGISTERS,
    not_as_they_lie,
    not_strided,
    roofline,
    tile_rows,
)  # fmt: skip
from axe_eq_backends.cuda.schedules.contraction import common_dtype, dtype_for
from axe_eq_backends.cuda.schedules.products import (
    MOST_BYTES,
    MOST_HELD,
    MOST_SIDE,
    WARP,
    WARPS,
    Tile,
    largest_tile,
    least_tile,
    most_parts,
    step_depth,
)  # fmt: skip
from axe_eq_backends.cuda.sides import as_matrices

SIDES = (16, 32, 64, 128)
# Measured on one H200 (f16 with a cell before the product, f64 at 2048 cubed, f32 at 4096 cubed):
# the part of a row's rate at the largest tile, at most 128 x 128, and how smaller ones lose.
RATES = {"mma": 0.78, "fma": 0.76}
SMALL_TILE_EXPONENTS = {"mma.f16": 0.42, "mma.bf16": 0.42, "mma.f64": 0.2, "fma.f32": 0.22}
OTHER_EXPONENT = 0.3
# Seconds of a step whose reads nothing hides, and more per element of its depth; CTAs that a unit
# runs side by side.
STEP_S, DEPTH_S, SIDE_BY_SIDE = 0.48e-6, 5.3e-9, 2


def register_rows(target: Target, summary: Summary) -> list[Instr]:
    """Rows that multiply the operands in registers, or else wider ones; none for several kinds."""
    rows = [r for r in target.rows("gemm") if r.family in OF_REGISTERS]
    dtype = common_dtype([dtype_for(w.dtypes or (w.dtype,)) for w in summary.products])
    for held in (dtype, DTYPES[dtype].accumulate) if dtype else ():
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
        if unread := not_strided(summary):
            return unread
        if summary.n_folds or any(w.structured for w in summary.products):
            return "other reductions beside products"
        if summary.staged and len(summary.products) > 1:
            return "several products of computed operands"
        other = not_as_they_lie(summary, target)
        as_they_lie = not (summary.staged or len(summary.stores) > 1 or other)
        if as_they_lie and all(tile_rows(target, w.dtype) for w in summary.products):
            return "products of tensors as they lie"
        if not register_rows(target, summary):
            return f"no gemm row for {' '.join(sorted({w.dtype for w in summary.products}))}"
        return None

    def price(self, summary: Summary, target: Target) -> Columns:
        """Tiles of the one row that takes the operands, with the steps that kernels have."""
        sides = as_matrices(summary)
        summary = sides.summary
        row = register_rows(target, summary)[0]
        matrix = row.family == OF_REGISTERS[0]
        least = least_tile(matrix)
        p, q = grid_of(*([s for s in SIDES if s >= low] for low in least))
        m, n = (
            _tile(summary, *side)
            for side in zip(TILE_LETTERS, (p, q), least, sides.whole, strict=True)
        )
        k = _depths(summary, row, m, n)
        columns = Columns({"p": p, "q": q, "k": k, "s": k}, {"stages": np.full(len(p), 2.0)})
        columns.rows = (row.name,) * len(p)
        largest = largest_tile(row.dtypes[0][0])
        tile = sum(
            (elements(letters, star, summary, columns) for star, letters in summary.resident),
            np.zeros(len(columns)),
        )
        exponent = SMALL_TILE_EXPONENTS.get(row.name, OTHER_EXPONENT)
        part = np.clip(tile / largest, 1 / largest, 1.0) ** exponent
        rate = row.flops_per_s * RATES[row.family] * part
        padded = _padded(summary, "p", m, sides.whole[0]) * _padded(summary, "q", n, sides.whole[1])
        work = flops(summary.products, summary, columns) * padded
        # A CTA that has a unit to itself waits at every step: f32 at 1000 cubed in 64 to 512 tiles
        # took 1.6, 1.9, 1.2 and 0.9 of the time without this.
        there = blocks(summary, columns) / (target.n_units * SIDE_BY_SIDE)
        roofline(summary, target, columns, work / rate * (2 - np.minimum(1.0, there)))
        steps = np.ceil(summary.extent("k") / columns.block["k"])
        rounds = np.ceil(there)
        waits = steps * (STEP_S + DEPTH_S * columns.block["k"]) * rounds
        columns.time_s = np.maximum(columns.time_s, target.launch_s + waits)
        held = np.maximum(tile, m * n * len(summary.products))
        columns.reject(held > largest, f"accumulators exceed {largest} of a CTA")
        room = MOST_HELD * DTYPES["f32"].itemsize * WARP * WARPS
        taken = held * MOST_BYTES / largest + m * n * _bytes_stored(summary) / _parts(row, m, n)
        columns.reject(taken > room, f"accumulators and what results read exceed {room} B of a CTA")
        if max(sides.whole) > MOST_SIDE:  # kernels would cut what is priced whole
            columns.reject(np.ones(len(columns), bool), f"a whole side exceeds {MOST_SIDE}")
        return sides.named(columns)


def _tile(summary: Summary, letter: str, sizes: Column, least: int, whole: int) -> Column:
    """What kernels have of a side: whole powers of two, however few of them are there."""
    if summary.has(letter):
        there = np.minimum(sizes, summary.extent(letter))
    else:
        there = np.full(len(sizes), float(min(MOST_SIDE, whole)))
    return np.asarray(np.maximum(2.0 ** np.ceil(np.log2(there)), least))


def _padded(summary: Summary, letter: str, tile: Column, whole: int) -> Column:
    """What tiles cover of a side, their parts past its end included, over what is there."""
    there = summary.extent(letter) if summary.has(letter) else max(1, whole)
    return np.asarray(np.ceil(there / tile) * tile / there)


def _parts(row: Instr, m: Column, n: Column) -> Column:
    """Parts of a tile's rows that results may be stored in, of every tile."""
    dtype, matrix = row.dtypes[0][0], row.family == OF_REGISTERS[0]
    tiles = zip(m.astype(int).tolist(), n.astype(int).tolist(), strict=True)
    return np.array([most_parts(Tile(a, b, 0, matrix, dtype), dtype) for a, b in tiles])


def _bytes_stored(summary: Summary) -> int:
    """Bytes per element of the tile that results take, and what they read."""
    read = (a.itemsize for a in summary.loads if _reaches_tile(a))
    return sum(read) + sum(a.itemsize for a in summary.stores)


def _reaches_tile(a: Access) -> bool:
    """Whether a result reads a value for every element of a tile: sides may be whole."""
    sides = sum(x in a.letters for x in TILE_LETTERS) + (a.star > 1)
    return sides > 1 and not a.feeds_product and not set(STREAM_LETTERS) & set(a.letters)


def _depths(summary: Summary, row: Instr, m: Column, n: Column) -> Column:
    """Steps of every tile."""
    deepest = max(prod(w.reduced) for w in summary.products)
    dtype, number = row.dtypes[0][0], len(summary.products)
    matrix = row.family == OF_REGISTERS[0]
    tiles = zip(m.astype(int).tolist(), n.astype(int).tolist(), strict=True)
    read = _bytes_read(summary, DTYPES[dtype].itemsize)
    return np.array(
        [float(step_depth(a, b, matrix, dtype, number, deepest, read)) for a, b in tiles]
    )


def _bytes_read(summary: Summary, size: int) -> tuple[int, int]:
    """Bytes of registers of an element of the factors of rows, and of columns."""
    rows = cols = 0
    held = [(w.letters, size) for w in summary.staged]
    for a in summary.loads:
        if a.feeds_product:
            held.append((a.letters, a.itemsize + size * (a.itemsize != size)))
        elif summary.staged and (a.star > 1 or set(STREAM_LETTERS) & set(a.letters)):
            held.append((a.letters, a.itemsize))
    for letters, n_bytes in held:
        if "q" in letters:
            cols += n_bytes
        else:
            rows += n_bytes
    return rows, cols
