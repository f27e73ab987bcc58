"""Strided arrays of numpy and torch: ``shape=(2,3), strides=(3,1), offset=0``.

torch's words ``size``, ``stride`` and ``storage_offset`` are read too. They count elements;
``byte_strides`` and ``byte_offset``, which is what numpy's attributes hold, need the itemsize.
"""

from __future__ import annotations

from math import gcd
from typing import Any

from lark import Token, v_args

from axe_eq.layout.notation.common import only_axis, without_box, without_replica, without_swizzle
from axe_eq.layout.notation.text import Context, Reader, given, parse, refuse, spelling, zip_iters
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.layout.value.layout import Layout

_KEYS = {"size": "shape", "stride": "strides", "storage_offset": "offset"}
_SIZES = (1, 2, 4, 8, 16)  # bytes of an element
_BYTES = {"byte_strides": "strides", "byte_offset": "offset"}


@v_args(inline=True)
class _Fields(Reader):
    ints = staticmethod(given)

    def field(self, key: Token, value: Any) -> tuple[str, Any]:
        return _KEYS.get(key, str(key)), value

    def plain(
        self, shape: tuple[int, ...], strides: tuple[int, ...], offset: int | None
    ) -> tuple[tuple[str, Any], ...]:
        return ("shape", shape), ("strides", strides), ("offset", offset or 0)


def read(text: str, context: Context) -> Layout:
    """Reads shape, strides and an optional offset; the elements lie on ``m``.

    Raises:
        NotationError: a field is missing, repeated or of the wrong kind, or bytes are no whole
            elements.
    """
    fields: dict[str, Any] = {}
    for key, value in parse("strides", text, _Fields()):
        name = _BYTES.get(key, key)
        if name in fields:
            refuse(f"{name} twice", "once")
        if isinstance(value, int) != (name == "offset"):
            refuse(f"{key}={value}", "an integer" if name == "offset" else f"{key}=(...)")
        fields[name] = value if key == name else _elements(key, value, context.itemsize)
    for name in ("shape", "strides"):
        if name not in fields:
            refuse(f"no {name}", f"{name}=(...)")
    shape = fields["shape"]
    if context.shape is not None and shape != context.shape:
        refuse(f"shape {shape}", f"the given shape {context.shape}")
    strides = [(stride, DEFAULT_AXIS) for stride in fields["strides"]]
    shard = zip_iters(shape, strides)
    offset = {DEFAULT_AXIS: fields.get("offset", 0)}
    return Layout(shard, (), offset)


def dims(text: str) -> tuple[int, ...] | None:
    """The shape that the text states."""
    shape = dict(parse("strides", text, _Fields())).get("shape")
    return shape if isinstance(shape, tuple) else None


def _elements(key: str, value: Any, itemsize: int | None) -> Any:
    """Bytes as elements."""
    distances = [value] if isinstance(value, int) else list(value)
    if itemsize is None:
        least = gcd(*distances)  # that of a dense array, whose fastest dim has it as stride
        likely = least if least in _SIZES else None
        refuse(f"{key} without the size of an element", spelling().itemsize(likely))
    for distance in distances:
        if distance % itemsize:
            refuse(f"{distance} bytes", f"a multiple of the itemsize {itemsize}")
    elements = tuple(distance // itemsize for distance in distances)
    return elements[0] if isinstance(value, int) else elements


def write(layout: Layout, context: Context) -> str:
    """Writes one stride per dim of the shape; without a shape, one dim per iter.

    Raises:
        NotationError: several axes, replicas, swizzles, padding, or a dim with several strides.
    """
    layout = without_box(without_swizzle(without_replica(layout)))
    offset = only_axis(layout, "one memory, m")
    dims = [(extent, stride) for extent, stride, _ in layout.shard]
    if context.shape is not None:
        dims = []
        blocks = layout.group(context.shape).blocks
        for dim, (extent, block) in enumerate(zip(context.shape, blocks, strict=True)):
            if len(block) > 1:
                strides = ", ".join(str(stride) for _, stride, _ in block)
                refuse(f"dim {dim} has the strides {strides}", "one per dim")
            dims.append((extent, block[0][1] if block else 0))
    shape, strides = (f"({','.join(map(str, column))})" for column in _columns(dims))
    return f"shape={shape}, strides={strides}, offset={offset}"


def _columns(dims: list[tuple[int, int]]) -> tuple[list[int], list[int]]:
    return [extent for extent, _ in dims], [stride for _, stride in dims]
