"""Values on chip: where they are, and what is known of them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from axe_eq.kernel import ir
from axe_eq.kernel.values import anything
from axe_eq.program.types import DTYPES

EXACT = 1 << 24  # whole numbers up to here are float32
WORDS = ("i8", "u8", "i16", "i32")
HELD = ("f8e4m3", "f8e5m2", "f16", "bf16", "f32", *WORDS, "bool")  # what engines compute on


def held_instead(dtype: str) -> str:
    """What is expected of a program that has values of an element type that no engine has.

    >>> held_instead("i64")
    "f8e4m3 f8e5m2 f16 bf16 f32 i8 u8 i16 i32 bool, as astype(x, 'i32') casts to"
    """
    return f"{' '.join(HELD)}, as astype(x, '{DTYPES[dtype].kind}32') casts to"


@dataclass(frozen=True)
class Tile:
    """A value on chip.

    Attributes:
        view: where it is.
        kind: what the program computes it in: f32, an integer type, bool.
        low, high: its least and greatest value, of integers.
    """

    view: ir.View
    kind: str
    low: float = -np.inf
    high: float = np.inf

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents, 1 where it does not vary."""
        return self.view.shape

    @property
    def dtype(self) -> str:
        """The element type that it is held in."""
        return self.view.buffer.dtype

    @property
    def is_exact(self) -> bool:
        """Whether float32 holds it, so that engines compute with it as it is."""
        return DTYPES[self.kind].kind != "i" or max(-self.low, self.high) <= EXACT


def loaded(view: ir.View, dtype: str) -> Tile:
    """A tile of what was read from a tensor."""
    kind = DTYPES[dtype].accumulate
    if DTYPES[dtype].kind == "f":
        return Tile(view, kind)
    ends = anything(dtype)
    return Tile(view, dtype, float(ends.low), float(ends.high))
