"""Layers of neural networks in the array namespace; see `axe_eq.program.array.nn`."""

from __future__ import annotations

from axe_eq.program.array.nn import (
    einsum,
    gelu,
    layernorm,
    mean,
    relu,
    rmsnorm,
    sigmoid,
    silu,
    softmax,
)
from axe_eq.program.array.nn_spatial import avg_pool2d, conv2d, max_pool2d

__all__ = [
    "avg_pool2d",
    "conv2d",
    "einsum",
    "gelu",
    "layernorm",
    "max_pool2d",
    "mean",
    "relu",
    "rmsnorm",
    "sigmoid",
    "silu",
    "softmax",
]
