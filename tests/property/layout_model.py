"""Random layouts of every awkward kind, and what their operations mean, by enumeration alone.

The model knows only the definition: a layout is its table, and "there is none" is believed when
every ordered factorisation of the size and every replica list of the reach has been tried.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from math import gcd, prod
from typing import Any, NamedTuple

import numpy as np

from axe_eq.errors import LayoutError
from axe_eq.layout import Layout

Iter = tuple[int, int, str]
Coordinate = tuple[tuple[str, int], ...]
Table = list[frozenset[Coordinate]]
Vector = tuple[int, ...]

OFF_GAP = "aliasing replicas off the gap condition"
NEGATIVE = "negative strides"
ZERO = "zero strides"
UNIT = "unit iters"
AXES = "several axes in one group"
PRIME = "primes"
BIG = "big integers"
RIPPLE = "ripple carries"
SWIZZLE = "swizzles"
TWICE = "two swizzles"
BOX = "padded boxes"
NESTED = "boxes in boxes"
REORDERED = "digits reordered between boxes"
COPIES = "replicas"
LINEAR = OFF_GAP, NEGATIVE, ZERO, UNIT, AXES, PRIME, BIG  # classes of linear layouts


# ---- random layouts ------------------------------------------------------------------------------


class Parts(NamedTuple):
    """A layout before it is one."""

    shard: list[Iter]
    replica: list[Iter]
    offset: dict[str, int]

    def layout(self) -> Layout:
        return Layout(self.shard, self.replica, self.offset)

    def size(self) -> int:
        return prod(extent for extent, _, _ in self.shard)

    def classes(self) -> set[str]:
        found = set()
        strides = [stride for _, stride, _ in self.shard + self.replica]
        extents = [extent for extent, _, _ in self.shard + self.replica]
        for name, holds in (
            (OFF_GAP, _off_gap(self.replica)),
            (NEGATIVE, any(stride < 0 for stride in strides)),
            (ZERO, 0 in strides),
            (UNIT, 1 in extents),
            (AXES, len({axis for _, _, axis in self.shard}) > 1),
            (PRIME, any(extent in (3, 5, 7, 11, 13) for extent in extents)),
            (BIG, any(abs(stride) > 2**31 for stride in strides)),
        ):
            if holds:
                found.add(name)
        return found

    def table(self) -> Table:
        """The map by its definition (Axe 2.1 to 2.3)."""
        copies = [
            [(digit * stride, axis) for digit in range(extent)]
            for extent, stride, axis in self.replica
        ]
        table = []
        for digits in itertools.product(*(range(extent) for extent, _, _ in self.shard)):
            base = dict(self.offset)
            for digit, (_, stride, axis) in zip(digits, self.shard, strict=True):
                base[axis] = base.get(axis, 0) + digit * stride
            image = set()
            for choice in itertools.product(*copies):
                point = dict(base)
                for value, axis in choice:
                    point[axis] = point.get(axis, 0) + value
                image.add(tuple(sorted((a, v) for a, v in point.items() if v)))
            table.append(frozenset(image))
        return table


def _off_gap(replica: Sequence[Iter]) -> bool:
    for axis in {axis for _, _, axis in replica}:
        steps = sorted((abs(s), e) for e, s, name in replica if name == axis and s and e > 1)
        if any(b[0] <= a[0] * a[1] for a, b in itertools.pairwise(steps)):
            return True
    return False


class Maker:
    """Random layouts; strides are often nearly compact: digits carry and iters nearly fuse."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def extents(self, most: int) -> list[int]:
        extents: list[int] = []
        while self.random.random() < 0.85 and len(extents) < 5:
            extent = self.random.choice((1, 2, 2, 2, 3, 3, 4, 5, 6, 7, 8))
            if prod(extents) * extent > most:
                break
            extents.append(extent)
        return extents

    def strides(self, extents: Sequence[int]) -> list[int]:
        pick = self.random.random()
        if pick < 0.5:  # compact in a random order of digits, sometimes off by a little
            order = list(range(len(extents)))
            if self.random.random() < 0.6:
                self.random.shuffle(order)
            strides, stride = [0] * len(extents), self.random.choice((1, 1, 1, 2, 3))
            for place in reversed(order):
                strides[place] = stride
                stride = stride * extents[place] + self.random.choice((0, 0, 0, 1, 4))
        else:
            choice = (0, 1, 1, 2, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16)
            strides = [self.random.choice(choice) for _ in extents]
        scale = self.random.choice((1,) * 8 + (2**33, 10**12))
        return [s * scale * (-1 if self.random.random() < 0.12 else 1) for s in strides]

    def parts(self, most: int = 48, axes: Sequence[str] = ("m", "p"), copies: int = 8) -> Parts:
        extents = self.extents(most)
        named = axes if self.random.random() < 0.5 else axes[:1]
        shard = [
            (extent, stride, self.random.choice(named))
            for extent, stride in zip(extents, self.strides(extents), strict=True)
        ]
        replica = self.replica(axes, copies)
        offset = {a: self.random.randint(-9, 9) for a in axes if self.random.random() < 0.3}
        return Parts(shard, replica, {axis: value for axis, value in offset.items() if value})

    def replica(self, axes: Sequence[str], copies: int) -> list[Iter]:
        axis = self.random.choice(axes)
        if copies >= 4 and self.random.random() < 0.1:  # these alias and violate the gap condition
            pairs = (((2, 2), (2, 3)), ((2, 3), (2, 4)), ((2, -3), (2, 5)), ((3, 2), (2, 3)))
            return [(extent, stride, axis) for extent, stride in self.random.choice(pairs)]
        replica: list[Iter] = []
        while self.random.random() < 0.5 and len(replica) < 3:
            extent = self.random.choice((1, 2, 2, 3, 3, 4))
            if prod(e for e, _, _ in replica) * extent <= copies:
                stride = self.random.choice((1, 1, 2, 2, 3, 3, 4, 5, 6, 0, -1, -2, -3))
                replica.append((extent, stride, self.random.choice(axes)))
        return replica

    def shape(self, size: int, rank: int | None = None) -> tuple[int, ...]:
        shape: list[int] = []
        while size > 1:
            extent = self.random.choice([d for d in range(2, size + 1) if size % d == 0])
            shape.append(extent)
            size //= extent
            if self.random.random() < 0.15:
                shape.append(1)
        if rank is not None:
            while len(shape) < rank:
                shape.insert(self.random.randrange(len(shape) + 1), 1)
            while len(shape) > rank:
                place = self.random.randrange(len(shape) - 1)
                shape[place : place + 2] = [shape[place] * shape[place + 1]]
        return tuple(shape)

    def respelled(self, parts: Parts) -> Parts:
        """Another spelling of the same map: split iters, unit iters, turned and split replicas."""
        shard: list[Iter] = []
        for extent, stride, axis in parts.shard:
            for part in (factors := self.shape(extent)):
                extent //= part
                shard.append((part, stride * extent, axis))
            if not factors or self.random.random() < 0.2:
                shard.append((1, self.random.randint(-5, 5), axis))
        replica, offset = [], dict(parts.offset)
        for extent, stride, axis in parts.replica:
            if self.random.random() < 0.5:
                offset[axis] = offset.get(axis, 0) + (extent - 1) * stride
                stride = -stride
            if extent == 4 and self.random.random() < 0.7:
                replica += [(2, stride, axis), (2, 2 * stride, axis)]
            elif extent == 3 and self.random.random() < 0.7:
                replica += [(2, stride, axis), (2, stride, axis)]
            else:
                replica.append((extent, stride, axis))
        self.random.shuffle(replica)
        return Parts(shard, replica, offset)

    def resized(self, parts: Parts, size: int) -> Parts:
        """The same layout with its slowest iters changed so that it has `size` elements."""
        shard, left = [], size
        for extent, stride, axis in reversed(parts.shard):
            shard.append((gcd(extent, left), stride, axis))
            left //= gcd(extent, left)
        return Parts([(left, 5, "m"), *reversed(shard)], parts.replica, parts.offset)


