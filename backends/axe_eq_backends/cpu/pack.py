"""The pack of the CPU: its target, its schedules and its runner."""

from __future__ import annotations

from axe_eq.pack import Later, Pack
from axe_eq_backends.cpu.cost import SCHEDULES
from axe_eq_backends.cpu.target import cpu

PACK = Pack(
    "cpu",
    summary="the CPU: schedule graphs run in numpy through their layouts",
    targets={cpu.name: cpu},
    schedules=list(SCHEDULES),
    runners={cpu.family: Later("axe_eq_backends.cpu.run:RUNNER")},
    interpreters={cpu.family: Later("axe_eq_backends.cpu.interpret:INTERPRETER")},
)
