"""Drawn rank programs as lists of steps, and what every rank computes of them, element by element.

The oracle is numpy alone: a list with one array per rank, and collectives as loops over ranks.
Parts of whole arrays are read off layouts by their definition, one element at a time.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import prod
from typing import Any

import numpy as np

import axe_eq as axe
import axe_eq.array as xp
from axe_eq import mesh as m
from axe_eq.layout import Layout, Mesh
from axe_eq.program.types import Array
from axe_eq.schedule import shard

MESHES = ({"x": 2}, {"x": 3}, {"x": 4}, {"x": 2, "y": 2}, {"x": 2, "y": 3}, {"dp": 2, "tp": 2})
Step = tuple[Any, ...]  # name, number of the value it takes, parameters
COLLECTIVES = ("psum", "pmax", "all_gather", "psum_scatter", "all_to_all", "ppermute")


@dataclass(frozen=True)
class Recipe:
    """A rank program: whole input shapes and layouts, steps, and how the last value is cut."""

    mesh: tuple[tuple[str, int], ...]
    inputs: tuple[tuple[tuple[int, ...], str], ...]  # shape, box of the mesh
    steps: tuple[Step, ...]
    output: str

    @property
    def text(self) -> str:
        return shard.mesh_text(Mesh(dict(self.mesh)))

    def layout(self, shape: tuple[int, ...], box: str) -> Layout:
        return Layout.parse(
            shard.uneven_layout(f"i32[{','.join(map(str, shape))}]", box, self.text)
        )

    def program(self) -> m.RankProgram:
        def fn(*given: Any) -> Any:
            values = list(given)
            for name, of, *params in self.steps:
                values.append(TRACED[name](*(values[n] for n in of), *params))
            return values[-1]

        whole = self.whole_shape()
        return m.RankProgram(
            fn, Mesh(dict(self.mesh)), [self.layout(s, b) for s, b in self.inputs],
            axe.Spec(whole, "i32", layout=self.layout(whole, self.output)),
        )  # fmt: skip

    def whole_shape(self) -> tuple[int, ...]:
        sizes = dict(self.mesh)
        local = self.local_shapes()[-1]
        cuts = shard.entries(self.output)
        return tuple(n * prod(sizes[a] for a in c) for n, c in zip(local, cuts, strict=True))

    def local_shapes(self) -> list[tuple[int, ...]]:
        zeros = [np.zeros(s, np.int32) for s, _ in self.inputs]
        return [v.shape for v in self.values(zeros)[0]]

    def specs(self) -> list[axe.Spec]:
        return [axe.Spec(s, "i32") for s, _ in self.inputs]

    # -- the oracle

    def places(self) -> list[dict[str, int]]:
        names = [n for n, _ in self.mesh]
        every = product(*(range(size) for _, size in self.mesh))
        return [dict(zip(names, at, strict=True)) for at in every]

    def values(self, arrays: Sequence[Array]) -> list[list[Array]]:
        """Every value of every rank."""
        places = self.places()
        values = [
            [
                part(a, self.layout(s, b), rank)
                for a, (s, b) in zip(arrays, self.inputs, strict=True)
            ]
            for rank in range(len(places))
        ]
        for name, of, *params in self.steps:
            given = [[values[rank][n] for n in of] for rank in range(len(places))]
            if name in COLLECTIVES or name == "axis_index":
                found = COLLECT[name](self, places, [g[0] for g in given], *params)
            else:
                found = [LOCAL[name](*g, *params) for g in given]
            for mine, value in zip(values, found, strict=True):
                mine.append(np.asarray(value, np.int32))
        return values

    def results(self, arrays: Sequence[Array]) -> list[Array]:
        return [mine[-1] for mine in self.values(arrays)]

    def arguments(self, rng: np.random.Generator) -> list[Array]:
        return [rng.integers(-3, 4, s).astype(np.int32) for s, _ in self.inputs]


def part(value: Array, layout: Layout, rank: int) -> Array:
    """A rank's part, read off the layout's definition."""
    flat = value.reshape(-1)
    shape = shard.part_shape(f"i32[{','.join(map(str, value.shape))}]", layout, _mesh_text(layout))
    assert shape is not None
    own = np.zeros(prod(shape), value.dtype)
    for address, x in _held(layout).get(rank, {}).items():
        own[address] = flat[x]
    return own.reshape(shape)


@cache
def _held(layout: Layout) -> dict[int, dict[int, int]]:
    """Per rank, which element lies at each address."""
    held: dict[int, dict[int, int]] = {}
    for x in range(layout.size):
        for coordinate in layout(x):
            at = dict(coordinate)
            held.setdefault(at.get("gpuid", 0), {})[at.get("m", 0)] = x
    return held


_TEXTS: dict[Layout, str] = {}


def _mesh_text(layout: Layout) -> str:
    return _TEXTS[layout]


def groups(places: Sequence[dict[str, int]], axes: Sequence[str]) -> list[list[int]]:
    """Ranks that differ along these axes alone, in the order of their indices along them."""
    found: dict[Any, list[tuple[Any, int]]] = {}
    for rank, at in enumerate(places):
        key = tuple(n for a, n in at.items() if a not in axes)
        found.setdefault(key, []).append((tuple(at[a] for a in axes), rank))
    return [[rank for _, rank in sorted(group)] for group in found.values()]


def _collect(fn: Callable[..., Any]) -> Any:
    def run(
        of: Recipe,
        places: Sequence[dict[str, int]],
        values: Sequence[Array],
        axes: Any,
        *params: Any,
    ) -> list[Array]:
        found: list[Any] = [None] * len(places)
        for group in groups(places, axes):
            mine = [values[rank] for rank in group]
            for number, rank in enumerate(group):
                found[rank] = fn(mine, number, *params)
        return found

    return run


def _sent(values: list[Array], me: int, pairs: Any) -> Array:
    for src, dst in pairs:
        if dst == me:
            return np.asarray(values[src])
    return np.zeros_like(values[me])


def _scattered(values: list[Array], me: int, dim: int) -> Array:
    return np.asarray(np.split(sum(values[1:], values[0]), len(values), dim)[me])


def _exchanged(values: list[Array], me: int, split: int, concat: int) -> Any:
    return np.concatenate([np.split(v, len(values), split)[me] for v in values], concat)


def _folded(fn: Any) -> Any:
    def run(values: list[Array], me: int) -> Array:
        total = values[0]
        for value in values[1:]:
            total = fn(total, value)
        return total

    return run


COLLECT: dict[str, Any] = {
    "psum": _collect(_folded(np.add)),
    "pmax": _collect(_folded(np.maximum)),
    "all_gather": _collect(lambda values, me, dim: np.concatenate(values, dim)),
    "psum_scatter": _collect(_scattered),
    "all_to_all": _collect(_exchanged),
    "ppermute": _collect(_sent),
    "axis_index": _collect(lambda values, me: values[me] + np.int32(me)),
}
LOCAL: dict[str, Any] = {
    "relu": lambda x: np.maximum(x, 0),
    "scale": lambda x, k: x * np.int32(k),
    "shift": lambda x, k: x + np.int32(k),
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "matmul": lambda x, y: x @ y,
    "sum": lambda x, dim: x.sum(dim, dtype=np.int32, keepdims=True),
    "max": lambda x, dim: x.max(dim, keepdims=True),
    "turn": lambda x: x.T,
    "flip": lambda x, dim: np.flip(x, dim),
    "head": lambda x, dim, n: np.take(x, np.arange(n), dim),
    "twice": lambda x, dim: np.concatenate([x, x], dim),
}
TRACED: dict[str, Any] = {
    "psum": m.psum,
    "pmax": m.pmax,
    "all_gather": lambda x, axes, dim: m.all_gather(x, axes, axis=dim, tiled=True),
    "psum_scatter": lambda x, axes, dim: m.psum_scatter(x, axes, scatter_dimension=dim, tiled=True),
    "all_to_all": lambda x, axes, split, concat: m.all_to_all(x, axes, split, concat, tiled=True),
    "ppermute": m.ppermute,
    "axis_index": lambda x, axes: x + m.axis_index(axes),
    "relu": lambda x: xp.maximum(x, 0),
    "scale": lambda x, k: x * k,
    "shift": lambda x, k: x + k,
    "add": lambda x, y: x + y,
    "mul": lambda x, y: x * y,
    "matmul": lambda x, y: x @ y,
    "sum": lambda x, dim: xp.sum(x, axis=dim, keepdims=True, dtype=x.dtype),
    "max": lambda x, dim: xp.max(x, axis=dim, keepdims=True),
    "turn": lambda x: x.T,
    "flip": lambda x, dim: xp.flip(x, axis=dim),
    "head": lambda x, dim, n: x[:n] if dim == 0 else x[:, :n],
    "twice": lambda x, dim: xp.concat([x, x], axis=dim),
}


# -- drawing ---------------------------------------------------------------------------------------


def _box(rng: random.Random, mesh: dict[str, int], rank: int = 2) -> str:
    dims: list[list[str]] = [[] for _ in range(rank)]
    for axis in mesh:
        if rng.random() < 0.7:
            rng.choice(dims).append(axis)
    return shard.show(dims)


def drawn(seed: int) -> Recipe:
    """A drawn rank program."""
    rng = random.Random(seed)
    mesh = rng.choice(MESHES)
    inputs = tuple(
        ((rng.choice([4, 6, 8, 12]), rng.choice([4, 6, 12])), _box(rng, mesh))
        for _ in range(rng.choice([1, 2, 2]))
    )
    recipe = Recipe(tuple(mesh.items()), inputs, (), _box(rng, mesh))
    recipe = _with_texts(recipe)
    for _ in range(rng.randrange(2, 7)):
        step = _a_step(recipe, rng)
        if step is not None:
            recipe = replace(recipe, steps=(*recipe.steps, step))
    if not recipe.steps:
        recipe = replace(recipe, steps=(("relu", (0,)),))
    return _with_texts(recipe)


def _with_texts(recipe: Recipe) -> Recipe:
    for shape, box in recipe.inputs:
        _TEXTS[recipe.layout(shape, box)] = recipe.text
    return recipe


def _axes(rng: random.Random, recipe: Recipe) -> tuple[str, ...]:
    names = [n for n, _ in recipe.mesh]
    rng.shuffle(names)
    return tuple(names[: rng.randrange(1, len(names) + 1)])


def _a_step(recipe: Recipe, rng: random.Random) -> Step | None:
    """A step that fits, on late values above all."""
    shapes = recipe.local_shapes()
    of = len(shapes) - 1 if rng.random() < 0.7 else rng.randrange(len(shapes))
    name = rng.choice([*COLLECTIVES, *COLLECTIVES, "axis_index", *LOCAL])
    return _of_kind(recipe, shapes, of, name, rng)


def _of_kind(
    recipe: Recipe, shapes: Sequence[tuple[int, ...]], of: int, name: str, rng: random.Random
) -> Step | None:
    shape, axes = shapes[of], _axes(rng, recipe)
    n = prod(dict(recipe.mesh)[a] for a in axes)
    dim = rng.randrange(2)
    if name in ("psum", "pmax", "axis_index"):
        return (name, (of,), axes)
    if name == "all_gather" or name == "twice":
        if prod(shape) * n > 600:
            return None
        return (name, (of,), axes, dim) if name == "all_gather" else (name, (of,), dim)
    if name == "psum_scatter":
        return None if shape[dim] % n else (name, (of,), axes, dim)
    if name == "all_to_all":
        return None if shape[dim] % n else (name, (of,), axes, dim, rng.randrange(2))
    if name == "ppermute":
        pairs = list(zip(range(n), rng.sample(range(n), n), strict=True))
        if rng.random() < 0.5:
            k = rng.randrange(n)
            pairs = [(i, (i + k) % n) for i in range(n)]
        if rng.random() < 0.3:
            pairs = rng.sample(pairs, max(1, len(pairs) - 1))
        return (name, (of,), axes, tuple(sorted(pairs)))
    if name in ("add", "mul"):
        fitting = [k for k, s in enumerate(shapes) if s == shape]
        return (name, (of, rng.choice(fitting)))
    if name == "matmul":
        fitting = [k for k, s in enumerate(shapes) if s[0] == shape[1]]
        return (name, (of, rng.choice(fitting))) if fitting else None
    if name in ("scale", "shift"):
        return (name, (of,), rng.choice([-2, -1, 2, 3]))
    if name == "head":
        return (name, (of,), dim, rng.randrange(1, shape[dim] + 1))
    if name in ("relu", "turn"):
        return (name, (of,))
    return (name, (of,), dim)


def mutated(recipe: Recipe, rng: random.Random) -> Recipe | None:
    """The program with one thing changed: a slip, or another way to the same."""
    steps = list(recipe.steps)
    at = rng.randrange(len(steps))
    name, of, *params = steps[at]
    kind = rng.choice(["drop", "double", "way", "parameter", "operand", "insert", "swap"])
    if kind == "way":
        return _another_way(recipe, at)
    if kind == "double":
        steps.insert(at + 1, (name, of, *params))
        if name in COLLECTIVES:
            steps[at + 1] = (name, (len(recipe.inputs) + at,), *params)
        return _checked(recipe, steps, at + 1)
    if kind == "drop":
        if len(steps) == 1 or len(of) > 1:
            return None
        return _checked(recipe, steps, at, drop=of[0])
    if kind == "insert":
        extra = rng.choice([("scale", 2), ("shift", 1), ("relu",)])
        steps.insert(at + 1, (extra[0], (len(recipe.inputs) + at,), *extra[1:]))
        return _checked(recipe, steps, at + 1)
    if kind == "swap":
        steps[at] = ({"psum": "pmax", "pmax": "psum", "add": "mul", "mul": "add"}.get(name, name),
                     of, *params)  # fmt: skip
        return _checked(recipe, steps)
    if kind == "operand":
        shapes = recipe.local_shapes()
        which = rng.randrange(len(of))
        fitting = [k for k, s in enumerate(shapes[: len(recipe.inputs) + at])
                   if s == shapes[of[which]]]  # fmt: skip
        steps[at] = (name, (*of[:which], rng.choice(fitting), *of[which + 1 :]), *params)
        return _checked(recipe, steps)
    other = _of_kind(recipe, recipe.local_shapes()[: len(recipe.inputs) + at], of[0], name, rng)
    if other is None:
        return None
    steps[at] = (name, of, *other[2:])
    return _checked(recipe, steps)


def _another_way(recipe: Recipe, at: int) -> Recipe | None:
    """The same by other collectives: a sum in two, an exchange by gathering everything."""
    name, of, *params = recipe.steps[at]
    steps, here = list(recipe.steps), len(recipe.inputs) + at
    if name == "psum" and len(params[0]) > 1:
        axes = params[0]
        steps[at : at + 1] = [("psum", of, axes[:1]), ("psum", (here,), axes[1:])]
        return _checked(recipe, steps, at + 1)
    if name == "psum":
        n = prod(dict(recipe.mesh)[a] for a in params[0])
        shape = recipe.local_shapes()[of[0]]
        for dim in range(2):
            if shape[dim] % n == 0:
                steps[at : at + 1] = [
                    ("psum_scatter", of, params[0], dim),
                    ("all_gather", (here,), params[0], dim),
                ]
                return _checked(recipe, steps, at + 1)
    if name in ("relu", "scale") or name == "turn":
        steps[at : at + 1] = [("turn", of), (name, (here,), *params), ("turn", (here + 1,))]
        found = _checked(recipe, steps, at + 1)
        return found if found is None else _checked(found, list(found.steps))
    return None


def _checked(
    recipe: Recipe, steps: list[Step], inserted: int | None = None, drop: int | None = None
) -> Recipe | None:
    """The recipe with these steps, numbers of later values corrected; None if shapes do not fit."""
    first = len(recipe.inputs)
    extra = len(steps) - len(recipe.steps)
    if drop is not None:
        assert inserted is not None
        gone = first + inserted
        del steps[inserted]
        steps = [
            (n, tuple(drop if k == gone else k - (k > gone) for k in of), *p) for n, of, *p in steps
        ]
    elif inserted is not None:
        at = first + inserted  # values from the one before the last new step on are `extra` later
        steps = [
            (n, tuple(k + extra if k >= at - 1 and number > inserted + extra - 1 else k
                      for k in of), *p)
            for number, (n, of, *p) in enumerate(steps)
        ]  # fmt: skip
    made = replace(recipe, steps=tuple(steps))
    try:
        same = made.whole_shape() == recipe.whole_shape()
    except (ValueError, IndexError):
        return None
    return made if same else None
