"""Element types, constants and inspection of the array namespace (Python array API standard)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from axe_eq.errors import ProgramError
from axe_eq.program.traced import Operand, Traced, as_traced, elementwise, is_number, weak_dtype
from axe_eq.program.types import DTYPES, dtype, promote

# Element types are their names, so that they compare with a traced array's dtype.
bool = "bool"
int8, uint8, int16, int32, int64 = "i8", "u8", "i16", "i32", "i64"
float8_e4m3fn, float8_e5m2 = "f8e4m3", "f8e5m2"
float16, bfloat16, float32, float64 = "f16", "bf16", "f32", "f64"

e, pi, inf, nan = math.e, math.pi, math.inf, math.nan
newaxis = None

__array_api_version__ = "2024.12"


def astype(x: Operand, dtype_: object, /, *, copy: object = True, device: object = None) -> Traced:
    """The array converted to another element type; the array itself if it has that type."""
    operand = as_traced(x)
    name = dtype(dtype_).name
    return operand if operand.dtype == name else elementwise(f"cast {name}", operand)


def result_type(*arrays_and_dtypes: Any) -> str:
    """The common element type of arrays and dtypes; Python numbers yield to them."""
    strong = [a.dtype if hasattr(a, "dtype") else a for a in arrays_and_dtypes if not is_number(a)]
    names = [dtype(s).name for s in strong]
    weak = [weak_dtype(a, names) for a in arrays_and_dtypes if is_number(a)]
    if not names + weak:
        raise ProgramError("result_type", "got no operand", "at least one array or dtype")
    return promote(*names, *weak)


_KINDS = {
    "bool": "b", "integral": "i", "real floating": "f", "complex floating": "", "numeric": "if",
}  # fmt: skip
_SIGNS = {"signed integer": True, "unsigned integer": False}


def isdtype(dtype_: object, kind: Any) -> Any:
    """Whether an element type is of a kind ("real floating"), or a given one, or any of many.

    Raises:
        ProgramError: an unknown kind.
    """
    name = dtype(dtype_).name
    if isinstance(kind, tuple):
        return any(isdtype(name, k) for k in kind)
    if isinstance(kind, str) and kind in _SIGNS:
        return DTYPES[name].kind == "i" and DTYPES[name].signed is _SIGNS[kind]
    if isinstance(kind, str) and kind in _KINDS and kind != "bool":
        return DTYPES[name].kind in tuple(_KINDS[kind])
    return dtype(kind).name == name


def can_cast(from_: Any, to: object, /) -> Any:
    """Whether promotion takes the first element type to the second."""
    name = from_.dtype if isinstance(from_, Traced) else dtype(from_).name
    return promote(name, dtype(to).name) == dtype(to).name


@dataclass(frozen=True)
class FloatInfo:
    """Limits of a floating element type."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: str


@dataclass(frozen=True)
class IntInfo:
    """Limits of an integer element type."""

    bits: int
    max: int
    min: int
    dtype: str


def finfo(type: Any, /) -> FloatInfo:
    """Limits of a floating element type, or of an array's."""
    name = _of_kind(type, "f")
    info: Any = ml_dtypes.finfo(DTYPES[name].numpy)  # type: ignore[no-untyped-call]
    eps, largest, least = float(info.eps), float(info.max), float(info.min)
    return FloatInfo(info.bits, eps, largest, least, float(info.smallest_normal), name)


def iinfo(type: Any, /) -> IntInfo:
    """Limits of an integer element type, or of an array's."""
    name = _of_kind(type, "i")
    info = np.iinfo(DTYPES[name].numpy)
    return IntInfo(info.bits, int(info.max), int(info.min), name)


def _of_kind(type_: Any, kind: str) -> str:
    name = dtype(getattr(type_, "dtype", type_)).name
    if DTYPES[name].kind != kind:
        wanted = "a floating dtype" if kind == "f" else "an integer dtype"
        raise ProgramError(f"dtype {name!r}", "has no such limits", wanted)
    return name


class Info:
    """What this namespace offers."""

    def capabilities(self) -> dict[str, Any]:
        """Shapes never depend on values, so neither masks as indices nor such functions exist."""
        return {"boolean indexing": False, "data-dependent shapes": False, "max dimensions": 52}

    def default_device(self) -> str:
        """The only device: none."""
        return "traced"

    def devices(self) -> list[str]:
        """The only device: none."""
        return ["traced"]

    def default_dtypes(self, *, device: object = None) -> dict[str, str]:
        """Element types of numbers and creation functions, as in numpy."""
        return {"real floating": "f64", "integral": "i64", "indexing": "i64"}

    def dtypes(self, *, device: object = None, kind: Any = None) -> dict[str, str]:
        """Element types by name, those of a kind where one is given."""
        return {n: n for n in DTYPES if kind is None or isdtype(n, kind)}


def __array_namespace_info__() -> Info:
    """What this namespace offers (inspection API of the standard)."""
    return Info()


__all__ = [
    "__array_api_version__", "__array_namespace_info__", "astype", "bfloat16", "bool", "can_cast",
    "e", "finfo", "float8_e4m3fn", "float8_e5m2", "float16", "float32", "float64", "iinfo", "inf",
    "int8", "int16", "int32", "int64", "isdtype", "nan", "newaxis", "pi", "result_type", "uint8",
]  # fmt: skip
