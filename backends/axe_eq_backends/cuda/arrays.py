"""Arrays of other libraries on the device: read where they lie, made where results go.

torch and CuPy say which stream they work on; kernels are launched there and nothing waits. Any
other library is met through DLPack on the default stream: it is asked to order its work before
ours, and gets results that are finished.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from axe_eq.errors import ArgumentError, AxeError, DeviceError
from axe_eq.program.types import DTYPES, Array, dtype
from axe_eq.run.arrays import Address, dlpack_of, on_device
from axe_eq_backends.cuda.code import Port
from axe_eq_backends.cuda.driver import Memory, call, download, driver, on, upload

# The legacy default stream: 0 to the driver, 1 in DLPack and the array API standard.
DEFAULT_STREAM, DLPACK_DEFAULT_STREAM = 0, 1


@dataclass(frozen=True)
class DeviceArray:
    """An array in device memory: address, element type, extents and strides in elements."""

    pointer: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    device: int = 0


class Library(Protocol):
    """A library whose arrays lie on one device.

    Attributes:
        device: the device.
        stream: gives the handle of the stream it works on now.
    """

    device: int
    stream: Callable[[], int]

    def read(self, array: Any) -> DeviceArray:
        """Where an array lies; what comes before on its library's streams is ordered before us."""

    def make(self, port: Port) -> Any:
        """A new array for an output."""

    def finish(self) -> None:
        """After launches: whoever uses the library now sees their results."""

    def handed(self, array: Any) -> Any:
        """An array that `make` made, as the caller gets it."""


class _Ordered:
    """A library that says which stream it works on: launches there are in its order."""

    def finish(self) -> None:
        """Nothing: whoever uses the results is on the same stream."""

    def handed(self, array: Any) -> Any:
        """The array itself."""
        return array


