"""From tables of coordinates back to layouts: the complete decision on enumerated functions."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from math import isqrt, prod

import numpy as np
from numpy.typing import NDArray

from axe_eq.errors import LayoutError, SearchError
from axe_eq.layout.normal.chains import build, ladder_of
from axe_eq.layout.normal.images import Steps, factor
from axe_eq.layout.normal.ladder_search import find_ladder
from axe_eq.layout.normal.ladders import is_wide
from axe_eq.layout.normal.recover_iters import NoIters, from_table
from axe_eq.layout.normal.replicas import MAX_SPAN, image_table, least_steps, saturate
from axe_eq.layout.value.boxes import Dims
from axe_eq.layout.value.check import check_axis, make_offsets
from axe_eq.layout.value.iters import DEFAULT_AXIS, Iter, Iters, size
from axe_eq.layout.value.layout import Layout, make, make_dims

Table = NDArray[np.int64]

MAX_POINTS = 2**22
MAX_START = 2**10  # of a long table, to see early that few rungs are not enough
MAX_KEPT = 2**6  # copies of an element whose list is remembered
MAX_RUNGS = 64  # of boxes in boxes that operations on them find


def recover(points: NDArray[np.integer] | Sequence[object], axes: Sequence[str]) -> Layout:
    """The layout with a given table of coordinates, in canonical form. Complete.

    Args:
        points: ``[size, axes]``, or ``[size, copies, axes]`` where elements have several copies.
        axes: the axis of each column.

    Raises:
        LayoutError: no layout without swizzle and box has this table, with the first index at which
            every candidate breaks.
        SearchError: the copies are off the gap condition over a span of 2**24.

    Source: Axe A.6 and Theorem A.8, read as a decision procedure.
    """
    names = tuple(check_axis(axis) for axis in axes)
    try:
        table = np.asarray(points, dtype=np.int64)
    except OverflowError:
        raise LayoutError("table", "a coordinate over 63 bits", "numbers below 2**63") from None
    if table.ndim == 2:
        table = table[:, None, :]
    if table.ndim != 3 or table.shape[2] != len(names) or 0 in table.shape[:2]:
        raise LayoutError(
            f"table of shape {table.shape}",
            f"for axes {names}",
            "[size, axes] or [size, copies, axes]",
        )
    try:
        return from_points(table, names)
    except NoIters as none:
        raise LayoutError(
            f"table of {len(table)} elements",
            f"no list of iters computes it: index {none.index} breaks, {none.reason}",
            "a strided map",
        ) from None


def point_table(layout: Layout, index: Table, axes: Sequence[str]) -> Table:
    """The images of some indices as ``[index, copy, axis]``, copies in ascending order."""
    base = layout.coordinates(index)
    spread = np.zeros((1, len(axes)), dtype=np.int64)
    for place, axis in enumerate(axes):
        steps = layout.replica_table(axis)
        part = np.zeros((len(steps), len(axes)), dtype=np.int64)
        part[:, place] = steps
        spread = (spread[:, None] + part[None]).reshape(-1, len(axes))
    points = np.empty((len(index), *spread.shape), dtype=np.int64)
    for place, axis in enumerate(axes):
        values = base.get(axis, np.zeros(1, dtype=np.int64))[:, None] + spread[None, :, place]
        points[:, :, place] = layout.swizzled(axis, values)
    if len(spread) == 1:
        return points
    order = np.lexsort(points.transpose(2, 0, 1)[::-1], axis=-1)
    return np.take_along_axis(points, order[:, :, None], axis=1)


def from_points(
    table: Table,
    axes: tuple[str, ...],
    *,
    boxed: bool = False,
    rungs: int = 0,
    several: bool = False,
) -> Layout:
    """`recover` on a checked ``[size, copies, axes]`` table, optionally with padded boxes.

    Args:
        table: coordinates by element, copy and axis.
        axes: the axis of each column.
        boxed: whether it may have a box.
        rungs: digits that boxes in boxes may have.
        several: whether these may step on several axes, where others do not do.

    Raises:
        NoIters: no layout has this table.
        SearchError: undecided, the copies or the boxes in boxes.
    """
    base, spread = _translates(table)
    replica = _replica(spread, axes)
    columns = {axis: base[:, place] - base[0, place] for place, axis in enumerate(axes)}
    origin = make_offsets({axis: int(base[0, place]) for place, axis in enumerate(axes)})
    try:
        dims: Dims = ((len(table), from_table(columns)),)
    except NoIters:
        found = boxed_dims(np.stack(list(columns.values()), axis=1), axes) if boxed else None
        if found is None:
            steps = base - base[0]
            ladder = find_ladder(steps, axes, rungs, several=several) if rungs else None
            if ladder is None:
                raise
            return build([(len(table), ladder)], replica, origin)
        dims = found
    return make_dims(dims, replica, origin)


def plain_form(points: Table, axes: tuple[str, ...]) -> Layout | None:
    """The layout of a table that needs no swizzle: a list, a box, or boxes of which few are short.

    None where only swizzles or many short boxes compute it, see `ladders.is_wide`.
    """
    rungs, start = 3 * len(points).bit_length(), points[:MAX_START, 0]
    try:
        if points.shape[1:] == (1, 1) and len(points) > MAX_START:
            # The rungs of a start on one axis are those of the whole below its end.
            few = find_ladder(start - start[0], axes, 3 * MAX_START.bit_length())
            rungs = rungs if few is not None else 0
        found = from_points(points, axes, boxed=True, rungs=rungs)
    except (NoIters, SearchError):
        return None
    if found.inner:
        ladder = ladder_of(found)
        assert ladder is not None  # built from one
        return found if is_wide(found.size, ladder) else None
    return found


def pick(layout: Layout, index: Table) -> Layout:
    """The layout ``u -> L(index[u])`` with the replicas and swizzles of `layout`, maybe boxed.

    Of boxes in boxes it may be one, with at most 64 digits.

    Raises:
        NoIters: no layout has this table.
    """
    axes = layout.axes or (DEFAULT_AXIS,)
    columns = layout.coordinates(index)
    zero = np.zeros(len(index), dtype=np.int64)
    points = np.stack([columns.get(axis, zero) for axis in axes], axis=-1)
    rungs = MAX_RUNGS if layout.inner else 0
    found = from_points(points[:, None, :], axes, boxed=True, rungs=rungs, several=True)
    return make(found.shard, layout.replica, found.offsets, layout.swizzle, *found.boxes)


def _translates(table: Table) -> tuple[Table, Table]:
    """The least copy of every element, and the copies of element 0 relative to it.

    Raises:
        NoIters: the copies of an element are no translate of those of element 0.
    """
    if table.shape[1] == 1:
        return table[:, 0, :], np.zeros((1, table.shape[2]), dtype=np.int64)
    order = np.lexsort(table.transpose(2, 0, 1)[::-1], axis=-1)
    copies = np.take_along_axis(table, order[:, :, None], axis=1)
    base = copies[:, 0, :]
    relative = copies - base[:, None, :]
    same = (relative == relative[0]).all(axis=(1, 2))
    if not same.all():
        want = {tuple(point) for point in relative[0].tolist()}
        for index in np.flatnonzero(~same).tolist():
            if {tuple(point) for point in relative[index].tolist()} != want:
                raise NoIters(index, "its copies are no translate of those of index 0")
    return base, np.unique(relative[0], axis=0)


def _replica(spread: Table, axes: tuple[str, ...]) -> Iters:
    columns = [np.unique(spread[:, place]) for place in range(len(axes))]
    if prod(len(values) for values in columns) != len(spread):
        raise NoIters(0, "its copies are no product over the axes")
    replica: list[Iter] = []
    for axis, values in sorted(zip(axes, columns, strict=True), key=lambda pair: pair[0]):
        few = len(values) <= MAX_KEPT
        steps = _known_steps(tuple(values.tolist())) if few else steps_of(values)
        if steps is None:
            raise NoIters(0, f"its copies on {axis} are no sum of progressions")
        replica += [(extent, stride, axis) for stride, extent in steps]
    return tuple(replica)


@lru_cache(maxsize=4096)
def _known_steps(values: tuple[int, ...]) -> Steps | None:
    """`steps_of`, which searches for swizzles ask of the same few copies many times."""
    return steps_of(np.array(values))


def steps_of(values: Table) -> Steps | None:
    """The normal form of the replica list with this image, or None: there is none.

    Args:
        values: the image, ascending from 0.

    Raises:
        SearchError: undecided, a cluster of the image spans over 2**24.
    """
    if len(values) == 1:
        return ()
    if not np.array_equal(values[-1] - values[::-1], values):
        return None  # every list's image is symmetric
    unit = int(np.gcd.reduce(values))
    rest, greedy = values // unit, []
    while len(rest) > 1:
        stride = int(rest[1])
        run = int(np.argmin(np.isin(np.arange(len(rest) + 1) * stride, rest)))
        greedy.append((stride * unit, run))
        rest = rest[~np.isin(rest - stride, rest)]
    with suppress(SearchError):  # of more elements than these
        if np.array_equal(image_table(tuple(greedy), len(values)), values):
            return least_steps(saturate(greedy))
    if values[-1] // unit < MAX_SPAN:
        found = factor(_bits(values // unit))
        if found is None:
            return None
        return least_steps(saturate((stride * unit, e) for stride, e in found))
    return _clustered(values)


def _clustered(values: Table) -> Steps | None:
    """`steps_of` for a wide image: its part near 0, and the grid that copies of it lie on."""
    for end in (np.flatnonzero(np.diff(values) > values[:-1])[1:] + 1).tolist():
        near = values[:end]
        starts, left = [], values
        while len(left) and np.isin(left[0] + near, left).all():
            starts.append(int(left[0]))
            left = left[~np.isin(left, left[0] + near)]
        if len(left) == 0 and np.gcd.reduce(starts) > 2 * near[-1]:
            parts = steps_of(near), steps_of(np.array(starts))
            return None if parts[0] is None or parts[1] is None else parts[0] + parts[1]
    raise SearchError(
        f"{len(values)} copies",
        f"a span of {values[-1] + 1} off the gap condition",
        f"at most {MAX_SPAN}",
    )


def _bits(values: Table) -> int:
    flags = np.zeros(int(values[-1]) + 1, dtype=np.uint8)
    flags[values] = 1
    return int.from_bytes(np.packbits(flags, bitorder="little").tobytes(), "little")


def boxed_dims(table: Table, axes: tuple[str, ...]) -> Dims | None:
    """The reduced dims of a table that starts at 0, or None: no padded box computes it.

    The innermost extent of a reduced box is unique, so the first that fits is the one.
    """
    count = len(table)
    for inner in divisors(count)[1:]:
        head, rows = table[:inner], table[::inner]
        if inner < count and not np.array_equal(table[inner : 2 * inner] - rows[1], head):
            continue  # seen by two rows alone
        if not np.array_equal((rows[:, None, :] + head[None]).reshape(table.shape), table):
            continue
        try:
            block = from_table(dict(zip(axes, head.T, strict=True)), padded=True)
        except NoIters:
            continue
        if inner == count:
            return ((inner, block),)
        if size(block) == inner:
            continue  # an exact dim is part of a slower one
        outer = outer_dims(rows, axes)
        if outer is not None:
            return (*outer, (inner, block))
    return None


def divisors(number: int) -> list[int]:
    """The divisors of a positive number, ascending."""
    low = [n for n in range(1, isqrt(number) + 1) if number % n == 0]
    return sorted({*low, *(number // n for n in low)})


def outer_dims(table: Table, axes: tuple[str, ...]) -> Dims | None:
    """`boxed_dims`, but an exact list is found first."""
    try:
        return ((len(table), from_table(dict(zip(axes, table.T, strict=True)))),)
    except NoIters:
        return boxed_dims(table, axes)
