"""How the operands of a cone are read over its index space: what strides do not describe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from itertools import pairwise
from math import prod
from typing import NamedTuple

from axe_eq.errors import LayoutError
from axe_eq.extract.price import parts
from axe_eq.extract.read.forest import CELL, GATHER, LOAD, SCAN, Choice, Forest
from axe_eq.layout import Layout
from axe_eq.program import places
from axe_eq.program.gathers import looks
from axe_eq.program.ops import Look, scan, selector
from axe_eq.program.places import Coords
from axe_eq.program.signature import Affine, plain, signature
from axe_eq.program.types import ValueType
from axe_eq.schedule.summary import ScanWork

MOST_READS = 1024  # that are counted
REMEMBERED = 4096


class Reads(NamedTuple):
    """Reads of a cone that are no strided ones, all reads, and results apart; see `Summary`."""

    n_guarded: int = 0
    n_scattered: int = 0
    n_reads: int = 0
    n_outside: int = 0
    n_looked: int = 0
    n_ended: int = 0
    scans: tuple[ScanWork, ...] = ()


class _Kind(NamedTuple):
    """What a selector may do to reads: `views` keep the order, `parts` end inside their value."""

    views: bool
    parts: bool
    scatters: bool


def reads(
    forest: Forest,
    roots: Sequence[int],
    order: Sequence[int],
    picks: Mapping[int, Choice],
    stored: Sequence[str] = (),
) -> Reads:
    """The figures of a cone; `order` are its tiles, `stored` the layouts its roots are stored in.

    Most cones have nothing that makes such reads: only where several things that would have to come
    together are there, places are followed from the roots to the loads.
    """
    outside = _outside(forest, roots, picks) if len(roots) > 1 else 0
    views = ends = scatters = bends = strange = scans = 0
    for tile in order:
        choice = picks[tile]
        if choice.kind == GATHER:
            kind = _kind(choice.text, tuple(forest.tiles[c].type for c in choice.children))
            inside = tile not in roots and kind.views
            views += inside and picks[choice.children[0]].kind != LOAD
            ends += kind.parts
            scatters += kind.scatters
        elif choice.kind == LOAD:
            strange += not _is_dense(choice.layout)
        elif choice.kind == SCAN:
            scans += 1
        else:
            bends += _bends(choice.text)
    n_reads = _count(roots, order, picks)
    shapes = (forest.tiles[_unviewed(root, picks)].type.shape for root in roots)
    apart = sum(not _cuts(text, shape) for text, shape in zip(stored, shapes, strict=False))
    if not (scans or scatters or views or strange or (ends and bends)):
        return Reads(n_scattered=apart, n_reads=n_reads, n_outside=outside)
    walk = _Walk(forest, picks)
    for root in roots:
        walk.root(root)
    found = walk.finish()
    return found._replace(n_scattered=found.n_scattered + apart, n_reads=n_reads, n_outside=outside)


def _count(roots: Sequence[int], order: Sequence[int], picks: Mapping[int, Choice]) -> int:
    """Reads at places of their own, as if no two moves went to the same place."""
    here, moved, total = dict.fromkeys(roots, 1), dict[int, int](), 0
    for tile in order:
        choice, n = picks[tile], min(here.get(tile, 0) + moved.get(tile, 0), MOST_READS)
        total += n if choice.kind == LOAD else 0
        moves = choice.kind == GATHER and not _is_view(choice)
        for child in choice.children:
            if moves:
                moved[child] = moved.get(child, 0) + n
            else:
                here[child] = max(here.get(child, 0), n)
    return min(total, MOST_READS)


def _outside(forest: Forest, roots: Sequence[int], picks: Mapping[int, Choice]) -> int:
    """Stored values that are not one per index, or part of one, of the largest one's space."""
    shapes = [forest.tiles[_unviewed(r, picks)].type.shape for r in roots]
    space = places.index_space(shapes)
    return sum(not places.spans(space, shape) for shape in shapes)


@cache
def _layout(text: str) -> Layout:
    return Layout.parse(text)


@cache
def _is_dense(text: str) -> bool:
    """Whether elements follow each other in order, as far as strides are to describe a layout."""
    layout = _layout(text)
    return bool(layout.swizzle or layout.box or layout.replica) or len(layout.shard) < 2


@cache
def _cuts(text: str, shape: tuple[int, ...]) -> bool:
    """Whether strides say where a value of this shape lies that is stored in a layout.

    Not where rows of another shape, of which it is a reshape, are apart.
    """
    if _is_dense(text):
        return True
    try:
        _layout(text).group(shape)
    except LayoutError:
        return False
    return True


