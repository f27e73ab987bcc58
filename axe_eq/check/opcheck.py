"""Automatic tests of operators: what a cell, monoid or selector declares of itself holds.

General laws trust these declarations: a cell that says it commutes is commuted, a reduction is cut
in parts and merged. So a wrong one makes right laws prove what is false. All are tested on samples,
arithmetic over the reals (float64, to a relative 1e-9), selections bit for bit.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import reduce
from itertools import pairwise, permutations
from typing import Any

import numpy as np

from axe_eq.check.selsample import propose
from axe_eq.errors import ProgramError
from axe_eq.kernel.cells import evaluate
from axe_eq.kernel.monoids import declared_parts
from axe_eq.program import ops
from axe_eq.program.decisions import Draw
from axe_eq.program.interval import Interval
from axe_eq.program.node import sel_type
from axe_eq.program.ops import (
    CELLS,
    MONOIDS,
    SELECTORS,
    Cell,
    Monoid,
    Selector,
    State,
    join_text,
    selector,
)
from axe_eq.program.types import Array, ValueType, dtype
from axe_eq.prove.programs.compare import difference

_POINTS = 48
_KINDS = {"number": "fi", "float": "f", "integer": "i", "logical": "b"}


def check_operators(declared: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Test operators by what their packs noted of them: "cell NAME", "monoid NAME", ...

    Yields:
        The operator, and one sentence about what is wrong with it.
    """
    for title in declared:
        kind, _, name = title.partition(" ")
        rng = np.random.default_rng(zlib.crc32(title.encode()))
        if kind == "cell":
            found = _check_cell(CELLS[name], rng)
        elif kind == "monoid":
            found = _check_monoid(MONOIDS[name], rng)
        else:
            found = _check_selector(SELECTORS[name], rng)
        try:
            with np.errstate(all="ignore"):
                yield from ((title, problem) for problem in dict.fromkeys(found))
        except Exception as error:  # a pack's own functions may fail in any way
            yield title, f"cannot be evaluated ({type(error).__name__}: {error})"


def _apart(a: Any, b: Any, exact: bool = False) -> bool:
    return difference(np.asarray(a), np.asarray(b), exact=exact) is not None


# -- cells -----------------------------------------------------------------------------------------


def _check_cell(declared: Cell, rng: np.random.Generator) -> Iterator[str]:
    if declared.n_params or declared.n_values > 1:
        return  # what they give depends on parameters or on a monoid
    for kind in _KINDS.get(declared.result, "fi" if declared.result != "last" else "f"):
        arity = declared.arity or 3
        operands = [_operand(declared, n, kind, rng) for n in range(arity)]
        value = declared.fn(*operands)
        if np.shape(value) != (_POINTS,):
            yield f"gives shape {np.shape(value)} for operands of shape ({_POINTS},)"
            return
        if declared.result == "bool" and value.dtype != bool:
            yield f"declares result 'bool' and gives {value.dtype}"
        yield from _check_points(declared, operands, value)
        if kind == "f" and declared.strict:
            yield from _check_strict(declared, operands)
        if arity == 2 or declared.arity is None:
            yield from _check_algebra(declared, operands)
        if kind == "f" and declared.enclose is not None:
            yield from _check_enclosure(declared, operands)


def _operand(declared: Cell, number: int, kind: str, rng: np.random.Generator) -> Array:
    """Values inside the cell's domain."""
    if kind == "b" or number < declared.n_conditions:
        return rng.random(_POINTS) < 0.5
    bounds = declared.domain if kind == "f" else declared.whole_domain
    low, high = bounds[min(number, len(bounds) - 1)] if bounds else (-4.0, 4.0)
    values = rng.uniform(max(low, -50.0), min(high, 50.0), _POINTS)
    return np.rint(values).astype(np.int64) if kind == "i" else values


def _check_points(declared: Cell, operands: Sequence[Array], value: Array) -> Iterator[str]:
    """A cell happens at one point of the index space."""
    alone = np.concatenate([declared.fn(*(x[n : n + 1] for x in operands)) for n in range(_POINTS)])
    if _apart(alone, value):
        yield "is no function of one point: an element depends on other elements"
    spread = declared.fn(*(x.reshape(-1, 1) if n else x for n, x in enumerate(operands)))
    wanted = (_POINTS, _POINTS) if len(operands) > 1 else (_POINTS,)
    if np.shape(spread) != wanted:
        yield f"gives shape {np.shape(spread)} for operands that broadcast to {wanted}"
    moved = operands[declared.n_conditions :]
    if not declared.rounds and not np.any([_same(value, x) for x in moved], axis=0).all():
        yield "declares rounds=False, and its value is none of its operands'"


