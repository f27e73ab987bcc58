"""Layouts with boxes in boxes as ladders, and back."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from axe_eq.errors import SearchError
from axe_eq.layout.normal import ladders as ld
from axe_eq.layout.normal.ladders import Field, Ladder
from axe_eq.layout.normal.nested_boxes import Stage
from axe_eq.layout.value import iters as it
from axe_eq.layout.value.check import MAX_VALUE, Offsets
from axe_eq.layout.value.iters import Iters
from axe_eq.layout.value.layout import Layout, make
from axe_eq.layout.value.swizzle import Swizzle


def ladder_of(layout: Layout) -> Ladder | None:
    """The ladder of a layout's index, before copies and swizzles; None where boxes do not line up.

    Lining up means that what one box pads is digits of the next one.
    """
    ladder = ld.of_block(it.fuse(layout.shard), it.size(layout.shard))
    if layout.box is None or layout.padded is None:
        return ladder
    for stage in reversed((Stage(layout.box, layout.padded), *layout.inner)):
        ladder, _ = ld.reduced(prod(stage.padded), ladder)
        parts = ld.split(prod(stage.padded), ladder, stage.padded)
        if parts is None:
            return None
        short = [ld.cut(part, extent) for extent, part in zip(stage.box, parts, strict=True)]
        fields = list(zip(stage.box, short, strict=True))
        if stage.order:
            fields = [fields[stage.order.index(dim)] for dim in range(len(fields))]
        _, ladder = ld.joined(fields)
    return ladder


def build(
    fields: Sequence[Field],
    replica: Iters,
    offsets: Offsets,
    swizzle: tuple[Swizzle, ...] = (),
    *,
    keep: bool = False,
) -> Layout:
    """The layout of several indices as one, row-major, each laid out by its ladder.

    Args:
        fields: an extent and a ladder per index.
        replica: replicas of the layout.
        offsets: its offset.
        swizzle: its swizzles.
        keep: the first box, if there is any, has the extents of the fields.

    Raises:
        SearchError: over 2**63 - 1 elements with padding.
    """
    shard = tuple(item for field in fields for item in ld.iters_of(*field))
    if it.size(shard) > MAX_VALUE:
        raise SearchError("boxes in boxes", f"{it.size(shard)} elements", f"at most {MAX_VALUE}")
    rooms = [(extent, ld.rooms_of(extent, ladder)) for extent, ladder in fields]
    boxes, copying = ld.boxes_of(rooms, keep=keep), ld.copying(fields)
    if copying and not boxes:  # a box alone cannot pad digits that no iters have
        extents = tuple([extent for extent, _ in fields])
        boxes = ((extents, extents),)
    boxes += copying
    if not boxes:
        return make(shard, replica, offsets, swizzle)
    inner = tuple(Stage(*box) for box in boxes[1:])
    return make(shard, replica, offsets, swizzle, *boxes[0], inner)
