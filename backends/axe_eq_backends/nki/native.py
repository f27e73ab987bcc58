"""Cells of floats as cells that an engine computes: what NKI has no operator or function for.

Formulas hold over the reals, and are right at infinities where the cell is defined there; they keep
the digits that the obvious one loses (log1p, expm1 near 0). Functions of the scalar engine have a
range; arguments are brought into it (nki.api.shared, "Valid Input Range").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType

from axe_eq.kernel.cells import Apply, Cell, Constant, apply


class Native(Apply):
    """A cell that is the engine's own function, where its name has a formula too."""


def _native(name: str, x: Cell) -> Native:
    return Native(name, (x,))


_NEAREST = 1.5 * 2.0**23  # added and taken away again: the nearest whole number, ties to even
_LEAST = 2.0**-126  # of normal numbers: the reciprocal of less may be infinite
_EXACT = 2.0**22  # beyond, float32 sums with it are no longer whole numbers; from 2^23 all are


def _nearest(x: Cell) -> Cell:
    return apply("where", apply("lt", apply("abs", x), _EXACT), _nearest_of_small(x), x)


def _nearest_of_small(x: Cell) -> Cell:
    return apply("sub", apply("add", x, _NEAREST), _NEAREST)


def _floor(x: Cell) -> Cell:
    near = _nearest(x)
    return apply("sub", near, apply("cast f32", apply("gt", near, x)))


def _ceil(x: Cell) -> Cell:
    near = _nearest(x)
    return apply("add", near, apply("cast f32", apply("lt", near, x)))


def _trunc(x: Cell) -> Cell:
    return apply("mul", apply("sign", x), _floor(apply("abs", x)))


def _div(x: Cell, y: Cell) -> Cell:
    return apply("mul", x, apply("div", Constant(1.0), y))


def _floor_divide(x: Cell, y: Cell) -> Cell:
    """The floor of the quotient, put right where rounding took it past a whole number."""
    q = _floor(_div(x, y))
    left = apply("sub", x, apply("mul", q, y))
    over = apply("lt", apply("mul", left, apply("sign", y)), 0.0)
    q = apply("sub", q, apply("cast f32", over))
    left = apply("sub", x, apply("mul", q, y))
    more = apply("add", q, 1.0)  # also where it leaves nothing, and not where `left` rounds to y
    even = apply("eq", apply("sub", x, apply("mul", more, y)), 0.0)
    under = apply("or", apply("gt", apply("abs", left), apply("abs", y)), even)
    q = apply("add", q, apply("cast f32", under))
    if _is_finite(y):
        return q
    opposite = apply("cast f32", apply("lt", apply("mul", x, apply("sign", y)), 0.0))
    by_infinity = apply("sub", apply("sub", x, x), opposite)  # NaN of infinity itself
    return apply("where", _endless(y), by_infinity, q)


def _remainder(x: Cell, y: Cell) -> Cell:
    left = apply("sub", x, apply("mul", _floor_divide(x, y), y))
    if _is_finite(y):
        return left
    opposite = apply("lt", apply("mul", x, apply("sign", y)), 0.0)
    by_infinity = apply("add", apply("where", opposite, y, x), apply("sub", x, x))
    return apply("where", _endless(y), by_infinity, left)


def _is_finite(x: Cell) -> bool:
    return isinstance(x, Constant) and math.isfinite(x.value)


def _endless(x: Cell) -> Cell:
    return apply("eq", apply("abs", x), math.inf)


_PARTS = (6.28125, 253 * 2.0**-17)  # of 2 pi, of 8 bits: products with up to 2^16 turns are exact


def _turned(x: Cell) -> Cell:
    """X less whole turns, within [-pi, pi] and what x / 2 pi rounds: a 1000th at 10,000 turns."""
    turns = _nearest_of_small(apply("mul", x, 1 / (2 * math.pi)))
    for part in (*_PARTS, 2 * math.pi - sum(_PARTS)):
        x = apply("sub", x, apply("mul", turns, part))
    return x


def _sin(x: Cell) -> Cell:
    """That of the nearer one of x and its mirror image at a right angle, within [-pi, pi]."""
    x = _turned(x)
    mirrored = (apply("sub", Constant(side), x) for side in (math.pi, -math.pi))
    return _sine(apply("maximum", apply("minimum", x, next(mirrored)), next(mirrored)))


def _cos(x: Cell) -> Cell:
    return _sine(apply("sub", Constant(math.pi / 2), apply("abs", _turned(x))))


def _sine(x: Cell) -> Cell:
    """The engine's, within its range, which what is left of very many turns is not in."""
    return _native("sin", apply("maximum", apply("minimum", x, math.pi), -math.pi))


def _log1p(x: Cell) -> Cell:
    """log(u) x / (u - 1), u = 1 + x rounded: the error of u cancels; x itself where u is 1."""
    u = apply("add", x, 1.0)
    less = apply("sub", u, 1.0)
    wide = apply("gt", apply("abs", x), 0.5)
    near = apply("eq", less, 0.0)
    log = apply("log", u)
    found = apply("mul", log, _div(x, less))
    return apply("where", near, x, apply("where", wide, log, found))


