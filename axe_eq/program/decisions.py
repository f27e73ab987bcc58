"""Random decisions that have names, so that a later sample can repeat most of a successful one.

Conditions of laws are rarely met by chance. Repeating the decisions of a sample that met them, with
a few redrawn, meets them often and still varies everything over many samples.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import TypeVar

T = TypeVar("T")


class Draw:
    """Named decisions of one sample.

    Args:
        rng: source of new decisions.
        model: decisions of an earlier sample; empty for a free one.
        repeat: probability with which a decision of the model is repeated.

    Attributes:
        made: the decisions, numbers in [0, 1) by name.
    """

    def __init__(
        self, rng: random.Random, model: Mapping[str, float] | None = None, repeat: float = 0.0
    ) -> None:
        self._rng, self._model, self._repeat = rng, model or {}, repeat
        self.made: dict[str, float] = {}

    def unit(self, name: str) -> float:
        """A number in [0, 1)."""
        old = self._model.get(name)
        new = self._rng.random()
        self.made[name] = new if old is None or self._rng.random() >= self._repeat else old
        return self.made[name]

    def chance(self, name: str, probability: float) -> bool:
        """True with this probability."""
        return self.unit(name) < probability

    def pick(self, name: str, options: Sequence[T]) -> T:
        """One of the options."""
        return options[int(self.unit(name) * len(options))]

    def weighted(self, name: str, options: Mapping[T, float]) -> T:
        """One of the options, by weight."""
        left = self.unit(name) * sum(options.values())
        for option, weight in options.items():
            left -= weight
            if left < 0:
                return option
        return next(iter(options))

    def integer(self, name: str, low: int, high: int) -> int:
        """An integer in low..high, both included."""
        return low + int(self.unit(name) * (high - low + 1))

    def shuffled(self, name: str, items: Sequence[T]) -> list[T]:
        """The items in a random order."""
        by_place = {n: self.unit(f"{name}.{n}") for n in range(len(items))}
        return [items[n] for n in sorted(by_place, key=by_place.__getitem__)]
