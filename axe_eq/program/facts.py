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
from operator import and_
from typing import Any

import numpy as np

from axe_eq.program.gathers import looks
from axe_eq.program.known import (
    ABOVE,
    ALL,
    BELOW,
    DEFINED,
    FINITE,
    FINITE_WHERE_DEFINED,
    NONNEGATIVE,
    NONZERO,
    has,
)
from axe_eq.program.node import sel_type
from axe_eq.program.ops import MONOIDS, cell, selector
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

# Captured arrays with infinities or NaN have names that say so: of others a statement claims its
# equality for all finite values, of these for all that the name allows.
CAPTURED, MASKED, ANYTHING = "const_", "const_below_", "const_any_"
_LARGEST = 1 << 20  # elements of a constant sequence that are looked at


def captured_name(values: Any) -> str:
    """How the name of a captured array begins, by what it holds."""
    array = np.asarray(values)
    if array.dtype.kind in "iub":
        return CAPTURED
    wide = array.astype(np.float64)
    if np.isfinite(wide).all():
        return CAPTURED
    return ANYTHING if (np.isnan(wide) | (wide == np.inf)).any() else MASKED


def is_captured(name: str) -> bool:
    """Whether an input is a captured array, called by the digest of what it holds.

    >>> is_captured("const_1f"), is_captured("x")
    (True, False)
    """
    return name.startswith(CAPTURED)


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


# -- operators -------------------------------------------------------------------------------------


def facts_of_op(sig: str, text: str, types: Sequence[ValueType], facts: Sequence[int]) -> int:
    """Facts about a block operator's value from those about its operands.

    Args:
        sig: the text of its signature.
        text: its cell.
        types: of its operands and, last, of its value.
        facts: about its operands. That an operand is multiplied with itself is for the caller to
            see (`op_facts`).
    """
    monoid = MONOIDS[name] if (name := signature(sig).monoid) else None
    declared, _ = cell(text)
    if monoid is not None and monoid.n_values > 1:
        if monoid.facts is None or declared.rounds or len(facts) != monoid.n_values:
            return 0
        return monoid.facts(*facts)
    if declared.facts is None or (monoid is not None and monoid.facts is None):
        return 0
    found = declared.facts(*facts)
    kinds = [DTYPES[t.dtype].kind for t in types]
    if declared.result == "param":
        found = _converted(kinds[0], types[0].dtype, kinds[-1], types[-1].dtype, found)
    wraps = declared.rounds or (monoid is not None and not monoid.exact)
    if kinds[-1] == "i":
        found |= FINITE_WHERE_DEFINED
        if wraps or len(set(kinds[-2:])) > 1:
            found &= FINITE
    if kinds[-1] == "b":
        found |= FINITE_WHERE_DEFINED | NONNEGATIVE
    found = found if monoid is None or monoid.facts is None else monoid.facts(found)
    return found & (FINITE if kinds[-1] == "i" and wraps else ALL)


def _converted(kind: str, own: str, to: str, target: str, x: int) -> int:
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
    if found := looks(text, types):
        # What says where is not moved; whether it always is an index nobody knows.
        says = {look.by for look in found}
        moved = [f for n, f in enumerate(facts) if n not in says]
        return reduce(and_, moved) & ~DEFINED
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
    if len(s.operands) != 2 or s.operands[0] != s.operands[1] or not cell(text)[0].product:
        return False
    sums = MONOIDS[s.monoid].facts if s.monoid else None
    return not s.monoid or (sums is not None and has(sums(NONNEGATIVE), NONNEGATIVE))


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
