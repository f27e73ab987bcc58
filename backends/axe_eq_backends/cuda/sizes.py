"""How large a kernel may be: what NVRTC compiles in seconds; and how few CTAs begin late.

Cost models, schedules, emission and launches count alike: what is priced is what is emitted.
"""

from __future__ import annotations

from typing import Any

# NVRTC 13.0 compiles unrolled cells in a time that grows with the square of their number: 1.6 s for
# 7,000 instructions, 5.4 s for 13,000, 13 s for 19,000, on one core.
MOST_INSTRUCTIONS = 8_000
MOST_TEXT = 200_000
EARLY_PART = 0.75  # of the units
MANY_CTAS = 4096  # more begin slower one by one than all of them begin earlier
INSTRUCTIONS_PER_FLOP = 1.33  # of `Cell.flops`, in sm_90a code of f32 cells


def instructions(flops: Any) -> Any:
    """About how many instructions operations of cells are, of one thread; numbers or columns.

    >>> instructions(1000.0)
    1330.0
    """
    return flops * INSTRUCTIONS_PER_FLOP


def begins_early(ctas: Any, units: int) -> Any:
    """Whether CTAs that fill a unit each may begin while the kernel before them runs.

    Few of them would begin on the units that are idle then, side by side, and draw less from
    memory than where they are spread: 80 of an H200's 132 took 1.15 times as long so, 100 of them
    0.94 times (2026-11-26).

    Args:
        ctas: their number, or an array of such.
        units: of the device.
    """
    return ctas >= EARLY_PART * units


def begins_late(ctas: Any) -> bool:
    """Whether there are so many CTAs that each of them counts: their kernel waits for no other.

    Those that wait for the kernel before take 1.22 ns each on an H200, others 0.62 (201,000 CTAs of
    128 threads, 2026-11-26); all together they begin 0.6 us earlier. Launches must agree with what
    was emitted, so no device's units are asked.
    """
    return isinstance(ctas, int) and ctas > MANY_CTAS
