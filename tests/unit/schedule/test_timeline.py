"""Timelines: dependencies and tracks are respected, communication hides behind computation."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from axe_eq.schedule.graph import Access, BufferSpec, KernelStep, MoveStep, ScheduleGraph, Step
from axe_eq.schedule.timeline import DEVICE, LINK, timeline, track_of
from axe_eq.target import Memory, Target

LAUNCH = 1e-6
TARGET = Target("t", "t", 1, "core", (Memory("m", ("m",), 1 << 30, "device"),), launch_s=LAUNCH)
L = "S[(16):(1@m)]"


def kernel(name: str, reads: str, time_s: float) -> KernelStep:
    return KernelStep(name, (), (), access(reads), access(name), {}, "hand", time_s=time_s)


def reduce_(name: str, reads: str, time_s: float) -> MoveStep:
    return MoveStep(name, access(reads), access(name), 64, time_s)


def access(names: str) -> tuple[Access, ...]:
    return tuple(Access(n, L) for n in names.split())


def graph_of(*steps: Step) -> ScheduleGraph:
    written = [w.buffer for s in steps for w in s.writes]
    names = dict.fromkeys([*(r.buffer for s in steps for r in s.reads), *written])
    buffers = {
        n: BufferSpec(n, "f32[16]", L, "temporary" if n in written else "input") for n in names
    }
    return ScheduleGraph("t", buffers, steps, ("x",), (written[-1],))


def test_a_chain_takes_the_sum_of_its_times() -> None:
    steps = [kernel("a", "x", 3e-6), kernel("b", "a", 4e-6), kernel("c", "b", 5e-6)]
    assert timeline(graph_of(*steps), TARGET).makespan_s == pytest.approx(12e-6)


def test_the_launch_of_an_independent_kernel_hides_behind_one_that_runs() -> None:
    steps = [kernel("a", "x", 3e-6), kernel("b", "x", 4e-6)]
    assert timeline(graph_of(*steps), TARGET).makespan_s == pytest.approx(7e-6 - LAUNCH)


def test_communication_hides_behind_computation() -> None:
    steps: list[Step] = [
        kernel("a", "x", 3e-6), reduce_("r", "a", 20e-6), kernel("b", "x", 15e-6),
        kernel("c", "r b", 2e-6),
    ]  # fmt: skip
    times = timeline(graph_of(*steps), TARGET)
    assert times.makespan_s == pytest.approx(3e-6 + 20e-6 + 2e-6)
    assert times.tracks == (DEVICE, LINK)
    assert sum(e.end - e.start for e in times.events if e.track == LINK) == pytest.approx(20e-6)


def test_the_longest_way_to_the_end_goes_first() -> None:
    """In the graph's own order the collective would wait for `long`."""
    steps: list[Step] = [
        kernel("long", "x", 9e-6), kernel("short", "x", 2e-6), reduce_("r", "short", 30e-6),
        kernel("end", "long r", 1e-6),
    ]  # fmt: skip
    times = timeline(graph_of(*steps), TARGET)
    assert times.events[0].step == "short"
    assert times.makespan_s == pytest.approx(2e-6 + 30e-6 + 1e-6)


def test_a_copy_that_crosses_no_link_takes_the_device() -> None:
    stays = MoveStep("m", access("x"), access("m"))
    assert track_of(stays) == DEVICE
    assert track_of(replace(stays, n_bytes=8)) == LINK


def test_no_order_breaks_a_dependency_or_shares_a_lane(rng: np.random.Generator) -> None:
    for _ in range(40):
        steps: list[Step] = []
        for n in range(12):
            known = ["x", *(s.name for s in steps)]
            reads = " ".join(rng.choice(known, min(2, len(known)), replace=False))
            make = reduce_ if rng.random() < 0.3 else kernel
            steps.append(make(f"s{n}", reads, float(rng.uniform(0, 9e-6))))
        graph = graph_of(*steps)
        times = timeline(graph, TARGET)
        at = {e.step: e for e in times.events}
        assert len(at) == len(steps)
        for step in steps:
            for read in step.reads:
                if read.buffer in at:
                    assert at[step.name].start >= at[read.buffer].end
        for track in times.tracks:
            events = [e for e in times.events if e.track == track]
            assert all(a.end <= b.start + 1e-15 for a, b in pairwise(events))
        assert times.makespan_s <= sum(s.time_s for s in steps) + 1e-12
        assert times.makespan_s == max(e.end for e in times.events)
        assert timeline(graph, TARGET) == times


def test_nothing_to_do_takes_no_time() -> None:
    assert timeline(graph_of(kernel("a", "x", 0.0)), TARGET).makespan_s == 0.0
