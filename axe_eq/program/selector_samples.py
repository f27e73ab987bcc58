"""How samples of the standard selectors are made, for the automatic test of laws.

Each `propose_*` draws parameters that may give a wanted type (`Selector.propose`), each
`*_operands` the operand shapes from which given parameters give it (`Selector.operands`). A sample
is used only where the selector's own `shape` says that it fits, so a proposal may be wrong.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from math import prod
from typing import Any

from axe_eq.program.decisions import Draw
from axe_eq.program.types import DTYPES, ValueType, held

Params = tuple[Any, ...]
Known = Sequence[ValueType | None]
Shape = tuple[int, ...]
Shapes = list[Shape]

# Among them some that no float holds, and one that float32 does not: folding those rounds; narrow
# types hold others for some of them, f16 2048 for 2049.
_CONSTANTS: dict[str, tuple[Any, ...]] = {
    "f": (0.0, 1.0, -1.0, 2.0, 0.5, -0.0, 3.0, -math.inf, math.inf, 0.25, 0.1, 0.3, 0.7, 2049.0,
          math.nan),
    "i": (0, 1, -1, 2, 3, -2, 16777217),
    "b": (0, 1),
}  # fmt: skip
_FACTORS = (1, 2, 3)


def _constant(draw: Draw, at: str, wanted: ValueType) -> Any:
    return held(draw.pick(at, _CONSTANTS[DTYPES[wanted.dtype].kind]), wanted.dtype)


def _axis(draw: Draw, at: str, rank: int) -> int | None:
    return draw.integer(f"{at}.axis", 0, rank - 1) if rank else None


def _replaced(shape: Shape, axis: int, *extents: int) -> Shape:
    return (*shape[:axis], *extents, *shape[axis + 1 :])


# -- slice, flip, pad -----------------------------------------------------------------------------


def propose_slice(draw: Draw, at: str, wanted: ValueType, known: Known) -> Params | None:
    """Any strides and directions; inside the operand where that is given."""
    if known[0] is None:
        return (tuple(_part(draw, at, axis, e) for axis, e in enumerate(wanted.shape)),)
    extents = known[0].shape
    fits = len(extents) == wanted.rank
    if not fits or any(n > e for n, e in zip(wanted.shape, extents, strict=True)):
        return None
    pairs = enumerate(zip(wanted.shape, extents, strict=True))
    return (tuple(_part_of(draw, at, axis, n, e) for axis, (n, e) in pairs),)


def _part(draw: Draw, at: str, axis: int, count: int) -> tuple[int, int, int] | None:
    if draw.chance(f"{at}.all{axis}", 0.5):
        return None
    step = draw.weighted(f"{at}.step{axis}", {1: 5, 2: 3, 3: 1, 0: 0.5})
    start = draw.integer(f"{at}.low{axis}", 0, 2)
    if draw.chance(f"{at}.back{axis}", 0.2):
        return start + step * (count - 1), -step, count
    return start, step, count


def _part_of(
    draw: Draw, at: str, axis: int, count: int, extent: int
) -> tuple[int, int, int] | None:
    most = (extent - 1) // (count - 1) if count > 1 else 1
    step = draw.integer(f"{at}.step{axis}", 1, most)
    start = draw.integer(f"{at}.start{axis}", 0, extent - 1 - step * (count - 1))
    return None if (start, step, count) == (0, 1, extent) else (start, step, count)


def slice_operands(
    draw: Draw, at: str, params: Params, wanted: ValueType, known: Known
) -> Shapes | None:
    """The least operand, and sometimes more that is not read."""
    if len(params[0]) != wanted.rank:
        return None
    shape = []
    for axis, (part, extent) in enumerate(zip(params[0], wanted.shape, strict=True)):
        if part is None:
            shape.append(extent)
        else:
            start, step, count = part
            rest = draw.integer(f"{at}.high{axis}", 0, 2)
            shape.append(max(start, start + step * (count - 1)) + 1 + rest)
    return [tuple(shape)]


def propose_flip(draw: Draw, at: str, wanted: ValueType, known: Known) -> Params | None:
    """Any axes."""
    return (tuple(a for a in range(wanted.rank) if draw.chance(f"{at}.axis{a}", 0.5)),)


def flip_operands(draw: Draw, at: str, params: Params, wanted: ValueType, known: Known) -> Shapes:
    """The shape stays."""
    return [wanted.shape]


def propose_pad(draw: Draw, at: str, wanted: ValueType, known: Known) -> Params | None:
    """Up to two elements on each side; as many as are missing where the operand is given."""
    widths = [_widths(draw, at, axis, extent) for axis, extent in enumerate(wanted.shape)]
    if known[0] is not None:
        if known[0].rank != wanted.rank:
            return None
        missing = [w - e for w, e in zip(wanted.shape, known[0].shape, strict=True)]
        lows = [draw.integer(f"{at}.low{a}", 0, max(m, 0)) for a, m in enumerate(missing)]
        widths = [(low, m - low) for low, m in zip(lows, missing, strict=True)]
    return tuple(widths), _constant(draw, f"{at}.value", wanted)


def _widths(draw: Draw, at: str, axis: int, extent: int) -> tuple[int, int]:
    low = draw.integer(f"{at}.low{axis}", 0, min(extent - 1, 2))
    high = draw.integer(f"{at}.high{axis}", 0, min(extent - 1 - low, 2))
    return (0, 0) if draw.chance(f"{at}.none{axis}", 0.4) else (low, high)


def pad_operands(
    draw: Draw, at: str, params: Params, wanted: ValueType, known: Known
) -> Shapes | None:
    """What the padding leaves."""
    if len(params[0]) != wanted.rank:
        return None
    pairs = zip(params[0], wanted.shape, strict=True)
    return [tuple(extent - low - high for (low, high), extent in pairs)]


# -- split, merge, repeat -------------------------------------------------------------------------


def propose_split(draw: Draw, at: str, wanted: ValueType, known: Known) -> Params | None:
    """Two axes or three of the wanted type from one."""
    rank = wanted.rank
    if rank < 2:
        return None
    count = draw.weighted(f"{at}.count", {2: 5, 3: 1}) if rank > 2 else 2
    axis = draw.integer(f"{at}.axis", 0, rank - count)
    return axis, (-1, *wanted.shape[axis + 1 : axis + count])


def split_operands(draw: Draw, at: str, params: Params, wanted: ValueType, known: Known) -> Shapes:
    """The axes of the factors as one."""
    axis, factors = params
    end = axis + len(factors)
    shape = wanted.shape
    return [(*shape[:axis], prod(shape[axis:end]), *shape[end:])]


def propose_merge(draw: Draw, at: str, wanted: ValueType, known: Known) -> Params | None:
    """One axis from two."""
    axis = _axis(draw, at, wanted.rank)
    return None if axis is None else (axis, 2)


def merge_operands(
    draw: Draw, at: str, params: Params, wanted: ValueType, known: Known
) -> Shapes | None:
    """Factors of the merged extent."""
    axis, count = params
    if axis >= wanted.rank:
        return None
    left, factors = wanted.shape[axis], []
    for n in range(count - 1):
        divisors = [f for f in range(1, left + 1) if left % f == 0]
        factors.append(draw.pick(f"{at}.factor{n}", divisors))
        left //= factors[-1]
    return [_replaced(wanted.shape, axis, left, *factors)]


def propose_repeat(draw: Draw, at: str, wanted: ValueType, known: Known) -> Params | None:
    """Up to three copies along an axis."""
    axis = _axis(draw, at, wanted.rank)
    if axis is None:
        return None
    return axis, draw.pick(f"{at}.times", [f for f in _FACTORS if wanted.shape[axis] % f == 0])


def repeat_operands(
    draw: Draw, at: str, params: Params, wanted: ValueType, known: Known
) -> Shapes | None:
    """One copy."""
    axis, times = params
    if axis >= wanted.rank:
        return None
    return [_replaced(wanted.shape, axis, wanted.shape[axis] // times)]


# -- concat, interleave ---------------------------------------------------------------------------


def propose_concat(draw: Draw, at: str, wanted: ValueType, known: Known) -> Params | None:
    """An axis with at least an element for every operand."""
    axes = [a for a, e in enumerate(wanted.shape) if e >= len(known)]
    return (draw.pick(f"{at}.axis", axes),) if axes else None


def concat_operands(
    draw: Draw, at: str, params: Params, wanted: ValueType, known: Known
) -> Shapes | None:
    """Parts of those given, even or any for the others."""
    (axis,) = params
    if axis >= wanted.rank:
        return None
    left, extents = wanted.shape[axis], []
    for n, of in enumerate(known[:-1]):
        extents.append(_cut(draw, f"{at}.{n}", left, len(known) - n, axis, of))
        left -= extents[-1]
    return [_replaced(wanted.shape, axis, e) for e in (*extents, left)]


def _cut(draw: Draw, at: str, left: int, n: int, axis: int, of: ValueType | None) -> int:
    """The extent of the first of n operands that share what is left."""
    if of is not None and axis < of.rank:
        return of.shape[axis]
    even = draw.chance(f"{at}.even", 0.5) and left % n == 0
    return left // n if even else draw.integer(f"{at}.cut", 1, max(left - n + 1, 1))


def propose_interleave(draw: Draw, at: str, wanted: ValueType, known: Known) -> Params | None:
    """An axis that has equally many elements for every operand."""
    axes = [a for a, e in enumerate(wanted.shape) if e % len(known) == 0]
    return (draw.pick(f"{at}.axis", axes),) if axes else None


def interleave_operands(
    draw: Draw, at: str, params: Params, wanted: ValueType, known: Known
) -> Shapes | None:
    """Equal parts."""
    (axis,), n = params, len(known)
    if axis >= wanted.rank:
        return None
    return [_replaced(wanted.shape, axis, wanted.shape[axis] // n)] * n


# -- iota, full -----------------------------------------------------------------------------------


def propose_iota(draw: Draw, at: str, wanted: ValueType, known: Known) -> Params | None:
    """The one of the wanted extent."""
    return (wanted.shape[0], wanted.dtype) if wanted.rank == 1 else None


def propose_full(draw: Draw, at: str, wanted: ValueType, known: Known) -> Params | None:
    """A constant of the wanted type."""
    return wanted.shape, _constant(draw, f"{at}.value", wanted), wanted.dtype


def no_operands(draw: Draw, at: str, params: Params, wanted: ValueType, known: Known) -> Shapes:
    """Of a selector that reads nothing."""
    return []
