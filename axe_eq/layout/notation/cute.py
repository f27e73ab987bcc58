"""CuTe layouts ``shape:stride``: nested modes, first mode fastest, swizzles in front.

CuTe's linear index runs through the modes with the first one fastest, Axe's with the last one
fastest, so modes are reversed. With a shape given the top-level modes are its dims in order, and
only the sub-modes inside each are reversed.

Source: NVIDIA CUTLASS, CuTe layout algebra; ``Swizzle<B,M,S>`` of ``cute/swizzle.hpp``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from lark import Token, Transformer, v_args

from axe_eq.errors import NotationError
from axe_eq.layout.iters import DEFAULT_AXIS, Iter, size
from axe_eq.layout.notation.common import blocks_of, only_axis, without_box, without_replica
from axe_eq.layout.notation.text import Context, build, parse, refusal, subject
from axe_eq.layout.swizzle import Swizzle
from axe_eq.layout.value import Layout

Tree = Any  # an int, a text that has no integer value, or a tuple of trees


class _Pointer(NamedTuple):
    bits: int


class _Swizzle(NamedTuple):
    bits: int
    base: int
    shift: int
    offset: int | _Pointer

    def __str__(self) -> str:
        return f"Sw<{self.bits},{self.base},{self.shift}>"


@v_args(inline=True)
class _Trees(Transformer[Token, Any]):
    def INT(self, token: Token) -> int:
        return int(token.lstrip("_"))

    def mode(self, *trees: Tree | None) -> Tree:
        return tuple(tree for tree in trees if tree is not None)

    def dynamic(self) -> str:
        return "?"

    def basis(self, *numbers: int) -> str:
        return "@".join(map(str, numbers))

    def pointer(self, bits: int, _address: Token) -> _Pointer:
        return _Pointer(bits)

    def swizzle(self, bits: int, base: int, shift: int, offset: int | _Pointer | None) -> _Swizzle:
        return _Swizzle(bits, base, shift, offset or 0)

    def start(self, *children: Any) -> tuple[Any, ...]:
        return children


# ---- reading ------------------------------------------------------------------------------------


def read(text: str, context: Context) -> Layout:
    """Reads ``shape:stride`` with swizzles in front, offsets on the axis ``m``.

    ``smem_ptr[16b](unset)`` in the place of the offset says that the swizzle acts on bytes of
    16-bit elements, as CuTe prints layouts of shared memory.

    Raises:
        NotationError: bad grammar, shape and stride of different profiles, a dynamic extent, a
            coordinate stride (``1@0``), or a swizzle that CuTe refuses.
    """
    *swizzles, shape, stride = parse("cute", text, _Trees())
    modes = _modes(text, shape, stride, context.shape)
    shard = [item for mode in modes for item in reversed(mode)]
    offset, acting = 0, []
    for position, sw in enumerate(swizzles):
        acting += _read_swizzle(text, sw)
        offset = sw.offset if isinstance(sw.offset, int) else 0
        if offset and position + 1 < len(swizzles):
            raise NotationError(
                subject("cute", text), f"offset {offset} between two swizzles", "offset 0 there"
            )
    return build("cute", text, lambda: Layout(shard, (), {DEFAULT_AXIS: offset}, acting))


def _modes(
    text: str, shape: Tree, stride: Tree, dims: tuple[int, ...] | None
) -> Sequence[Sequence[Iter]]:
    """The top-level modes in the order in which Axe's linear index has them, slow to fast."""
    check_profile(text, shape, stride)
    pairs = zip(shape, stride, strict=True) if isinstance(shape, tuple) else [(shape, stride)]
    modes = [tuple(_leaves(text, *pair)) for pair in pairs]
    if dims is None:
        return modes[::-1]
    sizes = tuple(map(size, modes))
    if sizes != dims:
        raise NotationError(
            subject("cute", text), f"top-level modes of sizes {sizes}", f"the shape {dims}"
        )
    return modes


