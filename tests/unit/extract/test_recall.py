"""What a search remembers: answers for sets alike in what mattered, and each cone's figures."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import product
from typing import Any

import pytest

from axe_eq.extract.price import cone, figures, priced
from axe_eq.extract.read.forest import CELL, Choice
from axe_eq.extract.search.recall import Recall, bits
from tests.unit.extract.graphs import forest_of, random_program, search_of


def looked_up(members: int, start: int) -> tuple[int, int]:
    """A walk over members that looks at different ones by what it finds: (answer, looked at)."""
    at, met = start, 0
    for _ in range(3):
        met |= 1 << at
        at = (2 * at + 1 + (members >> at & 1)) % 8
    return at, met


@pytest.mark.parametrize("most", [1, 5, 1000])
def test_what_is_recalled_is_what_the_set_gives(most: int) -> None:
    known, rng, hits = Recall[int](most), random.Random(most), 0
    for _ in range(2000):
        members, start = rng.randrange(256), rng.randrange(8)
        answer, met = looked_up(members, start)
        found = known.find(start, members)
        assert found in (None, answer)
        hits += found is not None
        if found is None:
            known.keep(start, met=met, members=members, answer=answer)
    assert hits > 100
    assert hits >= 1900 or most < 1000, "walks of three steps have at most 8 ends each"


def test_nothing_is_kept_where_no_place_is_given() -> None:
    known = Recall[str](0)
    known.keep(0, met=bits([1]), members=bits([1]), answer="yes")
    assert known.find(0, bits([1])) is None


def test_pairs_of_cones_are_compared_by_the_arithmetic_of_both() -> None:
    rng, rivals = random.Random(0), 0
    choices = [Choice(CELL, str(n), "", (), vector=rng.random()) for n in range(40)]

    def some(n: int) -> list[cone.Cone]:
        tiles = [rng.sample(range(40), rng.randint(1, 8)) for _ in range(n)]
        return [
            cone.Cone({t: choices[t] for t in of}, bits(of), bits(t for t in of if t < 3))
            for of in tiles
        ]

    for _ in range(200):
        left, right = some(rng.randint(1, 9)), some(rng.randint(1, 9))
        kept: dict[int, cone.Picks] = {}
        for a, b in product(left, right):  # of equal marks the first that has the least
            picks = {**b.picks, **a.picks}
            rival = kept.setdefault(a.marks | b.marks, picks)
            rivals += rival is not picks
            if sum(c.vector for c in picks.values()) < sum(c.vector for c in rival.values()):
                kept[a.marks | b.marks] = picks
        found = cone._merged(left, right, 100)
        assert {c.marks: list(c.picks) for c in found} == {m: list(p) for m, p in kept.items()}
        assert all(c.work == (sum(x.vector for x in c.picks.values()), c.size) for c in found)
    assert rivals > 1000


def test_every_cone_is_summarised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many sets of materialised values have it."""
    seen: list[tuple[Any, ...]] = []
    plain = figures.summarise

    def noted(forest: Any, roots: Sequence[int], picks: Any, stored: Any, *rest: Any) -> Any:
        seen.append((tuple(roots), tuple(stored), frozenset((t, id(c)) for t, c in picks.items())))
        return plain(forest, roots, picks, stored, *rest)

    monkeypatch.setattr(priced, "summarise", noted)
    for n_ops in (7, 14):
        search = search_of(forest_of(random_program(2, n_ops)))
        search.run()
        assert len(seen) == len(set(seen)) > 20
        seen.clear()
