"""Contents of memory: what is at which coordinate after a value was stored in a layout."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from axe_eq.errors import ArgumentError, ScheduleError, SearchError
from axe_eq.layout import Layout
from axe_eq.layout.normal.tables import point_table
from axe_eq.program.types import Array, ValueType

Coordinate = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Contents:
    """A value for each coordinate, coordinates in ascending order.

    Attributes:
        axes: names of the coordinates' columns, sorted; an axis on which all are 0 has none.
        points: [element, axis].
        values: [element].
    """

    axes: tuple[str, ...]
    points: Array
    values: Array

    def __repr__(self) -> str:
        places = _rows(self.axes, self.points, self.axes)
        pairs = zip(places, self.values.tolist(), strict=True)
        return f"{{{', '.join(f'{_place(self.axes, p)}: {v}' for p, v in pairs)}}}"

    @cached_property
    def _places(self) -> dict[Coordinate, int]:
        return {place: n for n, place in enumerate(_rows(self.axes, self.points, self.axes))}

    def find(self, axes: Sequence[str], points: Array) -> Array:
        """Values at some coordinates [point, axis].

        Raises:
            ScheduleError: nothing is at one of them.
        """
        others = [n for n, axis in enumerate(axes) if axis not in self.axes]
        found = []
        for number, place in enumerate(_rows(axes, points, self.axes)):
            at = None if points[number, others].any() else self._places.get(place)
            if at is None:
                where = _place(axes, points[number])
                raise ScheduleError(f"memory at {where}", "holds nothing", "a value")
            found.append(at)
        return np.asarray(self.values[found])


def _place(axes: Sequence[str], place: Sequence[int]) -> str:
    return " ".join(f"{v}@{a}" for v, a in zip(place, axes, strict=True) if v) or "0"


def _rows(axes: Sequence[str], points: Array, names: Sequence[str]) -> list[Coordinate]:
    """Coordinates as tuples over these axes."""
    table = np.zeros((len(points), len(names)), np.int64)
    for n, name in enumerate(names):
        if name in axes:
            table[:, n] = points[:, axes.index(name)]
    return [tuple(row) for row in table.tolist()]


def contents(axes: Sequence[str], points: Array, values: Array) -> Contents:
    """Contents from any list of coordinates and their values.

    Raises:
        ScheduleError: two different values at one coordinate.
    """
    used = sorted(axis for n, axis in enumerate(axes) if points[:, n].any())
    first: dict[Coordinate, int] = {}
    rows = _rows(axes, points, used)
    kept = [first.setdefault(row, n) for n, row in enumerate(rows)]
    if not same(values[kept], values):
        raise ScheduleError("memory", "gets two values at one coordinate", "one")
    order = sorted(first)
    table = np.array(order, np.int64).reshape(len(order), len(used))
    return Contents(tuple(used), table, values[[first[row] for row in order]])


def same(a: Array, b: Array) -> bool:
    """Whether two arrays are equal, NaN to NaN."""
    return a.shape == b.shape and bool(np.all((a == b) | ((a != a) & (b != b))))


def not_held(name: str, lies: str) -> ArgumentError:
    """The error of an argument that no memory holds: several of its elements have one address.

    Args:
        name: of the argument.
        lies: what says so: "its layout ..".
    """
    wrong = f"has different elements at one address of {lies}"
    return ArgumentError(f"argument {name!r}", wrong, "one value per address")


def _points(layout: str, size: int) -> tuple[tuple[str, ...], Array]:
    """Axes of a layout, and where it puts every element: [element, copy, axis]."""
    read = Layout.parse(layout)
    if read.size != size:
        raise ScheduleError(f"layout {layout}", f"has size {read.size}", str(size))
    axes = tuple(sorted({*read.axes, *read.offset}))
    return axes, point_table(read, np.arange(size), axes)


def _flat(points: Array) -> Array:
    """[element, copy, axis] as [coordinate, axis]; without axes too."""
    size, copies, n_axes = points.shape
    return points.reshape(size * copies, n_axes)


def write(value: Array, layout: str) -> Contents:
    """Memory after a value was stored in a layout.

    Raises:
        ScheduleError: a layout of another size, or two values at one coordinate.
    """
    axes, points = _points(layout, value.size)
    copies = np.repeat(value.reshape(-1), points.shape[1])
    return contents(axes, _flat(points), copies)


def read(memory: Contents, layout: str, type: ValueType) -> Array:
    """The value that memory holds in a layout.

    Raises:
        ScheduleError: a layout of another size, an element that is not there, or copies of one
            that differ.
    """
    axes, points = _points(layout, type.size)
    first, *copies = memory.find(axes, _flat(points)).reshape(type.size, -1).T
    if not all(same(first, copy) for copy in copies):
        raise ScheduleError(f"value in {layout}", "has copies that differ", "equal copies")
    return np.asarray(first.reshape(type.shape))


@lru_cache(maxsize=4096)
def may_alias(layout: str) -> bool:
    """Whether elements of a layout may share an address, as where a stride is 0."""
    try:
        return not Layout.parse(layout).aliasing().injective
    except SearchError:
        return True


def shared(value: Array, layout: str) -> Array:
    """The value with one element, the first, for all that must be equal since they share a place.

    Args:
        value: any array.
        layout: of as many elements.

    Raises:
        ScheduleError: a layout of another size.
    """
    if not may_alias(layout):
        return value
    _, points = _points(layout, value.size)
    places = np.unique(_flat(points), axis=0, return_inverse=True)[1].reshape(points.shape[:2])
    first = np.arange(value.size)
    while True:  # what shares a place with what shares a place
        at = np.full(places.max() + 1, value.size)
        np.minimum.at(at, places, first[:, None])
        found = at[places].min(axis=1)
        if np.array_equal(found, first):
            return np.asarray(value.reshape(-1)[first].reshape(value.shape))
        first = found
