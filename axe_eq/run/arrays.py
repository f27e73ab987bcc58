"""Arrays of other libraries: in by DLPack, out to the caller's own library."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np

from axe_eq.errors import ArgumentError, AxeError
from axe_eq.program.types import Array, dtype

# Ordinary, pinned and managed memory: kDLCPU, kDLCUDAHost, kDLROCMHost of the DLPack standard.
_HOST_MEMORY = (1, 3, 11)


def as_numpy(array: Any, name: str) -> Array:
    """The array as numpy, without a copy where its memory is host memory.

    Raises:
        ArgumentError: not an array, or memory that the host cannot read.
    """
    if isinstance(array, np.ndarray):
        return array
    if isinstance(array, (int, float, bool, np.generic)):
        return np.asarray(array)
    if hasattr(array, "__dlpack__"):
        try:
            return np.from_dlpack(array)
        except (BufferError, RuntimeError, TypeError, ValueError) as error:
            raise ArgumentError(
                f"argument {name!r}",
                f"cannot be read by the host ({error})",
                "an array in host memory",
            ) from None
    raise ArgumentError(f"argument {name!r}", f"is a {type(array).__name__}", "an array")


def on_device(array: Any) -> bool:
    """Whether an array says that its memory is a device's own (DLPack device types)."""
    where = getattr(array, "__dlpack_device__", None)
    return where is not None and int(where()[0]) not in _HOST_MEMORY


def stand_in(array: Any, name: str) -> Array:
    """A numpy array of the same dtype and shape that holds no memory, for checks of arguments.

    Raises:
        ArgumentError: not an array of a known dtype.
    """
    if isinstance(array, (np.ndarray, np.generic, int, float, bool)):
        return np.asarray(array)
    try:
        held = dtype(str(array.dtype).rpartition(".")[2]).numpy
        return np.broadcast_to(np.empty((), held), tuple(array.shape))
    except (AttributeError, AxeError):
        known = "an array of a known dtype"
        raise ArgumentError(f"argument {name!r}", f"is {type(array).__name__}", known) from None


def like(given: Sequence[Any], result: Array) -> Any:
    """The result in the library of the arrays given, by DLPack where that is not numpy.

    A library is what its arrays' namespace says, else the package of their type; where that takes
    no DLPack, results are numpy's.
    """
    foreign = next(
        (a for a in given if not isinstance(a, np.ndarray) and hasattr(a, "__dlpack__")), None
    )
    if foreign is None:
        return result
    if hasattr(foreign, "__array_namespace__"):
        library = foreign.__array_namespace__()
    else:
        library = sys.modules[type(foreign).__module__.partition(".")[0]]
    take = getattr(library, "from_dlpack", None)
    return result if take is None else take(np.ascontiguousarray(result))
