"""Marks of elements, handed on from operands to what is computed of them.

A mark says that nothing is known of an element: over the reals that it is undefined, or that
float64 says nothing; bit for bit that an integer was divided by zero, or what is no number was
made one, on the way to it. An operator
hands on the marks of all that it reads; a choice reads its condition and the branch it takes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from axe_eq.program import places
from axe_eq.program.gathers import looks, over_value
from axe_eq.program.meaning import cell_values, index_views, moved
from axe_eq.program.node import OP, SCAN, Node, topological
from axe_eq.program.ops import cell, scan, selector
from axe_eq.program.signature import Signature, signature
from axe_eq.program.types import DTYPES, Array


def reached(node: Node, given: Sequence[Array], marks: Sequence[Array]) -> Array:
    """Where marks of its operands reach a value.

    Args:
        node: an operator.
        given: values of its operands.
        marks: of these.
    """
    if node.kind in (OP, SCAN) and not any(m.any() for m in marks):
        return np.zeros(node.shape, bool)
    if node.kind == OP:
        sig = signature(node.text)
        space = sig.extents([x.shape for x in given])
        views = index_views(sig, given, space)
        cells = _strict(node.cell, views, index_views(sig, marks, space))
        return np.broadcast_to(over(sig, cells, full_shape(views)), node.shape)
    if node.kind == SCAN:
        return before(node, marks)
    if not looks(node.text, [a.type for a in node.args]):
        return np.isnan(_moved(node, marks))
    return _looked(node, given, marks)


def _strict(text: str, views: Sequence[Array], marks: Sequence[Array]) -> Array:
    """Where a mark of an operand reaches a cell."""
    if cell(text)[0].result == "last":
        return marks[0] | np.where(views[0], marks[1], marks[2])
    return any_of(marks)


def any_of(marks: Sequence[Array]) -> Array:
    """Where one of some marks is, which broadcast."""
    return np.logical_or.reduce(np.broadcast_arrays(*marks)) if len(marks) > 1 else marks[0]


def full_shape(views: Sequence[Array]) -> tuple[int, ...]:
    """The shape of an index space, of views of all operands."""
    return np.broadcast_shapes(*(v.shape for v in views))


def over(sig: Signature, marks: Array, full: tuple[int, ...]) -> Array:
    """Marks of what a reduction makes of marked cells."""
    whole = np.broadcast_to(marks, full)
    if not sig.n_reduced:
        return whole
    return np.asarray(whole.any(axis=tuple(range(sig.n_out, whole.ndim))))


def before(node: Node, marks: Sequence[Array]) -> Array:
    """Marks of what a scan makes: those of any element up to one."""
    return np.asarray(np.logical_or.accumulate(any_of(marks), axis=scan(node.text)[1]))


def _moved(node: Node, marks: Sequence[Array]) -> Array:
    """NaN where a selector puts what is marked; what it fills is not marked, unless it is NaN."""
    given = [np.where(m, np.nan, 0.0) for m in marks]
    declared, params = selector(node.text)
    return np.asarray(declared.run(params, given), dtype=np.float64)


def _looked(node: Node, given: Sequence[Array], marks: Sequence[Array]) -> Array:
    """What is read where marked integers say is marked too."""
    types, rank = [a.type for a in node.args], len(node.shape)
    rows, says = places.pulls(node.text, types), {look.by for look in looks(node.text, types)}
    own = [
        x if n in says else np.where(mark, np.nan, 0.0)
        for n, (x, mark) in enumerate(zip(given, marks, strict=True))
    ]
    found = np.isnan(moved(node.text, own))
    for by in says:
        found = found | over_value(rows[by], marks[by], rank)
    return np.asarray(found)


def integer_poles(text: str, views: Sequence[Array]) -> Array:
    """Where a cell has no integer as its value: a quotient by zero, what NaN is as an integer.

    The value on reals of such a quotient is not finite; machines make different integers of NaN and
    of infinities.

    Args:
        text: of the cell.
        views: its operands, over the index space.
    """
    declared, params = cell(text)
    none = np.zeros(full_shape(views), bool)
    if declared.result == "param" and views[0].dtype.kind not in "iub":
        return none | (~np.isfinite(views[0]) if DTYPES[params[0]].kind == "i" else False)
    if (
        declared.n_values > 1
        or declared.result != "number"
        or any(v.dtype.kind not in "iu" for v in views)
    ):
        return none
    with np.errstate(all="ignore"):
        return none | ~np.isfinite(cell_values(text, [v.astype(np.float64) for v in views])[0])


def on_no_integer(roots: Sequence[Node], values: Mapping[Node, Array]) -> dict[Node, Array]:
    """Of nodes with such elements: which of them rest on what is no integer's value.

    Args:
        roots: of a program.
        values: of all its nodes.
    """
    marks: dict[Node, Array] = {}
    for node in topological(roots):
        given = [values[a] for a in node.args]
        found = np.zeros(node.shape, bool)
        if not marks.keys().isdisjoint(node.args):
            own = [marks.get(a, np.zeros(a.shape, bool)) for a in node.args]
            found = reached(node, given, own)
        if node.kind == OP:
            sig = signature(node.text)
            views = index_views(sig, given)
            found = found | over(sig, integer_poles(node.cell, views), full_shape(views))
        if found.any():
            marks[node] = found
    return marks
