"""Which cells kernels are written of, by the kind of number that they compute in."""

from __future__ import annotations

from collections.abc import Sequence

from axe_eq.kernel.cells import Apply, Operand, common_dtype
from axe_eq.program import ops
from axe_eq.program.types import DTYPES
from axe_eq_backends.nki.native import EXPANSIONS
from axe_eq_backends.nki.vector import ARITHMETIC, BITS, FUNCTIONS, FUSED

WHOLE = {"isnan": False, "isinf": False, "isfinite": True}  # of what is no float
COMPARE = ("eq", "ne", "lt", "le", "gt", "ge")
FLOATS = (*ARITHMETIC, *FUNCTIONS, *EXPANSIONS)
BOOLS = ("not", "and", "or", "xor", "maximum", "minimum", *WHOLE, *COMPARE)
INTEGERS = (
    *FUSED, *BITS, "bit_not", "neg", "abs", "sign", "signbit", "remainder", "floor_divide",
    "floor", "ceil", "trunc", "round", *WHOLE, *COMPARE,
)  # fmt: skip
_OF_KIND = {"f": FLOATS, "b": BOOLS, "i": INTEGERS, "u": INTEGERS}
_ANY = ("where", "cast", "id", "pair", "product")  # the last three a cone has read by then


def refusal(text: str, dtypes: Sequence[str]) -> str | None:
    """Why a cell cannot be written, whatever its operands hold; None where it can.

    >>> refusal("nextafter", ["f32", "f32"])[:56]
    "cell 'nextafter' has no instructions of NKI on f32: a la"

    Args:
        text: the cell's text.
        dtypes: element types of its operands.
    """
    name, _ = ops.split_text(text)
    given = Apply(text, tuple(map(Operand, range(len(dtypes)))))
    kind = common_dtype(given, [DTYPES[d].accumulate for d in dtypes])
    if name in (*_OF_KIND[DTYPES[kind].kind], *_ANY):
        return None
    return (
        f"cell {text!r} has no instructions of NKI on {kind}: "
        "a law that says what it is in other cells leads around it"
    )
