"""One kernel in numpy: its formulas, evaluated block by block of the index space.

The dims of the roots are walked as their boxes and the kernel's parameters say, slow ones first; a
reduction in chunks of its longest dim where a loop streams, all that can share a walk together.
Between operators values keep their accumulation dtype; they are rounded where they are stored.
An exact kernel (`KernelStep.rounds`) keeps the meaning's own order of every reduction. Its nodes
are evaluated whole, one by one, and so are those of what has no formulas (windows over padding,
results of several index spaces) or lies in blocks with ends and swizzles.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np

from axe_eq.errors import DispatchError, ScheduleError
from axe_eq.kernel.cells import Apply, Cell, Constant, Operand, arg, common_dtype
from axe_eq.lower.formulas import Cone, Fold, Load, Position, Prefix, Root
from axe_eq.lower.read import read_cone
from axe_eq.program import meaning, ops
from axe_eq.program.ops import State
from axe_eq.program.types import DTYPES, Array, dtype, value_type
from axe_eq.schedule.box import STREAM_LETTERS, UNIT_LETTERS, Range, parse
from axe_eq.schedule.graph import KernelStep
from axe_eq_backends.cpu.flat import Coverage, View, cut, parse_layout, restrided

Ranges = tuple[Range, ...]


class Kernel:
    """A kernel that runs on buffers.

    Args:
        step: the kernel.
    """

    def __init__(self, step: KernelStep) -> None:
        self.step = step

    @cached_property
    def formulas(self) -> Cone | None:
        """Its formulas; None where its nodes are evaluated."""
        layouts = [parse_layout(a.layout) for a in (*self.step.reads, *self.step.writes)]
        if self.step.rounds or any(x.box or x.swizzle for x in layouts):  # which tables say sooner
            return None
        try:
            cone = read_cone(replace(self.step, row=""))  # BLAS takes any views, no tiles
        except (DispatchError, ScheduleError):
            return None
        # Selectors move whole rows at a time; formulas ask of every element where it is read.
        loads = [leaf for leaf in cone.leaves if isinstance(leaf, Load)]
        moves = any(x.window or x.looks or x.end for x in loads)
        return cone if cone.folds or not moves else None

    def run(
        self, flats: Mapping[str, Array], reads: Mapping[int, View], writes: Sequence[View],
        coverage: Sequence[Coverage] = (),
    ) -> None:  # fmt: skip
        """Compute every root and store it.

        Args:
            flats: the buffers.
            reads: of every node that loads, by number.
            writes: of the step's.
            coverage: one per write where stores are to be checked.

        Raises:
            ScheduleError: where coverage is given, an element that is not stored exactly once.
        """
        if self.formulas is None:
            values = _whole(self.step, reads)
            for number, (root, view) in enumerate(zip(self.step.roots, writes, strict=True)):
                view.write(view.everything, values[root])
                if coverage:
                    coverage[number].add(view.everything)
        else:
            counts = [c.counts for c in coverage]
            found = _Blocks(self.formulas, flats, counts, _chunks(self.step))
            found.run(_blocks(self.step, self.formulas))
        for each in coverage:
            each.check()


# -- nodes, whole ---------------------------------------------------------------------------------


def _whole(step: KernelStep, reads: Mapping[int, View]) -> list[Array]:
    """The values of all nodes; each is rounded where the kernel says so."""
    values: list[Array] = []
    for number, node in enumerate(step.nodes):
        given = [values[o] for o in node.operands]
        if node.kind == "load":
            value = np.asarray(reads[number].read(reads[number].everything), order="C")
        elif node.kind == "cell":
            value = meaning.evaluate_op(node.text, node.cell, given)
        else:
            evaluate = meaning.evaluate_scan if node.kind == "scan" else meaning.moved
            value = evaluate(node.text, given)
        if not step.rounds:
            wide = DTYPES[DTYPES[value_type(node.type).dtype].accumulate].numpy
            value = value.astype(wide, copy=False)
        values.append(value)
    return values


# -- formulas, in blocks --------------------------------------------------------------------------


def _blocks(step: KernelStep, cone: Cone) -> list[list[Range]]:
    """The ranges that every dim of the roots is walked in; a blocked dim by its slowest part."""
    sizes = cone.shape[: cone.rank]
    for node in (step.nodes[root] for root in step.roots):
        dim = 0
        for entry, extent in zip(parse(node.box), value_type(node.type).shape, strict=True):
            begin, inside = dim, 1
            while dim < cone.rank and (dim == begin or inside < extent):
                inside *= cone.shape[dim]
                dim += 1
            size = step.parameters.get(entry.letter, 1 if entry.letter in UNIT_LETTERS else extent)
            if begin < cone.rank and inside == extent > size:
                sizes[begin] = min(sizes[begin], max(1, size * cone.shape[begin] // extent))
    return [_cut(extent, size) for extent, size in zip(cone.shape, sizes, strict=False)]


def _chunks(step: KernelStep) -> dict[int, int]:
    """How many indices of a reduced dim are taken at a time, by its extent, where it streams."""
    streams = [x for x in STREAM_LETTERS if x in step.loops and x in step.parameters]
    return {step.loops[x]: step.parameters[x] for x in streams}


def _cut(extent: int, size: int) -> list[Range]:
    return [Range(begin, min(begin + size, extent)) for begin in range(0, extent, size)]


class _Blocks:
    """Formulas on buffers; what depends on dims that did not move is kept.

    Args:
        cone: the formulas.
        flats: the buffers.
        counts: per root, where given, how often every address of its buffer is stored to.
        chunks: by extent of a reduced dim so many of its indices at a time.
    """

    def __init__(
        self,
        cone: Cone,
        flats: Mapping[str, Array],
        counts: Sequence[Array],
        chunks: Mapping[int, int],
    ) -> None:
        self.cone, self.flats, self.counts, self.chunks = cone, flats, counts, chunks
        self.at = [Range(0, extent) for extent in cone.shape]
        self.dims = Needs(cone)
        self.sharing = sharing(cone, self.dims)
        self._latest: dict[Cell, tuple[Ranges, Any]] = {}

    def run(self, blocks: Sequence[Sequence[Range]]) -> None:
        """Store all roots, block by block."""
        for found in product(*blocks):
            self.at[: self.cone.rank] = found
            for number, root in enumerate(self.cone.roots):
                self._store(number, root)

    def _store(self, number: int, root: Root) -> None:
        rank = self.cone.rank
        # A root without one of the dims is stored by the first block along it.
        if any(r.begin for r, s in zip(self.at, root.strides, strict=False) if not s):
            return
        strides = root.strides[:rank]
        into = _seen(self.flats[root.buffer], root.offset, strides, self.at)
        value = np.asarray(self._cell(root.cell))
        value = value.reshape(value.shape[:rank]) if value.ndim else value
        into[...] = value.astype(into.dtype, copy=False)
        if self.counts:
            count = _seen(self.counts[number], root.offset, strides, self.at)
            count += np.uint8(1)

    # -- values --

    def _cell(self, cell: Cell) -> Any:
        """Its value on this part of the index space; dims that it lacks have extent 1."""
        if isinstance(cell, Constant):
            return cell.computed_in(cell.kind)
        key = self._key(cell)
        latest = self._latest.get(cell)
        if latest is None or latest[0] != key:
            value = self._applied(cell) if isinstance(cell, Apply) else self._leaf(cell)
            latest = self._latest[cell] = key, value
        return latest[1]

    def _key(self, cell: Cell) -> Ranges:
        return tuple([self.at[d] for d in self.dims[cell]])

    def _applied(self, cell: Apply) -> Array:
        args = [np.asarray(self._cell(a)) for a in cell.args]
        kind = common_dtype(cell, [dtype(a.dtype).name for a in args])
        for n in range(ops.cell(cell.cell)[0].n_conditions, len(args)):
            if isinstance(given := cell.args[n], Constant):
                args[n] = np.asarray(given.computed_in(kind))
        return meaning.cell_values(cell.cell, args, kind)[0]

    def _leaf(self, operand: Operand) -> Array:
        leaf = self.cone.leaves[operand.index]
        if isinstance(leaf, Load):
            value = self._gathered(leaf) if leaf.looks or leaf.end else self._read(leaf)
            return value.astype(DTYPES[DTYPES[leaf.dtype].accumulate].numpy, copy=False)
        if isinstance(leaf, Position):
            return self._indices(leaf.dim).astype(np.int32)
        if isinstance(leaf, Prefix):
            return self._scanned(leaf)
        return self._reduced(operand, leaf)

    def _indices(self, dim: int, bounds: Range | None = None) -> Array:
        """The indices of a dim, the nearest ones that are in bounds, along its axis."""
        found = np.arange(self.at[dim].begin, self.at[dim].end)
        if bounds is not None:
            found = np.clip(found, bounds.begin, bounds.end - 1)
        return found.reshape([-1 if d == dim else 1 for d in range(len(self.at))])

    def _read(self, leaf: Load) -> Array:
        """A tensor at strides; outside its window the nearest elements, which mean nothing."""
        at, outside = list(self.at), []
        for dim, bounds in enumerate(leaf.window):
            if bounds and leaf.strides[dim]:
                low, high = bounds
                begin = min(max(at[dim].begin, low), high - 1)
                held = Range(begin, max(min(at[dim].end, high), begin + 1))
                if held != at[dim]:
                    index = np.clip(np.arange(at[dim].begin, at[dim].end), begin, held.end - 1)
                    outside.append((dim, index - begin))
                    at[dim] = held
        value = _seen(self.flats[leaf.buffer], leaf.offset, leaf.strides, at)
        for dim, index in outside:
            value = value.take(index, axis=dim)
        return value

    def _gathered(self, leaf: Load) -> Array:
        """A tensor that is read where integers say, or that ends inside a part."""
        place = np.full((1,) * len(self.at), leaf.offset)
        for dim, stride in enumerate(leaf.strides):
            bounds = leaf.window[dim] if leaf.window else None
            if stride:
                place = place + stride * self._indices(dim, Range(*bounds) if bounds else None)
        for look in leaf.looks:
            place = place + look.stride * np.asarray(self._cell(look.cell), np.int64)
        if leaf.end is None:
            return np.asarray(self.flats[leaf.buffer][place])
        slow, fast, extent = leaf.end
        inside = self._indices(slow) * self.cone.shape[fast] + self._indices(fast) < extent
        value = self.flats[leaf.buffer][np.where(inside, place, leaf.offset)]
        return np.where(inside, value, np.zeros((), value.dtype))

    def _scanned(self, leaf: Prefix) -> Array:
        now, self.at[leaf.dim] = self.at[leaf.dim], Range(0, self.cone.shape[leaf.dim])
        given = [self._along(self._cell(c), [leaf.dim]) for c in leaf.cells]
        shape = np.broadcast_shapes(*(a.shape for a in given))
        given = [np.broadcast_to(a, shape) for a in given]
        value = meaning.scanned(f"{leaf.monoid} {leaf.dim}", given)
        self.at[leaf.dim] = now
        return cut(value, [slice(None)] * leaf.dim + [slice(now.begin, now.end)])

    def _along(self, value: Any, dims: Sequence[int]) -> Array:
        """A value that has all of some dims."""
        array = np.asarray(value)
        shape = list(array.shape) if array.ndim else [1] * len(self.at)
        for d in dims:
            shape[d] = self.at[d].size
        return np.broadcast_to(array, shape)

    # -- reductions --

    def _reduced(self, operand: Operand, leaf: Fold) -> Array:
        """The value of a reduction; with it those of others that can share its chunks."""
        long = max(leaf.dims, key=self.cone.shape.__getitem__)
        extent = self.cone.shape[long]
        chunks = _cut(extent, self.chunks.get(extent, extent))
        folds = [(operand, leaf)]
        if len(chunks) > 1:
            folds += [m for m in self.sharing[operand] if self._is_new(m[0])]
        before = list(self.at)
        for d in leaf.dims:
            self.at[d] = Range(0, self.cone.shape[d])
        states: list[State] = []
        for chunk in chunks:
            self.at[long] = chunk
            parts = [self._lifted(member) for _, member in folds]
            if states:
                both = zip(folds, states, parts, strict=True)
                parts = [meaning.merge(m.monoid, state, part) for (_, m), state, part in both]
            states = parts
        self.at[:] = before
        for (member, m), state in zip(folds, states, strict=True):
            self._latest[member] = self._key(member), meaning.finish(m.monoid, state)
        found: Array = self._latest[operand][1]
        return found

    def _is_new(self, operand: Operand) -> bool:
        latest = self._latest.get(operand)
        return latest is None or latest[0] != self._key(operand)

    def _lifted(self, leaf: Fold) -> State:
        """The state of a reduction over this part of the index space."""
        text, args = "id", tuple[Cell, ...]([leaf.cell])
        if isinstance(leaf.cell, Apply) and (
            leaf.product or ops.cell(leaf.cell.cell)[0].n_values > 1
        ):
            text, args = leaf.cell.cell, leaf.cell.args
        views = [self._along(self._cell(a), ()) for a in args]
        lacking = [d for d in leaf.dims if all(v.shape[d] == 1 for v in views)]
        views[0] = self._along(views[0], lacking)
        return meaning.lift(leaf.monoid, text, views, leaf.dims)


class Needs(dict[Cell, tuple[int, ...]]):
    """The dims that a cell's value depends on.

    Attributes:
        cone: the formulas.
        depth: of every cell that was asked for, how many reductions are one inside another.
    """

    def __init__(self, cone: Cone) -> None:
        super().__init__()
        self.cone, self.depth = cone, dict[Cell, int]()

    def __missing__(self, cell: Cell) -> tuple[int, ...]:
        dims, inner, own = set[int](), tuple[Cell, ...](), tuple[int, ...]()
        if isinstance(cell, Apply):
            inner = cell.args
        elif isinstance(cell, Operand):
            leaf = self.cone.leaves[cell.index]
            if isinstance(leaf, Load):
                dims |= {d for d, s in enumerate(leaf.strides) if s} | {*(leaf.end or ())[:2]}
                inner = tuple(look.cell for look in leaf.looks)
            elif isinstance(leaf, Fold):
                inner, own = (leaf.cell,), leaf.dims
            else:
                dims.add(leaf.dim)
                inner = leaf.cells if isinstance(leaf, Prefix) else ()
        found = self[cell] = tuple(sorted(dims.union(*(self[c] for c in inner)) - {*own}))
        self.depth[cell] = max((self.depth[c] for c in inner), default=0) + bool(own)
        return found


def sharing(cone: Cone, needs: Needs) -> dict[Operand, list[tuple[Operand, Fold]]]:
    """Per reduction the others over its dims, of which none needs another: one walk serves all."""
    folds = [(arg(n), leaf) for n, leaf in enumerate(cone.leaves) if isinstance(leaf, Fold)]
    kind = {n: (leaf.dims, needs[n], needs.depth[n]) for n, leaf in folds}
    return {n: [m for m in folds if m[0] != n and kind[m[0]] == kind[n]] for n, _ in folds}


def _seen(flat: Array, offset: int, strides: Sequence[int], at: Sequence[Range]) -> Array:
    """A buffer over part of the index space; dims without a stride have extent 1."""
    begin = offset + sum(r.begin * s for r, s in zip(at, strides, strict=False))
    shape = [r.size if s else 1 for r, s in zip(at, strides, strict=False)]
    return restrided(flat, begin, shape, strides)
