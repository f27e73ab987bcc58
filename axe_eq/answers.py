"""What a search found, as data: what a worker answers, and what the cache keeps.

A worker explains what it found before it ends. The cache keeps explanations apart: to say what a
schedule was compared with takes longer than to find it again, and few ask.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from axe_eq.debug import Report, StageRecord, say
from axe_eq.pack import Pack
from axe_eq.program.node import Program
from axe_eq.run.executable import Executable
from axe_eq.run.rebind import Compare
from axe_eq.schedule.graph import from_json
from axe_eq.target import Target


def as_answer(exe: Executable) -> dict[str, Any]:
    """What a search found, as JSON data; not what else it knows, which `explain` says."""
    return {
        "schedule": exe.schedule.graph.to_json(),
        "matches": exe.matches,
        "stages": [asdict(s) for s in exe.report.stages if s.name != "trace"],  # is never skipped
    }


def from_answer(
    found: Mapping[str, Any],
    program: Program,
    machine: Target,
    used: Sequence[Pack],
    numerics: str,
    report: Report,
    differ: Compare,
    again: Callable[[], Executable] | None = None,
) -> Executable:
    """The executable of a search that ran elsewhere or earlier."""
    return Executable(
        program, from_json(found["schedule"]), machine, tuple(used), numerics, report, None,
        found["matches"], found.get("explanation"), again, differ=differ,
    )  # fmt: skip


def from_cache(
    found: Mapping[str, Any],
    program: Program,
    machine: Target,
    used: Sequence[Pack],
    numerics: str,
    report: Report,
    differ: Compare,
    again: Callable[[], Executable] | None,
) -> Executable:
    """The executable of a search that ran earlier: its stages took no time now, and say so."""
    exe = from_answer(found, program, machine, used, numerics, report, differ, again)
    cached = [
        StageRecord(**{**s, "seconds": 0.0, "notes": {**s["notes"], "cached": True}})
        for s in found["stages"]
    ]
    report.stages += cached
    for stage_ in cached:
        say(1, str(stage_))
    return exe
