"""Statistical, searching and utility functions of the array namespace (array API standard)."""

from __future__ import annotations

from collections.abc import Sequence

from axe_eq.errors import ProgramError
from axe_eq.program.array.arguments import flag, listed, number, whole, word
from axe_eq.program.array.dtypes import astype
from axe_eq.program.array.elementwise import divide, sqrt, square, subtract, truth
from axe_eq.program.array.indexing import insert_dims
from axe_eq.program.array.manipulation import (
    Axes,
    all_axes,
    broadcast_arrays,
    concat,
    flip,
    one_axis,
    pad,
    reshape,
)
from axe_eq.program.ops import MONOIDS, join_text
from axe_eq.program.signature import make, plain
from axe_eq.program.traced import Operand, Traced, as_traced, block, elementwise, scan, select
from axe_eq.program.types import DTYPES


def _reduce(
    x: Traced, monoid: str, axes: Sequence[int], keepdims: bool, index: Sequence[Traced] = ()
) -> Traced:
    """Reduce over the axes; `index` is the second operand of a structured monoid, along one."""
    kept = [d for d in range(x.ndim) if d not in axes]
    dims = {d: n for n, d in enumerate([*kept, *axes])}
    operands = [[plain(dims[d]) for d in range(x.ndim)]]
    operands += [[plain(dims[axes[0]])] for _ in index]
    result = x
    if axes:
        sig = make(operands, range(len(kept)), monoid, range(len(kept), x.ndim))
        result = block(sig.text, "pair" if index else "id", x, *index)
    return insert_dims(result, sorted(axes)) if flag("keepdims", keepdims) else result


def _widened(x: Traced, dtype_: object) -> Traced:
    """As the standard says: integers and bools are summed in the default integer type."""
    if dtype_ is not None:
        return astype(x, dtype_)
    return astype(x, "i64") if DTYPES[x.dtype].kind in "bi" else x


def sum(
    x: Operand, /, *, axis: Axes = None, dtype: object = None, keepdims: bool = False
) -> Traced:
    """Sum over the axes; half types are summed in f32 and rounded once."""
    operand = _widened(as_traced(x), dtype)
    return _reduce(operand, "+", all_axes(axis, operand.ndim), keepdims)


def prod(
    x: Operand, /, *, axis: Axes = None, dtype: object = None, keepdims: bool = False
) -> Traced:
    """Product over the axes."""
    operand = _widened(as_traced(x), dtype)
    return _reduce(operand, "*", all_axes(axis, operand.ndim), keepdims)


def max(x: Operand, /, *, axis: Axes = None, keepdims: bool = False) -> Traced:
    """Largest value over the axes, NaN if there is one."""
    operand = as_traced(x)
    return _reduce(operand, "max", all_axes(axis, operand.ndim), keepdims)


def min(x: Operand, /, *, axis: Axes = None, keepdims: bool = False) -> Traced:
    """Smallest value over the axes, NaN if there is one."""
    operand = as_traced(x)
    return _reduce(operand, "min", all_axes(axis, operand.ndim), keepdims)


def all(x: Operand, /, *, axis: Axes = None, keepdims: bool = False) -> Traced:
    """Whether every element over the axes is true (not 0)."""
    operand = truth(as_traced(x))
    return _reduce(operand, "and", all_axes(axis, operand.ndim), keepdims)


def any(x: Operand, /, *, axis: Axes = None, keepdims: bool = False) -> Traced:
    """Whether some element over the axes is true (not 0)."""
    operand = truth(as_traced(x))
    return _reduce(operand, "or", all_axes(axis, operand.ndim), keepdims)


def count_nonzero(x: Operand, /, *, axis: Axes = None, keepdims: bool = False) -> Traced:
    """Number of elements over the axes that are not 0."""
    return sum(truth(as_traced(x)), axis=axis, keepdims=keepdims)


def mean(x: Operand, /, *, axis: Axes = None, keepdims: bool = False) -> Traced:
    """Mean over the axes; half types are summed and divided in f32, integers give f64."""
    operand = _exactly(as_traced(x))
    axes = all_axes(axis, operand.ndim)
    total = _reduce(operand, "+", axes, keepdims)
    return _rounded(divide(total, _count(operand, axes)), as_traced(x))


def var(
    x: Operand, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False
) -> Traced:
    """Variance over the axes: squares of differences from the mean over (count - correction)."""
    operand = _exactly(as_traced(x))
    axes = all_axes(axis, operand.ndim)
    centred = subtract(operand, mean(operand, axis=axes, keepdims=True))
    total = _reduce(square(centred), "+", axes, keepdims)
    return _rounded(
        divide(total, _count(operand, axes) - number("correction", correction)), as_traced(x)
    )


def std(
    x: Operand, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False
) -> Traced:
    """Standard deviation over the axes."""
    operand = _exactly(as_traced(x))
    spread = sqrt(var(operand, axis=axis, correction=correction, keepdims=keepdims))
    return _rounded(spread, as_traced(x))


def _exactly(x: Traced) -> Traced:
    """In the dtype a statistic is computed in: sums of half types would overflow in their own."""
    of = DTYPES[x.dtype]
    return astype(x, of.accumulate if of.kind == "f" else "f64")


