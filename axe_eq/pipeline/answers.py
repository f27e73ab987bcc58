"""What searches found, as data: what a worker answers, and what is kept on disk.

A worker explains what it found before it ends. The cache keeps explanations apart: to say what a
schedule was compared with takes longer than to find it again, and few ask.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from typing import Any

from axe_eq.debug import Report, StageRecord, say, switches
from axe_eq.egraph.worker import is_limited
from axe_eq.pipeline.job import Job
from axe_eq.run.cache import Cache, key
from axe_eq.run.executable import Executable
from axe_eq.schedule.graph import from_json

PROGRAMS, EXPLANATIONS = Cache("programs"), Cache("explanations")
LEVEL_OF_SEARCH = 2  # AXE_DEBUG: from here on it shows what a search does
Search = Callable[[Report], Executable]


def as_answer(exe: Executable) -> dict[str, Any]:
    """What a search found, as JSON data; not what else it knows, which `explain` says."""
    return {
        "schedule": exe.schedule.graph.to_json(),
        "matches": exe.matches,
        "stages": [asdict(s) for s in exe.report.stages if s.name != "trace"],  # is never skipped
    }


def from_answer(
    found: Mapping[str, Any],
    job: Job,
    report: Report,
    again: Callable[[], Executable] | None = None,
) -> Executable:
    """The executable of a search that ran elsewhere or earlier."""
    schedule = from_json(found["schedule"])
    return job.executable(schedule, report, found["matches"], None, found.get("explanation"), again)


def cached(job: Job, report: Report, search: Search) -> Executable:
    """The executable of a job: from disk where a search of it is kept there, else from one now."""
    text = job.key if is_cached() else None
    if text is None:
        return search(report)
    name = key(text)
    known = PROGRAMS.read(name, lambda data: _kept(json.loads(data), job, report, search))
    if known is not None:
        known.keep = partial(_kept_explanation, name)
        return known
    made = search(report)
    if not made.stopped.startswith("time"):  # what a clock stops ends elsewhere the next time
        PROGRAMS.store(name, json.dumps(as_answer(made)).encode())
        made.keep = partial(_kept_explanation, name)
        if is_limited():
            made.explain()  # its worker did
    return made


def _kept(found: Mapping[str, Any], job: Job, report: Report, search: Search) -> Executable:
    """The executable of a search that ran earlier: its stages took no time now, and say so."""
    exe = from_answer(found, job, report, lambda: search(Report()))
    stages = [
        StageRecord(**{**s, "seconds": 0.0, "notes": {**s["notes"], "cached": True}})
        for s in found["stages"]
    ]
    report.stages += stages
    for stage in stages:
        say(1, str(stage))
    return exe


def _kept_explanation(name: str, make: Callable[[], str]) -> str:
    """The explanation of a program that the cache knows, made where nobody has asked before."""
    return EXPLANATIONS.get(name, lambda: make().encode(), bytes.decode)


def is_cached() -> bool:
    """Whether programs that were compiled before may be taken from disk.

    Whoever asks to see a search (AXE_TRACE, AXE_DEBUG from 2 on), or to have its result compared
    (AXE_CHECK = 2), gets one.
    """
    now = switches()
    return bool(now.cache) and now.trace is None and now.level < LEVEL_OF_SEARCH and now.check < 2
