"""Values over a region of a space: what is read, counted, reduced and stored on tiles.

A region has a begin and an extent per dim; one dim may lie on partitions. Every value is computed
once per region; what an outer region has computed is known inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from axe_eq.errors import DispatchError
from axe_eq.kernel import ir
from axe_eq.kernel.cells import Apply, Cell, Constant, apply, arg
from axe_eq.kernel.expr import Int
from axe_eq.kernel.ir import span
from axe_eq.kernel.placement import Iter, Placement
from axe_eq.program.ops import MONOIDS
from axe_eq.program.types import DTYPES
from axe_eq_backends.nki.build import PARTITION, EngineBuilder, rows_of
from axe_eq_backends.nki.near import Kept
from axe_eq_backends.nki.space import Count, Scan, Space, Sum, Tensor
from axe_eq_backends.nki.tile import EXACT, HELD, Tile, held_instead, loaded
from axe_eq_backends.nki.tiles import Cells
from axe_eq_backends.nki.vector import SCANS

Body = Callable[[Int, int], None]


def pieces(k: EngineBuilder, extent: int, tile: int, name: str, body: Body) -> None:
    """A body per tile of a dim: a loop over whole ones, then the rest, each of known extent."""
    whole, rest = divmod(extent, tile)
    if whole == 1:
        body(0, tile)
    elif whole:
        with k.range(whole, name=name) as i:
            body(i * tile, tile)
    if rest:
        body(whole * tile, rest)


@dataclass
class Names:
    """Arguments of a kernel: one per way in which a buffer is read or written.

    Attributes:
        k: the kernel.
        kept: buffers that stay in SBUF.
        buffers: of the schedule graph, by tensor.
    """

    k: EngineBuilder
    kept: Mapping[str, Kept] = field(default_factory=dict)
    buffers: dict[str, str] = field(default_factory=dict)
    _known: dict[object, ir.Buffer] = field(default_factory=dict)

    def tensor(
        self, t: Tensor, shape: Sequence[int], strides: Sequence[int], offset: int, output: bool
    ) -> ir.Buffer:
        """The argument for a buffer with these extents and strides."""
        key = t.buffer, tuple(shape), tuple(strides), offset, output
        if key not in self._known:
            if t.dtype not in HELD:
                raise DispatchError(f"buffer {t.buffer}", f"holds {t.dtype}", held_instead(t.dtype))
            blocks = tuple(
                (Iter(e, s, "m"),) if e > 1 else () for e, s in zip(shape, strides, strict=True)
            )
            place = Placement(blocks, offset=(("m", offset),) if offset else ())
            stem, n = t.buffer, 1
            while (name := stem if n == 1 else f"{stem}_{n}") in self.buffers:
                n += 1
            made = self.k.tensor(name, t.dtype, shape, layout=place, output=output)
            self.buffers[made.name] = t.buffer
            self._known[key] = made
        return self._known[key]

    def source(
        self, t: Tensor, shape: Sequence[int], offset: int, index: Sequence[span]
    ) -> ir.View:
        """A part of what is read: of an argument, or of what stays in SBUF."""
        kept = self.kept.get(t.buffer)
        if kept is None:
            return self.tensor(t, shape, t.strides, offset, False)[tuple(index)]
        return _part(kept, t, offset, index).all


def _part(kept: Kept, t: Tensor, offset: int, index: Sequence[span]) -> ir.Buffer:
    """A part of a value in SBUF, by the indices of its tensor."""
    first: Int = offset
    for i, s in zip(index, t.strides, strict=True):
        first = first + i.begin * s
    return kept.part(t.strides, [i.extent for i in index], first)


def lies_across(view: ir.View, across: int | None) -> bool:
    """Whether a part in SBUF has one dim on partitions, and the others along the free axis."""
    return view.buffer.memory == "sbuf" and all(
        PARTITION not in {i.axis for i in block} if d != across else
        block in ((), (Iter(view.shape[d], 1, PARTITION),))
        for d, block in enumerate(view.place.blocks)
    )  # fmt: skip


class Region:
    """A region of a space in a kernel.

    Args:
        names: arguments of the kernel.
        space: what is computed.
        across: the dim on partitions; None where one partition is used.
        begin, extent: of every dim.
        outer: the region around it, whose values are known where they do not depend on more.
        given: tiles of leaves that others have computed.
    """

    def __init__(
        self,
        names: Names,
        space: Space,
        across: int | None,
        begin: Sequence[Int],
        extent: Sequence[int],
        outer: Region | None = None,
        given: Mapping[int, Tile] | None = None,
    ) -> None:
        self.names, self.k, self.space, self.across = names, names.k, space, across
        self.begin, self.extent = list(begin), list(extent)
        self.outer, self.given = outer, dict(given or {})
        self.cells = Cells(self.k, across, self.leaf)
        self._leaves: dict[int, Tile] = {}

    def refuse(self, wrong: str, expected: str) -> DispatchError:
        """Why a kernel on tiles does not compute the space."""
        return DispatchError("tiles", wrong, expected)

    def shape(self, along: frozenset[int] | set[int]) -> list[int]:
        """Extents of a value that varies along some dims."""
        return [e if d in along or d == self.across else 1 for d, e in enumerate(self.extent)]

    def inner(self, begin: Mapping[int, Int], extent: Mapping[int, int],
              given: Mapping[int, Tile] | None = None) -> Region:  # fmt: skip
        """A region inside, with some dims narrowed."""
        return Region(
            self.names, self.space, self.across,
            [begin.get(d, b) for d, b in enumerate(self.begin)],
            [extent.get(d, e) for d, e in enumerate(self.extent)],
            self, {**self.given, **(given or {})},
        )  # fmt: skip

    def _narrowed(self) -> set[int]:
        """Dims along which this region is a part of the one around it."""
        assert self.outer is not None
        return {
            d for d in self.space.dims
            if self.extent[d] != self.outer.extent[d] or self.begin[d] is not self.outer.begin[d]
        }  # fmt: skip

    def tile(self, cell: Cell) -> Tile:
        """A cell's value."""
        return self.cells.tile(cell)

    # -- leaves --

    def leaf(self, n: int) -> Tile:
        """The tile of a leaf."""
        if n in self.given:
            return self.given[n]
        if n not in self._leaves:
            around = self.outer
            if around is not None and not (self.space.reach(n) & self._narrowed()):
                self._leaves[n] = around.leaf(n)
            else:
                self._leaves[n] = self._made(n)
        return self._leaves[n]

    def _made(self, n: int) -> Tile:
        part = self.space.parts[n]
        if isinstance(part, Tensor):
            return self._loaded(part)
        if isinstance(part, Count):
            return self._counted(part)
        if isinstance(part, Sum):
            return self.folded(part)
        return self._prefixes(part)

    def _loaded(self, t: Tensor) -> Tile:
        """A tensor's part: what lies in its window, zeros elsewhere."""
        if t.looks:
            return self._gathered(t)
        along = {d for d, s in enumerate(t.strides) if s}
        shape = self.shape(along)
        inside, offset, begins, extents = [], t.offset, [], []
        for d, s in enumerate(t.strides):
            bound = t.bound(d)
            begin: Int = self.begin[d] if s else 0
            if bound is None:
                inside.append(span(0, shape[d]))
                begins.append(begin)
                extents.append(self.space.shape[d] if s else shape[d])
                continue
            if not isinstance(begin, int) or not s:
                raise self.refuse(f"reads a window of {t.buffer} at run-time places", "whole dims")
            low, high = max(bound[0], begin), min(bound[1], begin + shape[d])
            if low >= high:
                inside.append(span(0, 0))
                continue
            inside.append(span(low - begin, high - low))
            offset += bound[0] * s
            begins.append(low - bound[0])
            extents.append(bound[1] - bound[0])
        source = None
        if all(i.extent for i in inside):
            index = [span(b, i.extent) for b, i in zip(begins, inside, strict=True)]
            source = self.names.source(t, extents, offset, index)
        whole = [i.extent for i in inside] == shape
        if source is not None and whole and lies_across(source, self.across):
            return loaded(source, t.dtype)
        held = self.k.sbuf(t.buffer, t.dtype, shape, rows_of(shape, self.across))
        if not whole:
            self.k.fill(held.all, 0)
        if source is not None:
            self.k.copy(held[tuple(inside)], source)
        return loaded(held.all, t.dtype)

    def _gathered(self, t: Tensor) -> Tile:
        """A tensor read where integers say: a row per partition, for all their other indices."""
        if t.window and any(t.window):
            raise self.refuse(f"reads a window of {t.buffer} where integers say", "whole dims")
        if t.buffer in self.names.kept:
            raise self.refuse(f"reads {t.buffer} where integers say", "what lies in HBM")
        near = {d for d, s in enumerate(t.strides) if s}
        by = frozenset[int]().union(*(self.space.varies(x.cell) for x in t.looks))
        shape = self.shape(near | by)
        held = self.k.sbuf(t.buffer, t.dtype, shape, rows_of(shape, self.across))
        last = sum((x.extent - 1) * x.stride for x in t.looks)
        last += sum((self.space.shape[d] - 1) * s for d, s in enumerate(t.strides))
        if any(s < 0 for s in t.strides) or any(x.stride < 0 for x in t.looks):
            raise self.refuse(f"reads {t.buffer} backwards where integers say", "forwards")
        tensor = self.names.tensor(t, (last + 1,), (1,), t.offset, False)
        at = self._addresses(t)
        apart = [d for d in sorted(by) if d != self.across and self.extent[d] > 1]

        def row(dims: Sequence[int], index: Mapping[int, Int]) -> None:
            if dims:
                d, *rest = dims
                with self.k.range(self.extent[d], name=f"g{d}") as i:
                    row(rest, {**index, d: i})
                return
            spans = [span(index.get(d, 0), 1 if d in index else e) for d, e in enumerate(shape)]
            where = [
                span(index.get(d, 0) if at.shape[d] > 1 else 0, 1 if d in index else e)
                for d, e in enumerate(at.shape)
            ]
            steps = [0 if d == self.across or d in index else s for d, s in enumerate(t.strides)]
            self.k.gather(held[tuple(spans)], tensor.all, at.view[tuple(where)], steps)

        row(apart, {})
        return loaded(held.all, t.dtype)

    def _addresses(self, t: Tensor) -> Tile:
        """The element that every partition's row begins at, for every index of the integers."""
        total: Tile | None = None
        by = frozenset[int]().union(*(self.space.varies(x.cell) for x in t.looks))
        parts = [(x.cell, x.stride) for x in t.looks]
        counted = {n: Count(d) for n, d in enumerate(
            (d for d, s in enumerate(t.strides) if s), len(self.space.parts))}  # fmt: skip
        for n, c in counted.items():
            # Along the free axis rows step by themselves, but for what begins inside a dim.
            whole = c.dim == self.across or (c.dim in by and self.extent[c.dim] > 1)
            if whole or not isinstance(self.begin[c.dim], int) or self.begin[c.dim] != 0:
                self.given[n] = self._counted(c) if whole else self._begun(c.dim)
                parts.append((arg(n), t.strides[c.dim]))
        cells = Cells(self.k, self.across, self.leaf)
        for cell, stride in parts:
            found = cells.tile(cell) if not isinstance(cell, Constant) else None
            if found is None:
                raise self.refuse(f"reads {t.buffer} at a number", "an integer that is read")
            scaled = found if stride == 1 else _scaled(cells, found, stride)
            total = scaled if total is None else _added(cells, total, scaled)
        assert total is not None
        full = self.shape(by if self.across is None else by | {self.across})
        held = cells.held(total, "i32")
        if list(held.shape) != full:
            out = self.cells.new("i32", full, "at")
            self.k.map(arg(0), out, held.view)
            return Tile(out, "i32")
        return held

    def _begun(self, dim: int) -> Tile:
        """The first index of a dim in this region, as a tile."""
        out = self.cells.new("i32", self.shape(set()), "at")
        self.k.index(out, dim, self.begin[dim])
        return Tile(out, "i32", 0, self.space.shape[dim])

    def _prefixes(self, p: Scan) -> Tile:
        """Every prefix along a dim that lies whole in this region, from the monoid's unit on."""
        monoid = MONOIDS[p.monoid]
        merges = {"or": "maximum", "and": "minimum"}.get(monoid.merges, monoid.merges)
        if monoid.unit is None or merges not in SCANS:
            raise self.refuse(f"scans by {p.monoid}", f"one of {' '.join(SCANS)}")
        src = self.tile(p.cell)
        count = self.extent[p.dim]
        low, high = src.low, src.high
        if DTYPES[src.kind].kind == "i":
            low, high = min(low * count, low), max(high * count, high)
            if merges == "mul" or max(-low, high) > EXACT:
                raise self.refuse(f"scans {src.kind} beyond what float32 holds", "smaller numbers")
        shape = [count if d == p.dim else e for d, e in enumerate(src.shape)]
        out = self.cells.new("f32", shape, "scan")
        self.k.map(arg(0), out, src.view)
        once = [1 if d == p.dim else e for d, e in enumerate(shape)]
        carry = self.cells.new("f32", once, "carry")
        self.k.fill(carry, float(monoid.unit))
        one = self.cells.new(
            "f32", [e if d == self.across else 1 for d, e in enumerate(shape)], "c"
        )
        self.k.fill(one, 1.0 if merges == "add" else 0.0)
        merge = Apply(merges, (arg(0), arg(1)))
        self.k.scan(merge, [out], [carry], p.dim, [one.buffer])
        if DTYPES[src.kind].kind == "i":
            return self.cells.wrapped(Tile(out, "i32", low, high), src.kind)
        return Tile(out, "bool" if DTYPES[src.kind].kind == "b" else "f32")

    def _counted(self, c: Count) -> Tile:
        shape = self.shape({c.dim})
        out = self.cells.new("i32", shape, "at")
        begin = self.begin[c.dim]
        last = self.space.shape[c.dim] - 1
        self.k.index(out, c.dim, begin + c.begin if c.step == 1 else begin)
        if c.step == 1:
            return Tile(out, "i32", c.begin, c.begin + last)
        stepped = self.cells.new("f32", shape, "at")
        self.k.map(
            apply("add", apply("mul", arg(0), float(c.step)), float(c.begin)), stepped, out
        )  # fmt: skip
        ends = sorted((c.begin, c.begin + last * c.step))
        return Tile(stepped, "i32", ends[0], ends[1])

    # -- reductions --

    def folded(self, p: Sum) -> Tile:
        """A reduction over all of this region's indices of its dims."""
        src = self._whole(p)
        if DTYPES[src.kind].kind == "i":
            return self._folded_words(p, src)
        is_bool = DTYPES[src.kind].kind == "b"
        out = self._reduced(p, src.view, "bool" if is_bool else "f32")
        return Tile(out, src.kind if is_bool else "f32", src.low, src.high)

    def _reduced(self, p: Sum, view: ir.View, dtype: str) -> ir.View:
        """A reduction of a tile, one run of dims after another."""
        for run in reversed(self._runs(p.dims)):
            shape = [1 if d in run else e for d, e in enumerate(view.shape)]
            out = self.cells.new(dtype, shape, "r")
            self.k.reduce(p.monoid, out, view, run)
            view = out
        return view

    def _whole(self, p: Sum) -> Tile:
        """What is reduced, with an element for every index of the reduced dims."""
        if isinstance(p.cell, Constant):
            like = self.shape(frozenset(p.dims))
            out = self.cells.new("f32", like)
            self.k.fill(out, float(p.cell.value))
            kind = p.cell.kind
            return Tile(out, kind, p.cell.value, p.cell.value)
        t = self.tile(p.cell)
        shape = [self.extent[d] if d in p.dims else e for d, e in enumerate(t.shape)]
        if list(t.shape) == shape:
            return t
        out = self.cells.new(t.dtype, shape)
        self.k.map(arg(0), out, t.view)
        return Tile(out, t.kind, t.low, t.high)

    def _runs(self, dims: Sequence[int]) -> list[list[int]]:
        """Reduced dims that lie next to each other in a tile, slow to fast."""
        found: list[list[int]] = []
        wide = [d for d in self.space.dims if self.extent[d] > 1 and d != self.across]
        for d in sorted(d for d in dims if self.extent[d] > 1):
            if found and wide.index(found[-1][-1]) + 1 == wide.index(d):
                found[-1].append(d)
            else:
                found.append([d])
        return found or [[min(dims)]]

    def _folded_words(self, p: Sum, src: Tile) -> Tile:
        """Integers: in float32 where all partial results are exact there, else by halves."""
        count = 1
        for d in p.dims:
            count *= self.extent[d]
        most = max(-src.low, src.high)
        exact = src.is_exact and (p.monoid in ("max", "min") or
                                  (p.monoid == "+" and most * count <= EXACT))  # fmt: skip
        if exact:
            low, high = (src.low, src.high) if p.monoid != "+" else (
                min(src.low * count, src.low), max(src.high * count, src.high))  # fmt: skip
            kind = src.kind
            made = self._reduced(p, self.cells.held(src, "f32").view, "f32")
            return self.cells.wrapped(Tile(made, "i32", low, high), kind)
        return self._halved(p, src)

    def _halved(self, p: Sum, src: Tile) -> Tile:
        """The first half with the second one, until one index is left."""
        merge = MONOIDS[p.monoid].merges
        held = self.cells.held(src, "i32")
        for d in p.dims:
            while held.shape[d] > 1:
                half, odd = divmod(held.shape[d], 2)
                parts = [
                    Tile(_along(held.view, d, b, half), src.kind, src.low, src.high)
                    for b in (0, half)
                ]
                pair = Cells(self.k, self.across, lambda n, ps=parts: ps[n])  # type: ignore[misc]
                made = pair.held(pair.tile(Apply(merge, (arg(0), arg(1)))), "i32")
                if odd:
                    shape = [half + 1 if e == d else x for e, x in enumerate(held.shape)]
                    out = self.cells.new("i32", shape)
                    self.k.map(arg(0), _along(out, d, 0, half), made.view)
                    self.k.map(arg(0), _along(out, d, half, 1), _along(held.view, d, 2 * half, 1))
                    made = Tile(out, made.kind)
                held = replace(made, kind=src.kind)
        return loaded(held.view, src.kind)

    # -- results --

    def store(self, t: Tensor, cell: Cell) -> None:
        """Store a result of this region, in SBUF where it stays there."""
        along = {d for d, s in enumerate(t.strides) if s}
        shape = self.shape(along)
        index = [span(self.begin[d] if d in along else 0, e) for d, e in enumerate(shape)]
        kept, near = self.names.kept.get(t.buffer), None
        if kept is not None:
            part = _part(kept, t, t.offset, index).all
            near = part if lies_across(part, self.across) else None
        held = self._held(t, cell, shape, near)
        if kept is not None and held is not near:
            self.k.copy(part, held)
        if kept is None or kept.is_stored:
            extents = [self.space.shape[d] if d in along else e for d, e in enumerate(shape)]
            self.k.copy(
                self.names.tensor(t, extents, t.strides, t.offset, True)[tuple(index)], held
            )

    def _held(self, t: Tensor, cell: Cell, shape: Sequence[int], near: ir.View | None) -> ir.View:
        """A result as it is stored: in a place that is given, where it is computed anew."""
        if isinstance(cell, Constant):
            held = near or self.cells.new(t.dtype, shape, t.buffer)
            value = cell.computed_in(DTYPES[t.dtype].accumulate).item()
            self.k.fill(held, value)
            return held
        if len(self.space.results) == 1 and DTYPES[t.dtype].kind == "f":
            self.cells.rounded[cell] = t.dtype
            if near is not None and cell not in self.cells.known:
                self.cells.into[cell] = near
        found = self.tile(cell)
        held = found.view
        if list(found.shape) != shape or found.dtype != t.dtype or held.buffer.memory != "sbuf":
            held = self._rounded(found, t, shape, near)
        return held

    def _rounded(
        self, found: Tile, t: Tensor, shape: Sequence[int], near: ir.View | None
    ) -> ir.View:
        """A value in the element type and with the extents of what is stored."""
        kind = DTYPES[t.dtype].kind
        if kind == "b" and found.dtype != "bool":
            found = self.cells.truth(found)
        out = near or self.cells.new(t.dtype, shape, t.buffer)
        through = (
            arg(0) if kind == "f" or found.dtype == t.dtype else Apply(f"cast {t.dtype}", (arg(0),))
        )
        self.k.map(through, out, found.view)
        return out


def _scaled(cells: Cells, t: Tile, by: int) -> Tile:
    wide = Tile(t.view, "i32", t.low, t.high)
    alone = Cells(cells.k, cells.across, lambda n: wide)
    return alone.tile(Apply("mul", (arg(0), Constant(by, "i32"))))


def _added(cells: Cells, a: Tile, b: Tile) -> Tile:
    pair = Cells(cells.k, cells.across, lambda n: (a, b)[n])
    return pair.tile(Apply("add", (arg(0), arg(1))))


def _along(view: ir.View, dim: int, begin: int, extent: int) -> ir.View:
    """A part of a view along one dim."""
    index = tuple(span(begin, extent) if d == dim else span(0, e) for d, e in enumerate(view.shape))
    return view[index]


__all__ = ["Names", "Region", "pieces"]
