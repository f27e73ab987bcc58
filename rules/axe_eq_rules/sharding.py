"""Laws of a mesh: what devices compute of their parts is a part of the value.

Legend: f a selector; t, a, c values; b a mesh box (see `axe_eq.schedule.shard`); M a mesh text;
shard(t, b, M) = t cut so over the mesh; a partial value has one more dim, on the mesh axis that
reduces it. The projections that cut operands over a grid cut them over a mesh too.

They are for proofs. No search for a plan uses them: extraction cuts the letters of operators, and
knows exchanges by their bytes (`axe_eq.extract.mesh`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from axe_eq.pack import Pack
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
    args,
    op,
    sel,
    type_of,
    types_of,
)  # fmt: skip
from axe_eq.rule.law import Sides
from axe_eq.rule.term import STR, Primitive, Term, Undefined, primitive
from axe_eq.schedule import shard as s
from axe_eq.schedule import terms
from axe_eq.schedule.terms import Boxes, MeshBox, MeshText
from axe_eq_rules import digit_forms
from axe_eq_rules.tiling import first_box

PACK = Pack("sharding", version="4", summary="values on a mesh of devices: laws for proofs")


@primitive((STR, STR, STR), (STR,))
def mesh_layout(type: str, box: str, mesh: str) -> str:
    """The Axe layout of a value cut over a mesh."""
    return s.layout_text(type, box, mesh)


def _box_list(way: Iterable[str] | None) -> str | None:
    """Boxes as one text, each followed by a semicolon."""
    return None if way is None else "".join(f"{box};" for box in way)


@primitive((STR, STR, STR, STR), (STR,))
def mesh_operand_boxes(sig: str, types: str, box: str, mesh: str) -> str | None:
    """How operands are cut where the output is cut by `box`."""
    return _box_list(s.operand_boxes(sig, types, box, mesh))


def _partials(count: int, rounds: bool) -> Primitive:
    """(sig, types, own type, box, mesh) -> cuts of a reduced dim: signature, splits, box, axis.

    Args:
        count: number of operands.
        rounds: whether the sums of parts round, so that another order gives other bits.
    """

    def fn(sig: str, types: str, own: str, box: str, mesh: str) -> list[tuple[str, ...]]:
        if types.count(";") != count or s.merges_round(sig, own) != rounds:
            return []
        ways = s.partials(sig, types, box, mesh)
        return [(w.sig, *w.splits, w.box, w.axis) for w in ways if all(w.splits)]

    fn.__name__ = f"partial_of_{count}{'_rounding' if rounds else ''}"
    return Primitive(fn, (STR,) * 5, (STR,) * (3 + count), many=True)


@primitive((STR, STR, STR), (STR,))
def partial_type(type: str, axis: str, mesh: str) -> str:
    """Type of the partial values of a value: one more dim, in front, along a mesh axis."""
    return s.partial_type(type, axis, mesh)


@primitive((STR, STR, STR, STR), (STR,))
def mesh_moved_boxes(spec: str, types: str, box: str, mesh: str) -> str | None:
    """How a selector's operands are cut where each device moves its own parts."""
    return _box_list(s.moved_boxes(spec, types, box, mesh))


@primitive((STR, STR, STR, STR), (STR,))
def mesh_scanned_boxes(text: str, types: str, box: str, mesh: str) -> str | None:
    """How a scan's operands are cut where each device scans its own parts."""
    return _box_list(s.scanned_boxes(text, types, box, mesh))


@primitive((STR, STR), (STR,))
def unsplit(spec: str, box: str) -> str | None:
    """The cut of a value, given the cut of its split."""
    return s.unsplit_box(spec, box)


@PACK.law(source="Axe sec. 2.2: a sharding is a layout with device axes", demand=True, search=False)
def shard_is_a_place(t: Value, b: MeshBox, M: MeshText) -> Sides:
    """shard(t, b, M) = place(t, L)   where L is the layout of that cut."""
    return terms.shard(t, b, M), terms.place(t, mesh_layout(type_of(t), b, M))


@PACK.law(source="definition of shard", demand=True, search=False)
def arrives(name: Text, type: Type, b: MeshBox, M: MeshText) -> Sides:
    """shard(In(name), b, M) = Buffer(name, A)   if it arrives in the layout A of that cut."""
    value = In(name, type)
    layout = mesh_layout(type, b, M)
    arrived = terms.arrivals(value)
    return terms.shard(value, b, M), terms.Buffer(name, arrived), arrived == layout


@PACK.law(source="Tapestry, index projections; Axe sec. 3", demand=True, search=False)
def spmd(sig: Sig, cell: Cell, a: Args, b: MeshBox, M: MeshText) -> Sides:
    """shard(Op(s, f, a), b, M) = Spmd(s, f, b, M, shards(a, bs, M))   for b's projections bs."""
    types = types_of(a)
    bs = mesh_operand_boxes(sig, types, b, M)
    parts = terms.shards(a, bs, M)
    return terms.shard(Op(sig, cell, a), b, M), terms.Spmd(sig, cell, types, b, M, parts)


