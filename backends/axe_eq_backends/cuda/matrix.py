"""Copies of 8x8 matrices between registers and shared memory: ldmatrix and stmatrix.

A call moves 1, 2 or 4 matrices of 16-bit elements. Lane l supplies the address of row l % 8 of
matrix l / 8; the matrix lies over the warp as ``S[(8:4@lane),(4:1@lane 2:1@reg)]``, or transposed
with ``.trans`` (PTX ISA 9.7.14.5). Rows of a matrix are 16 contiguous bytes of shared memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

import numpy as np

from axe_eq.errors import DispatchError
from axe_eq.kernel.expr import Int, divisor, evaluate, make
from axe_eq.kernel.placement import Iter, Placement, group, number, tile_of
from axe_eq.kernel.plan import Call, Plan
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.dispatch import Context
from axe_eq.kernel.threads.ir import LANE
from axe_eq.kernel.threads.placement import LANES
from axe_eq.kernel.threads.plan import Address, Regs
from axe_eq.target import Instr
from axe_eq_backends.cuda import threads
from axe_eq_backends.cuda.copies import ISSUE
from axe_eq_backends.cuda.threads import Step

SIDE = 8
ROW_BYTES = 16
FRAGMENT = Placement(((Iter(8, 4, "lane"),), (Iter(4, 1, "lane"), Iter(2, 1, "reg"))))


@dataclass(frozen=True)
class Matrices:
    """How a register tile is moved as matrices, relative to the view's offset.

    Attributes:
        count: matrices of one call.
        trans: whether rows of a matrix in memory are columns of the fragment.
        thread: element offset of the row that this lane addresses, unswizzled.
        calls: per call its first-element register numbers (of `count` 32-bit words) and its element
            offset.
        swizzled: how the swizzle splits.
        passes: bank passes of the worst call over the fewest possible.
    """

    count: int
    trans: bool
    thread: Int
    calls: tuple[tuple[tuple[int, ...], int], ...]
    swizzled: threads.Swizzled
    passes: int


@lru_cache(maxsize=1024)
def matrices(tile: Placement, memory: Placement, limit: int, where: ir.Where) -> Matrices:
    """Derive the matrices of a 2-d register tile and check their rows.

    Raises:
        LayoutError, DispatchError: the tile is not made of fragments, or rows are not contiguous.
    """
    threads.check_threads(tile, where)
    if any(i.axis == "lane" for i in tile.replica):
        raise DispatchError(f"tile {tile}", "has copies in a warp", "one copy of each element")
    outer = tile_of(tile, FRAGMENT, f"tile {tile}")
    contiguous = _contiguous_dim(memory)
    blocks = [
        group(block, (number(extent) // SIDE, SIDE), f"view {memory}")
        for block, extent in zip(memory.blocks, memory.shape, strict=True)
    ]
    row = blocks[1 - contiguous][1]
    if len(row) != 1 or len(blocks[contiguous][1]) != 1:
        raise DispatchError(f"view {memory}", "8 neighbours are not one iter", "rows of 8")
    parts = threads.steps(Placement(outer), Placement(tuple(b[0] for b in blocks)))
    count, slots, rest = _slots(parts, limit)
    thread = threads.thread_part([s for s in parts if s.axis != "reg"], where)
    thread = thread + LANE % SIDE * row[0].stride + _slot_part(slots)
    calls = _calls(slots, rest)
    split = threads.split_swizzle(memory.swizzle, thread, [c for _, c in calls], where)
    found = Matrices(count, contiguous == 0, thread, calls, split, 1)
    return Matrices(count, contiguous == 0, thread, calls, split, _passes(found, memory, where))


def _contiguous_dim(memory: Placement) -> int:
    for dim in (1, 0):
        block = memory.blocks[dim]
        if block and block[-1].stride == 1 and number(block[-1].extent) % SIDE == 0:
            return dim
    raise DispatchError(
        f"view {memory}", "no dim has 8 contiguous elements", f"rows of {ROW_BYTES} bytes"
    )


def _slots(parts: tuple[Step, ...], limit: int) -> tuple[int, list[Step], list[Step]]:
    """Split the register digits: those that number the matrices of one call, and the rest."""
    words = sorted((s for s in parts if s.axis == "reg"), key=lambda s: s.coordinate)
    slots: list[Step] = []
    count = 1
    while words and count < limit:
        s = words.pop(0)
        take = next(n for n in (4, 2, 1) if s.extent % n == 0 and count * n <= limit)
        if take > 1:
            slots.append(s._replace(extent=take))
            count *= take
        if s.extent > take:
            left = s._replace(
                extent=s.extent // take, coordinate=s.coordinate * take, memory=s.memory * take
            )
            words.insert(0, left)
            if take == 1 or count == limit:
                break
    return count, slots, words


def _slot_part(slots: list[Step]) -> Int:
    """Memory offset of matrix lane / 8 of a call."""
    total: Int = 0
    size = 1
    for s in slots:
        total = total + LANE // (SIDE * size) % s.extent * s.memory
        size *= s.extent
    return total


def _calls(slots: list[Step], rest: list[Step]) -> tuple[tuple[tuple[int, ...], int], ...]:
    def at(digits: tuple[int, ...], of: list[Step]) -> int:
        return sum(d * s.coordinate for d, s in zip(digits, of, strict=True))

    inner = [at(d[::-1], slots) for d in product(*(range(s.extent) for s in reversed(slots)))]
    calls = []
    for digits in product(*(range(s.extent) for s in reversed(rest))):
        first = at(digits[::-1], rest)
        offset = sum(d * number(s.memory) for d, s in zip(digits[::-1], rest, strict=True))
        # Words of two elements: word w holds elements 2w and 2w + 1.
        calls.append((tuple(2 * (first + i) for i in inner), offset))
    return tuple(sorted(calls))


def _passes(m: Matrices, memory: Placement, where: ir.Where) -> int:
    rows = np.broadcast_to(evaluate(m.thread, threads.grid(where)), (where.n_warps, LANES))
    worst = 1
    for _, offset in m.calls[:8]:
        at = rows + offset
        at = memory.swizzle.apply(at) if memory.swizzle else at
        for warp, matrix in product(range(where.n_warps), range(m.count)):
            eight = at[warp, SIDE * matrix : SIDE * (matrix + 1)] * 2
            banks = np.bincount(eight // ROW_BYTES % 8, minlength=8)
            worst = max(worst, int(banks.max()))
    return worst


def derive(row: Instr, primitive: ir.Primitive, context: Context) -> Plan:
    """Plan a copy for a row ``matrix.ldmatrix`` or ``matrix.stmatrix``."""
    assert isinstance(primitive, ir.Copy)
    op = row.name.partition(".")[2]
    load = op == "ldmatrix"
    tile, memory = (primitive.dst, primitive.src) if load else (primitive.src, primitive.dst)
    if (tile.buffer.memory, memory.buffer.memory) != ("reg", "smem"):
        moved = f"{primitive.src.buffer.memory} to {primitive.dst.buffer.memory}"
        raise DispatchError(row.name, f"the copy goes from {moved}", "registers and smem")
    if (tile.buffer.dtype,) not in row.dtypes or len(tile.shape) != 2:
        raise DispatchError(
            row.name, f"{tile.buffer.dtype} tile of shape {tile.shape}", "a 16-bit matrix"
        )
    place, offset = memory.place, memory.place.at("m")
    if not threads.aligned_to(place.swizzle, offset) or _misaligned(offset, tile):
        raise DispatchError(f"view {memory}", f"begins at element {offset}", "an aligned begin")
    if tile.place.replica and not load:
        raise DispatchError(f"tile {tile}", "has replicas", "one copy of each element")
    m = matrices(tile.place.static(), place.static(), row.limits["count"], context.where)
    return _plan(row, op, m, tile, memory, context)


def _misaligned(offset: Int, tile: ir.View) -> bool:
    return bool(divisor(offset) * tile.buffer.itemsize % ROW_BYTES)


def _plan(
    row: Instr, op: str, m: Matrices, tile: ir.View, memory: ir.View, context: Context
) -> Plan:
    size, offset = tile.buffer.itemsize, memory.place.at("m")
    swizzle, xor = m.swizzled.swizzle, m.swizzled.xor
    plan = Plan(row, [])
    base = number(tile.place.at("reg"))
    thread: Int = (threads.apply_swizzle(swizzle, m.thread) if xor else m.thread) * size
    if xor or swizzle is None:
        thread = threads.named(plan, context, "at", thread)
    for words, constant in m.calls:
        if xor:
            byte = make("^", thread, m.swizzled.constant(constant) * size)
        elif swizzle is not None:
            byte = threads.apply_swizzle(swizzle, m.thread + constant) * size
        else:
            byte = thread + constant * size
        plan.calls.append(
            Call(
                op,
                {
                    "regs": Regs(tile.buffer, tuple(base + w for w in words)),
                    "address": Address(memory.buffer, byte + offset * size),
                    "count": m.count,
                    "trans": m.trans,
                },
            )
        )
    plan.cycles = float(len(m.calls) * context.where.n_warps * (ISSUE + m.count * m.passes))
    shape = f"x{m.count}" + (".trans" if m.trans else "")
    plan.notes = f"{len(m.calls)} calls {shape}, {m.passes}-way"
    warps = context.where.axes.get("warp", 1)  # in their own scope, each has a tile of its own
    copies = prod(number(i.extent) for i in tile.place.replica)
    if prod(tile.shape) * copies != len(m.calls) * m.count * SIDE * SIDE * warps:
        raise DispatchError(f"tile {tile}", "matrices do not cover it once", "each element once")
    return plan