@cache
def _kind(text: str, types: tuple[ValueType, ...]) -> _Kind:
    declared, params = selector(text)
    fills = declared.fill is not None and declared.fill(params) is not None
    if declared.inverse is not None:
        return _Kind(views=True, parts=False, scatters=False)
    scatters = bool(types) and any(p is None for row in places.pulls(text, types) for p in row)
    return _Kind(False, bool(types) and (fills or declared.arity is None), scatters)


def _is_view(choice: Choice) -> bool:
    """Whether a selector keeps the order of all elements."""
    return choice.kind == GATHER and selector(choice.text)[0].inverse is not None


def _unviewed(tile: int, picks: Mapping[int, Choice]) -> int:
    """The tile whose elements a tile has in the same order."""
    while _is_view(picks[tile]):
        (tile,) = picks[tile].children
    return tile


@cache
def _bends(text: str) -> bool:
    """Whether some operand is read along several dims at once."""
    return any(len(p.terms) > 1 for operand in signature(text).operands for p in operand)


class _Read(NamedTuple):
    """A load: per dim of the index space the cuts of its blocks, and whether a part is read."""

    guarded: bool = False
    scattered: bool = False
    dims: tuple[tuple[frozenset[int], bool], ...] = ()


@lru_cache(REMEMBERED)
def _read(text: str, coords: Coords, shape: tuple[int, ...], extents: tuple[int, ...]) -> _Read:
    """What a load of a layout at some places is; cones of one value mostly have the same loads."""
    if isinstance(places.window(coords, shape, extents), str):
        return _Read(guarded=True)
    read = places.read(_layout(text), coords, shape, extents)
    if isinstance(read, str):
        return _Read(scattered=True)
    cuts = (frozenset(prod(e for e, _ in b[n:]) for n in range(1, len(b))) for b in read.blocks)
    return _Read(dims=tuple((c, bool(w)) for c, w in zip(cuts, read.window, strict=True)))


@lru_cache(REMEMBERED)
def _operands(
    text: str, shapes: tuple[tuple[int, ...], ...], coords: Coords, n_dims: int
) -> tuple[tuple[int, ...], tuple[Coords, ...]]:
    """Where a block operator reads its operands: reduced dims come after the others there are."""
    sig, added = signature(text), list[int]()
    extents, images = sig.extents(shapes), dict(enumerate(coords))
    images |= {d: _added(extents[d], added, n_dims) for d in sig.reduced}
    operands = (tuple(p.substitute(images) for p in operand) for operand in sig.operands)
    return tuple(added), tuple(operands)


def _added(extent: int, extents: list[int], n_dims: int = 0) -> Affine:
    """One more dim of an index space; one of a single index is no place."""
    if extent == 1:
        return Affine(())
    extents.append(extent)
    return plain(n_dims + len(extents) - 1)


