"""Model time of instructions that is no plain count of cycles."""

from __future__ import annotations

from axe_eq_backends.nki.sim.machine import Machine


def dma_ns(machine: Machine, n_bytes: int, run: int) -> float:
    """Time that a transfer takes of all queues together.

    Short contiguous runs get less of the rate; latencies of as many transfers as there are queues
    overlap.
    """
    moving = n_bytes / machine.dma_bytes_per_ns * (1 + machine.dma_half_run / run)
    return max(moving, machine.dma_latency_ns / machine.dma_queues)
