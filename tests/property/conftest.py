"""Random layouts of every awkward kind, and campaigns that count what they met."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from math import gcd, prod
from typing import NamedTuple

import pytest

from axe_eq.layout import Layout

CASES = 20_000  # per operation under --full; 5 % of them otherwise
SHARE = 20  # every class of an operation has at least CASES / SHARE cases

Iter = tuple[int, int, str]
Coordinate = tuple[tuple[str, int], ...]
Table = list[frozenset[Coordinate]]

OFF_GAP = "aliasing replicas off the gap condition"
NEGATIVE = "negative strides"
ZERO = "zero strides"
UNIT = "unit iters"
AXES = "several axes in one group"
PRIME = "primes"
BIG = "big integers"
RIPPLE = "ripple carries"
LAYOUT_CLASSES = {OFF_GAP, NEGATIVE, ZERO, UNIT, AXES, PRIME, BIG}


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


class Campaign:
    """Counts what a test met, and requires every class to have its share."""

    def __init__(self, name: str, full: bool, classes: set[str]) -> None:
        self.name, self.total = name, CASES if full else CASES // 20
        self.classes = classes
        self.made = Maker(sum(map(ord, name)))
        self.seen: Counter[str] = Counter()

    def cases(self) -> Iterator[Maker]:
        for _ in range(self.total):
            yield self.made
        self.report()

    def saw(self, *classes: str) -> None:
        self.seen.update(classes)

    def report(self) -> None:
        print(f"\n{self.name}: {self.total} cases")
        for name, count in sorted(self.seen.items()):
            print(f"  {count:6} {name}")
        short = {name for name in self.classes if self.seen[name] * SHARE < self.total}
        assert not short, f"{self.name}: too few cases of {short}"


@pytest.fixture
def campaign(full: bool) -> Callable[..., Campaign]:
    """`campaign(name, *classes)`: random cases, 5 % of them unless --full, that print a histogram.

    Without classes every awkward class of layouts must have its share.
    """

    def start(name: str, *classes: str, every: bool = True) -> Campaign:
        return Campaign(name, full, {*classes, *(LAYOUT_CLASSES if every else ())})

    return start
