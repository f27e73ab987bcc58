"""Pictures of layouts against enumeration: every cell says where its element lies, and back."""

from __future__ import annotations

from collections import defaultdict
from math import prod

import numpy as np
import pytest

from axe_eq.draw.grid import ABSENT, Cell, Grid, grid_svg
from axe_eq.errors import ArgumentError, LayoutError
from axe_eq.layout import Layout, Swizzle, same_map
from axe_eq.layout.notation import read_any
from axe_eq.layout.picture.banks import accesses, banks, turns
from axe_eq.layout.picture.matrix import Matrix, images, matrix_of, region, values_text
from axe_eq.layout.picture.pair import differing, differing_blocks, pair_of
from axe_eq.layout.picture.panels import (
    NAMED,
    abbreviated,
    colour_axis,
    digit_pitches,
    elements,
    memory,
    overview,
    places_of,
    scale_of,
    shown_axes,
)
from axe_eq.layout.picture.single import Look, parts_of

Rng = np.random.Generator
AXES = ("m", "lane", "gpuid")


def random_layout(rng: Rng, size: int | None = None) -> Layout:
    """D, R, O, now and then a swizzle or a box, of at most 96 elements."""
    extents = []
    left = size or int(rng.choice([1, 6, 8, 12, 24, 32, 48, 96]))
    while left > 1:
        extent = int(rng.choice([d for d in range(2, left + 1) if left % d == 0]))
        extents.append(extent)
        left //= extent
    shard = [(e, int(rng.choice([0, 1, 2, 4, 7, -3])), str(rng.choice(AXES))) for e in extents]
    replica = [
        (int(rng.choice([1, 2, 3])), int(rng.choice([1, 5, -4])), str(rng.choice(AXES)))
        for _ in range(int(rng.integers(0, 3)))
    ]
    offset = {axis: int(rng.integers(-5, 6)) for axis in AXES if rng.random() < 0.3}
    swizzle = [Swizzle("m", 1, 0, 2)] if rng.random() < 0.2 else []
    if size is None and shard and rng.random() < 0.3:
        box = [int(rng.integers(1, e + 1)) for e in extents]
        return Layout(shard, replica, offset, swizzle, box, extents)
    return Layout(shard, replica, offset, swizzle)


def grid_of(layout: Layout, matrix: Matrix, axes: tuple[str, ...]) -> Grid:
    window = matrix.whole()
    found = images(layout, matrix.index(window).reshape(-1))
    axis = colour_axis(axes)
    return elements(matrix, window, found, axes, scale_of(axis, found.least(axis)))


def flat(grid: Grid) -> list[Cell]:
    return [cell for row in grid.cells for cell in row]


def test_every_element_s_cell_says_where_it_lies(rng: Rng, full: bool) -> None:
    for _ in range(1000 if full else 60):
        layout = random_layout(rng)
        axes, matrix = shown_axes(layout), matrix_of(layout)
        for x, cell in enumerate(flat(grid_of(layout, matrix, axes))):
            assert cell.keys == (x,)
            image = [dict(point) for point in layout(x)]
            per_axis = [{point.get(axis, 0) for point in image} for axis in axes]
            assert len(image) == prod(map(len, per_axis))  # the image is the product of the rows
            grid_names = abbreviated(axes)
            told = " ".join(cell.lines).split()
            for word, axis, values in zip(told, axes, per_axis, strict=True):
                said = values_text(np.array(sorted(values)))
                assert word in (said, grid_names[axis] + said)
                assert (word == said) == (len(axes) == 1 or matrix.n_columns > NAMED)


def test_values_are_told_as_what_they_are() -> None:
    assert [values_text(np.array(v)) for v in ([3], [1, 5], [2, 3, 4], [0, 4, 8, 12])] == [
        "3", "1,5", "2–4", "0,4,…,12",
    ]  # fmt: skip


