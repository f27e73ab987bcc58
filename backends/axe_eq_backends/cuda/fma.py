"""Products of registers on ordinary lanes: multiply-adds of one thread.

Any accumulator works whose rows and columns lie on the threads where the operands' rows lie; every
thread holds whole rows of both operands, so the reduced dim is in registers. Shared operands are
replicated over the threads that do not tell them apart.
"""

from __future__ import annotations

from axe_eq.kernel.placement import Iter, Placement, number
from axe_eq.kernel.plan import Call, Plan
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.dispatch import Context
from axe_eq.kernel.threads.plan import Regs
from axe_eq.target import Instr
from axe_eq_backends.cuda.mma import product_of_registers
from axe_eq_backends.cuda.warps import matching


def derive(row: Instr, primitive: ir.Primitive, context: Context) -> Plan:
    """Plan a synchronous matrix product for a row ``fma.<dtype>``."""
    gemm = product_of_registers(row, primitive, context)
    acc, a, b = (_registers(gemm, v) for v in (gemm.acc, gemm.a, gemm.b))
    rows, cols, depth = *gemm.acc.shape, gemm.a.shape[1]
    per_thread = len(acc)
    rate = row.flops_per_s / context.target.n_units / 1e9
    call = Call(
        "fma",
        {
            "acc": Regs(gemm.acc.buffer, acc),
            "a": Regs(gemm.a.buffer, a),
            "b": Regs(gemm.b.buffer, b),
            "accumulate": gemm.accumulate,
            "dtype": gemm.acc.buffer.dtype,
        },
    )
    notes = f"{per_thread} multiply-adds a thread"
    return Plan(row, [call], cycles=2.0 * rows * cols * depth / rate, notes=notes)


def _registers(gemm: ir.Gemm, view: ir.View) -> tuple[int, ...]:
    """The register of an operand at every step of a thread, the reduced dim slowest."""
    acc, depth = gemm.acc.place.static(), gemm.a.shape[1]
    held = acc.extent_on("reg")
    steps = Placement((*acc.blocks, (Iter(depth, held, "reg"),)))
    first, *second = view.place.static().blocks
    if view is gemm.acc:
        blocks = (first, *second, (Iter(depth, 0, "reg"),))
    else:
        blocks = (first, (), *second) if view is gemm.a else ((), first, *second)
    pairs = matching(steps, Placement(blocks))
    base = number(view.place.at("reg"))
    return tuple(base + r for _, r in pairs)
