"""Reads of a table that devices have in parts, drawn and changed: verdicts against all integers.

An i8 has 256 values, so which integers each spelling is right for is found by trying all of them.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import axe_eq as axe
import axe_eq.array as xp
from axe_eq.mesh import RankProgram, axis_index, psum
from axe_eq.program.types import Array

COUNT = 300


@dataclass(frozen=True)
class Spelling:
    """How a device reads its part; as drawn by `right` it reads what it has.

    Attributes:
        n: devices.
        e: rows of each.
        dtype: that places are computed in; differences of i8 wrap.
        step: rows between the first ones of two devices.
        low, high: what integers are rows at all; None where nobody asks.
        first, end: of a device's own rows.
        off: added to every place.
        other: what stands for a row of another device.
    """

    n: int
    e: int
    dtype: str
    step: int
    low: int | None
    high: int
    first: int
    end: int
    off: int = 0
    other: int = 0

    def read(self, part: Any, i: Any) -> Any:
        """What one device gives."""
        says = xp.astype(i, self.dtype)
        at = says - xp.astype(axis_index("x"), self.dtype) * self.step + self.off
        other = xp.logical_or(at < self.first, at >= self.end)
        if self.low is not None:
            inside = xp.logical_and(says >= self.low, says < self.high)
            other = xp.logical_and(inside, other)
        found = xp.take(part, xp.where(other, xp.zeros_like(at), at), axis=0)
        mask = xp.reshape(other, (*other.shape, 1))
        return psum(xp.where(mask, xp.full_like(found, self.other), found), "x")

    def is_right(self) -> bool:
        """Whether for all integers the sum is the row, or undefined where there is none."""
        table = np.arange(1, self.n * self.e + 1)
        wide = np.dtype({"i8": "int8", "i16": "int16", "i32": "int32"}[self.dtype])
        for i in range(-128, 128):
            total: int | None = 0
            for r in range(self.n):
                with np.errstate(over="ignore"):
                    start = np.array([r], wide) * np.array([self.step], wide)
                    (at,) = (np.array([i], wide) - start + np.array([self.off], wide)).tolist()
                other = at < self.first or at >= self.end
                if self.low is not None:
                    other = other and self.low <= i < self.high
                if not other and not 0 <= at < self.e:
                    total = None
                if total is not None:
                    total += self.other if other else int(table[r * self.e + at])
            wanted = int(table[i]) if 0 <= i < self.n * self.e else None
            if total != wanted:
                return False
        return True


def right(rng: random.Random) -> Spelling:
    n, e = rng.choice([2, 3, 4, 8]), rng.choice([1, 2, 5, 8, 15])
    return Spelling(n, e, rng.choice(["i8", "i16", "i32"]), e, 0, n * e, 0, e)


def changed(of: Spelling, rng: random.Random) -> Spelling:
    """One figure of it otherwise."""
    name = rng.choice(["step", "low", "high", "first", "end", "off", "other", "none"])
    if name == "none":
        return replace(of, low=None)
    by = rng.choice([-1, 1, rng.randint(-9, 9)])
    moved: dict[str, Any] = {name: (getattr(of, name) or 0) + by}
    return replace(of, **moved)


def judged(seed: int) -> tuple[str, bool]:
    """Name of the verdict, and the truth."""
    rng = random.Random(f"lookups {seed}")
    of = right(rng)
    for _ in range(rng.choice([0, 0, 1, 1, 1, 2])):
        of = changed(of, rng)
    truth = of.is_right()
    ranks = RankProgram(of.read, axe.Mesh({"x": of.n}), ["jax:P('x',None)", None], [None])
    specs = f"{of.n * of.e}x3:f32", f"{rng.choice([1, 4])}:i8"
    budget = 60 if truth else 0.5  # what is right is found at once
    verdict = axe.equivalent(lambda t, i: xp.take(t, i, axis=0), ranks, *specs, budget=budget)
    if isinstance(verdict, axe.Proved):
        assert truth, (seed, of)
        assert axe.check_certificate(verdict.certificate)
    assert not (isinstance(verdict, axe.Refuted) and truth), (seed, of)
    return type(verdict).__name__, truth


def test_reads_in_parts_are_judged_right(full: bool) -> None:
    """Those that are right are proved, and no other one is."""
    found = Counter(judged(seed) for seed in range(COUNT if full else 12))
    print(dict(found))
    assert found["Proved", True] > 0.1 * sum(found.values())
    assert not found["Unknown", True]


def test_a_spelling_knows_what_it_is() -> None:
    """The oracle itself, against the arrays of one spelling that is right and one that is not."""
    table = np.arange(12, dtype=np.float32).reshape(6, 2)
    for of, alike in ((Spelling(2, 3, "i8", 3, 0, 6, 0, 3), True),
                      (Spelling(2, 3, "i8", 3, 0, 6, 0, 2), False)):  # fmt: skip
        ranks = RankProgram(of.read, axe.Mesh({"x": 2}), ["jax:P('x',None)", None], [None])
        at: Array = np.arange(6, dtype=np.int8)
        assert of.is_right() == alike
        assert np.array_equal(ranks(table, at), table[at]) == alike