def _rounded(value: Traced, x: Traced) -> Traced:
    """A statistic of x in the dtype of x; of integers in f64."""
    return astype(value, x.dtype) if DTYPES[x.dtype].kind == "f" else value


def _count(x: Traced, axes: Sequence[int]) -> float:
    count = 1.0
    for axis in axes:
        count *= x.shape[axis]
    return count


# -- searching ------------------------------------------------------------------------------------


def argmax(x: Operand, /, *, axis: int | None = None, keepdims: bool = False) -> Traced:
    """Index of the first largest value along an axis; of the flattened array where it is None."""
    return _position(as_traced(x), "argmax", axis, keepdims)


def argmin(x: Operand, /, *, axis: int | None = None, keepdims: bool = False) -> Traced:
    """Index of the first smallest value along an axis; of the flattened array where it is None."""
    return _position(as_traced(x), "argmin", axis, keepdims)


def _position(x: Traced, monoid: str, axis: int | None, keepdims: bool) -> Traced:
    if axis is None:
        keepdims = flag("keepdims", keepdims)
        found = _position(reshape(x, (-1,)), monoid, 0, False)
        return insert_dims(found, range(x.ndim)) if keepdims else found
    place = one_axis(axis, x.ndim)
    positions = select(join_text("iota", x.node.shape[place], "i64"))
    return _reduce(x, monoid, (place,), keepdims, [positions])


# -- cumulative -----------------------------------------------------------------------------------


def cumulative_sum(
    x: Operand, /, *, axis: int | None = None, dtype: object = None, include_initial: bool = False
) -> Traced:
    """Sums of the elements up to each, along an axis; half types are summed in f32."""
    return _cumulative(as_traced(x), "+", axis, dtype, include_initial)


def cumulative_prod(
    x: Operand, /, *, axis: int | None = None, dtype: object = None, include_initial: bool = False
) -> Traced:
    """Products of the elements up to each, along an axis."""
    return _cumulative(as_traced(x), "*", axis, dtype, include_initial)


def _cumulative(
    x: Traced, monoid: str, axis: int | None, dtype_: object, include_initial: bool
) -> Traced:
    if axis is None and x.ndim != 1:
        name = {"+": "cumulative_sum", "*": "cumulative_prod"}[monoid]
        raise ProgramError(name, f"needs an axis for {x.node.type}", "axis=...")
    place = one_axis(0 if axis is None else axis, x.ndim)
    result = scan(join_text(monoid, place), _widened(x, dtype_))
    if flag("include_initial", include_initial):
        unit = MONOIDS[monoid].unit
        widths = [(int(d == place), 0) for d in range(x.ndim)]
        result = pad(result, widths, constant_values=0 if unit is None else unit)
    return result


def associative_scan(
    monoid: str, x: Operand | Sequence[Operand], /, *, axis: int = -1, reverse: bool = False
) -> Traced:
    """Reductions by a monoid of the elements up to each, along an axis (an extension).

    >>> axe.run(lambda x: xp.associative_scan("max", x), np.array([1.0, 3.0, 2.0]))
    array([1., 3., 3.])

    Args:
        monoid: the name of a declared one, packs' own included: "+", "*", "max", "min", "and",
            "or", "recurrence", ...
        x: the array; for a structured monoid as many as it takes, which are broadcast.
        axis: the axis, by default the last one.
        reverse: reduce the elements from each on, from the last one back.

    Raises:
        ProgramError: no such monoid, or operands that it does not take.

    Example:
        ``associative_scan("max", x, axis=-1)`` is the largest element so far.
    """
    several = listed("x", x, "one array or more") if isinstance(x, list | tuple) else (x,)
    if not several:
        raise ProgramError("x", "is empty", "one array or more")
    given = broadcast_arrays(*several)
    place = one_axis(axis, given[0].ndim)
    text = join_text(word("monoid", monoid, MONOIDS.names()), place)
    if not flag("reverse", reverse):
        return scan(text, *given)
    return flip(scan(text, *(flip(a, axis=place) for a in given)), axis=place)


def diff(x: Operand, /, *, axis: int = -1, n: int = 1, prepend: Operand = None,
         append: Operand = None) -> Traced:  # fmt: skip
    """Differences of neighbours along an axis, n times; bools are compared."""
    operand = as_traced(x)
    place = one_axis(axis, operand.ndim)
    parts = [p for p in (prepend, operand, append) if p is not None]
    operand = concat(parts, axis=place) if len(parts) > 1 else operand
    before = (slice(None),) * place
    for _ in range(whole("n", n, 0)):
        upper, lower = operand[(*before, slice(1, None))], operand[(*before, slice(None, -1))]
        operand = elementwise("ne" if operand.dtype == "bool" else "sub", upper, lower)
    return operand


__all__ = [
    "all", "any", "argmax", "argmin", "associative_scan", "count_nonzero", "cumulative_prod",
    "cumulative_sum", "diff", "max", "mean", "min", "prod", "std", "sum", "var",
]  # fmt: skip
