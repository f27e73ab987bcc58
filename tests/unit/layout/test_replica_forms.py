"""One list of replicas per image, found below a span of 2**24 whatever the list."""

from __future__ import annotations

import itertools
import random
from collections import defaultdict

import pytest

from axe_eq.errors import LayoutError, SearchError
from axe_eq.layout import Layout, recover, same_map
from axe_eq.layout.normal import images
from axe_eq.layout.normal.images import factor, search
from axe_eq.layout.normal.replicas import (
    clusters,
    has_gaps,
    image_bits,
    image_table,
    least_shared,
    least_steps,
    reach_of,
    saturate,
)

Steps = tuple[tuple[int, int], ...]


def overlapping(rng: random.Random, most: int, span: int) -> Steps:
    """A saturated list off the gap condition."""
    while True:
        steps: list[tuple[int, int]] = []
        for _ in range(rng.randint(2, most)):
            step = max(1, int(span ** rng.random())), rng.choice((2, 2, 3, 4, 5, 8, 16, 33))
            if reach_of([*steps, step]) < span:
                steps.append(step)
        found = saturate(steps)
        if len(found) > 1 and not has_gaps(found):
            return found


def respelled(rng: random.Random, steps: Steps) -> Steps:
    """Another list with the same image: absorbed steps, taken out again."""
    spelled: list[tuple[int, int]] = []
    for stride, extent in steps:
        times = rng.randint(1, extent)
        count = rng.randint(2, 4)
        if extent - times * (count - 1) >= times:
            spelled += [(stride, extent - times * (count - 1)), (times * stride, count)]
        else:
            spelled.append((stride, extent))
    return tuple((stride, extent) for stride, extent in spelled if extent > 1)


def replicated(steps: Steps) -> Layout:
    return Layout(replica=[(extent, stride, "m") for stride, extent in steps])


def test_every_small_image_has_one_form() -> None:
    forms: dict[int, set[Steps]] = defaultdict(set)
    steps = [(stride, extent) for stride in range(1, 9) for extent in range(2, 5)]
    for count in (1, 2, 3):
        for chosen in itertools.combinations_with_replacement(steps, count):
            forms[image_bits(chosen)].add(least_steps(saturate(chosen)))
    assert len(forms) > 1400
    assert {image: found for image, found in forms.items() if len(found) > 1} == {}
    for image, found in forms.items():
        (form,) = found
        assert image_bits(form) == image
        assert least_steps(saturate(form)) == form


def test_overlapping_lists_always_have_a_form(full: bool) -> None:
    rng = random.Random(3)
    for number in range(4000 if full else 80):
        steps = overlapping(rng, 7, 2 ** (10 + number % 5))
        form = least_steps(steps)
        assert image_bits(form) == image_bits(steps)
        again = respelled(rng, steps)
        assert least_steps(saturate(again)) == form, (steps, again)
        assert replicated(again).canonical() == replicated(steps).canonical()
        assert same_map(replicated(again), replicated(steps)) is None


def test_recovered_replicas_have_the_same_form(full: bool) -> None:
    rng = random.Random(4)
    for _ in range(300 if full else 10):
        layout = replicated(overlapping(rng, 4, 400))
        points = [[dict(point).get("m", 0)] for point in sorted(layout(0))]
        assert recover([points], ["m"]).replica == layout.canonical().replica


def test_an_image_that_no_search_finishes_keeps_the_list_first_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(images, "_HARD", {})
    monkeypatch.setattr(images, "MAX_TRIES", 0)
    monkeypatch.setattr(images, "MAX_SECOND", 0)
    first, second = ((2, 3), (3, 5)), ((2, 5), (3, 2), (5, 2))  # one image, both saturated
    image = image_bits(first)
    with pytest.raises(SearchError, match="search too long"):
        factor(image)
    assert factor(image, second) == second
    assert factor(image, first) == second
    assert factor(image) == second


def test_copies_are_counted_without_listing_them() -> None:
    rows = [(10**6, -1, "z"), (10**6, 2**20, "z"), (3, 0, "z"), (7, 5, "p")]
    assert Layout(replica=rows).copies() == 7 * 10**12
    wide = Layout(replica=[(4, 2 * 2**40), (3, 3 * 2**40)])  # 6 twice, far apart
    assert wide.copies() == len(wide(0)) == 11
    with pytest.raises(
        SearchError, match="1000002000000 sums that overlap; expected at most 1048576"
    ):
        Layout(replica=[(10**6, 2), (10**6 + 2, 3)]).copies()


def test_both_searches_agree_on_whether_there_is_a_list() -> None:
    for image in range(1, 2**11, 2):
        found = factor(image)
        assert (found is None) == (search(image, (), 1) is None)
        assert found is None or image_bits(found) == image


def sums(steps: Steps) -> list[int]:
    """The image, by adding up all choices of digits."""
    ranges = [range(0, stride * extent, stride) for stride, extent in steps]
    return sorted({sum(choice) for choice in itertools.product(*ranges)})


def test_images_and_what_two_of_them_share() -> None:
    rng, cut = random.Random(11), 0
    for _ in range(300):
        steps = saturate(
            (rng.choice((1, 2, 3, 5, 7, 40, 41, 900)), rng.randint(2, 4))
            for _ in range(rng.randint(0, 4))
        )
        cut += len(list(clusters(steps))) > 1
        image = sums(steps)
        assert image_table(steps).tolist() == image
        for gap in {a - b for a, b in itertools.product(image[:12] + image[-12:], repeat=2)}:
            assert least_shared(steps, gap) == min(v for v in image if v - gap in image)
    assert cut > 50


def test_elements_with_many_copies() -> None:
    many = Layout.parse("S[4:1] + R[(100000,100000):(1,100000)]")
    assert many.aliasing().clash == (0, 1, (("m", 1),))
    assert Layout.parse("S[4:1] + R[(2,2):(1,1099511627776)] + 5@m").aliasing().clash == (
        0, 1, (("m", 6),),
    )  # fmt: skip
    assert Layout.parse("S[2:3] + R[1099511627776:0@m]")(1) == frozenset([(("m", 3),)])
    with pytest.raises(SearchError, match="1050624 copies of an element; expected at most 1048576"):
        Layout.parse("S[2:3] + R[(1026,1024):(1@p,1@m)]")(1)


def test_copies_that_no_list_reaches_are_refused() -> None:
    with pytest.raises(LayoutError, match="no sum of progressions"):
        recover([[[0], [1], [3]]], ["m"])
