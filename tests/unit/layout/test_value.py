"""The layout value: parts, meaning, text, tables, extents and what it refuses."""

from __future__ import annotations

import copy
import pickle
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from axe_eq.errors import AxeError, LayoutError, SearchError
from axe_eq.layout import (
    Layout,
    Mesh,
    Swizzle,
    common_refinement,
    compose,
    direct_sum,
    direct_sum_right,
    recover,
    same_map,
    tile,
    tile_of,
)
from axe_eq.prove.certificates.checker import check_certificate
from axe_eq.prove.certificates.verdict import Proved
from axe_eq.prove.equivalent import equivalent

TENSOR_CORE = Layout(
    shard=[(8, 4, "lane"), (2, 1, "warp"), (4, 1, "lane"), (2, 1, "reg")],
    replica=[(2, 4, "warp")],
    offset={"warp": 5},
)
XLA = Layout([(2, 12), (2, 2), (3, 4), (2, 1)], box=(3, 5))  # f32[3,5]{1,0:T(2,2)}

TEXTS = [
    (TENSOR_CORE, "S[(8,2,4,2):(4@lane,1@warp,1@lane,1@reg)] + R[(2):(4@warp)] + 5@warp"),
    (Layout([(64, 1)]), "S[(64):(1@m)]"),
    (Layout(), "S[():()]"),
    (Layout([(1, 0), (2, -3)], offset={"m": -3}), "S[(1,2):(0@m,-3@m)] + -3@m"),
    (Layout(offset={"p": 2, "m": 1, "q": 0}), "S[():()] + 1@m + 2@p"),
    (Layout([(64, 1)], swizzle=[Swizzle("m", 3, 4, 3)]), "sw(3,4,3)@m . S[(64):(1@m)]"),
    (XLA, "box[(3,5)] in S[(2,2,3,2):(12@m,2@m,4@m,1@m)]"),
    (
        Layout([(4, 256), (2, 1), (128, 2)], box=(3, 5), padded=(8, 128)),
        "box[(3,5) of (8,128)] in S[(4,2,128):(256@m,1@m,2@m)]",
    ),
    (
        Layout([(2, 2), (2, 1)], (), {}, [Swizzle("m", 1, 0, 1), Swizzle("m", 1, 1, -1)], (3,)),
        "box[(3) of (4)] in sw(1,0,1)@m . sw(1,1,-1)@m . S[(2,2):(2@m,1@m)]",
    ),
]


@pytest.mark.parametrize(("layout", "text"), TEXTS, ids=[text for _, text in TEXTS])
def test_text_parses_back(layout: Layout, text: str) -> None:
    assert Layout.parse(text) == layout
    assert Layout.parse(str(layout)) == layout
    if "of (4)" not in text:  # one dim needs no padded shape
        assert str(layout) == text


def test_parts() -> None:
    assert TENSOR_CORE.shard[1] == (2, 1, "warp")
    assert TENSOR_CORE.replica == ((2, 4, "warp"),)
    assert TENSOR_CORE.offset == {"warp": 5}
    assert TENSOR_CORE.size == 128
    assert TENSOR_CORE.axes == ("lane", "reg", "warp")
    assert TENSOR_CORE.box is None
    assert TENSOR_CORE.swizzle == ()
    assert (XLA.size, XLA.box, XLA.padded) == (15, (3, 5), (4, 6))


def test_images_are_sets_of_sorted_coordinates_without_zeros() -> None:
    assert TENSOR_CORE((1, 2), shape=(8, 16)) == {
        (("lane", 5), ("warp", 5)),
        (("lane", 5), ("warp", 9)),
    }
    assert TENSOR_CORE(18) == TENSOR_CORE((1, 2), shape=(8, 16))
    assert Layout([(4, 1)])(0) == {()}
    assert [XLA((2, j)) for j in range(5)] == [{(("m", at),)} for at in (12, 13, 16, 17, 20)]


def test_several_swizzles_apply_last_first() -> None:
    first, second = Swizzle("m", 1, 0, 1), Swizzle("m", 1, 1, 1)
    layout = Layout([(8, 1)], swizzle=[first, second])
    assert layout.table("m").tolist() == [first.apply(second.apply(x)) for x in range(8)]
    assert layout.table("m").tolist() != [second.apply(first.apply(x)) for x in range(8)]


