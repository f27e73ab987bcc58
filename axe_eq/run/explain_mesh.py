"""Why this plan on a mesh: what takes its time, how values are cut, and what it was compared with.

One page, however long the program: steps that are alike are one line, and what takes little is left
out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from axe_eq.run.explain import counted, cuts_text, fired_text, step_text, time_text
from axe_eq.schedule.graph import KernelStep, MoveStep, ScheduleGraph, SpmdStep, Step
from axe_eq.schedule.quantity import bytes_text
from axe_eq.target import Target

MOST_STEPS = 12  # that are shown one by one, with all that is known of them
MOST_ALIKE, MOST_KERNELS = 8, 3  # kinds of step, and kernels of one, where there are more
MOST_CUTS, MOST_PLANS, MOST_CHANGED = 8, 8, 3


def explain_mesh(
    graph: ScheduleGraph,
    target: Target,
    found: Any,
    matches: Mapping[str, int],
    numerics: str,
    notes: Mapping[str, object],
) -> str:
    """The explanation as text for a terminal.

    Args:
        graph: the schedule.
        target: of every device.
        found: plans that were compiled (`pipeline.on_mesh.Plans`); None where they are not known.
        matches: firings per law.
        numerics: "real" or "exact".
        notes: of the first choice of cuts.
    """
    sizes = " ".join(f"{axis}={size}" for axis, size in (graph.mesh or {}).items())
    steps = [s for s in graph.steps if not _is_view(s)]
    moves = [s for s in steps if isinstance(s, MoveStep)]
    sent = sum(s.time_s for s in moves)
    lines = [
        f"plan for {target.name} on mesh {sizes}: {counted(len(graph.kernels), 'kernel')} on every "
        f"device and {counted(len(moves), 'exchange')}, estimated {time_text(graph.time_s)}, of "
        f"which exchanges {time_text(sent)}; {sum(s.n_bytes for s in moves):,} bytes cross links; "
        f"laws: {numerics}"
    ]
    if len(graph.flat) <= MOST_STEPS:
        lines += [line for s in steps for line in step_text(s, graph, target)]
    else:
        lines += _alike(graph)
    if found is not None:
        lines += [_cuts(found), *_blocks(found), *_compared(found)]
    lines += fired_text(matches)
    lines += [cuts_text(notes), "estimates compare plans; they are no measurement"]
    return "\n".join(lines)


def _is_view(step: Step) -> bool:
    """Whether a step moves nothing: blocks in the memory of the whole."""
    return isinstance(step, MoveStep) and not step.n_bytes and not step.time_s


def _alike(graph: ScheduleGraph) -> list[str]:
    """The steps that take most, those that are alike together."""
    kinds: dict[object, list[SpmdStep | MoveStep]] = {}
    for step in graph.steps:
        if _is_view(step):
            continue
        if isinstance(step, SpmdStep):
            kinds.setdefault((step.time_s, *(k.name for k in step.graph.kernels)), []).append(step)
        elif isinstance(step, MoveStep):
            kinds.setdefault((step.time_s, step.n_bytes), []).append(step)
    ranked = sorted(kinds.values(), key=lambda steps: -sum(s.time_s for s in steps))
    lines = []
    for steps in ranked[:MOST_ALIKE]:
        first = steps[0]
        share = 100 * sum(s.time_s for s in steps) / (graph.time_s or 1.0)
        alike = f" and {counted(len(steps) - 1, 'step')} alike" if len(steps) > 1 else ""
        each = " each" if len(steps) > 1 else ""
        what = "on every device"
        if isinstance(first, MoveStep):
            what = f"exchange, {first.n_bytes:,} bytes cross links"
        lines.append(
            f"  {first.name}{alike}: {time_text(first.time_s)}{each}, {share:.0f} % of all, {what}"
        )
        if isinstance(first, SpmdStep):
            lines += _kernels(first.graph.kernels)
    if left := ranked[MOST_ALIKE:]:
        rest = sum(s.time_s for steps in left for s in steps)
        lines.append(f"  {counted(sum(map(len, left)), 'step')} more: {time_text(rest)} together")
    return lines


def _kernels(kernels: Sequence[KernelStep]) -> list[str]:
    """The kernels of a local program that take most."""
    ranked = sorted(kernels, key=lambda k: -k.time_s)
    lines = []
    for kernel in ranked[:MOST_KERNELS]:
        row = f" on {kernel.row}" if kernel.row else ""
        lines.append(f"      {kernel.name}: {time_text(kernel.time_s)}, {kernel.schedule}{row}")
    if left := ranked[MOST_KERNELS:]:
        rest = time_text(sum(k.time_s for k in left))
        lines.append(f"      {counted(len(left), 'kernel')} more: {rest} together")
    return lines


def _cuts(found: Any) -> str:
    """How those operators are cut that take most."""
    best = found.best.cuts
    seconds = {n: best.problem.fused.seconds(n, o) for n, o in best.option.items()}
    ranked = sorted(best.option, key=lambda n: -seconds[n])
    shown = [f"{found.name(n)} {best.option[n].text}" for n in ranked[:MOST_CUTS]]
    more = f"; {len(ranked) - MOST_CUTS} more" if len(ranked) > MOST_CUTS else ""
    return f"cut over mesh axes, dim by dim: {'; '.join(shown)}{more}"


def _blocks(found: Any) -> list[str]:
    """What is computed in blocks, and of which dims."""
    lines = []
    for region in found.best.regions:
        shown = [f"{found.name(n)} dim {d}" for n, d in list(region.dims.items())[:MOST_CUTS]]
        more = f"; {len(region.dims) - MOST_CUTS} more" if len(region.dims) > MOST_CUTS else ""
        lines.append(f"{region.said} beside exchanges: {'; '.join(shown)}{more}")
    return lines


def _compared(found: Any) -> list[str]:
    """The other plans that were compiled, the best ones first, and where they lose."""
    best, seen = found.best, dict[object, Any]()
    for other in sorted(found.tried.values(), key=lambda t: t.rank):
        seen.setdefault((other.graph.time_s, _link_bytes(other.graph)), other)
    others = [t for t in seen.values() if t is not best]
    lines = ["compared with:"]
    for other in others[:MOST_PLANS]:
        ratio = other.graph.time_s / (best.graph.time_s or 1.0)
        said = [f"{time_text(other.graph.time_s)}, x{ratio:.2f}", *_lost(best, other)]
        lines.append(f"  {other.how}: {', '.join(said)}{_changed(found, other)}")
    lines.append(f"  {counted(len(found.tried), 'plan')} compiled, by {best.how} the one chosen")
    if found.refused:
        lines.append(f"  {counted(len(found.refused), 'plan')} more without kernels that fit")
    return lines


def _link_bytes(graph: ScheduleGraph) -> int:
    return sum(s.n_bytes for s in graph.steps if isinstance(s, MoveStep))


def _lost(best: Any, other: Any) -> list[str]:
    """What a plan takes more than the best one, or less."""
    parts = []
    for name, kind in (("computing", SpmdStep), ("exchanges", MoveStep)):
        own, its = (sum(s.time_s for s in t.graph.steps if isinstance(s, kind))
                    for t in (best, other))  # fmt: skip
        if abs(its - own) > best.graph.time_s / 1000:
            sign = "+" if its > own else "-"
            parts.append(f"{name} {sign}{time_text(abs(its - own))}")
    more = _link_bytes(other.graph) - _link_bytes(best.graph)
    parts += [f"{more:+,} bytes"] if more else []
    if not other.fits:
        parts.append(f"needs {bytes_text(other.peak_bytes)} of a device, which does not fit")
    return parts


def _changed(found: Any, other: Any) -> str:
    """Which operators a plan cuts otherwise."""
    best = found.best.cuts.option
    changed = [n for n, o in other.cuts.option.items() if n in best and best[n] != o]
    shown = [f"{found.name(n)} {other.cuts.option[n].text}" for n in changed[:MOST_CHANGED]]
    if more := len(changed) - MOST_CHANGED:
        shown += [f"{more} more"] if more > 0 else []
    return f"; cut otherwise: {', '.join(shown)}" if shown else ""
