"""Integers as bits: powers of two as shifts and masks, in two's complement, wrap-around included.

Legend as in pack tensor, whose laws these are.
"""

from __future__ import annotations

import numpy as np

from axe_eq.program import sigalg
from axe_eq.program.decisions import Draw
from axe_eq.program.ops import join_text
from axe_eq.program.signature import make, signature
from axe_eq.program.terms import Cell, In, Nil, Sel, Sig, Spec, Value, op, type_of
from axe_eq.program.types import DTYPES, promote, value_type
from axe_eq.rule.law import Sides
from axe_eq.rule.term import STR, Ground, primitive
from axe_eq_rules.constants import constant, constant_text
from axe_eq_rules.layout_numbers import Laws
from axe_eq_rules.needs import is_defined

LAWS = Laws()


@primitive((STR, STR, STR), (STR, STR))
def in_bits(f: str, spec: str, x: str) -> tuple[str, str] | None:
    """(cell, constant) that do with bits what a cell does with a power of two.

    The constant must be of x's type, which alone the value has then.
    """
    k, of = constant(spec), value_type(x).dtype
    if k is None or DTYPES[of].kind != "i" or promote(of, k[1]) != of:
        return None
    if f == "shl":
        bits = np.iinfo(DTYPES[of].numpy).bits - (2 if DTYPES[of].signed else 1)
        return ("mul", constant_text(2 ** int(k[0]), of)) if 0 <= k[0] <= bits else None
    power = int(k[0])
    if power < 1 or power & (power - 1):
        return None
    found = {"remainder": ("bit_and", power - 1), "floor_divide": ("shr", power.bit_length() - 1)}
    return (found[f][0], constant_text(found[f][1], of)) if f in found else None


def _power(draw: Draw) -> tuple[Ground, ...]:
    """A shift, a remainder or a quotient by a constant."""
    rank, of = draw.integer("rank", 0, 2), draw.pick("dtype", ("i8", "u8", "i16", "i32", "i64"))
    sig = make([sigalg.identity(rank).operands[0], ()], range(rank)).text
    f = draw.pick("cell", ("shl", "remainder", "floor_divide"))
    powers = tuple(range(8)) if f == "shl" else (1, 2, 4, 8, 64, 3)
    k = join_text("full", (), draw.pick("k", powers), of)
    return sig, f, In("x", f"{of}[{','.join('56'[:rank])}]"), k


@LAWS.law(source="folklore: two's complement", sampler=_power)
def power_of_two_in_bits(s: Sig, f: Cell, x: Value, k: Spec) -> Sides:
    """s[f](x, k) = s[g](x, m)   for x << k = x 2^k, x % 2^n = x & (2^n - 1), x // 2^n = x >> n."""
    g, m = in_bits(f, k, type_of(x))
    return op(s, f, x, Sel(k, Nil())), op(s, g, x, Sel(m, Nil()))


@primitive((STR, STR, STR, STR, STR), (STR,))
def less_twins(outer: str, inner: str, f: str, x: str, y: str) -> str | None:
    """The signature s.0(t) less an operand that occurs twice, for cells that undo themselves."""
    s, t, own = signature(outer), signature(inner), value_type(x).dtype
    if f not in ("bit_xor", "xor") or s.n_reduced or t.n_reduced or len(t.operands) != 2:
        return None
    whole = sigalg.inline(s, 0, t)
    same = whole.operands[1] == whole.operands[2] and promote(own, value_type(y).dtype) == own
    return sigalg.without_operand(whole, 1, 2).text if same else None


def _twice(draw: Draw) -> tuple[Ground, ...]:
    """A value changed by another one twice."""
    a, b = draw.integer("a", 1, 4), draw.integer("b", 1, 4)
    of = draw.pick("dtype", ("bool", "i8", "u8", "i32", "i64"))
    read, shape = draw.pick("y", (("a b", f"{a},{b}"), ("b", f"{b}"), ("a", f"{a}"), ("", "")))
    sig = signature(f"a b, {read} -> a b").text
    f = "xor" if of == "bool" else "bit_xor"
    return sig, sig, f, In("x", f"{of}[{a},{b}]"), In("y", f"{of}[{shape}]")


@LAWS.law(source="folklore: exclusive or is a group of exponent 2", sampler=_twice)
def exclusive_or_twice(s: Sig, t: Sig, f: Cell, x: Value, y: Value) -> Sides:
    """s[f](t[f](x, y), y) = u[id](x)   for exclusive or, if y is read alike and defined."""
    u = less_twins(s, t, f, type_of(x), type_of(y))
    return op(s, f, op(t, f, x, y), y), op(u, "id", x), is_defined(y)