def test_of_very_many_copies_the_ends_are_told() -> None:
    layout = Layout([(4, 1, "m")], [(2000, -6, "gpuid"), (3, 2, "gpuid")])
    (cell, *_) = flat(grid_of(layout, matrix_of(layout), ("gpuid",)))
    values = sorted(dict(point).get("gpuid", 0) for point in layout(0))
    assert cell.lines == (f"{values[0]},{values[1]},…,{values[-1]}",)


def test_axes_that_are_not_told_never_vary(rng: Rng) -> None:
    for _ in range(60):
        layout = random_layout(rng)
        told = set(shown_axes(layout))
        values = {axis: {dict(p).get(axis, 0) for x in range(layout.size) for p in layout(x)}
                  for axis in layout.axes}  # fmt: skip
        assert all(seen == {0} for axis, seen in values.items() if axis not in told)


def test_every_place_s_cell_says_what_it_holds(rng: Rng, full: bool) -> None:
    drawn = 0
    for _ in range(1000 if full else 60):
        layout = random_layout(rng)
        places = places_of(layout)
        if places.drawn != places.matrix.whole():
            continue
        drawn += 1
        matrix = matrix_of(layout)
        grid = memory(layout, matrix, places)
        assert grid is not None
        held: dict[tuple[int, ...], list[int]] = defaultdict(list)
        for x in range(layout.size):
            for point in layout(x):
                held[tuple(dict(point).get(axis, 0) for axis in places.axes)].append(x)
        seen = 0
        for place, cell in enumerate(flat(grid)):
            if place >= places.n_places:
                assert cell.tone == ABSENT
                continue
            own = held.get(tuple(places.coordinates(place)), [])
            seen += bool(own)
            assert cell.keys == tuple(own[:8])
            assert (cell.tone == "hole") == (not own)
            assert ("clash" in cell.marks) == (len(own) > 1)
            assert own == [] or cell.lines[0] == matrix.element(own[0])
        assert seen == len(held)  # no place is left out
    assert drawn > 20


def test_padding_is_drawn_as_holes_to_its_end() -> None:
    layout = read_any("xla:f32[3,5]{1,0:T(2,2)}")
    grid = memory(layout, matrix_of(layout), places_of(layout))
    assert grid is not None
    tones = [cell.tone for cell in flat(grid)]
    assert len(tones) == layout.footprint["m"] == 24
    assert tones.count("hole") == 24 - 15
    assert tones[-3:] == ["hole"] * 3


def test_an_uneven_shard_leaves_holes_on_its_device() -> None:
    layout = Layout.parse("box[(5)] in S[(2,3):(1@gpuid,1)]")
    places = places_of(layout)
    assert places.axes == ("gpuid", "m")
    grid = memory(layout, matrix_of(layout), places)
    assert grid is not None
    assert [[c.lines for c in row] for row in grid.cells] == [
        [("0",), ("1",), ("2",)], [("3",), ("4",), ()],
    ]  # fmt: skip


# ---- matrices and windows -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shape", "dims", "split"),
    [
        ("S[(8,2,4,2):(4@lane,1@warp,1@lane,1@reg)]", (8, 16), (8, 16), 1),
        ("S[(8,2,4,2):(4@lane,1@warp,1@lane,1@reg)]", None, (8, 16), 1),
        ("S[(2,3,4):(12,4,1)]", (2, 3, 4), (2, 3, 4), 2),
        ("S[(8,128,4):(512,4,1)]", (8, 128, 4), (8, 128, 4), 1),
        ("box[(3,5)] in S[(2,2,3,2):(12,2,4,1)]", None, (3, 5), 1),
        ("S[256:1]", None, (8, 32), 1),
        ("S[7:1]", None, (7,), 0),
        ("S[():()]", (), (1,), 0),
    ],
)
def test_a_layout_is_cut_into_rows_and_columns(
    text: str, shape: tuple[int, ...] | None, dims: tuple[int, ...], split: int
) -> None:
    assert matrix_of(Layout.parse(text), shape) == Matrix(dims, split)


