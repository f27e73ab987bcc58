"""What a layout may be made of: every check of outside input, and the text of its parts."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

from axe_eq.errors import LayoutError, said
from axe_eq.layout.value import iters as it
from axe_eq.layout.value.iters import DEFAULT_AXIS, Iter, Iters

MAX_ITERS = 1024
LONG = 2**4096  # integers from here on are refused before anything is made of them
MINUS_LONG = -LONG
MAX_VALUE = 2**63 - 1  # sizes and coordinates stay in int64, so tables and terms never wrap

Offsets = tuple[tuple[str, int], ...]


def make_offsets(offset: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """An offset in the form that layouts keep: sorted by axis, without zeros."""
    return tuple(sorted([item for item in offset.items() if item[1]]))


def check_iters(part: str, iters: Iterable[Sequence[Any]]) -> Iters:
    """The iters as plain tuples, or the LayoutError that names the wrong one."""
    checked: list[Iter] = []
    for item in listed(f"layout {part}", iters):
        if len(checked) == MAX_ITERS:
            raise LayoutError(f"layout {part}", f"over {MAX_ITERS} iters", f"at most {MAX_ITERS}")
        checked.append(_check_iter(part, item))
    return tuple(checked)


def _check_iter(part: str, item: Sequence[Any]) -> Iter:
    try:
        extent, stride, axis = item if len(item) == 3 else (*item, DEFAULT_AXIS)
    except (TypeError, ValueError):
        raise LayoutError(
            f"{part} iter {said(item)}", "not a triple", "(extent, stride, axis)"
        ) from None
    whole = _integer(extent), _integer(stride)
    if whole[0] is None or whole[1] is None:
        raise LayoutError(f"{part} iter {said(item)}", "extent or stride is no integer", "integers")
    if not (0 < whole[0] < LONG and MINUS_LONG < whole[1] < LONG):
        check_short(f"{part} iter", (whole[0], whole[1]))
        raise LayoutError(f"{part} iter {item!r}", f"extent {extent}", "an extent of at least 1")
    return whole[0], whole[1], check_axis(axis)


def check_short(thing: str, numbers: Iterable[int]) -> None:
    """Refuse integers of over 4096 bits, which Python does not even write down."""
    for number in numbers:
        if not MINUS_LONG < number < LONG:
            raise LayoutError(
                thing, f"a number {said(number)}", f"at most {LONG.bit_length() - 1} bits"
            )


def number_text(number: int) -> str:
    """A number that others multiplied up to, as errors show it."""
    return str(number) if MINUS_LONG < number < LONG else f"over 2**{number.bit_length() - 1}"


def check_axis(axis: object) -> str:
    """The axis name, or the LayoutError for a text that is no identifier."""
    if isinstance(axis, str) and axis.isidentifier():
        return axis
    raise LayoutError(f"axis {said(axis)}", "not a name", "an identifier such as m, lane or gpuid")


def check_axes(axes: Iterable[Any]) -> tuple[str, ...]:
    """Axis names in an order, a text being one, or the LayoutError for what is none or is twice."""
    names = (
        (check_axis(axes),)
        if isinstance(axes, str)
        else tuple(map(check_axis, listed("axes", axes)))
    )
    if len(set(names)) < len(names):
        raise LayoutError(f"axes {names}", "one of them twice", "each once")
    return names


def check_index(index: Sequence[Any]) -> tuple[int, ...]:
    """The digits of an index, or the LayoutError for one that is no integer."""
    digits = [_integer(digit) for digit in index]
    if None in digits:
        raise LayoutError(f"index {said(tuple(index))}", "not all integers", "one integer per dim")
    checked = tuple([digit for digit in digits if digit is not None])
    check_short("index", checked)
    return checked


def _integer(value: object) -> int | None:
    if type(value) is int:
        return value
    try:
        return None if isinstance(value, bool) else operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        return None


def listed(thing: str, items: Any) -> Iterable[Any]:
    """The items, or the LayoutError for something that has none.

    Raises:
        LayoutError: it cannot be iterated over, or is a text.
    """
    if isinstance(items, Iterable) and not isinstance(items, str | bytes):
        try:
            iter(items)
        except TypeError:  # an array without dims says that it is one
            pass
        else:
            return items
    raise LayoutError(thing, f"is {said(items)}", "a sequence")


def check_offset(offset: Mapping[str, int]) -> Offsets:
    """The offset as layouts keep it, or the LayoutError that names the wrong part."""
    checked: dict[str, int] = {}
    if not isinstance(offset, Mapping):
        raise LayoutError("offset", f"is {said(offset)}", "a dict from axis to value")
    for axis, value in offset.items():
        whole, name = _integer(value), check_axis(axis)
        if whole is None:
            raise LayoutError(f"offset {said(value)}@{name}", "no integer", "an integer")
        check_short("offset", (whole,))
        checked[name] = whole
    return make_offsets(checked)


def check_range(
    shard: Iters, replica: Iters, offsets: tuple[tuple[str, int], ...], size: int
) -> None:
    """Refuse a size, a coordinate or a span that does not fit in 63 bits.

    The same map told by other replicas and another offset fits or not like this one.

    Raises:
        LayoutError: the size, or the reach on an axis, is too large.
    """
    if size > MAX_VALUE:
        raise LayoutError("layout", f"{number_text(size)} elements", f"at most {MAX_VALUE}")
    whole = sum([(extent - 1) * abs(stride) for extent, stride, _ in shard])
    if whole <= MAX_VALUE and not replica and not offsets:
        return  # all axes together fit, so each does
    low, high = dict(offsets), dict(offsets)
    for extent, stride, axis in shard + replica:
        side = high if stride > 0 else low
        side[axis] = side.get(axis, 0) + (extent - 1) * stride
    for axis in {*low, *high}:
        ends = low.get(axis, 0), high.get(axis, 0)
        value = max(-ends[0], ends[1], ends[1] - ends[0])
        if value > MAX_VALUE:
            wrong = f"coordinates up to {number_text(value)}"
            raise LayoutError(f"axis {axis}", wrong, f"at most {MAX_VALUE}")


def check_box(
    shard: Iters, size: int, box: Sequence[int], padded: Sequence[int] | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The box and its padded shape, or the LayoutError that says why they do not fit."""
    extents = check_extents("box", box)
    shape = default_padded(shard, extents)
    if padded is not None:
        shape = check_extents("padded shape", padded)
    if len(shape) != len(extents) or prod(shape) != size:
        raise LayoutError(
            f"padded shape {shape}",
            f"rank {len(shape)}, {number_text(prod(shape))} elements",
            f"rank {len(extents)}, {size} elements",
        )
    if any(inner > outer for inner, outer in zip(extents, shape, strict=True)):
        hint = "" if padded is not None or len(extents) < 2 else "padded=... says where dims end"
        raise LayoutError(
            f"box {extents}", "does not fit", f"at most the padded shape {shape}", hint=hint
        )
    if it.split_blocks(it.fuse(shard), shape) is None:
        raise LayoutError(
            f"padded shape {shape}", f"does not group S{text(shard)}", "one that does"
        )
    return extents, shape


