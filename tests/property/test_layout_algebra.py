"""Every layout operation against enumeration, on random layouts of every awkward kind.

The model (layout_model.py) knows only the definition. An answer must have the map that the
operation defines, and a refusal must be right. Each test prints how many cases fell in each awkward
class and requires every class to have its share.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np
import pytest

from axe_eq.errors import LayoutError
from axe_eq.layout import Layout, common_refinement, compose, direct_sum, recover, same_map, tile
from tests.property.layout_model import (
    AXES,
    NEGATIVE,
    PRIME,
    RIPPLE,
    UNIT,
    ZERO,
    Coordinate,
    attempt,
    computable,
    first_break,
    levels_of,
    lists_for,
    refusal,
    spans,
    table_of,
    vectors,
)

Start = Callable[..., Any]  # the fixture `campaign`


def test_the_map_is_the_definition(campaign: Start) -> None:
    run = campaign("map, span, footprint, table")
    for maker in run.cases():
        parts = maker.parts()
        layout, table = parts.layout(), parts.table()
        run.saw(*parts.classes())
        assert table_of(layout) == table
        for axis, span in spans(table).items():
            assert layout.span(axis) == span
            assert layout.footprint.get(axis, 1) == span
        bare = parts._replace(replica=[]).table()
        for axis in ("m", "p"):
            values = [dict(next(iter(image))).get(axis, 0) for image in bare]
            assert layout.table(axis).tolist() == values


def test_canonical_keeps_the_map_and_is_unique(campaign: Start) -> None:
    run = campaign("canonical, equality")
    forms: dict[tuple[frozenset[Coordinate], ...], Layout] = {}
    for maker in run.cases():
        parts = maker.parts(most=12) if maker.random.random() < 0.7 else maker.parts()
        run.saw(*parts.classes())
        table, form = tuple(parts.table()), parts.layout().canonical()
        assert tuple(table_of(form)) == table
        assert form.canonical() == form
        run.saw(*(["a map met before"] if table in forms else []))
        assert forms.setdefault(table, form) == form


def test_same_map_finds_the_first_difference(campaign: Start) -> None:
    run = campaign("same_map")
    for maker in run.cases():
        a = maker.parts(most=24)
        b = maker.respelled(a) if maker.random.random() < 0.6 else maker.parts(most=24)
        if maker.random.random() < 0.4 and b.shard:  # one stride off
            place = maker.random.randrange(len(b.shard))
            extent, stride, axis = b.shard[place]
            b.shard[place] = extent, stride + maker.random.choice((1, -1)), axis
        run.saw(*(a.classes() | b.classes()))
        found = same_map(a.layout(), b.layout())
        tables = a.table(), b.table()
        if len(tables[0]) != len(tables[1]):
            assert found
            assert found.x is None
            continue
        wrong = next((x for x, (p, q) in enumerate(zip(*tables, strict=True)) if p != q), None)
        run.saw("equal" if wrong is None else "different")
        assert (found is None) == (wrong is None)
        if found is not None and wrong is not None:
            assert (found.x, found.image_a) == (wrong, tables[0][wrong])
            assert found.image_b == tables[1][wrong]


def test_group_is_complete(campaign: Start) -> None:
    run = campaign("group")
    for maker in run.cases():
        parts = maker.parts()
        run.saw(*parts.classes())
        layout, shape = parts.layout(), maker.shape(parts.size())
        base = [vectors(image)[0] for image in parts.table()]
        cuts = {prod(shape[place:]) for place in range(len(shape) + 1)}
        fits = any(
            cuts <= {prod(extents[place:]) for place in range(len(extents) + 1)}
            for extents in lists_for(base)
        )
        message = refusal(layout.group, shape)
        if message:
            run.saw("refused")
            rows = [(x, x % cut) for cut in cuts for x in range(layout.size)]
            steps = [
                x
                for x, y in rows
                if (np.subtract(base[x], base[x - y]) != np.subtract(base[y], base[0])).any()
            ]
            assert f"index {min(steps)} breaks" in message
            assert not fits
            continue
        grouped = layout.group(shape)
        assert fits
        assert same_map(grouped.layout, layout) is None
        assert tuple(prod(e for e, _, _ in block) for block in grouped.blocks) == shape
        assert sum(grouped.blocks, ()) == grouped.layout.shard
        assert len(grouped.layout.shard) == min(
            len(extents) for extents in lists_for(base) if cuts <= set(levels_of(extents))
        )


def test_slice_is_complete(campaign: Start) -> None:
    run = campaign("slice", RIPPLE)
    for maker in run.cases():
        parts = maker.parts(most=64)
        layout, shape = parts.layout(), maker.shape(parts.size())
        region = []
        for extent in shape:
            begin = maker.random.randrange(extent)
            region.append((begin, maker.random.randint(begin + 1, extent)))
        if layout.size > 2 and maker.random.random() < 0.3:  # around a multiple of several levels
            shape, middle = (layout.size,), maker.random.choice(levels_of(shape)[:-1]) // 2 or 1
            reach = maker.random.randint(1, min(middle, layout.size - middle))
            region = [(middle - reach, middle + reach)]
        run.saw(*parts.classes(), *([RIPPLE] if _ripples(parts, shape, region) else []))
        index = np.arange(layout.size).reshape(shape)[tuple(slice(*span) for span in region)]
        table = parts.table()
        wanted = [table[x] for x in index.reshape(-1)]
        message = refusal(layout.slice, shape, region)
        if message:
            run.saw("refused")
            assert f"index {first_break(wanted)} of the region breaks" in message
            assert not computable(wanted)
        else:
            assert table_of(layout.slice(shape, region)) == wanted


def test_a_window_that_steps_onto_another_axis() -> None:
    layout = Layout(
        [(2, 2, "m"), (2, -2, "p"), (4, 1, "m")]
    )  # from 6 to 8 m stays and p rises by 2
    window = layout.slice([16], [(6, 10)])
    assert table_of(window) == [layout(index) for index in range(6, 10)]


@pytest.mark.parametrize(
    "build",
    [
        lambda: Layout([(2, 1)], replica=[(3, 2**62)]),
        lambda: Layout([(2, 1)], offset={"m": -(2**63)}),
        lambda: Layout([(2, 2**62)], offset={"m": 2**62}),
        lambda: Layout([(2, 2**62)], replica=[(2, -(2**62))]),
        lambda: tile(Layout(replica=[(2, 2**40)]), [1], Layout([(2**30, 1)]), [2**30]),
        lambda: tile(Layout(offset={"m": 2**40}), [1], Layout([(2**30, 1)]), [2**30]),
        lambda: direct_sum(Layout([(2, 2**62)]), [2], Layout([(2, 2**62)]), [2]),
    ],
)
def test_coordinates_stay_in_63_bits(build: Callable[[], Layout]) -> None:
    with pytest.raises(
        LayoutError, match=r"coordinates up to .*; expected at most 9223372036854775807"
    ):
        build()
    assert Layout([(2, 2**62)], replica=[(2, 2**62 - 1)]).span("m") == 2**63  # the most there is


def _ripples(parts: Any, shape: Sequence[int], region: Sequence[tuple[int, int]]) -> bool:
    """Whether a step inside the region carries into two digits or more."""
    levels = levels_of([extent for extent, _, _ in parts.shard if extent > 1])
    inner = 1
    for extent, (begin, end) in zip(reversed(shape), reversed(region), strict=True):
        for x in range(begin + 1, end):
            if end - begin < extent and sum((x * inner) % level == 0 for level in levels[:-1]) >= 2:
                return True
        inner *= extent
    return False


def test_permute_is_complete(campaign: Start) -> None:
    run = campaign("permute")
    for maker in run.cases():
        parts = maker.parts()
        run.saw(*parts.classes())
        layout, shape = parts.layout(), maker.shape(parts.size())
        perm = list(range(len(shape)))
        maker.random.shuffle(perm)
        table = parts.table()
        index = np.arange(layout.size).reshape(shape).transpose(perm).reshape(-1)
        wanted = [table[x] for x in index]
        found = attempt(layout.permute, shape, perm)
        if found is None:
            run.saw("refused")
            assert not computable(wanted)
        else:
            assert table_of(found) == wanted


def test_compose_is_complete(campaign: Start) -> None:
    run = campaign("compose")
    for maker in run.cases():
        a, b = maker.parts(most=64), maker.parts(most=24, axes=("i",), copies=4)
        strides = [s if abs(s) < 64 else maker.random.choice((1, 2)) for _, s, _ in b.shard]
        b.shard[:] = [(e, s, "i") for (e, _, _), s in zip(b.shard, strides, strict=True)]
        run.saw(*(a.classes() | b.classes()))
        low, high = b._replace(offset={}).layout().range("i")
        inside = high - low < a.size() and maker.random.random() < 0.95
        b.offset["i"] = -low if inside or high - low > 100 else a.size() - low
        indices = [{dict(point).get("i", 0) for point in image} for image in b.table()]
        found = attempt(compose, a.layout(), b.layout())
        if not inside and a.size() > 1:  # indices past the end continue the slowest iter
            run.saw("past the end")
            place = next(i for i, (extent, _, _) in enumerate(a.shard) if extent > 1)
            _, stride, axis = a.shard[place]
            inner = prod(e for e, _, _ in a.shard[place + 1 :])
            a.shard[place] = max(map(max, indices)) // inner + 1, stride, axis
        elif not inside:
            assert found is None
            continue
        table = a.table()
        wanted = [frozenset().union(*(table[i] for i in image)) for image in indices]
        if found is None:
            run.saw("refused")
            assert not computable(wanted)
        else:
            run.saw("composed")
            assert table_of(found) == wanted


def test_inverse_is_complete(campaign: Start) -> None:
    run = campaign("inverse", NEGATIVE, UNIT, PRIME, ZERO, AXES, every=False)
    for maker in run.cases():
        axes = maker.random.choice((("m",), ("p",), ("m", "p"), ("p", "m")))
        parts = maker.parts(axes=axes, copies=1)
        if maker.random.random() < 0.7:  # compact in some order, some digits turned round
            places = maker.random.sample(range(len(parts.shard)), len(parts.shard))
            strides = dict.fromkeys(axes, 1)
            for place in places:
                extent, _, axis = parts.shard[place]
                turned = maker.random.random() < 0.25
                parts.shard[place] = extent, -strides[axis] if turned else strides[axis], axis
                strides[axis] *= extent
            low = {a: sum((e - 1) * s for e, s, b in parts.shard if a == b and s < 0) for a in axes}
            parts.offset.clear()
            parts.offset.update({axis: -value for axis, value in low.items() if value})
            if maker.random.random() < 0.15:  # an iter that goes nowhere
                place = maker.random.randrange(len(places) + 1)
                extent = maker.random.choice((1, 2, 3))
                parts.shard.insert(place, (extent, 0, maker.random.choice(axes)))
        parts.replica.clear()
        run.saw(*parts.classes())
        points = [dict(next(iter(image))) for image in parts.table()]
        table = [tuple(point.get(axis, 0) for axis in axes) for point in points]
        extents = [max(column) + 1 for column in zip(*table, strict=True)]
        onto = prod(extents) == len(table) and sorted(table) == list(
            itertools.product(*map(range, extents))
        )
        run.saw("one to one" if onto else "refused")
        found = attempt(parts.layout().inverse, axes)
        assert (found is not None) == onto
        if found is not None:
            flat = [int(np.ravel_multi_index(point, extents)) for point in table]
            assert found.table(axes[0])[flat].tolist() == list(range(len(table)))
            assert found.size == len(table)


def test_aliasing_finds_the_first_clash(campaign: Start) -> None:
    run = campaign("aliasing")
    for maker in run.cases():
        parts = maker.parts(most=32)
        run.saw(*parts.classes())
        table, report = parts.table(), parts.layout().aliasing()
        owner: dict[Coordinate, int] = {}
        first = None
        for y, image in enumerate(table):
            meets = [owner[point] for point in image if point in owner]
            if meets:
                first = min(meets), y
                break
            owner.update(dict.fromkeys(image, y))
        run.saw("aliases" if first else "one to one")
        assert report.injective == (first is None)
        if first and report.clash:
            assert (report.clash.x, report.clash.y) == first
            assert report.clash.coordinate in table[first[0]] & table[first[1]]


def test_common_refinement_is_the_coarsest(campaign: Start) -> None:
    run = campaign("common refinement", every=False)
    for maker in run.cases():
        size = maker.random.choice((1, 6, 12, 16, 24, 30, 48, 64))
        shapes = [maker.shape(size) for _ in range(maker.random.randint(1, 3))]
        cuts = sorted({level for shape in shapes for level in levels_of(shape)})
        chain = all(b % a == 0 for a, b in itertools.pairwise(cuts))
        run.saw("refinable" if chain else "refused")
        try:
            found = common_refinement(shapes)
        except LayoutError:
            assert not chain
            continue
        assert chain
        assert sorted(levels_of(found)) == cuts


def test_recover_is_complete(campaign: Start) -> None:
    run = campaign("recover")
    for maker in run.cases():
        parts = maker.parts(most=32)
        run.saw(*parts.classes())
        table = parts.table()
        if len(table) > 2 and maker.random.random() < 0.5:  # cut it short or change one element
            if maker.random.random() < 0.5:
                del table[maker.random.randrange(1, len(table)) :]
            else:
                table[maker.random.randrange(len(table))] = table[0]
        points = np.array([vectors(image) for image in table])
        try:
            found = recover(points, ("m", "p"))
        except LayoutError:
            run.saw("refused")
            assert not computable(table)
            continue
        assert table_of(found) == table
        assert found == found.canonical()
