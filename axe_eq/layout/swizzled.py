"""The normal form of a swizzled layout, found from its table.

Several swizzles give one map where the linear part changes too, so the normal form is the first
swizzle, in a fixed order, that leaves a layout of the other parts: none, then one, then two. What
is tried depends on the map alone, so equal maps end at the same one.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
from numpy.typing import NDArray

from axe_eq.errors import SearchError
from axe_eq.layout import iters as it
from axe_eq.layout.boxes import reduce_dims
from axe_eq.layout.iters import Iters
from axe_eq.layout.levels import NoIters
from axe_eq.layout.swizzle import Swizzle
from axe_eq.layout.tables import from_points, point_table
from axe_eq.layout.value import Layout, make, make_dims

MAX_POINTS = 2**18
MAX_TRIES = 2**17
MAX_PER_AXIS = 2

Points = NDArray[np.int64]


def normalise(layout: Layout) -> Layout:
    """The canonical form of a layout with swizzles.

    Raises:
        SearchError: over 2**18 points, or no form with at most two swizzles per axis and within the
            bits of the coordinates is found.
    """
    # A single swizzle bounds the search by its own reach; steps beyond that stay as they are.
    single = len(layout.swizzle) == 1
    reach = {sw.axis: sw.reach if single else _bits(layout, sw.axis) for sw in layout.swizzle}
    outer, inner = _split(layout, reach)
    if inner.size * inner.copies() > MAX_POINTS:
        raise SearchError(f"canonical form of {layout}", f"{inner.size} elements", f"{MAX_POINTS}")
    found = next(_forms(inner, reach), None)
    if found is None or any(sw.reach > _bits(layout, sw.axis) for sw in found[0]):
        raise SearchError(
            f"canonical form of {layout}",
            "none with two swizzles per axis within the bits of the coordinates",
            "fewer or smaller swizzles",
        )
    swizzle, plain = found
    dims = reduce_dims(((it.size(outer), outer), *plain.dims()))
    return make_dims(dims, plain.replica, plain.offsets, swizzle)


def _bits(layout: Layout, axis: str) -> int:
    """A bound on the reach of swizzles that depends on the image alone.

    A field that is read above the highest bit of all coordinates is constant: 0, or for negative
    coordinates 1, which a field right above that bit is as well.
    """
    low, high = layout.range(axis)
    bits = max(high.bit_length(), (~low).bit_length() if low < 0 else 0)
    return 2 * bits + 1 if low < 0 else bits


def _split(layout: Layout, reach: dict[str, int]) -> tuple[Iters, Layout]:
    """The slow iters that step by multiples of what swizzles see, and the layout of the rest."""
    fused = it.fuse(layout.shard)
    cut = 0
    while (
        layout.box is None
        and cut < len(fused)
        and fused[cut][1] % (1 << reach.get(fused[cut][2], 0)) == 0
    ):
        cut += 1
    if cut == 0:
        return (), layout
    return fused[:cut], make(fused[cut:], layout.replica, layout.offsets, layout.swizzle)


def _forms(layout: Layout, reach: dict[str, int]) -> Iterator[tuple[tuple[Swizzle, ...], Layout]]:
    """Swizzles and the layouts that they leave, fewest swizzles first."""
    axes = layout.axes
    points = point_table(layout, np.arange(layout.size, dtype=np.int64), axes)
    columns = {axis: points[:, :, axes.index(axis)] for axis in reach}
    fits = {
        (axis, count): list(_fits(columns[axis], axis, count, reach[axis]))
        for axis in reach
        for count in (0, 1)
    }
    for counts in sorted(
        product(range(MAX_PER_AXIS + 1), repeat=len(reach)), key=lambda c: (sum(c), c)
    ):
        parts = []
        for axis, count in zip(reach, counts, strict=True):
            if (axis, count) not in fits:
                fits[axis, count] = list(_fits(columns[axis], axis, count, reach[axis]))
            parts.append(fits[axis, count])
        for choice in product(*parts):
            swizzle = tuple(sw for part in choice for sw in part)
            plain = _undone(points, axes, swizzle)
            if plain is not None:
                yield swizzle, plain


def _fits(column: Points, axis: str, count: int, reach: int) -> Iterator[tuple[Swizzle, ...]]:
    """The stacks of `count` swizzles that leave a layout on this axis alone."""
    singles = [
        Swizzle(axis, bits, base, sign * (total - base - bits))
        for total in range(2, reach + 1)
        for bits in range(1, total)
        for base in range(total - bits)
        for sign in (1, -1)
    ]
    if len(singles) ** count > MAX_TRIES:
        raise SearchError(
            f"canonical form on {axis}", f"{len(singles) ** count} swizzles", f"{MAX_TRIES}"
        )
    for stack in product(singles, repeat=count):
        if _undone(column[:, :, None], (axis,), stack) is not None:
            yield stack


def _undone(points: Points, axes: tuple[str, ...], swizzle: tuple[Swizzle, ...]) -> Layout | None:
    points = points.copy()
    for sw in swizzle:
        place = axes.index(sw.axis)
        points[:, :, place] = sw.undo_table(points[:, :, place])
    try:
        return from_points(points, axes, boxed=True)
    except NoIters:
        return None
