"""Kinds of numbers that cells take and give, for samples of laws: "f", "i" and "b"."""

from __future__ import annotations

from axe_eq.program.ops import Cell, split_text
from axe_eq.program.types import DTYPES

_KINDS = {"number": "fi", "float": "f", "integer": "i", "logical": "b", "wide": "f"}


class Misfit(Exception):
    """Decisions that do not fit together; draw again."""


def fits(declared: Cell, n: int, more: bool, kinds: str) -> bool:
    """Whether a cell takes so many operands, or more, and gives a value of one of these kinds."""
    if declared.arity is not None:
        takes = declared.arity == n or (more and declared.arity > n)
    else:
        takes = more or n > 0
    given = "b" if declared.result == "bool" else _KINDS.get(declared.result, "fib")
    return takes and any(kind in given for kind in kinds)


def operand_kinds(declared: Cell, text: str, kinds: str) -> list[str]:
    """Kinds that each operand may have so that the value has one of these kinds."""
    if declared.n_values > 1:
        return ["f", "f" if "f" in kinds else "i"]
    if declared.result == "bool":
        return ["fi"]
    if declared.result == "last":
        return ["b", kinds]
    if declared.result == "param":
        _, params = split_text(text)
        return ["fib"] if params and DTYPES[params[0]].kind in kinds else ["fi"]
    allowed = _KINDS.get(declared.result, "fib")
    both = "".join(k for k in kinds if k in allowed)
    if not both:
        raise Misfit
    return [both]
