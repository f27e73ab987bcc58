"""Boxes in boxes through every operation of the public contract; the map is the oracle."""

from __future__ import annotations

import copy
import pickle
import re

import numpy as np
import pytest

import axe_eq as axe
from axe_eq.errors import LayoutError, NotationError, SearchError
from axe_eq.layout import (
    Layout,
    Swizzle,
    compose,
    direct_sum,
    direct_sum_left,
    direct_sum_right,
    same_map,
    tile,
    tile_of,
)
from axe_eq.prove.certificates.verdict import LayoutCounterexample

SEVERAL = Layout.parse(
    "box[(4,4) of (4,6)] in box[(24)] in box[(3,2,4) of (3,4,4)] in S[(2,12,2):(1,24@p,2)]"
)
XLA = axe.read("xla", "f32[5,7]{1,0:T(4,4)(3,1)}")
REORDERED = axe.read("xla", "f32[5,9]{0,1:T(*,3)(1,4)}")
LARGE = axe.read("xla", "f32[1000,1000]{1,0:T(8,128)(3,1)}")
BOTH = pytest.mark.parametrize("layout", [XLA, REORDERED], ids=["lined up", "reordered"])


def test_parts() -> None:
    assert (XLA.box, XLA.padded, XLA.size) == ((5, 7), (8, 8), 35)
    assert XLA.inner == (((2, 32), (2, 48), ()),)
    assert (XLA.footprint, XLA.span("m")) == ({"m": 96}, 79)
    assert [stage.order for stage in REORDERED.inner] == [(1, 0), ()]
    assert not XLA.is_linear()
    assert copy.deepcopy(XLA) == pickle.loads(pickle.dumps(XLA)) == XLA
    assert hash(Layout.parse(str(XLA))) == hash(XLA)
    assert Layout(XLA.shard, box=(35,), padded=(96,)) != XLA


@BOTH
def test_one_element_is_the_table(layout: Layout) -> None:
    values = [dict(next(iter(layout(x)))).get("m", 0) for x in range(layout.size)]
    assert layout.table("m").tolist() == values
    assert layout.coordinates(np.array([3, 7]))["m"].tolist() == [values[3], values[7]]


@pytest.mark.parametrize(
    ("parts", "wrong"),
    [
        ({"inner": [((2, 8), (2, 9))]}, "inner boxes without a box"),
        ({"box": (9,), "inner": [((2, 4), (2, 9))]}, "8 elements"),
        ({"box": (9,), "padded": (16,), "inner": [((2, 8), (2, 7))]}, "does not fit"),
        ({"box": (9,), "padded": (16,), "inner": [((2, 8),)]}, "((2, 8),)"),
        ({"box": (9,), "padded": (16,), "inner": [((2, 8), (2, 9), (0, 0))]}, "not one"),
        ({"box": (9,), "padded": (16,), "inner": [((2, 8), (2, 8))]}, "18 elements"),
        ({"box": (9,), "padded": (16,), "inner": 3}, "is 3"),
        ({"box": (9,), "padded": (8,), "inner": [((2, 4), (2, 9))]}, "does not fit"),
    ],
)
def test_what_does_not_fit_is_refused(parts: dict[str, object], wrong: str) -> None:
    with pytest.raises(LayoutError, match=re.escape(wrong)):
        Layout([(18, 1)], **parts)  # type: ignore[arg-type]


def test_canonical_is_read_off_the_levels_at_any_size() -> None:
    assert str(LARGE.canonical()) == (
        "box[(125,8,1000)] in S[(125,3,3,8,128):(9216@m,384@m,1@m,1152@m,3@m)]"
    )
    wide = axe.read("xla", "f32[9000001,2]{1,0:T(8,2)(3,1)}")
    assert wide.canonical().inner
    assert wide.canonical().canonical() == wide.canonical()
    other = Layout.parse(str(wide).replace("S[(", "S[(1,").replace(":(", ":(7,"))
    assert other != wide
    assert other.canonical() == wide.canonical()
    assert same_map(wide, other) is None
    apart = axe.read("xla", "f32[9000001,2]{1,0:T(8,2)(5,1)}")
    found = same_map(wide, apart)
    assert found is not None
    assert found.x == 1
    assert (found.image_a, found.image_b) == (wide(1), apart(1))


