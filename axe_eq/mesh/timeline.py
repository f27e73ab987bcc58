"""When every rank of a plan computes, sends and receives, by estimates: as data, a page, a trace.

A rank computes, sends and receives in tracks of its own, in the order of the plan. A step begins
when what it reads is there and its track is free; a rank receives from when the last of its senders
sends. The busiest rank takes the whole of an exchange's estimate, others as much less as they move
less. So it is how fast a plan is where exchanges hide behind computing as far as they can.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any

from axe_eq.draw import page as html
from axe_eq.mesh.steps import ExchangeStep, LocalStep, reads_of
from axe_eq.schedule.drawing import tracks_svg
from axe_eq.schedule.quantity import bytes_text, seconds_text
from axe_eq.schedule.timeline import Event

if TYPE_CHECKING:
    from axe_eq.mesh.plan import MeshPlan

DEVICE, OUT, IN = TRACKS = ("device", "out", "in")
MOST_RANKS = 16  # that a page draws


@dataclass(frozen=True)
class RankEvent:
    """What a rank does for a step in one of its tracks: seconds from the start of the plan.

    Attributes:
        rank: its number.
        track: "device", "out" or "in".
        step: name of the step.
        start, end: seconds.
        n_bytes: sent or received.
    """

    rank: int
    track: str
    step: str
    start: float
    end: float
    n_bytes: int = 0


def rank_events(plan: MeshPlan) -> list[RankEvent]:
    """What all ranks do, step by step, by estimates."""
    return _Ranks(plan.n_ranks).run(plan)


class _Ranks:
    """All ranks on their way through a plan."""

    def __init__(self, n_ranks: int) -> None:
        self.free = [dict.fromkeys(TRACKS, 0.0) for _ in range(n_ranks)]
        self.there: dict[tuple[int, str], float] = {}  # rank and buffer -> since when
        self.events: list[RankEvent] = []

    def run(self, plan: MeshPlan) -> list[RankEvent]:
        """Step after step, each in tracks of its own."""
        for step in plan.steps:
            if isinstance(step, ExchangeStep):
                self._exchange(step)
            else:
                for rank in step.ranks:
                    end = self._in(rank, DEVICE, step.name, self._since(rank, step),
                                   step.graph.time_s)  # fmt: skip
                    self.there |= {(rank, name): end for name in step.writes}
        return self.events

    def _since(self, rank: int, step: LocalStep | ExchangeStep) -> float:
        """When all that a step reads is there."""
        return max((self.there.get((rank, name), 0.0) for name in reads_of(step)), default=0.0)

    def _in(
        self, rank: int, track: str, step: str, since: float, seconds: float, n_bytes: int = 0
    ) -> float:
        """Do something in a track, once it is free; when that ends."""
        begin = max(since, self.free[rank][track])
        end = self.free[rank][track] = begin + seconds
        self.events.append(RankEvent(rank, track, step, begin, end, n_bytes))
        return end

    def _exchange(self, step: ExchangeStep) -> None:
        ranks = range(len(self.free))
        sent, received = step.messages.sent(len(ranks)), step.messages.received(len(ranks))
        most = max((*sent, *received))
        since = [self._since(rank, step) for rank in ranks]
        leaves = [max(since[rank], self.free[rank][OUT]) for rank in ranks]
        comes = list(since)  # the last message that a rank waits for
        for src, dst in step.messages.pairs:
            comes[dst] = max(comes[dst], leaves[src])
        for rank in ranks:
            ends = [since[rank]]
            if not most and step.time_s:  # all of it stays where it is
                ends.append(self._in(rank, DEVICE, step.name, since[rank], step.time_s))
            for track, begin, n in ((OUT, since, sent[rank]), (IN, comes, received[rank])):
                if n:
                    seconds = step.time_s * n / most
                    ends.append(self._in(rank, track, step.name, begin[rank], seconds, n))
            self.there[rank, step.write.buffer] = max(ends)


def perfetto(plan: MeshPlan) -> str:
    """The timeline as trace events, which Perfetto and chrome://tracing open."""
    events: list[dict[str, Any]] = []
    for rank in range(plan.n_ranks):
        name = {"name": f"rank {rank} (estimated)"}
        events.append({"ph": "M", "name": "process_name", "pid": rank, "args": name})
        for n, track in enumerate(TRACKS):
            of = {"pid": rank, "tid": n, "args": {"name": track}}
            events.append({"ph": "M", "name": "thread_name", **of})
    for e in rank_events(plan):
        events.append({
            "ph": "X", "name": e.step, "cat": e.track, "pid": e.rank, "tid": TRACKS.index(e.track),
            "ts": e.start * 1e6, "dur": (e.end - e.start) * 1e6, "args": {"bytes": e.n_bytes},
        })  # fmt: skip
    return json.dumps({"traceEvents": events, "otherData": {"time": "estimated, not measured"}})


