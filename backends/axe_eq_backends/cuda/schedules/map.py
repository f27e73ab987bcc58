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
# Of a thread that hold operands and results; addresses and values of cells take the others.
MOST_REGISTERS = 160


def _registers(tensors: Sequence[Operand], n_elements: int) -> int:
    """Registers of a thread that hold so many elements of every tensor."""
    return sum(
        -(-n_elements * DTYPES[o.dtype].itemsize // 4)
        for o in tensors
        if any(map(o.varies, range(len(o.strides))))
    )


def elementwise(
    shape: Sequence[int],
    operands: Sequence[Operand],
    outputs: Sequence[tuple[Operand, Cell]],
    *,
    name: str = "elementwise",
    warps: int = 4,
    vectors: int = 2,
) -> ir.Kernel:
    """The kernel that computes every output's cell over the operands at every index.

    Args:
        shape: the index space.
        operands: tensors that are read; operand i of a cell is the i-th.
        outputs: tensors that are written, with their cells.
        name: of the kernel.
        warps: of one CTA.
        vectors: 16-byte vectors per thread and operand, or as many elements in shorter ones; fewer
            where many operands take a thread's registers, or cells would be more text than is
            compiled in seconds.
    """
    everything = [*operands, *(o for o, _ in outputs)]
    shape, fused = collapse(shape, everything)
    if len(shape) < 2:
        shape = (1, *shape)
        fused = [o.widened() for o in fused]
    ins, outs = fused[: len(operands)], fused[len(operands) :]
    whole = vector(fused)
    wide = min(whole, run_vector(outs, len(shape) - 1))
    vectors *= whole // wide
    work = sum(flops(cell) for _, cell in outputs)
    while vectors * wide > 1 and (
        _registers(fused, vectors * wide) > MOST_REGISTERS
        or instructions(work * vectors * wide) > MOST_INSTRUCTIONS
    ):
        wide, vectors = (wide, vectors // 2) if vectors > 1 else (wide // 2, 1)
    threads = WARP * warps
    across = min(power_of_two_from(-(-shape[-1] // wide)), threads)
    if shape[-2] == 1:
        across = threads
    down = threads // across
    repeats = (1, vectors) if down == 1 else (vectors, 1)
    tile = (repeats[0] * down, repeats[1] * across * wide)
    layout = thread_layout((repeats[0], down), (repeats[1], across), wide)
    k = ThreadBuilder(name, warps)
    space = Space(k, shape, ins, outs)
    index = k.reg("index", "i32", tile, layout)
    with k.tiles(space.tiles(tile), persistent=False) as number:
        begin = space.begin(number, tile)
        loaded: dict[int, ir.View] = {}
        for n, o in enumerate(ins):
            loaded[n] = space.load(o, begin, tile, index, values=loaded)
        values = list(loaded.values())
        for out, (_, cell) in zip(outs, outputs, strict=True):
            missing = [d for d, s in enumerate(out.strides[-2:]) if not s]
            result = k.reg_reduced(out.name, out.dtype, index.all, missing)
            k.map(cell, result.all, *values)
            kept = tuple(0 if d in missing else slice(None) for d in range(2))
            part = result.all[kept] if len(missing) < 2 else result.all[0]
            k.copy(space.view(out.name, begin, tile), part)
    return k.finish()