def classes_of(layout: Layout) -> set[str]:
    """The awkward classes of a layout with swizzles or a box too."""
    found = Parts(list(layout.shard), list(layout.replica), layout.offset).classes()
    for name, holds in (
        (SWIZZLE, layout.swizzle),
        (TWICE, len(layout.swizzle) > 1),
        (BOX, layout.box is not None),
        (NESTED, layout.inner),
        (REORDERED, any(stage.order for stage in layout.inner)),
        (COPIES, layout.replica),
    ):
        if holds:
            found.add(name)
    return found


def random_shape(source: random.Random, size: int) -> list[int]:
    shape: list[int] = []
    while size > 1:
        shape.append(source.choice([d for d in range(2, size + 1) if size % d == 0]))
        size //= shape[-1]
    return shape


def random_nested(source: random.Random) -> Layout:
    """Boxes in boxes: digits of padded digits are padded again, sometimes in another order."""
    box = [source.choice((2, 3, 4, 5)) for _ in range(source.choice((1, 1, 2)))]
    padded = [extent + source.choice((0, 1, 1, 2)) for extent in box]
    inner: list[tuple[list[int], list[int], list[int]]] = []
    last = padded
    while not inner or (prod(last) <= 40 and len(inner) < 2):
        incoming = random_shape(source, prod(last))
        order = list(range(len(incoming)))
        if source.random() < 0.3:
            source.shuffle(order)
        dims = [incoming[dim] for dim in order]
        last = [extent + source.choice((0, 0, 1, 2)) for extent in dims]
        inner.append((dims, last, order))
    axes = source.choice(("m", "m", "mmp"))
    shard: list[tuple[int, int, str]] = []
    stride = source.choice((1, 1, 2))
    for extent in reversed(random_shape(source, prod(last))):
        step = stride * source.choice((1, 1, 1, 1, -1))
        shard.insert(0, (extent, step, source.choice(axes)))
        stride = stride * extent + source.choice((0, 0, 0, 1, -1))
    source.shuffle(order := list(range(len(shard))))
    if source.random() < 0.3:
        shard = [(shard[i][0], *shard[j][1:]) for i, j in enumerate(order)]
    return Layout(shard, box=box, padded=padded, inner=inner)


