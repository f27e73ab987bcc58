"""Axe text: what ``str(layout)`` prints, ``S[..] + R[..] + o@axis`` with swizzles and a box.

Source: Axe, sec. 2.2 (iters as extent over stride@axis), in the linear S/R/O spelling.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from lark import Token, v_args

from axe_eq.errors import LayoutError, SearchError
from axe_eq.layout.notation.text import (
    MAX_CHARS,
    Context,
    Reader,
    fit,
    given,
    parse,
    refuse,
    spelling,
    zip_iters,
)
from axe_eq.layout.value.iters import DEFAULT_AXIS, Iter
from axe_eq.layout.value.layout import Layout
from axe_eq.layout.value.swizzle import Swizzle

Strides = tuple[tuple[int, str], ...]
Extents = tuple[int, ...]

# Lists as they are printed, and offsets: most texts are nothing else, and need no parser.
_STRIDE = r"-?\d{1,18}@[^\W\d]\w*"
_LISTS = re.compile(
    rf"([SR])\[\((\d{{1,18}}(?:,\d{{1,18}})*)\):\(({_STRIDE}(?:,{_STRIDE})*)\)\]|({_STRIDE})"
)

_BYTE_MODES = {32: 1, 64: 2, 128: 3}  # bytes of a swizzled row -> bits XORed, above 16-byte units


class Part(NamedTuple):
    """Iters of D ("S") or R ("R"), or an offset ("O"), which has one stride alone."""

    kind: str
    extents: Sequence[int]
    strides: Strides


class _Box(NamedTuple):
    extents: Extents
    padded: Extents | None
    order: Extents | None


class _ByteMode(NamedTuple):
    row_bytes: int
    axis: str


@v_args(inline=True)
class _Parts(Reader):
    stride = extents = strides = staticmethod(given)
    box = _Box

    def axis(self, name: Token | None) -> str:
        return DEFAULT_AXIS if name is None else str(name)

    def swizzle(self, *items: Any) -> Swizzle | _ByteMode:
        *numbers, axis = items
        return _ByteMode(numbers[0], axis) if len(numbers) == 1 else Swizzle(axis, *numbers)

    def shard(self, extents: Extents, strides: Strides) -> Part:
        return Part("S", extents, strides)

    def replica(self, extents: Extents, strides: Strides) -> Part:
        return Part("R", extents, strides)

    def offset(self, stride: tuple[int, str]) -> Part:
        return Part("O", (), (stride,))


def read(text: str, context: Context) -> Layout:
    """Reads an axe text; axes left out are ``m``.

    ``sw(128B)@m`` is a swizzle mode of the tensor memory accelerator (32, 64 or 128 bytes per row,
    XOR in 16-byte units); it needs the itemsize, since swizzles count elements.

    Raises:
        NotationError: bad grammar, more than one S, an order of the first box, whose dims are the
            logical ones, or an impossible layout.
    """
    children = _printed(text) or parse("axe", text, _Parts())
    parts = [item for item in children if isinstance(item, Part)]
    modes = [item for item in children if isinstance(item, Swizzle | _ByteMode)]
    boxes = [item for item in children if isinstance(item, _Box)]
    swizzles = [_swizzle(mode, context.itemsize) for mode in modes]
    if sum(part.kind == "S" for part in parts) > 1:
        refuse("two S parts", "one S, then + R and + offsets")
    shard, replica, offset = summed(parts)
    if boxes and boxes[0].order is not None:
        refuse(f"order {boxes[0].order} of the first box", "the logical order there")
    box, padded, _ = boxes[0] if boxes else (None, None, None)
    inner = [(n, n if m is None else m, order or ()) for n, m, order in boxes[1:]]
    layout = Layout(shard, replica, offset, swizzles, box, padded, inner)
    return fit(layout, context.shape)


def _printed(text: str) -> list[Part] | None:
    """The parts of a text that is as lists and offsets are printed; None of all others.

    >>> _printed("S[(8):(4@m)]")
    [Part(kind='S', extents=(8,), strides=((4, 'm'),))]
    """
    if len(text) > MAX_CHARS:
        return None
    parts = []
    for written in text.split(" + "):
        found = _LISTS.fullmatch(written)
        if found is None:
            return None
        kind, extents, strides, offset = found.groups()
        pairs = (pair.split("@") for pair in (strides or offset).split(","))
        numbers = tuple(map(int, extents.split(","))) if extents else ()
        parts.append(Part(kind or "O", numbers, tuple((int(n), axis) for n, axis in pairs)))
    return parts


def summed(parts: Iterable[Part]) -> tuple[list[Iter], list[Iter], dict[str, int]]:
    """The iters of D and of R that parts have together, and their offset.

    Raises:
        NotationError: a part with another number of strides than of extents.
    """
    iters: dict[str, list[Iter]] = {"S": [], "R": []}
    offset: dict[str, int] = {}
    for kind, extents, strides in parts:
        if kind == "O":
            ((value, axis),) = strides
            offset[axis] = offset.get(axis, 0) + value
        else:
            iters[kind] += zip_iters(extents, strides)
    return iters["S"], iters["R"], offset


def _swizzle(mode: Swizzle | _ByteMode, itemsize: int | None) -> Swizzle:
    if isinstance(mode, Swizzle):
        return mode
    if mode.row_bytes not in _BYTE_MODES:
        refuse(f"swizzle mode {mode.row_bytes}B", "32B, 64B or 128B")
    if itemsize is None:  # the mode counts bytes, and swizzles count elements
        wrong = f"swizzle mode {mode.row_bytes}B without the size of an element"
        refuse(wrong, spelling().itemsize(None))
    if itemsize not in (1, 2, 4, 8, 16):
        wrong = f"swizzle mode {mode.row_bytes}B with itemsize {itemsize}"
        refuse(wrong, "itemsize 1, 2, 4, 8 or 16")
    return Swizzle(mode.axis, _BYTE_MODES[mode.row_bytes], 5 - itemsize.bit_length(), 3)


def write(layout: Layout, context: Context) -> str:
    """Writes any layout as ``str`` prints it, a box over the caller's dims where it cuts there."""
    if layout.box is not None and context.shape not in (None, layout.box):
        with suppress(LayoutError, SearchError):
            return str(layout.group(context.shape).layout)
    return str(layout)
