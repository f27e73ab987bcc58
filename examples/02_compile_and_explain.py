"""A Python function becomes kernels: which, how large, and why these.

The function is ordinary array code. `compile` puts every way to compute it into one e-graph and
extracts the cheapest for a machine, which may be another one than this.
"""

from __future__ import annotations

from typing import Any

import numpy as np

import axe_eq as axe
from axe_eq import nn


def gated(x: Any, g: Any, w: Any, v: Any) -> Any:
    """A gated layer with its norm: silu(h @ w) * (h @ v), h = rmsnorm(x) * g."""
    h = nn.rmsnorm(x) * g
    return nn.silu(h @ w) * (h @ v)


def specs(tokens: int, hidden: int, inner: int) -> list[axe.Spec]:
    """What the arguments look like; the token dim has a name, so it can be rebound."""
    return [
        axe.Spec((tokens, hidden), "f16", dims=("tokens", "")),
        axe.Spec((hidden,), "f16"),
        axe.Spec((hidden, inner), "f16"),
        axe.Spec((hidden, inner), "f16"),
    ]


def main() -> None:
    """Compile for an H200, ask why, and run what was chosen here, at fewer tokens."""
    exe = axe.compile(gated, *specs(8192, 1024, 4096), target="h200")
    print(exe.explain())

    few = axe.compile(gated, *specs(16, 1024, 4096), target="h200")
    print()
    for tokens, made in ((8192, exe), (16, few)):
        print(f"{tokens} tokens:")
        for kernel in made.kernels:
            sizes = " ".join(f"{name}={size}" for name, size in kernel.parameters.items())
            row = f" on {kernel.row}" if kernel.row else ""
            print(f"    {kernel.name}: {kernel.schedule}{row}, {sizes}")
    many, some = ([dict(k.parameters) for k in made.kernels] for made in (exe, few))
    assert many != some

    # The schedule is a graph of steps over buffers: any of them runs on the CPU, slowly but truly.
    rng = np.random.default_rng(0)
    shapes = ((8, 1024), (1024,), (1024, 4096), (1024, 4096))
    arrays = [(rng.standard_normal(s) / 32).astype(np.float16) for s in shapes]
    got = exe.schedule.bind(tokens=8).run(*arrays).astype(np.float32)
    want = axe.run(gated, *arrays).astype(np.float32)
    error = float(np.abs(got - want).max() / np.abs(want).max())
    assert error < 5e-3
    print(f"the schedule for 8192 tokens, bound to 8, on the CPU: relative error {error:.1e}")


if __name__ == "__main__":
    main()
