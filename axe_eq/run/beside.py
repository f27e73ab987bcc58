"""Plans whose kernels wait for other devices themselves: all ranks interpreted in one run."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from axe_eq.kernel.devices import Device, Devices, Memory, Shared
from axe_eq.mesh.plan import MeshPlan
from axe_eq.mesh.rank import HOST, Locals, Rank, part_of
from axe_eq.mesh.simulate import Sight, Simulation, memories
from axe_eq.mesh.steps import ExchangeStep, LocalStep
from axe_eq.program.types import Array
from axe_eq.schedule.graph import ScheduleGraph

# A local step's graph, its arrays, the order, and the device that runs it.
Interpret = Callable[[ScheduleGraph, Sequence[Array], int, Device], Sequence[Array]]


class _Locals(Locals):
    """The local steps of a rank, interpreted on memory that all see."""

    def __init__(
        self, device: Device, shared: Mapping[str, Shared], interpret: Interpret, order: int
    ) -> None:
        super().__init__({})
        self._device, self._shared = device, shared
        self._interpret, self._order = interpret, order

    def run(self, step: LocalStep, arrays: Sequence[Any], into: Sequence[Any]) -> Sequence[Any]:
        """A local step, on the rank's device."""
        graph, names = step.graph, (*step.reads, *step.writes)
        pairs = zip((*graph.inputs, *graph.outputs), names, strict=True)
        self._device.shared = {n: self._shared[x] for n, x in pairs if x in self._shared}
        return self._interpret(graph, arrays, self._order, self._device)


class _Seeing(Sight):
    """Kernels store themselves: there is nothing left to be stored behind them."""

    def store(self, name: str) -> None:
        """Nothing."""


def beside(
    plan: MeshPlan, interpret: Interpret, arrays: Sequence[Array], order: int = 0
) -> list[Array]:
    """The outputs of a plan: every rank on a device of its own, all at the same time.

    What crosses links by messages comes when all ranks have come there, and tells all of them what
    the others knew.

    Args:
        plan: proved.
        interpret: runs a local step.
        arrays: whole inputs and constants.
        order: which of the orders of what machines leave open.

    Raises:
        KernelFault: a race between devices, or devices that wait for each other.
        ScheduleError: copies of one part of an output differ.
    """
    n = plan.n_ranks
    every, devices = memories(plan), Devices(n, order)
    made = {
        name: Memory([m[name] for m in every], there=name not in map(plan.root, plan.stored))
        for name in every[0]
    }
    ranks = []
    for rank in range(n):
        shared = {name: Shared(m, rank) for name, m in made.items()}
        for b in plan.buffers.values():
            if b.across:
                shared[b.name] = Shared(made[b.within], *plan.across(b.name).begins[rank])
        local = _Locals(Device(devices, rank), shared, interpret, order)
        ranks.append(Rank(plan, rank, local, HOST, _Seeing(plan, rank, every)))
        named = zip(plan.inputs, arrays, strict=True)
        ranks[-1].bring({name: part_of(plan, name, a, rank) for name, a in named})
    messages = Simulation(plan, lambda graph: lambda arrays: arrays)

    def work(rank: int) -> None:
        mine = ranks[rank]
        for number, step in enumerate(plan.steps):
            mine.alone(step)
            if isinstance(step, ExchangeStep) and plan.is_carried(step):
                if step.write.buffer in plan.awaited:
                    mine.memory[step.write.buffer] = mine.around(step.write.buffer)
                else:
                    done = partial(messages.exchange, step, ranks)
                    devices.meet(rank, f"all to come to {step.name}", done)
            mine.forget(number)

    devices.run([partial(work, rank) for rank in range(n)])
    return messages.outputs(ranks)
