"""The layout value: a set-valued map from a logical index to coordinates on named axes.

A layout is D (shard), R (replica) and O (offset) of the Axe paper (Definitions 2.1 to 2.3), then
optionally XOR swizzles on the coordinates and a padded box on the logical side. It is one closed,
immutable value; this file defines it, its meaning and its text, and the operations hang off it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from axe_eq.errors import LayoutError, SearchError
from axe_eq.layout import iters as it
from axe_eq.layout.iters import DEFAULT_AXIS, Iter, Iters
from axe_eq.layout.swizzle import Swizzle, check_swizzles

Coordinate = tuple[tuple[str, int], ...]
Image = frozenset[Coordinate]
Region = Sequence[tuple[int, int]]

MAX_ITERS = 1024
MAX_VALUE = 2**63 - 1  # sizes and coordinates stay in int64, so tables and terms never wrap
MAX_IMAGE = 2**22
MAX_TABLE = 2**28

_set = object.__setattr__


class Grouped(NamedTuple):
    """A layout cut at the boundaries of a shape: `blocks[i]` holds the iters of dim i."""

    layout: Layout
    blocks: tuple[Iters, ...]


class Layout:
    """A set-valued map from ``[0, size)`` to coordinates on named axes.

    ``L(x) = {sw(D(x) + r + O) | r in R}``: the digits of x in the shard extents, slow to fast,
    times the strides (D), plus every combination of replica digits (R), plus the offset (O), then the
    swizzles, the last one of the tuple first. With a box, x runs over the logical box only and is
    first moved to its place in the padded shape.

    Args:
        shard: ``(extent, stride, axis)`` slow to fast; the axis may be left out for ``m``.
        replica: ``(extent, stride, axis)``, a multiset whose image is a set.
        offset: axis -> value.
        swizzle: XOR swizzles, written order: the last one acts first.
        box: extents of the logical box, or None for a layout without padding.
        padded: extents of the padded shape that the box lies in, from its origin. By default the
            shard is cut at the first iters that hold each box extent, the last dim takes the rest.

    Raises:
        LayoutError: an extent below 1, a value over 63 bits, a box that does not fit.

    Source: Axe, Definitions 2.1 to 2.3; swizzles: CuTe; padded box: XLA tiled layouts.
    """

    __slots__ = (
        "_canonical",
        "_hash",
        "box",
        "offsets",
        "padded",
        "replica",
        "shard",
        "size",
        "swizzle",
    )

    shard: Iters
    replica: Iters
    offsets: tuple[tuple[str, int], ...]
    size: int
    swizzle: tuple[Swizzle, ...]
    box: tuple[int, ...] | None
    padded: tuple[int, ...] | None
    _canonical: Layout | bool | None
    _hash: int | None

    def __init__(
        self,
        shard: Iterable[Sequence[Any]] = (),
        replica: Iterable[Sequence[Any]] = (),
        offset: Mapping[str, int] | None = None,
        swizzle: Iterable[Swizzle] = (),
        box: Sequence[int] | None = None,
        padded: Sequence[int] | None = None,
    ) -> None:
        checked = check_iters("shard", shard), check_iters("replica", replica)
        offsets = _check_offset(offset or {})
        size = it.size(checked[0])
        check_range(*checked, offsets, size)
        swizzles = check_swizzles(swizzle)
        extents: tuple[int, ...] | None = None
        shape: tuple[int, ...] | None = None
        if box is not None:
            extents, shape = _check_box(checked[0], size, box, padded)
            size = prod(extents)
        elif padded is not None:
            raise LayoutError("layout", f"padded shape {tuple(padded)} without a box", "both")
        _fill(self, *checked, offsets, size, swizzles, extents, shape)

    @staticmethod
    def parse(text: str) -> Layout:
        """The layout of an axe text, the inverse of `str`.

        Raises:
            NotationError: the text does not follow the grammar.
        """
        from axe_eq.layout import notation

        return notation.read("axe", text)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Layout.{name} is read-only; build another Layout")

    def __reduce__(self) -> tuple[Any, ...]:
        offset = dict(self.offsets)
        return Layout, (self.shard, self.replica, offset, self.swizzle, self.box, self.padded)

    # ---- parts ----------------------------------------------------------------------------------

    @property
    def offset(self) -> dict[str, int]:
        """Axis -> offset, without zeros."""
        return dict(self.offsets)

    @property
    def axes(self) -> tuple[str, ...]:
        """Every axis that the layout names, sorted."""
        names = {item[2] for item in self.shard + self.replica}
        names.update(axis for axis, _ in self.offsets)
        names.update(sw.axis for sw in self.swizzle)
        return tuple(sorted(names))

    def is_linear(self) -> bool:
        """Whether the layout has neither a swizzle nor a box."""
        return not self.swizzle and self.box is None

    def linear(self) -> Layout:
        """The layout without its swizzles and box: what they act on, over the padded domain."""
        return self if self.is_linear() else make(self.shard, self.replica, self.offsets)

    def dims(self) -> tuple[tuple[int, Iters], ...]:
        """The logical dims as ``(extent, block)``, where the block may hold more than the extent.

        A layout without a box has one dim: all of it.
        """
        fused = it.fuse(self.shard)
        if self.box is None or self.padded is None:
            return ((self.size, fused),)
        blocks = it.split_blocks(fused, self.padded)
        assert blocks is not None  # checked at construction
        return tuple(zip(self.box, blocks, strict=True))

    # ---- meaning --------------------------------------------------------------------------------

    def __call__(self, index: int | Sequence[int], *, shape: Sequence[int] | None = None) -> Image:
        """The coordinates of one logical element.

        Args:
            index: a linear index in ``[0, size)``, or one index per dim of `shape`.
            shape: row-major shape of a tuple index; by default the box.

        Returns:
            A frozenset of coordinates: tuples of ``(axis, value)`` sorted by axis, without zeros.

        Raises:
            LayoutError: the index is out of range.
            SearchError: the element has more than 2**22 copies.
        """
        return self._image(self.linear_index(index, shape))

    def linear_index(self, index: int | Sequence[int], shape: Sequence[int] | None = None) -> int:
        """The row-major linear index of `index`, checked against the size."""
        if isinstance(index, Sequence):
            extents = self.box if shape is None else check_shape(self, shape)
            if extents is None:
                raise LayoutError(f"index {tuple(index)}", "has no shape", "L(index, shape=...)")
            if len(extents) != len(index):
                raise LayoutError(
                    f"index {tuple(index)}", f"{len(index)} indices", f"{len(extents)}: {extents}"
                )
            if any(not 0 <= i < extent for i, extent in zip(index, extents, strict=True)):
                raise LayoutError(f"index {tuple(index)}", "out of range", f"inside {extents}")
            return flatten(index, extents)
        position = operator.index(index)
        if not 0 <= position < self.size:
            raise LayoutError(f"index {position}", "out of range", f"0 <= index < {self.size}")
        return position

    def _image(self, index: int) -> Image:
        if self.box is not None and self.padded is not None:
            index = flatten(unflatten(index, self.box), self.padded)
        base = it.evaluate(self.shard, index)
        for axis, value in self.offsets:
            base[axis] = base.get(axis, 0) + value
        for axis in self.axes:
            base.setdefault(axis, 0)
        axes = sorted(base)
        points = {tuple(base[axis] for axis in axes)}
        for extent, stride, axis in self.replica:
            if len(points) * extent > MAX_IMAGE:
                raise SearchError("layout", f"one element has over {MAX_IMAGE} copies")
            points = _spread(points, axes.index(axis), extent, stride)
        for sw in reversed(self.swizzle):
            points = _swizzled(points, axes.index(sw.axis), sw)
        return frozenset(
            tuple((axis, value) for axis, value in zip(axes, point, strict=True) if value)
            for point in points
        )

    def table(self, axis: str) -> NDArray[np.int64]:
        """The coordinates on one axis, without replicas, as an int64 array over the logical index.

        Entry x is the value of the copy whose replica digits are all 0.

        Raises:
            SearchError: more than 2**28 elements.
        """
        if self.size > MAX_TABLE:
            raise SearchError("layout table", f"{self.size} elements", f"at most {MAX_TABLE}")
        values = np.array([dict(self.offsets).get(axis, 0)], dtype=np.int64)
        for extent, block in self.dims():
            values = np.add.outer(values, _block_table(block, axis)[:extent]).reshape(-1)
        for sw in reversed(self.swizzle):
            if sw.axis == axis:
                values = sw.apply_table(values)
        return values

    def replica_table(self, axis: str) -> NDArray[np.int64]:
        """The distinct replica displacements on one axis, ascending, before any swizzle."""
        values = np.zeros(1, dtype=np.int64)
        for extent, stride, name in self.replica:
            if name == axis:
                if len(values) * extent > MAX_TABLE:
                    raise SearchError("replica table", f"over {MAX_TABLE} elements")
                steps = np.arange(extent, dtype=np.int64) * stride
                values = np.unique(np.add.outer(values, steps))
        return values

    def strided(
        self, shape: Sequence[int], axis: str = DEFAULT_AXIS
    ) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Per dim of `shape` the ``(extent, stride)`` pairs on one axis, slow to fast.

        Iters on other axes appear with stride 0. With a box the blocks hold the padded dims. Offset
        and replicas are left out.

        Raises:
            LayoutError: the layout is swizzled or does not group by `shape`.
        """
        if self.swizzle:
            raise LayoutError(f"layout {self}", "a swizzle has no strides", "no swizzle")
        return tuple(
            tuple((extent, stride if name == axis else 0) for extent, stride, name in block)
            for block in self._blocks(shape)
        )

    # ---- operations -----------------------------------------------------------------------------

    def group(self, shape: Sequence[int]) -> Grouped:
        """Cut the shard at the boundaries of `shape`, with the fewest iters (Axe Algorithm 1).

        Fuses first, so it succeeds whenever any list with the same map has these boundaries.

        Raises:
            LayoutError: the extents do not multiply to the size, or a boundary cuts an iter.
        """
        blocks = self._blocks(shape)
        shard = tuple(item for block in blocks for item in block)
        padded = None if self.box is None else tuple(map(it.size, blocks))
        box = None if self.box is None else check_shape(self, shape)
        return Grouped(make(shard, self.replica, self.offsets, self.swizzle, box, padded), blocks)

    def _blocks(self, shape: Sequence[int]) -> tuple[Iters, ...]:
        extents = check_shape(self, shape)
        if self.box is not None:
            if extents != self.box:
                raise LayoutError(f"layout {self}", f"does not group by {extents}", f"{self.box}")
            return tuple(block for _, block in self.dims())
        blocks = it.split_blocks(it.fuse(self.shard), extents)
        if blocks is None:
            raise LayoutError(
                f"layout {self}",
                f"does not group by {extents}",
                "boundaries at divisors of its iters",
            )
        return blocks

    # ---- extents of the image -------------------------------------------------------------------

    def span(self, axis: str) -> int:
        """Greatest minus least coordinate on `axis` plus one; 1 for an absent axis (Def. 2.3)."""
        low, high = self.range(axis)
        return high - low + 1

    def range(self, axis: str) -> tuple[int, int]:
        """The least and the greatest coordinate on `axis` over all elements and copies."""
        low = high = dict(self.offsets).get(axis, 0)
        for extent, block in self.dims():
            below, above = it.prefix_bounds(block, extent, axis)
            low, high = low + below, high + above
        below, above = it.bounds(self.replica).get(axis, (0, 0))
        if not any(sw.axis == axis for sw in self.swizzle):
            return low + below, high + above
        values = self._values(axis)
        return int(values.min()), int(values.max())

    def _values(self, axis: str) -> NDArray[np.int64]:
        """The distinct coordinates on a swizzled axis."""
        plain = np.array([dict(self.offsets).get(axis, 0)], dtype=np.int64)
        parts = [_distinct(_block_table(block, axis)[:extent]) for extent, block in self.dims()]
        for part in (*parts, self.replica_table(axis)):
            if len(plain) * len(part) > MAX_TABLE:
                raise SearchError(f"swizzled axis {axis}", f"over {MAX_TABLE} coordinates")
            plain = _distinct(np.add.outer(plain, part))
        for sw in reversed(self.swizzle):
            if sw.axis == axis:
                plain = sw.apply_table(plain)
        return plain

    @property
    def footprint(self) -> dict[str, int]:
        """Axis -> extent of the memory that the layout needs, padding included."""
        whole = make(self.shard, self.replica, self.offsets, self.swizzle)
        return {axis: whole.span(axis) for axis in self.axes}

    # ---- identity and text ----------------------------------------------------------------------

    def _key(self) -> tuple[object, ...]:
        return self.shard, self.replica, self.offsets, self.swizzle, self.box, self.padded

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Layout):
            return NotImplemented
        return self is other or self._key() == other._key()

    def __hash__(self) -> int:
        if self._hash is None:
            _set(self, "_hash", hash(self._key()))
        return self._hash  # type: ignore[return-value]

    def __str__(self) -> str:
        text = f"S{_text(self.shard)}"
        if self.replica:
            text += f" + R{_text(self.replica)}"
        text += "".join(f" + {value}@{axis}" for axis, value in self.offsets)
        text = "".join(f"{sw} . " for sw in self.swizzle) + text
        if self.box is None:
            return text
        inside = "" if _default_padded(self.shard, self.box) == self.padded else self.padded
        return f"box[{_tuple(self.box)}{f' of {_tuple(inside)}' if inside else ''}] in {text}"

    def __repr__(self) -> str:
        return f"Layout.parse({str(self)!r})"


