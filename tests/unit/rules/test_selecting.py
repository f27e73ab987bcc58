"""The algebra of selectors against numpy: random selectors after each other and over joins."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest

from axe_eq.errors import ProgramError
from axe_eq.program.meaning import evaluate_sel
from axe_eq.program.ops import join_text, split_text
from axe_eq.program.types import Array
from axe_eq_rules import selecting

Shape = tuple[int, ...]
SAMPLES, FULL = 4000, 100_000


def random_shape(chance: random.Random) -> Shape:
    return tuple(chance.choice((1, 2, 3, 4, 6, 8)) for _ in range(chance.randint(1, 3)))


def random_part(chance: random.Random, extent: int) -> selecting.Part:
    if chance.random() < 0.4:
        return None
    step, start = chance.choice((1, 1, 2, 3, -1, -2)), chance.randrange(extent)
    most = 1 + (extent - 1 - start) // step if step > 0 else 1 + start // -step
    return start, step, chance.randint(1, most)


def random_selector(chance: random.Random, shape: Shape) -> str:
    name = chance.choice(("slice", "slice", "pad", "split", "merge"))
    axis = chance.randrange(len(shape))
    match name:
        case "slice":
            return join_text("slice", tuple(random_part(chance, extent) for extent in shape))
        case "pad":
            widths = tuple(
                (chance.choice((0, 0, 1, 2, 4)), chance.choice((0, 0, 1, 4))) for _ in shape
            )
            return join_text("pad", widths, chance.choice((0, 0, 1)))
        case "split":
            factors: list[int] = []
            for _ in range(chance.randint(1, 2)):
                left = shape[axis] // math.prod(factors)
                factors.append(chance.choice([f for f in range(1, left + 1) if left % f == 0]))
            return join_text("split", axis, (-1, *factors))
    return join_text("merge", axis, chance.randint(1, len(shape) - axis))


def numbers(shape: Shape, sign: int = 1) -> Array:
    return np.arange(1, math.prod(shape) + 1, dtype=np.float32).reshape(shape) * np.float32(sign)


def same(a: Array, b: Array) -> bool:
    return a.shape == b.shape and bool((a == b).all())


@pytest.fixture
def campaign(full: bool) -> Callable[[Callable[[random.Random, Counter[str]], None]], Counter[str]]:
    """Runs a check on many samples; what it counts must all have come up."""

    def run(check: Callable[[random.Random, Counter[str]], None]) -> Counter[str]:
        chance, seen = random.Random(0), Counter[str]()
        for _ in range(FULL if full else SAMPLES):
            check(chance, seen)
        return seen

    return run


Campaign = Callable[[Callable[[random.Random, Counter[str]], None]], Counter[str]]


def test_two_selectors_are_what_the_algebra_says(campaign: Campaign) -> None:
    def check(chance: random.Random, seen: Counter[str]) -> None:
        shape = random_shape(chance)
        x = numbers(shape)
        inner = random_selector(chance, shape)
        between = evaluate_sel(inner, [x])
        outer = random_selector(chance, between.shape)
        value = evaluate_sel(outer, [between])
        pair = f"{split_text(outer)[0]} of {split_text(inner)[0]}"
        if selecting.keeps_all(inner, shape):
            seen["identity"] += 1
            assert same(between, x)
        if selecting.cancels(outer, inner, shape):
            seen[f"cancels {pair}"] += 1
            assert same(value, x)
        one = selecting.fused(outer, inner, shape)
        if one is not None:
            seen[f"fuses {pair}"] += 1
            assert same(evaluate_sel(one, [x]), value)
        exchanged = selecting.exchanged(outer, inner, shape)
        if exchanged is not None:
            seen[f"exchanges {pair}"] += 1
            assert same(evaluate_sel(exchanged[0], [evaluate_sel(exchanged[1], [x])]), value)
            assert selecting.exchanged(*exchanged, shape) is None, "would never end"
        picked = selecting.picked(outer, inner, shape)
        if picked is not None:
            seen["picks"] += 1
            assert same(np.expand_dims(evaluate_sel(picked[0], [x]), picked[1] + 1), value)

    seen = campaign(check)
    expected = {
        "identity", "picks", "cancels merge of split", "cancels split of merge",
        "cancels slice of pad",
        *(f"fuses {name} of {name}" for name in ("slice", "pad", "split", "merge")),
        *(f"exchanges slice of {name}" for name in ("pad", "split", "merge")),
        "exchanges split of pad", "exchanges merge of pad", "exchanges split of split",
        "exchanges merge of merge", "exchanges split of merge",
    }  # fmt: skip
    assert expected <= seen.keys(), seen


def test_selectors_of_joins_are_what_the_algebra_says(campaign: Campaign) -> None:
    def check(chance: random.Random, seen: Counter[str]) -> None:
        first = random_shape(chance)
        axis = chance.randrange(len(first))
        second = (*first[:axis], chance.randint(1, 5), *first[axis + 1 :])
        x, y = numbers(first), numbers(second, -1)
        joined = np.concatenate([x, y], axis)
        spec = random_selector(chance, joined.shape)
        value = evaluate_sel(spec, [joined])
        slices = selecting.slice_of_join(spec, axis, first, second)
        if slices is not None:
            parts = selecting.parts_of(spec)
            assert parts is not None
            back = selecting.whole(parts[axis], joined.shape[axis])[1] < 0
            pieces = [evaluate_sel(k, [v]) for k, v in zip(slices, (x, y), strict=True) if k]
            seen[f"slice of {len(pieces)}{' backwards' if back and len(pieces) > 1 else ''}"] += 1
            assert same(np.concatenate(pieces[::-1] if back else pieces, axis), value)
        over = selecting.over_join(spec, axis, first, second)
        if over is not None:
            seen[split_text(spec)[0]] += 1
            pieces = [evaluate_sel(over[1], [x]), evaluate_sel(over[2], [y])]
            assert same(np.concatenate(pieces, over[0]), value)

    seen = campaign(check)
    wanted = {"slice of 1", "slice of 2", "slice of 2 backwards", "pad", "split", "merge"}
    assert wanted <= seen.keys(), seen


def test_joins_of_slices_are_what_the_algebra_says(campaign: Campaign) -> None:
    rules = {"concat": selecting.adjacent, "interleave": selecting.alternating}

    def check(chance: random.Random, seen: Counter[str]) -> None:
        shape = random_shape(chance)
        axis = chance.randrange(len(shape))
        x = numbers(shape)
        parts = [random_part(chance, extent) for extent in shape]
        first = selecting.slice_text(parts, shape)
        parts[axis] = random_part(chance, shape[axis])
        second = selecting.slice_text(parts, shape)
        a, b = evaluate_sel(first, [x]), evaluate_sel(second, [x])
        for name, rule in rules.items():
            together = rule(first, second, axis, shape)
            if together is None:
                continue
            try:
                joined = evaluate_sel(f"{name} {axis}", [a, b])
            except ProgramError:  # only equal shapes interleave
                continue
            seen[name] += 1
            assert same(evaluate_sel(together, [x]), joined)

    assert campaign(check).keys() == rules.keys()


def test_the_step_of_one_index_alone_is_one() -> None:
    text = selecting.slice_text(((2, -3, 1), (0, 5, 1), (0, 2, 2)), (4, 1, 4))
    assert text == join_text("slice", ((2, 1, 1), None, (0, 2, 2)))
    assert selecting.keeps_all(join_text("slice", ((0, -2, 1),)), (1,))
    twice = join_text("slice", ((0, -2, 1), (3, 3, 1)))
    assert selecting.fused(twice, twice, (1, 4)) is not None
    assert selecting.fused(twice, join_text("slice", ((0, 7, 1), None)), (1, 4)) == join_text(
        "slice", (None, (3, 1, 1))
    )
