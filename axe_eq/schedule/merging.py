"""Results that memory merges with what it holds: a kernel that adds to what lies where it stores.

A kernel of ``x @ w + arrived`` reads what has arrived, adds it, and stores the sum elsewhere. Where
nobody reads what has arrived after it, the sum may lie in its place. Then the kernel computes
``x @ w`` alone, rounds it to the type that the program says, and memory adds it to what it holds.
The values are those of the program rounded operator by operator. `BufferSpec.over` of the result
says so; who knows nothing of it computes the same in memory of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace

from axe_eq.pack import ask_schedule, schedule_named
from axe_eq.program.ops import MONOIDS, selector
from axe_eq.program.signature import signature
from axe_eq.program.types import value_type
from axe_eq.schedule.graph import KernelStep, MoveStep, ScheduleGraph, TileNode
from axe_eq.target import Target

# The seconds of a kernel whose result memory merges; None where there is none.
Merging = Callable[[KernelStep, ScheduleGraph], float | None]


def merges(step: KernelStep, graph: ScheduleGraph) -> dict[str, str]:
    """What a kernel may merge its one result with in place: buffer that it reads -> monoid.

    It is one operand of the last operator, element by element, is used for nothing else, and lies
    as the result does.
    """
    if len(step.roots) != 1 or step.rounds:
        return {}
    (at,), (write,) = step.roots, step.writes
    root, found = step.nodes[at], dict[str, str]()
    known = {m.merges: m.name for m in MONOIDS.values() if m.merges and not m.lifts}
    if root.kind != "cell" or not _is_cells(root) or root.cell not in known:
        return {}
    uses = [o for node in step.nodes for o in node.operands]
    for own, other in (root.operands, root.operands[::-1]):
        own, other = _unviewed(step, own), _unviewed(step, other)
        load, rest = step.nodes[own], step.nodes[other]
        types = [value_type(n.type) for n in (root, load, rest)]
        alike = len({(t.dtype, t.size) for t in types}) == 1
        if load.kind != "load" or rest.kind != "cell" or not alike:
            continue
        read = step.reads[load.access]
        once = uses.count(own) == 1 and [a.buffer for a in step.reads].count(read.buffer) == 1
        if once and read.layout == write.layout:
            found[read.buffer] = known[root.cell]
    return found


def _unviewed(step: KernelStep, number: int) -> int:
    """The node whose elements a node has in the same order."""
    node = step.nodes[number]
    while node.kind == "gather" and selector(node.text)[0].inverse is not None:
        (number,) = node.operands
        node = step.nodes[number]
    return number


def _is_cells(node: TileNode) -> bool:
    """Whether an operator takes two operands element by element, as they lie."""
    sig, rank = signature(node.text), value_type(node.type).rank
    plain = all([p.plain for p in dims] == list(range(rank)) for dims in sig.operands)
    return len(sig.operands) == 2 and plain and not sig.n_reduced


def merging_on(
    target: Target, failing: Callable[[KernelStep | MoveStep, ScheduleGraph], str | None]
) -> Merging:
    """What kernels of a target take so, as their schedules say where these have `merging`.

    Args:
        target: the machine.
        failing: why a kernel of a graph cannot be written; None where it can.
    """

    def seconds(step: KernelStep, graph: ScheduleGraph) -> float | None:
        own = schedule_named(step.schedule)
        if not hasattr(own, "merging"):
            return None
        found: float = ask_schedule(
            own, "merging", step, target, expected="seconds",
            wrong=lambda answer: None if isinstance(answer, float) else "returns no number",
        )  # fmt: skip
        return None if found >= step.time_s or failing(step, graph) else found

    return seconds


def merged(graph: ScheduleGraph, spent: Collection[str], merging: Merging) -> ScheduleGraph:
    """A graph of one device whose kernels merge their results with spent inputs where that pays.

    Args:
        graph: of one device.
        spent: inputs that nobody reads after it.
        merging: says what such a kernel takes.
    """
    for step in graph.kernels:
        readers = [s for s in graph.steps if {a.buffer for a in s.reads} & set(spent)]
        for name in merges(step, graph):
            (write,) = step.writes
            own = graph.buffers[write.buffer]
            if name not in spent or own.role != "output" or name in graph.outputs:
                continue
            if [s for s in readers if name in {a.buffer for a in s.reads}] != [step] or own.over:
                continue
            buffers = {**graph.buffers, own.name: replace(own, over=name)}
            other = replace(graph, buffers=buffers)
            seconds = merging(step, other)
            if seconds is None or seconds >= step.time_s:
                continue
            made = replace(step, time_s=seconds)
            steps = tuple(made if s is step else s for s in graph.steps)
            graph = replace(other, steps=steps, time_s=graph.time_s + seconds - step.time_s)
            step = made
    return graph
