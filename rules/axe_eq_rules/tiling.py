"""Demand laws of one device: every way to compute a value in boxes, inside kernels.

Legend: t, a values; L a layout text; T a type; b a box; place(t, L) = t materialised in L; tile(t,
b) = box b of t in a kernel; Load(P, T, L, b) = box b of what P holds, a T in L. A request equals
each of its answers. No fusion is written here: a kernel is whatever cone of tile values extraction
chooses between one `Kernel` root and what is materialised.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from axe_eq.pack import Pack
from axe_eq.program.decisions import Draw
from axe_eq.program.ops import join_text, selector
from axe_eq.program.sigalg import transpose
from axe_eq.program.signature import make, plain
from axe_eq.program.terms import (
    Along,
    Args,
    Cell,
    Cons,
    In,
    Nil,
    Op,
    Scan,
    Sel,
    Sig,
    Spec,
    Text,
    Type,
    Value,
    op,
    sel,
    type_of,
    types_of,
)
from axe_eq.program.types import ValueType, value_type
from axe_eq.rule.law import Sides
from axe_eq.rule.term import STR, Ground, primitive
from axe_eq.schedule import box as boxes
from axe_eq.schedule import terms as s
from axe_eq.schedule.kept import KINDS, PADDED, kept_layouts
from axe_eq.schedule.terms import Box, Boxes, LayoutText, Placed
from axe_eq.schedule.views import is_signature, view_layout, view_type

PACK = Pack(
    "tiling", version="4", summary="values computed in boxes: the demand laws of one device"
)


@primitive((STR,), (STR,), many=True)
def root_box(type: str) -> tuple[str, ...]:
    """Boxes a kernel may have at its root."""
    return boxes.root_boxes(type)


def in_order(type: str) -> tuple[str, ...]:
    """Layouts that keep the dims of a value in order."""
    return tuple(kept.layout for kept in kept_layouts(value_type(type), (PADDED,)))


@primitive((STR,), (STR,), many=True)
def stored_in(type: str) -> tuple[str, ...]:
    """Layouts in which a value of this type may be kept between kernels."""
    return in_order(type)


@primitive((STR,), (STR,), many=True)
def each_layout(arrivals: str) -> tuple[str, ...]:
    """Each of the layouts that an input may arrive in."""
    return s.layouts_in(arrivals)


@primitive((STR, STR), (STR,), many=True)
def copied_to(arrivals: str, type: str) -> tuple[str, ...]:
    """Layouts to which an input may be copied before it is read, wherever it arrives.

    What windows, masks or reshapes read of a value in another order may be no strided part of it.
    """
    arrive = s.layouts_in(arrivals)
    return tuple(kept for kept in in_order(type) if {kept} != {*arrive})


@primitive((STR, STR, STR, STR), (STR,), many=True)
def operand_boxes(sig: str, cell: str, types: str, box: str) -> list[str]:
    """Box lists in which a block operator's operands may be read; none at the last turn."""
    plain, turns = boxes.split_turns(box)
    if turns == boxes.SEEN or (types and turns == boxes.MOST_TURNS):
        return []
    return [_list(way, turns + turns % 2) for way in boxes.op_boxes(sig, cell, types, plain)]


@primitive((STR, STR, STR), (STR,))
def selected_boxes(spec: str, types: str, box: str) -> str | None:
    """The box list in which a selector's operands are read."""
    plain, turns = boxes.split_turns(box)
    way = None if turns == boxes.SEEN else boxes.sel_boxes(spec, types, plain)
    moves = selector(spec)[0].inverse is None  # what keeps the order moves nothing
    return None if way is None else _list(way, turns | moves)


def _list(way: Iterable[str], turns: int) -> str:
    """A box list: what is asked for after so many turns of moving and computing."""
    return "".join(f"{boxes.with_turns(b, turns)};" for b in way)


@primitive((STR, STR), (STR,), many=True)
def root_box_of_scan(text: str, type: str) -> tuple[str, ...]:
    """More boxes that a kernel may have at its root where this is a scan."""
    return boxes.scan_roots(text, type)


