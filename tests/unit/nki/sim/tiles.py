"""Instructions on tiles, for tests of what they compute."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from axe_eq_backends.nki.sim import simulate
from axe_eq_backends.nki.sim.facade import modules

Array = np.ndarray[Any, Any]
NL, NISA = modules("0.3")["nki.language"], modules("0.3")["nki.isa"]
F32, BF16 = np.dtype(np.float32), np.dtype(ml_dtypes.bfloat16)


def on_tiles(
    act: Callable[..., None], *arrays: Array, shape: tuple[int, ...], dtype: Any = F32,
    target: str = "trn2", psum: bool = False,
) -> Array:  # fmt: skip
    """What `act(dst, *tiles)` writes to a tile, of arrays that are loaded into tiles."""

    def kernel(*given: Any) -> Any:
        out = NL.ndarray(shape, dtype=dtype, buffer=NL.shared_hbm)
        tiles = []
        for x in given:
            tiles.append(NL.ndarray(x.shape, dtype=x.dtype, buffer=NL.sbuf))
            NISA.dma_copy(dst=tiles[-1], src=x)
        dst = NL.ndarray(shape, dtype=dtype, buffer=NL.psum if psum else NL.sbuf)
        act(dst, *tiles)
        if psum:
            held = NL.ndarray(shape, dtype=dtype, buffer=NL.sbuf)
            NISA.tensor_copy(dst=held, src=dst)
            dst = held
        NISA.dma_copy(dst=out, src=dst)
        return out

    return np.asarray(simulate(kernel, "k", *arrays, target=target)[0])


def draw(rng: np.random.Generator, *shape: int, dtype: Any = F32) -> Array:
    return rng.standard_normal(shape).astype(dtype)


def same(got: Array, wanted: Array, tolerance: float = 1e-6) -> None:
    np.testing.assert_allclose(
        got.astype(np.float64), wanted.astype(np.float64), tolerance, tolerance
    )