# ---- construction -------------------------------------------------------------------------------


def _fill(
    layout: Layout,
    shard: Iters,
    replica: Iters,
    offsets: tuple[tuple[str, int], ...],
    size: int,
    swizzle: tuple[Swizzle, ...],
    box: tuple[int, ...] | None,
    padded: tuple[int, ...] | None,
) -> None:
    _set(layout, "shard", shard)
    _set(layout, "replica", replica)
    _set(layout, "offsets", offsets)
    _set(layout, "size", size)
    _set(layout, "swizzle", swizzle)
    _set(layout, "box", box)
    _set(layout, "padded", padded)
    _set(layout, "_hash", None)
    _set(layout, "_canonical", None)


def make(
    shard: Iters,
    replica: Iters = (),
    offsets: tuple[tuple[str, int], ...] = (),
    swizzle: tuple[Swizzle, ...] = (),
    box: tuple[int, ...] | None = None,
    padded: tuple[int, ...] | None = None,
) -> Layout:
    """A Layout of parts that are known to be valid: the constructor of the algebra itself.

    `offsets` is sorted by axis and without zeros; with a box, `padded` cuts the shard.
    """
    layout = object.__new__(Layout)
    size = prod(box) if box is not None else it.size(shard)
    _fill(layout, shard, replica, offsets, size, swizzle, box, padded)
    return layout


