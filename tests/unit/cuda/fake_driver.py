"""A CUDA driver without a device: memory of the host, kernels in Python, streams that may race.

Launches wait in the queue of their stream until somebody waits; then the heads of the queues run in
a random order, so work that shares memory across streams gives wrong values in some order.
"""

from __future__ import annotations

import ctypes
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

CURRENT, OTHER = 1, 2  # devices 0 and 1 have contexts 1 and 2
Kernel = Callable[..., None]


class Names:
    """Stands for an enum of the driver: every name is its own value."""

    def __getattr__(self, name: str) -> SimpleNamespace:
        if name.startswith("__"):
            raise AttributeError(name)
        found = SimpleNamespace(name=name)
        setattr(self, name, found)
        return found


class FakeDriver:
    """The part of cuda.bindings.driver that axe_eq calls.

    Args:
        kernels: entry point -> function of the addresses and integers it is launched with.
        capability: major and minor, of every device.
        version: what the driver serves, 13000 for 13.0.
        seed: of the order in which streams run.
    """

    CUdevice_attribute = CUfunction_attribute = CUtensorMapDataType = Names()
    CUtensorMapInterleave = CUtensorMapSwizzle = CUtensorMapL2promotion = Names()
    CUtensorMapFloatOOBfill = CUstreamCaptureMode = CUstreamCaptureStatus = Names()
    CUlaunchAttributeID = CUkernelNodeAttrID = CUgraphDependencyType = Names()
    CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC = 1
    cuuint64_t = cuuint32_t = CUtensorMap = int
    CUDA_KERNEL_NODE_PARAMS = CUlaunchConfig = CUlaunchAttribute = SimpleNamespace
    CUgraphEdgeData = SimpleNamespace

    def __init__(
        self,
        kernels: dict[str, Kernel] | None = None,
        capability: tuple[int, int] = (9, 0),
        version: int = 13000,
        seed: int = 0,
    ) -> None:
        self.CUresult = SimpleNamespace(CUDA_SUCCESS=SimpleNamespace(name="CUDA_SUCCESS"))
        self.kernels, self.capability, self.version = kernels or {}, capability, version
        self.random = random.Random(seed)
        self.context: int | None = CURRENT
        self.stack: list[int | None] = []
        self.memory: dict[int, Any] = {}
        self.queues: dict[int, list[Callable[[], None]]] = {}
        self.graphs: list[list[Any]] = []
        self.capturing: set[int] = set()  # streams whose work becomes part of a graph
        self.captured: list[Callable[[], None]] = []
        self.calls: list[str] = []
        self.early: list[str] = []  # entry points of kernels that were launched early
        self.follows = 0  # edges of the graph that is made, each between neighbours
        self.mode = "global"
        self.n_clusters = 3  # that fit at once
        self.n_resident = 1

    def _ok(self, *values: Any) -> tuple[Any, ...]:
        return (self.CUresult.CUDA_SUCCESS, *values)

    def failed(self, name: str) -> tuple[Any, ...]:
        """What a call returns that fails."""
        return (SimpleNamespace(name=name), None)

    # -- devices and contexts --

    def cuInit(self, flags: int) -> Any:
        return self._ok()

    def cuDriverGetVersion(self) -> Any:
        return self._ok(self.version)

    def cuDeviceGetCount(self) -> Any:
        return self._ok(2)

    def cuDeviceGet(self, device: int) -> Any:
        return self._ok(device)

    def cuDeviceGetAttribute(self, which: Any, device: int) -> Any:
        major, minor = self.capability
        known = {"CAPABILITY_MAJOR": major, "CAPABILITY_MINOR": minor, "PROCESSOR_COUNT": 4}
        return self._ok(next(v for n, v in known.items() if which.name.endswith(n)))

    def cuDevicePrimaryCtxRetain(self, device: int) -> Any:
        return self._ok(device + 1)

    def cuCtxGetCurrent(self) -> Any:
        return self._ok(self.context or 0)

    def cuCtxSetCurrent(self, context: int) -> Any:
        self.context = context
        return self._ok()

    def cuCtxPushCurrent(self, context: int) -> Any:
        self.stack.append(self.context)
        self.context = context
        return self._ok()

    def cuCtxPopCurrent(self) -> Any:
        self.context = self.stack.pop()
        return self._ok(None)

    def cuCtxGetDevice(self) -> Any:
        assert self.context is not None
        return self._ok(self.context - 1)

    # -- memory --

    def cuThreadExchangeStreamCaptureMode(self, mode: Any) -> Any:
        before, self.mode = self.mode, mode
        return self._ok(before)

    def cuMemAlloc(self, size: int) -> Any:
        raw = ctypes.create_string_buffer(b"\xee" * size, size + 256)
        address = -(-ctypes.addressof(raw) // 256) * 256
        self.memory[address] = raw
        return self._ok(address)

    def cuMemFree(self, address: int) -> Any:
        self.wait()
        del self.memory[address]
        return self._ok()

    def cuMemcpyHtoD(self, to: int, source: int, size: int) -> Any:
        ctypes.memmove(to, source, size)
        return self._ok()

    def cuMemcpyDtoH(self, to: int, source: int, size: int) -> Any:
        self.wait()
        ctypes.memmove(to, source, size)
        return self._ok()

    def cuMemcpyDtoDAsync(self, to: int, source: int, size: int, stream: int) -> Any:
        self.calls.append(f"copy on {stream}")

        def work() -> None:
            ctypes.memmove(to, source, size)

        self._enqueue(stream, work)
        return self._ok()

    def cuMemAllocAsync(self, size: int, stream: int) -> Any:
        assert stream in self.capturing
        _, address = self.cuMemAlloc(size)
        self.captured.append(lambda: None)
        return self._ok(address)

    def cuMemFreeAsync(self, address: int, stream: int) -> Any:
        assert stream in self.capturing
        return self._ok()

    # -- code --

    def cuModuleLoadData(self, cubin: bytes) -> Any:
        if cubin.startswith(b"nonsense"):
            return self.failed("CUDA_ERROR_INVALID_IMAGE")
        return self._ok("module")

    def cuModuleGetFunction(self, module: str, name: bytes) -> Any:
        return self._ok((name.decode(), self.context))

    def cuFuncSetAttribute(self, function: Any, which: Any, value: int) -> Any:
        return self._ok()

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(self, *_: Any) -> Any:
        return self._ok(self.n_resident)

    # -- tensor maps: an address, then nothing --

    def cuTensorMapEncodeTiled(self, kind: Any, rank: int, address: int, *_: Any) -> Any:
        encoded = ctypes.create_string_buffer(address.to_bytes(8, "little"), 128)
        return self._ok(SimpleNamespace(getPtr=lambda: ctypes.addressof(encoded)))

    def cuTensorMapReplaceAddress(self, at: int, address: int) -> Any:
        ctypes.c_uint64.from_address(at).value = address
        return self._ok()

    # -- streams --

    def cuStreamIsCapturing(self, stream: int) -> Any:
        status = "ACTIVE" if stream in self.capturing else "NONE"
        return self._ok(getattr(self.CUstreamCaptureStatus, f"CU_STREAM_CAPTURE_STATUS_{status}"))

    def cuStreamGetId(self, stream: int) -> Any:
        return self._ok(1000 + stream)

    def cuStreamSynchronize(self, stream: int) -> Any:
        self.wait()
        return self._ok()

    def wait(self) -> None:
        """Run all that waits, heads of streams in a random order."""
        while ready := [queue for queue in self.queues.values() if queue]:
            self.random.choice(ready).pop(0)()

    def _enqueue(self, stream: int, work: Callable[[], None]) -> None:
        if stream in self.capturing:
            self.captured.append(work)
        else:
            self.queues.setdefault(stream, []).append(work)

    # -- launches --

    def _work(self, function: Any, at: int) -> Callable[[], None]:
        name, _ = function
        kernel = self.kernels[name]
        pointers = ctypes.cast(at, ctypes.POINTER(ctypes.c_void_p))
        n = kernel.__code__.co_argcount
        values = [ctypes.c_uint64.from_address(pointers[i] or 0).value for i in range(n)]
        return lambda: kernel(*values)  # as real launches do, with the parameters as they are now

    def cuLaunchKernelEx(self, config: Any, function: Any, at: int, extra: int) -> Any:
        assert len(config.attrs) == config.numAttrs
        found = {attribute.id.name: attribute.value for attribute in config.attrs}
        if (value := found.pop("CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION", None)) is not None:
            self.calls.append(f"{config.gridDimX} CTAs in {self._clusters(value)}")
        early = found.pop("CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION", None)
        assert not found
        if early is not None and early.programmaticStreamSerializationAllowed:
            self.early.append(function[0])
        stream = config.hStream
        self.calls.append(f"kernel {function[0]} on {stream}")
        if self.context != function[1]:
            return self.failed("CUDA_ERROR_INVALID_CONTEXT")[:1]
        self._enqueue(stream, self._work(function, at))
        return self._ok()

    def CUlaunchAttributeValue(self) -> Any:
        return SimpleNamespace(clusterDim=SimpleNamespace())

    CUkernelNodeAttrValue = CUlaunchAttributeValue

    def _clusters(self, value: Any) -> str:
        return f"clusters of {value.clusterDim.x} x {value.clusterDim.y} x {value.clusterDim.z}"

    def cuOccupancyMaxActiveClusters(self, function: Any, config: Any) -> Any:
        assert config.attrs[0].value.clusterDim.x > 1
        return self._ok(self.n_clusters)

    def cuGraphKernelNodeSetAttribute(self, node: Any, which: Any, value: Any) -> Any:
        assert which.name == "CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION"
        self.calls.append(f"node {node[0]} in {self._clusters(value)}")
        return self._ok()

    def cuGraphCreate(self, flags: int) -> Any:
        self.graphs.append([])
        return self._ok(self.graphs[-1])

    def cuGraphAddKernelNode(self, graph: list[Any], before: list[Any], n: int, params: Any) -> Any:
        assert before in ([], graph[-1:])  # one after the other
        self.follows = len(graph) - (before == [])
        graph.append((*params.func, self._work(params.func, params.kernelParams)))
        return self._ok(graph[-1])

    def cuGraphAddDependencies(
        self, graph: list[Any], before: list[Any], after: list[Any], edges: list[Any], n: int
    ) -> Any:
        assert (before, after, n) == (graph[-2:-1], graph[-1:], 1)
        (edge,) = edges
        assert edge.type.name == "CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC"
        assert edge.from_port == self.CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC
        self.follows += 1
        return self._ok()

    def cuGraphInstantiate(self, graph: list[Any], flags: int) -> Any:
        assert self.follows == len(graph) - 1
        return self._ok({id(node): node for node in graph})

    def cuGraphExecKernelNodeSetParams(self, executable: Any, node: Any, params: Any) -> Any:
        assert any(n is node for graph in self.graphs for n in graph)  # its graph still lives
        assert executable[id(node)][:2] == params.func
        self.calls.append(f"node {node[0]} moved")
        work = self._work(params.func, params.kernelParams)
        executable[id(node)] = (*params.func, work)
        return self._ok()

    def cuGraphDestroy(self, graph: list[Any]) -> Any:
        self.graphs = [other for other in self.graphs if other is not graph]
        return self._ok()

    def cuGraphExecDestroy(self, executable: Any) -> Any:
        executable.clear()
        return self._ok()

    def cuGraphLaunch(self, executable: Any, stream: int) -> Any:
        assert stream not in self.capturing  # the driver refuses it
        self.calls.append(f"graph of {len(executable)} on {stream}")
        for _, context, work in executable.values():
            assert stream or context == self.context  # it would run on another device's stream
            self._enqueue(stream, work)
        return self._ok()