def default_padded(shard: Iters, box: tuple[int, ...]) -> tuple[int, ...]:
    """The padded shape that a text without one means: each dim takes iters until it fits."""
    shape, position = [], 0
    for extent in box[:-1]:
        product = 1
        while product < extent and position < len(shard):
            product *= shard[position][0]
            position += 1
        shape.append(product)
    return (*shape, *([it.size(shard[position:])] if box else ()))


def check_extents(thing: str, shape: Iterable[Any]) -> tuple[int, ...]:
    """The extents as a tuple of ints of at least 1, or the LayoutError that names the wrong one."""
    extents = tuple(listed(thing, shape))
    if all([type(extent) is int and 0 < extent < LONG for extent in extents]):
        return extents
    checked: list[int] = []
    for extent in extents:
        whole = _integer(extent)
        if whole is None or whole < 1:
            raise LayoutError(thing, f"extent {said(extent)}", "integers of at least 1")
        check_short(thing, (whole,))
        checked.append(whole)
    return tuple(checked)


def check_admitted(elements: int, shape: Iterable[Any]) -> tuple[int, ...]:
    """A shape with that many elements (Axe 2.3), or the LayoutError with both sizes."""
    extents, product = shape if type(shape) is tuple else tuple(listed("shape", shape)), 1
    for extent in extents:
        if type(extent) is not int or not 0 < extent < LONG:
            extents = check_extents("shape", extents)
            product = prod(extents)
            break
        product *= extent
    if product != elements:
        wrong = f"{number_text(product)} elements"
        raise LayoutError(f"shape {extents}", wrong, f"the layout's {elements}")
    return extents


def check_region(shape: tuple[int, ...], region: Iterable[Any]) -> tuple[tuple[int, int], ...]:
    """One ``(begin, end)`` per dim inside `shape`, or the LayoutError that names the wrong one."""
    checked: list[tuple[int, int]] = []
    for bounds in listed("region", region):
        try:
            begin, end = bounds
        except (TypeError, ValueError):
            begin = end = None
        if type(begin) is not int or type(end) is not int:
            begin, end = _integer(begin), _integer(end)
        if begin is None or end is None:
            raise LayoutError("region", said(bounds), "a pair (begin, end) of integers per dim")
        checked.append((begin, end))
    if len(checked) != len(shape):
        check_short("region", (number for pair in checked for number in pair))
        raise LayoutError(
            f"region {tuple(checked)}", f"{len(checked)} dims", f"one per dim of {shape}"
        )
    for dim, ((begin, end), extent) in enumerate(zip(checked, shape, strict=True)):
        if not 0 <= begin < end <= extent:
            check_short("region", (number for pair in checked for number in pair))
            raise LayoutError(
                f"region {tuple(checked)}",
                f"[{begin}, {end}) in dim {dim}",
                f"0 <= begin < end <= {extent}",
            )
    return tuple(checked)


def check_permutation(perm: Iterable[Any], rank: int) -> tuple[int, ...]:
    """A permutation of the dims, or the LayoutError."""
    order = [_integer(dim) for dim in listed("permutation", perm)]
    whole = tuple([dim for dim in order if dim is not None])
    check_short("permutation", whole)
    if len(whole) < len(order) or sorted(whole) != list(range(rank)):
        raise LayoutError(
            f"permutation {said(tuple(perm))}", "not one", f"each of 0..{rank - 1} once"
        )
    return whole


def tuple_text(items: Iterable[object]) -> str:
    """The items in parentheses, without spaces."""
    return f"({','.join(map(str, items))})"


def text(iters: Iters) -> str:
    """The iters as ``[(extents):(strides)]``."""
    extents = tuple_text(extent for extent, _, _ in iters)
    return f"[{extents}:{tuple_text(f'{stride}@{axis}' for _, stride, axis in iters)}]"
