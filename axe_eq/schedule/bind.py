"""Binds named dims of a schedule graph to other extents: same kernels, other sizes.

Types are inferred again from the inputs on. What a program computed from an extent when it was
traced (the length of a slice, the divisor of a mean) is a constant by now; where such a constant
may stand for the dim that changes, binding refuses rather than mean something else. Per axis two
things are tracked for that: the bound dims its extent comes from, and the bound dims whose old
extent it has by a parameter alone, until it meets an axis that really has this extent.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from axe_eq.errors import ProgramError, ScheduleError
from axe_eq.layout import Layout
from axe_eq.program.meaning import evaluate_sel
from axe_eq.program.node import op_type, sel_type
from axe_eq.program.ops import Pull, selector
from axe_eq.program.signature import Affine, Signature, signature
from axe_eq.program.types import ValueType, value_type
from axe_eq.schedule import box as boxes
from axe_eq.schedule.box import WHOLE, parse
from axe_eq.schedule.graph import (
    Access,
    BufferSpec,
    CollectiveStep,
    KernelStep,
    ScheduleGraph,
    Step,
    TileNode,
)

Dims = frozenset[str]
NONE: Dims = frozenset()


@dataclass(frozen=True)
class Axis:
    """Where an axis has its extent from.

    Attributes:
        of: bound dims it follows.
        like: bound dims whose old extent it has from a parameter, and nothing else confirms it.
    """

    of: Dims = NONE
    like: Dims = NONE


@dataclass(frozen=True)
class Value:
    """A value before and after.

    Attributes:
        old, new: its types.
        axes: per dim.
        summed: bound dims that its last reduction went over.
        number: its value, for a scalar constant.
    """

    old: ValueType
    new: ValueType
    axes: tuple[Axis, ...]
    summed: Dims = NONE
    number: float | None = None


def bind(graph: ScheduleGraph, **dims: int) -> ScheduleGraph:
    """The schedule graph for other extents of its named dims.

    Block sizes stay and are clipped by who runs them; estimated times and costs are dropped, for
    they were made for the old extents.

    Args:
        graph: a graph whose `dims` name dims of its inputs.
        dims: name -> extent.

    Raises:
        ScheduleError: a name no dim has; a step with a parameter or constant made for the old
            extent; a buffer whose layout is not dense row-major and would have to change.
    """
    changed = _changed(graph, dims)
    return _Binding(graph, changed).run() if changed else graph


def _changed(graph: ScheduleGraph, dims: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Dim -> (old, new) extent of those that change."""
    known = _known(graph)
    changed: dict[str, tuple[int, int]] = {}
    for name, given in dims.items():
        if name not in known:
            names = " ".join(known) or "none: no input has named dims"
            raise ScheduleError(f"dim {name!r}", "is no dim of the inputs", f"one of {names}")
        try:
            extent = operator.index(given)
        except TypeError:
            extent = 0
        if extent < 1:
            raise ScheduleError(f"dim {name!r}", f"bound to {given!r}", "an integer from 1")
        if known[name] == 1 != extent:
            # Extent 1 broadcasts: what is read once may have to be read along the dim.
            raise ScheduleError(
                f"dim {name!r}", f"bound to {extent}, compiled for 1", "an extent above 1 to start"
            )
        if extent != known[name]:
            changed[name] = known[name], extent
    return changed


