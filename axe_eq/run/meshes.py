"""A schedule on a mesh, on transports: its local steps made ready, its ranks called or launched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from axe_eq.errors import DeviceError, DispatchError, ScheduleError
from axe_eq.program.nesting import unflatten
from axe_eq.run.call import fitting

if TYPE_CHECKING:
    from axe_eq.mesh.plan import MeshPlan
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

    plan = _plan(schedule, transport)
    session = transport.open(plan.n_ranks)

    def local() -> Mapping[str, Any]:
        if not transport.on_device:
            return local_steps(plan, schedule.runner(LOCAL_FAMILY).prepare)
        load = schedule.runner(schedule.target.family).load
        return {name: load(code) for name, code in _codes(schedule, plan).items()}

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

    schedule.codes = codes = local_steps(schedule.plan, compiled)
    with suppress(DispatchError, ScheduleError):  # a kernel that is none where all lies dense
        codes |= local_steps(schedule.plan.apart, compiled)
    return codes


def _plan(schedule: Schedule, transport: Transport) -> MeshPlan:
    """The plan that ranks of a transport go through: with messages where devices see nothing."""
    plan = schedule.plan
    if not transport.on_device:
        return plan.silent  # no kernel of the target runs
    return plan if getattr(transport, "sees", False) else plan.apart


def _codes(schedule: Schedule, plan: MeshPlan) -> dict[str, bytes]:
    """Machine code of a plan's local steps.

    Raises:
        DeviceError: there is none of what devices run that see no other's memory.
    """
    from axe_eq.mesh.steps import LocalStep

    known, names = local_codes(schedule), [s.name for s in plan.steps if isinstance(s, LocalStep)]
    if lacking := [n for n in names if n not in known]:
        wrong = f"has no code of {lacking[0]!r}, which devices run that see no other's memory"
        hint = "a target whose links have no wait_s, as target.replace(links=) gives one"
        raise DeviceError("plan", wrong, "a transport whose devices do", hint=hint)
    return {n: known[n] for n in names}


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
    plan = _plan(schedule, transport)
    codes = _codes(schedule, plan) if transport.on_device else None
    given = [*plain, *schedule.constants.values()]
    made = launch(plan, given, transport, schedule.target.family, codes)
    return replace(made, outputs=unflatten(call.structure, made.outputs))
