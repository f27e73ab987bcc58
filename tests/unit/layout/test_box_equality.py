"""Padded boxes are compared without enumerating them, and the first difference is exact."""

from __future__ import annotations

import random
from typing import Any

import pytest

from axe_eq.layout import Layout, same_map
from axe_eq.layout.normal import decide
from axe_eq.layout.value.layout import make_dims
from tests.property.test_layout_maps import random_boxed

ROWS = 10**6


def padded(*dims: tuple[int, tuple[tuple[int, int], ...]]) -> Layout:
    """A box of these dims: extent, and its iters on m."""
    return make_dims(tuple((n, tuple((e, s, "m") for e, s in block)) for n, block in dims), (), ())


TILED = padded((ROWS, ((ROWS, 72),)), (3, ((3, 24),)), (5, ((3, 8), (2, 1))))


@pytest.mark.parametrize(
    ("other", "first"),
    [
        (padded((ROWS, ((ROWS, 72),)), (3, ((3, 24),)), (5, ((3, 8), (2, 2)))), 1),
        (padded((ROWS, ((ROWS, 72),)), (3, ((3, 24),)), (5, ((3, 9), (2, 1)))), 2),
        (padded((ROWS, ((ROWS, 72),)), (3, ((3, 25),)), (5, ((3, 8), (2, 1)))), 5),
        (padded((ROWS, ((2, 10**9), (ROWS // 2, 72))), (3, ((3, 24),)), (5, ((3, 8), (2, 1)))),
         ROWS // 2 * 15),
        (padded((ROWS * 3, ((ROWS * 3, 24),)), (5, ((3, 8), (2, 1)))), None),
        (padded((ROWS * 5, ((ROWS * 5, 24),)), (3, ((2, 8), (2, 1)))), 3),
    ],
)  # fmt: skip
def test_large_boxes_differ_at_an_index_that_is_read_off(other: Layout, first: int | None) -> None:
    found = same_map(TILED, other)
    assert (None if found is None else found.x) == first
    if found is not None and found.x is not None:
        assert (found.image_a, found.image_b) == (TILED(found.x), other(found.x))
        assert TILED(found.x - 1) == other(found.x - 1)


def test_boxes_whose_dims_have_nothing_in_common_differ_early() -> None:
    one = padded((2**40, ((2**40, 8),)), (7, ((2, 5), (4, 1))))
    two = padded((2**37, ((2**37, 64),)), (56, ((8, 7), (5, 1), (2, 11))))
    found = same_map(one, two)
    assert found is not None
    assert found.x == 1
    assert (found.image_a, found.image_b) == (one(1), two(1))


def test_the_first_index_is_that_of_enumeration(
    full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(3)
    looked_at, look = 0, decide._first_enumerated

    def counted(*given: Any) -> int | None:
        nonlocal looked_at
        looked_at += 1
        return look(*given)

    monkeypatch.setattr(decide, "_first_enumerated", counted)
    known: dict[int, list[Layout]] = {}
    compared = 0
    for _ in range(8000 if full else 160):
        layout = random_boxed(rng)
        others = known.setdefault(layout.size, [])
        for other in rng.sample(others, min(3, len(others))):
            wrong = (x for x in range(layout.size) if layout(x) != other(x))
            found = same_map(layout, other)
            assert (None if found is None else found.x) == next(wrong, None)
            compared += found is not None
        others.append(layout)
    assert 0.05 * compared < looked_at < 0.7 * compared
