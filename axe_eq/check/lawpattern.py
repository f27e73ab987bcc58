"""Patterns of laws taken apart: parameters, and the operands that a pattern lists."""

from __future__ import annotations

from typing import Any

from axe_eq.program.terms import Cons
from axe_eq.rule.term import Expr, Term, Var


def names_in(pattern: Any) -> set[str]:
    """Names of the parameters in a pattern."""
    if isinstance(pattern, Var):
        return {pattern.name}
    args = pattern.args if isinstance(pattern, Term | Expr) else ()
    return set().union(*map(names_in, args))


def listed(pattern: Any) -> tuple[list[Any], Any]:
    """The operands that a pattern lists, and the parameter for the others, if any."""
    parts = []
    while isinstance(pattern, Term) and pattern.symbol is Cons:
        parts.append(pattern.args[0])
        pattern = pattern.args[1]
    return parts, pattern if isinstance(pattern, Var) else None
