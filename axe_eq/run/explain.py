"""Why this schedule: the winner with its costs, what it was compared with, what was ruled out."""

from __future__ import annotations

from collections.abc import Mapping
from math import isinf
from typing import Any

from axe_eq.program.signature import signature
from axe_eq.schedule.graph import KernelStep, MoveStep, ScheduleGraph, SpmdStep, Step
from axe_eq.schedule.meeting import chunks_of, signals_of
from axe_eq.schedule.memory import plan, stored_bytes
from axe_eq.schedule.quantity import Costs
from axe_eq.target import Target

TOP_LAWS = 8
MOST_CELLS = 12
MOST_RUNNERS = 5  # lines of runners-up, and the cheapest that keeps less
MOST_ALIKE = 5  # values that a line names
ENDS = {"copy": " first"}  # of what a runner-up changes, by verb
# Changes that no schedule covers, by verb: where a value would be then.
NEEDED = {"recompute": "where it is read", "read": "where it arrives"}
LATENCY = (
    "latency"  # the part of a kernel's time that it takes beside its launch if it does nothing
)
LEAST_SHOWN = 0.05  # of a kernel's time: shorter parts are not worth a word


def total_cost(graph: ScheduleGraph, target: Target) -> Costs:
    """Named costs of a whole schedule; docs/costs.md defines them.

    "time_s" is the estimate, "peak_bytes" the memory plan's; those of kernels' columns are what
    they make together, as the target says (`Target.costs`).
    """
    total = Costs({"time_s": graph.time_s, "kernels": float(len(graph.kernels))})
    total.update(target.total_costs(step.costs for step in graph.flat))
    total["link_bytes"] = float(sum(getattr(s, "n_bytes", 0) for s in graph.steps))
    total["stored_bytes"] = float(stored_bytes(graph))
    total["peak_bytes"] = float(plan(graph).peak_bytes)
    return total


def explain(
    graph: ScheduleGraph, target: Target, found: Any, matches: Mapping[str, int], numerics: str
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
        f"{counted(len(graph.kernels), 'kernel')}, estimated {time_text(graph.time_s)}, "
        f"numerics: {numerics}"
    ]
    for step in graph.steps:
        lines += step_text(step, graph, target)
    for launch in graph.launches:
        kept = "".join(f"; {b} stays in {text}" for b, text in launch.kept.items())
        lines.append(f"  one call, {launch.name}: {' '.join(launch.steps)}{kept}")
    lines += [f"  a call of its own, {reason}" for reason in graph.apart]
    if found is not None:
        lines += [f"layout chosen for {name}: {text}" for name, text in found.layouts.items()]
        lines += [f"left out: {reason}" for reason in found.unwritable]
        lines += _compared(graph, found)
    lines += fired_text(matches)
    lines.append(
        "a kernel's time is its launch, its longest part and what does not overlap; "
        "docs/costs.md defines parts and costs"
    )
    lines.append("estimates compare schedules; they are no measurement")
    return "\n".join(lines)


def fired_text(matches: Mapping[str, int]) -> list[str]:
    """The laws that fired most, in a line; none where none did."""
    fired = sorted(
        ((n, k) for k, n in matches.items() if not k.startswith("tiling/")), reverse=True
    )
    shown = ", ".join(f"{k} x{n}" for n, k in fired[:TOP_LAWS])
    return [f"laws that fired: {shown}"] if fired else []


def cuts_text(notes: Mapping[str, object]) -> str:
    """How the cuts over a mesh were chosen, in a line."""
    operators, forms = int(str(notes["operators"])), int(str(notes["forms"]))
    found = f"cuts of {counted(operators, 'operator')}, of {counted(forms, 'form')} of the program"
    if notes["exact"]:
        return f"{found}: of the best one no others are cheaper, by estimates"
    return f"{found}: of the best one a local optimum, for its operators are too entangled"


def of_others(explanation: str) -> str:
    """The lines of an explanation that are about more than the kernels of the schedule."""
    lines = explanation.splitlines()
    starts = ("layout chosen for ", "left out: ", "compared with:", "laws that fired: ")
    first = next((n for n, line in enumerate(lines) if line.startswith(starts)), len(lines))
    return "\n".join(lines[first:])


def counted(number: int, thing: str) -> str:
    """``1 kernel``, ``2 kernels``."""
    return f"{number} {thing}" + ("" if number == 1 else "s")