# ---- the meaning of operations ------------------------------------------------------------------


def table_of(layout: Layout) -> Table:
    return [layout(index) for index in range(layout.size)]


def combined(a: frozenset[Coordinate], weights: dict[str, int], b: frozenset[Coordinate]) -> Any:
    """``a * weights + b`` of sets of coordinates."""
    points = set()
    for outer in a:
        for inner in b:
            point = {axis: value * weights.get(axis, 1) for axis, value in outer}
            for axis, value in inner:
                point[axis] = point.get(axis, 0) + value
            points.add(tuple(sorted((a, v) for a, v in point.items() if v)))
    return frozenset(points)


def spans(table: Table) -> dict[str, int]:
    values: dict[str, list[int]] = {"m": [], "p": []}
    for image in table:
        for point in image:
            for axis, seen in values.items():
                seen.append(dict(point).get(axis, 0))
    return {axis: max(seen) - min(seen) + 1 for axis, seen in values.items()}


@cache
def factorisations(number: int) -> tuple[tuple[int, ...], ...]:
    """Every ordered factorisation into factors of at least 2."""
    if number == 1:
        return ((),)
    return tuple(
        (factor, *rest)
        for factor in range(2, number + 1)
        if number % factor == 0
        for rest in factorisations(number // factor)
    )


def lists_for(base: Sequence[Vector]) -> Iterator[tuple[int, ...]]:
    """The extents of every list of one-axis iters without unit iters that computes `base`."""
    for extents in factorisations(len(base)):
        levels = [prod(extents[place + 1 :]) for place in range(len(extents))]
        steps = [tuple(np.subtract(base[level], base[0]).tolist()) for level in levels]
        if any(sum(value != 0 for value in step) > 1 for step in steps):
            continue
        digits = itertools.product(*(range(extent) for extent in extents))
        if all(
            point
            == tuple(
                start + sum(d * step[axis] for d, step in zip(choice, steps, strict=True))
                for axis, start in enumerate(base[0])
            )
            for point, choice in zip(base, digits, strict=True)
        ):
            yield extents


def first_break(table: Table) -> int:
    """The first index at which every list breaks: the longest start that one computes."""
    base = [vectors(image)[0] for image in table]
    base = [tuple(np.subtract(point, base[0]).tolist()) for point in base]
    longest = 0
    for extents in factorisations(len(base)):
        levels = [prod(extents[place + 1 :]) for place in range(len(extents))]
        digits = itertools.product(*(range(extent) for extent in extents))
        broken = [level for level in levels if sum(value != 0 for value in base[level]) > 1]
        broken += [
            index
            for index, (point, choice) in enumerate(zip(base, digits, strict=True))
            if any(
                value != sum(d * base[level][axis] for d, level in zip(choice, levels, strict=True))
                for axis, value in enumerate(point)
            )
        ]
        longest = max(longest, min(broken, default=len(base)))
    return longest


def vectors(image: frozenset[Coordinate]) -> list[Vector]:
    return sorted(tuple(dict(point).get(axis, 0) for axis in ("m", "p")) for point in image)


def computable(table: Table) -> bool:
    """Whether some layout has this table: a list for the least copies, replicas for the rest."""
    copies = [vectors(image) for image in table]
    relative = {
        tuple(tuple(np.subtract(point, image[0]).tolist()) for point in image) for image in copies
    }
    if len(relative) != 1 or next(lists_for([image[0] for image in copies]), None) is None:
        return False
    (spread,) = relative
    return product_of_lists(spread, (1, 1), {(0, 0)})


def product_of_lists(spread: Sequence[Vector], grid: tuple[int, int], start: set[Vector]) -> bool:
    """Whether start + replicas on a grid is the spread; tries every list, axis by axis."""
    if {tuple(point) for point in spread} != set(
        itertools.product(*({point[axis] for point in spread} for axis in (0, 1)))
    ):
        return False
    return all(
        _list_reaches(
            frozenset(point[axis] for point in spread),
            frozenset(point[axis] for point in start),
            grid[axis],
        )
        for axis in (0, 1)
    )


@cache
def _list_reaches(target: frozenset[int], done: frozenset[int], grid: int, last: int = 1) -> bool:
    if done == target:
        return True
    for stride in (value for value in target if value >= last and value % grid == 0):
        for extent in itertools.count(2):
            wider = frozenset(v + digit * stride for v in done for digit in range(extent))
            if not wider <= target:
                break
            if _list_reaches(target, wider, grid, stride):
                return True
    return False


def attempt(operation: Callable[..., Any], *arguments: Any) -> Any:
    """The result, or None where the operation says that there is none."""
    try:
        return operation(*arguments)
    except LayoutError:
        return None


def refusal(operation: Callable[..., Any], *arguments: Any) -> str:
    """The message where the operation says that there is none, else nothing."""
    try:
        operation(*arguments)
    except LayoutError as error:
        return str(error)
    return ""


def levels_of(extents: Sequence[int]) -> list[int]:
    """The products of the fastest extents, largest first."""
    return [prod(extents[place:]) for place in range(len(extents) + 1)]
