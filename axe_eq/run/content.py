"""What a saved program may hold: checked when it is loaded, so that what loads can be used.

Digests in a file tell accidents, not intent: a file whose digests were worked out again may hold
anything that JSON can say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Union, get_args, get_origin, get_type_hints

from axe_eq.errors import ArgumentError, said
from axe_eq.program.nesting import is_nesting, leaf_numbers
from axe_eq.run.call import Call

if TYPE_CHECKING:
    from axe_eq.schedule.graph import KernelStep, ScheduleGraph

HEAD: dict[str, Any] = {
    "format": int,
    "names": tuple[str, ...],
    "types": tuple[str, ...],
    "arguments": Any,
    "structure": Any,
    "dims": tuple[tuple[str, ...], ...],
    "strides": tuple[tuple[int, ...] | None, ...],
    "origin": Mapping[str, Any],
    "shapes": tuple[tuple[int, ...] | None, ...],
    "target": Mapping[str, Any],
    "rows": tuple[str, ...],
    "constants": Mapping[str, str],
    "cost": Mapping[str, float],
    "source": tuple[str, ...],
    "has_code": bool,
    "mesh": Mapping[str, int] | None,
}


def check_head(head: Any) -> None:
    """Check what a saved program says about its calls, all but the call itself.

    Raises:
        ArgumentError: an entry lacks, is one too many, or is of another kind.
    """
    _check_entries("its head", head, HEAD)
    from axe_eq.target import Target

    check_kind("its target", head["target"], Target)
    _check_entries("its origin", head["origin"], _ORIGIN)
    for entry in head["origin"]["accepted"]:
        _check_entries("its other extents", entry, _ACCEPTED)


_ORIGIN = {"extents": Mapping[str, int], "accepted": tuple[Mapping[str, Any], ...]}
_ACCEPTED = {
    "extents": Mapping[str, int],
    "texts": Mapping[str, str],
    "divisors": Mapping[str, str],
}


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


# -- kinds ----------------------------------------------------------------------------------------


def _check_entries(where: str, value: Any, kinds: Mapping[str, Any]) -> None:
    if not isinstance(value, dict) or value.keys() != kinds.keys():
        names = sorted(value) if isinstance(value, dict) else value
        raise _wrong(where, said(names))
    for name, kind in kinds.items():
        check_kind(f"{where}: {name}", value[name], kind)


def check_kind(where: str, value: Any, kind: Any) -> None:
    """Check JSON data against a type: a dataclass, a list, a mapping, a union or a plain one.

    Raises:
        ArgumentError: names the place and what is there.
    """
    origin, parts = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        check_union(where, value, parts)
    elif is_dataclass(kind):
        _check_entries(where, value, _fields(kind))
    elif origin is tuple:
        if not isinstance(value, list) or (parts[-1] is not ... and len(value) != len(parts)):
            raise _wrong(where, said(value))
        for number, entry in enumerate(value):
            check_kind(f"{where}[{number}]", entry, parts[0] if parts[-1] is ... else parts[number])
    elif origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, dict):
            raise _wrong(where, said(value))
        for name, entry in value.items():
            check_kind(f"{where}: {name}", entry, parts[1])
    elif kind is not Any and type(value) not in ((float, int) if kind is float else (kind,)):
        raise _wrong(where, said(value))


@cache
def _fields(kind: Any) -> dict[str, Any]:
    """The types of a dataclass's fields. Kept: to evaluate them takes half of a first load."""
    hints = get_type_hints(kind)
    return {f.name: hints[f.name] for f in fields(kind)}


def check_union(where: str, value: Any, kinds: Sequence[Any]) -> None:
    """Check JSON data against several types, of which a dataclass is told by its `kind`."""
    said_kind = value.get("kind") if isinstance(value, dict) else None
    named = [k for k in kinds if is_dataclass(k) and getattr(k, "kind", None) == said_kind]
    if named:
        check_kind(where, value, named[0])
    elif not (value is None and NoneType in kinds):
        rest = [k for k in kinds if k is not NoneType and not is_dataclass(k)]
        if len(rest) != 1:
            raise _wrong(where, said(value))
        check_kind(where, value, rest[0])


def _wrong(where: str, found: str) -> ArgumentError:
    return ArgumentError(where, f"says {found}", "what was saved")
