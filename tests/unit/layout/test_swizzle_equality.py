"""Layouts with different swizzles are compared over what the swizzles can see, at any size."""

from __future__ import annotations

import random

import pytest

from axe_eq.errors import SearchError
from axe_eq.layout import Layout, Swizzle, same_map

SW = Swizzle("m", 3, 4, 3)  # its own inverse
BIG = [(2, 2 ** (40 - n), "m") for n in range(25)]
ROWS = [(64, 64, "m"), (64, 1, "m")]


def test_digits_that_no_swizzle_sees_cost_nothing() -> None:
    once, thrice = (Layout([*BIG, *ROWS], swizzle=[SW] * n) for n in (1, 3))
    assert once.size == 2**37
    assert same_map(once, thrice) is None
    assert same_map(once, Layout([*BIG, *ROWS], swizzle=[SW, SW])) is not None


def test_a_digit_that_steps_unlike_far_away_is_found_at_its_first_index() -> None:
    moved = [*BIG[:20], (2, BIG[20][1] + 2**15, "m"), *BIG[21:]]
    a, b = Layout([*BIG, *ROWS], swizzle=[SW]), Layout([*moved, *ROWS], swizzle=[SW] * 3)
    found = same_map(a, b)
    assert found is not None
    assert found.x is not None
    assert found.x == 2 ** (36 - 20)
    assert (found.image_a, found.image_b) == (a(found.x), b(found.x))


def test_a_hopeless_normal_form_is_refused_by_name() -> None:
    thrice = Layout.parse(
        "sw(2,3,1)@m . sw(3,1,2)@m . sw(2,1,-3)@m . S[(3,3):(3,1)] + R[(2,2):(3,4)]"
    )
    with pytest.raises(SearchError, match="neither one swizzle per axis, nor XORs of bits"):
        thrice.canonical()


def test_a_swizzle_of_no_bits_costs_nothing() -> None:
    text = "sw(1,4,1)@m . {}S[(12,5):(-2@m,2@p)] + R[(5,3):(5@m,2305843009213693952@m)] + -9@lane"
    plain, idle = (Layout.parse(text.format(part)) for part in ("", "sw(0,0,-3)@lane . "))
    assert idle.canonical() == plain.canonical()


def test_the_first_index_is_that_of_enumeration(full: bool) -> None:
    rng, equal = random.Random(1), 0
    for _ in range(6000 if full else 400):
        extents = [rng.choice((2, 2, 3, 4, 8)) for _ in range(rng.randint(1, 4))]
        strides = [rng.choice((1, 2, 4, 8, 16, 32, 3, 6)) for _ in extents]
        changed = list(strides)
        if rng.random() < 0.5:
            place = rng.randrange(len(strides))
            changed[place] += rng.choice((1, 4, 16, 32))
        sides = [
            Layout(
                [(e, s, "m") for e, s in zip(extents, chosen, strict=True)],
                swizzle=[Swizzle("m", 1, rng.randint(0, 1), rng.choice((1, 2, -1)))] * count,
            )
            for chosen, count in ((strides, 1), (changed, rng.choice((2, 3))))
        ]
        a, b = sides
        found = same_map(a, b)
        wrong = [x for x in range(a.size) if a(x) != b(x)]
        assert (found and found.x) == (wrong[0] if wrong else None)
        equal += not wrong
    assert equal > 20
