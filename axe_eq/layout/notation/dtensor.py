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
from typing import NamedTuple, NoReturn

import numpy as np
from lark import Token, v_args
from numpy.typing import NDArray

from axe_eq.errors import SearchError
from axe_eq.layout.normal.ladder_search import find_ladder
from axe_eq.layout.normal.recover_iters import NoIters
from axe_eq.layout.normal.tables import from_points
from axe_eq.layout.notation.cells import cells_of
from axe_eq.layout.notation.common import MAX_DECIDED, settled
from axe_eq.layout.notation.dtensor_search import find_placements
from axe_eq.layout.notation.sharding import (
    Digit,
    LadderDim,
    LocalDim,
    Part,
    confirmed,
    known_mesh,
    local_dim,
    needed_mesh,
    needed_shape,
    place,
    tensor_shape,
    unused_replicas,
)
from axe_eq.layout.notation.text import Context, Reader, build, parse, refusal, refuse
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.layout.value.layout import Layout
from axe_eq.layout.value.mesh import Mesh

Values = NDArray[np.int64]


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
    shape, mesh = needed_shape("dtensor", text, context), needed_mesh("dtensor", text, context)
    placements = _checked(text, parse("dtensor", text, _Placements()), shape, mesh)
    return build("dtensor", text, lambda: _sharded(text, placements, shape, mesh))


def _checked(
    text: str, placements: Sequence[_Shard | str], shape: Sequence[int], mesh: Mesh
) -> list[_Placement]:
    if len(placements) != len(mesh.shape):
        _refuse(text, f"{len(placements)} placements", f"{len(mesh.shape)}, one per dim of {mesh}")
    checked: list[_Placement] = []
    for placement in placements:
        if isinstance(placement, str):
            if placement.startswith("Partial"):
                _refuse(
                    text,
                    f"{placement} is a pending reduction: a value with one more dim, not a place",
                    "Shard, Replicate or _StridedShard",
                )
            checked.append(None)
            continue
        if not -len(shape) <= placement.dim < len(shape):
            _refuse(text, f"dim {placement.dim}", f"below the rank {len(shape)}")
        if placement.split_factor < 1:
            _refuse(text, f"split_factor {placement.split_factor}", "at least 1")
        checked.append(placement._replace(dim=placement.dim % len(shape)))
    return checked


def _refuse(text: str, wrong: str, expected: str) -> NoReturn:
    refuse("dtensor", text, wrong, expected)


def _sharded(
    text: str, placements: Sequence[_Placement], shape: Sequence[int], mesh: Mesh
) -> Layout:
    steps: list[list[_Step]] = [[] for _ in shape]
    used: set[str] = set()
    for placement, (name, (count, stride)) in zip(placements, mesh.axes.items(), strict=True):
        if placement is not None:
            used.add(name)
            steps[placement.dim].append(_Step(count, stride, placement.split_factor))
    dims = [
        _local_dim(text, extent, own, mesh.axis) for extent, own in zip(shape, steps, strict=True)
    ]
    return place(dims, unused_replicas(mesh, used))


class _Step(NamedTuple):
    """One placement on a tensor dim: `n_chunks` chunks of each piece, to devices `stride` apart."""

    n_chunks: int
    stride: int
    split_factor: int


class _Uneven(Exception):
    """Chunks that digits do not describe; the text says which."""


def _local_dim(text: str, extent: int, steps: Sequence[_Step], axis: str) -> LocalDim | LadderDim:
    """A dim after its placements, by digits, or where they do not suffice from its elements."""
    dim = _Dealt(extent)
    try:
        for step in steps:
            dim.give_out(*step)
        return local_dim(dim.parts(), axis)
    except _Uneven as error:
        wrong = str(error)
    if extent > MAX_DECIDED:
        _refuse(text, wrong, f"equal ones, or at most {MAX_DECIDED} values")
    found = _enumerated(extent, steps, axis)
    if found is None:
        _refuse(text, wrong, "shards that padded boxes compute")
    return found


