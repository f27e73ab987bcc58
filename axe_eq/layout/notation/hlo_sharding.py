"""HLO shardings: ``{devices=[2,1,2]<=[4] last_tile_dim_replicate}``, explicit lists, tuples.

Blocks have ``ceil(extent / tiles)`` elements. A tile assignment ``<=[d]T(p)`` is the iota of shape
d, transposed by p. Shardings that name the dims of a mesh become tile assignments.

Source: GSPMD (Xu et al., 2021), sec. 3; the texts of ``xla::HloSharding``.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from lark import Token, v_args
from numpy.typing import NDArray

from axe_eq.layout.normal.recover_iters import NoIters, from_table
from axe_eq.layout.normal.tables import from_points, steps_of
from axe_eq.layout.notation.blocks import MAX_DEVICES, filled, find_blocks, shown
from axe_eq.layout.notation.common import MAX_DECIDED
from axe_eq.layout.notation.mesh_parts import Dim, Part, PartReader, pieces_of
from axe_eq.layout.notation.sharding import (
    confirmed,
    device_axis,
    needed_mesh,
    needed_shape,
    place,
    split,
    tensor_shape,
)
from axe_eq.layout.notation.text import (
    Context,
    check_product,
    given,
    parse,
    refuse,
    refusing,
    subject,
)
from axe_eq.layout.value import iters as it
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.layout.value.layout import Layout

Table = NDArray[np.int64]


class _Tiled(NamedTuple):
    """A tile assignment: `tile` devices per dim, the last `copies` dims replicate.

    Without tiles the tensor is whole on each of the devices.
    """

    tile: tuple[int, ...]
    devices: Table
    copies: int


class _Iota(NamedTuple):
    dims: tuple[int, ...]
    permutation: tuple[int, ...] | None


_Sharding = Any  # a name, the number of a device, _Tiled or a list of shardings


@v_args(inline=True)
class _Shardings(PartReader):
    ints = axis = mesh = staticmethod(given)
    named, maximal = str, int
    iota = _Iota

    def replicated(self) -> int:
        return 1

    def group(self, _name: Token, _number: int) -> int:
        return 0  # asks the compiler to treat values alike; says nothing of places

    def subgroups(self, *kinds: Token | None) -> int:
        for kind in kinds:
            if kind is not None and kind != "replicated":
                refuse(f"the last tile dim is {kind}", "replicated: only that is a place")
        return sum(kind is not None for kind in kinds)

    def tiled(
        self, tile: tuple[int, ...], devices: tuple[int, ...] | _Iota, *copies: int
    ) -> _Tiled:
        return _checked(tile, devices, sum(copies))

    def ids(self, devices: tuple[int, ...] | _Iota) -> tuple[int, ...] | _Iota:
        return devices

    def axes(self, kind: Token, *parts: Part | None) -> tuple[Part, ...]:
        found = given(*parts)
        if found and kind != "replicated":
            refuse(f"mesh dims {kind}", "replicated ones: only that is a place")
        return found

    def on_mesh(self, mesh: Any, ids: Any, *items: Any) -> _Tiled:
        extents, devices = _mesh(mesh, ids)
        dims = [item for item in items if isinstance(item, Dim)]
        others = [part for item in items if type(item) is tuple for part in item]
        pieces, own = pieces_of(extents, dims, others, "'")
        ordered = [piece for mine in own for piece in mine]
        rest = [piece for piece in pieces if piece not in ordered]
        order = [pieces.index(piece) for piece in [*ordered, *rest]]
        table = devices.reshape([piece.extent for piece in pieces]).transpose(order).reshape(-1)
        tile = [prod(piece.extent for piece in mine) for mine in (*own, rest)]
        return _Tiled(tuple(tile) if dims else (), table, 1)

    def everywhere(
        self, mesh: Any, ids: Any, kind: Token, _metadata: Token | None = None
    ) -> _Sharding:
        _, devices = _mesh(mesh, ids)
        return _Tiled((), devices, 1) if kind == "replicated" else str(kind)

    def several(self, *shardings: _Sharding | None) -> list[_Sharding]:
        return [sharding for sharding in shardings if sharding is not None]

    def start(self, sharding: _Sharding, _metadata: Token | None = None) -> _Sharding:
        return sharding


# ---- reading ------------------------------------------------------------------------------------


def read(text: str, context: Context) -> Layout:
    """Reads one sharding; needs the shape, and for ``{replicated}`` the mesh.

    A tuple of one sharding is that sharding; `read_tuple` reads longer ones.

    Raises:
        NotationError: bad grammar, a tile assignment that does not fit, devices in an order that
            no strides give, or a sharding that is no placement (manual, unknown, unreduced).
    """
    sharding = parse("hlo_sharding", text, _Shardings())
    if isinstance(sharding, list):
        if len(sharding) != 1:
            refuse(f"a tuple of {len(sharding)} shardings", "one sharding, or read_tuple")
        sharding = sharding[0]
    return _layout(sharding, context)


def read_tuple(text: str, contexts: Sequence[Context]) -> tuple[Layout, ...]:
    """Reads a tuple of shardings, one per context.

    Raises:
        NotationError: as `read`, or the tuple has another length.
    """
    with refusing(lambda: subject("hlo_sharding", text)):
        shardings = parse("hlo_sharding", text, _Shardings())
        if not isinstance(shardings, list):
            shardings = [shardings]
        if len(shardings) != len(contexts):
            refuse(f"a tuple of {len(shardings)} shardings", f"{len(contexts)}")
        return tuple(map(_layout, shardings, contexts))


def _layout(sharding: _Sharding, context: Context) -> Layout:
    if isinstance(sharding, list):
        refuse("a tuple inside a tuple", "one sharding")
    if isinstance(sharding, str) and sharding != "replicated":
        refuse(f"{sharding} names no place", "replicated, maximal or devices=[...]")
    shape, axis, mesh = needed_shape(context), device_axis(context), context.mesh
    if isinstance(sharding, str):
        sharding = _Tiled((), np.arange(needed_mesh(context).size), 1)
    elif isinstance(sharding, int):
        sharding = _Tiled((), np.array([sharding]), 1)
    elif mesh is not None and mesh.size != len(sharding.devices):
        refuse(f"{len(sharding.devices)} devices", f"the mesh's {mesh.size}")
    if mesh is not None and sharding.devices.max() >= mesh.size:
        refuse(f"device {sharding.devices.max()}", f"below {mesh.size}")
    rank = len(sharding.tile) - sharding.copies
    if sharding.tile and rank != len(shape):
        refuse(f"tiles {rank} dims", f"{len(shape)}, the dims of {shape}")
    return tiled(shape, sharding, axis)


def _mesh(axes: Sequence[Any], devices: Any) -> tuple[dict[str, int], Table]:
    """The mesh of a text: its dims by name, slow to fast, and its devices in that order."""
    extents = dict(axes)
    if len(extents) < len(axes):
        refuse(f"mesh dims {', '.join(repr(name) for name, _ in axes)}", "each name once")
    tile = tuple(extents.values())
    if devices is None:
        devices = _Iota(tile, None)
    table = _checked(tile, devices, 0).devices
    if table.max() >= len(table):
        refuse(f"device_ids {shown(table)}", "each of 0 to n - 1 once")
    return extents, table


def _checked(tile: tuple[int, ...], devices: tuple[int, ...] | _Iota, copies: int) -> _Tiled:
    """The tile assignment as a table of device ids."""
    check_product(tile)
    count = prod(tile)
    if count < 1 or count > MAX_DEVICES:
        refuse(f"{count} devices", f"1 to {MAX_DEVICES}")
    if copies > len(tile):
        refuse(f"{copies} replicated dims of {len(tile)}", "at most all")
    if isinstance(devices, _Iota):
        return _Tiled(tile, _iota(devices, count), copies)
    if len(devices) != count:
        refuse(f"{len(devices)} devices", f"{count}, the product of {tile}")
    if len(set(devices)) != count:
        refuse("a device appears twice", "each device once")
    if max(devices) >= MAX_DEVICES:
        refuse(f"device {max(devices)}", f"below {MAX_DEVICES}")
    return _Tiled(tile, np.array(devices, dtype=np.int64), copies)


def _iota(iota: _Iota, count: int) -> Table:
    order = iota.permutation or tuple(range(len(iota.dims)))
    check_product(iota.dims)
    if prod(iota.dims) != count:
        refuse(f"an iota of {prod(iota.dims)} devices", f"{count}")
    if sorted(order) != list(range(len(iota.dims))):
        refuse(f"T{order}", f"a permutation of 0 to {len(iota.dims) - 1}")
    real = [dim for dim, extent in enumerate(iota.dims) if extent > 1]  # numpy has at most 64
    moved = [real.index(dim) for dim in order if dim in real]
    table = np.arange(count, dtype=np.int64).reshape([iota.dims[dim] for dim in real])
    return table.transpose(moved).reshape(-1)


def tiled(shape: Sequence[int], sharding: _Tiled, axis: str) -> Layout:
    """The layout of a tile assignment.

    Raises:
        NotationError: the devices of the tiles, or of the copies, follow no strides.
    """
    counts = sharding.tile[: len(shape)] or (1,) * len(shape)
    groups = np.sort(sharding.devices.reshape(prod(counts), -1), axis=1)
    some = [-(-n // -(-n // count)) for n, count in zip(shape, counts, strict=True)]
    held = groups.reshape(*counts, -1)[tuple(map(slice, some))].reshape(prod(some), -1)
    layout = (
        _strided(shape, counts, groups, axis)
        or _strided(shape, some, held, axis)  # tiles behind the last element may be anywhere
        or _decided(shape, some, held, axis)
    )
    if layout is None:
        refuse(f"device order {shown(sharding.devices)}", "an order that strides give")
    return layout


def _strided(
    shape: Sequence[int], counts: Sequence[int], groups: Table, axis: str
) -> Layout | None:
    """The layout of tiles whose devices follow strides per dim, one row of copies per tile."""
    if (groups - groups[:, :1] != groups[0] - groups[0, 0]).any():
        return None
    copies = steps_of(groups[0] - groups[0, 0])
    try:
        blocks = it.split_blocks(it.fuse(from_table({axis: groups[:, 0]})), counts)
    except NoIters:
        return None
    if copies is None or blocks is None:
        return None
    replica = tuple((extent, stride, axis) for stride, extent in copies)
    dims = [split(extent, block) for extent, block in zip(shape, blocks, strict=True)]
    return place(dims, replica, {axis: int(groups[0, 0])})


def _decided(
    shape: Sequence[int], counts: Sequence[int], groups: Table, axis: str
) -> Layout | None:
    """The layout found by enumerating the elements; None if there are too many."""
    if prod(shape) * groups.shape[1] > MAX_DECIDED:
        return None
    pitch = [prod(counts[dim + 1 :]) for dim in range(len(counts))]
    tiles = place(
        [split(n, [(k, step, "tile")]) for n, k, step in zip(shape, counts, pitch, strict=True)]
    )
    devices, offset = groups[tiles.table("tile")], tiles.table(DEFAULT_AXIS)
    points = np.stack([devices, np.broadcast_to(offset[:, None], devices.shape)], axis=-1)
    try:
        return from_points(points, (axis, DEFAULT_AXIS), boxed=True)
    except NoIters:
        return None


# ---- writing ------------------------------------------------------------------------------------


def write(layout: Layout, context: Context) -> str:
    """Writes a layout as a sharding of all devices, as an iota where strides permit.

    Devices without elements are added where XLA's blocks permit: as many as the mesh has, or the
    fewest that make the devices 0 to n - 1. Without a mesh a list may skip devices, which XLA reads
    but accepts for no program.

    Raises:
        NotationError: the layout is no sharding, or not one of the mesh's devices.
    """
    axis, mesh = device_axis(context), context.mesh
    shape = tensor_shape(layout, context, axis)
    blocks = find_blocks(layout, shape, axis)
    if blocks.devices.size == 1:
        device = int(blocks.devices.max())
        if mesh is not None and device >= mesh.size:
            refuse(f"device {device}", f"below {mesh.size}")
        sharding, text = _Tiled((), np.array([device]), 1), f"{{maximal device={device}}}"
    else:
        table = filled(blocks, None if mesh is None else mesh.size)
        if table is None and mesh is not None:
            wrong = f"devices {shown(np.sort(blocks.devices.reshape(-1)))}"
            refuse(wrong, "each of 0 to n - 1 once")
        table = blocks.devices if table is None else table
        sharding = _Tiled(table.shape, table.reshape(-1), 1)
        text = _text(sharding)
    return confirmed(layout, tiled(shape, sharding, axis), text)


def _text(sharding: _Tiled) -> str:
    copied = sharding.tile[-1] > 1
    tile = sharding.tile if copied else sharding.tile[:-1]
    suffix = " last_tile_dim_replicate" if copied else ""
    return f"{{devices=[{_ints(tile)}]{_devices(sharding.devices)}{suffix}}}"


def _devices(table: Table) -> str:
    try:
        iters = from_table({DEFAULT_AXIS: table})
    except NoIters:
        return _ints(table)
    if table[0] or not np.array_equal(np.sort(table), np.arange(len(table))):
        return _ints(table)
    by_stride = sorted(range(len(iters)), key=lambda place: -iters[place][1])
    dims = [iters[place][0] for place in by_stride] or [1]
    if by_stride == list(range(len(iters))):
        return f"<=[{prod(dims)}]"
    order = [by_stride.index(place) for place in range(len(iters))]
    return f"<=[{_ints(dims)}]T({_ints(order)})"


def _ints(values: Sequence[int] | Table) -> str:
    return ",".join(map(str, values))
