"""A kernel for AWS Trainium: choose it, read it, run it in the simulator, call it as NKI's are.

    python examples/10_trainium_kernel.py [FILE.py]

FILE.py gets the text of the kernel. On a machine with the Neuron SDK it is imported and called like
every `nki.jit` kernel; with torch or JAX, on arrays of the device:

    from FILE import k0_mul_sigmoid      # the name that this program prints
    y = k0_mul_sigmoid(aT, b)
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import axe_eq as axe
from axe_eq import nn


def layer(aT: Any, b: Any) -> Any:
    """A product whose first operand lies as the tensor engine wants it, and a cell after it."""
    return nn.silu(aT.T @ b)


def main() -> None:
    """Compile, show, run and compare."""
    exe = axe.compile(layer, "256x200:bf16", "256x600:bf16", target="trn2")
    (kernel,) = exe.kernels
    text = exe.source[kernel.name]
    print(f"{kernel.schedule} with {dict(kernel.parameters)}")
    print(f"{len(text.splitlines())} lines of NKI in {kernel.name}")
    print(f"modelled, not measured: {1e6 * kernel.time_s:.0f} us")
    if len(sys.argv) > 1 and sys.argv[1].endswith(".py"):
        Path(sys.argv[1]).write_text(text, encoding="utf-8")
    print(next(line.strip() for line in text.splitlines() if "nc_matmul" in line))
    draw = np.random.default_rng(0)
    aT, b = (draw.standard_normal(s).astype(ml_dtypes.bfloat16) for s in ((256, 200), (256, 600)))
    y = exe(aT, b)
    product = aT.T.astype(np.float64) @ b.astype(np.float64)
    apart = np.abs(y.astype(np.float64) - product / (1 + np.exp(-product))).max()
    print(f"{exe!r}: at most {apart:.2g} from float64")
    assert apart < 0.3


if __name__ == "__main__":
    main()
