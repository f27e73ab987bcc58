"""Emitted kernels on the CPU: what a device would compute, without one.

Every step of a schedule graph is lowered, planned and run by its family's interpreter on the values
of its buffers, races and stray accesses included; see `axe_eq.kernel.threads.interp`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

import numpy as np

from axe_eq.debug import progress
from axe_eq.errors import ArgumentError, ScheduleError
from axe_eq.pack import Pack
from axe_eq.program.meaning import of_their_own
from axe_eq.program.types import Array, bits_of
from axe_eq.schedule.contents import not_held, same, shared
from axe_eq.schedule.graph import KernelStep, Launch, MoveStep, ScheduleGraph, SpmdStep
from axe_eq.target import Target

if TYPE_CHECKING:
    from axe_eq.kernel.devices import Device
    from axe_eq.mesh.plan import MeshPlan


class Interpreter(Protocol):
    """What a target family brings to run its lowered kernels without the machine."""

    def run(
        self,
        step: KernelStep | MoveStep,
        graph: ScheduleGraph,
        target: Target,
        arrays: Mapping[str, Array],
        order: int = 0,
    ) -> Mapping[str, Array]:
        """Lower one step and run it.

        Args:
            step: a kernel or a move.
            graph: the schedule graph that it stands in.
            target: the machine.
            arrays: the value of every buffer that it reads, in its logical shape.
            order: which order of what the machine leaves open (threads, asynchronous effects); a
                right kernel computes the same in all of them.

        Returns:
            The value of every buffer that it writes.

        Raises:
            AxeError: it cannot be lowered, or does what no kernel may (a race, a stray access).
        """


class DeviceInterpreter(Interpreter, Protocol):
    """An interpreter of a family whose kernels may wait for other devices themselves."""

    def on(self, device: Device) -> Interpreter:
        """The interpreter of one of the devices that are interpreted together."""


class CallInterpreter(Interpreter, Protocol):
    """An interpreter of a family whose emitter joins kernels to calls."""

    def call(
        self, launch: Launch, graph: ScheduleGraph, target: Target, arrays: Mapping[str, Array]
    ) -> Mapping[str, Array]:
        """Run the kernels of a launch as the one that they are; as `run` otherwise."""


def interpreter_of(packs: Iterable[Pack], family: str) -> Interpreter | None:
    """The interpreter of a target family in these packs; None where there is none."""
    found = {f: i for pack in packs for f, i in pack.interpreters.items()}
    return found.get(family)


def check_shared(graph: ScheduleGraph, arrays: Mapping[str, Array]) -> None:
    """Refuse arrays that no memory holds, for their layouts put several elements at one address.

    Raises:
        ArgumentError: an array with different elements there.
    """
    for name in graph.inputs:
        layout, array = graph.buffers[name].layout, arrays[name]
        if not same(shared(array, layout), array):
            raise not_held(name, f"its layout {layout}")


def interpret_graph(
    graph: ScheduleGraph,
    target: Target,
    interpreter: Interpreter,
    inputs: Mapping[str, Array],
    orders: int = 1,
) -> list[Array]:
    """The outputs of a schedule, step by step on the interpreter, as arrays of their own.

    Args:
        graph: of one device.
        target: its machine.
        interpreter: of its family.
        inputs: arrays of inputs and constants, by buffer.
        orders: so many orders of every step are run; all must give the same bits.

    Raises:
        ArgumentError: `orders` is no positive integer.
        ScheduleError: two orders of a kernel give other results.
        AxeError: what a kernel does wrong.
    """
    _check_orders(orders)
    return _interpreted(graph, target, interpreter, inputs, range(orders))


def _interpreted(
    graph: ScheduleGraph,
    target: Target,
    interpreter: Interpreter,
    inputs: Mapping[str, Array],
    orders: range,
) -> list[Array]:
    held = dict(inputs)
    for number, step in enumerate(graph.calls):
        if isinstance(step, SpmdStep):
            raise ScheduleError(
                f"step {step.name}", "is for the devices of a mesh", "a graph for one device"
            )
        reads = {a.buffer: held[a.buffer] for a in graph.accesses(step)[0]}
        progress.at(f"step {number + 1} of {len(graph.calls)}: {step.name}")
        if isinstance(step, Launch):  # which an emitter's family has alone
            held |= cast("CallInterpreter", interpreter).call(step, graph, target, reads)
            continue
        made = interpreter.run(step, graph, target, reads, orders[0])
        for order in orders[1:]:
            progress.at(f"step {number + 1} of {len(graph.calls)}: {step.name}, order {order}")
            _check_same(step, made, interpreter.run(step, graph, target, reads, order), order)
        held |= made
    return of_their_own((held[name] for name in graph.outputs), inputs.values())


def interpret_plan(
    plan: MeshPlan,
    target: Target,
    interpreter: Interpreter,
    inputs: Mapping[str, Array],
    orders: int = 1,
) -> list[Array]:
    """The outputs of a plan on a mesh: every rank's kernels on the interpreter, messages copied.

    Args:
        plan: proved.
        target: the machine of a device.
        interpreter: of its family.
        inputs: whole arrays of inputs and constants, by buffer.
        orders: as for a graph of one device.

    Raises:
        ArgumentError: `orders` is no positive integer.
        ScheduleError: two orders of a kernel give other results, or copies of an output differ.
        AxeError: what a kernel does wrong.
    """
    from axe_eq.mesh.simulate import Simulation
    from axe_eq.run.beside import beside

    if plan.signals:

        def local(graph: ScheduleGraph, arrays: Sequence[Array], order: int, device: Any) -> Any:
            held = dict(zip(graph.inputs, arrays, strict=True))
            own = cast("DeviceInterpreter", interpreter).on(device)
            return _interpreted(graph, target, own, held, range(order, order + 1))

        _check_orders(orders)
        given = [inputs[name] for name in plan.inputs]
        found = [beside(plan, local, [given], order)[0] for order in range(orders)]
        for other, made in enumerate(found[1:], 1):
            for number, (one, two) in enumerate(zip(found[0], made, strict=True)):
                if one.tobytes() != two.tobytes():
                    wrong = f"differs in order {other}"
                    raise ScheduleError(f"output {number}", wrong, "the same in every order")
        return found[0]

    def prepared(graph: ScheduleGraph) -> Callable[[Sequence[Array]], list[Array]]:
        def run(arrays: Sequence[Array]) -> list[Array]:
            held = dict(zip(graph.inputs, arrays, strict=True))
            return _interpreted(graph, target, interpreter, held, range(orders))

        return run

    _check_orders(orders)
    return Simulation(plan, prepared)([inputs[name] for name in plan.inputs])


def _check_orders(orders: int) -> None:
    if type(orders) is not int or orders < 1:
        raise ArgumentError(f"orders={orders!r}", "is no number of orders", "1 or more")


def _check_same(
    step: KernelStep | MoveStep, first: Mapping[str, Array], other: Mapping[str, Array], order: int
) -> None:
    for name, value in first.items():
        differ = np.argwhere(bits_of(value) != bits_of(other[name]))
        if differ.size:
            at = tuple(int(i) for i in differ[0])
            values = f"{value[at]} and in order {order} {other[name][at]}"
            raise ScheduleError(f"kernel {step.name}", f"gives {values} at {at} of {name}",
                                "the same in every order")  # fmt: skip
