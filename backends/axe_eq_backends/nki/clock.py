"""What instructions take: nanoseconds of their engine. Plans rank by them, kernels are priced."""

from __future__ import annotations

from axe_eq.errors import DispatchError
from axe_eq.kernel import ir
from axe_eq.kernel.dispatch import Context
from axe_eq.target import Engine, Instr, Target
from axe_eq_backends.nki.access import Access
from axe_eq_backends.nki.timing import dma_ns


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
    cycles = max(row.limits["min_cycles"], row.limits[what] * elements)
    return cycles / engine_of(row, context.target).hz * 1e9


def transfer_ns(here: Access, piece: int, target: Target, queues: int = 1) -> float:
    """Nanoseconds that a copy between HBM and SBUF takes, in runs of `piece` bytes.

    Latencies of as many transfers as work side by side, one in each of `queues`, overlap.
    """
    n_bytes, limits = here.partitions * here.elements * here.buffer.itemsize, target.limits
    return dma_ns(
        n_bytes, piece, target.memories[0].bytes_per_s, limits["dma_half_run_bytes"],
        limits["dma_latency_ns"] / queues,
    )  # fmt: skip