@PACK.law(source="Tapestry, selectors; index projections", demand=True, search=False)
def spmd_select(spec: Spec, a: Args, b: MeshBox, M: MeshText) -> Sides:
    """shard(Sel(f, a), b, M) = SpmdSel(f, b, M, shards(a, bs, M))   for the cuts bs f reads."""
    types = types_of(a)
    bs = mesh_moved_boxes(spec, types, b, M)
    parts = terms.shards(a, bs, M)
    return terms.shard(Sel(spec, a), b, M), terms.SpmdSel(spec, types, b, M, parts)


@PACK.law(source="ours: columns of a scan are scanned apart", demand=True, search=False)
def spmd_scan(text: Along, a: Args, b: MeshBox, M: MeshText) -> Sides:
    """shard(Scan(m, a), b, M) = SpmdScan(m, b, M, shards(a, b, M))   if b leaves its axis whole."""
    types = types_of(a)
    bs = mesh_scanned_boxes(text, types, b, M)
    parts = terms.shards(a, bs, M)
    return terms.shard(Scan(text, a), b, M), terms.SpmdScan(text, types, b, M, parts)


@PACK.law(source="definition of shards", demand=True, search=False)
def each_shard(a: Value, rest: Args, bs: Boxes, M: MeshText) -> Sides:
    """shards(a : rest, b : bs) = shard(a, b) : shards(rest, bs)."""
    head, tail = first_box(bs)
    return (
        terms.shards(Cons(a, rest), bs, M),
        terms.PCons(terms.shard(a, head, M), terms.shards(rest, tail, M)),
    )


@PACK.law(source="definition of shards", demand=True, search=False)
def no_shard(bs: Boxes, M: MeshText) -> Sides:
    """shards(nothing, bs) = nothing."""
    return terms.shards(Nil(), bs, M), terms.PNil()


def _collected(whole: Any, value: Any, sig: Any, cuts: tuple[Any, ...]) -> Sides:
    """shard(whole, b, M) = Collective(shard(partial values, b1, M), axis, b, M)."""
    box, axis, b, M = cuts
    type = partial_type(type_of(whole), axis, M)
    part = terms.shard(value, box, M)
    return terms.shard(whole, b, M), terms.Collective(part, type, sig, axis, b, M)


def _reduce_one(rounds: bool) -> Callable[..., Sides]:
    partials = _partials(1, rounds)

    def law(sig: Sig, cell: Cell, a: Value, b: MeshBox, M: MeshText) -> Sides:
        """shard(Op(s, f, a), b, M) = Collective(shard(partial, b1, M), axis, b, M)."""
        whole = op(sig, cell, a)
        partial, split, box, axis = partials(sig, types_of(args(a)), type_of(whole), b, M)
        return _collected(whole, op(partial, cell, sel(split, a)), sig, (box, axis, b, M))

    return law


def _reduce_two(rounds: bool) -> Callable[..., Sides]:
    partials = _partials(2, rounds)

    def law(sig: Sig, cell: Cell, a: Value, c: Value, b: MeshBox, M: MeshText) -> Sides:
        """shard(Op(s, f, a, c), b, M) = Collective(shard(partial, b1, M), axis, b, M)."""
        whole = op(sig, cell, a, c)
        types = types_of(args(a, c))
        partial, first, second, box, axis = partials(sig, types, type_of(whole), b, M)
        value = op(partial, cell, sel(first, a), sel(second, c))
        return _collected(whole, value, sig, (box, axis, b, M))

    return law


# Partial sums of floats round in another order: bit for bit only integers, max and min are reduced
# so.
for _rounds in (False, True):
    for _name, _law in (("reduce_one", _reduce_one), ("reduce_two", _reduce_two)):
        PACK.law(
            source="Axe fig. 8: a partial sum is one more dim on the device axis",
            demand=True,
            search=False,
            exact=not _rounds,
            name=f"{_name}_rounding" if _rounds else _name,
        )(_law(_rounds))


@PACK.law(
    source="Axe def. 2.2: splitting a dim keeps the row-major index", demand=True, search=False
)
def split_shard(spec: Spec, a: Value, b: MeshBox, M: MeshText) -> Sides:
    """shard(split(a), b, M) = shard(a, b', M)   if only the outermost factor is cut."""
    return terms.shard(sel(spec, a), b, M), terms.shard(a, unsplit(spec, b), M)


# -- all ranks together ----------------------------------------------------------------------------


def _formed(t: Term, sums: bool) -> tuple[Term, Term]:
    found = None if type_of.of(t) is None else digit_forms.form(t, sums)
    if found is None or found is t:
        raise Undefined("digit form")
    return t, found


@PACK.law(
    source="Axe def. 2.2: digits of an index; reductions in two stages", normal=True, search=False
)
def digit_form(t: Value) -> tuple[Term, Term]:
    """Value t = a view of operators whose dims are the digits that they read as one number."""
    return _formed(t, sums=False)


@PACK.law(
    source="Axe def. 2.2: digits of an index; reductions in two stages",
    normal=True,
    search=False,
    exact=False,
)
def digit_form_of_sums(t: Value) -> tuple[Term, Term]:
    """Value t = its digit form, where sums of sums and products of products are one too."""
    return _formed(t, sums=True)