def _check_strict(declared: Cell, operands: Sequence[Array]) -> Iterator[str]:
    """NaN in one operand, whatever is in the others."""
    for n in range(declared.n_conditions, len(operands)):
        for other in (None, 0.0, 1.0, np.inf, -np.inf):
            given = [x if other is None else np.full_like(x, other) for x in operands]
            given[n] = np.full_like(operands[n], np.nan)
            if not np.isnan(declared.fn(*given)).all():
                yield "declares strict=True, and has a number for NaN"
                return


def _same(a: Array, b: Array) -> Array:
    return np.asarray((a == b) | ((a != a) & (b != b)))


def _check_algebra(declared: Cell, operands: Sequence[Array]) -> Iterator[str]:
    f, (x, y) = declared.fn, operands[:2]
    z = operands[2] if len(operands) > 2 else x[::-1]
    if declared.commutative and _apart(f(x, y), f(y, x), exact=True):
        yield "declares commutative=True, and f(x, y) is not f(y, x)"
    if declared.associative and _apart(f(f(x, y), z), f(x, f(y, z))):
        yield "declares associative=True, and f(f(x, y), z) is not f(x, f(y, z))"
    if declared.unit is not None and not (x.dtype.kind in "iu" and np.isinf(declared.unit)):
        unit = np.full_like(x, declared.unit)
        if _apart(f(x, unit), x) or (declared.commutative and _apart(f(unit, x), x)):
            yield f"declares unit={declared.unit:g}, and f(x, unit) is not x"
    product = declared.quotient_of
    if product and x.dtype.kind == "f" and _apart(f(x, y), CELLS[product].fn(x, 1 / y)):
        yield f"declares quotient_of={product!r}, and f(x, y) is not {product} of x and 1 / y"


def _check_enclosure(declared: Cell, operands: Sequence[Array]) -> Iterator[str]:
    """The interval of a value holds it, for operands that are points and for wider ones."""
    enclose: Callable[..., Any] = declared.enclose or (lambda *_: None)
    for width in (0.0, 1e-9, 0.01):
        ends = [[x, x] if x.dtype == bool else [x - width, x + width] for x in operands]
        low, high = enclose(*(Interval(a * 1.0, b * 1.0) for a, b in ends))
        for point in (operands, [a for a, _ in ends], [b for _, b in ends]):
            value = np.asarray(declared.fn(*point), np.float64)
            near = np.abs(value - np.clip(value, low, high)) <= 1e-12 * np.abs(value)
            if not np.all(near | np.isnan(low) | np.isnan(value)):
                yield f"has an enclosure that misses its value, for operands {width:g} wide"
                return


# -- monoids ---------------------------------------------------------------------------------------


def _check_monoid(declared: Monoid, rng: np.random.Generator) -> Iterator[str]:
    yield from _check_merging(declared)
    kind = {"logical": "b", "integer": "i"}.get(declared.result, "f")
    values = tuple(_terms(declared, n, kind, rng) for n in range(declared.n_values))
    yield from _check_parts(declared, values, rng)
    shapes = [np.shape(part) for part in _lift(declared, values)]
    if any(shape != (6, 1) for shape in shapes):
        yield f"lifts terms of shape (6, 8) along axis 1 to shapes {shapes}, which are not (6, 1)"
        return
    whole = _value(declared, _lift(declared, values))
    for at in (1, 3, 7):
        parts = [_lift(declared, tuple(v[:, cut] for v in values))
                 for cut in (slice(at), slice(at, None))]  # fmt: skip
        for first, second in permutations(parts) if declared.commutative else (parts,):
            if _apart(_value(declared, declared.merge(first, second)), whole, declared.exact):
                yield "is not the merge of two parts: it cannot be computed piece by piece"
                return
    if declared.n_values > 1:
        yield from _check_parts_stand(declared, values, whole)
        return
    if declared.unit is not None:
        none = _lift(declared, (np.full_like(values[0], declared.unit),))
        if _apart(_value(declared, declared.merge(none, _lift(declared, values))), whole):
            yield f"declares unit={declared.unit:g}, which changes what it is merged with"
    if declared.convex and not np.all((values[0].min(1) <= whole) & (whole <= values[0].max(1))):
        yield "declares convex=True, and its value lies outside its terms"
    halves = [
        _value(declared, _lift(declared, (values[0][:, p],))) for p in (slice(4), slice(4, 8))
    ]
    if _apart(_value(declared, _lift(declared, (np.stack(halves, axis=1),))), whole):
        yield (
            "is not the reduction of its own values over parts of equal size, as laws take "
            "reductions of one value to be; declare n_values=2 and a cell `pair` of terms"
        )


