"""A pack whose law's docstring states no law."""

from __future__ import annotations

from axe_eq import Pack
from axe_eq.program.terms import Sig, Value, op
from axe_eq.rule.law import Sides

PACK = Pack("lying_gates")


@PACK.law(source="ours")
def doubles(s: Sig, y: Value) -> Sides:
    """Makes programs twice as fast."""
    return op(s, "neg", y), op(s, "neg", y)