def _enumerated(extent: int, steps: Sequence[_Step], axis: str) -> LocalDim | LadderDim | None:
    """A dim from where each of its values goes: a box, else boxes in boxes that line up.

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
    table = np.empty((extent, 1, 2), dtype=np.int64)
    for device, values in held.items():
        table[values, 0] = np.stack([np.full(len(values), device), np.arange(len(values))], axis=1)
    room, axes = max(map(len, held.values())), (axis, DEFAULT_AXIS)
    try:
        return LocalDim(tuple(cells_of(from_points(table, axes, boxed=True))), room)
    except NoIters:
        with suppress(SearchError):
            ladder = find_ladder(table[:, 0], axes)
            return None if ladder is None else LadderDim(extent, ladder, room)
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


class _Dealt:
    """A tensor dim while placements apply: its digits, and how many values its devices have."""

    def __init__(self, extent: int) -> None:
        self.closed: list[Part] = []
        self.valid = extent
        self.digits = [Digit(extent)]
        self.sizes = {extent}  # of the devices that have any; more than one after uneven chunks

    def parts(self) -> list[Part]:
        """The finished dim."""
        return [*self.closed, Part(self.valid, tuple(self.digits))]

    def give_out(self, count: int, stride: int, split_factor: int) -> None:
        """Gives `count` chunks of each of `split_factor` pieces of the local values to devices."""
        local = [digit.extent for digit in self.digits if digit.stride is None]
        if split_factor == 1 and len(local) == 1 and self.digits[-1].stride is None:
            self._give_chunks(local[0], count, stride)
            return
        if self.sizes != {prod(local)}:
            raise _Uneven(f"uneven shards of {sorted(self.sizes)} values in {split_factor} pieces")
        self._give_pieces(count, stride, split_factor)
        self.sizes = {prod(local) // count}

    def _give_chunks(self, whole: int, count: int, stride: int) -> None:
        chunk = -(-whole // count)
        if whole % count:
            if self.sizes != {whole}:
                raise _Uneven(f"uneven shards of {sorted(self.sizes)} values in {count} chunks")
            if self.digits[:-1]:
                self.closed.append(Part(self.valid // whole, tuple(self.digits[:-1])))
            self.valid, self.digits = whole, []
        elif any(-(-size // count) != chunk for size in self.sizes):
            raise _Uneven(f"uneven shards of {sorted(self.sizes)} values in {count} chunks")
        self.digits = [*self.digits[:-1], Digit(count, stride), Digit(chunk)]
        self.sizes = {min(size, chunk) for size in self.sizes} | {
            size % chunk for size in self.sizes
        }
        self.sizes.discard(0)

    def _give_pieces(self, count: int, stride: int, split_factor: int) -> None:
        digits: list[Digit] = []
        skip, take = split_factor, count
        for digit in self.digits:
            extent = digit.extent
            if digit.stride is not None:
                digits.append(digit)
                continue
            kept, extent, skip = self._shared(extent, skip)
            given, extent, take = self._shared(extent, take) if skip == 1 else (1, extent, take)
            digits += [Digit(kept), Digit(given, stride * take), Digit(extent)]
        if skip * take > 1:
            raise _Uneven(f"{split_factor} pieces of {count} chunks")
        self.digits = [digit for digit in digits if digit.extent > 1] or [Digit(1)]

    def _shared(self, extent: int, wanted: int) -> tuple[int, int, int]:
        """How much of `wanted` a digit provides, what is left of the digit, and what is missing."""
        if wanted % extent == 0:
            return extent, 1, wanted // extent
        if extent % wanted == 0:
            return wanted, extent // wanted, 1
        raise _Uneven(f"{extent} values in {wanted} pieces")


# ---- writing ------------------------------------------------------------------------------------


def write(layout: Layout, context: Context) -> str:
    """Writes a layout as one placement per mesh dim; needs the mesh.

    Raises:
        NotationError: the layout is no sharding over whole mesh dims.
    """
    mesh = known_mesh("dtensor", layout, context)
    shape = tensor_shape("dtensor", layout, context, mesh.axis)
    found = find_placements(settled(layout), shape, mesh)
    if found is None:
        wrong = "values are dealt out otherwise than in chunks over whole mesh dims"
        raise refusal("dtensor", layout, wrong, f"one placement for each dim of {mesh}")
    placements = [None if one is None else _Shard(*one) for one in found]
    text = ", ".join(str(placement or "Replicate()") for placement in placements)
    text = f"({text},)" if len(placements) == 1 else f"({text})"
    return confirmed("dtensor", layout, _sharded(text, placements, shape, mesh), text)
