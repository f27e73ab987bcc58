"""Deterministic program inputs, computed element by element.

An element's value is a hash of the seed, the input's position and the element's number, so any
region of an input costs only its size, and equal seeds give equal inputs whatever is asked for.
Except for the `RANDOM` patterns, all values are exact in every floating type.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from axe_eq.program.types import DTYPES, Array, ValueType
from axe_eq.prove.certificates.verdict import Elements
from axe_eq.prove.programs.region import Region, along, whole

_EAGER = 1 << 24  # elements of all inputs together that are made at once


def _mix(x: Array) -> Array:
    """Spread 32 bits, in place (finaliser of MurmurHash3, Appleby)."""
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        x ^= x >> np.uint32(shift)
        x *= np.uint32(factor)
    x ^= x >> np.uint32(16)
    return x


def _below(h: Array, n: int) -> Array:
    """A number below n from the upper half of each hash."""
    return np.asarray((h >> np.uint32(16)) * np.uint32(n) >> np.uint32(16), np.float64)


def _lower(h: Array) -> Array:
    return h << np.uint32(16)


def _dense(h: Array) -> Array:
    return _below(h, 7) - 3


def _sparse(h: Array) -> Array:
    return np.where(_below(h, 5) == 0, _dense(_lower(h)), 0.0)


def _wide(h: Array) -> Array:
    return _dense(h) * 2.0 ** _below(_lower(h), 7)


def _signs(h: Array) -> Array:
    """Never 0, of either sign."""
    return np.asarray((_below(h, 3) + 1) * (2 * _below(_lower(h), 2) - 1))


def _ends(h: Array, name: str) -> Array:
    """Integers at the ends of their range, at its quarters, and at 0; those of 64 bits, wide."""
    ends = np.iinfo(DTYPES[name].numpy)
    if ends.bits > 32:  # float64 does not hold the ends
        return _wide(h)
    count = 2.0**ends.bits
    near = _below(h, 4) * count / 4 + _below(_lower(h), 5) - 2
    return np.asarray(np.mod(near - ends.min, count) + ends.min)


def _uniform(h: Array) -> Array:
    return h * 2.0**-30 - 2


def _special(h: Array) -> Array:
    return _SPECIAL[_below(h, len(_SPECIAL)).astype(np.int64)]


_SPECIAL = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-7, 3e4, 1 / 3])
PATTERNS: dict[str, Callable[[Array], Array]] = {
    "ones": lambda h: np.ones(h.shape),
    "minus ones": lambda h: -np.ones(h.shape),
    "sparse": _sparse,
    "dense": _dense,
    "positive": lambda h: _below(h, 3) + 1,
    "negative": lambda h: -1 - _below(h, 3),
    "signs": _signs,
    "wide": _wide,
    "quarters": lambda h: (_below(h, 13) - 6) / 4,
    "uniform": _uniform,
    "special": _special,
    "special but -0": lambda h: _special(h) + 0.0,
}
SEARCHED = ("dense", "positive", "negative", "sparse", "quarters", "wide", "signs")
ENDS = "ends"  # at which integers wrap around; for programs that read some
# Rounded to the input's type, for comparisons bit for bit.
RANDOM = ("uniform", "special", "special but -0")
# Tried once others have told two programs apart, for a counterexample that is easier to read.
PLAIN = ("ones", "minus ones", "one hot", "sparse", "dense")


@dataclass(frozen=True)
class Sample:
    """One choice of all inputs of a program.

    Attributes:
        pattern: a name in `PATTERNS`, "one hot", or `ENDS`.
        seed: of the hashes.
        alike: from this index of every dim on, the indices are one class: values at them are equal.
        padded: they are zero there.
        below: per input what its values are less than, and at least 0, since they say where others
            are read; 0 for none. Empty where there are no such inputs.
    """

    pattern: str
    seed: int
    alike: int | None = None
    padded: bool = False
    below: tuple[int, ...] = ()

    def values(self, position: int, of: ValueType, region: Region) -> Array:
        """Values of one input on a region, as float64."""
        values = self._drawn(position, of, region)
        limit = self.below[position] if self.below else 0
        return np.mod(values, limit) if limit else values

    def _drawn(self, position: int, of: ValueType, region: Region) -> Array:
        key = self._key(position)
        if self.pattern == "one hot":
            return _one_hot(key, of, region)
        number = np.zeros((1,) * max(of.rank, 1), np.uint32)
        for axis, (indices, extent) in enumerate(zip(region, of.shape, strict=True)):
            if self.alike is not None:
                indices = np.minimum(indices, self.alike)
            number = number * np.uint32(extent % 2**32) + along(
                indices.astype(np.uint32), axis, of.rank
            )
        number += _mix(np.array([key % 2**32], np.uint32))
        hashed = _mix(number).reshape(tuple(map(len, region)))
        if self.pattern == ENDS and DTYPES[of.dtype].kind == "i":
            values = _ends(hashed, of.dtype)
        else:
            drawn = PATTERNS["dense" if self.pattern == ENDS else self.pattern](hashed)
            values = _fit(drawn, of.dtype)
        if self.alike is not None and self.padded:
            for axis, indices in enumerate(region):
                values = values * along(indices < self.alike, axis, of.rank)
        return values

    def support(self, position: int, of: ValueType) -> Region | None:
        """Outside of which one input is zero; None where that is not known."""
        if self.pattern == "one hot":
            return tuple(np.array([n]) for n in _hot(self._key(position), of))
        if self.alike is None or not self.padded:
            return None
        return tuple(np.arange(min(extent, self.alike)) for extent in of.shape)

    def _key(self, position: int) -> int:
        return self.seed * 1000003 + position * 7919 + 1

    def array(self, position: int, of: ValueType) -> Array:
        """One input whole, in its own type."""
        result = np.empty(of.shape, DTYPES[of.dtype].numpy)
        rows = max(1, (_EAGER // 16) * max(of.shape[:1], default=1) // max(of.size, 1))
        region = whole(of.shape)
        for begin in range(0, of.shape[0] if of.rank else 1, rows):
            part = slice(begin, begin + rows)
            here = (region[0][part], *region[1:]) if of.rank else region
            result[part if of.rank else ...] = self.values(position, of, here)
        return result


def _one_hot(key: int, of: ValueType, region: Region) -> Array:
    """One element is one: the one that the key names."""
    chosen = zip(region, _hot(key, of), strict=True)
    hits = [along(r == c, n, of.rank) for n, (r, c) in enumerate(chosen)]
    return reduce(np.multiply, hits, np.ones(tuple(map(len, region))))


def _hot(key: int, of: ValueType) -> tuple[int, ...]:
    return tuple(map(int, np.unravel_index(key * 2654435761 % of.size, of.shape)))


def _fit(values: Array, name: str) -> Array:
    kind = DTYPES[name].kind
    if kind == "b":
        return np.asarray(np.isin(np.abs(values), (1, 3)), np.float64)
    if kind != "i":
        return values
    whole = np.trunc(np.nan_to_num(values, posinf=0, neginf=0))
    ends = np.iinfo(DTYPES[name].numpy)
    if ends.bits > 16:  # all samples are in range, and float64 does not hold the ends
        return np.asarray(whole)
    return np.asarray(np.clip(whole if ends.min else np.abs(whole), ends.min, ends.max))


class SampledInputs(Sequence[Array]):
    """The inputs of a sample, made when asked for: those of a large model do not fit in memory."""

    def __init__(self, sample: Sample, types: Sequence[ValueType]) -> None:
        self._sample, self._types = sample, tuple(types)

    def __len__(self) -> int:
        return len(self._types)

    def __getitem__(self, position):  # type: ignore[no-untyped-def]
        if isinstance(position, slice):
            return [self[n] for n in range(len(self))[position]]
        position = range(len(self))[position]
        return self._sample.array(position, self._types[position])

    def __iter__(self) -> Iterator[Array]:
        return (self[n] for n in range(len(self)))

    @property
    def elements(self) -> list[Elements | None]:
        """Per input the elements that are not zero; None where they are not known to be few."""
        return [self._elements(n, of) for n, of in enumerate(self._types)]

    def _elements(self, position: int, of: ValueType) -> Elements | None:
        region = self._sample.support(position, of)
        if region is None:
            return None
        here = self._sample.values(position, of, region)
        found = np.nonzero(here)
        at = [indices[n] for indices, n in zip(region, found, strict=True)]
        kind = f"{DTYPES[of.dtype].numpy}{list(of.shape)}"
        return Elements.listed(kind, of.size, 0, at, here[found])

    def __str__(self) -> str:
        types = ", ".join(map(str, self._types))
        sample = self._sample
        how = "zero" if sample.padded else "equal"
        alike = "" if sample.alike is None else f", {how} from index {sample.alike} of a dim on"
        return f"{types}: pattern {sample.pattern!r}, seed {sample.seed}{alike}"


def sampled(sample: Sample, types: Sequence[ValueType]) -> Sequence[Array]:
    """The inputs of a sample: arrays, or a sequence that makes them when asked for if many."""
    if sum(of.size for of in types) > _EAGER:
        return SampledInputs(sample, types)
    return tuple(sample.array(n, of) for n, of in enumerate(types))
