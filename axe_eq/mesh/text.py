"""A mesh plan as text: one line per buffer and step, and the messages of every exchange."""

from __future__ import annotations

from typing import TYPE_CHECKING

from axe_eq.mesh.steps import ExchangeStep, LocalStep
from axe_eq.schedule.meeting import chunks_of

if TYPE_CHECKING:
    from axe_eq.mesh.plan import MeshPlan

MOST_SHOWN = 8  # messages per exchange


def plan_text(plan: MeshPlan) -> str:
    """Readable, stable text of a plan."""
    sizes = " x ".join(f"{axis}={size}" for axis, size in plan.mesh.items())
    lines = [
        f"plan for {plan.target} on mesh {sizes}, {plan.n_ranks} ranks: "
        f"{plan.link_bytes:,} bytes cross links, peak {max(plan.peak_bytes):,} bytes on a rank"
    ]
    for b in plan.silent.buffers.values():
        across = f", on all devices within {b.within}" if b.across else ""
        across += f", in the place of {b.over}, merged with it" if b.over else ""
        lines.append(f"  {b.role} {b.name}: {b.type} in {b.layout}{across}")
    for step in plan.steps:
        lines += _local(step, plan) if isinstance(step, LocalStep) else _exchange(step, plan)
    return "\n".join([*lines, f"  return {', '.join(plan.outputs)}"])


def _local(step: LocalStep, plan: MeshPlan) -> list[str]:
    who = "" if len(step.ranks) == plan.n_ranks else f" on ranks {' '.join(map(str, step.ranks))}"
    cells = " ".join(n.title for k in step.graph.kernels for n in k.nodes if n.kind != "load")
    after, before = ([b for b in step.graph.buffers.values() if getattr(b, kind)]
                     for kind in ("after", "before"))  # fmt: skip
    who += _waits(plan, after[0].after) if after else ""
    who += ", tells devices what it stores on them" if before else ""
    reads = ", ".join(n for n in step.reads if n not in plan.signals)
    return [f"  {', '.join(step.writes)} = {step.name}({reads}): {cells}{who}"]


def _waits(plan: MeshPlan, meeting: str) -> str:
    """For what a kernel waits."""
    chunks = chunks_of(plan.buffers[meeting])
    if not chunks:
        return ", waits itself until all devices have come"
    return f", waits itself for what is stored, in {chunks} chunk{'s' * (chunks > 1)}"


def _exchange(step: ExchangeStep, plan: MeshPlan) -> list[str]:
    sent = plan.n_bytes[step.name]
    moved = " ".join(n.text for n in step.nodes if n.kind != "load")
    reads = ", ".join(a.buffer for a in step.reads)
    lines = [
        f"  {step.write.buffer} = {step.name}({reads}): {step.pattern}"
        + (f" through {moved}" if moved else "")
        + f", {sum(sent):,} bytes, at most {max(sent):,} sent by a rank"
    ]
    pairs = list(step.messages.pairs.items())
    for (src, dst), n in pairs[:MOST_SHOWN]:
        parts = []
        for part in step.messages.regions(src, dst):
            region = part["region"]
            assert isinstance(region, dict)
            leaf = part["leaf"]
            assert isinstance(leaf, int)
            parts.append(f"{step.reads[leaf].buffer}[{', '.join(region.values())}]")
        lines.append(f"      {src} -> {dst}: {' '.join(parts)}, {n:,} bytes")
    if (left := len(pairs) - MOST_SHOWN) > 0:
        lines.append(f"      and {left:,} messages more")
    return lines
