"""A program on one device: its kernels loaded, and launches prepared per stream and memory.

One kernel is one launch; several are one launch of a CUDA graph, whose nodes are given other memory
where a call comes with it. Calls on different streams share no scratch memory, and so may run at
the same time; a call inside a capture becomes part of the caller's graph, with scratch memory that
belongs to it.
"""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import mod
from threading import Lock
from typing import Any

from axe_eq.errors import ArgumentError
from axe_eq.program.types import Array
from axe_eq_backends.cuda.arrays import Dlpack, Library, flat
from axe_eq_backends.cuda.code import Code
from axe_eq_backends.cuda.driver import (
    Memory,
    call,
    driver,
    is_capturing,
    on,
    stream_id,
    uncaptured,
    upload,
)
from axe_eq_backends.cuda.launch import Bound, Loaded, Shaped, Write

# Prepared launches that are kept per stream, one per set of addresses; and streams.
KEPT_BINDINGS, KEPT_STREAMS = 16, 8
_DEFAULT_STREAM = -1  # instead of a number: no other stream has it


class OnDevice:
    """A program's kernels on one device, and what it keeps there.

    Attributes:
        code, device: the program and where it is.
        is_one: whether a call is one launch and needs no scratch memory.
    """

    def __init__(self, code: Code, device: int) -> None:
        self.code, self.device = code, device
        loaded: dict[tuple[bytes, str], Loaded] = {}
        self._kernels: list[tuple[Shaped, Mapping[str, str | int]]] = []
        for launch in code.launches:
            which = launch.image.cubin, launch.image.name
            kernel = loaded.get(which) or Loaded(launch.image, device)
            loaded[which] = kernel
            self._kernels.append((Shaped(kernel, launch.params), launch.places))
        self.is_one = len(self._kernels) == 1 and not code.arena_bytes
        self._align = [port.align for port in code.ports.values()]
        self._wires = [
            [(n, t) for n, x in enumerate(code.launches) for t, p in x.places.items() if p == name]
            for name in code.ports
        ]
        self._constants: dict[str, Memory] = {}
        self._lanes: OrderedDict[int, _Lane] = OrderedDict()
        self._lock = Lock()  # calls of two threads on one stream must not interleave

    def constant(self, name: str, array: Array) -> int:
        """Address of a captured constant, which is copied here once."""
        with self._lock, on(self.device), uncaptured():
            if name not in self._constants:
                host = flat(self.code.ports[name], array)
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
            if binding is None:
                binding = self._unseen(pointers, lane)
            else:
                lane.bindings.move_to_end(pointers)
            binding.launch(stream)

    def _unseen(self, pointers: tuple[int, ...], lane: _Lane) -> _Binding:
        """Launches on memory that none of those kept are on: new, or the oldest moved there."""
        if len(lane.bindings) < KEPT_BINDINGS:
            binding = self._binding(pointers, lane)
        else:
            self._check_aligned(pointers)
            _, binding = lane.bindings.popitem(last=False)
            binding.move(pointers)
        lane.bindings[pointers] = binding
        return binding

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
        number = stream_id(stream) if stream and self.code.arena_bytes else _DEFAULT_STREAM
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
        bounds = self._bound(pointers, lane.arena.pointer, (lane.arena, keep))
        return _Binding(bounds, pointers, self._wires, self.device)

    def _capture(self, pointers: Sequence[int], stream: int, keep: Any = None) -> None:
        """Launch into the caller's graph, with scratch memory that the graph owns."""
        self._check_aligned(pointers)  # before the graph has memory that none would free
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
        self._check_aligned(pointers)
        known = dict(zip(self.code.ports, pointers, strict=True))
        return [
            {t: known[p] if isinstance(p, str) else arena + p for t, p in places.items()}
            for _, places in self._kernels
        ]

    def _check_aligned(self, pointers: Sequence[int]) -> None:
        """Whether addresses are aligned as the kernels need them.

        Raises:
            ArgumentError: one is not.
        """
        if not any(map(mod, pointers, self._align)):
            return
        for port, pointer in zip(self.code.ports.values(), pointers, strict=True):
            if pointer % port.align:
                raise ArgumentError(
                    f"argument {port.name!r}", f"begins at address {pointer:#x}",
                    f"a multiple of {port.align} bytes",
                )  # fmt: skip


