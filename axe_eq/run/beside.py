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
from axe_eq.schedule.meeting import meeting_of

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
    plan: MeshPlan, interpret: Interpret, calls: Sequence[Sequence[Array]], order: int = 0
) -> list[list[Array]]:
    """The outputs of calls of a plan: every rank on a device of its own, all at the same time.

    What crosses links by messages comes when all ranks have come there, and tells all of them what
    the others knew. Calls that follow each other take two memories in turns, as on the machine.

    Args:
        plan: proved.
        interpret: runs a local step.
        calls: per call whole inputs and constants.
        order: which of the orders of what machines leave open.

    Raises:
        KernelFault: a race between devices, or devices that wait for each other.
        ScheduleError: copies of one part of an output differ.
    """
    n = plan.n_ranks
    devices = Devices(n, order)
    each = [Device(devices, rank) for rank in range(n)]
    turns = [memories(plan), memories(plan)]
    made = [
        {
            name: Memory([m[name] for m in every], there=name not in map(plan.root, plan.stored))
            for name in every[0]
        }
        for every in turns
    ]
    messages = Simulation(plan, lambda graph: lambda arrays: arrays)

    def ranks_of(number: int) -> list[Rank]:
        turn, ranks = number % 2, []
        for rank, device in enumerate(each):
            shared = {name: Shared(m, rank) for name, m in made[turn].items()}
            for b in plan.buffers.values():
                if b.across:
                    place = plan.across(b.name).begins[rank]
                    shared[b.name] = Shared(made[turn][b.within], *place)
                elif b.name in plan.signals and b.name not in plan.seen:
                    shared[b.name] = Shared(made[turn - 1][meeting_of(b.name)], rank)
            local = _Locals(device, shared, interpret, order)
            ranks.append(Rank(plan, rank, local, HOST, _Seeing(plan, rank, turns[turn])))
        return ranks

    every = [ranks_of(number) for number in range(len(calls))]

    def work(rank: int) -> None:
        for ranks, arrays in zip(every, calls, strict=True):
            mine, named = ranks[rank], zip(plan.inputs, arrays, strict=True)
            mine.bring({name: part_of(plan, name, a, rank) for name, a in named})
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
    return [messages.outputs(ranks) for ranks in every]