def _expm1(x: Cell) -> Cell:
    """tanh(x / 2) (e^x + 1)."""
    return apply("mul", apply("tanh", apply("mul", x, 0.5)), apply("add", apply("exp", x), 1.0))


def _sinh(x: Cell) -> Cell:
    """(e^x - e^-x) / 2, where e^x - 1 is kept: t + t / (t + 1), halved; e^-x is lost beyond 9."""
    a = apply("abs", x)
    t = _expm1(a)
    half = apply("mul", apply("add", t, _div(t, apply("add", t, 1.0))), 0.5)
    half = apply("where", apply("gt", a, 9.0), _half_exp(a), half)
    return apply("mul", apply("sign", x), half)


def _cosh(x: Cell) -> Cell:
    a = apply("abs", x)
    return apply("add", _half_exp(a), _half_exp(apply("mul", a, -1.0)))


def _half_exp(x: Cell) -> Cell:
    """e^x / 2 by the half of x, as e^x may be infinite where it is not."""
    root = apply("exp", apply("mul", x, 0.5))
    return apply("mul", apply("mul", root, 0.5), root)


def _asinh(x: Cell) -> Cell:
    a = apply("abs", x)
    root = apply("sqrt", apply("add", apply("mul", a, a), 1.0))
    # a + a^2 / (1 + sqrt(1 + a^2)) is small where a is: log1p of it.
    small = _log1p(apply("add", a, _div(apply("mul", a, a), apply("add", root, 1.0))))
    large = apply("add", apply("log", a), math.log(2.0))
    found = apply("where", apply("gt", a, 1e9), large, small)
    return apply("mul", apply("sign", x), found)


def _acosh(x: Cell) -> Cell:
    less, more = apply("sub", x, 1.0), apply("add", x, 1.0)
    # Two roots: below 1 there is none, and the product of large negative ones would be infinite.
    root = apply("mul", apply("sqrt", less), apply("sqrt", more))
    small = _log1p(apply("add", less, root))
    large = apply("add", apply("log", x), math.log(2.0))
    return apply("where", apply("gt", x, 1e9), large, small)


def _atanh(x: Cell) -> Cell:
    ratio = _div(apply("mul", x, 2.0), apply("sub", Constant(1.0), x))
    return apply("mul", _log1p(ratio), 0.5)


def _atan(x: Cell) -> Cell:
    """Of an argument within [-1, 1]: that of 1 / x, taken from a right angle, beyond."""
    a = apply("abs", x)
    wide = apply("gt", a, 1.0)
    inner = apply("where", wide, apply("div", Constant(1.0), a), a)
    angle = _native("atan", inner)
    turned = apply("sub", Constant(math.pi / 2), angle)
    return apply("mul", apply("sign", x), apply("where", wide, turned, angle))


def _asin(x: Cell) -> Cell:
    root = apply("sqrt", apply("mul", apply("sub", Constant(1.0), x), apply("add", x, 1.0)))
    return _atan2(x, root)


def _acos(x: Cell) -> Cell:
    root = apply("sqrt", apply("mul", apply("sub", Constant(1.0), x), apply("add", x, 1.0)))
    return _atan2(root, x)


def _atan2(y: Cell, x: Cell) -> Cell:
    """The angle of (x, y): that of the smaller over the greater, then by octants."""
    a, b = apply("abs", y), apply("abs", x)
    low, high = apply("minimum", a, b), apply("maximum", a, b)
    ratio = apply("where", apply("lt", high, _LEAST), Constant(0.0), _div(low, high))
    ratio = apply("where", apply("eq", low, math.inf), Constant(1.0), ratio)
    angle: Cell = _native("atan", ratio)
    steep = apply("gt", a, b)
    angle = apply("where", steep, apply("sub", Constant(math.pi / 2), angle), angle)
    back = _signbit(x)
    angle = apply("where", back, apply("sub", Constant(math.pi), angle), angle)
    return _copysign(angle, y)


def _tan(x: Cell) -> Cell:
    return _div(_sin(x), _cos(x))


def _hypot(x: Cell, y: Cell) -> Cell:
    """High sqrt(1 + (low / high)^2)."""
    a, b = apply("abs", x), apply("abs", y)
    low, high = apply("minimum", a, b), apply("maximum", a, b)
    ratio = _div(low, high)
    found = apply("mul", high, apply("sqrt", apply("add", apply("mul", ratio, ratio), 1.0)))
    plain = apply("or", apply("lt", high, _LEAST), apply("eq", high, math.inf))
    return apply("where", plain, high, found)


def _logaddexp(x: Cell, y: Cell) -> Cell:
    """Max + log1p(e^-|x - y|); the greater one where it is infinite."""
    high = apply("maximum", x, y)
    apart = apply("mul", apply("abs", apply("sub", x, y)), -1.0)
    found = apply("add", high, _log1p(apply("exp", apart)))
    return apply("where", apply("eq", apply("abs", high), math.inf), high, found)