def _check_parts_stand(declared: Monoid, values: State, whole: Array) -> Iterator[str]:
    """What stands for parts gives the whole, and for one element it is that one."""
    if not declared.stands:
        return
    if len(declared.stands) != declared.n_values or declared.stands.count("") != 1:
        yield f"declares stands={declared.stands!r}; expected {declared.n_values}, one of them ''"
        return
    at = declared.stands.index("")
    units = [ops.MONOIDS[name].unit if name else declared.unit for name in declared.stands]
    if declared.unit is not None and None not in units:
        none = _lift(
            declared, tuple(np.full_like(v[:, :1], u) for v, u in zip(values, units, strict=True))
        )
        if _apart(_value(declared, declared.merge(none, _lift(declared, values))), whole):
            yield f"declares unit={declared.unit:g}, which changes what it is merged with"
    for ends in ((0, 1, 8), (0, 3, 4, 8), range(9)):
        cuts = [tuple(v[:, a:b] for v in values) for a, b in pairwise(ends)]
        stands = [_stands(declared, cut) for cut in cuts]
        pairs = zip(stands, cuts, strict=True) if len(cuts) == 8 else ()
        if any(_apart(stand[at], cut[at]) for stand, cut in pairs):
            yield f"declares stands={declared.stands!r}, and of one element it is not that value"
        joined = tuple(np.concatenate(of, axis=1) for of in zip(*stands, strict=True))
        if _apart(_value(declared, _lift(declared, joined)), whole, declared.exact):
            yield f"declares stands={declared.stands!r}, which do not give the value of the whole"
            return


def _stands(declared: Monoid, values: State) -> State:
    """What stands for a part."""
    own = _value(declared, _lift(declared, values))[:, None]
    reduced = (
        _value(of, _lift(of, (v,)))[:, None] if (of := ops.MONOIDS[name] if name else None) else own
        for name, v in zip(declared.stands, values, strict=True)
    )
    return tuple(reduced)


def _check_merging(declared: Monoid) -> Iterator[str]:
    """The cells that it is merged and lifted by are its own merge and lift, on extreme values."""
    if not declared.merges:
        return
    for kind in _KINDS.get(declared.result, "fi"):
        x = _extremes(kind)
        state = declared.lift((x[:, None],), (1,))
        lifted = CELLS[declared.lifts].fn(x) if declared.lifts else x
        if len(state) != 1 or _apart(state[0][:, 0], lifted):
            by = f"the cell {declared.lifts!r} gives" if declared.lifts else "the value itself"
            yield f"declares merges={declared.merges!r}, and lifts a value to other than {by}"
            return
        a, b = (part.reshape(-1) for part in np.meshgrid(lifted, lifted))
        (merged,) = declared.merge((a,), (b,))
        if (wrong := _first_apart(CELLS[declared.merges].fn(a, b), merged)) is not None:
            yield (
                f"declares merges={declared.merges!r}, which gives another value of "
                f"{a[wrong]!r} and {b[wrong]!r} than its merge"
            )
            return
        if _apart(declared.finish((a,)), a):
            yield f"declares merges={declared.merges!r}, and finishes to another value"
            return
        if declared.unit is not None and not (kind == "i" and np.isinf(declared.unit)):
            (same,) = declared.merge((np.full_like(lifted, declared.unit),), (lifted,))
            if (wrong := _first_apart(same, lifted)) is not None:
                yield f"declares unit={declared.unit:g}, which changes {lifted[wrong]!r}"


def _first_apart(a: Array, b: Array) -> int | None:
    """The first place at which two arrays differ."""
    apart = (n for n, (x, y) in enumerate(zip(a, b, strict=True)) if _apart(x, y))
    return next(apart, None)


def _extremes(kind: str) -> Array:
    if kind == "b":
        return np.array([False, True])
    if kind == "i":
        most = np.iinfo(np.int64).max  # the least has no absolute value
        return np.array([0, 1, -1, 6, -9, most, -most])
    return np.array([0.0, -0.0, 1.0, -1.5, 1e-300, 1e300, -1e300, np.inf, -np.inf, np.nan])


def _check_parts(declared: Monoid, values: State, rng: np.random.Generator) -> Iterator[str]:
    """Parts for kernels give what it gives itself, on its terms and on extreme ones."""
    make = declared_parts(declared.name)
    if make is None:
        return
    parts = make([dtype(v.dtype).name for v in values])
    if not len(parts.lift) == len(parts.merge) == len(parts.units):
        sizes = f"{len(parts.lift)} lifts, {len(parts.merge)} merges, {len(parts.units)} units"
        yield f"has parts of {sizes}; expected as many of each"
        return
    extreme = tuple(rng.choice(_extremes(v.dtype.kind), v.shape) for v in values)
    for given, named in ((values, "moderate"), (extreme, "extreme")):
        terms = [tuple(v[:, n : n + 1] for v in given) for n in range(given[0].shape[1])]
        want = reduce(declared.merge, (_lift(declared, term) for term in terms))
        lifted = ([evaluate(cell, term) for cell in parts.lift] for term in terms)
        units = [np.full(x.shape, u, x.dtype) for x, u in zip(want, parts.units, strict=True)]
        got = reduce(lambda a, b: [evaluate(c, [*a, *b]) for c in parts.merge], lifted, units)
        value = np.asarray(evaluate(parts.finish, got)).reshape(6)
        if (wrong := _first_apart(value, _value(declared, want))) is not None:
            yield (
                f"has parts that give {value[wrong]!r} for {named} terms whose value is "
                f"{_value(declared, want)[wrong]!r}"
            )
            return