class _Walk:
    """Follows places from roots down; `extents` are those of the index space so far."""

    def __init__(self, forest: Forest, picks: Mapping[int, Choice]) -> None:
        self.forest, self.picks = forest, picks
        self.extents: list[int] = []
        self.seen: set[tuple[int, Coords]] = set()
        self.cuts: dict[int, set[int]] = {}
        self.bounded: set[int] = set()
        self.guarded = self.scattered = self.looked = self.ended = 0
        self.apart: set[int] = set()  # dims that integers say the index of
        self.saying = False  # inside what says where another value is read
        self.scans: dict[ScanWork, None] = {}

    def root(self, tile: int) -> None:
        """A stored value; results in another order of dims are stored as they are computed."""
        tile = _unviewed(tile, self.picks)
        self._visit(tile, tuple(map(self._dim, self._shape(tile))))

    def _dim(self, extent: int) -> Affine:
        """A dim of the index space."""
        return _added(extent, self.extents)

    def _shape(self, tile: int) -> tuple[int, ...]:
        return self.forest.tiles[tile].type.shape

    def _visit(self, tile: int, coords: Coords) -> None:
        if (tile, coords) in self.seen:
            return
        self.seen.add((tile, coords))
        choice = self.picks[tile]
        if choice.kind == LOAD:
            self._load(tile, tile, coords)
        elif choice.kind == CELL:
            self._cell(choice, coords)
        elif choice.kind == SCAN:
            self._scan(tile, choice, coords)
        elif _is_view(choice):
            self._view(tile, choice, coords)
        else:
            self._gather(choice, coords)

    def _load(self, source: int, tile: int, coords: Coords) -> None:
        """A load tile, seen as a tile with the same order of elements."""
        layout, shape = self.picks[source].layout, self._shape(tile)
        read = _read(layout, coords, shape, tuple(self.extents))
        self.guarded += read.guarded
        self.scattered += read.scattered
        for dim, (cuts, bounded) in enumerate(read.dims):
            self.cuts.setdefault(dim, set()).update(cuts)
            self.scattered += dim in self.apart and bool(cuts)
            if bounded and dim not in self.apart:
                self.bounded.add(dim)

    def finish(self) -> Reads:
        """The figures; a dim that is cut into blocks for one read is so for all."""
        for dim, cuts in self.cuts.items():
            ends = [*sorted(cuts), self.extents[dim]]
            nested = not any(b % a for a, b in pairwise(ends))
            self.scattered += not nested or (bool(cuts) and dim in self.bounded)
            self.scattered += bool(cuts) and any(dim == s.dim for s in self.scans)
        return Reads(
            self.guarded, self.scattered, n_looked=self.looked, n_ended=self.ended,
            scans=tuple(self.scans),
        )  # fmt: skip

    def _is_apart(self, coords: Coords) -> bool:
        """Whether something is reduced or scanned for, or at, what integers say."""
        return self.saying or any(d in self.apart for c in coords for d, _ in c.terms)

    def _cell(self, choice: Choice, coords: Coords) -> None:
        sig = signature(choice.text)
        self.scattered += bool(sig.n_reduced) and self._is_apart(coords)
        shapes = tuple(self._shape(c) for c in choice.children)
        added, operands = _operands(choice.text, shapes, coords, len(self.extents))
        self.extents += added
        for child, operand in zip(choice.children, operands, strict=True):
            self._visit(child, operand)

    def _scan(self, tile: int, choice: Choice, coords: Coords) -> None:
        axis = scan(choice.text)[1]
        if self._shape(tile)[axis] == 1:  # of one element: a cell
            for child in choice.children:
                self._visit(child, coords)
            return
        self.scattered += self._is_apart(coords)
        shape = self._shape(tile)
        dim = places.along(coords, axis, shape, self.extents)
        dtypes = tuple(self.forest.tiles[c].type.dtype for c in choice.children)
        name = scan(choice.text)[0].name
        work = ScanWork(name, dtypes, shape[axis], dim, tuple(self.extents))
        self.scans[work] = None
        for child in choice.children:
            self._visit(child, coords)

    def _view(self, tile: int, choice: Choice, coords: Coords) -> None:
        source = _unviewed(tile, self.picks)
        if self.picks[source].kind == LOAD:
            self._load(source, tile, coords)
            return
        (child,) = choice.children
        at = places.viewed(self._shape(tile), coords, self._shape(child), self.extents)
        if at is None:
            self.scattered += 1
        else:
            self._visit(child, at)

    def _gather(self, choice: Choice, coords: Coords) -> None:
        types = [self.forest.tiles[c].type for c in choice.children]
        if found := looks(choice.text, types):
            self._look(choice, types, found, coords)
            return
        if cut := parts.cut_of(choice):
            self._parts(choice.children[0], cut[0], coords)
            return
        pulls = places.pulled(choice.text, types, coords)
        self.scattered += pulls is None
        for child, type_, at in zip(choice.children, types, pulls or [], strict=False):
            if not places.never_inside(at, type_.shape, self.extents):
                self._visit(child, at)

    def _parts(self, child: int, axis: int, coords: Coords) -> None:
        """Parts of a load, the last of which may end past it: they lie as the first one does."""
        self.ended += 1
        self.scattered += self.picks[child].kind != LOAD
        self._visit(child, (*coords[:axis], *coords[axis + 1 :]))

    def _look(
        self, choice: Choice, types: Sequence[ValueType], found: Sequence[Look], coords: Coords
    ) -> None:
        """Operands that are read where others say: at an index of dims of their own there."""
        self.looked += 1
        rows, own = places.pulls(choice.text, types), dict[tuple[int, int], Affine]()
        before, self.saying = self.saying, True
        for look in found:
            self._visit(choice.children[look.by], places.at(rows[look.by], coords))
            dim = own[look.operand, look.dim] = self._dim(types[look.operand].shape[look.dim])
            self.apart |= {d for d, _ in dim.terms}
        self.saying = before
        says = {look.by for look in found}
        for n, (child, row) in enumerate(zip(choice.children, rows, strict=True)):
            if n not in says:
                at = [
                    own[n, d] if p is None else places.at([p], coords)[0] for d, p in enumerate(row)
                ]
                self._visit(child, tuple(at))


__all__ = ["Reads", "reads"]
