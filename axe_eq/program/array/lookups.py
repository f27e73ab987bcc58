"""Indexing by arrays of integers (Python array API standard): one selector, a gather, does it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from axe_eq.errors import ProgramError
from axe_eq.program.array.arguments import listed, whole, wholes
from axe_eq.program.array.dtypes import astype
from axe_eq.program.array.indexing import drop_dims, insert_dims
from axe_eq.program.array.manipulation import broadcast_to, one_axis, reshape
from axe_eq.program.gathers import gather_text
from axe_eq.program.ops import join_text
from axe_eq.program.traced import Operand, Traced, as_traced, elementwise, is_number, select
from axe_eq.program.types import DTYPES

_I32_MAX = (1 << 31) - 1


def _indices(x: Operand, name: str = "indices") -> Traced:
    found = as_traced(x)
    if DTYPES[found.dtype].kind != "i":
        hint = "where(mask, a, b)" if found.dtype == "bool" else ""
        raise ProgramError(name, f"are {found.node.type}", "an array of integers", hint=hint)
    return found


def take(x: Operand, indices: Operand, /, *, axis: int | None = None) -> Traced:
    """The elements of an axis at these indices, in their order.

    >>> axe.run(lambda x, i: xp.take(x, i, axis=0), np.array([5.0, 6.0]), np.array([1, 1, 0]))
    array([6., 6., 5.])

    Args:
        x: the array.
        indices: integers from 0 to the axis's extent less 1, of any rank; what another one gives
            is undefined, and an error where it is seen.
        axis: along which; needed unless `x` has one dim.

    Returns:
        ``x.shape[:axis] + indices.shape + x.shape[axis + 1:]`` of x's dtype.

    Raises:
        ProgramError: no such axis, or indices that are no integers.
    """
    operand, at = as_traced(x), _indices(indices)
    if axis is None and operand.ndim != 1:
        raise ProgramError("axis of take", f"is not given for {operand.node.type}", "an axis")
    place = one_axis(0 if axis is None else axis, operand.ndim)
    shape = operand.shape
    if at.ndim == 0:
        return drop_dims(select(gather_text(place, ()), operand, at), [place])
    flat = at if at.ndim == 1 else reshape(at, (-1,))
    found = select(gather_text(place, (place,)), operand, flat)
    if at.ndim == 1:
        return found
    return reshape(found, (*shape[:place], *at.shape, *shape[place + 1 :]))


def take_along_axis(x: Operand, indices: Operand, /, *, axis: int = -1) -> Traced:
    """The elements of an axis at indices of their own for every index of the other dims.

    Args:
        x: the array.
        indices: integers of x's rank, as of `take`; the other dims broadcast with x's.
        axis: along which.

    Raises:
        ProgramError: no such axis, another rank, or shapes that do not broadcast.
    """
    operand, at = as_traced(x), _indices(indices)
    place = one_axis(axis, operand.ndim)
    if at.ndim != operand.ndim:
        wanted = f"{operand.ndim} dims"
        raise ProgramError("indices", f"are {at.node.type} for {operand.node.type}", wanted)
    pairs = list(zip(operand.node.shape, at.node.shape, strict=True))
    if any(d != place and a != b and 1 not in (a, b) for d, (a, b) in enumerate(pairs)):
        wrong = f"are {at.node.type} for {operand.node.type} along axis {place}"
        raise ProgramError("indices", wrong, "equal extents along other axes, or 1")
    whole_shape = [a if d == place else max(a, b) for d, (a, b) in enumerate(pairs)]
    # Indices that are one for all of a dim are read once for it.
    alone = [d for d, (a, b) in enumerate(pairs) if b == 1 and (d != place) and a != 1]
    kept = [d for d in range(at.ndim) if d not in alone]
    source = broadcast_to(operand, whole_shape)
    return select(gather_text(place, kept), source, drop_dims(at, alone))


def dynamic_slice(x: Operand, starts: Sequence[Any], sizes: Sequence[int], /) -> Traced:
    """The part of an array of these sizes that begins where integers of the run say.

    Args:
        x: the array.
        starts: per axis where it begins: an integer, or an array of integers without dims. All of
            the part lies inside `x`; what would not is undefined, and an error where it is seen.
        sizes: per axis how many elements.

    Raises:
        ProgramError: another number of starts or sizes, or sizes that do not fit.

    Example:
        >>> import numpy as np
        >>> import axe_eq as axe
        >>> from axe_eq import array as xp
        >>> recent = lambda x, i: xp.dynamic_slice(x, (i, 0), (2, 3))
        >>> axe.run(recent, np.arange(12).reshape(4, 3), np.int32(1)).tolist()
        [[3, 4, 5], [6, 7, 8]]
    """
    operand = as_traced(x)
    begins = listed("starts", starts, "one per axis")
    extents = wholes("sizes", listed("sizes", sizes, "one per axis"))
    if not len(begins) == len(extents) == operand.ndim:
        wrong = f"are {len(begins)}, and sizes {len(extents)}, for {operand.node.type}"
        raise ProgramError("starts", wrong, f"{operand.ndim} each")
    for axis, (begin, size) in enumerate(zip(begins, extents, strict=True)):
        extent = operand.node.shape[axis]
        if not 1 <= size <= extent:
            raise ProgramError(f"size {size}", f"does not fit axis {axis}", f"1..{extent}")
        if is_number(begin):
            first = whole("start", begin)
            if not 0 <= first <= extent - size:
                wrong = f"leaves {size} elements of axis {axis} of {operand.node.type}"
                raise ProgramError(f"start {first}", wrong, f"0..{extent - size}")
            parts: list[Any] = [None] * operand.ndim
            parts[axis] = None if size == extent else (first, 1, size)
            if parts[axis] is not None:
                operand = select(join_text("slice", tuple(parts)), operand)
        else:
            operand = _from(operand, axis, _indices(begin, "starts"), size)
    return operand


def _from(x: Traced, axis: int, start: Traced, size: int) -> Traced:
    if start.ndim:
        raise ProgramError("starts", f"hold a {start.node.type}", "integers without dims")
    if size == 1:
        return select(gather_text(axis, ()), x, start)
    # Integers that hold the last index of the axis, so that counting on does not wrap around.
    small = DTYPES[start.dtype].itemsize <= DTYPES["i32"].itemsize
    wide = "i32" if small and x.node.shape[axis] <= _I32_MAX else "i64"
    steps = select(join_text("iota", size, wide))
    at = elementwise("add", insert_dims(astype(start, wide), [0]), steps)
    return select(gather_text(axis, (axis,)), x, at)


__all__ = ["dynamic_slice", "take", "take_along_axis"]
