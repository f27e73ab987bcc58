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
    if side == 1:
        return _Elements(shape, operands, outputs, name).write()
    return _Blocks(shape, operands, outputs, warps, side, name, lanes).write()


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

    k: ThreadBuilder
    space: Space
    tile: tuple[int, int]
    operands: Sequence[Operand]
    outputs: Sequence[tuple[Operand, Cell]]
    like: dict[int, ir.Buffer]

    def write(self) -> ir.Kernel:
        k, space, tile = self.k, self.space, self.tile
        with k.tiles(space.tiles(tile), persistent=False) as number:
            begin = space.begin(number, tile)
            values = [self._load(o, begin) for o in self.operands]
            for out, cell in self.outputs:
                result = k.reg_like(out.name, out.dtype, self.like[1].all)
                k.map(cell, result.all, *values)
                kept = tuple(slice(None) if s else 0 for s in out.strides[-2:])
                k.copy(space.view(out.name, begin, tile), result.all[kept])
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
        raise NotImplementedError


class _Blocks(_Turn):
    """Blocks turned in registers."""

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
        (slow, fast), (lanes_a, lanes_b) = warps, (WARP // lanes, lanes)
        self.operands, self.outputs = operands, outputs
        self.k = k = ThreadBuilder(name, slow * fast)
        self.space = Space(k, tuple(shape), operands, [o for o, _ in outputs])
        self.tile = tile_of(side, warps, lanes)
        threads = (slow, 32 * fast, "tx"), (fast, 32, "tx")
        of_warp = (lanes_a, 1, "tx"), (lanes_b, lanes_a, "tx")
        self.like = {}
        for along, steps in ((0, (1, side)), (1, (side, 1))):
            shard = [
                threads[0], of_warp[0], (side, steps[0], "reg"),
                threads[1], of_warp[1], (side, steps[1], "reg"),
            ]  # fmt: skip
            layout = Layout([i for i in shard if i[0] != 1])
            self.like[along] = k.reg(f"like{along}", "f32", self.tile, layout)

    def _through(self, operand: Operand, read: ir.View) -> ir.View:
        return read


class _Elements(_Turn):
    """Single elements through a padded tile."""

    def __init__(
        self,
        shape: Sequence[int],
        operands: Sequence[Operand],
        outputs: Sequence[tuple[Operand, Cell]],
        name: str,
    ) -> None:
        self.operands, self.outputs = operands, outputs
        self.k = k = ThreadBuilder(name, ELEMENT_WARPS)
        self.space = Space(k, tuple(shape), operands, [o for o, _ in outputs])
        down = ELEMENT_SIDE // ELEMENT_WARPS
        self.tile = tile_of(1, (1, 1), 1)
        slow, lanes = [(down, 1, "reg"), (ELEMENT_WARPS, 1, "warp")], [(32, 1, "lane")]
        self.like = {
            0: k.reg("like0", "f32", self.tile, Layout([*lanes, *slow])),
            1: k.reg("like1", "f32", self.tile, Layout([*slow, *lanes])),
        }

    def _through(self, operand: Operand, read: ir.View) -> ir.View:
        k, side = self.k, ELEMENT_SIDE
        # Odd pitch in 4-byte words: neither rows nor columns of a warp meet in one bank.
        pitch = side + max(1, 4 // DTYPES[operand.dtype].itemsize)
        padded = k.smem(
            f"{operand.name}_padded", operand.dtype, self.tile, Layout([(side, 1), (side, pitch)])
        )
        k.copy(padded.all, read)
        k.sync()
        return padded.all