def _pow(x: Cell, y: Cell) -> Cell:
    """e^(y log |x|), with the sign of an odd power; NaN where a negative base has no power."""
    a = apply("abs", x)
    power = apply("exp", apply("mul", y, apply("log", a)))
    size = apply("where", apply("eq", a, 1.0), Constant(1.0), power)  # of infinite y too
    half = apply("mul", y, 0.5)
    whole = apply("eq", _floor(y), y)
    odd = apply("and", whole, apply("ne", _floor(half), half))
    below = apply("lt", x, 0.0)
    signed = apply("where", apply("and", below, odd), apply("mul", size, -1.0), size)
    rooted = apply("and", below, apply("gt", x, -math.inf))
    lost = apply("and", rooted, apply("not", whole))
    found = apply("where", lost, Constant(math.nan), signed)
    return apply("where", apply("eq", y, 0.0), Constant(1.0), found)


def _signbit(x: Cell) -> Cell:
    """Negative, or -0.0, over which one is minus infinity."""
    under = apply("lt", apply("div", Constant(1.0), x), 0.0)
    return apply("or", apply("lt", x, 0.0), under)


def _copysign(x: Cell, y: Cell) -> Cell:
    a = apply("abs", x)
    return apply("where", _signbit(y), apply("mul", a, -1.0), a)


def _isfinite(x: Cell) -> Cell:
    return apply("eq", apply("sub", x, x), 0.0)


EXPANSIONS: Mapping[str, Callable[..., Cell]] = MappingProxyType({
    "neg": lambda x: apply("mul", x, -1.0), "product": lambda x, y: apply("mul", x, y),
    "div": _div, "floor": _floor, "ceil": _ceil, "trunc": _trunc, "round": _nearest,
    "floor_divide": _floor_divide, "remainder": _remainder, "pow": _pow, "sin": _sin, "cos": _cos,
    "tan": _tan, "sinh": _sinh, "cosh": _cosh, "asinh": _asinh, "acosh": _acosh, "atanh": _atanh,
    "asin": _asin, "acos": _acos, "atan": _atan, "atan2": _atan2, "log1p": _log1p,
    "expm1": _expm1, "hypot": _hypot, "logaddexp": _logaddexp, "copysign": _copysign,
    "log2": lambda x: apply("mul", apply("log", x), 1 / math.log(2)),
    "log10": lambda x: apply("mul", apply("log", x), 1 / math.log(10)),
    "isnan": lambda x: apply("ne", x, x),
    "isfinite": _isfinite,
    "isinf": lambda x: apply("eq", apply("abs", x), math.inf),
    "signbit": _signbit,
})  # fmt: skip


def divided(name: str, x: Cell, y: Cell, most: float) -> Cell:
    """A quotient or a remainder of integers of up to 32 bits, rounded down as numpy's.

    Of dividends up to `SMALL` float32 is within 0.7 of the quotient. Of others it leaves at most
    2^10 and y / 2, whose quotient it is within 0.7 of. Products and differences wrap, and lose
    nothing.

    Args:
        name: "floor_divide" or "remainder".
        x: the dividend.
        y: the divisor.
        most: of the size of x.
    """
    per = apply("div", Constant(1.0), apply("cast f32", y))
    q, left = _step(x, y, per)
    if most > SMALL:
        more, left = _step(left, y, per)
        q = apply("add", q, more)
    opposite = apply("signbit", apply("bit_xor", left, y))  # a remainder has the sign of y, or is 0
    over = apply("and", opposite, apply("ne", left, 0))
    if name == "remainder":
        return apply("where", over, apply("add", left, y), left)
    return apply("sub", q, apply("cast i32", over))


def _step(x: Cell, y: Cell, per: Cell) -> tuple[Cell, Cell]:
    near = _nearest_of_small(apply("mul", apply("cast f32", x), per))
    q = Native("cast i32", (near,))
    return q, apply("sub", x, apply("mul", q, y))


SMALL = 1 << 20  # of which three roundings of a quotient are less than a fifth
DIVIDED = ("floor_divide", "remainder")


def by_power_of_two(cell: Apply) -> Apply | None:
    """A quotient or remainder of integers by a power of two as a move or mask of bits."""
    if cell.cell not in DIVIDED or not isinstance(y := cell.args[1], Constant):
        return None
    by = int(y.value)
    if by < 1 or by & (by - 1):
        return None
    number, name = (by - 1, "bit_and") if cell.cell == "remainder" else (by.bit_length() - 1, "shr")
    return Apply(name, (cell.args[0], Constant(number, y.dtype)))


def raw(cell: Apply) -> bool:
    """Whether a cell that has a formula is one that formulas end in: 1 / x."""
    first = cell.args[0]
    return cell.cell == "div" and isinstance(first, Constant) and first.value == 1
