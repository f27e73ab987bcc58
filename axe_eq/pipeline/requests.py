"""What is asked of a search: the layouts that values arrive and are wanted in, checked first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from axe_eq.errors import ArgumentError, LayoutError, ScheduleError, SearchError
from axe_eq.layout import Layout, Mesh
from axe_eq.program.node import INPUT, SCAN, SEL, InputSpec, Node, Program
from axe_eq.rule.term import Term
from axe_eq.schedule import terms as schedule_terms
from axe_eq.schedule.memory import layout_bytes
from axe_eq.schedule.shard import DEVICE_AXIS, box_of, layout_text, show
from axe_eq.schedule.terms import row_major
from axe_eq.target import Target


def wanted_layouts(program: Program, outputs: Sequence[Layout | None]) -> tuple[Layout | None, ...]:
    """The layouts wanted of a program's outputs.

    Raises:
        ArgumentError: another number of them, no layout, one of another size, or one that keeps
            several elements in one place.
    """
    given = list(outputs) if isinstance(outputs, list | tuple) else None
    if given is None or len(given) != len(program.outputs):
        wanted = f"a list of {len(program.outputs)} layouts"
        raise ArgumentError(f"outputs={outputs!r}"[:200], "does not fit the outputs", wanted)
    for number, (layout, root) in enumerate(zip(given, program.outputs, strict=True)):
        if layout is not None and not isinstance(layout, Layout):
            raise ArgumentError(f"layout of output {number}", f"is {layout!r}", "a Layout or None")
        if layout is not None and layout.size != root.type.size:
            wanted = f"{root.type.size}, as {root.type}"
            raise ArgumentError(f"layout {layout} of output {number}", f"has size {layout.size}",
                                wanted)  # fmt: skip
        if layout is not None and (clash := layout.aliasing().clash) is not None:
            raise ArgumentError(f"layout {layout} of output {number}",
                                f"keeps elements {clash.x} and {clash.y} in one place",
                                "a place for each")  # fmt: skip
    return tuple(given)


_MESH_HINT = 'mesh=axe.Mesh({"x": 8}), the devices that gpuid numbers'


def check_axes(program: Program, target: Target, mesh: Mesh | None) -> None:
    """Refuse inputs and outputs on axes that neither the target's first memory nor the mesh has.

    Raises:
        LayoutError: names the input or output, the axes and those that there are.
    """
    memory = target.memories[0]
    known = {*memory.axes, *(() if mesh is None else (mesh.axis,))}
    placed = [(f"input {i.name!r}", i.layout) for i in program.inputs]
    placed += [(f"output {n}", layout) for n, layout in enumerate(program.output_layouts or ())]
    for what, layout in placed:
        axes = () if layout is None else [a for a in layout.axes if layout.range(a) != (0, 0)]
        if strange := sorted(set(axes) - known):
            raise LayoutError(
                f"layout {layout} of {what}",
                f"lies on {' '.join(strange)}",
                f"{' '.join(sorted(known))}, the axes of {memory.name} on {target.name!r}"
                + ("" if mesh is None else " and of the mesh"),
                hint=_MESH_HINT if mesh is None and DEVICE_AXIS in strange else "",
            )


def everywhere(program: Program, mesh: str) -> Program:
    """The program with every input that has no layout whole on every device of a mesh."""

    def placed(given: InputSpec) -> InputSpec:
        uncut = show(() for _ in given.node.shape)
        return replace(given, layout=Layout.parse(layout_text(str(given.node.type), uncut, mesh)))

    inputs = tuple(i if i.layout is not None else placed(i) for i in program.inputs)
    return replace(program, inputs=inputs)


def without_plan(program: Program, error: SearchError) -> SearchError:
    """The error of a search for a plan on a mesh: it names the selectors, for few have any."""
    found = list(dict.fromkeys(repr(n.text) for n in program.nodes() if n.kind == SEL))
    if not found:
        return error
    wrong = f"{error.wrong}: of selectors only splits can be, and it has {', '.join(found[:3])}"
    return SearchError(error.thing, wrong, "one device, or block operators alone")


def mesh_requests(program: Program, terms: Mapping[Node, Term], mesh: str) -> list[Term]:
    """One request per output: the cut its layout is, or any cut.

    Raises:
        ScheduleError: a layout that is no cut over the mesh.
    """
    if scans := [n.text for n in program.nodes() if n.kind == SCAN]:
        raise SearchError(f"scan '{scans[0]}'", "has no plan on a mesh", "one device, or no scans")
    wanted = program.output_layouts or (None,) * len(program.outputs)
    return [
        schedule_terms.spread(terms[root], mesh)
        if layout is None
        else schedule_terms.shard(terms[root], box_of(str(root.type), layout, mesh), mesh)
        for root, layout in zip(program.outputs, wanted, strict=True)
    ]


def check_memory(program: Program, target: Target, mesh: Mesh | None) -> None:
    """Refuse a program whose inputs and outputs alone are more than the target's memory holds.

    Raises:
        ScheduleError: gives both figures.
    """
    if mesh is not None:
        return  # what one device holds follows from the plan
    arrive = arrival_layouts(program)
    given = sum(layout_bytes(arrive[i.name], i.node.type.itemsize) for i in program.inputs)
    given += sum(n.type.n_bytes for n in constant_nodes(program).values())
    kept = dict.fromkeys(zip(program.outputs, output_layouts(program), strict=True))
    made = sum(layout_bytes(layout, root.type.itemsize) for root, layout in kept)
    memory = target.memories[0]
    if given + made > memory.n_bytes:
        raise too_large(
            f"program with {n_bytes_text(given)} of inputs and {n_bytes_text(made)} of outputs",
            target,
        )


def too_large(what: str, target: Target) -> ScheduleError:
    """The error of what does not fit into a target's first memory."""
    memory = target.memories[0]
    return ScheduleError(
        what, f"does not fit into {memory.name} of {target.name!r}",
        f"at most {n_bytes_text(memory.n_bytes)} in all",
        hint=f"a machine that has more is target.replace({memory.name}=bytes)",
    )  # fmt: skip


def n_bytes_text(n_bytes: int) -> str:
    """Bytes for people: ``"540.0 GB"``."""
    for unit, size in (("TB", 10**12), ("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n_bytes >= size:
            return f"{n_bytes / size:.1f} {unit}"
    return f"{n_bytes} B"


def arrival_layouts(program: Program) -> dict[str, str]:
    """Input name -> the layout it arrives in: as its spec says, else dense row-major."""
    return {
        i.name: str(i.layout.canonical()) if i.layout is not None else row_major(i.node.type.size)
        for i in program.inputs
    }


def output_layouts(program: Program) -> list[str]:
    """The layout wanted of every output: dense row-major unless the program says otherwise."""
    wanted = program.output_layouts or (None,) * len(program.outputs)
    return [
        str(layout.canonical()) if layout is not None else row_major(root.type.size)
        for root, layout in zip(program.outputs, wanted, strict=True)
    ]


def requests_of(program: Program, terms: Mapping[Node, Term]) -> list[Term]:
    """One `place` request per output."""
    return [
        schedule_terms.place(terms[root], layout)
        for root, layout in zip(program.outputs, output_layouts(program), strict=True)
    ]


def constant_nodes(program: Program) -> dict[str, Node]:
    """Input nodes of the captured constants that the program uses."""
    found = {n.text: n for n in program.nodes() if n.kind == INPUT}
    return {name: found[name] for name in program.constants if name in found}
