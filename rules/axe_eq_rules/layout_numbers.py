"""Laws over two number systems: machine integers, and polynomials in positive integers.

A law about iters is written once, over a `Numbers`, and declared for both: with the integers it is
a rewrite on machine integers, with the polynomials one on their texts, in a law whose name ends
with ``_symbolic``.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints

from axe_eq.layout.symbolic import terms as t
from axe_eq.layout.symbolic.polynomial import parse
from axe_eq.layout.symbolic.shapes import read_shape
from axe_eq.pack import Pack
from axe_eq.rule.law import Sides
from axe_eq.rule.term import INT, STR, Primitive, Sort, Symbol, Undefined, is_pattern, primitive
from axe_eq_rules.layout_samples import by_roles

NUMBER = Sort("number")  # stands for the sort of a number system

# What parameters of laws are: a sort, and a word for what may be drawn for it.
Extent = Annotated[Any, NUMBER, "extent"]
Stride = Annotated[Any, NUMBER, "stride"]
IntExtent = Annotated[Any, INT, "extent"]
IntStride = Annotated[Any, INT, "stride"]
Place = Annotated[Any, INT, "place"]
Begin = Annotated[Any, INT, "begin"]  # of a window
Count = Annotated[Any, INT, "count"]
Indices = Annotated[Any, t.LAYOUT, "indices"]  # of the layout before
Distance = Annotated[Any, INT, "distance"]
Axis = Annotated[Any, STR, "axis"]
Shape = Annotated[Any, STR, "shape"]
Region = Annotated[Any, STR, "region"]
Perm = Annotated[Any, STR, "perm"]
Weights = Annotated[Any, STR, "weights"]

Conditions = Sequence[Any]


# -- polynomials -----------------------------------------------------------------------------------


@primitive((STR, STR), (STR,))
def product_of(a: str, b: str) -> str:
    """The product of two numbers."""
    return str(parse(a) * parse(b))


@primitive((STR, STR), (STR,))
def sum_of(a: str, b: str) -> str:
    """The sum of two numbers."""
    return str(parse(a) + parse(b))


@primitive((STR, STR), (STR, STR))
def turned_step(extent: str, stride: str) -> tuple[str, str] | None:
    """The reach and the negative of a stride that is below 0 for all names."""
    step = parse(stride)
    if not (-step).at_least(1):
        return None
    return str((parse(extent) - 1) * step), str(-step)


@primitive((STR, STR, STR, STR), (STR,))
def absorbed_steps(e: str, s: str, f: str, u: str) -> str | None:
    """``e + q*(f-1)`` where ``u = q*s`` and ``1 <= q <= e`` for all names."""
    count, step = parse(e), parse(s)
    times = parse(u).divided(step)
    if times is None or not times.at_least(1):
        return None
    return str(count + times * (parse(f) - 1)) if (count - times).at_least(0) else None


@primitive((STR, STR), (INT,))
def text_before(a: str, b: str) -> int | None:
    """1 where the first text sorts before the second."""
    return 1 if a < b else None


# -- number systems --------------------------------------------------------------------------------


class Numbers(NamedTuple):
    """What laws need of numbers; every condition is a sequence, to be put after a law's sides.

    Attributes:
        sort: of a number in terms.
        suffix: of the names of laws.
        one, zero: these numbers in terms.
        iter, prepend, copy, shift: the constructors over these numbers.
        times, plus: the product and the sum.
        turned: (extent, stride) -> the reach and the negative of a stride, and the condition that
            it is below 0.
        absorbed: (e, s, f, u) -> ``e + q*(f-1)`` for ``u = q*s``, and the condition
            ``1 <= q <= e``.
    """

    sort: Sort
    suffix: str
    one: Any
    zero: Any
    iter: Symbol
    prepend: Symbol
    copy: Symbol
    shift: Symbol
    times: Callable[[Any, Any], Any]
    plus: Callable[[Any, Any], Any]
    turned: Callable[[Any, Any], tuple[Any, Any, Conditions]]
    absorbed: Callable[[Any, Any, Any, Any], tuple[Any, Conditions]]


def _absorbed(e: Any, s: Any, f: Any, u: Any) -> tuple[Any, Conditions]:
    if not is_pattern(s) and s == 0:
        raise Undefined("division by 0")
    times = u // s
    return e + times * f - times, (u % s == 0, times > 0, times <= e)


INTEGERS = Numbers(
    INT, "", 1, 0, t.Iter, t.Prepend, t.Copy, t.Shift, operator.mul, operator.add,
    lambda extent, stride: (extent * stride - stride, -stride, (stride < 0,)), _absorbed,
)  # fmt: skip
POLYNOMIALS = Numbers(
    STR, "_symbolic", "1", "0", t.SymIter, t.SymPrepend, t.SymCopy, t.SymShift, product_of, sum_of,
    lambda extent, stride: (*turned_step(extent, stride), ()),
    lambda e, s, f, u: (absorbed_steps(e, s, f, u), ()),
)  # fmt: skip


def on_numbers(
    args: Sequence[Sort], results: Sequence[Sort]
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorator: a primitive over both systems; it works on polynomials.

    `NUMBER` in the sorts is the system's. Called with the system first, it takes and gives that
    system's numbers; over the integers it is undefined where the result is none.
    """

    def wrap(fn: Callable[..., Any]) -> Callable[..., Any]:
        made: dict[str, Primitive] = {}
        for system in (INTEGERS, POLYNOMIALS):
            given, found = (
                tuple(system.sort if sort is NUMBER else sort for sort in sorts)
                for sorts in (args, results)
            )
            made[system.suffix] = Primitive(_on(fn, system, args, results), given, found)
        return lambda system, *values: made[system.suffix](*values)

    return wrap


