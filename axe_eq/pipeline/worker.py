"""How a search runs: without looks for garbage, or in a process that ends at the limits set."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

from axe_eq.debug import Report, StageRecord, progress, stage, switches
from axe_eq.egraph.worker import run_limited
from axe_eq.pipeline.answers import from_answer
from axe_eq.pipeline.job import Job
from axe_eq.run.executable import Executable

LEAST_GRACE_S = 5.0  # to choose from what a search found within its time; or as long again


def choose_limited(job: Job, work: str, report: Report) -> Executable:
    """The stages from saturate on, in a worker.

    Args:
        job: what is asked for.
        work: the function that does it, a job to an answer, as ``"module:name"``.
        report: of this process: the worker's stages are added.
    """
    now = switches()
    found = stage("search", lambda: run_limited(
        work, job, seconds=now.time_limit_s,
        memory_bytes=now.memory_limit_mb and now.memory_limit_mb << 20,
        grace_s=max(now.time_limit_s or 0.0, LEAST_GRACE_S), tell=progress.at,
    ), report=report, describe=lambda answer: answer["explanation"])  # fmt: skip
    report.stages += [StageRecord(**s | {"depth": s["depth"] + 1}) for s in found["stages"]]
    return from_answer(found, job, report)


@contextmanager
def collector_paused() -> Iterator[None]:
    """No look for cyclic garbage inside.

    What a search makes is nearly all alive: looking at it took a tenth of the time, in pauses of up
    to 0.2 s, and compiling needs no more memory without.
    """
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()
