"""Tile and direct sum of two layouts, and recovering a factor (Axe Appendices C, D and F)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain, repeat
from math import lcm, prod
from operator import floordiv, mod
from typing import Any

from axe_eq.errors import LayoutError, SearchError
from axe_eq.layout.algebra.boxed import fields_of
from axe_eq.layout.normal.chains import build
from axe_eq.layout.normal.decide import same_map
from axe_eq.layout.normal.recover_iters import add, first_uncut, first_unequal
from axe_eq.layout.normal.replicas import by_axis, difference, saturate
from axe_eq.layout.value import iters as it
from axe_eq.layout.value.boxes import reduce_dims, regroup, trim
from axe_eq.layout.value.check import Offsets, check_admitted, check_range, make_offsets
from axe_eq.layout.value.iters import Iter, Iters
from axe_eq.layout.value.layout import Layout, make, make_dims
from axe_eq.layout.value.swizzle import Swizzle

Shape = Sequence[int]
Weights = Mapping[str, int]


def tile(a: Layout, shape_a: Shape, b: Layout, shape_b: Shape) -> Layout:
    """The tiled layout: ``T(x, y) = A(x) * span(B) + B(y)``, A outside (Axe 3.3, Theorem C.2).

    Per dim, the index of T is A's index times B's extent plus B's index. Strides, replicas and
    offset of A are scaled by the span of B, which is by the size of strides and without offset.

    Raises:
        LayoutError: a shape does not group its layout, the ranks differ, the result does not fit in
            63 bits, or a swizzle would not stay one.
    """
    weights = _spans(b)
    return _attempted(a, b, lambda x, y: _interleave(x, shape_a, y, shape_b, weights, "tile"))


def direct_sum(a: Layout, shape_a: Shape, b: Layout, shape_b: Shape) -> Layout:
    """The unscaled tile: ``S(x, y) = A(x) + B(y)`` on the same interleaved domain (Axe F.1).

    Raises:
        LayoutError: as `tile`.
    """
    return _attempted(a, b, lambda x, y: _interleave(x, shape_a, y, shape_b, {}, "direct sum"))


def tile_of(a: Layout, shape_a: Shape, b: Layout, shape_b: Shape) -> Layout:
    """The layout C with ``tile(C, shape_a / shape_b, b, shape_b) = a``. Complete.

    Raises:
        LayoutError: there is none, with the reason and the first index that breaks.
        SearchError: undecided, a replica list off the gap condition spans over 2**24.
    """
    spans = _spans(b)
    return _attempted(a, b, lambda x, y: _factor(x, shape_a, y, shape_b, spans, True, "tile"))


def direct_sum_left(a: Layout, shape_a: Shape, b: Layout, shape_b: Shape) -> Layout:
    """The left addend: C with ``direct_sum(C, shape_a / shape_b, b, shape_b) = a``. Complete.

    Raises:
        LayoutError: there is none, with the reason and the first index that breaks.
        SearchError: as `tile_of`.
    """
    return _attempted(a, b, lambda x, y: _factor(x, shape_a, y, shape_b, {}, True, "direct sum"))


def direct_sum_right(a: Layout, shape_a: Shape, b: Layout, shape_b: Shape) -> Layout:
    """The right addend: C with ``direct_sum(b, shape_b, C, shape_a / shape_b) = a``. Complete.

    Raises:
        LayoutError: there is none, with the reason and the first index that breaks.
        SearchError: as `tile_of`.
    """
    return _attempted(a, b, lambda x, y: _factor(x, shape_a, y, shape_b, {}, False, "direct sum"))


def _attempted(a: Layout, b: Layout, attempt: Callable[[Layout, Layout], Layout]) -> Layout:
    """An operation on two layouts: with swizzles as they are, else in their canonical forms.

    A swizzle that does nothing, or that another spelling does not need, stands in no way.
    """
    if not (a.swizzle or b.swizzle):
        return attempt(a, b)
    try:
        return attempt(a, b)
    except LayoutError as error:
        try:
            one, two = (x.canonical() if x.swizzle or not x.inner else x for x in (a, b))
            if (one, two) == (a, b):
                raise error from None
            return attempt(one, two)
        except (LayoutError, SearchError):
            raise error from None


# ---- building -----------------------------------------------------------------------------------


def _interleave(
    a: Layout, shape_a: Shape, b: Layout, shape_b: Shape, weights: Weights, name: str
) -> Layout:
    if len(shape_a) != len(shape_b):
        raise LayoutError(name, f"shapes {tuple(shape_a)} and {tuple(shape_b)}", "equal ranks")
    swizzle = _joined_swizzles(a, b, weights, name) if a.swizzle or b.swizzle else ()
    replica, offsets = b.replica, b.offsets
    if a.replica:
        replica = (*_scaled(a.replica, weights), *replica)
    if a.offsets:
        offset = {axis: value * weights.get(axis, 1) for axis, value in a.offsets}
        add(offset, dict(b.offsets))
        offsets = make_offsets(offset)
    if a.box is None and b.box is None:
        shard, size = _interleaved(a, shape_a, b, shape_b, weights), a.size * b.size
        check_range(shard, replica, offsets, size)
        return make(shard, replica, offsets, swizzle, size=size)
    layout = _interleaved_boxes(a, shape_a, b, shape_b, weights, (replica, offsets, swizzle))
    check_range(layout.shard, replica, offsets, it.size(layout.shard))
    return layout


def _interleaved_boxes(
    a: Layout, shape_a: Shape, b: Layout, shape_b: Shape, weights: Weights, parts: Any
) -> Layout:
    """The whole of layouts with boxes: dim by dim, or where a dim is no block by ladders.

    `parts` are replicas, offset and swizzles of the whole.
    """
    if not (a.inner or b.inner):
        try:
            pairs = zip(a.group_dims(shape_a), b.group_dims(shape_b), strict=True)
            dims = [((n, _scaled(block, weights)), inner) for (n, block), inner in pairs]
            return make_dims(tuple(chain.from_iterable(dims)), *parts)
        except LayoutError:  # a dim that is no block
            pass
    ladders = zip(fields_of(a, shape_a), fields_of(b, shape_b), strict=True)
    fields = [((n, _scaled(ladder, weights)), inner) for (n, ladder), inner in ladders]
    return build(tuple(chain.from_iterable(fields)), *parts)


def _interleaved(a: Layout, shape_a: Shape, b: Layout, shape_b: Shape, weights: Weights) -> Iters:
    """The shard of the whole, of two layouts without boxes."""
    shard: list[Iter] = []
    blocks = a.blocks(check_admitted(a.size, shape_a)), b.blocks(check_admitted(b.size, shape_b))
    for outer, inner in zip(*blocks, strict=True):
        shard += _scaled(outer, weights)
        shard += inner
    return tuple(shard)


def _spans(layout: Layout) -> Weights:
    """Axis -> span (Lemma C.1 where there is neither swizzle nor box)."""
    if not layout.is_linear():
        return {axis: layout.span(axis) for axis in layout.axes}
    spans: dict[str, int] = {}
    for extent, stride, axis in layout.shard + layout.replica:
        spans[axis] = spans.get(axis, 1) + (extent - 1) * abs(stride)
    return spans


def _scaled(iters: Iters, weights: Weights) -> Iters:
    if not weights:
        return iters
    get = weights.get
    return tuple([(extent, stride * get(axis, 1), axis) for extent, stride, axis in iters])


def _joined_swizzles(a: Layout, b: Layout, weights: Weights, name: str) -> tuple[Swizzle, ...]:
    """The swizzles of the whole: those of b see nothing of a, those of a nothing of b."""
    for sw in b.swizzle:
        _check_steps(a, sw, weights, name)
    joined: list[Swizzle] = []
    for sw in a.swizzle:
        weight = weights.get(sw.axis, 1)
        low, high = b.range(sw.axis)
        if weight & (weight - 1) or low < 0 or high >= weight:
            raise LayoutError(
                f"{name} with {sw} outside",
                f"inner coordinates {low} to {high}, scale {weight} on {sw.axis}",
                "a scale that is a power of two above every inner coordinate",
            )
        joined.append(sw.scaled(weight.bit_length() - 1))
    return (*joined, *b.swizzle)


def _check_steps(a: Layout, sw: Swizzle, weights: Weights, name: str) -> None:
    """Refuse where the outer layout would carry into the bits that an inner swizzle reads."""
    weight = weights.get(sw.axis, 1)
    values = [s for extent, s, axis in a.shard + a.replica if extent > 1 and axis == sw.axis]
    values += [value for axis, value in a.offsets if axis == sw.axis]
    for value in values:
        if value * weight % (1 << sw.reach):
            raise LayoutError(
                f"{name} with {sw} inside",
                f"the outer layout steps by {value * weight} on {sw.axis}",
                f"multiples of {1 << sw.reach}",
            )


# ---- recovering a factor ------------------------------------------------------------------------


def _factor(
    a: Layout, shape_a: Shape, b: Layout, shape_b: Shape, weights: Weights, outer: bool, name: str
) -> Layout:
    """What is outside of b in a, or inside; `weights` are what the outer one was scaled by."""
    whole, inner = check_admitted(a.size, shape_a), check_admitted(b.size, shape_b)
    if len(whole) != len(inner) or any(map(mod, whole, inner)):
        raise LayoutError(name, f"shapes {whole} and {inner}", "a shape that divides dim by dim")
    ratio = tuple(map(floordiv, whole, inner))
    swizzle = _factor_swizzles(a, b, weights, outer, name) if a.swizzle or b.swizzle else ()
    replica, offsets = a.replica, a.offsets
    if replica or b.replica or offsets or b.offsets:
        replica, offsets = _factor_copies(a, b, weights, outer, name)
    pairs = zip(ratio, inner, strict=True) if outer else zip(inner, ratio, strict=True)
    cut = tuple(chain.from_iterable(pairs))
    blocks = _cut(a, cut) if not (a.inner or b.inner) else None
    if blocks is None and (a.box is not None or b.box is not None):
        pairs = zip(ratio, repeat(1)) if outer else zip(repeat(1), ratio)
        part = a.slice(cut, [(0, end) for pair in pairs for end in pair])
        shard = _unscaled(part.shard, weights, name)
        factor = make(shard, replica, offsets, swizzle, *part.boxes)
        (x, shape_x), (y, shape_y) = ((factor, ratio), (b, inner))[:: 1 if outer else -1]
        again = _interleave(x, shape_x, y, shape_y, weights, name)
        found = same_map(again, a)
        if found is not None:
            raise LayoutError(name, f"{a} is not made of {b}: index {found.x} breaks", str(b))
        return factor
    rests = _factor_blocks(a, blocks, cut, b, inner, outer, name)
    if a.box is None:
        shard = _unscaled(chain.from_iterable(rests), weights, name)
        factor = make(shard, replica, offsets, swizzle, size=a.size // b.size)
    else:
        dims = tuple((n, _unscaled(x, weights, name)) for n, x in zip(ratio, rests, strict=True))
        factor = make_dims(dims, replica, offsets, swizzle)
    if a.swizzle:
        _joined_swizzles(*((factor, b) if outer else (b, factor)), weights, name)
    return factor


def _factor_copies(
    a: Layout, b: Layout, weights: Weights, outer: bool, name: str
) -> tuple[Iters, Offsets]:
    """Replicas and offset of the factor: what `b` adds to them is those of `a`.

    Several lists may do where copies meet; inside a factor `b` with swizzles, one must step beyond
    all that they see.
    """
    seen: dict[str, int] = {}
    for sw in b.swizzle if outer else ():
        seen[sw.axis] = max(seen.get(sw.axis, 1), 1 << sw.reach)
    steps_a, offset = by_axis(a.replica)
    steps_b, turned = by_axis(b.replica)
    add(offset, dict(a.offsets))
    add(turned, dict(b.offsets))
    add(offset, turned, -1)
    replica: list[Iter] = []
    for axis in sorted({*steps_a, *steps_b}):
        whole, part = saturate(steps_a.get(axis, ())), saturate(steps_b.get(axis, ()))
        rest = difference(whole, part, lcm(weights.get(axis, 1), seen.get(axis, 1)))
        if rest is None:
            raise LayoutError(
                name, f"the replicas of {a} on {axis} at index 0", f"those of {b} in it"
            )
        replica += [(extent, stride // weights.get(axis, 1), axis) for stride, extent in rest]
    for axis, value in offset.items():
        if value % weights.get(axis, 1):
            raise LayoutError(
                name, f"offset {value} on {axis} at index 0", f"a multiple of {weights[axis]}"
            )
    origin = {axis: value // weights.get(axis, 1) for axis, value in offset.items()}
    return tuple(replica), make_offsets(origin)


def _factor_blocks(
    a: Layout,
    blocks: Sequence[Iters] | None,
    cut: Shape,
    b: Layout,
    inner: Shape,
    outer: bool,
    name: str,
) -> Sequence[Iters]:
    """The blocks of `a` beside those of `b`, per dim, before they are scaled back."""
    if blocks is None:
        index = first_uncut(it.fuse(a.shard), cut)
        raise LayoutError(
            name,
            f"{a} does not group by {cut}: index {index} breaks",
            f"whole copies of {b} in every dim",
        )
    rests, have = (blocks[::2], blocks[1::2]) if outer else (blocks[1::2], blocks[::2])
    want = _cut(b, inner) or tuple([block for _, block in b.group_dims(inner)])
    if have == want:
        return rests
    place = next(i for i, block in enumerate(want) if block != have[i])
    level = prod(cut[2 * place + (2 if outer else 1) :])
    broken = (first_unequal(have[place], want[place]) or 0) * level
    raise LayoutError(name, f"{a} is not {b} in dim {place}: index {broken} breaks", str(b))


def _cut(layout: Layout, shape: Shape) -> tuple[Iters, ...] | None:
    """The blocks of a shape in normal form, so that equal blocks are equal maps."""
    if layout.box is None:
        return it.split_blocks(it.fuse(layout.shard), shape)
    dims = regroup(reduce_dims(layout.dims()), shape)
    return None if dims is None else tuple([trim(n, it.fuse(block)) for n, block in dims])


def _unscaled(iters: Iterable[Iter], weights: Weights, name: str) -> Iters:
    unscaled: list[Iter] = []
    for extent, stride, axis in iters:
        quotient, rest = divmod(stride, weights.get(axis, 1))
        if rest:
            raise LayoutError(
                name, f"the outer stride {stride}@{axis}", f"a multiple of the span {weights[axis]}"
            )
        unscaled.append((extent, quotient, axis))
    return tuple(unscaled)


def _factor_swizzles(
    a: Layout, b: Layout, weights: Weights, outer: bool, name: str
) -> tuple[Swizzle, ...]:
    """The swizzles of the factor: those of the whole before those of `b`, scaled back.

    A right addend has those after them.
    """
    if not outer:
        if a.swizzle[: len(b.swizzle)] != b.swizzle:
            wrong = f"the swizzles of {a} do not begin with those of {b}"
            raise LayoutError(name, wrong, "the same ones")
        return a.swizzle[len(b.swizzle) :]
    before = len(a.swizzle) - len(b.swizzle)
    if before < 0 or a.swizzle[before:] != b.swizzle:
        raise LayoutError(
            name, f"the swizzles of {a} do not end with those of {b}", "the same ones"
        )
    found: list[Swizzle] = []
    for sw in a.swizzle[:before]:
        log2 = weights.get(sw.axis, 1).bit_length() - 1
        if sw.base < log2:
            raise LayoutError(name, f"{sw} mixes bits inside a tile", f"bits from {log2} up")
        found.append(sw.scaled(-log2))
    return tuple(found)
