"""Schedule graphs on an NVIDIA GPU: kernels lowered, compiled and launched in order.

Arrays of the host are copied to the device and back. Arrays that lie on the device already (torch,
CuPy) stay there: kernels run on their library's current stream and outputs are that library's.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from axe_eq.errors import ArgumentError, DeviceError, ScheduleError
from axe_eq.kernel.expr import Int, evaluate
from axe_eq.program.types import DTYPES, Array, ValueType
from axe_eq.schedule.graph import CollectiveStep, ScheduleGraph
from axe_eq.schedule.memory import buffer_bytes, plan
from axe_eq.target import Target
from axe_eq_backends.cuda import image
from axe_eq_backends.cuda.cones import element_strides
from axe_eq_backends.cuda.emit import emit
from axe_eq_backends.cuda.launch import (
    Bound,
    DeviceArray,
    Loaded,
    call,
    device_array,
    driver,
    use_device,
)
from axe_eq_backends.cuda.lower import Lowered, lower
from axe_eq_backends.cuda.planning import plan as plan_kernel
from axe_eq_backends.cuda.target import h200

# Prepared launches that are kept: one per set of buffers seen.
KEPT_BINDINGS = 16


class CudaEmitter:
    """The emitter of family "cuda"."""

    def emit(self, graph: ScheduleGraph, target: Target) -> dict[str, str]:
        """Kernel name -> CUDA C++ text that compiles alone.

        Raises:
            DispatchError: a kernel that no schedule or instruction of the target covers.
        """
        return {
            name: emit(plan_kernel(lowered.kernel, target)).text
            for name, lowered in lower_graph(graph, target).items()
        }


def lower_graph(graph: ScheduleGraph, target: Target) -> dict[str, Lowered]:
    """Step name -> its kernel.

    Raises:
        DispatchError, ScheduleError: a step that cannot run on one device.
    """
    found = {}
    for step in graph.steps:
        if isinstance(step, CollectiveStep):
            raise ScheduleError(f"step {step.name}", "is a collective", "a graph for one device")
        found[step.name] = lower(step, graph, target)
    return found


class CudaRunner:
    """The runner of family "cuda": Hopper devices."""

    def present(self, target: Target) -> bool:
        """Whether the first device is this machine."""
        wanted = target.limits.get("compute_capability")
        try:
            return use_device() == wanted
        except DeviceError:
            return False

    def prepare(self, graph: ScheduleGraph) -> Prepared:
        """Lower, compile and load a graph once.

        Raises:
            DispatchError, ScheduleError: the graph cannot be lowered.
            DeviceError: there is no such device.
        """
        return Prepared(graph)


@dataclass
class _Memory:
    """Device memory that is freed with this object."""

    n_bytes: int
    pointer: int = field(init=False)

    def __post_init__(self) -> None:
        self.pointer = int(call(driver().cuMemAlloc(max(self.n_bytes, 16)), "device memory"))

    def __del__(self) -> None:
        if "pointer" in self.__dict__:
            driver().cuMemFree(self.pointer)


class Prepared:
    """A graph on the current device, ready to run on arrays."""

    def __init__(self, graph: ScheduleGraph) -> None:
        use_device()
        self.graph, self.memory = graph, plan(graph)
        lowered = lower_graph(graph, h200)
        self.kernels: list[tuple[Loaded, Lowered]] = [
            (Loaded(image.build(plan_kernel(k.kernel, h200))), k) for k in lowered.values()
        ]
        self.arena = _Memory(self.memory.arena_bytes)
        self.bindings: OrderedDict[tuple[int, ...], list[Bound]] = OrderedDict()

    # -- arrays of the host --

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        """Run on host arrays, one per input; copies them in and the outputs out.

        Raises:
            ArgumentError: arrays of another number, type or shape.
        """
        use_device()
        cu = driver()
        names = self.graph.inputs
        if len(arrays) != len(names):
            raise ArgumentError("arguments", f"got {len(arrays)} arrays", f"{len(names)}")
        held: dict[str, _Memory] = {}
        for name in dict.fromkeys([*names, *self.graph.outputs]):
            held[name] = _Memory(buffer_bytes(self.graph.buffers[name]))
        for name, array in zip(names, arrays, strict=True):
            host = self._flat(name, array)
            call((*cu.cuMemcpyHtoD(held[name].pointer, host.ctypes.data, host.nbytes), None), name)
        self._launch({n: m.pointer for n, m in held.items()}, 0, keep=False)
        return [self._download(name, held[name].pointer) for name in self.graph.outputs]

    def _flat(self, name: str, array: Array) -> Array:
        """The buffer's memory with the array in it, through the buffer's layout."""
        spec = self.graph.buffers[name]
        type_ = spec.value_type
        _check_type(name, str(array.dtype), array.shape, type_)
        host = np.zeros(buffer_bytes(spec) // type_.itemsize, DTYPES[type_.dtype].numpy)
        self._view(host, name)[...] = array
        return host

    def _download(self, name: str, pointer: int) -> Array:
        spec = self.graph.buffers[name]
        host = np.empty(
            buffer_bytes(spec) // spec.value_type.itemsize, DTYPES[spec.value_type.dtype].numpy
        )
        call((*driver().cuMemcpyDtoH(host.ctypes.data, pointer, host.nbytes), None), name)
        return np.ascontiguousarray(self._view(host, name))

    def _view(self, host: Array, name: str) -> Array:
        spec = self.graph.buffers[name]
        shape = spec.value_type.shape
        strides = element_strides(f"buffer {name}", spec.layout, shape)
        steps = tuple(s * host.itemsize for s in strides)
        return np.lib.stride_tricks.as_strided(host, shape, steps)

    # -- arrays of the device --

    def on_device(self, arrays: Sequence[Any]) -> Callable[[], list[Any]]:
        """A call on arrays of one library that lie on the device; outputs are of that library.

        Raises:
            ArgumentError: arrays of another number, type, shape or strides, or on the host.
        """
        if len(arrays) != len(self.graph.inputs):
            wanted = f"{len(self.graph.inputs)}"
            raise ArgumentError("arguments", f"got {len(arrays)} arrays", wanted)
        given = dict(zip(self.graph.inputs, arrays, strict=True))
        inputs = {
            name: self._constant(name, array)
            if isinstance(array, np.ndarray)  # captured by the program
            else self._checked(name, device_array(array)).pointer
            for name, array in given.items()
        }
        like = next(a for a in arrays if not isinstance(a, np.ndarray))
        library = sys.modules[type(like).__module__.partition(".")[0]]
        made = [self._maker(n, library, like) for n in self.graph.outputs if n not in given]
        fresh = [n for n in self.graph.outputs if n not in given]

        def run() -> list[Any]:
            outputs = {name: make() for name, make in zip(fresh, made, strict=True)}
            pointers = inputs | {n: _pointer(a) for n, a in outputs.items()}
            self._launch(pointers, _current_stream(library, like))
            return [outputs[n] if n in outputs else given[n] for n in self.graph.outputs]

        return run

    def _constant(self, name: str, array: Array) -> int:
        held: dict[str, _Memory] = self.__dict__.setdefault("_constants", {})
        if name not in held:
            host = self._flat(name, array)
            held[name] = _Memory(host.nbytes)
            copied = driver().cuMemcpyHtoD(held[name].pointer, host.ctypes.data, host.nbytes)
            call((*copied, None), f"constant {name}")
        return held[name].pointer

    def _checked(self, name: str, array: DeviceArray) -> DeviceArray:
        spec = self.graph.buffers[name]
        type_ = spec.value_type
        _check_type(name, array.dtype, array.shape, type_)
        wanted = element_strides(f"argument {name!r}", spec.layout, type_.shape)
        pairs = zip(type_.shape, wanted, array.strides, strict=True)
        if any(extent > 1 and w != s for extent, w, s in pairs):
            raise ArgumentError(f"argument {name!r}", f"has strides {array.strides}", f"{wanted}")
        return array

    def _maker(self, name: str, library: Any, like: Any) -> Callable[[], Any]:
        """Makes a new array for an output, beside `like`."""
        spec = self.graph.buffers[name]
        type_ = spec.value_type
        strides = element_strides(f"output {name!r}", spec.layout, type_.shape)
        size = 1
        for extent, stride in zip(reversed(type_.shape), reversed(strides), strict=True):
            if extent > 1 and stride != size:
                raise ArgumentError(f"output {name!r}", f"has strides {strides}", "dense rows")
            size *= extent
        where = {"device": like.device} if hasattr(like, "is_cuda") else {}
        dtype = getattr(library, str(DTYPES[type_.dtype].numpy))
        return lambda: library.empty(type_.shape, dtype=dtype, **where)

    # -- launches --

    def _launch(self, pointers: Mapping[str, int], stream: int, keep: bool = True) -> None:
        key = tuple(pointers.values())
        bound = self.bindings.get(key) if keep else None
        if bound is None:
            bound = self._bind(pointers)
            if keep:
                self.bindings[key] = bound
                if len(self.bindings) > KEPT_BINDINGS:
                    self.bindings.popitem(last=False)
        for launch in bound:
            launch.launch(stream)

    def _bind(self, pointers: Mapping[str, int]) -> list[Bound]:
        where = {n: self.arena.pointer + offset for n, offset in self.memory.offsets.items()}
        where |= pointers
        found = []
        for loaded, lowered in self.kernels:
            params = lowered.params
            arrays = {
                t.name: DeviceArray(
                    where[lowered.buffers[t.name]],
                    t.dtype,
                    _numbers(t.shape, params),
                    _numbers(t.strides or (), params),
                )
                for t in loaded.image.tensors
            }
            found.append(loaded.bind(arrays, params))
        return found


def _pointer(array: Any) -> int:
    """The address of an array that was made here."""
    return array.data_ptr() if hasattr(array, "data_ptr") else device_array(array).pointer


def _numbers(values: Sequence[Int], params: Mapping[str, int]) -> tuple[int, ...]:
    return tuple(int(evaluate(v, params)) for v in values)


def _check_type(name: str, dtype: str, shape: Sequence[int], wanted: ValueType) -> None:
    names = (wanted.dtype, str(DTYPES[wanted.dtype].numpy))
    if tuple(shape) != wanted.shape or dtype not in names:
        raise ArgumentError(f"argument {name!r}", f"is {dtype}{list(shape)}", str(wanted))


def _current_stream(library: Any, like: Any) -> int:
    """The handle of the stream that a library runs on now."""
    if hasattr(like, "is_cuda"):
        return int(library.cuda.current_stream(like.device).cuda_stream)
    if hasattr(library, "cuda") and hasattr(library.cuda, "get_current_stream"):
        return int(library.cuda.get_current_stream().ptr)
    return 0


__all__ = ["CudaEmitter", "CudaRunner", "Prepared", "lower_graph"]
