"""Creation functions of the array namespace (Python array API standard).

A filled array is one constant without dims, broadcast: a constant is never spread out in a program.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from axe_eq.errors import ProgramError, said
from axe_eq.program.array.arguments import as_float, extents, flag, number, whole, word
from axe_eq.program.array.dtypes import astype
from axe_eq.program.array.manipulation import broadcast_to, expand_dims
from axe_eq.program.ops import join_text
from axe_eq.program.traced import Operand, Traced, as_traced, elementwise, scalar, select
from axe_eq.program.types import dtype, promote

Shape = int | Sequence[int]


def _filled(shape: Shape, value: float, name: str) -> Traced:
    return broadcast_to(scalar(value, name), extents(shape))


def full(shape: Shape, fill_value: Any, *, dtype: object = None, device: object = None) -> Traced:
    """An array filled with one value; its dtype is that of the value where none is given."""
    value = as_traced(fill_value)
    value = value if dtype is None else astype_constant(fill_value, dtype)
    return broadcast_to(value, extents(shape))


def astype_constant(value: Any, dtype_: object) -> Traced:
    """A Python number as a constant of a dtype; an array is cast."""
    if isinstance(value, bool | int | float) and not isinstance(value, np.generic):
        return scalar(value, dtype(dtype_).name)
    return astype(value, dtype_)


def zeros(shape: Shape, *, dtype: object = None, device: object = None) -> Traced:
    """An array of zeros, f64 by default."""
    return _filled(shape, 0, _default(dtype))


def ones(shape: Shape, *, dtype: object = None, device: object = None) -> Traced:
    """An array of ones, f64 by default."""
    return _filled(shape, 1, _default(dtype))


def empty(shape: Shape, *, dtype: object = None, device: object = None) -> Traced:
    """An array whose values nobody should read; zeros."""
    return zeros(shape, dtype=dtype)


def _default(given: object) -> str:
    return "f64" if given is None else dtype(given).name


def full_like(
    x: Operand, /, fill_value: Any, *, dtype: object = None, device: object = None
) -> Traced:
    """An array of the shape of x filled with one value, by default in the dtype of x."""
    like = as_traced(x)
    return full(like.shape, fill_value, dtype=like.dtype if dtype is None else dtype)


def zeros_like(x: Operand, /, *, dtype: object = None, device: object = None) -> Traced:
    """Zeros of the shape of x, by default in the dtype of x."""
    return full_like(x, 0, dtype=dtype)


def ones_like(x: Operand, /, *, dtype: object = None, device: object = None) -> Traced:
    """Ones of the shape of x, by default in the dtype of x."""
    return full_like(x, 1, dtype=dtype)


def empty_like(x: Operand, /, *, dtype: object = None, device: object = None) -> Traced:
    """An array of the shape of x whose values nobody should read; zeros."""
    return zeros_like(x, dtype=dtype)


def asarray(
    obj: Any, /, *, dtype: object = None, device: object = None, copy: bool | None = None
) -> Traced:
    """A traced array itself, or numbers and arrays as constants.

    Raises:
        ProgramError: nested lists of different lengths, or elements that are no numbers.
    """
    if isinstance(obj, list | tuple):
        obj = _nested(obj)
    return as_traced(obj) if dtype is None else astype_constant(obj, dtype)


def _nested(obj: Any) -> Any:
    if any(isinstance(part, Traced) for part in obj):
        raise ProgramError(
            "asarray", "got a list of traced arrays", "numbers", hint="stack(arrays)"
        )
    try:
        return np.asarray(obj)
    except ValueError:
        raise ProgramError("asarray", "got lists of different lengths", "one shape") from None


def from_dlpack(x: Any, /, *, device: object = None, copy: bool | None = None) -> Traced:
    """An array of another library as a constant."""
    return as_traced(x)


# -- ranges ---------------------------------------------------------------------------------------


def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: object = None,
    device: object = None,
) -> Traced:
    """start, start + step, ... below stop; i64 where all are integers, else f64.

    Raises:
        ProgramError: a step of 0, or no element.
    """
    first, last = (0, start) if stop is None else (start, stop)
    first, last, step = number("start", first), number("stop", last), number("step", step)
    integral = all(isinstance(v, int) for v in (first, last, step))
    count = _length(first, last, step)
    if count < 1:
        ends = ", ".join(map(said, (first, last, step)))
        raise ProgramError(f"arange({ends})", "has no element", "at least one")
    name = ("i64" if integral else "f64") if dtype is None else _default(dtype)
    if integral and (first, step) == (0, 1):
        return select(join_text("iota", count, name))
    # Computed wide and rounded once: a half type cannot count far. Not all machines count in i64.
    far = max(map(abs, (first, step, (count - 1) * step, first + (count - 1) * step)))
    whole_type = "i64" if name == "i64" or far > np.iinfo(np.int32).max else "i32"
    return astype(_line(count, first, step, whole_type if integral else "f64"), name)


def _length(first: float, last: float, step: float) -> int:
    """How many steps from `first` lie before `last`.

    Raises:
        ProgramError: without end, or ends that are no numbers.
    """
    if not step:
        return 0
    if isinstance(first, int) and isinstance(last, int) and isinstance(step, int):
        return -((first - last) // step)
    steps = (last - first) / step
    if not math.isfinite(steps):
        raise ProgramError(f"arange({first}, {last}, {step})", f"has {steps} elements", "finite")
    return math.ceil(steps)


def _line(count: int, start: float, step: float, name: str) -> Traced:
    positions = select(join_text("iota", count, name))
    return elementwise("add", elementwise("mul", positions, step), start)


def linspace(
    start: float,
    stop: float,
    /,
    num: int,
    *,
    dtype: object = None,
    endpoint: bool = True,
    device: object = None,
) -> Traced:
    """`num` evenly spaced values from start to stop, stop included unless `endpoint` is false."""
    first, end = float(number("start", start)), float(number("stop", stop))
    count, closed = whole("num", num, 1), flag("endpoint", endpoint)
    n_steps = count - 1 if closed else count
    values = _line(
        count, first, (end - first) / as_float("num", n_steps) if n_steps else 0.0, "f64"
    )
    if closed and count > 1:
        last = elementwise("eq", select(join_text("iota", count, "i64")), count - 1)
        values = elementwise("where", last, end, values)
    return astype(values, _default(dtype))


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: object = None,
    device: object = None,
) -> Traced:
    """Ones on the k-th diagonal, zeros elsewhere."""
    rows = whole("n_rows", n_rows, 1)
    cols = rows if n_cols is None else whole("n_cols", n_cols, 1)
    return astype(_diagonals("eq", rows, cols, whole("k", k)), _default(dtype))


def _diagonals(compare: str, n_rows: int, n_cols: int, k: int) -> Traced:
    """Which cells (row, col) have col - k compared to row as asked."""
    rows = select(join_text("iota", n_rows, "i64"))
    cols = select(join_text("iota", n_cols, "i64"))
    shifted = elementwise("sub", cols, k) if k else cols
    return elementwise(compare, shifted, expand_dims(rows, 1))


def tril(x: Operand, /, *, k: int = 0) -> Traced:
    """The elements on and below the k-th diagonal, zeros above."""
    return _masked(as_traced(x), "le", k)


def triu(x: Operand, /, *, k: int = 0) -> Traced:
    """The elements on and above the k-th diagonal, zeros below."""
    return _masked(as_traced(x), "ge", k)


def _masked(x: Traced, compare: str, k: int) -> Traced:
    if x.ndim < 2:
        raise ProgramError("triangle", f"got {x.node.type}", "at least 2 dims")
    mask = _diagonals(compare, x.node.shape[-2], x.node.shape[-1], whole("k", k))
    return elementwise("where", mask, x, scalar(0, x.dtype))


def meshgrid(*arrays: Operand, indexing: str = "xy") -> tuple[Traced, ...]:
    """Coordinate arrays of a grid: one per vector, of the common shape.

    Raises:
        ProgramError: an operand that is no vector, or an unknown indexing.
    """
    vectors = [as_traced(x) for x in arrays]
    if wrong := [x for x in vectors if x.ndim != 1]:
        raise ProgramError("meshgrid", f"got {wrong[0].node.type}", "vectors")
    name = promote(*(x.dtype for x in vectors)) if vectors else ""
    order = list(range(len(vectors)))
    if word("indexing", indexing, ("xy", "ij")) == "xy" and len(order) > 1:
        order[0], order[1] = 1, 0
    shape = [0] * len(vectors)
    for place, vector in zip(order, vectors, strict=True):
        shape[place] = vector.node.shape[0]
    return tuple(
        broadcast_to(_along(astype(x, name), place, len(order)), shape)
        for place, x in zip(order, vectors, strict=True)
    )


def _along(x: Traced, axis: int, rank: int) -> Traced:
    return expand_dims(x, tuple(d for d in range(rank) if d != axis))


__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like",
    "linspace", "meshgrid", "ones", "ones_like", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip
