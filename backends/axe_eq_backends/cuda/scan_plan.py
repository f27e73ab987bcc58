"""Plans of scans: registers of a thread in order, lanes by shuffles, warps through scratch.

Along the scanned dim a tile lies, slow to fast, on warps, registers (repeats), lanes and registers
(a run of neighbours), each or none. A run is scanned by its thread, what stands before it in its
repeat is merged into it, then what the repeats before hold, and last what earlier warps hold.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import NamedTuple

from axe_eq.errors import DispatchError
from axe_eq.kernel.expr import Int, equal
from axe_eq.kernel.placement import Iter, number
from axe_eq.kernel.plan import Call, Plan
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.dispatch import Context
from axe_eq.kernel.threads.placement import LANES
from axe_eq.kernel.threads.plan import Address, Regs
from axe_eq.target import Instr
from axe_eq_backends.cuda import threads
from axe_eq_backends.cuda.warps import check_tile, digits_of, other_digits

Digit = tuple[int, int]  # stride and extent on an axis


class _Levels(NamedTuple):
    """What lies along the scanned dim: register offsets of repeats and runs, thread digits."""

    warps: Digit
    repeats: list[int]
    lanes: Digit
    run: list[int]


def derive_scan(row: Instr, primitive: ir.Primitive, context: Context) -> Plan:
    """Plan a scan of registers."""
    assert isinstance(primitive, ir.Scan)
    s, where = primitive, context.where
    for view in (*s.states, *s.carries):
        check_tile(row, view, where)
        threads.check_dtype(row, view.buffer.dtype, "state dtype")
    place = s.states[0].place.static()
    if any(v.place.static() != place for v in s.states):
        raise DispatchError(row.name, f"states lie apart from {s.states[0]}", "one layout")
    levels = _levels(row, place.blocks[s.dim])
    others = [_registers_of(block) for d, block in enumerate(place.blocks) if d != s.dim]
    rows = [sum(at) for at in product(*others)]
    carried = _carried(row, s, rows, others)
    plan = Plan(row, [])

    def regs(r: int, repeats: Sequence[int]) -> tuple[Regs, ...]:
        numbers = [rows[r] + p + n for p in repeats for n in levels.run]
        return tuple(threads.registers_of(v, numbers) for v in s.states)

    given: dict[str, object] = {"merge": s.merge, "lanes": levels.lanes}
    for r in range(len(rows)):
        for n, p in enumerate(levels.repeats):
            args = {**given, "regs": regs(r, [p])}
            if len(levels.run) > 1:
                plan.calls.append(Call("scan_run", args))
            if levels.lanes[1] > 1:
                plan.calls.append(Call("scan_lanes", args))
            if n:
                before = regs(r, [levels.repeats[n - 1]])
                plan.calls.append(Call("scan_next", {**args, "before": before}))
    whole = [regs(r, levels.repeats) for r in range(len(rows))]
    slots = _exchange(row, s, levels, whole, where, plan)
    for r, held in enumerate(whole):
        args = {**given, "regs": held, "carries": carried[r]}
        plan.calls.append(Call("scan_carry", {**args, **slots[r]}))
    plan.cycles = float(len(plan.calls) * len(levels.run))
    plan.notes = (
        f"{levels.warps[1]} warps, {len(levels.repeats)} repeats, {levels.lanes[1]} lanes, "
        f"runs of {len(levels.run)}"
    )
    return plan


def _levels(row: Instr, block: Sequence[Iter]) -> _Levels:
    """The levels of the scanned dim's block.

    Raises:
        DispatchError: they lie in another order.
    """
    left = [i for i in block if number(i.extent) > 1]

    def fastest(axis: str) -> list[Iter]:
        found: list[Iter] = []
        while left and left[-1].axis == axis:
            found.insert(0, left.pop())
        return found

    run, lanes, repeats, warps = (fastest(axis) for axis in ("reg", "lane", "reg", "warp"))
    if not lanes:  # neighbours all
        run, repeats = [*repeats, *run], []
    shown = " ".join(map(str, block))
    if left:
        raise DispatchError(row.name, f"scans {shown}", "warps, registers, lanes, registers")
    across = _digit(row, lanes)
    if warps and across[0] != 1 and across[0] * across[1] != LANES:
        raise DispatchError(row.name, f"scans {shown}", "the fast or the slow lanes of warps")
    return _Levels(_digit(row, warps), _offsets(repeats), across, _offsets(run))


def _digit(row: Instr, iters: Sequence[Iter]) -> Digit:
    """Neighbouring iters of a thread axis as one (stride, extent).

    Raises:
        DispatchError: they are not one.
    """
    if not iters:
        return 1, 1
    stride, extent = number(iters[-1].stride), number(iters[-1].extent)
    for i in reversed(iters[:-1]):
        if number(i.stride) != stride * extent:
            raise DispatchError(row.name, f"scans {' '.join(map(str, iters))}", "one digit")
        extent *= number(i.extent)
    return stride, extent


def _offsets(iters: Sequence[Iter]) -> list[int]:
    """Register numbers of all positions, in order."""
    steps = [[n * number(i.stride) for n in range(number(i.extent))] for i in iters]
    return [sum(at) for at in product(*steps)]


def _registers_of(block: Sequence[Iter]) -> list[int]:
    return _offsets([i for i in block if i.axis == "reg"])


def _carried(
    row: Instr, s: ir.Scan, rows: Sequence[int], others: Sequence[Sequence[int]]
) -> list[tuple[Regs, ...]]:
    """Per row register of the states, the registers of the carries.

    Raises:
        DispatchError: the carries lie on other threads.
    """
    dims = [d for d in range(len(s.states[0].shape)) if d != s.dim]
    found: list[list[int]] = []
    for state, carry in zip(s.states, s.carries, strict=True):
        blocks = [carry.place.blocks[d] for d in dims]
        for d, block in zip(dims, blocks, strict=True):
            own, its = (
                [(i.extent, i.axis, 0 if i.axis == "reg" else i.stride) for i in b]
                for b in (state.place.blocks[d], block)
            )
            if own != its:
                raise DispatchError(row.name, f"{carry} lies apart from {state}", "its threads")
        found.append([sum(at) for at in product(*map(_registers_of, blocks))])
    if any(len(f) != len(rows) for f in found):
        raise DispatchError(row.name, f"{len(others)} dims of carries", "one for each row")
    return [
        tuple(threads.registers_of(v, [f[r]]) for v, f in zip(s.carries, found, strict=True))
        for r in range(len(rows))
    ]


def _exchange(
    row: Instr,
    s: ir.Scan,
    levels: _Levels,
    runs: Sequence[tuple[Regs, ...]],
    where: ir.Where,
    plan: Plan,
) -> list[dict[str, object]]:
    """Every warp's totals into scratch, and where each run finds those of its peers.

    Nothing here waits for earlier readers of the scratch: that is the kernel's.
    """
    stride, extent = levels.warps
    if extent == 1:
        return [{"addresses": (), "count": 1, "step": 1, "mine": 0}] * len(runs)
    sizes = [v.buffer.itemsize for v in s.states]
    step, lanes = levels.lanes
    width = LANES // lanes  # rows of a warp
    needed = [len(runs) * where.n_warps * width * size for size in sizes]
    held = [b.n_elements * b.itemsize for b in s.scratch]
    if len(held) != len(needed) or any(h < n for h, n in zip(held, needed, strict=True)):
        raise DispatchError(
            row.name, f"scans {extent} warps with scratch of {held} bytes",
            f"shared memory of {needed} bytes",
        )  # fmt: skip
    warp, chosen = threads.warp_of(where), [(stride, extent)]
    peers, mine = digits_of(warp, chosen)
    _, group = digits_of(warp, other_digits(chosen, where.n_warps))

    line: Int = 0 if width == 1 else ir.LANE // lanes if step == 1 else ir.LANE % width

    def slot(n: int, part: int, peer: Int) -> Address:
        element = (n * (where.n_warps // peers) + group) * peers + peer
        return Address(s.scratch[part], (element * width + line) * sizes[part])

    last = equal(ir.LANE // step % lanes, lanes - 1) if lanes > 1 else None
    for n, run in enumerate(runs):
        for part, regs in enumerate(run):
            ends = Regs(regs.buffer, regs.index[-1:])
            args = {"regs": ends, "address": slot(n, part, mine), "guard": last}
            plan.calls.append(Call("st_shared", args))
    plan.calls.append(Call("sync", {}))
    parts = range(len(s.states))
    return [
        {
            "addresses": tuple(slot(n, part, 0) for part in parts),
            "count": peers,
            "step": width,
            "mine": mine,
        }
        for n in range(len(runs))
    ]
