"""A tensor-parallel MLP written by hand, rank by rank: proved, and a slip in it found.

Each of four ranks has some columns of the first weight and the rows of the second one that belong
to them. A sum over ranks makes the result whole. The slip is a bias that every rank adds before
the sum: types and shapes are right, and what comes out has the bias four times.

The same from the shell:

    axe equiv examples/11_prove_a_rank_program.py:mlp examples/11_prove_a_rank_program.py:MEGATRON \
        --spec 16x32:f32 --spec 32x64:f32 --spec 64x32:f32 --spec 32:f32
"""

from __future__ import annotations

from typing import Any

import numpy as np

import axe_eq as axe
from axe_eq import nn
from axe_eq.mesh import RankProgram, all_gather, psum, psum_scatter

MESH = axe.Mesh({"tp": 4})
SPECS = ("16x32:f32", "32x64:f32", "64x32:f32", "32:f32")
COLUMNS, ROWS = "jax:P(None,'tp')", "jax:P('tp',None)"


def mlp(x: Any, w1: Any, w2: Any, bias: Any) -> Any:
    """The function, as for one device."""
    return nn.gelu(x @ w1) @ w2 + bias


def on_a_rank(x: Any, w1: Any, w2: Any, bias: Any) -> Any:
    """What a rank does with all of x, its columns of w1 and its rows of w2."""
    return psum(nn.gelu(x @ w1) @ w2, "tp") + bias


def with_a_slip(x: Any, w1: Any, w2: Any, bias: Any) -> Any:
    """The bias is added by every rank, then summed over ranks."""
    return psum(nn.gelu(x @ w1) @ w2 + bias, "tp")


def by_tokens(x: Any, w1: Any, w2: Any, bias: Any) -> Any:
    """Sequence parallel: a rank has some rows of x, and returns these rows."""
    hidden = nn.gelu(all_gather(x, "tp", axis=0, tiled=True) @ w1)
    return psum_scatter(hidden @ w2, "tp", scatter_dimension=0, tiled=True) + bias


MEGATRON = RankProgram(on_a_rank, MESH, [None, COLUMNS, ROWS, None])
SLIP = RankProgram(with_a_slip, MESH, [None, COLUMNS, ROWS, None])
BY_TOKENS = RankProgram(by_tokens, MESH, [ROWS, COLUMNS, ROWS, None], ROWS)


def main() -> None:
    """Prove two rank programs, refute a third, and run them."""
    for name, ranks in (("megatron", MEGATRON), ("by tokens", BY_TOKENS)):
        verdict = axe.equivalent(mlp, ranks, *SPECS)
        assert isinstance(verdict, axe.Proved)
        assert axe.check_certificate(verdict.certificate)
        print(f"{name}: {verdict.how}, a certificate of {len(verdict.certificate):,} bytes")

    slip = axe.equivalent(mlp, SLIP, *SPECS)
    assert isinstance(slip, axe.Refuted)
    print(f"slip: {slip.reason}")
    found = slip.counterexample
    print(f"    {str(found).splitlines()[0]}")

    rng = np.random.default_rng(0)
    shapes = ((16, 32), (32, 64), (64, 32), (32,))
    arrays = [rng.standard_normal(shape, np.float32) / 8 for shape in shapes]
    alone = axe.run(mlp, *arrays)
    print(f"four ranks on numpy differ from one by {np.abs(MEGATRON(*arrays) - alone).max():.0e}")
    assert np.allclose(MEGATRON(*arrays), alone, atol=1e-5)
    assert np.allclose(SLIP.run(*arrays)[2] - alone, 3 * arrays[3], atol=1e-5)


if __name__ == "__main__":
    main()
