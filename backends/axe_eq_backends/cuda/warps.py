"""Primitives on registers: cells, fills, moves, and reductions over threads.

Every thread applies the same instruction to the same register numbers, so operands must lie on the
threads where the result lies; a digit that does not is refused with its name.
"""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from math import gcd

from axe_eq.errors import DispatchError
from axe_eq.kernel.cells import IDENTITY
from axe_eq.kernel.expr import Int, equal
from axe_eq.kernel.placement import Block, Iter, Placement, number, refine
from axe_eq.kernel.plan import Call, Plan
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.dispatch import Context
from axe_eq.kernel.threads.placement import LANES
from axe_eq.kernel.threads.plan import Address
from axe_eq.program.ops import MONOIDS
from axe_eq.target import Instr
from axe_eq_backends.cuda import threads
from axe_eq_backends.cuda.cells import refusal
from axe_eq_backends.cuda.threads import registers_of


@lru_cache(maxsize=4096)
def matching(out: Placement, operand: Placement) -> tuple[tuple[int, int], ...]:
    """(register of out, register of operand) for every register of out; operand may broadcast.

    Raises:
        DispatchError: an element of the operand is not in the registers of the thread that needs
            it.
    """
    blocks = list(operand.blocks)
    blocks = [()] * (len(out.blocks) - len(blocks)) + blocks
    digits: list[tuple[int, int, int]] = []
    for dim, (a, b) in enumerate(zip(out.blocks, blocks, strict=True)):
        whole = b if b else _repeated(a)
        for d in refine(a, whole, f"dim {dim} of {out} and {operand}"):
            if (d.a_axis != "reg" or d.b_axis != "reg") and (d.a_axis, d.a) != (d.b_axis, d.b):
                raise DispatchError(
                    f"operand {operand}",
                    f"dim {dim} lies on {d.b}@{d.b_axis} where the result is on {d.a}@{d.a_axis}",
                    "the same threads",
                )
            if d.a_axis == "reg":
                digits.append((d.extent, number(d.a), number(d.b)))
    pairs = [
        (sum(x * s for x, (_, s, _) in zip(at, digits, strict=True)),
         sum(x * s for x, (_, _, s) in zip(at, digits, strict=True)))
        for at in product(*(range(e) for e, _, _ in digits))
    ]  # fmt: skip
    return tuple(sorted(pairs))


def _repeated(block: Block) -> Block:
    """The block of an operand without this dim: one register for all, on the same threads."""
    return tuple(i._replace(stride=0) if i.axis == "reg" else i for i in block)


def check_tile(row: Instr, view: ir.View, where: ir.Where) -> None:
    """A view is a register tile of the scope's threads.

    Raises:
        DispatchError: it lies elsewhere, or on other threads.
    """
    if view.buffer.memory != "reg":
        raise DispatchError(row.name, f"{view} lies in {view.buffer.memory}", "registers")
    threads.check_threads(view.place, where)


def derive_cells(row: Instr, primitive: ir.Primitive, context: Context) -> Plan:
    """Plan a map or a fill, one call over all registers of the thread."""
    if isinstance(primitive, ir.Index):
        return derive_index(row, primitive, context)
    views = primitive.views()
    for view in views:
        check_tile(row, view, context.where)
    out, *ins = views
    pairs = [matching(out.place.static(), view.place.static()) for view in ins]
    numbers = sorted(r for r, _ in matching(out.place.static(), out.place.static()))
    _check_pairs(out, numbers)
    args: dict[str, object] = {"out": registers_of(out, numbers)}
    if isinstance(primitive, ir.Fill):
        args["value"] = primitive.value
        call = Call("fill", args)
    else:
        cell = primitive.cell if isinstance(primitive, ir.Map) else IDENTITY
        operands = tuple(
            registers_of(v, [r for _, r in p]) for v, p in zip(ins, pairs, strict=True)
        )
        call = Call("map", {**args, "ins": operands, "cell": cell})
    return Plan(row, [call], cycles=float(len(numbers)), notes=f"{len(numbers)} registers a thread")


def derive_index(row: Instr, index: ir.Index, context: Context) -> Plan:
    """Plan positions along a dim: a thread part once, a constant per register."""
    out, where = index.out, context.where
    check_tile(row, out, where)
    parts = threads.steps(out.place.static(), out.place.static())
    start = index.begin + threads.thread_index(parts, index.dim, where)
    plan = Plan(row, [])
    start = threads.named(plan, context, "first", start)
    found = {r.number: r.at[index.dim] for r in threads.registers(parts, len(out.shape))}
    values = tuple(start + found[number] for number in sorted(found))
    call = Call("index", {"out": registers_of(out, sorted(found)), "values": values})
    plan.calls.append(call)
    plan.cycles, plan.notes = float(len(values)), f"{len(values)} registers a thread"
    return plan


