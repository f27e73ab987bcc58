"""What schedules of memory-bound kernels share: operands, tiles and thread layouts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import gcd, prod
from types import MappingProxyType

from axe_eq.errors import ScheduleError
from axe_eq.kernel.cells import Cell, renumber, used
from axe_eq.kernel.expr import Int, both, ceil_div, equal
from axe_eq.kernel.placement import Iter, Placement
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.kernel.threads.ir import span
from axe_eq.layout import Layout
from axe_eq.program.types import DTYPES
from axe_eq.target import Target

VECTOR_BYTES = 16
APART = "ldst.ld_global_apart"  # the instruction row that reads vectors that begin anywhere
# Indices that one dim may have: tiles that hang over its end still count with 32 bits.
MOST_INDICES, MOST_PARTS = 1 << 30, 1 << 10

Range = tuple[int, int]


@dataclass(frozen=True)
class Look:
    """A dim of a tensor that is none of the index space: it is read where integers say.

    Attributes:
        cell: the integer, over the numbers of operands; at least 0 and below `extent`.
        dtype: i32 or i64.
        stride: elements between neighbours of the dim.
        extent: its indices.
        reach: per dim of the index space whether the integer depends on it.
    """

    cell: Cell
    dtype: str
    stride: int
    extent: int
    reach: tuple[bool, ...]


@dataclass(frozen=True)
class Operand:
    """A tensor read or written over an index space.

    Attributes:
        name, dtype: of the tensor.
        strides: elements between neighbours along every dim of the index space; 0 where it is
            broadcast.
        offset: its element at index 0.
        window: per dim the indices [low, high) at which it is read, or None for all; elsewhere
            nothing is accessed and its value is 0. Empty where there is no window.
        looks: dims beside those of the index space, which are read where other operands say.
        end: (slow dim, fast dim, extent) of two dims that are one of the tensor, which has so many
            elements along it; past them its value is 0.
        counts: it is no tensor: its value is the element number itself (positions along a dim).
    """

    name: str
    dtype: str
    strides: tuple[int, ...]
    offset: int = 0
    window: tuple[Range | None, ...] = ()
    counts: bool = False
    looks: tuple[Look, ...] = ()
    end: tuple[int, int, int] | None = None

    def varies(self, dim: int) -> bool:
        """Whether its value depends on a dim of the index space."""
        return bool(self.strides[dim]) or any(look.reach[dim] for look in self.looks)

    def bound(self, dim: int) -> Range | None:
        """The window along a dim, None where there is none."""
        return self.window[dim] if self.window else None

    def over(self, dims: Sequence[int]) -> Operand:
        """The same tensor over a choice of its dims, in that order."""
        window = tuple(self.window[d] for d in dims) if self.window else ()
        looks = tuple(replace(x, reach=tuple(x.reach[d] for d in dims)) for x in self.looks)
        strides = tuple(self.strides[d] for d in dims)
        end = self.end and (dims.index(self.end[0]), dims.index(self.end[1]), self.end[2])
        return Operand(self.name, self.dtype, strides, self.offset, window, self.counts, looks, end)

    def widened(self) -> Operand:
        """The same tensor with one more dim in front, which it does not depend on."""
        window = (None, *self.window) if self.window else ()
        looks = tuple(replace(x, reach=(False, *x.reach)) for x in self.looks)
        end = self.end and (self.end[0] + 1, self.end[1] + 1, self.end[2])
        return replace(self, strides=(0, *self.strides), window=window, looks=looks, end=end)


def with_looks(numbers: Collection[int], operands: Sequence[Operand]) -> set[int]:
    """Numbers of operands with those of the operands that say where they are read."""
    found, fresh = set[int](), set(numbers)
    while fresh:
        found |= fresh
        known = [operands[n] for n in fresh if n < len(operands)]
        fresh = {n for o in known for look in o.looks for n in used(look.cell)} - found
    return found


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
    """Fuse neighbouring dims that are one run in every operand, but not the last `frozen`.

    No dim gets more than `MOST_INDICES`; longer ones are split where that is possible.
    """
    # A dim of one index stands between none: those on its sides may be one run.
    whole = [d for d, e in enumerate(shape) if e != 1 or d >= len(shape) - max(frozen, 1)]
    shape, operands = [shape[d] for d in whole], [o.over(whole) for o in operands]
    shape, operands = _split(shape, operands, frozen)
    dims: list[tuple[int, int]] = []  # extent, and the fastest of the dims that are one
    for d, extent in enumerate(shape):
        few = bool(dims) and dims[-1][0] * extent <= MOST_INDICES
        if few and d < len(shape) - frozen and _continues(operands, dims[-1][1], d, extent):
            dims[-1] = (dims[-1][0] * extent, d)
        else:
            dims.append((extent, d))
    kept = [x for i, x in enumerate(dims) if x[0] != 1 or i >= len(dims) - max(frozen, 1)]
    return tuple(e for e, _ in kept), [o.over([d for _, d in kept]) for o in operands]


def _split(
    shape: Sequence[int], operands: Sequence[Operand], frozen: int
) -> tuple[list[int], list[Operand]]:
    """Dims of too many indices as two, but for the last `frozen` and those that are counted."""
    shape, operands = list(shape), list(operands)
    for d in range(len(shape) - frozen - 1, -1, -1):
        inner = _largest_divisor(shape[d])
        if inner in (1, shape[d]) or any(
            o.bound(d) or (o.counts and o.strides[d]) for o in operands
        ):
            continue
        shape[d : d + 1] = [shape[d] // inner, inner]
        operands = [with_split(o, d, inner) for o in operands]
    return shape, operands


def _largest_divisor(extent: int) -> int:
    """The largest divisor that is at most `MOST_INDICES`, 1 where none is nearly as large."""
    least = -(-extent // MOST_INDICES)
    parts = (n for n in range(least, MOST_PARTS * least) if extent % n == 0)
    return extent // next(parts, extent)


def alike(
    shape: Sequence[int], read: Sequence[Operand], stored: Sequence[Operand], row: int, wide: int
) -> tuple[tuple[int, ...], list[Operand], list[Operand]] | None:
    """The same tensors with rows next to each other that are `wide` apart: they begin alike.

    Vectors of `wide` elements, that is. So a tile may have several of them, which read what is the
    same in all rows once. None where nothing is, or `wide` does not divide the rows.

    Args:
        shape: extents of their dims, the last one along rows.
        read: tensors.
        stored: tensors.
        row: the dim of rows.
        wide: elements.
    """
    last, tensors = len(shape) - 1, [*read, *stored]
    if shape[row] % wide or shape[row] == wide:
        return None
    if any(o.looks or o.end or o.bound(row) or (o.counts and o.strides[row]) for o in tensors):
        return None
    if not any(o.varies(last) and not (o.varies(row) or o.counts) for o in read):
        return None
    order = [*range(row), row + 1, row, *range(row + 2, last + 2)]
    cut = [with_split(o, row, wide).over(order) for o in tensors]
    extents = (*shape[:row], wide, shape[row] // wide, *shape[row + 1 :])
    return extents, cut[: len(read)], cut[len(read) :]


def with_split(o: Operand, dim: int, inner: int) -> Operand:
    """The operand over a dim as two, the faster one of `inner` indices."""
    strides = (*o.strides[:dim], o.strides[dim] * inner, *o.strides[dim:])
    window = (*o.window[:dim], None, *o.window[dim:]) if o.window else ()
    looks = tuple(replace(x, reach=(*x.reach[:dim], x.reach[dim], *x.reach[dim:])) for x in o.looks)
    return replace(o, strides=strides, window=window, looks=looks)


def _continues(operands: Sequence[Operand], slow: int, fast: int, extent: int) -> bool:
    """Whether every operand runs through two dims as through one."""
    return not any(
        o.bound(slow) or o.bound(fast) or o.strides[slow] != o.strides[fast] * extent
        for o in operands
    )


class Space:
    """An index space whose last two or three dims are tiled; slower dims are one tile each.

    Declares the operands' tensors and gives the views of one tile. With `shifted`, tiles are of one
    row, or of rows that begin alike, and begin where memory is aligned for vectors of so many
    elements: up to so many less one before their row, so the first tile of a row and the last one
    hang over its ends.
    """

    def __init__(
        self,
        k: ThreadBuilder,
        shape: tuple[int, ...],
        operands: Sequence[Operand],
        outputs: Sequence[Operand],
        shifted: int = 0,
    ) -> None:
        self.k, self.shape, self.shifted = k, shape, shifted
        self.ahead = max(0, shifted - 1)
        self.led = leading(operands, outputs)
        self.tensors: dict[str, tuple[Operand, ir.Buffer]] = {}
        names = {o.name for o in outputs}
        for o in [*operands, *outputs]:
            if o.counts:
                continue
            if o.name in self.tensors:
                raise ScheduleError(f"operand {o.name}", "is given twice", "one name each")
            buffer = declare(
                k, o, shape, [d for d in range(len(shape)) if o.varies(d)], o.name in names
            )
            self.tensors[o.name] = o, buffer

    def tiles(self, tile: tuple[int, ...]) -> Int:
        """Number of tiles."""
        shape = self._covered
        outer, inner = shape[: -len(tile)], shape[-len(tile) :]
        return prod(outer) * prod(map(ceil_div, inner, tile))

    def begin(self, number: Int, tile: tuple[int, ...]) -> list[Int]:
        """First index of tile `number`, fastest dim first in the numbering."""
        sizes = (*[1] * (len(self.shape) - len(tile)), *tile)
        counts = [*map(ceil_div, self._covered, sizes)]
        dims = list(range(len(counts)))
        # Tiles of rows that begin alike follow each other as those rows lie in memory.
        if self.shifted and self.led is not None and tile[:-1] != (1,):
            dims.sort(key=[-abs(s) for s in self.led.strides].__getitem__)
        return self.aligned(begins(self.k, number, counts, sizes, dims=dims))

    def places(self, number: Int, tile: tuple[int, ...]) -> Iterator[list[Int]]:
        """First index of tile `number`, in every branch of the kernel that has one of its own.

        Of rows that begin anywhere one is for tiles inside of them, where nothing is guarded.
        """
        first, cols, k = self.begin(number, tile), tile[-1], self.k
        last = self.shape[-1] - cols - self.shifted
        if not self.shifted or last < cols:
            yield first
            return
        at = number % ceil_div(self._covered[-1], cols) * cols
        inside = both(at >= cols, at <= last)
        assert inside is not None
        with k.when(inside):
            yield self.aligned([*first[:-1], k.let("inner", at, low=cols, high=last)])
        with k.when(equal(inside, 0)):
            yield first

    @property
    def _covered(self) -> tuple[int, ...]:
        return (*self.shape[:-1], self.shape[-1] + self.ahead)

    def aligned(self, begin: list[Int]) -> list[Int]:
        """The index of a tile less what its row begins past an aligned element."""
        o, wide = self.led, self.shifted
        if o is None or not wide:
            return begin
        past: Int = o.offset % wide
        for at, stride in zip(begin[:-1], o.strides[:-1], strict=True):
            past = past + at % wide * (stride % wide)
        return [*begin[:-1], begin[-1] - past % wide]

    def view(self, name: str, begin: Sequence[Int], tile: tuple[int, ...]) -> ir.View:
        """The tile's part of a tensor: its tiled dims, without the broadcast ones."""
        operand, buffer = self.tensors[name]
        kept = [d for d in range(len(operand.strides)) if operand.varies(d)]
        if not kept:
            return buffer[(slice(0, 1), *[0] * (len(buffer.shape) - 1))]
        first = [begin[d] - (operand.bound(d) or (0, 0))[0] for d in kept]
        inner = len(self.shape) - len(tile)
        sizes = [tile[d - inner] if d >= inner else 0 for d in kept]
        if not any(sizes):
            sizes[-1] = 1  # one value for the whole tile is a run of one
        own = tuple(span(b, n) if n else b for b, n in zip(first, sizes, strict=True))
        return buffer[own + (0,) * len(operand.looks)]

    def load(
        self,
        operand: Operand,
        begin: Sequence[Int],
        tile: tuple[int, ...],
        layout: ir.Buffer,
        fill: float = 0.0,
        values: Mapping[int, ir.View] = MappingProxyType({}),
    ) -> ir.View:
        """Read the tile's part into registers that lie like `layout`, 1 for what is broadcast.

        Outside the tensor its value is `fill`. `values` are the operands that say where it is read,
        by number.
        """
        rank, outer = len(tile), len(self.shape) - len(tile)
        missing = [d for d in range(rank) if not operand.varies(outer + d)]
        held = self.k.reg_reduced(operand.name, operand.dtype, layout.all, missing).all
        if operand.counts:
            dims = [d for d, s in enumerate(operand.strides) if s]
            if not dims:  # along a dim of one index, which the space is without
                self.k.fill(held, 0)
            for dim in dims:
                self.k.index(held, max(dim - outer, 0), begin[dim])
            return held
        index = indexed(missing, rank)
        source = self.view(operand.name, begin, tile)
        target = held[index]
        if not operand.looks:
            apart = begins_apart(operand, self.led, self.shifted)
            self.k.copy(target, source, fill, via=APART if apart else "")
            return held
        first = len(source.buffer.shape) - len(operand.looks)
        at = [
            (dim, self._look(look, layout, index, values))
            for dim, look in enumerate(operand.looks, first)
        ]
        self.k.gather(target, source, at, fill)
        return held

    def _look(
        self,
        look: Look,
        layout: ir.Buffer,
        index: tuple[int | slice, ...],
        values: Mapping[int, ir.View],
    ) -> ir.View:
        """Where a tile of a tensor is read along a dim, over the dims that the tensor varies in."""
        rank = len(layout.shape)
        missing = [d for d in range(rank) if not look.reach[len(self.shape) - rank + d]]
        tile = self.k.reg_reduced("place", look.dtype, layout.all, missing)
        mapped(self.k, look.cell, tile.all, values)
        return tile.all[index]

    def store(
        self,
        out: Operand,
        cell: Cell,
        values: Mapping[int, ir.View],
        begin: Sequence[Int],
        tile: tuple[int, ...],
        layout: ir.Buffer,
    ) -> None:
        """Write a cell of numbered values to the tile's part of a tensor, from registers so."""
        missing = [d for d, s in enumerate(out.strides[-len(tile) :]) if not s]
        result = self.k.reg_reduced(out.name, out.dtype, layout.all, missing)
        mapped(self.k, cell, result.all, values)
        part = result.all[indexed(missing, len(tile))]
        self.k.copy(self.view(out.name, begin, tile), part)