class _Lane:
    """What calls on one stream share: scratch memory, and launches on addresses seen before."""

    def __init__(self, number: int, arena: Memory) -> None:
        self.number, self.arena = number, arena
        self.bindings: OrderedDict[tuple[int, ...], _Binding] = OrderedDict()


class _Binding:
    """The launches of a program on fixed memory: one by one at first, then as a CUDA graph.

    Args:
        bounds: the launches.
        pointers: addresses of the program's ports.
        wires: per port the tensors it is: the launch's number and the tensor's name.
        device: where.
    """

    def __init__(
        self,
        bounds: Sequence[Bound],
        pointers: Sequence[int],
        wires: Sequence[Sequence[tuple[int, str]]],
        device: int,
    ) -> None:
        self._bounds, self._pointers, self._wires = bounds, pointers, wires
        self._readers = [[number for number, _ in w] for w in wires]
        self._device, self._driver = device, driver()
        self._is_first = True
        self._graph: _Graph | None = None
        self._stale: set[int] = set()  # launches that moved and whose nodes of the graph did not
        self._writes: list[list[Write]] = []  # per port, once they are needed

    def launch(self, stream: int) -> None:
        """Launch all in order."""
        if self._graph is None:
            if self._is_first or len(self._bounds) == 1:
                self._is_first = False
                for bound in self._bounds:
                    bound.launch(stream)
                return
            self.record()
        assert self._graph is not None
        with on(self._device):
            if self._stale:
                self._graph.update(self._stale)
                self._stale.clear()
            self._graph.launch(stream)

    def move(self, pointers: Sequence[int]) -> None:
        """Be the launches on other memory."""
        if not self._writes:
            of_bound = [bound.writes() for bound in self._bounds]
            self._writes = [[w for n, t in wires for w in of_bound[n][t]] for wires in self._wires]
        for port, (before, now) in enumerate(zip(self._pointers, pointers, strict=True)):
            if before != now:
                for write in self._writes[port]:
                    write(now)
                if self._graph is not None:
                    self._stale.update(self._readers[port])
        self._pointers = pointers

    def record(self) -> None:
        """Make the graph."""
        with on(self._device):
            self._graph = _Graph(self._bounds)


class _Graph:
    """Launches one after the other as a CUDA graph."""

    def __init__(self, bounds: Sequence[Bound]) -> None:
        self._driver = cu = driver()
        self._success = cu.CUresult.CUDA_SUCCESS
        self._bounds, self._nodes = bounds, dict[int, Any]()
        # Nodes are named by the graph that they were added to: it lives as long.
        self._graph = call(cu.cuGraphCreate(0), "a graph")
        self._executable: Any = None
        last: list[Any] = []
        for number, bound in enumerate(bounds):
            if not bound.is_empty:
                last = [bound.add_to(self._graph, last)]
                self._nodes[number] = last[0]
        self._executable = call(cu.cuGraphInstantiate(self._graph, 0), "a graph")

    def launch(self, stream: int) -> None:
        """Enqueue on a stream."""
        (result,) = self._driver.cuGraphLaunch(self._executable, stream)
        if result != self._success:
            call((result, None), "launch of a graph")

    def update(self, numbers: Iterable[int]) -> None:
        """Take the parameters that some launches have now; the graph's own so far have theirs."""
        for number in numbers:
            if (node := self._nodes.get(number)) is not None:
                self._bounds[number].update(self._executable, node)

    def __del__(self) -> None:
        if not sys.is_finalizing():
            if self._executable is not None:
                self._driver.cuGraphExecDestroy(self._executable)
            self._driver.cuGraphDestroy(self._graph)


def _launching(bound: Bound, library: Library) -> Callable[[], None]:
    """Launch on the stream the library is on then."""
    launch, stream = bound.launch, library.stream
    if isinstance(library, Dlpack):

        def waiting() -> None:
            launch(stream())
            library.finish()

        return waiting
    return lambda: launch(stream())
