"""Random layouts over devices, and what a redistribution must do, element by element."""

from __future__ import annotations

from math import prod

import numpy as np

from axe_eq.layout import Layout, Mesh, Swizzle
from axe_eq.layout.notation import read

MESHES = [(1,), (2,), (3,), (4,), (8,), (2, 2), (2, 3), (2, 4), (2, 2, 2)]
SHAPES = [(), (8,), (24,), (4, 6), (8, 8), (12, 4), (16, 24), (2, 8, 6), (4, 4, 4), (5, 7), (1, 9)]


def random_layout(rng: np.random.Generator, shape: tuple[int, ...]) -> Layout:
    """A layout of a value over some devices: blocks, cycles, replicas, local orders, boxes."""
    sizes = MESHES[int(rng.integers(len(MESHES)))]
    if shape and rng.random() < 0.2:
        return uneven(rng, shape, sizes)
    axes = [(n, prod(sizes[k + 1 :])) for k, n in enumerate(sizes)]
    rng.shuffle(axes)
    left = list(shape)
    outer: list[list[tuple[int, int, str]]] = [[] for _ in shape]
    inner: list[list[tuple[int, int, str]]] = [[] for _ in shape]
    replica: list[tuple[int, int, str]] = []
    offset: dict[str, int] = {}
    for size, stride in axes:
        dims = [d for d, n in enumerate(left) if n % size == 0 and n > 1]
        what = rng.random()
        if dims and what < 0.6:
            d = dims[int(rng.integers(len(dims)))]
            left[d] //= size
            (outer if rng.random() < 0.7 else inner)[d].append((size, int(stride), "gpuid"))
        elif what < 0.9:
            replica.append((size, int(stride), "gpuid"))
        else:
            offset["gpuid"] = offset.get("gpuid", 0) + int(rng.integers(size)) * int(stride)
    order = [int(d) for d in rng.permutation(len(shape))]
    step, strides = int(rng.choice([1, 1, 1, 2])), [0] * len(shape)
    for d in order:
        strides[d] = step
        step *= left[d] + int(rng.random() < 0.2)
    shard = []
    for d, n in enumerate(left):
        sign = -1 if rng.random() < 0.1 else 1
        if sign < 0:
            offset["m"] = offset.get("m", 0) + (n - 1) * strides[d]
        shard += [*outer[d], (n, sign * strides[d], "m"), *inner[d]]
    if rng.random() < 0.1:
        replica.append((2, max(step, 1), "m"))
    if rng.random() < 0.2:
        offset["m"] = offset.get("m", 0) + int(rng.integers(3))
    swizzle = (Swizzle("m", 1, 0, 1),) if rng.random() < 0.15 else ()
    return Layout(shard, replica, offset, swizzle)


def uneven(rng: np.random.Generator, shape: tuple[int, ...], sizes: tuple[int, ...]) -> Layout:
    """A layout whose cuts need not divide the dims."""
    names = "xyz"[: len(sizes)]
    mesh = Mesh(dict(zip(names, sizes, strict=True)))
    free = list(names)
    rng.shuffle(free)
    cuts = ["None"] * len(shape)
    for name in free[: int(rng.integers(1, len(free) + 1))]:
        cuts[int(rng.integers(len(shape)))] = repr(str(name))
    text = f"P({','.join(cuts)},)"
    return read("jax", text, shape=shape, mesh=mesh)


def places(layout: Layout, size: int) -> list[set[tuple[int, int]]]:
    """Per element, the (device, address) of all its copies, by the layout's own definition."""
    found = []
    for x in range(size):
        copies = set()
        for coordinate in layout(x):
            at = dict(coordinate)
            copies.add((at.get("gpuid", 0), at.get("m", 0)))
        found.append(copies)
    return found


def bound(source: list[set[tuple[int, int]]], goal: list[set[tuple[int, int]]]) -> int:
    """Elements that devices want and do not hold."""
    pairs = zip(source, goal, strict=True)
    return sum(len({d for d, _ in want} - {d for d, _ in have}) for have, want in pairs)
