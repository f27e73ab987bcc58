"""Arrays of other libraries: in by DLPack, out to the caller's own library."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from axe_eq.errors import ArgumentError, AxeError, DispatchError
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.program.types import Array, dtype, has_mask

if TYPE_CHECKING:
    from axe_eq.layout import Layout

# Ordinary, pinned and managed memory: kDLCPU, kDLCUDAHost, kDLROCMHost of the DLPack standard.
_HOST_MEMORY = (1, 3, 11)


class Address(NamedTuple):
    """Memory of several devices, as a kernel on one of them finds it.

    Attributes:
        pointer: address of the first element.
        device: the one whose kernels use it.
    """

    pointer: int
    device: int


def as_numpy(array: Any, name: str) -> Array:
    """The array as numpy, without a copy where its memory is host memory.

    Raises:
        ArgumentError: not an array, or memory that the host cannot read.
    """
    if has_mask(array):
        wrong, wanted = "has masked elements", "an array; filled(number) makes one"
        raise ArgumentError(f"argument {name!r}", wrong, wanted)
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


def in_strides(array: Any, strides: Sequence[int], name: str) -> Any:
    """The array in these element strides, in its own library: itself, or a copy on its device.

    Raises:
        ArgumentError: of a library whose arrays have no strides of the caller's choice.
    """
    shape, package = tuple(array.shape), _chosen(array, name)
    if package == "torch":
        if lies(shape, array.stride(), strides):
            return array
        return array.new_empty_strided(shape, tuple(strides)).copy_(array)
    steps = tuple(step * array.itemsize for step in strides)
    if lies(shape, array.strides, steps):
        return array
    library = sys.modules[package]
    reach = sum((extent - 1) * step for extent, step in zip(shape, strides, strict=True))
    words = library.empty(reach + 1, f"u{array.itemsize}")  # it does not know the 8-bit floats
    made = library.lib.stride_tricks.as_strided(words, shape, steps).view(array.dtype)
    made[...] = array
    return made


def in_memory(array: Any, layout: Layout, name: str) -> Any:
    """A value as the memory that holds it in a layout: one dim of elements, in its own library.

    The array itself where strides say the layout, as calls take it in these then.

    Raises:
        ArgumentError: as `in_strides`.
    """
    from axe_eq.lower.read import element_strides
    from axe_eq.schedule.memory import buffer_elements

    text = str(layout)
    try:
        element_strides(f"argument {name!r}", text, array.shape)
    except DispatchError:
        package, size = _chosen(array, name), buffer_elements(text)
    else:
        return array
    library, places = sys.modules[package], layout.table(DEFAULT_AXIS)
    if package == "torch":
        kind = getattr(library, f"int{8 * array.element_size()}")
        words = array.new_zeros(size).view(kind)
        words[library.as_tensor(places, device=array.device)] = array.reshape(-1).view(kind)
    else:
        words = library.zeros(size, f"u{array.itemsize}")
        words[library.asarray(places)] = array.reshape(-1).view(words.dtype)
    return words.view(array.dtype)


def _chosen(array: Any, name: str) -> str:
    """The library of an array; one whose arrays lie as the caller chooses."""
    package = type(array).__module__.partition(".")[0]
    if package not in ("torch", "numpy", "cupy"):
        wrong = f"is a {type(array).__name__}, whose strides nobody can choose"
        raise ArgumentError(f"argument {name!r}", wrong, "an array of numpy, torch or CuPy")
    return package


def lies(shape: Sequence[int], found: Sequence[int], wanted: Sequence[int]) -> bool:
    """Whether strides are those wanted, where there is more than one element."""
    return all(e == 1 or a == b for e, a, b in zip(shape, found, wanted, strict=True))


class Described(NamedTuple):
    """An array's element type (None where it is not known here, and as it is written) and shape."""

    dtype: str | None
    text: str
    shape: tuple[int, ...]


def described(array: Any, name: str) -> Described:
    """What an array of any library is.

    Raises:
        ArgumentError: not an array.
    """
    if isinstance(array, (np.generic, int, float, bool)):
        array = np.asarray(array)
    try:
        text, shape = str(array.dtype).rpartition(".")[2], tuple(array.shape)
    except AttributeError:
        wrong = f"is a {type(array).__name__}"
        raise ArgumentError(f"argument {name!r}", wrong, "an array") from None
    given = array.dtype if isinstance(array.dtype, np.dtype) else text
    try:
        return Described(dtype(given).name, text, shape)
    except AxeError:
        return Described(None, text, shape)


def like(given: Sequence[Any], result: Array) -> Any:
    """The result in the library of the arrays given, by DLPack where that is not numpy.

    Where that library takes no DLPack, results are numpy's.
    """
    foreign = next(
        (a for a in given if not isinstance(a, np.ndarray) and hasattr(a, "__dlpack__")), None
    )
    take = None if foreign is None else dlpack_of(foreign)
    return result if take is None else take(np.asarray(result, order="C"))


def dlpack_of(array: Any) -> Callable[[Any], Any] | None:
    """What takes DLPack in the library of an array; None where nothing does.

    A library is what its arrays' namespace says, else the package of their type.
    """
    if hasattr(array, "__array_namespace__"):
        library = array.__array_namespace__()
    else:
        library = sys.modules[type(array).__module__.partition(".")[0]]
    return getattr(library, "from_dlpack", None)
