"""Compiled kernels on a device: loaded, bound to buffers, launched."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from axe_eq.errors import ArgumentError, DeviceError
from axe_eq.kernel.expr import evaluate
from axe_eq.program.types import DTYPES
from axe_eq_backends.cuda.arrays import DeviceArray, device_array
from axe_eq_backends.cuda.driver import (
    attribute,
    call,
    capability,
    default_device,
    driver,
    follow_early,
    launch_config,
    on,
    set_cluster,
    uncaptured,
    version,
)
from axe_eq_backends.cuda.image import Image, MapSpec, TensorSpec
from axe_eq_backends.cuda.sizes import begins_early, begins_late

_MAP_BYTES, _SLOT = 128, 64  # a parameter begins at a multiple of what tensor maps need
_MAP_DTYPES = {
    "f16": "FLOAT16", "bf16": "BFLOAT16", "f32": "FLOAT32", "f64": "FLOAT64", "i32": "INT32",
    "i64": "INT64", "i8": "UINT8", "u8": "UINT8", "i16": "UINT16", "f8e4m3": "UINT8",
    "f8e5m2": "UINT8", "bool": "UINT8",
}  # fmt: skip


Write = Callable[[int], None]  # writes an address to a parameter


class Loaded:
    """A kernel on a device.

    Args:
        image: the compiled kernel.
        device: where; the current device by default, else the first.

    Attributes:
        fills_units: whether a unit of the device holds one of its CTAs at most.

    Raises:
        DeviceError: no device of the image's architecture, a driver that is too old for the
            image, or code that does not load.
    """

    def __init__(self, image: Image, device: int | None = None) -> None:
        cu = driver()
        self.image, self.device = image, default_device() if device is None else device
        _check_fits(image, self.device)
        with on(self.device), uncaptured():
            what = f"loading kernel {image.name}"
            self._module = call(cu.cuModuleLoadData(image.cubin), what)
            self.function = call(cu.cuModuleGetFunction(self._module, image.name.encode()), what)
            limit = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            result = cu.cuFuncSetAttribute(self.function, limit, image.smem_bytes)
            call((*result, None), f"{image.smem_bytes} bytes of shared memory")
            self._resident = self._most_resident()
            units = attribute(self.device, "MULTIPROCESSOR_COUNT")
            self.fills_units = self._resident * image.cluster <= units

    def _most_resident(self) -> int:
        """Clusters that the device holds at once; CTAs where a cluster is one CTA."""
        cu, image, what = driver(), self.image, f"occupancy of {self.image.name}"
        if image.cluster > 1:
            shape = (image.cluster, 1, 1, image.n_threads, 1, 1, image.smem_bytes)
            config = launch_config(shape, image.cluster, early=False)
            found = int(call(cu.cuOccupancyMaxActiveClusters(self.function, config), what))
            if not found:
                wrong = f"does not hold one cluster of {image.cluster} CTAs of {image.name}"
                raise DeviceError(f"device {self.device}", wrong, "smaller clusters or CTAs")
            return found
        per_unit = cu.cuOccupancyMaxActiveBlocksPerMultiprocessor(
            self.function, image.n_threads, image.smem_bytes
        )
        if not (held := int(call(per_unit, what))):  # a grid of none would run nothing
            wrong = f"holds no CTA of {image.name}: {image.n_threads} threads, {image.smem_bytes} B"
            raise DeviceError(f"device {self.device}", wrong, "smaller CTAs")
        return held * attribute(self.device, "MULTIPROCESSOR_COUNT")

    def grid(self, params: Mapping[str, int]) -> int:
        """CTAs of a launch."""
        tiles = int(evaluate(self.image.tiles, params))
        clusters = min(tiles, self._resident) if self.image.persistent else tiles
        return clusters * self.image.cluster

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
        pointers = {name: array.pointer for name, array in found.items()}
        return Shaped(self, params).bind(pointers, tuple(arrays.values()))


@dataclass(frozen=True)
class _Slot:
    """One kernel parameter: its offset, and its constant bytes or the tensor it points to."""

    offset: int
    tensor: str = ""
    map: _Map | None = None
    value: bytes = b""


@dataclass(frozen=True)
class _Map:
    """A tensor map of known extents, fastest first, and byte strides of all dims but that.

    Its first element lies `offset` bytes after the tensor's.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle_bytes: int
    offset: int


