"""A schedule on a mesh, on transports: its local steps made ready, its ranks called or launched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from axe_eq.errors import DeviceError
from axe_eq.program.nesting import unflatten
from axe_eq.run.call import fitting

if TYPE_CHECKING:
    from axe_eq.mesh.transport import Transport
    from axe_eq.run.executable import Schedule
    from axe_eq.run.launch import Launched
    from axe_eq.schedule.graph import ScheduleGraph


def found(transport: str | Transport, known: Mapping[str, Transport]) -> Transport:
    """A transport, or the known one of a name.

    Raises:
        DeviceError: no installed pack has one of that name.
    """
    from axe_eq.mesh.transport import find_transport

    return find_transport(transport, known) if isinstance(transport, str) else transport


def on(schedule: Schedule, transport: Transport) -> Any:
    """This process's rank of the plan, or all; see `Executable.on`."""
    from axe_eq.mesh.rank import LOCAL_FAMILY, local_steps
    from axe_eq.run.ranks import OnRank, OnRanks

    plan = schedule.plan
    session = transport.open(plan.n_ranks)
    if plan.seen and transport.on_device and not hasattr(session, "windows"):
        wrong = f"lets no device see another one's {', '.join(sorted(plan.seen))}"
        hint = "a plan for messages is compiled for target.replace(links=) of links without wait_s"
        raise DeviceError(f"transport {transport.name!r}", wrong, "one that does", hint=hint)

    def local() -> Mapping[str, Any]:
        if not transport.on_device:
            return local_steps(plan, schedule.runner(LOCAL_FAMILY).prepare)
        load = schedule.runner(schedule.target.family).load
        return {name: load(code) for name, code in local_codes(schedule).items()}

    if transport.one_process:
        return OnRanks(schedule.call, plan, schedule.constants, local, session)
    return OnRank(schedule.call, plan, schedule.constants, local(), session)


def local_codes(schedule: Schedule) -> Mapping[str, bytes]:
    """Machine code of every local step by its name; kept with the schedule.

    Raises:
        DispatchError, EmitError, ScheduleError: the target cannot run one.
        DeviceError: the target has no machine code, or its compiler is missing.
    """
    from axe_eq.mesh.rank import local_steps

    if schedule.codes is not None:
        return schedule.codes
    runner, made = schedule.runner(schedule.target.family), dict[str, bytes]()
    if not hasattr(runner, "compile"):
        wrong = "has no machine code, which ranks on devices run"
        raise DeviceError(f"target {schedule.target.name!r}", wrong, "a target of devices")

    def compiled(graph: ScheduleGraph) -> bytes:
        text = graph.to_json()
        if text not in made:
            made[text] = runner.compile(graph, schedule.target)
        return made[text]

    schedule.codes = local_steps(schedule.plan, compiled)
    return schedule.codes


def launched(
    schedule: Schedule, transport: Transport, arrays: Sequence[Any], named: Mapping[str, Any]
) -> Launched:
    """Run the plan on whole arrays in a process per device; see `Executable.launch`."""
    from axe_eq.run.launch import launch, launch_together

    call = schedule.call
    plain = call.plain(call.positional(arrays, named))
    with fitting(extents := call.extents(plain)):
        schedule = schedule.bind(**extents)
    if transport.one_process:
        return launch_together(on(schedule, transport), call.nest(plain))
    codes = local_codes(schedule) if transport.on_device else None
    given = [*plain, *schedule.constants.values()]
    made = launch(schedule.plan, given, transport, schedule.target.family, codes)
    return replace(made, outputs=unflatten(call.structure, made.outputs))