def plan_html(plan: MeshPlan) -> str:
    """A plan as one self-contained page: its timeline, its steps, and what every rank sends."""
    events = rank_events(plan)
    sizes = " x ".join(f"{axis}={size}" for axis, size in plan.mesh.items())
    facts = [
        ("mesh", sizes), ("ranks", str(plan.n_ranks)),
        ("estimated", seconds_text(max((e.end for e in events), default=0.0))),
        ("over links", bytes_text(plan.link_bytes)),
        ("peak memory of a rank", bytes_text(max(plan.peak_bytes))),
    ]  # fmt: skip
    left = plan.n_ranks - MOST_RANKS
    note = "A step begins when what it reads is there and its track is free."
    note += f" {left} ranks more are not drawn." if left > 0 else ""
    parts = [
        "<p>Estimates compare plans; they are no measurement.</p>" + html.facts(facts),
        html.section("Timeline", note, html.panel(timeline_svg(plan))) if events else "",
        html.section("Steps", "", html.table(("step", "time", "what", "reads", "writes"),
                                             [_row(s) for s in plan.steps], (1,))),
        html.section("Bytes", "What every rank sends, exchange by exchange.", _sent(plan)),
    ]  # fmt: skip
    return html.page(f"Plan for {plan.target} on {sizes}", parts, style="schedule.css")


def timeline_svg(plan: MeshPlan) -> str:
    """The timeline of the first ranks: what each computes, sends and receives."""
    bars = [
        Event(e.start, e.end, e.step, f"{e.rank} {e.track}")
        for e in rank_events(plan)
        if e.rank < MOST_RANKS
    ]
    used = {bar.track for bar in bars}
    tracks = [f"{n} {track}" for n in range(min(plan.n_ranks, MOST_RANKS)) for track in TRACKS]
    kinds = {s.name: "spmd" if isinstance(s, LocalStep) else "move" for s in plan.steps}
    return tracks_svg([t for t in tracks if t in used], bars, kinds)


def _row(step: LocalStep | ExchangeStep) -> list[str]:
    if isinstance(step, LocalStep):
        kernels = ", ".join(k.name for k in step.graph.kernels)
        what, time_s = f"{len(step.ranks)} ranks compute {kernels}", step.graph.time_s
        reads, writes = step.reads, step.writes
    else:
        bytes_ = bytes_text(step.messages.n_bytes)
        what, time_s = f"{step.pattern}, {bytes_} over links", step.time_s
        reads, writes = tuple(a.buffer for a in step.reads), (step.write.buffer,)
    names = (" ".join(map(html.code, side)) for side in (reads, writes))
    return [html.code(step.name), seconds_text(time_s), escape(what), *names]


def _sent(plan: MeshPlan) -> str:
    ranks = range(min(plan.n_ranks, MOST_RANKS))
    rows = [[html.code(name), *(f"{sent[n]:,}" for n in ranks), f"{sum(sent):,}"]
            for name, sent in plan.n_bytes.items()]  # fmt: skip
    head = ("exchange", *(f"rank {n}" for n in ranks), "all ranks")
    return html.table(head, rows, range(1, len(head)))