class Shaped:
    """A loaded kernel with its run-time integers: what is left to give are addresses."""

    def __init__(self, loaded: Loaded, params: Mapping[str, int]) -> None:
        self.loaded, self.grid = loaded, loaded.grid(params)
        dtypes = {t.name: t.dtype for t in loaded.image.tensors}
        self.slots: list[_Slot] = []
        size = 0
        for kind, what in loaded.image.arguments:
            if isinstance(what, MapSpec):
                slot = _Slot(size, what.tensor, _numbers(what, dtypes[what.tensor], params))
            elif kind == "int":
                slot = _Slot(size, value=int(params[what]).to_bytes(4, "little", signed=True))
            else:
                slot = _Slot(size, what)
            self.slots.append(slot)
            size += _MAP_BYTES if slot.map else _SLOT
        self.size = size
        self._written: bytes | None = None  # the parameters of some binding

    def bind(self, pointers: Mapping[str, int], keep: tuple[Any, ...] = ()) -> Bound:
        """Prepare a launch on buffers at these addresses.

        Args:
            pointers: address of every tensor.
            keep: what must live as long as the launch.
        """
        raw = ctypes.create_string_buffer(self.size + _SLOT)
        start = -(-ctypes.addressof(raw) // _SLOT) * _SLOT
        if self._written is None:
            for slot in self.slots:
                data = _first(slot, pointers)
                ctypes.memmove(start + slot.offset, data, len(data))
            self._written = ctypes.string_at(start, self.size)
        else:
            ctypes.memmove(start, self._written, self.size)
            for tensor, writes in self.writes(start).items():
                for write in writes:
                    write(pointers[tensor])
        return Bound(self, raw, start, keep)

    def writes(self, start: int) -> dict[str, list[Write]]:
        """Per tensor, what writes its address to the parameters of some binding.

        Args:
            start: where those lie; they must live as long as this is used.
        """
        found: dict[str, list[Write]] = {}
        for slot in self.slots:
            if slot.tensor:
                found.setdefault(slot.tensor, []).append(_writing(slot, start + slot.offset))
        return found


def _first(slot: _Slot, pointers: Mapping[str, int]) -> bytes:
    """The bytes of a parameter."""
    if slot.map is not None:
        return _encode(slot.map, pointers[slot.tensor] + slot.map.offset, slot.tensor)
    return pointers[slot.tensor].to_bytes(8, "little") if slot.tensor else slot.value


def _writing(slot: _Slot, at: int) -> Write:
    """What writes an address to a parameter; a map that was encoded before only gets its address.

    Raises, when called:
        DeviceError: the driver refused the address.
    """
    if slot.map is None:
        return partial(setattr, ctypes.c_uint64.from_address(at), "value")
    cu, offset = driver(), slot.map.offset
    replace, held, success = cu.cuTensorMapReplaceAddress, cu.CUtensorMap(at), _success()

    def write(address: int) -> None:
        (result,) = replace(held, address + offset)
        if result != success:
            call((result, None), f"tensor map of {slot.tensor}")

    return write


class Bound:
    """A prepared launch; it keeps its arrays alive.

    Args:
        shaped: the kernel.
        storage: what holds its parameters.
        start: address of the first.
        keep: what must live as long as the launch.

    Attributes:
        is_empty: whether there is nothing to launch.
    """

    def __init__(self, shaped: Shaped, storage: Any, start: int, keep: tuple[Any, ...]) -> None:
        cu, image, device = driver(), shaped.loaded.image, shaped.loaded.device
        self._storage, self._start, self._keep = storage, start, keep
        self._shaped, self._loaded = shaped, shaped.loaded
        addresses = [start + slot.offset for slot in shaped.slots]
        self._pointers = (ctypes.c_void_p * len(addresses))(*addresses)
        self._at = ctypes.addressof(self._pointers)
        self._function, self._success = shaped.loaded.function, _success()
        self._shape = (shaped.grid, 1, 1, image.n_threads, 1, 1, image.smem_bytes)
        self.is_empty = not shaped.grid
        units = attribute(device, "MULTIPROCESSOR_COUNT")
        few = shaped.loaded.fills_units and not begins_early(shaped.grid, units)
        self._is_early = not few and not begins_late(shaped.grid)
        self._config: tuple[int, Any] = -1, None  # of the last stream
        self._params: Any = None  # of a graph's node
        self._launch = cu.cuLaunchKernelEx

    def writes(self) -> dict[str, list[Write]]:
        """Per tensor, what writes its address for later launches; those so far have read theirs."""
        return self._shaped.writes(self._start)

    def launch(self, stream: int = 0) -> None:
        """Enqueue on a stream, given by its handle.

        Raises:
            DeviceError: the driver refused.
        """
        if self.is_empty:
            return
        known, config = self._config
        if known != stream:
            config = launch_config(self._shape, self._loaded.image.cluster, stream, self._is_early)
            self._config = stream, config
        (result,) = self._launch(config, self._function, self._at, 0)
        if result != self._success:
            self._launch_there(config)

    def _launch_there(self, config: Any) -> None:
        """Launch once more with the kernel's device current: it may be another one in a thread."""
        with on(self._loaded.device):
            result = self._launch(config, self._function, self._at, 0)
        call((*result, None), f"launch of {self._loaded.image.name}")

    def add_to(self, graph: Any, before: Sequence[Any]) -> Any:
        """Add the launch to a CUDA graph, after the nodes `before`; the new node."""
        self._params = self._params or self._node()
        full = [] if self._is_early else list(before)
        added = driver().cuGraphAddKernelNode(graph, full, len(full), self._params)
        what, cluster = f"kernel {self._loaded.image.name} in a graph", self._loaded.image.cluster
        node = call(added, what)
        if cluster > 1:
            set_cluster(node, cluster, what)
        if self._is_early:
            follow_early(graph, before, node, what)
        return node

    def update(self, executable: Any, node: Any) -> None:
        """Give a node that `add_to` made the parameters as they are now.

        Args:
            executable: what the node's graph was made into; its launches so far have read theirs.
            node: the node.
        """
        (result,) = driver().cuGraphExecKernelNodeSetParams(executable, node, self._params)
        if result != self._success:
            call((result, None), f"kernel {self._loaded.image.name} in a graph")

    def _node(self) -> Any:
        """The launch as a graph's node is told it."""
        params = driver().CUDA_KERNEL_NODE_PARAMS()
        params.func, params.kernelParams = self._function, self._at
        params.gridDimX, params.gridDimY, params.gridDimZ = self._shape[:3]
        params.blockDimX, params.blockDimY, params.blockDimZ = self._shape[3:6]
        params.sharedMemBytes = self._shape[6]
        return params


def _success() -> Any:
    return driver().CUresult.CUDA_SUCCESS


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


def _numbers(spec: MapSpec, dtype: str, params: Mapping[str, int]) -> _Map:
    size = DTYPES[dtype].itemsize
    shape = tuple(int(evaluate(e, params)) for e in spec.shape)
    steps = tuple(int(evaluate(s, params)) * size for s in spec.strides[1:])
    offset = int(evaluate(spec.offset, params)) * size
    return _Map(dtype, shape, steps, spec.box, spec.swizzle_bytes, offset)


def _encode(spec: _Map, pointer: int, tensor: str) -> bytes:
    """Encode a tensor map (CUDA driver API, cuTensorMapEncodeTiled).

    Raises:
        DeviceError: the driver refused the map.
    """
    cu = driver()
    u64, u32 = cu.cuuint64_t, cu.cuuint32_t
    kind = getattr(cu.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{_MAP_DTYPES[spec.dtype]}")
    swizzle = f"{spec.swizzle_bytes}B" if spec.swizzle_bytes else "NONE"
    encoded = cu.cuTensorMapEncodeTiled(
        kind, len(spec.shape), pointer, [u64(e) for e in spec.shape],
        [u64(s) for s in spec.strides], [u32(b) for b in spec.box],
        [u32(1)] * len(spec.shape), cu.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(cu.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{swizzle}"),
        cu.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        cu.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )  # fmt: skip
    found = call(encoded, f"tensor map of {tensor}")
    return ctypes.string_at(int(found.getPtr()), _MAP_BYTES)


def _check_fits(image: Image, device: int) -> None:
    """Whether a device and its driver can run an image."""
    if (found := capability(device)) != image.compute_capability:
        raise DeviceError(
            f"device {device}", f"has compute capability {found / 10}",
            f"{image.compute_capability / 10}, which kernel {image.name} was compiled for",
        )  # fmt: skip
    served, made = version(), int(image.toolkit.partition(".")[0])
    if served[0] < made:
        raise DeviceError(
            "CUDA driver", f"serves CUDA {served[0]}.{served[1]}",
            f"CUDA {made} or newer, as kernel {image.name} was compiled by NVRTC {image.toolkit}",
            hint=f"a newer driver, or compile with NVRTC {served[0]}",
        )  # fmt: skip