def test_windows_lie_inside_and_hold_their_element(rng: Rng) -> None:
    for _ in range(200):
        matrix = Matrix(tuple(int(n) for n in rng.integers(1, 300, 2)), 1)
        index = int(rng.integers(matrix.n_rows * matrix.n_columns))
        window = matrix.window(index, 64)
        assert index in matrix.index(window)
        for part, extent in ((window.rows, matrix.n_rows), (window.columns, matrix.n_columns)):
            assert 0 <= part.start < part.stop <= extent
            assert len(part) == min(64, extent)


def test_an_element_is_named_by_its_digits_and_found_by_them() -> None:
    matrix = Matrix((3, 4, 5), 2)
    assert [region(matrix, at) for at in ((2, 3, 4), (59,), (0, 0, 1))] == [59, 59, 1]
    assert matrix.element(59) == "2,3,4"
    for at in ((3, 0, 0), (60,), (0, 0), (-1,)):
        with pytest.raises(LayoutError, match="out of range"):
            region(matrix, at)


def test_a_large_layout_is_drawn_from_far_and_through_a_window() -> None:
    layout = read_any("xla:f32[8192,4096]{1,0:T(8,128)}")
    far, near = parts_of(layout, Look(shape=(8192, 4096), at=5000 * 4096 + 3000))
    assert (far.title, near.title) == ("From far", "Elements")
    assert len(far.grid.cells) == len(far.grid.cells[0]) == 64
    (frame,) = far.grid.frames
    assert (frame.rows[0], frame.columns[0]) == (4992 // 128, 2944 // 64)
    assert len(near.grid.cells) == len(near.grid.cells[0]) == 64
    keys = [cell.keys[0] for cell in flat(near.grid)]
    assert 5000 * 4096 + 3000 in keys
    (value,) = (dict(point)["m"] for point in layout(keys[77]))
    assert flat(near.grid)[77].lines == (str(value),)


def test_a_layout_of_any_size_is_drawn_at_once() -> None:
    layout = Layout([(2**30, 2**20), (2**20, 1)])
    parts = parts_of(layout, Look(shape=(2**30, 2**20)))
    assert [part.title for part in parts] == ["From far", "Elements"]
    assert flat(parts[0].grid)[-1].title.startswith("rows 1056964608 to 1073741823")


def test_few_values_get_a_hue_each_and_many_a_ramp() -> None:
    few, many = (scale_of("m", np.arange(n)) for n in (8, 9))
    assert len({few.tone(v) for v in range(8)}) == 8
    assert few.legend()[3] == ("h3", "m 3")
    assert many.legend() == (("r0", "m 0, the least"), ("r15", "m 8, the greatest"))


def test_the_blocks_of_an_overview_show_their_first_elements() -> None:
    layout = Layout.parse("S[(4,25,200):(1@gpuid,200,1)]")
    grid = overview(layout, matrix_of(layout, (100, 200)), "gpuid")
    tones = [row[0].tone for row in grid.cells]
    assert tones == [f"h{2 * n // 25}" for n in range(50)]
    assert all(len({cell.tone for cell in row}) == 1 for row in grid.cells)


# ---- two layouts --------------------------------------------------------------------------------


def test_marked_elements_are_those_that_differ(rng: Rng, full: bool) -> None:
    seen = 0
    for _ in range(1000 if full else 80):
        a = random_layout(rng, 24)
        b = random_layout(rng, 24) if rng.random() < 0.3 else changed(rng, a)
        wanted = [a(x) != b(x) for x in range(24)]
        assert differing(a, b, np.arange(24)).tolist() == wanted
        found = same_map(a, b)
        pair = pair_of(a, b, None if found is None else found.x)
        marks = [cell.marks for cell in flat(pair.grids[0])]
        assert marks == [cell.marks for cell in flat(pair.grids[1])]
        assert [bool(mark) for mark in marks] == wanted
        if found is not None:
            assert marks.index(("first",)) == found.x == wanted.index(True)
            seen += 1
    assert seen > 20


def changed(rng: Rng, layout: Layout) -> Layout:
    """The same layout, or one with a stride, a copy or the offset changed."""
    shard, replica, offset = list(layout.shard), list(layout.replica), layout.offset
    kind = rng.random()
    if kind < 0.3 and shard:
        place = int(rng.integers(len(shard)))
        extent, stride, axis = shard[place]
        shard[place] = extent, stride + int(rng.integers(-1, 2)), axis
    elif kind < 0.6:
        replica.append((int(rng.choice([1, 2])), int(rng.choice([0, 1, 5])), "m"))
    elif kind < 0.8:
        offset["m"] = offset.get("m", 0) + 1
    return Layout(shard, replica, offset, layout.swizzle)


def test_very_many_copies_are_compared_without_listing_them() -> None:
    a = Layout([(4, 1, "m")], [(2**40, 1, "gpuid")])
    same = Layout([(2, 2, "m"), (2, 1, "m")], [(2**20, 2**20, "gpuid"), (2**20, 1, "gpuid")])
    other = Layout([(4, 1, "m")], [(2**40 - 1, 1, "gpuid")])
    assert not differing(a, same, np.arange(4)).any()
    assert differing(a, other, np.arange(4)).all()


@pytest.mark.parametrize("most", [2**21, 100])
def test_blocks_with_a_difference_are_marked(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("axe_eq.layout.picture.pair.MOST_COMPARED", most)
    a = Layout.parse("S[(150,128):(128,1)]")  # blocks of 3 x 2
    b = Layout.parse("S[(2,75,2,64):(9601,128,64,1)]")
    c = Layout.parse("S[(150,2,64):(128,65,1)]")
    matrix = matrix_of(a, (150, 128))
    below, whole = differing_blocks(a, b, matrix, 75 * 128)
    assert whole == (most == 2**21)
    assert below.shape == (50, 64)
    assert not below[:25].any()
    assert below[25:].all()
    beside, _ = differing_blocks(a, c, matrix, 64)
    assert not beside[:, :32].any()
    assert beside[:, 32:].all()
    assert not differing_blocks(a, a, matrix, None)[0].any()


def test_a_lone_difference_among_many_elements_is_marked() -> None:
    a = Layout.parse("S[(4096,4096):(4096,1)]")
    marks, whole = differing_blocks(a, a, matrix_of(a, (4096, 4096)), 65 * 4096 + 130)
    assert not whole
    assert np.argwhere(marks).tolist() == [[1, 2]]


# ---- banks --------------------------------------------------------------------------------------


def brute_turns(addresses: list[list[int]]) -> int:
    """Byte addresses per thread -> the most different words of one bank."""
    words = {byte // 4 for thread in addresses for byte in thread}
    return max(sum(word % 32 == bank for word in words) for bank in range(32))


def test_turns_are_the_words_of_the_busiest_bank(rng: Rng) -> None:
    for itemsize in (1, 2, 4, 8, 16):
        for _ in range(20):
            places = rng.integers(0, 2000, (32, int(rng.integers(1, 3))))
            wanted = brute_turns(
                [
                    [p * itemsize + b for p in row for b in range(itemsize)]
                    for row in places.tolist()
                ]
            )
            assert turns(places, itemsize) == wanted


def test_a_swizzle_frees_columns_of_conflicts() -> None:
    plain, swizzled = (Layout.parse(f"{sw}S[(64,64):(64,1)]") for sw in ("", "sw(3,3,3)@m . "))
    matrix = matrix_of(plain, (64, 64))
    assert [a.turns for a in accesses(plain, matrix, 2)] == [32, 1, 8]
    assert [a.turns for a in accesses(swizzled, matrix, 2)] == [4, 1, 1]


def test_every_bank_s_cell_says_what_it_holds() -> None:
    layout = Layout.parse("sw(2,2,3)@m . S[(16,32):(32,1)]")
    grid = banks(layout, matrix_of(layout, (16, 32)), 4)
    assert (len(grid.cells), len(grid.cells[0])) == (16, 32)
    for x in range(layout.size):
        at = dict(next(iter(layout(x)))).get("m", 0)
        cell = grid.cells[at // 32][at % 32]
        assert cell.keys == (x,)
        assert cell.lines == (f"{x // 32},{x % 32}",)
        assert cell.tone == f"h{x % 32 * 4 // 16 % 8}"


def test_elements_narrower_than_a_bank_share_it_and_wider_ones_span_several() -> None:
    layout = Layout.parse("S[(8):(1)]")
    narrow, wide = (banks(layout, matrix_of(layout), itemsize) for itemsize in (1, 16))
    assert [cell.keys for cell in narrow.cells[0][:3]] == [(0, 1, 2, 3), (4, 5, 6, 7), ()]
    assert [cell.keys for cell in wide.cells[0][:5]] == [(0,), (0,), (0,), (0,), (1,)]


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        ("S[(8):(1@lane)]", "several axes"),
        ("S[(8):(1)] + R[(2):(8)]", "replicas"),
        ("S[(8):(-1)]", "element at -7"),
        ("S[(8):(262144)]", "7340036 bytes"),
    ],
)
def test_what_has_no_banks_is_refused(text: str, wrong: str) -> None:
    with pytest.raises(ArgumentError, match=wrong):
        parts_of(Layout.parse(text), Look(itemsize=4))


def test_short_names_tell_axes_apart() -> None:
    for axes in (("lane", "warp", "reg"), ("m", "mem", "M2"), ("P", "p", "ptr"), ("gpuid",)):
        short = abbreviated(axes)
        assert len(set(short.values())) == len(axes)
        assert all(axis.upper().startswith(name.upper()) for axis, name in short.items())
    assert abbreviated(("lane", "warp", "reg")) == {"lane": "L", "warp": "W", "reg": "R"}


@pytest.mark.parametrize(
    ("text", "shape", "rows", "columns"),
    [
        ("xla:f32[1024,512]{1,0:T(8,128)}", (1024, 512), [8], [128]),
        ("xla:bf16[64,256]{1,0:T(8,128)(2,1)}", (64, 256), [2, 8], [128]),
        ("xla:f32[30,130]{1,0:T(8,128)}", (30, 130), [8], [128]),
        ("S[(64,64):(64,1)]", (64, 64), [], []),
        ("S[(64,4,16):(1,2048,64)]", (64, 64), [], [16]),
        ("S[(4,4):(1@a,1@b)]", (2, 8), [], [4]),
    ],
)
def test_tiles_are_seen_from_far(
    text: str, shape: tuple[int, ...], rows: list[int], columns: list[int]
) -> None:
    """A digit of the layout moves on exactly there: neighbours are elsewhere than in between."""
    layout = read_any(text, shape=shape)
    matrix = matrix_of(layout, shape)
    assert digit_pitches(layout, matrix) == (rows, columns)


def test_lines_are_drawn_where_they_can_be_told_apart() -> None:
    layout = read_any("xla:f32[1024,512]{1,0:T(8,128)}")
    grid = overview(layout, matrix_of(layout), "m")
    assert [(rule.across, rule.pitch, rule.mark) for rule in grid.rules] == [
        (True, 0.5, "fine"), (False, 16.0, "bold"),
    ]  # fmt: skip
    drawn = grid_svg(grid)
    assert drawn.count("V") >= 3  # the columns at 128, 256 and 384
    tall = read_any("xla:f32[8192,512]{1,0:T(8,128)}")
    assert all(not rule.across for rule in overview(tall, matrix_of(tall), "m").rules)


def test_only_what_differs_has_a_colour() -> None:
    a, b = Layout.parse("S[(4,8):(8,1)]"), Layout.parse("S[(8,4):(1,8)]")
    pair = pair_of(a, b, 1)
    for grid in pair.grids:
        for x, cell in enumerate(flat(grid)):
            assert (cell.tone == "plain") == (a(x) == b(x)) == (not cell.marks)
    same = pair_of(a, a, None)
    assert all(cell.tone != "plain" for cell in flat(same.grids[0]))
