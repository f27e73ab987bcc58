"""A tensor-parallel MLP on eight processes, from one command.

    python examples/09_mlp_on_eight_ranks.py

The function is written for one device. Layouts say where its arrays begin and end; the compiler
finds what ranks compute and send each other. The plan is proved, run in this process, and run again
over MPI: the same bytes, and as many sent as planned. It needs the extra `mpi`.

The same from the shell:

    axe launch examples/09_mlp_on_eight_ranks.py:mlp --ranks 8 --spec 256x64:f32 \
        --spec 64x512:f32 --spec 512x64:f32 --layout "jax:P('x',None)" \
        --layout "jax:P(None,'x')" --layout "jax:P('x',None)" --output-layout "jax:P('x',None)"
"""

from __future__ import annotations

from typing import Any

import numpy as np

import axe_eq as axe
from axe_eq import nn

MESH = axe.Mesh({"x": 8})
ROWS, COLUMNS = "P('x',None)", "P(None,'x')"
TOKENS, WIDTH, HIDDEN = 256, 64, 512


def mlp(x: Any, w1: Any, w2: Any) -> Any:
    """Two products with a gate between them."""
    return nn.silu(x @ w1) @ w2


def cut(shape: tuple[int, ...], how: str) -> axe.Layout:
    """A layout that cuts one dim over the devices."""
    return axe.read("jax", how, shape=shape, mesh=MESH)


def main() -> None:
    """Compile for one device and for eight, and run both."""
    shapes = ((TOKENS, WIDTH), (WIDTH, HIDDEN), (HIDDEN, WIDTH))
    cuts = (ROWS, COLUMNS, ROWS)
    specs = [axe.Spec(s, "f32", layout=cut(s, how)) for s, how in zip(shapes, cuts, strict=True)]
    wanted = [cut((TOKENS, WIDTH), ROWS)]
    exe = axe.compile(mlp, *specs, target="cpu", mesh=MESH, outputs=wanted)
    print(exe.plan)

    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, np.float32) / 8 for shape in shapes]
    simulated = exe(*arrays)
    one = axe.compile(mlp, *(axe.Spec(s, "f32") for s in shapes), target="cpu")(*arrays)
    print(f"one device and eight differ by {np.abs(simulated - one).max():.1e}")
    assert np.allclose(simulated, one, rtol=1e-4, atol=1e-5)

    launched = exe.launch(*arrays)
    assert launched.outputs.tobytes() == simulated.tobytes()
    assert launched.sent == exe.plan.n_bytes
    print(f"eight processes: the same bytes, {exe.plan.link_bytes:,} sent, as planned")


if __name__ == "__main__":
    main()
