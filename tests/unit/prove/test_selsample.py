"""Samples of selectors give what is wanted, by numpy; selectors of packs bring their own."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator

import numpy as np
import pytest

from axe_eq.check.selsample import Found, sample_selector, shapes_for
from axe_eq.program.decisions import Draw
from axe_eq.program.ops import SELECTORS, Known, Selector, selector, split_text
from axe_eq.program.types import DTYPES, ValueType


def draws(n: int) -> Iterator[Draw]:
    return (Draw(random.Random(seed)) for seed in range(n))


def some_type(draw: Draw) -> ValueType:
    shape = tuple(draw.pick(f"e{n}", (1, 2, 3, 4, 6)) for n in range(draw.integer("rank", 0, 3)))
    return ValueType(draw.pick("dtype", ("f32", "i64", "bool")), shape)


def computed(found: Found, of: str) -> ValueType:
    """The type of what numpy makes of zeros of the sampled shapes."""
    declared, params = selector(found[0])
    result = declared.run(params, [np.zeros(s, DTYPES[of].numpy) for s in found[1]])
    (name,) = (n for n, d in DTYPES.items() if d.numpy == result.dtype)
    return ValueType(name, result.shape)


@pytest.mark.parametrize("known", [[], [None], [None, None], [None, None, None]])
def test_samples_give_what_is_wanted(known: Known) -> None:
    seen: Counter[str] = Counter()
    for draw in draws(200):
        wanted = some_type(draw)
        found = sample_selector(draw, "s", known, wanted)
        if found is not None:
            seen[split_text(found[0])[0]] += 1
            assert computed(found, wanted.dtype) == wanted
    arities = (len(known), None) if known else (0,)
    # Not those that only laws make of a dim whose length they choose.
    moves = {n for n in SELECTORS if SELECTORS[n].look is None and SELECTORS[n].propose}
    assert set(seen) == {n for n in moves if SELECTORS[n].arity in arities}


def test_given_operands_stay() -> None:
    given, usable = ValueType("f32", (6, 4)), 0
    for draw in draws(200):
        wanted = ValueType("f32", (draw.integer("m", 1, 6), draw.integer("n", 1, 4)))
        found = sample_selector(draw, "s", [given], wanted)
        assert found is not None
        assert found[1] == [given.shape]
        assert computed(found, "f32") == wanted
        usable += shapes_for(draw, "t", found[0], None, [given], wanted) == found
    assert usable == 200


def test_every_text_that_was_sampled_gets_operands_again() -> None:
    for draw in draws(300):
        wanted, known = some_type(draw), draw.pick("known", ([], [None], [None, None]))
        found = sample_selector(draw, "s", known, wanted)
        if found is not None:
            again = shapes_for(draw, "t", found[0], None, known, wanted)
            assert again is not None
            assert again[0] == found[0]
            assert computed(again, wanted.dtype) == wanted


def test_text_that_does_not_fit_gives_nothing() -> None:
    wanted = ValueType("f32", (3,))
    texts = ["slice (None,None)", "pad ((0,0),(0,0)) 1.0", "merge 2 2", "repeat 0 2", "repeat 1 1"]
    for draw in draws(5):
        assert all(shapes_for(draw, "s", t, None, [None], wanted) is None for t in texts)
        for text in ("concat 1", "interleave 1", "interleave 0"):
            assert shapes_for(draw, "s", text, None, [None, None], wanted) is None
        assert shapes_for(draw, "s", "concat 0", None, [None] * 4, wanted) is None


def test_a_selector_of_a_pack_brings_its_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    head = Selector(
        "head", 1, lambda p, t: ValueType(t[0].dtype, t[0].shape[1:]), lambda p, a: a[0][p[0]],
        propose=lambda draw, at, wanted, known: (draw.integer(f"{at}.row", 0, 2),),
        operands=lambda draw, at, params, wanted, known: [(params[0] + 1, *wanted.shape)],
    )  # fmt: skip
    monkeypatch.setitem(SELECTORS._by_name, "head", head)
    wanted = ValueType("f32", (2, 3))
    sampled = [sample_selector(draw, "s", [None], wanted) for draw in draws(100)]
    assert ("head 2", [(3, 2, 3)]) in sampled
