"""What a search is asked for, as one value: to be told apart, sent to a worker, and answered."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from axe_eq.debug import Report, switches
from axe_eq.errors import DeviceError, PackError
from axe_eq.extract.price.pricer import Pricer
from axe_eq.extract.search.stage import Extracted
from axe_eq.layout import Mesh
from axe_eq.pack import Pack
from axe_eq.pack import packs as find_packs
from axe_eq.pipeline.requests import settled
from axe_eq.program.node import Program
from axe_eq.program.store import Stored, stored
from axe_eq.prove.programs.agree import disagreement
from axe_eq.run.corrections import corrected
from axe_eq.run.executable import Executable
from axe_eq.run.fingerprint import program_key
from axe_eq.run.timing import device_of
from axe_eq.schedule.graph import ScheduleGraph
from axe_eq.target import Target

if TYPE_CHECKING:
    from axe_eq.pipeline.on_mesh import Plans

_ALIKE = 0.7  # of the letters of a machine's name, so that it is suggested


@dataclass(frozen=True)
class Job:
    """A program, and all that the choice of its schedule depends on.

    Attributes:
        program: what is compiled.
        target: the machine.
        packs: whose laws and schedules may be used.
        without: laws and packs that are left out.
        numerics: "real" or "exact".
        mesh: devices; None for one.
        tune: whether candidates are measured on the device, or for how many seconds.
        objective: what is to be least: "time", or on a mesh a cost of plans.
    """

    program: Program
    target: Target
    packs: tuple[Pack, ...]
    without: tuple[str, ...] = ()
    numerics: str = "real"
    mesh: Mesh | None = None
    tune: bool | float = False
    objective: str = "time"

    @property
    def key(self) -> str | None:
        """Text of everything that the choice depends on; None where it cannot be told."""
        text = program_key(
            self.program, self.target, self.mesh, self.packs, self.without, self.numerics
        )
        if text is None:
            return None
        tuned = f" tuned on {device_of(self.runner())}" if self.tune else ""
        return f"{text} for {self.objective}{tuned}"

    def runner(self) -> Any:
        """The runner of the target's family.

        Raises:
            DeviceError: there is none.
        """
        runners = {f: r for p in (*find_packs(), *self.packs) for f, r in p.runners.items()}
        if self.target.family not in runners:
            wrong = f"no runner for {self.target.family!r}"
            raise DeviceError(f"target {self.target.name!r}", wrong, " ".join(sorted(runners)))
        return runners[self.target.family]

    def pricer(self) -> Pricer:
        """What prices kernels on the target, by the schedules of the packs."""
        schedules = [s for pack in self.packs for s in pack.schedules]
        return Pricer(self.target, schedules, rounds=self.numerics == "exact")

    def executable(
        self,
        schedule: ScheduleGraph,
        report: Report,
        matches: Mapping[str, int],
        found: Extracted | Plans | None = None,
        explanation: str | None = None,
        again: Callable[[], Executable] | None = None,
    ) -> Executable:
        """The program with a schedule that was chosen for it; see `Executable`."""
        return Executable(
            settled(self.program, schedule), schedule, self.target, self.packs, self.numerics,
            report, found, matches, explanation, again,
            differ=partial(disagreement, numerics=self.numerics, packs=self.packs),
        )  # fmt: skip

    def __reduce__(self) -> tuple[Any, ...]:
        """For another process: without the values of constants, which choose nothing."""
        constants = dict.fromkeys(self.program.constants, np.empty(0, np.bool_))
        program = stored(replace(self.program, constants=constants))
        given = (getattr(self, f.name) for f in fields(self) if f.name != "program")
        return _received, (program, *given)


def _received(program: Stored, *given: Any) -> Job:
    return Job(program.program, *given)


def _likely(target: object, machines: Mapping[str, Target]) -> str:
    """Machines of a family of that name, or whose names are like it."""
    word = str(target).lower()
    of_family = sorted(name for name, t in machines.items() if word == t.family)
    near = get_close_matches(word, sorted(machines), 3, _ALIKE)
    return " or ".join(of_family or near)


def find_target(target: str | Target | None, known: Sequence[Pack]) -> Target:
    """The machine meant by `target`.

    Raises:
        PackError: no pack knows it.
    """
    if isinstance(target, Target):
        return target
    machines = {name: t for pack in known for name, t in pack.targets.items()}
    if target is None:
        runners = {f: (r, pack) for pack in known for f, r in pack.runners.items()}
        present = [
            # Machines of the runner's own pack come before those that others add to its family.
            (t.family == "cpu", name not in runners[t.family][1].targets, name)
            for name, t in machines.items()
            if t.family in runners and runners[t.family][0].present(t)
        ]
        target = min(present)[2] if present else "cpu"
    if target not in machines:
        known_names = f"one of {' '.join(sorted(machines))}" if machines else "a pack with targets"
        raise PackError(f"target {target!r}", "is not known", known_names,
                        hint=_likely(target, machines))  # fmt: skip
    return corrected(machines[target], switches().corrections)