def test_a_box_that_another_makes_superfluous_vanishes() -> None:
    assert Layout.parse("box[(9)] in box[(3,3) of (4,4)] in S[16:1]").canonical() == (
        Layout.parse("S[(3,3):(4,1)]")
    )
    one = Layout.parse("box[(9) of (16)] in box[(2,8) of (2,9)] in S[(2,9):(9,1)]").canonical()
    assert one == Layout.parse("box[(9)] in S[(2,8):(9,1)]")
    turned = Layout.parse("box[(3,5)] in box[(5,3) of (8,3) order (1,0)] in S[24:1]")
    assert turned.canonical() == Layout.parse("S[(3,5):(1,3)]")


@BOTH
def test_equality_is_proved_and_refuted(layout: Layout) -> None:
    proved = axe.equivalent(layout, layout.canonical())
    assert proved
    assert axe.check_certificate(proved.certificate)
    moved = Layout(layout.shard, (), {"m": 1}, (), *layout.boxes)
    assert not axe.equivalent(layout, moved)
    shard = [*layout.shard[:-1], (layout.shard[-1][0], 7, "m")]
    other = Layout(shard, (), {}, (), *layout.boxes)
    refuted = axe.equivalent(layout, other)
    assert isinstance(refuted, axe.Refuted)
    assert isinstance(refuted.counterexample, LayoutCounterexample)
    x = refuted.counterexample.x
    tables = layout.table("m").tolist(), other.table("m").tolist()
    assert x == next(i for i in range(layout.size) if tables[0][i] != tables[1][i])


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "text",
    [
        "box[(4,4) of (4,6)] in box[(24)] in box[(3,2,4) of (3,4,4)] in S[(2,12,2):(1,24@p,2)]",
        "box[(3)] in box[(3) of (4)] in box[(2,2) of (4,3)] in S[(6,2):(3@p,1)]",
        "box[(5,4) of (6,5)] in box[(2,15) of (2,15) order (1,0)] in "
        "box[(2,5,3) of (4,5,3)] in S[(3,4,5):(19,5@p,1)] + R[(3,2):(2,3)] + 8",
        "box[(4,5) of (4,6)] in box[(2,2,3,2) of (2,2,5,3) order (0,3,1,2)] in "
        "S[(5,6,2):(13@p,2@p,1@q)] + R[(2,2):(2,3)] + 3",
        "box[(9,3) of (9,4)] in box[(12,3) of (12,5)] in S[(15,4):(100000000000@p,2)]",
        "box[(5) of (6)] in box[(2,3) of (2,4)] in sw(1,0,2) . sw(1,1,-1) . S[(2,4):(5,3)] "
        "+ R[2:1] + 7@p",
    ],
)
def test_digits_that_step_on_several_axes(text: str) -> None:
    layout = Layout.parse(text)
    form = layout.canonical()
    images = [layout(x) for x in range(layout.size)]
    assert [form(x) for x in range(form.size)] == images
    assert Layout.parse(str(form)).canonical() == form == form.canonical()
    other = Layout([*layout.shard, (1, 7)], layout.replica, layout.offset, layout.swizzle,
                   *layout.boxes)  # fmt: skip
    assert other.canonical() == form
    proved = axe.equivalent(layout, form)
    assert proved
    assert axe.check_certificate(proved.certificate)
    moved = Layout(layout.shard, layout.replica, {**layout.offset, "z": 1}, (), *layout.boxes)
    assert not axe.equivalent(layout, moved)
    half = form.slice([form.size], [(1, form.size)])
    assert [half(x) for x in range(half.size)] == images[1:]


def test_group_slice_and_permute() -> None:
    grouped = XLA.group((5, 7))
    assert grouped.blocks == (
        ((2, 48, "m"), (2, 12, "m"), (3, 1, "m")), ((2, 24, "m"), (4, 3, "m"))
    )  # fmt: skip
    assert grouped.layout.box == (5, 7)
    assert grouped.layout.table("m").tolist() == XLA.table("m").tolist()
    table = XLA.table("m").reshape(5, 7)
    assert XLA.permute((5, 7), (1, 0)).table("m").tolist() == table.T.reshape(-1).tolist()
    inside = XLA.slice((5, 7), [(1, 4), (2, 7)])
    assert inside.offset == {"m": int(table[1, 2])}
    assert inside.table("m").tolist() == table[1:4, 2:7].reshape(-1).tolist()
    corner = LARGE.slice((1000, 1000), [(0, 999), (0, 131)])
    assert corner.box == (999, 131)
    assert corner((998, 130)) == LARGE((998, 130), shape=(1000, 1000))
    with pytest.raises(LayoutError, match="does not group by"):
        XLA.group((7, 5))
    with pytest.raises(SearchError, match="80982001 elements; expected at most 4194304"):
        axe.read("xla", "f32[9000,9000]{0,1:T(*,7)(2,4)}").slice((9000, 9000), [(1, 9000)] * 2)


