"""What writers share: bringing a layout into the part of the model that a notation has."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from axe_eq.errors import SearchError
from axe_eq.layout.normal.recover_iters import NoIters
from axe_eq.layout.normal.swizzled import under_swizzles
from axe_eq.layout.normal.tables import from_points, point_table
from axe_eq.layout.notation.text import Context, refuse
from axe_eq.layout.value import iters as it
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.layout.value.layout import Layout, make

MAX_DECIDED = 1 << 16
"""Most elements, copies counted, of a map that is enumerated to find its layout."""


def given_shape(layout: Layout, context: Context) -> tuple[int, ...] | None:
    """The extents of the tensor: the caller's, else those of the layout's box."""
    return layout.box if context.shape is None else context.shape


def settled(layout: Layout) -> Layout:
    """The same map with canonical replicas and offset; shard, swizzles and box stay as given."""
    if not layout.replica:
        return layout
    linear = layout.linear().canonical()
    return make(layout.shard, linear.replica, linear.offsets, layout.swizzle, *layout.boxes)


def in_bits(layout: Layout) -> Layout:
    """A layout in boxes as a list under swizzles where it XORs bits; canonical forms may differ."""
    found = under_swizzles(layout) if layout.box is not None else None
    return layout if found is None else found


def without_box(layout: Layout) -> Layout:
    """The same map without a padded box.

    Raises:
        NotationError: the padding cannot be dropped without changing the map.
    """
    if layout.box is None:
        return layout
    parts = layout.shard, layout.replica, layout.offsets, ()
    plain = make(*parts, *layout.boxes).canonical()
    if plain.box is None and not plain.swizzle:
        return make(plain.shard, plain.replica, plain.offsets, layout.swizzle)
    padded = it.size(plain.shard)
    wrong = f"{plain.size} elements padded to {padded}" if padded > plain.size else "a box in a box"
    refuse(wrong, "no padding")


def without_replica(layout: Layout) -> Layout:
    """The same map without replica iters.

    Raises:
        NotationError: some element has more than one copy.
    """
    plain = settled(layout)
    if not plain.replica:
        return plain
    refuse("an element has several places", "no replicas")


def without_swizzle(layout: Layout, rungs: int = 0) -> Layout:
    """The same map without a swizzle, maybe in boxes in boxes of so many digits.

    Raises:
        NotationError: the swizzle moves some element.
    """
    acting = tuple(sw for sw in layout.swizzle if sw.bits)
    if not acting:
        return make(layout.shard, layout.replica, layout.offsets, (), *layout.boxes)
    with suppress(NoIters, SearchError):
        if layout.size * it.size(layout.replica) > MAX_DECIDED:
            plain = layout.canonical()
        else:
            index = np.arange(layout.size, dtype=np.int64)
            table = point_table(layout, index, layout.axes)
            plain = from_points(table, layout.axes, boxed=True, rungs=rungs)
        if not plain.swizzle:
            return plain
    refuse(f"swizzle {acting[0]}", "strides only")


def only_axis(layout: Layout, why: str, axis: str = DEFAULT_AXIS) -> int:
    """Checks that the layout lives on one axis, and returns its offset there.

    Raises:
        NotationError: names the first other axis.
    """
    used = {item[2] for item in layout.shard + layout.replica if item[0] > 1 and item[1]}
    used |= {name for name, _ in layout.offsets} | {sw.axis for sw in layout.swizzle}
    for other in sorted(used - {axis}):
        refuse(f"axis {other}", why)
    return layout.offset.get(axis, 0)