def _kernel(step: KernelStep, graph: ScheduleGraph, target: Target) -> list[str]:
    sizes = " ".join(f"{k}={v}" for k, v in step.parameters.items())
    row = f" on {step.row}" if step.row else ""
    said = [time_text(step.time_s), step.schedule + row, *([sizes] if sizes else [])]
    if "measured_s" in step.costs:
        said.insert(1, f"measured {time_text(step.costs['measured_s'])}")
    types = ", ".join(
        f"{w.buffer}: {step.nodes[r].type}" for w, r in zip(step.writes, step.roots, strict=True)
    )
    signals = signals_of(graph.buffers.values())
    reads = [r.buffer for r in step.reads if r.buffer not in signals]
    meeting = [b.after for r in reads if (b := graph.buffers[r]).after]
    when = ", once all devices have come" if meeting else ""
    if meeting and (chunks := chunks_of(graph.buffers[meeting[0]])):
        when = f", once it is stored, in {chunks} chunk{'s' * (chunks > 1)}"
    over = [graph.buffers[w.buffer].over for w in step.writes if graph.buffers[w.buffer].over]
    merged = f", merged in memory with {over[0]}" if over else ""
    told = any(graph.buffers[w.buffer].before for w in step.writes)
    merged += ", which devices are told of" if told else ""
    lines = [
        f"  {step.name}: {', '.join(said)}",
        f"      reads {' '.join(reads)}{when}; writes {types}{merged}",
        f"      computes {_cells(step)}",
        f"      time: {_parts(step, graph, target)}",
    ]
    for why, number in step.rejected.items():
        lines.append(f"      ruled out: {why} ({counted(number, 'candidate')})")
    return lines


def step_text(step: Step, graph: ScheduleGraph, target: Target) -> list[str]:
    """A step in lines, with the parts of its time."""
    if isinstance(step, KernelStep):
        return _kernel(step, graph, target)
    if isinstance(step, MoveStep):
        return _moves(step, graph)
    lines = [f"  {step.name}: {time_text(step.time_s)}, on every device"]
    return lines + [
        f"  {line}" for own in step.graph.steps for line in step_text(own, step.graph, target)
    ]


def _moves(step: MoveStep, graph: ScheduleGraph) -> list[str]:
    """A step that computes nothing of its own: what it is, and what crosses links for it."""
    types = ", ".join(f"{w.buffer}: {graph.buffers[w.buffer].type}" for w in step.writes)
    return [
        f"  {step.name}: {time_text(step.time_s)}, moves, {step.n_bytes:,} bytes cross links",
        f"      reads {' '.join(r.buffer for r in step.reads)}; writes {types}",
    ]


def _cells(step: KernelStep) -> str:
    """What a kernel computes, operands before users: a list, no chain."""
    computed = [n for n in step.nodes if n.kind != "load" and n.operands]
    constants = sum(n.kind != "load" and not n.operands for n in step.nodes)
    words = []
    for node in computed[:MOST_CELLS]:
        monoid = signature(node.text).monoid if node.cell else ""
        words.append(f"{monoid} over {node.cell}" if monoid else node.title)
    if len(computed) > MOST_CELLS:
        words.append(f"{len(computed) - MOST_CELLS} more")
    given = f" (with {counted(constants, 'constant')})" if constants else ""
    return (", ".join(words) or "nothing: it moves") + given


def _parts(step: KernelStep, graph: ScheduleGraph, target: Target) -> str:
    """The parts of a kernel's estimated time, longest first."""
    costs = {k: v for k, v in step.costs.items() if k != "measured_s"}
    parts = {k.removesuffix("_s"): v for k, v in costs.items() if k.endswith("_s")}
    if not parts:
        return "its schedule gives no parts"
    shown = sorted(((v, k) for k, v in parts.items() if v >= LEAST_SHOWN * step.time_s), key=_rank)
    said, launch = [f"{k} {time_text(v)}" for v, k in shown], f"launch {time_text(target.launch_s)}"
    if any(step.name in x.steps for x in graph.launches):
        return f"{', '.join(said)}: its share of a call's"
    if not shown or shown[0][1] != LATENCY:
        return f"{', '.join(said) or 'no other part is a twentieth of it'}; {launch}"
    least = time_text(target.launch_s + shown[0][0])
    return ", ".join([f"the least a kernel takes, {least} ({launch}, {said[0]})", *said[1:]])


def _rank(part: tuple[float, str]) -> tuple[float, str]:
    return -part[0], part[1]


