"""Tiles of products through registers: what threads hold of them, and how deep their steps are."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from math import gcd, prod

from axe_eq.errors import ScheduleError
from axe_eq.layout import Layout
from axe_eq.program.types import DTYPES
from axe_eq_backends.cuda import mma
from axe_eq_backends.cuda.schedules.tensors import VECTOR_BYTES, power_of_two_from

WARP, WORD = 32, 4
# Bytes of a row that a step of a full tile reads, as measured on f16, f32 and f64; warps of a CTA.
STEP_BYTES, WARPS = 64, 4
# Registers of a thread that tiles take, since addresses take the others; of these, fragments' and
# accumulators'. Bytes of a CTA's accumulators.
MOST_HELD, OF_FRAGMENTS, OF_SUMS = 232, 48, 128
MOST_BYTES = OF_SUMS * WORD * WARP * WARPS
# Parts of a tile's rows that are stored one after the other.
MOST_PARTS = 4


@dataclass(frozen=True)
class Tile:
    """How one CTA works.

    Attributes:
        m, n, k: its tile and step, powers of two.
        matrix: products on matrix units; else on ordinary lanes.
        dtype: what factors are multiplied in; "" for the contraction's own.
        warps: of the CTA.
        band: rows of tiles that CTAs take together.
    """

    m: int
    n: int
    k: int
    matrix: bool
    dtype: str = ""
    warps: int = WARPS
    band: int = 8


PARAMETERS = frozenset({"m", "n", "k", "warps", "band"})  # of a candidate: fields of `Tile`


def least_tile(matrix: bool) -> tuple[int, int]:
    """Rows and columns of the smallest tile."""
    return (16, 32) if matrix else (16, 16)


def largest_tile(dtype: str) -> int:
    """Accumulators of a CTA's products of an element type."""
    return MOST_BYTES // DTYPES[DTYPES[dtype].accumulate].itemsize


