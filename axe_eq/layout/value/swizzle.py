"""XOR swizzles on one axis: the only part of a layout that is not linear."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from axe_eq.errors import LayoutError, said

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Bits = TypeVar("Bits", int, NDArray[np.int64])

MAX_WRITTEN = 2**64  # of a parameter that an error shows
MAX_BIT = 62  # coordinates are int64, so no swizzle may reach the sign bit


class Swizzle(NamedTuple):
    """XOR of one bit field of a coordinate into another, CuTe's ``Swizzle<bits, base, shift>``.

    The field of ``bits`` bits that starts at ``base + shift`` is XORed into the one that starts at
    ``base`` (for a negative shift the other way round: the field at ``base`` into the one at
    ``base - shift``). Bits count elements, not bytes. Negative coordinates are two's complement.
    With ``|shift| >= bits`` the swizzle is its own inverse; smaller shifts are allowed too and are
    still one to one.

    >>> axe.Swizzle("m", bits=3, base=4, shift=3).apply(128)
    144

    Args:
        axis: the axis it acts on.
        bits: width of the fields; 0 is the identity.
        base: lowest bit of the lower field.
        shift: distance between the fields, not 0.
    """

    axis: str
    bits: int
    base: int
    shift: int

    def __str__(self) -> str:
        return f"sw({self.bits},{self.base},{self.shift})@{self.axis}"

    @property
    def reach(self) -> int:
        """The number of low bits that it reads or writes; higher bits pass through."""
        return self.base + abs(self.shift) + self.bits if self.bits else 0

    @property
    def source(self) -> int:
        """The lowest bit of the field that it reads."""
        return self.base + max(self.shift, 0)

    @property
    def target(self) -> int:
        """The lowest bit of the field that it changes."""
        return self.base + max(-self.shift, 0)

    @property
    def mask(self) -> int:
        """The bits that it reads."""
        return ((1 << self.bits) - 1) << self.source

    def apply(self, value: Bits) -> Bits:
        """The swizzled coordinate, or those of an int64 array."""
        field = value & self.mask
        return value ^ (field >> self.shift if self.shift > 0 else field << -self.shift)

    def undo(self, value: Bits) -> Bits:
        """The coordinate whose swizzle is `value`, or those of an int64 array."""
        original = value
        for _ in range(self.bits // abs(self.shift) + 1 if self.bits else 0):
            original = self.apply(original) ^ original ^ value
        return original

    def scaled(self, log2: int) -> Swizzle:
        """The same swizzle on coordinates that are multiplied by ``2**log2``."""
        return Swizzle(self.axis, self.bits, self.base + log2, self.shift)


def check_swizzles(swizzles: Iterable[Any]) -> tuple[Swizzle, ...]:
    """The swizzles as a tuple, or the LayoutError that says which one is impossible."""
    try:
        checked = tuple(swizzles)
    except TypeError:
        raise LayoutError("swizzle", f"is {said(swizzles)}", "a sequence of Swizzle") from None
    for sw in checked:
        if not isinstance(sw, Swizzle) or not isinstance(sw.axis, str):
            raise LayoutError("swizzle", said(sw), "Swizzle(axis, bits, base, shift)")
        if any(type(number) is not int for number in sw[1:]):
            raise LayoutError(
                f"swizzle {said(tuple(sw))}", "a parameter is not an int", "three integers"
            )
        if max(map(abs, sw[1:])) > MAX_WRITTEN:
            long = f"a parameter {said(max(sw[1:], key=abs))}"
            raise LayoutError(f"swizzle on {sw.axis}", long, f"at most bit {MAX_BIT}")
        if sw.bits < 0 or sw.base < 0 or (sw.shift == 0 and sw.bits):
            raise LayoutError(f"swizzle {sw}", "impossible", "bits >= 0, base >= 0, shift != 0")
        if sw.reach > MAX_BIT:
            raise LayoutError(f"swizzle {sw}", f"reaches bit {sw.reach}", f"at most bit {MAX_BIT}")
    return checked
