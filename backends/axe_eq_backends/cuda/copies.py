"""Copies between registers and memory: vectorised, predicated loads and stores."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import gcd

import numpy as np

from axe_eq.errors import DispatchError
from axe_eq.kernel.expr import Expr, Int, both, bounds, divisor, evaluate, make, variables
from axe_eq.kernel.placement import Placement, number
from axe_eq.kernel.plan import Call, Plan
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.dispatch import Context
from axe_eq.kernel.threads.placement import LANES
from axe_eq.kernel.threads.plan import Address, Regs
from axe_eq.schedule.window import window_elements
from axe_eq.target import Instr
from axe_eq_backends.cuda import threads
from axe_eq_backends.cuda.threads import Register, Step, Swizzled
from axe_eq_backends.cuda.tma import check_monoid

INDEX_MAX = (1 << 31) - 1
WORD_BYTES = 4
ISSUE = 1  # cycles of a call beside its memory passes: address arithmetic and issue


@dataclass(frozen=True)
class Access:
    """A load or store of a register tile, relative to the view's offset.

    Attributes:
        vector: elements of one call.
        thread: element offset that depends on the thread, unswizzled.
        groups: per call its registers; the first one's `memory` is the call's register part.
        swizzled: how the swizzle splits.
    """

    vector: int
    thread: Int
    groups: tuple[tuple[Register, ...], ...]
    swizzled: Swizzled


@lru_cache(maxsize=1024)
def access(
    tile: Placement,
    memory: Placement,
    limit: int,
    itemsize: int,
    where: ir.Where,
    apart: bool = False,
) -> Access:
    """Derive the widest access of at most `limit` elements and check it on every element.

    With `apart` vectors may begin at any element.

    Raises:
        LayoutError, DispatchError: the layouts have no common digits, or threads are not covered.
    """
    threads.check_threads(tile, where)
    parts = threads.steps(tile, memory)
    regs = threads.registers(parts, len(tile.blocks))
    vector = _vector(parts, memory, limit, apart)
    groups = tuple(tuple(regs[i : i + vector]) for i in range(0, len(regs), vector))
    thread = threads.thread_part(parts, where)
    constants = [g[0].memory for g in groups]
    split = (
        threads.split_swizzle(memory.swizzle, thread, list(map(number, constants)), where)
        if memory.swizzle
        else Swizzled(None, False)
    )
    return Access(vector, thread, groups, split)


def _vector(parts: Sequence[Step], memory: Placement, limit: int, apart: bool) -> int:
    """Elements that consecutive registers hold consecutively, aligned in every term."""
    run = [s for s in parts if s.axis == "reg" and s.coordinate == 1 and s.memory == 1]
    if not run:
        return 1
    vector = gcd(run[0].extent, limit)
    for s in parts:
        if s is not run[0] and not apart:
            vector = gcd(vector, divisor(s.memory))
        if s is not run[0] and s.axis == "reg":
            vector = gcd(vector, s.coordinate)
    if memory.swizzle is not None:
        vector = min(vector, 1 << memory.swizzle.base)
    return vector & -vector


@lru_cache(maxsize=1024)
def bank_passes(a: Access, itemsize: int, where: ir.Where) -> int:
    """Shared-memory passes of the worst warp and call, over the fewest possible."""
    element = np.broadcast_to(evaluate(a.thread, threads.grid(where)), (where.n_warps, LANES))
    worst = 1
    for group in a.groups[:8]:  # later calls repeat the pattern of the first ones
        at = element + number(group[0].memory)
        at = a.swizzled.swizzle.apply(at) if a.swizzled.swizzle else at
        width = a.vector * itemsize
        worst = max(worst, *(threads.conflicts(row * itemsize, width) for row in at))
    return worst


def derive(row: Instr, primitive: ir.Primitive, context: Context) -> Plan:
    """Plan a copy between registers and memory for a row ``ldst.<ld|st>_<place>``.

    Places are global memory, the own shared memory, and that of a CTA of the cluster ("peer").
    ``ldst.merge_global`` is a store that memory merges with what it holds, word by word.
    """
    assert isinstance(primitive, ir.Copy | ir.Fetch)
    kind = row.name.partition(".")[2]
    load, place = kind.startswith("ld"), "gmem" if "global" in kind else "smem"
    tile, memory = (primitive.dst, primitive.src) if load else (primitive.src, primitive.dst)
    if tile.buffer.memory != "reg" or memory.buffer.memory != place:
        moved = f"{primitive.src.buffer.memory} to {primitive.dst.buffer.memory}"
        raise DispatchError(row.name, f"the copy goes from {moved}", f"registers and {place}")
    threads.check_dtype(row, tile.buffer.dtype)
    if place == "gmem":
        assert isinstance(primitive, ir.Copy)
        if isinstance(primitive, ir.Merge):
            return _merging(row, kind, primitive, context)
        if kind.endswith("apart") and primitive.via != row.name:
            raise DispatchError(
                row.name, "two loads for one, that nobody asks for", f"via={row.name}"
            )
        return global_plan(row, kind, primitive.fill, tile, memory, context)
    return _shared(row, kind, primitive, tile, memory, context)


def _merging(row: Instr, kind: str, merge: ir.Merge, context: Context) -> Plan:
    """Words of registers that memory merges."""
    check_monoid(row, merge.monoid, merge.dst)
    plan = global_plan(row, kind, merge.fill, merge.src, merge.dst, context)
    plan.calls = [Call(c.op, {**c.args, "monoid": merge.monoid}) for c in plan.calls]
    ends = [c for c in plan.calls if c["before"] is not None or c["inside"] is not None]
    if ends or any(
        len(c["regs"].index) * merge.src.buffer.itemsize < WORD_BYTES for c in plan.calls
    ):
        raise DispatchError(row.name, f"parts of words of {merge.dst}", "whole words")
    return plan


def _shared(
    row: Instr,
    kind: str,
    copy: ir.Copy | ir.Fetch,
    tile: ir.View,
    memory: ir.View,
    context: Context,
) -> Plan:
    size, place, where = tile.buffer.itemsize, memory.place, context.where
    offset = place.at("m")
    limit = gcd(row.limits["bytes"] // size, divisor(offset) or row.limits["bytes"] // size)
    if place.swizzle is not None and not threads.aligned_to(place.swizzle, offset):
        raise DispatchError(
            f"view {memory}",
            f"begins at element {offset}, inside its swizzle's pattern",
            f"a multiple of {1 << place.swizzle.reach}",
        )
    a = access(tile.place.static(), place.static(), limit, size, where)
    guard = None if kind.startswith("ld") else threads.first_replica(tile.place, where)
    plan = Plan(row, [])
    address = _addresses(plan, a, offset, size, memory.buffer, context)
    plan.calls = [
        Call(
            kind,
            {"regs": _regs(tile, group), "address": address(group[0].memory), "guard": guard}
            | ({"rank": copy.rank} if isinstance(copy, ir.Fetch) else {}),
        )
        for group in a.groups
    ]
    phases = max(1, a.vector * size * LANES // 128)
    passes = bank_passes(a, size, where)
    plan.cycles = float(len(plan.calls) * where.n_warps * (ISSUE + phases * passes))
    plan.notes = f"{a.vector * size} bytes a thread, {passes}-way"
    return plan


def _addresses(
    plan: Plan, a: Access, offset: Int, size: int, buffer: ir.Buffer, context: Context
) -> Callable[[Int], Address]:
    """The address of a call from its register part; the thread part is named."""
    swizzle, xor = a.swizzled.swizzle, a.swizzled.xor
    first = (threads.apply_swizzle(swizzle, a.thread) if xor else a.thread) * size
    if xor or swizzle is None:
        first = threads.named(plan, context, "at", first)

    def address(register_part: Int) -> Address:
        if xor:
            byte = make("^", first, a.swizzled.constant(number(register_part)) * size)
        elif swizzle is not None:
            byte = threads.apply_swizzle(swizzle, a.thread + register_part) * size
        else:
            byte = first + register_part * size
        return Address(buffer, byte + offset * size)

    return address


def _regs(tile: ir.View, group: Sequence[Register]) -> Regs:
    regs, size = threads.registers_of(tile, (r.number for r in group)), tile.buffer.itemsize
    if regs.index[0] * size % min(4, len(group) * size):
        base = tile.place.at("reg")
        raise DispatchError(f"view {tile}", f"begins inside a register ({base})", "whole registers")
    return regs


def global_plan(
    row: Instr,
    kind: str,
    fill: float,
    tile: ir.View,
    memory: ir.View,
    context: Context,
    most: int = 0,
) -> Plan:
    """Loads or stores of a register tile, of at most so many elements each where that is given.

    Those "apart" are two aligned loads each, of vectors that begin anywhere.

    Raises:
        DispatchError: the argument's part is swizzled, no digits are common, or vectors that need
            not be aligned are of less than a word more than those that are.
    """
    apart = kind.endswith("apart")
    size, place, where = tile.buffer.itemsize, memory.place, context.where
    if place.swizzle is not None:
        raise DispatchError(f"view {memory}", "is swizzled", "a linear global layout")
    offset = place.at("m")
    limit = most or row.limits["bytes"] // size
    tails = _tails(memory)
    a = access(tile.place.static(), place.static(), limit, size, where, apart)
    vector = a.vector if apart else gcd(a.vector, divisor(offset) or a.vector)
    if vector != a.vector:
        a = access(tile.place.static(), place.static(), vector & -vector, size, where)
    ending = None  # the dim along which vectors may lie partly outside
    for dim in tails:
        whole = gcd(a.vector, _tail_vector(memory, dim, a, place) or a.vector)
        if whole != a.vector and _ends_within(a, memory, dim):
            ending = dim
        elif whole != a.vector:
            a = access(tile.place.static(), place.static(), whole & -whole, size, where, apart)
    if apart and a.vector * size <= WORD_BYTES:
        wrong = f"vectors of {a.vector * size} bytes"
        raise DispatchError(row.name, wrong, f"more than {WORD_BYTES} of one run")
    parts = threads.steps(tile.place.static(), place.static())
    plan = Plan(row, [], align={memory.buffer.name: size if apart else a.vector * size})
    base = threads.named(plan, context, "g", offset + a.thread, element=True)
    index = {}
    for dim in tails:
        first = memory.begin[memory.dims[dim]] + threads.thread_index(parts, dim, where)
        index[dim] = threads.named(plan, context, "i", first)
    once = None if kind.startswith("ld") else threads.first_replica(tile.place, where)
    once = _inside(memory, once)
    for group in a.groups:
        guard = once
        before: Int | None = None
        inside: Int | None = None
        for dim, at in index.items():
            extent = memory.buffer.shape[memory.dims[dim]]
            if dim == ending:
                before = _before(at + group[0].at[dim])
                inside = _count(extent - (at + group[0].at[dim]), a.vector)
                continue
            if _precedes(at):
                guard = both(guard, at + group[0].at[dim] >= 0)
            guard = both(guard, at + group[0].at[dim] < extent)
        element = base + group[0].memory
        calls = _call(kind, _regs(tile, group), memory, element, guard, (before, inside), fill)
        if kind.startswith("ld"):
            sure = apart and _is_deep(memory, parts, group[0], a.vector, where)
            sure |= not apart and before is None and inside is None
            needed = apart or before is not None
            reach = None if sure else _reach(memory.buffer, over_devices=needed)
            if reach is None and not sure and needed:
                wrong = f"extents of {memory.buffer.name}"
                raise DispatchError(row.name, wrong, "extents that are known")
            more = {"reach": reach}
            calls = [Call(c.op, {**c.args, **more}) if c.op == kind else c for c in calls]
        plan.calls += calls
    if kind == "ld_global":  # those with branches first: the others are then one run
        plan.calls.sort(key=lambda c: c.args.get("reach") is None)
    _drop_unused(plan)
    phases = max(1, a.vector * size * LANES // 128) * (2 if apart else 1)
    plan.cycles = float(len(plan.calls) * where.n_warps * (ISSUE + phases))
    plan.notes = f"{a.vector * size} bytes a thread" + (f", dims {tails} guarded" if tails else "")
    return plan


def _is_deep(
    memory: ir.View, parts: Sequence[Step], first: Register, vector: int, where: ir.Where
) -> bool:
    """Whether both aligned vectors that hold a vector are proven to be inside of its row."""
    for dim, block in enumerate(memory.place.blocks):
        if any(i.stride == 1 for i in block):
            d = memory.dims[dim]
            at = memory.begin[d] + threads.thread_index(parts, dim, where) + first.at[dim]
            (low, high), extent = bounds(at), memory.buffer.shape[d]
            if low is None or high is None or not isinstance(extent, int):
                return False
            return low >= vector - 1 and high + 2 * (vector - 1) < extent
    return False


def _reach(buffer: ir.Buffer, over_devices: bool) -> tuple[int, int] | None:
    """The first element of a tensor, and that past its last one; None where run time says them.

    None, too, where it lies on several devices, whose memories have gaps between them, unless those
    count as well.
    """
    place = buffer.place
    first = [place.at("m"), *(n for b in place.blocks for i in b for n in (i.extent, i.stride))]
    if not all(isinstance(n, int) for n in first):
        return None
    far = window_elements(buffer.itemsize)
    if not over_devices and any(number(i.stride) >= far for b in place.blocks for i in b):
        return None
    steps = [(number(i.extent) - 1) * number(i.stride) for b in place.blocks for i in b]
    low = number(place.at("m")) + sum(min(0, s) for s in steps)
    return low, low + sum(map(abs, steps)) + 1


def _call(
    kind: str,
    regs: Regs,
    memory: ir.View,
    element: Int,
    guard: Int | None,
    within: tuple[Int | None, Int | None],
    fill: float,
) -> list[Call]:
    """The call of some registers; none, or a fill, where all of it is proven to be outside.

    `within` is how many of a vector's elements lie before the tensor's, and before its end.
    """
    load = kind.startswith("ld")
    before, inside = within
    if (isinstance(guard, int) and not guard) or (isinstance(inside, int) and inside <= 0):
        return [Call("fill", {"out": regs, "value": fill})] if load else []
    args = {
        "regs": regs,
        "tensor": memory.buffer,
        "element": element,
        "guard": guard if isinstance(guard, Expr) else None,
        "before": before,
        "inside": inside,
        "fill": fill if load else None,
    }
    return [Call(kind, args)]


def _drop_unused(plan: Plan) -> None:
    """Forget values that no call uses."""
    used = {
        v.name
        for call in plan.calls
        for e in call.args.values()
        if isinstance(e, Expr)
        for v in variables(e)
    }
    plan.lets = [(v, value) for v, value in plan.lets if v.name in used]


def _tails(memory: ir.View) -> list[int]:
    """Dims of the view that are not proven to stay inside the buffer."""
    out = []
    for dim, d in enumerate(memory.dims):
        last = memory.begin[d] + (memory.extent[d] - 1)
        inside = last < memory.buffer.shape[d]
        if not (isinstance(inside, int) and inside) or _precedes(memory.begin[d]):
            out.append(dim)
    return out


def _precedes(begin: Int) -> bool:
    """Whether a view is known to begin before its buffer for some values: a shifted window.

    A begin of which nothing is proven is a tile's, and those are inside.
    """
    low, _ = bounds(begin)
    return low is not None and low < 0


def _inside(memory: ir.View, guard: Int | None) -> Int | None:
    """The condition that shifted positions along dims that the view dropped lie in the buffer."""
    for d, (begin, extent) in enumerate(zip(memory.begin, memory.buffer.shape, strict=True)):
        high = bounds(begin)[1]
        if d not in memory.dims and _precedes(begin):
            guard = both(guard, begin >= 0)
        if d not in memory.dims and high is not None and isinstance(extent, int) and high >= extent:
            guard = both(guard, begin < extent)
    return guard


def _ends_within(a: Access, memory: ir.View, dim: int) -> bool:
    """Whether calls run along a dim from a position inside it, so that a number says how far."""
    d = memory.dims[dim]
    extent = memory.buffer.shape[d]
    small = isinstance(extent, int) and extent <= INDEX_MAX
    if not small or a.vector * memory.buffer.itemsize < WORD_BYTES:
        return False
    return all(
        r.at == (*g[0].at[:dim], g[0].at[dim] + n, *g[0].at[dim + 1 :])
        for g in a.groups
        for n, r in enumerate(g)
    )


def _before(at: Int) -> Int | None:
    """How many elements of a vector lie before the first one; None where none does."""
    return 0 - at if _precedes(at) else None


def _count(inside: Int, vector: int) -> Int | None:
    """How many elements of a vector are inside; None where all are."""
    low, _ = bounds(inside)
    return None if low is not None and low >= vector else inside


def _tail_vector(memory: ir.View, dim: int, a: Access, place: Placement) -> int:
    """Elements of one call that are all inside or all outside along `dim`; 0: any number."""
    contiguous = any(i.stride == 1 for i in place.blocks[dim])
    if not contiguous or a.vector == 1:
        return 0
    d = memory.dims[dim]
    return gcd(divisor(memory.buffer.shape[d]), divisor(memory.begin[d]))
