"""Products of odd extents, and of wide element types, against torch on this machine's GPU.

    python -m benchmarks.cuda_odd [--out FOLDER] [--prepare FOLDER | --saved FOLDER]

As `benchmarks.cuda_small`, which says what is timed. Operands that bulk copies cannot fetch may be
copied to rows that begin at multiples of 16 bytes first: that is in the times. torch does not use
tf32.
"""

from __future__ import annotations

from benchmarks.cuda_small import measure

HALVES = (
    (4096, 4095, 4096), (4096, 4096, 4095), (4095, 4095, 4095), (8192, 1001, 8192),
    (3333, 1035, 1037), (1001, 1003, 1005), (64, 4095, 4095), (8192, 8190, 1022), (333, 333, 333),
)  # fmt: skip
WIDE = ((4096, 4096, 4096), (2048, 2048, 2048), (3333, 1035, 1037), (1000, 1000, 1000))

if __name__ == "__main__":
    shapes = [(*shape, "f16") for shape in HALVES]
    shapes += [(*shape, dtype) for dtype in ("f32", "f64") for shape in WIDE]
    measure("cuda_odd.json", __doc__, shapes)
