"""Products of matrices and vectors of the array namespace (Python array API standard)."""

from __future__ import annotations

from collections.abc import Sequence

from axe_eq.errors import ProgramError, said
from axe_eq.program.array.arguments import listed, whole, wholes
from axe_eq.program.array.manipulation import broadcast_shapes, one_axis, permute_dims
from axe_eq.program.signature import Affine, make, plain
from axe_eq.program.traced import Operand, Traced, as_operands, as_traced, block, projection
from axe_eq.program.types import promote


def matmul(x1: Operand, x2: Operand, /) -> Traced:
    """Matrix product of the last two dims, the others broadcast; one-dim operands are vectors.

    Raises:
        ProgramError: an operand without dims, or extents that do not fit.
    """
    a, b = as_operands(x1, x2)
    left, right = a.node.shape, b.node.shape
    if not left or not right or left[-1] != right[-2 if len(right) > 1 else -1]:
        wrong = f"{a.node.type} @ {b.node.type} have no common extent"
        raise ProgramError("matmul", wrong, "(..., m, k) @ (..., k, n)")
    batch = broadcast_shapes(left[:-2], right[:-2])
    n_out = len(batch)
    row, col = _next(n_out, len(left) > 1), _next(n_out + (len(left) > 1), len(right) > 1)
    n_out += len(row) + len(col)
    k = plain(n_out)
    first = [*projection(left[:-2], batch), *row, k]
    second = [*projection(right[:-2], batch), k, *col]
    return _contract([first, second], n_out, [n_out], a, b)


def _contract(
    operands: Sequence[Sequence[Affine]], n_out: int, reduced: Sequence[int], a: Traced, b: Traced
) -> Traced:
    """Sum of products over the reduced dims; of bools, whether any pair is true, as in numpy."""
    is_bool = promote(a.dtype, b.dtype) == "bool"
    sig = make(operands, range(n_out), "or" if is_bool else "+", reduced)
    return block(sig.text, "and" if is_bool else "mul", a, b)


def _next(dim: int, wanted: bool) -> list[Affine]:
    return [plain(dim)] if wanted else []


def matrix_transpose(x: Operand, /) -> Traced:
    """The last two dims exchanged.

    Raises:
        ProgramError: fewer than two dims.
    """
    operand = as_traced(x)
    if operand.ndim < 2:
        raise ProgramError("matrix_transpose", f"got {operand.node.type}", "at least 2 dims")
    order = list(range(operand.ndim))
    order[-2:] = order[:-3:-1]
    return permute_dims(operand, order)


def tensordot(
    x1: Operand, x2: Operand, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> Traced:
    """Sum of products over pairs of axes: the last of x1 with the first of x2, or as given.

    Raises:
        ProgramError: axes that do not pair up, or pairs of different extents.
    """
    a, b = as_operands(x1, x2)
    pairs = _pairs(a.ndim, b.ndim, axes)
    for i, j in pairs:
        if a.node.shape[i] != b.node.shape[j]:
            wrong = f"axis {i} of {a.node.type} meets axis {j} of {b.node.type}"
            raise ProgramError("tensordot", wrong, "equal extents")
    free_a = [d for d in range(a.ndim) if d not in [i for i, _ in pairs]]
    free_b = [d for d in range(b.ndim) if d not in [j for _, j in pairs]]
    n_out = len(free_a) + len(free_b)
    dims_a = {d: n for n, d in enumerate(free_a)} | {i: n_out + n for n, (i, _) in enumerate(pairs)}
    dims_b = {d: len(free_a) + n for n, d in enumerate(free_b)}
    dims_b |= {j: n_out + n for n, (_, j) in enumerate(pairs)}
    operands = [
        [plain(dims_a[d]) for d in range(a.ndim)],
        [plain(dims_b[d]) for d in range(b.ndim)],
    ]
    return _contract(operands, n_out, range(n_out, n_out + len(pairs)), a, b)


def _pairs(
    rank_a: int, rank_b: int, axes: int | tuple[Sequence[int], Sequence[int]]
) -> list[tuple[int, int]]:
    if hasattr(axes, "__index__") and not getattr(axes, "shape", ()):
        count = whole("axes", axes)
        if not 0 <= count <= min(rank_a, rank_b):
            wanted = f"0..{min(rank_a, rank_b)}"
            raise ProgramError("tensordot", f"axes is {said(axes)}", wanted)
        return [(rank_a - count + n, n) for n in range(count)]
    both = listed("axes", axes, "two sequences of axes")
    if len(both) != 2:
        raise ProgramError(f"axes {said(axes)}", f"are {len(both)}", "two sequences of axes")
    first, second = (
        [one_axis(a, r) for a in wholes("axes", given)]
        for given, r in zip(both, (rank_a, rank_b), strict=True)
    )
    if len(first) != len(second) or len(set(first)) < len(first) or len(set(second)) < len(second):
        raise ProgramError(f"axes {said(axes)}", "do not pair up", "two sequences of distinct axes")
    return list(zip(first, second, strict=True))


def vecdot(x1: Operand, x2: Operand, /, *, axis: int = -1) -> Traced:
    """Sum of products along one axis, counted from the end, the others broadcast.

    Raises:
        ProgramError: extents of the axis that differ, or shapes that do not broadcast.
    """
    a, b = as_operands(x1, x2)
    places = [one_axis(axis, a.ndim), one_axis(axis, b.ndim)]
    extents = [x.node.shape[p] for x, p in zip((a, b), places, strict=True)]
    if axis >= 0 or extents[0] != extents[1]:
        wrong = f"axis {axis} of {a.node.type} and {b.node.type}"
        raise ProgramError("vecdot", wrong, "a negative axis of equal extents")
    shapes = [x.node.shape[:p] + x.node.shape[p + 1 :] for x, p in zip((a, b), places, strict=True)]
    out = broadcast_shapes(*shapes)
    rows = [projection(shape, out) for shape in shapes]
    for row, place in zip(rows, places, strict=True):
        row.insert(place, plain(len(out)))
    return _contract(rows, len(out), [len(out)], a, b)


__all__ = ["matmul", "matrix_transpose", "tensordot", "vecdot"]
