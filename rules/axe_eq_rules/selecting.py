"""Algebra of selectors: what laws do to the texts of slices, pads, splits, merges and joins.

Pure functions; each returns None where its result would not mean the same. Canonically slices are
innermost, then splits, merges and pads; a flip is a slice, a repeat is a merge of a broadcast.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from axe_eq.errors import LayoutError
from axe_eq.layout import common_refinement
from axe_eq.program.ops import SELECTORS, join_text, split_text
from axe_eq.program.signature import make, plain
from axe_eq.program.types import value_type
from axe_eq.rule.term import STR, primitive

Shape = tuple[int, ...]
Part = tuple[int, int, int] | None  # start, step, count of one axis; None for all of it
Pair = tuple[str, str]


def parts_of(spec: str) -> tuple[Part, ...] | None:
    """The parts of a slice's text; None for other selectors."""
    name, params = split_text(spec)
    return params[0] if name == "slice" else None


def slice_text(parts: Iterable[Part], shape: Shape) -> str:
    """The text of a slice; parts that take a whole axis print as None."""
    numbers = [(whole(p, e), e) for p, e in zip(parts, shape, strict=True)]
    return join_text("slice", tuple(None if p == (0, 1, e) else p for p, e in numbers))


def whole(part: Part, extent: int) -> tuple[int, int, int]:
    """The part as numbers; the step of one index alone, which leads nowhere, is 1.

    A slice of a slice multiplies steps: were these steps kept, there would be a new text each time.
    """
    if part is None:
        return 0, 1, extent
    return (part[0], 1, 1) if part[2] == 1 else part


def keeps_all(spec: str, shape: Shape) -> bool:
    """Whether a selector is the identity on operands of this shape."""
    name, params = split_text(spec)
    if name == "slice":
        return all(whole(p, e) == (0, 1, e) for p, e in zip(params[0], shape, strict=True))
    if name == "pad":
        return all(p == (0, 0) for p in params[0])
    return (name == "split" and len(params[1]) == 1) or (
        name in ("merge", "repeat") and params[1] == 1
    )


# -- one selector after another --------------------------------------------------------------------


def cancels(outer: str, inner: str, shape: Shape) -> bool:
    """Whether `outer` undoes `inner` on operands of this shape."""
    (o, after), (i, before) = split_text(outer), split_text(inner)
    if (o, i) == ("merge", "split"):
        return bool(after[0] == before[0] and after[1] == len(before[1]))
    if (o, i) == ("split", "merge"):
        axis, count = before
        return bool(after[0] == axis and after[1][1:] == shape[axis + 1 : axis + count]
                    and len(after[1]) == count)  # fmt: skip
    if (o, i) == ("slice", "pad"):
        kept = zip(after[0], before[0], shape, strict=True)
        return all(whole(p, e + lo + hi) == (lo, 1, e) for p, (lo, hi), e in kept)
    return False


def fused(outer: str, inner: str, shape: Shape) -> str | None:
    """The selector that does both, inner first."""
    (o, after), (i, before) = split_text(outer), split_text(inner)
    if o != i:
        return None
    if o == "slice":
        between = tuple(whole(p, e)[2] for p, e in zip(before[0], shape, strict=True))
        parts = zip(after[0], before[0], between, shape, strict=True)
        return slice_text((_after(whole(p, n), whole(q, e)) for p, q, n, e in parts), shape)
    if o == "pad" and same_number(after[1], before[1]):
        widths = zip(after[0], before[0], strict=True)
        return join_text("pad", tuple((a + c, b + d) for (a, b), (c, d) in widths), after[1])
    if o == "split":
        return _fused_splits(after, before)
    if o == "merge" and before[0] >= after[0] and before[0] < after[0] + after[1]:
        return join_text("merge", after[0], after[1] + before[1] - 1)
    return None


def same_number(a: Any, b: Any) -> bool:
    """Whether two parameters are the same number, of the same sign."""
    return repr(a) == repr(b)


def _after(part: tuple[int, int, int], of: tuple[int, int, int]) -> tuple[int, int, int]:
    """The part of a part."""
    return of[0] + of[1] * part[0], of[1] * part[1], part[2]


