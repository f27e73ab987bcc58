"""Transfers: descriptors move runs that are contiguous on both sides, or turn what lies in SBUF."""

from __future__ import annotations

from dataclasses import replace

from axe_eq.errors import DispatchError
from axe_eq.kernel import ir
from axe_eq.kernel.dispatch import Context
from axe_eq.kernel.placement import number
from axe_eq.kernel.plan import Call, Plan
from axe_eq.target import Instr
from axe_eq_backends.nki.access import Access, run_bytes, swapped, walked
from axe_eq_backends.nki.build import FREE, Gather
from axe_eq_backends.nki.clock import timed, transfer_ns
from axe_eq_backends.nki.timing import TURNED_RUN_BYTES


def derive(row: Instr, s: ir.Primitive, context: Context[ir.Where]) -> Plan:
    """The plan of a copy between HBM and SBUF, of a gather, or of a copy that turns partitions."""
    if isinstance(s, Gather):
        return _gathered(row, s, context)
    if row.name == "dma.transpose" and isinstance(s, ir.Copy):
        return _turned(row, s, context)
    if row.name != "dma.copy":
        raise DispatchError(row.name, f"is a {s.name}", "rows that begin where integers say")
    if not isinstance(s, ir.Copy):
        raise DispatchError(row.name, f"is a {s.name}", "a copy")
    memories = s.dst.buffer.memory, s.src.buffer.memory
    is_load = s.src.buffer.is_global
    if "psum" in memories or is_load == s.dst.buffer.is_global:
        raise DispatchError(row.name, f"copies {memories[1]} to {memories[0]}", "HBM and SBUF")
    chip, far = (s.dst, s.src) if is_load else (s.src, s.dst)
    (here, there), loops = walked(
        (chip, far), s.dst.shape, row.name, context.names, row.limits["dims"]
    )
    dst, src = (here, there) if is_load else (there, here)
    run = min(run_bytes(here), run_bytes(there))
    call = Call("dma_copy", {"dst": dst, "src": src}, transfer_ns(row, here, run, context.target))
    return timed(row, [call], loops, f"runs of {run} bytes")


def _turned(row: Instr, s: ir.Copy, context: Context[ir.Where]) -> Plan:
    """A copy in SBUF whose partitions are the fastest part of what was the free axis."""
    memories = s.dst.buffer.memory, s.src.buffer.memory
    if memories != ("sbuf", "sbuf"):
        raise DispatchError(row.name, f"copies {memories[1]} to {memories[0]}", "sbuf to sbuf")
    if (s.dst.buffer.dtype,) not in row.dtypes:
        raise DispatchError(row.name, f"turns {s.dst.buffer.dtype}", "16 bits")
    dst, src, _ = swapped(row, s)
    if max(dst.partitions, src.partitions) == 1:
        raise DispatchError(row.name, "turns one row", "rows and columns")
    run = min(run_bytes(src), TURNED_RUN_BYTES)
    call = Call(
        "dma_transpose", {"dst": dst, "src": src}, transfer_ns(row, src, run, context.target)
    )
    return timed(row, [call], notes=f"{src.partitions} x {src.elements}")


def _gathered(row: Instr, s: Gather, context: Context[ir.Where]) -> Plan:
    """One descriptor per partition, that begins where its integer says."""
    if row.name != "dma.gather" or s.out.buffer.memory != "sbuf":
        raise DispatchError(row.name, "gathers", "the row that does, into sbuf")
    (dst, where), loops = walked(
        (s.out, s.where), s.out.shape, row.name, context.names, row.limits["dims"]
    )
    if loops:
        raise DispatchError(row.name, "has too many free dims", f"{row.limits['dims'] - 1}")
    if any(step for step, n in where.steps if n > 1):
        raise DispatchError(row.name, "has places along the free axis", "one per partition")
    free = [
        (stride, s.steps[d], n)
        for d, n in enumerate(s.out.shape)
        for stride in (_free_stride(s.out, d),)
        if n > 1 and stride
    ]
    free.sort(reverse=True)
    own = tuple((step, n) for _, step, n in free) or ((1, 1),)
    tile = Access(s.out, dst.first, dst.partitions, dst.begin,
                  tuple((stride, n) for stride, _, n in free) or ((1, 1),))  # fmt: skip
    # What is read of the tensor are these steps, once per partition.
    far = Access(s.src, 0, dst.partitions, 0, ((1, dst.partitions), *own), 1)
    run = min(run_bytes(tile), run_bytes(far))
    ns = transfer_ns(row, tile, run, context.target)
    at = replace(where, steps=((1, 1),))
    args = {"dst": tile, "src": s.src, "steps": own, "at": at}
    return timed(row, [Call("dma_gather", args, ns)], notes=f"runs of {run} bytes")


def _free_stride(view: ir.View, dim: int) -> int:
    """Elements between neighbours of a dim along the free axis; 0 on partitions."""
    block = view.place.blocks[dim]
    return number(block[0].stride) if len(block) == 1 and block[0].axis == FREE else 0
