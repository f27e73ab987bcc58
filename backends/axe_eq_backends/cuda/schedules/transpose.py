"""Transposition of the last two dims, with a cell on the way: relayout cones.

16-bit elements whose rows are 16-byte multiples move by bulk copies and 8x8 matrices: a tile
arrives swizzled, is read as matrices, written transposed into a second tile, and leaves by a bulk
store. Others go through a padded tile, one element at a time, without bank conflicts.
"""

from __future__ import annotations

from math import prod

from axe_eq.kernel import ir
from axe_eq.kernel.build import Builder
from axe_eq.kernel.cells import IDENTITY, Cell
from axe_eq.kernel.expr import Int, ceil_div
from axe_eq.kernel.ir import span
from axe_eq.layout import Layout
from axe_eq.program.types import DTYPES
from axe_eq_backends.cuda.schedules import tiles

WARPS = 4


def transpose(
    shape: tuple[int, ...], dtype: str = "f16", cell: Cell = IDENTITY, name: str = "transpose"
) -> ir.Kernel:
    """out[..., j, i] = cell(x[..., i, j]) for dense x of `shape`.

    Args:
        shape: of x, two dims at least.
        dtype: of both tensors.
        cell: of one operand.
        name: of the kernel.
    """
    *outer, rows, cols = shape
    k, batch = Builder(name, WARPS), prod(outer)
    x = k.tensor("x", dtype, (batch, rows, cols))
    out = k.tensor("out", dtype, (batch, cols, rows), output=True)
    size = DTYPES[dtype].itemsize
    if size == 2 and rows % 8 == 0 and cols % 8 == 0:
        _by_matrices(k, x, out, cell)
    else:
        _by_elements(k, x, out, cell)
    return k.finish()


def _begin(k: Builder, number: Int, x: ir.Buffer, side: int) -> tuple[Int, Int, Int]:
    """(batch, row, column) where tile `number` begins; neighbours in a row first."""
    _, rows, cols = x.shape
    across, down = ceil_div(cols, side), ceil_div(rows, side)
    row = k.let("row", number // across % down * side)
    col = k.let("col", number % across * side)
    return k.let("batch", number // (across * down)), row, col


def _count(x: ir.Buffer, side: int) -> Int:
    batch, rows, cols = x.shape
    return batch * ceil_div(rows, side) * ceil_div(cols, side)


def _by_matrices(k: Builder, x: ir.Buffer, out: ir.Buffer, cell: Cell) -> None:
    side, size = 64, x.itemsize
    panel = tiles.panels((1,), side, side, size)
    arrived = k.smem("arrived", x.dtype, (1, side, side), panel)
    leaving = k.smem("leaving", x.dtype, (1, side, side), panel)
    full = k.mbarriers("full", 1)
    # Warp w holds rows 16 w .. 16 w + 15 as 8x8 fragments.
    layout = Layout(
        [
            (4, 1, "warp"),
            (2, 2, "reg"),
            (8, 4, "lane"),
            (8, 4, "reg"),
            (4, 1, "lane"),
            (2, 1, "reg"),
        ]
    )
    tile = k.reg("tile", x.dtype, (side, side), layout)
    with k.tiles(_count(x, side), persistent=False) as number:
        batch, row, col = _begin(k, number, x, side)
        with k.one_thread(), k.arrives(full, 0):
            k.copy_async(arrived.all, x[span(batch, 1), span(row, side), span(col, side)])
        k.wait(full, 0, 0)
        k.copy(tile.all, arrived[0])
        if cell != IDENTITY:
            k.map(cell, tile.all, tile.all)
        k.copy(leaving[0].T, tile.all)
        k.fence_async()
        k.sync()
        with k.one_thread():
            k.copy_async(out[span(batch, 1), span(col, side), span(row, side)], leaving.all)
            k.commit("bulk")
            k.wait_group("bulk", 0)


def _by_elements(k: Builder, x: ir.Buffer, out: ir.Buffer, cell: Cell) -> None:
    side, lanes = 32, 32
    # Odd row pitch in 4-byte words: neither rows nor columns of a warp meet in one bank.
    pitch = side + max(1, 4 // x.itemsize)
    padded = k.smem("padded", x.dtype, (side, side), Layout([(side, pitch), (side, 1)]))
    down = side // WARPS
    shard = [(down, 1, "reg"), (WARPS, 1, "warp"), (lanes, 1, "lane")]
    by_rows = k.reg("by_rows", x.dtype, (side, side), Layout(shard))
    by_cols = k.reg("by_cols", x.dtype, (side, side), Layout(shard))
    with k.tiles(_count(x, side), persistent=False) as number:
        batch, row, col = _begin(k, number, x, side)
        k.copy(by_rows.all, x[batch, span(row, side), span(col, side)])
        if cell != IDENTITY:
            k.map(cell, by_rows.all, by_rows.all)
        k.copy(padded.all, by_rows.all)
        k.sync()
        k.copy(by_cols.all, padded.all.T)
        k.copy(out[batch, span(col, side), span(row, side)], by_cols.all)