def test_swizzles_act_after_the_offset() -> None:
    layout = Layout([(4, 1)], offset={"m": 4}, swizzle=[Swizzle("m", 1, 0, 2)])
    assert layout.table("m").tolist() == [5, 4, 7, 6]


def test_equality_and_hash_are_structural() -> None:
    again = Layout(TENSOR_CORE.shard, TENSOR_CORE.replica, {"warp": 5, "lane": 0})
    assert again == TENSOR_CORE
    assert hash(again) == hash(TENSOR_CORE)
    assert Layout([(2, 2), (2, 1)]) != Layout([(4, 1)])
    assert Layout([(4, 1)]) != Layout([(4, 1)], swizzle=[Swizzle("m", 1, 0, 1)])
    assert Layout([(4, 1)]) != "S[(4):(1@m)]"


def test_layouts_are_immutable_values() -> None:
    with pytest.raises(AttributeError, match="read-only"):
        TENSOR_CORE.shard = ()
    for layout in (TENSOR_CORE, XLA):
        assert pickle.loads(pickle.dumps(layout)) == copy.deepcopy(layout) == layout
        assert eval(repr(layout), {"Layout": Layout}) == layout


def test_spans_and_footprints() -> None:
    assert [TENSOR_CORE.span(axis) for axis in ("lane", "reg", "warp", "other")] == [32, 2, 6, 1]
    assert TENSOR_CORE.footprint == {"lane": 32, "reg": 2, "warp": 6}
    assert XLA.span("m") == 21
    assert XLA.footprint == {"m": 24}  # padding included


def test_tables_are_int64_over_the_logical_index() -> None:
    assert XLA.table("m").dtype == np.int64
    assert XLA.table("m").tolist() == [0, 1, 4, 5, 8, 2, 3, 6, 7, 10, 12, 13, 16, 17, 20]
    assert TENSOR_CORE.table("warp").max() == 6  # replicas are left out
    assert TENSOR_CORE.replica_table("warp").tolist() == [0, 4]
    with pytest.raises(SearchError, match="elements"):
        Layout([(2**40, 1)]).table("m")


def test_strided_gives_extents_and_strides_per_dim() -> None:
    layout = Layout([(4, 16), (2, 1, "p"), (8, 2)])
    assert layout.strided((4, 16)) == (((4, 16),), ((2, 0), (8, 2)))
    assert layout.strided((4, 16), "p") == (((4, 0),), ((2, 1), (8, 0)))
    assert XLA.strided((3, 5)) == (((2, 12), (2, 2)), ((3, 4), (2, 1)))
    swizzled = Layout([(8, 1)], swizzle=[Swizzle("m", 1, 0, 1)])
    with pytest.raises(LayoutError, match="swizzle has no strides"):
        swizzled.strided((8,))


def test_iters_may_leave_out_the_default_axis_and_come_as_numpy_integers() -> None:
    assert Layout([(np.int32(4), np.int64(2))]) == Layout([(4, 2, "m")])
    assert type(Layout([(np.int32(4), 1)]).shard[0][0]) is int


# ---- operations on examples ---------------------------------------------------------------------


def test_grouped_layouts_keep_the_padding() -> None:
    grouped = XLA.group((3, 5))
    assert grouped.layout.padded == (4, 6)
    assert grouped.blocks == (((2, 12, "m"), (2, 2, "m")), ((3, 4, "m"), (2, 1, "m")))


def test_a_box_that_pads_nothing_away_is_left_out() -> None:
    layout = Layout([(2, 8), (4, 1)], box=(2, 3))  # rows of three with pitch 8
    assert layout.canonical() == Layout([(2, 8), (3, 1)])
    assert XLA.canonical().box == (3, 5)


