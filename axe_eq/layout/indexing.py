"""Row-major indices, and points and tables of coordinates."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from axe_eq.layout.iters import Iters, size


def flatten(index: Sequence[int], shape: Sequence[int]) -> int:
    """The row-major linear index."""
    return reduce(lambda flat, pair: flat * pair[1] + pair[0], zip(index, shape, strict=True), 0)


def unflatten(index: int, shape: Sequence[int]) -> tuple[int, ...]:
    """The digits of a row-major linear index."""
    digits = []
    for extent in reversed(shape):
        index, digit = divmod(index, extent)
        digits.append(digit)
    return tuple(reversed(digits))


def block_table(block: Iters, axis: str) -> NDArray[np.int64]:
    """The values of a block on one axis, over its index."""
    values = np.zeros(1, dtype=np.int64)
    for extent, stride, name in block:
        steps = np.arange(extent, dtype=np.int64) * (stride if name == axis else 0)
        values = np.add.outer(values, steps).reshape(-1)
    return values


def columns(block: Iters, index: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """The coordinates of many logical indices, axis by axis."""
    table: dict[str, NDArray[np.int64]] = {}
    inner = size(block)
    for extent, stride, axis in block:
        inner //= extent
        part = index // inner % extent * stride
        table[axis] = table[axis] + part if axis in table else part
    return table or {"m": np.zeros(len(index), dtype=np.int64)}
