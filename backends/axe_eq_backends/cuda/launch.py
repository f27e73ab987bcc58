"""Loading and launching compiled kernels on a device, on the caller's stream."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from axe_eq.errors import ArgumentError, DeviceError
from axe_eq.kernel.expr import evaluate
from axe_eq.program.types import DTYPES, dtype
from axe_eq_backends.cuda.image import Image, MapSpec, TensorSpec

_MAP_BYTES, _MAP_ALIGN = 128, 64
_MAP_DTYPES = {"f16": "FLOAT16", "bf16": "BFLOAT16", "f32": "FLOAT32", "i32": "INT32"}


@cache
def driver() -> Any:
    """The initialised CUDA driver bindings.

    Raises:
        DeviceError: no bindings, no driver, or no device.
    """
    try:
        from cuda.bindings import driver as cu
    except ImportError:
        raise DeviceError(
            "CUDA driver", "package cuda.bindings is not installed", "cuda-bindings",
            hint="pip install cuda-bindings",
        ) from None  # fmt: skip
    try:
        (result,) = cu.cuInit(0)
    except RuntimeError as error:
        raise DeviceError("CUDA driver", f"cannot be loaded ({error})", "an NVIDIA GPU") from None
    if result != cu.CUresult.CUDA_SUCCESS:
        raise DeviceError("CUDA driver", f"finds no device ({result.name})", "an NVIDIA GPU")
    return cu


def call(returned: Any, what: str) -> Any:
    """The values of a driver call.

    Raises:
        DeviceError: the call failed.
    """
    result, *values = returned
    if result != driver().CUresult.CUDA_SUCCESS:
        raise DeviceError(what, f"failed with {result.name}", "success")
    return values[0] if len(values) == 1 else values


@dataclass(frozen=True)
class DeviceArray:
    """An array in device memory: address, element type, extents and strides in elements."""

    pointer: int
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]


def device_array(array: Any) -> DeviceArray:
    """View an array of any library that offers ``data_ptr`` or DLPack.

    Raises:
        ArgumentError: no device array.
    """
    if isinstance(array, DeviceArray):
        return array
    if hasattr(array, "data_ptr"):
        if not array.is_cuda:
            raise ArgumentError("array", f"lies on {array.device}", "a CUDA device")
        name = str(array.dtype).rpartition(".")[2]
        return DeviceArray(array.data_ptr(), dtype(name).name, tuple(array.shape), array.stride())
    if not hasattr(array, "__dlpack__"):
        raise ArgumentError(f"argument of type {type(array).__name__}", "is no array", "DLPack")
    from cuda.core.utils import StridedMemoryView

    view = StridedMemoryView.from_any_interface(array, stream_ptr=-1)
    if not view.is_device_accessible:
        raise ArgumentError("array", "lies in host memory", "a CUDA device")
    strides = view.strides or _row_major(view.shape)
    return DeviceArray(view.ptr, dtype(view.dtype).name, tuple(view.shape), tuple(strides))


def _row_major(shape: Sequence[int]) -> tuple[int, ...]:
    strides: list[int] = []
    size = 1
    for extent in reversed(shape):
        strides.insert(0, size)
        size *= extent
    return tuple(strides)


class Loaded:
    """A kernel on the current device.

    Args:
        image: the compiled kernel.

    Raises:
        DeviceError: no device of the image's architecture, or its code does not load.
    """

    def __init__(self, image: Image) -> None:
        cu = driver()
        _check_capability(image)
        self.image = image
        self._module = call(cu.cuModuleLoadData(image.cubin), f"loading kernel {image.name}")
        entry = image.name.encode()
        self._function = call(cu.cuModuleGetFunction(self._module, entry), f"kernel {image.name}")
        attribute = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        result = cu.cuFuncSetAttribute(self._function, attribute, image.smem_bytes)
        call((*result, None), f"{image.smem_bytes} bytes of shared memory")
        per_unit = cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            self._function, image.n_threads, image.smem_bytes
        )
        self._resident = call(per_unit, f"occupancy of {image.name}") * _n_units()

    def grid(self, params: Mapping[str, int]) -> int:
        """CTAs of a launch."""
        tiles = int(evaluate(self.image.tiles, params))
        return min(tiles, self._resident) if self.image.persistent else tiles

    def bind(self, arrays: Mapping[str, Any], params: Mapping[str, int] | None = None) -> Bound:
        """Prepare a launch on fixed buffers.

        Raises:
            ArgumentError: a missing array, or one whose dtype, shape, strides or address do not
                fit.
        """
        params = params or {}
        self.image.check(params)
        found = {}
        for spec in self.image.tensors:
            if spec.name not in arrays:
                raise ArgumentError(f"kernel {self.image.name}", f"no array {spec.name}", "one")
            found[spec.name] = device_array(arrays[spec.name])
            _check_array(spec, found[spec.name], params)
        values = [_argument(kind, what, found, params) for kind, what in self.image.arguments]
        return Bound(self._function, self.image, self.grid(params), values, tuple(arrays.values()))


class Bound:
    """A prepared launch; it keeps its arrays alive."""

    def __init__(
        self, function: Any, image: Image, grid: int, values: list[bytes], arrays: tuple[Any, ...]
    ) -> None:
        self._launch, self._arrays = driver().cuLaunchKernel, arrays
        self._storage, pointers = [], []
        for value in values:
            raw = ctypes.create_string_buffer(len(value) + _MAP_ALIGN)
            at = -(-ctypes.addressof(raw) // _MAP_ALIGN) * _MAP_ALIGN
            ctypes.memmove(at, value, len(value))
            self._storage.append(raw)
            pointers.append(at)
        self._pointers = (ctypes.c_void_p * len(pointers))(*pointers)
        self._success = driver().CUresult.CUDA_SUCCESS
        self._name, self._function = image.name, function
        self._shape = (grid, 1, 1, image.n_threads, 1, 1, image.smem_bytes)
        self._at = ctypes.addressof(self._pointers)

    def launch(self, stream: int = 0) -> None:
        """Enqueue on a stream, given by its handle.

        Raises:
            DeviceError: the driver refused.
        """
        if not self._shape[0]:
            return
        (result,) = self._launch(self._function, *self._shape, stream, self._at, 0)
        if result != self._success:
            raise DeviceError(f"launch of {self._name}", f"failed with {result.name}", "success")


def _argument(
    kind: str, what: str | MapSpec, arrays: Mapping[str, DeviceArray], params: Mapping[str, int]
) -> bytes:
    """One kernel parameter as bytes."""
    if isinstance(what, MapSpec):
        return encode_map(what, arrays[what.tensor], params)
    if kind == "int":
        return int(params[what]).to_bytes(4, "little", signed=True)
    return arrays[what].pointer.to_bytes(8, "little")


def _check_array(spec: TensorSpec, array: DeviceArray, params: Mapping[str, int]) -> None:
    thing = f"array {spec.name}"
    shape = tuple(int(evaluate(e, params)) for e in spec.shape)
    if array.dtype != spec.dtype:
        raise ArgumentError(thing, f"has dtype {array.dtype}", spec.dtype)
    if array.shape != shape:
        raise ArgumentError(thing, f"has shape {array.shape}", f"{shape}")
    if spec.strides is not None:
        strides = tuple(int(evaluate(s, params)) for s in spec.strides)
        pairs = zip(shape, strides, array.strides, strict=True)
        if any(extent > 1 and wanted != given for extent, wanted, given in pairs):
            raise ArgumentError(thing, f"has strides {array.strides}", f"{strides}")
    if array.pointer % spec.align:
        raise ArgumentError(
            thing, f"begins at address {array.pointer:#x}", f"a multiple of {spec.align} bytes"
        )


def encode_map(spec: MapSpec, array: DeviceArray, params: Mapping[str, int]) -> bytes:
    """Encode a tensor map for an array (CUDA driver API, cuTensorMapEncodeTiled).

    Raises:
        DeviceError: the driver refused the map.
    """
    cu = driver()
    u64, u32, size = cu.cuuint64_t, cu.cuuint32_t, DTYPES[array.dtype].itemsize
    shape = [u64(int(evaluate(e, params))) for e in spec.shape]
    strides = [u64(int(evaluate(s, params)) * size) for s in spec.strides[1:]]
    kind = getattr(cu.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_MAP_DTYPES[array.dtype]}")
    swizzle = f"{spec.swizzle_bytes}B" if spec.swizzle_bytes else "NONE"
    encoded = cu.cuTensorMapEncodeTiled(
        kind, len(shape), array.pointer, shape, strides, [u32(b) for b in spec.box],
        [u32(1)] * len(shape), cu.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(cu.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{swizzle}"),
        cu.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        cu.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )  # fmt: skip
    found = call(encoded, f"tensor map of {spec.tensor}")
    return ctypes.string_at(int(found.getPtr()), _MAP_BYTES)


def _device() -> int:
    """The current device; the primary context of device 0 where the caller has none."""
    cu = driver()
    context = call(cu.cuCtxGetCurrent(), "the current context")
    if not int(context):
        device = call(cu.cuDeviceGet(0), "device 0")
        context = call(cu.cuDevicePrimaryCtxRetain(device), "the primary context of device 0")
        call((*cu.cuCtxSetCurrent(context), None), "the primary context of device 0")
    return int(call(cu.cuCtxGetDevice(), "the current device"))


def use_device() -> int:
    """Make sure a device is current; its compute capability times ten.

    Raises:
        DeviceError: there is none.
    """
    device = _device()
    return 10 * _attribute(device, "COMPUTE_CAPABILITY_MAJOR") + _attribute(
        device, "COMPUTE_CAPABILITY_MINOR"
    )


@lru_cache(maxsize=64)
def _attribute(device: int, name: str) -> int:
    cu = driver()
    which = getattr(cu.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    return int(call(cu.cuDeviceGetAttribute(which, device), f"attribute {name}"))


def _n_units() -> int:
    return _attribute(_device(), "MULTIPROCESSOR_COUNT")


def _check_capability(image: Image) -> None:
    if (found := use_device()) != image.compute_capability:
        raise DeviceError(
            f"device {_device()}", f"has compute capability {found / 10}",
            f"{image.compute_capability / 10}, which kernel {image.name} was compiled for",
        )  # fmt: skip