def test_swizzles_that_do_nothing_are_left_out() -> None:
    assert Layout([(8, 1)], swizzle=[Swizzle("m", 2, 0, 4)]).canonical() == Layout([(8, 1)])
    twice = Layout([(512, 1)], swizzle=[Swizzle("m", 3, 3, 3), Swizzle("m", 2, 1, 3)])
    assert twice.canonical() == Layout([(512, 1)], swizzle=[Swizzle("m", 5, 1, 3)])


def test_slices_keep_swizzle_and_replicas() -> None:
    layout = Layout([(64, 64), (64, 1)], [(2, 4096)], swizzle=[Swizzle("m", 3, 3, 3)])
    part = layout.slice((64, 64), ((8, 16), (0, 64)))
    assert part == Layout(
        [(8, 64), (64, 1)], [(2, 4096)], {"m": 512}, swizzle=[Swizzle("m", 3, 3, 3)]
    )


def test_tiling_a_swizzled_atom() -> None:
    atom = Layout([(8, 64), (64, 1)], swizzle=[Swizzle("m", 3, 3, 3)])
    whole = tile(Layout([(16, 1)]), (16, 1), atom, (8, 64))
    assert whole.canonical() == Layout([(8192, 1)], swizzle=atom.swizzle)
    assert same_map(tile_of(whole, (128, 64), atom, (8, 64)), Layout([(16, 1)])) is None
    with pytest.raises(LayoutError, match="multiples of 512"):
        direct_sum(Layout([(16, 64)]), (16, 1), atom, (8, 64))


def test_inverse_of_several_axes_needs_their_order() -> None:
    fragment = Layout([(8, 4, "lane"), (4, 1, "lane"), (2, 1, "reg")])
    with pytest.raises(LayoutError, match=r"inverse\(axes="):
        fragment.inverse()
    inverse = fragment.inverse(("reg", "lane"))
    for x in range(fragment.size):
        (point,) = (dict(coordinate) for coordinate in fragment(x))
        index = 32 * point.get("reg", 0) + point.get("lane", 0)
        assert inverse(index) == {(("reg", x),) if x else ()}


@pytest.mark.parametrize(
    ("layout", "reason"),
    [
        (Layout([(4, 2)]), "coordinate 1 is not hit"),
        (Layout([(4, 1), (2, 2)]), "coordinate 2 is hit twice"),
        (Layout([(2, 0)]), "coordinate 0 is hit twice"),
        (Layout([(4, 1)], offset={"m": 1}), "coordinates start at 1"),
        (Layout([(4, 1)], [(2, 4)]), "a box or replicas"),
        (XLA, "a box or replicas"),
        (Layout([(6, 1)], swizzle=[Swizzle("m", 1, 1, -1)]), "coordinate 2 is not hit"),
    ],
)
def test_inverse_names_what_is_in_the_way(layout: Layout, reason: str) -> None:
    with pytest.raises(LayoutError, match=reason):
        layout.inverse()


def test_what_only_a_box_computes_is_refused_as_that() -> None:
    rows = Layout([(2, 10), (3, 1)])
    boxed = Layout([(2, 10), (3, 1)], box=(5,))
    assert [boxed(x) for x in range(5)] == [rows(x) for x in range(5)]
    with pytest.raises(LayoutError, match="no layout without a box computes it: index 3 of the re"):
        rows.slice((6,), [(0, 5)])
    with pytest.raises(LayoutError, match="no layout without a box computes it: index 3 breaks"):
        compose(rows, Layout([(5, 1)]))
    with pytest.raises(LayoutError, match="no layout without a box computes it: index"):
        rows.permute((3, 2), (1, 0))
    with pytest.raises(LayoutError, match="no layout without a box behind these swizzles computes"):
        Layout([(2, 16), (3, 1)], swizzle=[Swizzle("m", 1, 0, 1)]).slice((6,), [(0, 5)])
    with pytest.raises(LayoutError, match="no box computes it: index"):
        Layout([(4, 1, "p"), (4, 1)], box=(14,)).slice((14,), [(2, 6)])


