"""Layers of neural networks in the array namespace; see `axe_eq.program.array.nn`."""

from __future__ import annotations

from typing import TYPE_CHECKING
from typing import NoReturn as _NoReturn

from axe_eq.errors import MissingAttribute as _MissingAttribute
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
from axe_eq.program.traced import instead as _instead

__all__ = [
    "avg_pool2d", "conv2d", "einsum", "gelu", "layernorm", "max_pool2d", "mean", "relu", "rmsnorm",
    "sigmoid", "silu", "softmax",
]  # fmt: skip

if not TYPE_CHECKING:  # type checkers know the names above, and no others

    def __getattr__(name: str) -> _NoReturn:
        """The error of a layer that is not here: to `hasattr` it does not exist.

        Raises:
            MissingAttribute: with the nearest name, or what is done instead.
        """
        hint = "" if name.startswith("_") else _instead(name)
        thing, wrong = f"module {__name__!r}", f"has no attribute {name!r}"
        raise _MissingAttribute(thing, wrong, f"one of {' '.join(__all__)}", hint=hint)
