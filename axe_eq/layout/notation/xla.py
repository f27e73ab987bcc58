"""XLA shapes with layouts: ``bf16[16,256]{1,0:T(8,128)(2,1)}``, padding included.

Source: XLA, "Shapes and layout" and "Tiled layout"; the properties of ``xla::Layout::ToString``.
"""

from __future__ import annotations

import re
from math import prod
from typing import Any, NamedTuple

from lark import Token, v_args

from axe_eq.layout.notation.common import given_shape, only_axis, without_replica, without_swizzle
from axe_eq.layout.notation.text import (
    Context,
    Reader,
    check_count,
    check_product,
    given,
    parse,
    refuse,
)
from axe_eq.layout.notation.xla_search import MAX_RUNGS
from axe_eq.layout.notation.xla_tiles import COMBINE, tile_array
from axe_eq.layout.notation.xla_write import TilingError, layout_text
from axe_eq.layout.value import iters as it
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.layout.value.layout import Layout, make

_TYPES = {f"{sign}{bits}" for sign in "su" for bits in (1, 2, 4, 8, 16, 32, 64)} | {
    *("pred", "bf16", "f16", "f32", "f64", "c64", "c128", "f4e2m1fn", "f8e8m0fnu", "f8e3m4"),
    *("f8e5m2", "f8e5m2fnuz", "f8e4m3", "f8e4m3fn", "f8e4m3fnuz", "f8e4m3b11fnuz"),
}
_REFUSED = {
    "SC": ("SC(...) splits the array over several buffers", "one buffer"),
    "P": ("P(...) stores another shape", "the logical shape itself"),
    "M": ("M(...) puts metadata before the elements", "element 0 at offset 0"),
    "#": ("#(...) is the index type of a sparse array", "a dense array"),
    "*": ("*(...) is the pointer type of a sparse array", "a dense array"),
}


class _Shape(NamedTuple):
    type: str
    dims: tuple[int | str, ...]
    minor_to_major: tuple[int, ...] | None
    properties: dict[str, Any]


@v_args(inline=True)
class _Shapes(Reader):
    dims = ints = staticmethod(given)

    def dynamic(self, bound: int | None = None) -> str:
        return "?" if bound is None else f"<={bound}"

    def combine(self) -> int:
        return COMBINE

    def property(self, key: Token, *values: Any) -> tuple[str, Any]:
        return key.partition("(")[0], values

    def shape(self, element: Token, dims: Any, order: Any, *items: Any) -> _Shape:
        given = dict(item for item in items if item is not None)
        return _Shape(element.lower(), dims, order, given)

    def several(self, *shapes: _Shape | None) -> list[_Shape]:
        return [shape for shape in shapes if shape is not None]

    def start(self, shape: _Shape | list[_Shape]) -> _Shape | list[_Shape]:
        return shape


def read(text: str, context: Context) -> Layout:
    """Reads an array shape; without ``{...}`` the layout is row-major.

    Elements lie on the axis ``m``, in memory space n > 0 on ``S<n>``. Offsets count elements, so
    the element type and ``E(bits)`` do not matter.

    Raises:
        NotationError: bad grammar, a tuple, a dynamic or sparse dimension, an order that is no
            permutation, a tile extent below 1, or over 2**63 - 1 elements with padding.
    """
    shape = parse("xla", text, _Shapes())
    if isinstance(shape, list):
        refuse(f"a tuple of {len(shape)} shapes is {len(shape)} layouts", "one array shape")
    if shape.type not in _TYPES:
        refuse(f"unknown element type {shape.type}", "an array type such as f32")
    dims = _dims(shape, context.shape)
    order = _order(shape.minor_to_major, len(dims))
    tiles = [_tile(tile) for tile in shape.properties.pop("T", ())]
    check_count("dims and tile extents", len(dims) + sum(map(len, tiles)))
    check_product(dims)
    return _placed(dims, order, tiles, shape.properties)


