"""Data types of NKI as numpy's: storage is typed, arithmetic is in float32."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from axe_eq_backends.nki.sim.errors import NkiError

Dtype = np.dtype[Any]


def _packed(of: Any, bits: int) -> Dtype:
    """Four values in one element; only DMA and matrix products of NeuronCore-v4 know them."""
    held = np.dtype(np.uint16) if bits == 16 else np.dtype(np.uint32)
    return np.dtype([(f"{np.dtype(of).name}_x4", held)])


F32 = np.dtype(np.float32)
BF16 = np.dtype(ml_dtypes.bfloat16)
F16 = np.dtype(np.float16)
TF32 = np.dtype(np.float32, metadata={"nki": "tfloat32"})

DTYPES: dict[str, Dtype] = {
    "bool_": np.dtype(np.uint8),
    "int8": np.dtype(np.int8),
    "int16": np.dtype(np.int16),
    "int32": np.dtype(np.int32),
    "uint8": np.dtype(np.uint8),
    "uint16": np.dtype(np.uint16),
    "uint32": np.dtype(np.uint32),
    "float16": F16,
    "float32": F32,
    "bfloat16": BF16,
    "tfloat32": TF32,
    "float8_e4m3": np.dtype(ml_dtypes.float8_e4m3),
    "float8_e4m3fn": np.dtype(ml_dtypes.float8_e4m3fn),
    "float8_e5m2": np.dtype(ml_dtypes.float8_e5m2),
    "float8_e8m0fnu": np.dtype(ml_dtypes.float8_e8m0fnu),
    "float8_e5m2_x4": _packed(ml_dtypes.float8_e5m2, 32),
    "float8_e4m3fn_x4": _packed(ml_dtypes.float8_e4m3fn, 32),
    "float4_e2m1fn_x4": _packed(ml_dtypes.float4_e2m1fn, 16),
}
_NAMES = {dtype: name for name, dtype in reversed(DTYPES.items())}
FP8 = frozenset(DTYPES[n] for n in ("float8_e4m3", "float8_e4m3fn", "float8_e5m2"))


def dtype_of(given: Any) -> Dtype:
    """The data type that a kernel names by `nl.float32`, "float32" or a type of numpy.

    Raises:
        NkiError: it names none.
    """
    if isinstance(given, str) and given in DTYPES:
        return DTYPES[given]
    try:
        found: Dtype | None = np.dtype(given)
    except TypeError:
        found = None
    if found == np.bool_:
        return DTYPES["bool_"]
    if found is None or found not in _NAMES:
        raise NkiError(
            f"dtype {given if found is None else found}",
            "is none of NKI",
            f"one of {' '.join(DTYPES)}",
        )
    return found


def name_of(dtype: Dtype) -> str:
    """How NKI calls a data type."""
    return _NAMES.get(dtype, str(dtype))


def is_integer(dtype: Dtype) -> bool:
    """Whether a data type counts."""
    return dtype.kind in "iu"


def is_packed(dtype: Dtype) -> bool:
    """Whether an element holds four values."""
    return dtype.names is not None


def cast(values: np.ndarray[Any, Any], dtype: Dtype) -> np.ndarray[Any, Any]:
    """Values as an engine writes them: fractions round to even, integers saturate."""
    if values.dtype == dtype and dtype.metadata is None:
        return values
    if is_integer(dtype):
        if np.can_cast(values.dtype, dtype):
            return values.astype(dtype)
        limits = np.iinfo(dtype)
        wide = np.rint(values.astype(np.float64)) if values.dtype.kind != "i" else values
        held = np.clip(np.nan_to_num(wide, nan=0.0), limits.min, limits.max)
        return np.asarray(held.astype(dtype))
    if dtype.metadata is not None:  # 10 bits of fraction, rounded to even
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        half, last = np.uint32(0xFFF), (bits >> np.uint32(13)) & np.uint32(1)
        kept = (bits + half + last) & ~np.uint32(0x1FFF)
        return np.where(np.isfinite(values), kept.view(np.float32), values)
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(dtype)
