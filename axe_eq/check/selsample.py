"""Samples of selectors: a text and operand shapes that give a wanted type.

What to try is each selector's own to say (`Selector.propose`, `Selector.operands`); what fits, its
`shape`.
"""

from __future__ import annotations

from collections.abc import Sequence

from axe_eq.errors import ProgramError
from axe_eq.program.decisions import Draw
from axe_eq.program.node import sel_type
from axe_eq.program.ops import SELECTORS, Known, Selector, join_text, selector
from axe_eq.program.types import ValueType

Shape = tuple[int, ...]
Found = tuple[str, list[Shape]]


def sample_selector(draw: Draw, at: str, known: Known, wanted: ValueType) -> Found | None:
    """A selector's text and the shapes of its operands.

    Args:
        draw: decisions.
        at: prefix of their names.
        known: per operand its type, where it is given.
        wanted: type of the value.

    Returns:
        None where these decisions do not fit.
    """
    arities = (len(known), None) if known else (0,)
    fitting = [s for s in SELECTORS.values() if s.propose and s.arity in arities]
    for declared in draw.shuffled(f"{at}.selector", fitting):
        found = propose(draw, at, declared, known, wanted)
        if found is not None:
            return found
    return None


def propose(
    draw: Draw, at: str, declared: Selector, known: Known, wanted: ValueType
) -> Found | None:
    """`sample_selector` for one selector."""
    params = declared.propose(draw, at, wanted, known) if declared.propose else None
    if params is None:
        return None
    return _drawn(draw, at, join_text(declared.name, *params), known, wanted)


def shapes_for(
    draw: Draw,
    at: str,
    spec: str,
    before: Sequence[ValueType] | None,
    known: Known,
    wanted: ValueType,
) -> Found | None:
    """Operand shapes for a text that is given: those given or of an earlier use, or fitting ones.

    Arguments as for `sample_selector`; `before` are the operand types of an earlier use.
    """
    if before is not None and draw.chance(f"{at}.before", 0.5):
        found = _fitting(spec, [t.shape for t in before], known, wanted)
        if found is not None:
            return found
    return _drawn(draw, at, spec, known, wanted)


def _drawn(draw: Draw, at: str, spec: str, known: Known, wanted: ValueType) -> Found | None:
    """Operands as the selector draws them, but for those that are given."""
    if known and None not in known:
        return _fitting(spec, [()] * len(known), known, wanted)
    declared, params = selector(spec)
    shapes = declared.operands(draw, at, params, wanted, known) if declared.operands else None
    return None if shapes is None else _fitting(spec, shapes, known, wanted)


def _fitting(spec: str, shapes: Sequence[Shape], known: Known, wanted: ValueType) -> Found | None:
    """The text with these shapes, or given ones in their place, if it gives what is wanted."""
    if len(shapes) != len(known):
        return None
    pairs = zip(shapes, known, strict=True)
    types = [ValueType(wanted.dtype, shape) if t is None else t for shape, t in pairs]
    try:
        fits = min((e for t in types for e in t.shape), default=1) >= 1
        fits = fits and sel_type(spec, tuple(types)) == wanted
    except ProgramError:
        return None
    return (spec, [t.shape for t in types]) if fits else None
