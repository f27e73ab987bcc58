"""Tensor maps: the hardware's descriptors of global tensors, for bulk copies of boxes."""

from __future__ import annotations

from dataclasses import dataclass

from axe_eq.kernel.expr import Int
from axe_eq.kernel.ir import Buffer
from axe_eq.kernel.plan import Resource
from axe_eq.layout.value.swizzle import Swizzle


@dataclass(frozen=True)
class TensorMap(Resource):
    """A hardware descriptor of a global tensor, encoded by the host at launch.

    Attributes:
        buffer: the tensor.
        shape, strides: per map dim, fastest first, in elements.
        box: elements of one copy per map dim.
        swizzle_bytes: width of the shared-memory swizzle, 0 for none.
        offset: the element that its first one is.
    """

    buffer: Buffer
    shape: tuple[Int, ...]
    strides: tuple[Int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int
    offset: Int = 0

    @property
    def stem(self) -> str:
        """A map of its tensor."""
        return f"map_{self.buffer}"

    @property
    def of(self) -> Buffer:
        """Its tensor."""
        return self.buffer

    def __str__(self) -> str:
        dims = " x ".join(map(str, self.shape))
        swizzle = f", swizzle {self.swizzle_bytes}B" if self.swizzle_bytes else ""
        first = "" if self.offset == 0 else f" from element {self.offset}"
        box = " x ".join(map(str, self.box))
        return f"map of {self.buffer}{first}: {dims}, box {box}{swizzle}"


def swizzle_bytes(swizzle: Swizzle | None, itemsize: int) -> int:
    """Width in bytes of one row of the swizzle's pattern; 0 without one."""
    if swizzle is None or not swizzle.bits:
        return 0
    return itemsize << (swizzle.base + swizzle.bits)
