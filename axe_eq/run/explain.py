"""Why this schedule: the winner with its costs, what it was compared with, what was ruled out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from axe_eq.schedule.graph import KernelStep, ScheduleGraph
from axe_eq.schedule.memory import plan
from axe_eq.target import Target

TOP_LAWS = 8


def total_cost(graph: ScheduleGraph, target: Target) -> dict[str, float]:
    """Named costs of a whole schedule.

    "time_s" is the estimate, "peak_bytes" the memory plan's; the others are what the kernels'
    columns make together, as the target says (`Target.costs`).
    """
    total = {"time_s": graph.time_s, "kernels": float(len(graph.kernels))}
    total |= target.total_costs(step.costs for step in graph.steps)
    total["link_bytes"] = float(sum(getattr(s, "n_bytes", 0) for s in graph.steps))
    total["peak_bytes"] = float(plan(graph).peak_bytes)
    return total


def explain(
    graph: ScheduleGraph,
    target: Target,
    found: Any,
    matches: Mapping[str, int],
    numerics: str,
) -> str:
    """The explanation as text for a terminal.

    Args:
        graph: the schedule.
        target: its machine.
        found: what extraction found (`extract.stage.Extracted`); None after loading.
        matches: firings per law.
        numerics: "real" or "exact".
    """
    lines = [
        f"schedule for {target.name} ({target.n_units} {target.unit}): "
        f"{len(graph.kernels)} kernels, estimated {_time(graph.time_s)}, laws: {numerics}"
    ]
    for step in graph.steps:
        lines += _kernel(step) if isinstance(step, KernelStep) else [f"  {step.name}"]
    if found is not None:
        lines += [f"left out: {reason}" for reason in found.unwritable]
        lines += _compared(graph, found)
    fired = sorted(
        ((n, k) for k, n in matches.items() if not k.startswith("tiling/")), reverse=True
    )
    if fired:
        lines.append("laws that fired: " + ", ".join(f"{k} x{n}" for n, k in fired[:TOP_LAWS]))
    lines.append("estimates compare schedules; they are no measurement")
    return "\n".join(lines)


def _kernel(step: KernelStep) -> list[str]:
    sizes = " ".join(f"{k}={v}" for k, v in step.parameters.items())
    row = f" on {step.row}" if step.row else ""
    types = ", ".join(
        f"{w.buffer}: {step.nodes[r].type}" for w, r in zip(step.writes, step.roots, strict=True)
    )
    lines = [
        f"  {step.name}: {_time(step.time_s)}, {step.schedule}{row}, {sizes}",
        f"      reads {' '.join(r.buffer for r in step.reads)}; writes {types}",
        f"      computes {_cells(step)}; bound by {_bound(step)}",
    ]
    lines += [f"      ruled out: {why} ({n} candidates)" for why, n in step.rejected.items()]
    return lines


def _cells(step: KernelStep) -> str:
    cells = [n.cell or n.text for n in step.nodes if n.kind != "load"]
    shown = " -> ".join(cells[:10])
    return shown + (f" ... {len(cells)} in all" if len(cells) > 10 else "")


def _bound(step: KernelStep) -> str:
    parts = {k.removesuffix("_s"): v for k, v in step.costs.items() if k.endswith("_s")}
    if not parts:
        return "nothing measured"
    name = max(parts, key=lambda k: parts[k])
    return f"{name} ({_time(parts[name])})"


def _compared(graph: ScheduleGraph, found: Any) -> list[str]:
    best = graph.time_s or 1.0
    lines = ["compared with:"]
    lines.append(
        f"  every value materialised: {_time(found.unfused_s)}, x{found.unfused_s / best:.2f}"
    )
    for runner in found.runners_up:
        lines.append(f"  {runner.change}: {_time(runner.time_s)}, x{runner.time_s / best:.2f}")
    proof = "all subsets tried: the best" if found.selection.exact else "a local optimum"
    lines.append(
        f"  {found.evaluated} kernels evaluated, {found.priced} distinct cones priced; {proof} "
        "under this cost model"
    )
    return lines


def _time(seconds: float) -> str:
    if seconds == float("inf"):
        return "impossible"
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-2 else f"{seconds * 1e3:.1f} ms"
