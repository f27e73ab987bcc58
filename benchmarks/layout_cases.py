"""Questions of the layout benchmark as plain numbers, and what every operation means.

Nothing here knows a contestant. A case is checked against the definition at sampled elements, so a
peer that answers wrongly is told apart from one that is fast.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Iter = tuple[int, int, str]  # extent, stride, axis
Values = dict[str, NDArray[np.int64]]

AXES = ("m", "P", "F")
ATOM: list[Iter] = [(4, 8, "m"), (8, 1, "m")]  # what tiles are made of
ATOM_SHAPE = (4, 8)
SAMPLES = 2048
OPERATIONS = (
    "canonical",
    "equality",
    "equality_copies",
    "group",
    "tile",
    "tile_of",
    "slice",
    "slice_carry",
)


class Answer(NamedTuple):
    """A layout that a contestant gave back, as plain numbers."""

    iters: list[Iter]
    offset: dict[str, int]


class Case(NamedTuple):
    """One question: the operands of `op`, and the answer by definition at some elements."""

    op: str
    operands: tuple[Any, ...]
    size: int
    sampled: NDArray[np.int64]
    values: Values

    def holds(self, answer: Answer | bool) -> bool:
        """Whether the answer is right at the sampled elements."""
        if isinstance(answer, bool):
            return answer
        if prod(extent for extent, _, _ in answer.iters) != self.size:
            return False
        found = evaluate(answer.iters, self.sampled)
        zero = np.zeros_like(self.sampled)
        return all(
            np.array_equal(
                found.get(axis, zero) + answer.offset.get(axis, 0), self.values.get(axis, zero)
            )
            for axis in {*found, *self.values, *answer.offset}
        )


def evaluate(iters: Sequence[Iter], index: NDArray[np.int64]) -> Values:
    """The coordinates of some elements by definition (Axe 2.1)."""
    values: Values = {}
    for extent, stride, axis in reversed(iters):
        index, digit = np.divmod(index, extent)
        values[axis] = values.get(axis, np.zeros_like(digit)) + digit * stride
    return values


class Maker:
    """Random layouts of k iters and 2**n elements, in which no two neighbours fuse."""

    def __init__(self, iters: int, log2: int, seed: int) -> None:
        self.iters, self.log2 = iters, log2
        self.random = random.Random(f"{iters} {log2} {seed}")

    def cases(self, op: str) -> Iterator[Case]:
        """An endless supply of fresh cases of one operation."""
        make = getattr(self, f"_{op}")
        while True:
            yield make()

    def layout(self, iters: int) -> list[Iter]:
        """Compact per axis in a random order of digits."""
        while True:
            cuts = sorted(self.random.sample(range(1, self.log2), iters - 1))
            extents = [2 ** (b - a) for a, b in pairwise([0, *cuts, self.log2])]
            axes = [self.random.choice(AXES) for _ in extents]
            strides, reach = [0] * iters, dict.fromkeys(AXES, 1)
            for place in self.random.sample(range(iters), iters):
                strides[place] = reach[axes[place]]
                reach[axes[place]] *= extents[place]
            made = list(zip(extents, strides, axes, strict=True))
            if not any(a[1:] == (b[0] * b[1], b[2]) for a, b in pairwise(made)):
                return made

    def split(self, layout: Sequence[Iter], pieces: int) -> list[Iter]:
        """The same map with more iters: some cut in two, unit iters where none can be."""
        spelled = list(layout)
        for _ in range(pieces):
            long = [place for place, (extent, _, _) in enumerate(spelled) if extent > 2]
            place = self.random.choice(long) if long else 0
            extent, stride, axis = spelled[place]
            half = 2 if extent > 2 else 1
            spelled[place : place + 1] = [(extent // half, stride * half, axis)]
            spelled.insert(place + 1, (half, stride, axis))
        return spelled

    def shape(self, rank: int) -> tuple[int, ...]:
        """A row-major shape; its cuts fall between iters and inside them."""
        cuts = sorted(self.random.sample(range(1, self.log2), rank - 1))
        return tuple(2 ** (b - a) for a, b in pairwise([0, *cuts, self.log2]))

    def _canonical(self) -> Case:
        layout = self.layout(self.iters // 2)
        return self._case("canonical", self.split(layout, self.iters // 2), layout=layout)

    def _equality(self) -> Case:
        layout = self.layout(self.iters)
        return self._case("equality", layout, self.split(layout, self.iters), layout=layout)

    def _equality_copies(self) -> Case:
        """Copies on two axes, told as one iter each and as two, some of them backwards."""
        layout = self.layout(self.iters)
        one, two, offset = [], [], {}
        for axis in self.random.sample(AXES, 2):
            stride = self.random.randrange(1, 64)
            one.append((4, stride, axis))
            sign = self.random.choice((1, -1))
            offset[axis] = 3 * stride if sign < 0 else 0
            two += [(2, sign * 2 * stride, axis), (2, sign * stride, axis)]
        self.random.shuffle(two)
        other = self.split(layout, 1), two, offset
        return self._case("equality_copies", (layout, one, {}), other, layout=layout)

    def _group(self) -> Case:
        layout = self.layout(self.iters)
        return self._case("group", layout, self.shape(3), layout=layout)

    def _tile(self) -> Case:
        layout, shape = self.layout(self.iters), self.shape(2)
        return self._case("tile", layout, shape, ATOM, ATOM_SHAPE, layout=tiled(layout, shape))

    def _tile_of(self) -> Case:
        layout, shape = self.layout(self.iters), self.shape(2)
        whole = tuple(outer * inner for outer, inner in zip(shape, ATOM_SHAPE, strict=True))
        return self._case("tile_of", tiled(layout, shape), whole, ATOM, ATOM_SHAPE, layout=layout)

    def _slice(self) -> Case:
        """Windows at multiples of their own length: no digit carries."""
        shape = self.shape(3)
        region = []
        for extent in shape:
            count = 2 ** self.random.randrange(extent.bit_length())
            begin = self.random.randrange(extent // count) * count
            region.append((begin, begin + count))
        return self._sliced("slice", self.layout(self.iters), shape, region)

    def _slice_carry(self) -> Case:
        """A window around the middle in which the second digit wraps once, on one axis."""
        (outer, _, _), *_ = self.layout(self.iters)
        inner = 2**self.log2 // outer // 2
        tail = Maker(self.iters - 2, inner.bit_length() - 1, self.random.randrange(2**32))
        step = self.random.randrange(1, 2 * inner)
        layout = [(outer, 2 * inner, "m"), (2, step, "m"), *tail.layout(self.iters - 2)]
        begin = (outer - 1) * inner
        return self._sliced("slice_carry", layout, (2**self.log2,), [(begin, begin + 2 * inner)])

    def _sliced(self, op: str, layout: list[Iter], shape: Any, region: Any) -> Case:
        counts = [end - begin for begin, end in region]
        size = prod(counts)
        index = self._index(size)
        digits = np.unravel_index(index, counts)
        begins = [begin for begin, _ in region]
        moved = [digit + begin for digit, begin in zip(digits, begins, strict=True)]
        values = evaluate(layout, np.ravel_multi_index(moved, shape).astype(np.int64))
        return Case(op, (layout, shape, tuple(region)), size, index, values)

    def _case(self, op: str, *operands: Any, layout: list[Iter]) -> Case:
        size = prod(extent for extent, _, _ in layout)
        index = self._index(size)
        return Case(op, operands, size, index, evaluate(layout, index))

    def _index(self, size: int) -> NDArray[np.int64]:
        if size <= SAMPLES:
            return np.arange(size, dtype=np.int64)
        generator = np.random.default_rng(self.random.randrange(2**32))
        ends = np.array([0, 1, size - 1], dtype=np.int64)
        return np.concatenate([ends, generator.integers(0, size, SAMPLES, dtype=np.int64)])


def tiled(layout: Sequence[Iter], shape: Sequence[int]) -> list[Iter]:
    """The layout tiled by the atom, by definition: each dim outside, the atom's inside."""
    span = 1 + sum((extent - 1) * stride for extent, stride, _ in ATOM)  # the atom is on m alone
    left = list(layout)[::-1]
    whole: list[Iter] = []
    for missing, inner in zip(shape, ATOM, strict=True):
        while missing > 1:
            extent, stride, axis = left.pop()
            part = min(extent, missing)
            if part < extent:
                left.append((extent // part, stride, axis))
            weight = span if axis == "m" else 1
            whole.append((part, stride * (extent // part) * weight, axis))
            missing //= part
        whole.append(inner)
    return whole
