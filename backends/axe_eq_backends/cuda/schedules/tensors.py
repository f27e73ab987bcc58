"""What schedules of memory-bound kernels share: operands, tiles and thread layouts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from axe_eq.errors import ScheduleError
from axe_eq.kernel import ir
from axe_eq.kernel.build import Builder
from axe_eq.kernel.expr import Int, ceil_div
from axe_eq.kernel.ir import span
from axe_eq.layout import Layout
from axe_eq.program.types import DTYPES

VECTOR_BYTES = 16


@dataclass(frozen=True)
class Operand:
    """A tensor read or written over an index space.

    Attributes:
        name, dtype: of the tensor.
        strides: elements between neighbours along every dim of the index space; 0 where it is
            broadcast.
    """

    name: str
    dtype: str
    strides: tuple[int, ...]


def dense(
    name: str, dtype: str, shape: Sequence[int], kept: Sequence[int] | None = None
) -> Operand:
    """A row-major tensor over the `kept` dims of an index space (all by default)."""
    dims = range(len(shape)) if kept is None else kept
    strides, size = [0] * len(shape), 1
    for d in sorted(dims, reverse=True):
        strides[d] = size
        size *= shape[d]
    return Operand(name, dtype, tuple(strides))


def collapse(
    shape: Sequence[int], operands: Sequence[Operand], frozen: int = 0
) -> tuple[tuple[int, ...], list[Operand]]:
    """Fuse neighbouring dims that are one run in every operand, but not the last `frozen`."""
    dims: list[tuple[int, tuple[int, ...]]] = []
    for d, extent in enumerate(shape):
        strides = tuple(o.strides[d] for o in operands)
        apart = d >= len(shape) - frozen
        if dims and not apart:
            before, slow = dims[-1]
            if all(s == f * extent for s, f in zip(slow, strides, strict=True)):
                dims[-1] = (before * extent, strides)
                continue
        dims.append((extent, strides))
    kept = [(e, s) for i, (e, s) in enumerate(dims) if e != 1 or i >= len(dims) - max(frozen, 1)]
    found = [Operand(o.name, o.dtype, tuple(s[n] for _, s in kept)) for n, o in enumerate(operands)]
    return tuple(e for e, _ in kept), found


class Space:
    """An index space whose last two dims are tiled; slower dims are one tile each.

    Declares the operands' tensors and gives the views of one tile.
    """

    def __init__(
        self,
        k: Builder,
        shape: tuple[int, ...],
        operands: Sequence[Operand],
        outputs: Sequence[Operand],
    ) -> None:
        self.k, self.shape = k, shape
        self.tensors: dict[str, tuple[Operand, ir.Buffer]] = {}
        names = {o.name for o in outputs}
        for o in [*operands, *outputs]:
            if o.name in self.tensors:
                raise ScheduleError(f"operand {o.name}", "is given twice", "one name each")
            dims = [d for d, s in enumerate(o.strides) if s]
            extents, strides = [shape[d] for d in dims], [o.strides[d] for d in dims]
            buffer = k.tensor(
                o.name, o.dtype, extents or [1], strides=strides or [1], output=o.name in names
            )
            self.tensors[o.name] = o, buffer

    def tiles(self, tile: tuple[int, int]) -> Int:
        """Number of tiles."""
        *outer, rows, cols = self.shape
        return prod(outer) * ceil_div(rows, tile[0]) * ceil_div(cols, tile[1])

    def begin(self, number: Int, tile: tuple[int, int]) -> list[Int]:
        """First index of tile `number`, fastest dim first in the numbering."""
        k, counts = self.k, [*self.shape[:-2], *map(ceil_div, self.shape[-2:], tile)]
        out: list[Int] = []
        for d in range(len(counts) - 1, -1, -1):
            size = tile[d - len(counts) + 2] if d >= len(counts) - 2 else 1
            digit = number % counts[d] if d else number
            out.insert(0, k.let(f"begin{d}", digit * size))
            number = number // counts[d]
        return out

    def view(self, name: str, begin: Sequence[Int], tile: tuple[int, int]) -> ir.View:
        """The tile's part of a tensor: (rows, cols) without the broadcast dims."""
        operand, buffer = self.tensors[name]
        last = len(self.shape) - 2
        index: list[ir.Subscript] = [
            span(b, tile[d - last]) if d >= last else b
            for d, (b, s) in enumerate(zip(begin, operand.strides, strict=True))
            if s
        ]
        return buffer[tuple(index)] if index else buffer[0:1]

    def load(
        self, name: str, begin: Sequence[Int], tile: tuple[int, int], layout: ir.Buffer
    ) -> ir.View:
        """Read the tile's part into registers that lie like `layout`, (rows or 1, cols or 1)."""
        operand, _ = self.tensors[name]
        missing = [d for d, s in enumerate(operand.strides[-2:]) if not s]
        held = self.k.reg_reduced(name, operand.dtype, layout.all, missing)
        index = tuple(0 if d in missing else slice(None) for d in range(2))
        source = self.view(name, begin, tile)
        part = held.all[index] if len(missing) < 2 else held.all[0]
        self.k.copy(part, source)
        return held.all


def vector(operands: Sequence[Operand]) -> int:
    """Elements of 16 bytes of the widest element type that runs along the last dim."""
    sizes = [DTYPES[o.dtype].itemsize for o in operands if o.strides[-1]]
    return VECTOR_BYTES // max(sizes, default=4)


def thread_layout(rows: tuple[int, int], cols: tuple[int, int], wide: int) -> Layout:
    """Registers of a tile, (repeats, threads) of rows and of vectors of `wide` columns.

    Neighbouring threads hold neighbouring vectors of a row.
    """
    (row_repeats, row_threads), (col_repeats, col_threads) = rows, cols
    per_row = col_repeats * wide
    shard = [
        (row_repeats, per_row, "reg"), (row_threads, col_threads, "tx"),
        (col_repeats, wide, "reg"), (col_threads, 1, "tx"), (wide, 1, "reg"),
    ]  # fmt: skip
    return Layout([i for i in shard if i[0] != 1] or [(1, 1, "reg")])


def power_of_two_from(n: int) -> int:
    """The smallest power of two that is at least n."""
    return 1 << max(n - 1, 0).bit_length()