@primitive((STR, STR), (STR,), many=True)
def root_box_of_spread(sig: str, type: str) -> tuple[str, ...]:
    """More boxes that a kernel may have at its root where this reads values without a dim."""
    return boxes.spread_roots(sig, type)


@primitive((STR, STR, STR), (STR,))
def scanned_boxes(text: str, types: str, box: str) -> str | None:
    """The box list in which a scan's operands are read."""
    plain, turns = boxes.split_turns(box)
    way = None if turns >= boxes.MOST_TURNS else boxes.scan_boxes(text, types, plain)
    return None if way is None else _list(way, turns + turns % 2)


@primitive((STR, STR, STR), (STR,))
def seen_whole(view: str, type: str, box: str) -> str | None:
    """The box of a value, all of it in memory, of which a view is read; none where no view is.

    Only views that hide others are seen so: a reshape, whose operand has no box for many of its
    own, and below it all. Those that strides alone describe are read as parts of their operand.
    """
    of = value_type(type)
    is_reshape = not is_signature(view) and selector(view)[0].inverse is not None
    below = boxes.split_turns(box)[1] == boxes.SEEN
    row_major = s.row_major(of.size)
    if not (is_reshape or below) or view_layout(view, of, row_major) is None:
        return None
    return _everything(of)


def _everything(of: ValueType) -> str:
    return boxes.with_turns(" ".join([boxes.WHOLE] * of.rank), boxes.SEEN)


@primitive((STR, STR, STR, STR), (STR, STR))
def seen_through(view: str, type: str, layout: str, box: str) -> tuple[str, str] | None:
    """The type of a view, and the layout it has where a value lies in one, if all of it is read."""
    of, read = value_type(type), boxes.split_turns(box)[0]
    found = view_layout(view, of, layout) if set(read.split()) <= {boxes.WHOLE} else None
    return None if found is None else (str(view_type(view, of)), found)


@primitive((STR,), (STR, STR))
def first_box(boxes: str) -> tuple[str, str]:
    """Head and rest of a box list."""
    head, _, rest = boxes.partition(";")
    return head, rest


@primitive((STR,), (STR,))
def keeps_order(spec: str) -> str | None:
    """Defined for selectors that keep the row-major order of all elements."""
    return spec if selector(spec)[0].inverse is not None else None


def _rooted(t: Any, box: Any, L: Any) -> Sides:
    """place(t, L) = Kernel(tile(t, box), L)."""
    return s.place(t, L), s.Kernel(s.tile(t, box), L)


@PACK.law(source="Tapestry, block operators; Axe sec. 3", demand=True)
def kernel(t: Value, L: LayoutText) -> Sides:
    """place(t, L) = Kernel(tile(t, b), L)   for every root box b of t."""
    return _rooted(t, root_box(type_of(t)), L)


@PACK.law(source="ours: columns of a scan are scanned apart", demand=True)
def kernel_of_columns(text: Along, a: Args, L: LayoutText) -> Sides:
    """place(Scan(m, a), L) = Kernel(tile(Scan(m, a), b), L)   for boxes b with the axis whole."""
    t = Scan(text, a)
    return _rooted(t, root_box_of_scan(text, type_of(t)), L)


@PACK.law(source="ours: what is reduced over a dim is read along it again", demand=True)
def kernel_of_spread(sig: Sig, cell: Cell, a: Args, L: LayoutText) -> Sides:
    """place(Op(s, f, a), L) = Kernel(tile(Op(s, f, a), b), L)   for boxes b with a dim whole."""
    t = Op(sig, cell, a)
    return _rooted(t, root_box_of_spread(sig, type_of(t)), L)


@PACK.law(source="definition of place", demand=True)
def move_input(name: Text, type: Type, L: LayoutText) -> Sides:
    """place(In(name), L) = Move(Buffer(name, A), A, L)   where the input may arrive in A."""
    value = In(name, type)
    arrives = each_layout(s.arrivals(value))
    return s.place(value, L), s.Move(s.Buffer(name, arrives), arrives, L)


