"""Manipulation functions of the array namespace (Python array API standard).

Permutation, broadcast and unit dims are block operators with cell ``id``; reshape is splits and
merges; the rest are selectors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from axe_eq.errors import ProgramError, said
from axe_eq.program.array.arguments import extents, listed, number, whole, wholes
from axe_eq.program.array.dtypes import astype
from axe_eq.program.array.indexing import drop_dims, insert_dims
from axe_eq.program.ops import join_text
from axe_eq.program.signature import make, plain
from axe_eq.program.traced import Operand, Traced, as_operands, as_traced, block, projection, select
from axe_eq.program.types import matched_dims, promote

Axes = int | Sequence[int] | None


def one_axis(axis: object, rank: int) -> int:
    """The axis counted from the front.

    Raises:
        ProgramError: not an axis of an array of this rank.
    """
    place = whole("axis", axis)
    if not -rank <= place < rank:
        wanted = f"{-rank}..{rank - 1}" if rank else "no axis: the array has no dims"
        raise ProgramError(f"axis {said(place)}", "is out of range", wanted)
    return place % rank


def all_axes(axis: Axes, rank: int) -> tuple[int, ...]:
    """Axes counted from the front; None means every axis.

    Raises:
        ProgramError: an axis out of range or given twice.
    """
    if axis is None:
        return tuple(range(rank))
    given = wholes("axis", axis)
    axes = tuple(one_axis(a, rank) for a in given)
    if len(set(axes)) < len(axes):
        raise ProgramError(f"axes {given}", "repeat an axis", "each axis once")
    return axes


def _common(arrays: Sequence[Operand]) -> list[Traced]:
    """Operands of one dtype."""
    operands = as_operands(*listed("arrays", arrays, "a sequence of arrays"))
    if not operands:
        raise ProgramError("arrays", "are none", "at least one")
    name = promote(*(x.dtype for x in operands))
    return [astype(x, name) for x in operands]


# -- order and extent of dims ---------------------------------------------------------------------


def permute_dims(x: Operand, /, axes: Sequence[int] | None = None) -> Traced:
    """Dims in the order of `axes`; reversed without."""
    operand = as_traced(x)
    order = all_axes(tuple(reversed(range(operand.ndim))) if axes is None else axes, operand.ndim)
    if len(order) != operand.ndim:
        raise ProgramError(f"axes {tuple(order)}", "do not name every dim", f"{operand.ndim} axes")
    position = {axis: n for n, axis in enumerate(order)}
    sig = make([[plain(position[d]) for d in range(operand.ndim)]], range(operand.ndim))
    return block(sig.text, "id", operand)


def moveaxis(x: Operand, source: Axes, destination: Axes, /) -> Traced:
    """Dims moved to new places, the others kept in order."""
    operand = as_traced(x)
    old, new = all_axes(source, operand.ndim), all_axes(destination, operand.ndim)
    if len(old) != len(new):
        raise ProgramError(
            f"moveaxis {source} to {destination}", "differ in number", "pairs of axes"
        )
    order = [d for d in range(operand.ndim) if d not in old]
    for place, axis in sorted(zip(new, old, strict=True)):
        order.insert(place, axis)
    return permute_dims(operand, order)


def squeeze(x: Operand, /, axis: Axes) -> Traced:
    """Without the given dims, which must have extent 1."""
    operand = as_traced(x)
    axes = all_axes(axis, operand.ndim)
    for a in axes:
        if operand.node.shape[a] != 1:
            wrong = f"axis {a} of {operand.node.type} has extent {operand.node.shape[a]}"
            raise ProgramError("squeeze", wrong, "extent 1")
    return drop_dims(operand, axes)


def expand_dims(x: Operand, /, axis: int | Sequence[int] = 0) -> Traced:
    """With dims of extent 1 inserted at these axes of the result."""
    operand = as_traced(x)
    given = wholes("axis", axis)
    return insert_dims(operand, sorted(all_axes(given, operand.ndim + len(given))))


def broadcast_to(x: Operand, /, shape: Sequence[int]) -> Traced:
    """Repeated along dims of extent 1 and along new leading dims.

    Raises:
        ProgramError: a shape that the array does not broadcast to.
    """
    operand = as_traced(x)
    out = extents(shape)
    old = operand.node.shape
    aligned = zip(reversed(old), reversed(out), strict=False)
    if len(old) > len(out) or any(a not in (1, b) for a, b in aligned):
        raise ProgramError(
            "broadcast_to", f"{old} does not broadcast to {out}", "equal extents, or 1"
        )
    if old == out:
        return operand
    sig = make([projection(old, out)], range(len(out)), fixed=dict(enumerate(map(int, out))))
    return block(sig.text, "id", operand)


def broadcast_arrays(*arrays: Operand) -> tuple[Traced, ...]:
    """All arrays broadcast to their common shape."""
    operands = as_operands(*arrays)
    shape = broadcast_shapes(*(x.node.shape for x in operands))
    return tuple(broadcast_to(x, shape) for x in operands)


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape.

    Raises:
        ProgramError: shapes that do not broadcast against each other.
    """
    known = [extents(shape) for shape in shapes]
    try:
        return np.broadcast_shapes(*known)
    except ValueError:
        given = " and ".join(map(str, known))
        raise ProgramError("shapes", f"{given} do not broadcast", "equal extents, or 1") from None


