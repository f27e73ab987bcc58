"""How large a kernel may be: what NVRTC compiles in seconds.

Cost models, schedules and emission count alike, so that what is priced is what is emitted.
"""

from __future__ import annotations

from typing import Any

# NVRTC 13.0 compiles unrolled cells in a time that grows with the square of their number: 1.6 s for
# 7,000 instructions, 5.4 s for 13,000, 13 s for 19,000, on one core.
MOST_INSTRUCTIONS = 8_000
MOST_TEXT = 200_000
INSTRUCTIONS_PER_FLOP = 1.33  # of `Cell.flops`, in sm_90a code of f32 cells


def instructions(flops: Any) -> Any:
    """About how many instructions operations of cells are, of one thread; numbers or columns.

    >>> instructions(1000.0)
    1330.0
    """
    return flops * INSTRUCTIONS_PER_FLOP
