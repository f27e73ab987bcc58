"""Ladders: digits whose levels need not divide each other, against their definition."""

from __future__ import annotations

import itertools
import random

import numpy as np
import pytest

from axe_eq.layout.normal import ladders as ld
from axe_eq.layout.normal.chains import build
from axe_eq.layout.normal.ladder_search import find_ladder
from axe_eq.layout.normal.ladders import Ladder
from axe_eq.layout.value.iters import fuse


def random_ladder(source: random.Random, extent: int) -> Ladder:
    levels = {1, *(source.randint(1, extent) for _ in range(source.randint(0, 4)))}
    strides = (1, 1, 2, 3, 4, 5, 7, 8, 12, -1, -3, 0)
    return ld.cut(tuple((n, source.choice(strides), "m") for n in sorted(levels)[::-1]), extent)


def table(extent: int, ladder: Ladder) -> list[int]:
    """Greedy digits times strides."""
    values = []
    for index in range(extent):
        total, rest = 0, index
        for level, stride, _ in ladder:
            total += rest // level * stride
            rest %= level
        values.append(total)
    return values


def found_in(values: list[int]) -> Ladder:
    ladder = find_ladder(np.array(values)[:, None], ("m",))
    assert ladder is not None  # one axis: there always is one
    return ladder


def test_values_bounds_and_digits() -> None:
    source = random.Random(1)
    for _ in range(500):
        extent = source.randint(1, 40)
        ladder = random_ladder(source, extent)
        values = table(extent, ladder)
        assert [ld.value(ladder, x).get("m", 0) for x in range(extent)] == values
        assert ld.bounds(extent, ladder, "m") == (min(values), max(values))
        short = source.randint(1, extent)
        assert table(short, ld.cut(ladder, short)) == values[:short]


def test_one_ladder_per_function() -> None:
    """Whatever is reduced and sure of itself is what the table gives; the rest keeps the map."""
    source, sure_ones = random.Random(2), 0
    for _ in range(1500):
        extent = source.randint(1, 24)
        ladder = random_ladder(source, extent)
        values = table(extent, ladder)
        short, sure = ld.reduced(extent, ladder)
        assert table(extent, short) == values
        assert table(extent, found_in(values)) == values
        if sure:
            sure_ones += 1
            zeroless = tuple((n, s, a) if s else (n, 0, "m") for n, s, a in short)
            assert found_in(values) == zeroless
    assert sure_ones > 700


def test_every_short_table_is_a_ladder_and_only_one() -> None:
    for values in itertools.product((-1, 0, 1, 2, 3), repeat=4):
        whole = [0, *values]
        assert table(5, found_in(whole)) == whole


def test_steps_on_two_axes_have_no_ladder() -> None:
    assert find_ladder(np.array([[0, 0], [1, 1]]), ("m", "p")) is None
    assert find_ladder(np.array([[0, 0], [1, 0], [0, 1], [1, 1]]), ("m", "p")) == (
        (2, 1, "p"),
        (1, 1, "m"),
    )


def random_shared(source: random.Random, extent: int) -> Ladder:
    """A ladder whose digits step on up to three axes."""
    rungs: list[ld.Rung] = []
    for level, stride, _ in random_ladder(source, extent):
        axes = sorted(source.sample("mpq", source.choice((1, 1, 2, 3))))
        rungs += [(level, stride + place, axis) for place, axis in enumerate(axes)]
    return tuple(rungs)


def points(extent: int, ladder: Ladder) -> list[list[int]]:
    """Per axis `table` of the rungs there, each digit written once."""
    levels = sorted({level for level, _, _ in ladder}, reverse=True)
    found = []
    for axis in "mpq":
        steps = {level: stride for level, stride, name in ladder if name == axis}
        found.append(table(extent, tuple((n, steps.get(n, 0), axis) for n in levels)))
    return found