def _check_pairs(out: ir.View, numbers: list[int]) -> None:
    """Elements narrower than a register are written in whole registers, but for a last one."""
    per_word = max(1, 4 // out.buffer.itemsize)
    base = number(out.place.at("reg"))
    words = {(base + n) // per_word for n in numbers}
    held = sum(min(per_word, out.buffer.n_elements - w * per_word) for w in words)
    if held != len(numbers):
        raise DispatchError(f"tile {out}", "covers parts of registers", f"groups of {per_word}")


def derive_move(row: Instr, primitive: ir.Primitive, context: Context) -> Plan:
    """Plan a copy between register tiles of one thread."""
    for view in primitive.views():
        if view.buffer.memory != "reg":
            raise DispatchError(row.name, f"{view} lies in {view.buffer.memory}", "registers")
    return derive_cells(row, primitive, context)


def derive_reduce(row: Instr, primitive: ir.Primitive, context: Context) -> Plan:
    """Plan a reduction: registers of a thread, lanes by shuffles, warps through scratch."""
    assert isinstance(primitive, ir.Reduce)
    out, src, where = primitive.out, primitive.src, context.where
    for view in (out, src):
        check_tile(row, view, where)
    threads.check_dtype(row, out.buffer.dtype, "result dtype")
    named = f"monoid {primitive.monoid!r}"
    merges = MONOIDS[primitive.monoid].merges if primitive.monoid in MONOIDS else ""
    if not merges:
        raise DispatchError(row.name, named, "one that a cell merges")
    if unwritten := refusal(merges, [out.buffer.dtype] * 2):
        raise DispatchError(row.name, f"{named}: {unwritten}")
    plan = Plan(row, _local(primitive))
    lanes, warps = (_reduced(src, primitive.dims, axis) for axis in ("lane", "warp"))
    regs = [r for r, _ in matching(out.place.static(), out.place.static())]
    for stride, extent in lanes:
        if extent & (extent - 1):
            raise DispatchError(row.name, f"reduces {extent} lanes", "a power of two")
        for step in range(extent.bit_length() - 1):
            plan.calls.append(
                Call("shuffle", {"monoid": primitive.monoid, "regs": registers_of(out, regs),
                                 "mask": stride << step})
            )  # fmt: skip
    if warps:
        plan.calls += _across_warps(row, primitive, regs, warps, where)
    plan.cycles = float(len(plan.calls) * max(1, len(regs)))
    plan.notes = f"lanes {lanes or 'none'}, warps {warps or 'none'}"
    return plan


def _local(reduce: ir.Reduce) -> list[Call]:
    """Combine the registers of each thread."""
    groups: dict[int, list[int]] = {}
    for from_reg, to_reg in matching(reduce.src.place.static(), reduce.out.place.static()):
        groups.setdefault(to_reg, []).append(from_reg)
    return [
        Call("accumulate", {"monoid": reduce.monoid, "out": registers_of(reduce.out, [to]),
                            "ins": registers_of(reduce.src, numbers)})
        for to, numbers in sorted(groups.items())
    ]  # fmt: skip


def _reduced(src: ir.View, dims: tuple[int, ...], axis: str) -> list[tuple[int, int]]:
    """(stride, extent) of the reduced dims' iters on a thread axis."""
    found: list[Iter] = [i for d in dims for i in src.place.blocks[d] if i.axis == axis]
    return sorted((number(i.stride), number(i.extent)) for i in found)


def _across_warps(
    row: Instr, reduce: ir.Reduce, regs: list[int], warps: list[tuple[int, int]], where: ir.Where
) -> list[Call]:
    """Exchange partial results through shared memory: every warp writes, all read their peers'.

    Lanes that hold one value write it once. Where all do, it is one element, and peers' are
    neighbours; else several values of a lane are. Nothing here waits for earlier readers of the
    scratch: that is the kernel's.
    """
    same = [
        (number(i.stride), number(i.extent)) for i in reduce.out.place.replica if i.axis == "lane"
    ]
    width, lane = digits_of(ir.LANE, other_digits(same, LANES))
    vector = _together(regs, 16 // reduce.out.buffer.itemsize) if width > 1 else 1
    needed, size = len(regs) * where.n_warps * width, reduce.out.buffer.itemsize
    scratch = reduce.scratch
    if scratch is None or scratch.n_elements * scratch.itemsize < needed * size:
        raise DispatchError(
            row.name, f"reduces over warps {warps} with scratch {scratch}",
            f"shared memory of {needed * size} bytes",
        )  # fmt: skip
    peers, mine = digits_of(threads.warp_of(where), sorted(warps))
    _, group = digits_of(threads.warp_of(where), other_digits(warps, where.n_warps))

    def slot(position: int, peer: Int) -> Address:
        element = (position * (where.n_warps // peers) + group) * peers
        return Address(scratch, ((element + peer) * width + lane) * vector * size)

    copies, copy = digits_of(ir.LANE, sorted(same))
    once = equal(copy, 0) if copies > 1 else None
    together = [regs[n : n + vector] for n in range(0, len(regs), vector)]
    calls = []
    for position, some in enumerate(together):
        args = {"regs": registers_of(reduce.out, some), "address": slot(position, mine)}
        calls.append(Call("st_shared", {**args, "guard": once}))
    calls.append(Call("sync", {}))
    for position, some in enumerate(together):
        args = {"regs": registers_of(reduce.out, some), "address": slot(position, 0)}
        steps = {"count": peers, "step": width * vector, "monoid": reduce.monoid, "guard": None}
        calls.append(Call("ld_reduce", {**args, **steps}))
    return calls


def _together(regs: list[int], most: int) -> int:
    """How many registers, a power of two, are neighbours everywhere."""
    n = gcd(len(regs), most)
    while any(r != regs[i - i % n] + i % n for i, r in enumerate(regs)):
        n //= 2
    return n


def digits_of(value: Int, chosen: list[tuple[int, int]]) -> tuple[int, Int]:
    """How many values some digits (stride, extent) of a number have, and the number of this one."""
    size = 1
    found: Int = 0
    for stride, extent in chosen:
        found = value // stride % extent * size + found
        size *= extent
    return size, found


def other_digits(chosen: list[tuple[int, int]], n: int) -> list[tuple[int, int]]:
    """The digits of 0 .. n - 1 beside the chosen ones."""
    found, covered = [], 1
    for stride, extent in [*sorted(chosen), (n, 1)]:
        if stride > covered:
            found.append((covered, stride // covered))
        covered = stride * extent
    return found
