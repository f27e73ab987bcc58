"""Samples of selectors: a text and operand shapes that give a wanted shape."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from axe_eq.errors import ProgramError
from axe_eq.program.node import sel_type
from axe_eq.program.ops import join_text, split_text
from axe_eq.program.types import DTYPES, ValueType
from axe_eq.prove.draw import Draw

Shape = tuple[int, ...]
Known = Sequence[ValueType | None]
Found = tuple[str, list[Shape]]

_ONE = ("slice", "pad", "split", "merge", "flip", "repeat")
_MANY = ("concat", "concat", "interleave")
_NONE = ("full", "full", "full", "iota")
_CONSTANTS: dict[str, tuple[Any, ...]] = {
    "f": (0.0, 1.0, -1.0, 2.0, 0.5, -0.0, 3.0, float("-inf"), float("inf"), 0.25),
    "i": (0, 1, -1, 2, 3, -2),
    "b": (0, 1),
}


def sample_selector(draw: Draw, at: str, known: Known, wanted: ValueType) -> Found | None:
    """A selector's text and the shapes of its operands.

    Args:
        draw: decisions.
        at: prefix of their names.
        known: per operand its type, where it is given.
        wanted: type of the value.

    Returns:
        None where these decisions do not fit.
    """
    given = [t for t in known if t is not None]
    if given and len(known) == 1:
        return _of_operand(draw, at, given[0], wanted)
    names = _NONE if not known else _ONE if len(known) == 1 else _MANY
    name = draw.pick(f"{at}.selector", names)
    return _MAKERS[name](draw, at, wanted, len(known))


def shapes_for(
    draw: Draw,
    at: str,
    spec: str,
    before: Sequence[ValueType] | None,
    known: Known,
    wanted: ValueType,
) -> Found | None:
    """Operand shapes for a text that is given: those given or of an earlier use, or fitting ones.

    Arguments as for `sample_selector`; `before` are the operand types of an earlier use.
    """
    name, params = split_text(spec)
    if name in ("concat", "interleave") and not any(known):
        found = _MAKERS[name](draw, at, wanted, len(known))
        return found if found is not None and found[0] == spec else None
    if before is None:
        shape = _operand_of(name, params, wanted.shape) if len(known) == 1 else None
        return (spec, [shape]) if shape is not None else None if known else (spec, [])
    if len(before) != len(known):
        return None
    return spec, [b.shape if k is None else k.shape for b, k in zip(before, known, strict=True)]


def _operand_of(name: str, params: Sequence[Any], shape: Shape) -> Shape | None:
    """The least operand shape from which a selector makes this shape."""
    if name == "slice" and len(params[0]) == len(shape):
        return tuple(
            e if p is None else max(p[0], p[0] + p[1] * (p[2] - 1)) + 1
            for p, e in zip(params[0], shape, strict=True)
        )
    if name == "pad" and len(params[0]) == len(shape):
        return tuple(e - lo - hi for (lo, hi), e in zip(params[0], shape, strict=True))
    return shape if name == "flip" else None


def _of_operand(draw: Draw, at: str, of: ValueType, wanted: ValueType) -> Found | None:
    """A slice or other selector of a given operand that gives the wanted shape."""
    if len(of.shape) != len(wanted.shape):
        return None
    parts: list[tuple[int, int, int] | None] = []
    for axis, (e, count) in enumerate(zip(of.shape, wanted.shape, strict=True)):
        most = (e - 1) // (count - 1) if count > 1 else 1
        if count > e or most < 1:
            return None
        step = draw.integer(f"{at}.step{axis}", 1, most)
        start = draw.integer(f"{at}.start{axis}", 0, e - 1 - step * (count - 1))
        whole = (start, step, count) == (0, 1, e)
        parts.append(None if whole else (start, step, count))
    return join_text("slice", tuple(parts)), [of.shape]


# -- one maker per selector ------------------------------------------------------------------------


def _slice(draw: Draw, at: str, wanted: ValueType, n: int) -> Found | None:
    parts: list[tuple[int, int, int] | None] = []
    shape = []
    for axis, count in enumerate(wanted.shape):
        if draw.chance(f"{at}.all{axis}", 0.5):
            parts.append(None)
            shape.append(count)
            continue
        step = draw.weighted(f"{at}.step{axis}", {1: 5, 2: 3, 3: 1})
        low, high = (draw.integer(f"{at}.{side}{axis}", 0, 2) for side in ("low", "high"))
        extent = low + step * (count - 1) + 1 + high
        back = draw.chance(f"{at}.back{axis}", 0.2)
        parts.append((extent - 1 - low, -step, count) if back else (low, step, count))
        shape.append(extent)
    return join_text("slice", tuple(parts)), [tuple(shape)]


def _pad(draw: Draw, at: str, wanted: ValueType, n: int) -> Found | None:
    widths, shape = [], []
    for axis, extent in enumerate(wanted.shape):
        low = draw.integer(f"{at}.low{axis}", 0, min(extent - 1, 2))
        high = draw.integer(f"{at}.high{axis}", 0, min(extent - 1 - low, 2))
        if draw.chance(f"{at}.none{axis}", 0.4):
            low = high = 0
        widths.append((low, high))
        shape.append(extent - low - high)
    value = _constant(draw, f"{at}.value", wanted)
    return join_text("pad", tuple(widths), value), [tuple(shape)]


def _constant(draw: Draw, at: str, wanted: ValueType) -> Any:
    return draw.pick(at, _CONSTANTS[DTYPES[wanted.dtype].kind])


def _split(draw: Draw, at: str, wanted: ValueType, n: int) -> Found | None:
    shape = wanted.shape
    if len(shape) < 2:
        return None
    count = draw.weighted(f"{at}.count", {2: 5, 3: 1}) if len(shape) > 2 else 2
    axis = draw.integer(f"{at}.axis", 0, len(shape) - count)
    inner = shape[axis : axis + count]
    merged = 1
    for e in inner:
        merged *= e
    text = join_text("split", axis, (-1, *inner[1:]))
    return text, [(*shape[:axis], merged, *shape[axis + count :])]


def _merge(draw: Draw, at: str, wanted: ValueType, n: int) -> Found | None:
    shape = wanted.shape
    if not shape:
        return None
    axis = draw.integer(f"{at}.axis", 0, len(shape) - 1)
    factors = [f for f in range(1, shape[axis] + 1) if shape[axis] % f == 0]
    factor = draw.pick(f"{at}.factor", factors)
    text = join_text("merge", axis, 2)
    return text, [(*shape[:axis], shape[axis] // factor, factor, *shape[axis + 1 :])]


def _flip(draw: Draw, at: str, wanted: ValueType, n: int) -> Found | None:
    axes = tuple(a for a in range(len(wanted.shape)) if draw.chance(f"{at}.axis{a}", 0.5))
    return join_text("flip", axes), [wanted.shape]


def _repeat(draw: Draw, at: str, wanted: ValueType, n: int) -> Found | None:
    shape = wanted.shape
    if not shape:
        return None
    axis = draw.integer(f"{at}.axis", 0, len(shape) - 1)
    times = draw.pick(f"{at}.times", [f for f in (1, 2, 3) if shape[axis] % f == 0])
    operand = (*shape[:axis], shape[axis] // times, *shape[axis + 1 :])
    return join_text("repeat", axis, times), [operand]


def _concat(draw: Draw, at: str, wanted: ValueType, n: int) -> Found | None:
    axes = [a for a, e in enumerate(wanted.shape) if e >= n]
    if not axes:
        return None
    axis = draw.pick(f"{at}.axis", axes)
    left, shapes = wanted.shape[axis], []
    for k in range(n - 1):
        even = draw.chance(f"{at}.even{k}", 0.5) and left % (n - k) == 0
        cut = left // (n - k) if even else draw.integer(f"{at}.cut{k}", 1, left - (n - k - 1))
        shapes.append(cut)
        left -= cut
    around = wanted.shape[:axis], wanted.shape[axis + 1 :]
    return join_text("concat", axis), [(*around[0], e, *around[1]) for e in (*shapes, left)]


def _interleave(draw: Draw, at: str, wanted: ValueType, n: int) -> Found | None:
    axes = [a for a, e in enumerate(wanted.shape) if e % n == 0]
    if not axes:
        return None
    axis = draw.pick(f"{at}.axis", axes)
    part = (*wanted.shape[:axis], wanted.shape[axis] // n, *wanted.shape[axis + 1 :])
    return join_text("interleave", axis), [part] * n


def _full(draw: Draw, at: str, wanted: ValueType, n: int) -> Found | None:
    return join_text("full", wanted.shape, _constant(draw, f"{at}.value", wanted), wanted.dtype), []


def _iota(draw: Draw, at: str, wanted: ValueType, n: int) -> Found | None:
    if len(wanted.shape) != 1:
        return None
    text = join_text("iota", wanted.shape[0], wanted.dtype)
    try:
        sel_type(text, ())
    except ProgramError:
        return None
    return text, []


_MAKERS: dict[str, Callable[[Draw, str, ValueType, int], Found | None]] = {
    "slice": _slice, "pad": _pad, "split": _split, "merge": _merge, "flip": _flip,
    "repeat": _repeat, "concat": _concat, "interleave": _interleave, "full": _full, "iota": _iota,
}  # fmt: skip
