"""The CUDA driver: its bindings, errors, contexts and memory."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache, lru_cache
from typing import Any

from axe_eq.errors import DeviceError

# What works on a machine without the device.
_WITHOUT = (
    "exe.schedule.run(...) on the CPU, exe.interpret(...) of the emitted kernels at small extents, "
    'exe.source, or compile with target="cpu"; all of these need the whole of axe_eq'
)


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
            "CUDA driver", "package cuda.bindings is not installed", "cuda-python",
            hint=f"pip install cuda-python; where there is no GPU, {_WITHOUT}",
        ) from None  # fmt: skip
    try:
        (result,) = cu.cuInit(0)
    except RuntimeError as error:
        reason = str(error).partition(". ")[0]
        wrong = f"cannot be loaded ({reason})"
        raise DeviceError("CUDA driver", wrong, "an NVIDIA GPU", hint=_WITHOUT) from None
    if result != cu.CUresult.CUDA_SUCCESS:
        wrong = f"finds no device ({result.name})"
        raise DeviceError("CUDA driver", wrong, "an NVIDIA GPU", hint=_WITHOUT)
    return cu


def call(returned: Any, what: str) -> Any:
    """The values of a driver call.

    Raises:
        DeviceError: the call failed.
    """
    if returned[0] != driver().CUresult.CUDA_SUCCESS:
        raise DeviceError(what, f"failed with {returned[0].name}", "success")
    return returned[1] if len(returned) == 2 else list(returned[1:])


# -- devices and contexts --


def current_device() -> int | None:
    """The device whose context is current in this thread."""
    cu = driver()
    if not int(call(cu.cuCtxGetCurrent(), "the current context")):
        return None
    return int(call(cu.cuCtxGetDevice(), "the current device"))


@lru_cache(maxsize=64)
def _primary(device: int) -> int:
    """The primary context of a device, which libraries share; held from then on."""
    cu = driver()
    n_devices = call(cu.cuDeviceGetCount(), "the number of devices")
    if device >= n_devices:
        raise DeviceError(f"device {device}", f"is not one of {n_devices}", "a device")
    found = call(cu.cuDeviceGet(device), f"device {device}")
    return int(call(cu.cuDevicePrimaryCtxRetain(found), f"the primary context of device {device}"))


class on:
    """Make a device current in this thread; a thread without a context keeps its primary one.

    Raises:
        DeviceError: there is no such device.
    """

    def __init__(self, device: int) -> None:
        self._device, self._is_pushed = device, False

    def __enter__(self) -> None:
        cu, primary = driver(), _primary(self._device)
        result, context = cu.cuCtxGetCurrent()
        if int(context or 0) == primary:
            return
        if not int(call((result, context), "the current context")):
            call((*cu.cuCtxSetCurrent(primary), None), f"device {self._device}")
        elif current_device() != self._device:
            call((*cu.cuCtxPushCurrent(primary), None), f"device {self._device}")
            self._is_pushed = True

    def __exit__(self, *error: object) -> None:
        if self._is_pushed:
            driver().cuCtxPopCurrent()


def default_device() -> int:
    """The device for arrays that lie on none: the current one, else the first."""
    return current_device() or 0


@lru_cache(maxsize=64)
def attribute(device: int, name: str) -> int:
    """A device attribute by the driver's name."""
    cu = driver()
    which = getattr(cu.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    handle = call(cu.cuDeviceGet(device), f"device {device}")
    return int(call(cu.cuDeviceGetAttribute(which, handle), f"attribute {name}"))


def device_name(device: int) -> str:
    """A device's name, such as "NVIDIA H200"."""
    cu = driver()
    handle = call(cu.cuDeviceGet(device), f"device {device}")
    name: bytes = call(cu.cuDeviceGetName(100, handle), f"name of device {device}")
    return name.partition(b"\0")[0].decode()


def capability(device: int) -> int:
    """Compute capability of a device times ten."""
    major = attribute(device, "COMPUTE_CAPABILITY_MAJOR")
    return 10 * major + attribute(device, "COMPUTE_CAPABILITY_MINOR")


@cache
def version() -> tuple[int, int]:
    """The CUDA version that the driver serves."""
    number = int(call(driver().cuDriverGetVersion(), "the driver's version"))
    return number // 1000, number % 1000 // 10


# -- launches --


def launch_config(shape: Sequence[int], cluster: int, stream: int = 0, early: bool = True) -> Any:
    """What a launch is like.

    Args:
        shape: CTAs, then threads of a CTA, along x, y, z; bytes of shared memory.
        cluster: CTAs of one cluster; they divide those along x.
        stream: its handle.
        early: CTAs may start before the kernel before has ended, as kernels do that wait for it
            themselves (CUDA programming guide, programmatic dependent launch).
    """
    cu, config = driver(), driver().CUlaunchConfig()
    config.gridDimX, config.gridDimY, config.gridDimZ = shape[:3]
    config.blockDimX, config.blockDimY, config.blockDimZ = shape[3:6]
    config.sharedMemBytes, config.hStream = shape[6], stream
    kinds, attributes = cu.CUlaunchAttributeID, []
    if cluster > 1:
        attributes.append(cu.CUlaunchAttribute())
        attributes[-1].id = kinds.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        attributes[-1].value = _cluster_value(cu.CUlaunchAttributeValue(), cluster)
    if early:
        value = cu.CUlaunchAttributeValue()
        value.programmaticStreamSerializationAllowed = 1
        attributes.append(cu.CUlaunchAttribute())
        attributes[-1].id = kinds.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        attributes[-1].value = value
    config.attrs, config.numAttrs = attributes, len(attributes)
    return config


def _cluster_value(value: Any, cluster: int) -> Any:
    value.clusterDim.x, value.clusterDim.y, value.clusterDim.z = cluster, 1, 1
    return value


def set_cluster(node: Any, cluster: int, what: str) -> None:
    """Let a kernel node of a graph launch in clusters."""
    cu = driver()
    which = cu.CUkernelNodeAttrID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
    value = _cluster_value(cu.CUkernelNodeAttrValue(), cluster)
    result = cu.cuGraphKernelNodeSetAttribute(node, which, value)
    call((*result, None), what)


def follow_early(graph: Any, before: Sequence[Any], node: Any, what: str) -> None:
    """Let a kernel node of a graph follow others as `launch_config` says of early kernels."""
    if not before:
        return
    cu = driver()
    edge = cu.CUgraphEdgeData()
    edge.type = cu.CUgraphDependencyType.CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC
    edge.from_port = cu.CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
    add = getattr(cu, "cuGraphAddDependencies_v2", cu.cuGraphAddDependencies)  # bindings 12, 13
    n = len(before)
    call((*add(graph, list(before), [node] * n, [edge] * n, n), None), what)


# -- memory and streams --


@contextmanager
def uncaptured(cu: Any = None) -> Iterator[None]:
    """Allow this thread what a capture forbids: loading code and allocating memory.

    Neither takes part in a captured graph, which is what the ban is for.
    """
    cu = cu or driver()
    mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    _, before = cu.cuThreadExchangeStreamCaptureMode(mode)
    try:
        yield
    finally:
        cu.cuThreadExchangeStreamCaptureMode(before)


class Memory:
    """Memory on the current device that is freed with this object.

    Attributes:
        n_bytes: its size.
        pointer: its address.
    """

    def __init__(self, n_bytes: int) -> None:
        self._driver = driver()
        with uncaptured():
            taken = self._driver.cuMemAlloc(max(n_bytes, 16))
        self.n_bytes, self.pointer = n_bytes, int(call(taken, f"{n_bytes} bytes of device memory"))

    def __del__(self) -> None:
        if hasattr(self, "pointer") and not sys.is_finalizing():
            with uncaptured(self._driver):
                self._driver.cuMemFree(self.pointer)


def upload(pointer: int, host: Any, what: str) -> None:
    """Copy a host array to the device, and wait for it."""
    call((*driver().cuMemcpyHtoD(pointer, host.ctypes.data, host.nbytes), None), what)


def download(host: Any, pointer: int, what: str) -> None:
    """Copy from the device to a host array, after all work before it on the default stream."""
    call((*driver().cuMemcpyDtoH(host.ctypes.data, pointer, host.nbytes), None), what)


def copy_within(to: int, source: int, n_bytes: int, stream: int, what: str) -> None:
    """Copy from one address of a device to another, in the order of a stream."""
    call((*driver().cuMemcpyDtoDAsync(to, source, n_bytes, stream), None), what)


def is_capturing(stream: int) -> bool:
    """Whether launches on a stream become part of a graph. The default stream's never do."""
    if not stream:
        return False
    cu = driver()
    status = call(cu.cuStreamIsCapturing(stream), "the stream's capture status")
    return bool(status != cu.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE)


def stream_id(stream: int) -> int:
    """A number of a stream that no other one ever has; handles are used again."""
    return int(call(driver().cuStreamGetId(stream), "the stream's number"))
