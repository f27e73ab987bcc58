"""Boxes at device level: which mesh axes cut each dim.

A mesh box has one entry per dim: the mesh axes that cut it, major first, joined by dots; "-" where
none does. A mesh text is ``x=2:4 y=4:1``: axis name, size, stride on the device axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import product

from axe_eq.errors import ScheduleError
from axe_eq.layout import Layout, Mesh
from axe_eq.program.gathers import looks
from axe_eq.program.node import sel_type
from axe_eq.program.ops import selector
from axe_eq.program.types import ValueType, value_type

NONE = "-"
DEVICE_AXIS = "gpuid"


def mesh_text(mesh: Mesh) -> str:
    """The text of a mesh, as terms carry it: its dims slow to fast in devices' numbers."""
    return " ".join(f"{n}={mesh.axes[n][0]}:{mesh.axes[n][1]}" for n in mesh.order)


@cache
def mesh_axes(text: str) -> dict[str, tuple[int, int]]:
    """Size and stride of every axis of a mesh text."""
    axes = {}
    for word in text.split():
        name, _, figures = word.partition("=")
        size, _, stride = figures.partition(":")
        axes[name] = (int(size), int(stride))
    return axes


def n_devices(mesh: str) -> int:
    """Number of devices."""
    return math.prod(size for size, _ in mesh_axes(mesh).values())


def entries(box: str) -> list[tuple[str, ...]]:
    """Mesh axes per dim."""
    return [() if word == NONE else tuple(word.split(".")) for word in box.split()]


def show(dims: Iterable[Sequence[str]]) -> str:
    """The text of a mesh box."""
    return " ".join(".".join(axes) or NONE for axes in dims)


def ways(axes: Sequence[str], mesh: str) -> int:
    """Number of parts that these axes cut a dim into."""
    known = mesh_axes(mesh)
    return math.prod(known[a][0] for a in axes)


def _cuts(type: ValueType, mesh: str) -> Iterator[list[tuple[str, ...]]]:
    """Mesh axes per dim where every axis cuts one dim, or none."""
    names = list(mesh_axes(mesh))
    for choice in product(range(-1, type.rank), repeat=len(names)):
        pairs = list(zip(names, choice, strict=True))
        yield [tuple(n for n, d in pairs if d == i) for i in range(type.rank)]


@cache
def boxes(type_text: str, mesh: str) -> tuple[str, ...]:
    """All mesh boxes of a value: every axis cuts one dim that it divides, or none."""
    type_ = value_type(type_text)
    return tuple(show(dims) for dims in _cuts(type_, mesh) if fits(type_, dims, mesh))


def fits(type: ValueType, dims: Sequence[Sequence[str]], mesh: str) -> bool:
    """Whether every cut divides its extent, and no axis cuts two dims, as of ``x[i, i]``."""
    used = [a for axes in dims for a in axes]
    whole = all(n % ways(axes, mesh) == 0 for n, axes in zip(type.shape, dims, strict=True))
    return whole and len(set(used)) == len(used)


def local_type(type: ValueType, box: str, mesh: str) -> ValueType:
    """The part one device holds."""
    shape = tuple(n // ways(axes, mesh) for n, axes in zip(type.shape, entries(box), strict=True))
    return ValueType(type.dtype, shape)


@cache
def layout_text(type_text: str, box: str, mesh: str) -> str:
    """The Axe layout of a value cut so, canonical.

    Shard iters on the device axis, replicas over unused axes, dense row-major local memory.
    """
    type_ = value_type(type_text)
    known = mesh_axes(mesh)
    cuts = entries(box)
    local = local_type(type_, box, mesh).shape
    shard = []
    for dim, (axes, extent) in enumerate(zip(cuts, local, strict=True)):
        shard += [(*known[a], DEVICE_AXIS) for a in axes]
        shard.append((extent, math.prod(local[dim + 1 :]), "m"))
    used = {a for axes in cuts for a in axes}
    replica = [(*known[a], DEVICE_AXIS) for a in known if a not in used]
    return str(Layout(shard=shard, replica=replica).canonical())


def box_of(type_text: str, layout: Layout, mesh: str) -> str:
    """The mesh box whose layout this is.

    Raises:
        ScheduleError: no cut of the value over the mesh has that layout.
    """
    wanted = str(layout.canonical())
    for box in boxes(type_text, mesh):
        if layout_text(type_text, box, mesh) == wanted:
            return box
    raise ScheduleError(
        f"layout {layout}",
        f"is no cut of {type_text} over mesh {mesh}",
        "shard iters of mesh axes outside each dim, dense row-major local memory",
    )


@cache
def uneven_layout(type_text: str, box: str, mesh: str) -> str:
    """The layout of a value whose cuts may not divide it: the last parts are padded.

    A device's memory is dense, of as many elements as the first one's.
    """
    type_, cuts = value_type(type_text), entries(box)
    padded = tuple(
        -(-n // ways(axes, mesh)) * ways(axes, mesh)
        for n, axes in zip(type_.shape, cuts, strict=True)
    )
    if padded == type_.shape:
        return layout_text(type_text, box, mesh)
    dense = layout_text(str(ValueType(type_.dtype, padded)), box, mesh)
    whole = Layout.parse(dense)
    return str(Layout(whole.shard, whole.replica, box=type_.shape, padded=padded).canonical())


@cache
def part_shape(type_text: str, layout: Layout, mesh: str) -> tuple[int, ...] | None:
    """Shape of a device's memory, where a value is cut over dims; None where it is otherwise."""
    type_, wanted = value_type(type_text), str(layout.canonical())
    for dims in _cuts(type_, mesh):
        if uneven_layout(type_text, show(dims), mesh) == wanted:
            shape = zip(type_.shape, dims, strict=True)
            return tuple(-(-n // ways(axes, mesh)) for n, axes in shape)
    return None


def readings(spec: str, given: Sequence[ValueType]) -> list[tuple[dict[int, int], frozenset[int]]]:
    """How a selector with pulls reads its operands, for each: two things about the value's dims.

    Those that are read as they are, each with the operand's dim, and those that no device has by
    its own part of the operand.
    """
    declared, params = selector(spec)
    assert declared.pull is not None
    out, looked = sel_type(spec, tuple(given)), {(x.operand, x.dim) for x in looks(spec, given)}
    found = []
    for number, (row, type_) in enumerate(zip(declared.pull(params, given), given, strict=True)):
        plainly = {
            p.axis: d
            for d, p in enumerate(row)
            if p is not None and (p.scale, p.offset) == (1, 0)
            and type_.shape[d] == out.shape[p.axis]
        }  # fmt: skip
        touched = {p.axis for p in row if p is not None}
        through = all(p is not None or (number, d) in looked for d, p in enumerate(row))
        whole = (d for d in range(out.rank) if d not in plainly and (d in touched or not through))
        found.append((plainly, frozenset(whole)))
    return found
