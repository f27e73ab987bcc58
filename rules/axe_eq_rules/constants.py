"""Scalar constants in laws: their texts, and what cells give on them exactly; element types.

Laws that are believed bit for bit are also used over the reals, so a constant may be computed only
where floats round nothing: the result must be the same number either way.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from axe_eq.program.meaning import evaluate_op
from axe_eq.program.ops import CELLS, join_text, split_text
from axe_eq.program.types import DTYPES, Array, dtype, held, promote, same_ring, value_type

Constant = tuple[Any, str]  # value and dtype


def constant(spec: str) -> Constant | None:
    """Value and dtype of a scalar constant's text, if the dtype holds the value exactly."""
    name, params = split_text(spec)
    if name != "full" or params[0] != ():
        return None
    value, of = params[1], dtype(params[2]).name
    return (value, of) if holds_value(of, value) else None


def constant_text(value: Any, name: str) -> str:
    """The text of a scalar constant."""
    return join_text("full", (), value, name)


def holds_value(name: str, value: Any) -> bool:
    """Whether a dtype holds a number exactly."""
    if DTYPES[name].kind == "f":
        return bool(held(value, name) == value or value != value)
    with np.errstate(all="ignore"):
        return bool(np.asarray(value).astype(DTYPES[name].numpy) == value)


def one_ring(a: str, b: str, c: str) -> bool:
    """Whether products of values of these types mean the same in any association."""
    x, y, z = (value_type(t).dtype for t in (a, b, c))
    return same_ring(promote(x, y), promote(y, z), promote(x, z), promote(x, y, z))


_EXACT: dict[str, Callable[..., Any]] = {
    "id": lambda x: x, "cast": lambda x, _: x, "neg": operator.neg, "abs": abs,
    "add": lambda *xs: sum(xs), "mul": lambda *xs: math.prod(xs), "sub": operator.sub,
    "div": operator.truediv, "maximum": lambda *xs: max(xs), "minimum": lambda *xs: min(xs),
    "floor": math.floor, "ceil": math.ceil, "trunc": math.trunc, "round": round,
    "sign": lambda x: (x > 0) - (x < 0),
    "where": lambda c, x, y: x if c else y,
}  # fmt: skip


def exact_result(f: str, operands: Sequence[Constant]) -> Constant | None:
    """What a cell gives on constants, if no rounding takes part and none of them is NaN.

    NaN compares as false bit for bit, but is undefined over the reals. Cells other than arithmetic
    and choices are believed only between 0 and 1, as in exp(0) = 1.
    """
    name, params = split_text(f)
    if CELLS[name].n_values > 1:
        return None
    if any(value != value for value, _ in operands):
        return None
    arrays = [np.asarray(value).astype(DTYPES[of].numpy) for value, of in operands]
    bits = evaluate_op("," * (len(arrays) - 1) + "->", f, arrays)
    if bits.dtype.kind in "fV" and not np.isfinite(bits.astype(np.float64)):
        return _plain(bits) if name in ("maximum", "minimum", "neg", "where", "id") else None
    if bits.dtype.kind == "b":
        return _plain(bits)
    values = [value for value, _ in operands]
    if not all(isinstance(v, bool) or math.isfinite(v) for v in values):
        return None
    return _plain(bits) if _is_real_result(name, params, values, bits) else None


def _is_real_result(name: str, params: Sequence[Any], values: Sequence[Any], bits: Array) -> bool:
    result = Fraction(bits.item() if bits.dtype.kind in "iub" else float(bits))
    if name not in _EXACT:
        return all(v in (0, 1) for v in values) and result in (0, 1)
    try:
        real = _EXACT[name](*map(Fraction, values), *params)
    except ZeroDivisionError:
        return False
    return bool(real == result)


def _plain(array: Array) -> Constant:
    value = array.item() if array.dtype.kind in "iub" else float(array)
    return value, dtype(array.dtype).name
