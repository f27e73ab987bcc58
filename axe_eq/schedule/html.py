"""A schedule graph as one self-contained page: the graph, its timeline, its costs, what lost.

Nothing is fetched and nothing runs: SVG and tables, light or dark as the reader's system asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from axe_eq.draw import page as html
from axe_eq.schedule.drawing import graph_svg, layout_words, timeline_svg
from axe_eq.schedule.graph import GIVEN, Access, KernelStep, MoveStep, ScheduleGraph, Step
from axe_eq.schedule.memory import MemoryPlan, buffer_bytes, plan
from axe_eq.schedule.quantity import bytes_text, cost_text, seconds_text
from axe_eq.schedule.timeline import Timeline, timeline
from axe_eq.target import Target

_ROLES = (*GIVEN, "temporary", "output")


def schedule_html(graph: ScheduleGraph, target: Target, why: str = "") -> str:
    """The page of a schedule graph.

    Args:
        graph: with its estimated times and costs.
        target: the machine they were estimated for.
        why: what else is known of the choice, in lines: schedules that lost, laws that fired.
    """
    memory, times = plan(graph), timeline(graph, target)
    parts = [
        _head(graph, target, memory, times),
        html.section("Graph", "", html.panel(graph_svg(graph))),
    ]
    if times.makespan_s > 0:
        note = "Each track does one step at a time; a launch hides behind a kernel that still runs."
        parts.append(html.section("Timeline", note, html.panel(timeline_svg(graph, times))))
    note = "Limits are what a kernel would take if that alone were slow; the longest one decides."
    parts.append(html.section("Steps", note, _steps(graph, target)))
    if any(s.costs for s in graph.steps):
        parts.append(html.section("Costs", "", _costs(graph)))
    parts.append(html.section("Buffers", "", _buffers(graph, memory)))
    if why:
        parts.append(html.section("Why", "", html.panel(f'<pre class="why">{escape(why)}</pre>')))
    return html.page(f"Schedule for {graph.target}", parts, style="schedule.css")


def _head(graph: ScheduleGraph, target: Target, memory: MemoryPlan, times: Timeline) -> str:
    facts = [("kernel" if len(graph.kernels) == 1 else "kernels", str(len(graph.kernels)))]
    if times.makespan_s > 0:
        facts.append(("estimated", seconds_text(times.makespan_s)))
    facts.append(("peak memory", bytes_text(memory.peak_bytes)))
    facts.append(("temporaries, in one arena", bytes_text(memory.arena_bytes)))
    if crossing := sum(s.n_bytes for s in graph.steps if isinstance(s, MoveStep)):
        facts.append(("over links", bytes_text(crossing)))
    if graph.mesh:
        facts.append(("mesh", " x ".join(f"{n} {a}" for a, n in graph.mesh.items())))
    return (
        f"<p>{target.n_units} {escape(target.unit)}; {escape(target.source)}. "
        f"Estimates compare schedules; they are no measurement.</p>{html.facts(facts)}"
    )


# -- tables ---------------------------------------------------------------------------------------


def _steps(graph: ScheduleGraph, target: Target) -> str:
    total = sum(s.time_s for s in graph.steps)
    rows = []
    for step in graph.steps:
        share = 100 * step.time_s / total if total else 0.0
        bar = f'<span class="share" style="width:{share:.0f}px"></span> {share:.0f} %'
        sizes = " ".join(f"{k}={v}" for k, v in getattr(step, "parameters", {}).items())
        rows.append([
            html.code(step.name), seconds_text(step.time_s) if total else "",
            f'<span class="nowrap">{bar}</span>' if total else "", _limits(step, target),
            _implemented(step), html.code(sizes), _names(step.reads), _names(step.writes),
        ])  # fmt: skip
    head = ("step", "time", "share", "limits", "implemented by", "parameters", "reads", "writes")
    return html.table(head, rows, (1,)) + "".join(_details(k) for k in graph.kernels)


def _limits(step: Step, target: Target) -> str:
    """A bar for every part of a kernel's time that overlaps the others, and for its launch."""
    own = {name.removesuffix("_s"): value for name, value in step.costs.items()
           if name.endswith("_s") and target.costs.get(name) == "own"}  # fmt: skip
    if not own:
        return ""
    own["launch"] = target.launch_s
    longest = max(own.values()) or 1.0
    rows = []
    for name, value in own.items():
        most = " most" if value == longest else ""
        rows.append(
            f'<div class="limit{most}"><span>{escape(name)}</span>'
            f'<span class="share" style="width:{72 * value / longest:.0f}px"></span>'
            f" {seconds_text(value)}</div>"
        )
    return "".join(rows)


def _costs(graph: ScheduleGraph) -> str:
    """Every cost the model gave, one column each."""
    names = list(dict.fromkeys(c for s in graph.steps for c in s.costs))
    rows = [
        [html.code(s.name), *(cost_text(n, s.costs[n]) if n in s.costs else "" for n in names)]
        for s in graph.steps
    ]
    head = ("step", *(n.replace("_", " ") for n in names))
    return html.table(head, rows, range(1, len(head)))


def _names(accesses: Sequence[Access]) -> str:
    return " ".join(html.code(a.buffer) for a in accesses)


def _implemented(step: Step) -> str:
    if not isinstance(step, KernelStep):
        return escape(step.kind)
    return escape(step.schedule + (f" on {step.row}" if step.row else ""))


def _details(step: KernelStep) -> str:
    """What a kernel computes, node by node, and which candidates were ruled out."""
    rows = []
    for number, node in enumerate(step.nodes):
        what = node.title
        if node.kind == "load":
            what = f"load {step.reads[node.access].buffer}"
        stored = [w.buffer for r, w in zip(step.roots, step.writes, strict=True) if r == number]
        given = " ".join(f"#{o}" for o in node.operands)
        rows.append([
            f"#{number}", escape(what), escape(node.text if node.cell else ""), escape(given),
            escape(node.box), escape(node.type), escape(" ".join(f"stored in {b}" for b in stored)),
        ])  # fmt: skip
    head = ("", "node", "signature", "of", "box", "type of the whole value", "")
    reasons = "".join(
        f"<li>{escape(why)}: {count} candidate{'' if count == 1 else 's'}</li>"
        for why, count in step.rejected.items()
    )
    ruled_out = f"<p>Ruled out:</p><ul>{reasons}</ul>" if reasons else ""
    loops = ", ".join(f"{letter} to {extent}" for letter, extent in step.loops.items())
    exact = "; every node rounds to its dtype" if step.rounds else ""
    title = f"{step.name}: {len(step.nodes)} nodes, loops over {loops or 'nothing'}{exact}"
    return (
        f"<details><summary>{escape(title)}</summary>{html.table(head, rows)}{ruled_out}</details>"
    )


def _buffers(graph: ScheduleGraph, memory: MemoryPlan) -> str:
    live = {row.buffer: f"{row.first} to {row.last}" for row in memory.table}
    rows = [
        [
            html.code(b.name), escape(b.role), html.code(b.type), html.code(layout_words(b)),
            bytes_text(buffer_bytes(b)),
            str(memory.offsets[b.name]) if b.name in memory.offsets else "", live.get(b.name, ""),
        ]
        for b in sorted(graph.buffers.values(), key=lambda b: _ROLES.index(b.role))
    ]  # fmt: skip
    head = ("buffer", "role", "type", "layout", "size", "offset in arena", "live in steps")
    return html.table(head, rows, (4, 5, 6))
