"""What users hand to a kernel's builder, checked where it is handed over.

Every function returns the value in the form that the nodes hold, or refuses it at the user's line.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import numpy as np

from axe_eq.errors import AxeError, LayoutError, ScheduleError, said
from axe_eq.kernel.cells import Apply, Cell, Constant, Operand, common_dtype
from axe_eq.kernel.expr import Bounds, Expr, Int, bounds
from axe_eq.kernel.placement import Placement
from axe_eq.kernel.userline import user_line
from axe_eq.program import ops
from axe_eq.program.node import dtype_by_rule
from axe_eq.program.types import DTYPES
from axe_eq.program.types import dtype as element_type

# Cells are walked by recursion, some frames for each level.
DEEPEST_CELL = 100
MOST_BITS = 64  # of an integer that some element type holds


def refuse(thing: str, wrong: str, expected: str) -> ScheduleError:
    """An error at the user's line."""
    return ScheduleError(thing, wrong, expected, at=user_line())


@contextmanager
def at_user_line() -> Iterator[None]:
    """Errors from inside name the user's line, where they name none."""
    try:
        yield
    except AxeError as error:
        error.at = error.at or user_line()
        raise


def integer(thing: str, what: str, value: object) -> Int:
    """A number, or one that is known at run time.

    Raises:
        ScheduleError: it is neither.
    """
    if isinstance(value, Expr) or type(value) is int:
        return value
    if isinstance(value, int | np.integer) and not isinstance(value, bool):
        return int(value)
    raise refuse(thing, f"{what} {said(value)}", "an integer")


def whole(thing: str, what: str, value: object, low: int | None = None) -> int:
    """A number that is known now, at least `low`.

    Raises:
        ScheduleError: it is not.
    """
    given = integer(thing, what, value)
    if isinstance(given, Expr) or (low is not None and given < low):
        least = "" if low is None else f", at least {low}"
        raise refuse(thing, f"{what} {given}", f"a number{least}")
    return given


def position(thing: str, dim: int, extent: Int, masked: bool, what: str, value: object) -> Int:
    """The index, begin or end of a Python subscript, counted from the first element.

    Python counts negative ones from the end and finds nothing after it, a kernel does neither: a
    number outside is taken for a mistake. An end may lie behind the last element: tails are masked.

    Args:
        thing: what is indexed, for messages.
        dim: which of its dims.
        extent: that dim's extent.
        masked: whether a window may lie outside.
        what: "index", "begin" or "end".
        value: what was given.

    Raises:
        ScheduleError: it is no integer.
        LayoutError: it is a number, and there is no such element.
    """
    found, most = integer(thing, what, value), bounds(extent)[1]
    behind = what != "end" and most is not None and isinstance(found, int) and found >= most
    if isinstance(found, int) and (found < 0 or behind):
        last = "" if what == "end" else f" to {extent - 1}"
        hint = "span(begin, extent), for a window that may lie outside" if masked else ""
        raise LayoutError(
            thing, f"{what} {found} of dim {dim}", f"0{last or ' or more'}, from the first element",
            at=user_line(), hint=hint,
        )  # fmt: skip
    return found


def condition(thing: str, value: object) -> Int:
    """An integer, or a truth of Python.

    Raises:
        ScheduleError: it is neither.
    """
    return int(value) if isinstance(value, bool | np.bool_) else integer(thing, "condition", value)


def promised(thing: str, low: int | None, high: int | None) -> Bounds:
    """Bounds that somebody promises.

    Raises:
        ScheduleError: they are no numbers, or the lower one is the greater one.
    """
    least = None if low is None else whole(thing, "low", low)
    most = None if high is None else whole(thing, "high", high)
    if least is not None and most is not None and least > most:
        raise refuse(thing, f"bounds {least} to {most}", "the lower one first")
    return least, most


def integers(thing: str, what: str, values: object) -> tuple[Int, ...]:
    """Several integers.

    Raises:
        ScheduleError: it is no sequence of them.
    """
    if not isinstance(values, Sequence) or isinstance(values, str):
        raise refuse(thing, f"{what} {said(values)}", "a sequence of integers")
    return tuple(integer(thing, what, v) for v in values)


def shape(thing: str, values: object) -> tuple[Int, ...]:
    """Extents.

    Raises:
        ScheduleError: one is no integer, or known to be less than 1.
    """
    extents = integers(thing, "shape", values)
    for e in extents:
        high = bounds(e)[1]
        if high is not None and high < 1:
            raise refuse(thing, f"shape {_listed(extents)}", "extents of at least 1")
    return extents


def dims(thing: str, values: object, rank: int) -> tuple[int, ...]:
    """Different dims of a tile, sorted.

    Raises:
        ScheduleError: one is given twice or is none of them.
    """
    given = [whole(thing, "dim", d) for d in integers(thing, "dims", values)]
    if len(set(given)) < len(given) or not set(given) <= set(range(rank)):
        known = f"different ones of 0 to {rank - 1}" if rank else "none"
        raise refuse(thing, f"dims {given} of a tile of {rank} dims", known)
    return tuple(sorted(given))


def _listed(values: Sequence[Int]) -> str:
    return f"({', '.join(map(str, values))})"


def name(thing: str, value: object) -> str:
    """A name, which texts show in one line.

    Raises:
        ScheduleError: it is no text, or has characters that do not print.
    """
    if not isinstance(value, str) or not value.isprintable():
        raise refuse(thing, f"is named {said(value)}", "a name of printable characters")
    return value


