"""The normal form of a swizzled layout, found from its table.

Several swizzles give one map where the linear part changes too, so the normal form is the first
swizzle, in a fixed order, that leaves a layout of the other parts: none, then one, then two. What
is tried depends on the map alone, so equal maps end at the same one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import islice, product
from math import gcd

import numpy as np
from numpy.typing import NDArray

from axe_eq.errors import SearchError
from axe_eq.layout import iters as it
from axe_eq.layout.boxes import reduce_dims
from axe_eq.layout.chains import build, ladder_of
from axe_eq.layout.iters import Iters
from axe_eq.layout.ladders import joined, of_block, reduced
from axe_eq.layout.levels import NoIters
from axe_eq.layout.swizzle import Swizzle
from axe_eq.layout.tables import from_points, plain_form, point_table
from axe_eq.layout.value import Layout, make, make_dims

MAX_POINTS = 2**18
MAX_TRIES = 2**13
MAX_PER_AXIS = 2
MAX_BATCH = 2**21  # values undone at a time
MAX_UNDONE = 2**24

Points = NDArray[np.int64]
Stack = tuple[Swizzle, ...]


@lru_cache(maxsize=1024)
def normalise(layout: Layout) -> Layout:
    """The canonical form of a layout with swizzles.

    Raises:
        SearchError: over 2**18 points, or no form with at most two swizzles per axis and within the
            bits of the coordinates is found.
    """
    acting = tuple(sw for sw in layout.swizzle if sw.bits)
    if acting != layout.swizzle:
        parts = layout.replica, layout.offsets, acting, *layout.boxes
        return make(layout.shard, *parts).canonical()
    if layout.size * layout.copies() <= MAX_POINTS:
        points = point_table(layout, np.arange(layout.size, dtype=np.int64), layout.axes)
        if (form := plain_form(points, layout.axes)) is not None:
            return form
    # A single swizzle bounds the search by its own reach; steps beyond that stay as they are.
    single = len(layout.swizzle) == 1
    reach = {sw.axis: sw.reach if single else _bits(layout, sw.axis) for sw in layout.swizzle}
    seen = {  # what the search tries may reach less than what is there, and acts as that does
        axis: max([bits, *(sw.reach for sw in layout.swizzle if sw.axis == axis)])
        for axis, bits in reach.items()
    }
    outer, inner = _split(layout, seen)
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
    if plain.inner:
        inside = ladder_of(plain)
        assert inside is not None  # built from one
        count = it.size(outer)
        extent, ladder = joined(((count, of_block(outer, count)), (plain.size, inside)))
        ladder, _ = reduced(extent, ladder)
        return build([(extent, ladder)], plain.replica, plain.offsets)
    dims = reduce_dims(((it.size(outer), outer), *plain.dims()))
    return make_dims(dims, plain.replica, plain.offsets, swizzle)


def swizzled_form(layout: Layout) -> Layout | None:
    """The layout with swizzles that has the map of boxes in boxes, or None: there is none.

    Among those with at most two swizzles per axis, or one where two are too many to try.

    Raises:
        SearchError: over 2**24 values to undo.
    """
    reach = {axis: _bits(layout, axis) for axis in layout.axes}
    singles = sum(_stack_count(bits, 1) for bits in reach.values())
    if layout.size * layout.copies() * singles > MAX_UNDONE:
        raise SearchError(f"canonical form of {layout}", f"{singles} swizzles", "fewer elements")
    try:
        found = next(_forms(layout, reach), None)
    except SearchError:
        return None
    if found is None:
        return None
    swizzle, plain = found
    return make(plain.shard, plain.replica, plain.offsets, swizzle, *plain.boxes)


def _bits(layout: Layout, axis: str) -> int:
    """A bound on the reach of swizzles that depends on the image alone.

    A field that is read above the highest bit of all coordinates is constant: 0, or for negative
    coordinates 1, which a field right above that bit is as well.
    """
    low, high = layout.range(axis)
    bits = max(high.bit_length(), (~low).bit_length() if low < 0 else 0)
    return 2 * bits + 1 if low < 0 else bits


def _split(layout: Layout, seen: dict[str, int]) -> tuple[Iters, Layout]:
    """The slow iters that step by multiples of what swizzles see, and the layout of the rest.

    Args:
        layout: a layout with swizzles.
        seen: axis -> low bits that swizzles on it read or write, those to be tried included.
    """
    fused = it.fuse(layout.shard)
    if layout.box is not None:
        return (), layout
    for cut, (extent, stride, axis) in enumerate(fused):
        grid = 1 << seen.get(axis, 0)
        period = grid // gcd(stride, grid)
        if period == 1:
            continue
        if extent > period and extent % period == 0:
            outer = (*fused[:cut], (extent // period, stride * period, axis))
            inner: Iters = ((period, stride, axis), *fused[cut + 1 :])
        else:
            outer, inner = fused[:cut], fused[cut:]
        return outer, make(inner, layout.replica, layout.offsets, layout.swizzle)
    return fused, make((), layout.replica, layout.offsets, layout.swizzle)


def _forms(layout: Layout, reach: dict[str, int]) -> Iterator[tuple[tuple[Swizzle, ...], Layout]]:
    """Swizzles and the layouts that they leave, fewest swizzles first."""
    axes = layout.axes
    points = point_table(layout, np.arange(layout.size, dtype=np.int64), axes)
    columns = {axis: points[:, :, axes.index(axis)] for axis in reach}
    counts = product(range(MAX_PER_AXIS + 1), repeat=len(reach))
    for split in sorted(counts, key=lambda split: (sum(split), split)):
        parts = [
            _fits(columns[axis], _stacks(axis, count, reach[axis]), axis)
            for axis, count in zip(reach, split, strict=True)
        ]
        for choice in parts[0] if len(parts) == 1 else _joined(parts):
            plain = _undone(points, axes, choice)
            if plain is not None:
                yield choice, plain


def _joined(parts: Sequence[Iterable[Stack]]) -> Iterator[Stack]:
    for choice in product(*parts):
        yield tuple(sw for stack in choice for sw in stack)


def _stacks(axis: str, count: int, reach: int) -> Iterator[Stack]:
    """All stacks of `count` swizzles of at most that reach, small reach first."""
    if not count:
        return iter([()])
    tries = _stack_count(reach, count)  # counted before the list is made
    if tries > MAX_TRIES:
        raise SearchError(
            f"canonical form on {axis}", f"{tries} stacks of swizzles", f"{MAX_TRIES}"
        )
    singles = [
        Swizzle(axis, bits, base, sign * (total - base - bits))
        for total in range(2, reach + 1)
        for bits in range(1, total)
        for base in range(total - bits)
        for sign in (1, -1)
    ]
    return product(singles, repeat=count)


def _stack_count(reach: int, count: int) -> int:
    return int(((reach**3 - reach) // 3) ** count)


def _fits(column: Points, stacks: Iterator[Stack], axis: str) -> Iterator[Stack]:
    """The stacks that leave a layout on this axis alone."""
    size, copies = column.shape
    while batch := list(islice(stacks, max(1, MAX_BATCH // size))):
        if copies == 1:
            undone = np.stack([_undo(column[:, 0], stack) for stack in batch])
            batch = [batch[i] for i in np.flatnonzero(_plausible(undone))]
        for stack in batch:
            if _undone(column[:, :, None], (axis,), stack) is not None:
                yield stack


def _plausible(rows: Points) -> NDArray[np.bool_]:
    """Which functions, one per row, may be a layout: a necessary condition.

    Either a list computes the whole function, or an innermost dim of a box repeats in it up to an
    offset per row, and a list computes that dim.
    """
    count = rows.shape[1]
    if count < 3:
        return np.ones(len(rows), dtype=bool)
    may = _computed(rows)
    level = _first_level(rows)
    for inner in (n for n in range(3, count) if count % n == 0):
        rest = np.flatnonzero(~may & (level < inner))  # a dim without a level is never padded
        second = rows[rest, inner : 2 * inner] - rows[rest, inner : inner + 1]
        rest = rest[(second == rows[rest, :inner] - rows[rest, :1]).all(axis=1)]
        rest = rest[_computed(rows[rest, :inner])]
        tiles = rows[rest].reshape(len(rest), count // inner, inner)
        relative = tiles - tiles[:, :, :1]
        may[rest] = (relative == relative[:, :1]).all(axis=(1, 2))
    return may


def _computed(rows: Points) -> NDArray[np.bool_]:
    """Which functions, one per row, are an iter list on their domain, maybe longer than it."""
    count = rows.shape[1]
    if count < 3 or len(rows) == 0:
        return np.ones(len(rows), dtype=bool)
    level = _first_level(rows)
    inside = np.arange(1, count) % level[:, None] != 0
    steps = np.diff(rows)
    good: NDArray[np.bool_] = ~((steps != steps[:, :1]) & inside).any(axis=1)
    for step in np.unique(level[good & (level < count)]).tolist():
        same = np.flatnonzero(good & (level == step))
        good[same] = _computed(rows[same, ::step])
    return good


def _first_level(rows: Points) -> Points:
    """Per function the first index whose step is not the first step, or the length."""
    steps = np.diff(rows)
    breaks = steps != steps[:, :1]
    first: Points = np.where(breaks.any(axis=1), breaks.argmax(axis=1) + 1, rows.shape[1])
    return first


def _undo(values: Points, stack: Stack) -> Points:
    for sw in stack:
        values = sw.undo_table(values)
    return values


def _undone(points: Points, axes: tuple[str, ...], stack: Stack) -> Layout | None:
    """The layout that is left of a table without these swizzles, or None."""
    points = points.copy()
    for sw in stack:
        place = axes.index(sw.axis)
        points[:, :, place] = sw.undo_table(points[:, :, place])
    if not stack:
        return plain_form(points, axes)
    try:
        return from_points(points, axes, boxed=True)
    except NoIters:
        return None
