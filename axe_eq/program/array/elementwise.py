"""Element-wise functions of the array namespace (Python array API standard)."""

from __future__ import annotations

from collections.abc import Callable

from axe_eq.errors import ProgramError
from axe_eq.program.array.dtypes import astype
from axe_eq.program.traced import Operand, Traced, as_operands, as_traced, elementwise
from axe_eq.program.types import DTYPES, promote

Unary = Callable[[Operand], Traced]
Binary = Callable[[Operand, Operand], Traced]


def _to_float(x: Traced) -> Traced:
    """Integers as f64, as numpy does for functions with fractional values."""
    return astype(x, "f64") if DTYPES[x.dtype].kind == "i" else x


def _float(name: str, what: str, cell: str = "") -> Unary:
    def function(x: Operand, /) -> Traced:
        return elementwise(cell or name, _to_float(as_traced(x)))

    return _documented(function, name, f"{what}, element by element. Integers give f64.")


def _unary(name: str, what: str, cell: str = "") -> Unary:
    def function(x: Operand, /) -> Traced:
        return elementwise(cell or name, x)

    return _documented(function, name, f"{what}, element by element.")


def _binary(name: str, what: str, cell: str = "") -> Binary:
    def function(x1: Operand, x2: Operand, /) -> Traced:
        return elementwise(cell or name, x1, x2)

    return _documented(function, name, f"{what}, element by element, broadcast against each other.")


def _float_binary(name: str, what: str, cell: str = "") -> Binary:
    def function(x1: Operand, x2: Operand, /) -> Traced:
        a, b = as_operands(x1, x2)
        if DTYPES[promote(a.dtype, b.dtype)].kind == "i":
            a, b = _to_float(a), _to_float(b)
        return elementwise(cell or name, a, b)

    return _documented(function, name, f"{what}, element by element. Integers give f64.")


def _ring(name: str, what: str, cell: str, boolean: str) -> Binary:
    def function(x1: Operand, x2: Operand, /) -> Traced:
        a, b = as_operands(x1, x2)
        return elementwise(boolean if promote(a.dtype, b.dtype) == "bool" else cell, a, b)

    return _documented(function, name, f"{what}, element by element; of bools, {boolean}.")


def _logical(name: str, cell: str) -> Binary:
    def function(x1: Operand, x2: Operand, /) -> Traced:
        return elementwise(cell, truth(as_traced(x1)), truth(as_traced(x2)))

    return _documented(function, name, f"Logical {cell}, element by element; numbers are x != 0.")


def truth(x: Traced) -> Traced:
    """The array as bool: x != 0 for numbers."""
    return x if x.dtype == "bool" else elementwise("ne", x, 0)


def _documented(function: Callable[..., Traced], name: str, text: str) -> Callable[..., Traced]:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = text
    return function


abs = _unary("abs", "Absolute value")
negative = _unary("negative", "-x", "neg")
positive = _unary("positive", "+x", "id")
sign = _unary("sign", "-1, 0 or 1; NaN of NaN")
floor = _unary("floor", "Largest integer not above x")
ceil = _unary("ceil", "Smallest integer not below x")
trunc = _unary("trunc", "x without its fraction")
round = _unary("round", "Nearest integer, halves to even")
isnan = _unary("isnan", "Whether x is NaN")
isfinite = _unary("isfinite", "Whether x is neither NaN nor infinite")
isinf = _unary("isinf", "Whether x is infinite")
signbit = _unary("signbit", "Whether the sign bit is set")

acos = _float("acos", "Arc cosine")
acosh = _float("acosh", "Inverse hyperbolic cosine")
asin = _float("asin", "Arc sine")
asinh = _float("asinh", "Inverse hyperbolic sine")
atan = _float("atan", "Arc tangent")
atanh = _float("atanh", "Inverse hyperbolic tangent")
cos = _float("cos", "Cosine")
cosh = _float("cosh", "Hyperbolic cosine")
erf = _float("erf", "Error function (an extension of the standard)")
exp = _float("exp", "e to the x")
expm1 = _float("expm1", "exp(x) - 1")
log = _float("log", "Natural logarithm")
log10 = _float("log10", "Decimal logarithm")
log1p = _float("log1p", "log(1 + x)")
log2 = _float("log2", "Binary logarithm")
rsqrt = _float("rsqrt", "1 / sqrt(x) (an extension of the standard)")
sigmoid = _float("sigmoid", "1 / (1 + exp(-x)) (an extension of the standard)")
sin = _float("sin", "Sine")
sinh = _float("sinh", "Hyperbolic sine")
sqrt = _float("sqrt", "Square root")
tan = _float("tan", "Tangent")
tanh = _float("tanh", "Hyperbolic tangent")

add = _ring("add", "Sum", "add", "or")
multiply = _ring("multiply", "Product", "mul", "and")
subtract = _binary("subtract", "Difference", "sub")
floor_divide = _binary("floor_divide", "Quotient rounded down")
remainder = _binary("remainder", "x1 - x2 * floor(x1 / x2)")
maximum = _binary("maximum", "The larger, NaN if either is")
minimum = _binary("minimum", "The smaller, NaN if either is")
divide = _float_binary("divide", "Quotient", "div")
atan2 = _float_binary("atan2", "Angle of the point (x2, x1)")
copysign = _float_binary("copysign", "x1 with the sign of x2")
hypot = _float_binary("hypot", "sqrt(x1**2 + x2**2)")
logaddexp = _float_binary("logaddexp", "log(exp(x1) + exp(x2))")

