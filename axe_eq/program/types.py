"""Element types and value types.

A value's type prints as ``f16[8192,4096]``; that text is what terms and the e-graph carry, so the
parser here is the only place that gives it a meaning. Element types come from numpy and ml_dtypes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

from axe_eq.errors import ProgramError

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class DType:
    """One element type: its name, its numpy dtype, and the dtype it accumulates in.

    kind is "f" (floating), "i" (signed integer) or "b" (boolean).
    """

    name: str
    numpy: np.dtype[Any]
    accumulate: str
    kind: str

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return int(self.numpy.itemsize)


def _dtype(name: str, scalar: Any, accumulate: str, kind: str) -> DType:
    return DType(name, np.dtype(scalar), accumulate, kind)


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        _dtype("f8e4m3", ml_dtypes.float8_e4m3fn, "f32", "f"),
        _dtype("f8e5m2", ml_dtypes.float8_e5m2, "f32", "f"),
        _dtype("f16", np.float16, "f32", "f"),
        _dtype("bf16", ml_dtypes.bfloat16, "f32", "f"),
        _dtype("f32", np.float32, "f32", "f"),
        _dtype("f64", np.float64, "f64", "f"),
        _dtype("i32", np.int32, "i32", "i"),
        _dtype("i64", np.int64, "i64", "i"),
        _dtype("bool", np.bool_, "bool", "b"),
    )
}
_ALIASES = {
    "float16": "f16", "half": "f16", "bfloat16": "bf16", "float32": "f32", "float": "f32",
    "float64": "f64", "double": "f64", "int32": "i32", "int64": "i64", "int": "i64", "pred": "bool",
    "fp8": "f8e4m3", "f8e4m3fn": "f8e4m3", "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2",
}  # fmt: skip
_BY_NUMPY = {d.numpy: d for d in DTYPES.values()}
# Wider floats win over narrower ones; f16 with bf16 has no common half type, so f32 holds both.
_RANK = {
    "bool": 0,
    "i32": 1,
    "i64": 2,
    "f8e5m2": 3,
    "f8e4m3": 3,
    "f16": 4,
    "bf16": 4,
    "f32": 5,
    "f64": 6,
}


def dtype(name: object) -> DType:
    """The element type called `name` (a name, an alias, or a numpy dtype).

    Raises:
        ProgramError: no such element type.
    """
    if isinstance(name, DType):
        return name
    if isinstance(name, str):
        found = DTYPES.get(_ALIASES.get(name, name))
    else:
        found = _BY_NUMPY.get(_as_numpy_dtype(name))
    if found is None:
        raise ProgramError(f"dtype {name!r}", "is not known", "one of " + " ".join(DTYPES))
    return found


def _as_numpy_dtype(name: object) -> Any:
    try:
        return np.dtype(name)  # type: ignore[call-overload]
    except TypeError:
        return None


@cache
def promote(*names: str) -> str:
    """The common element type: the widest float, else the widest integer, else bool."""
    best = max(names, key=lambda n: _RANK[n])
    peers = {n for n in names if _RANK[n] == _RANK[best]}
    return best if len(peers) == 1 else "f32"


@dataclass(frozen=True)
class ValueType:
    """Element type and shape of a value; prints as ``f16[8192,4096]``."""

    dtype: str
    shape: tuple[int, ...]

    def __str__(self) -> str:
        return f"{self.dtype}[{','.join(map(str, self.shape))}]"

    @property
    def rank(self) -> int:
        """Number of dims."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return DTYPES[self.dtype].itemsize

    @property
    def n_bytes(self) -> int:
        """Bytes of all elements, dense."""
        return self.size * self.itemsize


@cache
def value_type(text: str) -> ValueType:
    """Parse a value type as `ValueType` prints it."""
    name, _, rest = text.partition("[")
    dims = rest.rstrip("]")
    return ValueType(dtype(name).name, tuple(int(d) for d in dims.split(",")) if dims else ())
