"""Cells and reductions of any space: one dim on partitions, the others along the free axis.

Reductions run along the free axis. Where what they reduce fits in a tile, everything is computed
from one read of it; else chunks of it are swept, once for every reduction that needs another's
result, and once more for results that have an element per index (softmax of a long row is read
three times).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from axe_eq.errors import DispatchError
from axe_eq.kernel.cells import Apply, arg, result_dtype, used
from axe_eq.kernel.expr import Int
from axe_eq.program.ops import MONOIDS
from axe_eq.program.types import DTYPES
from axe_eq.target import Target
from axe_eq_backends.nki.ruled import ruled
from axe_eq_backends.nki.schedules.region import Names, Region, pieces
from axe_eq_backends.nki.space import Count, Scan, Space, Sum, Tensor, cut, restricted, size, split
from axe_eq_backends.nki.tile import Tile, loaded
from axe_eq_backends.nki.tiles import Cells

MOST_PIECES = 64  # spaces in which tensors end: each is text of its own


@dataclass(frozen=True)
class Across:
    """What lies on partitions: rows of `unit` indices of a dim; None where nothing does."""

    dim: int | None
    unit: int = 1


def walk(space: Space, names: Names, target: Target, parameters: Mapping[str, int]) -> None:
    """Write a space.

    Args:
        space: what to compute.
        names: of the kernel that it is written in.
        target: the machine.
        parameters: "tile", elements per partition of a tile, and "across", which of the ways to
            fill partitions.

    Raises:
        DispatchError: something that no instruction computes.
    """
    parts = [
        part
        for ruled_ in ruled(space, MOST_PIECES)
        for part in cut(ruled_, [d for d in ruled_.dims if d not in ruled_.reduced])
    ]
    if len(parts) > MOST_PIECES:
        raise DispatchError(
            "kernel", f"has {len(parts)} parts in which tensors end", f"at most {MOST_PIECES}"
        )
    for part in parts:
        _part(names, part, target, parameters)


def ways(space: Space, target: Target) -> list[Across]:
    """Ways to fill partitions, the fullest first; of dims that every result has."""
    most = target.memory("sbuf").extents[0]
    found: list[tuple[float, int, Across]] = []
    kept = [d for d in space.dims if d not in space.reduced and space.shape[d] > 1]
    windows = {d for t in space.tensors for d in space.dims if t.bound(d)}
    for d in kept:
        extent = space.shape[d]
        contiguous = sum(abs(t.strides[d]) == 1 for t in space.tensors)
        found.append((-_filled(extent, most), contiguous, Across(d)))
        if extent > most and d not in windows:
            unit = _unit(extent, most)
            if unit > 1:
                found.append((-_filled(extent // unit, most), -contiguous, Across(d, unit)))
    found.sort(key=lambda x: x[:2])
    return [x for _, _, x in found] or [Across(None)]


def _filled(rows: int, most: int) -> float:
    """The part of partitions that rows fill, on average over their tiles."""
    return rows / (-(-rows // most) * most)


def _unit(extent: int, most: int) -> int:
    """Indices of a row, so that rows fill partitions: a divisor where one is near."""
    best = extent // most
    divisors = [u for u in range(best, best // 2, -1) if extent % u == 0]
    return min(divisors[0] if divisors else best, 8192)


def _part(names: Names, space: Space, target: Target, parameters: Mapping[str, int]) -> None:
    offered = ways(space, target)
    across = offered[min(parameters["across"], len(offered) - 1)]
    d, unit = across.dim, across.unit
    if d is not None and unit > 1:
        whole = space.shape[d] // unit * unit
        if whole < space.shape[d]:
            _part(names, restricted(space, d, whole, space.shape[d]), target, parameters)
            space = restricted(space, d, 0, whole)
        space = split(space, d, unit)
    _Walk(names, space, d, target, parameters["tile"]).write()


def _fitting(space: Space, order: Sequence[int], room: int) -> dict[int, int]:
    """Extents of dims, slow to fast, that together fit in so many elements; the fastest first."""
    sizes: dict[int, int] = {}
    for d in reversed(order):
        sizes[d] = min(space.shape[d], room)
        room = max(1, room // sizes[d])
    return sizes


class _Walk:
    """One space with the dim on partitions chosen."""

    def __init__(
        self, names: Names, space: Space, across: int | None, target: Target, tile: int
    ) -> None:
        self.names, self.k, self.space, self.across = names, names.k, space, across
        self.target, self.tile = target, tile
        self.free = [d for d in space.dims if d in space.reduced]
        self.kept = [d for d in space.dims if d not in space.reduced and d != across]

    def write(self) -> None:
        space, most = self.space, self.target.memory("sbuf").extents[0]
        together = size(space, self.free)
        self.swept = together > self.tile
        room = max(1, self.tile // (1 if self.swept else together))
        order = self._order(self.kept)
        self.sizes = {d: space.shape[d] for d in self.free} | _fitting(space, order, room)
        if self.across is not None:
            self.sizes[self.across] = min(space.shape[self.across], most)
        outer = [d for d in order if self.sizes[d] < space.shape[d]]
        if self.across is not None:
            outer.insert(0, self.across)
        self._loop(outer, {}, {})

    def _order(self, dims: Sequence[int]) -> list[int]:
        """Slow to fast: by the strides of what is stored, then of what is read."""
        tensors = [t for t, _ in self.space.results] + self.space.tensors

        def stride(d: int) -> tuple[int, ...]:
            return tuple(-abs(t.strides[d]) for t in tensors)

        return sorted(dims, key=stride)

    def _loop(
        self, dims: Sequence[int], begin: Mapping[int, Int], extent: Mapping[int, int]
    ) -> None:
        if not dims:
            begins = [begin.get(d, 0) for d in self.space.dims]
            extents = [extent.get(d, self.sizes[d]) for d in self.space.dims]
            self._body(Region(self.names, self.space, self.across, begins, extents))
            return
        d, *rest = dims
        pieces(
            self.k, self.space.shape[d], self.sizes[d], f"i{d}",
            lambda at, n: self._loop(rest, {**begin, d: at}, {**extent, d: n}),
        )  # fmt: skip

    def _body(self, region: Region) -> None:
        if self.swept:
            _Sweep(region, self.free, self.tile).write()
            return
        for t, cell in self.space.results:
            region.store(t, cell)


class _Sweep:
    """A region whose reduced dims are taken in chunks."""

    def __init__(self, region: Region, dims: Sequence[int], tile: int) -> None:
        self.region, self.space, self.k = region, region.space, region.k
        order = sorted(dims, key=self._stride)
        self.sizes = _fitting(self.space, order, tile)
        self.cutdims = [d for d in order if self.sizes[d] < self.space.shape[d]]

    def _stride(self, d: int) -> tuple[int, ...]:
        return tuple(-abs(t.strides[d]) for t in self.space.tensors)

    def refuse(self, wrong: str, expected: str) -> DispatchError:
        """Why it cannot be swept."""
        return DispatchError("sweep", wrong, expected)

    def write(self) -> None:
        space, parts = self.space, self.space.parts
        chunked = frozenset(self.cutdims)
        needed = space.needed([c for _, c in space.results])
        swept: dict[int, int] = {}  # reduction -> its level
        for n, p in enumerate(parts):
            if isinstance(p, Scan) and n in needed:
                raise self.refuse("scans a dim that is longer than a tile", "shorter ones")
            if not isinstance(p, Sum) or n not in needed:
                continue
            along = frozenset(p.dims) & chunked
            if not along:
                if any(m in swept for m in space.needed([p.cell])) and not space.reach(n) & chunked:
                    swept[n] = 1 + max(swept[m] for m in space.needed([p.cell]) if m in swept)
                continue
            if (space.varies(p.cell) | along) & chunked - along:
                raise self.refuse("reduces one of several long dims", "all of them")
            below = [swept[m] for m in space.needed([p.cell]) if m in swept]
            swept[n] = 1 + max(below, default=0)
        for n in sorted(needed):  # once, and not in every chunk
            if isinstance(parts[n], Tensor | Count) and not space.reach(n) & chunked:
                self.region.leaf(n)
        given: dict[int, Tile] = {}
        for level in range(1, max(swept.values(), default=0) + 1):
            of_level = [n for n, at in swept.items() if at == level]
            if cut := [n for n in of_level if set(parts[n].dims) & chunked]:  # type: ignore[union-attr]
                self._level(cut, given)
            for n in of_level:
                if n not in given:
                    given[n] = self._once(given).leaf(n)
        late = [(t, c) for t, c in space.results if not any(t.strides[d] for d in chunked)]
        once = self._once(given)
        for t, c in late:
            if space.varies(c) & chunked:
                raise self.refuse("stores one of several values", "a value per index")
            once.store(t, c)
        rest = [x for x in space.results if x not in late]
        if rest:

            def stored(region: Region) -> None:
                for t, c in rest:
                    region.store(t, c)

            self._chunks(given, stored)

    def _once(self, given: Mapping[int, Tile]) -> Region:
        """The region without the dims that chunks cut, with what is known there."""
        extent = [1 if d in self.cutdims else e for d, e in enumerate(self.region.extent)]
        r = self.region
        return Region(r.names, self.space, r.across, r.begin, extent, None, given)

    def _chunks(self, given: Mapping[int, Tile], body: Callable[[Region], object]) -> None:
        def loop(dims: Sequence[int], begin: Mapping[int, Int], extent: Mapping[int, int]) -> None:
            if not dims:
                body(self.region.inner(begin, extent, given))
                return
            d, *rest = dims
            windows = any(t.bound(d) for t in self.space.tensors)
            if windows:  # what lies in them is known before
                for at in range(0, self.space.shape[d], self.sizes[d]):
                    n = min(self.sizes[d], self.space.shape[d] - at)
                    loop(rest, {**begin, d: at}, {**extent, d: n})
                return
            pieces(
                self.k, self.space.shape[d], self.sizes[d], f"c{d}",
                lambda at, n: loop(rest, {**begin, d: at}, {**extent, d: n}),
            )  # fmt: skip

        loop(self.cutdims, {}, {})

    def _level(self, numbers: Sequence[int], given: dict[int, Tile]) -> None:
        """Sums over all chunks, in tiles that begin with the monoid's unit."""
        held: dict[int, Tile] = {}
        kinds: dict[int, str] = {}
        region = self.region

        def begun(n: int) -> Tile:
            p = self.space.parts[n]
            assert isinstance(p, Sum)
            shape = region.shape(self.space.reach(n))
            kind = _kind(self.space, p)
            dtype = {"f": "f32", "b": "bool", "i": "i32"}[DTYPES[kind].kind]
            out = region.cells.new(dtype, shape, "total")
            unit = MONOIDS[p.monoid].unit
            if unit is None:
                raise self.refuse(f"reduces by {p.monoid}, which has no unit", "one")
            if DTYPES[kind].kind == "i" and unit in (float("inf"), float("-inf")):
                ends = loaded(out, kind)
                unit = ends.low if unit < 0 else ends.high
            self.k.fill(out, unit if DTYPES[dtype].kind == "f" else int(unit))
            kinds[n] = kind
            return Tile(out, kind) if DTYPES[kind].kind != "i" else loaded(out, kind)

        for n in numbers:
            held[n] = begun(n)

        def chunk(inner: Region) -> None:
            for n in numbers:
                p = self.space.parts[n]
                assert isinstance(p, Sum)
                part, total = inner.folded(p), held[n]
                merge = Apply(MONOIDS[p.monoid].merges, (arg(0), arg(1)))
                if DTYPES[kinds[n]].kind != "i":
                    self.k.map(merge, total.view, total.view, part.view)
                    continue
                pair = Cells(self.k, region.across, lambda i, ps=(total, part): ps[i])  # type: ignore[misc]
                made = pair.held(pair.tile(merge), "i32")
                self.k.map(arg(0), total.view, made.view)

        self._chunks(given, chunk)
        given.update(held)


def _kind(space: Space, p: Sum) -> str:
    """The dtype that a reduction is computed in."""
    dtypes = []
    for q in space.parts:
        if isinstance(q, Tensor):
            dtypes.append(q.dtype)
        else:
            dtypes.append("i32" if isinstance(q, Count) else "f32")
    for n in sorted(used(p.cell)):
        q = space.parts[n]
        if isinstance(q, Sum | Scan):
            dtypes[n] = _kind(space, q) if isinstance(q, Sum) else "f32"
    return result_dtype(p.cell, dtypes)


__all__ = ["Across", "walk", "ways"]