def _on(
    fn: Callable[..., Any], system: Numbers, args: Sequence[Sort], results: Sequence[Sort]
) -> Callable[..., Any]:
    def run(*values: Any) -> Any:
        given = (
            parse(str(value)) if sort is NUMBER else value
            for value, sort in zip(values, args, strict=True)
        )
        found = fn(*given)
        if found is None:
            return None
        rows = found if isinstance(found, tuple) else (found,)
        written = tuple(
            _written(value, system) if sort is NUMBER else value
            for value, sort in zip(rows, results, strict=True)
        )
        return None if None in written else written

    run.__name__, run.__module__ = fn.__name__ + system.suffix, fn.__module__
    return run


def _written(value: Any, system: Numbers) -> int | str | None:
    if system is POLYNOMIALS:
        return str(value)
    number: int | None = value.constant
    return number if number is not None and -(2**63) <= number < 2**63 else None


# -- declaring -------------------------------------------------------------------------------------

LawFunction = Callable[..., Sides]


class Laws:
    """Laws of one module, for a pack to take."""

    def __init__(self) -> None:
        self._declared: list[tuple[LawFunction, dict[str, Any]]] = []

    def law(self, **flags: Any) -> Callable[[LawFunction], LawFunction]:
        """Decorator: a law; flags as for `Pack.law`."""

        def wrap(fn: LawFunction) -> LawFunction:
            self._declared.append((fn, {"sampler": by_roles(fn), **flags}))
            return fn

        return wrap

    def over(self, *systems: Numbers, **flags: Any) -> Callable[[LawFunction], LawFunction]:
        """Decorator: a law for each number system, which is the first parameter; both by default.

        A `sampler` gets whether numbers are polynomials before its draw; without one, roles say
        what is drawn.
        """

        def wrap(fn: LawFunction) -> LawFunction:
            for system in systems or (INTEGERS, POLYNOMIALS):
                law = _bound(fn, system)
                self._declared.append((law, _of(law, flags, system)))
            return fn

        return wrap

    def add_to(self, pack: Pack) -> None:
        """Declare the laws in a pack."""
        for fn, flags in self._declared:
            pack.law(search=False, **flags)(fn)


def _of(fn: LawFunction, flags: dict[str, Any], system: Numbers) -> dict[str, Any]:
    sampler, symbolic = flags.get("sampler"), system is POLYNOMIALS
    return {**flags, "sampler": partial(sampler, symbolic) if sampler else by_roles(fn, symbolic)}


def _over(hint: Any, system: Numbers) -> Any:
    _, sort, *role = get_args(hint)
    return Annotated[Any, system.sort, *role] if sort is NUMBER else hint


def _bound(fn: LawFunction, system: Numbers) -> LawFunction:
    """The law over one system."""

    def law(*values: Any) -> Sides:
        return fn(system, *values)

    hints = get_type_hints(fn, include_extras=True)
    names = list(signature(fn).parameters)[1:]
    law.__name__, law.__doc__, law.__module__ = (
        fn.__name__ + system.suffix,
        fn.__doc__,
        fn.__module__,
    )
    law.__annotations__ = {name: _over(hints[name], system) for name in names}
    parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    law.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return law


# -- shapes ----------------------------------------------------------------------------------------


@primitive((STR,), (INT,))
def is_one(shape: str) -> int | None:
    """1 for a shape of one element."""
    return 1 if all(extent == 1 for extent in read_shape(shape)) else None


@primitive((STR, STR), (INT,))
def in_other_dims(a: str, b: str) -> int | None:
    """1 for shapes that have more than one index in different dims."""
    pairs = zip(read_shape(a), read_shape(b), strict=True)
    return 1 if all(x == 1 or y == 1 for x, y in pairs) else None
