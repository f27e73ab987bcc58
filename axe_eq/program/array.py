"""The array namespace: functions of the Python array API standard on traced arrays.

A function written with ``xp = x.__array_namespace__()`` or array_api_compat runs on numpy, torch
and jax arrays and is traced by `axe_eq.trace`. Extensions: `block` and `select` apply any operator
by its text; `erf`, `rsqrt`, `sigmoid`, `pad` are functions other libraries keep elsewhere. What
would give shapes that depend on values (masks, unique, nonzero) and sorting do not exist.
"""

from __future__ import annotations

from axe_eq.program import (
    array_creation,
    array_dtypes,
    array_elementwise,
    array_linalg,
    array_manipulation,
    array_reductions,
)
from axe_eq.program.array_creation import *  # noqa: F403
from axe_eq.program.array_dtypes import *  # noqa: F403
from axe_eq.program.array_elementwise import *  # noqa: F403
from axe_eq.program.array_linalg import *  # noqa: F403
from axe_eq.program.array_manipulation import *  # noqa: F403
from axe_eq.program.array_reductions import *  # noqa: F403
from axe_eq.program.traced import block, select

__all__ = ["block", "select"]
__all__ += array_creation.__all__
__all__ += array_dtypes.__all__
__all__ += array_elementwise.__all__
__all__ += array_linalg.__all__
__all__ += array_manipulation.__all__
__all__ += array_reductions.__all__
