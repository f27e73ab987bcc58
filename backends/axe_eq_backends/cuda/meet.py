"""Kernels that wait for other devices themselves: the statements that a meeting adds to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from axe_eq.errors import ScheduleError
from axe_eq.kernel.expr import variables
from axe_eq.kernel.placement import number
from axe_eq.kernel.threads import ir
from axe_eq.kernel.threads.build import ThreadBuilder
from axe_eq.layout import Layout
from axe_eq.lower.own import Lowered
from axe_eq.schedule.graph import BufferSpec, KernelStep, MoveStep, ScheduleGraph
from axe_eq.schedule.meeting import signals_of
from axe_eq.schedule.window import in_window


def meet(made: Lowered, step: KernelStep | MoveStep, graph: ScheduleGraph) -> Lowered:
    """The kernel of a step with a signal at its begin, and a wait before it reads what is awaited.

    Threads wait that read such a tensor, or start a copy of it: before all units of work, or where
    roles divide the threads in each unit, before the loop that does. What a kernel does before, it
    does meanwhile.

    Raises:
        ScheduleError: it reads nothing that is awaited.
    """
    numbers = signals_of(graph.buffers.values())
    signals = [graph.buffers[a.buffer] for a in step.reads if a.buffer in numbers]
    if not signals:
        return made
    kernel = made.kernel
    seen, own, last = (_tensor(b, kernel) for b in signals)
    awaited = frozenset(n for n, b in made.buffers.items() if graph.buffers[b].after)
    if not _wait(kernel.body, awaited, own, number(seen.shape[0])):
        raise ScheduleError(f"kernel {kernel.name}", "reads nothing that devices wait for", "some")
    kernel.body.insert(0, ir.Signal(seen.all, last.all))
    kernel.tensors += [seen, own, last]
    kernel.awaited = awaited
    names: Mapping[str, str] = {
        t.name: b.name for t, b in zip((seen, own, last), signals, strict=True)
    }
    return replace(made, buffers={**made.buffers, **names})


def _tensor(buffer: BufferSpec, kernel: ir.Kernel) -> ir.Buffer:
    name = buffer.name
    while name in set(kernel.names()):
        name += "_"
    shape, size = buffer.value_type.shape, buffer.value_type.itemsize
    lies = in_window(Layout.parse(buffer.layout), size)
    return ThreadBuilder("signals", 1).tensor(name, "i32", shape, layout=lies)


def _wait(
    body: ir.Body, awaited: frozenset[str], own: ir.Buffer, n: int, in_role: bool = False
) -> bool:
    """Put waits into a body; whether it reads something that is awaited.

    Roles do different things of a unit of work: only what reads waits, so they ask for each. One
    thread asks and the others wait for it: with 512 rows all threads of a kernel that adds parts
    up, asking for one number, took 8 us (two H200).
    """
    found = False
    for at, s in enumerate(body):
        if not _reads(s, awaited):
            continue
        found = True
        if isinstance(s, ir.Roles) or (in_role and _is_of_units(s)):
            for part in ir.children(s):
                _wait(part, awaited, own, n, True)
            continue
        body[at:at] = [ir.Scope("elect", [ir.Await(own.all, n)]), ir.Sync()]
        return True
    return found


def _reads(s: ir.Statement, awaited: frozenset[str]) -> bool:
    views = s.views() if isinstance(s, ir.Primitive) else ()
    return any(v.buffer.name in awaited for v in views) or any(
        _reads(x, awaited) for part in ir.children(s) for x in part
    )


def _is_of_units(s: ir.Statement) -> bool:
    """Whether a loop goes over units of work."""
    return isinstance(s, ir.For) and any(v.name == ir.N_CTAS.name for v in variables(s.step))
