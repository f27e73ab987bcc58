"""Every layout operation against enumeration, on random layouts of every awkward kind.

The model (Parts.table in conftest.py) knows only the definition. An answer must have the map that
the operation defines; a refusal must be right: every ordered factorisation of the size, and every
replica list of the reach, is tried before "there is none" is believed. Each test prints how many
cases fell in each awkward class and requires every class to have its share.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import prod
from typing import Any

import numpy as np
import pytest

from axe_eq.errors import LayoutError
from axe_eq.layout import (
    Layout,
    common_refinement,
    compose,
    direct_sum,
    direct_sum_left,
    direct_sum_right,
    recover,
    same_map,
    tile,
    tile_of,
)

Coordinate = tuple[tuple[str, int], ...]
Table = list[frozenset[Coordinate]]
Start = Callable[..., Any]  # the fixture `campaign`

RIPPLE = "ripple carries"

# ---- the model -----------------------------------------------------------------------------------


def table_of(layout: Layout) -> Table:
    return [layout(index) for index in range(layout.size)]


def combined(a: frozenset[Coordinate], weights: dict[str, int], b: frozenset[Coordinate]) -> Any:
    """``a * weights + b`` of sets of coordinates."""
    points = set()
    for outer in a:
        for inner in b:
            point = {axis: value * weights.get(axis, 1) for axis, value in outer}
            for axis, value in inner:
                point[axis] = point.get(axis, 0) + value
            points.add(tuple(sorted((a, v) for a, v in point.items() if v)))
    return frozenset(points)


def spans(table: Table) -> dict[str, int]:
    values: dict[str, list[int]] = {"m": [], "p": []}
    for image in table:
        for point in image:
            for axis, seen in values.items():
                seen.append(dict(point).get(axis, 0))
    return {axis: max(seen) - min(seen) + 1 for axis, seen in values.items()}


@cache
def factorisations(number: int) -> tuple[tuple[int, ...], ...]:
    """Every ordered factorisation into factors of at least 2."""
    if number == 1:
        return ((),)
    return tuple(
        (factor, *rest)
        for factor in range(2, number + 1)
        if number % factor == 0
        for rest in factorisations(number // factor)
    )


Vector = tuple[int, ...]


def lists_for(base: Sequence[Vector]) -> Iterator[tuple[int, ...]]:
    """The extents of every list of one-axis iters without unit iters that computes `base`."""
    for extents in factorisations(len(base)):
        levels = [prod(extents[place + 1 :]) for place in range(len(extents))]
        steps = [tuple(np.subtract(base[level], base[0]).tolist()) for level in levels]
        if any(sum(value != 0 for value in step) > 1 for step in steps):
            continue
        digits = itertools.product(*(range(extent) for extent in extents))
        if all(
            point
            == tuple(
                start + sum(d * step[axis] for d, step in zip(choice, steps, strict=True))
                for axis, start in enumerate(base[0])
            )
            for point, choice in zip(base, digits, strict=True)
        ):
            yield extents


def first_break(table: Table) -> int:
    """The first index at which every list breaks: the longest start that one computes."""
    base = [vectors(image)[0] for image in table]
    base = [tuple(np.subtract(point, base[0]).tolist()) for point in base]
    longest = 0
    for extents in factorisations(len(base)):
        levels = [prod(extents[place + 1 :]) for place in range(len(extents))]
        digits = itertools.product(*(range(extent) for extent in extents))
        broken = [level for level in levels if sum(value != 0 for value in base[level]) > 1]
        broken += [
            index
            for index, (point, choice) in enumerate(zip(base, digits, strict=True))
            if any(
                value != sum(d * base[level][axis] for d, level in zip(choice, levels, strict=True))
                for axis, value in enumerate(point)
            )
        ]
        longest = max(longest, min(broken, default=len(base)))
    return longest


def vectors(image: frozenset[Coordinate]) -> list[Vector]:
    return sorted(tuple(dict(point).get(axis, 0) for axis in ("m", "p")) for point in image)


def computable(table: Table) -> bool:
    """Whether some layout has this table: a list for the least copies, replicas for the rest."""
    copies = [vectors(image) for image in table]
    relative = {
        tuple(tuple(np.subtract(point, image[0]).tolist()) for point in image) for image in copies
    }
    if len(relative) != 1 or next(lists_for([image[0] for image in copies]), None) is None:
        return False
    (spread,) = relative
    return _product_of_lists(spread, (1, 1), {(0, 0)})


def _product_of_lists(spread: Sequence[Vector], grid: tuple[int, int], start: set[Vector]) -> bool:
    """Whether start + replicas on a grid is the spread; tries every list, axis by axis."""
    if {tuple(point) for point in spread} != set(
        itertools.product(*({point[axis] for point in spread} for axis in (0, 1)))
    ):
        return False
    return all(
        _list_reaches(
            frozenset(point[axis] for point in spread),
            frozenset(point[axis] for point in start),
            grid[axis],
        )
        for axis in (0, 1)
    )


@cache
def _list_reaches(target: frozenset[int], done: frozenset[int], grid: int, last: int = 1) -> bool:
    if done == target:
        return True
    for stride in (value for value in target if value >= last and value % grid == 0):
        for extent in itertools.count(2):
            wider = frozenset(v + digit * stride for v in done for digit in range(extent))
            if not wider <= target:
                break
            if _list_reaches(target, wider, grid, stride):
                return True
    return False


# ---- random layouts ------------------------------------------------------------------------------


def attempt(operation: Callable[..., Any], *arguments: Any) -> Any:
    """The result, or None where the operation says that there is none."""
    try:
        return operation(*arguments)
    except LayoutError:
        return None


def refusal(operation: Callable[..., Any], *arguments: Any) -> str:
    """The message where the operation says that there is none, else nothing."""
    try:
        operation(*arguments)
    except LayoutError as error:
        return str(error)
    return ""


# ---- the operations ------------------------------------------------------------------------------


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
            len(extents) for extents in lists_for(base) if cuts <= set(_levels(extents))
        )


def _levels(extents: Sequence[int]) -> list[int]:
    return [prod(extents[place:]) for place in range(len(extents) + 1)]


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
            shape, middle = (layout.size,), maker.random.choice(_levels(shape)[:-1]) // 2 or 1
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


def _ripples(parts: Any, shape: Sequence[int], region: Sequence[tuple[int, int]]) -> bool:
    """Whether a step inside the region carries into two digits or more."""
    levels = _levels([extent for extent, _, _ in parts.shard if extent > 1])
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


Pair = tuple[Any, tuple[int, ...], Any, tuple[int, ...]]


def pair(maker: Any) -> Pair:
    rank = maker.random.choice((1, 1, 2, 2, 3))
    a, b = maker.parts(most=8, copies=4), maker.parts(most=8, copies=4)
    return a, maker.shape(a.size(), rank), b, maker.shape(b.size(), rank)


def interleaved(
    a: Table, shape_a: Sequence[int], b: Table, shape_b: Sequence[int], weights: Any
) -> Table:
    domain = [extent for both in zip(shape_a, shape_b, strict=True) for extent in both]
    table = []
    for index in itertools.product(*map(range, domain)):
        x = int(np.ravel_multi_index(index[0::2], shape_a)) if shape_a else 0
        y = int(np.ravel_multi_index(index[1::2], shape_b)) if shape_b else 0
        table.append(combined(a[x], weights, b[y]))
    return table


@pytest.mark.parametrize("scaled", [True, False], ids=["tile", "direct_sum"])
def test_tile_and_direct_sum(campaign: Start, scaled: bool) -> None:
    run = campaign("tile" if scaled else "direct sum")
    operation = tile if scaled else direct_sum
    for maker in run.cases():
        a, shape_a, b, shape_b = pair(maker)
        run.saw(*(a.classes() | b.classes()))
        tables = a.table(), b.table()
        try:
            found = operation(a.layout(), shape_a, b.layout(), shape_b)
        except LayoutError as error:
            if "coordinates up to" in str(error):
                run.saw("too large for 63 bits")
                wide = (spans(tables[0])[axis] * spans(tables[1])[axis] for axis in ("m", "p"))
                assert max(wide) > 2**60
                continue
            run.saw("does not group")
            parts = ((a, shape_a), (b, shape_b))
            assert not all(attempt(part.layout().group, shape) for part, shape in parts)
            continue
        weights = spans(tables[1]) if scaled else {}
        assert table_of(found) == interleaved(tables[0], shape_a, tables[1], shape_b, weights)


@pytest.mark.parametrize("kind", ["tile_of", "direct_sum_left", "direct_sum_right"])
def test_recovering_a_factor_is_complete(campaign: Start, kind: str) -> None:
    run = campaign(kind)
    build = tile if kind == "tile_of" else direct_sum
    recovery = {"tile_of": tile_of, "direct_sum_left": direct_sum_left}.get(kind, direct_sum_right)
    flipped = kind == "direct_sum_right"
    for maker in run.cases():
        c, ratio, known, inner = pair(maker)
        operands = ((c.layout(), ratio), (known.layout(), inner))
        (left, shape_left), (right, shape_right) = operands[:: -1 if flipped else 1]
        whole_shape = tuple(x * y for x, y in zip(ratio, inner, strict=True))
        made = attempt(build, left, shape_left, right, shape_right)
        exists = made is not None and maker.random.random() < 0.6
        whole = maker.parts(most=prod(whole_shape), copies=4)
        if exists and made is not None:
            spelled = known._replace(shard=made.shard, replica=made.replica, offset=made.offset)
            whole = maker.respelled(spelled)
        else:
            whole = maker.resized(whole, prod(whole_shape))
        run.saw(*(whole.classes() | known.classes()))
        found = attempt(recovery, whole.layout(), whole_shape, known.layout(), inner)
        if found is None:
            run.saw("refused")
            assert not exists
            assert not _has_factor(whole, ratio, known, inner, kind)
            continue
        run.saw("recovered")
        factors = ((found, ratio), (known.layout(), inner))
        (left, shape_left), (right, shape_right) = factors[:: -1 if flipped else 1]
        again = build(left, shape_left, right, shape_right)
        assert table_of(again) == whole.table()


def _has_factor(
    whole: Any, ratio: Sequence[int], known: Any, inner: Sequence[int], kind: str
) -> bool:
    """Whether some layout is the missing factor, from the tables alone."""
    table, part = whole.table(), known.table()
    grid = tuple(spans(part)[axis] if kind == "tile_of" else 1 for axis in ("m", "p"))
    if attempt(known.layout().group, inner) is None:
        return False
    missing: dict[int, set[Vector]] = {}
    shapes = (inner, ratio) if kind == "direct_sum_right" else (ratio, inner)
    domain = [extent for both in zip(*shapes, strict=True) for extent in both]
    for position, index in enumerate(itertools.product(*map(range, domain))):
        halves = (
            (index[1::2], index[0::2]) if kind == "direct_sum_right" else (index[0::2], index[1::2])
        )
        x = int(np.ravel_multi_index(halves[0], ratio)) if ratio else 0
        y = int(np.ravel_multi_index(halves[1], inner)) if inner else 0
        step = np.subtract(vectors(table[position])[0], vectors(part[y])[0])
        missing.setdefault(x, set()).add(tuple(step.tolist()))
    if any(len(points) > 1 for points in missing.values()):
        return False
    base = [next(iter(missing[x])) for x in range(prod(ratio))]
    if any(value % size for point in base for value, size in zip(point, grid, strict=True)):
        return False
    cuts = set(_levels(ratio))
    if not any(cuts <= set(_levels(extents)) for extents in lists_for(base)):
        return False
    spread = [tuple(np.subtract(v, vectors(table[0])[0]).tolist()) for v in vectors(table[0])]
    start = {tuple(np.subtract(v, vectors(part[0])[0]).tolist()) for v in vectors(part[0])}
    return _product_of_lists(spread, grid, start)  # type: ignore[arg-type]


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
    run = campaign("inverse", "negative strides", "unit iters", "primes", every=False)
    for maker in run.cases():
        parts = maker.parts(axes=("m",), copies=1)
        if maker.random.random() < 0.7:  # compact in some order, some digits turned round
            extents = [extent for extent, _, _ in parts.shard]
            order = list(range(len(extents)))
            maker.random.shuffle(order)
            stride = 1
            for place in order:
                turned = maker.random.random() < 0.25
                parts.shard[place] = extents[place], -stride if turned else stride, "m"
                stride *= extents[place]
            parts.offset.clear()
            parts.offset["m"] = sum((e - 1) * -s for e, s, _ in parts.shard if s < 0)
        parts.replica.clear()
        run.saw(*parts.classes())
        table = [dict(next(iter(image))).get("m", 0) for image in parts.table()]
        found = attempt(parts.layout().inverse)
        onto = sorted(table) == list(range(len(table)))
        run.saw("one to one" if onto else "refused")
        assert (found is not None) == onto
        if found is not None:
            assert [found.table("m")[value] for value in table] == list(range(len(table)))


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
        cuts = sorted({level for shape in shapes for level in _levels(shape)})
        chain = all(b % a == 0 for a, b in itertools.pairwise(cuts))
        run.saw("refinable" if chain else "refused")
        try:
            found = common_refinement(shapes)
        except LayoutError:
            assert not chain
            continue
        assert chain
        assert sorted(_levels(found)) == cuts


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
