"""What is known of a value at all finite inputs: defined, never infinite, of one sign.

Over the reals inputs are finite, constants are what their element type holds, and infinities are
computed with as IEEE 754 does; what would be NaN, and poles such as 1/0 and log(0), are undefined.
A law that drops a value, or puts one where it was not, is true only if that value is defined, or is
no infinity. These facts decide that from the operators alone: they are proved, never sampled, and
what is not known is left out. So facts are sets of bits; fewer bits say less.

Every fact is about all elements of a value; all but `DEFINED` are about those that are defined.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import cache, reduce
from operator import and_, or_
from typing import Any

import numpy as np

from axe_eq.program.node import sel_type
from axe_eq.program.ops import cell, selector
from axe_eq.program.signature import signature
from axe_eq.program.terms import (
    ARGS,
    VALUE,
    Args,
    Cell,
    Cons,
    In,
    Nil,
    Op,
    Scan,
    Sel,
    Sig,
    Spec,
    Text,
    Type,
    Value,
    operands,
    type_of,
    types_of,
)
from axe_eq.program.types import DTYPES, ValueType, value_type
from axe_eq.rule.term import INT, STR, Analysis, Term, primitive

DEFINED = 1  # at all finite inputs
BELOW = 2  # never +inf
ABOVE = 4  # never -inf
NONNEGATIVE = 8
NONZERO = 16

FINITE_WHERE_DEFINED = BELOW | ABOVE
FINITE = DEFINED | FINITE_WHERE_DEFINED
POSITIVE = NONNEGATIVE | NONZERO
ALL = FINITE | POSITIVE

# Captured arrays with infinities or NaN have names that say so: of others a statement claims its
# equality for all finite values, of these for all that the name allows.
CAPTURED, MASKED, ANYTHING = "const_", "const_below_", "const_any_"
_LARGEST = 1 << 20  # elements of a constant sequence that are looked at


def captured_name(values: Any) -> str:
    """How the name of a captured array begins, by what it holds."""
    array = np.asarray(values)
    if array.dtype.kind in "ib":
        return CAPTURED
    wide = array.astype(np.float64)
    if np.isfinite(wide).all():
        return CAPTURED
    return ANYTHING if (np.isnan(wide) | (wide == np.inf)).any() else MASKED


def facts_of_input(name: str, type: str) -> int:
    """Facts about an input: finite, unless its name says that it is a captured array that is not.

    Example:
        >>> facts_of_input("x", "f32[4]") == FINITE
        True
    """
    kind = DTYPES[value_type(type).dtype].kind
    if name.startswith(ANYTHING):  # no array of integers or bools has that name, but samples do
        return 0 if kind == "f" else FINITE_WHERE_DEFINED
    if kind == "b":
        return FINITE | NONNEGATIVE
    return DEFINED | BELOW if name.startswith(MASKED) else FINITE


def facts_of_number(value: Any) -> int:
    """Facts about a constant."""
    number = value if isinstance(value, float) else float(max(min(value, 1), -1))
    if math.isnan(number):
        return ALL & ~DEFINED  # of no element that is defined anything is false
    found = DEFINED
    found |= BELOW if number < math.inf else 0
    found |= ABOVE if number > -math.inf else 0
    found |= NONNEGATIVE if number >= 0 else 0
    return found | (NONZERO if number else 0)


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


_RULES: dict[str, Rule] = {
    "id": lambda x: x, "where": _where, "add": _sum, "mul": _product, "neg": _negated,
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
# Cells whose value is that of an operand: of integers too these keep the sign.
_CHOICES = frozenset({"id", "where", "maximum", "minimum"})


def _reduced_product(x: int) -> int:
    finite = has(x, FINITE_WHERE_DEFINED)
    found = x & POSITIVE | (x & DEFINED if finite or has(x, NONZERO) else 0)
    return found | (FINITE_WHERE_DEFINED if finite else _when(has(x, NONNEGATIVE), ABOVE))


_REDUCTIONS: dict[str, Callable[[int], int]] = {
    "": lambda x: x, "+": lambda x: _sum(x, x), "*": _reduced_product, "max": lambda x: x,
    "min": lambda x: x, "and": lambda x: x, "or": lambda x: x,
}  # fmt: skip


def _softmax(scores: int, values: int) -> int:
    """Weighted means; undefined where all scores are -inf."""
    finite = has(scores & values, FINITE_WHERE_DEFINED)
    found = values & NONNEGATIVE | _when(finite, scores & values & DEFINED)
    return found | _when(has(values, FINITE_WHERE_DEFINED), FINITE_WHERE_DEFINED)


_PAIRS: dict[str, Callable[[int, int], int]] = {
    "softmax": _softmax, "argmax": lambda value, index: value & DEFINED & index | index & ~DEFINED,
    "argmin": lambda value, index: value & DEFINED & index | index & ~DEFINED,
}  # fmt: skip


def facts_of_op(sig: str, text: str, types: Sequence[ValueType], facts: Sequence[int]) -> int:
    """Facts about a block operator's value from those about its operands.

    Args:
        sig: the text of its signature.
        text: its cell.
        types: of its operands and, last, of its value.
        facts: about its operands. An operand that is multiplied with itself is for the caller to
            see: it is told as one operand less, and `POSITIVE` facts of the square.
    """
    monoid = signature(sig).monoid
    if monoid in _PAIRS:
        return _PAIRS[monoid](*facts) if len(facts) == 2 and text == "pair" else 0
    if monoid not in _REDUCTIONS:
        return 0
    declared, _ = cell(text)
    kinds = [DTYPES[t.dtype].kind for t in types]
    if declared.name == "cast":
        found = _cast(kinds[0], types[0].dtype, kinds[-1], types[-1].dtype, facts[0])
    else:
        rule = _RULES.get(declared.name)
        found = 0 if rule is None else rule(*facts)
    if kinds[-1] == "i":
        found |= FINITE_WHERE_DEFINED
        if declared.name not in _CHOICES or monoid in ("+", "*") or len(set(kinds[-2:])) > 1:
            found &= FINITE  # they wrap around
    if kinds[-1] == "b":
        found |= FINITE_WHERE_DEFINED | NONNEGATIVE
    return _REDUCTIONS[monoid](found) & (
        FINITE if kinds[-1] == "i" and monoid in ("+", "*") else ALL
    )


def _cast(kind: str, own: str, to: str, target: str, x: int) -> int:
    """A conversion: between floats nothing happens; integers may not hold what is given."""
    if to == "f" or own == target:
        return x
    if to == "b":
        return x & DEFINED | FINITE_WHERE_DEFINED | NONNEGATIVE
    return FINITE_WHERE_DEFINED | (x & DEFINED if kind in "ib" else 0)


@cache
def facts_of_selector(text: str, types: tuple[ValueType, ...], facts: tuple[int, ...]) -> int:
    """Facts about a selector's value: those that all that it moves have."""
    declared, params = selector(text)
    if declared.fill is not None:
        return reduce(and_, facts, facts_of_number(declared.fill(params)))
    if facts:
        return reduce(and_, facts)
    of = sel_type(text, types)
    if DTYPES[of.dtype].kind == "b":
        return FINITE | NONNEGATIVE
    if of.size > _LARGEST:
        return FINITE if DTYPES[of.dtype].kind == "i" else 0
    values = declared.run(params, ()).astype(np.float64)
    return reduce(and_, map(facts_of_number, (values.min(), values.max()))) & ~NONZERO


