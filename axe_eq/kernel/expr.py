"""Run-time integers of kernels: expressions with proven divisors and bounds.

Plain ints stay ints, so an expression node always depends on a variable. Division and modulus are
Python's (floor), which equals C's because kernels only divide non-negative values: `make` refuses
what `bounds` does not prove to be.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import gcd, lcm
from operator import add, and_, eq, floordiv, ge, gt, le, lt, mod, mul, ne, rshift, sub, xor
from typing import Any, TypeAlias

import numpy as np

from axe_eq.errors import ScheduleError
from axe_eq.kernel.userline import user_line

Bounds: TypeAlias = tuple[int | None, int | None]
_Operator = Callable[["Expr", "Int"], "Int"]

_APPLY: dict[str, Callable[[Any, Any], Any]] = {
    "+": add, "-": sub, "*": mul, "//": floordiv, "%": mod, "^": xor, "&": and_, ">>": rshift,
    "<": lt, "<=": le, ">": gt, ">=": ge, "==": eq, "!=": ne,
    "and": np.logical_and, "min": np.minimum, "max": np.maximum,
}  # fmt: skip
COMPARISONS = frozenset({"<", "<=", ">", ">=", "==", "!=", "and"})


def _operators(op: str) -> tuple[_Operator, _Operator]:
    """The methods that make this operation: with the expression on the left, and on the right."""
    return lambda e, other: make(op, e, other), lambda e, other: make(op, other, e)


@dataclass(frozen=True)
class Expr:
    """An operation on run-time integers; build with Python operators and `minimum`, `maximum`."""

    op: str
    args: tuple[Int, ...]

    __add__, __radd__ = _operators("+")
    __sub__, __rsub__ = _operators("-")
    __mul__, __rmul__ = _operators("*")
    __floordiv__, __rfloordiv__ = _operators("//")
    __mod__, __rmod__ = _operators("%")
    __xor__ = _operators("^")[0]
    __and__ = _operators("&")[0]
    __rshift__ = _operators(">>")[0]
    __lt__ = _operators("<")[0]
    __le__ = _operators("<=")[0]
    __gt__ = _operators(">")[0]
    __ge__ = _operators(">=")[0]

    def __bool__(self) -> bool:
        raise ScheduleError(
            f"condition {self}", "is known only at run time", "k.when(condition) in a kernel",
            at=user_line(),
        )  # fmt: skip

    def __str__(self) -> str:
        return text(self)

    __repr__ = __str__

    def to_data(self) -> list[Any]:
        """Nested lists ``[op, left, right]`` and ``[name, divisor, low, high]``, for `of_data`."""
        if isinstance(self, Var):
            return [self.name, self.divisor, self.low, self.high]
        return [self.op, *self.args]

    @staticmethod
    def of_data(data: Any) -> Int:
        """The expression that `to_data` wrote."""
        if type(data) is int:
            return data
        if len(data) == 4:
            return var(*data)
        return make(data[0], *map(Expr.of_data, data[1:]))


Int: TypeAlias = int | Expr


@dataclass(frozen=True, repr=False)
class Var(Expr):
    """A named run-time integer: a parameter, a loop variable, the lane, or a mutable state.

    Attributes:
        name: unique in its kernel.
        divisor: a number that is proven to divide it.
        low, high: proven bounds, both inclusive; None where there is none.
    """

    op: str = "var"
    args: tuple[Int, ...] = ()
    name: str = ""
    divisor: int = 1
    low: int | None = 0
    high: int | None = None

    def __str__(self) -> str:
        return self.name

    __repr__ = __str__


def var(name: str, divisor: int = 1, low: int | None = 0, high: int | None = None) -> Var:
    """A run-time integer with what is proven about it."""
    return Var(name=name, divisor=divisor, low=low, high=high)


def equal(a: Int, b: Int) -> Int:
    """The condition a == b (Python's == compares the expressions themselves)."""
    return make("==", a, b)


def minimum(a: Int, b: Int) -> Int:
    """The smaller of both."""
    return make("min", a, b)


def maximum(a: Int, b: Int) -> Int:
    """The larger of both."""
    return make("max", a, b)


def ceil_div(a: Int, b: int) -> Int:
    """Quotient rounded up."""
    return (a + (b - 1)) // b


def both(a: Int | None, b: Int | None) -> Int | None:
    """Conjunction of two conditions; None is the condition that always holds."""
    if a is None or b is None:
        return b if a is None else a
    return make("and", a, b)


def make(op: str, a: Int, b: Int) -> Int:
    """Apply an operation, folding constants and gathering constant terms to the right.

    Raises:
        ScheduleError: an operand is no integer, or C would do something else with it.
    """
    a, b = _operand(op, a), _operand(op, b)
    if op in _PROVEN:
        _PROVEN[op](op, a, b)
    if not isinstance(a, Expr) and not isinstance(b, Expr):
        return int(_APPLY[op](a, b))
    if op == "-" and isinstance(b, int):
        return make("+", a, -b)
    if op in "+*" and isinstance(a, int):
        a, b = b, a
    fold = _FOLDS.get(op)
    folded = fold(a, b) if fold else None
    return Expr(op, (a, b)) if folded is None else folded


def _operand(op: str, x: Any) -> Int:
    if isinstance(x, Expr) or type(x) is int:
        return x
    if isinstance(x, int | np.integer | np.bool_):
        return int(x)
    raise ScheduleError(f"operand {x!r}", f"of {op!r} is no integer", "an integer", at=user_line())


def _check_division(op: str, a: Int, b: Int) -> None:
    """C divides towards zero, Python downwards; they agree where nothing is left or negative."""
    least, by = bounds(a)[0], bounds(b)[0]
    exact = isinstance(b, int) and b > 0 and divisor(a) % b == 0
    if by is None or by < 1:
        wrong = f"divides by {'what may be ' if isinstance(b, Expr) else ''}"
        wrong += "any number" if by is None else str(by)
        expected = "a divisor that is proven to be at least 1"
    elif not exact and (least is None or least < 0):
        wrong = f"divides what may be {'negative' if least is None else least}"
        expected = "a number that is proven to be at least 0, as maximum(x, 0) is"
    else:
        return
    raise ScheduleError(f"{_quoted(a)} {op} {_quoted(b)}", wrong, expected, at=user_line())


def _check_shift(op: str, a: Int, b: Int) -> None:
    low, high = bounds(b)
    if low is None or high is None or low < 0 or high > 31:
        wrong, expected = f"shifts by {low} to {high}", "0 to 31 bits"
        raise ScheduleError(f"{_quoted(a)} {op} {_quoted(b)}", wrong, expected, at=user_line())


def _quoted(e: Int) -> str:
    return f"({e})" if isinstance(e, Expr) and not isinstance(e, Var) else str(e)


_PROVEN: dict[str, Callable[[str, Int, Int], None]] = {
    "//": _check_division, "%": _check_division, ">>": _check_shift,
}  # fmt: skip


def _constant(e: Int, op: str) -> tuple[Int, int] | None:
    """(x, c) where e is x op c with a constant c."""
    if isinstance(e, Expr) and e.op == op and isinstance(e.args[1], int):
        return e.args[0], e.args[1]
    return None


def _fold_add(a: Int, b: Int) -> Int | None:
    if b == 0:
        return a
    if isinstance(b, int):
        inner = _constant(a, "+")
        return None if inner is None else make("+", inner[0], inner[1] + b)
    for x, y in ((a, b), (b, a)):  # constants float outwards
        inner = _constant(x, "+")
        if inner is not None:
            rest = make("+", inner[0], y) if x is a else make("+", y, inner[0])
            return make("+", rest, inner[1])
    return None


def _fold_mul(a: Int, b: Int) -> Int | None:
    if not isinstance(b, int):
        return None
    if b in (0, 1):
        return a if b else 0
    product, total = _constant(a, "*"), _constant(a, "+")
    if product is not None:
        return make("*", product[0], product[1] * b)
    if total is not None:
        return make("*", total[0], b) + total[1] * b
    return None


def _fold_div(a: Int, b: Int) -> Int | None:
    if b == 1:
        return a
    if not isinstance(b, int) or b <= 0:
        return None
    if divisor(a) % b == 0:
        exact = _exact_quotient(a, b)
        if exact is not None:
            return exact
    low, high = bounds(a)
    return low // b if low is not None and high is not None and low // b == high // b else None


def _exact_quotient(a: Int, b: int) -> Int | None:
    """Divide term by term, where every term is a multiple of b."""
    if isinstance(a, int):
        return a // b if a % b == 0 else None
    product = _constant(a, "*")
    if product is not None and product[1] % b == 0:
        return make("*", product[0], product[1] // b)
    if a.op in "+-":
        x, y = (_exact_quotient(e, b) for e in a.args)
        return None if x is None or y is None else make(a.op, x, y)
    return None


def _fold_mod(a: Int, b: Int) -> Int | None:
    if not isinstance(b, int) or b <= 0:
        return None
    if divisor(a) % b == 0:
        return 0
    low, high = bounds(a)
    return a if low is not None and high is not None and low >= 0 and high < b else None


def _fold_xor(a: Int, b: Int) -> Int | None:
    return a if b == 0 else b if a == 0 else None


def _fold_compare(op: str) -> Callable[[Int, Int], Int | None]:
    def fold(a: Int, b: Int) -> Int | None:
        (al, ah), (bl, bh) = bounds(a), bounds(b)
        below = ah is not None and bl is not None and ah < bl
        at_most = ah is not None and bl is not None and ah <= bl
        above = al is not None and bh is not None and al > bh
        at_least = al is not None and bh is not None and al >= bh
        true = {"<": below, "<=": at_most, ">": above, ">=": at_least, "!=": below or above}
        false = {"<": at_least, "<=": above, ">": at_most, ">=": below, "==": below or above}
        return 1 if true.get(op) else 0 if false.get(op) else None

    return fold


def _fold_and(a: Int, b: Int) -> Int | None:
    if isinstance(a, int):
        return b if a else 0
    if isinstance(b, int):
        return a if b else 0
    return a if a == b else None


def _fold_extreme(op: str) -> Callable[[Int, Int], Int | None]:
    def fold(a: Int, b: Int) -> Int | None:
        (al, ah), (bl, bh) = bounds(a), bounds(b)
        a_first = ah is not None and bl is not None and ah <= bl
        b_first = bh is not None and al is not None and bh <= al
        smaller = a if a_first else b if b_first else None
        larger = b if a_first else a if b_first else None
        return smaller if op == "min" else larger

    return fold


_FOLDS: dict[str, Callable[[Int, Int], Int | None]] = {
    "+": _fold_add, "*": _fold_mul, "//": _fold_div, "%": _fold_mod, "^": _fold_xor,
    "and": _fold_and, "min": _fold_extreme("min"), "max": _fold_extreme("max"),
    **{op: _fold_compare(op) for op in ("<", "<=", ">", ">=", "==", "!=")},
}  # fmt: skip


def divisor(e: Int) -> int:
    """A number proven to divide `e`; 0 where `e` is proven to be 0."""
    return abs(e) if isinstance(e, int) else _divisor(e)


@lru_cache(maxsize=65536)
def _divisor(e: Expr) -> int:
    if isinstance(e, Var):
        return e.divisor
    if e.op in ("+", "-", "min", "max", "%"):
        found = gcd(divisor(e.args[0]), divisor(e.args[1]))
        return lcm(found, _divisor_of_terms(e)) if e.op in "+-" else found
    if e.op == "*":
        return divisor(e.args[0]) * divisor(e.args[1])
    if e.op == "//" and isinstance(e.args[1], int) and divisor(e.args[0]) % e.args[1] == 0:
        return divisor(e.args[0]) // e.args[1]
    if e.op == "^":  # powers of two that divide both divide their XOR
        common = gcd(divisor(e.args[0]), divisor(e.args[1]))
        return common & -common
    return 1


def _divisor_of_terms(e: Expr) -> int:
    """A divisor of a sum by its terms: c (x % n) is c x but for multiples of c n.

    So what is rounded down to a multiple, x - x % n, is seen to be one.
    """
    terms, multiple = dict[Int, int](), 0
    todo: list[tuple[Int, int]] = [(e, 1)]
    while todo:
        x, c = todo.pop()
        if isinstance(x, int):
            terms[1] = terms.get(1, 0) + c * x
        elif x.op in ("+", "-"):
            todo += [(x.args[0], c), (x.args[1], c if x.op == "+" else -c)]
        elif x.op == "*" and isinstance(x.args[1], int):
            todo.append((x.args[0], c * x.args[1]))
        elif x.op == "%" and isinstance(x.args[1], int):
            todo.append((x.args[0], c))
            multiple = gcd(multiple, c * x.args[1])
        else:
            terms[x] = terms.get(x, 0) + c
    return gcd(multiple, *(c * divisor(x) for x, c in terms.items()))


def bounds(e: Int) -> Bounds:
    """Proven bounds, both inclusive; None where nothing is proven."""
    return (e, e) if isinstance(e, int) else _bounds(e)


@lru_cache(maxsize=65536)
def _bounds(e: Expr) -> Bounds:
    if isinstance(e, Var):
        return e.low, e.high
    if e.op in COMPARISONS:
        return 0, 1
    (al, ah), (bl, bh) = bounds(e.args[0]), bounds(e.args[1])
    if e.op == "+":
        return _known(add, al, bl), _known(add, ah, bh)
    if e.op == "-":
        return _known(sub, al, bh), _known(sub, ah, bl)
    if e.op == "min":
        return _known(min, al, bl), _any_known(min, ah, bh)
    if e.op == "max":
        return _any_known(max, al, bl), _known(max, ah, bh)
    if al is None or bl is None or al < 0 or bl < 0:
        return None, None
    return _bounds_nonnegative(e.op, (al, ah), (bl, bh))


def _bounds_nonnegative(op: str, a: tuple[int, int | None], b: tuple[int, int | None]) -> Bounds:
    (al, ah), (bl, bh) = a, b
    if op == "*":
        return al * bl, _known(mul, ah, bh)
    if op == "//":
        return (0 if bh is None else al // max(bh, 1)), None if ah is None else ah // max(bl, 1)
    if op == "%":
        return 0, _any_known(min, ah, _known(sub, bh, 1))
    if op == "&":
        return 0, _any_known(min, ah, bh)
    if op == ">>":
        return 0, ah
    if op == "^" and ah is not None and bh is not None:
        return 0, (1 << max(ah.bit_length(), bh.bit_length())) - 1
    return 0, None


def _known(of: Callable[[int, int], int], a: int | None, b: int | None) -> int | None:
    """What is known of both, where both are."""
    return None if a is None or b is None else of(a, b)


def _any_known(of: Callable[[list[int]], int], *bounds: int | None) -> int | None:
    """What is known of those that are."""
    known = [x for x in bounds if x is not None]
    return of(known) if known else None


def evaluate(e: Int, env: Mapping[str, Any]) -> Any:
    """The value of `e`; variables may be ints or numpy arrays that broadcast.

    Raises:
        ScheduleError: a variable without a value.
    """
    if not isinstance(e, Expr):
        return e
    if isinstance(e, Var):
        if e.name not in env:
            raise ScheduleError(f"variable {e.name}", "has no value here", "a value in scope")
        return env[e.name]
    return _APPLY[e.op](evaluate(e.args[0], env), evaluate(e.args[1], env))


def substitute(e: Int, values: Mapping[str, Int]) -> Int:
    """`e` with variables replaced, simplified again."""
    if not isinstance(e, Expr):
        return e
    if isinstance(e, Var):
        return values.get(e.name, e)
    return make(e.op, substitute(e.args[0], values), substitute(e.args[1], values))


def variables(e: Int) -> Iterator[Var]:
    """The variables of `e`, with repetitions."""
    if isinstance(e, Var):
        yield e
    elif isinstance(e, Expr):
        for arg in e.args:
            yield from variables(arg)


def depends(e: Int, names: frozenset[str]) -> bool:
    """Whether `e` depends on one of the named variables."""
    return any(v.name in names for v in variables(e))


_PRECEDENCE = {
    "*": 7, "//": 7, "%": 7, "+": 6, "-": 6, ">>": 5, "&": 4, "^": 3,
    "<": 2, "<=": 2, ">": 2, ">=": 2, "==": 2, "!=": 2, "and": 1,
}  # fmt: skip


def text(e: Int, spell: Mapping[str, str] | None = None) -> str:
    """Print with as few parentheses as Python and C both need; `spell` renames operators."""
    return _text(e, 0, spell or {})


def _text(e: Int, outer: int, spell: Mapping[str, str]) -> str:
    if not isinstance(e, Expr):
        return str(int(e))
    if isinstance(e, Var):
        return e.name
    if e.op in ("min", "max"):
        a, b = (_text(x, 0, spell) for x in e.args)
        return f"{spell.get(e.op, e.op)}({a}, {b})"
    level = _PRECEDENCE[e.op]
    left, right = _text(e.args[0], level, spell), _text(e.args[1], level + 1, spell)
    # Shifts, masks and comparisons bind differently in C: spelled with parentheses always.
    shown = f"{left} {spell.get(e.op, e.op)} {right}"
    if right.startswith("-") and e.op == "+":
        shown = f"{left} - {right[1:]}"
    return f"({shown})" if level < outer or (outer and level <= 5) else shown
