"""The layout value: a set-valued map from a logical index to coordinates on named axes.

A layout is D (shard), R (replica) and O (offset) of the Axe paper (Definitions 2.1 to 2.3), then
optionally XOR swizzles on the coordinates and a padded box on the logical side. It is one closed,
immutable value; this file defines it, its meaning and its text.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from axe_eq.errors import LayoutError, SearchError, said
from axe_eq.layout.algebra.slices import permute_shard, slice_shard
from axe_eq.layout.normal.nested_boxes import Boxes, Stage, check_boxes
from axe_eq.layout.normal.recover_iters import NoIters, add, first_uncut
from axe_eq.layout.normal.replicas import MAX_COPIES, count_copies, displacements, normal_form
from axe_eq.layout.value import iters as it
from axe_eq.layout.value import upper
from axe_eq.layout.value.boxes import Dims, reduce_dims, regroup
from axe_eq.layout.value.check import (
    Offsets,
    check_admitted,
    check_axis,
    check_index,
    check_iters,
    check_offset,
    check_permutation,
    check_range,
    check_region,
    default_padded,
    make_offsets,
    text,
    tuple_text,
)
from axe_eq.layout.value.extents import swizzled_range
from axe_eq.layout.value.indexing import block_table, columns, filled, flatten, outer_sum, unflatten
from axe_eq.layout.value.iters import DEFAULT_AXIS, Iters
from axe_eq.layout.value.parts import Parts
from axe_eq.layout.value.reports import Aliasing, Coordinate, Grouped, Image
from axe_eq.layout.value.swizzle import Swizzle, check_swizzles

Region = Sequence[tuple[int, int]]

MAX_IMAGE = 2**20  # as Python tuples they take a quarter of a gigabyte
MAX_TABLE = 2**26  # half a gigabyte, three times as much on the way through swizzles

_set = object.__setattr__


class Layout(Parts):
    """A set-valued map from ``[0, size)`` to coordinates on named axes.

    ``L(x) = {sw(D(x) + r + O) | r in R}``: the digits of x in the shard extents, slow to fast,
    times the strides (D), plus every combination of replica digits (R), plus the offset (O), then
    the swizzles, the last one of the tuple first. With a box, x runs over the logical box only and
    is first moved to its place in the padded shape.

    >>> layout = axe.Layout([(4, 8), (8, 1)])
    >>> print(layout)
    S[(4,8):(8@m,1@m)]
    >>> layout(9)
    frozenset({(('m', 9),)})

    Args:
        shard: ``(extent, stride, axis)`` slow to fast; the axis may be left out for ``m``.
        replica: ``(extent, stride, axis)``, a multiset whose image is a set.
        offset: axis -> value.
        swizzle: XOR swizzles, written order: the last one acts first.
        box: extents of the logical box, or None for a layout without padding.
        padded: extents of the padded shape that the box lies in, from its origin. By default the
            shard is cut at the first iters that hold each box extent, the last dim takes the rest.
        inner: boxes in the first one, see `Stage`: the padded index is an index of the next box.

    Raises:
        LayoutError: an extent below 1, a value over 63 bits, a box that does not fit.

    Source: Axe, Definitions 2.1 to 2.3; swizzles: CuTe; padded box: XLA tiled layouts.
    """

    __slots__ = ()

    def __init__(
        self,
        shard: Iterable[Sequence[Any]] = (),
        replica: Iterable[Sequence[Any]] = (),
        offset: Mapping[str, int] | None = None,
        swizzle: Iterable[Swizzle] = (),
        box: Sequence[int] | None = None,
        padded: Sequence[int] | None = None,
        inner: Iterable[Sequence[Any]] = (),
    ) -> None:
        checked = check_iters("shard", shard), check_iters("replica", replica)
        offsets = check_offset(offset or {})
        size = it.size(checked[0])
        check_range(*checked, offsets, size)
        swizzles = check_swizzles(swizzle)
        boxes = check_boxes(checked[0], size, box, padded, inner)
        if boxes[0] is not None:
            size = prod(boxes[0])
        _set(self, "__class__", Parts)
        Parts.__init__(self, checked[0], checked[1], offsets, size, swizzles, *boxes)
        self.__class__ = Layout

    @staticmethod
    def parse(text: str) -> Layout:
        """The layout of an axe text, the inverse of `str`.

        Raises:
            NotationError: the text does not follow the grammar.
        """
        return upper.answers.read(text)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"Layout.{name} is read-only; build another Layout")

    def __reduce__(self) -> tuple[Any, ...]:
        offset = dict(self.offsets)
        return Layout, (self.shard, self.replica, offset, self.swizzle, *self.boxes)

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

    def moving(self) -> tuple[str, ...]:
        """The axes on which some element is not at 0, sorted."""
        return tuple([axis for axis in self.axes if self.range(axis) != (0, 0)])

    @property
    def boxes(self) -> Boxes:
        """The box, its padded shape, and the boxes inside."""
        return self.box, self.padded, self.inner

    def is_linear(self) -> bool:
        """Whether the layout has neither a swizzle nor a box."""
        return not self.swizzle and self.box is None

    def linear(self) -> Layout:
        """The layout without its swizzles and box: what they act on, over the padded domain."""
        return self if self.is_linear() else make(self.shard, self.replica, self.offsets)

    def dims(self) -> tuple[tuple[int, Iters], ...]:
        """The logical dims as ``(extent, block)``, where the block may hold more than the extent.

        A layout without a box has one dim, all of it; boxes in boxes have none (LayoutError).
        """
        if self.inner:
            raise LayoutError(f"layout {self}", "a box in a box", "at most one box")
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
            SearchError: the element has more than 2**20 copies.
        """
        return self._image(self.linear_index(index, shape))

    def linear_index(self, index: int | Sequence[int], shape: Sequence[int] | None = None) -> int:
        """The row-major linear index of `index`, checked against the size."""
        if isinstance(index, Sequence):
            extents = self.box if shape is None else check_admitted(self.size, shape)
            name = f"index {said(tuple(index))}"
            if extents is None:
                raise LayoutError(name, "has no shape", "L(index, shape=...)")
            if len(extents) != len(index):
                raise LayoutError(name, f"{len(index)} indices", f"one per dim of {extents}")
            digits = check_index(index)
            if any(not 0 <= i < extent for i, extent in zip(digits, extents, strict=True)):
                raise LayoutError(name, "out of range", f"inside {extents}")
            return flatten(digits, extents)
        try:
            position = operator.index(index)
        except TypeError:
            raise LayoutError(
                f"index {said(index)}", "no integer", "an integer, or one per dim"
            ) from None
        if not 0 <= position < self.size:
            inside = f"0 <= index < {self.size}"
            raise LayoutError(f"index {said(position)}", "out of range", inside)
        return position

    def _image(self, index: int) -> Image:
        base = self.linear_point(index)
        if not self.replica:
            return frozenset([self.swizzled_point(base)])
        points: list[Coordinate] = [()]
        for axis in sorted({*base, *(axis for _, _, axis in self.replica)}):
            moves = self.replica_table(axis, MAX_IMAGE, len(points))
            values = self.swizzled(axis, moves + base.get(axis, 0)).tolist()
            places = [((axis, value),) if value else () for value in values]
            points = [(*point, *place) for point in points for place in places]
        return frozenset(points)

    def linear_point(self, index: int) -> dict[str, int]:
        """Axis -> coordinate of one logical index, before replicas and swizzles."""
        if self.box is not None and self.padded is not None:
            index = flatten(unflatten(index, self.box), self.padded)
            for stage in self.inner:
                index = stage.apply(index)
        point = it.evaluate(self.shard, index)
        for axis, value in self.offsets:
            point[axis] = point.get(axis, 0) + value
        return point

    def swizzled_point(self, point: dict[str, int]) -> Coordinate:
        """One coordinate after the swizzles: sorted by axis, without zeros."""
        for sw in reversed(self.swizzle):
            point[sw.axis] = sw.apply(point.get(sw.axis, 0))
        return tuple(sorted([(axis, value) for axis, value in point.items() if value]))

    def table(self, axis: str) -> NDArray[np.int64]:
        """The coordinates on one axis, without replicas, as an int64 array over the logical index.

        Entry x is the value of the copy whose replica digits are all 0.

        Raises:
            SearchError: more than 2**26 elements.
        """
        return self.swizzled(axis, self.linear_table(axis))

    def linear_table(self, axis: str) -> NDArray[np.int64]:
        """`table` before any swizzle."""
        if self.size > MAX_TABLE:
            raise SearchError("layout table", f"{self.size} elements", f"at most {MAX_TABLE}")
        if self.inner:
            return filled(self.size, lambda x: self.coordinates(x).get(axis, np.zeros_like(x)))
        values = outer_sum([block_table(block, axis)[:extent] for extent, block in self.dims()])
        values += dict(self.offsets).get(axis, 0)
        return values

    def coordinates(self, index: NDArray[np.int64]) -> dict[str, NDArray[np.int64]]:
        """Axis -> coordinates of some logical indices, before replicas and swizzles."""
        if self.box is not None and self.padded is not None:
            digits = np.unravel_index(index, self.box)
            index = np.ravel_multi_index(digits, self.padded)
            for stage in self.inner:
                index = stage.apply_table(index)
        values = columns(self.shard, index)
        for axis, value in self.offsets:
            values[axis] = values[axis] + value if axis in values else np.full(len(index), value)
        return values

    def copies(self) -> int:
        """`replicas.count_copies`: the number of coordinates of every element."""
        return count_copies(self.replica)

    def swizzled(self, axis: str, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """Coordinates on one axis after the swizzles."""
        for sw in reversed(self.swizzle):
            if sw.axis == axis:
                values = sw.apply(values)
        return values

    def replica_table(self, axis: str, most: int = MAX_COPIES, times: int = 1) -> NDArray[np.int64]:
        """The distinct replica displacements on one axis, ascending, before any swizzle.

        Raises:
            SearchError: more than `most`, each counted `times`.
        """
        return displacements(self.replica, axis, most, times)

    def strided(
        self, shape: Sequence[int], axis: str = DEFAULT_AXIS
    ) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Per dim of `shape` the ``(extent, stride)`` pairs on one axis, slow to fast.

        Iters on other axes appear with stride 0. With a box the blocks hold the padded dims. Offset
        and replicas are left out.

        Raises:
            LayoutError: the layout is swizzled, has boxes in boxes, or does not group by `shape`.
        """
        if self.swizzle or self.inner:
            wrong = "a swizzle has no strides" if self.swizzle else "a box in a box has no strides"
            raise LayoutError(f"layout {self}", wrong, "neither")
        return tuple(
            tuple((extent, stride if name == axis else 0) for extent, stride, name in block)
            for _, block in self.group_dims(shape)
        )

    # ---- operations -----------------------------------------------------------------------------

    def canonical(self) -> Layout:
        """The one layout that stands for all layouts with the same map.

        D is fused (Axe A.8). R is the least list with its image: saturated under the gap condition,
        searched for off it. A box that can be left out is, the others are cut to what the logical
        indices reach, so the footprint may shrink. Swizzles are those of the first form in a fixed
        order (`axe_eq.layout.normal.swizzled`).

        >>> print(axe.Layout([(4, 8), (8, 1)]).canonical())
        S[(32):(1@m)]

        Raises:
            SearchError: off the gap condition over a replica span of 2**24; a swizzled layout that
                needs several swizzles on an axis whose steps are no powers of two; or one of over
                2**18 elements that swizzles tell apart.
        """
        known = self._canonical
        if known is None:
            known = self._normalise()
            _set(known, "_canonical", True)
            if known is not self:
                _set(self, "_canonical", known)
        return self if known is True else known  # type: ignore[return-value]

    def _normalise(self) -> Layout:
        if self.swizzle:
            return upper.answers.normal_form(self)
        replica, offsets = self.replica, self.offsets
        if replica:
            replica, shift = normal_form(replica)
            if shift:
                add(shift, dict(offsets))
                offsets = make_offsets(shift)
        if self.box is None:
            shard = it.fuse(self.shard)
            if shard == self.shard and replica == self.replica and offsets == self.offsets:
                return self
            return make(shard, replica, offsets, size=self.size)
        if self.inner:
            return upper.answers.normal_boxed(self, replica, offsets)
        return make_dims(reduce_dims(self.dims()), replica, offsets)

    def group(self, shape: Sequence[int]) -> Grouped:
        """Cut the shard at the boundaries of `shape`, with the fewest iters (Axe Algorithm 1).

        Fuses first, so it succeeds whenever any list with the same map has these boundaries.

        >>> axe.Layout([(32, 1)]).group((4, 8)).blocks
        (((4, 8, 'm'),), ((8, 1, 'm'),))

        Raises:
            LayoutError: the extents do not multiply to the size, or a boundary cuts an iter.
        """
        if self.box is None:
            blocks = self.blocks(check_admitted(self.size, shape))
            shard: Iters = sum(blocks, ())
            grouped = make(shard, self.replica, self.offsets, self.swizzle, size=self.size)
            return Grouped(grouped, blocks)
        if self.inner:
            return upper.answers.group_boxed(self, check_admitted(self.size, shape))
        dims = self.group_dims(shape)
        grouped = make_dims(dims, self.replica, self.offsets, self.swizzle)
        return Grouped(grouped, tuple([block for _, block in dims]))

    def blocks(self, extents: tuple[int, ...]) -> tuple[Iters, ...]:
        """`group` of a layout without a box by a shape that is checked, as one block per dim.

        Raises:
            LayoutError: a boundary cuts an iter.
        """
        blocks = it.split_blocks(it.fuse(self.shard), extents)
        if blocks is None:
            raise self._no_group(extents)
        return blocks

    def _no_group(self, extents: tuple[int, ...]) -> LayoutError:
        index = "" if self.box else f": index {first_uncut(it.fuse(self.shard), extents)} breaks"
        return LayoutError(
            f"layout {self}",
            f"does not group by {extents}{index}",
            "a shape that cuts at its iters",
        )

    def group_dims(self, shape: Sequence[int]) -> Dims:
        """`group` as ``(extent, block)`` per dim; with a box a block may hold more than the extent.

        Raises:
            LayoutError: as `group`.
        """
        extents = check_admitted(self.size, shape)
        if self.box is None:
            return tuple(zip(extents, self.blocks(extents), strict=True))
        if extents == self.box:
            return self.dims()
        dims = regroup(reduce_dims(self.dims()), extents)
        if dims is None:
            raise self._no_group(extents)
        return dims

    def slice(self, shape: Sequence[int], region: Region) -> Layout:
        """The layout of a box of elements: ``L[region](u) = L(begin + u)`` (Axe 3.3).

        Complete: any region that some layout computes is found, one that none computes is refused;
        of a layout without a box, that is some layout without a box.

        >>> print(axe.Layout([(4, 8), (8, 1)]).slice((4, 8), ((1, 3), (0, 8))))
        S[(2,8):(8@m,1@m)] + 8@m

        Args:
            shape: row-major shape of the whole layout.
            region: ``(begin, end)`` per dim, begin < end.

        Raises:
            LayoutError: the region is out of range, or no such layout computes it, with the index
                of the region (row-major) at which every candidate breaks.
            SearchError: undecided, a region of over 2**24 elements that the iters do not follow.
        """
        extents = check_admitted(self.size, shape)
        spans = check_region(extents, region)
        try:
            if self.box is not None:
                return upper.answers.slice_boxed(self, extents, spans)
            shard, origin = slice_shard(it.fuse(self.shard), extents, spans)
            if self.offsets:
                add(origin, dict(self.offsets))
            return make(shard, self.replica, make_offsets(origin), self.swizzle)
        except NoIters as none:
            at, expected = f"{none.index} of the region", "a region that follows the iters"
            raise self._no_layout(f"slice {spans}", extents, at, none.reason, expected) from None

    def _no_layout(self, part: str, shape: object, at: object, why: str, want: str) -> LayoutError:
        kind = "layout without a box" if self.box is None else "box"
        kind += " behind these swizzles" if self.swizzle else ""
        wrong = f"no {kind} computes it: index {at} breaks, {why}"
        return LayoutError(f"{part} of {self} as {shape}", wrong, want)

    def permute(self, shape: Sequence[int], perm: Sequence[int]) -> Layout:
        """Reorder the dims of `shape`: dim i of the result is dim ``perm[i]``, as in numpy.

        Complete as `slice` is: what has no box stays without one.

        >>> print(axe.Layout([(4, 8), (8, 1)]).permute((4, 8), (1, 0)))
        S[(8,4):(1@m,8@m)]

        Raises:
            LayoutError: `perm` is no permutation, or no such layout computes the result.
            SearchError: undecided, over 2**24 elements that do not group by `shape`.
        """
        extents = check_admitted(self.size, shape)
        order = check_permutation(perm, len(extents))
        try:
            if self.box is not None:
                return upper.answers.permute_boxed(self, extents, order)
            shard = permute_shard(it.fuse(self.shard), extents, order)
        except NoIters as none:
            part, expected = f"permutation {order}", "a shape that groups the layout"
            raise self._no_layout(part, extents, none.index, none.reason, expected) from None
        return make(shard, self.replica, self.offsets, self.swizzle)

    def inverse(self, axes: Sequence[str] = ()) -> Layout:
        """The layout from coordinates to logical indices: ``L.inverse()(c) = {x}`` where c is L(x).

        Args:
            axes: the axes whose coordinates, row-major in this order, index the inverse; may be
                left out where the layout moves on one. Logical indices lie on the first of them.

        Raises:
            LayoutError: the layout is not one to one onto all coordinates from 0 on, with the first
                coordinate that is missing or hit twice, or a swizzle that has no such inverse.
            SearchError: whether boxes in boxes can be left out is undecided.
        """
        return upper.answers.inverse(self, axes)

    def aliasing(self) -> Aliasing:
        """Whether two elements share a coordinate, and the first clash.

        Raises:
            SearchError: undecided within the limits.
        """
        clash = upper.answers.clash(self)
        return Aliasing(clash is None, clash)

    # ---- extents of the image -------------------------------------------------------------------

    def span(self, axis: str) -> int:
        """Greatest minus least coordinate on `axis` plus one; 1 for an absent axis (Def. 2.3)."""
        low, high = self.range(check_axis(axis))
        return high - low + 1

    def range(self, axis: str) -> tuple[int, int]:
        """The least and the greatest coordinate on `axis` over all elements and copies."""
        swizzles = [sw for sw in self.swizzle if sw.axis == axis and sw.bits]
        if self.inner or (self.box is not None and not swizzles):
            return upper.answers.range_boxed(self, axis)
        offset = dict(self.offsets).get(axis, 0)
        if swizzles:
            return swizzled_range(self.dims(), self.replica, offset, swizzles, axis)
        low, high = it.bounds(self.shard + self.replica).get(axis, (0, 0))
        return offset + low, offset + high

    @property
    def footprint(self) -> dict[str, int]:
        """Axis -> extent of the memory that the layout needs, padding included."""
        whole = make(self.shard, self.replica, self.offsets, self.swizzle)
        return {axis: whole.span(axis) for axis in self.axes}

    # ---- identity and text ----------------------------------------------------------------------

    def _key(self) -> tuple[object, ...]:
        return self.shard, self.replica, self.offsets, self.swizzle, *self.boxes

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Layout):
            return NotImplemented
        return self is other or self._key() == other._key()

    def __hash__(self) -> int:
        if self._hash is None:
            _set(self, "_hash", hash(self._key()))
        return self._hash  # type: ignore[return-value]

    def __str__(self) -> str:
        written = f"S{text(self.shard)}"
        if self.replica:
            written += f" + R{text(self.replica)}"
        written += "".join(f" + {value}@{axis}" for axis, value in self.offsets)
        written = "".join(f"{sw} . " for sw in self.swizzle) + written
        if self.box is None:
            return written
        default = self.box if self.inner else default_padded(self.shard, self.box)
        of = f" of {tuple_text(self.padded or ())}" if default != self.padded else ""
        return f"box[{tuple_text(self.box)}{of}] in {''.join(map(str, self.inner))}{written}"

    def __repr__(self) -> str:
        return f"Layout.parse({str(self)!r})"

    def _repr_html_(self) -> str:
        return upper.answers.svg(self)


# ---- construction -------------------------------------------------------------------------------


def make(
    shard: Iters,
    replica: Iters = (),
    offsets: Offsets = (),
    swizzle: tuple[Swizzle, ...] = (),
    box: tuple[int, ...] | None = None,
    padded: tuple[int, ...] | None = None,
    inner: tuple[Stage, ...] = (),
    *,
    size: int | None = None,
) -> Layout:
    """A Layout of parts that are known to be valid: the constructor of the algebra itself.

    `offsets` is sorted by axis and without zeros; with a box, `padded` cuts the shard. The size is
    worked out unless given.
    """
    if size is None:
        size = prod(box) if box is not None else it.size(shard)
    layout: Any = Parts(shard, replica, offsets, size, swizzle, box, padded, inner)
    layout.__class__ = Layout
    return layout  # type: ignore[no-any-return]


def make_dims(
    dims: Dims, replica: Iters, offsets: Offsets, swizzle: tuple[Swizzle, ...] = ()
) -> Layout:
    """A Layout of dims as they are, boxed only if a block holds more than its extent."""
    shard = tuple(item for _, block in dims for item in block)
    padded = tuple(it.size(block) for _, block in dims)
    box = tuple(extent for extent, _ in dims)
    boxed = () if box == padded else (box, padded)
    return make(shard, replica, offsets, swizzle, *boxed)
