"""Products of odd extents, and of wide element types, against torch on this machine's GPU.

    python -m benchmarks.cuda_odd [--out FOLDER] [--prepare FOLDER | --saved FOLDER]

As `benchmarks.cuda_small`, which says what is timed. Operands that bulk copies cannot fetch may be
copied to rows that begin at multiples of 16 bytes first: that is in the times. torch does not use
tf32. Peers beside torch.mm: torch.compile, which pads what it finds faster so, and operands that
are filled up to multiples of eight by hand at every call.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from benchmarks import cuda_saved
from benchmarks.cuda_small import Calls, Shape, measure

HALVES = (
    (4096, 4095, 4096), (4096, 4096, 4095), (4095, 4095, 4095), (8192, 1001, 8192),
    (3333, 1035, 1037), (1001, 1003, 1005), (64, 4095, 4095), (8192, 8190, 1022), (333, 333, 333),
)  # fmt: skip
WIDE = ((4096, 4096, 4096), (2048, 2048, 2048), (3333, 1035, 1037), (1000, 1000, 1000))


def product(a: Any, b: Any) -> Any:
    """The product as torch.compile is given it."""
    return a @ b


def filled(a: Any, b: Any) -> Any:
    """The product of operands that are filled up with zeros to multiples of eight."""
    from torch.nn.functional import pad

    depth, columns = -b.shape[0] % 8, -b.shape[1] % 8
    left = pad(a, (0, depth)) if depth else a
    right = pad(b, (0, columns, 0, depth)) if depth or columns else b
    return (left @ right)[:, : b.shape[1]]


def peers(sets: Sequence[tuple[Any, Any]]) -> Calls:
    """Calls of both, for every pair of operands."""
    return {
        "compile": cuda_saved.compiled(product, sets),
        "filled": [partial(filled, *given) for given in sets],
    }


if __name__ == "__main__":
    shapes: list[Shape] = [(*shape, "f16") for shape in HALVES]
    shapes += [(*shape, dtype) for dtype in ("f32", "f64") for shape in WIDE]
    measure("cuda_odd.json", __doc__, shapes, peers)
