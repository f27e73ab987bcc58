"""Regions of values: which operand elements a part of a value depends on.

A region lists, per dim, the wanted indices. Block operators are pulled back through their
projections, selectors through their declared pulls or, where those are silent (reshapes,
interleavings), by running the selector on its operands' element numbers.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from axe_eq.errors import SearchError
from axe_eq.program.node import Node
from axe_eq.program.ops import Pull, selector
from axe_eq.program.places import pulls
from axe_eq.program.signature import Affine, signature
from axe_eq.program.types import Array, ValueType, matched_dims

Region = tuple[Array, ...]  # per dim, the wanted indices, ascending
Row = Sequence[Pull | None]

LARGEST = 1 << 26  # elements of one array that an evaluation may hold
_MOST_LISTED = 1 << 23  # indices of one dim that are listed: 64 MiB
_FAR = 2.0**40  # more than any element number


def whole(shape: Sequence[int]) -> Region:
    """The region of all indices.

    Raises:
        SearchError: a dim has too many to list.
    """
    return represented(shape, None)


def represented(shape: Sequence[int], alike: int | None) -> Region:
    """All indices of a shape; where those from `alike` on are one class, one of that class.

    Raises:
        SearchError: a dim has too many to list.
    """
    kept = [e if alike is None else min(e, alike + 1) for e in shape]
    if max(kept, default=0) > _MOST_LISTED:
        wrong = f"needs a list of {max(kept)} indices"
        raise SearchError("evaluation", wrong, f"<= {_MOST_LISTED}")
    return tuple(np.arange(extent) for extent in kept)


def is_empty(region: Region) -> bool:
    """The region has no element."""
    return any(len(indices) == 0 for indices in region)


def nothing_of(rank: int) -> Region:
    """The region without an element."""
    return (np.arange(0),) * rank


def is_whole(region: Region, shape: Sequence[int]) -> bool:
    """The region has every index."""
    return all(len(indices) == extent for indices, extent in zip(region, shape, strict=True))


def size(region: Region) -> int:
    """Number of elements of the region."""
    return math.prod(len(indices) for indices in region)


def check_size(elements: int) -> None:
    """Refuse arrays that are too large to evaluate.

    Raises:
        SearchError: more elements than `LARGEST`.
    """
    if elements > LARGEST:
        raise SearchError("evaluation", f"needs an array of {elements} elements", f"<= {LARGEST}")


def union(a: Region | None, b: Region) -> Region:
    """The smallest region that has both."""
    return b if a is None else tuple(map(_merged, a, b))


def _merged(a: Array, b: Array) -> Array:
    """The indices of both lists; most are the same list twice."""
    return a if a is b or np.array_equal(a, b) else np.union1d(a, b)


# -- block operators ------------------------------------------------------------------------------


def index_space(node: Node, region: Region, alike: int | None = None) -> Region:
    """Indices of every index dim: the region's for output dims, all of them for reduced dims.

    Where indices from `alike` on are one class, only the first of them stands for it.
    """
    sig = signature(node.text)
    extents = sig.extents([a.shape for a in node.args])
    return (*region, *represented([extents[d] for d in sig.reduced], alike))


def read(affine: Affine, space: Region) -> Array:
    """Operand indices that a projection reads, as an array over the index space."""
    at = np.full((1,) * len(space), affine.offset)
    for dim, step in affine.terms:
        at = at + along(step * space[dim], dim, len(space))
    return at


def op_needs(node: Node, region: Region) -> list[Region]:
    """Per operand of a block operator, the region it reads."""
    space = index_space(node, region)
    return [
        tuple(space[p.plain] if p.plain is not None else np.unique(read(p, space)) for p in operand)
        for operand in signature(node.text).operands
    ]


def along(indices: Array, axis: int, rank: int) -> Array:
    """Indices laid along one axis of a space of that rank."""
    return indices.reshape([-1 if d == axis else 1 for d in range(rank)])


# -- selectors ------------------------------------------------------------------------------------


class Source(NamedTuple):
    """Where a region of a selector's value reads one operand.

    Attributes:
        coordinates: per operand dim, the index there, broadcastable over the region.
        valid: per operand dim, where that index is inside, of the same shape.
    """

    coordinates: Region
    valid: Region

    @property
    def reads(self) -> bool:
        """Anything of the operand is read."""
        return all(v.any() for v in self.valid)

    def needs(self) -> Region:
        """Indices of the operand that are read."""
        if not self.reads:
            return nothing_of(len(self.coordinates))
        return tuple(np.unique(c[v]) for c, v in zip(*self, strict=True))


def sel_sources(node: Node, region: Region) -> list[Source]:
    """Per operand of a selector, where a region of its value reads it.

    Raises:
        SearchError: the selector would have to run on too many elements.
    """
    declared, params = selector(node.text)
    types = [a.type for a in node.args]
    if declared.inverse is not None:
        return [_in_order(types[0], node.type, region)]
    rows: Sequence[Row] = [[None] * t.rank for t in types]
    if declared.pull is not None:
        rows = declared.pull(params, types)
    found = [_pulled(row, t, region) for row, t in zip(rows, types, strict=True)]
    known = [source for source in found if source is not None]
    return known if len(known) == len(found) else _numbered(node, rows, region)


def look_needs(node: Node, region: Region) -> list[Region]:
    """Per operand of a selector that reads where integers say: those, and whole dims for them."""
    types = [a.type for a in node.args]
    return [
        tuple(
            np.arange(extent) if pull is None else region[pull.axis]
            for pull, extent in zip(row, of.shape, strict=True)
        )
        for row, of in zip(pulls(node.text, types), types, strict=True)
    ]


def _in_order(of: ValueType, to: ValueType, region: Region) -> Source:
    """Source of a selector that keeps the row-major order of all elements.

    Dims of both sides that hold the same elements are worked out apart: one that is handed on costs
    no more than its indices.

    Raises:
        SearchError: the region is too large.
    """
    check_size(size(region))
    coordinates: list[Array] = []
    for inner, outer in matched_dims(of.shape, to.shape):
        number = np.zeros((1,) * len(region), np.int64)
        for axis in outer:
            number = number * to.shape[axis] + along(region[axis], axis, len(region))
        found = []
        for d in reversed(inner):
            number, at = np.divmod(number, of.shape[d])
            found.append(at)
        coordinates += reversed(found)
    return Source(tuple(coordinates), tuple(np.ones(at.shape, bool) for at in coordinates))


def _pulled(row: Row, of: ValueType, region: Region) -> Source | None:
    """Source by affine pulls; None where a dim has none."""
    coordinates, valid = [], []
    for pull, extent in zip(row, of.shape, strict=True):
        if pull is None:
            return None
        at = along(pull.scale * region[pull.axis] + pull.offset, pull.axis, len(region))
        coordinates.append(at)
        valid.append((at >= 0) & (at < extent))
    return Source(tuple(coordinates), tuple(valid))


def _numbered(node: Node, rows: Sequence[Row], region: Region) -> list[Source]:
    """Sources by running the selector on the element numbers of its operands.

    Axes that a uniform selector leaves alone have extent 1 there: regrouping the heads of a long
    sequence costs no more than one token.
    """
    axes = _passed_axes(node, rows)
    shapes = [_thin(row, a.shape, axes) for row, a in zip(rows, node.args, strict=True)]
    ends = np.cumsum([0, *map(math.prod, shapes)])
    check_size(
        max(int(ends[-1]), math.prod(1 if d in axes else e for d, e in enumerate(node.shape)))
    )
    shown = _shown_numbers(node, ends, shapes)
    here = tuple(np.zeros(1, int) if d in axes else indices for d, indices in enumerate(region))
    numbers = shown[np.ix_(*here)]
    return [
        _unnumbered(numbers, int(ends[k]), shapes[k], rows[k], axes, region)
        for k in range(len(shapes))
    ]


def _thin(row: Row, shape: Sequence[int], axes: set[int]) -> tuple[int, ...]:
    """The operand's shape with the dims that pass through cut to extent 1."""
    return tuple(1 if p and p.axis in axes else e for p, e in zip(row, shape, strict=True))


