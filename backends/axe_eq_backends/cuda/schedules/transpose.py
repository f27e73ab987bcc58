"""Cell cones whose tensors are contiguous along different dims: relayouts with any cells.

Every thread takes a square block of 16-byte vectors: it reads operands along the dim they are
contiguous in, turns the block in its registers, and writes results along theirs. Neighbouring
lanes continue whole sectors either way. Where vectors do not fit, a padded tile in shared memory
turns single elements, without bank conflicts.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

from axe_eq.kernel.cells import Cell
from axe_eq.kernel.expr import Int
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.layout import Layout
from axe_eq.program.types import DTYPES
from axe_eq_backends.cuda.schedules.tensors import VECTOR_BYTES, Operand, Space

WARP = 32
SMALL = (1, 1)  # warps of the smallest CTA, along both
ELEMENT_WARPS, ELEMENT_SIDE = 4, 32


def turn(
    shape: Sequence[int],
    operands: Sequence[Operand],
    outputs: Sequence[tuple[Operand, Cell]],
    warps: tuple[int, int],
    name: str = "turn",
    side: int | None = None,
    lanes: int = 4,
) -> ir.Kernel:
    """The kernel that computes every output's cell over the operands at every index.

    Args:
        shape: the index space; the last dim is the one that outputs are contiguous in, the one
            before it is that of some operands.
        operands: tensors that are read; operand i of a cell is the i-th.
        outputs: tensors that are written, with their cells.
        warps: of a CTA along the dim that operands are contiguous in, and along the results'.
        name: of the kernel.
        side: elements of a vector; by default as many as blocks may have. 1 turns single elements
            through shared memory, on 4 warps.
        lanes: of a warp along the results' dim; the others lie along the operands'.
    """
    side = side or block_side(shape, [*operands, *(o for o, _ in outputs)])
    return _Turn(shape, operands, outputs, warps, side, name, lanes).write()


def block_side(
    shape: Sequence[int], tensors: Sequence[Operand], n_bytes: int = VECTOR_BYTES
) -> int:
    """Elements of a vector of the narrowest type that all blocks may have, of so many bytes."""
    sizes = [DTYPES[t.dtype].itemsize for t in tensors if not t.counts]
    return gcd(max(1, n_bytes // min(sizes)), shape[-1], shape[-2])


def tile_of(side: int, warps: tuple[int, int], lanes: int) -> tuple[int, int]:
    """Elements of a tile along the operands' dim and along the results'."""
    if side == 1:
        return ELEMENT_SIDE, ELEMENT_SIDE
    return warps[0] * WARP // lanes * side, warps[1] * lanes * side


class _Turn:
    """A tile at a time: every operand comes onto the results' registers, and results leave them.

    Attributes:
        like: registers of a tile that is read along its first dim (0) or its last (1).
    """

    def __init__(
        self,
        shape: Sequence[int],
        operands: Sequence[Operand],
        outputs: Sequence[tuple[Operand, Cell]],
        warps: tuple[int, int],
        side: int,
        name: str,
        lanes: int,
    ) -> None:
        self.operands, self.outputs, self.tile = operands, outputs, tile_of(side, warps, lanes)
        n_warps = warps[0] * warps[1] if side > 1 else ELEMENT_WARPS
        self.k = k = ThreadBuilder(name, n_warps)
        self.space = Space(k, tuple(shape), operands, [o for o, _ in outputs])
        layouts = _of_blocks(warps, side, lanes) if side > 1 else _of_elements()
        self.like = {
            along: k.reg(f"like{along}", "f32", self.tile, layout)
            for along, layout in enumerate(layouts)
        }
        self.through_memory = side == 1

    def write(self) -> ir.Kernel:
        k, space, tile = self.k, self.space, self.tile
        with k.tiles(space.tiles(tile), persistent=False) as number:
            begin = space.begin(number, tile)
            values = {n: self._load(o, begin) for n, o in enumerate(self.operands)}
            for out, cell in self.outputs:
                space.store(out, cell, values, begin, tile, self.like[1])
        return k.finish()

    def _load(self, operand: Operand, begin: list[Int]) -> ir.View:
        """An operand on the results' registers, read along its own dim."""
        along = 0 if operand.strides[-2] == 1 and operand.strides[-1] != 1 else 1
        if along or not operand.strides[-1]:
            return self.space.load(operand, begin, self.tile, self.like[1])
        read = self.space.load(operand, begin, self.tile, self.like[0])
        held = self._through(operand, read)
        turned = self.k.reg_like(operand.name, operand.dtype, self.like[1].all)
        self.k.copy(turned.all, held)
        return turned.all

    def _through(self, operand: Operand, read: ir.View) -> ir.View:
        """Where the results' registers take it from: the other registers, or memory between."""
        if not self.through_memory:
            return read
        k, side = self.k, ELEMENT_SIDE
        # Odd pitch in 4-byte words: neither rows nor columns of a warp meet in one bank.
        pitch = side + max(1, 4 // DTYPES[operand.dtype].itemsize)
        padded = k.smem(
            f"{operand.name}_padded", operand.dtype, self.tile, Layout([(side, 1), (side, pitch)])
        )
        k.copy(padded.all, read)
        k.sync()
        return padded.all


def _of_blocks(warps: tuple[int, int], side: int, lanes: int) -> list[Layout]:
    """Blocks that are turned in registers, read along their first dim and along their last."""
    (slow, fast), (lanes_a, lanes_b) = warps, (WARP // lanes, lanes)
    rows = (slow, 32 * fast, "tx"), (lanes_a, 1, "tx")
    cols = (fast, 32, "tx"), (lanes_b, lanes_a, "tx")
    shards = ([*rows, (side, a, "reg"), *cols, (side, b, "reg")] for a, b in ((1, side), (side, 1)))
    return [Layout([i for i in shard if i[0] != 1]) for shard in shards]


def _of_elements() -> list[Layout]:
    """Single elements that go through a padded tile."""
    down = ELEMENT_SIDE // ELEMENT_WARPS
    slow, lanes = [(down, 1, "reg"), (ELEMENT_WARPS, 1, "warp")], [(32, 1, "lane")]
    return [Layout([*lanes, *slow]), Layout([*slow, *lanes])]
