"""Places of reads against all indices, one by one."""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from math import prod

import numpy as np
import pytest

from axe_eq.layout import Layout
from axe_eq.program import places
from axe_eq.program.signature import Affine
from axe_eq.program.types import ValueType

Index = tuple[int, ...]


def at(coords: places.Coords, index: Index) -> Index:
    return tuple(c.offset + sum(f * index[d] for d, f in c.terms) for c in coords)


def lies_in(place: Index, shape: Sequence[int]) -> bool:
    return all(0 <= x < e for x, e in zip(place, shape, strict=True))


def indices(extents: Sequence[int]) -> list[Index]:
    return list(itertools.product(*map(range, extents)))


def drawn(rng: random.Random) -> tuple[places.Coords, tuple[int, ...], tuple[int, ...]]:
    extents = tuple(rng.randint(2, 5) for _ in range(rng.randint(1, 3)))
    shape = tuple(rng.choice((2, 4, 6)) for _ in range(rng.randint(1, 2)))
    coords = []
    for _ in shape:
        dims = rng.sample(range(len(extents)), rng.choice((0, 1, 1, min(2, len(extents)))))
        terms = {d: rng.choice((-1, 1, 1, 2)) for d in dims}
        coords.append(Affine.of(terms, rng.randint(-3, 5)))
    return tuple(coords), shape, extents


def test_windows_are_where_reads_lie_inside() -> None:
    rng, met = random.Random(0), [0, 0, 0]
    for _ in range(2000):
        coords, shape, extents = drawn(rng)
        inside = {i for i in indices(extents) if lies_in(at(coords, i), shape)}
        if places.never_inside(coords, shape, extents):
            assert not inside
        window = places.window(coords, shape, extents)
        if isinstance(window, str):
            met[2] += 1
            several = any(len(c.terms) > 1 for c in coords)
            assert several or not inside
            continue
        met[any(window)] += 1
        ranges = [w or (0, e) for w, e in zip(window, extents, strict=True)]
        assert inside == set(itertools.product(*(range(*r) for r in ranges)))
    assert min(met) > 100


@pytest.mark.parametrize("text", ["S[(24):(1)]", "S[(2,3,4):(4,8,1)]", "S[(4,6):(1,4)] + 7@m"])
def test_reads_through_layouts_are_the_elements(text: str) -> None:
    rng, layout, met = random.Random(text), Layout.parse(text), [0, 0]
    elements = [dict(c) for (c,) in map(layout, range(24))]
    shapes = [(24,), (4, 6), (6, 4), (2, 3, 4), (2, 12)]
    for _ in range(1500):
        shape = rng.choice(shapes)
        extents = tuple(rng.randint(2, 6) for _ in shape)
        steps = [(rng.choice((-1, 1, 1, 2)), rng.randint(-2, 4)) for _ in shape]
        coords = tuple(Affine.of({d: f}, o) for d, (f, o) in enumerate(steps))
        read = places.read(layout, coords, shape, extents)
        met[isinstance(read, str)] += 1
        if isinstance(read, str):
            continue
        for index in indices(extents):
            bounds = zip(index, read.window, strict=True)
            if all(w is None or w[0] <= i < w[1] for i, w in bounds):
                number = int(np.ravel_multi_index(at(coords, index), shape))
                assert offset(read, index) == elements[number].get("m", 0)
    assert met[0] > 100


def test_dims_that_are_not_read_along_have_any_extents() -> None:
    layout = Layout.parse("S[(4,6):(8,1)]")
    coords, many = (Affine.of({1: 1}, 0), Affine.of({3: -1}, 5)), 1 << 40
    read = places.read(layout, coords, (4, 6), (many, 4, many, 6))
    assert read == places.Read(((), ((4, 8),), (), ((6, -1),)), 5, (None,) * 4)


def test_a_space_spans_values_of_its_indices_alone() -> None:
    """Some of its dims, each index once: all leading ones, or all that are not of one index."""
    rng, met = random.Random(2), [0, 0]
    for _ in range(500):
        shapes = [
            tuple(rng.choice((1, 2, 3)) for _ in range(rng.randint(0, 3)))
            for _ in range(rng.randint(1, 3))
        ]
        space = places.index_space(shapes)
        assert space in shapes
        for shape in shapes:
            kept = [shape == space[: len(shape)]]
            for dims in itertools.product((0, 1), repeat=len(space)):
                kept.append(shape == tuple(e if d else 1 for e, d in zip(space, dims, strict=True)))
            assert places.spans(space, shape) == any(kept)
            met[any(kept)] += 1
    assert min(met) > 50


def offset(read: places.Read, index: Index) -> int:
    """The element at an index; blocked dims have no window, others one iter."""
    total = read.offset
    for i, block, bound in zip(index, read.blocks, read.window, strict=True):
        digits, rest = [], i
        for position, (extent, stride) in reversed(list(enumerate(block))):
            digits.append((rest % extent if position and not bound else rest) * stride)
            rest //= extent
        total += sum(digits)
    return total


def test_views_keep_the_number_of_every_element() -> None:
    rng, met = random.Random(1), [0, 0]
    shapes = [(24,), (4, 6), (6, 4), (2, 3, 4), (2, 12), (4, 3, 2)]
    for _ in range(2000):
        shape, operand = rng.choice(shapes), rng.choice(shapes)
        extents, coords = [], []
        for d, e in enumerate(shape):
            step = rng.choice((1, 1, 2))
            first = rng.randrange(e)
            extents.append((e - 1 - first) // step + 1)
            coords.append(Affine.of({d: step} if extents[-1] > 1 else {}, first))
        found = places.viewed(shape, tuple(coords), operand, extents)
        met[found is None] += 1
        if found is None:
            continue
        for index in indices(extents):
            number = np.ravel_multi_index(at(tuple(coords), index), shape)
            assert lies_in(at(found, index), operand)
            assert np.ravel_multi_index(at(found, index), operand) == number
    assert min(met) > 100


def test_selectors_say_where_they_read() -> None:
    x, (i, j) = ValueType("f32", (4, 6)), (Affine.of({0: 1}), Affine.of({1: 2}, 1))
    assert places.pulled("slice ((3,-1,4),None)", [x], (i, j)) == [(Affine.of({0: -1}, 3), j)]
    assert places.pulled("concat 1", [x, x], (i, j)) == [(i, j), (i, Affine.of({1: 2}, -5))]
    assert places.pulled("repeat 0 2", [x], (i, j)) is None
    assert places.pulled("iota 4 i64", [], (i,)) == []
    assert prod(len(row) for row in places.pulls("merge 0 2", [x])) == 2
