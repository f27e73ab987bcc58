"""Binds named dims of a schedule graph to other extents: same kernels, other sizes.

Types are inferred again from the inputs on; boxes, loops and dense layouts follow. This changes
sizes and the texts it is told to change, and nothing else: whether the graph still computes the
function it was made from is not for it to say. `axe_eq.run.rebind` asks that.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from axe_eq.errors import ProgramError, ScheduleError
from axe_eq.layout import Layout
from axe_eq.program.node import op_type, scan_type, sel_type
from axe_eq.program.signature import signature
from axe_eq.program.types import ValueType, value_type
from axe_eq.schedule import box as boxes
from axe_eq.schedule.box import WHOLE, parse
from axe_eq.schedule.graph import (
    Access,
    BufferSpec,
    KernelStep,
    ScheduleGraph,
    SpmdStep,
    Step,
    TileNode,
    read_layout,
)
from axe_eq.schedule.terms import row_major
from axe_eq.schedule.views import view_type


def bind(
    graph: ScheduleGraph,
    extents: Mapping[str, int],
    texts: Mapping[str, str] | None = None,
    constants: Mapping[str, ValueType] | None = None,
) -> ScheduleGraph:
    """The schedule graph for other extents of its named dims.

    Block sizes stay and are clipped by who runs them; estimated times and costs are dropped, for
    they were made for the old extents.

    Args:
        graph: a graph whose `dims` name dims of its inputs.
        extents: dim name -> extent.
        texts: signatures and selectors to replace by others.
        constants: new types of captured constants.

    Raises:
        ScheduleError: a name no dim has; operators that do not fit at these extents; a buffer whose
            layout is not dense row-major and would have to change.
    """
    changed = check_extents(graph, extents)
    return _Binding(graph, changed, texts or {}, constants or {}).run() if changed else graph


def check_extents(graph: ScheduleGraph, extents: Mapping[str, int]) -> dict[str, int]:
    """Those of these extents of named dims that are new.

    Raises:
        ScheduleError: no such dim, or no extent.
    """
    known = named_extents(graph)
    for name, given in extents.items():
        if name not in known:
            names = " ".join(known) or "none: no input has named dims"
            raise ScheduleError(f"dim {name!r}", "is no dim of the inputs", f"one of {names}")
        try:
            extent = 0 if isinstance(given, bool) else operator.index(given)
        except TypeError:
            extent = 0
        if extent < 1:
            raise ScheduleError(f"dim {name!r}", f"bound to {given!r}", "an integer from 1")
    return {name: int(extent) for name, extent in extents.items() if extent != known[name]}


def named_extents(graph: ScheduleGraph) -> dict[str, int]:
    """Extents of the named dims of a graph's inputs.

    Raises:
        ScheduleError: one name with two extents.
    """
    known: dict[str, int] = {}
    for name, names in graph.dims.items():
        shape = graph.buffers[name].value_type.shape
        for dim, extent in zip(names, shape, strict=False):
            if dim and known.setdefault(dim, extent) != extent:
                raise ScheduleError(
                    f"dim {dim!r}", f"is {known[dim]} and, in {name!r}, {extent}", "one extent"
                )
    return known


def loop_extents(nodes: Iterable[TileNode]) -> dict[str, int]:
    """Extent of every loop letter of a kernel: the longest dim it runs over."""
    found: dict[str, int] = {}
    for node in nodes:
        for entry, extent in zip(parse(node.box), value_type(node.type).shape, strict=True):
            if entry.letter not in ("", WHOLE):
                found[entry.letter] = max(extent, found.get(entry.letter, 1))
    return found


def operand_boxes(
    node: TileNode, box: str, old: Sequence[str], types: Sequence[ValueType]
) -> tuple[str, ...] | None:
    """Boxes of a node's operands for its box; reduced dims keep the letters they had.

    None where that is no way to compute the node: two letters would meet in a dim, or a letter of
    the box would reduce.

    Args:
        node: a block operator, a selector or a scan.
        box: its box.
        old: boxes its operands had.
        types: types its operands have.
    """
    if node.kind != "cell":
        pulled = boxes.scan_boxes if node.kind == "scan" else boxes.sel_boxes
        return pulled(node.text, "".join(f"{t};" for t in types), box)
    sig = signature(node.text)
    entries = [*parse(box), *[boxes.ALL] * sig.n_reduced]
    for operand, text in zip(sig.operands, old, strict=True):
        for projection, entry in zip(operand, parse(text), strict=True):
            if projection.plain is not None and projection.plain >= sig.n_out:
                entries[projection.plain] = entry
    if any(e.letter in boxes.letters(box) for e in entries[sig.n_out :] if e != boxes.ALL):
        return None
    return boxes.project(sig, entries, sig.extents([t.shape for t in types]))


class _Binding:
    """One graph under new extents."""

    def __init__(
        self,
        graph: ScheduleGraph,
        changed: Mapping[str, int],
        texts: Mapping[str, str],
        constants: Mapping[str, ValueType],
    ) -> None:
        self.graph, self.changed, self.texts = graph, changed, texts
        self.bound = ", ".join(f"{d}={extent}" for d, extent in changed.items())
        self.types = {n: constants.get(n, self._given(b)) for n, b in graph.buffers.items()}

    def run(self) -> ScheduleGraph:
        """The graph with new types, layouts, loops and accesses."""
        steps = tuple(self._step(step) for step in self.graph.steps)
        buffers = {n: self._buffer(b) for n, b in self.graph.buffers.items()}
        views = tuple(tuple(map(self._text, view)) for view in self.graph.views)
        return replace(self.graph, buffers=buffers, steps=steps, views=views, time_s=0.0,
                       launches=(), apart=())  # fmt: skip

    def _text(self, text: str) -> str:
        return self.texts.get(text, text)

    # -- buffers and steps ------------------------------------------------------------------------

    def _given(self, buffer: BufferSpec) -> ValueType:
        """Type of an input; what steps write is replaced when they do."""
        old = buffer.value_type
        names = self.graph.dims.get(buffer.name, ()) or ("",) * old.rank
        pairs = zip(names, old.shape, strict=True)
        return ValueType(old.dtype, tuple(self.changed.get(d, extent) for d, extent in pairs))

    def _buffer(self, buffer: BufferSpec) -> BufferSpec:
        layout = self._layout(f"buffer {buffer.name!r}", buffer.name, buffer.layout)
        return replace(buffer, type=str(self.types[buffer.name]), layout=layout)

    def _layout(self, thing: str, buffer: str, text: str) -> str:
        """A dense row-major layout at the new size."""
        old, new = self.graph.buffers[buffer].value_type, self.types[buffer]
        if old.size == new.size:
            return text
        if not _is_row_major(text, old.size):
            raise ScheduleError(
                f"{thing}, bound {self.bound}",
                f"has layout {text}, which has no meaning at {new}",
                f"the dense row-major {row_major(old.size)}",
            )
        return row_major(new.size)

    def _access(self, step: Step, access: Access) -> Access:
        thing = f"step {step.name}, buffer {access.buffer!r}"
        held = self.graph.buffers[access.buffer].layout
        return replace(access, layout=self._layout(thing, access.buffer, held))

    def _seen(self, step: Step, number: int) -> Access:
        access = self._access(step, step.reads[number])
        type_ = self.types[access.buffer]
        return replace(access, layout=read_layout(step, number, type_, access.layout))

    def _step(self, step: Step) -> Step:
        if isinstance(step, KernelStep):
            nodes = self._boxed(step, self._kernel(step))
            step = replace(step, nodes=nodes, loops=loop_extents(nodes))
            written = [value_type(nodes[r].type) for r in step.roots]
        else:
            written = [self._moved(step)]
        self.types |= {w.buffer: t for w, t in zip(step.writes, written, strict=True)}
        reads = tuple(self._seen(step, n) for n in range(len(step.reads)))
        writes = tuple(self._access(step, a) for a in step.writes)
        return replace(step, reads=reads, writes=writes, time_s=0.0, costs={})

    def _moved(self, step: Step) -> ValueType:
        source = step.reads[0].buffer
        old, new = self.graph.buffers[source].value_type, self.types[source]
        if isinstance(step, SpmdStep) and old != new:
            raise ScheduleError(
                f"step {step.name}, bound {self.bound}", f"computes {old} on a mesh",
                "a graph of one device",
            )  # fmt: skip
        return new

    # -- kernels ----------------------------------------------------------------------------------

    def _kernel(self, step: KernelStep) -> list[TileNode]:
        """The nodes with new texts and types."""
        nodes: list[TileNode] = []
        for number, node in enumerate(step.nodes):
            made = replace(node, text=self._text(node.text), view=tuple(map(self._text, node.view)))
            operands = tuple(value_type(nodes[o].type) for o in node.operands)
            try:
                type_ = self._type(step, made, operands)
            except ProgramError as error:
                thing = f"step {step.name}, node {number}, bound {self.bound}"
                raise ScheduleError(thing, str(error).replace("\n", " ")) from None
            nodes.append(replace(made, type=str(type_)))
        return nodes

    def _type(self, step: KernelStep, node: TileNode, operands: tuple[ValueType, ...]) -> ValueType:
        if node.kind == "cell":
            return op_type(node.text, node.cell, operands)
        if node.kind == "gather":
            return sel_type(node.text, operands)
        if node.kind == "scan":
            return scan_type(node.text, operands)
        type_ = self.types[step.reads[node.access].buffer]
        for text in node.view:
            type_ = view_type(text, type_)
        return type_

    def _boxed(self, step: KernelStep, nodes: Sequence[TileNode]) -> tuple[TileNode, ...]:
        """The nodes with new boxes, from the roots' down: flips and windows hold extents."""
        found: dict[int, str] = {r: nodes[r].box for r in step.roots}
        for number in reversed(range(len(nodes))):
            node = nodes[number]
            box = found.setdefault(number, node.box)
            for operand, wanted in zip(
                node.operands, self._read(step, nodes, number, box), strict=True
            ):
                if found.setdefault(operand, wanted) != wanted:
                    raise ScheduleError(
                        f"step {step.name}, node {operand}, bound {self.bound}",
                        f"is read in boxes {found[operand]!r} and {wanted!r}",
                        "one box",
                    )
        return tuple(replace(node, box=found[n]) for n, node in enumerate(nodes))

    def _read(
        self, step: KernelStep, nodes: Sequence[TileNode], number: int, box: str
    ) -> tuple[str, ...]:
        """Boxes in which a node reads its operands, found as those of the old extents were."""
        node, before = nodes[number], step.nodes[number]
        if not node.operands:
            return ()
        old = tuple(step.nodes[o].box for o in node.operands)
        old_types, types = (
            [value_type(of[o].type) for o in node.operands] for of in (step.nodes, nodes)
        )
        wanted = operand_boxes(node, box, old, types)
        if wanted is None or operand_boxes(before, before.box, old, old_types) != old:
            thing = f"step {step.name}, node {number}, bound {self.bound}"
            raise ScheduleError(thing, f"reads boxes {old} for {before.box!r}", "projections of it")
        return wanted


def _is_row_major(text: str, size: int) -> bool:
    return str(Layout.parse(text).canonical()) == row_major(size)
