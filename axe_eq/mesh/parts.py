"""Parts of a value on a mesh as digits of its indices: what a rank program is given, and gives.

A dim of a value is cut into digits, slow to fast; each is a mesh axis or is a rank's own. A dim of
24 that x=2 cuts, each part in turns of 3 over y=4, has the digits x, 3 own, y. A rank's part has
the dims of the value, each of its own digits. This says who has what; where in a rank's memory is
no matter of what programs mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import prod

import numpy as np

from axe_eq.errors import AxeError, LayoutError
from axe_eq.layout import Layout, Mesh
from axe_eq.layout.notation import check_shape, read_any
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.program.types import Array, ValueType

OWN = ""


@dataclass(frozen=True)
class Digit:
    """A digit of an index: that of a mesh axis, or one of a rank's own (no axis)."""

    axis: str
    extent: int


@dataclass(frozen=True)
class Parts:
    """How a value of a shape is cut over the axes of a mesh.

    Attributes:
        shape: of the value.
        dims: per dim its digits, slow to fast; together they may count further than the dim goes,
            and what is behind its end is padding, 0 where it is given.
        order: numbers of own digits, dims after dims, in the order of a rank's flat memory; None
            where that memory is not dense.
    """

    shape: tuple[int, ...]
    dims: tuple[tuple[Digit, ...], ...]
    order: tuple[int, ...] | None = None

    @property
    def axes(self) -> tuple[str, ...]:
        """The mesh axes that cut it."""
        return tuple(d.axis for dim in self.dims for d in dim if d.axis)

    @property
    def padded(self) -> tuple[int, ...]:
        """The shape with padding."""
        return tuple(prod(d.extent for d in dim) for dim in self.dims)

    @property
    def local(self) -> tuple[int, ...]:
        """Shape of a rank's part."""
        return tuple(prod(d.extent for d in dim if not d.axis) for dim in self.dims)

    def place(self, index: Sequence[int]) -> dict[str, int]:
        """Mesh axis -> where along it the ranks are that have this element."""
        found = {}
        for i, dim in zip(index, self.dims, strict=True):
            for digit in reversed(dim):
                i, at = divmod(i, digit.extent)
                if digit.axis:
                    found[digit.axis] = at
        return found

    def part(self, value: Array, at: dict[str, int]) -> Array:
        """The part of a whole value that a rank has which stands there on the mesh."""
        return np.ascontiguousarray(self._view(self._fill(value), at)).reshape(self.local)

    def whole(self, parts: Sequence[tuple[dict[str, int], Array]]) -> Array:
        """The value that ranks' parts are of; of copies the last one's."""
        filled = np.zeros(self.padded, parts[0][1].dtype)
        for at, part in parts:
            view = self._view(filled, at)
            view[...] = part.reshape(view.shape)
        return np.ascontiguousarray(filled[tuple(map(slice, self.shape))])

    def _fill(self, value: Array) -> Array:
        return np.pad(value, [(0, p - n) for n, p in zip(self.shape, self.padded, strict=True)])

    def _view(self, filled: Array, at: dict[str, int]) -> Array:
        digits = [d for dim in self.dims for d in dim]
        return filled.reshape([d.extent for d in digits])[
            tuple(at[d.axis] if d.axis else slice(None) for d in digits)
        ]


def whole_parts(shape: tuple[int, ...]) -> Parts:
    """The value whole on every rank."""
    dims = tuple((Digit(OWN, n),) for n in shape)
    return Parts(shape, dims, tuple(range(len(shape))))