def _compared(graph: ScheduleGraph, found: Any) -> list[str]:
    best = graph.time_s or 1.0

    def cost(time_s: float) -> str:
        return f"{time_text(time_s)}, x{time_s / best:.2f}"

    lines = ["compared with:"]
    if found.layouts:
        lines.append(f"  inputs and outputs dense row-major: {cost(found.dense_s)}")
    # Where they are equal it is the schedule that was chosen. Without end it is where the search
    # begins at a layout that no kernel writes, which says nothing of storing every value.
    if not isinf(found.unfused_s) and abs(found.unfused_s - graph.time_s) > 1e-9 * best:
        lines.append(f"  every value materialised: {cost(found.unfused_s)}")
    lines += [_others(group.price) for group in found.groups if group.price.others]
    for own in (graph, *(s.graph for s in graph.steps if isinstance(s, SpmdStep))):
        lines += _kept_apart(own)
    # Values of one place in a program often make the same difference: one line for all of them.
    # One value may be stored in several layouts.
    alike: dict[tuple[str, str], dict[str, None]] = {}
    for runner in found.runners_up:
        verb, _, value = runner.change.partition(" ")
        alike.setdefault((verb, cost(runner.time_s)), {})[value] = None
    for number, ((verb, text), values) in enumerate(alike.items()):
        cheapest = not any(v == verb for v, _ in list(alike)[:number])
        if number < MOST_RUNNERS or cheapest:
            more = len(values) - MOST_ALIKE
            shown = [*list(values)[:MOST_ALIKE], *([f"{more} more"] if more > 0 else [])]
            one = "" if len(values) == 1 else "any one of "
            lines.append(f"  {verb} {one}{', '.join(shown)}{ENDS.get(verb, '')}: {text}")
    for verb, where in NEEDED.items():
        kept = [c.removeprefix(f"{verb} ") for c in dict.fromkeys(found.needed)
                if c.startswith(f"{verb} ")]  # fmt: skip
        if kept:
            one = "" if len(kept) == 1 else "any of "
            lines.append(
                f"  {verb} {one}{', '.join(kept)} {where}: no schedule covers such a kernel"
            )
    if any("rewritten#" in line for line in lines):
        lines.append("  (rewritten#: a value that laws made, none of the program's)")
    proof = "all subsets tried: the best" if found.selection.exact else "a local optimum"
    if found.selection.cut:
        proof = "cut short, so that others may be cheaper"
    lines.append(
        f"  {counted(found.evaluated, 'kernel')} evaluated, "
        f"{counted(found.priced, 'distinct cone')} priced; {proof} under this cost model; "
        "runners-up are priced, not built"
    )
    return lines


def _kept_apart(graph: ScheduleGraph) -> list[str]:
    """Kernels of which one reads the other's value, and that are together too large for one."""
    from axe_eq.extract.price.cone import MAX_NODES

    lines = []
    writers = {w.buffer: step for step in graph.kernels for w in step.writes}
    for step in graph.kernels:
        for read in step.reads:
            writer = writers.get(read.buffer)
            if writer is not None and (n := _together(writer, step)) > MAX_NODES:
                lines.append(
                    f"  {writer.name} and {step.name} as one, without {read.buffer}: {n} nodes, "
                    f"and a kernel has at most {MAX_NODES}"
                )
    return lines


def _together(writer: KernelStep, reader: KernelStep) -> int:
    """Nodes of a kernel that computes what another one reads of it, each once."""
    numbers: dict[object, int] = {}
    held: dict[str, int] = {}
    for step in (writer, reader):
        made: list[int] = []
        for node in step.nodes:
            if node.kind == "load":
                buffer = step.reads[node.access].buffer
                key: object = (buffer, node.view)
                if buffer in held:
                    made.append(held[buffer])
                    continue
            else:
                key = node.kind, node.text, node.cell, tuple(made[o] for o in node.operands)
            made.append(numbers.setdefault(key, len(numbers)))
        held = {w.buffer: made[r] for w, r in zip(step.writes, step.roots, strict=True)}
    return len(numbers)


def _others(price: Any) -> str:
    """The next best candidates of a kernel."""
    chosen = " ".join(f"{name}={size}" for name, size in price.parameters)
    others = "; ".join(f"{text}: {time_text(time_s)}" for text, time_s in price.others)
    return f"  {price.schedule} {chosen}, {time_text(price.time_s)}, with {others}"


def time_text(seconds: float) -> str:
    """Seconds for people."""
    if seconds == float("inf"):
        return "impossible"
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-2 else f"{seconds * 1e3:.1f} ms"
