"""Views: operators that only move, of a value that lies in memory, as layouts of what they give.

A permutation, slice, stride, flip, split, merge or broadcast sends an index of its result to one of
its operand, so it is a layout on the operand's indices. Composed with the layout in which the
operand lies it is the layout in which the result lies, in the same memory (Axe, section 3.3).
"""

from __future__ import annotations

from functools import lru_cache

from axe_eq.errors import LayoutError, SearchError
from axe_eq.layout import Layout, compose
from axe_eq.layout.value.iters import DEFAULT_AXIS
from axe_eq.program import places
from axe_eq.program.node import op_type, sel_type
from axe_eq.program.ops import selector
from axe_eq.program.places import Coords
from axe_eq.program.signature import plain, signature
from axe_eq.program.types import ValueType

COPY = "id"  # the cell of an operator that is a view


def is_signature(text: str) -> bool:
    """Whether the text of a view is the signature of an operator; else it is a selector.

    >>> is_signature("a b -> b a"), is_signature("merge 0 2")
    (True, False)
    """
    return "->" in text


def view_type(text: str, type: ValueType) -> ValueType:
    """The type of a view of a value.

    Raises:
        ProgramError: it does not fit the value.
    """
    return op_type(text, COPY, (type,)) if is_signature(text) else sel_type(text, (type,))


@lru_cache(maxsize=1 << 14)
def view_layout(text: str, type: ValueType, layout: str) -> str | None:
    """The layout of a view in the memory where its value lies in a layout; None where none is.

    >>> from axe_eq.program.types import value_type
    >>> view_layout("a b -> b a", value_type("f32[2,3]"), "S[(6):(1@m)]")
    'S[(3,2):(1@m,3@m)]'

    Args:
        text: a selector of one operand, or the signature of an operator that only copies.
        type: of the value.
        layout: where it lies, on one axis of memory.
    """
    if not is_signature(text) and selector(text)[0].inverse is not None:
        return layout
    lies, coords = Layout.parse(layout), _coords(text, type)
    if coords is None or lies.replica or set(lies.axes) - {DEFAULT_AXIS}:
        return None
    extents = view_type(text, type).shape
    offset, strides = places.index_in(type.shape, coords, len(extents))
    index = [(e, s) for e, s in zip(extents, strides, strict=True)]
    try:
        return str(compose(lies, Layout(index, offset={DEFAULT_AXIS: offset})).canonical())
    except (LayoutError, SearchError):
        return None


def _coords(text: str, type: ValueType) -> Coords | None:
    """Where a view reads its value, index by index; None where it is none."""
    if is_signature(text):
        sig = signature(text)
        return sig.operands[0] if len(sig.operands) == 1 and not sig.n_reduced else None
    declared, _ = selector(text)
    if declared.arity != 1 or declared.fill is not None or declared.look is not None:
        return None
    rank = view_type(text, type).rank
    found = places.pulled(text, (type,), tuple(map(plain, range(rank))))
    return found[0] if found else None