def leading(operands: Sequence[Operand], outputs: Sequence[Operand]) -> Operand | None:
    """The tensor that vectors of shifted rows are aligned for: a result where one has rows."""
    read = [o for o in operands if not o.counts]
    return next((o for o in [*outputs, *read] if o.strides[-1] == 1), None)


def begins_apart(o: Operand, led: Operand | None, wide: int) -> bool:
    """Whether vectors of an operand are not aligned where those of shifted rows are."""
    if not wide or led is None or not o.strides[-1] or wide * DTYPES[o.dtype].itemsize <= 4:
        return False
    pairs = zip((*o.strides[:-1], o.offset), (*led.strides[:-1], led.offset), strict=True)
    return any((a - b) % wide for a, b in pairs)


def begins(
    k: ThreadBuilder,
    number: Int,
    counts: Sequence[Int],
    sizes: Sequence[int],
    whole: int = -1,
    dims: Sequence[int] = (),
) -> list[Int]:
    """First index of tile `number` along every dim, fastest dim first in the numbering.

    Args:
        k: where they are named.
        number: of the tile.
        counts: tiles along every dim.
        sizes: of a tile.
        whole: a dim that no tile cuts.
        dims: in the order of the numbering, fastest last; by default as they are.
    """
    order, out = dims or range(len(counts)), dict[int, Int]()
    for d in reversed(order):
        digit = number % counts[d] if d != order[0] else number
        out[d] = 0 if d == whole else k.let(f"begin{d}", digit * sizes[d])
        number = number // counts[d]
    return [out[d] for d in range(len(counts))]


