"""What a saved program may hold: checked when it is loaded, so that what loads can be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from axe_eq.errors import ArgumentError, said
from axe_eq.program.nesting import is_nesting, leaf_numbers
from axe_eq.program.types import ValueType
from axe_eq.run.call import Call
from axe_eq.target import Target

if TYPE_CHECKING:
    from axe_eq.schedule.graph import KernelStep, ScheduleGraph


@dataclass(frozen=True)
class Head:
    """What a saved program says of itself beside its schedule, constants, texts and code.

    Attributes:
        format: version of the file.
        call: how arrays go in and out.
        extents: of named dims, as it was saved.
        accepted: other extents that were proved: texts, divisors and extents, see `Accepted`.
        shapes: of outputs.
        target: the machine, without its instruction rows.
        rows: the names of these, for they hold what their backend's dispatch reads.
        constants: name -> type.
        cost: named costs of the schedule.
        source: names of kernels whose text lies beside.
        has_code: machine code lies beside.
        mesh: its axes and sizes; None on one device.
    """

    format: int
    call: Call
    extents: Mapping[str, int]
    accepted: tuple[tuple[Mapping[str, str], Mapping[str, str], Mapping[str, int]], ...]
    shapes: tuple[tuple[int, ...] | None, ...]
    target: Target
    rows: tuple[str, ...]
    constants: Mapping[str, ValueType]
    cost: Mapping[str, float]
    source: tuple[str, ...]
    has_code: bool
    mesh: Mapping[str, int] | None


def check_call(call: Call, shapes: Sequence[Any]) -> None:
    """Check how arrays go in and out of a saved program.

    Raises:
        ArgumentError: a nesting that is none, or lists of other lengths than there are arrays.
    """
    n_inputs, ranks = len(call.names), [t.rank for t in call.types]
    if len(set(call.names)) != n_inputs or len(ranks) != n_inputs:
        raise _wrong("its inputs", f"{n_inputs} names of {len(ranks)} types")
    for name, of in (("dims", call.dims), ("strides", call.strides)):
        lengths = [len(entry) if entry else None for entry in of]
        if len(of) != n_inputs or any(
            n is not None and n != rank for n, rank in zip(lengths, ranks, strict=True)
        ):
            raise _wrong(f"its {name}", said(of))
    if call.arguments is not None:
        kind = call.arguments[0] if isinstance(call.arguments, list) else None
        if kind != "tuple" or _leaves(call.arguments) != list(range(n_inputs)):
            raise _wrong("its arguments", said(call.arguments))
    if sorted(_leaves(call.structure)) != list(range(len(shapes))):
        raise _wrong("its outputs", said(call.structure))


def _leaves(nesting: Any) -> list[int]:
    if not is_nesting(nesting, keys=(str, int, float)):
        raise _wrong("a nesting", said(nesting))
    return list(leaf_numbers(nesting))


# -- schedules ------------------------------------------------------------------------------------


def check_graph(graph: ScheduleGraph, call: Call, constants: Mapping[str, Any]) -> None:
    """Check a schedule against the call: every kernel computes what its buffers hold.

    Raises:
        AxeError: something that it names is not there, or is of another type.
    """
    from axe_eq.program.node import input_node
    from axe_eq.schedule.decode import values

    given = dict(zip(call.names, map(str, call.types), strict=True))
    held = [n for n in graph.inputs if n in given or n in constants]
    if held != list(graph.inputs) or len(held) != len(given) + len(constants):
        raise _wrong("its inputs", said(graph.inputs))
    for name, buffer in graph.buffers.items():
        if buffer.name != name or buffer.type != given.get(name, buffer.type):
            raise _wrong(f"its buffer {name!r}", said(buffer))
    for kernel in graph.kernels:
        _check_numbers(kernel)
    nodes = {n: input_node(n, graph.buffers[n].value_type) for n in graph.inputs}
    for name, node in values(graph, nodes).items():
        if str(node.type) != graph.buffers[name].type:
            raise _wrong(f"its buffer {name!r}", f"{graph.buffers[name].type} for {node.type}")
    n_outputs = len(_leaves(call.structure))
    missing = set(graph.outputs) - set(graph.buffers)
    if missing or len(graph.outputs) != n_outputs or len(graph.views) not in (0, n_outputs):
        raise _wrong("its outputs", said(graph.outputs))


def _check_numbers(kernel: KernelStep) -> None:
    """The numbers of nodes and accesses in a kernel are numbers of its own."""
    known = range(len(kernel.nodes))
    roots = len(kernel.roots) == len(kernel.writes) and all(r in known for r in kernel.roots)
    loads = all(n.access in range(len(kernel.reads)) for n in kernel.nodes if n.kind == "load")
    order = all(o in range(at) for at, n in enumerate(kernel.nodes) for o in n.operands)
    if not (roots and loads and order):
        raise _wrong(f"its kernel {kernel.name!r}", "numbers of nodes that it lacks")


def _wrong(where: str, found: str) -> ArgumentError:
    return ArgumentError(where, f"says {found}", "what was saved")