# -- of terms --------------------------------------------------------------------------------------


@primitive((STR, STR), (INT,))
def input_facts(name: str, type: str) -> int:
    """`facts_of_input` in laws."""
    return facts_of_input(name, type)


@primitive((STR, STR, STR, STR, INT, INT), (INT,))
def op_facts(sig: str, text: str, types: str, of: str, facts: int, squared: int) -> int:
    """`facts_of_op` in laws; operands' facts are digits in base 32, the first one the lowest."""
    given = [value_type(t) for t in types.split(";")[:-1]]
    found = facts_of_op(sig, text, (*given, value_type(of)), _digits(facts, len(given)))
    if squared and _is_square(sig, text) and DTYPES[value_type(of).dtype].kind == "f":
        found |= NONNEGATIVE
    return found


@primitive((STR, STR, INT), (INT,))
def sel_facts(spec: str, types: str, facts: int) -> int:
    """`facts_of_selector` in laws."""
    given = tuple(value_type(t) for t in types.split(";")[:-1])
    return facts_of_selector(spec, given, tuple(_digits(facts, len(given))))


_MOST = 12  # operands whose facts fit a number; of more nothing is known


def _digits(facts: int, count: int) -> list[int]:
    if count > _MOST:
        return [0] * count
    return [facts >> 5 * n & ALL for n in range(count)]