def mapped(k: ThreadBuilder, cell: Cell, out: ir.View, values: Mapping[int, ir.View]) -> None:
    """Map a cell of numbered values to registers."""
    numbers = sorted(used(cell))
    k.map(renumber(cell, {n: i for i, n in enumerate(numbers)}), out, *(values[n] for n in numbers))


def indexed(missing: Collection[int], rank: int) -> tuple[int | slice, ...]:
    """The index of registers without what they are broadcast along; of one value, a run of it."""
    kept = range(rank) if len(missing) < rank else range(rank - 1)
    return tuple(0 if d in missing else slice(None) for d in kept)


def declare(
    k: ThreadBuilder, operand: Operand, shape: Sequence[int], dims: Sequence[int], output: bool
) -> ir.Buffer:
    """The tensor of an operand, over these dims of the index space."""
    blocks, extents, offset = [], [], operand.offset
    for d in dims:
        low, high = operand.bound(d) or (0, shape[d])
        offset += low * operand.strides[d]
        extents.append(high - low)
        blocks.append((Iter(high - low, operand.strides[d], "m"),) if high - low > 1 else ())
    for look in operand.looks:
        extents.append(look.extent)
        blocks.append((Iter(look.extent, look.stride, "m"),) if look.extent > 1 else ())
    place = Placement(tuple(blocks) or ((),), offset=(("m", offset),) if offset else ())
    return k.tensor(operand.name, operand.dtype, extents or [1], layout=place, output=output)


