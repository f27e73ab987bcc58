"""Machine code on NVIDIA GPUs: the runner, and programs ready to be called.

Arrays of the host are copied to the device and back. Arrays that lie on the device stay there:
kernels run on their library's current stream and results are that library's. One kernel is one
launch; several are one launch of a CUDA graph, from the second call on the same memory on. Calls on
different streams share no scratch memory, and so may run at the same time; a call inside a capture
becomes part of the caller's graph, with scratch memory that belongs to it.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from axe_eq.errors import ArgumentError, DeviceError
from axe_eq.program.types import DTYPES, Array
from axe_eq.run.arrays import on_device
from axe_eq_backends.cuda.arrays import DeviceArray, Dlpack, Library, Torch, library_of
from axe_eq_backends.cuda.code import Code, Port
from axe_eq_backends.cuda.driver import (
    Memory,
    call,
    capability,
    default_device,
    download,
    driver,
    is_capturing,
    on,
    stream_id,
    uncaptured,
    upload,
)
from axe_eq_backends.cuda.launch import Bound, Loaded, Shaped

if TYPE_CHECKING:
    from axe_eq.schedule.graph import KernelStep, ScheduleGraph
    from axe_eq.target import Target

# Prepared launches that are kept per stream, one per set of addresses; and streams.
KEPT_BINDINGS, KEPT_STREAMS = 16, 8


class CudaEmitter:
    """The emitter of family "cuda"."""

    def refuse(self, cell: str, dtypes: Sequence[str]) -> str | None:
        """Why a cell on operands of these element types cannot be written; None where it can."""
        from axe_eq_backends.cuda.cells import refusal

        return refusal(cell, dtypes)

    def emit(self, graph: ScheduleGraph, target: Target) -> dict[str, str]:
        """Kernel name -> CUDA C++ text that compiles alone.

        Raises:
            DispatchError: a kernel that no schedule or instruction of the target covers.
        """
        from axe_eq_backends.cuda.assemble import texts

        return texts(graph, target)


class CudaInterpreter:
    """The interpreter of family "cuda"."""

    def run(
        self, step: KernelStep, graph: ScheduleGraph, target: Target, arrays: Mapping[str, Array]
    ) -> dict[str, Array]:
        """What a lowered kernel writes, by buffer; see `axe_eq.prove.kernelcheck.Interpreter`.

        Raises:
            DispatchError, ScheduleError: nothing covers the kernel, or it breaks a rule.
            KernelFault: what it does wrong.
        """
        from axe_eq_backends.cuda.interpret import run

        return run(step, graph, target, arrays)


class CudaRunner:
    """The runner of family "cuda"."""

    def present(self, target: Target) -> bool:
        """Whether the current device, else the first, is this machine."""
        try:
            return capability(default_device()) == target.limits.get("compute_capability")
        except DeviceError:
            return False

    def compile(self, graph: ScheduleGraph, target: Target) -> bytes:
        """The machine code of a graph; needs no device.

        Raises:
            DispatchError, EmitError, ScheduleError: the target cannot run the graph.
            DeviceError: NVRTC is missing.
        """
        from axe_eq_backends.cuda.assemble import assembled

        return assembled(graph, target)

    def load(self, code: bytes) -> Program:
        """The program whose machine code `compile` made."""
        return load(code)


def load(code: bytes) -> Program:
    """The program whose machine code `CudaRunner.compile` made; needs no compiler.

    Raises:
        ArgumentError: the bytes are no machine code of this version.
    """
    return Program(Code.from_bytes(code))


class Program:
    """Machine code that is called with arrays; it is loaded on each device at its first call."""

    def __init__(self, code: Code) -> None:
        self.code = code
        self._there: dict[int, OnDevice] = {}
        self._lock = Lock()
        self._quick: Callable[[Sequence[Any]], Sequence[Any] | None] | None = None

    def on(self, device: int) -> OnDevice:
        """The program on a device.

        Raises:
            DeviceError: there is no such device, or it cannot run the code.
        """
        with self._lock:
            if device not in self._there:
                self._there[device] = OnDevice(self.code, device)
            return self._there[device]

    # -- arrays of the host --

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        """Run on host arrays, one per input and constant; copies them in and the outputs out.

        Raises:
            ArgumentError: arrays of another number, type or shape.
        """
        there = self.on(default_device())
        names = [*self.code.inputs, *self.code.constants]
        _check_count(arrays, names)
        with on(there.device):
            held = {name: Memory(port.n_bytes) for name, port in self.code.ports.items()}
            for name, array in zip(names, arrays, strict=True):
                port = self.code.ports[name]
                upload(held[name].pointer, _flat(port, array), f"argument {name!r}")
            there.run(tuple(m.pointer for m in held.values()), 0)
            return [_fetched(self.code.ports[n], held[n].pointer) for n in self.code.outputs]

    # -- arrays of the device --

    def call(self, arrays: Sequence[Any]) -> Sequence[Any]:
        """Run on arrays that lie on one device, and constants; results are new arrays.

        Raises:
            ArgumentError: arrays of another number, type, shape, strides or device.
        """
        library, there, given = self._given(arrays)
        made = [library.make(self.code.ports[n]) for n in self.code.made]
        there.run((*given, *(library.read(a).pointer for a in made)), library.stream())
        library.finish()
        if isinstance(library, Torch):
            self._quick = _torch_quick(there, library, given[len(self.code.inputs) :])
        return self._results(arrays, [library.handed(a) for a in made])

    def bind(self, arrays: Sequence[Any]) -> tuple[Callable[[], None], Sequence[Any]]:
        """A prepared call on these arrays, and the arrays that it writes every time.

        Raises:
            ArgumentError: as `call`.
        """
        library, there, given = self._given(arrays)
        made = [library.make(self.code.ports[n]) for n in self.code.made]
        pointers = (*given, *(library.read(a).pointer for a in made))
        launch = there.prepared(pointers, library, (arrays, made))
        return launch, self._results(arrays, [library.handed(a) for a in made])

    def parts(self, arrays: Sequence[Any]) -> list[tuple[str, Callable[[], None]]]:
        """Every kernel of a call on these arrays by name, prepared alone: to measure them.

        Raises:
            ArgumentError: as `call`.
        """
        library, there, given = self._given(arrays)
        made = [library.make(self.code.ports[n]) for n in self.code.made]
        pointers = (*given, *(library.read(a).pointer for a in made))
        return there.parts(pointers, library, (arrays, made))

    def quick(self, arrays: Sequence[Any]) -> Sequence[Any] | None:
        """`call` on the inputs alone, where they are like those of the call before; else None."""
        return None if self._quick is None else self._quick(arrays)

    def _given(self, arrays: Sequence[Any]) -> tuple[Library, OnDevice, list[int]]:
        """Whose arrays these are, the program where they lie, and their addresses."""
        names, n = [*self.code.inputs, *self.code.constants], len(self.code.inputs)
        _check_count(arrays, names)
        first = next(i for i, a in enumerate(arrays[:n]) if on_device(a))
        library = library_of(arrays[first])
        # An array of another library is met through DLPack, which orders the streams of the two.
        other = Dlpack(library.device, stream=library.stream)
        where = f"device {library.device}, where {names[first]!r} lies"
        found = []
        for name, array in zip(names[:n], arrays[:n], strict=True):
            if not on_device(array):
                raise ArgumentError(f"argument {name!r}", "lies in host memory", where)
            own = library_of(array)
            if own.device != library.device:
                raise ArgumentError(f"argument {name!r}", f"lies on device {own.device}", where)
            held = (library if type(own) is type(library) else other).read(array)
            _check_fits(self.code.ports[name], held)
            found.append(held.pointer)
        there = self.on(library.device)
        constants = zip(self.code.constants, arrays[n:], strict=True)
        return library, there, found + [there.constant(name, a) for name, a in constants]

    def _results(self, arrays: Sequence[Any], made: Sequence[Any]) -> list[Any]:
        """Outputs in order: those that were made, and inputs that are outputs."""
        known = dict(zip([*self.code.inputs, *self.code.constants], arrays, strict=True))
        known |= zip(self.code.made, made, strict=True)
        return [known[name] for name in self.code.outputs]


class OnDevice:
    """A program's kernels on one device, and what it keeps there."""

    def __init__(self, code: Code, device: int) -> None:
        self.code, self.device = code, device
        loaded: dict[tuple[bytes, str], Loaded] = {}
        self._kernels: list[tuple[Shaped, Mapping[str, str | int]]] = []
        for launch in code.launches:
            which = launch.image.cubin, launch.image.name
            kernel = loaded.get(which) or Loaded(launch.image, device)
            loaded[which] = kernel
            self._kernels.append((Shaped(kernel, launch.params), launch.places))
        self._constants: dict[str, Memory] = {}
        self._lanes: OrderedDict[int, _Lane] = OrderedDict()
        self._lock = Lock()  # calls of two threads on one stream must not interleave

    @property
    def is_one(self) -> bool:
        """Whether a call is one launch and needs no scratch memory."""
        return len(self._kernels) == 1 and not self.code.arena_bytes

    def constant(self, name: str, array: Array) -> int:
        """Address of a captured constant, which is copied here once."""
        with self._lock, on(self.device), uncaptured():
            if name not in self._constants:
                host = _flat(self.code.ports[name], array)
                memory = Memory(host.nbytes)
                upload(memory.pointer, host, f"constant {name!r}")
                self._constants[name] = memory
        return self._constants[name].pointer

    def run(self, pointers: tuple[int, ...], stream: int) -> None:
        """Launch everything on a stream, on memory at these addresses, in the order of the ports.

        Raises:
            ArgumentError: an address that is not aligned as the kernels need it.
        """
        with self._lock:
            if not self.is_one and is_capturing(stream):
                self._capture(pointers, stream)
                return
            lane = self._lane(stream)
            binding = lane.bindings.get(pointers)
            if binding is not None:
                lane.bindings.move_to_end(pointers)
            elif len(lane.bindings) < KEPT_BINDINGS:
                binding = lane.bindings[pointers] = self._binding(pointers, lane)
            else:
                where = self._where(pointers, lane.arena.pointer)
                _, binding = lane.bindings.popitem(last=False)
                binding.move(where)
                lane.bindings[pointers] = binding
            binding.launch(stream)

    def prepared(
        self, pointers: tuple[int, ...], library: Library, keep: Any
    ) -> Callable[[], None]:
        """`run` on these addresses, on the stream the library is on at each call.

        Args:
            pointers: as for `run`.
            library: whose arrays these are.
            keep: what must live as long as the call.
        """
        if self.is_one:
            (bound,) = self._bound(pointers, 0, keep)
            return _launching(bound, library)
        bindings: dict[int, _Binding] = {}  # none is dropped, unlike those of `run`

        def launch() -> None:
            stream = library.stream()
            with self._lock:
                if is_capturing(stream):
                    self._capture(pointers, stream, keep)
                else:
                    lane = self._lane(stream)
                    if lane.number not in bindings:
                        bindings[lane.number] = self._binding(pointers, lane, keep)
                        bindings[lane.number].record()
                    bindings[lane.number].launch(stream)
            library.finish()

        return launch

    def parts(
        self, pointers: tuple[int, ...], library: Library, keep: Any
    ) -> list[tuple[str, Callable[[], None]]]:
        """The launches of `prepared`, each alone with the name of its kernel."""
        with on(self.device):
            arena = Memory(self.code.arena_bytes)
        bounds = self._bound(pointers, arena.pointer, (arena, keep))
        names = [launch.image.name for launch in self.code.launches]
        return [(n, _launching(b, library)) for n, b in zip(names, bounds, strict=True)]

    def _lane(self, stream: int) -> _Lane:
        """What calls on a stream share; the scratch memory of a stream no other one uses."""
        number = stream_id(stream) if self.code.arena_bytes else 0
        lane = self._lanes.get(number)
        if lane is None:
            with on(self.device):
                lane = self._lanes[number] = _Lane(number, Memory(self.code.arena_bytes))
            if len(self._lanes) > KEPT_STREAMS:
                self._lanes.popitem(last=False)  # its memory is freed once the device is done
        else:
            self._lanes.move_to_end(number)
        return lane

    def _binding(self, pointers: Sequence[int], lane: _Lane, keep: Any = None) -> _Binding:
        return _Binding(self._bound(pointers, lane.arena.pointer, (lane.arena, keep)), self.device)

    def _capture(self, pointers: Sequence[int], stream: int, keep: Any = None) -> None:
        """Launch into the caller's graph, with scratch memory that the graph owns."""
        cu, size = driver(), self.code.arena_bytes
        arena = 0
        if size:
            taken = cu.cuMemAllocAsync(size, stream)
            arena = int(call(taken, f"{size} bytes of a graph's memory"))
        for bound in self._bound(pointers, arena, keep):
            bound.launch(stream)
        if size:
            call((*cu.cuMemFreeAsync(arena, stream), None), "a graph's memory")

    def _bound(self, pointers: Sequence[int], arena: int, keep: Any = None) -> list[Bound]:
        where = self._where(pointers, arena)
        with on(self.device):
            return [k.bind(w, (keep,)) for (k, _), w in zip(self._kernels, where, strict=True)]

    def _where(self, pointers: Sequence[int], arena: int) -> list[dict[str, int]]:
        """Per kernel the addresses of its tensors."""
        known = dict(zip(self.code.ports, pointers, strict=True))
        for port in self.code.ports.values():
            if known[port.name] % port.align:
                raise ArgumentError(
                    f"argument {port.name!r}", f"begins at address {known[port.name]:#x}",
                    f"a multiple of {port.align} bytes",
                )  # fmt: skip
        return [
            {t: known[p] if isinstance(p, str) else arena + p for t, p in places.items()}
            for _, places in self._kernels
        ]


