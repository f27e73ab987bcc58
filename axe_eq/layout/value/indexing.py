"""Row-major indices, and points and tables of coordinates."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import accumulate
from math import prod
from operator import mul

import numpy as np
from numpy.typing import NDArray

from axe_eq.errors import LayoutError
from axe_eq.layout.value.check import check_admitted, check_extents, listed
from axe_eq.layout.value.iters import Iters, size

PART = 2**20


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


def common_refinement(shapes: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """The coarsest shape that cuts wherever one of the shapes does.

    >>> axe.common_refinement([(4, 6), (8, 3)])
    (4, 2, 3)

    Raises:
        LayoutError: the sizes differ, or two cuts do not divide each other.
    """
    checked = [check_extents("shape", shape) for shape in listed("shapes", shapes)]
    if not checked:
        raise LayoutError("common refinement", "of no shapes", "at least one shape")
    cuts: set[int] = set()
    for shape in checked:
        cuts.update(accumulate(reversed(shape), mul))
        check_admitted(prod(checked[0]), shape)
    refined: list[int] = []
    below = 1
    for level in sorted(cuts):
        if level % below:
            raise LayoutError(
                f"shapes {tuple(checked)}",
                f"cut at {below} and {level} elements",
                "cuts that divide each other",
            )
        if level > below:
            refined.append(level // below)
        below = level
    return tuple(reversed(refined))


def block_table(block: Iters, axis: str) -> NDArray[np.int64]:
    """The values of a block on one axis, over its index."""
    steps = []
    for extent, stride, name in block:
        part = np.arange(extent, dtype=np.int64)
        part *= stride if name == axis else 0
        steps.append(part)
    return outer_sum(steps)


def filled(
    count: int, values: Callable[[NDArray[np.int64]], NDArray[np.int64]]
) -> NDArray[np.int64]:
    """The values of the indices below `count`, computed part by part to save memory."""
    found = np.empty(count, dtype=np.int64)
    for start in range(0, count, PART):
        part = found[start : start + PART]
        part[:] = values(np.arange(start, start + len(part), dtype=np.int64))
    return found


def outer_sum(parts: Sequence[NDArray[np.int64]]) -> NDArray[np.int64]:
    """All sums of one value of each part, the last part fastest, in little more memory than so."""
    if not parts:
        return np.zeros(1, dtype=np.int64)
    return reduce(lambda slow, fast: np.add.outer(slow, fast).reshape(-1), parts)


def columns(block: Iters, index: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
    """The coordinates of many logical indices, axis by axis."""
    table: dict[str, NDArray[np.int64]] = {}
    inner = size(block)
    for extent, stride, axis in block:
        inner //= extent
        part = index // inner % extent * stride
        table[axis] = table[axis] + part if axis in table else part
    return table or {"m": np.zeros(len(index), dtype=np.int64)}