def step_depth(
    t: Tile, n_products: int, deepest: int, held: tuple[int, int], read: tuple[int, int], most: int
) -> int:
    """Elements of the reduced dim that a step takes.

    Small tiles wait for every step's reads: fewer, deeper steps. What a step reads is in registers
    while the one before is multiplied. Every thread reads at least one element.

    Args:
        t: the tile, of any step.
        n_products: products with a tile each.
        deepest: extent of the longest reduced dim.
        held: bytes of registers that an element of the rows' factors takes, and of the columns'.
        read: bytes more of those that are there to be read.
        most: times as deep as the steps of a full tile.
    """
    room, dtype = largest_tile(t.dtype) // n_products, DTYPES[t.dtype]
    deep = STEP_BYTES // dtype.itemsize * min(most, max(1, room // (t.m * t.n)))
    whole = max(16 if t.matrix else 4, min(deep, power_of_two_from(deepest)))
    some = power_of_two_from(-(-t.warps * WARP // min(t.m, t.n)))
    least = max(mma.row_of(t.dtype).shape[2] if t.matrix else 4, some)
    depth = max(whole, some)
    sums = t.m * t.n * n_products * DTYPES[dtype.accumulate].itemsize
    free = (MOST_HELD - OF_FRAGMENTS) * WORD * t.warps * WARP - sums
    of_depth, of_there = (t.m * rows + t.n * cols for rows, cols in (held, read))
    while depth > least and of_depth * depth + of_there * min(depth, deepest) > free:
        depth //= 2
    return depth


def accumulator(t: Tile, dtype: str) -> Layout:
    """The layout of the (m, n) accumulator of factors of an element type."""
    if t.matrix:
        return mma.fragment("c", t.m, t.n, warp_grid(t, dtype), dtype)
    return LaneTile(t, DTYPES[dtype].itemsize).accumulator()


@cache
def most_parts(t: Tile, dtype: str) -> int:
    """Parts of a tile's rows that may be stored one after the other: all threads have some of each.

    Args:
        t: the tile.
        dtype: what factors are multiplied in.
    """
    extent, _, axis = accumulator(t, dtype).shard[0]
    return min(extent, MOST_PARTS) if axis == "reg" else 1


def warp_grid(t: Tile, dtype: str) -> tuple[int, int]:
    """Warps over rows and columns of a tile: the least shared memory that all of them read."""
    rows, cols, _ = mma.row_of(dtype).shape
    ways = [
        (down, t.warps // down)
        for down in (1, 2, 4, 8)
        if t.warps % down == 0 and t.m % (down * rows) == 0 and t.n % (t.warps // down * cols) == 0
    ]
    if not ways:
        wrong = f"{t.m} x {t.n} for {t.warps} warps"
        raise ScheduleError("tile", wrong, f"multiples of {rows} x {cols}")
    return min(ways, key=lambda w: t.m // w[0] + t.n // w[1])


def few_accumulators(t: Tile, dtype: str, rows: int, cols: int) -> bool:
    """Whether a warp has fewer accumulators than the row that multiplies asks for.

    Warps take turns along a tile. What lies past the ends of so many rows and columns for all of
    them is multiplied by nobody, for compilers leave it out.

    >>> tile = Tile(16, 64, 32, matrix=True)
    >>> few_accumulators(tile, "f64", 1024, 33), few_accumulators(tile, "f64", 1024, 17)
    (False, True)
    """
    row, (down, across) = mma.row_of(dtype), warp_grid(t, dtype)
    sides = (min(t.m, rows), down * row.shape[0]), (min(t.n, cols), across * row.shape[1])
    return prod(-(-there // step) for there, step in sides) < row.limits["accumulators"]


class LaneTile:
    """Where lanes hold a tile: every thread the same number of rows and columns, in vectors.

    The lanes of a warp are 4 by 8, numbered so that lanes that differ in bit 0 read the same of one
    side, and those that differ in bit 1 the same of the other: then a warp reads vectors of 16
    bytes in two passes of shared memory, not four (NVIDIA's forum, "Unexpected shared memory bank
    conflict", of compute capability 7).
    """

    def __init__(self, t: Tile, size: int) -> None:
        self.wide = VECTOR_BYTES // size
        short, long = ((2, 16), (2, 1)), ((8, 2),)  # (extent, stride) of lanes
        ways = [
            {"m": ((down, WARP * across), *rows), "n": ((across, WARP), *cols)}
            for down, across in ((n, t.warps // n) for n in (1, 2, 4, 8) if t.warps % n == 0)
            for rows, cols in ((short, long), (long, short))
        ]
        fit = [w for w in ways if t.m % _count(w["m"]) == 0 and t.n % _count(w["n"]) == 0]
        if not fit:
            wrong = f"{t.m} x {t.n} for {t.warps} warps"
            raise ScheduleError("tile", wrong, "an element of each side for every thread")
        self.threads = min(fit, key=lambda w: t.m // _count(w["m"]) + t.n // _count(w["n"]))
        sides = {"m": t.m, "n": t.n}
        self.per = {side: sides[side] // _count(w) for side, w in self.threads.items()}

    def _side(self, side: str, unit: int) -> list[tuple[int, int, str]]:
        """Iters of a tile's rows or columns, registers `unit` apart."""
        per = self.per[side]
        wide = gcd(per, self.wide)
        threads = [(extent, stride, "tx") for extent, stride in self.threads[side]]
        return [(per // wide, wide * unit, "reg"), *threads, (wide, unit, "reg")]

    def accumulator(self) -> Layout:
        """The layout of the (m, n) accumulator."""
        return _layout([*self._side("m", self.per["n"]), *self._side("n", 1)])

    def fragment(self, side: str, depth: int) -> Layout:
        """The layout of a (rows, depth) operand, replicated over the other side's threads."""
        other = self.threads["n" if side == "m" else "m"]
        shard = [*self._side(side, 1), (depth, self.per[side], "reg")]
        return _layout(shard, [(extent, stride, "tx") for extent, stride in other])


def _count(threads: Iterable[tuple[int, int]]) -> int:
    return prod(extent for extent, _ in threads)


def _layout(
    shard: list[tuple[int, int, str]], replica: list[tuple[int, int, str]] | None = None
) -> Layout:
    kept = [i for i in shard if i[0] != 1]
    return Layout(kept or [(1, 1, "reg")], [i for i in replica or () if i[0] != 1])