def _loaded(t: Any, b: Any) -> Sides:
    """tile(t, b) = Load(place(t, L), T, L, b)   for a layout L that t, of type T, is kept in."""
    type = type_of(t)
    L = stored_in(type)
    return s.tile(t, b), s.Load(s.place(t, L), type, L, b)


@PACK.law(source="definition of tile", demand=True)
def load(sig: Sig, cell: Cell, a: Args, b: Box) -> Sides:
    """tile(t, b) = Load(place(t, L), T, L, b)   for a computed t and a layout L it is kept in."""
    return _loaded(Op(sig, cell, a), b)


@PACK.law(source="definition of tile", demand=True)
def load_selected(spec: Spec, a: Value, rest: Args, b: Box) -> Sides:
    """tile(t, b) = Load(place(t, L), T, L, b)   for a selector t of at least one operand."""
    return _loaded(Sel(spec, Cons(a, rest)), b)


@PACK.law(source="definition of tile", demand=True)
def load_scanned(text: Along, a: Args, b: Box) -> Sides:
    """tile(t, b) = Load(place(t, L), T, L, b)   for a scan t and a layout L it is kept in."""
    return _loaded(Scan(text, a), b)


@PACK.law(source="definition of tile", demand=True)
def load_input(name: Text, type: Type, b: Box) -> Sides:
    """tile(In(name), b) = Load(Buffer(name, A), T, A, b)   where the input may arrive in A."""
    value = In(name, type)
    arrives = each_layout(s.arrivals(value))
    return s.tile(value, b), s.Load(s.Buffer(name, arrives), type, arrives, b)


@PACK.law(source="definition of tile", demand=True)
def load_copied_input(name: Text, type: Type, b: Box) -> Sides:
    """tile(In(name), b) = Load(place(In(name), L), T, L, b)   if it may be copied to L."""
    value = In(name, type)
    L = copied_to(s.arrivals(value), type)
    return s.tile(value, b), s.Load(s.place(value, L), type, L, b)


@PACK.law(source="definition of place", demand=True)
def load_as_it_arrives(name: Text, type: Type, seen: Type, L: LayoutText, b: Box) -> Sides:
    """Load(place(In(name), L), T, L, b) = Load(Buffer(name, L), T, L, b)   where it may arrive."""
    value = In(name, type)
    arrives = each_layout(s.arrivals(value))
    there = s.Load(s.Buffer(name, arrives), seen, arrives, b)
    return s.Load(s.place(value, L), seen, L, b), there, arrives == L


@PACK.law(source="Axe def. 2.2: a layout maps the row-major index", demand=True)
def load_view_of_input(spec: Spec, name: Text, type: Type, b: Box) -> Sides:
    """tile(k(In(name)), b) = Load(Buffer(name, A), T, A, b)   if k keeps the row-major order."""
    value = In(name, type)
    view, arrives = sel(spec, value), each_layout(s.arrivals(value))
    whole = s.Load(s.Buffer(name, arrives), type_of(view), arrives, b)
    return s.tile(view, b), whole, keeps_order(spec) == spec


def _value_and_views(draw: Draw) -> tuple[ValueType, list[str]]:
    """A type, and views of its values: copies, a slice, a merge."""
    shape = [draw.integer(f"extent {d}", 1, 4) for d in range(draw.integer("rank", 1, 3))]
    of = ValueType("f64", tuple(shape))
    cut = draw.integer("dim", 0, of.rank - 1)
    first = draw.integer("first", 0, shape[cut] - 1)
    step = (first, -1, first + 1) if draw.chance("back", 0.5) else (first, 1, shape[cut] - first)
    return of, [
        transpose(draw.shuffled("order", range(of.rank))).text,
        make([map(plain, range(1, of.rank + 1))], range(of.rank + 1), fixed={0: 2}).text,
        join_text("slice", tuple(step if d == cut else None for d in range(of.rank))),
        join_text("merge", 0, of.rank),
    ]


def _copy_seen(draw: Draw) -> tuple[Ground, ...]:
    """A copy of an input, to be seen as a view."""
    of, views = _value_and_views(draw)
    view = draw.pick("view", views[:2])
    return view, In("x", str(of)), _everything(view_type(view, of))


