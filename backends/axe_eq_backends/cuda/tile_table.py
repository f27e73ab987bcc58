"""Which tiles a product has: those that a target offers, and those that fit what is there.

A table of all of them, whatever the product is; `tile_cost` prices them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache, partial
from itertools import product
from math import lcm, prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from axe_eq.program.types import DTYPES
from axe_eq.schedule.box import TILE_LETTERS, UNIT_LETTERS
from axe_eq.schedule.summary import Access, Column, grid_of
from axe_eq.target import Target
from axe_eq_backends.cuda.cost import tile_rows
from axe_eq_backends.cuda.schedules.gemm import CORE_COLS, GROUP_THREADS, PANEL_BYTES, panel_most
from axe_eq_backends.cuda.schedules.gemm_copies import BULK_BYTES
from axe_eq_backends.cuda.schedules.tensors import power_of_two_from
from axe_eq_backends.cuda.schedules.tiles import panel_width, staged_panels
from axe_eq_backends.cuda.sides import Matrices

Mask = npt.NDArray[np.bool_]
_SIDES = (1, 2, 4)  # of a cluster, in tiles
MOST_TILE = 1 << 12  # rows, columns or panels are fewer
MOST_COLS, MOST_FEW = 256, 512  # of a tile, and of a result that one or two tiles cover
WIDE_COLS, WIDE_ROWS = 384, 128  # of tiles that fit: their sums fit registers
# The rows that a warpgroup takes at least; the narrowest tile, and step.
WARPGROUP_ROWS, LEAST_COLS, LEAST_DEPTH = 64, 64, 16
# Warpgroups that multiply a tile of so many times those rows, and how many of them lie side by side
# with a part of its columns each. Where three of them fit they took 0.93 to 1.0 times as long as
# two side by side, and one that takes all three parts as long (55 products, 2026-11-27).
MOST_TEAM, LEAST_BESIDE = 4, 32
# Columns of a tile that three multiply: of 65536 registers 512 threads have 128 each at a launch,
# and an instruction of more columns does not compile with those.
MOST_OF_THREE = 192
TEAMS = {1: ((1, 1), (2, 2)), 2: ((2, 1),), 3: ((3, 1), (2, 2)), 4: ((2, 1),)}


def of_lines(sides: Matrices) -> bool:
    """Whether bulk copies store tiles of any columns in eights: results lie in lines of a side."""
    (store,) = sides.summary.stores
    return store.fast in TILE_LETTERS and store.aligned % BULK_BYTES == 0


def fitted(sides: Matrices, target: Target) -> tuple[tuple[int, int], ...]:
    """Rows and columns of tiles that cover the result in a few waves with the least columns.

    Tiles have 64 rows or a multiple, columns in eights. So of 73 rows that are columns here 80 are
    multiplied, and each weight is read once; and units have all alike to do where tiles of round
    sizes leave some of them idle. Columns that lie side by side are copied in lines.
    """
    summary, (rows, cols) = sides.summary, sides.there
    itemsize = max(DTYPES[t].itemsize for t in summary.products[0].dtypes)
    lines = any("q" in a.letters and along_side(a) for a in summary.loads if a.feeds_product)
    # Half a line costs some of the instructions' rate, and fits better.
    steps = [PANEL_BYTES // itemsize // part for part in (1, 2)] if lines else [CORE_COLS]
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
            few = part <= 2 and cols <= MOST_FEW
            beside = (across for _, across in TEAMS[m // WARPGROUP_ROWS])
            whole = {lcm(step, CORE_COLS * n) for step in steps
                     for n in (*beside, *(splits if few else ()))}  # fmt: skip
            wide = [-(-fitting // s) * s for s in sorted(whole)]
            if not lines:  # more are copied in two boxes of whole eights
                two = -(-fitting // (2 * CORE_COLS)) * 2 * CORE_COLS
                wide = [n if n <= MOST_COLS else two for n in wide]
            most = WIDE_COLS if m <= WIDE_ROWS else MOST_COLS
            found.update(dict.fromkeys((m, n) for n in wide if part and n <= most))
    return tuple(found)


class Table(NamedTuple):
    """Tiles of a target's rows, whatever product they are of; see `gemm.PARAMETERS`.

    Attributes:
        chosen: parameters but the band and the stages, by name.
        names: of the rows.
        rate: operations of the row.
        uneven: tiles that are no whole instructions and warpgroups.
        wide, panels, panel_bytes: columns of a panel of the result, panels of a consumer's part of
            a tile, and bytes of one of them for all consumers.
    """

    chosen: dict[str, Column]
    names: tuple[str, ...]
    rate: Column
    uneven: Mask
    wide: Column
    panels: Column
    panel_bytes: Column


@lru_cache(maxsize=256)
def _table(
    rows: tuple[tuple[str, float, int, int], ...],
    tiles: tuple[tuple[int, int, int], ...],
    clusters: tuple[int, ...],
    splits: tuple[int, ...],
    rests: tuple[int, ...],
    depth: int,
    itemsize: int,
    products: int,
    turned: bool,
    lines: bool,
) -> Table:
    """All combinations.

    Args:
        rows: (name, operations a second, rows and columns that a tile has a multiple of).
        tiles: rows and columns, and panels in shared memory at most.
        clusters: CTAs of one that share operands.
        splits: CTAs of one that take parts of a tile's steps.
        rests: the same of tiles that fill no wave alone.
        depth: of a step.
        itemsize: bytes of an element of the result.
        products: whose sums a consumer holds.
        turned: as in `Matrices`.
        lines: as in `panel_width`.
    """
    sides = sorted(product(_SIDES, repeat=2), key=lambda side: (prod(side), side[1]))
    ways = [(rows, cols, 1, 0) for rows, cols in sides if rows * cols in clusters]
    ways += [(1, 1, n, rest) for rest, some in enumerate((splits, rests)) for n in some if n > 1]
    teams = [(*tile, *team) for tile in tiles for team in TEAMS.get(tile[0] // WARPGROUP_ROWS, ())]
    at, tile, way = grid_of(range(len(rows)), range(len(teams)), range(len(ways)))
    m, n, most, consumers, across = np.array(teams, float)[tile.astype(int)].T
    names, rates, *steps = zip(*rows, strict=True)
    row, (m_step, n_step) = at.astype(int), np.array(steps)
    shared = np.array(ways, float)[way.astype(int)]
    own = np.maximum(n // (shared[:, 2] * across), 1)  # columns that a consumer stores
    sums = m * n * products / (consumers * GROUP_THREADS)
    panel = partial(panel_width, itemsize=itemsize, major=int(not turned), lines=lines)
    widest = of_each(own, panel)
    held = panel_most(widest, consumers, sums, m * across / consumers, itemsize)
    wide = of_each(
        own * MOST_TILE + held, lambda pair: panel(pair // MOST_TILE, most=pair % MOST_TILE)
    )
    panels = np.ceil(own / wide)
    pairs = zip(panels.astype(int).tolist(), most.astype(int).tolist(), strict=True)
    staging = np.array([float(staged_panels(*pair)) for pair in pairs])
    chosen = {
        "m": m, "n": n, "k": np.full(len(m), float(depth)),
        "consumers": consumers, "across": across, "staging": staging, "cluster_rows": shared[:, 0],
        "cluster_cols": shared[:, 1], "split": shared[:, 2],
        "rest": shared[:, 3],
        "turned": np.full(len(m), float(turned)),
    }  # fmt: skip
    least, even = CORE_COLS * shared[:, 2] * across, m_step[row] * (consumers // across)
    uneven = (m % even + n % least + n % n_step[row]) > 0
    # Of few panels as many are in shared memory whatever most are offered.
    same = ((row * len(ways) + way) * MOST_TILE + m) * MOST_TILE + n
    same = (same * MOST_TEAM + across) * MOST_TILE + staging
    kept = np.sort(np.unique(same, return_index=True)[1])
    # Consumers side by side share no steps with other CTAs, and have 32 columns each at least.
    fits = (across == 1) | (shared[:, 2] == 1) & (n >= across * LEAST_BESIDE)
    kept = kept[(fits & ((consumers < 3) | (n <= MOST_OF_THREE)))[kept]]
    made = tuple(names[r] for r in row[kept].tolist())
    columns = (np.array(rates)[row], uneven, wide, panels, m * across * wide * itemsize)
    return Table({x: c[kept] for x, c in chosen.items()}, made, *(c[kept] for c in columns))


def offered(sides: Matrices, lines: bool, target: Target) -> Table:
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
        tiles += [(m, n, 1) for m, n in fitted(sides, target)]
    deepest = max(LEAST_DEPTH, power_of_two_from(prod(work.reduced)))
    depth = min(PANEL_BYTES // DTYPES[work.dtype].itemsize, deepest)
    ways = (target.sizes(f"product_{name}") for name in ("cluster", "split", "rest"))
    return _table(
        tuple(rows), tuple(dict.fromkeys(tiles)), *ways, depth, store.itemsize,
        len(sides.summary.products), sides.turned, lines,
    )  # fmt: skip


def of_each(column: Column, of: Callable[[int], float]) -> Column:
    """A function of every entry of a column of few whole numbers."""
    several, at = np.unique(column.astype(int), return_inverse=True)
    return np.array([of(n) for n in several.tolist()])[at]


def along_side(access: Access) -> bool:
    """Whether an operand is contiguous along its rows or columns, not along the reduced dim."""
    return access.fast in TILE_LETTERS


def bands(sides: Matrices, chosen: Mapping[str, Column], target: Target) -> Column:
    """Rows of tiles that the units are at together: what they read is least where it is square.

    A power of two, so that bands fill the rows of most shapes. With 132 units that is 16 tiles of
    128 x 256, which is what measured best.
    """
    fed = ["p" in a.letters for a in sides.summary.loads if a.feeds_product]
    cols = chosen["n"] * max(fed.count(False), 1)
    square = np.sqrt(target.n_units * cols / (chosen["m"] * max(fed.count(True), 1)))
    rows, across = (
        np.ceil(there / chosen[of]) for there, of in zip(sides.there, "mn", strict=True)
    )
    band = np.clip(2.0 ** np.floor(np.log2(np.maximum(square, 1))), 1, rows)
    # Where the units are at whole rows of few tiles, those of a row are neighbours in time.
    return np.where((band * across < target.n_units) & (across < rows), 1, band)