def _placed(
    dims: tuple[int, ...],
    order: tuple[int, ...],
    tiles: list[tuple[int, ...]],
    properties: dict[str, Any],
) -> Layout:
    """The tiled array in the memory space that the properties name."""
    layout = tile_array(dims, order, tiles)
    axis = _axis(properties, it.size(layout.shard))
    if axis == DEFAULT_AXIS:
        return layout
    shard = tuple((extent, stride, axis) for extent, stride, _ in layout.shard)
    return make(shard, (), (), (), *layout.boxes)


def dims(text: str) -> tuple[int, ...] | None:
    """The extents of an array shape; None for a tuple or a dynamic one."""
    shape = parse("xla", text, _Shapes())
    if isinstance(shape, list):
        return None
    found = tuple(dim for dim in shape.dims if isinstance(dim, int))
    return found if len(found) == len(shape.dims) else None


def _dims(shape: _Shape, given: tuple[int, ...] | None) -> tuple[int, ...]:
    dims: list[int] = []
    for dim in shape.dims:
        if isinstance(dim, str):
            refuse(f"dimension {dim} is only known at run time", "static extents")
        if dim < 1:
            refuse(f"extent {dim}", "extents of at least 1")
        dims.append(dim)
    if given is not None and tuple(dims) != given:
        refuse(f"shape {tuple(dims)}", f"the given shape {given}")
    return tuple(dims)


def _order(order: tuple[int, ...] | None, rank: int) -> tuple[int, ...]:
    if order is None:
        return tuple(reversed(range(rank)))
    if sorted(order) != list(range(rank)):
        refuse(f"minor_to_major {order}", f"a permutation of 0 to {rank - 1}")
    return order


def _tile(tile: tuple[int, ...]) -> tuple[int, ...]:
    shown = f"T({','.join('*' if extent == COMBINE else str(extent) for extent in tile)})"
    if not tile or any(extent < 1 and extent != COMBINE for extent in tile):
        refuse(f"tile {shown}", "at least one extent, each at least 1")
    if tile[-1] == COMBINE:
        refuse(f"tile {shown} combines with nothing", "an extent after *")
    return tile


def _axis(properties: dict[str, Any], elements: int) -> str:
    """The axis of the memory space, once no property asks for more than a layout has."""
    for name, values in properties.items():
        if name in _REFUSED:
            refuse(*_REFUSED[name])
        if name == "D" and any(not level.startswith("D") for level in values):
            refuse(f"D({','.join(values)}) is a sparse array", "dense dimensions D")
        if name == "L" and (values[0] < 1 or elements % values[0]):
            refuse(f"L({values[0]}) pads {elements} elements at the end", "whole tiles only")
    space = properties.get("S", (0,))[0]
    return f"S{space}" if space else DEFAULT_AXIS


def write(layout: Layout, context: Context) -> str:
    """Writes a layout as an ``f32`` array of the given shape; the element type says nothing.

    Without a shape the array has the layout's box, or one dimension.

    Raises:
        NotationError: replicas, swizzles, offsets, several axes, or elements that share a place.
    """
    layout = without_swizzle(without_replica(layout), MAX_RUNGS)
    space = _space_of(layout)
    given = given_shape(layout, context)
    shape = (layout.size,) if given is None else given
    if prod(shape) != layout.size:
        refuse(f"shape {shape} has {prod(shape)} elements", str(layout.size))
    try:
        text = layout_text(layout, shape)
    except TilingError as error:
        refuse(str(error), "elements one behind another")
    memory = f"{'' if ':' in text else ':'}S({space})" if space else ""
    written = f"{{{text}{memory}}}" if shape or text or memory else ""  # XLA does not read f32[]{}
    return f"f32[{','.join(map(str, shape))}]{written}"


def _space_of(layout: Layout) -> int:
    """The memory space whose axis the layout uses: ``m`` is 0, ``S<n>`` is n."""
    axis = next((a for a in layout.axes if re.fullmatch(r"S[1-9]\d*", a)), DEFAULT_AXIS)
    if only_axis(layout, "one memory, m or S<n>", axis):
        refuse(f"offset {layout.offset[axis]}", "element 0 at offset 0")
    return int(axis[1:]) if axis != DEFAULT_AXIS else 0
