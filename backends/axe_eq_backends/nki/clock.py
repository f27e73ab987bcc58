"""What instructions take: nanoseconds of their engine, of planned and of simulated calls alike.

The figures are the target's: clocks of its engines, cycles in its rows' limits, the rate
of its memory.
"""

from __future__ import annotations

from collections.abc import Sequence

from axe_eq.errors import DispatchError
from axe_eq.kernel import ir
from axe_eq.kernel.dispatch import Context
from axe_eq.kernel.expr import Var
from axe_eq.kernel.plan import Call, Plan
from axe_eq.target import Engine, Instr, Target
from axe_eq_backends.nki.access import Access, repeats
from axe_eq_backends.nki.timing import dma_ns, engine_ns


def engine_of(row: Instr, target: Target) -> Engine:
    """The engine that issues a row.

    Raises:
        DispatchError: the target has no such engine.
    """
    for engine in target.engines:
        if engine.name == row.scope:
            return engine
    known = " ".join(e.name for e in target.engines)
    raise DispatchError(f"row {row.name}", f"is issued by {row.scope!r}", f"one of {known}")


def ns_of(
    row: Instr, context: Context[ir.Where], elements: int, what: str = "element_cycles"
) -> float:
    """Nanoseconds for so many elements of a partition, or columns of a product."""
    hz = engine_of(row, context.target).hz
    return engine_ns(hz, row.limits[what], elements, row.limits["min_cycles"])


def transfer_ns(row: Instr, a: Access, run: int, target: Target) -> float:
    """Nanoseconds of a transfer in such runs; latencies of the queues' transfers overlap."""
    limits, n_bytes = target.limits, a.partitions * a.elements * a.buffer.itemsize
    return dma_ns(
        n_bytes, run, target.memories[0].bytes_per_s,
        limits["dma_half_run_bytes"], limits["dma_latency_ns"] / engine_of(row, target).queues,
    )  # fmt: skip


def timed(row: Instr, calls: Sequence[Call], loops: Sequence[Var] = (), notes: str = "") -> Plan:
    """The plan of calls that say what they take, in loops."""
    ns = repeats(loops) * sum(c.cycles for c in calls)
    return Plan(row, list(calls), cycles=ns, notes=notes, loops=list(loops))