def _terms(declared: Monoid, number: int, kind: str, rng: np.random.Generator) -> Array:
    if kind == "b":
        return np.asarray(rng.random((6, 8)) < 0.6)
    if declared.result == "index" and number == declared.n_values - 1:
        return np.tile(np.arange(8), (6, 1))
    if kind == "i":
        return rng.integers(-30, 30, (6, 8))
    return np.asarray(rng.uniform(0.5, 2.0, (6, 8)) * rng.choice([-1.0, 1.0], (6, 8)))


def _lift(declared: Monoid, values: State) -> State:
    return declared.lift(values, (1,))


def _value(declared: Monoid, state: State) -> Array:
    return np.asarray(declared.finish(state)).reshape(6)


# -- selectors -------------------------------------------------------------------------------------


def _check_selector(declared: Selector, rng: np.random.Generator) -> Iterator[str]:
    for text, types in _uses(declared, rng):
        ids = 1000.5  # no fill is among these
        operands = []
        for of in types:
            operands.append(np.arange(ids, ids + of.size).reshape(of.shape))
            ids += of.size
        params = selector(text)[1]
        value = np.asarray(declared.run(params, operands))
        wanted = declared.shape(params, types).shape
        if value.shape != wanted:
            yield f"gives shape {value.shape} for {text!r}, which declares {wanted}"
            return
        problem = _check_moves(declared, params, types, operands, value)
        if problem is not None:
            yield f"{problem}, for {text!r} of {', '.join(map(str, types))}"
            return


def _uses(declared: Selector, rng: np.random.Generator) -> Iterator[tuple[str, list[ValueType]]]:
    """Texts of a selector with operand types that fit."""
    source = random.Random(int(rng.integers(1 << 30)))
    for _ in range(60):
        draw = Draw(source)
        rank = source.choice((1, 2, 2, 3))
        shape = tuple(source.choice((2, 3, 4, 6, 1)) for _ in range(rank))
        of = ValueType("f64", shape)
        known = [None] * (2 if declared.arity is None else declared.arity)
        if declared.propose is not None:
            found = propose(draw, "s", declared, known, of)
            if found is not None:
                yield found[0], [ValueType("f64", s) for s in found[1]]
        elif declared.sample is not None:
            types = [of for _ in known]
            text = join_text(declared.name, *declared.sample(rng, types))
            try:
                sel_type(text, tuple(types))
            except ProgramError:
                continue
            yield text, types


def _check_moves(
    declared: Selector,
    params: tuple[Any, ...],
    types: Sequence[ValueType],
    operands: Sequence[Array],
    value: Array,
) -> str | None:
    """It moves elements, from where it says, and its inverse undoes it."""
    if not operands:
        return None
    fill = declared.fill(params) if declared.fill is not None else None
    fill = 0.0 if declared.cut else fill
    moved = np.isin(value, np.concatenate([x.reshape(-1) for x in operands]))
    outside = value[~moved]
    if outside.size and (fill is None or _apart(outside, np.full_like(outside, fill))):
        return "gives elements that are no operand's"
    pulls = declared.pull(params, types) if declared.pull is not None else []
    for x, row in zip(operands, pulls, strict=bool(pulls)):
        here = np.argwhere(np.isin(value, x))
        number = np.atleast_1d(value[tuple(here.T)] - x.reshape(-1)[0]).astype(np.int64)
        places = np.argwhere(x >= 0)[number]
        for axis, pull in enumerate(row):
            if pull is None:
                continue
            read = pull.scale * here[:, pull.axis] + pull.offset
            if not np.array_equal(read, places[:, axis]):
                return f"declares {pull} for dim {axis}, and reads other elements"
    if declared.inverse is not None:
        undo = declared.inverse(params, types[0])
        back = np.asarray(selector(undo)[0].run(selector(undo)[1], [value]))
        if not np.array_equal(back, operands[0]):
            return f"declares the inverse {undo!r}, which does not undo it"
        if not np.array_equal(value.reshape(-1), operands[0].reshape(-1)):
            return "declares an inverse, and changes the row-major order"
    return None