def _passed_axes(node: Node, rows: Sequence[Row]) -> set[int]:
    """Output axes that a uniform selector leaves alone; every operand has them at their extent."""
    if not selector(node.text)[0].uniform:
        return set()
    axes = set(range(len(node.shape)))
    for row, arg in zip(rows, node.args, strict=True):
        through = zip(row, arg.shape, strict=True)
        axes &= {p.axis for p, e in through if p and p == Pull(p.axis) and e == node.shape[p.axis]}
    return axes


def _shown_numbers(node: Node, ends: Array, shapes: Sequence[tuple[int, ...]]) -> Array:
    """The element number every cell of the value shows; -1 where it shows none (padding)."""
    declared, params = selector(node.text)
    numbers = [np.arange(ends[k], ends[k + 1]).reshape(s) * 1.0 for k, s in enumerate(shapes)]
    near = np.asarray(declared.run(params, numbers))
    far = np.asarray(declared.run(params, [n + _FAR for n in numbers]))
    return np.where(far - near == _FAR, near, -1).astype(np.int64)


def _unnumbered(
    numbers: Array, begin: int, shape: tuple[int, ...], row: Row, axes: set[int], region: Region
) -> Source:
    """Coordinates in one operand from element numbers."""
    inside = (numbers >= begin) & (numbers < begin + math.prod(shape))
    within = np.unravel_index(np.where(inside, numbers - begin, 0), shape)
    coordinates, valid = [], []
    for pull, at in zip(row, within, strict=True):
        through = pull is not None and pull.axis in axes
        if through and pull is not None:
            at = along(region[pull.axis], pull.axis, len(region))
        coordinates.append(at)
        valid.append(np.ones(at.shape, bool) & inside.any() if through else inside)
    return Source(tuple(coordinates), tuple(valid))
