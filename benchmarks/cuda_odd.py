"""Products whose rows begin anywhere (odd inner extents), against torch on this machine's GPU.

    python -m benchmarks.cuda_odd [--out FOLDER]

As `benchmarks.cuda_small`, which says what is timed. Operands that bulk copies cannot fetch may be
copied to rows that begin at multiples of 16 bytes first: that is in the times.
"""

from __future__ import annotations

from benchmarks.cuda_small import measure

SHAPES = (
    (4096, 4095, 4096), (4096, 4096, 4095), (4095, 4095, 4095), (8192, 1001, 8192),
    (3333, 1035, 1037), (1001, 1003, 1005), (64, 4095, 4095), (8192, 8190, 1022), (333, 333, 333),
)  # fmt: skip

if __name__ == "__main__":
    measure("cuda_odd.json", __doc__, SHAPES)
