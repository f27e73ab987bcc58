"""Measuring schedules where they run: seconds of a whole graph, or of one of its steps alone."""

from __future__ import annotations

import platform
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from axe_eq.errors import DeviceError
from axe_eq.program.types import DTYPES, Array, ValueType
from axe_eq.run.executable import made_ready
from axe_eq.schedule.graph import ScheduleGraph, Step
from axe_eq.target import Target

LEAST_ROUNDS, MOST_ROUNDS = 3, 25
DRAWN = 1 << 20  # elements that are drawn; longer arrays repeat them


@dataclass(frozen=True)
class Timing:
    """What a schedule took.

    Attributes:
        median_s: seconds, the median of the rounds.
        least_s, most_s: of the fastest and the slowest round.
        rounds: how many there were.
    """

    median_s: float
    least_s: float
    most_s: float
    rounds: int

    @classmethod
    def of(cls, seconds: Sequence[float]) -> Timing:
        """Of the seconds of each round."""
        return cls(statistics.median(seconds), min(seconds), max(seconds), len(seconds))


def timed(runner: Any, graph: ScheduleGraph, target: Target, budget_s: float) -> Timing:
    """Run a schedule on random arrays and say how long it takes.

    A runner with `timed(graph, target, budget_s)` measures as its machine needs it and answers with
    the seconds of every round; others are called with arrays of the host by a clock.

    Args:
        runner: of the target's family.
        graph: a schedule of one device.
        target: the machine.
        budget_s: seconds that the rounds may take together; three are run in any case.

    Raises:
        DeviceError: this machine is no such target.
    """
    if not runner.present(target):
        raise DeviceError(
            f"target {target.name!r}", "no such device is here to measure on",
            "a machine with one, or a target that is here, such as cpu",
        )  # fmt: skip
    if hasattr(runner, "timed"):
        return Timing.of(runner.timed(graph, target, budget_s))
    run = made_ready(runner, graph, target)
    arrays = random_arrays(graph)
    run(arrays)
    return Timing.of(rounds(lambda: _clocked(run, arrays), budget_s))


def device_of(runner: Any) -> str:
    """What a runner measures on, by name: figures of another device say nothing here."""
    return str(
        runner.device() if hasattr(runner, "device") else platform.processor() or platform.machine()
    )


def _clocked(run: Any, arrays: Sequence[Array]) -> float:
    began = time.perf_counter()
    run(arrays)
    return time.perf_counter() - began


def rounds(once: Any, budget_s: float) -> list[float]:
    """Seconds that `once` answers with, again and again until the budget is spent."""
    found: list[float] = []
    while len(found) < LEAST_ROUNDS or (sum(found) < budget_s and len(found) < MOST_ROUNDS):
        found.append(once())
    return found


def alone(graph: ScheduleGraph, step: Step) -> ScheduleGraph:
    """The schedule of one step: what it reads arrives, what it writes is handed back."""
    reads = tuple(dict.fromkeys(a.buffer for a in step.reads))
    writes = tuple(dict.fromkeys(a.buffer for a in step.writes))
    roles = {**dict.fromkeys(writes, "output"), **dict.fromkeys(reads, "input")}
    buffers = {name: replace(graph.buffers[name], role=role) for name, role in roles.items()}
    return ScheduleGraph(graph.target, buffers, (step,), reads, writes, time_s=step.time_s)


def random_arrays(graph: ScheduleGraph, seed: int = 0) -> list[Array]:
    """One array per input: normal floats, since zeros and small integers run faster than data.

    Integers are 0 to 3, so that those which say where an array is read are indices there.
    """
    rng = np.random.default_rng(seed)
    return [drawn(graph.buffers[name].value_type, rng) for name in graph.inputs]


def drawn(type_: ValueType, rng: np.random.Generator) -> Array:
    """A random array of a type."""
    declared, size = DTYPES[type_.dtype], min(type_.size, DRAWN)
    few = rng.standard_normal(size) if declared.kind == "f" else rng.integers(0, 4, size)
    return np.resize(few.astype(declared.numpy), type_.shape)
