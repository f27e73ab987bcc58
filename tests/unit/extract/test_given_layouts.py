"""Inputs and outputs in layouts that were given: blocks, padded ones, boxes in boxes, swizzles."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import product
from math import prod
from typing import Any

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.errors import SearchError
from axe_eq.kernel.cells import arg, evaluate
from axe_eq.layout import Layout
from axe_eq.lower.addresses import elements_of, looks_of
from axe_eq.program.types import Array
from axe_eq.schedule.memory import buffer_elements

xp = axe.array
Shape = tuple[int, ...]
TILES = ("(8)", "(4,16)", "(8,128)", "(2,3)", "(8,128)(2,1)", "(4,16)(2,1)")


def tiled(rng: random.Random, shape: Shape) -> Layout:
    """XLA's tiles of a value of this shape, of any order of its dims."""
    order = list(range(len(shape)))
    rng.shuffle(order)
    dims = ",".join(map(str, order))
    return axe.read("xla", f"f32[{','.join(map(str, shape))}]{{{dims}:T{rng.choice(TILES)}}}")


def blocked(rng: random.Random, shape: Shape) -> Layout:
    """Every dim in up to two blocks, in any order, with gaps at times."""
    digits = []
    for d, extent in enumerate(shape):
        inner = rng.choice([n for n in range(1, extent + 1) if extent % n == 0])
        digits += [(d, 0, extent // inner), (d, 1, inner)]
    memory, strides, step = rng.sample(digits, len(digits)), dict[Any, int](), 1
    for digit in reversed(memory):
        strides[digit] = step
        step = step * digit[2] + rng.choice((0, 0, 0, 3))
    return Layout([(digit[2], strides[digit]) for digit in digits])


def drawn(seed: int, shape: Shape) -> Layout:
    rng = random.Random(seed)
    layout = rng.choice((tiled, tiled, blocked))(rng, shape)
    if rng.random() < 0.2 and not layout.inner:
        boxes = (layout.box, layout.padded) if layout.box else ()
        swizzle = axe.Swizzle("m", 2, 0, 3)
        layout = Layout(layout.shard, (), layout.offset, (swizzle,), *boxes)
    return layout


# -- addresses ------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_integers_say_where_every_element_lies(seed: int) -> None:
    rng = random.Random(seed)
    shape = tuple(rng.randint(1, 13) for _ in range(rng.randint(1, 3)))
    layout = drawn(seed, shape)
    index = [x.reshape(-1).astype("i4") for x in np.indices(shape)]
    looks = looks_of(layout, [arg(d) for d in range(len(shape))], shape)
    assert looks is not None
    found = np.full(prod(shape), 0 if layout.swizzle else layout.offset.get("m", 0))
    for look in looks:
        at = np.broadcast_to(evaluate(look.cell, index), found.shape)
        assert 0 <= at.min(initial=0) <= at.max(initial=0) < look.extent
        found = found + at * look.stride
    assert np.array_equal(found, layout.table("m"))


@pytest.mark.parametrize("seed", range(40))
def test_every_place_is_that_of_its_element_or_padding(seed: int) -> None:
    rng = random.Random(seed)
    shape = tuple(rng.randint(1, 13) for _ in range(rng.randint(1, 3)))
    layout = tiled(rng, shape)
    digits = [e for e, _, _ in layout.shard]
    places = np.array(list(product(*map(range, digits))), "i4").reshape(-1, len(digits)).T
    cells = elements_of(layout, [arg(n) for n in range(len(digits))], shape)
    index = [np.broadcast_to(evaluate(c, list(places)), places.shape[1:]) for c in cells]
    element = np.ravel_multi_index(tuple(index), shape)  # padding has some element too
    memory = np.full(buffer_elements(str(layout)), -1)
    step = np.array([s for _, s, _ in layout.shard]).reshape(-1, 1)
    memory[layout.offset.get("m", 0) + (places * step).sum(axis=0, dtype=int)] = element
    assert np.array_equal(memory[layout.table("m")], np.arange(prod(shape)))


# -- programs -------------------------------------------------------------------------------------

# A program, and the shapes of its inputs.
PROGRAMS: dict[str, tuple[Callable[..., Any], Sequence[Shape]]] = {
    "cells": (lambda x, y: x * 2 + y, ((20, 37), (20, 37))),
    "turned": (lambda x: xp.permute_dims(x, (2, 0, 1)) + 1, ((6, 9, 20),)),
    "sums": (lambda x: xp.sum(x, axis=1), ((20, 37),)),
    "rows": (lambda x: nn.softmax(x), ((12, 40),)),
    "a product": (lambda a, b: a @ b, ((20, 24), (24, 18))),
    "a scan": (lambda x: xp.cumulative_sum(x, axis=1), ((6, 24),)),
    "a slice": (lambda x: x[2:, ::3] * 2, ((16, 24),)),
    "reshaped": (lambda x: xp.reshape(x, (24, 16)) + 1, ((16, 24),)),
    "joined": (lambda x, y: xp.concat([x, y], axis=1), ((12, 20), (12, 9))),
}


def specs(name: str, seed: int) -> list[axe.Spec]:
    shapes = PROGRAMS[name][1]
    return [axe.Spec(of, "f32", layout=drawn(7 * seed + n, of)) for n, of in enumerate(shapes)]


def arrays(name: str) -> list[Array]:
    rng = np.random.default_rng(0)
    return [rng.integers(-3, 4, of).astype("f4") for of in PROGRAMS[name][1]]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("target", ["cpu", "h200", "trn2"])
def test_inputs_are_read_however_they_lie(target: str, name: str, seed: int) -> None:
    fn, given = PROGRAMS[name][0], arrays(name)
    exe = axe.compile(fn, *specs(name, seed), target=target)
    assert np.allclose(exe.interpret(*given), axe.run(fn, *given), atol=1e-5)


@pytest.mark.sampled(5)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("target", ["cpu", "h200"])
def test_outputs_are_stored_however_they_are_to_lie(target: str, name: str, seed: int) -> None:
    (fn, shapes), given = PROGRAMS[name], arrays(name)
    want = axe.run(fn, *given)
    rng = random.Random(seed)
    wanted = rng.choice((tiled, blocked))(rng, want.shape)
    types = [axe.Spec(of, "f32") for of in shapes]
    exe = axe.compile(fn, *types, target=target, outputs=[wanted])
    assert exe.layouts["output 0"] == wanted.canonical()
    assert np.allclose(exe.interpret(*given), want, atol=1e-5)


def test_blocks_that_end_inside_are_no_gathers_on_trainium() -> None:
    """Parts of the index space are transfers of their own, each in runs of a tile's row."""
    layout = axe.read("xla", "f32[100,250]{1,0:T(8,128)}")
    exe = axe.compile(lambda x: x * 2, axe.Spec((100, 250), "f32", layout=layout), target="trn2")
    (text,) = exe.source.values()
    assert "dma_copy" in text
    assert "vector_offset" not in text
    assert "indirect" not in text
    x = np.arange(25000, dtype="f4").reshape(100, 250)
    assert np.array_equal(exe.interpret(x), x * 2)


def test_a_result_with_gaps_is_refused_on_trainium() -> None:
    padded = axe.read("xla", "f32[20,37]{1,0:T(8,16)}")
    with pytest.raises(SearchError, match=r"lies in box.*, 1152 elements for 740; expected a layo"):
        axe.compile(lambda x: x * 2, "20x37:f32", target="trn2", outputs=[padded])


def test_several_results_may_end_in_blocks() -> None:
    layout = axe.read("xla", "f32[20,37]{1,0:T(8,16)}")
    outs = [layout, None, layout]
    x = np.arange(740, dtype="f4").reshape(20, 37)

    def fn(x: Any) -> Any:
        return x * 2, xp.sum(x, axis=1), x + 1

    exe = axe.compile(fn, "20x37:f32", target="h200", outputs=outs)
    for got, want in zip(exe.interpret(x), axe.run(fn, x), strict=True):
        assert np.allclose(got, want)


# -- what drawing such layouts showed about others ---------------------------------------------


@pytest.mark.parametrize("target", ["h200", "trn2"])
def test_a_sum_that_is_taken_shares_no_dim_with_the_integers(target: str) -> None:
    """The dim that is summed is as long as there are integers, and is none of theirs."""
    x, i = arrays("a product")[0][:8, :8], np.array([3, 1, 0, 7, 7, 2, 5, 6], "i4")

    def fn(x: Any, i: Any) -> Any:
        return xp.take(xp.sum(x, axis=1), i, axis=0)

    exe = axe.compile(fn, "8x8:f32", "8:i32", target=target)
    assert np.array_equal(exe.interpret(x, i), x.sum(axis=1)[i])


def test_windows_that_slide_by_single_elements_are_no_bulk_copies() -> None:
    exe = axe.compile(nn.conv2d, "1x8x16x16:bf16", "8x8x2x8:bf16", target="h200")
    assert {k.schedule for k in exe.kernels} == {"register_products"}
