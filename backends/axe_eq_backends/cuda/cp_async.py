"""Ordinary asynchronous copies from global to shared memory: cp.async.

The tile is cut into chunks of 4, 8 or 16 bytes along the dim that is contiguous in both memories,
else into elements; chunk number t + i * threads is thread t's copy i. Neighbours in the tensor are
neighbouring threads'. Chunks outside the tensor are filled with zeros.
"""

from __future__ import annotations

from math import gcd, prod

from axe_eq.errors import DispatchError
from axe_eq.kernel.expr import Int, both, divisor
from axe_eq.kernel.placement import Block, Placement, number
from axe_eq.kernel.plan import Call, Plan
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.dispatch import Context
from axe_eq.kernel.threads.placement import LANES
from axe_eq.kernel.threads.plan import Address
from axe_eq.target import Instr
from axe_eq_backends.cuda import threads

NARROWEST = 4


def derive(row: Instr, primitive: ir.Primitive, context: Context) -> Plan:
    """Plan an asynchronous copy for ``cp.async``."""
    assert isinstance(primitive, ir.CopyAsync)
    src, dst, where = primitive.src, primitive.dst, context.where
    if src.buffer.memory != "gmem":
        raise DispatchError(row.name, f"reads {src.buffer.memory}", "a global source")
    if where.scope not in ("cta", "warpgroup") or primitive.barrier is not None:
        kind = "a barrier" if primitive.barrier else f"scope {where.scope}"
        raise DispatchError(row.name, f"completes on {kind}", "a commit group of whole warps")
    size = src.buffer.itemsize
    dim, chunk = _chunk(row, src, dst)
    counts = [e // chunk if d == dim else e for d, e in enumerate(src.shape)]
    n_threads, total = where.n_warps * LANES, prod(counts)
    thread = threads.warp_of(where) * LANES + ir.LANE
    plan = Plan(row, [], align={src.buffer.name: chunk * size})
    for first in range(0, total, n_threads):
        index = _unravel(thread, n_threads, first, counts, dim)
        index = [i * chunk if d == dim else i for d, i in enumerate(index)]
        live: Int = thread + first < total
        plan.calls.append(_call(plan, primitive, index, chunk, live, context))
    plan.cycles = len(plan.calls) * where.n_warps * max(1, chunk * size * LANES // 128) * 1.5
    plan.notes = f"{len(plan.calls)} chunks of {chunk * size} bytes a thread"
    return plan


def _chunk(row: Instr, src: ir.View, dst: ir.View) -> tuple[int, int]:
    """The contiguous dim and the elements of one chunk."""
    size = src.buffer.itemsize
    pairs = enumerate(zip(src.place.blocks, dst.place.blocks, strict=True))
    runs = [
        (dim, gcd(row.limits["bytes"] // size, number(a[-1].extent), number(b[-1].extent)))
        for dim, (a, b) in pairs
        if a and b and a[-1].stride == 1 and b[-1].stride == 1
    ]
    if not runs:  # element by element, along what is contiguous where it is read
        ways = [d for d, b in enumerate(src.place.blocks) if b and b[-1].stride == 1]
        runs = [((ways or [len(src.shape) - 1])[0], 1)]
    dim, chunk = runs[0]
    if dst.place.swizzle is not None:
        chunk = min(chunk, 1 << dst.place.swizzle.base)
    d = src.dims[dim]
    terms = [src.place.at("m"), dst.place.at("m"), src.buffer.shape[d]]
    terms += [i.stride for p in (src.place, dst.place) for b in p.blocks for i in b]
    for term in terms:
        if term != 1:
            chunk = gcd(chunk, divisor(term) or chunk)
    chunk &= -chunk
    if chunk * size < NARROWEST:
        raise DispatchError(
            f"copy {src} to {dst}", f"is aligned to {chunk * size} bytes", f"at least {NARROWEST}"
        )
    return dim, chunk


def _unravel(thread: Int, n_threads: int, first: int, counts: list[int], fast: int) -> list[Int]:
    """Coordinates of number thread + first, those of one dim fastest.

    What is the same for all threads stays a number of its own, so that addresses share the rest.
    """
    order = [fast, *(d for d in reversed(range(len(counts))) if d != fast)]
    out: dict[int, Int] = {}
    for d in order[:-1]:
        count = counts[d]
        if first % count == 0:
            out[d], thread, first = thread % count, thread // count, first // count
            n_threads = -(-n_threads // count)
        elif count % n_threads == 0 and first % n_threads == 0:
            out[d], thread, first, n_threads = thread + first % count, 0, first // count, 1
        else:
            out[d], thread, first = (thread + first) % count, (thread + first) // count, 0
    out[order[-1]] = thread + first
    return [out[d] for d in range(len(counts))]


def at_index(blocks: tuple[Block, ...], index: list[Int]) -> Int:
    """Memory element of a logical index, without offset and swizzle."""
    total: Int = 0
    for block, i in zip(blocks, index, strict=True):
        rest = i
        for position, it in reversed(list(enumerate(block))):
            total = total + (rest % it.extent if position else rest) * it.stride
            rest = rest // it.extent
    return total


def _call(
    plan: Plan, copy: ir.CopyAsync, index: list[Int], chunk: int, live: Int, context: Context
) -> Call:
    src, dst, size = copy.src, copy.dst, copy.src.buffer.itemsize
    guard: Int | None = None
    for d, i in zip(src.dims, index, strict=True):
        guard = both(guard, src.begin[d] + i < src.buffer.shape[d])
    to = threads.named(plan, context, "to", at_index(dst.place.blocks, index))
    place: Placement = dst.place
    if not threads.aligned_to(place.swizzle, place.at("m")):
        raise DispatchError(
            f"view {dst}", "begins inside its swizzle's pattern", "an aligned begin"
        )
    to = threads.apply_swizzle(place.swizzle, to) + place.at("m")
    return Call(
        "cp_async",
        {
            "address": Address(dst.buffer, to * size),
            "tensor": src.buffer,
            "element": src.place.at("m") + at_index(src.place.blocks, index),
            "count": chunk,
            "guard": None if guard == 1 else guard,
            "live": live,
        },
    )
