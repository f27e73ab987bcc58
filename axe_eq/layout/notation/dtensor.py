"""Torch DTensor placements on a mesh: ``(Shard(dim=0), Replicate())``, one per mesh dim.

Placements apply from left to right, each to the shard that the earlier ones left. ``Shard`` gives
out consecutive chunks; ``_StridedShard`` first cuts the local dim into ``split_factor`` pieces and
gives out chunks of each, so that a mesh dim further right can have the pieces.

Source: PyTorch, ``torch.distributed.tensor.placement_types`` (chunks as ``torch.chunk``).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from math import prod
from typing import NamedTuple

import numpy as np
from lark import Token, v_args
from numpy.typing import NDArray

from axe_eq.errors import SearchError
from axe_eq.layout.normal.ladder_search import find_ladder
from axe_eq.layout.normal.ladders import rooms_of
from axe_eq.layout.notation.common import settled
from axe_eq.layout.notation.dtensor_search import find_placements
from axe_eq.layout.notation.sharding import (
    LocalDim,
    confirmed,
    known_mesh,
    needed_mesh,
    needed_shape,
    place,
    tensor_shape,
    unused_replicas,
)
from axe_eq.layout.notation.text import Context, Reader, parse, refuse
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.layout.value.layout import Layout
from axe_eq.layout.value.mesh import Mesh

Values = NDArray[np.int64]

MAX_VALUES = 1 << 20
"""Most values of a tensor dim whose devices are looked at one by one."""


class _Shard(NamedTuple):
    dim: int
    split_factor: int = 1

    def __str__(self) -> str:
        if self.split_factor == 1:
            return f"Shard(dim={self.dim})"
        return f"_StridedShard(dim={self.dim}, split_factor={self.split_factor})"


_Placement = _Shard | None


@v_args(inline=True)
class _Placements(Reader):
    shard = _Shard

    def replicate(self) -> str:
        return "R"

    def partial(self, arguments: Token) -> str:
        return f"Partial{arguments}"


# ---- reading ------------------------------------------------------------------------------------


def read(text: str, context: Context) -> Layout:
    """Reads placements; needs the mesh and the shape.

    A chunk that is smaller than the largest one lies in a buffer of that one's size.

    Raises:
        NotationError: not one placement per mesh dim, a dim out of range, a Partial, or uneven
            chunks whose digits step on devices and inside a device at once.
    """
    shape, mesh = needed_shape(context), needed_mesh(context)
    placements = _checked(parse("dtensor", text, _Placements()), shape, mesh)
    return _sharded(placements, shape, mesh)


def _checked(
    placements: Sequence[_Shard | str], shape: Sequence[int], mesh: Mesh
) -> list[_Placement]:
    if len(placements) != len(mesh.shape):
        refuse(f"{len(placements)} placements", f"{len(mesh.shape)}, one per dim of {mesh}")
    checked: list[_Placement] = []
    for placement in placements:
        if isinstance(placement, str):
            if placement.startswith("Partial"):
                refuse(
                    f"{placement} is a pending reduction: a value with one more dim, not a place",
                    "Shard, Replicate or _StridedShard",
                )
            checked.append(None)
            continue
        if not -len(shape) <= placement.dim < len(shape):
            refuse(f"dim {placement.dim}", f"below the rank {len(shape)}")
        if placement.split_factor < 1:
            refuse(f"split_factor {placement.split_factor}", "at least 1")
        checked.append(placement._replace(dim=placement.dim % len(shape)))
    return checked


def _sharded(placements: Sequence[_Placement], shape: Sequence[int], mesh: Mesh) -> Layout:
    steps: list[list[_Step]] = [[] for _ in shape]
    used: set[str] = set()
    for placement, (name, (count, stride)) in zip(placements, mesh.axes.items(), strict=True):
        if placement is not None:
            used.add(name)
            steps[placement.dim].append(_Step(count, stride, placement.split_factor))
    dims = [_local_dim(extent, own, mesh.axis) for extent, own in zip(shape, steps, strict=True)]
    return place(dims, unused_replicas(mesh, used))


class _Step(NamedTuple):
    """One placement on a tensor dim: `n_chunks` chunks of each piece, to devices `stride` apart."""

    n_chunks: int
    stride: int
    split_factor: int


def _local_dim(extent: int, steps: Sequence[_Step], axis: str) -> LocalDim:
    """A dim after its placements, read off from where its values go.

    Where all pieces and chunks are equal, only the first value of every part is looked at.
    """
    parts = prod(step.n_chunks * step.split_factor for step in steps)
    unit = 1 if extent % parts else extent // parts
    if extent // unit > MAX_VALUES:
        wrong = f"{extent} values in {parts} parts"
        refuse(wrong, f"at most {MAX_VALUES}, of equal parts that many parts")
    found = _enumerated(extent // unit, steps, axis)
    if found is None:
        refuse(f"uneven shards of {extent} values", "shards that padded boxes compute")
    return found.times(unit) if unit > 1 else found


def _enumerated(extent: int, steps: Sequence[_Step], axis: str) -> LocalDim | None:
    """A dim from where each of its values goes.

    Returns:
        None where no digits that step on one axis each compute that, or none are found.
    """
    held = {0: np.arange(extent)}
    for step in steps:
        held = {
            device + place * step.stride: given
            for device, values in held.items()
            for place, given in enumerate(_shards(values, step))
        }
    table = np.empty((extent, 2), dtype=np.int64)
    for device, values in held.items():
        table[values] = np.stack([np.full(len(values), device), np.arange(len(values))], axis=1)
    with suppress(SearchError):
        ladder = find_ladder(table, (axis, DEFAULT_AXIS))
        if ladder is not None:
            rooms = zip(rooms_of(extent, ladder), ladder, strict=True)
            digits = tuple((*room, stride, axis) for room, (_, stride, axis) in rooms)
            return LocalDim(extent, digits, max(map(len, held.values())))
    return None


def _shards(values: Values, step: _Step) -> list[Values]:
    """What each device gets of some values: its chunk of every piece, one behind the other.

    Devices at the end that get nothing are left out.
    """
    pieces = [_chunks(piece, step.n_chunks) for piece in _chunks(values, step.split_factor)]
    return [
        np.concatenate([chunks[place] for chunks in pieces if place < len(chunks)])
        for place in range(max(map(len, pieces)))
    ]


def _chunks(values: Values, count: int) -> list[Values]:
    """As ``torch.chunk`` cuts, without the empty chunks where there are too few values."""
    size = -(-len(values) // count)
    return [values[start : start + size] for start in range(0, len(values), size)]


# ---- writing ------------------------------------------------------------------------------------


def write(layout: Layout, context: Context) -> str:
    """Writes a layout as one placement per mesh dim; needs the mesh.

    Raises:
        NotationError: the layout is no sharding over whole mesh dims.
    """
    mesh = known_mesh(context)
    shape = tensor_shape(layout, context, mesh.axis)
    found = find_placements(settled(layout), shape, mesh)
    if found is None:
        wrong = "values are dealt out otherwise than in chunks over whole mesh dims"
        refuse(wrong, f"one placement for each dim of {mesh}")
    placements = [None if one is None else _Shard(*one) for one in found]
    text = ", ".join(str(placement or "Replicate()") for placement in placements)
    text = f"({text},)" if len(placements) == 1 else f"({text})"
    return confirmed(layout, _sharded(placements, shape, mesh), text)
