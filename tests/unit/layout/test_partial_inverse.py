"""Complements and one-sided inverses by their definitions, on every small chain of strides."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest

from axe_eq.errors import LayoutError
from axe_eq.layout import Layout, complement, left_inverse, right_inverse


def chains() -> Iterator[Layout]:
    """Layouts whose strides are multiples of what smaller strides reach, in every order."""
    for extents in itertools.product((1, 2, 3, 4), repeat=2):
        for gaps in itertools.product((1, 2, 3), repeat=2):
            stride, items = 1, []
            for extent, gap in zip(extents, gaps, strict=True):
                stride *= gap
                items.append((extent, stride, "m"))
                stride *= extent
            yield from (Layout(order) for order in (items, items[::-1]))


def values(layout: Layout) -> list[int]:
    return [int(value) for value in layout.table("m")]


def test_a_complement_covers_each_coordinate_once() -> None:
    for layout in chains():
        for size in (1, 7, 24, 36):
            free = complement(layout, size)
            sums = sorted(x + y for x in values(layout) for y in values(free))
            assert sums == list(range(len(sums)))  # all, once
            assert len(sums) >= size
            strides = [stride for _, stride, _ in free.shard]
            assert strides == sorted(strides, reverse=True)
            slowest = free.shard[0][0] if free.shard else 1
            if free.shard and free.shard[0][1] >= layout.span("m"):
                assert len(sums) // slowest * (slowest - 1) < size  # no copy too many


def test_a_left_inverse_undoes_the_layout() -> None:
    for layout in chains():
        back = left_inverse(layout)
        assert [values(back)[c] for c in values(layout)] == list(range(layout.size))
        missed = set(range(back.size)) - set(values(layout))
        assert all(values(back)[c] >= layout.size for c in missed)
        assert back.aliasing().injective


def test_a_right_inverse_is_undone_by_the_layout_as_far_as_possible() -> None:
    for layout in chains():
        section = right_inverse(layout)
        assert [values(layout)[x] for x in values(section)] == list(range(section.size))
        covered = set(values(layout))
        assert section.size == next(c for c in itertools.count() if c not in covered)


def test_a_swap_has_both_inverses_and_they_are_the_inverse() -> None:
    layout = Layout([(4, 1, "lane"), (8, 4, "lane")])
    assert left_inverse(layout).canonical() == layout.inverse().canonical()
    assert right_inverse(layout).canonical() == layout.inverse().canonical()
    assert left_inverse(layout).axes == ("lane",)


@pytest.mark.parametrize(
    ("layout", "wrong"),
    [
        (Layout([(2, 1, "m"), (2, 1, "n")]), "iters on one axis alone"),
        (Layout([(4, 1)], offset={"m": 3}), "iters on one axis alone"),
        (Layout([(4, 1)], replica=[(2, 4)]), "iters on one axis alone"),
        (Layout([(3, 2), (2, 3)]), "a multiple of 6"),
        (Layout([(4, -1)]), "a multiple of 1"),
        (Layout([(4, 0)]), "a multiple of 1"),
    ],
)
def test_layouts_without_a_partial_inverse_are_refused(layout: Layout, wrong: str) -> None:
    with pytest.raises(LayoutError, match=wrong):
        complement(layout, 24)
    with pytest.raises(LayoutError, match=wrong):
        left_inverse(layout)


def test_a_complement_of_no_coordinates_is_refused() -> None:
    with pytest.raises(LayoutError, match="complement size: extent 0"):
        complement(Layout([(4, 1)]), 0)
