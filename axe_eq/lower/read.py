"""Cones read as formulas: every value of a kernel as a cell over loads and sums of its index space.

The index space has one dim per dim of the roots, then one per reduced dim. An operand is read at an
affine function of the index. Composed with the layout of its buffer, that gives the strides of a
load, so operators that only move (broadcast, permute, slice, flip, reshape) vanish. Where a buffer
cuts a dim into blocks, the index space is cut there too: every tensor then has one stride per dim.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from axe_eq.errors import DispatchError, LayoutError, ScheduleError
from axe_eq.kernel.cells import Apply, Cell, Constant, apply, arg, used
from axe_eq.layout import Layout
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.lower.addresses import elements_of, looks_of
from axe_eq.lower.cutting import Raw, cut
from axe_eq.lower.formulas import Cone, Fold, Looked, Position, Prefix
from axe_eq.program import gathers, ops, places
from axe_eq.program.ops import Look
from axe_eq.program.places import Coords
from axe_eq.program.signature import Affine, plain, signature
from axe_eq.program.types import DTYPES, ValueType, value_type
from axe_eq.schedule.graph import KernelStep, MoveStep, ScheduleGraph, TileNode
from axe_eq.schedule.window import in_window

STORED = tuple(DTYPES)
_INT_MAX = (1 << 31) - 1
Alone = Callable[[str, Sequence[Cell], Sequence[str]], Cell]


def itself(monoid: str, operands: Sequence[Cell], dtypes: Sequence[str]) -> Cell:
    """The value of a scan over one element, where the monoid has one operand.

    Raises:
        ScheduleError: it has several.
    """
    if len(operands) > 1:
        raise ScheduleError(f"scan by {monoid}", f"of {len(operands)} operands", "one")
    return operands[0]


def as_kernel(step: MoveStep, graph: ScheduleGraph, schedule: str) -> KernelStep:
    """A move as the kernel that a schedule writes: a load, stored where the move writes."""
    type_ = graph.buffers[step.writes[0].buffer].type
    node = TileNode("load", "", "", "", type_, access=0)
    return KernelStep(step.name, (node,), (0,), step.reads, step.writes, {}, schedule)


def read_cone(step: KernelStep, alone: Alone = itself) -> Cone:
    """The formulas of a kernel.

    Args:
        step: the kernel.
        alone: the value of a scan over one element, from the monoid's name, its operands as cells
            and the dtypes that these are computed in.

    Raises:
        DispatchError: roots of several index spaces, a layout that strides do not describe, an
            element type that kernels do not store, gathers that are no strided reads.
    """
    return _Reader(step, alone).read()


def element_strides(
    thing: str, layout: str, shape: Sequence[int], itemsize: int = 0
) -> tuple[int, ...]:
    """Element stride of every dim of a value in a layout; 0 for dims of extent 1.

    Of one that lies on several devices they are those of a window, where elements have a size.

    Raises:
        DispatchError: the layout is no plain strided one.
    """
    parsed = _linear(thing, layout, itemsize)
    if parsed.offset:
        raise DispatchError(thing, f"lies in {layout}", "plain strides")
    try:
        blocks = parsed.group(tuple(shape)).blocks
    except LayoutError as error:
        raise DispatchError(thing, f"lies in {layout} ({error})", "plain strides") from None
    found = []
    for block in blocks:
        wide = [i for i in block if i[0] != 1]
        if len(wide) > 1 or any(i[1] < 0 for i in wide):
            raise DispatchError(thing, f"has blocked dims in {layout}", "one stride per dim")
        found.append(wide[0][1] if wide else 0)
    return tuple(found)


def _linear(thing: str, layout: str, itemsize: int) -> Layout:
    parsed = _in_memory(thing, layout, itemsize)
    if parsed.replica or not parsed.is_linear():
        raise DispatchError(thing, f"lies in {layout}", "iters on one memory axis")
    return parsed


def _in_memory(thing: str, layout: str, itemsize: int) -> Layout:
    parsed = Layout.parse(layout)
    parsed = in_window(parsed, itemsize) if itemsize else parsed
    if set(parsed.axes) - {DEFAULT_AXIS}:
        raise DispatchError(thing, f"lies in {layout}", "one memory axis")
    return parsed


class _Reader:
    def __init__(self, step: KernelStep, alone: Alone) -> None:
        self.step, self.alone = step, alone
        roots = [step.nodes[self._unviewed(r)] for r in step.roots]
        shapes = [value_type(node.type).shape for node in roots]
        # A row value and whole rows may be stored together: the larger space holds both.
        self.shape = places.index_space(shapes)
        layouts = [
            _in_memory(f"buffer {a.buffer}", a.layout, value_type(node.type).itemsize)
            for a, node in zip(step.writes, roots, strict=True)
        ]
        # What ends inside blocks is stored place by place of its memory.
        self.by_place = next((x for x in layouts if x.box), None)
        if self.by_place is not None:
            self.shape = tuple(e for e, _, _ in self.by_place.shard)
        self.cone = Cone(step.name, list(self.shape), len(self.shape), rounds=step.rounds)
        self.known: dict[tuple[int, Coords], Cell] = {}
        self.leaves: list[Raw | Position | Fold | Prefix] = []
        self.numbers: dict[Raw | Position | Fold | Prefix, int] = {}
        self.counted: dict[Cell, Cell] = {}  # positions of programs, and how they are counted
        self.looked: dict[int, Cell] = {}  # dims beside the index space, and their integers

    def read(self) -> Cone:
        stored = []
        for root, access in zip(self.step.roots, self.step.writes, strict=True):
            root = self._unviewed(root)
            type_ = value_type(self.step.nodes[root].type)
            if self.by_place is not None:
                coords, raw = self._place_by_place(self.by_place, access.buffer, type_)
            else:
                coords = self._root_coords(type_)
                raw = self._raw(access.buffer, access.layout, type_, coords, stored=True)
            cell = self._stripped(self._cell(root, coords), type_)
            stored.append((raw, cell))
        for dim in self.looked:  # nothing runs over them
            self.cone.shape[dim] = 1
        return cut(self.cone, self.leaves, stored)

    def _unviewed(self, number: int) -> int:
        """The node whose elements a node has in the same order."""
        node = self.step.nodes[number]
        while node.kind == "gather" and ops.selector(node.text)[0].inverse is not None:
            (number,) = node.operands
            node = self.step.nodes[number]
        return number

    def _root_coords(self, type_: ValueType) -> Coords:
        if not places.spans(self.shape, type_.shape):
            raise self.cone.refuse(
                f"stores shapes {type_.shape} and {self.shape}", "one index space for all roots"
            )
        return tuple(
            plain(d) if e == self.shape[d] and e > 1 else Affine(())
            for d, e in enumerate(type_.shape)
        )

    def _stripped(self, cell: Cell, type_: ValueType) -> Cell:
        """Without a last cast to the dtype that storing rounds to anyway."""
        while isinstance(cell, Apply) and cell.cell == _cast(type_.dtype):
            if type_.dtype not in ("f16", "bf16", "f32"):
                break
            cell = cell.args[0]
        return cell

    # -- tensors --

    def _place_by_place(self, layout: Layout, buffer: str, type_: ValueType) -> tuple[Coords, Raw]:
        """A stored value over the places of its memory, and which element each of them is of.

        Raises:
            DispatchError: several values, or places that several elements have or no strides say.
        """
        thing = f"buffer {buffer}"
        if len(self.step.roots) > 1 or layout.replica or layout.swizzle:
            raise DispatchError(thing, f"is stored in {layout}", "one result in blocks")
        found = [self._position(plain(d)) for d in range(len(self.shape))]
        cells = elements_of(layout, found, type_.shape)
        coords = tuple(self._dim_of(c, e) for c, e in zip(cells, type_.shape, strict=True))
        blocks = tuple(((e, s),) if e > 1 else () for e, s, _ in layout.shard)
        return coords, Raw(buffer, type_.dtype, blocks, layout.offset.get(DEFAULT_AXIS, 0), ())

    def _addressed(self, buffer: str, layout: Layout, type_: ValueType, coords: Coords) -> Raw:
        """A tensor whose elements are read where integers say that its layout has them.

        Raises:
            DispatchError: by tiles of products, which are no single elements, or too many elements.
        """
        thing = f"buffer {buffer}"
        if self.step.row:
            raise DispatchError(thing, f"lies in {layout}", "strides, for a product of tiles")
        index = []
        for c, extent in zip(coords, type_.shape, strict=True):
            cell = self._position(c)
            if places.bounds(c, self.cone.shape)[0] < 0:
                cell = apply("maximum", cell, 0)
            # Tiles hang over the end of an index space, and their threads count on.
            index.append(apply("minimum", cell, extent - 1) if c.terms else cell)
        looks = looks_of(layout, index, type_.shape)
        if looks is None:
            raise DispatchError(thing, f"lies in {layout}", "elements that 32 bits count")
        begin = 0 if layout.swizzle else layout.offset.get(DEFAULT_AXIS, 0)
        return Raw(buffer, type_.dtype, (), begin, (), tuple(looks))

    def _raw(
        self, buffer: str, layout: str, type_: ValueType, coords: Coords, stored: bool = False
    ) -> Raw:
        """A tensor over the index space: its layout after the affine map into its own dims."""
        if type_.dtype not in STORED:
            raise self.cone.refuse(f"buffer {buffer} holds {type_.dtype}", " ".join(STORED))
        thing = f"buffer {buffer}"
        extents = tuple(self.cone.shape)
        lies = _in_memory(thing, layout, type_.itemsize)
        if not stored and (lies.replica or not lies.is_linear()):
            return self._addressed(buffer, lies, type_, coords)
        read = places.read(_linear(thing, layout, type_.itemsize), coords, type_.shape, extents)
        if isinstance(read, str):
            raise DispatchError(thing, read, "parts of whole blocks, cut along one dim at a time")
        blocks, window = read.blocks, read.window
        looks, offset = [], read.offset
        for dim, cell in self.looked.items():
            if not blocks[dim]:
                continue
            if len(blocks[dim]) > 1:
                return self._addressed(buffer, lies, type_, coords)
            ((_, stride),) = blocks[dim]
            low, high = window[dim] or (0, extents[dim])
            looks.append(_looked(cell, stride, low, high))
            offset += low * stride
            blocks = (*blocks[:dim], (), *blocks[dim + 1 :])
        window = tuple(None if d in self.looked else w for d, w in enumerate(window))
        while blocks and len(blocks) > self.cone.rank and not blocks[-1]:
            blocks, window = blocks[:-1], window[:-1]
        return Raw(buffer, type_.dtype, blocks, offset, window if any(window) else (), tuple(looks))

    # -- nodes --

    def _cell(self, number: int, coords: Coords) -> Cell:
        key = number, coords
        made = self.known.get(key)
        if made is None:
            node = self.step.nodes[number]
            made = {
                "load": self._load, "cell": self._block, "gather": self._gather,
                "scan": self._scan,
            }[node.kind](number, node, coords)  # fmt: skip
            if self.step.rounds and node.kind in ("cell", "scan"):
                made = Apply(_cast(value_type(node.type).dtype), (made,))
            self.known[key] = made
        return made

    def _leaf(self, leaf: Raw | Position | Fold | Prefix) -> Cell:
        if self.by_place is not None and isinstance(leaf, Fold | Prefix):
            raise self.cone.refuse(
                f"reduces, and stores {self.by_place}", "values to be copied there"
            )
        number = self.numbers.setdefault(leaf, len(self.leaves))
        if number == len(self.leaves):
            self.leaves.append(leaf)
        return arg(number)

    def _load(self, number: int, node: TileNode, coords: Coords) -> Cell:
        return self._read(number, value_type(node.type), coords)

    def _read(self, number: int, type_: ValueType, coords: Coords) -> Cell:
        """A load node's tensor, seen as a value of this type with the same order of elements."""
        access = self.step.reads[self.step.nodes[number].access]
        return self._leaf(self._raw(access.buffer, access.layout, type_, coords))

    def _block(self, number: int, node: TileNode, coords: Coords) -> Cell:
        sig = signature(node.text)
        types = [value_type(self.step.nodes[o].type) for o in node.operands]
        images = dict(enumerate(coords))
        if not sig.n_reduced:
            return self._applied(node, [self._at(p, images) for p in sig.operands])
        extents = sig.extents([t.shape for t in types])
        # A dim of one index is no place: what is reduced inside may have it as its own.
        images |= dict.fromkeys(sig.reduced, Affine(()))
        long = [d for d in sig.reduced if extents[d] > 1] if not self.step.row else []
        reduced = long or list(sig.reduced)
        dims = self._reduced_dims([extents[d] for d in reduced], coords)
        for d, dim in zip(reduced, dims, strict=True):
            if self.cone.shape[dim] > 1:
                images[d] = plain(dim)
        cell = self._applied(node, [self._at(p, images) for p in sig.operands])
        product = ops.cell(node.cell)[0].product and len(node.operands) == 2 and sig.monoid == "+"
        dtypes = tuple(t.dtype for t in types)
        return self._leaf(Fold(sig.monoid, dims, coords, cell, product, dtypes))

    def _scan(self, number: int, node: TileNode, coords: Coords) -> Cell:
        monoid, axis = ops.scan(node.text)
        types = [value_type(self.step.nodes[o].type) for o in node.operands]
        if types[0].shape[axis] == 1:  # of one element: a cell
            cells = tuple(self._cell(o, coords) for o in node.operands)
            return self.alone(monoid.name, cells, [DTYPES[t.dtype].accumulate for t in types])
        dim = places.along(coords, axis, value_type(node.type).shape, self.cone.shape)
        if dim < 0:
            raise self.cone.refuse(f"reads parts of 'scan {node.text}'", "whole rows of it")
        cells = tuple(self._cell(o, coords) for o in node.operands)
        return self._leaf(Prefix(monoid.name, dim, coords, cells))

    def _at(self, projections: Sequence[Affine], images: dict[int, Affine]) -> Coords:
        return tuple(p.substitute(images) for p in projections)

    def _applied(self, node: TileNode, at: list[Coords]) -> Cell:
        args = [self._cell(o, c) for o, c in zip(node.operands, at, strict=True)]
        declared = ops.cell(node.cell)[0]
        if declared.identity and declared.n_values == 1:
            return args[0]
        counts = [self._count(a) for a in args]
        if declared.n_values > 1 or (declared.result in ("bool", "param") and None not in counts):
            args = [a if c is None else c for a, c in zip(args, counts, strict=True)]
        return Apply(node.cell, tuple(args))

    def _count(self, cell: Cell) -> Cell | None:
        """A position as it is counted, or an integer of as many bits; None for what is neither.

        Comparing, converting and handing on need no more bits than the value has.
        """
        if isinstance(cell, Constant):
            fits = cell.kind in ("i32", "i64") and abs(cell.value) <= _INT_MAX
            return Constant(cell.value, "i32") if fits else None
        return self.counted.get(cell)

    def _reduced_dims(self, wanted: Sequence[int], coords: Coords) -> tuple[int, ...]:
        """Dims for a reduction: dims of the roots that it does not use, or ones of its own.

        Rows that are reduced and stored again are dims of the index space. Reduced dims of equal
        extent are shared: no two reductions see each other's. Contractions share all or none, since
        those over the same dims go through the same steps.

        Args:
            wanted: extents of the reduced dims.
            coords: where the value lies.
        """
        taken = self._dims_of(coords)
        if self.step.row:
            # The last first: where extents are equal, a structured one and not what it weighs by.
            for fold in (leaf for leaf in reversed(self.leaves) if isinstance(leaf, Fold)):
                known = [self.cone.shape[d] for d in fold.dims]
                if known == wanted and taken.isdisjoint(fold.dims):
                    return fold.dims
            self.cone.shape += wanted
            return tuple(range(len(self.cone.shape) - len(wanted), len(self.cone.shape)))
        last = self.cone.rank - 1
        found = []
        for extent in wanted:
            own = [d for d in range(self.cone.rank, len(self.cone.shape)) if d not in self.looked]
            again = (last, *range(last)) if len(wanted) == 1 and last >= 0 else range(last + 1)
            fits = (d for d in (*again, *own) if d not in taken)
            dim = next((d for d in fits if self.cone.shape[d] == extent), None)
            if dim is None:
                self.cone.shape.append(extent)
                dim = len(self.cone.shape) - 1
            taken.add(dim)
            found.append(dim)
        return tuple(found)

    def _dims_of(self, coords: Coords) -> set[int]:
        """Dims on which places depend: those of integers that say where something is read too."""
        found, fresh = set[int](), {d for c in coords for d, _ in c.terms}
        while fresh:
            found |= fresh
            cells = [self.looked[d] for d in fresh if d in self.looked]
            leaves = [self.leaves[n] for cell in cells for n in used(cell)]
            fresh = set[int]()
            for leaf in leaves:
                if isinstance(leaf, Raw):
                    fresh |= {d for d, block in enumerate(leaf.blocks) if block}
                    numbers = (n for look in leaf.looks for n in used(look.cell))
                    leaves += [self.leaves[n] for n in numbers]
                elif isinstance(leaf, Position):
                    fresh.add(leaf.dim)
            fresh -= found
        return found

    # -- gathers --

    def _gather(self, number: int, node: TileNode, coords: Coords) -> Cell:
        """The first operand whose place for an index lies inside it, else the fill."""
        declared, params = ops.selector(node.text)
        if declared.counts:
            (index,) = coords
            held = value_type(node.type).dtype
            if not index.terms:
                return Constant(np.asarray(index.offset).astype(DTYPES[held].numpy).item(), held)
            count = self._position(index)
            position = Apply(_cast(held), (count,))
            if held in ("i32", "i64"):
                self.counted[position] = count
            return position
        if declared.inverse is not None:
            source = self._unviewed(number)
            if self.step.nodes[source].kind == "load":
                return self._read(source, value_type(node.type), coords)
            return self._view(node, coords)
        types = [value_type(self.step.nodes[o].type) for o in node.operands]
        if looks := gathers.looks(node.text, types):
            return self._look(node, types, looks, coords)
        if declared.cut:
            return self._parts(node, *declared.cut(params), coords)
        fill = declared.fill(params) if declared.fill else None
        value: Cell | None = None
        if fill is not None:  # a value of its type: rounded like any other
            held = value_type(node.type).dtype
            with np.errstate(all="ignore"):
                value = Constant(np.asarray(fill).astype(DTYPES[held].numpy).item(), held)
        pulls = places.pulled(node.text, types, coords)
        if pulls is None or (not pulls and value is None):
            raise self.cone.refuse(f"gathers by '{node.text}'", "operators of strided reads")
        for operand, type_, at in reversed(list(zip(node.operands, types, pulls, strict=True))):
            if places.never_inside(at, type_.shape, self.cone.shape):
                continue
            cell = self._cell(operand, at)
            value = cell if value is None else self._where_inside(at, type_, cell, value)
        assert value is not None
        return value

    def _parts(self, node: TileNode, axis: int, length: int, coords: Coords) -> Cell:
        """A load in parts of an axis: those after the first one begin so many steps further on."""
        source = self.step.nodes[node.operands[0]]
        slow, fast = coords[axis].plain, coords[axis + 1].plain
        if source.kind != "load" or slow is None or fast is None:
            raise self.cone.refuse(f"gathers by '{node.text}'", "parts of what lies in memory")
        type_, access = value_type(source.type), self.step.reads[source.access]
        at = (*coords[:axis], *coords[axis + 1 :])
        raw = self._raw(access.buffer, access.layout, type_, at)
        if len(raw.blocks[fast]) != 1:
            raise self.cone.refuse(f"gathers by '{node.text}' in {access.layout}", "one stride")
        ((_, stride),) = raw.blocks[fast]
        parts = ((self.cone.shape[slow], length * stride),)
        blocks = tuple(parts if d == slow else b for d, b in enumerate(raw.blocks))
        return self._leaf(replace(raw, blocks=blocks, end=(slow, fast, type_.shape[axis])))

    def _look(
        self, node: TileNode, types: Sequence[ValueType], looks: Sequence[Look], coords: Coords
    ) -> Cell:
        """An operand that is read where others say: those dims become dims of their own."""
        if self.step.row:
            raise self.cone.refuse(f"gathers by '{node.text}'", "no product of tiles")
        rows, found = places.pulls(node.text, types), dict[tuple[int, int], Affine]()
        for look in looks:
            at = places.at(rows[look.by], coords)
            cell = self._cell(node.operands[look.by], at)
            if any(isinstance(self.leaves[n], Fold | Prefix) for n in used(cell)):
                raise self.cone.refuse("reads where a reduction says", "integers read or counted")
            found[look.operand, look.dim] = self._dim_of(cell, types[look.operand].shape[look.dim])
        ((moved, row),) = ((n, r) for n, r in enumerate(rows) if n not in {k.by for k in looks})
        at = tuple(
            found[moved, d] if p is None else places.at([p], coords)[0] for d, p in enumerate(row)
        )
        return self._cell(node.operands[moved], at)

    def _dim_of(self, cell: Cell, extent: int) -> Affine:
        """A dim beside the index space whose index is an integer of the cone."""
        if extent == 1:
            return Affine(())
        for dim, known in self.looked.items():
            if known == cell and self.cone.shape[dim] == extent:
                return plain(dim)
        self.cone.shape.append(extent)
        self.looked[len(self.cone.shape) - 1] = cell
        return plain(len(self.cone.shape) - 1)

    def _view(self, node: TileNode, coords: Coords) -> Cell:
        """The operand of a selector that keeps the order of all elements, read by their numbers."""
        (operand,) = node.operands
        shapes = (value_type(t).shape for t in (node.type, self.step.nodes[operand].type))
        at = places.viewed(next(shapes), coords, next(shapes), self.cone.shape)
        if at is None:
            raise self.cone.refuse(f"gathers by '{node.text}' inside a kernel", "whole parts")
        return self._cell(operand, at)

    def _where_inside(
        self, at: Sequence[Affine], type_: ValueType, cell: Cell, other: Cell
    ) -> Cell:
        conditions = []
        for c, extent in zip(at, type_.shape, strict=True):
            low, high = places.bounds(c, self.cone.shape)
            if low < 0:
                conditions.append(apply("ge", self._position(c), 0))
            if high >= extent:
                conditions.append(apply("lt", self._position(c), extent))
        if not conditions:
            return cell
        inside = conditions[0]
        for more in conditions[1:]:
            inside = apply("and", inside, more)
        return Apply("where", (inside, cell, other))

    def _position(self, c: Affine) -> Cell:
        """A coordinate as an integer cell.

        Raises:
            DispatchError: it counts further than the cell's 32 bits.
        """
        low, high = places.bounds(c, self.cone.shape)
        if low < -_INT_MAX or high > _INT_MAX:
            raise self.cone.refuse(f"counts from {low} to {high}", "what 32 bits hold")
        value: Cell | None = None
        if not c.terms:
            return Constant(c.offset, "i32")
        for dim, factor in c.terms:
            here = self.looked.get(dim)
            here = self._leaf(Position(dim)) if here is None else apply("cast i32", here)
            here = here if factor == 1 else apply("mul", here, factor)
            value = here if value is None else apply("add", value, here)
        assert value is not None
        return apply("add", value, c.offset) if c.offset else value


def _cast(dtype: str) -> str:
    """The cell by which readings round."""
    return f"cast {dtype}"


def _looked(cell: Cell, stride: int, low: int, high: int) -> Looked:
    """A dim of which [low, high) lie in a tensor; other integers read the nearest element."""
    near = apply("minimum", apply("maximum", cell, low), high - 1)
    inside = apply("sub", near, low) if low else near
    dtype = "i32" if high - low <= _INT_MAX else "i64"
    return Looked(apply(f"cast {dtype}", inside), dtype, stride, high - low)
