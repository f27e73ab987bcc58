"""The array namespace: functions of the Python array API standard on traced arrays.

A function written with ``xp = x.__array_namespace__()`` or array_api_compat runs on numpy, torch
and jax arrays and is traced by `axe_eq.trace`. Extensions: `block` and `select` apply any operator
by its text; `dynamic_slice`, `erf`, `rsqrt`, `sigmoid`, `pad` are functions other libraries keep
elsewhere. What
would give shapes that depend on values (masks, unique, nonzero) does not exist; sorting is not
built.
"""

# Star imports gather the namespace from its parts.
# ruff: noqa: F403, F405

from __future__ import annotations

from types import FunctionType as _FunctionType
from typing import TYPE_CHECKING
from typing import NoReturn as _NoReturn

from axe_eq.errors import MissingAttribute as _MissingAttribute
from axe_eq.errors import NotBuilt as _NotBuilt
from axe_eq.program.array.arguments import refusing as _refusing
from axe_eq.program.array.creation import *
from axe_eq.program.array.dtypes import *
from axe_eq.program.array.elementwise import *
from axe_eq.program.array.linalg import *
from axe_eq.program.array.lookups import *
from axe_eq.program.array.manipulation import *
from axe_eq.program.array.reductions import *
from axe_eq.program.traced import block as block
from axe_eq.program.traced import instead as _instead
from axe_eq.program.traced import select as select

# Literal, because type checkers take the public names of a module from here.
__all__ = [  # noqa: RUF022
    "__array_api_version__", "__array_namespace_info__", "abs", "acos", "acosh", "add", "all",
    "any", "arange", "argmax", "argmin", "asarray", "asin", "asinh", "associative_scan", "astype",
    "atan", "atan2", "atanh", "bfloat16", "bitwise_and", "bitwise_invert", "bitwise_left_shift",
    "bitwise_or", "bitwise_right_shift", "bitwise_xor", "block", "bool", "broadcast_arrays",
    "broadcast_shapes", "broadcast_to", "can_cast", "ceil", "clip", "concat", "copysign", "cos",
    "cosh", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "divide", "dynamic_slice",
    "e", "empty", "empty_like", "equal", "erf", "exp", "expand_dims", "expm1", "eye", "finfo",
    "flip", "float16", "float32", "float64", "float8_e4m3fn", "float8_e5m2", "floor",
    "floor_divide", "from_dlpack", "full", "full_like", "greater", "greater_equal", "hypot",
    "iinfo", "inf", "int16", "int32", "int64", "int8", "isdtype", "isfinite", "isinf", "isnan",
    "less", "less_equal", "linspace", "log", "log10", "log1p", "log2", "logaddexp", "logical_and",
    "logical_not", "logical_or", "logical_xor", "matmul", "matrix_transpose", "max", "maximum",
    "mean", "meshgrid", "min", "minimum", "moveaxis", "multiply", "nan", "negative", "newaxis",
    "nextafter", "not_equal", "ones", "ones_like", "pad", "permute_dims", "pi", "positive", "pow",
    "prod", "reciprocal", "remainder", "repeat", "reshape", "result_type", "roll", "round", "rsqrt",
    "select", "sigmoid", "sign", "signbit", "sin", "sinh", "sqrt", "square", "squeeze", "stack",
    "std", "subtract", "sum", "take", "take_along_axis", "tan", "tanh", "tensordot", "tile", "tril",
    "triu", "trunc", "uint8", "unstack", "var", "vecdot", "where", "zeros", "zeros_like",
]  # fmt: skip

_CALLED = {
    "absolute": "abs", "concatenate": "concat", "cumprod": "cumulative_prod",
    "cumsum": "cumulative_sum", "power": "pow", "transpose": "permute_dims",
}  # fmt: skip
_ABSENT = {
    "searchsorted": "searching is not built",
    "sort argsort top_k topk": "sorting is not built",
    "nonzero unique_all unique_counts unique_inverse unique_values": (
        "would give a shape that depends on values"
    ),
}

if not TYPE_CHECKING:  # type checkers know the names above, and no others
    for _name in __all__:
        if isinstance(globals()[_name], _FunctionType):
            globals()[_name] = _refusing(globals()[_name], f"array function {_name!r}")

    def __getattr__(name: str) -> _NoReturn:
        """The error of a function that is not here: to `hasattr` it does not exist.

        Raises:
            NotBuilt: a function that other array libraries have, with the reason, or the name that
                it has here.
            MissingAttribute: any other name.
        """
        if name in _CALLED:
            wrong = "has another name in the array API standard"
            raise _NotBuilt(f"array function {name!r}", wrong, _CALLED[name])
        for names, wrong in _ABSENT.items():
            if name in names.split():
                raise _NotBuilt(f"array function {name!r}", wrong, "functions in docs/programs.md")
        hint = "" if name.startswith("_") else _instead(name)
        thing, wrong = f"module {__name__!r}", f"has no attribute {name!r}"
        raise _MissingAttribute(thing, wrong, "functions in docs/programs.md", hint=hint)