@pytest.mark.parametrize(
    ("text", "times"),
    [("S[4194304:3] + 5@m", 1.2), ("S[(2,2097152):(1,2)]", 1.8),
     ("box[(2097151,2)] in S[(2097152,2):(2,1)]", 1.8),
     ("box[(4,1048570)] in box[(4194280) of (4194304)] in S[4194304:3]", 4)],
)  # fmt: skip
def test_a_table_takes_little_more_memory_than_it_is(text: str, times: float) -> None:
    layout = Layout.parse(text)
    tracemalloc.start()
    try:
        table = layout.table("m")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < times * table.nbytes
    some = [0, 1, layout.size // 2, 2**20 - 1, 2**20, layout.size - 1]
    assert [
        frozenset([(("m", int(table[x])),)]) if table[x] else frozenset([()]) for x in some
    ] == [layout(x) for x in some]


def test_a_table_of_too_many_elements_is_refused() -> None:
    with pytest.raises(SearchError, match="67108865 elements; expected at most 67108864"):
        Layout([(2**26 + 1, 1)]).table("m")


def test_a_left_addend_may_have_swizzles() -> None:
    left = Layout.parse("sw(1,0,1) . S[4:1]")
    for text in ("S[3:1@p]", "sw(1,0,2)@p . S[8:1@p]", "S[1:1] + R[2:1@p] + 4@p"):
        right = Layout.parse(text)
        whole = direct_sum(left, (4,), right, (right.size,))
        found = direct_sum_right(whole, (whole.size,), left, (4,))
        assert same_map(found, right) is None
        meant = [
            frozenset(tuple(sorted((*a, *b))) for a in left(x) for b in right(y))
            for x in range(4)
            for y in range(right.size)
        ]
        assert [whole(x) for x in range(whole.size)] == meant
    for text in ("S[(4,2):(1,1@p)]", "sw(1,1,1) . S[(4,2):(1,1@p)]", "sw(1,0,1) . S[(4,2):(1,4)]"):
        with pytest.raises(LayoutError, match="direct sum"):
            direct_sum_right(Layout.parse(text), (8,), left, (4,))


@pytest.mark.parametrize(
    ("outer", "inner", "found"),
    [
        ("S[4:1]", "sw(1,0,1) . S[4:1]", "sw(1,0,1) . S[4:1]"),
        ("sw(1,0,1) . S[4:1]", "sw(1,0,1) . S[4:1]", "S[4:1]"),
        ("S[(2,4):(1,2)]", "sw(1,0,1) . S[8:1]", "sw(1,1,1) . S[(2,4):(1,2)]"),
        ("S[(2,4):(1,2)] + R[2:16] + 3@p", "sw(1,0,1) . S[8:1]",
         "sw(1,1,1) . S[(2,4):(1,2)] + R[2:16] + 3@p"),
    ],
)  # fmt: skip
def test_compositions_that_swizzles_compute(outer: str, inner: str, found: str) -> None:
    a, b = Layout.parse(outer), Layout.parse(inner)
    made = compose(a, b)
    assert same_map(made, Layout.parse(found)) is None
    for x in range(b.size):
        indices = [dict(place).get("m", 0) for place in b(x)]
        assert made(x) == frozenset().union(*map(a, indices))


def test_a_composition_that_steps_on_two_axes_at_once() -> None:
    a, b = Layout.parse("sw(1,1,1) . S[(2,4):(1@p,2)]"), Layout.parse("sw(1,0,2) . S[8:1] + R[2:8]")
    made, longer = compose(a, b), Layout.parse("sw(1,1,1) . S[(4,4):(1@p,2)]")
    for x in range(b.size):
        assert made(x) == frozenset().union(*(longer(dict(y).get("m", 0)) for y in b(x)))


def test_aliasing_reports_the_first_clash() -> None:
    report = Layout([(4, 1), (3, 1)]).aliasing()
    assert not report.injective
    assert report.clash == (1, 3, (("m", 1),))
    assert Layout([(4, 3), (3, 1)]).aliasing() == (True, None)
    assert Layout([(2, 1)], [(2, 1)]).aliasing().clash == (0, 1, (("m", 1),))
    huge = Layout([(2**30, 6), (4, 5), (2, 3)]).aliasing()  # 5 + 5*... meets 6*... + 3
    assert huge.clash is not None
    x, y, point = huge.clash
    layout = Layout([(2**30, 6), (4, 5), (2, 3)])
    assert x < y
    assert point in layout(x) & layout(y)


def test_common_refinement() -> None:
    assert common_refinement([(2, 6), (4, 3)]) == (2, 2, 3)
    assert common_refinement([(12,), (1, 12)]) == (12,)
    assert common_refinement([()]) == ()
    with pytest.raises(LayoutError, match="cut at 2 and 3 elements"):
        common_refinement([(3, 2), (2, 3)])


def test_composition_continues_the_slowest_iter() -> None:
    assert compose(Layout([(4, 1)]), Layout([(4, 2)])) == Layout([(4, 2)])
    with pytest.raises(LayoutError, match="indices -1 to 0"):
        compose(Layout([(4, 1)]), Layout([(2, -1)]))
    with pytest.raises(LayoutError, match="an inner layout on one axis"):
        compose(Layout([(4, 1)]), Layout([(2, 1), (2, 1, "p")]))


def test_composition_that_pycute_gets_wrong() -> None:
    outer = Layout([(8, 5), (6, 3), (4, 2)])  # (4,6,8):(2,3,5) of CuTe
    with pytest.raises(LayoutError, match="index 4 breaks"):
        compose(outer, Layout([(6, 1)]))


def test_composition_where_only_all_copies_together_are_a_list() -> None:
    outer = Layout([(5, 9), (5, 1)], replica=[(2, 4)])
    inner = Layout(replica=[(3, 4, "i")])  # lands on 0, 4 and 12
    assert compose(outer, inner).canonical() == Layout(replica=[(5, 4)])


def test_huge_compositions_follow_the_digits() -> None:
    outer = Layout([(2**20, 1), (2**20, 2**20)])  # a transposed square
    found = compose(outer, Layout([(2**10, 2**10), (2**18, 2**20)]))
    assert found.canonical() == Layout([(2**10, 2**30), (2**18, 1)])
    split = compose(outer, Layout([(2**25, 2**10)]))
    assert split.canonical() == Layout([(2**15, 1), (2**10, 2**30)])
    with pytest.raises(SearchError, match="points that carry"):
        compose(outer, Layout([(2**24, 3)]))


# ---- replicas off the gap condition -------------------------------------------------------------


def test_wide_replica_lists_have_one_normal_form() -> None:
    near, far = [(7, 2), (3, 3)], 2**40
    a = Layout(replica=[*near, (5, far)])
    b = Layout(replica=[(4, 2), (5, 3), (5, far)])
    assert a.canonical() == b.canonical()
    assert same_map(a, b) is None
    assert same_map(a, Layout(replica=[(4, 2), (5, 3), (5, far + 1)])) is not None


@pytest.mark.parametrize(
    ("one", "two", "only_one", "only_two"),
    [
        ([(2**30, 1)], [(2**30, 2)], [], [2**31 - 2]),
        ([(2**20, 1), (3, 2**40)], [(2**20, 1), (2, 2**41)], [2**40], []),
        ([(2**17, 2), (3, 3)], [(2**17 + 3, 2)], [3], []),
    ],
)
def test_images_too_large_to_show_are_told_apart_by_one_coordinate(
    one: list[Any], two: list[Any], only_one: list[int], only_two: list[int]
) -> None:
    found = same_map(Layout(replica=one), Layout(replica=two))
    assert found is not None
    shown = [[dict(p)["m"] for p in image or ()] for image in (found.image_a, found.image_b)]
    assert shown == [only_one, only_two]


def test_a_large_box_that_the_shape_does_not_follow_is_refused_not_enumerated() -> None:
    padded = Layout(
        [(2**40, 8, "m"), (2, 3, "p"), (4, 1, "m")], box=(2**40 - 1, 7), padded=(2**40, 8)
    )
    across = (7, 2**40 - 1)
    with pytest.raises(SearchError, match=f"{7 * (2**40 - 1)} elements"):
        padded.permute(across, (1, 0))
    with pytest.raises(SearchError, match="elements; expected at most"):
        padded.slice(across, ((0, 7), (0, 2**30)))
    small = padded.slice(across, ((0, 1), (7, 14)))  # only what is asked for counts
    assert [small(x) for x in range(7)] == [padded(x) for x in range(7, 14)]


def test_the_span_behind_swizzles_needs_one_coordinate_per_pattern_of_bits() -> None:
    extents, stride, shard = (3, 5, 5, 7, 5, 5, 16, 7, 64, 8), 1, []
    for extent in reversed(extents):
        shard.append((extent, 30 * stride if stride % 2 else -stride))
        stride *= extent
    layout = Layout(shard[::-1], swizzle=[Swizzle("m", 3, 5, 7), Swizzle("m", 2, 4, 4)])
    points = [sum((e - 1) * s for e, s in shard if (s > 0) == top) for top in (False, True)]
    low, high = layout.range("m")
    assert abs(low - points[0]) < 2**15
    assert abs(high - points[1]) < 2**15


def test_another_spelling_of_a_layout_fits_in_63_bits_too() -> None:
    turned = Layout([(3, 5, "p")], replica=[(2, -(2**62), "p")])
    form = turned.canonical()
    assert Layout.parse(str(form)) == form
    verdict = equivalent(turned, form)
    assert isinstance(verdict, Proved)
    assert check_certificate(verdict.certificate)
    with pytest.raises(LayoutError, match="coordinates up to"):
        Layout(replica=[(2, 2**62), (2, -(2**62))])


def test_coordinates_whose_jumps_leave_63_bits_are_recovered() -> None:
    table = np.array([[0], [2**61], [2**62], [3 * 2**61]])
    for sign in (1, -1):
        layout = recover(sign * table, ["m"])
        assert layout == Layout([(4, sign * 2**61)])
        steep = Layout([(2, -sign * 2**62), (2, sign * (2**62 - 1))])
        assert recover(steep.table("m")[:, None], ["m"]) == steep
        swizzled = Layout(steep.shard, swizzle=[Swizzle("m", 1, 0, 1)])
        assert same_map(swizzled.canonical(), swizzled) is None


def test_hopeless_replica_lists_are_named() -> None:
    wide = Layout(replica=[(2**20, 3), (2**20, 5), (2**20, 7)])
    assert wide.canonical().canonical() == wide.canonical()
    wider = Layout(replica=[(2**30, 2), (2**30, 3)])
    with pytest.raises(SearchError, match=r"\(1073741824:2\) \(1073741824:3\).* gap condition"):
        wider.canonical()


def test_tile_of_finds_replicas_that_overlap() -> None:
    whole = Layout([(8, 1)], replica=[(6, 8)])
    part = Layout([(8, 1)], replica=[(2, 8)])
    found = direct_sum(Layout(replica=[(5, 8)]), [1], part, [8])
    assert same_map(found, whole) is None
    with pytest.raises(LayoutError, match="replicas of"):  # span 4: runs of 3 leave holes
        tile_of(Layout([(2, 1)], [(11, 1)]), [2], Layout([(2, 1)], [(3, 1)]), [2])
    with pytest.raises(LayoutError, match="replicas of"):
        tile_of(Layout([(8, 1)], replica=[(2, 8)]), [8], Layout([(8, 1)], replica=[(3, 8)]), [8])


# ---- meshes -------------------------------------------------------------------------------------


def test_mesh() -> None:
    mesh = Mesh({"x": 2, "y": 4})
    assert mesh.size == 8
    assert mesh.axis == "gpuid"
    assert mesh.axes == {"x": (2, 4), "y": (4, 1)}
    assert mesh == Mesh({"x": 2, "y": 4})
    assert hash(mesh) == hash(Mesh({"x": 2, "y": 4}))
    assert mesh != Mesh({"y": 4, "x": 2})  # the order numbers the devices
    assert mesh != Mesh({"x": 2, "y": 4}, axis="dev")
    assert eval(repr(mesh), {"Mesh": Mesh}) == mesh


# ---- bad input: one clear error each ------------------------------------------------------------

LINE = Layout([(8, 1)])
BAD: dict[str, Callable[[], Any]] = {
    "extent zero": lambda: Layout([(0, 1)]),
    "extent negative": lambda: Layout(replica=[(-2, 1)]),
    "iter of one": lambda: Layout([(2,)]),
    "iter no tuple": lambda: Layout([4]),  # type: ignore[list-item]
    "stride text": lambda: Layout([(2, "x")]),
    "extent bool": lambda: Layout([(True, 1)]),
    "extent float": lambda: Layout([(2.0, 1)]),
    "axis empty": lambda: Layout([(2, 1, "")]),
    "axis with space": lambda: Layout([(2, 1, "a b")]),
    "axis number": lambda: Layout([(2, 1, 3)]),
    "offset text": lambda: Layout(offset={"m": "3"}),  # type: ignore[dict-item]
    "size over 63 bits": lambda: Layout([(2**32, 1), (2**31, 1)]),
    "coordinate over 63 bits": lambda: Layout([(3, 2**62)]),
    "ten thousand iters": lambda: Layout([(1, 1)] * 10_000),
    "box too large": lambda: Layout([(4, 1)], box=(5,)),
    "box does not cut": lambda: Layout([(4, 1)], box=(2, 2)),
    "padded without box": lambda: Layout([(4, 1)], padded=(4,)),
    "padded of another size": lambda: Layout([(4, 1)], box=(3,), padded=(5,)),
    "padded rank": lambda: Layout([(4, 1)], box=(3,), padded=(2, 2)),
    "padded does not group": lambda: Layout([(2, 9), (3, 1)], box=(2, 1), padded=(3, 2)),
    "swizzle tuple": lambda: Layout([(4, 1)], swizzle=[(3, 3, 3)]),  # type: ignore[list-item]
    "swizzle shift": lambda: Layout([(4, 1)], swizzle=[Swizzle("m", 1, 1, 0)]),
    "swizzle negative": lambda: Layout([(4, 1)], swizzle=[Swizzle("m", 1, -1, 1)]),
    "swizzle too far": lambda: Layout([(4, 1)], swizzle=[Swizzle("m", 3, 40, 30)]),
    "index past the end": lambda: LINE(8),
    "index negative": lambda: LINE(-1),
    "index without shape": lambda: LINE((1, 2)),
    "index of another rank": lambda: LINE((1, 2), shape=(8,)),
    "index outside": lambda: LINE((2, 0), shape=(2, 4)),
    "shape of another size": lambda: LINE.group((2, 3)),
    "shape with zero": lambda: LINE.group((0, 8)),
    "shape does not group": lambda: Layout([(2, 9), (3, 1)]).group((3, 2)),
    "region out of range": lambda: LINE.slice((8,), ((6, 12),)),
    "region empty": lambda: LINE.slice((8,), ((3, 3),)),
    "region of another rank": lambda: LINE.slice((2, 4), ((0, 1),)),
    "region no pair": lambda: LINE.slice((8,), (3,)),  # type: ignore[arg-type]
    "permutation": lambda: LINE.permute((2, 4), (0, 0)),
    "tile ranks": lambda: tile(LINE, (8,), LINE, (2, 4)),
    "tile too large": lambda: tile(Layout([(2**40, 1)]), [2**40], Layout([(2**40, 1)]), [2**40]),
    "tile_of shapes": lambda: tile_of(LINE, (8,), Layout([(3, 1)]), (3,)),
    "refinement of nothing": lambda: common_refinement([]),
    "refinement of two sizes": lambda: common_refinement([(2, 3), (2, 2)]),
    "table of one dim": lambda: recover(np.arange(4), ["m"]),
    "table without elements": lambda: recover(np.zeros((0, 1), dtype=int), ["m"]),
    "table without a list": lambda: recover(np.array([[0], [1], [5]]), ["m"]),
    "mesh no mapping": lambda: Mesh([2, 4]),  # type: ignore[arg-type]
    "mesh extent": lambda: Mesh({"x": 0}),
    "mesh name": lambda: Mesh({"x y": 2}),
}


def test_bad_input_texts(golden: Callable[..., None]) -> None:
    lines = []
    for name, attempt in BAD.items():
        with pytest.raises(AxeError) as caught:
            attempt()
        lines.append(f"{name}\n  {type(caught.value).__name__} {caught.value}")
    golden("\n".join(lines))