def _fused_splits(after: tuple[Any, ...], before: tuple[Any, ...]) -> str | None:
    place = after[0] - before[0]
    if not 0 <= place < len(before[1]):
        return None
    factor, new = before[1][place], after[1]
    if factor != -1:
        new = (factor // math.prod(new[1:]), *new[1:])
    return join_text("split", before[0], (*before[1][:place], *new, *before[1][place + 1 :]))


def exchanged(outer: str, inner: str, shape: Shape) -> Pair | None:
    """(outer, inner) that do the same in the canonical order, from a pair that is not in it."""
    rule = _EXCHANGES.get((split_text(outer)[0], split_text(inner)[0]))
    return None if rule is None else rule(split_text(outer)[1], split_text(inner)[1], shape)


def _slice_pad(after: tuple[Any, ...], before: tuple[Any, ...], shape: Shape) -> Pair | None:
    widths, parts = [], []
    for part, (lo, hi), extent in zip(after[0], before[0], shape, strict=True):
        start, step, count = whole(part, lo + extent + hi)
        inside = [j for j in (0, count - 1) if lo <= start + step * j < lo + extent]
        if step < 1 and count > 1 and (lo or hi):
            return None
        first = max(0, -((start - lo) // step)) if step > 0 else 0
        last = min(count - 1, (lo + extent - 1 - start) // step) if step > 0 else count - 1
        if first > last or (step < 1 and len(inside) < 2):
            return None
        widths.append((first, count - 1 - last))
        parts.append((start + step * first - lo, step, last - first + 1))
    return join_text("pad", tuple(widths), before[1]), slice_text(parts, shape)


def _slice_split(after: tuple[Any, ...], before: tuple[Any, ...], shape: Shape) -> Pair | None:
    axis, factors = before
    n = len(factors)
    head, mine, tail = after[0][:axis], after[0][axis : axis + n], after[0][axis + n :]
    inner = math.prod(factors[1:])
    first = whole(mine[0], shape[axis] // inner)
    full = all(whole(p, f) == (0, 1, f) for p, f in zip(mine[1:], factors[1:], strict=True))
    if not full or (first[1] != 1 and first[2] > 1):
        return None
    part = (first[0] * inner, 1, first[2] * inner)
    return join_text("split", axis, factors), slice_text((*head, part, *tail), shape)


def picked(outer: str, inner: str, shape: Shape) -> tuple[str, int] | None:
    """(slice, axis): a slice that takes one index of the last factor of a split in two factors.

    The value of the slice needs a unit dim after the axis.
    """
    parts, (name, params) = parts_of(outer), split_text(inner)
    if parts is None or name != "split" or len(params[1]) != 2:
        return None
    axis, (_, factor) = params
    start, step, count = whole(parts[axis], shape[axis] // factor)
    at, _, taken = whole(parts[axis + 1], factor)
    if taken != 1 or factor == 1:
        return None
    part = (start * factor + at, step * factor, count)
    return slice_text((*parts[:axis], part, *parts[axis + 2 :]), shape), axis


def _slice_merge(after: tuple[Any, ...], before: tuple[Any, ...], shape: Shape) -> Pair | None:
    axis, count = before
    merged = shape[axis : axis + count]
    start, step, n = whole(after[0][axis], math.prod(merged))
    inner = math.prod(merged[1:])
    if abs(step) == 1 and min(start, start + step * (n - 1)) % inner == 0 and n % inner == 0:
        turned = [None if step == 1 else (e - 1, -1, e) for e in merged[1:]]
        mine: tuple[Part, ...] = ((start // inner, step, n // inner), *turned)
    elif count == 2 and step % inner == 0 and inner > 1:
        mine = ((start // inner, step // inner, n), (start % inner, 1, 1))
    elif count == 2 and step > 1 and inner % step == 0 and n * step == math.prod(merged):
        mine = (None, (start, step, inner // step))
    else:
        return None
    parts = (*after[0][:axis], *mine, *after[0][axis + 1 :])
    return join_text("merge", axis, count), slice_text(parts, shape)


def _split_pad(after: tuple[Any, ...], before: tuple[Any, ...], shape: Shape) -> Pair | None:
    axis, factors = after
    inner, (lo, hi) = math.prod(factors[1:]), before[0][axis]
    if lo % inner or hi % inner:
        return None
    mine = ((lo // inner, hi // inner), *([(0, 0)] * (len(factors) - 1)))
    widths = (*before[0][:axis], *mine, *before[0][axis + 1 :])
    return join_text("pad", widths, before[1]), join_text("split", axis, factors)


def _merge_pad(after: tuple[Any, ...], before: tuple[Any, ...], shape: Shape) -> Pair | None:
    axis, count = after
    mine = before[0][axis : axis + count]
    if any(width != (0, 0) for width in mine[1:]):
        return None
    inner = math.prod(shape[axis + 1 : axis + count])
    first = (mine[0][0] * inner, mine[0][1] * inner)
    widths = (*before[0][:axis], first, *before[0][axis + count :])
    return join_text("pad", widths, before[1]), join_text("merge", axis, count)


def _split_split(after: tuple[Any, ...], before: tuple[Any, ...], shape: Shape) -> Pair | None:
    added = len(before[1]) - 1
    if after[0] <= before[0] + added:
        return None
    return join_text("split", *before), join_text("split", after[0] - added, after[1])


def _merge_merge(after: tuple[Any, ...], before: tuple[Any, ...], shape: Shape) -> Pair | None:
    if after[0] <= before[0]:
        return None
    return join_text("merge", *before), join_text("merge", after[0] + before[1] - 1, after[1])


def _split_merge(after: tuple[Any, ...], before: tuple[Any, ...], shape: Shape) -> Pair | None:
    (axis, factors), (at, count) = after, before
    if axis < at:
        added = len(factors) - 1
        return join_text("merge", at + added, count), join_text("split", axis, factors)
    if axis > at:
        return join_text("merge", at, count), join_text("split", axis + count - 1, factors)
    return _regrouped(axis, factors, shape[at : at + count])


def _regrouped(axis: int, factors: tuple[int, ...], merged: Shape) -> Pair | None:
    """A split of a merge of these extents in which one split or merge suffices on each side."""
    total = math.prod(merged)
    wanted = (total // math.prod(factors[1:]), *factors[1:])
    if 1 in (*wanted, *merged):
        return None
    try:
        finest = list(common_refinement([wanted, merged]))
    except LayoutError:
        return None
    split, joined = _one_group(merged, finest), _one_group(wanted, finest)
    if split is None or joined is None:
        return None
    (at, parts), (start, group) = split, joined
    return join_text("merge", axis + start, len(group)), join_text(
        "split", axis + at, (-1, *parts[1:])
    )


def _one_group(coarse: Sequence[int], finest: list[int]) -> tuple[int, list[int]] | None:
    """(place, parts) of the only extent that is a product of several in `finest`."""
    found: tuple[int, list[int]] | None = None
    rest = list(finest)
    for place, extent in enumerate(coarse):
        parts = [rest.pop(0)]
        while math.prod(parts) < extent:
            parts.append(rest.pop(0))
        if len(parts) > 1 and found is not None:
            return None
        if len(parts) > 1:
            found = (place, parts)
    return found if not rest else None


_EXCHANGES = {
    ("slice", "pad"): _slice_pad,
    ("slice", "split"): _slice_split,
    ("slice", "merge"): _slice_merge,
    ("split", "pad"): _split_pad,
    ("merge", "pad"): _merge_pad,
    ("split", "split"): _split_split,
    ("merge", "merge"): _merge_merge,
    ("split", "merge"): _split_merge,
}


# -- selectors of joined values --------------------------------------------------------------------


def parted(part: tuple[int, int, int], extent: int) -> tuple[Part, Part]:
    """What a part of two joined axes takes of each; None for nothing."""
    start, step, count = part
    inside = [j for j in range(count) if start + step * j < extent]
    beyond = count - len(inside)
    first = (start + step * inside[0], step, len(inside)) if inside else None
    at = 0 if inside and inside[0] else len(inside)
    second = (start + step * at - extent, step, beyond) if beyond else None
    return first, second


def slice_of_join(spec: str, axis: int, first: Shape, second: Shape) -> tuple[str, str] | None:
    """Slices of the two joined values, "" for one from which nothing is taken."""
    parts = parts_of(spec)
    if parts is None:
        return None
    taken = parted(whole(parts[axis], first[axis] + second[axis]), first[axis])

    def of(part: Part, shape: Shape) -> str:
        return "" if part is None else slice_text((*parts[:axis], part, *parts[axis + 1 :]), shape)

    return of(taken[0], first), of(taken[1], second)


def over_join(spec: str, axis: int, first: Shape, second: Shape) -> tuple[int, str, str] | None:
    """(axis, of the first, of the second): a pad, split or merge done before joining."""
    name, params = split_text(spec)
    if name == "pad":
        (lo, hi), widths = params[0][axis], params[0]
        a = (*widths[:axis], (lo, 0), *widths[axis + 1 :])
        b = (*widths[:axis], (0, hi), *widths[axis + 1 :])
        return axis, join_text("pad", a, params[1]), join_text("pad", b, params[1])
    if name == "split":
        inner = math.prod(params[1][1:])
        if params[0] == axis and (first[axis] % inner or second[axis] % inner):
            return None
        return axis + (len(params[1]) - 1 if params[0] < axis else 0), spec, spec
    if name == "merge":
        if params[0] < axis < params[0] + params[1]:
            return None
        return axis - (params[1] - 1 if params[0] < axis else 0), spec, spec
    return None


def _beside(first: str, second: str, axis: int, shape: Shape) -> tuple[Any, ...] | None:
    """The parts of a slice, and those along the axis of it and of another that differs there."""
    a, b = parts_of(first), parts_of(second)
    if a is None or b is None or a[:axis] + a[axis + 1 :] != b[:axis] + b[axis + 1 :]:
        return None
    return a, whole(a[axis], shape[axis]), whole(b[axis], shape[axis])


def adjacent(first: str, second: str, axis: int, shape: Shape) -> str | None:
    """The slice that takes what two slices take, one after the other along the axis."""
    found = _beside(first, second, axis, shape)
    if found is None:
        return None
    a, (start, step, n), (at, other, m) = found
    step = (other if m > 1 else at - start) if n == 1 else step
    if at != start + step * n or (m > 1 and other != step):
        return None
    return slice_text((*a[:axis], (start, step, n + m), *a[axis + 1 :]), shape)


def alternating(first: str, second: str, axis: int, shape: Shape) -> str | None:
    """The slice that takes what two slices take, in turn along the axis."""
    found = _beside(first, second, axis, shape)
    if found is None:
        return None
    a, (start, step, n), (at, other, _) = found
    gap = at - start
    if n > 1 and (step != other or step != 2 * gap):
        return None
    return slice_text((*a[:axis], (start, gap, 2 * n), *a[axis + 1 :]), shape)


@primitive((STR, STR), (STR,))
def flip_as_slice(spec: str, x: str) -> str | None:
    """The slice that a flip is."""
    name, params = split_text(spec)
    if name != "flip":
        return None
    shape = value_type(x).shape
    parts = ((e - 1, -1, e) if a in params[0] and e > 1 else None for a, e in enumerate(shape))
    return slice_text(parts, shape)


@primitive((STR, STR), (STR, STR))
def repeat_as_merge(spec: str, x: str) -> tuple[str, str] | None:
    """(merge, view): the view repeats in a new dim before the axis, the merge joins the two."""
    name, params = split_text(spec)
    if name != "repeat":
        return None
    axis, times = params
    rank = value_type(x).rank
    dims = [d if d < axis else d + 1 for d in range(rank)]
    view = make([map(plain, dims)], range(rank + 1), fixed={axis: times})
    return join_text("merge", axis, 2), view.text


@primitive((STR, STR), (STR, STR, STR))
def interleave_as_merge(spec: str, x: str) -> tuple[str, str, str] | None:
    """(merge, concat, view): the view adds a unit dim after the axis."""
    name, params = split_text(spec)
    if name != "interleave":
        return None
    (axis,) = params
    rank = value_type(x).rank
    dims = [d if d <= axis else d + 1 for d in range(rank)]
    view = make([map(plain, dims)], range(rank + 1), fixed={axis + 1: 1})
    return join_text("merge", axis, 2), join_text("concat", axis + 1), view.text


@primitive((STR, STR), (STR, STR, STR, STR))
def interleave_as_transpose(spec: str, types: str) -> tuple[str, str, str, str] | None:
    """(merge, view, split, concat): the view puts the dim of the operands after their axis.

    Args:
        spec: the selector.
        types: of its operands, each followed by a semicolon.
    """
    name, params = split_text(spec)
    given = tuple(map(value_type, types.split(";")[:-1]))
    if name != "interleave" or len(given) < 2:
        return None
    regroup = SELECTORS[name].regroup
    assert regroup is not None
    concat, split, view, merge = regroup(params, given)
    return merge, view, split, concat
