"""Notations: texts of other systems read into layouts, and layouts written back.

Each notation is one module with ``read(text, context) -> Layout`` and ``write(layout, context) ->
str``, and one grammar under ``grammars/``. A text or layout that the other side cannot express is
refused with a `NotationError` that says why; nothing is approximated. docs/notations.md has the
grammar of each notation with examples.
"""

from __future__ import annotations

from axe_eq.layout.notation.registry import (
    NOTATIONS,
    Notation,
    check_shape,
    checked,
    find,
    notations_of,
    prefixed,
    read,
    read_any,
    row_major_shape,
    stated_shape,
    write,
)
from axe_eq.layout.notation.text import NO_CONTEXT, Context

__all__ = [
    "NOTATIONS", "NO_CONTEXT", "Context", "Notation", "check_shape", "checked", "find",
    "notations_of", "prefixed", "read", "read_any", "row_major_shape", "stated_shape", "write",
]  # fmt: skip
