"""Timeline: when every step of a schedule graph runs, computation beside communication.

Two tracks run side by side, each one step at a time: the device (kernels, and copies that stay on
it) and the links (moves that cross them). A step starts when its operands are
there and its track is free; where several could, the one with the longest way to the end goes first
(list scheduling). A kernel's time includes a launch, which hides behind another kernel that is
still running.

Source: Graham, Bounds on multiprocessing timing anomalies, sec. 2 (list scheduling).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from axe_eq.schedule.graph import KernelStep, MoveStep, ScheduleGraph, Step
from axe_eq.target import Target

DEVICE, LINK = "device", "link"


@dataclass(frozen=True)
class Event:
    """One step as it runs: seconds from the start of the graph."""

    start: float
    end: float
    step: str
    track: str


@dataclass(frozen=True)
class Timeline:
    """Events in the order of their start, and when the last one ends."""

    events: tuple[Event, ...]
    makespan_s: float

    @property
    def tracks(self) -> tuple[str, ...]:
        """The tracks in use, the device first."""
        used = {event.track for event in self.events}
        return tuple(track for track in (DEVICE, LINK) if track in used)


def track_of(step: Step) -> str:
    """The track a step occupies: the link where bytes cross it, else the device."""
    return LINK if isinstance(step, MoveStep) and step.n_bytes else DEVICE


def timeline(graph: ScheduleGraph, target: Target) -> Timeline:
    """Schedule the steps of a graph on the tracks of one device; deterministic.

    Args:
        graph: steps with their estimated times.
        target: its launch time is the part of a kernel's time that another kernel can hide.
    """
    return _Simulation(graph, target.launch_s).run()


class _Simulation:
    def __init__(self, graph: ScheduleGraph, launch_s: float) -> None:
        self.launch_s = launch_s
        self.steps = {s.name: s for s in graph.steps}
        self.place = {s.name: n for n, s in enumerate(graph.steps)}
        self.needs = _needs(graph.steps)
        self.users: dict[str, list[str]] = {s.name: [] for s in graph.steps}
        for name, needs in self.needs.items():
            for need in needs:
                self.users[need].append(name)
        self.left = _time_to_end(graph.steps, self.needs)
        self.free = {DEVICE: 0.0, LINK: 0.0}
        self.end: dict[str, float] = {}

    def run(self) -> Timeline:
        """Start one ready step after another."""
        missing = {name: len(needs) for name, needs in self.needs.items()}
        ready = [name for name, count in missing.items() if not count]
        events = []
        while ready:
            name = min(ready, key=self._rank)
            ready.remove(name)
            start, end = self._times(name)
            track = track_of(self.steps[name])
            self.end[name] = self.free[track] = end
            events.append(Event(start, end, name, track))
            for user in self.users[name]:
                missing[user] -= 1
                if not missing[user]:
                    ready.append(user)
        events.sort(key=lambda e: (e.start, self.place[e.step]))
        return Timeline(tuple(events), max((e.end for e in events), default=0.0))

    def _rank(self, name: str) -> tuple[float, float, int]:
        """Earliest start first, then the longest way to the end, then the graph's order."""
        return self._times(name)[0], -self.left[name], self.place[name]

    def _times(self, name: str) -> tuple[float, float]:
        step = self.steps[name]
        operands = max((self.end[d] for d in self.needs[name]), default=0.0)
        launch = min(self.launch_s, step.time_s) if isinstance(step, KernelStep) else 0.0
        start = max(operands + launch, self.free[track_of(step)])
        return start, start + step.time_s - launch


def _needs(steps: Sequence[Step]) -> Mapping[str, frozenset[str]]:
    """Step -> the steps whose results it reads."""
    writer = {w.buffer: s.name for s in steps for w in s.writes}
    return {s.name: frozenset(_writers(writer, s)) for s in steps}


def _writers(writer: Mapping[str, str], step: Step) -> Iterable[str]:
    return (writer[r.buffer] for r in step.reads if r.buffer in writer)


def _time_to_end(steps: Sequence[Step], needs: Mapping[str, frozenset[str]]) -> dict[str, float]:
    """Seconds from the start of a step to the end of the longest chain behind it."""
    behind = {s.name: 0.0 for s in steps}
    left: dict[str, float] = {}
    for step in reversed(steps):
        left[step.name] = step.time_s + behind[step.name]
        for earlier in needs[step.name]:
            behind[earlier] = max(behind[earlier], left[step.name])
    return left
