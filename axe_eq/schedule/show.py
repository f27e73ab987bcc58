"""A schedule graph as text: one line per buffer and step."""

from __future__ import annotations

from axe_eq.schedule.graph import KernelStep, ScheduleGraph, Step


def graph_text(graph: ScheduleGraph) -> str:
    """Readable, stable text of a schedule graph."""
    lines = [f"schedule for {graph.target}"]
    for buffer in graph.buffers.values():
        lines.append(f"  {buffer.role} {buffer.name}: {buffer.type} in {buffer.layout}")
    for step in graph.steps:
        lines += _step(step, graph)
    return "\n".join([*lines, f"  return {', '.join(graph.outputs)}"])


def _step(step: Step, graph: ScheduleGraph) -> list[str]:
    reads = ", ".join(dict.fromkeys(r.buffer for r in step.reads))
    writes = ", ".join(w.buffer for w in step.writes)
    head = f"  {writes} = {step.name}({reads})"
    if not isinstance(step, KernelStep):
        return [head]
    sizes = " ".join(f"{k}={v}" for k, v in step.parameters.items())
    how = f"{step.schedule} {step.row}".rstrip()
    lines = [f"{head}  [{how}] {sizes}".rstrip()]
    for number, node in enumerate(step.nodes):
        given = " ".join(f"#{n}" for n in node.operands)
        what = f"{node.cell or node.text} {given}".rstrip()
        if node.access >= 0:
            read = step.reads[node.access]
            seen = f" in {read.layout}" if read.layout != graph.buffers[read.buffer].layout else ""
            what = f"load {read.buffer}{seen}"
        signature = f"  [{node.text}]" if node.cell else ""
        lines.append(f"      #{number}: ({node.box}) of {node.type} = {what}{signature}")
    return lines
