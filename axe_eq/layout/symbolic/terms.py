"""Layouts as terms: what laws speak about.

Every term denotes a total function, whether or not a list of iters computes it:

* ``Iters``: from an index to coordinates, 0 at index 0 (the D of a layout);
* ``Grid``: the same of several indices, one per dim;
* ``Copies``: a finite set of displacements (R and O together);
* ``Layout``: from an index to a set of coordinates;
* ``Spans``: the span on every axis; ``Shape`` and ``Report``: what questions about layouts answer.

So a permuted or sliced layout is a term even where no layout computes it, and laws need no such
conditions. Only ``tile_of``, the addends of a direct sum and inverses may denote nothing; then both
sides of a law do. A footprint counts padding, which the map does not know, so it is told the box.

Numbers are machine integers (`Iter`, `Copy`, ...) or polynomials as texts (`SymIter`, `SymCopy`,
...) in names that stand for any positive integers. Shapes, regions and permutations are texts.
``encode`` and ``decode`` are inverse; decoding a term that is no layout raises the error of the
layout's own constructor.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from axe_eq.errors import LayoutError
from axe_eq.layout.normal.nested_boxes import Stage, check_order
from axe_eq.layout.value.iters import Iters
from axe_eq.layout.value.layout import Layout as LayoutValue
from axe_eq.layout.value.swizzle import Swizzle
from axe_eq.rule.term import INT, STR, Sort, Symbol, Term

LAYOUT = Sort("Layout")
ITERS = Sort("Iters")
GRID = Sort("Grid")
COPIES = Sort("Copies")
SPANS = Sort("Spans")
BOX = Sort("Box")
SHAPE = Sort("Shape")
REPORT = Sort("Report")

LayoutTerm = Annotated[Any, LAYOUT]
IterList = Annotated[Any, ITERS]
GridTerm = Annotated[Any, GRID]
CopySet = Annotated[Any, COPIES]
SpansTerm = Annotated[Any, SPANS]
BoxTerm = Annotated[Any, BOX]

# -- lists of iters: extent, stride, axis, faster iters --------------------------------------------
NoIter = Symbol("NoIter", (), ITERS)
Iter = Symbol("Iter", (INT, INT, STR, ITERS), ITERS)
SymIter = Symbol("SymIter", (STR, STR, STR, ITERS), ITERS)
# slower iters, faster iters
Append = Symbol("Append", (ITERS, ITERS), ITERS)
# all dims of a grid as one index
Join = Symbol("Join", (GRID,), ITERS)
# u -> d(begin + u) - d(begin) for u below count: iters, begin, count
Window = Symbol("Window", (ITERS, INT, INT), ITERS)
# strides times the span on their axis
ScaleIters = Symbol("ScaleIters", (ITERS, STR), ITERS)

# -- functions of several indices ------------------------------------------------------------------
NoBlock = Symbol("NoBlock", (), GRID)
Block = Symbol("Block", (ITERS, GRID), GRID)  # slowest dim, the others
Cut = Symbol("Cut", (ITERS, STR), GRID)  # one index as the dims of a shape
Prepend = Symbol("Prepend", (INT, INT, STR, GRID), GRID)  # an iter before those of the first dim
SymPrepend = Symbol("SymPrepend", (STR, STR, STR, GRID), GRID)
Insert = Symbol("Insert", (ITERS, INT, GRID), GRID)  # a dim, where it stands, the others
Reorder = Symbol("Reorder", (GRID, STR), GRID)  # dim i of the result is dim perm[i]
Zip = Symbol("Zip", (GRID, GRID), GRID)  # the sum, dims alternating
Region = Symbol("Region", (GRID, STR), GRID)  # relative to the begin of the region

# -- sets of displacements -------------------------------------------------------------------------
Here = Symbol("Here", (), COPIES)  # only 0
Copy = Symbol("Copy", (INT, INT, STR, COPIES), COPIES)  # extent, stride, axis, the others
Shift = Symbol("Shift", (INT, STR, COPIES), COPIES)  # value, axis, what is shifted
SymCopy = Symbol("SymCopy", (STR, STR, STR, COPIES), COPIES)
SymShift = Symbol("SymShift", (STR, STR, COPIES), COPIES)
Sum = Symbol("Sum", (COPIES, COPIES), COPIES)  # of every pair
ScaleCopies = Symbol("ScaleCopies", (COPIES, STR), COPIES)
MoveTo = Symbol("MoveTo", (ITERS, INT, COPIES), COPIES)  # shifted by d(index)
PlaceAt = Symbol("PlaceAt", (GRID, STR, COPIES), COPIES)  # shifted by g(begin of the region)

# -- layouts ---------------------------------------------------------------------------------------
Map = Symbol("Map", (ITERS, COPIES), LAYOUT)  # D, R and O
Swizzled = Symbol("Swizzled", (STR, INT, INT, INT, LAYOUT), LAYOUT)  # axis, bits, base, shift
Boxed = Symbol("Boxed", (BOX, LAYOUT), LAYOUT)
BoxEnd = Symbol("BoxEnd", (), BOX)
BoxOrder = Symbol("BoxOrder", (STR,), BOX)  # dim i is dim order[i] of the index that comes in
BoxDim = Symbol("BoxDim", (INT, INT, BOX), BOX)  # logical extent, padded extent, faster dims
# any layout of so many elements; with a bound, one on axis m with coordinates in [0, bound)
AnyLayout = Symbol("AnyLayout", (STR, STR, STR), LAYOUT)  # name, elements, bound or ""

Group = Symbol("LayoutGroup", (LAYOUT, STR), LAYOUT)
Permute = Symbol("LayoutPermute", (LAYOUT, STR, STR), LAYOUT)  # shape, permutation
Slice = Symbol("LayoutSlice", (LAYOUT, STR, STR), LAYOUT)  # shape, region
Tile = Symbol("LayoutTile", (LAYOUT, STR, LAYOUT, STR), LAYOUT)
DirectSum = Symbol("LayoutSum", (LAYOUT, STR, LAYOUT, STR), LAYOUT)
TileOf = Symbol("LayoutTileOf", (LAYOUT, STR, LAYOUT, STR), LAYOUT)
LeftAddend = Symbol("LayoutLeftAddend", (LAYOUT, STR, LAYOUT, STR), LAYOUT)
RightAddend = Symbol("LayoutRightAddend", (LAYOUT, STR, LAYOUT, STR), LAYOUT)
Compose = Symbol("LayoutCompose", (LAYOUT, LAYOUT), LAYOUT)
Inverse = Symbol("LayoutInverse", (LAYOUT, STR), LAYOUT)  # axes in order
Scale = Symbol("LayoutScale", (LAYOUT, SPANS), LAYOUT)  # coordinates times a span per axis

# -- answers ---------------------------------------------------------------------------------------
Spans = Symbol("SpansAre", (STR,), SPANS)  # axis:span, without spans of 1
SpanOf = Symbol("SpanOf", (LAYOUT,), SPANS)
SpanOfIters = Symbol("SpanOfIters", (ITERS,), SPANS)
SpanOfCopies = Symbol("SpanOfCopies", (COPIES,), SPANS)
SpanSum = Symbol("SpanSum", (SPANS, SPANS), SPANS)  # of a sum of independent parts
SpanProduct = Symbol("SpanProduct", (SPANS, SPANS), SPANS)
Footprint = Symbol("Footprint", (BOX, LAYOUT), SPANS)  # of the layout in the box
ShapeIs = Symbol("ShapeIs", (STR,), SHAPE)
CommonRefinement = Symbol("CommonRefinement", (STR, STR), SHAPE)
Aliasing = Symbol("LayoutAliasing", (LAYOUT,), REPORT)
Injective = Symbol("Injective", (), REPORT)
Clashing = Symbol("Clashing", (INT, INT), REPORT)  # two elements on one coordinate

PAIRS = {
    "tile": Tile, "direct_sum": DirectSum, "tile_of": TileOf, "direct_sum_left": LeftAddend,
    "direct_sum_right": RightAddend,
}  # fmt: skip
"""Operations on two layouts with shapes, by the names that they are called by."""

LITERALS = (
    NoIter, Iter, SymIter, Here, Copy, Shift, SymCopy, SymShift, Map, Swizzled, Boxed, BoxEnd,
    BoxOrder, BoxDim, Spans, ShapeIs, Injective, Clashing,
)  # fmt: skip
OPERATIONS = (
    Group, Permute, Slice, Tile, DirectSum, TileOf, LeftAddend, RightAddend, Compose, Inverse,
    Scale, SpanOf, Footprint, CommonRefinement, Aliasing,
)  # fmt: skip
PARTS = (
    Append, Join, Window, ScaleIters, NoBlock, Block, Cut, Prepend, SymPrepend, Insert, Reorder,
    Zip, Region, Sum, ScaleCopies, MoveTo, PlaceAt, SpanOfIters, SpanOfCopies, SpanSum,
    SpanProduct,
)  # fmt: skip
SYMBOLS = (*LITERALS, AnyLayout, *OPERATIONS, *PARTS)

SORTS = (LAYOUT, ITERS, GRID, COPIES, SPANS, SHAPE, REPORT)  # whose terms mean something


# -- layouts as terms and back ---------------------------------------------------------------------


def iters(items: Iters) -> Term:
    """The term of an iter list."""
    return chain(Iter, NoIter(), items)


def copies(replica: Iters, offsets: Sequence[tuple[str, int]] = ()) -> Term:
    """The term of replicas and an offset."""
    shifts = [(value, axis) for axis, value in offsets]
    return chain(Shift, chain(Copy, Here(), replica), shifts)


def chain(symbol: Symbol, end: Term, items: Sequence[tuple[Any, ...]]) -> Term:
    """A list of items as nested applications of a symbol, the first item outside."""
    result = end
    for item in reversed(items):
        result = symbol(*item, result)
    return result


def encode(layout: LayoutValue) -> Term:
    """The term of a layout."""
    term = Map(iters(layout.shard), copies(layout.replica, layout.offsets))
    term = chain(Swizzled, term, layout.swizzle)
    if layout.box is not None and layout.padded is not None:
        for box, padded, order in reversed((Stage(layout.box, layout.padded), *layout.inner)):
            end = BoxOrder(",".join(map(str, order))) if order else BoxEnd()
            term = Boxed(chain(BoxDim, end, list(zip(box, padded, strict=True))), term)
    return term


def decode(term: Term) -> LayoutValue:
    """The layout of a term.

    Raises:
        LayoutError: the term is not a layout written out in numbers.
    """
    stages = []
    while term.symbol is Boxed:
        stages.append(_stage(term.args[0]))
        term = term.args[1]
    if stages and stages[0].order:  # the first box of a layout has the logical order
        shape = stages[0].incoming()
        stages.insert(0, Stage(shape, shape))
    swizzles = []
    while term.symbol is Swizzled:
        swizzles.append(Swizzle(*term.args[:-1]))
        term = term.args[-1]
    if term.symbol is not Map:
        raise LayoutError("layout term", f"is {term.symbol.name}", Map.name)
    rest = term.args[1]
    offset: dict[str, int] = {}
    while rest.symbol is Shift:
        value, axis, rest = rest.args
        if axis in offset or value == 0:
            raise LayoutError("layout term", f"offset {value} on {axis}", "one per axis, not 0")
        offset[axis] = value
    return LayoutValue(
        items_of(term.args[0], Iter),
        items_of(rest, Copy),
        offset,
        swizzles,
        *((stages[0].box, stages[0].padded, stages[1:]) if stages else (None, None)),
    )


def _stage(box: Term) -> Stage:
    """A box as a stage, or the LayoutError for a term that is none."""
    dims = []
    while box.symbol is BoxDim:
        dims.append(box.args[:-1])
        box = box.args[-1]
    if box.symbol not in (BoxEnd, BoxOrder):
        raise LayoutError("layout term", f"has {box.symbol.name}", BoxDim.name)
    order = check_order(box.args[0], len(dims)) if box.symbol is BoxOrder else ()
    return Stage(tuple(n for n, _ in dims), tuple(n for _, n in dims), order)


def items_of(term: Term, symbol: Symbol) -> list[tuple[Any, ...]]:
    """The items of a list.

    Raises:
        LayoutError: it has an element that is no application of the symbol.
    """
    found = []
    while term.args:
        if term.symbol is not symbol:
            raise LayoutError("layout term", f"has {term.symbol.name}", symbol.name)
        found.append(term.args[:-1])
        term = term.args[-1]
    return found


def is_answer(term: Term) -> bool:
    """Whether a term is written out: a layout in numbers, spans, a shape, a report; or any part."""
    if term.sort == LAYOUT:
        return is_written(term)
    return term.sort not in (SPANS, SHAPE, REPORT) or term.symbol in LITERALS


def is_written(term: Term) -> bool:
    """Whether a layout term is a layout written out in numbers, as `encode` writes it."""
    while term.symbol is Boxed:
        term = term.args[1]
    while term.symbol is Swizzled:
        term = term.args[-1]
    if term.symbol is not Map:
        return False
    points, copies = term.args
    while copies.symbol is Shift:
        copies = copies.args[-1]
    return _is_list(points, Iter) and _is_list(copies, Copy)


def _is_list(term: Term, symbol: Symbol) -> bool:
    while term.args:
        if term.symbol is not symbol:
            return False
        term = term.args[-1]
    return True
