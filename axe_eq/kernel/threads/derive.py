"""Derived when a kernel is finished: shared-memory offsets and register budgets of roles."""

from __future__ import annotations

from axe_eq.errors import ScheduleError
from axe_eq.kernel.threads import ir


def lay_out(kernel: ir.Kernel) -> None:
    """Assign shared-memory offsets in order of declaration, barriers last.

    Raises:
        ScheduleError: a buffer over others is larger than what was declared before it from there.
    """
    end = 0
    for buffer in kernel.buffers:
        if not buffer.is_shared:
            continue
        n_bytes = buffer.n_elements * buffer.itemsize
        if (over := buffer.over) is None:
            buffer.offset = -(-end // buffer.alignment) * buffer.alignment
            end = buffer.offset + n_bytes
            continue
        buffer.offset = over.offset
        if over.offset % buffer.alignment or over.offset + n_bytes > end:
            wrong = f"{n_bytes} bytes, {buffer.alignment} aligned, at byte {over.offset} of {end}"
            raise ScheduleError(f"smem {buffer} over {over}", wrong, "room there")
    for barrier in kernel.barriers:
        barrier.offset = -(-end // 8) * 8
        end = barrier.offset + 8 * barrier.slots
    kernel.smem_bytes = end


_IDLE_REGISTERS, _PLENTY = (40, 32), 232
_REGISTER_FILE = 65536


def budget(kernel: ir.Kernel) -> None:
    """Share the registers among roles: those without register tiles keep few, the others gain.

    setmaxnreg moves registers between warpgroups of one CTA: the sum may not exceed what the launch
    gave, and every number is a multiple of 8 (PTX ISA 9.7.19.5).
    """
    for node in kernel.body:
        if isinstance(node, ir.Roles):
            _budget_roles(kernel, node.branches)


def _budget_roles(kernel: ir.Kernel, roles: list[ir.Role]) -> None:
    groups = kernel.n_warps // ir.WARPS_PER_GROUP
    entry = min(_REGISTER_FILE // kernel.n_threads // 8 * 8, 255 // 8 * 8)
    idle = [r for r in roles if not _uses_registers(r.body)]
    busy = [r for r in roles if r not in idle]
    n_idle, n_busy = (sum(r.high - r.low for r in rs) for rs in (idle, busy))
    if not n_idle or not n_busy or entry >= _PLENTY:
        return
    # Fewer for the idle ones only where that leaves the others 8 more each.
    few = min(_IDLE_REGISTERS, key=lambda n: (entry * groups - n * n_idle) % (8 * n_busy))
    share = min((entry * groups - few * n_idle) // n_busy // 8 * 8, 255 // 8 * 8)
    for role in roles:
        role.registers = few if role in idle else share


def _uses_registers(body: ir.Body) -> bool:
    for statement in body:
        views = statement.views() if isinstance(statement, ir.Primitive) else ()
        if any(view.buffer.is_private for view in views):
            return True
        if any(map(_uses_registers, ir.children(statement))):
            return True
    return False
