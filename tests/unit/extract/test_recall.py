"""What a search remembers: answers for sets alike in what mattered, and each cone's figures."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from axe_eq.extract.price import figures, priced
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


def test_every_cone_is_summarised_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many sets of materialised values have it."""
    seen: list[tuple[Any, ...]] = []
    plain = figures.summarise

    def noted(
        forest: Any, roots: Sequence[int], picks: Any, stored: Sequence[str], order: Sequence[int]
    ) -> Any:
        seen.append((tuple(roots), tuple(stored), frozenset((t, id(c)) for t, c in picks.items())))
        return plain(forest, roots, picks, stored, order)

    monkeypatch.setattr(priced, "summarise", noted)
    for n_ops in (7, 14):
        search = search_of(forest_of(random_program(2, n_ops)))
        search.run()
        assert len(seen) == len(set(seen)) > 20
        seen.clear()