equal = _binary("equal", "x1 == x2", "eq")
not_equal = _binary("not_equal", "x1 != x2", "ne")
less = _binary("less", "x1 < x2", "lt")
less_equal = _binary("less_equal", "x1 <= x2", "le")
greater = _binary("greater", "x1 > x2", "gt")
greater_equal = _binary("greater_equal", "x1 >= x2", "ge")

logical_and = _logical("logical_and", "and")
logical_or = _logical("logical_or", "or")
logical_xor = _logical("logical_xor", "xor")
bitwise_and = _ring("bitwise_and", "Bitwise and of integers", "bit_and", "and")
bitwise_or = _ring("bitwise_or", "Bitwise or of integers", "bit_or", "or")
bitwise_xor = _ring("bitwise_xor", "Bitwise xor of integers", "bit_xor", "xor")
bitwise_left_shift = _binary("bitwise_left_shift", "x1 * 2**x2 of integers", "shl")
bitwise_right_shift = _binary("bitwise_right_shift", "floor(x1 / 2**x2) of integers", "shr")


def pow(x1: Operand, x2: Operand, /) -> Traced:
    """x1 to the x2, element by element, broadcast against each other.

    Integers to a power that is negative in the program's text are refused, as numpy does. Where an
    array of integers holds such a power, the result is the fraction rounded towards 0.

    Raises:
        ProgramError: integers to a power that is a negative number.

    Example:
        >>> import numpy as np
        >>> import axe_eq as axe
        >>> from axe_eq import array as xp
        >>> axe.run(lambda x: xp.pow(x, 3), np.array([-2, 5], "i4"))
        array([ -8, 125], dtype=int32)
    """
    a, b = as_operands(x1, x2)
    if isinstance(x2, int) and x2 < 0 and DTYPES[a.dtype].kind == "i":
        raise ProgramError(
            "pow", f"raises {a.dtype} to {x2}", f"a power of 0 or more, or floats: x**{x2}.0"
        )
    return elementwise("pow", a, b)


def logical_not(x: Operand, /) -> Traced:
    """Logical not, element by element; numbers are x != 0."""
    return elementwise("not", truth(as_traced(x)))


def bitwise_invert(x: Operand, /) -> Traced:
    """Bitwise not of integers, element by element; of bools, not."""
    operand = as_traced(x)
    return elementwise("not" if operand.dtype == "bool" else "bit_not", operand)


def square(x: Operand, /) -> Traced:
    """The square."""
    operand = as_traced(x)
    return elementwise("mul", operand, operand)


def reciprocal(x: Operand, /) -> Traced:
    """1 / x."""
    return divide(1, x)


def nextafter(x1: Operand, x2: Operand, /) -> Traced:
    """The next number after x1 towards x2.

    Raises:
        ProgramError: half types, which are computed in f32, where the next number is another.
    """
    a, b = as_operands(x1, x2)
    common = promote(a.dtype, b.dtype)
    if DTYPES[common].accumulate != common:
        raise ProgramError("nextafter", f"got {common}", "f32 or f64")
    return elementwise("nextafter", a, b)


def clip(x: Operand, /, min: Operand = None, max: Operand = None) -> Traced:
    """Limited to min..max, either of which may be missing; in the dtype of x."""
    result = as_traced(x)
    for cell, bound in (("maximum", min), ("minimum", max)):
        if bound is not None:
            limit = as_traced(bound, (result.dtype,))
            result = elementwise(cell, result, astype(limit, result.dtype))
    return result


def where(condition: Operand, x1: Operand, x2: Operand, /) -> Traced:
    """Elements of x1 where the condition holds, of x2 elsewhere.

    Raises:
        ProgramError: a condition that is not bool, or shapes that do not broadcast.
    """
    return elementwise("where", as_traced(condition), *as_operands(x1, x2))


__all__ = [
    "abs", "acos", "acosh", "add", "asin", "asinh", "atan", "atan2", "atanh", "bitwise_and",
    "bitwise_invert", "bitwise_left_shift", "bitwise_or", "bitwise_right_shift", "bitwise_xor",
    "ceil", "clip", "copysign", "cos", "cosh", "divide", "equal", "erf", "exp", "expm1", "floor",
    "floor_divide", "greater", "greater_equal", "hypot", "isfinite", "isinf", "isnan", "less",
    "less_equal", "log", "log1p", "log2", "log10", "logaddexp", "logical_and", "logical_not",
    "logical_or", "logical_xor", "maximum", "minimum", "multiply", "negative", "nextafter",
    "not_equal", "positive", "pow", "reciprocal", "remainder", "round", "rsqrt", "sigmoid", "sign",
    "signbit", "sin", "sinh", "sqrt", "square", "subtract", "tan", "tanh", "trunc", "where",
]  # fmt: skip
