"""Where the elements of a view lie: a layout grouped by the view's shape, at run-time positions.

`Layout` holds plain integers and is the language of users and laws. A kernel slices its buffers at
run-time positions, so its views need offsets (and strides of run-time shaped tensors) that are
expressions. All extents of a view are known; only those of whole global buffers may be expressions.

Offsets stand before the swizzle, as in `Layout`: the slice of a swizzled buffer is the unswizzled
slice, then the same swizzle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import prod
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from axe_eq.errors import LayoutError
from axe_eq.kernel.expr import Expr, Int, divisor
from axe_eq.layout import Layout
from axe_eq.layout.value.swizzle import Swizzle


class Iter(NamedTuple):
    """One iter of a layout: index digit times stride, on an axis."""

    extent: Int
    stride: Int
    axis: str

    def __str__(self) -> str:
        return f"{self.extent}:{self.stride}@{self.axis}"


Block = tuple[Iter, ...]


@dataclass(frozen=True)
class Placement:
    """A layout grouped by a shape.

    Attributes:
        blocks: per logical dim its iters, slow to fast; an extent-1 dim has none.
        replica: replica iters.
        offset: (axis, value) pairs without zeros, sorted by axis.
        swizzle: the XOR swizzle of memory axis ``m``, in elements, or None.
    """

    blocks: tuple[Block, ...]
    replica: Block = ()
    offset: tuple[tuple[str, Int], ...] = ()
    swizzle: Swizzle | None = None

    @property
    def shape(self) -> tuple[Int, ...]:
        """Extents of the logical dims."""
        return tuple(_size(block) for block in self.blocks)

    @property
    def iters(self) -> Block:
        """All shard iters in order."""
        return tuple(i for block in self.blocks for i in block)

    def at(self, axis: str) -> Int:
        """The offset on `axis`."""
        return dict(self.offset).get(axis, 0)

    def extent_on(self, axis: str) -> int:
        """One more than the largest coordinate on `axis`, offset not counted."""
        here = [i for i in self.iters + self.replica if i.axis == axis]
        return 1 + sum((number(i.extent) - 1) * number(i.stride) for i in here)

    def has(self, *axes: str) -> bool:
        """Whether an iter lies on one of `axes`."""
        return any(i.axis in axes for i in self.iters + self.replica)

    def permuted(self, order: Sequence[int]) -> Placement:
        """The same elements with the dims in another order."""
        return replace(self, blocks=tuple(self.blocks[d] for d in order))

    def without(self, dims: Iterable[int]) -> Placement:
        """Drop extent-1 dims."""
        gone = set(dims)
        return replace(self, blocks=tuple(b for d, b in enumerate(self.blocks) if d not in gone))

    def moved(self, offset: Mapping[str, Int]) -> Placement:
        """Add to the offset."""
        total = dict(self.offset)
        for axis, value in offset.items():
            total[axis] = total.get(axis, 0) + value
        return replace(self, offset=without_zeros(total))

    def static(self) -> Placement:
        """The placement without its offset: what plans depend on."""
        return replace(self, offset=())

    def coordinate(self, axis: str) -> npt.NDArray[np.int64]:
        """Coordinate of every element on `axis`, without offset and swizzle."""
        return _coordinates(self.blocks, axis)

    def __str__(self) -> str:
        text = " ".join("(" + " ".join(map(str, block)) + ")" for block in self.blocks)
        text += f" + [{' '.join(map(str, self.replica))}]" if self.replica else ""
        text += "".join(f" + {value}@{axis}" for axis, value in self.offset)
        return f"{self.swizzle} . {text}" if self.swizzle else text


def number(value: Int) -> int:
    """The value as a plain int.

    Raises:
        LayoutError: it is known only at run time.
    """
    if isinstance(value, Expr):
        raise LayoutError(f"extent or stride {value}", "is known only at run time", "a number")
    return value


def _size(block: Iterable[Iter]) -> Int:
    return prod((i.extent for i in block), start=1)


def without_zeros(values: Mapping[str, Int]) -> tuple[tuple[str, Int], ...]:
    """Offsets as a placement keeps them: without zeros, sorted by axis."""
    return tuple(sorted((a, v) for a, v in values.items() if not (isinstance(v, int) and v == 0)))


@lru_cache(maxsize=4096)
def _coordinates(blocks: tuple[Block, ...], axis: str) -> npt.NDArray[np.int64]:
    total = np.zeros([1] * len(blocks), np.int64)
    for dim, block in enumerate(blocks):
        line = np.zeros(1, np.int64)
        for i in block:
            count = np.arange(number(i.extent))
            step = count * (number(i.stride) if i.axis == axis else 0)
            line = (line[:, None] + step[None, :]).ravel()
        total = total + line.reshape([-1 if d == dim else 1 for d in range(len(blocks))])
    total.setflags(write=False)
    return total


def _whole(i: Iter, thing: str) -> Sequence[Iter]:
    return (i,)


def of_layout(
    layout: Layout,
    shape: Sequence[int],
    thing: str = "",
    split: Callable[[Iter, str], Sequence[Iter]] = _whole,
) -> Placement:
    """Group a layout by `shape`.

    Args:
        layout: any without a box.
        shape: of the buffer.
        thing: what it is of, for messages.
        split: the iters on a machine's own axes that one iter stands for.

    Raises:
        LayoutError: the shape does not group the layout, or the layout has a box or several
        swizzles.
    """
    thing = thing or f"layout {layout}"
    if layout.box is not None:
        raise LayoutError(thing, "has a padded box", "a layout without a box in kernels")
    if len(layout.swizzle) > 1 or any(s.axis != "m" for s in layout.swizzle):
        raise LayoutError(thing, f"has swizzles {layout.swizzle}", "at most one, on axis m")
    swizzle = layout.swizzle[0] if layout.swizzle else None
    shard = [i for item in layout.shard for i in split(Iter(*item), thing)]
    replica = tuple(
        i for item in layout.replica for i in split(Iter(*item), thing) if i.extent != 1
    )
    return Placement(
        group(shard, shape, thing), replica, without_zeros(dict(layout.offset)), swizzle
    )


def row_major(shape: Sequence[Int], axis: str = "m") -> Placement:
    """Dense, last dim fastest."""
    stride: Int = 1
    blocks: list[Block] = []
    for extent in reversed(shape):
        blocks.insert(0, () if extent == 1 else (Iter(extent, stride, axis),))
        stride = stride * extent
    return Placement(tuple(blocks))


def strided(shape: Sequence[Int], strides: Sequence[Int], axis: str = "m") -> Placement:
    """One iter per dim, in elements."""
    pairs = zip(shape, strides, strict=True)
    return Placement(tuple(() if e == 1 else (Iter(e, s, axis),) for e, s in pairs))


def merged(block: Iterable[Iter]) -> Block:
    """Fuse neighbours that continue each other."""
    out: list[Iter] = []
    for i in block:
        if i.extent == 1:
            continue
        if out and out[-1].axis == i.axis and out[-1].stride == i.extent * i.stride:
            out[-1] = Iter(out[-1].extent * i.extent, i.stride, i.axis)
        else:
            out.append(i)
    return tuple(out)


def group(iters: Sequence[Iter], shape: Sequence[Int], thing: str = "layout") -> tuple[Block, ...]:
    """Split an iter list into one block per dim of `shape` (Axe, definition 3.3).

    Raises:
        LayoutError: naming the extent that does not divide.
    """
    rest = [i for i in iters if i.extent != 1]
    blocks: list[Block] = []
    for extent in reversed(shape):
        need, block = extent, []
        while need != 1:
            if not rest:
                raise LayoutError(
                    thing, f"has fewer elements than shape {_shape(shape)}", "as many"
                )
            i = rest.pop()
            if i.extent == need:
                block.append(i)
                need = 1
            elif isinstance(need, Expr) or isinstance(i.extent, Expr):
                raise LayoutError(
                    thing, f"extent {i.extent} against {need}", "equal run-time extents"
                )
            elif need % i.extent == 0:
                block.append(i)
                need //= i.extent
            elif i.extent % need == 0:
                block.append(Iter(need, i.stride, i.axis))
                rest.append(Iter(i.extent // need, i.stride * need, i.axis))
                need = 1
            else:
                raise LayoutError(
                    thing, f"extent {i.extent} against {need}", "one divides the other"
                )
        blocks.insert(0, merged(reversed(block)))
    if rest:
        raise LayoutError(thing, f"has more elements than shape {_shape(shape)}", "as many")
    return tuple(blocks)


def _shape(shape: Sequence[Int]) -> str:
    return "(" + ", ".join(map(str, shape)) + ")"


def cut(block: Block, begin: Int, extent: int, thing: str) -> tuple[Block, dict[str, Int]]:
    """Take the part [begin, begin + extent) of one dim: iters, and what begin adds to the offset.

    Raises:
        LayoutError: the part would not be a product of whole iters, naming the iter.
    """
    rest, inner, size = list(block), list[Iter](), 1
    while len(rest) > 1 and isinstance(rest[-1].extent, int):
        longer = size * rest[-1].extent
        if extent % longer or divisor(begin) % longer:
            break
        size = longer
        inner.insert(0, rest.pop())
    if len(rest) == 1 and begin == 0 and rest[0].extent * size == extent:
        return (rest[0], *inner), {}
    if size == extent and not rest:
        return tuple(inner), {}
    # The slowest iter goes on as far as a part asks: what lies outside the dim is never accessed.
    rest = rest or [Iter(1, 1, "m")]
    shift: dict[str, Int] = {}
    count, digit = extent // size, begin // size
    _check_carry(rest, digit, count, thing)
    for position, i in reversed(list(enumerate(rest))):
        here = digit % i.extent if position else digit
        shift[i.axis] = shift.get(i.axis, 0) + here * i.stride
        if position:
            digit = digit // i.extent
    if count > 1:
        inner.insert(0, Iter(count, rest[-1].stride, rest[-1].axis))
    return tuple(inner), shift


def _check_carry(rest: list[Iter], digit: Int, count: int, thing: str) -> None:
    """A part of several steps of an iter must not run over its end into the next slower iter."""
    if len(rest) == 1 or count == 1:
        return
    i = rest[-1]
    if (
        isinstance(digit, int)
        and isinstance(i.extent, int)
        and digit % i.extent + count <= i.extent
    ):
        return
    if isinstance(i.extent, int) and i.extent % count == 0 and divisor(digit) % count == 0:
        return
    raise LayoutError(
        thing, f"a part of {count} steps may cross the end of iter {i}", "whole iters"
    )


def sliced(p: Placement, begin: Sequence[Int], extent: Sequence[int], thing: str) -> Placement:
    """The placement of the region [begin, begin + extent)."""
    blocks, shift = [], dict(p.offset)
    for block, b, e in zip(p.blocks, begin, extent, strict=True):
        part, moved = cut(block, b, e, thing)
        blocks.append(part)
        for axis, value in moved.items():
            shift[axis] = shift.get(axis, 0) + value
    return replace(p, blocks=tuple(blocks), offset=without_zeros(shift))


class Digit(NamedTuple):
    """One step of the common refinement of two placements: stride and axis in either."""

    extent: int
    a: Int
    a_axis: str
    b: Int
    b_axis: str


def refine(a: Block, b: Block, thing: str) -> tuple[Digit, ...]:
    """Common refinement of one dim in two placements, neighbours fused where both continue.

    Raises:
        LayoutError: the extents have no common refinement.
    """
    left, right, out = list(a), list(b), list[Digit]()
    while left and right:
        x, y = left.pop(), right.pop()
        ex, ey = number(x.extent), number(y.extent)
        e = min(ex, ey)
        if ex % e or ey % e:
            raise LayoutError(thing, f"extents {ex} and {ey} do not divide", "a common refinement")
        for stack, i, size in ((left, x, ex), (right, y, ey)):
            if size > e:
                stack.append(Iter(size // e, i.stride * e, i.axis))
        _push(out, Digit(e, x.stride, x.axis, y.stride, y.axis))
    if left or right:
        raise LayoutError(thing, f"sizes differ: {_size(a)} and {_size(b)}", "equal extents")
    return tuple(out)


def _push(out: list[Digit], d: Digit) -> None:
    """Prepend a slower digit, fused with the present slowest one where both continue."""
    if d.extent == 1:
        return
    if out:
        f = out[0]
        same = (d.a_axis, d.b_axis) == (f.a_axis, f.b_axis)
        if same and d.a == f.a * f.extent and d.b == f.b * f.extent:
            out[0] = f._replace(extent=f.extent * d.extent)
            return
    out.insert(0, d)


def tile_of(p: Placement, atom: Placement, thing: str) -> tuple[Block, ...]:
    """T with p = T (x) atom, per dim; strides of T count spans of the atom.

    Raises:
        LayoutError: the inner part of a dim is not the atom's.
    """
    out = []
    for dim, (block, inner) in enumerate(zip(p.blocks, atom.blocks, strict=True)):
        size, unit = _size(block), _size(inner)
        if not isinstance(size, int) or not isinstance(unit, int) or size % unit:
            raise LayoutError(thing, f"dim {dim} of extent {size}", f"a multiple of {unit}")
        outer, core = group(block, (size // unit, unit), thing)
        if core != merged(inner):
            shown = " ".join(map(str, core))
            raise LayoutError(thing, f"inner part ({shown}) of dim {dim}", f"{_text(inner)}")
        out.append(tuple(_per_span(i, atom, thing) for i in outer))
    return tuple(out)


def _text(block: Block) -> str:
    return "(" + " ".join(map(str, block)) + ")"


def _per_span(i: Iter, atom: Placement, thing: str) -> Iter:
    span = atom.extent_on(i.axis)
    if divisor(i.stride) % span:
        raise LayoutError(thing, f"stride {i.stride}@{i.axis}", f"a multiple of the atom's {span}")
    return Iter(i.extent, i.stride // span, i.axis)


def unify(
    p: Placement, pattern: Sequence[Sequence[tuple[int, int | str]]], thing: str
) -> dict[str, int]:
    """Match an operand pattern, (extent, stride or unknown) per iter per dim; returns the unknowns.

    Raises:
        LayoutError: naming the iter that does not fit.
    """
    found: dict[str, int] = {}
    for dim, wanted in enumerate(pattern):
        blocks = group(p.blocks[dim], [e for e, _ in wanted], thing)
        for (extent, stride), block in zip(wanted, blocks, strict=True):
            if extent != 1:
                _bind(found, stride, block, f"dim {dim}", thing)
    return found


def _bind(found: dict[str, int], stride: int | str, block: Block, where: str, thing: str) -> None:
    if len(block) != 1 or not isinstance(block[0].stride, int):
        raise LayoutError(thing, f"{where} has {_text(block)} in place of one iter", "one iter")
    actual = block[0].stride
    wanted = found.setdefault(stride, actual) if isinstance(stride, str) else stride
    if actual != wanted:
        raise LayoutError(thing, f"{where} has stride {actual}", f"stride {wanted}")


def digits(axis: str, p: Placement, size: int, thing: str) -> None:
    """Check that the iters on a thread axis number 0 .. size-1 exactly once.

    Raises:
        LayoutError: threads share a coordinate or hold nothing.
    """
    present = sorted(
        (number(i.stride), number(i.extent)) for i in p.iters + p.replica if i.axis == axis
    )
    covered = 1
    for stride, extent in present:
        if stride != covered:
            raise LayoutError(
                thing,
                f"{axis} iters {present} do not number 0..{size - 1} once",
                f"stride {covered}",
            )
        covered *= extent
    if covered != size or p.at(axis) != 0:
        raise LayoutError(
            thing, f"covers {axis} {p.at(axis)}..{p.at(axis)} + {covered}", f"0..{size - 1} exactly"
        )
