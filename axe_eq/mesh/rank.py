"""One rank of a mesh plan: its memory, and what its steps do to it. Transports are elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

import numpy as np

from axe_eq.errors import ArgumentError
from axe_eq.mesh.plan import MeshPlan
from axe_eq.mesh.steps import ExchangeStep, LocalStep
from axe_eq.program.types import DTYPES, Array
from axe_eq.schedule.contents import not_held
from axe_eq.schedule.digits import Digits, digits
from axe_eq.schedule.graph import ScheduleGraph

# Arrays in, and per result where it is to be stored or None; the results.
Run = Callable[[Sequence[Any], Sequence[Any]], Sequence[Any]]
Prepare = Callable[[ScheduleGraph], Any]
LOCAL_FAMILY = "cpu"  # whose runner runs local steps where parts lie in host memory


class Memory(Protocol):
    """The library of a rank's memory: numpy, or one of arrays on a device."""

    def held(self, array: Any) -> Any:
        """A shard's memory, flat."""

    def stored(self, array: Any, memory: Any) -> Any:
        """A shard in flat memory, which is given back."""

    def zeros(self, n: int, dtype: str) -> Any:
        """Flat memory."""

    def empty(self, n: int, dtype: str) -> Any:
        """Flat memory that holds anything."""

    def part(self, memory: Any, part: Digits) -> Any:
        """A view of a part of flat memory."""

    def ready(self, made: Any) -> Run:
        """A local step that a runner made ready, as a function of this library's arrays.

        Raises:
            DeviceError: it takes none of them.
        """


class Host:
    """Numpy's memory."""

    def held(self, array: Any) -> Array:
        """A copy, flat."""
        return np.array(array, order="C", copy=True).reshape(-1)

    def stored(self, array: Any, memory: Array) -> Array:
        """A shard in flat memory."""
        memory[...] = np.asarray(array).reshape(-1)
        return memory

    def zeros(self, n: int, dtype: str) -> Array:
        """Flat memory."""
        return np.zeros(n, DTYPES[dtype].numpy)

    def empty(self, n: int, dtype: str) -> Array:
        """Flat memory that holds anything."""
        return np.empty(n, DTYPES[dtype].numpy)

    def part(self, memory: Array, part: Digits) -> Array:
        """A view of a part of flat memory."""
        steps = tuple(s * memory.itemsize for s in part.strides)
        return np.ndarray(part.shape, memory.dtype, memory, part.offset * memory.itemsize, steps)

    def ready(self, made: Any) -> Run:
        """What a runner made ready."""

        def run(arrays: Sequence[Array], into: Sequence[Array | None]) -> Sequence[Array]:
            found = made([np.asarray(a, order="C") for a in arrays])
            for array, goal in zip(found, into, strict=True):
                if goal is not None:
                    goal[...] = array.reshape(goal.shape)
            return [a if g is None else g for a, g in zip(found, into, strict=True)]

        return run


HOST = Host()


def local_steps(plan: MeshPlan, prepare: Prepare) -> dict[str, Any]:
    """The local steps of a plan by name, made ready once for all ranks of a process."""
    return {s.name: prepare(s.graph) for s in plan.steps if isinstance(s, LocalStep)}


class Locals:
    """The local steps of a plan as functions of a library's arrays."""

    def __init__(self, made: Mapping[str, Any], arrays: Memory = HOST) -> None:
        self._ready = {name: arrays.ready(one) for name, one in made.items()}

    def run(self, step: LocalStep, arrays: Sequence[Any], into: Sequence[Any]) -> Sequence[Any]:
        """A local step on one rank's parts; per result where it is stored, or None."""
        return self._ready[step.name](arrays, into)


class Windows(Protocol):
    """A rank's sight of the memory of all devices."""

    def own(self, name: str) -> Any:
        """This rank's flat memory of a buffer that all devices see, or of a meeting's last."""

    def seen(self, name: str) -> Any:
        """A buffer that lies across devices, as a runner's code takes it."""


