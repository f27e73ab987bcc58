"""Loads of elements that registers number: copies of arguments whose addresses depend on data."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd
from typing import NamedTuple

from axe_eq.kernel.placement import number
from axe_eq.kernel.plan import Call, Plan
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.dispatch import Context
from axe_eq.kernel.threads.plan import Regs
from axe_eq.target import Instr
from axe_eq_backends.cuda import threads
from axe_eq_backends.cuda.copies import global_plan
from axe_eq_backends.cuda.warps import check_tile, matching

Registers = dict[int, int]  # of a destination -> of a tile of indices


class Step(NamedTuple):
    """What an index in a register moves a load's address by.

    Attributes:
        register: of the index.
        step: elements between neighbours.
        extent: what the index is below; at least 0 it is.
    """

    register: Regs
    step: int
    extent: int


class Index(NamedTuple):
    """A tile of indices: its registers for those of the destination, and as in `Step`."""

    tile: ir.View
    registers: Registers
    step: int
    extent: int


def derive(row: Instr, primitive: ir.Primitive, context: Context) -> Plan:
    """Plan a gather as the loads of a copy, whose addresses move by steps times indices."""
    assert isinstance(primitive, ir.Gather)
    dst, src = primitive.dst, primitive.src
    threads.check_dtype(row, dst.buffer.dtype)
    check_tile(row, dst, context.where)
    found = []
    for dim, tile in primitive.indices:
        check_tile(row, tile, context.where)
        registers = dict(matching(dst.place.static(), tile.place.static()))
        extent = number(src.buffer.shape[dim])
        found.append(Index(tile, registers, primitive.step(dim), extent))
    most = row.limits["bytes"] // dst.buffer.itemsize
    for index in found:
        most = gcd(most, _run(index.registers), index.step)
    plan = global_plan(row, "ld_global", primitive.fill, dst, src, context, most & -most)
    base = number(dst.place.at("reg"))
    plan.calls = [_indexed(call, found, base) for call in plan.calls]
    plan.cycles += len(plan.calls) * len(found) * context.where.n_warps
    return plan


def _run(registers: Registers) -> int:
    """How many neighbouring registers of the destination have one index."""
    numbers = sorted(registers)
    return gcd(
        0,
        *(n - numbers[0] for n in numbers if n != numbers[0] and registers[n] != registers[n - 1]),
        len(numbers),
    )


def _indexed(call: Call, found: Sequence[Index], base: int) -> Call:
    if call.op != "ld_global":
        return call
    first = call["regs"].index[0] - base
    at = tuple(
        Step(
            Regs(i.tile.buffer, (number(i.tile.place.at("reg")) + i.registers[first],)),
            i.step,
            i.extent,
        )
        for i in found
    )
    return Call(call.op, {**call.args, "at": at})