@BOTH
def test_products_and_their_factors(layout: Layout) -> None:
    inner = Layout([(2, 1), (3, 2)])
    whole = tile(layout, [layout.size], inner, [6])
    values = [x * inner.span("m") + y for x in layout.table("m") for y in inner.table("m")]
    assert whole.table("m").tolist() == values
    assert same_map(tile_of(whole, [whole.size], inner, [6]), layout) is None
    outer = Layout([(3, 1000)])
    total = direct_sum(outer, [3], layout, [layout.size])
    values = [x + y for x in outer.table("m") for y in layout.table("m")]
    assert total.table("m").tolist() == values
    left = direct_sum_left(total, [total.size], layout, [layout.size])
    right = direct_sum_right(total, [total.size], outer, [3])
    assert same_map(left, outer) is None
    assert same_map(right, layout) is None
    with pytest.raises(LayoutError):
        tile_of(layout, [layout.size], Layout([(layout.size, 2)]), [layout.size])


@BOTH
def test_composition_aliasing_and_inverse(layout: Layout) -> None:
    every_second = Layout([(layout.size // 2, 2)], offset={"m": 1})
    found = compose(layout, every_second)
    assert found.table("m").tolist() == layout.table("m")[1::2].tolist()
    assert layout.aliasing().injective
    shard = [(n, 0 if s == 1 else s, a) for n, s, a in layout.shard]
    met = Layout(shard, (), {}, (), *layout.boxes)
    clash, values = met.aliasing().clash, met.table("m").tolist()
    assert clash is not None
    assert values[clash.x] == values[clash.y]
    with pytest.raises(LayoutError, match="a box or replicas"):
        layout.inverse()


@BOTH
def test_swizzles_and_copies_stay_in_front(layout: Layout) -> None:
    swizzle = Swizzle("m", 1, 0, 2)
    full = Layout(layout.shard, [(2, 256, "m")], {"m": 3}, [swizzle], *layout.boxes)
    assert Layout.parse(str(full)) == full
    place = int(layout.table("m")[4]) + 3
    assert full(4) == {(("m", swizzle.apply(place)),), (("m", swizzle.apply(place + 256)),)}
    values = [v for image in map(full, range(full.size)) for ((_, v),) in image]
    assert full.range("m") == (min(values), max(values))
    assert same_map(full, layout) is not None


def test_written_where_the_notation_has_it_and_refused_by_name_elsewhere() -> None:
    assert axe.write("xla", XLA) == "f32[5,7]{1,0:T(4,4)(3,1)}"
    assert axe.write("axe", XLA) == str(XLA)
    mesh = axe.Mesh({"x": 2})
    for notation in ("jax", "alpa", "dtensor", "hlo_sharding"):
        with pytest.raises(
            NotationError, match=r"blocks over parts of mesh dims|in chunks over|another map"
        ):
            axe.write(notation, XLA, shape=(5, 7), mesh=mesh)
    for notation in ("cute", "strides", "matrix", "triton"):
        with pytest.raises(NotationError, match="elements padded to"):
            axe.write(notation, XLA)
    assert same_map(axe.read("xla", axe.write("xla", REORDERED)), REORDERED) is None
    with pytest.raises(LayoutError, match="a box in a box has no strides"):
        XLA.strided((5, 7))
    plain = Layout.parse("box[(3,5)] in box[(5,3) of (8,3) order (1,0)] in S[24:1]")
    assert axe.write("strides", plain) == "shape=(3,5), strides=(1,3), offset=0"


@BOTH
def test_drawn_with_every_element(layout: Layout) -> None:
    from axe_eq.layout.picture.single import layout_svg

    drawn = layout_svg(layout)
    for place in layout.table("m").tolist():
        assert f">{place}<" in drawn
