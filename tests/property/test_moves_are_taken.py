"""What extraction chooses of programs that move elements, dispatch takes, and it is right.

Random programs of pads, slices, repeats, rolls, reshapes, masks and joins before, between and after
reductions, windows and products, of operands in dense, permuted, padded and blocked layouts: all of
them compile, every kernel is lowered and emitted, and they give what the program means.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import nn
from tests.unit.cuda.whole import interpreted, sample

xp = axe.array
CASES, SAMPLE = 400, 2
EXTENTS = (1, 2, 3, 4, 5, 6, 8, 12, 16)
MOST = 1500
TOLERANCES = {"f16": 2e-2, "f32": 1e-4, "i32": 0.0}
Step = Callable[[random.Random, Any], Any]


def counts(x: Any) -> bool:
    """Whether a value is of whole numbers, traced or not."""
    return str(x.dtype) in ("i32", "int32")


def ends(rng: random.Random, x: Any) -> list[tuple[int, int]]:
    return [(rng.choice((0, 0, 1, 3)), rng.choice((0, 0, 1, 2))) for _ in x.shape]


def pad(rng: random.Random, x: Any) -> Any:
    return xp.pad(x, ends(rng, x), constant_values=rng.choice((0, 1, -2)))


def part(rng: random.Random, x: Any) -> Any:
    index = []
    for extent in x.shape:
        begin = rng.randrange(extent)
        end = rng.randint(begin + 1, extent)
        step = rng.choice((1, 1, 1, 2, 3))
        back = slice(end - 1, begin - 1 if begin else None, -step)
        index.append(rng.choice((slice(None), slice(begin, end, step), back)))
    return x[tuple(index)]


def repeat(rng: random.Random, x: Any) -> Any:
    return xp.repeat(x, rng.choice((2, 3)), axis=rng.randrange(x.ndim))


def tile(rng: random.Random, x: Any) -> Any:
    return xp.tile(x, tuple(rng.choice((1, 1, 2)) for _ in x.shape))


def roll(rng: random.Random, x: Any) -> Any:
    return xp.roll(x, rng.randint(-4, 4), axis=rng.randrange(x.ndim))


def turned(rng: random.Random, x: Any) -> Any:
    return xp.permute_dims(x, tuple(rng.sample(range(x.ndim), x.ndim)))


def reshape(rng: random.Random, x: Any) -> Any:
    rest, shape = prod(x.shape), []
    for factor in (2, 3, 4, 5):
        if rest % factor == 0 and rng.random() < 0.5:
            shape.append(factor)
            rest //= factor
    shape.append(rest)
    rng.shuffle(shape)
    return xp.reshape(x, rng.choice((tuple(shape), tuple(shape), (-1,))))


def joined(rng: random.Random, x: Any) -> Any:
    return xp.concat([x, part(rng, x) if x.ndim == 1 else x * 2], axis=rng.randrange(x.ndim))


def triangle(rng: random.Random, x: Any) -> Any:
    fn = rng.choice((xp.tril, xp.triu))
    return fn(x, k=rng.randint(-2, 2)) if x.ndim > 1 else x + xp.astype(
        xp.arange(x.shape[0]), x.dtype
    )  # fmt: skip


def reduction(rng: random.Random, x: Any) -> Any:
    axes = tuple(d for d in range(x.ndim) if rng.random() < 0.5) or None
    return rng.choice((xp.sum, xp.max, xp.min))(x, axis=axes, keepdims=rng.random() < 0.6)


def row(rng: random.Random, x: Any) -> Any:
    axis = rng.randrange(x.ndim)
    if counts(x):
        return x - xp.max(x, axis=axis, keepdims=True)
    return rng.choice((nn.softmax, nn.rmsnorm, nn.layernorm))(x, axis=axis)


def scan(rng: random.Random, x: Any) -> Any:
    fn, axis = rng.choice((xp.cumulative_sum, xp.diff)), rng.randrange(x.ndim)
    return fn(x, axis=axis) if x.shape[axis] > 1 else xp.cumulative_sum(x, axis=axis)


def window(rng: random.Random, x: Any) -> Any:
    if x.ndim != 4 or min(x.shape[2:]) < 2:
        return x + 1
    pool = nn.max_pool2d if rng.random() < 0.5 or counts(x) else nn.avg_pool2d
    return pool(x, (2, 2), stride=rng.choice((1, 2)), padding=rng.choice((0, 1)))


def convolution(rng: random.Random, x: Any) -> Any:
    if x.ndim != 4 or min(x.shape[2:]) < 3 or counts(x):
        return x * 2
    weights = x[:1, :, :3, :3]
    return nn.conv2d(x, weights, stride=rng.choice((1, 2)), padding=rng.choice((0, 1, (0, 2))))


def square(rng: random.Random, x: Any) -> Any:
    return xp.matmul(x, xp.matrix_transpose(x)) if x.ndim > 1 else x * x


MOVES: tuple[Step, ...] = (
    pad, part, part, repeat, tile, roll, turned, reshape, reshape, joined, triangle,
)  # fmt: skip
STEPS: tuple[Step, ...] = (*MOVES, reduction, reduction, row, scan, window, convolution, square)


def layout(rng: random.Random, shape: tuple[int, ...]) -> axe.Layout | None:
    """None for dense, or dims in another order, apart from each other, or in blocks."""
    kind, iters = rng.choice(("dense", "dense", "permuted", "apart", "blocks")), []
    if kind == "dense":
        return None
    parts = [(e // 2, 2) if kind == "blocks" and e % 2 == 0 else (e,) for e in shape]
    places = [(d, n) for d, p in enumerate(parts) for n in range(len(p))]
    strides, size = dict[tuple[int, int], int](), 1
    for d, n in rng.sample(places, len(places)) if kind != "apart" else reversed(places):
        strides[d, n] = size
        size = size * parts[d][n] + (3 if kind == "apart" else 0)
    iters = [(parts[d][n], strides[d, n]) for d, n in places]
    return axe.Layout([i for i in iters if i[0] > 1] or [(1, 1)], offset={"m": rng.choice((0, 5))})


def program(rng: random.Random) -> tuple[Callable[[Any], Any], axe.Spec, list[str]]:
    """A function of one array, its spec, and the names of its steps."""
    while True:
        shape = tuple(rng.choice(EXTENTS) for _ in range(rng.choice((1, 2, 2, 3, 4, 4))))
        if prod(shape) <= MOST:
            break
    dtype, seed, n_steps = rng.choice(tuple(TOLERANCES)), rng.random(), rng.randint(2, 5)
    names = list[str]()

    def fn(x: Any) -> Any:
        steps = random.Random(seed)
        names.clear()
        while len(names) < n_steps:
            step = steps.choice(STEPS)
            y = step(steps, x)
            if y.ndim and prod(y.shape) <= 2 * MOST:
                x = y
            names.append(step.__name__)
        return x

    return fn, axe.Spec(shape, dtype, layout=layout(rng, shape)), names


def check(fn: Callable[..., Any], *specs: axe.Spec, seed: int = 0) -> None:
    """A program has a schedule, which is lowered, emitted and right."""
    exe = axe.compile(fn, *specs, target="h200")
    graph = exe.schedule.graph
    assert len(exe.source) == len(graph.steps)
    rng = np.random.default_rng(seed)
    inputs = [sample(rng, i.node.type) for i in axe.trace(fn, *specs).inputs]
    (got,) = interpreted(graph, inputs)
    want = np.asarray(axe.run(fn, *inputs))
    # Shares and means of whole numbers are f64, which round as well.
    allowed = max([*(TOLERANCES[s.dtype] for s in specs), 1e-12 if want.dtype == "f8" else 0.0])
    got, want = got.astype(np.float64).reshape(want.shape), want.astype(np.float64)
    np.testing.assert_array_equal(np.isfinite(got), np.isfinite(want))
    there = np.isfinite(want)
    scale = np.abs(want[there]).max(initial=0) + 1e-30
    worst = np.abs(got[there] - want[there]).max(initial=0) / scale
    assert worst <= allowed, f"{worst} of the largest value"


def test_random_programs_of_moves_are_taken_and_right(full: bool) -> None:
    seen = Counter[str]()
    for number in range(CASES if full else SAMPLE):
        rng = random.Random(f"moves {number}")
        fn, spec, names = program(rng)
        try:
            check(fn, spec)
        except Exception as error:
            error.add_note(f"case {number}: {' '.join(names)} of {spec}")
            raise
        seen.update(names)
    print(f"\nmoves taken: {dict(seen)}")
    assert not full or seen.keys() >= {s.__name__ for s in STEPS}


X, W = axe.Spec((1, 2, 6, 7), "f32"), axe.Spec((3, 2, 3, 3), "f32")
BLOCKS = axe.Layout.parse("S[(2,4,1):(1,2,-2)]")
ACROSS = axe.Layout.parse("S[(3,2,2,6):(12,1,36,2)]")
NAMED: dict[str, tuple[Callable[..., Any], tuple[axe.Spec, ...]]] = {
    "padded convolution": (lambda x, w: nn.conv2d(x, w, padding=1), (X, W)),
    "convolution of stride 2": (lambda x, w: nn.conv2d(x, w, padding=1, stride=2), (X, W)),
    "convolution of each channel": (
        lambda x, w: nn.conv2d(x, w, padding=1, groups=2), (X, axe.Spec((2, 1, 3, 3), "f32")),
    ),
    "padded largest": (lambda x: nn.max_pool2d(x, (3, 3), stride=2, padding=1), (X,)),
    "padded mean": (lambda x: nn.avg_pool2d(x, (2, 2), stride=1, padding=1), (X,)),
    "sums of normalised rows so far": (
        lambda x: xp.cumulative_sum(nn.layernorm(nn.rmsnorm(x)), axis=1), (axe.Spec((4, 5), "f32"),)
    ),
    "a repeated sum": (
        lambda x: xp.repeat(xp.sum(x, axis=0), 3, axis=0), (axe.Spec((4, 5), "f32"),)
    ),
    "a sum of padding alone": (
        lambda x: xp.sum(xp.pad(x, [(0, 0), (1, 1)], constant_values=1)[:, 6:], axis=1),
        (axe.Spec((4, 5), "f32"),),
    ),
    "the square of a join": (
        lambda x: (lambda y: y @ xp.matrix_transpose(y))(xp.concat([x, 2 * x], axis=-1)),
        (axe.Spec((2, 4, 5), "f16"),),
    ),
    "the largest of the largest of one row": (
        lambda x: (lambda y: y - xp.max(y, axis=0, keepdims=True))(
            xp.max(x[3:4, 5::2], keepdims=True)
        ),
        (axe.Spec((5, 8), "i32"),),
    ),
    "a repeated constant": (
        lambda x: x * xp.repeat(xp.ones((2, 3)), 2, axis=1), (axe.Spec((2, 6), "f32"),)
    ),
    "a part of merged dims": (
        lambda x: xp.sum(xp.reshape(xp.exp(x), (20,))[3:17] * 2), (axe.Spec((4, 5), "f32"),)
    ),
    "the place of the largest": (
        lambda x: xp.argmax(x, axis=None), (axe.Spec((2, 4), "f32", layout=BLOCKS),)
    ),
    "a place that all parts but one miss": (
        lambda x: xp.concat([x, x + 1])[1:] * 2, (axe.Spec((1,), "f32"),)
    ),
    "a part of blocks": (
        lambda x: xp.diff(x[1:], axis=0), (axe.Spec((12, 6), "f32", layout=ACROSS),)
    ),
    "a mask over blocks": (
        lambda x, y: x + xp.pad(y, [(1, 0), (0, 0)]),
        (axe.Spec((12, 6), "f32", layout=ACROSS), axe.Spec((11, 6), "f32")),
    ),
    "scores of one key": (
        lambda q, k: xp.matmul(nn.softmax(xp.matmul(q, xp.matrix_transpose(k))), k),
        (axe.Spec((4, 8), "f32"), axe.Spec((1, 8), "f32")),
    ),
    "bools times a number": (lambda x: (x > 0) * 2 + 1, (axe.Spec((3, 4), "f32"),)),
}  # fmt: skip


@pytest.mark.sampled(3, slow=("sums of normalised rows so far",))
@pytest.mark.parametrize("name", NAMED)
def test_a_program_of_moves_is_taken_and_right(name: str) -> None:
    fn, specs = NAMED[name]
    check(fn, *specs)


def test_rows_of_floats_without_infinities_are_written() -> None:
    exe = axe.compile(
        lambda x: x - xp.max(x, axis=-1, keepdims=True), axe.Spec((17, 3), "f8e4m3"), target="h200"
    )
    assert len(exe.source) == len(exe.schedule.graph.steps) == 1
