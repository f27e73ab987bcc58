"""What the notations of shardings share: dims cut into device digits and local digits.

A sharding says which device has which block of a tensor; inside a device the block lies dense and
row-major on ``m``. A dim that its blocks do not divide is padded: every block is as large as the
first one, and the box keeps the real extent.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import NamedTuple

from axe_eq.layout.normal.decide import same_map
from axe_eq.layout.normal.ladders import Steps, boxes_of
from axe_eq.layout.notation.common import given_shape, settled
from axe_eq.layout.notation.text import Context, refuse, spelling
from axe_eq.layout.value import iters as it
from axe_eq.layout.value.iters import DEFAULT_AXIS, Iter, Iters
from axe_eq.layout.value.layout import Layout
from axe_eq.layout.value.mesh import Mesh

DEVICE_AXIS = "gpuid"


Digit = tuple[int, int, int, str]
"""The level of a digit, its room, and the stride and axis of its step."""


class LocalDim(NamedTuple):
    """A tensor dim on devices.

    Args:
        extent: values of its index.
        digits: of its index, slow to fast; a stride on ``m`` counts the values of this dim in a
            device.
        room: how many values of this dim a device has room for.
    """

    extent: int
    digits: tuple[Digit, ...]
    room: int

    def times(self, count: int) -> LocalDim:
        """The dim of so many values, one behind another, where this one has one."""
        slow = [(level * count, n, stride, axis) for level, n, stride, axis in self.digits]
        digits: list[Digit] = []
        for level, room, stride, axis in (*scaled(slow, count), (1, count, 1, DEFAULT_AXIS)):
            if digits and digits[-1][2:] == (room * stride, axis):
                room *= digits.pop()[1]
            digits.append((level, room, stride, axis))
        return LocalDim(self.extent * count, tuple(digits), self.room * count)


# ---- reading ------------------------------------------------------------------------------------


def needed_shape(context: Context) -> tuple[int, ...]:
    """The caller's shape.

    Raises:
        NotationError: there is none; a sharding alone does not say how large the tensor is.
    """
    if context.shape is None:
        refuse("says nothing of the tensor's extents", spelling().shape)
    return context.shape


def needed_mesh(context: Context) -> Mesh:
    """The caller's mesh.

    Raises:
        NotationError: there is none.
    """
    if context.mesh is None:
        refuse("says nothing of the devices", spelling().mesh)
    return context.mesh


def known_mesh(context: Context) -> Mesh:
    """The caller's mesh, for a writer.

    Raises:
        NotationError: there is none.
    """
    if context.mesh is None:
        refuse("the devices are not known", spelling().mesh)
    return context.mesh


def stated_mesh(extents: Sequence[tuple[str, int]], context: Context) -> Mesh:
    """The mesh whose dims a text states; the caller's, where there is one, must be the same.

    Raises:
        NotationError: no mesh, or another one than the caller's.
    """
    names = [name for name, _ in extents]
    if len(set(names)) < len(names):
        refuse(f"mesh dims {', '.join(names)}", "names that differ")
    found = Mesh(dict(extents), device_axis(context))
    given = context.mesh
    if given is not None and (given.key[:3] != found.key[:3]):  # whatever joins its devices
        said = f"{found.shape}" if given.shape != found.shape else f"{found}, row-major"
        wanted = given.shape if given.shape != found.shape else given
        refuse(f"mesh {said}", f"the given mesh {wanted}")
    return found


def device_axis(context: Context) -> str:
    """The axis of device ids."""
    return DEVICE_AXIS if context.mesh is None else context.mesh.axis


def split(extent: int, tiles: Sequence[Iter]) -> LocalDim:
    """A dim cut into as many equal blocks as the tiles' extents multiply to."""
    size = -(-extent // prod(tile[0] for tile in tiles))
    digits: list[Digit] = []
    level = 1
    for item in reversed(it.fuse((*tiles, (size, 1, DEFAULT_AXIS)))):
        digits.insert(0, (level, *item))
        level *= item[0]
    return LocalDim(extent, tuple(digits), size)


def place(
    dims: Sequence[LocalDim], replica: Iters = (), offset: dict[str, int] | None = None
) -> Layout:
    """The layout of a sharding; inside a device the room of its dims lies dense and row-major.

    Args:
        dims: the tensor dims.
        replica: copies on other devices.
        offset: the first device, by axis.
    """
    shard: list[Iter] = []
    fields: list[tuple[int, Steps]] = []
    pitch = 1
    for dim in reversed(dims):
        shard[:0] = [(n, s, axis) for _, n, s, axis in scaled(dim.digits, pitch)]
        fields.insert(0, (dim.extent, tuple([(level, room) for level, room, _, _ in dim.digits])))
        pitch *= dim.room
    (box, padded), *inner = boxes_of(fields, keep=True) or ((None, None),)
    return Layout(shard, replica, offset, (), box, padded, inner)


def scaled(digits: Sequence[Digit], pitch: int) -> list[Digit]:
    """Digits with the strides on ``m`` that many times as large."""
    return [
        (level, n, s * pitch if axis == DEFAULT_AXIS else s, axis) for level, n, s, axis in digits
    ]


def unused_replicas(mesh: Mesh, used: set[str]) -> Iters:
    """Replicas over the mesh dims that shard nothing."""
    return tuple(
        (extent, stride, mesh.axis)
        for name, (extent, stride) in mesh.axes.items()
        if name not in used and extent > 1
    )


def mesh_tiles(mesh: Mesh, names: Sequence[str]) -> list[Iter]:
    """The tiles of a dim that is sharded over mesh dims, the first one slowest."""
    return [(*mesh.axes[name], mesh.axis) for name in names]


# ---- writing ------------------------------------------------------------------------------------


def tensor_shape(layout: Layout, context: Context, axis: str) -> tuple[int, ...]:
    """The extents of a tensor that lies on devices, and inside them on ``m`` from 0 on.

    Raises:
        NotationError: it is not known, or the layout has another size, axis or offset.
    """
    shape = given_shape(layout, context)
    if shape is None:
        refuse("the tensor's extents are not known", spelling().shape)
    if prod(shape) != layout.size:
        refuse(f"shape {tuple(shape)}", f"{layout.size} elements")
    layout = settled(layout)
    for other in sorted(set(layout.axes) - {axis, DEFAULT_AXIS}):
        refuse(f"axis {other}", f"devices on {axis}, elements on m")
    if DEFAULT_AXIS in layout.offset:
        refuse(f"offset {layout.offset[DEFAULT_AXIS]}@m", "offset 0")
    if any(
        name == DEFAULT_AXIS for extent, stride, name in layout.replica if extent > 1 and stride
    ):
        refuse("copies inside a device", "copies on devices only")
    return shape


def confirmed(layout: Layout, again: Layout, text: str) -> str:
    """Returns `text` after checking that it reads as `layout`.

    Raises:
        NotationError: the nearest sharding is another map, or that is not decided.
    """
    if same_map(again, layout) is None:
        return text
    acting = [str(sw) for sw in layout.swizzle if sw.bits]
    wrong = f"swizzle {acting[0]}" if acting else f"{text} is another map"
    refuse(wrong, "blocks dense and row-major on m")
