"""Layouts with two and more swizzles have one canonical form, found without long searches."""

from __future__ import annotations

import random
from itertools import product

import numpy as np
import pytest

from axe_eq.errors import SearchError
from axe_eq.layout import Layout, Swizzle, same_map
from axe_eq.layout.normal.recover_iters import NoIters
from axe_eq.layout.normal.swizzled import sieved, swizzles_on
from axe_eq.layout.normal.tables import from_points, point_table

TWO = [Swizzle("m", 2, 0, 5), Swizzle("m", 3, 4, 3)]


def points_of(layout: Layout) -> np.ndarray:
    return point_table(layout, np.arange(layout.size, dtype=np.int64), layout.axes)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("bits", [10, 12, 14, 16, 18])
def test_two_swizzles_of_a_tile_stay_as_they_are(bits: int) -> None:
    rows, columns = 2 ** (bits - bits // 2), 2 ** (bits // 2)
    for swizzle, shard in product(
        (TWO, TWO[::-1], [TWO[1], Swizzle("m", 2, 1, -4)], [*TWO, Swizzle("m", 1, 2, 1)]),
        ([(rows * columns, 1)], [(rows, 1), (columns, rows)]),
    ):
        layout = Layout(shard, offset={"m": 3 * 2**bits}, swizzle=swizzle)
        form = layout.canonical()
        assert form.linear() == layout.linear()
        assert sorted(form.swizzle) == sorted(layout.swizzle)  # some of them commute
        assert same_map(layout, form) is None


def test_two_swizzles_beside_other_parts_stay_as_they_are() -> None:
    for text in (
        "sw(2,0,5)@m . sw(3,4,3)@m . S[(256):(1@m)] + R[(2):(512@m)]",
        "sw(2,0,5)@m . sw(3,4,3)@m . S[(768):(1@m)]",
        "sw(2,0,5)@m . sw(3,4,3)@m . S[(4,3,2,32):(256@m,32@m,128@m,1@m)]",
        "sw(2,0,5)@m . sw(3,4,3)@m . sw(1,0,1)@p . S[(4,1024):(1@p,1@m)]",
        "sw(2,0,5)@m . sw(3,4,3)@m . S[(16777216):(1@m)]",
        "sw(2,0,5)@m . sw(3,4,3)@m . S[(3,1024):(4096@m,-1@m)] + 1023@m",
    ):
        layout = Layout.parse(text)
        assert layout.canonical() == layout


@pytest.mark.parametrize(
    "text",
    [
        "sw(1,0,2) . sw(2,0,-2) . S[(3,5):(-4096,4096)] + R[(2,2):(-1,2)]",
        "box[(5) of (6)] in box[(2,3) of (2,4)] in sw(1,0,2) . sw(2,0,-2) . S[(2,4):(2,1@p)] "
        "+ R[(2,2):(-1,2)] + 5@p",
        "sw(3,3,4) . sw(1,1,1) . S[(3,4,4,4):(8,1,5,1)] + -1",
    ],
    ids=["copies", "copies of boxes", "steps of 5"],
)
def test_two_swizzles_off_the_powers_of_two_are_compared_and_have_no_form(text: str) -> None:
    layout = Layout.parse(text)
    with pytest.raises(SearchError, match=r"canonical form of .* expected fewer swizzles"):
        layout.canonical()
    swap = [Swizzle("m", 1, 0, 1), Swizzle("m", 1, 0, -1), Swizzle("m", 1, 0, 1)]
    parts = layout.shard, layout.replica, layout.offset
    assert same_map(layout, Layout(*parts, [*layout.swizzle, *swap, *swap], *layout.boxes)) is None
    assert same_map(layout, Layout(*parts, [*layout.swizzle, swap[0]], *layout.boxes)) is not None


def random_bits(source: random.Random) -> Layout:
    """Bits of the index at bits of coordinates, some turned round, some copied, then swizzles."""
    axes = source.choice(("m", "m", "mp"))
    shard, replica, offset = [], [], {}
    swizzles = []
    for axis in axes:
        bits = source.sample(range(7), source.randint(2, 5))
        offset[axis] = source.getrandbits(8)
        for bit in bits:
            if source.random() < 0.2:
                replica.append((2, 1 << bit, axis))
                offset[axis] &= ~(1 << bit)
            else:
                shard.append((2, (-1 if offset[axis] >> bit & 1 else 1) << bit, axis))
        swizzles += [random_swizzle(source, axis) for _ in range(source.randint(1, 4))]
    source.shuffle(shard)
    shard.insert(0, (source.choice((1, 1, 2, 3)), 256, "m"))
    return Layout(shard, replica, offset, swizzles)


def random_swizzle(source: random.Random, axis: str) -> Swizzle:
    bits, shift = source.randint(1, 3), source.choice((1, 2, 3, 4))
    base = source.randint(0, 8 - bits - shift)
    return Swizzle(axis, bits, base, source.choice((shift, -shift)))


def respelled(source: random.Random, layout: Layout) -> Layout:
    """The same map: two bits of a coordinate change places before the swizzles, and back."""
    axis = source.choice([sw.axis for sw in layout.swizzle])
    low, high = sorted(source.sample(range(8), 2))
    shift = high - low
    swap = [Swizzle(axis, 1, low, turn) for turn in (shift, -shift, shift)]

    def moved(stride: int, name: str) -> int:
        places = {1 << low: 1 << high, 1 << high: 1 << low} if name == axis else {}
        return places.get(abs(stride), abs(stride)) * (-1 if stride < 0 else 1)

    offset = layout.offset
    value = offset.get(axis, 0)
    if (value >> low ^ value >> high) & 1:
        offset[axis] = value ^ (1 << low | 1 << high)
    shard, replica = (
        [(extent, moved(stride, name), name) for extent, stride, name in part]
        for part in (layout.shard, layout.replica)
    )
    return Layout(shard, replica, offset, [*layout.swizzle, *swap])


def test_maps_that_exchange_bits_have_one_form(full: bool) -> None:
    source, several, cases = random.Random(3), 0, 3000 if full else 40
    for _ in range(cases):
        layout = random_bits(source)
        form = layout.canonical()
        assert form.axes == layout.axes or set(form.axes) < set(layout.axes)
        assert same_map(layout, form) is None
        assert np.array_equal(points_of(layout), points_of(with_axes(form, layout)))
        assert Layout.parse(str(form)).canonical() == form
        other = respelled(source, layout)
        assert same_map(layout, other) is None
        assert other.canonical() == form
        several += len(form.swizzle) > 2
    assert several > cases // 7


def with_axes(form: Layout, layout: Layout) -> Layout:
    """The form with a swizzle of no bits on each axis: axes where all is 0 count too."""
    idle = [Swizzle(axis, 0, 0, 1) for axis in layout.axes]
    return Layout(form.shard, form.replica, form.offset, [*form.swizzle, *idle], *form.boxes)


def test_a_sieve_keeps_whatever_leaves_a_layout(full: bool) -> None:
    source, found = random.Random(5), 0
    for _ in range(200 if full else 5):
        count = source.randint(2, 4)
        extents = [source.choice((2, 2, 3, 4, 5)) for _ in range(count)]
        shard = [(e, source.choice((1, 2, 3, 4, 6, 8, -1))) for e in extents]
        replica = [(2, source.choice((1, 3)))] if source.random() < 0.3 else []
        box = [extents[0] * extents[1] - 1] if source.random() < 0.3 else None
        if box:
            shard = shard[:2]
        elif source.random() < 0.5:  # bits to bits
            shard = [(2, stride) for stride in source.sample((1, 2, 4, 8), count)]
            replica = []
        layout = Layout(shard, replica, None, [random_swizzle(source, "m")], box)
        column = points_of(layout)[:, :, 0]
        ones = [sw for sw in swizzles_on(column, "m") if leaves(column, sw)]
        kept = set(sieved(column, swizzles_on(column, "m")))
        assert kept.issuperset(ones)
        found += len(ones)
    assert found > 10


def leaves(column: np.ndarray, sw: Swizzle) -> bool:
    try:
        from_points(np.sort(sw.undo(column), axis=1)[:, :, None], ("m",), boxed=True)
    except NoIters:
        return False
    return True


def test_huge_maps_that_no_search_ends_for_are_refused() -> None:
    with pytest.raises(SearchError, match="4194304 elements"):
        Layout([(4096, 1), (4096, 4096)], swizzle=TWO).canonical()
