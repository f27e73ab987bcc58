"""What is asked of a search: the layouts that values arrive and are wanted in, checked first."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from axe_eq.errors import ArgumentError, LayoutError, ScheduleError
from axe_eq.extract.mesh.choose import Problem
from axe_eq.extract.mesh.cuts import Form, cut_of, form, whole
from axe_eq.extract.mesh.moves import Moves
from axe_eq.extract.mesh.options import Machine
from axe_eq.extract.search.layouts import Places
from axe_eq.layout import Layout, Mesh
from axe_eq.layout.notation import check_shape
from axe_eq.mesh.sides import side
from axe_eq.program.node import INPUT, InputSpec, Node, Program
from axe_eq.program.types import ANY, ValueType
from axe_eq.rule.term import Term
from axe_eq.schedule import terms as schedule_terms
from axe_eq.schedule.graph import ScheduleGraph
from axe_eq.schedule.kept import Kept, kept_layouts
from axe_eq.schedule.memory import layout_bytes
from axe_eq.schedule.shard import DEVICE_AXIS, box_of, layout_text, show
from axe_eq.target import Target

if TYPE_CHECKING:
    from axe_eq.program.node import Place


def wanted_layouts(program: Program, outputs: Sequence[Place] | str) -> tuple[Place, ...]:
    """The layouts wanted of a program's outputs.

    Raises:
        ArgumentError: another number of them, no layout, one of another size, or one that keeps
            several elements in one place.
    """
    given = list(outputs) if isinstance(outputs, list | tuple) else None
    if isinstance(outputs, str) and outputs == ANY:
        given = [ANY] * len(program.outputs)
    if given is None or len(given) != len(program.outputs):
        wanted = f"a list of {len(program.outputs)} layouts, or 'any'"
        raise ArgumentError(f"outputs={outputs!r}"[:200], "does not fit the outputs", wanted)
    for number, (layout, root) in enumerate(zip(given, program.outputs, strict=True)):
        if layout is None or (isinstance(layout, str) and layout == ANY):
            continue
        if not isinstance(layout, Layout):
            wanted = "a Layout, 'any' or None"
            raise ArgumentError(f"layout of output {number}", f"is {layout!r}", wanted)
        try:
            check_shape(layout, root.type.shape)
        except LayoutError as error:
            error.thing = f"output {number}, {error.thing}"
            raise
        if (clash := layout.aliasing().clash) is not None:
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
        if not isinstance(layout, Layout):
            continue
        axes = [a for a in layout.axes if layout.range(a) != (0, 0)]
        if strange := sorted(set(axes) - known):
            raise LayoutError(
                f"layout {layout} of {what}",
                f"lies on {' '.join(strange)}",
                f"{' '.join(sorted(known))}, the axes of {memory.name} on {target.name!r}"
                + ("" if mesh is None else " and of the mesh"),
                hint=_MESH_HINT if mesh is None and DEVICE_AXIS in strange else "",
            )


def check_devices(program: Program, mesh: Mesh) -> None:
    """Refuse inputs and outputs on devices that a mesh lacks, or that messages cannot bring there.

    Raises:
        LayoutError: names the input or output, and a device that there is not, or the layout.
    """
    wanted = program.output_layouts or ()
    placed = [(f"input {i.name!r}", i.layout, i.node.type) for i in program.inputs]
    outputs = zip(wanted, program.outputs, strict=False)
    placed += [(f"output {n}", w, root.type) for n, (w, root) in enumerate(outputs)]
    for what, layout, type_ in placed:
        if not isinstance(layout, Layout):
            continue
        low, high = layout.range(mesh.axis)
        if low < 0 or high >= mesh.size:
            wrong = f"lies on device {high if high >= mesh.size else low}"
            wanted_text = f"devices 0 to {mesh.size - 1}, those of {mesh}"
            raise LayoutError(f"layout {layout} of {what}", wrong, wanted_text)
        try:
            side(str(layout.canonical()), type_.shape, DEVICE_AXIS)
        except LayoutError as error:
            error.thing = f"{what}, {error.thing}"
            raise


def everywhere(program: Program, mesh: str) -> Program:
    """The program with every input without a layout of its own whole on every device of a mesh."""

    def placed(given: InputSpec) -> InputSpec:
        return replace(given, layout=Layout.parse(_whole(given.node.type, mesh)))

    inputs = tuple(i if isinstance(i.layout, Layout) else placed(i) for i in program.inputs)
    return replace(program, inputs=inputs)


def _whole(type: ValueType, mesh: str) -> str:
    """The layout of a value that is whole on every device."""
    return layout_text(str(type), show(() for _ in type.shape), mesh)


def cuts_problem(
    program: Program,
    mesh: str,
    target: Target,
    numerics: str,
    objective: str,
    links: Mapping[str, str],
) -> Problem:
    """What is asked of cuts over a mesh: the buffers that values arrive and are wanted in."""
    arrive = {i.name: _cut_form(i.node.type, i.layout, mesh) for i in program.inputs}
    arrive |= {
        name: form(node.type, whole(node.type.shape), mesh)
        for name, node in constant_nodes(program).items()
    }
    wanted = program.output_layouts or (None,) * len(program.outputs)
    return Problem(
        Machine(mesh, target, numerics == "real"),
        Moves(mesh, target, links),
        arrive,
        [
            _cut_form(root.type, layout, mesh) if isinstance(layout, Layout) else None
            for root, layout in zip(program.outputs, wanted, strict=True)
        ],
        objective,
    )


def _cut_form(type: ValueType, layout: Place, mesh: str) -> Form:
    """A buffer of a value in a layout: a cut over a mesh, or one that only messages read."""
    assert isinstance(layout, Layout)
    try:
        box = box_of(str(type), layout, mesh)
    except ScheduleError:
        return Form(type, str(layout.canonical()))
    return form(type, cut_of(box, type.shape, mesh), mesh)


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
    wanted = [kept[0].layout for kept in places_of(program).outputs]
    kept = dict.fromkeys(zip(program.outputs, wanted, strict=True))
    made = sum(layout_bytes(layout, root.type.itemsize) for root, layout in kept)
    memory = target.memories[0]
    if given + made > memory.n_bytes:
        raise too_large(
            f"program with {n_bytes_text(given)} of inputs and {n_bytes_text(made)} of outputs",
            target,
        )


class TooLarge(ScheduleError):
    """What does not fit into a memory."""


def too_large(what: str, target: Target) -> TooLarge:
    """The error of what does not fit into a target's first memory."""
    memory = target.memories[0]
    return TooLarge(
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


def ways(layout: Place, type: ValueType, kinds: Collection[str] = ()) -> tuple[Kept, ...]:
    """Layouts that a value may have: the one that is prescribed, or what a target keeps it in.

    Without kinds, and where nothing is said, it is dense row-major.
    """
    if isinstance(layout, Layout):
        return (Kept(0, str(layout.canonical())),)
    return kept_layouts(type, kinds if layout == ANY else ())


def places_of(program: Program, kinds: Collection[str] = ()) -> Places:
    """Where the inputs and outputs of a program may lie, on a target that keeps these kinds."""
    wanted = program.output_layouts or (None,) * len(program.outputs)
    outputs = zip(wanted, program.outputs, strict=True)
    return Places(
        {i.name: ways(i.layout, i.node.type, kinds) for i in program.inputs},
        [ways(layout, root.type, kinds) for layout, root in outputs],
    )


def arrival_layouts(program: Program) -> dict[str, str]:
    """Input name -> the layout it arrives in: as its spec says, else dense row-major."""
    return {name: kept[0].layout for name, kept in places_of(program).inputs.items()}


def requests_of(
    program: Program, terms: Mapping[Node, Term], kinds: Collection[str] = ()
) -> list[Term]:
    """A `place` request per output, and layout that it may be wanted in."""
    outputs = zip(program.outputs, places_of(program, kinds).outputs, strict=True)
    return [schedule_terms.place(terms[root], kept.layout) for root, of in outputs for kept in of]


def settled(program: Program, schedule: ScheduleGraph) -> Program:
    """The program with the layouts that were chosen, as a schedule of it has them."""

    def chosen(place: Place, buffer: str) -> Place:
        return Layout.parse(schedule.buffers[buffer].layout) if place == ANY else place

    inputs = tuple(replace(i, layout=chosen(i.layout, i.name)) for i in program.inputs)
    outputs = zip(program.output_layouts, schedule.outputs, strict=False)
    made = tuple(chosen(place, buffer) for place, buffer in outputs)
    return replace(program, inputs=inputs, output_layouts=made)


def constant_nodes(program: Program) -> dict[str, Node]:
    """Input nodes of the captured constants that the program uses."""
    found = {n.text: n for n in program.nodes() if n.kind == INPUT}
    return {name: found[name] for name in program.constants if name in found}