# -- reshape --------------------------------------------------------------------------------------


def reshape(x: Operand, /, shape: Sequence[int] | int, *, copy: bool | None = None) -> Traced:
    """The elements in row-major order in another shape; one extent may be -1.

    Raises:
        ProgramError: a shape of another size.
    """
    operand = as_traced(x)
    wanted = _inferred(operand, wholes("shape", shape))
    old, new = operand.node.shape, tuple(map(int, wanted))
    groups = matched_dims(old, new)
    operand = drop_dims(operand, [d for before, after in groups if not after for d in before])
    inserted = [d for before, after in groups if not before for d in after]
    at = 0
    for before, after in groups:
        if before and after:
            operand = _regroup(operand, at, len(before), [new[d] for d in after])
            at += len(after)
    return insert_dims(operand, inserted)


def _inferred(x: Traced, shape: tuple[int, ...]) -> tuple[int, ...]:
    known = max(math.prod(int(e) for e in shape if e != -1), 1)
    legal = all(e == -1 or e >= 1 for e in shape) and shape.count(-1) <= 1
    fits = x.size % known == 0 if -1 in shape else x.size == known
    if not legal or not fits:
        wrong = f"{x.node.type} of {x.size} elements does not have shape {shape}"
        raise ProgramError("reshape", wrong, "extents of the same product, one of them may be -1")
    return tuple(x.size // known if e == -1 else e for e in shape)


def _regroup(x: Traced, axis: int, count: int, extents: Sequence[int]) -> Traced:
    """Dims axis .. axis+count-1 replaced by dims of these extents."""
    if count > 1:
        x = select(join_text("merge", axis, count), x)
    if len(extents) > 1:
        x = select(join_text("split", axis, (-1, *extents[1:])), x)
    return x


# -- joining, repeating, reversing ----------------------------------------------------------------


def concat(arrays: Sequence[Operand], /, *, axis: int | None = 0) -> Traced:
    """Arrays joined along an axis; flattened first where the axis is None."""
    operands = _common(arrays)
    if axis is None:
        operands = [reshape(x, (-1,)) for x in operands]
        axis = 0
    return select(join_text("concat", one_axis(axis, operands[0].ndim)), *operands)


def stack(arrays: Sequence[Operand], /, *, axis: int = 0) -> Traced:
    """Arrays of one shape joined along a new axis."""
    operands = _common(arrays)
    first = operands[0].node
    for n, other in enumerate(operands):
        if other.node.shape != first.shape:
            raise ProgramError("stack", f"array {n} is {other.node.type}", f"{first.type}")
    place = one_axis(axis, len(first.shape) + 1)
    return concat([insert_dims(x, [place]) for x in operands], axis=place)


def unstack(x: Operand, /, *, axis: int = 0) -> tuple[Traced, ...]:
    """The slices along an axis, without it."""
    operand = as_traced(x)
    place = one_axis(axis, operand.ndim)
    before = (slice(None),) * place
    return tuple(operand[(*before, n)] for n in range(operand.shape[place]))


def flip(x: Operand, /, *, axis: Axes = None) -> Traced:
    """Reversed along the axes, by default all."""
    operand = as_traced(x)
    axes = all_axes(axis, operand.ndim)
    return select(join_text("flip", tuple(sorted(axes))), operand) if axes else operand


def roll(x: Operand, /, shift: int | Sequence[int], *, axis: Axes = None) -> Traced:
    """Shifted along the axes, wrapping around; of the flattened array where the axis is None."""
    operand = as_traced(x)
    if axis is None:
        return reshape(roll(reshape(operand, (-1,)), shift, axis=0), operand.shape)
    axes, shifts = wholes("axis", axis), wholes("shift", shift)
    shifts = shifts * len(axes) if len(shifts) == 1 else shifts
    if len(shifts) != len(axes):
        raise ProgramError(
            "roll", f"got {len(shifts)} shifts for {len(axes)} axes", "equal numbers"
        )
    for a, s in zip(axes, shifts, strict=True):
        operand = _roll(operand, one_axis(a, operand.ndim), s)
    return operand


def _roll(x: Traced, axis: int, shift: int) -> Traced:
    moved = shift % x.node.shape[axis]
    if moved == 0:
        return x
    before = (slice(None),) * axis
    return concat([x[(*before, slice(-moved, None))], x[(*before, slice(None, -moved))]], axis=axis)


def repeat(x: Operand, repeats: int, /, *, axis: int | None = None) -> Traced:
    """Every element repeated in place along an axis; of the flattened array where it is None.

    Raises:
        ProgramError: repeats given by an array: the shape would depend on values.
    """
    count = whole("repeats", repeats, 1)
    operand = as_traced(x)
    if axis is None:
        return repeat(reshape(operand, (-1,)), count, axis=0)
    place = one_axis(axis, operand.ndim)
    projected = [plain(d if d <= place else d + 1) for d in range(operand.ndim)]
    sig = make([projected], range(operand.ndim + 1), fixed={place + 1: count})
    return select(join_text("merge", place, 2), block(sig.text, "id", operand))


def tile(x: Operand, repetitions: Sequence[int], /) -> Traced:
    """Whole copies side by side, per dim; missing leading dims or counts are 1."""
    operand = as_traced(x)
    counts = wholes("repetitions", repetitions, 1)
    operand = insert_dims(operand, range(len(counts) - operand.ndim))
    counts = (1,) * (operand.ndim - len(counts)) + counts
    for axis, count in enumerate(counts):
        if count != 1:
            operand = select(join_text("repeat", axis, count), operand)
    return operand


def pad(x: Operand, pad_width: Any, /, *, constant_values: float = 0) -> Traced:
    """Surrounded by a constant (numpy's ``pad``; an extension of the standard).

    >>> axe.run(lambda x: xp.pad(x, ((1, 2),)), np.array([7.0]))
    array([0., 7., 0., 0.])

    Args:
        x: the array.
        pad_width: one number, one (before, after), or one pair per dim.
        constant_values: the constant.
    """
    operand = as_traced(x)
    try:
        widths = np.broadcast_to(np.asarray(pad_width), (operand.ndim, 2)).tolist()
    except (ValueError, TypeError):
        wanted = f"(before, after), or {operand.ndim} pairs"
        raise ProgramError(
            f"pad width {said(pad_width)}", f"does not fit {operand.node.type}", wanted
        ) from None
    value = number("constant", constant_values)
    value = float(value) if operand.dtype.startswith(("f", "b")) else value
    return select(join_text("pad", tuple(map(tuple, widths)), value), operand)


__all__ = [
    "broadcast_arrays", "broadcast_shapes", "broadcast_to", "concat", "expand_dims", "flip",
    "moveaxis", "pad", "permute_dims", "repeat", "reshape", "roll", "squeeze", "stack", "tile",
    "unstack",
]  # fmt: skip
