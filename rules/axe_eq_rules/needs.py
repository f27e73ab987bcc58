"""Conditions of laws on what is known of a value at all finite inputs (`axe_eq.program.facts`).

A law that holds for some of its cells only if a value is so passes what it needs: `NOTHING` always
holds.
"""

from __future__ import annotations

from typing import Any

from axe_eq.program.facts import facts_of

NOTHING, BOUNDED, PROPER, FINITE = 0, 3, 3, 7


def is_defined(x: Any) -> Any:
    """The value is defined."""
    return facts_of(x) % 2 == 1


def is_finite(x: Any, need: Any = FINITE) -> Any:
    """The value is defined and finite."""
    return facts_of(x) % 8 >= need


def is_proper(x: Any, need: Any = PROPER) -> Any:
    """The value is finite wherever it is defined."""
    return facts_of(x) // 2 % 4 >= need


def is_below(x: Any) -> Any:
    """The value is never +inf."""
    return facts_of(x) // 2 % 2 == 1


def is_above(x: Any) -> Any:
    """The value is never -inf."""
    return facts_of(x) // 4 % 2 == 1


def is_bounded(x: Any, need: Any = BOUNDED) -> Any:
    """The value is defined and never +inf."""
    return facts_of(x) % 4 >= need