def make_offsets(offset: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    """An offset in the form that layouts keep: sorted by axis, without zeros."""
    return tuple(sorted((axis, value) for axis, value in offset.items() if value))


def check_iters(part: str, iters: Iterable[Sequence[Any]]) -> Iters:
    """The iters as plain tuples, or the LayoutError that names the wrong one."""
    checked: list[Iter] = []
    for item in iters:
        if len(checked) == MAX_ITERS:
            raise LayoutError(f"layout {part}", f"over {MAX_ITERS} iters", f"at most {MAX_ITERS}")
        checked.append(_check_iter(part, item))
    return tuple(checked)


def _check_iter(part: str, item: Sequence[Any]) -> Iter:
    try:
        extent, stride, axis = item if len(item) == 3 else (*item, DEFAULT_AXIS)
    except (TypeError, ValueError):
        raise LayoutError(
            f"{part} iter {item!r}", "not a triple", "(extent, stride, axis)"
        ) from None
    whole = _integer(extent), _integer(stride)
    if whole[0] is None or whole[1] is None:
        raise LayoutError(f"{part} iter {item!r}", "extent or stride is no integer", "integers")
    if whole[0] < 1:
        raise LayoutError(f"{part} iter {item!r}", f"extent {extent}", "an extent of at least 1")
    return whole[0], whole[1], check_axis(axis)


def check_axis(axis: object) -> str:
    """The axis name, or the LayoutError for a text that is no identifier."""
    if isinstance(axis, str) and axis.isidentifier():
        return axis
    raise LayoutError(f"axis {axis!r}", "not a name", "an identifier such as m, lane or gpuid")


def _integer(value: object) -> int | None:
    if type(value) is int:
        return value
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        return None
    return operator.index(value)


def _check_offset(offset: Mapping[str, int]) -> tuple[tuple[str, int], ...]:
    checked: dict[str, int] = {}
    for axis, value in offset.items():
        whole = _integer(value)
        if whole is None:
            raise LayoutError(f"offset {value!r}@{axis}", "no integer", "an integer")
        checked[check_axis(axis)] = whole
    return make_offsets(checked)


def check_range(
    shard: Iters, replica: Iters, offsets: tuple[tuple[str, int], ...], size: int
) -> None:
    """Refuse a size or a coordinate that does not fit in 63 bits.

    Raises:
        LayoutError: the size, or the reach on an axis, is too large.
    """
    if size > MAX_VALUE:
        raise LayoutError("layout", f"{size} elements", f"at most {MAX_VALUE}")
    reach = dict(offsets)
    for axis in reach:
        reach[axis] = abs(reach[axis])
    for extent, stride, axis in shard + replica:
        reach[axis] = reach.get(axis, 0) + (extent - 1) * abs(stride)
    for axis, value in reach.items():
        if value > MAX_VALUE:
            raise LayoutError(f"axis {axis}", f"coordinates up to {value}", f"below {MAX_VALUE}")


def _check_box(
    shard: Iters, size: int, box: Sequence[int], padded: Sequence[int] | None
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    extents = check_extents("box", box)
    if padded is None:
        shape = _default_padded(shard, extents)
        if shape is None:
            raise LayoutError(
                f"box {extents}",
                f"does not cut S{_text(shard)} between iters",
                "a prefix of iters that holds each extent",
                hint="give the padded shape",
            )
    else:
        shape = check_extents("padded shape", padded)
    if len(shape) != len(extents) or prod(shape) != size:
        raise LayoutError(
            f"padded shape {shape}", f"{prod(shape)} elements", f"rank {len(extents)}, {size}"
        )
    if any(inner > outer for inner, outer in zip(extents, shape, strict=True)):
        raise LayoutError(f"box {extents}", "does not fit", f"at most the padded shape {shape}")
    if it.split_blocks(it.fuse(shard), shape) is None:
        raise LayoutError(
            f"padded shape {shape}", f"does not group S{_text(shard)}", "one that does"
        )
    return extents, shape


def _default_padded(shard: Iters, box: tuple[int, ...]) -> tuple[int, ...] | None:
    """The padded shape that a text without one means: each dim takes iters until it fits."""
    if not box:
        return () if it.size(shard) == 1 else None
    shape, position = [], 0
    for extent in box[:-1]:
        product = 1
        while product < extent and position < len(shard):
            product *= shard[position][0]
            position += 1
        shape.append(product)
    shape.append(it.size(shard[position:]))
    fits = all(inner <= outer for inner, outer in zip(box, shape, strict=True))
    return tuple(shape) if fits else None


def check_extents(thing: str, shape: Iterable[Any]) -> tuple[int, ...]:
    """The extents as a tuple of ints of at least 1, or the LayoutError that names the wrong one."""
    checked: list[int] = []
    for extent in shape:
        whole = _integer(extent)
        if whole is None or whole < 1:
            raise LayoutError(thing, f"extent {extent!r}", "integers of at least 1")
        checked.append(whole)
    return tuple(checked)


def check_shape(layout: Layout, shape: Iterable[Any]) -> tuple[int, ...]:
    """A shape that `layout` admits (Axe 2.3), or the LayoutError with both sizes."""
    extents = check_extents("shape", shape)
    if prod(extents) != layout.size:
        raise LayoutError(
            f"shape {extents}", f"{prod(extents)} elements", f"the layout's {layout.size}"
        )
    return extents


# ---- small helpers ------------------------------------------------------------------------------


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


def _spread(
    points: set[tuple[int, ...]], place: int, extent: int, stride: int
) -> set[tuple[int, ...]]:
    return {
        (*point[:place], point[place] + digit * stride, *point[place + 1 :])
        for point in points
        for digit in range(extent)
    }


def _swizzled(points: set[tuple[int, ...]], place: int, sw: Swizzle) -> set[tuple[int, ...]]:
    return {(*point[:place], sw.apply(point[place]), *point[place + 1 :]) for point in points}


def _block_table(block: Iters, axis: str) -> NDArray[np.int64]:
    values = np.zeros(1, dtype=np.int64)
    for extent, stride, name in block:
        steps = np.arange(extent, dtype=np.int64) * (stride if name == axis else 0)
        values = np.add.outer(values, steps).reshape(-1)
    return values


def _distinct(values: NDArray[np.int64]) -> NDArray[np.int64]:
    return np.unique(values)


def _tuple(items: Iterable[object]) -> str:
    return f"({','.join(map(str, items))})"


def _text(iters: Iters) -> str:
    extents = _tuple(extent for extent, _, _ in iters)
    return f"[{extents}:{_tuple(f'{stride}@{axis}' for _, stride, axis in iters)}]"
