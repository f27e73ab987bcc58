"""Copies between HBM and SBUF: descriptors move runs that are contiguous on both sides."""

from __future__ import annotations

from math import prod

from axe_eq.errors import DispatchError
from axe_eq.kernel import ir
from axe_eq.kernel.dispatch import Context
from axe_eq.kernel.plan import Call, Plan
from axe_eq.target import Instr
from axe_eq_backends.nki.access import run, walked
from axe_eq_backends.nki.clock import transfer_ns


def derive(row: Instr, s: ir.Primitive, context: Context[ir.Where]) -> Plan:
    """The plan of a copy one side of which lies in HBM, the other in SBUF."""
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
    count = prod((v.high or 0) + 1 for v in loops)
    piece = run(here, there) * chip.buffer.itemsize
    ns = transfer_ns(here, there, row, context.target) * count
    call = Call("dma_copy", {"dst": dst, "src": src})
    return Plan(row, [call], cycles=ns, notes=f"runs of {piece} bytes", loops=loops)