def library_of(array: Any) -> Library:
    """The library of an array that lies on a device.

    Raises:
        ArgumentError: no array of a device.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, Address):
        return Torch(torch, array.device)
    if torch is not None and isinstance(array, torch.Tensor):
        return Torch(torch, int(array.get_device()))
    root = type(array).__module__.partition(".")[0]
    if root == "cupy":
        return Cupy(sys.modules[root], int(array.device.id))
    return Dlpack(int(array.__dlpack_device__()[1]), dlpack_of(array))


def device_array(array: Any) -> DeviceArray:
    """Where an array of any library lies.

    Raises:
        ArgumentError: no device array.
    """
    if isinstance(array, DeviceArray):
        return array
    if not hasattr(array, "__dlpack_device__"):
        raise ArgumentError(f"argument of type {type(array).__name__}", "is no array", "DLPack")
    if not on_device(array):
        raise ArgumentError("array", "lies in host memory", "a CUDA device")
    return library_of(array).read(array)


class Torch(_Ordered):
    """PyTorch on one device."""

    def __init__(self, torch: Any, device: int) -> None:
        self.torch, self.device = torch, device
        raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)
        # The public way makes a Stream object, which costs more than a launch.
        self.stream: Callable[[], int] = (
            (lambda: int(torch.cuda.current_stream(device).cuda_stream))
            if raw is None
            else lambda: raw(device)
        )

    def read(self, array: Any) -> DeviceArray:
        """Where a tensor lies."""
        name = _dtype_name(array.dtype)
        return DeviceArray(
            array.data_ptr(), name, tuple(array.shape), array.stride(), array.get_device()
        )

    def element(self, name: str) -> Any:
        """The torch dtype of an element type."""
        return getattr(self.torch, DTYPES[name].scalar.rstrip("_"))

    def make(self, port: Port) -> Any:
        """A new tensor for an output."""
        return self.maker(port)()

    def maker(self, port: Port) -> Callable[[], Any]:
        """`make` for one output, over and over."""
        return partial(
            self.torch.empty_strided,
            port.shape,
            port.strides,
            dtype=self.element(port.dtype),
            device=self.torch.device("cuda", self.device),
        )


class Cupy(_Ordered):
    """CuPy on one device."""

    def __init__(self, cupy: Any, device: int) -> None:
        self.cupy, self.device = cupy, device
        self.stream: Callable[[], int] = lambda: int(cupy.cuda.get_current_stream().ptr)

    def read(self, array: Any) -> DeviceArray:
        """Where an array lies."""
        strides = tuple(s // array.dtype.itemsize for s in array.strides)
        name = _dtype_name(array.dtype)
        return DeviceArray(array.data.ptr, name, array.shape, strides, array.device.id)

    def make(self, port: Port) -> Any:
        """A new array for an output."""
        element = DTYPES[port.dtype].numpy
        with self.cupy.cuda.Device(self.device):
            memory = self.cupy.cuda.alloc(port.n_bytes)
        steps = tuple(s * element.itemsize for s in port.strides)
        return self.cupy.ndarray(port.shape, element, memptr=memory, strides=steps)


class Dlpack:
    """Any library that speaks DLPack, on one device.

    Args:
        device: the device.
        take: its `from_dlpack`; None where it has none.
        stream: the stream to order its arrays before; the default stream where nothing is said.
    """

    def __init__(
        self,
        device: int,
        take: Callable[[Any], Any] | None = None,
        stream: Callable[[], int] = lambda: DEFAULT_STREAM,
    ) -> None:
        self.take, self.device, self.stream = take, device, stream

    def read(self, array: Any) -> DeviceArray:
        """Where an array lies; its library orders its work on it before our stream."""
        stream = self.stream() or DLPACK_DEFAULT_STREAM
        view = _core().StridedMemoryView.from_dlpack(array, stream_ptr=stream)
        shape = tuple(view.shape)
        strides = tuple(view.strides) if view.strides is not None else row_major(shape)
        return DeviceArray(view.ptr, _dtype_name(view.dtype), shape, strides, view.device_id)

    def make(self, port: Port) -> Any:
        """Memory for an output, viewed as an array that any library can take."""
        with on(self.device):
            return _viewed(Memory(port.n_bytes), port)

    def finish(self) -> None:
        """Wait for the launches: the library has no stream of which we know."""
        call((*driver().cuStreamSynchronize(self.stream()), None), "the launched kernels")

    def handed(self, array: Any) -> Any:
        """An array of the library where it takes DLPack."""
        return array if self.take is None else self.take(array)


def to_device(array: Array, device: int = 0) -> Any:
    """A copy of a host array on a device, as an array that any library can take by DLPack.

    Raises:
        DeviceError: there is no such device, or cuda.core is not installed.
    """
    host = np.asarray(array, order="C")  # 0-d stays so
    shape, name = host.shape, dtype(host.dtype).name
    with on(device):
        memory = Memory(host.nbytes)
        upload(memory.pointer, host, "a host array")
        return _viewed(memory, Port("array", name, shape, row_major(shape), host.nbytes, 1))


def to_host(array: Any) -> Array:
    """A copy of a dense device array of any library on the host.

    Raises:
        ArgumentError: no dense array of a device.
    """
    held = device_array(array)
    if held.strides != row_major(held.shape):
        raise ArgumentError("array", f"has strides {held.strides}", f"{row_major(held.shape)}")
    host = np.empty(held.shape, DTYPES[held.dtype].numpy)
    with on(held.device):
        download(host, held.pointer, "a device array")
    return host


def flat(port: Port, array: Array) -> Array:
    """A buffer's memory with a host array in it."""
    element = DTYPES[port.dtype].numpy
    shape_of = port.value if port.lies else port.shape
    if array.dtype != element or array.shape != shape_of:
        shape = ",".join(map(str, array.shape))
        wanted = f"{port.dtype}[{','.join(map(str, shape_of))}]"
        raise ArgumentError(f"argument {port.name!r}", f"is {array.dtype}[{shape}]", wanted)
    host = np.zeros(port.n_bytes // element.itemsize, element)
    if port.lies:
        host[_places(port)] = array
    else:
        _view(host, port)[...] = array
    return host


def memory_of(port: Port, array: Array) -> Array:
    """A buffer's memory with a host array in it, all of which it holds.

    Raises:
        ArgumentError: another type or shape, or different elements that lie at one address.
    """
    from axe_eq.schedule.contents import not_held, same

    host = flat(port, array)
    dense = not port.lies and port.strides == row_major(port.shape)
    if not dense and not same(_value(host, port), array):
        lies = f"its layout {port.lies}" if port.lies else f"strides {port.strides}"
        raise not_held(port.name, lies)
    return host


def _value(host: Array, port: Port) -> Array:
    return host[_places(port)] if port.lies else _view(host, port)


def _places(port: Port) -> Array:
    """The element of every index of a value that no strides describe."""
    from axe_eq.layout import Layout

    return Layout.parse(port.lies).table("m").reshape(port.value)


def fetched(port: Port, pointer: int) -> Array:
    """What a buffer holds, as a dense host array."""
    element = DTYPES[port.dtype].numpy
    host = np.empty(port.n_bytes // element.itemsize, element)
    download(host, pointer, f"output {port.name!r}")
    return np.asarray(_value(host, port), order="C")  # 0-d stays so


def _view(host: Array, port: Port) -> Array:
    steps = tuple(s * host.itemsize for s in port.strides)
    # Unlike as_strided this knows the 8-bit floats, and checks the bounds.
    return np.ndarray(port.shape, host.dtype, host, 0, steps)


def _viewed(memory: Memory, port: Port) -> Any:
    """Memory as an array of `cuda.core`, which keeps it alive."""
    core = _core()
    from cuda.core import Buffer

    buffer = Buffer.from_handle(memory.pointer, port.n_bytes, owner=memory)
    element = DTYPES[port.dtype].numpy
    return core.StridedMemoryView.from_buffer(buffer, port.shape, port.strides, dtype=element)


def _core() -> Any:
    try:
        from cuda.core import utils
    except ImportError:
        raise DeviceError(
            "arrays through DLPack", "package cuda.core is not installed", "cuda-python",
            hint="pip install cuda-python; arrays of torch and CuPy need no cuda.core",
        ) from None  # fmt: skip
    return utils


def _dtype_name(given: Any) -> str:
    """Our name of another library's element type."""
    text = str(given).rpartition(".")[2]
    try:
        return dtype(text).name
    except AxeError:
        return text


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """Strides in elements of a dense row-major array."""
    strides: list[int] = []
    size = 1
    for extent in reversed(shape):
        strides.insert(0, size)
        size *= extent
    return tuple(strides)
