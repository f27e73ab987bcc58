"""CuTe layouts ``shape:stride``: nested modes, first mode fastest, swizzles in front.

CuTe's linear index runs through the modes with the first one fastest, Axe's with the last one
fastest, so modes are reversed. With a shape given the top-level modes are its dims in order, and
only the sub-modes inside each are reversed.

Source: NVIDIA CUTLASS, CuTe layout algebra; ``Swizzle<B,M,S>`` of ``cute/swizzle.hpp``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

from lark import Token, v_args

from axe_eq.layout.notation.common import in_bits, only_axis, without_box, without_replica
from axe_eq.layout.notation.text import Context, Reader, given, parse, refuse
from axe_eq.layout.value.iters import DEFAULT_AXIS, Iter, size
from axe_eq.layout.value.layout import Layout
from axe_eq.layout.value.swizzle import Swizzle

Tree = Any  # an int, a text that has no integer value, or a tuple of trees


class _Pointer(NamedTuple):
    bits: int


class _Offset(NamedTuple):
    value: int


class _Swizzle(NamedTuple):
    bits: int
    base: int
    shift: int

    def __str__(self) -> str:
        return f"Sw<{self.bits},{self.base},{self.shift}>"


_Front = _Swizzle | _Offset | _Pointer


@v_args(inline=True)
class _Trees(Reader):
    mode = staticmethod(given)
    offset = _Offset
    swizzle = _Swizzle

    def INT(self, token: Token) -> int:
        return int(token.lstrip("_"))

    def dynamic(self) -> str:
        return "?"

    def basis(self, *numbers: int) -> str:
        return "@".join(map(str, numbers))

    def unit_basis(self, *numbers: int) -> str:
        return f"E<{','.join(map(str, numbers))}>"

    def pointer(self, bits: int, _address: Token) -> _Pointer:
        return _Pointer(bits)


# ---- reading ------------------------------------------------------------------------------------


def read(text: str, context: Context) -> Layout:
    """Reads ``shape:stride`` with swizzles in front, offsets on the axis ``m``.

    ``smem_ptr[16b](unset)`` in the place of the offset says that the swizzle acts on bytes of
    16-bit elements, as CuTe prints layouts of shared memory.

    Raises:
        NotationError: bad grammar, shape and stride of different profiles, a dynamic extent, a
            coordinate stride (``1@0``), or a swizzle that CuTe refuses.
    """
    *front, shape, stride = parse("cute", text, _Trees())
    modes = _modes(shape, stride, context.shape)
    shard = [item for mode in modes for item in reversed(mode)]
    offset, swizzles = _read_front(front)
    return Layout(shard, (), {DEFAULT_AXIS: offset}, swizzles)


def dims(text: str) -> tuple[int, ...] | None:
    """The sizes of the top-level modes; None where there is one, or a dynamic one."""
    *_, shape, _ = parse("cute", text, _Trees())
    if not isinstance(shape, tuple):
        return None
    sizes = tuple(_product(mode) for mode in shape)
    return None if None in sizes else tuple(size for size in sizes if size is not None)


def _product(tree: Tree) -> int | None:
    if not isinstance(tree, tuple):
        return tree if isinstance(tree, int) else None
    sizes = [_product(inner) for inner in tree]
    return None if None in sizes else prod(size for size in sizes if size is not None)


def _read_front(front: Sequence[_Front]) -> tuple[int, list[Swizzle]]:
    """The offset that is added first, and the swizzles after it: each may bring an offset."""
    swizzles: list[Swizzle] = []
    for place, item in enumerate(front):
        if isinstance(item, _Swizzle):
            bits = front[place + 1] if place + 1 < len(front) else None
            swizzles += _read_swizzle(item, bits.bits if isinstance(bits, _Pointer) else 8)
        elif not place or not isinstance(front[place - 1], _Swizzle):
            refuse("an offset without a swizzle before it", "Sw<B,M,S> o offset o layout")
    last = front[-1] if front else _Offset(0)
    inner = [item for item in front[:-1] if isinstance(item, _Offset) and item.value]
    if inner:
        refuse(f"offset {inner[0].value} between two swizzles", "offset 0 there")
    return last.value if isinstance(last, _Offset) else 0, swizzles


def _modes(shape: Tree, stride: Tree, dims: tuple[int, ...] | None) -> Sequence[Sequence[Iter]]:
    """The top-level modes in the order in which Axe's linear index has them, slow to fast."""
    _check_profile(shape, stride)
    pairs = zip(shape, stride, strict=True) if isinstance(shape, tuple) else [(shape, stride)]
    modes = [tuple(_leaves(*pair)) for pair in pairs]
    if dims is None:
        return modes[::-1]
    sizes = tuple(map(size, modes))
    if sizes != dims:
        refuse(f"top-level modes of sizes {sizes}", f"the shape {dims}")
    return modes