def _is_square(sig: str, text: str) -> bool:
    s = signature(sig)
    same = len(s.operands) == 2 and s.operands[0] == s.operands[1]
    return same and text == "mul" and s.monoid in ("", "+")


def _compute(term: Term, known: Callable[[Term], Any]) -> int | None:
    if term.symbol is In:
        return facts_of_input(*term.args)
    if term.symbol is Scan:
        return 0  # nothing is claimed
    given, of = operands(term), type_of.of(term)
    types, facts = types_of.of(term.args[-1]), [known(x) for x in given]
    if of is None or types is None or None in facts:
        return None
    digits = sum(f << 5 * n for n, f in enumerate(facts)) if len(facts) <= _MOST else 0
    if term.symbol is Sel:
        return int(sel_facts(term.args[0], types, digits))
    squared = int(len(given) == 2 and given[0] is given[1])
    return int(op_facts(term.args[0], term.args[1], types, of, digits, squared))


def _compute_list(term: Term, known: Callable[[Term], Any]) -> int | None:
    facts = [facts_of.of(x) for x in operands(term)]
    if None in facts:
        return None
    return sum(f << 5 * n for n, f in enumerate(facts)) if len(facts) <= _MOST else 0


facts_of = Analysis("facts", VALUE, INT, _compute, merge="(| old new)", asked=True)
list_facts_of = Analysis("list_facts", ARGS, INT, _compute_list, merge="(| old new)", asked=True)


@primitive((INT, INT), (INT,))
def prepended(head: int, rest: int) -> int:
    """The digits of a list of operands' facts; 0 where they are too many."""
    return rest << 5 | head if rest >> 5 * (_MOST - 1) == 0 else 0


@facts_of.rule
def _facts_in(name: Text, type: Type) -> tuple[Term, Any]:
    return In(name, type), input_facts(name, type)


@facts_of.rule
def _facts_op(sig: Sig, text: Cell, rest: Args) -> tuple[Term, Any]:
    term = Op(sig, text, rest)
    return term, op_facts(sig, text, types_of(rest), type_of(term), list_facts_of(rest), 0)


@facts_of.rule
def _facts_square(sig: Sig, text: Cell, x: Value) -> tuple[Term, Any]:
    both = Cons(x, Cons(x, Nil()))
    term = Op(sig, text, both)
    return term, op_facts(sig, text, types_of(both), type_of(term), list_facts_of(both), 1)


@facts_of.rule
def _facts_sel(spec: Spec, rest: Args) -> tuple[Term, Any]:
    return Sel(spec, rest), sel_facts(spec, types_of(rest), list_facts_of(rest))


@list_facts_of.rule
def _facts_nil() -> tuple[Term, Any]:
    return Nil(), 0


@list_facts_of.rule
def _facts_cons(head: Value, rest: Args) -> tuple[Term, Any]:
    return Cons(head, rest), prepended(facts_of(head), list_facts_of(rest))