class _Lane:
    """What calls on one stream share: scratch memory, and launches on addresses seen before."""

    def __init__(self, number: int, arena: Memory) -> None:
        self.number, self.arena = number, arena
        self.bindings: OrderedDict[tuple[int, ...], _Binding] = OrderedDict()


class _Binding:
    """The launches of a program on fixed memory: one by one at first, then as a CUDA graph."""

    def __init__(self, bounds: Sequence[Bound], device: int) -> None:
        self._graph: Any = None
        self._bounds, self._device, self._driver = bounds, device, driver()
        self._seen = False

    def launch(self, stream: int) -> None:
        """Launch all in order."""
        if self._seen and self._graph is None and len(self._bounds) > 1:
            self.record()
        self._seen = True
        if self._graph is None:
            for bound in self._bounds:
                bound.launch(stream)
            return
        with on(self._device):
            call((*self._driver.cuGraphLaunch(self._graph, stream), None), "launch of a graph")

    def move(self, where: Sequence[Mapping[str, int]]) -> None:
        """Be the launches on other memory, given per kernel; they have not been seen yet."""
        self._drop()
        self._seen = False
        for bound, pointers in zip(self._bounds, where, strict=True):
            bound.move(pointers)

    def record(self) -> None:
        """Make the graph."""
        cu = self._driver
        with on(self._device):
            graph = call(cu.cuGraphCreate(0), "a graph")
            last: list[Any] = []
            for bound in self._bounds:
                if not bound.is_empty:
                    last = [bound.add_to(graph, last)]
            self._graph = call(cu.cuGraphInstantiate(graph, 0), "a graph")
            cu.cuGraphDestroy(graph)

    def _drop(self) -> None:
        if self._graph is not None and not sys.is_finalizing():
            self._driver.cuGraphExecDestroy(self._graph)
        self._graph = None

    def __del__(self) -> None:
        self._drop()


