"""Cell cones: elementwise kernels with any cells, broadcasts and several outputs, memory-bound.

Every thread reads 16-byte vectors of each operand, applies the cells and writes. Dims that are one
run in all operands are fused first, so a dense kernel becomes one-dimensional. Vectors are as short
as rows of results allow: neighbouring threads then write neighbouring elements. Stores of single
elements 16 bytes apart took 2.7 times as long on an H200.
"""

from __future__ import annotations

from collections.abc import Sequence

from axe_eq.kernel.cells import Cell, flops
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.layout import Layout
from axe_eq.program.types import DTYPES
from axe_eq_backends.cuda.schedules.tensors import (
    Operand,
    Space,
    collapse,
    power_of_two_from,
    run_vector,
    thread_layout,
    vector,
)  # fmt: skip
from axe_eq_backends.cuda.sizes import MOST_INSTRUCTIONS, instructions

WARP = 32
# What is best of a CTA's warps and a thread's vectors of 16 bytes.
WARPS, VECTORS = 4, 2
# Of a thread that hold operands and results; addresses and values of cells take the others.
MOST_REGISTERS, OTHER_REGISTERS = 160, 24


def registers(tensors: Sequence[Operand], n_elements: int) -> int:
    """Registers of a thread that hold so many elements of every tensor."""
    return sum(
        -(-n_elements * DTYPES[o.dtype].itemsize // 4)
        for o in tensors
        if any(map(o.varies, range(len(o.strides))))
    )


def fits(fused: Sequence[Operand], work: float, n_elements: int) -> bool:
    """Whether a thread holds so many elements of every tensor, and computes them in few enough."""
    few = registers(fused, n_elements) <= MOST_REGISTERS
    return n_elements == 1 or (few and instructions(work * n_elements) <= MOST_INSTRUCTIONS)


def elementwise(
    shape: Sequence[int],
    operands: Sequence[Operand],
    outputs: Sequence[tuple[Operand, Cell]],
    *,
    name: str = "elementwise",
    warps: int = WARPS,
    wide: int | None = None,
    vectors: int | None = None,
    shifted: bool = False,
) -> ir.Kernel:
    """The kernel that computes every output's cell over the operands at every index.

    Args:
        shape: the index space.
        operands: tensors that are read; operand i of a cell is the i-th.
        outputs: tensors that are written, with their cells.
        name: of the kernel.
        warps: of one CTA.
        wide: elements of a vector; by default as many as rows of results allow.
        vectors: of a thread and operand; by default, as `wide`, what is best of those that fit.
        shifted: rows begin anywhere, and vectors where memory is aligned for them.
    """
    shape, fused = spread(shape, [*operands, *(o for o, _ in outputs)])
    ins, outs = fused[: len(operands)], fused[len(operands) :]
    if wide is None or vectors is None:
        held, work = VECTORS * vector(fused), sum(flops(cell) for _, cell in outputs)
        while not fits(fused, work, held):
            held //= 2
        wide = min(vector(fused), run_vector(outs, len(shape) - 1), held)
        vectors = held // wide
    tile, layout = tiled(shape, fused, warps, wide, vectors, shifted)
    k = ThreadBuilder(name, warps)
    space = Space(k, shape, ins, outs, wide if shifted else 0)
    index = k.reg("index", "i32", tile, layout)
    with k.tiles(space.tiles(tile), persistent=False) as number:
        for begin in space.places(number, tile):
            loaded: dict[int, ir.View] = {}
            for n, o in enumerate(ins):
                loaded[n] = space.load(o, begin, tile, index, values=loaded)
            for out, (_, cell) in zip(outs, outputs, strict=True):
                space.store(out, cell, loaded, begin, tile, index)
    return k.finish()


def spread(
    shape: Sequence[int], tensors: Sequence[Operand]
) -> tuple[tuple[int, ...], list[Operand]]:
    """The index space with dims fused that are one run in all tensors; of two dims at least."""
    shape, fused = collapse(shape, tensors)
    return (shape, fused) if len(shape) > 1 else ((1, *shape), [o.widened() for o in fused])


def tiled(
    shape: Sequence[int],
    tensors: Sequence[Operand],
    warps: int,
    wide: int,
    vectors: int,
    shifted: bool = False,
) -> tuple[tuple[int, ...], Layout]:
    """A tile, and its registers: vectors of neighbouring threads follow each other.

    Its rows and columns; where the last two dims are less than that, the dim before them too. A
    thread's vectors are in several rows where rows are few threads, or where a tensor is the same
    in all of them, so that it is read once.
    """
    threads, last = WARP * warps, len(shape) - 1
    across = min(power_of_two_from(-(-shape[-1] // wide)), threads)
    if shape[-2] == 1:
        across = threads
    down = threads // across
    if len(shape) > 2 and shape[-2] < down:
        rows = power_of_two_from(shape[-2])
        deep = down // rows
        shard = [
            (vectors, wide, "reg"), (deep, rows * across, "tx"), (rows, across, "tx"),
            (across, 1, "tx"), (wide, 1, "reg"),
        ]  # fmt: skip
        return (vectors * deep, rows, across * wide), Layout([i for i in shard if i[0] != 1])
    again = any(o.varies(last) and not o.varies(last - 1) for o in tensors)
    if shifted:  # rows of a tile begin alike
        again = again and not any(o.strides[-2] % wide for o in tensors if not o.counts)
    in_rows = down > 1 or (again and shape[-2] >= vectors)
    repeats = (vectors, 1) if in_rows else (1, vectors)
    tile = (repeats[0] * down, repeats[1] * across * wide)
    return tile, thread_layout((repeats[0], down), (repeats[1], across), wide)