def test_rungs_at_one_level_share_a_digit() -> None:
    source, several, cut = random.Random(6), 0, 0
    for _ in range(600):
        shape = [source.randint(1, 8) for _ in range(source.randint(1, 2))]
        fields = [(n, random_shared(source, n)) for n in shape]
        extent, ladder = ld.joined(fields)
        short, _ = ld.reduced(extent, ladder)
        values = points(extent, ladder)
        assert points(extent, short) == values
        for place, axis in enumerate("mpq"):
            assert [ld.value(ladder, x).get(axis, 0) for x in range(extent)] == values[place]
            assert ld.bounds(extent, ladder, axis) == (min(values[place]), max(values[place]))
        parts = ld.split(extent, short, shape)
        if parts is not None:
            cut += 1
            assert points(*ld.joined(list(zip(shape, parts, strict=True)))) == values
        table_of_all = np.array(values).T
        first = find_ladder(table_of_all, tuple("mpq"), several=True)
        assert first is not None  # every table has one
        assert points(extent, first) == values
        alone = find_ladder(table_of_all, tuple("mpq"))
        assert alone is None or alone == first
        several += alone is None
        for keep in (False, True):
            layout = build(fields, (), (), keep=keep)
            assert [layout.table(axis).tolist() for axis in "mpq"] == values
            if keep and layout.box is not None:
                assert layout.box == tuple(shape)
    assert several > 200
    assert cut > 400


def test_as_many_digits_as_there_may_be() -> None:
    ladder = tuple((level, level % 7 + 1, "m") for level in range(1020, 0, -1))
    values = np.array(table(1021, ladder))[:, None]
    found = find_ladder(values, ("m",))
    assert found is not None
    assert table(1021, found) == values[:, 0].tolist()


def test_split_and_joined() -> None:
    source, cut = random.Random(3), 0
    for _ in range(500):
        shape = [source.randint(1, 5) for _ in range(source.randint(1, 3))]
        fields = [(n, ld.reduced(n, random_ladder(source, n))[0]) for n in shape]
        extent, whole = ld.joined(fields)
        sums = [
            sum(table(n, ladder)[x] for (n, ladder), x in zip(fields, index, strict=True))
            for index in itertools.product(*map(range, shape))
        ]
        assert table(extent, whole) == sums
        assert ld.split(extent, whole, shape) == tuple(ladder for _, ladder in fields)
        parts = ld.split(extent, ld.reduced(extent, whole)[0], shape)
        if parts is not None:
            cut += 1
            again = ld.joined(list(zip(shape, parts, strict=True)))
            assert table(*again) == sums
    assert cut > 400


@pytest.mark.parametrize("keep", [False, True])
def test_boxes_pad_to_the_list_of_digits(keep: bool) -> None:
    source, nested = random.Random(4), 0
    for _ in range(500):
        shape = [source.randint(1, 7) for _ in range(source.randint(1, 2))]
        fields = [(n, random_ladder(source, n)) for n in shape]
        boxes = ld.boxes_of([(n, ld.rooms_of(n, ladder)) for n, ladder in fields], keep=keep)
        nested += len(boxes) > 1
        if keep and boxes:
            assert boxes[0][0] == tuple(shape)
        index = np.arange(int(np.prod(shape)))
        for box, padded in boxes:
            index = np.ravel_multi_index(np.unravel_index(index, box), padded)
        iters = [item for field in fields for item in ld.iters_of(*field)]
        values = np.zeros(len(index), dtype=int)
        for extent, stride, _ in reversed(iters):
            values, index = values + index % extent * stride, index // extent
        assert values.tolist() == table(*ld.joined(fields))
        assert not index.any()
    assert nested > 50


def test_a_list_is_a_ladder() -> None:
    block = fuse([(3, 8, "m"), (4, 1, "p"), (2, 4, "m")])
    assert ld.of_block(block, 24) == ((8, 8, "m"), (2, 1, "p"), (1, 4, "m"))
    assert ld.of_block(block, 7) == ((2, 1, "p"), (1, 4, "m"))
    assert ld.boxes_of([(24, ld.rooms_of(24, ld.of_block(block, 24)))]) == ()


@pytest.mark.parametrize(
    ("extent", "levels", "wide"),
    [
        (9, (8, 3, 1), True),
        (90, (8, 3, 1), True),
        (1000, (128, 1), True),
        (11, (8, 5, 1), False),
        (100, (8, 5, 1), True),
        (4, (3, 2, 1), False),
    ],
)
def test_swizzled_bits_make_no_wide_ladder(
    extent: int, levels: tuple[int, ...], wide: bool
) -> None:
    ladder = tuple((level, place + 1, "m") for place, level in enumerate(levels))
    assert ld.is_wide(extent, ladder) is wide