def vector(operands: Sequence[Operand], n_bytes: int = VECTOR_BYTES) -> int:
    """Elements of so many bytes of the widest element type that runs along the last dim."""
    return vectors(operands, n_bytes)[0]


def vectors(operands: Sequence[Operand], n_bytes: int = VECTOR_BYTES) -> tuple[int, int]:
    """Elements of so many bytes of the widest and of the narrowest type along the last dim.

    Threads that hold the latter read several vectors of what is wider.
    """
    sizes = [DTYPES[o.dtype].itemsize for o in operands if o.strides[-1] and not o.counts] or [4]
    return max(1, n_bytes // max(sizes)), max(1, n_bytes // min(sizes))


def run_vector(operands: Sequence[Operand], dim: int, n_bytes: int = VECTOR_BYTES) -> int:
    """Elements of a vector along a dim that every tensor contiguous there begins aligned at.

    Vectors of the widest element type have at most so many bytes.
    """
    found = VECTOR_BYTES
    for o in operands:
        if o.counts or not o.strides[dim]:
            continue
        size = DTYPES[o.dtype].itemsize
        others = [*o.strides[:dim], *o.strides[dim % len(o.strides) + 1 :]]
        steps = [o.offset, *others, *(look.stride for look in o.looks)]
        aligned = gcd(max(1, n_bytes // size), *steps) if o.strides[dim] == 1 else 1
        found = min(found, aligned)
    return found if found < VECTOR_BYTES else 4


def unaligned(operands: Sequence[Operand], n_bytes: int = VECTOR_BYTES) -> int:
    """Elements of a vector along the last dim for rows that begin anywhere; 0 where none has one.

    Of tensors that are contiguous there or lack it, some of whose rows begin at odd elements. Rows
    of an even number are read by vectors of two as fast (H200, 2026-11-27).
    """
    if not all(o.strides[-1] in (0, 1) for o in operands):
        return 0
    wide = vector(operands, n_bytes)
    alone = run_vector(operands, len(operands[0].strides) - 1, n_bytes) == 1
    return wide if alone and wide > 1 else 0


def widest(target: Target, operands: Sequence[Operand], dim: int) -> int:
    """Elements of the longest vector of a machine that all tensors have along a dim."""
    return run_vector(operands, dim, max(target.sizes("vector_bytes")))


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
