"""Swizzles and padded boxes against enumeration, and sizes that nothing could enumerate."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator
from functools import partial
from math import prod
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from axe_eq.errors import LayoutError, SearchError
from axe_eq.layout import (
    Layout,
    Swizzle,
    compose,
    direct_sum,
    direct_sum_left,
    recover,
    same_map,
    tile,
    tile_of,
)
from tests.property.layout_model import (
    AXES,
    BIG,
    BOX,
    COPIES,
    NEGATIVE,
    NESTED,
    OFF_GAP,
    PRIME,
    SWIZZLE,
    TWICE,
    ZERO,
    Coordinate,
    random_nested,
    random_shape,
    table_of,
)

Image = frozenset[Coordinate]
Start = Callable[..., Any]  # the fixture `campaign`

PART = 100  # one case in so many runs unless --full: they are enumerated, and slow
ANY = (SWIZZLE, TWICE, BOX, NESTED, COPIES, OFF_GAP, NEGATIVE, AXES, PRIME, BIG, ZERO)
BOXES = (BOX, NEGATIVE, AXES, PRIME, BIG)


def random_linear(source: random.Random, most: int = 32) -> Layout:
    shard: list[tuple[int, int, str]] = []
    stride = source.choice((1, 1, 2))
    for _ in range(source.randint(0, 4)):
        extent = source.choice((2, 2, 3, 4, 5))
        if prod(e for e, _, _ in shard) * extent > most:
            break
        step = stride if source.random() < 0.6 else source.choice((0, 0, 1, 2, 3, 4, 8, -1))
        shard.insert(0, (extent, step, source.choice("mmp")))
        stride = stride * extent + source.choice((0, 0, 1))
    scale = source.choice((1,) * 9 + (2**33,))
    shard = [(extent, step * scale, axis) for extent, step, axis in shard]
    offset = {"m": source.randint(-3, 9)} if source.random() < 0.3 else None
    return Layout(shard, random_replica(source), offset)


def random_replica(source: random.Random) -> list[tuple[int, int, str]]:
    """Mostly none; one iter, or two that overlap off the gap condition."""
    pick = source.random()
    if pick < 0.12:
        pairs = ((2, 2), (2, 3)), ((2, 3), (2, 4)), ((3, 2), (2, 3)), ((2, -1), (2, 2))
        return [(extent, stride, "m") for extent, stride in source.choice(pairs)]
    return [(2, source.choice((1, 3, 8)), "m")] if pick < 0.3 else []


def random_swizzled(source: random.Random, most: int = 32) -> Layout:
    plain = random_linear(source, most)
    axes = source.choice((("m",), ("m",), ("m", "p"), ("m", "m")))
    swizzles = [
        Swizzle(a, source.randint(0, 2), source.randint(0, 2), source.choice((1, 2, 3, -1, -2)))
        for a in axes
    ]
    return Layout(plain.shard, plain.replica, plain.offset, swizzles)


def random_boxed(source: random.Random) -> Layout:
    """A padded box; often one whose padding could be left out."""
    dims: list[tuple[int, list[tuple[int, int, str]]]] = []
    for _ in range(source.randint(1, 3)):
        extent = source.choice((2, 3, 4, 5, 6))
        block: list[tuple[int, int, str]] = []
        stride = source.choice((1, 1, 2))
        while prod(e for e, _, _ in block) < extent:
            count = source.choice((2, 2, 3, 4))
            block.insert(0, (count, stride * source.choice((1, 1, 1, -1)), source.choice("mmmp")))
            stride = stride * count + source.choice((0, 0, 1, -1))
        dims.append((extent, block))
    scale = source.choice((1,) * 9 + (2**33,))
    shard = [(count, step * scale, axis) for _, block in dims for count, step, axis in block]
    padded = [prod(e for e, _, _ in block) for _, block in dims]
    return Layout(shard, box=[extent for extent, _ in dims], padded=padded)


def random_layout(source: random.Random) -> Layout:
    makers = (random_linear, random_swizzled, random_swizzled, random_boxed, random_nested)
    layout = source.choice(makers)(source)
    if layout.box is None or source.random() < 0.7:
        return layout
    replica, offset = random_replica(source), {"m": source.randint(-3, 9)}
    return Layout(layout.shard, replica, offset, (), *layout.boxes)


# ---- meaning ------------------------------------------------------------------------------------


def test_a_box_is_the_corner_of_its_padded_shape(campaign: Start) -> None:
    run = campaign("boxes: map, span, footprint, table", *BOXES, every=False, part=PART)
    for maker in run.cases():
        source = maker.random
        layout = random_boxed(source)
        run.met(layout)
        assert layout.box is not None and layout.padded is not None  # noqa: PT018 - for the types
        whole = Layout(layout.shard)
        for position, index in enumerate(itertools.product(*map(range, layout.box))):
            flat = int(np.ravel_multi_index(index, layout.padded))
            assert layout(position) == layout(index) == whole(flat)
        assert layout.footprint == {axis: whole.span(axis) for axis in whole.axes}
        for axis in layout.axes:
            values = [dict(point).get(axis, 0) for image in table_of(layout) for point in image]
            assert layout.span(axis) == max(values) - min(values) + 1
            assert layout.table(axis).tolist() == values


@given(st.integers(0, 4), st.integers(0, 4), st.integers(-6, 6), st.integers(-(2**40), 2**40))
def test_a_swizzle_is_one_to_one(bits: int, base: int, shift: int, value: int) -> None:
    swizzle = Swizzle("m", bits, base, shift or 1)
    assert swizzle.undo(swizzle.apply(value)) == value == swizzle.apply(swizzle.undo(value))
    table = np.array([value])
    assert swizzle.apply(table)[0] == swizzle.apply(value)
    assert swizzle.undo(table)[0] == swizzle.undo(value)
    assert swizzle.apply(value) >> swizzle.reach == value >> swizzle.reach
    if abs(swizzle.shift) >= bits:
        assert swizzle.apply(swizzle.apply(value)) == value


# ---- one normal form per map, and the decision --------------------------------------------------


def canonical(layout: Layout) -> Layout | None:
    """The canonical form, or None: several swizzles over steps that are no powers of two."""
    try:
        return layout.canonical()
    except SearchError:
        assert len(layout.swizzle) > 1
        return None


def test_canonical_is_unique_across_swizzles_and_boxes(campaign: Start) -> None:
    run = campaign("swizzles and boxes: canonical", *ANY, every=False, part=PART)
    forms: dict[tuple[Image, ...], Layout] = {}
    for maker in run.cases():
        layout = random_layout(maker.random)
        run.met(layout)
        table = tuple(table_of(layout))
        form = canonical(layout)
        if form is None:
            run.saw("no form")
            continue
        assert tuple(table_of(form)) == table
        assert form.canonical() == form
        run.saw(*(["a map met before"] if table in forms else []))
        assert forms.setdefault(table, form) == form
    assert run.seen["a map met before"] * 15 > run.total
    assert run.seen["no form"] * 30 < run.total


def test_swizzles_that_cancel_leave_the_normal_form(campaign: Start) -> None:
    run = campaign("swizzles: canonical of two spellings", SWIZZLE, TWICE, every=False, part=PART)
    for maker in run.cases():
        source = maker.random
        layout = random_swizzled(source)
        run.met(layout)
        shift = source.choice((1, 2, 3))
        twice = Swizzle(
            "m", source.randint(1, shift), source.randint(0, 4), source.choice((shift, -shift))
        )
        place = source.randint(0, len(layout.swizzle))
        swizzles = [*layout.swizzle[:place], twice, twice, *layout.swizzle[place:]]
        other = Layout(layout.shard, layout.replica, layout.offset, swizzles)
        form = canonical(layout)
        assert canonical(other) == form
        run.saw("no form" if form is None else f"{len(form.swizzle)} swizzles in the normal form")


def test_swizzles_that_reach_beyond_every_coordinate() -> None:
    swizzles = [Swizzle("m", 2, 0, -2), Swizzle("m", 2, 1, 2)]
    layout = Layout([(4, 4, "m"), (4, 2, "p")], swizzle=swizzles)  # 0, 4, 2, 6: below 8 on m
    form = layout.canonical()
    assert table_of(form) == table_of(layout)
    assert form.canonical() == form


def test_same_map_across_swizzles_and_boxes(campaign: Start) -> None:
    run = campaign("swizzles and boxes: same_map", *ANY, every=False, part=PART)
    by_size: dict[int, list[Layout]] = {}
    for maker in run.cases():
        source = maker.random
        layout = random_layout(source)
        run.met(layout)
        others = by_size.setdefault(layout.size, [])
        for other in source.sample(others, min(3, len(others))):
            tables = table_of(layout), table_of(other)
            wrong = next((x for x, (a, b) in enumerate(zip(*tables, strict=True)) if a != b), None)
            found = same_map(layout, other)
            assert (None if found is None else found.x) == wrong
            if found is not None and wrong is not None:
                assert (found.image_a, found.image_b) == (tables[0][wrong], tables[1][wrong])
        others.append(layout)


def test_inverse_of_swizzled_layouts(campaign: Start) -> None:
    run = campaign("swizzles: inverse", SWIZZLE, PRIME, every=False, part=PART)
    inverted = 0
    for maker in run.cases():
        source = maker.random
        extents = [source.choice((2, 2, 4, 3)) for _ in range(source.randint(1, 4))]
        order = source.sample(range(len(extents)), len(extents))
        shard, stride = [(0, 0)] * len(extents), 1
        for place in order:
            shard[place] = extents[place], stride
            stride *= extents[place]
        bits, base = source.choice((1, 2)), source.choice((0, 1))
        swizzle = Swizzle("m", bits, base, source.choice((1, 2, -1, -2)))
        layout = Layout(shard, swizzle=[swizzle])
        run.met(layout)
        try:
            inverse = layout.inverse()
        except LayoutError:
            continue
        inverted += 1
        values = layout.table("m")
        assert inverse.table("m")[values].tolist() == list(range(layout.size))
    assert inverted > run.total // 4


def test_aliasing_sees_through_swizzles_and_boxes(campaign: Start) -> None:
    run = campaign("swizzles and boxes: aliasing", *ANY, every=False, part=PART)
    for maker in run.cases():
        source = maker.random
        layout = random_layout(source)
        run.met(layout)
        table, report = table_of(layout), layout.aliasing()
        pairs = itertools.combinations(range(layout.size), 2)
        clashes = [(y, x) for x, y in pairs if table[x] & table[y]]
        assert report.injective == (not clashes)
        if report.clash:
            assert (report.clash.y, report.clash.x) == min(clashes)


# ---- operations on boxes and swizzles -----------------------------------------------------------


def test_slice_and_permute_of_boxes_are_complete(campaign: Start) -> None:
    run = campaign("boxes: slice, permute", *BOXES, every=False, part=PART)
    for maker in run.cases():
        source = maker.random
        layout = random_boxed(source)
        run.met(layout)
        shape = random_shape(source, layout.size)
        table, index = table_of(layout), np.arange(layout.size).reshape(shape)
        begins = [source.randrange(extent) for extent in shape]
        region = [(b, source.randint(b + 1, e)) for b, e in zip(begins, shape, strict=True)]
        perm = source.sample(range(len(shape)), len(shape))
        sliced, permuted = (
            partial(layout.slice, shape, region),
            partial(layout.permute, shape, perm),
        )
        for wanted, operation in (
            (index[tuple(slice(*span) for span in region)], sliced),
            (index.transpose(perm), permuted),
        ):
            points = [table[x] for x in wanted.reshape(-1)]
            try:
                found = operation()
            except LayoutError:
                assert not boxed_exists(points)
            else:
                assert table_of(found) == points


def test_slice_permute_and_group_keep_swizzles(campaign: Start) -> None:
    run = campaign(
        "swizzles: slice, permute, group", SWIZZLE, TWICE, COPIES, every=False, part=PART
    )
    for maker in run.cases():
        source = maker.random
        layout = random_swizzled(source)
        run.met(layout)
        shape = random_shape(source, layout.size)
        table, index = table_of(layout), np.arange(layout.size).reshape(shape)
        begins = [source.randrange(extent) for extent in shape]
        region = [(b, source.randint(b + 1, e)) for b, e in zip(begins, shape, strict=True)]
        perm = source.sample(range(len(shape)), len(shape))
        for name, operation, wanted in (
            (
                "sliced",
                partial(layout.slice, shape, region),
                index[tuple(slice(*b) for b in region)],
            ),
            ("permuted", partial(layout.permute, shape, perm), index.transpose(perm)),
            ("grouped", lambda made=(layout, shape): made[0].group(made[1]).layout, index),
        ):
            try:
                found = operation()
            except LayoutError:
                continue
            run.saw(name)
            assert table_of(found) == [table[x] for x in wanted.reshape(-1).tolist()]
    assert min(run.seen[name] for name in ("sliced", "permuted", "grouped")) * 2 > run.total


def boxed_exists(table: list[Image]) -> bool:
    """Whether some box of some list has this table: every shape, every dim by itself."""
    base = np.array([[dict(next(iter(image))).get(a, 0) for a in "mp"] for image in table])
    return any(_fits(base - base[0], shape) for shape in _shapes(len(table)))


def _shapes(size: int) -> Iterator[tuple[int, ...]]:
    yield (size,)
    for inner in range(2, size):
        if size % inner == 0:
            for outer in _shapes(size // inner):
                yield (*outer, inner)


def _fits(base: Any, shape: tuple[int, ...]) -> bool:
    grid = base.reshape(*shape, 2)
    total = np.zeros_like(grid)
    for dim, extent in enumerate(shape):
        place = [0] * len(shape)
        line = grid[tuple(slice(None) if i == dim else 0 for i in range(len(place)))]
        if not any(_prefix(line, levels) for levels in _chains(extent)):
            return False
        total = total + line.reshape([extent if i == dim else 1 for i in range(len(shape))] + [2])
    return bool((total == grid).all())


def _chains(extent: int) -> Iterator[tuple[int, ...]]:
    """Ascending chains of levels below an extent, from 1."""

    def longer(chain: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        yield chain
        for level in range(2 * chain[-1], extent, chain[-1]):
            yield from longer((*chain, level))

    return longer((1,))


def _prefix(line: Any, levels: tuple[int, ...]) -> bool:
    """Whether digits at these levels times the values there give the line, one axis per stride."""
    total, count = np.zeros_like(line), np.arange(len(line))
    for level, above in itertools.zip_longest(levels, levels[1:], fillvalue=len(line) * 2):
        if level < len(line):
            if np.count_nonzero(line[level]) > 1:
                return False
            total += (count // level % (above // level))[:, None] * line[level]
    return bool((total == line).all())


def test_group_of_boxes(campaign: Start) -> None:
    run = campaign("boxes: group", *BOXES, every=False, part=PART)
    for maker in run.cases():
        source = maker.random
        layout = random_boxed(source)
        run.met(layout)
        shape = random_shape(source, layout.size)
        base = np.array(
            [[dict(next(iter(image))).get(a, 0) for a in "mp"] for image in table_of(layout)]
        )
        fits = _fits(base - base[0], tuple(shape))
        try:
            grouped = layout.group(shape)
        except LayoutError:
            assert not fits
            continue
        assert fits
        assert table_of(grouped.layout) == table_of(layout)
        sizes = [prod(extent for extent, _, _ in block) for block in grouped.blocks]
        assert all(size >= extent for size, extent in zip(sizes, shape, strict=True))


def test_products_and_composition_keep_swizzles_and_boxes(campaign: Start) -> None:
    run = campaign("swizzles and boxes: tile, direct sum, compose", *ANY, every=False, part=1500)
    made = {"tile": 0, "sum": 0, "composed": 0}
    for maker in run.cases():
        source = maker.random
        a, b = random_layout(source), random_layout(source)
        run.met(a, b)
        for name, operation in (("tile", tile), ("sum", direct_sum)):
            try:
                whole = operation(a, [a.size], b, [b.size])
            except LayoutError:
                continue
            made[name] += 1
            weights = {axis: b.span(axis) if name == "tile" else 1 for axis in "mp"}
            tables = table_of(a), table_of(b)
            assert table_of(whole) == [added(x, weights, y) for x in tables[0] for y in tables[1]]
            recovery = tile_of if name == "tile" else direct_sum_left
            if _ends_with(whole, b) and (whole.is_linear() or whole.size <= 128):
                found = recovery(whole, [whole.size], b, [b.size])
                assert table_of(operation(found, [a.size], b, [b.size])) == table_of(whole)
        inner = Layout([(3, 1), (2, a.size // 6 or 1)])
        if inner.range("m")[1] < a.size:
            try:
                found = compose(a, inner)
            except LayoutError:
                continue
            made["composed"] += 1
            table = table_of(a)
            assert table_of(found) == [table[i] for i in inner.table("m").tolist()]
    assert min(made.values()) > run.total // 8


def _ends_with(whole: Layout, b: Layout) -> bool:
    """Whether the last swizzles are those of a factor."""
    return whole.swizzle[len(whole.swizzle) - len(b.swizzle) :] == b.swizzle


def test_a_factor_beside_a_swizzle_steps_beyond_what_it_sees() -> None:
    inner = Layout([(2, 1)], replica=[(2, 4)], swizzle=[Swizzle("m", 1, 1, -1)])
    outer = Layout([(3, 16)], replica=[(2, 8)])
    whole = direct_sum(outer, [3], inner, [2])  # copies 0, 4, 8, 12: (4, 4) less (2, 4) is
    found = direct_sum_left(whole, [6], inner, [2])  # (3, 4) or (2, 8), and 4 is seen
    assert table_of(direct_sum(found, [3], inner, [2])) == table_of(whole)
    assert direct_sum(Layout([(1, 3), (3, 16)]), [3], inner, [2]).size == 6  # unit iters never step


def added(a: Image, weights: dict[str, int], b: Image) -> Image:
    points = set()
    for outer, inner in itertools.product(a, b):
        point = {axis: value * weights[axis] for axis, value in outer}
        for axis, value in inner:
            point[axis] = point.get(axis, 0) + value
        points.add(tuple(sorted((axis, value) for axis, value in point.items() if value)))
    return frozenset(points)


# ---- sizes that nothing could enumerate ---------------------------------------------------------


def random_huge(source: random.Random) -> Layout:
    shard: list[tuple[int, int, str]] = []
    stride = source.choice((1, 3, 2**10))
    for _ in range(source.randint(3, 6)):
        extent = source.choice((2, 3, 7, 2**5, 2**8, 1009, 6 * 5**3))
        if stride * extent > 2**50:
            break
        turned = source.choice((1, 1, 1, -1))
        shard.insert(0, (extent, stride * turned, source.choice("mmp")))
        stride = stride * extent + source.choice((0, 0, 5))
    return Layout(shard)


def test_slices_of_huge_layouts(campaign: Start) -> None:
    run = campaign("huge layouts: slice", NEGATIVE, AXES, PRIME, every=False, part=PART)
    sliced = refused = 0
    for maker in run.cases():
        source = maker.random
        layout = random_huge(source)
        run.met(layout)
        levels = [1]
        for extent, _, _ in reversed(layout.shard):
            levels.append(levels[-1] * extent)
        level, inner = source.choice(levels[1:]), source.choice(levels[:-1])
        begin = max(
            0, source.randrange(layout.size) // level * level - source.randint(0, 2) * inner
        )
        count = min(layout.size - begin, source.choice((inner * 2, inner * 4, level, level * 2)))
        try:
            found = layout.slice([layout.size], [(begin, begin + count)])
        except LayoutError:
            refused += 1
            continue
        sliced += 1
        assert found.size == count
        near = {x + d for x in levels for d in (-1, 0, 1)}
        for index in {*near, *(source.randrange(count) for _ in range(8))}:
            if 0 <= index < count:
                assert found(index) == layout(begin + index)
    assert sliced > 100
    assert refused > 10


def test_the_fast_dim_of_a_huge_slice_breaks_first() -> None:
    rows = [
        (1000, 5000),
        (1000, 1),
    ]  # a window from 1 on wraps after 999 steps, and 999 cuts nothing
    layout = Layout([(extent, stride * 10**8) for extent, stride in rows] + rows)
    with pytest.raises(LayoutError, match="index 999 of the region breaks"):
        layout.slice([10**6, 10**6], [(1, 700_001), (1, 700_001)])
    with pytest.raises(LayoutError, match=r"index 699300000 of the region breaks"):
        layout.slice([10**6, 10**6], [(1, 700_001), (0, 700_000)])


def test_huge_layouts_decide_without_enumeration(campaign: Start) -> None:
    run = campaign("huge layouts: same_map", NEGATIVE, AXES, PRIME, every=False, part=PART)
    for maker in run.cases():
        source = maker.random
        layout = random_huge(source)
        run.met(layout)
        split = [
            part
            for extent, stride, axis in layout.shard
            for part in (
                [(extent // 2, stride * 2, axis), (2, stride, axis)]
                if extent % 2 == 0
                else [(extent, stride, axis), (1, 9, "q")]
            )
        ]
        assert same_map(layout, Layout(split)) is None
        place = source.randrange(len(layout.shard))
        extent, stride, axis = layout.shard[place]
        other = Layout(
            [*layout.shard[:place], (extent, stride + 1, axis), *layout.shard[place + 1 :]]
        )
        found = same_map(layout, other)
        assert found is not None
        assert found.x == prod(e for e, _, _ in layout.shard[place + 1 :])
        assert layout(found.x) == found.image_a != found.image_b == other(found.x)


def test_huge_swizzles_compare_by_what_they_see() -> None:
    rows = [(2**20, 64), (64, 1)]
    a = Layout(rows, swizzle=[Swizzle("m", 3, 3, 3)])
    assert same_map(a, Layout([(2**17, 512), (8, 64), (64, 1)], swizzle=a.swizzle)) is None
    twice = Layout(rows, swizzle=[*a.swizzle, *a.swizzle])
    assert same_map(twice, Layout(rows)) is None
    found = same_map(a, Layout(rows))
    assert found is not None
    assert found.x == 64
    late = same_map(a, Layout(rows, swizzle=[Swizzle("m", 3, 3, 6), *a.swizzle]))
    assert late is not None
    assert late.x == 512
    assert a.canonical() == Layout([(2**26, 1)], swizzle=a.swizzle)


def test_huge_layouts_tile_and_recover(campaign: Start) -> None:
    run = campaign("huge layouts: tile, tile_of", NEGATIVE, AXES, PRIME, every=False, part=PART)
    for maker in run.cases():
        source = maker.random
        a, b = random_huge(source), random_linear(source)
        run.met(a, b)
        if a.size * b.size < 2**60 and all(a.span(x) * b.span(x) < 2**60 for x in "mp"):
            whole = tile(a, [a.size], b, [b.size])
            assert same_map(tile_of(whole, [whole.size], b, [b.size]), a) is None
        else:
            with pytest.raises(LayoutError, match="9223372036854775807"):
                tile(tile(a, [a.size], a, [a.size]), [a.size**2], a, [a.size])


def test_recover_names_the_first_index_that_breaks() -> None:
    values = np.arange(64)
    values[37] = 0
    with pytest.raises(LayoutError, match="index 37 breaks"):
        recover(values[:, None], ["m"])
    with pytest.raises(LayoutError, match="index 3 breaks"):
        recover(np.array([[0], [1], [2], [5], [6], [7], [8], [9]]), ["m"])
