"""Loads of elements that registers number: copies of arguments whose addresses depend on data."""

from __future__ import annotations

from math import gcd

from axe_eq.errors import DispatchError
from axe_eq.kernel.placement import number
from axe_eq.kernel.plan import Call, Plan
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.dispatch import Context
from axe_eq.kernel.threads.plan import Regs
from axe_eq.target import Instr
from axe_eq_backends.cuda.copies import global_plan
from axe_eq_backends.cuda.warps import check_tile, matching

Registers = dict[int, int]  # of a destination -> of a tile of indices


def derive(row: Instr, primitive: ir.Primitive, context: Context) -> Plan:
    """Plan a gather as the loads of a copy, whose addresses move by steps times indices."""
    assert isinstance(primitive, ir.Gather)
    dst, src = primitive.dst, primitive.src
    if (dst.buffer.dtype,) not in row.dtypes:
        known = " ".join(t[0] for t in row.dtypes)
        raise DispatchError(row.name, f"dtype {dst.buffer.dtype}", known)
    check_tile(row, dst, context.where)
    found = []
    for dim, tile in primitive.indices:
        check_tile(row, tile, context.where)
        registers = dict(matching(dst.place.static(), tile.place.static()))
        found.append((tile, registers, primitive.step(dim)))
    most = row.limits["bytes"] // dst.buffer.itemsize
    for _, registers, step in found:
        most = gcd(most, _run(registers), step)
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


def _indexed(call: Call, found: list[tuple[ir.View, Registers, int]], base: int) -> Call:
    if call.op != "ld_global":
        return call
    first = call["regs"].index[0] - base
    at = tuple(
        (Regs(tile.buffer, (number(tile.place.at("reg")) + registers[first],)), step)
        for tile, registers, step in found
    )
    return Call(call.op, {**call.args, "at": at})
