"""Views of values in memory take no kernel and no byte: 50 drawn compositions of them, and others.

A view is a permutation, slice, stride, flip, split, merge or broadcast. Drawn ones lie between an
input and a kernel, between two kernels, and between a kernel and an output in any layout.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pytest

import axe_eq as axe
from axe_eq import nn
from axe_eq.program.types import Array, value_type
from axe_eq.schedule.meaning import viewed
from axe_eq.schedule.views import view_layout, view_type

xp = axe.array
Shape = tuple[int, ...]
View = Callable[[Any], Any]
SHAPES = ((64, 96), (48, 64), (8, 16, 32), (128, 64), (96, 40))
# One kernel more, by price or for want of a law: 20 turns what it has cut of reduced rows, which no
# kernel stores so; 48 computes before it copies, which takes numpy less time.
CPU_KERNELS = {20: 2, 48: 2}
INPUT, BETWEEN, OUTPUT = "input", "between", "output"


class Case(NamedTuple):
    """A program with a view in it.

    Attributes:
        program: the function and shapes of its inputs.
        n_kernels: it may take.
        most_bytes: they may move.
        outputs: as `axe.compile` has it.
    """

    program: Callable[..., Any]
    shapes: tuple[Shape, ...]
    n_kernels: int
    most_bytes: int
    outputs: Any


def along(d: int, part: slice) -> tuple[slice, ...]:
    return (*[slice(None)] * d, part)


def drawn_view(rng: random.Random, shape: Shape, copies: bool) -> tuple[View, Shape] | None:
    """One view of a value of this shape, and its shape; None where what is drawn does not fit."""
    d, r = rng.randrange(len(shape)), len(shape)
    extent = shape[d]
    kind = rng.choice(("permute", "slice", "stride", "flip", "split", "merge", "broadcast"))
    if kind == "permute":
        order = tuple(rng.sample(range(r), r))
        return (lambda x: xp.permute_dims(x, order)), tuple(shape[n] for n in order)
    if kind == "flip":
        return (lambda x: xp.flip(x, axis=d)), shape
    if kind == "broadcast" and copies and r < 4:
        wide = (*shape[:d], 4, *shape[d:])
        return (lambda x: xp.broadcast_to(xp.expand_dims(x, axis=d), wide)), wide
    if kind in ("slice", "stride") and extent % 8 == 0:
        first = rng.choice((0, extent // 4, extent // 2))
        part = slice(rng.randrange(2), None, 2) if kind == "stride" else slice(
            first, first + extent // 2
        )  # fmt: skip
        return (lambda x: x[along(d, part)]), (*shape[:d], extent // 2, *shape[d + 1 :])
    to = None
    if kind == "split" and r < 4 and extent % 4 == 0 and extent > 4:
        to = (*shape[:d], extent // 4, 4, *shape[d + 1 :])
    if kind == "merge" and d + 1 < r:
        to = (*shape[:d], extent * shape[d + 1], *shape[d + 2 :])
    return ((lambda x: xp.reshape(x, to)), to) if to else None


def drawn_views(rng: random.Random, shape: Shape, copies: bool) -> tuple[View, Shape]:
    """Up to three of them, one of the other."""
    made = list[View]()
    wanted = rng.randint(1, 3)
    while len(made) < wanted:
        if found := drawn_view(rng, shape, copies):
            made.append(found[0])
            shape = found[1]

    def view(x: Any) -> Any:
        for one in made:
            x = one(x)
        return x

    return view, shape


def case(seed: int) -> Case:
    """The program of a seed."""
    rng = random.Random(seed)
    where = (INPUT, BETWEEN, OUTPUT)[seed % 3]
    shape = rng.choice(SHAPES)
    copies = where != OUTPUT and rng.random() < 0.5
    view, seen = drawn_views(rng, shape, copies)
    made: Callable[[Any], Any] = rng.choice(
        (lambda x: nn.softmax(x, axis=-1), lambda x: nn.relu(x) * 0.5)
    )
    uses: list[Callable[[Any], Any]] = [lambda v: xp.sum(v, axis=-1), lambda v: v * 2.0 + 1.0]
    if not copies:  # rows of copies are reduced once, in a kernel before
        uses.append(lambda v: nn.softmax(v, axis=-1))
    used = rng.choice(uses)
    size, n_seen = prod(shape), prod(seen)
    if where == OUTPUT:
        return Case(lambda x: view(made(x)), (shape,), 1, 2 * (2 * size + n_seen), "any")
    shapes: tuple[Shape, ...] = (shape,)
    program: Callable[..., Any] = lambda x: used(view(made(x)))  # noqa: E731
    if where == INPUT:
        program = lambda x: used(view(x))  # noqa: E731
        if len(seen) > 1 and rng.random() < 0.5:
            shapes = (shape, (seen[-1], 32))
            program = lambda x, w: view(x) @ w  # noqa: E731
    out = axe.trace(program, *(axe.Spec(of, "f16") for of in shapes)).outputs[0].type
    n_other = prod(shapes[1]) if len(shapes) > 1 else 0
    between = 0 if where == INPUT else size + max(size, n_seen)
    moved = between + max(size, n_seen) + n_other
    n_kernels = 2 if where == BETWEEN else 1
    return Case(program, shapes, n_kernels, 2 * moved + out.n_bytes, None)


def integers(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float16)


def compiled(of: Case, target: str) -> Any:
    more = {"outputs": of.outputs} if of.outputs else {}
    return axe.compile(of.program, *(axe.Spec(s, "f16") for s in of.shapes), target=target, **more)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("seed", range(50))
def test_views_take_no_kernel_and_no_byte(seed: int) -> None:
    of = case(seed)
    arrays = [integers(*shape, seed=n) for n, shape in enumerate(of.shapes)]
    meant = np.asarray(axe.run(of.program, *arrays), np.float64)
    for target, moved in (("cpu", "ram_bytes"), ("h200", "gmem_bytes")):
        exe = compiled(of, target)
        most = CPU_KERNELS.get(seed, of.n_kernels) if target == "cpu" else of.n_kernels
        assert len(exe.schedule.steps) <= most
        if most > of.n_kernels:
            continue
        assert exe.cost.get(moved, 0) <= of.most_bytes
        found = exe(*arrays) if target == "cpu" else exe.interpret(*arrays)
        assert np.abs(np.asarray(found, np.float64) - meant).max() <= 4e-3 * np.abs(meant).max()


# -- what is read as it lies ----------------------------------------------------------------------

TURNED = lambda x: xp.reshape(xp.permute_dims(xp.reshape(x, (64, 8, 8)), (1, 0, 2)), (-1, 8))  # noqa: E731
OPERANDS: dict[str, View] = {
    "a slice of rows": lambda x: x[32:, :],
    "a slice of columns": lambda x: x[:, 16:48],
    "every other row": lambda x: x[::2, :],
    "heads beside each other": TURNED,
    "a slice, cut": lambda x: xp.reshape(x[:, 8:40], (64, 4, 8)),
}


@pytest.mark.parametrize("name", OPERANDS)
def test_products_take_views_by_bulk_copies(name: str) -> None:
    view = OPERANDS[name]
    seen = axe.trace(view, "64x64:f16").outputs[0].shape
    shapes = [(64, 64), (*seen[:-2], seen[-1], 32)]
    exe = axe.compile(lambda x, w: view(x) @ w, *(axe.Spec(s, "f16") for s in shapes),
                      target="h200")  # fmt: skip
    assert [k.schedule for k in exe.kernels] == ["tensor_cores"]
    x, w = integers(*shapes[0]), integers(*shapes[1], seed=1)
    assert np.array_equal(exe.interpret(x, w), axe.run(lambda x, w: view(x) @ w, x, w))


@pytest.mark.parametrize("view", ["a b -> b a", "a b -> b c a [c=3]", "slice ((3,-1,4),None)",
                                  "slice (None,(1,2,2))", "merge 0 2"])  # fmt: skip
@pytest.mark.parametrize(
    "layout", ["S[(24):(1@m)]", "S[(4,6):(1@m,4@m)]", "S[(4,6):(8@m,1@m)] + 2@m"]
)
def test_the_layout_of_a_view_is_where_its_elements_lie(view: str, layout: str) -> None:
    of = value_type("f32[4,6]")
    held = axe.Layout.parse(layout)
    seen = view_layout(view, of, layout)
    assert seen is not None
    places = held.table("m").reshape(of.shape)
    found = axe.Layout.parse(seen).table("m").reshape(view_type(view, of).shape)
    assert np.array_equal(found, viewed(view, places))


def test_a_view_that_fills_or_that_no_layout_has_is_none() -> None:
    of = value_type("f32[4,6]")
    for text in ("pad ((1,0),(0,0)) 0.0", "a b -> a; + b"):
        assert view_layout(text, of, "S[(24):(1@m)]") is None
    assert view_layout("slice ((0,1,3),)", value_type("f32[4]"), "S[(2,2):(1@m,5@m)]") is None


def test_views_are_bound_to_other_extents() -> None:
    def turned(x: Any) -> Any:
        return xp.reshape(xp.permute_dims(xp.reshape(x, (-1, 8, 8)), (1, 0, 2)), (8, -1)) + 1.0

    exe = axe.compile(turned, axe.Spec((16, 64), "f32", dims=("n", "")), target="cpu")
    assert len(exe.kernels) == 1
    x = np.arange(24 * 64, dtype=np.float32).reshape(24, 64)
    assert np.array_equal(exe.schedule.bind(n=24).run(x), axe.run(turned, x))


def test_reduced_rows_are_stored_merged_and_backwards() -> None:
    def backwards(x: Any) -> Any:
        return xp.flip(xp.reshape(nn.softmax(x, axis=-1), (-1,)))

    exe = axe.compile(backwards, "64x96:f16", target="h200")
    assert len(exe.schedule.steps) == 1
    x = integers(64, 96)
    assert np.abs(exe.interpret(x) - axe.run(backwards, x)).max() < 1e-3
