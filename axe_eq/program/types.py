"""Element types and value types.

A value's type prints as ``f16[8192,4096]``; that text is what terms and the e-graph carry, so the
parser here is the only place that gives it a meaning. Element types come from numpy and ml_dtypes;
the latter loads when one of its types is computed with on the host.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from axe_eq.errors import ProgramError, said

Array = npt.NDArray[Any]
ANY: Final = "any"  # a layout that the compiler is to choose


@dataclass(frozen=True)
class DType:
    """One element type: its name, its size, and the dtype it accumulates in.

    kind is "f" (floating), "i" (integer) or "b" (boolean); scalar is what numpy, or ml_dtypes,
    calls it.
    """

    name: str
    scalar: str
    itemsize: int
    accumulate: str
    kind: str

    @cached_property
    def numpy(self) -> np.dtype[Any]:
        """Its numpy dtype."""
        library: Any = np
        if not hasattr(np, self.scalar):
            import ml_dtypes as library
        found: np.dtype[Any] = np.dtype(getattr(library, self.scalar))
        return found

    @property
    def signed(self) -> bool:
        """Whether it has numbers below 0."""
        return self.kind == "f" or self.numpy.kind == "i"


DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        DType("f8e4m3", "float8_e4m3fn", 1, "f32", "f"),
        DType("f8e5m2", "float8_e5m2", 1, "f32", "f"),
        DType("f16", "float16", 2, "f32", "f"),
        DType("bf16", "bfloat16", 2, "f32", "f"),
        DType("f32", "float32", 4, "f32", "f"),
        DType("f64", "float64", 8, "f64", "f"),
        DType("i8", "int8", 1, "i8", "i"),
        DType("u8", "uint8", 1, "u8", "i"),
        DType("i16", "int16", 2, "i16", "i"),
        DType("i32", "int32", 4, "i32", "i"),
        DType("i64", "int64", 8, "i64", "i"),
        DType("bool", "bool_", 1, "bool", "b"),
    )
}
_ALIASES = {
    "float16": "f16", "half": "f16", "fp16": "f16", "bfloat16": "bf16", "float32": "f32",
    "float": "f32", "fp32": "f32", "fp64": "f64",
    "float64": "f64", "double": "f64", "int8": "i8", "uint8": "u8", "int16": "i16",
    "int32": "i32", "int64": "i64", "int": "i64", "pred": "bool",
    "fp8": "f8e4m3", "f8e4m3fn": "f8e4m3", "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2",
}  # fmt: skip
# Wider ones win over narrower ones; of two that do not hold each other's values the next one does.
_RANK = {
    "bool": 0, "i8": 1, "u8": 1, "i16": 2, "i32": 3, "i64": 4, "f8e5m2": 5, "f8e4m3": 5, "f16": 6,
    "bf16": 6, "f32": 7, "f64": 8,
}  # fmt: skip


def dtype(name: object) -> DType:
    """The element type called `name` (a name, an alias, or a numpy dtype).

    Raises:
        ProgramError: no such element type.
    """
    if isinstance(name, DType):
        return name
    found = _called(name) if isinstance(name, str) else _of_numpy(name)
    if found is None:
        raise ProgramError(f"dtype {said(name)}", "is not known", "one of " + " ".join(DTYPES))
    return found


def _called(name: str) -> DType | None:
    return DTYPES.get(_ALIASES.get(name, name))


def _of_numpy(name: object) -> DType | None:
    """The element type that numpy, or a package that adds dtypes to it, calls so."""
    if isinstance(name, tuple | list | dict):  # numpy would read a record, which is none of ours
        return None
    try:
        given = np.dtype(name)  # type: ignore[call-overload]
    except (TypeError, ValueError):
        return None
    found = _called(given.name)
    return found if found is not None and given == found.numpy else None


def held(value: Any, name: str) -> Any:
    """A number as an element type holds it: f16 rounds 2049 to 2048, and -1e9 to -inf.

    Integers and booleans stay as they are: what does not fit them is refused elsewhere.
    """
    if DTYPES[name].kind != "f":
        return value
    with np.errstate(all="ignore"):
        kept = float(np.asarray(value, np.float64).astype(DTYPES[name].numpy))
    return value if kept == value or (kept != kept and value != value) else kept


def bits_of(array: Array) -> Array:
    """Equal exactly where the bits are: NaN is itself, -0.0 is not 0.0."""
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}").reshape(array.shape)


def has_mask(array: object) -> bool:
    """Whether elements of a numpy array are masked: their values are nobody's."""
    return isinstance(array, np.ma.MaskedArray) and bool(np.ma.is_masked(array))


@cache
def promote(*names: str) -> str:
    """The common element type: the widest float, else the widest integer, else bool."""
    if len(names) == 1:
        return names[0]
    best = max(names, key=lambda n: _RANK[n])
    peers = {n for n in names if _RANK[n] == _RANK[best]}
    if len(peers) == 1:
        return best
    return "i16" if DTYPES[best].kind == "i" else "f32"


def same_ring(*names: str) -> bool:
    """Whether sums and products in any of these element types are those of the others.

    All floats are the reals; integers of one width are a ring of their own, since they wrap around:
    what overflows in i32 does not in i64, nor once it is a float.
    """
    return len(set(names)) == 1 or all(DTYPES[name].kind == "f" for name in names)


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

    to_data = __str__

    @staticmethod
    def of_data(text: str) -> ValueType:
        """From its text."""
        return value_type(text)


@cache
def value_type(text: str) -> ValueType:
    """Parse a value type as `ValueType` prints it."""
    name, _, rest = text.partition("[")
    dims = rest.rstrip("]")
    return ValueType(dtype(name).name, tuple(int(d) for d in dims.split(",")) if dims else ())


Dims = list[int]


def matched_dims(old: tuple[int, ...], new: tuple[int, ...]) -> list[tuple[Dims, Dims]]:
    """The finest groups of dims of two shapes of one size that hold as many elements, in order.

    Unit dims that do not face a unit dim are groups without a partner, so that they are dropped or
    inserted, not merged.
    """
    groups: list[tuple[Dims, Dims]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        a, b = old[i : i + 1], new[j : j + 1]
        if a == (1,) and b != (1,):
            groups.append(([i], []))
        elif b == (1,) and a != (1,):
            groups.append(([], [j]))
        else:
            m, n = i + 1, j + 1
            while (left := math.prod(old[i:m])) != (right := math.prod(new[j:n])):
                m, n = (m + 1, n) if left < right else (m, n + 1)
            groups.append((list(range(i, m)), list(range(j, n))))
        i, j = i + len(groups[-1][0]), j + len(groups[-1][1])
    return groups