def _launching(bound: Bound, library: Library) -> Callable[[], None]:
    """Launch on the stream the library is on then."""
    launch, stream = bound.launch, library.stream
    if isinstance(library, Dlpack):

        def waiting() -> None:
            launch(stream())
            library.finish()

        return waiting
    return lambda: launch(stream())


def _torch_quick(
    there: OnDevice, library: Torch, constants: Sequence[int]
) -> Callable[[Sequence[Any]], Sequence[Any] | None]:
    """A call on tensors of exactly the dtypes, shapes, strides and device that are wanted.

    Anything else, right or wrong, is for `Program.call`.
    """
    torch, code, device, run = library.torch, there.code, there.device, there.run
    kinds = (torch.Tensor, torch.nn.Parameter)
    ports = [code.ports[n] for n in code.inputs]
    wanted = [(library.element(p.dtype), p.shape, p.strides) for p in ports]
    made = [code.ports[n] for n in code.made]
    fresh = [(p.shape, p.strides, library.element(p.dtype)) for p in made]
    place, empty, stream = torch.device("cuda", device), torch.empty_strided, library.stream
    slots = [*code.inputs, *code.made]
    order = [slots.index(name) for name in code.outputs if name in slots]
    if len(order) < len(code.outputs):  # a constant handed back
        return lambda arrays: None

    def quick(arrays: Sequence[Any]) -> Sequence[Any] | None:
        if len(arrays) != len(wanted):
            return None
        pointers = []
        for a, (dtype, shape, strides) in zip(arrays, wanted, strict=True):
            if (
                type(a) not in kinds
                or a.dtype is not dtype
                or a.shape != shape
                or a.stride() != strides
                or a.get_device() != device
            ):
                return None
            pointers.append(a.data_ptr())
        outputs = [empty(s, t, dtype=d, device=place) for s, t, d in fresh]
        run((*pointers, *constants, *[o.data_ptr() for o in outputs]), stream())
        known = (*arrays, *outputs)
        return [known[n] for n in order]

    return quick