def _check_profile(shape: Tree, stride: Tree) -> None:
    """Checks that shape and stride are nested alike, as CuTe demands."""
    nested = isinstance(shape, tuple)
    if nested != isinstance(stride, tuple) or (nested and len(shape) != len(stride)):
        refuse(
            f"shape {show(shape)} and stride {show(stride)} are nested differently",
            "the same profile",
        )
    if nested:
        for inner in zip(shape, stride, strict=True):
            _check_profile(*inner)


def _leaves(shape: Tree, stride: Tree) -> Iterator[Iter]:
    if isinstance(shape, tuple):
        for inner in zip(shape, stride, strict=True):
            yield from _leaves(*inner)
        return
    for value in (shape, stride):
        if isinstance(value, str):
            reason = "is only known at run time" if value == "?" else "counts along a coordinate"
            refuse(f"{value} {reason}", "an integer")
    yield shape, stride, DEFAULT_AXIS


def _read_swizzle(sw: _Swizzle, bits: int) -> list[Swizzle]:
    """The swizzle on elements of so many bits, where CuTe's own acts on bytes."""
    if sw.bits < 0 or sw.base < 0 or abs(sw.shift) < sw.bits:
        refuse(str(sw), "B >= 0, M >= 0 and |S| >= B")
    if bits < 1 or bits & (bits - 1):
        refuse(f"elements of {bits} bits", "a power of two")
    if sw.bits == 0:
        return []
    base = sw.base - (bits.bit_length() - 4)
    if base < 0:
        refuse(f"{sw} moves bits below one element", "whole elements")
    return [Swizzle(DEFAULT_AXIS, sw.bits, base, sw.shift)]


# ---- writing ------------------------------------------------------------------------------------


def write(layout: Layout, context: Context) -> str:
    """Writes a layout on the axis ``m`` without replicas and padding.

    An offset needs a swizzle in front of it in CuTe; ``Sw<0,4,3>``, the identity, serves.

    Raises:
        NotationError: several axes, replicas, padding, or a swizzle that CuTe refuses.
    """
    layout = without_replica(layout)
    return _written(without_box(in_bits(layout)), context)


def _accepted(sw: Swizzle) -> list[Swizzle]:
    """Swizzles that together do what one does, each with |S| >= B as CuTe demands.

    A field that overlaps the one it is read from is cut into pieces of |S| bits. The piece acts
    first that no other one reads: the lowest for S > 0, for S < 0 the highest.
    """
    step = abs(sw.shift)
    pieces = [
        Swizzle(sw.axis, min(step, sw.bits - start), sw.base + start, sw.shift)
        for start in range(0, sw.bits, step or 1)
    ]
    return pieces if sw.shift < 0 else pieces[::-1]


def _written(layout: Layout, context: Context) -> str:
    """The text of a layout without replicas and boxes."""
    offset = only_axis(layout, "CuTe offsets have one axis, m")
    if context.shape is None:
        shape, stride = _columns(layout.shard)
    else:
        modes = [_columns(block) for block in layout.group(context.shape).blocks]
        shape, stride = (
            (show(tuple(column)) for column in zip(*modes, strict=True)) if modes else ("()", "()")
        )
    accepted = [part for sw in layout.swizzle for part in _accepted(sw)]
    swizzles = [f"Sw<{sw.bits},{sw.base},{sw.shift}>" for sw in accepted]
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
