"""Whether two elements of a layout share a coordinate, without enumeration where possible."""

from __future__ import annotations

from collections.abc import Sequence
from math import gcd

import numpy as np

from axe_eq.errors import SearchError
from axe_eq.layout.normal.replicas import by_axis, least_shared, saturate
from axe_eq.layout.normal.tables import point_table
from axe_eq.layout.value import iters as it
from axe_eq.layout.value.iters import Iters
from axe_eq.layout.value.layout import Layout, make
from axe_eq.layout.value.reports import Clash, Coordinate

MAX_POINTS = 2**20
MAX_NODES = 2**18


def first_clash(layout: Layout) -> Clash | None:
    """The least y that shares a coordinate with an earlier x, and the least such x; or None.

    Swizzles are one to one on coordinates, so they decide nothing.

    Raises:
        SearchError: undecided within the limits.
    """
    steps, _ = by_axis(layout.replica)
    copies = tuple((e, s, axis) for axis in steps for s, e in saturate(steps[axis]))
    whole = make(it.fuse(layout.shard), copies)
    if _has_gaps(whole):
        return None
    plain = make(layout.shard, layout.replica, (), (), *layout.boxes)
    if layout.size * layout.copies() <= MAX_POINTS:
        pair = _enumerated(plain)
    elif layout.box is None:
        pair = _Search(whole).run()
    else:
        raise SearchError(
            f"aliasing of {layout}", f"{layout.size} elements", f"at most {MAX_POINTS}"
        )
    if pair is None:
        return None
    return Clash(*pair, _shared(layout, *pair))


def _shared(layout: Layout, x: int, y: int) -> Coordinate:
    """What two elements share: on each axis the least such value, before swizzles."""
    steps, shift = by_axis(layout.replica)
    here, there = layout.linear_point(x), layout.linear_point(y)
    point = {}
    for axis in {*here, *there, *steps}:
        gap = there.get(axis, 0) - here.get(axis, 0)
        above = least_shared(saturate(steps.get(axis, ())), gap)
        point[axis] = here.get(axis, 0) + shift.get(axis, 0) + above
    return layout.swizzled_point(point)


def _has_gaps(layout: Layout) -> bool:
    """A sufficient condition: on each axis every stride is beyond the reach of all smaller ones."""
    for axis in layout.axes:
        reach = sum((e - 1) * abs(s) for e, s, name in layout.replica if name == axis)
        for stride, extent in sorted((abs(s), e) for e, s, name in layout.shard if name == axis):
            if stride <= reach:
                return False
            reach += (extent - 1) * stride
    return True


def _enumerated(layout: Layout) -> tuple[int, int] | None:
    axes = layout.axes
    points = point_table(layout, np.arange(layout.size, dtype=np.int64), axes)
    owner = np.repeat(np.arange(layout.size), points.shape[1])
    flat = points.reshape(-1, len(axes))
    order = np.lexsort((owner, *flat.T))
    flat, owner = flat[order], owner[order]
    same = (flat[1:] == flat[:-1]).all(axis=1)
    meets = same & (owner[1:] != owner[:-1])
    if not meets.any():
        return None
    y = int(owner[1:][meets].min())
    place = np.concatenate([[0], np.cumsum(~same)])  # one number per distinct point
    shared = np.isin(place, place[owner == y])
    return int(owner[shared].min()), y


class _Search:
    """Branch and bound over the digit differences of two elements on one coordinate."""

    def __init__(self, layout: Layout) -> None:
        self.iters: Iters = layout.shard + layout.replica
        self.count = len(layout.shard)
        self.levels: list[int] = []
        level = layout.size
        for extent, _, _ in layout.shard:
            level //= extent
            self.levels.append(level)
        self.best: tuple[int, int] | None = None
        self.nodes = 0

    def run(self) -> tuple[int, int] | None:
        """The pair ``(x, y)`` with the least y, then the least x."""
        self._descend(0, dict.fromkeys((item[2] for item in self.iters), 0), 0, 0)
        return None if self.best is None else (self.best[1], self.best[0])

    def _descend(self, place: int, gap: dict[str, int], y: int, x: int) -> None:
        self.nodes += 1
        if self.nodes > MAX_NODES:
            raise SearchError("aliasing", f"over {MAX_NODES} digit differences", "a simpler layout")
        if self.best is not None and (y, x) >= self.best:
            return
        if place == len(self.iters):
            if y != x:
                self.best = y, x
            return
        _, stride, axis = self.iters[place]
        for step in self._steps(place, gap[axis], y == x):
            rest = {**gap, axis: gap[axis] + step * stride}
            if place < self.count:
                level = self.levels[place]
                self._descend(place + 1, rest, y + max(step, 0) * level, x + max(-step, 0) * level)
            else:
                self._descend(place + 1, rest, y, x)

    def _steps(self, place: int, gap: int, leading: bool) -> Sequence[int]:
        """The differences of one digit that the rest can still balance, small steps of y first."""
        extent, stride, axis = self.iters[place]
        rest = [(e, abs(s)) for e, s, name in self.iters[place + 1 :] if name == axis]
        reach = sum((e - 1) * s for e, s in rest)
        grid = gcd(*(s for _, s in rest))
        forward = leading and place < self.count
        if stride == 0:
            fits: Sequence[int] = (0, 1) if forward else (0,)
            return fits if _reachable(gap, reach, grid) else ()
        size, gap = abs(stride), gap if stride > 0 else -gap
        first = max(0 if forward else 1 - extent, -((gap + reach) // size))
        last = min(extent - 1, (reach - gap) // size)
        fits = [d for d in range(first, last + 1) if _reachable(gap + d * size, reach, grid)]
        return sorted(fits, key=lambda d: (max(d, 0), -d))


def _reachable(gap: int, reach: int, grid: int) -> bool:
    return abs(gap) <= reach and (gap % grid == 0 if grid else gap == 0)
