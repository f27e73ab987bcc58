"""Boxes at device level: which mesh axes cut each dim, and the bytes of moves.

A mesh box has one entry per dim: the mesh axes that cut it, major first, joined by dots; "-" where
none does. The same projection that cuts an operator's operands over a grid cuts them over a mesh; a
reduced dim that is cut gives a partial value with one more dim on the mesh, which a collective
reduces (Axe fig. 8; Tapestry). The axis of that dim is followed by "!": such parts are merged where
they are made, and never moved. A mesh text is ``x=2:4 y=4:1``: axis name, size, stride on the
device axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product

from axe_eq.errors import ProgramError, ScheduleError
from axe_eq.layout import Layout, Mesh
from axe_eq.program.gathers import looks
from axe_eq.program.node import sel_type
from axe_eq.program.ops import MONOIDS, folding, join_text, scan, selector
from axe_eq.program.signature import Affine, make, plain, signature
from axe_eq.program.types import DTYPES, ValueType, value_type

NONE = "-"
PENDING = "!"  # after the axis of a dim whose indices are parts that a reduction is to merge
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
    return _entries(box.replace(PENDING, ""))


def _entries(box: str) -> list[tuple[str, ...]]:
    return [() if word == NONE else tuple(word.split(".")) for word in box.split()]


def show(dims: Iterable[Sequence[str]]) -> str:
    """The text of a mesh box."""
    return " ".join(".".join(axes) or NONE for axes in dims)


def ways(axes: Sequence[str], mesh: str) -> int:
    """Number of parts that these axes cut a dim into."""
    known = mesh_axes(mesh)
    return math.prod(known[a][0] for a in axes)


@cache
def boxes(type_text: str, mesh: str) -> tuple[str, ...]:
    """All mesh boxes of a value: every axis cuts one dim that it divides, or none."""
    type_ = value_type(type_text)
    names = list(mesh_axes(mesh))
    found = []
    for choice in product(range(-1, type_.rank), repeat=len(names)):
        dims = [
            tuple(n for n, d in zip(names, choice, strict=True) if d == i)
            for i in range(type_.rank)
        ]
        if fits(type_, dims, mesh):
            found.append(show(dims))
    return tuple(found)


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
    type_, names, wanted = value_type(type_text), list(mesh_axes(mesh)), str(layout.canonical())
    for choice in product(range(-1, type_.rank), repeat=len(names)):
        dims = [tuple(n for n, d in zip(names, choice, strict=True) if d == i)
                for i in range(type_.rank)]  # fmt: skip
        if uneven_layout(type_text, show(dims), mesh) == wanted:
            shape = zip(type_.shape, dims, strict=True)
            return tuple(-(-n // ways(axes, mesh)) for n, axes in shape)
    return None


@cache
def operand_boxes(sig_text: str, types: str, box: str, mesh: str) -> tuple[str, ...] | None:
    """Cuts of a block operator's operands, given its output's; reduced dims stay whole."""
    sig = signature(sig_text)
    given = [value_type(t) for t in types.split(";")[:-1]]
    out = entries(box)
    if len(out) != sig.n_out:
        return None
    cuts = {**dict(enumerate(out)), **{d: () for d in sig.reduced}}
    found = []
    for operand, type_ in zip(sig.operands, given, strict=True):
        dims = [_cut(p, cuts) for p in operand]
        if None in dims or not fits(type_, [d or () for d in dims], mesh):
            return None
        found.append(show([d or () for d in dims]))
    return tuple(found)


def _cut(projection: Affine, cuts: dict[int, tuple[str, ...]]) -> tuple[str, ...] | None:
    """How an operand dim is cut, or None where a cut dim is read through a window."""
    if projection.plain is not None:
        return cuts[projection.plain]
    return None if any(cuts[d] for d, _ in projection.terms) else ()


@cache
def moved_boxes(spec: str, types: str, box: str, mesh: str) -> tuple[str, ...] | None:
    """Cuts of a selector's operands where every device can move its own parts alone.

    A cut dim is read as it is, or not at all but through integers that are cut alike: then the same
    text on parts is the part of the whole. None where a device needs more, or the text says
    extents of what is cut.
    """
    declared, params = selector(spec)
    given = [value_type(t) for t in types.split(";")[:-1]]
    if declared.pull is None or not given:
        return None
    out, cuts = sel_type(spec, tuple(given)), entries(box)
    pulls, read = declared.pull(params, given), readings(spec, given)
    found = []
    for (plainly, whole), type_ in zip(read, given, strict=True):
        if any(c and d in whole for d, c in enumerate(cuts)):
            return None
        own = {d: cuts[axis] for axis, d in plainly.items()}
        dims = [own.get(d, ()) for d in range(type_.rank)]
        if not fits(type_, dims, mesh):
            return None
        found.append(show(dims))
    local = [local_type(t, b, mesh) for t, b in zip(given, found, strict=True)]
    try:
        alike = sel_type(spec, tuple(local)) == local_type(out, box, mesh)
    except ProgramError:
        return None
    return tuple(found) if alike and declared.pull(params, local) == pulls else None


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


@cache
def scanned_boxes(text: str, types: str, box: str, mesh: str) -> tuple[str, ...] | None:
    """Cuts of a scan's operands: as its value is, where that leaves its axis whole."""
    _, axis = scan(text)
    given = [value_type(t) for t in types.split(";")[:-1]]
    cut = entries(box)[axis]
    whole = not cut and all(fits(t, entries(box), mesh) for t in given)
    return (box,) * len(given) if whole else None


