"""Inverses of one-to-one layouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from axe_eq.errors import LayoutError
from axe_eq.layout.normal.recover_iters import add
from axe_eq.layout.normal.replicas import normal_form
from axe_eq.layout.value.check import check_axes, make_offsets
from axe_eq.layout.value.iters import DEFAULT_AXIS, Iter, Iters, fuse, size
from axe_eq.layout.value.layout import Layout, make
from axe_eq.layout.value.swizzle import Swizzle

MAX_REST = 2**20


def inverse_of(layout: Layout, axes: Sequence[str]) -> Layout:
    """`Layout.inverse`."""
    moving, swizzle = layout.moving(), layout.swizzle
    names = check_axes(axes) or moving or layout.axes[:1] or (DEFAULT_AXIS,)
    plain = layout
    if layout.box is not None:  # one that can be left out is in no way
        plain = make(layout.shard, layout.replica, layout.offsets, (), *layout.boxes).canonical()
        swizzle += plain.swizzle
    replica, offset = normal_form(plain.replica)
    if plain.box is not None or replica:
        raise LayoutError(f"layout {layout}", "a box or replicas", "a one to one layout")
    if set(moving) - set(names) or (len(names) > 1 and not axes):
        raise LayoutError(
            f"layout {layout}", f"axes {moving}", "one axis", hint="inverse(axes=...) orders them"
        )
    add(offset, dict(plain.offsets))
    acting = tuple(sw for sw in swizzle if sw.axis in moving)
    shard, origin, swizzle = invert(fuse(plain.shard), offset, names, acting)
    return make(shard, (), make_offsets(origin), swizzle)


def invert(
    fused: Iters, offset: Mapping[str, int], axes: Sequence[str], swizzles: Sequence[Swizzle]
) -> tuple[Iters, dict[str, int], tuple[Swizzle, ...]]:
    """The iters, offset and swizzles of the map from coordinates back to logical indices.

    The strides of a one-to-one list onto ``[0, n)``, by size, are the products of the extents
    before them: the least element that is not yet covered can only be the next stride.

    Args:
        fused: an iter list from `fuse`.
        offset: axis -> offset of the layout.
        axes: order of the axes in the coordinate index, slow to fast; the result lies on the first.
        swizzles: written order.

    Raises:
        LayoutError: not one to one onto all coordinates from 0 on.
    """
    steps: list[tuple[str, int, int, int, int]] = []
    level = size(fused)
    for extent, stride, axis in fused:
        level //= extent
        # a zero stride has no axis of its own: wherever it is counted, coordinate 0 is hit twice
        steps.append((axis if stride else axes[0], abs(stride), extent, stride, level))
    shard: list[Iter] = []
    origin = 0
    for axis in axes:
        mine = sorted(step[1:] for step in steps if step[0] == axis)
        _check_onto(axis, [step[:3] for step in mine], offset.get(axis, 0))
        for _, extent, stride, level in reversed(mine):
            shard.append((extent, level if stride > 0 else -level, axes[0]))
            origin += (extent - 1) * level if stride < 0 else 0
    return tuple(shard), {axes[0]: origin}, _moved(shard, axes, swizzles)


def _check_onto(axis: str, steps: Sequence[tuple[int, int, int]], offset: int) -> None:
    first = offset + sum((extent - 1) * stride for _, extent, stride in steps if stride < 0)
    if first:
        raise LayoutError(f"inverse on axis {axis}", f"coordinates start at {first}", "at 0")
    covered = 1
    for distance, extent, _ in steps:
        if distance != covered:
            wrong = "is hit twice" if distance < covered else "is not hit"
            at = distance if distance < covered else covered
            raise LayoutError(f"inverse on axis {axis}", f"coordinate {at} {wrong}", "one to one")
        covered *= extent


def _moved(
    shard: Sequence[Iter], axes: Sequence[str], swizzles: Sequence[Swizzle]
) -> tuple[Swizzle, ...]:
    """The inverse swizzles as they act on logical indices, where the inverse only moves bits."""
    if swizzles and len(axes) > 1:
        raise LayoutError(f"inverse of {swizzles[0]}", f"{len(axes)} axes", "one axis")
    for sw in swizzles:
        _check_closed(sw, size(shard))
    return tuple(part for sw in reversed(swizzles) for part in _undone(shard, axes[0], sw))


def _check_closed(sw: Swizzle, count: int) -> None:
    """Refuse a swizzle that moves a coordinate below `count` out of that range."""
    whole = count >> sw.reach << sw.reach
    if count - whole > MAX_REST:
        raise LayoutError(
            f"inverse of {sw}", f"on {count} coordinates", f"a multiple of 2**{sw.reach}"
        )
    for value in range(whole, count):
        if sw.undo(value) >= count:
            raise LayoutError(f"inverse of {sw}", f"coordinate {value} is not hit", "one to one")


def _undone(shard: Sequence[Iter], axis: str, sw: Swizzle) -> tuple[Swizzle, ...]:
    sources = [_logical_bit(shard, sw, sw.source + i) for i in range(sw.bits)]
    targets = [_logical_bit(shard, sw, sw.target + i) for i in range(sw.bits)]
    distances = {source - target for source, target in zip(sources, targets, strict=True)}
    in_order = sources == list(range(sources[0], sources[0] + sw.bits)) if sources else True
    if len(distances) == 1 and in_order and abs(sw.shift) >= sw.bits:
        return (Swizzle(axis, sw.bits, min(sources[0], targets[0]), distances.pop()),)
    single = [
        Swizzle(axis, 1, min(source, target), source - target)
        for source, target in zip(sources, targets, strict=True)
    ]
    # Bit by bit in an order that reads each source before it changes; the inverse runs backwards.
    return tuple(single if sw.shift > 0 else reversed(single))


def _logical_bit(shard: Sequence[Iter], sw: Swizzle, bit: int) -> int:
    """The bit of the logical index that one bit of the coordinate becomes."""
    whole = size(shard)
    level = whole
    for extent, stride, _ in shard:
        level //= extent
        if level > 1 << bit:
            continue
        clean = _power(level) and _power(stride) and stride > 0
        top = level * extent == whole and stride * extent == whole
        if clean and (_power(extent) or top) and level * extent > 1 << bit:
            return bit + stride.bit_length() - level.bit_length()
        break
    raise LayoutError(
        f"inverse of {sw}", f"bit {bit} is no bit of the logical index", "powers of two there"
    )


def _power(number: int) -> bool:
    return number & (number - 1) == 0