class Rank:
    """A rank's flat memory of every buffer that is alive.

    Attributes:
        plan: what all ranks do.
        rank: its number.
        sent: exchange -> bytes that were sent, as a transport counted them.
        arriving: buffer -> what ends an exchange that a transport has begun; it is called before
            the buffer is read, so what comes between the two runs meanwhile.
        done: local steps whose results an exchange before them made, as sums on the way.
        windows: its sight of other devices' memory; where it has none, messages are copied.
        kept: buffer -> memory that a local step is to store it in.
    """

    def __init__(
        self,
        plan: MeshPlan,
        rank: int,
        local: Locals,
        arrays: Memory = HOST,
        windows: Windows | None = None,
    ) -> None:
        self.windows, self.kept = windows, dict[str, Any]()
        self.plan, self.rank, self.local, self.arrays = plan, rank, local, arrays
        self.memory: dict[str, Any] = {}
        self.sent: dict[str, int] = {}
        self.arriving: dict[str, Callable[[], None]] = {}
        self.done: set[str] = set()

    def bring(self, shards: Mapping[str, Any]) -> None:
        """Take the parts of the inputs, dense and in their local shapes."""
        self.memory = {n: self._brought(n, a) for n, a in shards.items()}
        for name in self.plan.signals:
            if self.windows is not None and not self.plan.buffers[name].across:
                self.memory[name] = self.windows.own(name)
        self.sent, self.arriving, self.done = {}, {}, set()

    def _brought(self, name: str, array: Any) -> Any:
        if self.windows is None or name not in self.plan.seen:
            return self.arrays.held(array)
        return self.arrays.stored(array, self.windows.own(name))

    def settle(self, names: Iterable[str]) -> None:
        """End the exchanges that make these buffers."""
        for name in names:
            if (finish := self.arriving.pop(name, None)) is not None:
                finish()

    def allocate(self, step: ExchangeStep) -> Any:
        """Memory for what an exchange makes; empty on ranks that get nothing."""
        name = step.write.buffer
        self.memory[name] = self.around(name)
        if self.memory[name] is None:
            self.memory[name] = self._zeros(name, self.size(name))
        return self.memory[name]

    def around(self, name: str) -> Any:
        """The memory that a buffer lies in; None where it has its own."""
        if (above := self.plan.under.get(name)) is not None:
            return self._below(above)
        if name in self.kept:
            return self.kept[name]
        if self.windows is not None and name in self.plan.seen:
            return self.windows.own(name)
        root = self.plan.buffers[name].inside
        if root and root not in self.memory:
            type_ = self.plan.buffers[root].value_type
            self.memory[root] = self.arrays.empty(self.size(root), type_.dtype)
        over = self.plan.buffers[name].over
        return self.memory[root] if root else self.memory.get(over)

    def _below(self, name: str) -> Any:
        """Where what a result is merged with lies: in the result's place; None for anywhere."""
        memory, buffer = self.around(name), self.plan.buffers[name]
        if memory is None or not buffer.inside:
            return memory
        begin = digits(buffer).offset + self.plan.side(name).begin(self.rank)
        return memory[begin : begin + self.plan.local_type(name).size]

    def alone(self, step: LocalStep | ExchangeStep) -> None:
        """Do a step that needs no messages; nothing of one that does."""
        if isinstance(step, LocalStep):
            self.compute(step)
        elif not self.plan.is_carried(step):
            self._view(step)
            self.sent[step.name] = 0

    def _view(self, step: ExchangeStep) -> None:
        """What lies where it is read: who reads it waits for what that waits for."""
        name, reads = step.write.buffer, [a.buffer for a in step.reads]
        self.memory[name] = self.memory[reads[0]]
        self.arriving[name] = partial(self.settle, reads)

    def part(self, name: str) -> Any:
        """This rank's part of a buffer, in its local shape."""
        if self._sees(name):
            assert self.windows is not None
            return self.windows.seen(name)
        if self.plan.buffers[name].inside:
            lies, begin = digits(self.plan.buffers[name]), self.plan.side(name).begin(self.rank)
            return self.arrays.part(self.memory[name], replace(lies, offset=lies.offset + begin))
        return self.memory[name].reshape(self.plan.local_type(name).shape)

    def _sees(self, name: str) -> bool:
        return self.windows is not None and self.plan.buffers[name].across

    def size(self, name: str) -> int:
        """Elements that this rank has of a buffer."""
        holder = self.plan.side(name)
        return holder.n_elements if self.rank in holder.devices else 0

    def _zeros(self, name: str, n: int) -> Any:
        return self.arrays.zeros(n, self.plan.buffers[name].value_type.dtype)

    def reads(self, step: ExchangeStep) -> list[Any]:
        """Memory of what an exchange reads."""
        self.settle(a.buffer for a in step.reads)
        return [self.memory[a.buffer] for a in step.reads]

    def keep(self, step: ExchangeStep) -> None:
        """Make the buffer of an exchange, with what this rank has of it itself."""
        step.messages.start(self.rank, self.reads(step), self.allocate(step))

    def compute(self, step: LocalStep) -> None:
        """Run a local step, where this rank takes part, unless it is done."""
        if step.name in self.done:
            return
        if self.rank not in step.ranks:
            self.memory |= {name: self._zeros(name, 0) for name in step.writes}
            return
        self.settle(step.reads)
        given, into = [self.part(n) for n in step.reads], []
        for name in step.writes:
            memory = self.around(name)
            if memory is not None or self._sees(name):
                self.memory[name] = memory
            into.append(self.part(name) if name in self.memory else None)
        made = self.local.run(step, given, into)
        for name, goal, array in zip(step.writes, into, made, strict=True):
            if goal is None:
                self.memory[name] = array.reshape(-1)

    def forget(self, number: int) -> None:
        """Let go of buffers that no step after this one reads."""
        gone = self.plan.gone[number]
        self.settle(gone)
        for name in gone:
            self.memory.pop(name, None)

    def results(self) -> list[Any]:
        """This rank's parts of the outputs, in their local shapes; zeros where it has none."""
        self.settle(self.plan.outputs)
        return [
            (self.memory[n] if self.size(n) else self._zeros(n, type_.size)).reshape(type_.shape)
            for n, type_ in zip(self.plan.outputs, self.plan.result_types, strict=True)
        ]


def part_of(plan: MeshPlan, name: str, value: Any, rank: int) -> Array:
    """A rank's part of a whole array, dense, in its local shape.

    Raises:
        ArgumentError: another shape, or the layout has elements at one place that differ.
    """
    holder, whole, type_ = plan.side(name), np.asarray(value), plan.buffers[name].value_type
    if whole.shape != type_.shape:
        raise ArgumentError(f"argument {name!r}", f"has shape {whole.shape}", str(type_))
    flat = holder.scatter(whole, rank)
    if not holder.gives(flat, whole, rank):
        raise not_held(name, f"its layout {holder.layout}")
    return flat.reshape(plan.local_type(name).shape)


def whole_of(plan: MeshPlan, name: str, parts: Sequence[Array]) -> Array:
    """The whole array of all ranks' parts; of copies, the lowest rank's."""
    type_, holder = plan.buffers[name].value_type, plan.side(name)
    value = np.zeros(type_.shape, DTYPES[type_.dtype].numpy)
    for rank in reversed(holder.devices.tolist()):
        flat = parts[rank].reshape(-1)
        for slab, mine, sums in holder.held(rank):
            value[slab][mine] = flat[holder.placed(sums)]
    return value
