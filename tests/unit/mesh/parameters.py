"""Parameters that fit given operand types, for every standard selector."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from axe_eq.program.types import DTYPES, ValueType

Params = tuple[Any, ...]
Types = Sequence[ValueType]
Rng = np.random.Generator


def _one(rng: Rng, options: Sequence[int]) -> int:
    return options[int(rng.integers(len(options)))]


def _an_axis(rng: Rng, types: Types) -> int:
    return _one(rng, range(types[0].rank))


def _a_value(rng: Rng, name: str) -> float:
    """A small constant of a dtype."""
    value = _one(rng, [0, 1] if DTYPES[name].kind == "b" else [-1, 0, 1, 2])
    typed: dict[str, Callable[[int], float]] = {"f": float, "b": bool, "i": int}
    return typed[DTYPES[name].kind](value)


def _sample_part(rng: Rng, extent: int) -> tuple[int, int, int] | None:
    if rng.random() < 0.4:
        return None
    start, step = _one(rng, range(extent)), _one(rng, [-2, -1, 1, 1, 2])
    room = (extent - 1 - start if step > 0 else start) // abs(step) + 1
    return start, step, _one(rng, range(1, room + 1))


def sample_slice(rng: Rng, types: Types) -> Params:
    return (tuple(_sample_part(rng, extent) for extent in types[0].shape),)


def sample_flip(rng: Rng, types: Types) -> Params:
    axis = _an_axis(rng, types)
    return (tuple(d for d in range(types[0].rank) if d == axis or rng.random() < 0.3),)


def sample_pad(rng: Rng, types: Types) -> Params:
    widths = tuple((_one(rng, [0, 1]), _one(rng, [0, 0, 2])) for _ in types[0].shape)
    return widths, _a_value(rng, types[0].dtype)


def sample_split(rng: Rng, types: Types) -> Params:
    axis = _an_axis(rng, types)
    factors = [f for f in (1, 2, 3, 4) if types[0].shape[axis] % f == 0]
    return axis, (-1, _one(rng, factors))


def sample_parts(rng: Rng, types: Types) -> Params:
    axis = _an_axis(rng, types)
    return axis, _one(rng, range(1, types[0].shape[axis] + 2))


def sample_merge(rng: Rng, types: Types) -> Params:
    axis = _an_axis(rng, types)
    return axis, _one(rng, range(1, types[0].rank - axis + 1))


def sample_repeat(rng: Rng, types: Types) -> Params:
    return _an_axis(rng, types), _one(rng, [1, 2, 3])


def sample_join(rng: Rng, types: Types) -> Params:
    return (_an_axis(rng, types),)


def sample_iota(rng: Rng, types: Types) -> Params:
    name = list(DTYPES)[int(rng.integers(len(DTYPES)))]
    return _one(rng, [1, 2] if DTYPES[name].kind == "b" else [1, 2, 3, 4, 6]), name


def sample_full(rng: Rng, types: Types) -> Params:
    name = list(DTYPES)[int(rng.integers(len(DTYPES)))]
    rank = _one(rng, [0, 0, 1, 2, 3])
    return tuple(_one(rng, [1, 2, 3, 4]) for _ in range(rank)), _a_value(rng, name), name


PARAMETERS: dict[str, Callable[[Rng, Types], Params]] = {
    "slice": sample_slice,
    "flip": sample_flip,
    "concat": sample_join,
    "pad": sample_pad,
    "split": sample_split,
    "parts": sample_parts,
    "merge": sample_merge,
    "repeat": sample_repeat,
    "interleave": sample_join,
    "iota": sample_iota,
    "full": sample_full,
}
"""Selector -> (generator, operand types) -> parameters."""
