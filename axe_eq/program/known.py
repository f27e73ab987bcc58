"""What cells and reductions make of facts: the tables that the standard operators declare.

See `axe_eq.program.facts`, which also says what the bits claim.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from operator import and_, or_

DEFINED = 1  # at all finite inputs
BELOW = 2  # never +inf
ABOVE = 4  # never -inf
NONNEGATIVE = 8
NONZERO = 16

FINITE_WHERE_DEFINED = BELOW | ABOVE
FINITE = DEFINED | FINITE_WHERE_DEFINED
POSITIVE = NONNEGATIVE | NONZERO
ALL = FINITE | POSITIVE


def has(facts: int, wanted: int) -> bool:
    """Whether all of the wanted facts are known."""
    return facts & wanted == wanted


# -- cells -----------------------------------------------------------------------------------------

Rule = Callable[..., int]


def _when(found: bool, facts: int) -> int:
    return facts if found else 0


def _negated(x: int) -> int:
    kept = x & (DEFINED | NONZERO)
    return kept | _when(has(x, BELOW), ABOVE) | _when(has(x, ABOVE), BELOW)


def _sum(*xs: int) -> int:
    common = reduce(and_, xs)
    found = common & (FINITE_WHERE_DEFINED | NONNEGATIVE)
    # Infinities of both signs would be undefined.
    found |= common & DEFINED if common & FINITE_WHERE_DEFINED else 0
    return found | _when(has(common, NONNEGATIVE) and bool(reduce(or_, xs) & NONZERO), NONZERO)


def _product(*xs: int) -> int:
    common = reduce(and_, xs)
    found = common & POSITIVE
    finite = has(common, FINITE_WHERE_DEFINED)
    found |= common & DEFINED if finite or has(common, NONZERO) else 0  # 0 times infinity
    if finite:
        return found | FINITE_WHERE_DEFINED
    wild = [x for x in xs if not has(x, FINITE_WHERE_DEFINED)]
    rest = [x for x in xs if has(x, FINITE_WHERE_DEFINED)]
    if len(wild) == 1 and all(has(x, NONNEGATIVE) for x in rest):
        return found | wild[0] & FINITE_WHERE_DEFINED
    return found | _when(has(common, NONNEGATIVE), ABOVE)


def _quotient(x: int, y: int) -> int:
    finite = has(x, FINITE_WHERE_DEFINED), has(y, FINITE_WHERE_DEFINED)
    found = x & y & DEFINED if has(y, NONZERO) and any(finite) else 0
    found |= x & y & NONNEGATIVE | _when(finite[1], x & NONZERO)
    if finite[0]:
        return found | FINITE_WHERE_DEFINED
    return found | _when(has(y, NONNEGATIVE), x & FINITE_WHERE_DEFINED)


def _exp(x: int) -> int:
    return x & (DEFINED | BELOW) | ABOVE | NONNEGATIVE | _when(has(x, ABOVE), NONZERO)


def _log(x: int) -> int:
    return x & BELOW | ABOVE | _when(has(x, POSITIVE), x & DEFINED)


def _log1p(x: int) -> int:
    return (
        x & (BELOW | POSITIVE if has(x, NONNEGATIVE) else BELOW)
        | ABOVE
        | _when(has(x, NONNEGATIVE), x & DEFINED)
    )


def _expm1(x: int) -> int:
    return x & (DEFINED | BELOW | NONNEGATIVE) | ABOVE


def _sqrt(x: int) -> int:
    return x & (BELOW | NONZERO) | ABOVE | NONNEGATIVE | _when(has(x, NONNEGATIVE), x & DEFINED)


def _rsqrt(x: int) -> int:
    found = FINITE_WHERE_DEFINED | NONNEGATIVE | _when(has(x, BELOW), NONZERO)
    return found | _when(has(x, POSITIVE), x & DEFINED)


def _sigmoid(x: int) -> int:
    return x & DEFINED | FINITE_WHERE_DEFINED | NONNEGATIVE | _when(has(x, ABOVE), NONZERO)


def _bounded(x: int) -> int:
    return x & (DEFINED | POSITIVE) | FINITE_WHERE_DEFINED


def _wave(x: int) -> int:
    return FINITE_WHERE_DEFINED | _when(has(x, FINITE_WHERE_DEFINED), x & DEFINED)


def _cosh(x: int) -> int:
    return _size(x) | NONZERO


def _size(x: int) -> int:
    found = x & (DEFINED | NONZERO) | ABOVE | NONNEGATIVE
    return found | _when(has(x, FINITE_WHERE_DEFINED), BELOW)


def _stepped(x: int) -> int:
    return x & ~NONZERO


def _maximum(*xs: int) -> int:
    common, either = reduce(and_, xs), reduce(or_, xs)
    found = common & (DEFINED | BELOW | NONZERO) | either & (ABOVE | NONNEGATIVE)
    return found | _when(any(has(x, POSITIVE) for x in xs), NONZERO)


def _minimum(*xs: int) -> int:
    return reduce(and_, xs) & ~BELOW | reduce(or_, xs) & BELOW


def _where(condition: int, x: int, y: int) -> int:
    return x & y & (condition | ~DEFINED)


def _truth(*xs: int) -> int:
    return reduce(and_, xs) & DEFINED | FINITE_WHERE_DEFINED | NONNEGATIVE


def _power(x: int, y: int) -> int:
    finite = has(x & y, FINITE_WHERE_DEFINED)
    found = _when(finite, FINITE_WHERE_DEFINED) | x & NONNEGATIVE
    return found | _when(finite and has(x, POSITIVE), x & y & DEFINED | NONZERO)


def _floored(x: int, y: int) -> int:
    finite = has(x & y, FINITE_WHERE_DEFINED)
    return _when(finite, FINITE_WHERE_DEFINED | _when(has(y, NONZERO), x & y & DEFINED))


def _finite_only(x: int, *others: int) -> int:
    """Defined with its operands; finite where they all are."""
    common = reduce(and_, others, x)
    return common & DEFINED | _when(has(common, FINITE_WHERE_DEFINED), FINITE_WHERE_DEFINED)


def _bits(*xs: int) -> int:
    return reduce(and_, xs) & DEFINED | FINITE_WHERE_DEFINED


CELL_FACTS: dict[str, Rule] = {
    "id": lambda x: x, "cast": lambda x: x, "where": _where, "add": _sum, "mul": _product,
    "product": _product,
    "neg": _negated,
    "sub": lambda x, y: _sum(x, _negated(y)), "div": _quotient, "maximum": _maximum,
    "minimum": _minimum, "abs": _size, "sign": _bounded, "exp": _exp, "expm1": _expm1,
    "log": _log, "log2": _log, "log10": _log, "log1p": _log1p, "sqrt": _sqrt, "rsqrt": _rsqrt,
    "sigmoid": _sigmoid, "tanh": _bounded, "erf": _bounded, "atan": _bounded, "sin": _wave,
    "cos": _wave, "tan": lambda x: FINITE_WHERE_DEFINED, "sinh": lambda x: x,
    "asinh": lambda x: x, "cosh": _cosh, "atanh": lambda x: FINITE_WHERE_DEFINED,
    "asin": lambda x: FINITE_WHERE_DEFINED, "acos": lambda x: FINITE_WHERE_DEFINED | NONNEGATIVE,
    "acosh": lambda x: x & BELOW | ABOVE | NONNEGATIVE,
    "hypot": lambda x, y: _size(x & y) & ~NONZERO,
    "logaddexp": lambda x, y: x & y & (DEFINED | BELOW) | (x | y) & ABOVE,
    "atan2": _bits, "copysign": _finite_only, "pow": _power, "floor_divide": _floored,
    "remainder": _floored, **dict.fromkeys(("floor", "ceil", "trunc", "round"), _stepped),
    **dict.fromkeys(
        ("eq", "ne", "lt", "le", "gt", "ge", "isnan", "isfinite", "isinf", "signbit", "and", "or",
         "xor", "not"), _truth),
    **dict.fromkeys(("bit_and", "bit_or", "bit_xor", "bit_not"), _bits),
}  # fmt: skip


def _reduced_product(x: int) -> int:
    finite = has(x, FINITE_WHERE_DEFINED)
    found = x & POSITIVE | (x & DEFINED if finite or has(x, NONZERO) else 0)
    return found | (FINITE_WHERE_DEFINED if finite else _when(has(x, NONNEGATIVE), ABOVE))


MONOID_FACTS: dict[str, Rule] = {
    "+": lambda x: _sum(x, x), "*": _reduced_product, "max": lambda x: x,
    "min": lambda x: x, "and": lambda x: x, "or": lambda x: x,
}  # fmt: skip


def _softmax(scores: int, values: int) -> int:
    """Weighted means; undefined where all scores are -inf."""
    finite = has(scores & values, FINITE_WHERE_DEFINED)
    found = values & NONNEGATIVE | _when(finite, scores & values & DEFINED)
    return found | _when(has(values, FINITE_WHERE_DEFINED), FINITE_WHERE_DEFINED)


def _position(value: int, index: int) -> int:
    return index & (value | ~DEFINED)


MONOID_FACTS |= {"softmax": _softmax, "argmax": _position, "argmin": _position}