@lru_cache(maxsize=4096)
def parts_of(layout: Layout, shape: tuple[int, ...], mesh: Mesh) -> Parts:
    """How a layout cuts a value over a mesh.

    Raises:
        LayoutError: it does not cut dims by mesh axes, or ranks hold nothing.
    """
    thing = f"layout {layout} of {shape}"
    if layout.inner or any(s.axis == mesh.axis and s.bits for s in layout.swizzle):
        raise LayoutError(thing, "cuts boxes of boxes, or swizzles devices", "dims cut by axes")
    if layout.offset.get(mesh.axis, 0):
        wrong = f"leaves out devices below {layout.offset[mesh.axis]}"
        raise LayoutError(thing, wrong, "a part on every device")
    axes = [(n, size, stride) for n, (size, stride) in mesh.axes.items() if size > 1]
    dims, strides = [], []
    for extent, block in layout.group_dims(shape):
        digits: list[Digit] = []
        for number, (e, s, axis) in enumerate(block):
            if axis == mesh.axis:
                digits += _axes_of(thing, e, s, axes, padded=number == 0)
            else:
                digits.append(Digit(OWN, e))
                strides.append((s, e))
        if not any(not d.axis for d in digits):
            digits.append(Digit(OWN, 1))
            strides.append((0, 1))
        assert prod(d.extent for d in digits) >= extent
        dims.append(tuple(digits))
    used = [d.axis for dim in dims for d in dim if d.axis]
    if len(set(used)) < len(used):
        raise LayoutError(thing, "cuts twice by one mesh axis", "every axis once")
    free = [np.arange(size) * stride for n, size, stride in axes if n not in used]
    copies = np.unique(_sums(free))
    if not np.array_equal(copies, np.unique(layout.replica_table(mesh.axis))):
        have = len(np.unique(layout.replica_table(mesh.axis)))
        raise LayoutError(thing, f"has {have} copies", f"{len(copies)}, one on every other device")
    return Parts(shape, tuple(dims), _order(strides, layout))


def _sums(parts: Sequence[Array]) -> Array:
    total = np.zeros(1, np.int64)
    for part in parts:
        total = np.add.outer(total, part).reshape(-1)
    return total


def _axes_of(
    thing: str, extent: int, stride: int, axes: Sequence[tuple[str, int, int]], *, padded: bool
) -> list[Digit]:
    """The mesh axes that an iter over devices counts, slow to fast.

    The slowest iter of a dim may end before the devices do: the last ones hold padding alone.
    """
    found: list[Digit] = []
    left, step = extent, stride
    while left > 1:
        at = next(((n, size) for n, size, s in axes if s == step), None)
        if at is not None and left % at[1] and padded:
            left = -(-left // at[1]) * at[1]
        at = None if at is None or left % at[1] else at
        if at is None:
            wanted = " ".join(f"{n}={size}:{s}" for n, size, s in axes)
            raise LayoutError(thing, f"counts {extent} devices {stride} apart", f"axes {wanted}")
        found.insert(0, Digit(*at))
        left, step = left // at[1], step * at[1]
    return found


def _order(strides: Sequence[tuple[int, int]], layout: Layout) -> tuple[int, ...] | None:
    """Own digits in the order of memory, where it is dense."""
    if layout.swizzle or layout.offset.get(DEFAULT_AXIS, 0):
        return None
    order = sorted(range(len(strides)), key=lambda n: (-strides[n][0], -strides[n][1]))
    step = 1
    for n in reversed(order):
        stride, extent = strides[n]
        if extent > 1 and stride != step:
            return None
        step *= extent
    return tuple(order)


def read_parts(given: Layout | str | None, shape: tuple[int, ...], mesh: Mesh) -> Parts:
    """How a value is cut that is said to lie so: a layout, a text of one, or whole everywhere.

    Raises:
        LayoutError, NotationError: no such layout of this shape.
    """
    if given is None:
        return whole_parts(shape)
    if isinstance(given, str):
        given = read_any(given, shape=shape, mesh=mesh)
    check_shape(given, shape)
    return parts_of(given, shape, mesh)


def parts_from_local(given: Layout | str | None, local: ValueType, mesh: Mesh) -> Parts:
    """How a value is cut of which ranks have parts of this shape, all of them full.

    Of a part of 3 rows on 4 ranks the whole has 12, though 9 rows have parts of 3 too.

    Raises:
        LayoutError: it cuts no value so.
    """
    if given is None:
        return whole_parts(local.shape)
    sizes, rank = list(mesh.shape.values()), len(local.shape)
    shapes = {
        tuple(
            n * prod(s for s, c in zip(sizes, choice, strict=True) if c == d)
            for d, n in enumerate(local.shape)
        )
        for choice in product(range(-1, rank), repeat=len(sizes))
    }
    for shape in sorted(shapes, key=lambda s: (prod(s), s)):
        try:
            found = read_parts(given, shape, mesh)
        except AxeError:
            continue
        if found.local == local.shape and found.padded == shape:
            return found
    wrong = f"is of no value whose part is {local}"
    raise LayoutError(f"layout {given}", wrong, "a layout of the output; axe.Spec says its shape")