def _view_of_memory(draw: Draw) -> tuple[Ground, ...]:
    """A view of an input in one of the layouts that targets keep, and a box of it."""
    of, views = _value_and_views(draw)
    view, layout = draw.pick("view", views), draw.pick("layout", kept_layouts(of, KINDS)).layout
    box = draw.pick("box", boxes.root_boxes(str(view_type(view, of))))
    return view, s.place(In("x", str(of)), layout), str(of), layout, _everything(of), box


@PACK.law(source="Axe 3.3: the layout of a view is a composition", demand=True)
def see_selector(k: Spec, x: Value, b: Box) -> Sides:
    """tile(k(x), b) = peek(k, tile(x, everything), b)   if k is a view, and read as one."""
    everything = seen_whole(k, type_of(x), b)
    return s.tile(sel(k, x), b), s.peek(k, s.tile(x, everything), b)


@PACK.law(source="Axe 3.3: the layout of a view is a composition", demand=True, sampler=_copy_seen)
def see_copy(v: Sig, x: Value, b: Box) -> Sides:
    """tile(v[id](x), b) = peek(v, tile(x, everything), b)   if v is a view, and read as one."""
    everything = seen_whole(v, type_of(x), b)
    return s.tile(op(v, "id", x), b), s.peek(v, s.tile(x, everything), b)


@PACK.law(
    source="Axe 3.3: the layout of a view is a composition", demand=True, sampler=_view_of_memory
)
def load_view(v: Text, P: Placed, T: Type, L: LayoutText, all: Box, b: Box) -> Sides:
    """peek(v, Load(P, T, L, everything), b) = Load(P, T', v L, b)   for the layout v L of v."""
    seen, layout = seen_through(v, T, L, all)
    return s.peek(v, s.Load(P, T, L, all), b), s.Load(P, seen, layout, b)


@PACK.law(source="Tapestry, index projections", demand=True)
def compute(sig: Sig, cell: Cell, a: Args, b: Box) -> Sides:
    """tile(Op(s, f, a), b) = Cell(s, f, b, tiles(a, bs))   for the projections bs of b."""
    bs = operand_boxes(sig, cell, types_of(a), b)
    return s.tile(Op(sig, cell, a), b), s.Cell(sig, cell, b, s.tiles(a, bs))


@PACK.law(source="Tapestry, selectors", demand=True)
def select(spec: Spec, a: Args, b: Box) -> Sides:
    """tile(Sel(f, a), b) = Gather(f, b, tiles(a, bs))   for the pulled-back boxes bs of b."""
    bs = selected_boxes(spec, types_of(a), b)
    return s.tile(Sel(spec, a), b), s.Gather(spec, b, s.tiles(a, bs))


@PACK.law(source="ours: what comes before an element lies in the same row", demand=True)
def accumulate(text: Along, a: Args, b: Box) -> Sides:
    """tile(Scan(m, a), b) = Scanned(m, b, tiles(a, bs))   if the box has the axis whole."""
    bs = scanned_boxes(text, types_of(a), b)
    return s.tile(Scan(text, a), b), s.Scanned(text, b, s.tiles(a, bs))


@PACK.law(source="definition of tiles", demand=True)
def each_operand(a: Value, rest: Args, bs: Boxes) -> Sides:
    """tiles(a : rest, b : bs) = tile(a, b) : tiles(rest, bs)."""
    head, tail = first_box(bs)
    return s.tiles(Cons(a, rest), bs), s.TCons(s.tile(a, head), s.tiles(rest, tail))


@PACK.law(source="definition of tiles", demand=True)
def no_operand(bs: Boxes) -> Sides:
    """tiles(nothing, bs) = nothing."""
    return s.tiles(Nil(), bs), s.TNil()


@PACK.law(source="Axe def. 2.2: a layout maps the row-major index", demand=True)
def reshape_is_a_view(spec: Spec, a: Value, L: LayoutText) -> Sides:
    """place(split(a), L) = place(a, L)   and likewise for merge: row-major order is kept."""
    return s.place(sel(spec, a), L), s.place(a, L), keeps_order(spec) == spec