def _known(graph: ScheduleGraph) -> dict[str, int]:
    """Extents of the named dims."""
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

    Args:
        node: a block operator or a selector.
        box: its box.
        old: boxes its operands had.
        types: types its operands have.
    """
    if node.kind != "cell":
        return boxes.sel_boxes(node.text, "".join(f"{t};" for t in types), box)
    sig = signature(node.text)
    entries = [*parse(box), *[boxes.ALL] * sig.n_reduced]
    for operand, text in zip(sig.operands, old, strict=True):
        for projection, entry in zip(operand, parse(text), strict=True):
            if projection.plain is not None and projection.plain >= sig.n_out:
                entries[projection.plain] = entry
    return boxes.project(sig, entries, sig.extents([t.shape for t in types]))


class _Binding:
    """One graph under new extents."""

    def __init__(self, graph: ScheduleGraph, changed: dict[str, tuple[int, int]]) -> None:
        self.graph, self.changed = graph, changed
        self.text = ", ".join(f"{d}={new}" for d, (_, new) in changed.items())
        self.values = {n: self._given(b) for n, b in graph.buffers.items()}

    def run(self) -> ScheduleGraph:
        """The graph with new types, layouts, loops and accesses."""
        steps = tuple(self._step(step) for step in self.graph.steps)
        for name in self.graph.outputs:
            for axis in self.values[name].axes:
                if axis.like:
                    raise self._fixed(f"output {name!r}", axis.like)
        buffers = {n: self._buffer(b) for n, b in self.graph.buffers.items()}
        return replace(self.graph, buffers=buffers, steps=steps, time_s=0.0)

    # -- buffers and steps ------------------------------------------------------------------------

    def _given(self, buffer: BufferSpec) -> Value:
        """A buffer as its role says; temporaries and outputs are replaced when they are written."""
        old = buffer.value_type
        names = self.graph.dims.get(buffer.name, ())
        names = (*names, *[""] * (old.rank - len(names)))
        if buffer.role == "constant":
            return Value(old, old, tuple(Axis(like=self._like(e)) for e in old.shape))
        pairs = zip(names, old.shape, strict=True)
        shape = [self.changed[d][1] if d in self.changed else extent for d, extent in pairs]
        axes = tuple(Axis(frozenset({d} & self.changed.keys())) for d in names)
        return Value(old, ValueType(old.dtype, tuple(shape)), axes)

    def _like(self, extent: int) -> Dims:
        return frozenset(d for d, (old, _) in self.changed.items() if old == extent and old > 1)

    def _buffer(self, buffer: BufferSpec) -> BufferSpec:
        new = self.values[buffer.name].new
        layout = self._layout(f"buffer {buffer.name!r}", buffer.name, buffer.layout)
        return replace(buffer, type=str(new), layout=layout)

    def _layout(self, thing: str, buffer: str, text: str) -> str:
        """A dense row-major layout at the new size."""
        value = self.values[buffer]
        if value.old.size == value.new.size:
            return text
        if not _is_row_major(text, value.old.size):
            raise ScheduleError(
                f"{thing}, bound {self.text}",
                f"has layout {text}, which has no meaning at {value.new}",
                f"the dense row-major {_row_major(value.old.size)}",
            )
        return _row_major(value.new.size)

    def _access(self, step: Step, access: Access) -> Access:
        thing = f"step {step.name}, buffer {access.buffer!r}"
        return replace(access, layout=self._layout(thing, access.buffer, access.layout))

    def _step(self, step: Step) -> Step:
        loops: Mapping[str, int] = {}
        if isinstance(step, KernelStep):
            values = self._kernel(step)
            found = self._boxes(step, values)
            nodes = tuple(
                replace(n, type=str(v.new), box=b)
                for n, v, b in zip(step.nodes, values, found, strict=True)
            )
            loops = loop_extents(nodes)
            written = [values[r] for r in step.roots]
        else:
            written = [self._moved(step)]
        for write, value in zip(step.writes, written, strict=True):
            self.values[write.buffer] = value
        reads = tuple(self._access(step, a) for a in step.reads)
        writes = tuple(self._access(step, a) for a in step.writes)
        if isinstance(step, KernelStep):
            return replace(
                step, nodes=nodes, loops=loops, reads=reads, writes=writes, time_s=0.0, costs={}
            )
        return replace(step, reads=reads, writes=writes, time_s=0.0, costs={})

    def _moved(self, step: Step) -> Value:
        value = self.values[step.reads[0].buffer]
        if isinstance(step, CollectiveStep) and value.old != value.new:
            raise ScheduleError(
                f"step {step.name}, bound {self.text}",
                f"reduces {value.old} over the mesh",
                "dims that no collective touches",
            )
        return value

    def _kernel(self, step: KernelStep) -> list[Value]:
        values: list[Value] = []
        for number, node in enumerate(step.nodes):
            thing = f"step {step.name}, node {number}"
            operands = [values[o] for o in node.operands]
            if node.kind == "load":
                value = self.values[step.reads[node.access].buffer]
                for text in node.view:
                    value = self._selected(f"{thing} {text!r}", text, [value])
            elif node.kind == "cell":
                value = self._cell(f"{thing} {node.cell!r}", node, operands)
            else:
                value = self._selected(f"{thing} {node.text!r}", node.text, operands)
            values.append(value)
        return values

    def _boxes(self, step: KernelStep, values: Sequence[Value]) -> list[str]:
        """The boxes of all nodes, from the roots' down: flips and windows hold extents."""
        found: dict[int, str] = {r: step.nodes[r].box for r in step.roots}
        for number in reversed(range(len(step.nodes))):
            node = step.nodes[number]
            old = [step.nodes[o].box for o in node.operands]
            types = [values[o].new for o in node.operands]
            wanted = operand_boxes(node, found.get(number, node.box), old, types) if old else ()
            for operand, box in zip(node.operands, wanted or old, strict=True):
                if found.setdefault(operand, box) != box:
                    raise ScheduleError(
                        f"step {step.name}, node {operand}, bound {self.text}",
                        f"is read in boxes {found[operand]!r} and {box!r}",
                        "one box",
                        hint="compile for this extent",
                    )
        return [found.get(number, node.box) for number, node in enumerate(step.nodes)]

    def _fixed(self, thing: str, dims: Iterable[str]) -> ScheduleError:
        names = " ".join(sorted(dims))
        return ScheduleError(
            f"{thing}, bound {self.text}",
            f"has an extent that was fixed for {names}",
            "parameters that do not depend on it",
            hint="compile for this extent",
        )

    def _failed(self, thing: str, error: ProgramError) -> ScheduleError:
        return ScheduleError(f"{thing}, bound {self.text}", str(error).replace("\n", " "))

    # -- block operators --------------------------------------------------------------------------

    def _cell(self, thing: str, node: TileNode, operands: Sequence[Value]) -> Value:
        sig = signature(node.text)
        try:
            new = op_type(node.text, node.cell, tuple(v.new for v in operands))
        except ProgramError as error:
            raise self._failed(thing, error) from None
        axes = [self._index_dim(thing, sig, d, operands) for d in range(sig.n_dims)]
        reduced = axes[sig.n_out :]
        if like := [d for axis in reduced for d in axis.like]:
            raise self._fixed(thing, like)
        self._check_numbers(thing, operands)
        if reduced:
            summed = frozenset(d for axis in reduced for d in axis.of)
        else:
            summed = frozenset(d for v in operands for d in v.summed)
        old = op_type(node.text, node.cell, tuple(v.old for v in operands))
        return Value(old, new, tuple(axes[: sig.n_out]), summed)

    def _index_dim(self, thing: str, sig: Signature, dim: int, operands: Sequence[Value]) -> Axis:
        """Where an index dim has its extent from: every operand axis that is read along it."""
        met: list[Axis] = []
        for operand, value in zip(sig.operands, operands, strict=True):
            for projection, axis in zip(operand, value.axes, strict=True):
                self._check_constant(thing, projection, axis)
                if dim in (d for d, _ in projection.terms):
                    met.append(axis)
        if not met:
            return Axis(like=self._like(dict(sig.fixed).get(dim, 1)))
        confirmed = any(not axis.like for axis in met)
        return Axis(
            frozenset(d for axis in met for d in axis.of),
            NONE if confirmed else frozenset(d for axis in met for d in axis.like),
        )

    def _check_constant(self, thing: str, projection: Affine, axis: Axis) -> None:
        if not projection.terms and projection.offset and axis.of:
            raise self._fixed(thing, axis.of)

    def _check_numbers(self, thing: str, operands: Sequence[Value]) -> None:
        """A number next to a sum over a bound dim may be its old extent: the divisor of a mean."""
        summed = frozenset(d for v in operands for d in v.summed)
        for value in operands:
            for dim in summed if value.number is not None else ():
                old = self.changed[dim][0]
                if value.number in (old, old - 1, 1 / old) and old > 1:
                    raise ScheduleError(
                        f"{thing}, bound {self.text}",
                        f"computes with {value.number:g} next to a reduction over {dim}={old}",
                        "no constant that may be its extent",
                        hint="compile for this extent",
                    )

    # -- selectors --------------------------------------------------------------------------------

    def _selected(self, thing: str, text: str, operands: Sequence[Value]) -> Value:
        try:
            new = sel_type(text, tuple(v.new for v in operands))
        except ProgramError as error:
            raise self._failed(thing, error) from None
        old = sel_type(text, tuple(v.old for v in operands))
        if not operands:
            number = float(evaluate_sel(text, [])) if not old.shape else None
            return Value(old, new, tuple(Axis(like=self._like(e)) for e in old.shape), NONE, number)
        axes = self._selected_axes(thing, text, operands, old, new)
        return Value(old, new, axes, frozenset(d for v in operands for d in v.summed))

    def _selected_axes(
        self, thing: str, text: str, operands: Sequence[Value], old: ValueType, new: ValueType
    ) -> tuple[Axis, ...]:
        declared, params = selector(text)
        pulls: list[list[Pull | None]] = [[None] * v.old.rank for v in operands]
        if declared.pull is not None:
            pulls = declared.pull(params, [v.old for v in operands])
        along: list[list[Axis]] = [[] for _ in old.shape]
        loose: list[tuple[int, Axis]] = []
        for value, row in zip(operands, pulls, strict=True):
            for extent, axis, pull in zip(value.old.shape, value.axes, row, strict=True):
                if pull is None:
                    loose.append((extent, axis))
                elif declared.fill is not None and extent != old.shape[pull.axis]:
                    # How much is outside is a parameter, perhaps made for the old extent.
                    along[pull.axis].append(Axis(axis.of, axis.like | axis.of))
                else:
                    along[pull.axis].append(axis)
        sizes = list(zip(old.shape, new.shape, along, strict=True))
        moved = _Moved(
            frozenset(d for _, axis in loose for d in axis.of),
            frozenset(d for _, axis in loose for d in axis.like),
            math.prod(e for e, _ in loose) == math.prod(e for e, _, met in sizes if not met),
        )
        if moved.of and all(before == after for before, after, met in sizes if not met):
            raise self._fixed(thing, moved.of)
        return tuple(
            self._pulled(thing, before == after, met) if met else self._made(before, after, moved)
            for before, after, met in sizes
        )

    def _made(self, old: int, new: int, moved: _Moved) -> Axis:
        """An axis that the selector makes of operand axes it reads whole."""
        if old != new:
            return Axis(moved.of, moved.like)
        if moved.of:
            return Axis(NONE, moved.like | (moved.of if old > 1 else NONE))
        # Cutting an extent that stays needs no other; growing one takes a parameter.
        return Axis(NONE, moved.like | (NONE if moved.reshaped else self._like(old)))

    def _pulled(self, thing: str, same: bool, met: Sequence[Axis]) -> Axis:
        """An axis along which operands are read index by index."""
        of = frozenset(d for axis in met for d in axis.of)
        if of and same:
            raise self._fixed(thing, of)
        return Axis(of, frozenset(d for axis in met for d in axis.like))


@dataclass(frozen=True)
class _Moved:
    """Operand axes that a selector reads whole, together; reshaped: into axes of the same size."""

    of: Dims
    like: Dims
    reshaped: bool


def _row_major(size: int) -> str:
    return str(Layout([(size, 1, "m")]))


def _is_row_major(text: str, size: int) -> bool:
    return Layout.parse(text).canonical() == Layout([(size, 1, "m")]).canonical()