def check_profile(text: str, shape: Tree, stride: Tree) -> None:
    """Checks that shape and stride are nested alike, as CuTe demands."""
    if isinstance(shape, tuple) != isinstance(stride, tuple) or (
        isinstance(shape, tuple) and len(shape) != len(stride)
    ):
        raise NotationError(
            subject("cute", text),
            f"shape {show(shape)} and stride {show(stride)} are nested differently",
            "the same profile",
        )
    if isinstance(shape, tuple):
        for inner in zip(shape, stride, strict=True):
            check_profile(text, *inner)


def _leaves(text: str, shape: Tree, stride: Tree) -> Iterator[Iter]:
    if isinstance(shape, tuple):
        for inner in zip(shape, stride, strict=True):
            yield from _leaves(text, *inner)
        return
    for value in (shape, stride):
        if isinstance(value, str):
            reason = "is only known at run time" if value == "?" else "counts along a coordinate"
            raise NotationError(subject("cute", text), f"{value} {reason}", "an integer")
    yield shape, stride, DEFAULT_AXIS


def _read_swizzle(text: str, sw: _Swizzle) -> list[Swizzle]:
    if sw.bits < 0 or sw.base < 0 or abs(sw.shift) < sw.bits:
        raise NotationError(subject("cute", text), str(sw), "B >= 0, M >= 0 and |S| >= B")
    if sw.bits == 0:
        return []
    base = sw.base
    if isinstance(sw.offset, _Pointer):
        base -= _log2_bytes(text, sw.offset.bits)
    if base < 0:
        raise NotationError(
            subject("cute", text), f"{sw} moves bits below one element", "whole elements"
        )
    return [Swizzle(DEFAULT_AXIS, sw.bits, base, sw.shift)]


def _log2_bytes(text: str, bits: int) -> int:
    if bits < 1 or bits & (bits - 1):
        raise NotationError(subject("cute", text), f"elements of {bits} bits", "a power of two")
    return bits.bit_length() - 4


# ---- writing ------------------------------------------------------------------------------------


def write(layout: Layout, context: Context) -> str:
    """Writes a layout on the axis ``m`` without replicas and padding.

    An offset needs a swizzle in front of it in CuTe; ``Sw<0,4,3>``, the identity, serves.

    Raises:
        NotationError: several axes, replicas, padding, or a swizzle that CuTe refuses.
    """
    layout = without_box("cute", without_replica("cute", layout))
    offset = only_axis("cute", layout, "CuTe offsets have one axis, m")
    for sw in layout.swizzle:
        if abs(sw.shift) < sw.bits:
            raise refusal("cute", layout, f"{sw} overlaps itself", "CuTe demands |S| >= B")
    if context.shape is None:
        shape, stride = _columns(layout.shard)
    else:
        modes = [_columns(block) for block in blocks_of("cute", layout, context.shape)]
        shape, stride = (
            (show(tuple(column)) for column in zip(*modes, strict=True))
            if modes
            else (
                "()",
                "()",
            )
        )
    swizzles = [f"Sw<{sw.bits},{sw.base},{sw.shift}>" for sw in layout.swizzle]
    if offset and not swizzles:
        swizzles = ["Sw<0,4,3>"]
    offsets = [0] * (len(swizzles) - 1) + [offset]
    front = "".join(f"{sw} o {value} o " for sw, value in zip(swizzles, offsets, strict=False))
    return f"{front}{shape}:{stride}"


def _columns(block: Sequence[Iter]) -> tuple[str, str]:
    if not block:
        return "1", "0"
    if len(block) == 1:
        return str(block[0][0]), str(block[0][1])
    return show(tuple(i[0] for i in reversed(block))), show(tuple(i[1] for i in reversed(block)))


def show(tree: Tree) -> str:
    """CuTe's text of a nested tuple."""
    return f"({','.join(map(show, tree))})" if isinstance(tree, tuple) else str(tree)
