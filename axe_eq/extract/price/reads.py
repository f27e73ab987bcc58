"""How the operands of a cone are read over its index space: what strides do not describe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, lru_cache
from typing import NamedTuple

from axe_eq.errors import DispatchError, LayoutError
from axe_eq.extract.price.parts import cut_of
from axe_eq.extract.read.forest import CELL, GATHER, LOAD, SCAN, Choice, Forest
from axe_eq.extract.read.formula import formula
from axe_eq.kernel.cells import Cell
from axe_eq.layout import Layout
from axe_eq.lower.formulas import Load
from axe_eq.lower.read import read_cone
from axe_eq.program import places
from axe_eq.program.gathers import looks
from axe_eq.program.ops import MONOIDS, scan, selector
from axe_eq.program.signature import signature
from axe_eq.program.types import ValueType
from axe_eq.schedule.summary import Formula, ScanWork

MOST_READS = 1024  # that are counted
REMEMBERED = 4096


class Reads(NamedTuple):
    """Reads of a cone that are no strided ones, all reads, results apart, scans; see `Summary`."""

    unread: bool
    n_reads: int
    n_outside: int
    n_looked: int
    n_ended: int
    n_scanned: int
    scans: tuple[ScanWork, ...]


class _Kind(NamedTuple):
    """What a selector may do to reads.

    Attributes:
        views: it keeps the order of all elements.
        parts: it ends inside its value.
        scatters: some operand is read where no affine map says.
        looks: it is read where integers say.
    """

    views: bool = False
    parts: bool = False
    scatters: bool = False
    looks: bool = False


def reads(
    forest: Forest,
    roots: Sequence[int],
    order: Sequence[int],
    picks: dict[int, Choice],
    stored: Sequence[str],
) -> Reads:
    """The figures of a cone; `order` are its tiles, `stored` the layouts its roots are stored in.

    Most cones have nothing that makes such reads: only where several things that would have to come
    together are there, their formulas are read.
    """
    gathers = [(picks[t], _kind_of(forest, picks[t])) for t in order if picks[t].kind == GATHER]
    loads = [(picks[t].layout, forest.tiles[t].type.shape) for t in order if picks[t].kind == LOAD]
    stores = zip(stored, (forest.tiles[_unviewed(r, picks)].type.shape for r in roots), strict=True)
    scans, turned = _scans(forest, order, picks), [x for x in loads if not _is_dense(x[0])]
    looked = sum(kind.looks for _, kind in gathers)
    strided = not (
        scans
        or any(kind.scatters for _, kind in gathers)
        or any(not _cuts(*store) for store in stores)
        or any(not _is_strided(*load) for load in turned)
        or (turned and any(kind.views for _, kind in gathers))
        or _views_inside(roots, order, picks)
        or (any(kind.parts for _, kind in gathers) and _bend(order, picks))
    )
    found: tuple[int, int] | None = (0, 0)
    if not strided:
        row = "any" if not looked and any(picks[t].product for t in order) else ""
        cone = formula(forest, roots, order, picks, stored)
        found = _read(cone, row)
        if found is None and row:  # what no tile holds may be read element by element
            single = _read(cone, "")
            found = single if single and single[1] else None
        looked = max(looked, found[1] if found else 0)
    return Reads(
        unread=found is None,
        n_reads=_count(roots, order, picks) if gathers else len(loads),
        n_outside=_outside(forest, roots, picks) if len(roots) > 1 else 0,
        n_looked=looked,
        n_ended=sum(cut_of(choice) is not None for choice, _ in gathers),
        n_scanned=found[0] if found else 0,
        scans=scans,
    )


def _scans(
    forest: Forest, order: Sequence[int], picks: Mapping[int, Choice]
) -> tuple[ScanWork, ...]:
    """Scans of rows of several elements; one over a single element is a cell."""
    found = []
    for choice in (picks[t] for t in order if picks[t].kind == SCAN):
        (monoid, axis), types = scan(choice.text), _types(forest, choice)
        if types[0].shape[axis] > 1:
            dtypes = tuple(t.dtype for t in types)
            found.append(ScanWork(monoid.name, dtypes, types[0].shape[axis]))
    return tuple(found)


def _views_inside(roots: Sequence[int], order: Sequence[int], picks: Mapping[int, Choice]) -> bool:
    """Whether elements in the same order are those of what the kernel computes, and no result."""
    views = (t for t in order if _is_view(picks[t]) and t not in roots)
    return any(picks[picks[t].children[0]].kind != LOAD for t in views)


def _bend(order: Sequence[int], picks: Mapping[int, Choice]) -> bool:
    return any(_bends(picks[t].text) for t in order if picks[t].kind == CELL)


def _types(forest: Forest, choice: Choice) -> tuple[ValueType, ...]:
    return tuple(forest.tiles[c].type for c in choice.children)


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
    """Whether elements follow each other in order."""
    layout = _layout(text)
    return layout.is_linear() and not layout.replica and len(layout.shard) < 2


@cache
def _is_strided(text: str, shape: tuple[int, ...]) -> bool:
    """Whether every dim of a value of this shape has one stride in a layout."""
    try:
        blocks = _layout(text).group(shape).blocks
    except LayoutError:
        return False
    return _layout(text).is_linear() and all(sum(e > 1 for e, *_ in block) <= 1 for block in blocks)


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
    return _layout(text).is_linear()


def _kind_of(forest: Forest, choice: Choice) -> _Kind:
    return _kind(choice.text, _types(forest, choice))


@cache
def _kind(text: str, types: tuple[ValueType, ...]) -> _Kind:
    declared, params = selector(text)
    if declared.inverse is not None:
        return _Kind(views=True)
    fills = declared.fill is not None and declared.fill(params) is not None
    scatters = bool(types) and any(p is None for row in places.pulls(text, types) for p in row)
    parts = bool(types) and (fills or declared.arity is None)
    return _Kind(parts=parts, scatters=scatters, looks=scatters and bool(looks(text, types)))


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


@lru_cache(REMEMBERED)
def _read(cone: Formula, row: str) -> tuple[int, int] | None:
    """How many dims a cone scans, how many loads it reads where integers say; None if unread."""
    try:
        made = read_cone(cone.step(row), _first)
    except DispatchError:
        return None
    if any(MONOIDS[f.monoid].n_values > 1 for f in made.folds) and any(
        len(f.dims) > 1 for f in made.folds
    ):  # what streams takes chunks of one dim
        return None
    looked = sum(isinstance(leaf, Load) and bool(leaf.looks) for leaf in made.leaves)
    return len({p.dim for p in made.prefixes}), looked


def _first(monoid: str, operands: Sequence[Cell], dtypes: Sequence[str]) -> Cell:
    """Some value of a scan over one element, which is read where its first operand is."""
    return operands[0]


__all__ = ["Reads", "reads"]