def _check_count(arrays: Sequence[Any], names: Sequence[str]) -> None:
    if len(arrays) != len(names):
        raise ArgumentError("arguments", f"got {len(arrays)} arrays", f"{len(names)}")


def _check_fits(port: Port, array: DeviceArray) -> None:
    """Whether a device array has the type, shape and strides that were compiled for."""
    thing = f"argument {port.name!r}"
    if array.dtype != port.dtype or array.shape != port.shape:
        shape = ",".join(map(str, array.shape))
        wanted = f"{port.dtype}[{','.join(map(str, port.shape))}]"
        raise ArgumentError(thing, f"is {array.dtype}[{shape}]", wanted)
    pairs = zip(port.shape, port.strides, array.strides, strict=True)
    if any(extent > 1 and w != s for extent, w, s in pairs):
        raise ArgumentError(
            thing, f"has strides {array.strides}", f"{port.strides}",
            hint="a contiguous copy, or compile with Spec(..., layout=) of these strides",
        )  # fmt: skip


def _flat(port: Port, array: Array) -> Array:
    """A buffer's memory with a host array in it."""
    element = DTYPES[port.dtype].numpy
    if array.dtype != element or array.shape != port.shape:
        shape = ",".join(map(str, array.shape))
        wanted = f"{port.dtype}[{','.join(map(str, port.shape))}]"
        raise ArgumentError(f"argument {port.name!r}", f"is {array.dtype}[{shape}]", wanted)
    host = np.zeros(port.n_bytes // element.itemsize, element)
    _view(host, port)[...] = array
    return host


def _fetched(port: Port, pointer: int) -> Array:
    """What a buffer holds, as a dense host array."""
    element = DTYPES[port.dtype].numpy
    host = np.empty(port.n_bytes // element.itemsize, element)
    download(host, pointer, f"output {port.name!r}")
    return np.ascontiguousarray(_view(host, port))


def _view(host: Array, port: Port) -> Array:
    steps = tuple(s * host.itemsize for s in port.strides)
    return np.lib.stride_tricks.as_strided(host, port.shape, steps)


__all__ = ["CudaEmitter", "CudaRunner", "Program", "load"]
