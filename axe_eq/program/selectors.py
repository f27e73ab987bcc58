"""The standard selectors: operators that move elements and never compute (Tapestry, selectors).

Texts: ``slice (P0,P1,..)`` with None or (start,step,count) per axis; ``flip (axes..)``; ``concat
axis``; ``pad ((lo,hi),..) value``; ``split axis (-1,f1,..)`` and ``merge axis count``, row-major,
which make reshape; ``parts axis n`` (of n elements each, the last one filled up with zeros);
``repeat axis n`` (whole copies); ``interleave axis`` (round robin); ``iota n dtype``; ``full
(shape) value dtype``; ``runs (shape) dtype (n0,n1,..) v0 v1 ..`` of n0 times v0, then n1 times v1,
row-major, with which laws say what a captured array holds. Permutation, broadcast and unit dims are
block operators with cell ``id``, not selectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from axe_eq.errors import ProgramError
from axe_eq.program import selector_samples as samples
from axe_eq.program.ops import SELECTORS, Pull, Selector, join_text
from axe_eq.program.signature import make, plain
from axe_eq.program.types import DTYPES, Array, ValueType, dtype, held

Params = tuple[Any, ...]
Types = Sequence[ValueType]
Pulls = list[list[Pull | None]]


def _error(name: str, params: Params, types: Types, wrong: str, expected: str) -> ProgramError:
    operands = ", ".join(map(str, types))
    return ProgramError(f"selector '{join_text(name, *params)}' of {operands}", wrong, expected)


def _is_int(*values: Any) -> bool:
    return all(isinstance(v, int) and not isinstance(v, bool) for v in values)


def _are_ints(part: Any, count: int) -> bool:
    return isinstance(part, tuple) and len(part) == count and _is_int(*part)


def _check(ok: bool, name: str, params: Params, types: Types, wrong: str, expected: str) -> None:
    if not ok:
        raise _error(name, params, types, wrong, expected)


def _check_params(name: str, params: Params, types: Types, ok: bool, form: str) -> None:
    _check(ok, name, params, types, "has unusable parameters", f"'{form}'")


def _check_axis(name: str, params: Params, types: Types, axis: int) -> None:
    rank = types[0].rank
    _check(0 <= axis < rank, name, params, types, f"axis {axis} is outside", f"0..{rank - 1}")


def _through(types: Types) -> list[Pull | None]:
    """Every dim of the first operand read as it is."""
    return [Pull(axis) for axis in range(types[0].rank)]


# -- slice, flip, pad -----------------------------------------------------------------------------


def _slice_shape(params: Params, types: Types) -> ValueType:
    (of,) = types
    form = "slice (P0,P1,..)"
    ok = len(params) == 1 and isinstance(params[0], tuple) and len(params[0]) == of.rank
    ok = ok and all(p is None or _are_ints(p, 3) for p in params[0])
    _check_params("slice", params, types, ok, form)
    for axis, (part, extent) in enumerate(zip(params[0], of.shape, strict=True)):
        if part is not None:
            _check_part(params, types, axis, part, extent)
    shape = [e if p is None else p[2] for p, e in zip(params[0], of.shape, strict=True)]
    return ValueType(of.dtype, tuple(shape))


def _check_part(params: Params, types: Types, axis: int, part: Any, extent: int) -> None:
    start, step, count = part
    _check(count >= 1, "slice", params, types, f"axis {axis} selects nothing", "count >= 1")
    last = start + step * (count - 1)
    inside = 0 <= start < extent and 0 <= last < extent
    wrong = f"axis {axis} reads {start}..{last} of extent {extent}"
    _check(inside, "slice", params, types, wrong, "a range inside the operand")


def _slice_run(params: Params, arrays: Sequence[Array]) -> Array:
    array = arrays[0]
    for axis, part in enumerate(params[0]):
        if part is not None:
            start, step, count = part
            index = start + step * np.arange(count)
            array = np.take(array, index, axis=axis)
    return array


def _slice_pull(params: Params, types: Types) -> Pulls:
    return [
        [
            Pull(axis) if part is None else Pull(axis, part[1], part[0])
            for axis, part in enumerate(params[0])
        ]
    ]


def _flip_shape(params: Params, types: Types) -> ValueType:
    ok = len(params) == 1 and isinstance(params[0], tuple) and _is_int(*params[0])
    _check_params(
        "flip", params, types, ok and len(set(params[0])) == len(params[0]), "flip (a,..)"
    )
    for axis in params[0]:
        _check_axis("flip", params, types, axis)
    return types[0]


def _flip_pull(params: Params, types: Types) -> Pulls:
    return [
        [
            Pull(axis, -1, extent - 1) if axis in params[0] else Pull(axis)
            for axis, extent in enumerate(types[0].shape)
        ]
    ]


def _pad_shape(params: Params, types: Types) -> ValueType:
    (of,) = types
    ok = len(params) == 2 and isinstance(params[0], tuple) and len(params[0]) == of.rank
    ok = ok and all(_are_ints(p, 2) and min(p) >= 0 for p in params[0])
    ok = ok and isinstance(params[1], int | float)
    _check_params("pad", params, types, ok, "pad ((lo,hi),..) value")
    check_scalar(params[1], of.dtype)
    widths = zip(params[0], of.shape, strict=True)
    return ValueType(of.dtype, tuple(lo + extent + hi for (lo, hi), extent in widths))


def _pad_run(params: Params, arrays: Sequence[Array]) -> Array:
    (array,) = arrays
    shape = [lo + e + hi for (lo, hi), e in zip(params[0], array.shape, strict=True)]
    result = np.full(shape, params[1], array.dtype)
    inside = [slice(lo, lo + e) for (lo, _), e in zip(params[0], array.shape, strict=True)]
    result[tuple(inside)] = array
    return result


def _pad_pull(params: Params, types: Types) -> Pulls:
    return [[Pull(axis, 1, -lo) for axis, (lo, _) in enumerate(params[0])]]


# -- concat, interleave, repeat -------------------------------------------------------------------


def _check_joined(name: str, params: Params, types: Types, along: bool) -> None:
    """Operands of one dtype and of equal shapes; `along` lets them differ along the axis."""
    _check_params(name, params, types, len(params) == 1 and _is_int(*params), f"{name} axis")
    _check(bool(types), name, params, types, "got no operand", "one or more operands")
    (axis,) = params
    _check_axis(name, params, types, axis)
    first = types[0]
    for n, other in enumerate(types):
        same = other.rank == first.rank and all(
            a == b or (along and d == axis)
            for d, (a, b) in enumerate(zip(first.shape, other.shape, strict=True))
        )
        wanted = f"{first}" + (f", any extent on axis {axis}" if along else "")
        fits = same and other.dtype == first.dtype
        _check(fits, name, params, types, f"operand {n} is {other}", wanted)


def _with_extent(of: ValueType, axis: int, extent: int) -> ValueType:
    return ValueType(of.dtype, (*of.shape[:axis], extent, *of.shape[axis + 1 :]))


def _concat_shape(params: Params, types: Types) -> ValueType:
    _check_joined("concat", params, types, along=True)
    return _with_extent(types[0], params[0], sum(t.shape[params[0]] for t in types))


def _concat_pull(params: Params, types: Types) -> Pulls:
    pulls, base = [], 0
    for of in types:
        row = _through(types)
        row[params[0]] = Pull(params[0], 1, -base)
        base += of.shape[params[0]]
        pulls.append(row)
    return pulls


def _interleave_shape(params: Params, types: Types) -> ValueType:
    _check_joined("interleave", params, types, along=False)
    return _with_extent(types[0], params[0], types[0].shape[params[0]] * len(types))


def _interleave_run(params: Params, arrays: Sequence[Array]) -> Array:
    (axis,) = params
    shape = list(arrays[0].shape)
    shape[axis] *= len(arrays)
    return np.stack(arrays, axis=axis + 1).reshape(shape)


def _interleave_regroup(params: Params, types: Types) -> tuple[str, ...]:
    """The operands get a dim of their own, which goes after their axis."""
    (axis,) = params
    shape = types[0].shape
    rank = len(shape) + 1
    dims = [*range(axis), axis + 1, axis, *range(axis + 2, rank)]
    split = join_text("split", axis, (-1, shape[axis]))
    view = make([map(plain, dims)], range(rank)).text
    return join_text("concat", axis), split, view, join_text("merge", axis, 2)


def _whole_axis(params: Params, types: Types) -> Pulls:
    """Every dim as it is, but the axis whole."""
    rows = []
    for _ in types:
        row = _through(types)
        row[params[0]] = None
        rows.append(row)
    return rows


def _repeat_shape(params: Params, types: Types) -> ValueType:
    ok = len(params) == 2 and _is_int(*params) and params[1] >= 1
    _check_params("repeat", params, types, ok, "repeat axis n")
    _check_axis("repeat", params, types, params[0])
    return _with_extent(types[0], params[0], types[0].shape[params[0]] * params[1])


def _repeat_run(params: Params, arrays: Sequence[Array]) -> Array:
    return np.concatenate([arrays[0]] * params[1], axis=params[0])


# -- split, merge ---------------------------------------------------------------------------------


def _split_shape(params: Params, types: Types) -> ValueType:
    (of,) = types
    ok = len(params) == 2 and _is_int(params[0]) and isinstance(params[1], tuple)
    ok = ok and _is_int(*params[1]) and len(params[1]) >= 1 and params[1][0] == -1
    ok = ok and all(f >= 1 for f in params[1][1:])
    _check_params("split", params, types, ok, "split axis (-1,f1,..)")
    axis, factors = params
    _check_axis("split", params, types, axis)
    inner = math.prod(factors[1:])
    wrong = f"axis {axis} of extent {of.shape[axis]} is not divisible by {inner}"
    _check(of.shape[axis] % inner == 0, "split", params, types, wrong, "a multiple")
    shape = (of.shape[axis] // inner, *factors[1:])
    return ValueType(of.dtype, of.shape[:axis] + shape + of.shape[axis + 1 :])


def _split_run(params: Params, arrays: Sequence[Array]) -> Array:
    (array,), (axis, factors) = arrays, params
    return array.reshape(array.shape[:axis] + factors + array.shape[axis + 1 :])


def _split_pull(params: Params, types: Types) -> Pulls:
    axis, more = params[0], len(params[1]) - 1
    return [
        [
            None if d == axis and more else Pull(d if d <= axis else d + more)
            for d in range(types[0].rank)
        ]
    ]


def _split_inverse(params: Params, of: ValueType) -> str:
    return join_text("merge", params[0], len(params[1]))


def _parts_shape(params: Params, types: Types) -> ValueType:
    (of,) = types
    ok = len(params) == 2 and _is_int(*params) and params[1] >= 1
    _check_params("parts", params, types, ok, "parts axis n")
    axis, length = params
    _check_axis("parts", params, types, axis)
    parts = -(-of.shape[axis] // length)
    return ValueType(of.dtype, (*of.shape[:axis], parts, length, *of.shape[axis + 1 :]))


def _parts_run(params: Params, arrays: Sequence[Array]) -> Array:
    (array,), (axis, length) = arrays, params
    widths = [(0, 0)] * array.ndim
    widths[axis] = 0, -array.shape[axis] % length
    whole = np.pad(array, widths)
    return whole.reshape(*array.shape[:axis], -1, length, *array.shape[axis + 1 :])


def _parts_pull(params: Params, types: Types) -> Pulls:
    return _split_pull((params[0], (-1, params[1])), types)


def _merge_inverse(params: Params, of: ValueType) -> str:
    axis, count = params
    return join_text("split", axis, (-1, *of.shape[axis + 1 : axis + count]))


def _merge_shape(params: Params, types: Types) -> ValueType:
    (of,) = types
    ok = len(params) == 2 and _is_int(*params) and params[1] >= 1
    _check_params("merge", params, types, ok, "merge axis count")
    axis, count = params
    fits = axis >= 0 and axis + count <= of.rank
    wrong = f"axes {axis}..{axis + count - 1} are outside"
    _check(fits, "merge", params, types, wrong, f"axes in 0..{of.rank - 1}")
    extent = math.prod(of.shape[axis : axis + count])
    return ValueType(of.dtype, (*of.shape[:axis], extent, *of.shape[axis + count :]))


def _merge_run(params: Params, arrays: Sequence[Array]) -> Array:
    (array,), (axis, count) = arrays, params
    extent = math.prod(array.shape[axis : axis + count])
    return array.reshape(*array.shape[:axis], extent, *array.shape[axis + count :])


def _merge_pull(params: Params, types: Types) -> Pulls:
    axis, count = params
    row: list[Pull | None] = []
    for d in range(types[0].rank):
        merged = axis <= d < axis + count and count > 1
        row.append(None if merged else Pull(d if d < axis + count else d - count + 1))
    return [row]


# -- iota, full -----------------------------------------------------------------------------------


def check_scalar(value: Any, name: str) -> None:
    """Refuse a constant its dtype cannot hold (floats hold any number, rounded).

    Raises:
        ProgramError: a fraction or an infinity for an integer, or an integer out of range.
    """
    kind = DTYPES[name].kind
    fits = True
    if kind == "b":
        fits = value in (0, 1)
    elif kind == "i":
        limits = np.iinfo(DTYPES[name].numpy)
        fits = limits.min <= value <= limits.max and value == int(value)
    if not fits:
        raise ProgramError(f"constant {value!r}", f"does not fit {name}", f"a value of {name}")


def _iota_shape(params: Params, types: Types) -> ValueType:
    ok = len(params) == 2 and _is_int(params[0]) and params[0] >= 1 and isinstance(params[1], str)
    _check_params("iota", params, types, ok, "iota n dtype")
    return ValueType(dtype(params[1]).name, (params[0],))


def _iota_run(params: Params, arrays: Sequence[Array]) -> Array:
    return np.arange(params[0]).astype(dtype(params[1]).numpy)


def _full_shape(params: Params, types: Types) -> ValueType:
    ok = len(params) == 3 and isinstance(params[0], tuple) and isinstance(params[2], str)
    ok = ok and _is_int(*params[0]) and all(e >= 1 for e in params[0])
    ok = ok and isinstance(params[1], int | float)
    _check_params("full", params, types, ok, "full (shape) value dtype")
    name = dtype(params[2]).name
    check_scalar(params[1], name)
    return ValueType(name, params[0])


def _full_run(params: Params, arrays: Sequence[Array]) -> Array:
    with np.errstate(over="ignore"):
        return np.full(params[0], params[1]).astype(dtype(params[2]).numpy)


# -- runs -----------------------------------------------------------------------------------------

_MOST_RUNS = 1 << 13  # of equal elements: a triangle of 1024 rows has 2047
_MOST_ELEMENTS = 1 << 20


def array_text(array: Array) -> str | None:
    """The text of the constant that is this array, as runs of equal elements in row-major order.

    >>> array_text(np.tri(2, dtype=bool))
    'runs (2,2) bool (1,1,2) True False True'

    Returns:
        None where it has too many runs, or elements, or holds NaN.
    """
    if array.size > _MOST_ELEMENTS:
        return None
    name, flat = dtype(array.dtype).name, np.ascontiguousarray(array).reshape(-1)
    words = flat.view(f"u{flat.itemsize}")
    for part in (words[: 2 * _MOST_RUNS], words):  # that they are many, beginnings say as a rule
        starts = np.flatnonzero(part[1:] != part[:-1]) + 1
        if starts.size >= _MOST_RUNS:
            return None
    starts = np.concatenate([[0], starts])
    values = flat[starts] if DTYPES[name].kind != "f" else flat[starts].astype(np.float64)
    if bool((values != values).any()):
        return None
    counts = np.diff(starts, append=flat.size).tolist()
    return join_text("runs", array.shape, name, tuple(counts), *values.tolist())


def _runs_shape(params: Params, types: Types) -> ValueType:
    ok = len(params) > 3 and isinstance(params[1], str)
    ok = ok and all(isinstance(p, tuple) and _is_int(*p) for p in (params[0], params[2]))
    ok = ok and all(e >= 1 for e in (*params[0], *params[2])) and len(params) == 3 + len(params[2])
    ok = ok and sum(params[2]) == math.prod(params[0])
    ok = ok and all(isinstance(value, int | float) for value in params[3:])
    _check_params("runs", params, types, ok, "runs (shape) dtype (lengths) value ...")
    name = dtype(params[1]).name
    for value in params[3:]:
        check_scalar(value, name)
    return ValueType(name, params[0])


def _runs_run(params: Params, arrays: Sequence[Array]) -> Array:
    of = DTYPES[dtype(params[1]).name]
    wide = np.asarray(params[3:], np.float64 if of.kind == "f" else of.numpy)
    with np.errstate(over="ignore"):
        return np.repeat(wide.astype(of.numpy), params[2]).reshape(params[0])


# -- parameters for tests -------------------------------------------------------------------------

Rng = np.random.Generator


def _one(rng: Rng, options: Sequence[int]) -> int:
    return options[int(rng.integers(len(options)))]


def _an_axis(rng: Rng, types: Types) -> int:
    return _one(rng, range(types[0].rank))


def _a_value(rng: Rng, name: str) -> float:
    """A small constant of a dtype."""
    value = _one(rng, [0, 1] if DTYPES[name].kind == "b" else [-1, 0, 1, 2])
    typed: dict[str, Callable[[int], float]] = {"f": float, "b": bool, "i": int}
    return typed[DTYPES[name].kind](value)


def _sample_part(rng: Rng, extent: int) -> tuple[int, int, int] | None:
    if rng.random() < 0.4:
        return None
    start, step = _one(rng, range(extent)), _one(rng, [-2, -1, 1, 1, 2])
    room = (extent - 1 - start if step > 0 else start) // abs(step) + 1
    return start, step, _one(rng, range(1, room + 1))


def _sample_slice(rng: Rng, types: Types) -> Params:
    return (tuple(_sample_part(rng, extent) for extent in types[0].shape),)


def _sample_flip(rng: Rng, types: Types) -> Params:
    axis = _an_axis(rng, types)
    return (tuple(d for d in range(types[0].rank) if d == axis or rng.random() < 0.3),)


def _sample_pad(rng: Rng, types: Types) -> Params:
    widths = tuple((_one(rng, [0, 1]), _one(rng, [0, 0, 2])) for _ in types[0].shape)
    return widths, _a_value(rng, types[0].dtype)


def _sample_split(rng: Rng, types: Types) -> Params:
    axis = _an_axis(rng, types)
    factors = [f for f in (1, 2, 3, 4) if types[0].shape[axis] % f == 0]
    return axis, (-1, _one(rng, factors))


def _sample_parts(rng: Rng, types: Types) -> Params:
    axis = _an_axis(rng, types)
    return axis, _one(rng, range(1, types[0].shape[axis] + 2))


def _sample_merge(rng: Rng, types: Types) -> Params:
    axis = _an_axis(rng, types)
    return axis, _one(rng, range(1, types[0].rank - axis + 1))


def _sample_repeat(rng: Rng, types: Types) -> Params:
    return _an_axis(rng, types), _one(rng, [1, 2, 3])


def _sample_join(rng: Rng, types: Types) -> Params:
    return (_an_axis(rng, types),)


def _sample_iota(rng: Rng, types: Types) -> Params:
    name = list(DTYPES)[int(rng.integers(len(DTYPES)))]
    return _one(rng, [1, 2] if DTYPES[name].kind == "b" else [1, 2, 3, 4, 6]), name


def _sample_full(rng: Rng, types: Types) -> Params:
    name = list(DTYPES)[int(rng.integers(len(DTYPES)))]
    rank = _one(rng, [0, 0, 1, 2, 3])
    return tuple(_one(rng, [1, 2, 3, 4]) for _ in range(rank)), _a_value(rng, name), name


# -- declarations ---------------------------------------------------------------------------------


Places = Mapping[int, int]


def _placed_axis(params: Params, places: Places, rank: int) -> Params:
    """Of selectors whose first parameter is an axis, and no other one is."""
    return (places[params[0]], *params[1:])


def _placed_each(idle: Any) -> Callable[[Params, Places, int], Params]:
    """Of selectors whose first parameter has an entry per dim, this one where nothing is done."""

    def placed(params: Params, places: Places, rank: int) -> Params:
        entries = [idle] * rank
        for old, new in places.items():
            entries[new] = params[0][old]
        return (tuple(entries), *params[1:])

    return placed


def _declare() -> None:
    def add(
        name: str, arity: int | None, shape: Any, run: Any, pull: Any = None, **more: Any
    ) -> None:
        SELECTORS.add(Selector(name, arity, shape, run, pull, **more))

    concat: Callable[..., Array] = lambda p, a: np.concatenate(a, axis=p[0])  # noqa: E731
    flip: Callable[..., Array] = lambda p, a: np.flip(a[0], p[0])  # noqa: E731
    add("slice", 1, _slice_shape, _slice_run, _slice_pull, sample=_sample_slice,
        placed=_placed_each(None),
        propose=samples.propose_slice, operands=samples.slice_operands)  # fmt: skip
    add("flip", 1, _flip_shape, flip, _flip_pull, sample=_sample_flip,
        placed=lambda p, places, rank: (tuple(places[axis] for axis in p[0]),),
        propose=samples.propose_flip, operands=samples.flip_operands)  # fmt: skip
    add("concat", None, _concat_shape, concat, _concat_pull, sample=_sample_join,
        placed=_placed_axis, regroup=lambda p, t: (join_text("concat", *p),),
        propose=samples.propose_concat, operands=samples.concat_operands)  # fmt: skip
    add("pad", 1, _pad_shape, _pad_run, _pad_pull, fill=lambda p: p[1],
        held=lambda p, t: (p[0], held(p[1], t[0].dtype)), sample=_sample_pad,
        placed=_placed_each((0, 0)),
        propose=samples.propose_pad, operands=samples.pad_operands)  # fmt: skip
    add("split", 1, _split_shape, _split_run, _split_pull, inverse=_split_inverse, uniform=True,
        sample=_sample_split, propose=samples.propose_split,
        operands=samples.split_operands, placed=_placed_axis)  # fmt: skip
    add("parts", 1, _parts_shape, _parts_run, _parts_pull, cut=lambda p: p, uniform=True,
        sample=_sample_parts, placed=_placed_axis)  # fmt: skip
    add("merge", 1, _merge_shape, _merge_run, _merge_pull, inverse=_merge_inverse, uniform=True,
        sample=_sample_merge, propose=samples.propose_merge,
        operands=samples.merge_operands, placed=_placed_axis)  # fmt: skip
    add("repeat", 1, _repeat_shape, _repeat_run, _whole_axis, uniform=True, sample=_sample_repeat,
        propose=samples.propose_repeat, operands=samples.repeat_operands,
        placed=_placed_axis)  # fmt: skip
    add("interleave", None, _interleave_shape, _interleave_run, _whole_axis, uniform=True,
        regroup=_interleave_regroup, sample=_sample_join, propose=samples.propose_interleave,
        operands=samples.interleave_operands, placed=_placed_axis)  # fmt: skip
    add("iota", 0, _iota_shape, _iota_run, counts=True, sample=_sample_iota,
        propose=samples.propose_iota, operands=samples.no_operands)  # fmt: skip
    add("full", 0, _full_shape, _full_run, fill=lambda p: p[1],
        held=lambda p, t: (p[0], held(p[1], dtype(p[2]).name), p[2]), sample=_sample_full,
        propose=samples.propose_full, operands=samples.no_operands)  # fmt: skip
    add("runs", 0, _runs_shape, _runs_run)


_declare()