def dtype(thing: str, value: object) -> str:
    """An element type's name.

    Raises:
        ScheduleError: it is no name.
        ProgramError: no such element type.
    """
    if not isinstance(value, str):
        raise refuse(thing, f"dtype {said(value)}", f"one of {' '.join(DTYPES)}")
    with at_user_line():
        return element_type(value).name


def place(thing: str, given: Placement, axes: Sequence[str], *, at_zero: bool) -> Placement:
    """A placement on some axes that begins where its buffer does.

    Args:
        thing: what is placed, for messages.
        given: the placement.
        axes: those that it may use.
        at_zero: whether its offset is none.

    Raises:
        ScheduleError: it uses another axis, or elements lie before the first.
    """
    every = given.iters + given.replica
    lowest = dict(given.offset)
    for i in every:
        stride = bounds(i.stride)[1]
        if stride is not None and stride < 0:
            last = max(bounds(i.extent)[0] or 0, 2) - 1
            lowest[i.axis] = lowest.get(i.axis, 0) + stride * last
    before = any(high is not None and high < 0 for _, high in map(bounds, lowest.values()))
    if {i.axis for i in every} - set(axes) or before or (at_zero and given.offset):
        kind = "axis" if len(axes) == 1 else "axes"
        offset = "no offset, " if at_zero else ""
        expected = f"iters on {kind} {', '.join(axes)}, {offset}no element before the first"
        raise refuse(thing, f"layout {given}", expected)
    return given


def constant(thing: str, value: object, dtype: str) -> float:
    """A number that elements of a type hold.

    Raises:
        ScheduleError: it is no number, or not one of them.
    """
    held = DTYPES[dtype]
    found = _number(thing, "value", value)
    if isinstance(found, int) and found.bit_length() > MOST_BITS:
        fits = False
    elif held.kind == "f":
        with np.errstate(all="ignore"):
            stored = float(np.asarray(found, np.float64).astype(held.numpy))
        fits = _class(float(found)) == _class(stored)
    elif held.kind == "b":
        fits = found in (0, 1)
    else:
        bits = 8 * held.itemsize - 1
        fits = math.isfinite(found) and found == int(found) and -(1 << bits) <= found < 1 << bits
    if not fits:
        raise refuse(thing, f"value {said(value)}", f"what {dtype} holds")
    return found


def _number(thing: str, what: str, value: object) -> float:
    if not isinstance(value, int | float | np.number | np.bool_):
        raise refuse(thing, f"{what} {said(value)}", "a number")
    found: float = value.item() if isinstance(value, np.generic) else value
    return found


def _class(x: float) -> str:
    return "number" if math.isfinite(x) else str(x)


def monoid(thing: str, name: object, dtype: str) -> None:
    """Check a monoid over elements of a type.

    Raises:
        ScheduleError: there is none, or it takes several values.
        ProgramError: it does not take such elements.
    """
    known = [m for m in ops.MONOIDS if ops.MONOIDS[m].n_values == 1]
    if name not in known:
        raise refuse(thing, f"monoid {said(name)}", f"one of {' '.join(known)}")
    with at_user_line():
        dtype_by_rule(ops.MONOIDS[str(name)].result, f"monoid {name!r}", (), [dtype])


def cell(thing: str, given: object, dtypes: Sequence[str]) -> Cell:
    """A cell expression that takes operands of these dtypes.

    Raises:
        ScheduleError: it is none, it has operands that are not there, it nests too deeply, or a
            cell does not take what it is applied to.
    """
    if not isinstance(given, Cell):
        raise refuse(thing, f"cell {said(given)}", "a cell expression: apply(cell, arg(0))")
    found: dict[int, tuple[str, int]] = {}  # dtype and depth
    stack: list[Cell] = [given]
    while stack:
        c = stack[-1]
        inner = c.args if isinstance(c, Apply) else ()
        missing = [a for a in inner if id(a) not in found]
        stack += missing
        if not missing:
            found[id(stack.pop())] = _held(thing, c, dtypes, found)
    return given


def _held(
    thing: str, c: Cell, dtypes: Sequence[str], found: Mapping[int, tuple[str, int]]
) -> tuple[str, int]:
    if isinstance(c, Constant):
        _number(thing, "constant", c.value)
        return c.kind, 1
    if isinstance(c, Operand):
        if not 0 <= c.index < len(dtypes):
            raise refuse(thing, f"cell with {c} of {len(dtypes)} operands", "all its operands")
        return DTYPES[dtypes[c.index]].accumulate, 1
    args = [found[id(a)] for a in c.args]
    depth = 1 + max((d for _, d in args), default=0)
    if depth > DEEPEST_CELL:
        raise refuse(
            thing, f"a cell of more than {DEEPEST_CELL} levels", "several maps of fewer levels"
        )
    declared, params = ops.cell(c.cell)
    if declared.n_values != 1:
        raise refuse(thing, f"cell {c.cell!r} of {declared.n_values} values", "one value")
    held = [h for h, _ in args]
    first = declared.n_conditions
    taken = [*held[:first], *[common_dtype(c, held)] * (len(held) - first)]
    with at_user_line():
        result = dtype_by_rule(declared.result, f"cell {c.cell!r}", params, taken)
    return DTYPES[result].accumulate, depth
