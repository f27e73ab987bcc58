"""XLA's tiling of an array, as boxes in boxes of the logical index.

Each tile splits dimensions, ``i -> (i // t, i % t)``, and puts the remainders behind the quotients;
``*`` first combines a dimension with the next more minor one. That is a box per tile: it pads and
splits the index that comes in, and the next one reorders the digits. Where the digits line up they
are a ladder, which one box often pads.

Source: XLA, "Tiled layout" (linear index formulas, repeated tiling, combining dimensions).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from axe_eq.layout.normal.chains import ladder_of
from axe_eq.layout.normal.ladders import Field, boxes_of, reduced, rooms_of, split
from axe_eq.layout.normal.nested_boxes import Stage
from axe_eq.layout.notation.text import refuse
from axe_eq.layout.value.check import MAX_VALUE
from axe_eq.layout.value.iters import DEFAULT_AXIS, size
from axe_eq.layout.value.layout import Layout

COMBINE = -1
"""The tile entry ``*``: combine this dimension with the next more minor one."""


def tile_array(
    shape: Sequence[int], minor_to_major: Sequence[int], tiles: Sequence[Sequence[int]]
) -> Layout:
    """A tiled array on the axis ``m``: with one box where that does, else with boxes in boxes.

    Args:
        shape: logical extents, slow to fast.
        minor_to_major: logical dimensions from the most minor one.
        tiles: per tile its extents, major to minor; `COMBINE` for ``*``.

    Raises:
        NotationError: more elements, with padding, than a layout has.
    """
    defined = _defined(shape, minor_to_major, tiles)
    memory, ladder = size(defined.shard), ladder_of(defined)
    if ladder is None:
        return defined
    ladder, _ = reduced(defined.size, ladder)
    fields = whole = [(defined.size, ladder)]
    if parts := split(defined.size, ladder, shape):
        fields = [(n, reduced(n, part)[0]) for n, part in zip(shape, parts, strict=True)]
    found = (_padded(dims, memory) for dims in (fields, whole))
    return next((one for one in found if one.footprint.get(DEFAULT_AXIS, 1) == memory), defined)


def _defined(
    shape: Sequence[int], minor_to_major: Sequence[int], tiles: Sequence[Sequence[int]]
) -> Layout:
    """Boxes in boxes by XLA's definition: every tile combines, pads, splits and reorders."""
    order = list(reversed(minor_to_major))
    extents = [shape[dim] for dim in order]
    stages: list[Stage] = []
    for tile in tiles:
        missing = len(tile) - len(extents)
        if missing > 0:
            order = [*range(missing), *(dim + missing for dim in order)]
            extents = [1] * missing + extents
        if COMBINE in tile:
            stages.append(Stage(tuple(extents), tuple(extents), tuple(order)))
            extents = _combined(extents, tile)
            order = list(range(len(extents)))
            tile = [count for count in tile if count != COMBINE]
        kept = len(extents) - len(tile)
        counts = [-(-n // t) for n, t in zip(extents[kept:], tile, strict=True)]
        padded = [*extents[:kept], *(n * t for n, t in zip(counts, tile, strict=True))]
        stages.append(Stage(tuple(extents), tuple(padded), tuple(order)))
        if prod(padded) > MAX_VALUE:
            refuse(f"{prod(padded)} elements with padding", f"at most {MAX_VALUE}")
        extents = [*extents[:kept], *counts, *tile]
        slow = range(kept, len(extents), 2)
        order = [*range(kept), *slow, *(place + 1 for place in slow)]
    stride, strides = 1, [0] * len(extents)
    for place, extent in zip(reversed(order), reversed(extents), strict=True):
        strides[place] = stride
        stride *= extent
    incoming = [extents[order.index(place)] for place in range(len(extents))]
    shard = [(n, s, DEFAULT_AXIS) for n, s in zip(incoming, strides, strict=True) if n > 1]
    tidied = [stage for stage in map(_tidied, stages) if stage.order or stage.box != stage.padded]
    return Layout(shard, (), {}, (), shape, shape, tidied) if tidied else Layout(shard)


def _padded(fields: Sequence[Field], memory: int) -> Layout:
    """The layout of ladders with the padding of memory: room that no element has.

    A digit that begins a dim of a box takes it where it lies behind it; else it is a digit of its
    own, before those of the first dim.
    """
    rooms = [rooms_of(*field) for field in fields]
    strides = [[stride for _, stride, _ in ladder] for _, ladder in fields]
    free: list[tuple[int, int]] = []
    above = memory
    places = [(n, digit) for n, own in enumerate(strides) for digit in range(len(own))]
    for n, digit in sorted(places, key=lambda at: -strides[at[0]][at[1]]):
        stride, (level, room) = strides[n][digit], rooms[n][digit]
        if _may_pad(fields[n], digit):
            room = max(room, above // stride)
            rooms[n] = *rooms[n][:digit], (level, room), *rooms[n][digit + 1 :]
        if above % (stride * room) == 0 and above > stride * room:
            free.append((above // (stride * room), stride * room))
        above = stride
    if above > 1:
        free.append((above, 1))
    shard = [(room, stride, DEFAULT_AXIS) for room, stride in free]
    for own, steps in zip(strides, rooms, strict=True):
        shard += [(room, s, DEFAULT_AXIS) for s, (_, room) in zip(own, steps, strict=True)]
    whole = [(extent, steps) for (extent, _), steps in zip(fields, rooms, strict=True)]
    for room, _ in reversed(free):
        extent, steps = whole[0]
        whole[0] = extent, ((steps[0][0] * steps[0][1] if steps else 1, room), *steps)
    boxes = boxes_of(whole, keep=True)
    if len(boxes) > 1:
        boxes = min(boxes, boxes_of(whole), key=len)
    (box, padded), *inner = boxes or ((None, None),)
    return Layout(shard, (), {}, (), box, padded, inner)


def _may_pad(field: Field, digit: int) -> bool:
    """Whether what the digit and faster ones cover is as long everywhere."""
    extent, ladder = field
    slower = [extent, *(level for level, _, _ in ladder[:digit])]
    return all(level % slower[-1] == 0 for level in slower)


def tiled_extents(extents: Sequence[int], tile: Sequence[int]) -> list[int]:
    """The extents of an array, major to minor, once a tile is applied."""
    extents = _combined([1] * (len(tile) - len(extents)) + list(extents), tile)
    tile = [count for count in tile if count != COMBINE]
    kept = len(extents) - len(tile)
    counts = [-(-extent // count) for extent, count in zip(extents[kept:], tile, strict=True)]
    return [*extents[:kept], *counts, *tile]


def _combined(extents: Sequence[int], tile: Sequence[int]) -> list[int]:
    """The extents once every ``*`` has combined a dimension with the next more minor one."""
    kept = len(extents) - len(tile)
    found, run = list(extents[:kept]), 1
    for extent, count in zip(extents[kept:], tile, strict=True):
        run *= extent
        if count != COMBINE:
            found.append(run)
            run = 1
    return found


def _tidied(stage: Stage) -> Stage:
    """The stage without dims of 1."""
    kept = [dim for dim, extent in enumerate(stage.padded) if extent > 1]
    old = sorted(stage.order[dim] for dim in kept)
    order = tuple(old.index(stage.order[dim]) for dim in kept)
    box, padded = (tuple(part[dim] for dim in kept) for part in (stage.box, stage.padded))
    return Stage(box, padded, () if order == tuple(range(len(kept))) else order)
