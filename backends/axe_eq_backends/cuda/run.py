"""Machine code on NVIDIA GPUs: the runner, and programs ready to be called.

Arrays of the host are copied to the device and back. Arrays that lie on the device stay there:
kernels run on their library's current stream and results are that library's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any

from axe_eq.errors import ArgumentError, DeviceError
from axe_eq.program.types import Array
from axe_eq.run.arrays import Address, on_device
from axe_eq_backends.cuda import driver
from axe_eq_backends.cuda.arrays import (
    DeviceArray,
    Dlpack,
    Library,
    Torch,
    fetched,
    library_of,
    memory_of,
)
from axe_eq_backends.cuda.code import Code, Port
from axe_eq_backends.cuda.prepared import OnDevice

if TYPE_CHECKING:
    from axe_eq.schedule.graph import ScheduleGraph
    from axe_eq.target import Target


Quick = Callable[..., Sequence[Any] | None]


class CudaRunner:
    """The runner of family "cuda"."""

    def present(self, target: Target) -> bool:
        """Whether the current device, else the first, is this machine."""
        try:
            return driver.capability(driver.default_device()) == target.limits.get(
                "compute_capability"
            )
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

    def device(self) -> str:
        """The name of the device that arrays of the host are brought to."""
        return driver.device_name(driver.default_device())

    def timed(self, graph: ScheduleGraph, target: Target, budget_s: float) -> list[float]:
        """Seconds of a call, of every round; see `axe_eq.run.timing.timed`.

        Raises:
            DeviceError: its arrays do not fit into the device's memory.
        """
        from axe_eq_backends.cuda.timing import timed

        return timed(self.load(self.compile(graph, target)), budget_s)


RUNNER = CudaRunner()


def load(code: bytes) -> Program:
    """The program whose machine code `CudaRunner.compile` made; needs no compiler.

    Raises:
        ArgumentError: the bytes are no machine code of this version.
    """
    return Program(Code.from_bytes(code))


class Program:
    """Machine code that is called with arrays; it is loaded on each device at its first call.

    Attributes:
        code: the machine code.
        quick: `call` on inputs that are like those of the call before; else None.
    """

    def __init__(self, code: Code) -> None:
        self.code = code
        self.quick: Quick = lambda arrays, into=(): None
        self._there: dict[int, OnDevice] = {}
        self._lock = Lock()

    @property
    def memories(self) -> frozenset[str]:
        """Inputs that lie as no strides say: on a device their arrays are their memory."""
        return frozenset(n for n in self.code.inputs if self.code.ports[n].lies)

    @property
    def lying(self) -> tuple[bool, ...]:
        """Per output whether what a call on a device returns is its memory, likewise."""
        return tuple(bool(self.code.ports[n].lies) for n in self.code.outputs)

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
        there = self.on(driver.default_device())
        names = [*self.code.inputs, *self.code.constants]
        _check_count(arrays, names)
        with driver.on(there.device):
            held = {name: driver.Memory(port.n_bytes) for name, port in self.code.ports.items()}
            for name, array in zip(names, arrays, strict=True):
                port = self.code.ports[name]
                driver.upload(held[name].pointer, memory_of(port, array), f"argument {name!r}")
            there.run(tuple(m.pointer for m in held.values()), 0)
            return [fetched(self.code.ports[n], held[n].pointer) for n in self.code.outputs]

    # -- arrays of the device --

    def call(self, arrays: Sequence[Any], into: Sequence[Any] = ()) -> Sequence[Any]:
        """Run on arrays that lie on one device, and constants; results are new arrays.

        Arrays that begin where vectors and bulk copies cannot are copied first.

        Args:
            arrays: one per input and constant.
            into: per output an array that it is stored in, or None; inputs that are handed back are
                not.

        Raises:
            ArgumentError: arrays of another number, type, shape, strides or device.
        """
        library, there, given, copies = self._given(arrays)
        made = self._made(library, into)
        for copy in copies:
            copy.run()
        there.run((*given, *(_pointer(library, a) for a in made)), library.stream())
        library.finish()
        if isinstance(library, Torch):
            self.quick = _torch_quick(there, library, given[len(self.code.inputs) :])
        return self._results(arrays, [_handed(library, a) for a in made])

    def bind(
        self, arrays: Sequence[Any], into: Sequence[Any] = ()
    ) -> tuple[Callable[[], None], Sequence[Any]]:
        """A prepared call on these arrays, and the arrays that it writes every time.

        Args:
            arrays: as for `call`.
            into: as for `call`.

        Raises:
            ArgumentError: as `call`.
        """
        library, there, given, copies = self._given(arrays)
        made = self._made(library, into)
        pointers = (*given, *(_pointer(library, a) for a in made))
        launch = there.prepared(pointers, library, (arrays, made, copies))
        if copies:
            launch = _after(copies, launch)
        return launch, self._results(arrays, [_handed(library, a) for a in made])

    def parts(self, arrays: Sequence[Any]) -> list[tuple[str, Callable[[], None]]]:
        """Every kernel of a call on these arrays by name, prepared alone: to measure them.

        Raises:
            ArgumentError: as `call`.
        """
        library, there, given, copies = self._given(arrays)
        made = [library.make(self.code.ports[n]) for n in self.code.made]
        for copy in copies:
            copy.run()
        pointers = (*given, *(library.read(a).pointer for a in made))
        return there.parts(pointers, library, (arrays, made, copies))

    def _given(self, arrays: Sequence[Any]) -> tuple[Library, OnDevice, list[int], list[Copy]]:
        """Whose arrays these are, the program where they lie, their addresses, and copies before.

        An array that begins where kernels cannot read it stands at the address of its copy.
        """
        names, n = [*self.code.inputs, *self.code.constants], len(self.code.inputs)
        _check_count(arrays, names)
        first = next((i for i, a in enumerate(arrays[:n]) if on_device(a)), 0)
        library = library_of(arrays[first])
        # An array of another library is met through DLPack, which orders the streams of the two.
        other = Dlpack(library.device, stream=library.stream)
        where = f"device {library.device}, where {names[first]!r} lies"
        found, copies = list[int](), list[Copy]()
        for name, array in zip(names[:n], arrays[:n], strict=True):
            if isinstance(array, Address):  # whoever gives one knows what lies there
                found.append(array.pointer)
                continue
            if not on_device(array):
                raise ArgumentError(f"argument {name!r}", "lies in host memory", where)
            own = library_of(array)
            if own.device != library.device:
                raise ArgumentError(f"argument {name!r}", f"lies on device {own.device}", where)
            held = (library if type(own) is type(library) else other).read(array)
            port = self.code.ports[name]
            _check_fits(port, held)
            if held.pointer % port.align:
                copies.append(Copy(library, port, held))
                held = copies[-1].made
            found.append(held.pointer)
        there = self.on(library.device)
        constants = zip(self.code.constants, arrays[n:], strict=True)
        found += [there.constant(name, a) for name, a in constants]
        return library, there, found, copies

    def _made(self, library: Library, into: Sequence[Any]) -> list[Any]:
        """Arrays for the outputs that are made: new ones, but where they are given."""
        goals = zip(self.code.made, self.code.wanted(into), strict=True)
        return [library.make(self.code.ports[n]) if a is None else a for n, a in goals]

    def _results(self, arrays: Sequence[Any], made: Sequence[Any]) -> list[Any]:
        """Outputs in order: those that were made, and inputs that are outputs."""
        known = dict(zip([*self.code.inputs, *self.code.constants], arrays, strict=True))
        known |= zip(self.code.made, made, strict=True)
        return [known[name] for name in self.code.outputs]


def _pointer(library: Library, array: Any) -> int:
    """Where a result is stored."""
    return array.pointer if isinstance(array, Address) else library.read(array).pointer


def _handed(library: Library, array: Any) -> Any:
    """A result as the caller gets it."""
    return array if isinstance(array, Address) else library.handed(array)


def _torch_quick(there: OnDevice, library: Torch, constants: Sequence[int]) -> Quick:
    """A call on tensors of exactly the dtypes, shapes, strides and device that are wanted.

    Anything else, right or wrong, is for `Program.call`.
    """
    torch, code, device, run = library.torch, there.code, there.device, there.run
    slots = [*code.inputs, *code.made]
    if not set(code.outputs) <= set(slots):  # a constant handed back
        return lambda arrays, into=(): None
    kinds, stream = (torch.Tensor, torch.nn.Parameter), library.stream
    ports = [code.ports[n] for n in code.inputs]
    wanted = [(library.element(p.dtype), p.shape, p.strides) for p in ports]
    makes = [library.maker(code.ports[n]) for n in code.made]
    nowhere = code.wanted(())
    order = [slots.index(name) for name in code.outputs]
    is_made = order == list(range(len(ports), len(slots)))

    def quick(arrays: Sequence[Any], into: Sequence[Any] = ()) -> Sequence[Any] | None:
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
        goals = code.wanted(into) if into else nowhere
        made = [make() if a is None else a for make, a in zip(makes, goals, strict=True)]
        try:
            goals = [a.pointer if isinstance(a, Address) else a.data_ptr() for a in made]
            run((*pointers, *constants, *goals), stream())
        except ArgumentError:  # one begins where kernels cannot read it
            return None
        if is_made:
            return made
        known = (*arrays, *made)
        return [known[n] for n in order]

    return quick


class Copy:
    """A copy of an array, at an address as kernels need it.

    Attributes:
        made: the copy; its library's array lives as long as this.
    """

    def __init__(self, library: Library, port: Port, array: DeviceArray) -> None:
        self._array, self._port = library.make(port), port
        self.made, self._source = library.read(self._array), array.pointer
        self._device, self._stream = library.device, library.stream

    def run(self) -> None:
        """Copy what the array holds then, on the stream the library is on."""
        what = f"a copy of argument {self._port.name!r}"
        with driver.on(self._device):
            driver.copy_within(
                self.made.pointer, self._source, self._port.n_bytes, self._stream(), what
            )


def _after(copies: Sequence[Copy], launch: Callable[[], None]) -> Callable[[], None]:
    """A launch on what the copied arrays hold then."""

    def launching() -> None:
        for copy in copies:
            copy.run()
        launch()

    return launching


def _check_count(arrays: Sequence[Any], names: Sequence[str]) -> None:
    if len(arrays) != len(names):
        raise ArgumentError("arguments", f"got {len(arrays)} arrays", f"{len(names)}")


def _check_fits(port: Port, array: DeviceArray) -> None:
    """Whether a device array has the type, shape and strides that were compiled for."""
    thing = f"argument {port.name!r}"
    if array.dtype != port.dtype or array.shape != port.shape:
        shape = ",".join(map(str, array.shape))
        wanted = f"{port.dtype}[{','.join(map(str, port.shape))}]"
        hint = "exe.pack(name, array) makes the memory" if port.lies else ""
        raise ArgumentError(thing, f"is {array.dtype}[{shape}]", wanted, hint=hint)
    pairs = zip(port.shape, port.strides, array.strides, strict=True)
    if any(extent > 1 and w != s for extent, w, s in pairs):
        raise ArgumentError(
            thing, f"has strides {array.strides}", f"{port.strides}",
            hint="exe.pack(name, array), or compile with Spec(..., layout=) of these strides",
        )  # fmt: skip
