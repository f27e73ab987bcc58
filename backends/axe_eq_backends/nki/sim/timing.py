"""Model time of instructions that is no plain count of cycles."""

from __future__ import annotations

from axe_eq_backends.nki.sim.machine import Machine


def dma_ns(machine: Machine, n_bytes: int, run: int) -> float:
    """Time that a transfer takes at the rate of all queues, its contiguous runs considered."""
    return n_bytes / machine.dma_bytes_per_ns * (1 + machine.dma_half_run / run)


def matmul_cycles(columns: int, *, wide: bool, double: bool = False) -> float:
    """Cycles between two products: one per column of the moving operand, four for float32."""
    return max(columns, 64) * (4.0 if wide else 0.5 if double else 1.0)