@dataclass(frozen=True)
class Partial:
    """A reduction cut over one mesh axis.

    Attributes:
        sig: signature of the partial operator: one more output dim, in front, on the mesh axis.
        splits: per operand the selector that splits its cut dim, "" where it has none.
        box: mesh box of the partial value.
        axis: the mesh axis.
        scatters: the result is cut over the axis too (reduce-scatter), else not (all-reduce).
    """

    sig: str
    splits: tuple[str, ...]
    box: str
    axis: str
    scatters: bool


@cache
def partials(sig_text: str, types: str, box: str, mesh: str) -> tuple[Partial, ...]:
    """Ways to cut a reduced dim of a block operator over a mesh axis.

    Only dims that every operand reads plainly, if at all, and that the axis divides; and only
    reductions whose values can be reduced again (those of a structured monoid, such as softmax,
    have lost what merging them takes, and those of one that lifts would be lifted twice).
    """
    sig = signature(sig_text)
    if sig.monoid and folding(sig.monoid) != sig.monoid:
        return ()
    given = [value_type(t) for t in types.split(";")[:-1]]
    extents = sig.extents([t.shape for t in given])
    cuts, marked = entries(box), _entries(box)
    found = []
    for dim, (axis, (size, _)) in product(sig.reduced, mesh_axes(mesh).items()):
        if extents[dim] % size or not _only_plain(sig.operands, dim):
            continue
        if any(f"{axis}{PENDING}" in axes for axes in marked):
            continue  # parts of a reduction over this axis already
        if any(axis in axes[:-1] for axes in cuts):
            continue  # the devices along it do not hold what each of them wants
        outer = sig.n_dims
        operands, splits = [], []
        for operand in sig.operands:
            place = next((n for n, p in enumerate(operand) if p.plain == dim), None)
            splits.append(
                "" if place is None else join_text("split", place, (-1, extents[dim] // size))
            )
            dims = list(operand)
            if place is not None:
                dims.insert(place, plain(outer))
            operands.append(dims)
        fixed = dict(sig.fixed)
        new = make(operands, [outer, *range(sig.n_out)], sig.monoid, sig.reduced, fixed)
        scatters = any(axis in axes for axes in cuts)
        inner = [tuple(a for a in axes if a != axis) for axes in marked]
        own = show([(axis + PENDING,), *inner])
        found.append(Partial(new.text, tuple(splits), own, axis, scatters))
    return tuple(found)


def merges_round(sig_text: str, own: str) -> bool:
    """Whether an operator's value of this type depends on the order in which it is reduced."""
    monoid = signature(sig_text).monoid
    return bool(monoid) and not MONOIDS[monoid].exact and DTYPES[value_type(own).dtype].kind == "f"


def partial_type(type_text: str, axis: str, mesh: str) -> str:
    """Type of a partial value: one more dim in front, along the mesh axis that reduces it."""
    type_ = value_type(type_text)
    return str(ValueType(type_.dtype, (mesh_axes(mesh)[axis][0], *type_.shape)))


def _only_plain(operands: Iterable[Iterable[Affine]], dim: int) -> bool:
    return all(p.plain == dim or all(d != dim for d, _ in p.terms) for op in operands for p in op)


@cache
def unsplit_box(spec: str, box: str) -> str | None:
    """The cut of a value whose split has this cut; None where an inner factor is cut."""
    declared, params = selector(spec)
    if declared.inverse is None or not isinstance(params[1], tuple):
        return None  # not one dim made several, in order
    at, count = params[0], len(params[1])
    dims = entries(box)
    if any(dims[at + 1 : at + count]):
        return None
    return show([*dims[: at + 1], *dims[at + count :]])


def intervals(
    type: ValueType, box: str, mesh: str, device: dict[str, int]
) -> list[tuple[int, int]]:
    """Begin and end of every dim of the part that a device has, given its place on the mesh."""
    known = mesh_axes(mesh)
    found = []
    for extent, axes in zip(type.shape, entries(box), strict=True):
        index, parts = 0, 1
        for a in axes:
            index = index * known[a][0] + device[a]
            parts *= known[a][0]
        found.append((index * extent // parts, (index + 1) * extent // parts))
    return found
