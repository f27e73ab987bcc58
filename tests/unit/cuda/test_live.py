"""What of a streamed dim may weigh anything: against enumeration, and in kernels."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from axe_eq.kernel.cells import Cell, Constant, apply, arg, evaluate
from axe_eq.kernel.placement import number
from axe_eq.kernel.threads.interp import interpret
from axe_eq_backends.cuda.live import Live, Place, chunks
from axe_eq_backends.cuda.meaning import MEANINGS
from axe_eq_backends.cuda.planning import plan
from axe_eq_backends.cuda.schedules.chunks import Problem, Tensor, Tiling
from axe_eq_backends.cuda.schedules.stream import stream
from axe_eq_backends.cuda.target import h200
from tests.unit.cuda.test_streams import attention

SCORE, ROW, KEY, BATCH, GIVEN = (arg(n) for n in range(5))
ROWS, KEYS, BATCHES = 24, 30, 3
RELATIONS = ("lt", "le", "gt", "ge", "eq", "ne")


def masked(condition: Cell, other: float = -np.inf) -> Cell:
    return apply("where", condition, SCORE, other)


def read(score: Cell) -> Live:
    return Live(score, {1: 0, 2: 1, 3: 2}, {0: ROWS, 1: KEYS, 2: BATCHES}, 1, -np.inf)


def truly_live(score: Cell, first: int, last: int, batch: int) -> Any:
    """Keys at which a score of some row is not -inf, with conditions that are given both ways."""
    i, j = np.arange(first, last + 1, dtype=np.int32)[:, None], np.arange(KEYS, dtype=np.int32)
    found = np.zeros(KEYS, bool)
    for given in (False, True):
        operands = [np.float32(1), i, j, np.int32(batch), np.bool_(given)]
        value = np.broadcast_to(evaluate(score, operands), (last - first + 1, KEYS))
        found |= (value != -np.inf).any(axis=0)
    return np.flatnonzero(found)


def line(rng: np.random.Generator) -> Cell:
    """An affine function of positions."""
    cell: Cell = apply("cast i64", (ROW, KEY, BATCH)[rng.integers(3)])
    for _ in range(rng.integers(3)):
        other: Cell = (ROW, KEY, Constant(int(rng.integers(-20, 20))))[rng.integers(3)]
        cell = apply(("add", "sub")[rng.integers(2)], cell, other)
        if rng.random() < 0.3:
            cell = apply("mul", cell, Constant(int(rng.integers(-3, 4))))
    return apply("neg", cell) if rng.random() < 0.2 else cell


def condition(rng: np.random.Generator, depth: int) -> Cell:
    if depth and rng.random() < 0.7:
        parts = [condition(rng, depth - 1) for _ in range(3)]
        kind = ("and", "or", "not", "where")[rng.integers(4)]
        return apply(kind, *parts[: {"not": 1, "where": 3}.get(kind, 2)])
    if rng.random() < 0.1:
        return (GIVEN, Constant(value=True), Constant(value=False))[rng.integers(3)]
    return apply(RELATIONS[rng.integers(6)], line(rng), line(rng))


def test_no_live_key_is_outside_of_the_ends_of_any_condition() -> None:
    rng = np.random.default_rng(0)
    narrower: Any = 0
    for _ in range(200):
        score = masked(condition(rng, 2))
        if rng.random() < 0.3:
            score = apply("cast f16", apply("mul", score, 0.5))
        first, batch = int(rng.integers(ROWS)), int(rng.integers(BATCHES))
        last = min(first + int(rng.integers(8)), ROWS - 1)
        ends = read(score).ends({0: Place(first, last), 2: Place(batch, batch)})
        found = truly_live(score, first, last, batch)
        assert all(ends[0] <= j <= ends[1] for j in found), (str(score), ends, found)
        narrower += ends[1] - ends[0] + 1 < KEYS
    assert narrower > 40


def test_masks_take_nothing_of_the_keys_that_are_sure() -> None:
    """Of drawn conditions; what is unmasked is the score there."""
    rng = np.random.default_rng(1)
    found: Any = 0
    for n in range(400):
        other = condition(rng, 1)
        if rng.random() < 0.3:
            other = apply("or", apply("ge", ROW, KEY), apply("lt", KEY, int(rng.integers(KEYS))))
        live = read(masked(apply("and", condition(rng, 0), other) if n % 2 else other))
        first = int(rng.integers(ROWS))
        last, batch = min(first + int(rng.integers(8)), ROWS - 1), int(rng.integers(BATCHES))
        ends = live.sure({0: Place(first, last), 2: Place(batch, batch)})
        if ends is None:
            assert live.unmasked == live.score
            continue
        low, high = ends
        assert isinstance(low, int)
        assert isinstance(high, int)
        assert low >= 0
        assert high < KEYS
        i = np.arange(first, last + 1, dtype=np.int32)[:, None]
        j = np.arange(low, high + 1, dtype=np.int32)
        values = [
            np.broadcast_to(evaluate(c, [np.float32(1), i, j, np.int32(batch)]), (len(i), len(j)))
            for c in (live.score, live.unmasked)
        ]
        np.testing.assert_array_equal(values[0], values[1], str(live.score))
        assert np.isfinite(values[1]).all()
        found += len(j) > 0
    assert found > 60


def test_all_keys_that_a_causal_mask_leaves_every_row_are_sure() -> None:
    live = read(masked(apply("ge", ROW, KEY)))
    assert live.sure({0: Place(8, 15)}) == (0, 8)
    assert live.unmasked == SCORE
    assert read(masked(apply("and", apply("ge", ROW, KEY), GIVEN))).sure({0: Place(8, 15)}) is None
    assert live.mask == apply("ge", ROW, KEY)
    wide = apply("cast f32", masked(apply("ge", ROW, KEY)))
    assert read(wide).unmasked == apply("cast f32", SCORE)
    # A number that a cast may round is no unit of it.
    finite = masked(apply("ge", ROW, KEY), -1e4)
    for cell, known in ((finite, True), (apply("cast f16", finite), False)):
        found = Live(cell, {1: 0, 2: 1}, {0: 8, 1: 9}, 1, -1e4)
        assert (found.mask is not None) == known
    near = apply("lt", apply("sub", ROW, KEY), 20)
    window = read(masked(apply("and", apply("ge", ROW, KEY), near)))
    assert window.sure({0: Place(20, 23)}) == (4, 20)


@pytest.mark.parametrize("relation", RELATIONS[:5])
@pytest.mark.parametrize("step", [1, -1, 2, -3])
@pytest.mark.parametrize("slope", [1, -1, 2, 0])
def test_the_ends_of_one_comparison_are_those_of_its_keys(
    relation: str, step: int, slope: int
) -> None:
    for begin in (-17, 0, 5, 31):
        left = apply("add", apply("mul", KEY, step), begin)
        score = masked(apply(relation, left, apply("mul", ROW, slope)))
        for first, last in ((0, 3), (4, 4), (20, 23)):
            found = truly_live(score, first, last, 0)
            ends = read(score).ends({0: Place(first, last)})
            low, high = max(ends[0], 0), min(ends[1], KEYS - 1)
            if relation != "eq" and len(found):
                assert (low, high) == (found[0], found[-1]), (str(score), first, last)
            assert len(found) or relation == "eq" or low > high


@pytest.mark.parametrize(
    "score",
    [
        masked(apply("ge", ROW, KEY), -1e4),
        masked(GIVEN),
        masked(apply("ge", apply("cast f16", ROW), apply("cast f16", KEY))),
        masked(apply("ge", apply("mul", ROW, 1 << 40), KEY)),
        masked(apply("ge", apply("mul", ROW, KEY), 3)),
        apply("add", SCORE, masked(apply("ge", ROW, KEY))),
        apply("mul", masked(apply("ge", ROW, KEY)), -1.0),
        masked(apply("ge", ROW, 3)),
        apply("where", apply("ge", ROW, KEY), -np.inf, SCORE),
    ],
    ids=str,
)
def test_scores_that_are_not_known_to_be_minus_infinity_are_live(score: Cell) -> None:
    """Numbers as large as -1e4, rounded positions, products that leave 32 bits, and so on."""
    ends = read(score).ends({0: Place(0, 0)})
    assert ends[0] <= truly_live(score, 0, 0, 0).min(initial=KEYS)
    assert ends[1] == KEYS - 1


def test_one_chunk_is_read_where_nothing_is_live() -> None:
    assert chunks((KEYS, -1), KEYS, 8) == (0, 0)
    assert chunks((29, 29), KEYS, 8) == (3, 3)
    assert chunks((-5, 99), KEYS, 8) == (0, 3)
    assert chunks((8, 15), KEYS, 8) == (1, 1)


def banded(low: int, high: int, m: int, s: int, **changes: Any) -> Problem:
    """Scores of keys from `low` to `high` after their row; all others are -inf."""
    at = tuple(
        Tensor(f"at{d}", "i32", tuple(int(d == i) for i in range(3)), counts=True) for d in (1, 2)
    )
    far = apply("sub", KEY, ROW)
    kept = apply("and", apply("ge", far, low), apply("le", far, high))
    return attention((1,), m, s, scores=apply("where", kept, SCORE, -np.inf), extras=at, **changes)


BANDS = {
    "one chunk of five": (65, 66, 30, 150, 2), "three chunks": (40, 64, 60, 160, 2),
    "the first chunk": (-40, 0, 20, 150, 2), "the last, a part": (130, 200, 19, 150, 2),
    "rows without a key": (140, 200, 64, 150, 2), "no key at all": (200, 300, 40, 150, 2),
    "carried": (40, 64, 60, 157, 1), "tiles apart": (-10, 5, 150, 150, 1),
    "tiles of two consumers": (-30, 9, 160, 160, 2),
}  # fmt: skip


@pytest.mark.parametrize("name", BANDS)
def test_chunks_without_a_live_key_are_not_read_and_all_others_are(name: str) -> None:
    """Keys and values that no row may see in chunks that are left out are NaN here.

    A bound that is a chunk too wide reads NaN, one that is a chunk too narrow misses keys.
    """
    low, high, m, s, consumers = BANDS[name]
    p = banded(low, high, m, s)
    carried = name == "carried"
    if carried:
        p = replace(p, values=replace(p.values, strides=(s * 64, s, 1)))
    kernel = stream(p, Tiling(consumers, 32, 64, 1 if carried else 2))
    rng = np.random.default_rng(1)
    shapes = {"Q": (1, m, 64), "K": (1, s, 64), "V": (1, 64, s), "O": (1, m, 64)}
    arrays = {n: rng.standard_normal(e).astype(np.float16) / 2 for n, e in shapes.items()}
    i, j = np.arange(m)[:, None], np.arange(s)
    kept = (j - i >= low) & (j - i <= high)
    z = np.where(kept, (arrays["Q"][0].astype(float) @ arrays["K"][0].astype(float).T), -np.inf)
    with np.errstate(all="ignore"):
        e = np.exp(z - z.max(-1, keepdims=True))
        wanted = e @ arrays["V"][0].astype(float).T / e.sum(-1, keepdims=True)
    if m <= 64 * consumers and kept.any():  # one tile: what it skips nobody reads
        seen = np.flatnonzero(kept.any(axis=0)) // 32
        dead = (j // 32 < seen[0]) | (j // 32 > seen[-1])
        assert dead.any()
        arrays["K"][:, dead] = arrays["V"][:, :, dead] = np.nan
    given = {t.name: arrays[t.name].reshape([number(e) for e in t.shape]) for t in kernel.tensors}
    run = interpret(
        kernel, given, {}, planned=plan(kernel, h200), meanings=MEANINGS, order="random"
    )
    found = run.outputs["O"].reshape(m, 64)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    np.testing.assert_allclose(found, wanted, rtol=0, atol=4e-3)


def test_parts_that_a_score_shares_are_read_once() -> None:
    """A tree of these has 2 ** 60 leaves."""
    score: Cell = arg(0)
    place: Cell = arg(1)
    for _ in range(60):
        score, place = apply("mul", score, apply("tanh", score)), apply("sub", place, place)
    score = apply("where", apply("ge", apply("add", place, arg(1)), arg(2)), score, -math.inf)
    found = Live(score, {1: 0, 2: 1}, {0: 8, 1: 16}, 1, -math.inf)
    assert found.known
    assert found.ends({0: Place(2, 3)}) == (0, 3)
