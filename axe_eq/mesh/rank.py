"""One rank of a mesh plan: its memory, and what its steps do to it. Transports are elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from axe_eq.mesh.memory import last_uses
from axe_eq.mesh.plan import MeshPlan
from axe_eq.mesh.steps import ExchangeStep, LocalStep
from axe_eq.program.types import DTYPES, Array
from axe_eq.schedule.graph import ScheduleGraph

Run = Callable[[Sequence[Array]], Sequence[Array]]
Prepare = Callable[[ScheduleGraph], Run]
LOCAL_FAMILY = "cpu"  # whose runner runs local steps


class Locals:
    """The local steps of a plan, made ready once for all ranks of a process."""

    def __init__(self, plan: MeshPlan, prepare: Prepare) -> None:
        self._ready = {
            s.name: prepare(s.graph) for s in plan.steps if isinstance(s, LocalStep)
        }  # fmt: skip

    def run(self, step: LocalStep, arrays: Sequence[Array]) -> Sequence[Array]:
        """A local step on one rank's parts."""
        return self._ready[step.name](arrays)


class Rank:
    """A rank's flat memory of every buffer that is alive.

    Attributes:
        plan: what all ranks do.
        rank: its number.
        sent: exchange -> bytes that were sent, as a transport counted them.
    """

    def __init__(self, plan: MeshPlan, rank: int, local: Locals) -> None:
        self.plan, self.rank, self.local = plan, rank, local
        self.memory: dict[str, Array] = {}
        self.sent: dict[str, int] = {}
        self._last = last_uses(plan)

    def bring(self, shards: Mapping[str, Array]) -> None:
        """Take the parts of the inputs, dense and in their local shapes."""
        self.memory = {n: np.array(a, order="C", copy=True).reshape(-1) for n, a in shards.items()}
        self.sent = {}

    def allocate(self, step: ExchangeStep) -> Array:
        """Memory for what an exchange makes; empty on ranks that get nothing."""
        name = step.write.buffer
        holder = self.plan.side(name)
        n = holder.n_elements if self.rank in holder.devices else 0
        dtype = DTYPES[self.plan.buffers[name].value_type.dtype].numpy
        self.memory[name] = np.zeros(n, dtype)
        return self.memory[name]

    def reads(self, step: ExchangeStep) -> list[Array]:
        """Memory of what an exchange reads."""
        return [self.memory[a.buffer] for a in step.reads]

    def keep(self, step: ExchangeStep) -> None:
        """Make the buffer of an exchange, with what this rank has of it itself."""
        step.messages.start(self.rank, self.reads(step), self.allocate(step))

    def compute(self, step: LocalStep) -> None:
        """Run a local step, where this rank takes part."""
        if self.rank not in step.ranks:
            for name in step.writes:
                dtype = DTYPES[self.plan.buffers[name].value_type.dtype].numpy
                self.memory[name] = np.zeros(0, dtype)
            return
        given = [self.memory[n].reshape(self.plan.local_type(n).shape) for n in step.reads]
        for name, array in zip(step.writes, self.local.run(step, given), strict=True):
            self.memory[name] = np.ascontiguousarray(array).reshape(-1)

    def forget(self, number: int) -> None:
        """Let go of buffers that no step after this one reads."""
        for name in [n for n in self.memory if self._last.get(n, number) <= number]:
            del self.memory[name]

    def results(self) -> list[Array]:
        """This rank's parts of the outputs, in their local shapes."""
        found = zip(self.plan.outputs, self.plan.result_types, strict=True)
        return [self.memory[name].reshape(type_.shape) for name, type_ in found]


def part_of(plan: MeshPlan, name: str, value: Any, rank: int) -> Array:
    """A rank's part of a whole array, dense, in its local shape."""
    return plan.side(name).scatter(np.asarray(value), rank).reshape(plan.local_type(name).shape)


def whole_of(plan: MeshPlan, name: str, parts: Sequence[Array]) -> Array:
    """The whole array of all ranks' parts; of copies, the lowest rank's."""
    type_, holder = plan.buffers[name].value_type, plan.side(name)
    value = np.zeros(type_.shape, DTYPES[type_.dtype].numpy)
    for rank in reversed(holder.devices.tolist()):
        mine = holder.held_by(rank)
        value[mine] = parts[rank].reshape(-1)[holder.addresses[mine]]
    return value
