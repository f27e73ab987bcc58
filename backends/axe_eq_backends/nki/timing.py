"""The formulas of model time; their figures are the target's, for plans and the simulator alike."""

from __future__ import annotations

# Blocks of 16 x 128 elements of two bytes turn in a DMA engine; their rows are what memory sees.
TURNED_RUN_BYTES = 256


def engine_ns(hz: float, cycles: float, elements: float, least: float) -> float:
    """Nanoseconds of an instruction: cycles per element of a partition, and a least number.

    >>> engine_ns(1e9, 2, 512, 64), engine_ns(1e9, 1, 1, 64)
    (1024.0, 64.0)
    """
    return max(least, cycles * elements) / (hz / 1e9)


def dma_ns(
    n_bytes: int, run_bytes: int, bytes_per_s: float, half_run_bytes: float, latency_ns: float
) -> float:
    """Nanoseconds that a transfer takes of all DMA queues together.

    Args:
        n_bytes: that it moves.
        run_bytes: of a contiguous run; short runs get less of the rate.
        bytes_per_s: the rate of all queues.
        half_run_bytes: the run that gets half of the rate.
        latency_ns: its share of the latency, which is the least that it takes.

    >>> dma_ns(1 << 20, 256, 1e11, 256, 1300)
    20971.52
    """
    rate = bytes_per_s * run_bytes / (run_bytes + half_run_bytes)
    return max(n_bytes / rate * 1e9, latency_ns)
