"""Runs schedule graphs on the CPU, step by step, on flat buffers addressed through layouts.

Every step reads and writes through the layouts of its own accesses; a buffer's own layout is only
used to bring arguments in and results out. Temporaries lie in one arena of bytes, where the memory
plan puts them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

from axe_eq.debug import switches
from axe_eq.errors import ArgumentError, ScheduleError
from axe_eq.program.meaning import array_type
from axe_eq.program.types import DTYPES, Array, value_type
from axe_eq.schedule.box import UNIT_LETTERS
from axe_eq.schedule.contents import may_alias, not_held
from axe_eq.schedule.graph import Access, BufferSpec, KernelStep, MoveStep, ScheduleGraph, SpmdStep
from axe_eq.schedule.memory import ALIGNMENT_BYTES, MemoryPlan, buffer_elements, plan
from axe_eq.schedule.window import flattened
from axe_eq.target import Target
from axe_eq_backends.cpu.flat import Coverage, View
from axe_eq_backends.cpu.kernel import Kernel

# Multiply-adds of a product that several threads share well: half a millisecond on one core.
LARGE_TILE = 1 << 25
UNITS = frozenset(UNIT_LETTERS)
KINDS = ("load", "cell", "gather", "scan")

Run = Callable[[Sequence[Array]], list[Array]]


class CpuRunner:
    """The runner of family "cpu"; it runs graphs chosen for any single-device target."""

    def present(self, target: Target) -> bool:
        """Whether this machine is such a target: every machine has a CPU."""
        return True

    def prepare(self, graph: ScheduleGraph) -> Run:
        """Check a graph once; the result runs it on arrays, one per input, in order.

        Raises:
            ScheduleError: the graph cannot run here.
        """
        return _Prepared(graph)


RUNNER = CpuRunner()


def run_schedule(graph: ScheduleGraph, arrays: Sequence[Array]) -> list[Array]:
    """Run a schedule graph.

    Args:
        graph: a graph for one device.
        arrays: one per name of `graph.inputs`, of its type.

    Returns:
        One C-contiguous array per name of `graph.outputs`.

    Raises:
        ArgumentError: arrays that do not fit the inputs.
        ScheduleError: the graph is not valid, or asks for what this executor does not do.
    """
    return RUNNER.prepare(graph)(arrays)


class _Prepared:
    """A graph with its texts read, its memory planned and its accesses checked."""

    def __init__(self, graph: ScheduleGraph) -> None:
        for step in graph.steps:
            if isinstance(step, SpmdStep):
                raise ScheduleError(f"step {step.name}", "is for the devices of a mesh",
                                    "a graph for one device")  # fmt: skip
        _check_names(graph)
        self.graph = graph = flattened(graph)
        self.memory: MemoryPlan = plan(graph)
        for kernel in graph.kernels:
            _check_kernel(kernel)
        self.kernels = {k.name: Kernel(k) for k in graph.kernels}

    def __call__(self, arrays: Sequence[Array]) -> list[Array]:
        """Run on arrays, one per input."""
        flats = self._allocate()
        self._bring_in(flats, arrays)
        with np.errstate(all="ignore"):
            for step in self.graph.steps:
                if isinstance(step, KernelStep):
                    self._kernel(step, flats)
                elif isinstance(step, MoveStep):
                    self._move(step, flats)
        results = [self._bring_out(flats, name) for name in self.graph.outputs]
        types = self.graph.output_types()
        return [r.reshape(t.shape) for r, t in zip(results, types, strict=True)]

    # -- buffers ----------------------------------------------------------------------------------

    def _allocate(self) -> dict[str, Array]:
        arena = _aligned_bytes(self.memory.arena_bytes)
        flats: dict[str, Array] = {}
        for name, buffer in self.graph.buffers.items():
            dtype = DTYPES[buffer.value_type.dtype].numpy
            count = buffer_elements(buffer.layout)
            if name in self.memory.offsets:
                begin = self.memory.offsets[name]
                flats[name] = arena[begin : begin + count * dtype.itemsize].view(dtype)
            else:
                flats[name] = np.empty(count, dtype)
        return flats

    def _bring_in(self, flats: Mapping[str, Array], arrays: Sequence[Array]) -> None:
        names = self.graph.inputs
        if len(arrays) != len(names):
            raise ArgumentError(
                "arguments", f"got {len(arrays)} arrays", f"{len(names)} ({', '.join(names)})"
            )
        for name, array in zip(names, arrays, strict=True):
            buffer = self.graph.buffers[name]
            given = np.asarray(array)
            if str(found := array_type(given)) != buffer.type:
                raise ArgumentError(f"argument {name!r}", f"is {found}", buffer.type)
            view = _own_view(flats[name], buffer, given.shape)
            view.write(view.everything, given)
            if may_alias(buffer.layout) and not view.holds(given):
                raise not_held(name, f"its layout {buffer.layout}")

    def _bring_out(self, flats: Mapping[str, Array], name: str) -> Array:
        buffer = self.graph.buffers[name]
        view = _own_view(flats[name], buffer, buffer.value_type.shape)
        return np.array(view.read(view.everything), order="C", copy=True)

    # -- steps ------------------------------------------------------------------------------------

    def _kernel(self, step: KernelStep, flats: Mapping[str, Array]) -> None:
        reads = {
            number: _view(step.name, flats, step.reads[node.access], value_type(node.type).shape)
            for number, node in enumerate(step.nodes)
            if node.kind == "load"
        }
        writes, coverage = [], []
        for root, access in zip(step.roots, step.writes, strict=True):
            shape = value_type(step.nodes[root].type).shape
            writes.append(_view(step.name, flats, access, shape))
            if switches().check:
                place = f"step {step.name}, buffer {access.buffer!r}"
                coverage.append(Coverage(place, writes[-1], access.layout))
        # Threads that BLAS starts for a small product cost more than they bring, and on a busy
        # machine twenty times as much.
        with _threads(1 if _tile_volume(step) < LARGE_TILE else None):
            self.kernels[step.name].run(flats, reads, writes, coverage)

    def _move(self, step: MoveStep, flats: Mapping[str, Array]) -> None:
        (read,), (write,) = step.reads, step.writes
        shape = self.graph.buffers[write.buffer].value_type.shape
        source = _view(step.name, flats, read, shape)
        view = _view(step.name, flats, write, shape)
        view.write(view.everything, source.read(source.everything))


def _tile_volume(step: KernelStep) -> int:
    """Points of the index space that one block works on at a time, dims kept whole left out."""
    sizes = (min(step.parameters.get(x, n), n) for x, n in step.loops.items() if x not in UNITS)
    return math.prod(sizes)


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController()


def _threads(count: int | None) -> AbstractContextManager[Any]:
    """Let BLAS use this many threads; None leaves it alone."""
    return _blas().limit(limits=count, user_api="blas")  # type: ignore[no-any-return]


def _aligned_bytes(n_bytes: int) -> Array:
    raw = np.empty(n_bytes + ALIGNMENT_BYTES, np.uint8)
    skip = -raw.ctypes.data % ALIGNMENT_BYTES
    return raw[skip : skip + n_bytes]


def _view(step: str, flats: Mapping[str, Array], access: Access, shape: tuple[int, ...]) -> View:
    place = f"step {step}, buffer {access.buffer!r}"
    return View(place, flats[access.buffer], access.layout, shape)


def _own_view(flat: Array, buffer: BufferSpec, shape: tuple[int, ...]) -> View:
    return View(f"buffer {buffer.name!r}", flat, buffer.layout, shape)


def _check_names(graph: ScheduleGraph) -> None:
    """Every name that the graph uses is a buffer of it."""
    used = [*graph.inputs, *graph.outputs]
    used += [a.buffer for s in graph.steps for a in (*s.reads, *s.writes)]
    for name in used:
        if name not in graph.buffers:
            raise ScheduleError(f"buffer {name!r}", "is not in the graph", "a buffer")


def _check_kernel(step: KernelStep) -> None:
    """Roots, operands and loads refer to nodes and accesses that exist."""
    if len(step.roots) != len(step.writes) or not step.roots:
        raise ScheduleError(
            f"step {step.name}",
            f"has {len(step.roots)} roots and {len(step.writes)} writes",
            "one write per root",
        )
    for root in step.roots:
        if not 0 <= root < len(step.nodes):
            raise ScheduleError(f"root {root}", "is no node", f"0..{len(step.nodes) - 1}")
    for number, node in enumerate(step.nodes):
        place = f"step {step.name}, node {number}"
        if node.kind not in KINDS:
            raise ScheduleError(place, f"is a {node.kind!r}", " or ".join(KINDS))
        if any(not 0 <= o < number for o in node.operands):
            raise ScheduleError(place, f"has operands {node.operands}", "earlier nodes")
        if node.kind == "load" and not 0 <= node.access < len(step.reads):
            raise ScheduleError(
                f"step {step.name}",
                f"loads through access {node.access}",
                f"one of its {len(step.reads)} reads",
            )
